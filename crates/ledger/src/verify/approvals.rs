use super::{Fault, Stop, Wrong};
use crate::{
    Approval, ApprovalId, ApprovalRow, ApprovalState, Filter, NoteFilter, NoteKind, NoteRecord,
    Noted, Outcome, QueryError, ReadLedger, checkpoint::hex,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// How often a row is compared that a server may have changed while it was.
const MAX_ATTEMPTS: usize = 3;

/// Notes about one approval that are looked at; there are three at most.
const MAX_NOTES: usize = 16;

/// Calls that name an approval and are looked at together.
const PAGE: usize = 64;

/// Compares approvals with what the entries say of them.
pub(super) fn check(ledger: &mut dyn ReadLedger) -> Result<(), Stop> {
    let mut after = None;
    loop {
        let page = ledger.approval_rows(after)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.approval.id);
        for row in page {
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

/// Whether nothing has been changed of what was asked for.
fn is_as_requested(approval: &Approval, requested: &Noted) -> bool {
    let Ok(detail) = serde_json::from_str::<Value>(&requested.detail.text) else {
        return false;
    };
    let text = |name: &str| detail.get(name).and_then(Value::as_str);
    let number = |name: &str| detail.get(name).and_then(Value::as_u64);
    let shown = hex(&Sha256::digest(&approval.arguments));
    text("principal") == Some(&approval.principal)
        && text("capability") == Some(&approval.capability)
        && text("binding") == Some(&hex(&approval.binding))
        && text("needs") == Some(approval.needs.as_str())
        && text("reason") == Some(&approval.reason)
        && text("shown_digest") == Some(&shown)
        && number("requested_us") == Some(approval.requested_us)
        && number("expires_us") == Some(approval.expires_us)
        && requested.policy_version == approval.policy_version
}

/// Whether the entries say how far it has come.
fn has_come_so_far(
    ledger: &mut dyn ReadLedger,
    row: &ApprovalRow,
    notes: &[NoteRecord],
) -> Result<bool, QueryError> {
    let approval = &row.approval;
    let decided = note(notes, &NoteKind::APPROVAL_DECIDED).map(|note| &note.noted);
    let is_decided_as = |state: ApprovalState| {
        decided.is_some_and(|noted| {
            let detail = serde_json::from_str::<Value>(&noted.detail.text).unwrap_or_default();
            detail["state"] == state.as_str()
                && approval.decided_by.as_deref() == Some(&noted.actor)
                && approval.decided_us == Some(noted.at_us)
        })
    };
    let is_undecided = decided.is_none();
    let has_expired = note(notes, &NoteKind::APPROVAL_EXPIRED).is_some();
    let unused = approval.used_by.is_none() && approval.used_us.is_none();
    Ok(match approval.state {
        ApprovalState::Pending => {
            is_undecided && !has_expired && unused && approval.decided_by.is_none()
        }
        // Decided beside a server, which has not put it on record yet.
        ApprovalState::Approved | ApprovalState::Denied if !row.noted => {
            is_undecided && unused && !is_used(ledger, approval)?
        }
        state @ (ApprovalState::Approved | ApprovalState::Denied) => {
            is_decided_as(state) && unused && !is_used(ledger, approval)?
        }
        ApprovalState::Expired => {
            has_expired
                && unused
                && (is_undecided || is_decided_as(ApprovalState::Approved))
                && !is_used(ledger, approval)?
        }
        ApprovalState::Used => {
            is_decided_as(ApprovalState::Approved)
                && match approval.used_by {
                    None => false,
                    Some(call) => ledger
                        .call(call)?
                        .is_some_and(|record| record.started.approval == Some(approval.id)),
                }
        }
    })
}

/// Whether a call was let through with this approval.
fn is_used(ledger: &mut dyn ReadLedger, approval: &Approval) -> Result<bool, QueryError> {
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
            !matches!(outcome, Some(Outcome::Denied { .. }))
        });
        if used {
            return Ok(true);
        }
    }
}
