//! A watch on a directory of files: which of them have changed, each change told once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use notify::{
    Config, Event as Announced, EventKind, RecommendedWatcher, RecursiveMode, Watcher,
    event::{AccessKind, AccessMode, CreateKind, ModifyKind},
};

use crate::files::{
    address::Relative,
    folder::{Changes, Event, Folder},
};

/// Time for which a finished change waits for others: a program that replaces a file does several things at once.
const FINISHED: Duration = Duration::from_millis(15);
/// Time after which a file is looked at that is still being written.
const UNFINISHED: Duration = Duration::from_millis(100);
/// Time after which a new directory is looked at again: files may have come before it was watched.
const AGAIN: Duration = Duration::from_millis(120);
/// Interval at which the directory is checked for being the same one.
const ROOT_CHECK: Duration = Duration::from_secs(1);
/// Interval at which everything is compared although the system announces changes: it may lose some.
const FULL_CHECK: Duration = Duration::from_secs(30);
/// Shortest interval of polling, where the system does not announce changes.
const POLL: Duration = Duration::from_millis(200);
/// Polling takes no more of a processor than one part in so many.
const POLL_SHARE: u32 = 20;
/// Shortest interval between two reports that there are other files; it doubles while files come and go all the time.
const LISTED: Duration = Duration::from_millis(500);
/// The longest.
const MAX_LISTED: Duration = Duration::from_secs(10);
/// Most paths that wait to be looked at; if there are more, everything is looked at.
const MAX_WAITING: usize = 20_000;

/// Way in which changes of a directory become known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Following {
    /// The system announces them.
    Announced,
    /// By looking again and again; with the reason, and the interval.
    Polled(String, Duration),
    /// Not at all at the moment.
    Lost(String),
}

/// Told of changes, on the thread of the watch; must not block for long.
pub(crate) trait Told: fmt::Debug + Send + Sync {
    /// Files have changed; each state of a file is told once.
    fn changed(&self, folder: &Arc<Folder>, changes: &Changes);

    /// Files have come or gone since the last time, which was [`LISTED`] ago at least.
    fn listed(&self);
}

#[derive(Debug, Default)]
struct Waiting {
    paths: BTreeMap<PathBuf, Due>,
    /// Paths that the server itself has written to.
    written: BTreeSet<Relative>,
    everything: bool,
    root: bool,
    is_over: bool,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    /// Times that the path is looked into if it is a directory: what was in there may not have been announced.
    looks: u8,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    woken: Condvar,
    following: Mutex<Option<Following>>,
}

/// A watch, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// Follows the changes of a directory, and looks at all of it once.
    ///
    /// # Errors
    ///
    /// When the directory cannot be listed, or no thread can be started.
    pub(crate) fn start(
        folder: &Arc<Folder>,
        told: Arc<dyn Told>,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let began = Instant::now();
        let shared = Arc::new(Shared::default());
        // Before the first look, so that nothing falls between the two.
        let watcher = announcements(folder, &shared);
        folder.look_at_all()?;
        let mut worker = Worker {
            folder: Arc::clone(folder),
            shared: Arc::clone(&shared),
            told,
            watcher: None,
            watched: PathBuf::new(),
            poll: POLL,
            listed: began.checked_sub(LISTED).unwrap_or(began),
            list_due: None,
            list_pause: LISTED,
        };
        worker.use_announcements(watcher);
        thread::Builder::new()
            .name(format!("files-{}", folder.name))
            .spawn(move || worker.run())?;
        Ok(Self { shared })
    }

    /// Access to the watch for who writes.
    pub(crate) fn handle(&self) -> WatchHandle {
        WatchHandle(Arc::clone(&self.shared))
    }

    /// Way in which changes become known now.
    pub(crate) fn following(&self) -> Following {
        self.shared.following()
    }
}

/// Access to a watch for who writes.
#[derive(Debug)]
pub(crate) struct WatchHandle(Arc<Shared>);

impl WatchHandle {
    /// Has these paths looked at now, whether the system announces their changes or not.
    pub(crate) fn look_at(&self, paths: &[&Relative]) {
        let paths = paths.iter().map(|it| (*it).clone());
        self.0.change(|it| it.written.extend(paths));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.change(|it| it.is_over = true);
    }
}

