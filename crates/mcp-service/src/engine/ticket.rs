//! Place of a request among those that are handled.

use super::{Engine, kept};
use crate::{fair_share::Slot, principal::Principal};
use std::sync::{Arc, atomic::Ordering};

/// One of the places for requests that run or wait.
pub(super) struct Ticket<S> {
    engine: Arc<Engine<S>>,
    /// Held for as long as the place.
    kept_slot: Option<Slot>,
}

impl<S> Ticket<S> {
    /// Takes a place for a request of `principal`. The last places are reserved for principals that
    /// have few, and only then the places of each are counted.
    pub(super) fn take(engine: &Arc<Engine<S>>, principal: &Principal) -> Option<Self> {
        let limits = &engine.limits;
        let most = limits.max_in_flight + limits.max_waiting;
        let before = engine.accepted.fetch_add(1, Ordering::Relaxed);
        let mut place = Self {
            engine: Arc::clone(engine),
            kept_slot: None,
        };
        if before < most - kept(limits.max_waiting) {
            return Some(place);
        }
        // As many as the places that are left, so one that gets a slot has a place.
        place.kept_slot = Some(engine.reserved_waiting.take(principal)?);
        Some(place)
    }
}

impl<S> Drop for Ticket<S> {
    fn drop(&mut self) {
        self.engine.accepted.fetch_sub(1, Ordering::Relaxed);
    }
}
