//! The configuration file as a tree that remembers where everything stood.
//!
//! Typed deserialisation stops at its first mistake; a tree can be walked to the end. Scalars keep
//! the text they were written as, so that amounts never pass through a binary float.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Spanned};

use crate::layer::child;
use crate::problem::{Origin, Position, Problem, Snippet};

/// Nesting beyond this is refused; the deepest known key stands at 6.
const MAX_DEPTH: usize = 32;
/// Values beyond this are refused, those that aliases repeat counted each time.
const MAX_NODES: usize = 100_000;

/// A value and where it stands.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) at: Place,
    /// True if a scalar is a number or a boolean. Most keys have a type of their own and take its
    /// text.
    is_plain: bool,
}

impl Node {
    /// A mapping at a place.
    pub(crate) fn mapping(at: Place, entries: Vec<(Key, Node)>) -> Self {
        Self {
            value: Value::Mapping(entries),
            at,
            is_plain: false,
        }
    }

    /// The number or the boolean that a scalar is, where it is no text.
    pub(crate) fn plain(&self) -> Option<serde_json::Value> {
        match &self.value {
            Value::Scalar(text) if self.is_plain => serde_saphyr::from_str(text).ok(),
            _ => None,
        }
    }
}

/// Value at a place of the document.
#[derive(Debug)]
pub(crate) enum Value {
    /// An empty value, `~` or `null`.
    Nothing,
    /// The text: decoded if it was quoted, as written if it was a number or a boolean.
    Scalar(String),
    Sequence(Vec<Node>),
    Mapping(Vec<(Key, Node)>),
}

impl Value {
    /// For "found …" in a message.
    pub(crate) fn describe(&self) -> String {
        match self {
            Value::Nothing => "nothing".into(),
            Value::Scalar(text) if text.is_empty() => "an empty text".into(),
            Value::Scalar(text) => format!("`{}`", shorten(text)),
            Value::Sequence(_) => "a list".into(),
            Value::Mapping(_) => "a section".into(),
        }
    }
}

/// A message quotes at most this many characters of a value.
pub(crate) fn shorten(text: &str) -> String {
    const MAX_QUOTED_CHARACTERS: usize = 60;
    match text.char_indices().nth(MAX_QUOTED_CHARACTERS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A key of a mapping.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) at: Place,
}

/// Line and column, from 1, and the length in characters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    line: usize,
    column: usize,
    length: usize,
}

impl Place {
    pub(crate) fn line(self) -> usize {
        self.line
    }

    fn new(location: &Location) -> Self {
        let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        Self {
            line: number(location.line()),
            column: number(location.column()),
            length: number(location.span().len()),
        }
    }
}

/// A parsed file.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    name: String,
    text: &'a str,
    pub(crate) root: Node,
}

impl<'a> Document<'a> {
    /// Parses `text`, the content of the file that the operator calls `name`.
    ///
    /// Each key that stands somewhere a second time is reported, and the first one kept; where the text
    /// is not YAML there is no document.
    pub(crate) fn parse(
        name: &str,
        text: &'a str,
        problems: &mut Vec<Problem>,
    ) -> Option<Document<'a>> {
        let error = match read(text, DuplicateKeyPolicy::Error) {
            Ok(root) => {
                let name = name.to_owned();
                return Some(Document { name, text, root });
            }
            Err(error) => error,
        };
        let at = error.location().as_ref().map(Place::new);
        let at = at.unwrap_or(Place {
            line: 0,
            column: 0,
            length: 0,
        });
        let problem = match unquoted(&error, text, at) {
            Some((word, message)) => Problem::error(origin(name, text, at), message)
                .hint(format!("put quotes around it: `\"{word}\"`")),
            None => describe(&error, origin(name, text, at)),
        };
        // Which hands over all of them, to be told apart here.
        let rest = match error {
            serde_saphyr::Error::DuplicateMappingKey { .. } => {
                read(text, DuplicateKeyPolicy::LastWins).ok()
            }
            _ => None,
        };
        let Some(root) = rest else {
            problems.push(problem);
            return None;
        };
        let mut document = Document {
            name: name.to_owned(),
            text,
            root,
        };
        let mut repeated = Vec::new();
        keep_first(&mut document.root, None, &mut repeated);
        if repeated.is_empty() {
            // The parser has its own idea of which keys are the same.
            problems.push(problem);
        }
        problems.extend(repeated.into_iter().map(|(path, key)| {
            let origin = document.origin(key.at);
            described_twice(origin, &key.name).key(path)
        }));
        Some(document)
    }

    /// Returns true if the document holds nothing but comments.
    pub(crate) fn is_empty(&self) -> bool {
        matches!(self.root.value, Value::Nothing)
    }

    /// The word before `at`, if that begins with `!`: YAML takes it for the type of what follows, and
    /// there may be nothing.
    pub(crate) fn tag_before(&self, at: Place) -> Option<&str> {
        let line = self.text.lines().nth(at.line.checked_sub(1)?)?;
        let (end, _) = line.char_indices().nth(at.column.checked_sub(1)?)?;
        let word = line[..end].trim_end().rsplit([' ', ',', '[', '{']).next()?;
        word.starts_with('!').then_some(word)
    }

    /// The origin to report for something at `at`.
    pub(crate) fn origin(&self, at: Place) -> Origin {
        origin(&self.name, self.text, at)
    }
}

