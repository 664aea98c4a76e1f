//! Prerequisites of a skill that this machine meets.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
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
        }
    }

    /// The prerequisites that are not met here: variables, programs, system. Python packages and
    /// configuration keys are never among them.
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
        unmet
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
        };
        let texts = |list: &[&str]| list.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let met = Prerequisites {
            env: texts(&["TOKEN"]),
            bins: texts(&["sh"]),
            os: texts(&["linux", "Darwin"]),
            python_packages: texts(&["no-such-package"]),
            config: texts(&["no.such.key"]),
        };
        assert_eq!(host.unmet(&met), []);
        let unmet = Prerequisites {
            env: texts(&["TOKEN", "SECRET"]),
            bins: texts(&["sh", "no-such-program", "../bin/sh"]),
            os: texts(&["win32"]),
            ..Prerequisites::default()
        };
        let expected = [
            Unmet::Variable("SECRET".to_owned()),
            Unmet::Program("no-such-program".to_owned()),
            Unmet::Program("../bin/sh".to_owned()),
            Unmet::System {
                found: "macos".to_owned(),
                wanted: texts(&["win32"]),
            },
        ];
        assert_eq!(host.unmet(&unmet), expected);
    }
}
