//! References in values of the file: `${NAME}`, `${env:NAME}`, `${NAME:-default}`, `${vault:NAME}`, `${file:PATH}` and
//! `${cmd:PROGRAM ARGUMENT}`.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::Environment;
use crate::environment::absolute;
use crate::nearest::nearest;

/// Prefix of a reference to the content of a file.
pub(crate) const FILE: &str = "file:";
/// Prefix of a reference to an environment variable.
const ENV: &str = "env:";
/// Prefix of a reference to a secret of the vault.
const VAULT: &str = "vault:";
/// Prefix of a reference to the output of a program.
const CMD: &str = "cmd:";
/// Prefix of a reference to a credential of the client that calls.
const CREDENTIAL: &str = "credential:";
/// The longest name of such a credential.
const MAX_CREDENTIAL: usize = 64;
/// Separator between the name of a variable and what stands for it if it is not set, or empty.
const DEFAULT: &str = ":-";
/// A longer file is no value.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Reason why a reference cannot be resolved.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterpolateError {
    /// The variable is not set.
    #[error("refers to the environment variable `{0}`, which is not set")]
    Missing(String),
    /// The variable is set to something that is not Unicode text.
    #[error("refers to the environment variable `{0}`, which does not hold text")]
    NotText(String),
    /// Neither the environment nor the vault has it.
    #[error(
        "refers to the secret `{name}`, which is neither in the environment nor in the vault: {why}"
    )]
    NotInVault {
        /// Name of the secret.
        name: String,
        /// Description of the failure.
        why: String,
    },
    /// The environment does not have it, and the vault cannot be opened.
    #[error(
        "refers to the secret `{name}`, which is not in the environment, and the vault cannot be used: {why}"
    )]
    NoVault {
        /// Name of the secret.
        name: String,
        /// Description of the failure.
        why: String,
    },
    /// The file cannot be read.
    #[error("refers to the file `{}`, which cannot be read: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Description of the failure.
        why: String,
    },
    /// The program is not run, or fails.
    #[error("refers to the output of the program `{program}`: {why}")]
    Command {
        /// The program, without its arguments.
        program: String,
        /// Description of the failure.
        why: String,
    },
    /// A credential of a client is nobody's where no client calls.
    #[error("refers to the credential `{0}` of a client, which stands for nothing here")]
    Credential(String),
    /// A reference of a kind that does not exist.
    #[error("has a reference of the unknown kind `{0}`")]
    Kind(String),
    /// `${` that is never closed, or with something else than a reference in it.
    #[error(
        "has a malformed reference: it is `${{NAME}}`, `${{NAME:-default}}`, `${{env:NAME}}`, `${{vault:NAME}}`, `${{file:PATH}}` or `${{cmd:PROGRAM}}`"
    )]
    Malformed,
}

impl InterpolateError {
    /// Advice, where the message does not give it.
    pub(crate) fn hint(&self) -> Option<String> {
        match self {
            Self::Missing(name) => Some(format!("set it, or write `${{{name}:-default}}`")),
            Self::NotText(_) | Self::NoVault { .. } => None,
            Self::NotInVault { name, .. } => Some(format!("owlclaw-mcp vault set {name}")),
            Self::Unreadable { .. } => Some(
                "a path that begins nowhere begins at the directory of the configuration"
                    .to_owned(),
            ),
            Self::Command { .. } => None,
            Self::Credential(_) => Some(
                "it is for `headers` and `env` of upstreams with `credentials: per-client`"
                    .to_owned(),
            ),
            Self::Kind(kind) => {
                let kinds = ["env", "vault", "file", "cmd", "credential"];
                Some(match nearest(kind, kinds) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => format!("kinds are `{}`", kinds.join("`, `")),
                })
            }
            Self::Malformed => Some("write `$${` where `${` refers to nothing".to_owned()),
        }
    }
}

/// A text with its references replaced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Replaced {
    pub(crate) text: String,
    /// The references, and the values that stand for them.
    pub(crate) uses: Vec<(Reference, vault::Secret)>,
}

