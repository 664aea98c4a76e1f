//! The gateway's side of a connection: which call a message of the upstream's belongs to.

use crate::{
    text::{Cleaner, clean},
    upstream::watched::Watched,
};
use adapter_tools::{Askable, LogLevel, ToolCx};
use futures_util::future::BoxFuture;
use mcp_client::{Handlers, visited};
use mcp_protocol::model::{
    ClientCapabilities, ElicitationCapability, InputRequest, InputResponse, LoggingLevel,
    SamplingCapability, ServerNotification,
};
use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{Notify, mpsc, oneshot};

/// Answer to a question, for the upstream.
pub(crate) type Reply = Result<InputResponse, String>;

/// A question of an upstream's, and where its answer goes.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) question: InputRequest,
    pub(crate) reply: oneshot::Sender<Reply>,
}

/// One call that is under way, as messages of the upstream reach it.
#[derive(Debug)]
pub(crate) struct Caller {
    askable: Askable,
    questions: mpsc::UnboundedSender<Asked>,
    /// The context of the call; none while the call waits for answers of its client.
    cx: Mutex<Option<ToolCx>>,
}

impl Caller {
    pub(crate) fn new(cx: ToolCx) -> (Arc<Self>, mpsc::UnboundedReceiver<Asked>) {
        let (questions, asked) = mpsc::unbounded_channel();
        let caller = Self {
            askable: cx.askable(),
            questions,
            cx: Mutex::new(Some(cx)),
        };
        (Arc::new(caller), asked)
    }

    pub(crate) fn set(&self, cx: Option<ToolCx>) {
        *locked(&self.cx) = cx;
    }

    /// Has `tell` told of the call's context, unless the call waits for answers of its client.
    pub(crate) fn with<T>(&self, tell: impl FnOnce(&ToolCx) -> T) -> Option<T> {
        locked(&self.cx).as_ref().map(tell)
    }

    pub(crate) fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) {
        if let Some(cx) = &*locked(&self.cx) {
            cx.progress(progress, total, message.map(|it| clean(it).into_owned()));
        }
    }
}

/// The calls that are under way on one connection.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) upstream: String,
    /// Questions that can be put to the client for whom the connection was opened, if it has one client
    /// alone.
    only_for: Option<Askable>,
    callers: Mutex<Vec<Arc<Caller>>>,
    used_at: Mutex<Instant>,
    /// Time at which the upstream was heard of last on this connection.
    heard_at: Mutex<Instant>,
    watched: Arc<Watched>,
    /// Told when the upstream says that a list has changed.
    pub(crate) lists_changed: Notify,
}

