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
    /// Lists or a resource have changed.
    Changed(Changed),
    /// There is another key.
    Keys,
    /// Some news were lost: whatever is followed may have changed.
    Missed,
}

/// Lists or a resource that have changed on another server, for those who subscribe to them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Changed {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// One resource, by its URI.
    Resource(Arc<str>),
    /// Any resource: the names of all have no room in a notification.
    AnyResource,
}

/// The longest URI that is told: a notification has room for 8,000 bytes.
const MAX_URI: usize = 7_000;

impl Changed {
    pub(crate) fn payload(&self) -> String {
        match self {
            Self::Tools => "changed tools".to_owned(),
            Self::Prompts => "changed prompts".to_owned(),
            Self::Resources => "changed resources".to_owned(),
            Self::Resource(uri) if uri.len() <= MAX_URI && !uri.contains('\0') => {
                format!("changed resource {uri}")
            }
            Self::Resource(_) | Self::AnyResource => "changed any".to_owned(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        match text {
            "tools" => Some(Self::Tools),
            "prompts" => Some(Self::Prompts),
            "resources" => Some(Self::Resources),
            "any" => Some(Self::AnyResource),
            other => Some(Self::Resource(other.strip_prefix("resource ")?.into())),
        }
    }
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
            "changed" => Changed::read(of).map(Self::Changed),
            "keys" => Some(Self::Keys),
            "answers" => Some(Self::Answers(of.into())),
            _ => None,
        }
    }
}
