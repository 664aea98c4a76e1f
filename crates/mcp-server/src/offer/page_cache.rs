//! Pages of lists, kept as bytes.

use governance::ViewId;
use jsonrpc_core::RawJson;
use mcp_protocol::ProtocolVersion;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Pages of lists as bytes, made once for all clients that see the same (R4.10, R6.9).
#[derive(Debug, Default)]
pub(crate) struct PageCache(Mutex<HashMap<Key, RawJson>>);

/// The most pages kept. Views and revisions are few; cursors are limited by what is listed, but a
/// policy may have many views.
const MAX_PAGES: usize = 1_024;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) list: List,
    pub(crate) policy_version: u64,
    pub(crate) view: ViewId,
    pub(crate) version: ProtocolVersion,
    pub(crate) cursor: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum List {
    /// Tools, with those that are for pages of apps alone or without.
    Tools {
        with_pages: bool,
    },
    /// The tools of the search view, likewise.
    Search {
        with_pages: bool,
    },
    Resources,
    Templates,
    Prompts,
    Skills,
}

impl PageCache {
    pub(crate) fn get(&self, key: &Key) -> Option<RawJson> {
        self.lock().get(key).cloned()
    }

    pub(crate) fn put(&self, key: Key, page: RawJson) {
        let mut pages = self.lock();
        if MAX_PAGES <= pages.len() {
            pages.clear();
        }
        pages.insert(key, page);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, RawJson>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