/// A place at the desk; given up when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    desk: Arc<Desk>,
    pub(crate) caller: Arc<Caller>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut callers = locked(&self.desk.callers);
        callers.retain(|it| !Arc::ptr_eq(it, &self.caller));
        *locked(&self.desk.used_at) = Instant::now();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desk {
    pub(crate) fn new(
        upstream: &str,
        watched: Arc<Watched>,
        only_for: Option<Askable>,
    ) -> Arc<Self> {
        Arc::new(Self {
            upstream: upstream.to_owned(),
            only_for,
            callers: Mutex::default(),
            used_at: Mutex::new(Instant::now()),
            heard_at: Mutex::new(Instant::now()),
            watched,
            lists_changed: Notify::new(),
        })
    }

    pub(crate) fn enter(self: &Arc<Self>, caller: Arc<Caller>) -> Place {
        locked(&self.callers).push(Arc::clone(&caller));
        Place {
            desk: Arc::clone(self),
            caller,
        }
    }

    /// Notes a message of the upstream.
    pub(crate) fn hear(&self) {
        *locked(&self.heard_at) = Instant::now();
    }

    /// True if the upstream has said anything since then.
    pub(crate) fn has_heard_since(&self, since: Instant) -> bool {
        since < *locked(&self.heard_at)
    }

    /// Number of calls that are under way.
    pub(crate) fn calls(&self) -> usize {
        locked(&self.callers).len()
    }

    /// Time since the last call ended; zero while one is under way.
    pub(crate) fn idle(&self) -> Duration {
        match self.calls() {
            0 => locked(&self.used_at).elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// The one call that a message can belong to which names none.
    fn caller(&self) -> Result<Arc<Caller>, String> {
        let callers = locked(&self.callers);
        match callers.as_slice() {
            [] => Err("no call is under way that the question could belong to".to_owned()),
            [one] => Ok(Arc::clone(one)),
            // All of them have the same user.
            [.., last] if self.only_for.is_some() => Ok(Arc::clone(last)),
            several => Err(format!(
                "{} calls of several clients are under way, and a question does not say which of them it \
                 belongs to; with `isolation: per-client` it can be asked",
                several.len()
            )),
        }
    }
}

/// Capabilities of a client that can be asked these questions.
pub(crate) fn capabilities_of(askable: Askable) -> ClientCapabilities {
    ClientCapabilities {
        roots: askable.roots,
        sampling: askable.sample.then(SamplingCapability::default),
        elicitation: (askable.form || askable.url).then_some(ElicitationCapability {
            form: askable.form,
            url: askable.url,
        }),
        ..match askable.pages {
            true => ClientCapabilities::of_apps(),
            false => ClientCapabilities::default(),
        }
    }
}

/// True if a client that can be asked `askable` can be put this question.
pub(crate) fn can(askable: Askable, question: &InputRequest) -> bool {
    match question {
        InputRequest::ElicitForm { .. } => askable.form,
        InputRequest::ElicitUrl { .. } => askable.url,
        InputRequest::CreateMessage(_) => askable.sample,
        InputRequest::ListRoots => askable.roots,
    }
}

/// Reason why a question is not put to clients: it wants a person to visit an address that nobody should.
pub(crate) fn unfit(question: &InputRequest) -> Option<String> {
    let InputRequest::ElicitUrl { url, .. } = question else {
        return None;
    };
    let why = match visited(url) {
        Err(why) => why,
        Ok(it) if it.has_user => "it has a user or a password in front of the host",
        Ok(_) => return None,
    };
    Some(format!("the address to visit is not passed on: {why}"))
}

/// A desk as its connection has it.
pub(crate) struct Ears(pub(crate) Arc<Desk>);

impl Handlers for Ears {
    /// A connection of all clients declares everything: which of it a caller has is found out per call.
    fn capabilities(&self) -> ClientCapabilities {
        capabilities_of(self.0.only_for.unwrap_or(Askable {
            form: true,
            url: true,
            sample: true,
            roots: true,
            pages: true,
        }))
    }

    fn answer(&self, question: InputRequest) -> BoxFuture<'_, Reply> {
        Box::pin(async move {
            self.0.hear();
            let method = question.method();
            if let Some(why) = unfit(&question) {
                tracing::warn!(
                    upstream = self.0.upstream,
                    method,
                    why,
                    "a question of an upstream was refused"
                );
                return Err(why);
            }
            let caller = self.0.caller();
            let answer = match caller {
                Ok(caller) if can(caller.askable, &question) => {
                    let (reply, answered) = oneshot::channel();
                    let _ = caller.questions.send(Asked { question, reply });
                    let gone = || Err("the call has ended".to_owned());
                    answered.await.unwrap_or_else(|_| gone())
                }
                Ok(_) => Err(
                    "the client whose call this is has not declared that it can be asked"
                        .to_owned(),
                ),
                Err(why) => Err(why),
            };
            if let Err(why) = &answer {
                tracing::info!(
                    upstream = self.0.upstream,
                    method,
                    why,
                    "a question of an upstream was refused"
                );
            }
            answer
        })
    }

    fn notified(&self, notification: &ServerNotification) {
        self.0.hear();
        match notification {
            ServerNotification::ToolsListChanged
            | ServerNotification::PromptsListChanged
            | ServerNotification::ResourcesListChanged => self.0.lists_changed.notify_one(),
            ServerNotification::ResourceUpdated { uri } => self.0.watched.updated(uri),
            ServerNotification::Log {
                level,
                logger,
                data,
            } => {
                // A message that may be another client's goes to none.
                let Ok(caller) = self.0.caller() else {
                    return;
                };
                if let Some(cx) = &*locked(&caller.cx)
                    && let Ok(mut data) = data.parse::<serde_json::Value>()
                {
                    Cleaner::new(true).value(&mut data);
                    let logger = logger.as_deref().map(clean);
                    cx.log(level_of(*level), logger.as_deref(), &data);
                }
            }
            _ => {}
        }
    }
}

fn level_of(level: LoggingLevel) -> LogLevel {
    match level {
        LoggingLevel::Debug => LogLevel::Debug,
        LoggingLevel::Info => LogLevel::Info,
        LoggingLevel::Notice => LogLevel::Notice,
        LoggingLevel::Warning => LogLevel::Warning,
        LoggingLevel::Error => LogLevel::Error,
        LoggingLevel::Critical => LogLevel::Critical,
        LoggingLevel::Alert => LogLevel::Alert,
        LoggingLevel::Emergency => LogLevel::Emergency,
    }
}
