//! Notices when a file has other content, or is for others, than before.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// Time without a change before the file is read, so that it is complete.
const QUIET: Duration = Duration::from_millis(100);
/// A burst of changes is looked at after so long all the same.
const MAX_BURST: Duration = Duration::from_secs(2);
/// Interval between checks without an announcement: networks and links lose announcements.
const POLL: Duration = Duration::from_secs(5);
/// The same while there is no directory that could be watched.
const ABSENT_POLL: Duration = Duration::from_secs(1);
/// Number of times a file that keeps changing is read.
const MAX_ATTEMPTS: u32 = 3;
/// Bytes of a file that are compared; of a longer one only the metadata are. No reader accepts a
/// longer file: keys have 8 MiB, and all other files less.
const MAX_BYTES: u64 = 8 * 1024 * 1024;
/// Bytes of it that are in memory at once.
const PART_BYTES: usize = 64 * 1024;

/// A file that is watched, by its directory, so that it may be replaced, be a link, or not exist.
/// Watching ends when this is dropped.
#[derive(Debug)]
pub(super) struct FileWatch {
    versions: watch::Receiver<u64>,
    seen: Seen,
    task: JoinHandle<()>,
}

/// Content of the file, as a fingerprint, when it was last read by any reader.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    path: PathBuf,
    print: Arc<Mutex<Option<u64>>>,
}

impl Seen {
    /// Reads the file by `read`, again if it changes meanwhile, and notes its content: content that
    /// differs later is a change.
    pub(super) fn reading<T>(&self, read: impl Fn() -> T) -> T {
        let mut attempts = 0;
        loop {
            let before = print(&self.path);
            let value = read();
            self.replace(before);
            attempts += 1;
            if attempts == MAX_ATTEMPTS || before == print(&self.path) {
                return value;
            }
        }
    }

    /// Notes the present content; returns true if it differs from the one before.
    fn replace(&self, now: Option<u64>) -> bool {
        let mut last = self.print.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *last, now) != now
    }
}

impl FileWatch {
    /// Watches `path`, which is absolute, from its present content on.
    pub(super) fn start(path: PathBuf) -> Self {
        let (sender, versions) = watch::channel(0);
        let announced = Arc::new(Notify::new());
        // First, so that nothing that happens meanwhile is lost.
        let watcher = watcher(&path, Arc::clone(&announced));
        let seen = Seen {
            print: Arc::new(Mutex::new(print(&path))),
            path,
        };
        let followed = seen.clone();
        let task = tokio::spawn(follow(followed, announced, sender, watcher));
        Self {
            versions,
            seen,
            task,
        }
    }

    /// Fingerprint for readers of the file: a reader notes it, so that content it has read is no
    /// later change.
    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    /// Resolves when the file has other content than when it was last asked.
    ///
    /// # Cancel safety
    ///
    /// A change is not lost when the future is dropped.
    pub(super) async fn changed(&mut self) {
        if self.versions.changed().await.is_err() {
            // The task runs until this is dropped.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    seen: Seen,
    announced: Arc<Notify>,
    sender: watch::Sender<u64>,
    mut watching: Option<RecommendedWatcher>,
) {
    let has_directory = || seen.path.parent().is_none_or(Path::exists);
    // It may have been made since.
    let mut is_absent = watching.is_none();
    loop {
        let poll = if is_absent { ABSENT_POLL } else { POLL };
        if timeout(poll, announced.notified()).await.is_ok() {
            until_quiet(&announced).await;
        }
        if is_absent && has_directory() {
            watching = watcher(&seen.path, Arc::clone(&announced));
            is_absent = false;
        }
        let seen = seen.clone();
        // A disk may hang, and calls must not hang with it.
        let looked = tokio::task::spawn_blocking(move || seen.replace(print(&seen.path))).await;
        let Ok(is_new) = looked else {
            return drop(watching);
        };
        if is_new {
            sender.send_modify(|version| *version += 1);
        }
    }
}

async fn until_quiet(announced: &Notify) {
    let end = Instant::now() + MAX_BURST;
    loop {
        tokio::select! {
            () = sleep(QUIET) => return,
            () = announced.notified() => {}
        }
        if end <= Instant::now() {
            return;
        }
    }
}

/// Announces changes in the directory of `path`, and where that leads to.
fn watcher(path: &Path, announced: Arc<Notify>) -> Option<RecommendedWatcher> {
    let tell = move |event: notify::Result<Event>| {
        if event.is_err() || event.is_ok_and(|event| is_change(&event)) {
            announced.notify_one();
        }
    };
    let result = notify::recommended_watcher(tell).and_then(|mut watcher| {
        let directory = path.parent().unwrap_or(path);
        watcher.watch(directory, RecursiveMode::NonRecursive)?;
        let real = fs::canonicalize(path).ok();
        let real = real.as_deref().and_then(Path::parent);
        if let Some(real) = real.filter(|real| *real != directory) {
            // An edit of what a link leads to happens there.
            let _ = watcher.watch(real, RecursiveMode::NonRecursive);
        }
        Ok(watcher)
    });
    match result {
        Ok(watcher) => Some(watcher),
        // A directory that is made later is noticed by polling.
        Err(error) if path.parent().is_some_and(|it| !it.exists()) => {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the directory of a watched file does not exist"
            );
            None
        }
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "changes of the configuration are not announced, so they are polled for"
            );
            None
        }
    }
}

