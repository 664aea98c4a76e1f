//! Values of upstreams that are to stand in the environment of the server, or in the vault, and not in its
//! configuration.

use std::collections::{BTreeMap, BTreeSet};

use vault::{Name, Secret, Vault};

/// A variable that an entry refers to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) variable: String,
    /// Key of the entry.
    pub(crate) place: String,
    pub(crate) is_set: bool,
    /// True if its value was given, and is not written to the file.
    pub(crate) was_written_out: bool,
}

/// The variables that entries refer to, or the secrets of the vault.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    needed: Vec<Needed>,
    /// Secrets that the vault has, with those that are to come; `None` where variables are used.
    vault: Option<BTreeMap<Name, Secret>>,
    /// Names of secrets that are to come into the vault, with the places that they stood in.
    moved: Vec<(Name, String)>,
    /// Names of secrets of the vault that are referred to and have no value yet.
    awaited: Vec<String>,
}

/// A name for a variable.
pub(crate) fn as_variable(text: &str) -> String {
    let legal = |it: char| match it.is_ascii_alphanumeric() {
        true => it.to_ascii_uppercase(),
        false => '_',
    };
    let name: String = text.chars().map(legal).collect();
    match name.starts_with(|it: char| it.is_ascii_digit()) {
        true => format!("_{name}"),
        false => name,
    }
}

/// True if a value of this name is mostly a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase().replace('-', "_");
    let parts = [
        "KEY",
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "AUTHORIZATION",
        "CREDENTIAL",
        "COOKIE",
    ];
    parts.iter().any(|it| name.contains(it)) || name.split('_').any(|it| it == "PAT" || it == "PWD")
}

/// True if a value of this name is mostly a secret, or looks like one.
pub(crate) fn is_secret(name: &str, value: &str) -> bool {
    is_secret_name(name) || looks_secret(value)
}

/// True if a value looks like a secret, whatever it is called.
fn looks_secret(value: &str) -> bool {
    let redactor = mcp_server::redactor_of_this_process();
    redactor.text(value) != value
}

/// The variables that a text refers to.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("${").skip(1);
    let names = parts.filter_map(|it| Some(it.split_once('}')?.0));
    let names = names.map(|it| it.strip_prefix("env:").unwrap_or(it));
    // Those with a colon are of another kind, or have a default.
    names.filter(|it| !it.contains(':'))
}

impl Secrets {
    /// Secrets that go into `vault`.
    pub(crate) fn into_vault(vault: &Vault) -> Self {
        let entries = vault.entries();
        Self {
            vault: Some(
                entries
                    .map(|(name, entry)| (name.clone(), entry.value.clone()))
                    .collect(),
            ),
            ..Self::default()
        }
    }

    /// The secrets that are to come into the vault, with the places that they stood in.
    pub(crate) fn moved(&self) -> impl Iterator<Item = (&Name, &Secret, &str)> {
        let vault = self.vault.as_ref();
        self.moved.iter().filter_map(move |(name, place)| {
            let value = vault?.get(name)?;
            Some((name, value, place.as_str()))
        })
    }

    /// A reference to a secret of the vault with this value: one that is there, or one that is to come.
    fn in_vault(&mut self, value: &str, preferred: &str, place: &str) -> Option<String> {
        let vault = self.vault.as_mut()?;
        let beginning = as_variable(preferred);
        let longer = as_variable(&place.replacen("upstreams.", "", 1));
        let numbered = (2..).map(|it| format!("{longer}_{it}"));
        let names = [beginning, longer.clone()].into_iter().chain(numbered);
        for name in names.filter_map(|it| it.parse::<Name>().ok()) {
            match vault.get(&name) {
                Some(there) if there.reveal() != value => continue,
                Some(_) => {}
                None => {
                    vault.insert(name.clone(), Secret::new(value));
                }
            }
            let reference = format!("${{vault:{name}}}");
            self.moved.push((name, place.to_owned()));
            return Some(reference);
        }
        None
    }

    /// A reference to a secret that a published server asks for under `name`, and its value if there is one. The secret has
    /// a name of this upstream's alone: a stranger's choice of a name must not lead to a secret of another server.
    pub(crate) fn published(&mut self, upstream: &str, name: &str, value: Option<&str>) -> String {
        let own = format!("{upstream}_{name}");
        let place = format!("upstreams.{upstream} ({name})");
        let kept = value.and_then(|value| self.in_vault(value, &own, &place));
        kept.unwrap_or_else(|| {
            let own = as_variable(&own);
            if !self.awaited.contains(&own) {
                self.awaited.push(own.clone());
            }
            format!("${{vault:{own}}}")
        })
    }

    /// Names of secrets that are referred to and have no value yet.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = &str> {
        self.awaited.iter().map(String::as_str)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Needed> {
        self.needed.iter()
    }

    /// The variables that are not set here.
    pub(crate) fn unset(&self) -> BTreeSet<&str> {
        let unset = self.needed.iter().filter(|it| !it.is_set);
        unset.map(|it| it.variable.as_str()).collect()
    }

    fn note(&mut self, variable: &str, place: String, was_written_out: bool) {
        if self
            .needed
            .iter()
            .any(|it| it.variable == variable && it.place == place)
        {
            return;
        }
        self.needed.push(Needed {
            variable: variable.to_owned(),
            place,
            is_set: std::env::var_os(variable).is_some(),
            was_written_out,
        });
    }

