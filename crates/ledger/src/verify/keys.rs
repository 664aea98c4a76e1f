use super::{Fault, Stop, Wrong};
use crate::{CallId, KeyHeld, MAX_TEXT_BYTES, Outcome, QueryError, ReadLedger, codec};
use uuid::Uuid;

/// How often a row is compared that a server may have changed while it was.
const MAX_ATTEMPTS: usize = 3;

/// Compares idempotency keys with what the entries say of the calls that hold them. One that is gone is
/// not missed: keys are given back, and forgotten when their time has run out, without an entry.
pub(super) fn check(ledger: &mut dyn ReadLedger) -> Result<(), Stop> {
    let mut after = None;
    loop {
        let page = ledger.keys_held(after)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.call);
        for row in page {
            check_row(ledger, row)?;
        }
    }
}

fn check_row(ledger: &mut dyn ReadLedger, mut row: KeyHeld) -> Result<(), Stop> {
    let call = row.call;
    for _ in 0..MAX_ATTEMPTS {
        if is_on_record(ledger, &row)? {
            return Ok(());
        }
        // It may have been changed between the row and the entries.
        match again(ledger, &row)? {
            Some(now) => row = now,
            None => return Ok(()),
        }
    }
    let sequence = ledger.call(call)?.map(|record| record.sequence);
    let table = "idempotency_key";
    Err(Stop::Wrong(Wrong {
        sequence,
        what: Fault::TableDiffers { table },
    }))
}

/// The row as it is now. Another one of the same call says nothing for it.
fn again(ledger: &mut dyn ReadLedger, row: &KeyHeld) -> Result<Option<KeyHeld>, QueryError> {
    let before = row.call.0.as_u128().checked_sub(1);
    let rows = ledger.keys_held(before.map(|it| CallId(Uuid::from_u128(it))))?;
    let is_it =
        |it: &KeyHeld| (it.call, &it.principal, &it.key) == (row.call, &row.principal, &row.key);
    Ok(rows.into_iter().find(is_it))
}

/// Whether there is such a call, which has come as far as the row says.
fn is_on_record(ledger: &mut dyn ReadLedger, row: &KeyHeld) -> Result<bool, QueryError> {
    let Some(record) = ledger.call(row.call)? else {
        return Ok(false);
    };
    let started = &record.started;
    let is = |kept: &str, said: &str| kept == codec::cut(said, MAX_TEXT_BYTES);
    let outcome = record.ended.as_ref().map(|ended| ended.outcome.plain());
    let has_come_so_far = match row.state.as_str() {
        "running" => outcome.is_none(),
        "succeeded" => outcome == Some(Outcome::Succeeded),
        "failed" => outcome == Some(Outcome::Failed),
        // Nobody is told anything under it, and nothing is done.
        _ => true,
    };
    Ok(has_come_so_far
        && is(&started.principal, &row.principal)
        && is(&started.capability, &row.capability)
        && started
            .idempotency_key
            .as_deref()
            .is_some_and(|key| is(key, &row.key)))
}
