use crate::{
    ExpectedIdToken, Identity, IssuerOptions, KeySource, Rejection,
    api_key::digest_of,
    claims,
    compact::{self, Compact, MAX_TOKEN_BYTES},
    discovery,
    fetch::{FetchKeys, with_causes},
    jwks::KeySet,
    key_state::{IssuerKeys, State},
    remembered::Remembered,
};
use serde_json::Value;
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::timeout;

/// Longest time a request waits for keys that its token needs and that are being fetched.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// Longest time a fetch of keys may take in all, whichever implementation does it.
const MAX_FETCH: Duration = Duration::from_secs(20);
/// Time for which the address of keys, as an issuer's metadata gave it, is used.
const FOUND: Duration = Duration::from_secs(60 * 60);

/// Issuers whose tokens are believed.
#[derive(Debug)]
pub struct Issuers {
    issuers: Vec<Issuer>,
    remembered: Remembered<Known>,
}

/// A token that was verified.
#[derive(Clone, Debug)]
struct Known {
    issuer: usize,
    /// Version of the keys that it was verified with.
    version: u64,
    identity: Arc<Identity>,
}

#[derive(Debug)]
struct Issuer {
    options: IssuerOptions,
    keys: IssuerKeys,
}

/// Issuers that cannot be told apart, or could not be held to anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadIssuers {
    /// Two have the same name, or the same `iss`.
    #[error("`{0}` and `{1}` are the same issuer")]
    Same(Arc<str>, Arc<str>),
    /// Both could make the same principal.
    #[error(
        "`{0}` and `{1}` could make the same principal: \
         give each a `principal_prefix`, neither the beginning of the other"
    )]
    SamePrincipals(Arc<str>, Arc<str>),
    /// An issuer without audiences: tokens for any service would be accepted.
    #[error("`{0}` has no audience")]
    NoAudience(Arc<str>),
    /// No signature would be accepted.
    #[error("`{0}` has no algorithms")]
    NoAlgorithms(Arc<str>),
}

/// State of an issuer's keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuerHealth {
    /// Name that the operator gave the issuer.
    pub name: Arc<str>,
    /// True while its tokens can be verified.
    pub ok: bool,
    /// Number of keys.
    pub keys: usize,
    /// Time of the last successful fetch.
    pub fetched: Option<SystemTime>,
    /// Reason why the last fetch failed.
    pub failure: Option<String>,
}

/// Address of an issuer's keys, as its metadata gave it.
#[derive(Debug, Default)]
struct Found {
    address: Option<(KeySource, SystemTime)>,
}

impl Found {
    /// The document with the keys, wherever they are.
    async fn document(
        &mut self,
        options: &IssuerOptions,
        fetch: &dyn FetchKeys,
        now: SystemTime,
    ) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        if options.keys != KeySource::Issuer {
            return fetch.fetch(&options.keys).await;
        }
        let is_fresh = |at: &SystemTime| now.duration_since(*at).is_ok_and(|age| age < FOUND);
        if !self.address.as_ref().is_some_and(|(_, at)| is_fresh(at)) {
            let address = discovery::keys_of(&options.issuer, fetch).await?;
            tracing::debug!(
                issuer = &*options.name,
                address,
                "the issuer says where its keys are"
            );
            self.address = Some((KeySource::Url(address), now));
        }
        match &self.address {
            Some((source, _)) => fetch.fetch(source).await,
            None => Err("the issuer does not say where its keys are".into()),
        }
    }
}

/// Result of a first look at a token.
enum Judged {
    Done(Result<Arc<Identity>, Rejection>),
    NeedsKeys(usize),
}

impl Issuers {
    /// Verifier for these issuers, whose keys are not fetched yet: see [`keep`](Self::keep).
    ///
    /// # Errors
    ///
    /// [`BadIssuers`].
    pub fn new(options: Vec<IssuerOptions>) -> Result<Self, BadIssuers> {
        for (index, one) in options.iter().enumerate() {
            if one.audiences.is_empty() && one.resource.is_none() {
                return Err(BadIssuers::NoAudience(Arc::clone(&one.name)));
            }
            if one.algorithms.is_empty() {
                return Err(BadIssuers::NoAlgorithms(Arc::clone(&one.name)));
            }
            for other in &options[..index] {
                let names = (Arc::clone(&other.name), Arc::clone(&one.name));
                if one.name == other.name || one.issuer == other.issuer {
                    return Err(BadIssuers::Same(names.0, names.1));
                }
                let (one, other) = (&one.principal_prefix, &other.principal_prefix);
                if one.starts_with(other.as_str()) || other.starts_with(one.as_str()) {
                    return Err(BadIssuers::SamePrincipals(names.0, names.1));
                }
            }
        }
        let issuer = |options| Issuer {
            options,
            keys: IssuerKeys::default(),
        };
        Ok(Self {
            issuers: options.into_iter().map(issuer).collect(),
            remembered: Remembered::default(),
        })
    }

    /// Number of issuers.
    #[must_use]
    pub fn count(&self) -> usize {
        self.issuers.len()
    }

