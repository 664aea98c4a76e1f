//! Members of a value that a revision can carry: the tests' own account of when each came.

use jsonrpc_core::RawJson;
use mcp_protocol::{
    Era, ProtocolVersion,
    ProtocolVersion::{V2025_03_26, V2025_06_18, V2025_11_25, V2026_07_28},
    model::*,
};
use serde_json::Value;

fn since<T: Default>(first: ProtocolVersion, version: ProtocolVersion, value: &mut T) {
    if version < first {
        *value = T::default();
    }
}

pub(crate) fn tool(version: ProtocolVersion, mut tool: Tool) -> Tool {
    since(V2025_06_18, version, &mut tool.title);
    since(V2025_06_18, version, &mut tool.output_schema);
    since(V2025_03_26, version, &mut tool.annotations);
    since(V2025_11_25, version, &mut tool.icons);
    if version != V2025_11_25 {
        tool.task_support = TaskSupport::Forbidden;
    }
    if version < V2026_07_28 {
        tool.output_schema = tool
            .output_schema
            .filter(|schema| schema.as_str().contains("object"));
    }
    tool
}

pub(crate) fn resource(version: ProtocolVersion, mut resource: Resource) -> Resource {
    since(V2025_06_18, version, &mut resource.title);
    since(V2025_06_18, version, &mut resource.last_modified);
    since(V2025_11_25, version, &mut resource.icons);
    resource
}

pub(crate) fn template(version: ProtocolVersion, mut it: ResourceTemplate) -> ResourceTemplate {
    since(V2025_06_18, version, &mut it.title);
    since(V2025_11_25, version, &mut it.icons);
    it.annotations = annotations(version, it.annotations);
    it
}

fn annotations(version: ProtocolVersion, annotations: Option<Annotations>) -> Option<Annotations> {
    let mut annotations = annotations?;
    since(V2025_06_18, version, &mut annotations.last_modified);
    (annotations != Annotations::default()).then_some(annotations)
}

pub(crate) fn content(version: ProtocolVersion, mut content: Content) -> Content {
    match &mut content {
        Content::ResourceLink(link) if version < V2025_06_18 => {
            return Content::text(format!("{}: {}", link.name, link.uri));
        }
        Content::ResourceLink(link) => **link = resource(version, (**link).clone()),
        Content::Text {
            annotations: it, ..
        }
        | Content::Image {
            annotations: it, ..
        }
        | Content::Audio {
            annotations: it, ..
        }
        | Content::Resource {
            annotations: it, ..
        } => {
            *it = annotations(version, it.take().map(|it| *it)).map(Box::new);
        }
    }
    match content {
        Content::Audio {
            data,
            mime_type,
            annotations,
            meta,
        } if version < V2025_03_26 => Content::Resource {
            resource: ResourceContents {
                uri: "urn:mcp:audio".to_owned(),
                mime_type: Some(mime_type),
                blob: Some(data),
                ..ResourceContents::default()
            },
            annotations,
            meta,
        },
        content => content,
    }
}

fn prompt(version: ProtocolVersion, mut prompt: Prompt) -> Prompt {
    since(V2025_06_18, version, &mut prompt.title);
    since(V2025_11_25, version, &mut prompt.icons);
    for argument in &mut prompt.arguments {
        since(V2025_06_18, version, &mut argument.title);
    }
    prompt
}

/// A task; the modern revision alone tells what has come of it, and only where it is asked for.
pub(crate) fn task(version: ProtocolVersion, created: bool, mut task: Task) -> Task {
    let told = version == V2026_07_28 && !created;
    let is_legacy = version != V2026_07_28;
    task.state = match task.state {
        TaskState::InputRequired { .. } if !told => TaskState::InputRequired {
            requests: RawJson::NULL,
        },
        TaskState::Completed { is_error: true, .. } if is_legacy => TaskState::Failed {
            error: RawJson::NULL,
        },
        TaskState::Completed { .. } if !told => TaskState::Completed {
            result: RawJson::NULL,
            is_error: false,
        },
        TaskState::Failed { .. } if !told => TaskState::Failed {
            error: RawJson::NULL,
        },
        state => state,
    };
    task
}

