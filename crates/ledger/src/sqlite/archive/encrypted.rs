//! Encrypted segments: a line with the seal, and behind it a file of age that has the segment in it.
//!
//! Who writes a segment needs nothing but recipients, and makes it in memory: no part of it reaches a disk in clear. Whoever
//! reads one has it in memory, too. The seal has the digest of the file of age, so that everybody can tell
//! whether that is the file which was sealed.

use super::{ArchiveError, failed, segment::SEGMENT};
use crate::record::seal::{Encrypted, Seal};
use age_format::{AgeError, FileKey, Identity, Reader, Recipient};
use rusqlite::Connection;
use sha2::{Digest as _, Sha256};
use sqlite_file::Unusable;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Seek as _, Write},
    path::Path,
};

/// The most bytes of the line with the seal.
const MAX_LINE_BYTES: u64 = 4096;

/// Makes a database in memory, nothing of which is ever written to a file.
pub(super) fn in_memory() -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    Ok(connection)
}

/// Writes a segment that is in memory to a new file, with its seal in front; returns the key of the file, by
/// which it can be read back.
pub(super) fn write(
    path: &Path,
    segment: &mut Connection,
    recipients: &[Recipient],
    seal: &mut Seal,
    sign: impl Fn(&mut Seal),
) -> Result<FileKey, ArchiveError> {
    let segment = segment.serialize("main")?;
    seal.encrypted = Some(Encrypted {
        sha256: [0; 32],
        bytes: segment.len() as u64,
    });
    sign(seal);
    // It is known when all has been written; the line is as long then.
    let length = seal.to_json().len();
    let mut file = create(path).map_err(failed(path))?;
    let written = |to: &mut File| {
        let mut to = Digesting::of(BufWriter::new(to));
        to.inner.write_all(&vec![b' '; length])?;
        to.inner.write_all(b"\n")?;
        let mut writer = age_format::encrypt(recipients, &mut to)?;
        let file_key = writer.file_key();
        writer.write_all(&segment)?;
        writer.finish()?;
        Ok((file_key, to.digest.finalize()))
    };
    let written = written(&mut file).map_err(|error| not_encrypted(path, error));
    let (file_key, sha256) = written?;
    if let Some(encrypted) = &mut seal.encrypted {
        encrypted.sha256 = sha256.into();
    }
    sign(seal);
    let line = seal.to_json();
    file.rewind().map_err(failed(path))?;
    file.write_all(line.as_bytes()).map_err(failed(path))?;
    debug_assert_eq!(line.len(), length);
    Ok(file_key)
}

/// Makes a file for its owner alone, where there is none.
fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn not_encrypted(path: &Path, error: AgeError) -> ArchiveError {
    match error {
        AgeError::Io(error) => failed(path)(error),
        error => ArchiveError::Encryption(error),
    }
}

/// Reads the seal in front of an encrypted segment; `None` if the file is anything else.
pub(crate) fn seal_of(path: &Path) -> Result<Option<Seal>, ArchiveError> {
    Ok(open(path)?.map(|(seal, _)| seal))
}

/// Seal of a file, and what is behind it.
type Opened = (Seal, Digesting<BufReader<File>>);

fn open(path: &Path) -> Result<Option<Opened>, ArchiveError> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ArchiveError::MissingSegment(path.to_owned()),
        _ => failed(path)(error),
    })?;
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    let mut beginning = (&mut file).take(MAX_LINE_BYTES);
    beginning
        .read_until(b'\n', &mut line)
        .map_err(failed(path))?;
    let seal = line.strip_suffix(b"\n");
    let seal = seal.and_then(|line| Seal::from_json(str::from_utf8(line).ok()?));
    let seal = seal.filter(|seal| seal.encrypted.is_some());
    Ok(seal.map(|seal| (seal, Digesting::of(file))))
}

/// Fails if the file of this seal is not the one that was sealed.
pub(crate) fn expect_sealed(path: &Path, seal: &Seal) -> Result<(), ArchiveError> {
    let altered = || ArchiveError::Altered {
        path: path.to_owned(),
        last: seal.last_sequence,
    };
    let (found, file) = open(path)?.ok_or_else(altered)?;
    match found == *seal && file.ends_as(&found).map_err(failed(path))? {
        true => Ok(()),
        false => Err(altered()),
    }
}

/// Returns true if one of these identities opens the segment, so far as its header tells.
pub(crate) fn is_opened_by(identities: &[Identity], path: &Path) -> Result<bool, ArchiveError> {
    let Some((_, file)) = open(path)? else {
        return Ok(true);
    };
    match identities.is_empty() {
        true => Ok(false),
        // What else is wrong with it is told when it is read.
        false => Ok(!matches!(
            age_format::decrypt(identities, file),
            Err(AgeError::NoMatch)
        )),
    }
}

/// Reads an encrypted segment into memory with the identity that opens it; `None` if the file is not encrypted.
pub(super) fn read(
    path: &Path,
    identities: &[Identity],
) -> Result<Option<(Connection, Seal)>, ArchiveError> {
    if identities.is_empty() {
        return match open(path)? {
            Some(_) => Err(ArchiveError::Encrypted(path.to_owned())),
            None => Ok(None),
        };
    }
    read_by(path, |file| age_format::decrypt(identities, file))
}

/// Reads a segment back that was just written.
pub(super) fn read_back(path: &Path, file_key: &FileKey) -> Result<Connection, ArchiveError> {
    let read = read_by(path, |file| age_format::decrypt_with(file_key, file))?;
    let not_there = || ArchiveError::ReadBack(path.to_owned());
    read.map(|(connection, _)| connection).ok_or_else(not_there)
}

