//! Answers that are kept under idempotency keys, and what the entries have of them.
//!
//! The end of a call has the digest of what is kept: a random number and the answer. The number is
//! nowhere else, so that the digest confirms no guess of an answer.

use crate::record::entry::{Digest, Ended};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

/// The digest of nothing.
pub(crate) const NOTHING_KEPT: Digest = [0; size_of::<Digest>()];

/// Bytes of the random number in front of an answer.
const NUMBER_BYTES: usize = 32;

/// An answer with a random number in front, as it is kept.
pub(crate) fn sealed(answer: &str) -> String {
    format!("{} {answer}", Uuid::new_v4().simple())
}

/// The answer in what is kept. An earlier version kept it without a number.
pub(crate) fn answer(kept: &str) -> &str {
    match kept.split_at_checked(NUMBER_BYTES) {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
            rest.strip_prefix(' ').unwrap_or(kept)
        }
        _ => kept,
    }
}

/// The digest of what is kept.
pub(crate) fn digest(kept: Option<&str>) -> Digest {
    kept.map_or(NOTHING_KEPT, |kept| Sha256::digest(kept).into())
}

/// Returns true if the end of a call has this digest of its kept result. Ends by an earlier version
/// have none.
pub(crate) fn is_on_record(ended: &Ended, digest: Digest) -> bool {
    ended.kept.is_none_or(|kept| kept == digest)
}
