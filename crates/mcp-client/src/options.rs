use crate::{Bounds, Handlers, NoHandlers};
use mcp_protocol::{
    ProtocolVersion,
    model::{
        ClientCapabilities, Implementation, LoggingLevel, ResultMeta, ServerNotification, Task,
    },
};
use std::{fmt, sync::Arc, time::Duration};

/// Options of one connection.
#[derive(Clone)]
pub struct Options {
    /// Name and version that the server is told.
    pub client_info: Implementation,
    /// The embedder's side of the connection.
    pub handlers: Arc<dyn Handlers>,
    /// Bounds on what the server can cause.
    pub bounds: Bounds,
    /// The revision to speak.
    pub speak: Speak,
    /// True if servers may answer calls with tasks, whose results are then waited for.
    pub tasks: bool,
    /// Severity from which log messages are wanted; none without it.
    pub log_level: Option<LoggingLevel>,
}

/// Choice of a revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speak {
    /// Ask with `server/discover`; any error, wrong answer or silence means a legacy server.
    #[default]
    Probe,
    /// Offer this revision first, without a probe: what was learnt about the server the last time. If the
    /// server disagrees, it is probed.
    Remembered(ProtocolVersion),
    /// Speak this revision, or an older one if it is a legacy one and the server wants that.
    Only(ProtocolVersion),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_info: Implementation {
                name: "owlclaw-mcp".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..Implementation::default()
            },
            handlers: Arc::new(NoHandlers),
            bounds: Bounds::default(),
            speak: Speak::default(),
            tasks: true,
            log_level: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("client_info", &self.client_info)
            .field("bounds", &self.bounds)
            .field("speak", &self.speak)
            .finish_non_exhaustive()
    }
}

/// Takes the progress notifications of one request.
#[derive(Clone)]
pub struct Progress(Arc<Report>);

type Report = dyn Fn(f64, Option<f64>, Option<&str>) + Send + Sync;

impl Progress {
    /// Calls `report` with how far the request is, how far it will go, and a text for people. It must not
    /// wait: the server is not read while it runs.
    pub fn new(report: impl Fn(f64, Option<f64>, Option<&str>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(report))
    }

    pub(crate) fn report(&self, notification: &ServerNotification) {
        if let ServerNotification::Progress {
            progress,
            total,
            message,
            ..
        } = notification
        {
            (self.0)(*progress, *total, message.as_deref());
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Progress")
    }
}

/// Follows the task that a call has become.
#[derive(Clone)]
pub struct OnTask {
    tell: Arc<dyn Fn(&Task) + Send + Sync>,
    is_left: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl OnTask {
    /// Calls `tell` with the task when the server has made it, and with each state of it that is heard of. It must
    /// not wait.
    pub fn new(tell: impl Fn(&Task) + Send + Sync + 'static) -> Self {
        Self {
            tell: Arc::new(tell),
            is_left: Arc::new(|| false),
        }
    }

    /// Leaves the task running, instead of cancelling it, if the call is given up and `is_left` is true then.
    #[must_use]
    pub fn left_if(mut self, is_left: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.is_left = Arc::new(is_left);
        self
    }

    pub(crate) fn tell(&self, task: &Task) {
        (self.tell)(task);
    }

    pub(crate) fn is_left(&self) -> bool {
        (self.is_left)()
    }
}

impl fmt::Debug for OnTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnTask")
    }
}

/// Options of one request.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// Time for it, rounds and waiting for a task included; [`Bounds::timeout`] without it.
    pub timeout: Option<Duration>,
    /// Asks for progress notifications, and takes them.
    pub progress: Option<Progress>,
    /// Entries of `_meta`, such as `traceparent`.
    pub meta: ResultMeta,
    /// Capabilities that a modern server is told of with this request, where they are not those of the
    /// handlers: of the one on whose behalf it is made.
    pub capabilities: Option<ClientCapabilities>,
    /// True if questions that are a result ([`Answer::InputRequired`](mcp_protocol::client::Answer)) are the
    /// answer of [`Connection::request`](crate::Connection::request), instead of being put to the handlers.
    pub hands_over_questions: bool,
    /// True if a server of 2025-11-25 is to make a task of the call; the tool must support that. Such a server does not
    /// decide it by itself.
    pub as_task: bool,
    /// Follows the task that the call becomes, if it becomes one.
    pub on_task: Option<OnTask>,
}
