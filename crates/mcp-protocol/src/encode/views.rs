//! Encoding of the members of results, in the form that each revision has.

use super::{
    content::{AnnotationsView, Block, Contents, annotations_view},
    tasks::{Execution, execution_view},
};
use crate::{
    ProtocolVersion,
    model::{
        Icon, Implementation, InputParams, InputRequest, InputRequired, Prompt, PromptArgument,
        PromptMessage, Resource, ResourceContents, ResourceTemplate, ResultMeta, Role,
        ServerCapabilities, SkillEntry, Tool, ToolAnnotations,
    },
};
use jsonrpc_core::RawJson;
use serde::Serialize;
use std::{borrow::Cow, collections::BTreeMap};

#[derive(Serialize)]
pub(super) struct Nothing {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialized<'a> {
    pub(super) protocol_version: &'a str,
    pub(super) capabilities: &'a ServerCapabilities,
    pub(super) server_info: &'a Implementation,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instructions: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Discovered<'a> {
    pub(super) supported_versions: Vec<&'static str>,
    pub(super) capabilities: &'a ServerCapabilities,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instructions: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Tools<'a> {
    pub(super) tools: Vec<ToolView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolView<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'a str>,
    pub(super) input_schema: &'a RawJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) output_schema: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<&'a ToolAnnotations>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) execution: Option<Execution>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) icons: &'a [Icon],
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    pub(super) meta: &'a ResultMeta,
}

pub(super) fn tool_view(version: ProtocolVersion, tool: &Tool) -> ToolView<'_> {
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
        execution: execution_view(version, tool.task_support),
        icons: icons_view(version, &tool.icons),
        meta: &tool.meta,
    }
}

/// A tool as the newest revision has it; a model is given it like this.
impl Serialize for Tool {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        tool_view(ProtocolVersion::NEWEST, self).serialize(serializer)
    }
}

/// Icons came with 2025-11-25.
pub(super) fn icons_view(version: ProtocolVersion, icons: &[Icon]) -> &[Icon] {
    if ProtocolVersion::V2025_11_25 <= version {
        icons
    } else {
        &[]
    }
}

/// Before 2026-07-28 the schema of structured content must be an object's.
pub(super) fn allows_output_schema(version: ProtocolVersion, schema: &RawJson) -> bool {
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
pub(super) fn allows_structured(version: ProtocolVersion, content: &RawJson) -> bool {
    match version {
        ProtocolVersion::V2024_11_05 | ProtocolVersion::V2025_03_26 => false,
        ProtocolVersion::V2025_06_18 | ProtocolVersion::V2025_11_25 => content.is_object(),
        ProtocolVersion::V2026_07_28 => true,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Called<'a> {
    pub(super) content: Contents<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) structured_content: Option<&'a RawJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_error: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Resources<'a> {
    pub(super) resources: Vec<ResourceView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceView<'a> {
    pub(super) uri: &'a str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<AnnotationsView<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) icons: &'a [Icon],
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    pub(super) meta: &'a ResultMeta,
}

pub(super) fn resource_view(version: ProtocolVersion, resource: &Resource) -> ResourceView<'_> {
    let since_2025_06 = ProtocolVersion::V2025_06_18 <= version;
    ResourceView {
        uri: &resource.uri,
        name: &resource.name,
        title: resource.title.as_deref().filter(|_| since_2025_06),
        description: resource.description.as_deref(),
        mime_type: resource.mime_type.as_deref(),
        size: resource.size,
        annotations: AnnotationsView {
            audience: &resource.audience,
            priority: resource.priority,
            last_modified: resource.last_modified.as_deref().filter(|_| since_2025_06),
        }
        .unless_empty(),
        icons: icons_view(version, &resource.icons),
        meta: &resource.meta,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Templates<'a> {
    pub(super) resource_templates: Vec<TemplateView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TemplateView<'a> {
    pub(super) uri_template: &'a str,
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mime_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) annotations: Option<AnnotationsView<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) icons: &'a [Icon],
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    pub(super) meta: &'a ResultMeta,
}

pub(super) fn template_view(
    version: ProtocolVersion,
    template: &ResourceTemplate,
) -> TemplateView<'_> {
    TemplateView {
        uri_template: &template.uri_template,
        name: &template.name,
        title: template
            .title
            .as_deref()
            .filter(|_| ProtocolVersion::V2025_06_18 <= version),
        description: template.description.as_deref(),
        mime_type: template.mime_type.as_deref(),
        annotations: annotations_view(version, template.annotations.as_ref()),
        icons: icons_view(version, &template.icons),
        meta: &template.meta,
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Skills<'a> {
    pub(super) skills: &'a [SkillEntry],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct OneSkill<'a> {
    pub(super) skill: &'a SkillEntry,
}

#[derive(Serialize)]
pub(super) struct Read<'a> {
    pub(super) contents: &'a [ResourceContents],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Prompts<'a> {
    pub(super) prompts: Vec<PromptView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_cursor: Option<&'a str>,
}

#[derive(Serialize)]
pub(super) struct PromptView<'a> {
    pub(super) name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) arguments: Vec<Cow<'a, PromptArgument>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) icons: &'a [Icon],
    #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
    pub(super) meta: &'a ResultMeta,
}

pub(super) fn prompt_view(version: ProtocolVersion, prompt: &Prompt) -> PromptView<'_> {
    PromptView {
        name: &prompt.name,
        title: prompt
            .title
            .as_deref()
            .filter(|_| ProtocolVersion::V2025_06_18 <= version),
        description: prompt.description.as_deref(),
        arguments: prompt
            .arguments
            .iter()
            .map(|argument| argument_view(version, argument))
            .collect(),
        icons: icons_view(version, &prompt.icons),
        meta: &prompt.meta,
    }
}

fn argument_view(version: ProtocolVersion, argument: &PromptArgument) -> Cow<'_, PromptArgument> {
    if ProtocolVersion::V2025_06_18 <= version || argument.title.is_none() {
        return Cow::Borrowed(argument);
    }
    Cow::Owned(PromptArgument {
        title: None,
        ..argument.clone()
    })
}

#[derive(Serialize)]
pub(super) struct Prompted<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) description: Option<&'a str>,
    pub(super) messages: Vec<MessageView<'a>>,
}

#[derive(Serialize)]
pub(super) struct MessageView<'a> {
    pub(super) role: Role,
    pub(super) content: Block<'a>,
}

pub(super) fn message_view(version: ProtocolVersion, message: &PromptMessage) -> MessageView<'_> {
    MessageView {
        role: message.role,
        content: Block(version, &message.content),
    }
}

#[derive(Serialize)]
pub(super) struct Completed {
    pub(super) completion: serde_json::Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Required<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) input_requests: BTreeMap<&'a str, Asked<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) request_state: Option<&'a str>,
}

impl<'a> Required<'a> {
    pub(super) fn new(required: &'a InputRequired) -> Self {
        let requests = required.requests.iter();
        Self {
            input_requests: requests
                .map(|(key, it)| (key.as_str(), Asked::from(it)))
                .collect(),
            request_state: required.state.as_deref(),
        }
    }
}

/// A question to a modern client, which is asked by a result.
#[derive(Serialize)]
pub(super) struct Asked<'a> {
    method: &'static str,
    params: InputParams<'a>,
}

impl<'a> From<&'a InputRequest> for Asked<'a> {
    fn from(request: &'a InputRequest) -> Self {
        let mut params = request.params();
        // Revision 2025-11-25 alone has it.
        params.members.remove("elicitationId");
        Self {
            method: request.method(),
            params,
        }
    }
}
