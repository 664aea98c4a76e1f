//! Selection of operations.

use super::Found;
use std::collections::BTreeSet;

/// Patterns, in which `*` stands for any text, over what operations are called, tagged and found at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Over `operationId`.
    pub operations: Vec<String>,
    /// Over tags.
    pub tags: Vec<String>,
    /// Methods, in any case.
    pub methods: Vec<String>,
    /// Over paths as the document has them: `/pets/{id}`.
    pub paths: Vec<String>,
}

impl Selection {
    /// Returns true if an operation matches one pattern of each kind that has any.
    pub(super) fn includes(&self, found: &Found<'_>) -> bool {
        self.kinds(found)
            .into_iter()
            .all(|matches| matches.unwrap_or(true))
    }

    /// Returns true if an operation matches any pattern.
    pub(super) fn excludes(&self, found: &Found<'_>) -> bool {
        self.kinds(found)
            .into_iter()
            .any(|matches| matches.unwrap_or(false))
    }

    /// The patterns of this list that match none of these operations.
    pub(super) fn unmatched(&self, list: &'static str, all: &[Found<'_>]) -> Vec<Unmatched> {
        let mut unmatched = Vec::new();
        for (kind, patterns) in self.patterns() {
            if patterns.is_empty() {
                continue;
            }
            let texts: BTreeSet<&str> = all.iter().flat_map(|it| texts(kind, it)).collect();
            for (index, pattern) in patterns.iter().enumerate() {
                if !texts.iter().any(|text| kind.matches(pattern, text)) {
                    unmatched.push(Unmatched {
                        key: format!("{list}.{}[{index}]", kind.name()),
                        pattern: pattern.clone(),
                        names: texts.iter().map(|&text| text.to_owned()).collect(),
                    });
                }
            }
        }
        unmatched
    }

    /// Result of matching each kind of pattern; `None` if there are no patterns of the kind.
    fn kinds(&self, found: &Found<'_>) -> [Option<bool>; 4] {
        self.patterns().map(|(kind, patterns)| {
            let texts = texts(kind, found);
            let one = |pattern: &String| texts.iter().any(|text| kind.matches(pattern, text));
            (!patterns.is_empty()).then(|| patterns.iter().any(one))
        })
    }

    fn patterns(&self) -> [(Kind, &[String]); 4] {
        [
            (Kind::Operations, &self.operations),
            (Kind::Tags, &self.tags),
            (Kind::Methods, &self.methods),
            (Kind::Paths, &self.paths),
        ]
    }
}

/// A pattern that matches no operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmatched {
    /// Key of the pattern: `exclude.paths[0]`.
    pub key: String,
    /// The pattern.
    pub pattern: String,
    /// All texts that it was compared with.
    pub names: Vec<String>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Operations,
    Tags,
    Methods,
    Paths,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Operations => "operations",
            Kind::Tags => "tags",
            Kind::Methods => "methods",
            Kind::Paths => "paths",
        }
    }

    fn matches(self, pattern: &str, text: &str) -> bool {
        match self {
            Kind::Methods => is_match(&pattern.to_lowercase(), text),
            _ => is_match(pattern, text),
        }
    }
}

fn texts<'d>(kind: Kind, found: &Found<'d>) -> Vec<&'d str> {
    let operation = found.operation;
    match kind {
        Kind::Operations => operation["operationId"].as_str().into_iter().collect(),
        Kind::Tags => {
            let tags = operation["tags"].as_array().into_iter().flatten();
            tags.filter_map(|it| it.as_str()).collect()
        }
        Kind::Methods => vec![found.method],
        Kind::Paths => vec![found.path],
    }
}

/// In time that grows with the product of the lengths, whatever the pattern.
fn is_match(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        let rows = [
            ("get*", "getPet", true),
            ("get*", "get", true),
            ("get", "getPet", false),
            ("*Pet", "getPet", true),
            ("*e*e*", "getPet", true),
            ("*e*e*e*", "getPet", false),
            ("a*a", "a", false),
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
        ];
        for (pattern, text, expected) in rows {
            assert_eq!(is_match(pattern, text), expected, "{pattern} {text}");
        }
    }
}
