//! Patterns over names of capabilities.

use std::cmp::Ordering;

/// A pattern that can match nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a pattern must not be empty")]
pub struct PatternError;

/// Patterns, sorted by how they are looked up: most are exact names or prefixes.
///
/// `*` stands for any text, `/` included, anywhere in a pattern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatternSet {
    all: bool,
    /// In order of their lengths, and of their bytes.
    exact: Vec<Box<str>>,
    /// In order of their bytes; none begins with another.
    prefixes: Vec<Box<str>>,
    globs: Vec<Glob>,
    templates: Vec<Template>,
}

/// A template of addresses (RFC 6570), which stands for all that it yields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Template(Box<[TemplatePart]>);

/// Part of a template.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TemplatePart {
    /// A text as it is.
    Text(Box<str>),
    /// Any text without a `/`, a `?` or a `#`: the value of `{name}`, `{name,other}` or `{name:3}`.
    Segment,
    /// No text, or one that begins so: `{?name}`, `{&name}`, `{#name}`, `{/name}`, `{;name}`, `{.name}`.
    Begun(u8),
    /// Any text: the value of `{+name}`, and of `{name*}` as handlers in Python use that.
    Any,
}

impl Template {
    /// Reads a template; `None` if the text has no expression.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let (mut parts, mut rest) = (Vec::new(), text);
        while let Some((before, after)) = rest.split_once('{')
            && let Some((expression, after)) = after.split_once('}')
        {
            if !before.is_empty() {
                parts.push(TemplatePart::Text(before.into()));
            }
            parts.push(match expression.bytes().next() {
                Some(sign @ (b'?' | b'&' | b'#' | b'/' | b';' | b'.')) => TemplatePart::Begun(sign),
                Some(b'+') => TemplatePart::Any,
                _ if expression.ends_with('*') => TemplatePart::Any,
                _ => TemplatePart::Segment,
            });
            rest = after;
        }
        if !rest.is_empty() && !parts.is_empty() {
            parts.push(TemplatePart::Text(rest.into()));
        }
        let has_expression = parts.iter().any(|it| !matches!(it, TemplatePart::Text(_)));
        has_expression.then(|| Self(parts.into()))
    }

    /// The parts, in their order.
    #[must_use]
    pub fn parts(&self) -> &[TemplatePart] {
        &self.0
    }

    /// Tests if it yields `name`. A `*` in it, as patterns have, stands for any text.
    fn matches(&self, name: &str) -> bool {
        let name = name.as_bytes();
        // Whether the rest of the name from a place is yielded by the rest of the template: at first by nothing.
        let mut rest: Vec<bool> = (0..=name.len()).map(|at| at == name.len()).collect();
        for part in self.0.iter().rev() {
            let text = match part {
                TemplatePart::Text(text) => text.as_bytes(),
                part => {
                    rest = part.step(name, &rest);
                    continue;
                }
            };
            for byte in text.iter().rev() {
                rest = match byte {
                    b'*' => TemplatePart::Any.step(name, &rest),
                    byte => {
                        let fits = |at: usize| name.get(at) == Some(byte) && rest[at + 1];
                        (0..=name.len()).map(fits).collect()
                    }
                };
            }
        }
        rest[0]
    }
}

impl TemplatePart {
    /// The places of a name from which this part, and then what `rest` says, fits. Not for texts.
    fn step(&self, name: &[u8], rest: &[bool]) -> Vec<bool> {
        let mut now = rest.to_vec();
        for at in (0..name.len()).rev() {
            let goes_on = match self {
                Self::Segment => !b"/?#".contains(&name[at]),
                _ => true,
            };
            now[at] |= goes_on && now[at + 1];
        }
        match self {
            Self::Begun(sign) => {
                let begins = |at: usize| name.get(at) == Some(sign) && now[at + 1];
                (0..=name.len()).map(|at| rest[at] || begins(at)).collect()
            }
            _ => now,
        }
    }
}

/// Tests if a pattern is of addresses: of resources, or with a scheme if no kind is named. Braces in a name of a tool are no
/// template: `{a,b}` would yield every name.
fn is_address(pattern: &str) -> bool {
    match pattern.split_once('/') {
        Some(("resource", _)) => true,
        Some(("tool" | "prompt", _)) => false,
        _ => pattern.split('{').next().is_some_and(|it| it.contains(':')),
    }
}

/// A pattern with a `*` elsewhere than at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Glob {
    first: Box<str>,
    middle: Box<[Box<str>]>,
    last: Box<str>,
}

