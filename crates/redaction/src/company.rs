//! Members that are secret by what stands beside them: the private parts of a JSON web key, and the value of
//! `{"name": "password", "value": …}`.

use crate::{
    names::{Meaning, Names},
    scan::{NotJson, Scanner, Text, Token},
    string,
};

/// Part that a member plays for those beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `kty`, which every JSON web key has (RFC 7517).
    KeyType,
    /// A private part of a key, if there is a key type (RFC 7518, RFC 8037).
    KeyPart,
    /// The name of a value.
    Name,
    /// The value of a name.
    Value,
}

/// True if a member may be one for whose sake others are looked at. Most names end here.
#[inline]
pub(crate) fn may_matter(json: &str, name: Text) -> bool {
    let first = json.as_bytes()[name.start] | 0x20;
    name.is_escaped
        || name.end - name.start <= LONGEST && matches!(first, b'k' | b'n' | b'h' | b'f')
}

/// The longest name of a name: `header`.
const LONGEST: usize = 6;

/// The role of a member by its name.
pub(crate) fn role(json: &str, name: Text) -> Option<Role> {
    if name.is_escaped {
        return role_of(string::decoded(&json[name.range()]).as_bytes());
    }
    role_of(&json.as_bytes()[name.range()])
}

/// Returns true if a member of this name, whatever stands beside it, makes no value a secret and is none because of it.
pub(crate) fn is_plain(name: &str) -> bool {
    matches!(role_of(name.as_bytes()), None | Some(Role::Name))
}

fn role_of(name: &[u8]) -> Option<Role> {
    match name {
        b"kty" => Some(Role::KeyType),
        b"d" | b"p" | b"q" | b"dp" | b"dq" | b"qi" | b"oth" | b"k" => Some(Role::KeyPart),
        b"name" | b"Name" | b"NAME" | b"key" | b"Key" | b"KEY" | b"header" | b"field" => {
            Some(Role::Name)
        }
        b"value" | b"Value" | b"VALUE" | b"values" | b"Values" => Some(Role::Value),
        _ => None,
    }
}

/// Members that are secret by what stands beside them, by where their names begin, in order.
#[derive(Debug)]
pub(crate) struct Company(Vec<(usize, Meaning)>);

impl Company {
    /// Meaning of the name that begins at `start`.
    pub(crate) fn meaning(&self, start: usize) -> Option<Meaning> {
        let found = self.0.binary_search_by_key(&start, |it| it.0);
        found.ok().map(|at| self.0[at].1)
    }
}

/// An object that is open, or an array, which has no members.
#[derive(Default)]
struct Open {
    is_key: bool,
    parts: Vec<usize>,
    /// Meaning that the name that is given has for the value.
    named: Option<Meaning>,
    values: Vec<usize>,
}

/// All such members of a text.
pub(crate) fn find(json: &str, names: &Names) -> Result<Company, NotJson> {
    let mut scanner = Scanner::new(json);
    let mut found = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut last = None;
    while let Some(token) = scanner.next()? {
        let role = last.take();
        match (token, open.last_mut()) {
            (Token::Name(name), Some(object)) => {
                last = self::role(json, name);
                match last {
                    Some(Role::KeyType) => object.is_key = true,
                    Some(Role::KeyPart) => object.parts.push(name.start),
                    Some(Role::Value) => object.values.push(name.start),
                    Some(Role::Name) | None => {}
                }
            }
            (Token::String(text), Some(object)) if role == Some(Role::Name) => {
                object.named = object.named.or_else(|| names.meaning_of(json, text));
            }
            (Token::Object(_) | Token::Array(_), _) => open.push(Open::default()),
            (Token::End(_), _) => {
                let object = open.pop().unwrap_or_default();
                if object.is_key {
                    found.extend(object.parts.iter().map(|it| (*it, Meaning::Secret)));
                }
                if let Some(meaning) = object.named {
                    found.extend(object.values.iter().map(|it| (*it, meaning)));
                }
            }
            _ => {}
        }
    }
    found.sort_unstable_by_key(|it| it.0);
    Ok(Company(found))
}
