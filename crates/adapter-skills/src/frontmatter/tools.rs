//! `tools` and `tools_schema`: the parameters a skill declares for its tools.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::fields::{BadField, IGNORED};

/// One tool as a skill declares it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolDeclaration {
    /// `description`.
    pub description: Option<String>,
    /// A JSON Schema whose root is an object; absent if the skill says nothing about parameters.
    /// Written out in full even where the file uses the short form, in which every parameter is
    /// required. Not checked against any meta-schema here.
    pub parameters: Option<Value>,
    /// `binding` as it is.
    pub binding: Option<Value>,
}

impl ToolDeclaration {
    /// The JSON Schema that `parameters` is or stands for: a map of names to types, or a list of
    /// names, in which every parameter is required. `None` if it is nothing of that kind.
    pub fn schema_of(parameters: &Value) -> Option<Value> {
        match parameters {
            Value::Object(map) if is_schema(map) => Some(rooted(map.clone())),
            Value::Object(map) => Some(expanded(map.iter())),
            Value::Array(list) => Some(expanded_list(list)),
            _ => None,
        }
    }
}

/// Keys of a tool that are no parameters in the form where parameters stand beside them.
const RESERVED: [&str; 7] = [
    "name",
    "description",
    "parameters",
    "params",
    "binding",
    "returns",
    "output_schema",
];

/// The first of `metadata.tools_schema`, `tools_schema`, `metadata.tools` and `tools` that declares
/// any tool.
pub(super) fn read(
    top: &Map<String, Value>,
    complaints: &mut Vec<BadField>,
) -> BTreeMap<String, ToolDeclaration> {
    let metadata = top.get("metadata").and_then(Value::as_object);
    let places = [
        (metadata, "tools_schema", "metadata.tools_schema"),
        (Some(top), "tools_schema", "tools_schema"),
        (metadata, "tools", "metadata.tools"),
        (Some(top), "tools", "tools"),
    ];
    for (map, key, place) in places {
        let Some(value) = map.and_then(|map| map.get(key)) else {
            continue;
        };
        let tools = declarations(value, place, complaints);
        if !tools.is_empty() {
            return tools;
        }
    }
    BTreeMap::new()
}

/// A map by tool name, or a list of maps that have a `name`, or of names.
fn declarations(
    value: &Value,
    place: &str,
    complaints: &mut Vec<BadField>,
) -> BTreeMap<String, ToolDeclaration> {
    let mut tools = BTreeMap::new();
    let mut complain = |name: &str| {
        complaints.push(BadField {
            field: format!("{place}{name}"),
            expected: "a map of tools".into(),
            consequence: IGNORED,
            line: None,
        });
    };
    match value {
        Value::Object(map) => {
            for (name, tool) in map {
                match tool {
                    Value::Object(tool) => drop(tools.insert(name.clone(), declaration(tool))),
                    Value::Null => drop(tools.insert(name.clone(), ToolDeclaration::default())),
                    Value::String(text) => {
                        let described = ToolDeclaration {
                            description: Some(text.clone()),
                            ..ToolDeclaration::default()
                        };
                        tools.insert(name.clone(), described);
                    }
                    _ => complain(&format!(".{name}")),
                }
            }
        }
        Value::Array(list) => {
            for (index, tool) in list.iter().enumerate() {
                let name = match tool {
                    Value::String(name) => Some(name.as_str()),
                    Value::Object(map) => map.get("name").and_then(Value::as_str),
                    _ => None,
                };
                match (name, tool) {
                    (Some(name), Value::Object(map)) => {
                        tools.insert(name.to_owned(), declaration(map));
                    }
                    (Some(name), _) => {
                        tools.insert(name.to_owned(), ToolDeclaration::default());
                    }
                    (None, _) => complain(&format!("[{index}]")),
                }
            }
        }
        Value::Null => {}
        // `tools: Read, Grep` is how other hosts name tools that a skill may use.
        Value::String(_) => {}
        _ => complain(""),
    }
    tools
}

