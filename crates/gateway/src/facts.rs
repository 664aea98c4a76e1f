use adapter_skills::SkillCatalog;
use governance::{CapabilityFacts, RateLimits};
use std::collections::BTreeMap;

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

/// What `SKILL.md` documents say about the tools of the same name: `estimated_cost` and
/// `max_daily_calls` of their constraints. What an operator has configured wins over it.
pub fn capability_facts(skills: &SkillCatalog) -> BTreeMap<String, CapabilityFacts> {
    let facts = skills.iter().filter_map(|skill| {
        let constraints = &skill.frontmatter().owlclaw.constraints;
        let facts = CapabilityFacts {
            estimated_cost: constraints
                .estimated_cost
                .as_deref()
                .and_then(|cost| cost.parse().ok()),
            limits: RateLimits {
                per_minute: None,
                per_day: constraints
                    .max_daily_calls
                    .map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
            },
        };
        (facts != CapabilityFacts::default()).then(|| (tool_capability(skill.name()), facts))
    });
    facts.collect()
}
