//! Requests to token endpoints.

use crate::{
    AuthorizationError, Secret, SigningKey,
    address::{Address, escape, form},
    discovery::AuthorizationServer,
    dpop::{DPOP, Prover},
    error::{is_passing, said},
    key,
    web::{Web, is_outage, out_of_order},
};
use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// A longer token is refused.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Seconds for which an assertion of the client is good.
const ASSERTION_SECONDS: u64 = 60;

pub(crate) const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
pub(crate) const JWT_BEARER: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
pub(crate) const ID_JAG: &str = "urn:ietf:params:oauth:token-type:id-jag";
pub(crate) const ID_TOKEN: &str = "urn:ietf:params:oauth:token-type:id_token";
const CLIENT_ASSERTION: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// The client at a token endpoint.
#[derive(Clone, Debug)]
pub(crate) struct ClientAt {
    /// Empty for a workload that has none.
    pub(crate) id: String,
    pub(crate) proof: ClientProof,
}

/// Proof of a client that it is the one it says.
#[derive(Clone, Debug)]
pub(crate) enum ClientProof {
    None,
    Basic(Secret),
    Post(Secret),
    Key(Arc<SigningKey>),
}

impl ClientProof {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Basic(_) => "client_secret_basic",
            Self::Post(_) => "client_secret_post",
            Self::Key(_) => "private_key_jwt",
        }
    }

    /// The proof of this name, with what there is.
    pub(crate) fn named(
        name: &str,
        secret: Option<&Secret>,
        key: Option<&Arc<SigningKey>>,
    ) -> Option<Self> {
        match name {
            "none" => Some(Self::None),
            "client_secret_basic" => secret.cloned().map(Self::Basic),
            "client_secret_post" => secret.cloned().map(Self::Post),
            "private_key_jwt" => key.cloned().map(Self::Key),
            _ => None,
        }
    }

    /// The best proof that `server` takes: a key before a secret, and the way that the registration says.
    pub(crate) fn choose(
        server: &AuthorizationServer,
        secret: Option<&Secret>,
        key: Option<&Arc<SigningKey>>,
        registered: Option<&str>,
    ) -> Result<Self, AuthorizationError> {
        if let Some(proof) = registered.and_then(|name| Self::named(name, secret, key)) {
            return Ok(proof);
        }
        let supported = server.token_endpoint_auth_methods_supported.as_deref();
        let takes = |name: &str| match supported {
            Some(supported) => supported.iter().any(|it| it == name),
            // RFC 8414, section 2: the default.
            None => name == "client_secret_basic",
        };
        if let Some(key) = key
            && (supported.is_none() || takes("private_key_jwt"))
        {
            return Ok(Self::Key(Arc::clone(key)));
        }
        match secret {
            Some(secret) if takes("client_secret_basic") => Ok(Self::Basic(secret.clone())),
            Some(secret) if takes("client_secret_post") => Ok(Self::Post(secret.clone())),
            // Some servers register a secret for clients that need none.
            Some(_) if takes("none") => Ok(Self::None),
            None if key.is_none() => Ok(Self::None),
            _ => Err(AuthorizationError::Unsupported {
                issuer: server.issuer.clone(),
                lacks: "takes neither the client's secret nor its key at its token endpoint",
            }),
        }
    }
}

/// Answer of a token endpoint.
#[derive(Deserialize)]
pub(crate) struct Given {
    pub(crate) access_token: Secret,
    #[serde(default)]
    pub(crate) token_type: String,
    #[serde(default)]
    pub(crate) expires_in: Value,
    pub(crate) refresh_token: Option<Secret>,
    pub(crate) issued_token_type: Option<String>,
    pub(crate) id_token: Option<Secret>,
    #[serde(default)]
    pub(crate) scope: Value,
}

impl Given {
    /// Seconds, also from servers that write numbers as text.
    pub(crate) fn expires_in(&self) -> Option<u64> {
        match &self.expires_in {
            Value::Number(number) => number.as_f64().filter(|it| 0.0 <= *it).map(|it| it as u64),
            Value::String(text) => text.parse().ok(),
            _ => None,
        }
    }
}

/// Asks a token endpoint, a second time only if it wants a nonce in the proof.
pub(crate) async fn ask(
    web: &Web,
    endpoint: &Address,
    audience: &str,
    client: &ClientAt,
    fields: &[(&str, &str)],
    prover: Option<&Prover>,
) -> Result<Given, AuthorizationError> {
    let first = ask_once(web, endpoint, audience, client, fields, prover).await?;
    let (response, secrets) = match (&first, prover) {
        ((response, _), Some(prover))
            if prover.note(endpoint, response.headers())
                && error_of(response).as_deref() == Some("use_dpop_nonce") =>
        {
            let second = ask_once(web, endpoint, audience, client, fields, Some(prover)).await?;
            prover.note(endpoint, second.0.headers());
            second
        }
        _ => first,
    };
    read(endpoint, &response, fields, &secrets)
}

