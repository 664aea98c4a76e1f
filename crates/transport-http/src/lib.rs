//! MCP over Streamable HTTP, both eras on one endpoint, and beside it over HTTP with SSE, the
//! transport of 2024-11-05.
//!
//! Built directly on hyper, for one `current_thread` runtime per core. A request is handled inside
//! of its connection's own task, without a task or a channel of its own: it is answered as JSON if
//! its answer comes first, and as a stream of events if it has something to say before. From then on
//! it has a task, since a connection asks nothing of a stream while its client does not read. When
//! the client hangs up the request is dropped, which is its cancellation in the modern era; in the
//! legacy era it is carried on, as those revisions want it.
//!
//! It may be reached by strangers: over TLS, with certificates of clients where they have some
//! ([`Tls`]), and by HTTP/2, whose requests do have tasks of their own. Behind proxies that are
//! trusted it knows their clients. Everything that somebody can have many of has a bound
//! ([`HttpLimits`]).
//!
//! Authentication and everything that is not MCP are seams: [`Authenticate`], [`SideRoutes`],
//! [`Upgrade`].
//!
//! ```
//! use mcp_protocol::model::{
//!     CallToolResult, ClientRequest, Content, Implementation, ServerCapabilities, ServerResult,
//! };
//! use mcp_service::{Engine, EngineLimits, McpError, RequestCx, ServerIdentity, Service};
//! use transport_http::{HttpOptions, serve_on_threads};
//!
//! struct Greeter;
//!
//! impl Service<ClientRequest> for Greeter {
//!     type Response = ServerResult;
//!     type Error = McpError;
//!
//!     async fn call(&self, _: &RequestCx, _: ClientRequest) -> Result<ServerResult, McpError> {
//!         Ok(ServerResult::CallTool(CallToolResult {
//!             content: vec![Content::text("hello")],
//!             ..CallToolResult::default()
//!         }))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let identity = ServerIdentity {
//!     info: Implementation { name: "greeter".into(), version: "1".into(), ..Implementation::default() },
//!     capabilities: ServerCapabilities { tools: true, ..ServerCapabilities::default() },
//!     instructions: None,
//!     discover_ttl_ms: 60_000,
//! };
//! let engine = Engine::new(Greeter, identity, EngineLimits::default());
//! let threads = std::num::NonZeroUsize::MIN;
//! let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
//! let server = serve_on_threads(engine, HttpOptions::default(), address, threads)?;
//! assert_ne!(server.address().port(), 0);
//! server.stop();
//! server.stopped().await;
//! # Ok(())
//! # }
//! ```

mod connection;
mod endpoint;
mod error_response;
mod headers;
mod limits;
mod listen;
mod old_sse;
mod options;
mod peer;
mod request;
mod response;
mod seams;
mod server;
mod session;
mod socket;
mod tls;

pub use crate::{
    error_response::{PlainResponse, refusal, refusal_with},
    limits::stats::HttpStats,
    listen::{Listen, StartError, UnixSocket},
    options::{HttpLimits, HttpOptions},
    peer::{
        Peer,
        forwarded::ForwardedHeader,
        network::{Network, ParseNetworkError},
    },
    seams::{
        authenticate::{Authenticate, Authenticated, Authentication, ClientIdOrAddress},
        header_params::HeaderParams,
        persistence::{
            PersistSessions, PersistedSession, SessionFollower, ShareSessions, TakingUp,
            Unavailable,
        },
        side_routes::{SideBody, SideRequest, SideResponse, SideRoutes, side},
        upgrade::{Serving, Stopping, Upgrade, UpgradeRequest, Upgraded, UpgradedSocket},
    },
    server::{
        HttpServer,
        routes_alone::{NoEndpoint, serve_routes},
        serve,
        threads::{RunningServer, serve_on_threads},
    },
    session::sessions::{SessionDesk, SessionOverview, SessionRow},
    tls::{Tls, TlsError, TlsFiles},
};
