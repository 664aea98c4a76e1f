use super::{OutgoingMeta, meta::View};
use crate::{
    Era, Method, ProtocolVersion,
    model::{
        CallTool, ClientRequest, Complete, GetPrompt, Initialize, InputRetry, TaskRequest,
        UpdateTask,
    },
};
use jsonrpc_core::{Id, RawJson, Request, put_text};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;

/// Reason why a request cannot be expressed in a revision.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The revision does not have it. What it stands for is not sent in another form, for that
    /// would mean something else.
    #[error("revision {version} has no {what}")]
    NotInRevision {
        /// The method's name, or what it is.
        what: &'static str,
        /// The revision.
        version: ProtocolVersion,
    },
    /// A value cannot be written, such as an id of digits that are none.
    #[error("a value cannot be written as JSON")]
    Serialize(#[from] serde_json::Error),
}

/// A request without its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// Method that decides how the answer is read.
    pub kind: Method,
    /// The parameters; an object.
    pub params: RawJson,
}

impl Outgoing {
    /// The method's name.
    pub fn method(&self) -> &'static str {
        self.kind.name()
    }

    /// The request with the id `id`.
    pub fn into_request(self, id: Id) -> Request {
        Request {
            id,
            method: self.method().to_owned(),
            params: self.params,
        }
    }
}

/// Writes a request as revision `version` has it.
///
/// Older revisions do not know everything that a request may say. What changes its meaning is
/// refused; what only helps with it is left out: what is known of other arguments
/// ([`Complete::context`], since 2025-06-18), names, pictures and capabilities of the client that
/// came later.
///
/// # Errors
///
/// [`EncodeError::NotInRevision`] for a method, a retry or a task that the revision does not have.
pub fn encode_request(
    version: ProtocolVersion,
    request: &ClientRequest,
    meta: &OutgoingMeta<'_>,
) -> Result<Outgoing, EncodeError> {
    let kind = Method::of(request);
    let missing = |what| Err(EncodeError::NotInRevision { what, version });
    if !kind.exists_in(version) {
        return missing(kind.name());
    }
    if version.era() == Era::Legacy && retry_of(request).is_some_and(|retry| !retry.is_empty()) {
        return missing("retry of a request that asked for input");
    }
    if let ClientRequest::CallTool(CallTool { task: Some(_), .. }) = request
        && version != ProtocolVersion::V2025_11_25
    {
        return missing("call that asks to be a task");
    }
    let meta = View(version, meta);
    Ok(Outgoing {
        kind,
        params: params(version, request, &meta)?,
    })
}

fn params(
    version: ProtocolVersion,
    request: &ClientRequest,
    meta: &View<'_>,
) -> Result<RawJson, serde_json::Error> {
    match request {
        ClientRequest::Initialize(initialize) => write(&opening(version, initialize), meta),
        ClientRequest::Discover | ClientRequest::Ping => write(&json!({}), meta),
        ClientRequest::ListTools(page)
        | ClientRequest::ListResourceTemplates(page)
        | ClientRequest::ListSkills(page)
        | ClientRequest::ListPrompts(page)
        | ClientRequest::ListTasks(page) => write(page, meta),
        ClientRequest::CallTool(call) if call.task.is_none() && call.retry.is_empty() => {
            let room = ROOM + call.name.len() + call.arguments.as_bytes().len();
            let mut out = Vec::with_capacity(room);
            out.extend_from_slice(b"{\"name\":");
            put_text(&call.name, &mut out);
            out.extend_from_slice(b",\"arguments\":");
            out.extend_from_slice(call.arguments.as_bytes());
            out.push(b'}');
            with_meta(out, meta)
        }
        ClientRequest::CallTool(call) => write(
            &Call {
                name: &call.name,
                arguments: &call.arguments,
                task: call
                    .task
                    .as_ref()
                    .map(|TaskRequest { ttl_ms }| Task { ttl: *ttl_ms }),
                retry: Retry::of(&call.retry),
            },
            meta,
        ),
        ClientRequest::ListResources(list) => write(list, meta),
        ClientRequest::ReadResource(read) => write(
            &Retried {
                own: read,
                retry: Retry::of(&read.retry),
            },
            meta,
        ),
        ClientRequest::Subscribe(uri)
        | ClientRequest::Unsubscribe(uri)
        | ClientRequest::GetSkill(uri) => write(&json!({ "uri": uri }), meta),
        ClientRequest::ReadDirectory(read) => write(read, meta),
        ClientRequest::GetPrompt(GetPrompt {
            name,
            arguments,
            retry,
        }) => write(
            &Prompt {
                name,
                arguments,
                retry: Retry::of(retry),
            },
            meta,
        ),
        ClientRequest::Complete(complete) => write(&completed(version, complete), meta),
        ClientRequest::SetLevel(level) => write(&json!({ "level": level }), meta),
        ClientRequest::Listen(filter) => write(&json!({ "notifications": filter }), meta),
        ClientRequest::GetTask(id)
        | ClientRequest::CancelTask(id)
        | ClientRequest::AwaitTask(id) => write(&json!({ "taskId": id }), meta),
        ClientRequest::UpdateTask(UpdateTask { id, answers }) => write(
            &Update {
                task_id: id,
                input_responses: &answers.responses,
            },
            meta,
        ),
    }
}

