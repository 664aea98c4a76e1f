//! Legal holds, compared with the notes that say what became of each.

use super::LedgerReader;
use crate::{
    query::{Cursor, NoteFilter, QueryError, ReadLedger},
    record::note::NoteKind,
    sqlite::archive::{ArchiveError, Hold, HoldFilter, stored_holds},
};
use rusqlite::Connection;
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
    /// Details of the notes that no server has put on record yet.
    pub(crate) unsaid: Vec<String>,
    /// True if segments were deleted: the note of a hold may have been in one.
    pub(crate) has_gaps: bool,
}

/// Reader of a ledger that has holds.
pub(crate) trait ReadHolds: ReadLedger {
    fn held(&mut self) -> Result<Held, QueryError>;

    /// True if the holds in force are others than the notes say, those included that no server has put on record yet.
    fn holds_differ(&mut self) -> Result<bool, QueryError> {
        for _ in 0..MAX_ATTEMPTS {
            let held = self.held()?;
            let expected = self.holds_noted(held.unsaid)?;
            if agree(&held.holds, expected, held.has_gaps) {
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
        Ok(noted.remove(&number).map(|of| Hold {
            number,
            of,
            by: String::new(),
            reason: String::new(),
            at_us: 0,
        }))
    }

    /// The holds that are in force by the notes on record and by those that no server has put there yet.
    fn holds_noted(
        &mut self,
        unsaid: Vec<String>,
    ) -> Result<BTreeMap<u64, HoldFilter>, QueryError> {
        // What is on record by now as well is taken twice, which changes nothing.
        let mut details = self.retention_notes()?;
        details.extend(unsaid);
        let mut expected = BTreeMap::new();
        details.iter().for_each(|it| take(it, &mut expected));
        Ok(expected)
    }

    /// Details of the notes about segments and holds, in the order of their entries.
    fn retention_notes(&mut self) -> Result<Vec<String>, QueryError> {
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
        Ok(all.into_iter().map(|it| it.noted.detail.text).collect())
    }
}

impl ReadHolds for LedgerReader {
    fn held(&mut self) -> Result<Held, QueryError> {
        let (mut held, view) = self.look(|snapshot| {
            Ok(Held {
                holds: stored_holds(snapshot)?,
                unsaid: unsaid_details(snapshot)?,
                has_gaps: false,
            })
        })?;
        held.has_gaps = view.has_gaps();
        Ok(held)
    }
}

/// Details of the notes that no server has put on record yet.
fn unsaid_details(snapshot: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut select =
        snapshot.prepare_cached("SELECT detail FROM main.unsaid_note ORDER BY number")?;
    select.query_map([], |row| row.get(0))?.collect()
}

/// Takes over what one note says.
fn take(detail: &str, expected: &mut BTreeMap<u64, HoldFilter>) {
    let detail = serde_json::from_str::<Value>(detail).unwrap_or_default();
    if let Some(number) = detail["hold_set"].as_u64() {
        let text = |name: &str| detail[name].as_str().map(str::to_owned);
        let of = HoldFilter {
            principal: text("client"),
            capability: text("capability"),
            since_us: detail["since_us"].as_u64(),
            until_us: detail["until_us"].as_u64(),
        };
        expected.insert(number, of);
    } else if let Some(number) = detail["hold_lifted"].as_u64() {
        expected.remove(&number);
    }
}

fn agree(holds: &[Hold], mut expected: BTreeMap<u64, HoldFilter>, has_gaps: bool) -> bool {
    let are_known = holds
        .iter()
        .all(|hold| match expected.remove(&hold.number) {
            Some(of) => of == hold.of,
            None => has_gaps,
        });
    are_known && expected.is_empty()
}
