//! The way out: messages on a duplex connection, or HTTP requests of their own.

use crate::{
    Bounds, Error,
    wire::child::ChildHandle,
    wire::http::HttpLink,
    wire::shared::{Carrier, Shared},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use jsonrpc_core::{Message, encode};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::{AbortHandle, JoinHandle},
    time::Instant,
};

/// Most requests that wait to be written on a duplex connection; further ones wait for a place.
const QUEUE: usize = 64;

pub(crate) const UNREAD: &str = "the server does not read what it is answered";

/// Places for replies that wait to be sent: each request under way can be cancelled, and each question
/// answered, while the server takes nothing.
pub(crate) fn replies(bounds: &Bounds) -> Arc<Semaphore> {
    let most = bounds.max_open.saturating_add(bounds.max_questions);
    Arc::new(Semaphore::new(most.clamp(QUEUE, 1 << 20)))
}

pub(crate) enum Link {
    Duplex(Duplex),
    Http(Arc<HttpLink>),
}

/// The way to the task that writes. Messages are written in the order in which they are queued, so that no
/// cancellation overtakes its request.
#[derive(Clone)]
pub(crate) struct Outbox {
    queue: mpsc::UnboundedSender<Queued>,
    requests: Arc<Semaphore>,
    replies: Arc<Semaphore>,
}

/// A message that waits to be written.
pub(crate) struct Queued {
    message: Bytes,
    /// A place among those that wait.
    place: OwnedSemaphorePermit,
    claim: Option<Claim>,
}

impl Queued {
    /// The message, and its place until it is written; `None` if it is not to be written any more.
    pub(crate) fn taken(self) -> Option<(Bytes, OwnedSemaphorePermit)> {
        let is_wanted = self.claim.is_none_or(|it| it.take());
        is_wanted.then_some((self.message, self.place))
    }

    pub(crate) fn claim(&self) -> Option<Claim> {
        self.claim.clone()
    }
}

/// The right to decide on a request that is queued: either it is written, or it is given up and was not sent.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// True for the first who asks.
    pub(crate) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Notes that the request could not be written after all.
    pub(crate) fn give_back(&self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Outbox {
    pub(crate) fn new(bounds: &Bounds) -> (Self, mpsc::UnboundedReceiver<Queued>) {
        let (queue, queued) = mpsc::unbounded_channel();
        let outbox = Self {
            queue,
            requests: Arc::new(Semaphore::new(QUEUE)),
            replies: replies(bounds),
        };
        (outbox, queued)
    }

    /// Waits for a place; false if the connection has ended.
    async fn request(self, message: Bytes, claim: Option<Claim>) -> bool {
        let place = self.requests.acquire_owned().await;
        let Ok(place) = place else {
            return false;
        };
        let queued = Queued {
            message,
            place,
            claim,
        };
        self.queue.send(queued).is_ok()
    }

    /// False if there is no place.
    fn reply(&self, message: Bytes) -> bool {
        match Arc::clone(&self.replies).try_acquire_owned() {
            // A connection that has ended needs no reply.
            Ok(place) => {
                let _ = self.queue.send(Queued {
                    message,
                    place,
                    claim: None,
                });
                true
            }
            Err(_) => false,
        }
    }
}

/// A connection that carries all messages both ways.
pub(crate) struct Duplex {
    out: Mutex<Option<Outbox>>,
    reading: AbortHandle,
    writing: Mutex<Option<JoinHandle<()>>>,
    end: End,
}

/// The way in which a connection ends.
pub(crate) enum End {
    /// As a child does.
    Child(ChildHandle),
    /// Write what is queued, for so long at most.
    Within(Duration),
}

/// A message on its way, and what its way needs to know.
pub(crate) struct Out {
    pub(crate) message: Message,
    /// The id to be answered; `None` for notifications and answers.
    pub(crate) id: Option<i64>,
    /// On a duplex connection, the right to write a request.
    pub(crate) claim: Option<Claim>,
    /// Headers for HTTP alone.
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    pub(crate) until: Instant,
    /// True if it opens a legacy session.
    pub(crate) opens: bool,
}

impl Duplex {
    pub(crate) fn new(
        out: Outbox,
        reading: AbortHandle,
        writing: Option<JoinHandle<()>>,
        end: End,
    ) -> Self {
        Self {
            out: Mutex::new(Some(out)),
            reading,
            writing: Mutex::new(writing),
            end,
        }
    }

    fn out(&self) -> Option<Outbox> {
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        out.clone()
    }

    fn writing(&self) -> Option<JoinHandle<()>> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        writing.take()
    }

    fn shut(&self) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        drop(out.take());
        match &self.end {
            End::Child(child) => child.close(),
            End::Within(patience) => {
                self.reading.abort();
                let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
                let Some(writing) = writing.as_ref().map(JoinHandle::abort_handle) else {
                    return;
                };
                match Handle::try_current() {
                    Ok(runtime) => {
                        let patience = *patience;
                        runtime.spawn(async move {
                            tokio::time::sleep(patience).await;
                            writing.abort();
                        });
                    }
                    Err(_) => writing.abort(),
                }
            }
        }
    }
}

