use jsonrpc_core::RawJson;
use serde::Serialize;

/// One block of content for a model or a user.
#[derive(Clone, Debug, Serialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
pub enum Content {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image.
    Image {
        /// Base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
    /// Sound; since 2025-03-26.
    Audio {
        /// Base64.
        data: String,
        /// Such as `audio/wav`.
        mime_type: String,
    },
    /// Where something can be read; since 2025-06-18.
    ResourceLink {
        /// Where.
        uri: String,
        /// What it is called.
        name: String,
        /// What it is about.
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// What kind of content is there.
        #[serde(skip_serializing_if = "Option::is_none")]
        mime_type: Option<String>,
    },
    /// A resource, contents and all.
    Resource {
        /// The contents.
        resource: ResourceContents,
    },
}

impl Content {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// What is at a URI. Exactly one of `text` and `blob` is sent.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// Where.
    pub uri: String,
    /// What kind of content it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// The content, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The content as base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<String>,
    /// More about it.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    pub meta: Option<RawJson>,
}
