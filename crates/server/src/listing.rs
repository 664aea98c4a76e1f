//! Tools and resources as lists show them.

use governance::Micros;
pub use mcp_server::estimated_tokens;
use serde::Serialize;

/// A tool on offer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ToolRow {
    /// Name of the tool.
    pub name: String,
    /// Name of the handler or skill, if it is not the tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Reason why all calls of the tool are refused, if they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<String>,
    /// Kind of its source: `native`, `python`, `command`, `http`, …
    pub kind: String,
    /// All of its description.
    pub description: String,
    /// `low`, `medium`, `high` or `critical`, or else the classes of the rules: `read_only`, `mutating`, `external`, `financial`.
    pub risk: Option<String>,
    /// True if a person has to agree to each call, whatever its arguments are.
    pub requires_confirmation: bool,
    /// Person who confirms, by the rules in force: `user` or `operator`.
    pub confirmation: Option<String>,
    /// Expected cost of a call, in the configured currency.
    pub estimated_cost: Option<Micros>,
    /// Calls in any 60 seconds.
    pub max_calls_per_minute: Option<u32>,
    /// Calls in any 24 hours.
    pub max_calls_per_day: Option<u32>,
    /// A longer call is ended.
    pub timeout_seconds: u64,
    /// About how many tokens it takes of a model's context: its name, its description with what it
    /// has of its skill, and its arguments. Models differ; what clients add is not in it.
    pub estimated_tokens: usize,
    /// The JSON Schema of its arguments.
    pub input_schema: serde_json::Value,
}

/// A view of the tools on offer, as clients are listed them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewRow {
    /// `direct` or `search`.
    pub view: &'static str,
    /// Number of tools that are listed.
    pub tools: usize,
    /// About how many tokens of a model's context they take.
    pub estimated_tokens: usize,
    /// True if the client that was asked about has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_force: Option<bool>,
}

/// A resource on offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceRow {
    /// Address of the resource.
    pub uri: String,
    /// Name of the resource.
    pub name: String,
    /// All of its description.
    pub description: String,
    /// Media type.
    pub mime_type: String,
    /// Length in bytes, where that is known.
    pub size: Option<u64>,
    /// Time of its last change, in RFC 3339.
    pub last_modified: String,
    /// Tags.
    pub tags: Vec<String>,
}

/// Filter for resources to list. An absent member does not restrict.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceFilter {
    /// The category, as in the address.
    pub category: Option<String>,
    /// One of the tags.
    pub tag: Option<String>,
}