    /// The text to write: `value`, or a reference to a variable of the name `preferred`, where it is a secret.
    fn written(&mut self, value: &str, is_secret: bool, preferred: &str, place: String) -> String {
        if value.contains("${") {
            for name in references(value) {
                self.note(name, place.clone(), false);
            }
            return value.to_owned();
        }
        if value.is_empty() || !(is_secret || looks_secret(value)) {
            return value.to_owned();
        }
        if let Some(reference) = self.in_vault(value, preferred, &place) {
            return reference;
        }
        let mut variable = as_variable(preferred);
        let is_taken = |it: &str| self.needed.iter().any(|other| other.variable == it);
        if is_taken(&variable) {
            variable = as_variable(&place.replacen("upstreams.", "", 1));
        }
        self.note(&variable, place, true);
        format!("${{{variable}}}")
    }

    pub(crate) fn variable(&mut self, upstream: &str, name: &str, value: &str) -> String {
        let place = format!("upstreams.{upstream}.env.{name}");
        self.written(value, is_secret_name(name), name, place)
    }

    /// A variable of a file of variables.
    pub(crate) fn of_file(&mut self, name: &str, value: &str) -> String {
        self.written(value, is_secret_name(name), name, name.to_owned())
    }

    pub(crate) fn header(&mut self, upstream: &str, name: &str, value: &str) -> String {
        let place = format!("upstreams.{upstream}.headers.{name}");
        let (scheme, rest) = match value.split_once(' ') {
            Some((scheme, rest)) if name.eq_ignore_ascii_case("authorization") => {
                (Some(scheme), rest)
            }
            _ => (None, value),
        };
        let what = match name.eq_ignore_ascii_case("authorization") {
            true => "token",
            false => name,
        };
        let preferred = format!("{upstream}_{what}");
        let written = self.written(rest.trim(), is_secret_name(name), &preferred, place);
        match scheme {
            Some(scheme) => format!("{scheme} {written}"),
            None => written,
        }
    }

    /// Arguments of a program, in which the values of options such as `--api-key` are secrets.
    pub(crate) fn arguments(&mut self, upstream: &str, arguments: &[String]) -> Vec<String> {
        let mut written = Vec::new();
        let mut option: Option<&str> = None;
        for (at, argument) in arguments.iter().enumerate() {
            let place = format!("upstreams.{upstream}.args[{at}]");
            let named = argument
                .split_once('=')
                .filter(|(it, _)| it.starts_with('-'));
            written.push(match (named, option) {
                (Some((name, value)), _) => {
                    let preferred = format!("{upstream}_{}", name.trim_start_matches('-'));
                    let value = self.written(value, is_secret_name(name), &preferred, place);
                    format!("{name}={value}")
                }
                (None, Some(name)) if !argument.starts_with('-') => {
                    let preferred = format!("{upstream}_{}", name.trim_start_matches('-'));
                    self.written(argument, is_secret_name(name), &preferred, place)
                }
                _ => self.written(argument, false, &format!("{upstream}_argument"), place),
            });
            option = Some(argument.as_str()).filter(|it| it.starts_with('-') && !it.contains('='));
        }
        written
    }

    /// An address, in whose query there may be secrets.
    pub(crate) fn url(&mut self, upstream: &str, url: &str) -> String {
        let place = format!("upstreams.{upstream}.url");
        let Some((path, query)) = url.split_once('?') else {
            for name in references(url) {
                self.note(name, place.clone(), false);
            }
            return url.to_owned();
        };
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name, value)) => {
                let preferred = format!("{upstream}_{name}");
                let place = format!("{place} ({name})");
                let value = self.written(value, is_secret_name(name), &preferred, place);
                format!("{name}={value}")
            }
            None => pair.to_owned(),
        });
        let pairs: Vec<_> = pairs.collect();
        format!("{path}?{}", pairs.join("&"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_becomes_a_reference_wherever_it_stands() {
        let mut secrets = Secrets::default();
        assert_eq!(
            secrets.variable("gh", "GITHUB_TOKEN", "hunter2"),
            "${GITHUB_TOKEN}"
        );
        assert_eq!(
            secrets.variable("gl", "GITHUB_TOKEN", "hunter3"),
            "${GL_ENV_GITHUB_TOKEN}"
        );
        assert_eq!(secrets.variable("gh", "REGION", "eu"), "eu");
        assert_eq!(secrets.variable("gh", "A_KEY", "${MINE}"), "${MINE}");
        assert_eq!(
            secrets.header("gh", "Authorization", "Bearer hunter2"),
            "Bearer ${GH_TOKEN}"
        );
        assert_eq!(
            secrets.header("gh", "X-Api-Key", "hunter2"),
            "${GH_X_API_KEY}"
        );
        let arguments = [
            "--api-key",
            "hunter2",
            "--token=hunter2",
            "--port",
            "80",
            "-y",
        ];
        assert_eq!(
            secrets.arguments("gh", &arguments.map(str::to_owned)),
            [
                "--api-key",
                "${GH_API_KEY}",
                "--token=${GH_ARGS_2_}",
                "--port",
                "80",
                "-y"
            ]
        );
        assert_eq!(
            secrets.url("s", "https://h/mcp?api_key=hunter2&x=1"),
            "https://h/mcp?api_key=${S_API_KEY}&x=1"
        );
        let references: Vec<_> = secrets.all().filter(|it| !it.was_written_out).collect();
        assert_eq!(references.len(), 1);
        assert_eq!(references[0].variable, "MINE");
    }
}
