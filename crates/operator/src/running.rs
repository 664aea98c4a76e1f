//! Requests of operators to a running server, over HTTP.

use std::path::Path;

use bytes::Bytes;
use http::{Method, Request, header};
use http_client::{Client, ClientOptions, Reach};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::time::Duration;

use config::Config;
use server::{Failure, STDIO_KEY};

/// The most bytes of an answer: as many sessions as a server may have take less.
const MAX_ANSWER: usize = 256 << 20;

/// Address of a server and the authorities of its certificate, where the configuration does not say them.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Place<'a> {
    pub(crate) url: Option<&'a str>,
    pub(crate) ca: Option<&'a Path>,
    /// Time for the whole exchange, if it is not the usual one.
    pub(crate) within: Option<Duration>,
}

/// Reason why a running server has not said what it was asked.
#[derive(Debug)]
pub(crate) enum Unasked {
    /// No server could be asked; the text says why.
    NoServer(String),
    /// A server has refused, or answered something else.
    Refused(Failure),
}

impl Unasked {
    pub(crate) fn into_failure(self) -> Failure {
        match self {
            Self::NoServer(why) => why.into(),
            Self::Refused(failure) => failure,
        }
    }
}

/// A part of a path.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// The server's answer to a request for `path`.
pub(crate) fn ask(
    config: &Config,
    place: Place<'_>,
    method: &Method,
    path: &str,
) -> Result<Value, Unasked> {
    let base = match place.url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => address(config).map_err(Unasked::NoServer)?,
    };
    let credential = credential(config)?;
    exchange(config, place, &base, &credential, method, path)
}

fn exchange(
    config: &Config,
    place: Place<'_>,
    base: &str,
    credential: &str,
    method: &Method,
    path: &str,
) -> Result<Value, Unasked> {
    let refused = |failure: Failure| Unasked::Refused(failure);
    let request = Request::builder()
        .method(method)
        .uri(format!("{base}{path}"))
        .header(header::AUTHORIZATION, format!("Bearer {credential}"))
        .body(Bytes::new())
        .map_err(|error| refused(error.into()))?;
    let tls = &config.http.tls;
    // The server's own certificate may be one that nobody else vouches for.
    let own = tls.cert_file.as_deref().filter(|_| tls.enabled);
    let authorities = match place.ca.or(own) {
        Some(path) => regular_file::read(path, regular_file::MAX_BYTES).map_err(|error| {
            refused(format!("`{}` cannot be read: {error}", path.display()).into())
        })?,
        None => Vec::new(),
    };
    let usual = ClientOptions::default();
    let client = Client::new(ClientOptions {
        reach: Reach::Any,
        authorities,
        max_body: MAX_ANSWER,
        timeout: place.within.unwrap_or(usual.timeout),
        ..usual
    })
    .map_err(|error| refused(error.into()))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| refused(error.into()))?;
    let response = runtime.block_on(client.send(request)).map_err(|error| {
        let why = format!("{base}: {}", server::with_causes(&error));
        match error.was_sent() {
            true => refused(why.into()),
            false => Unasked::NoServer(why),
        }
    })?;
    let told: Value = serde_json::from_slice(response.body()).unwrap_or_default();
    if response.status().is_success() {
        return Ok(told);
    }
    let why = match &told["error"] {
        Value::String(why) => why.clone(),
        error => error["message"].as_str().unwrap_or_default().to_owned(),
    };
    Err(refused(
        format!(
            "the server at {base} answers with status {}: {}",
            response.status(),
            config::printable(&why)
        )
        .into(),
    ))
}

fn address(config: &Config) -> Result<String, String> {
    let http = &config.http;
    if !http.tcp || http.port == 0 {
        return Err("`http.port` does not say where the server is: use --url".to_owned());
    }
    let scheme = if http.tls.enabled { "https" } else { "http" };
    let host = match http.host {
        any if any.is_unspecified() && any.is_ipv6() => "[::1]".to_owned(),
        any if any.is_unspecified() => "127.0.0.1".to_owned(),
        std::net::IpAddr::V6(host) => format!("[{host}]"),
        host => host.to_string(),
    };
    Ok(format!("{scheme}://{host}:{}", http.port))
}

fn credential(config: &Config) -> Result<String, Unasked> {
    if let Some(token) = &config.governance.approvals.http_token {
        let token = token.reveal(&config.environment);
        let token = token.ok_or_else(|| {
            let why = "governance.approvals.http_token refers to a variable that is not set";
            Unasked::Refused(why.into())
        })?;
        return Ok(token.trim().to_owned());
    }
    let key = std::env::var(STDIO_KEY).unwrap_or_default();
    match key.trim() {
        "" => Err(Unasked::NoServer(format!(
            "nothing shows the server that an operator asks: set governance.approvals.http_token in the \
             configuration, or {STDIO_KEY} to an API key with a role of identity.operator_roles"
        ))),
        key => Ok(key.to_owned()),
    }
}
