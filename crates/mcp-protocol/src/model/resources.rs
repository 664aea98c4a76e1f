use super::{CacheHint, InputRetry, ResourceContents, ResultMeta, present};
use serde::Deserialize;

/// A resource as clients see it.
#[derive(Clone, Debug, Default)]
pub struct Resource {
    /// Where it can be read.
    pub uri: String,
    /// What it is called.
    pub name: String,
    /// Its name for people; since 2025-06-18.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// What kind of content it has.
    pub mime_type: Option<String>,
    /// How many bytes it has.
    pub size: Option<u64>,
    /// When it last changed, as RFC 3339; in `annotations` since 2025-06-18.
    pub last_modified: Option<String>,
    /// More about it.
    pub meta: ResultMeta,
}

/// A family of resources as clients see it.
#[derive(Clone, Debug, Default)]
pub struct ResourceTemplate {
    /// RFC 6570.
    pub uri_template: String,
    /// What it is called.
    pub name: String,
    /// Its name for people; since 2025-06-18.
    pub title: Option<String>,
    /// What it is about.
    pub description: Option<String>,
    /// What kind of content its resources have, if all have the same.
    pub mime_type: Option<String>,
}

/// `resources/list`, with the filters of decision D19.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ListResources {
    /// Where to go on; opaque.
    #[serde(deserialize_with = "present")]
    pub cursor: Option<String>,
    /// Only resources of this category.
    #[serde(deserialize_with = "present")]
    pub category: Option<String>,
    /// Only resources with this tag.
    #[serde(deserialize_with = "present")]
    pub tag: Option<String>,
    /// Only resources whose URI fits this pattern, such as `skill://ecommerce/*`.
    #[serde(deserialize_with = "present")]
    pub uri: Option<String>,
}

/// One page of resources.
#[derive(Clone, Debug, Default)]
pub struct ListResourcesResult {
    /// The page, in an order that only depends on who asks.
    pub resources: Vec<Resource>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How long the client may keep it.
    pub cache: CacheHint,
}

/// One page of families of resources.
#[derive(Clone, Debug, Default)]
pub struct ListResourceTemplatesResult {
    /// The page, in an order that only depends on who asks.
    pub resource_templates: Vec<ResourceTemplate>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
    /// How long the client may keep it.
    pub cache: CacheHint,
}

/// `resources/read`, with the additions of decision D20.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResource {
    /// Which.
    pub uri: String,
    /// Only these bytes of it.
    #[serde(default, deserialize_with = "present")]
    pub range: Option<ByteRange>,
    /// Not if it still has this entity tag.
    #[serde(default, deserialize_with = "present")]
    pub if_none_match: Option<String>,
    /// What the client was asked before, if it was.
    #[serde(skip)]
    pub retry: InputRetry,
}

/// Some bytes of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByteRange {
    /// The first byte, from 0.
    pub offset: u64,
    /// How many; without it, the rest.
    #[serde(default, deserialize_with = "present")]
    pub length: Option<u64>,
}

/// What a resource holds.
#[derive(Clone, Debug, Default)]
pub struct ReadResourceResult {
    /// Its contents. Empty only for a resource that has not changed (decision D20).
    pub contents: Vec<ResourceContents>,
    /// More about it.
    pub meta: ResultMeta,
    /// How long the client may keep it.
    pub cache: CacheHint,
}
