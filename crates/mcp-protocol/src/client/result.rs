use super::{
    Discovered, Initialized,
    input::decode_input_requests,
    meta::{SERVER_INFO, SUBSCRIPTION_ID},
    offer::{DiscoveredWire, InitializedWire},
    plain, task,
};
use crate::{
    Era, Method, ProtocolVersion,
    model::{
        CacheHint, CacheScope, CallToolResult, Completion, GetPromptResult, GetSkillResult,
        Implementation, InputRequired, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListSkillsResult, ListTasksResult, ListToolsResult, Object,
        ReadDirectoryResult, ReadResourceResult, Resource, ResourceContents, ResultMeta,
        SkillEntry, Task, all_objects, objects, or_default, raw_object_or_null, whole,
    },
};
use jsonrpc_core::{Id, RawJson};
use serde::{
    Deserialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;
use std::{borrow::Cow, collections::BTreeMap, fmt};

/// A result that cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum ResultError {
    /// A result whose type is unknown, or cannot answer the request.
    #[error("`{method}` was answered with a result of the type {result_type:?}")]
    UnexpectedType {
        /// Method of the request.
        method: &'static str,
        /// Type that the result declares.
        result_type: String,
    },
    /// A result that does not fit the request.
    #[error("the result of `{method}` does not fit")]
    Malformed {
        /// Method of the request.
        method: &'static str,
        /// Error of the member that does not fit.
        #[source]
        cause: serde_json::Error,
    },
}

/// Answer of a server, with its metadata.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Answer.
    pub answer: Answer,
    /// Name and version of the server; modern revisions alone have them in results.
    pub server_info: Option<Implementation>,
    /// The `subscriptions/listen` that has ended with it.
    pub subscription: Option<Id>,
    /// The other entries of its `_meta`. A result of the vocabulary that has such entries itself
    /// has the same.
    pub meta: ResultMeta,
    /// Tools, prompts, resources and templates of a list that do not fit; the answer has the others.
    pub left_out: Vec<LeftOut>,
    /// The tools, prompts, resources and templates that the answer has, in its order and as they were sent: with
    /// members that no revision has.
    pub as_sent: Vec<RawJson>,
    /// Bytes of the result as it was sent.
    pub bytes: usize,
}

/// Item of a list that does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Name, or for resources and templates the URI, as far as the item has one; cut after 100 characters.
    pub name: Option<String>,
    /// Position in its page, from 1.
    pub at: usize,
    /// Reason.
    pub why: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "`{}`: {}", name.escape_debug(), self.why),
            None => write!(f, "number {} of its page: {}", self.at, self.why),
        }
    }
}

/// Answer of a server.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "each variant documents its payload")]
pub enum Answer {
    /// The request is done, and the result is empty.
    Empty,
    Initialize(Initialized),
    Discover(Discovered),
    ListTools(ListToolsResult),
    CallTool(CallToolResult),
    ListResources(ListResourcesResult),
    ListResourceTemplates(ListResourceTemplatesResult),
    ReadResource(ReadResourceResult),
    ListSkills(ListSkillsResult),
    GetSkill(GetSkillResult),
    ReadDirectory(ReadDirectoryResult),
    ListPrompts(ListPromptsResult),
    GetPrompt(GetPromptResult),
    Complete(Completion),
    /// The server needs to know more; the request is to be sent again with what it asks.
    InputRequired(InputRequired),
    /// The call goes on as a task. What a state holds beyond its name is null: it is not told yet.
    CreateTask(Task),
    /// State of a task. In 2025-11-25 what a state holds beyond its name is null, and fetched by
    /// [`AwaitTask`](crate::model::ClientRequest::AwaitTask).
    Task(Task),
    ListTasks(ListTasksResult),
}

