//! Sign-ins of people in their browsers at issuers of tokens (OpenID Connect): one way for the desk and for the pages on
//! which users of clients give credentials.
//!
//! A sign-in belongs to the browser that has begun it: only with the ticket that this browser keeps, and the `state` that
//! went to the issuer with it, is what comes back looked at. It does so once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::StatusCode;
use identity::{Counts, ExpectedIdToken, Issuers};
use mcp_service::Principal;
use oauth_client::{AuthorizationError, OpenId, OpenIdOptions, OpenIdRequest, Secret};
use sha2::{Digest as _, Sha256};

use super::principal;
use crate::Failure;
use config::Config;

/// Time within which a person comes back.
pub(crate) const LIFETIME: Duration = Duration::from_secs(600);
/// Sign-ins that may have begun at once. Beyond it the oldest are forgotten.
const MAX_BEGUN: usize = 10_000;

/// A sign-in that was not begun, or did not end well.
#[derive(Debug, Clone)]
pub struct NotSignedIn {
    /// Status for the answer.
    pub status: StatusCode,
    /// Reason, in a sentence for people.
    pub why: String,
}

impl NotSignedIn {
    fn new(status: StatusCode, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { status, why }
    }

    fn of(error: &AuthorizationError) -> Self {
        let status = match error {
            AuthorizationError::Login(_)
            | AuthorizationError::Denied { .. }
            | AuthorizationError::WrongAnswer { .. } => StatusCode::UNAUTHORIZED,
            _ => StatusCode::BAD_GATEWAY,
        };
        Self::new(status, crate::with_causes(error))
    }
}

/// A sign-in that has begun.
pub struct BegunSignIn {
    /// Address of the issuer that the browser goes to.
    pub url: String,
    /// Text that the browser keeps, and shows when it comes back.
    pub ticket: String,
}

impl fmt::Debug for BegunSignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BegunSignIn").finish_non_exhaustive()
    }
}

struct One {
    name: String,
    client: OpenId,
}

struct Begun {
    issuer: usize,
    request: OpenIdRequest,
    /// Purpose of the one who began it.
    purpose: String,
    at: Instant,
}

/// Sign-ins at issuers.
pub struct BrowserSignIns {
    issuers: Arc<Issuers>,
    counts: Arc<Counts>,
    ones: Vec<One>,
    /// By the digest of the ticket.
    begun: Mutex<HashMap<[u8; 32], Begun>>,
}

impl fmt::Debug for BrowserSignIns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

impl BrowserSignIns {
    /// Sign-ins at the issuers that are configured for it; `None` without any.
    pub(super) fn open(
        config: &Config,
        issuers: Option<&Arc<Issuers>>,
        counts: &Arc<Counts>,
    ) -> Result<Option<Self>, Failure> {
        let identity = &config.identity;
        let Some(issuers) = issuers else {
            return Ok(None);
        };
        let mut ones = Vec::new();
        for (name, jwt) in &identity.jwt {
            let Some(sign_in) = &jwt.sign_in else {
                continue;
            };
            let path = format!("identity.jwt.{name}.sign_in");
            let client_secret = match &sign_in.client_secret {
                None => None,
                Some(secret) => {
                    let secret = secret.reveal(&config.environment).ok_or_else(|| {
                        format!(
                            "{path}.client_secret refers to a value that is not there, or is empty"
                        )
                    })?;
                    redaction::know([secret.as_str()]);
                    Some(Secret::new(secret))
                }
            };
            let authorities = match &identity.ca_file {
                None => Vec::new(),
                Some(file) => regular_file::read(file, regular_file::MAX_BYTES)
                    .map_err(|error| format!("identity.ca_file {}: {error}", file.display()))?,
            };
            let scopes = jwt.required_scopes.iter().chain(&sign_in.scopes);
            let client = OpenId::new(OpenIdOptions {
                issuer: jwt.issuer.clone(),
                client_id: sign_in.client_id.clone(),
                client_secret,
                scopes: scopes.cloned().collect(),
                authorities,
            });
            let client = client.map_err(|error| format!("{path}: {error}"))?;
            let name = name.clone();
            ones.push(One { name, client });
        }
        Ok((!ones.is_empty()).then(|| Self {
            issuers: Arc::clone(issuers),
            counts: Arc::clone(counts),
            ones,
            begun: Mutex::default(),
        }))
    }

