//! Names of what is secret, looked up from their ends.

use crate::{scan::Text, string};

/// Names, as a tree of their bytes from the last to the first. Case and what joins words
/// (`_`, `-`, `.`, spaces) do not count. A lookup reads a name once, backwards, and mostly gives up
/// after two or three bytes.
#[derive(Debug)]
pub(crate) struct Names {
    nodes: Vec<Node>,
    /// The children of the root, since every lookup begins there.
    last: Box<[u16; 256]>,
}

#[derive(Debug, Default)]
struct Node {
    children: Vec<(u8, u16)>,
    meaning: Option<(Place, Meaning)>,
}

/// Position in a longer name at which a name counts; each counts in more places than the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The whole name.
    Whole,
    /// The last words of a name: `password` in `db_password` and in `dbPassword`.
    Ending,
    /// The last letters of a name: `password` in `dbpassword` too.
    Suffix,
}

/// Meaning of a name for its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Secret value.
    Secret,
    /// Secret value that, where it is not quoted, extends to the end of the line.
    SecretLine,
    /// Secret value if it reads like a token, and neither like words nor like the name of a scheme.
    SecretToken,
    /// Harmless value, although the name ends like that of a secret.
    Harmless,
}

/// The most bytes of a name that are looked at, from its end.
const MOST: usize = 128;

/// The most digits at the end of a name that do not count, as in `password2`.
const MOST_DIGITS: usize = 4;

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            nodes: vec![Node::default()],
            last: Box::new([0; 256]),
        }
    }

    /// Adds a name; whether there is anything in it that counts. Of two that say different things of
    /// the same name the first stays, unless the second has more values secret, and the place where more names count.
    pub(crate) fn add(&mut self, name: &str, place: Place, meaning: Meaning) -> bool {
        let mut at = 0;
        for byte in name.bytes().rev().filter_map(counting) {
            let children = &self.nodes[usize::from(at)].children;
            at = match children.iter().find(|(it, _)| *it == byte) {
                Some((_, child)) => *child,
                None => {
                    let Ok(child) = u16::try_from(self.nodes.len()) else {
                        return false;
                    };
                    self.nodes.push(Node::default());
                    self.nodes[usize::from(at)].children.push((byte, child));
                    child
                }
            };
        }
        if at == 0 {
            return false;
        }
        match &mut self.nodes[usize::from(at)].meaning {
            Some((there, said)) => {
                *there = place.max(*there);
                if *said == Meaning::SecretToken {
                    *said = meaning;
                }
            }
            none => *none = Some((place, meaning)),
        }
        for (byte, child) in &self.nodes[0].children {
            self.last[usize::from(*byte)] = *child;
        }
        true
    }

    /// Meaning of the name that ends at `end` and begins at `floor` or, in running text, somewhere
    /// after it.
    #[inline]
    pub(crate) fn meaning(&self, text: &[u8], floor: usize, end: usize) -> Option<Meaning> {
        let last = *text.get(floor..end)?.last()?;
        // Most names end here.
        if self.last[usize::from(lower(last))] == 0 && last.is_ascii_alphabetic() {
            return None;
        }
        let floor = floor.max(end.saturating_sub(MOST));
        self.walk(text, floor, end).or_else(|| {
            let digits = text[floor..end].iter().rev();
            let digits = digits.take_while(|byte| byte.is_ascii_digit()).count();
            let is_number = (1..=MOST_DIGITS).contains(&digits);
            is_number.then(|| self.walk(text, floor, end - digits))?
        })
    }

    /// Meaning of a name that is a string of JSON.
    #[inline]
    pub(crate) fn meaning_of(&self, json: &str, name: Text) -> Option<Meaning> {
        if name.is_escaped {
            let name = string::decoded(&json[name.range()]);
            self.meaning(name.as_bytes(), 0, name.len())
        } else {
            self.meaning(json.as_bytes(), name.start, name.end)
        }
    }

    fn walk(&self, text: &[u8], floor: usize, end: usize) -> Option<Meaning> {
        let mut node = 0;
        let mut found = None;
        for at in (floor..end).rev() {
            let Some(byte) = counting(text[at]) else {
                continue;
            };
            node = if node == 0 {
                self.last[usize::from(byte)]
            } else {
                let mut children = self.nodes[usize::from(node)].children.iter();
                children.find(|(it, _)| *it == byte).map_or(0, |it| it.1)
            };
            if node == 0 {
                break;
            }
            if let Some((place, meaning)) = self.nodes[usize::from(node)].meaning
                && begins_here(&text[floor..end], at - floor, place)
            {
                // The longest name decides.
                found = Some(meaning);
            }
        }
        found
    }
}

