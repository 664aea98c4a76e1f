//! `tools call`: one call, here or on a running server.

mod answer;
mod remote;

use std::io::Read;

use bytes::Bytes;
use serde_json::{Map, Value, json};

pub use answer::Answer;

use crate::request::ToolCall;
use config::{Source, nearest};
use server::Failure;

/// The revision that is spoken: its requests need no handshake.
const REVISION: &str = "2026-07-28";
/// Longer arguments are refused.
const MAX_ARGUMENTS_BYTES: u64 = 16 * 1024 * 1024;

/// Makes the call and waits for its end. `source` is where the configuration comes from of a server
/// of our own; it is not read where another one is called.
///
/// # Errors
///
/// When the arguments cannot be read, or no server can be made or reached.
pub fn call(
    call: &ToolCall,
    server: impl FnOnce() -> Result<(Source, config::Loaded), crate::output::Stop>,
) -> Result<Answer, crate::output::Stop> {
    let arguments = arguments(call.args.as_deref()).map_err(crate::output::Stop::Failed)?;
    let request = request(&call.tool, &arguments, call.idempotency_key.as_deref());
    // An answer that there is no such tool is worth another question.
    let again = |response: &Value| is_unknown(response).then(list);
    let (mut response, listed) = match &call.url {
        Some(url) => {
            let response =
                remote::send(url, call, &request).map_err(crate::output::Stop::Failed)?;
            let listed = again(&response).and_then(|list| remote::send(url, call, &list).ok());
            (response, listed)
        }
        None => {
            let (source, loaded) = server()?;
            let frame = |message: &Value| Bytes::from(message.to_string());
            server::call(
                source,
                loaded,
                call.client.as_deref(),
                &frame(&request),
                |response| again(response).map(|list| frame(&list)),
            )
            .map_err(crate::output::Stop::Failed)?
        }
    };
    if let Some(hint) = listed.and_then(|listed| meant(&call.tool, &listed)) {
        response["error"]["data"]["hint"] = json!(hint);
    }
    Answer::of(response).map_err(crate::output::Stop::Failed)
}

fn is_unknown(response: &Value) -> bool {
    const UNKNOWN: i64 = -32001;
    let error = &response["error"];
    error["code"] == UNKNOWN || error["data"]["code"] == UNKNOWN
}

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {"_meta": meta()}})
}

/// The visible tool with the name nearest to `tool`, for "did you mean".
fn meant(tool: &str, listed: &Value) -> Option<String> {
    let tools = listed["result"]["tools"].as_array()?.iter();
    let names: Vec<&str> = tools.filter_map(|tool| tool["name"].as_str()).collect();
    match nearest(tool, names.iter().copied()) {
        Some(name) => Some(format!("did you mean `{name}`?")),
        None if names.is_empty() => {
            Some("this client may see no tools; name another client with --as".to_owned())
        }
        None => Some("`owlclaw-mcp tools list` shows what there is".to_owned()),
    }
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": REVISION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {
            "name": "owlclaw-mcp tools call",
            "version": env!("CARGO_PKG_VERSION"),
        },
    })
}

fn request(tool: &str, arguments: &Map<String, Value>, key: Option<&str>) -> Value {
    let mut meta = meta();
    if let Some(key) = key {
        meta["io.owlclaw/idempotencyKey"] = json!(key);
    }
    json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments, "_meta": meta},
    })
}

/// Arguments given by `--args`.
fn arguments(words: Option<&str>) -> Result<Map<String, Value>, Failure> {
    let (text, place) = match words {
        None => return Ok(Map::new()),
        Some("-") => (read(std::io::stdin().lock())?, "standard input".to_owned()),
        Some(words) => match words.strip_prefix('@') {
            Some(path) => {
                let place = format!("`{path}`");
                let file = std::fs::File::open(path);
                let file = file.map_err(|error| format!("{place} cannot be read: {error}"))?;
                (read(file)?, place)
            }
            None => (words.to_owned(), "--args".to_owned()),
        },
    };
    match serde_json::from_str(&text) {
        Ok(Value::Object(arguments)) => Ok(arguments),
        Ok(_) => {
            Err(format!("{place} must be a JSON object, such as {{\"city\": \"Oslo\"}}").into())
        }
        Err(error) => Err(format!("{place} is not JSON: {error}").into()),
    }
}

fn read(input: impl Read) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    input
        .take(MAX_ARGUMENTS_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_ARGUMENTS_BYTES {
        return Err(format!("arguments have more than {MAX_ARGUMENTS_BYTES} bytes").into());
    }
    Ok(String::from_utf8(bytes).map_err(|_| "arguments are not UTF-8")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_an_object_from_wherever_they_come() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("arguments.json");
        std::fs::write(&path, r#"{"a": 1}"#).unwrap();
        let file = format!("@{}", path.display());
        assert_eq!(arguments(None).unwrap(), Map::new());
        for words in [r#"{"a":1}"#, &file] {
            assert_eq!(arguments(Some(words)).unwrap()["a"], 1, "{words}");
        }
        for (words, why) in [
            ("[1]", "--args must be a JSON object"),
            ("{a: 1}", "--args is not JSON: key must be a string"),
            ("@/no/such/file", "`/no/such/file` cannot be read"),
        ] {
            let said = arguments(Some(words)).unwrap_err().to_string();
            assert!(said.starts_with(why), "{said}");
        }
    }
}
