//! Files that an operator names, read without waiting for whatever is in their place, and files replaced as a whole.
//!
//! A named pipe in the place of a file is waited for until somebody writes into it, and who waits tells nobody: a server
//! would keep its old rules without a word. Every file of a configuration, and every file that one names, is therefore
//! opened here. A server reads them again and again, which a pipe cannot give either.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;

/// Bound of files that have none of their own: certificates of authorities, for example.
pub const MAX_BYTES: u64 = 16 << 20;

/// Opens a file to read, without waiting.
///
/// # Errors
///
/// Those of the system; what is not a regular file is refused, with what it is.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    let kind = file.metadata()?.file_type();
    match kind.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "it is {}, and no regular file: put a file in its place",
                called(kind)
            ),
        )),
    }
}

fn called(kind: FileType) -> &'static str {
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a pipe",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

/// Content of a regular file of `most` bytes at most.
///
/// # Errors
///
/// As [`open`], and for a file that is longer.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 <= most {
        true => Ok(bytes),
        false => Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {most} bytes"),
        )),
    }
}

/// The same as text.
///
/// # Errors
///
/// As [`read`]; [`io::ErrorKind::InvalidData`] for what is not UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Number of drafts of this process, so that no two have one name.
static DRAFTS: AtomicU64 = AtomicU64::new(0);

/// Puts `bytes` in the place of the file at `path`: a reader sees those before or those now, also after a crash, and once
/// this returns the disk has them.
///
/// A new file is for its owner alone. One that is replaced keeps its mode, and its owner where this process may give files
/// away; of a symbolic link the file that it points to is replaced. The draft is hidden, beside the file, and removed if
/// this fails. Writers at the same time have to be kept apart by a lock of theirs, or the last one wins.
///
/// # Errors
///
/// Those of the system; the file is as it was, unless it is the directory that cannot be written to disk.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, true)
}

/// Does what [`replace`] does for a file that only its owner may read, whatever its mode was.
///
/// # Errors
///
/// As [`replace`].
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, false)
}

fn put(path: &Path, bytes: &[u8], keeps_mode: bool) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = target.with_file_name(format!(".{name}.{}-{number}.new", std::process::id()));
    // Of a process of this number that was killed.
    let _ = fs::remove_file(&draft);
    let written =
        fill(&draft, &target, bytes, keeps_mode).and_then(|()| fs::rename(&draft, &target));
    if written.is_err() {
        let _ = fs::remove_file(&draft);
    }
    written?;
    let directory = target.parent().filter(|it| !it.as_os_str().is_empty());
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

fn fill(draft: &Path, target: &Path, bytes: &[u8], keeps_mode: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(draft)?;
    if let Ok(before) = fs::metadata(target) {
        // Only root can give a file away, and for all others it is theirs already.
        let _ = chown(draft, Some(before.uid()), Some(before.gid()));
        if keeps_mode {
            file.set_permissions(before.permissions())?;
        }
    }
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_keeps_its_mode() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        let mode = || fs::metadata(&file).unwrap().mode() & 0o7777;
        replace(&file, b"one").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"one".into(), 0o600));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("file", &link).unwrap();
        replace(&link, b"two").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"two".into(), 0o644));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        replace_private(&link, b"three").unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"three".into(), 0o600));
        // What fails leaves nothing behind.
        let taken = directory.path().join("taken");
        fs::create_dir(&taken).unwrap();
        assert!(replace(&taken, b"four").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 3);
    }

    #[test]
    fn nothing_but_a_regular_file_is_read_and_nothing_is_waited_for() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        std::fs::write(&file, "text").unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&pipe, &link).unwrap();

        assert_eq!(read_text(&file, 4).unwrap(), "text");
        let too_long = read(&file, 3).unwrap_err().to_string();
        assert_eq!(too_long, "it has more than 3 bytes");
        let rows = [
            (pipe.as_path(), "it is a pipe"),
            (link.as_path(), "it is a pipe"),
            (directory.path(), "it is a directory"),
            (Path::new("/dev/zero"), "it is a device"),
        ];
        for (path, expected) in rows {
            let error = read(path, 4).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{}: {error}", path.display());
            assert!(error.ends_with("put a file in its place"), "{error}");
        }
        assert!(read(&socket, 4).is_err(), "the system refuses to open it");
        let missing = read(&directory.path().join("none"), 4).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
