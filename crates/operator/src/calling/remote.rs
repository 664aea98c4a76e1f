//! A call on a running server, over HTTP.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, header};
use http_client::{Client, ClientOptions, Reach};
use serde_json::Value;

use super::REVISION;
use crate::request::ToolCall;
use server::Failure;

/// Environment variable with the key that authenticates the caller. A flag would be visible to
/// other users.
const KEY_VARIABLE: &str = "OWLCLAW_API_KEY";
/// Longer answers are refused.
const MAX_ANSWER_BYTES: usize = 64 * 1024 * 1024;
/// Characters shown of a response that is not a valid answer.
const MAX_SHOWN_CHARACTERS: usize = 300;

pub(super) fn send(url: &str, call: &ToolCall, message: &Value) -> Result<Value, Failure> {
    let authorities = match &call.ca {
        Some(path) => std::fs::read(path)
            .map_err(|error| format!("`{}` cannot be read: {error}", path.display()))?,
        None => Vec::new(),
    };
    let request = request(url, call, message)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let response = runtime.block_on(async {
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            authorities,
            timeout: Duration::from_secs(call.timeout),
            max_body: MAX_ANSWER_BYTES,
            ..ClientOptions::default()
        })?;
        Ok::<_, Failure>(client.send(request).await?)
    });
    let response = response.map_err(|failure| {
        let why = server::with_causes(&*failure);
        Failure::from(format!("{url} cannot be called: {why}"))
    })?;
    answer(url, &response)
}

fn request(url: &str, call: &ToolCall, message: &Value) -> Result<Request<Bytes>, Failure> {
    let value = |text: &str, what: &str| {
        HeaderValue::from_str(text).map_err(|_| format!("{what} cannot be sent in a header"))
    };
    let mut request = Request::post(url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, text/event-stream")
        .header("mcp-protocol-version", REVISION)
        .header("mcp-method", message["method"].as_str().unwrap_or_default());
    if let Some(name) = message["params"]["name"].as_str() {
        request = request.header("mcp-name", value(name, "the tool's name")?);
    }
    if let Some(client) = &call.client {
        let name = HeaderName::from_static("x-mcp-client-id");
        request = request.header(name, value(client, "--as")?);
    }
    if let Some(key) = std::env::var_os(KEY_VARIABLE).filter(|key| !key.is_empty()) {
        let key = key.to_str().unwrap_or("\0");
        let mut key = value(&format!("Bearer {}", key.trim()), KEY_VARIABLE)?;
        key.set_sensitive(true);
        request = request.header(header::AUTHORIZATION, key);
    }
    let body = Bytes::from(message.to_string());
    Ok(request
        .body(body)
        .map_err(|error| format!("{url} cannot be called: {error}"))?)
}

/// The response to the only request that was sent, by itself or at the end of a stream.
fn answer(url: &str, response: &http::Response<Bytes>) -> Result<Value, Failure> {
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let body = String::from_utf8_lossy(response.body());
    let found = match kind.starts_with("text/event-stream") {
        true => events(&body).find(is_response),
        false => serde_json::from_str(&body).ok().filter(is_response),
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let status = response.status();
    let shown: String = body.chars().take(MAX_SHOWN_CHARACTERS).collect();
    let shown = config::printable(shown.trim());
    let advice = match status {
        StatusCode::UNAUTHORIZED => "; put a key or a token into OWLCLAW_API_KEY",
        StatusCode::NOT_FOUND => "; the endpoint is /mcp",
        _ => "",
    };
    Err(format!("{url} answered {status}: {shown}{advice}").into())
}

fn is_response(message: &Value) -> bool {
    message.get("result").is_some() || message.get("error").is_some_and(|it| it["code"].is_i64())
}

/// The messages of a stream of events.
fn events(body: &str) -> impl Iterator<Item = Value> {
    let data = |event: &str| {
        let lines = event.lines().filter_map(|line| line.strip_prefix("data:"));
        lines.map(str::trim_start).collect::<Vec<_>>().join("\n")
    };
    let body = body.replace("\r\n", "\n");
    let messages: Vec<Value> = body
        .split("\n\n")
        .filter_map(|event| serde_json::from_str(&data(event)).ok())
        .collect();
    messages.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn response(status: u16, kind: &str, body: &str) -> http::Response<Bytes> {
        let response = http::Response::builder().status(status);
        let body = Bytes::from(body.to_owned());
        response.header("content-type", kind).body(body).unwrap()
    }

    #[test]
    fn the_answer_is_found_by_itself_and_in_a_stream() {
        let expected = json!({"jsonrpc": "2.0", "id": 1, "result": {"x": 1}});
        let stream = format!(
            "event: message\r\ndata: {{\"method\":\"notifications/progress\"}}\r\n\r\n: keep-alive\n\ndata: {expected}\n\n"
        );
        for response in [
            response(200, "application/json", &expected.to_string()),
            response(200, "text/event-stream", &stream),
        ] {
            assert_eq!(answer("u", &response).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_answer_is_told_with_what_to_do() {
        for (status, body, why) in [
            (401, "{\"error\":\"invalid_token\"}", "OWLCLAW_API_KEY"),
            (404, "nothing here", "the endpoint is /mcp"),
            (502, "<html>\u{1b}[2J", "502 Bad Gateway: <html>\u{fffd}[2J"),
        ] {
            let said = answer("u", &response(status, "text/plain", body));
            let said = said.unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }
}
