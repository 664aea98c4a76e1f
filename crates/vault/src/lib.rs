//! Secrets by name in one encrypted file.
//!
//! The file is text: a line with the version of its form, a line with the identifier of the key, and a line
//! with everything else, names too, sealed by XChaCha20-Poly1305 under a nonce that is new with each writing.
//! The file is for its owner alone (mode 0600), and a file that others can read is refused. A change writes a new
//! file beside it, which takes the place of the old one as a whole; a lock lets one writer at a time change it.
//! A file that is damaged, cut short or sealed with another key is refused, and never written over.
//!
//! The [`Key`] comes from a file, a variable, a program or the caller. [`rotate`] seals a vault with another key.
//!
//! [`ClientSecrets`] are such files for the secrets of each client at each upstream.
//!
//! Decrypted values are wiped from memory when they are dropped ([`Secret`]); copies that a caller makes of them are
//! the caller's.
//!
//! ```
//! use vault::{Key, Name, Secret, Vault};
//!
//! let directory = tempfile::tempdir()?;
//! let path = directory.path().join("vault");
//! let key = Key::generate()?;
//! Vault::create(&path, &key)?;
//!
//! let name: Name = "GITHUB_TOKEN".parse()?;
//! vault::edit(&path, || Ok(key.clone()), |it| it.set(&name, Secret::new("ghp_0123456789")).map(drop))?;
//!
//! let vault = Vault::open(&path, &key)?;
//! assert_eq!(vault.get("GITHUB_TOKEN").unwrap().reveal(), "ghp_0123456789");
//! assert!(Vault::open(&path, &Key::generate()?).is_err());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod change;
mod clients;
mod error;
mod file;
mod key;
mod secret;
mod vault;

pub use crate::{
    change::{edit, is_locked, rotate},
    clients::{Belongings, CLIENTS_KEY, ClientSecrets},
    error::VaultError,
    key::{Key, output_of, write_new_key},
    secret::{BadName, Name, Secret},
    vault::{Entry, MAX_ENTRIES, MAX_VALUE_BYTES, Vault},
};