/// A reference of the configuration, and the source of its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reference {
    /// The reference without its default, such as `vault:GITHUB_TOKEN`.
    pub reference: String,
    /// Source of the value.
    pub source: ReferenceSource,
}

/// Source of the value of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferenceSource {
    /// An environment variable.
    Environment,
    /// The vault.
    Vault,
    /// A file.
    File,
    /// The output of a program.
    Command,
    /// The default in the reference itself.
    Default,
}

impl fmt::Display for ReferenceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "the environment",
            Self::Vault => "the vault",
            Self::File => "the file",
            Self::Command => "the program",
            Self::Default => "its default",
        })
    }
}

/// The text with each reference replaced; `$${` stands for `${` itself. `None` where nothing was
/// replaced and the text stands as it is.
///
/// Values are not looked at again: their content is data, whatever it looks like.
pub(crate) fn interpolate(
    text: &str,
    environment: &Environment,
) -> Result<Option<Replaced>, InterpolateError> {
    let Some(first) = text.find("${") else {
        return Ok(None);
    };
    let mut result = String::new();
    let mut uses = Vec::new();
    let (mut literal, mut rest) = text.split_at(first);
    loop {
        let body = &rest["${".len()..];
        match literal.strip_suffix('$') {
            Some(escaped) => {
                result.push_str(escaped);
                result.push_str("${");
                rest = body;
            }
            None => {
                result.push_str(literal);
                let (name, after) = body.split_once('}').ok_or(InterpolateError::Malformed)?;
                let (source, value) = value(name, environment)?;
                result.push_str(value.reveal());
                let reference = match name.split_once(DEFAULT) {
                    Some((name, _)) if !name.starts_with(CMD) => name,
                    _ => name,
                };
                let reference = Reference {
                    reference: reference.to_owned(),
                    source,
                };
                uses.push((reference, value));
                rest = after;
            }
        }
        match rest.find("${") {
            Some(next) => (literal, rest) = rest.split_at(next),
            None => {
                result.push_str(rest);
                return Ok(Some(Replaced { text: result, uses }));
            }
        }
    }
}

/// Value of what stands between the braces, and its source.
fn value(
    reference: &str,
    environment: &Environment,
) -> Result<(ReferenceSource, vault::Secret), InterpolateError> {
    if reference.contains("${") {
        return Err(InterpolateError::Malformed);
    }
    if let Some(path) = reference.strip_prefix(FILE) {
        let content = content(Path::new(path))?;
        return Ok((ReferenceSource::File, vault::Secret::new(content)));
    }
    if let Some(name) = reference.strip_prefix(CREDENTIAL) {
        return Err(match is_credential(name) {
            true => InterpolateError::Credential(name.to_owned()),
            false => InterpolateError::Malformed,
        });
    }
    if let Some(words) = reference.strip_prefix(CMD) {
        let printed = environment.output_of(words)?;
        return Ok((ReferenceSource::Command, printed));
    }
    if let Some(name) = reference.strip_prefix(VAULT) {
        let name: vault::Name = name.parse().map_err(|_| InterpolateError::Malformed)?;
        return in_environment_or_vault(name.as_str(), environment);
    }
    let (name, default) = match reference.split_once(DEFAULT) {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let name = name.strip_prefix(ENV).unwrap_or(name);
    if let Some((kind, _)) = name.split_once(':')
        && is_name(kind)
    {
        return Err(InterpolateError::Kind(kind.to_owned()));
    }
    match (variable(name, environment), default) {
        (Ok(value), None) => Ok((ReferenceSource::Environment, vault::Secret::new(value))),
        (Ok(value), Some(_)) if !value.is_empty() => {
            Ok((ReferenceSource::Environment, vault::Secret::new(value)))
        }
        (Ok(_) | Err(InterpolateError::Missing(_)), Some(default)) => {
            Ok((ReferenceSource::Default, vault::Secret::new(default)))
        }
        (Err(error), _) => Err(error),
    }
}

/// The secret of this name: of the environment, if it has it, and otherwise of the vault.
fn in_environment_or_vault(
    name: &str,
    environment: &Environment,
) -> Result<(ReferenceSource, vault::Secret), InterpolateError> {
    match environment.get(name).filter(|it| !it.is_empty()) {
        Some(value) => match value.to_str() {
            Some(value) => Ok((ReferenceSource::Environment, vault::Secret::new(value))),
            None => Err(InterpolateError::NotText(name.to_owned())),
        },
        None => Ok((ReferenceSource::Vault, environment.in_vault(name)?)),
    }
}

fn variable<'e>(name: &str, environment: &'e Environment) -> Result<&'e str, InterpolateError> {
    if !is_name(name) {
        return Err(InterpolateError::Malformed);
    }
    let value = environment
        .get(name)
        .ok_or_else(|| InterpolateError::Missing(name.to_owned()))?;
    value
        .to_str()
        .ok_or_else(|| InterpolateError::NotText(name.to_owned()))
}

