//! Media types by file name.

use std::path::Path;

/// The media type of every `SKILL.md`.
pub(crate) const MARKDOWN: &str = "text/markdown";

/// A type for a file of this name. What no table knows is `text/plain` if it is text, and
/// `application/octet-stream` if not.
#[must_use]
pub fn media_type(path: &Path, is_text: bool) -> &'static str {
    let extension = path.extension().and_then(|it| it.to_str());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "md" | "markdown" => MARKDOWN,
        "txt" | "log" => "text/plain",
        "py" => "text/x-python",
        "rs" => "text/x-rust",
        "sh" | "bash" => "text/x-shellscript",
        "js" | "mjs" => "text/javascript",
        "ts" => "text/x-typescript",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "xml" => "application/xml",
        "json" => "application/json",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "sql" => "application/sql",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "wasm" => "application/wasm",
        _ if is_text => "text/plain",
        _ => "application/octet-stream",
    }
}
