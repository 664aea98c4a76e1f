//! Lists, contents and changes of a server, for people. What a server says commands no terminal.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mcp_client::RawJson;
use mcp_protocol::model::{LoggingLevel, SubscriptionFilter};
use serde_json::Value;

use super::quoted;
use crate::answer::shown;
use crate::listing::first_line;
use crate::table::table;
use crate::terminal::remark;
use config::printable;
use server::{Failure, json_text};

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

fn items<'a>(value: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    value[name].as_array().into_iter().flatten()
}

/// The server, its revision, and what it offers.
pub(super) fn greeting(told: &Value) -> String {
    let name = match (text(told, "name"), text(told, "version")) {
        ("", _) => "a server without a name".to_owned(),
        (name, version) => format!("{name} {version}"),
    };
    let mut lines = vec![printable(&format!(
        "{} speaks {}",
        name.trim(),
        text(told, "revision")
    ))];
    if let Some(named) = told["named"].as_str() {
        lines.push(printable(&format!("it calls its revision {named}")));
    }
    let offered = told["capabilities"].as_object().into_iter().flatten();
    let offered: Vec<_> = offered.map(|(name, _)| name.as_str()).collect();
    lines.push(match offered.is_empty() {
        true => "it offers nothing".to_owned(),
        false => printable(&format!("it offers {}", offered.join(", "))),
    });
    lines.push(format!("it answered within {} ms", told["milliseconds"]));
    if let Some(instructions) = told["instructions"].as_str() {
        lines.push(format!("instructions:\n  {}", quoted(instructions, "  ")));
    }
    lines.join("\n")
}

/// Names of arguments; those that may be left out have a question mark.
fn arguments(names: impl Iterator<Item = (String, bool)>) -> String {
    let names: Vec<_> = names
        .map(|(name, is_required)| name + if is_required { "" } else { "?" })
        .collect();
    match names.is_empty() {
        true => "-".to_owned(),
        false => names.join(", "),
    }
}

pub(super) fn tools(listed: &Value) -> String {
    let rows = items(listed, "tools").map(|tool| {
        let schema = &tool["inputSchema"];
        let required: Vec<_> = items(schema, "required").collect();
        let names = schema["properties"].as_object().into_iter().flatten();
        let names = names.map(|(name, _)| {
            let is_required = required.iter().any(|it| it.as_str() == Some(name));
            (name.clone(), is_required)
        });
        vec![
            text(tool, "name").to_owned(),
            arguments(names),
            first_line(text(tool, "description")),
        ]
    });
    table(&["NAME", "ARGUMENTS", "DESCRIPTION"], rows.collect())
}

pub(super) fn resources(listed: &Value) -> String {
    let dash = |text: &str| if text.is_empty() { "-" } else { text }.to_owned();
    let row = |it: &Value, uri: &str| {
        let size = it["size"].as_u64();
        vec![
            text(it, uri).to_owned(),
            text(it, "name").to_owned(),
            dash(text(it, "mimeType")),
            size.map_or_else(|| "-".to_owned(), |size| size.to_string()),
            first_line(text(it, "description")),
        ]
    };
    let resources = items(listed, "resources").map(|it| row(it, "uri"));
    let templates = items(listed, "resourceTemplates").map(|it| row(it, "uriTemplate"));
    let heads = ["URI", "NAME", "TYPE", "SIZE", "DESCRIPTION"];
    table(&heads, resources.chain(templates).collect())
}

pub(super) fn prompts(listed: &Value) -> String {
    let rows = items(listed, "prompts").map(|prompt| {
        let names = items(prompt, "arguments").map(|argument| {
            let is_required = argument["required"] == true;
            (text(argument, "name").to_owned(), is_required)
        });
        vec![
            text(prompt, "name").to_owned(),
            arguments(names),
            first_line(text(prompt, "description")),
        ]
    });
    table(&["NAME", "ARGUMENTS", "DESCRIPTION"], rows.collect())
}

/// The messages of a prompt, each below who says it.
pub(super) fn messages(prompt: &Value) -> String {
    let messages = items(prompt, "messages").map(|message| {
        let role = printable(text(message, "role"));
        format!("{role}:\n{}", shown(&message["content"]))
    });
    messages.collect::<Vec<_>>().join("\n\n")
}

