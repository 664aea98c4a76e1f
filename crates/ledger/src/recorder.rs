use crate::{
    CallId, End, Health, LedgerStore, Outcome, Start,
    queue::Shared,
    writer::{self, Ending},
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::sync::watch;

/// The most calls that may be open or unwritten at once unless told otherwise.
pub const DEFAULT_MAX_UNWRITTEN: usize = 4096;

/// The most bytes of unwritten entries with which a call may still begin unless told otherwise.
pub const DEFAULT_MAX_UNWRITTEN_BYTES: usize = 64 * 1024 * 1024;

/// What is promised when an entry has been handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Waiting for an entry means that it is on disk: a crash loses nothing that was waited for.
    #[default]
    Strict,
    /// Waiting for an entry means that it is in the queue: a crash of the process loses what was
    /// called in the last few milliseconds, a crash of the machine perhaps more.
    Relaxed,
}

/// How a [`Recorder`] works.
#[derive(Clone, Copy, Debug)]
pub struct RecorderOptions {
    /// What is promised.
    pub durability: Durability,
    /// The most calls that may be open or unwritten at once; further ones wait to begin.
    pub max_unwritten: usize,
    /// The most bytes of unwritten entries with which a call may still begin. Ends are taken beyond
    /// it, at most one for each open call.
    pub max_unwritten_bytes: usize,
    /// Tells the time in microseconds since the epoch, UTC, for ends that nobody tells of.
    pub now: fn() -> u64,
}

/// Writes down what is called. Clones are cheap and write to the same ledger.
///
/// When the last clone is dropped, or at [`Recorder::close`], no further call can begin; the thread
/// that writes goes on until every open call has ended and been stored.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    handle: Arc<Handle>,
}

/// Closes the queue when nobody can begin a call any more.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    ending: watch::Receiver<Option<Ending>>,
}

/// A call that has begun and not yet ended.
///
/// Recording its end never waits, so a call whose future is dropped is recorded all the same, as
/// [`Outcome::Abandoned`] at its estimated cost.
#[derive(Debug)]
#[must_use = "dropping it records that the call was abandoned"]
pub struct OpenCall {
    shared: Arc<Shared>,
    call: CallId,
    at_us: u64,
    estimated_cost_micros: u64,
    ended: bool,
}

/// Resolves when the end of a call is as durable as promised. Dropping it loses nothing: the entry
/// has been handed over.
#[derive(Debug)]
#[must_use = "the end is handed over, but only this tells when it is on disk"]
pub struct Finished(Option<Committed>);

/// Resolves when a group has been stored, or at once while the store fails.
#[derive(Debug)]
pub(crate) struct Committed {
    shared: Arc<Shared>,
    number: u64,
}

/// A call was not recorded, or nobody can say yet that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The store fails. It is tried again; [`Recorder::health`] tells why it fails.
    #[error("the ledger cannot be written at present")]
    Unavailable,
    /// The recorder has been closed.
    #[error("the ledger has been closed")]
    Closed,
    /// The thread that writes has ended.
    #[error("the ledger has stopped")]
    Stopped,
}

/// A recorder ended with entries that could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{unwritten_entries} entries of the ledger could not be stored")]
pub struct CloseError {
    /// How many were lost.
    pub unwritten_entries: u64,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Strict,
            max_unwritten: DEFAULT_MAX_UNWRITTEN,
            max_unwritten_bytes: DEFAULT_MAX_UNWRITTEN_BYTES,
            now: system_now_us,
        }
    }
}

/// Microseconds since the epoch, UTC, by the clock of this machine.
#[must_use]
pub fn system_now_us() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

