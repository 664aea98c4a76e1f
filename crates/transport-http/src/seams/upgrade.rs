//! Connections that go on with another protocol (RFC 9110 §7.8), of HTTP/1.1 alone: in HTTP/2 there
//! is no such thing.

use crate::{
    error_response::PlainResponse,
    peer::Peer,
    seams::authenticate::{Authenticate, Authenticated},
    socket::Rewound,
};
use http::{HeaderMap, HeaderName, HeaderValue, request::Parts};
use mcp_service::Principal;
use std::{
    fmt, io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

/// Another protocol that is spoken here. Asked after the checks of `Host` and `Origin` and after
/// authentication, so that neither a page of a stranger nor an unauthenticated client gets this
/// far.
pub trait Upgrade: Send + Sync + 'static {
    /// Path at which the upgrade is requested. A path that is the endpoint's is not used.
    fn path(&self) -> &str;

    /// Accepts a request: returns the protocol to go on with.
    ///
    /// # Errors
    ///
    /// What to answer instead, such as 400 or 426; HTTP goes on then.
    fn begin(&self, request: UpgradeRequest) -> Result<Upgraded, Box<PlainResponse>>;
}

/// A request for another protocol. It can be kept: a long-lived connection authenticates its client
/// again from time to time.
pub struct UpgradeRequest {
    pub(crate) principal: Principal,
    pub(crate) parts: Parts,
    pub(crate) peer: Peer,
    pub(crate) authenticate: Arc<dyn Authenticate>,
}

impl UpgradeRequest {
    /// Method, version, path and headers.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Principal that sent it.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Principal that the same credentials prove now: with other roles perhaps, or none any more,
    /// if they have been revoked or are expired.
    ///
    /// # Errors
    ///
    /// What would be answered then.
    pub async fn principal_now(&self) -> Authenticated {
        let authenticate = &self.authenticate;
        let asked = authenticate.authenticate(&self.parts, &self.peer);
        asked.outcome().await
    }
}

impl fmt::Debug for UpgradeRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpgradeRequest")
            .field("principal", &self.principal)
            .field("path", &self.parts.uri.path())
            .finish_non_exhaustive()
    }
}

/// Future that serves a connection after its upgrade. It ends with the connection; it is dropped,
/// if it takes longer to end than a server that stops waits for.
pub type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A change of protocol.
pub struct Upgraded {
    pub(crate) protocol: HeaderValue,
    pub(crate) headers: HeaderMap,
    serve: Box<dyn FnOnce(UpgradedSocket, Stopping) -> Serving + Send>,
}

impl Upgraded {
    /// Goes on with `protocol`, as `Upgrade` names it, and with what `serve` makes of the connection.
    pub fn new(
        protocol: HeaderValue,
        serve: impl FnOnce(UpgradedSocket, Stopping) -> Serving + Send + 'static,
    ) -> Self {
        Self {
            protocol,
            headers: HeaderMap::new(),
            serve: Box::new(serve),
        }
    }

    /// Says so in the answer.
    #[must_use]
    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    pub(crate) fn serve(self, socket: UpgradedSocket, closing: watch::Receiver<()>) -> Serving {
        (self.serve)(socket, Stopping(closing))
    }
}

impl fmt::Debug for Upgraded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upgraded")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

/// A connection that speaks HTTP no more. What its client has sent already is still to be read.
/// Writing fails when nothing is taken for [`HttpLimits::write_timeout`].
///
/// [`HttpLimits::write_timeout`]: crate::options::HttpLimits::write_timeout
#[derive(Debug)]
pub struct UpgradedSocket(Rewound);

impl UpgradedSocket {
    pub(crate) fn new(socket: Rewound) -> Self {
        Self(socket)
    }
}

impl AsyncRead for UpgradedSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for UpgradedSocket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Signal that the server stops.
#[derive(Debug)]
pub struct Stopping(watch::Receiver<()>);

impl Stopping {
    /// Resolves when it is to.
    pub async fn begun(mut self) {
        // An error means that there is no server any more.
        let _ = self.0.changed().await;
    }
}

/// Protocol that a connection goes on with, once it has answered so.
#[derive(Debug, Default)]
pub(crate) struct Change(Mutex<Option<Upgraded>>);

impl Change {
    pub(crate) fn set(&self, upgraded: Upgraded) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(upgraded);
    }

    pub(crate) fn take(&self) -> Option<Upgraded> {
        let mut change = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change.take()
    }
}
