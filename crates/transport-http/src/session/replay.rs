//! Events of the streams of a legacy session, kept as long as they may be asked for again. A stream
//! is more than the connection it is sent on: a client that lost one asks for the rest on another.

use crate::session::resumable::Resumable;
use bytes::Bytes;
use std::{
    collections::{HashMap, VecDeque},
    fmt,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
};

/// Names an event among all those of a session: which stream it is on, and the how-manieth it is
/// there. The events themselves begin with 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    pub(crate) stream: u64,
    pub(crate) sequence: u64,
}

/// The stream of what a session did not ask for. Those of requests have higher numbers.
pub(crate) const OWN_STREAM: u64 = 0;

/// Bounds on the events that sessions may keep, and the bytes that they keep now.
#[derive(Debug)]
pub(crate) struct Room {
    /// Events of one session.
    pub(crate) max_events: usize,
    /// Bytes of one session.
    pub(crate) max_bytes: usize,
    /// Bytes of all sessions.
    pub(crate) max_total: usize,
    pub(crate) total: AtomicUsize,
}

/// Events that one session keeps: the last of all its streams, in one order.
pub(crate) struct Replay {
    state: Mutex<State>,
    room: Arc<Room>,
}

#[derive(Default)]
struct State {
    events: VecDeque<(EventId, Bytes)>,
    bytes: usize,
    last_stream: u64,
    streams: HashMap<u64, Stream>,
}

/// Progress of a stream.
#[derive(Default)]
struct Stream {
    last: u64,
    /// True if no more events will come.
    over: bool,
    /// Request that feeds it, until its client comes back for it.
    connected: Weak<Resumable>,
    /// Number of times the stream was asked for again. There is one reader: the last.
    readers: u64,
    /// False once the reader has gone.
    is_read: bool,
    /// Answers that it has not read yet. They do not count against the bounds of what is kept for readers
    /// that may come back.
    unread: VecDeque<(EventId, Bytes)>,
    waker: Option<Waker>,
}

/// Says something on one stream; dropping it ends that.
pub(crate) struct Writer {
    replay: Arc<Replay>,
    stream: u64,
}

/// Reads a stream from somewhere on.
pub(crate) struct Reader {
    replay: Arc<Replay>,
    /// The last event that was read.
    at: EventId,
    reader: u64,
}

impl Replay {
    /// Replay of a session that has been through so many processes before. Events of those are
    /// forgotten, and their names are not used again.
    pub(crate) fn after_lives(room: Arc<Room>, lives: u32) -> Arc<Self> {
        let first = u64::from(lives) << 32;
        let mut state = State {
            last_stream: first,
            ..State::default()
        };
        let own = Stream {
            last: first,
            ..Stream::default()
        };
        state.streams.insert(OWN_STREAM, own);
        Arc::new(Self {
            state: Mutex::new(state),
            room,
        })
    }

    /// Returns true if there is room for any event.
    pub(crate) fn has_room(&self) -> bool {
        let room = &self.room;
        room.max_events.min(room.max_bytes).min(room.max_total) > 0
    }

    /// Begins the stream of a request.
    pub(crate) fn begin(self: &Arc<Self>) -> Writer {
        let mut state = self.lock();
        state.last_stream += 1;
        let stream = state.last_stream;
        state.streams.insert(stream, Stream::default());
        Writer {
            replay: Arc::clone(self),
            stream,
        }
    }

    /// Keeps what is said on a stream, and gives it its name.
    pub(crate) fn record(&self, stream: u64, frame: Bytes) -> EventId {
        self.record_as(stream, frame, None::<fn() -> Bytes>)
    }

    /// Keeps an answer, or `instead` of it if there is no room.
    fn record_answer(&self, stream: u64, frame: Bytes, instead: impl FnOnce() -> Bytes) -> EventId {
        self.record_as(stream, frame, Some(instead))
    }

    fn record_as(
        &self,
        stream: u64,
        frame: Bytes,
        instead: Option<impl FnOnce() -> Bytes>,
    ) -> EventId {
        let mut state = self.lock();
        let entry = state.streams.entry(stream).or_default();
        entry.last += 1;
        let id = EventId {
            stream,
            sequence: entry.last,
        };
        let waker = entry.waker.take();
        if instead.is_some() && entry.is_read {
            entry.unread.push_back((id, frame.clone()));
        }
        if !self.keep(&mut state, id, frame)
            && let Some(instead) = instead
        {
            self.keep(&mut state, id, instead());
        }
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        id
    }

