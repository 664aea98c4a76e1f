//! Values of upstreams that are to stand in the environment of the server, or in the vault, and not in its
//! configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use config::printable;
use redaction::{SecretPart, secret_parts, secret_parts_of_arguments, with_parts};
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
    /// Places of values that are written as they were.
    kept: Vec<String>,
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

/// A name for a variable whose value stood there.
fn of_place(place: &str) -> String {
    let name = as_variable(place.strip_prefix("upstreams.").unwrap_or(place));
    let parts = name.split('_').filter(|it| !it.is_empty());
    as_variable(&parts.collect::<Vec<_>>().join("_"))
}

/// True if something in a text is given a value that is no reference: `name=value`, as queries, fragments and lines of
/// shells have it, or an option in such a line.
fn assigns(text: &str) -> bool {
    let values = text.split('=').skip(1);
    let mut values = values.map(|it| it.trim_start_matches(['"', '\'']));
    let is_value = |it: &str| !it.is_empty() && !it.starts_with(['&', '#', ';', ' ']);
    text.contains(" -") || values.any(|it| is_value(it) && !it.starts_with("${"))
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
        let longer = of_place(place);
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

    /// Places of values that are written as they were: a secret among them is seen by who looks through them.
    pub(crate) fn kept(&self) -> &[String] {
        &self.kept
    }

    /// Secrets that are to come into the vault and are too short to be looked for in logs and answers.
    pub(crate) fn short(&self) -> BTreeSet<&str> {
        let short = self.moved();
        let short = short.filter(|(_, value, _)| is_short(value));
        short.map(|(name, ..)| name.as_str()).collect()
    }

    /// The text to write: `value`, with a reference in the place of each secret in it. `preferred` is the name for a
    /// secret that is all of it.
    fn written(
        &mut self,
        value: &str,
        parts: Vec<SecretPart>,
        preferred: &str,
        place: &str,
    ) -> String {
        for name in references(value) {
            self.note(name, place.to_owned(), false);
        }
        // A default has no reference in it, and `$${` says something else in the vault.
        let stays = |it: &SecretPart| it.is_default || value[it.place.clone()].contains("${");
        let (staying, parts): (Vec<_>, Vec<_>) = parts.into_iter().partition(stays);
        let is_plain = parts.is_empty() && !value.is_empty() && !value.contains("${");
        let written = with_parts(value, &parts, |part| {
            let (preferred, place) = match part.name.as_str() {
                "" => (preferred.to_owned(), place.to_owned()),
                name => (format!("{preferred}_{name}"), format!("{place} ({name})")),
            };
            self.referred(&value[part.place.clone()], &preferred, place)
        });
        if is_plain || !staying.is_empty() || (!parts.is_empty() && assigns(&written)) {
            self.kept.push(place.to_owned());
        }
        written
    }

    /// A reference to a secret of the vault, or to a variable.
    fn referred(&mut self, secret: &str, preferred: &str, place: String) -> String {
        if let Some(reference) = self.in_vault(secret, preferred, &place) {
            return reference;
        }
        let longer = of_place(&place);
        let numbered = (2..).map(|it| format!("{longer}_{it}"));
        let mut names = [as_variable(preferred), longer.clone()]
            .into_iter()
            .chain(numbered);
        let is_free = |it: &String| self.needed.iter().all(|other| other.variable != *it);
        let variable = names.find(is_free).unwrap_or_default();
        self.note(&variable, place, true);
        format!("${{{variable}}}")
    }

    pub(crate) fn variable(&mut self, upstream: &str, name: &str, value: &str) -> String {
        let place = format!("upstreams.{upstream}.env.{name}");
        self.written(value, secret_parts(name, value), name, &place)
    }

    /// A variable of a file of variables, as a whole: what has a part of its value in it is no other program's to read.
    pub(crate) fn of_file(&mut self, name: &str, value: &str) -> String {
        let mut parts = secret_parts(name, value);
        parts.retain(|it| !it.is_default);
        let is_secret = !parts.is_empty() && !value.contains("${");
        let whole = SecretPart {
            name: String::new(),
            place: 0..value.len(),
            is_default: false,
        };
        self.written(
            value,
            is_secret.then_some(whole).into_iter().collect(),
            name,
            name,
        )
    }

    pub(crate) fn header(&mut self, upstream: &str, name: &str, value: &str) -> String {
        let place = format!("upstreams.{upstream}.headers.{name}");
        let what = match name.eq_ignore_ascii_case("authorization") {
            true => "token",
            false => name,
        };
        let preferred = format!("{upstream}_{what}");
        self.written(value, secret_parts(name, value), &preferred, &place)
    }

    /// Arguments of a program, in which the values of options such as `--api-key` are secrets.
    pub(crate) fn arguments(&mut self, upstream: &str, arguments: &[String]) -> Vec<String> {
        let mut written = Vec::new();
        let mut option: Option<&str> = None;
        let parts = secret_parts_of_arguments(arguments);
        for (at, (argument, parts)) in arguments.iter().zip(parts).enumerate() {
            let place = format!("upstreams.{upstream}.args[{at}]");
            let named = argument.split_once('=').map(|(name, _)| name);
            let named = match argument.starts_with('-') {
                true => named,
                false => option.or(named),
            };
            let named = named.map(|it| it.trim_start_matches('-'));
            let preferred = match (named, parts.first()) {
                // Its own name is behind it.
                (_, Some(part)) if !part.name.is_empty() => upstream.to_owned(),
                (Some(name), _) => format!("{upstream}_{name}"),
                (None, _) => format!("{upstream}_argument"),
            };
            let kept = self.kept.len();
            written.push(self.written(argument, parts, &preferred, &place));
            match named {
                // Words that no option names are shown with the command; `-y` has no value.
                Some(name) if kept < self.kept.len() && name != "y" && !name.contains('/') => {
                    self.kept[kept] = format!("{place} ({name})");
                }
                _ if written.last().is_some_and(|it| assigns(it)) => {}
                _ => self.kept.truncate(kept),
            }
            option = Some(argument.as_str()).filter(|it| it.starts_with('-') && !it.contains('='));
        }
        written
    }

    /// An address, in which there may be a password, and secrets in the path and the query.
    pub(crate) fn url(&mut self, upstream: &str, url: &str) -> String {
        let place = format!("upstreams.{upstream}.url");
        let kept = self.kept.len();
        let written = self.written(url, secret_parts("", url), upstream, &place);
        // Of an address, the query and the fragment may have more.
        self.kept.truncate(kept);
        let (_, rest) = written.split_once(['?', '#']).unwrap_or_default();
        for pair in rest.split(['&', '?', '#']) {
            if let Some((name, value)) = pair.split_once('=')
                && !value.is_empty()
                && !value.contains("${")
            {
                self.kept.push(format!("{place} ({name})"));
            }
        }
        written
    }
}

