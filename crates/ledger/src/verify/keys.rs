use super::{Fault, Stop, Wrong};
use crate::{
    query::{KeyHeld, QueryError, ReadLedger},
    record::{
        codec,
        entry::{Digest, Ended, MAX_TEXT_BYTES, Outcome, Started},
        id::CallId,
        kept,
    },
};
use sha2::{Digest as _, Sha256};

/// Number of attempts to compare a row that a server may have changed meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// Time before its end for which the row of a key must be there, in microseconds: clocks differ.
const CLOCKS_DIFFER_US: u64 = 5 * 60 * 1_000_000;

/// Time until which the row of the key that a call claims must be there.
pub(super) fn needed_until(started: &Started) -> u64 {
    let until_us = started.key_until_us.unwrap_or_default();
    until_us.saturating_sub(CLOCKS_DIFFER_US)
}

/// Returns true if a call that claimed a key does not hold it, although it was not refused.
pub(super) fn lacks(ledger: &mut dyn ReadLedger, call: CallId) -> Result<bool, QueryError> {
    if ledger.holds_key(call)? {
        return Ok(false);
    }
    // A key is given back in the transaction in which the call is refused.
    let ended = ledger.call(call)?.and_then(|record| record.ended);
    let is_given_back = |it: Ended| matches!(it.outcome, Outcome::Denied { .. } | Outcome::Invalid);
    Ok(!ended.is_some_and(is_given_back))
}

/// Compares idempotency keys with what the entries say of the calls that hold them.
pub(super) fn check(ledger: &mut dyn ReadLedger) -> Result<(), Stop> {
    let mut last: Option<(String, String)> = None;
    loop {
        // The last row of a page is the first of the next one, unless it is gone meanwhile.
        let from = last.as_ref();
        let mut page = ledger.keys_held(from.map(|(principal, key)| (&**principal, &**key)))?;
        page.retain(|row| from.is_none_or(|(principal, key)| !is(row, principal, key)));
        let Some(row) = page.last() else {
            return Ok(());
        };
        last = Some((row.principal.clone(), row.key.clone()));
        for row in page {
            check_row(ledger, row)?;
        }
    }
}

fn is(row: &KeyHeld, principal: &str, key: &str) -> bool {
    (&*row.principal, &*row.key) == (principal, key)
}

fn check_row(ledger: &mut dyn ReadLedger, mut row: KeyHeld) -> Result<(), Stop> {
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
    let sequence = ledger.call(row.call)?.map(|record| record.sequence);
    let table = "idempotency_key";
    Err(Stop::Wrong(Wrong {
        sequence,
        what: Fault::TableDiffers { table },
    }))
}

/// The row of this key as it is now; a later call may hold it.
fn again(ledger: &mut dyn ReadLedger, row: &KeyHeld) -> Result<Option<KeyHeld>, QueryError> {
    let rows = ledger.keys_held(Some((&row.principal, &row.key)))?;
    let mut rows = rows.into_iter();
    Ok(rows.find(|it| is(it, &row.principal, &row.key)))
}

/// Returns true if the call of the row exists and has the state that the row states.
fn is_on_record(ledger: &mut dyn ReadLedger, row: &KeyHeld) -> Result<bool, QueryError> {
    let Some(record) = ledger.call(row.call)? else {
        return Ok(false);
    };
    let started = &record.started;
    let is = |kept: &str, said: &str| kept == codec::cut(said, MAX_TEXT_BYTES);
    let outcome = record.ended.as_ref().map(|ended| ended.outcome.plain());
    let ended = record.ended.as_ref();
    let is_kept = || ended.is_some_and(|ended| kept::is_on_record(ended, row.kept));
    let has_come_so_far = match row.state.as_str() {
        "running" => outcome.is_none(),
        "succeeded" => outcome == Some(Outcome::Succeeded) && is_kept(),
        "failed" => outcome == Some(Outcome::Failed) && is_kept(),
        // Nobody is told anything under it, and nothing is done.
        "unknown" => true,
        _ => false,
    };
    let is_until = |until_us: u64| row.until_us == until_us.min(i64::MAX as u64);
    Ok(has_come_so_far
        && has_arguments(started, row.arguments)
        && started.key_until_us.is_none_or(is_until)
        && is(&started.principal, &row.principal)
        && is(&started.capability, &row.capability)
        && started
            .idempotency_key
            .as_deref()
            .is_some_and(|key| is(key, &row.key)))
}

/// Returns false if the call had other arguments. Where a secret was taken out of them, the digest on record has a
/// key, and cannot be compared with the row's.
fn has_arguments(started: &Started, digest: Digest) -> bool {
    let Some(recorded) = started.arguments_digest else {
        return true;
    };
    let kept = &started.arguments;
    let is_of_kept = match &kept.cut {
        Some(cut) => recorded == cut.digest,
        // The digest of a server is of what the text says, however it is written.
        None => {
            let of_text: Digest = Sha256::digest(&kept.text).into();
            recorded == of_text || recorded == redaction::digest(&kept.text)
        }
    };
    recorded == digest || !is_of_kept
}