    /// Position of the session's own stream.
    pub(crate) fn own_position(&self) -> EventId {
        let last = self
            .lock()
            .streams
            .get(&OWN_STREAM)
            .map_or(0, |own| own.last);
        EventId {
            stream: OWN_STREAM,
            sequence: last,
        }
    }

    /// Kept events of a stream after an event.
    pub(crate) fn after(&self, id: EventId) -> VecDeque<(EventId, Bytes)> {
        self.lock().after(id).cloned().collect()
    }

    /// The rest of a request's stream after an event, which ends everywhere else; `None` if nothing is
    /// known of it any more, or if it is over and nothing is left of its rest.
    pub(crate) fn resume(self: &Arc<Self>, id: EventId) -> Option<Reader> {
        let mut state = self.lock();
        let is_kept = state.after(id).next().is_some();
        let stream = state.streams.get_mut(&id.stream)?;
        if stream.over && id.sequence < stream.last && !is_kept && stream.unread.is_empty() {
            return None;
        }
        stream.readers += 1;
        stream.is_read = true;
        let reader = stream.readers;
        let waker = stream.waker.take();
        let connected = std::mem::take(&mut stream.connected);
        // Both may come back here.
        drop(state);
        if let Some(earlier) = waker {
            earlier.wake();
        }
        if let Some(connected) = connected.upgrade() {
            connected.take_over();
        }
        Some(Reader {
            replay: Arc::clone(self),
            at: id,
            reader,
        })
    }

    /// Keeps an event, instead of older ones if there is no room beside them; false if there is none
    /// at all.
    fn keep(&self, state: &mut State, id: EventId, frame: Bytes) -> bool {
        let room = &self.room;
        let cost = cost(&frame);
        if room.max_bytes < cost || room.max_events == 0 {
            tracing::debug!(cost, "an event is too large to be kept");
            return false;
        }
        while room.max_events <= state.events.len() || room.max_bytes < state.bytes + cost {
            if !self.forget_oldest(state) {
                return false;
            }
        }
        while room.max_total < room.total.fetch_add(cost, Ordering::Relaxed) + cost {
            room.total.fetch_sub(cost, Ordering::Relaxed);
            if !self.forget_oldest(state) {
                tracing::debug!(cost, "an event is not kept; other sessions keep too much");
                return false;
            }
        }
        state.bytes += cost;
        state.events.push_back((id, frame));
        true
    }

