use super::{Fault, Stop, Wrong, keys};
use crate::{
    query::{ApprovalRow, Filter, NoteFilter, NoteRecord, QueryError, ReadLedger},
    record::{
        approval::{Approval, ApprovalId, ApprovalState, Decision, Verdict},
        codec,
        entry::{Event, MAX_TEXT_BYTES, Outcome},
        id::CallId,
        note::{NoteKind, Noted},
    },
    recorder::system_now_us,
    store::claims::KEEP_APPROVALS_US,
};
use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// Number of attempts to compare a row that a server may have changed meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// Notes about one approval that are looked at; there are three at most.
const MAX_NOTES: usize = 16;

/// Calls that name an approval and are looked at together.
const PAGE: usize = 64;

/// Time beyond its own for which a row must be there, in microseconds: a day less than it is kept,
/// for clocks that differ.
const KEEP_US: u64 = KEEP_APPROVALS_US - 24 * 60 * 60 * 1_000_000;

/// Approvals that were asked for and idempotency keys that were claimed, and whose rows are not there.
pub(super) struct Missing {
    /// The latest time that any server is known to have seen: a server whose clock was wrong may
    /// have removed a row that was not over by another clock.
    latest_us: u64,
    /// The one that would have to be there for longest.
    last: Option<Absent>,
}

/// Row that is not there.
struct Absent {
    /// The entry that says that it was made.
    sequence: u64,
    /// Time until which it must be there: microseconds since the epoch, UTC.
    until_us: u64,
    table: &'static str,
}

impl Missing {
    pub(super) fn new(now_us: u64) -> Self {
        Self {
            latest_us: now_us,
            last: None,
        }
    }

    /// An entry goes by. Rows are there from before their entries can be seen until long after
    /// their time, so that a server that writes meanwhile makes no difference.
    pub(super) fn entry(
        &mut self,
        ledger: &mut dyn ReadLedger,
        sequence: u64,
        call: CallId,
        event: &Event,
    ) -> Result<(), QueryError> {
        let (at_us, until_us, table) = match event {
            Event::Noted(noted) if noted.kind == NoteKind::APPROVAL_REQUESTED => {
                (noted.at_us, needed_until(noted), "approval")
            }
            Event::Noted(noted) => (noted.at_us, 0, ""),
            Event::Started(started) => (
                started.at_us,
                keys::needed_until(started),
                "idempotency_key",
            ),
            Event::Ended(_) => return Ok(()),
        };
        self.latest_us = self.latest_us.max(at_us);
        let is_later = |last: &Absent| last.until_us < until_us;
        if !self.must_be(until_us) || !self.last.as_ref().is_none_or(is_later) {
            return Ok(());
        }
        let is_absent = match event {
            Event::Noted(noted) => match noted.subject.parse() {
                Ok(id) => ledger.approval(id)?.is_none(),
                Err(_) => false,
            },
            Event::Started(_) | Event::Ended(_) => keys::lacks(ledger, call)?,
        };
        if is_absent {
            self.last = Some(Absent {
                sequence,
                until_us,
                table,
            });
        }
        Ok(())
    }

    fn must_be(&self, until_us: u64) -> bool {
        self.latest_us < until_us
    }

    /// All has gone by.
    pub(super) fn finish(&mut self) -> Result<(), Stop> {
        // Rows may have been over before they were looked for, if all took long.
        self.latest_us = self.latest_us.max(system_now_us());
        match self.last {
            Some(Absent {
                sequence,
                until_us,
                table,
            }) if self.must_be(until_us) => Err(Wrong::at(sequence, Fault::TableDiffers { table })),
            _ => Ok(()),
        }
    }
}

/// Time until which the row of an approval that was asked for must be there.
fn needed_until(noted: &Noted) -> u64 {
    let detail = serde_json::from_str::<Value>(&noted.detail.text).unwrap_or_default();
    let expires_us = detail["expires_us"].as_u64();
    expires_us.map_or(0, |expires_us| expires_us.saturating_add(KEEP_US))
}

