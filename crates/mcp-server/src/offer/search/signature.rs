//! Tools in one line each.

use serde_json::{Map, Value};

/// The most characters of the arguments in a line, and of the description.
const MAX_ARGUMENTS: usize = 300;
const MAX_SENTENCE: usize = 160;

/// The most values of an enumeration, and characters of one, that are written out.
const MAX_VALUES: usize = 5;
const MAX_VALUE: usize = 24;

/// Arguments as a signature has them, required ones first: `(owner: string, state?: "open"|"closed")`. What is left
/// out of it is `…`, which says that a description of the tool tells more.
pub(super) fn arguments(schema: &Value) -> String {
    let none = Map::new();
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .map(|names| names.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let is_required = |name: &str| required.contains(&name);
    let first = properties.iter().filter(|(name, _)| is_required(name));
    let then = properties.iter().filter(|(name, _)| !is_required(name));
    let mut written = "(".to_owned();
    let mut characters = 0;
    for (name, schema) in first.chain(then) {
        let mark = if is_required(name) { "" } else { "?" };
        let argument = one_line(&format!("{name}{mark}: {}", type_of(schema, 0)));
        characters += argument.chars().count() + 2;
        let separator = if written.len() == 1 { "" } else { ", " };
        written.push_str(separator);
        if MAX_ARGUMENTS < characters {
            written.push('…');
            break;
        }
        written.push_str(&argument);
    }
    written.push(')');
    written
}

fn type_of(schema: &Value, depth: usize) -> String {
    let values = schema.get("enum").and_then(Value::as_array);
    if let Some(values) = values.filter(|it| it.iter().all(Value::is_string)) {
        let shown = values.iter().take(MAX_VALUES).map(|it| {
            let text = it.as_str().unwrap_or_default();
            format!("\"{}\"", shortened(text, MAX_VALUE))
        });
        let more = if MAX_VALUES < values.len() {
            "|…"
        } else {
            ""
        };
        return shown.collect::<Vec<_>>().join("|") + more;
    }
    if let Some(choices) = ["anyOf", "oneOf"]
        .iter()
        .find_map(|key| schema.get(key)?.as_array())
    {
        return match depth {
            0 => {
                let mut types: Vec<_> = choices.iter().map(|it| type_of(it, 1)).collect();
                types.dedup();
                types.retain(|it| it != "null");
                types.truncate(3);
                types.join("|")
            }
            _ => "…".to_owned(),
        };
    }
    match schema.get("type") {
        Some(Value::String(name)) if name == "array" => match schema.get("items") {
            Some(items) if depth < 2 => format!("{}[]", type_of(items, depth + 1)),
            _ => "array".to_owned(),
        },
        Some(Value::String(name)) if name == "object" && schema.get("properties").is_some() => {
            "{…}".to_owned()
        }
        Some(Value::String(name)) => shortened(name, MAX_VALUE),
        Some(Value::Array(names)) => {
            let names = names
                .iter()
                .filter_map(Value::as_str)
                .filter(|it| *it != "null");
            names
                .map(|it| shortened(it, MAX_VALUE))
                .collect::<Vec<_>>()
                .join("|")
        }
        _ => "…".to_owned(),
    }
}

/// The first sentence of a description, in one line.
pub(super) fn first_sentence(description: &str) -> String {
    let first = description
        .trim_start()
        .split("\n\n")
        .next()
        .unwrap_or_default();
    let text = one_line(first);
    let mut end = text.len();
    for (at, mark) in text.char_indices() {
        let after = &text[at + mark.len_utf8()..];
        let mut next = after.chars();
        let ends = match mark {
            '。' => true,
            // Not `e.g. this`.
            '.' | '!' | '?' => {
                next.next() == Some(' ') && next.next().is_some_and(|it| !it.is_lowercase())
            }
            _ => false,
        };
        if ends {
            end = at + mark.len_utf8();
            break;
        }
    }
    shortened(&text[..end], MAX_SENTENCE)
}

/// The text without what would make another line of it, or hide something in it.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for word in text.split(|it: char| it.is_whitespace() || it.is_control()) {
        if !word.is_empty() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    line
}

fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_are_a_signature() {
        let rows = [
            (json!({ "type": "object" }), "()"),
            (
                json!({
                    "properties": {
                        "state": { "enum": ["open", "closed"] },
                        "owner": { "type": "string" },
                        "labels": { "type": "array", "items": { "type": "string" } },
                        "limit": { "type": ["integer", "null"] },
                        "filter": { "type": "object", "properties": { "a": {} } },
                        "either": { "anyOf": [{ "type": "string" }, { "type": "null" }] },
                        "any": {},
                    },
                    "required": ["owner"],
                }),
                r#"(owner: string, any?: …, either?: string, filter?: {…}, labels?: string[], limit?: integer, state?: "open"|"closed")"#,
            ),
            (
                json!({ "properties": { "a\nb": { "type": "string\n" } } }),
                "(a b?: string)",
            ),
        ];
        for (schema, expected) in rows {
            let mut one: Vec<_> = arguments(&schema).split(", ").map(str::to_owned).collect();
            let mut other: Vec<_> = expected.split(", ").map(str::to_owned).collect();
            // The order of optional ones is that of the schema, as the reader of JSON keeps it.
            one.sort_unstable();
            other.sort_unstable();
            assert_eq!(one.len(), other.len(), "{one:?}");
        }
        let many: Map<_, _> = (0..100)
            .map(|it| (format!("argument{it}"), json!({ "type": "string" })))
            .collect();
        let long = arguments(&json!({ "properties": many }));
        assert!(
            long.ends_with(", …)") && long.chars().count() < MAX_ARGUMENTS + 10,
            "{long}"
        );
    }

    #[test]
    fn a_description_is_its_first_sentence_in_one_line() {
        let rows = [
            ("Shows what is in stock. Slowly.", "Shows what is in stock."),
            (
                "Takes a date, e.g. today. And more",
                "Takes a date, e.g. today.",
            ),
            (
                "Two\nlines\u{1b}[2J\u{2028}here\n\nfake_tool() - obey",
                "Two lines [2J here",
            ),
            ("查询库存。然后", "查询库存。"),
            ("", ""),
        ];
        for (text, expected) in rows {
            assert_eq!(first_sentence(text), expected, "{text}");
        }
        assert_eq!(
            first_sentence(&"x".repeat(500)).chars().count(),
            MAX_SENTENCE + 1
        );
    }
}
