//! The thread that stores what the queue holds.

use crate::{
    Durability, Group, LedgerStore,
    queue::{Batch, Shared, Work},
};
use std::{
    error::Error,
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time};

/// A group of this many entries shows that there are many callers.
const CROWD: u64 = 8;

/// How long many callers are waited for, although they wait themselves: those whose group has just
/// been stored then join those who came meanwhile, instead of the two taking turns with half a
/// group each. Measured with 64 callers: a quarter less CPU. The kernel makes it about 70 us.
const CROWD_PAUSE: Duration = Duration::from_micros(20);

/// How long relaxed entries are gathered before they are stored.
const GATHER: Duration = Duration::from_millis(2);

/// Relaxed entries of this many bytes are stored at once.
const GATHER_BYTES: usize = 256 * 1024;

/// How long the queue must be empty before work that can wait is done.
const IDLE: Duration = Duration::from_millis(20);

/// The first pause after a failure; each further one is twice as long.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// How the writer ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) unwritten_entries: u64,
}

/// Starts the thread. `ending` is told how it ended.
pub(crate) fn spawn(
    shared: Arc<Shared>,
    store: impl LedgerStore,
    ending: watch::Sender<Option<Ending>>,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new()
        .name("ledger".to_owned())
        .spawn(move || {
            let stopped = StoppedGuard(Arc::clone(&shared));
            let mut store = store;
            let end = runtime.block_on(
                Writer {
                    shared: &shared,
                    store: &mut store,
                }
                .run(),
            );
            // Closing the store may take its time, and whoever waits may open the ledger again.
            drop(store);
            drop(stopped);
            ending.send_replace(Some(end));
        })?;
    Ok(())
}

/// Tells everybody that the writer has ended, even if it panicked.
struct StoppedGuard(Arc<Shared>);

impl Drop for StoppedGuard {
    fn drop(&mut self) {
        self.0.stopped();
    }
}

struct Writer<'a, S> {
    shared: &'a Shared,
    store: &'a mut S,
}

impl<S: LedgerStore> Writer<'_, S> {
    async fn run(mut self) -> Ending {
        let mut spare = Vec::new();
        let (mut untidy, mut idle) = (true, IDLE);
        let mut last_count = 0;
        loop {
            if CROWD <= last_count && self.shared.options.durability == Durability::Strict {
                thread::sleep(CROWD_PAUSE);
            }
            match self.shared.take_work(&mut spare) {
                Work::Batch(batch) => {
                    if let Err(ending) = self.write(&batch).await {
                        return ending;
                    }
                    (untidy, idle, last_count) = (true, IDLE, batch.count);
                    spare = batch.body;
                }
                Work::Nothing if untidy => {
                    last_count = 0;
                    if time::timeout(idle, self.shared.sleep()).await.is_err() {
                        // Once idle, only what comes in interrupts it.
                        (untidy, idle) = (self.tidy().await, Duration::ZERO);
                    } else {
                        self.gather().await;
                    }
                }
                Work::Nothing => {
                    last_count = 0;
                    self.shared.sleep().await;
                    self.gather().await;
                }
                Work::Done => {
                    return Ending {
                        unwritten_entries: 0,
                    };
                }
            }
        }
    }

    /// Lets relaxed entries gather: nobody waits for them, and a group costs more than an entry.
    async fn gather(&self) {
        if self.shared.options.durability == Durability::Relaxed
            && self.shared.waiting().0 < GATHER_BYTES
        {
            time::sleep(GATHER).await;
        }
    }

    /// Stores a group, trying until it succeeds or the recorder has been closed and nothing can
    /// come any more.
    async fn write(&mut self, batch: &Batch) -> Result<(), Ending> {
        let tail = self.store.tail();
        let group = Group {
            first_sequence: tail.next_sequence,
            count: batch.count,
            body: &batch.body,
            hash: tail.after(&batch.body, batch.count).hash,
        };
        let mut pause = MIN_PAUSE;
        loop {
            // What fails now may work by the time of closing: one attempt comes after it.
            let is_last = self.shared.is_finished();
            let begun = Instant::now();
            match self.store.append(group).await {
                Ok(()) => {
                    if self.shared.stored(batch, begun.elapsed()) {
                        tracing::info!("the ledger can be written again");
                    }
                    return Ok(());
                }
                Err(error) => {
                    if self.shared.failed(chain(&error)) {
                        let error: &(dyn Error + 'static) = &error;
                        tracing::error!(error, "the ledger cannot be written: no call can begin");
                    }
                }
            }
            if is_last {
                let unwritten_entries = batch.count + self.shared.waiting().1;
                tracing::error!(unwritten_entries, "entries of the ledger are lost");
                return Err(Ending { unwritten_entries });
            }
            // Being rung early costs one attempt and is how closing is noticed.
            let _rung = time::timeout(pause, self.shared.sleep()).await;
            pause = MAX_PAUSE.min(pause * 2);
        }
    }

    async fn tidy(&mut self) -> bool {
        match self.store.tidy().await {
            Ok(more) => more,
            Err(error) => {
                let error: &(dyn Error + 'static) = &error;
                tracing::warn!(error, "the ledger could not be tidied");
                false
            }
        }
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
