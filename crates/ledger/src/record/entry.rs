//! Entries of the ledger.

use crate::record::{approval::ApprovalId, id::CallId, note::Noted};
use std::fmt;

/// The most bytes of a call's arguments that are kept; of longer ones the beginning and a digest.
pub const MAX_ARGUMENTS_BYTES: usize = 16 * 1024;

/// The most bytes of a call's result that are kept; of longer ones the beginning and a digest.
pub const MAX_RESULT_BYTES: usize = 16 * 1024;

/// The most bytes of an error message that are kept.
pub const MAX_MESSAGE_BYTES: usize = 4 * 1024;

/// The most bytes of any other text that are kept.
pub const MAX_TEXT_BYTES: usize = 1024;

/// The reason of refusing what does not exist. Callers choose what it is called, so refusals for this
/// reason are of the same kind whatever that is.
pub const UNKNOWN_CAPABILITY: &str = "unknown";

/// The reason of refusing what the caller may not know of. Such refusals are of the same kind as those
/// of what does not exist, so that callers cannot tell the two apart by what is written and when.
pub const HIDDEN_CAPABILITY: &str = "not_visible";

/// A SHA-256 digest.
pub type Digest = [u8; 32];

/// Kind of capability that a call uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A tool is called.
    Tool,
    /// A resource is read.
    Resource,
    /// Any other kind that is governed.
    Other,
}

/// A call as it begins. Longer texts than the bounds of this module are cut.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// Names the call.
    pub call: CallId,
    /// Time: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Principal, as governance knows it.
    pub principal: &'a str,
    /// Name that the caller gives itself. Never used for decisions.
    pub client_label: Option<&'a str>,
    /// Kind of the capability.
    pub kind: Kind,
    /// Capability, as `kind/name`.
    pub capability: &'a str,
    /// The JSON-RPC id of the request, as JSON text.
    pub request_id: &'a str,
    /// The JSON-RPC method.
    pub method: &'a str,
    /// Transport of the request: `stdio`, `http`.
    pub transport: &'a str,
    /// The protocol revision it was made in.
    pub protocol_version: &'a str,
    /// The session it belongs to, where there is one.
    pub session: Option<&'a str>,
    /// The W3C trace it belongs to, where the caller gave one.
    pub trace_id: Option<&'a str>,
    /// The version of the policy that is to decide on it.
    pub policy_version: u64,
    /// The arguments as JSON text, already redacted.
    pub arguments: &'a str,
    /// A digest of the arguments before redaction, if one is to be kept.
    pub arguments_digest: Option<Digest>,
    /// Expected cost of the call, in millionths of the currency.
    pub estimated_cost_micros: u64,
    /// The approval it uses up, if it needs one. If the end says that the call was denied, it did
    /// not get it.
    pub approval: Option<ApprovalId>,
    /// The idempotency key it claims, if its caller gave one.
    pub idempotency_key: Option<&'a str>,
    /// Time until which that key is remembered: microseconds since the epoch, UTC.
    pub key_until_us: Option<u64>,
    /// A digest of what is called, as it was defined at that time.
    pub definition_digest: Option<Digest>,
    /// The task it belongs to, if it runs as one.
    pub task: Option<&'a str>,
    /// The call whose result is told again, if this one only repeats it.
    pub replay_of: Option<CallId>,
    /// The way in which it was made, if that is another than by its own name.
    pub via: Option<&'a str>,
}

/// A call as it ended. Longer texts than the bounds of this module are cut.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Outcome.
    pub outcome: Outcome<&'a str>,
    /// The JSON-RPC error code that was answered, if any.
    pub error_code: Option<i32>,
    /// Message about a failure for the caller or the operator.
    pub message: Option<&'a str>,
    /// True if the answer was a tool result with `isError`.
    pub is_error: bool,
    /// The result as JSON text, already redacted; empty when there was none.
    pub result: &'a str,
    /// Length and digest of the whole result, if its caller was answered with a part of it.
    pub whole: Option<Cut>,
    /// Duration of the call, in microseconds.
    pub duration_us: u64,
    /// Final cost, in millionths of the currency.
    pub cost_micros: u64,
}

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome<S> {
    /// The call ran and succeeded.
    Succeeded,
    /// The call ran and failed.
    Failed,
    /// The call was refused and never ran.
    Denied {
        /// Reason, as governance names it.
        reason: S,
    },
    /// The call's arguments were wrong and it never ran.
    Invalid,
    /// The call ran out of time.
    TimedOut,
    /// The call was cancelled by its caller.
    Cancelled,
    /// The call has no known outcome: its future was dropped.
    Abandoned,
    /// The call has no known outcome: its process ended first.
    Unknown,
}

/// One line of the ledger, as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Sequence in the ledger, from 1, without gaps.
    pub sequence: u64,
    /// The call it is about. A note is about none and has a name of its own here.
    pub call: CallId,
    /// Event.
    pub event: Event,
}

/// Event on record, mostly of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "entries are read back one at a time, and nearly half of them are starts"
)]
pub enum Event {
    /// Start of a call; its end shows whether it was allowed.
    Started(Started),
    /// End of a call.
    Ended(Ended),
    /// Event other than a call.
    Noted(Noted),
}

