//! Answers of upstreams: cleaned of what nobody sees, and as results of tools.

use super::Item;
use crate::{
    catalogue::is_page,
    text::{Cleaner, OURS, without_ours},
    upstream::Upstream,
};
use adapter_tools::{
    About, Content, EmbeddedResource, ResourceBody, ResourceLink, ToolCx, ToolOutput,
};
use mcp_protocol::{
    client::Answer,
    model::{self, Annotations, CallToolResult, ResultMeta},
};
use serde_json::{Map, Value, json, value::RawValue};

/// Member of the metadata of what was read that is about the resource.
const RESOURCE_META: &str = "io.owlclaw/resource";

impl Item<'_> {
    /// Takes out of the texts of an answer what nobody sees, and notes so on record. Pages of apps are as they were pinned.
    pub(super) fn clean(&self, answer: &mut Answer, cx: &ToolCx) {
        let mut cleaner = Cleaner::new(self.upstream.spec.cleans_results);
        match answer {
            Answer::CallTool(result) => {
                result
                    .content
                    .iter_mut()
                    .for_each(|it| clean(it, &mut cleaner));
                result
                    .structured_content
                    .iter_mut()
                    .for_each(|it| cleaner.json(it));
                cleaner.meta(&mut result.meta);
            }
            Answer::GetPrompt(result) => {
                cleaner.maybe(&mut result.description);
                let contents = result.messages.iter_mut().map(|it| &mut it.content);
                contents.for_each(|it| clean(it, &mut cleaner));
                cleaner.meta(&mut result.meta);
            }
            Answer::ReadResource(result) if !is_page(self.name) => {
                let contents = result.contents.iter_mut();
                contents.for_each(|it| clean_contents(it, &mut cleaner));
                cleaner.meta(&mut result.meta);
                without_ours(&mut result.meta);
                if cleaner.taken != 0 {
                    // The text is not byte for byte what the upstream has.
                    result
                        .meta
                        .insert(RESOURCE_META, &json!({ "takenOut": cleaner.taken }));
                }
            }
            Answer::ReadResource(result) => without_ours(&mut result.meta),
            Answer::Complete(completion) => {
                completion.values.iter_mut().for_each(|it| cleaner.text(it));
            }
            _ => {}
        }
        if let Some(told) = cleaner.told() {
            cx.meter().note(told);
        }
    }
}

/// Cleans the texts of a block of content.
fn clean(content: &mut model::Content, cleaner: &mut Cleaner) {
    match content {
        model::Content::Text { text, meta, .. } => {
            cleaner.text(text);
            cleaner.meta(meta);
        }
        model::Content::Image {
            mime_type, meta, ..
        }
        | model::Content::Audio {
            mime_type, meta, ..
        } => {
            cleaner.text(mime_type);
            cleaner.meta(meta);
        }
        model::Content::ResourceLink(link) => {
            cleaner.listed(link);
        }
        model::Content::Resource { resource, meta, .. } => {
            clean_contents(resource, cleaner);
            cleaner.meta(meta);
        }
    }
}

fn clean_contents(contents: &mut model::ResourceContents, cleaner: &mut Cleaner) {
    cleaner.maybe(&mut contents.text);
    cleaner.maybe(&mut contents.mime_type);
    contents.meta.iter_mut().for_each(|it| cleaner.json(it));
}

/// The answer of an upstream as that of a tool. Addresses of its resources are those under which they are
/// offered. Structured content is passed on as it is, objects and others.
pub(super) fn output(result: CallToolResult, upstream: &Upstream) -> ToolOutput {
    // Clients of revisions that know no such value are to see it too.
    let has_content = !result.content.is_empty();
    let only = result.structured_content.as_ref().filter(|_| !has_content);
    let only = only.map(|it| Content::text(it.as_str()));
    let content = result.content.into_iter().map(|it| block(it, upstream));
    let mut output = ToolOutput {
        content: content.chain(only).collect(),
        structured: result
            .structured_content
            .and_then(|it| RawValue::from_string(it.as_str().to_owned()).ok()),
        is_error: result.is_error,
        ..ToolOutput::default()
    };
    let meta = passed_on(members(&result.meta), upstream);
    for (name, value) in meta.into_iter().flat_map(|it| *it) {
        output = output.with_meta(name, value);
    }
    output
}

fn block(content: model::Content, upstream: &Upstream) -> Content {
    let about = |annotations: Option<Box<Annotations>>, meta| About {
        annotations: annotations.and_then(|it| annotated(*it)),
        meta: passed_on(members(&meta), upstream),
    };
    match content {
        model::Content::Text {
            text,
            annotations,
            meta,
        } => Content::Text {
            text,
            about: about(annotations, meta),
        },
        model::Content::Image {
            data,
            mime_type,
            annotations,
            meta,
        } => Content::Image {
            data,
            mime_type,
            about: about(annotations, meta),
        },
        model::Content::Audio {
            data,
            mime_type,
            annotations,
            meta,
        } => Content::Audio {
            data,
            mime_type,
            about: about(annotations, meta),
        },
        model::Content::ResourceLink(link) => {
            let annotations = Annotations {
                audience: link.audience,
                priority: link.priority,
                last_modified: link.last_modified,
            };
            Content::ResourceLink(Box::new(ResourceLink {
                uri: upstream.offered_uri(&link.uri),
                name: link.name,
                title: link.title,
                description: link.description,
                mime_type: link.mime_type,
                size: link.size,
                icons: Vec::new(),
                about: about(Some(Box::new(annotations)), link.meta),
            }))
        }
        model::Content::Resource {
            resource,
            annotations,
            meta,
        } => Content::Resource {
            resource: EmbeddedResource {
                uri: upstream.offered_uri(&resource.uri),
                mime_type: resource.mime_type,
                body: match (resource.text, resource.blob) {
                    (Some(text), _) => ResourceBody::Text(text),
                    (None, blob) => ResourceBody::Blob(blob.unwrap_or_default()),
                },
                meta: resource.meta.and_then(|it| {
                    let meta = it.parse::<Map<String, Value>>().ok()?;
                    passed_on(meta, upstream)
                }),
            },
            about: about(annotations, meta),
        },
    }
}

/// Annotations of a block, of bounded length; `None` if they say nothing.
fn annotated(mut annotations: Annotations) -> Option<Box<Map<String, Value>>> {
    const MAX_TIME: usize = 64;
    annotations.audience.dedup();
    annotations.audience.truncate(2);
    annotations.last_modified.take_if(|it| it.len() > MAX_TIME);
    match serde_json::to_value(annotations) {
        Ok(Value::Object(members)) if !members.is_empty() => Some(Box::new(members)),
        _ => None,
    }
}

/// Members of metadata whose values are JSON.
fn members(meta: &ResultMeta) -> impl Iterator<Item = (String, Value)> {
    meta.iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)))
}

/// Metadata of an upstream without what only this server says; `None` if there is none.
fn passed_on(
    meta: impl IntoIterator<Item = (String, Value)>,
    upstream: &Upstream,
) -> Option<Box<Map<String, Value>>> {
    let meta: Map<String, Value> = meta
        .into_iter()
        .filter(|(name, _)| !name.starts_with(OURS))
        .map(|(name, value)| (name, upstream.with_offered_ui(value)))
        .collect();
    (!meta.is_empty()).then(|| Box::new(meta))
}
