//! Answers of the tools of the search view, and the layer that reads calls made through them.

use crate::{
    invocation::{Invocation, answer::needed_arguments, failure::InvocationError},
    names::{caller_of, tool_capability},
    offer::{
        Offer,
        page_cache::List,
        search::{
            self, DEFAULT_RESULTS, MAX_RESULTS, Search, SearchView, caller_for, effect_for,
            effect_name,
        },
    },
    server::{Server, bad_cursor, private},
};
use adapter_tools::Tool;
use arc_swap::ArcSwap;
use governance::QuotaStore;
use jsonrpc_core::{ErrorCode, ErrorObject, RawJson};
use mcp_protocol::model::{
    self, CallTool, CallToolResult, ClientRequest, Content, ListToolsResult, Page, ServerResult,
};
use mcp_service::{McpError, RequestCx, Service};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Reads calls that were made through a tool of the search view as the calls that they make, and arguments that are wrapped
/// in the name of the parameter that gets them as the arguments themselves. It is outermost, so that everything below, logs
/// and traces included, sees the call of the tool itself.
#[derive(Debug)]
pub struct Unwrapped<S> {
    inner: S,
    view: Option<Arc<SearchView>>,
    offer: Arc<ArcSwap<Offer>>,
}

impl<S> Unwrapped<S> {
    /// Without a view, the layer does nothing.
    pub(crate) fn new(inner: S, view: Option<Arc<SearchView>>, offer: Arc<ArcSwap<Offer>>) -> Self {
        Self { inner, view, offer }
    }
}

impl<S> Service<ClientRequest> for Unwrapped<S>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError>,
{
    type Response = ServerResult;
    type Error = McpError;

    fn call(
        &self,
        cx: &RequestCx,
        mut request: ClientRequest,
    ) -> impl Future<Output = Result<ServerResult, McpError>> + Send {
        if let ClientRequest::CallTool(call) = &mut request {
            if let Some(view) = &self.view {
                view.unwrap(&cx.principal, call);
            }
            if let Some(meant) = self.offer.load().unwrapped(&call.name, &call.arguments) {
                call.arguments = meant;
            }
        }
        self.inner.call(cx, request)
    }
}

impl<Q: QuotaStore> Server<Q> {
    /// The answer to a call of one of the view's own tools; `None` for any other call.
    pub(crate) async fn call_of_view(
        &self,
        cx: &RequestCx,
        offer: &Arc<Offer>,
        search: &Search,
        call: &CallTool,
    ) -> Option<Result<ServerResult, McpError>> {
        if call.at_most.is_some() {
            return None;
        }
        let tool = search.view.own(&call.name)?;
        if !search.view.is_for(&cx.principal) {
            return None;
        }
        let answer = match tool.check(call.arguments.clone().into_bytes()) {
            Err(invalid) => {
                let told = InvocationError::Invalid(invalid).to_client(
                    (tool.name(), true),
                    cx,
                    self.answering,
                );
                let told = told.map(|result| with_schema(result, tool));
                match (told, self.meant(cx, offer, tool, call)) {
                    (Ok(result), Some(meant)) => Ok(with_schema(result, meant)),
                    (Err(McpError(error)), Some(meant)) => {
                        let message = format!("{}. {}", error.message, needed_arguments(meant));
                        Err(McpError(ErrorObject {
                            message: message.into(),
                            ..error
                        }))
                    }
                    (told, None) => told,
                }
            }
            Ok(_) => match tool.name() {
                search::SEARCH => self.search_tools(cx, offer, search, &call.arguments),
                search::DESCRIBE => self.describe_tools(cx, offer, &call.arguments),
                // A call that could be understood was rewritten, and is none of the view.
                _ => Err(unreadable(
                    "`name` and `arguments` are given at most once each",
                )),
            },
        };
        if tool.name() != search::SEARCH && tool.name() != search::DESCRIBE {
            // What calls are made is on record, those included that name no tool.
            let error = unreadable("the arguments do not say which tool is called");
            let refused = Invocation::tool(Arc::clone(offer), tool.name(), RawJson::EMPTY_OBJECT);
            self.record_mismatch(cx, &refused, &error, "invalid").await;
        }
        Some(answer.map(ServerResult::CallTool))
    }

