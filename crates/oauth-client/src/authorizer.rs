//! The tokens of one server: which are used, when they are renewed, and what a refusal leads to.

mod attempt;
mod grants;
mod revocation;
mod sign_in;
mod tokens;

pub use attempt::{Attempt, Verdict};

use crate::{
    AuthorizationError, Challenge, Credentials, Grant, Options, address::Address, dpop::Prover,
    web::Web,
};
use bytes::Bytes;
use http::{HeaderValue, Request, header::CONTENT_TYPE};
use std::{
    fmt,
    sync::{Arc, RwLock, atomic::AtomicU64},
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// The wait for a person ends by so much earlier than the whole sign-in, since its error tells more.
const GRACE: Duration = Duration::from_millis(500);

/// Gets tokens for one server and keeps them. Cheap to clone; clones share the tokens.
///
/// Each request takes an [`Attempt`]. However many requests wait for a token at once, it is asked for once.
/// What has begun is finished even if the request that began it is dropped, since an authorization server
/// may take a refresh token back as soon as it was used.
#[derive(Clone)]
pub struct Authorizer(Arc<Inner>);

struct Inner {
    server: Address,
    key: String,
    options: Options,
    web: Web,
    /// The token that requests use. `None` inside: there is no token, and that is known.
    live: RwLock<Option<Option<Arc<Live>>>>,
    state: Mutex<State>,
    /// Counts the times that tokens were asked for, successfully or not.
    asked: AtomicU64,
}

/// A token in use.
struct Live {
    serial: u64,
    header: HeaderValue,
    /// Seconds since 1970.
    renew_at: u64,
    ends_at: u64,
    renewable: bool,
    requested: Vec<String>,
    prover: Option<Arc<Prover>>,
    token: crate::Secret,
}

#[derive(Default)]
struct State {
    credentials: Option<Credentials>,
    prover: Option<Arc<Prover>>,
    /// The last attempt, if it has failed, and when.
    failed: Option<(AuthorizationError, Instant)>,
    not_before: Option<Instant>,
    serial: u64,
}

/// Way in which a token was got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Obtained {
    Renewed,
    Granted,
}

/// Reason why a token is wanted.
#[derive(Clone)]
enum Wanted {
    /// There is none, or it ends soon; it is had without asking anybody for a new grant by a person.
    Ready,
    /// The server refused the one with this serial (or none).
    Instead {
        serial: Option<u64>,
        challenge: Challenge,
        may_refresh: bool,
        more: Vec<String>,
    },
    /// The one of the store was got longer ago than this.
    Younger { than: Duration },
}

/// Login that a store keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptLogin {
    /// Time when its access token was got, in seconds since 1970.
    pub issued_at: u64,
    /// Time when that ends, in seconds since 1970, if it is known.
    pub ends_at: Option<u64>,
    /// True if another can be got without a person.
    pub is_renewable: bool,
}

