use crate::{address, challenge::canonical_resource};
use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr, sync::Arc, time::Duration};

/// Signature algorithm of a token. There is no `none` and nothing with a shared secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "the names are those of RFC 7518 and RFC 8037")]
pub enum Algorithm {
    RS256,
    RS384,
    RS512,
    PS256,
    PS384,
    PS512,
    ES256,
    ES384,
    EdDSA,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Self; 9] = [
        Self::RS256,
        Self::RS384,
        Self::RS512,
        Self::PS256,
        Self::PS384,
        Self::PS512,
        Self::ES256,
        Self::ES384,
        Self::EdDSA,
    ];

    /// Name in tokens.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RS256 => "RS256",
            Self::RS384 => "RS384",
            Self::RS512 => "RS512",
            Self::PS256 => "PS256",
            Self::PS384 => "PS384",
            Self::PS512 => "PS512",
            Self::ES256 => "ES256",
            Self::ES384 => "ES384",
            Self::EdDSA => "EdDSA",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A name that is not that of an [`Algorithm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("tokens cannot be signed like this here")]
pub struct UnknownAlgorithm;

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, UnknownAlgorithm> {
        // RFC 9864 calls the one curve by its name.
        let name = if name == "Ed25519" { "EdDSA" } else { name };
        let found = Self::ALL.into_iter().find(|it| it.as_str() == name);
        found.ok_or(UnknownAlgorithm)
    }
}

/// Source of an issuer's public keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// In a file, read again when [`Issuers::refresh`](crate::Issuers::refresh) is called.
    File(PathBuf),
    /// At an address, fetched again from time to time.
    Url(String),
    /// Address given in the issuer's metadata (RFC 8414, OpenID Connect Discovery), which is read
    /// again every hour and after each failure.
    Issuer,
}

impl KeySource {
    /// Returns true if `issuer` can have metadata: its address is `https`, or `http` on this
    /// machine, without query and fragment.
    #[must_use]
    pub fn can_be_found(issuer: &str) -> bool {
        address::places(issuer).is_some()
    }

    /// Returns true if no third party can change what `address` answers: the scheme is `https`, or
    /// `http` on this machine.
    #[must_use]
    pub fn is_safe(address: &str) -> bool {
        address::is_safe(address)
    }
}

/// An issuer whose tokens are believed, and what is made of them.
#[derive(Clone, Debug)]
pub struct IssuerOptions {
    /// Name that the operator gave the issuer.
    pub name: Arc<str>,
    /// Required value of `iss`, compared character for character.
    pub issuer: String,
    /// Accepted audiences: `aud` must contain one of them, compared character for character.
    pub audiences: Vec<String>,
    /// The URI of this server, for which `aud` may stand as well; compared as URIs are.
    pub resource: Option<String>,
    /// Accepted signature algorithms.
    pub algorithms: Vec<Algorithm>,
    /// The claim with the principal's name.
    pub principal_claim: String,
    /// Prefix of the principal's name.
    pub principal_prefix: String,
    /// The claim with roles, a list of texts or a text with spaces. A dotted path leads into
    /// objects.
    pub roles_claim: Option<String>,
    /// Roles that scopes give.
    pub scopes: BTreeMap<String, Vec<Arc<str>>>,
    /// Scopes that a token must have to be let in.
    pub required_scopes: Vec<String>,
    /// Source of the issuer's keys.
    pub keys: KeySource,
    /// By how much clocks may differ.
    pub leeway: Duration,
    /// Interval between regular fetches of the keys.
    pub refresh: Duration,
    /// Shortest time between two fetches, also when a token names a key that is not known.
    pub min_interval: Duration,
    /// Longest time for which keys are used after they could no longer be fetched.
    pub max_stale: Duration,
}

impl IssuerOptions {
    /// The issuer `issuer`, called `name`, with keys at `keys`; everything else as it is best for
    /// most. It has no audience yet.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, issuer: impl Into<String>, keys: KeySource) -> Self {
        Self {
            name: name.into(),
            issuer: issuer.into(),
            audiences: Vec::new(),
            resource: None,
            algorithms: Algorithm::ALL.to_vec(),
            principal_claim: "sub".to_owned(),
            principal_prefix: String::new(),
            roles_claim: None,
            scopes: BTreeMap::new(),
            required_scopes: Vec::new(),
            keys,
            leeway: Duration::from_secs(30),
            refresh: Duration::from_secs(900),
            min_interval: Duration::from_secs(10),
            max_stale: Duration::from_secs(24 * 60 * 60),
        }
    }

    /// Returns true if a token for `audience` is meant for this server.
    pub(crate) fn accepts_audience(&self, audience: &str) -> bool {
        self.audiences.iter().any(|it| it == audience)
            || self.resource.as_ref().is_some_and(|resource| {
                let given = canonical_resource(audience);
                given.is_some() && given == canonical_resource(resource)
            })
    }
}

/// Properties that an ID token must have to end a sign-in.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedIdToken<'a> {
    /// Name of the issuer that was asked.
    pub issuer: &'a str,
    /// The client that asked, for which the token must be.
    pub client_id: &'a str,
    /// `nonce` of the request.
    pub nonce: &'a str,
    /// Scopes that the issuer has granted.
    pub scopes: &'a [&'a str],
}
