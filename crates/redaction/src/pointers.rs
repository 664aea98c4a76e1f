//! JSON pointers (RFC 6901) to what is secret in what a capability takes and gives.

use crate::{spec::BadSpec, string};
use std::collections::BTreeMap;

/// Pointers to secret values, by capability.
#[derive(Debug, Default)]
pub(crate) struct Pointers(Vec<(Pattern, Vec<Pointer>)>);

/// The segments of a pointer; none for `*`, any element.
pub(crate) type Pointer = Vec<Option<String>>;

/// A pattern of capabilities, in the parts between its `*`.
#[derive(Debug)]
struct Pattern(Vec<String>);

impl Pointers {
    pub(crate) fn new(spec: &BTreeMap<String, Vec<String>>) -> Result<Self, BadSpec> {
        let mut all = Vec::new();
        for (pattern, pointers) in spec {
            if pattern.is_empty() {
                return Err(BadSpec::Pattern);
            }
            let parsed = pointers.iter().map(|pointer| parse(pattern, pointer));
            let parsed = parsed.collect::<Result<_, _>>()?;
            let pattern = pattern.split('*').map(str::to_owned).collect();
            all.push((Pattern(pattern), parsed));
        }
        Ok(Self(all))
    }

    /// The pointers for a capability.
    pub(crate) fn of(&self, capability: &str) -> Vec<&Pointer> {
        let matching = self.0.iter().filter(|it| it.0.matches(capability));
        matching.flat_map(|(_, pointers)| pointers).collect()
    }

    /// The pointers for all capabilities.
    pub(crate) fn all(&self) -> Vec<&Pointer> {
        self.0.iter().flat_map(|(_, pointers)| pointers).collect()
    }
}

fn parse(pattern: &str, pointer: &str) -> Result<Pointer, BadSpec> {
    let bad = |problem| BadSpec::Pointer {
        capability: pattern.to_owned(),
        pointer: pointer.to_owned(),
        problem,
    };
    if pointer.is_empty() {
        return Ok(Vec::new());
    }
    let rest = pointer
        .strip_prefix('/')
        .ok_or_else(|| bad("it must be empty or begin with `/`"))?;
    let segment = |segment: &str| {
        if segment == "*" {
            return Ok(None);
        }
        let mut tildes = segment.split('~').skip(1);
        if !tildes.all(|rest| rest.starts_with(['0', '1'])) {
            return Err(bad("a `~` must be followed by `0` or `1`"));
        }
        Ok(Some(segment.replace("~1", "/").replace("~0", "~")))
    };
    rest.split('/').map(segment).collect()
}

impl Pattern {
    /// `*` stands for any text, `/` included, as in the rules of governance.
    fn matches(&self, name: &str) -> bool {
        let (first, rest) = self.0.split_first().expect("splitting yields something");
        let Some(mut name) = name.strip_prefix(first.as_str()) else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return name.is_empty();
        };
        for part in middle {
            match name.find(part.as_str()) {
                Some(at) => name = &name[at + part.len()..],
                None => return false,
            }
        }
        name.ends_with(last.as_str())
    }
}

/// Position in a text, with the pointers that may still lead to a value below it.
#[derive(Debug)]
pub(crate) struct Trail<'p> {
    pointers: &'p [&'p Pointer],
    /// Pointers that lead into the open values, those of the innermost last.
    leading: Vec<usize>,
    levels: Vec<Level>,
    /// Pointers that lead to the next value.
    next: Vec<usize>,
}

#[derive(Debug)]
struct Level {
    /// Index at which its part of `leading` begins.
    from: usize,
    /// The element that comes next, in an array.
    element: Option<usize>,
}

impl<'p> Trail<'p> {
    pub(crate) fn new(pointers: &'p [&'p Pointer]) -> Self {
        Self {
            next: (0..pointers.len()).collect(),
            pointers,
            leading: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// A member's name has been read.
    pub(crate) fn name(&mut self, raw: &str, is_escaped: bool) {
        if is_escaped {
            self.advance(&string::decoded(raw));
        } else {
            self.advance(raw);
        }
    }

    /// A value begins; whether a pointer leads to it.
    pub(crate) fn value(&mut self) -> bool {
        if let Some(element) = self.levels.last_mut().and_then(|it| it.element.as_mut()) {
            let index = *element;
            *element += 1;
            // Nothing is written where nothing is looked for.
            if self
                .levels
                .last()
                .is_some_and(|it| it.from < self.leading.len())
            {
                self.advance(&index.to_string());
            } else {
                self.next.clear();
            }
        }
        let depth = self.levels.len();
        self.next.iter().any(|it| self.pointers[*it].len() == depth)
    }

    /// The value that has begun is an object or an array.
    pub(crate) fn open(&mut self, is_array: bool) {
        self.levels.push(Level {
            from: self.leading.len(),
            element: is_array.then_some(0),
        });
        self.leading.append(&mut self.next);
    }

    /// Leaves the innermost open value.
    pub(crate) fn close(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.leading.truncate(level.from);
        }
    }

    fn advance(&mut self, segment: &str) {
        self.next.clear();
        let Some(level) = self.levels.last() else {
            return;
        };
        let depth = self.levels.len();
        for &pointer in &self.leading[level.from..] {
            let is_on_the_way = match self.pointers[pointer].get(depth - 1) {
                Some(Some(name)) => name == segment,
                Some(None) => true,
                None => false,
            };
            if is_on_the_way {
                self.next.push(pointer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_governance() {
        for (pattern, name, expected) in [
            ("*", "tool/a", true),
            ("tool/a", "tool/a", true),
            ("tool/a", "tool/ab", false),
            ("tool/*", "tool/a/b", true),
            ("tool/*", "resource/a", false),
            ("*-pay", "tool/x-pay", true),
            ("tool/*-*-pay", "tool/a-b-pay", true),
            ("tool/*-*-pay", "tool/a-pay", false),
            ("ab*ba", "aba", false),
            ("ab*ba", "abba", true),
        ] {
            let pattern = Pattern(pattern.split('*').map(str::to_owned).collect());
            assert_eq!(pattern.matches(name), expected, "{pattern:?} {name}");
        }
    }

    #[test]
    fn pointers_that_are_none_are_refused() {
        for (pointer, is_good) in [
            ("", true),
            ("/", true),
            ("/a/*/b", true),
            ("/a~0~1", true),
            ("a", false),
            ("#/a", false),
            ("/a~2", false),
            ("/a~", false),
        ] {
            assert_eq!(parse("*", pointer).is_ok(), is_good, "{pointer}");
        }
    }
}
