//! Authentication as configured: keys, tokens and certificates of requests, and the key of the
//! client that starts the server on stdio.

mod answer;
mod bound;
mod credentials;
mod fetch;
mod open_id;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use gateway::Subjects;
use http::{Method, StatusCode, request::Parts};
use identity::{
    ApiKeys, Certificates, Challenge, Counts, FailedAttempts, FetchKeys, Identity as Proved,
    Introspection, Issuers, KeyFileError, KeySource, Rejection, ResourceMetadata,
};
use mcp_server::{Component, ComponentState};
use mcp_service::Principal;
use tokio::task::JoinHandle;
use transport_http::{Authenticate, Authenticated, Authentication, Peer, PlainResponse, refusal};

use super::file_watch::FileWatch;
use super::notes;
use super::store::ServedMcpServer;
use crate::Failure;
use answer::Lines;
use bound::BoundTokens;
use config::{Config, Identity, StdioIdentity, Transport};
use credentials::Credentials;
use fetch::{Ask, Fetch};
pub(super) use open_id::LIFETIME as SIGN_IN_LIFETIME;
pub use open_id::{BegunSignIn, BrowserSignIns, NotSignedIn};

/// Environment variable with the key of the client that starts the server on stdio.
pub const STDIO_KEY: &str = "OWLCLAW_API_KEY";
/// Interval at which the key on stdio is checked again: its expiry is no event.
const STDIO_LOOK: Duration = Duration::from_secs(1);
/// Path at which RFC 9728 has the metadata; the path of a resource follows it.
const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
/// Name of the component of `/health` that reports whether every known client can be authenticated.
pub(super) const COMPONENT: &str = "identity";
/// Name of the component of `/health` for keys that cannot be fetched again.
pub(super) const KEYS: &str = "issuer_keys";
/// The path of the endpoint, whatever a proxy calls it.
const ENDPOINT: &str = "/mcp";

/// Authentication of requests.
pub(super) struct Identification {
    keys: Option<Arc<ApiKeys>>,
    issuers: Option<Arc<Issuers>>,
    introspection: Option<Introspection>,
    certificates: Option<Certificates>,
    challenge: Challenge,
    /// Advice for clients that show no proof.
    advice: String,
    metadata: Option<Metadata>,
    /// Checks of proofs for tokens that are bound to a key.
    bound: BoundTokens,
    attempts: FailedAttempts,
    counts: Arc<Counts>,
    /// Sign-ins of people in their browsers.
    sign_ins: Option<BrowserSignIns>,
    lines: Lines,
    /// Place of tokens of callers, for upstreams that want others in exchange.
    subjects: OnceLock<Arc<Subjects>>,
    /// Reason why the last reload of the file of keys failed, if it did.
    keys_failure: Mutex<Option<String>>,
}