impl Authorizer {
    /// An authorizer for the server at `server`, which has asked for nothing yet.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError::Options`] for an address that is none, and settings that contradict each other.
    pub fn new(server: &str, options: Options) -> Result<Self, AuthorizationError> {
        let bad = |text: &str| AuthorizationError::Options(text.to_owned());
        let address = |text: &str, what: &str| {
            let address = Address::parse(text);
            address.ok_or_else(|| {
                bad(&format!(
                    "{what} is not an absolute address of http or https"
                ))
            })
        };
        // A WebSocket is opened by a request over HTTP, and belongs to the resource of that.
        let server = match server.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            _ => server.to_owned(),
        };
        let server = address(&server, "the server's address")?;
        let client = &options.client;
        if let Some(url) = &client.metadata_url
            && !(url.starts_with("https://")
                && 1 < address(url, "the metadata document")?.path().len())
        {
            return Err(bad(
                "the client's metadata document needs an address of https with a path",
            ));
        }
        let has_proof = client.secret.is_some() || client.key.is_some();
        if has_proof && client.id.is_none() && client.metadata_url.is_none() {
            return Err(bad(
                "a client with a secret or a key needs its identifier, too",
            ));
        }
        let needs_client = matches!(
            options.grant,
            Grant::ClientCredentials | Grant::Enterprise(_)
        );
        if needs_client && (client.id.is_none() || !has_proof) {
            return Err(bad(
                "this grant needs a client with its identifier and a secret or a key",
            ));
        }
        let mut named = vec![server.clone()];
        if let Some(issuer) = &client.issuer {
            named.push(address(issuer, "the client's issuer")?);
        }
        if let Grant::Enterprise(provider) = &options.grant {
            named.push(address(
                &provider.token_endpoint,
                "the identity provider's token endpoint",
            )?);
        }
        let web = Web::new(
            &named.iter().collect::<Vec<_>>(),
            &options.allow_private,
            options.plain_http,
            &options.authorities,
        )?;
        Ok(Self(Arc::new(Inner {
            key: server.canonical(),
            server,
            options,
            web,
            live: RwLock::default(),
            state: Mutex::default(),
            asked: AtomicU64::new(0),
        })))
    }

    /// The server, in the form in which stores know it.
    #[must_use]
    pub fn server(&self) -> &str {
        &self.0.key
    }

    /// The beginning of one request.
    #[must_use]
    pub fn attempt(&self) -> Attempt {
        Attempt::new(Arc::clone(&self.0))
    }

    /// Gets a token by a new grant, before any request has asked for one. The server is sent an empty message
    /// first, to see what it asks for.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`], the reason why there is none; also if the time of [`Login`](crate::Login) is over,
    /// however much of it servers have taken that do not answer.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn login(&self) -> Result<(), AuthorizationError> {
        let Grant::Login(login) = &self.0.options.grant else {
            return self.granted().await;
        };
        let within = login.timeout;
        let granted = tokio::time::timeout(within + GRACE, self.granted()).await;
        granted.unwrap_or_else(|_| {
            let seconds = within.as_secs();
            let why = format!("it was not done within {seconds} s, since a server does not answer");
            Err(AuthorizationError::Login(why))
        })
    }

    async fn granted(&self) -> Result<(), AuthorizationError> {
        let server = &self.0.server;
        let json = HeaderValue::from_static("application/json");
        let request = Request::post(server.to_string()).header(CONTENT_TYPE, json);
        let message = Bytes::from_static(b"{}");
        let answer = self.0.web.send(request, server, message).await?;
        let wanted = Wanted::Instead {
            serial: self.0.serial(),
            challenge: Challenge::of(answer.headers()).unwrap_or_default(),
            may_refresh: false,
            more: Vec::new(),
        };
        self.0.obtain(wanted).await.map(|_| ())
    }

    /// Renews the login of the store whatever requests there are, if its access token was got longer ago than `age`: a
    /// refresh token that nobody uses ends. `None` if there is no login.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`], the reason why it could not be renewed. It is kept. One whose refresh token is not taken any
    /// more is no error: it [is not renewable](KeptLogin::is_renewable) afterwards.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn keep_login(&self, age: Duration) -> Result<Option<KeptLogin>, AuthorizationError> {
        let asked_at = crate::clock::now();
        self.0.obtain(Wanted::Younger { than: age }).await?;
        let state = self.0.state.lock().await;
        let tokens = state.credentials.as_ref().and_then(|it| it.tokens.as_ref());
        Ok(tokens.map(|it| KeptLogin {
            issued_at: it.issued_at,
            ends_at: it
                .expires_in
                .map(|seconds| it.issued_at.saturating_add(seconds)),
            // One that was due and is as it was is not: the client is another now, for example.
            is_renewable: it.refresh_token.is_some()
                && asked_at < it.issued_at.saturating_add(age.as_secs()),
        }))
    }

    /// True if another process that shares the store has signed out of the server, or signed in anew, since the token
    /// in use was got: what is connected with it belongs to another person's account, or to nobody's. False while a
    /// token is being asked for.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError::Store`].
    pub async fn is_superseded(&self) -> Result<bool, AuthorizationError> {
        let Ok(state) = self.0.state.try_lock() else {
            return Ok(false);
        };
        let mine = state.credentials.as_ref().filter(|it| it.tokens.is_some());
        let Some((issuer, sign_in)) = mine.map(|it| (it.issuer.clone(), it.sign_in.clone())) else {
            return Ok(false);
        };
        drop(state);
        let stored = self.0.stored().await?;
        let is_same = |it: &Credentials| it.issuer == issuer && it.sign_in == sign_in;
        Ok(!stored.iter().any(|it| it.tokens.is_some() && is_same(it)))
    }

    /// Forgets the tokens and registrations of the server, here and in the store, and has their authorization servers
    /// revoke the tokens. Returns reasons why some of them may be good there until they end.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError::Store`], in which case nothing is revoked.
    pub async fn logout(&self) -> Result<Vec<AuthorizationError>, AuthorizationError> {
        let mut state = self.0.state.lock().await;
        // What another process is renewing would come back.
        let held = match self.0.stored().await?.is_empty() {
            true => None,
            false => Some(self.0.hold().await?),
        };
        let stored = self.0.stored().await?;
        for credentials in &stored {
            let store = &self.0.options.store;
            let removed = store.remove(&credentials.server, &credentials.issuer).await;
            removed.map_err(|error| store_error(&*error))?;
        }
        *state = State {
            serial: state.serial,
            ..State::default()
        };
        self.0.publish(&mut state);
        drop((held, state));
        let mut unrevoked = Vec::new();
        for credentials in &stored {
            unrevoked.extend(self.revoke(credentials).await.err());
        }
        Ok(unrevoked)
    }

    /// Has the authorization server revoke tokens (RFC 7009).
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`], the reason why they may be good until they end.
    pub async fn revoke(&self, credentials: &Credentials) -> Result<(), AuthorizationError> {
        self.0.revoke(credentials).await
    }
}

impl fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authorizer")
            .field("server", &self.0.key)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}
fn add_scopes<'a>(scopes: &mut Vec<String>, more: impl IntoIterator<Item = &'a str>) {
    for scope in more {
        if !scopes.iter().any(|it| it == scope) {
            scopes.push(scope.to_owned());
        }
    }
}

fn store_error(error: &(dyn std::error::Error + 'static)) -> AuthorizationError {
    AuthorizationError::Store(crate::error::with_causes(error))
}