/// Content of a file, without its last line break: secrets are mounted with one.
fn content(path: &Path) -> Result<String, InterpolateError> {
    let unreadable = |why: String| InterpolateError::Unreadable {
        path: path.to_owned(),
        why,
    };
    if !path.is_absolute() {
        return Err(InterpolateError::Malformed);
    }
    let mut text = regular_file::read_text(path, MAX_FILE_BYTES)
        .map_err(|error| unreadable(error.to_string()))?;
    let end = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(end);
    match text.trim().is_empty() {
        // Nobody's secret, but that of a program that has not written it.
        true => Err(unreadable("it is empty".to_owned())),
        false => Ok(text),
    }
}

/// Part of a text that credentials of a client stand in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text, with its other references replaced.
    Text(String),
    /// Name of a credential of the client that calls.
    Credential(String),
}

/// The text as parts of which each is a `${credential:NAME}` or has none.
pub(crate) fn template(
    text: &str,
    environment: &Environment,
) -> Result<Vec<TemplatePart>, InterpolateError> {
    let replaced = |text: &str| {
        let replaced = interpolate(text, environment)?;
        let text = replaced.map_or_else(|| text.to_owned(), |it| it.text);
        Ok::<_, InterpolateError>(TemplatePart::Text(text))
    };
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, name, after)) = first_credential(rest) {
        if !before.is_empty() {
            parts.push(replaced(before)?);
        }
        parts.push(TemplatePart::Credential(name.to_owned()));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(replaced(rest)?);
    }
    Ok(parts)
}

/// The text around the first `${credential:NAME}` in it, and the name.
pub(crate) fn first_credential(text: &str) -> Option<(&str, &str, &str)> {
    const BEGINNING: &str = "${credential:";
    let mut places = text.match_indices(BEGINNING);
    places.find_map(|(at, _)| {
        let (name, after) = text[at + BEGINNING.len()..].split_once('}')?;
        let before = &text[..at];
        (!before.ends_with('$') && is_credential(name)).then_some((before, name, after))
    })
}

/// The text with each `${file:PATH}` that begins nowhere beginning at `base`.
pub(crate) fn with_absolute_files(text: &str, base: &Path) -> Option<String> {
    const BEGINNING: &str = "${file:";
    text.find(BEGINNING)?;
    let mut parts = text.split(BEGINNING);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_escaped = result.ends_with('$');
        result.push_str(BEGINNING);
        match part.split_once('}').filter(|_| !is_escaped) {
            Some((path, rest)) => {
                result += &absolute(base, path.trim()).display().to_string();
                result.push('}');
                result.push_str(rest);
            }
            None => result.push_str(part),
        }
    }
    Some(result)
}

/// References to secrets of the vault in a text, whether they can be resolved or not.
pub fn vault_references(text: &str) -> impl Iterator<Item = Reference> {
    let places = text.match_indices("${vault:");
    places.filter_map(|(at, _)| {
        let (name, _) = text[at + 2..].split_once('}')?;
        (!text[..at].ends_with('$')).then(|| Reference {
            reference: name.to_owned(),
            source: ReferenceSource::Vault,
        })
    })
}

