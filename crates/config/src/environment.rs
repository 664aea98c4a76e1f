//! Surroundings of the process that a configuration is read in: its variables, and the directory at which
//! relative paths begin.

pub(crate) mod interpolate;
pub(crate) mod vault_place;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use redaction::{is_secret_setting, secret_parts};

use self::interpolate::{InterpolateError, TemplatePart, interpolate, template};
use self::vault_place::VaultPlace;

/// Time that a program has whose output a reference stands for.
const COMMAND_TIME: Duration = Duration::from_secs(10);

/// Environment variables, taken once, so that nothing below reads the process; and the other sources of what a
/// configuration refers to, once it has been read.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, OsString>,
    sources: Option<Arc<Sources>>,
}

/// Names alone, since values may be secret.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

/// By the variables.
impl PartialEq for Environment {
    fn eq(&self, other: &Self) -> bool {
        self.variables == other.variables
    }
}

impl Eq for Environment {}

/// Sources of secrets besides variables and files. Each is asked when it is first referred to, and keeps its answer:
/// a configuration that is read again has new ones.
struct Sources {
    place: VaultPlace,
    allows_commands: bool,
    opened: OnceLock<Result<vault::Vault, String>>,
    printed: Mutex<BTreeMap<String, Result<vault::Secret, String>>>,
}

impl Environment {
    /// Variables of this process whose names are text.
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        Self {
            variables: std::env::vars_os().filter_map(text).collect(),
            sources: None,
        }
    }

    /// The text with each reference replaced; `None` where one cannot be.
    pub fn resolve(&self, text: &str) -> Option<String> {
        let replaced = interpolate(text, self).ok()?;
        Some(replaced.map_or_else(|| text.to_owned(), |it| it.text))
    }

    /// The text as parts of which each is a credential of the client that calls (`${credential:NAME}`), or text with its
    /// references replaced; `None` where one cannot be.
    pub fn template(&self, text: &str) -> Option<Vec<TemplatePart>> {
        template(text, self).ok()
    }

    /// Value of a reference in a host's file: the name of a variable, or `vault:NAME`. `None` for any other, and for one
    /// that cannot be resolved.
    pub fn value_of(&self, reference: &str) -> Option<String> {
        let is_file_or_program = reference.contains(':') && !reference.starts_with("vault:");
        if is_file_or_program {
            return None;
        }
        let replaced = interpolate(&format!("${{{reference}}}"), self).ok()??;
        for (reference, value) in &replaced.uses {
            let value = value.reveal();
            redaction::know(match reference.reference.starts_with("vault:") {
                true => vec![value],
                false => known_secrets_of(&reference.reference, value),
            });
        }
        Some(replaced.text)
    }

    /// The same with a vault, and programs if they are allowed.
    #[must_use]
    pub(crate) fn with_sources(&self, place: VaultPlace, allows_commands: bool) -> Self {
        let sources = Sources {
            place,
            allows_commands,
            opened: OnceLock::new(),
            printed: Mutex::default(),
        };
        Self {
            variables: self.variables.clone(),
            sources: Some(Arc::new(sources)),
        }
    }

    /// A secret of the vault. All of its values are known for secrets from the moment that it is opened.
    fn in_vault(&self, name: &str) -> Result<vault::Secret, InterpolateError> {
        let failed = |why: String| InterpolateError::NotInVault {
            name: name.to_owned(),
            why,
        };
        let Some(sources) = &self.sources else {
            return Err(failed("no vault can be used here".to_owned()));
        };
        let opened = sources.opened.get_or_init(|| {
            let vault = sources.place.open().map_err(|error| error.to_string())?;
            redaction::know(vault.entries().map(|(_, it)| it.value.reveal()));
            Ok(vault)
        });
        let vault = opened.as_ref().map_err(|why| InterpolateError::NoVault {
            name: name.to_owned(),
            why: why.clone(),
        })?;
        let found = vault.get(name).cloned();
        found.ok_or_else(|| {
            let place = sources.place.path.display();
            let names = vault.entries().map(|(name, _)| name.as_str());
            failed(match crate::nearest(name, names) {
                Some(meant) => format!("{place} has `{meant}`; is that meant?"),
                None => format!("{place} does not have it"),
            })
        })
    }

    /// Output of a program, without its last line end; each is run once.
    fn output_of(&self, words: &str) -> Result<vault::Secret, InterpolateError> {
        let argv: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let failed = |why: String| InterpolateError::Command {
            program: argv.first().cloned().unwrap_or_default(),
            why,
        };
        let sources = self.sources.as_ref().filter(|it| it.allows_commands);
        let Some(sources) = sources else {
            return Err(failed(
                "programs are not run; `vault.allow_commands: true` allows them".to_owned(),
            ));
        };
        let mut printed = sources
            .printed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let printed = printed.entry(words.to_owned()).or_insert_with(|| {
            let text = vault::output_of(&argv, COMMAND_TIME)?;
            let text = text.trim_end_matches(['\r', '\n']);
            if text.is_empty() {
                return Err("it has printed nothing".to_owned());
            }
            redaction::know([text]);
            Ok(vault::Secret::new(text))
        });
        printed.clone().map_err(failed)
    }

    /// The vault, if a reference led to it: the path, and the reason why it could not be opened.
    pub fn vault_used(&self) -> Option<(&Path, Option<&str>)> {
        let sources = self.sources.as_ref()?;
        let opened = sources.opened.get()?;
        let why = opened.as_ref().err().map(String::as_str);
        Some((&sources.place.path, why))
    }

    /// The same with a variable more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.into());
        self
    }

    /// The home directory of the user, if it is known. A relative one would be another in each directory.
    #[must_use]
    pub fn home(&self) -> Option<std::path::PathBuf> {
        let home = self.get("HOME").map(std::path::PathBuf::from);
        home.filter(|it| it.is_absolute())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.get(name).map(OsString::as_os_str)
    }

    /// Every variable.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_os_str()))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        variables.into_iter().collect()
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        let variables = variables.map(|(name, value)| (name.to_owned(), value.into()));
        Self {
            variables: variables.collect(),
            sources: None,
        }
    }
}

/// `text` from `base`, without `.` segments.
pub(crate) fn absolute(base: &Path, text: impl AsRef<Path>) -> PathBuf {
    base.join(text)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}

/// The secrets in the value of a variable: all of it if it has the name of one, and the parts that are.
pub(crate) fn known_secrets_of<'v>(name: &str, value: &'v str) -> Vec<&'v str> {
    let parts = secret_parts(name, value);
    // A value has no references of its own.
    let is_whole = is_secret_setting(name) && (!parts.is_empty() || value.contains("${"));
    let parts = parts.into_iter().map(|it| &value[it.place]);
    is_whole.then_some(value).into_iter().chain(parts).collect()
}