impl Link {
    /// Sends a message. Over HTTP it is sent by a task, which reports to the request's entry.
    pub(crate) async fn send(&self, shared: &Arc<Shared>, out: Out) -> Result<(), Error> {
        match self {
            Self::Duplex(duplex) => {
                let ended = || Error::not_sent("the connection has ended");
                let outbox = duplex.out().ok_or_else(ended)?;
                match outbox.request(written(&out.message), out.claim).await {
                    true => Ok(()),
                    false => Err(ended()),
                }
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
                        shared.carried_by(id, Carrier::Task(task.abort_handle()));
                        Ok(())
                    }
                    None => link.exchange(&carrier, out).await,
                }
            }
        }
    }

    /// Sends what is not waited for: an answer, a cancellation. A server that reads none of them is left.
    pub(crate) fn reply(&self, shared: &Arc<Shared>, message: Message) {
        match self {
            Self::Duplex(duplex) => {
                let outbox = duplex.out();
                if outbox.is_some_and(|it| !it.reply(written(&message))) {
                    shared.close(UNREAD);
                }
            }
            Self::Http(link) => {
                let Ok(runtime) = tokio::runtime::Handle::try_current() else {
                    return;
                };
                let Ok(place) = Arc::clone(&link.replies).try_acquire_owned() else {
                    shared.close(UNREAD);
                    return;
                };
                let errand = shared.errand();
                let (link, shared) = (Arc::clone(link), Arc::clone(shared));
                let out = Out {
                    message,
                    id: None,
                    claim: None,
                    headers: Vec::new(),
                    until: Instant::now() + shared.bounds.timeout,
                    opens: false,
                };
                runtime.spawn(async move {
                    let _place = (place, errand);
                    let _turn = link.replying.acquire().await;
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
            Self::Duplex(duplex) => duplex.shut(),
            Self::Http(link) => link.shut(),
        }
    }

    /// Waits until a child has ended, what is queued was written, or a legacy session was given back.
    pub(crate) async fn closed(&self, shared: &Shared) {
        match self {
            Self::Duplex(duplex) => match &duplex.end {
                End::Child(child) => child.ended().await,
                End::Within(_) => {
                    if let Some(writing) = duplex.writing() {
                        // It has ended, or was given up.
                        let _ = writing.await;
                    }
                }
            },
            Self::Http(link) => link.give_back(shared).await,
        }
    }

    /// The last lines that a child has written to standard error.
    pub(crate) fn stderr(&self) -> String {
        match self {
            Self::Duplex(Duplex {
                end: End::Child(child),
                ..
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

/// Bytes of a request beside its method and its parameters.
const ROOM: usize = 96;

pub(crate) fn written(message: &Message) -> Bytes {
    let mut out = match message {
        Message::Request(it) => {
            BytesMut::with_capacity(ROOM + it.method.len() + it.params.as_bytes().len())
        }
        _ => BytesMut::new(),
    };
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
