//! Private keys and what they sign.

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use ring::{
    digest::{SHA256, digest},
    rand::{SecureRandom, SystemRandom},
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair,
    },
};
use serde_json::{Value, json};
use std::fmt;

/// A private key that signs for a client: assertions of `private_key_jwt`, and proofs of DPoP.
pub struct SigningKey {
    pair: Pair,
    key_id: Option<String>,
}

enum Pair {
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    Rsa(RsaKeyPair, &'static dyn RsaEncoding, &'static str),
}

/// Reason why a private key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadKey {
    /// The text has no `PRIVATE KEY` in PEM.
    #[error(
        "the text has no private key in PKCS #8 (`-----BEGIN PRIVATE KEY-----`); `openssl pkcs8 -topk8 \
         -nocrypt` makes one of other private keys"
    )]
    NotPem,
    /// The key is none of the kinds that are known.
    #[error(
        "the private key is none of P-256, P-384, Ed25519 and RSA of at least 2048 bits in PKCS #8"
    )]
    Unknown,
    /// The key cannot sign with the algorithm that was asked for.
    #[error("the private key does not sign with the algorithm that was asked for")]
    OtherAlgorithm,
}

impl SigningKey {
    /// A key in PEM: PKCS #8, or PKCS #1 for RSA. An RSA key signs with `RS256`.
    ///
    /// # Errors
    ///
    /// [`BadKey`] for a text that has no key, or a key of another kind.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let start = pem.find("-----BEGIN ").ok_or(BadKey::NotPem)?;
        let (label, rest) = pem[start + 11..]
            .split_once("-----")
            .ok_or(BadKey::NotPem)?;
        let (body, _) = rest.split_once("-----END ").ok_or(BadKey::NotPem)?;
        let body: String = body.split_ascii_whitespace().collect();
        let der = STANDARD.decode(body).map_err(|_| BadKey::NotPem)?;
        match label {
            "PRIVATE KEY" => Self::from_pkcs8(&der),
            "RSA PRIVATE KEY" => {
                let pair = RsaKeyPair::from_der(&der).map_err(|_| BadKey::Unknown)?;
                Ok(Self::new(Pair::Rsa(pair, &RSA_PKCS1_SHA256, "RS256")))
            }
            _ => Err(BadKey::NotPem),
        }
    }

    /// A key as PKCS #8 without PEM around it.
    ///
    /// # Errors
    ///
    /// [`BadKey::Unknown`] for a key of another kind.
    pub fn from_pkcs8(der: &[u8]) -> Result<Self, BadKey> {
        let random = SystemRandom::new();
        let p256 = || {
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der, &random).map(Pair::P256)
        };
        let p384 = |_| {
            EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_FIXED_SIGNING, der, &random).map(Pair::P384)
        };
        let ed25519 = |_| Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Pair::Ed25519);
        let rsa =
            |_| RsaKeyPair::from_pkcs8(der).map(|pair| Pair::Rsa(pair, &RSA_PKCS1_SHA256, "RS256"));
        let pair = p256().or_else(p384).or_else(ed25519).or_else(rsa);
        pair.map(Self::new).map_err(|_| BadKey::Unknown)
    }

    /// The same key under the name that the authorization server knows it by: `kid`.
    #[must_use]
    pub fn named(mut self, key_id: impl Into<String>) -> Self {
        self.key_id = Some(key_id.into());
        self
    }

    /// The same key, signing with `algorithm`: `PS256` instead of `RS256` for RSA, and for all other
    /// keys the one algorithm they have.
    ///
    /// # Errors
    ///
    /// [`BadKey::OtherAlgorithm`] for an algorithm of other keys.
    pub fn with_algorithm(mut self, algorithm: &str) -> Result<Self, BadKey> {
        self.pair = match (self.pair, algorithm) {
            (Pair::Rsa(pair, ..), "RS256") => Pair::Rsa(pair, &RSA_PKCS1_SHA256, "RS256"),
            (Pair::Rsa(pair, ..), "PS256") => Pair::Rsa(pair, &RSA_PSS_SHA256, "PS256"),
            (pair, _) => pair,
        };
        (self.algorithm() == algorithm)
            .then_some(self)
            .ok_or(BadKey::OtherAlgorithm)
    }

    /// The algorithm it signs with, as RFC 7518 names it.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match &self.pair {
            Pair::P256(_) => "ES256",
            Pair::P384(_) => "ES384",
            Pair::Ed25519(_) => "EdDSA",
            Pair::Rsa(_, _, name) => name,
        }
    }

    fn new(pair: Pair) -> Self {
        Self { pair, key_id: None }
    }

    /// A fresh P-256 key, and its PKCS #8.
    pub(crate) fn generate() -> Option<(Self, Vec<u8>)> {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).ok()?;
        let key = Self::from_pkcs8(der.as_ref()).ok()?;
        Some((key, der.as_ref().to_vec()))
    }

    /// The public key of a P-256 key, as JWK.
    pub(crate) fn public_jwk(&self) -> Option<Value> {
        let Pair::P256(pair) = &self.pair else {
            return None;
        };
        let point = pair.public_key().as_ref();
        let (x, y) = point.get(1..)?.split_at_checked(32)?;
        let encode = |bytes| URL_SAFE_NO_PAD.encode(bytes);
        Some(json!({"kty": "EC", "crv": "P-256", "x": encode(x), "y": encode(y)}))
    }

    /// A signed token with these claims; `header` has what `alg` and `kid` are added to.
    pub(crate) fn sign(&self, mut header: Value, claims: &Value) -> Option<String> {
        header["alg"] = self.algorithm().into();
        if let Some(key_id) = &self.key_id {
            header["kid"] = key_id.as_str().into();
        }
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&header), part(claims));
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::P256(pair) | Pair::P384(pair) => {
                let signature = pair.sign(&random, text.as_bytes()).ok()?;
                URL_SAFE_NO_PAD.encode(signature.as_ref())
            }
            Pair::Ed25519(pair) => URL_SAFE_NO_PAD.encode(pair.sign(text.as_bytes()).as_ref()),
            Pair::Rsa(pair, encoding, _) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(*encoding, &random, text.as_bytes(), &mut signature)
                    .ok()?;
                URL_SAFE_NO_PAD.encode(signature)
            }
        };
        Some(format!("{text}.{signature}"))
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("algorithm", &self.algorithm())
            .finish_non_exhaustive()
    }
}

