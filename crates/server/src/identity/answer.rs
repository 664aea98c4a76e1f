//! Answers to clients that are not authenticated, and metadata on how to get tokens.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use identity::{Challenge, Rejection, ResourceMetadata};
use jsonrpc_core::{ErrorCode, ErrorObject};
use serde_json::json;
use transport_http::{PlainResponse, refusal_with};

/// `Retry-After` in seconds while keys cannot be had: about the time until they are fetched again.
const UNAVAILABLE_SECONDS: u64 = 10;
/// `Retry-After` in seconds after too many failures: they are forgiven at ten a second.
const ATTEMPTS_SECONDS: u64 = 10;
/// Refusals that are logged one by one in a second. Of further ones the number is.
const MAX_LINES: u32 = 20;

/// Response to a refused request.
pub(super) fn refused(
    challenge: &Challenge,
    rejection: &Rejection,
    advice: &str,
    nonce: Option<&str>,
) -> Box<PlainResponse> {
    let status = match rejection {
        Rejection::Missing
        | Rejection::Invalid { .. }
        | Rejection::Unproved { .. }
        | Rejection::NeedsNonce => StatusCode::UNAUTHORIZED,
        Rejection::Malformed { .. } => StatusCode::BAD_REQUEST,
        Rejection::InsufficientScope { .. } => StatusCode::FORBIDDEN,
        Rejection::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
        Rejection::TooManyAttempts => StatusCode::TOO_MANY_REQUESTS,
    };
    let retry_after = match rejection {
        Rejection::Unavailable { .. } => Some(UNAVAILABLE_SECONDS),
        Rejection::TooManyAttempts => Some(ATTEMPTS_SECONDS),
        _ => None,
    };
    let message = match rejection {
        Rejection::Missing => format!("{rejection}: {advice}"),
        _ => rejection.to_string(),
    };
    let error = match retry_after {
        None => ErrorObject::lasting(ErrorCode::INVALID_REQUEST, message),
        Some(seconds) => ErrorObject::new(ErrorCode::INVALID_REQUEST, message)
            .with(&json!({ "retryable": true, "retry_after": seconds })),
    };
    let mut response = refusal_with(status, error);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Some(seconds) = retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(nonce) = nonce.and_then(|it| HeaderValue::try_from(it).ok()) {
        headers.insert("dpop-nonce", nonce);
    }
    if let Some(challenge) = challenge.header(rejection)
        && let Ok(value) = HeaderValue::try_from(challenge)
    {
        headers.insert(header::WWW_AUTHENTICATE, value);
    }
    Box::new(response)
}

/// Advice on the accepted means of proof. An authorization server is named only if one is configured.
pub(super) fn advice(keys: bool, metadata: bool, issuers: bool, certificates: bool) -> String {
    let key = keys.then_some(
        "send an API key (`owl_…`) after `Bearer` in the header `Authorization`, or in the header `X-API-Key`; an \
         operator of this server makes one with `owlclaw-mcp keys create --principal NAME`",
    );
    let token = match (issuers, metadata) {
        (false, _) => None,
        (true, true) => Some(
            "send an access token after `Bearer` in the header `Authorization`, of an authorization server that \
             /.well-known/oauth-protected-resource names",
        ),
        (true, false) => Some(
            "send an access token after `Bearer` in the header `Authorization`, of a known issuer",
        ),
    };
    let certificate = certificates.then_some("show a client certificate");
    let ways: Vec<_> = [key, token, certificate].into_iter().flatten().collect();
    ways.join(", or ")
}

/// Metadata with the places where tokens are issued: public, and the same for every client.
pub(super) fn metadata(metadata: &ResourceMetadata) -> PlainResponse {
    let mut response = Response::new(Bytes::from(metadata.document()));
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    let for_a_while = HeaderValue::from_static("public, max-age=300");
    headers.insert(header::CACHE_CONTROL, for_a_while);
    response
}

/// Log of refusals, limited to a readable number of lines per second.
#[derive(Debug, Default)]
pub(super) struct Lines(Mutex<Option<Second>>);

#[derive(Debug)]
struct Second {
    began: Instant,
    lines: u32,
    left_out: u64,
}

impl Lines {
    /// Number of lines left out before this one; `None` if this one is left out too.
    pub(super) fn admit(&self, now: Instant) -> Option<u64> {
        let mut second = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = match &mut *second {
            Some(second)
                if now.saturating_duration_since(second.began) < Duration::from_secs(1) =>
            {
                if MAX_LINES <= second.lines {
                    second.left_out += 1;
                    return None;
                }
                second.lines += 1;
                return Some(0);
            }
            Some(second) => second.left_out,
            None => 0,
        };
        *second = Some(Second {
            began: now,
            lines: 1,
            left_out: 0,
        });
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redaction::{Redactor, Spec};

    #[test]
    fn advice_names_an_authorization_server_only_where_there_is_one() {
        let keys = advice(true, false, false, false);
        assert!(
            keys.contains("X-API-Key") && keys.contains("keys create"),
            "{keys}"
        );
        assert!(
            !keys.contains("token") && !keys.contains("authorization server"),
            "{keys}"
        );
        let tokens = advice(false, true, true, false);
        assert!(tokens.contains("oauth-protected-resource") && !tokens.contains("API key"));
        let all = advice(true, false, true, true);
        assert!(all.contains("API key") && all.contains("issuer") && all.contains("certificate"));
        // The log shows refusals, and hides what looks like a header with a secret.
        let redactor = Redactor::new(&Spec::default(), [0; 32]).unwrap();
        for said in [keys, tokens, all, advice(false, false, true, false)] {
            assert_eq!(redactor.text(&said), said);
        }
    }

    #[test]
    fn a_flood_of_refusals_is_a_number_in_the_log() {
        let lines = Lines::default();
        let now = Instant::now();
        let admitted = (0..1_000).filter(|_| lines.admit(now).is_some()).count();
        assert_eq!(admitted, 20);
        assert_eq!(lines.admit(now + Duration::from_secs(1)), Some(980));
        assert_eq!(lines.admit(now + Duration::from_secs(2)), Some(0));
    }
}
