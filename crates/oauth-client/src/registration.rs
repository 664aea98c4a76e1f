//! Registration on demand (RFC 7591).

use crate::{
    AuthorizationError, Registration, Secret,
    address::Address,
    discovery::AuthorizationServer,
    token::{Refusal, explain},
    web::{Web, is_outage, out_of_order},
};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use serde::Deserialize;
use serde_json::json;

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<Secret>,
    client_secret_expires_at: Option<u64>,
    token_endpoint_auth_method: Option<String>,
}

/// Registers a client for sign-ins that come back to `redirect_uri`.
pub(crate) async fn register(
    web: &Web,
    server: &AuthorizationServer,
    endpoint: &Address,
    name: &str,
    redirect_uri: &str,
    scopes: &[String],
) -> Result<Registration, AuthorizationError> {
    let refused = |why: String| AuthorizationError::Registration {
        address: endpoint.without_query(),
        why,
    };
    let mut grants = vec!["authorization_code"];
    if server.may_refresh() {
        grants.push("refresh_token");
    }
    let scope = scopes.join(" ");
    let mut client = json!({
        "client_name": name,
        "redirect_uris": [redirect_uri],
        "grant_types": grants,
        "response_types": ["code"],
        "token_endpoint_auth_method": auth_method(server),
        "application_type": application_type(redirect_uri),
    });
    if !scope.is_empty() {
        client["scope"] = scope.as_str().into();
    }
    let json = HeaderValue::from_static("application/json");
    let request = Request::post(endpoint.to_string()).header(header::CONTENT_TYPE, json);
    let body = Bytes::from(client.to_string());
    let response = web.send(request, endpoint, body).await?;
    let status = response.status();
    if !status.is_success() {
        let refusal = serde_json::from_slice::<Refusal>(response.body()).ok();
        let why =
            refusal.and_then(|it| Some(explain(&it.error?, it.error_description.as_deref(), &[])));
        let why = why.unwrap_or_else(|| format!("the answer is {status}"));
        return Err(match is_outage(status) {
            true => out_of_order(endpoint, why, response.headers()),
            false => refused(why),
        });
    }
    let registered: Registered = serde_json::from_slice(response.body())
        .map_err(|_| refused("the answer has no client identifier".to_owned()))?;
    Ok(Registration {
        client_id: registered.client_id,
        client_secret: registered.client_secret,
        // RFC 7591 has zero for never.
        secret_expires_at: registered.client_secret_expires_at.filter(|it| *it != 0),
        auth_method: registered.token_endpoint_auth_method,
        redirect_uri: redirect_uri.to_owned(),
        scope,
    })
}

/// Kind of the client (OpenID Connect Dynamic Client Registration, section 2): a native one comes back to this machine, a
/// web one to an address of https.
fn application_type(redirect_uri: &str) -> &'static str {
    match redirect_uri.starts_with("https://") {
        true => "web",
        false => "native",
    }
}

/// A program on somebody's machine keeps no secret, so `none` comes first.
fn auth_method(server: &AuthorizationServer) -> &'static str {
    let default = "client_secret_basic";
    let Some(supported) = &server.token_endpoint_auth_methods_supported else {
        return default;
    };
    let known = ["none", default, "client_secret_post"];
    let taken = known
        .into_iter()
        .find(|it| supported.iter().any(|name| name == it));
    taken.unwrap_or(default)
}
