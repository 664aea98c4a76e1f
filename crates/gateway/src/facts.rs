use adapter_skills::{OwlclawBlock, RiskLevel, SkillCatalog, ToolHints};
use governance::{Caller, CapabilityFacts, Confirmation, RateLimits, Risk, TimeWindows};
use mcp_service::Principal;
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

/// How policies know who is calling: by name, and by the roles that are vouched for.
pub fn caller_of(principal: &Principal) -> Caller<'_> {
    Caller {
        principal: principal.as_str(),
        roles: principal.roles(),
    }
}

/// What `SKILL.md` documents say about the tools of the same name. What an operator has configured
/// wins over it.
///
/// | in the document | here |
/// |---|---|
/// | `estimated_cost`, `max_daily_calls`, `cooldown_seconds` | the same |
/// | `trading_hours_only` | `trading_hours` |
/// | `requires_confirmation`, or a `risk_level` of `critical` | its user has to confirm each call |
/// | `read_only: true` | it is read-only, unless it is `destructive` |
/// | `read_only: false`, `destructive: true` | it changes something |
/// | `open_world: true` | it reaches other people's systems |
///
/// A hint that is not given says nothing: what may or may not change something is not known to.
pub fn capability_facts(
    skills: &SkillCatalog,
    trading_hours: &TimeWindows,
) -> BTreeMap<String, CapabilityFacts> {
    let facts = skills.iter().filter_map(|skill| {
        let facts = facts_of(&skill.frontmatter().owlclaw, trading_hours);
        (facts != CapabilityFacts::default()).then(|| (tool_capability(skill.name()), facts))
    });
    facts.collect()
}

fn facts_of(block: &OwlclawBlock, trading_hours: &TimeWindows) -> CapabilityFacts {
    let constraints = &block.constraints;
    CapabilityFacts {
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
        risk: risk_of(block.hints),
        confirmation: (block.requires_confirmation || block.risk_level == RiskLevel::Critical)
            .then_some(Confirmation::User),
        cooldown: constraints.cooldown,
        windows: constraints
            .trading_hours_only
            .then(|| trading_hours.clone()),
        ..CapabilityFacts::default()
    }
}

/// Whoever says both that nothing is changed and that something may be lost is taken at the worse.
fn risk_of(hints: ToolHints) -> Risk {
    let destructive = hints.destructive == Some(true);
    Risk {
        read_only: hints.read_only == Some(true) && !destructive,
        mutating: hints.read_only == Some(false) || destructive,
        external: hints.open_world == Some(true),
        financial: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use adapter_skills::ScanOptions;
    use governance::Micros;
    use std::time::Duration;

    fn facts(block: &str) -> CapabilityFacts {
        let directory = tempfile::tempdir().unwrap();
        let skill = directory.path().join("shop/refund");
        std::fs::create_dir_all(&skill).unwrap();
        let text =
            format!("---\nname: refund\ndescription: Refunds.\nowlclaw: {block}\n---\n# How\n");
        std::fs::write(skill.join("SKILL.md"), text).unwrap();
        let (catalog, _) = SkillCatalog::scan(&ScanOptions::new(directory.path()));
        let mut facts = capability_facts(&catalog, &TimeWindows::trading_hours());
        facts.remove("tool/refund").unwrap_or_default()
    }

    #[test]
    fn a_skill_is_governed_as_it_says() {
        let all = facts(
            "{requires_confirmation: true, read_only: false, open_world: true, constraints: \
             {estimated_cost: 0.05, max_daily_calls: 7, cooldown_seconds: 30, trading_hours_only: true}}",
        );
        let expected = CapabilityFacts {
            estimated_cost: Some(Micros(50_000)),
            limits: RateLimits {
                per_minute: None,
                per_day: Some(7),
            },
            risk: Risk {
                mutating: true,
                external: true,
                ..Risk::default()
            },
            confirmation: Some(Confirmation::User),
            cooldown: Some(Duration::from_secs(30)),
            windows: Some(TimeWindows::trading_hours()),
            ..CapabilityFacts::default()
        };
        assert_eq!(all, expected);
        assert_eq!(facts("{risk_level: low}"), CapabilityFacts::default());
    }

    #[test]
    fn risk_follows_from_hints_and_is_not_guessed() {
        let read_only = Risk {
            read_only: true,
            ..Risk::default()
        };
        let mutating = Risk {
            mutating: true,
            ..Risk::default()
        };
        let rows = [
            ("{read_only: true}", read_only),
            ("{read_only: false}", mutating),
            ("{read_only: true, destructive: true}", mutating),
            ("{destructive: true}", mutating),
            ("{destructive: false}", Risk::default()),
            ("{open_world: false}", Risk::default()),
        ];
        for (block, risk) in rows {
            assert_eq!(facts(block).risk, risk, "{block}");
        }
    }

    #[test]
    fn what_is_critical_or_unreadable_is_confirmed() {
        let user = Some(Confirmation::User);
        let rows = [
            ("{risk_level: high}", user),
            ("{risk_level: high, requires_confirmation: false}", None),
            ("{risk_level: critical, requires_confirmation: false}", user),
            ("{risk_level: hihg}", user),
            ("{risk_level: medium}", None),
        ];
        for (block, confirmation) in rows {
            assert_eq!(facts(block).confirmation, confirmation, "{block}");
        }
    }
}
