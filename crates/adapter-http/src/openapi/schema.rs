//! OpenAPI's schemas as JSON Schema 2020-12, complete in themselves.

use super::document::Document;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// As long as a schema stays below so many values, what it refers to is written out in its place,
/// since not every client follows references. Beyond it everything has its one definition.
const MAX_INLINE: usize = 500;
/// A schema with more values is given up.
const MAX_VALUES: usize = 20_000;
/// Deepest nesting of schemas; tools have the bound 64, which counts maps of properties too.
const MAX_DEPTH: usize = 28;
/// So many references that lead back to themselves are found one by one.
const MAX_RESTARTS: usize = 16;

/// Direction of the data that a schema describes, sent or received: some fields exist in one only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Request,
    Response,
}

/// Schemas that share definitions.
#[derive(Debug, PartialEq)]
pub(super) struct Expanded {
    pub(super) schemas: Vec<Value>,
    /// Definitions that `#/$defs/…` refers to.
    pub(super) definitions: Map<String, Value>,
}

/// Translates `schemas` of `document`, or says why that cannot be done.
pub(super) fn expand(
    document: &Document,
    schemas: &[&Value],
    direction: Direction,
) -> Result<Expanded, String> {
    let mut recursive = BTreeSet::new();
    for _ in 0..MAX_RESTARTS {
        let mut walk = Walk::new(document, direction, Some(&recursive));
        match walk.all(schemas) {
            Ok(expanded) => return Ok(expanded),
            Err(Stop::Recursive(reference)) => drop(recursive.insert(reference)),
            Err(Stop::TooLarge) => break,
            Err(Stop::Unsupported(why)) => return Err(why),
        }
    }
    Walk::new(document, direction, None)
        .all(schemas)
        .map_err(|stop| match stop {
            Stop::Unsupported(why) => why,
            Stop::TooLarge | Stop::Recursive(_) => "its schema is too large".to_owned(),
        })
}

enum Stop {
    /// A reference that leads back to itself.
    Recursive(String),
    TooLarge,
    Unsupported(String),
}

struct Walk<'d> {
    document: &'d Document,
    direction: Direction,
    /// References that get definitions; `None`: all do.
    named: Option<&'d BTreeSet<String>>,
    /// References that are being written out.
    open: Vec<String>,
    /// Names of definitions, by reference.
    names: BTreeMap<String, String>,
    /// Names in use.
    taken: BTreeSet<String>,
    /// The last number behind each name that several references would have.
    numbers: BTreeMap<String, usize>,
    /// Definitions that are still to be made.
    waiting: Vec<String>,
    values: usize,
    depth: usize,
}

