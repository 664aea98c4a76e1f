//! Encoding of content, in the form that each revision has.

use super::views::{ResourceView, resource_view};
use crate::{
    ProtocolVersion,
    model::{Annotations, Content, ResourceContents, ResultMeta, Role},
};
use jsonrpc_core::put_text;
use serde::{Serialize, Serializer};

/// Content as `version` knows it; what it does not know is given in the nearest form it does.
pub(super) struct Contents<'a>(pub(super) ProtocolVersion, pub(super) &'a [Content]);

/// Writes a list of content as JSON, if it is a single text with nothing beside it, as most results are. What serde
/// makes of it says the same.
pub fn write_plain_text(content: &[Content], out: &mut Vec<u8>) -> bool {
    match content {
        [
            Content::Text {
                text,
                annotations: None,
                meta,
            },
        ] if meta.is_empty() => {
            out.extend_from_slice(br#"[{"type":"text","text":"#);
            put_text(text, out);
            out.extend_from_slice(b"}]");
            true
        }
        _ => false,
    }
}

impl Serialize for Contents<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(version, blocks) = self;
        serializer.collect_seq(blocks.iter().map(|block| Block(*version, block)))
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Block(ProtocolVersion::NEWEST, self).serialize(serializer)
    }
}

/// One block of it.
pub(crate) struct Block<'a>(pub(crate) ProtocolVersion, pub(crate) &'a Content);

#[derive(Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
enum View<'a> {
    Text {
        text: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<AnnotationsView<'a>>,
        #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
        meta: &'a ResultMeta,
    },
    Image {
        data: &'a str,
        mime_type: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<AnnotationsView<'a>>,
        #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
        meta: &'a ResultMeta,
    },
    Audio {
        data: &'a str,
        mime_type: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<AnnotationsView<'a>>,
        #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
        meta: &'a ResultMeta,
    },
    ResourceLink(ResourceView<'a>),
    Resource {
        resource: &'a ResourceContents,
        #[serde(skip_serializing_if = "Option::is_none")]
        annotations: Option<AnnotationsView<'a>>,
        #[serde(rename = "_meta", skip_serializing_if = "ResultMeta::is_empty")]
        meta: &'a ResultMeta,
    },
}

impl Serialize for Block<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(version, block) = self;
        let view = match block {
            Content::Text {
                text,
                annotations,
                meta,
            } => View::Text {
                text,
                annotations: annotations_view(*version, annotations.as_deref()),
                meta,
            },
            Content::Image {
                data,
                mime_type,
                annotations,
                meta,
            } => View::Image {
                data,
                mime_type,
                annotations: annotations_view(*version, annotations.as_deref()),
                meta,
            },
            Content::Audio {
                data,
                mime_type,
                annotations,
                meta,
            } if *version < ProtocolVersion::V2025_03_26 => {
                let resource = ResourceContents {
                    uri: "urn:mcp:audio".to_owned(),
                    mime_type: Some(mime_type.clone()),
                    blob: Some(data.clone()),
                    ..ResourceContents::default()
                };
                let view = View::Resource {
                    resource: &resource,
                    annotations: annotations_view(*version, annotations.as_deref()),
                    meta,
                };
                return view.serialize(serializer);
            }
            Content::Audio {
                data,
                mime_type,
                annotations,
                meta,
            } => View::Audio {
                data,
                mime_type,
                annotations: annotations_view(*version, annotations.as_deref()),
                meta,
            },
            Content::ResourceLink(link) if *version < ProtocolVersion::V2025_06_18 => {
                let text = Content::text(format!("{}: {}", link.name, link.uri));
                return Block(*version, &text).serialize(serializer);
            }
            Content::ResourceLink(link) => View::ResourceLink(resource_view(*version, link)),
            Content::Resource {
                resource,
                annotations,
                meta,
            } => View::Resource {
                resource,
                annotations: annotations_view(*version, annotations.as_deref()),
                meta,
            },
        };
        view.serialize(serializer)
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AnnotationsView<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub(super) audience: &'a [Role],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) priority: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_modified: Option<&'a str>,
}

impl AnnotationsView<'_> {
    pub(super) fn unless_empty(self) -> Option<Self> {
        let says_something =
            !self.audience.is_empty() || self.priority.is_some() || self.last_modified.is_some();
        says_something.then_some(self)
    }
}

pub(super) fn annotations_view(
    version: ProtocolVersion,
    annotations: Option<&Annotations>,
) -> Option<AnnotationsView<'_>> {
    let annotations = annotations?;
    AnnotationsView {
        audience: &annotations.audience,
        priority: annotations.priority,
        last_modified: annotations
            .last_modified
            .as_deref()
            .filter(|_| ProtocolVersion::V2025_06_18 <= version),
    }
    .unless_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_text_is_written_as_serde_writes_it() {
        let image = Content::image("AA==".to_owned(), "image/png".to_owned());
        for (content, is_plain) in [
            (vec![Content::text("")], true),
            (vec![Content::text("a \"b\"\n\\ \u{1} é")], true),
            (vec![Content::text("a"), Content::text("b")], false),
            (vec![image], false),
            (Vec::new(), false),
        ] {
            let mut out = Vec::new();
            assert_eq!(
                write_plain_text(&content, &mut out),
                is_plain,
                "{content:?}"
            );
            for version in ProtocolVersion::ALL.into_iter().filter(|_| is_plain) {
                let expected = serde_json::to_vec(&Contents(version, &content)).unwrap();
                assert_eq!(out, expected, "{version}");
            }
        }
    }
}
