//! One connection, from its beginning to its end.

pub(crate) mod explained;
pub(crate) mod frames;

use crate::{
    connection::{explained::Explained, frames::Frames},
    endpoint::handle,
    limits::{admission::Admitted, idle::Activity, stats::Stats},
    listen::accept::{Arrived, Opened},
    options::HttpLimits,
    request::connection_cx::{ConnectionCx, Listening},
    seams::upgrade::{Upgraded, UpgradedSocket},
    session::detached::DetachedRequests,
    socket::{Rewound, Socket},
};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use hyper::{
    rt::Executor,
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use mcp_service::McpService;
use rustls::PeerMisbehaved;
use std::{
    error::Error,
    future::poll_fn,
    io,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::{Instant, Sleep},
};

/// The most bytes a connection buffers of either direction, unless a head may be longer. What is
/// sent in whole pieces does not count.
const MAX_BUFFER: usize = 64 * 1024;

/// Flow-control windows of HTTP/2: bytes that a client may send of one body before we ask for more,
/// and of all its bodies together.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Streams that a client may reset before we have looked at them; then its connection ends, since
/// connections are flooded that way. Streams that we reset by the client's fault are counted for as
/// long as the connection lives, and refusing a request before its body has come is one: a proxy's
/// connection is left the more generous bound of the library.
const MAX_RESETS: usize = 64;

/// Time for which the rest of a malformed request is read and discarded, and the most of it.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 1024 * 1024;

/// Interval at which a silent client of HTTP/2 is sent a ping, and time that it may take to answer.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);

pub(crate) async fn serve<S>(
    admitted: Admitted,
    arrived: Arrived,
    listening: Arc<Listening<S>>,
    mut closing: watch::Receiver<()>,
) where
    S: McpService,
{
    let address = arrived.address();
    let options = &listening.endpoint.options;
    let limits = options.limits;
    let tls = options.tls.clone();
    let opened = tokio::select! {
        biased;
        opened = arrived.open(&admitted, tls.as_deref(), &limits) => opened,
        _ = closing.changed() => None,
    };
    let Some(opened) = opened else { return };
    let via_proxy = options.trusts(opened.peer.address().map(|address| address.ip()));
    let Opened {
        socket,
        peer,
        shown,
        is_http2,
    } = opened;
    let caller = Arc::new(ConnectionCx {
        listening,
        peer,
        via_proxy,
        activity: Arc::default(),
    });
    let mut life = Life {
        look: Box::pin(tokio::time::sleep(limits.header_timeout)),
        seen: 0,
        is_closing: false,
        activity: Arc::clone(&caller.activity),
        counts: Arc::clone(&caller.endpoint().counts),
        patience: limits.header_timeout,
        closing,
        address,
    };
    let served = async {
        if is_http2 {
            Box::pin(http2(socket, Bytes::new(), caller, limits, life)).await;
            return;
        }
        match http1(socket, &caller, &limits, &mut life).await {
            After::Nothing => {}
            After::Http2(socket, read) => {
                Box::pin(http2(socket, read, caller, limits, life)).await;
            }
            After::Upgraded(socket, read, upgraded) => {
                drop(caller);
                let socket = UpgradedSocket::new(Rewound::new(read, socket));
                upgraded.serve(socket, life.closing).await;
            }
        }
    };
    match (shown, tls) {
        (Some(shown), Some(tls)) => {
            // Apart, so that connections of others are none the larger.
            let distrusts = Box::pin(tls.distrusts(shown));
            tokio::select! {
                () = served => {}
                why = distrusts => tracing::info!(
                    ?address,
                    why = %why,
                    "a client's certificate is not accepted any more, so its connection was closed"
                ),
            }
        }
        _ => served.await,
    }
}

/// Continuation of a connection after HTTP/1.1, with the bytes that were read of it.
enum After {
    Nothing,
    /// The connection began as HTTP/2.
    Http2(Socket, Bytes),
    Upgraded(Socket, Bytes, Upgraded),
}

/// Idle timeout of a connection, which ends it if its client does not.
struct Life {
    look: Pin<Box<Sleep>>,
    seen: u32,
    is_closing: bool,
    activity: Arc<Activity>,
    counts: Arc<Stats>,
    patience: Duration,
    closing: watch::Receiver<()>,
    address: Option<SocketAddr>,
}

/// Step that a connection is to take.
enum Turn {
    /// End: nothing has happened for too long.
    GiveUp,
    /// End when what has begun has ended.
    WindUp,
}

impl Life {
    /// Resolves when the connection is to do something by itself. It is polled with every request of the connection,
    /// and looks then at nothing that has not woken it.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when this is dropped.
    async fn turn(&mut self) -> Turn {
        let mut waiting = FuturesUnordered::from_iter([self.next_turn()]);
        waiting.next().await.unwrap_or(Turn::GiveUp)
    }

    async fn next_turn(&mut self) -> Turn {
        loop {
            tokio::select! {
                biased;
                () = &mut self.look => {
                    if self.activity.has_stalled(&mut self.seen) {
                        tracing::debug!(address = ?self.address, "an idle connection was closed");
                        return Turn::GiveUp;
                    }
                    self.look.as_mut().reset(Instant::now() + self.patience);
                }
                _ = self.closing.changed(), if !self.is_closing => {
                    self.is_closing = true;
                    return Turn::WindUp;
                }
            }
        }
    }

    fn ended(&self, error: &hyper::Error) {
        if self.activity.is_flooded() || has_given_up(error) {
            self.counts.http2_floods.ended("http/2", &self.address);
        } else if has_tls_flooded(error) {
            self.counts.tls_floods.ended("tls", &self.address);
        }
        tracing::debug!(
            error = error as &dyn Error,
            address = ?self.address,
            "a connection ended badly"
        );
    }
}

/// True if the HTTP/2 library has ended the connection because of a flood.
fn has_given_up(error: &hyper::Error) -> bool {
    let error = error.source().and_then(|it| it.downcast_ref::<h2::Error>());
    error.is_some_and(|it| it.is_library() && it.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

/// True if the TLS library has ended the connection: it bounds key changes, renegotiations and warnings
/// itself.
fn has_tls_flooded(error: &hyper::Error) -> bool {
    let source = error.source();
    let io = source.and_then(|it| {
        let of_http2 = it.downcast_ref::<h2::Error>().and_then(h2::Error::get_io);
        of_http2.or_else(|| it.downcast_ref())
    });
    let tls = io
        .and_then(io::Error::get_ref)
        .and_then(|it| it.downcast_ref());
    matches!(
        tls,
        Some(rustls::Error::PeerMisbehaved(
            PeerMisbehaved::TooManyKeyUpdateRequests
                | PeerMisbehaved::TooManyRenegotiationRequests
                | PeerMisbehaved::TooManyWarningAlertsReceived
        ))
    )
}

/// Ends a connection whose client may still be sending, and would not read an answer if it were just
/// closed.
async fn hang_up(mut socket: Socket) {
    let ending = async {
        poll_fn(|cx| Pin::new(&mut socket).poll_shutdown(cx)).await?;
        let (mut ignored, mut left) = ([0; 4096], LINGER_BYTES);
        loop {
            let mut buffer = ReadBuf::new(&mut ignored);
            poll_fn(|cx| Pin::new(&mut socket).poll_read(cx, &mut buffer)).await?;
            match (buffer.filled().len(), left) {
                (0, _) | (_, 0) => return io::Result::Ok(()),
                (length, _) => left = left.saturating_sub(length),
            }
        }
    };
    // Whoever does not want to hear it need not.
    let _ = tokio::time::timeout(LINGER, ending).await;
}

/// Speaks HTTP/1.1, as long as that is what is spoken.
async fn http1<S>(
    socket: Socket,
    caller: &Arc<ConnectionCx<S>>,
    limits: &HttpLimits,
    life: &mut Life,
) -> After
where
    S: McpService,
{
    let service = service_fn(|request| handle(Arc::clone(caller), request));
    // The time for a head is measured by its life, without a timer for each request.
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(limits.max_header_bytes)
        .max_buf_size(limits.max_header_bytes.max(MAX_BUFFER))
        .serve_connection(
            TokioIo::new(Explained::new(socket, limits.max_header_bytes)),
            service,
        );
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => match ended {
                Err(error) if error.is_parse_version_h2() => {
                    let parts = connection.into_parts();
                    return After::Http2(parts.io.into_inner().into_inner(), parts.read_buf);
                }
                Err(error) => {
                    life.ended(&error);
                    if error.is_parse() {
                        // What is still to be read would take the answer along.
                        let socket = connection.into_parts().io.into_inner().into_inner();
                        Box::pin(hang_up(socket)).await;
                    }
                    return After::Nothing;
                }
                // It has not been shut down then.
                Ok(()) if let Some(upgraded) = caller.activity.change.take() => {
                    let parts = connection.into_parts();
                    let socket = parts.io.into_inner().into_inner();
                    return After::Upgraded(socket, parts.read_buf, upgraded);
                }
                Ok(()) => return After::Nothing,
            },
            turn = life.turn() => match turn {
                Turn::GiveUp => return After::Nothing,
                Turn::WindUp => Pin::new(&mut connection).graceful_shutdown(),
            },
        }
    }
}

/// Speaks HTTP/2. Its requests have tasks of their own, among what is left over: they end with it, or
/// are waited for as those are.
async fn http2<S>(
    socket: Socket,
    read: Bytes,
    caller: Arc<ConnectionCx<S>>,
    limits: HttpLimits,
    mut life: Life,
) where
    S: McpService,
{
    let streams = Streams(Arc::clone(&caller.listening.detached));
    let frames = Frames::new(
        Rewound::new(read, socket),
        limits.max_control_frames_per_second,
        Arc::clone(&caller.activity),
    );
    let service = service_fn(move |request| handle(Arc::clone(&caller), request));
    let small = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
    let mut connection = pin!(
        http2::Builder::new(streams)
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.max_streams_per_connection)
            // Its refusals have no body: what is not much too long is refused with ours.
            .max_header_list_size(small(limits.max_header_bytes.saturating_mul(2)))
            .max_pending_accept_reset_streams(MAX_RESETS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(MAX_BUFFER)
            .keep_alive_interval(PING)
            .keep_alive_timeout(PONG)
            .serve_connection(TokioIo::new(frames), service)
    );
    let mut is_given_up = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    life.ended(&error);
                }
                return;
            }
            turn = life.turn() => match turn {
                // Its client may just be sending something, and is told that it was not looked at.
                Turn::GiveUp if !is_given_up => {
                    is_given_up = true;
                    connection.as_mut().graceful_shutdown();
                    life.look.as_mut().reset(Instant::now() + PONG);
                }
                Turn::GiveUp => return,
                Turn::WindUp => connection.as_mut().graceful_shutdown(),
            },
        }
    }
}

/// Runs the requests of a connection of HTTP/2.
#[derive(Clone, Debug)]
struct Streams(Arc<DetachedRequests>);

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        self.0.carry_on(request);
    }
}
