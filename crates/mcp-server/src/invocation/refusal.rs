//! Reasons why a call that governance lets through does not begin: no confirmation, an idempotency key that
//! cannot be used, or a tool of the search view that makes no such calls.

use crate::offer::search::caller_for;
use ledger::{ApprovalId, ApprovalProblem, ApprovalState, CallId};
use mcp_protocol::model::Effect;
use redaction::TooLong;

/// Refusal of a call that is not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unconfirmed {
    /// Reason.
    pub why: WhyUnconfirmed,
    /// The approval that is pending, or was refused.
    pub approval: Option<PendingApproval>,
    /// True if the ledger has the refusal already.
    pub(crate) on_record: bool,
}

/// An approval as a caller is told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingApproval {
    /// Id of the approval.
    pub id: ApprovalId,
    /// State of the approval.
    pub state: ApprovalState,
    /// End of its validity: microseconds since the epoch, UTC.
    pub expires_us: u64,
}

/// See [`Unconfirmed`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WhyUnconfirmed {
    /// The approval is pending.
    #[error("this call needs a confirmation, which is pending")]
    Pending,
    /// The approval is pending, and the client's user cannot be asked.
    #[error(
        "this call needs a confirmation, and its arguments are too long to be shown to the user \
         ({0}); the confirmation is pending"
    )]
    TooLongForUser(TooLong),
    /// The arguments are too large to be shown.
    #[error(
        "this call needs a confirmation, and its arguments are too long to be shown to anybody \
         ({0}): make several smaller calls, or send what is long as one text"
    )]
    TooLong(TooLong),
    /// The arguments cannot be shown unambiguously: this name is in an object twice.
    #[error(
        "this call needs a confirmation, and its arguments have {0:?} twice in one object: send each \
         name once"
    )]
    Repeated(Box<str>),
    /// The client's user was asked and said no.
    #[error("the user has declined this call")]
    Declined,
    /// The client's user was asked and did not say.
    #[error("the user was asked to confirm this call, and did not answer")]
    Dismissed,
    /// The client's user was asked and sent the form without saying yes.
    #[error("the user was asked to confirm this call, and sent the form without allowing it")]
    NotAllowed,
    /// The ledger says that it cannot be had, or used.
    #[error("this call needs a confirmation: {0}")]
    Approval(ApprovalProblem),
}

/// The most characters of a key.
pub(crate) const MAX_KEY_CHARS: usize = 255;

/// A key that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// A value that cannot be a key.
    #[error(
        "`io.owlclaw/idempotencyKey` must be a string of 1 to {MAX_KEY_CHARS} visible ASCII characters"
    )]
    Unfit,
    /// A key for a prompt, whose use would be counted again.
    #[error("`io.owlclaw/idempotencyKey` is for calls of tools; leave it out of `prompts/get`")]
    OfPrompt,
}

/// Refusal of a call under an idempotency key that another call has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told())]
pub struct KeyTaken {
    /// State of the other call.
    pub state: TakenBy,
    /// The other one.
    pub call: CallId,
    /// Answer of the call, as it was kept.
    pub(crate) answer: Option<Box<str>>,
    /// True if the ledger has the refusal already.
    pub(crate) on_record: bool,
}

/// State of the call that a key stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TakenBy {
    /// The call has not ended.
    #[error("the call with this idempotency key is under way; ask again for its answer")]
    InFlight,
    /// The call is another one: another tool, or other arguments.
    #[error("the idempotency key stands for another call; a new call needs a new key")]
    AnotherCall,
    /// The call may have been done: its end is unknown.
    #[error(
        "it is unknown how the call with this idempotency key ended; an operator has to find out \
         before it is made again with a new key"
    )]
    Unknown,
    /// The call has been done, and its answer is not kept.
    #[error("the call with this idempotency key has been done, and its answer was not kept")]
    Done,
}

impl TakenBy {
    /// Name in error data.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::AnotherCall => "another_call",
            Self::Unknown => "unknown",
            Self::Done => "done",
        }
    }
}

impl KeyTaken {
    /// True if the caller is answered with the other call's answer.
    pub(crate) fn is_answered(&self) -> bool {
        self.answer.is_some()
    }

    /// The message. Only of a call whose answer was not kept it says so.
    fn told(&self) -> String {
        if self.is_answered() {
            return "the call with this idempotency key has been done, and is answered as before"
                .to_owned();
        }
        self.state.to_string()
    }

    /// Reason in the ledger.
    pub(crate) fn reason(&self) -> &'static str {
        match self.state {
            TakenBy::InFlight => "idempotency_in_flight",
            TakenBy::AnotherCall => "idempotency_another_call",
            TakenBy::Unknown => "idempotency_unknown",
            TakenBy::Done => "idempotency_done",
        }
    }
}

/// A call that came through a tool of the search view which makes none of such effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool {}: call it by {}, and not by {}", may(*.effect), caller_for(*.effect), caller_for(*.at_most))]
pub struct TooGrave {
    /// The effect of the tool.
    pub effect: Effect,
    /// The gravest effect of calls that come as this one did.
    pub at_most: Effect,
}

impl TooGrave {
    /// The tool of the search view that makes the call.
    pub fn call_by(&self) -> &'static str {
        caller_for(self.effect)
    }
}

fn may(effect: Effect) -> &'static str {
    match effect {
        Effect::Read => "is read-only",
        Effect::Write => "changes something",
        Effect::Destructive => "may destroy something, as far as is known",
    }
}
