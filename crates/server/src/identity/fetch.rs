//! Fetches of issuers' public keys, and questions about tokens.

use std::error::Error;
use std::path::{Path, PathBuf};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, header};
use http_client::{Client, ClientOptions, Reach};
use identity::{AskIssuer, Asked, FetchKeys, Fetched, KeySource};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::Failure;
use config::{Environment, Introspection};

/// A longer document is refused.
const MAX_BYTES: usize = 1024 * 1024;

/// Reads files, and asks issuers.
pub(super) struct Fetch {
    client: Client,
}

impl Fetch {
    /// `authorities` are trusted besides those of the system.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self, Failure> {
        let client = client(authorities)?;
        Ok(Self { client })
    }

    async fn ask(&self, url: &str) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        let json = HeaderValue::from_static("application/json, application/jwk-set+json");
        let request = Request::get(url)
            .header(header::ACCEPT, json)
            .body(Bytes::new())?;
        let response = self.client.send(request).await?;
        if !response.status().is_success() {
            return Err(format!("the issuer answers with status {}", response.status()).into());
        }
        Ok(response.into_body().into())
    }
}

/// A client for issuers. `authorities` are trusted besides those of the system.
fn client(authorities: Option<&Path>) -> Result<Client, Failure> {
    let authorities = match authorities {
        None => Vec::new(),
        Some(path) => regular_file::read(path, regular_file::MAX_BYTES)
            .map_err(|error| format!("identity.ca_file {}: {error}", path.display()))?,
    };
    let options = ClientOptions {
        reach: Reach::Any,
        authorities,
        max_body: MAX_BYTES,
        ..ClientOptions::default()
    };
    Ok(Client::new(options)?)
}

/// Asks an introspection endpoint (RFC 7662 §2.1).
pub(super) struct Ask {
    client: Client,
    url: String,
    /// Name and secret of this server (RFC 6749 §2.3.1).
    authorization: HeaderValue,
}

impl Ask {
    /// # Errors
    ///
    /// When the secret is not there, or the authorities cannot be read.
    pub(super) fn new(
        options: &Introspection,
        environment: &Environment,
        authorities: Option<&Path>,
    ) -> Result<Self, Failure> {
        let secret = options.client_secret.reveal(environment);
        let Some(secret) = secret else {
            return Err("identity.introspection.client_secret refers to a variable that is not there, or is empty".into());
        };
        let user = encoded(&options.client_id);
        let pair = BASE64_STANDARD.encode(format!("{user}:{}", encoded(&secret)));
        let mut authorization = HeaderValue::try_from(format!("Basic {pair}"))?;
        authorization.set_sensitive(true);
        Ok(Self {
            client: client(authorities)?,
            url: options.url.clone(),
            authorization,
        })
    }

    async fn asked(&self, token: &str) -> Result<Option<Vec<u8>>, Box<dyn Error + Send + Sync>> {
        let form = format!("token={}&token_type_hint=access_token", encoded(token));
        let request = Request::post(&self.url)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Bytes::from(form))?;
        let response = self.client.send(request).await?;
        match response.status() {
            StatusCode::OK => Ok(Some(response.into_body().into())),
            StatusCode::BAD_REQUEST => Ok(None),
            // The secret is wrong, or this server may not ask.
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(format!(
                "the issuer does not accept identity.introspection.client_id and client_secret (status {status})"
            )
            .into()),
            status => Err(format!("the issuer answers with status {status}").into()),
        }
    }
}

impl AskIssuer for Ask {
    fn ask<'a>(&'a self, token: &'a str) -> Asked<'a> {
        Box::pin(self.asked(token))
    }
}

/// Text as a form has it.
fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl FetchKeys for Fetch {
    fn fetch<'a>(&'a self, source: &'a KeySource) -> Fetched<'a> {
        match source {
            KeySource::Url(url) => Box::pin(self.ask(url)),
            KeySource::File(path) => Box::pin(read(path.clone())),
            // What an issuer says of itself is asked for by address.
            KeySource::Issuer => Box::pin(async { Err("an issuer is no place".into()) }),
        }
    }
}

/// A disk may hang, and others must not hang with it.
async fn read(path: PathBuf) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
    let read = move || regular_file::read(&path, MAX_BYTES as u64);
    Ok(tokio::task::spawn_blocking(read).await??)
}
