//! Writing a segment.

use super::{
    ArchiveError, ArchiveStep, Archived, Archiver, Listed, State, cut, leave_note,
    segment::{self, Frames, LastFrame, SEGMENT},
};
use crate::{
    record::{codec::hex, entry::Digest, seal::Seal},
    sqlite::index,
    store::Tail,
};
use rusqlite::{
    Connection, Row, ToSql, TransactionBehavior, params, params_from_iter, types::ToSqlOutput,
};
use sqlite_file::Access;
use std::{
    fs::{self, File},
    path::Path,
};

impl Archiver {
    /// Writes the next segment, if there is enough for one, and lists it.
    pub(super) fn write(
        &mut self,
        state: &State,
        number: i64,
        before_us: u64,
        now_us: u64,
        tell: &mut dyn FnMut(ArchiveStep),
    ) -> Result<Archived, ArchiveError> {
        let cut = cut(&self.connection, before_us, now_us)?;
        if cut <= state.through {
            return Ok(Archived::Nothing);
        }
        let file = format!("ledger-{number:06}.segment");
        let path = self.options.directory.join(&file);
        let after = Tail {
            next_sequence: state.through + 1,
            hash: state.hash,
        };
        let (seal, begins) = if path.exists() {
            // A process was killed before it was listed, or it is of another ledger.
            let seal = self.adopt(&path, &after)?;
            if cut < seal.last_sequence {
                // It was written for a later time than is asked for now.
                return Ok(Archived::Nothing);
            }
            let begins = Begins::of(&segment::open(&path)?)?;
            (seal, begins)
        } else {
            let partial = path.with_extension("partial");
            remove(&partial)?;
            let seal = self.copy(&partial, number, &after, cut, now_us)?;
            tell(ArchiveStep::Copied);
            sync(&partial)?;
            let written = segment::open(&partial)?;
            if read_back(&written, &after)? != end_of(&seal) {
                return Err(ArchiveError::ReadBack(partial));
            }
            let begins = Begins::of(&written)?;
            drop(written);
            tell(ArchiveStep::Synced);
            fs::rename(&partial, &path).map_err(failed(&path))?;
            sync(&self.options.directory)?;
            tell(ArchiveStep::Named);
            (seal, begins)
        };
        self.list(&seal, &file, &begins, now_us)?;
        tell(ArchiveStep::Listed);
        Ok(Archived::Written { seal, path })
    }

    /// Copies groups from after `after` through `cut` into a new segment.
    fn copy(
        &mut self,
        path: &Path,
        number: i64,
        after: &Tail,
        cut: u64,
        now_us: u64,
    ) -> Result<Seal, ArchiveError> {
        sqlite_file::create(path)?;
        let (mut target, _) =
            SEGMENT
                .open(path, Access::Write)
                .map_err(|source| ArchiveError::Segment {
                    path: path.to_owned(),
                    source,
                })?;
        // A part of a segment is worth nothing: it is written anew.
        target.pragma_update(None, "journal_mode", "OFF")?;
        target.pragma_update(None, "synchronous", "OFF")?;
        target.pragma_update(None, "cache_size", -64 * 1024)?;
        let target = target.transaction_with_behavior(TransactionBehavior::Immediate)?;
        segment::prepare(&target)?;
        let source = self.connection.transaction()?;
        let tail = copy_groups(&source, &target, after, cut, self.options.segment_entries)?;
        let last = (tail.next_sequence - 1) as i64;
        let through = (after.next_sequence - 1) as i64;
        copy_rows(
            &source,
            &target,
            "SELECT * FROM call WHERE start_sequence <= ?2 AND end_sequence > ?1 AND end_sequence <= ?2",
            "INSERT INTO call VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            [through, last],
        )?;
        copy_rows(
            &source,
            &target,
            "SELECT * FROM note WHERE sequence > ?1 AND sequence <= ?2",
            "INSERT INTO note VALUES (?,?,?,?,?,?,?,?)",
            [through, last],
        )?;
        copy_rows(
            &source,
            &target,
            "SELECT carried_start.* FROM carried_start JOIN call ON start_sequence = sequence
             WHERE end_sequence > ?1 AND end_sequence <= ?2",
            "INSERT INTO carried_start VALUES (?,?,?,?)",
            [through, last],
        )?;
        source.commit()?;
        index::sum_up(&target)?;
        target.execute(
            "UPDATE indexed SET through = ?1, calls = (SELECT count(*) FROM call)",
            [last],
        )?;
        let mut seal = Seal {
            number: number.unsigned_abs(),
            first_sequence: after.next_sequence,
            last_sequence: last.unsigned_abs(),
            previous_hash: after.hash,
            last_hash: tail.hash,
            at_us: now_us,
            signature: None,
        };
        if let Some(key) = &self.options.key {
            seal.sign(key);
        }
        segment::write_seal(&target, &seal)?;
        target.commit()?;
        Ok(seal)
    }

