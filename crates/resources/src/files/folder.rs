//! One configured directory: what is in it, as it was last looked at.

use std::{
    collections::{BTreeMap, hash_map::DefaultHasher},
    fmt,
    hash::{Hash, Hasher},
    io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use crate::files::{
    address::{MAX_DEPTH, Relative, SCHEME, address},
    glob::Glob,
    own::{Guard, OwnFiles, ancestors, id},
    root::{Found, Root, RootError, Signature},
    watch::{Told, WatchHandle},
};

/// A state of a file that is younger than this when it is looked at may be followed by another one with the same time
/// of modification: clocks of file systems tick every few milliseconds.
const RACY: Duration = Duration::from_millis(100);

/// Options of a directory of files.
#[derive(Clone, Debug)]
pub struct FolderOptions {
    /// The directory. Links that lead to it are followed, links in it are not.
    pub path: PathBuf,
    /// Patterns of the paths that are served. Empty: all.
    pub include: Vec<String>,
    /// Patterns of paths that are not served although they are included.
    pub exclude: Vec<String>,
    /// Media types by pattern, in place of those that follow from names.
    pub types: Vec<(String, String)>,
    /// Larger files are not served.
    pub max_bytes: u64,
    /// The most files that are listed, watched and searched. Those beyond can be read.
    pub max_files: usize,
    /// Clients may be permitted to write.
    pub writable: bool,
    /// Old states of each file that are kept when it is written to, so that it can be undone. 0: none.
    pub versions: usize,
    /// Follow changes.
    pub watch: bool,
    /// Never ask the system to announce changes. For network file systems, where it would be silent.
    pub poll_only: bool,
}

impl FolderOptions {
    /// Checks the name of a directory and its patterns, without a look at the directory.
    ///
    /// # Errors
    ///
    /// [`FolderError::Name`] and [`FolderError::Pattern`].
    pub fn check(&self, name: &str) -> Result<(), FolderError> {
        Patterns::of(name, self).map(drop)
    }

    /// Finds what belongs to the server itself, would be served if it did not, and so is missing: paths below the directory.
    #[must_use]
    pub fn own_files(&self, own: &OwnFiles) -> Vec<String> {
        let Ok(patterns) = Patterns::of("x", self) else {
            return Vec::new();
        };
        own.within(&self.path, |it| {
            Relative::new(it).is_some_and(|it| patterns.serve(&it) && !patterns.pass_by(self, &it))
        })
    }

    /// All files of a directory, up to 4 MiB each and 20,000 of them, watched and not writable.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            include: Vec::new(),
            exclude: Vec::new(),
            types: Vec::new(),
            max_bytes: 4 * 1024 * 1024,
            max_files: 20_000,
            writable: false,
            versions: 10,
            watch: true,
            poll_only: false,
        }
    }
}

/// A directory whose files another one would offer, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// Name of the directory.
    pub inner: String,
    /// Name of the one that it lies in, or is.
    pub outer: String,
    /// Path in there; empty if they are the same.
    pub below: String,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            inner,
            outer,
            below,
        } = self;
        match below.is_empty() {
            true => write!(f, "its directory is that of `{outer}`, too")?,
            false => write!(f, "its directory is `{below}` of `{outer}`")?,
        }
        write!(
            f,
            ", so that a file would have two addresses for which different rules hold: files://{inner}/…, files://{outer}/…"
        )
    }
}

impl Overlap {
    /// Finds directories that lie in others, by what paths lead to now. One that is excluded from the other one does
    /// not count, and neither does what is never served.
    #[must_use]
    pub fn all(roots: &BTreeMap<String, FolderOptions>) -> Vec<Self> {
        let mut found = Vec::new();
        for (inner, options) in roots {
            let above = ancestors(&options.path);
            for (outer, outer_options) in roots.iter().filter(|(it, _)| *it != inner) {
                let own = id(&outer_options.path);
                let Some((_, below)) = above.iter().find(|(it, _)| Some(*it) == own) else {
                    continue;
                };
                let below = below.to_str().unwrap_or_default();
                let is_same = below.is_empty();
                let path = Relative::new(below);
                let passes = |it: &Relative| {
                    let patterns = Patterns::of(outer, outer_options);
                    patterns.is_ok_and(|patterns| patterns.pass_by(outer_options, it))
                };
                if (is_same && outer < inner) || (!is_same && path.is_some_and(|it| !passes(&it))) {
                    found.push(Self {
                        inner: inner.clone(),
                        outer: outer.clone(),
                        below: below.to_owned(),
                    });
                }
            }
        }
        found
    }

