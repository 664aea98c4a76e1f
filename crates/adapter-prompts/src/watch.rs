//! A catalogue that follows its directory.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use documents::{Follow, Listing, WatchError, WatchGuard, WatchOptions};
use tokio::sync::watch;
use tracing::warn;

use crate::catalog::{PromptCatalog, PromptOptions};

/// The prompts of a directory that is watched, until this is dropped.
#[derive(Debug)]
pub struct PromptWatch {
    present: Arc<Mutex<Arc<PromptCatalog>>>,
    changes: watch::Receiver<u64>,
    _guard: WatchGuard,
}

impl PromptWatch {
    /// Scans a directory, and again whenever something in it changes. Blocks on the disk for the first scan.
    /// Problems are logged when they first appear.
    ///
    /// # Errors
    ///
    /// [`WatchError`]. If the system cannot announce changes, or stops to, the directory is polled.
    pub fn start(options: PromptOptions, watching: WatchOptions) -> Result<Self, WatchError> {
        let (changed, mut changes) = watch::channel(0);
        let present = Arc::default();
        let follower = Follower {
            options,
            present: Arc::clone(&present),
            changed,
            told: BTreeSet::new(),
        };
        let guard = documents::watch("prompt-watch", watching, follower)?;
        changes.mark_unchanged();
        Ok(Self {
            present,
            changes,
            _guard: guard,
        })
    }

    /// The prompts now.
    #[must_use]
    pub fn catalog(&self) -> Arc<PromptCatalog> {
        Arc::clone(&self.present.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A number that changes with the prompts.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.clone()
    }
}

struct Follower {
    options: PromptOptions,
    present: Arc<Mutex<Arc<PromptCatalog>>>,
    changed: watch::Sender<u64>,
    told: BTreeSet<String>,
}

impl Follow for Follower {
    fn root(&self) -> &Path {
        &self.options.root
    }

    fn listing(&self) -> Listing {
        self.options.listing(&mut Vec::new())
    }

    fn read(&mut self, _forgets: bool) {
        let catalog = PromptCatalog::scan(&self.options);
        let before = {
            let present = self.present.lock();
            Arc::clone(&present.unwrap_or_else(PoisonError::into_inner))
        };
        let catalog = catalog.following(&before, self.options.broken);
        let mut told = BTreeSet::new();
        for problem in catalog.problems() {
            let text = problem.to_string();
            if !self.told.contains(&text) {
                warn!(
                    problem = text,
                    hint = problem.hint,
                    "a file of prompts has a problem"
                );
            }
            told.insert(text);
        }
        self.told = told;
        changed_in_place(&before, &catalog);
        if !before.is_same(&catalog) {
            let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
            *present = Arc::new(catalog);
            drop(present);
            self.changed.send_modify(|version| *version += 1);
        }
    }
}

/// Tells of versions whose text has changed: their name no longer says what is filled in.
fn changed_in_place(before: &PromptCatalog, catalog: &PromptCatalog) {
    for entry in catalog.iter() {
        let Some(known) = before.get(entry.name()) else {
            continue;
        };
        for (version, read) in entry.versions() {
            let mut known = known.versions();
            let known = known.find(|(it, _)| *it == version).map(|(_, read)| read);
            if let (Ok(read), Some(Ok(known))) = (read, known)
                && read.digest != known.digest
                && entry.place().is_dir()
            {
                warn!(
                    prompt = entry.name(),
                    version,
                    hint = "give a changed text a version of its own",
                    "the text of a version has changed; the record tells the two by their digests"
                );
            }
        }
    }
}
