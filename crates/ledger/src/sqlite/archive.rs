//! Archives: the oldest entries of a ledger in files of their own, which are written once.
//!
//! An archive is a sequence of segments ([`segment`]), each the continuation of the one before. Entries are copied
//! into a segment first; once it is on the disk and was read back, they are taken out of the ledger in small
//! transactions beside the server that appends to it. `archived.through` moves with each of them, in the same
//! transaction: what a segment has beyond that is still the ledger's, so that a reader finds each entry once at any
//! moment, and a process that is killed leaves nothing to repair: the next one goes on.
//!
//! What the ledger needs of that which was taken out stays in it: sums for budgets and statistics, the
//! starts of calls that have not ended, approvals, and the hash of the last entry. What is younger than
//! [`MIN_AGE`], what holds an idempotency key, the last checkpoint and the last group are not taken out at all, so
//! that a server needs no archive to start.

mod hold;
pub(crate) mod segment;
mod take_out;
mod write;

pub(crate) use self::hold::all as all_holds;
pub use self::hold::{Hold, HoldFilter, Holds};
use crate::{
    checkpoint::SigningKey,
    query::statistics::DAY_US,
    record::{
        codec,
        entry::Digest,
        id::CallId,
        note::{Note, NoteKind},
        seal::Seal,
    },
    sqlite::schema::{OpenError, open_to_archive},
};
use rusqlite::{Connection, OptionalExtension, params};
use sqlite_file::{CreateError, FileLock, LockError, Unusable};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The least age of what is archived. Rates look a day back, and clocks may differ.
pub const MIN_AGE: Duration = Duration::from_secs(2 * 24 * 60 * 60);

/// Entries of a segment unless told otherwise.
pub const DEFAULT_SEGMENT_ENTRIES: u64 = 250_000;

/// Options of archives.
#[derive(Clone, Debug)]
pub struct ArchiveOptions {
    /// Directory of the segments. It is made for its owner alone.
    pub directory: PathBuf,
    /// The most entries of a segment, but for the rest of the last group.
    pub segment_entries: u64,
    /// Key that signs segments: that of the checkpoints.
    pub key: Option<Arc<SigningKey>>,
}

/// Archives the entries of a ledger in a `SQLite` file, also while a server appends to it. It blocks.
#[derive(Debug)]
pub struct Archiver {
    connection: Connection,
    /// Path of the ledger.
    path: PathBuf,
    options: ArchiveOptions,
    _lock: FileLock,
}

/// Outcome of a step of an [`Archiver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Archived {
    /// There is nothing to archive.
    Nothing,
    /// A segment is on the disk; its entries are still in the ledger.
    Written {
        /// Seal of the segment.
        seal: Seal,
        /// Path of the segment.
        path: PathBuf,
    },
    /// Entries have been taken out of the ledger.
    TakenOut {
        /// Number of them.
        entries: u64,
        /// The last of them.
        through: u64,
        /// The last entry of the segment.
        last: u64,
    },
}

/// Place in the work of an [`Archiver`], in the order in which they are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArchiveStep {
    /// A segment is written under a name that nobody reads.
    Copied,
    /// The segment is on the disk, and was read back.
    Synced,
    /// The segment has its name, and the ledger does not list it.
    Named,
    /// The ledger lists it.
    Listed,
    /// Entries are taken out by a transaction that has not been committed.
    TakingOut,
    /// The transaction has been committed.
    TakenOut,
}