impl Shared {
    fn following(&self) -> Following {
        let following = &self.following;
        let following = following.lock().unwrap_or_else(PoisonError::into_inner);
        following.clone().unwrap_or(Following::Announced)
    }

    fn follows(&self, following: Following) {
        let known = &self.following;
        *known.lock().unwrap_or_else(PoisonError::into_inner) = Some(following);
    }

    fn change(&self, change: impl FnOnce(&mut Waiting)) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut waiting);
        self.woken.notify_one();
    }

    fn announce(&self, event: &Announced, root: &Path) {
        if event.need_rescan() {
            return self.change(|it| it.everything = true);
        }
        let (after, looks) = match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => (FINISHED, 0),
            EventKind::Modify(ModifyKind::Name(_))
            | EventKind::Remove(_)
            | EventKind::Create(CreateKind::Folder) => (FINISHED, 2),
            EventKind::Create(_) => (UNFINISHED, 2),
            EventKind::Modify(_) | EventKind::Any | EventKind::Other => (UNFINISHED, 0),
            EventKind::Access(_) => return,
        };
        let due = Due {
            at: Instant::now() + after,
            looks,
        };
        self.change(|waiting| {
            for path in &event.paths {
                if path == root {
                    waiting.root = true;
                    continue;
                }
                if MAX_WAITING <= waiting.paths.len() {
                    waiting.everything = true;
                    waiting.paths.clear();
                    return;
                }
                waiting.wait(path.clone(), due);
            }
        });
    }
}

impl Waiting {
    fn wait(&mut self, path: PathBuf, due: Due) {
        let known = self.paths.entry(path).or_insert(due);
        known.at = known.at.min(due.at);
        known.looks = known.looks.max(due.looks);
    }
}

/// Has the system announce changes, by paths below the one that is returned: that of the directory without links.
fn announcements(
    folder: &Folder,
    shared: &Arc<Shared>,
) -> Result<(RecommendedWatcher, PathBuf), String> {
    if folder.options.poll_only {
        return Err("so configured".to_owned());
    }
    let path = folder.options.path.canonicalize();
    let path = path.map_err(|error| error.to_string())?;
    let watched = path.clone();
    let shared = Arc::clone(shared);
    let tell = move |event: notify::Result<Announced>| match event {
        Ok(event) => shared.announce(&event, &watched),
        Err(_) => shared.change(|it| it.everything = true),
    };
    let config = Config::default().with_follow_symlinks(false);
    let watcher = RecommendedWatcher::new(tell, config);
    let mut watcher = watcher.map_err(|error| error.to_string())?;
    let started = watcher.watch(&path, RecursiveMode::Recursive);
    started.map_err(|error| error.to_string())?;
    Ok((watcher, path))
}

struct Worker {
    folder: Arc<Folder>,
    shared: Arc<Shared>,
    told: Arc<dyn Told>,
    watcher: Option<RecommendedWatcher>,
    /// The directory by which changes are announced.
    watched: PathBuf,
    poll: Duration,
    /// Times when files were last reported to have come or gone, and when they will be next.
    listed: Instant,
    list_due: Option<Instant>,
    list_pause: Duration,
}

impl Worker {
    fn use_announcements(&mut self, watcher: Result<(RecommendedWatcher, PathBuf), String>) {
        self.watcher = None;
        match watcher {
            Ok((watcher, watched)) => {
                self.watcher = Some(watcher);
                self.watched = watched;
                self.shared.follows(Following::Announced);
            }
            Err(why) => {
                tracing::warn!(
                    root = self.folder.name,
                    why,
                    "changes of files are not announced, so they are looked for again and again"
                );
                self.shared.follows(Following::Polled(why, self.poll));
            }
        }
    }

