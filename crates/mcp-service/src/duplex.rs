//! Serving of one client on a connection that carries messages both ways.

use crate::{
    engine::{
        Engine,
        exchange::{Accepted, Answer, Exchange, Reply},
    },
    outgoing::outbox::Outbox,
    principal::Principal,
    service::McpService,
    session::connection::Connection,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use jsonrpc_core::Frame;
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};
use tokio::time::{Instant, Sleep, sleep};

/// Framing of one client's connection: messages in, messages out.
pub trait Framing {
    /// Reason why the connection cannot continue.
    type Broken;

    /// Next step of the input. Called again and again until it is pending or returns
    /// [`Input::Flush`], while there is room for answers.
    ///
    /// # Errors
    ///
    /// [`Framing::Broken`] ends the connection at once, without an answer to what runs.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<Result<Input, Self::Broken>>;

    /// Sender of the message that [`Framing::poll_input`] has returned last.
    fn sender<'a>(&'a self, connection: &'a Connection) -> &'a Principal {
        connection.principal()
    }

    /// True while the client takes what it is sent. Without room nothing more is read, and requests
    /// stand still: at most one answer is made that exceeds the bound.
    fn has_room(&mut self, cx: &mut Context<'_>) -> bool;

    /// Appends a message to the output.
    ///
    /// # Errors
    ///
    /// [`Framing::Broken`] ends the connection at once.
    fn put(&mut self, frame: Frame) -> Result<(), Self::Broken>;

    /// Appends an answer to the output.
    ///
    /// # Errors
    ///
    /// [`Framing::Broken`] ends the connection at once.
    fn put_answer(&mut self, answer: &Answer) -> Result<(), Self::Broken> {
        self.put(answer.frame())
    }

    /// Writes and flushes the output.
    ///
    /// # Errors
    ///
    /// [`Framing::Broken`] ends the connection at once.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Broken>>;
}

/// Step of a connection's input.
#[derive(Debug)]
pub enum Input {
    /// A message.
    Message(Bytes),
    /// Input that is no message, with its answer.
    Unreadable(Answer),
    /// No message at present; the output is to be flushed before more is read.
    Flush,
    /// The end: the client sends no more, and reads the remaining answers.
    Ended,
}

/// Reason why serving has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The client has closed its end, and all its requests are answered.
    InputEnded,
    /// The server was told to stop, and all requests from before are answered.
    Stopped,
    /// One of the two, and some requests were not done in time.
    DrainTimedOut {
        /// Number of requests that were given up.
        given_up: usize,
    },
}

/// Time for requests in flight at the end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Drain {
    /// Time until running calls are answered as given up.
    pub limit: Duration,
    /// Time for those answers; see [`crate::LAST_ANSWERS`].
    pub last_answers: Duration,
}

/// Serves one client until its input ends or `stop` resolves, and closes the connection.
///
/// # Errors
///
/// [`Framing::Broken`].
///
/// # Cancel safety
///
/// Dropping the future cancels every request in flight.
pub async fn serve_duplex<S, F>(
    engine: &Arc<Engine<S>>,
    connection: &Arc<Connection>,
    framing: &mut F,
    stop: impl Future<Output = ()>,
    drain: Drain,
) -> Result<End, F::Broken>
where
    S: McpService,
    F: Framing,
{
    let mut stop = pin!(stop);
    let mut served = Served {
        engine,
        connection,
        outbox: connection.outbox().clone(),
        framing,
        exchanges: FuturesUnordered::new(),
        is_held_back: false,
    };
    let mut draining: Option<(End, Pin<Box<Sleep>>)> = None;
    let mut has_given_up = false;
    let end = poll_fn(|cx| {
        loop {
            served.is_held_back = false;
            let mut again = served.poll_answers(cx)?;
            if draining.is_none() {
                let ended = if stop.as_mut().poll(cx).is_ready() {
                    Some(End::Stopped)
                } else {
                    let (more, has_ended) = served.poll_input(cx)?;
                    again |= more;
                    has_ended.then_some(End::InputEnded)
                };
                if let Some(end) = ended {
                    again = true;
                    connection.wind_down();
                    draining = Some((end, Box::pin(sleep(drain.limit))));
                }
            }
            if served.framing.poll_flush(cx)?.is_ready()
                && served.exchanges.is_empty()
                && let Some((end, _)) = &draining
            {
                return Poll::Ready(Ok(*end));
            }
            if let Some((_, deadline)) = &mut draining
                && deadline.as_mut().poll(cx).is_ready()
            {
                if !std::mem::replace(&mut has_given_up, true) {
                    connection.give_up();
                    deadline.as_mut().reset(Instant::now() + drain.last_answers);
                    continue;
                }
                let given_up = served.exchanges.len();
                return Poll::Ready(Ok(End::DrainTimedOut { given_up }));
            }
            // What was not polled for lack of room has registered no waker.
            again |= served.is_held_back && served.framing.has_room(cx);
            if !again {
                return Poll::Pending;
            }
        }
    })
    .await;
    connection.close();
    end
}