fn origin(name: &str, text: &str, at: Place) -> Origin {
    let line = at
        .line
        .checked_sub(1)
        .and_then(|index| text.lines().nth(index));
    Origin::File(Position {
        file: name.to_owned(),
        line: at.line,
        column: at.column,
        snippet: line.map(|line| Snippet::new(line, at.column, at.length)),
    })
}

fn read(text: &str, duplicates: DuplicateKeyPolicy) -> Result<Node, serde_saphyr::Error> {
    let options = serde_saphyr::options! {
        with_snippet: false,
        duplicate_keys: duplicates,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_nodes: MAX_NODES },
    };
    let raw = serde_saphyr::from_str_with_options::<Spanned<Raw<'_>>>(text, options)?;
    Ok(convert(raw, text))
}

fn described_twice(origin: Origin, key: &str) -> Problem {
    let message = format!("the key `{key}` stands here a second time");
    Problem::error(origin, message).hint("keep one of the two")
}

/// A pattern that begins with `*` and has no quotes, which is an alias in YAML, and the message about it.
fn unquoted(error: &serde_saphyr::Error, text: &str, at: Place) -> Option<(String, String)> {
    let line = text.lines().nth(at.line.checked_sub(1)?)?;
    let from: String = line.chars().skip(at.column.checked_sub(1)?).collect();
    let word = from.split([',', ']', '}', ' ']).next()?;
    // Where the name is missing, the place is that of what stands in its stead.
    let before = line.chars().nth(at.column.checked_sub(2)?);
    let is_alias = word.starts_with('*') || before == Some('*');
    let is_unknown = error.to_string().contains("alias");
    (is_alias && is_unknown).then(|| {
        let word = if word.starts_with('*') { word } else { "*" };
        let message = "without quotes is a reference in YAML, and refers to nothing";
        (word.to_owned(), format!("`{word}` {message}"))
    })
}

/// The parser's message, without its place, which the origin holds, and without advice meant for
/// programmers.
fn describe(error: &serde_saphyr::Error, origin: Origin) -> Problem {
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key, .. } => {
            described_twice(origin, key.as_deref().unwrap_or("?"))
        }
        serde_saphyr::Error::MultipleDocuments { .. } => {
            Problem::error(origin, "the file holds more than one YAML document")
                .hint("remove the line `---` and what belongs to the other document")
        }
        other => {
            let message = other.to_string();
            let too_much = if message.contains("budget breached") {
                Some(format!(
                    "the file holds more than {MAX_NODES} values, those behind references counted \
                     each time, or nests them deeper than {MAX_DEPTH}"
                ))
            } else if message.contains("recursion limit") {
                Some(format!("the file nests values deeper than {MAX_DEPTH}"))
            } else if message.contains("recursive references") {
                Some("a reference stands inside of what it refers to".to_owned())
            } else {
                None
            };
            if let Some(message) = too_much {
                let hint = "no configuration needs that; look for references (`*name`) here";
                return Problem::error(origin, message).hint(hint);
            }
            let message = message.split(" at line ").next().unwrap_or(&message);
            Problem::error(origin, format!("this is not valid YAML: {message}"))
                .hint("look for brackets, quotes and indentation at this place and before it")
        }
    }
}

