//! Things that no directory of files offers: files of the server itself, and directories that have addresses of their own.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::{Duration, Instant},
};

/// Device and inode of a file or directory.
pub(crate) type Id = (u64, u64);

/// Endings of the names of what an interpreter would run.
const OF_PROGRAMS: [&str; 6] = ["py", "pyc", "pyd", "pyo", "pth", "so"];

/// Files and directories of the server itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnFiles {
    /// Files and directories that are neither listed, read nor written through any directory of files. Of a file that
    /// holds also for those beside it whose names begin with its name, and go on with one of `-._~`.
    pub kept: Vec<PathBuf>,
    /// Directories that an application's code is loaded from: modules in and below them are not written.
    pub code: Vec<PathBuf>,
}

impl OwnFiles {
    /// Paths below the directory `root` that are kept out of it and would be served but for that.
    #[must_use]
    pub fn within(&self, root: &Path, serves: impl Fn(&str) -> bool) -> Vec<String> {
        let Ok(root) = root.canonicalize() else {
            return Vec::new();
        };
        let kept = self.kept.iter().filter_map(|it| it.canonicalize().ok());
        let below = kept.filter_map(|it| Some(it.strip_prefix(&root).ok()?.to_str()?.to_owned()));
        let mut below: Vec<_> = below.filter(|it| !it.is_empty() && serves(it)).collect();
        below.sort();
        below.dedup();
        below
    }

    /// The first of these that the directory `root` is, or lies in.
    #[must_use]
    pub fn around(&self, root: &Path) -> Option<&Path> {
        let above = ancestors(root);
        let is_above =
            |it: &&PathBuf| id(it).is_some_and(|it| above.iter().any(|(id, _)| *id == it));
        self.kept.iter().find(is_above).map(PathBuf::as_path)
    }
}

/// Identity of what a path leads to.
pub(crate) fn id(path: &Path) -> Option<Id> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// A directory and those above it, as their identities, each with the path that leads from there to the directory.
pub(crate) fn ancestors(directory: &Path) -> Vec<(Id, PathBuf)> {
    let Ok(directory) = directory.canonicalize() else {
        return Vec::new();
    };
    let above = directory.ancestors();
    let above = above.filter_map(|it| Some((id(it)?, directory.strip_prefix(it).ok()?.to_owned())));
    above.collect()
}

/// All that is kept out of the directories of one server.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    own: OwnFiles,
    /// The directories that are offered, by name.
    roots: RwLock<BTreeMap<String, Id>>,
    /// All that is kept out of each of them, and since when that is known.
    known: Mutex<BTreeMap<String, (Instant, Arc<KeptOut>)>>,
}

/// Time for which it is believed that paths of the server's own lead where they led: names in those directories are kept
/// out whatever becomes of the files.
const KNOWN_FOR: Duration = Duration::from_millis(500);

impl Guard {
    pub(crate) fn new(own: OwnFiles) -> Self {
        Self {
            own,
            roots: RwLock::default(),
            known: Mutex::default(),
        }
    }

    /// Takes note of the directory that is offered by this name now.
    pub(crate) fn offers(&self, root: &str, directory: Id) {
        let mut roots = self.roots.write().unwrap_or_else(PoisonError::into_inner);
        roots.insert(root.to_owned(), directory);
        drop(roots);
        self.known().clear();
    }

    /// All that is kept out of the directory of this name, by what paths lead to now.
    pub(crate) fn kept_out_of(&self, root: &str) -> Arc<KeptOut> {
        let mut known = self.known();
        if let Some((since, kept)) = known.get(root)
            && since.elapsed() < KNOWN_FOR
        {
            return Arc::clone(kept);
        }
        let since = Instant::now();
        let kept = Arc::new(self.look(root));
        known.insert(root.to_owned(), (since, Arc::clone(&kept)));
        kept
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, Arc<KeptOut>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, root: &str) -> KeptOut {
        let mut kept = KeptOut::default();
        for path in &self.own.kept {
            kept.add(path);
            // What programs make beside a file, they make beside the one that links lead to.
            if let Ok(real) = path.canonicalize()
                && real != *path
            {
                kept.add(&real);
            }
        }
        let roots = self.roots.read().unwrap_or_else(PoisonError::into_inner);
        let others = roots.iter().filter(|(name, _)| *name != root);
        kept.roots
            .extend(others.map(|(name, id)| (*id, name.clone())));
        kept.code
            .extend(self.own.code.iter().filter_map(|it| id(it)));
        kept
    }
}

/// Things that are kept out of a directory, as they lie now.
#[derive(Debug, Default)]
pub(crate) struct KeptOut {
    things: HashSet<Id>,
    /// Other directories that are offered, with their names.
    roots: HashMap<Id, String>,
    /// Names in directories, also of what is not there yet.
    names: HashMap<Id, Vec<OsString>>,
    code: HashSet<Id>,
}

impl KeptOut {
    fn add(&mut self, path: &Path) {
        self.things.extend(id(path));
        let Ok(path) = std::path::absolute(path) else {
            return;
        };
        // Where its directory is missing as well, the first name that is: nobody but the server is to make it.
        for path in path.ancestors() {
            let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
                return;
            };
            if let Some(directory) = id(directory) {
                self.names
                    .entry(directory)
                    .or_default()
                    .push(name.to_ascii_lowercase());
                return;
            }
        }
    }

    /// Tests if a name in a directory is kept out, whether anything is there or not. Case does not count: for some file
    /// systems it does not either.
    pub(crate) fn has_name(&self, directory: Id, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let names = self.names.get(&directory).map_or(&[][..], Vec::as_slice);
        names.iter().any(|own| {
            let rest = own.to_str().and_then(|own| name.strip_prefix(own));
            rest.is_some_and(|it| it.is_empty() || it.starts_with(['-', '.', '_', '~']))
        })
    }

    /// Tests if this very thing is kept out, by whatever name it was found.
    pub(crate) fn has(&self, thing: Id) -> bool {
        self.things.contains(&thing) || self.roots.contains_key(&thing)
    }

    /// Name of the other directory that this is.
    pub(crate) fn root(&self, thing: Id) -> Option<&str> {
        self.roots.get(&thing).map(String::as_str)
    }

    /// Tests if code is loaded from this directory.
    pub(crate) fn is_code(&self, directory: Id) -> bool {
        self.code.contains(&directory)
    }
}

/// Tests if an interpreter would load a file by this name.
pub(crate) fn is_program(name: &str) -> bool {
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
    OF_PROGRAMS.iter().any(|it| ending.eq_ignore_ascii_case(it))
}
