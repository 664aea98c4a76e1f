use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

/// Subprotocol name by which clients ask for MCP over WebSocket.
pub const SUBPROTOCOL: &str = "mcp";

/// The only version there is (RFC 6455 §4.1).
const VERSION: &str = "13";

/// Length of `Sec-WebSocket-Key`: 16 bytes in base64.
const KEY_LENGTH: usize = 24;

/// Reason why a request does not open a WebSocket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// A method other than GET.
    #[error("a WebSocket is opened with GET")]
    Method,
    /// A request that does not ask for an upgrade.
    #[error(
        "a WebSocket is spoken here: `Connection: Upgrade` and `Upgrade: websocket` are missing"
    )]
    NoUpgrade,
    /// Another version than 13.
    #[error("`Sec-WebSocket-Version` must be 13")]
    Version,
    /// No key, or more than one, or none that is 16 bytes.
    #[error("`Sec-WebSocket-Key` must be 16 bytes in base64")]
    Key,
    /// A list of subprotocols without ours.
    #[error("`Sec-WebSocket-Protocol` must have mcp, if it is there")]
    Subprotocol,
}

impl HandshakeError {
    /// Status of the answer.
    pub fn status(self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoUpgrade | Self::Version => StatusCode::UPGRADE_REQUIRED,
            Self::Key | Self::Subprotocol => StatusCode::BAD_REQUEST,
        }
    }

    /// Further headers of the answer.
    pub fn headers(self) -> Vec<(HeaderName, HeaderValue)> {
        let of = HeaderValue::from_static;
        match self {
            Self::Method => vec![(header::ALLOW, of("GET"))],
            Self::NoUpgrade => vec![
                (header::UPGRADE, of("websocket")),
                (header::CONNECTION, of("upgrade")),
            ],
            Self::Version => vec![
                (header::UPGRADE, of("websocket")),
                (header::CONNECTION, of("upgrade")),
                (header::SEC_WEBSOCKET_VERSION, of(VERSION)),
            ],
            Self::Key | Self::Subprotocol => Vec::new(),
        }
    }
}

/// Headers of the answer 101 besides `Upgrade: websocket` (RFC 6455 §4.2.2). Extensions are never
/// agreed on, so that no message is larger than the bytes that came.
///
/// # Errors
///
/// [`HandshakeError`], and HTTP goes on.
pub fn handshake(request: &Parts) -> Result<Vec<(HeaderName, HeaderValue)>, HandshakeError> {
    let headers = &request.headers;
    if request.method != Method::GET {
        return Err(HandshakeError::Method);
    }
    let upgrades = has_token(headers, &header::CONNECTION, "upgrade")
        && has_token(headers, &header::UPGRADE, "websocket");
    if !upgrades {
        return Err(HandshakeError::NoUpgrade);
    }
    match only(headers, &header::SEC_WEBSOCKET_VERSION) {
        Some(version) if version == VERSION => {}
        _ => return Err(HandshakeError::Version),
    }
    let key = only(headers, &header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let key = key.filter(|key| is_key(key)).ok_or(HandshakeError::Key)?;
    let accept = HeaderValue::try_from(derive_accept_key(key)).map_err(|_| HandshakeError::Key)?;
    let mut answer = vec![(header::SEC_WEBSOCKET_ACCEPT, accept)];
    if headers.contains_key(header::SEC_WEBSOCKET_PROTOCOL) {
        if !has_token(headers, &header::SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
            return Err(HandshakeError::Subprotocol);
        }
        let chosen = HeaderValue::from_static(SUBPROTOCOL);
        answer.push((header::SEC_WEBSOCKET_PROTOCOL, chosen));
    }
    Ok(answer)
}

/// 16 bytes are 22 digits and two signs that there is nothing more.
fn is_key(key: &[u8]) -> bool {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    key.len() == KEY_LENGTH && key.ends_with(b"==") && key[..KEY_LENGTH - 2].iter().all(is_digit)
}

fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then_some(value)
}

/// Returns true if a list of words, in one header or in several, has `token`.
fn has_token(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter();
    let mut words = values
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    words.any(|word| word.trim().eq_ignore_ascii_case(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 6455 §1.3, with `changes` made to it; an empty value takes a header away.
    fn ask(changes: &[(&str, &str)]) -> Result<Vec<(HeaderName, HeaderValue)>, HandshakeError> {
        let mut request = http::Request::new(());
        let headers = request.headers_mut();
        let example = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
        ];
        for (name, value) in example.iter().chain(changes) {
            let name = HeaderName::try_from(*name).unwrap();
            headers.remove(&name);
            if !value.is_empty() {
                headers.insert(name, HeaderValue::try_from(*value).unwrap());
            }
        }
        handshake(&request.into_parts().0)
    }

    #[test]
    fn the_example_of_the_rfc_is_answered_as_there() {
        let accept = HeaderValue::from_static("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(
            ask(&[]).unwrap(),
            [(header::SEC_WEBSOCKET_ACCEPT, accept.clone())]
        );
        let offered = [("sec-websocket-protocol", "chat, MCP")];
        let chosen = HeaderValue::from_static("mcp");
        assert_eq!(
            ask(&offered).unwrap(),
            [
                (header::SEC_WEBSOCKET_ACCEPT, accept),
                (header::SEC_WEBSOCKET_PROTOCOL, chosen)
            ]
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_status() {
        let rows: [(&str, &str, HandshakeError); 9] = [
            ("connection", "", HandshakeError::NoUpgrade),
            ("connection", "keep-alive", HandshakeError::NoUpgrade),
            ("upgrade", "h2c", HandshakeError::NoUpgrade),
            ("sec-websocket-version", "", HandshakeError::Version),
            ("sec-websocket-version", "8", HandshakeError::Version),
            ("sec-websocket-key", "", HandshakeError::Key),
            (
                "sec-websocket-key",
                "dGhlIHNhbXBsZSBub25jZQ=",
                HandshakeError::Key,
            ),
            (
                "sec-websocket-key",
                "dGhlIHNhbXBsZSBub25j*Q==",
                HandshakeError::Key,
            ),
            (
                "sec-websocket-protocol",
                "chat, mcp2",
                HandshakeError::Subprotocol,
            ),
        ];
        for (name, value, error) in rows {
            assert_eq!(ask(&[(name, value)]).unwrap_err(), error, "{name}: {value}");
            assert!(error.status().is_client_error());
        }
        let mut request = http::Request::new(());
        *request.method_mut() = Method::POST;
        let error = handshake(&request.into_parts().0).unwrap_err();
        assert_eq!(error.status(), StatusCode::METHOD_NOT_ALLOWED);
        let told = HandshakeError::Version.headers();
        assert!(
            told.iter()
                .any(|(name, value)| { name == header::SEC_WEBSOCKET_VERSION && value == VERSION })
        );
    }

    #[test]
    fn a_key_that_came_twice_is_none() {
        let mut request = http::Request::new(());
        let headers = request.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(
            header::SEC_WEBSOCKET_VERSION,
            HeaderValue::from_static("13"),
        );
        let key = HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==");
        headers.append(header::SEC_WEBSOCKET_KEY, key.clone());
        headers.append(header::SEC_WEBSOCKET_KEY, key);
        let error = handshake(&request.into_parts().0).unwrap_err();
        assert_eq!(error, HandshakeError::Key);
    }
}
