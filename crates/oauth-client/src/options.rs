//! Settings of a client that asks for tokens.

use crate::{Browser, Landing, MemoryStore, Pending, Secret, SigningKey, TokenStore};
use std::{error::Error, fmt, path::PathBuf, sync::Arc, time::Duration};

/// Settings of an [`Authorizer`](crate::Authorizer). The default signs nobody in: it uses tokens of the
/// store only, which is empty.
#[derive(Clone, Debug)]
pub struct Options {
    /// The client, as authorization servers know it.
    pub client: ClientIdentity,
    /// The way to tokens.
    pub grant: Grant,
    /// Scopes to ask for whatever the server asks for. If there are any, the scopes in the server's
    /// metadata are not asked for.
    pub scopes: Vec<String>,
    /// Binding of tokens to a key.
    pub dpop: Dpop,
    /// Place where credentials are kept.
    pub store: Arc<dyn TokenStore>,
    /// Private networks and hosts in them that metadata may lead to, as
    /// [`AllowPrivate`](http_client::AllowPrivate) reads them. The server's own host may be reached always,
    /// and this machine if the server is on it.
    pub allow_private: Vec<String>,
    /// True to let tokens go to servers over connections that are not encrypted, and not on this machine.
    pub plain_http: bool,
    /// Certificate authorities besides those of the system: PEM. May be empty.
    pub authorities: Vec<u8>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client: ClientIdentity::default(),
            grant: Grant::default(),
            scopes: Vec::new(),
            dpop: Dpop::default(),
            store: Arc::new(MemoryStore::default()),
            allow_private: Vec::new(),
            plain_http: false,
            authorities: Vec::new(),
        }
    }
}

/// The client, as authorization servers know it. Without an identifier and without a metadata document the
/// client is registered on demand, where the authorization server does that.
#[derive(Clone, Debug)]
pub struct ClientIdentity {
    /// Name that people are shown when the client is registered on demand.
    pub name: String,
    /// Identifier of a client that is registered beforehand.
    pub id: Option<String>,
    /// The client's secret.
    pub secret: Option<Secret>,
    /// The client's private key, for `private_key_jwt`.
    pub key: Option<Arc<SigningKey>>,
    /// The authorization server where it is registered. Without it the first one that the server names is
    /// taken, and no other afterwards.
    pub issuer: Option<String>,
    /// Address of the client's metadata document, which is its identifier where that is supported.
    pub metadata_url: Option<String>,
}

impl Default for ClientIdentity {
    fn default() -> Self {
        Self {
            name: "OwlClaw MCP".to_owned(),
            id: None,
            secret: None,
            key: None,
            issuer: None,
            metadata_url: None,
        }
    }
}

/// The way to tokens.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Grant {
    /// A person signs in, in a browser (authorization code with PKCE).
    Login(Login),
    /// The client is enough (RFC 6749, section 4.4), with a secret or a key.
    ClientCredentials,
    /// The company's identity provider vouches for its user (enterprise-managed authorization).
    Enterprise(IdentityProvider),
    /// The platform vouches for the workload (RFC 7523): the assertion goes to the authorization server, once.
    Workload(Assertion),
    /// No new grant: tokens of the store are used and renewed.
    #[default]
    Stored,
}

/// A sign-in in a browser.
#[derive(Clone, Debug)]
pub struct Login {
    /// Shows the address to the person.
    pub browser: Arc<dyn Browser>,
    /// Port of 127.0.0.1 that the answer comes back to; any free one without it.
    pub port: Option<u16>,
    /// Place of the embedder's own where the answer comes back, instead of a port.
    pub landing: Option<Landing>,
    /// Time for signing in.
    pub timeout: Duration,
}

impl Login {
    /// A sign-in with `browser`, on any port, within five minutes.
    pub fn new(browser: impl Browser) -> Self {
        Self {
            browser: Arc::new(browser),
            port: None,
            landing: None,
            timeout: Duration::from_secs(300),
        }
    }
}

/// A company's identity provider, which gives an assertion (ID-JAG) for the tokens that its users have.
#[derive(Clone, Debug)]
pub struct IdentityProvider {
    /// Token endpoint of the provider.
    pub token_endpoint: String,
    /// The client, as the provider knows it.
    pub client_id: String,
    /// The client's secret there, if it has one.
    pub client_secret: Option<Secret>,
    /// The user's ID token.
    pub id_token: Assertion,
}

/// Source of a signed statement about a workload or a user. The statement is read anew each time.
#[derive(Clone)]
#[non_exhaustive]
pub enum Assertion {
    /// The statement itself.
    Fixed(Secret),
    /// The content of a file, such as the service account token of a Kubernetes pod.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A source of the embedder's.
    Source(Arc<dyn AssertionSource>),
}

/// A source of assertions.
pub trait AssertionSource: Send + Sync + 'static {
    /// An assertion for `audience`, the issuer of tokens.
    fn assertion<'a>(
        &'a self,
        audience: &'a str,
    ) -> Pending<'a, Result<Secret, Box<dyn Error + Send + Sync>>>;
}

impl Assertion {
    pub(crate) async fn get(&self, audience: &str) -> Result<Secret, String> {
        let text = match self {
            Self::Fixed(secret) => return Ok(secret.clone()),
            Self::File(path) => {
                let place = path.clone();
                let read = move || regular_file::read_text(&place, regular_file::MAX_BYTES);
                let read = tokio::task::spawn_blocking(read).await;
                let read = read.map_err(std::io::Error::other).flatten();
                read.map_err(|error| format!("{}: {error}", path.display()))?
            }
            Self::Environment(name) => std::env::var(name)
                .map_err(|_| format!("the environment variable {name} is not set"))?,
            Self::Source(source) => {
                let given = source.assertion(audience).await;
                let given = given.map_err(|error| crate::error::with_causes(&*error))?;
                given.reveal().to_owned()
            }
        };
        match text.trim() {
            "" => Err("it is empty".to_owned()),
            text => Ok(text.into()),
        }
    }
}

impl fmt::Debug for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(secret) => f.debug_tuple("Fixed").field(secret).finish(),
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Environment(name) => f.debug_tuple("Environment").field(name).finish(),
            Self::Source(_) => f.write_str("Source(…)"),
        }
    }
}

/// Binding of tokens to a key that each request proves to have (RFC 9449).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dpop {
    /// Bound where the server asks for it.
    #[default]
    Asked,
    /// Always bound: a token that is not bound is not used.
    Always,
    /// Never bound: where the server asks for it, there is no token.
    Never,
}
