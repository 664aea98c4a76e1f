//! Schemas in the words that all validators of clients understand.

use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Keywords whose value is a schema, or (`items` of old) a list of them.
const ONE: [&str; 13] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "dependencies",
];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is a map of schemas.
const MAP: [&str; 5] = [
    "properties",
    "patternProperties",
    "dependentSchemas",
    "$defs",
    "definitions",
];
/// Keywords that say something about values of one type only, by that type.
const OF_TYPE: [(&str, &[&str]); 4] = [
    (
        "string",
        &[
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "contentEncoding",
            "contentMediaType",
            "contentSchema",
        ],
    ),
    (
        "number",
        &[
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
        ],
    ),
    (
        "array",
        &[
            "items",
            "prefixItems",
            "additionalItems",
            "contains",
            "minContains",
            "maxContains",
            "minItems",
            "maxItems",
            "uniqueItems",
        ],
    ),
    (
        "object",
        &[
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
            "required",
            "dependentRequired",
            "dependentSchemas",
            "minProperties",
            "maxProperties",
        ],
    ),
];
/// Keywords that say nothing about what values are valid, and so stay where they are.
const NOTES: [&str; 11] = [
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "$comment",
    "$defs",
    "definitions",
    "x-mcp-header",
];
/// Formats of numbers that clients know, from OpenAPI.
const NUMBER_FORMATS: [&str; 4] = ["int32", "int64", "float", "double"];
/// The deepest that schemas are rewritten; deeper ones are refused when they are compiled.
const MAX_DEPTH: usize = 128;

/// `schema` without lists of types and without OpenAPI's `nullable`, which some validators refuse: a
/// choice (`anyOf`) takes their place.
pub(crate) fn portable(mut schema: Value) -> Value {
    let moves = !has_deep_references(&schema, 0);
    rewrite(&mut schema, moves, 0);
    schema
}

/// True if a reference leads to something other than a definition, which must then not be moved.
fn has_deep_references(value: &Value, depth: usize) -> bool {
    if MAX_DEPTH < depth {
        return false;
    }
    match value {
        Value::Array(items) => items
            .iter()
            .any(|item| has_deep_references(item, depth + 1)),
        Value::Object(members) => {
            members.iter().any(
                |(name, member)| match member.as_str().filter(|_| name == "$ref") {
                    Some(reference) => {
                        let path = reference
                            .strip_prefix("#/$defs/")
                            .or_else(|| reference.strip_prefix("#/definitions/"));
                        path.map_or(reference.contains('/'), |name| name.contains('/'))
                    }
                    None => has_deep_references(member, depth + 1),
                },
            )
        }
        _ => false,
    }
}

fn rewrite(schema: &mut Value, moves: bool, depth: usize) {
    let Value::Object(map) = schema else {
        return;
    };
    if MAX_DEPTH < depth {
        return;
    }
    for (keyword, value) in map.iter_mut() {
        let keyword = keyword.as_str();
        match value {
            Value::Array(items) if LIST.contains(&keyword) || ONE.contains(&keyword) => {
                for item in items {
                    rewrite(item, moves, depth + 1);
                }
            }
            Value::Object(members) if MAP.contains(&keyword) || keyword == "dependencies" => {
                for member in members.values_mut() {
                    rewrite(member, moves, depth + 1);
                }
            }
            Value::Object(_) if ONE.contains(&keyword) => rewrite(value, moves, depth + 1),
            _ => {}
        }
    }
    let is_nullable = match map.get("nullable") {
        Some(&Value::Bool(is_nullable)) => {
            map.remove("nullable");
            is_nullable
        }
        _ => false,
    };
    let is_number = matches!(
        map.get("type").and_then(Value::as_str),
        Some("integer" | "number")
    );
    let format = map.get("format").and_then(Value::as_str);
    if is_number && format.is_some_and(|format| !NUMBER_FORMATS.contains(&format)) {
        // Such as the `uint32` of a Rust type, over which strict validators stumble.
        map.remove("format");
    }
    // What the protocol asks of the root is not ours to widen.
    if depth == 0 {
        return;
    }
    let mut kinds: Vec<String> = match map.get("type") {
        Some(Value::String(kind)) => vec![kind.clone()],
        Some(Value::Array(kinds)) => {
            let kinds: Option<Vec<_>> = kinds
                .iter()
                .map(|kind| Some(kind.as_str()?.to_owned()))
                .collect();
            match kinds {
                Some(kinds) if !kinds.is_empty() => kinds,
                // No schema; it is refused when it is compiled.
                _ => return,
            }
        }
        Some(_) => return,
        None => {
            if is_nullable {
                admit_null(map);
            }
            return;
        }
    };
    if is_nullable {
        kinds.push("null".to_owned());
        if let Some(Value::Array(values)) = map.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
    }
    let mut seen = BTreeSet::new();
    kinds.retain(|kind| seen.insert(kind.clone()));
    match &kinds[..] {
        [kind] => drop(map.insert("type".to_owned(), kind.as_str().into())),
        _ => choose(map, &kinds, moves),
    }
}