fn read_by(
    path: &Path,
    decrypt: impl FnOnce(
        Digesting<BufReader<File>>,
    ) -> Result<Reader<Digesting<BufReader<File>>>, AgeError>,
) -> Result<Option<(Connection, Seal)>, ArchiveError> {
    let Some((seal, file)) = open(path)? else {
        return Ok(None);
    };
    let altered = || ArchiveError::Altered {
        path: path.to_owned(),
        last: seal.last_sequence,
    };
    let length = file.inner.get_ref().metadata().map_err(failed(path))?.len();
    let bytes = seal.encrypted.map_or(0, |it| it.bytes);
    // Nobody reserves memory for more than there is.
    let bytes = usize::try_from(bytes).ok().filter(|_| bytes < length);
    let bytes = bytes.ok_or_else(altered)?;
    let mut content = match decrypt(file) {
        Ok(content) => content,
        Err(AgeError::NoMatch) => {
            // Where the header was changed no identity opens it either.
            expect_sealed(path, &seal)?;
            return Err(ArchiveError::Encrypted(path.to_owned()));
        }
        Err(AgeError::Io(error)) => return Err(failed(path)(error)),
        Err(_) => return Err(altered()),
    };
    let mut connection = in_memory()?;
    let mut watched = Watched {
        inner: &mut content,
        error: None,
    };
    let read = connection.deserialize_read_exact("main", &mut watched, bytes, true);
    // The end tells that nothing was cut off.
    let is_whole = read.is_ok() && watched.read(&mut [0]).is_ok_and(|more| more == 0);
    if !is_whole {
        let error = watched.error.take();
        // That it could not be read says nothing about the file.
        expect_sealed(path, &seal)?;
        return Err(match (error, read) {
            (Some(error), _) if error.kind() != io::ErrorKind::InvalidData => failed(path)(error),
            (None, Err(error)) if !is_short(&error) => error.into(),
            _ => altered(),
        });
    }
    if !content.into_inner().ends_as(&seal).map_err(failed(path))? {
        return Err(altered());
    }
    let unusable = |source: Unusable| ArchiveError::Segment {
        path: path.to_owned(),
        source,
    };
    SEGMENT.expect(&connection).map_err(unusable)?;
    Ok(Some((connection, seal)))
}

/// Returns true if a database could not be read since the content ended before it.
fn is_short(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|it| it.extended_code);
    code == Some(rusqlite::ffi::SQLITE_IOERR)
}

/// Keeps the failure to read, of which a database tells no more than that it was one.
struct Watched<'a, R> {
    inner: &'a mut R,
    error: Option<io::Error>,
}

impl<R: Read> Read for Watched<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(into).map_err(|error| {
            let kind = error.kind();
            self.error = Some(error);
            kind.into()
        })
    }
}

/// Bytes on their way, and the digest of those that have passed.
struct Digesting<T> {
    inner: T,
    digest: Sha256,
}

impl<T> Digesting<T> {
    fn of(inner: T) -> Self {
        Self {
            inner,
            digest: Sha256::new(),
        }
    }
}

impl<T: BufRead> Digesting<T> {
    /// Reads what is left; returns true if all of it has the digest that the seal says.
    fn ends_as(mut self, seal: &Seal) -> io::Result<bool> {
        io::copy(&mut self, &mut io::sink())?;
        let found: [u8; 32] = self.digest.finalize().into();
        Ok(seal.encrypted.is_some_and(|it| it.sha256 == found))
    }
}

impl<T: BufRead> Read for Digesting<T> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.digest.update(&into[..count]);
        Ok(count)
    }
}

impl<T: BufRead> BufRead for Digesting<T> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.inner.fill_buf()
    }

    fn consume(&mut self, count: usize) {
        if let Ok(bytes) = self.inner.fill_buf() {
            self.digest.update(&bytes[..count]);
        }
        self.inner.consume(count);
    }
}

impl<T: Write> Write for Digesting<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_database_sets_aside_stays_in_memory() {
        let stored = |connection: &Connection, name| {
            connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0))
        };
        let connection = in_memory().unwrap();
        assert_eq!(stored(&connection, "temp_store"), Ok(2));
        assert_eq!(connection.path(), Some(""));
    }

    #[test]
    #[cfg(unix)]
    fn what_could_not_be_read_was_not_altered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("segment");
        let recipient = Identity::generate().unwrap().recipient();
        let mut seal = Seal {
            number: 1,
            first_sequence: 1,
            last_sequence: 7,
            previous_hash: [0; 32],
            last_hash: [1; 32],
            at_us: 1,
            encrypted: None,
            signature: None,
        };
        let mut segment = in_memory().unwrap();
        let rows = "CREATE TABLE part AS SELECT zeroblob(200000) AS bytes";
        segment.execute_batch(rows).unwrap();
        let file_key = write(&path, &mut segment, &[recipient], &mut seal, |_| {}).unwrap();
        // The header is read before, and nothing can be read from a directory.
        let failing = |mut file: Digesting<BufReader<File>>| {
            *file.inner.get_mut() = File::open(directory.path()).unwrap();
            age_format::decrypt_with(&file_key, file)
        };
        let error = read_by(&path, failing).unwrap_err();
        assert!(matches!(error, ArchiveError::File { .. }), "{error:?}");
        // Where the file was changed besides, that is told.
        let mut changed = std::fs::read(&path).unwrap();
        *changed.last_mut().unwrap() ^= 1;
        std::fs::write(&path, changed).unwrap();
        let error = read_by(&path, failing).unwrap_err();
        assert!(matches!(error, ArchiveError::Altered { .. }), "{error:?}");
    }
}
