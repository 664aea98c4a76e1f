//! Writing a segment.

use super::{
    ArchiveError, ArchiveStep, Archived, Archiver, Listed, State, encrypted, failed,
    segment::{self, Frames, LastFrame, SEGMENT},
    take_out,
};
use crate::{
    query::{IndexedCall, IndexedNote, StoredGroup},
    record::{
        codec,
        entry::{Event, Outcome},
        seal::Seal,
    },
    sqlite::index,
    store::Tail,
};
use age_format::FileKey;
use data_encoding::HEXLOWER;
use rusqlite::{Connection, TransactionBehavior, params};
use sqlite_file::Access;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// A segment that is being written. Groups come first, in order, and then what the index has of them.
pub(crate) struct SegmentWriter<'a> {
    target: &'a Connection,
    frames: Frames<'a>,
    after: Tail,
    tail: Tail,
    max_entries: u64,
}

impl<'a> SegmentWriter<'a> {
    fn new(target: &'a Connection, after: &Tail, max_entries: u64) -> Self {
        Self {
            target,
            frames: Frames::new(target),
            after: *after,
            tail: *after,
            max_entries,
        }
    }

    /// Sequence of its first entry.
    pub(crate) fn first(&self) -> u64 {
        self.after.next_sequence
    }

    /// Sequence of its last entry so far.
    pub(crate) fn last(&self) -> u64 {
        self.tail.next_sequence - 1
    }

    /// Returns true if no further group is to be added.
    pub(crate) fn is_full(&self) -> bool {
        self.max_entries <= self.tail.next_sequence - self.after.next_sequence
    }

    /// Database of the segment, for rows of its index.
    pub(crate) fn target(&self) -> &'a Connection {
        self.target
    }

    /// Adds the next group, whole.
    pub(crate) fn add_group(&mut self, group: &StoredGroup) -> Result<(), ArchiveError> {
        let damaged = || ArchiveError::Damaged(self.tail.next_sequence);
        let is_next = group.first_sequence == self.tail.next_sequence;
        if !is_next || group.count == 0 || i64::MAX as u64 <= group.count {
            return Err(damaged());
        }
        let next = self.tail.after(&group.body, group.count);
        if group.hash != next.hash {
            return Err(damaged());
        }
        let (first, count) = (group.first_sequence as i64, group.count as i64);
        self.frames.add(first, count, &next.hash, &group.body)?;
        self.tail = next;
        Ok(())
    }

    /// Adds a row about a call that ends in the segment.
    pub(crate) fn add_call(&mut self, call: &IndexedCall) -> Result<(), ArchiveError> {
        let at = |place: Option<crate::query::Place>| {
            let place = place.unwrap_or(crate::query::Place {
                group: u64::MAX,
                offset: u64::MAX,
                length: u64::MAX,
            });
            [place.group, place.offset, place.length].map(|it| it as i64)
        };
        let start = at(call.place);
        let end = call.end.as_ref();
        let end_place = end.map(|end| at(end.place));
        self.target
            .prepare_cached("INSERT INTO call VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")?
            .execute(params![
                call.sequence as i64,
                call.call.0.as_bytes(),
                call.started_us as i64,
                call.principal,
                call.kind,
                call.capability,
                call.request_id,
                call.trace_id,
                call.approval,
                call.estimated_cost_micros as i64,
                start[0],
                start[1],
                start[2],
                end.map(|end| end.sequence as i64),
                end.map(|end| &end.outcome),
                end.and_then(|end| end.reason.as_ref()),
                end.map(|end| end.cost_micros as i64),
                end.map(|end| end.duration_us as i64),
                end_place.map(|it| it[0]),
                end_place.map(|it| it[1]),
                end_place.map(|it| it[2]),
            ])?;
        Ok(())
    }

    /// Adds a row about a note of the segment.
    pub(crate) fn add_note(&mut self, note: &IndexedNote) -> Result<(), ArchiveError> {
        let place = note.place.ok_or(ArchiveError::Damaged(note.sequence))?;
        self.target
            .prepare_cached("INSERT INTO note VALUES (?,?,?,?,?,?,?,?)")?
            .execute(params![
                note.sequence as i64,
                note.at_us as i64,
                note.kind,
                note.actor,
                note.subject,
                place.group as i64,
                place.offset as i64,
                place.length as i64,
            ])?;
        Ok(())
    }

    /// Keeps the start of a call that ends in the segment and began in an earlier one.
    pub(crate) fn add_start(
        &mut self,
        [sequence, group, offset]: [i64; 3],
        entry: &[u8],
    ) -> Result<(), ArchiveError> {
        self.target
            .prepare_cached("INSERT INTO carried_start VALUES (?,?,?,?)")?
            .execute(params![sequence, group, offset, entry])?;
        Ok(())
    }
}

