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
//!
//! All of this is the same for every store of a ledger; what a store does itself is [`ArchivedLedger`]. Segments are
//! files of one format, whichever store they come from.

mod encrypted;
mod file;
mod hold;
pub(crate) mod segment;
mod take_out;
mod write;

pub use self::hold::{Hold, HoldFilter, Holds};
pub(crate) use self::{
    encrypted::{expect_sealed, is_opened_by, seal_of},
    file::{say_notes, stored_holds},
    hold::{Retention, deleted_detail, lifted_detail, set_detail},
    take_out::{Days, Of, Part},
    write::SegmentWriter,
};
use crate::{
    checkpoint::SigningKey,
    query::{QueryError, statistics::DAY_US},
    record::{entry::Digest, seal::Seal},
    store::Tail,
};
use age_format::{AgeError, Identity, Recipient};
use rusqlite::{Connection, OptionalExtension};
use sqlite_file::{CreateError, Unusable};
use std::{
    error::Error,
    fs, io,
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
    /// Recipients that segments are encrypted for; with none they are not.
    pub recipients: Vec<Recipient>,
    /// Identities that open segments which were encrypted. Archiving needs none; deleting does.
    pub identities: Vec<Identity>,
}

/// Archives the entries of a ledger, also while servers append to it. It blocks.
#[derive(Debug)]
pub struct Archiver {
    ledger: Box<dyn ArchivedLedger>,
    options: ArchiveOptions,
    /// The segment whose entries are taken out, or what is left of it, and its number.
    open: Option<(i64, Connection)>,
}

/// Ledger that is archived, in the store that it is in. No other process archives it meanwhile.
pub(crate) trait ArchivedLedger: Retention {
    /// True if other servers may use the same ledger from other machines, with directories of their own.
    fn is_shared(&self) -> bool;

    /// The last entry that may be taken out: whatever began at `before_us` or later stays, and whatever the ledger
    /// needs; 0 if nothing may.
    fn cut(&mut self, before_us: u64, now_us: u64) -> Result<u64, ArchiveError>;

    /// The stored hash of the entry at `sequence`, if a group in the store ends with it.
    fn hash_after(&mut self, sequence: u64) -> Result<Option<Digest>, ArchiveError>;

    /// Copies groups through `cut` into a new segment until it is full, and then what the index has of them.
    fn copy(&mut self, cut: u64, segment: &mut SegmentWriter<'_>) -> Result<(), ArchiveError>;

    /// Lists a segment that has its name, and puts that on record or leaves it to the server.
    fn list(
        &mut self,
        segment: &Listed,
        directory: &Path,
        detail: &serde_json::Value,
        now_us: u64,
    ) -> Result<(), ArchiveError>;

    /// Takes a part of a segment out of the store, with the rows of the calls that end there, in one transaction.
    fn take_out(
        &mut self,
        part: &Part,
        tell: &mut dyn FnMut(ArchiveStep),
    ) -> Result<(), ArchiveError>;
}

/// Outcome of a step of an [`Archiver`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Archived {
    /// There is nothing to archive.
    Nothing,
    /// A segment is on the disk; its entries are still in the ledger.
    Written {
        /// Seal of the segment.
        seal: Box<Seal>,
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
    Ledger(Box<dyn Error + Send + Sync>),
    /// The ledger's database failed.
    #[error("the ledger's database failed")]
    Database(#[source] Box<dyn Error + Send + Sync>),
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
    /// A segment is encrypted.
    #[error(
        "the segment {} is encrypted, and no identity that opens it is named: name one with --identity FILE, or set \
         ledger.archive.identity",
        .0.display()
    )]
    Encrypted(PathBuf),
    /// The file of an encrypted segment is not the one that was sealed.
    #[error("the encrypted segment {} is not the file that was sealed", path.display())]
    Altered {
        /// Path of the segment.
        path: PathBuf,
        /// Last entry of the segment.
        last: u64,
    },
    /// A segment could not be encrypted.
    #[error("a segment could not be encrypted")]
    Encryption(#[source] AgeError),
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
    /// True if its entries were deleted, or are left out since they cannot be read.
    pub(crate) is_deleted: bool,
    /// True if they are left out.
    pub(crate) is_unread: bool,
}

/// State of a ledger's archive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The last entry that was taken out; 0 if none ever was.
    pub(crate) through: u64,
    pub(crate) hash: Digest,
    pub(crate) directory: PathBuf,
}

/// The state of an archive cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error(transparent)]
    Database(#[from] rusqlite::Error),
    #[error(
        "the table archived does not have its row: put back the ledger as it was, since only the row knows what was archived"
    )]
    NoRow,
}

