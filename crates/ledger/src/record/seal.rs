//! Seals of segments, and what signs them and checkpoints.

use super::entry::Digest;

/// Part of the chain that a segment has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// Number of the segment; the first of a ledger is 1.
    pub number: u64,
    /// Sequence of its first entry.
    pub first_sequence: u64,
    /// Sequence of its last entry.
    pub last_sequence: u64,
    /// Hash of the entry before the first one; zeros if there is none.
    pub previous_hash: Digest,
    /// Hash of the last entry, which covers all before it.
    pub last_hash: Digest,
    /// Time at which it was sealed: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Content of its file, if that is encrypted.
    pub encrypted: Option<Encrypted>,
    /// Signature, if it is signed.
    pub signature: Option<Signature>,
}

/// Content of a segment's file behind the seal: a file of age, with the segment in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encrypted {
    /// SHA-256 digest of the file of age.
    pub sha256: Digest,
    /// Bytes of the segment in it.
    pub bytes: u64,
}

/// A signature of a checkpoint or a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name of the key: the first half of the SHA-256 digest of the public key.
    pub key: [u8; 16],
    /// The Ed25519 signature.
    pub bytes: [u8; 64],
}
