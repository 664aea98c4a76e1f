//! The tokens of one server: which are used, when they are renewed, and what a refusal leads to.

use crate::{
    AuthorizationError, Challenge, Credentials, Dpop, Grant, IdentityProvider, Login, Options,
    Registration, Tokens,
    address::{Address, form},
    clock::now,
    discovery::{self, AuthorizationServer, Resource},
    dpop::{DPOP, Prover},
    key,
    login::Callback,
    registration::register,
    token::{self, ClientAt, ClientProof, Given},
    web::Web,
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Mutex, time::Instant};

/// A token is renewed so many seconds before it ends, or a fifth of its life if that is less.
const MARGIN_SECONDS: u64 = 60;
/// After a renewal that failed for the moment, the token is used for so long before the next try.
const RETRY: Duration = Duration::from_secs(10);
/// Times that one request may ask for more scopes.
const MAX_STEP_UPS: u8 = 3;
/// Times that one request is repeated in all.
const MAX_REPEATS: u8 = 8;
/// Times that one request is repeated for the sake of a nonce.
const MAX_NONCES: u8 = 2;
const OFFLINE_ACCESS: &str = "offline_access";

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
    failed: Option<AuthorizationError>,
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
        Attempt {
            inner: Arc::clone(&self.0),
            used: None,
            address: None,
            repeats: 0,
            step_ups: 0,
            nonces: 0,
            renewed: false,
            granted: false,
        }
    }

    /// Gets a token by a new grant, before any request has asked for one. The server is sent an empty message
    /// first, to see what it asks for.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`], the reason why there is none.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn login(&self) -> Result<(), AuthorizationError> {
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

    /// Forgets the tokens and registrations of the server, here and in the store.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError::Store`].
    pub async fn logout(&self) -> Result<(), AuthorizationError> {
        let mut state = self.0.state.lock().await;
        for credentials in self.0.stored().await? {
            let store = &self.0.options.store;
            let removed = store.remove(&credentials.server, &credentials.issuer).await;
            removed.map_err(|error| store_error(&*error))?;
        }
        *state = State {
            serial: state.serial,
            ..State::default()
        };
        self.0.publish(&mut state);
        Ok(())
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

/// One request and its repetitions.
#[derive(Clone)]
pub struct Attempt {
    inner: Arc<Inner>,
    used: Option<Arc<Live>>,
    address: Option<Address>,
    repeats: u8,
    step_ups: u8,
    nonces: u8,
    renewed: bool,
    granted: bool,
}

/// Decision on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The answer is for the caller.
    Deliver,
    /// The request is sent again, with the headers of another [`Attempt::authorize`].
    Repeat,
}

