//! How calls ended, in numbers.

use crate::{
    invocation::{Invoked, failure::InvocationError},
    offer::{prompts::PromptFailure, resources::ReadFailure},
};
use adapter_tools::ToolError;
use prometheus::{Counter, Histogram, IntCounter};
use std::sync::OnceLock;

/// How a call ended, as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was answered.
    Ok,
    /// It ran, and says that it failed.
    Error,
    /// Its arguments did not fit.
    Invalid,
    /// It was not let through.
    Refused,
    /// It was not done by its deadline.
    TimedOut,
    /// What ran it has died.
    Crashed,
    /// It could not run: too many others do, or it rests, or it is broken.
    Unavailable,
    /// It asks something first.
    Asked,
    /// Its caller gave it up.
    Cancelled,
}

impl Outcome {
    const COUNT: usize = 9;

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Error => "error",
            Self::Invalid => "invalid",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Crashed => "crashed",
            Self::Unavailable => "unavailable",
            Self::Asked => "asked",
            Self::Cancelled => "cancelled",
        }
    }

    pub(crate) fn of(outcome: &Result<Invoked, InvocationError>) -> Self {
        match outcome {
            Ok(Invoked::Tool(result)) if result.is_error => Self::Error,
            Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Self::Ok,
            Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => Self::Asked,
            Err(error) => Self::of_error(error),
        }
    }

    pub(crate) fn of_error(error: &InvocationError) -> Self {
        match error {
            InvocationError::Unknown
            | InvocationError::Denied(_)
            | InvocationError::Unrecorded(_)
            | InvocationError::Unconfirmed(_)
            | InvocationError::KeyTaken(_) => Self::Refused,
            InvocationError::BadKey(_)
            | InvocationError::Invalid(_)
            | InvocationError::Tool(ToolError::Rejected(_))
            | InvocationError::Read(ReadFailure::Range(_))
            | InvocationError::Prompt(PromptFailure::Arguments(_)) => Self::Invalid,
            InvocationError::TimedOut(_) | InvocationError::Tool(ToolError::TimedOut) => {
                Self::TimedOut
            }
            InvocationError::Stopped(_) => Self::Cancelled,
            InvocationError::Tool(ToolError::Failed(_))
            | InvocationError::Read(ReadFailure::NotFound) => Self::Error,
            InvocationError::Tool(ToolError::Crashed { .. }) => Self::Crashed,
            InvocationError::Tool(ToolError::NeedsInput(_))
            | InvocationError::Prompt(PromptFailure::NeedsInput(_)) => Self::Asked,
            InvocationError::Tool(
                ToolError::Busy { .. } | ToolError::Suspended { .. } | ToolError::Broken(_),
            )
            | InvocationError::Read(ReadFailure::Unreadable(_))
            | InvocationError::Prompt(PromptFailure::Broken(_)) => Self::Unavailable,
        }
    }
}

/// What is counted of one tool. Looked up once: the registry takes a lock and several hashes.
pub(crate) struct ToolNumbers {
    seconds: Histogram,
    cost: Counter,
    outcomes: [OnceLock<IntCounter>; Outcome::COUNT],
    calls: Box<dyn Fn(&str) -> IntCounter + Send + Sync>,
}

impl ToolNumbers {
    pub(crate) fn new(
        seconds: Histogram,
        cost: Counter,
        calls: impl Fn(&str) -> IntCounter + Send + Sync + 'static,
    ) -> Self {
        Self {
            seconds,
            cost,
            outcomes: [const { OnceLock::new() }; Outcome::COUNT],
            calls: Box::new(calls),
        }
    }

    /// A call has ended like this. `cost` is in units of the currency.
    pub(crate) fn ended(&self, outcome: Outcome, seconds: f64, cost: f64) {
        let counter = &self.outcomes[outcome as usize];
        counter.get_or_init(|| (self.calls)(outcome.as_str())).inc();
        self.seconds.observe(seconds);
        self.cost.inc_by(cost);
    }
}
