//! `${NAME}` and `${file:PATH}` in values of the file.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::Environment;
use crate::environment::absolute;

/// Prefix of a reference to the content of a file.
pub(crate) const FILE: &str = "file:";
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
    /// The file cannot be read.
    #[error("refers to the file `{}`, which cannot be read: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Description of the failure.
        why: String,
    },
    /// `${` that is never closed, or with something else than a name in it.
    #[error("has a malformed reference: it is `${{NAME}}` or `${{file:PATH}}`")]
    Malformed,
}

impl InterpolateError {
    /// Advice, where the message does not give it.
    pub(crate) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing(_) | Self::NotText(_) => None,
            Self::Unreadable { .. } => {
                Some("a path that begins nowhere begins at the directory of the configuration")
            }
            Self::Malformed => Some("write `$${` where `${` refers to nothing"),
        }
    }
}

/// The text with each `${NAME}` replaced; `$${` stands for `${` itself. `None` where nothing was
/// replaced and the text stands as it is.
///
/// What a variable holds is not looked at again: its content is data, whatever it looks like.
pub(crate) fn interpolate(
    text: &str,
    environment: &Environment,
) -> Result<Option<String>, InterpolateError> {
    let Some(first) = text.find("${") else {
        return Ok(None);
    };
    let mut result = String::new();
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
                match name.strip_prefix(FILE) {
                    Some(path) => result.push_str(&content(Path::new(path))?),
                    None => result.push_str(variable(name, environment)?),
                }
                rest = after;
            }
        }
        match rest.find("${") {
            Some(next) => (literal, rest) = rest.split_at(next),
            None => {
                result.push_str(rest);
                return Ok(Some(result));
            }
        }
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
    let mut text = String::new();
    let read = |file: File| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    let length = File::open(path)
        .and_then(read)
        .map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => unreadable("it is not UTF-8".to_owned()),
            _ => unreadable(error.to_string()),
        })?;
    if length as u64 > MAX_FILE_BYTES {
        return Err(unreadable(format!(
            "it has more than {MAX_FILE_BYTES} bytes"
        )));
    }
    let end = text.trim_end_matches(['\r', '\n']).len();
    text.truncate(end);
    Ok(text)
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
        ];
        for (text, expected) in rows {
            assert_eq!(interpolate(text, &environment), expected, "{text:?}");
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
            interpolate(&text, &Environment::default())
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
            (".", "Is a directory"),
        ] {
            let said = read(&format!("${{file:{name}}}")).unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        assert_eq!(with_absolute_files("${A}", directory.path()), None);
    }
}
