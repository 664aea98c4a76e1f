//! State that travels through a client and comes back: sealed, so that the client can neither read
//! nor change it, and bound to the one request it belongs to (2026-07-28, multi round-trip requests:
//! a server must treat it as attacker-controlled).

use arc_swap::ArcSwap;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use chacha20poly1305::{
    XChaCha20Poly1305, XNonce,
    aead::{Aead, KeyInit, Payload},
};
use ledger::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// The longest sealed state that is opened, in bytes of its text.
const MAX_SEALED: usize = 64 * 1024;

/// The longest time a client may take to answer.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60 * 60);

const NONCE_BYTES: usize = 24;

/// Seals and opens states: with a key of its own, which lives as long as the process, or with those that
/// servers share.
pub(crate) struct Sealer {
    /// The first seals; all of them open.
    ciphers: ArcSwap<Vec<XChaCha20Poly1305>>,
}

/// The request that a state belongs to. Sent along with another request, it does not open.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Bound<'a> {
    pub(crate) principal: &'a str,
    pub(crate) method: &'a str,
    pub(crate) name: &'a str,
    /// A digest of the parameters, apart from what a retry adds, in canonical form.
    pub(crate) parameters: Digest,
}

#[derive(Serialize, Deserialize)]
struct Sealed {
    expires_us: u64,
    state: Value,
}

/// A state that was not sealed here for this request, or too long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request state is not valid for this request, or no longer")]
pub(crate) struct BadSeal;

impl Sealer {
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        // Without randomness there is no key, and without a key nothing may be sealed.
        getrandom::fill(&mut key).expect("the system gives random bytes");
        Self {
            ciphers: ArcSwap::from_pointee(vec![XChaCha20Poly1305::new(&key.into())]),
        }
    }

    /// Seals with the first of these keys from now on, and opens with all of them and no other. Nothing
    /// changes without any.
    pub(crate) fn use_keys(&self, keys: &[[u8; 32]]) {
        if !keys.is_empty() {
            let ciphers = keys.iter().map(|key| XChaCha20Poly1305::new(key.into()));
            self.ciphers.store(Arc::new(ciphers.collect()));
        }
    }

    pub(crate) fn seal(&self, bound: Bound<'_>, state: &Value, now_us: u64) -> String {
        let sealed = Sealed {
            expires_us: now_us.saturating_add(LIFETIME.as_micros() as u64),
            state: state.clone(),
        };
        let text = serde_json::to_vec(&sealed).expect("a tree of values serializes");
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).expect("the system gives random bytes");
        let context = bound.context();
        let payload = Payload {
            msg: &text,
            aad: &context,
        };
        let ciphers = self.ciphers.load();
        // There is always one.
        let sealed = ciphers[0]
            .encrypt(&XNonce::from(nonce), payload)
            .expect("a state is far smaller than what the cipher takes");
        URL_SAFE_NO_PAD.encode([nonce.as_slice(), &sealed].concat())
    }

    pub(crate) fn open(
        &self,
        bound: Bound<'_>,
        sealed: &str,
        now_us: u64,
    ) -> Result<Value, BadSeal> {
        if MAX_SEALED < sealed.len() {
            return Err(BadSeal);
        }
        let bytes = URL_SAFE_NO_PAD.decode(sealed).map_err(|_| BadSeal)?;
        let (nonce, sealed) = bytes.split_at_checked(NONCE_BYTES).ok_or(BadSeal)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| BadSeal)?;
        let context = bound.context();
        let open = |cipher: &XChaCha20Poly1305| {
            let payload = Payload {
                msg: sealed,
                aad: &context,
            };
            cipher.decrypt(&XNonce::from(nonce), payload).ok()
        };
        let text = self.ciphers.load().iter().find_map(open).ok_or(BadSeal)?;
        let opened: Sealed = serde_json::from_slice(&text).map_err(|_| BadSeal)?;
        if opened.expires_us < now_us {
            return Err(BadSeal);
        }
        Ok(opened.state)
    }
}

impl Bound<'_> {
    fn context(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts and a digest serialize")
    }
}

impl std::fmt::Debug for Sealer {
    /// Leaves the key out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealer")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn servers_open_what_others_with_the_same_keys_have_sealed_until_a_key_is_gone() {
        let [first, second] = [Sealer::new(), Sealer::new()];
        let bound = Bound {
            principal: "alice",
            method: "tools/call",
            name: "transfer",
            parameters: redaction::digest("{}"),
        };
        let state = json!({ "step": 2 });
        let [old, new] = [[1; 32], [2; 32]];
        first.use_keys(&[old, new]);
        second.use_keys(&[new, old]);
        for (from, to) in [(&first, &second), (&second, &first)] {
            let sealed = from.seal(bound, &state, 1_000);
            assert_eq!(to.open(bound, &sealed, 1_000), Ok(state.clone()));
        }
        let (of_old, of_new) = (
            first.seal(bound, &state, 1_000),
            second.seal(bound, &state, 1_000),
        );
        first.use_keys(&[new]);
        assert_eq!(first.open(bound, &of_old, 1_000), Err(BadSeal));
        assert!(first.open(bound, &of_new, 1_000).is_ok());
        first.use_keys(&[]);
        assert!(first.open(bound, &of_new, 1_000).is_ok(), "as it was");
    }

    #[test]
    fn a_state_opens_for_its_own_request_alone() {
        let sealer = Sealer::new();
        let parameters = redaction::digest(r#"{"b":1,"a":[9007199254740993]}"#);
        let bound = Bound {
            principal: "alice",
            method: "tools/call",
            name: "transfer",
            parameters,
        };
        let state = json!({ "step": 2 });
        let sealed = sealer.seal(bound, &state, 1_000);
        assert!(!sealed.contains("step"));
        assert_eq!(sealer.open(bound, &sealed, 1_000), Ok(state));
        let same = redaction::digest(r#"{ "a": [9007199254740993], "b": 1 }"#);
        assert!(
            sealer
                .open(
                    Bound {
                        parameters: same,
                        ..bound
                    },
                    &sealed,
                    1_000
                )
                .is_ok()
        );

        // Numbers beyond the precision of a double are told apart.
        let other = redaction::digest(r#"{"b":1,"a":[9007199254740992]}"#);
        for stranger in [
            Bound {
                principal: "bob",
                ..bound
            },
            Bound {
                method: "prompts/get",
                ..bound
            },
            Bound {
                name: "refund",
                ..bound
            },
            Bound {
                parameters: other,
                ..bound
            },
        ] {
            assert_eq!(
                sealer.open(stranger, &sealed, 1_000),
                Err(BadSeal),
                "{stranger:?}"
            );
        }
        let late = 1_000 + LIFETIME.as_micros() as u64 + 1;
        assert_eq!(sealer.open(bound, &sealed, late), Err(BadSeal));
        assert_eq!(
            Sealer::new().open(bound, &sealed, 1_000),
            Err(BadSeal),
            "another key"
        );
        for at in [0, sealed.len() / 2, sealed.len() - 1] {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(
                sealer.open(bound, &changed, 1_000),
                Err(BadSeal),
                "byte {at}"
            );
        }
        for bad in ["", "AAAA", "not base64!", &"A".repeat(MAX_SEALED + 1)] {
            assert_eq!(sealer.open(bound, bad, 1_000), Err(BadSeal));
        }
    }
}