/// Reads the result of a request of the kind `kind`, which was sent in revision `version`.
///
/// Members we do not know are passed over, and null is the same as absence.
///
/// # Errors
///
/// [`ResultError`] when it is no such result. Nothing is made of half of it, but of lists: an item that does not
/// fit is in [`Answered::left_out`], and takes no other with it.
pub fn decode_result(
    version: ProtocolVersion,
    kind: Method,
    result: &RawJson,
) -> Result<Answered, ResultError> {
    if kind == Method::CallTool
        && let Some(answered) = plain::called(version, result)
    {
        return Ok(answered);
    }
    parsed(version, kind, result)
}

/// The same, read by a parser.
fn parsed(
    version: ProtocolVersion,
    kind: Method,
    result: &RawJson,
) -> Result<Answered, ResultError> {
    let method = kind.name();
    let malformed = |cause| ResultError::Malformed { method, cause };
    let Object(shape): Object<Shape> = result.parse().map_err(malformed)?;
    let modern = version.era() == Era::Modern;
    let result_type = shape.result_type.filter(|_| modern);
    let (mut left_out, mut as_sent) = (Vec::new(), Vec::new());
    let answer = match result_type.as_deref() {
        None | Some("complete") => {
            let cache = CacheHint {
                ttl_ms: shape.ttl_ms.filter(|_| modern).unwrap_or(0),
                scope: shape
                    .cache_scope
                    .filter(|_| modern)
                    .unwrap_or(CacheScope::Private),
            };
            complete(version, kind, result, cache, (&mut left_out, &mut as_sent))
        }
        Some("input_required") if can_ask(kind) => {
            input_required(version, result).map(Answer::InputRequired)
        }
        Some("task") if kind == Method::CallTool => {
            task::read(version, true, result).map(Answer::CreateTask)
        }
        Some(other) => {
            return Err(ResultError::UnexpectedType {
                method,
                // What is kept of a server's text is bounded.
                result_type: other.chars().take(MAX_TYPE).collect(),
            });
        }
    };
    let mut answered = Answered {
        answer: answer.map_err(malformed)?,
        server_info: None,
        subscription: None,
        meta: shape.meta,
        left_out,
        as_sent,
        bytes: result.as_str().len(),
    };
    if modern {
        own_entries(&mut answered).map_err(malformed)?;
    }
    Ok(answered)
}

/// Most bytes of an item of a list; larger ones are left out before they are read.
pub const MAX_ITEM_BYTES: usize = 1 << 20;
const MAX_TYPE: usize = 64;
/// Most characters of the name of an item that does not fit.
const MAX_NAME: usize = 100;
/// Most characters of the reason why an item does not fit.
const MAX_WHY: usize = 200;

/// The only requests whose servers may ask for more (2026-07-28, multi round-trip requests).
fn can_ask(kind: Method) -> bool {
    matches!(
        kind,
        Method::CallTool | Method::GetPrompt | Method::ReadResource
    )
}

/// Takes what the protocol has reserved out of the `_meta`.
fn own_entries(answered: &mut Answered) -> Result<(), serde_json::Error> {
    if let Some(info) = answered.meta.remove(SERVER_INFO) {
        let Object(info) = info.parse()?;
        answered.server_info = Some(info);
    }
    if let Some(id) = answered.meta.remove(SUBSCRIPTION_ID) {
        answered.subscription = Some(id.parse()?);
    }
    let meta = match &mut answered.answer {
        Answer::CallTool(result) => &mut result.meta,
        Answer::GetPrompt(result) => &mut result.meta,
        Answer::ReadResource(result) => &mut result.meta,
        _ => return Ok(()),
    };
    meta.clone_from(&answered.meta);
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    #[serde(default)]
    result_type: Option<String>,
    #[serde(default, deserialize_with = "whole")]
    ttl_ms: Option<u64>,
    #[serde(default)]
    cache_scope: Option<CacheScope>,
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    meta: ResultMeta,
}

fn read<T: DeserializeOwned>(result: &RawJson) -> Result<T, serde_json::Error> {
    result.parse()
}