/// Means by which a token is verified.
enum Verifier<'a> {
    Issuers(&'a Issuers),
    Introspection(&'a Introspection),
}

struct Metadata {
    document: ResourceMetadata,
    /// Path of the metadata, besides the well-known ones.
    path: String,
}

/// Work beside serving, which ends when this is dropped.
#[derive(Default)]
pub(super) struct Keeping(Vec<JoinHandle<()>>);

impl Drop for Keeping {
    fn drop(&mut self) {
        for task in &self.0 {
            task.abort();
        }
    }
}

impl Identification {
    /// Opens the configured means of authentication; `None` without any.
    pub(super) fn open(config: &Config) -> Result<Option<Arc<Self>>, Failure> {
        let identity = &config.identity;
        if !identity.is_configured() {
            return Ok(None);
        }
        let keys = match &identity.api_keys {
            None => None,
            Some(keys) => Some(Arc::new(open_keys(&keys.file)?)),
        };
        if let Some(keys) = keys
            .as_ref()
            .filter(|keys| keys.active(SystemTime::now()) == 0)
        {
            let file = keys.path().display().to_string();
            tracing::warn!(
                file,
                "no API key is good; `owlclaw-mcp keys create` makes one"
            );
        }
        let issuers = match identity.jwt.is_empty() {
            true => None,
            false => Some(Arc::new(Issuers::new(identity.issuers())?)),
        };
        let on_http = config.transport == Transport::Http;
        let introspection = match identity.introspection.as_ref().filter(|_| on_http) {
            None => None,
            Some(section) => {
                let authorities = identity.ca_file.as_deref();
                let ask = Ask::new(section, &config.environment, authorities)?;
                let options = identity.introspection();
                options.map(|it| Introspection::new(it, ask)).transpose()?
            }
        };
        let takes_tokens = identity.takes_tokens();
        let metadata = takes_tokens.then(|| metadata(identity)).flatten();
        let url = metadata
            .as_ref()
            .and_then(|it| ResourceMetadata::url(&it.document.resource));
        let has_certificates = identity.certificates.is_some();
        let counts = Arc::default();
        let sign_ins = BrowserSignIns::open(config, issuers.as_ref(), &counts)?;
        Ok(Some(Arc::new(Self {
            advice: answer::advice(
                keys.is_some(),
                metadata.is_some(),
                takes_tokens,
                has_certificates,
            ),
            keys,
            issuers,
            introspection,
            certificates: identity
                .certificates
                .as_ref()
                .map(|it| Certificates::new(it.options())),
            challenge: Challenge::new(url, &identity.scopes())
                .with_bound_tokens(takes_tokens && identity.dpop.required),
            bound: BoundTokens::open(identity)?,
            metadata,
            attempts: FailedAttempts::default(),
            counts,
            sign_ins,
            lines: Lines::default(),
            subjects: OnceLock::new(),
            keys_failure: Mutex::default(),
        })))
    }

    /// Keeps keys as they are at their sources, until what is returned is dropped.
    pub(super) fn keep(
        self: &Arc<Self>,
        config: &Config,
        mcp: &Arc<ServedMcpServer>,
    ) -> Result<Keeping, Failure> {
        let mut tasks = Vec::new();
        if let Some(keys) = &self.keys {
            let watch = FileWatch::start(keys.path().to_owned());
            let (this, keys, mcp) = (Arc::clone(self), Arc::clone(keys), Arc::clone(mcp));
            tasks.push(tokio::spawn(this.follow_keys(keys, watch, mcp)));
        }
        // On stdio there are no tokens, but on the desk there are.
        let has_tokens = config.transport == Transport::Http || config.desk.enabled;
        if let Some(issuers) = self.issuers.as_ref().filter(|_| has_tokens) {
            let ca_file = config.identity.ca_file.as_deref();
            let fetch: Arc<dyn FetchKeys> = Arc::new(Fetch::new(ca_file)?);
            for index in 0..issuers.count() {
                let (issuers, fetch) = (Arc::clone(issuers), Arc::clone(&fetch));
                tasks.push(tokio::spawn(issuers.keep(index, fetch, SystemTime::now)));
            }
            for options in config.identity.issuers() {
                if let KeySource::File(path) = options.keys {
                    tasks.push(tokio::spawn(follow_file(Arc::clone(issuers), path)));
                }
            }
        }
        Ok(Keeping(tasks))
    }

    /// Has tokens of callers at hand for upstreams that want others in exchange, as long as there are any such.
    pub(super) fn hand_tokens_to(&self, subjects: &Arc<Subjects>) {
        // Once: there is one gateway in a server.
        let _ = self.subjects.set(Arc::clone(subjects));
    }

    /// The principal with the token that has proved who it is, if one is wanted.
    fn with_token(&self, principal: Principal, found: &Credentials<'_>) -> Principal {
        match (self.subjects.get(), found.token) {
            (Some(subjects), Some(token)) if subjects.are_wanted() => {
                let token = Arc::from(token);
                subjects.seen(principal.name(), &token);
                principal.with_token(token)
            }
            _ => principal,
        }
    }

    /// Sign-ins of people in their browsers, if there is an issuer for it.
    pub(super) fn sign_ins(&self) -> Option<&BrowserSignIns> {
        self.sign_ins.as_ref()
    }

    /// Counts of accepted and refused credentials.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Component of `/health`: it works while credentials of every configured kind can be verified.
    pub(super) fn component(self: &Arc<Self>) -> Component {
        let this = Arc::clone(self);
        Component::new(move || this.state())
    }

    /// Component of `/health`: it works while the keys of every issuer can be fetched. Keys from before are
    /// believed for a time.
    pub(super) fn keys_component(self: &Arc<Self>) -> Component {
        let this = Arc::clone(self);
        Component::new(move || {
            let issuers = this.issuers.iter();
            let all = issuers.flat_map(|it| it.health(SystemTime::now()));
            let failed = all.filter_map(|issuer| {
                let failure = issuer.failure.filter(|_| issuer.ok)?;
                let name = issuer.name;
                Some(format!(
                    "the keys of `{name}` are those from before: {failure}"
                ))
            });
            let failed: Vec<_> = failed.collect();
            ComponentState {
                name: KEYS,
                ok: failed.is_empty(),
                detail: (!failed.is_empty()).then(|| failed.join("; ")),
            }
        })
    }

    /// The answer to a question where tokens are to be had; `None` for other paths.
    pub(super) fn well_known(&self, method: &Method, path: &str) -> Option<PlainResponse> {
        let metadata = self.metadata.as_ref()?;
        let rest = path.strip_prefix(WELL_KNOWN)?;
        if !(rest.is_empty() || rest == ENDPOINT || rest == metadata.path) {
            return None;
        }
        let response = answer::metadata(&metadata.document);
        Some(match *method {
            Method::GET => response,
            Method::HEAD => response.map(|_| Bytes::new()),
            _ => refusal(StatusCode::METHOD_NOT_ALLOWED, "use GET"),
        })
    }

    /// The means of proof that are accepted, in words.
    pub(super) fn advice(&self) -> &str {
        &self.advice
    }

    fn state(&self) -> ComponentState {
        let mut details = Vec::new();
        let mut ok = true;
        let failure = self.keys_failure.lock();
        if let Some(failure) = &*failure.unwrap_or_else(PoisonError::into_inner) {
            ok = false;
            details.push(format!("{failure}; the keys before it are in force"));
        }
        for issuer in self
            .issuers
            .iter()
            .flat_map(|it| it.health(SystemTime::now()))
        {
            ok &= issuer.ok;
            let (name, failure) = (&issuer.name, issuer.failure);
            match (issuer.ok, failure) {
                (true, _) => {}
                (false, failure) => {
                    let failure = failure.unwrap_or_else(|| "being fetched".to_owned());
                    details.push(format!("there are no keys of `{name}`: {failure}"));
                }
            }
        }
        if let Some(introspection) = &self.introspection
            && let Some(failure) = introspection.failure()
        {
            ok = false;
            let name = introspection.name();
            details.push(format!("the issuer of `{name}` cannot be asked: {failure}"));
        }
        ComponentState {
            name: COMPONENT,
            ok,
            detail: (!details.is_empty()).then(|| details.join("; ")),
        }
    }

    /// The principal that all proofs are of, or `None` if one needs keys that must be fetched.
    fn now(
        &self,
        found: &Credentials<'_>,
        request: &Parts,
        peer: &Peer,
        now: SystemTime,
    ) -> Result<Option<Principal>, Rejection> {
        let token = match found.token {
            None => None,
            Some(token) => {
                let verifier = self.verifier(token)?;
                self.may_try(&verifier, token, peer)?;
                let verified = match verifier {
                    Verifier::Issuers(issuers) => issuers.verify(token, now),
                    Verifier::Introspection(introspection) => introspection.verify(token, now),
                };
                match verified {
                    None => return Ok(None),
                    Some(outcome) => Some(self.counted(outcome, peer)?),
                }
            }
        };
        if let Some(token) = &token {
            self.bound.check(token, found, request, now)?;
        }
        self.joined(found, token, peer, now).map(Some)
    }

    async fn later(
        &self,
        found: &Credentials<'_>,
        request: &Parts,
        peer: &Peer,
    ) -> Result<Principal, Rejection> {
        let token = match found.token {
            None => None,
            Some(token) => {
                let clock = SystemTime::now;
                let outcome = match self.verifier(token)? {
                    Verifier::Issuers(issuers) => issuers.verify_later(token, clock).await,
                    Verifier::Introspection(introspection) => {
                        introspection.verify_later(token, clock).await
                    }
                };
                Some(self.counted(outcome, peer)?)
            }
        };
        let now = SystemTime::now();
        if let Some(token) = &token {
            self.bound.check(token, found, request, now)?;
        }
        self.joined(found, token, peer, now)
    }

    /// Proofs of different principals prove nothing; of the same one they add up.
    fn joined(
        &self,
        found: &Credentials<'_>,
        token: Option<Arc<Proved>>,
        peer: &Peer,
        now: SystemTime,
    ) -> Result<Principal, Rejection> {
        let mut proofs: Vec<Arc<Proved>> = token.into_iter().collect();
        for key in found.keys.into_iter().flatten() {
            let Some(keys) = &self.keys else {
                return Err(Rejection::Invalid {
                    why: "API keys are not accepted here",
                });
            };
            proofs.push(keys.verify(key, now)?);
        }
        if let (Some(rules), Some(certificate)) = (&self.certificates, peer.certificate()) {
            proofs.push(Arc::new(rules.identify(certificate, now)?));
        }
        let Some((first, others)) = proofs.split_first() else {
            return Err(Rejection::Missing);
        };
        if others.iter().any(|it| it.principal != first.principal) {
            return Err(Rejection::Invalid {
                why: "the credentials are those of different principals",
            });
        }
        for proof in &proofs {
            self.counts.accepted(&proof.means);
        }
        Ok(principal(&proofs))
    }

    /// The means by which a token is verified: its issuer is asked about one that is not of an issuer whose
    /// signature could be verified here.
    fn verifier(&self, token: &str) -> Result<Verifier<'_>, Rejection> {
        match (&self.issuers, &self.introspection) {
            (Some(issuers), None) => Ok(Verifier::Issuers(issuers)),
            (Some(issuers), Some(_)) if issuers.is_known(token) || issuers.are_named_by(token) => {
                Ok(Verifier::Issuers(issuers))
            }
            (_, Some(introspection)) => Ok(Verifier::Introspection(introspection)),
            (None, None) => Err(Rejection::Invalid {
                why: "tokens of this kind are not accepted here",
            }),
        }
    }

    fn may_try(&self, verifier: &Verifier<'_>, token: &str, peer: &Peer) -> Result<(), Rejection> {
        let is_known = || match verifier {
            Verifier::Issuers(issuers) => issuers.is_known(token),
            Verifier::Introspection(introspection) => introspection.is_known(token),
        };
        match peer.address() {
            Some(address)
                if !self.attempts.may_try(address.ip(), Instant::now()) && !is_known() =>
            {
                Err(Rejection::TooManyAttempts)
            }
            _ => Ok(()),
        }
    }

    /// Counts a failed attempt: verifying a wrong signature takes time, which is limited.
    fn counted(
        &self,
        outcome: Result<Arc<Proved>, Rejection>,
        peer: &Peer,
    ) -> Result<Arc<Proved>, Rejection> {
        if let (Err(Rejection::Invalid { .. }), Some(address)) = (&outcome, peer.address()) {
            self.attempts.failed(address.ip(), Instant::now());
        }
        outcome
    }

    fn refused(&self, rejection: &Rejection, peer: &Peer) -> Box<PlainResponse> {
        self.counts.refused(rejection);
        if let Some(left_out) = self.lines.admit(Instant::now()) {
            // Nothing that was sent: neither a credential nor a name nobody has proved.
            tracing::info!(
                reason = rejection.as_str(),
                why = %rejection,
                peer = peer.address().map(|it| it.ip().to_string()),
                left_out,
                "a request was not let in"
            );
        }
        let nonce = match rejection {
            Rejection::NeedsNonce => self.bound.nonce(),
            _ => None,
        };
        answer::refused(&self.challenge, rejection, &self.advice, nonce.as_deref())
    }

    async fn follow_keys(
        self: Arc<Self>,
        keys: Arc<ApiKeys>,
        mut watch: FileWatch,
        mcp: Arc<ServedMcpServer>,
    ) {
        let mut is_first = true;
        loop {
            // What has changed since it was read and before it was watched.
            if !std::mem::take(&mut is_first) {
                watch.changed().await;
            }
            let read = Arc::clone(&keys);
            let Ok(outcome) = tokio::task::spawn_blocking(move || read.reload()).await else {
                return;
            };
            let version = mcp.governor().policy().version();
            let failure = match outcome {
                Ok(changes) => {
                    for change in &changes {
                        let (id, what) = (&change.id, change.what);
                        tracing::info!(
                            id,
                            what,
                            principal = change.principal,
                            "an API key changed"
                        );
                        notes::key_changed(mcp.recorder(), version, change);
                    }
                    None
                }
                Err(error) => {
                    let failure = crate::with_causes(&error);
                    tracing::error!(error = failure, "the API keys could not be read again");
                    Some(failure)
                }
            };
            *self
                .keys_failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = failure;
        }
    }
}

