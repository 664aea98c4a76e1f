//! Segments of a ledger's archive, as its readers see them: what has been taken out of the ledger is in them, and
//! what has not is not, though it may have been copied already.

use super::{
    Source, calls, notes,
    scan::{self, beginning, number},
    sums::{self, Sums},
    tail::Tail,
};
use crate::{
    query::{
        CallRecord, Filter, IndexedCall, IndexedNote, MAX_PAGE_BYTES, MAX_PAGE_ROWS, NoteFilter,
        NoteRecord, QueryError, StoredGroup,
    },
    record::{codec::DecodeError, entry::Digest, id::CallId, seal::Seal},
    sqlite::{
        archive::{
            ArchiveError, Listed, State,
            segment::{self, LastFrame},
        },
        index::{self, IndexError},
    },
};
use rusqlite::{Connection, OptionalExtension, Transaction};
use std::path::{Path, PathBuf};

/// The most segments that are open at the same time.
const MAX_OPEN: usize = 32;

/// State of an archive and its segments, in one snapshot of the ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) state: State,
    /// The segments that have entries which were taken out, in order.
    pub(super) listed: Vec<Listed>,
}

impl View {
    pub(super) fn read(snapshot: &Connection) -> rusqlite::Result<Self> {
        let state = State::read(snapshot)?;
        if state.through == 0 {
            return Ok(Self::default());
        }
        let mut listed = Listed::all(snapshot)?;
        listed.retain(|it| it.first <= state.through);
        Ok(Self { state, listed })
    }

    pub(super) fn through(&self) -> u64 {
        self.state.through
    }

    /// The segment that has the entry at `sequence` or the first after it that was taken out.
    pub(super) fn from(&self, sequence: u64) -> Option<&Listed> {
        if self.state.through < sequence {
            return None;
        }
        self.listed.iter().find(|it| sequence <= it.last)
    }

    /// Returns true if the entry at `sequence` was deleted.
    pub(super) fn is_deleted(&self, sequence: u64) -> bool {
        let has = |it: &&Listed| it.first <= sequence && sequence <= it.last;
        self.listed.iter().find(has).is_some_and(|it| it.is_deleted)
    }

    /// The segments that have entries, the newest first.
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Listed> {
        self.listed.iter().rev().filter(|it| !it.is_deleted)
    }
}

/// The segments that are open.
#[derive(Debug, Default)]
pub(super) struct Segments {
    /// Directory of the segments, if it is another one than the ledger says.
    pub(super) directory: Option<PathBuf>,
    open: Vec<Segment>,
}

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    number: i64,
    connection: Connection,
    seal: Seal,
    /// True if its index is of another version, and was made anew.
    hides_index: bool,
    frame: LastFrame,
}

impl Segments {
    /// Opens a segment, unless it is open.
    pub(super) fn get(&mut self, view: &View, listed: &Listed) -> Result<&mut Segment, QueryError> {
        let position = self.open.iter().position(|it| it.number == listed.number);
        let position = match position {
            Some(position) => position,
            None => {
                let directory = self.directory.as_deref().unwrap_or(&view.state.directory);
                let segment = Segment::open(&listed.path(directory), listed)?;
                if MAX_OPEN <= self.open.len() {
                    self.open.remove(0);
                }
                self.open.push(segment);
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[position])
    }
}

impl Segment {
    fn open(path: &Path, listed: &Listed) -> Result<Self, QueryError> {
        let failed = |error: ArchiveError| QueryError::Store(Box::new(error));
        let connection = segment::open(path).map_err(failed)?;
        let seal = segment::read_seal(&connection)?;
        let is_listed = |seal: &Seal| {
            (seal.first_sequence, seal.last_sequence, seal.last_hash)
                == (listed.first, listed.last, listed.last_hash)
        };
        let seal = seal.filter(is_listed);
        let seal = seal.ok_or_else(|| failed(ArchiveError::Foreign(path.to_owned())))?;
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

    pub(super) fn seal(&self) -> &Seal {
        &self.seal
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

    pub(super) fn recent(
        &mut self,
        through: u64,
        limit: usize,
        filter: &Filter<'_>,
    ) -> Result<Vec<CallRecord>, QueryError> {
        self.ask(through, |snapshot, source| {
            calls::recent(snapshot, source, limit, filter)
        })
    }

    pub(super) fn notes(
        &mut self,
        through: u64,
        limit: usize,
        filter: &NoteFilter<'_>,
    ) -> Result<Vec<NoteRecord>, QueryError> {
        self.ask(through, |snapshot, source| {
            notes::notes(snapshot, source, limit, filter)
        })
    }

    pub(super) fn add_edges(
        &mut self,
        through: u64,
        sums: &mut Sums<'_>,
    ) -> Result<(), QueryError> {
        self.ask(through, |snapshot, source| sums.add_edges(snapshot, source))
    }

    pub(super) fn groups(
        &mut self,
        from: u64,
        through: u64,
    ) -> Result<Vec<StoredGroup>, QueryError> {
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
            let body = body.ok_or(QueryError::Damaged(DecodeError::Short))?;
            groups.push(StoredGroup {
                first_sequence: number(row, 0)?,
                count: number(row, 1)?,
                hash: hash.try_into().unwrap_or_default(),
                body: body.to_vec(),
            });
        }
        Ok(groups)
    }

    pub(super) fn hash_after(&self, sequence: u64) -> Result<Option<Digest>, QueryError> {
        scan::hash_after(&self.connection, sequence)
    }

    /// The rows of calls that began from `from` to `until` and ended at `through` or before.
    pub(super) fn indexed_calls(
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

    pub(super) fn indexed_call(&self, call: CallId) -> Result<Option<IndexedCall>, QueryError> {
        if self.hides_index {
            return Ok(None);
        }
        scan::indexed_call(&self.connection, call)
    }

    pub(super) fn indexed_notes(&self, from: u64) -> Result<Vec<IndexedNote>, QueryError> {
        if self.hides_index {
            return Ok(Vec::new());
        }
        scan::indexed_notes(&self.connection, from)
    }

    /// The name of a table of the segment that differs from what it sums up.
    pub(super) fn differing_sums(&mut self) -> Result<Option<&'static str>, QueryError> {
        match self.hides_index {
            true => Ok(None),
            false => sums::differing(&mut self.connection, false),
        }
    }

    /// Adds the sums of a day, of what was taken out; tells whether they can be read.
    pub(super) fn add_day(
        &self,
        day: i64,
        through: u64,
        sums: &mut sums::OfDay,
    ) -> Result<bool, QueryError> {
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
