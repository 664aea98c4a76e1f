//! Options and bounds of the HTTP server.

use crate::{
    peer::{forwarded::ForwardedHeader, network::Network},
    seams::{
        authenticate::{Authenticate, ClientIdOrAddress},
        header_params::HeaderParams,
        persistence::PersistSessions,
        side_routes::SideRoutes,
        upgrade::Upgrade,
    },
    tls::Tls,
};
use http::{HeaderName, Method};
use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

/// Options of an endpoint.
#[derive(Clone)]
pub struct HttpOptions {
    /// Path of the endpoint; every other path belongs to [`HttpOptions::side_routes`].
    pub path: String,
    /// Paths at which the stream of the old transport, HTTP with SSE of 2024-11-05, is opened; none
    /// without any. A path that is [`HttpOptions::path`] is not used.
    pub old_sse_paths: Vec<String>,
    /// Path to which the clients of that transport are told to post their messages.
    pub old_sse_messages_path: String,
    /// Origins whose pages may call us from a browser, as `scheme://host[:port]`; `*` stands for
    /// all of them. Loopback origins are allowed besides while the listener is bound to loopback.
    pub allowed_origins: Vec<String>,
    /// Names we may be called by, without ports. Loopback names are allowed besides while the
    /// listener is bound to loopback; if it is not and this is empty, every name is.
    pub allowed_hosts: Vec<String>,
    /// True to answer browsers about cross-origin calls. Without it pages that are allowed to call
    /// still may, and none can read an answer.
    pub cors: bool,
    /// Methods that a page may use; the endpoint has `GET`, `POST`, `DELETE` and `OPTIONS`.
    pub cors_allowed_methods: Vec<Method>,
    /// Request headers that a page may send, besides those of MCP itself.
    pub cors_allowed_headers: Vec<HeaderName>,
    /// Time for which a browser may remember that it may call us.
    pub cors_max_age: Duration,
    /// True to serve legacy requests without `Mcp-Session-Id`, each by itself (decision D14);
    /// otherwise they are answered with 400.
    pub allow_sessionless: bool,
    /// After how long without an event a comment is sent on a stream, so that no proxy takes it for
    /// dead.
    pub keep_alive: Duration,
    /// Time after which a client that lost a stream is to return for the rest of it.
    pub retry: Duration,
    /// Time that a request of a legacy session waits for its answer before its response begins
    /// without one, as a stream: from then on its client has an event to come back after, should it
    /// lose the connection. A faster answer is sent as JSON, as before; with zero, only an
    /// immediate answer is. Only for clients that know of streams that begin so, those of
    /// 2025-11-25.
    pub begin_stream_after: Duration,
    /// Time that requests in flight may take to end once the server is to stop.
    pub drain: Duration,
    /// Limits of what is accepted.
    pub limits: HttpLimits,
    /// Certificates, for what is not a Unix socket; in plain text without.
    pub tls: Option<Arc<Tls>>,
    /// Time for which browsers that came by TLS are told to use TLS alone; `None` sends no such
    /// header.
    pub strict_transport_security: Option<Duration>,
    /// Proxies that are trusted to name the client a request comes from, so that clients are told
    /// apart. Their connections are not counted as those of one address.
    pub trusted_proxies: Vec<Network>,
    /// True to trust every peer on the Unix socket in the same way.
    pub trust_unix_socket: bool,
    /// Header in which those proxies name the client.
    pub forwarded_header: ForwardedHeader,
    /// Headers of requests that handlers are told ([`Principal::with_headers`](mcp_service::Principal::with_headers)).
    pub pass_headers: Vec<HeaderName>,
    /// Says who is calling.
    pub authenticate: Arc<dyn Authenticate>,
    /// Answers what is not MCP.
    pub side_routes: Option<Arc<dyn SideRoutes>>,
    /// Another protocol, on connections that ask for it.
    pub upgrade: Option<Arc<dyn Upgrade>>,
    /// Compares the `Mcp-Param-*` headers of a call with its arguments.
    pub header_params: Option<Arc<dyn HeaderParams>>,
    /// Keeps legacy sessions for the next process; without it they end with this one.
    pub keep_sessions: Option<Arc<dyn PersistSessions>>,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            path: "/mcp".to_owned(),
            old_sse_paths: vec!["/mcp/sse".to_owned(), "/sse".to_owned()],
            old_sse_messages_path: "/mcp/messages".to_owned(),
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            cors: true,
            cors_allowed_methods: vec![Method::GET, Method::POST, Method::DELETE, Method::OPTIONS],
            cors_allowed_headers: Vec::new(),
            cors_max_age: Duration::from_secs(600),
            allow_sessionless: true,
            keep_alive: Duration::from_secs(15),
            retry: Duration::from_secs(1),
            begin_stream_after: Duration::from_secs(1),
            drain: Duration::from_secs(5),
            limits: HttpLimits::default(),
            tls: None,
            strict_transport_security: None,
            trusted_proxies: Vec::new(),
            trust_unix_socket: false,
            forwarded_header: ForwardedHeader::default(),
            pass_headers: Vec::new(),
            authenticate: Arc::new(ClientIdOrAddress),
            side_routes: None,
            upgrade: None,
            header_params: None,
            keep_sessions: None,
        }
    }
}

