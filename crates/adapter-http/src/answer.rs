//! Conversion of a service's answer to that of a tool.

use crate::{
    header::FixedHeaders,
    mapping::{ResponseMapping, SUCCESS},
    retry::asked,
};
use adapter_tools::{Content, Repeat, ToolError, ToolOutput};
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, Uri, header};
use serde_json::{Value, json, value::RawValue};
use std::time::Duration;

/// So much of what a service says of a failure is passed on, in characters.
const MAX_MESSAGE_CHARS: usize = 1000;
/// A longer body of a failure is not passed on whole.
const MAX_DETAIL_BYTES: usize = 4 * 1024;
/// Delay before a request to a service that names none.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The answer of the service at `uri` as the tool's.
///
/// # Errors
///
/// [`ToolError`] for a status that is a failure, and for what nobody can read.
pub(crate) fn answer(
    received: &Response<Bytes>,
    uri: &Uri,
    mapping: &ResponseMapping,
    headers: &FixedHeaders,
    was_refused: bool,
) -> Result<ToolOutput, ToolError> {
    if let Some(coding) = foreign_coding(received.headers()) {
        return Err(ToolError::failed(format!(
            "the service has compressed its answer ({coding}) although it was asked not to"
        )));
    }
    let status = received.status();
    match mapping.statuses.get(&status.as_u16()).map(String::as_str) {
        Some(SUCCESS) => return success(received, uri, mapping, headers),
        Some(meaning) => return Err(named_failure(received, meaning, headers)),
        None => {}
    }
    match status.as_u16() {
        200..=299 => success(received, uri, mapping, headers),
        300..=399 => Err(ToolError::failed_with(
            format!(
                "the service answered {}: it is somewhere else, and redirects are not followed",
                spelled(status)
            ),
            json!({"status": status.as_u16()}),
        )),
        401 | 403 => Err(ToolError::failed_with(
            format!("the service refused our credentials ({})", spelled(status)),
            json!({"status": status.as_u16()}),
        )),
        429 | 503 if was_refused => Err(ToolError::Busy {
            retry_after: asked(received.headers()).unwrap_or(DEFAULT_RETRY_AFTER),
        }),
        400..=428 | 430..=499 => Err(failure(received, headers)),
        _ => Err(ToolError::Crashed {
            message: format!("the service failed ({})", spelled(status)),
            repeat: Repeat::IfIdempotent,
            detail: format!("{} answered {}", uri.host().unwrap_or_default(), status),
        }),
    }
}

/// Error of the caller, in the service's words, so that a model can do better.
fn failure(received: &Response<Bytes>, headers: &FixedHeaders) -> ToolError {
    let (said, body) = said(received, headers);
    let status = spelled(received.status());
    let message = match said {
        Some(said) => format!("the service answered {status}: {said}"),
        None => format!("the service answered {status}"),
    };
    let details = json!({"status": received.status().as_u16(), "body": body});
    ToolError::failed_with(message, details)
}

/// Error by the name that the binding's author gave this status.
fn named_failure(received: &Response<Bytes>, meaning: &str, headers: &FixedHeaders) -> ToolError {
    let (said, body) = said(received, headers);
    let status = received.status().as_u16();
    let message = match said {
        Some(said) => format!("{meaning} ({status}): {said}"),
        None => format!("{meaning} ({status})"),
    };
    let details = json!({"error_type": meaning, "status": status, "body": body});
    ToolError::failed_with(message, details)
}

/// The sentence in a failure's body, and the body if it is short. Pages for browsers are neither.
fn said(received: &Response<Bytes>, headers: &FixedHeaders) -> (Option<String>, Value) {
    let kind = Kind::of(received.headers(), received.body());
    let (Kind::Json | Kind::Text) = kind else {
        return (None, Value::Null);
    };
    let Some(text) = text(received) else {
        return (None, Value::Null);
    };
    let text = headers.masked(text);
    let json = serde_json::from_str::<Value>(&text).ok();
    let told = json.as_ref().and_then(sentence).map(str::to_owned);
    let said = told.unwrap_or_else(|| text.trim().to_owned());
    let said: String = said.chars().take(MAX_MESSAGE_CHARS).collect();
    let body = match json {
        _ if MAX_DETAIL_BYTES < text.len() => Value::Null,
        Some(json) => json,
        None => Value::String(text),
    };
    ((!said.is_empty()).then_some(said), body)
}

