//! The JSON Schema of the file as editors need it.
//!
//! The one that [`shape`](crate::reading::shape) reads says what a value is once references are followed, and
//! holds notes that are meant for it alone. A file may besides have `${NAME}` where a number or a
//! choice is wanted, and sections with nothing in them.

use serde_json::{Map, Value, json};

use crate::reading::shape::{Unit, file_schema};

/// Pattern of a reference to a value that is stored elsewhere.
const REFERENCE: &str = r"\$\{[^}]+\}";

/// The JSON Schema of the file, for editors.
pub fn schema() -> Value {
    let mut schema = file_schema();
    lighten(&mut schema);
    schema
}

fn lighten(schema: &mut Value) {
    let Value::Object(members) = schema else {
        return;
    };
    members.retain(|name, _| !name.starts_with("x-") && name != "format");
    for name in ["properties", "patternProperties", "$defs"] {
        if let Some(Value::Object(inner)) = members.get_mut(name) {
            for (key, inner) in inner {
                lighten(inner);
                let unit = Unit::of_key(key);
                let text = inner.pointer_mut("/anyOf/1/pattern");
                if let (Some(unit), Some(text)) = (unit, text) {
                    *text = json!(format!("{REFERENCE}|{}", measures(unit)));
                }
            }
        }
    }
    for name in ["additionalProperties", "items"] {
        if let Some(inner) = members.get_mut(name) {
            lighten(inner);
        }
    }
    if let Some(Value::Array(any)) = members.get_mut("anyOf") {
        any.iter_mut().for_each(lighten);
    }
    if is_section(members) {
        members.insert("type".to_owned(), json!(["object", "null"]));
    }
    if wants_no_text(members) {
        *schema = or_reference(std::mem::take(members));
    }
}

/// Numbers with a unit, in either case.
fn measures(unit: Unit) -> String {
    let either = |letter: char| {
        format!(
            "[{}{}]",
            letter.to_ascii_uppercase(),
            letter.to_ascii_lowercase()
        )
    };
    let names = unit.suffixes().iter();
    let names = names.map(|(name, _)| name.chars().map(either).collect::<String>());
    format!("^[0-9]+ ?({})$", names.collect::<Vec<_>>().join("|"))
}

fn is_section(members: &Map<String, Value>) -> bool {
    members.get("type").is_some_and(|it| it == "object")
}

/// A number, a boolean or one of some texts.
fn wants_no_text(members: &Map<String, Value>) -> bool {
    let kinds = match members.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(Value::String(kind)) => vec![kind.as_str()],
        _ => Vec::new(),
    };
    let is_plain = |kind: &&str| matches!(*kind, "integer" | "number" | "boolean");
    let is_choice = members.contains_key("oneOf") || members.contains_key("enum");
    is_choice || (kinds.iter().any(is_plain) && !kinds.contains(&"string"))
}

/// The same, or a reference, with what is said of it on the outside.
fn or_reference(mut members: Map<String, Value>) -> Value {
    let mut outside = Map::new();
    for name in ["description", "default", "title"] {
        outside.extend(members.remove_entry(name));
    }
    let reference = json!({"type": "string", "pattern": REFERENCE});
    outside.insert("anyOf".to_owned(), json!([members, reference]));
    Value::Object(outside)
}
