//! One request: what authorizes it, and what an answer to it leads to.

use super::{Inner, Live, Obtained, Wanted, add_scopes};
use crate::{AuthorizationError, Challenge, address::Address, dpop::DPOP};
use http::{HeaderMap, Method, StatusCode, header::AUTHORIZATION};
use std::{fmt, sync::Arc};

/// Times that one request may ask for more scopes.
const MAX_STEP_UPS: u8 = 3;
/// Times that one request is repeated in all.
const MAX_REPEATS: u8 = 8;
/// Times that one request is repeated for the sake of a nonce.
const MAX_NONCES: u8 = 2;

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
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            used: None,
            address: None,
            repeats: 0,
            step_ups: 0,
            nonces: 0,
            renewed: false,
            granted: false,
        }
    }

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
