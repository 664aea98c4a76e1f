//! Headers whose values refer to secrets.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::{collections::BTreeMap, fmt};

/// Looks up what `${NAME}` stands for; `None` if nothing does.
pub type Secrets<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Headers that are the same in each request of a tool, with the secrets they refer to.
#[derive(Clone, Default)]
pub struct FixedHeaders {
    values: HeaderMap,
    /// As written, references unresolved; to be shown.
    written: BTreeMap<String, String>,
    /// Secret values, which must not be repeated to any client.
    secrets: Vec<String>,
}

/// Reason why headers cannot be used. No value is shown, since it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The name is none.
    #[error("`{0}` is not the name of a header")]
    Name(String),
    /// A header that the connection sets, not the author of a tool.
    #[error("the header `{0}` is set by the connection and cannot be configured")]
    OfConnection(String),
    /// A variable that it refers to is not set.
    #[error(
        "the header `{header}` refers to the environment variable `{variable}`, which is not set"
    )]
    MissingSecret {
        /// The header.
        header: String,
        /// The variable.
        variable: String,
    },
    /// A reference is not closed, or its name is none.
    #[error("the header `{0}` has a malformed reference to an environment variable")]
    Reference(String),
    /// The value has a line break or other control characters, or is no text.
    #[error("the value of the header `{0}` has characters that no header can have")]
    Value(String),
    /// A secret stands in the file itself.
    #[error("the header `{0}` is a secret and must refer to an environment variable: `${{NAME}}`")]
    PlainSecret(String),
}

/// Values this short are likely to be part of something else by chance.
const SHORTEST_SECRET: usize = 6;

/// Placeholder for a secret that was taken out of a text.
const MASK: &str = "***";

impl FixedHeaders {
    /// Headers by name, each `${NAME}` in their values replaced by what `secrets` says.
    ///
    /// # Errors
    ///
    /// [`HeaderError`] for the first that cannot be used, an unset variable included.
    pub fn resolve<'a>(
        headers: impl IntoIterator<Item = (&'a str, &'a str)>,
        secrets: Secrets<'_>,
    ) -> Result<Self, HeaderError> {
        let mut resolved = Self::default();
        for (name, written) in headers {
            let header: HeaderName = name
                .trim()
                .parse()
                .map_err(|_| HeaderError::Name(name.to_owned()))?;
            if is_of_connection(&header) {
                return Err(HeaderError::OfConnection(header.to_string()));
            }
            let value = resolved.value(header.as_str(), written, secrets)?;
            let is_reference = written.contains("${");
            if is_secret(&header) && !is_reference {
                return Err(HeaderError::PlainSecret(header.to_string()));
            }
            let mut value =
                HeaderValue::try_from(value).map_err(|_| HeaderError::Value(header.to_string()))?;
            value.set_sensitive(is_reference);
            resolved
                .written
                .insert(header.to_string(), written.to_owned());
            resolved.values.insert(header, value);
        }
        Ok(resolved)
    }

    /// Headers to be sent. Values that refer to secrets are marked as sensitive.
    pub fn values(&self) -> &HeaderMap {
        &self.values
    }

    /// Headers to be shown: each `${NAME}` as it is written.
    pub fn written(&self) -> &BTreeMap<String, String> {
        &self.written
    }

    /// `text` without the secrets, should a service have repeated them, as they are or as JSON may
    /// write them.
    pub(crate) fn masked(&self, text: String) -> String {
        match self.without_secrets(text.as_bytes()) {
            // A secret is text, and what is left of a text without texts is one.
            Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            None => text,
        }
    }

    /// The same for what may be no text; `None` if there is nothing to take out.
    pub(crate) fn without_secrets(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut begins = [false; 256];
        for first in self.secrets.iter().filter_map(|it| it.bytes().next()) {
            begins[usize::from(first)] = true;
        }
        begins[usize::from(b'\\')] |= !self.secrets.is_empty();
        let (mut kept, mut copied, mut at) = (Vec::new(), 0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            if !begins[usize::from(rest[0])] {
                at += 1;
                continue;
            }
            // One secret may be the beginning of another.
            let longest = self
                .secrets
                .iter()
                .filter_map(|it| repeated(it, rest))
                .max();
            match longest {
                Some(length) => {
                    kept.extend_from_slice(&bytes[copied..at]);
                    kept.extend_from_slice(MASK.as_bytes());
                    at += length;
                    copied = at;
                }
                // The second one does not begin anything.
                None if rest.starts_with(br"\\") => at += 2,
                None => at += 1,
            }
        }
        (copied != 0).then(|| {
            kept.extend_from_slice(&bytes[copied..]);
            kept
        })
    }

    fn value(
        &mut self,
        header: &str,
        written: &str,
        secrets: Secrets<'_>,
    ) -> Result<String, HeaderError> {
        let mut value = String::new();
        let mut rest = written;
        while let Some(at) = rest.find("${") {
            value.push_str(&rest[..at]);
            let malformed = || HeaderError::Reference(header.to_owned());
            let (name, after) = rest[at + 2..].split_once('}').ok_or_else(malformed)?;
            if !is_variable(name) {
                return Err(malformed());
            }
            let secret = secrets(name).ok_or_else(|| HeaderError::MissingSecret {
                header: header.to_owned(),
                variable: name.to_owned(),
            })?;
            value.push_str(&secret);
            if SHORTEST_SECRET <= secret.len() {
                self.secrets.push(secret);
            }
            rest = after;
        }
        value.push_str(rest);
        Ok(value)
    }
}

