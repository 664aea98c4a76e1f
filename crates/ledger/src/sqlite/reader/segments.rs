//! Segments of a ledger's archive, as its readers see them: what has been taken out of the ledger is in them, and
//! what has not is not, though it may have been copied already.

use super::{
    Source, calls, notes,
    scan::{self, beginning, number},
    sums::{self, OfDay, OfQuarters, Sums},
    tail::Tail,
};
use crate::{
    fault::Fault,
    query::{
        CallRecord, Filter, Gap, HashAfter, IndexedCall, IndexedNote, MAX_PAGE_BYTES,
        MAX_PAGE_ROWS, NoteFilter, NoteRecord, QueryError, StoredGroup, statistics::DAY_US,
    },
    record::{codec::DecodeError, entry::Digest, id::CallId, seal::Seal},
    recorder::system_now_us,
    sqlite::{
        archive::{
            ArchiveError, KEPT_DAYS, Listed, QUARTER_US, State, StateError, expect_sealed,
            is_opened_by, seal_of,
            segment::{self, LastFrame},
        },
        index::{self, IndexError},
    },
};
use age_format::Identity;
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction};
use sqlite_file::Unusable;
use std::{
    collections::BTreeMap,
    ops::{ControlFlow, Range},
    path::{Path, PathBuf},
};

/// The most segments that are open at the same time.
const MAX_OPEN: usize = 32;

/// Most bytes of encrypted segments that are in memory at the same time, unless one alone has more.
const MAX_DECRYPTED_BYTES: u64 = 256 * 1024 * 1024;

/// State of an archive and its segments, in one snapshot of the ledger.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) state: State,
    /// The segments that have entries which were taken out, in order.
    pub(crate) listed: Vec<Listed>,
}

impl View {
    pub(super) fn read(snapshot: &Connection) -> Result<Self, StateError> {
        let state = State::read(snapshot)?;
        if state.through == 0 {
            return Ok(Self::default());
        }
        let mut listed = Listed::all(snapshot)?;
        listed.retain(|it| it.first <= state.through);
        Ok(Self { state, listed })
    }

    pub(crate) fn through(&self) -> u64 {
        self.state.through
    }

    /// The segment that has the entry at `sequence` or the first after it that was taken out.
    pub(crate) fn from(&self, sequence: u64) -> Option<&Listed> {
        if self.state.through < sequence {
            return None;
        }
        self.listed.iter().find(|it| sequence <= it.last)
    }

    /// Returns true if segments were deleted, or are left out since they cannot be read.
    pub(crate) fn has_gaps(&self) -> bool {
        self.listed.iter().any(|it| it.is_deleted)
    }

    /// The latest time of what is left out since it cannot be read.
    pub(crate) fn unread_until_us(&self) -> Option<u64> {
        let unread = self.listed.iter().filter(|it| it.is_unread);
        unread.map(|it| it.until_us).max()
    }

    /// Returns true if the entry at `sequence` was deleted, or is left out.
    pub(super) fn is_deleted(&self, sequence: u64) -> bool {
        let end = self.state.through;
        let has = |it: &&Listed| it.first <= sequence && sequence <= it.last.min(end);
        self.listed.iter().find(has).is_some_and(|it| it.is_deleted)
    }

    /// The hash of the entry at `sequence`, without a look into its segment; `live` is what the ledger says.
    pub(crate) fn hash_after(&self, sequence: u64, live: Option<Digest>) -> HashAfter {
        if sequence == self.through() && sequence != 0 {
            return HashAfter::Known(Some(self.state.hash));
        }
        match self.from(sequence) {
            Some(listed) if listed.last == sequence => HashAfter::Known(Some(listed.last_hash)),
            Some(_) => HashAfter::Archived,
            None => HashAfter::Known(live),
        }
    }

    /// The segments that have entries, the newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Listed> {
        self.listed.iter().rev().filter(|it| !it.is_deleted)
    }
}

