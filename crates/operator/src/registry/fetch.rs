//! Files of published servers: from the disk, from an address, or from a registry by name.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use config::{Config, printable};
use http::{Request, header};
use http_client::{Client, ClientOptions, Reach};

use super::failed;
use crate::output::Stop;
use crate::running::encoded;

/// Most addresses that one leads to.
const MAX_REDIRECTS: usize = 5;
/// Time for an entry, and for a bundle.
const SOON: Duration = Duration::from_secs(30);
const LATER: Duration = Duration::from_secs(600);

/// Place of a published server.
#[derive(Debug)]
pub(super) enum Source {
    File(PathBuf),
    Address(String),
    /// A name in the registry, with the address of its entry.
    Name(String, String),
}

/// File of a published server.
pub(super) enum Found {
    Entry(String),
    Bundle(Vec<u8>),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Address(url) => f.write_str(url),
            Self::Name(_, url) => f.write_str(url),
        }
    }
}

impl Source {
    pub(super) fn of(text: &str, config: &Config) -> Result<Self, Stop> {
        if text.starts_with("https://") || text.starts_with("http://") {
            http_client::parse_url(text, &["https", "http"])
                .map_err(|why| Stop::Wrong(format!("`{}`: {why}", printable(text)).into()))?;
            return Ok(Self::Address(text.to_owned()));
        }
        let path = PathBuf::from(text);
        let is_path =
            text.starts_with(['.', '/']) || text.ends_with(".json") || text.ends_with(".mcpb");
        if is_path || path.exists() {
            return Ok(Self::File(path));
        }
        let (name, version) = text.split_once('@').unwrap_or((text, "latest"));
        if !name.contains('/') {
            let text = printable(text);
            return Err(failed(format!(
                "`{text}` is no file, no address, and no name in a registry (NAMESPACE/NAME)"
            )));
        }
        let base = config.registry.url.trim_end_matches('/');
        let url = format!(
            "{base}/v0.1/servers/{}/versions/{}",
            encoded(name),
            encoded(version)
        );
        Ok(Self::Name(text.to_owned(), url))
    }

    pub(super) fn read(&self) -> Result<Found, Stop> {
        let about = |why: String| failed(format!("{}: {why}", printable(&self.to_string())));
        let file = match self {
            Self::File(path) => {
                let length = std::fs::metadata(path).map(|it| it.len());
                match length {
                    Ok(length) if length > registry::bundle::MAX_BYTES => {
                        return Err(about("it is too long for a bundle".to_owned()));
                    }
                    Ok(_) => std::fs::read(path),
                    Err(error) => Err(error),
                }
                .map_err(|error| about(format!("it cannot be read: {error}")))?
            }
            // The operator has named it: it may be anywhere.
            Self::Address(url) => {
                get(url, Reach::Any, registry::bundle::MAX_BYTES, LATER).map_err(about)?
            }
            Self::Name(name, url) => get(url, Reach::Any, registry::MAX_BYTES as u64, SOON)
                .map_err(|why| {
                    let name = printable(name);
                    failed(format!(
                        "`{name}` is not had from the registry ({url}): {why}"
                    ))
                })?,
        };
        if file.starts_with(b"PK") {
            return Ok(Found::Bundle(file));
        }
        let text = String::from_utf8(file);
        text.map(Found::Entry)
            .map_err(|_| about("it is neither a bundle nor a text".to_owned()))
    }
}

/// The bundle that an entry names: from public addresses alone, since a stranger has written the address.
pub(super) fn bundle(url: &str) -> Result<Vec<u8>, String> {
    get(url, Reach::default(), registry::bundle::MAX_BYTES, LATER)
        .map_err(|why| format!("its bundle {url} is not had: {why}"))
}

/// Content at an address, or at the one that it leads to.
fn get(url: &str, reach: Reach, max: u64, within: Duration) -> Result<Vec<u8>, String> {
    let client = Client::new(ClientOptions {
        reach,
        max_body: usize::try_from(max).unwrap_or(usize::MAX),
        timeout: within,
        ..ClientOptions::default()
    })
    .map_err(|error| server::with_causes(&error))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let request = Request::get(&url)
                .header(
                    header::ACCEPT,
                    "application/json, application/octet-stream, */*",
                )
                .body(Bytes::new())
                .map_err(|error| error.to_string())?;
            let response = client
                .send(request)
                .await
                .map_err(|error| server::with_causes(&error))?;
            let status = response.status();
            if status.is_success() {
                return Ok(response.into_body().to_vec());
            }
            if !status.is_redirection() {
                return Err(format!("it is answered with {status}"));
            }
            let to = response.headers().get(header::LOCATION);
            let to = to.and_then(|it| it.to_str().ok()).unwrap_or_default();
            url = led_to(&url, to)?;
        }
        Err(format!("it leads on more than {MAX_REDIRECTS} times"))
    })
}

/// The address that a redirection names: an encrypted one, unless none before was.
fn led_to(from: &str, to: &str) -> Result<String, String> {
    let to = match to.strip_prefix('/') {
        Some(path) if !path.starts_with('/') => {
            let (scheme, rest) = from.split_once("://").unwrap_or_default();
            let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
            format!("{scheme}://{host}/{path}")
        }
        _ => to.to_owned(),
    };
    let is_open = !to.starts_with("https://");
    if is_open && !(from.starts_with("http://") && to.starts_with("http://")) {
        return Err(format!(
            "it leads to `{}`, which is not encrypted",
            printable(&to)
        ));
    }
    Ok(to)
}
