//! Every check of a call, with its outcome and the rule that decided: what an operator asks when
//! somebody asks why.

use crate::{
    Ask, BreakerPhase, Charges, Confirmation, Kind, Policy, Reason, Remaining, RulesOf,
    combined::rules_by_name,
    condition::{self, Says},
    fits_budget,
    prepared::single,
};
use std::{fmt, time::Duration};

/// A check of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is checked.
    pub check: Check,
    /// With which outcome.
    pub outcome: StepOutcome,
    /// What decided, in words.
    pub rule: String,
}

/// What is checked, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// Whether it exists for the principal.
    Visible,
    /// Whether patterns permit it.
    Permitted,
    /// Whether it is held back from everybody.
    Held,
    /// What a condition says; once for each that is about it.
    Condition,
    /// Whether one call may cost as much.
    CostPerCall,
    /// Whether it may be used at this time.
    TimeWindow,
    /// Who has to confirm it.
    Confirmation,
    /// Whether it rests after failures.
    Breaker,
    /// Whether the month's budget covers it.
    Budget,
    /// Whether there is room in the current minute.
    RateMinute,
    /// Whether there is room in the current 24 hours.
    RateDay,
    /// Whether it has cooled down.
    Cooldown,
    /// Whether there is room beside the calls that run.
    Concurrency,
}

/// What a check leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepOutcome {
    /// Nothing stands in the way.
    Passed,
    /// The call is to be confirmed.
    Confirm(Confirmation),
    /// The call is refused.
    Refused(Reason),
}

/// What would become of a call. Nothing has been counted for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The version of the policy that is explained.
    pub policy_version: u64,
    /// Every check, in order. Those after the first refusal are there too, to say what else would
    /// stand in the way.
    pub steps: Vec<Step>,
    /// What the principal has left of the limits on this call.
    pub remaining: Remaining,
}

impl Explanation {
    /// Why the call would be refused, whether or not somebody confirms it.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.steps.iter().find_map(|step| match step.outcome {
            StepOutcome::Refused(reason) => Some(reason),
            StepOutcome::Passed | StepOutcome::Confirm(_) => None,
        })
    }

    /// Who would have to confirm the call.
    #[must_use]
    pub fn confirmation(&self) -> Option<Confirmation> {
        let asked = self.steps.iter().filter_map(|step| match step.outcome {
            StepOutcome::Confirm(who) => Some(who),
            StepOutcome::Passed | StepOutcome::Refused(_) => None,
        });
        asked.max()
    }
}

impl Check {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Visible => "visible",
            Self::Permitted => "permitted",
            Self::Held => "held",
            Self::Condition => "condition",
            Self::CostPerCall => "cost_per_call",
            Self::TimeWindow => "time_window",
            Self::Confirmation => "confirmation",
            Self::Breaker => "breaker",
            Self::Budget => "budget",
            Self::RateMinute => "rate_minute",
            Self::RateDay => "rate_day",
            Self::Cooldown => "cooldown",
            Self::Concurrency => "concurrency",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for StepOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Confirm(who) => write!(f, "to be confirmed ({who})"),
            Self::Refused(reason) => write!(f, "refused ({reason})"),
        }
    }
}

impl Step {
    fn new(check: Check, refused: Option<Reason>, rule: String) -> Self {
        Self {
            check,
            outcome: refused.map_or(StepOutcome::Passed, StepOutcome::Refused),
            rule,
        }
    }
}

/// The lists of patterns that somebody's rules have.
struct Patterns<'a> {
    of: RulesOf,
    visible: &'a [String],
    hidden: &'a [String],
    allow: &'a [String],
    deny: &'a [String],
}