    /// The way out, for operators.
    #[must_use]
    pub fn hint(&self) -> String {
        match self.below.is_empty() {
            true => "offer it by one of the two names".to_owned(),
            false => format!(
                "exclude it there: `resources.files.{}.exclude: [\"{}/**\"]`",
                self.outer, self.below
            ),
        }
    }
}

/// A directory cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A name that cannot be part of an address.
    #[error(
        "`{0}` is no name of a directory of files: 1 to 64 lower-case letters, digits and hyphens"
    )]
    Name(String),
    /// A pattern that cannot be understood.
    #[error("{0}")]
    Pattern(String),
    /// A directory of the server itself, or one in such a directory.
    #[error(
        "{path} is, or lies in, {own}, which belongs to the server itself; offer another directory"
    )]
    Own {
        /// As configured.
        path: PathBuf,
        /// The server's own.
        own: PathBuf,
    },
    /// A directory that another one offers as well.
    #[error("{0}; {hint}", hint = .0.hint())]
    Overlap(Overlap),
    /// No directory, or one that cannot be opened.
    #[error("{path} cannot be opened as a directory")]
    Open {
        /// As configured.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: io::Error,
    },
    /// The directory's files cannot be listed.
    #[error("{path} cannot be listed")]
    List {
        /// As configured.
        path: PathBuf,
        /// The reason.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Change of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Created,
    Updated,
    Deleted,
}

/// Changes that were found by one look.
pub(crate) type Changes = Vec<(Relative, Event)>;

/// Knowledge of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) signature: Signature,
    /// A hash of the content, if the next state may have the same signature.
    racy: Option<u64>,
}

/// The most names that a pattern which stands for nothing is compared with.
const MAX_NAMES: usize = 2_000;

/// A pattern that stands for nothing that was ever seen in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdlePattern {
    /// Name of the directory.
    pub folder: String,
    /// `include` or `exclude`.
    pub list: &'static str,
    /// The pattern.
    pub pattern: String,
    /// Names that are there, those of directories with a slash at their end.
    pub names: Vec<String>,
}

/// A pattern that selects files.
#[derive(Debug)]
struct Selecting {
    glob: Glob,
    /// True once something was seen that it stands for.
    has_matched: AtomicBool,
}

impl Selecting {
    /// Tests if it stands for something that is there, and notes it.
    fn meets(&self, there: &str) -> bool {
        let matches = self.glob.matches(there);
        if matches {
            self.has_matched.store(true, Ordering::Relaxed);
        }
        matches
    }
}

/// Selection of the files of a directory, with their media types.
#[derive(Debug)]
struct Patterns {
    include: Vec<Selecting>,
    exclude: Vec<Selecting>,
    types: Vec<(Glob, String)>,
}

impl Patterns {
    fn of(name: &str, options: &FolderOptions) -> Result<Self, FolderError> {
        let is_name = |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || it == '-';
        if name.is_empty() || 64 < name.len() || !name.chars().all(is_name) {
            return Err(FolderError::Name(name.to_owned()));
        }
        let globs = |patterns: &[String]| {
            let globs = patterns.iter().map(|it| {
                Ok(Selecting {
                    glob: Glob::new(it)?,
                    has_matched: AtomicBool::new(false),
                })
            });
            let globs: Result<Vec<_>, String> = globs.collect();
            globs.map_err(FolderError::Pattern)
        };
        let types = options.types.iter();
        let types = types.map(|(pattern, kind)| Ok((Glob::new(pattern)?, kind.clone())));
        let types: Result<Vec<_>, String> = types.collect();
        Ok(Self {
            include: globs(&options.include)?,
            exclude: globs(&options.exclude)?,
            types: types.map_err(FolderError::Pattern)?,
        })
    }

    fn serve(&self, path: &Relative) -> bool {
        let path = path.as_str();
        let is_included =
            self.include.is_empty() || self.include.iter().any(|it| it.glob.matches(path));
        is_included && !self.exclude.iter().any(|it| it.glob.matches(path))
    }

    /// Tests if nothing in a directory that is there would be served.
    fn pass_by(&self, options: &FolderOptions, directory: &Relative) -> bool {
        let something = format!("{}/\u{1}", directory.as_str());
        let all_of_it = self.exclude.iter().zip(&options.exclude);
        all_of_it
            .filter(|(_, written)| written.ends_with("**"))
            .any(|(it, _)| it.meets(&something))
    }
}

