//! Notices that an application's source files have changed.

use notify::{
    Config, Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use tokio::{sync::mpsc, time::Instant};

/// Time without a change before a change is handled.
const QUIET: Duration = Duration::from_millis(300);
/// Number of quiet periods that a burst of changes may last before it is handled all the same.
const MAX_QUIET_PERIODS: u32 = 10;
/// Interval at which files are compared although the system announces changes: it may lose some.
const FULL_CHECK: Duration = Duration::from_secs(30);
/// Interval at which files are compared where the system does not announce changes.
const POLL: Duration = Duration::from_secs(2);
/// Signals that may wait. One says all there is to say: look again.
const SIGNALS: usize = 1;
/// Most files that are watched.
const MAX_FILES: usize = 4096;

/// Follows files. Nothing is announced before [`follow`](Self::follow).
#[derive(Debug, Default)]
pub(super) struct SourceWatch {
    /// The files that were loaded, as they were when that began.
    seen: BTreeMap<PathBuf, Option<Print>>,
    /// Besides those, whatever is Python beside them: the application could not be loaded, perhaps
    /// because of a file that it had not had before.
    also: Option<BTreeMap<PathBuf, Option<Print>>>,
    /// True if a change was announced that was not handled yet.
    is_announced: bool,
    /// True if a file differs from the one that was loaded.
    is_changed: bool,
    announcer: Option<Announcer>,
}

#[derive(Debug)]
struct Announcer {
    directories: BTreeSet<PathBuf>,
    signals: mpsc::Receiver<()>,
    /// `None` where the files must be polled.
    _watcher: Option<RecommendedWatcher>,
}

/// By what a file is known to be another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    modified: SystemTime,
    length: u64,
    number: u64,
}

impl SourceWatch {
    /// Watches these files, which were loaded, with loading begun at this time.
    pub(super) fn follow(&mut self, files: &[PathBuf], begun: SystemTime) {
        let files: BTreeSet<&PathBuf> = files.iter().take(MAX_FILES).collect();
        self.also = None;
        let mut seen = BTreeMap::new();
        for file in files {
            let known = self.seen.get(file).copied();
            let now = print(file);
            // What was known was noted before loading began. Of others only their times tell, and
            // only once: clocks differ.
            let is_newer = now.is_none_or(|now| begun < now.modified);
            self.is_changed |= known.is_none() && is_newer;
            seen.insert(file.clone(), known.unwrap_or(now));
        }
        self.seen = seen;
        // It may have changed before it was watched.
        self.is_announced = true;
        let directories: BTreeSet<PathBuf> = self
            .seen
            .keys()
            .filter_map(|file| Some(file.parent()?.to_owned()))
            .collect();
        if self
            .announcer
            .as_ref()
            .is_none_or(|announcer| announcer.directories != directories)
        {
            self.announcer = Some(Announcer::new(directories));
        }
    }

    /// Notes the present files, which are about to be loaded.
    pub(super) fn take_note(&mut self) {
        self.is_changed = false;
        for (file, seen) in &mut self.seen {
            *seen = print(file);
        }
    }

    /// Notes that the present files cannot be loaded, so any file may be the one that changes that.
    pub(super) fn expect_anything(&mut self) {
        self.also = Some(self.beside());
    }

    /// Returns when files are others than those that were noted.
    ///
    /// # Cancel safety
    ///
    /// Nothing is missed when the future is dropped.
    pub(super) async fn changed(&mut self) {
        loop {
            if self.is_changed {
                return;
            }
            if !self.is_announced {
                self.announced().await;
                self.is_announced = true;
            }
            self.quiet().await;
            self.is_announced = false;
            self.is_changed = self.differs();
        }
    }

    /// Returns when it is time to look.
    async fn announced(&mut self) {
        let Some(announcer) = &mut self.announcer else {
            return std::future::pending().await;
        };
        let pause = if announcer._watcher.is_some() {
            FULL_CHECK
        } else {
            POLL
        };
        // However it ends, a look is due.
        let _ = tokio::time::timeout(pause, announcer.signals.recv()).await;
    }

    /// Returns once nothing was announced for a quiet period, or that took too long.
    async fn quiet(&mut self) {
        let Some(announcer) = &mut self.announcer else {
            return;
        };
        let end = Instant::now() + QUIET * MAX_QUIET_PERIODS;
        while Instant::now() < end {
            match tokio::time::timeout(QUIET, announcer.signals.recv()).await {
                Ok(Some(())) => {}
                Ok(None) => return tokio::time::sleep(QUIET).await,
                Err(_) => return,
            }
        }
    }

    fn differs(&self) -> bool {
        self.seen.iter().any(|(file, seen)| print(file) != *seen)
            || self
                .also
                .as_ref()
                .is_some_and(|also| self.beside() != *also)
    }

