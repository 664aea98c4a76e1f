//! A server of side routes alone.

use crate::{
    listen::{Listen, StartError},
    options::HttpOptions,
    seams::side_routes::SideRoutes,
    server::threads::{RunningServer, serve_on_threads},
};
use jsonrpc_core::ErrorCode;
use mcp_protocol::model::{ClientRequest, Implementation, ServerCapabilities, ServerResult};
use mcp_service::{Engine, EngineLimits, McpError, RequestCx, ServerIdentity, Service};
use std::{num::NonZeroUsize, sync::Arc};

/// Service that no request reaches, since the server has no endpoint.
#[derive(Debug)]
pub struct NoEndpoint;

impl Service<ClientRequest> for NoEndpoint {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, _: &RequestCx, _: ClientRequest) -> Result<ServerResult, McpError> {
        Err(McpError::new(
            ErrorCode::METHOD_NOT_FOUND,
            "there is no endpoint here",
        ))
    }
}

/// Serves `routes` without an endpoint of MCP: every path is theirs. What `options` say of the endpoint
/// has no effect; what they say of origins, hosts, TLS and limits has.
///
/// # Errors
///
/// [`StartError`], and nothing runs.
pub fn serve_routes(
    routes: Arc<dyn SideRoutes>,
    options: HttpOptions,
    listen: impl Into<Listen>,
) -> Result<RunningServer<NoEndpoint>, StartError> {
    let options = HttpOptions {
        // No path of a request is empty.
        path: String::new(),
        old_sse_paths: Vec::new(),
        side_routes: Some(routes),
        upgrade: None,
        ..options
    };
    let identity = ServerIdentity {
        info: Implementation::default(),
        capabilities: ServerCapabilities::default(),
        instructions: None,
        discover_ttl_ms: 0,
    };
    let engine = Engine::new(NoEndpoint, identity, EngineLimits::default());
    serve_on_threads(engine, options, listen, NonZeroUsize::MIN)
}
