//! Checkpoints seal a ledger: each records where it ended at a time, signed, in the ledger itself
//! and in a file that can be on another disk.
//!
//! The chain of hashes reveals a change of an entry to a reader that knows a later hash.
//! Checkpoints are the later hashes: an attacker that rewrites entries and the chain after them
//! cannot sign the checkpoints anew, and one that cuts the ledger off cannot reach the file
//! elsewhere. A checkpoint also records by when there is another one, so that leaving out its
//! successors shows; the last one of a server that closed in order records that the next entry is
//! one.

mod continuity;
mod file;
mod key;
mod schedule;
mod seal;
mod witness_file;

pub(crate) use self::file::{Lines, append_first, last};
pub use self::{
    continuity::{
        Continuity, ContinuityError, begin_checkpoints, check_continuity, check_signed,
        check_stamped, check_witness, check_witness_file,
    },
    key::{KeyError, PublicKey, SigningKey},
    schedule::{
        CheckpointOptions, Checkpoints, DEFAULT_CHECKPOINT_ENTRIES, DEFAULT_CHECKPOINT_INTERVAL,
    },
    witness_file::{WitnessFile, Witnessed},
};
use crate::fault::SignatureError;
use crate::record::entry::Digest;
pub use crate::record::seal::Signature;
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::path::Path;

/// End of a ledger at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The sequence of the last entry then. Servers make none of an empty ledger, which would seal
    /// nothing; an early version did, with 0.
    pub sequence: u64,
    /// Hash of that entry, which covers all before it.
    pub hash: Digest,
    /// Time: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// The sequence by which another checkpoint is on record, if the ledger goes on that far.
    pub next_by: u64,
    /// Signature, if it is signed.
    pub signature: Option<Signature>,
}

/// The last line that is known to be in the file of checkpoints, noted in the ledger beside a
/// checkpoint. A file that is emptied or cut off is noticed by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Filed {
    /// The absolute path of the file.
    pub(crate) file: String,
    /// Entry that the line seals.
    pub(crate) sequence: u64,
}

impl Filed {
    pub(crate) fn new(file: &Path, sequence: u64) -> Self {
        let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
        Self {
            file: file.to_string_lossy().into_owned(),
            sequence,
        }
    }

    /// Reads it from the detail of a checkpoint's note, of this kind of file.
    pub(crate) fn of(detail: &str, kind: FileKind) -> Option<Self> {
        let detail: Value = serde_json::from_str(detail).ok()?;
        let filed = &detail[kind.member()];
        Some(Self {
            file: filed["file"].as_str()?.to_owned(),
            sequence: filed["sequence"].as_u64()?,
        })
    }

    pub(crate) fn is_in(&self, file: &Path) -> bool {
        Self::new(file, self.sequence) == *self
    }

    /// Adds it to the detail of a checkpoint's note.
    fn add_to(&self, detail: &mut Value, kind: FileKind) {
        detail[kind.member()] = json!({ "file": self.file, "sequence": self.sequence });
    }
}

/// Kind of a file that has checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// The file that is written with the ledger.
    Checkpoints,
    /// The file of a witness.
    Witness,
    /// The file of time-stamps.
    Timestamps,
}

impl FileKind {
    /// Member of a note's detail that has the last line of such a file.
    fn member(self) -> &'static str {
        match self {
            Self::Checkpoints => "filed",
            Self::Witness => "witnessed",
            Self::Timestamps => "stamped",
        }
    }
}

/// Beginning of every signed text, so that a signature can be used for nothing else.
const PURPOSE: &[u8] = b"owlclaw ledger checkpoint 1\n";

impl Checkpoint {
    /// Signed text.
    fn message(&self) -> Vec<u8> {
        let mut message = PURPOSE.to_vec();
        for number in [self.sequence, self.at_us, self.next_by] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        message.extend_from_slice(&self.hash);
        message
    }

