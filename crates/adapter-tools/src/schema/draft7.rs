//! Schemas of draft 7, which many servers write, in the words of 2020-12.

use serde_json::{Map, Value};

/// Names of the dialect, without the empty fragment.
pub(super) const NAMES: [&str; 2] = [
    "http://json-schema.org/draft-07/schema",
    "https://json-schema.org/draft-07/schema",
];

/// The same schema in 2020-12. Where a reference leads into what has another name there, it has no target
/// afterwards, and the schema is refused. The caller has bounded its depth.
pub(super) fn translated(schema: &Value) -> Value {
    let mut translated = subschema(schema);
    if let Value::Object(root) = &mut translated {
        root.remove("$schema");
        // The protocol wants it at the root, beside a reference too.
        if let Some(kind) = schema.get("type") {
            root.insert("type".to_owned(), kind.clone());
        }
    }
    translated
}

fn subschema(schema: &Value) -> Value {
    let Value::Object(members) = schema else {
        return schema.clone();
    };
    // Everything beside a reference is ignored, apart from what others refer to.
    if members.contains_key("$ref") {
        let kept = ["$ref", "$defs", "definitions"].into_iter();
        let kept =
            kept.filter_map(|name| Some((name.to_owned(), member(name, members.get(name)?))));
        return Value::Object(kept.collect());
    }
    let mut all = Map::new();
    for (name, value) in members {
        match (name.as_str(), value) {
            ("items", Value::Array(each)) => {
                all.insert(
                    "prefixItems".to_owned(),
                    each.iter().map(subschema).collect(),
                );
                if let Some(rest) = members.get("additionalItems") {
                    all.insert("items".to_owned(), subschema(rest));
                }
            }
            // Without effect unless `items` is an array.
            ("additionalItems", _) => {}
            ("dependencies", Value::Object(dependencies)) => {
                let (required, schemas): (Map<_, _>, Map<_, _>) = dependencies
                    .iter()
                    .map(|(name, value)| (name.clone(), subschema(value)))
                    .partition(|(_, value)| value.is_array());
                all.insert("dependentRequired".to_owned(), Value::Object(required));
                all.insert("dependentSchemas".to_owned(), Value::Object(schemas));
            }
            _ => {
                all.insert(name.clone(), member(name, value));
            }
        }
    }
    Value::Object(all)
}

fn member(name: &str, value: &Value) -> Value {
    match (name, value) {
        (
            "properties" | "patternProperties" | "definitions" | "$defs",
            Value::Object(subschemas),
        ) => {
            let each = subschemas.iter();
            each.map(|(name, value)| (name.clone(), subschema(value)))
                .collect()
        }
        ("allOf" | "anyOf" | "oneOf", Value::Array(subschemas)) => {
            subschemas.iter().map(subschema).collect()
        }
        (
            "items"
            | "additionalProperties"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "propertyNames",
            _,
        ) => subschema(value),
        _ => value.clone(),
    }
}
