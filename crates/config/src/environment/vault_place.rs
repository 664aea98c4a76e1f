//! The vault that a configuration names.

use std::path::PathBuf;

use vault::{ClientSecrets, Key, VaultError};

/// A vault, and the source of its key.
#[derive(Debug, Clone)]
pub struct VaultPlace {
    /// The file.
    pub path: PathBuf,
    /// Source of the key.
    pub key: KeySource,
}

/// Source of the key of a vault.
#[derive(Debug, Clone)]
pub enum KeySource {
    /// A file that its owner alone can read.
    File(PathBuf),
    /// An environment variable, with what it holds.
    Variable(String, Option<vault::Secret>),
    /// A program and its arguments.
    Command(Vec<String>),
}

impl VaultPlace {
    /// The key.
    ///
    /// # Errors
    ///
    /// [`VaultError`] when the source does not give it.
    pub fn key(&self) -> Result<Key, VaultError> {
        match &self.key {
            KeySource::File(file) => Key::read_for(&self.path, file),
            KeySource::Command(words) => Key::of_command(words),
            KeySource::Variable(name, value) => {
                let place = format!("in the environment variable {name}");
                match value {
                    Some(value) => Key::parse(value.reveal(), &place),
                    None => Err(VaultError::Key {
                        place,
                        why:
                            "it is not set; set it to the key, or name another source below `vault`"
                                .to_owned(),
                    }),
                }
            }
        }
    }

    /// The secrets of clients beside the vault.
    #[must_use]
    pub fn clients(&self) -> ClientSecrets {
        let place = self.clone();
        ClientSecrets::beside(&self.path, move || place.key())
    }

    /// The vault, opened.
    ///
    /// # Errors
    ///
    /// [`VaultError`] when the key or the vault cannot be read.
    pub fn open(&self) -> Result<vault::Vault, VaultError> {
        if !self.path.exists() {
            return Err(VaultError::Missing(self.path.clone()));
        }
        vault::Vault::open(&self.path, &self.key()?)
    }
}
