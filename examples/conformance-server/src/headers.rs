//! Arguments that are repeated in HTTP headers: `x-mcp-header` in a schema says which.

use adapter_tools::{Tool, ToolError};
use governance::MemoryQuota;
use http::{HeaderMap, HeaderValue};
use jsonrpc_core::RawJson;
use mcp_server::McpServer;
use mcp_service::Principal;
use schemars::JsonSchema;
use serde::Deserialize;
use std::sync::Arc;
use transport_http::HeaderParams;

#[derive(Deserialize, JsonSchema)]
struct Mirrored {
    /// Sent in `Mcp-Param-Value` as well.
    #[serde(default)]
    #[schemars(extend("x-mcp-header" = "Value"))]
    value: String,
}

pub(crate) fn tool() -> Tool {
    Tool::native(
        "test_custom_header",
        |_cx, arguments: Mirrored| async move {
            Ok::<_, ToolError>(format!("The value is {:?}.", arguments.value))
        },
    )
    .describe("Takes an argument that is repeated in a header.")
}

/// Compares the headers of a call with what the server knows of the tool.
pub(crate) struct Compared(pub(crate) Arc<McpServer<MemoryQuota>>);

impl HeaderParams for Compared {
    fn check(
        &self,
        principal: &Principal,
        tool: &str,
        params: &RawJson,
        headers: &HeaderMap,
    ) -> Result<(), String> {
        let values = |name: &str| {
            let values = headers.get_all(name).iter();
            values.map(HeaderValue::as_bytes).collect()
        };
        self.0
            .compare_headers(principal, tool, params, values)
            .map_err(|differs| differs.to_string())
    }
}
