use crate::{Era, Method, ProtocolVersion, model::ClientRequest};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::borrow::Cow;

/// The HTTP headers that repeat what `request` says, as names and values (2026-07-28,
/// basic/transports): its server refuses it without them. Legacy sessions have one of them since
/// 2025-06-18, from the answer to `initialize` on.
///
/// Those that repeat a tool's arguments (`Mcp-Param-*`) depend on its schema and are not among them.
pub fn mirrored_headers(
    version: ProtocolVersion,
    request: &ClientRequest,
) -> Vec<(&'static str, Cow<'_, str>)> {
    let mut headers = Vec::new();
    let modern = version.era() == Era::Modern;
    let opens = matches!(request, ClientRequest::Initialize(_));
    if modern || (ProtocolVersion::V2025_06_18 <= version && !opens) {
        headers.push(("MCP-Protocol-Version", Cow::Borrowed(version.as_str())));
    }
    if modern {
        let method = Method::of(request).name();
        headers.push(("Mcp-Method", Cow::Borrowed(method)));
        if let Some(name) = name_of(request) {
            headers.push(("Mcp-Name", header_value(name)));
        }
    }
    headers
}

/// Value of `Mcp-Name` for a request.
fn name_of(request: &ClientRequest) -> Option<&str> {
    match request {
        ClientRequest::CallTool(call) => Some(&call.name),
        ClientRequest::GetPrompt(get) => Some(&get.name),
        ClientRequest::ReadResource(read) => Some(&read.uri),
        ClientRequest::GetTask(id) | ClientRequest::CancelTask(id) => Some(id),
        ClientRequest::UpdateTask(update) => Some(&update.id),
        _ => None,
    }
}

const SENTINEL: (&str, &str) = ("=?base64?", "?=");

/// `text` as the value of a mirrored header: as it is, unless a header could not hold it, or its
/// reader would take it for something else.
pub fn header_value(text: &str) -> Cow<'_, str> {
    let (before, after) = SENTINEL;
    let fits = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let trimmed = text.trim_matches([' ', '\t']).len() < text.len();
    let looks_encoded = text.starts_with(before) && text.ends_with(after);
    if fits && !trimmed && !looks_encoded {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{before}{}{after}", STANDARD.encode(text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{CallTool, Page};

    #[test]
    fn values_are_encoded_where_a_header_cannot_hold_them() {
        for (text, value) in [
            ("add", "add"),
            ("", ""),
            ("a b\tc", "a b\tc"),
            ("größe", "=?base64?Z3LDtsOfZQ==?="),
            (" a", "=?base64?IGE=?="),
            ("a\t", "=?base64?YQk=?="),
            ("a\nb", "=?base64?YQpi?="),
            ("\u{7f}", "=?base64?fw==?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
            ("=?base64?", "=?base64?"),
            ("x?=", "x?="),
        ] {
            assert_eq!(header_value(text), value, "{text:?}");
        }
    }

    #[test]
    fn each_revision_has_its_headers() {
        let call = ClientRequest::CallTool(CallTool {
            name: "größe".to_owned(),
            ..CallTool::default()
        });
        let list = ClientRequest::ListTools(Page::default());
        let open = ClientRequest::Initialize(Box::default());
        let names = |version, request| -> Vec<_> {
            mirrored_headers(version, request)
                .into_iter()
                .map(|(name, value)| format!("{name}: {value}"))
                .collect()
        };
        assert_eq!(
            names(ProtocolVersion::V2026_07_28, &call),
            [
                "MCP-Protocol-Version: 2026-07-28",
                "Mcp-Method: tools/call",
                "Mcp-Name: =?base64?Z3LDtsOfZQ==?=",
            ]
        );
        assert_eq!(
            names(ProtocolVersion::V2026_07_28, &list),
            ["MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list"]
        );
        let version = ["MCP-Protocol-Version: 2025-06-18"];
        assert_eq!(names(ProtocolVersion::V2025_06_18, &call), version);
        assert!(names(ProtocolVersion::V2025_06_18, &open).is_empty());
        assert!(names(ProtocolVersion::V2025_03_26, &call).is_empty());
    }
}