impl Authenticate for Identification {
    fn authenticate<'a>(&'a self, request: &'a Parts, peer: &'a Peer) -> Authentication<'a> {
        let refused = |rejection| Err(self.refused(&rejection, peer));
        let found = match Credentials::of(request) {
            Ok(found) => found,
            Err(rejection) => return Authentication::Done(refused(rejection)),
        };
        if found.are_none() && (self.certificates.is_none() || peer.certificate().is_none()) {
            return Authentication::Done(refused(Rejection::Missing));
        }
        match self.now(&found, request, peer, SystemTime::now()) {
            Ok(Some(principal)) => Authentication::Done(Ok(self.with_token(principal, &found))),
            Err(rejection) => Authentication::Done(refused(rejection)),
            Ok(None) => Authentication::Later(Box::pin(async move {
                let outcome: Authenticated = match self.later(&found, request, peer).await {
                    Ok(principal) => Ok(self.with_token(principal, &found)),
                    Err(rejection) => Err(self.refused(&rejection, peer)),
                };
                outcome
            })),
        }
    }
}

/// The kind of proof that a request carries, for the record of what its sender decides.
pub(super) fn kind_of_proof(request: &Parts) -> &'static str {
    match Credentials::of(request) {
        Ok(found) if found.token.is_some() => "token",
        Ok(found) if !found.are_none() => "API key",
        _ => "client certificate",
    }
}