impl Policy {
    /// Every check of `ask` that needs no counters, in order, with its outcome and the rule that
    /// decided.
    #[must_use]
    pub fn explain(&self, ask: Ask<'_>) -> Vec<Step> {
        let all = self.patterns(&ask);
        let mut steps = vec![
            decided(
                Check::Visible,
                Reason::NotVisible,
                first(&all, ask.capability, "hidden", |it| it.hidden),
                first(&all, ask.capability, "visible", |it| it.visible),
            ),
            decided(
                Check::Permitted,
                Reason::Permission,
                first(&all, ask.capability, "deny", |it| it.deny),
                first(&all, ask.capability, "allow", |it| it.allow),
            ),
        ];
        if let Some(why) = &self.facts(ask.capability).held {
            steps.push(Step::new(Check::Held, Some(Reason::Held), why.to_string()));
        }
        self.explain_conditions(&ask, &mut steps);
        self.explain_facts(&ask, &mut steps);
        steps
    }

    fn explain_conditions(&self, ask: &Ask<'_>, steps: &mut Vec<Step>) {
        let rules = self.rules_of(ask.caller());
        let mut context = None;
        for condition in &rules.conditions {
            if !condition.applies_to(ask.capability) {
                continue;
            }
            let context = context.get_or_insert_with(|| condition::context_of(&rules, ask));
            let says = context
                .as_ref()
                .map_or(Says::Nothing, |context| condition.says(context));
            let outcome = match condition.spec.effect {
                _ if !condition.takes_effect(says) => StepOutcome::Passed,
                crate::Effect::Confirm => StepOutcome::Confirm(Confirmation::User),
                crate::Effect::Deny | crate::Effect::AllowOnly => {
                    StepOutcome::Refused(Reason::Permission)
                }
            };
            let says = match says {
                Says::Bool(truth) => format!("is {truth}"),
                Says::Nothing if context.is_none() => "cannot read the arguments".to_owned(),
                Says::Nothing => "fails, or is neither true nor false".to_owned(),
            };
            let name = &condition.spec.name;
            steps.push(Step {
                check: Check::Condition,
                outcome,
                rule: format!("the condition {name:?} {says}"),
            });
        }
    }

    fn explain_facts(&self, ask: &Ask<'_>, steps: &mut Vec<Step>) {
        let (rules, facts) = (self.rules_of(ask.caller()), self.facts(ask.capability));
        let cost = self.charges_of(*ask).cost;
        let (refused, rule) = match rules.quota.max_cost_per_call {
            Some(most) if most < cost => (
                Some(Reason::CostPerCall),
                format!("{cost} is expected, and {most} is the most"),
            ),
            Some(most) => (None, format!("{cost} is expected, of at most {most}")),
            None => (None, format!("{cost} is expected, and there is no limit")),
        };
        steps.push(Step::new(Check::CostPerCall, refused, rule));
        if let Some(windows) = &facts.windows {
            let refused = (!windows.contains(ask.now)).then_some(Reason::TimeWindow);
            let rule = format!("only {windows}");
            steps.push(Step::new(Check::TimeWindow, refused, rule));
        }
        if let Some((who, rule)) = self.confirmation_of(ask) {
            steps.push(Step {
                check: Check::Confirmation,
                outcome: StepOutcome::Confirm(who),
                rule: rule.to_string(),
            });
        }
    }