async fn ask_once(
    web: &Web,
    endpoint: &Address,
    audience: &str,
    client: &ClientAt,
    fields: &[(&str, &str)],
    prover: Option<&Prover>,
) -> Result<(Response<Bytes>, Vec<String>), AuthorizationError> {
    let mut fields = fields.to_vec();
    let mut request = Request::post(endpoint.to_string());
    let mut secrets = Vec::new();
    match &client.proof {
        ClientProof::None if client.id.is_empty() => {}
        ClientProof::None => fields.push(("client_id", &client.id)),
        ClientProof::Basic(secret) => {
            let pair = format!("{}:{}", escape(&client.id), escape(secret.reveal()));
            let value = format!("Basic {}", STANDARD.encode(pair));
            secrets.push(secret.reveal().to_owned());
            let mut value = HeaderValue::try_from(value)
                .map_err(|_| AuthorizationError::Options("the secret is too long".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        ClientProof::Post(secret) => {
            secrets.push(secret.reveal().to_owned());
            fields.push(("client_id", &client.id));
            fields.push(("client_secret", secret.reveal()));
        }
        ClientProof::Key(key) => {
            secrets.push(assertion(key, &client.id, audience)?);
            fields.push(("client_id", &client.id));
            fields.push(("client_assertion_type", CLIENT_ASSERTION));
            fields.push(("client_assertion", &secrets[0]));
        }
    }
    if let Some(prover) = prover {
        request = request.header(DPOP, prover.proof("POST", endpoint, None)?);
    }
    let form_type = HeaderValue::from_static("application/x-www-form-urlencoded");
    let request = request.header(header::CONTENT_TYPE, form_type);
    let body = Bytes::from(form(fields));
    let response = web.send(request, endpoint, body).await?;
    Ok((response, secrets))
}

/// Proof of a client (RFC 7523): signed for this issuer, once, and for a minute.
fn assertion(
    key: &SigningKey,
    client_id: &str,
    audience: &str,
) -> Result<String, AuthorizationError> {
    let failed = AuthorizationError::Cryptography;
    let now = crate::clock::now();
    let claims = json!({
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": key::random::<16>().ok_or(failed.clone())?,
        "iat": now,
        "exp": now + ASSERTION_SECONDS,
    });
    key.sign(json!({"typ": "JWT"}), &claims).ok_or(failed)
}

/// Has a token revoked (RFC 7009). Returns false if tokens of its kind cannot be.
pub(crate) async fn revoke(
    web: &Web,
    endpoint: &Address,
    audience: &str,
    client: &ClientAt,
    fields: &[(&str, &str)],
) -> Result<bool, AuthorizationError> {
    let (response, secrets) = ask_once(web, endpoint, audience, client, fields, None).await?;
    if response.status().is_success() {
        return Ok(true);
    }
    if error_of(&response).as_deref() == Some("unsupported_token_type") {
        return Ok(false);
    }
    let refusal = serde_json::from_slice::<Refusal>(response.body()).ok();
    let sent = fields.iter().map(|(_, value)| *value);
    let sent: Vec<_> = sent.chain(secrets.iter().map(String::as_str)).collect();
    let why =
        refusal.and_then(|it| Some(explain(&it.error?, it.error_description.as_deref(), &sent)));
    Err(AuthorizationError::Revocation {
        address: endpoint.without_query(),
        why: why.unwrap_or_else(|| format!("the answer is {}", response.status())),
    })
}

#[derive(Deserialize)]
pub(crate) struct Refusal {
    pub(crate) error: Option<String>,
    pub(crate) error_description: Option<String>,
}

fn error_of(response: &Response<Bytes>) -> Option<String> {
    let refusal: Refusal = serde_json::from_slice(response.body()).ok()?;
    refusal.error.filter(|_| !response.status().is_success())
}

fn read(
    endpoint: &Address,
    response: &Response<Bytes>,
    fields: &[(&str, &str)],
    secrets: &[String],
) -> Result<Given, AuthorizationError> {
    let refused = |code: String, why: String| AuthorizationError::Token {
        address: endpoint.without_query(),
        code,
        why,
    };
    let status = response.status();
    let given = match serde_json::from_slice::<Given>(response.body()) {
        Ok(given) if status.is_success() => given,
        _ => {
            let refusal: Option<Refusal> = serde_json::from_slice(response.body()).ok();
            let said = refusal.and_then(|it| Some((it.error?, it.error_description)));
            let Some((code, description)) = said else {
                let why = match status.is_success() {
                    true => "the answer has no access token".to_owned(),
                    false => format!("the answer is {status}"),
                };
                return Err(out_of_order(endpoint, why, response.headers()));
            };
            let sent = fields.iter().map(|(_, value)| *value);
            let sent: Vec<_> = sent.chain(secrets.iter().map(String::as_str)).collect();
            let why = explain(&code, description.as_deref(), &sent);
            return Err(match is_refusal(status, &code) {
                true => refused(without(&code, &sent), why),
                false => out_of_order(endpoint, why, response.headers()),
            });
        }
    };
    let token = given.access_token.reveal();
    if token.is_empty()
        || MAX_TOKEN_BYTES < token.len()
        || !token.bytes().all(|it| it.is_ascii_graphic())
    {
        let why = "the access token cannot stand in a header";
        return Err(refused(String::new(), why.to_owned()));
    }
    Ok(given)
}

/// True if an error is the decision of a token endpoint on what was asked. It is none if the endpoint or something in front
/// of it is out of order, whose errors are the phrases of HTTP, such as `Not Found`, or codes of their own.
fn is_refusal(status: StatusCode, code: &str) -> bool {
    let is_code = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"_-.".contains(&it);
    match code {
        "invalid_grant" => true,
        code if is_passing(code) => false,
        code => !is_outage(status) && !code.is_empty() && code.bytes().all(is_code),
    }
}

/// An error's code and its description, as far as they do not repeat what was sent.
pub(crate) fn explain(code: &str, description: Option<&str>, sent: &[&str]) -> String {
    let code = without(code, sent);
    match description {
        Some(description) => format!("{code}: {}", without(description, sent)),
        None => code,
    }
}

fn without(text: &str, sent: &[&str]) -> String {
    let mut sent = sent.iter().filter(|it| 8 <= it.len());
    match sent.any(|it| text.contains(it)) {
        true => "(left out, since it repeats what was sent)".to_owned(),
        false => said(text),
    }
}
