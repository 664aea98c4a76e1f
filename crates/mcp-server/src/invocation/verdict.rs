//! Decisions about calls, and what went wrong with them, for metrics and for the log.

use crate::offer::tool_numbers::ENDS;
use governance::Remaining;
use ledger::CallId;

/// Level of a line in the log: success, a mistake of the caller's or of a handler, or a fault for
/// operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Severity {
    Info,
    Warning,
    Error,
}

/// Decision about a call.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    /// `allow`, `deny`, or `replay`: it is answered as it was before.
    pub(crate) decision: &'static str,
    /// Reason of a refusal.
    pub(crate) reason: Option<&'static str>,
    /// The quota that was left then, if anything is limited.
    pub(crate) remaining: Option<Box<Remaining>>,
    /// Name of the refusal in the ledger.
    pub(crate) call: Option<CallId>,
}

/// A fault of a call, for operators.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) severity: Severity,
    /// Kind of fault.
    pub(crate) kind: &'static str,
    /// The whole story.
    pub(crate) message: String,
    /// Stack of the handler's code.
    pub(crate) stack: Option<String>,
}

/// The end of a call, as metrics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Answered.
    Ok,
    /// The call ran, and failed.
    Error,
    /// Arguments that did not fit.
    Invalid,
    /// Refused.
    Refused,
    /// The deadline passed.
    TimedOut,
    /// The process of the handler died.
    Crashed,
    /// The call could not run: the tool is busy, rests, or is broken.
    Unavailable,
    /// The call asks something first.
    Asked,
    /// A call that its client gave up.
    Cancelled,
}

// Each has a place among the numbers of a tool.
const _: () = assert!(Ended::Cancelled as usize + 1 == ENDS);

impl Ended {
    /// Number of the end among all ends, and the value of the label.
    pub(crate) fn numbered(self) -> (usize, &'static str) {
        (self as usize, self.as_str())
    }

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
