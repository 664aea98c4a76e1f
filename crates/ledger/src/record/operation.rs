//! Operations within the transaction that stores a group of entries.
//!
//! Approvals and keys change what may run, so they change together with the entries that say so:
//! no approval is used by a call that is not on record, and no call is on record as having used
//! one that can be used again.

use crate::record::{
    approval::{
        Approval, ApprovalId, ApprovalProblem, ApprovalState, Approver, Decision, NewApproval,
        PendingBounds, Verdict,
    },
    codec::{DecodeError, Input, put_option, put_text, put_u64},
    entry::{Digest, Outcome},
    id::CallId,
};

/// The most bytes of a result that are kept for a call's key; a larger one is not.
pub const MAX_KEPT_BYTES: usize = 256 * 1024;

/// One change, or question, to what a store keeps beside the entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Asks for an approval. If one with the same binding is pending, approved or denied, and
    /// has not expired, nothing is done and that one is the outcome.
    RequestApproval {
        /// The new one.
        approval: NewApproval,
        /// Bounds on pending approvals.
        bounds: PendingBounds,
    },
    /// Decides a pending approval, or takes a decision back.
    DecideApproval {
        /// Id of the approval.
        approval: ApprovalId,
        /// The decision and its decider.
        verdict: Verdict,
    },
    /// Claims what a call needs before it may run, all or nothing. If it is refused, the store
    /// ends the call as denied in the same transaction.
    Claim {
        /// The call, whose start is in the group.
        call: CallId,
        /// Time: microseconds since the epoch, UTC.
        at_us: u64,
        /// Claims in order; the first refused one is reported.
        claims: Vec<Claim>,
        /// The error code that a refusal is answered with, for the record.
        refusal_code: Option<i32>,
    },
    /// Keeps how a call ended that holds a key; nothing is done if it holds none.
    KeepResult {
        /// The call, whose end is in the group.
        call: CallId,
        /// Outcome. A call that never ran gives its key back.
        outcome: Outcome<()>,
        /// Answer for a caller that repeats the call, if it is known. More than [`MAX_KEPT_BYTES`]
        /// is not kept.
        result: Option<String>,
    },
    /// Asks what a claim of this key would be told. Changes nothing.
    FindKey(KeyClaim),
}

/// Condition of a call that must be met before it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// An approval, which it uses up.
    Approval {
        /// Id of the approval.
        approval: ApprovalId,
        /// Digest of the call: [`crate::record::approval::Binding::digest`].
        binding: Digest,
    },
    /// An idempotency key, under which no other call runs.
    Key(KeyClaim),
}

/// A call's wish for an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyClaim {
    /// Principal of the key; every principal has keys of its own.
    pub principal: String,
    /// The key, as the caller chose it.
    pub key: String,
    /// Capability that is called, as `kind/name`.
    pub capability: String,
    /// A digest of the capability and its arguments: the same key must mean the same call.
    pub digest: Digest,
    /// The call that wants it.
    pub call: CallId,
    /// Time: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Until when the key is remembered.
    pub until_us: u64,
}

/// Kept result of the call that holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// True if the call succeeded; it ran and failed otherwise.
    pub succeeded: bool,
    /// Answer for a caller that repeats the call; `None` if it was not kept.
    pub result: Option<String>,
}

/// Reason why a call may not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRefusal {
    /// The call has no valid approval.
    #[error("{0}")]
    Approval(ApprovalProblem),
    /// A call with this key runs.
    #[error("a call with this idempotency key is running")]
    InFlight {
        /// Id of that call.
        call: CallId,
    },
    /// The key belongs to another call: other arguments, or another capability.
    #[error("the idempotency key belongs to another call")]
    AnotherCall {
        /// Id of that call.
        call: CallId,
    },
    /// The call has run already.
    #[error("the call with this idempotency key has ended")]
    Done {
        /// Id of that call.
        call: CallId,
        /// Result of that call.
        result: Kept,
    },
    /// A call with this key began, and its outcome is unknown: a person must look.
    #[error("it is unknown how the call with this idempotency key ended")]
    Unknown {
        /// Id of that call.
        call: CallId,
    },
}

/// Outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationOutcome {
    /// Of a request or a decision: the approval as it is now.
    Approval(Box<Approval>),
    /// Of a request or a decision: nothing was done.
    ApprovalRefused(ApprovalProblem),
    /// Of a claim: the call may run.
    Claimed,
    /// Of a claim: the call may not run and has been ended as denied.
    ClaimRefused(ClaimRefusal),
    /// Of the end of a call.
    Kept,
    /// Of a question: `None` when the key is free.
    Key(Option<ClaimRefusal>),
}

impl Operation {
    /// Returns true if the operation may change anything.
    pub(crate) fn changes(&self) -> bool {
        !matches!(self, Self::FindKey(_))
    }
}

impl ClaimRefusal {
    /// The reason of the denial that is put on record.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Approval(_) => "confirmation",
            Self::InFlight { .. } => "idempotency_in_flight",
            Self::AnotherCall { .. } => "idempotency_another_call",
            Self::Done { .. } => "idempotency_done",
            Self::Unknown { .. } => "idempotency_unknown",
        }
    }
}

const APPROVAL: u8 = 1;
const APPROVAL_REFUSED: u8 = 2;
const CLAIMED: u8 = 3;
const CLAIM_REFUSED: u8 = 4;
const KEPT: u8 = 5;
const KEY: u8 = 6;

/// Outcomes to bytes, for a store to keep with the group until it knows that they are not asked for
/// again.
pub(crate) fn encode_outcomes(outcomes: &[OperationOutcome]) -> Vec<u8> {
    let mut out = Vec::new();
    for outcome in outcomes {
        match outcome {
            OperationOutcome::Approval(approval) => {
                out.push(APPROVAL);
                put_approval(&mut out, approval);
            }
            OperationOutcome::ApprovalRefused(problem) => {
                out.extend_from_slice(&[APPROVAL_REFUSED, *problem as u8]);
            }
            OperationOutcome::Claimed => out.push(CLAIMED),
            OperationOutcome::ClaimRefused(refusal) => {
                out.push(CLAIM_REFUSED);
                put_refusal(&mut out, refusal);
            }
            OperationOutcome::Kept => out.push(KEPT),
            OperationOutcome::Key(refusal) => {
                out.push(KEY);
                put_option(&mut out, refusal.as_ref(), put_refusal);
            }
        }
    }
    out
}

/// Outcomes from their bytes.
pub(crate) fn decode_outcomes(bytes: &[u8]) -> Result<Vec<OperationOutcome>, DecodeError> {
    let mut input = Input(bytes);
    let mut outcomes = Vec::new();
    while !input.0.is_empty() {
        outcomes.push(match input.byte()? {
            APPROVAL => OperationOutcome::Approval(Box::new(approval(&mut input)?)),
            APPROVAL_REFUSED => OperationOutcome::ApprovalRefused(problem(&mut input)?),
            CLAIMED => OperationOutcome::Claimed,
            CLAIM_REFUSED => OperationOutcome::ClaimRefused(refusal(&mut input)?),
            KEPT => OperationOutcome::Kept,
            KEY => OperationOutcome::Key(input.option(refusal)?),
            _ => return Err(DecodeError::Unknown),
        });
    }
    Ok(outcomes)
}

fn put_whole(out: &mut Vec<u8>, text: &str) {
    put_text(out, text, text.len());
}

