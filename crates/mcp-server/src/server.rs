//! The methods that clients call.

pub(crate) mod cursor;
pub(crate) mod search_view;
pub(crate) mod task_calls;
pub(crate) mod task_methods;

use crate::{
    Invocations,
    clock::Clock,
    input::{
        request_state::Sealer,
        rounds::{Asks, Progressed, Repeated, call_with_input},
    },
    invocation::{
        Invocation, Invoked,
        answer::{AnswerOptions, Called, mixed_up, tool_result, unanswered_result},
        failure::InvocationError,
        own_resources::OwnResources,
    },
    names::{caller_of, prompt_capability, resource_capability, tool_capability},
    offer::{
        Offer,
        page_cache::{Key, List},
        resources::{Resources, SKILL_TEMPLATE},
    },
    server::cursor::{Asked, Listed},
    tasks::registry::Tasks,
};
use adapter_tools::{TaskSupport, Tool, ToolCx};
use arc_swap::ArcSwap;
use governance::{Denial, Governor, Policy, QuotaStore, Reason};
use jsonrpc_core::{ErrorCode, RawJson};
use ledger::Recorder;
use mcp_protocol::{
    Encoder, Method,
    model::{
        self, CacheHint, CacheScope, CallTool, ClientRequest, Complete, Completion,
        CompletionReference, GetPrompt, GetSkillResult, ListPromptsResult,
        ListResourceTemplatesResult, ListResources, ListResourcesResult, ListSkillsResult,
        ListToolsResult, Page, ReadDirectory, ReadDirectoryResult, ReadResource, ServerResult,
    },
};
use mcp_service::{GivingUp, McpError, RequestCx, Service};
use redaction::Redactor;
use serde_json::json;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Time that suggestions for an argument may take: they are asked for while somebody types.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(10);

/// Sizes and lifetimes of list pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListOptions {
    pub(crate) tools_page: usize,
    pub(crate) resources_page: usize,
    pub(crate) tools_ttl_ms: u64,
    pub(crate) resources_ttl_ms: u64,
}

/// Answers what clients ask: lists itself, and calls through what every call passes.
#[derive(Debug)]
pub struct Server<Q> {
    pub(crate) invocations: Arc<Invocations<Q>>,
    pub(crate) governor: Arc<Governor<Q>>,
    pub(crate) offer: Arc<ArcSwap<Offer>>,
    pub(crate) encoder: Encoder,
    pub(crate) lists: ListOptions,
    pub(crate) answering: AnswerOptions,
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) giving_up: Arc<GivingUp>,
    pub(crate) recorder: Recorder,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) tasks: Option<Arc<Tasks>>,
    pub(crate) default_timeout: Duration,
    pub(crate) clock: Clock,
}

impl<Q: QuotaStore> Service<ClientRequest> for Server<Q> {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        match request {
            ClientRequest::CallTool(call) => self.call_tool(cx, call).await,
            ClientRequest::ReadResource(read) => self.read_resource(cx, read).await,
            ClientRequest::ListTools(page) => self.list_tools(cx, page),
            ClientRequest::ListResources(list) => self.list_resources(cx, &list),
            ClientRequest::ListResourceTemplates(page) => self.list_templates(cx, page),
            ClientRequest::Subscribe(uri) => self.may_subscribe(cx, &uri).await,
            ClientRequest::Unsubscribe(_) => Ok(ServerResult::Empty),
            ClientRequest::ListSkills(page) => self.list_skills(cx, page),
            ClientRequest::GetSkill(uri) => self.get_skill(cx, &uri),
            ClientRequest::ReadDirectory(read) => self.read_directory(cx, &read),
            ClientRequest::ListPrompts(page) => self.list_prompts(cx, page),
            ClientRequest::GetPrompt(get) => self.get_prompt(cx, get).await,
            ClientRequest::Complete(complete) => self.complete(cx, &complete).await,
            ClientRequest::GetTask(id) => self.get_task(cx, &id).await,
            ClientRequest::UpdateTask(update) => self.update_task(cx, update).await,
            ClientRequest::CancelTask(id) => self.cancel_task(cx, &id).await,
            ClientRequest::AwaitTask(id) => self.await_task(cx, &id).await,
            ClientRequest::ListTasks(page) => self.list_tasks(cx, page).await,
            ClientRequest::Listen(filter) => self.agree_to_listen(cx, filter).await,
            // The engine answers these; getting here is a fault of ours.
            ClientRequest::Initialize(_)
            | ClientRequest::Discover
            | ClientRequest::Ping
            | ClientRequest::SetLevel(_) => {
                Err(McpError::new(ErrorCode::INTERNAL_ERROR, "internal error"))
            }
        }
    }
}