/// The principal of proofs that agree, of which there is one at least. It lasts as long as the proof
/// that ends first.
fn principal(proofs: &[Arc<Proved>]) -> Principal {
    let first = &proofs[0];
    let principal = Principal::new(Arc::clone(&first.principal));
    let principal = match proofs {
        [one] => principal.with_roles(Arc::clone(&one.roles)),
        several => {
            let roles = several.iter().flat_map(|it| it.roles.iter().cloned());
            principal.with_roles(roles.collect())
        }
    };
    let principal = match proofs {
        [one] => match &one.revocation {
            Some(revocation) => principal.while_valid(Arc::clone(revocation.watched())),
            None => principal,
        },
        several => {
            let revocations = several.iter().filter_map(|it| it.revocation.as_ref());
            principal.while_valid(
                revocations
                    .flat_map(|it| it.watched().iter().cloned())
                    .collect(),
            )
        }
    };
    match proofs.iter().filter_map(|it| it.expires).min() {
        Some(expires) => principal.until(expires),
        None => principal,
    }
}

fn metadata(identity: &Identity) -> Option<Metadata> {
    let resource = identity::canonical_resource(identity.resource.as_deref()?)?;
    let path = resource.splitn(4, '/').nth(3);
    let path = path.map(|path| format!("/{path}")).unwrap_or_default();
    let document = ResourceMetadata {
        authorization_servers: identity.authorization_servers(),
        scopes: identity.scopes(),
        bound_tokens_required: identity.dpop.required,
        resource,
    };
    Some(Metadata { document, path })
}

