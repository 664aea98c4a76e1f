//! Approvals and idempotency keys beside the entries, and their changes by operations: the same for every store.

use crate::record::{
    approval::{Approval, ApprovalId, ApprovalProblem, ApprovalState},
    codec,
    entry::{End, MAX_ARGUMENTS_BYTES, MAX_TEXT_BYTES, Outcome},
    id::CallId,
    kept,
    note::{Note, NoteKind},
    operation::{Claim, ClaimRefusal, Kept, KeyClaim, MAX_KEPT_BYTES, Operation, OperationOutcome},
};
use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// Rows that are looked at together when they are tidied.
pub(crate) const MAX_TIDY_ROWS: usize = 64;

/// Time for which an approval that can no longer change is kept, in microseconds: 30 days.
pub(crate) const KEEP_APPROVALS_US: u64 = 30 * 24 * 60 * 60 * 1_000_000;

/// Approvals and keys, within the transaction of a group.
pub(crate) trait ClaimStore {
    type Error;

    /// The approval of this name.
    fn approval(
        &mut self,
        id: ApprovalId,
    ) -> impl Future<Output = Result<Option<Approval>, Self::Error>> + Send;

    /// An approval for this that is pending, approved or denied, needs the same approver, and
    /// expires after `now_us`; an approved one before others. A denied one stays so until it
    /// expires: asking again and again must not wear an approver down. A revoked one is not live.
    fn live_approval(
        &mut self,
        new: &crate::record::approval::NewApproval,
        now_us: u64,
    ) -> impl Future<Output = Result<Option<Approval>, Self::Error>> + Send;

    /// Number of approvals that are pending and expire after `now_us`: of this principal, with
    /// those that were declined at the client, and of all.
    fn pending(
        &mut self,
        principal: &str,
        now_us: u64,
    ) -> impl Future<Output = Result<(u64, u64), Self::Error>> + Send;

    /// Inserts an approval, or replaces the one of its name. `noted` tells whether the ledger says
    /// of its last decision or expiry.
    fn put_approval(
        &mut self,
        approval: &Approval,
        noted: bool,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Up to `max` approvals that were decided by another process, which the ledger does not say.
    fn unnoted(
        &mut self,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Approval>, Self::Error>> + Send;

    /// Up to `max` approvals that are pending or approved and expire at `now_us` or earlier.
    fn expired(
        &mut self,
        now_us: u64,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Approval>, Self::Error>> + Send;

    /// Removes what can no longer change: approvals that expired before `approvals_us`, and keys
    /// that no call runs under and that are remembered until `keys_us` or earlier.
    fn remove_old(
        &mut self,
        approvals_us: u64,
        keys_us: u64,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Row of an idempotency key.
    fn key(
        &mut self,
        principal: &str,
        key: &str,
    ) -> impl Future<Output = Result<Option<KeyRow>, Self::Error>> + Send;

    /// The key that this call holds.
    fn key_of(
        &mut self,
        call: CallId,
    ) -> impl Future<Output = Result<Option<KeyRow>, Self::Error>> + Send;

    /// Inserts what is known of a key, or replaces it.
    fn put_key(&mut self, row: &KeyRow) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Forgets a key.
    fn remove_key(
        &mut self,
        principal: &str,
        key: &str,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// Row of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyRow {
    pub(crate) claim: KeyClaim,
    pub(crate) state: KeyState,
}

/// State of the call that holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyState {
    Running,
    Done(Kept),
    /// The call began and has no known end, or was given up on its way.
    Unknown,
}

/// Outcomes of operations, and the entries that record them. The entries come after those of the
/// group, in the same transaction.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    pub(crate) outcomes: Vec<OperationOutcome>,
    pub(crate) body: Vec<u8>,
    pub(crate) count: u64,
}

impl Applied {
    fn note(&mut self, approval: &Approval, kind: NoteKind, at_us: u64) {
        approval.with_note(kind, at_us, |note: &Note<'_>| {
            codec::encode_note(CallId::new(at_us), note, &mut self.body);
        });
        self.count += 1;
    }

    /// Adds a note about the last decision.
    fn note_last_verdict(&mut self, approval: &Approval) {
        if let Some((kind, verdict)) = approval.last_verdict() {
            self.note(approval, kind, verdict.at_us);
        }
    }

    fn denied(&mut self, call: CallId, refusal: &ClaimRefusal, error_code: Option<i32>) {
        let end = End {
            error_code,
            message: Some(&refusal.to_string()),
            ..End::new(Outcome::Denied {
                reason: refusal.reason(),
            })
        };
        codec::encode_end(call, &end, &mut self.body);
        self.count += 1;
    }
}

/// Carries operations out in order, within one transaction.
pub(crate) async fn apply<S: ClaimStore>(
    store: &mut S,
    operations: &[Operation],
) -> Result<Applied, S::Error> {
    let mut applied = Applied::default();
    if operations.iter().any(|operation| {
        !matches!(
            operation,
            Operation::KeepResult { .. } | Operation::FindKey(_)
        )
    }) {
        // What another process has decided comes on record before anything is built upon it.
        while note_decisions(store, &mut applied).await? {}
    }
    for operation in operations {
        let outcome = one(store, operation, &mut applied).await?;
        applied.outcomes.push(outcome);
    }
    Ok(applied)
}

/// Puts on record what other processes have decided and what has expired, and removes what is old,
/// a few rows at a time. Tells whether there may be more.
pub(crate) async fn tidy<S: ClaimStore>(
    store: &mut S,
    now_us: u64,
) -> Result<(Applied, bool), S::Error> {
    let mut applied = Applied::default();
    let mut more = note_decisions(store, &mut applied).await?;
    let expired = store.expired(now_us, MAX_TIDY_ROWS).await?;
    more |= expired.len() == MAX_TIDY_ROWS;
    for mut approval in expired {
        approval.state = ApprovalState::Expired;
        store.put_approval(&approval, true).await?;
        applied.note(&approval, NoteKind::APPROVAL_EXPIRED, now_us);
    }
    store
        .remove_old(now_us.saturating_sub(KEEP_APPROVALS_US), now_us)
        .await?;
    Ok((applied, more))
}

/// The output of a future over rows that are there at once.
pub(crate) fn at_once<T>(future: impl Future<Output = T>) -> T {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut context) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a store in memory never waits"),
    }
}

