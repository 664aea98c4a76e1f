//! The thread that stores what the queue holds.

use crate::{
    record::id::CallId,
    recorder::{
        Durability,
        commit_hook::CommitHook,
        queue::{Batch, Shared, Work},
    },
    store::{Group, LedgerStore},
};
use std::{
    error::Error,
    io,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use tokio::{sync::watch, time};

/// A group of this many entries shows that there are many callers.
const CROWD: u64 = 8;

/// Pause for many callers, although they wait themselves: those whose group has just been stored
/// then join those who came meanwhile, instead of the two taking turns with half a group each.
/// Measured with 64 callers: a quarter less CPU. The kernel makes it about 70 us.
const CROWD_PAUSE: Duration = Duration::from_micros(20);

/// Time for which relaxed entries are gathered before they are stored.
const GATHER: Duration = Duration::from_millis(2);

/// Relaxed entries of this many bytes are stored at once.
const GATHER_BYTES: usize = 256 * 1024;

/// Time for which the queue must be empty before work that can wait is done.
const IDLE: Duration = Duration::from_millis(20);

/// Interval between checks for work that is due by time.
const TICK: Duration = Duration::from_secs(1);

/// The first pause after a failure; each further one is twice as long.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// Shortest interval between checks for a hanging store, whatever the longest wait is.
const MIN_LOOK: Duration = Duration::from_millis(5);

/// See [`MIN_LOOK`].
const MAX_LOOK: Duration = Duration::from_secs(2);

/// End of the writer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) unwritten_entries: u64,
}

