//! The headers that mirror a modern request's body (2026-07-28, basic/transports).

use crate::{
    headers::{Headers, Single},
    seams::header_params::HeaderParams,
};
use http::HeaderMap;
use jsonrpc_core::Request;
use mcp_protocol::{Method, ProtocolError, RequestedVersion, Session, model::RequestMeta};
use mcp_service::Principal;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use std::{borrow::Cow, fmt};

/// Compares headers and body of a modern request, in the order in which a client can tell what is
/// wrong: that both name the same version comes before whether it is one we serve.
pub(crate) fn check(
    headers: &Headers<'_>,
    request: &Request,
    meta: &RequestMeta,
) -> Result<(), ProtocolError> {
    check_version(headers, meta)?;
    let Single::One(method) = headers.method else {
        return Err(unusable("Mcp-Method", headers.method));
    };
    if method != request.method.as_bytes() {
        return Err(mismatch("Mcp-Method is not the body's `method`"));
    }
    let Some((member, name)) = name_of(request, meta) else {
        return Ok(());
    };
    let Single::One(value) = headers.name else {
        return Err(unusable("Mcp-Name", headers.name));
    };
    if decode(value)? != name.as_bytes() {
        return Err(ProtocolError::HeaderMismatch {
            reason: format!("Mcp-Name is not the body's `params.{member}`"),
        });
    }
    Ok(())
}

/// Lets the tool's schema say which arguments are mirrored, too.
pub(crate) fn check_params(
    check: &dyn HeaderParams,
    principal: &Principal,
    headers: &HeaderMap,
    request: &Request,
    meta: &RequestMeta,
) -> Result<(), ProtocolError> {
    match name_of(request, meta) {
        Some(("name", tool)) if request.method == Method::CallTool.name() => check
            .check(principal, &tool, &request.params, headers)
            .map_err(|reason| ProtocolError::HeaderMismatch { reason }),
        _ => Ok(()),
    }
}

fn check_version(headers: &Headers<'_>, meta: &RequestMeta) -> Result<(), ProtocolError> {
    let unsupported = |version: RequestedVersion| ProtocolError::UnsupportedVersion {
        requested: version.as_str().chars().take(MAX_ECHOED).collect(),
    };
    let Some(named) = &meta.protocol_version else {
        // Modern by its header alone.
        return Err(match headers.version() {
            Some(version @ RequestedVersion::Unknown(_)) => unsupported(version),
            _ => ProtocolError::InvalidMeta {
                reason: "`io.modelcontextprotocol/protocolVersion` is missing".to_owned(),
            },
        });
    };
    let Single::One(version) = headers.version else {
        return Err(unusable("MCP-Protocol-Version", headers.version));
    };
    if version != named.as_str().as_bytes() {
        return Err(mismatch(
            "MCP-Protocol-Version is not the version in the body's `_meta`",
        ));
    }
    match Session::default().version_of(meta) {
        Err(ProtocolError::UnsupportedVersion { .. }) => Err(unsupported(named.clone())),
        checked => checked.map(drop),
    }
}

/// Most characters of a client's text that are echoed.
const MAX_ECHOED: usize = 128;

/// Member of `params` that `Mcp-Name` mirrors, with its value, if the method has one. A body
/// without it is malformed, which is for the method to say.
fn name_of<'r>(request: &'r Request, meta: &RequestMeta) -> Option<(&'static str, Cow<'r, str>)> {
    let member = Method::named(&request.method)?.named_by()?;
    let plain = match member {
        "name" => meta.name_in(&request.params),
        _ => first_member(request.params.as_str(), member),
    };
    if let Some(name) = plain {
        return Some((member, Cow::Borrowed(name)));
    }
    let mut name = None;
    let mut deserializer = serde_json::Deserializer::from_str(request.params.as_str());
    // Stopping early is an error to the parser. It is none to us: the parameters were read before
    // and will be read again, with members that are there twice refused.
    let _stopped = deserializer.deserialize_map(Find {
        member,
        found: &mut name,
    });
    Some((member, name?))
}

/// The string that `member` is, where an object without spaces has it first and without escapes: as
/// most clients write it. Nothing of that which is otherwise.
fn first_member<'a>(object: &'a str, member: &str) -> Option<&'a str> {
    let value = object.strip_prefix("{\"")?.strip_prefix(member)?;
    let value = value.strip_prefix("\":\"")?;
    let end = value.find(['"', '\\'])?;
    value[end..].starts_with('"').then(|| &value[..end])
}

/// Looks for a string member, and reads no further than it: most requests have it first, and what
/// comes after is longer.
struct Find<'f, 'de> {
    member: &'static str,
    found: &'f mut Option<Cow<'de, str>>,
}

/// A string that borrows unless it has escapes.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Find<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        while let Some(Text(member)) = members.next_key()? {
            if member == self.member {
                let Text(value) = members.next_value()?;
                *self.found = Some(value);
                return Ok(());
            }
            members.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