impl From<StateError> for QueryError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Database(error) => error.into(),
            StateError::NoRow => Self::Store(Box::new(error)),
        }
    }
}

impl From<StateError> for ArchiveError {
    fn from(error: StateError) -> Self {
        match error {
            StateError::Database(error) => error.into(),
            StateError::NoRow => Self::Database(Box::new(error)),
        }
    }
}

impl State {
    pub(crate) fn read(connection: &Connection) -> Result<Self, StateError> {
        connection
            .prepare_cached("SELECT through, hash, directory FROM main.archived")?
            .query_row([], |row| {
                Ok(Self {
                    through: row.get::<_, i64>(0)?.unsigned_abs(),
                    hash: row.get(1)?,
                    directory: row.get::<_, String>(2)?.into(),
                })
            })
            .optional()?
            .ok_or(StateError::NoRow)
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
                is_unread: false,
            })
        })?;
        rows.collect()
    }
}

impl Archiver {
    /// Archives this ledger.
    pub(crate) fn of(
        ledger: Box<dyn ArchivedLedger>,
        options: ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let wanted = &options.directory;
        builder.create(wanted).map_err(failed(wanted))?;
        let directory = wanted.canonicalize().map_err(failed(wanted))?;
        write::remove_partial(&directory)?;
        Ok(Self {
            ledger,
            options: ArchiveOptions {
                directory,
                ..options
            },
            open: None,
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
        let (state, listed) = self.ledger.archive()?;
        if let Some(last) = listed.last().filter(|last| state.through < last.last) {
            let part = Part::of(self.segment(last, &state)?, &state, last, now_us)?;
            self.ledger.take_out(&part, tell)?;
            return Ok(Archived::TakenOut {
                entries: part.through - state.through,
                through: part.through,
                last: last.last,
            });
        }
        self.open = None;
        if let Some(last) = listed.last().filter(|last| !last.is_deleted) {
            let path = last.path(&self.options.directory);
            // Segments of one ledger in the directories of several machines would be found by none of them.
            if self.ledger.is_shared() && !path.exists() {
                return Err(ArchiveError::MissingSegment(path));
            }
        }
        let next = listed.last().map_or(1, |last| last.number + 1);
        self.write(&state, next, before_us, now_us, tell)
    }

    /// The listed segment, open, whose entries are what was listed. Of one that is encrypted and that no identity opens,
    /// it is made anew what is still in the ledger.
    fn segment(&mut self, listed: &Listed, state: &State) -> Result<&Connection, ArchiveError> {
        if self
            .open
            .as_ref()
            .is_none_or(|(it, _)| *it != listed.number)
        {
            let path = listed.path(&self.options.directory);
            let is_listed = |seal: &Seal| {
                let last = (seal.last_sequence, seal.last_hash);
                (seal.first_sequence, last) == (listed.first, (listed.last, listed.last_hash))
            };
            let segment = match segment::open(&path, &self.options.identities) {
                Ok((segment, Some(seal))) if is_listed(&seal) => {
                    let after = Tail {
                        next_sequence: seal.first_sequence,
                        hash: seal.previous_hash,
                    };
                    match write::is_whole(&segment, &seal, &after)? {
                        true => segment,
                        false => return Err(ArchiveError::Foreign(path)),
                    }
                }
                Ok(_) => return Err(ArchiveError::Foreign(path)),
                Err(ArchiveError::Encrypted(_)) => {
                    let seal = seal_of(&path)?.filter(is_listed);
                    let seal = seal.ok_or_else(|| ArchiveError::Foreign(path.clone()))?;
                    expect_sealed(&path, &seal)?;
                    let after = Tail {
                        next_sequence: state.through + 1,
                        hash: state.hash,
                    };
                    self.rest(&path, &after, &seal)?
                }
                Err(error) => return Err(error),
            };
            take_out::index_ends(&segment)?;
            self.open = Some((listed.number, segment));
        }
        Ok(&self.open.as_ref().expect("it is open").1)
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> ArchiveError {
    let path = path.to_owned();
    move |source| ArchiveError::File { path, source }
}

impl From<rusqlite::Error> for ArchiveError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(Box::new(error))
    }
}

impl From<CreateError> for ArchiveError {
    fn from(CreateError { path, source }: CreateError) -> Self {
        Self::File { path, source }
    }
}

/// Microseconds of a quarter of an hour: all time zones differ from UTC by whole ones.
pub(crate) const QUARTER_US: u64 = 15 * 60 * 1_000_000;

/// Days of which quarters are kept: budgets look back to the beginning of a month.
pub(crate) const KEPT_DAYS: u64 = 63;

const KEPT_QUARTERS: u64 = KEPT_DAYS * DAY_US / QUARTER_US;
