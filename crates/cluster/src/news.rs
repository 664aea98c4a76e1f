//! News: what other servers have changed.

use std::sync::Arc;

/// The channel of `NOTIFY`.
pub(crate) const CHANNEL: &str = "owlclaw_cluster";

/// Change that another server has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A task is not what it was, or is gone.
    Task(Arc<str>),
    /// A client has answered what a task asks.
    Answers(Arc<str>),
    /// A session is not what it was, or has ended.
    Session(Arc<str>),
    /// A client has sent something to another server that concerns a session: its number and the session.
    Said(i64, Arc<str>),
    /// There is another key.
    Keys,
    /// Some news were lost: whatever is followed may have changed.
    Missed,
}

impl News {
    /// Reads a payload; `None` for one of a newer version.
    pub(crate) fn read(payload: &str) -> Option<Self> {
        let (what, of) = payload.split_once(' ').unwrap_or((payload, ""));
        match what {
            "task" => Some(Self::Task(of.into())),
            "session" => Some(Self::Session(of.into())),
            "said" => {
                let (number, session) = of.split_once(' ')?;
                Some(Self::Said(number.parse().ok()?, session.into()))
            }
            "keys" => Some(Self::Keys),
            "answers" => Some(Self::Answers(of.into())),
            _ => None,
        }
    }
}
