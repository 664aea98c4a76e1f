use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// Its JSON has more bytes than [`MAX_SCHEMA_BYTES`].
    #[error("the schema has more than {MAX_SCHEMA_BYTES} bytes")]
    TooLarge,
    /// It is nested deeper than [`MAX_SCHEMA_DEPTH`].
    #[error("the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")]
    TooDeep,
    /// Its root does not say `"type": "object"`, which the protocol asks for.
    #[error("the schema's root is not of type `object`")]
    RootNotObject,
    /// It is written in another dialect than JSON Schema 2020-12.
    #[error("the schema is in the dialect `{0}`, and only JSON Schema 2020-12 is understood")]
    Dialect(String),
    /// It is no valid schema, or a `$ref` leads nowhere or out of the document.
    #[error("the schema is not valid at `{pointer}`: {message}")]
    Invalid {
        /// Where in the schema, as a JSON pointer.
        pointer: String,
        /// What is wrong there.
        message: String,
    },
}

/// The most bytes that the JSON of a tool's schema may have.
pub const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The deepest that a tool's schema may be nested.
pub const MAX_SCHEMA_DEPTH: usize = 64;

/// Backtracking steps of one `pattern` with one string: far more than honest patterns take, and
/// still less than a millisecond or two.
const MAX_PATTERN_STEPS: usize = 100_000;
/// The size of one compiled `pattern`, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// Compiles `schema`, which must describe an object. Nothing is fetched, from nowhere.
pub(crate) fn compile(schema: &Value) -> Result<Validator, SchemaError> {
    // Depth first: it bounds the recursion of everything that comes after.
    if MAX_SCHEMA_DEPTH < depth(schema) {
        return Err(SchemaError::TooDeep);
    }
    if MAX_SCHEMA_BYTES < schema.to_string().len() {
        return Err(SchemaError::TooLarge);
    }
    if let Some(dialect) = schema.get("$schema") {
        let named = dialect.as_str().map(|name| name.trim_end_matches('#'));
        if named != Some(DIALECT) {
            let shown = named.map_or_else(|| dialect.to_string(), ToOwned::to_owned);
            return Err(SchemaError::Dialect(shown.chars().take(128).collect()));
        }
    }
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(SchemaError::RootNotObject);
    }
    let patterns = PatternOptions::fancy_regex()
        .backtrack_limit(MAX_PATTERN_STEPS)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES);
    let options = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .with_pattern_options(patterns)
        .offline();
    options.build(schema).map_err(|error| SchemaError::Invalid {
        pointer: error.instance_path().to_string(),
        message: error.to_string().chars().take(300).collect(),
    })
}

/// How many levels of arrays and objects there are. Iterative, so that any value can be asked.
fn depth(value: &Value) -> usize {
    let mut deepest = 0;
    let mut open = vec![(value, 1)];
    while let Some((value, level)) = open.pop() {
        deepest = deepest.max(level);
        if MAX_SCHEMA_DEPTH < deepest {
            break;
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(members) => open.extend(members.values().map(|item| (item, level + 1))),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_that_cannot_be_used_is_named() {
        let mut deep = json!({});
        for _ in 0..MAX_SCHEMA_DEPTH {
            deep = json!({"not": deep});
        }
        let rows = [
            (json!({}), "root"),
            (json!({"type": ["object", "null"]}), "root"),
            (json!({"type": "object", "not": deep}), "deeper"),
            (
                json!({"type": "object", "title": "x".repeat(MAX_SCHEMA_BYTES)}),
                "bytes",
            ),
            (
                json!({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}),
                "draft-07",
            ),
            (json!({"type": "object", "$schema": 7}), "dialect `7`"),
            (
                json!({"type": "object", "properties": {"a": {"type": "strin"}}}),
                "/properties/a/type",
            ),
            (
                json!({"type": "object", "$ref": "#/$defs/nowhere"}),
                "/$defs/nowhere",
            ),
            (
                json!({"type": "object", "$ref": "https://example.com/a"}),
                "example.com",
            ),
            (
                json!({"type": "object", "$ref": "file:///etc/passwd"}),
                "passwd",
            ),
            (
                json!({"type": "object", "patternProperties": {"(": {}}}),
                "(",
            ),
        ];
        for (schema, named) in rows {
            let error = compile(&schema).expect_err(named).to_string();
            assert!(error.contains(named), "{named}: {error}");
        }
    }

    #[test]
    fn references_that_lead_back_to_themselves_come_to_an_end() {
        let rows = [
            json!({"type": "object", "$ref": "#"}),
            json!({"type": "object", "allOf": [{"$ref": "#/$defs/a"}],
                   "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]},
                             "b": {"not": {"$ref": "#/$defs/a"}}}}),
            json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
        ];
        for schema in rows {
            let validator = compile(&schema).unwrap();
            let _ = validator.is_valid(&json!({"a": {"a": {}}}));
            validator.iter_errors(&json!({"a": 1})).count();
        }
    }

    #[test]
    fn the_only_dialect_may_be_named() {
        for dialect in [DIALECT.to_owned(), format!("{DIALECT}#")] {
            compile(&json!({"type": "object", "$schema": dialect})).unwrap();
        }
    }
}
