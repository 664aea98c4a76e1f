use crate::{InvalidArguments, Needed};
use serde_json::Value;
use std::{error::Error, time::Duration};

/// Reason why a tool did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The tool ran and failed. The model is told the reason, so that it can do better.
    #[error("{0}")]
    Failed(Failure),
    /// The tool needs answers from the client's side, and will be called again.
    #[error("the tool needs input")]
    NeedsInput(Needed),
    /// The tool refused arguments that fit its schema, and did not run.
    #[error("the tool refused the arguments")]
    Rejected(#[source] InvalidArguments),
    /// The process or service that ran the tool died, failed or vanished. The client is told `message` and whether to
    /// retry; `detail` is for the log.
    #[error("{message}")]
    Crashed {
        /// One sentence for the client.
        message: String,
        /// Condition under which the same call may be made again.
        repeat: Repeat,
        /// Further details, such as the process's last words; not for the client.
        detail: String,
    },
    /// The system that carries out the tool cannot be reached; the call was not begun. The client is told
    /// `message` and when to retry; `detail` is for the log.
    #[error("{message}")]
    Unavailable {
        /// One sentence for the client.
        message: String,
        /// Time after which to retry, if that may help.
        retry_after: Option<Duration>,
        /// Further details; not for the client.
        detail: String,
    },
    /// The answer of the system that carries out the tool was lost, or cannot be used: the call may have had
    /// its effect. The client is told `message`; `detail` is for the log.
    #[error("{message}")]
    Lost {
        /// One sentence for the client.
        message: String,
        /// Further details; not for the client.
        detail: String,
    },
    /// The deadline of the call passed.
    #[error("the tool did not answer in time")]
    TimedOut,
    /// There are too many calls already; this one was not begun.
    #[error("the tool is busy")]
    Busy {
        /// Time after which to retry.
        retry_after: Duration,
    },
    /// The tool has ended the process that runs it too often; this call was not begun.
    #[error("the tool is suspended because it has ended its process several times")]
    Suspended {
        /// Time after which to retry.
        retry_after: Duration,
    },
    /// The tool is held back, as was found out when it was called; this call was not begun. The reason is for
    /// operators: the client is told what it is told of every call of what is held back.
    #[error("the tool is held back: {0}")]
    Held(String),
    /// The tool could not run, which no model can help. The client is told only that.
    #[error("the tool could not run")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
}

/// Failure of a tool that ran.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// For the model: what went wrong.
    pub message: String,
    /// More of the same, for programs.
    pub details: Option<Value>,
    /// Stack of the tool's code. Shown in development mode only.
    pub traceback: Option<String>,
}

/// Condition under which a call that has crashed may be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Always: it was not begun, or the system that carries it out knows a repeated call.
    Safe,
    /// Only if calling the tool twice does no more than calling it once: it may have been done.
    IfIdempotent,
    /// Never, since the same call cannot succeed.
    Never,
}

impl ToolError {
    /// The tool ran and failed because of `why`.
    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed(Failure {
            message: why.into(),
            details: None,
            traceback: None,
        })
    }

    /// The tool ran and failed because of `why`, with `details` for programs.
    pub fn failed_with(why: impl Into<String>, details: Value) -> Self {
        Self::Failed(Failure {
            message: why.into(),
            details: Some(details),
            traceback: None,
        })
    }

    /// The tool could not run because of `why`, which only an operator is told.
    pub fn broken(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Broken(why.into())
    }

    /// Stack of the tool's code: for the log, and for clients in development mode only.
    pub fn traceback(&self) -> Option<&str> {
        match self {
            Self::Failed(failure) => failure.traceback.as_deref(),
            _ => None,
        }
    }

    /// Returns true if the same call may succeed when it is repeated, whatever the tool does.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Failed(_)
            | Self::NeedsInput(_)
            | Self::Rejected(_)
            | Self::Lost { .. }
            | Self::Held(_)
            | Self::Broken(_) => false,
            Self::Crashed { repeat, .. } => *repeat == Repeat::Safe,
            Self::Unavailable { retry_after, .. } => retry_after.is_some(),
            Self::TimedOut | Self::Busy { .. } | Self::Suspended { .. } => true,
        }
    }

    /// Time after which to retry, if it is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } | Self::Suspended { retry_after } => Some(*retry_after),
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