/// The segments that are open.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    /// Directory of the segments, if it is another one than the ledger says.
    pub(crate) directory: Option<PathBuf>,
    /// Identities that open encrypted ones.
    pub(crate) identities: Vec<Identity>,
    /// True if what no identity opens is left out.
    pub(crate) leaves_unread: bool,
    /// Numbers of segments, and whether they cannot be read.
    unread: BTreeMap<i64, bool>,
    open: Vec<Segment>,
}

/// An open segment.
#[derive(Debug)]
struct Segment {
    number: i64,
    connection: Connection,
    seal: Seal,
    /// True if its index is of another version, and was made anew.
    hides_index: bool,
    frame: LastFrame,
}

impl Segments {
    /// Opens a segment, unless it is open.
    fn get(&mut self, view: &View, listed: &Listed) -> Result<&mut Segment, QueryError> {
        let position = self.open.iter().position(|it| it.number == listed.number);
        let position = match position {
            Some(position) => position,
            None => {
                let path = self.path(view, listed);
                let segment = Segment::open(&path, listed, &self.identities)?;
                if MAX_OPEN <= self.open.len() {
                    self.open.remove(0);
                }
                self.make_room(segment.in_memory());
                self.open.push(segment);
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[position])
    }

    /// Asks a segment; what fails since it is not what it was is told with its name.
    fn within<T>(
        &mut self,
        view: &View,
        listed: &Listed,
        question: impl FnOnce(&mut Segment) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let answer = self.get(view, listed).and_then(question);
        answer.map_err(|error| match is_damage(&error) {
            true => QueryError::Segment {
                path: self.path(view, listed),
                first: listed.first,
                last: listed.last,
                source: Box::new(error),
            },
            false => error,
        })
    }

    /// Looks for damage in the databases that the segments are.
    pub(crate) fn damage(&mut self, view: &View) -> Result<Option<Fault>, QueryError> {
        for listed in view.newest_first() {
            let why = self.within(view, listed, |it| contradiction(&it.connection))?;
            if let Some(why) = why {
                let file = self.path(view, listed);
                return Ok(Some(Fault::SegmentDamaged { file, why }));
            }
        }
        Ok(None)
    }

    fn path(&self, view: &View, listed: &Listed) -> PathBuf {
        listed.path(self.directory.as_deref().unwrap_or(&view.state.directory))
    }

    /// Closes segments that are in memory, the first that was opened first, until there is room for so many bytes.
    fn make_room(&mut self, bytes: u64) {
        let held = |open: &[Segment]| open.iter().map(Segment::in_memory).sum::<u64>();
        while bytes != 0 && MAX_DECRYPTED_BYTES < held(&self.open).saturating_add(bytes) {
            let Some(first) = self.open.iter().position(|it| it.in_memory() != 0) else {
                return;
            };
            self.open.remove(first);
        }
    }

    /// The view without what no identity opens, if that is to be left out.
    pub(crate) fn seen(&mut self, mut view: View) -> Result<View, QueryError> {
        if !self.leaves_unread {
            return Ok(view);
        }
        for index in 0..view.listed.len() {
            let listed = &view.listed[index];
            if listed.is_deleted {
                continue;
            }
            let number = listed.number;
            let is_unread = match self.unread.get(&number) {
                Some(is_unread) => *is_unread,
                None => {
                    let path = self.path(&view, listed);
                    !is_opened_by(&self.identities, &path).map_err(failed)?
                }
            };
            self.unread.insert(number, is_unread);
            let listed = &mut view.listed[index];
            (listed.is_deleted, listed.is_unread) = (is_unread, is_unread);
        }
        Ok(view)
    }

    /// Fails if the file of an encrypted segment is not the one that was sealed.
    pub(crate) fn expect_sealed(&self, view: &View, seal: &Seal) -> Result<(), QueryError> {
        let is_of = |it: &&Listed| it.last == seal.last_sequence;
        match view.listed.iter().find(is_of) {
            Some(listed) => expect_sealed(&self.path(view, listed), seal).map_err(failed),
            None => Ok(()),
        }
    }

    /// Adds what a question finds in segments to what it has found in the ledger.
    pub(crate) fn add_recent(
        &mut self,
        view: &View,
        mut records: Vec<CallRecord>,
        limit: usize,
        filter: &Filter<'_>,
    ) -> Result<Vec<CallRecord>, QueryError> {
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
            records.extend(self.within(view, listed, |segment| {
                segment.recent(view.through(), limit, filter)
            })?);
            records
                .sort_by_key(|record| std::cmp::Reverse((record.started.at_us, record.sequence)));
            records.truncate(limit);
        }
        Ok(records)
    }