fn declaration(tool: &Map<String, Value>) -> ToolDeclaration {
    let given = ["parameters", "params"]
        .into_iter()
        .find_map(|key| tool.get(key).filter(|value| !value.is_null()));
    let parameters = match given.and_then(ToolDeclaration::schema_of) {
        Some(schema) => Some(schema),
        None => {
            let inline: Vec<_> = tool
                .iter()
                .filter(|(key, _)| !RESERVED.contains(&key.as_str()))
                .collect();
            (!inline.is_empty()).then(|| expanded(inline.into_iter()))
        }
    };
    ToolDeclaration {
        description: tool
            .get("description")
            .and_then(Value::as_str)
            .map(|text| text.trim().to_owned()),
        parameters,
        binding: tool.get("binding").cloned(),
    }
}

/// Returns true if a map under `parameters` is a JSON Schema, and not a map of parameters. A
/// parameter may well be called `type`, but its type is hardly ever `object`.
fn is_schema(map: &Map<String, Value>) -> bool {
    map.get("type").and_then(Value::as_str) == Some("object")
        || map
            .get("properties")
            .and_then(Value::as_object)
            .is_some_and(|properties| properties.values().all(Value::is_object))
        || ["$schema", "$ref", "$defs", "allOf", "anyOf", "oneOf"]
            .iter()
            .any(|key| map.contains_key(*key))
}

/// MCP wants `type: object` at the root.
fn rooted(mut schema: Map<String, Value>) -> Value {
    schema.insert("type".to_owned(), json!("object"));
    Value::Object(schema)
}

/// `order_id: string` for each parameter, or its own schema, or a list's items' type.
fn expanded<'a>(parameters: impl Iterator<Item = (&'a String, &'a Value)>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (name, value) in parameters {
        properties.insert(name.clone(), parameter(value));
        required.push(Value::String(name.clone()));
    }
    json!({"type": "object", "properties": properties, "required": required})
}

/// Parameters as a list of names, or of maps that have a `name`.
fn expanded_list(list: &[Value]) -> Value {
    let mut parameters = Map::new();
    for item in list {
        match item {
            Value::String(name) => drop(parameters.insert(name.clone(), Value::Null)),
            Value::Object(map) => {
                if let Some(name) = map.get("name").and_then(Value::as_str) {
                    let mut rest = map.clone();
                    rest.remove("name");
                    rest.remove("required");
                    parameters.insert(name.to_owned(), Value::Object(rest));
                }
            }
            _ => {}
        }
    }
    expanded(parameters.iter())
}

fn parameter(value: &Value) -> Value {
    match value {
        Value::String(text) => named_type(text).unwrap_or_else(|| json!({"description": text})),
        Value::Object(schema) => {
            let mut schema = schema.clone();
            // `required: true` beside the type is no JSON Schema, and says what holds anyway.
            if schema.get("required").is_some_and(Value::is_boolean) {
                schema.remove("required");
            }
            let named = schema
                .get("type")
                .and_then(Value::as_str)
                .and_then(named_type);
            if let Some(Value::Object(named)) = named {
                schema.extend(named);
            }
            Value::Object(schema)
        }
        _ => json!({}),
    }
}

