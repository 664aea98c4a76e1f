//! Which operations are wanted.

use super::Found;

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
    /// Whether an operation matches one pattern of each kind that has any.
    pub(super) fn includes(&self, found: &Found<'_>) -> bool {
        self.kinds(found)
            .into_iter()
            .all(|matches| matches.unwrap_or(true))
    }

    /// Whether it matches any pattern.
    pub(super) fn excludes(&self, found: &Found<'_>) -> bool {
        self.kinds(found)
            .into_iter()
            .any(|matches| matches.unwrap_or(false))
    }

    /// Whether it matches, for each kind; `None` if there are no patterns of the kind.
    fn kinds(&self, found: &Found<'_>) -> [Option<bool>; 4] {
        let any = |patterns: &[String], texts: &[&str]| {
            let one = |pattern: &String| texts.iter().any(|text| is_match(pattern, text));
            (!patterns.is_empty()).then(|| patterns.iter().any(one))
        };
        let id = found.operation["operationId"].as_str();
        let tags = found.operation["tags"].as_array();
        let tags: Vec<&str> = tags
            .into_iter()
            .flatten()
            .filter_map(|it| it.as_str())
            .collect();
        let methods: Vec<String> = self.methods.iter().map(|it| it.to_lowercase()).collect();
        [
            any(&self.operations, id.as_slice()),
            any(&self.tags, &tags),
            any(&methods, &[found.method]),
            any(&self.paths, &[found.path]),
        ]
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
