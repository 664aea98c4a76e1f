//! What results and notifications look like in which revision.

use crate::{
    Era, ProtocolVersion,
    model::{
        CacheHint, CacheScope, Completion, Content, GetPromptResult, GetSkillResult,
        Implementation, InputRequest, InputRequired, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListSkillsResult, ListToolsResult,
        Prompt, PromptArgument, PromptMessage, ReadDirectoryResult, ReadResourceResult, Resource,
        ResourceContents, ResourceTemplate, ResultMeta, Role, ServerCapabilities,
        ServerNotification, ServerResult, SkillEntry, Tool, ToolAnnotations,
    },
};
use jsonrpc_core::{Id, Notification, RawJson, Request};
use serde::{Serialize, Serializer};
use serde_json::json;
use std::collections::BTreeMap;

/// Shapes results for a peer's revision. Holds what goes into each of them: who we are.
#[derive(Clone, Debug)]
pub struct Encoder {
    server_info: RawJson,
}

impl Encoder {
    /// An encoder for the server `server_info`.
    pub fn new(server_info: &Implementation) -> Self {
        Self {
            server_info: RawJson::from_value(server_info).expect("strings serialize"),
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
        let modern = version.era() == Era::Modern;
        let shape = |meta, cache: Option<CacheHint>| Shape {
            result_type: modern.then_some("complete"),
            ttl_ms: cache.filter(|_| modern).map(|cache| cache.ttl_ms),
            cache_scope: cache.filter(|_| modern).map(|cache| cache.scope),
            meta: Meta {
                entries: meta,
                server_info: modern.then_some(&self.server_info),
            },
        };
        let plain = |cache| shape(None, cache);
        match result {
            ServerResult::Encoded(raw) => Ok(raw.clone()),
            ServerResult::Empty => encode(&plain(None), &Nothing {}),
            ServerResult::Initialize(result) => encode(
                &plain(None),
                &Initialized {
                    protocol_version: result.protocol_version,
                    // Extensions came with 2026-07-28, and are written against it.
                    capabilities: &ServerCapabilities {
                        extensions: BTreeMap::new(),
                        ..result.capabilities.clone()
                    },
                    server_info: &self.server_info,
                    instructions: result.instructions.as_deref(),
                },
            ),
            ServerResult::Discover(result) => encode(
                &plain(Some(result.cache)),
                &Discovered {
                    supported_versions: ProtocolVersion::modern()
                        .map(ProtocolVersion::as_str)
                        .collect(),
                    capabilities: &result.capabilities,
                    instructions: result.instructions.as_deref(),
                },
            ),
            ServerResult::ListTools(ListToolsResult {
                tools,
                next_cursor,
                cache,
            }) => encode(
                &plain(Some(*cache)),
                &Tools {
                    tools: tools.iter().map(|tool| tool_view(version, tool)).collect(),
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::CallTool(result) => encode(
                &shape(Some(&result.meta), None),
                &Called {
                    content: Contents(version, &result.content),
                    structured_content: result
                        .structured_content
                        .as_ref()
                        .filter(|content| allows_structured(version, content)),
                    is_error: result.is_error,
                },
            ),
            ServerResult::ListResources(ListResourcesResult {
                resources,
                next_cursor,
                cache,
            }) => encode(
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
                &plain(Some(*cache)),
                &Skills {
                    skills,
                    next_cursor: next_cursor.as_deref(),
                },
            ),
            ServerResult::GetSkill(GetSkillResult { skill, cache }) => {
                encode(&plain(Some(*cache)), &OneSkill { skill })
            }
            // Alone among lists it has no hint for caches in the extension's text.
            ServerResult::ReadDirectory(ReadDirectoryResult {
                resources,
                next_cursor,
            }) => encode(
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
                &shape(Some(meta), None),
                &Prompted {
                    description: description.as_deref(),
                    messages: messages
                        .iter()
                        .map(|it| message_view(version, it))
                        .collect(),
                },
            ),
            ServerResult::Complete(Completion { values }) => {
                let sent = &values[..values.len().min(Completion::MAX_VALUES)];
                let completion = json!({
                    "values": sent,
                    "total": values.len(),
                    "hasMore": sent.len() < values.len(),
                });
                encode(&plain(None), &Completed { completion })
            }
            ServerResult::InputRequired(required) => encode(
                &Shape {
                    result_type: Some("input_required"),
                    ..plain(None)
                },
                &Required::new(required),
            ),
            ServerResult::ReadResource(ReadResourceResult {
                contents,
                meta,
                cache,
            }) => encode(&shape(Some(meta), Some(*cache)), &Read { contents }),
        }
    }

    /// The result that ends a `subscriptions/listen` of the server's own accord.
    pub fn listen_ended(&self, subscription: &Id) -> RawJson {
        let result = json!({
            "resultType": "complete",
            "_meta": {
                "io.modelcontextprotocol/subscriptionId": subscription,
                "io.modelcontextprotocol/serverInfo": self.server_info,
            },
        });
        RawJson::from_value(&result).expect("strings and integers serialize")
    }
}

/// Encodes a notification; `subscription` is the id of the `subscriptions/listen` request it is sent
/// for, which modern revisions demand.
pub fn encode_notification(
    version: ProtocolVersion,
    notification: &ServerNotification,
    subscription: Option<&Id>,
) -> Notification {
    #[derive(Serialize)]
    struct Params<'a, T> {
        #[serde(flatten)]
        own: T,
        #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
        meta: Option<Subscription<'a>>,
    }
    #[derive(Serialize)]
    struct Subscription<'a> {
        #[serde(rename = "io.modelcontextprotocol/subscriptionId")]
        id: &'a Id,
    }
    let make = |method: &str, own: serde_json::Value| Notification {
        method: method.to_owned(),
        params: RawJson::from_value(&Params {
            own,
            meta: subscription.map(|id| Subscription { id }),
        })
        .expect("a tree of values serializes"),
    };
    match notification {
        ServerNotification::Progress {
            token,
            progress,
            total,
            message,
        } => {
            let mut params = json!({ "progressToken": token, "progress": progress });
            if let Some(total) = total {
                params["total"] = json!(total);
            }
            if let Some(message) = message
                && ProtocolVersion::V2025_03_26 <= version
            {
                params["message"] = json!(message);
            }
            make("notifications/progress", params)
        }
        ServerNotification::ToolsListChanged => make("notifications/tools/list_changed", json!({})),
        ServerNotification::PromptsListChanged => {
            make("notifications/prompts/list_changed", json!({}))
        }
        ServerNotification::Log {
            level,
            logger,
            data,
        } => {
            let mut params = json!({ "level": level, "data": data });
            if let Some(logger) = logger {
                params["logger"] = json!(logger);
            }
            make("notifications/message", params)
        }
        ServerNotification::ResourcesListChanged => {
            make("notifications/resources/list_changed", json!({}))
        }
        ServerNotification::ResourceUpdated { uri } => {
            make("notifications/resources/updated", json!({ "uri": uri }))
        }
        ServerNotification::SubscriptionsAcknowledged { accepted } => make(
            "notifications/subscriptions/acknowledged",
            json!({ "notifications": accepted }),
        ),
        ServerNotification::Cancelled { request, reason } => {
            let mut params = json!({ "requestId": request });
            if let Some(reason) = reason {
                params["reason"] = json!(reason);
            }
            make("notifications/cancelled", params)
        }
    }
}

/// A question to a legacy client, as a request of the server's own with the id `id`.
pub fn encode_input_request(version: ProtocolVersion, id: Id, request: &InputRequest) -> Request {
    let mut params = request.params();
    if let InputRequest::CreateMessage(_) = request
        && version < ProtocolVersion::V2025_11_25
        && let Some(params) = params.as_object_mut()
    {
        // Sampling with tools came with 2025-11-25.
        params.remove("tools");
        params.remove("toolChoice");
    }
    Request {
        id,
        method: request.method().to_owned(),
        params: RawJson::from_value(&params).expect("a tree of values serializes"),
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
    fn write(&self, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
        out.push(b'{');
        let mut first = true;
        let server_info = self
            .server_info
            .map(|info| ("io.modelcontextprotocol/serverInfo", info));
        let entries = self.entries.into_iter().flat_map(ResultMeta::iter);
        for (key, value) in entries.chain(server_info) {
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            serde_json::to_writer(&mut *out, key)?;
            out.push(b':');
            out.extend_from_slice(value.as_bytes());
        }
        out.push(b'}');
        Ok(())
    }
}

/// Writes `own`'s members and then `shape`'s. `#[serde(flatten)]` would build a tree of both first.
fn encode<T: Serialize>(shape: &Shape<'_>, own: &T) -> Result<RawJson, serde_json::Error> {
    let mut out = serde_json::to_vec(own)?;
    debug_assert_eq!(out.last(), Some(&b'}'), "a result is an object");
    out.pop();
    let mut first = out == b"{";
    let mut member = |out: &mut Vec<u8>, name: &str| {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        out.extend_from_slice(name.as_bytes());
    };
    if let Some(result_type) = shape.result_type {
        member(&mut out, "\"resultType\":");
        serde_json::to_writer(&mut out, result_type)?;
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
        shape.meta.write(&mut out)?;
    }
    out.push(b'}');
    Ok(RawJson::from_serialized(out))
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Initialized<'a> {
    protocol_version: &'a str,
    capabilities: &'a ServerCapabilities,
    server_info: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Discovered<'a> {
    supported_versions: Vec<&'static str>,
    capabilities: &'a ServerCapabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    instructions: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    tools: Vec<ToolView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolView<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    input_schema: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_schema: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<&'a ToolAnnotations>,
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    meta: &'a ResultMeta,
}

fn tool_view(version: ProtocolVersion, tool: &Tool) -> ToolView<'_> {
    let since = |first: ProtocolVersion| first <= version;
    ToolView {
        name: &tool.name,
        title: tool
            .title
            .as_deref()
            .filter(|_| since(ProtocolVersion::V2025_06_18)),
        description: tool.description.as_deref(),
        input_schema: &tool.input_schema,
        output_schema: tool
            .output_schema
            .as_ref()
            .filter(|schema| allows_output_schema(version, schema)),
        annotations: tool
            .annotations
            .as_ref()
            .filter(|_| since(ProtocolVersion::V2025_03_26)),
        meta: &tool.meta,
    }
}

/// Before 2026-07-28 the schema of structured content must be an object's.
fn allows_output_schema(version: ProtocolVersion, schema: &RawJson) -> bool {
    #[derive(serde::Deserialize)]
    struct Root {
        #[serde(rename = "type", default)]
        kind: serde_json::Value,
    }
    match version {
        ProtocolVersion::V2024_11_05 | ProtocolVersion::V2025_03_26 => false,
        ProtocolVersion::V2025_06_18 | ProtocolVersion::V2025_11_25 => schema
            .parse::<Root>()
            .is_ok_and(|root| root.kind == "object"),
        ProtocolVersion::V2026_07_28 => true,
    }
}

/// Before 2026-07-28 structured content must be an object, and before 2025-06-18 there is none.
fn allows_structured(version: ProtocolVersion, content: &RawJson) -> bool {
    match version {
        ProtocolVersion::V2024_11_05 | ProtocolVersion::V2025_03_26 => false,
        ProtocolVersion::V2025_06_18 | ProtocolVersion::V2025_11_25 => content.is_object(),
        ProtocolVersion::V2026_07_28 => true,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Called<'a> {
    content: Contents<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
}

/// Content as `version` knows it; what it does not know is given in the nearest form it does.
struct Contents<'a>(ProtocolVersion, &'a [Content]);

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(version, blocks) = self;
        serializer.collect_seq(blocks.iter().map(|block| Block(*version, block)))
    }
}

