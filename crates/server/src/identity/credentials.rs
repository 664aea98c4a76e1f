//! Credentials that a request carries.

use http::{HeaderMap, HeaderName, HeaderValue, Uri, header, request::Parts};
use identity::{ApiKey, Rejection};
use percent_encoding::percent_decode_str;

/// Header that may carry a key, besides `Authorization`.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
/// Names under which other servers take credentials in the query. A client that sends one there
/// believes to be authenticated by it; besides, it would be in every log on the way (RFC 6750 §2.3,
/// and MCP forbids it).
const IN_QUERY: [&str; 3] = ["access_token", "api_key", "apikey"];

/// Header with the proof of a key that a token is bound to (RFC 9449 §4.1).
const DPOP: HeaderName = HeaderName::from_static("dpop");

/// Proofs that a request carries; at most one of a kind.
#[derive(Debug, Default)]
pub(super) struct Credentials<'a> {
    pub(super) keys: [Option<&'a str>; 2],
    pub(super) token: Option<&'a str>,
    /// Scheme `DPoP`: the token is said to be bound to a key.
    pub(super) is_bound: bool,
    /// Proof of a key.
    pub(super) proof: Option<&'a str>,
}

impl<'a> Credentials<'a> {
    /// # Errors
    ///
    /// [`Rejection`] where something is there that is no proof of any kind, or that could be read in
    /// two ways.
    pub(super) fn of(request: &'a Parts) -> Result<Self, Rejection> {
        let malformed = |why| Err(Rejection::Malformed { why });
        if asks_in_query(&request.uri) {
            return malformed("credentials belong into a header, and not into the URL");
        }
        let headers = &request.headers;
        let mut credentials = Self::default();
        if let Some(value) = only(headers, &header::AUTHORIZATION).map_err(|()| TWICE)? {
            let (shown, is_bound) = shown(value)?;
            match ApiKey::is_one(shown) && !is_bound {
                true => credentials.keys[0] = Some(shown),
                false => credentials.token = Some(shown),
            }
            credentials.is_bound = is_bound;
        }
        if let Some(value) = only(headers, &DPOP).map_err(|()| TWICE)? {
            let Ok(proof) = value.to_str() else {
                return malformed("`DPoP` is not readable");
            };
            credentials.proof = Some(proof.trim());
        }
        if let Some(value) = only(headers, &API_KEY).map_err(|()| TWICE)? {
            let Ok(key) = value.to_str() else {
                return malformed("`X-API-Key` is not readable");
            };
            credentials.keys[1] = Some(key.trim());
        }
        Ok(credentials)
    }

    pub(super) fn are_none(&self) -> bool {
        self.token.is_none() && self.keys.iter().all(Option::is_none)
    }
}

const TWICE: Rejection = Rejection::Malformed {
    why: "credentials must be there once, and not several times",
};

/// The value of a header that may be there once.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a HeaderValue>, ()> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        (_, Some(_)) => Err(()),
    }
}

/// Token after `Bearer` or `DPoP`, in the characters that RFC 6750 §2.1 allows, and true after the latter.
fn shown(value: &HeaderValue) -> Result<(&str, bool), Rejection> {
    let Ok(text) = value.to_str() else {
        return Err(Rejection::Malformed {
            why: "`Authorization` is not readable",
        });
    };
    let (scheme, token) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let is_bound = scheme.eq_ignore_ascii_case("dpop");
    if !is_bound && !scheme.eq_ignore_ascii_case("bearer") {
        return Err(Rejection::Invalid {
            why: "only tokens and API keys are accepted",
        });
    }
    let token = token.trim();
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    if token.is_empty() || !token.bytes().all(is_legal) {
        return Err(Rejection::Malformed {
            why: "what follows the scheme is no token",
        });
    }
    Ok((token, is_bound))
}

fn asks_in_query(uri: &Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    let names = query
        .split('&')
        .map(|pair| pair.split('=').next().unwrap_or_default());
    names.filter(|name| !name.is_empty()).any(|name| {
        let name = percent_decode_str(name).decode_utf8_lossy();
        let name = name.replace('-', "_");
        IN_QUERY.iter().any(|it| name.eq_ignore_ascii_case(it))
            || name.eq_ignore_ascii_case("x_api_key")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(uri: &str, headers: &[(&'static str, &str)]) -> Result<Vec<String>, &'static str> {
        let mut request = http::Request::new(());
        *request.uri_mut() = uri.parse().unwrap();
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            request.headers_mut().append(*name, value);
        }
        let parts = request.into_parts().0;
        let found = Credentials::of(&parts).map_err(|rejection| rejection.as_str())?;
        let keys = found.keys.iter().flatten().map(|key| format!("key {key}"));
        let kind = if found.is_bound {
            "bound token"
        } else {
            "token"
        };
        let token = found.token.iter().map(|token| format!("{kind} {token}"));
        let proof = found.proof.iter().map(|proof| format!("proof {proof}"));
        Ok(keys.chain(token).chain(proof).collect())
    }

    #[test]
    fn only_what_is_plain_is_taken() {
        type Case<'a> = (&'a [(&'static str, &'a str)], &'a [&'a str]);
        let found: [Case<'_>; 9] = [
            (&[], &[]),
            (&[("authorization", "Bearer a.b.c")], &["token a.b.c"]),
            (&[("authorization", "bEARER   a.b.c ")], &["token a.b.c"]),
            (&[("authorization", "Bearer owl_x")], &["key owl_x"]),
            (
                &[("authorization", "DPoP t"), ("dpop", "a.b.c")],
                &["bound token t", "proof a.b.c"],
            ),
            // No key has a binding.
            (&[("authorization", "dpop owl_x")], &["bound token owl_x"]),
            (&[("x-api-key", " owl_x ")], &["key owl_x"]),
            (&[("x-api-key", "anything")], &["key anything"]),
            (
                &[("x-api-key", "owl_x"), ("authorization", "Bearer t")],
                &["key owl_x", "token t"],
            ),
        ];
        for (headers, expected) in found {
            assert_eq!(read("/mcp", headers).unwrap(), expected, "{headers:?}");
        }
        let refused: [(&[(&'static str, &str)], &str); 10] = [
            (
                &[("authorization", "Bearer a"), ("authorization", "Bearer a")],
                "malformed",
            ),
            (&[("x-api-key", "a"), ("x-api-key", "a")], "malformed"),
            (&[("dpop", "a.b.c"), ("dpop", "a.b.c")], "malformed"),
            (&[("authorization", "Bearer a, Bearer b")], "malformed"),
            (&[("authorization", "Bearer a b")], "malformed"),
            (&[("authorization", "Bearer ")], "malformed"),
            (&[("authorization", "Bearer")], "malformed"),
            (&[("authorization", "Bearer größe")], "malformed"),
            (&[("authorization", "Basic dXNlcjpwYXNz")], "invalid"),
            (&[("authorization", "")], "invalid"),
        ];
        for (headers, expected) in refused {
            assert_eq!(read("/mcp", headers).unwrap_err(), expected, "{headers:?}");
        }
    }

    #[test]
    fn nothing_is_taken_from_the_url() {
        for uri in [
            "/mcp?access_token=x",
            "/mcp?a=b&ACCESS_TOKEN=",
            "/mcp?access%5Ftoken=x",
            "/mcp?api-key=x",
            "/mcp?X-API-Key=x",
            "/mcp?apikey",
        ] {
            assert_eq!(read(uri, &[]).unwrap_err(), "malformed", "{uri}");
        }
        assert!(read("/mcp/messages?sessionId=access_token", &[]).is_ok());
    }
}