/// The tree before the text of its scalars has been looked up.
enum Raw<'de> {
    Nothing,
    /// A string, decoded.
    Text(std::borrow::Cow<'de, str>),
    /// A number or a boolean: what counts is the text of the source.
    Plain,
    Sequence(Vec<Spanned<Raw<'de>>>),
    Mapping(Vec<(Spanned<String>, Spanned<Raw<'de>>)>),
}

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Raw::Text(text.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Raw::Text(text.to_owned().into()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Raw::Plain)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Raw::Plain)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Raw::Plain)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Self::Value, E> {
        Ok(Raw::Plain)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Self::Value, E> {
        Ok(Raw::Plain)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Raw::Plain)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Raw::Nothing)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Raw::Nothing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(Raw::Sequence(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut mapping: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = mapping.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Mapping(entries))
    }
}

/// Recursion is bounded by [`MAX_DEPTH`].
fn convert(raw: Spanned<Raw<'_>>, text: &str) -> Node {
    // Where an alias is used is where the operator has to look; its text is where it was defined.
    let at = Place::new(&raw.referenced);
    let is_plain = matches!(raw.value, Raw::Plain);
    let value = match raw.value {
        Raw::Nothing => Value::Nothing,
        Raw::Text(text) => Value::Scalar(text.into_owned()),
        Raw::Plain => Value::Scalar(source_of(&raw.defined, text).unwrap_or_default().to_owned()),
        Raw::Sequence(elements) => Value::Sequence(
            elements
                .into_iter()
                .map(|element| convert(element, text))
                .collect(),
        ),
        Raw::Mapping(entries) => {
            let entry = |(key, value): (Spanned<String>, Spanned<Raw<'_>>)| {
                let length = key.value.chars().count();
                let at = Place {
                    length,
                    ..Place::new(&key.referenced)
                };
                (
                    Key {
                        name: key.value,
                        at,
                    },
                    convert(value, text),
                )
            };
            Value::Mapping(entries.into_iter().map(entry).collect())
        }
    };
    Node {
        value,
        at,
        is_plain,
    }
}

/// Takes out of each mapping what stands there again, with the key's path; `path` is `None` at the top
/// of the file, whose key is part of no path.
fn keep_first(node: &mut Node, path: Option<&str>, repeated: &mut Vec<(String, Key)>) {
    match &mut node.value {
        Value::Nothing | Value::Scalar(_) => {}
        Value::Sequence(elements) => {
            for (index, element) in elements.iter_mut().enumerate() {
                let path = format!("{}[{index}]", path.unwrap_or_default());
                keep_first(element, Some(&path), repeated);
            }
        }
        Value::Mapping(entries) => {
            let mut seen = HashSet::new();
            for (key, mut node) in std::mem::take(entries) {
                let name = match path {
                    Some(path) => child(path, &key.name),
                    None => String::new(),
                };
                if seen.insert(key.name.clone()) {
                    keep_first(&mut node, Some(&name), repeated);
                    entries.push((key, node));
                } else {
                    repeated.push((name, key));
                }
            }
        }
    }
}

fn source_of<'a>(location: &Location, text: &'a str) -> Option<&'a str> {
    let span = location.span();
    let start = usize::try_from(span.byte_offset()?).ok()?;
    let length = usize::try_from(span.byte_len()?).ok()?;
    text.get(start..start.checked_add(length)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scalar(text: &str) -> String {
        let mut problems = Vec::new();
        let document = Document::parse("x.yaml", text, &mut problems).expect("it is YAML");
        assert!(problems.is_empty(), "{problems:?}");
        match document.root.value {
            Value::Mapping(entries) => match &entries.last().expect("one entry").1.value {
                Value::Scalar(text) => text.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scalars_keep_the_text_they_were_written_as() {
        assert_eq!(scalar("é: 10.000000000000000001"), "10.000000000000000001");
        assert_eq!(scalar("a: &x 0.10\nb: *x\n"), "0.10");
        assert_eq!(scalar("a: {q: 1.50}\nb: 'two # x'\n"), "two # x");
        assert_eq!(scalar("a: 0x10"), "0x10");
        assert_eq!(scalar("a: yes"), "yes");
        assert_eq!(
            scalar("a: 99999999999999999999999999999999999999999999"),
            "9".repeat(44)
        );
        assert_eq!(scalar("\u{feff}a: 12"), "12");
    }

    #[test]
    fn deep_nesting_is_an_error_and_not_a_crash() {
        for text in [
            format!("a: {}", "[".repeat(100_000)),
            format!("a: {}{}", "[".repeat(40), "]".repeat(40)),
            // Each level doubles what the last stands for.
            (1..40).fold("a0: &a0 [x]\n".to_owned(), |text, n| {
                format!("{text}a{n}: &a{n} [*a{}, *a{}]\n", n - 1, n - 1)
            }),
        ] {
            let mut problems = Vec::new();
            assert!(Document::parse("x.yaml", &text, &mut problems).is_none());
            assert_eq!(problems.len(), 1, "{problems:?}");
        }
    }
}