impl Attempt {
    /// Adds what authorizes a request to its headers: nothing as long as there is no token. Renews a token
    /// that ends soon.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`], the reason why there is no token where there was one.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn authorize(
        &mut self,
        method: &Method,
        address: &str,
        headers: &mut HeaderMap,
    ) -> Result<(), AuthorizationError> {
        headers.remove(AUTHORIZATION);
        headers.remove(DPOP);
        let address = Address::parse(address)
            .filter(|it| it.origin() == self.inner.server.origin())
            .ok_or_else(|| {
                let text = "the request goes to another server than its token is for";
                AuthorizationError::Options(text.to_owned())
            })?;
        let live = self.inner.ready().await?;
        if let Some(live) = &live {
            headers.insert(AUTHORIZATION, live.header.clone());
            if let Some(prover) = &live.prover {
                let proof = prover.proof(method.as_str(), &address, Some(live.token.reveal()))?;
                headers.insert(DPOP, proof);
            }
        }
        self.address = Some(address);
        self.used = live;
        Ok(())
    }

    /// Looks at the status and the headers of an answer. For 401, and 403 for lack of scopes, gets a token
    /// with which the request may succeed.
    ///
    /// # Errors
    ///
    /// [`AuthorizationError`], the reason why there is none.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn judge(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<Verdict, AuthorizationError> {
        let prover = self.used.as_ref().and_then(|live| live.prover.as_ref());
        if let (Some(prover), Some(address)) = (prover, &self.address) {
            prover.note(address, headers);
        }
        if status != StatusCode::UNAUTHORIZED && status != StatusCode::FORBIDDEN {
            return Ok(Verdict::Deliver);
        }
        let challenge = Challenge::of(headers);
        let serial = self.used.as_ref().map(|it| it.serial);
        let error = challenge.as_ref().and_then(|it| it.error.as_deref());
        let wanted = match (status, challenge.clone()) {
            (StatusCode::FORBIDDEN, Some(challenge)) if error == Some("insufficient_scope") => {
                let Some(scope) = challenge.scope.clone().filter(|_| self.used.is_some()) else {
                    return Ok(Verdict::Deliver);
                };
                let requested = self.used.as_ref().map(|it| it.requested.as_slice());
                let mut more = requested.unwrap_or_default().to_vec();
                let before = more.len();
                add_scopes(&mut more, scope.split_ascii_whitespace());
                let changed = self.inner.serial() != serial;
                if (more.len() == before && !changed) || MAX_STEP_UPS <= self.step_ups {
                    return Err(AuthorizationError::Scope(crate::error::said(&scope)));
                }
                self.step_ups += 1;
                Wanted::Instead {
                    serial,
                    challenge,
                    may_refresh: false,
                    more,
                }
            }
            (StatusCode::FORBIDDEN, Some(_)) if self.used.is_some() => return Ok(Verdict::Deliver),
            (StatusCode::FORBIDDEN, None) => return Ok(Verdict::Deliver),
            (_, challenge) => {
                let challenge = challenge.unwrap_or_default();
                if prover.is_some() && challenge.wants_nonce() && self.nonces < MAX_NONCES {
                    self.nonces += 1;
                    return self.repeat(&challenge);
                }
                if self.granted && self.inner.serial() == serial {
                    return Err(rejected(&challenge));
                }
                Wanted::Instead {
                    serial,
                    challenge,
                    may_refresh: !self.renewed,
                    more: Vec::new(),
                }
            }
        };
        match self.inner.obtain(wanted).await? {
            Some(Obtained::Renewed) => self.renewed = true,
            Some(Obtained::Granted) => self.granted = true,
            None => {}
        }
        self.repeat(&challenge.unwrap_or_default())
    }

    fn repeat(&mut self, challenge: &Challenge) -> Result<Verdict, AuthorizationError> {
        self.repeats += 1;
        match self.repeats <= MAX_REPEATS {
            true => Ok(Verdict::Repeat),
            false => Err(rejected(challenge)),
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("server", &self.inner.key)
            .field("repeats", &self.repeats)
            .finish_non_exhaustive()
    }
}

fn rejected(challenge: &Challenge) -> AuthorizationError {
    let said = challenge
        .error_description
        .as_ref()
        .or(challenge.error.as_ref());
    let said = said.map_or_else(
        || "it does not say why".to_owned(),
        |it| crate::error::said(it),
    );
    AuthorizationError::Rejected(said)
}

impl Inner {
    fn known(&self) -> Option<Option<Arc<Live>>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The serial of the token, if there is one that has not ended.
    fn serial(&self) -> Option<u64> {
        let live = self.known().flatten();
        live.filter(|it| now() < it.ends_at).map(|it| it.serial)
    }

    /// The token to use, or none if there is none without a challenge.
    async fn ready(self: &Arc<Self>) -> Result<Option<Arc<Live>>, AuthorizationError> {
        if let Some(known) = self.known()
            && usable(known.as_deref())
        {
            return Ok(known);
        }
        self.obtain(Wanted::Ready).await?;
        Ok(self.known().flatten().filter(|live| now() < live.ends_at))
    }