/// Returns true if a name in its place may begin at `at`.
fn begins_here(text: &[u8], at: usize, place: Place) -> bool {
    let Some(before) = at.checked_sub(1).map(|it| text[it]) else {
        return true;
    };
    match place {
        Place::Whole => {
            let is_joined = matches!(before, b'_' | b'-' | b'.') || !before.is_ascii();
            // What stands before it joins nothing, as in `{"pin` and `--pin`.
            let joins_nothing = is_joined
                && before.is_ascii()
                && text[..at]
                    .iter()
                    .rev()
                    .find(|it| counting(**it).is_some())
                    .is_none_or(|it| !is_wordy(*it));
            joins_nothing || !(is_joined || is_wordy(before))
        }
        Place::Suffix => true,
        Place::Ending => {
            !is_wordy(before)
                || (before.is_ascii_lowercase() || before.is_ascii_digit())
                    && text[at].is_ascii_uppercase()
        }
    }
}

/// Returns true for a byte that belongs to a word; bytes of other scripts always count as such.
fn is_wordy(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

/// The byte as it counts in names, or none.
fn counting(byte: u8) -> Option<u8> {
    match byte {
        b'_' | b'-' | b'.' | b' ' => None,
        byte => Some(lower(byte)),
    }
}

fn lower(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let mut names = Names::new();
        assert!(names.add("password", Place::Ending, Meaning::Secret));
        assert!(names.add("token", Place::Ending, Meaning::Secret));
        assert!(names.add("page_token", Place::Ending, Meaning::Harmless));
        assert!(names.add("API-Key", Place::Ending, Meaning::Secret));
        assert!(names.add("passwd", Place::Suffix, Meaning::Secret));
        assert!(names.add("nopasswd", Place::Ending, Meaning::Harmless));
        assert!(names.add("auth", Place::Whole, Meaning::SecretToken));
        assert!(names.add("pin", Place::Whole, Meaning::Secret));
        assert!(names.add("密码", Place::Ending, Meaning::Secret));
        assert!(!names.add("_-", Place::Whole, Meaning::Secret));
        assert!(!names.add("", Place::Whole, Meaning::Secret));
        names
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        let names = names();
        for name in [
            "password",
            "PASSWORD",
            "Password",
            "db_password",
            "dbPassword",
            "db-password",
            "db.password",
            "db password",
            "password2",
            "pass_word",
            "apiKey",
            "api_key",
            "x-api-key",
            "X-API-KEY",
            "myAPIKey",
            "pin",
            "PIN",
            "_pin_",
            "密码",
            "token",
            "a.b.token",
            "oauth2Token",
            "OAUTH2_TOKEN",
            "--pin",
            "PGPASSWD",
            "userpasswd2",
            "my_passwd",
        ] {
            let found = names.meaning(name.as_bytes(), 0, name.len());
            assert_eq!(found, Some(Meaning::Secret), "{name}");
        }
        for name in [
            "",
            "_",
            "word",
            "passwords_kept",
            "password_hint",
            "nopassword",
            "tokens",
            "betoken",
            "spin",
            "pins",
            "customer_pin",
            "keyapi",
            "monkey",
            "okapikey",
            "user",
            "123",
            "12345",
            "码",
        ] {
            assert_eq!(
                names.meaning(name.as_bytes(), 0, name.len()),
                None,
                "{name}"
            );
        }
        let found = |name: &str| names.meaning(name.as_bytes(), 0, name.len());
        assert_eq!(found("_auth"), Some(Meaning::SecretToken));
        assert_eq!(found("oauth").or(found("has_auth")), None);
        for name in ["page_token", "nextPageToken", "pageToken", "NOPASSWD"] {
            let found = names.meaning(name.as_bytes(), 0, name.len());
            assert_eq!(found, Some(Meaning::Harmless), "{name}");
        }
    }

    #[test]
    fn what_is_added_later_makes_nothing_less_secret() {
        let mut names = names();
        assert!(names.add("auth", Place::Ending, Meaning::Secret));
        assert!(names.add("passwd", Place::Whole, Meaning::SecretToken));
        for name in ["auth", "my_auth", "PGPASSWD"] {
            let found = names.meaning(name.as_bytes(), 0, name.len());
            assert_eq!(found, Some(Meaning::Secret), "{name}");
        }
    }

    #[test]
    fn a_long_name_costs_no_more_than_its_end() {
        let name = format!("{}password", "_".repeat(1_000_000));
        assert_eq!(
            names().meaning(name.as_bytes(), 0, name.len()),
            Some(Meaning::Secret)
        );
    }

    #[test]
    fn whatever_is_said_of_a_name_it_is_an_ending_if_it_is_one_anywhere() {
        let mut names = Names::new();
        names.add("ssn", Place::Whole, Meaning::Secret);
        assert_eq!(names.meaning(b"a_ssn", 0, 5), None);
        names.add("SSN", Place::Ending, Meaning::Secret);
        names.add("ssn", Place::Whole, Meaning::Secret);
        assert_eq!(names.meaning(b"a_ssn", 0, 5), Some(Meaning::Secret));
    }
}