/// So many random bytes as base64url.
pub(crate) fn random<const BYTES: usize>() -> Option<String> {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).ok()?;
    Some(URL_SAFE_NO_PAD.encode(bytes))
}

/// The SHA-256 digest of `text` as base64url.
pub(crate) fn sha256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};

    #[test]
    fn a_generated_key_signs_what_its_public_half_verifies() {
        let (key, der) = SigningKey::generate().unwrap();
        let body = STANDARD.encode(&der);
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        let again = SigningKey::from_pem(&pem).unwrap().named("k");
        assert_eq!(again.public_jwk(), key.public_jwk());
        let token = again.sign(json!({"typ": "JWT"}), &json!({"a": 1})).unwrap();
        let (text, signature) = token.rsplit_once('.').unwrap();
        let Pair::P256(pair) = &key.pair else {
            panic!("not P-256")
        };
        let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, pair.public_key());
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        public.verify(text.as_bytes(), &signature).unwrap();
        let header = URL_SAFE_NO_PAD.decode(text.split('.').next().unwrap());
        let header: Value = serde_json::from_slice(&header.unwrap()).unwrap();
        assert_eq!(header, json!({"typ": "JWT", "alg": "ES256", "kid": "k"}));
        assert!(!format!("{again:?}").contains(&body[..20]));
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert_eq!(SigningKey::from_pem("x").unwrap_err(), BadKey::NotPem);
        let public = "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----";
        assert_eq!(SigningKey::from_pem(public).unwrap_err(), BadKey::NotPem);
        let other = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----";
        assert_eq!(SigningKey::from_pem(other).unwrap_err(), BadKey::Unknown);
        let (key, _) = SigningKey::generate().unwrap();
        let refused = key.with_algorithm("RS256").unwrap_err();
        assert_eq!(refused, BadKey::OtherAlgorithm);
    }
}