/// A [`Start`], as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `Start`")]
pub struct Started {
    pub at_us: u64,
    pub principal: String,
    pub client_label: Option<String>,
    pub kind: Kind,
    pub capability: String,
    pub request_id: String,
    pub method: String,
    pub transport: String,
    pub protocol_version: String,
    pub session: Option<String>,
    pub trace_id: Option<String>,
    pub policy_version: u64,
    pub arguments: Clipped,
    pub arguments_digest: Option<Digest>,
    pub estimated_cost_micros: u64,
    pub approval: Option<ApprovalId>,
    pub idempotency_key: Option<String>,
    /// `None` of a call without a key, or by an earlier version.
    pub key_until_us: Option<u64>,
    pub definition_digest: Option<Digest>,
    pub task: Option<String>,
    pub replay_of: Option<CallId>,
    pub via: Option<String>,
}

/// An [`End`], as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `End`")]
pub struct Ended {
    pub outcome: Outcome<String>,
    pub error_code: Option<i32>,
    pub message: Option<String>,
    pub is_error: bool,
    pub result: Clipped,
    pub whole: Option<Cut>,
    pub duration_us: u64,
    pub cost_micros: u64,
    /// Digest of the answer that is kept under the call's idempotency key, zeros if none is; `None` of a
    /// call without a key, or by an earlier version.
    pub kept: Option<Digest>,
}

impl Ended {
    /// Reason of a refusal.
    pub(crate) fn reason(&self) -> Option<&str> {
        match &self.outcome {
            Outcome::Denied { reason } => Some(reason),
            _ => None,
        }
    }
}

/// Delivery of the answer to the caller: the first of the three levels on which a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// The caller was answered, with a result or an error.
    Answered,
    /// The call was given up before there was an answer.
    GivenUp,
    /// Unknown.
    Unknown,
}

/// Text of which perhaps only the beginning was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clipped {
    /// Text that was kept.
    pub text: String,
    /// Length and digest of the whole, when this is only its beginning.
    pub cut: Option<Cut>,
}

/// Facts about a text that was too long to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The bytes of the whole.
    pub whole_bytes: u64,
    /// The digest of the whole.
    pub digest: Digest,
}

impl<'a> Start<'a> {
    /// A start that says who, what and when, and leaves the rest empty.
    #[must_use]
    pub fn new(
        call: CallId,
        at_us: u64,
        principal: &'a str,
        kind: Kind,
        capability: &'a str,
    ) -> Self {
        Self {
            call,
            at_us,
            principal,
            client_label: None,
            kind,
            capability,
            request_id: "",
            method: "",
            transport: "",
            protocol_version: "",
            session: None,
            trace_id: None,
            policy_version: 0,
            arguments: "",
            arguments_digest: None,
            estimated_cost_micros: 0,
            approval: None,
            idempotency_key: None,
            key_until_us: None,
            definition_digest: None,
            task: None,
            replay_of: None,
            via: None,
        }
    }
}

impl<'a> End<'a> {
    /// An end that says how, and leaves the rest empty.
    #[must_use]
    pub fn new(outcome: Outcome<&'a str>) -> Self {
        Self {
            outcome,
            error_code: None,
            message: None,
            is_error: false,
            result: "",
            whole: None,
            duration_us: 0,
            cost_micros: 0,
        }
    }
}

impl Ended {
    /// On the level of the transport: whether the caller was answered.
    #[must_use]
    pub fn transport(&self) -> Delivery {
        match self.outcome {
            Outcome::Succeeded
            | Outcome::Failed
            | Outcome::Denied { .. }
            | Outcome::Invalid
            | Outcome::TimedOut => Delivery::Answered,
            Outcome::Cancelled | Outcome::Abandoned => Delivery::GivenUp,
            Outcome::Unknown => Delivery::Unknown,
        }
    }

    /// On the level of the protocol: the error code that was answered. `None` when the answer was a
    /// result, or when there was no answer.
    #[must_use]
    pub fn protocol(&self) -> Option<i32> {
        self.error_code
    }

    /// On the level of the tool: whether its result says `isError`. `None` when there was no
    /// result.
    #[must_use]
    pub fn tool(&self) -> Option<bool> {
        let ran = matches!(self.outcome, Outcome::Succeeded | Outcome::Failed);
        (ran && self.error_code.is_none()).then_some(self.is_error)
    }
}

impl<S> Outcome<S> {
    /// The same without the words that belong to it.
    #[must_use]
    pub fn plain(&self) -> Outcome<()> {
        match self {
            Self::Succeeded => Outcome::Succeeded,
            Self::Failed => Outcome::Failed,
            Self::Denied { .. } => Outcome::Denied { reason: () },
            Self::Invalid => Outcome::Invalid,
            Self::TimedOut => Outcome::TimedOut,
            Self::Cancelled => Outcome::Cancelled,
            Self::Abandoned => Outcome::Abandoned,
            Self::Unknown => Outcome::Unknown,
        }
    }

    /// Name, the same in the store, in logs and in metrics.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Denied { .. } => "denied",
            Self::Invalid => "invalid",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Abandoned => "abandoned",
            Self::Unknown => "unknown",
        }
    }

    /// Returns true if the call counts against rates: all do, but those that were refused.
    #[must_use]
    pub fn counts_as_call(&self) -> bool {
        !matches!(self, Self::Denied { .. })
    }
}

impl<S> fmt::Display for Outcome<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Delivery {
    /// Name, the same in every format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::GivenUp => "given_up",
            Self::Unknown => "unknown",
        }
    }
}

impl Kind {
    /// Name in the store.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Resource => "resource",
            Self::Other => "other",
        }
    }
}
