//! Resources on offer.

use crate::{clock::rfc3339, offer::skills::SkillIndex};
use adapter_skills::{Content, ReadError, Skill, SkillCatalog, SkillFilter, SkillPattern};
use adapter_tools::{Needed, ToolCx, ToolError};
use futures_util::future::BoxFuture;
use ledger::Digest;
use mcp_protocol::model::{
    CacheHint, CacheScope, ListResources, ReadResource, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, ResultMeta,
};
use serde_json::json;
use std::{borrow::Cow, collections::HashMap, fmt, ops::Range, sync::Arc, time::Duration};

/// Template of the URIs of skills.
pub(crate) const SKILL_TEMPLATE: &str = "skill://{+category}/{name}";

/// Resources on offer at one time. A change of them is another value.
pub trait Resources: fmt::Debug + Send + Sync {
    /// All that are listed, in a fixed order.
    fn entries(&self) -> &[ResourceEntry];

    /// Families of resources.
    fn templates(&self) -> &[ResourceTemplate] {
        &[]
    }

    /// Indices of the entries that a filter lets through, in their order.
    ///
    /// # Errors
    ///
    /// The mistake in the filter, for its sender.
    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String>;

    /// The one name of what is at `uri`, however that is spelled; `None` if there is nothing. Not
    /// everything that can be read is listed.
    fn canonical(&self, uri: &str) -> Option<String>;

    /// The URI whose permission is needed for what is at `uri`; `None` if there is nothing. It is
    /// what policies and the ledger know it by: for most resources their one name, and for a file of
    /// a skill the skill's.
    fn governed_by(&self, uri: &str) -> Option<String> {
        self.canonical(uri)
    }

    /// A digest of the definition by which an operator has approved what is at `uri`, for the record of each read; `None` if
    /// there is none.
    fn definition(&self, _uri: &str) -> Option<Digest> {
        None
    }

    /// URIs of what the page of an app may mean by `uri`, which is none of the offer: a page has the URIs of its own
    /// server in its text.
    fn meant_by_pages(&self, _uri: &str) -> Vec<String> {
        Vec::new()
    }

    /// True if a change of what is at `uri` is told to those who listen to it. A subscription to
    /// another resource is refused (before 2026-07-28), or left out of what is acknowledged.
    fn tells_of_changes(&self, _uri: &str) -> bool {
        true
    }

    /// Answer to one who wants to listen to what it is not to know of, whether anything is there or not: the one for what may
    /// come.
    ///
    /// # Errors
    ///
    /// The reason why changes are not heard of, as [`hear`](Self::hear) gives it.
    fn hear_absent(&self, uri: &str) -> Result<(), String> {
        match self.tells_of_changes(uri) {
            true => Ok(()),
            false => Err(UNHEARD.to_owned()),
        }
    }

    /// The URI that a client must be able to see for a subscription to `uri` to be answered alike, whether there is
    /// anything at `uri` or not. `None` where a subscription to what is not there is refused.
    fn family(&self, _uri: &str) -> Option<String> {
        None
    }

    /// Makes sure that changes of what is at `uri` are heard of, before somebody is told that it is listened to.
    ///
    /// # Errors
    ///
    /// The reason why they are not, for the one who wants to listen.
    fn hear<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), String>> {
        let heard = match self.tells_of_changes(uri) {
            true => Ok(()),
            false => Err(UNHEARD.to_owned()),
        };
        Box::pin(std::future::ready(heard))
    }

    /// True if a read of what is at `uri` may read other resources, on behalf of its caller.
    fn takes_context(&self, _uri: &str) -> bool {
        false
    }

    /// The skills among them, if they are of a kind that has any; clients are told whether it is.
    fn skills(&self) -> Option<&SkillIndex> {
        None
    }

    /// Reads what is at a URI.
    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>>;

    /// The same for resources that depend on the call: on its caller, its deadline, or on answers of the client.
    fn read_for(
        self: Arc<Self>,
        _cx: ToolCx,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        self.read(read)
    }
}

/// Reason for refusing a subscription to a resource whose changes are not told of.
pub const UNHEARD: &str = "the server is not told of changes of this resource; read it again";

/// One listed resource.
#[derive(Clone, Debug, Default)]
pub struct ResourceEntry {
    /// The entry as clients see it.
    pub resource: Resource,
    /// The URI whose permission is needed, unless it is its own.
    pub governed_by: Option<String>,
    /// For filters.
    pub category: String,
    /// For filters.
    pub tags: Vec<String>,
    /// Changes whenever the content does; empty if it is unknown.
    pub etag: String,
}

