//! Connections to addresses that were checked.

use crate::{Reach, SendError, host, reach::cure};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::{
    error::Error,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::net::TcpStream;

/// Most addresses of a host that are tried.
const MAX_ADDRESSES: usize = 8;

/// Time after which the next address is tried as well (RFC 8305, section 5).
const NEXT_ADDRESS: Duration = Duration::from_millis(300);

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("the host `{0}` has no address")]
    NoAddress(String),
    #[error("the host `{host}` cannot be looked up")]
    Lookup {
        host: String,
        #[source]
        error: io::Error,
    },
    #[error(
        "`{host}` is at {address}, in a network that is not public{}",
        cure(*setting)
    )]
    Private {
        host: String,
        address: IpAddr,
        setting: Option<&'static str>,
    },
    #[error("the server does not speak TLS at this port, which may be one for http://")]
    NoTls,
    #[error("`{host}` does not accept connections")]
    Refused {
        host: String,
        #[source]
        error: io::Error,
    },
}

/// Resolves a name once, checks every address it has, and connects to one of those, so that a name
/// that stands for something else a moment later changes nothing.
#[derive(Clone, Debug)]
pub struct Connector {
    reach: Arc<Reach>,
    timeout: Duration,
}

impl Connector {
    /// `timeout` is how long one address may take.
    pub(crate) fn new(reach: Arc<Reach>, timeout: Duration) -> Self {
        Self { reach, timeout }
    }

    async fn connect(self, host: String, port: u16) -> Result<TcpStream, ConnectError> {
        let addresses = resolve(&host, port).await?;
        let refused = addresses
            .iter()
            .find(|address| !self.reach.allows(&host, address.ip()));
        // One bad address among good ones is no accident, and nobody knows which one comes next.
        if let Some(refused) = refused {
            let address = refused.ip();
            return Err(ConnectError::Private {
                host,
                address,
                setting: self.reach.private_setting(),
            });
        }
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let mut waiting = addresses.into_iter().take(MAX_ADDRESSES);
        let mut tried = FuturesUnordered::new();
        loop {
            let next = waiting.next();
            let is_last = next.is_none();
            tried.extend(
                next.map(|address| tokio::time::timeout(self.timeout, TcpStream::connect(address))),
            );
            let ended = tokio::select! {
                ended = tried.next() => ended,
                () = tokio::time::sleep(NEXT_ADDRESS), if !is_last => continue,
            };
            match ended {
                Some(Ok(Ok(stream))) => {
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "small requests may wait");
                    }
                    return Ok(stream);
                }
                Some(Ok(Err(error))) => last = error,
                Some(Err(_)) => last = io::ErrorKind::TimedOut.into(),
                None => return Err(ConnectError::Refused { host, error: last }),
            }
        }
    }
}

async fn resolve(host: &str, port: u16) -> Result<Vec<SocketAddr>, ConnectError> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let looked_up = tokio::net::lookup_host((host, port)).await;
    let addresses = looked_up.map_err(|error| ConnectError::Lookup {
        host: host.to_owned(),
        error,
    })?;
    let addresses: Vec<_> = addresses.collect();
    if addresses.is_empty() {
        return Err(ConnectError::NoAddress(host.to_owned()));
    }
    Ok(addresses)
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let host = host::bare(uri.host().unwrap_or_default()).to_owned();
        let default = if uri.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = uri.port_u16().unwrap_or(default);
        let connecting = self.clone().connect(host, port);
        Box::pin(async move { connecting.await.map(TokioIo::new) })
    }
}

/// The first cause of this kind. One that an `io::Error` wraps is not among its sources.
fn cause<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut at = Some(error);
    while let Some(error) = at {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        at = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}

/// Error of a request whose connection could not be opened.
pub(crate) fn connect_error(error: Box<dyn Error + Send + Sync>) -> SendError {
    if let Some(private @ ConnectError::Private { .. }) = cause(&*error) {
        return SendError::Forbidden(private.to_string().into());
    }
    SendError::Unreachable(match cause(&*error) {
        // Its own words are of a corrupt message.
        Some(rustls::Error::InvalidMessage(_)) => Box::new(ConnectError::NoTls),
        _ => error,
    })
}
