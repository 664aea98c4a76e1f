//! Rules of tools, as their skills and their own code state them.

use crate::names::tool_capability;
use adapter_skills::{BadField, Hold, OwlclawBlock, RiskLevel, Skill, SkillCatalog, ToolHints};
use adapter_tools::{RiskClass, Tool, ToolSet};
use governance::{CapabilityFacts, Confirmation, Micros, RateLimits, Risk, TimeWindows};

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

/// Treatment of calls of a tool whose skill cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BrokenSkill {
    /// Calls are refused.
    #[default]
    Refuse,
    /// An operator has to confirm each, besides what is still known of the tool.
    Confirm,
}

/// Statements of `SKILL.md` documents about tools: those of the same name, and those that they bind.
/// Settings of an operator take precedence.
///
/// | in the document | here |
/// |---|---|
/// | `estimated_cost`, `max_daily_calls`, `cooldown_seconds` | the same |
/// | `trading_hours_only` | `trading_hours` |
/// | `requires_confirmation`, or a `risk_level` of `critical` | its user has to confirm each call |
/// | `migration_weight: 0` | it is held back |
/// | `migration_weight` from 1 to 99 | an operator has to confirm each call |
/// | `read_only: true` | it is read-only, unless it is `destructive` |
/// | `read_only: false`, `destructive: true` | it changes something |
/// | `open_world: true` | it reaches other people's systems |
///
/// A hint that is not given says nothing: what may or may not change something is not known to.
/// Which tools a document holds back because it cannot be used is for [`hold_back`] to say.
pub fn capability_facts(
    skills: &SkillCatalog,
    tools: &ToolSet,
    trading_hours: &TimeWindows,
) -> BTreeMap<String, CapabilityFacts> {
    let offered = tools.iter().filter(|tool| tool.name() != tool.own_name());
    let offered: HashMap<_, _> = offered.map(|it| (it.own_name(), it.name())).collect();
    let facts = skills.rules().filter_map(|(tool, skill)| {
        let facts = facts_of(&skill.frontmatter().owlclaw, trading_hours);
        let name = offered.get(tool).copied().unwrap_or(tool);
        (facts != CapabilityFacts::default()).then(|| (tool_capability(name), facts))
    });
    let mut facts: BTreeMap<_, _> = facts.collect();
    for tool in tools.iter() {
        let of_tool = || tool_capability(tool.name());
        if let Some(cost) = tool.estimated_cost_micros() {
            facts.entry(of_tool()).or_default().estimated_cost = Some(Micros(cost));
        }
        if let Some(risk) = tool.risk() {
            facts.entry(of_tool()).or_default().risk = risk_of_class(risk);
        }
        if let Some(why) = tool.held() {
            facts.entry(of_tool()).or_default().held = Some(Arc::clone(why));
        }
        for rules in own_rules(tool) {
            let own = match rules {
                Ok(block) => facts_of(&block, trading_hours),
                Err(why) => CapabilityFacts {
                    held: Some(why.into()),
                    ..CapabilityFacts::default()
                },
            };
            let of_tool = facts.entry(of_tool()).or_default();
            *of_tool = stricter(std::mem::take(of_tool), own);
        }
    }
    facts
}

/// The rules that a tool's own code states, or what of them cannot be understood.
pub fn own_rules(tool: &Tool) -> impl Iterator<Item = Result<OwlclawBlock, String>> {
    tool.rules().iter().map(|rules| {
        let (block, complaints) = OwlclawBlock::of_rules(rules);
        match complaints.first() {
            None => Ok(block),
            Some(BadField {
                field, expected, ..
            }) => {
                let attribute = field.strip_prefix("owlclaw.").unwrap_or(field);
                Err(format!(
                    "its attribute `{attribute}` should be {expected}, and is a rule that would not hold"
                ))
            }
        }
    })
}

/// The highest risk that its skill or its own code states; `None` where neither says anything.
pub fn risk_level(tool: &Tool, skill: Option<&Skill>) -> Option<RiskLevel> {
    let of_skill = skill.map(|skill| skill.frontmatter().owlclaw.risk_level);
    let own = own_rules(tool).map(|rules| rules.map_or(RiskLevel::Critical, |it| it.risk_level));
    of_skill.into_iter().chain(own).max()
}