    fn run(mut self) {
        let mut root_check = Instant::now() + ROOT_CHECK;
        let mut full_check = Instant::now() + FULL_CHECK;
        loop {
            let full = match self.watcher {
                Some(_) => full_check,
                None => full_check.min(Instant::now() + self.poll),
            };
            let until = root_check.min(full);
            let until = self.list_due.map_or(until, |it| it.min(until));
            let Some(due) = self.next(until) else {
                return;
            };
            let now = Instant::now();
            let mut everything = due.everything || full <= now;
            if due.root || root_check <= now {
                root_check = now + ROOT_CHECK;
                everything |= self.check_root();
            }
            match everything {
                true => {
                    full_check = now + FULL_CHECK;
                    self.look_at_all();
                }
                false => {
                    self.look_at_written(&due.written);
                    self.look_at(due.paths);
                }
            }
            if self.list_due.is_some_and(|it| it <= Instant::now()) {
                self.list_due = None;
                let was_lately = self.listed.elapsed() < self.list_pause * 2;
                self.list_pause = match was_lately {
                    true => (self.list_pause * 2).min(MAX_LISTED),
                    false => LISTED,
                };
                self.listed = Instant::now();
                self.told.listed();
            }
        }
    }

    /// All that is due, when something is or it is `until`; `None` if the watch is over.
    fn next(&self, until: Instant) -> Option<AllDue> {
        let waiting = &self.shared.waiting;
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if waiting.is_over {
                return None;
            }
            let now = Instant::now();
            let due = AllDue {
                everything: std::mem::take(&mut waiting.everything),
                root: std::mem::take(&mut waiting.root),
                written: std::mem::take(&mut waiting.written),
                paths: waiting.paths.extract_if(.., |_, it| it.at <= now).collect(),
            };
            let has_paths = !due.paths.is_empty() || !due.written.is_empty();
            if due.everything || due.root || has_paths || until <= now {
                return Some(due);
            }
            let next = waiting.paths.values().map(|it| it.at).min();
            let next = next.map_or(until, |it| it.min(until));
            let pause = next.saturating_duration_since(now);
            let woken = self.shared.woken.wait_timeout(waiting, pause);
            waiting = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Follows the directory's path to where it leads now; true if everything must be looked at.
    fn check_root(&mut self) -> bool {
        let is_lost = matches!(self.shared.following(), Following::Lost(_));
        match self.folder.reopen() {
            Ok(is_other) if is_other || is_lost => {
                let watcher = announcements(&self.folder, &self.shared);
                self.use_announcements(watcher);
                true
            }
            Ok(_) => false,
            Err(error) => {
                self.shared.follows(Following::Lost(error.to_string()));
                false
            }
        }
    }

    fn look_at_all(&mut self) {
        let began = Instant::now();
        match self.folder.look_at_all() {
            Ok(changes) => self.tell(&changes),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    root = self.folder.name,
                    error,
                    "a directory cannot be looked at"
                );
            }
        }
        self.poll = POLL.max(began.elapsed() * POLL_SHARE);
        if let Following::Polled(why, _) = self.shared.following() {
            self.shared.follows(Following::Polled(why, self.poll));
        }
    }

    fn look_at_written(&mut self, paths: &BTreeSet<Relative>) {
        let mut all = Vec::new();
        for path in paths {
            match self.folder.look_at(path, false) {
                Ok((changes, _)) => all.extend(changes),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(path = path.as_str(), error, "a file cannot be looked at");
                }
            }
        }
        self.tell(&all);
    }

    fn look_at(&mut self, due: BTreeMap<PathBuf, Due>) {
        let mut all = Vec::new();
        for (path, due) in due {
            let relative = path.strip_prefix(&self.watched).ok();
            let Some(relative) = relative.and_then(Path::to_str).and_then(Relative::new) else {
                continue;
            };
            match self.folder.look_at(&relative, 0 < due.looks) {
                Ok((changes, was_looked_into)) => {
                    all.extend(changes);
                    if was_looked_into && 1 < due.looks {
                        let again = Due {
                            at: Instant::now() + AGAIN,
                            looks: due.looks - 1,
                        };
                        self.shared.change(|it| it.wait(path, again));
                    }
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(path = %path.display(), error, "a file cannot be looked at");
                }
            }
        }
        self.tell(&all);
    }

    fn tell(&mut self, changes: &Changes) {
        if changes.is_empty() {
            return;
        }
        self.told.changed(&self.folder, changes);
        if changes.iter().any(|(_, it)| *it != Event::Updated) {
            let due = (self.listed + self.list_pause).max(Instant::now());
            self.list_due.get_or_insert(due);
        }
    }
}

/// Things to look at.
struct AllDue {
    paths: BTreeMap<PathBuf, Due>,
    written: BTreeSet<Relative>,
    everything: bool,
    root: bool,
}
