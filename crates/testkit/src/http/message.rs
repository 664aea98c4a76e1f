//! Requests as they are written, and responses as they are read.

use std::fmt::Write;

use serde_json::Value;

/// A request, exactly as it goes over the wire: nothing is checked, no header is added except for
/// `content-length` where the body is set with [`HttpRequest::body`].
#[derive(Debug, Clone)]
pub struct HttpRequest {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl HttpRequest {
    /// A request without body; `target` is the path and query.
    #[must_use]
    pub fn new(method: &str, target: &str) -> Self {
        Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![("host".to_owned(), "localhost".to_owned())],
            body: Vec::new(),
        }
    }

    /// A POST of JSON that takes either kind of answer.
    #[must_use]
    pub fn post(target: &str, body: impl AsRef<[u8]>) -> Self {
        Self::new("POST", target)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body)
    }

    /// A GET.
    #[must_use]
    pub fn get(target: &str) -> Self {
        Self::new("GET", target)
    }

    /// Adds a header, beside others of that name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Removes all headers of that name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// Has exactly one header of that name.
    #[must_use]
    pub fn with(self, name: &str, value: &str) -> Self {
        self.without(name).header(name, value)
    }

    /// Sets the body and its length. For a wrong length, follow with [`HttpRequest::with`].
    #[must_use]
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        let length = self.body.len().to_string();
        self.with("content-length", &length)
    }

    /// The body.
    #[must_use]
    pub fn body_bytes(&self) -> &[u8] {
        &self.body
    }

    /// Returns true if the answer to it never has a body.
    #[must_use]
    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The whole request as bytes, to be sent in parts perhaps.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").expect("a string takes everything");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A response. Its body is all of it, unless it was read as a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// The status code.
    pub status: u16,
    /// Names in lower case, values trimmed, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body, without its transfer coding.
    pub body: Vec<u8>,
}

impl HttpResponse {
    /// The value of the only header of that name.
    ///
    /// # Panics
    ///
    /// If there are several.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self
            .headers
            .iter()
            .filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let value = found.next().map(|(_, value)| value.as_str());
        assert!(
            found.next().is_none(),
            "several headers {name}: {:?}",
            self.headers
        );
        value
    }

    /// The media type, without parameters.
    #[must_use]
    pub fn media_type(&self) -> Option<&str> {
        self.header("content-type")
            .map(|it| it.split(';').next().unwrap_or_default().trim())
    }

    /// The body as text.
    ///
    /// # Panics
    ///
    /// If it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }

    /// Parses a head: everything up to the empty line.
    pub(super) fn parse_head(head: &str) -> Result<Self, String> {
        let mut lines = head.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.strip_prefix("HTTP/1.1 "))
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .ok_or_else(|| format!("no HTTP/1.1 status line: {head:?}"))?;
        let headers = lines
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (name, value) = line
                    .split_once(':')
                    .filter(|(name, _)| !name.is_empty() && !name.contains(' '))
                    .ok_or_else(|| format!("no header: {line:?}"))?;
                Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
            })
            .collect::<Result<_, String>>()?;
        Ok(Self {
            status,
            headers,
            body: Vec::new(),
        })
    }
}

/// A value as the modern revision wants it in `Mcp-Name` and `Mcp-Param-*`: plain where that is
/// possible, else in the `=?base64?…?=` form.
#[must_use]
pub fn encode_header_value(value: &str) -> String {
    let plain = value
        .bytes()
        .all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let trimmed = value.trim_matches([' ', '\t']) == value;
    let looks_encoded = value.starts_with("=?base64?") && value.ends_with("?=");
    if plain && trimmed && !looks_encoded {
        return value.to_owned();
    }
    format!("=?base64?{}?=", base64(value.as_bytes()))
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for position in 0..4 {
            if position > group.len() {
                text.push('=');
            } else {
                let index = bits >> (18 - 6 * position) & 63;
                text.push(char::from(ALPHABET[index as usize]));
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_as_it_was_said() {
        let request = HttpRequest::post("/mcp", "{}")
            .with("content-length", "99")
            .without("HOST");
        let text = String::from_utf8(request.to_bytes()).unwrap();
        assert_eq!(
            text,
            "POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: 99\r\n\r\n{}"
        );
    }

    #[test]
    fn header_values_are_encoded_only_where_they_must_be() {
        for (value, encoded) in [
            ("add", "add"),
            ("a b", "a b"),
            ("", ""),
            (" add", "=?base64?IGFkZA==?="),
            ("größe", "=?base64?Z3LDtsOfZQ==?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
            ("=?base64?x", "=?base64?x"),
        ] {
            assert_eq!(encode_header_value(value), encoded);
        }
    }

    #[test]
    fn a_head_that_is_none_is_refused() {
        let head = HttpResponse::parse_head("HTTP/1.1 200 OK\r\nA: b \r\nA:c").unwrap();
        assert_eq!((head.status, head.headers.len()), (200, 2));
        assert_eq!(head.headers[0], ("a".to_owned(), "b".to_owned()));
        for broken in [
            "HTTP/1.0 200 OK",
            "HTTP/1.1 abc",
            "HTTP/1.1 200 OK\r\nno header",
        ] {
            HttpResponse::parse_head(broken).unwrap_err();
        }
    }
}