/// Keywords whose value is a schema.
const ONE: [&str; 11] = [
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
/// Keywords whose value is a list of schemas.
const LIST: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords whose value is a map of schemas.
const MAP: [&str; 3] = ["properties", "patternProperties", "dependentSchemas"];
/// Keywords whose value is taken as it is.
const DATA: [&str; 26] = [
    "type",
    "enum",
    "const",
    "default",
    "title",
    "description",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minContains",
    "maxContains",
    "minProperties",
    "maxProperties",
    "required",
    "dependentRequired",
    "deprecated",
    "examples",
];

impl<'d> Walk<'d> {
    fn new(
        document: &'d Document,
        direction: Direction,
        named: Option<&'d BTreeSet<String>>,
    ) -> Self {
        Self {
            document,
            direction,
            named,
            open: Vec::new(),
            names: BTreeMap::new(),
            taken: BTreeSet::new(),
            numbers: BTreeMap::new(),
            waiting: Vec::new(),
            values: 0,
            depth: 0,
        }
    }

    fn all(&mut self, schemas: &[&Value]) -> Result<Expanded, Stop> {
        let schemas = schemas.iter().map(|schema| self.schema(schema));
        let schemas = schemas.collect::<Result<_, _>>()?;
        let mut definitions = Map::new();
        while let Some(reference) = self.waiting.pop() {
            let target = self.target(&reference)?;
            let definition = self.schema(target)?;
            definitions.insert(self.names[&reference].clone(), definition);
        }
        Ok(Expanded {
            schemas,
            definitions,
        })
    }

    fn schema(&mut self, schema: &Value) -> Result<Value, Stop> {
        self.spend(1)?;
        let Some(map) = schema.as_object() else {
            // `true` and `false` are schemas.
            return match schema {
                Value::Bool(_) => Ok(schema.clone()),
                _ => Err(Stop::Unsupported("a schema in it is none".to_owned())),
            };
        };
        if MAX_DEPTH <= self.depth {
            return Err(Stop::TooLarge);
        }
        self.depth += 1;
        let result = match map.get("$ref") {
            Some(reference) => self.reference(reference, map),
            None => self.keywords(map),
        };
        self.depth -= 1;
        result
    }

    fn reference(&mut self, reference: &Value, map: &Map<String, Value>) -> Result<Value, Stop> {
        let reference = reference.as_str().unwrap_or_default();
        let target = self.target(reference)?;
        let is_named = self.named.is_none_or(|named| named.contains(reference));
        let mut result = if is_named {
            let name = self.name(reference);
            json!({"$ref": format!("#/$defs/{name}")})
        } else {
            if self.open.iter().any(|open| open == reference) {
                return Err(Stop::Recursive(reference.to_owned()));
            }
            self.open.push(reference.to_owned());
            let result = self.schema(target)?;
            self.open.pop();
            result
        };
        // What stands beside a reference is ignored by 3.0 and counts in 3.1; a description is of use
        // either way.
        let is_old = match &self.document.root()["openapi"] {
            Value::String(version) => version.starts_with("3.0"),
            // Without quotes, `3.1` is a number.
            version => !version.to_string().starts_with("3.1"),
        };
        let mut beside: Map<String, Value> = map.clone();
        beside.remove("$ref");
        if is_old {
            beside.retain(|key, _| matches!(key.as_str(), "description" | "nullable"));
        }
        let beside = self.keywords(&beside)?;
        let (Value::Object(result), Value::Object(beside)) = (&mut result, beside) else {
            return Ok(result);
        };
        let is_note = |key: &String| matches!(key.as_str(), "description" | "title" | "default");
        if beside.keys().all(is_note) {
            result.extend(beside);
            return Ok(Value::Object(std::mem::take(result)));
        }
        Ok(json!({"allOf": [result, beside]}))
    }

    fn keywords(&mut self, map: &Map<String, Value>) -> Result<Value, Stop> {
        let mut result = Map::new();
        for (key, value) in map {
            let key = key.as_str();
            if MAP.contains(&key) {
                let members = value.as_object().into_iter().flatten();
                let mut kept = Map::new();
                for (name, member) in members {
                    if key != "properties" || !self.is_of_other_direction(member) {
                        kept.insert(name.clone(), self.schema(member)?);
                    }
                }
                result.insert(key.to_owned(), Value::Object(kept));
            } else if LIST.contains(&key) {
                let items = value.as_array().into_iter().flatten();
                let items = items.map(|item| self.schema(item));
                let items = items.collect::<Result<_, _>>()?;
                result.insert(key.to_owned(), Value::Array(items));
            } else if ONE.contains(&key) {
                result.insert(key.to_owned(), self.schema(value)?);
            } else if DATA.contains(&key) {
                self.spend(weight(value))?;
                result.insert(key.to_owned(), value.clone());
            } else if key == "example" {
                self.spend(weight(value))?;
                result.insert("examples".to_owned(), json!([value]));
            }
            // The rest says nothing about values: `xml`, `discriminator`, extensions. Where
            // `$dynamicRef` stands, anything is let through; the service knows better.
        }
        self.tidy_required(map, &mut result);
        exclusive(&mut result, "minimum", "exclusiveMinimum");
        exclusive(&mut result, "maximum", "exclusiveMaximum");
        if !result.get("examples").is_none_or(Value::is_array) {
            result.remove("examples");
        }
        if map.get("nullable") == Some(&Value::Bool(true)) {
            return Ok(nullable(result));
        }
        Ok(Value::Object(result))
    }

    /// Removes from `required` the members that were left out, and the `required: true` that
    /// authors of 3.0 write.
    fn tidy_required(&self, map: &Map<String, Value>, result: &mut Map<String, Value>) {
        let Some(required) = result.get_mut("required") else {
            return;
        };
        let Some(names) = required.as_array_mut() else {
            result.remove("required");
            return;
        };
        let mut seen = BTreeSet::new();
        names.retain(|name| {
            // Some generators write names twice, which is no schema.
            if !seen.insert(name.to_string()) {
                return false;
            }
            let property = name
                .as_str()
                .and_then(|name| map.get("properties")?.get(name));
            !property.is_some_and(|property| self.is_of_other_direction(property))
        });
    }

    fn is_of_other_direction(&self, property: &Value) -> bool {
        let marked = |value: &Value| match self.direction {
            Direction::Request => value["readOnly"] == Value::Bool(true),
            Direction::Response => value["writeOnly"] == Value::Bool(true),
        };
        marked(property) || self.document.follow(property).is_some_and(marked)
    }

    fn target(&self, reference: &str) -> Result<&'d Value, Stop> {
        let document: &'d Document = self.document;
        document.target(reference).ok_or_else(|| {
            let shown: String = reference.chars().take(100).collect();
            Stop::Unsupported(format!("`$ref: {shown}` leads nowhere in the document"))
        })
    }

    /// The name of the definition of `reference`, which is made later.
    fn name(&mut self, reference: &str) -> String {
        if let Some(name) = self.names.get(reference) {
            return name.clone();
        }
        let last = reference.rsplit('/').next().unwrap_or_default();
        let legal = |c: char| match c {
            c if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') => c,
            _ => '_',
        };
        let base: String = last.chars().take(64).map(legal).collect();
        let mut name = base.clone();
        let number = self.numbers.entry(base.clone()).or_insert(1);
        while !self.taken.insert(name.clone()) {
            *number += 1;
            name = format!("{base}_{number}");
        }
        self.names.insert(reference.to_owned(), name.clone());
        self.waiting.push(reference.to_owned());
        name
    }

    fn spend(&mut self, values: usize) -> Result<(), Stop> {
        self.values += values;
        let most = match self.named {
            Some(_) => MAX_INLINE,
            None => MAX_VALUES,
        };
        match self.values <= most {
            true => Ok(()),
            false => Err(Stop::TooLarge),
        }
    }
}