async fn note_decisions<S: ClaimStore>(
    store: &mut S,
    applied: &mut Applied,
) -> Result<bool, S::Error> {
    let unnoted = store.unnoted(MAX_TIDY_ROWS).await?;
    for approval in &unnoted {
        store.put_approval(approval, true).await?;
        applied.note_last_verdict(approval);
    }
    Ok(unnoted.len() == MAX_TIDY_ROWS)
}

async fn one<S: ClaimStore>(
    store: &mut S,
    operation: &Operation,
    applied: &mut Applied,
) -> Result<OperationOutcome, S::Error> {
    match operation {
        Operation::RequestApproval { approval, bounds } => {
            let now_us = approval.requested_us;
            if let Some(live) = store.live_approval(approval, now_us).await? {
                return Ok(OperationOutcome::Approval(Box::new(live)));
            }
            if MAX_ARGUMENTS_BYTES < approval.arguments.len() {
                let problem = ApprovalProblem::TooLarge;
                return Ok(OperationOutcome::ApprovalRefused(problem));
            }
            let (of_principal, of_all) = store.pending(&approval.principal, now_us).await?;
            if bounds.per_principal <= of_principal || bounds.total <= of_all {
                let problem = ApprovalProblem::TooManyPending;
                return Ok(OperationOutcome::ApprovalRefused(problem));
            }
            let mut made = Approval::from(approval.clone());
            shorten(&mut made);
            store.put_approval(&made, true).await?;
            applied.note(&made, NoteKind::APPROVAL_REQUESTED, now_us);
            Ok(OperationOutcome::Approval(Box::new(made)))
        }
        Operation::DecideApproval { approval, verdict } => {
            let Some(mut found) = store.approval(*approval).await? else {
                return Ok(OperationOutcome::ApprovalRefused(ApprovalProblem::Missing));
            };
            if let Err(problem) = found.decide(verdict) {
                return Ok(OperationOutcome::ApprovalRefused(problem));
            }
            store.put_approval(&found, true).await?;
            applied.note_last_verdict(&found);
            Ok(OperationOutcome::Approval(Box::new(found)))
        }
        Operation::Claim {
            call,
            at_us,
            claims,
            refusal_code,
        } => {
            for claim in claims {
                if let Some(refusal) = refused(store, claim, *at_us).await? {
                    applied.denied(*call, &refusal, *refusal_code);
                    return Ok(OperationOutcome::ClaimRefused(refusal));
                }
            }
            for claim in claims {
                take(store, claim, *call, *at_us).await?;
            }
            Ok(OperationOutcome::Claimed)
        }
        Operation::KeepResult {
            call,
            outcome,
            result,
        } => {
            keep(store, *call, outcome, result.as_deref()).await?;
            Ok(OperationOutcome::Kept)
        }
        Operation::FindKey(claim) => Ok(OperationOutcome::Key(key_refused(store, claim).await?)),
    }
}