impl HttpOptions {
    /// Returns true if the peer at `address`, or at the other end of a Unix socket, may speak for
    /// others.
    pub(crate) fn trusts(&self, address: Option<IpAddr>) -> bool {
        match address {
            Some(address) => {
                let mut trusted = self.trusted_proxies.iter();
                trusted.any(|network| network.contains(address))
            }
            None => self.trust_unix_socket,
        }
    }
}

impl fmt::Debug for HttpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpOptions")
            .field("path", &self.path)
            .field("old_sse_paths", &self.old_sse_paths)
            .field("old_sse_messages_path", &self.old_sse_messages_path)
            .field("allowed_origins", &self.allowed_origins)
            .field("allowed_hosts", &self.allowed_hosts)
            .field("allow_sessionless", &self.allow_sessionless)
            .field("keep_alive", &self.keep_alive)
            .field("retry", &self.retry)
            .field("begin_stream_after", &self.begin_stream_after)
            .field("drain", &self.drain)
            .field("limits", &self.limits)
            .field("tls", &self.tls)
            .field("trusted_proxies", &self.trusted_proxies)
            .finish_non_exhaustive()
    }
}

/// Limits of what is accepted. Requests in flight and open subscriptions are the engine's to bound.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// Connections; one more is answered with 503 and closed.
    pub max_connections: usize,
    /// Connections of one address, or of one network of 64 bits in IPv6. Those of trusted proxies do
    /// not count, nor do those on a Unix socket.
    pub max_connections_per_address: usize,
    /// Handshakes of TLS that have not ended, of which one address can have half; with one more
    /// the connection ends.
    pub max_handshakes: usize,
    /// Time that such a handshake may take.
    pub handshake_timeout: Duration,
    /// Requests at once on one connection of HTTP/2, streams included.
    pub max_streams_per_connection: u32,
    /// Frames per second that carry nothing, on one connection of HTTP/2 in the long run, and ten times
    /// as many at once: SETTINGS, PING, RST_STREAM, which counts twice, DATA of fewer than 32 bytes, and
    /// whatever else is neither a request nor its body. A request makes up for two of them, and so do 64
    /// bytes that are sent to the client. One that sends more is hung up on.
    pub max_control_frames_per_second: u32,
    /// Bytes of a request's head; a longer one is answered with 431.
    pub max_header_bytes: usize,
    /// Bytes of a request's body; a longer one is answered with 413 before it is read. The engine's
    /// bound on frames applies besides.
    pub max_body_bytes: usize,
    /// Bytes of all bodies that have begun to come and not ended, of which one connection can have a
    /// quarter, or one body if that is more; a request that needs more is answered with 503.
    pub max_unfinished_body_bytes: usize,
    /// Time that a connection may take to deliver the head of a request, the idle time before it
    /// included. Checked in intervals of this length, so that a connection in use may take up to
    /// twice as long; its first request may not.
    pub header_timeout: Duration,
    /// Time that the body of a request may take.
    pub body_timeout: Duration,
    /// Time for which a connection may take nothing of what is written to it; then it ends, and
    /// with it the requests that hanging up cancels. A connection that takes little at a time is
    /// not meant, but counts as taking only when the system has room for more.
    pub write_timeout: Duration,
    /// Legacy sessions.
    pub max_sessions: usize,
    /// Legacy sessions of one principal.
    pub max_sessions_per_principal: usize,
    /// Time for which a legacy session may be neither used nor streamed before it ends.
    pub session_idle: Duration,
    /// Bytes of messages that wait for a legacy client to open its stream.
    pub max_session_queue_bytes: usize,
    /// Bytes that wait on a stream of the old transport, beyond which the next answer is one too
    /// many: answers must not be left out, so the session ends.
    pub max_unread_answer_bytes: usize,
    /// Events of a legacy session that are kept for a client that lost a stream. With 0 in this or
    /// the next two nothing is kept, and no stream is resumed.
    pub max_session_replay_events: usize,
    /// Bytes of those. A message longer than that is not kept, not even an answer.
    pub max_session_replay_bytes: usize,
    /// Bytes of the events that are kept in all legacy sessions together.
    pub max_replay_bytes: usize,
    /// Bytes of notifications about one request that wait to be sent.
    pub max_request_queue_bytes: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            max_connections_per_address: 1_024,
            max_handshakes: 1_024,
            handshake_timeout: Duration::from_secs(10),
            max_streams_per_connection: 128,
            max_control_frames_per_second: 100,
            max_header_bytes: 32 * 1024,
            max_body_bytes: 4 * 1024 * 1024,
            max_unfinished_body_bytes: 256 * 1024 * 1024,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            max_sessions: 10_000,
            max_sessions_per_principal: 1_000,
            session_idle: Duration::from_secs(30 * 60),
            max_session_queue_bytes: 64 * 1024,
            max_unread_answer_bytes: 4 * 1024 * 1024,
            max_session_replay_events: 256,
            max_session_replay_bytes: 1024 * 1024,
            max_replay_bytes: 64 * 1024 * 1024,
            max_request_queue_bytes: 256 * 1024,
        }
    }
}
