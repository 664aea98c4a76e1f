use crate::{
    Authorize, Bounds, Error,
    wire::child,
    wire::child::ChildProgram,
    wire::http::{BESIDE_REQUESTS, HttpLink},
    wire::lines,
    wire::link::{Duplex, End, Link},
    wire::old_sse,
    wire::shared::Shared,
    wire::websocket,
};
use http::{HeaderMap, HeaderName};
use http_client::{Client, ClientOptions, Reach, parse_url};
use std::{ffi::OsString, fmt, str::FromStr, sync::Arc, sync::Mutex};
use tokio::io::DuplexStream;

/// The way to one server.
#[derive(Clone, Debug)]
pub enum Dial {
    /// A program that is started, and spoken to over its standard streams.
    Child(ChildProgram),
    /// An address: `http` and `https` for Streamable HTTP (or HTTP+SSE of 2024-11-05, if the server turns
    /// out to have that alone), `ws` and `wss` for a WebSocket.
    Url(UrlDial),
    /// A pair of byte streams that carry lines, such as two ends in one process. It can be dialled once.
    Pair(Pair),
}

/// One end of a pair of byte streams; see [`Dial::Pair`].
#[derive(Clone, Debug)]
pub struct Pair(Arc<Mutex<Option<DuplexStream>>>);

/// An address, and how requests to it are made.
#[derive(Clone)]
pub struct UrlDial {
    /// The address.
    pub url: String,
    /// Headers of each request; none of those that are [of the transport](is_of_transport).
    pub headers: HeaderMap,
    /// The transport behind an `http` address.
    pub transport: HttpTransport,
    /// Authorization; requests that are refused fail without it.
    pub authorize: Option<Arc<dyn Authorize>>,
    /// Limits on where connections may go. Anywhere, by default, since the address is the caller's.
    pub reach: Reach,
    /// Authorities that certificates may come from besides those of the system: PEM.
    pub authorities: Vec<u8>,
}

impl FromStr for Dial {
    type Err = Error;

    /// Reads an address, or a command: words between spaces, those in quotes as one.
    fn from_str(text: &str) -> Result<Self, Error> {
        if text.contains("://") && !text.contains(char::is_whitespace) {
            return Ok(Self::url(text));
        }
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for it in text.chars() {
            match quote {
                Some(open) if it == open => quote = None,
                None if it == '"' || it == '\'' => {
                    quote = Some(it);
                    word.get_or_insert_default();
                }
                None if it.is_whitespace() => words.extend(word.take()),
                _ => word.get_or_insert_default().push(it),
            }
        }
        words.extend(word);
        let mut words = words.into_iter();
        match words.next() {
            Some(program) if quote.is_none() => Ok(Self::child(program, words)),
            _ => Err(Error::Address {
                url: text.to_owned(),
                reason: "it is neither an address nor a command".to_owned(),
            }),
        }
    }
}

/// Transport behind an `http` address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpTransport {
    /// Streamable HTTP first; HTTP+SSE if the server refuses that with 400, 404 or 405.
    #[default]
    Detect,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE of 2024-11-05.
    Sse,
}

/// True for a header that a transport sets itself: where a message ends and where it is sent, its form, and what MCP
/// says in headers. One that is configured as well would contradict it or be of no effect.
#[must_use]
pub fn is_of_transport(name: &HeaderName) -> bool {
    const NAMES: [&str; 15] = [
        "accept",
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let name = name.as_str();
    NAMES.contains(&name) || name.starts_with("mcp-") || name.starts_with("sec-websocket-")
}

impl fmt::Debug for UrlDial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UrlDial")
            .field("url", &self.url)
            .field("transport", &self.transport)
            .finish_non_exhaustive()
    }
}

impl Dial {
    /// The server at `url`.
    pub fn url(url: impl Into<String>) -> Self {
        Self::Url(UrlDial::new(url))
    }

