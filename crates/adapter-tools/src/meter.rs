//! The use of a call, as it is metered.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};
use tokio::sync::Notify;

/// Most notes about a call.
const MAX_NOTES: usize = 64;

/// Use of a call so far. It outlives the executor's future, so that a call that was given up is
/// settled too: keep a handle from `ToolCx::meter` before the call.
#[derive(Debug, Default)]
pub struct CallMeter {
    cost_micros: AtomicU64,
    tokens_in: AtomicU64,
    tokens_out: AtomicU64,
    metered: AtomicBool,
    cancelled: AtomicBool,
    settled: AtomicBool,
    model: OnceLock<Box<str>>,
    place: OnceLock<Box<str>>,
    cost_trace: OnceLock<Box<str>>,
    notes: Mutex<Vec<String>>,
    /// Contexts that meter with it: the call runs as long as there is one.
    uses: AtomicUsize,
    unused: Notify,
}

/// A [`CallMeter`] as a context has it, counted.
pub(crate) struct MeterUse(pub(crate) Arc<CallMeter>);

impl MeterUse {
    pub(crate) fn of(meter: Arc<CallMeter>) -> Self {
        meter.uses.fetch_add(1, Ordering::AcqRel);
        Self(meter)
    }
}

impl Clone for MeterUse {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.0))
    }
}

impl Drop for MeterUse {
    fn drop(&mut self) {
        if self.0.uses.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.unused.notify_waiters();
        }
    }
}

impl CallMeter {
    /// Adds to what the call costs, in millionths of the configured currency. Saturates. Once the call is
    /// settled nobody is charged, and a warning is logged.
    pub fn add_cost_micros(&self, micros: u64) {
        if self.settled.load(Ordering::Relaxed) {
            tracing::warn!(
                cost_micros = micros,
                "a handler reported a cost after the end of its call; no client is charged for it"
            );
        }
        self.metered.store(true, Ordering::Relaxed);
        saturating_add(&self.cost_micros, micros);
    }

    /// Adds tokens that the call's own use of a language model took.
    pub fn add_tokens(&self, tokens_in: u64, tokens_out: u64) {
        saturating_add(&self.tokens_in, tokens_in);
        saturating_add(&self.tokens_out, tokens_out);
    }

    /// Notes which language model the call itself used; the first one stays.
    pub fn note_model(&self, model: &str) {
        self.model.get_or_init(|| model.into());
    }

    /// Notes which other system carries the call out, for its record; the first one stays.
    pub fn note_place(&self, place: &str) {
        self.place.get_or_init(|| place.into());
    }

    /// Notes which trace elsewhere has the cost of the call. The first one stays; of another one, or of one that comes
    /// once the call is settled, a warning is logged.
    pub fn note_cost_trace(&self, trace: &str) {
        if self.settled.load(Ordering::Relaxed) {
            tracing::warn!(
                trace,
                "a handler reported the trace of its costs after the end of its call; it is not read"
            );
        } else if &**self.cost_trace.get_or_init(|| trace.into()) != trace {
            tracing::warn!(
                trace,
                "a call has reported two traces of its costs; the first one is read"
            );
        }
    }

    /// The trace elsewhere that has the cost of the call, if there is one.
    pub fn cost_trace(&self) -> Option<&str> {
        self.cost_trace.get().map(AsRef::as_ref)
    }

    /// Notes something about the call, for its record. At most 64 notes are kept.
    pub fn note(&self, note: String) {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < MAX_NOTES {
            notes.push(note);
        }
    }

    /// The other system that carries the call out, if one does, and what was noted about the call.
    pub fn told(&self) -> Option<String> {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let place = self.place();
        if place.is_none() && notes.is_empty() {
            return None;
        }
        let notes = notes.iter().map(String::as_str);
        Some(
            place
                .into_iter()
                .chain(notes)
                .collect::<Vec<_>>()
                .join("; "),
        )
    }

    /// Notes that the call is settled: what is metered from here on comes too late.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Cost of the call, in millionths of the configured currency; `None` if the tool has reported
    /// none, in which case the estimate is all that is known.
    pub fn cost_micros(&self) -> Option<u64> {
        let metered = self.metered.load(Ordering::Relaxed);
        metered.then(|| self.cost_micros.load(Ordering::Relaxed))
    }

    /// Takes the cost so far away, to be charged elsewhere; `None` if none was reported.
    pub fn take_cost_micros(&self) -> Option<u64> {
        let metered = self.metered.swap(false, Ordering::Relaxed);
        metered.then(|| self.cost_micros.swap(0, Ordering::Relaxed))
    }

    /// Tokens read and tokens written by language models on behalf of the call.
    pub fn tokens(&self) -> (u64, u64) {
        let tokens_in = self.tokens_in.load(Ordering::Relaxed);
        (tokens_in, self.tokens_out.load(Ordering::Relaxed))
    }

    /// The language model that the call used first.
    pub fn model(&self) -> Option<&str> {
        self.model.get().map(AsRef::as_ref)
    }

    /// The other system that carries the call out, if one does.
    pub fn place(&self) -> Option<&str> {
        self.place.get().map(AsRef::as_ref)
    }

    /// Returns true while a `ToolCx` has it: the call, or a part of it that was given up, still
    /// runs.
    pub fn is_in_use(&self) -> bool {
        0 < self.uses.load(Ordering::Acquire)
    }

    /// Resolves when no `ToolCx` has it any more, so that nothing more is metered.
    pub async fn unused(&self) {
        loop {
            let unused = self.unused.notified();
            if !self.is_in_use() {
                return;
            }
            unused.await;
        }
    }

    /// Returns true if the call was given up.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

fn saturating_add(counter: &AtomicU64, more: u64) {
    let add = |value: u64| Some(value.saturating_add(more));
    // The closure always gives a value, so this cannot fail.
    let _ = counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
}
