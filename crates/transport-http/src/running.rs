//! An exchange while nobody knows yet how its answer is sent.

use bytes::Bytes;
use mcp_service::{Exchange, Outbox, Reply};
use std::{
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
};
use tokio::{runtime::Handle, task::JoinSet};

/// A request being handled, what is said about it meanwhile, and what happens to it when its client
/// hangs up.
pub(crate) struct Running {
    exchange: Option<Exchange>,
    outbox: Option<Outbox>,
    reply: Option<Reply>,
    /// Where the rest of a legacy request goes: for it, hanging up is no cancellation. A modern
    /// request has none; dropping its exchange is its cancellation.
    leftovers: Option<Arc<Leftovers>>,
}

/// Something to send.
#[derive(Debug)]
pub(crate) enum Event {
    /// A notification, encoded.
    Notification(Bytes),
    /// The answer; the last there is.
    Reply(Reply),
}

impl Running {
    pub(crate) fn new(
        exchange: Exchange,
        outbox: Option<Outbox>,
        leftovers: Option<Arc<Leftovers>>,
    ) -> Self {
        Self {
            exchange: Some(exchange),
            outbox,
            reply: None,
            leftovers,
        }
    }

    /// Lets the request go on, if it is not finished.
    pub(crate) fn advance(&mut self, cx: &mut Context<'_>) {
        if let Some(exchange) = &mut self.exchange
            && let Poll::Ready(reply) = Pin::new(exchange).poll(cx)
        {
            self.exchange = None;
            self.reply = Some(reply);
        }
    }

    /// What there is to send after [`Running::advance`]; `None` at the end.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        if let Some(outbox) = &self.outbox {
            let queued = if self.exchange.is_some() {
                outbox.poll_next(cx)
            } else {
                Poll::Ready(outbox.try_next())
            };
            if let Poll::Ready(Some(frame)) = queued {
                return Poll::Ready(Some(Event::Notification(frame)));
            }
        }
        if self.exchange.is_some() {
            return Poll::Pending;
        }
        Poll::Ready(self.reply.take().map(Event::Reply))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Whoever still has something to say, or to ask, learns that nobody listens.
        if let Some(outbox) = &self.outbox {
            outbox.close();
        }
        if let (Some(exchange), Some(leftovers)) = (self.exchange.take(), &self.leftovers) {
            leftovers.carry_on(async move {
                exchange.await;
            });
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("finished", &self.exchange.is_none())
            .finish_non_exhaustive()
    }
}

/// Requests that outlive the POST they came in: legacy ones whose clients have hung up, and those of
/// the old transport, which are answered elsewhere. Bounded by the engine's bound on requests in
/// flight.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    tasks: Mutex<Option<JoinSet<()>>>,
}

impl Leftovers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            tasks: Mutex::new(Some(JoinSet::new())),
        })
    }

    /// Runs what is left of a request.
    pub(crate) fn carry_on(&self, rest: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Outside of a runtime, or once the server has stopped, nothing can be carried on.
        if let (Some(tasks), Ok(runtime)) = (&mut *tasks, Handle::try_current()) {
            while tasks.try_join_next().is_some() {}
            tasks.spawn_on(rest, &runtime);
        }
    }

    /// Waits for what is left, and takes nothing more. Dropping this gives up the rest.
    pub(crate) async fn drain(&self) {
        let tasks = self
            .tasks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(mut tasks) = tasks {
            while tasks.join_next().await.is_some() {}
        }
    }
}
