//! Tools and resources as the command line lists them.

use config::{Origin, Setting};
use server::{ResourceRow, ToolRow, ViewRow};

use crate::table::table;

/// A table shows at most this many characters of a description.
const MAX_DESCRIPTION_CHARACTERS: usize = 80;

/// Table with one line a setting: its value, the layer and the place that set it, and those that it overrides; no
/// newline at the end.
pub fn origins_table(settings: &[Setting]) -> String {
    let rows = settings.iter().map(|it| {
        let place = match it.origin {
            Origin::Default => dash(),
            _ => it.origin.to_string(),
        };
        let overrides: Vec<String> = it.overrides.iter().map(ToString::to_string).collect();
        let references = it.references.iter();
        let sources: Vec<String> = references.map(|it| it.source.to_string()).collect();
        let value = match sources.is_empty() {
            true => it.value.to_string(),
            false => format!("{} (from {})", it.value, sources.join(", ")),
        };
        vec![
            it.key.clone(),
            it.layer.to_owned(),
            place,
            value,
            overrides.join("; "),
        ]
    });
    let heads = ["KEY", "LAYER", "PLACE", "VALUE", "OVERRIDES"];
    table(&heads, rows.collect())
}

/// Table with one line a tool, and after an empty line the total of all tools; no newline at the
/// end.
pub fn tools_table(rows: &[ToolRow]) -> String {
    let heads = [
        "NAME",
        "KIND",
        "RISK",
        "CONFIRM",
        "COST",
        "PER MINUTE",
        "PER DAY",
        "TIMEOUT",
        "TOKENS",
        "DESCRIPTION",
    ];
    let lines = table(
        &heads,
        rows.iter()
            .map(|row| {
                vec![
                    row.name.clone(),
                    row.kind.clone(),
                    row.risk.clone().unwrap_or_else(dash),
                    match &row.held {
                        Some(_) => "held back".to_owned(),
                        None => row.confirmation.clone().unwrap_or_else(dash),
                    },
                    row.estimated_cost
                        .map_or_else(dash, |cost| format!("{cost:#}")),
                    row.max_calls_per_minute
                        .map_or_else(dash, |calls| calls.to_string()),
                    row.max_calls_per_day
                        .map_or_else(dash, |calls| calls.to_string()),
                    format!("{} s", row.timeout_seconds),
                    row.estimated_tokens.to_string(),
                    first_line(&row.description),
                ]
            })
            .collect(),
    );
    let tokens: usize = rows.iter().map(|row| row.estimated_tokens).sum();
    let tools = match rows.len() {
        1 => "1 tool".to_owned(),
        count => format!("{count} tools"),
    };
    format!("{lines}\n\n{tools}, about {tokens} tokens of a model's context")
}

/// One line a view; no newline at the end.
pub fn views_table(rows: &[ViewRow]) -> String {
    let rows = rows.iter().map(|row| {
        let in_force = match row.in_force {
            None => dash(),
            Some(is) => if is { "yes" } else { "no" }.to_owned(),
        };
        let (tools, tokens) = (row.tools, row.estimated_tokens);
        vec![
            row.view.to_owned(),
            tools.to_string(),
            tokens.to_string(),
            in_force,
        ]
    });
    table(&["VIEW", "TOOLS", "TOKENS", "IN FORCE"], rows.collect())
}

/// One line a resource; no newline at the end.
pub fn resources_table(rows: &[ResourceRow]) -> String {
    let heads = [
        "URI",
        "NAME",
        "TYPE",
        "SIZE",
        "MODIFIED",
        "TAGS",
        "DESCRIPTION",
    ];
    table(
        &heads,
        rows.iter()
            .map(|row| {
                vec![
                    row.uri.clone(),
                    row.name.clone(),
                    row.mime_type.clone(),
                    row.size.map_or_else(dash, |it| it.to_string()),
                    row.last_modified.clone(),
                    if row.tags.is_empty() {
                        dash()
                    } else {
                        row.tags.join(", ")
                    },
                    first_line(&row.description),
                ]
            })
            .collect(),
    )
}

fn dash() -> String {
    "-".to_owned()
}

pub(crate) fn first_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    match line.char_indices().nth(MAX_DESCRIPTION_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, description: &str) -> ToolRow {
        ToolRow {
            name: name.into(),
            title: None,
            held: None,
            kind: "python".into(),
            description: description.into(),
            risk: Some("high".into()),
            requires_confirmation: true,
            confirmation: Some("operator".into()),
            estimated_cost: "0.05".parse().ok(),
            max_calls_per_minute: Some(10),
            max_calls_per_day: None,
            timeout_seconds: 300,
            estimated_tokens: 40,
            input_schema: serde_json::json!({ "type": "object" }),
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_tool() {
        let shown = tools_table(&[tool("refund", "Pays back.\n\nSlowly."), tool("a", "")]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines.len(), 5, "{shown}");
        assert_eq!(lines[4], "2 tools, about 80 tokens of a model's context");
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(
            words,
            [
                "refund", "python", "high", "operator", "0.05", "10", "-", "300", "s", "40",
                "Pays", "back."
            ]
        );
    }

    #[test]
    fn descriptions_cannot_command_the_terminal() {
        let shown = tools_table(&[tool("x", &format!("\u{1b}[2J{}", "é".repeat(500)))]);
        assert!(
            !shown.contains('\u{1b}') && shown.contains('…'),
            "{shown:?}"
        );
    }

    #[test]
    fn amounts_are_decimal_text_in_json() {
        let json = serde_json::to_value(tool("x", "")).unwrap();
        assert_eq!(json["estimated_cost"], "0.05");
    }
}
