//! Directories of files as resources, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use resources::FolderOptions;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;

/// A directory whose files are resources, `files://NAME/PATH`.
///
/// Symbolic links in it are not followed, and what begins with a dot is not served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FileRoot {
    /// The directory.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// Patterns of the paths that are served: `*` and `?` within a name, `**` for any directories; without a slash, of
    /// names at any depth. Empty: all.
    #[schemars(extend("x-items" = "pattern"))]
    pub include: Vec<String>,
    /// Patterns of paths that are not served although they are included.
    #[schemars(extend("x-items" = "pattern"))]
    pub exclude: Vec<String>,
    /// Media types by pattern, in place of those that follow from names.
    #[schemars(extend("x-patterns" = true))]
    pub types: BTreeMap<String, String>,
    /// Larger files are not served.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_bytes: u64,
    /// The most files that are listed, watched and searched. Those beyond can be read.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_files: usize,
    /// Offer tools that write: `resource-create`, `resource-write`, `resource-delete`, `resource-move` and
    /// `resource-undo`. Who may call them, and for which addresses, is up to the rules.
    pub writable: bool,
    /// Earlier states of each file that are kept when it is written to, so that it can be undone. 0: none.
    #[schemars(range(max = 1_000))]
    pub versions: usize,
    /// Follow changes: subscribers are told within 200 ms.
    pub watch: bool,
    /// Look for changes again and again, and never ask the system to announce them. For network file systems, where it
    /// would be silent.
    pub poll: bool,
}

impl Default for FileRoot {
    fn default() -> Self {
        let options = FolderOptions::new("");
        Self {
            path: options.path,
            include: Vec::new(),
            exclude: Vec::new(),
            types: BTreeMap::new(),
            max_bytes: options.max_bytes,
            max_files: options.max_files,
            writable: options.writable,
            versions: options.versions,
            watch: options.watch,
            poll: options.poll_only,
        }
    }
}

impl FileRoot {
    /// The same as options of a directory.
    pub fn options(&self) -> FolderOptions {
        FolderOptions {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            types: self.types.clone().into_iter().collect(),
            max_bytes: self.max_bytes,
            max_files: self.max_files,
            writable: self.writable,
            versions: self.versions,
            watch: self.watch,
            poll_only: self.poll,
            ..FolderOptions::new(&self.path)
        }
    }
}

/// Search over resources.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResourceSearch {
    /// Offer the tool `search_resources`. It finds what its caller may read, and nothing else.
    pub enabled: bool,
    /// The file with the index, which is made anew if it is gone. Without one, it is beside the ledger.
    #[schemars(extend("format" = "path"))]
    pub path: Option<PathBuf>,
}

pub(crate) fn check(
    files: &BTreeMap<String, FileRoot>,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) {
    for (name, root) in files {
        let path = child("resources.files", name);
        let mut error = |key: String, message: String, hint: &str| {
            let origin = origin_near(origins, &key);
            problems.push(Problem::error(origin, message).key(key).hint(hint));
        };
        if root.path.as_os_str().is_empty() {
            let message = format!("`{path}` has no `path`");
            error(child(&path, "path"), message, "write `path: ./reports`");
        }
        if let Err(why) = root.options().check(name) {
            let hint = "see docs/resources.md for names and patterns";
            error(path.clone(), format!("`{path}`: {why}"), hint);
        }
    }
}
