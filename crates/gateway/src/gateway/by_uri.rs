//! Upstreams by the URIs under which their resources are offered.

use crate::{Uris, names::original_uri, upstream::Upstream};
use std::{collections::HashMap, sync::Arc};

/// Upstreams, to be found by URIs of theirs.
#[derive(Debug, Default)]
pub(super) struct ByUri {
    pub(super) by_key: HashMap<String, Arc<Upstream>>,
    /// The upstream whose URIs are as they are.
    rest: Option<Arc<Upstream>>,
}

impl ByUri {
    pub(super) fn add(&mut self, upstream: Arc<Upstream>) {
        if upstream.spec.uris == Uris::AsIs {
            self.rest = Some(Arc::clone(&upstream));
        }
        self.by_key.insert(upstream.scheme_key.clone(), upstream);
    }

    /// The upstream and the URI there of what is offered as `uri`.
    pub(super) fn origin(&self, uri: &str) -> Option<(&Arc<Upstream>, String)> {
        let Some((key, original)) = original_uri(uri) else {
            return Some((self.rest.as_ref()?, uri.to_owned()));
        };
        let upstream = self.by_key.get(key)?;
        // A resource has one spelling.
        let is_prefixed = upstream.spec.uris == Uris::Prefixed;
        (is_prefixed || upstream.offered_uri(&original) == uri).then_some((upstream, original))
    }
}