/// Starts the thread. `ending` is told how it ended.
pub(crate) fn spawn(
    shared: Arc<Shared>,
    store: impl LedgerStore,
    hook: Option<Box<dyn CommitHook>>,
    ending: watch::Sender<Option<Ending>>,
) -> io::Result<()> {
    let (alive, ended) = mpsc::channel();
    watch_for_hanging(Arc::clone(&shared), ended)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    thread::Builder::new()
        .name("ledger".to_owned())
        .spawn(move || {
            let _alive = alive; // dropped when this thread ends
            let stopped = StoppedGuard(Arc::clone(&shared));
            let mut store = store;
            let end = runtime.block_on(
                Writer {
                    shared: &shared,
                    store: &mut store,
                    hook,
                    untold: true,
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

/// Starts the thread that notices when the writer is stuck in its store, until that thread has
/// ended. A timer for each call would do the same and cost every call; this costs none.
fn watch_for_hanging(shared: Arc<Shared>, ended: mpsc::Receiver<Never>) -> io::Result<()> {
    let max_wait = shared.options.max_wait;
    let pause = (max_wait / 4).clamp(MIN_LOOK, MAX_LOOK);
    thread::Builder::new()
        .name("ledger-watch".to_owned())
        .spawn(move || {
            while let Err(mpsc::RecvTimeoutError::Timeout) = ended.recv_timeout(pause) {
                if shared.look_for_hanging(max_wait) {
                    tracing::error!("the ledger does not answer: no call can begin");
                }
            }
        })?;
    Ok(())
}

/// Value that is never sent.
enum Never {}

/// Tells all waiting callers that the writer has ended, even if it panicked.
struct StoppedGuard(Arc<Shared>);

impl Drop for StoppedGuard {
    fn drop(&mut self) {
        self.0.stopped();
    }
}

struct Writer<'a, S> {
    shared: &'a Shared,
    store: &'a mut S,
    hook: Option<Box<dyn CommitHook>>,
    /// The hook has not been told yet that the ledger is being closed.
    untold: bool,
}

impl<S: LedgerStore> Writer<'_, S> {
    async fn run(mut self) -> Ending {
        let mut spare = Vec::new();
        let (mut untidy, mut idle) = (true, IDLE);
        let mut last_count = 0;
        let mut ticked = Instant::now();
        let mut is_tidy_for_good = false;
        loop {
            if CROWD <= last_count && self.shared.options.durability == Durability::Strict {
                thread::sleep(CROWD_PAUSE);
            }
            match self.shared.take_work(&mut spare) {
                Work::Batch(mut batch) => {
                    let stored_at = match self.write(&mut batch).await {
                        Ok(stored_at) => stored_at,
                        Err(ending) => return ending,
                    };
                    (untidy, idle, last_count) = (true, IDLE, batch.count);
                    spare = batch.body;
                    // What a hook said last stays the last, also of what tidying would add.
                    let goes_on = self.untold || self.hook.is_none();
                    if goes_on && TICK <= stored_at.duration_since(ticked) {
                        ticked = stored_at;
                        self.tick();
                        // Were it left for when there is time, there might never be any.
                        self.tidy().await;
                    }
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
                    if time::timeout(TICK, self.shared.sleep()).await.is_err() {
                        (ticked, untidy) = (Instant::now(), true);
                        self.tick();
                    } else {
                        self.gather().await;
                    }
                }
                Work::Done if !is_tidy_for_good => {
                    // What other processes have done by now is on record when the ledger is closed.
                    is_tidy_for_good = true;
                    self.tidy().await;
                }
                Work::Done if self.last_words() => {}
                Work::Done => {
                    return Ending {
                        unwritten_entries: 0,
                    };
                }
            }
        }
    }

    /// Lets relaxed entries gather: no caller waits for them, and a group costs more than an entry.
    async fn gather(&self) {
        if self.shared.options.durability == Durability::Relaxed
            && !self.shared.is_urgent(GATHER_BYTES)
        {
            // Whoever does wait rings.
            let _rung = time::timeout(GATHER, self.shared.sleep()).await;
        }
    }

    /// Stores a group, trying until it succeeds or the recorder has been closed and nothing can
    /// come any more. Tells when it was stored.
    async fn write(&mut self, batch: &mut Batch) -> Result<Instant, Ending> {
        let id = CallId::new((self.shared.options.now)()).0;
        let mut pause = MIN_PAUSE;
        loop {
            // What fails now may work by the time of closing: one attempt comes after it.
            let is_last = self.shared.is_finished();
            let begun = Instant::now();
            let group = Group {
                id,
                count: batch.count,
                body: &batch.body,
                operations: &batch.operations,
                charges: &batch.charges,
                durable: batch.durable,
            };
            match self.store.append(group).await {
                Ok(appended) => {
                    let (now, tail) = (Instant::now(), appended.tail);
                    if self.shared.stored(batch, appended, now - begun) {
                        tracing::info!("the ledger can be written again");
                    }
                    if let Some(hook) = &mut self.hook {
                        let note = hook.stored(tail, (self.shared.options.now)());
                        self.shared.push_noted(note);
                    }
                    return Ok(now);
                }
                Err(error) => {
                    if self.shared.failed(chain(&error)) {
                        let error: &(dyn Error + 'static) = &error;
                        tracing::error!(error, "the ledger cannot be written: no call can begin");
                    }
                }
            }
            if is_last {
                let unwritten_entries = batch.count + self.shared.waiting();
                tracing::error!(unwritten_entries, "entries of the ledger are lost");
                return Err(Ending { unwritten_entries });
            }
            // Being rung early costs one attempt and is how closing is noticed.
            let _rung = time::timeout(pause, self.shared.sleep()).await;
            pause = MAX_PAUSE.min(pause * 2);
        }
    }

    /// Does what is due by time.
    fn tick(&mut self) {
        let now_us = (self.shared.options.now)();
        self.shared.flush_refusals(now_us, false);
        if let Some(hook) = &mut self.hook {
            self.shared
                .push_noted(hook.stored(self.store.tail(), now_us));
            self.shared.note_seal_error(hook.trouble());
        }
    }

    /// Hands over what is left to say once nothing more can come. Tells whether there was anything.
    fn last_words(&mut self) -> bool {
        let now_us = (self.shared.options.now)();
        if self.shared.flush_refusals(now_us, true) {
            return true;
        }
        if !self.shared.seal() {
            return true; // somebody has noted something meanwhile
        }
        if let Some(hook) = &mut self.hook
            && std::mem::take(&mut self.untold)
        {
            let note = hook.closing(self.store.tail(), now_us);
            return self.shared.push_noted(note);
        }
        false
    }

    async fn tidy(&mut self) -> bool {
        let now_us = (self.shared.options.now)();
        let before = self.store.tail();
        match self.store.tidy(now_us).await {
            Ok(more) => {
                let tail = self.store.tail();
                if tail != before
                    && let Some(hook) = &mut self.hook
                {
                    self.shared.push_noted(hook.stored(tail, now_us));
                }
                if self.shared.tidied(None) {
                    tracing::info!("the ledger can be tidied again");
                }
                more
            }
            Err(error) => {
                // Said once: it is tried every second.
                if self.shared.tidied(Some(chain(&error))) {
                    let error: &(dyn Error + 'static) = &error;
                    tracing::warn!(error, "the ledger could not be tidied");
                }
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
