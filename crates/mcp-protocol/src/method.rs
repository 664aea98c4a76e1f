//! Methods of each revision.

use crate::{
    Era, ProtocolError, ProtocolVersion,
    ProtocolVersion::{V2024_11_05, V2025_06_18, V2025_11_25, V2026_07_28},
    model::{
        CallTool, ClientNotification, ClientRequest, Complete, CompletionReference, DIRECTORY_READ,
        GetPrompt, InputRetry, LoggingLevel, Object, ReadResource, RequestMeta, SKILLS_EXTENSION,
        ServerCapabilities, SubscriptionFilter, TaskRequest, UpdateTask,
    },
};
use jsonrpc_core::{Id, RawJson};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, ops::RangeInclusive};

/// Defines [`Method`] by the one list of names. A kind of request that is missing here does not
/// compile.
macro_rules! methods {
    ($($variant:ident = $name:literal,)*) => {
        /// A method that clients call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(missing_docs, reason = "each is a variant of `ClientRequest`")]
        pub enum Method {
            $($variant,)*
        }

        impl Method {
            /// Every method.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The method of `request`.
            pub const fn of(request: &ClientRequest) -> Self {
                match request {
                    $(ClientRequest::$variant { .. } => Self::$variant,)*
                }
            }

            /// Name on the wire.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The method of this name.
            pub fn named(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

methods! {
    CallTool = "tools/call",
    ReadResource = "resources/read",
    ListTools = "tools/list",
    GetPrompt = "prompts/get",
    Initialize = "initialize",
    Discover = "server/discover",
    Ping = "ping",
    ListResources = "resources/list",
    ListResourceTemplates = "resources/templates/list",
    Subscribe = "resources/subscribe",
    Unsubscribe = "resources/unsubscribe",
    ListSkills = "skills/list",
    GetSkill = "skills/get",
    ReadDirectory = "resources/directory/read",
    ListPrompts = "prompts/list",
    Complete = "completion/complete",
    SetLevel = "logging/setLevel",
    Listen = "subscriptions/listen",
    GetTask = "tasks/get",
    UpdateTask = "tasks/update",
    CancelTask = "tasks/cancel",
    AwaitTask = "tasks/result",
    ListTasks = "tasks/list",
}

impl Method {
    /// True if revision `version` has it. A server that speaks the revision need not offer it.
    pub fn exists_in(self, version: ProtocolVersion) -> bool {
        let mut rows = REQUESTS.iter();
        rows.any(|row| row.method == self && row.versions.contains(&version))
    }

    /// The member of its parameters that the header `Mcp-Name` repeats.
    pub const fn named_by(self) -> Option<&'static str> {
        match self {
            Self::CallTool | Self::GetPrompt => Some("name"),
            Self::ReadResource => Some("uri"),
            Self::GetTask | Self::UpdateTask | Self::CancelTask => Some("taskId"),
            Self::Initialize
            | Self::Discover
            | Self::Ping
            | Self::ListTools
            | Self::ListResources
            | Self::ListResourceTemplates
            | Self::Subscribe
            | Self::Unsubscribe
            | Self::ListSkills
            | Self::GetSkill
            | Self::ReadDirectory
            | Self::ListPrompts
            | Self::Complete
            | Self::SetLevel
            | Self::Listen
            | Self::AwaitTask
            | Self::ListTasks => None,
        }
    }
}

/// One method: its name, the revisions that have it, what a server must offer for it to exist, and
/// how its parameters are read.
struct Row {
    method: Method,
    name: &'static str,
    versions: RangeInclusive<ProtocolVersion>,
    offered: fn(&ServerCapabilities) -> bool,
    decode: fn(&RawJson) -> Result<ClientRequest, String>,
}

const fn row(
    method: Method,
    first: ProtocolVersion,
    last: ProtocolVersion,
    offered: fn(&ServerCapabilities) -> bool,
    decode: fn(&RawJson) -> Result<ClientRequest, String>,
) -> Row {
    Row {
        method,
        name: method.name(),
        versions: first..=last,
        offered,
        decode,
    }
}

#[rustfmt::skip]
const REQUESTS: &[Row] = &[
    row(Method::CallTool,              V2026_07_28, V2026_07_28, tools,     call_tool),
    row(Method::CallTool,              V2025_11_25, V2025_11_25, tools,     call_tool_or_task),
    row(Method::CallTool,              V2024_11_05, V2025_06_18, tools,     call_tool),
    row(Method::ListTools,             V2024_11_05, V2026_07_28, tools,     |raw| read(raw).map(ClientRequest::ListTools)),
    row(Method::ReadResource,          V2024_11_05, V2026_07_28, resources, read_resource),
    row(Method::ListResources,         V2024_11_05, V2026_07_28, resources, |raw| read(raw).map(ClientRequest::ListResources)),
    row(Method::ListResourceTemplates, V2024_11_05, V2026_07_28, resources, |raw| read(raw).map(ClientRequest::ListResourceTemplates)),
    row(Method::Subscribe,             V2024_11_05, V2025_11_25, subscribe, |raw| uri(raw).map(ClientRequest::Subscribe)),
    row(Method::Unsubscribe,           V2024_11_05, V2025_11_25, subscribe, |raw| uri(raw).map(ClientRequest::Unsubscribe)),
    row(Method::ListSkills,            V2026_07_28, V2026_07_28, skills,    |raw| read(raw).map(ClientRequest::ListSkills)),
    row(Method::GetSkill,              V2026_07_28, V2026_07_28, skills,    |raw| uri(raw).map(ClientRequest::GetSkill)),
    row(Method::ReadDirectory,         V2026_07_28, V2026_07_28, directories, |raw| read(raw).map(ClientRequest::ReadDirectory)),
    row(Method::GetTask,               V2025_11_25, V2026_07_28, tasks,     |raw| task_id(raw).map(ClientRequest::GetTask)),
    row(Method::UpdateTask,            V2026_07_28, V2026_07_28, tasks,     update_task),
    row(Method::CancelTask,            V2025_11_25, V2026_07_28, tasks,     |raw| task_id(raw).map(ClientRequest::CancelTask)),
    row(Method::AwaitTask,             V2025_11_25, V2025_11_25, tasks,     |raw| task_id(raw).map(ClientRequest::AwaitTask)),
    row(Method::ListTasks,             V2025_11_25, V2025_11_25, task_lists, |raw| read(raw).map(ClientRequest::ListTasks)),
    row(Method::ListPrompts,           V2024_11_05, V2026_07_28, prompts,   |raw| read(raw).map(ClientRequest::ListPrompts)),
    row(Method::GetPrompt,             V2024_11_05, V2026_07_28, prompts,   get_prompt),
    row(Method::Complete,              V2024_11_05, V2026_07_28, completions, complete),
    row(Method::SetLevel,              V2024_11_05, V2025_11_25, logging,   |raw| set_level(raw).map(ClientRequest::SetLevel)),
    row(Method::Initialize,            V2024_11_05, V2025_11_25, always,    |raw| read(raw).map(Box::new).map(ClientRequest::Initialize)),
    row(Method::Ping,                  V2024_11_05, V2025_11_25, always,    |_| Ok(ClientRequest::Ping)),
    row(Method::Discover,              V2026_07_28, V2026_07_28, always,    |_| Ok(ClientRequest::Discover)),
    row(Method::Listen,                V2026_07_28, V2026_07_28, listen,    |raw| listen_filter(raw).map(ClientRequest::Listen)),
];

fn always(_: &ServerCapabilities) -> bool {
    true
}

fn tools(offer: &ServerCapabilities) -> bool {
    offer.tools
}

fn resources(offer: &ServerCapabilities) -> bool {
    offer.resources.is_some()
}

fn subscribe(offer: &ServerCapabilities) -> bool {
    offer.resources.is_some_and(|resources| resources.subscribe)
}

/// The extension depends on resources: without them it is not offered, whatever is declared.
fn skills(offer: &ServerCapabilities) -> bool {
    resources(offer) && offer.extensions.contains_key(SKILLS_EXTENSION)
}

fn directories(offer: &ServerCapabilities) -> bool {
    let settings = offer.extensions.get(SKILLS_EXTENSION);
    let declared = settings.and_then(|it| it.get(DIRECTORY_READ)?.as_bool());
    resources(offer) && declared == Some(true)
}

fn tasks(offer: &ServerCapabilities) -> bool {
    tools(offer) && offer.tasks.is_some()
}

fn task_lists(offer: &ServerCapabilities) -> bool {
    tools(offer) && offer.tasks.is_some_and(|tasks| tasks.list)
}

fn prompts(offer: &ServerCapabilities) -> bool {
    offer.prompts
}

fn completions(offer: &ServerCapabilities) -> bool {
    offer.completions
}

fn logging(offer: &ServerCapabilities) -> bool {
    offer.logging
}

fn listen(offer: &ServerCapabilities) -> bool {
    tools(offer) || resources(offer) || prompts(offer)
}

/// Returns true if the method exists, and no revision with a handshake has it.
pub(crate) fn is_modern_only(method: &str) -> bool {
    let mut rows = REQUESTS.iter().filter(|row| row.name == method);
    let first = rows.next();
    first.is_some_and(|row| row.versions.start().era() == Era::Modern)
        && rows.all(|row| row.versions.start().era() == Era::Modern)
}

/// Reads a request.
///
/// # Errors
///
/// [`ProtocolError::MethodNotFound`] when `version` has no such method or `offer` nothing it could
/// be about, and [`ProtocolError::InvalidParams`] when the method exists and `params` do not fit:
/// never the one for the other.
pub fn decode_request(
    version: ProtocolVersion,
    offer: &ServerCapabilities,
    method: &str,
    params: &RawJson,
) -> Result<ClientRequest, ProtocolError> {
    decode_request_with(version, offer, method, params, &RequestMeta::default())
}

/// Reads a request of which `meta` has been read already, with which an ordinary call has been found.
///
/// # Errors
///
/// As [`decode_request`] has them.
pub fn decode_request_with(
    version: ProtocolVersion,
    offer: &ServerCapabilities,
    method: &str,
    params: &RawJson,
    meta: &RequestMeta,
) -> Result<ClientRequest, ProtocolError> {
    let row = REQUESTS
        .iter()
        .find(|row| row.name == method && row.versions.contains(&version))
        .filter(|row| (row.offered)(offer))
        .ok_or_else(|| ProtocolError::MethodNotFound {
            method: shortened(method),
        })?;
    let invalid = |reason| ProtocolError::InvalidParams {
        method: row.name,
        reason,
    };
    // serde reads a struct from an array, too.
    if !params.is_object() {
        return Err(invalid("`params` must be an object".to_owned()));
    }
    if row.method == Method::CallTool
        && let Some(call) = &meta.call
        && !(call.has_task && version == V2025_11_25)
        && let Some(call) = call.of(params)
    {
        return Ok(ClientRequest::CallTool(call));
    }
    (row.decode)(params).map_err(invalid)
}

/// Reads a notification; `None` for one we do not know, or cannot read, which is to be ignored.
pub fn decode_notification(method: &str, params: &RawJson) -> Option<ClientNotification> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: Id,
        reason: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress {
        progress_token: Id,
        progress: f64,
        total: Option<f64>,
        message: Option<String>,
    }
    // serde reads a struct from an array, too.
    if !params.is_object() {
        return None;
    }
    match method {
        "notifications/initialized" => Some(ClientNotification::Initialized),
        "notifications/cancelled" => {
            let Cancelled {
                request_id: request,
                reason,
            } = params.parse().ok()?;
            Some(ClientNotification::Cancelled { request, reason })
        }
        "notifications/progress" => {
            let Progress {
                progress_token: token,
                progress,
                total,
                message,
            } = params.parse().ok()?;
            Some(ClientNotification::Progress {
                token,
                progress,
                total,
                message,
            })
        }
        "notifications/roots/list_changed" => Some(ClientNotification::RootsListChanged),
        _ => None,
    }
}

/// Shortens a client's text, so that what is echoed of it is bounded.
fn shortened(text: &str) -> String {
    const MOST: usize = 128;
    text.chars().take(MOST).collect()
}

fn read<T: DeserializeOwned>(params: &RawJson) -> Result<T, String> {
    params.parse().map_err(|error| error.to_string())
}

fn uri(params: &RawJson) -> Result<String, String> {
    #[derive(Deserialize)]
    struct Uri {
        uri: String,
    }
    read::<Uri>(params).map(|params| params.uri)
}

fn call_tool(params: &RawJson) -> Result<ClientRequest, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
        #[serde(borrow, default)]
        arguments: Option<&'a RawValue>,
        #[serde(borrow, default)]
        input_responses: Option<BTreeMap<String, &'a RawValue>>,
        #[serde(default, deserialize_with = "crate::model::present")]
        request_state: Option<String>,
    }
    let wire: Wire<'_> = params.parse().map_err(|error| error.to_string())?;
    let arguments = match wire.arguments {
        None => RawJson::EMPTY_OBJECT,
        Some(raw) if raw.get().starts_with('{') => params.child(raw),
        Some(_) => return Err("`arguments` must be an object".to_owned()),
    };
    Ok(ClientRequest::CallTool(CallTool {
        name: wire.name.into_owned(),
        arguments,
        retry: retry_of(params, wire.input_responses, wire.request_state),
        task: None,
        at_most: None,
    }))
}

