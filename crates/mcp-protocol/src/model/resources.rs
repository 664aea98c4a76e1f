use super::{
    Annotations, CacheHint, Icon, InputRetry, ResourceContents, ResultMeta, Role, object,
    object_or_null, objects, or_default, present, whole,
};
use serde::{Deserialize, Deserializer, Serialize};

/// A resource as clients see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resource {
    /// Address at which it can be read.
    pub uri: String,
    /// Name.
    pub name: String,
    /// Name for people; since 2025-06-18.
    pub title: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Media type.
    pub mime_type: Option<String>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of the last change, as RFC 3339; in `annotations` since 2025-06-18.
    pub last_modified: Option<String>,
    /// Audience; in `annotations`.
    pub audience: Vec<Role>,
    /// Priority, from 0 to 1; in `annotations`.
    pub priority: Option<f64>,
    /// Pictures that stand for it; since 2025-11-25.
    pub icons: Vec<Icon>,
    /// More about it.
    pub meta: ResultMeta,
}

impl<'de> Deserialize<'de> for Resource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire {
            uri: String,
            name: String,
            title: Option<String>,
            description: Option<String>,
            mime_type: Option<String>,
            #[serde(default, deserialize_with = "whole")]
            size: Option<u64>,
            #[serde(default, deserialize_with = "object_or_null")]
            annotations: Option<Annotations>,
            #[serde(default, deserialize_with = "objects")]
            icons: Vec<Icon>,
            #[serde(default, rename = "_meta", deserialize_with = "or_default")]
            meta: ResultMeta,
        }
        let wire = Wire::deserialize(deserializer)?;
        let annotations = wire.annotations.unwrap_or_default();
        Ok(Self {
            uri: wire.uri,
            name: wire.name,
            title: wire.title,
            description: wire.description,
            mime_type: wire.mime_type,
            size: wire.size,
            last_modified: annotations.last_modified,
            audience: annotations.audience,
            priority: annotations.priority,
            icons: wire.icons,
            meta: wire.meta,
        })
    }
}

/// A family of resources as clients see it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceTemplate {
    /// RFC 6570.
    pub uri_template: String,
    /// Name.
    pub name: String,
    /// Name for people; since 2025-06-18.
    pub title: Option<String>,
    /// Description.
    pub description: Option<String>,
    /// Media type of its resources, if all have the same.
    pub mime_type: Option<String>,
    /// Audience and priority of its resources.
    #[serde(default, deserialize_with = "object_or_null")]
    pub annotations: Option<Annotations>,
    /// Pictures that stand for it; since 2025-11-25.
    #[serde(default, deserialize_with = "objects")]
    pub icons: Vec<Icon>,
    /// More about it.
    #[serde(default, rename = "_meta", deserialize_with = "or_default")]
    pub meta: ResultMeta,
}

/// `resources/list`, with the filters of decision D19.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListResources {
    /// Cursor to continue at; opaque.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub cursor: Option<String>,
    /// Only resources of this category.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub category: Option<String>,
    /// Only resources with this tag.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub tag: Option<String>,
    /// Only resources whose URI fits this pattern, such as `skill://ecommerce/*`.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub uri: Option<String>,
}

/// One page of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListResourcesResult {
    /// The page, in an order that only depends on who asks.
    pub resources: Vec<Resource>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// Time for which the client may keep it.
    pub cache: CacheHint,
}

/// One page of families of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListResourceTemplatesResult {
    /// The page, in an order that only depends on who asks.
    pub resource_templates: Vec<ResourceTemplate>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
    /// Time for which the client may keep it.
    pub cache: CacheHint,
}

/// `resources/read`, with the additions of decision D20.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResource {
    /// URI of the resource.
    pub uri: String,
    /// Only these bytes of it.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "object"
    )]
    pub range: Option<ByteRange>,
    /// Not if it still has this entity tag.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub if_none_match: Option<String>,
    /// Answers to the server's questions, if this repeats a request.
    #[serde(skip)]
    pub retry: InputRetry,
}

/// Some bytes of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// The first byte, from 0.
    pub offset: u64,
    /// Number of bytes; without it, the rest.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub length: Option<u64>,
}

/// Content of a resource.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadResourceResult {
    /// Contents. Empty only for a resource that has not changed (decision D20).
    pub contents: Vec<ResourceContents>,
    /// More about it.
    pub meta: ResultMeta,
    /// Time for which the client may keep it.
    pub cache: CacheHint,
}