/// Compares approvals with what the entries say of them, but for those that were asked for before entries which cannot be
/// read: what became of them may be among these.
pub(super) fn check(ledger: &mut dyn ReadLedger, unread_until_us: Option<u64>) -> Result<(), Stop> {
    let mut after = None;
    loop {
        let page = ledger.approval_rows(after)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.approval.id);
        for row in page {
            if unread_until_us.is_some_and(|until| row.approval.requested_us <= until) {
                continue;
            }
            check_row(ledger, row)?;
        }
    }
}

fn check_row(ledger: &mut dyn ReadLedger, mut row: ApprovalRow) -> Result<(), Stop> {
    let id = row.approval.id;
    let mut sequence = None;
    for _ in 0..MAX_ATTEMPTS {
        let filter = NoteFilter {
            subject: Some(&id.to_string()),
            ..NoteFilter::default()
        };
        let notes = ledger.notes(MAX_NOTES, filter)?;
        let requested = note(&notes, &NoteKind::APPROVAL_REQUESTED);
        sequence = requested.map(|note| note.sequence);
        if requested.is_some_and(|note| is_as_requested(&row.approval, &note.noted))
            && has_come_so_far(ledger, &row, &notes)?
        {
            return Ok(());
        }
        // It may have been changed between the row and the notes.
        match again(ledger, id)? {
            Some(now) => row = now,
            None => return Ok(()),
        }
    }
    let table = "approval";
    Err(Stop::Wrong(Wrong {
        sequence,
        what: Fault::TableDiffers { table },
    }))
}

fn again(ledger: &mut dyn ReadLedger, id: ApprovalId) -> Result<Option<ApprovalRow>, QueryError> {
    let before = id.0.as_u128().checked_sub(1);
    let rows = ledger.approval_rows(before.map(|it| ApprovalId(Uuid::from_u128(it))))?;
    Ok(rows.into_iter().find(|row| row.approval.id == id))
}

fn note<'a>(notes: &'a [NoteRecord], kind: &NoteKind) -> Option<&'a NoteRecord> {
    notes.iter().find(|note| note.noted.kind == *kind)
}

/// Returns true if nothing has been changed of the request.
fn is_as_requested(approval: &Approval, requested: &Noted) -> bool {
    let Ok(detail) = serde_json::from_str::<Value>(&requested.detail.text) else {
        return false;
    };
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    // Tables have no larger ones.
    let number = |name: &str| Some(detail.get(name)?.as_u64()?.min(i64::MAX as u64));
    let shown = HEXLOWER.encode(&Sha256::digest(&approval.arguments));
    text("principal") == Some(&approval.principal)
        && text("capability") == Some(&approval.capability)
        && text("binding") == Some(&HEXLOWER.encode(&approval.binding))
        && text("needs") == Some(approval.needs.as_str())
        && text("reason") == Some(&approval.reason)
        && text("shown_digest") == Some(&shown)
        && number("requested_us") == Some(approval.requested_us)
        && number("expires_us") == Some(approval.expires_us)
        && requested.policy_version == approval.policy_version
}