/// A directory of files.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) name: String,
    pub(crate) options: FolderOptions,
    patterns: Patterns,
    root: RwLock<Arc<Root>>,
    guard: Arc<Guard>,
    /// The first directory that was found in this one although it is offered by a name of its own.
    met: Mutex<Option<Overlap>>,
    watch: OnceLock<WatchHandle>,
    files: RwLock<BTreeMap<Relative, Seen>>,
    /// True once the whole directory was looked at: before, nobody knows what patterns stand for.
    is_known: AtomicBool,
    /// Held by whoever writes: between a look at what is there and its replacement nobody else writes.
    writing: Mutex<()>,
}

impl Folder {
    /// Opens a directory, out of which `guard` keeps what is not its own.
    pub(crate) fn open(
        name: &str,
        options: FolderOptions,
        guard: &Arc<Guard>,
    ) -> Result<Self, FolderError> {
        let patterns = Patterns::of(name, &options)?;
        let root = Root::open(&options.path, name, guard).map_err(|cause| FolderError::Open {
            path: options.path.clone(),
            cause,
        })?;
        Ok(Self {
            name: name.to_owned(),
            patterns,
            root: RwLock::new(Arc::new(root)),
            guard: Arc::clone(guard),
            met: Mutex::default(),
            watch: OnceLock::new(),
            files: RwLock::default(),
            is_known: AtomicBool::new(false),
            writing: Mutex::default(),
            options,
        })
    }

