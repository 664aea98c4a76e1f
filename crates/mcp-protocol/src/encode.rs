//! Encoding of results and notifications, in the form that each revision has.

mod content;
mod messages;
mod tasks;
mod views;

pub use self::{
    content::write_plain_text,
    messages::{encode_input_request, encode_notification},
    tasks::encode_input_requests,
};

pub(crate) use self::messages::{Cancelled, Progress};

use self::{
    content::Contents,
    tasks::{TaskList, Wrapped, created_view, task_view},
};

use self::views::{
    Called, Completed, Discovered, Initialized, Nothing, OneSkill, Prompted, Prompts, Read,
    Required, Resources, Skills, Templates, Tools, allows_structured, message_view, prompt_view,
    resource_view, template_view, tool_view,
};
use crate::{
    Era, ProtocolVersion,
    model::{
        CacheHint, CacheScope, Completion, GetPromptResult, GetSkillResult, Implementation,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult,
        ListToolsResult, RELATED_TASK, ReadDirectoryResult, ReadResourceResult, ResultMeta,
        ServerResult,
    },
};
use bytes::Bytes;
use jsonrpc_core::{Id, RawJson, begin_result, put_text};
use serde::Serialize;
use serde_json::json;

/// Shapes results for a peer's revision. Holds what goes into each of them: who we are.
#[derive(Clone, Debug)]
pub struct Encoder {
    server_info: Implementation,
    /// The same, as each modern result has it.
    modern_server_info: Option<RawJson>,
}

impl Encoder {
    /// An encoder for the server `server_info`.
    pub fn new(server_info: &Implementation) -> Self {
        Self {
            server_info: server_info.clone(),
            modern_server_info: Some(RawJson::from_value(server_info).expect("strings serialize")),
        }
    }

    /// An encoder that does not name the server in modern results, which the revision permits: for
    /// programs that pass on results of another server.
    pub fn anonymous() -> Self {
        Self {
            server_info: Implementation::default(),
            modern_server_info: None,
        }
    }

    /// Encodes a result.
    ///
    /// # Errors
    ///
    /// What serializing reports, which for this vocabulary means a fault of ours.
    pub fn result(
        &self,
        version: ProtocolVersion,
        result: &ServerResult,
    ) -> Result<RawJson, serde_json::Error> {
        match result {
            ServerResult::Encoded(raw) => Ok(raw.clone()),
            result => {
                let out = Vec::with_capacity(USUAL_BYTES);
                Ok(RawJson::from_serialized(self.write(version, result, out)?))
            }
        }
    }

    /// Encodes a result as the response to the request `id`, and tells the result and the whole of the response, of
    /// which it is a part. A result that is encoded already has no whole: it is not copied.
    ///
    /// # Errors
    ///
    /// As [`Encoder::result`] has them.
    pub fn response(
        &self,
        version: ProtocolVersion,
        result: &ServerResult,
        id: &Id,
    ) -> Result<(RawJson, Option<Bytes>), serde_json::Error> {
        if let ServerResult::Encoded(raw) = result {
            return Ok((raw.clone(), None));
        }
        let mut out = Vec::with_capacity(USUAL_BYTES);
        begin_result(id, &mut out);
        let start = out.len();
        let mut out = self.write(version, result, out)?;
        let end = out.len();
        out.push(b'}');
        let whole = Bytes::from(out);
        let result = RawJson::part_of_serialized(&whole, start..end);
        Ok((result, Some(whole)))
    }

