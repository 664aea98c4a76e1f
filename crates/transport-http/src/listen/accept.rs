//! Accepting of sockets: TLS handshake, and choice of HTTP/1 or HTTP/2.

use crate::{
    limits::admission::Admitted,
    listen::Listeners,
    options::HttpLimits,
    peer::Peer,
    socket::{Socket, write_timeout::WriteTimeout},
    tls::{PeerCertificates, Tls},
};
use std::{future::pending, io, net::SocketAddr, sync::Arc, time::Duration};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

/// A connection, just accepted.
#[derive(Debug)]
pub(crate) enum Arrived {
    Tcp(TcpStream, SocketAddr),
    #[cfg(unix)]
    Unix(UnixStream),
}

/// A connection on which HTTP is spoken.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) socket: Socket,
    pub(crate) peer: Peer,
    /// The certificates that it has shown, if it has.
    pub(crate) shown: Option<PeerCertificates>,
    /// True if both have agreed on HTTP/2.
    pub(crate) is_http2: bool,
}

impl Listeners {
    /// The next connection.
    ///
    /// # Cancel safety
    ///
    /// No connection is lost when this is dropped.
    pub(crate) async fn accept(&self) -> io::Result<Arrived> {
        let tcp = async {
            match &self.tcp {
                Some(listener) => listener.accept().await,
                None => pending().await,
            }
        };
        #[cfg(unix)]
        let unix = async {
            match &self.unix {
                Some(listener) => listener.accept().await,
                None => pending().await,
            }
        };
        #[cfg(not(unix))]
        let unix = pending::<io::Result<(std::convert::Infallible, ())>>();
        tokio::select! {
            accepted = tcp => accepted.map(|(stream, address)| Arrived::Tcp(stream, address)),
            accepted = unix => accepted.map(|(stream, _)| Arrived::unix(stream)),
        }
    }
}

impl Arrived {
    #[cfg(unix)]
    fn unix(stream: UnixStream) -> Self {
        Self::Unix(stream)
    }

    #[cfg(not(unix))]
    fn unix(never: std::convert::Infallible) -> Self {
        match never {}
    }

    /// Address of the client; `None` on a Unix socket.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(_, address) => Some(*address),
            #[cfg(unix)]
            Self::Unix(_) => None,
        }
    }

    pub(crate) fn is_local(&self) -> bool {
        self.address().is_none()
    }

    /// Writes what can be written without waiting.
    pub(crate) fn try_write(&self, bytes: &[u8]) {
        // Whoever does not get it has gone.
        let _ = match self {
            Self::Tcp(stream, _) => stream.try_write(bytes),
            #[cfg(unix)]
            Self::Unix(stream) => stream.try_write(bytes),
        };
    }

    /// Makes it one on which HTTP is spoken; `None` if it is not to be.
    pub(crate) async fn open(
        self,
        admitted: &Admitted,
        tls: Option<&Tls>,
        limits: &HttpLimits,
    ) -> Option<Opened> {
        match self {
            Self::Tcp(stream, address) => {
                // Answers are whole when they are written; waiting for more only delays them.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "a connection is gone already");
                    return None;
                }
                if let Some(tls) = tls {
                    // In a place of its own: it is large, and soon over.
                    return Box::pin(secure(stream, address, admitted, tls, limits)).await;
                }
                Some(Opened {
                    socket: Socket::Tcp(WriteTimeout::new(stream, limits.write_timeout)),
                    peer: Peer::new(address),
                    shown: None,
                    is_http2: false,
                })
            }
            #[cfg(unix)]
            Self::Unix(stream) => Some(Opened {
                peer: Peer::local(stream.peer_cred().ok().map(|user| user.uid())),
                socket: Socket::Unix(WriteTimeout::new(stream, limits.write_timeout)),
                shown: None,
                is_http2: false,
            }),
        }
    }
}

/// The kind of the record that TLS begins with.
const HANDSHAKE: u8 = 22;

async fn secure(
    stream: TcpStream,
    address: SocketAddr,
    admitted: &Admitted,
    tls: &Tls,
    limits: &HttpLimits,
) -> Option<Opened> {
    let _handshaking = admitted.handshake()?;
    let opening = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Ok(None);
        }
        if first[0] != HANDSHAKE {
            refuse_plain_text(stream, first[0]).await;
            return Ok(None);
        }
        let stream = WriteTimeout::new(stream, limits.write_timeout);
        let current = tls.current();
        let acceptor = TlsAcceptor::from(current.config());
        let accepted = acceptor.accept(stream).await;
        accepted.map(|stream| Some((stream, current)))
    };
    let (stream, current) = match timeout(limits.handshake_timeout, opening).await {
        Ok(Ok(stream)) => stream?,
        Ok(Err(error)) => {
            tracing::debug!(%error, %address, "a handshake failed");
            return None;
        }
        Err(_) => {
            tracing::debug!(%address, "a handshake took too long");
            return None;
        }
    };
    let session = stream.get_ref().1;
    let chain = session.peer_certificates().unwrap_or_default();
    let certificate = chain.first().map(|it| Arc::from(it.as_ref()));
    let shown = certificate.is_some().then(|| PeerCertificates {
        chain: chain.iter().map(|it| it.clone().into_owned()).collect(),
        by: current,
    });
    Some(Opened {
        peer: Peer::new(address).encrypted(certificate),
        shown,
        is_http2: session.alpn_protocol() == Some(b"h2"),
        socket: Socket::Tls(Box::new(stream)),
    })
}

const PLAIN_TEXT: &str = r#"{"jsonrpc":"2.0","error":{"code":-32600,"message":"this port speaks TLS: use https://","data":{"retryable":false}}}"#;

/// Time for which, and bytes up to which, a refused client's input is read and discarded: it would
/// not read the answer if we hung up before.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: u64 = 64 * 1024;

/// Sends a client that speaks HTTP without TLS the reason of the refusal; other clients would not
/// understand.
async fn refuse_plain_text(mut stream: TcpStream, first: u8) {
    tracing::debug!("a connection to the port of TLS began in plain text");
    if !first.is_ascii_uppercase() {
        return;
    }
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{PLAIN_TEXT}",
        PLAIN_TEXT.len()
    );
    let telling = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES), &mut tokio::io::sink()).await
    };
    // Whoever does not want to hear it need not.
    let _ = timeout(LINGER, telling).await;
}
