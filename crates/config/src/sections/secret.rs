//! Texts that nothing shows.

use std::borrow::Cow;
use std::fmt;

use http_client::BadUrl;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::Environment;

/// A text that must not be seen: as it was written, with references to the environment that are
/// followed where it is used and no sooner.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

/// Stands for a secret that was written out.
pub(crate) const HIDDEN: &str = "(secret)";

impl Secret {
    /// A secret as a file would have it.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Secret itself; `None` if it refers to a variable that is not set, or if it is empty once
    /// references are resolved.
    pub fn reveal(&self, environment: &Environment) -> Option<String> {
        environment
            .resolve(&self.0)
            .filter(|text| !text.trim().is_empty())
    }

    /// Returns true if it holds more than references to values stored elsewhere.
    pub(crate) fn is_written_out(&self) -> bool {
        self.shown() == HIDDEN
    }

    /// Returns true if it begins with one of these, as far as it is written out.
    pub(crate) fn may_begin_with(&self, beginnings: &[&str]) -> bool {
        let written = self.0.split("${").next().unwrap_or_default();
        beginnings
            .iter()
            .any(|it| written.starts_with(it) || (it.starts_with(written) && written != self.0))
    }

    /// Reason why it cannot be a URL with one of these schemes, as far as it is written out.
    pub(crate) fn url_fault(&self, schemes: &[&str]) -> Option<BadUrl> {
        url_fault(&self.0, schemes)
    }

    /// Reason why it holds no identities of age, if it is written out.
    pub(crate) fn identity_fault(&self) -> Option<age_format::IdentityError> {
        match self.0.contains("${") {
            true => None,
            false => age_format::identities(&self.0).err(),
        }
    }

    /// Returns true if it is the address of a database with a port that is no number from 1 to 65535, as far
    /// as it is written out. Several hosts may be named, with commas between.
    pub(crate) fn has_bad_port(&self) -> bool {
        let text = filled(&self.0);
        let rest = text.split_once("://").map_or("", |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let hosts = authority.rsplit('@').next().unwrap_or_default();
        let is_bad = |host: &str| match host.rsplit_once(':') {
            Some((_, port)) if !port.is_empty() && !port.contains(']') => {
                !port.parse::<u16>().is_ok_and(|port| 0 < port)
            }
            _ => false,
        };
        hosts.split(',').any(is_bad)
    }

    /// Text that may be shown: a reference, or a placeholder for anything else.
    fn shown(&self) -> &str {
        let name = self
            .0
            .strip_prefix("${")
            .and_then(|it| it.strip_suffix('}'));
        let is_reference = name.is_some_and(|name| {
            // The place of a file is no secret, nor is a program; a default may be one.
            let is_place = ["file:", "cmd:"].iter().any(|it| name.starts_with(it));
            let name = ["env:", "vault:", "credential:"]
                .iter()
                .find_map(|it| name.strip_prefix(it))
                .unwrap_or(name);
            let mut bytes = name.bytes();
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
            !name.contains("${") && (is_place || bytes.all(is_plain))
        });
        match is_reference {
            true => &self.0,
            false => HIDDEN,
        }
    }
}

/// Reason why `text` cannot be a URL with one of these schemes. A reference in it stands for anything, so that
/// nothing is said of a text whose scheme comes from one.
pub(crate) fn url_fault(text: &str, schemes: &[&str]) -> Option<BadUrl> {
    let scheme = text.split("://").next().unwrap_or_default();
    match scheme.contains("${") {
        true => None,
        false => http_client::parse_url(&filled(text), schemes).err(),
    }
}

/// The text with `1` in place of each reference, which may be a host, a port, or a part of a path.
fn filled(text: &str) -> String {
    let mut parts = text.split("${");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        filled.push('1');
        filled.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    filled
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.shown())
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

impl JsonSchema for Secret {
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "secret" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_judged_as_far_as_it_is_written_out() {
        let fault = |text| url_fault(text, &["http", "https"]);
        for text in [
            "${URL}",
            "${BASE}:99999",
            "http${S}://h",
            "http://${H}:${P}/",
            "https://h:1/${file:/a}",
        ] {
            assert_eq!(fault(text), None, "{text}");
        }
        for text in [
            "http://h:99999/mcp",
            "http://${H}:99999",
            "https://h:${P}0000000",
        ] {
            assert_eq!(fault(text), Some(BadUrl::Port), "{text}");
        }
        assert_eq!(fault("http://u:${P}@h"), Some(BadUrl::Credentials));
        for (text, expected) in [
            ("postgres://u:${P}@h/d", false),
            (
                "postgres://u:${file:/run/p}@h:5432,[::1]:5433,[::1]/d",
                false,
            ),
            ("postgres://u:p:w@h:${PORT}/d", false),
            ("postgres://h:5432,h2:65536/d", true),
            ("postgres://u:${P}@h:99999/d", true),
            ("postgres://h:no", true),
        ] {
            assert_eq!(Secret::new(text).has_bad_port(), expected, "{text}");
        }
    }

    #[test]
    fn a_reference_is_shown_and_a_secret_is_not() {
        let environment = Environment::from([("TOKEN", "hunter2"), ("EMPTY", "")]);
        let rows = [
            ("${TOKEN}", "${TOKEN}", Some("hunter2")),
            ("hunter2", HIDDEN, Some("hunter2")),
            ("a:${TOKEN}", HIDDEN, Some("a:hunter2")),
            ("${TOKEN}${TOKEN}", HIDDEN, Some("hunter2hunter2")),
            ("${EMPTY}", "${EMPTY}", None),
            ("${MISSING}", "${MISSING}", None),
            ("${file:/no/such}", "${file:/no/such}", None),
            ("${file:/a}${x}", HIDDEN, None),
        ];
        for (text, shown, revealed) in rows {
            let secret = Secret::new(text);
            assert_eq!(format!("{secret:?}"), shown);
            assert_eq!(serde_json::to_value(&secret).unwrap(), shown);
            assert_eq!(secret.reveal(&environment).as_deref(), revealed, "{text}");
        }
    }
}
