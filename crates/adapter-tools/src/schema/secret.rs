//! Members of values that a schema marks as secret.

use serde_json::Value;
use std::collections::BTreeSet;

/// The deepest that members are named one by one; what is deeper is taken with the value that it is in. Schemas may
/// refer back to themselves.
const MAX_DEPTH: usize = 8;
/// Most subschemas that are looked at.
const MAX_STEPS: usize = 10_000;
/// JSON pointers (RFC 6901, with `*` for any member or item) to the values that `schema` marks as secret: by
/// `writeOnly: true` (JSON Schema 2020-12, validation §9.4), or by `format: password` (OpenAPI's registry of formats),
/// which is how pydantic writes `SecretStr`.
pub(crate) fn secret_members(schema: &Value) -> BTreeSet<String> {
    let mut search = Search {
        root: schema,
        steps: 0,
        found: BTreeSet::new(),
    };
    // Hardly any schema has one.
    if search.has_secret(schema, &mut BTreeSet::new()) {
        search.visit(schema, "", 0);
    }
    search.found
}

struct Search<'a> {
    root: &'a Value,
    steps: usize,
    found: BTreeSet<String>,
}

impl<'a> Search<'a> {
    /// `depth` counts references as well, so that it is bounded.
    fn visit(&mut self, schema: &'a Value, path: &str, depth: usize) {
        let Value::Object(members) = schema else {
            return;
        };
        self.steps += 1;
        if is_secret(schema) {
            self.found.insert(path.to_owned());
            return;
        }
        if MAX_DEPTH < depth || MAX_STEPS < self.steps {
            if self.has_secret(schema, &mut BTreeSet::new()) {
                self.found.insert(path.to_owned());
            }
            return;
        }
        if let Some(target) = self.target(schema) {
            self.visit(target, path, depth + 1);
        }
        for (keyword, value) in members {
            match keyword.as_str() {
                "properties" => {
                    for (name, part) in subschemas(value) {
                        let name = name.unwrap_or("*").replace('~', "~0").replace('/', "~1");
                        self.visit(part, &format!("{path}/{name}"), depth + 1);
                    }
                }
                "prefixItems" => {
                    for (index, (_, part)) in subschemas(value).into_iter().enumerate() {
                        self.visit(part, &format!("{path}/{index}"), depth + 1);
                    }
                }
                // Before 2020-12, `items` may be a list.
                "patternProperties" | "items" if value.is_array() || keyword != "items" => {
                    for (_, part) in subschemas(value) {
                        self.visit(part, &format!("{path}/*"), depth + 1);
                    }
                }
                "additionalProperties"
                | "unevaluatedProperties"
                | "items"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains" => self.visit(value, &format!("{path}/*"), depth + 1),
                "if" | "then" | "else" => self.visit(value, path, depth + 1),
                "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" => {
                    for (_, part) in subschemas(value) {
                        self.visit(part, path, depth + 1);
                    }
                }
                _ => {}
            }
        }
    }

    /// Tests if a value of `schema` can have a secret anywhere. `seen` has the references that were followed.
    fn has_secret(&self, schema: &'a Value, seen: &mut BTreeSet<&'a str>) -> bool {
        let below = |members: &'a serde_json::Map<String, Value>, seen: &mut BTreeSet<&'a str>| {
            let mut kept = members.iter().filter(|(name, _)| !is_aside(name));
            kept.any(|(_, member)| self.has_secret(member, seen))
        };
        match schema {
            Value::Object(members) => {
                is_secret(schema)
                    || members
                        .get("$ref")
                        .and_then(Value::as_str)
                        .is_some_and(|reference| {
                            seen.insert(reference)
                                && self
                                    .target(schema)
                                    .is_some_and(|target| self.has_secret(target, seen))
                        })
                    || below(members, seen)
            }
            Value::Array(items) => items.iter().any(|item| self.has_secret(item, seen)),
            _ => false,
        }
    }

    /// The schema to which `schema` refers, if it is in the same document.
    fn target(&self, schema: &Value) -> Option<&'a Value> {
        let reference = schema.get("$ref")?.as_str()?;
        self.root.pointer(reference.strip_prefix('#')?)
    }
}

/// Keywords whose values are no subschemas in use.
fn is_aside(keyword: &str) -> bool {
    matches!(
        keyword,
        "$defs" | "definitions" | "default" | "examples" | "const" | "enum"
    )
}

fn is_secret(schema: &Value) -> bool {
    schema.get("writeOnly") == Some(&Value::Bool(true))
        || schema.get("format").and_then(Value::as_str) == Some("password")
}

/// The subschemas in the value of a keyword, with their names.
fn subschemas(value: &Value) -> Vec<(Option<&str>, &Value)> {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, part)| (Some(name.as_str()), part))
            .collect(),
        Value::Array(items) => items.iter().map(|part| (None, part)).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(schema: &Value) -> Vec<String> {
        secret_members(schema).into_iter().collect()
    }

    #[test]
    fn marked_members_are_found_wherever_a_schema_has_them() {
        let secret = json!({ "type": "string", "format": "password", "writeOnly": true });
        let rows = [
            (json!({ "pin": secret }), vec!["/pin"]),
            (json!({ "pin": { "writeOnly": true } }), vec!["/pin"]),
            (json!({ "pin": { "format": "password" } }), vec!["/pin"]),
            (json!({ "pin": { "writeOnly": false } }), vec![]),
            (
                json!({ "a/b~c": { "anyOf": [secret, { "type": "null" }] } }),
                vec!["/a~1b~0c"],
            ),
            (
                json!({ "to": { "properties": { "iban": secret, "name": {} } } }),
                vec!["/to/iban"],
            ),
            (json!({ "all": { "items": secret } }), vec!["/all/*"]),
            (
                json!({ "all": { "prefixItems": [{}, secret] } }),
                vec!["/all/1"],
            ),
            (
                json!({ "by": { "additionalProperties": { "properties": { "k": secret } } } }),
                vec!["/by/*/k"],
            ),
            (json!({ "x": { "$ref": "#/$defs/Pin" } }), vec!["/x"]),
            (
                json!({ "x": { "oneOf": [{ "$ref": "#/$defs/Login" }, { "type": "null" }] } }),
                vec!["/x/pin"],
            ),
            (
                json!({ "x": { "default": { "format": "password" }, "enum": [secret] } }),
                vec![],
            ),
        ];
        for (properties, expected) in rows {
            let schema = json!({
                "type": "object",
                "properties": properties,
                "$defs": { "Pin": secret, "Login": { "properties": { "pin": { "$ref": "#/$defs/Pin" } } } },
            });
            assert_eq!(found(&schema), expected, "{properties}");
        }
    }

    #[test]
    fn what_is_too_deep_to_be_named_is_taken_whole() {
        let node = json!({
            "properties": {
                "next": { "$ref": "#/$defs/Node" },
                "name": { "type": "string" },
                "pin": { "writeOnly": true },
            }
        });
        let schema = json!({ "properties": { "top": { "$ref": "#/$defs/Node" } }, "$defs": { "Node": node } });
        let found = found(&schema);
        assert!(found.contains(&"/top/pin".to_owned()), "{found:?}");
        let longest = found.iter().max_by_key(|it| it.len()).unwrap();
        assert!(longest.ends_with("/next"), "{found:?}");
        let harmless = json!({
            "properties": { "top": { "$ref": "#/$defs/Node" } },
            "$defs": { "Node": { "properties": { "next": { "$ref": "#/$defs/Node" } } }, "Pin": { "writeOnly": true } },
        });
        assert_eq!(secret_members(&harmless).len(), 0, "nothing leads to it");
    }
}
