//! One JSON text in each message of a WebSocket.

use crate::{
    Authorize, Error,
    wire::link::{Duplex, End, Link, Outbox, UNREAD},
    wire::shared::Shared,
};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, header, uri::Scheme};
use http_client::Client;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};
use tokio_tungstenite::{
    client_async_with_config,
    tungstenite::{Message, Utf8Bytes, handshake::client::generate_key, protocol::WebSocketConfig},
};

/// Opens a WebSocket at `url` (`ws` or `wss`).
pub(crate) async fn open(
    shared: &Arc<Shared>,
    client: &Client,
    url: &Uri,
    headers: &HeaderMap,
    authorize: Option<&Arc<dyn Authorize>>,
) -> Result<Link, Error> {
    let until = Instant::now() + shared.bounds.timeout;
    let within = shared.bounds.timeout;
    let opening = handshake(shared, client, url, headers, authorize);
    let opened = tokio::time::timeout_at(until, opening).await;
    let (socket, written) = opened.map_err(|_| Error::TimedOut {
        method: "the WebSocket's handshake",
        within,
        note: String::new(),
    })??;
    let (mut sink, mut stream) = socket.split();
    let (out, mut queue) = Outbox::new(&shared.bounds);
    let mut pongs = Pongs::new(written);
    let said = Arc::clone(&pongs.said);
    let writing = tokio::spawn(async move {
        while let Some(queued) = queue.recv().await {
            let Some((message, _place)) = queued.taken() else {
                continue;
            };
            let Ok(text) = Utf8Bytes::try_from(message) else {
                continue;
            };
            let length = frame_length(text.len());
            if sink.send(Message::Text(text)).await.is_err() {
                break;
            }
            said.fetch_add(length, Ordering::Relaxed);
        }
        // The other end may be gone already.
        let _ = sink.close().await;
    });
    let reading = tokio::spawn({
        let shared = Arc::clone(shared);
        async move {
            let reason = loop {
                match stream.next().await {
                    Some(Ok(Message::Text(text))) => {
                        if let Err(error) = shared.frame(&Bytes::from(text)) {
                            break error.into_reason();
                        }
                    }
                    Some(Ok(Message::Ping(payload))) => {
                        if !pongs.has_room(payload.len()) {
                            let most = MAX_UNSENT_PONGS;
                            break format!("{UNREAD}: {most} bytes of answers to its pings wait");
                        }
                    }
                    Some(Ok(Message::Close(Some(close)))) => {
                        let why = shared.quoted(close.reason.as_bytes());
                        break format!("the server has closed it ({}: {why})", close.code);
                    }
                    Some(Ok(Message::Close(None))) => break "the server has closed it".to_owned(),
                    Some(Ok(Message::Binary(_))) => break "it has sent binary data".to_owned(),
                    Some(Ok(_)) => {}
                    Some(Err(error)) => break error.to_string(),
                    None => break "the server has closed it".to_owned(),
                }
            };
            shared.close(&reason);
        }
    });
    let end = End::Within(shared.bounds.close_patience);
    let duplex = Duplex::new(out, reading.abort_handle(), Some(writing), end);
    Ok(Link::Duplex(duplex))
}

/// Most bytes of answers to pings that wait for the server to read them. The library queues them without a bound.
const MAX_UNSENT_PONGS: u64 = 256 << 10;

/// Answers to pings, which the library writes by itself.
struct Pongs {
    /// Bytes that the connection has taken since it was opened.
    written: Arc<AtomicU64>,
    /// Bytes of messages of ours that were written.
    said: Arc<AtomicU64>,
    /// Bytes of the answers so far.
    answered: u64,
    /// Bytes of the handshake.
    before: u64,
}

impl Pongs {
    fn new(written: Arc<AtomicU64>) -> Self {
        let before = written.load(Ordering::Relaxed);
        Self {
            written,
            said: Arc::default(),
            answered: 0,
            before,
        }
    }

