//! Names by which policies and the ledger know what is on offer, and who calls it.

use governance::Caller;
use mcp_service::Principal;

/// How policies and the ledger name a tool.
pub fn tool_capability(name: &str) -> String {
    format!("tool/{name}")
}

/// How policies and the ledger name a resource.
pub fn resource_capability(uri: &str) -> String {
    format!("resource/{uri}")
}

/// How policies and the ledger name a prompt.
pub fn prompt_capability(name: &str) -> String {
    format!("prompt/{name}")
}

/// How policies know who is calling: by name, and by the roles that are vouched for.
pub fn caller_of(principal: &Principal) -> Caller<'_> {
    Caller {
        principal: principal.as_str(),
        roles: principal.roles(),
    }
}