/// Reason why a resource was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadFailure {
    /// No resource at the URI, or not any more.
    #[error("there is no such resource")]
    NotFound,
    /// The bytes asked for are not there.
    #[error("{0}")]
    Range(String),
    /// Values in the address that are missing, unknown or not taken.
    #[error("{0}")]
    Values(String),
    /// Answers of the client are needed.
    #[error("the resource needs input")]
    NeedsInput(Needed),
    /// The resource is held back, as was found out when it was read. The reason is for operators.
    #[error("the resource is held back: {0}")]
    Held(String),
    /// The resource cannot be read, for a reason that its handler tells the client.
    #[error("{0}")]
    Told(String),
    /// The handler was late, too busy or lost, as it can be for a tool.
    #[error(transparent)]
    Handler(ToolError),
    /// Reading took longer than this, which is less than a call may take.
    #[error("reading took longer than {} s", .0.as_secs_f64())]
    TimedOut(Duration),
    /// The resource cannot be read, which no client can help.
    #[error("the resource cannot be read")]
    Unreadable(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Source without resources.
#[derive(Clone, Copy, Debug)]
pub struct NoResources;

impl Resources for NoResources {
    fn entries(&self) -> &[ResourceEntry] {
        &[]
    }

    fn matching(&self, _: &ListResources) -> Result<Vec<usize>, String> {
        Ok(Vec::new())
    }

    fn canonical(&self, _: &str) -> Option<String> {
        None
    }

    fn read(
        self: Arc<Self>,
        _: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(std::future::ready(Err(ReadFailure::NotFound)))
    }
}

/// The `SKILL.md` documents of a catalogue, and the files beside them. A file can be read by
/// clients that may read its skill, and is recorded under the skill's URI.
#[derive(Debug)]
pub struct SkillResources {
    catalog: Arc<SkillCatalog>,
    entries: Vec<ResourceEntry>,
    /// Entries of each skill of the catalogue, by its place in it.
    of_skill: Vec<Range<usize>>,
    templates: Vec<ResourceTemplate>,
    skills: SkillIndex,
    cache: CacheHint,
}

impl SkillResources {
    /// The skills of `catalog`, which clients may keep for `ttl_ms`.
    pub fn new(catalog: Arc<SkillCatalog>, ttl_ms: u64) -> Self {
        let entries: Vec<_> = catalog.iter().map(entry).collect();
        let template = ResourceTemplate {
            uri_template: SKILL_TEMPLATE.to_owned(),
            name: "skill".to_owned(),
            title: Some("Skill".to_owned()),
            description: Some(
                "A SKILL.md document: knowledge about how to do something.".to_owned(),
            ),
            mime_type: Some("text/markdown".to_owned()),
            ..ResourceTemplate::default()
        };
        Self {
            skills: SkillIndex::new(&catalog),
            catalog,
            of_skill: (0..entries.len()).map(|index| index..index + 1).collect(),
            entries,
            templates: vec![template],
            cache: CacheHint {
                ttl_ms,
                scope: CacheScope::Private,
            },
        }
    }

    /// Lists each `SKILL.md` once more, under the URI that hosts of skills know it by (Skills
    /// extension): for clients that look there for skills instead of asking for them. Others see
    /// every skill twice. Those that hosts of skills are not told of are not listed again.
    #[must_use]
    pub fn with_documents_listed(mut self) -> Self {
        self.entries.clear();
        self.of_skill.clear();
        for skill in self.catalog.iter() {
            let first = self.entries.len();
            self.entries.push(entry(skill));
            if skill.has_standard_name() {
                self.entries.push(document_entry(skill));
            }
            self.of_skill.push(first..self.entries.len());
        }
        self
    }

    /// The catalogue.
    pub fn catalog(&self) -> &Arc<SkillCatalog> {
        &self.catalog
    }
}

fn entry(skill: &Arc<Skill>) -> ResourceEntry {
    let mut meta = ResultMeta::default();
    let front = skill.frontmatter();
    meta.insert(
        "io.owlclaw/skill",
        &json!({
            "category": skill.category(),
            "tags": skill.tags(),
            "etag": skill.etag(),
            // Revisions before 2025-06-18 have no annotation for it.
            "lastModified": skill.last_modified().and_then(rfc3339),
            "author": front.author,
            "version": front.version,
            "industry": front.industry,
        }),
    );
    ResourceEntry {
        resource: Resource {
            uri: skill.uri().to_string(),
            name: skill.name().to_owned(),
            title: skill.title().map(str::to_owned),
            description: Some(skill.description().to_owned()),
            mime_type: Some(skill.mime_type().to_owned()),
            size: Some(skill.size()),
            last_modified: skill.last_modified().and_then(rfc3339),
            meta,
            ..Resource::default()
        },
        governed_by: None,
        category: skill.category(),
        tags: skill.tags().to_vec(),
        etag: skill.etag().to_owned(),
    }
}

/// The same document as a file of the extension: its `_meta` is not ours to fill.
fn document_entry(skill: &Arc<Skill>) -> ResourceEntry {
    let mut document = entry(skill);
    let uri = skill.document_uri().to_string();
    document.governed_by = Some(std::mem::replace(&mut document.resource.uri, uri));
    document.resource.mime_type = Some("text/markdown".to_owned());
    document.resource.meta = ResultMeta::default();
    document
}

impl Resources for SkillResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        let pattern = filter
            .uri
            .as_deref()
            .map(str::parse::<SkillPattern>)
            .transpose();
        let filter = SkillFilter {
            category: filter.category.clone(),
            tag: filter.tag.clone(),
            uri: pattern.map_err(|error| format!("`uri` is no pattern: {error}"))?,
        };
        let matching = self.catalog.iter().zip(&self.of_skill);
        Ok(matching
            .filter(|(skill, _)| filter.matches(skill))
            .flat_map(|(_, entries)| entries.clone())
            .collect())
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        let resolved = self.catalog.resolve(uri).ok()?;
        Some(resolved.uri().as_str().to_owned())
    }

    fn governed_by(&self, uri: &str) -> Option<String> {
        let resolved = self.catalog.resolve(uri).ok()?;
        Some(resolved.skill.uri().as_str().to_owned())
    }

    fn skills(&self) -> Option<&SkillIndex> {
        Some(&self.skills)
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            // Disks can be slow, network file systems even hang: not on the threads that serve.
            let reading = tokio::task::spawn_blocking(move || self.read_now(&read));
            match reading.await {
                Ok(result) => result,
                Err(error) => Err(ReadFailure::Unreadable(error.into())),
            }
        })
    }
}

