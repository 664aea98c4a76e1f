use super::{
    Annotations, Resource, ResultMeta, object_or_null, or_default, raw_object_or_null, read::Object,
};
use jsonrpc_core::RawJson;
use serde::{Deserialize, Deserializer, Serialize, de::Error};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// One block of content for a model or a user.
///
/// By itself it serializes as the newest revision has it; [`crate::Encoder`] shapes it for others.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Audience and priority.
        annotations: Option<Box<Annotations>>,
        /// More about it.
        meta: ResultMeta,
    },
    /// An image.
    Image {
        /// Base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
        /// Audience and priority.
        annotations: Option<Box<Annotations>>,
        /// More about it.
        meta: ResultMeta,
    },
    /// Sound; since 2025-03-26.
    Audio {
        /// Base64.
        data: String,
        /// Such as `audio/wav`.
        mime_type: String,
        /// Audience and priority.
        annotations: Option<Box<Annotations>>,
        /// More about it.
        meta: ResultMeta,
    },
    /// Link to a resource; since 2025-06-18. The resource need not be among those that the server
    /// lists.
    ResourceLink(Box<Resource>),
    /// A resource, contents and all.
    Resource {
        /// The contents.
        resource: ResourceContents,
        /// Audience and priority.
        annotations: Option<Box<Annotations>>,
        /// More about the block, not about what is in it.
        meta: ResultMeta,
    },
}

impl Content {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            annotations: None,
            meta: ResultMeta::default(),
        }
    }

    /// An image: base64, and its media type.
    pub fn image(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Image {
            data: data.into(),
            mime_type: mime_type.into(),
            annotations: None,
            meta: ResultMeta::default(),
        }
    }

    /// Sound: base64, and its media type.
    pub fn audio(data: impl Into<String>, mime_type: impl Into<String>) -> Self {
        Self::Audio {
            data: data.into(),
            mime_type: mime_type.into(),
            annotations: None,
            meta: ResultMeta::default(),
        }
    }

    /// A resource, contents and all.
    pub fn resource(resource: ResourceContents) -> Self {
        Self::Resource {
            resource,
            annotations: None,
            meta: ResultMeta::default(),
        }
    }
}

/// Members that every block has besides its own.
#[derive(Deserialize)]
pub(crate) struct About {
    #[serde(default, deserialize_with = "object_or_null")]
    pub(crate) annotations: Option<Box<Annotations>>,
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    pub(crate) meta: ResultMeta,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    data: String,
    mime_type: String,
}

#[derive(Deserialize)]
struct Embedded {
    resource: Object<ResourceContents>,
}

/// The `type` of a block, and all of it. serde's own tagged enums cannot hold a value as it was
/// written.
pub(crate) struct Tagged {
    pub(crate) kind: String,
    pub(crate) block: Box<RawValue>,
}

impl<'de> Deserialize<'de> for Tagged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(rename = "type", borrow)]
            kind: Cow<'a, str>,
        }
        let block = Box::<RawValue>::deserialize(deserializer)?;
        let Object(Kind { kind }) = serde_json::from_str(block.get()).map_err(D::Error::custom)?;
        Ok(Self {
            kind: kind.into_owned(),
            block,
        })
    }
}

impl Tagged {
    /// Reads the block as a `T`.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.block.get())
    }

    /// The block, if it is of a kind that is content everywhere.
    pub(crate) fn content(&self) -> Result<Option<Content>, serde_json::Error> {
        let content = match self.kind.as_str() {
            "resource_link" => return self.read().map(Content::ResourceLink).map(Some),
            "text" => {
                let Text { text } = self.read()?;
                let About { annotations, meta } = self.read()?;
                Content::Text {
                    text,
                    annotations,
                    meta,
                }
            }
            "image" => {
                let Data { data, mime_type } = self.read()?;
                let About { annotations, meta } = self.read()?;
                Content::Image {
                    data,
                    mime_type,
                    annotations,
                    meta,
                }
            }
            "audio" => {
                let Data { data, mime_type } = self.read()?;
                let About { annotations, meta } = self.read()?;
                Content::Audio {
                    data,
                    mime_type,
                    annotations,
                    meta,
                }
            }
            "resource" => {
                let Embedded {
                    resource: Object(resource),
                } = self.read()?;
                let About { annotations, meta } = self.read()?;
                Content::Resource {
                    resource,
                    annotations,
                    meta,
                }
            }
            _ => return Ok(None),
        };
        Ok(Some(content))
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let tagged = Tagged::deserialize(deserializer)?;
        tagged
            .content()
            .map_err(D::Error::custom)?
            .ok_or_else(|| D::Error::custom("not a kind of content"))
    }
}

/// Contents of a resource. Exactly one of `text` and `blob` is sent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// URI of the resource.
    pub uri: String,
    /// Media type of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The content, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content as base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// More about it.
    #[serde(
        rename = "_meta",
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "raw_object_or_null"
    )]
    pub meta: Option<RawJson>,
}
