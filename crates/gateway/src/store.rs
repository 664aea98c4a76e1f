use serde::{Serialize, de::DeserializeOwned};
use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A longer file is none of the gateway's.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Text of an error and of its causes.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// Directory with files of the gateway: names, pins, and a catalogue for each upstream.
#[derive(Clone, Debug)]
pub(crate) struct Store(PathBuf);

impl Store {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    /// Content of a file; `None` if there is no such file.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match regular_file::open(&self.0.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Value that a file holds. A file that cannot be read is put aside as `NAME.damaged` and told of.
    pub(crate) fn value<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let read = self.read(name).and_then(|bytes| {
            let value = bytes.map(|it| serde_json::from_slice(&it));
            value.transpose().map_err(io::Error::other)
        });
        read.unwrap_or_else(|error| {
            let (path, aside) = (self.0.join(name), self.0.join(format!("{name}.damaged")));
            let _ = std::fs::rename(&path, &aside);
            tracing::error!(
                %error, path = %path.display(), kept_as = %aside.display(),
                "a file of the gateway is damaged, and begun anew: names of tools may differ from those of before"
            );
            None
        })
    }

    pub(crate) fn keep_value<T: Serialize>(&self, name: &str, value: &T) {
        let bytes = serde_json::to_vec(value).map_err(io::Error::other);
        if let Err(error) = bytes.and_then(|bytes| self.write(name, &bytes)) {
            tracing::warn!(%error, name, "a file of the gateway cannot be stored");
        }
    }

    fn make_directory(&self) -> io::Result<()> {
        if self.0.is_dir() {
            return Ok(());
        }
        let mut directory = std::fs::DirBuilder::new();
        directory.recursive(true).mode(0o700).create(&self.0)
    }

    /// A file of this directory that is there to be locked.
    pub(crate) fn lock_file(&self, name: &str) -> io::Result<File> {
        self.make_directory()?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        options.open(self.0.join(name))
    }

    /// Writes a file for its owner alone, whole or not at all. A power failure may leave the one of before.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<File> {
        self.replace(name, bytes, |_| Ok(()))
    }

    /// The same, and waits until the disk has it.
    pub(crate) fn write_durably(&self, name: &str, bytes: &[u8]) -> io::Result<File> {
        let file = self.replace(name, bytes, File::sync_all)?;
        File::open(&self.0)?.sync_all()?;
        Ok(file)
    }

    fn replace(
        &self,
        name: &str,
        bytes: &[u8],
        finish: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        self.make_directory()?;
        let path: &Path = &self.0.join(name);
        let new = path.with_extension("new");
        // Left by a process that was killed.
        let _ = std::fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(bytes)?;
        finish(&file)?;
        std::fs::rename(&new, path)?;
        Ok(file)
    }
}