/// Failure of an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The ledger cannot be opened.
    #[error(transparent)]
    Ledger(#[from] OpenError),
    /// The ledger's database failed.
    #[error("the ledger's database failed")]
    Database(#[from] rusqlite::Error),
    /// Another process archives the same ledger.
    #[error("another process archives the ledger: {0}")]
    Locked(String),
    /// A file or directory of the archive cannot be made, read or written.
    #[error("{} cannot be read or written", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A segment that the ledger lists is not where it was.
    #[error("the segment {} is not there: put it back, or name the directory that has it", .0.display())]
    MissingSegment(PathBuf),
    /// A segment cannot be read.
    #[error("the segment {} cannot be read", path.display())]
    Segment {
        /// Path of the segment.
        path: PathBuf,
        /// Error of the database.
        #[source]
        source: Unusable,
    },
    /// A file with the name of the next segment is not of this ledger.
    #[error(
        "{} is there already and does not continue this ledger: archives of two ledgers, or of an older copy of \
         this one, need a directory each",
        .0.display()
    )]
    Foreign(PathBuf),
    /// A segment does not have what was written.
    #[error("the segment {} was not written as it should be: the disk may be at fault", .0.display())]
    ReadBack(PathBuf),
    /// Entries of the ledger are damaged; nothing after them is archived.
    #[error(
        "entry {0} of the ledger is damaged, so that it is not archived: see what verification says"
    )]
    Damaged(u64),
    /// The entries to be archived are too young.
    #[error("what is younger than two days stays in the ledger: limits of calls depend on it")]
    TooYoung,
    /// The holds in force are others than the notes say.
    #[error(
        "the holds in force are not those that the notes of the ledger set and lifted (`ledger verify` says so, too): \
         nothing is deleted. `ledger lift-hold` lifts one that differs or is gone, which is put on record; then set it anew"
    )]
    HoldsDiffer,
    /// The notes about holds cannot be read.
    #[error("the notes about holds cannot be read, without which nothing is deleted")]
    Holds(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A segment could not be compressed.
    #[error("a segment could not be compressed")]
    Compression(#[source] io::Error),
}

/// Segment as the ledger lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) number: i64,
    pub(crate) file: String,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) last_hash: Digest,
    /// The first start of its calls, which may be in a segment before.
    pub(crate) first_start: u64,
    /// Times of its calls and notes.
    pub(crate) from_us: u64,
    pub(crate) until_us: u64,
    /// True if its entries were deleted.
    pub(crate) is_deleted: bool,
}

/// State of a ledger's archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The last entry that was taken out; 0 if none ever was.
    pub(crate) through: u64,
    pub(crate) hash: Digest,
    pub(crate) directory: PathBuf,
}

impl State {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        connection
            .prepare_cached("SELECT through, hash, directory FROM main.archived")?
            .query_row([], |row| {
                Ok(Self {
                    through: row.get::<_, i64>(0)?.unsigned_abs(),
                    hash: row.get(1)?,
                    directory: row.get::<_, String>(2)?.into(),
                })
            })
    }
}

impl Listed {
    /// All segments, in order.
    pub(crate) fn all(connection: &Connection) -> rusqlite::Result<Vec<Self>> {
        let mut select = connection.prepare_cached(
            "SELECT number, file, first_sequence, last_sequence, last_hash, first_start, from_us, until_us,
                deleted_us IS NOT NULL
             FROM main.archive_segment ORDER BY number",
        )?;
        let number = |row: &rusqlite::Row<'_>, index| row.get::<_, i64>(index).map(|it| it as u64);
        let rows = select.query_map([], |row| {
            Ok(Self {
                number: row.get(0)?,
                file: row.get(1)?,
                first: number(row, 2)?,
                last: number(row, 3)?,
                last_hash: row.get(4)?,
                first_start: number(row, 5)?,
                from_us: number(row, 6)?,
                until_us: number(row, 7)?,
                is_deleted: row.get(8)?,
            })
        })?;
        rows.collect()
    }
}

impl Archiver {
    /// Opens the ledger at `path` to archive it. A server of this version must have opened it before.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`] when the ledger or the directory cannot be used, or another process archives it.
    pub fn open(path: &Path, options: ArchiveOptions) -> Result<Self, ArchiveError> {
        let connection = open_to_archive(path)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ArchiveError::File { path, source }
        };
        let path = path.canonicalize().map_err(failed(path))?;
        let mut beside = path.clone().into_os_string();
        beside.push(".archive");
        let mut lock = FileLock::take(Path::new(&beside)).map_err(|error| match error {
            LockError::Held { said } => ArchiveError::Locked(said),
            LockError::File { path, source } => ArchiveError::File { path, source },
        })?;
        lock.say(&format!("process {}", std::process::id()))
            .map_err(failed(Path::new(&beside)))?;
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let wanted = &options.directory;
        builder.create(wanted).map_err(failed(wanted))?;
        let directory = wanted.canonicalize().map_err(failed(wanted))?;
        Ok(Self {
            connection,
            path,
            options: ArchiveOptions {
                directory,
                ..options
            },
            _lock: lock,
        })
    }

    /// Does a part of the work: writes a segment of entries from before `before_us` (microseconds since the epoch,
    /// UTC), or takes some that are in a segment out of the ledger. Calls count by their starts.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`]; what was done before stays done, and another attempt goes on from there.
    pub fn step(&mut self, before_us: u64, now_us: u64) -> Result<Archived, ArchiveError> {
        self.step_telling(before_us, now_us, &mut |_| {})
    }

    /// Does what [`Archiver::step`] does, and tells of each place that it comes to.
    ///
    /// # Errors
    ///
    /// [`ArchiveError`].
    pub fn step_telling(
        &mut self,
        before_us: u64,
        now_us: u64,
        tell: &mut dyn FnMut(ArchiveStep),
    ) -> Result<Archived, ArchiveError> {
        let min_age_us = MIN_AGE.as_micros() as u64;
        if now_us.saturating_sub(min_age_us) < before_us {
            return Err(ArchiveError::TooYoung);
        }
        let state = State::read(&self.connection)?;
        let listed = Listed::all(&self.connection)?;
        if let Some(last) = listed.last().filter(|last| state.through < last.last) {
            let path = self.options.directory.join(&last.file);
            if !path.exists() {
                return Err(ArchiveError::MissingSegment(path));
            }
            let through = take_out::some(&mut self.connection, &state, last, now_us, tell)?;
            return Ok(Archived::TakenOut {
                entries: through - state.through,
                through,
                last: last.last,
            });
        }
        let next = listed.last().map_or(1, |last| last.number + 1);
        self.write(&state, next, before_us, now_us, tell)
    }
}