/// Description of an error from where services put it; RFC 9457 has `detail` and `title`.
fn sentence(json: &Value) -> Option<&str> {
    ["message", "detail", "error_description", "error", "title"]
        .iter()
        .find_map(|key| match json.get(key)? {
            Value::String(text) if !text.is_empty() => Some(text.as_str()),
            inner @ Value::Object(_) => inner.get("message")?.as_str(),
            _ => None,
        })
}

fn success(
    received: &Response<Bytes>,
    uri: &Uri,
    mapping: &ResponseMapping,
    headers: &FixedHeaders,
) -> Result<ToolOutput, ToolError> {
    if received.body().is_empty() {
        let status = spelled(received.status());
        return Ok(ToolOutput::text(format!(
            "the service answered {status}, without content"
        )));
    }
    let kind = Kind::of(received.headers(), received.body());
    if let (Some(path), true) = (&mapping.path, kind != Kind::Json) {
        tracing::debug!(?path, "an answer that is not JSON has no parts");
        return Err(ToolError::failed("the service's answer is not JSON"));
    }
    match kind {
        Kind::Json => {
            let json = json_text(received)?;
            let json = RawValue::from_string(headers.masked(json))
                .map_err(|_| ToolError::failed("the service's answer is not the JSON it claims"))?;
            let json = match &mapping.path {
                // As in OwlClaw: what is not there is null.
                Some(path) => path
                    .find(&json)
                    .unwrap_or_else(|| RawValue::NULL.to_owned()),
                None => json,
            };
            Ok(ToolOutput::from_raw(json))
        }
        Kind::Text | Kind::Page => match text(received) {
            Some(text) => Ok(ToolOutput::text(headers.masked(text))),
            None => Ok(blob(received, uri, headers)),
        },
        Kind::Image | Kind::Audio | Kind::Other => Ok(blob(received, uri, headers)),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Json,
    Text,
    /// Text that is made for browsers.
    Page,
    Image,
    Audio,
    Other,
}

impl Kind {
    fn of(headers: &HeaderMap, body: &[u8]) -> Self {
        let media = media(headers);
        let (kind, subtype) = media.split_once('/').unwrap_or((&media, ""));
        match (kind, subtype) {
            (_, "json") => Self::Json,
            (_, subtype) if subtype.ends_with("+json") => Self::Json,
            // Nothing was said.
            ("", _) if serde_json::from_slice::<Value>(body).is_ok() => Self::Json,
            ("", _) => Self::Text,
            (_, "html" | "xhtml+xml") => Self::Page,
            ("text", _) | ("application", "xml" | "yaml" | "javascript" | "x-ndjson") => Self::Text,
            ("application", "x-www-form-urlencoded" | "x-yaml") => Self::Text,
            (_, subtype) if subtype.ends_with("+xml") && kind != "image" => Self::Text,
            ("image", _) => Self::Image,
            ("audio", _) => Self::Audio,
            _ => Self::Other,
        }
    }
}

/// `type/subtype` in lower case; empty if it is not said.
fn media(headers: &HeaderMap) -> String {
    let said = headers.get(header::CONTENT_TYPE);
    let said = said.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let media = said.split(';').next().unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

fn charset(headers: &HeaderMap) -> Option<String> {
    let said = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    said.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    })
}

/// The body as text; `None` if it is none.
fn text(received: &Response<Bytes>) -> Option<String> {
    let body = received.body();
    match charset(received.headers()).as_deref() {
        Some("iso-8859-1" | "latin1" | "latin-1") => {
            Some(body.iter().map(|byte| char::from(*byte)).collect())
        }
        _ => {
            let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
            std::str::from_utf8(body).ok().map(str::to_owned)
        }
    }
}

/// The JSON on one line, its numbers and the order of its members as they were.
fn json_text(received: &Response<Bytes>) -> Result<String, ToolError> {
    let no_json = || ToolError::failed("the service's answer is not the JSON it claims to be");
    let text = text(received).ok_or_else(no_json)?;
    // Bounds the depth, too.
    serde_json::from_str::<Value>(&text).map_err(|_| no_json())?;
    Ok(compact(&text))
}

