//! Bundles (`.mcpb`): a server with all it needs in one file, and a manifest that says how it is run.
//!
//! A bundle is looked at as a whole before anything of it is written: names, kinds, sizes and the signature.
//! [`Bundle::unpack`] writes it to a directory of its own, which appears whole or not at all.

mod archive;
mod manifest;
mod script;
mod signature;

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use crate::input::Answers;
use crate::launch::Plan;
use crate::reading::Unfit;

use archive::Archive;

pub use manifest::{Manifest, Places};
pub use signature::{Signature, Signer};

/// The longest bundle, in bytes.
pub const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// A bundle that was looked at.
#[derive(Debug)]
pub struct Bundle {
    /// Manifest of the bundle.
    pub manifest: Manifest,
    /// SHA-256 of the whole file, in hexadecimal digits.
    pub sha256: String,
    /// Signature of its publisher.
    pub signature: Signature,
    /// Number of its files.
    pub files: usize,
    /// Bytes of its files, unpacked.
    pub bytes: u64,
    archive: Archive,
}

/// A bundle that is refused.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file, which is no archive or one that is not taken.
    #[error("{0}")]
    Archive(String),
    /// The manifest.
    #[error("its manifest cannot be used: {}", list(.0))]
    Manifest(Vec<Unfit>),
    /// The signature, which is there and does not fit.
    #[error(
        "its signature does not fit: {0}; the file was changed after it was signed, or was never signed"
    )]
    Signature(String),
    /// A file that cannot be written.
    #[error("{} cannot be written: {source}", path.display())]
    Io {
        /// Path.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
}

fn list(found: &[Unfit]) -> String {
    let found: Vec<_> = found.iter().map(ToString::to_string).collect();
    found.join("; ")
}

impl Bundle {
    /// Looks at a bundle.
    ///
    /// # Errors
    ///
    /// [`BundleError`] with the reason why it is refused. Nothing has been written then.
    pub fn read(file: Vec<u8>) -> Result<Self, BundleError> {
        if file.len() as u64 > MAX_BYTES {
            let why = format!("it is longer than {MAX_BYTES} bytes");
            return Err(BundleError::Archive(why));
        }
        let sha256 = HEXLOWER.encode(&Sha256::digest(&file));
        let (length, signature) = signature::read(&file).map_err(BundleError::Signature)?;
        let mut file = file;
        file.truncate(length);
        let mut archive = Archive::read(file).map_err(BundleError::Archive)?;
        let text = archive.manifest().map_err(BundleError::Archive)?;
        let manifest = Manifest::parse(&text).map_err(BundleError::Manifest)?;
        let entry_point = manifest.entry_point.as_str();
        if !archive.has(entry_point) {
            let why = format!("`{}` is not in the bundle", crate::shown(entry_point));
            let unfit = Unfit::new("server.entry_point", why);
            return Err(BundleError::Manifest(vec![unfit]));
        }
        Ok(Self {
            manifest,
            sha256,
            signature,
            files: archive.files(),
            bytes: archive.bytes(),
            archive,
        })
    }

    /// Name of the directory that the bundle is unpacked to: its name, version, and the beginning of its digest.
    #[must_use]
    pub fn directory_name(&self) -> String {
        let legal = |it: char| match it {
            it if it.is_ascii_alphanumeric() || "._-".contains(it) => it,
            _ => '-',
        };
        let plain = |text: &str| text.chars().map(legal).take(60).collect::<String>();
        let (name, version) = (&self.manifest.name, &self.manifest.version);
        let name = plain(name).trim_start_matches(['.', '-']).to_owned();
        format!("{name}-{}-{}", plain(version), &self.sha256[..16])
    }

    /// The command that would be run, were the bundle unpacked to `directory`.
    #[must_use]
    pub fn plan(&self, directory: &Path, places: &Places, answers: &Answers) -> Plan {
        let has = |path: &str| self.archive.has(path);
        self.manifest.plan(directory, places, answers, &has)
    }

    /// Unpacks the bundle to a directory of its own below `parent`, whose users are its owner alone (0700). One that is
    /// there already is replaced.
    ///
    /// # Errors
    ///
    /// [`BundleError::Io`], and [`BundleError::Archive`] for files that are not what the archive says of them. What was
    /// written is removed again.
    pub fn unpack(&mut self, parent: &Path) -> Result<PathBuf, BundleError> {
        let name = self.directory_name();
        let directory = parent.join(&name);
        let new = parent.join(format!(".{name}.{}.new", std::process::id()));
        let private = |path: &Path, recursive: bool| {
            let mut builder = fs::DirBuilder::new();
            builder.recursive(recursive).mode(0o700).create(path)
        };
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| BundleError::Io { path, source }
        };
        private(parent, true).map_err(io(parent))?;
        private(&new, false).map_err(io(&new))?;
        let written = self.write_to(&new, &private).and_then(|()| {
            let old = parent.join(format!(".{name}.{}.old", std::process::id()));
            let was_there = directory.exists();
            if was_there {
                fs::rename(&directory, &old).map_err(io(&directory))?;
            }
            fs::rename(&new, &directory).map_err(io(&directory))?;
            if was_there {
                fs::remove_dir_all(&old).map_err(io(&old))?;
            }
            Ok(())
        });
        if let Err(error) = written {
            // The first error counts.
            let _ = fs::remove_dir_all(&new);
            return Err(error);
        }
        Ok(directory)
    }

    fn write_to(
        &mut self,
        directory: &Path,
        private: &dyn Fn(&Path, bool) -> io::Result<()>,
    ) -> Result<(), BundleError> {
        self.archive.each(|file, content| {
            let path = directory.join(file.name);
            let io = |source| BundleError::Io {
                path: path.clone(),
                source,
            };
            if let Some(parent) = path.parent() {
                private(parent, true).map_err(io)?;
            }
            if file.is_directory {
                return private(&path, true).map_err(io);
            }
            let mode = if file.is_executable { 0o700 } else { 0o600 };
            let mut options = fs::OpenOptions::new();
            let options = options.write(true).create_new(true).mode(mode);
            let written = options.open(&path).and_then(|mut it| it.write_all(content));
            written.map_err(io)
        })
    }
}
