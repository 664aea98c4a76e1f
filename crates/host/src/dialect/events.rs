//! Notifications that wait for a session's stream.

use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;
use mcp_service::Principal;
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::dialect::session::Session;

/// Interval of comments that keep a stream open, as proxies close those that say nothing.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A text of JSON without secrets that the process knows.
pub(crate) fn unsaid(text: String) -> String {
    match redaction::knows_any() {
        true => redaction::without_known_json(&text).into_owned(),
        false => text,
    }
}

/// Notifications of a session, the oldest of which go first where there is no room.
#[derive(Debug)]
pub(crate) struct Events {
    max_bytes: usize,
    state: Mutex<State>,
    streams: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<String>,
    bytes: usize,
    lost: usize,
    is_closed: bool,
    reader: Option<Waker>,
}

impl Events {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            state: Mutex::default(),
            streams: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a notification.
    pub(crate) fn push(&self, notification: &Value) {
        let text = unsaid(notification.to_string());
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        state.bytes += text.len();
        state.waiting.push_back(text);
        while self.max_bytes < state.bytes
            && let Some(oldest) = state.waiting.pop_front()
        {
            state.bytes -= oldest.len();
            state.lost += 1;
        }
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }

    /// Takes no more; a stream ends when it has sent what waits.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
    }
}

/// Notifications of a session as server-sent events, named `notification` (row 23 of document 004). A session has one
/// stream: a new one ends the one before. It ends with the session, and with what its client has proved itself by.
pub struct EventStream {
    session: Arc<Session>,
    number: u64,
    keep_alive: Pin<Box<Sleep>>,
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EventStream").field(&self.number).finish()
    }
}

impl EventStream {
    pub(crate) fn new(session: Arc<Session>, principal: &Principal) -> Self {
        let events = &session.events;
        let number = events.streams.fetch_add(1, Ordering::AcqRel) + 1;
        // The stream before finds that it is no more the one.
        if let Some(reader) = events.lock().reader.take() {
            reader.wake();
        }
        session.streams.fetch_add(1, Ordering::AcqRel);
        Self {
            session,
            number,
            keep_alive: Box::pin(sleep_until(Instant::now())),
            over: principal
                .end()
                .map(|it| Box::pin(it) as Pin<Box<dyn Future<Output = ()> + Send>>),
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.session.streams.fetch_sub(1, Ordering::AcqRel);
        self.session.touch();
    }
}

impl Stream for EventStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if let Some(over) = &mut this.over
            && over.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(None);
        }
        let events = &this.session.events;
        if events.streams.load(Ordering::Acquire) != this.number {
            return Poll::Ready(None);
        }
        let mut state = events.lock();
        let lost = std::mem::take(&mut state.lost);
        if 0 < lost {
            let told = json!({
                "jsonrpc": "2.0", "method": "notifications_lost", "params": { "count": lost },
                "session": &*this.session.id,
            });
            return Poll::Ready(Some(event(&told.to_string())));
        }
        if let Some(text) = state.waiting.pop_front() {
            state.bytes -= text.len();
            return Poll::Ready(Some(event(&text)));
        }
        if state.is_closed {
            return Poll::Ready(None);
        }
        state.reader = Some(cx.waker().clone());
        drop(state);
        // The first comment says at once that the stream is there.
        if this.keep_alive.as_mut().poll(cx).is_ready() {
            this.keep_alive.as_mut().reset(Instant::now() + KEEP_ALIVE);
            cx.waker().wake_by_ref();
            return Poll::Ready(Some(Bytes::from_static(b":\n\n")));
        }
        Poll::Pending
    }
}

fn event(text: &str) -> Bytes {
    // JSON of one line.
    format!("event: notification\ndata: {text}\n\n").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_where_there_is_no_room_and_are_counted() {
        let events = Events::new(10);
        for it in ["aaaa", "bbbb", "cccc"] {
            events.push(&json!(it));
        }
        let state = events.lock();
        assert_eq!((state.lost, state.waiting.len(), state.bytes), (2, 1, 6));
    }
}
