//! Members of JSON that a stranger has written: each mistake with its place, all of them at once.

use std::fmt;

use serde_json::{Map, Value};

/// Most mistakes that are told.
const MAX_FOUND: usize = 32;

/// A mistake in a text of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    /// Place, such as `packages[0].version`; empty for the whole.
    pub place: String,
    /// Reason, as the rest of a sentence about the place.
    pub why: String,
}

impl Unfit {
    pub(crate) fn new(place: &str, why: impl Into<String>) -> Self {
        Self {
            place: place.to_owned(),
            why: why.into(),
        }
    }
}

/// `packages[0].version: …`
impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => f.write_str(&self.why),
            place => write!(f, "{}: {}", shown(place), self.why),
        }
    }
}

/// A text of others, cut and without what a terminal would obey or a reader not see.
#[must_use]
pub fn shown(text: &str) -> String {
    let shown = text.chars().take(200).map(|it| match it {
        it if it.is_control() || redaction::is_misleading(it) => '\u{fffd}',
        it => it,
    });
    let mut shown: String = shown.collect();
    if text.chars().nth(200).is_some() {
        shown.push('…');
    }
    shown
}

/// Reason why a text of JSON says two things: an object of it has two members of one name, of which another reader may take
/// the other one.
pub(crate) fn repeats(json: &str) -> Option<String> {
    let name = redaction::repeated_name(json)?;
    Some(format!("`{}` is there twice in one object", shown(&name)))
}

/// Collects mistakes while members are read.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) found: Vec<Unfit>,
}

fn join(place: &str, name: &str) -> String {
    match place {
        "" => name.to_owned(),
        place => format!("{place}.{name}"),
    }
}

impl Reader {
    pub(crate) fn wrong(&mut self, place: &str, why: &str) {
        if self.found.len() < MAX_FOUND {
            self.found.push(Unfit::new(place, why));
        }
    }

    pub(crate) fn object<'a>(
        &mut self,
        value: &'a Value,
        place: &str,
    ) -> Option<&'a Map<String, Value>> {
        if value.is_object() {
            return value.as_object();
        }
        self.wrong(place, "is no object");
        None
    }

    /// A text that must be there, of at least one and at most `max` characters.
    pub(crate) fn text(
        &mut self,
        members: &Map<String, Value>,
        place: &str,
        name: &str,
        max: usize,
    ) -> Option<String> {
        if !members.contains_key(name) {
            let place = if place.is_empty() { "it" } else { place };
            self.wrong(place, &format!("lacks `{name}`"));
            return None;
        }
        let before = self.found.len();
        let text = self.optional_text(members, place, name, max);
        if text.as_deref().is_none_or(str::is_empty) && self.found.len() == before {
            self.wrong(&join(place, name), "is empty");
        }
        text.filter(|it| !it.is_empty())
    }

    /// A text of at most `max` characters, none of which commands a terminal or hides from a reader.
    pub(crate) fn optional_text(
        &mut self,
        members: &Map<String, Value>,
        place: &str,
        name: &str,
        max: usize,
    ) -> Option<String> {
        let value = members.get(name).filter(|it| !it.is_null())?;
        let place = join(place, name);
        let Some(text) = value.as_str() else {
            self.wrong(&place, "is no text");
            return None;
        };
        if text.chars().count() > max {
            self.wrong(&place, &format!("has more than {max} characters"));
            return None;
        }
        // Descriptions may have several lines; nothing that is run or asked may.
        let is_prose = name == "description" || name == "long_description";
        let is_hidden = |it: char| {
            let is_line = is_prose && matches!(it, '\n' | '\r' | '\t');
            !is_line && (it.is_control() || redaction::is_misleading(it))
        };
        if text.chars().any(is_hidden) {
            self.wrong(
                &place,
                "has a character that a terminal obeys or a reader does not see",
            );
            return None;
        }
        Some(text.to_owned())
    }

    /// The elements of a list that may be missing, each with its place.
    pub(crate) fn list<'a>(
        &mut self,
        members: &'a Map<String, Value>,
        place: &str,
        name: &str,
        max: usize,
    ) -> Vec<(String, &'a Value)> {
        let Some(value) = members.get(name).filter(|it| !it.is_null()) else {
            return Vec::new();
        };
        let place = join(place, name);
        let Some(elements) = value.as_array() else {
            self.wrong(&place, "is no list");
            return Vec::new();
        };
        if elements.len() > max {
            self.wrong(&place, &format!("has more than {max} elements"));
            return Vec::new();
        }
        let elements = elements.iter().enumerate();
        elements
            .map(|(at, value)| (format!("{place}[{at}]"), value))
            .collect()
    }
}