    /// The server that `program` is, started with `arguments`.
    pub fn child<I>(program: impl Into<OsString>, arguments: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<OsString>,
    {
        Self::Child(ChildProgram {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            ..ChildProgram::default()
        })
    }

    /// The server at the other end of `stream`.
    pub fn pair(stream: DuplexStream) -> Self {
        Self::Pair(Pair(Arc::new(Mutex::new(Some(stream)))))
    }

    /// The same address over another transport, if that is worth a try after `error`.
    pub(crate) fn falls_back(&self, error: &Error) -> Option<Self> {
        let Self::Url(url) = self else {
            return None;
        };
        let refused = matches!(
            error,
            Error::Status {
                status: 400 | 404 | 405,
                ..
            }
        );
        let is_http = !url.url.starts_with("ws");
        (refused && is_http && url.transport == HttpTransport::Detect).then(|| {
            Self::Url(UrlDial {
                transport: HttpTransport::Sse,
                ..url.clone()
            })
        })
    }

    /// True for HTTP+SSE, which the modern era does not have: servers refuse the probe there, and some
    /// with a status that leaves the stream without its answer.
    pub(crate) fn is_legacy(&self) -> bool {
        matches!(self, Self::Url(url) if url.transport == HttpTransport::Sse)
    }

    /// True if dialling again has another process or connection, and so a server that knows of nothing. HTTP has
    /// a connection for each request.
    pub(crate) fn is_renewable(&self) -> bool {
        match self {
            Self::Child(_) => true,
            Self::Url(url) => url.url.starts_with("ws"),
            Self::Pair(_) => false,
        }
    }

    /// Makes the way ready; nothing of MCP has been said yet.
    pub(crate) async fn open(&self, shared: &Arc<Shared>) -> Result<Link, Error> {
        match self {
            Self::Child(program) => child::start(shared, program),
            Self::Pair(Pair(stream)) => {
                let mut stream = stream
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                let taken = stream.take();
                drop(stream);
                let stream = taken.ok_or_else(|| Error::closed("a pair can be dialled once"))?;
                let (reader, writer) = tokio::io::split(stream);
                let patience = shared.bounds.close_patience;
                let (out, writing) = lines::write(&shared.bounds, writer);
                let shared = Arc::clone(shared);
                let reading = tokio::spawn(async move {
                    let error = lines::read(&shared, reader).await;
                    shared.close(&error.into_reason());
                });
                let end = End::Within(patience);
                let duplex = Duplex::new(out, reading.abort_handle(), Some(writing), end);
                Ok(Link::Duplex(duplex))
            }
            Self::Url(url) => url.open(shared).await,
        }
    }
}

impl UrlDial {
    /// `url`, without headers and authorization.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            headers: HeaderMap::new(),
            transport: HttpTransport::default(),
            authorize: None,
            reach: Reach::Any,
            authorities: Vec::new(),
        }
    }

    fn client(&self, bounds: &Bounds) -> Result<Client, Error> {
        let options = ClientOptions {
            reach: self.reach.clone(),
            authorities: self.authorities.clone(),
            // Each request that waits for an answer has a connection of its own, and so has what is sent meanwhile.
            max_connections: bounds.max_open.saturating_add(BESIDE_REQUESTS),
            max_body: bounds.max_message,
            timeout: bounds.timeout,
            ..ClientOptions::default()
        };
        Client::new(options).map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, reason: &impl ToString) -> Error {
        Error::Address {
            url: without_credentials(&self.url),
            reason: reason.to_string(),
        }
    }

    async fn open(&self, shared: &Arc<Shared>) -> Result<Link, Error> {
        let url = parse_url(&self.url, &["http", "https", "ws", "wss"]);
        let url = url.map_err(|why| self.unusable(&why))?;
        shared.keep_secrets(&self.headers);
        let client = self.client(&shared.bounds)?;
        let authorize = self.authorize.clone();
        match url.scheme_str() {
            Some("ws" | "wss") => {
                websocket::open(shared, &client, &url, &self.headers, authorize.as_ref()).await
            }
            _ => {
                let link =
                    HttpLink::new(&shared.bounds, client, url, self.headers.clone(), authorize);
                match self.transport {
                    HttpTransport::Sse => old_sse::open(shared, link).await,
                    _ => Ok(Link::Http(Arc::new(link))),
                }
            }
        }
    }
}

/// `url` for messages: a user and a password in front of the host are left out.
fn without_credentials(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://…{}", &rest[at..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_read_from_text() {
        for text in ["https://example.com/mcp", "ws://127.0.0.1/mcp"] {
            let dial: Dial = text.parse().unwrap();
            assert!(matches!(dial, Dial::Url(it) if it.url == text));
        }
        for (text, words) in [
            (" a  b ", &["a", "b"][..]),
            (r#"a "b c" d'e "f'"#, &["a", "b c", "de \"f"]),
            ("a '' http://b", &["a", "", "http://b"]),
        ] {
            let dial: Dial = text.parse().unwrap();
            let Dial::Child(child) = dial else {
                panic!("{text}")
            };
            let of_child = [child.program].into_iter().chain(child.arguments);
            assert_eq!(of_child.collect::<Vec<_>>(), words, "{text}");
        }
        for text in ["", "  ", "a 'b"] {
            assert!(text.parse::<Dial>().is_err(), "{text:?}");
        }
    }
}
