use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One block of what a tool says. It serialises to the shape that the protocol gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Content {
    /// Text, for the model to read.
    Text {
        /// The text.
        text: String,
        /// More about it.
        #[serde(flatten)]
        about: About,
    },
    /// A picture.
    Image {
        /// Bytes in Base64.
        data: String,
        /// Media type, such as `image/png`.
        mime_type: String,
        /// More about it.
        #[serde(flatten)]
        about: About,
    },
    /// Sound. Known to the protocol since 2025-03-26.
    Audio {
        /// Bytes in Base64.
        data: String,
        /// Media type, such as `audio/wav`.
        mime_type: String,
        /// More about it.
        #[serde(flatten)]
        about: About,
    },
    /// A pointer to a resource that can be read. Known to the protocol since 2025-06-18.
    ResourceLink(Box<ResourceLink>),
    /// A resource, carried along.
    Resource {
        /// The resource.
        resource: EmbeddedResource,
        /// More about the block, not about what is in it.
        #[serde(flatten)]
        about: About,
    },
}

/// Notes about a block, besides its content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Audience, priority and time of the last change, as the protocol has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Box<Map<String, Value>>>,
    /// Metadata for programs.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<Map<String, Value>>>,
}

/// A pointer to a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceLink {
    /// Address.
    pub uri: String,
    /// Name for programs.
    pub name: String,
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Pictures that stand for it, as the protocol has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub icons: Vec<Value>,
    /// More about it.
    #[serde(flatten)]
    pub about: About,
}

/// A resource with its content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EmbeddedResource {
    /// Address.
    pub uri: String,
    /// Media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Content.
    #[serde(flatten)]
    pub body: ResourceBody,
    /// Metadata for programs.
    #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<Box<Map<String, Value>>>,
}

/// Content of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResourceBody {
    /// Text.
    Text(String),
    /// Bytes, in Base64.
    Blob(String),
}

impl Content {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            about: About::default(),
        }
    }

    /// A picture, its bytes given in Base64.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        let (data, mime_type) = (data.into(), mime_type.into());
        Self::Image {
            data,
            mime_type,
            about: About::default(),
        }
    }

    /// Sound, its bytes given in Base64.
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        let (data, mime_type) = (data.into(), mime_type.into());
        Self::Audio {
            data,
            mime_type,
            about: About::default(),
        }
    }

    /// A pointer to the resource at `uri`; title, media type and so on can be set in the
    /// [`ResourceLink`].
    pub fn link(uri: impl Into<String>, name: impl Into<String>) -> Self {
        Self::ResourceLink(Box::new(ResourceLink {
            uri: uri.into(),
            name: name.into(),
            title: None,
            description: None,
            mime_type: None,
            size: None,
            icons: Vec::new(),
            about: About::default(),
        }))
    }

    /// A resource that is text, carried along.
    pub fn embedded_text(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        text: impl Into<String>,
    ) -> Self {
        Self::embedded(uri, mime_type, ResourceBody::Text(text.into()))
    }

    /// A resource that is bytes, given in Base64, carried along.
    pub fn embedded_blob(
        uri: impl Into<String>,
        mime_type: impl Into<String>,
        blob: impl Into<String>,
    ) -> Self {
        Self::embedded(uri, mime_type, ResourceBody::Blob(blob.into()))
    }

    fn embedded(uri: impl Into<String>, mime_type: impl Into<String>, body: ResourceBody) -> Self {
        Self::Resource {
            resource: EmbeddedResource {
                uri: uri.into(),
                mime_type: Some(mime_type.into()),
                body,
                meta: None,
            },
            about: About::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn every_block_has_the_shape_the_protocol_gives_it() {
        let rows: Vec<(Content, Value)> = vec![
            (Content::text("hi"), json!({"type": "text", "text": "hi"})),
            (
                Content::image("AA==", "image/png"),
                json!({"type": "image", "data": "AA==", "mimeType": "image/png"}),
            ),
            (
                Content::audio("AA==", "audio/wav"),
                json!({"type": "audio", "data": "AA==", "mimeType": "audio/wav"}),
            ),
            (
                Content::link("skill://a/b", "b"),
                json!({"type": "resource_link", "uri": "skill://a/b", "name": "b"}),
            ),
            (
                Content::embedded_text("test://t", "text/plain", "x"),
                json!({"type": "resource",
                       "resource": {"uri": "test://t", "mimeType": "text/plain", "text": "x"}}),
            ),
            (
                Content::embedded_blob("test://b", "image/png", "AA=="),
                json!({"type": "resource",
                       "resource": {"uri": "test://b", "mimeType": "image/png", "blob": "AA=="}}),
            ),
            (
                Content::Text {
                    text: "hi".to_owned(),
                    about: About {
                        annotations: json!({"priority": 0.5}).as_object().cloned().map(Box::new),
                        meta: json!({"a/b": 1}).as_object().cloned().map(Box::new),
                    },
                },
                json!({"type": "text", "text": "hi", "annotations": {"priority": 0.5}, "_meta": {"a/b": 1}}),
            ),
        ];
        for (content, shape) in rows {
            assert_eq!(serde_json::to_value(&content).unwrap(), shape);
            assert_eq!(serde_json::from_value::<Content>(shape).unwrap(), content);
        }
    }
}
