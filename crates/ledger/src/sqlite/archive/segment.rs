//! Format of a segment: a `SQLite` file that is written once.
//!
//! Groups are compressed together, some hundred KiB of them in a frame, and indexed like those of a ledger. A call
//! is in the segment that has its end; the start of one that began in an earlier segment is kept a second time.
//! What the segment takes the place of is said by its [`Seal`], which is signed as checkpoints are.

use super::{ArchiveError, encrypted};
use crate::record::{entry::Digest, seal::Seal};
use age_format::Identity;
use rusqlite::{Connection, OptionalExtension, Transaction, params};
use sqlite_file::{Access, Format};
use std::path::Path;

/// Marks a file as a segment, "OWLS".
pub(crate) const SEGMENT: Format = Format {
    application_id: 0x4F57_4C53,
    version: 1,
};

/// Bytes of groups that are compressed together. Whoever reads an entry reads so many.
const FRAME_BYTES: usize = 256 * 1024;

/// The most bytes that a frame may claim to have: a group is bounded by what a recorder buffers.
const MAX_FRAME_BYTES: usize = 1 << 30;

/// Compression level of Zstandard.
const LEVEL: i32 = 3;

const TABLES: &str = "
    CREATE TABLE seal (json TEXT NOT NULL) STRICT;
    CREATE TABLE frame (number INTEGER PRIMARY KEY, length INTEGER NOT NULL, zstd BLOB NOT NULL) STRICT;
    CREATE TABLE entry_group (
        first_sequence INTEGER PRIMARY KEY,
        count INTEGER NOT NULL,
        hash BLOB NOT NULL,
        frame INTEGER NOT NULL,
        frame_offset INTEGER NOT NULL,
        length INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE carried_start (
        sequence INTEGER PRIMARY KEY,
        start_group INTEGER NOT NULL,
        start_offset INTEGER NOT NULL,
        entry BLOB NOT NULL
    ) STRICT;
";

/// Makes the tables of an empty segment, the index among them.
pub(super) fn prepare(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    transaction.execute_batch(TABLES)?;
    transaction.execute_batch(&crate::sqlite::index::tables("main"))?;
    SEGMENT.mark(transaction)
}

/// Writes the seal, which is the last that is written.
pub(super) fn write_seal(connection: &Connection, seal: &Seal) -> rusqlite::Result<()> {
    connection.execute("INSERT INTO seal VALUES (?1)", [seal.to_json()])?;
    Ok(())
}

/// Reads the seal of an open segment; `None` if it has none that can be read.
fn read_seal(connection: &Connection) -> rusqlite::Result<Option<Seal>> {
    let text: Option<String> = connection
        .query_row("SELECT json FROM seal", [], |row| row.get(0))
        .optional()?;
    Ok(text.as_deref().and_then(Seal::from_json))
}

/// Opens a segment to read it, an encrypted one with one of these identities; tells its seal, if it has one that can be read.
pub(crate) fn open(
    path: &Path,
    identities: &[Identity],
) -> Result<(Connection, Option<Seal>), ArchiveError> {
    if let Some((connection, seal)) = encrypted::read(path, identities)? {
        return Ok((connection, Some(seal)));
    }
    let connection = open_plain(path)?;
    let seal = read_seal(&connection)?;
    Ok((connection, seal))
}

/// Opens a segment that is not encrypted.
pub(super) fn open_plain(path: &Path) -> Result<Connection, ArchiveError> {
    let failed = |source| ArchiveError::Segment {
        path: path.to_owned(),
        source,
    };
    let (connection, _) = SEGMENT.open(path, Access::Read).map_err(failed)?;
    Ok(connection)
}

/// Writes groups into frames.
pub(super) struct Frames<'a> {
    connection: &'a Connection,
    number: i64,
    body: Vec<u8>,
}

impl<'a> Frames<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            number: 1,
            body: Vec::with_capacity(FRAME_BYTES),
        }
    }

    pub(super) fn add(
        &mut self,
        first: i64,
        count: i64,
        hash: &Digest,
        body: &[u8],
    ) -> Result<(), ArchiveError> {
        let offset = self.body.len() as i64;
        self.connection
            .prepare_cached("INSERT INTO entry_group VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
                first,
                count,
                hash,
                self.number,
                offset,
                body.len() as i64
            ])?;
        self.body.extend_from_slice(body);
        if FRAME_BYTES <= self.body.len() {
            self.flush()?;
        }
        Ok(())
    }

    pub(super) fn flush(&mut self) -> Result<(), ArchiveError> {
        if self.body.is_empty() {
            return Ok(());
        }
        let frame = zstd::bulk::compress(&self.body, LEVEL).map_err(ArchiveError::Compression)?;
        self.connection
            .prepare_cached("INSERT INTO frame VALUES (?1, ?2, ?3)")?
            .execute(params![self.number, self.body.len() as i64, frame])?;
        self.number += 1;
        self.body.clear();
        Ok(())
    }
}

/// Body of a frame that was last read: groups that follow each other are in one.
#[derive(Debug, Default)]
pub(crate) struct LastFrame(Option<(i64, Vec<u8>)>);

impl LastFrame {
    /// Body of the group that begins at this sequence; `None` if the segment has no such group, or one that
    /// does not fit into its frame.
    pub(crate) fn group(
        &mut self,
        connection: &Connection,
        first: i64,
    ) -> rusqlite::Result<Option<&[u8]>> {
        let place = connection
            .prepare_cached(
                "SELECT frame, frame_offset, length FROM entry_group WHERE first_sequence = ?1",
            )?
            .query_row([first], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let Some((frame, offset, length)) = place else {
            return Ok(None);
        };
        self.slice(connection, frame, offset, length)
    }

    pub(crate) fn slice(
        &mut self,
        connection: &Connection,
        frame: i64,
        offset: i64,
        length: i64,
    ) -> rusqlite::Result<Option<&[u8]>> {
        if self.0.as_ref().is_none_or(|(number, _)| *number != frame) {
            self.0 = read_frame(connection, frame)?.map(|body| (frame, body));
        }
        let (Ok(offset), Ok(length)) = (usize::try_from(offset), usize::try_from(length)) else {
            return Ok(None);
        };
        let end = offset.checked_add(length);
        let body = self.0.as_ref().map(|(_, body)| body.as_slice());
        Ok(end.and_then(|end| body?.get(offset..end)))
    }
}

fn read_frame(connection: &Connection, number: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut select =
        connection.prepare_cached("SELECT length, zstd FROM frame WHERE number = ?1")?;
    let frame = select
        .query_row([number], |row| {
            let length: i64 = row.get(0)?;
            let length = usize::try_from(length).ok();
            let length = length.filter(|length| *length <= MAX_FRAME_BYTES);
            let frame = row.get_ref(1)?.as_blob()?;
            Ok(length.and_then(|length| zstd::bulk::decompress(frame, length).ok()))
        })
        .optional()?;
    Ok(frame.flatten())
}
