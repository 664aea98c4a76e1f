//! Skills over plain HTTP (decision D20): the content that `resources/read` returns, with the
//! headers that HTTP has for it.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use mcp_protocol::TraceContext;
use mcp_server::{PlainContent, PlainRead, PlainRefusal};
use transport_http::{PlainResponse, SideRequest, refusal, refusal_with};

use super::store::ServedMcpServer;

/// Path below which skills are read.
const ROOT: &str = "/resources/";

/// Part of a path below [`ROOT`]: the rest of a `skill://` URI.
pub(super) fn named_by(path: &str) -> Option<&str> {
    path.strip_prefix(ROOT)
}

/// Reads a resource as the principal of the request.
pub(super) async fn read(
    mcp: &ServedMcpServer,
    request: SideRequest<'_>,
    name: &str,
) -> PlainResponse {
    let parts = request.parts();
    if parts.method != Method::GET && parts.method != Method::HEAD {
        let mut response = refusal(
            StatusCode::METHOD_NOT_ALLOWED,
            "this method is not allowed here",
        );
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(header::ALLOW, allowed);
        return response;
    }
    let principal = match request.principal().await {
        Ok(principal) => principal,
        Err(refused) => return *refused,
    };
    let uri = format!("skill://{name}");
    let Ok(etags) = joined(&parts.headers, &header::IF_NONE_MATCH) else {
        return refusal(StatusCode::BAD_REQUEST, "`If-None-Match` is no text");
    };
    let trace = trace(&parts.headers);
    let outcome = mcp
        .read_plainly(&principal, &uri, etags.as_deref(), trace)
        .await;
    let mut response = match outcome {
        Ok(PlainRead::NotModified(etag)) => tagged(StatusCode::NOT_MODIFIED, Some(&etag)),
        Ok(PlainRead::Content(content)) => sent(&content, &parts.method, &parts.headers),
        Err(refused) => refusal_of(refused),
    };
    if parts.method == Method::HEAD {
        if !response.headers().contains_key(header::CONTENT_LENGTH) {
            let length = HeaderValue::from(response.body().len());
            let headers = response.headers_mut();
            headers.insert(header::CONTENT_LENGTH, length);
        }
        *response.body_mut() = Bytes::new();
    }
    response
}

fn refusal_of(refused: PlainRefusal) -> PlainResponse {
    let status = StatusCode::from_u16(refused.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = refusal_with(status, refused.error);
    if let Some(seconds) = refused.retry_after {
        let headers = response.headers_mut();
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn sent(content: &PlainContent, method: &Method, headers: &HeaderMap) -> PlainResponse {
    let size = content.bytes.len();
    let etag = content.etag.as_deref();
    // RFC 9110, 14.2: only GET has ranges.
    let asked = match method {
        &Method::GET => range(headers, size, etag),
        _ => Asked::All,
    };
    let (status, body, said) = match asked {
        Asked::All => (StatusCode::OK, content.bytes.clone(), None),
        Asked::Part(part) => {
            let said = format!("bytes {}-{}/{size}", part.start, part.end - 1);
            let body = content.bytes.slice(part);
            (StatusCode::PARTIAL_CONTENT, body, Some(said))
        }
        Asked::Nothing => {
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            (status, Bytes::new(), Some(format!("bytes */{size}")))
        }
    };
    let mut response = tagged(status, etag);
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(said) = said.and_then(|it| HeaderValue::from_str(&it).ok()) {
        headers.insert(header::CONTENT_RANGE, said);
    }
    let mime_type = content.mime_type.as_deref().unwrap_or(UNKNOWN_TYPE);
    // A text is UTF-8, or it would not be one.
    let mime_type = match mime_type {
        text if text.starts_with("text/") && !text.contains("charset") => {
            format!("{text}; charset=utf-8")
        }
        other => other.to_owned(),
    };
    let mime_type = HeaderValue::from_str(&mime_type)
        .unwrap_or_else(|_| HeaderValue::from_static(UNKNOWN_TYPE));
    headers.insert(header::CONTENT_TYPE, mime_type);
    *response.body_mut() = body;
    response
}

const UNKNOWN_TYPE: &str = "application/octet-stream";

/// A response that says which state of the resource it is about.
fn tagged(status: StatusCode, etag: Option<&str>) -> PlainResponse {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Some(etag) = etag.and_then(|it| HeaderValue::from_str(&format!("\"{it}\"")).ok()) {
        headers.insert(header::ETAG, etag);
    }
    // Whoever may read it today need not tomorrow, so it is asked each time.
    let cache = HeaderValue::from_static("private, no-cache");
    headers.insert(header::CACHE_CONTROL, cache);
    // A page among the files of a skill is nobody's page, least of all ours.
    let alone = HeaderValue::from_static("default-src 'none'; sandbox");
    headers.insert(header::CONTENT_SECURITY_POLICY, alone);
    let as_said = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, as_said);
    response
}

/// Range of bytes that a request asks for.
#[derive(Debug, PartialEq)]
enum Asked {
    All,
    Part(Range<usize>),
    /// Some that are not there.
    Nothing,
}

/// Range that the headers ask for of a text of `size` bytes. An unknown unit, and more than one
/// part, is ignored, as RFC 9110, 14.2, has it.
fn range(headers: &HeaderMap, size: usize, etag: Option<&str>) -> Asked {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return Asked::All;
    };
    // A part of another state than the reader has the rest of is of no use to it.
    if let Some(known) = headers.get(header::IF_RANGE) {
        let known = known.to_str().ok();
        let is_known = known.and_then(|it| it.strip_prefix('"')?.strip_suffix('"'));
        if is_known.is_none() || is_known != etag {
            return Asked::All;
        }
    }
    let Some((first, last)) = range.to_str().ok().and_then(bounds) else {
        return Asked::All;
    };
    match (first, last) {
        (None, Some(0)) => Asked::Nothing,
        (None, Some(count)) if 0 < size => Asked::Part(size.saturating_sub(count)..size),
        (Some(first), None) if first < size => Asked::Part(first..size),
        (Some(first), Some(last)) if last < first => Asked::All,
        (Some(first), Some(last)) if first < size => {
            Asked::Part(first..size.min(last.saturating_add(1)))
        }
        (None, None) => Asked::All,
        _ => Asked::Nothing,
    }
}

/// The two numbers of one range of bytes.
fn bounds(range: &str) -> Option<(Option<usize>, Option<usize>)> {
    let (unit, range) = range.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let bound = |digits: &str| match digits {
        "" => Some(None),
        digits if digits.bytes().all(|it| it.is_ascii_digit()) => {
            // More than can be counted is more than there is.
            Some(Some(digits.parse().unwrap_or(usize::MAX)))
        }
        _ => None,
    };
    Some((bound(first)?, bound(last)?))
}

/// The values of a header that may be repeated, as one; `Err` if one is no text.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Result<Option<String>, header::ToStrError> {
    let values = headers.get_all(name).iter().map(HeaderValue::to_str);
    let values = values.collect::<Result<Vec<_>, _>>()?;
    Ok((!values.is_empty()).then(|| values.join(", ")))
}

