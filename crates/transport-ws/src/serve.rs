//! Serving of one client on a WebSocket.

use crate::{
    Place,
    metered::{Flooded, Metered, NoRoom},
};
use bytes::Bytes;
use futures_util::{Sink, Stream, StreamExt};
use jsonrpc_core::Frame;
use mcp_service::{
    Connection, Drain, Engine, Framing, Input, LAST_ANSWERS, McpService, Outbox, Principal,
    TransportKind, serve_duplex,
};
use std::{
    error::Error as _,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, Sleep, sleep_until},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message, Utf8Bytes,
        error::{CapacityError, ProtocolError},
        protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode},
    },
};

/// Bytes that are read at once, for which each connection has a buffer all the time.
const READ_BUFFER: usize = 8 * 1024;

/// From how many bytes on answers are written without waiting for more of them, and until they are
/// taken no more are made.
const WRITE_BUFFER: usize = 16 * 1024;

/// Time that a client may take to close the connection.
const LEAVE: Duration = Duration::from_secs(2);

/// Authentication of the client at the other end. Repeated with every message, and from time to
/// time without one, since its credentials may be revoked, and its roles may change, while it is
/// connected.
pub trait Identify: Send + Sync {
    /// Principal that the credentials of the upgrade request prove now; `None` if they prove none.
    fn identify(&self) -> Identifying<'_>;
}

/// An answer of [`Identify`].
pub type Identifying<'a> = Pin<Box<dyn Future<Output = Option<Principal>> + Send + 'a>>;

/// Reason why a WebSocket has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has closed it, or has gone.
    Left,
    /// The server stops, and everything that was asked is answered.
    Stopped,
    /// The server stops, and some requests were not done in time.
    DrainTimedOut {
        /// Number of requests that were given up.
        given_up: usize,
    },
    /// The server closed it for something its client did, and told the client.
    Closed {
        /// As in RFC 6455 §7.4.1.
        code: u16,
        /// In words.
        why: &'static str,
    },
}

/// Serves one client on a connection that has become a WebSocket, until that ends or `stop` resolves.
///
/// # Cancel safety
///
/// Dropping the future cancels every request in flight.
pub async fn serve<S>(
    engine: &Arc<Engine<S>>,
    place: &Place,
    identify: &dyn Identify,
    connection: impl AsyncRead + AsyncWrite + Unpin,
    stop: impl Future<Output = ()>,
) -> End
where
    S: McpService,
{
    let max_message = engine.limits().frames.max_frame;
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_message_size(Some(max_message))
        .max_frame_size(Some(max_message));
    let connection = Metered::new(connection, place, max_message);
    let socket = WebSocketStream::from_raw_socket(connection, Role::Server, Some(config)).await;
    let kind = TransportKind::WebSocket;
    let principal = place.principal().clone();
    let session = Some(Arc::clone(place.session()));
    let connection = Connection::new(principal.clone(), kind, session, Outbox::default());
    let mut client = Client {
        place,
        connection: &connection,
        principal,
        socket,
        ping: place.options().ping,
        identify,
        identifying: None,
        has_taken: false,
        look: Box::pin(sleep_until(Instant::now())),
        is_asked: false,
        was_unfinished: false,
    };
    client.look_again();
    let drain = Drain {
        limit: place.options().drain,
        // Leave is taken in the other half.
        last_answers: LAST_ANSWERS / 2,
    };
    let end = match serve_duplex(engine, &connection, &mut client, stop, drain).await {
        Ok(mcp_service::End::DrainTimedOut { given_up }) => End::DrainTimedOut { given_up },
        Ok(_) => End::Stopped,
        Err(end) => end,
    };
    match end {
        End::Left => {}
        End::Closed { code, why } => client.leave(CloseCode::from(code), why).await,
        _ => client.leave(CloseCode::Away, "the server stops").await,
    }
    end
}