/// Valid JSON without the white space between its parts, line breaks above all.
fn compact(json: &str) -> String {
    let mut is_inside = false;
    let mut is_escaped = false;
    let keep = |c: &char| {
        if is_inside {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => is_inside = false,
                _ => {}
            }
            return true;
        }
        is_inside = *c == '"';
        !matches!(c, ' ' | '\t' | '\r' | '\n')
    };
    json.chars().filter(keep).collect()
}

/// Body that is not text, in Base64, with its media type.
fn blob(received: &Response<Bytes>, uri: &Uri, headers: &FixedHeaders) -> ToolOutput {
    let data = match headers.without_secrets(received.body()) {
        Some(bytes) => BASE64_STANDARD.encode(bytes),
        None => BASE64_STANDARD.encode(received.body()),
    };
    let media = match media(received.headers()) {
        media if media.is_empty() => "application/octet-stream".to_owned(),
        media => media,
    };
    let content = match Kind::of(received.headers(), b"") {
        Kind::Image => Content::image(data, media),
        Kind::Audio => Content::audio(data, media),
        _ => {
            let origin = uri.authority().map_or("", |it| it.as_str());
            let scheme = uri.scheme_str().unwrap_or("http");
            let place = format!("{scheme}://{origin}{}", uri.path());
            Content::embedded_blob(place, media, data)
        }
    };
    content.into()
}

fn foreign_coding(headers: &HeaderMap) -> Option<String> {
    let coding = headers.get(header::CONTENT_ENCODING)?.to_str().ok()?;
    let is_foreign = !coding.trim().is_empty() && !coding.trim().eq_ignore_ascii_case("identity");
    is_foreign.then(|| coding.chars().take(40).collect())
}