    /// Adds notes of segments, likewise.
    pub(crate) fn add_notes(
        &mut self,
        view: &View,
        mut records: Vec<NoteRecord>,
        limit: usize,
        filter: &NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError> {
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
            records.extend(self.within(view, listed, |segment| {
                segment.notes(view.through(), limit, filter)
            })?);
            records.sort_by_key(|record| std::cmp::Reverse((record.noted.at_us, record.sequence)));
            records.truncate(limit);
        }
        Ok(records)
    }

    /// Adds the calls of segments that are in no whole day of a query.
    pub(crate) fn add_edges(&mut self, view: &View, sums: &mut Sums<'_>) -> Result<(), QueryError> {
        let edges = sums.edges();
        for listed in view.newest_first() {
            let has = |edge: &Range<u64>| {
                !edge.is_empty() && listed.from_us < edge.end && edge.start <= listed.until_us
            };
            if edges.iter().any(has) {
                self.within(view, listed, |segment| {
                    segment.add_edges(view.through(), sums)
                })?;
            }
        }
        Ok(())
    }

    /// The next page of groups from this sequence on; `None` if no segment has any, so that the ledger's are the next.
    pub(crate) fn groups(
        &mut self,
        view: &View,
        mut from: u64,
    ) -> Result<Option<Vec<StoredGroup>>, QueryError> {
        // What is left of a group in a segment may be none that begins there.
        while let Some(listed) = view.from(from) {
            if !listed.is_deleted {
                let groups =
                    self.within(view, listed, |segment| segment.groups(from, view.through()))?;
                if !groups.is_empty() {
                    return Ok(Some(groups));
                }
            }
            from = listed.last.saturating_add(1);
        }
        Ok(None)
    }

    /// The hash of the entry at `sequence`, if a group ends with it; `live` is what the ledger says.
    pub(crate) fn hash_after(
        &mut self,
        view: &View,
        sequence: u64,
        live: Option<Digest>,
    ) -> Result<Option<Digest>, QueryError> {
        if sequence == view.through() && sequence != 0 {
            return Ok(Some(view.state.hash));
        }
        match view.from(sequence) {
            Some(listed) if listed.last == sequence => Ok(Some(listed.last_hash)),
            Some(listed) if listed.is_deleted => Ok(None),
            Some(listed) => self.within(view, listed, |it| it.hash_after(sequence)),
            None => Ok(live),
        }
    }

    /// The next page of rows of calls, of which the ledger has these; or the sequence from which on it is looked for.
    pub(crate) fn indexed_calls(
        &mut self,
        view: &View,
        from: u64,
        mut page: Vec<IndexedCall>,
    ) -> Result<ControlFlow<Vec<IndexedCall>, u64>, QueryError> {
        let Some(listed) = view.from(from) else {
            return Ok(ControlFlow::Break(page));
        };
        // The calls that began in this segment may have ended in any that follows.
        let until = listed.last.min(view.through());
        page.retain(|row| row.sequence <= until && !listed.is_deleted);
        for later in view.listed.iter().filter(|it| listed.first <= it.last) {
            if later.first_start <= until && !later.is_deleted && !listed.is_deleted {
                let segment = self.get(view, later)?;
                page.extend(segment.indexed_calls(from, until, view.through())?);
            }
        }
        if page.is_empty() {
            return Ok(ControlFlow::Continue(until.saturating_add(1)));
        }
        page.sort_by_key(|row| row.sequence);
        page.truncate(MAX_PAGE_ROWS);
        Ok(ControlFlow::Break(page))
    }

