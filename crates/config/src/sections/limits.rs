//! Limits of what clients can take of the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of what clients can take of the server at once, and of the time they may take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Connections; one more is answered with 503.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections: usize,
    /// Connections of one address, or of one network of 64 bits in IPv6. Those of trusted proxies and
    /// on the Unix socket do not count.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_connections_per_address: usize,
    /// TLS handshakes that have not ended; one address can have half of them.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_handshakes: usize,
    /// Seconds that a TLS handshake may take.
    #[schemars(range(min = 1, max = 600))]
    pub handshake_seconds: u64,
    /// Requests and streams at once on one connection of HTTP/2.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_streams_per_connection: u32,
    /// Frames per second that carry nothing, such as pings, on one connection of HTTP/2 or one
    /// WebSocket in the long run, and ten times as many at once. A client that sends more is hung up
    /// on.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_control_frames_per_second: u32,
    /// The longest head of a request, in bytes; a longer one is answered with 431.
    #[schemars(range(min = 4096, max = 1_048_576))]
    pub max_header_bytes: usize,
    /// Bytes of all bodies that have begun to come and not ended; one connection can have a quarter of
    /// it. One message of `http.max_body_bytes` is let in whatever this is, and a request beyond it is
    /// answered with 503.
    #[schemars(range(min = 65_536, max = 1_099_511_627_776_u64))]
    pub max_unfinished_body_bytes: usize,
    /// Seconds that the head of a request may take, the idle time before it included.
    #[schemars(range(min = 1, max = 3_600))]
    pub header_seconds: u64,
    /// Seconds that the body of a request may take.
    #[schemars(range(min = 1, max = 3_600))]
    pub body_seconds: u64,
    /// Seconds for which a client may read nothing of what is written to it.
    #[schemars(range(min = 1, max = 3_600))]
    pub write_seconds: u64,
    /// After how long without an event a comment is sent on a stream, so that no proxy takes it for
    /// dead.
    #[schemars(range(min = 1, max = 3_600))]
    pub stream_keep_alive_seconds: u64,
    /// Handshake sessions of one client.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_sessions_per_client: usize,
    /// Requests that are handled at once, on stdio too. A quarter of the places is kept for clients
    /// that have few.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests: usize,
    /// Requests that wait for one of those places; further ones are refused.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_requests_waiting: usize,
    /// Reserved places that one client can have.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_kept_requests_per_client: usize,
    /// Subscriptions, each of which may be a stream.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_subscriptions: usize,
    /// Subscriptions of one client.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_subscriptions_per_client: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_connections: 16_384,
            max_connections_per_address: 1_024,
            max_handshakes: 1_024,
            handshake_seconds: 10,
            max_streams_per_connection: 128,
            max_control_frames_per_second: 100,
            max_header_bytes: 32 * 1024,
            max_unfinished_body_bytes: 256 * 1024 * 1024,
            header_seconds: 30,
            body_seconds: 30,
            write_seconds: 60,
            stream_keep_alive_seconds: 15,
            max_sessions_per_client: 1_000,
            max_requests: 1_024,
            max_requests_waiting: 4_096,
            max_kept_requests_per_client: 16,
            max_subscriptions: 20_000,
            max_subscriptions_per_client: 10_000,
        }
    }
}
