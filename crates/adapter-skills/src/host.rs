//! Prerequisites of skills, compared with this machine and the application.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    ffi::OsString,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::frontmatter::Prerequisites;

/// Facts that prerequisites are compared with. A value, so that a scan depends on nothing unsaid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Names of the environment variables that are set and not empty. Their values are not kept.
    pub variables: BTreeSet<String>,
    /// Directories in which programs are looked for.
    pub search_path: Vec<PathBuf>,
    /// `linux`, `macos`, `windows`: [`std::env::consts::OS`].
    pub os: String,
    /// The interpreter that has to find packages. Without one no package is found.
    pub python: Option<Interpreter>,
    /// The application's own settings, by dotted path.
    pub configuration: BTreeMap<String, String>,
}

/// A Python interpreter, as the application is run by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Path of its program.
    pub program: PathBuf,
    /// The working directory, from which modules are imported.
    pub directory: PathBuf,
    /// Another directory that modules are imported from.
    pub base: Option<PathBuf>,
    /// `PYTHONPATH`, if it is not that of this process.
    pub path: Option<OsString>,
}

/// One prerequisite that is not met.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// An environment variable is absent or empty.
    #[error("the environment variable `{0}` is not set")]
    Variable(String),
    /// A program is on no directory of the search path.
    #[error("the program `{0}` is not found")]
    Program(String),
    /// The skill is for other systems.
    #[error("the system is `{found}`, not one of {wanted:?}")]
    System {
        /// Operating system found.
        found: String,
        /// Operating systems that the skill is for.
        wanted: Vec<String>,
    },
    /// A Python package that the interpreter does not find.
    #[error("the Python package `{name}` is not found by {by}")]
    Package {
        /// As the skill has it: a module, or the name of a distribution without a version.
        name: String,
        /// The interpreter.
        by: String,
    },
    /// Python packages that nothing could be learnt of.
    #[error("the Python packages {names:?} cannot be looked for: {why}")]
    Packages {
        /// As the skill has them.
        names: Vec<String>,
        /// The reason.
        why: String,
    },
    /// A key of the application's settings that is absent or has another value.
    #[error(
        "the application's settings (`owlclaw.yaml`) have {} for `{key}`{}",
        found.as_ref().map_or_else(|| "no value".to_owned(), |it| format!("`{it}`")),
        wanted.as_ref().map_or_else(String::new, |it| format!(", not `{it}`"))
    )]
    Setting {
        /// Dotted path of the setting.
        key: String,
        /// The value it should have; any, if there is none.
        wanted: Option<String>,
        /// The value it has.
        found: Option<String>,
    },
}

impl Host {
    /// Facts of this process and its environment, now.
    #[must_use]
    pub fn current() -> Self {
        let set = env::vars_os().filter(|(_, value)| !value.is_empty());
        let search_path = env::var_os("PATH").unwrap_or_default();
        Self {
            variables: set
                .filter_map(|(name, _)| name.into_string().ok())
                .collect(),
            search_path: env::split_paths(&search_path).collect(),
            os: env::consts::OS.to_owned(),
            python: None,
            configuration: BTreeMap::new(),
        }
    }

    /// The prerequisites that are not met here. Where there are Python packages among them, the
    /// interpreter is run, for up to [`ASKING`].
    #[must_use]
    pub fn unmet(&self, wanted: &Prerequisites) -> Vec<Unmet> {
        let variables = wanted.env.iter().filter(|it| !self.variables.contains(*it));
        let programs = wanted.bins.iter().filter(|it| !self.has_program(it));
        let mut unmet: Vec<_> = variables.cloned().map(Unmet::Variable).collect();
        unmet.extend(programs.cloned().map(Unmet::Program));
        let here = system_name(&self.os);
        if !wanted.os.is_empty() && !wanted.os.iter().any(|it| system_name(it) == here) {
            unmet.push(Unmet::System {
                found: here,
                wanted: wanted.os.clone(),
            });
        }
        unmet.extend(self.packages(&wanted.python_packages));
        for (key, value) in &wanted.config {
            let found = self.configuration.get(key);
            // Booleans are written `True` and `true`.
            let is_met = found.is_some_and(|found| {
                let is_equal = |value: &String| value.eq_ignore_ascii_case(found);
                value.as_ref().is_none_or(is_equal)
            });
            if !is_met {
                unmet.push(Unmet::Setting {
                    key: key.clone(),
                    wanted: value.clone(),
                    found: found.cloned(),
                });
            }
        }
        unmet
    }

