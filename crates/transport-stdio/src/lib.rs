//! MCP over lines of byte streams.