fn complete(
    version: ProtocolVersion,
    kind: Method,
    result: &RawJson,
    cache: CacheHint,
    (left_out, as_sent): (&mut Vec<LeftOut>, &mut Vec<RawJson>),
) -> Result<Answer, serde_json::Error> {
    Ok(match kind {
        Method::Ping
        | Method::Subscribe
        | Method::Unsubscribe
        | Method::SetLevel
        | Method::Listen
        | Method::UpdateTask => Answer::Empty,
        Method::CancelTask if version.era() == Era::Modern => Answer::Empty,
        Method::GetTask | Method::CancelTask => Answer::Task(task::read(version, false, result)?),
        Method::Initialize => Answer::Initialize(read::<InitializedWire>(result)?.read()),
        Method::Discover => Answer::Discover(read::<DiscoveredWire>(result)?.read(cache)),
        Method::CallTool if version == ProtocolVersion::V2025_11_25 => {
            match task::wrapped(result)? {
                Some(created) => Answer::CreateTask(task::read(version, true, &created)?),
                None => Answer::CallTool(read(result)?),
            }
        }
        Method::CallTool | Method::AwaitTask => Answer::CallTool(read(result)?),
        Method::GetPrompt => Answer::GetPrompt(read(result)?),
        Method::ListTools => {
            let Tools { tools, next_cursor } = read(result)?;
            Answer::ListTools(ListToolsResult {
                tools: fitting(tools, "name", left_out, as_sent),
                next_cursor,
                cache,
            })
        }
        Method::ListPrompts => {
            let Prompts {
                prompts,
                next_cursor,
            } = read(result)?;
            Answer::ListPrompts(ListPromptsResult {
                prompts: fitting(prompts, "name", left_out, as_sent),
                next_cursor,
                cache,
            })
        }
        Method::ListResources => {
            let Resources {
                resources,
                next_cursor,
            } = read(result)?;
            Answer::ListResources(ListResourcesResult {
                resources: fitting(resources, "uri", left_out, as_sent),
                next_cursor,
                cache,
            })
        }
        Method::ReadDirectory => {
            let Directory {
                resources,
                next_cursor,
            } = read(result)?;
            Answer::ReadDirectory(ReadDirectoryResult {
                resources,
                next_cursor,
            })
        }
        Method::ListResourceTemplates => {
            let Templates {
                resource_templates,
                next_cursor,
            } = read(result)?;
            Answer::ListResourceTemplates(ListResourceTemplatesResult {
                resource_templates: fitting(resource_templates, "uriTemplate", left_out, as_sent),
                next_cursor,
                cache,
            })
        }
        Method::ReadResource => {
            let Contents { contents, meta } = read(result)?;
            let unfit = contents
                .iter()
                .position(|it| it.text.is_none() && it.blob.is_none());
            if let Some(at) = unfit {
                return Err(serde_json::Error::custom(format!(
                    "number {} of `contents` has neither `text` nor `blob`",
                    at + 1
                )));
            }
            Answer::ReadResource(ReadResourceResult {
                contents,
                meta,
                cache,
            })
        }
        Method::ListSkills => {
            let Skills {
                skills,
                next_cursor,
            } = read(result)?;
            Answer::ListSkills(ListSkillsResult {
                skills,
                next_cursor,
                cache,
            })
        }
        Method::GetSkill => {
            let OneSkill {
                skill: Object(skill),
            } = read(result)?;
            Answer::GetSkill(GetSkillResult { skill, cache })
        }
        Method::Complete => {
            let Completed {
                completion: Object(completion),
            } = read(result)?;
            Answer::Complete(completion)
        }
        Method::ListTasks => {
            let Tasks { tasks, next_cursor } = read(result)?;
            let tasks = tasks.iter().map(|it| task::read(version, false, &it.0));
            Answer::ListTasks(ListTasksResult {
                tasks: tasks.collect::<Result<_, _>>()?,
                next_cursor,
            })
        }
    })
}

