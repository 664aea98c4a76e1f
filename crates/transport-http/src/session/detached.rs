//! Requests that run in tasks of their own.

use mcp_service::{Exchange, Reply};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::oneshot,
    task::{AbortHandle, JoinSet},
};

/// Requests that do not run in the task of their connection: those whose answers are streams, since
/// a connection asks nothing of a stream while its client does not read; legacy ones whose clients
/// have hung up; and those of the old transport, which are answered elsewhere. Bounded by the
/// engine's bound on requests in flight.
#[derive(Debug)]
pub(crate) struct DetachedRequests {
    tasks: Mutex<Option<JoinSet<()>>>,
}

/// Time to wait for dropped requests to end. A request that was taken over may be in the care of
/// another thread, which need not run any more.
const DROPPING: Duration = Duration::from_secs(1);

impl DetachedRequests {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            tasks: Mutex::new(Some(JoinSet::new())),
        })
    }

    /// Runs what is left of a request.
    pub(crate) fn carry_on(&self, rest: impl Future<Output = ()> + Send + 'static) {
        self.spawn(rest);
    }

    /// Lets a request go on beside the connection that is to send its answer.
    fn drive(&self, exchange: Exchange) -> Driven {
        let (tell, reply) = oneshot::channel();
        let task = self.spawn(async move {
            let reply = exchange.await;
            // Whoever has gone does not want it.
            let _ = tell.send(reply);
        });
        Driven { reply, task }
    }

    /// Outside of a runtime, or once the server has stopped, nothing can be carried on.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) -> Option<AbortHandle> {
        let mut tasks = self.lock();
        let tasks = tasks.as_mut()?;
        let runtime = Handle::try_current().ok()?;
        while tasks.try_join_next().is_some() {}
        Some(tasks.spawn_on(task, &runtime))
    }

    /// Waits for what is left.
    pub(crate) async fn drain(&self) {
        poll_fn(|cx| {
            while let Some(tasks) = &mut *self.lock() {
                if ready!(tasks.poll_join_next(cx)).is_none() {
                    break;
                }
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Drops what is left, and takes nothing more.
    pub(crate) async fn shut_down(&self) {
        let tasks = self.lock().take();
        if let Some(mut tasks) = tasks {
            // An error means that the rest is dropped without us.
            let _ = tokio::time::timeout(DROPPING, tasks.shutdown()).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request being handled, wherever that is. Dropping it drops the request.
pub(crate) enum Work {
    /// Run by the task that polls this, which is the connection's: most requests are answered
    /// without a task of their own.
    Here(Exchange),
    /// In a task, however little is read of what it says.
    Elsewhere(Driven),
}

/// A request in a task.
pub(crate) struct Driven {
    reply: oneshot::Receiver<Reply>,
    task: Option<AbortHandle>,
}

impl Work {
    /// Gives the request a task, among `detached`.
    pub(crate) fn drive(self, detached: &DetachedRequests) -> Self {
        match self {
            Self::Here(exchange) => Self::Elsewhere(detached.drive(exchange)),
            driven @ Self::Elsewhere(_) => driven,
        }
    }

    /// Lets the request end although no client waits for its answer.
    pub(crate) fn carry_on(self, detached: &DetachedRequests) {
        match self {
            Self::Here(exchange) => detached.carry_on(async move {
                exchange.await;
            }),
            Self::Elsewhere(mut driven) => driven.task = None,
        }
    }
}

impl Future for Work {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        match &mut *self {
            Self::Here(exchange) => Pin::new(exchange).poll(cx),
            // An error means that it was given up when the server stopped.
            Self::Elsewhere(driven) => Pin::new(&mut driven.reply)
                .poll(cx)
                .map(|reply| reply.unwrap_or(Reply::Nothing)),
        }
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