/// Puts a choice in the place of a list of types.
fn choose(map: &mut Map<String, Value>, kinds: &[String], moves: bool) {
    map.remove("type");
    let mut branches: Vec<_> = kinds
        .iter()
        .map(|kind| Map::from_iter([("type".to_owned(), Value::from(kind.as_str()))]))
        .collect();
    if moves {
        for (kind, keywords) in OF_TYPE {
            for &keyword in keywords {
                let Some(value) = map.remove(keyword) else {
                    continue;
                };
                for (branch, name) in branches.iter_mut().zip(kinds) {
                    if name == kind || (name == "integer" && kind == "number") {
                        branch.insert(keyword.to_owned(), value.clone());
                    }
                }
            }
        }
        if let Some(Value::Array(values)) = map.get("enum") {
            let values = values.clone();
            for (branch, kind) in branches.iter_mut().zip(kinds) {
                let fitting = values.iter().filter(|value| is_of(value, kind)).cloned();
                branch.insert("enum".to_owned(), fitting.collect());
            }
            let is_possible = |branch: &Map<String, Value>| branch["enum"] != json!([]);
            if branches.iter().any(is_possible) {
                branches.retain(is_possible);
                map.remove("enum");
            }
            for branch in &mut branches {
                // `null` is the only one of its type.
                if branch["type"] == "null" || branch["enum"] == json!([]) {
                    branch.remove("enum");
                }
            }
        }
    }
    if let [only] = &mut branches[..] {
        map.append(only);
        return;
    }
    let branches: Value = branches.into_iter().map(Value::Object).collect();
    if map.contains_key("anyOf") {
        let all = map.entry("allOf").or_insert_with(|| json!([]));
        if let Value::Array(all) = all {
            all.push(json!({"anyOf": branches}));
        }
    } else {
        map.insert("anyOf".to_owned(), branches);
    }
}

/// Adds null to what a schema without a type admits.
fn admit_null(map: &mut Map<String, Value>) {
    if map.keys().all(|keyword| NOTES.contains(&keyword.as_str())) {
        return;
    }
    let null = json!({"type": "null"});
    let mut rest = Map::new();
    for keyword in map.keys().cloned().collect::<Vec<_>>() {
        if !NOTES.contains(&keyword.as_str())
            && let Some(value) = map.remove(&keyword)
        {
            rest.insert(keyword, value);
        }
    }
    let branches = match rest.remove("anyOf") {
        Some(Value::Array(mut branches)) if rest.is_empty() => {
            if !branches.contains(&null) {
                branches.push(null);
            }
            branches
        }
        other => {
            rest.extend(other.map(|branches| ("anyOf".to_owned(), branches)));
            if rest.len() == 1
                && let Some(Value::Array(values)) = rest.get_mut("enum")
            {
                values.retain(|value| !value.is_null());
            }
            vec![Value::Object(rest), null]
        }
    };
    map.insert("anyOf".to_owned(), branches.into());
}

fn is_of(value: &Value, kind: &str) -> bool {
    match value {
        Value::Null => kind == "null",
        Value::Bool(_) => kind == "boolean",
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
        Value::Number(number) => {
            kind == "number"
                || kind == "integer" && number.as_f64().is_none_or(|number| number.fract() == 0.0)
        }
    }
}