/// Our own reading is announced too.
fn is_change(event: &Event) -> bool {
    match event.kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

/// Fingerprint that differs when the content does; `None` without a file.
fn print(path: &Path) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => error.to_string().hash(&mut hasher),
        // A pipe would be waited for without end.
        Ok(metadata) if !metadata.is_file() => 0.hash(&mut hasher),
        Ok(metadata) => {
            // Who may read it is a reason not to use what it says.
            let whose = (metadata.mode(), metadata.uid(), metadata.gid());
            (whose, metadata.len()).hash(&mut hasher);
            if MAX_BYTES < metadata.len() {
                let (changed, nanoseconds) = (metadata.ctime(), metadata.ctime_nsec());
                (metadata.ino(), changed, nanoseconds).hash(&mut hasher);
            }
            if let Err(error) = hash_content(path, &mut hasher) {
                error.to_string().hash(&mut hasher);
            }
        }
    }
    Some(hasher.finish())
}

/// A part at a time, since this is done every few seconds.
fn hash_content(path: &Path, hasher: &mut DefaultHasher) -> io::Result<()> {
    let mut file = regular_file::open(path)?.take(MAX_BYTES);
    let mut part = vec![0; PART_BYTES];
    loop {
        let filled = match file.read(&mut part) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            read => read?,
        };
        hasher.write(&part[..filled]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// Far longer than it takes to notice a change.
    const LONG: Duration = Duration::from_secs(60);

    async fn notices(watch: &mut FileWatch) {
        timeout(LONG, watch.changed()).await.expect("it is noticed");
    }

    #[tokio::test]
    async fn edits_renames_removals_and_returns_are_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::start(path.clone());
        fs::write(&path, "two").unwrap();
        notices(&mut watch).await;
        let other = directory.path().join("other");
        fs::write(&other, "three").unwrap();
        fs::rename(&other, &path).unwrap();
        notices(&mut watch).await;
        fs::remove_file(&path).unwrap();
        notices(&mut watch).await;
        fs::write(&path, "three").unwrap();
        notices(&mut watch).await;
    }

    #[tokio::test]
    async fn what_was_read_in_between_is_a_change_when_it_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::start(path.clone());
        // It is read as it is for a moment, which the watch itself does not see.
        fs::write(&path, "two").unwrap();
        let read = || fs::read_to_string(&path).unwrap();
        assert_eq!(watch.seen().reading(read), "two");
        fs::write(&path, "one").unwrap();
        notices(&mut watch).await;
        assert_eq!(watch.seen().reading(read), "one");
    }

    #[tokio::test]
    async fn a_file_that_changes_while_it_is_read_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let watch = FileWatch::start(path.clone());
        let reads = std::cell::Cell::new(0);
        let last = watch.seen().reading(|| {
            let text = fs::read_to_string(&path).unwrap();
            if reads.replace(reads.get() + 1) == 0 {
                fs::write(&path, "two").unwrap();
            }
            text
        });
        assert_eq!((last.as_str(), reads.get()), ("two", 2));
    }

    #[tokio::test]
    async fn a_link_that_is_swapped_is_noticed() {
        // As volumes of configuration are mounted: file -> ..data/file, ..data -> ..1
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        for (version, text) in [("..1", "one"), ("..2", "two")] {
            fs::create_dir(at(version)).unwrap();
            fs::write(at(version).join("file"), text).unwrap();
        }
        symlink("..1", at("..data")).unwrap();
        symlink("..data/file", at("file")).unwrap();
        let mut watch = FileWatch::start(at("file"));
        symlink("..2", at("..new")).unwrap();
        fs::rename(at("..new"), at("..data")).unwrap();
        notices(&mut watch).await;
    }

    #[tokio::test]
    async fn the_end_of_a_long_file_and_its_permissions_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keys.json");
        for length in [2 * 1024 * 1024 + 1, 8 * 1024 * 1024, 9 * 1024 * 1024] {
            // As long as before, and other at the end alone: what taking the last key back is.
            let mut text = vec![b' '; length];
            fs::write(&path, &text).unwrap();
            let mut watch = FileWatch::start(path.clone());
            *text.last_mut().unwrap() = b'x';
            fs::write(&path, &text).unwrap();
            notices(&mut watch).await;
        }
        let mut watch = FileWatch::start(path.clone());
        for mode in [0o600, 0o666] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            notices(&mut watch).await;
        }
    }

    #[tokio::test]
    async fn a_directory_that_is_made_later_is_watched_from_then_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("later").join("file");
        let mut watch = FileWatch::start(path.clone());
        fs::create_dir(path.parent().unwrap()).unwrap();
        for text in ["one", "two"] {
            fs::write(&path, text).unwrap();
            let noticed = timeout(POLL - Duration::from_secs(1), watch.changed());
            noticed.await.expect("nothing is polled for so long");
        }
    }

    #[tokio::test]
    async fn the_same_content_is_no_change() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "one").unwrap();
        let mut watch = FileWatch::start(path.clone());
        fs::write(directory.path().join("beside"), "x").unwrap();
        fs::write(&path, "one").unwrap();
        fs::write(&path, "two").unwrap();
        notices(&mut watch).await;
        assert_eq!(*watch.versions.borrow(), 1);
    }
}
