//! The public keys of an issuer (RFC 7517).

use crate::{Algorithm, compact::Compact};
use base64::{
    Engine, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

/// A longer document is refused.
pub(crate) const MAX_SET_BYTES: usize = 1024 * 1024;
/// More keys are refused.
const MAX_KEYS: usize = 256;
/// Keys of one name that are tried.
const MAX_TRIED: usize = 4;
/// Shorter moduli are not safe, and longer ones take long.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=8_192;

/// Some issuers pad where they should not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Keys that tokens may be signed with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeySet {
    keys: Vec<Key>,
}

#[derive(Debug, PartialEq, Eq)]
struct Key {
    id: Option<String>,
    algorithm: Option<Algorithm>,
    public: PublicKey,
}

#[derive(Debug, PartialEq, Eq)]
enum PublicKey {
    Rsa { modulus: Vec<u8>, exponent: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

/// Why a document is no set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSet {
    #[error("the document with the keys is longer than {MAX_SET_BYTES} bytes")]
    TooLong,
    #[error("the document is not a JSON web key set")]
    NotASet,
    #[error("there are more than {MAX_KEYS} keys")]
    TooMany,
    #[error("there is no key that tokens could be verified with")]
    Empty,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    r#use: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl KeySet {
    /// The keys of a document. What is of no use here is left out, as RFC 7517 §5 wants it.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, BadSet> {
        if MAX_SET_BYTES < document.len() {
            return Err(BadSet::TooLong);
        }
        let document: Document = serde_json::from_slice(document).map_err(|_| BadSet::NotASet)?;
        if MAX_KEYS < document.keys.len() {
            return Err(BadSet::TooMany);
        }
        let keys: Vec<Key> = document.keys.into_iter().filter_map(Key::of).collect();
        if keys.is_empty() {
            return Err(BadSet::Empty);
        }
        Ok(Self { keys })
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there is a key that `token` could be signed with.
    pub(crate) fn knows(&self, token: &Compact<'_>) -> bool {
        self.candidates(token).next().is_some()
    }

    /// Whether one of these keys has signed `token`.
    pub(crate) fn has_signed(&self, token: &Compact<'_>) -> bool {
        self.candidates(token)
            .take(MAX_TRIED)
            .any(|key| key.public.has_signed(token))
    }

    /// The algorithm must fit the key and not only the token: it is the key that decides how it may
    /// be used. A token that names no key is one of the only key there is.
    fn candidates<'a>(&'a self, token: &'a Compact<'_>) -> impl Iterator<Item = &'a Key> {
        let fits = |key: &&Key| {
            key.public.fits(token.algorithm) && key.algorithm.is_none_or(|it| it == token.algorithm)
        };
        let of_name = move |key: &&Key| match &token.key_id {
            Some(id) => key.id.as_ref() == Some(id),
            None => self.keys.iter().filter(fits).count() == 1,
        };
        self.keys.iter().filter(fits).filter(of_name)
    }
}

impl Key {
    fn of(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let signs = jwk.r#use.as_deref().is_none_or(|it| it == "sig");
        let verifies = jwk.key_ops.as_ref();
        let verifies = verifies.is_none_or(|it| it.iter().any(|it| it == "verify"));
        if !signs || !verifies {
            return None;
        }
        // One for something we do not know is not one for something else.
        let algorithm = match &jwk.alg {
            None => None,
            Some(name) => Some(name.parse().ok()?),
        };
        let bytes = |text: &Option<String>| BASE64.decode(text.as_ref()?).ok();
        let curve = jwk.crv.as_deref();
        let public = match (jwk.kty.as_str(), curve) {
            ("RSA", _) => {
                let modulus = without_zeros(bytes(&jwk.n)?);
                let bits = modulus.len() * 8 - modulus.first()?.leading_zeros() as usize;
                if !RSA_BITS.contains(&bits) {
                    return None;
                }
                let exponent = without_zeros(bytes(&jwk.e)?);
                PublicKey::Rsa { modulus, exponent }
            }
            ("EC", Some("P-256")) => PublicKey::P256(point(&bytes(&jwk.x)?, &bytes(&jwk.y)?, 32)?),
            ("EC", Some("P-384")) => PublicKey::P384(point(&bytes(&jwk.x)?, &bytes(&jwk.y)?, 48)?),
            ("OKP", Some("Ed25519")) => {
                let key = bytes(&jwk.x)?;
                (key.len() == 32).then_some(PublicKey::Ed25519(key))?
            }
            _ => return None,
        };
        Some(Self {
            id: jwk.kid,
            algorithm,
            public,
        })
    }
}

impl PublicKey {
    fn fits(&self, algorithm: Algorithm) -> bool {
        use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
        match self {
            Self::Rsa { .. } => {
                matches!(algorithm, RS256 | RS384 | RS512 | PS256 | PS384 | PS512)
            }
            Self::P256(_) => algorithm == ES256,
            Self::P384(_) => algorithm == ES384,
            Self::Ed25519(_) => algorithm == EdDSA,
        }
    }

    fn has_signed(&self, token: &Compact<'_>) -> bool {
        let (signed, proof) = (token.signed, token.signature.as_slice());
        let verified = match self {
            Self::Rsa { modulus, exponent } => {
                let Some(parameters) = rsa(token.algorithm) else {
                    return false;
                };
                let key = RsaPublicKeyComponents {
                    n: modulus,
                    e: exponent,
                };
                key.verify(parameters, signed, proof)
            }
            Self::P256(point) => UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                .verify(signed, proof),
            Self::P384(point) => UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                .verify(signed, proof),
            Self::Ed25519(key) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(signed, proof)
            }
        };
        verified.is_ok()
    }
}

fn rsa(algorithm: Algorithm) -> Option<&'static RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &signature::RSA_PSS_2048_8192_SHA512,
        Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA => return None,
    })
}

/// Some issuers write a sign byte before the modulus.
fn without_zeros(mut bytes: Vec<u8>) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    bytes.drain(..zeros);
    bytes
}

/// An uncompressed point, as SEC 1 has it.
fn point(x: &[u8], y: &[u8], length: usize) -> Option<Vec<u8>> {
    let fits = x.len() == length && y.len() == length;
    fits.then(|| [&[4], x, y].concat())
}