    pub(crate) fn root(&self) -> Arc<Root> {
        let root = self.root.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&root)
    }

    /// The directory, if its path leads to one now. Where it leads to another one, the one before is used until that is
    /// followed; where it leads nowhere, nothing is read or written any more.
    pub(crate) fn current(&self) -> Result<Arc<Root>, RootError> {
        let path = &self.options.path;
        if !self.options.watch {
            // Nobody else does.
            self.reopen().map_err(|_| RootError::NotFound)?;
        }
        let root = self.root();
        match root.is_at(path) || path.is_dir() {
            true => Ok(root),
            false => Err(RootError::NotFound),
        }
    }

    /// Opens the directory again if its path leads to another one now: true if it does.
    pub(crate) fn reopen(&self) -> io::Result<bool> {
        if self.root().is_at(&self.options.path) {
            return Ok(false);
        }
        let root = Arc::new(Root::open(&self.options.path, &self.name, &self.guard)?);
        *self.root.write().unwrap_or_else(PoisonError::into_inner) = root;
        Ok(true)
    }

    /// Another directory that was found in this one. What is in there is not served by this name.
    pub(crate) fn met(&self) -> Option<Overlap> {
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        met.clone()
    }

    /// Takes the turn of writing.
    pub(crate) fn write_turn(&self) -> MutexGuard<'_, ()> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn address(&self, path: &Relative) -> String {
        address(&self.name, path)
    }

    /// Tests if a file at `path` would be served.
    pub(crate) fn serves(&self, path: &Relative) -> bool {
        self.patterns.serve(path)
    }

    /// Notes which patterns stand for a file that is there, whether it is served or not.
    fn note_matches(&self, path: &Relative) {
        let Patterns {
            include, exclude, ..
        } = &self.patterns;
        let idle = include.iter().chain(exclude);
        for pattern in idle.filter(|it| !it.has_matched.load(Ordering::Relaxed)) {
            pattern.meets(path.as_str());
        }
    }

    /// Patterns that stand for nothing that was ever seen. What begins with a dot need not be excluded, so of a pattern that
    /// does so nothing is said.
    pub(crate) fn idle_patterns(&self) -> Vec<IdlePattern> {
        if !self.is_known.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let (options, patterns) = (&self.options, &self.patterns);
        let lists = [
            ("include", &options.include, &patterns.include),
            ("exclude", &options.exclude, &patterns.exclude),
        ];
        let mut idle = Vec::new();
        for (list, written, patterns) in lists {
            for (written, pattern) in written.iter().zip(patterns) {
                let is_needless = list == "exclude" && pattern.glob.is_of_hidden();
                if !pattern.has_matched.load(Ordering::Relaxed) && !is_needless {
                    idle.push((list, written.clone()));
                }
            }
        }
        if idle.is_empty() {
            return Vec::new();
        }
        let names = self.names();
        let idle = idle.into_iter().map(|(list, pattern)| IdlePattern {
            folder: self.name.clone(),
            list,
            pattern,
            names: names.clone(),
        });
        idle.collect()
    }

    /// Paths of files that were seen, and of directories with a slash at their end, as many as are worth comparing with.
    fn names(&self) -> Vec<String> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let mut names = std::collections::BTreeSet::new();
        for path in files.keys() {
            let path = path.as_str();
            let above = path.match_indices('/').map(|(at, _)| &path[..=at]);
            names.extend(above.map(str::to_owned));
            names.insert(path.to_owned());
            if MAX_NAMES <= names.len() {
                break;
            }
        }
        names.into_iter().collect()
    }

    /// Media type of the file at `path`.
    pub(crate) fn media_type(&self, path: &Relative, is_text: bool) -> String {
        let configured = self
            .patterns
            .types
            .iter()
            .find(|(it, _)| it.matches(path.as_str()));
        match configured {
            Some((_, kind)) => kind.clone(),
            None => adapter_skills::media_type(path.name().as_ref(), is_text).to_owned(),
        }
    }

    /// Media type of the file at `path` by its name alone; `None` if that does not say.
    pub(crate) fn listed_type(&self, path: &Relative) -> Option<String> {
        let (text, other) = (self.media_type(path, true), self.media_type(path, false));
        (text == other).then_some(text)
    }

    /// Bytes of a file, with its state.
    pub(crate) fn read(&self, path: &Relative) -> Result<(Vec<u8>, Signature), RootError> {
        match self.serves(path) {
            true => self.current()?.read(path, self.options.max_bytes),
            false => Err(RootError::NotFound),
        }
    }

    /// Paths of the files that were seen, with their states.
    pub(crate) fn seen(&self) -> Vec<(Relative, Signature)> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        let files = files.iter().map(|(path, it)| (path.clone(), it.signature));
        files.collect()
    }

    /// Tests if changes of all of its files are followed: where there are more than it may list, they are not.
    pub(crate) fn follows_all(&self) -> bool {
        self.options.watch && self.len() < self.options.max_files
    }

    /// Tests if changes of a file are followed, also of one that may come.
    pub(crate) fn follows(&self, path: &Relative) -> bool {
        let is_seen = || {
            let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
            files.contains_key(path)
        };
        self.follows_all() || self.options.watch && is_seen()
    }

    /// Takes note of the watch that looks at what was written.
    pub(crate) fn is_followed_by(&self, watch: WatchHandle) {
        let _first_stays = self.watch.set(watch);
    }

    /// Has what was written at these paths listed and told, also where nobody follows changes or none are announced.
    pub(crate) fn wrote(self: &Arc<Self>, paths: &[&Relative], told: &dyn Told) {
        if let Some(watch) = self.watch.get() {
            return watch.look_at(paths);
        }
        let looked = paths.iter().map(|path| self.look_at(path, false));
        let looked: Result<Vec<_>, _> = looked.collect();
        match looked {
            Ok(looked) => {
                let changes: Changes = looked.into_iter().flat_map(|(it, _)| it).collect();
                told.changed(self, &changes);
                if changes.iter().any(|(_, it)| *it != Event::Updated) {
                    told.listed();
                }
            }
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    root = self.name,
                    error,
                    "what was written cannot be looked at"
                );
            }
        }
    }

    /// Text that tells the directory from another one, whatever is offered by its name later.
    pub(crate) fn place(&self) -> String {
        let path = &self.options.path;
        let path = path.canonicalize();
        let path = path.as_deref().unwrap_or(&self.options.path).display();
        format!("{} {path}", self.root().id().1)
    }

    /// Beginning of the addresses of its files.
    pub(crate) fn address_of_all(&self) -> String {
        format!("{SCHEME}{}/", self.name)
    }

    /// Number of files that were seen.
    pub(crate) fn len(&self) -> usize {
        self.files
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Paths that begin with `beginning`, as far as `take` wants them.
    pub(crate) fn beginning_with(&self, beginning: &str, mut take: impl FnMut(&Relative) -> bool) {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        for path in files.keys() {
            if path.as_str().starts_with(beginning) && !take(path) {
                return;
            }
        }
    }

    /// Compares everything with what was seen before.
    pub(crate) fn look_at_all(&self) -> Result<Changes, RootError> {
        let mut found = BTreeMap::new();
        self.walk(None, 0, &mut found)?;
        // Where there are more, a pattern may stand for one of those.
        let is_all = found.len() < self.options.max_files;
        self.is_known.fetch_or(is_all, Ordering::Relaxed);
        Ok(self.compare_all(found, None))
    }

    /// Compares what is at `path`, a file or a directory, with what was seen there before.
    ///
    /// A directory is looked into if that is asked for; true if it was.
    pub(crate) fn look_at(
        &self,
        path: &Relative,
        into: bool,
    ) -> Result<(Changes, bool), RootError> {
        let mut found = BTreeMap::new();
        let mut is_directory = false;
        let there = self.root().look(path)?;
        if let Some(Found::File(_)) = there {
            self.note_matches(path);
        }
        match there {
            Some(Found::File(signature)) if self.is_of_use(path, &signature) => {
                found.insert(path.clone(), signature);
            }
            Some(Found::Directory) if !into => return Ok((Vec::new(), false)),
            Some(Found::Directory) => {
                is_directory = true;
                let depth = path.names().count();
                match self.walk(Some(path), depth, &mut found) {
                    // Deleted since.
                    Ok(()) | Err(RootError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            _ => {}
        }
        let changes = self.compare_all(found, Some(path));
        Ok((changes, is_directory))
    }

    fn is_of_use(&self, path: &Relative, signature: &Signature) -> bool {
        signature.size <= self.options.max_bytes && self.serves(path)
    }

    fn walk(
        &self,
        directory: Option<&Relative>,
        depth: usize,
        found: &mut BTreeMap<Relative, Signature>,
    ) -> Result<(), RootError> {
        for (name, entry) in self.root().list(directory)? {
            let Some(path) = Relative::child(directory, &name) else {
                continue;
            };
            if let Found::File(_) = entry {
                self.note_matches(&path);
            }
            match entry {
                Found::File(signature) if self.is_of_use(&path, &signature) => {
                    if self.options.max_files <= found.len() {
                        return Ok(());
                    }
                    found.insert(path, signature);
                }
                Found::Offered(other) if !self.patterns.pass_by(&self.options, &path) => {
                    let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
                    met.get_or_insert(Overlap {
                        inner: other,
                        outer: self.name.clone(),
                        below: path.as_str().to_owned(),
                    });
                }
                Found::Directory
                    if depth < MAX_DEPTH && !self.patterns.pass_by(&self.options, &path) =>
                {
                    match self.walk(Some(&path), depth + 1, found) {
                        Ok(()) | Err(RootError::NotFound) => {}
                        Err(error) => {
                            let path = path.as_str();
                            let error = &error as &dyn std::error::Error;
                            tracing::warn!(
                                root = self.name,
                                path,
                                error,
                                "a directory is left out"
                            );
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares what was found at and below a path with what was seen there.
    fn compare_all(&self, found: BTreeMap<Relative, Signature>, at: Option<&Relative>) -> Changes {
        let mut changes = Vec::new();
        let before: BTreeMap<Relative, Seen> = {
            let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
            let copied = |(path, it): (&Relative, &Seen)| (path.clone(), *it);
            match at {
                None => files.iter().map(copied).collect(),
                // Between a path and those below it sort only paths that begin like it, such as `path-2`.
                Some(at) => files
                    .range(at..)
                    .take_while(|(it, _)| it.as_str().starts_with(at.as_str()))
                    .filter(|(it, _)| *it == at || it.is_below(at))
                    .map(copied)
                    .collect(),
            }
        };
        let mut news = Vec::new();
        for (path, signature) in &found {
            let (event, seen) = self.compare(path, *signature, before.get(path));
            changes.extend(event.map(|it| (path.clone(), it)));
            news.extend(seen.map(|it| (path.clone(), it)));
        }
        let gone: Vec<_> = before
            .into_keys()
            .filter(|it| !found.contains_key(it))
            .collect();
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        for path in gone {
            files.remove(&path);
            changes.push((path, Event::Deleted));
        }
        for (path, seen) in news {
            if files.contains_key(&path) || files.len() < self.options.max_files {
                files.insert(path, seen);
            } else {
                changes.retain(|(it, _)| *it != path);
            }
        }
        changes
    }

    /// Change of a file, and what to remember of it, if that is news.
    fn compare(
        &self,
        path: &Relative,
        signature: Signature,
        before: Option<&Seen>,
    ) -> (Option<Event>, Option<Seen>) {
        let is_racy = signature.last_modified().is_none_or(|modified| {
            SystemTime::now()
                .duration_since(modified)
                .is_ok_and(|it| it < RACY)
        });
        let hash = || match self.root().read(path, self.options.max_bytes) {
            Ok((bytes, _)) => {
                let mut hasher = DefaultHasher::new();
                bytes.hash(&mut hasher);
                Some(hasher.finish())
            }
            Err(_) => None,
        };
        let seen = |racy| Seen { signature, racy };
        match before {
            None => (
                Some(Event::Created),
                Some(seen(is_racy.then(hash).flatten())),
            ),
            Some(before) if !before.signature.may_be_same_content(&signature) => (
                Some(Event::Updated),
                Some(seen(is_racy.then(hash).flatten())),
            ),
            Some(before) => match before.racy {
                Some(known) => {
                    let now = hash();
                    let event = (now != Some(known)).then_some(Event::Updated);
                    (event, Some(seen(is_racy.then_some(now).flatten())))
                }
                None => (None, (before.signature != signature).then(|| seen(None))),
            },
        }
    }
}
