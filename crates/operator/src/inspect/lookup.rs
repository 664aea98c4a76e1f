//! Calls found by their id, or by a filter.

use ledger::{ApprovalId, CallId, CallRecord, Cursor, ReadLedger, system_now_us};

use super::entries::Entries;
use super::filter::Wanted;
use super::rows;
use super::sheet::{Row, Sheet, card, object, pretty};
use crate::request::{CallFilter, Page, ReportFormat, RowsFormat};
use config::Config;
use server::Failure;
use server::open_reader;

/// `ledger query`: the text to print, and the beginning of the next page, if there may be one.
pub(crate) fn query(
    config: &Config,
    filter: CallFilter,
    page: &Page,
) -> Result<(String, Option<Cursor>), Failure> {
    let mut reader = open_reader(config)?;
    let records = calls(&mut *reader, filter, page.limit, page.before)?;
    sheet(&records, page)
}

/// The calls that meet a filter, newest first, `limit` of them at most, from a cursor on.
///
/// # Errors
///
/// When the ledger cannot be read.
pub fn calls(
    reader: &mut dyn ReadLedger,
    filter: CallFilter,
    limit: usize,
    before: Option<Cursor>,
) -> Result<Vec<CallRecord>, Failure> {
    let wanted = Wanted::new(filter);
    Ok(reader.recent(limit, wanted.query(before))?)
}

/// `ledger unresolved`.
pub(crate) fn unresolved(
    config: &Config,
    page: &Page,
) -> Result<(String, Option<Cursor>), Failure> {
    let mut reader = open_reader(config)?;
    let records = reader.unresolved(page.limit, page.before)?;
    sheet(&records, page)
}

/// The columns of a call, and where the next page begins if it is the last of one.
const LISTED: [&str; rows::CALL.len() + 1] = {
    let mut columns = ["cursor"; rows::CALL.len() + 1];
    let (all, _) = columns.split_at_mut(rows::CALL.len());
    all.copy_from_slice(rows::CALL);
    columns
};

fn sheet(records: &[ledger::CallRecord], page: &Page) -> Result<(String, Option<Cursor>), Failure> {
    let row = |record: &ledger::CallRecord| {
        let mut row = rows::call(record);
        row.push(serde_json::Value::from(record.cursor().to_string()).into());
        row
    };
    let sheet = Sheet {
        columns: &LISTED,
        shown: &rows::CALL_SHOWN,
        rows: records.iter().map(row).collect(),
    };
    let is_full = records.len() == page.limit && page.format == RowsFormat::Table;
    let next = records.last().filter(|_| is_full);
    Ok((sheet.print(page.format)?, next.map(|last| last.cursor())))
}

/// `ledger show`.
pub(crate) fn show(config: &Config, id: &str, format: ReportFormat) -> Result<String, Failure> {
    let mut reader = open_reader(config)?;
    let (columns, row) = find(reader.as_mut(), id)?;
    Ok(told(columns, &row, format))
}

fn find(
    reader: &mut (dyn ReadLedger + Send),
    id: &str,
) -> Result<(&'static [&'static str], Row), Failure> {
    if let Ok(call) = id.parse::<CallId>() {
        let record = reader.call(call)?;
        let record = record.ok_or_else(|| format!("the ledger has no call {id}"))?;
        return Ok((rows::CALL, rows::call(&record)));
    }
    if let Ok(approval) = id.parse::<ApprovalId>() {
        let found = reader.approval(approval)?;
        let found = found.ok_or_else(|| format!("the ledger has no approval {id}"))?;
        return Ok((rows::APPROVAL, rows::approval(&found, system_now_us())));
    }
    let sequence = id.parse::<u64>().map_err(|_| {
        format!(
            "`{id}` is neither a call (a UUID) nor an approval (apr_…) nor the number of an entry"
        )
    })?;
    let entry = Entries::find(reader, sequence)?;
    let entry = entry.ok_or_else(|| format!("the ledger has no entry {sequence}"))?;
    match entry.event {
        ledger::Event::Noted(noted) => Ok((rows::NOTE, rows::note(sequence, &noted))),
        ledger::Event::Started(_) | ledger::Event::Ended(_) => {
            let record = reader.call(entry.call)?;
            let record = record.ok_or("the call of this entry is not in the index")?;
            Ok((rows::CALL, rows::call(&record)))
        }
    }
}

/// One row, in full.
pub(super) fn told(columns: &[&str], row: &Row, format: ReportFormat) -> String {
    match format {
        ReportFormat::Text => card(columns, row),
        ReportFormat::Json => pretty(&object(columns, row)),
    }
}