impl Recorder {
    /// Starts the thread that writes to `store`. Calls that an earlier process left open are ended
    /// as [`Outcome::Unknown`] first.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn spawn(store: impl LedgerStore, options: RecorderOptions) -> io::Result<Self> {
        let shared = Arc::new(Shared::new(options));
        shared.push_interrupted(store.interrupted());
        let (sender, ending) = watch::channel(None);
        writer::spawn(Arc::clone(&shared), store, sender)?;
        let handle = Arc::new(Handle {
            shared: Arc::clone(&shared),
            ending,
        });
        Ok(Self { shared, handle })
    }

    /// Records the start of a call. It waits while too many are open or unwritten, and, unless
    /// durability is relaxed, until the start is on disk.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: the call must not run. If its start had been handed over already, it is
    /// ended as denied for the reason `ledger_unavailable`.
    ///
    /// # Cancel safety
    ///
    /// A future dropped before it is ready has recorded nothing, or the start and that the call was
    /// abandoned.
    pub async fn begin(&self, start: &Start<'_>) -> Result<OpenCall, RecordError> {
        let (open, number) = self
            .hand_over(|shared| {
                let pushed = shared.push_start(start)?;
                Ok(pushed.map(|number| {
                    let open = OpenCall {
                        shared: Arc::clone(&self.shared),
                        call: start.call,
                        at_us: start.at_us,
                        estimated_cost_micros: start.estimated_cost_micros,
                        ended: false,
                    };
                    (open, number)
                }))
            })
            .await?;
        if self.shared.options.durability == Durability::Strict
            && let Err(error) = self.committed(number).await
        {
            open.never_ran();
            return Err(error);
        }
        Ok(open)
    }

    /// Records a call that is refused, start and end together, and waits as [`Recorder::begin`]
    /// does. Use it for denials and for calls with wrong arguments that never ran.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: nobody can say yet that it is on disk. The refusal stands all the same.
    ///
    /// # Cancel safety
    ///
    /// A future dropped before it is ready has recorded nothing or both.
    pub async fn refuse(&self, start: &Start<'_>, end: &End<'_>) -> Result<(), RecordError> {
        let number = self
            .hand_over(|shared| shared.push_refusal(start, end))
            .await?;
        match self.shared.options.durability {
            Durability::Strict => self.committed(number).await,
            Durability::Relaxed => Ok(()),
        }
    }

    /// Whether calls can begin: neither does the store fail nor has the recorder ended. Cheap enough
    /// to be asked for every call.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        !self.shared.is_refusing()
    }

    /// How the ledger is doing.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Lets no further call begin, waits until every open call has ended, and until everything is
    /// stored. It waits as long as calls run: bound it, and drop the calls when time is up.
    ///
    /// # Errors
    ///
    /// [`CloseError`] when the store failed to the last.
    ///
    /// # Cancel safety
    ///
    /// The recorder stays closed; calling again goes on waiting.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.shared.close();
        let mut ending = self.handle.ending.clone();
        let ending = match ending.wait_for(Option::is_some).await {
            Ok(ending) => *ending,
            // The writer is gone without a word: it panicked.
            Err(_) => None,
        };
        match ending {
            Some(Ending {
                unwritten_entries: 0,
            }) => Ok(()),
            Some(Ending { unwritten_entries }) => Err(CloseError { unwritten_entries }),
            None => Err(CloseError {
                unwritten_entries: self.health().unwritten_entries,
            }),
        }
    }

    /// Takes room and pushes; when the queue is too long, waits for its group and tries again.
    async fn hand_over<T>(
        &self,
        push: impl Fn(&Shared) -> Result<Result<T, u64>, RecordError>,
    ) -> Result<T, RecordError> {
        self.shared.take_room().await?;
        let room = RoomGuard(&self.shared);
        loop {
            match push(&self.shared)? {
                Ok(pushed) => {
                    std::mem::forget(room); // the entry carries it from here
                    return Ok(pushed);
                }
                Err(number) => self.committed(number).await?,
            }
        }
    }

    fn committed(&self, number: u64) -> Committed {
        Committed {
            shared: Arc::clone(&self.shared),
            number,
        }
    }
}

/// Room that is given back unless an entry takes it along.
struct RoomGuard<'a>(&'a Shared);

impl Drop for RoomGuard<'_> {
    fn drop(&mut self) {
        self.0.return_room();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl OpenCall {
    /// Names the call.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Records how the call ended. The entry is handed over before this returns.
    pub fn finish(mut self, end: &End<'_>) -> Finished {
        let number = self.record(end);
        Finished(match self.shared.options.durability {
            Durability::Strict => Some(Committed {
                shared: Arc::clone(&self.shared),
                number,
            }),
            Durability::Relaxed => None,
        })
    }

    fn never_ran(mut self) {
        self.record(&End::new(Outcome::Denied {
            reason: "ledger_unavailable",
        }));
    }

    fn record(&mut self, end: &End<'_>) -> u64 {
        self.ended = true;
        self.shared.push_end(self.call, end)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.ended {
            let now_us = (self.shared.options.now)();
            self.record(&End {
                duration_us: now_us.saturating_sub(self.at_us),
                cost_micros: self.estimated_cost_micros,
                ..End::new(Outcome::Abandoned)
            });
        }
    }
}

impl Future for Finished {
    /// An error means that the end is handed over and nobody can say when it will be on disk.
    type Output = Result<(), RecordError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(committed) = &mut self.0 {
            let result = ready!(Pin::new(committed).poll(cx));
            self.0 = None;
            return Poll::Ready(result);
        }
        Poll::Ready(Ok(()))
    }
}

impl Future for Committed {
    type Output = Result<(), RecordError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.shared.poll_committed(self.number, cx)
    }
}
