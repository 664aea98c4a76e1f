//! Answer to a client without credentials: the challenge, and where to get a token.

use crate::Rejection;
use serde_json::json;

/// The scope that asks for refresh tokens: no business of a resource (and RFC 9728 clients would
/// ask their users for it).
const OFFLINE_ACCESS: &str = "offline_access";

/// Algorithms that proofs of keys (RFC 9449) may be signed with.
pub const PROOF_ALGORITHMS: [&str; 9] = [
    "ES256", "ES384", "EdDSA", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512",
];

/// `WWW-Authenticate` as RFC 6750 and RFC 9728 have it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Challenge {
    metadata: Option<String>,
    scope: String,
    /// True if tokens must be bound to a key.
    is_bound: bool,
}

impl Challenge {
    /// A challenge that leads to `metadata`, where tokens are accepted, and says which scopes to
    /// ask for.
    #[must_use]
    pub fn new(metadata: Option<String>, scopes: &[String]) -> Self {
        let scopes = scopes.iter().map(String::as_str);
        let scopes: Vec<&str> = scopes.filter(|it| *it != OFFLINE_ACCESS).collect();
        Self {
            metadata,
            scope: scopes.join(" "),
            is_bound: false,
        }
    }

    /// The same for a server that takes no tokens but those that are bound to a key (RFC 9449).
    #[must_use]
    pub fn with_bound_tokens(self, is_bound: bool) -> Self {
        Self { is_bound, ..self }
    }

    /// Value of the header for a client that is refused like this; `None` where there is none to
    /// send.
    #[must_use]
    pub fn header(&self, rejection: &Rejection) -> Option<String> {
        let is_proof = matches!(
            rejection,
            Rejection::Unproved { .. } | Rejection::NeedsNonce
        );
        let wants_proof = self.is_bound || is_proof;
        let mut text = String::from(if wants_proof { "DPoP " } else { "Bearer " });
        text.push_str(match &self.metadata {
            Some(_) => "resource_metadata=",
            None => "realm=",
        });
        quote(&mut text, self.metadata.as_deref().unwrap_or("owlclaw-mcp"));
        let (error, scope) = match rejection {
            Rejection::Missing => (None, &*self.scope),
            Rejection::Malformed { .. } => (Some("invalid_request"), &*self.scope),
            Rejection::Invalid { .. } => (Some("invalid_token"), &*self.scope),
            Rejection::Unproved { .. } => (Some("invalid_dpop_proof"), &*self.scope),
            Rejection::NeedsNonce => (Some("use_dpop_nonce"), &*self.scope),
            Rejection::InsufficientScope { needed } => (Some("insufficient_scope"), &**needed),
            Rejection::Unavailable { .. } | Rejection::TooManyAttempts => return None,
        };
        if !scope.is_empty() {
            text.push_str(", scope=");
            quote(&mut text, scope);
        }
        if let Some(error) = error {
            text.push_str(", error=");
            quote(&mut text, error);
            text.push_str(", error_description=");
            quote(&mut text, &rejection.to_string());
        }
        if wants_proof {
            text.push_str(", algs=");
            quote(&mut text, &PROOF_ALGORITHMS.join(" "));
        }
        Some(text)
    }
}

/// Appends the characters of `value` that a quoted string in a header may contain; drops all
/// others.
fn quote(text: &mut String, value: &str) {
    text.push('"');
    let fits = |it: &char| (' '..='~').contains(it) && *it != '"' && *it != '\\';
    text.extend(value.chars().filter(fits));
    text.push('"');
}

/// Metadata of a protected resource (RFC 9728): where to get tokens for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceMetadata {
    /// Our URI.
    pub resource: String,
    /// The issuers.
    pub authorization_servers: Vec<String>,
    /// The scopes that mean something here.
    pub scopes: Vec<String>,
    /// True if no token is taken but those that are bound to a key (RFC 9449).
    pub bound_tokens_required: bool,
}

impl ResourceMetadata {
    /// Address of the metadata of `resource`: `/.well-known/oauth-protected-resource` between its
    /// host and its path. `None` if `resource` is not a URI that has a host.
    #[must_use]
    pub fn url(resource: &str) -> Option<String> {
        let resource = canonical_resource(resource)?;
        let (scheme, rest) = resource.split_once("://")?;
        let (host, path) = match rest.split_once('/') {
            Some((host, path)) => (host, format!("/{path}")),
            None => (rest, String::new()),
        };
        Some(format!(
            "{scheme}://{host}/.well-known/oauth-protected-resource{path}"
        ))
    }

    /// The document, JSON.
    #[must_use]
    pub fn document(&self) -> String {
        let scopes = self.scopes.iter().filter(|it| *it != OFFLINE_ACCESS);
        let scopes: Vec<&String> = scopes.collect();
        json!({
            "resource": self.resource,
            "authorization_servers": self.authorization_servers,
            "scopes_supported": scopes,
            "bearer_methods_supported": ["header"],
            "dpop_signing_alg_values_supported": PROOF_ALGORITHMS,
            "dpop_bound_access_tokens_required": self.bound_tokens_required,
            "resource_name": "OwlClaw MCP",
        })
        .to_string()
    }
}