    /// Names of the issuers.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.ones.iter().map(|it| it.name.as_str())
    }

    /// Begins a sign-in at `issuer`, which sends the browser back to `redirect_uri`: an address of this issuer alone, so
    /// that no other can pass the answer on as its own. `purpose` is handed back at the end.
    ///
    /// # Errors
    ///
    /// When there is no such issuer, or it cannot be asked.
    pub async fn begin(
        &self,
        issuer: &str,
        redirect_uri: &str,
        purpose: &str,
    ) -> Result<BegunSignIn, NotSignedIn> {
        let index = self.ones.iter().position(|it| it.name == issuer);
        let Some(index) = index else {
            let why = "nobody signs in at an issuer of this name";
            return Err(NotSignedIn::new(StatusCode::NOT_FOUND, why));
        };
        let request = self.ones[index].client.begin(redirect_uri).await;
        let request = request.map_err(|error| {
            let failed = NotSignedIn::of(&error);
            tracing::warn!(
                issuer,
                why = failed.why,
                "no sign-in can begin at an issuer"
            );
            failed
        })?;
        let mut bytes = [0; 32];
        if getrandom::fill(&mut bytes).is_err() {
            let why = "the system has no random numbers";
            return Err(NotSignedIn::new(StatusCode::SERVICE_UNAVAILABLE, why));
        }
        let ticket = URL_SAFE_NO_PAD.encode(bytes);
        let url = request.url.clone();
        let begun = Begun {
            issuer: index,
            request,
            purpose: purpose.to_owned(),
            at: Instant::now(),
        };
        let mut all = self.begun();
        if MAX_BEGUN <= all.len() {
            let oldest = all.iter().min_by_key(|(_, it)| it.at).map(|(key, _)| *key);
            oldest.map(|key| all.remove(&key));
        }
        all.insert(digest(&ticket), begun);
        Ok(BegunSignIn { url, ticket })
    }

    /// Ends the sign-in of the browser with `ticket`, which came back to the address of `issuer` with `query`. Returns the
    /// person and the purpose.
    ///
    /// # Errors
    ///
    /// When the browser has begun none, or the issuer does not say who the person is.
    pub async fn finish(
        &self,
        ticket: &str,
        issuer: &str,
        query: &str,
    ) -> Result<(Principal, String), NotSignedIn> {
        let key = digest(ticket);
        let begun = {
            let mut all = self.begun();
            // What answers another sign-in does not end this one.
            let is_it = all.get(&key).is_some_and(|it| {
                self.ones[it.issuer].name == issuer && it.request.is_answered_by(query)
            });
            is_it.then(|| all.remove(&key)).flatten()
        };
        let Some(begun) = begun else {
            let why = "this browser has not begun this sign-in, or too long ago, or it has ended: sign in anew";
            return Err(NotSignedIn::new(StatusCode::UNAUTHORIZED, why));
        };
        let client = &self.ones[begun.issuer].client;
        let refused = |failed: NotSignedIn| {
            tracing::info!(issuer, why = failed.why, "a sign-in has failed");
            failed
        };
        let answer = client.finish(&begun.request, query).await;
        let answer = answer.map_err(|error| refused(NotSignedIn::of(&error)))?;
        let scopes: Vec<&str> = answer.scopes.iter().map(String::as_str).collect();
        let expected = ExpectedIdToken {
            issuer,
            client_id: client.client_id(),
            nonce: &begun.request.nonce,
            scopes: &scopes,
        };
        let token = answer.id_token.reveal();
        let verified = self
            .issuers
            .verify_id_token(token, &expected, SystemTime::now);
        let identity = verified.await.map_err(|rejection| {
            self.counts.refused(&rejection);
            let status = match rejection {
                identity::Rejection::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
                identity::Rejection::InsufficientScope { .. } => StatusCode::FORBIDDEN,
                _ => StatusCode::UNAUTHORIZED,
            };
            refused(NotSignedIn::new(status, rejection.to_string()))
        })?;
        self.counts.accepted(&identity.means);
        Ok((principal(&[Arc::new(identity)]), begun.purpose))
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<[u8; 32], Begun>> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.retain(|_, it| it.at.elapsed() < LIFETIME);
        begun
    }
}