impl SkillResources {
    fn read_now(&self, read: &ReadResource) -> Result<ReadResourceResult, ReadFailure> {
        let found = self
            .catalog
            .resolve(&read.uri)
            .map_err(|_| ReadFailure::NotFound)?;
        let content = found.read().map_err(|error| match error {
            ReadError::Vanished => ReadFailure::NotFound,
            error => ReadFailure::Unreadable(error.into()),
        })?;
        content_result(&content, content.mime_type, read, self.cache)
    }
}

/// Answers a read with what was read: all of it or the part asked for, as text if it is text; nothing, if the reader
/// has it already.
///
/// # Errors
///
/// [`ReadFailure::Range`], if the content has none of the bytes asked for.
pub fn content_result(
    content: &Content,
    mime_type: &str,
    read: &ReadResource,
    cache: CacheHint,
) -> Result<ReadResourceResult, ReadFailure> {
    let mut about = json!({
        "etag": content.etag,
        "size": content.size(),
        "lastModified": content.last_modified.and_then(rfc3339),
    });
    let mut meta = ResultMeta::default();
    if read
        .if_none_match
        .as_deref()
        .is_some_and(|etags| names(etags, &content.etag))
    {
        about["notModified"] = json!(true);
        meta.insert("io.owlclaw/resource", &about);
        return Ok(ReadResourceResult {
            contents: Vec::new(),
            meta,
            cache,
        });
    }
    let range = read
        .range
        .map_or_else(Default::default, |range| adapter_skills::ByteRange {
            offset: range.offset,
            length: range.length,
        });
    // A part of a secret is not found by its value, and neither are bytes in Base64.
    let has_whole_text = content.is_text && read.range.is_none();
    let clean = match redaction::without_known_bytes(&content.bytes) {
        Cow::Owned(bytes) if !has_whole_text => Some(Content {
            etag: content.etag.clone(),
            bytes,
            ..*content
        }),
        _ => None,
    };
    let part = clean
        .as_ref()
        .unwrap_or(content)
        .part(range)
        .map_err(|error| ReadFailure::Range(error.to_string()))?;
    if read.range.is_some() {
        about["range"] =
            json!({ "offset": part.offset, "length": part.bytes.len(), "size": part.size });
    }
    meta.insert("io.owlclaw/resource", &about);
    let text = part
        .is_text
        .then(|| std::str::from_utf8(part.bytes).ok().map(str::to_owned))
        .flatten();
    let blob = text.is_none().then(|| base64(part.bytes));
    Ok(ReadResourceResult {
        contents: vec![ResourceContents {
            uri: read.uri.clone(),
            mime_type: Some(mime_type.to_owned()),
            text,
            blob,
            meta: None,
        }],
        meta,
        cache,
    })
}

