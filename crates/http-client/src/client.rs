//! Requests with bounds, over connections that are kept.

use crate::{
    BadUrl, ClientError, HostError, MAX_HEADER_BYTES, Reach, SendError, check_url,
    connect::{Connector, connect_error},
    host,
    pool::{Lease, Pool},
    tls,
};
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Body, Incoming},
    client::conn::http1,
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::rt::TokioIo;
use std::{fmt, sync::Arc, time::Duration};
use tokio::time::Instant;

/// Most headers of an answer.
const MAX_HEADERS: usize = 128;
/// `User-Agent` of requests that have none of their own.
pub const USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("owlclaw-mcp/", env!("CARGO_PKG_VERSION")));

/// Reach, trust and bounds of a client.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Hosts and networks that requests may go to.
    pub reach: Reach,
    /// Authorities that certificates may come from besides those of the system: PEM. May be empty.
    pub authorities: Vec<u8>,
    /// Connections to one host at once; further requests wait for one of these.
    pub max_connections: usize,
    /// Time after which an unused connection is closed.
    pub idle_timeout: Duration,
    /// Time for connecting to one address of a host.
    pub connect_timeout: Duration,
    /// Time for a whole exchange, connecting and reading the answer included.
    pub timeout: Duration,
    /// Most bytes of an answer's body.
    pub max_body: usize,
    /// True to refuse requests that would not be encrypted.
    pub https_only: bool,
}

