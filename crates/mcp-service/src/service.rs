//! Services: asynchronous functions from requests to responses.

use crate::{context::RequestCx, error::McpError};
use mcp_protocol::model::{ClientRequest, ServerResult};

/// An asynchronous function from a request, in a context, to a response.
///
/// Unlike tower's, it takes `&self` and has no readiness: a transport must stay free to read a
/// cancellation while every handler is busy, so bounds live in the [`crate::engine::Engine`].
///
/// # Cancel safety
///
/// Dropping the future cancels the call, at any point where it waits. Implementations put whatever
/// must happen regardless into a `Drop`.
pub trait Service<Req>: Send + Sync {
    /// Response to a call.
    type Response;
    /// [`crate::error::McpError`] at the top; errors of the domain below it.
    type Error;

    /// Handles one request.
    fn call(
        &self,
        cx: &RequestCx,
        request: Req,
    ) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send;
}

impl<Req, S: Service<Req>> Service<Req> for std::sync::Arc<S> {
    type Response = S::Response;
    type Error = S::Error;

    fn call(
        &self,
        cx: &RequestCx,
        request: Req,
    ) -> impl Future<Output = Result<Self::Response, Self::Error>> + Send {
        S::call(self, cx, request)
    }
}

/// A service that answers MCP requests, by which an engine and its transports are made. Every
/// [`Service`] with these types is one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not answer MCP requests",
    note = "implement `Service<ClientRequest>` with `Response = ServerResult` and `Error = McpError`"
)]
pub trait McpService:
    Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static
{
}

impl<S> McpService for S where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static
{
}