fn trace(headers: &HeaderMap) -> Option<TraceContext> {
    let parent = joined(headers, &TRACEPARENT).ok()??;
    let state = joined(headers, &TRACESTATE).ok()?;
    TraceContext::parse(&parent, state.as_deref())
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_has_them() {
        for (value, size, expected) in [
            ("bytes=0-0", 10, Asked::Part(0..1)),
            ("bytes=2-5", 10, Asked::Part(2..6)),
            ("Bytes = 2-5", 10, Asked::Part(2..6)),
            ("bytes=2-", 10, Asked::Part(2..10)),
            ("bytes=2-99", 10, Asked::Part(2..10)),
            ("bytes=-3", 10, Asked::Part(7..10)),
            ("bytes=-99", 10, Asked::Part(0..10)),
            ("bytes=0-99999999999999999999999999", 10, Asked::Part(0..10)),
            ("bytes=10-", 10, Asked::Nothing),
            ("bytes=10-12", 10, Asked::Nothing),
            ("bytes=99999999999999999999999999-", 10, Asked::Nothing),
            ("bytes=-0", 10, Asked::Nothing),
            ("bytes=0-", 0, Asked::Nothing),
            ("bytes=-1", 0, Asked::Nothing),
            ("bytes=5-2", 10, Asked::All),
            ("bytes=0-1,4-5", 10, Asked::All),
            ("bytes=-", 10, Asked::All),
            ("bytes=", 10, Asked::All),
            ("bytes=+1-2", 10, Asked::All),
            ("bytes=1-2x", 10, Asked::All),
            ("lines=1-2", 10, Asked::All),
            ("1-2", 10, Asked::All),
            ("", 10, Asked::All),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, HeaderValue::from_static(value));
            assert_eq!(range(&headers, size, Some("a")), expected, "{value}");
            headers.append(header::RANGE, HeaderValue::from_static("bytes=0-0"));
            assert_eq!(range(&headers, size, Some("a")), Asked::All, "twice");
        }
    }

    #[test]
    fn a_part_of_something_else_is_not_sent() {
        for (known, expected) in [
            ("\"a\"", Asked::Part(0..1)),
            ("\"b\"", Asked::All),
            ("W/\"a\"", Asked::All),
            ("a", Asked::All),
            ("Sat, 21 Nov 2026 12:00:00 GMT", Asked::All),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-0"));
            headers.insert(header::IF_RANGE, HeaderValue::from_static(known));
            assert_eq!(range(&headers, 10, Some("a")), expected, "{known}");
        }
        assert_eq!(range(&HeaderMap::new(), 10, None), Asked::All);
    }
}
