//! Discovery of the place of an issuer's keys: the metadata of an authorization server (RFC 8414),
//! or of a provider of OpenID Connect (Discovery 1.0).

use crate::{
    KeySource,
    address::{MAX_ADDRESS_BYTES, host, is_safe, places},
    fetch::{FetchKeys, with_causes},
};
use serde::Deserialize;

/// A longer document is refused.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
/// Members of the metadata that matter. A duplicate member is an error.
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: Option<String>,
}

/// Reason why an issuer's metadata leads to no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum BadMetadata {
    #[error("is longer than {MAX_DOCUMENT_BYTES} bytes")]
    TooLong,
    #[error("is no metadata of an issuer")]
    NotMetadata,
    #[error(
        "is that of another issuer: its `issuer` is not the configured one, character for character"
    )]
    OtherIssuer,
    #[error("names no `jwks_uri`")]
    NoKeys,
    #[error("has a `jwks_uri` that does not begin with https://")]
    NotSafe,
}

/// Address of `issuer`'s keys, taken from the first document that is really the issuer's own.
///
/// # Errors
///
/// What is wrong, with the place that tells most: metadata that must not be believed before what is
/// none, and that before nothing.
pub(crate) async fn keys_of(issuer: &str, fetch: &dyn FetchKeys) -> Result<String, String> {
    let Some(places) = places(issuer) else {
        return Err(format!("nothing can be asked of an issuer `{issuer}`"));
    };
    let mut failures = Vec::with_capacity(places.len());
    for place in places {
        let (tells, why) = match fetch.fetch(&KeySource::Url(place.clone())).await {
            Ok(document) => match parse(&document, issuer) {
                Ok(keys) => return Ok(keys),
                Err(why) => (why.tells(), format!("what is at {place} {why}")),
            },
            Err(error) => {
                let why = with_causes(&*error);
                (
                    0,
                    format!("there is no metadata of the issuer at {place}: {why}"),
                )
            }
        };
        failures.push((tells, why));
    }
    // The first of those that tell most.
    let failure = failures.into_iter().rev().max_by_key(|(tells, _)| *tells);
    Err(failure.map(|(_, why)| why).unwrap_or_default())
}

impl BadMetadata {
    /// Rank of an error by how much it explains: many servers answer every request with some page.
    fn tells(self) -> u8 {
        match self {
            Self::TooLong | Self::NotMetadata => 1,
            Self::OtherIssuer | Self::NoKeys | Self::NotSafe => 2,
        }
    }
}