    /// The tool that a call which cannot be understood was meant for, if its caller may see it.
    fn meant<'a>(
        &self,
        cx: &RequestCx,
        offer: &'a Offer,
        by: &Tool,
        call: &CallTool,
    ) -> Option<&'a Tool> {
        #[derive(Deserialize)]
        struct Named {
            name: String,
        }
        if matches!(by.name(), search::SEARCH | search::DESCRIBE) {
            return None;
        }
        let Named { name } = call.arguments.parse().ok()?;
        // Both are looked up in every case, as in descriptions.
        let policy = self.governor.policy();
        let visible = policy.visible(caller_of(&cx.principal), &tool_capability(&name));
        let offered = offer.offered(&name).filter(|it| it.is_for_model);
        offered.filter(|_| visible).map(|it| &it.tool)
    }

    fn search_tools(
        &self,
        cx: &RequestCx,
        offer: &Offer,
        search: &Search,
        arguments: &RawJson,
    ) -> Result<CallToolResult, McpError> {
        #[derive(Deserialize)]
        struct Asked {
            query: String,
            #[serde(default)]
            limit: Option<f64>,
        }
        let Asked { query, limit } = arguments
            .parse()
            .map_err(|error| unreadable(&error.to_string()))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 1 to 25, by its schema"
        )]
        let most = limit
            .map_or(DEFAULT_RESULTS, |it| it as usize)
            .min(MAX_RESULTS);
        let policy = self.governor.policy();
        let caller = caller_of(&cx.principal);
        let names = offer.described().iter().map(|it| it.name());
        let (found, matching) = search.find(caller, &policy, names, &query, most);
        let tools = offer.tools();
        let mut lines: Vec<_> = found
            .iter()
            .filter_map(|place| {
                let tool = tools.get(offer.described().get(*place)?.name())?;
                Some(search.line(*place, effect_for(tool, caller, &policy)))
            })
            .collect();
        if lines.is_empty() {
            lines.push("No tool fits. Try other words for what is to be done.".to_owned());
        }
        if found.len() < matching {
            let more = matching - found.len();
            lines.push(format!(
                "({more} more fit less well; `limit` shows up to {MAX_RESULTS}.)"
            ));
        }
        Ok(text(lines.join("\n")))
    }

    fn describe_tools(
        &self,
        cx: &RequestCx,
        offer: &Offer,
        arguments: &RawJson,
    ) -> Result<CallToolResult, McpError> {
        #[derive(Deserialize)]
        struct Asked {
            names: Vec<String>,
        }
        let Asked { names } = arguments
            .parse()
            .map_err(|error| unreadable(&error.to_string()))?;
        let policy = self.governor.policy();
        let caller = caller_of(&cx.principal);
        let described = names.iter().filter_map(|name| {
            // Both are looked up in every case: which of the two failed must not show in the time.
            let visible = policy.visible(caller, &tool_capability(name));
            match offer.offered(name) {
                Some(offered) if visible && offered.is_for_model => {
                    let effect = effect_for(&offered.tool, caller, &policy);
                    let mut described = offer
                        .described()
                        .iter()
                        .find(|it| it.name() == name)?
                        .for_model();
                    described["effect"] = json!(effect_name(effect));
                    described["callBy"] = json!(caller_for(effect));
                    Some(described)
                }
                _ => Some(json!({ "name": name, "error": "unknown tool" })),
            }
        });
        let described: Vec<Value> = described.collect();
        Ok(text(json!(described).to_string()))
    }

    /// The view's own tools, and those that are listed besides.
    pub(crate) fn list_view(
        &self,
        cx: &RequestCx,
        offer: &Offer,
        search: &Search,
        page: Page,
    ) -> Result<ServerResult, McpError> {
        let with_pages = cx.capabilities.has_apps();
        let list = List::Search { with_pages };
        self.listed(cx, offer, list, page.cursor, |policy, cursor| {
            let caller = caller_of(&cx.principal);
            let direct: Vec<_> = offer
                .described()
                .iter()
                .zip(offer.tools().iter())
                .filter(|(it, _)| match it.is_for_model() {
                    true => search.view.lists(it.name()) || offer.is_for_notes(it.name()),
                    // Nothing that a model could search for.
                    false => with_pages,
                })
                .filter(|(it, _)| policy.visible(caller, &tool_capability(it.name())))
                .collect();
            let own = search.view.listed().map(|it| model::Tool {
                task_support: match it.name() {
                    search::SEARCH | search::DESCRIBE => model::TaskSupport::Forbidden,
                    // As the tool that is called says.
                    _ if self.tasks.is_some() => model::TaskSupport::Optional,
                    _ => model::TaskSupport::Forbidden,
                },
                ..it.plain().clone()
            });
            let direct = direct.into_iter().map(|(it, tool)| model::Tool {
                task_support: self.task_support(tool),
                ..it.seen_by(caller, policy, tool.is_async())
            });
            let tools: Vec<_> = own.chain(direct).collect();
            let names = tools.iter().map(|it| it.name.as_str());
            let (range, next_cursor) = cursor
                .page(names, self.lists.tools_page)
                .ok_or_else(bad_cursor)?;
            Ok(ServerResult::ListTools(ListToolsResult {
                tools: tools[range].to_vec(),
                next_cursor,
                cache: private(self.lists.tools_ttl_ms),
            }))
        })
    }
}

/// A result that says besides which arguments were needed.
pub(crate) fn with_schema(mut result: CallToolResult, tool: &Tool) -> CallToolResult {
    result.content.push(Content::text(needed_arguments(tool)));
    result
}

fn unreadable(why: &str) -> McpError {
    McpError::new(
        ErrorCode::INVALID_PARAMS,
        format!("invalid arguments: {why}"),
    )
}

fn text(text: String) -> CallToolResult {
    CallToolResult {
        content: vec![Content::text(text)],
        ..CallToolResult::default()
    }
}