    /// Gets what is wanted in a task of its own. `None` if somebody else has got it meanwhile.
    async fn obtain(
        self: &Arc<Self>,
        wanted: Wanted,
    ) -> Result<Option<Obtained>, AuthorizationError> {
        let inner = Arc::clone(self);
        let before = self.asked.load(Ordering::Acquire);
        let task = tokio::spawn(async move {
            let mut state = inner.state.lock().await;
            let has_it = match &wanted {
                Wanted::Ready => inner.known().is_some_and(|known| usable(known.as_deref())),
                Wanted::Instead { serial, .. } => inner.serial() != *serial,
            };
            if has_it {
                return Ok(None);
            }
            // Those who have waited for an attempt that failed do not each make another.
            if let Some(failed) = &state.failed
                && inner.asked.load(Ordering::Acquire) != before
            {
                return Err(failed.clone());
            }
            let obtained = match wanted {
                Wanted::Ready => inner.prepare(&mut state).await,
                Wanted::Instead {
                    challenge,
                    may_refresh,
                    more,
                    ..
                } => {
                    let obtained = inner.replace(&mut state, &challenge, may_refresh, more);
                    obtained.await.map(Some)
                }
            };
            state.failed = obtained.as_ref().err().cloned();
            inner.asked.fetch_add(1, Ordering::AcqRel);
            obtained
        });
        match task.await {
            Ok(obtained) => obtained,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => Err(AuthorizationError::Login(
                    "the program is ending".to_owned(),
                )),
            },
        }
    }

    async fn stored(&self) -> Result<Vec<Credentials>, AuthorizationError> {
        let stored = self.options.store.load(&self.key).await;
        stored.map_err(|error| store_error(&*error))
    }

    /// Reads the store, and renews a token that ends.
    async fn prepare(&self, state: &mut State) -> Result<Option<Obtained>, AuthorizationError> {
        // Another process may have done it already.
        let mut stored = self.stored().await?;
        if let Some(at) = stored.iter().position(|it| it.tokens.is_some()) {
            stored.swap(0, at);
        }
        let wanted_issuer = self.options.client.issuer.as_ref();
        let stored = stored
            .into_iter()
            .find(|it| match (&state.credentials, wanted_issuer) {
                (Some(credentials), _) => it.issuer == credentials.issuer,
                (None, issuer) => issuer.is_none_or(|issuer| *issuer == it.issuer),
            });
        if let Some(stored) = stored
            && state
                .credentials
                .as_ref()
                .is_none_or(|mine| is_newer(&stored, mine))
        {
            self.adopt(state, stored);
        }
        self.publish(state);
        if self.known().is_some_and(|known| usable(known.as_deref())) {
            return Ok(None);
        }
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            return Ok(None);
        }
        let renewed = match self.renew(state).await {
            Ok(Some(obtained)) => return Ok(Some(obtained)),
            Ok(None) => self.grant_again(state).await,
            Err(error) => Err(error),
        };
        match renewed {
            Err(error) if error.is_temporary() => {
                let live = self.known().flatten();
                if live.is_none_or(|live| live.ends_at <= now()) {
                    return Err(error);
                }
                tracing::warn!(%error, server = self.key, "the token cannot be renewed yet");
                state.not_before = Some(Instant::now() + RETRY);
                self.publish(state);
                Ok(None)
            }
            renewed => renewed,
        }
    }

    /// A new token from a grant that needs nobody and ended.
    async fn grant_again(&self, state: &mut State) -> Result<Option<Obtained>, AuthorizationError> {
        let has_ended = state
            .credentials
            .as_ref()
            .is_some_and(|it| it.tokens.is_some());
        if matches!(self.options.grant, Grant::Login(_) | Grant::Stored) || !has_ended {
            return Ok(None);
        }
        let challenge = Challenge::default();
        let obtained = self.replace(state, &challenge, false, Vec::new());
        obtained.await.map(Some)
    }

    fn adopt(&self, state: &mut State, credentials: Credentials) {
        let kept = credentials
            .tokens
            .as_ref()
            .and_then(|it| it.dpop_key.as_ref());
        let same = |prover: &Arc<Prover>| Some(&prover.to_keep()) == kept;
        if !state.prover.as_ref().is_some_and(same)
            && let Some(prover) = kept.and_then(Prover::from_kept)
        {
            state.prover = Some(Arc::new(prover));
        }
        state.serial += 1;
        state.credentials = Some(credentials);
    }

    /// Makes what is in `state` what requests use.
    fn publish(&self, state: &mut State) {
        let tokens = state.credentials.as_ref().and_then(|it| it.tokens.as_ref());
        let live = tokens.and_then(|tokens| {
            let is_bound = tokens.dpop_key.is_some();
            let prover = state.prover.clone().filter(|_| is_bound);
            if is_bound && prover.is_none() {
                return None;
            }
            let scheme = if is_bound { "DPoP" } else { "Bearer" };
            let header = format!("{scheme} {}", tokens.access_token.reveal());
            let mut header = HeaderValue::try_from(header).ok()?;
            header.set_sensitive(true);
            let lasts = tokens.expires_in.unwrap_or(u64::MAX);
            let margin = MARGIN_SECONDS.min(lasts / 5);
            let ends_at = tokens.issued_at.saturating_add(lasts);
            let waits = state.not_before.filter(|at| Instant::now() < *at);
            let renew_at = ends_at.saturating_sub(margin);
            let is_personal = matches!(self.options.grant, Grant::Login(_) | Grant::Stored);
            Some(Arc::new(Live {
                serial: state.serial,
                header,
                renew_at: match waits {
                    Some(_) => (now() + RETRY.as_secs()).min(ends_at),
                    None => renew_at,
                },
                ends_at,
                renewable: tokens.refresh_token.is_some() || !is_personal,
                requested: tokens.requested.clone(),
                prover,
                token: tokens.access_token.clone(),
            }))
        });
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    async fn save(&self, state: &mut State) -> Result<(), AuthorizationError> {
        if let Some(credentials) = &mut state.credentials {
            credentials.saved_at = now();
            let saved = self.options.store.save(credentials).await;
            saved.map_err(|error| store_error(&*error))?;
        }
        Ok(())
    }

    /// Uses the refresh token. `None` if there is none, or it is not taken any more.
    async fn renew(&self, state: &mut State) -> Result<Option<Obtained>, AuthorizationError> {
        let Some(credentials) = &state.credentials else {
            return Ok(None);
        };
        let parts = (credentials.tokens.as_ref(), &credentials.token_endpoint);
        let (Some(tokens), Some(endpoint)) = parts else {
            return Ok(None);
        };
        let Some(refresh) = tokens.refresh_token.clone() else {
            return Ok(None);
        };
        let (requested, resource) = (tokens.requested.clone(), credentials.resource.clone());
        let Some(client) = self.client_of(credentials, tokens) else {
            return Ok(None);
        };
        let endpoint = self
            .web
            .check(endpoint, "the authorization server's metadata")?;
        let mut fields = vec![
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.reveal()),
        ];
        fields.extend(resource.as_deref().map(|it| ("resource", it)));
        let prover = state.prover.clone().filter(|_| tokens.dpop_key.is_some());
        let issuer = credentials.issuer.clone();
        let asked = token::ask(
            &self.web,
            &endpoint,
            &issuer,
            &client,
            &fields,
            prover.as_deref(),
        );
        match asked.await {
            Ok(mut given) => {
                given.refresh_token.get_or_insert(refresh);
                self.keep(state, given, &client, requested, prover.as_ref())
                    .await?;
                Ok(Some(Obtained::Renewed))
            }
            Err(error) if error.is_temporary() => Err(error),
            Err(error) => {
                // Of two processes with one refresh token only the first can use it.
                let stored = self.stored().await?;
                let stored = stored.into_iter().find(|it| it.issuer == issuer);
                let mine = state.credentials.as_ref();
                if let (Some(stored), Some(mine)) = (stored, mine)
                    && stored.tokens.is_some()
                    && is_newer(&stored, mine)
                {
                    self.adopt(state, stored);
                    self.publish(state);
                    return Ok(Some(Obtained::Renewed));
                }
                tracing::info!(%error, server = self.key, "the refresh token is not taken any more");
                if let Some(credentials) = &mut state.credentials {
                    // The access token lasts until it ends, and its scopes are asked for again.
                    if let Some(tokens) = &mut credentials.tokens {
                        tokens.refresh_token = None;
                    }
                    if error.is_code("invalid_client") {
                        credentials.registration = None;
                    }
                }
                self.save(state).await?;
                self.publish(state);
                Ok(None)
            }
        }
    }

    /// The client that `tokens` belong to, if it is still the configured one.
    fn client_of(&self, credentials: &Credentials, tokens: &Tokens) -> Option<ClientAt> {
        let configured = &self.options.client;
        let registration = credentials.registration.as_ref();
        let registration = registration.filter(|it| it.client_id == tokens.client_id);
        let is_configured = [&configured.id, &configured.metadata_url]
            .into_iter()
            .any(|it| it.as_ref() == Some(&tokens.client_id));
        if registration.is_none() && !is_configured {
            return None;
        }
        let secret = match registration {
            Some(registration) => registration.client_secret.as_ref(),
            None => configured.secret.as_ref(),
        };
        let method = credentials.auth_method.as_deref().unwrap_or("none");
        Some(ClientAt {
            id: tokens.client_id.clone(),
            proof: ClientProof::named(method, secret, configured.key.as_ref())?,
        })
    }

    /// Keeps what a token endpoint gave.
    async fn keep(
        &self,
        state: &mut State,
        given: Given,
        client: &ClientAt,
        requested: Vec<String>,
        prover: Option<&Arc<Prover>>,
    ) -> Result<(), AuthorizationError> {
        let Some(credentials) = &mut state.credentials else {
            return Ok(());
        };
        let unusable = |why: &str| AuthorizationError::Token {
            address: credentials.token_endpoint.clone().unwrap_or_default(),
            code: String::new(),
            why: why.to_owned(),
        };
        let is_bound = match given.token_type.to_ascii_lowercase().as_str() {
            "bearer" | "" if prover.is_some() => {
                return Err(unusable(
                    "the token is not bound to the client's key (DPoP)",
                ));
            }
            "bearer" | "" => false,
            "dpop" if prover.is_some() => true,
            _ => return Err(unusable("the token is of a type that is not known here")),
        };
        credentials.auth_method = Some(client.proof.name().to_owned());
        credentials.tokens = Some(Tokens {
            expires_in: given.expires_in(),
            access_token: given.access_token,
            refresh_token: given.refresh_token,
            issued_at: now(),
            requested,
            client_id: client.id.clone(),
            dpop_key: prover.filter(|_| is_bound).map(|it| it.to_keep()),
        });
        state.prover = prover.cloned();
        state.not_before = None;
        state.serial += 1;
        self.publish(state);
        self.save(state).await
    }

    /// Finds the authorization server anew, and gets a token of it.
    async fn replace(
        &self,
        state: &mut State,
        challenge: &Challenge,
        may_refresh: bool,
        more: Vec<String>,
    ) -> Result<Obtained, AuthorizationError> {
        if !self.server.is_private_on_the_way() && !self.options.plain_http {
            return Err(AuthorizationError::Address {
                address: self.key.clone(),
                named_by: "the user",
                why: "it is not https, so that a token would be sent in the clear",
            });
        }
        let stored = self.stored().await?;
        let named = challenge.resource_metadata.as_deref();
        let resource = discovery::resource(&self.web, &self.server, named).await?;
        let (resource, server) = match resource {
            Some(resource) => {
                let issuer = self.choose_issuer(&resource, state, &stored)?;
                let server = discovery::authorization_server(&self.web, &issuer).await?;
                (resource, server)
            }
            None => {
                let server = discovery::old_authorization_server(&self.web, &self.server).await?;
                let resource = Resource {
                    resource: self.key.clone(),
                    issuers: vec![server.issuer.clone()],
                    ..Resource::default()
                };
                self.choose_issuer(&resource, state, &stored)?;
                (resource, server)
            }
        };
        let here = stored.into_iter().find(|it| it.issuer == server.issuer);
        let of_here = |it: &&Credentials| it.issuer == server.issuer;
        let mine = state.credentials.as_ref().filter(of_here);
        match (mine, here) {
            // Another process has got another token meanwhile, which the server has not refused yet.
            (mine, Some(here))
                if may_refresh
                    && here.tokens.is_some()
                    && mine.is_none_or(|mine| is_newer(&here, mine)) =>
            {
                self.adopt(state, here);
                self.publish(state);
                if self.known().is_some_and(|known| usable(known.as_deref())) {
                    return Ok(Obtained::Renewed);
                }
            }
            (Some(_), _) => {}
            (None, Some(here)) => self.adopt(state, here),
            (None, None) => self.adopt(
                state,
                Credentials {
                    server: self.key.clone(),
                    issuer: server.issuer.clone(),
                    ..Credentials::default()
                },
            ),
        }
        if let Some(credentials) = &mut state.credentials {
            credentials
                .token_endpoint
                .clone_from(&server.token_endpoint);
            credentials.resource = Some(resource.resource.clone());
        }
        if may_refresh && let Some(obtained) = self.renew(state).await? {
            return Ok(obtained);
        }
        let scopes = self.scopes(state, challenge, &resource, &server, more);
        let tokens = state.credentials.as_ref().and_then(|it| it.tokens.as_ref());
        // Tokens that were bound once stay so, whatever a challenge leaves out.
        let is_bound = tokens.is_some_and(|it| it.dpop_key.is_some());
        let wants_dpop = challenge.dpop || resource.wants_dpop || is_bound;
        let prover = match self.options.dpop {
            Dpop::Always => true,
            Dpop::Asked => wants_dpop,
            Dpop::Never if wants_dpop => {
                return Err(AuthorizationError::Options(
                    "the server wants DPoP, which is switched off".to_owned(),
                ));
            }
            Dpop::Never => false,
        };
        let prover = match (prover, &state.prover) {
            (false, _) => None,
            (true, _)
                if server.dpop_signing_alg_values_supported.is_some() && !server.has_dpop() =>
            {
                return Err(AuthorizationError::Unsupported {
                    issuer: server.issuer,
                    lacks: "takes no proofs (DPoP) signed with ES256",
                });
            }
            (true, Some(prover)) => Some(Arc::clone(prover)),
            (true, None) => Some(Arc::new(Prover::generate()?)),
        };
        self.grant(state, &resource, &server, scopes, prover)
            .await?;
        Ok(Obtained::Granted)
    }

    /// The issuer among those that the server names.
    fn choose_issuer(
        &self,
        resource: &Resource,
        state: &State,
        stored: &[Credentials],
    ) -> Result<String, AuthorizationError> {
        let client = &self.options.client;
        let offered = |issuer: &&str| resource.issuers.iter().any(|it| it == issuer);
        let current = state.credentials.as_ref().map(|it| it.issuer.as_str());
        let mut known = current
            .into_iter()
            .chain(stored.iter().map(|it| it.issuer.as_str()));
        // Credentials that were given go to one authorization server: the configured, or the first.
        let has_given = client.id.is_some() || matches!(self.options.grant, Grant::Workload(_));
        let expected = match &client.issuer {
            Some(issuer) => Some(issuer.as_str()),
            None if has_given => current.or_else(|| known.next()),
            None => None,
        };
        if let Some(expected) = expected {
            if offered(&expected) {
                return Ok(expected.to_owned());
            }
            let named = resource.issuers.iter().take(4);
            let named: Vec<_> = named
                .map(|it| format!("`{}`", crate::error::said(it)))
                .collect();
            return Err(AuthorizationError::OtherIssuer {
                offered: named.join(", "),
                expected: expected.to_owned(),
            });
        }
        let known = known.find(offered).map(str::to_owned);
        Ok(known.unwrap_or_else(|| resource.issuers[0].clone()))
    }

    /// Scopes of the challenge, or those of the options, or those of the server's metadata; and what was
    /// asked for before, so that nothing is lost.
    fn scopes(
        &self,
        state: &State,
        challenge: &Challenge,
        resource: &Resource,
        server: &AuthorizationServer,
        more: Vec<String>,
    ) -> Vec<String> {
        let tokens = state.credentials.as_ref().and_then(|it| it.tokens.as_ref());
        let mut scopes: Vec<String> = Vec::new();
        add_scopes(&mut scopes, more.iter().map(String::as_str));
        if scopes.is_empty() {
            let before = tokens.map(|it| it.requested.as_slice()).unwrap_or_default();
            add_scopes(&mut scopes, before.iter().map(String::as_str));
        }
        // A server that never listed it cannot be asked for it: another one may have.
        scopes.retain(|it| it != OFFLINE_ACCESS);
        add_scopes(&mut scopes, self.options.scopes.iter().map(String::as_str));
        match &challenge.scope {
            Some(scope) => add_scopes(&mut scopes, scope.split_ascii_whitespace()),
            None if scopes.is_empty() => {
                add_scopes(&mut scopes, resource.scopes.iter().map(String::as_str));
            }
            None => {}
        }
        let is_login = matches!(self.options.grant, Grant::Login(_));
        // Alone it would be asked for instead of what the server grants by default.
        if is_login
            && !scopes.is_empty()
            && server.supports_scope(OFFLINE_ACCESS)
            && server.may_refresh()
        {
            add_scopes(&mut scopes, [OFFLINE_ACCESS]);
        }
        scopes
    }

    async fn grant(
        &self,
        state: &mut State,
        resource: &Resource,
        server: &AuthorizationServer,
        scopes: Vec<String>,
        prover: Option<Arc<Prover>>,
    ) -> Result<(), AuthorizationError> {
        let named_by = "the authorization server's metadata";
        let endpoint = server
            .token_endpoint
            .as_deref()
            .ok_or_else(|| lacks(server, "names no token endpoint"))?;
        let endpoint = self.web.check(endpoint, named_by)?;
        let options = &self.options;
        let scope = scopes.join(" ");
        let (client, fields) = match &options.grant {
            Grant::Stored => return Err(AuthorizationError::LoginNeeded(self.key.clone())),
            Grant::Login(login) => {
                let (client, fields) = self
                    .sign_in(state, login, resource, server, &scopes)
                    .await?;
                (client, fields)
            }
            Grant::ClientCredentials => {
                let client = self.configured(server)?;
                (
                    client,
                    vec![("grant_type", "client_credentials".to_owned())],
                )
            }
            Grant::Enterprise(provider) => {
                let client = self.configured(server)?;
                let granted = self.exchange(provider, resource, server, &scope).await?;
                let grant = ("grant_type", token::JWT_BEARER.to_owned());
                (client, vec![grant, ("assertion", granted)])
            }
            Grant::Workload(assertion) => {
                let client = match &options.client.id {
                    Some(_) => self.configured(server)?,
                    None => ClientAt {
                        id: String::new(),
                        proof: ClientProof::None,
                    },
                };
                let assertion = assertion.get(&server.issuer).await;
                let assertion = assertion.map_err(AuthorizationError::Assertion)?;
                let grant = ("grant_type", token::JWT_BEARER.to_owned());
                (
                    client,
                    vec![grant, ("assertion", assertion.reveal().to_owned())],
                )
            }
        };
        let mut fields = fields;
        fields.push(("resource", resource.resource.clone()));
        // The code has its scopes already.
        if !scope.is_empty() && !matches!(options.grant, Grant::Login(_)) {
            fields.push(("scope", scope));
        }
        let fields: Vec<_> = fields
            .iter()
            .map(|(name, value)| (*name, value.as_str()))
            .collect();
        let prover_of = prover.as_deref();
        let asked = token::ask(
            &self.web,
            &endpoint,
            &server.issuer,
            &client,
            &fields,
            prover_of,
        )
        .await;
        if let Err(error) = &asked
            && error.is_code("invalid_client")
            && let Some(credentials) = &mut state.credentials
        {
            credentials.registration = None;
        }
        self.keep(state, asked?, &client, scopes, prover.as_ref())
            .await
    }

    /// The client of the options.
    fn configured(&self, server: &AuthorizationServer) -> Result<ClientAt, AuthorizationError> {
        let client = &self.options.client;
        let id = client.id.clone().unwrap_or_default();
        let proof = ClientProof::choose(server, client.secret.as_ref(), client.key.as_ref(), None)?;
        Ok(ClientAt { id, proof })
    }

    /// The company's assertion for its user (RFC 8693).
    async fn exchange(
        &self,
        provider: &IdentityProvider,
        resource: &Resource,
        server: &AuthorizationServer,
        scope: &str,
    ) -> Result<String, AuthorizationError> {
        let endpoint = self.web.check(&provider.token_endpoint, "the user")?;
        let id_token = provider.id_token.get(&provider.client_id).await;
        let id_token = id_token.map_err(AuthorizationError::Assertion)?;
        let client = ClientAt {
            id: provider.client_id.clone(),
            proof: match &provider.client_secret {
                Some(secret) => ClientProof::Basic(secret.clone()),
                None => ClientProof::None,
            },
        };
        let mut fields = vec![
            ("grant_type", token::TOKEN_EXCHANGE),
            ("requested_token_type", token::ID_JAG),
            ("subject_token", id_token.reveal()),
            ("subject_token_type", token::ID_TOKEN),
            ("audience", &server.issuer),
            ("resource", &resource.resource),
        ];
        if !scope.is_empty() {
            fields.push(("scope", scope));
        }
        let asked = token::ask(
            &self.web,
            &endpoint,
            &provider.token_endpoint,
            &client,
            &fields,
            None,
        );
        let given = asked.await?;
        if given.issued_token_type.as_deref() != Some(token::ID_JAG) {
            return Err(AuthorizationError::Token {
                address: endpoint.without_query(),
                code: String::new(),
                why: "what the identity provider gives is no assertion for another server (ID-JAG)"
                    .to_owned(),
            });
        }
        Ok(given.access_token.reveal().to_owned())
    }

    /// Has a person sign in. Gives the client and what is sent for the code.
    async fn sign_in(
        &self,
        state: &mut State,
        login: &Login,
        resource: &Resource,
        server: &AuthorizationServer,
        scopes: &[String],
    ) -> Result<(ClientAt, Vec<(&'static str, String)>), AuthorizationError> {
        let failed = |why: String| AuthorizationError::Login(why);
        let endpoint = server.authorization_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| lacks(server, "names no authorization endpoint"))?;
        let endpoint = self
            .web
            .check(endpoint, "the authorization server's metadata")?;
        if !server.has_pkce() {
            return Err(AuthorizationError::NoPkce(server.issuer.clone()));
        }
        let registration = state
            .credentials
            .as_ref()
            .and_then(|it| it.registration.clone());
        let registered_port = registration
            .as_ref()
            .and_then(|it| Address::parse(&it.redirect_uri)?.port());
        let callback = match (login.port, registered_port) {
            (Some(port), _) => Callback::bind(Some(port)).await,
            (None, Some(port)) => match Callback::bind(Some(port)).await {
                Ok(callback) => Ok(callback),
                Err(_) => Callback::bind(None).await,
            },
            (None, None) => Callback::bind(None).await,
        };
        let callback = callback.map_err(|error| {
            let port = login
                .port
                .map_or_else(|| "a free port".to_owned(), |it| format!("port {it}"));
            failed(format!(
                "{port} of 127.0.0.1 cannot be listened on: {error}"
            ))
        })?;
        let redirect_uri = callback.redirect_uri.clone();
        let client = self.client(state, server, &redirect_uri, scopes).await?;
        let random = || key::random::<32>().ok_or(AuthorizationError::Cryptography);
        let (verifier, sent) = (random()?, random()?);
        let (scope, challenge) = (scopes.join(" "), key::sha256(&verifier));
        let mut query = vec![
            ("response_type", "code"),
            ("client_id", &client.id),
            ("redirect_uri", &redirect_uri),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
            ("state", &sent),
            ("resource", &resource.resource),
        ];
        if !scope.is_empty() {
            query.push(("scope", &scope));
        }
        // OpenID Connect, section 11: offline access is for those who have been asked.
        if scopes.iter().any(|it| it == OFFLINE_ACCESS) {
            query.push(("prompt", "consent"));
        }
        let separator = if endpoint.has_query() { '&' } else { '?' };
        let url = format!("{endpoint}{separator}{}", form(query));
        let answer = callback
            .answer(&*login.browser, &url, &sent, login.timeout)
            .await?;
        // RFC 9207: an answer of another issuer says nothing, not even that there is an error.
        let must_say = server.authorization_response_iss_parameter_supported == Some(true);
        match &answer.iss {
            Some(iss) if *iss != server.issuer => {
                let (iss, issuer) = (crate::error::said(iss), &server.issuer);
                return Err(failed(format!(
                    "the answer is from `{iss}` and not from `{issuer}`"
                )));
            }
            None if must_say => {
                return Err(failed(
                    "the answer does not say which server it is from".to_owned(),
                ));
            }
            _ => {}
        }
        if let Some(error) = &answer.error {
            let description = answer.error_description.as_deref();
            return Err(failed(token::explain(
                error,
                description,
                &[&sent, &verifier],
            )));
        }
        let code = answer.code.filter(|it| !it.is_empty());
        let code = code.ok_or_else(|| failed("the answer has no code".to_owned()))?;
        let fields = vec![
            ("grant_type", "authorization_code".to_owned()),
            ("code", code),
            ("redirect_uri", redirect_uri),
            ("code_verifier", verifier),
        ];
        Ok((client, fields))
    }

    /// The client for a sign-in: the configured one, its metadata document, or one that is registered.
    async fn client(
        &self,
        state: &mut State,
        server: &AuthorizationServer,
        redirect_uri: &str,
        scopes: &[String],
    ) -> Result<ClientAt, AuthorizationError> {
        let configured = &self.options.client;
        if configured.id.is_some() {
            return self.configured(server);
        }
        let takes_documents = server.client_id_metadata_document_supported == Some(true);
        if let Some(url) = configured.metadata_url.as_ref().filter(|_| takes_documents) {
            let key = configured.key.as_ref();
            // Without a key in use the client is a public one.
            let proof = ClientProof::choose(server, None, key, None).unwrap_or(ClientProof::None);
            let id = url.clone();
            return Ok(ClientAt { id, proof });
        }
        let kept = state
            .credentials
            .as_ref()
            .and_then(|it| it.registration.clone());
        let kept = kept.filter(|it| fits(it, redirect_uri, scopes));
        let registration = match kept {
            Some(registration) => registration,
            None => {
                let endpoint = server.registration_endpoint.as_deref();
                let no_client = || AuthorizationError::NoClient(server.issuer.clone());
                let endpoint = endpoint.ok_or_else(no_client)?;
                let endpoint = self
                    .web
                    .check(endpoint, "the authorization server's metadata")?;
                let name = &configured.name;
                register(&self.web, server, &endpoint, name, redirect_uri, scopes).await?
            }
        };
        let secret = registration.client_secret.as_ref();
        let method = registration.auth_method.as_deref();
        let proof = ClientProof::choose(server, secret, None, method)?;
        let id = registration.client_id.clone();
        if let Some(credentials) = &mut state.credentials
            && credentials.registration.as_ref() != Some(&registration)
        {
            credentials.registration = Some(registration);
            self.save(state).await?;
        }
        Ok(ClientAt { id, proof })
    }
}

fn lacks(server: &AuthorizationServer, lacks: &'static str) -> AuthorizationError {
    let issuer = server.issuer.clone();
    AuthorizationError::Unsupported { issuer, lacks }
}

/// Returns true if no token need be asked for: there is one that lasts, or there is none to be renewed.
fn usable(live: Option<&Live>) -> bool {
    live.is_none_or(|live| now() < live.renew_at || (!live.renewable && now() < live.ends_at))
}

/// Returns true if a registration is good for this sign-in.
fn fits(registration: &Registration, redirect_uri: &str, scopes: &[String]) -> bool {
    let is_alive = registration.secret_expires_at.is_none_or(|at| now() < at);
    let has = |scope: &String| registration.scope.split(' ').any(|it| it == scope);
    let may_ask = registration.scope.is_empty() || scopes.iter().all(has);
    is_alive && may_ask && registration.redirect_uri == redirect_uri
}

/// Returns true if `stored` has another token than `mine` and was kept later.
fn is_newer(stored: &Credentials, mine: &Credentials) -> bool {
    let token = |it: &Credentials| it.tokens.as_ref().map(|it| it.access_token.clone());
    mine.saved_at <= stored.saved_at && token(mine) != token(stored)
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