fn is_credential(name: &str) -> bool {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !name.is_empty() && name.len() <= MAX_CREDENTIAL && name.bytes().all(is_legal)
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name
            .bytes()
            .next()
            .is_some_and(|first| !first.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_once() {
        let environment = Environment::from([("A", "one"), ("_B2", "${A}"), ("EMPTY", "")]);
        let some = |text: &str| Ok(Some(text.to_owned()));
        let interpolate = |text: &str, environment: &Environment| {
            interpolate(text, environment).map(|it| it.map(|it| it.text))
        };
        let rows = [
            ("plain $A {A} $", Ok(None)),
            ("${A}", some("one")),
            ("x${A}y${A}z", some("xoneyonez")),
            ("${_B2}", some("${A}")),
            ("${EMPTY}", some("")),
            ("$${A}", some("${A}")),
            ("$${A}${A}", some("${A}one")),
            ("é${A}é", some("éoneé")),
            (
                "${MISSING}",
                Err(InterpolateError::Missing("MISSING".into())),
            ),
            ("${A", Err(InterpolateError::Malformed)),
            ("${}", Err(InterpolateError::Malformed)),
            ("${A-x}", Err(InterpolateError::Malformed)),
            ("${2A}", Err(InterpolateError::Malformed)),
            ("${ A }", Err(InterpolateError::Malformed)),
            ("${file:relative}", Err(InterpolateError::Malformed)),
            ("${A:-two}${MISSING:-two}${EMPTY:-two}", some("onetwotwo")),
            ("${MISSING:-}|${MISSING:-http://h:1/}", some("|http://h:1/")),
            ("${env:A}${env:MISSING:-two}", some("onetwo")),
            ("${MISSING:-${A}}", Err(InterpolateError::Malformed)),
            ("${valt:A}", Err(InterpolateError::Kind("valt".into()))),
            ("${vault:A}", some("one")),
            ("${vault:A:-two}", Err(InterpolateError::Malformed)),
            (
                "${credential:A}",
                Err(InterpolateError::Credential("A".into())),
            ),
            ("${credential:}", Err(InterpolateError::Malformed)),
        ];
        for (text, expected) in rows {
            assert_eq!(interpolate(text, &environment), expected, "{text:?}");
        }
    }

    #[test]
    fn credentials_of_clients_part_a_text() {
        let environment = Environment::from([("A", "one")]);
        let text = |text: &str| TemplatePart::Text(text.to_owned());
        let own = |name: &str| TemplatePart::Credential(name.to_owned());
        let rows = [
            ("", Some(vec![])),
            (
                "Bearer ${credential:token}",
                Some(vec![text("Bearer "), own("token")]),
            ),
            (
                "${credential:a}${A}:${credential:b-2}$${credential:c}",
                Some(vec![
                    own("a"),
                    text("one:"),
                    own("b-2"),
                    text("${credential:c}"),
                ]),
            ),
            ("${credential:a}${MISSING}", None),
            ("${credential:a b}", None),
            ("${credential:a", None),
        ];
        for (written, expected) in rows {
            assert_eq!(template(written, &environment).ok(), expected, "{written}");
        }
    }

    #[test]
    fn files_stand_for_what_is_in_them() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, content: &[u8]| {
            std::fs::write(directory.path().join(name), content).unwrap();
        };
        write("password", b"hunter2\n");
        write("latin", b"caf\xe9");
        write("long", &vec![b'x'; 100_000]);
        let read = |text: &str| {
            let text = with_absolute_files(text, directory.path()).unwrap();
            interpolate(&text, &Environment::default()).map(|it| it.map(|it| it.text))
        };
        assert_eq!(
            read("u:${file:password}@${file:./password}").unwrap(),
            Some("u:hunter2@hunter2".to_owned())
        );
        assert_eq!(
            read("$${file:password}").unwrap(),
            Some("${file:password}".to_owned())
        );
        for (name, expected) in [
            ("absent", "No such file"),
            ("latin", "not UTF-8"),
            ("long", "more than 65536 bytes"),
            (".", "it is a directory"),
        ] {
            let said = read(&format!("${{file:{name}}}")).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        assert_eq!(with_absolute_files("${A}", directory.path()), None);
    }
}