fn open_keys(path: &std::path::Path) -> Result<ApiKeys, Failure> {
    ApiKeys::open(path).map_err(|error| match error {
        KeyFileError::Missing(_) => Failure::from(format!(
            "{error}; make it and a first key with `owlclaw-mcp keys create --principal NAME`"
        )),
        error => error.into(),
    })
}

async fn follow_file(issuers: Arc<Issuers>, path: PathBuf) {
    let mut watch = FileWatch::start(path.clone());
    loop {
        watch.changed().await;
        issuers.refresh(&path);
    }
}

/// Key of the client that started the server on stdio, if it gave one.
pub(super) struct StdioKey {
    keys: Arc<ApiKeys>,
    key: String,
    principal: Principal,
}

impl StdioKey {
    /// The key in the environment, if there is one.
    ///
    /// # Errors
    ///
    /// If the variable is not UTF-8.
    pub(super) fn of_environment() -> Result<Option<String>, Failure> {
        match std::env::var(STDIO_KEY) {
            Ok(key) if !key.trim().is_empty() => Ok(Some(key.trim().to_owned())),
            Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(_)) => {
                Err(format!("{STDIO_KEY} is not an API key").into())
            }
        }
    }

    /// A client's key, if it has one and keys are configured.
    ///
    /// # Errors
    ///
    /// If it is not good, or there is none and there must be one.
    pub(super) fn of(
        key: Option<String>,
        config: &Config,
        identification: Option<&Arc<Identification>>,
    ) -> Result<Option<Self>, Failure> {
        let keys = identification.and_then(|it| it.keys.clone());
        let (key, keys) = match (key, keys) {
            (Some(key), Some(keys)) => (key, keys),
            (Some(_), None) => {
                tracing::warn!(
                    "{STDIO_KEY} is set, and `identity.api_keys` is not: it proves nothing"
                );
                return Ok(None);
            }
            (None, _) if config.identity.stdio == StdioIdentity::Required => {
                let why = format!("`identity.stdio: required` needs an API key in {STDIO_KEY}");
                return Err(why.into());
            }
            (None, _) => return Ok(None),
        };
        let proved = keys.verify(&key, SystemTime::now());
        let proved = proved
            .map_err(|rejection| format!("the key in {STDIO_KEY} is refused: {rejection}"))?;
        let principal = principal(&[proved]);
        Ok(Some(Self {
            keys,
            key,
            principal,
        }))
    }

    /// Principal that the key belongs to.
    pub(super) fn principal(&self) -> Principal {
        self.principal.clone()
    }

    /// Resolves when the key is not good any more.
    pub(super) async fn ended(&self) {
        loop {
            if let Err(rejection) = self.keys.verify(&self.key, SystemTime::now()) {
                tracing::warn!(why = %rejection, "the key of the client on stdio ended");
                return;
            }
            tokio::time::sleep(STDIO_LOOK).await;
        }
    }
}