impl<Q: QuotaStore> Server<Q> {
    async fn call_tool(
        &self,
        cx: &RequestCx,
        mut call: CallTool,
    ) -> Result<ServerResult, McpError> {
        let offer = self.offer.load_full();
        // What a model calls through the search view is no page's call.
        let is_of_model = call.at_most.is_some() || !cx.capabilities.has_apps();
        let mut is_hidden = false;
        if offer.page_names().has_apps() {
            if !is_of_model {
                self.name_as_offered(cx, &offer, &mut call.name);
            }
            let tool = offer.offered(&call.name);
            is_hidden = is_of_model && tool.is_some_and(|it| !it.is_for_model);
        }
        if let Some(search) = offer.search()
            && let Some(answer) = self.call_of_view(cx, &offer, search, &call).await
        {
            return answer;
        }
        if !is_hidden && let Some(as_task) = self.as_task(cx, &offer, &call)? {
            return self.call_as_task(cx, offer, call, as_task).await;
        }
        let CallTool {
            name,
            arguments,
            retry,
            task: _,
            at_most,
        } = call;
        let repeated = Repeated {
            method: Method::CallTool.name(),
            name: &name,
            parameters: &arguments,
        };
        let invocation = || {
            let mut called = Invocation::tool(Arc::clone(&offer), &name, arguments.clone());
            called.at_most = at_most;
            called.is_hidden = is_hidden;
            OwnResources::for_call(&self.invocations, &self.governor, cx, called)
        };
        let called = call_with_input(
            &*self.invocations,
            self.asks(),
            cx,
            repeated,
            retry,
            invocation,
        );
        let (outcome, report) = match called.await? {
            Progressed::Ended(outcome, report) => (outcome, report),
            Progressed::Asks(required) => return Ok(ServerResult::InputRequired(required)),
            Progressed::Unanswered(error, report) => {
                let result = unanswered_result(error, &report, cx, self.answering)?;
                return Ok(ServerResult::CallTool(result));
            }
        };
        let called = Called {
            tool: &name,
            offer: &offer,
            at_most,
        };
        let result = tool_result(outcome, &report, called, cx, self.answering)?;
        Ok(ServerResult::CallTool(result))
    }