impl Default for ClientOptions {
    /// Public addresses, 16 connections to a host for 60 s, 5 s to connect, 10 s in all, answers of 1 MiB.
    fn default() -> Self {
        Self {
            reach: Reach::default(),
            authorities: Vec::new(),
            max_connections: 16,
            idle_timeout: Duration::from_secs(60),
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
pub struct Client(Arc<Inner>);

struct Inner {
    pool: Arc<Pool>,
    options: ClientOptions,
}

impl Client {
    /// A client without any connection yet.
    ///
    /// # Errors
    ///
    /// [`ClientError`] when TLS cannot be set up as `options` say.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let reach = Arc::new(options.reach.clone());
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::client_config(&options.authorities)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(Connector::new(reach, options.connect_timeout));
        let mut builder = http1::Builder::new();
        builder
            .max_buf_size(MAX_HEADER_BYTES)
            .max_headers(MAX_HEADERS);
        let pool = Pool::new(
            connector,
            builder,
            options.max_connections,
            options.idle_timeout,
        );
        Ok(Self(Arc::new(Inner {
            pool: Arc::new(pool),
            options,
        })))
    }

    /// The options that it was made with.
    #[must_use]
    pub fn options(&self) -> &ClientOptions {
        &self.0.options
    }

    /// Checks `host` as [`Reach::check`] does.
    ///
    /// # Errors
    ///
    /// [`HostError`], which says what forbids it.
    pub fn check_host(&self, host: &str) -> Result<(), HostError> {
        self.0.options.reach.check(host)
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
    /// Dropping the future closes the connection, unless it was idle; the request may have been sent.
    pub async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, SendError> {
        let ClientOptions {
            timeout, max_body, ..
        } = self.0.options;
        self.send_within(request, max_body, Instant::now() + timeout)
            .await
    }

    /// As [`Client::send`], with bounds of its own for the body and the time.
    ///
    /// # Errors
    ///
    /// [`SendError`] when there is no answer.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// As [`Client::send`].
    pub async fn send_within(
        &self,
        request: Request<Bytes>,
        max_body: usize,
        until: Instant,
    ) -> Result<Response<Bytes>, SendError> {
        let mut request = request.map(Full::new);
        self.check(request.uri())?;
        let headers = request.headers_mut();
        headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
        let exchange = async {
            let (response, mut lease) = self.0.pool.send(request).await?;
            let response = whole(response, max_body).await?;
            lease.give_back();
            Ok(response)
        };
        tokio::time::timeout_at(until, exchange)
            .await
            .unwrap_or(Err(SendError::TimedOut))
    }

    /// Sends one request, once, and returns with the answer's headers; the body is read as it comes. The
    /// answer counts as one of the host's connections until its body is dropped. The time is bounded by `until`;
    /// without it by the caller, who drops the future.
    ///
    /// # Errors
    ///
    /// [`SendError`] when there are no headers of an answer before `until`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// As [`Client::send`].
    pub async fn open(
        &self,
        request: Request<Bytes>,
        until: Option<Instant>,
    ) -> Result<Response<BodyStream>, SendError> {
        let mut request = request.map(Full::new);
        self.check(request.uri())?;
        let headers = request.headers_mut();
        headers.entry(header::USER_AGENT).or_insert(USER_AGENT);
        let exchange = async {
            let (response, lease) = self.0.pool.send(request).await?;
            check_headers(&response)?;
            Ok(response.map(|body| BodyStream { body, lease }))
        };
        match until {
            Some(until) => tokio::time::timeout_at(until, exchange)
                .await
                .unwrap_or(Err(SendError::TimedOut)),
            None => exchange.await,
        }
    }

    /// Connects to the host of `address` (`http` or `https`) without sending anything, for protocols that
    /// begin with HTTP and go on with something else.
    ///
    /// # Errors
    ///
    /// [`SendError`] when there is no connection.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn connect(&self, address: Uri) -> Result<Connection, SendError> {
        use tower_service::Service as _;
        self.check(&address)?;
        let mut connector = self.0.pool.connector();
        let stream = connector.call(address).await.map_err(connect_error)?;
        Ok(TokioIo::new(stream))
    }

    fn check(&self, address: &Uri) -> Result<(), SendError> {
        check_url(address).map_err(SendError::BadAddress)?;
        match address.scheme_str() {
            Some("http") if self.0.options.https_only => Err(SendError::NotEncrypted),
            Some("http" | "https") => {
                let name = host::bare(address.host().unwrap_or_default());
                let checked = self.0.options.reach.check_name(name);
                checked.map_err(|error| SendError::Forbidden(error.into()))
            }
            _ => Err(SendError::BadAddress(BadUrl::Scheme)),
        }
    }
}

/// A connection to a host, encrypted if its address was `https`; reads and writes as tokio's do.
pub type Connection = TokioIo<<HttpsConnector<Connector> as tower_service::Service<Uri>>::Response>;

/// The body of an answer, read as it comes. Dropping it closes the connection, unless it was read to its end.
pub struct BodyStream {
    body: Incoming,
    lease: Lease,
}

impl BodyStream {
    /// The next bytes; `None` at the end.
    ///
    /// # Errors
    ///
    /// [`SendError::Broken`] when the connection has broken.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, SendError> {
        while let Some(frame) = self.body.frame().await {
            let frame = frame.map_err(|error| SendError::Broken(error.into()))?;
            if let Ok(data) = frame.into_data() {
                return Ok(Some(data));
            }
        }
        self.lease.give_back();
        Ok(None)
    }

    /// All that is left, up to `max` bytes.
    ///
    /// # Errors
    ///
    /// [`SendError::TooLarge`] for more, [`SendError::Broken`] when the connection has broken.
    pub async fn rest(mut self, max: usize) -> Result<Bytes, SendError> {
        if (max as u64) < self.body.size_hint().lower() {
            return Err(SendError::TooLarge(max));
        }
        let mut bytes = BytesMut::with_capacity(announced(&self.body, max));
        while let Some(chunk) = self.chunk().await? {
            if max - bytes.len() < chunk.len() {
                return Err(SendError::TooLarge(max));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes.freeze())
    }
}

impl Drop for BodyStream {
    fn drop(&mut self) {
        // An empty one has been read without being asked for.
        if self.body.is_end_stream() {
            self.lease.give_back();
        }
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyStream").finish_non_exhaustive()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

/// Reads a body to its end or to the bound. Chunks are copied, so that many small ones take no more
/// memory than they have bytes.
async fn whole(response: Response<Incoming>, max: usize) -> Result<Response<Bytes>, SendError> {
    check_headers(&response)?;
    let (parts, mut body) = response.into_parts();
    if (max as u64) < body.size_hint().lower() {
        return Err(SendError::TooLarge(max));
    }
    let mut bytes = BytesMut::with_capacity(announced(&body, max));
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

/// Most bytes that are set aside for an answer before any of it has come.
const MAX_AHEAD: usize = 64 << 10;

/// Bytes to set aside for a body that says how long it is.
fn announced(body: &Incoming, max: usize) -> usize {
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(max);
    announced.min(max).min(MAX_AHEAD)
}

/// Refuses headers that are too long: hyper's own bound holds only for those that do not arrive all at once.
fn check_headers<B>(response: &Response<B>) -> Result<(), SendError> {
    let headers = response.headers().iter();
    let header_bytes: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    match MAX_HEADER_BYTES < header_bytes {
        true => Err(SendError::LongHeaders),
        false => Ok(()),
    }
}
