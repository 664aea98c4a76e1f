use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use ring::digest::{SHA256, digest};
use std::fmt;

/// Prefix of every key, by which scanners for leaked secrets, and our own redaction, recognize one.
const PREFIX: &str = "owl_";
/// Bytes of a secret: 256 bits cannot be guessed, so a plain digest is all that has to be kept.
const SECRET_BYTES: usize = 32;
const SECRET_CHARACTERS: usize = 43;
/// 48 bits, in hexadecimal.
const ID_BYTES: usize = 6;

/// A key as its owner has it: `owl_<id>_<secret>`. Its `Debug` output hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey {
    text: String,
}

impl ApiKey {
    /// A new one, from the system's randomness.
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; ID_BYTES + SECRET_BYTES];
        getrandom::fill(&mut bytes)?;
        let (id, secret) = bytes.split_at(ID_BYTES);
        let secret = URL_SAFE_NO_PAD.encode(secret);
        let text = format!("{PREFIX}{}_{secret}", HEXLOWER.encode(id));
        Ok(Self { text })
    }

    /// The whole key. Say it once, to whom it is for.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.text
    }

    /// Id of the key, which is not secret.
    #[must_use]
    pub fn id(&self) -> &str {
        parts(&self.text).map_or("", |(id, _)| id)
    }

    /// Returns true if `text` has the prefix of a key, well formed or not.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiKey")
            .field("id", &self.id())
            .finish_non_exhaustive()
    }
}

/// The id and the secret of what looks like a key in every character.
pub(crate) fn parts(text: &str) -> Option<(&str, &str)> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let is_secret = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let fits = is_id(id) && secret.len() == SECRET_CHARACTERS && secret.bytes().all(is_secret);
    fits.then_some((id, secret))
}

pub(crate) fn is_id(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 2 * ID_BYTES && text.bytes().all(is_digit)
}

/// Digest under which a key or a token is stored.
pub(crate) fn digest_of(text: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    bytes
}

/// Compares two digests in constant time.
pub(crate) fn are_equal(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let differ = one
        .iter()
        .zip(other)
        .fold(0, |all, (one, other)| all | (one ^ other));
    std::hint::black_box(differ) == 0
}

pub(crate) fn from_hexadecimal(text: &str) -> Option<[u8; 32]> {
    let bytes = HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_what_it_promises() {
        let key = ApiKey::generate().unwrap();
        assert_ne!(key, ApiKey::generate().unwrap());
        let (id, secret) = parts(key.reveal()).unwrap();
        assert_eq!((id, secret.len()), (key.id(), 43));
        assert!(ApiKey::is_one(key.reveal()) && ApiKey::is_one("owl_"));
        assert!(!ApiKey::is_one("eyJhbGciOiJFZERTQSJ9.e30.x") && !ApiKey::is_one(""));
        assert_eq!(
            format!("{key:?}"),
            format!("ApiKey {{ id: {:?}, .. }}", key.id())
        );
        assert_eq!(
            from_hexadecimal(&HEXLOWER.encode(&digest_of("x"))),
            Some(digest_of("x"))
        );
    }

    #[test]
    fn digests_that_differ_in_any_bytes_are_not_equal() {
        let one = digest_of("x");
        assert!(are_equal(&one, &one));
        for first in 0..32 {
            let mut other = one;
            other[first] ^= 0b100;
            assert!(!are_equal(&one, &other), "{first}");
            // Two differences that cancel each other out in a sum or a difference of bits.
            other[31 - first] ^= 0b100;
            assert!(!are_equal(&one, &other), "{first}");
        }
    }

    #[test]
    fn what_only_looks_like_a_key_is_none() {
        let id = "0123456789ab";
        let secret = "x".repeat(43);
        let key = format!("owl_{id}_{secret}");
        assert!(parts(&key).is_some());
        for wrong in [
            format!("owl_{id}_{secret}x"),
            format!("owl_{id}_{}", &secret[1..]),
            format!("owl_{id}_{}=", &secret[1..]),
            format!("owl_{}_{secret}", id.to_uppercase()),
            format!("owl_{}_{secret}", &id[1..]),
            format!("owl_{secret}"),
            format!("OWL_{id}_{secret}"),
            format!(" {key}"),
            format!("owl_é{}_{secret}", &id[2..]),
            String::new(),
        ] {
            assert_eq!(parts(&wrong), None, "{wrong}");
        }
        for wrong in ["", &"0".repeat(63), &"é".repeat(32), &"+".repeat(64)] {
            assert_eq!(from_hexadecimal(wrong), None);
        }
    }
}
