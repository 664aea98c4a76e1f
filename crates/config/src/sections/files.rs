//! Directories of files as resources, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use resources::{FolderOptions, Overlap, OwnFiles};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::vault_place::KeySource;
use crate::layer::{Origins, child, origin_near};
use crate::problem::{Problem, quoted};
use crate::sections::Config;
use crate::sections::commands::Words;

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

impl Config {
    /// Files and directories of the server itself, none of which a directory of files offers.
    pub fn own_files(&self) -> OwnFiles {
        let mut kept = self.resources.read_from.clone();
        let ledger = &self.ledger;
        let ledger_stem = ledger.path.with_extension("");
        let vault = self.vault_place();
        kept.extend([
            // `ledger.db`, `ledger.db-wal`, `ledger-tasks.db` and all the others.
            ledger_stem,
            ledger.path.clone(),
            ledger.archive_directory(),
            ledger.timestamps_file(),
            ledger.checkpoints_file(),
            self.tasks_path(),
            self.sessions_path(),
            self.skills_path(),
            self.resources_path(),
            self.search_path(),
            self.registry_directory(),
            self.resources.base.join("mcp.json"),
            vault.path.clone(),
        ]);
        if let KeySource::File(key) = vault.key {
            kept.push(key);
        }
        if let Some(keys) = &self.identity.api_keys {
            kept.push(keys.file.clone());
        }
        if !self.upstreams.is_empty() || !self.upstreams_files.is_empty() {
            kept.push(ledger.path.with_file_name("upstreams"));
        }
        if !self.results.limits.is_empty() {
            kept.push(ledger.path.with_file_name("results"));
        }
        let tls = &self.http.tls;
        let temporal = self.tasks.temporal.iter();
        let temporal = temporal.flat_map(|it| [&it.ca_file, &it.certificate_file, &it.key_file]);
        let optional = [
            &self.resources.skills_dir,
            &self.prompts.dir,
            &self.gateway.directory,
            &self.results.directory,
            &self.http.host_dialect.state_file,
            &self.http.unix_socket,
            &ledger.witness.file,
            &ledger.checkpoint.key,
            &ledger.timestamps.certificates,
            &self.services.ca_file,
            &tls.cert_file,
            &tls.key_file,
            &tls.client_ca_file,
            &tls.client_crl_file,
        ];
        kept.extend(optional.into_iter().chain(temporal).flatten().cloned());
        // Which is written beside its place.
        let state = self.http.host_dialect.state_file.as_ref();
        kept.extend(state.map(|it| it.with_extension("new")));
        if self.resources.skills_dir.is_none() {
            kept.push(self.resources.default_dir());
        }
        kept.extend(ledger.verification.keys.iter().cloned());
        kept.extend(self.upstreams_files.iter().cloned());
        kept.extend(self.governance.permission_records.values().cloned());
        let services = self.services.openapi.values();
        kept.extend(services.map(|it| it.document.clone()));
        let jwt = self.identity.jwt.values();
        kept.extend(jwt.filter_map(|it| it.jwks_file.clone()));
        // What programs are run from, by paths that do not depend on the caller.
        let programs = self.commands.values().flat_map(|it| {
            let base = it.cwd.as_deref().unwrap_or(&self.resources.base);
            let run = it.run.iter().flat_map(Words::words).enumerate();
            let run = run.filter(|(at, word)| *at == 0 || is_script(word));
            run.map(move |(_, word)| base.join(word))
        });
        kept.extend(programs.filter(|it| it.is_file()));
        // Tables and columns have rules of their own.
        let databases = self.resources.databases.values();
        kept.extend(databases.map(|it| it.path.clone()));
        kept.retain(|it| !it.as_os_str().is_empty());
        let workers = self.workers.cwd.iter().chain(&self.workers.base);
        let code = workers.chain(&self.workers.python_path).cloned();
        OwnFiles {
            kept,
            code: match self.app {
                Some(_) => code.collect(),
                None => Vec::new(),
            },
        }
    }
}

/// Tests if a word names what an interpreter runs.
fn is_script(word: &str) -> bool {
    const ENDINGS: [&str; 7] = ["js", "mjs", "pl", "py", "rb", "sh", "ts"];
    let ending = word.rsplit_once('.').map_or("", |(_, ending)| ending);
    ENDINGS.contains(&ending)
}

pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let files = &config.resources.files;
    if files.is_empty() {
        return;
    }
    let roots = files
        .iter()
        .map(|(name, root)| (name.clone(), root.options()));
    for overlap in Overlap::all(&roots.collect()) {
        let key = child(&child("resources.files", &overlap.inner), "path");
        let message = format!("`{key}`: {overlap}");
        let problem = Problem::error(origin_near(origins, &key), message);
        problems.push(problem.key(key).hint(overlap.hint()));
    }
    let own = config.own_files();
    for (name, root) in files {
        let path = child("resources.files", name);
        let key = child(&path, "path");
        let origin = origin_near(origins, &key);
        if let Some(own) = own.around(&root.path) {
            let own = own.display();
            let message =
                format!("`{key}` is, or lies in, {own}, which belongs to the server itself");
            let problem = Problem::error(origin, message).key(key);
            problems.push(problem.hint("offer another directory"));
            continue;
        }
        let kept = root.options().own_files(&own);
        if let [first, ..] = &kept[..] {
            let first = if kept.len() == 1 {
                format!("`{first}` is")
            } else {
                format!("{} are", quoted(&kept, " and "))
            };
            let message = format!(
                "`{key}`: {first} the server's own, and neither listed, read nor written as resources"
            );
            let problem = Problem::warning(origin, message).key(key);
            problems.push(
                problem.hint("offer a directory that has nothing else in it, or exclude them"),
            );
        }
    }
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