/// All that either forbids.
fn stricter(one: CapabilityFacts, own: CapabilityFacts) -> CapabilityFacts {
    let least = |one: Option<u32>, own: Option<u32>| one.into_iter().chain(own).min();
    CapabilityFacts {
        held: one.held.or(own.held),
        estimated_cost: one.estimated_cost.max(own.estimated_cost),
        limits: RateLimits {
            per_minute: least(one.limits.per_minute, own.limits.per_minute),
            per_day: least(one.limits.per_day, own.limits.per_day),
        },
        confirmation: one.confirmation.max(own.confirmation),
        cooldown: one.cooldown.max(own.cooldown),
        windows: one.windows.or(own.windows),
        ..one
    }
}

/// Holds back every tool whose skill cannot be used, whatever else `facts` say of it. To be called
/// last: nothing that is configured frees a tool of rules that cannot be read. `is_strict` is as in
/// [`held`].
pub fn hold_back(
    facts: &mut BTreeMap<String, CapabilityFacts>,
    skills: &SkillCatalog,
    tools: &ToolSet,
    broken: BrokenSkill,
    is_strict: bool,
) {
    for (tool, hold) in held(skills, tools, is_strict) {
        let facts = facts.entry(tool_capability(tool.name())).or_default();
        match broken {
            BrokenSkill::Refuse => facts.held = Some(hold.problem.as_str().into()),
            BrokenSkill::Confirm => facts.confirmation = Some(Confirmation::Operator),
        }
    }
}

/// The tools whose skill cannot be used, and why. With `is_strict`, a key that nothing reads where all
/// others limit calls is a reason too.
pub fn held<'a>(
    skills: &'a SkillCatalog,
    tools: &'a ToolSet,
    is_strict: bool,
) -> impl Iterator<Item = (&'a Tool, &'a Hold)> {
    let names: HashSet<&str> = tools.iter().map(Tool::own_name).collect();
    tools.iter().filter_map(move |tool| {
        let hold = skills.hold_of(tool.own_name(), |name| names.contains(name));
        let unread = || skills.unread_in(tool.own_name()).filter(|_| is_strict);
        Some((tool, hold.or_else(unread)?))
    })
}

fn facts_of(block: &OwlclawBlock, trading_hours: &TimeWindows) -> CapabilityFacts {
    let constraints = &block.constraints;
    let (estimated_cost, held) = match constraints.estimated_cost.as_deref().map(str::parse) {
        Some(Ok(cost)) => (Some(cost), None),
        // The skill's reader lets none through.
        Some(Err(_)) => (None, Some("its `estimated_cost` cannot be read".into())),
        None => (None, None),
    };
    let (held, in_part) = match block.migration_weight {
        Some(0) => {
            let why = "its skill says `migration_weight: 0`, so it only observes";
            (Some(why.into()), None)
        }
        Some(1..=99) => (held, Some(Confirmation::Operator)),
        _ => (held, None),
    };
    let confirmed = block.requires_confirmation || block.risk_level == RiskLevel::Critical;
    CapabilityFacts {
        held,
        estimated_cost,
        limits: RateLimits {
            per_minute: None,
            per_day: constraints
                .max_daily_calls
                .map(|most| u32::try_from(most).unwrap_or(u32::MAX)),
        },
        risk: risk_of(block.hints),
        confirmation: in_part.or(confirmed.then_some(Confirmation::User)),
        cooldown: constraints.cooldown,
        windows: constraints
            .trading_hours_only
            .then(|| trading_hours.clone()),
        ..CapabilityFacts::default()
    }
}

/// Risk of a tool. Of contradictory hints the worse one holds.
fn risk_of_class(class: RiskClass) -> Risk {
    Risk {
        read_only: class == RiskClass::ReadOnly,
        mutating: class != RiskClass::ReadOnly,
        external: class == RiskClass::External,
        financial: class == RiskClass::Financial,
    }
}

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
        let mut facts =
            capability_facts(&catalog, &ToolSet::default(), &TimeWindows::trading_hours());
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

    #[test]
    fn migration_weight_of_a_skill_is_honoured() {
        let rows = [
            ("{migration_weight: 0}", true, None),
            ("{migration_weight: 1}", false, Some(Confirmation::Operator)),
            (
                "{migration_weight: 99, requires_confirmation: true}",
                false,
                Some(Confirmation::Operator),
            ),
            ("{migration_weight: 100}", false, None),
        ];
        for (block, is_held, confirmation) in rows {
            let facts = facts(block);
            assert_eq!(facts.held.is_some(), is_held, "{block}");
            assert_eq!(facts.confirmation, confirmation, "{block}");
        }
    }
}
