//! Source of the configuration of a running server, and requests to read it again.

use std::sync::{Mutex, PoisonError};

use config::{Loaded, Reference, Source};
use tokio::sync::watch;

/// Source of the configuration, and requests to read it again.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) source: Source,
    pub(super) at_start: Loaded,
    /// References in force, with the keys whose values they stand in.
    references: Mutex<Vec<(String, Reference)>>,
    /// Number of requests.
    asked: watch::Sender<u64>,
    /// The last request that was met, and why the file is not in force if it is not.
    met: watch::Sender<(u64, Option<String>)>,
}

impl Reading {
    pub(super) fn new(source: Source, at_start: Loaded) -> Self {
        Self {
            source,
            references: Mutex::new(references(&at_start)),
            at_start,
            asked: watch::Sender::new(0),
            met: watch::Sender::new((0, None)),
        }
    }

    /// Notes that this configuration is in force now.
    pub(super) fn is_in_force(&self, loaded: &Loaded) {
        let mut known = self
            .references
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *known = references(loaded);
    }

    /// References in force.
    pub(super) fn references(&self) -> Vec<(String, Reference)> {
        let known = self.references.lock();
        known.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Requests to read the file again.
    pub(super) fn requests(&self) -> watch::Receiver<u64> {
        self.asked.subscribe()
    }

    /// Tells whoever asked what came of it.
    pub(super) fn meet(&self, request: u64, outcome: Result<(), String>) {
        self.met.send_replace((request, outcome.err()));
    }

    /// Asks for it, and waits until it is met.
    pub(super) async fn again(&self) -> Result<(), String> {
        let mut met = self.met.subscribe();
        let mut request = 0;
        self.asked.send_modify(|number| {
            *number += 1;
            request = *number;
        });
        let met = met.wait_for(|(number, _)| request <= *number).await;
        match met.ok().and_then(|it| it.1.clone()) {
            Some(why) => Err(why),
            None => Ok(()),
        }
    }
}

fn references(loaded: &Loaded) -> Vec<(String, Reference)> {
    let all = loaded.references();
    all.map(|(key, it)| (key.to_owned(), it.clone())).collect()
}