impl From<CreateError> for ArchiveError {
    fn from(CreateError { path, source }: CreateError) -> Self {
        Self::File { path, source }
    }
}

/// Leaves a note for the server to put on record, or for the next one.
pub(crate) fn leave_note(
    connection: &Connection,
    now_us: u64,
    actor: &str,
    subject: &str,
    detail: &serde_json::Value,
) -> rusqlite::Result<()> {
    connection.execute(
        "INSERT INTO unsaid_note (at_us, kind, actor, subject, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            now_us as i64,
            NoteKind::RETENTION.as_str(),
            actor,
            subject,
            detail.to_string()
        ],
    )?;
    Ok(())
}

/// Encodes the notes that were left, which are forgotten with that; tells how many there are.
pub(crate) fn say_notes(connection: &Connection, body: &mut Vec<u8>) -> rusqlite::Result<u64> {
    let mut select = connection
        .prepare_cached("SELECT at_us, actor, subject, detail FROM unsaid_note ORDER BY number")?;
    let mut rows = select.query([])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let at_us = row.get::<_, i64>(0)?.unsigned_abs();
        let (actor, subject, detail): (String, String, String) =
            (row.get(1)?, row.get(2)?, row.get(3)?);
        // Of whatever kind a row says that it is: notes of other kinds are the server's own.
        let note = Note {
            actor: &actor,
            subject: &subject,
            detail: &detail,
            ..Note::new(at_us, NoteKind::RETENTION)
        };
        codec::encode_note(CallId::new(at_us), &note, body);
        count += 1;
    }
    if count != 0 {
        connection.execute("DELETE FROM unsaid_note", [])?;
    }
    Ok(count)
}

/// The last entry that may be taken out: whatever began at `before_us` or later stays, and whatever the ledger
/// needs; 0 if nothing may.
fn cut(connection: &Connection, before_us: u64, now_us: u64) -> rusqlite::Result<u64> {
    // What is dated in the future says nothing of the time of what comes after it.
    let stays: Option<i64> = connection.query_row(
        "SELECT min(stays) FROM (
            SELECT min(start_sequence) AS stays FROM call INDEXED BY call_by_time
                WHERE started_us >= ?1 AND started_us <= ?2
            UNION ALL SELECT min(sequence) FROM note WHERE at_us >= ?1 AND at_us <= ?2
            UNION ALL SELECT through + 1 FROM indexed
            UNION ALL SELECT max(first_sequence) FROM entry_group
            UNION ALL SELECT note_group FROM (SELECT note_group FROM note INDEXED BY note_by_kind
                WHERE kind = 'checkpoint' ORDER BY at_us DESC, sequence DESC LIMIT 1)
            UNION ALL SELECT min(call.start_group) FROM idempotency_key
                JOIN call ON call.call = idempotency_key.call
         ) WHERE stays IS NOT NULL",
        [before_us as i64, now_us as i64],
        |row| row.get(0),
    )?;
    let cut: Option<i64> = connection
        .query_row(
            "SELECT first_sequence + count - 1 FROM entry_group
             WHERE first_sequence < ?1 AND first_sequence + count - 1 < ?1
             ORDER BY first_sequence DESC LIMIT 1",
            [stays.unwrap_or(0)],
            |row| row.get(0),
        )
        .optional()?;
    Ok(cut.unwrap_or(0).unsigned_abs())
}

/// Microseconds of a quarter of an hour: all time zones differ from UTC by whole ones.
pub(crate) const QUARTER_US: u64 = 15 * 60 * 1_000_000;

/// Quarters that are kept: budgets look back to the beginning of a month.
const KEPT_QUARTERS: u64 = 63 * DAY_US / QUARTER_US;