/// Callers choose how long their texts are. What is noted of an approval is kept whole, so that it
/// can be compared.
fn shorten(approval: &mut Approval) {
    for text in [
        &mut approval.principal,
        &mut approval.capability,
        &mut approval.reason,
    ] {
        text.truncate(codec::cut(text, MAX_TEXT_BYTES).len());
    }
}

/// Reason why a claim is refused, if it is.
async fn refused<S: ClaimStore>(
    store: &mut S,
    claim: &Claim,
    at_us: u64,
) -> Result<Option<ClaimRefusal>, S::Error> {
    match claim {
        Claim::Approval { approval, binding } => {
            let problem = match store.approval(*approval).await? {
                Some(found) => found.check_use(*binding, at_us).err(),
                None => Some(ApprovalProblem::Missing),
            };
            Ok(problem.map(ClaimRefusal::Approval))
        }
        Claim::Key(claim) => key_refused(store, claim).await,
    }
}

async fn key_refused<S: ClaimStore>(
    store: &mut S,
    claim: &KeyClaim,
) -> Result<Option<ClaimRefusal>, S::Error> {
    let Some(row) = store.key(&claim.principal, &claim.key).await? else {
        return Ok(None);
    };
    // A call that runs for longer than its key is remembered runs all the same.
    if row.claim.until_us <= claim.at_us && row.state != KeyState::Running {
        return Ok(None);
    }
    let call = row.claim.call;
    if row.claim.capability != claim.capability || row.claim.digest != claim.digest {
        return Ok(Some(ClaimRefusal::AnotherCall { call }));
    }
    Ok(Some(match row.state {
        KeyState::Running => ClaimRefusal::InFlight { call },
        KeyState::Done(result) => ClaimRefusal::Done { call, result },
        KeyState::Unknown => ClaimRefusal::Unknown { call },
    }))
}

/// Takes what has been found to be free.
async fn take<S: ClaimStore>(
    store: &mut S,
    claim: &Claim,
    call: CallId,
    at_us: u64,
) -> Result<(), S::Error> {
    match claim {
        Claim::Approval { approval, .. } => {
            if let Some(mut found) = store.approval(*approval).await? {
                found.use_up(call, at_us);
                store.put_approval(&found, true).await?;
            }
        }
        Claim::Key(claim) => {
            let mut claim = claim.clone();
            claim.call = call;
            let state = KeyState::Running;
            store.put_key(&KeyRow { claim, state }).await?;
        }
    }
    Ok(())
}

async fn keep<S: ClaimStore>(
    store: &mut S,
    call: CallId,
    outcome: &Outcome<()>,
    result: Option<&str>,
) -> Result<(), S::Error> {
    let Some(mut row) = store.key_of(call).await? else {
        return Ok(());
    };
    let done = |succeeded| {
        let result = result.filter(|text| kept::answer(text).len() <= MAX_KEPT_BYTES);
        KeyState::Done(Kept {
            succeeded,
            result: result.map(str::to_owned),
        })
    };
    row.state = match outcome {
        Outcome::Succeeded => done(true),
        Outcome::Failed => done(false),
        // It never ran: the next one with this key may.
        Outcome::Denied { .. } | Outcome::Invalid => {
            return store.remove_key(&row.claim.principal, &row.claim.key).await;
        }
        Outcome::TimedOut | Outcome::Cancelled | Outcome::Abandoned | Outcome::Unknown => {
            KeyState::Unknown
        }
    };
    store.put_key(&row).await
}
