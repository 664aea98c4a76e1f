//! Comparison of `Mcp-Param-*` headers with arguments.

use http::HeaderMap;
use jsonrpc_core::RawJson;
use mcp_service::Principal;

/// Compares the `Mcp-Param-*` headers of a `tools/call` with its arguments (2026-07-28,
/// basic/transports). Which arguments are mirrored is known from the tool's schema, which is not
/// known here.
pub trait HeaderParams: Send + Sync + 'static {
    /// Compares. A tool that `principal` may not see is to be passed, as one that does not exist:
    /// the call will say so.
    ///
    /// # Errors
    ///
    /// Which header is missing or says something else, for people.
    fn check(
        &self,
        principal: &Principal,
        tool: &str,
        params: &RawJson,
        headers: &HeaderMap,
    ) -> Result<(), String>;
}
