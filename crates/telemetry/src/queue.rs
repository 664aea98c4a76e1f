//! Spans that have ended and are not sent.

use crate::stats::{Counters, Stats, add};
use opentelemetry::Context;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{SpanData, SpanProcessor},
};
use prost::Message;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
    time::Duration,
};
use tokio::sync::Notify;

/// The most spans that wait.
pub const MAX_QUEUED_SPANS: usize = 8_192;
/// The most bytes that they have together, as they will be sent.
pub const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    changed: Notify,
    pub(crate) counters: Counters,
}

#[derive(Debug, Default)]
struct Waiting {
    /// With the bytes of each.
    spans: VecDeque<(Span, usize)>,
    bytes: usize,
    /// Of the batch that is being sent.
    under_way: usize,
    is_closed: bool,
}

impl Queue {
    /// Held for the time of a push or a take, never while anything is sent.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn push(&self, span: Span) {
        let size = span.encoded_len();
        let mut waiting = self.lock();
        if waiting.is_closed || MAX_QUEUED_BYTES < size {
            drop(waiting);
            add(&self.counters.dropped, 1);
            return;
        }
        waiting.bytes += size;
        waiting.spans.push_back((span, size));
        let mut dropped = 0;
        // What has just happened is what somebody will want to see.
        while MAX_QUEUED_SPANS < waiting.spans.len() || MAX_QUEUED_BYTES < waiting.bytes {
            waiting.take_first();
            dropped += 1;
        }
        drop(waiting);
        if dropped != 0 {
            add(&self.counters.dropped, dropped);
        }
        self.changed.notify_one();
    }

    /// No more spans are taken.
    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().is_closed
    }

    /// Number of spans that wait.
    pub(crate) fn len(&self) -> usize {
        self.lock().spans.len()
    }

    /// Resolves after something has changed since the last time; perhaps once too often.
    ///
    /// # Cancel safety
    ///
    /// Nothing is missed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The oldest, so many and of so many bytes at most; one at least, if there is one. They are
    /// under way until [`Queue::settle`].
    pub(crate) fn take(&self, most: usize, most_bytes: usize) -> Vec<Span> {
        let mut waiting = self.lock();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((_, size)) = waiting.spans.front()
            && batch.len() < most
            && (batch.is_empty() || bytes + size <= most_bytes)
        {
            bytes += size;
            batch.extend(waiting.take_first());
        }
        waiting.under_way = batch.len();
        batch
    }

    /// Ends the batch under way: `failed` of its spans have failed, and the others were sent.
    pub(crate) fn settle(&self, failed: usize) {
        let count = std::mem::take(&mut self.lock().under_way);
        let failed = failed.min(count);
        add(&self.counters.failed, failed);
        add(&self.counters.sent, count - failed);
    }

    /// Counts all spans that wait or are under way as failed; returns their number.
    pub(crate) fn abandon(&self) -> usize {
        let mut waiting = self.lock();
        let count = waiting.spans.len() + std::mem::take(&mut waiting.under_way);
        waiting.spans.clear();
        waiting.bytes = 0;
        drop(waiting);
        add(&self.counters.failed, count);
        count
    }

    pub(crate) fn stats(&self) -> Stats {
        let queued = {
            let waiting = self.lock();
            waiting.spans.len() + waiting.under_way
        };
        Stats {
            sent: self.counters.sent.load(Ordering::Relaxed),
            dropped: self.counters.dropped.load(Ordering::Relaxed),
            failed: self.counters.failed.load(Ordering::Relaxed),
            queued,
        }
    }
}

impl Waiting {
    fn take_first(&mut self) -> Option<Span> {
        let (span, size) = self.spans.pop_front()?;
        self.bytes -= size;
        Some(span)
    }
}

/// Takes the spans that have ended.
#[derive(Debug)]
pub(crate) struct Ended(pub(crate) Arc<Queue>);

impl SpanProcessor for Ended {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.push(span.into());
    }

    /// Spans are sent by a task that must not be waited for here.
    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        self.0.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(name: impl Into<String>) -> Span {
        Span {
            name: name.into(),
            ..Span::default()
        }
    }

    fn names(spans: Vec<Span>) -> Vec<String> {
        spans.into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let queue = Queue::default();
        for number in 0..MAX_QUEUED_SPANS + 3 {
            queue.push(span(number.to_string()));
        }
        let stats = queue.stats();
        assert_eq!((stats.queued, stats.dropped), (MAX_QUEUED_SPANS, 3));
        assert_eq!(names(queue.take(2, usize::MAX)), ["3", "4"]);
    }

    #[test]
    fn the_oldest_go_when_they_are_too_large() {
        let queue = Queue::default();
        let large = || span("x".repeat(MAX_QUEUED_BYTES / 3));
        queue.push(span("first"));
        queue.push(large());
        queue.push(large());
        assert_eq!(queue.stats().dropped, 0);
        queue.push(large());
        // The first and a large one, since three of them are a little more than fits.
        assert_eq!(queue.stats().dropped, 2);
        assert_eq!(queue.len(), 2);
        // What does not fit at all takes nobody's place.
        queue.push(span("x".repeat(MAX_QUEUED_BYTES)));
        assert_eq!((queue.stats().dropped, queue.len()), (3, 2));
    }

    #[test]
    fn a_batch_has_bounds_and_is_settled() {
        let queue = Queue::default();
        for name in ["a", "b", "c"] {
            queue.push(span(name));
        }
        let one = span("a").encoded_len();
        assert_eq!(names(queue.take(9, 2 * one)), ["a", "b"]);
        assert_eq!(queue.stats().queued, 3);
        queue.settle(1);
        let stats = queue.stats();
        assert_eq!((stats.sent, stats.failed, stats.queued), (1, 1, 1));
        assert_eq!(names(queue.take(9, 0)), ["c"]);
        assert_eq!(queue.abandon(), 1);
        assert_eq!(queue.abandon(), 0);
        assert_eq!(queue.stats().failed, 2);
    }

    #[test]
    fn nothing_is_taken_after_the_end() {
        let queue = Queue::default();
        queue.push(span("a"));
        queue.close();
        queue.push(span("b"));
        assert_eq!((queue.len(), queue.stats().dropped), (1, 1));
    }
}