    /// Keeps the keys of the issuer at `index` fresh until it is dropped: at once, then regularly,
    /// sooner after failures, and when a token needs a key that is not there, but never twice at
    /// once and never sooner than the least interval after the last time.
    ///
    /// # Panics
    ///
    /// If there are not so many issuers.
    pub async fn keep(
        self: Arc<Self>,
        index: usize,
        fetch: Arc<dyn FetchKeys>,
        clock: fn() -> SystemTime,
    ) {
        let Issuer { options, keys } = &self.issuers[index];
        let mut found = Found::default();
        loop {
            keys.due(options, clock).await;
            keys.begin();
            let document = found.document(options, &*fetch, clock());
            let outcome = match timeout(MAX_FETCH, document).await {
                Ok(Ok(document)) => KeySet::parse(&document).map_err(|error| error.to_string()),
                Ok(Err(error)) => Err(with_causes(&*error)),
                Err(_) => Err(format!("there was no answer for {} s", MAX_FETCH.as_secs())),
            };
            if outcome.is_err() {
                // They may have moved.
                found = Found::default();
            }
            let (issuer, before) = (&*options.name, keys.state().version);
            match &outcome {
                Ok(set) if set.len() == 0 => tracing::warn!(issuer, "{NO_KEYS}"),
                Ok(set) => tracing::debug!(issuer, keys = set.len(), "the keys were fetched"),
                Err(error) => tracing::warn!(issuer, error, "the keys could not be fetched"),
            }
            keys.end(outcome, clock());
            let state = keys.state();
            if state.version != before {
                let keys = state.set.as_ref().map_or(0, |set| set.len());
                tracing::info!(issuer, keys, "the keys of the issuer have changed");
            }
        }
    }

    /// Has the keys of all issuers looked for that are in this file, since it has changed.
    pub fn refresh(&self, file: &std::path::Path) {
        for issuer in &self.issuers {
            if matches!(&issuer.options.keys, KeySource::File(path) if path == file) {
                issuer.keys.refresh();
            }
        }
    }

    /// Identity that `token` belongs to, if the keys at hand suffice to tell; `None` if it needs
    /// keys that can be fetched, for which [`verify_later`](Self::verify_later) waits.
    ///
    /// # Errors
    ///
    /// See [`Rejection`].
    pub fn verify(&self, token: &str, now: SystemTime) -> Option<Result<Arc<Identity>, Rejection>> {
        match self.judge(token, now, true) {
            Judged::Done(outcome) => Some(outcome),
            Judged::NeedsKeys(_) => None,
        }
    }

    /// Returns true if `token` was verified before, so that verifying it again costs next to
    /// nothing.
    #[must_use]
    pub fn is_known(&self, token: &str) -> bool {
        self.remembered.find(&digest_of(token)).is_some()
    }

    /// Returns true if `token` says that one of these issuers has made it. Nothing of it is verified.
    #[must_use]
    pub fn are_named_by(&self, token: &str) -> bool {
        let named = compact::claimed_issuer(token);
        named.is_some_and(|named| self.issuers.iter().any(|it| it.options.issuer == named))
    }

    /// Identity that `token` belongs to, once the keys it needs have been fetched: by one fetch for
    /// all requests that wait, and for no longer than five seconds.
    ///
    /// # Errors
    ///
    /// See [`Rejection`].
    pub async fn verify_later(
        &self,
        token: &str,
        clock: fn() -> SystemTime,
    ) -> Result<Arc<Identity>, Rejection> {
        // Before looking, so that no attempt ends unseen in between.
        let seen: Vec<_> = self
            .issuers
            .iter()
            .map(|it| it.keys.attempts.subscribe())
            .collect();
        let index = match self.judge(token, clock(), true) {
            Judged::Done(outcome) => return outcome,
            Judged::NeedsKeys(index) => index,
        };
        self.issuers[index].keys.wanted.notify_one();
        if let Some(mut attempts) = seen.into_iter().nth(index) {
            // Whatever comes of it is judged below.
            let _ = timeout(MAX_WAIT, attempts.changed()).await;
        }
        match self.judge(token, clock(), false) {
            Judged::Done(outcome) => outcome,
            Judged::NeedsKeys(_) => Err(UNAVAILABLE),
        }
    }

    /// Identity of the person whom an ID token is about, once the keys it needs have been fetched; see
    /// [`verify_later`](Self::verify_later).
    ///
    /// # Errors
    ///
    /// See [`Rejection`].
    pub async fn verify_id_token(
        &self,
        token: &str,
        expected: &ExpectedIdToken<'_>,
        clock: fn() -> SystemTime,
    ) -> Result<Identity, Rejection> {
        let (index, issuer) = self
            .issuers
            .iter()
            .enumerate()
            .find(|(_, it)| *it.options.name == *expected.issuer)
            .ok_or(Rejection::Invalid {
                why: "there is no such issuer",
            })?;
        let mut attempts = issuer.keys.attempts.subscribe();
        let judge = |may_wait| {
            let now = clock();
            let found = self.verified(token, now, may_wait)?;
            let Ok((from, _, token)) = found else {
                return Ok(None);
            };
            if from != index {
                return Rejection::invalid(
                    "the ID token is of another issuer than the one that was asked",
                );
            }
            if token.is_access_token {
                return Rejection::invalid(
                    "the issuer gave an access token in place of an ID token",
                );
            }
            claims::id_token(&token.claims, &issuer.options, expected, now).map(Some)
        };
        if let Some(identity) = judge(true)? {
            return Ok(identity);
        }
        issuer.keys.wanted.notify_one();
        // Whatever comes of it is judged below.
        let _ = timeout(MAX_WAIT, attempts.changed()).await;
        judge(false)?.ok_or(UNAVAILABLE)
    }

