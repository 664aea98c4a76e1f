//! Directories of files.

pub(crate) mod address;
mod completion;
pub(crate) mod folder;
pub(crate) mod glob;
pub(crate) mod offered;
mod root;
pub(crate) mod watch;
mod writing;

pub use self::{
    address::SCHEME,
    folder::{FolderError, FolderOptions, IdlePattern},
};

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    path::Path,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use adapter_skills::SkillCatalog;
use mcp_server::{ComponentState, Prompts, Resources, SourceTools, ToolSource};
use tokio::sync::{Notify, watch as version};

use self::{
    completion::PathCompletion,
    folder::{Changes, Folder},
    offered::FileResources,
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

/// Directories of files as a source of resources.
#[derive(Debug)]
pub struct Files {
    folders: Arc<[Arc<Folder>]>,
    watches: Vec<(Arc<Folder>, Watch)>,
    writers: Arc<Writers>,
    news: Arc<News>,
    ttl_ms: u64,
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
    /// Opens directories by name, lists what is in them, and follows their changes. Old states of
    /// files that are written to are kept in the file `store`, which is made if any are to be kept. Clients may keep
    /// contents for `ttl_ms`. Blocks.
    ///
    /// # Errors
    ///
    /// [`OpenError`], with the directory that cannot be served.
    pub fn open(
        folders: BTreeMap<String, FolderOptions>,
        store: &Path,
        ttl_ms: u64,
    ) -> Result<Self, OpenError> {
        let news = Arc::new(News {
            changed: Mutex::default(),
            woken: Notify::new(),
            listed: version::Sender::new(0),
            other: OnceLock::new(),
        });
        let mut opened = Vec::new();
        let mut watches = Vec::new();
        for (name, options) in folders {
            let failed = |cause| OpenError::Folder {
                name: name.clone(),
                cause,
            };
            let path = options.path.clone();
            let unlistable = |cause: Box<dyn Error + Send + Sync>| FolderError::List {
                path: path.clone(),
                cause,
            };
            let folder = Arc::new(Folder::open(&name, options).map_err(failed)?);
            if folder.options.watch {
                let told = Arc::clone(&news) as Arc<dyn Told>;
                let watch = Watch::start(&folder, told);
                let watch = watch.map_err(|cause| failed(unlistable(cause)))?;
                watches.push((Arc::clone(&folder), watch));
            } else {
                let listed = folder.look_at_all();
                listed.map_err(|cause| failed(unlistable(cause.into())))?;
            }
            opened.push(folder);
        }
        let keeps = |it: &Arc<Folder>| it.options.writable && 0 < it.options.versions;
        let store = match opened.iter().any(keeps) {
            true => Some(Arc::new(Store::open(store).map_err(OpenError::Store)?)),
            false => None,
        };
        let folders: Arc<[_]> = opened.into();
        Ok(Self {
            writers: Arc::new(Writers {
                folders: Arc::clone(&folders),
                store,
            }),
            folders,
            watches,
            news,
            ttl_ms,
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
        Some(Arc::new(FileResources::new(folders, self.ttl_ms)))
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
        Some(ComponentState {
            name: COMPONENT,
            ok: is_ok,
            detail: (!told.is_empty()).then(|| told.join("; ")),
        })
    }
}