impl PatternSet {
    /// Sorts the patterns. Equal sets of patterns give equal values, whatever their order.
    ///
    /// # Errors
    ///
    /// [`PatternError`], if one is empty.
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a String>) -> Result<Self, PatternError> {
        let mut set = Self::default();
        for pattern in patterns {
            // Itself, as lists of templates have it, and what it yields.
            if is_address(pattern) {
                set.templates.extend(Template::new(pattern));
            }
            match pattern.split_once('*') {
                None if pattern.is_empty() => return Err(PatternError),
                None => {
                    set.exact.push(pattern.as_str().into());
                }
                Some((first, rest)) if rest.bytes().all(|byte| byte == b'*') => {
                    set.prefixes.push(first.into());
                }
                Some((first, rest)) => set.globs.push(Glob::new(first, rest)),
            }
        }
        set.all = set.prefixes.iter().any(|prefix| prefix.is_empty());
        if set.all {
            // Nothing else can add to everything.
            return Ok(Self {
                all: true,
                ..Self::default()
            });
        }
        set.exact.sort_unstable_by(|one, other| compare(one, other));
        set.exact.dedup();
        set.prefixes.sort_unstable();
        // What begins with a prefix comes after it, and adds nothing.
        set.prefixes
            .dedup_by(|next, prefix| next.starts_with(&**prefix));
        set.globs.sort_unstable();
        set.globs.dedup();
        set.templates.sort_unstable();
        set.templates.dedup();
        Ok(set)
    }

    /// Tests if there is no pattern.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Tests if one of the patterns matches `name`.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.all
            || self
                .exact
                .binary_search_by(|exact| compare(exact, name))
                .is_ok()
            || self.has_prefix_of(name)
            || self.globs.iter().any(|glob| glob.matches(name))
            || self.templates.iter().any(|it| it.matches(name))
    }

    /// Tests if `name` begins with one of the prefixes. Only the last that is not after it can be one: between a
    /// prefix of it and the name itself there are only texts that begin with that prefix.
    fn has_prefix_of(&self, name: &str) -> bool {
        let after = self.prefixes.partition_point(|prefix| **prefix <= *name);
        let last = after.checked_sub(1).map(|last| &self.prefixes[last]);
        last.is_some_and(|prefix| name.starts_with(&**prefix))
    }
}

/// Tests if a pattern of a policy, in which `*` stands for any text, matches a name.
#[must_use]
pub fn pattern_matches(pattern: &str, name: &str) -> bool {
    PatternSet::new([&pattern.to_owned()]).is_ok_and(|set| set.matches(name))
}

/// A pattern that has been checked, alone.
pub(crate) fn single(pattern: &String) -> PatternSet {
    PatternSet::new([pattern]).unwrap_or_default()
}

/// Most names differ in their lengths already, and hardly ever in their first letters.
fn compare(one: &str, other: &str) -> Ordering {
    let lengths = one.len().cmp(&other.len());
    lengths.then_with(|| one.cmp(other))
}

impl Glob {
    fn new(first: &str, rest: &str) -> Self {
        let mut middle: Vec<Box<str>> = rest.split('*').map(Box::from).collect();
        let last = middle.pop().unwrap_or_default();
        middle.retain(|part| !part.is_empty());
        Self {
            first: first.into(),
            middle: middle.into(),
            last,
        }
    }

