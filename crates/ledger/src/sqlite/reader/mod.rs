//! Reading a ledger in a `SQLite` file.

mod calls;
mod holds;
mod notes;
mod scan;
mod segments;
mod sums;
mod tail;

use crate::{
    fault::Fault,
    query::{
        ApprovalFilter, ApprovalRow, CallRecord, Counts, Extent, Filter, Gap, IndexedCall,
        IndexedNote, KeyHeld, MAX_PAGE_ROWS, NoteFilter, NoteRecord, QueryError, ReadLedger,
        StoredGroup, Usage,
        statistics::{DAY_US, Statistics, StatisticsQuery},
    },
    record::{
        approval::{Approval, ApprovalId},
        entry::Digest,
        id::CallId,
        seal::Seal,
    },
    sqlite::{
        archive::Listed,
        index,
        schema::{OpenError, explain, open_to_read},
    },
};
use rusqlite::{Connection, Transaction};
use segments::{Segments, View};
use std::{
    ops::Range,
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
        Ok((answer, view))
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
        Ok((answer, view))
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
                    None => Some(sums::OfDay::new()),
                };
                Ok((next, carried))
            })?;
            day = found.0;
            let Some(day) = day else { break };
            // Of what was deleted nothing is left to compare it with.
            if view.listed.iter().any(|it| it.is_deleted) {
                break;
            }
            let mut expected = sums::OfDay::new();
            for listed in &view.listed {
                let days = listed.from_us / DAY_US..=listed.until_us / DAY_US;
                if u64::try_from(day).is_ok_and(|day| days.contains(&day))
                    && !self.segments.get(&view, listed)?.add_day(
                        day,
                        view.through(),
                        &mut expected,
                    )?
                {
                    return Ok(Some("usage_day"));
                }
            }
            if found.1 != Some(expected) {
                return Ok(Some("carried_day"));
            }
        }
        let (_, view) = self.look(|_| Ok(()))?;
        // The chain goes on from the hash that the segments end with.
        let through = view.through();
        let known = match view.from(through) {
            Some(listed) if listed.last == through => Some(listed.last_hash),
            Some(listed) if !listed.is_deleted => {
                self.segments.get(&view, listed)?.hash_after(through)?
            }
            _ => None,
        };
        if through != 0 && known != Some(view.state.hash) {
            return Ok(Some("archived"));
        }
        for listed in view.newest_first() {
            if let Some(table) = self.segments.get(&view, listed)?.differing_sums()? {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }
}

impl ReadLedger for LedgerReader {
    fn recent(&mut self, limit: usize, filter: Filter<'_>) -> Result<Vec<CallRecord>, QueryError> {
        let asked = self.ask(|snapshot, source| calls::recent(snapshot, source, limit, &filter));
        let (mut records, view) = asked?;
        if filter.outcome == Some(crate::query::OPEN_CALLS) {
            return Ok(records);
        }
        for listed in view.newest_first() {
            let is_found = filter.call.is_some() && !records.is_empty();
            let is_full = limit <= records.len()
                && records
                    .last()
                    .is_none_or(|last| listed.until_us < last.started.at_us);
            let is_beside = filter.since_us.is_some_and(|since| listed.until_us < since)
                || filter.until_us.is_some_and(|until| until <= listed.from_us)
                || filter.before.is_some_and(|it| it.at_us < listed.from_us);
            if is_found || is_full || is_beside {
                continue;
            }
            let segment = self.segments.get(&view, listed)?;
            records.extend(segment.recent(view.through(), limit, &filter)?);
            records
                .sort_by_key(|record| std::cmp::Reverse((record.started.at_us, record.sequence)));
            records.truncate(limit);
        }
        Ok(records)
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
        let (mut records, view) = asked?;
        for listed in view.newest_first() {
            let is_full = limit <= records.len()
                && records
                    .last()
                    .is_none_or(|last| listed.until_us < last.noted.at_us);
            let is_beside = filter.since_us.is_some_and(|since| listed.until_us < since)
                || filter.until_us.is_some_and(|until| until <= listed.from_us)
                || filter.before.is_some_and(|it| it.at_us < listed.from_us);
            if is_full || is_beside {
                continue;
            }
            let segment = self.segments.get(&view, listed)?;
            records.extend(segment.notes(view.through(), limit, &filter)?);
            records.sort_by_key(|record| std::cmp::Reverse((record.noted.at_us, record.sequence)));
            records.truncate(limit);
        }
        Ok(records)
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
        let edges = sums.edges();
        for listed in view.newest_first() {
            let has = |edge: &Range<u64>| {
                !edge.is_empty() && listed.from_us < edge.end && edge.start <= listed.until_us
            };
            if edges.iter().any(has) {
                let segment = self.segments.get(&view, listed)?;
                segment.add_edges(view.through(), &mut sums)?;
            }
        }
        Ok(sums.into_rows())
    }