    /// Appends a result to `out`.
    fn write(
        &self,
        version: ProtocolVersion,
        result: &ServerResult,
        mut out: Vec<u8>,
    ) -> Result<Vec<u8>, serde_json::Error> {
        let modern = version.era() == Era::Modern;
        let shape = |meta, cache: Option<CacheHint>| Shape {
            result_type: modern.then_some("complete"),
            ttl_ms: cache.filter(|_| modern).map(|cache| cache.ttl_ms),
            cache_scope: cache.filter(|_| modern).map(|cache| cache.scope),
            meta: Meta {
                entries: meta,
                server_info: self.modern_server_info.as_ref().filter(|_| modern),
            },
        };
        let plain = |cache| shape(None, cache);
        match result {
            ServerResult::Encoded(raw) => {
                out.extend_from_slice(raw.as_bytes());
                Ok(out)
            }
            ServerResult::Empty => encode(out, &plain(None), &Nothing {}),
            ServerResult::Initialize(result) => encode(
                out,
                &plain(None),
                &Initialized {
                    protocol_version: result.protocol_version,
                    capabilities: &result.capabilities.shaped_for(version),
                    server_info: &self.server_info.shaped_for(version),
                    instructions: result.instructions.as_deref(),
                },
            ),
            ServerResult::Discover(result) => encode(
                out,
                &plain(Some(result.cache)),
                &Discovered {
                    supported_versions: ProtocolVersion::modern()
                        .map(ProtocolVersion::as_str)
                        .collect(),
                    capabilities: &result.capabilities.shaped_for(version),
                    instructions: result.instructions.as_deref(),
                },
            ),
            ServerResult::ListTools(ListToolsResult {
                tools,
                next_cursor,
                cache,
            }) => encode(
                out,
                &plain(Some(*cache)),
                &Tools {
                    tools: tools.iter().map(|tool| tool_view(version, tool)).collect(),
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::CallTool(result) => {
                let shape = shape(Some(&result.meta), None);
                if result.structured_content.is_none() && !result.is_error {
                    let start = out.len();
                    out.extend_from_slice(br#"{"content":"#);
                    if write_plain_text(&result.content, &mut out) {
                        out.push(b'}');
                        return finish(out, start, &shape);
                    }
                    out.truncate(start);
                }
                let called = Called {
                    content: Contents(version, &result.content),
                    structured_content: result
                        .structured_content
                        .as_ref()
                        .filter(|content| allows_structured(version, content)),
                    is_error: result.is_error,
                };
                encode(out, &shape, &called)
            }
            ServerResult::ListResources(ListResourcesResult {
                resources,
                next_cursor,
                cache,
            }) => encode(
                out,
                &plain(Some(*cache)),
                &Resources {
                    resources: resources
                        .iter()
                        .map(|it| resource_view(version, it))
                        .collect(),
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::ListResourceTemplates(ListResourceTemplatesResult {
                resource_templates,
                next_cursor,
                cache,
            }) => encode(
                out,
                &plain(Some(*cache)),
                &Templates {
                    resource_templates: resource_templates
                        .iter()
                        .map(|it| template_view(version, it))
                        .collect(),
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::ListSkills(ListSkillsResult {
                skills,
                next_cursor,
                cache,
            }) => encode(
                out,
                &plain(Some(*cache)),
                &Skills {
                    skills,
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::GetSkill(GetSkillResult { skill, cache }) => {
                encode(out, &plain(Some(*cache)), &OneSkill { skill })
            }
            // Alone among lists it has no hint for caches in the extension's text.
            ServerResult::ReadDirectory(ReadDirectoryResult {
                resources,
                next_cursor,
            }) => encode(
                out,
                &plain(None),
                &Resources {
                    resources: resources
                        .iter()
                        .map(|it| resource_view(version, it))
                        .collect(),
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::ListPrompts(ListPromptsResult {
                prompts,
                next_cursor,
                cache,
            }) => encode(
                out,
                &plain(Some(*cache)),
                &Prompts {
                    prompts: prompts.iter().map(|it| prompt_view(version, it)).collect(),
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::GetPrompt(GetPromptResult {
                description,
                messages,
                meta,
            }) => encode(
                out,
                &shape(Some(meta), None),
                &Prompted {
                    description: description.as_deref(),
                    messages: messages
                        .iter()
                        .map(|it| message_view(version, it))
                        .collect(),
                },
            ),
            ServerResult::Complete(Completion {
                values,
                total,
                has_more,
            }) => {
                let sent = &values[..values.len().min(Completion::MAX_VALUES)];
                let mut completion = json!({
                    "values": sent,
                    "hasMore": *has_more || sent.len() < values.len(),
                });
                // Where more are known of than are here, nobody may take these for all.
                let known = (!has_more).then_some(values.len() as u64);
                if let Some(total) = total.or(known) {
                    completion["total"] = json!(total);
                }
                encode(out, &plain(None), &Completed { completion })
            }
            ServerResult::InputRequired(required) => encode(
                out,
                &Shape {
                    result_type: Some("input_required"),
                    ..plain(None)
                },
                &Required::new(required),
            ),
            ServerResult::CreateTask(task) if modern => encode(
                out,
                &Shape {
                    result_type: Some("task"),
                    ..plain(None)
                },
                &created_view(version, task),
            ),
            ServerResult::CreateTask(task) => {
                let mut meta = ResultMeta::default();
                meta.insert(RELATED_TASK, &json!({ "taskId": task.id }));
                let wrapped = Wrapped {
                    task: created_view(version, task),
                };
                encode(out, &shape(Some(&meta), None), &wrapped)
            }
            ServerResult::Task(task) => encode(out, &plain(None), &task_view(version, task)),
            ServerResult::ListTasks(list) => {
                encode(out, &plain(None), &TaskList::new(version, list))
            }
            // The engine acknowledges it in other words.
            ServerResult::Listening(_) => encode(out, &plain(None), &Nothing {}),
            ServerResult::ReadResource(ReadResourceResult {
                contents,
                meta,
                cache,
            }) => encode(out, &shape(Some(meta), Some(*cache)), &Read { contents }),
        }
    }

    /// The result that ends a `subscriptions/listen` of the server's own accord.
    pub fn listen_ended(&self, subscription: &Id) -> RawJson {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Ended<'a> {
            result_type: &'static str,
            #[serde(rename = "_meta")]
            meta: Of<'a>,
        }
        #[derive(Serialize)]
        struct Of<'a> {
            #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
            subscription: &'a Id,
            #[serde(
                rename = "io.modelcontextprotocol/serverInfo",
                skip_serializing_if = "Option::is_none"
            )]
            server_info: Option<&'a RawJson>,
        }
        // Not by a tree of values, which would lose digits of large ids.
        RawJson::from_value(&Ended {
            result_type: "complete",
            meta: Of {
                subscription,
                server_info: self.modern_server_info.as_ref(),
            },
        })
        .expect("strings and integers serialize")
    }
}

/// Members that surround a result's own.
struct Shape<'a> {
    result_type: Option<&'static str>,
    ttl_ms: Option<u64>,
    cache_scope: Option<CacheScope>,
    meta: Meta<'a>,
}

struct Meta<'a> {
    entries: Option<&'a ResultMeta>,
    server_info: Option<&'a RawJson>,
}

impl Meta<'_> {
    fn is_empty(&self) -> bool {
        self.server_info.is_none() && self.entries.is_none_or(ResultMeta::is_empty)
    }
}

impl Meta<'_> {
    /// Writes it. Its values are serialized already, and serde would read them once more.
    fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        for (key, value) in self.entries.into_iter().flat_map(ResultMeta::iter) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            put_text(key, out);
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        if let Some(info) = self.server_info {
            if !first {
                out.push(b',');
            }
            out.extend_from_slice(br#""io.modelcontextprotocol/serverInfo":"#);
            out.extend_from_slice(info.as_bytes());
        }
        out.push(b'}');
    }
}

/// Most results of calls fit into so many bytes, with what is said beside them.
const USUAL_BYTES: usize = 512;

/// Writes `own`'s members and then `shape`'s. `#[serde(flatten)]` would build a tree of both first.
fn encode<T: Serialize>(
    mut out: Vec<u8>,
    shape: &Shape<'_>,
    own: &T,
) -> Result<Vec<u8>, serde_json::Error> {
    let start = out.len();
    serde_json::to_writer(&mut out, own)?;
    finish(out, start, shape)
}

/// Writes `shape`'s members behind those of the object that begins at `start` of `out`.
fn finish(mut out: Vec<u8>, start: usize, shape: &Shape<'_>) -> Result<Vec<u8>, serde_json::Error> {
    debug_assert_eq!(out.last(), Some(&b'}'), "a result is an object");
    out.pop();
    let mut first = out[start..] == *b"{";
    let mut member = |out: &mut Vec<u8>, name: &str| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
    };
    if let Some(result_type) = shape.result_type {
        member(&mut out, "\"resultType\":\"");
        out.extend_from_slice(result_type.as_bytes());
        out.push(b'"');
    }
    if let Some(ttl_ms) = shape.ttl_ms {
        member(&mut out, "\"ttlMs\":");
        serde_json::to_writer(&mut out, &ttl_ms)?;
    }
    if let Some(scope) = shape.cache_scope {
        member(&mut out, "\"cacheScope\":");
        serde_json::to_writer(&mut out, &scope)?;
    }
    if !shape.meta.is_empty() {
        member(&mut out, "\"_meta\":");
        shape.meta.write(&mut out);
    }
    out.push(b'}');
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallToolResult, Content};
    use jsonrpc_core::{Frame, Response};

    #[test]
    fn a_response_that_is_encoded_at_once_is_that_of_its_result() {
        let encoder = Encoder::new(&Implementation::default());
        let mut meta = ResultMeta::default();
        meta.insert("a", "b");
        let text = |text: &str| vec![Content::text(text)];
        let called = |content, is_error| CallToolResult {
            content,
            structured_content: None,
            is_error,
            meta: meta.clone(),
        };
        let structured = CallToolResult {
            structured_content: Some(RawJson::EMPTY_OBJECT),
            ..called(text("{}"), false)
        };
        let results = [
            ServerResult::CallTool(called(text("plain"), false)),
            ServerResult::CallTool(called(text("a \"b\"\n"), true)),
            ServerResult::CallTool(called(Vec::new(), false)),
            ServerResult::CallTool(structured),
            ServerResult::Empty,
            ServerResult::Encoded(RawJson::EMPTY_OBJECT),
        ];
        for result in results {
            for version in ProtocolVersion::ALL {
                for id in [Id::Number(-7), Id::from("a\"b")] {
                    let alone = encoder.result(version, &result).unwrap();
                    let (part, whole) = encoder.response(version, &result, &id).unwrap();
                    assert_eq!(part, alone);
                    let response = Response {
                        id: Some(id),
                        outcome: Ok(alone),
                    };
                    if let Some(whole) = whole {
                        assert_eq!(whole, Frame::response(&response).into_bytes());
                    }
                }
            }
        }
    }
}