    /// State of each issuer's keys.
    #[must_use]
    pub fn health(&self, now: SystemTime) -> Vec<IssuerHealth> {
        let health = |issuer: &Issuer| {
            let state = issuer.keys.state();
            let usable = state.usable(&issuer.options, now);
            let is_empty = usable.is_some_and(|set| set.len() == 0);
            IssuerHealth {
                name: Arc::clone(&issuer.options.name),
                ok: usable.is_some() && !is_empty,
                keys: state.set.as_ref().map_or(0, |set| set.len()),
                fetched: state.fetched,
                failure: match &state.failure {
                    None if is_empty => Some(NO_KEYS.to_owned()),
                    failure => failure.clone(),
                },
            }
        };
        self.issuers.iter().map(health).collect()
    }

    fn judge(&self, token: &str, now: SystemTime, may_wait: bool) -> Judged {
        if MAX_TOKEN_BYTES < token.len() {
            return Judged::Done(Rejection::malformed("the token is too long"));
        }
        let digest = digest_of(token);
        if let Some(known) = self.remembered.find(&digest) {
            let issuer = &self.issuers[known.issuer];
            let state = issuer.keys.state();
            // Keys that have changed, or that may have, are looked at again below.
            if known.version == state.version && state.usable(&issuer.options, now).is_some() {
                let is_over = known.identity.expires.is_none_or(|expires| expires <= now);
                return Judged::Done(match is_over {
                    true => Rejection::invalid("the token has expired"),
                    false => Ok(known.identity),
                });
            }
        }
        match self.judge_anew(token, now, may_wait) {
            Ok(Ok((issuer, version, identity))) => {
                let identity = Arc::new(identity);
                let known = Known {
                    issuer,
                    version,
                    identity: Arc::clone(&identity),
                };
                self.remembered.insert(digest, known);
                Judged::Done(Ok(identity))
            }
            Ok(Err(issuer)) => Judged::NeedsKeys(issuer),
            Err(rejection) => Judged::Done(Err(rejection)),
        }
    }

    /// The identity with the issuer's index and the version of its keys, or the index of the issuer
    /// whose keys are needed.
    fn judge_anew(
        &self,
        token: &str,
        now: SystemTime,
        may_wait: bool,
    ) -> Result<Result<(usize, u64, Identity), usize>, Rejection> {
        let (index, version, token) = match self.verified(token, now, may_wait)? {
            Ok(verified) => verified,
            Err(index) => return Ok(Err(index)),
        };
        let identity = claims::identity(&token.claims, &self.issuers[index].options, now)?;
        Ok(Ok((index, version, identity)))
    }

    /// The token, whose signature is verified, with its issuer's index and the version of the keys; or the index of the
    /// issuer whose keys are needed.
    fn verified<'a>(
        &self,
        token: &'a str,
        now: SystemTime,
        may_wait: bool,
    ) -> Result<Result<(usize, u64, Compact<'a>), usize>, Rejection> {
        let token = Compact::parse(token)?;
        let Some(Value::String(iss)) = token.claims.get("iss") else {
            return Rejection::invalid("the token does not say who issued it");
        };
        let found = self.issuers.iter().position(|it| it.options.issuer == *iss);
        let Some(index) = found else {
            return Rejection::invalid("the token is of an issuer that is not accepted here");
        };
        let Issuer { options, keys } = &self.issuers[index];
        if !options.algorithms.contains(&token.algorithm) {
            return Rejection::invalid("the token is not signed in a way that is accepted");
        }
        let state = keys.state();
        let state: &State = &state;
        let waits = may_wait && state.may_wait(options, now);
        let set = match state.usable(options, now) {
            Some(set) if set.knows(&token) => set,
            _ if waits => return Ok(Err(index)),
            Some(_) if state.failure.is_none() => {
                return Rejection::invalid("the token is signed with a key that is not known here");
            }
            _ => return Err(UNAVAILABLE),
        };
        if !set.has_signed(&token) {
            return Rejection::invalid("the signature of the token is wrong");
        }
        Ok(Ok((index, state.version, token)))
    }
}

/// An answer without keys takes back those before it, as a failure to answer does not.
const NO_KEYS: &str = "the issuer publishes no key that tokens could be verified with: all its tokens are \
                       refused";

const UNAVAILABLE: Rejection = Rejection::Unavailable {
    why: "the keys of the token's issuer cannot be had at present",
};