/// Returns true if the entries show this state.
fn has_come_so_far(
    ledger: &mut dyn ReadLedger,
    row: &ApprovalRow,
    notes: &[NoteRecord],
) -> Result<bool, QueryError> {
    let approval = &row.approval;
    let decided = note(notes, &NoteKind::APPROVAL_DECIDED).map(|note| &note.noted);
    let revoked = note(notes, &NoteKind::APPROVAL_REVOKED).map(|note| &note.noted);
    let is_decided_as = |state: ApprovalState| {
        decided.is_some_and(|noted| says(noted, state, "decided", approval.decided.as_ref()))
    };
    // What was decided last: that, if the ledger says it.
    let is_decided = || {
        let state = approval.decided.as_ref().map(|it| it.decision);
        is_decided_as(match state {
            Some(Decision::Deny) => ApprovalState::Denied,
            _ => ApprovalState::Approved,
        })
    };
    let is_undecided = decided.is_none();
    let has_expired = note(notes, &NoteKind::APPROVAL_EXPIRED).is_some();
    let unused = approval.used_by.is_none() && approval.used_us.is_none();
    Ok(match approval.state {
        ApprovalState::Pending => {
            is_undecided
                && !has_expired
                && unused
                && approval.decided.is_none()
                && approval.revoked.is_none()
        }
        ApprovalState::Revoked => {
            let is_revoked = match (row.noted, revoked) {
                (false, revoked) => revoked.is_none(),
                (true, None) => false,
                (true, Some(noted)) => {
                    let state = ApprovalState::Revoked;
                    let decided = approval.decided.as_ref().map(Verdict::to_json);
                    says(noted, state, "revoked", approval.revoked.as_ref())
                        && detail(noted)["decided"] == decided.unwrap_or_default()
                }
            };
            is_revoked
                && (is_undecided || is_decided())
                && unused
                && !is_used(ledger, approval, None)?
        }
        // Nobody has taken it back.
        _ if approval.revoked.is_some() || revoked.is_some() => false,
        // Decided beside a server, which has not put it on record yet.
        ApprovalState::Approved | ApprovalState::Denied if !row.noted => {
            is_undecided && unused && !is_used(ledger, approval, None)?
        }
        state @ (ApprovalState::Approved | ApprovalState::Denied) => {
            is_decided_as(state) && unused && !is_used(ledger, approval, None)?
        }
        ApprovalState::Expired => {
            has_expired
                && unused
                && (is_undecided || is_decided_as(ApprovalState::Approved))
                && !is_used(ledger, approval, None)?
        }
        ApprovalState::Used => {
            is_decided_as(ApprovalState::Approved)
                && match approval.used_by {
                    None => false,
                    Some(call) => {
                        ledger
                            .call(call)?
                            .is_some_and(|record| record.started.approval == Some(approval.id))
                            && !is_used(ledger, approval, Some(call))?
                    }
                }
        }
    })
}

fn detail(noted: &Noted) -> Value {
    serde_json::from_str(&noted.detail.text).unwrap_or_default()
}

/// Returns true if a note records this decision, in its member of this name, and the state after
/// it.
fn says(noted: &Noted, state: ApprovalState, member: &str, verdict: Option<&Verdict>) -> bool {
    let detail = detail(noted);
    let Some(verdict) = verdict else {
        return false;
    };
    // Older versions told neither proof nor reason, and kept neither.
    let is_same = match &detail[member] {
        Value::Null => verdict.proof.is_none() && verdict.reason.is_none(),
        told => *told == verdict.to_json(),
    };
    is_same
        && detail["state"] == state.as_str()
        && codec::cut(&verdict.by, MAX_TEXT_BYTES) == noted.actor
        && verdict.at_us == noted.at_us.min(i64::MAX as u64)
}

/// Returns true if a call other than `except` was let through with this approval.
fn is_used(
    ledger: &mut dyn ReadLedger,
    approval: &Approval,
    except: Option<CallId>,
) -> Result<bool, QueryError> {
    let mut before = None;
    loop {
        let filter = Filter {
            approval: Some(approval.id),
            before,
            ..Filter::default()
        };
        let calls = ledger.recent(PAGE, filter)?;
        let Some(last) = calls.last() else {
            return Ok(false);
        };
        before = Some(last.cursor());
        // Who was refused has not used it.
        let used = calls.iter().any(|call| {
            let outcome = call.ended.as_ref().map(|ended| &ended.outcome);
            Some(call.call) != except && !matches!(outcome, Some(Outcome::Denied { .. }))
        });
        if used {
            return Ok(true);
        }
    }
}
