//! Lifecycle of the server: notification of readiness, requests to stop, and the deadline for
//! stopping (R2.5, R2.7).
//!
//! Signals are watched by a thread of its own: whatever the others do, the second one ends the
//! process, and so does a deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::supervisor::Supervisor;
use crate::Failure;
use config::Shutdown;

/// Exit code of a server that stopped as it was told to, with something possibly missing: the
/// ledger could not be closed, or the deadline passed.
pub(crate) const UNCLEAN: u8 = 3;
/// A signal ended it at once; its number is added, as shells do.
const SIGNALLED: i32 = 128;

/// Time that ending the application, and closing the ledger and the counters, may take after the
/// drain. With the default drain the whole stays below the five seconds of R2.7.
const CLOSING: Duration = Duration::from_millis(1_750);

/// Time that the thread of the log gets to write the last line.
const LAST_LINE: Duration = Duration::from_millis(50);

/// Phase of the server's life. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Lifecycle(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    options: Shutdown,
    supervisor: Supervisor,
    /// Requests are taken, so that there is something to lose.
    is_serving: AtomicBool,
    /// A signal has come.
    asked: watch::Sender<bool>,
    /// Deadline of the shutdown, once it has begun.
    deadline: watch::Sender<Option<Instant>>,
}

impl Lifecycle {
    /// Watches signals from now on. One that comes before [`Lifecycle::serving`] ends the process at
    /// once, since nothing has begun.
    pub(super) fn watch(options: Shutdown) -> Result<Self, Failure> {
        let lifecycle = Self::new(options, Supervisor::of_process());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let signals = {
            let _runtime = runtime.enter();
            Signals::watch()?
        };
        let watching = lifecycle.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || runtime.block_on(watching.obey(signals)))?;
        Ok(lifecycle)
    }

    /// The life of a server whose owner watches signals and deadlines, and [asks](Self::ask) it to stop.
    pub(super) fn unwatched(options: Shutdown) -> Self {
        Self::new(options, Supervisor::default())
    }

    fn new(options: Shutdown, supervisor: Supervisor) -> Self {
        Self(Arc::new(Inner {
            options,
            supervisor,
            is_serving: AtomicBool::new(false),
            asked: watch::Sender::new(false),
            deadline: watch::Sender::new(None),
        }))
    }

    /// Asks the server to stop.
    pub(super) fn ask(&self) {
        self.0.asked.send_replace(true);
        self.begin();
    }

    /// Notes that requests may be taken from now on.
    pub(super) fn serving(&self) {
        self.0.is_serving.store(true, Ordering::Release);
    }

    /// Tells the process that started this one that the server is ready.
    pub(super) fn ready(&self) {
        self.0.supervisor.tell("READY=1\nSTATUS=serving");
    }

    /// Tells the process that started this one, if it wants to know, that the server is alive, for
    /// as long as it is.
    pub(super) async fn keep_alive(self) {
        let Some(interval) = self.0.supervisor.watchdog() else {
            return;
        };
        let mut interval = tokio::time::interval(interval);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            interval.tick().await;
            self.0.supervisor.tell("WATCHDOG=1");
        }
    }

    /// Resolves when a signal has asked the server to stop, and it says that it is not ready.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(super) async fn asked(&self) {
        let mut asked = self.0.asked.subscribe();
        if asked.wait_for(|asked| *asked).await.is_err() {
            // The sender is in `self`, so this cannot be; the end of the input still ends it.
            std::future::pending::<()>().await;
        }
    }

    /// The same over HTTP, where balancers get some time to see it.
    pub(super) async fn asked_over_http(&self) {
        self.asked().await;
        tokio::time::sleep(self.ready_delay()).await;
    }

    /// Notes that the server stops, for whatever reason: from now on there is a deadline.
    pub(super) fn begin(&self) {
        self.begin_after(Duration::ZERO);
    }

    /// The same, if so much of the time is spent already.
    pub(super) fn begin_after(&self, spent: Duration) {
        let is_first = self.0.deadline.send_if_modified(|deadline| {
            let is_first = deadline.is_none();
            if is_first {
                *deadline = Some(Instant::now() + self.limit().saturating_sub(spent));
            }
            is_first
        });
        if is_first {
            let limit = self.limit().as_micros();
            let told = format!("STOPPING=1\nSTATUS=stopping\nEXTEND_TIMEOUT_USEC={limit}");
            self.0.supervisor.tell(&told);
        }
    }

    /// Resolves when it has begun to stop.
    ///
    /// # Cancel safety
    ///
    /// The future can be dropped at any time without a loss.
    pub(super) async fn begun(&self) {
        let mut deadline = self.0.deadline.subscribe();
        if deadline.wait_for(Option::is_some).await.is_err() {
            // The sender is in `self`, so this cannot be.
            std::future::pending::<()>().await;
        }
    }

    /// Returns true once shutdown has begun: the server is not ready then, whatever else works.
    pub(super) fn has_begun(&self) -> bool {
        self.0.deadline.borrow().is_some()
    }

    /// Time that running calls get during shutdown.
    pub(super) fn drain(&self) -> Duration {
        Duration::from_secs(self.0.options.drain_seconds)
    }

    /// The same for what begins now, which may be after stopping has begun.
    pub(super) fn drain_left(&self) -> Duration {
        let left = self.0.deadline.borrow().map(|deadline| {
            let left = deadline.saturating_duration_since(Instant::now());
            left.saturating_sub(CLOSING)
        });
        left.map_or(self.drain(), |left| left.min(self.drain()))
    }

    /// After how long it is over in any case.
    pub(super) fn limit(&self) -> Duration {
        self.ready_delay() + self.drain() + CLOSING
    }

    fn ready_delay(&self) -> Duration {
        Duration::from_secs(self.0.options.ready_delay_seconds)
    }

    /// For as long as the process lives.
    async fn obey(self, mut signals: Signals) {
        let mut deadline = self.0.deadline.subscribe();
        loop {
            let until = *deadline.borrow_and_update();
            let overdue = async {
                match until {
                    Some(until) => tokio::time::sleep_until(until).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                (name, number) = signals.next() => {
                    let again = self.0.asked.send_replace(true);
                    if again || !self.0.is_serving.load(Ordering::Acquire) {
                        tracing::warn!(signal = name, again, "ending at once");
                        exit(SIGNALLED + number);
                    }
                    tracing::info!(signal = name, "stopping");
                    self.begin();
                }
                () = overdue => {
                    tracing::error!(limit = ?self.limit(), "stopping has taken too long");
                    exit(UNCLEAN.into());
                }
                _ = deadline.changed() => {}
            }
        }
    }
}

/// The signals that ask the server to stop.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn watch() -> Result<Self, Failure> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The name and the number of the next one.
    async fn next(&mut self) -> (&'static str, i32) {
        let (name, kind) = tokio::select! {
            Some(()) = self.terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            Some(()) = self.interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
            else => std::future::pending().await,
        };
        (name, kind.as_raw_value())
    }
}

fn exit(code: i32) -> ! {
    std::thread::sleep(LAST_LINE);
    std::process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_it_is_over_within_five_seconds() {
        let lifecycle = Lifecycle::unwatched(Shutdown::default());
        assert!(lifecycle.limit() < Duration::from_secs(5));
        assert!(Duration::from_secs(2) < lifecycle.drain());
    }

    // Unwatched: one that is watched ends the process of the tests at its deadline.
    #[test]
    fn whatever_begins_it_begins_it_once() {
        let lifecycle = Lifecycle::unwatched(Shutdown::default());
        assert!(!lifecycle.has_begun());
        lifecycle.begin();
        let deadline = *lifecycle.0.deadline.borrow();
        lifecycle.begin();
        assert!(lifecycle.has_begun());
        assert_eq!(*lifecycle.0.deadline.borrow(), deadline);
    }
}