    /// Counts one more; false if too much waits. A message of ours that is being written counts for nothing, so that
    /// a long one does not end a connection.
    fn has_room(&mut self, payload: usize) -> bool {
        self.answered += frame_length(payload);
        let all = self.before + self.answered + self.said.load(Ordering::Relaxed);
        all.saturating_sub(self.written.load(Ordering::Relaxed)) <= MAX_UNSENT_PONGS
    }
}

/// Bytes of a frame of a client (RFC 6455 §5.2): two, the longer length, the mask, and what it carries.
fn frame_length(payload: usize) -> u64 {
    let length = match payload {
        0..=125 => 0,
        126..=65_535 => 2,
        _ => 8,
    };
    2 + length + 4 + payload as u64
}

/// A connection whose written bytes are counted.
struct Counted {
    connection: http_client::Connection,
    written: Arc<AtomicU64>,
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.connection).poll_write(cx, bytes))?;
        self.written.fetch_add(written as u64, Ordering::Relaxed);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_shutdown(cx)
    }
}

type Socket = tokio_tungstenite::WebSocketStream<Counted>;

async fn handshake(
    shared: &Shared,
    client: &Client,
    url: &Uri,
    headers: &HeaderMap,
    authorize: Option<&Arc<dyn Authorize>>,
) -> Result<(Socket, Arc<AtomicU64>), Error> {
    let address = |reason: &str| Error::Address {
        url: url.to_string(),
        reason: reason.to_owned(),
    };
    let mut parts = url.clone().into_parts();
    parts.scheme = Some(match url.scheme_str() {
        Some("wss") => Scheme::HTTPS,
        _ => Scheme::HTTP,
    });
    let as_http = Uri::from_parts(parts).map_err(|_| address("it has no host"))?;
    let host = url.authority().ok_or_else(|| address("it has no host"))?;
    let host = host.as_str().rsplit('@').next().unwrap_or_default();
    let mut attempt = authorize.map(|it| it.attempt());
    let mut repeated = 0;
    loop {
        let mut request = Request::new(());
        *request.uri_mut() = url.clone();
        let all = request.headers_mut();
        all.extend(headers.clone());
        let mut put = |name, value: &str| {
            if let Ok(value) = HeaderValue::try_from(value) {
                all.insert(name, value);
            }
        };
        put(header::HOST, host);
        put(header::CONNECTION, "Upgrade");
        put(header::UPGRADE, "websocket");
        put(header::SEC_WEBSOCKET_VERSION, "13");
        put(header::SEC_WEBSOCKET_KEY, &generate_key());
        put(header::SEC_WEBSOCKET_PROTOCOL, "mcp");
        if let Some(attempt) = &mut attempt {
            let url = as_http.to_string();
            let authorized = attempt.authorize(&Method::GET, &url, all).await;
            authorized.map_err(|why| Error::unauthorized(401, why))?;
            shared.keep_secrets(all);
        }
        let written = Arc::<AtomicU64>::default();
        let stream = Counted {
            connection: client.connect(as_http.clone()).await?,
            written: Arc::clone(&written),
        };
        let max = shared.bounds.max_message;
        let config = WebSocketConfig::default()
            .max_message_size(Some(max))
            .max_frame_size(Some(max));
        let response = match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => return Ok((socket, written)),
            Err(tokio_tungstenite::tungstenite::Error::Http(response)) => response,
            Err(error) => return Err(address(&error.to_string())),
        };
        let status = response.status().as_u16();
        if let Some(attempt) = &mut attempt {
            let again = attempt.judge(response.status(), response.headers()).await;
            let again = again.map_err(|why| Error::unauthorized(status, why))?;
            repeated += 1;
            if again && repeated <= shared.bounds.max_authorizations {
                continue;
            }
        }
        let body = shared.quoted(response.body().as_deref().unwrap_or_default());
        return Err(match status {
            401 | 403 => Error::Unauthorized {
                status,
                reason: body,
            },
            _ => {
                let (later, retry_after) = shared.retry_after(&response);
                Error::Status {
                    status,
                    body: body + &later,
                    retry_after,
                }
            }
        });
    }
}
