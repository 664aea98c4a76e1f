//! The archive of a bundle: what may be in it, and how much of it.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};

use zip::{CompressionMethod, ZipArchive};

use super::BundleError;
use crate::reading::shown;

/// Most entries of an archive.
const MAX_ENTRIES: usize = 20_000;
/// Most bytes of one file.
const MAX_FILE: u64 = 256 * 1024 * 1024;
/// Most bytes of all files.
const MAX_ALL: u64 = 512 * 1024 * 1024;
/// Most bytes that may come of one byte, in files of more than [`SMALL`] bytes.
const MAX_RATIO: u64 = 200;
/// Bytes of a file whose ratio does not matter.
const SMALL: u64 = 1024 * 1024;
/// The longest name, in bytes, and the most parts of it.
const MAX_NAME: usize = 512;
const MAX_DEPTH: usize = 32;
/// The longest manifest, in bytes.
const MAX_MANIFEST: u64 = 1024 * 1024;
/// Name of the manifest.
const MANIFEST: &str = "manifest.json";
/// Bits of a mode that say what kind of file it is.
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;

/// An archive all of whose names and sizes were looked at.
#[derive(Debug)]
pub(super) struct Archive {
    zip: ZipArchive<Cursor<Vec<u8>>>,
    /// Places of files and directories in the archive, by name.
    entries: BTreeMap<String, Place>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    at: usize,
    is_directory: bool,
    is_executable: bool,
}

/// A file of an archive.
pub(super) struct File<'a> {
    /// Path, whose parts are names.
    pub(super) name: &'a str,
    pub(super) is_directory: bool,
    pub(super) is_executable: bool,
}

impl Archive {
    pub(super) fn read(file: Vec<u8>) -> Result<Self, String> {
        let listed = listed(&file)?;
        let mut zip = ZipArchive::new(Cursor::new(file))
            .map_err(|error| format!("it is no archive of zip: {error}"))?;
        if zip.offset() != 0 {
            return Err("something stands before the archive".to_owned());
        }
        if listed > MAX_ENTRIES {
            return Err(format!("it has more than {MAX_ENTRIES} files"));
        }
        if listed != zip.len() {
            return Err("it has two files of one name".to_owned());
        }
        let mut entries = BTreeMap::new();
        let mut bytes = 0_u64;
        for at in 0..zip.len() {
            let file = zip
                .by_index_raw(at)
                .map_err(|error| format!("it cannot be read: {error}"))?;
            let raw = std::str::from_utf8(file.name_raw())
                .map_err(|_| "a name in it is not Unicode".to_owned())?;
            let name = checked_name(raw)?;
            let told = shown(raw);
            let mode = file.unix_mode().unwrap_or(0);
            let kind = mode & KIND;
            let is_directory = raw.ends_with('/');
            match kind {
                SYMLINK => {
                    return Err(format!(
                        "`{told}` is a symbolic link, which could lead anywhere"
                    ));
                }
                0 => {}
                REGULAR if !is_directory => {}
                DIRECTORY if is_directory => {}
                _ => return Err(format!("`{told}` is neither a file nor a directory")),
            }
            if file.encrypted() {
                return Err(format!("`{told}` is encrypted"));
            }
            if !matches!(
                file.compression(),
                CompressionMethod::Stored | CompressionMethod::Deflated
            ) {
                let method = file.compression();
                return Err(format!(
                    "`{told}` is compressed by {method}, which is not read"
                ));
            }
            let (size, packed) = (file.size(), file.compressed_size());
            if size > MAX_FILE {
                return Err(format!("`{told}` is longer than {MAX_FILE} bytes"));
            }
            if size > SMALL && size / packed.max(1) > MAX_RATIO {
                return Err(format!(
                    "`{told}` would become more than {MAX_RATIO} times as long: it is made to fill the disk"
                ));
            }
            bytes = bytes.saturating_add(size);
            if bytes > MAX_ALL {
                return Err(format!("its files have more than {MAX_ALL} bytes"));
            }
            let place = Place {
                at,
                is_directory,
                is_executable: mode & 0o100 != 0,
            };
            if entries.insert(name, place).is_some() {
                return Err(format!("`{told}` is in it twice"));
            }
        }
        let archive = Self {
            zip,
            entries,
            bytes,
        };
        archive.check_tree()?;
        Ok(archive)
    }