fn mismatch(reason: &str) -> ProtocolError {
    ProtocolError::HeaderMismatch {
        reason: reason.to_owned(),
    }
}

fn unusable(name: &str, value: Single<'_>) -> ProtocolError {
    let what = if value.is_missing() {
        "is missing"
    } else {
        "is there twice, with different values"
    };
    ProtocolError::HeaderMismatch {
        reason: format!("{name} {what}"),
    }
}

/// The text that a header value stands for: itself, or what `=?base64?…?=` holds.
fn decode(value: &[u8]) -> Result<Cow<'_, [u8]>, ProtocolError> {
    if !value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return Err(mismatch("Mcp-Name has characters that must be encoded"));
    }
    let encoded = value
        .strip_prefix(b"=?base64?")
        .and_then(|value| value.strip_suffix(b"?="));
    let Some(encoded) = encoded else {
        return Ok(Cow::Borrowed(value));
    };
    base64(encoded)
        .filter(|bytes| std::str::from_utf8(bytes).is_ok())
        .map(Cow::Owned)
        .ok_or_else(|| mismatch("Mcp-Name is no base64 of a UTF-8 text"))
}

/// Standard base64 (RFC 4648, section 4), padding and zero bits demanded; `None` for anything else.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let digits = text
        .strip_suffix(b"==")
        .or_else(|| text.strip_suffix(b"="))
        .unwrap_or(text);
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for position in 0..4 {
            let value = match group.get(position) {
                Some(byte) => digit(*byte)?,
                None => 0,
            };
            bits = bits << 6 | u32::from(value);
        }
        let [_, a, b, c] = bits.to_be_bytes();
        let (whole, rest): (&[u8], &[u8]) = match group.len() {
            4 => (&[a, b, c], &[]),
            3 => (&[a, b], &[c]),
            2 => (&[a], &[b, c]),
            _ => return None,
        };
        if rest.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(whole);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jsonrpc_core::RawJson;

    #[test]
    fn the_name_is_found_wherever_it_is() {
        let name = |params: &str| {
            let request = Request {
                id: 1.into(),
                method: "tools/call".to_owned(),
                params: RawJson::from_bytes(params.to_owned().into()).unwrap(),
            };
            let meta = RequestMeta::of(&request.params).unwrap_or_default();
            name_of(&request, &meta).map(|(_, name)| name.into_owned())
        };
        for (params, expected) in [
            (r#"{"name":"a","arguments":{"name":"b"}}"#, Some("a")),
            (
                r#"{"arguments":{"name":"b"},"_meta":[{}],"name":"a"}"#,
                Some("a"),
            ),
            (r#"{"na\u006de":"\u0061\n"}"#, Some("a\n")),
            (r#"{"name":"a\"b"}"#, Some("a\"b")),
            (r#"{ "name" : "a" }"#, Some("a")),
            (r#"{"names":"b","name":"é"}"#, Some("é")),
            (r#"{"name":"","arguments":{"a":"\\"}}"#, Some("")),
            (r#"{"name":7}"#, None),
            (r#"{"name":null}"#, None),
            (r#"{"Name":"a"}"#, None),
            ("{}", None),
            (r#"["a"]"#, None),
        ] {
            assert_eq!(name(params).as_deref(), expected, "{params}");
        }
    }

    #[test]
    fn base64_is_read_strictly() {
        for (text, bytes) in [
            ("", Some(&b""[..])),
            ("Zg==", Some(b"f")),
            ("Zm8=", Some(b"fo")),
            ("Zm9v", Some(b"foo")),
            ("Zm9vYg==", Some(b"foob")),
            ("+/+/", Some(b"\xfb\xff\xbf")),
            ("Zg=", None),
            ("Zg", None),
            ("Z===", None),
            ("====", None),
            ("Zh==", None),
            ("Zm9=", None),
            ("Zm 9", None),
            ("Zm-_", None),
            ("Zg==Zg==", None),
        ] {
            assert_eq!(base64(text.as_bytes()).as_deref(), bytes, "{text}");
        }
    }

    #[test]
    fn a_value_is_decoded_only_if_it_is_wholly_encoded() {
        let decoded = |value: &str| decode(value.as_bytes()).ok().map(Cow::into_owned);
        assert_eq!(decoded("add").unwrap(), b"add");
        assert_eq!(
            decoded("=?base64?Z3LDtsOfZQ==?=").unwrap(),
            "größe".as_bytes()
        );
        assert_eq!(decoded("=?base64??=").unwrap(), b"");
        for literal in ["=?base64?", "Zg==?=", "=?base64?=", "=?BASE64?Zg==?="] {
            assert_eq!(decoded(literal).unwrap(), literal.as_bytes());
        }
        for bad in ["=?base64?Zg?=", "=?base64?/w==?=", "größe", "a\u{7f}"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }
}
