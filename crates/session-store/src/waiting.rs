//! Changes that a store was asked for and has not written.

use crate::{MAX_STATE_BYTES, SessionRecord};
use std::collections::{HashMap, hash_map::Entry};

/// The most sessions whose changes wait to be written.
pub const MAX_WAITING: usize = 65_536;

/// The most bytes of what waits to be written.
pub const MAX_WAITING_BYTES: usize = 64 * 1024 * 1024;

/// Bytes that a waiting change takes beside its texts.
const OVERHEAD: usize = size_of::<(String, Change)>();

/// Change of one session.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    Put(SessionRecord),
    /// Only if it is there.
    Touch(u64),
    Remove,
}

/// Waiting changes, of each session only the last.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Waiting {
    /// True if all sessions stored before are to be deleted.
    pub(crate) forget_all: bool,
    pub(crate) changes: HashMap<String, Change>,
    bytes: usize,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        !self.forget_all && self.changes.is_empty()
    }

    pub(crate) fn put(&mut self, session: SessionRecord) {
        if MAX_STATE_BYTES < session.state.len() {
            // What was known of it before is not true any more.
            self.add(session.id, Change::Remove);
            return;
        }
        self.add(session.id.clone(), Change::Put(session));
    }

    pub(crate) fn touch(&mut self, id: &str, last_used_ms: u64) {
        match self.changes.get_mut(id) {
            Some(Change::Put(session)) => session.last_used_ms = last_used_ms,
            Some(Change::Touch(last)) => *last = last_used_ms,
            Some(Change::Remove) => {}
            None => self.add(id.to_owned(), Change::Touch(last_used_ms)),
        }
    }

    pub(crate) fn remove(&mut self, id: &str) {
        self.add(id.to_owned(), Change::Remove);
    }

    /// Takes back what could not be written, beneath what has come since.
    pub(crate) fn take_back(&mut self, earlier: Self) {
        if self.forget_all {
            return;
        }
        self.forget_all = earlier.forget_all;
        for (id, change) in earlier.changes {
            if self.forget_all {
                // There was no room: nothing from before may come back.
                return;
            }
            match (self.changes.get(&id), change) {
                (None, change) => self.add(id, change),
                (Some(Change::Touch(last_used_ms)), Change::Put(session)) => {
                    let last_used_ms = *last_used_ms;
                    let session = SessionRecord {
                        last_used_ms,
                        ..session
                    };
                    self.add(id, Change::Put(session));
                }
                (Some(Change::Touch(_)), Change::Remove) => self.add(id, Change::Remove),
                (Some(_), _) => {}
            }
        }
    }

    fn add(&mut self, id: String, change: Change) {
        self.bytes += cost(&id, &change);
        match self.changes.entry(id) {
            Entry::Occupied(mut known) => {
                self.bytes -= cost(known.key(), known.get());
                known.insert(change);
            }
            Entry::Vacant(place) => {
                place.insert(change);
            }
        }
        if MAX_WAITING < self.changes.len() || MAX_WAITING_BYTES < self.bytes {
            // To leave one out could be to leave an end out.
            tracing::warn!("too much waits to be written to the session store: no session is kept");
            *self = Self {
                forget_all: true,
                ..Self::default()
            };
        }
    }
}

fn cost(id: &str, change: &Change) -> usize {
    let texts = match change {
        Change::Put(session) => session.id.len() + session.principal.len() + session.state.len(),
        Change::Touch(_) | Change::Remove => 0,
    };
    id.len() + texts + OVERHEAD
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(id: &str, state: &str, last_used_ms: u64) -> SessionRecord {
        SessionRecord {
            id: id.to_owned(),
            principal: "alice".to_owned(),
            state: state.to_owned(),
            lives: 0,
            last_used_ms,
        }
    }

    #[test]
    fn of_each_session_the_last_is_written() {
        let mut waiting = Waiting::default();
        waiting.put(session("a", "1", 1));
        waiting.touch("a", 2);
        assert_eq!(waiting.changes["a"], Change::Put(session("a", "1", 2)));
        waiting.remove("a");
        waiting.touch("a", 3);
        assert_eq!(waiting.changes["a"], Change::Remove);
        waiting.touch("b", 4);
        waiting.touch("b", 5);
        assert_eq!(waiting.changes["b"], Change::Touch(5));
        waiting.put(session("b", "2", 6));
        assert_eq!(waiting.changes.len(), 2);
        let cost: usize = waiting.changes.iter().map(|(id, it)| cost(id, it)).sum();
        assert_eq!(waiting.bytes, cost);
    }

    #[test]
    fn what_could_not_be_written_is_beneath_what_came_since() {
        let mut earlier = Waiting::default();
        for id in ["put", "touched", "removed", "old"] {
            earlier.put(session(id, "1", 1));
        }
        earlier.remove("gone");
        let mut waiting = Waiting::default();
        waiting.put(session("put", "2", 2));
        waiting.touch("touched", 2);
        waiting.remove("removed");
        waiting.touch("gone", 2);
        waiting.take_back(earlier);
        let expected = [
            ("put", Change::Put(session("put", "2", 2))),
            ("touched", Change::Put(session("touched", "1", 2))),
            ("removed", Change::Remove),
            ("old", Change::Put(session("old", "1", 1))),
            ("gone", Change::Remove),
        ];
        let expected = expected.map(|(id, change)| (id.to_owned(), change));
        assert_eq!(waiting.changes, HashMap::from(expected));
    }

    #[test]
    fn too_much_is_nothing() {
        let mut waiting = Waiting::default();
        for number in 0..MAX_WAITING {
            waiting.remove(&number.to_string());
        }
        assert!(!waiting.forget_all);
        waiting.remove("one more");
        assert!(waiting.forget_all && waiting.changes.is_empty() && waiting.bytes == 0);
        waiting.put(session("a", "1", 1));
        let mut earlier = Waiting::default();
        earlier.put(session("b", "1", 1));
        waiting.take_back(earlier);
        assert_eq!(waiting.changes.len(), 1, "what was before is forgotten");

        let mut waiting = Waiting::default();
        let state = "x".repeat(MAX_STATE_BYTES);
        let one = Change::Put(session("the last", &state, 1));
        let one = cost("the last", &one);
        for number in 0.. {
            if MAX_WAITING_BYTES < waiting.bytes + one {
                break;
            }
            waiting.put(session(&format!("{number:08}"), &state, 1));
        }
        assert!(!waiting.forget_all);
        waiting.put(session("the last", &state, 1));
        assert!(waiting.forget_all);
        waiting.put(session("long", &(state + "x"), 1));
        assert_eq!(waiting.changes["long"], Change::Remove);
    }
}
