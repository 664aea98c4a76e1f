//! Decisions about calls, and what went wrong with them, for metrics and for the log.

use governance::Remaining;
use ledger::CallId;

/// How much a line matters: what succeeded, what the caller or a handler did wrong, and what
/// operators have to look after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Info,
    Warning,
    Error,
}

/// What was decided about a call.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// `allow`, `deny`, or `replay`: it is answered as it was before.
    pub(crate) decision: &'static str,
    /// Why, of what is not allowed.
    pub(crate) reason: Option<&'static str>,
    /// What was left then, if anything is limited.
    pub(crate) remaining: Option<Remaining>,
    /// As the ledger has it, of what is not allowed.
    pub(crate) call: Option<CallId>,
}

/// What went wrong with a call, for operators.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) severity: Severity,
    /// What kind of thing it is.
    pub(crate) kind: &'static str,
    /// The whole story.
    pub(crate) message: String,
    /// Where in a handler's code.
    pub(crate) stack: Option<String>,
}

/// The end of a call, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
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

impl Ended {
    pub(crate) const COUNT: usize = 9;

    /// The value of the label.
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
}
