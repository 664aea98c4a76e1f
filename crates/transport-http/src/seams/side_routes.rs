//! Routes beside the endpoint.

use crate::{
    error_response::PlainResponse,
    peer::Peer,
    seams::authenticate::{Authenticate, Authenticated},
};
use bytes::Bytes;
use futures_util::Stream;
use http::{Response, request::Parts};
use std::{fmt, pin::Pin};

/// Answers what is not MCP, such as `/health`: called for every path but the endpoint's, after the
/// checks of `Host` and `Origin`.
pub trait SideRoutes: Send + Sync + 'static {
    /// The most bytes of a request's body that are read for a route; a longer one is answered with 413.
    /// With none, which is the default, the body is not read.
    fn max_body(&self, _parts: &Parts) -> usize {
        0
    }

    /// The response, or `None` for a path that does not exist. Methods are up to the route.
    fn handle<'a>(&'a self, request: SideRequest<'a>) -> Option<SideResponse<'a>>;
}

/// A response on its way. Dropped when the client hangs up.
pub type SideResponse<'a> = Pin<Box<dyn Future<Output = Response<SideBody>> + Send + 'a>>;

/// Body of a response to a side route.
pub enum SideBody {
    /// Bytes at hand.
    Whole(Bytes),
    /// Bytes as they come. Dropped when the client hangs up, or when the server stops; what they say
    /// must not be the client's to outlast.
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
}

impl From<Bytes> for SideBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl fmt::Debug for SideBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(bytes) => f.debug_tuple("Whole").field(&bytes.len()).finish(),
            Self::Stream(_) => f.write_str("Stream"),
        }
    }
}

/// A response whose body is at hand, for a side route.
pub fn side(response: PlainResponse) -> Response<SideBody> {
    response.map(SideBody::Whole)
}

/// A request for a side route.
#[derive(Clone, Copy)]
pub struct SideRequest<'a> {
    parts: &'a Parts,
    body: &'a Bytes,
    peer: &'a Peer,
    authenticate: &'a dyn Authenticate,
}

impl<'a> SideRequest<'a> {
    pub(crate) fn new(
        parts: &'a Parts,
        body: &'a Bytes,
        peer: &'a Peer,
        authenticate: &'a dyn Authenticate,
    ) -> Self {
        Self {
            parts,
            body,
            peer,
            authenticate,
        }
    }

    /// Method, path and headers.
    pub fn parts(&self) -> &'a Parts {
        self.parts
    }

    /// Body, where [`SideRoutes::max_body`] has some read.
    pub fn body(&self) -> &'a Bytes {
        self.body
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