fn put_approval(out: &mut Vec<u8>, approval: &Approval) {
    out.extend_from_slice(approval.id.0.as_bytes());
    out.extend_from_slice(&approval.binding);
    for text in [
        &approval.principal,
        &approval.capability,
        &approval.arguments,
        &approval.reason,
    ] {
        put_whole(out, text);
    }
    for number in [
        approval.policy_version,
        approval.requested_us,
        approval.expires_us,
    ] {
        put_u64(out, number);
    }
    put_whole(out, approval.needs.as_str());
    put_whole(out, approval.state.as_str());
    put_option(out, approval.decided.as_ref(), put_verdict);
    put_option(out, approval.revoked.as_ref(), put_verdict);
    put_option(out, approval.used_by, put_call);
    put_option(out, approval.used_us, put_u64);
}

fn approval(input: &mut Input<'_>) -> Result<Approval, DecodeError> {
    // The fields of a struct expression are read in the order they are written here.
    Ok(Approval {
        id: ApprovalId(input.uuid()?),
        binding: input.array()?,
        principal: input.text()?,
        capability: input.text()?,
        arguments: input.text()?,
        reason: input.text()?,
        policy_version: input.u64()?,
        requested_us: input.u64()?,
        expires_us: input.u64()?,
        needs: Approver::named(&input.text()?),
        state: ApprovalState::named(&input.text()?).ok_or(DecodeError::Unknown)?,
        decided: input.option(verdict)?,
        revoked: input.option(verdict)?,
        used_by: input.option(call)?,
        used_us: input.option(Input::u64)?,
    })
}

fn put_verdict(out: &mut Vec<u8>, verdict: &Verdict) {
    put_whole(out, verdict.decision.as_str());
    put_whole(out, &verdict.by);
    put_option(out, verdict.proof.as_deref(), put_whole);
    put_option(out, verdict.reason.as_deref(), put_whole);
    put_u64(out, verdict.at_us);
}

fn verdict(input: &mut Input<'_>) -> Result<Verdict, DecodeError> {
    Ok(Verdict {
        decision: Decision::named(&input.text()?).ok_or(DecodeError::Unknown)?,
        by: input.text()?,
        proof: input.option(Input::text)?,
        reason: input.option(Input::text)?,
        at_us: input.u64()?,
    })
}

fn problem(input: &mut Input<'_>) -> Result<ApprovalProblem, DecodeError> {
    let number = input.byte()?;
    ApprovalProblem::ALL
        .into_iter()
        .find(|problem| *problem as u8 == number)
        .ok_or(DecodeError::Unknown)
}

fn put_call(out: &mut Vec<u8>, call: CallId) {
    out.extend_from_slice(call.0.as_bytes());
}

fn call(input: &mut Input<'_>) -> Result<CallId, DecodeError> {
    input.uuid().map(CallId)
}

fn put_refusal(out: &mut Vec<u8>, refusal: &ClaimRefusal) {
    let (mark, call) = match refusal {
        ClaimRefusal::Approval(problem) => {
            out.extend_from_slice(&[0, *problem as u8]);
            return;
        }
        ClaimRefusal::InFlight { call } => (1, call),
        ClaimRefusal::AnotherCall { call } => (2, call),
        ClaimRefusal::Done { call, .. } => (3, call),
        ClaimRefusal::Unknown { call } => (4, call),
    };
    out.push(mark);
    put_call(out, *call);
    if let ClaimRefusal::Done { result, .. } = refusal {
        out.push(u8::from(result.succeeded));
        put_option(out, result.result.as_deref(), put_whole);
    }
}

fn refusal(input: &mut Input<'_>) -> Result<ClaimRefusal, DecodeError> {
    Ok(match input.byte()? {
        0 => ClaimRefusal::Approval(problem(input)?),
        1 => ClaimRefusal::InFlight { call: call(input)? },
        2 => ClaimRefusal::AnotherCall { call: call(input)? },
        3 => ClaimRefusal::Done {
            call: call(input)?,
            result: Kept {
                succeeded: input.flag()?,
                result: input.option(Input::text)?,
            },
        },
        4 => ClaimRefusal::Unknown { call: call(input)? },
        _ => return Err(DecodeError::Unknown),
    })
}
