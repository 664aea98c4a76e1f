//! A watch on a directory.

use std::{
    error::Error,
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use notify::{
    Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use tracing::warn;

use crate::walk::Listing;

/// Number of quiet periods that a burst of changes may last before it is read all the same.
const MAX_QUIET_PERIODS: u32 = 10;

/// Interval at which the directory is checked for being the same one. The system announces
/// neither a directory that appears, nor a link that leads elsewhere.
const ROOT_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which everything is compared although the system announces changes: it may lose
/// some, as when directories are made faster than they can be watched.
const FULL_CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// Signals that may wait. One says all there is to say: look again.
const SIGNAL_CAPACITY: usize = 1;

/// Options of a watch.
#[derive(Clone, Copy, Debug)]
pub struct WatchOptions {
    /// Time without a change before a change is read.
    pub quiet_period: Duration,
    /// Interval at which a directory is searched where the system does not announce changes.
    pub poll_interval: Duration,
    /// Never ask the system to announce changes. For network file systems, where it would be silent.
    pub poll_only: bool,
}

impl Default for WatchOptions {
    /// 150 ms of quiet, and where it must be, polling every two seconds.
    fn default() -> Self {
        Self {
            quiet_period: Duration::from_millis(150),
            poll_interval: Duration::from_secs(2),
            poll_only: false,
        }
    }
}

/// A reader of a directory.
pub trait Follow: Send + 'static {
    /// Directory that is watched. It need not exist yet.
    fn root(&self) -> &Path;

    /// Files below it now, unread.
    fn listing(&self) -> Listing;

    /// Reads the directory. With `forgets`, what is kept of files that are gone is forgotten.
    fn read(&mut self, forgets: bool);
}

/// Watching cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The system gives no thread.
    #[error("no thread can be started")]
    Thread(#[source] io::Error),
}

/// Watching lasts as long as this; the receivers then see their channel closed.
#[derive(Debug)]
#[must_use = "watching ends when this is dropped"]
pub struct WatchGuard {
    stop: Arc<AtomicBool>,
    forgets: Arc<AtomicBool>,
    signals: SyncSender<()>,
}

impl WatchGuard {
    /// Looks again, and no longer keeps what was known of files that are gone.
    pub fn forget(&self) {
        self.forgets.store(true, Ordering::Release);
        let _ = self.signals.try_send(());
    }
}

impl Drop for WatchGuard {
    /// Does not wait for the thread, which ends once a scan under way is over.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // If it is full the thread is about to wake up anyway.
        let _ = self.signals.try_send(());
    }
}

/// Reads a directory, and again whenever something in it changes, in a thread called `name`. Blocks on
/// the disk for the first time.
///
/// # Errors
///
/// [`WatchError`]. If the system cannot announce changes, or stops to, the directory is polled.
pub fn watch<F: Follow>(
    name: &str,
    options: WatchOptions,
    follow: F,
) -> Result<WatchGuard, WatchError> {
    let (signals, signalled) = mpsc::sync_channel(SIGNAL_CAPACITY);
    let stop = Arc::new(AtomicBool::new(false));
    let guard = WatchGuard {
        stop: Arc::clone(&stop),
        forgets: Arc::default(),
        signals: signals.clone(),
    };
    let mut follower = Follower {
        options,
        follow,
        signals,
        forgets: Arc::clone(&guard.forgets),
        trouble: Arc::default(),
        attached: None,
        seen: Listing::new(),
    };
    // Announcements first: what changes meanwhile is announced then.
    follower.attach_if_moved();
    follower.reread();
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || follower.run(&signalled, &stop))
        .map_err(WatchError::Thread)?;
    Ok(guard)
}

/// Identity of a directory: a path alone is not enough, nor is an inode number, which is used anew.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    resolved: PathBuf,
    numbers: Option<(u64, u64)>,
    created: Option<SystemTime>,
}

#[derive(Debug)]
struct Attached {
    to: Identity,
    /// `None` where the directory must be polled.
    watcher: Option<RecommendedWatcher>,
}

struct Follower<F> {
    options: WatchOptions,
    follow: F,
    signals: SyncSender<()>,
    /// Set when files that are gone are to be forgotten.
    forgets: Arc<AtomicBool>,
    /// Set by the watcher when it may have missed something, or its directory is gone.
    trouble: Arc<AtomicBool>,
    attached: Option<Attached>,
    seen: Listing,
}

