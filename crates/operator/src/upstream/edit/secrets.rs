//! Values of upstreams that are to stand in the environment of the server and not in its configuration.

use std::collections::BTreeSet;

/// A variable that an entry refers to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Needed {
    pub(super) variable: String,
    /// Key of the entry.
    pub(super) place: String,
    pub(super) is_set: bool,
    /// True if its value was given, and is not written to the file.
    pub(super) was_written_out: bool,
}

/// The variables that entries refer to.
#[derive(Debug, Default)]
pub(super) struct Secrets(Vec<Needed>);

/// A name for a variable.
pub(super) fn as_variable(text: &str) -> String {
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

/// True if a value looks like a secret, whatever it is called.
fn looks_secret(value: &str) -> bool {
    let redactor = mcp_server::redactor_of_this_process();
    redactor.text(value) != value
}

/// The variables that a text refers to.
fn references(text: &str) -> impl Iterator<Item = &str> {
    let parts = text.split("${").skip(1);
    let names = parts.filter_map(|it| Some(it.split_once('}')?.0));
    names.filter(|it| !it.starts_with("file:"))
}

impl Secrets {
    pub(super) fn all(&self) -> impl Iterator<Item = &Needed> {
        self.0.iter()
    }

    /// The variables that are not set here.
    pub(super) fn unset(&self) -> BTreeSet<&str> {
        let unset = self.0.iter().filter(|it| !it.is_set);
        unset.map(|it| it.variable.as_str()).collect()
    }

    fn note(&mut self, variable: &str, place: String, was_written_out: bool) {
        if self
            .0
            .iter()
            .any(|it| it.variable == variable && it.place == place)
        {
            return;
        }
        self.0.push(Needed {
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
        let mut variable = as_variable(preferred);
        let is_taken = |it: &str| self.0.iter().any(|other| other.variable == it);
        if is_taken(&variable) {
            variable = as_variable(&place.replacen("upstreams.", "", 1));
        }
        self.note(&variable, place, true);
        format!("${{{variable}}}")
    }

    pub(super) fn variable(&mut self, upstream: &str, name: &str, value: &str) -> String {
        let place = format!("upstreams.{upstream}.env.{name}");
        self.written(value, is_secret_name(name), name, place)
    }

    pub(super) fn header(&mut self, upstream: &str, name: &str, value: &str) -> String {
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
    pub(super) fn arguments(&mut self, upstream: &str, arguments: &[String]) -> Vec<String> {
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
    pub(super) fn url(&mut self, upstream: &str, url: &str) -> String {
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