    /// All Python files in the directories.
    fn beside(&self) -> BTreeMap<PathBuf, Option<Print>> {
        let directories = self.announcer.iter().flat_map(|it| &it.directories);
        directories
            .filter_map(|directory| fs::read_dir(directory).ok())
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "py"))
            .take(MAX_FILES)
            .map(|path| {
                let print = print(&path);
                (path, print)
            })
            .collect()
    }
}

impl Announcer {
    fn new(directories: BTreeSet<PathBuf>) -> Self {
        let (sender, signals) = mpsc::channel(SIGNALS);
        let handler = move |event: Result<Event, notify::Error>| {
            if event.as_ref().is_ok_and(|event| !is_change(event)) {
                return;
            }
            // If it is full, a look will be taken without this.
            let _ = sender.try_send(());
        };
        let watcher =
            RecommendedWatcher::new(handler, Config::default()).and_then(|mut watcher| {
                for directory in &directories {
                    watcher.watch(directory, RecursiveMode::NonRecursive)?;
                }
                Ok(watcher)
            });
        let watcher = match watcher {
            Ok(watcher) => Some(watcher),
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::warn!(
                    error,
                    "changes of the application are not announced, so they are polled for"
                );
                None
            }
        };
        Self {
            directories,
            signals,
            _watcher: watcher,
        }
    }
}

/// Reading is no change.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

fn print(path: &Path) -> Option<Print> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path).ok()?;
    Some(Print {
        modified: metadata.modified().ok()?,
        length: metadata.len(),
        number: metadata.ino(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Far longer than it takes to notice a change.
    const LONG: Duration = Duration::from_secs(60);
    /// Longer than it takes to look once.
    const WHILE: Duration = Duration::from_millis(800);

    async fn notices(watch: &mut SourceWatch) {
        tokio::time::timeout(LONG, watch.changed())
            .await
            .expect("nothing was noticed");
    }

    async fn notices_nothing(watch: &mut SourceWatch) {
        assert!(tokio::time::timeout(WHILE, watch.changed()).await.is_err());
    }

    /// A file that was written some time ago.
    fn old_file(directory: &TempDir, name: &str) -> PathBuf {
        let path = directory.path().join(name);
        fs::write(&path, "1").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() - LONG).unwrap();
        path
    }

    #[tokio::test]
    async fn edits_replacements_and_removals_are_noticed_each_once() {
        let directory = TempDir::new().unwrap();
        let files = [old_file(&directory, "a.py"), old_file(&directory, "b.py")];
        let mut watch = SourceWatch::default();
        watch.follow(&files, SystemTime::now());
        notices_nothing(&mut watch).await;
        let replace = || {
            let other = directory.path().join("other");
            fs::write(&other, "22").unwrap();
            fs::rename(other, &files[1]).unwrap();
        };
        let edit = || fs::write(&files[0], "333").unwrap();
        let remove = || fs::remove_file(&files[1]).unwrap();
        for change in [&replace as &dyn Fn(), &edit, &remove] {
            change();
            notices(&mut watch).await;
            watch.take_note();
            watch.follow(&files, SystemTime::now());
        }
        notices_nothing(&mut watch).await;
    }

    #[tokio::test]
    async fn other_files_matter_only_where_loading_has_failed() {
        let directory = TempDir::new().unwrap();
        let files = [old_file(&directory, "a.py")];
        let mut watch = SourceWatch::default();
        watch.follow(&files, SystemTime::now());
        fs::write(directory.path().join("b.py"), "").unwrap();
        fs::write(directory.path().join("notes.txt"), "").unwrap();
        notices_nothing(&mut watch).await;
        watch.take_note();
        watch.expect_anything();
        fs::write(directory.path().join("notes.txt"), "more").unwrap();
        notices_nothing(&mut watch).await;
        fs::write(directory.path().join("b.py"), "x = 1").unwrap();
        notices(&mut watch).await;
    }

    #[tokio::test]
    async fn what_changes_while_it_is_loaded_is_noticed_afterwards_and_only_once() {
        let directory = TempDir::new().unwrap();
        let known = old_file(&directory, "a.py");
        let new = old_file(&directory, "b.py");
        let mut watch = SourceWatch::default();
        watch.follow(std::slice::from_ref(&known), SystemTime::now());
        watch.take_note();
        let begun = SystemTime::now() - Duration::from_secs(1);
        fs::write(&known, "22").unwrap();
        watch.follow(&[known.clone(), new.clone()], begun);
        notices(&mut watch).await;
        watch.take_note();
        fs::write(&new, "22").unwrap();
        watch.follow(&[known.clone(), new.clone()], begun);
        notices(&mut watch).await;
        // From a clock that is ahead.
        watch.take_note();
        let newest = old_file(&directory, "c.py");
        let files = [known, new, newest];
        let long_ago = SystemTime::UNIX_EPOCH;
        watch.follow(&files, long_ago);
        notices(&mut watch).await;
        watch.take_note();
        watch.follow(&files, long_ago);
        notices_nothing(&mut watch).await;
    }
}
