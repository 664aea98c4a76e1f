//! Files that an operator names, read without waiting for whatever is in their place.
//!
//! A named pipe in the place of a file is waited for until somebody writes into it, and who waits tells nobody: a server
//! would keep its old rules without a word. Every file of a configuration, and every file that one names, is therefore
//! opened here. A server reads them again and again, which a pipe cannot give either.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

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

#[cfg(test)]
mod tests {
    use super::*;

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
