//! MCP over Streamable HTTP, both eras on one endpoint.
