//! Tokens that are bound to a key of their client (RFC 9449).

use std::time::SystemTime;

use config::Identity;
use http::{header, request::Parts};
use identity::{Identity as Proved, Presented, Proofs, Rejection};

use super::ENDPOINT;
use super::credentials::Credentials;
use crate::Failure;

/// Checks of proofs.
pub(super) struct BoundTokens {
    /// `None` where no tokens are accepted.
    proofs: Option<Proofs>,
    /// True if no tokens are taken but those that are bound.
    are_required: bool,
    /// Address of the endpoint as clients know it.
    resource: String,
}

impl BoundTokens {
    /// # Errors
    ///
    /// Without randomness.
    pub(super) fn open(identity: &Identity) -> Result<Self, Failure> {
        let proofs = || Proofs::new(identity.dpop.nonces, SystemTime::now());
        let proofs = identity.takes_tokens().then(proofs).transpose();
        Ok(Self {
            proofs: proofs.map_err(|_| "the system has no randomness")?,
            are_required: identity.dpop.required,
            resource: identity.resource.clone().unwrap_or_default(),
        })
    }

    /// The nonce for the next proof, if proofs are taken.
    pub(super) fn nonce(&self) -> Option<String> {
        let proofs = self.proofs.as_ref()?;
        Some(proofs.nonce(SystemTime::now()))
    }

    /// Checks that the sender of a token has the key that it is bound to (RFC 9449 §7.1). A proof is good once, so that this is
    /// the last check of a token.
    pub(super) fn check(
        &self,
        token: &Proved,
        found: &Credentials<'_>,
        request: &Parts,
        now: SystemTime,
    ) -> Result<(), Rejection> {
        let unproved = |why| Err(Rejection::Unproved { why });
        let thumbprint = match &token.bound_to {
            None if found.is_bound => {
                return Err(Rejection::Invalid {
                    why: "the token is bound to no key: it is sent as `Bearer`",
                });
            }
            None if self.are_required => return unproved("the token is bound to no key"),
            None => return Ok(()),
            Some(thumbprint) => thumbprint,
        };
        let (Some(proofs), Some(text)) = (&self.proofs, found.token) else {
            return unproved("tokens that are bound to a key are not accepted here");
        };
        if !found.is_bound {
            return unproved("the token is bound to a key: it is sent as `DPoP`, with a proof");
        }
        let Some(proof) = found.proof else {
            return unproved("the token is bound to a key, of which there is no proof");
        };
        if request.headers.contains_key(header::UPGRADE) {
            // Its opener is asked again and again by the request that opened it, and a proof is good once.
            return unproved("a WebSocket cannot be opened with a token that is bound to a key");
        }
        let address = self.address(request.uri.path());
        let presented = Presented {
            proof,
            method: request.method.as_str(),
            address: &address,
            token: text,
        };
        proofs.check(&presented, thumbprint, now)
    }

    /// Address of a request as its client knows it, whatever a proxy calls the endpoint.
    fn address(&self, path: &str) -> String {
        if path == ENDPOINT {
            return self.resource.clone();
        }
        let origin = self.resource.splitn(4, '/').take(3);
        origin.collect::<Vec<_>>().join("/") + path
    }
}