fn cache(version: ProtocolVersion, cache: CacheHint) -> CacheHint {
    match version.era() {
        Era::Modern => cache,
        Era::Legacy => CacheHint::NONE,
    }
}

fn each<T>(values: Vec<T>, carried: impl Fn(T) -> T) -> Vec<T> {
    values.into_iter().map(carried).collect()
}

pub(crate) fn result(version: ProtocolVersion, mut result: ServerResult) -> ServerResult {
    match &mut result {
        ServerResult::ListTools(it) => {
            it.tools = each(it.tools.split_off(0), |it| tool(version, it));
            it.cache = cache(version, it.cache);
        }
        ServerResult::ListResources(it) => {
            it.resources = each(it.resources.split_off(0), |it| resource(version, it));
            it.cache = cache(version, it.cache);
        }
        ServerResult::ReadDirectory(it) => {
            it.resources = each(it.resources.split_off(0), |it| resource(version, it));
        }
        ServerResult::ListResourceTemplates(it) => {
            let templates = it.resource_templates.split_off(0);
            it.resource_templates = each(templates, |it| template(version, it));
            it.cache = cache(version, it.cache);
        }
        ServerResult::ReadResource(it) => it.cache = cache(version, it.cache),
        ServerResult::ListPrompts(it) => {
            it.prompts = each(it.prompts.split_off(0), |it| prompt(version, it));
            it.cache = cache(version, it.cache);
        }
        ServerResult::GetPrompt(it) => {
            for message in &mut it.messages {
                message.content = content(version, message.content.clone());
            }
        }
        ServerResult::CallTool(it) => {
            it.content = each(it.content.split_off(0), |it| content(version, it));
            since(V2025_06_18, version, &mut it.structured_content);
            if version < V2026_07_28 {
                it.structured_content = it.structured_content.take().filter(RawJson::is_object);
            }
        }
        ServerResult::Complete(it) => {
            let all = it.values.len() as u64;
            if !it.has_more {
                it.total = it.total.or(Some(all));
            }
        }
        ServerResult::InputRequired(it) => {
            for request in it.requests.values_mut() {
                *request = input_request(version, request.clone()).expect("the newest has all");
            }
        }
        ServerResult::CreateTask(it) => **it = task(version, true, (**it).clone()),
        ServerResult::Task(it) => **it = task(version, false, (**it).clone()),
        ServerResult::ListTasks(it) => {
            it.tasks = each(it.tasks.split_off(0), |it| task(version, false, it));
        }
        _ => {}
    }
    result
}

/// A question; `None` if the revision cannot ask it.
pub(crate) fn input_request(
    version: ProtocolVersion,
    mut request: InputRequest,
) -> Option<InputRequest> {
    match &mut request {
        InputRequest::ElicitForm { .. } if version < V2025_06_18 => return None,
        InputRequest::ElicitUrl { .. } if version < V2025_11_25 => return None,
        InputRequest::ElicitUrl { elicitation_id, .. } if version == V2026_07_28 => {
            elicitation_id.clear();
        }
        InputRequest::CreateMessage(Value::Object(params)) if version < V2025_11_25 => {
            params.remove("tools");
            params.remove("toolChoice");
        }
        _ => {}
    }
    Some(request)
}

pub(crate) fn implementation(version: ProtocolVersion, mut it: Implementation) -> Implementation {
    since(V2025_06_18, version, &mut it.title);
    since(V2025_11_25, version, &mut it.description);
    since(V2025_11_25, version, &mut it.website_url);
    since(V2025_11_25, version, &mut it.icons);
    it
}

pub(crate) fn capabilities(
    version: ProtocolVersion,
    mut it: ClientCapabilities,
) -> ClientCapabilities {
    since(V2025_06_18, version, &mut it.elicitation);
    if version == V2025_06_18 {
        it.elicitation = it.elicitation.map(|_| ElicitationCapability {
            form: true,
            url: false,
        });
    }
    if version < V2025_11_25 {
        it.sampling = it.sampling.map(|_| SamplingCapability::default());
    }
    if version == V2026_07_28 {
        it.roots_list_changed = false;
    }
    it
}