    /// SHA-256 of what its signature is of: what an authority stamps. It covers all but the signature.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Sha256::digest(self.message()).into()
    }

    /// Signs it, in place of any signature before.
    pub fn sign(&mut self, key: &SigningKey) {
        self.signature = Some(Signature {
            key: key.public().name(),
            bytes: key.sign(&self.message()),
        });
    }

    /// Checks that one of these keys signed it.
    ///
    /// # Errors
    ///
    /// [`SignatureError`] when none did.
    pub fn check_signature(&self, keys: &[PublicKey]) -> Result<(), SignatureError> {
        let signature = self.signature.ok_or(SignatureError::Missing)?;
        let key = keys
            .iter()
            .find(|key| key.name() == signature.key)
            .ok_or(SignatureError::Untrusted)?;
        if key.has_signed(&self.message(), &signature.bytes) {
            Ok(())
        } else {
            Err(SignatureError::Wrong)
        }
    }

    /// The checkpoint as one line of JSON: a line of the file, and most of the detail of a note.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.as_value().to_string()
    }

    fn as_value(&self) -> Value {
        let mut value = json!({
            "sequence": self.sequence,
            "hash": HEXLOWER.encode(&self.hash),
            "at_us": self.at_us,
            "next_by": self.next_by,
        });
        if let Some(signature) = &self.signature {
            value["key"] = HEXLOWER.encode(&signature.key).into();
            value["signature"] = HEXLOWER.encode(&signature.bytes).into();
        }
        value
    }

    /// Reads what [`Checkpoint::to_json`] wrote; `None` for anything else.
    #[must_use]
    pub fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number = |name| value.get(name)?.as_u64();
        let signature = match (value.get("key"), value.get("signature")) {
            (None, None) => None,
            (Some(key), Some(bytes)) => Some(Signature {
                key: from_hex(key.as_str()?)?,
                bytes: from_hex(bytes.as_str()?)?,
            }),
            _ => return None,
        };
        Some(Self {
            sequence: number("sequence")?,
            hash: from_hex(value.get("hash")?.as_str()?)?,
            at_us: number("at_us")?,
            next_by: number("next_by")?,
            signature,
        })
    }
}

/// Bytes of a hexadecimal text of this length.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    for (byte, digits) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = (digit(digits[0])? * 16 + digit(digits[1])?) as u8;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint() -> Checkpoint {
        Checkpoint {
            sequence: 7,
            hash: [9; 32],
            at_us: 1_790_000_000_123_456,
            next_by: 30_000,
            signature: None,
        }
    }

    #[test]
    fn a_signature_covers_every_part() {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::generate(&directory.path().join("key")).unwrap();
        let other = SigningKey::generate(&directory.path().join("other")).unwrap();
        let keys = [other.public().clone(), key.public().clone()];
        let mut signed = checkpoint();
        assert_eq!(signed.check_signature(&keys), Err(SignatureError::Missing));
        signed.sign(&key);
        assert_eq!(signed.check_signature(&keys), Ok(()));
        assert_eq!(
            signed.check_signature(&keys[..1]),
            Err(SignatureError::Untrusted)
        );
        let changes: [fn(&mut Checkpoint); 5] = [
            |it| it.sequence += 1,
            |it| it.hash[31] ^= 1,
            |it| it.at_us += 1,
            |it| it.next_by += 1,
            |it| it.signature.as_mut().unwrap().bytes[0] ^= 1,
        ];
        for change in changes {
            let mut changed = signed.clone();
            change(&mut changed);
            assert_eq!(changed.check_signature(&keys), Err(SignatureError::Wrong));
        }
    }

    #[test]
    fn a_line_is_read_back_and_nothing_else_is() {
        let directory = tempfile::tempdir().unwrap();
        let key = SigningKey::generate(&directory.path().join("key")).unwrap();
        let mut signed = checkpoint();
        signed.sign(&key);
        for checkpoint in [checkpoint(), signed.clone()] {
            let text = checkpoint.to_json();
            assert_eq!(Checkpoint::from_json(&text), Some(checkpoint));
            assert!(!text.contains('\n'));
            assert_eq!(Checkpoint::from_json(&text[..text.len() - 1]), None);
        }
        let text = signed.to_json();
        for (from, to) in [
            ("\"key\"", "\"kay\""),
            ("\"hash\":\"09", "\"hash\":\"0"),
            ("\"hash\":\"09", "\"hash\":\"0é"),
            (":30000", ":-1"),
        ] {
            assert!(text.contains(from));
            assert_eq!(Checkpoint::from_json(&text.replace(from, to)), None, "{to}");
        }
    }
}