    fn packages(&self, names: &[String]) -> Vec<Unmet> {
        if names.is_empty() {
            return Vec::new();
        }
        let missing = match &self.python {
            Some(python) => python.missing(names),
            None => Err("there is no interpreter".to_owned()),
        };
        let by = |python: &Interpreter| python.program.display().to_string();
        let by = self.python.as_ref().map_or_else(String::new, by);
        match missing {
            Ok(missing) => missing
                .into_iter()
                .map(|name| Unmet::Package {
                    name,
                    by: by.clone(),
                })
                .collect(),
            Err(why) => vec![Unmet::Packages {
                names: names.to_vec(),
                why,
            }],
        }
    }

    /// A name with a separator in it is no program's: a file must not have us look anywhere else.
    fn has_program(&self, name: &str) -> bool {
        let is_name = !name.is_empty() && !name.contains(['/', '\\', '\0']);
        let suffixes: &[&str] = if self.os == "windows" {
            &["", ".exe", ".cmd", ".bat"]
        } else {
            &[""]
        };
        is_name
            && self.search_path.iter().any(|directory| {
                suffixes
                    .iter()
                    .any(|suffix| is_executable(&directory.join(format!("{name}{suffix}"))))
            })
    }
}

/// The longest that an interpreter is waited for.
pub const ASKING: Duration = Duration::from_secs(20);

/// Prints the number of each of its arguments behind the first that is neither a module (of dotted names the first part, since
/// finding the rest would run it) nor a distribution. No file of the application's directories is run.
const LOOK: &str = r#"
import sys
sys.path[:] = [entry for entry in sys.path if entry]
import importlib.metadata, importlib.util
sys.path += ["", sys.argv[1]]
def found(name):
    try:
        if importlib.util.find_spec(name.partition(".")[0]):
            return True
    except (ImportError, ValueError):
        pass
    try:
        importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return False
    return True
for at, name in enumerate(sys.argv[2:]):
    if not name or not found(name):
        print(at)
"#;

impl Interpreter {
    /// Names among `names` that the interpreter does not find.
    fn missing(&self, names: &[String]) -> Result<Vec<String>, String> {
        let mut command = Command::new(&self.program);
        let base = self.base.as_deref().unwrap_or(Path::new(""));
        command.arg("-c").arg(LOOK).arg(base).args(names);
        command.current_dir(&self.directory);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command.stderr(Stdio::null());
        if let Some(path) = &self.path {
            command.env("PYTHONPATH", path);
        }
        let program = self.program.display();
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program} cannot be run ({error})"))?;
        let began = Instant::now();
        let status = loop {
            match child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if began.elapsed() < ASKING => thread::sleep(Duration::from_millis(5)),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(format!("{program} does not answer"));
                }
            }
        };
        let mut said = String::new();
        // A few bytes for each name: less than a pipe holds.
        let read = child
            .stdout
            .take()
            .map(|it| it.take(MAX_SAID).read_to_string(&mut said));
        if !status.success() || !matches!(read, Some(Ok(_))) {
            return Err(format!("{program} ends with {status}"));
        }
        let missing = said.lines().map(|at| names.get(at.parse::<usize>().ok()?));
        let missing: Option<Vec<_>> = missing.map(|name| name.cloned()).collect();
        missing.ok_or_else(|| format!("{program} prints what it was not asked for"))
    }
}

/// The most bytes that are read of an interpreter.
const MAX_SAID: u64 = 32 * 1024;

/// One name for each system, however it is called: Python says `darwin`, and `win32`.
fn system_name(name: &str) -> String {
    let name = name.trim().to_ascii_lowercase();
    match name.as_str() {
        "darwin" | "mac" | "osx" => "macos".to_owned(),
        "win32" | "win" | "nt" => "windows".to_owned(),
        _ => name,
    }
}