/// `404 Not Found`.
fn spelled(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(status: u16, media: &str, body: &[u8]) -> Response<Bytes> {
        let mut headers = HeaderMap::new();
        if !media.is_empty() {
            headers.insert(header::CONTENT_TYPE, media.parse().unwrap());
        }
        let mut received = Response::new(Bytes::copy_from_slice(body));
        *received.status_mut() = StatusCode::from_u16(status).unwrap();
        *received.headers_mut() = headers;
        received
    }

    fn answered(received: &Response<Bytes>) -> Result<ToolOutput, ToolError> {
        let uri = Uri::from_static("http://h/a?b");
        let headers = FixedHeaders::default();
        answer(received, &uri, &ResponseMapping::default(), &headers, true)
    }

    #[test]
    fn answers_are_what_their_type_says() {
        let text = |text: &str| vec![Content::text(text)];
        let blob =
            |media: &str, data: &str| vec![Content::embedded_blob("http://h/a", media, data)];
        let rows: Vec<(&str, &[u8], Vec<Content>, bool)> = vec![
            (
                "application/json",
                b"{\"b\": 1,\r\n \"a\": \" \\\" \\n\"}",
                text("{\"b\":1,\"a\":\" \\\" \\n\"}"),
                true,
            ),
            (
                "application/problem+json; charset=utf-8",
                b"\xef\xbb\xbf[1, 2]",
                text("[1,2]"),
                false,
            ),
            (
                "application/json",
                b"123456789012345678901234567890",
                text("123456789012345678901234567890"),
                false,
            ),
            ("application/json", b"\"a\\nb\"", text("a\nb"), false),
            ("", b"{\"a\": 1}", text("{\"a\":1}"), true),
            ("", b"plain", text("plain"), false),
            ("text/plain", b"{\"a\": 1}", text("{\"a\": 1}"), false),
            (
                "text/html; charset=ISO-8859-1",
                b"caf\xe9",
                text("café"),
                false,
            ),
            ("text/plain", b"\xff\xfe", blob("text/plain", "//4="), false),
            (
                "application/pdf",
                b"%PDF",
                blob("application/pdf", "JVBERg=="),
                false,
            ),
            ("", b"\xff", blob("application/octet-stream", "/w=="), false),
            (
                "image/png",
                b"\0",
                vec![Content::image("AA==", "image/png")],
                false,
            ),
            (
                "image/svg+xml",
                b"<svg/>",
                vec![Content::image("PHN2Zy8+", "image/svg+xml")],
                false,
            ),
            (
                "audio/wav",
                b"\0",
                vec![Content::audio("AA==", "audio/wav")],
                false,
            ),
            (
                "application/json",
                b"",
                text("the service answered 200 OK, without content"),
                false,
            ),
        ];
        for (media, body, content, is_structured) in rows {
            let output = answered(&received(200, media, body)).unwrap();
            assert_eq!(output.content, content, "{media}");
            assert_eq!(output.structured.is_some(), is_structured, "{media}");
        }
        let deep = "[".repeat(1000) + &"]".repeat(1000);
        for lie in [b"{".as_slice(), b"\xff", b"{} {}", deep.as_bytes()] {
            let error = answered(&received(200, "application/json", lie)).unwrap_err();
            assert!(matches!(error, ToolError::Failed(_)), "{error:?}");
        }
        let mut packed = received(200, "application/json", b"\x1f\x8b");
        packed
            .headers_mut()
            .insert(header::CONTENT_ENCODING, "gzip".parse().unwrap());
        assert!(answered(&packed).unwrap_err().to_string().contains("gzip"));
    }

    #[test]
    fn what_is_no_text_has_no_secrets_either() {
        let secrets = |_: &str| Some("s3cret-value".to_owned());
        let headers = FixedHeaders::resolve([("X-Key", "${KEY}")], &secrets).unwrap();
        let uri = Uri::from_static("http://h/a");
        for media in ["application/octet-stream", "image/png", "text/plain"] {
            let received = received(200, media, b"\xffyou sent s3cret-value\0");
            let mapping = ResponseMapping::default();
            let output = answer(&received, &uri, &mapping, &headers, true).unwrap();
            let shown = serde_json::to_string(&output.content).unwrap();
            let expected = BASE64_STANDARD.encode(b"\xffyou sent ***\0");
            assert!(shown.contains(&expected), "{shown}");
        }
    }

    #[test]
    fn each_status_is_told_to_whom_it_concerns() {
        let error = |status, media: &str, body: &str| {
            answered(&received(status, media, body.as_bytes())).unwrap_err()
        };
        let json = "application/json";
        let rows = [
            (
                404,
                json,
                r#"{"message": "no order 7"}"#,
                "the service answered 404 Not Found: no order 7",
            ),
            (
                422,
                "application/problem+json",
                r#"{"title": "t", "detail": "d"}"#,
                "the service answered 422 Unprocessable Entity: d",
            ),
            (
                400,
                json,
                r#"{"error": {"message": "m"}}"#,
                "the service answered 400 Bad Request: m",
            ),
            (
                400,
                json,
                r#"{"x": 1}"#,
                r#"the service answered 400 Bad Request: {"x": 1}"#,
            ),
            (
                400,
                "text/plain",
                "no\n",
                "the service answered 400 Bad Request: no",
            ),
            (
                400,
                "text/html",
                "<html>",
                "the service answered 400 Bad Request",
            ),
            (
                401,
                json,
                r#"{"message": "your token abc"}"#,
                "the service refused our credentials (401 Unauthorized)",
            ),
            (
                403,
                "",
                "",
                "the service refused our credentials (403 Forbidden)",
            ),
            (
                302,
                "",
                "",
                "the service answered 302 Found: it is somewhere else, and redirects are not followed",
            ),
        ];
        for (status, media, body, message) in rows {
            let error = error(status, media, body);
            assert_eq!(error.to_string(), message);
            assert!(matches!(error, ToolError::Failed(_)), "{error:?}");
        }
        let long = error(400, "text/plain", &"x".repeat(100_000));
        assert!(long.to_string().len() < 2 * MAX_MESSAGE_CHARS);
        assert_eq!(
            error(500, json, "{}").to_string(),
            "the service failed (500 Internal Server Error)"
        );
        for status in [429, 503] {
            let mut busy = received(status, "", b"");
            assert_eq!(
                answered(&busy).unwrap_err().retry_after(),
                Some(DEFAULT_RETRY_AFTER)
            );
            busy.headers_mut()
                .insert(header::RETRY_AFTER, "7".parse().unwrap());
            let wait = answered(&busy).unwrap_err().retry_after();
            assert_eq!(wait, Some(Duration::from_secs(7)));
        }
    }
}