fn input_required(
    version: ProtocolVersion,
    result: &RawJson,
) -> Result<InputRequired, serde_json::Error> {
    let Required {
        input_requests,
        request_state,
    } = read(result)?;
    let requests = input_requests.unwrap_or(RawJson::EMPTY_OBJECT);
    let requests = decode_input_requests(version, &requests)?;
    // 2026-07-28, multi round-trip requests: at least one of them. The same request again would be asked the same.
    if requests.is_empty() && request_state.is_none() {
        return Err(serde_json::Error::custom(
            "neither `inputRequests` nor `requestState`",
        ));
    }
    Ok(InputRequired {
        requests,
        state: request_state,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tools {
    tools: Vec<Any>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Prompts {
    prompts: Vec<Any>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resources {
    resources: Vec<Any>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Directory {
    #[serde(deserialize_with = "objects")]
    resources: Vec<Resource>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Templates {
    resource_templates: Vec<Any>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Contents {
    #[serde(deserialize_with = "all_objects")]
    contents: Vec<ResourceContents>,
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    meta: ResultMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Skills {
    #[serde(deserialize_with = "objects")]
    skills: Vec<SkillEntry>,
    #[serde(default)]
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct OneSkill {
    skill: Object<SkillEntry>,
}

#[derive(Deserialize)]
struct Completed {
    completion: Object<Completion>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tasks {
    tasks: Vec<AnyTask>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Item of a list, fit or not.
#[derive(Deserialize)]
struct Any(#[serde(deserialize_with = "crate::model::raw")] RawJson);

/// The items that are `T`, and the same as they were sent; the others are told of, by the member `key`.
fn fitting<T: DeserializeOwned>(
    items: Vec<Any>,
    key: &str,
    left_out: &mut Vec<LeftOut>,
    as_sent: &mut Vec<RawJson>,
) -> Vec<T> {
    let items = items.into_iter().enumerate();
    let fitting = items.filter_map(|(at, Any(item))| {
        let read = match item.as_str().len() {
            bytes if MAX_ITEM_BYTES < bytes => {
                Err(format!("it has {bytes} bytes, of at most {MAX_ITEM_BYTES}"))
            }
            _ => item.parse().map_err(|error| error.to_string()),
        };
        match read {
            Ok(Object(fit)) => {
                as_sent.push(item);
                Some(fit)
            }
            Err(why) => {
                left_out.push(LeftOut {
                    name: member(&item, key),
                    at: at + 1,
                    why: why.chars().take(MAX_WHY).collect(),
                });
                None
            }
        }
    });
    fitting.collect()
}

/// The text that is the member `key` of an object, whatever its others are, as far as an error has it.
fn member(item: &RawJson, key: &str) -> Option<String> {
    let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(item.as_str()).ok()?;
    let name: String = serde_json::from_str(members.get(key)?.get()).ok()?;
    Some(name.chars().take(MAX_NAME).collect())
}

/// Task in any form; the revision decides which members it has.
#[derive(Deserialize)]
struct AnyTask(#[serde(deserialize_with = "crate::model::raw_object")] RawJson);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Required {
    #[serde(default, deserialize_with = "raw_object_or_null")]
    input_requests: Option<RawJson>,
    #[serde(default)]
    request_state: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_without_a_parser_is_what_a_parser_reads() {
        let info = r#""io.modelcontextprotocol/serverInfo""#;
        let mut plain = 0;
        for text in [
            r#"{"content":[]}"#.to_owned(),
            "{}".to_owned(),
            "[]".to_owned(),
            r#"{"content":null}"#.to_owned(),
            r#"{"content":[{"type":"text","text":"a"}],"isError":true,"x":{"content":7}}"#.to_owned(),
            r#"{ "content" : [ {"type":"text","text":"a\n\u00e9\ud83d\ude00 é"} , {"text":"","type":"text","y":[1]} ] }"#.to_owned(),
            r#"{"content":[{"type":"text","text":"\ud800"}]}"#.to_owned(),
            r#"{"content":[{"type":"text","text":7}]}"#.to_owned(),
            r#"{"content":[{"type":"text"}]}"#.to_owned(),
            r#"{"content":[{"type":"te\u0078t","text":"a"}]}"#.to_owned(),
            r#"{"content":[{"type":"text","type":"text","text":"a"}]}"#.to_owned(),
            r#"{"content":[{"type":"text","text":"a","t\u0065xt":"b"}]}"#.to_owned(),
            r#"{"content":[{"type":"text","text":"a","annotations":{"priority":1},"_meta":{"k":1}}]}"#.to_owned(),
            r#"{"content":[{"type":"text","text":"a","_meta":7}]}"#.to_owned(),
            r#"{"content":[{"type":"image","data":"QQ==","mimeType":"image/png"}]}"#.to_owned(),
            r#"{"content":[{"type":"audio","data":"QQ==","mimeType":"audio/wav"}]}"#.to_owned(),
            r#"{"content":[{"type":"resource","resource":{"uri":"a:b","text":"t"}}]}"#.to_owned(),
            r#"{"content":[{"type":"resource_link","uri":"a:b","name":"n"}]}"#.to_owned(),
            r#"{"content":[{"type":"other"}]}"#.to_owned(),
            r#"{"content":[7]}"#.to_owned(),
            r#"{"content":{}}"#.to_owned(),
            r#"{"content":[],"content":[]}"#.to_owned(),
            r#"{"structuredContent":{"a":1.0}}"#.to_owned(),
            r#"{"structuredContent":null}"#.to_owned(),
            r#"{"content":[],"structuredContent":[1],"isError":null}"#.to_owned(),
            r#"{"content":[],"isError":"yes"}"#.to_owned(),
            r#"{"content":[],"resultType":"complete"}"#.to_owned(),
            r#"{"content":[],"resultType":"complete","resultType":"complete"}"#.to_owned(),
            r#"{"content":[],"resultType":"input_required","requestState":"s"}"#.to_owned(),
            r#"{"content":[],"resultType":"other"}"#.to_owned(),
            r#"{"content":[],"resultType":7}"#.to_owned(),
            r#"{"content":[],"ttlMs":"x"}"#.to_owned(),
            r#"{"content":[],"ttlMs":7,"cacheScope":"public"}"#.to_owned(),
            r#"{"content":[],"task":{"taskId":"t"}}"#.to_owned(),
            r#"{"content":[],"_meta":null}"#.to_owned(),
            r#"{"content":[],"_meta":7}"#.to_owned(),
            r#"{"content":[],"_meta":{"a":{"b":[1]},"a":null,"c":"d\n"}}"#.to_owned(),
            r#"{"content":[],"_meta":{"\u0061":1}}"#.to_owned(),
            format!(r#"{{"content":[],"_meta":{{{info}:{{"name":"a","version":"1"}},"a":1}}}}"#),
            format!(r#"{{"content":[],"_meta":{{{info}:{{"name":"a\n","version":"1","title":"t"}}}}}}"#),
            format!(r#"{{"content":[],"_meta":{{{info}:{{"name":"a"}}}}}}"#),
            format!(r#"{{"content":[],"_meta":{{{info}:["a","1"]}}}}"#),
            format!(r#"{{"content":[],"_meta":{{{info}:{{"name":"a","version":"1"}},{info}:7}}}}"#),
            r#"{"content":[],"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#.to_owned(),
            r#"{"content":[],"_meta":{"io.modelcontextprotocol/subscriptionId":{}}}"#.to_owned(),
            r#"{"c\u006fntent":[{"type":"text","text":"a"}]}"#.to_owned(),
        ] {
            let raw = RawJson::from_bytes(text.clone().into()).expect("it is JSON");
            for version in [
                ProtocolVersion::V2025_06_18,
                ProtocolVersion::V2025_11_25,
                ProtocolVersion::V2026_07_28,
            ] {
                if let Some(found) = plain::called(version, &raw) {
                    plain += 1;
                    let parsed = parsed(version, Method::CallTool, &raw);
                    assert_eq!(parsed.ok(), Some(found), "{text}");
                }
            }
        }
        assert!(40 < plain, "{plain}");
    }
}
