//! Files of published servers: from the disk, from an address, or from a registry by name.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use config::{Config, printable};
use http::{Request, header};
use http_client::{Client, ClientOptions, Reach};
use registry::ServerJson;

use super::failed;
use crate::output::Stop;
use crate::running::encoded;

/// Most addresses that one leads to.
const MAX_REDIRECTS: usize = 5;
/// Time for an entry, and for a bundle.
const SOON: Duration = Duration::from_secs(30);
const LATER: Duration = Duration::from_secs(600);
/// Stands for the version of an entry that the registry calls the latest.
const LATEST: &str = "latest";

/// Place of a published server.
#[derive(Debug)]
pub(super) enum Source {
    File(PathBuf),
    Address(String),
    /// An entry of the registry.
    Name {
        name: String,
        /// Version, if one was asked for.
        version: Option<String>,
        /// Address of the entry.
        url: String,
    },
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
            Self::Name { url, .. } => f.write_str(url),
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
        let (name, version) = match text.split_once('@') {
            Some((name, version)) => (name, Some(version).filter(|it| *it != LATEST)),
            None => (text, None),
        };
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
            encoded(version.unwrap_or(LATEST))
        );
        Ok(Self::Name {
            name: name.to_owned(),
            version: version.map(str::to_owned),
            url,
        })
    }

    /// Reason why an entry is none that was asked for.
    pub(super) fn refuses(&self, found: &ServerJson) -> Option<String> {
        match self {
            Self::Name { name, version, .. } => found.differs_from(name, version.as_deref()),
            Self::File(_) | Self::Address(_) => None,
        }
    }

    pub(super) fn read(&self) -> Result<Found, Stop> {
        let about = |why: String| failed(format!("{}: {why}", printable(&self.to_string())));
        let file = match self {
            Self::File(path) => regular_file::read(path, registry::bundle::MAX_BYTES)
                .map_err(|error| about(format!("it cannot be read: {error}")))?,
            // The operator has named it: it may be anywhere.
            Self::Address(url) => {
                get(url, Reach::Any, registry::bundle::MAX_BYTES, LATER).map_err(about)?
            }
            Self::Name { name, url, .. } => get(url, Reach::Any, registry::MAX_BYTES as u64, SOON)
                .map_err(|why| {
                    let name = printable(name);
                    failed(format!(
                        "`{name}` is not had from the registry ({url}): {why}"
                    ))
                })?,
        };
        if file.starts_with(b"PK") {
            return match self {
                // Nothing in it would say whether it is what was asked for.
                Self::Name { .. } => Err(about("it is a bundle, and no entry".to_owned())),
                _ => Ok(Found::Bundle(file)),
            };
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

/// Content at an address, or at the one that it leads to: what may be reached is for the operator to say of the origin
/// alone that they have named, and who answers there names others.
fn get(named: &str, reach: Reach, max: u64, within: Duration) -> Result<Vec<u8>, String> {
    let client = |reach| {
        let client = Client::new(ClientOptions {
            reach,
            max_body: usize::try_from(max).unwrap_or(usize::MAX),
            timeout: within,
            ..ClientOptions::default()
        });
        client.map_err(|error| server::with_causes(&error))
    };
    let (own, public) = (client(reach)?, client(Reach::default())?);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut url = named.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let is_named = origin(&url) == origin(named);
            let about = |why: String| match url == named {
                true => why,
                false => format!("it leads to `{}`, and there {why}", printable(&url)),
            };
            let request = Request::get(&url)
                .header(
                    header::ACCEPT,
                    "application/json, application/octet-stream, */*",
                )
                .body(Bytes::new())
                .map_err(|error| about(error.to_string()))?;
            let client = if is_named { &own } else { &public };
            let response = client
                .send(request)
                .await
                .map_err(|error| about(server::with_causes(&error)))?;
            let status = response.status();
            if status.is_success() {
                return Ok(response.into_body().to_vec());
            }
            if !status.is_redirection() {
                return Err(about(format!("it is answered with {status}")));
            }
            let to = response.headers().get(header::LOCATION);
            let to = to.and_then(|it| it.to_str().ok()).unwrap_or_default();
            url = led_to(&url, to)?;
        }
        Err(format!("it leads on more than {MAX_REDIRECTS} times"))
    })
}

