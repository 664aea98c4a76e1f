//! `tools call`: one call, here or on a running server.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use mcp_client::{CallOptions, RawJson};
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::{Answer, Told};
use crate::arguments::object;
use crate::client::{Contact, call_tool, meant};
use crate::exact;
use crate::output::Stop;
use crate::request::ToolCall;
use config::Source;
use server::{Failure, STDIO_KEY};

/// Member of a request's `_meta` under which a call is made at most once.
const IDEMPOTENCY_KEY: &str = "io.owlclaw/idempotencyKey";

/// Makes the call and waits for its end. `source` is where the configuration comes from of a server
/// of our own; it is not read where another one is called.
///
/// # Errors
///
/// When the arguments cannot be read, or no server can be made or reached.
pub fn call(
    call: &ToolCall,
    server: impl FnOnce() -> Result<(Source, config::Loaded), Stop>,
) -> Result<Answer, Stop> {
    let arguments = object(call.args.as_deref(), "--args").map_err(Stop::Wrong)?;
    let principal = call
        .client
        .as_deref()
        .map(server::principal_named)
        .transpose();
    let principal = principal.map_err(Stop::Wrong)?;
    match &call.url {
        Some(url) => {
            let contact = contact(url, call).map_err(Stop::Wrong)?;
            let mut options = CallOptions::default();
            if let Some(key) = &call.idempotency_key {
                options.meta.insert(IDEMPOTENCY_KEY, key);
            }
            call_tool(&contact, &call.tool, arguments, &options)
        }
        None => {
            let (source, loaded) = server()?;
            call_here(call, &arguments, principal, source, loaded).map_err(Stop::Failed)
        }
    }
}

/// The way to a server of ours that runs: with the principal that the command line names, and the key or
/// token of the environment. A flag would be visible to other users.
fn contact(url: &str, call: &ToolCall) -> Result<Contact, Failure> {
    let mut headers = HeaderMap::new();
    if let Some(client) = &call.client {
        let value = HeaderValue::from_str(client);
        let value = value.map_err(|_| "--as cannot be sent in a header")?;
        headers.insert(HeaderName::from_static("x-mcp-client-id"), value);
    }
    let key = std::env::var_os(STDIO_KEY).filter(|key| !key.is_empty());
    // What is no text cannot be sent, which is said where it is made a header.
    let key = key.map(|key| key.into_string().unwrap_or_else(|_| "\0".to_owned()));
    Contact::ours(
        url,
        headers,
        key.as_deref(),
        call.ca.as_deref(),
        call.timeout,
    )
}

/// Calls by way of a server that is built for this call.
fn call_here(
    call: &ToolCall,
    arguments: &RawJson,
    principal: Option<server::Principal>,
    source: Source,
    loaded: config::Loaded,
) -> Result<Answer, Failure> {
    let mut about = meta();
    if let Some(key) = &call.idempotency_key {
        about[IDEMPOTENCY_KEY] = json!(key);
    }
    let params = Params {
        name: &call.tool,
        arguments,
        meta: about,
    };
    // An answer that there is no such tool is worth another question.
    let again = |response: &RawJson| match is_unknown(&exact::value(response.as_str()).ok()?) {
        true => frame(2, "tools/list", &json!({ "_meta": meta() })).ok(),
        false => None,
    };
    let request = frame(1, "tools/call", &params)?;
    let (response, listed) = server::call(source, loaded, principal, &request, again)?;
    let hint = listed.and_then(|listed| {
        let listed = exact::value(listed.as_str()).ok()?;
        let tools = listed["result"]["tools"].as_array()?.iter();
        let names: Vec<&str> = tools.filter_map(|tool| tool["name"].as_str()).collect();
        meant(&call.tool, &names, "owlclaw-mcp tools list")
    });
    Ok(Answer::of(Told::of(response.as_str())?).with_hint(hint))
}

/// Request that calls a tool with these arguments, the text of an object: one that needs no handshake.
///
/// # Errors
///
/// When the arguments are not JSON.
pub fn call_frame(tool: &str, arguments: &str) -> Result<Bytes, serde_json::Error> {
    let arguments: &serde_json::value::RawValue = serde_json::from_str(arguments)?;
    let params = json!({ "name": tool, "_meta": meta() });
    let params = params.to_string();
    // Beside the other members as they are, so that numbers keep their digits.
    let params = format!("{{\"arguments\":{},{}", arguments.get(), &params[1..]);
    Ok(format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#).into())
}

fn is_unknown(response: &Value) -> bool {
    const UNKNOWN: i64 = -32001;
    let error = &response["error"];
    error["code"] == UNKNOWN || error["data"]["code"] == UNKNOWN
}

#[derive(Serialize)]
struct Params<'a> {
    name: &'a str,
    arguments: &'a RawJson,
    #[serde(rename = "_meta")]
    meta: Value,
}

fn frame(id: u8, method: &str, params: &impl Serialize) -> Result<Bytes, serde_json::Error> {
    let params = serde_json::to_string(params)?;
    let frame = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    Ok(frame.into())
}

fn meta() -> Value {
    json!({
        // Its requests need no handshake.
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {
            "name": "owlclaw-mcp tools call",
            "version": env!("CARGO_PKG_VERSION"),
        },
    })
}
