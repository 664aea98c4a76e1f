//! Reading a ledger in a `SQLite` file.

mod calls;
mod holds;
mod notes;
mod scan;
mod segments;
mod sums;
mod tail;

pub(crate) use self::{
    holds::{Held, ReadHolds},
    segments::{CarriedStart, Segments, View, gaps},
    sums::{OfDay, OfQuarters, Sums, stretches},
};

use crate::{
    fault::Fault,
    query::{
        ApprovalFilter, ApprovalRow, CallRecord, Counts, Extent, Filter, Gap, HashAfter,
        IndexedCall, IndexedNote, KeyHeld, NoteFilter, NoteRecord, QueryError, ReadLedger,
        StoredGroup, Usage,
        statistics::{Statistics, StatisticsQuery},
    },
    record::{
        approval::{Approval, ApprovalId},
        entry::Digest,
        id::CallId,
        seal::Seal,
    },
    sqlite::{
        index,
        schema::{OpenError, explain, open_to_read},
    },
};
use age_format::Identity;
use rusqlite::{Connection, Transaction};
use std::{
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
    time::Duration,
};

/// Reads a ledger in a `SQLite` file, also beside a server that writes to it. It blocks.
///
/// What the server has not indexed yet it indexes itself, and remembers: asking again costs only
/// what has been written since. What has been archived is found in the segments of the archive, once each entry
/// at any moment; of those that a question does not concern none is opened.
#[derive(Debug)]
pub struct LedgerReader {
    connection: Connection,
    tail: tail::Tail,
    /// Ledgers of the first version have no table of approvals.
    has_approvals: bool,
    /// Ledgers of the first versions have no archive.
    has_archive: bool,
    segments: Segments,
}

/// Place of what is asked for.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// The ledger, from which all entries through `archived` have been taken out.
    Ledger { archived: u64 },
    /// A segment with the entries from `first` to `last`, which are the ledger's after `through`.
    Segment { first: u64, last: u64, through: u64 },
}

impl Source {
    /// Condition by which a row is not the ledger's any more; its entry is the one that this column has.
    fn owns(self, column: &str) -> String {
        match self {
            Self::Segment { last, through, .. } if through < last => {
                format!(" AND {column} <= {through}")
            }
            Self::Segment { .. } | Self::Ledger { .. } => String::new(),
        }
    }

    /// Returns true if starts of calls in this group are kept apart from it.
    fn keeps_starts_before(self, group: i64) -> bool {
        match self {
            Self::Ledger { archived } => group <= signed(archived),
            Self::Segment { first, .. } => group < signed(first),
        }
    }
}