/// The file under the name of the next segment.
enum There {
    Nothing,
    /// A segment that goes on beyond what may be taken out now.
    Later,
    /// The next segment.
    Next(Box<(Seal, Connection)>),
}

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
        let cut = self.ledger.cut(before_us, now_us)?;
        if cut <= state.through {
            return Ok(Archived::Nothing);
        }
        let file = format!("ledger-{number:06}.segment");
        let path = self.options.directory.join(&file);
        let after = Tail {
            next_sequence: state.through + 1,
            hash: state.hash,
        };
        // A process was killed before it was listed, or it is of another ledger.
        let there = match path.exists() {
            true => self.adopt(&path, &after, cut)?,
            false => There::Nothing,
        };
        let (seal, written) = match there {
            There::Next(adopted) => *adopted,
            // It was written for a later time than is asked for now.
            There::Later => return Ok(Archived::Nothing),
            There::Nothing => {
                // Nobody else writes a file of this name, not even a process that has lost its lock and does not know it.
                let partial = path.with_extension(format!("{}.partial", Uuid::new_v4().simple()));
                let (seal, file_key) = self.copy(&partial, number, &after, cut, now_us)?;
                tell(ArchiveStep::Copied);
                sync(&partial)?;
                let written = match &file_key {
                    Some(file_key) => encrypted::read_back(&partial, file_key)?,
                    None => segment::open_plain(&partial)?,
                };
                if !is_whole(&written, &seal, &after)? {
                    return Err(ArchiveError::ReadBack(partial));
                }
                tell(ArchiveStep::Synced);
                // Such a process does not come further than this.
                let (now, listed) = self.ledger.archive()?;
                if now != *state || listed.last().is_some_and(|last| number <= last.number) {
                    return Err(ArchiveError::Locked("it went on meanwhile".to_owned()));
                }
                name(&partial, &path, self.ledger.is_shared())?;
                sync(&self.options.directory)?;
                tell(ArchiveStep::Named);
                (seal, written)
            }
        };
        let begins = Begins::of(&written)?;
        let mut detail = serde_json::json!({
            "archived": file,
            "directory": self.options.directory.to_string_lossy(),
            "first_sequence": seal.first_sequence,
            "last_sequence": seal.last_sequence,
            "last_hash": HEXLOWER.encode(&seal.last_hash),
        });
        if let Some(encrypted) = &seal.encrypted {
            detail["sha256"] = HEXLOWER.encode(&encrypted.sha256).into();
        }
        let listed = Listed {
            number,
            file,
            first: seal.first_sequence,
            last: seal.last_sequence,
            last_hash: seal.last_hash,
            first_start: begins.first_start.unsigned_abs(),
            from_us: begins.from_us.unsigned_abs(),
            until_us: begins.until_us.unsigned_abs(),
            is_deleted: false,
            is_unread: false,
        };
        let directory = &self.options.directory;
        self.ledger.list(&listed, directory, &detail, now_us)?;
        tell(ArchiveStep::Listed);
        if seal.encrypted.is_some() {
            // It is in memory, and may be opened by nobody here.
            take_out::index_ends(&written)?;
            self.open = Some((number, written));
        }
        Ok(Archived::Written {
            seal: Box::new(seal),
            path,
        })
    }

    /// Copies groups from after `after` through `cut` into a new segment; tells the key of its file if it is encrypted.
    fn copy(
        &mut self,
        path: &Path,
        number: i64,
        after: &Tail,
        cut: u64,
        now_us: u64,
    ) -> Result<(Seal, Option<FileKey>), ArchiveError> {
        let recipients = self.options.recipients.clone();
        let mut target = match recipients.is_empty() {
            true => new(path)?,
            false => encrypted::in_memory()?,
        };
        let key = self.options.key.clone();
        let sign = |seal: &mut Seal| {
            if let Some(key) = &key {
                seal.sign(key);
            }
        };
        let mut seal = self.fill(&mut target, number, after, cut, now_us)?;
        if recipients.is_empty() {
            return Ok((seal, None));
        }
        let file_key = encrypted::write(path, &mut target, &recipients, &mut seal, sign)?;
        Ok((seal, Some(file_key)))
    }

    /// Fills an empty segment with groups from after `after` through `cut`, and seals it.
    fn fill(
        &mut self,
        target: &mut Connection,
        number: i64,
        after: &Tail,
        cut: u64,
        now_us: u64,
    ) -> Result<Seal, ArchiveError> {
        let target = target.transaction_with_behavior(TransactionBehavior::Immediate)?;
        segment::prepare(&target)?;
        let mut writer = SegmentWriter::new(&target, after, self.options.segment_entries);
        self.ledger.copy(cut, &mut writer)?;
        writer.frames.flush()?;
        let tail = writer.tail;
        let last = tail.next_sequence - 1;
        index::sum_up(&target)?;
        target.execute(
            "UPDATE indexed SET through = ?1, calls = (SELECT count(*) FROM call)",
            [last as i64],
        )?;
        let mut seal = Seal {
            number: number.unsigned_abs(),
            first_sequence: after.next_sequence,
            last_sequence: last,
            previous_hash: after.hash,
            last_hash: tail.hash,
            at_us: now_us,
            encrypted: None,
            signature: None,
        };
        if let Some(key) = &self.options.key {
            seal.sign(key);
        }
        segment::write_seal(&target, &seal)?;
        target.commit()?;
        Ok(seal)
    }

    /// Makes anew what is still in the ledger of a segment that is encrypted, from after `after` on.
    pub(super) fn rest(
        &mut self,
        path: &Path,
        after: &Tail,
        seal: &Seal,
    ) -> Result<Connection, ArchiveError> {
        let mut connection = encrypted::in_memory()?;
        let target = connection.transaction()?;
        segment::prepare(&target)?;
        let mut writer = SegmentWriter::new(&target, after, u64::MAX);
        self.ledger.copy(seal.last_sequence, &mut writer)?;
        writer.frames.flush()?;
        if (writer.last(), writer.tail.hash) != (seal.last_sequence, seal.last_hash) {
            return Err(ArchiveError::Foreign(path.to_owned()));
        }
        if has_doubtful_ends(&target)? {
            return Err(ArchiveError::Encrypted(path.to_owned()));
        }
        target.commit()?;
        Ok(connection)
    }

    /// Takes a segment that is there already for the next one, if it is that. What nobody can prove to be that is set
    /// aside: the ledger has all its entries, and does not refer to it.
    fn adopt(&mut self, path: &Path, after: &Tail, cut: u64) -> Result<There, ArchiveError> {
        let foreign = || ArchiveError::Foreign(path.to_owned());
        // The process that gave it its name may not have come to this.
        sync(path)?;
        sync(&self.options.directory)?;
        let (seal, found) = match segment::open(path, &self.options.identities) {
            Ok((found, seal)) => (seal, Some(found)),
            // Whoever wrote it has read it back.
            Err(ArchiveError::Encrypted(_)) => (encrypted::seal_of(path)?, None),
            Err(error) => return Err(error),
        };
        let seal = seal.ok_or_else(foreign)?;
        let hash = self.ledger.hash_after(seal.last_sequence)?;
        let begins = (seal.first_sequence, seal.previous_hash);
        if begins != (after.next_sequence, after.hash) || hash != Some(seal.last_hash) {
            return Err(foreign());
        }
        if cut < seal.last_sequence {
            return Ok(There::Later);
        }
        let found = match found {
            Some(found) if is_whole(&found, &seal, after)? => found,
            Some(_) => return Err(foreign()),
            None => {
                // What nobody here can read is believed for its signature, or not at all.
                let Some(key) = self.options.key.as_ref() else {
                    set_aside(path)?;
                    return Ok(There::Nothing);
                };
                encrypted::expect_sealed(path, &seal)?;
                if seal.check_signature(&[key.public().clone()]).is_err() {
                    return Err(foreign());
                }
                self.rest(path, after, &seal)?
            }
        };
        Ok(There::Next(Box::new((seal, found))))
    }
}

