//! Makes tokens, honest ones and others.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use identity::{FetchKeys, Fetched, IssuerOptions, Issuers, KeySource};
use ring::{
    rand::SystemRandom,
    signature::{
        ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair,
        EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384,
        RSA_PKCS1_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512, RsaEncoding, RsaKeyPair,
        RsaPublicKeyComponents,
    },
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;

/// A pair of keys.
pub(crate) enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair, &'static str),
    Ed(Ed25519KeyPair),
}

impl Pair {
    pub(crate) fn rsa() -> Self {
        let key = include_bytes!("keys/rsa-2048.pk8");
        Self::Rsa(RsaKeyPair::from_pkcs8(key).unwrap())
    }

    pub(crate) fn p256() -> Self {
        Self::ec(&ECDSA_P256_SHA256_FIXED_SIGNING, "P-256")
    }

    pub(crate) fn p384() -> Self {
        Self::ec(&ECDSA_P384_SHA384_FIXED_SIGNING, "P-384")
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm, curve: &'static str) -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap();
        Self::Ec(pair, curve)
    }

    pub(crate) fn ed25519() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }

    /// The public half, as issuers publish it.
    pub(crate) fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                let (n, e) = (text(&public.n), text(&public.e));
                json!({"kty": "RSA", "kid": id, "use": "sig", "n": n, "e": e})
            }
            Self::Ec(pair, curve) => {
                let point = &pair.public_key().as_ref()[1..];
                let (x, y) = point.split_at(point.len() / 2);
                json!({"kty": "EC", "kid": id, "crv": curve, "x": text(x), "y": text(y)})
            }
            Self::Ed(pair) => {
                let x = text(pair.public_key().as_ref());
                json!({"kty": "OKP", "kid": id, "crv": "Ed25519", "x": x})
            }
        }
    }

    fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Rsa(pair) => {
                let encoding: &dyn RsaEncoding = match algorithm {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    "PS384" => &RSA_PSS_SHA384,
                    "PS512" => &RSA_PSS_SHA512,
                    _ => &RSA_PKCS1_SHA256,
                };
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut signature)
                    .unwrap();
                signature
            }
            Self::Ec(pair, _) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// A token with this header and these claims, signed as `alg` says where it can be.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let algorithm = header["alg"].as_str().unwrap_or_default();
        self.token_of(&header.to_string(), &claims.to_string(), algorithm)
    }

    pub(crate) fn token_of(&self, header: &str, claims: &str, algorithm: &str) -> String {
        let signed = format!("{}.{}", text(header.as_bytes()), text(claims.as_bytes()));
        let signature = self.sign(algorithm, signed.as_bytes());
        format!("{signed}.{}", text(&signature))
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The present of all tests.
pub(crate) fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW)
}

pub(crate) const NOW: u64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://login.example/realms/corp";
pub(crate) const RESOURCE: &str = "https://tools.example/mcp";

/// Claims that are good.
pub(crate) fn claims() -> Value {
    json!({"iss": ISSUER, "aud": RESOURCE, "sub": "ana", "exp": NOW + 300, "iat": NOW - 10})
}

pub(crate) fn options() -> IssuerOptions {
    IssuerOptions {
        resource: Some(RESOURCE.to_owned()),
        ..IssuerOptions::new(
            "corp",
            ISSUER,
            KeySource::Url("https://login.example/keys".into()),
        )
    }
}

/// An issuer's address: what it says can change, and it can hang.
#[derive(Default)]
pub(crate) struct Source {
    document: Mutex<Option<String>>,
    pub(crate) fetches: AtomicUsize,
    /// While this is set nothing is answered.
    pub(crate) hangs: Mutex<Option<Arc<Notify>>>,
}

impl Source {
    pub(crate) fn of(keys: &[Value]) -> Arc<Self> {
        let source = Arc::new(Self::default());
        source.say(keys);
        source
    }

    pub(crate) fn say(&self, keys: &[Value]) {
        *self.document.lock().unwrap() = Some(json!({ "keys": keys }).to_string());
    }

    pub(crate) fn fail(&self) {
        *self.document.lock().unwrap() = None;
    }

    pub(crate) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }
}

impl FetchKeys for Source {
    fn fetch<'a>(&'a self, _: &'a KeySource) -> Fetched<'a> {
        Box::pin(async move {
            self.fetches.fetch_add(1, Ordering::SeqCst);
            let hangs = self.hangs.lock().unwrap().clone();
            if let Some(until) = hangs {
                until.notified().await;
            }
            let document = self.document.lock().unwrap().clone();
            document
                .map(String::into_bytes)
                .ok_or_else(|| "it is down".into())
        })
    }
}

/// Issuers whose keys are there, and kept as long as the runtime lives.
pub(crate) async fn issuers(options: Vec<IssuerOptions>, source: &Arc<Source>) -> Arc<Issuers> {
    let issuers = Arc::new(Issuers::new(options).unwrap());
    for index in 0..issuers.count() {
        let source: Arc<dyn FetchKeys> = Arc::clone(source) as _;
        tokio::spawn(Arc::clone(&issuers).keep(index, source, now));
    }
    while issuers.health(now()).iter().any(|it| !it.ok) {
        tokio::task::yield_now().await;
    }
    issuers
}
