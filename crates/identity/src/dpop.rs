//! Proofs that the sender of a token has the key that the token is bound to (RFC 9449).

use crate::{
    Rejection, canonical_resource,
    compact::{Compact, MAX_TOKEN_BYTES},
    jwks::verifies,
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{digest, hmac, rand::SystemRandom};
use serde::Deserialize;
use serde_json::Value;
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Mutex, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Age at which a proof is good no more.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Time by which the clock of a client may be ahead.
const MAX_AHEAD: Duration = Duration::from_secs(30);
/// Time for which a proof that was used is remembered at least: all that it could be used again in.
const REMEMBERED: Duration = Duration::from_secs(90);
/// Proofs of one key within that time; more are refused.
const MAX_OF_KEY: u32 = 60_000;
/// Proofs of all keys within that time; more are refused.
const MAX_OF_ALL: usize = 1_000_000;
/// The longest `jti`.
const MAX_ID_BYTES: usize = 512;
/// Time for which one nonce is given, and then taken once more as long.
const NONCE: Duration = Duration::from_secs(300);

/// A proof beside a token, and the request that has both.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// Value of the header `DPoP`.
    pub proof: &'a str,
    /// Method of the request.
    pub method: &'a str,
    /// Address of the request, as its client knows it; without query and fragment.
    pub address: &'a str,
    /// The token.
    pub token: &'a str,
}

/// Checks of proofs, each of which is good once.
///
/// Used proofs are remembered in this process alone: several servers behind one name need nonces, which each of them gives
/// by itself.
pub struct Proofs {
    seen: Mutex<Seen>,
    /// Key of the nonces.
    key: hmac::Key,
    /// True if each proof must have a nonce.
    nonces: bool,
    /// Time from which on used proofs are remembered. One that was made before may have been used at the process before
    /// this one, and must have a nonce.
    since: SystemTime,
}

/// Two generations of proofs that were used: when the younger one is as old as a proof can be, the older is forgotten.
struct Seen {
    young: HashSet<u128>,
    old: HashSet<u128>,
    of_key: HashMap<u64, u32>,
    turned: SystemTime,
}

impl fmt::Debug for Proofs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proofs")
            .field("nonces", &self.nonces)
            .finish_non_exhaustive()
    }
}

/// Members of a proof's header. A member that is there twice is an error.
#[derive(Deserialize)]
struct Header {
    typ: String,
    alg: String,
    jwk: Value,
    crit: Option<Value>,
}

fn unproved<T>(why: &'static str) -> Result<T, Rejection> {
    Err(Rejection::Unproved { why })
}

impl Proofs {
    /// Checks without a proof so far, as of the time `since`. With `nonces`, proofs must have one of this server's, and not
    /// only those that were made before.
    ///
    /// # Errors
    ///
    /// Without randomness.
    pub fn new(nonces: bool, since: SystemTime) -> Result<Self, ring::error::Unspecified> {
        Ok(Self {
            seen: Mutex::new(Seen {
                young: HashSet::new(),
                old: HashSet::new(),
                of_key: HashMap::new(),
                turned: UNIX_EPOCH,
            }),
            key: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            nonces,
            since,
        })
    }

    /// The nonce for the next proof.
    #[must_use]
    pub fn nonce(&self, now: SystemTime) -> String {
        nonce(&self.key, slice(now))
    }

