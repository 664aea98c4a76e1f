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