/// Reads a call in the revision in which a client decides that its call is to be a task. Before and
/// after that, a member of this name means nothing.
fn call_tool_or_task(params: &RawJson) -> Result<ClientRequest, String> {
    #[derive(Deserialize)]
    struct Wire {
        #[serde(default, deserialize_with = "crate::model::object")]
        task: Option<Task>,
    }
    #[derive(Deserialize)]
    struct Task {
        #[serde(default, deserialize_with = "crate::model::present")]
        ttl: Option<u64>,
    }
    let task = read::<Wire>(params)?.task;
    let task = task.map(|task| TaskRequest { ttl_ms: task.ttl });
    match call_tool(params)? {
        ClientRequest::CallTool(call) => Ok(ClientRequest::CallTool(CallTool { task, ..call })),
        other => Ok(other),
    }
}

fn task_id(params: &RawJson) -> Result<String, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire {
        task_id: String,
    }
    read::<Wire>(params).map(|params| params.task_id)
}

fn update_task(params: &RawJson) -> Result<ClientRequest, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        task_id: String,
        #[serde(borrow)]
        input_responses: BTreeMap<String, &'a RawValue>,
    }
    let wire: Wire<'_> = params.parse().map_err(|error| error.to_string())?;
    Ok(ClientRequest::UpdateTask(UpdateTask {
        id: wire.task_id,
        answers: retry_of(params, Some(wire.input_responses), None),
    }))
}