    /// The row of a call, of which the ledger has this one.
    pub(crate) fn indexed_call(
        &mut self,
        view: &View,
        call: CallId,
        mut row: Option<IndexedCall>,
    ) -> Result<Option<IndexedCall>, QueryError> {
        for listed in view.newest_first() {
            if row.is_some() {
                break;
            }
            let found = self.within(view, listed, |it| it.indexed_call(call))?;
            // What is beyond was the ledger's when it was looked at.
            row = found.filter(|it| {
                it.end
                    .as_ref()
                    .is_some_and(|end| end.sequence <= view.through())
            });
        }
        Ok(row.filter(|row| !view.is_deleted(row.sequence)))
    }

    /// The next page of rows of notes; `None` if no segment has any, so that the ledger's are the next.
    pub(crate) fn indexed_notes(
        &mut self,
        view: &View,
        mut from: u64,
    ) -> Result<Option<Vec<IndexedNote>>, QueryError> {
        while let Some(listed) = view.from(from) {
            if !listed.is_deleted {
                let mut page = self.within(view, listed, |it| it.indexed_notes(from))?;
                page.retain(|row| row.sequence <= view.through());
                if !page.is_empty() {
                    return Ok(Some(page));
                }
            }
            from = listed.last.saturating_add(1);
        }
        Ok(None)
    }

    /// The seals of the segments that are not deleted, in order, those included that are left out.
    pub(crate) fn seals(&mut self, view: &View) -> Result<Vec<Seal>, QueryError> {
        let mut seals = Vec::new();
        for listed in &view.listed {
            if listed.is_unread {
                let path = self.path(view, listed);
                let seal = seal_of(&path).map_err(failed)?;
                let seal = seal.filter(|seal| is_of(seal, listed));
                seals.push(seal.ok_or_else(|| other(path, listed))?);
            } else if !listed.is_deleted {
                seals.push(self.within(view, listed, |it| Ok(it.seal.clone()))?);
            }
        }
        Ok(seals)
    }

    /// Number of calls that were taken out into segments.
    pub(crate) fn count(&mut self, view: &View) -> Result<i64, QueryError> {
        let mut count = 0;
        for listed in view.newest_first() {
            count += self.within(view, listed, |segment| {
                Ok(segment.connection.query_row(
                    "SELECT count(*) FROM call WHERE end_sequence <= ?1",
                    [super::signed(view.through())],
                    |row| row.get::<_, i64>(0),
                )?)
            })?;
        }
        Ok(count)
    }

    /// Compares the sums that were carried over of a day with those of the segments; names a table that differs.
    pub(crate) fn differing_day(
        &mut self,
        view: &View,
        day: i64,
        carried: Option<&OfDay>,
    ) -> Result<Option<&'static str>, QueryError> {
        let mut expected = OfDay::new();
        for listed in &view.listed {
            if has_day(listed, day)
                && !self.within(view, listed, |segment| {
                    segment.add_day(day, view.through(), &mut expected)
                })?
            {
                return Ok(Some("usage_day"));
            }
        }
        Ok((carried != Some(&expected)).then_some("carried_day"))
    }

    /// Compares the use that was carried over by quarters of an hour with that of the segments, as far as it must still
    /// be there.
    pub(crate) fn differing_quarters(
        &mut self,
        view: &View,
        mut carried: OfQuarters,
    ) -> Result<Option<&'static str>, QueryError> {
        // Clocks differ: what is about to be forgotten may be gone.
        let kept_us = (KEPT_DAYS - 2) * DAY_US;
        let from_us = system_now_us().saturating_sub(kept_us) / DAY_US * DAY_US;
        let mut expected = OfQuarters::new();
        for listed in view.listed.iter().filter(|it| from_us <= it.until_us) {
            self.within(view, listed, |segment| {
                let connection = &segment.connection;
                Ok(sums::add_quarters(
                    connection,
                    from_us,
                    view.through(),
                    &mut expected,
                )?)
            })?;
        }
        let begin = (from_us / QUARTER_US) as i64;
        carried.retain(|(quarter, _), _| begin <= *quarter);
        Ok((carried != expected).then_some("carried_quarter"))
    }

    /// Compares what else stays of what was taken out with the segments, and these with what they sum up.
    pub(crate) fn differing(
        &mut self,
        view: &View,
        starts: &[CarriedStart],
    ) -> Result<Option<&'static str>, QueryError> {
        // The chain goes on from the hash that the segments end with.
        let through = view.through();
        let known = match view.from(through) {
            Some(listed) if listed.last == through => Some(listed.last_hash),
            // What follows shows whether it is that one.
            Some(listed) if listed.is_unread => Some(view.state.hash),
            Some(listed) if !listed.is_deleted => {
                self.within(view, listed, |it| it.hash_after(through))?
            }
            _ => None,
        };
        if through != 0 && known != Some(view.state.hash) {
            return Ok(Some("archived"));
        }
        for start in starts {
            match view.from(start.sequence) {
                Some(listed) if listed.is_deleted => {}
                Some(listed) if self.within(view, listed, |it| it.has(start))? => {}
                _ => return Ok(Some("carried_start")),
            }
        }
        for listed in view.newest_first() {
            if let Some(table) = self.within(view, listed, Segment::differing_sums)? {
                return Ok(Some(table));
            }
        }
        Ok(None)
    }
}