    fn patterns(&self, ask: &Ask<'_>) -> Vec<Patterns<'_>> {
        let (rules, of) = rules_by_name(&self.spec, ask.principal);
        let brought = ask.roles.iter().map(|role| &**role);
        let brought = brought.filter(|role| !rules.roles.iter().any(|it| it == role));
        let brings_known = ask
            .roles
            .iter()
            .any(|role| self.spec.roles.contains_key(&**role));
        let own = match &rules.beside_roles {
            Some(access) if brings_known => Patterns {
                of,
                visible: &access.visible,
                hidden: &access.hidden,
                allow: &access.allow,
                deny: &access.deny,
            },
            _ => Patterns {
                of,
                visible: &rules.visible,
                hidden: &rules.hidden,
                allow: &rules.allow,
                deny: &rules.deny,
            },
        };
        let names = rules.roles.iter().map(String::as_str).chain(brought);
        let roles = names.filter_map(|name| {
            let role = self.spec.roles.get(name)?;
            Some(Patterns {
                of: RulesOf::Role(name.to_owned()),
                visible: &role.visible,
                hidden: &role.hidden,
                allow: &role.allow,
                deny: &role.deny,
            })
        });
        std::iter::once(own).chain(roles).collect()
    }
}

/// The first pattern of a list that matches, in words.
fn first(
    all: &[Patterns<'_>],
    capability: &str,
    list: &str,
    of: for<'a> fn(&Patterns<'a>) -> &'a [String],
) -> Result<String, String> {
    for patterns in all {
        let matching = of(patterns)
            .iter()
            .find(|pattern| single(pattern).matches(capability));
        if let Some(pattern) = matching {
            return Ok(format!("{list} {pattern:?} of {}", patterns.of));
        }
    }
    Err(format!("no pattern of {list} matches"))
}

/// The first wins over the second, and without either it is refused.
fn decided(
    check: Check,
    reason: Reason,
    against: Result<String, String>,
    by: Result<String, String>,
) -> Step {
    match (against, by) {
        (Ok(rule), _) | (Err(_), Err(rule)) => Step::new(check, Some(reason), rule),
        (Err(_), Ok(rule)) => Step::new(check, None, rule),
    }
}

pub(crate) fn breaker_step(phase: BreakerPhase) -> Step {
    let (refused, rule) = match phase {
        BreakerPhase::Closed { failures: 0 } => (None, "it has not failed of late".to_owned()),
        BreakerPhase::Closed { failures } => (
            None,
            format!("it has failed {failures} times since it last worked"),
        ),
        BreakerPhase::Open { rest } => (
            Some(Reason::CircuitOpen),
            format!("it rests for another {}", seconds(rest)),
        ),
        BreakerPhase::HalfOpen { trying: false } => {
            (None, "it has rested, and the next call tries".to_owned())
        }
        BreakerPhase::HalfOpen { trying: true } => (
            Some(Reason::CircuitOpen),
            "it has rested, and another call is trying".to_owned(),
        ),
    };
    Step::new(Check::Breaker, refused, rule)
}

/// What counters say, where there are limits.
pub(crate) fn quota_steps(charges: &Charges<'_>, left: &Remaining, steps: &mut Vec<Step>) {
    let what = match charges.kind {
        Kind::Tool => "calls",
        Kind::Resource => "reads",
    };
    if let (Some(rest), Some(limit)) = (left.budget, left.budget_limit) {
        let spent = limit.saturating_sub(rest);
        let held = left.held.unwrap_or(charges.cost);
        let refused =
            (!fits_budget(limit, charges.may_cost, spent, held)).then_some(Reason::Budget);
        let rule = match charges.cost < held {
            true => format!(
                "{rest} of {limit} is left; {held} is held for a call, which one has cost this month"
            ),
            false => format!("{rest} of {limit} is left"),
        };
        steps.push(Step::new(Check::Budget, refused, rule));
    }
    if let (Some(rest), Some(limit)) = (left.minute, left.minute_limit) {
        let refused = (rest == 0).then_some(Reason::RateMinute);
        let rule = format!("{rest} of {limit} {what} are left in this minute");
        steps.push(Step::new(Check::RateMinute, refused, rule));
    }
    if let (Some(rest), Some(limit)) = (left.day, left.day_limit) {
        let refused = (rest == 0).then_some(Reason::RateDay);
        let rule = format!("{rest} of {limit} {what} are left in these 24 hours");
        steps.push(Step::new(Check::RateDay, refused, rule));
    }
    if let Some(wait) = left.cooldown {
        let refused = (!wait.is_zero()).then_some(Reason::Cooldown);
        let rule = format!("it cools down for another {}", seconds(wait));
        steps.push(Step::new(Check::Cooldown, refused, rule));
    }
    if let (Some(rest), Some(limit)) = (left.running, left.running_limit) {
        let refused = (rest == 0).then_some(Reason::Concurrency);
        let rule = format!("{rest} of {limit} may begin beside those that run");
        steps.push(Step::new(Check::Concurrency, refused, rule));
    }
}

fn seconds(wait: Duration) -> String {
    format!("{} s", wait.as_millis().div_ceil(1_000))
}