    /// Takes a segment that is there already for the next one, if it is that.
    fn adopt(&self, path: &Path, after: &Tail) -> Result<Seal, ArchiveError> {
        let foreign = || ArchiveError::Foreign(path.to_owned());
        let found = segment::open(path)?;
        let seal = segment::read_seal(&found)?.ok_or_else(foreign)?;
        let hash: Option<Digest> = self.connection.query_row(
            "SELECT (SELECT hash FROM entry_group WHERE first_sequence + count - 1 = ?1
                    AND first_sequence <= ?1 ORDER BY first_sequence DESC LIMIT 1)",
            [seal.last_sequence as i64],
            |row| row.get(0),
        )?;
        let continues = (seal.first_sequence, seal.previous_hash)
            == (after.next_sequence, after.hash)
            && hash == Some(seal.last_hash)
            && read_back(&found, after)? == end_of(&seal);
        match continues {
            true => Ok(seal),
            false => Err(foreign()),
        }
    }

    fn list(
        &mut self,
        seal: &Seal,
        file: &str,
        begins: &Begins,
        now_us: u64,
    ) -> Result<(), ArchiveError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        transaction.execute(
            "INSERT INTO archive_segment VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, NULL)",
            params![
                seal.number as i64,
                file,
                seal.first_sequence as i64,
                seal.last_sequence as i64,
                seal.last_hash,
                begins.first_start,
                begins.from_us,
                begins.until_us,
            ],
        )?;
        let directory = self.options.directory.to_string_lossy();
        transaction.execute("UPDATE archived SET directory = ?1", [&directory])?;
        let detail = serde_json::json!({
            "archived": file,
            "directory": directory,
            "first_sequence": seal.first_sequence,
            "last_sequence": seal.last_sequence,
            "last_hash": hex(&seal.last_hash),
        });
        leave_note(&transaction, now_us, "system", file, &detail)?;
        transaction.commit()?;
        Ok(())
    }
}

/// First start and times of a segment.
pub(super) struct Begins {
    first_start: i64,
    from_us: i64,
    pub(super) until_us: i64,
}

impl Begins {
    pub(super) fn of(segment: &Connection) -> rusqlite::Result<Self> {
        segment.query_row(
            "SELECT coalesce((SELECT min(start_sequence) FROM call), 9223372036854775807),
                coalesce(min(at_us), 0), coalesce(max(at_us), 0)
             FROM (SELECT min(started_us) AS at_us FROM call
                UNION ALL SELECT max(started_us) FROM call
                UNION ALL SELECT min(at_us) FROM note
                UNION ALL SELECT max(at_us) FROM note)",
            [],
            |row| {
                Ok(Self {
                    first_start: row.get(0)?,
                    from_us: row.get(1)?,
                    until_us: row.get(2)?,
                })
            },
        )
    }
}

/// Copies whole groups until there are `max` entries; tells where they end.
fn copy_groups(
    source: &Connection,
    target: &Connection,
    after: &Tail,
    cut: u64,
    max: u64,
) -> Result<Tail, ArchiveError> {
    let mut select = source.prepare(
        "SELECT first_sequence, count, hash, body FROM entry_group
         WHERE first_sequence >= ?1 AND first_sequence <= ?2 ORDER BY first_sequence",
    )?;
    let mut rows = select.query([after.next_sequence as i64, cut as i64])?;
    let mut frames = Frames::new(target);
    let mut tail = *after;
    while let Some(row) = rows.next()? {
        if max <= tail.next_sequence - after.next_sequence {
            break;
        }
        let (first, count): (i64, i64) = (row.get(0)?, row.get(1)?);
        let body = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
        let next = tail.after(body, count.unsigned_abs());
        let stored: Vec<u8> = row.get(2)?;
        if first != tail.next_sequence as i64 || count < 1 || stored != next.hash {
            return Err(ArchiveError::Damaged(tail.next_sequence));
        }
        frames.add(first, count, &next.hash, body)?;
        tail = next;
    }
    frames.flush()?;
    Ok(tail)
}

fn copy_rows(
    source: &Connection,
    target: &Connection,
    select: &str,
    insert: &str,
    range: [i64; 2],
) -> rusqlite::Result<()> {
    let mut select = source.prepare(select)?;
    let columns = select.column_count();
    let mut insert = target.prepare(insert)?;
    let mut rows = select.query(range)?;
    while let Some(row) = rows.next()? {
        let values = (0..columns)
            .map(|index| Ok(Value(row, index)))
            .collect::<rusqlite::Result<Vec<_>>>()?;
        insert.execute(params_from_iter(values))?;
    }
    Ok(())
}

/// A value as it is stored.
struct Value<'a>(&'a Row<'a>, usize);

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0.get_ref(self.1)?))
    }
}

/// Reads the groups of a segment that continues a ledger; tells where they end. What does not follow from what is
/// before it ends them.
fn read_back(segment: &Connection, after: &Tail) -> rusqlite::Result<Tail> {
    let mut select = segment.prepare(
        "SELECT first_sequence, count, hash, frame, frame_offset, length FROM entry_group
         ORDER BY first_sequence",
    )?;
    let mut rows = select.query([])?;
    let (mut frame, mut tail) = (LastFrame::default(), *after);
    while let Some(row) = rows.next()? {
        let (first, count): (i64, i64) = (row.get(0)?, row.get(1)?);
        let Some(body) = frame.slice(segment, row.get(3)?, row.get(4)?, row.get(5)?)? else {
            break;
        };
        let next = tail.after(body, count.unsigned_abs());
        let stored: Vec<u8> = row.get(2)?;
        if first != tail.next_sequence as i64 || stored != next.hash {
            break;
        }
        tail = next;
    }
    Ok(tail)
}

fn end_of(seal: &Seal) -> Tail {
    Tail {
        next_sequence: seal.last_sequence + 1,
        hash: seal.last_hash,
    }
}

fn failed(path: &Path) -> impl FnOnce(std::io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |source| ArchiveError::File { path, source }
}

fn remove(path: &Path) -> Result<(), ArchiveError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(path)(error)),
        _ => Ok(()),
    }
}

/// Waits until a file or a directory is on the disk.
fn sync(path: &Path) -> Result<(), ArchiveError> {
    let file = File::open(path).map_err(failed(path))?;
    file.sync_all().map_err(failed(path))
}

impl Listed {
    /// Path of the segment.
    pub(crate) fn path(&self, directory: &Path) -> std::path::PathBuf {
        directory.join(&self.file)
    }
}
