//! The way out: messages on a duplex connection, or HTTP requests of their own.

use crate::{Error, wire::child::ChildHandle, wire::http::HttpLink, wire::shared::Shared};
use bytes::{Bytes, BytesMut};
use jsonrpc_core::{Message, encode};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{sync::mpsc, task::AbortHandle, time::Instant};

/// Most messages that wait to be written on a duplex connection.
pub(crate) const QUEUE: usize = 64;

pub(crate) enum Link {
    Duplex(Duplex),
    Http(Arc<HttpLink>),
}

/// A connection that carries all messages both ways.
pub(crate) struct Duplex {
    out: Mutex<Option<mpsc::Sender<Bytes>>>,
    tasks: Vec<AbortHandle>,
    child: Option<ChildHandle>,
}

/// A message on its way, and what its way needs to know.
pub(crate) struct Out {
    pub(crate) message: Message,
    /// The id to be answered; `None` for notifications and answers.
    pub(crate) id: Option<i64>,
    /// Headers for HTTP alone.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) until: Instant,
    /// True if it opens a legacy session.
    pub(crate) opens: bool,
}

impl Duplex {
    pub(crate) fn new(
        out: mpsc::Sender<Bytes>,
        tasks: Vec<AbortHandle>,
        child: Option<ChildHandle>,
    ) -> Self {
        Self {
            out: Mutex::new(Some(out)),
            tasks,
            child,
        }
    }

    fn out(&self) -> Option<mpsc::Sender<Bytes>> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.clone()
    }
}

impl Link {
    /// Sends a message. Over HTTP it is sent by a task, which reports to the request's entry.
    pub(crate) async fn send(&self, shared: &Arc<Shared>, out: Out) -> Result<(), Error> {
        match self {
            Self::Duplex(duplex) => {
                let ended = || Error::closed("it was closed");
                let queue = duplex.out().ok_or_else(ended)?;
                queue.send(written(&out.message)).await.map_err(|_| ended())
            }
            Self::Http(link) => {
                let id = out.id;
                let (link, carrier) = (Arc::clone(link), Arc::clone(shared));
                match id {
                    Some(id) => {
                        let task = tokio::spawn(async move {
                            if let Err(error) = link.exchange(&carrier, out).await {
                                carrier.fail(id, error);
                            }
                        });
                        shared.carried_by(id, task.abort_handle());
                        Ok(())
                    }
                    None => link.exchange(&carrier, out).await,
                }
            }
        }
    }

    /// Sends what is not waited for: an answer, a cancellation. It is dropped if nothing can be sent now.
    pub(crate) fn reply(&self, shared: &Arc<Shared>, message: Message) {
        match self {
            Self::Duplex(duplex) => {
                let sent = duplex.out().map(|out| out.try_send(written(&message)));
                if !matches!(sent, Some(Ok(()))) {
                    tracing::debug!("a message was dropped, since the server does not read");
                }
            }
            Self::Http(link) => {
                let Ok(runtime) = tokio::runtime::Handle::try_current() else {
                    return;
                };
                let (link, shared) = (Arc::clone(link), Arc::clone(shared));
                let out = Out {
                    message,
                    id: None,
                    headers: Vec::new(),
                    until: Instant::now() + shared.bounds.timeout,
                    opens: false,
                };
                runtime.spawn(async move {
                    if let Err(error) = link.exchange(&shared, out).await {
                        tracing::debug!(%error, "the server did not take a message");
                    }
                });
            }
        }
    }

    /// Begins to close: a child's input is closed, tasks are ended.
    pub(crate) fn shut(&self) {
        match self {
            Self::Duplex(duplex) => {
                let mut out = duplex.out.lock().unwrap_or_else(PoisonError::into_inner);
                out.take();
                match &duplex.child {
                    Some(child) => child.close(),
                    None => duplex.tasks.iter().for_each(AbortHandle::abort),
                }
            }
            Self::Http(link) => link.shut(),
        }
    }

    /// Waits until a child has ended, or a legacy session was given back.
    pub(crate) async fn closed(&self, shared: &Shared) {
        match self {
            Self::Duplex(duplex) => {
                if let Some(child) = &duplex.child {
                    child.ended().await;
                }
            }
            Self::Http(link) => link.give_back(shared).await,
        }
    }

    /// The last lines that a child has written to standard error.
    pub(crate) fn stderr(&self) -> String {
        match self {
            Self::Duplex(Duplex {
                child: Some(child), ..
            }) => child.stderr(),
            _ => String::new(),
        }
    }

    pub(crate) fn http(&self) -> Option<&Arc<HttpLink>> {
        match self {
            Self::Http(link) => Some(link),
            Self::Duplex(_) => None,
        }
    }
}

pub(crate) fn written(message: &Message) -> Bytes {
    let mut out = BytesMut::new();
    encode(message, &mut out);
    out.freeze()
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Duplex(_) => "Duplex",
            Self::Http(_) => "Http",
        })
    }
}