impl LedgerReader {
    /// Opens the ledger at `path`.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when it is missing or not a ledger of a known version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let connection = open_to_read(path)?;
        let failed = |error| explain(path, error);
        Ok(Self {
            tail: tail::Tail::new(&connection).map_err(failed)?,
            has_approvals: connection.table_exists(None, "approval").map_err(failed)?,
            has_archive: connection.table_exists(None, "archived").map_err(failed)?,
            connection,
            segments: Segments::default(),
        })
    }

    /// Looks for the segments of the archive in this directory, wherever they were written.
    #[must_use]
    pub fn with_archive(mut self, directory: Option<PathBuf>) -> Self {
        self.segments.directory = directory;
        self
    }

    /// Opens encrypted segments with these identities.
    #[must_use]
    pub fn with_identities(mut self, identities: Vec<Identity>) -> Self {
        self.segments.identities = identities;
        self
    }

    /// The last entry that was archived, 0 if none was, and its hash.
    pub(crate) fn archived(&mut self) -> Result<(u64, Digest), QueryError> {
        let (_, view) = self.look(|_| Ok(()))?;
        Ok((view.through(), view.state.hash))
    }

    /// Use since `since_us`, as [`ReadLedger::usage_between`] has it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn usage_since(
        &mut self,
        since_us: u64,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError> {
        self.usage_between(since_us..u64::MAX, bucket)
    }

    /// Hash of the ledger's last entry, which covers all before it.
    ///
    /// # Errors
    ///
    /// [`QueryError`] when the ledger cannot be read.
    pub fn last_hash(&mut self) -> Result<Option<Digest>, QueryError> {
        let last = self.extent()?.last_sequence;
        self.hash_after(last)
    }

    /// Asks of the ledger as it is now, indexed to its end; tells what is archived then.
    fn ask<T>(
        &mut self,
        question: impl FnOnce(&Transaction<'_>, Source) -> Result<T, QueryError>,
    ) -> Result<(T, View), QueryError> {
        let snapshot = self.connection.transaction()?;
        let tail = self.tail.catch_up(&snapshot)?;
        let view = match self.has_archive {
            true => View::read(&snapshot)?,
            false => View::default(),
        };
        let archived = view.through();
        let answer = question(&snapshot, Source::Ledger { archived })?;
        // What has been indexed here is kept for the next question.
        snapshot.commit()?;
        self.tail = tail;
        Ok((answer, self.segments.seen(view)?))
    }

    /// Asks of the ledger as it is stored, and tells what is archived then.
    fn look<T>(
        &mut self,
        question: impl FnOnce(&Transaction<'_>) -> Result<T, QueryError>,
    ) -> Result<(T, View), QueryError> {
        let snapshot = self.connection.transaction()?;
        let view = match self.has_archive {
            true => View::read(&snapshot)?,
            false => View::default(),
        };
        let answer = question(&snapshot)?;
        snapshot.commit()?;
        Ok((answer, self.segments.seen(view)?))
    }

    /// Names a table that differs from the segments whose sums it has.
    fn differing_archive(&mut self) -> Result<Option<&'static str>, QueryError> {
        let mut day = Some(i64::MIN);
        while let Some(after) = day {
            let (found, view) = self.look(|snapshot| {
                let next = snapshot.query_row(
                    "SELECT min(day) FROM main.carried_day WHERE day > ?1",
                    [after],
                    |row| row.get::<_, Option<i64>>(0),
                )?;
                let carried = match next {
                    Some(day) => sums::of_day(snapshot, "carried_day", day)?,
                    None => Some(OfDay::new()),
                };
                Ok((next, carried))
            })?;
            day = found.0;
            let Some(day) = day else { break };
            // Of what was deleted nothing is left to compare it with.
            if view.has_gaps() {
                break;
            }
            let differing = self.segments.differing_day(&view, day, found.1.as_ref())?;
            if differing.is_some() {
                return Ok(differing);
            }
        }
        let (quarters, view) = self.look(|snapshot| Ok(sums::stored_quarters(snapshot)?))?;
        if !view.has_gaps() {
            let differing = self.segments.differing_quarters(&view, quarters)?;
            if differing.is_some() {
                return Ok(differing);
            }
        }
        let ((starts, is_whole), view) = self
            .look(|snapshot| Ok((scan::carried_starts(snapshot)?, scan::has_starts(snapshot)?)))?;
        match is_whole {
            true => self.segments.differing(&view, &starts),
            false => Ok(Some("carried_start")),
        }
    }
}

impl ReadLedger for LedgerReader {
    fn recent(&mut self, limit: usize, filter: Filter<'_>) -> Result<Vec<CallRecord>, QueryError> {
        let asked = self.ask(|snapshot, source| calls::recent(snapshot, source, limit, &filter));
        let (records, view) = asked?;
        self.segments.add_recent(&view, records, limit, &filter)
    }

    fn open_calls(&mut self) -> Result<Vec<CallRecord>, QueryError> {
        Ok(self.ask(calls::open)?.0)
    }