    /// Takes the first place each part fits: with only `*` for a wildcard that is never wrong, and
    /// it makes the time linear in the name, whatever a peer sends.
    fn matches(&self, name: &str) -> bool {
        let Some(mut rest) = name.strip_prefix(&*self.first) else {
            return false;
        };
        for part in &self.middle {
            let Some(position) = rest.find(&**part) else {
                return false;
            };
            rest = &rest[position + part.len()..];
        }
        rest.ends_with(&*self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(patterns: &[&str]) -> PatternSet {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.into()).collect();
        PatternSet::new(&patterns).unwrap()
    }

    #[test]
    fn a_star_stands_for_any_text() {
        let rows = [
            ("tool/add", "tool/add", true),
            ("tool/add", "tool/adder", false),
            ("tool/add", "tool/ad", false),
            ("tool/*", "tool/add", true),
            ("tool/*", "tool/", true),
            ("tool/*", "resource/add", false),
            ("*", "", true),
            ("**", "anything", true),
            ("resource/skill://shop/*", "resource/skill://shop/a/b", true),
            ("tool/*.read", "tool/files.read", true),
            ("tool/*.read", "tool/files.write", false),
            ("tool/a*a", "tool/a", false),
            ("tool/a*a", "tool/aa", true),
            ("*b*b*", "tool/abcb", true),
            ("*b*b*", "tool/abc", false),
            ("*.é*", "tool/x.é", true),
        ];
        for (pattern, name, expected) in rows {
            assert_eq!(set(&[pattern]).matches(name), expected, "{pattern} {name}");
            assert_eq!(pattern_matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!set(&[]).matches(""));
        assert!(!pattern_matches("", ""));
        assert_eq!(PatternSet::new(&[String::new()]), Err(PatternError));
    }

    #[test]
    fn braces_stand_for_texts_in_addresses_alone() {
        for (pattern, name, is_met) in [
            ("tool/{append,echo}", "tool/append", false),
            ("{append,echo}", "append", false),
            ("{x}://a", "tool/append", false),
            ("resource/doc://{name}", "resource/doc://a", true),
            ("resource/doc://{name}", "resource/doc://a/b", false),
            ("resource/doc://{name}", "tool/doc", false),
            (
                "resource/mcp.shop+urn:doc:{id}",
                "resource/mcp.shop+urn:doc:7",
                true,
            ),
            ("mcp.shop+urn:doc:{id}", "mcp.shop+urn:doc:7", true),
        ] {
            let set = PatternSet::new(&[pattern.to_owned()]).unwrap();
            assert_eq!(set.matches(name), is_met, "{pattern} {name}");
        }
    }

    #[test]
    fn a_template_stands_for_itself_and_for_what_it_yields() {
        for (pattern, name, expected) in [
            ("api://a/alt{?v}", "api://a/alt{?v}", true),
            ("api://a/alt{?v}", "api://a/alt", true),
            ("api://a/alt{?v,w}", "api://a/alt?v=a", true),
            ("api://a/alt{?v}", "api://a/alternative", false),
            ("files://a/{+path}", "files://a/b/c.txt", true),
            ("files://a/{+path}", "files://ab/c", false),
            ("db://s/tables/{table}{?offset}", "db://s/tables/item", true),
            ("db://s/tables/{table}", "db://s/tables/item/1", false),
            ("db://s/tables/{table}/{key}", "db://s/tables/item/1", true),
            ("data://{id}/log", "data://7/log", true),
            ("data://{id}/log", "data://7/lag", false),
            ("*://{id}", "data://7", true),
            ("x://a/items{/id}", "x://a/items/7", true),
            ("x://a/items{/id}", "x://a/items-private/7", false),
            ("x://geo/{lat,lon}", "x://geo/1,2", true),
            ("x://geo/{lat,lon}", "x://geo/1/secret", false),
            ("x://a/{id:3}/b", "x://a/123/b", true),
            ("x://a/{id:3}/b", "x://a/1/2/b", false),
            ("x://a/{path*}", "x://a/1/2", true),
            ("x://a/file{.ext}", "x://a/file.txt", true),
            ("x://a/file{.ext}", "x://a/files", false),
            ("data://{", "data://x", false),
            ("data://{", "data://{", true),
            ("data://}{", "data://}{", true),
        ] {
            assert_eq!(pattern_matches(pattern, name), expected, "{pattern} {name}");
        }
        assert_eq!(Template::new("data://x"), None);
    }

    #[test]
    fn equal_sets_are_equal_in_any_order() {
        assert_eq!(set(&["a", "b*", "*c*d"]), set(&["*c*d", "b*", "b**", "a"]));
        assert_eq!(set(&["a", "*"]), set(&["*"]));
        assert_eq!(set(&["ab*", "a*", "b*"]), set(&["b*", "a*"]));
        assert_ne!(set(&["a"]), set(&["a*"]));
        assert_eq!(set(&["b", "a", "b"]), set(&["a", "b"]));
    }

    /// The definition, as slow as it is plain.
    fn plain(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), None) => plain(rest, name),
            (Some((b'*', rest)), Some((_, tail))) => plain(rest, name) || plain(pattern, tail),
            (Some((byte, rest)), Some((head, tail))) => byte == head && plain(rest, tail),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn many_patterns_match_where_one_of_them_does(
            patterns in prop::collection::vec("[ab]{1,4}\\*?", 1..12),
            name in "[ab]{0,5}",
        ) {
            let expected = patterns.iter().any(|it| plain(it.as_bytes(), name.as_bytes()));
            prop_assert_eq!(PatternSet::new(&patterns).unwrap().matches(&name), expected);
        }

        #[test]
        fn it_agrees_with_the_definition(pattern in "[ab*]{1,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(
                set(&[&pattern]).matches(&name),
                plain(pattern.as_bytes(), name.as_bytes())
            );
        }
    }
}