fn read_resource(params: &RawJson) -> Result<ClientRequest, String> {
    Ok(ClientRequest::ReadResource(ReadResource {
        retry: retry(params)?,
        ..read(params)?
    }))
}

fn get_prompt(params: &RawJson) -> Result<ClientRequest, String> {
    #[derive(Deserialize)]
    struct Wire {
        name: String,
        #[serde(default)]
        arguments: Option<BTreeMap<String, String>>,
    }
    let wire: Wire = read(params)?;
    Ok(ClientRequest::GetPrompt(GetPrompt {
        name: wire.name,
        arguments: wire.arguments.unwrap_or_default(),
        retry: retry(params)?,
    }))
}

fn complete(params: &RawJson) -> Result<ClientRequest, String> {
    #[derive(Deserialize)]
    struct Wire {
        #[serde(rename = "ref")]
        reference: CompletionReference,
        argument: Object<Argument>,
        #[serde(default, deserialize_with = "crate::model::object_or_null")]
        context: Option<Context>,
    }
    #[derive(Deserialize)]
    struct Argument {
        name: String,
        value: String,
    }
    #[derive(Default, Deserialize)]
    struct Context {
        #[serde(default)]
        arguments: BTreeMap<String, String>,
    }
    let wire: Wire = read(params)?;
    let Object(argument) = wire.argument;
    Ok(ClientRequest::Complete(Complete {
        reference: wire.reference,
        argument: argument.name,
        value: argument.value,
        context: wire.context.unwrap_or_default().arguments,
    }))
}