/// Takes out of `value` every member that is null where `schema` has it as an optional property that
/// null does not suit. Returns whether there were any.
///
/// Removes nulls that count as left out. A member under alternatives is removed if any of them asks for
/// that: the values did not fit as they were, and are checked again afterwards.
pub(crate) fn take_out_nulls(value: &mut Value, schema: &Value) -> bool {
    let mut removal = Removal {
        root: schema,
        steps: MAX_REMOVAL_STEPS,
        found: false,
    };
    removal.visit(value, schema, 0);
    removal.found
}

/// The most pairs of subschema and value that are looked at for nulls.
const MAX_REMOVAL_STEPS: usize = 10_000;

struct Removal<'s> {
    root: &'s Value,
    steps: usize,
    found: bool,
}

impl Removal<'_> {
    /// `in_place` counts subschemas of one value, so that references in a circle end.
    fn visit(&mut self, value: &mut Value, schema: &Value, in_place: usize) {
        let Some(schema) = schema.as_object() else {
            return;
        };
        if !matches!(value, Value::Object(_) | Value::Array(_)) || self.steps == 0 || 16 < in_place
        {
            return;
        }
        self.steps -= 1;
        if let Some(target) = follow(self.root, schema.get("$ref")) {
            self.visit(value, target, in_place + 1);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for branch in schema
                .get(keyword)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.visit(value, branch, in_place + 1);
            }
        }
        for keyword in ["then", "else"] {
            if let Some(branch) = schema.get(keyword) {
                self.visit(value, branch, in_place + 1);
            }
        }
        match value {
            Value::Object(members) => self.members(members, schema),
            Value::Array(items) => {
                let prefix = schema.get("prefixItems").and_then(Value::as_array);
                let prefix = prefix.map_or(&[][..], Vec::as_slice);
                for (index, item) in items.iter_mut().enumerate() {
                    if let Some(schema) = prefix.get(index).or_else(|| schema.get("items")) {
                        self.visit(item, schema, 0);
                    }
                }
            }
            _ => {}
        }
    }

    fn members(&mut self, members: &mut Map<String, Value>, schema: &Map<String, Value>) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|all| all.iter().any(|it| it == name));
        members.retain(|name, member| {
            let property = properties.and_then(|all| all.get(name));
            let Some(property) = property else {
                if let Some(rest) = schema.get("additionalProperties") {
                    self.visit(member, rest, 0);
                }
                return true;
            };
            if member.is_null() && !is_required(name) && !admits_null(self.root, property, 0) {
                self.found = true;
                return false;
            }
            self.visit(member, property, 0);
            true
        });
    }
}

/// True if `schema` has a property `name` for the object that it is about, itself or in a part that is about the same
/// object.
pub(crate) fn names(schema: &Value, name: &str) -> bool {
    names_at(schema, schema, name, 0)
}

fn names_at(root: &Value, schema: &Value, name: &str, depth: usize) -> bool {
    let Some(schema) = schema.as_object().filter(|_| depth <= 16) else {
        return false;
    };
    let part_names = |part: &Value| names_at(root, part, name, depth + 1);
    let properties = schema.get("properties").and_then(Value::as_object);
    let lists = ["allOf", "anyOf", "oneOf"];
    let mut lists = lists.iter().filter_map(|it| schema.get(*it)?.as_array());
    let mut parts = ["if", "then", "else"].iter();
    properties.is_some_and(|all| all.contains_key(name))
        || lists.any(|list| list.iter().any(part_names))
        || parts.any(|it| schema.get(*it).is_some_and(part_names))
        || follow(root, schema.get("$ref")).is_some_and(part_names)
}

fn follow<'s>(root: &'s Value, reference: Option<&Value>) -> Option<&'s Value> {
    let pointer = reference?.as_str()?.strip_prefix('#')?;
    root.pointer(pointer)
}

