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

/// Reason why a document is not a usable set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSet {
    #[error("the document with the keys is longer than {MAX_SET_BYTES} bytes")]
    TooLong,
    #[error("the document is not a JSON web key set")]
    NotASet,
    #[error("there are more than {MAX_KEYS} keys")]
    TooMany,
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
    /// The keys of a document. What is of no use here is left out, as RFC 7517 §5 wants it; a document
    /// with nothing else says that the issuer has no keys any more.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, BadSet> {
        if MAX_SET_BYTES < document.len() {
            return Err(BadSet::TooLong);
        }
        let document: Document = serde_json::from_slice(document).map_err(|_| BadSet::NotASet)?;
        if MAX_KEYS < document.keys.len() {
            return Err(BadSet::TooMany);
        }
        let keys = document.keys.into_iter().filter_map(Key::of).collect();
        Ok(Self { keys })
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if the set has a key that `token` could be signed with.
    pub(crate) fn knows(&self, token: &Compact<'_>) -> bool {
        self.candidates(token).next().is_some()
    }

    /// Returns true if one of these keys has signed `token`.
    pub(crate) fn has_signed(&self, token: &Compact<'_>) -> bool {
        self.tried(token).any(|key| key.public.has_signed(token))
    }

    /// A document can have as many keys of one name as it likes, and each takes a while.
    fn tried<'a>(&'a self, token: &'a Compact<'_>) -> impl Iterator<Item = &'a Key> {
        self.candidates(token).take(MAX_TRIED)
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

/// Returns true if the key in `jwk` has signed `token`, by an algorithm that the key is for.
pub(crate) fn verifies(jwk: &Value, token: &Compact<'_>) -> bool {
    Key::of(jwk.clone()).is_some_and(|key| {
        let is_for = key.algorithm.is_none_or(|it| it == token.algorithm);
        is_for && key.public.fits(token.algorithm) && key.public.has_signed(token)
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(keys: &[Value]) -> Result<KeySet, BadSet> {
        KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
    }

    /// A key with a modulus of so many bits, which is no product of primes.
    fn rsa(id: &str, bits: usize) -> Value {
        let mut modulus = vec![0; bits.div_ceil(8)];
        modulus[0] = 1 << ((bits - 1) % 8);
        json!({"kty": "RSA", "kid": id, "n": BASE64.encode(modulus), "e": "AQAB"})
    }

    fn point(id: Option<&str>) -> Value {
        let coordinate = BASE64.encode([7; 32]);
        json!({"kty": "EC", "crv": "P-256", "kid": id, "x": coordinate, "y": coordinate})
    }

    fn header(header: &Value) -> String {
        let part = |value: &Value| BASE64.encode(value.to_string()).replace('=', "");
        format!("{}.{}.AAAA", part(header), part(&json!({})))
    }

    fn candidates(set: &KeySet, token: &Value) -> usize {
        let text = header(token);
        let token = Compact::parse(&text).unwrap();
        assert_eq!(set.knows(&token), set.candidates(&token).next().is_some());
        set.candidates(&token).count()
    }

    #[test]
    fn a_document_has_a_few_keys_that_can_be_used() {
        assert_eq!(set(&[]).unwrap().len(), 0);
        let secret = json!({"kty": "oct", "k": "AAAA"});
        assert_eq!(set(&[secret]).unwrap().len(), 0);
        // One that is only half there says nothing.
        for cut in ["", "{", r#"{"keys":["#, r#"{"keys":null}"#] {
            assert_eq!(KeySet::parse(cut.as_bytes()), Err(BadSet::NotASet), "{cut}");
        }
        for (bits, is_one) in [
            (1_024, false),
            (2_047, false),
            (2_048, true),
            (8_192, true),
            (8_193, false),
        ] {
            let found = set(&[rsa("a", bits)]).unwrap().len();
            assert_eq!(found, usize::from(is_one), "{bits}");
        }
        let many = |count: usize| vec![point(None); count];
        assert_eq!(set(&many(MAX_KEYS)).unwrap().len(), MAX_KEYS);
        assert_eq!(set(&many(MAX_KEYS + 1)), Err(BadSet::TooMany));
        // Spaces are no keys, and read all the same.
        let mut long = json!({ "keys": [point(None)] }).to_string().into_bytes();
        long.resize(MAX_SET_BYTES, b' ');
        assert!(KeySet::parse(&long).is_ok());
        long.push(b' ');
        assert_eq!(KeySet::parse(&long), Err(BadSet::TooLong));
        assert_eq!(KeySet::parse(b"{}"), Err(BadSet::NotASet));
    }

    #[test]
    fn a_token_is_that_of_the_key_it_names_or_of_the_only_one() {
        let one = set(&[point(None), rsa("r", 2_048)]).unwrap();
        let named = json!({"alg": "ES256", "kid": "a"});
        let unnamed = json!({"alg": "ES256"});
        assert_eq!(
            (candidates(&one, &named), candidates(&one, &unnamed)),
            (0, 1)
        );
        let two = set(&[point(Some("a")), point(Some("b"))]).unwrap();
        assert_eq!(
            (candidates(&two, &named), candidates(&two, &unnamed)),
            (1, 0)
        );
        // No more than a few of one name are tried, whoever has published them.
        let same = set(&vec![point(Some("a")); 9]).unwrap();
        assert_eq!(candidates(&same, &named), 9);
        let text = header(&named);
        assert_eq!(
            same.tried(&Compact::parse(&text).unwrap()).count(),
            MAX_TRIED
        );
    }
}
