//! Proofs that the sender of a token has the key that it is bound to (RFC 9449).

use crate::{AuthorizationError, Secret, SigningKey, address::Address, key};
use base64::{Engine, engine::general_purpose::STANDARD};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;
use std::{
    collections::HashMap,
    fmt,
    sync::{Mutex, PoisonError},
};

/// The header that has the proof.
pub(crate) const DPOP: HeaderName = HeaderName::from_static("dpop");
/// The header that has the next nonce.
const DPOP_NONCE: &str = "dpop-nonce";
/// Origins whose nonces are remembered.
const MAX_NONCES: usize = 64;
/// A longer nonce is ignored.
const MAX_NONCE_BYTES: usize = 1_024;

/// A key, and the nonces that servers want to see beside it.
pub(crate) struct Prover {
    key: SigningKey,
    der: Secret,
    nonces: Mutex<HashMap<String, String>>,
}

impl Prover {
    pub(crate) fn generate() -> Result<Self, AuthorizationError> {
        let (key, der) = SigningKey::generate().ok_or(AuthorizationError::Cryptography)?;
        Ok(Self::new(key, STANDARD.encode(der).into()))
    }

    /// The prover with a key that was kept.
    pub(crate) fn from_kept(der: &Secret) -> Option<Self> {
        let key = SigningKey::from_pkcs8(&STANDARD.decode(der.reveal()).ok()?).ok()?;
        key.public_jwk()?;
        Some(Self::new(key, der.clone()))
    }

    fn new(key: SigningKey, der: Secret) -> Self {
        let nonces = Mutex::default();
        Self { key, der, nonces }
    }

    /// The key, to be kept.
    pub(crate) fn to_keep(&self) -> Secret {
        self.der.clone()
    }

    /// A fresh proof for one request.
    pub(crate) fn proof(
        &self,
        method: &str,
        address: &Address,
        access_token: Option<&str>,
    ) -> Result<HeaderValue, AuthorizationError> {
        let failed = AuthorizationError::Cryptography;
        let header = json!({"typ": "dpop+jwt", "jwk": self.key.public_jwk()});
        let mut claims = json!({
            "jti": key::random::<16>().ok_or(failed.clone())?,
            "htm": method,
            "htu": address.without_query(),
            "iat": crate::clock::now(),
        });
        if let Some(token) = access_token {
            claims["ath"] = key::sha256(token).into();
        }
        {
            let nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(nonce) = nonces.get(&address.origin()) {
                claims["nonce"] = nonce.as_str().into();
            }
        }
        let proof = self.key.sign(header, &claims).ok_or(failed.clone())?;
        HeaderValue::try_from(proof).map_err(|_| failed)
    }

    /// Remembers the nonce of an answer. Whether there was a new one.
    pub(crate) fn note(&self, address: &Address, headers: &HeaderMap) -> bool {
        let nonce = headers.get(DPOP_NONCE).and_then(|it| it.to_str().ok());
        let Some(nonce) = nonce.filter(|it| !it.is_empty() && it.len() <= MAX_NONCE_BYTES) else {
            return false;
        };
        let mut nonces = self.nonces.lock().unwrap_or_else(PoisonError::into_inner);
        let origin = address.origin();
        if MAX_NONCES <= nonces.len() && !nonces.contains_key(&origin) {
            nonces.clear();
        }
        nonces.insert(origin, nonce.to_owned()).as_deref() != Some(nonce)
    }
}

impl fmt::Debug for Prover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prover").finish_non_exhaustive()
    }
}