/// 3.0 has a boolean beside the bound where 2020-12 has a second bound.
fn exclusive(schema: &mut Map<String, Value>, bound: &str, exclusive: &str) {
    match schema.get(exclusive) {
        Some(Value::Bool(true)) => {
            match schema.remove(bound) {
                Some(value) => schema.insert(exclusive.to_owned(), value),
                None => schema.remove(exclusive),
            };
        }
        Some(Value::Bool(false)) => drop(schema.remove(exclusive)),
        _ => {}
    }
}

fn nullable(mut schema: Map<String, Value>) -> Value {
    if let Some(values) = schema.get_mut("enum").and_then(Value::as_array_mut)
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    let kinds = match schema.get("type") {
        Some(Value::String(name)) => json!([name, "null"]),
        Some(Value::Array(names)) if !names.contains(&json!("null")) => {
            names.iter().cloned().chain([json!("null")]).collect()
        }
        Some(kinds) => kinds.clone(),
        // By itself it says nothing, and beside a choice it adds one.
        None if schema.is_empty() => return Value::Object(schema),
        None => return json!({"anyOf": [schema, {"type": "null"}]}),
    };
    schema.insert("type".to_owned(), kinds);
    Value::Object(schema)
}

/// Number of values in `value`, long texts counted as several. Iterative.
fn weight(value: &Value) -> usize {
    const TEXT: usize = 256;
    let mut weight = 0;
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        weight += 1;
        match value {
            Value::String(text) => weight += text.len() / TEXT,
            Value::Array(items) => open.extend(items),
            Value::Object(members) => open.extend(members.values()),
            _ => {}
        }
    }
    weight
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(version: &str, schemas: Value) -> Document {
        let text = json!({"openapi": version, "components": {"schemas": schemas}}).to_string();
        Document::parse(&text).unwrap()
    }

    fn expanded(version: &str, schemas: Value, schema: Value) -> Value {
        let document = document(version, schemas);
        let expanded = expand(&document, &[&schema], Direction::Request).unwrap();
        let mut schema = expanded.schemas[0].clone();
        if !expanded.definitions.is_empty() {
            schema["$defs"] = Value::Object(expanded.definitions);
        }
        schema
    }

    #[test]
    fn the_words_of_3_0_become_those_of_2020_12() {
        let rows = [
            (
                json!({"type": "string", "nullable": true}),
                json!({"type": ["string", "null"]}),
            ),
            (
                json!({"type": "string", "nullable": false}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": "string", "nullable": true, "enum": ["a"]}),
                json!({"type": ["string", "null"], "enum": ["a", null]}),
            ),
            (
                json!({"allOf": [{"type": "string"}], "nullable": true}),
                json!({"anyOf": [{"allOf": [{"type": "string"}]}, {"type": "null"}]}),
            ),
            (
                json!({"minimum": 1, "exclusiveMinimum": true, "maximum": 9, "exclusiveMaximum": false}),
                json!({"exclusiveMinimum": 1, "maximum": 9}),
            ),
            (
                json!({"minimum": 1, "exclusiveMinimum": 3}),
                json!({"minimum": 1, "exclusiveMinimum": 3}),
            ),
            (
                json!({"type": "object", "properties": {"a": {"example": 1, "xml": {}, "x-b": 2}, "nullable": {}}, "discriminator": {}}),
                json!({"type": "object", "properties": {"a": {"examples": [1]}, "nullable": {}}}),
            ),
            (
                json!({"properties": {"id": {"readOnly": true}, "n": {}}, "required": ["id", "n", "n"]}),
                json!({"properties": {"n": {}}, "required": ["n"]}),
            ),
            (
                json!({"type": "string", "required": true}),
                json!({"type": "string"}),
            ),
            (
                json!({"additionalProperties": false}),
                json!({"additionalProperties": false}),
            ),
        ];
        for (schema, expected) in rows {
            assert_eq!(
                expanded("3.0.3", json!({}), schema.clone()),
                expected,
                "{schema}"
            );
        }
    }

    #[test]
    fn references_are_written_out_unless_they_lead_back() {
        let schemas = json!({
            "Name": {"type": "string"},
            "Pet": {"type": "object", "properties": {"name": {"$ref": "#/components/schemas/Name"}}},
            "Tree": {"type": "object", "properties": {"leaf": {"$ref": "#/components/schemas/Name"},
                     "children": {"type": "array", "items": {"$ref": "#/components/schemas/Tree"}}}},
            "A": {"anyOf": [{"$ref": "#/components/schemas/B"}, {"type": "null"}]},
            "B": {"properties": {"a": {"$ref": "#/components/schemas/A"}}},
        });
        let to = |name: &str| json!({"$ref": format!("#/components/schemas/{name}")});
        let pet = expanded("3.1.0", schemas.clone(), to("Pet"));
        assert_eq!(
            pet,
            json!({"type": "object", "properties": {"name": {"type": "string"}}})
        );
        let tree = expanded("3.1.0", schemas.clone(), to("Tree"));
        let definition = json!({"type": "object", "properties": {"leaf": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}}});
        assert_eq!(
            tree,
            json!({"$ref": "#/$defs/Tree", "$defs": {"Tree": definition}})
        );
        let pair = expanded(
            "3.1.0",
            schemas,
            json!({"properties": {"x": to("B"), "y": to("A")}}),
        );
        assert_eq!(pair["$defs"].as_object().unwrap().len(), 1, "{pair}");
    }

    #[test]
    fn what_stands_beside_a_reference_counts_since_3_1() {
        let schemas = json!({"N": {"type": "string", "description": "old"}});
        let beside =
            json!({"$ref": "#/components/schemas/N", "description": "new", "minLength": 2});
        let old = expanded("3.0.0", schemas.clone(), beside.clone());
        assert_eq!(old, json!({"type": "string", "description": "new"}));
        let new = expanded("3.1.0", schemas, beside);
        let first = json!({"type": "string", "description": "old"});
        assert_eq!(
            new,
            json!({"allOf": [first, {"description": "new", "minLength": 2}]})
        );
    }

    #[test]
    fn a_version_without_quotes_is_a_version() {
        for (version, length) in [("3.1", json!(2)), ("3.0", Value::Null)] {
            let text = format!(
                "openapi: {version}\nN: {{type: string}}\nB: {{$ref: '#/N', minLength: 2}}\n"
            );
            let document = Document::parse(&text).unwrap();
            let beside = &document.root()["B"];
            let expanded = expand(&document, &[beside], Direction::Request).unwrap();
            assert_eq!(
                expanded.schemas[0]["allOf"][1]["minLength"], length,
                "{version}"
            );
        }
    }

    #[test]
    fn growth_is_bounded() {
        let mut schemas = Map::new();
        schemas.insert("S0".to_owned(), json!({"type": "string"}));
        for level in 1..30 {
            let below = json!({"$ref": format!("#/components/schemas/S{}", level - 1)});
            let both = json!({"properties": {"a": below, "b": below}});
            schemas.insert(format!("S{level}"), both);
        }
        // 2^29 written out; thirty definitions.
        let all = expanded(
            "3.0.0",
            Value::Object(schemas),
            json!({"$ref": "#/components/schemas/S29"}),
        );
        assert_eq!(all["$defs"].as_object().unwrap().len(), 30);

        let large = json!({"enum": vec![json!("x"); MAX_VALUES + 1]});
        let mut deep = json!({});
        for _ in 0..60 {
            deep = json!({"not": deep});
        }
        let none = document("3.0.0", json!({}));
        for schema in [large, deep] {
            let error = expand(&none, &[&schema], Direction::Request).unwrap_err();
            assert!(error.contains("too large"), "{error}");
        }
        for (schema, named) in [
            (json!({"$ref": "other.yaml#/A"}), "other.yaml"),
            (json!({"$ref": "#/nothing"}), "leads nowhere"),
            (json!({"items": 7}), "none"),
        ] {
            let error = expand(&none, &[&schema], Direction::Request).unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn many_definitions_of_one_name_are_told_apart_in_time() {
        const MANY: usize = 4000;
        let number = |n: usize| (n.to_string(), json!({"X": {"type": "string"}}));
        let places: Map<String, Value> = (0..MANY).map(number).collect();
        let to = |n: usize| json!({"$ref": format!("#/components/schemas/{n}/X")});
        let all = json!({"anyOf": (0..MANY).map(to).collect::<Vec<_>>()});
        let all = expanded("3.1.0", places.into(), all);
        assert_eq!(all["$defs"].as_object().unwrap().len(), MANY);
    }
}