fn parse(document: &[u8], issuer: &str) -> Result<String, BadMetadata> {
    if MAX_DOCUMENT_BYTES < document.len() {
        return Err(BadMetadata::TooLong);
    }
    let metadata: Metadata =
        serde_json::from_slice(document).map_err(|_| BadMetadata::NotMetadata)?;
    // RFC 8414 §3.3: "If these values are not identical, the data contained in the response MUST NOT
    // be used."
    if metadata.issuer != issuer {
        return Err(BadMetadata::OtherIssuer);
    }
    let keys = metadata.jwks_uri.ok_or(BadMetadata::NoKeys)?;
    let is_plain = keys.bytes().all(|byte| byte.is_ascii_graphic());
    // An issuer elsewhere has no business on this machine.
    let is_safe = match issuer.starts_with("https://") {
        true => host(&keys, "https://").is_some(),
        false => is_safe(&keys),
    };
    if !is_safe || !is_plain || MAX_ADDRESS_BYTES < keys.len() {
        return Err(BadMetadata::NotSafe);
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn metadata_is_where_the_standards_have_it() {
        let rows: [(&str, &[&str]); 5] = [
            (
                "https://login.example",
                &[
                    "https://login.example/.well-known/oauth-authorization-server",
                    "https://login.example/.well-known/openid-configuration",
                ],
            ),
            (
                "https://login.example/",
                &[
                    "https://login.example/.well-known/oauth-authorization-server",
                    "https://login.example/.well-known/openid-configuration",
                ],
            ),
            (
                "https://login.example:8443/realms/corp",
                &[
                    "https://login.example:8443/.well-known/oauth-authorization-server/realms/corp",
                    "https://login.example:8443/.well-known/openid-configuration/realms/corp",
                    "https://login.example:8443/realms/corp/.well-known/openid-configuration",
                ],
            ),
            (
                "https://login.example/a/",
                &[
                    "https://login.example/.well-known/oauth-authorization-server/a",
                    "https://login.example/.well-known/openid-configuration/a",
                    "https://login.example/a/.well-known/openid-configuration",
                ],
            ),
            (
                "http://[::1]:9/a",
                &[
                    "http://[::1]:9/.well-known/oauth-authorization-server/a",
                    "http://[::1]:9/.well-known/openid-configuration/a",
                    "http://[::1]:9/a/.well-known/openid-configuration",
                ],
            ),
        ];
        for (issuer, expected) in rows {
            assert_eq!(places(issuer).unwrap(), expected, "{issuer}");
        }
        for wrong in [
            "http://login.example",
            "http://127.0.0.1.evil.example",
            "http://localhost@evil.example",
            "https://login.example?x",
            "https://login.example/#x",
            "https://me@login.example",
            "https://login.example/a b",
            "https://",
            "https:///a",
            "http://[::1",
            "login.example",
            &format!("https://login.example/{}", "a".repeat(3_000)),
        ] {
            assert_eq!(places(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_document_must_be_the_issuer_s_own_and_lead_where_nobody_listens() {
        let secure = "https://login.example/a";
        let local = "http://127.0.0.1:9";
        let keys = |issuer: &str, document: &Value| parse(document.to_string().as_bytes(), issuer);
        let good = json!({"issuer": secure, "jwks_uri": "https://keys.example/k?v=1", "more": {}});
        assert_eq!(keys(secure, &good).unwrap(), "https://keys.example/k?v=1");
        let good = json!({"issuer": local, "jwks_uri": "http://localhost:9/k"});
        assert_eq!(keys(local, &good).unwrap(), "http://localhost:9/k");
        let rows = [
            (
                json!({"issuer": "https://login.example/a/"}),
                BadMetadata::OtherIssuer,
            ),
            (
                json!({"issuer": "https://login.example/A"}),
                BadMetadata::OtherIssuer,
            ),
            (json!({"issuer": secure}), BadMetadata::NoKeys),
            (
                json!({"issuer": secure, "jwks_uri": null}),
                BadMetadata::NoKeys,
            ),
            (
                json!({"issuer": secure, "jwks_uri": "http://keys.example/k"}),
                BadMetadata::NotSafe,
            ),
            (
                json!({"issuer": secure, "jwks_uri": "http://127.0.0.1/k"}),
                BadMetadata::NotSafe,
            ),
            (
                json!({"issuer": secure, "jwks_uri": "file:///etc/passwd"}),
                BadMetadata::NotSafe,
            ),
            (
                json!({"issuer": secure, "jwks_uri": "https://a@b.example/k"}),
                BadMetadata::NotSafe,
            ),
            (
                json!({"issuer": secure, "jwks_uri": "https://b.example/k\r\nx"}),
                BadMetadata::NotSafe,
            ),
            (json!({"issuer": [secure]}), BadMetadata::NotMetadata),
            (
                json!({"jwks_uri": "https://keys.example/k"}),
                BadMetadata::NotMetadata,
            ),
            (json!([]), BadMetadata::NotMetadata),
            (
                json!({"issuer": secure, "x": "x".repeat(300_000)}),
                BadMetadata::TooLong,
            ),
        ];
        for (document, expected) in rows {
            assert_eq!(
                keys(secure, &document),
                Err(expected),
                "{:.200}",
                document.to_string()
            );
        }
        let long = format!("https://keys.example/{}", "k".repeat(3_000));
        let document = json!({"issuer": secure, "jwks_uri": long});
        assert_eq!(keys(secure, &document), Err(BadMetadata::NotSafe));
        let twice =
            format!("{{\"issuer\": \"{secure}\", \"issuer\": \"x\", \"jwks_uri\": \"https://k\"}}");
        assert_eq!(
            parse(twice.as_bytes(), secure),
            Err(BadMetadata::NotMetadata)
        );
    }
}