/// The contents of a resource, on a terminal.
pub(super) fn contents(read: &Value) -> String {
    let parts = items(read, "contents").map(|part| match part["blob"].as_str() {
        Some(blob) => printable(&format!(
            "({} {}, about {} bytes; redirect the output to have them)",
            text(part, "uri"),
            text(part, "mimeType"),
            blob.len() / 4 * 3
        )),
        None => shown(part),
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// The bytes of a resource, for files and programs.
pub(super) fn bytes(read: &Value) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    for part in items(read, "contents") {
        match (part["text"].as_str(), part["blob"].as_str()) {
            (Some(text), _) => bytes.extend_from_slice(text.as_bytes()),
            (None, Some(blob)) => {
                let decoded = STANDARD.decode(blob);
                let decoded = decoded.map_err(|error| {
                    let uri = printable(text(part, "uri"));
                    format!("the server's base64 for {uri} cannot be read: {error}")
                })?;
                bytes.extend_from_slice(&decoded);
            }
            (None, None) => {}
        }
    }
    Ok(bytes)
}

pub(super) fn tell_progress(done: f64, total: Option<f64>, message: Option<&str>) {
    let total = total.map_or_else(String::new, |total| format!(" of {total}"));
    let message = message.map_or_else(String::new, |it| format!(": {}", printable(it)));
    remark(&format!("progress: {done}{total}{message}"));
}

pub(super) fn log(level: LoggingLevel, logger: Option<&str>, data: &RawJson) -> String {
    let level = serde_json::to_value(level).unwrap_or_default();
    let level = level.as_str().unwrap_or_default();
    let logger = logger.map_or_else(String::new, |it| format!(" {}", printable(it)));
    let data = match data.parse::<Value>() {
        Ok(Value::String(text)) => quoted(&text, "  "),
        _ => json_text(data.as_str()),
    };
    format!("log: {level}{logger}: {data}")
}

/// The changes that are listened for.
pub(super) fn listening(accepted: &SubscriptionFilter) -> String {
    let lists = [
        (accepted.tools_list_changed, "tools"),
        (accepted.prompts_list_changed, "prompts"),
        (accepted.resources_list_changed, "resources"),
    ];
    let lists = lists.iter().filter(|(is_told, _)| *is_told);
    let mut names: Vec<_> = lists
        .map(|(_, name)| format!("the list of {name}"))
        .collect();
    let uris = accepted.resource_subscriptions.iter();
    names.extend(uris.map(|uri| printable(uri)));
    match names.is_empty() {
        true => "warning: the server agrees to tell of nothing".to_owned(),
        false => format!("listening for changes of {}", names.join(", ")),
    }
}

/// A change, in one line.
pub(super) fn change(method: &str, params: &Value) -> String {
    let what = method.strip_prefix("notifications/").unwrap_or(method);
    match params["uri"].as_str() {
        Some(uri) => printable(&format!("{what} {uri}")),
        None => printable(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strangers_command_no_terminal() {
        let evil = "a\u{1b}[2Jb\nhint: c";
        let all = [
            greeting(
                &json!({"name": evil, "version": evil, "revision": "2025-11-25", "named": evil,
                "capabilities": {evil: {}}, "instructions": evil, "milliseconds": 1}),
            ),
            tools(
                &json!({"tools": [{"name": evil, "description": evil, "inputSchema":
                {"properties": {evil: {}}}}]}),
            ),
            resources(&json!({"resources": [{"uri": evil, "name": evil, "mimeType": evil}]})),
            prompts(&json!({"prompts": [{"name": evil, "arguments": [{"name": evil}]}]})),
            contents(&json!({"contents": [{"uri": evil, "mimeType": evil, "blob": "AAAA"}]})),
            change("notifications/resources/updated", &json!({"uri": evil})),
            log(
                LoggingLevel::Error,
                Some(evil),
                &RawJson::from_value(evil).unwrap(),
            ),
            listening(&SubscriptionFilter {
                resource_subscriptions: vec![evil.to_owned()],
                ..SubscriptionFilter::default()
            }),
        ];
        for text in all {
            assert!(!text.contains('\u{1b}'), "{text:?}");
            assert!(
                !text.lines().any(|line| line.starts_with("hint:")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_resource_is_printed_byte_for_byte() {
        let read = json!({"contents": [
            {"uri": "a", "text": "é\u{1b}\n"},
            {"uri": "b", "blob": "AP8="},
        ]});
        assert_eq!(bytes(&read).unwrap(), b"\xc3\xa9\x1b\n\x00\xff");
        assert!(bytes(&json!({"contents": [{"uri": "a", "blob": "?"}]})).is_err());
    }
}