    /// Refuses a file in whose place a directory must be.
    fn check_tree(&self) -> Result<(), String> {
        for name in self.entries.keys() {
            for (at, _) in name.match_indices('/') {
                let above = self.entries.get(&name[..at]);
                if above.is_some_and(|it| !it.is_directory) {
                    let above = shown(&name[..at]);
                    return Err(format!("`{above}` is a file and a directory at once"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn files(&self) -> usize {
        self.entries.values().filter(|it| !it.is_directory).count()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if there is a file of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        let name = name.strip_prefix("./").unwrap_or(name);
        self.entries.get(name).is_some_and(|it| !it.is_directory)
    }

    /// Text of the manifest.
    pub(super) fn manifest(&mut self) -> Result<String, String> {
        let place = self.entries.get(MANIFEST).copied();
        let place = place.ok_or_else(|| format!("it has no {MANIFEST}"))?;
        let content = self.content(place, MAX_MANIFEST)?;
        String::from_utf8(content).map_err(|_| format!("{MANIFEST} is not Unicode"))
    }

    fn content(&mut self, place: Place, max: u64) -> Result<Vec<u8>, String> {
        let mut file = self
            .zip
            .by_index(place.at)
            .map_err(|error| format!("it cannot be read: {error}"))?;
        let size = file.size();
        let told = shown(&String::from_utf8_lossy(file.name_raw()));
        if size > max {
            return Err(format!("`{told}` is longer than {max} bytes"));
        }
        let mut content = Vec::new();
        // The header may say less than there is.
        let mut bounded = (&mut file).take(size + 1);
        bounded
            .read_to_end(&mut content)
            .map_err(|error| format!("`{told}` is damaged: {error}"))?;
        match content.len() as u64 == size {
            true => Ok(content),
            false => Err(format!("`{told}` is not as long as the archive says")),
        }
    }

    /// Hands on each file with its content, directories first where they are listed.
    pub(super) fn each(
        &mut self,
        mut take: impl FnMut(File<'_>, &[u8]) -> Result<(), BundleError>,
    ) -> Result<(), BundleError> {
        for (name, place) in self.entries.clone() {
            let content = match place.is_directory {
                true => Vec::new(),
                false => self
                    .content(place, MAX_FILE)
                    .map_err(BundleError::Archive)?,
            };
            let file = File {
                name: &name,
                is_directory: place.is_directory,
                is_executable: place.is_executable,
            };
            take(file, &content)?;
        }
        Ok(())
    }
}

/// A name that stays below the directory it is unpacked to, without a slash at its end.
fn checked_name(raw: &str) -> Result<String, String> {
    let told = shown(raw);
    let name = raw.strip_suffix('/').unwrap_or(raw);
    if name.len() > MAX_NAME {
        return Err("a name in it is too long".to_owned());
    }
    if name.starts_with('/') || name.contains(['\\', ':', '\0']) {
        return Err(format!("`{told}` is no path within the bundle"));
    }
    if name
        .chars()
        .any(|it| it.is_control() || redaction::is_misleading(it))
    {
        return Err(format!("`{told}` has a character that is not seen"));
    }
    let mut parts = name.split('/');
    if parts.any(|part| part.is_empty() || part == "." || part == "..") {
        return Err(format!("`{told}` leads out of the bundle"));
    }
    if name.split('/').count() > MAX_DEPTH {
        return Err(format!("`{told}` is too deep"));
    }
    Ok(name.to_owned())
}

/// The number of entries that the end of the archive names; its end must be that of the file.
fn listed(file: &[u8]) -> Result<usize, String> {
    const END: &[u8] = b"PK\x05\x06";
    const LENGTH: usize = 22;
    let none = || "it is no archive of zip".to_owned();
    let word = |at: usize| -> Option<usize> {
        let bytes = file.get(at..at + 2)?;
        Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    };
    let from = file.len().checked_sub(LENGTH).ok_or_else(none)?;
    let lowest = from.saturating_sub(usize::from(u16::MAX));
    for at in (lowest..=from).rev() {
        if file[at..].starts_with(END) && word(at + 20) == Some(from - at) {
            let all = word(at + 10).ok_or_else(none)?;
            return match word(at + 8) == Some(all) && word(at + 4) == Some(0) {
                true => Ok(all),
                false => Err("it is one of several parts of an archive".to_owned()),
            };
        }
    }
    Err(none())
}
