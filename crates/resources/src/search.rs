//! Search over all resources that a caller may read.

mod index;
mod indexer;
mod tool;
mod words;

use std::{
    collections::hash_map::DefaultHasher,
    hash::{Hash, Hasher},
    path::Path,
    sync::Arc,
};

use adapter_skills::SkillCatalog;
use futures_util::future::{BoxFuture, ready};
use mcp_server::{ComponentState, ResourceEntry, SourceTools, ToolSource};

use self::{
    index::{Document, Index, Kind},
    indexer::Indexer,
};
use crate::{files::Files, store::StoreError};

/// Name of the component of `/health` for searches.
pub const SEARCH_COMPONENT: &str = "search";

/// Searches cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The file with the index cannot be opened.
    #[error("resources.search.path")]
    Index(#[source] StoreError),
    /// The system has no thread left.
    #[error("the thread of the index cannot be started")]
    Thread(#[source] std::io::Error),
}

/// An index of all resources, and the tool that searches it.
///
/// The index is a file, which survives restarts: what has not changed meanwhile is not read again. It follows files and
/// skills by itself; other resources are known by what lists say of them ([`Search::offered`]).
#[derive(Debug)]
pub struct Search {
    indexer: Arc<Indexer>,
}

impl Search {
    /// Opens the index at `path`, or makes it, and begins to bring it up to date with `files`. Once for one `files`.
    ///
    /// # Errors
    ///
    /// [`SearchError`].
    pub fn open(path: &Path, files: Option<&Files>) -> Result<Self, SearchError> {
        let index = Index::open(path).map_err(SearchError::Index)?;
        let folders = files.map(Files::folders).unwrap_or_default();
        let indexer = Indexer::start(index, folders).map_err(SearchError::Thread)?;
        if let Some(files) = files {
            files.tell_also(Arc::clone(&indexer) as _);
        }
        Ok(Self { indexer })
    }

    /// Takes what is listed of resources that are neither files nor skills into the index, in place of what was listed
    /// before.
    pub fn offered(&self, entries: &[ResourceEntry]) {
        let is_other = |it: &&ResourceEntry| {
            let uri = &it.resource.uri;
            // What is governed under another address is found there.
            it.governed_by.is_none()
                && !uri.starts_with(crate::SCHEME)
                && !uri.starts_with("skill://")
        };
        let others = entries.iter().filter(is_other);
        self.indexer.has_others(others.map(document).collect());
    }

    /// Tests if all changes that are known are in the index.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.indexer.is_current()
    }

    /// Number of documents in the index.
    ///
    /// # Errors
    ///
    /// What the database says.
    pub fn count(&self) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.indexer.index.len()?)
    }
}

fn document(entry: &ResourceEntry) -> Document {
    let resource = &entry.resource;
    let mut hasher = DefaultHasher::new();
    let listed = (
        &resource.name,
        &resource.title,
        &resource.description,
        &resource.mime_type,
    );
    (listed, &entry.category, &entry.tags, &entry.etag).hash(&mut hasher);
    Document {
        uri: resource.uri.clone(),
        kind: Kind::Other,
        state: format!("{:x}", hasher.finish()),
        name: resource.name.clone(),
        title: resource.title.clone(),
        description: resource.description.clone(),
        body: String::new(),
        media_type: resource.mime_type.clone(),
        category: entry.category.clone(),
        tags: entry.tags.clone(),
        size: resource.size,
        modified: resource.last_modified.clone(),
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        self.indexer.end();
    }
}

impl ToolSource for Search {
    fn tools(&self, skills: &SkillCatalog) -> SourceTools {
        self.indexer.has_skills(skills.iter().cloned().collect());
        vec![tool::tool(&self.indexer)].into()
    }

    fn health(&self) -> Option<ComponentState> {
        let failure = self.indexer.failure();
        Some(ComponentState {
            name: SEARCH_COMPONENT,
            ok: failure.is_none(),
            detail: failure.map(|it| format!("what has changed cannot be found: {it}")),
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.indexer.end();
        Box::pin(ready(()))
    }
}
