//! One client for all services: pools of connections, TLS, bounds.

use crate::{
    AllowPrivate, HostList,
    connect::{ConnectError, Connector},
};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, Client},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject},
};
use std::{
    collections::HashMap,
    error::Error,
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// What a client may do, and how much of it at once.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// Hosts that may be talked to; every one, if it is empty.
    pub allowed_hosts: HostList,
    /// Private networks that may be talked to.
    pub allow_private: AllowPrivate,
    /// Authorities that certificates may come from besides those of the system: PEM.
    pub authorities: Vec<u8>,
    /// Connections to one host at once; further requests wait for one of these.
    pub max_connections: usize,
    /// After so long unused, a connection is closed.
    pub idle_timeout: Duration,
    /// How long connecting to one address may take.
    pub connect_timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            allowed_hosts: HostList::default(),
            allow_private: AllowPrivate::default(),
            authorities: Vec::new(),
            max_connections: 16,
            idle_timeout: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
        }
    }
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The configured authorities are no certificates.
    #[error("the certificates of the configured authorities cannot be read")]
    Authorities(#[source] Box<dyn Error + Send + Sync>),
    /// There are none in the file.
    #[error("the file of authorities has no certificate in it")]
    NoAuthorities,
    /// TLS cannot be set up.
    #[error("TLS cannot be set up")]
    Tls(#[source] rustls::Error),
}

/// Why a host may not be talked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It is not in a list of those that may; the second is the list's name.
    #[error("the host `{0}` is not in `{1}`")]
    NotAllowed(String, &'static str),
    /// It is in a network that is not public.
    #[error(
        "the host `{0}` is in a network that is not public; name it in `services.allow_private` if \
         it may be reached"
    )]
    Private(String),
}

/// Headers of an answer that have more bytes are refused.
pub const MAX_HEADER_BYTES: usize = 64 * 1024;
/// An answer with more headers is refused.
const MAX_HEADERS: usize = 128;
/// So many hosts are remembered before those that nobody talks to are forgotten.
const MAX_REMEMBERED_HOSTS: usize = 1024;

/// Sends requests to services. Cheap to clone; the clones share connections.
#[derive(Clone)]
pub struct HttpClient(Arc<Inner>);

