//! Signatures of seals, and their text.

use super::{PublicKey, Signature, SigningKey, from_hex};
use crate::fault::SignatureError;
use crate::record::seal::{Encrypted, Seal};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};

/// Beginning of every signed text, so that a signature can be used for nothing else.
const PURPOSE: &[u8] = b"owlclaw ledger segment 1\n";

/// The same for a segment that is encrypted.
const PURPOSE_ENCRYPTED: &[u8] = b"owlclaw ledger encrypted segment 1\n";

/// Format of the file that an encrypted segment is in.
const AGE: &str = "age";

impl Seal {
    fn message(&self) -> Vec<u8> {
        let mut message = match self.encrypted {
            Some(_) => PURPOSE_ENCRYPTED.to_vec(),
            None => PURPOSE.to_vec(),
        };
        for number in [
            self.number,
            self.first_sequence,
            self.last_sequence,
            self.at_us,
        ] {
            message.extend_from_slice(&number.to_le_bytes());
        }
        message.extend_from_slice(&self.previous_hash);
        message.extend_from_slice(&self.last_hash);
        if let Some(Encrypted { sha256, bytes }) = &self.encrypted {
            message.extend_from_slice(sha256);
            message.extend_from_slice(&bytes.to_le_bytes());
        }
        message
    }

    /// Signs it, in place of any signature before.
    pub(crate) fn sign(&mut self, key: &SigningKey) {
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
        let key = keys.iter().find(|key| key.name() == signature.key);
        let key = key.ok_or(SignatureError::Untrusted)?;
        match key.has_signed(&self.message(), &signature.bytes) {
            true => Ok(()),
            false => Err(SignatureError::Wrong),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let mut value = json!({
            "segment": self.number,
            "first_sequence": self.first_sequence,
            "last_sequence": self.last_sequence,
            "previous_hash": HEXLOWER.encode(&self.previous_hash),
            "last_hash": HEXLOWER.encode(&self.last_hash),
            "at_us": self.at_us,
        });
        if let Some(Encrypted { sha256, bytes }) = &self.encrypted {
            value["encrypted"] = AGE.into();
            value["sha256"] = HEXLOWER.encode(sha256).into();
            value["bytes"] = (*bytes).into();
        }
        if let Some(signature) = &self.signature {
            value["key"] = HEXLOWER.encode(&signature.key).into();
            value["signature"] = HEXLOWER.encode(&signature.bytes).into();
        }
        value.to_string()
    }

    pub(crate) fn from_json(text: &str) -> Option<Self> {
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
        let encrypted = match value.get("encrypted") {
            None => None,
            Some(format) if format == AGE => Some(Encrypted {
                sha256: from_hex(value.get("sha256")?.as_str()?)?,
                bytes: number("bytes")?,
            }),
            Some(_) => return None,
        };
        Some(Self {
            number: number("segment")?,
            first_sequence: number("first_sequence")?,
            last_sequence: number("last_sequence")?,
            previous_hash: from_hex(value.get("previous_hash")?.as_str()?)?,
            last_hash: from_hex(value.get("last_hash")?.as_str()?)?,
            at_us: number("at_us")?,
            encrypted,
            signature,
        })
    }
}
