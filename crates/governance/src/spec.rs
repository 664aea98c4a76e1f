use crate::{Calendar, Micros};
use std::collections::BTreeMap;

/// What is asked for: running something or reading something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A tool call.
    Tool,
    /// A resource read.
    Resource,
}

/// A policy as it was configured: plain data, not yet checked.
#[derive(Clone, Debug, Default)]
pub struct PolicySpec {
    /// Names this policy in the ledger. The builder raises it with every change.
    pub version: u64,
    /// The rules for principals that have none of their own, unknown ones included.
    pub default: Rules,
    /// The rules of particular principals. They replace the default ones altogether.
    pub principals: BTreeMap<String, Rules>,
    /// What is known of capabilities, by name: `tool/transfer`.
    pub capabilities: BTreeMap<String, CapabilityFacts>,
    /// What a tool call is expected to cost when nothing else says so.
    pub default_estimated_cost: Micros,
    /// Where months begin.
    pub calendar: Calendar,
}

/// What a principal may see and use, and how much of it.
///
/// The default shows and allows everything without a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Patterns of capabilities that exist for this principal: `tool/*`, `tool/*.read`, `*`.
    pub visible: Vec<String>,
    /// Patterns of capabilities that do not exist for it. They win over `visible`.
    pub hidden: Vec<String>,
    /// Patterns of capabilities it may use. A visible one that it may not use is refused openly.
    pub allow: Vec<String>,
    /// Patterns of capabilities it may not use. They win over `allow`.
    pub deny: Vec<String>,
    /// The limits on its tool calls.
    pub quota: Quota,
    /// The limits on its resource reads, counted apart from tool calls.
    pub reads: RateLimits,
}

/// How much a principal may use. `None` means without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Quota {
    /// The most it may spend in a calendar month.
    pub monthly_budget: Option<Micros>,
    /// The most tool calls in any 60 seconds.
    pub max_calls_per_minute: Option<u32>,
    /// The most tool calls in any 24 hours.
    pub max_calls_per_day: Option<u32>,
    /// The most that one call may be expected to cost.
    pub max_cost_per_call: Option<Micros>,
}

/// How often something may be done. `None` means without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RateLimits {
    /// The most in any 60 seconds.
    pub per_minute: Option<u32>,
    /// The most in any 24 hours.
    pub per_day: Option<u32>,
}

/// What is known of one capability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilityFacts {
    /// What one use is expected to cost; `None` means the policy's default for tools, and nothing
    /// for resources.
    pub estimated_cost: Option<Micros>,
    /// How often each principal may use this one, besides its limits on all of them.
    pub limits: RateLimits,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            visible: vec!["*".to_owned()],
            hidden: Vec::new(),
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            quota: Quota::default(),
            reads: RateLimits::default(),
        }
    }
}

impl RateLimits {
    /// Whether there is no limit at all.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.per_minute.is_none() && self.per_day.is_none()
    }
}