    fn count(&mut self) -> Result<Counts, QueryError> {
        Ok(self.ask(|snapshot, _| sums::count(snapshot))?.0)
    }

    fn extent(&mut self) -> Result<Extent, QueryError> {
        scan::extent(&self.connection, self.tail)
    }

    fn groups(&mut self, mut from: u64) -> Result<Vec<StoredGroup>, QueryError> {
        let (groups, view) = self.look(|snapshot| scan::groups(snapshot, from))?;
        // What is left of a group in a segment may be none that begins there.
        while let Some(listed) = view.from(from) {
            if !listed.is_deleted {
                let segment = self.segments.get(&view, listed)?;
                let groups = segment.groups(from, view.through())?;
                if !groups.is_empty() {
                    return Ok(groups);
                }
            }
            from = listed.last.saturating_add(1);
        }
        Ok(groups)
    }

    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, QueryError> {
        let (hash, view) = self.look(|snapshot| scan::hash_after(snapshot, sequence))?;
        if sequence == view.through() && sequence != 0 {
            return Ok(Some(view.state.hash));
        }
        match view.from(sequence) {
            Some(listed) if listed.last == sequence => Ok(Some(listed.last_hash)),
            Some(listed) if listed.is_deleted => Ok(None),
            Some(listed) => self.segments.get(&view, listed)?.hash_after(sequence),
            None => Ok(hash),
        }
    }

    fn indexed_calls(&mut self, mut from: u64) -> Result<Vec<IndexedCall>, QueryError> {
        if self.tail.hides_index {
            return Ok(Vec::new());
        }
        loop {
            let (mut page, view) = self.look(|snapshot| scan::indexed_calls(snapshot, from))?;
            let Some(listed) = view.from(from) else {
                return Ok(page);
            };
            // The calls that began in this segment may have ended in any that follows.
            let until = listed.last.min(view.through());
            page.retain(|row| row.sequence <= until && !listed.is_deleted);
            for later in view.listed.iter().filter(|it| listed.first <= it.last) {
                if later.first_start <= until && !later.is_deleted && !listed.is_deleted {
                    let segment = self.segments.get(&view, later)?;
                    page.extend(segment.indexed_calls(from, until, view.through())?);
                }
            }
            if !page.is_empty() {
                page.sort_by_key(|row| row.sequence);
                page.truncate(MAX_PAGE_ROWS);
                return Ok(page);
            }
            from = until.saturating_add(1);
        }
    }

    fn indexed_call(&mut self, call: CallId) -> Result<Option<IndexedCall>, QueryError> {
        if self.tail.hides_index {
            return Ok(None);
        }
        let (mut row, view) = self.look(|snapshot| scan::indexed_call(snapshot, call))?;
        for listed in view.newest_first() {
            if row.is_some() {
                break;
            }
            let found = self.segments.get(&view, listed)?.indexed_call(call)?;
            // What is beyond was the ledger's when it was looked at.
            row = found.filter(|it| {
                it.end
                    .as_ref()
                    .is_some_and(|end| end.sequence <= view.through())
            });
        }
        Ok(row.filter(|row| !view.is_deleted(row.sequence)))
    }

    fn indexed_notes(&mut self, mut from: u64) -> Result<Vec<IndexedNote>, QueryError> {
        if self.tail.hides_index {
            return Ok(Vec::new());
        }
        let (page, view) = self.look(|snapshot| scan::indexed_notes(snapshot, from))?;
        while let Some(listed) = view.from(from) {
            if !listed.is_deleted {
                let segment = self.segments.get(&view, listed)?;
                let mut page = segment.indexed_notes(from)?;
                page.retain(|row| row.sequence <= view.through());
                if !page.is_empty() {
                    return Ok(page);
                }
            }
            from = listed.last.saturating_add(1);
        }
        Ok(page)
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
        let mut seals = Vec::new();
        for listed in view.listed.iter().filter(|it| !it.is_deleted) {
            seals.push(self.segments.get(&view, listed)?.seal().clone());
        }
        Ok(seals)
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
        let gap = |listed: &Listed| Gap {
            first_sequence: listed.first,
            last_sequence: listed.last,
            last_hash: listed.last_hash,
            is_unsaid: unsaid
                .iter()
                .any(|(subject, detail)| *subject == listed.file && detail.contains("\"deleted\"")),
        };
        let deleted = view.listed.iter().filter(|it| it.is_deleted);
        Ok(deleted.map(gap).collect())
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
