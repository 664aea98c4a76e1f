//! Directories of files.

pub(crate) mod address;
mod completion;
pub(crate) mod folder;
pub(crate) mod glob;
pub(crate) mod offered;
pub(crate) mod own;
mod root;
pub(crate) mod watch;
mod writing;

pub use self::{
    address::SCHEME,
    folder::{FolderError, FolderOptions, IdlePattern, Overlap},
    own::OwnFiles,
};

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use adapter_skills::SkillCatalog;
use mcp_server::{ComponentState, Prompts, Resources, SourceTools, ToolSource};
use tokio::sync::{Notify, watch as version};

use self::{
    completion::PathCompletion,
    folder::{Changes, Folder},
    offered::FileResources,
    own::Guard,
    watch::{Following, Told, Watch},
    writing::Writers,
};
use crate::store::{Store, StoreError};

/// Name of the component of `/health` for files.
pub const COMPONENT: &str = "files";

/// Directories of files cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// One of them cannot.
    #[error("resources.files.{name}")]
    Folder {
        /// Name of the directory.
        name: String,
        /// The reason.
        #[source]
        cause: FolderError,
    },
    /// The file with old states of files cannot be opened.
    #[error("resources.store")]
    Store(#[source] StoreError),
}

/// Options of all directories of files together.
#[derive(Clone, Debug, Default)]
pub struct FilesOptions {
    /// The file in which old states of files that are written to are kept; it is made if any are to be.
    pub store: PathBuf,
    /// Files that no directory offers.
    pub own: OwnFiles,
}

impl FilesOptions {
    /// Options with a store at this path, with which nothing is kept out.
    #[must_use]
    pub fn new(store: impl Into<PathBuf>) -> Self {
        Self {
            store: store.into(),
            ..Self::default()
        }
    }
}

/// Directories of files as a source of resources.
#[derive(Debug)]
pub struct Files {
    folders: Arc<[Arc<Folder>]>,
    watches: Vec<(Arc<Folder>, Watch)>,
    writers: Arc<Writers>,
    news: Arc<News>,
}

/// Changes that nobody has been told of yet.
#[derive(Debug)]
struct News {
    /// Addresses of files that have changed: one that changes again before it is told is told once.
    changed: Mutex<BTreeSet<String>>,
    woken: Notify,
    listed: version::Sender<u64>,
    /// Another one who is told.
    other: OnceLock<Arc<dyn Told>>,
}

impl Told for News {
    fn changed(&self, folder: &Arc<Folder>, changes: &Changes) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.extend(changes.iter().map(|(path, _)| folder.address(path)));
        drop(changed);
        self.woken.notify_one();
        if let Some(other) = self.other.get() {
            other.changed(folder, changes);
        }
    }

    fn listed(&self) {
        self.listed.send_modify(|it| *it += 1);
    }
}