    /// Checks a proof of the key whose thumbprint (RFC 7638) a token has (section 4.3), and uses it up.
    ///
    /// # Errors
    ///
    /// [`Rejection::Unproved`] and [`Rejection::NeedsNonce`]; [`Rejection::TooManyAttempts`] for more proofs than are
    /// remembered of one key, and [`Rejection::Unavailable`] of all.
    pub fn check(
        &self,
        presented: &Presented<'_>,
        thumbprint: &str,
        now: SystemTime,
    ) -> Result<(), Rejection> {
        let proof = presented.proof;
        if MAX_TOKEN_BYTES < proof.len() {
            return unproved("the proof is too long");
        }
        let parts: Vec<&str> = proof.split('.').collect();
        let [header, claims, signature] = parts[..] else {
            return unproved("the proof is no JWT");
        };
        let bytes = |text: &str| {
            let decoded = URL_SAFE_NO_PAD.decode(text);
            decoded.map_err(|_| Rejection::Unproved {
                why: "the proof is not base64url",
            })
        };
        let parsed: Result<Header, _> = serde_json::from_slice(&bytes(header)?);
        let Ok(parsed) = parsed else {
            return unproved("the header of the proof cannot be read");
        };
        if !parsed.typ.eq_ignore_ascii_case("dpop+jwt") {
            return unproved("the proof is not of the type dpop+jwt");
        }
        if parsed.crit.is_some() {
            return unproved("the proof needs extensions that are not known here");
        }
        let Ok(algorithm) = parsed.alg.parse() else {
            return unproved("the proof is not signed in a way that is accepted");
        };
        let parsed_claims: Result<Value, _> = serde_json::from_slice(&bytes(claims)?);
        let Some(parsed_claims) = parsed_claims.ok().filter(Value::is_object) else {
            return unproved("the claims of the proof cannot be read");
        };
        // Before the signature, which takes longer.
        if thumbprint_of(&parsed.jwk).is_none_or(|it| it != thumbprint) {
            return unproved("the token is bound to another key than that of the proof");
        }
        let compact = Compact {
            algorithm,
            key_id: None,
            signed: &proof.as_bytes()[..header.len() + 1 + claims.len()],
            signature: bytes(signature)?,
            claims: parsed_claims,
            is_access_token: false,
        };
        if !verifies(&parsed.jwk, &compact) {
            return unproved("the signature of the proof is wrong");
        }
        self.claims(&compact.claims, presented, thumbprint, now)
    }

    fn claims(
        &self,
        claims: &Value,
        presented: &Presented<'_>,
        thumbprint: &str,
        now: SystemTime,
    ) -> Result<(), Rejection> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if text("htm") != Some(presented.method) {
            return unproved("the proof is for another method");
        }
        if !text("htu").is_some_and(|it| is_same(it, presented.address)) {
            return unproved("the proof is for another address");
        }
        let digest = digest::digest(&digest::SHA256, presented.token.as_bytes());
        if text("ath") != Some(&URL_SAFE_NO_PAD.encode(digest)) {
            return unproved("the proof is for another token");
        }
        let made = claims.get("iat").and_then(Value::as_f64);
        let made = made.filter(|it| it.is_finite() && 0.0 <= *it);
        let made = made.and_then(|it| Duration::try_from_secs_f64(it).ok());
        let Some(made) = made.and_then(|it| UNIX_EPOCH.checked_add(it)) else {
            return unproved("the proof does not say when it was made");
        };
        let is_fresh = match now.duration_since(made) {
            Ok(age) => age <= MAX_AGE,
            Err(ahead) => ahead.duration() <= MAX_AHEAD,
        };
        if !is_fresh {
            return unproved("the proof is too old, or not good yet");
        }
        // One of a clock that is ahead may have been used before the start, and must have had a nonce then.
        let given = text("nonce");
        if self.nonces || made < self.since || now < made || given.is_some() {
            let given = given.unwrap_or_default();
            let slice = slice(now);
            let given = URL_SAFE_NO_PAD.decode(given).unwrap_or_default();
            let is_ours = [slice, slice.saturating_sub(1)]
                .into_iter()
                .any(|it| hmac::verify(&self.key, &it.to_be_bytes(), &given).is_ok());
            if !is_ours {
                return Err(Rejection::NeedsNonce);
            }
        }
        match text("jti").filter(|it| !it.is_empty() && it.len() <= MAX_ID_BYTES) {
            Some(id) => self.once(thumbprint, id, now),
            None => unproved("the proof has no identifier"),
        }
    }

    /// Notes that a proof was used, which must not have been before.
    fn once(&self, thumbprint: &str, id: &str, now: SystemTime) -> Result<(), Rejection> {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(thumbprint.as_bytes());
        let of_key = context.clone().finish();
        context.update(b".");
        context.update(id.as_bytes());
        let of_proof = context.finish();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = &mut *seen;
        // A clock that was set back forgets nothing.
        if now
            .duration_since(seen.turned)
            .is_ok_and(|it| REMEMBERED <= it)
        {
            seen.old = std::mem::take(&mut seen.young);
            seen.of_key.clear();
            seen.turned = now;
        }
        let (of_key, of_proof) = (number(of_key.as_ref()), number(of_proof.as_ref()));
        if seen.young.contains(&of_proof) || seen.old.contains(&of_proof) {
            return unproved("the proof was used before");
        }
        if MAX_OF_ALL <= seen.young.len() {
            let why = "too many proofs are remembered at present";
            return Err(Rejection::Unavailable { why });
        }
        let count = seen.of_key.entry(of_key as u64).or_default();
        if MAX_OF_KEY <= *count {
            return Err(Rejection::TooManyAttempts);
        }
        *count += 1;
        seen.young.insert(of_proof);
        Ok(())
    }
}