    fn asks(&self) -> Asks<'_> {
        Asks {
            sealer: &self.sealer,
            clock: self.clock,
            giving_up: &self.giving_up,
        }
    }

    /// Puts the name that a tool is offered under in the place of the one by which the page of an app knows it, if its
    /// caller may see one such tool, and none of the page's name.
    fn name_as_offered(&self, cx: &RequestCx, offer: &Offer, name: &mut String) {
        let policy = self.governor.policy();
        let caller = caller_of(&cx.principal);
        let sees = |name: &str| policy.visible(caller, &tool_capability(name));
        let meant = offer.page_names().meant_by(name).iter();
        let mut meant = meant.filter(|it| sees(it));
        let (one, another) = (meant.next(), meant.next());
        let is_seen = sees(name) && offer.offered(name).is_some();
        match (one, another) {
            (Some(one), None) if !is_seen => (**one).clone_into(name),
            (Some(one), Some(another)) if !is_seen => tracing::warn!(
                name,
                "a page calls a tool by a name that several upstreams have (`{one}`, `{another}`); none is called"
            ),
            _ => {}
        }
    }

    /// The same for a resource.
    fn address_as_offered(&self, cx: &RequestCx, offer: &Offer, uri: &mut String) {
        let policy = self.governor.policy();
        let caller = caller_of(&cx.principal);
        let resources = offer.resources();
        let sees = |uri: &str| {
            let known = resources.governed_by(uri);
            known.is_some_and(|it| policy.visible(caller, &resource_capability(&it)))
        };
        let mut meant = resources.meant_by_pages(uri);
        meant.retain(|it| sees(it));
        if let [one] = &mut meant[..]
            && !sees(uri)
        {
            *uri = std::mem::take(one);
        }
    }

    fn task_support(&self, tool: &Tool) -> model::TaskSupport {
        match tool.task_support() {
            _ if self.tasks.is_none() => model::TaskSupport::Forbidden,
            TaskSupport::Forbidden => model::TaskSupport::Forbidden,
            TaskSupport::Optional => model::TaskSupport::Optional,
            TaskSupport::Required => model::TaskSupport::Required,
        }
    }

    async fn read_resource(
        &self,
        cx: &RequestCx,
        mut read: ReadResource,
    ) -> Result<ServerResult, McpError> {
        let retry = std::mem::take(&mut read.retry);
        let offer = self.offer.load_full();
        if offer.page_names().has_apps() && cx.capabilities.has_apps() {
            self.address_as_offered(cx, &offer, &mut read.uri);
        }
        let asked = RawJson::from_value(&json!({
            "uri": read.uri,
            "range": read.range.map(|range| json!({ "offset": range.offset, "length": range.length })),
        }));
        let asked = asked.map_err(|error| McpError::internal(&error))?;
        let repeated = Repeated {
            method: Method::ReadResource.name(),
            name: &read.uri,
            parameters: &asked,
        };
        let invocation = || {
            let called = Invocation::resource(Arc::clone(&offer), read.clone(), asked.clone());
            OwnResources::for_call(&self.invocations, &self.governor, cx, called)
        };
        let called = call_with_input(
            &*self.invocations,
            self.asks(),
            cx,
            repeated,
            retry,
            invocation,
        );
        match called.await? {
            Progressed::Asks(required) => Ok(ServerResult::InputRequired(required)),
            Progressed::Unanswered(error, _) => Err(error),
            Progressed::Ended(Ok(Invoked::Resource(result)), _) => {
                Ok(ServerResult::ReadResource(result))
            }
            Progressed::Ended(Ok(_), _) => Err(mixed_up()),
            Progressed::Ended(Err(error), _) => Err(error.to_reader(&read.uri, cx.version)),
        }
    }

    async fn get_prompt(&self, cx: &RequestCx, get: GetPrompt) -> Result<ServerResult, McpError> {
        let GetPrompt {
            name,
            arguments,
            retry,
        } = get;
        let offer = self.offer.load_full();
        let as_sent =
            RawJson::from_value(&arguments).map_err(|error| McpError::internal(&error))?;
        let repeated = Repeated {
            method: Method::GetPrompt.name(),
            name: &name,
            parameters: &as_sent,
        };
        let invocation = || {
            let offer = Arc::clone(&offer);
            let called =
                Invocation::prompt(offer, name.clone(), arguments.clone(), as_sent.clone());
            OwnResources::for_call(&self.invocations, &self.governor, cx, called)
        };
        let called = call_with_input(
            &*self.invocations,
            self.asks(),
            cx,
            repeated,
            retry,
            invocation,
        );
        match called.await? {
            Progressed::Asks(required) => Ok(ServerResult::InputRequired(required)),
            Progressed::Unanswered(error, _) => Err(error),
            Progressed::Ended(Ok(Invoked::Prompt(result)), _) => {
                Ok(ServerResult::GetPrompt(result))
            }
            Progressed::Ended(Ok(_), _) => Err(mixed_up()),
            Progressed::Ended(Err(error), _) => Err(error.to_prompter(&name, cx.version)),
        }
    }

    fn list_prompts(&self, cx: &RequestCx, page: Page) -> Result<ServerResult, McpError> {
        let offer = self.offer.load();
        self.listed(cx, &offer, List::Prompts, page.cursor, |policy, cursor| {
            let caller = caller_of(&cx.principal);
            let entries = offer.prompts().entries().iter();
            let visible: Vec<_> = entries
                .filter(|it| policy.visible(caller, &prompt_capability(&it.name)))
                .collect();
            let names = visible.iter().map(|it| it.name.as_str());
            let (range, next_cursor) = cursor
                .page(names, self.lists.tools_page)
                .ok_or_else(bad_cursor)?;
            Ok(ServerResult::ListPrompts(ListPromptsResult {
                prompts: visible[range].iter().map(|it| (*it).clone()).collect(),
                next_cursor,
                cache: private(self.lists.tools_ttl_ms),
            }))
        })
    }

    /// Suggests only for what the caller may use.
    async fn complete(
        &self,
        cx: &RequestCx,
        complete: &Complete,
    ) -> Result<ServerResult, McpError> {
        let offer = self.offer.load_full();
        let policy = self.governor.policy();
        let caller = caller_of(&cx.principal);
        let (permitted, known_template) = match &complete.reference {
            CompletionReference::Prompt { name } => {
                let entry = offer.prompts().governed_by(name);
                let capability = prompt_capability(entry.as_deref().unwrap_or(name));
                (policy.permitted(caller, &capability), false)
            }
            CompletionReference::Resource { uri } => {
                let resources = offer.resources();
                let mut templates = resources.templates().iter();
                let is_template = templates.any(|it| it.uri_template == *uri);
                let is_permitted =
                    is_let_through(&**resources, uri, |it| policy.permitted(caller, it));
                let is_known = is_template || resources.governed_by(uri).is_some();
                (is_permitted && is_known, is_permitted && is_template)
            }
        };
        drop(policy);
        let found = match permitted {
            true => {
                let call = ToolCx::new(Arc::clone(cx.principal.name()), cx.id.to_string())
                    .with_roles(cx.principal.shared_roles().cloned())
                    .with_subject_token(cx.principal.token().cloned())
                    .with_resources(OwnResources::of(
                        &self.invocations,
                        &self.governor,
                        cx,
                        &offer,
                    ))
                    .with_deadline(Instant::now() + COMPLETION_TIMEOUT);
                offer.prompts().suggest(call, complete).await
            }
            false => None,
        };
        match found.or_else(|| known_template.then(Completion::default)) {
            Some(completion) => Ok(ServerResult::Complete(completion)),
            None => Err(McpError::new(
                ErrorCode::INVALID_PARAMS,
                "invalid params: `ref` leads nowhere",
            )),
        }
    }

    fn list_tools(&self, cx: &RequestCx, page: Page) -> Result<ServerResult, McpError> {
        let offer = self.offer.load();
        if let Some(search) = offer.search()
            && search.view.is_for(&cx.principal)
        {
            return self.list_view(cx, &offer, search, page);
        }
        let with_pages = offer.page_names().has_apps() && cx.capabilities.has_apps();
        let list = List::Tools { with_pages };
        self.listed(cx, &offer, list, page.cursor, |policy, cursor| {
            let caller = caller_of(&cx.principal);
            let visible: Vec<_> = offer
                .described()
                .iter()
                .zip(offer.tools().iter())
                .filter(|(it, _)| with_pages || it.is_for_model())
                .filter(|(it, _)| policy.visible(caller, &tool_capability(it.name())))
                .collect();
            let names = visible.iter().map(|(it, _)| it.name());
            let (range, next_cursor) = cursor
                .page(names, self.lists.tools_page)
                .ok_or_else(bad_cursor)?;
            let tools = visible[range].iter().map(|(it, tool)| model::Tool {
                task_support: self.task_support(tool),
                ..it.seen_by(caller, policy, tool.is_async())
            });
            Ok(ServerResult::ListTools(ListToolsResult {
                tools: tools.collect(),
                next_cursor,
                cache: private(self.lists.tools_ttl_ms),
            }))
        })
    }

    fn list_resources(
        &self,
        cx: &RequestCx,
        list: &ListResources,
    ) -> Result<ServerResult, McpError> {
        let offer = self.offer.load();
        let make = |policy: &Policy, cursor: &Asked<'_>| {
            let resources = offer.resources();
            let matching = resources.matching(list).map_err(|why| {
                McpError::new(
                    ErrorCode::INVALID_PARAMS,
                    format!("invalid params of resources/list: {why}"),
                )
            })?;
            let visible: Vec<_> = matching
                .into_iter()
                .map(|index| &resources.entries()[index])
                .filter(|it| {
                    let uri = it.governed_by.as_deref().unwrap_or(&it.resource.uri);
                    policy.visible(caller_of(&cx.principal), &resource_capability(uri))
                })
                .map(|it| &it.resource)
                .collect();
            let uris = visible.iter().map(|it| it.uri.as_str());
            let (range, next_cursor) = cursor
                .page(uris, self.lists.resources_page)
                .ok_or_else(bad_cursor)?;
            Ok(ServerResult::ListResources(ListResourcesResult {
                resources: visible[range].iter().map(|it| (*it).clone()).collect(),
                next_cursor,
                cache: private(self.lists.resources_ttl_ms),
            }))
        };
        if list.category.is_some() || list.tag.is_some() || list.uri.is_some() {
            // Filters are the client's text: what they let through is not worth keeping.
            let asked = Asked::new(Listed::Resources, list.cursor.as_deref());
            return make(&self.governor.policy(), &asked);
        }
        self.listed(cx, &offer, List::Resources, list.cursor.clone(), make)
    }

    fn list_templates(&self, cx: &RequestCx, page: Page) -> Result<ServerResult, McpError> {
        let offer = self.offer.load();
        self.listed(
            cx,
            &offer,
            List::Templates,
            page.cursor,
            |policy, cursor| {
                let caller = caller_of(&cx.principal);
                let templates = offer.resources().templates().iter();
                let templates: Vec<_> = templates
                    .filter(|it| {
                        let sees = |capability: &str| policy.visible(caller, capability);
                        is_let_through(&**offer.resources(), &it.uri_template, sees)
                    })
                    .collect();
                let keys = templates.iter().map(|it| it.uri_template.as_str());
                let (range, next_cursor) = cursor
                    .page(keys, self.lists.resources_page)
                    .ok_or_else(bad_cursor)?;
                Ok(ServerResult::ListResourceTemplates(
                    ListResourceTemplatesResult {
                        resource_templates: templates[range]
                            .iter()
                            .map(|it| (*it).clone())
                            .collect(),
                        next_cursor,
                        cache: private(self.lists.resources_ttl_ms),
                    },
                ))
            },
        )
    }

    fn list_skills(&self, cx: &RequestCx, page: Page) -> Result<ServerResult, McpError> {
        let offer = self.offer.load();
        self.listed(cx, &offer, List::Skills, page.cursor, |policy, cursor| {
            // The extension is declared once; an offer that has replaced the first may be without.
            let Some(index) = offer.resources().skills() else {
                cursor.page(std::iter::empty(), 1).ok_or_else(bad_cursor)?;
                let none = ListSkillsResult {
                    cache: private(self.lists.resources_ttl_ms),
                    ..ListSkillsResult::default()
                };
                return Ok(ServerResult::ListSkills(none));
            };
            let visible = visible_resources(cx, policy);
            let skills: Vec<_> = index.visible(&visible).collect();
            let uris = skills.iter().map(|(uri, _)| *uri);
            let (range, next_cursor) = cursor
                .page(uris, self.lists.resources_page)
                .ok_or_else(bad_cursor)?;
            let entries = skills[range].iter();
            Ok(ServerResult::ListSkills(ListSkillsResult {
                skills: entries.map(|(_, it)| index.entry(*it, &visible)).collect(),
                next_cursor,
                cache: private(self.lists.resources_ttl_ms),
            }))
        })
    }

    /// Tells of a skill. Nothing of its content is read, so it is nothing for the ledger.
    fn get_skill(&self, cx: &RequestCx, uri: &str) -> Result<ServerResult, McpError> {
        let offer = self.offer.load();
        let policy = self.governor.policy();
        let index = offer.resources().skills();
        let skill = index.and_then(|it| it.get(uri, visible_resources(cx, &policy)));
        let skill = skill.ok_or_else(|| InvocationError::Unknown.to_reader(uri, cx.version))?;
        Ok(ServerResult::GetSkill(GetSkillResult {
            skill,
            cache: private(self.lists.resources_ttl_ms),
        }))
    }

    fn read_directory(
        &self,
        cx: &RequestCx,
        read: &ReadDirectory,
    ) -> Result<ServerResult, McpError> {
        let offer = self.offer.load();
        let policy = self.governor.policy();
        let index = offer.resources().skills();
        let children = index
            .and_then(|it| it.directory(&read.uri, visible_resources(cx, &policy)))
            .ok_or_else(|| InvocationError::Unknown.to_reader(&read.uri, cx.version))?;
        let uris = children.iter().map(|it| it.uri.as_str());
        let (range, next_cursor) = Asked::new(Listed::Directory, read.cursor.as_deref())
            .page(uris, self.lists.resources_page)
            .ok_or_else(bad_cursor)?;
        Ok(ServerResult::ReadDirectory(ReadDirectoryResult {
            resources: children[range].iter().map(|it| (*it).clone()).collect(),
            next_cursor,
        }))
    }

    /// A page from the offer's cache, or made and put there.
    pub(crate) fn listed(
        &self,
        cx: &RequestCx,
        offer: &Offer,
        list: List,
        cursor: Option<String>,
        make: impl FnOnce(&Policy, &Asked<'_>) -> Result<ServerResult, McpError>,
    ) -> Result<ServerResult, McpError> {
        // One policy for the key and for the page: a page made under a newer one would be kept for
        // everybody who shared a view under the old one, and they need not share it any more.
        let policy = self.governor.policy();
        let key = Key {
            list,
            policy_version: policy.version(),
            view: policy.view_of(caller_of(&cx.principal)),
            version: cx.version,
            cursor,
        };
        if let Some(page) = offer.lists.get(&key) {
            return Ok(ServerResult::Encoded(page));
        }
        let asked = Asked::new(list.into(), key.cursor.as_deref());
        let result = make(&policy, &asked)?;
        let page = self
            .encoder
            .result(cx.version, &result)
            .map_err(|error| McpError::internal(&error))?;
        if asked.is_shared() {
            offer.lists.put(key, page.clone());
        }
        Ok(ServerResult::Encoded(page))
    }

    /// Answers a subscription: a client may listen to resources that it may read.
    async fn may_subscribe(&self, cx: &RequestCx, uri: &str) -> Result<ServerResult, McpError> {
        let offer = self.offer.load_full();
        let Some(listening) = self.may_listen(cx, &offer, uri) else {
            let why = match self.may_know_of(cx, &offer, uri) {
                true => InvocationError::Denied(Denial::new(Reason::Permission)),
                false => InvocationError::Unknown,
            };
            return Err(why.to_reader(uri, cx.version));
        };
        let name = offer.resources().canonical(uri);
        match listening.hear(&offer, name.as_deref().unwrap_or(uri)).await {
            Ok(()) => Ok(ServerResult::Empty),
            Err(why) => {
                let message = format!("invalid params: {why}");
                Err(McpError::new(ErrorCode::INVALID_PARAMS, message))
            }
        }
    }

    /// True if a client may know of what is at `uri`: by the rules alone, whether anything is there or not.
    fn may_know_of(&self, cx: &RequestCx, offer: &Offer, uri: &str) -> bool {
        let name = offer.resources().canonical(uri);
        let uri = name.as_deref().unwrap_or(uri);
        let known = offer.resources().governed_by(uri);
        // Asked in every case, as below.
        let capability = resource_capability(known.as_deref().unwrap_or(uri));
        let is_visible = self.governor.visible(caller_of(&cx.principal), &capability);
        is_visible && known.is_some()
    }

    /// True if a client that wants to listen to a resource can: its changes are heard of. Nothing is subscribed to
    /// elsewhere for a client that may not read it.
    pub(crate) async fn can_listen(&self, cx: &RequestCx, offer: &Offer, uri: &str) -> bool {
        let name = offer.resources().canonical(uri);
        let uri = name.as_deref().unwrap_or(uri);
        match self.may_listen(cx, offer, uri) {
            Some(Listening::AsAbsent) => offer.resources().hear_absent(uri).is_ok(),
            Some(Listening::Openly) => {
                offer.resources().tells_of_changes(uri) && offer.resources().hear(uri).await.is_ok()
            }
            None => false,
        }
    }

    /// The way in which a client may listen: it may read what is at `uri`, or what is hidden there is answered as what is not
    /// there would be: what changes is told only to clients that may know of it.
    fn may_listen(&self, cx: &RequestCx, offer: &Offer, uri: &str) -> Option<Listening> {
        let resources = offer.resources();
        let name = resources.canonical(uri);
        let uri = name.as_deref().unwrap_or(uri);
        let (known, family) = (resources.governed_by(uri), resources.family(uri));
        // Asked in every case: which of them it was must not show in the time.
        let capability = resource_capability(known.as_deref().unwrap_or(uri));
        let family = family.map(|family| resource_capability(&family));
        let (policy, caller) = (self.governor.policy(), caller_of(&cx.principal));
        let may_read = policy.permitted(caller, &capability);
        let is_hidden = !policy.visible(caller, &capability);
        let is_like_absent = family.is_some_and(|family| policy.visible(caller, &family));
        known?;
        match (may_read, is_hidden && is_like_absent) {
            (true, _) => Some(Listening::Openly),
            (false, true) => Some(Listening::AsAbsent),
            (false, false) => None,
        }
    }
}