/// Lines on values that are in plain text still, and on secrets that nothing can be redacted by.
pub(crate) fn remarks(secrets: &Secrets) -> String {
    let mut out = String::new();
    let short: Vec<_> = secrets.short().into_iter().collect();
    if !short.is_empty() {
        let _ = writeln!(
            out,
            "warning: fewer than {} bytes, so that in logs and answers it is not recognised, and not redacted: {}",
            redaction::MIN_KNOWN_BYTES,
            short.join(", ")
        );
    }
    let kept: Vec<_> = secrets.kept().iter().map(|it| printable(it)).collect();
    if !kept.is_empty() {
        let _ = writeln!(
            out,
            "kept as they are: {}\n(a secret among them goes into the vault by `owlclaw-mcp vault set`, with `${{vault:NAME}}` in its place)",
            kept.join(", ")
        );
    }
    out
}

pub(crate) fn is_short(value: &Secret) -> bool {
    value.reveal().len() < redaction::MIN_KNOWN_BYTES
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
                "--token=${GH_ARGS_2_TOKEN}",
                "--port",
                "80",
                "-y"
            ]
        );
        assert_eq!(
            secrets.url("s", "https://h/mcp?api_key=hunter2&x=1"),
            "https://h/mcp?api_key=${S_API_KEY}&x=1"
        );
        for (text, expected) in [
            ("https://u:p@h/", "https://u:${T_PASSWORD}@h/"),
            (
                "https://h/s/aB3dE5fG7hI9jK1lM3nO5pQ7",
                "https://h/s/${T_PATH}",
            ),
        ] {
            assert_eq!(secrets.url("t", text), expected);
        }
        for (name, value, expected) in [
            ("SMTP_PASS", "hunter2", "${SMTP_PASS}"),
            (
                "DATABASE_URL",
                "postgresql://ana:pw@h/d",
                "postgresql://ana:${DATABASE_URL_PASSWORD}@h/d",
            ),
            ("HEADER", "X-Auth: hunter2", "X-Auth: ${HEADER_X_AUTH}"),
            ("B_KEY", "${B:-hunter2}", "${B:-hunter2}"),
        ] {
            assert_eq!(secrets.variable("d", name, value), expected);
        }
        assert_eq!(
            secrets.arguments(
                "h",
                &["--header", "X-Api-Key:hunter2", "--pass", "x"].map(str::to_owned)
            ),
            [
                "--header",
                "X-Api-Key:${H_X_API_KEY}",
                "--pass",
                "${H_PASS}"
            ]
        );
        assert_eq!(
            secrets.kept(),
            [
                "upstreams.gh.env.REGION",
                "upstreams.gh.args[4] (port)",
                "upstreams.s.url (x)",
                "upstreams.d.env.B_KEY"
            ]
        );
        let references: Vec<_> = secrets.all().filter(|it| !it.was_written_out).collect();
        assert_eq!(references.len(), 1);
        assert_eq!(references[0].variable, "MINE");
    }

    #[test]
    fn all_that_stays_in_plain_text_is_told() {
        let mut secrets = Secrets::default();
        let words = [
            "-c",
            "export API_KEY=hunter2; x --token 'hunter3'",
            "https://h/?token=hunter2&u=hunter3",
            "https://h/#tok=hunter2",
            "run",
            "--token=hunter2",
        ];
        let written = secrets.arguments("s", &words.map(str::to_owned));
        secrets.url("u", "https://h/mcp?api_key=hunter2#tok=hunter3");
        let told = secrets.kept().join(", ");
        for place in ["s.args[1] (c)", "s.args[2]", "s.args[3]", "u.url (tok)"] {
            let has_secret = place.ends_with("url (tok)") || {
                let at: usize = place[7..8].parse().unwrap();
                written[at].contains("hunter")
            };
            let is_told = told.contains(&format!("upstreams.{place}"));
            assert_eq!(is_told, has_secret, "{place}: {told}: {written:?}");
        }
        assert!(
            !told.contains("args[4]") && !told.contains("args[5]"),
            "{told}"
        );
    }
}