/// Makes the file of a segment that is not encrypted.
fn new(path: &Path) -> Result<Connection, ArchiveError> {
    sqlite_file::create(path)?;
    let unusable = |source| ArchiveError::Segment {
        path: path.to_owned(),
        source,
    };
    let (target, _) = SEGMENT.open(path, Access::Write).map_err(unusable)?;
    // A part of a segment is worth nothing: it is written anew.
    target.pragma_update(None, "journal_mode", "OFF")?;
    target.pragma_update(None, "synchronous", "OFF")?;
    target.pragma_update(None, "cache_size", -64 * 1024)?;
    Ok(target)
}

/// Returns true if a call ends as unknown in what a segment has of the ledger, and its row does not end there. A server
/// that was taken for dead has ended it later, and only the segment tells whether that was before it was written.
fn has_doubtful_ends(segment: &Connection) -> Result<bool, ArchiveError> {
    let mut select = segment
        .prepare("SELECT frame, frame_offset, length FROM entry_group ORDER BY first_sequence")?;
    let mut is_there = segment.prepare("SELECT 1 FROM call WHERE call = ?1")?;
    let mut rows = select.query([])?;
    let mut frame = LastFrame::default();
    while let Some(row) = rows.next()? {
        let body = frame.slice(segment, row.get(0)?, row.get(1)?, row.get(2)?)?;
        for entry in codec::split(body.unwrap_or_default()).flatten() {
            if let Ok((call, Event::Ended(ended))) = codec::decode(entry.1)
                && ended.outcome == Outcome::Unknown
                && !is_there.exists([call.0.as_bytes()])?
            {
                return Ok(true);
            }
        }
    }
    Ok(false)
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

/// Returns true if a segment that continues a ledger has all the groups that its seal says.
pub(super) fn is_whole(
    segment: &Connection,
    seal: &Seal,
    after: &Tail,
) -> Result<bool, ArchiveError> {
    let mut select = segment.prepare(
        "SELECT first_sequence, count, hash, frame, frame_offset, length FROM entry_group
         ORDER BY first_sequence",
    )?;
    let mut rows = select.query([])?;
    let (mut frame, mut tail) = (LastFrame::default(), *after);
    while let Some(row) = rows.next()? {
        let (first, count): (i64, i64) = (row.get(0)?, row.get(1)?);
        let Some(body) = frame.slice(segment, row.get(3)?, row.get(4)?, row.get(5)?)? else {
            return Ok(false);
        };
        let next = tail.after(body, count.unsigned_abs());
        let stored: Vec<u8> = row.get(2)?;
        // What does not follow from what is before it ends it.
        if first != tail.next_sequence as i64 || stored != next.hash {
            return Ok(false);
        }
        tail = next;
    }
    Ok((tail.next_sequence, tail.hash) == (seal.last_sequence + 1, seal.last_hash))
}

/// Gives a segment its name. Where others may write to the same directory it takes the place of no other file.
fn name(partial: &Path, path: &Path, is_shared: bool) -> Result<(), ArchiveError> {
    if !is_shared {
        return fs::rename(partial, path).map_err(failed(path));
    }
    fs::hard_link(partial, path).map_err(failed(path))?;
    fs::remove_file(partial).map_err(failed(partial))
}

/// Gives a file that is in the way of a segment a name that nobody reads, and that is not removed.
fn set_aside(path: &Path) -> Result<(), ArchiveError> {
    let aside = path.with_extension(format!("{}.unproved", Uuid::new_v4().simple()));
    fs::rename(path, &aside).map_err(failed(path))
}

/// Removes what processes that were killed have left.
pub(super) fn remove_partial(directory: &Path) -> Result<(), ArchiveError> {
    for entry in fs::read_dir(directory).map_err(failed(directory))? {
        let path: PathBuf = entry.map_err(failed(directory))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("ledger-") && name.ends_with(".partial") {
            fs::remove_file(&path).map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Waits until a file or a directory is on the disk.
fn sync(path: &Path) -> Result<(), ArchiveError> {
    let file = File::open(path).map_err(failed(path))?;
    file.sync_all().map_err(failed(path))
}

impl Listed {
    /// Path of the segment.
    pub(crate) fn path(&self, directory: &Path) -> PathBuf {
        directory.join(&self.file)
    }
}
