//! Resources of upstreams, and reading them.

use super::by_uri::ByUri;
use crate::{
    catalogue::{Catalogue, Digest, is_page},
    names::is_plain,
    text::without_ours,
    upstream::{Upstream, call::Item},
};
use adapter_tools::{ToolCx, ToolError};
use futures_util::future::BoxFuture;
use mcp_protocol::{
    client::Answer,
    model::{
        self, CacheHint, ClientRequest, ListResources, ReadResource, ReadResourceResult, Resource,
        ResourceTemplate,
    },
};
use mcp_server::{ReadFailure, ResourceEntry, Resources, UNHEARD, UPSTREAM_META};
use serde_json::json;
use std::{collections::HashSet, sync::Arc};

/// Resources of all upstreams at one time.
#[derive(Debug, Default)]
pub(super) struct UpstreamResources {
    entries: Vec<ResourceEntry>,
    templates: Vec<ResourceTemplate>,
    pub(super) upstreams: ByUri,
    /// Keys of the upstreams that tell of changes of single resources.
    telling: HashSet<String>,
    /// Upstreams with apps, whose pages name resources as their server does.
    with_apps: Vec<(Arc<Upstream>, Arc<Catalogue>)>,
}

impl UpstreamResources {
    pub(super) fn add(&mut self, upstream: Arc<Upstream>, known: Arc<Catalogue>) {
        let origin = json!({ "name": upstream.spec.name });
        let mut seen = HashSet::new();
        for resource in &known.resources {
            let uri = upstream.offered_uri(&resource.uri);
            let is_uri = !uri.contains(|it: char| it.is_control() || it.is_whitespace());
            if !is_uri || !upstream.spec.offers(&resource.uri) || !seen.insert(uri.clone()) {
                continue;
            }
            let governed_by = governed_by(&upstream, &resource.uri, &uri);
            let mut resource = Resource {
                uri,
                ..resource.clone()
            };
            without_ours(&mut resource.meta);
            resource.meta.insert(UPSTREAM_META, &origin);
            self.entries.push(ResourceEntry {
                resource,
                governed_by,
                ..ResourceEntry::default()
            });
        }
        let templates = known.templates.iter();
        for template in templates.filter(|it| upstream.spec.offers(&it.uri_template)) {
            let mut template = template.clone();
            template.uri_template = upstream.offered_uri(&template.uri_template);
            without_ours(&mut template.meta);
            template.meta.insert(UPSTREAM_META, &origin);
            self.templates.push(template);
        }
        if known.offer.resources.is_some_and(|it| it.subscribe) {
            self.telling.insert(upstream.scheme_key.clone());
        }
        if known.has_apps() {
            self.with_apps.push((Arc::clone(&upstream), known));
        }
        self.upstreams.add(upstream);
    }

    fn origin(&self, uri: &str) -> Option<(&Arc<Upstream>, String)> {
        self.upstreams.origin(uri)
    }
}

