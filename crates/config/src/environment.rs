//! Surroundings of the process that a configuration is read in: its variables, and the directory at which
//! relative paths begin.

pub(crate) mod interpolate;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use self::interpolate::interpolate;

/// Environment variables, taken once, so that nothing below reads the process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// Variables of this process whose names are text.
    pub fn of_process() -> Self {
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
        Self(std::env::vars_os().filter_map(text).collect())
    }

    /// The text with each `${NAME}` replaced; `None` where one cannot be.
    pub fn resolve(&self, text: &str) -> Option<String> {
        let replaced = interpolate(text, self).ok()?;
        Some(replaced.unwrap_or_else(|| text.to_owned()))
    }

    /// The same with a variable more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    pub(crate) fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(name).map(OsString::as_os_str)
    }

    /// Every variable.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &OsStr)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_os_str()))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        Self(
            variables
                .map(|(name, value)| (name.to_owned(), value.into()))
                .into(),
        )
    }
}

impl<'a> FromIterator<(&'a str, &'a str)> for Environment {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a str)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        Self(
            variables
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect(),
        )
    }
}

/// `text` from `base`, without `.` segments.
pub(crate) fn absolute(base: &Path, text: impl AsRef<Path>) -> PathBuf {
    base.join(text)
        .components()
        .filter(|part| *part != Component::CurDir)
        .collect()
}
