use std::{io, path::PathBuf};

/// Reason why a vault or a key cannot be used. No message has a secret in it.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// There is no file.
    #[error("there is no vault at {}: make one with `owlclaw-mcp vault init`, or name the one that there is", .0.display())]
    Missing(PathBuf),
    /// There is a file already, which is left as it is.
    #[error("{} is there already and was left as it is", .0.display())]
    Exists(PathBuf),
    /// The file is not for its owner alone.
    #[error("{} can be used by others (mode {mode:04o}): chmod 600 {}", path.display(), path.display())]
    Loose {
        /// The file.
        path: PathBuf,
        /// Permissions of the file.
        mode: u32,
    },
    /// The file was made by a later version of this program.
    #[error("{} has version {version}, and this program knows versions up to 1: use a newer program", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        version: String,
    },
    /// The content is not that of a vault, or not all of it.
    #[error("{} is no whole vault: {why}; it was left as it is: put it back from a backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Description of the damage.
        why: &'static str,
    },
    /// The vault is sealed with another key.
    #[error(
        "{} is sealed with the key {sealed_with}, and the key that was given is {given}", path.display()
    )]
    OtherKey {
        /// The vault.
        path: PathBuf,
        /// Identifier of the key that it is sealed with.
        sealed_with: String,
        /// Identifier of the key that was given.
        given: String,
    },
    /// Another process is changing the vault.
    #[error("{} is being changed by another process: try again when it has ended", .0.display())]
    Locked(PathBuf),
    /// The key cannot be read.
    #[error("the key of the vault {place}: {why}")]
    Key {
        /// Source of the key.
        place: String,
        /// Description of the failure.
        why: String,
    },
    /// The content is too large.
    #[error("{0}")]
    TooMuch(String),
    /// The system gives no random numbers.
    #[error("the system gives no random numbers")]
    Randomness,
    /// The file cannot be read or written.
    #[error("{} cannot be {what}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Participle of what was tried.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}
