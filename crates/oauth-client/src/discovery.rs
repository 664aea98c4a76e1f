//! Metadata of servers: protected resources (RFC 9728) and authorization servers (RFC 8414,
//! OpenID Connect Discovery, and the defaults of MCP 2025-03-26).

use crate::{
    AuthorizationError,
    address::{Address, places},
    error::said,
    web::{Document, Web},
};
use serde::{Deserialize, de::DeserializeOwned};

const NO_ISSUER: &str = "it names no issuer";

/// The metadata of a protected resource, as far as it matters here.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resource {
    /// As the server writes it: the value of `resource` in requests for tokens.
    pub(crate) resource: String,
    pub(crate) issuers: Vec<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) wants_dpop: bool,
}

#[derive(Deserialize)]
struct ResourceDocument {
    resource: Option<String>,
    authorization_servers: Option<Vec<String>>,
    scopes_supported: Option<Vec<String>>,
    dpop_bound_access_tokens_required: Option<bool>,
}

/// The metadata of an authorization server, as far as it matters here.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct AuthorizationServer {
    #[serde(default)]
    pub(crate) issuer: String,
    pub(crate) authorization_endpoint: Option<String>,
    pub(crate) token_endpoint: Option<String>,
    pub(crate) registration_endpoint: Option<String>,
    pub(crate) revocation_endpoint: Option<String>,
    pub(crate) scopes_supported: Option<Vec<String>>,
    pub(crate) grant_types_supported: Option<Vec<String>>,
    pub(crate) code_challenge_methods_supported: Option<Vec<String>>,
    pub(crate) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    pub(crate) client_id_metadata_document_supported: Option<bool>,
    pub(crate) authorization_response_iss_parameter_supported: Option<bool>,
    pub(crate) dpop_signing_alg_values_supported: Option<Vec<String>>,
}

impl AuthorizationServer {
    /// The servers of 2025-03-26 without metadata, which have their endpoints at fixed paths.
    fn with_default_endpoints(origin: &str) -> Self {
        let at = |path: &str| Some(format!("{origin}/{path}"));
        Self {
            issuer: origin.to_owned(),
            authorization_endpoint: at("authorize"),
            token_endpoint: at("token"),
            registration_endpoint: at("register"),
            // That revision demands it of every server.
            code_challenge_methods_supported: Some(vec!["S256".to_owned()]),
            token_endpoint_auth_methods_supported: Some(
                ["none", "client_secret_post", "client_secret_basic"]
                    .map(str::to_owned)
                    .to_vec(),
            ),
            ..Self::default()
        }
    }

    pub(crate) fn supports_scope(&self, scope: &str) -> bool {
        contains(self.scopes_supported.as_deref(), scope)
    }

    /// Returns true unless the server says that it gives no refresh tokens.
    pub(crate) fn may_refresh(&self) -> bool {
        self.grant_types_supported.is_none()
            || contains(self.grant_types_supported.as_deref(), "refresh_token")
    }

    pub(crate) fn has_pkce(&self) -> bool {
        contains(self.code_challenge_methods_supported.as_deref(), "S256")
    }

    pub(crate) fn has_dpop(&self) -> bool {
        contains(self.dpop_signing_alg_values_supported.as_deref(), "ES256")
    }
}

fn contains(list: Option<&[String]>, value: &str) -> bool {
    list.is_some_and(|list| list.iter().any(|it| it == value))
}

/// The metadata of `server`: at the place that the challenge names, or else at the well-known places.
/// `None` for a server that has none.
pub(crate) async fn resource(
    web: &Web,
    server: &Address,
    named: Option<&str>,
) -> Result<Option<Resource>, AuthorizationError> {
    let name = "oauth-protected-resource";
    let places = match named {
        Some(named) => vec![web.check(named, "the server's challenge")?],
        None => {
            let below = Address::parse(&server.well_known(name));
            let root = Address::parse(&format!("{}/.well-known/{name}", server.origin()));
            let mut places: Vec<_> = below.into_iter().chain(root).collect();
            places.dedup();
            places
        }
    };
    for place in places {
        let no_metadata = |why: String| AuthorizationError::Metadata {
            address: place.to_string(),
            why,
        };
        let document = match web.document(&place).await? {
            Document::Found(document) => read::<ResourceDocument>(&document),
            Document::Absent(why) if named.is_some() => return Err(no_metadata(why)),
            Document::Absent(_) => continue,
            Document::Out(error) => return Err(error),
            Document::Broken(why) => return Err(no_metadata(why)),
        };
        let document = match document {
            Ok(document) => document,
            Err(why) if named.is_some() => return Err(no_metadata(why.to_owned())),
            // Some servers answer whatever is asked with some page.
            Err(_) => continue,
        };
        let resource = document.resource.unwrap_or_default();
        let is_ours = Address::parse(&resource).is_some_and(|it| it.covers(server));
        if !is_ours {
            return Err(AuthorizationError::OtherResource {
                address: place.to_string(),
                resource: said(&resource),
                server: server.canonical(),
            });
        }
        let issuers = document.authorization_servers.unwrap_or_default();
        if issuers.is_empty() {
            let why = "it names no authorization server";
            return Err(no_metadata(why.to_owned()));
        }
        return Ok(Some(Resource {
            resource,
            issuers,
            scopes: document.scopes_supported.unwrap_or_default(),
            wants_dpop: document.dpop_bound_access_tokens_required == Some(true),
        }));
    }
    Ok(None)
}

