//! Fetches of issuers' public keys.

use std::error::Error;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_client::{Client, ClientOptions, Reach};
use identity::{FetchKeys, Fetched, KeySource};

use crate::Failure;

/// A longer document is refused.
const MAX_BYTES: usize = 1024 * 1024;

/// Reads files, and asks issuers.
pub(super) struct Fetch {
    client: Client,
}

impl Fetch {
    /// `authorities` are trusted besides those of the system.
    pub(super) fn new(authorities: Option<&Path>) -> Result<Self, Failure> {
        let authorities = match authorities {
            None => Vec::new(),
            Some(path) => std::fs::read(path)
                .map_err(|error| format!("identity.ca_file {}: {error}", path.display()))?,
        };
        let options = ClientOptions {
            reach: Reach::Any,
            authorities,
            max_body: MAX_BYTES,
            ..ClientOptions::default()
        };
        let client = Client::new(options)?;
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
    let read = move || {
        if !std::fs::metadata(&path)?.is_file() {
            return Err(std::io::Error::other("it is not a file"));
        }
        let mut bytes = Vec::new();
        let limit = MAX_BYTES as u64 + 1;
        std::fs::File::open(&path)?
            .take(limit)
            .read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    Ok(tokio::task::spawn_blocking(read).await??)
}