    fn forget_oldest(&self, state: &mut State) -> bool {
        let Some((id, frame)) = state.events.pop_front() else {
            return false;
        };
        let cost = cost(&frame);
        state.bytes -= cost;
        self.room.total.fetch_sub(cost, Ordering::Relaxed);
        state.forget_stream(id.stream);
        true
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that an event takes beside its message.
const OVERHEAD: usize = size_of::<(EventId, Bytes)>();

fn cost(frame: &Bytes) -> usize {
    frame.len() + OVERHEAD
}

impl State {
    fn after(&self, id: EventId) -> impl Iterator<Item = &(EventId, Bytes)> {
        self.events
            .iter()
            .filter(move |(kept, _)| kept.stream == id.stream && id.sequence < kept.sequence)
    }

    /// Forgets a stream about which no client could ask any more.
    fn forget_stream(&mut self, stream: u64) {
        if self
            .streams
            .get(&stream)
            .is_some_and(|it| it.over && !it.is_read)
            && self.events.iter().all(|(id, _)| id.stream != stream)
        {
            self.streams.remove(&stream);
        }
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let kept = self.lock().bytes;
        self.room.total.fetch_sub(kept, Ordering::Relaxed);
    }
}

impl Writer {
    pub(crate) fn record(&self, frame: Bytes) -> EventId {
        self.replay.record(self.stream, frame)
    }

    /// Records an answer, which the reader of the stream gets however large it is. Whoever comes back
    /// later gets `instead` if it is too large to be kept.
    pub(crate) fn record_answer(&self, frame: Bytes, instead: impl FnOnce() -> Bytes) -> EventId {
        self.replay.record_answer(self.stream, frame, instead)
    }

    /// Says what carries the stream, and is to be taken over from.
    pub(crate) fn carried_by(&self, connected: &Arc<Resumable>) {
        if let Some(stream) = self.replay.lock().streams.get_mut(&self.stream) {
            stream.connected = Arc::downgrade(connected);
        }
    }

    /// Position of the stream before its first event.
    pub(crate) fn beginning(&self) -> EventId {
        EventId {
            stream: self.stream,
            sequence: 0,
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut state = self.replay.lock();
        let Some(stream) = state.streams.get_mut(&self.stream) else {
            return;
        };
        stream.over = true;
        let waker = stream.waker.take();
        state.forget_stream(self.stream);
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Reader {
    /// The event it goes on after.
    pub(crate) fn position(&self) -> EventId {
        self.at
    }

    /// The next event; `None` at the end of the stream, and once another connection reads it.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<(EventId, Bytes)>> {
        let mut state = self.replay.lock();
        let kept = state.after(self.at).next().cloned();
        let at = self.at.sequence;
        let Some(stream) = state.streams.get_mut(&self.at.stream) else {
            return Poll::Ready(None);
        };
        if stream.readers != self.reader {
            return Poll::Ready(None);
        }
        stream.unread.retain(|(id, _)| at < id.sequence);
        let unread = stream.unread.front().cloned();
        // The first of two with one name: an answer itself before what is kept instead of it.
        let next = unread.into_iter().chain(kept);
        match next.min_by_key(|(id, _)| id.sequence) {
            Some((id, frame)) => {
                self.at = id;
                Poll::Ready(Some((id, frame)))
            }
            None if stream.over => Poll::Ready(None),
            None => {
                stream.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.replay.lock();
        let stream = self.at.stream;
        if let Some(entry) = state.streams.get_mut(&stream)
            && entry.readers == self.reader
        {
            entry.is_read = false;
            entry.unread.clear();
            state.forget_stream(stream);
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.stream, self.sequence)
    }
}

impl FromStr for EventId {
    type Err = NoEventId;

    fn from_str(text: &str) -> Result<Self, NoEventId> {
        let (stream, sequence) = text.split_once('-').ok_or(NoEventId)?;
        let number = |text: &str| text.parse().map_err(|_| NoEventId);
        Ok(Self {
            stream: number(stream)?,
            sequence: number(sequence)?,
        })
    }
}

/// Text that is not the name of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this names no event")]
pub(crate) struct NoEventId;

#[cfg(test)]
mod tests {
    use super::*;

    fn room(max_events: usize, max_bytes: usize, max_total: usize) -> Arc<Room> {
        Arc::new(Room {
            max_events,
            max_bytes: max_bytes * cost(&"a".into()),
            max_total: max_total * cost(&"a".into()),
            total: AtomicUsize::new(0),
        })
    }

    fn rest(reader: &mut Reader) -> (String, bool) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut text = String::new();
        loop {
            match reader.poll_next(&mut cx) {
                Poll::Ready(Some((_, frame))) => {
                    text.push_str(std::str::from_utf8(&frame).unwrap())
                }
                Poll::Ready(None) => return (text, true),
                Poll::Pending => return (text, false),
            }
        }
    }

    #[test]
    fn a_stream_is_read_from_anywhere_and_by_one() {
        let replay = Replay::after_lives(room(10, 10, 10), 0);
        let (one, two) = (replay.begin(), replay.begin());
        let first = one.record("a".into());
        two.record("x".into());
        one.record("b".into());
        assert_eq!(first.to_string(), "1-1");
        let mut reader = replay.resume(first).unwrap();
        assert_eq!(rest(&mut reader), ("b".to_owned(), false));
        one.record("c".into());
        let mut later = replay.resume(one.beginning()).unwrap();
        assert_eq!(rest(&mut reader), (String::new(), true), "another reads it");
        assert_eq!(rest(&mut later), ("abc".to_owned(), false));
        one.record("d".into());
        drop(one);
        assert_eq!(rest(&mut later), ("d".to_owned(), true));
        let mut again = replay.resume(first).unwrap();
        assert_eq!(
            rest(&mut again),
            ("bcd".to_owned(), true),
            "also when it is over"
        );
        assert!(replay.resume("3-0".parse().unwrap()).is_none());
    }

    #[test]
    fn the_bounds_hold_and_the_oldest_goes_first() {
        for (room, kept) in [
            (room(2, 9, 9), "bc"),
            (room(9, 2, 9), "bc"),
            (room(9, 9, 2), "bc"),
            (room(0, 9, 9), ""),
        ] {
            let replay = Replay::after_lives(Arc::clone(&room), 0);
            let writer = replay.begin();
            let beginning = writer.beginning();
            for frame in ["a", "b", "c"] {
                writer.record(frame.into());
            }
            drop(writer);
            match replay.resume(beginning) {
                Some(mut reader) => assert_eq!(rest(&mut reader), (kept.to_owned(), true)),
                None => assert_eq!(kept, ""),
            }
            let total = room.total.load(Ordering::Relaxed);
            assert_eq!(total, kept.len() * cost(&"a".into()));
            drop(replay);
            assert_eq!(room.total.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn one_session_takes_nothing_from_another() {
        let room = room(9, 9, 3);
        let (one, two) = (
            Replay::after_lives(Arc::clone(&room), 0),
            Replay::after_lives(room, 0),
        );
        for frame in ["a", "b", "c"] {
            one.record(OWN_STREAM, frame.into());
        }
        two.record(OWN_STREAM, "x".into());
        let all = |replay: &Replay| replay.after("0-0".parse().unwrap()).len();
        assert_eq!((all(&one), all(&two)), (3, 0));
        drop(one);
        two.record(OWN_STREAM, "y".into());
        assert_eq!(all(&two), 1);
        assert_eq!(two.own_position().to_string(), "0-2");
    }

    #[test]
    fn streams_that_are_over_are_forgotten_with_their_events() {
        let replay = Replay::after_lives(room(3, 9, 9), 0);
        for _ in 0..100 {
            replay.begin().record("a".into());
            drop(replay.begin());
        }
        assert!(replay.lock().streams.len() <= 4);
    }

    #[test]
    fn an_answer_reaches_a_waiting_client_whatever_is_kept() {
        for room in [room(9, 1, 9), room(1, 9, 9), room(9, 99, 1)] {
            let replay = Replay::after_lives(room, 0);
            let writer = replay.begin();
            let beginning = writer.beginning();
            let mut reader = replay.resume(beginning).unwrap();
            writer.record("a".into());
            writer.record_answer("x".repeat(1000).into(), || "s".into());
            let other = replay.begin();
            other.record("b".into());
            drop(writer);
            let (read, is_over) = rest(&mut reader);
            assert!(read.ends_with(&"x".repeat(1000)) && is_over, "{read}");
            assert_eq!(rest(&mut reader), (String::new(), true), "once");
            drop(reader);
            assert!(replay.lock().streams.len() <= 3, "and then forgotten");
        }
    }

    #[test]
    fn something_else_is_kept_instead_of_an_answer_that_is_too_large() {
        for (room, left) in [
            (room(9, 2, 9), "as"),
            (room(9, 1, 9), "s"),
            (room(1, 2, 9), "s"),
            (room(9, 99, 2), "s"),
        ] {
            let replay = Replay::after_lives(room, 0);
            let writer = replay.begin();
            let beginning = writer.beginning();
            drop(replay.resume(beginning));
            writer.record("a".into());
            writer.record_answer("x".repeat(1000).into(), || "s".into());
            drop(writer);
            for _ in 0..2 {
                let mut reader = replay.resume(beginning).unwrap();
                assert_eq!(rest(&mut reader), (left.to_owned(), true));
            }
        }
        // Where even that has no place, nobody is left to believe that something may come.
        let replay = Replay::after_lives(room(9, 2, 9), 0);
        let writer = replay.begin();
        let (beginning, progress) = (writer.beginning(), writer.record("a".into()));
        writer.record_answer("x".repeat(1000).into(), || "s".repeat(999).into());
        drop(writer);
        let mut reader = replay.resume(beginning).unwrap();
        assert_eq!(rest(&mut reader), ("a".to_owned(), true));
        assert!(replay.resume(progress).is_none());
    }

    #[test]
    fn what_names_no_event() {
        for text in [
            "",
            "1",
            "1-",
            "-1",
            "a-1",
            "1-1-1",
            "18446744073709551616-1",
        ] {
            assert_eq!(text.parse::<EventId>(), Err(NoEventId), "{text}");
        }
    }
}