/// Way in which a client listens to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listening {
    /// Of one that it may read.
    Openly,
    /// Of one of which it is not to know whether it is there.
    AsAbsent,
}

impl Listening {
    async fn hear(self, offer: &Offer, uri: &str) -> Result<(), String> {
        match self {
            Self::Openly => offer.resources().hear(uri).await,
            Self::AsAbsent => offer.resources().hear_absent(uri),
        }
    }
}

/// Tests a family of resources by its template, or a resource by its URI. Rules match a template as they match a URI, and by
/// the name that they know it by, if that is another. That of skills says nothing of what there is, and is everybody's.
fn is_let_through(resources: &dyn Resources, uri: &str, passes: impl Fn(&str) -> bool) -> bool {
    let known = resources.governed_by(uri);
    let mut names = [Some(uri), known.as_deref()].into_iter().flatten();
    uri == SKILL_TEMPLATE || names.all(|it| passes(&resource_capability(it)))
}

/// Test of a resource for visibility, given the URI whose permission it needs.
fn visible_resources<'a>(cx: &'a RequestCx, policy: &'a Policy) -> impl Fn(&str) -> bool + 'a {
    |uri| policy.visible(caller_of(&cx.principal), &resource_capability(uri))
}

pub(crate) fn private(ttl_ms: u64) -> CacheHint {
    CacheHint {
        ttl_ms,
        scope: CacheScope::Private,
    }
}

pub(crate) fn bad_cursor() -> McpError {
    McpError::new(
        ErrorCode::INVALID_PARAMS,
        "invalid params: `cursor` is none of this list",
    )
}