impl fmt::Debug for FixedHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(&self.written).finish()
    }
}

/// Length of `secret` at the beginning of `bytes`, as it is or as in a text of JSON.
fn repeated(secret: &str, bytes: &[u8]) -> Option<usize> {
    if bytes.starts_with(secret.as_bytes()) {
        return Some(secret.len());
    }
    let mut at = 0;
    for c in secret.chars() {
        let rest = &bytes[at..];
        let (mut plain, mut wide) = ([0; 4], [0; 2]);
        let plain = c.encode_utf8(&mut plain).as_bytes();
        at += match rest {
            [b'\\', b'u', ..] => escaped(c.encode_utf16(&mut wide), rest)?,
            [b'\\', second @ (b'"' | b'\\' | b'/'), ..] if plain == [*second] => 2,
            [b'\\', b't', ..] if c == '\t' => 2,
            _ if c != '\\' && rest.starts_with(plain) => plain.len(),
            _ => return None,
        };
    }
    Some(at)
}

/// Length of these code units at the beginning of `bytes`, each as `\u` and four digits.
fn escaped(units: &[u16], bytes: &[u8]) -> Option<usize> {
    const LENGTH: usize = 6;
    for (index, unit) in units.iter().enumerate() {
        let digits = bytes
            .get(LENGTH * index..)?
            .strip_prefix(br"\u")?
            .get(..4)?;
        let digits = std::str::from_utf8(digits).ok()?;
        if u16::from_str_radix(digits, 16).ok()? != *unit {
            return None;
        }
    }
    Some(LENGTH * units.len())
}

fn is_variable(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.bytes().next().is_some_and(|it| !it.is_ascii_digit());
    begins && name.bytes().all(legal)
}

/// Returns true for a header that decides where a message ends, or where it is sent.
pub(crate) fn is_of_connection(name: &HeaderName) -> bool {
    const NAMES: [&str; 13] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "accept-encoding",
        "x-request-id",
    ];
    NAMES.contains(&name.as_str())
}