struct Inner {
    client: Client<HttpsConnector<Connector>, Full<Bytes>>,
    options: ClientOptions,
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// A request that is ready to be sent, and sent again.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    /// Empty where there is none.
    pub(crate) body: Bytes,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SendError {
    #[error("the service's address may not be connected to")]
    Forbidden(#[source] ConnectError),
    /// Nothing of the request was sent.
    #[error("the service cannot be reached")]
    Unreachable(#[source] Box<dyn Error + Send + Sync>),
    /// The request may have been carried out.
    #[error("the connection broke before the service had answered")]
    Broken(#[source] Box<dyn Error + Send + Sync>),
    #[error("the service did not answer in time")]
    TimedOut,
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer's headers have more than {MAX_HEADER_BYTES} bytes")]
    LongHeaders,
}

impl SendError {
    /// Which of these it is, in a word.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Forbidden(_) => "forbidden",
            Self::Unreachable(_) => "unreachable",
            Self::Broken(_) => "broken",
            Self::TimedOut => "timeout",
            Self::TooLarge(_) | Self::LongHeaders => "too_large",
        }
    }
}

impl HttpClient {
    /// A client with no connections yet.
    ///
    /// # Errors
    ///
    /// [`ClientError`] when TLS cannot be set up as configured.
    pub fn new(options: ClientOptions) -> Result<Self, ClientError> {
        let connector = Connector::new(
            Arc::new(options.allow_private.clone()),
            options.connect_timeout,
        );
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls(&options.authorities)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.idle_timeout)
            .pool_max_idle_per_host(options.max_connections)
            .http1_max_buf_size(MAX_HEADER_BYTES)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Ok(Self(Arc::new(Inner {
            client,
            options,
            places: Mutex::default(),
        })))
    }

    /// What it was made with.
    pub fn options(&self) -> &ClientOptions {
        &self.0.options
    }

    /// Whether `host` may be talked to, as far as that can be told before it is looked up. What it
    /// turns out to be is checked with each connection.
    ///
    /// # Errors
    ///
    /// [`HostError`], which says what forbids it.
    pub fn check_host(&self, host: &str) -> Result<(), HostError> {
        let options = &self.0.options;
        let hosts = &options.allowed_hosts;
        if !hosts.is_empty() && !hosts.contains(host) {
            let list = "services.allowed_hosts";
            return Err(HostError::NotAllowed(host.to_owned(), list));
        }
        let loopback = IpAddr::from([127, 0, 0, 1]);
        let is_local = host == "localhost" || host.ends_with(".localhost");
        match host.parse().ok().or(is_local.then_some(loopback)) {
            Some(address) if !options.allow_private.allows(host, address) => {
                Err(HostError::Private(host.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Sends one request, once, and reads the whole answer, of at most `max_bytes`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection, unless it was idle.
    pub(crate) async fn send(
        &self,
        outgoing: &Outgoing,
        max_bytes: usize,
        until: Instant,
    ) -> Result<Received, SendError> {
        let sending = async {
            let _place = self.place(&outgoing.uri).await;
            let mut request = Request::new(Full::new(outgoing.body.clone()));
            *request.method_mut() = outgoing.method.clone();
            *request.uri_mut() = outgoing.uri.clone();
            *request.headers_mut() = outgoing.headers.clone();
            let response = self.0.client.request(request).await.map_err(send_error)?;
            whole(response, max_bytes).await
        };
        tokio::time::timeout_at(until, sending)
            .await
            .unwrap_or(Err(SendError::TimedOut))
    }

    /// Waits for one of the connections that the request's host may have.
    async fn place(&self, uri: &Uri) -> OwnedSemaphorePermit {
        let key = format!(
            "{}://{}",
            uri.scheme_str().unwrap_or_default(),
            uri.authority().map_or("", |it| it.as_str())
        );
        let places = {
            let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
            if MAX_REMEMBERED_HOSTS <= places.len() {
                places.retain(|_, semaphore| 1 < Arc::strong_count(semaphore));
            }
            let most = self.0.options.max_connections.max(1);
            let places = places.entry(key);
            Arc::clone(places.or_insert_with(|| Arc::new(Semaphore::new(most))))
        };
        let place = places.acquire_owned().await;
        place.expect("nobody closes the semaphore")
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}

/// Reads a body to its end or to the bound. Chunks are copied, so that many small ones take no more
/// memory than they have bytes.
async fn whole(response: Response<Incoming>, max_bytes: usize) -> Result<Received, SendError> {
    let (parts, mut body) = response.into_parts();
    // hyper's own bound holds only for headers that do not arrive all at once.
    let headers = parts.headers.iter();
    let header_bytes: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len())
        .sum();
    if MAX_HEADER_BYTES < header_bytes {
        return Err(SendError::LongHeaders);
    }
    let announced = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|length| (max_bytes as u64) < length)
        && !hyper::body::Body::is_end_stream(&body)
    {
        return Err(SendError::TooLarge(max_bytes));
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| SendError::Broken(error.into()))?;
        if let Some(data) = frame.data_ref() {
            if max_bytes - bytes.len() < data.len() {
                return Err(SendError::TooLarge(max_bytes));
            }
            bytes.extend_from_slice(data);
        }
    }
    Ok(Received {
        status: parts.status,
        headers: parts.headers,
        body: bytes.freeze(),
    })
}

fn send_error(error: legacy::Error) -> SendError {
    let is_connect = error.is_connect();
    let mut cause: Option<&(dyn Error + 'static)> = error.source();
    while let Some(inner) = cause {
        if let Some(ConnectError::Private { host, address }) = inner.downcast_ref() {
            return SendError::Forbidden(ConnectError::Private {
                host: host.clone(),
                address: *address,
            });
        }
        cause = inner.source();
    }
    match is_connect {
        true => SendError::Unreachable(error.into()),
        false => SendError::Broken(error.into()),
    }
}

/// The system's authorities and the configured ones; TLS 1.2 and 1.3.
fn tls(authorities: &[u8]) -> Result<ClientConfig, ClientError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "certificate authorities of the system cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    if !authorities.is_empty() {
        let mut added = 0;
        for certificate in CertificateDer::pem_slice_iter(authorities) {
            let certificate =
                certificate.map_err(|error| ClientError::Authorities(error.to_string().into()))?;
            roots
                .add(certificate)
                .map_err(|error| ClientError::Authorities(error.into()))?;
            added += 1;
        }
        if added == 0 {
            return Err(ClientError::NoAuthorities);
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(ClientError::Tls)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