impl Files {
    /// Opens directories by name, lists what is in them, and follows their changes. Blocks.
    ///
    /// # Errors
    ///
    /// [`OpenError`], with the directory that cannot be served.
    pub fn open(
        folders: BTreeMap<String, FolderOptions>,
        options: FilesOptions,
    ) -> Result<Self, OpenError> {
        let FilesOptions { store, own } = options;
        let news = Arc::new(News {
            changed: Mutex::default(),
            woken: Notify::new(),
            listed: version::Sender::new(0),
            other: OnceLock::new(),
        });
        let failed = |name: &str, cause| OpenError::Folder {
            name: name.to_owned(),
            cause,
        };
        let overlap = |it: Overlap| failed(&it.inner.clone(), FolderError::Overlap(it));
        for (name, options) in &folders {
            if let Some(own) = own.around(&options.path) {
                let (path, own) = (options.path.clone(), own.to_owned());
                return Err(failed(name, FolderError::Own { path, own }));
            }
        }
        if let Some(first) = Overlap::all(&folders).into_iter().next() {
            return Err(overlap(first));
        }
        // All of them before one is looked at, so that each knows the others.
        let guard = Arc::new(Guard::new(own));
        let mut opened = Vec::new();
        for (name, options) in folders {
            let folder = Folder::open(&name, options, &guard);
            opened.push(Arc::new(folder.map_err(|cause| failed(&name, cause))?));
        }
        let mut watches = Vec::new();
        for folder in &opened {
            let unlistable = |cause: Box<dyn Error + Send + Sync>| {
                let path = folder.options.path.clone();
                failed(&folder.name, FolderError::List { path, cause })
            };
            if folder.options.watch {
                let told = Arc::clone(&news) as Arc<dyn Told>;
                let watch = Watch::start(folder, told).map_err(unlistable)?;
                folder.is_followed_by(watch.handle());
                watches.push((Arc::clone(folder), watch));
            } else {
                let listed = folder.look_at_all();
                listed.map_err(|cause| unlistable(cause.into()))?;
            }
            if let Some(met) = folder.met() {
                return Err(overlap(met));
            }
        }
        let keeps = |it: &Arc<Folder>| it.options.writable && 0 < it.options.versions;
        let kept: Vec<_> = opened.iter().filter(|it| keeps(it)).collect();
        let store = match kept.is_empty() {
            true => None,
            false => {
                let names = kept.iter().map(|it| (it.address_of_all(), it.place()));
                let store = Store::open(&store, names).map_err(OpenError::Store)?;
                Some(Arc::new(store))
            }
        };
        let folders: Arc<[_]> = opened.into();
        Ok(Self {
            writers: Arc::new(Writers {
                folders: Arc::clone(&folders),
                store,
                told: Arc::clone(&news) as Arc<dyn Told>,
            }),
            folders,
            watches,
            news,
        })
    }

    /// Patterns that stand for nothing that was ever seen.
    pub fn idle_patterns(&self) -> impl Iterator<Item = IdlePattern> {
        self.folders.iter().flat_map(|it| it.idle_patterns())
    }

    pub(crate) fn folders(&self) -> Arc<[Arc<Folder>]> {
        Arc::clone(&self.folders)
    }

    /// Has another one told of changes, from now on; the first one stays.
    pub(crate) fn tell_also(&self, other: Arc<dyn Told>) {
        let _first_stays = self.news.other.set(other);
    }

    /// Addresses of files that have changed, come or gone since the last time, once there are any. For one caller at a
    /// time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn changed(&self) -> BTreeSet<String> {
        loop {
            {
                let changed = &self.news.changed;
                let mut changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
                if !changed.is_empty() {
                    return std::mem::take(&mut changed);
                }
            }
            self.news.woken.notified().await;
        }
    }
}

impl ToolSource for Files {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        writing::tools(&self.writers).into()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        let folders = Arc::clone(&self.folders);
        Some(Arc::new(FileResources::new(folders)))
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        Some(Arc::new(PathCompletion(Arc::clone(&self.folders))))
    }

    fn changes(&self) -> Option<version::Receiver<u64>> {
        Some(self.news.listed.subscribe())
    }

    /// Files work as long as every directory can be opened; what else is worth knowing is in the detail.
    fn health(&self) -> Option<ComponentState> {
        let mut is_ok = true;
        let mut told = Vec::new();
        for (folder, watch) in &self.watches {
            let name = &folder.name;
            match watch.following() {
                Following::Announced => {}
                Following::Polled(why, every) => told.push(format!(
                    "`{name}` is looked at every {} ms, as its changes are not announced: {why}",
                    every.as_millis()
                )),
                Following::Lost(why) => {
                    is_ok = false;
                    told.push(format!("`{name}` cannot be opened: {why}"));
                }
            }
        }
        for folder in self.folders.iter() {
            let most = folder.options.max_files;
            if most <= folder.len() {
                let name = &folder.name;
                told.push(format!(
                    "`{name}` has {most} files or more; others are neither listed, watched nor searched \
                     (resources.files.{name}.max_files)"
                ));
            }
        }
        if let Some(why) = self.writers.store.as_ref().and_then(|it| it.failure()) {
            is_ok = false;
            told.push(format!(
                "earlier states of files cannot be kept, so nothing is written: {why}"
            ));
        }
        Some(ComponentState {
            name: COMPONENT,
            ok: is_ok,
            detail: (!told.is_empty()).then(|| told.join("; ")),
        })
    }
}
