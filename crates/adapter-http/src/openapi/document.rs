//! A document as a tree, and the places in it that `$ref` leads to.

use super::{MAX_DOCUMENT_BYTES, OpenApiError};
use serde_json::Value;
use serde_saphyr::options::NonFiniteFloatPolicy;

/// Deepest nesting of a document; serde_json has the same bound.
const MAX_DEPTH: usize = 128;
/// Most values of a document, those that YAML's aliases repeat counted each time.
const MAX_NODES: usize = 1_000_000;
/// Most references that may follow each other before there is another value.
const MAX_HOPS: usize = 16;
/// Most characters of a parser's message that are repeated.
const MAX_MESSAGE_CHARS: usize = 300;

pub(super) struct Document(Value);

impl Document {
    pub(super) fn parse(text: &str) -> Result<Self, OpenApiError> {
        if MAX_DOCUMENT_BYTES < text.len() {
            return Err(OpenApiError::TooLarge);
        }
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let parsed = match text.starts_with('{') {
            // YAML in flow style begins so as well.
            true => serde_json::from_str(text)
                .or_else(|error| yaml(text).map_err(|_| error.to_string())),
            false => yaml(text),
        };
        let root = parsed.map_err(|message| {
            let message = message.lines().next().unwrap_or_default();
            OpenApiError::Syntax(message.chars().take(MAX_MESSAGE_CHARS).collect())
        })?;
        let version = match (&root["openapi"], &root["swagger"]) {
            (Value::String(version), _) => version.as_str(),
            // `3.0` without quotes, which is a number.
            (Value::Number(version), _) => &version.to_string(),
            (_, Value::Null) => "nothing of it",
            (_, old) => &format!("swagger {old}"),
        };
        let is_known = ["3.0", "3.1"].iter().any(|known| {
            let rest = version.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
        });
        // As a number, `3.0` is written so, or as 3.
        if !is_known && version != "3" {
            let shown = version.chars().take(40).collect();
            return Err(OpenApiError::Version(shown));
        }
        Ok(Self(root))
    }

    pub(super) fn root(&self) -> &Value {
        &self.0
    }

    /// Resolves `value`: itself, or the target of its `$ref` in this document.
    pub(super) fn follow<'d>(&'d self, value: &'d Value) -> Option<&'d Value> {
        let mut value = value;
        for _ in 0..MAX_HOPS {
            match value.get("$ref") {
                None => return Some(value),
                Some(reference) => value = self.target(reference.as_str()?)?,
            }
        }
        None
    }

    /// Target of `reference`; `None` if it is not in this document.
    pub(super) fn target(&self, reference: &str) -> Option<&Value> {
        let pointer = reference.strip_prefix('#')?;
        let pointer = percent_encoding::percent_decode_str(pointer)
            .decode_utf8()
            .ok()?;
        pointer.starts_with('/').then(|| self.0.pointer(&pointer))?
    }
}

fn yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_documents: 1,
            max_reader_input_bytes: Some(MAX_DOCUMENT_BYTES),
            max_total_scalar_bytes: MAX_DOCUMENT_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
        },
        // `no` is a country.
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn json_and_yaml_are_read_and_other_versions_refused() {
        let yaml = "openapi: 3.0.3\npaths:\n  /a:\n    get:\n      responses:\n        200: {description: no}\n";
        let document = Document::parse(yaml).unwrap();
        let expected = json!({"/a": {"get": {"responses": {"200": {"description": "no"}}}}});
        assert_eq!(document.root()["paths"], expected);
        for good in [
            "\u{feff}{\"openapi\": \"3.1.0\"}",
            "openapi: 3.0",
            "openapi: 3.1",
            "{openapi: 3.1.1}",
        ] {
            assert!(Document::parse(good).is_ok(), "{good}");
        }
        for (bad, named) in [
            ("swagger: '2.0'", "swagger \"2.0\""),
            ("openapi: 3.2.0", "3.2.0"),
            ("openapi: 4.0.0", "4.0.0"),
            ("openapi: 3.10.0", "3.10.0"),
            ("a: 1", "nothing"),
            ("[]", "nothing"),
            ("a: [", "cannot be read"),
            ("{\"openapi\": ", "cannot be read"),
            ("", "nothing"),
        ] {
            let error = Document::parse(bad).err().unwrap().to_string();
            assert!(error.contains(named), "{bad}: {error}");
        }
        let large = format!("openapi: 3.0.0\nx: {}", "x".repeat(MAX_DOCUMENT_BYTES));
        assert_eq!(Document::parse(&large).err(), Some(OpenApiError::TooLarge));
    }

    #[test]
    fn bombs_are_refused() {
        let mut laughs = "openapi: 3.0.0\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            laughs.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        for bomb in [laughs, "[".repeat(100_000), "{\"a\":".repeat(100_000)] {
            assert!(matches!(
                Document::parse(&bomb),
                Err(OpenApiError::Syntax(_))
            ));
        }
    }

    #[test]
    fn references_stay_in_the_document_and_end() {
        let document = Document::parse(
            &json!({"openapi": "3.0.0", "a/b": {"x y": {"c": 1}}, "l": {"$ref": "#/m"}, "m": {"$ref": "#/l"}, "n": {"$ref": "#/a~1b/x%20y"}}).to_string(),
        )
        .unwrap();
        let follow = |reference: &str| document.follow(&json!({"$ref": reference})).cloned();
        assert_eq!(follow("#/a~1b/x%20y"), Some(json!({"c": 1})));
        assert_eq!(follow("#/n"), Some(json!({"c": 1})));
        for nowhere in [
            "#/l",
            "#/nothing",
            "other.yaml#/a",
            "https://h/a",
            "file:///etc/passwd",
            "#",
            "#a",
        ] {
            assert_eq!(follow(nowhere), None, "{nowhere}");
        }
    }
}