/// The first 16 bytes of a digest.
fn number(digest: &[u8]) -> u128 {
    let bytes = digest.iter().take(16);
    bytes.fold(0, |number, byte| number << 8 | u128::from(*byte))
}

fn slice(now: SystemTime) -> u64 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / NONCE.as_secs()
}

fn nonce(key: &hmac::Key, slice: u64) -> String {
    URL_SAFE_NO_PAD.encode(hmac::sign(key, &slice.to_be_bytes()))
}

/// Returns true if two addresses are the same but for query, fragment, case of scheme and host, and port that goes without
/// saying.
fn is_same(given: &str, expected: &str) -> bool {
    let given = given.split(['?', '#']).next().unwrap_or_default();
    let (given, expected) = (canonical_resource(given), canonical_resource(expected));
    given.is_some() && given == expected
}

/// Thumbprint (RFC 7638) of a public key; `None` for one that is of no kind that is known here, or has a private part.
fn thumbprint_of(jwk: &Value) -> Option<String> {
    let members = jwk.as_object()?;
    let private = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];
    if private.iter().any(|it| members.contains_key(*it)) {
        return None;
    }
    let names: &[&str] = match members.get("kty")?.as_str()? {
        "EC" => &["crv", "kty", "x", "y"],
        "OKP" => &["crv", "kty", "x"],
        "RSA" => &["e", "kty", "n"],
        _ => return None,
    };
    // Of what has these members, JSON has but this one text.
    let is_plain = |it: &&str| {
        it.bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let mut text = String::from("{");
    for (at, name) in names.iter().enumerate() {
        let value = members.get(*name)?.as_str().filter(is_plain)?;
        let comma = if at == 0 { "" } else { "," };
        text.push_str(&format!("{comma}\"{name}\":\"{value}\""));
    }
    text.push('}');
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    Some(URL_SAFE_NO_PAD.encode(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thumbprint_is_that_of_the_standard_and_no_private_key_has_one() {
        // RFC 7638, section 3.1.
        let n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
        let mut jwk = serde_json::json!({"kty": "RSA", "n": n, "e": "AQAB", "alg": "RS256", "kid": "2011-04-29"});
        let expected = "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs";
        assert_eq!(thumbprint_of(&jwk).as_deref(), Some(expected));
        jwk["d"] = "AQAB".into();
        assert_eq!(thumbprint_of(&jwk), None);
    }

    #[test]
    fn proofs_are_remembered_within_bounds_and_as_long_as_they_could_be_used() {
        let proofs = Proofs::new(false, UNIX_EPOCH).unwrap();
        let start = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let used = |id: &str, seconds| proofs.once("key", id, start + Duration::from_secs(seconds));
        assert!(used("a", 0).is_ok());
        for seconds in [0, 30, 89, 90, 91, 179] {
            assert!(used("a", seconds).is_err(), "after {seconds} s");
        }
        assert!(
            proofs.once("other", "a", start).is_ok(),
            "each key has its own"
        );
        // A clock that goes back brings nothing back.
        let before = start - Duration::from_secs(3_600);
        assert!(proofs.once("key", "a", before).is_err());
        for number in 0..MAX_OF_KEY {
            let _ = used(&number.to_string(), 400);
        }
        assert_eq!(used("one more", 400), Err(Rejection::TooManyAttempts));
        assert!(used("one more", 491).is_ok(), "later there is room again");
    }
}