/// True if null fits `schema`, judged by types, values and choices.
fn admits_null(root: &Value, schema: &Value, depth: usize) -> bool {
    let Some(schema) = schema.as_object() else {
        return schema != &Value::Bool(false);
    };
    if 16 < depth {
        return true;
    }
    let admits = |schema: &Value| admits_null(root, schema, depth + 1);
    let branches = |keyword: &str| schema.get(keyword).and_then(Value::as_array);
    let type_fits = match schema.get("type") {
        Some(Value::String(kind)) => kind == "null",
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
        _ => true,
    };
    type_fits
        && schema.get("const").is_none_or(Value::is_null)
        && branches("enum").is_none_or(|values| values.contains(&Value::Null))
        && follow(root, schema.get("$ref")).is_none_or(admits)
        && branches("allOf").is_none_or(|all| all.iter().all(admits))
        && branches("anyOf").is_none_or(|any| any.iter().any(admits))
        && branches("oneOf").is_none_or(|one| one.iter().any(admits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_property(schema: Value) -> Value {
        let whole = json!({"type": "object", "properties": {"x": schema}});
        portable(whole)["properties"]["x"].take()
    }

    #[test]
    fn lists_of_types_and_nullable_become_choices() {
        let rows = [
            (json!({"type": "string"}), json!({"type": "string"})),
            (json!({"type": ["string"]}), json!({"type": "string"})),
            (
                json!({"type": "integer", "format": "uint32", "minimum": 0}),
                json!({"type": "integer", "minimum": 0}),
            ),
            (
                json!({"type": "integer", "format": "int64"}),
                json!({"type": "integer", "format": "int64"}),
            ),
            (
                json!({"type": ["string", "null"], "maxLength": 3, "title": "T", "default": null}),
                json!({"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}], "title": "T", "default": null}),
            ),
            (
                json!({"type": ["integer", "string"], "minimum": 1, "pattern": "^a"}),
                json!({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^a"}]}),
            ),
            (
                json!({"type": ["string", "null"], "enum": ["a", null], "description": "d"}),
                json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}], "description": "d"}),
            ),
            (
                json!({"type": ["string", "integer", "null"], "enum": ["a", "b"]}),
                json!({"type": "string", "enum": ["a", "b"]}),
            ),
            (
                json!({"type": ["array", "null"], "items": {"type": ["integer", "null"]}}),
                json!({"anyOf": [
                    {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                    {"type": "null"},
                ]}),
            ),
            (
                json!({"type": ["object", "null"], "properties": {"type": {"type": "string"}}, "required": ["type"]}),
                json!({"anyOf": [
                    {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
                    {"type": "null"},
                ]}),
            ),
            (
                json!({"type": ["string", "null"], "anyOf": [{"minLength": 2}, {"maxLength": 1}]}),
                json!({
                    "anyOf": [{"minLength": 2}, {"maxLength": 1}],
                    "allOf": [{"anyOf": [{"type": "string"}, {"type": "null"}]}],
                }),
            ),
            (
                json!({"type": "string", "nullable": true, "enum": ["a"]}),
                json!({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
            ),
            (
                json!({"type": "string", "nullable": false}),
                json!({"type": "string"}),
            ),
            (
                json!({"nullable": true, "title": "T"}),
                json!({"title": "T"}),
            ),
            (
                json!({"$ref": "#/$defs/A", "nullable": true, "default": null}),
                json!({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "default": null}),
            ),
            (
                json!({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}], "nullable": true}),
                json!({"anyOf": [{"$ref": "#/$defs/A"}, {"type": "null"}]}),
            ),
            (
                json!({"enum": ["a", null], "nullable": true}),
                json!({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
            ),
            // Values are no schemas.
            (
                json!({"default": {"type": ["a", "b"], "nullable": true}}),
                json!({"default": {"type": ["a", "b"], "nullable": true}}),
            ),
        ];
        for (written, expected) in rows {
            assert_eq!(of_property(written.clone()), expected, "{written}");
        }
    }

    #[test]
    fn nothing_is_moved_away_from_a_reference_to_it() {
        let made = portable(json!({"type": "object", "nullable": true, "properties": {
            "a": {"type": ["object", "null"], "properties": {"b": {"type": "string"}}},
            "c": {"$ref": "#/properties/a/properties/b"},
        }}));
        assert_eq!(
            made["properties"]["a"]["anyOf"],
            json!([{"type": "object"}, {"type": "null"}])
        );
        assert!(made.get("nullable").is_none());
        super::super::compile(&made).unwrap();
    }
}
