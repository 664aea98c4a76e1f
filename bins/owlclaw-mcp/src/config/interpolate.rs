//! `${NAME}` in values of the file.

use super::Environment;

/// Why a reference cannot be followed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InterpolateError {
    /// The variable is not set.
    #[error("refers to the environment variable `{0}`, which is not set")]
    Missing(String),
    /// The variable is set to something that is not Unicode text.
    #[error("refers to the environment variable `{0}`, which does not hold text")]
    NotText(String),
    /// `${` that is never closed, or with something else than a name in it.
    #[error("has a malformed reference to an environment variable")]
    Malformed,
}

/// The text with each `${NAME}` replaced; `$${` stands for `${` itself. `None` where nothing was
/// replaced and the text stands as it is.
///
/// What a variable holds is not looked at again: its content is data, whatever it looks like.
pub(super) fn interpolate(
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
                if !is_name(name) {
                    return Err(InterpolateError::Malformed);
                }
                let value = environment
                    .get(name)
                    .ok_or_else(|| InterpolateError::Missing(name.to_owned()))?;
                let value = value
                    .to_str()
                    .ok_or_else(|| InterpolateError::NotText(name.to_owned()))?;
                result.push_str(value);
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
        ];
        for (text, expected) in rows {
            assert_eq!(interpolate(text, &environment), expected, "{text:?}");
        }
    }
}