/// Scheme, host and port of an address.
fn origin(url: &str) -> Option<(String, String, u16)> {
    let uri: http::Uri = url.parse().ok()?;
    let scheme = uri.scheme_str()?.to_ascii_lowercase();
    let usual = if scheme == "https" { 443 } else { 80 };
    let host = uri.host()?.to_ascii_lowercase();
    Some((scheme, host, uri.port_u16().unwrap_or(usual)))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::path::Path;

    use config::{Environment, Text};
    use registry::{Answers, Way};

    use super::*;
    use crate::registry::{Wanted, look};
    use crate::request::{Manner, Published, ReportFormat};

    /// A server that answers each request with a head and a body; its address.
    fn serving(answer: impl Fn(&str) -> (String, String) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let lines: Vec<String> = lines
                    .map(Result::unwrap)
                    .take_while(|it| !it.is_empty())
                    .collect();
                let path = lines[0].split(' ').nth(1).unwrap();
                let (head, body) = answer(path);
                let length = body.len();
                let all = format!(
                    "HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
                );
                stream.write_all(all.as_bytes()).unwrap();
            }
        });
        address
    }

    fn config(registry: &str) -> Config {
        let text = format!("mcp_server: {{registry: {{url: '{registry}'}}}}");
        let name = "mcp-server.yaml".to_owned();
        let text = Text { name, text };
        let loaded = config::load_texts(&[text], &Environment::default(), Path::new("/"));
        loaded.unwrap().config
    }

    /// Reason why what a source has is not taken.
    fn refusal(source: &str, config: &Config) -> Option<String> {
        let wanted = Wanted {
            way: Way::First,
            only_catalogue: false,
            without_hash: false,
            published: Published::default(),
            manner: Manner {
                dry_run: true,
                format: ReportFormat::Text,
            },
        };
        match look(config, source, &wanted, &Answers::new()) {
            Ok(_) => None,
            Err(Stop::Failed(why)) => Some(why.to_string()),
            Err(_) => panic!("{source}"),
        }
    }

    fn entry() -> String {
        r#"{"server": {"name": "a.b/c", "description": "C", "version": "1.0.0",
            "remotes": [{"type": "sse", "url": "https://c.b.a/mcp"}]}}"#
            .to_owned()
    }

    #[test]
    fn a_registry_cannot_answer_with_another_server_or_version_than_was_asked_for() {
        let registry = config(&serving(|_| ("200 OK".to_owned(), entry())));
        for asked in ["a.b/c", "a.b/c@latest", "a.b/c@1.0.0"] {
            assert_eq!(refusal(asked, &registry), None, "{asked}");
        }
        for asked in ["a.b/c@1.0.1", "a.b/d", "a.b/d@1.0.0"] {
            let why = refusal(asked, &registry).unwrap();
            let told = format!("it is `a.b/c@1.0.0`, and `{asked}` was asked for");
            assert!(why.ends_with(&told), "{why}");
        }
        let bundles = config(&serving(|_| ("200 OK".to_owned(), "PK".to_owned())));
        let why = refusal("a.b/c", &bundles).unwrap();
        assert!(why.ends_with("it is a bundle, and no entry"), "{why}");
    }

    #[test]
    fn a_redirection_leads_to_private_networks_only_where_the_operator_has_named_them() {
        let inner = serving(|_| ("200 OK".to_owned(), entry()));
        let outer = serving(move |path| match path {
            "/elsewhere" => (format!("302 Found\r\nlocation: {inner}/a"), String::new()),
            "/here" => ("302 Found\r\nlocation: /there".to_owned(), String::new()),
            _ => ("200 OK".to_owned(), entry()),
        });
        let read = |path: &str| get(&format!("{outer}{path}"), Reach::Any, 4096, SOON);
        assert_eq!(read("/here").unwrap(), entry().into_bytes());
        let why = read("/elsewhere").unwrap_err();
        assert!(
            why.contains("it leads to `http://127.0.0.1:") && why.contains("not public"),
            "{why}"
        );
    }
}
