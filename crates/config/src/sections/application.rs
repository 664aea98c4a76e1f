//! Settings of the Python application: how it runs, and which of its parts besides handlers are
//! offered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment;

/// The processes that run the application's handlers. They share nothing: what a handler keeps in
/// memory, only later calls in the same process see.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    /// Number of worker processes. With one, handlers share their memory. Several use several cores, and
    /// the loss of one is not noticed by calls in the others.
    #[schemars(range(min = 1, max = 64))]
    pub count: usize,
    /// The most worker processes, at least `count`. Those beyond `count` are started one after the other while calls
    /// have waited for a tenth of a second, or all workers are held up, and end when they are idle. Without it there
    /// are none.
    #[schemars(range(min = 1, max = 64))]
    pub max_count: Option<usize>,
    /// Seconds without calls after which a worker beyond `count` ends.
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_seconds: u64,
    /// Number of synchronous handlers that run in each at once, in threads. One client has up to three times
    /// as many as are left. With 1 they run on the main thread, where each has its process to itself.
    #[schemars(range(min = 1, max = 1_024))]
    pub threads: usize,
    /// Method by which they are started.
    pub start: WorkerStart,
    /// The directory that the application runs in. Without one, that of its file; of a module, that of the
    /// configuration file.
    #[schemars(extend("format" = "path"))]
    pub cwd: Option<PathBuf>,
    /// Directories to look for its modules in, as `PYTHONPATH` has them. After these and after Python's own modules
    /// come the working directory and that of the configuration file, where the application is below it.
    #[schemars(extend("x-items" = "path"))]
    pub python_path: Vec<PathBuf>,
    /// The directory of the configuration file, where the application is below it and does not run there.
    #[serde(skip)]
    pub base: Option<PathBuf>,
    /// Load the application anew when its code changes on disk.
    pub watch: bool,
    /// Seconds that a handler may go on after its call was cancelled or has timed out. Then it is left alone
    /// if it has a thread of its own and its worker still answers; else the worker is killed, with
    /// everything else that runs in it.
    #[schemars(range(min = 1, max = 3_600))]
    pub grace_seconds: u64,
    /// Bytes of memory that each worker may address; a handler that needs more gets a
    /// `MemoryError`. Without it there is no bound but the machine's.
    #[schemars(range(min = 67_108_864))]
    pub max_memory_bytes: Option<u64>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            count: 1,
            max_count: None,
            idle_seconds: 60,
            threads: 64,
            start: WorkerStart::default(),
            cwd: None,
            python_path: Vec::new(),
            base: None,
            watch: true,
            grace_seconds: 2,
            max_memory_bytes: None,
        }
    }
}

impl Workers {
    /// Makes its paths absolute, and says where `app` runs and imports from: nothing of that depends on
    /// where the server is started.
    pub(crate) fn begin_at(&mut self, base: &Path, app: Option<&str>) {
        for path in self.cwd.iter_mut().chain(&mut self.python_path) {
            *path = environment::absolute(base, &path);
        }
        let Some(app) = app else {
            return;
        };
        let file = match app.find(".py:") {
            Some(at) => &app[..at + 3],
            None => app,
        };
        let file = Path::new(file);
        let is_file = file.extension().is_some_and(|extension| extension == "py");
        let home = match file.parent() {
            Some(directory) if is_file && directory.is_absolute() => directory,
            _ => base,
        };
        let cwd = self.cwd.get_or_insert_with(|| home.to_owned());
        // What is run from there imports from there.
        if home.starts_with(base) && (home != base || cwd != base) {
            self.base = Some(base.to_owned());
        }
    }
}

/// Method by which workers are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerStart {
    /// By `fork` where that is safe for the application, else by `spawn`.
    #[default]
    Auto,
    /// The application is imported once, and workers are copies of that process: they are there at
    /// once and share the memory of what was imported.
    Fork,
    /// Each worker imports the application for itself.
    Spawn,
}

/// The application's states (`@app.state`), which are offered in neither way unless asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct States {
    /// As a tool, `query_state`.
    pub tool: bool,
    /// As resources, `state://NAME`.
    pub resources: bool,
}

/// Settings of `skills.entries` for single tools.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Switches {
    /// Tools that are switched off, and where.
    pub off: BTreeMap<String, String>,
    /// Migration weight of each tool, in hundredths, and the place that states it.
    pub weights: BTreeMap<String, (u8, String)>,
    /// Every setting that has a value, by dotted path. Tables and lists are there without their content.
    pub settings: BTreeMap<String, String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn working_directory_and_import_path_depend_on_the_configuration_alone() {
        type Row = (
            &'static str,
            Option<&'static str>,
            &'static [&'static str],
            &'static str,
            Option<&'static str>,
        );
        let rows: [Row; 6] = [
            ("/shop/app.py", None, &[], "/shop", None),
            (
                "/shop/sales/app.py:app",
                None,
                &[],
                "/shop/sales",
                Some("/shop"),
            ),
            ("/other/app.py", None, &["lib"], "/other", None),
            ("sales.app:make()", None, &[], "/shop", None),
            ("sales.app", Some("run"), &[], "/shop/run", Some("/shop")),
            ("/shop/app.py", Some("/tmp"), &["/a"], "/tmp", Some("/shop")),
        ];
        for (app, cwd, path, expected_cwd, expected_base) in rows {
            let mut workers = Workers {
                cwd: cwd.map(PathBuf::from),
                python_path: path.iter().map(PathBuf::from).collect(),
                ..Workers::default()
            };
            workers.begin_at(Path::new("/shop"), Some(app));
            assert_eq!(
                workers.cwd.as_deref(),
                Some(Path::new(expected_cwd)),
                "{app}"
            );
            assert_eq!(
                workers.base.as_deref(),
                expected_base.map(Path::new),
                "{app}"
            );
            let expected: Vec<_> = path.iter().map(|it| Path::new("/shop").join(it)).collect();
            assert_eq!(workers.python_path, expected, "{app}");
        }
    }
}
