//! Lists, read to their end.

use super::{Listed, requests::Deadline};
use crate::{CallOptions, Connection, Error};
use mcp_protocol::{
    Era, Method, MirroredParams, RawJson,
    client::{Answer, LeftOut},
    model::{
        ClientRequest, ListResources, Page, Prompt, Resource, ResourceTemplate, TaskSupport, Tool,
    },
};
use std::sync::{MutexGuard, PoisonError};

impl Connection {
    /// All tools that fit; [`left_out`](Self::left_out) has the others: those without a name, those whose
    /// `inputSchema` is of another type than `object`, and, over HTTP in the modern era, those whose `x-mcp-header`
    /// annotations break the rules, as the revision demands.
    ///
    /// # Errors
    ///
    /// [`Error`], also when the list has more pages, items or bytes than the bounds allow.
    pub async fn tools(&self) -> Result<Vec<Tool>, Error> {
        let tools = self.tools_until(self.deadline(&CallOptions::default()));
        Ok(without_sent(tools.await?))
    }

    /// The same, each tool with all that was sent of it, members that no revision has among it.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn tools_as_sent(&self) -> Result<Vec<(Tool, RawJson)>, Error> {
        self.tools_until(self.deadline(&CallOptions::default()))
            .await
    }

    pub(super) async fn tools_until(
        &self,
        deadline: Deadline,
    ) -> Result<Vec<(Tool, RawJson)>, Error> {
        let (tools, as_sent) = self
            .all_until(
                deadline,
                |cursor| ClientRequest::ListTools(Page { cursor }),
                |answer| match answer {
                    Answer::ListTools(page) => Some((page.tools, page.next_cursor)),
                    _ => None,
                },
            )
            .await?;
        let mut tools: Vec<_> = tools.into_iter().zip(as_sent).collect();
        let version = self.shared().version();
        let mut listed = Listed::default();
        let is_mirrored = self.shared().link().http().is_some() && version.era() == Era::Modern;
        let (mut unfit, mut at) = (Vec::new(), 0);
        tools.retain(|(tool, _)| {
            at += 1;
            match mirrored(tool, is_mirrored) {
                Ok(params) if params.is_empty() => true,
                Ok(params) => {
                    listed.mirrored.insert(tool.name.clone(), params);
                    true
                }
                Err(why) => {
                    let name = Some(tool.name.clone());
                    unfit.push(LeftOut { name, at, why });
                    false
                }
            }
        });
        if !unfit.is_empty() {
            self.leave_out(Method::ListTools.name(), unfit);
        }
        if self.has_legacy_tasks() {
            let required = tools
                .iter()
                .filter(|(it, _)| it.task_support == TaskSupport::Required);
            listed.tasks = required.map(|(it, _)| it.name.clone()).collect();
        }
        *self.listed() = listed;
        Ok(tools)
    }

    /// Items of lists that do not fit, and are in none of what [`tools`](Self::tools), [`resources`](Self::resources),
    /// [`resource_templates`](Self::resource_templates) and [`prompts`](Self::prompts) have returned, with the method
    /// of the list; of each list as it was last read.
    #[must_use]
    pub fn left_out(&self) -> Vec<(&'static str, LeftOut)> {
        let lists = self.0.left_out.lock();
        let lists = lists.unwrap_or_else(PoisonError::into_inner);
        let items = |(list, items): (&&'static str, &Vec<LeftOut>)| {
            let list = *list;
            items
                .iter()
                .map(move |it| (list, it.clone()))
                .collect::<Vec<_>>()
        };
        lists.iter().flat_map(items).collect()
    }

    fn leave_out(&self, list: &'static str, items: Vec<LeftOut>) {
        for item in &items {
            tracing::warn!(list, item = %item, "an item of a list was left out");
        }
        let lists = self.0.left_out.lock();
        let mut lists = lists.unwrap_or_else(PoisonError::into_inner);
        lists.entry(list).or_default().extend(items);
    }

    pub(super) fn listed(&self) -> MutexGuard<'_, Listed> {
        self.0.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All resources.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn resources(&self) -> Result<Vec<Resource>, Error> {
        Ok(without_sent(self.resources_as_sent().await?))
    }

    /// The same, each resource with all that was sent of it.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn resources_as_sent(&self) -> Result<Vec<(Resource, RawJson)>, Error> {
        let ask = |cursor| {
            ClientRequest::ListResources(ListResources {
                cursor,
                ..ListResources::default()
            })
        };
        self.all_as_sent(ask, |answer| match answer {
            Answer::ListResources(page) => Some((page.resources, page.next_cursor)),
            _ => None,
        })
        .await
    }

    /// All templates of resources.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn resource_templates(&self) -> Result<Vec<ResourceTemplate>, Error> {
        Ok(without_sent(self.resource_templates_as_sent().await?))
    }

    /// The same, each template with all that was sent of it.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn resource_templates_as_sent(
        &self,
    ) -> Result<Vec<(ResourceTemplate, RawJson)>, Error> {
        let ask = |cursor| ClientRequest::ListResourceTemplates(Page { cursor });
        self.all_as_sent(ask, |answer| match answer {
            Answer::ListResourceTemplates(page) => {
                Some((page.resource_templates, page.next_cursor))
            }
            _ => None,
        })
        .await
    }

    /// All prompts.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn prompts(&self) -> Result<Vec<Prompt>, Error> {
        Ok(without_sent(self.prompts_as_sent().await?))
    }

    /// The same, each prompt with all that was sent of it.
    ///
    /// # Errors
    ///
    /// As [`Connection::tools`].
    pub async fn prompts_as_sent(&self) -> Result<Vec<(Prompt, RawJson)>, Error> {
        let ask = |cursor| ClientRequest::ListPrompts(Page { cursor });
        self.all_as_sent(ask, |answer| match answer {
            Answer::ListPrompts(page) => Some((page.prompts, page.next_cursor)),
            _ => None,
        })
        .await
    }

    /// Reads a list to its end.
    pub(super) async fn all<T>(
        &self,
        ask: impl Fn(Option<String>) -> ClientRequest,
        page: impl Fn(Answer) -> Option<(Vec<T>, Option<String>)>,
    ) -> Result<Vec<T>, Error> {
        let deadline = self.deadline(&CallOptions::default());
        Ok(self.all_until(deadline, ask, page).await?.0)
    }

    /// Reads a list to its end, each item of which is kept as it was sent, too.
    async fn all_as_sent<T>(
        &self,
        ask: impl Fn(Option<String>) -> ClientRequest,
        page: impl Fn(Answer) -> Option<(Vec<T>, Option<String>)>,
    ) -> Result<Vec<(T, RawJson)>, Error> {
        let deadline = self.deadline(&CallOptions::default());
        let (items, as_sent) = self.all_until(deadline, ask, page).await?;
        Ok(items.into_iter().zip(as_sent).collect())
    }

    async fn all_until<T>(
        &self,
        deadline: Deadline,
        ask: impl Fn(Option<String>) -> ClientRequest,
        page: impl Fn(Answer) -> Option<(Vec<T>, Option<String>)>,
    ) -> Result<(Vec<T>, Vec<RawJson>), Error> {
        let bounds = &self.options().bounds;
        let options = CallOptions::default();
        let (mut items, mut as_sent) = (Vec::new(), Vec::new());
        let mut left_out = Vec::new();
        let mut cursor = None;
        let mut bytes = 0_usize;
        for _ in 0..bounds.max_pages {
            let request = ask(cursor.clone());
            let list = Method::of(&request).name();
            let answered = self.answered_until(request, &options, deadline).await?;
            bytes = bytes.saturating_add(answered.bytes);
            if bounds.max_list_bytes < bytes {
                return Err(Error::bound("max_list_bytes", bounds.max_list_bytes));
            }
            let unfit = || Error::Protocol("a list was answered with something else".to_owned());
            let (known, known_left_out) = (items.len(), left_out.len());
            left_out.extend(answered.left_out);
            as_sent.extend(answered.as_sent);
            let (more, next) = page(answered.answer).ok_or_else(unfit)?;
            items.extend(more);
            if bounds.max_items < items.len() + left_out.len() {
                return Err(Error::bound("max_items", bounds.max_items as u64));
            }
            let leads_to_itself = next.is_some() && next == cursor;
            // Some servers take no notice of cursors and send their one page with one each time, most often an empty
            // one. An empty cursor is one like any other, so that what is behind it has to be asked for.
            let is_the_end = leads_to_itself
                && as_sent[known..]
                    .iter()
                    .all(|it| as_sent[..known].contains(it));
            if is_the_end {
                items.truncate(known);
                as_sent.truncate(known);
                left_out.truncate(known_left_out);
            }
            match next.filter(|_| !is_the_end) {
                None => {
                    let lists = self.0.left_out.lock();
                    lists.unwrap_or_else(PoisonError::into_inner).remove(list);
                    self.leave_out(list, left_out);
                    return Ok((items, as_sent));
                }
                Some(_) if leads_to_itself => {
                    return Err(Error::Protocol("a page leads to itself".to_owned()));
                }
                next => cursor = next,
            }
        }
        Err(Error::bound("max_pages", bounds.max_pages as u64))
    }
}

fn without_sent<T>(items: Vec<(T, RawJson)>) -> Vec<T> {
    items.into_iter().map(|(item, _)| item).collect()
}

/// The parameters of a tool that are repeated in headers, if `is_mirrored`; else why the tool cannot be called.
fn mirrored(tool: &Tool, is_mirrored: bool) -> Result<MirroredParams, String> {
    if tool.name.is_empty() {
        return Err("its name is empty".to_owned());
    }
    let schema: serde_json::Value = tool.input_schema.parse().map_err(|it| it.to_string())?;
    // Without a type it has that of all arguments, as servers of before have it.
    let kind = schema.as_object().map(|it| it.get("type"));
    if !matches!(kind, Some(None)) && kind.flatten() != Some(&"object".into()) {
        return Err("its `inputSchema` is not of type `object`".to_owned());
    }
    if !is_mirrored {
        return Ok(MirroredParams::default());
    }
    MirroredParams::of_schema(&schema).map_err(|it| it.to_string())
}
