//! The configured rules as governance understands them.

use std::collections::BTreeMap;

use adapter_skills::SkillCatalog;
use adapter_tools::ToolSet;
use config::{Config, Governance, UnmatchedRules};
use governance::{Confirmation, Policy, PolicyError, PolicySpec};
use mcp_server::{
    BrokenSkill, Offer, capability_facts, hold_back, prompt_capability, tool_capability,
};

/// Builds the policy in force for this offer.
///
/// # Errors
///
/// A pattern, a role or a condition that cannot be used.
pub(super) fn policy(
    config: &Config,
    skills: &SkillCatalog,
    offer: &Offer,
) -> Result<Policy, PolicyError> {
    holding(config, skills, offer, &BTreeMap::new())
}

/// The same, with these capabilities held back, each for a reason.
///
/// # Errors
///
/// As [`policy`].
pub(super) fn holding(
    config: &Config,
    skills: &SkillCatalog,
    offer: &Offer,
    held: &BTreeMap<String, String>,
) -> Result<Policy, PolicyError> {
    let tools = offer.tools();
    let broken = match config.tools.broken_skill {
        config::BrokenSkill::Refuse => BrokenSkill::Refuse,
        config::BrokenSkill::Confirm => BrokenSkill::Confirm,
    };
    let mut spec = spec(&config.governance, skills, tools, broken);
    if config.governance.rules.enabled {
        weigh(&mut spec, &config.switches, tools);
        let held = held.iter().map(|(name, why)| (name.clone(), why.clone()));
        let prompts = offer.prompts().held().into_iter();
        let prompts = prompts.map(|(name, why)| (prompt_capability(&name), why));
        for (capability, why) in held.chain(prompts) {
            let facts = spec.capabilities.entry(capability).or_default();
            facts.held = Some(why.into());
        }
    }
    Policy::new(spec)
}

/// Leaves to a tool what the application's own configuration leaves to it: nothing, or what an operator
/// confirms.
fn weigh(spec: &mut PolicySpec, switches: &config::Switches, tools: &ToolSet) {
    for tool in tools.iter() {
        let Some((weight @ ..=99, place)) = switches.weights.get(tool.own_name()) else {
            continue;
        };
        let facts = spec.capabilities.entry(tool_capability(tool.name()));
        let facts = facts.or_default();
        match weight {
            0 => facts.held = Some(format!("{place}: its `migration_weight` is 0").into()),
            _ => facts.confirmation = Some(Confirmation::Operator),
        }
    }
}

fn spec(
    config: &Governance,
    skills: &SkillCatalog,
    tools: &ToolSet,
    broken: BrokenSkill,
) -> PolicySpec {
    let mut capabilities = capability_facts(skills, tools, &config.rules.trading_hours());
    config.rules.apply_to(&mut capabilities);
    let is_strict = config.unmatched_rules == UnmatchedRules::Error;
    hold_back(&mut capabilities, skills, tools, broken, is_strict);
    config.rules.spec(capabilities)
}