/// True if an `If-None-Match` names this entity tag (RFC 9110, 13.1.2), quoted or not.
pub(crate) fn names(etags: &str, etag: &str) -> bool {
    etags.split(',').any(|candidate| {
        let candidate = candidate.trim();
        let candidate = candidate.strip_prefix("W/").unwrap_or(candidate);
        candidate == "*" || candidate.trim_matches('"') == etag
    })
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

/// Resources that are made of what a program holds, for servers written in Rust.
#[derive(Default)]
pub struct StaticResources {
    entries: Vec<ResourceEntry>,
    templates: Vec<ResourceTemplate>,
    contents: HashMap<String, ResourceContents>,
    by_template: Vec<TemplateReader>,
    cache: CacheHint,
}

type TemplateReader = Box<dyn Fn(&str) -> Option<ResourceContents> + Send + Sync>;

impl StaticResources {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource that is text.
    #[must_use]
    pub fn text(self, uri: &str, name: &str, mime_type: &str, text: impl Into<String>) -> Self {
        let text = text.into();
        self.add(uri, name, mime_type, text.len(), Some(text), None)
    }

    /// Adds a resource that is bytes.
    #[must_use]
    pub fn bytes(self, uri: &str, name: &str, mime_type: &str, bytes: &[u8]) -> Self {
        self.add(uri, name, mime_type, bytes.len(), None, Some(base64(bytes)))
    }

    /// Adds a family of resources: `read` makes the contents of a URI, or says that it is none of
    /// them.
    #[must_use]
    pub fn template(
        mut self,
        template: ResourceTemplate,
        read: impl Fn(&str) -> Option<ResourceContents> + Send + Sync + 'static,
    ) -> Self {
        self.templates.push(template);
        self.by_template.push(Box::new(read));
        self
    }

    fn add(
        mut self,
        uri: &str,
        name: &str,
        mime_type: &str,
        size: usize,
        text: Option<String>,
        blob: Option<String>,
    ) -> Self {
        self.entries.push(ResourceEntry {
            resource: Resource {
                uri: uri.to_owned(),
                name: name.to_owned(),
                description: Some(format!("{name} ({mime_type})")),
                mime_type: Some(mime_type.to_owned()),
                size: Some(size as u64),
                ..Resource::default()
            },
            ..ResourceEntry::default()
        });
        let contents = ResourceContents {
            uri: uri.to_owned(),
            mime_type: Some(mime_type.to_owned()),
            text,
            blob,
            meta: None,
        };
        self.contents.insert(uri.to_owned(), contents);
        self
    }

    fn contents(&self, uri: &str) -> Option<ResourceContents> {
        self.contents
            .get(uri)
            .cloned()
            .or_else(|| self.by_template.iter().find_map(|read| read(uri)))
    }
}

impl fmt::Debug for StaticResources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticResources")
            .field("entries", &self.entries.len())
            .field("templates", &self.templates.len())
            .finish_non_exhaustive()
    }
}

impl Resources for StaticResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        let fits = |pattern: &str, uri: &str| match pattern.strip_suffix('*') {
            Some(prefix) => uri.starts_with(prefix),
            None => uri == pattern,
        };
        let entries = self.entries.iter().enumerate();
        Ok(entries
            .filter(|(_, it)| {
                filter
                    .category
                    .as_ref()
                    .is_none_or(|category| *category == it.category)
            })
            .filter(|(_, it)| filter.tag.as_ref().is_none_or(|tag| it.tags.contains(tag)))
            .filter(|(_, it)| {
                filter
                    .uri
                    .as_ref()
                    .is_none_or(|pattern| fits(pattern, &it.resource.uri))
            })
            .map(|(index, _)| index)
            .collect())
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        self.contents(uri).map(|contents| contents.uri)
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        let contents = self.contents(&read.uri).ok_or(ReadFailure::NotFound);
        Box::pin(std::future::ready(contents.map(|contents| {
            ReadResourceResult {
                contents: vec![contents],
                meta: ResultMeta::default(),
                cache: self.cache,
            }
        })))
    }
}
