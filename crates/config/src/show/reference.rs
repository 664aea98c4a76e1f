//! All keys in Markdown, made from the types.

use std::fmt::Write as _;

use serde_json::Value;

use crate::live::is_live;
use crate::reading::shape::{Keys, ROOT_KEY, Shape, file_schema, root};

const TOP: &str = "\
# Configuration reference

Every key, made from the types that the server reads its configuration into; `owlclaw-mcp config
reference` prints it. How values come together, and what mistakes look like, says
[config.md](config.md).

Keys stand under `mcp_server`; `NAME` and `[]` are what you choose and each element of a list. In the
environment `http.port` is `MCP_SERVER_HTTP__PORT`. *live* means that a change takes effect while the
server runs; everything else takes effect at the next start.
";

/// All keys with what they mean, what may stand there, and what is so by default.
pub fn reference() -> String {
    let schema = file_schema();
    let schema = &schema["properties"][ROOT_KEY]["properties"];
    let mut text = TOP.to_owned();
    let keys = root();
    let is_section = |shape: &Shape| !matches!(shape, Shape::Single(_) | Shape::List(_));
    section(&mut text, "At the top", "", |rows| {
        for (name, shape) in keys.iter().filter(|(_, shape)| !is_section(shape)) {
            entry(rows, name, shape, &schema[name]);
        }
    });
    for (name, shape) in keys.iter().filter(|(_, shape)| is_section(shape)) {
        let about = described(&schema[name]);
        section(&mut text, &format!("`{name}`"), &about, |rows| {
            entry(rows, name, shape, &schema[name]);
        });
    }
    text
}

fn section(text: &mut String, name: &str, about: &str, rows: impl FnOnce(&mut Vec<String>)) {
    let mut lines = Vec::new();
    rows(&mut lines);
    // Writing to a text cannot fail.
    let _ = write!(text, "\n## {name}\n\n");
    if !about.is_empty() {
        let _ = write!(text, "{about}\n\n");
    }
    let _ = write!(
        text,
        "| Key | Value | Default | Meaning |\n|---|---|---|---|\n{}\n",
        lines.join("\n")
    );
}

/// A row for the key itself, or those of what is below it.
fn entry(rows: &mut Vec<String>, path: &str, shape: &Shape, schema: &Value) {
    let value = match shape {
        Shape::Section(keys) => return entries(rows, path, keys, schema),
        Shape::Table(inner) | Shape::Patterns(inner) => {
            let schema = &some(schema)["additionalProperties"];
            return entry(rows, &format!("{path}.NAME"), inner, schema);
        }
        Shape::List(leaf) => format!("a list; each is {}", leaf.describe()),
        Shape::Groups(leaf) => format!("a list; each is {}, or a list of them", leaf.describe()),
        Shape::Json => "what it says".to_owned(),
        Shape::Single(leaf) => leaf.describe(),
    };
    let default = match &schema["default"] {
        Value::Null => String::new(),
        default => format!("`{default}`"),
    };
    let live = if is_live(path) { " *live*" } else { "" };
    let cells = [
        format!("`{path}`"),
        value,
        default,
        format!("{}{live}", described(schema)),
    ];
    let cells = cells.map(|cell| cell.replace('|', "\\|"));
    rows.push(format!("| {} |", cells.join(" | ")));
}

fn entries(rows: &mut Vec<String>, path: &str, keys: &Keys, schema: &Value) {
    for (name, shape) in keys {
        let schema = &some(schema)["properties"][name];
        entry(rows, &format!("{path}.{name}"), shape, schema);
    }
}

/// `Option<Section>` is spelled as a choice between the section and null.
fn some(schema: &Value) -> &Value {
    match schema["anyOf"].get(0) {
        Some(some) => some,
        None => schema,
    }
}

/// Description from the types, on one line, with the meaning of each choice.
fn described(schema: &Value) -> String {
    let line = |text: &Value| {
        let words = text.as_str().unwrap_or_default().split_whitespace();
        words.collect::<Vec<_>>().join(" ")
    };
    let about = match &schema["description"] {
        Value::Null => line(&some(schema)["description"]),
        about => line(about),
    };
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    let variants = variants.filter(|it| it["description"].is_string());
    let choices = variants.map(|it| {
        let name = it["const"].as_str().unwrap_or_default();
        format!("`{name}`: {}", line(&it["description"]))
    });
    [about]
        .into_iter()
        .chain(choices)
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_listed_with_bounds_defaults_and_when_they_take_effect() {
        let text = reference();
        for line in [
            "| `http.port` | an integer from 0 to 65535 | `8080` | The port to listen on; 0 lets the system choose a free one. |",
            "| `governance.clients.NAME.quota.max_calls_per_day` |",
            "| `transport` | one of `stdio`, `http` | `\"stdio\"` | Transport by which clients reach the server. `stdio`: One client, over standard input and output.",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        let level = text.lines().find(|it| it.starts_with("| `logging.level`"));
        assert!(
            level.is_some_and(|it| it.ends_with("*live* |")),
            "{level:?}"
        );
    }
}
