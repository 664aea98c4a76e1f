//! Every check of a call, with its outcome and the rule that decided.

use crate::{
    ask::Ask,
    breaker::BreakerPhase,
    combined::rules_by_name,
    denial::{Denial, Reason, Remaining},
    error::RulesOf,
    pattern::single,
    quota::{Charges, fits_budget},
    spec::{Confirmation, Kind, PolicySpec},
};
use std::{convert::Infallible, fmt, time::Duration};

/// A check of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Check.
    pub check: Check,
    /// Outcome of the check.
    pub outcome: StepOutcome,
    /// Rule that decided, in words.
    pub rule: String,
}

/// Checks of a call, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    /// Visibility for the principal.
    Visible,
    /// Permission by patterns.
    Permitted,
    /// Capability held back from every principal.
    Held,
    /// Condition; once for each that is about the capability.
    Condition,
    /// Cost of one call.
    CostPerCall,
    /// Hours of the day.
    TimeWindow,
    /// Confirmation.
    Confirmation,
    /// Breaker, which rests after failures.
    Breaker,
    /// Budget of the month.
    Budget,
    /// Rate of the last 60 seconds.
    RateMinute,
    /// Rate of the last 24 hours.
    RateDay,
    /// Cooldown.
    Cooldown,
    /// Number of running calls.
    Concurrency,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepOutcome {
    /// The check passed.
    Passed,
    /// The call is to be confirmed.
    Confirm(Confirmation),
    /// The call is refused.
    Refused(Reason),
}

/// Forecast for a call, for which nothing has been counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The version of the policy that is explained.
    pub policy_version: u64,
    /// Every check, in order. Those after the first refusal are there too, to say what else would
    /// stand in the way.
    pub steps: Vec<Step>,
    /// Rest of the principal's limits on this call.
    pub remaining: Remaining,
}

impl Explanation {
    /// Reason for which the call would be refused, confirmed or not.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        self.steps.iter().find_map(|step| match step.outcome {
            StepOutcome::Refused(reason) => Some(reason),
            StepOutcome::Passed | StepOutcome::Confirm(_) => None,
        })
    }

    /// Confirmation that the call would need.
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
    /// Name of the check.
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

/// Follows a walk through the checks of a call.
pub(crate) trait Trace {
    /// The end of a walk that does not reach its last check.
    type Stop;

    /// Checks are reported too that can change nothing any more.
    const IS_COMPLETE: bool;

    /// Reports a check: passed, to be confirmed, or refused. `rule` says what decided.
    fn check(
        &mut self,
        check: Check,
        outcome: Result<Option<Confirmation>, Denial>,
        rule: impl FnOnce() -> String,
    ) -> Result<(), Self::Stop>;
}

/// Ends a walk with the first refusal and takes note of nothing.
pub(crate) struct FirstRefusal;

impl Trace for FirstRefusal {
    type Stop = Denial;

    const IS_COMPLETE: bool = false;

    #[inline]
    fn check(
        &mut self,
        _: Check,
        outcome: Result<Option<Confirmation>, Denial>,
        _: impl FnOnce() -> String,
    ) -> Result<(), Denial> {
        outcome.map(drop)
    }
}

/// Every check, refusals included.
impl Trace for Vec<Step> {
    type Stop = Infallible;

    const IS_COMPLETE: bool = true;

    fn check(
        &mut self,
        check: Check,
        outcome: Result<Option<Confirmation>, Denial>,
        rule: impl FnOnce() -> String,
    ) -> Result<(), Infallible> {
        let outcome = match outcome {
            Ok(None) => StepOutcome::Passed,
            Ok(Some(who)) => StepOutcome::Confirm(who),
            Err(denial) => StepOutcome::Refused(denial.reason),
        };
        let rule = rule();
        self.push(Step {
            check,
            outcome,
            rule,
        });
        Ok(())
    }
}

/// The lists of patterns of one set of rules.
struct Patterns<'a> {
    of: RulesOf,
    visible: &'a [String],
    hidden: &'a [String],
    allow: &'a [String],
    deny: &'a [String],
}

/// The pattern by which the capability of `ask` is visible or hidden.
pub(crate) fn visible_rule(spec: &PolicySpec, ask: &Ask<'_>) -> String {
    let all = patterns(spec, ask);
    first(&all, ask.capability, "hidden", |it| it.hidden)
        .or_else(|_| first(&all, ask.capability, "visible", |it| it.visible))
        .unwrap_or_else(|none| none)
}

/// The pattern by which the capability of `ask` is allowed or denied.
pub(crate) fn permitted_rule(spec: &PolicySpec, ask: &Ask<'_>) -> String {
    let all = patterns(spec, ask);
    first(&all, ask.capability, "deny", |it| it.deny)
        .or_else(|_| first(&all, ask.capability, "allow", |it| it.allow))
        .unwrap_or_else(|none| none)
}

/// The lists that count for the caller: its own, and those of its roles.
fn patterns<'a>(spec: &'a PolicySpec, ask: &Ask<'_>) -> Vec<Patterns<'a>> {
    let (rules, of) = rules_by_name(spec, ask.principal);
    let brought = ask.roles.iter().map(|role| &**role);
    let brought = brought.filter(|role| !rules.roles.iter().any(|it| it == role));
    let brings_known = ask
        .roles
        .iter()
        .any(|role| spec.roles.contains_key(&**role));
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
        let role = spec.roles.get(name)?;
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

/// The first pattern of a list that matches, in words; an error where none does.
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

/// Adds the checks of counters, where there are limits.
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
