use crate::{
    Place,
    metered::{Flooded, Metered, NoRoom},
};
use bytes::Bytes;
use futures_util::{Sink, Stream, StreamExt, stream::FuturesUnordered};
use mcp_service::{
    Accepted, Connection, Engine, Exchange, LAST_ANSWERS, McpService, Outbox, Principal, Reply,
    TransportKind,
};
use std::{
    error::Error as _,
    future::poll_fn,
    pin::{Pin, pin},
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

/// What is read at once, which each connection has room for all the time.
const READ_BUFFER: usize = 8 * 1024;

/// From how many bytes on answers are written without waiting for more of them, and until they are
/// taken no more are made.
const WRITE_BUFFER: usize = 16 * 1024;

/// How long a client may take to take leave.
const LEAVE: Duration = Duration::from_secs(2);

/// Who is at the other end. Asked with every message, and from time to time without one, since what
/// somebody has proved itself by may be revoked, and its roles may change, while it is connected.
pub trait Identify: Send + Sync {
    /// Whom what came when the WebSocket was opened proves now; `None` if nobody.
    fn identify(&self) -> Identifying<'_>;
}

/// An answer of [`Identify`].
pub type Identifying<'a> = Pin<Box<dyn Future<Output = Option<Principal>> + Send + 'a>>;

/// Why a WebSocket has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Its client has closed it, or has gone.
    Left,
    /// The server stops, and everything that was asked is answered.
    Stopped,
    /// The server stops, and some requests were not done in time.
    DrainTimedOut {
        /// How many were given up.
        given_up: usize,
    },
    /// It was closed for what its client has done, which it was told.
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
    let outbox = Outbox::default();
    let kind = TransportKind::WebSocket;
    let principal = place.principal().clone();
    let session = Some(Arc::clone(place.session()));
    let connection = Connection::new(principal.clone(), kind, session, outbox.clone());
    let mut client = Client {
        engine,
        place,
        connection: &connection,
        principal,
        outbox,
        socket,
        exchanges: FuturesUnordered::new(),
        is_unsent: false,
        is_held_back: false,
        ping: place.options().ping,
        identify,
        identifying: None,
        look: Box::pin(sleep_until(Instant::now())),
        is_asked: false,
        was_unfinished: false,
    };
    client.look_again();
    let end = client.run(stop, place.options().drain).await;
    connection.close();
    end
}

struct Client<'a, S, T> {
    engine: &'a Arc<Engine<S>>,
    place: &'a Place,
    connection: &'a Arc<Connection>,
    /// As it was when it was asked for last.
    principal: Principal,
    outbox: Outbox,
    socket: WebSocketStream<Metered<'a, T>>,
    exchanges: FuturesUnordered<Exchange>,
    /// Whether something was put into the socket since all of it was taken.
    is_unsent: bool,
    /// Whether something was left for lack of room.
    is_held_back: bool,
    ping: Duration,
    identify: &'a dyn Identify,
    /// The question who it is, and the message that waits for the answer; nothing is read meanwhile.
    identifying: Option<(Option<Bytes>, Identifying<'a>)>,
    /// When it is looked after next.
    look: Pin<Box<Sleep>>,
    /// Whether it was asked for a sign of life.
    is_asked: bool,
    /// Whether a message was on its way when it was looked after last.
    was_unfinished: bool,
}

/// What [`Client::turn`] came to.
enum Turn {
    /// Something was done; there may be more.
    Again,
    /// All that can be done is done.
    Idle,
    End(End),
}