/// The names that OwlClaw takes for those of secrets, and a few more of the kind.
fn is_secret(name: &HeaderName) -> bool {
    const NAMES: [&str; 9] = [
        "authorization",
        "cookie",
        "token",
        "x-api-key",
        "x-auth-token",
        "api-key",
        "apikey",
        "secret",
        "password",
    ];
    NAMES.contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(name: &str) -> Option<String> {
        match name {
            "TOKEN" => Some("s3cret-value".to_owned()),
            "SHORT" => Some("ab".to_owned()),
            "BROKEN" => Some("a\nb".to_owned()),
            _ => None,
        }
    }

    #[test]
    fn references_are_followed_and_never_shown() {
        let headers = [
            ("Authorization", "Bearer ${TOKEN}"),
            ("X-Both", "${SHORT}-${TOKEN}"),
            ("Accept", "text/plain"),
        ];
        let headers = FixedHeaders::resolve(headers, &secrets).unwrap();
        assert_eq!(headers.values()["authorization"], "Bearer s3cret-value");
        assert_eq!(headers.values()["x-both"], "ab-s3cret-value");
        assert!(headers.values()["authorization"].is_sensitive());
        assert!(!headers.values()["accept"].is_sensitive());
        assert_eq!(headers.written()["authorization"], "Bearer ${TOKEN}");
        for shown in [format!("{headers:?}"), format!("{:?}", headers.values())] {
            assert!(!shown.contains("s3cret"), "{shown}");
        }
        let repeated = "you sent s3cret-value, abc".to_owned();
        assert_eq!(headers.masked(repeated), "you sent ***, abc");
    }

    #[test]
    fn what_cannot_be_sent_is_refused_without_telling_values() {
        let owned = str::to_owned;
        let rows = [
            ("a b", "x", HeaderError::Name(owned("a b"))),
            ("Host", "x", HeaderError::OfConnection(owned("host"))),
            (
                "Content-Length",
                "1",
                HeaderError::OfConnection(owned("content-length")),
            ),
            (
                "X-Key",
                "${NONE}",
                HeaderError::MissingSecret {
                    header: owned("x-key"),
                    variable: owned("NONE"),
                },
            ),
            ("X-Key", "${TOKEN", HeaderError::Reference(owned("x-key"))),
            ("X-Key", "${1}", HeaderError::Reference(owned("x-key"))),
            ("X-Key", "${BROKEN}", HeaderError::Value(owned("x-key"))),
            (
                "Authorization",
                "Bearer abc",
                HeaderError::PlainSecret(owned("authorization")),
            ),
        ];
        for (name, value, error) in rows {
            let refused = FixedHeaders::resolve([(name, value)], &secrets).unwrap_err();
            assert_eq!(refused, error);
        }
    }

    #[test]
    fn secrets_are_found_however_they_are_written() {
        let secrets = |name: &str| match name {
            "PART" => Some("abc/def".to_owned()),
            "ALL" => Some("abc/def/\"ghi\\é".to_owned()),
            _ => None,
        };
        let written = [("X-A", "${PART}"), ("X-B", "${ALL}")];
        let headers = FixedHeaders::resolve(written, &secrets).unwrap();
        for (said, expected) in [
            ("you sent abc/def/\"ghi\\é.", "you sent ***."),
            ("you sent abc/def.", "you sent ***."),
            // As in texts of JSON, by the ways in which libraries write them.
            (r#"{"a": "abc/def/\"ghi\\é!"}"#, r#"{"a": "***!"}"#),
            (r#"{"a": "abc\/def\/\"ghi\\é!"}"#, r#"{"a": "***!"}"#),
            (r#"{"a": "abc/def/\"ghi\\\u00e9!"}"#, r#"{"a": "***!"}"#),
            (r#"{"a": "abc\/def\/\"ghi\\\u00E9!"}"#, r#"{"a": "***!"}"#),
            (r#"{"a": "\u0061bc\/d\u0065f"}"#, r#"{"a": "***"}"#),
        ] {
            assert_eq!(headers.masked(said.to_owned()), expected);
        }
    }
}