fn set_level(params: &RawJson) -> Result<LoggingLevel, String> {
    #[derive(Deserialize)]
    struct Wire {
        level: LoggingLevel,
    }
    read::<Wire>(params).map(|wire| wire.level)
}

/// Members that a retry adds to the parameters of the request it repeats. Older revisions have no
/// retries, and their clients are never asked in a way that could lead to one.
fn retry(params: &RawJson) -> Result<InputRetry, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Wire<'a> {
        #[serde(borrow, default)]
        input_responses: Option<BTreeMap<String, &'a RawValue>>,
        #[serde(default, deserialize_with = "crate::model::present")]
        request_state: Option<String>,
    }
    let wire: Wire<'_> = params.parse().map_err(|error| error.to_string())?;
    Ok(retry_of(params, wire.input_responses, wire.request_state))
}

fn retry_of(
    params: &RawJson,
    responses: Option<BTreeMap<String, &RawValue>>,
    state: Option<String>,
) -> InputRetry {
    let responses = responses.unwrap_or_default().into_iter();
    InputRetry {
        responses: responses
            .map(|(key, response)| (key, params.child(response)))
            .collect(),
        state,
    }
}

fn listen_filter(params: &RawJson) -> Result<SubscriptionFilter, String> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        notifications: &'a RawValue,
    }
    let wire: Wire<'_> = params.parse().map_err(|error| error.to_string())?;
    if !wire.notifications.get().starts_with('{') {
        return Err("`notifications` must be an object".to_owned());
    }
    serde_json::from_str(wire.notifications.get()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_is_read_without_a_parser_is_the_one_that_a_parser_reads() {
        let mut plain = 0;
        for params in [
            r#"{"name":"x"}"#,
            r#"{"name":"x","arguments":{"a":[1,{"name":"y"}]},"_meta":{"name":"z"}}"#,
            r#"{"arguments":{} , "name" : "é","task":{}}"#,
            r#"{"name":"x","arguments":null}"#,
            r#"{"name":"x","arguments":[]}"#,
            r#"{"name":"x","name":"x"}"#,
            r#"{"name":"x","arguments":{},"arguments":{}}"#,
            r#"{"name":"\u0061"}"#,
            r#"{"n\u0061me":"a"}"#,
            r#"{"name":7}"#,
            r#"{"name":"x","requestState":null}"#,
            r#"{"name":"x","requestState":"s","inputResponses":{"a":{}}}"#,
            "{}",
        ] {
            let raw = RawJson::from_bytes(params.to_owned().into()).unwrap();
            let meta = RequestMeta::of(&raw).unwrap_or_default();
            plain += usize::from(meta.call.is_some());
            for version in [V2026_07_28, V2025_11_25] {
                let read = decode_request_with(version, &offer(), "tools/call", &raw, &meta);
                let parsed = decode_request(version, &offer(), "tools/call", &raw);
                assert_eq!(format!("{read:?}"), format!("{parsed:?}"), "{params}");
            }
            // What was found in one text is not looked for in another.
            let other = RawJson::from_bytes(params.to_owned().into()).unwrap();
            assert!(meta.call.and_then(|it| it.of(&other)).is_none());
        }
        assert_eq!(plain, 3);
    }

    #[test]
    fn every_method_has_a_row_and_a_name_of_its_own() {
        for method in Method::ALL {
            assert!(
                REQUESTS.iter().any(|row| row.method == method),
                "{method:?}"
            );
            assert_eq!(Method::named(method.name()), Some(method));
        }
    }
    use crate::model::{ResourcesCapability, TasksCapability};

    fn offer() -> ServerCapabilities {
        ServerCapabilities {
            tools: true,
            resources: Some(ResourcesCapability { subscribe: true }),
            ..ServerCapabilities::default()
        }
    }

    fn code(
        version: ProtocolVersion,
        offer: &ServerCapabilities,
        method: &str,
        params: &str,
    ) -> i32 {
        let params = RawJson::from_bytes(params.to_owned().into()).unwrap();
        match decode_request(version, offer, method, &params) {
            Ok(_) => 0,
            Err(error) => error.to_error_object().code.0,
        }
    }

    #[test]
    fn unknown_removed_and_malformed_are_told_apart() {
        #[rustfmt::skip]
        let rows = [
            (V2026_07_28, "tools/call", r#"{"name":"x"}"#, 0),
            (V2026_07_28, "tools/call", r#"{"name":"x","arguments":null}"#, 0),
            (V2026_07_28, "tools/call", r#"{"name":7}"#, -32602),
            (V2026_07_28, "tools/call", r#"{}"#, -32602),
            (V2026_07_28, "tools/call", r#"["x"]"#, -32602),
            (V2026_07_28, "tools/call", r#"{"name":"x","arguments":[1]}"#, -32602),
            (V2026_07_28, "tools/list", r#"{"cursor":5}"#, -32602),
            (V2026_07_28, "tools/list", r#"{"cursor":null}"#, -32602),
            (V2026_07_28, "resources/read", r#"{}"#, -32602),
            (V2026_07_28, "resources/read", r#"{"uri":"x","range":{"offset":-1}}"#, -32602),
            (V2026_07_28, "resources/read", r#"{"uri":"x","range":[0,10]}"#, -32602),
            (V2026_07_28, "resources/read", r#"{"uri":"x","range":null}"#, -32602),
            (V2026_07_28, "subscriptions/listen", r#"{}"#, -32602),
            (V2026_07_28, "subscriptions/listen", r#"{"notifications":[]}"#, -32602),
            (V2026_07_28, "subscriptions/listen", r#"{"notifications":{"toolsListChanged":true}}"#, 0),
            (V2026_07_28, "nope", "{}", -32601),
            (V2026_07_28, "ping", "{}", -32601),
            (V2026_07_28, "initialize", "{}", -32601),
            (V2026_07_28, "resources/subscribe", r#"{"uri":"x"}"#, -32601),
            (V2025_11_25, "ping", "{}", 0),
            (V2025_11_25, "server/discover", "{}", -32601),
            (V2025_11_25, "prompts/list", "{}", -32601),
        ];
        for (version, method, params, expected) in rows {
            assert_eq!(
                code(version, &offer(), method, params),
                expected,
                "{version} {method} {params}"
            );
        }
    }

    #[test]
    fn tasks_are_of_two_revisions_and_not_the_same_in_both() {
        let with = |list| ServerCapabilities {
            tasks: Some(TasksCapability { list }),
            ..offer()
        };
        let (all, no_list) = (with(true), with(false));
        let id = r#"{"taskId":"t"}"#;
        let answers = r#"{"taskId":"t","inputResponses":{"k":{"action":"accept"}}}"#;
        #[rustfmt::skip]
        let rows = [
            (&all, V2026_07_28, "tasks/get", id, 0),
            (&all, V2026_07_28, "tasks/get", "{}", -32602),
            (&all, V2026_07_28, "tasks/get", r#"{"taskId":1}"#, -32602),
            (&all, V2026_07_28, "tasks/cancel", id, 0),
            (&all, V2026_07_28, "tasks/update", answers, 0),
            (&all, V2026_07_28, "tasks/update", id, -32602),
            (&all, V2026_07_28, "tasks/result", id, -32601),
            (&all, V2026_07_28, "tasks/list", "{}", -32601),
            (&all, V2025_11_25, "tasks/get", id, 0),
            (&all, V2025_11_25, "tasks/cancel", id, 0),
            (&all, V2025_11_25, "tasks/result", id, 0),
            (&all, V2025_11_25, "tasks/list", "{}", 0),
            (&all, V2025_11_25, "tasks/update", answers, -32601),
            (&no_list, V2025_11_25, "tasks/list", "{}", -32601),
            (&all, V2025_06_18, "tasks/get", id, -32601),
            (&offer(), V2026_07_28, "tasks/get", id, -32601),
            (&offer(), V2025_11_25, "tasks/list", "{}", -32601),
            // What 2025-11-25 has of it means nothing to others.
            (&all, V2025_11_25, "tools/call", r#"{"name":"x","task":7}"#, -32602),
            (&all, V2025_11_25, "tools/call", r#"{"name":"x","task":{"ttl":-1}}"#, -32602),
            (&all, V2026_07_28, "tools/call", r#"{"name":"x","task":7}"#, 0),
            (&all, V2025_06_18, "tools/call", r#"{"name":"x","task":7}"#, 0),
        ];
        for (offer, version, method, params, expected) in rows {
            assert_eq!(
                code(version, offer, method, params),
                expected,
                "{version} {method} {params}"
            );
        }
    }

    #[test]
    fn a_call_is_to_be_a_task_where_the_client_says_so() {
        let task = |version| {
            let params = r#"{"name":"x","task":{"ttl":60000}}"#.to_owned();
            let params = RawJson::from_bytes(params.into()).unwrap();
            match decode_request(version, &offer(), "tools/call", &params).unwrap() {
                ClientRequest::CallTool(call) => call.task,
                other => panic!("{other:?}"),
            }
        };
        let wanted = TaskRequest {
            ttl_ms: Some(60_000),
        };
        assert_eq!(task(V2025_11_25), Some(wanted));
        assert_eq!(task(V2026_07_28), None);
        assert_eq!(task(V2025_06_18), None);
    }

    #[test]
    fn skills_are_of_the_modern_revision_and_only_where_they_are_declared() {
        let declaring = |settings: &str| ServerCapabilities {
            extensions: [(
                SKILLS_EXTENSION.to_owned(),
                serde_json::from_str(settings).unwrap(),
            )]
            .into(),
            ..offer()
        };
        let plain = declaring("{}");
        let all = declaring(r#"{"directoryRead":true}"#);
        let odd = declaring(r#"{"directoryRead":"yes"}"#);
        let without_resources = ServerCapabilities {
            resources: None,
            ..all.clone()
        };
        let uri = r#"{"uri":"skill://a/b/SKILL.md"}"#;
        #[rustfmt::skip]
        let rows = [
            (&all, V2026_07_28, "skills/list", "{}", 0),
            (&all, V2026_07_28, "skills/list", r#"{"cursor":1}"#, -32602),
            (&all, V2026_07_28, "skills/get", uri, 0),
            (&all, V2026_07_28, "skills/get", "{}", -32602),
            (&all, V2026_07_28, "skills/get", r#"{"uri":7}"#, -32602),
            (&all, V2026_07_28, "resources/directory/read", uri, 0),
            (&all, V2026_07_28, "resources/directory/read", "{}", -32602),
            (&all, V2026_07_28, "resources/directory/read", r#"{"uri":"x","cursor":null}"#, -32602),
            (&all, V2025_11_25, "skills/list", "{}", -32601),
            (&all, V2025_11_25, "skills/get", uri, -32601),
            (&all, V2025_11_25, "resources/directory/read", uri, -32601),
            (&plain, V2026_07_28, "skills/list", "{}", 0),
            (&plain, V2026_07_28, "resources/directory/read", uri, -32601),
            (&odd, V2026_07_28, "resources/directory/read", uri, -32601),
            (&offer(), V2026_07_28, "skills/list", "{}", -32601),
            (&offer(), V2026_07_28, "skills/get", uri, -32601),
            (&without_resources, V2026_07_28, "skills/list", "{}", -32601),
            (&without_resources, V2026_07_28, "resources/directory/read", uri, -32601),
        ];
        for (offer, version, method, params, expected) in rows {
            let got = code(version, offer, method, params);
            assert_eq!(got, expected, "{version} {method} {params}");
        }
    }

    #[test]
    fn what_is_not_offered_does_not_exist() {
        let nothing = ServerCapabilities::default();
        for version in ProtocolVersion::ALL {
            for method in [
                "tools/list",
                "tools/call",
                "resources/list",
                "resources/read",
                "subscriptions/listen",
            ] {
                assert_eq!(
                    code(version, &nothing, method, "{}"),
                    -32601,
                    "{version} {method}"
                );
            }
        }
    }
}