fn is_executable(path: &Path) -> bool {
    let Ok(metadata) = fs::metadata(path) else {
        return false;
    };
    #[cfg(unix)]
    let may_run = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o111 != 0;
    #[cfg(not(unix))]
    let may_run = true;
    metadata.is_file() && may_run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prerequisites_are_compared_with_the_host() {
        let host = Host {
            variables: ["TOKEN".to_owned()].into(),
            search_path: env::split_paths("/nowhere:/bin:/usr/bin").collect(),
            os: "macos".to_owned(),
            python: Some(Interpreter {
                program: "python3".into(),
                directory: ".".into(),
                base: None,
                path: None,
            }),
            configuration: [("shop.vat", "20"), ("shop.open", "true")]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        };
        let setting = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let met = Prerequisites {
            env: texts(&["TOKEN"]),
            bins: texts(&["sh"]),
            os: texts(&["linux", "Darwin"]),
            python_packages: texts(&["json", "xml.dom"]),
            config: vec![
                setting("shop.vat", None),
                setting("shop.open", Some("True")),
            ],
        };
        assert_eq!(host.unmet(&met), []);
        let unmet = Prerequisites {
            env: texts(&["TOKEN", "SECRET"]),
            bins: texts(&["sh", "no-such-program", "../bin/sh"]),
            os: texts(&["win32"]),
            python_packages: texts(&["json", "no-such-package", "json>=2", ""]),
            config: vec![setting("shop.tax", None), setting("shop.vat", Some("19"))],
        };
        let package = |name: &str| Unmet::Package {
            name: name.to_owned(),
            by: "python3".to_owned(),
        };
        let expected = [
            Unmet::Variable("SECRET".to_owned()),
            Unmet::Program("no-such-program".to_owned()),
            Unmet::Program("../bin/sh".to_owned()),
            Unmet::System {
                found: "macos".to_owned(),
                wanted: texts(&["win32"]),
            },
            package("no-such-package"),
            package("json>=2"),
            package(""),
            Unmet::Setting {
                key: "shop.tax".to_owned(),
                wanted: None,
                found: None,
            },
            Unmet::Setting {
                key: "shop.vat".to_owned(),
                wanted: Some("19".to_owned()),
                found: Some("20".to_owned()),
            },
        ];
        assert_eq!(host.unmet(&unmet), expected);
    }

    #[test]
    fn packages_are_looked_for_without_running_files_of_the_application() {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("csv.py", "raise SystemExit(3)"),
            ("re.py", "raise SystemExit(3)"),
            ("own.py", ""),
            ("base/other.py", ""),
        ] {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Host {
            python: Some(Interpreter {
                program: "python3".into(),
                directory: directory.path().to_owned(),
                base: Some(directory.path().join("base")),
                path: None,
            }),
            ..Host::default()
        };
        let names = ["json", "own", "other", "none"].map(str::to_owned);
        let wanted = Prerequisites {
            python_packages: names.to_vec(),
            ..Prerequisites::default()
        };
        let missing = Unmet::Package {
            name: "none".to_owned(),
            by: "python3".to_owned(),
        };
        assert_eq!(host.unmet(&wanted), [missing]);
    }

    #[test]
    fn packages_are_missing_where_no_interpreter_says_otherwise() {
        let unmet = |program: Option<&str>| {
            let python = program.map(|program| Interpreter {
                program: program.into(),
                directory: ".".into(),
                base: None,
                path: None,
            });
            let host = Host {
                python,
                ..Host::default()
            };
            let wanted = Prerequisites {
                python_packages: vec!["json".to_owned()],
                ..Prerequisites::default()
            };
            let unmet = host.unmet(&wanted);
            unmet.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let begin = "the Python packages [\"json\"] cannot be looked for: ";
        let rows = [
            (None, "there is no interpreter"),
            (Some("/no/such/python"), "/no/such/python cannot be run"),
            (Some("false"), "false ends with exit status: 1"),
            (Some("echo"), "echo prints what it was not asked for"),
        ];
        for (program, why) in rows {
            let told = unmet(program);
            assert!(told[0].starts_with(&format!("{begin}{why}")), "{told:?}");
        }
    }
}