/// The schema of a type by name, in the words of JSON Schema or of Python.
fn named_type(text: &str) -> Option<Value> {
    let text = text.trim();
    if let Some(item) = text.strip_suffix("[]") {
        return Some(json!({"type": "array", "items": named_type(item)?}));
    }
    if let Some((list, item)) = text.split_once('[')
        && matches!(list, "list" | "List" | "array")
    {
        let items = named_type(item.strip_suffix(']')?)?;
        return Some(json!({"type": "array", "items": items}));
    }
    let name = match text {
        "string" | "str" => "string",
        "integer" | "int" => "integer",
        "number" | "float" => "number",
        "boolean" | "bool" => "boolean",
        "array" | "list" => "array",
        "object" | "dict" => "object",
        "null" => "null",
        "any" => return Some(json!({})),
        _ => return None,
    };
    Some(json!({"type": name}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_value(value: Value) -> BTreeMap<String, ToolDeclaration> {
        let Value::Object(map) = value else {
            panic!("a map is needed")
        };
        read(&map, &mut Vec::new())
    }

    #[test]
    fn precedence_is_metadata_schema_first() {
        let tool = |text: &str| json!({"t": {"description": text}});
        let mut top = json!({
            "metadata": {"tools_schema": tool("1"), "tools": tool("3")},
            "tools_schema": tool("2"),
            "tools": tool("4"),
        });
        let description = |top: &Value| read_value(top.clone())["t"].description.clone();
        assert_eq!(description(&top).as_deref(), Some("1"));
        top["metadata"]["tools_schema"] = json!({});
        assert_eq!(description(&top).as_deref(), Some("2"));
        top["tools_schema"] = Value::Null;
        assert_eq!(description(&top).as_deref(), Some("3"));
        top["metadata"] = Value::Null;
        assert_eq!(description(&top).as_deref(), Some("4"));
    }

    #[test]
    fn parameters_are_written_out_in_full() {
        let object = |properties: Value, required: Value| {
            Some(json!({"type": "object", "properties": properties, "required": required}))
        };
        let rows = [
            (
                json!({"params": {"order_id": "string"}}),
                object(json!({"order_id": {"type": "string"}}), json!(["order_id"])),
            ),
            (
                json!({"description": "d", "a": "int", "b": "list[str]", "c": "float[]"}),
                object(
                    json!({
                        "a": {"type": "integer"},
                        "b": {"type": "array", "items": {"type": "string"}},
                        "c": {"type": "array", "items": {"type": "number"}},
                    }),
                    json!(["a", "b", "c"]),
                ),
            ),
            (
                json!({"parameters": {"a": {"type": "int", "minimum": 1, "required": true}}}),
                object(
                    json!({"a": {"type": "integer", "minimum": 1}}),
                    json!(["a"]),
                ),
            ),
            (
                json!({"parameters": {"type": "string"}}),
                object(json!({"type": {"type": "string"}}), json!(["type"])),
            ),
            (
                json!({"parameters": {"a": "订单编号"}}),
                object(json!({"a": {"description": "订单编号"}}), json!(["a"])),
            ),
            (
                json!({"parameters": [{"name": "a", "type": "bool"}, "b"]}),
                object(
                    json!({"a": {"type": "boolean"}, "b": {}}),
                    json!(["a", "b"]),
                ),
            ),
            (json!({"parameters": {}}), object(json!({}), json!([]))),
            (
                json!({"parameters": {"type": "object", "properties": {"a": {}}}}),
                Some(json!({"type": "object", "properties": {"a": {}}})),
            ),
            (
                json!({"parameters": {"properties": {"a": {}}, "required": ["a"]}}),
                Some(json!({"type": "object", "properties": {"a": {}}, "required": ["a"]})),
            ),
            (
                json!({"description": "d", "binding": {"type": "http"}}),
                None,
            ),
        ];
        for (tool, expected) in rows {
            let tools = read_value(json!({"tools": {"t": tool}}));
            assert_eq!(tools["t"].parameters, expected, "{tool}");
        }
    }

    #[test]
    fn lists_of_tools_are_understood() {
        let tools = read_value(json!({"tools": ["a", {"name": "b", "x": "str"}, 7]}));
        assert_eq!(tools.keys().collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(tools["a"], ToolDeclaration::default());
        let properties = &tools["b"].parameters.as_ref().unwrap()["properties"];
        assert_eq!(*properties, json!({"x": {"type": "string"}}));
    }
}
