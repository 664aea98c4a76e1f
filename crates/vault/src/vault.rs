//! Content of a vault, and its form in a file.

use crate::{Key, Name, Secret, VaultError, file};
use base64::{Engine as _, engine::general_purpose::STANDARD_NO_PAD};
use chacha20poly1305::{
    KeyInit as _, XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Payload},
};
use std::{collections::BTreeMap, path::Path, time::SystemTime};
use zeroize::Zeroizing;

/// First line of a file.
const MAGIC: &str = "owlclaw-vault/";
const VERSION: &str = "1";
const NONCE_BYTES: usize = 24;

/// The longest value.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// The most secrets in one vault.
pub const MAX_ENTRIES: usize = 10_000;

/// Secrets by name.
#[derive(Clone, Debug, Default)]
pub struct Vault {
    entries: BTreeMap<Name, Entry>,
}

/// A secret, and when it came.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The secret itself.
    pub value: Secret,
    /// Time when the name was first set, in seconds since 1970.
    pub created_at: u64,
    /// Time when the value was last set, in seconds since 1970.
    pub changed_at: u64,
}

impl Vault {
    /// Makes an empty vault where there is no file.
    ///
    /// # Errors
    ///
    /// [`VaultError::Exists`] if there is a file; otherwise errors of the file system.
    pub fn create(path: &Path, key: &Key) -> Result<(), VaultError> {
        file::write_private(path, &Self::default().sealed(key)?, false)
    }

    /// Opens a vault to read it.
    ///
    /// # Errors
    ///
    /// [`VaultError`] if it is not there, open to others, damaged, or sealed with another key.
    pub fn open(path: &Path, key: &Key) -> Result<Self, VaultError> {
        let text = file::private_content(path)?;
        let text = text.ok_or_else(|| VaultError::Missing(path.to_owned()))?;
        Self::unsealed(&text, key, path)
    }

