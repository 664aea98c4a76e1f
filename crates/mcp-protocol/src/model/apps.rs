//! Apps, pages that hosts show beside a conversation (extension `io.modelcontextprotocol/ui`, SEP-1865).

/// Name of the extension, among the capabilities.
pub const APPS_EXTENSION: &str = "io.modelcontextprotocol/ui";
/// Media type of a page.
pub const APP_MEDIA_TYPE: &str = "text/html;profile=mcp-app";
/// Scheme of the addresses of pages.
pub const APP_SCHEME: &str = "ui://";
/// Member of the `_meta` of tools, resources and results that tells of a page.
pub const APP_META: &str = "ui";
/// Older member of the `_meta` of a tool, with the address of its page alone.
pub const APP_META_OLD: &str = "ui/resourceUri";