/// Writes the members of `own` and the `_meta`.
fn write<T: Serialize>(own: &T, meta: &View<'_>) -> Result<RawJson, serde_json::Error> {
    with_meta(serde_json::to_vec(own)?, meta)
}

/// Bytes for the `_meta` of most requests, and for the names of members.
const ROOM: usize = 512;

/// Writes the `_meta` at the end of an object.
fn with_meta(mut out: Vec<u8>, meta: &View<'_>) -> Result<RawJson, serde_json::Error> {
    if meta.is_empty() {
        return Ok(RawJson::from_serialized(out));
    }
    debug_assert_eq!(out.last(), Some(&b'}'), "parameters are an object");
    out.pop();
    if out != b"{" {
        out.push(b',');
    }
    out.extend_from_slice(b"\"_meta\":");
    meta.write(&mut out)?;
    out.push(b'}');
    Ok(RawJson::from_serialized(out))
}

fn opening(version: ProtocolVersion, initialize: &Initialize) -> serde_json::Value {
    json!({
        "protocolVersion": initialize.protocol_version,
        "capabilities": initialize.capabilities.shaped_for(version),
        "clientInfo": initialize.client_info.shaped_for(version),
    })
}

fn completed(version: ProtocolVersion, complete: &Complete) -> serde_json::Value {
    let mut params = json!({
        "ref": complete.reference,
        "argument": { "name": complete.argument, "value": complete.value },
    });
    if ProtocolVersion::V2025_06_18 <= version && !complete.context.is_empty() {
        params["context"] = json!({ "arguments": complete.context });
    }
    params
}

#[derive(Serialize)]
struct Call<'a> {
    name: &'a str,
    arguments: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<Task>,
    #[serde(flatten)]
    retry: Retry<'a>,
}

#[derive(Serialize)]
struct Task {
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
}

#[derive(Serialize)]
struct Retried<'a, T> {
    #[serde(flatten)]
    own: &'a T,
    #[serde(flatten)]
    retry: Retry<'a>,
}

#[derive(Serialize)]
struct Prompt<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    arguments: &'a BTreeMap<String, String>,
    #[serde(flatten)]
    retry: Retry<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Update<'a> {
    task_id: &'a str,
    input_responses: &'a BTreeMap<String, RawJson>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Retry<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    input_responses: &'a BTreeMap<String, RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_state: Option<&'a str>,
}

impl<'a> Retry<'a> {
    fn of(retry: &'a InputRetry) -> Self {
        Self {
            input_responses: &retry.responses,
            request_state: retry.state.as_deref(),
        }
    }
}

/// Answers of `request` to its server's questions, if it is of a kind that can have them.
fn retry_of(request: &ClientRequest) -> Option<&InputRetry> {
    match request {
        ClientRequest::CallTool(call) => Some(&call.retry),
        ClientRequest::GetPrompt(get) => Some(&get.retry),
        ClientRequest::ReadResource(read) => Some(&read.retry),
        _ => None,
    }
}
