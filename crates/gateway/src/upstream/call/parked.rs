//! Calls that wait for answers of their clients.

use super::{Flight, PATIENCE};
use crate::upstream::{desk::Asked, has_room};
use data_encoding::HEXLOWER;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

/// Most calls of one upstream that wait for answers.
const MAX_PARKED: usize = 1024;

/// A call that waits for answers of its client.
pub(super) struct Waiting<F = Flight> {
    pub(super) flight: F,
    pub(super) asked: Vec<(String, Asked)>,
    pub(super) since: Instant,
    pub(super) principal: Arc<str>,
}

/// Calls that wait for answers of their clients, by a name that is hard to guess.
pub(crate) struct Parked<F = Flight>(Mutex<HashMap<String, Waiting<F>>>);

impl<F> Default for Parked<F> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<F> Parked<F> {
    pub(super) fn put(&self, waiting: Waiting<F>) -> Option<String> {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|_, it| it.since.elapsed() < PATIENCE);
        let own = parked
            .values()
            .filter(|it| it.principal == waiting.principal);
        if !has_room(MAX_PARKED, parked.len(), own.count()) {
            return None;
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).ok()?;
        let id = HEXLOWER.encode(&bytes);
        parked.insert(id.clone(), waiting);
        Some(id)
    }

    pub(super) fn take(&self, id: &str) -> Option<Waiting<F>> {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.remove(id)
    }

    /// Gives up calls whose clients have not answered.
    pub(crate) fn sweep(&self) {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parked.retain(|_, it| it.since.elapsed() < PATIENCE);
    }

    pub(crate) fn clear(&self) {
        let mut parked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let gone = std::mem::take(&mut *parked);
        drop(parked);
        drop(gone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_one_client_that_wait_leave_room_for_those_of_others() {
        let parked = Parked::default();
        let put = |principal: &str| {
            parked.put(Waiting {
                flight: (),
                asked: Vec::new(),
                since: Instant::now(),
                principal: principal.into(),
            })
        };
        let first = put("greedy").unwrap();
        let more = (0..MAX_PARKED).filter(|_| put("greedy").is_some()).count();
        assert_eq!(more + 1, MAX_PARKED / 2);
        assert!((0..MAX_PARKED / 8).all(|_| put("modest").is_some()));
        assert!(put("greedy").is_none());
        assert!(parked.take(&first).is_some());
        assert!(put("third").is_some());
    }
}
