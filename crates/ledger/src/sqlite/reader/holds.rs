//! Legal holds, compared with the notes that say what became of each.

use super::LedgerReader;
use crate::{
    query::{Cursor, NoteFilter, NoteRecord, QueryError, ReadLedger},
    record::{codec, entry::MAX_TEXT_BYTES, note::NoteKind},
    sqlite::archive::{ArchiveError, Hold, HoldFilter, stored_holds},
};
use rusqlite::{Connection, Row};
use serde_json::Value;
use std::collections::BTreeMap;

/// Number of attempts to compare what a process beside may have changed meanwhile.
const MAX_ATTEMPTS: usize = 3;

/// Notes that are read at once.
const PAGE: usize = 256;

/// Holds as a ledger has them at one moment.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) holds: Vec<Hold>,
    /// The notes that no server has put on record yet.
    pub(crate) unsaid: Vec<Said>,
    /// True if segments were deleted: the note of a hold may have been in one.
    pub(crate) has_gaps: bool,
    /// The latest time of what cannot be read: a hold from before that may have been lifted there.
    pub(crate) unread_until_us: Option<u64>,
}

/// Note about a hold or a segment.
#[derive(Debug)]
pub(crate) struct Said {
    at_us: u64,
    actor: String,
    detail: String,
}

/// Reader of a ledger that has holds.
pub(crate) trait ReadHolds: ReadLedger {
    fn held(&mut self) -> Result<Held, QueryError>;

    /// True if the holds in force are others than the notes say, those included that no server has put on record yet.
    fn holds_differ(&mut self) -> Result<bool, QueryError> {
        for _ in 0..MAX_ATTEMPTS {
            let held = self.held()?;
            let (has_gaps, until_us) = (held.has_gaps, held.unread_until_us);
            let expected = self.holds_noted(held.unsaid)?;
            if agree(&held.holds, expected, has_gaps, until_us) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Fails if the holds in force are others than the notes say.
    fn expect_holds(&mut self) -> Result<(), ArchiveError> {
        let differ = self.holds_differ();
        match differ.map_err(|error| ArchiveError::Holds(Box::new(error)))? {
            true => Err(ArchiveError::HoldsDiffer),
            false => Ok(()),
        }
    }

    /// The hold of this number, if it is in force by the notes.
    fn hold_noted(&mut self, number: u64) -> Result<Option<Hold>, ArchiveError> {
        let noted = self.held().and_then(|held| self.holds_noted(held.unsaid));
        let mut noted = noted.map_err(|error| ArchiveError::Holds(Box::new(error)))?;
        Ok(noted.remove(&number))
    }

    /// The holds that are in force by the notes on record and by those that no server has put there yet.
    fn holds_noted(&mut self, unsaid: Vec<Said>) -> Result<BTreeMap<u64, Hold>, QueryError> {
        // What is on record by now as well is taken twice, which changes nothing.
        let mut notes = self.retention_notes()?;
        notes.extend(unsaid);
        let mut expected = BTreeMap::new();
        notes.iter().for_each(|it| take(it, &mut expected));
        Ok(expected)
    }

    /// The notes about segments and holds, in the order of their entries.
    fn retention_notes(&mut self) -> Result<Vec<Said>, QueryError> {
        let kind = NoteKind::RETENTION;
        let (mut all, mut before) = (Vec::new(), None::<Cursor>);
        loop {
            let filter = NoteFilter {
                kind: Some(kind.as_str()),
                before,
                ..NoteFilter::default()
            };
            let page = self.notes(PAGE, filter)?;
            let Some(last) = page.last() else { break };
            before = Some(last.cursor());
            all.extend(page);
        }
        all.sort_by_key(|it| it.sequence);
        let said = all.into_iter().map(|NoteRecord { noted, .. }| Said {
            at_us: noted.at_us,
            actor: noted.actor,
            detail: noted.detail.text,
        });
        Ok(said.collect())
    }
}

impl ReadHolds for LedgerReader {
    fn held(&mut self) -> Result<Held, QueryError> {
        let (mut held, view) = self.look(|snapshot| {
            Ok(Held {
                holds: stored_holds(snapshot)?,
                unsaid: unsaid(snapshot)?,
                ..Held::default()
            })
        })?;
        held.has_gaps = view.has_gaps();
        held.unread_until_us = view.unread_until_us();
        Ok(held)
    }
}

/// The notes that no server has put on record yet.
fn unsaid(snapshot: &Connection) -> rusqlite::Result<Vec<Said>> {
    let mut select = snapshot
        .prepare_cached("SELECT at_us, actor, detail FROM main.unsaid_note ORDER BY number")?;
    let said = |row: &Row<'_>| {
        Ok(Said {
            at_us: row.get::<_, i64>(0)?.unsigned_abs(),
            actor: row.get(1)?,
            detail: row.get(2)?,
        })
    };
    select.query_map([], said)?.collect()
}

/// Takes over what one note says.
fn take(said: &Said, expected: &mut BTreeMap<u64, Hold>) {
    let detail = serde_json::from_str::<Value>(&said.detail).unwrap_or_default();
    if let Some(number) = detail["hold_set"].as_u64() {
        let text = |name: &str| detail[name].as_str().map(str::to_owned);
        let of = HoldFilter {
            principal: text("client"),
            capability: text("capability"),
            since_us: detail["since_us"].as_u64(),
            until_us: detail["until_us"].as_u64(),
        };
        let hold = Hold {
            number,
            of,
            by: said.actor.clone(),
            reason: text("reason").unwrap_or_default(),
            at_us: said.at_us,
        };
        expected.insert(number, hold);
    } else if let Some(number) = detail["hold_lifted"].as_u64() {
        expected.remove(&number);
    }
}

/// Returns true if a row says what its note says, which may have less of a long name.
fn is_noted(hold: &Hold, noted: &Hold) -> bool {
    let is = |row: &str, said: &str| row == said || codec::cut(row, MAX_TEXT_BYTES) == said;
    (hold.number, hold.at_us) == (noted.number, noted.at_us)
        && hold.of == noted.of
        && hold.reason == noted.reason
        && is(&hold.by, &noted.by)
}

/// Returns true if these holds are those that the notes expect, so far as these can be read.
fn agree(
    holds: &[Hold],
    mut expected: BTreeMap<u64, Hold>,
    has_gaps: bool,
    unread_until_us: Option<u64>,
) -> bool {
    let are_known = holds
        .iter()
        .all(|hold| match expected.remove(&hold.number) {
            Some(noted) => is_noted(hold, &noted),
            None => has_gaps,
        });
    let may_be_lifted = |it: &Hold| unread_until_us.is_some_and(|until_us| it.at_us <= until_us);
    are_known && expected.values().all(may_be_lifted)
}
