//! The token in use: kept, read from the store, and renewed.

use super::{Inner, Live, Obtained, State, Wanted, store_error};
use crate::{
    AuthorizationError, Challenge, Credentials, Grant, Held, Tokens,
    clock::now,
    dpop::Prover,
    token::{self, ClientAt, ClientProof, Given},
};
use http::HeaderValue;
use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};
use tokio::time::Instant;

/// A token is renewed so many seconds before it ends, or a fifth of its life if that is less.
const MARGIN_SECONDS: u64 = 60;
/// After a renewal that failed for the moment, the token is used for so long before the next try.
const RETRY: Duration = Duration::from_secs(10);
/// The same after one that fails until somebody sets something right.
const LASTING_RETRY: Duration = Duration::from_secs(60);

impl Inner {
    pub(super) fn known(&self) -> Option<Option<Arc<Live>>> {
        self.live
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The serial of the token, if there is one that has not ended.
    pub(super) fn serial(&self) -> Option<u64> {
        let live = self.known().flatten();
        live.filter(|it| now() < it.ends_at).map(|it| it.serial)
    }

    /// The token to use, or none if there is none without a challenge.
    pub(super) async fn ready(self: &Arc<Self>) -> Result<Option<Arc<Live>>, AuthorizationError> {
        if let Some(known) = self.known()
            && usable(known.as_deref())
        {
            return Ok(known);
        }
        self.obtain(Wanted::Ready).await?;
        Ok(self.known().flatten().filter(|live| now() < live.ends_at))
    }

    /// Gets what is wanted in a task of its own. `None` if somebody else has got it meanwhile.
    pub(super) async fn obtain(
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
                Wanted::Younger { .. } => false,
            };
            if has_it {
                return Ok(None);
            }
            // Those who have waited for an attempt that failed do not each make another.
            if let Some((failed, _)) = &state.failed
                && inner.asked.load(Ordering::Acquire) != before
            {
                return Err(failed.clone());
            }
            if let Some(rests) = inner.resting(&state) {
                return Err(rests);
            }
            let obtained = match wanted {
                Wanted::Ready => inner.prepare(&mut state).await,
                Wanted::Younger { than } => inner.keep_young(&mut state, than).await,
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
            let failed = obtained.as_ref().err().cloned();
            state.failed = failed.map(|error| (error, Instant::now()));
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

    /// The error of an authorization server that is out of order and has said when it wants to be asked again, until then.
    /// A person who signs in does not wait for that.
    fn resting(&self, state: &State) -> Option<AuthorizationError> {
        let (failed, at) = state.failed.as_ref()?;
        let rest = failed.retry_after()?.checked_sub(at.elapsed())?;
        let is_asked_by_person = matches!(self.options.grant, Grant::Login(_));
        (!is_asked_by_person && !rest.is_zero()).then(|| failed.clone().after(rest))
    }

    /// True if a person has given the grant, so that the store may have it and lose it.
    fn is_personal(&self) -> bool {
        matches!(self.options.grant, Grant::Login(_) | Grant::Stored)
    }

    pub(super) async fn stored(&self) -> Result<Vec<Credentials>, AuthorizationError> {
        let stored = self.options.store.load(&self.key).await;
        stored.map_err(|error| store_error(&*error))
    }

    /// Keeps all others who share the store from renewing.
    pub(super) async fn hold(&self) -> Result<Held, AuthorizationError> {
        let held = self.options.store.hold(&self.key).await;
        held.map_err(|error| AuthorizationError::Held(crate::error::with_causes(&*error)))
    }

    /// Credentials that the store has for `issuer`.
    async fn stored_of(&self, issuer: &str) -> Result<Option<Credentials>, AuthorizationError> {
        let stored = self.stored().await?;
        Ok(stored.into_iter().find(|it| it.issuer == issuer))
    }

    /// Forgets a person's tokens that another process has removed from the store: they would come back with the next
    /// renewal.
    pub(super) fn heed(&self, state: &mut State, stored: &[Credentials]) {
        let is_gone = |mine: &Credentials| {
            // A registration may be left of it.
            let has_login = |it: &Credentials| it.issuer == mine.issuer && it.tokens.is_some();
            mine.tokens.is_some() && !stored.iter().any(has_login)
        };
        if self.is_personal() && state.credentials.as_ref().is_some_and(is_gone) {
            state.credentials = None;
            self.publish(state);
        }
    }

    /// Takes over what another process has got meanwhile.
    async fn take_stored(&self, state: &mut State) -> Result<(), AuthorizationError> {
        let mut stored = self.stored().await?;
        self.heed(state, &stored);
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
        Ok(())
    }

    /// Renews what has a refresh token and was got longer ago than `age`.
    async fn keep_young(
        &self,
        state: &mut State,
        age: Duration,
    ) -> Result<Option<Obtained>, AuthorizationError> {
        self.take_stored(state).await?;
        let tokens = state.credentials.as_ref().and_then(|it| it.tokens.as_ref());
        let is_due = tokens.is_some_and(|it| it.issued_at.saturating_add(age.as_secs()) <= now());
        match is_due {
            true => self.renew(state).await,
            false => Ok(None),
        }
    }

    /// Reads the store, and renews a token that ends.
    pub(super) async fn prepare(
        &self,
        state: &mut State,
    ) -> Result<Option<Obtained>, AuthorizationError> {
        // Another process may have done it already: then there is nothing to wait for.
        self.take_stored(state).await?;
        if self.known().is_some_and(|known| usable(known.as_deref())) {
            return Ok(None);
        }
        let lasts = |live: Arc<Live>| now() < live.ends_at;
        if state.not_before.is_some_and(|at| Instant::now() < at)
            && self.known().flatten().is_some_and(lasts)
        {
            return Ok(None);
        }
        let renewed = match self.renew(state).await {
            Ok(Some(obtained)) => return Ok(Some(obtained)),
            Ok(None) => self.grant_again(state).await,
            Err(error) => Err(error),
        };
        match renewed {
            Err(error) => {
                if !self.known().flatten().is_some_and(lasts) {
                    return Err(error);
                }
                tracing::warn!(%error, server = self.key, "the token cannot be renewed yet");
                let least = match error.is_temporary() {
                    true => RETRY,
                    false => LASTING_RETRY,
                };
                let rest = error.retry_after().unwrap_or_default().max(least);
                state.not_before = Some(Instant::now() + rest);
                self.publish(state);
                Ok(None)
            }
            renewed => renewed,
        }
    }

    /// A new token from a grant that needs nobody and ended.
    pub(super) async fn grant_again(
        &self,
        state: &mut State,
    ) -> Result<Option<Obtained>, AuthorizationError> {
        let has_ended = state
            .credentials
            .as_ref()
            .is_some_and(|it| it.tokens.is_some());
        if self.is_personal() || !has_ended {
            return Ok(None);
        }
        let challenge = Challenge::default();
        let obtained = self.replace(state, &challenge, false, Vec::new());
        obtained.await.map(Some)
    }

    pub(super) fn adopt(&self, state: &mut State, credentials: Credentials) {
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
    pub(super) fn publish(&self, state: &mut State) {
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
            let waits = state.not_before;
            let waits = waits.and_then(|at| at.checked_duration_since(Instant::now()));
            let renew_at = ends_at.saturating_sub(margin);
            Some(Arc::new(Live {
                serial: state.serial,
                header,
                renew_at: match waits {
                    Some(waits) => (now() + waits.as_secs()).min(ends_at),
                    None => renew_at,
                },
                ends_at,
                renewable: tokens.refresh_token.is_some() || !self.is_personal(),
                requested: tokens.requested.clone(),
                prover,
                token: tokens.access_token.clone(),
            }))
        });
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = Some(live);
    }

    pub(super) async fn save(&self, state: &mut State) -> Result<(), AuthorizationError> {
        if let Some(credentials) = &mut state.credentials {
            credentials.saved_at = now();
            let saved = self.options.store.save(credentials).await;
            saved.map_err(|error| store_error(&*error))?;
        }
        Ok(())
    }

    /// Saves a registration that was made, with the tokens that another process may have got meanwhile.
    pub(super) async fn save_registration(
        &self,
        state: &mut State,
    ) -> Result<(), AuthorizationError> {
        let _held = self.hold().await?;
        if let Some(mine) = &state.credentials
            && let Some(stored) = self.stored_of(&mine.issuer).await?
            && stored.tokens.is_some()
            && is_newer(&stored, mine)
        {
            let registration = mine.registration.clone();
            let stored = Credentials {
                registration,
                ..stored
            };
            self.adopt(state, stored);
            self.publish(state);
        }
        self.save(state).await
    }

    /// Uses the refresh token, unless another process has done so. `None` if there is none, or it is not taken any
    /// more.
    pub(super) async fn renew(
        &self,
        state: &mut State,
    ) -> Result<Option<Obtained>, AuthorizationError> {
        let refresh_of = |it: &Credentials| it.tokens.as_ref()?.refresh_token.clone();
        let Some(mine) = state.credentials.as_ref() else {
            return Ok(None);
        };
        if refresh_of(mine).is_none() {
            return Ok(None);
        }
        // From here to the saving nobody else uses the refresh token.
        let held = self.hold().await?;
        let stored = self.stored().await?;
        let has_login = |it: &Credentials| it.issuer == mine.issuer && it.tokens.is_some();
        match stored.into_iter().find(has_login) {
            Some(stored) if is_newer(&stored, mine) => {
                self.adopt(state, stored);
                self.publish(state);
                if self.known().is_some_and(|known| usable(known.as_deref())) {
                    return Ok(Some(Obtained::Renewed));
                }
            }
            Some(_) => {}
            // Another process has signed out.
            None => {
                if let (true, Some(credentials)) = (self.is_personal(), &mut state.credentials) {
                    credentials.tokens = None;
                    self.publish(state);
                    return Ok(None);
                }
            }
        }
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
                self.keep(state, given, &client, requested, prover.as_ref(), held)
                    .await?;
                Ok(Some(Obtained::Renewed))
            }
            Err(error) if error.is_temporary() => Err(error),
            Err(error) => {
                // One who does not hold the store may have been faster, such as a program of an earlier version: what
                // was not refused here is neither forgotten nor overwritten.
                let stored = self.stored_of(&issuer).await?;
                let stored = stored.filter(|it| refresh_of(it).is_some_and(|it| it != refresh));
                if let Some(stored) = stored {
                    self.adopt(state, stored);
                    self.publish(state);
                    return Ok(Some(Obtained::Renewed));
                }
                // The grant stays good: the configuration of the client, or its registration, can be set right.
                let is_of_client = ["invalid_client", "unauthorized_client"]
                    .iter()
                    .any(|code| error.is_code(code));
                if is_of_client && self.is_configured(&client.id) {
                    return Err(error);
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

    fn is_configured(&self, client_id: &str) -> bool {
        let configured = &self.options.client;
        let ids = [&configured.id, &configured.metadata_url];
        ids.into_iter().any(|it| it.as_deref() == Some(client_id))
    }

    /// The client that `tokens` belong to, if it is still the configured one.
    pub(super) fn client_of(&self, credentials: &Credentials, tokens: &Tokens) -> Option<ClientAt> {
        let configured = &self.options.client;
        let registration = credentials.registration.as_ref();
        let registration = registration.filter(|it| it.client_id == tokens.client_id);
        if registration.is_none() && !self.is_configured(&tokens.client_id) {
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

    /// Keeps what a token endpoint gave, in a store that is held.
    pub(super) async fn keep(
        &self,
        state: &mut State,
        given: Given,
        client: &ClientAt,
        requested: Vec<String>,
        prover: Option<&Arc<Prover>>,
        _held: Held,
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
            other => {
                let other = crate::error::said(other);
                return Err(unusable(&format!(
                    "the token is of the type `{other}`, which is not known here"
                )));
            }
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
        // A store may have to know a token before it is sent anywhere.
        let saved = self.save(state).await;
        self.publish(state);
        saved
    }
}

/// Returns true if no token need be asked for: there is one that lasts, or there is none to be renewed.
pub(super) fn usable(live: Option<&Live>) -> bool {
    live.is_none_or(|live| now() < live.renew_at || (!live.renewable && now() < live.ends_at))
}

/// Returns true if `stored` has another token than `mine` and was kept later.
pub(super) fn is_newer(stored: &Credentials, mine: &Credentials) -> bool {
    let token = |it: &Credentials| it.tokens.as_ref().map(|it| it.access_token.clone());
    mine.saved_at <= stored.saved_at && token(mine) != token(stored)
}