struct Block<'a>(ProtocolVersion, &'a Content);

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(version, block) = self;
        match block {
            Content::Audio { data, mime_type } if *version < ProtocolVersion::V2025_03_26 => {
                Content::Resource {
                    resource: ResourceContents {
                        uri: "urn:mcp:audio".to_owned(),
                        mime_type: Some(mime_type.clone()),
                        text: None,
                        blob: Some(data.clone()),
                        meta: None,
                    },
                }
                .serialize(serializer)
            }
            Content::ResourceLink { uri, name, .. } if *version < ProtocolVersion::V2025_06_18 => {
                Content::text(format!("{name}: {uri}")).serialize(serializer)
            }
            block => block.serialize(serializer),
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Resources<'a> {
    resources: Vec<ResourceView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceView<'a> {
    uri: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    annotations: Option<ResourceAnnotations<'a>>,
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    meta: &'a ResultMeta,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceAnnotations<'a> {
    last_modified: &'a str,
}

fn resource_view(version: ProtocolVersion, resource: &Resource) -> ResourceView<'_> {
    let since_2025_06 = ProtocolVersion::V2025_06_18 <= version;
    ResourceView {
        uri: &resource.uri,
        name: &resource.name,
        title: resource.title.as_deref().filter(|_| since_2025_06),
        description: resource.description.as_deref(),
        mime_type: resource.mime_type.as_deref(),
        size: resource.size,
        annotations: resource
            .last_modified
            .as_deref()
            .filter(|_| since_2025_06)
            .map(|last_modified| ResourceAnnotations { last_modified }),
        meta: &resource.meta,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Templates<'a> {
    resource_templates: Vec<TemplateView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TemplateView<'a> {
    uri_template: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mime_type: Option<&'a str>,
}

fn template_view(version: ProtocolVersion, template: &ResourceTemplate) -> TemplateView<'_> {
    TemplateView {
        uri_template: &template.uri_template,
        name: &template.name,
        title: template
            .title
            .as_deref()
            .filter(|_| ProtocolVersion::V2025_06_18 <= version),
        description: template.description.as_deref(),
        mime_type: template.mime_type.as_deref(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Skills<'a> {
    skills: &'a [SkillEntry],
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
struct OneSkill<'a> {
    skill: &'a SkillEntry,
}

#[derive(Serialize)]
struct Read<'a> {
    contents: &'a [ResourceContents],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Prompts<'a> {
    prompts: Vec<PromptView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
struct PromptView<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    arguments: &'a [PromptArgument],
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    meta: &'a ResultMeta,
}

fn prompt_view(version: ProtocolVersion, prompt: &Prompt) -> PromptView<'_> {
    PromptView {
        name: &prompt.name,
        title: prompt
            .title
            .as_deref()
            .filter(|_| ProtocolVersion::V2025_06_18 <= version),
        description: prompt.description.as_deref(),
        arguments: &prompt.arguments,
        meta: &prompt.meta,
    }
}

#[derive(Serialize)]
struct Prompted<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    messages: Vec<MessageView<'a>>,
}

#[derive(Serialize)]
struct MessageView<'a> {
    role: Role,
    content: Block<'a>,
}

fn message_view(version: ProtocolVersion, message: &PromptMessage) -> MessageView<'_> {
    MessageView {
        role: message.role,
        content: Block(version, &message.content),
    }
}

#[derive(Serialize)]
struct Completed {
    completion: serde_json::Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Required<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    input_requests: BTreeMap<&'a str, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_state: Option<&'a str>,
}

impl<'a> Required<'a> {
    fn new(required: &'a InputRequired) -> Self {
        let request = |it: &InputRequest| {
            let mut params = it.params();
            if let Some(params) = params.as_object_mut() {
                // Revision 2025-11-25 alone has it.
                params.remove("elicitationId");
            }
            json!({ "method": it.method(), "params": params })
        };
        let requests = required.requests.iter();
        Self {
            input_requests: requests
                .map(|(key, it)| (key.as_str(), request(it)))
                .collect(),
            request_state: required.state.as_deref(),
        }
    }
}