/// A URI of a resource in the form in which two can be compared: scheme and host in lower case, the
/// port that goes without saying and slashes at the end left out. `None` for what is none: without
/// host, with user information, a query or a fragment.
#[must_use]
pub fn canonical_resource(uri: &str) -> Option<String> {
    let (scheme, rest) = uri.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\\"<>".contains(&byte);
    if !rest.bytes().all(is_plain) {
        return None;
    }
    let (host, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let host = host.to_ascii_lowercase();
    let host = host.strip_suffix(default_port).unwrap_or(&host);
    if host.is_empty() || host.starts_with(':') {
        return None;
    }
    let path = path.trim_end_matches('/');
    Some(format!("{scheme}://{host}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_says_where_to_get_tokens_and_for_which_scopes() {
        let metadata = ResourceMetadata {
            resource: "https://host/mcp".to_owned(),
            authorization_servers: vec!["https://login.example".to_owned()],
            scopes: vec!["tools".to_owned(), OFFLINE_ACCESS.to_owned()],
            bound_tokens_required: true,
        };
        let document: serde_json::Value = serde_json::from_str(&metadata.document()).unwrap();
        assert_eq!(document["resource"], "https://host/mcp");
        let servers = json!(["https://login.example"]);
        assert_eq!(document["authorization_servers"], servers);
        assert_eq!(document["scopes_supported"], json!(["tools"]));
        assert_eq!(document["dpop_bound_access_tokens_required"], true);
        assert_eq!(document["dpop_signing_alg_values_supported"][0], "ES256");
    }

    #[test]
    fn resources_are_compared_as_uris_are() {
        let rows = [
            ("https://host/mcp", Some("https://host/mcp")),
            (
                "HTTPS://Host.Example:443/MCP/",
                Some("https://host.example/MCP"),
            ),
            ("http://[::1]:8080", Some("http://[::1]:8080")),
            ("https://host:8443/", Some("https://host:8443")),
            ("https://host/mcp?x", None),
            ("https://host/mcp#x", None),
            ("https://me@host/mcp", None),
            ("https:///mcp", None),
            ("https://:80/mcp", None),
            ("ftp://host/mcp", None),
            ("https://ho st/mcp", None),
            ("host/mcp", None),
        ];
        for (uri, expected) in rows {
            assert_eq!(canonical_resource(uri).as_deref(), expected, "{uri}");
        }
    }

    #[test]
    fn the_challenge_says_what_is_wrong_and_where_to_go() {
        let url = ResourceMetadata::url("https://Host/tools/mcp").unwrap();
        assert_eq!(
            url,
            "https://host/.well-known/oauth-protected-resource/tools/mcp"
        );
        assert_eq!(
            ResourceMetadata::url("https://host").unwrap(),
            "https://host/.well-known/oauth-protected-resource"
        );
        let scopes = ["mcp".to_owned(), OFFLINE_ACCESS.to_owned()];
        let challenge = Challenge::new(Some(url), &scopes);
        let header = |rejection| challenge.header(&rejection);
        let beginning = "Bearer resource_metadata=\"https://host/.well-known/oauth-protected-resource/tools/mcp\", scope=";
        assert_eq!(
            header(Rejection::Missing).unwrap(),
            format!("{beginning}\"mcp\"")
        );
        assert_eq!(
            header(Rejection::Invalid {
                why: "it is \"bad\"\r\n"
            })
            .unwrap(),
            format!("{beginning}\"mcp\", error=\"invalid_token\", error_description=\"it is bad\"")
        );
        let needed = "mcp admin".into();
        assert_eq!(
            header(Rejection::InsufficientScope { needed }).unwrap(),
            format!(
                "{beginning}\"mcp admin\", error=\"insufficient_scope\", \
                 error_description=\"the token lacks a scope\""
            )
        );
        let proof = header(Rejection::Unproved { why: "it is old" }).unwrap();
        let algorithms = PROOF_ALGORITHMS.join(" ");
        let end = format!(
            "error=\"invalid_dpop_proof\", error_description=\"it is old\", algs=\"{algorithms}\""
        );
        assert!(
            proof.starts_with("DPoP resource_metadata=") && proof.ends_with(&end),
            "{proof}"
        );
        let nonce = header(Rejection::NeedsNonce).unwrap();
        assert!(nonce.contains("error=\"use_dpop_nonce\""), "{nonce}");
        let bound = challenge.clone().with_bound_tokens(true);
        let missing = bound.header(&Rejection::Missing).unwrap();
        assert!(
            missing.starts_with("DPoP ") && missing.ends_with(&format!("algs=\"{algorithms}\""))
        );
        assert_eq!(header(Rejection::TooManyAttempts), None);
        assert_eq!(
            Challenge::default().header(&Rejection::Missing).unwrap(),
            "Bearer realm=\"owlclaw-mcp\""
        );
    }
}
