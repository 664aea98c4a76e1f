//! One text to one value: the same rules for the file, the environment and the command line.

use std::path::{Path, PathBuf};

use crate::environment::absolute;

use figment::value::Value;
use governance::{Micros, ParseMicrosError, ZonedWindow};

use crate::host;
use crate::nearest::nearest;
use crate::reading::shape::{Format, Leaf};

/// Reason why a text does not fit; completes the sentence that begins with the key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// "must be …"
    pub(crate) expected: String,
    pub(crate) hint: Option<String>,
}

impl Misfit {
    fn new(expected: impl Into<String>) -> Self {
        Self {
            expected: expected.into(),
            hint: None,
        }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

impl Leaf {
    /// "an integer from 1 to 10", without knowing any value.
    pub(crate) fn describe(&self) -> String {
        match self {
            Leaf::Boolean => "`true` or `false`".into(),
            Leaf::Integer { min, max } | Leaf::Measure { min, max, .. } => {
                format!("an integer from {min} to {max}")
            }
            Leaf::Amount { .. } => "an amount such as 12.50".into(),
            Leaf::Share => "a share from 0 to 1, such as 0.1".into(),
            Leaf::Choice(names) => match names.as_slice() {
                [only] => format!("`{only}`"),
                names => format!("one of `{}`", names.join("`, `")),
            },
            Leaf::Text(format) => match format {
                Format::Path => "a path".into(),
                Format::Program => "the path or name of a program".into(),
                Format::Application => "`module[:attribute]` or `path.py[:attribute]`".into(),
                Format::Host => "an IP address or `localhost`".into(),
                Format::Authority => "a host name, optionally with a port".into(),
                Format::Origin => "an origin such as `https://app.example.com`".into(),
                Format::OriginOrAny => "`*` or an origin such as `https://app.example.com`".into(),
                Format::Token => "a name without spaces or separators".into(),
                Format::Currency => "three capital letters such as `USD`".into(),
                Format::Pattern => "a pattern that is not empty".into(),
                Format::Window => "days, hours and a time zone".into(),
                Format::Pointer => "a JSON Pointer such as `/customer/name`".into(),
                Format::Prose | Format::Word | Format::Secret => "a text".into(),
                Format::Name => "a text that is not empty".into(),
            },
        }
    }

    /// `base` is where relative paths begin; it is absolute.
    pub(crate) fn coerce(&self, text: &str, base: &Path) -> Result<Value, Misfit> {
        let misfit = || Misfit::new(format!("must be {}", self.describe()));
        match self {
            Leaf::Boolean => match text {
                "true" | "True" | "TRUE" => Ok(true.into()),
                "false" | "False" | "FALSE" => Ok(false.into()),
                _ => Err(match text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "y" | "1" => misfit().hint("write `true`"),
                    "no" | "off" | "n" | "0" => misfit().hint("write `false`"),
                    _ => misfit(),
                }),
            },
            Leaf::Integer { min, max } => {
                let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let number = is_number.then(|| text.parse::<u64>().ok()).flatten();
                match number.filter(|number| (min..=max).contains(&number)) {
                    Some(number) => Ok(number.into()),
                    None if text == "0" => Err(misfit().hint("leave the key out for its default")),
                    None => Err(misfit()),
                }
            }
            Leaf::Measure { unit, min, max } => {
                match unit.read(text).filter(|it| (min..=max).contains(&it)) {
                    Some(number) => Ok(number.into()),
                    None if text == "0" => Err(misfit().hint("leave the key out for its default")),
                    None if text.parse::<i128>().is_ok() => Err(misfit()),
                    None => {
                        let names = unit.suffixes().iter().map(|(name, _)| *name);
                        let names = names.collect::<Vec<_>>().join(", ");
                        let name = unit.name();
                        Err(misfit().hint(format!(
                            "write a whole number of {name}, or one with its unit: {names}"
                        )))
                    }
                }
            }
            Leaf::Amount { is_zero_allowed } => match text.parse() {
                Ok(Micros::ZERO) if !is_zero_allowed => {
                    Err(Misfit::new("must be more than zero")
                        .hint("to forbid calls, use `deny` or `hide`"))
                }
                Ok(amount) => Ok(format!("{amount:#}").into()),
                Err(ParseMicrosError::NotDecimal) => {
                    Err(misfit().hint("write digits with at most one decimal point"))
                }
                Err(error) => Err(misfit().hint(error.to_string())),
            },
            Leaf::Share => match text.parse::<Micros>() {
                Ok(share) if share <= Micros::units(1) => Ok(format!("{share:#}").into()),
                Err(ParseMicrosError::TooFine) => {
                    Err(misfit().hint("write at most six digits after the decimal point"))
                }
                Ok(_) | Err(_) => Err(misfit().hint("0.1 is every tenth, 1 is all")),
            },
            Leaf::Choice(names) => match names.iter().find(|n| n.eq_ignore_ascii_case(text)) {
                Some(name) => Ok(name.clone().into()),
                None if text == "stdout" && names.iter().any(|name| name == "stderr") => {
                    Err(misfit().hint("standard output belongs to the protocol"))
                }
                None if names.iter().any(|name| name == "RS256")
                    && (text.to_ascii_uppercase().starts_with("HS")
                        || text.eq_ignore_ascii_case("none")) =>
                {
                    Err(misfit().hint(
                        "tokens must be signed with a key whose public half is published: whoever can \
                         verify an HS token can make one, and `none` is no signature",
                    ))
                }
                None => Err(match nearest(text, names.iter().map(String::as_str)) {
                    Some(name) if names.len() > 1 => {
                        misfit().hint(format!("did you mean `{name}`?"))
                    }
                    _ => misfit(),
                }),
            },
            Leaf::Text(format) => format.coerce(text, base).ok_or_else(|| match format {
                Format::Origin if text == "*" => {
                    misfit().hint("name each origin: any page could call the server otherwise")
                }
                Format::Origin | Format::OriginOrAny => {
                    misfit().hint("scheme, host and port only: no path, no slash at the end")
                }
                Format::Host => misfit().hint("use 0.0.0.0 or [::] to listen on every address"),
                Format::Window => misfit().hint(match text.parse::<ZonedWindow>() {
                    Err(why) => why.to_string(),
                    Ok(_) => "write `Mon-Fri 09:30-15:00 Asia/Shanghai`".to_owned(),
                }),
                Format::Pointer => misfit().hint("each part begins with `/`; `*` is any element"),
                Format::Name | Format::Pattern | Format::Word | Format::Secret
                    if text.chars().any(char::is_control) =>
                {
                    misfit().hint("it has a line break, a tab or another control character: write it on one line")
                }
                Format::Name | Format::Pattern | Format::Program
                    if text != text.trim() && !text.trim().is_empty() =>
                {
                    misfit().hint("leave out the blanks at its ends")
                }
                _ => misfit(),
            }),
        }
    }
}

impl Format {
    fn coerce(self, text: &str, base: &Path) -> Option<Value> {
        let has_control = text.chars().any(char::is_control);
        match self {
            Format::Prose => return Some(text.into()),
            Format::Word | Format::Secret => return (!has_control).then(|| text.into()),
            _ if has_control || text.trim().is_empty() => return None,
            _ => {}
        }
        match self {
            Format::Path => path_text(absolute(base, text)),
            Format::Program if text.contains(std::path::is_separator) => {
                path_text(absolute(base, text))
            }
            Format::Application => application(text, base),
            Format::Host => host::parse(text).map(|address| address.to_string().into()),
            Format::Authority => is_authority(text).then(|| text.to_ascii_lowercase().into()),
            Format::OriginOrAny if text == "*" => Some(text.into()),
            Format::Origin | Format::OriginOrAny => {
                let (scheme, authority) = text.split_once("://")?;
                let is_origin = matches!(scheme, "http" | "https") && is_authority(authority);
                is_origin.then(|| text.to_ascii_lowercase().into())
            }
            Format::Token => text.bytes().all(is_token_byte).then(|| text.into()),
            Format::Currency => {
                let is_code = text.len() == 3 && text.bytes().all(|b| b.is_ascii_uppercase());
                is_code.then(|| text.into())
            }
            Format::Window => {
                let window: ZonedWindow = text.parse().ok()?;
                Some(window.to_string().into())
            }
            Format::Pointer => text.starts_with('/').then(|| text.into()),
            Format::Prose | Format::Word | Format::Secret => None,
            Format::Program | Format::Pattern | Format::Name => {
                // A space at an end is invisible and matches nothing.
                (text == text.trim()).then(|| text.into())
            }
        }
    }
}

/// Paths come from text and from a base that was checked to be text, so this is never `None`.
fn path_text(path: PathBuf) -> Option<Value> {
    path.into_os_string().into_string().ok().map(Value::from)
}

fn application(text: &str, base: &Path) -> Option<Value> {
    let (place, attribute) = match text.rsplit_once(':') {
        Some((place, attribute)) => (place, Some(attribute)),
        None => (text, None),
    };
    if place.is_empty() || attribute.is_some_and(|name| name.trim().is_empty()) {
        return None;
    }
    let is_file = place.ends_with(".py") || place.contains(std::path::is_separator);
    if !is_file {
        let is_module = place
            .split('.')
            .all(|part| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_'));
        return is_module.then(|| text.into());
    }
    let file = absolute(base, place).into_os_string().into_string().ok()?;
    Some(match attribute {
        Some(attribute) => format!("{file}:{attribute}").into(),
        None => file.into(),
    })
}

/// `host`, `host:port`, `[v6]` or `[v6]:port`.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (text, None),
    };
    let is_port = |port: &str| {
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'))
    };
    let is_host = match host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => is_name(host),
    };
    is_host && port.is_none_or(is_port)
}