struct Client<'a, T> {
    place: &'a Place,
    connection: &'a Arc<Connection>,
    /// As it was when it was asked for last.
    principal: Principal,
    socket: WebSocketStream<Metered<'a, T>>,
    ping: Duration,
    identify: &'a dyn Identify,
    /// The question who it is, and the message that waits for the answer; nothing is read meanwhile.
    identifying: Option<(Option<Bytes>, Identifying<'a>)>,
    /// True if a message was taken since the last flush.
    has_taken: bool,
    /// Time of the next check.
    look: Pin<Box<Sleep>>,
    /// True if a ping was sent.
    is_asked: bool,
    /// True if a message was incomplete at the last check.
    was_unfinished: bool,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Client<'_, T> {
    /// Closes the WebSocket, and waits for its client to agree, so that nothing it was sent is lost.
    async fn leave(&mut self, code: CloseCode, why: &'static str) {
        let leave = async {
            let reason = Utf8Bytes::from_static(why);
            let frame = Message::Close(Some(CloseFrame { code, reason }));
            if Pin::new(&mut self.socket).start_send(frame).is_err() {
                return;
            }
            let flushed = poll_fn(|cx| Pin::new(&mut self.socket).poll_flush(cx));
            if flushed.await.is_err() {
                return;
            }
            // What it still says is not looked at.
            while let Some(Ok(_)) = self.socket.next().await {
                self.socket.get_mut().message_was_read();
            }
        };
        // Whether it does or not.
        let _ = tokio::time::timeout(LEAVE, leave).await;
    }

    /// Takes what the client says, and looks after it.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Result<Input, End>> {
        if let Some((_, identifying)) = &mut self.identifying {
            let Poll::Ready(principal) = identifying.as_mut().poll(cx) else {
                return Poll::Pending;
            };
            let message = self.identifying.take().and_then(|(message, _)| message);
            return Poll::Ready(self.identified(principal, message));
        }
        if self.look.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.look_after());
        }
        let Poll::Ready(message) = Pin::new(&mut self.socket).poll_next(cx) else {
            return Poll::Pending;
        };
        let message = match message {
            None => return Poll::Ready(Err(End::Left)),
            Some(Err(error)) => return Poll::Ready(Err(self.ended_by(&error))),
            Some(Ok(message)) => message,
        };
        let metered = self.socket.get_mut();
        match message {
            Message::Text(text) => {
                metered.message_was_read();
                self.ask(Some(text.into()));
            }
            Message::Binary(_) => {
                return Poll::Ready(Err(End::Closed {
                    code: CloseCode::Unsupported.into(),
                    why: "messages are texts",
                }));
            }
            // They come between the pieces of messages too. Pings are answered by the
            // library, with the next flush.
            Message::Ping(payload) | Message::Pong(payload) => {
                metered.control_was_read(payload.len());
            }
            _ => {}
        }
        Poll::Ready(Ok(Input::Flush))
    }

    /// Asks who is at the other end.
    fn ask(&mut self, message: Option<Bytes>) {
        let identify = self.identify;
        self.identifying = Some((message, identify.identify()));
    }

    fn identified(
        &mut self,
        principal: Option<Principal>,
        message: Option<Bytes>,
    ) -> Result<Input, End> {
        let Some(principal) = principal.filter(|it| it == self.connection.principal()) else {
            return Err(End::Closed {
                code: CloseCode::Policy.into(),
                why: "what this was opened with proves nothing any more",
            });
        };
        let is_expiry_new = principal.expires() != self.principal.expires();
        self.principal = principal;
        if message.is_none() {
            // What it hears without asking depends on the roles that it has now.
            self.connection.seen_as(&self.principal);
        }
        if message.is_none() || is_expiry_new {
            self.look_again();
        }
        self.has_taken = message.is_some();
        Ok(message.map_or(Input::Flush, Input::Message))
    }

    /// Sees whether the client is still there and gets on, and asks who it is.
    fn look_after(&mut self) -> Result<Input, End> {
        let metered = self.socket.get_mut();
        let has_said_something = metered.has_said_something();
        let is_unfinished = metered.is_unfinished();
        if self.is_asked && !has_said_something {
            return Err(End::Left);
        }
        if is_unfinished && self.was_unfinished {
            return Err(End::Closed {
                code: CloseCode::Policy.into(),
                why: "a message takes too long to come",
            });
        }
        self.was_unfinished = is_unfinished;
        self.is_asked = !has_said_something;
        self.ask(None);
        if self.is_asked {
            let ping = Message::Ping(Bytes::new());
            if Pin::new(&mut self.socket).start_send(ping).is_err() {
                return Err(End::Left);
            }
        }
        Ok(Input::Flush)
    }

    /// Sets the time at which the client is looked after next: when what it has proved itself by is
    /// over at the latest.
    fn look_again(&mut self) {
        let left = self.principal.expires().map(|expires| {
            let left = expires.duration_since(SystemTime::now());
            // By then it is over, however it is rounded.
            left.unwrap_or_default() + Duration::from_millis(1)
        });
        let next = left.map_or(self.ping, |left| left.min(self.ping));
        self.look.as_mut().reset(Instant::now() + next);
    }

    /// The close frame for an error, which tells the client its mistake.
    fn ended_by(&self, error: &tungstenite::Error) -> End {
        let is = |error: &std::io::Error, is: fn(&Cause) -> bool| error.get_ref().is_some_and(is);
        let (code, why) = match error {
            tungstenite::Error::Io(error) if is(error, |it| it.is::<NoRoom>()) => {
                (CloseCode::Again, "too much is on its way; try again")
            }
            tungstenite::Error::Io(error) if is(error, |it| it.is::<Flooded>()) => {
                self.place.flooded();
                (CloseCode::Policy, "too many frames without payload")
            }
            tungstenite::Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                (CloseCode::Size, "the message is too large")
            }
            tungstenite::Error::Utf8(_) => (CloseCode::Invalid, "the text is not UTF-8"),
            tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                return End::Left;
            }
            tungstenite::Error::Protocol(error) => {
                tracing::debug!(%error, "a client does not speak WebSocket");
                (CloseCode::Protocol, "this is not WebSocket")
            }
            error => {
                tracing::debug!(error = error.source(), "a WebSocket broke");
                return End::Left;
            }
        };
        End::Closed {
            code: code.into(),
            why,
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Framing for Client<'_, T> {
    type Broken = End;

    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<Input, End>> {
        if std::mem::take(&mut self.has_taken) {
            return Poll::Ready(Ok(Input::Flush));
        }
        self.poll_client(cx)
    }

    fn sender<'a>(&'a self, _: &'a Connection) -> &'a Principal {
        &self.principal
    }

    fn has_room(&mut self, cx: &mut Context<'_>) -> bool {
        Pin::new(&mut self.socket).poll_ready(cx).is_ready()
            && (!self.socket.get_ref().is_write_waiting()
                || Pin::new(&mut self.socket).poll_flush(cx).is_ready())
    }

    fn put(&mut self, frame: Frame) -> Result<(), End> {
        // JSON that is no text is nothing that we make.
        let text = Utf8Bytes::try_from(frame.into_bytes()).map_err(|_| End::Left)?;
        let sent = Pin::new(&mut self.socket).start_send(Message::Text(text));
        sent.map_err(|_| End::Left)
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), End>> {
        let flushed = Pin::new(&mut self.socket).poll_flush(cx);
        flushed.map_err(|_| End::Left)
    }
}

/// Cause within an [`std::io::Error`].
type Cause = dyn std::error::Error + Send + Sync;