struct Served<'a, S, F> {
    engine: &'a Arc<Engine<S>>,
    connection: &'a Arc<Connection>,
    outbox: Outbox,
    framing: &'a mut F,
    exchanges: FuturesUnordered<Exchange>,
    /// True if something was left undone for lack of room.
    is_held_back: bool,
}

impl<S, F> Served<'_, S, F>
where
    S: McpService,
    F: Framing,
{
    fn has_room(&mut self, cx: &mut Context<'_>) -> bool {
        let has_room = self.framing.has_room(cx);
        self.is_held_back |= !has_room;
        has_room
    }

    /// Puts out ready answers and messages of the outbox; true if there was an answer.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Result<bool, F::Broken> {
        let mut any = false;
        while self.has_room(cx)
            && let Poll::Ready(Some(reply)) = self.exchanges.poll_next_unpin(cx)
        {
            self.put_reply(reply)?;
            any = true;
        }
        // Beyond the bound they wait in the outbox, which has one of its own.
        while self.has_room(cx)
            && let Poll::Ready(Some(frame)) = self.outbox.poll_next(cx)
        {
            self.framing.put(Frame::whole(frame))?;
        }
        Ok(any)
    }

    /// Takes input while there is some; true if there may be more, and true if it has ended.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Result<(bool, bool), F::Broken> {
        while self.has_room(cx)
            && let Poll::Ready(input) = self.framing.poll_input(cx)
        {
            match input? {
                Input::Message(frame) => self.accept(&frame, cx)?,
                Input::Unreadable(answer) => self.put_reply(Reply::One(answer))?,
                Input::Flush => return Ok((true, false)),
                Input::Ended => return Ok((false, true)),
            }
        }
        Ok((false, false))
    }

    fn accept(&mut self, frame: &Bytes, cx: &mut Context<'_>) -> Result<(), F::Broken> {
        let connection = self.connection;
        let sender = self.framing.sender(connection);
        let accepted = self
            .engine
            .accept_as(connection, sender, frame, &self.outbox);
        match accepted {
            Accepted::Done(reply) => self.put_reply(reply),
            Accepted::Pending(mut exchange) => match Pin::new(&mut exchange).poll(cx) {
                Poll::Ready(reply) => self.put_reply(reply),
                Poll::Pending => {
                    self.exchanges.push(exchange);
                    Ok(())
                }
            },
        }
    }

    /// Puts an answer behind what was said about its request before.
    fn put_reply(&mut self, reply: Reply) -> Result<(), F::Broken> {
        while let Some(frame) = self.outbox.try_next() {
            self.framing.put(Frame::whole(frame))?;
        }
        match reply {
            Reply::One(answer) => self.framing.put_answer(&answer),
            reply => match reply.into_frame() {
                Some(frame) => self.framing.put(frame),
                None => Ok(()),
            },
        }
    }
}