impl<F: Follow> Follower<F> {
    fn run(mut self, signalled: &Receiver<()>, stop: &AtomicBool) {
        let mut checked = Instant::now();
        let mut is_unsettled = false;
        while !stop.load(Ordering::Acquire) {
            let announced = match signalled.recv_timeout(self.pause()) {
                Ok(()) => {
                    self.wait_for_quiet(signalled, stop);
                    true
                }
                Err(RecvTimeoutError::Timeout) => false,
                // Cannot be, since `self.signals` is one of the senders.
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if stop.load(Ordering::Acquire) {
                return;
            }
            let moved = self.attach_if_moved();
            let is_due = checked.elapsed() >= FULL_CHECK_INTERVAL;
            if announced || moved {
                self.reread();
                checked = Instant::now();
                // A directory may get its first files before it is watched, so look again soon.
                is_unsettled = true;
            } else if is_due || is_unsettled || !self.is_announced() {
                checked = Instant::now();
                is_unsettled = false;
                if self.follow.listing() != self.seen {
                    self.reread();
                    // Something was not announced, so make sure that all is watched.
                    self.trouble.store(self.is_announced(), Ordering::Release);
                }
            }
        }
    }

    fn is_announced(&self) -> bool {
        self.attached
            .as_ref()
            .is_some_and(|attached| attached.watcher.is_some())
    }

    fn pause(&self) -> Duration {
        match &self.attached {
            Some(Attached { watcher: None, .. }) => self.options.poll_interval,
            _ => ROOT_CHECK_INTERVAL.min(self.options.poll_interval),
        }
    }

    /// Returns once nothing was announced for a quiet period, or that took too long.
    fn wait_for_quiet(&self, signalled: &Receiver<()>, stop: &AtomicBool) {
        let quiet = self.options.quiet_period;
        let deadline = Instant::now() + quiet * MAX_QUIET_PERIODS;
        while !stop.load(Ordering::Acquire) && Instant::now() < deadline {
            if signalled.recv_timeout(quiet).is_err() {
                return;
            }
        }
    }

    /// Has the directory watched if it is another one than before, or its watcher is in trouble.
    /// Returns true if something may have changed by that.
    fn attach_if_moved(&mut self) -> bool {
        let is_troubled = self.trouble.swap(false, Ordering::AcqRel);
        let now = identity(self.follow.root());
        let before = self.attached.as_ref().map(|attached| &attached.to);
        if now.as_ref() == before && !is_troubled {
            return false;
        }
        self.attached = now.map(|to| {
            let watcher = if self.options.poll_only {
                None
            } else {
                self.watcher(&to.resolved)
            };
            Attached { to, watcher }
        });
        true
    }

    fn watcher(&self, resolved: &Path) -> Option<RecommendedWatcher> {
        let signals = self.signals.clone();
        let trouble = Arc::clone(&self.trouble);
        let root = resolved.to_owned();
        let handler = move |event: Result<Event, notify::Error>| {
            let (is_change, is_trouble) = match &event {
                Ok(event) => (is_change(event), is_trouble(event, &root)),
                Err(_) => (true, true),
            };
            if is_trouble {
                trouble.store(true, Ordering::Release);
            }
            if is_change {
                // If it is full, the thread will look again without this.
                let _ = signals.try_send(());
            }
        };
        // A link may lead anywhere, and what it leads to inside the root is watched as that.
        let config = Config::default().with_follow_symlinks(false);
        let watcher = RecommendedWatcher::new(handler, config).and_then(|mut watcher| {
            watcher.watch(resolved, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let error = &error as &dyn Error;
                warn!(
                    error,
                    "changes of files are not announced, so they are polled for"
                );
                None
            }
        }
    }

    fn reread(&mut self) {
        // Before it is read, so that a change between the two is seen at the next comparison.
        self.seen = self.follow.listing();
        let forgets = self.forgets.swap(false, Ordering::AcqRel);
        self.follow.read(forgets);
    }
}

/// Our own reading is announced too, and must not start the next scan.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

fn is_trouble(event: &Event, root: &Path) -> bool {
    let is_of_root = event.paths.iter().any(|path| path == root);
    let is_loss = matches!(
        event.kind,
        EventKind::Remove(_) | EventKind::Modify(notify::event::ModifyKind::Name(_))
    );
    event.need_rescan() || (is_of_root && is_loss)
}

fn identity(root: &Path) -> Option<Identity> {
    let resolved = fs::canonicalize(root).ok()?;
    let metadata = fs::metadata(&resolved).ok()?;
    #[cfg(unix)]
    let numbers = {
        use std::os::unix::fs::MetadataExt;
        Some((metadata.dev(), metadata.ino()))
    };
    #[cfg(not(unix))]
    let numbers = None;
    metadata.is_dir().then(|| Identity {
        resolved,
        numbers,
        created: metadata.created().ok(),
    })
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, Flag, ModifyKind, RemoveKind, RenameMode};

    use super::*;

    #[test]
    fn reading_is_no_change_and_everything_else_is() {
        let rows = [
            (EventKind::Access(AccessKind::Open(AccessMode::Any)), false),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Read)),
                false,
            ),
            (
                EventKind::Access(AccessKind::Close(AccessMode::Write)),
                true,
            ),
            (EventKind::Create(CreateKind::File), true),
            (EventKind::Modify(ModifyKind::Any), true),
            (EventKind::Remove(RemoveKind::Folder), true),
            (EventKind::Any, true),
            (EventKind::Other, true),
        ];
        for (kind, expected) in rows {
            assert_eq!(is_change(&Event::new(kind)), expected, "{kind:?}");
        }
    }

    #[test]
    fn a_lost_root_and_lost_events_are_trouble() {
        let root = Path::new("/skills");
        let removed = Event::new(EventKind::Remove(RemoveKind::Folder));
        let renamed = Event::new(EventKind::Modify(ModifyKind::Name(RenameMode::From)));
        assert!(is_trouble(&removed.clone().add_path(root.to_owned()), root));
        assert!(is_trouble(&renamed.add_path(root.to_owned()), root));
        assert!(!is_trouble(&removed.add_path(root.join("a")), root));
        assert!(is_trouble(
            &Event::new(EventKind::Other).set_flag(Flag::Rescan),
            root
        ));
    }
}