/// The metadata of `issuer`: the first document that is really its own.
pub(crate) async fn authorization_server(
    web: &Web,
    issuer: &str,
) -> Result<AuthorizationServer, AuthorizationError> {
    web.check(issuer, "the server's metadata")?;
    let first = issuer.to_owned();
    let mut failure = (first, "it can have none".to_owned(), 0);
    let (mut out, mut wrong) = (None, None);
    for place in places(issuer).unwrap_or_default() {
        let Some(address) = Address::parse(&place) else {
            continue;
        };
        let (why, tells) = match web.document(&address).await? {
            Document::Found(document) => match read::<AuthorizationServer>(&document) {
                // RFC 8414, section 3.3: metadata of another issuer must not be used.
                Ok(metadata) if metadata.issuer == issuer => return Ok(metadata),
                Ok(metadata) if metadata.issuer.is_empty() => (NO_ISSUER.to_owned(), 3),
                Ok(metadata) => {
                    wrong.get_or_insert_with(|| wrong_issuer(&place, &metadata, issuer));
                    continue;
                }
                Err(why) => (why.to_owned(), 3),
            },
            Document::Broken(why) => (why, 2),
            Document::Absent(why) => (why, 1),
            // Some servers have nothing better to say of places that they do not know.
            Document::Out(error) => {
                out.get_or_insert(error);
                continue;
            }
        };
        if failure.2 < tells {
            failure = (place, why, tells);
        }
    }
    let (address, why, tells) = failure;
    let out = out.filter(|_| tells < 3);
    Err(wrong
        .or(out)
        .unwrap_or(AuthorizationError::Metadata { address, why }))
}

fn wrong_issuer(place: &str, metadata: &AuthorizationServer, expected: &str) -> AuthorizationError {
    AuthorizationError::WrongIssuer {
        address: place.to_owned(),
        named: said(&metadata.issuer),
        expected: said(expected),
    }
}

/// The authorization server of a server of 2025-03-26, which is the server itself.
pub(crate) async fn old_authorization_server(
    web: &Web,
    server: &Address,
) -> Result<AuthorizationServer, AuthorizationError> {
    let origin = server.origin();
    for place in places(&origin).unwrap_or_default() {
        let Some(address) = Address::parse(&place) else {
            continue;
        };
        match web.document(&address).await? {
            Document::Found(document) => {
                let Ok(metadata) = read::<AuthorizationServer>(&document) else {
                    continue;
                };
                if metadata.issuer.trim_end_matches('/') == origin {
                    return Ok(metadata);
                }
                return Err(match metadata.issuer.as_str() {
                    "" => AuthorizationError::Metadata {
                        address: place,
                        why: NO_ISSUER.to_owned(),
                    },
                    _ => wrong_issuer(&place, &metadata, &origin),
                });
            }
            Document::Absent(_) => {}
            Document::Out(error) => return Err(error),
            Document::Broken(why) => {
                return Err(AuthorizationError::Metadata {
                    address: place,
                    why,
                });
            }
        }
    }
    Ok(AuthorizationServer::with_default_endpoints(&origin))
}

fn read<T: DeserializeOwned>(document: &[u8]) -> Result<T, &'static str> {
    // Sequences would do for structures as well.
    let object = document.trim_ascii_start().first() == Some(&b'{');
    object
        .then(|| serde_json::from_slice(document).ok())
        .flatten()
        .ok_or("it is no JSON object with metadata")
}