fn has_day(listed: &Listed, day: i64) -> bool {
    let days = listed.from_us / DAY_US..=listed.until_us / DAY_US;
    u64::try_from(day).is_ok_and(|day| days.contains(&day))
}

fn failed(error: ArchiveError) -> QueryError {
    match error {
        ArchiveError::Altered { path, last } => QueryError::Altered { path, last },
        error => QueryError::Store(Box::new(error)),
    }
}

/// The first contradiction in a database, between tables and their indexes among others.
pub(super) fn contradiction(connection: &Connection) -> Result<Option<String>, QueryError> {
    let found = connection.query_row("PRAGMA main.integrity_check(1)", [], |row| {
        row.get::<_, String>(0)
    });
    match found {
        Ok(found) => Ok((found != "ok").then_some(found)),
        Err(error) if is_of_what_is_there(&error) => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Error of a segment that is there, but another one than is listed.
fn other(path: PathBuf, listed: &Listed) -> QueryError {
    QueryError::Segment {
        path,
        first: listed.first,
        last: listed.last,
        source: "its seal is of other entries, or cannot be read".into(),
    }
}

/// Returns true if an error says that a segment has not what it should, and not that it could not be read.
fn is_damage(error: &QueryError) -> bool {
    let QueryError::Store(source) = error else {
        return matches!(error, QueryError::Damaged(_) | QueryError::NoStart { .. });
    };
    if let Some(error) = source.downcast_ref::<rusqlite::Error>() {
        return is_of_what_is_there(error);
    }
    match source.downcast_ref::<ArchiveError>() {
        Some(ArchiveError::Segment { source, .. }) => match source {
            Unusable::NotADatabase | Unusable::Foreign | Unusable::Damaged(_) => true,
            Unusable::Database(error) => is_of_what_is_there(error),
            Unusable::Newer { .. } | Unusable::Busy(_) => false,
        },
        Some(ArchiveError::Database(source)) => source
            .downcast_ref::<rusqlite::Error>()
            .is_some_and(is_of_what_is_there),
        Some(_) => false,
        None => matches!(
            source.downcast_ref::<IndexError>(),
            Some(IndexError::Damaged { .. })
        ),
    }
}

/// Returns true if an error comes of what a database has: it is malformed, or has no such table, or no such row.
fn is_of_what_is_there(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(
            code,
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown
        ),
        None => true,
    }
}

/// Returns true if a seal is that of a listed segment.
fn is_of(seal: &Seal, listed: &Listed) -> bool {
    (seal.first_sequence, seal.last_sequence, seal.last_hash)
        == (listed.first, listed.last, listed.last_hash)
}

/// Parts of a ledger that were deleted with their segments, or are left out; `unsaid` tells of which no entry says so yet.
pub(crate) fn gaps(view: &View, unsaid: impl Fn(&Listed) -> bool) -> Vec<Gap> {
    let gap = |listed: &Listed| {
        // What has not been taken out of one that cannot be read is in the ledger.
        let (last_sequence, last_hash) = match view.through() < listed.last {
            true => (view.through(), view.state.hash),
            false => (listed.last, listed.last_hash),
        };
        Gap {
            first_sequence: listed.first,
            last_sequence,
            last_hash,
            is_unsaid: unsaid(listed),
            unread_until_us: listed.is_unread.then_some(listed.until_us),
        }
    };
    let deleted = view.listed.iter().filter(|it| it.is_deleted);
    deleted.map(gap).collect()
}

/// Start of a call that has not ended in what was taken out.
#[derive(Clone, Debug)]
pub(crate) struct CarriedStart {
    pub(crate) sequence: u64,
    pub(crate) group: i64,
    pub(crate) offset: i64,
    pub(crate) entry: Vec<u8>,
}

impl Segment {
    fn open(path: &Path, listed: &Listed, identities: &[Identity]) -> Result<Self, QueryError> {
        let (connection, seal) = segment::open(path, identities).map_err(failed)?;
        let seal = seal.filter(|seal| is_of(seal, listed));
        let seal = seal.ok_or_else(|| other(path.to_owned(), listed))?;
        let tail = Tail::new(&connection)?;
        if tail.hides_index {
            index_anew(&connection)?;
        }
        Ok(Self {
            number: listed.number,
            connection,
            seal,
            hides_index: tail.hides_index,
            frame: LastFrame::default(),
        })
    }

    /// Bytes that it has in memory, if it was encrypted.
    fn in_memory(&self) -> u64 {
        self.seal.encrypted.map_or(0, |it| it.bytes)
    }

    /// Asks as a ledger is asked, of what was taken out through this entry.
    fn ask<T>(
        &mut self,
        through: u64,
        question: impl FnOnce(&Transaction<'_>, Source) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let source = Source::Segment {
            first: self.seal.first_sequence,
            last: self.seal.last_sequence,
            through,
        };
        let snapshot = self.connection.transaction()?;
        let answer = question(&snapshot, source)?;
        snapshot.commit()?;
        Ok(answer)
    }

    fn recent(
        &mut self,
        through: u64,
        limit: usize,
        filter: &Filter<'_>,
    ) -> Result<Vec<CallRecord>, QueryError> {
        self.ask(through, |snapshot, source| {
            calls::recent(snapshot, source, limit, filter)
        })
    }

    fn notes(
        &mut self,
        through: u64,
        limit: usize,
        filter: &NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError> {
        self.ask(through, |snapshot, source| {
            notes::notes(snapshot, source, limit, filter)
        })
    }

    fn add_edges(&mut self, through: u64, sums: &mut Sums<'_>) -> Result<(), QueryError> {
        self.ask(through, |snapshot, source| sums.add_edges(snapshot, source))
    }

    fn groups(&mut self, from: u64, through: u64) -> Result<Vec<StoredGroup>, QueryError> {
        let mut select = self.connection.prepare_cached(
            "SELECT first_sequence, count, hash, frame, frame_offset, length FROM entry_group
             WHERE first_sequence >= ?1 AND first_sequence <= ?2 ORDER BY first_sequence",
        )?;
        let mut rows = select.query([beginning(from), super::signed(through)])?;
        let (mut groups, mut bytes) = (Vec::new(), 0);
        while let Some(row) = rows.next()? {
            let length: i64 = row.get(5)?;
            bytes += usize::try_from(length).unwrap_or(MAX_PAGE_BYTES);
            if MAX_PAGE_BYTES < bytes && !groups.is_empty() {
                break;
            }
            let hash: Vec<u8> = row.get(2)?;
            let body = self
                .frame
                .slice(&self.connection, row.get(3)?, row.get(4)?, length)?;
            let Some(body) = body else {
                // Asked for by itself it is told, with its place.
                if !groups.is_empty() {
                    break;
                }
                return Err(QueryError::Damaged(DecodeError::Short));
            };
            groups.push(StoredGroup {
                first_sequence: number(row, 0)?,
                count: number(row, 1)?,
                hash: hash.try_into().unwrap_or_default(),
                body: body.to_vec(),
            });
        }
        Ok(groups)
    }

    fn hash_after(&self, sequence: u64) -> Result<Option<Digest>, QueryError> {
        scan::hash_after(&self.connection, sequence)
    }

    /// The rows of calls that began from `from` to `until` and ended at `through` or before.
    fn indexed_calls(
        &self,
        from: u64,
        until: u64,
        through: u64,
    ) -> Result<Vec<IndexedCall>, QueryError> {
        if self.hides_index {
            return Ok(Vec::new());
        }
        let sql = format!(
            "{} WHERE start_sequence >= ?1 AND start_sequence <= ?2 AND end_sequence <= ?3
             ORDER BY start_sequence LIMIT ?4",
            scan::CALL
        );
        let mut select = self.connection.prepare_cached(&sql)?;
        let until = super::signed(until);
        let values = (
            beginning(from),
            until,
            super::signed(through),
            MAX_PAGE_ROWS as i64,
        );
        let rows = select.query_map(values, scan::call)?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn indexed_call(&self, call: CallId) -> Result<Option<IndexedCall>, QueryError> {
        if self.hides_index {
            return Ok(None);
        }
        scan::indexed_call(&self.connection, call)
    }

    fn indexed_notes(&self, from: u64) -> Result<Vec<IndexedNote>, QueryError> {
        if self.hides_index {
            return Ok(Vec::new());
        }
        scan::indexed_notes(&self.connection, from)
    }

    /// Returns true if it has this start.
    fn has(&mut self, start: &CarriedStart) -> Result<bool, QueryError> {
        let group = self.frame.group(&self.connection, start.group)?;
        let offset = usize::try_from(start.offset).ok();
        let found = offset.and_then(|offset| group?.get(offset..)?.get(..start.entry.len()));
        Ok(found == Some(&*start.entry))
    }

    /// The name of a table of the segment that differs from what it sums up.
    fn differing_sums(&mut self) -> Result<Option<&'static str>, QueryError> {
        match self.hides_index {
            true => Ok(None),
            false => sums::differing(&mut self.connection, false),
        }
    }

    /// Adds the sums of a day, of what was taken out; tells whether they can be read.
    fn add_day(&self, day: i64, through: u64, sums: &mut sums::OfDay) -> Result<bool, QueryError> {
        if through < self.seal.last_sequence || self.hides_index {
            sums::add_calls_of_day(&self.connection, day, through, sums)?;
            return Ok(true);
        }
        let Some(of_day) = sums::of_day(&self.connection, "usage_day", day)? else {
            return Ok(false);
        };
        for (of, (tally, used)) in of_day {
            let (sum, sum_used) = sums.entry(of).or_default();
            sum.merge(&tally);
            sum_used.add(used);
        }
        Ok(true)
    }
}

/// Indexes a segment whose index is of another version, in tables that hide it.
fn index_anew(connection: &Connection) -> Result<(), QueryError> {
    let mut frame = LastFrame::default();
    let mut last: i64 = 0;
    let mut next = || -> Result<Option<(i64, Vec<u8>)>, IndexError> {
        let first: Option<i64> = connection
            .prepare_cached(
                "SELECT first_sequence FROM entry_group WHERE first_sequence > ?1
                 ORDER BY first_sequence LIMIT 1",
            )?
            .query_row([last], |row| row.get(0))
            .optional()?;
        let Some(first) = first else {
            return Ok(None);
        };
        last = first;
        let body = frame.group(connection, first)?;
        let body = body.ok_or(IndexError::Damaged {
            sequence: first,
            source: DecodeError::Short,
        })?;
        Ok(Some((first, body.to_vec())))
    };
    index::index_segment(connection, &mut next).map_err(|error| QueryError::Store(error.boxed()))
}
