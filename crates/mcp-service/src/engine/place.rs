use super::Engine;
use std::sync::{Arc, atomic::Ordering};

/// One of the places for requests that run or wait.
pub(super) struct Place<S>(Arc<Engine<S>>);

impl<S> Place<S> {
    pub(super) fn take(engine: &Arc<Engine<S>>) -> Option<Self> {
        let most = engine.limits.max_in_flight + engine.limits.max_waiting;
        let before = engine.accepted.fetch_add(1, Ordering::Relaxed);
        let place = Self(Arc::clone(engine));
        (before < most).then_some(place)
    }
}

impl<S> Drop for Place<S> {
    fn drop(&mut self) {
        self.0.accepted.fetch_sub(1, Ordering::Relaxed);
    }
}