/// `tchar` of RFC 9110, section 5.6.2.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(format: Format, text: &str) -> Option<String> {
        let value = Leaf::Text(format)
            .coerce(text, Path::new("/etc/owl"))
            .ok()?;
        Some(value.into_string().expect("a text becomes a text"))
    }

    #[test]
    fn texts_are_checked_by_their_format() {
        use Format::*;
        let rows = [
            (Path, "./skills", Some("/etc/owl/skills")),
            (Path, "/var/./x", Some("/var/x")),
            (Path, " ", None),
            (Program, "python3", Some("python3")),
            (
                Program,
                ".venv/bin/python",
                Some("/etc/owl/.venv/bin/python"),
            ),
            (Application, "shop.main:app", Some("shop.main:app")),
            (Application, "shop:create()", Some("shop:create()")),
            (
                Application,
                "src/app.py:app",
                Some("/etc/owl/src/app.py:app"),
            ),
            (Application, "app.py", Some("/etc/owl/app.py")),
            (Application, "shop main", None),
            (Application, "shop:", None),
            (Application, ":app", None),
            (Host, "localhost", Some("127.0.0.1")),
            (Host, "[::1]", Some("::1")),
            (Host, "example.com", None),
            (
                Authority,
                "MCP.example.com:8443",
                Some("mcp.example.com:8443"),
            ),
            (Authority, "[::1]:80", Some("[::1]:80")),
            (Authority, "[::1]", Some("[::1]")),
            (Authority, "host:0", None),
            (Authority, "a/b", None),
            (
                Origin,
                "https://App.example.com",
                Some("https://app.example.com"),
            ),
            (Origin, "https://app.example.com/", None),
            (Origin, "*", None),
            (Origin, "app.example.com", None),
            (OriginOrAny, "*", Some("*")),
            (Token, "X-MCP-Client-ID", Some("X-MCP-Client-ID")),
            (Token, "GET, POST", None),
            (Currency, "EUR", Some("EUR")),
            (Currency, "eur", None),
            (Pattern, "tool.*", Some("tool.*")),
            (Pattern, "", None),
            (Pattern, " x", None),
            (Name, "a\u{7}b", None),
            (
                Window,
                "mon-fri 9:30-15:00 Asia/Shanghai",
                Some("Mon-Fri 09:30-15:00 Asia/Shanghai"),
            ),
            (Window, "Mon-Fry 09:30-15:00", None),
            (Pointer, "/a/*/b", Some("/a/*/b")),
            (Pointer, "a", None),
        ];
        for (format, given, expected) in rows {
            assert_eq!(
                self::text(format, given).as_deref(),
                expected,
                "{format:?} {given:?}"
            );
        }
    }

    #[test]
    fn a_text_that_is_not_empty_is_not_called_empty_alone() {
        for (given, hint) in [
            (
                "SELECT 1\n",
                "it has a line break, a tab or another control character: write it on one line",
            ),
            ("SELECT 1 ", "leave out the blanks at its ends"),
        ] {
            for format in [Format::Name, Format::Pattern] {
                let misfit = Leaf::Text(format)
                    .coerce(given, Path::new("/"))
                    .unwrap_err();
                assert_eq!(misfit.hint.as_deref(), Some(hint), "{given:?}");
            }
        }
        let empty = Leaf::Text(Format::Name).coerce(" ", Path::new("/"));
        assert_eq!(empty.unwrap_err().hint, None);
    }

    #[test]
    fn shares_are_told_from_amounts() {
        let share = |text| Leaf::Share.coerce(text, Path::new("/"));
        for (text, expected) in [
            ("0", "0.00"),
            ("1", "1.00"),
            ("1.0", "1.00"),
            ("0.000001", "0.000001"),
        ] {
            let fit = share(text).map(|it| it.into_string().expect("it is a text"));
            assert_eq!(fit, Ok(expected.to_owned()), "{text}");
        }
        for text in ["1.000001", "2", "-0.5", "half", "10%", "", "0.0000001"] {
            let misfit = share(text).unwrap_err();
            assert_eq!(misfit.expected, "must be a share from 0 to 1, such as 0.1");
            let hint = misfit.hint.unwrap_or_default();
            assert!(
                !hint.is_empty() && !hint.contains("12.50"),
                "{text}: {hint}"
            );
        }
    }

    #[test]
    fn integers_are_plain_digits_within_their_bounds() {
        let leaf = Leaf::Integer { min: 1, max: 10 };
        let is_fit = |text: &str| leaf.coerce(text, Path::new("/")).is_ok();
        assert!(is_fit("1") && is_fit("10") && is_fit("007"));
        for text in [
            "0",
            "11",
            "-1",
            "+1",
            "1.0",
            "0x1",
            "1_0",
            "",
            " 1",
            "99999999999999999999",
        ] {
            assert!(!is_fit(text), "{text:?}");
        }
    }

    #[test]
    fn numbers_may_have_the_unit_of_their_key() {
        use crate::reading::shape::Unit;
        let rows = [
            (Unit::Seconds, "60", Some(60)),
            (Unit::Seconds, "60s", Some(60)),
            (Unit::Seconds, "1 h", Some(3_600)),
            (Unit::Seconds, "2min", Some(120)),
            (Unit::Seconds, "5000ms", Some(5)),
            (Unit::Seconds, "1500ms", None),
            (Unit::Milliseconds, "2s", Some(2_000)),
            (Unit::Minutes, "1h", Some(60)),
            (Unit::Minutes, "90s", None),
            (Unit::Bytes, "4MB", Some(4_000_000)),
            (Unit::Bytes, "4MiB", Some(4 * 1024 * 1024)),
            (Unit::Bytes, "16 kb", Some(16_000)),
            (Unit::Bytes, "1s", None),
            (Unit::Seconds, "1x", None),
            (Unit::Seconds, "s", None),
            (Unit::Seconds, "-1s", None),
            (Unit::Seconds, "1.5h", Some(5_400)),
            (Unit::Seconds, "1.5min", Some(90)),
            (Unit::Milliseconds, "0.5s", Some(500)),
            (Unit::Milliseconds, "0.0005s", None),
            (Unit::Bytes, "1.5MB", Some(1_500_000)),
            (Unit::Bytes, "0.1 GB", Some(100_000_000)),
            (Unit::Bytes, "0.1KiB", None),
            // Neither a binary float nor more digits than those that count.
            (
                Unit::Bytes,
                "9007199254.740993GB",
                Some(9_007_199_254_740_993_000),
            ),
            (Unit::Seconds, "1.500000s", None),
            (Unit::Milliseconds, "1.500000s", Some(1_500)),
            (Unit::Seconds, "1.0", None),
            (Unit::Seconds, "1.s", None),
            (Unit::Seconds, ".5min", None),
            (Unit::Seconds, "1.5.0min", None),
            (Unit::Bytes, "18446744073.709551616GB", None),
            (Unit::Seconds, "99999999999999999999d", None),
            (Unit::Seconds, "9999999999999999999d", None),
        ];
        for (unit, text, expected) in rows {
            assert_eq!(unit.read(text), expected, "{text}");
        }
        let leaf = Leaf::Measure {
            unit: Unit::Seconds,
            min: 1,
            max: 60,
        };
        let read = |text| leaf.coerce(text, Path::new("/"));
        assert!(read("1min").is_ok() && read("61s").is_err() && read("0s").is_err());
        assert!(
            read("61x")
                .unwrap_err()
                .hint
                .unwrap()
                .contains("ms, s, min")
        );
    }
}