impl<S, T> Client<'_, S, T>
where
    S: McpService,
    T: AsyncRead + AsyncWrite + Unpin,
{
    async fn run(&mut self, stop: impl Future<Output = ()>, drain: Duration) -> End {
        let mut stop = pin!(stop);
        let end = poll_fn(|cx| {
            loop {
                if stop.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(End::Stopped);
                }
                match self.turn(cx, true) {
                    Turn::Again => {}
                    Turn::Idle => return Poll::Pending,
                    Turn::End(end) => return Poll::Ready(end),
                }
            }
        })
        .await;
        match end {
            End::Left => return end,
            End::Closed { code, why } => self.leave(CloseCode::from(code), why).await,
            _ => return self.wind_down(drain).await,
        }
        end
    }

    /// Answers what was asked, and takes leave.
    async fn wind_down(&mut self, drain: Duration) -> End {
        self.connection.wind_down();
        // Nobody is asked who it is any more; what waits for that is not begun.
        self.identifying = None;
        let connection = Arc::clone(self.connection);
        let end = {
            let mut answered = pin!(poll_fn(|cx| {
                loop {
                    match self.turn(cx, false) {
                        Turn::Again => {}
                        Turn::Idle if self.exchanges.is_empty() && !self.is_unsent => {
                            return Poll::Ready(End::Stopped);
                        }
                        Turn::Idle => return Poll::Pending,
                        Turn::End(end) => return Poll::Ready(end),
                    }
                }
            }));
            match tokio::time::timeout(drain, &mut answered).await {
                Ok(end) => Ok(end),
                Err(_) => {
                    connection.give_up();
                    tokio::time::timeout(LAST_ANSWERS / 2, answered).await
                }
            }
        };
        let end = end.unwrap_or_else(|_| End::DrainTimedOut {
            given_up: self.exchanges.len(),
        });
        if end != End::Left {
            self.leave(CloseCode::Away, "the server stops").await;
        }
        end
    }

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

    /// Does what can be done.
    fn turn(&mut self, cx: &mut Context<'_>, reads: bool) -> Turn {
        let mut again = false;
        self.is_held_back = false;
        while self.has_room(cx)
            && let Poll::Ready(Some(reply)) = self.exchanges.poll_next_unpin(cx)
        {
            again = true;
            if self.put_reply(reply).is_err() {
                return Turn::End(End::Left);
            }
        }
        while self.has_room(cx)
            && let Poll::Ready(Some(frame)) = self.outbox.poll_next(cx)
        {
            again = true;
            if self.put(frame).is_err() {
                return Turn::End(End::Left);
            }
        }
        if reads {
            match self.poll_client(cx) {
                Poll::Pending => {}
                Poll::Ready(None) => again = true,
                Poll::Ready(Some(end)) => return Turn::End(end),
            }
        }
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Pending => {}
            Poll::Ready(Ok(())) => {
                self.is_unsent = false;
                // What was left for lack of room has registered no waker.
                again |= self.is_held_back;
            }
            Poll::Ready(Err(_)) => return Turn::End(End::Left),
        }
        if again { Turn::Again } else { Turn::Idle }
    }

    /// Whether its client has taken so much that it gets more. Otherwise nothing more is read from it
    /// either, and what it asked for before stands still; one answer at most is made that goes beyond
    /// the buffer.
    fn has_room(&mut self, cx: &mut Context<'_>) -> bool {
        let has_room = Pin::new(&mut self.socket).poll_ready(cx).is_ready()
            && (!self.socket.get_ref().is_write_waiting()
                || Pin::new(&mut self.socket).poll_flush(cx).is_ready());
        self.is_held_back |= !has_room;
        has_room
    }

    /// Takes what the client says, and looks after it; `None` if something was done.
    fn poll_client(&mut self, cx: &mut Context<'_>) -> Poll<Option<End>> {
        if let Some((_, identifying)) = &mut self.identifying {
            let Poll::Ready(principal) = identifying.as_mut().poll(cx) else {
                return Poll::Pending;
            };
            let message = self.identifying.take().and_then(|(message, _)| message);
            return Poll::Ready(self.identified(principal, message, cx));
        }
        if self.look.as_mut().poll(cx).is_ready() {
            return Poll::Ready(self.look_after());
        }
        if !self.has_room(cx) {
            return Poll::Pending; // the flush's waker will do
        }
        let Poll::Ready(message) = Pin::new(&mut self.socket).poll_next(cx) else {
            return Poll::Pending;
        };
        Poll::Ready(match message {
            None => Some(End::Left),
            Some(Err(error)) => Some(self.ended_by(&error)),
            Some(Ok(message)) => {
                let metered = self.socket.get_mut();
                match message {
                    Message::Text(text) => {
                        metered.message_was_read();
                        self.ask(Some(text.into()));
                        None
                    }
                    Message::Binary(_) => Some(End::Closed {
                        code: CloseCode::Unsupported.into(),
                        why: "messages are texts",
                    }),
                    // They come between the pieces of messages too. Pings are answered by the
                    // library, with the next flush.
                    Message::Ping(payload) | Message::Pong(payload) => {
                        metered.control_was_read(payload.len());
                        None
                    }
                    _ => None,
                }
            }
        })
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
        cx: &mut Context<'_>,
    ) -> Option<End> {
        let Some(principal) = principal.filter(|it| it == self.connection.principal()) else {
            return Some(End::Closed {
                code: CloseCode::Policy.into(),
                why: "what this was opened with proves nothing any more",
            });
        };
        let is_expiry_new = principal.expires() != self.principal.expires();
        self.principal = principal;
        let Some(message) = message else {
            // What it hears without asking depends on the roles that it has now.
            self.connection.seen_as(&self.principal);
            self.look_again();
            return None;
        };
        if is_expiry_new {
            self.look_again();
        }
        let (engine, connection) = (self.engine, self.connection);
        let accepted = engine.accept_as(connection, &self.principal, &message, &self.outbox);
        let reply = match accepted {
            Accepted::Done(reply) => reply,
            Accepted::Pending(mut exchange) => match Pin::new(&mut exchange).poll(cx) {
                Poll::Ready(reply) => reply,
                Poll::Pending => {
                    self.exchanges.push(exchange);
                    return None;
                }
            },
        };
        self.put_reply(reply).is_err().then_some(End::Left)
    }

    /// Sees whether the client is still there and gets on, and asks who it is.
    fn look_after(&mut self) -> Option<End> {
        let metered = self.socket.get_mut();
        let has_said_something = metered.has_said_something();
        let is_unfinished = metered.is_unfinished();
        if self.is_asked && !has_said_something {
            return Some(End::Left);
        }
        if is_unfinished && self.was_unfinished {
            return Some(End::Closed {
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
                return Some(End::Left);
            }
        }
        None
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

    /// Puts an answer behind what was said about its request before.
    fn put_reply(&mut self, reply: Reply) -> Result<(), tungstenite::Error> {
        while let Some(frame) = self.outbox.try_next() {
            self.put(frame)?;
        }
        match reply.into_frame() {
            Some(frame) => self.put(frame.into_bytes()),
            None => Ok(()),
        }
    }

    fn put(&mut self, frame: Bytes) -> Result<(), tungstenite::Error> {
        // JSON that is no text is nothing that we make.
        let text = Utf8Bytes::try_from(frame).map_err(|_| tungstenite::Error::AttackAttempt)?;
        self.is_unsent = true;
        Pin::new(&mut self.socket).start_send(Message::Text(text))
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

/// Cause within an [`std::io::Error`].
type Cause = dyn std::error::Error + Send + Sync;