impl Resources for UpstreamResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        if filter.category.is_some() || filter.tag.is_some() {
            return Ok(Vec::new());
        }
        let entries = self.entries.iter().enumerate();
        let fits = |uri: &str| {
            filter
                .uri
                .as_ref()
                .is_none_or(|it| crate::spec::fits(it, uri))
        };
        Ok(entries
            .filter(|(_, it)| fits(&it.resource.uri))
            .map(|(at, _)| at)
            .collect())
    }

    /// A URI of an upstream, listed or not, since the upstream knows what exists. One that is not listed must be
    /// spelled plainly: a rule about a resource must not be passed by another spelling of its URI.
    fn canonical(&self, uri: &str) -> Option<String> {
        let (upstream, original) = self.origin(uri)?;
        let is_listed = || self.entries.iter().any(|it| it.resource.uri == uri);
        let is_offered = upstream.spec.offers(&original) && (is_plain(&original) || is_listed());
        is_offered.then(|| uri.to_owned())
    }

    fn governed_by(&self, uri: &str) -> Option<String> {
        let uri = self.canonical(uri)?;
        let (upstream, original) = self.origin(&uri)?;
        Some(governed_by(upstream, &original, &uri).unwrap_or(uri))
    }

    /// Digest of what is pinned of the page of an app.
    fn definition(&self, uri: &str) -> Option<Digest> {
        let (upstream, original) = self.origin(uri)?;
        is_page(&original)
            .then(|| upstream.pin_of_page(&original))
            .flatten()
    }

    fn meant_by_pages(&self, uri: &str) -> Vec<String> {
        let with_apps = self.with_apps.iter();
        with_apps
            .filter(|(_, known)| known.lists_resource(uri))
            .map(|(upstream, _)| upstream.offered_uri(uri))
            .filter(|it| self.canonical(it).is_some())
            .collect()
    }

    fn tells_of_changes(&self, uri: &str) -> bool {
        let uri = self.canonical(uri);
        let origin = uri.as_deref().and_then(|uri| self.origin(uri));
        origin.is_some_and(|(upstream, _)| self.telling.contains(&upstream.scheme_key))
    }

    fn hear<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            match self.origin(uri) {
                Some((upstream, original)) if self.tells_of_changes(uri) => {
                    upstream.hear(&original).await
                }
                _ => Err(UNHEARD.to_owned()),
            }
        })
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        self.read_for(ToolCx::new("", ""), read)
    }

    fn read_for(
        self: Arc<Self>,
        cx: ToolCx,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            let (upstream, uri) = self.origin(&read.uri).ok_or(ReadFailure::NotFound)?;
            let item = Item {
                upstream,
                name: &uri,
                kind: "resource",
            };
            let request = ClientRequest::ReadResource(ReadResource {
                uri: uri.clone(),
                // Extensions of ours, which an upstream does not know.
                range: None,
                if_none_match: None,
                retry: model::InputRetry::default(),
            });
            match item.ask(&cx, request).await {
                Ok(Answer::ReadResource(mut result)) => {
                    if uri.starts_with("ui://")
                        && let Err(why) = upstream.judge_page(&uri, &result.contents)
                    {
                        return Err(ReadFailure::Held(why));
                    }
                    for contents in &mut result.contents {
                        contents.uri = upstream.offered_uri(&contents.uri);
                        upstream.offer_ui(&mut contents.meta);
                    }
                    // What one client may read, a cache must not show to another.
                    result.cache = CacheHint {
                        ttl_ms: result.cache.ttl_ms,
                        ..CacheHint::NONE
                    };
                    Ok(result)
                }
                Ok(_) => Err(ReadFailure::Unreadable(
                    item.lost("a read was answered with something else", "")
                        .into(),
                )),
                Err(ToolError::NeedsInput(needed)) => Err(ReadFailure::NeedsInput(needed)),
                Err(ToolError::Held(why)) => Err(ReadFailure::Held(why)),
                Err(error) if is_not_found(&error) => Err(ReadFailure::NotFound),
                // The upstream's own words, which were meant for its client.
                Err(ToolError::Failed(failure)) => Err(ReadFailure::Told(failure.message)),
                Err(error @ (ToolError::TimedOut | ToolError::Unavailable { .. })) => {
                    Err(ReadFailure::Handler(error))
                }
                Err(error) => Err(ReadFailure::Unreadable(error.into())),
            }
        })
    }
}

/// Address by which rules know a resource, if it is not the one that it is offered under: pages of apps keep the scheme
/// `ui`, and rules about an upstream's resources hold for them, too.
fn governed_by(upstream: &Upstream, original: &str, offered: &str) -> Option<String> {
    let is_rewritten = offered.starts_with("ui://") && offered != original;
    is_rewritten.then(|| format!("mcp.{}+{original}", upstream.scheme_key))
}

/// True if an upstream says that there is no such resource: -32002, or -32602 in the modern revision.
fn is_not_found(error: &ToolError) -> bool {
    match error {
        ToolError::Rejected(_) => true,
        ToolError::Failed(failure) => {
            let code = failure
                .details
                .as_ref()
                .and_then(|it| it.get("code")?.as_i64());
            code == Some(-32002)
        }
        _ => false,
    }
}