    /// The secret of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.entries.get(name).map(|it| &it.value)
    }

    /// All secrets, in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = (&Name, &Entry)> {
        self.entries.iter()
    }

    /// Sets a secret. Returns true if there was one of this name.
    ///
    /// # Errors
    ///
    /// [`VaultError::TooMuch`] if the value is empty or too long, or the vault has too many.
    pub fn set(&mut self, name: &Name, value: Secret) -> Result<bool, VaultError> {
        let bytes = value.reveal().len();
        if bytes == 0 || MAX_VALUE_BYTES < bytes {
            return Err(VaultError::TooMuch(format!(
                "the value of `{name}` has {bytes} bytes; it must have 1 to {MAX_VALUE_BYTES}"
            )));
        }
        let before = self.entries.get(name);
        if before.is_none() && MAX_ENTRIES <= self.entries.len() {
            return Err(VaultError::TooMuch(format!(
                "the vault has {MAX_ENTRIES} secrets already"
            )));
        }
        let now = now();
        let (was_there, created_at) = match before {
            Some(before) => (true, before.created_at),
            None => (false, now),
        };
        let entry = Entry {
            value,
            created_at,
            changed_at: now,
        };
        self.entries.insert(name.clone(), entry);
        Ok(was_there)
    }

    /// Removes a secret. Returns false if there was none.
    pub fn remove(&mut self, name: &str) -> bool {
        self.entries.remove(name).is_some()
    }

    /// Content of a file with this vault.
    pub(crate) fn sealed(&self, key: &Key) -> Result<Zeroizing<String>, VaultError> {
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| VaultError::Randomness)?;
        let header = header(key);
        let plain = self.encoded();
        let payload = Payload {
            msg: &plain,
            aad: header.as_bytes(),
        };
        let cipher = XChaCha20Poly1305::new(key.bytes().into());
        let sealed = cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed = sealed.map_err(|_| VaultError::TooMuch("the vault is too long".to_owned()))?;
        let mut content = nonce.to_vec();
        content.extend(sealed);
        let text = format!("{header}{}\n", STANDARD_NO_PAD.encode(content));
        match text.len() as u64 <= file::MAX_BYTES {
            true => Ok(Zeroizing::new(text)),
            false => Err(VaultError::TooMuch(format!(
                "the vault would have more than {} bytes",
                file::MAX_BYTES
            ))),
        }
    }

    pub(crate) fn unsealed(text: &str, key: &Key, path: &Path) -> Result<Self, VaultError> {
        let damaged = |why| VaultError::Damaged {
            path: path.to_owned(),
            why,
        };
        let id = key_id_of(text, path)?;
        if id != key.id() {
            return Err(VaultError::OtherKey {
                path: path.to_owned(),
                sealed_with: id.to_owned(),
                given: key.id(),
            });
        }
        let header = header(key);
        let content = text
            .strip_prefix(&header)
            .and_then(|it| it.strip_suffix('\n'));
        let content = content.ok_or(damaged("its end is missing"))?;
        let content = STANDARD_NO_PAD
            .decode(content)
            .map_err(|_| damaged("its content is no Base64"))?;
        let Some((nonce, sealed)) = content.split_first_chunk::<NONCE_BYTES>() else {
            return Err(damaged("its content is too short"));
        };
        let payload = Payload {
            msg: sealed,
            aad: header.as_bytes(),
        };
        let cipher = XChaCha20Poly1305::new(key.bytes().into());
        let plain = cipher.decrypt(&XNonce::from(*nonce), payload);
        let plain = plain.map_err(|_| damaged("its content has been changed or cut short"))?;
        let plain = Zeroizing::new(plain);
        Self::decoded(&plain).ok_or(damaged("its content cannot be read"))
    }

    fn encoded(&self) -> Zeroizing<Vec<u8>> {
        // Grown once, so that no copy is left behind.
        let length: usize = self
            .entries
            .iter()
            .map(|(name, entry)| 24 + name.as_str().len() + entry.value.reveal().len())
            .sum();
        let mut out = Zeroizing::new(Vec::with_capacity(length));
        let text = |text: &str, out: &mut Vec<u8>| {
            out.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend(text.as_bytes());
        };
        for (name, entry) in &self.entries {
            text(name.as_str(), &mut out);
            out.extend(entry.created_at.to_be_bytes());
            out.extend(entry.changed_at.to_be_bytes());
            text(entry.value.reveal(), &mut out);
        }
        out
    }

    fn decoded(mut rest: &[u8]) -> Option<Self> {
        let mut vault = Self::default();
        while !rest.is_empty() {
            let name = text(&mut rest)?.parse().ok()?;
            let created_at = u64::from_be_bytes(*taken(&mut rest)?);
            let changed_at = u64::from_be_bytes(*taken(&mut rest)?);
            let entry = Entry {
                value: Secret::new(text(&mut rest)?),
                created_at,
                changed_at,
            };
            vault.entries.insert(name, entry);
        }
        Some(vault)
    }
}

fn taken<'a, const N: usize>(rest: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(taken)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let length = usize::try_from(u32::from_be_bytes(*taken(rest)?)).ok()?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    std::str::from_utf8(text).ok()
}

fn header(key: &Key) -> String {
    format!("{MAGIC}{VERSION}\nkey {}\n", key.id())
}

/// Identifier of the key that a file is sealed with.
pub(crate) fn key_id_of<'t>(text: &'t str, path: &Path) -> Result<&'t str, VaultError> {
    let damaged = |why| VaultError::Damaged {
        path: path.to_owned(),
        why,
    };
    if text.is_empty() {
        return Err(damaged("it is empty"));
    }
    let mut lines = text.lines();
    let version = lines.next().and_then(|it| it.strip_prefix(MAGIC));
    let version = version.ok_or(damaged("it does not begin like one"))?;
    if version != VERSION {
        return Err(match version.bytes().all(|it| it.is_ascii_digit()) {
            true if !version.is_empty() => VaultError::Newer {
                path: path.to_owned(),
                version: version.to_owned(),
            },
            _ => damaged("it does not begin like one"),
        });
    }
    let id = lines.next().and_then(|it| it.strip_prefix("key "));
    id.filter(|it| it.len() == 16)
        .ok_or(damaged("the identifier of its key is missing"))
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}
