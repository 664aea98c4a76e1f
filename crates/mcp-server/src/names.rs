//! Names by which policies and the ledger know what is on offer, and who calls it.

use governance::Caller;
use mcp_service::Principal;

/// Member of `_meta` that names the upstream of a tool, prompt or resource, and its own name there.
pub const UPSTREAM_META: &str = "io.owlclaw/upstream";

/// Name of a tool in policies and the ledger.
pub fn tool_capability(name: &str) -> String {
    format!("tool/{name}")
}

/// Name of a resource in policies and the ledger.
pub fn resource_capability(uri: &str) -> String {
    format!("resource/{uri}")
}

/// Name of a prompt in policies and the ledger.
pub fn prompt_capability(name: &str) -> String {
    format!("prompt/{name}")
}

/// A caller as policies know it: by name, and by the roles that are vouched for.
pub fn caller_of(principal: &Principal) -> Caller<'_> {
    Caller {
        principal: principal.as_str(),
        roles: principal.roles(),
    }
}
