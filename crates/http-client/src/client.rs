use crate::{ClientError, SendError, tls};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use std::{fmt, time::Duration};

/// An answer whose headers have more bytes is refused.
pub const MAX_HEADER_BYTES: usize = 64 * 1024;
/// An answer with more headers is refused.
const MAX_HEADERS: usize = 128;
/// Connections to one place that are kept for the next request.
const MAX_IDLE_CONNECTIONS: usize = 2;
/// For so long.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Who asks, unless the request says so itself.
const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("owlclaw-mcp/", env!("CARGO_PKG_VERSION")));

/// What a client trusts, and its bounds.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Authorities that certificates may come from besides those of the system: PEM. May be empty.
    pub authorities: Vec<u8>,
    /// How long connecting may take, all addresses of the host together.
    pub connect_timeout: Duration,
    /// How long the whole exchange may take, connecting and reading the answer included.
    pub timeout: Duration,
    /// The most bytes an answer's body may have.
    pub max_body: usize,
    /// Whether to refuse what would not be encrypted.
    pub https_only: bool,
}

impl Default for ClientOptions {
    /// 5 s to connect, 10 s in all, answers of 1 MiB.
    fn default() -> Self {
        Self {
            authorities: Vec::new(),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(10),
            max_body: 1 << 20,
            https_only: false,
        }
    }
}

/// Sends requests. Cheap to clone; clones share their connections.
///
/// A connection lives in the tokio runtime it was made in, so a client is best used in one only.
#[derive(Clone)]
pub struct Client {
    client: legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    timeout: Duration,
    max_body: usize,
    https_only: bool,
}

impl Client {
    /// A client without any connection yet.
    ///
    /// # Errors
    ///
    /// [`ClientError`] when TLS cannot be set up as `options` say.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(options.connect_timeout));
        connector.set_nodelay(true);
        // It would refuse `https`, and what speaks TLS stands around it.
        connector.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client_config(&options.authorities)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .http1_max_buf_size(MAX_HEADER_BYTES)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Ok(Self {
            client,
            timeout: options.timeout,
            max_body: options.max_body,
            https_only: options.https_only,
        })
    }

    /// Sends one request, once, and reads the whole answer. An answer that says that something is
    /// wrong is an answer.
    ///
    /// # Errors
    ///
    /// [`SendError`] when there is none.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the request may have been sent.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let mut request = request.map(Full::new);
        self.check(request.uri())?;
        let headers = request.headers_mut();
        headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
        let exchange = async {
            let response = self.client.request(request).await.map_err(send_error)?;
            whole(response, self.max_body).await
        };
        tokio::time::timeout(self.timeout, exchange)
            .await
            .unwrap_or(Err(SendError::TimedOut))
    }

    fn check(&self, address: &Uri) -> Result<(), SendError> {
        let has_host = address.host().is_some_and(|host| !host.is_empty());
        match address.scheme_str() {
            Some("https") if has_host => Ok(()),
            Some("http") if has_host && self.https_only => Err(SendError::NotEncrypted),
            Some("http") if has_host => Ok(()),
            _ => Err(SendError::BadAddress(address.clone())),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("timeout", &self.timeout)
            .field("max_body", &self.max_body)
            .field("https_only", &self.https_only)
            .finish_non_exhaustive()
    }
}

/// Reads a body to its end or to the bound. Chunks are copied, so that many small ones take no more
/// memory than they have bytes.
async fn whole(response: Response<Incoming>, max: usize) -> Result<Response<Bytes>, SendError> {
    let (parts, mut body) = response.into_parts();
    // hyper's own bound holds only for headers that do not arrive all at once.
    let headers = parts.headers.iter();
    let header_bytes: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if MAX_HEADER_BYTES < header_bytes {
        return Err(SendError::LongHeaders);
    }
    if (max as u64) < body.size_hint().lower() {
        return Err(SendError::TooLarge(max));
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| SendError::Broken(error.into()))?;
        if let Some(data) = frame.data_ref() {
            if max - bytes.len() < data.len() {
                return Err(SendError::TooLarge(max));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(Response::from_parts(parts, bytes.freeze()))
}

fn send_error(error: legacy::Error) -> SendError {
    match error.is_connect() {
        true => SendError::Unreachable(error.into()),
        false => SendError::Broken(error.into()),
    }
}