    fn notes(
        &mut self,
        limit: usize,
        filter: NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError> {
        let asked = self.ask(|snapshot, source| notes::notes(snapshot, source, limit, &filter));
        let (records, view) = asked?;
        self.segments.add_notes(&view, records, limit, &filter)
    }

    fn approvals(
        &mut self,
        limit: usize,
        filter: ApprovalFilter<'_>,
    ) -> Result<Vec<Approval>, QueryError> {
        if !self.has_approvals {
            return Ok(Vec::new());
        }
        notes::approvals(&self.connection, limit, &filter)
    }

    fn usage_between(
        &mut self,
        range: Range<u64>,
        bucket: Duration,
    ) -> Result<Vec<Usage>, QueryError> {
        let asked = self.ask(|snapshot, source| {
            let is_archived = matches!(source, Source::Ledger { archived } if archived != 0);
            sums::usage(snapshot, is_archived, range, bucket)
        });
        Ok(asked?.0)
    }

    fn statistics(&mut self, query: StatisticsQuery<'_>) -> Result<Vec<Statistics>, QueryError> {
        let mut sums = sums::Sums::new(&query);
        let ((), view) = self.ask(|snapshot, _| sums.add_ledger(snapshot))?;
        self.segments.add_edges(&view, &mut sums)?;
        Ok(sums.into_rows())
    }

    fn count(&mut self) -> Result<Counts, QueryError> {
        Ok(self.ask(|snapshot, _| sums::count(snapshot))?.0)
    }

    fn extent(&mut self) -> Result<Extent, QueryError> {
        scan::extent(&self.connection, self.tail)
    }

    fn groups(&mut self, from: u64) -> Result<Vec<StoredGroup>, QueryError> {
        let (groups, view) = self.look(|snapshot| scan::groups(snapshot, from))?;
        Ok(self.segments.groups(&view, from)?.unwrap_or(groups))
    }

    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, QueryError> {
        let (hash, view) = self.look(|snapshot| scan::hash_after(snapshot, sequence))?;
        self.segments.hash_after(&view, sequence, hash)
    }

    fn hashes_after(&mut self, sequences: &[u64]) -> Result<Vec<HashAfter>, QueryError> {
        let (hashes, view) = self.look(|snapshot| {
            let hashes = sequences.iter().map(|it| scan::hash_after(snapshot, *it));
            hashes.collect::<Result<Vec<_>, _>>()
        })?;
        let both = sequences.iter().zip(hashes);
        Ok(both.map(|(it, live)| view.hash_after(*it, live)).collect())
    }

    fn indexed_calls(&mut self, mut from: u64) -> Result<Vec<IndexedCall>, QueryError> {
        if self.tail.hides_index {
            return Ok(Vec::new());
        }
        loop {
            let (page, view) = self.look(|snapshot| scan::indexed_calls(snapshot, from))?;
            match self.segments.indexed_calls(&view, from, page)? {
                ControlFlow::Break(page) => return Ok(page),
                ControlFlow::Continue(next) => from = next,
            }
        }
    }

    fn indexed_call(&mut self, call: CallId) -> Result<Option<IndexedCall>, QueryError> {
        if self.tail.hides_index {
            return Ok(None);
        }
        let (row, view) = self.look(|snapshot| scan::indexed_call(snapshot, call))?;
        self.segments.indexed_call(&view, call, row)
    }

    fn indexed_notes(&mut self, from: u64) -> Result<Vec<IndexedNote>, QueryError> {
        if self.tail.hides_index {
            return Ok(Vec::new());
        }
        let (page, view) = self.look(|snapshot| scan::indexed_notes(snapshot, from))?;
        Ok(self.segments.indexed_notes(&view, from)?.unwrap_or(page))
    }

    fn approval_rows(&mut self, after: Option<ApprovalId>) -> Result<Vec<ApprovalRow>, QueryError> {
        if !self.has_approvals {
            return Ok(Vec::new());
        }
        scan::approval_rows(&self.connection, after)
    }

    fn holds_key(&mut self, call: CallId) -> Result<bool, QueryError> {
        scan::holds_key(&self.connection, call)
    }

    fn keys_held(&mut self, from: Option<(&str, &str)>) -> Result<Vec<KeyHeld>, QueryError> {
        if !self.has_approvals {
            return Ok(Vec::new());
        }
        scan::keys_held(&self.connection, from)
    }

    fn differing_sums(&mut self) -> Result<Option<&'static str>, QueryError> {
        if self.tail.hides_index {
            return Ok(None);
        }
        let differing = sums::differing(&mut self.connection, self.has_archive)?;
        match (differing, self.has_archive) {
            (None, true) if self.holds_differ()? => Ok(Some("legal_hold")),
            (None, true) => self.differing_archive(),
            (differing, _) => Ok(differing),
        }
    }

    fn fault(&mut self) -> Result<Option<Fault>, QueryError> {
        Ok(index::fault(&self.connection)?)
    }

    fn segments(&mut self) -> Result<Vec<Seal>, QueryError> {
        let (_, view) = self.look(|_| Ok(()))?;
        self.segments.seals(&view)
    }

    fn damage(&mut self) -> Result<Option<Fault>, QueryError> {
        if let Some(why) = segments::contradiction(&self.connection)? {
            let file = self.connection.path().unwrap_or_default().into();
            return Ok(Some(Fault::FileDamaged { file, why }));
        }
        let (_, view) = self.look(|_| Ok(()))?;
        self.segments.damage(&view)
    }

    fn leave_unread(&mut self) {
        self.segments.leaves_unread = true;
    }

    fn expect_sealed(&mut self, seal: &Seal) -> Result<(), QueryError> {
        let (_, view) = self.look(|_| Ok(()))?;
        self.segments.expect_sealed(&view, seal)
    }

    fn gaps(&mut self) -> Result<Vec<Gap>, QueryError> {
        if !self.has_archive {
            return Ok(Vec::new());
        }
        let (unsaid, view) = self.look(|snapshot| {
            let mut select =
                snapshot.prepare_cached("SELECT subject, detail FROM main.unsaid_note")?;
            let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<Vec<(String, String)>, _>>()?)
        })?;
        Ok(gaps(&view, |listed| {
            unsaid
                .iter()
                .any(|(subject, detail)| *subject == listed.file && detail.contains("\"deleted\""))
        }))
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
