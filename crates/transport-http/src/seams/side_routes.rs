//! Routes beside the endpoint.

use crate::{
    error_response::PlainResponse,
    peer::Peer,
    seams::authenticate::{Authenticate, Authenticated},
};
use http::request::Parts;
use std::{fmt, pin::Pin};

/// Answers what is not MCP, such as `/health`: called for every path but the endpoint's, after the
/// checks of `Host` and `Origin`.
pub trait SideRoutes: Send + Sync + 'static {
    /// The response, or `None` for a path that does not exist. Methods are up to the route; a
    /// request's body is not read.
    fn handle<'a>(&'a self, request: SideRequest<'a>) -> Option<SideResponse<'a>>;
}

/// A response on its way. Dropped when the client hangs up.
pub type SideResponse<'a> = Pin<Box<dyn Future<Output = PlainResponse> + Send + 'a>>;

/// A request for a side route.
#[derive(Clone, Copy)]
pub struct SideRequest<'a> {
    parts: &'a Parts,
    peer: &'a Peer,
    authenticate: &'a dyn Authenticate,
}

impl<'a> SideRequest<'a> {
    pub(crate) fn new(
        parts: &'a Parts,
        peer: &'a Peer,
        authenticate: &'a dyn Authenticate,
    ) -> Self {
        Self {
            parts,
            peer,
            authenticate,
        }
    }

    /// Method, path and headers.
    pub fn parts(&self) -> &'a Parts {
        self.parts
    }

    /// Peer that sent it.
    pub fn peer(&self) -> &'a Peer {
        self.peer
    }

    /// Principal that sent it. Authenticated only when asked for: a health check needs no name.
    ///
    /// # Errors
    ///
    /// What to answer to somebody who may not call at all.
    pub async fn principal(self) -> Authenticated {
        let authenticate = self.authenticate;
        authenticate
            .authenticate(self.parts, self.peer)
            .outcome()
            .await
    }
}

impl fmt::Debug for SideRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SideRequest")
            .field("method", &self.parts.method)
            .field("path", &self.parts.uri.path())
            .finish_non_exhaustive()
    }
}
