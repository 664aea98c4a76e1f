//! A policy, checked and prepared, and the order of its checks.

use crate::{
    ask::Ask,
    caller::Caller,
    combined::{Combinations, RulesFor, beside_roles, rules_by_name},
    denial::{Denial, Reason},
    error::{PolicyError, RulesOf},
    explain::{Check, FirstRefusal, Step, Trace, permitted_rule, visible_rule},
    expression,
    money::Micros,
    prepared::{PreparedRoles, PreparedRules, ViewId},
    quota::Charges,
    spec::{
        BreakerSpec, CapabilityFacts, Confirmation, Effect, Kind, PolicySpec, Quota, RateLimits,
        Risk,
    },
    time::{Calendar, Timestamp},
    version::version_of,
};
use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

/// Limits on one capability, to be shown to a principal. `None` means without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The tighter of the principal's and the capability's limit per minute.
    pub max_calls_per_minute: Option<u32>,
    /// The tighter of the principal's and the capability's limit per day.
    pub max_calls_per_day: Option<u32>,
    /// Expected cost of one use.
    pub estimated_cost: Micros,
    /// Limit on the expected cost of one use.
    pub max_cost_per_call: Option<Micros>,
    /// Confirmation of each use, whatever its arguments are.
    pub confirmation: Option<Confirmation>,
    /// Risk of a use.
    pub risk: Risk,
}

/// Decision of a policy on a call, before anything is counted.
#[derive(Clone, Debug)]
pub struct Verdict<'a> {
    /// Counters and limits of the call.
    pub charges: Charges<'a>,
    /// Confirmation that the call needs.
    pub confirmation: Option<Confirmation>,
    /// Rule that asks for the confirmation.
    pub rule: Option<ConfirmationRule>,
    /// Risk of the call.
    pub risk: Risk,
    /// Limit on the expected cost of one use, if there is one.
    pub max_cost: Option<Micros>,
    /// Breaker of the capability.
    pub breaker: BreakerSpec,
}

/// Rule by which a call has to be confirmed: the first, if several ask for the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConfirmationRule {
    /// The facts of the capability.
    Capability,
    /// The risk `financial`.
    Financial,
    /// A pattern of the principal's rules.
    Pattern(Arc<str>),
    /// The condition of this name.
    Condition(Arc<str>),
}

/// An interval of the past, and the width of the pieces in which its use is summed up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeedInterval {
    /// First millisecond.
    pub from: Timestamp,
    /// First millisecond after it.
    pub until: Timestamp,
    /// Width of the pieces; [`Duration::MAX`] for one sum of all.
    pub resolution: Duration,
}

/// A policy, checked and prepared: who may see and use what, how much of it, and at what price.
#[derive(Debug)]
pub struct Policy {
    version: u64,
    default: PreparedRules,
    principals: HashMap<Box<str>, PreparedRules>,
    roles: PreparedRoles,
    /// Of the rules with roles that callers bring along.
    pub(crate) combinations: Combinations,
    capabilities: HashMap<Box<str>, CapabilityFacts>,
    no_facts: CapabilityFacts,
    /// The policy as it was configured, to explain what it does.
    pub(crate) spec: PolicySpec,
}

impl fmt::Display for ConfirmationRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Capability => f.write_str("it asks for a confirmation itself"),
            Self::Financial => f.write_str("it moves money"),
            Self::Pattern(pattern) => write!(f, "the pattern {pattern:?}"),
            Self::Condition(name) => write!(f, "the condition {name:?}"),
        }
    }
}

impl Policy {
    /// Checks and prepares a policy.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] naming the first pattern, role or condition that cannot be used.
    pub fn new(spec: PolicySpec) -> Result<Self, PolicyError> {
        let roles = PreparedRoles::new(&spec)?;
        let default = roles.rules(&spec, &spec.default, 0, || RulesOf::Default)?;
        let mut principals: HashMap<Box<str>, PreparedRules> = HashMap::new();
        let mut views: Vec<&str> = Vec::new();
        for (number, (principal, rules)) in (1..).zip(&spec.principals) {
            let of = || RulesOf::Principal(principal.clone());
            let mut prepared = roles.rules(&spec, rules, number, of)?;
            if !prepared.looks_like(&default) {
                let known = views
                    .iter()
                    .position(|&first| prepared.looks_like(&principals[first]));
                let index = known.unwrap_or_else(|| {
                    views.push(principal);
                    views.len() - 1
                });
                prepared.view = ViewId(index as u64 + 1);
            }
            principals.insert(principal.as_str().into(), prepared);
        }
        let combinations = Combinations::new(views.len() as u64 + 1);
        let capabilities = spec
            .capabilities
            .iter()
            .map(|(name, facts)| (name.as_str().into(), facts.clone()));
        Ok(Self {
            version: version_of(&spec),
            default,
            principals,
            roles,
            combinations,
            capabilities: capabilities.collect(),
            no_facts: CapabilityFacts::default(),
            spec,
        })
    }

    /// A digest of what it says: policies that say the same have the same version, in every process
    /// and after every restart. It has 39 bits, so that it is exact wherever it is shown, and is taken
    /// for no card's number where that is redacted.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Calendar of its months.
    #[must_use]
    pub fn calendar(&self) -> &Calendar {
        &self.spec.calendar
    }

    /// Earliest time from which uses may still count at `now`: for the month's budget, for rates, and for the
    /// longest cooldown there is.
    #[must_use]
    pub fn counts_since(&self, now: Timestamp) -> Timestamp {
        const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
        let cooldowns = self.capabilities.values().filter_map(|it| it.cooldown);
        let longest = cooldowns.max().unwrap_or_default().as_millis();
        let longest = u64::try_from(longest).unwrap_or(u64::MAX).max(DAY_MS);
        let month = self.spec.calendar.month_of(now).start;
        month.min(Timestamp(now.0.saturating_sub(longest)))
    }

    /// The intervals of the past whose use [`MemoryQuota::seed`](crate::MemoryQuota::seed) needs, so
    /// that a restart frees nothing: the nearer to `now`, the finer, since rates look at a minute and
    /// a day, budgets at the month, and cooldowns at the last use however long ago. `month` is when
    /// the month of the budgets began, by [`Policy::calendar`] or as counters elsewhere have it.
    #[must_use]
    pub fn seed_intervals(&self, now: Timestamp, month: Timestamp) -> Vec<SeedInterval> {
        let before = |ms| Timestamp(now.0.saturating_sub(ms));
        let (day, minute) = (before(24 * 60 * 60 * 1_000), before(60 * 1_000));
        let edges = [
            (self.counts_since(now), Duration::MAX),
            (month.min(day), Duration::MAX),
            (day, Duration::from_secs(60)),
            (minute, Duration::from_secs(1)),
        ];
        let ends = edges[1..].iter().map(|(edge, _)| *edge);
        let ends = ends.chain([Timestamp(u64::MAX)]);
        edges
            .into_iter()
            .zip(ends)
            .map(|((from, resolution), until)| SeedInterval {
                from,
                until,
                resolution,
            })
            .filter(|interval| interval.from < interval.until)
            .collect()
    }

    /// View of `caller`: what its lists look like.
    #[must_use]
    pub fn view_of<'c>(&self, caller: impl Into<Caller<'c>>) -> ViewId {
        self.rules_of(caller.into()).view
    }

    /// The limits of `caller` itself: of its tool calls, and of what it reads.
    #[must_use]
    pub fn limits<'c>(&self, caller: impl Into<Caller<'c>>) -> (Quota, RateLimits) {
        let rules = self.rules_of(caller.into());
        (rules.quota, rules.rates(Kind::Resource))
    }

    /// Tests if `capability` exists for `caller`.
    #[must_use]
    pub fn visible<'c>(&self, caller: impl Into<Caller<'c>>, capability: &str) -> bool {
        self.rules_of(caller.into()).shows(capability)
    }

    /// Tests if `caller` may use `capability`. Only what is visible can be permitted.
    #[must_use]
    pub fn permitted<'c>(&self, caller: impl Into<Caller<'c>>, capability: &str) -> bool {
        let rules = self.rules_of(caller.into());
        rules.shows(capability) && rules.allows(capability)
    }

    /// Reason for which `capability` is held back from every principal, in words for operators.
    #[must_use]
    pub fn held(&self, capability: &str) -> Option<&str> {
        self.facts(capability).held.as_deref()
    }

    /// The limits on `capability` that `caller` should be told of.
    #[must_use]
    pub fn hints<'c>(&self, caller: impl Into<Caller<'c>>, capability: &str, kind: Kind) -> Hints {
        let rules = self.rules_of(caller.into());
        let facts = self.facts(capability);
        let (own, shared) = (facts.effective_limits(), rules.rates(kind));
        Hints {
            max_calls_per_minute: tighter(own.per_minute, shared.per_minute),
            max_calls_per_day: tighter(own.per_day, shared.per_day),
            estimated_cost: self.estimate_by(facts, kind),
            max_cost_per_call: rules.quota.max_cost_per_call,
            confirmation: confirmation_of(&rules, facts, capability).map(|(who, _)| who),
            risk: facts.risk,
        }
    }

    /// Tests if each caller's uses of `capability` have counters of their own, besides those of its kind.
    #[must_use]
    pub fn counts_alone(&self, capability: &str) -> bool {
        let facts = self.facts(capability);
        facts.effective_limits() != RateLimits::default() || facts.cooldown.is_some()
    }

    /// Expected cost of one use of `capability`.
    #[must_use]
    pub fn estimate(&self, capability: &str, kind: Kind) -> Micros {
        self.estimate_by(self.facts(capability), kind)
    }

    fn estimate_by(&self, facts: &CapabilityFacts, kind: Kind) -> Micros {
        facts.estimated_cost.unwrap_or(match kind {
            Kind::Tool => self.spec.default_estimated_cost,
            Kind::Resource => Micros::ZERO,
        })
    }

    /// Decides what `ask` is charged and who has to confirm it, or why it is refused whatever has been
    /// used so far.
    ///
    /// Everything that can be refused without counting is refused here, so that a stranger cannot use up
    /// the quota of a client.
    ///
    /// # Errors
    ///
    /// The first applicable [`Denial`], in the order visible, permitted by patterns, not held, permitted by
    /// conditions, cost of one call, hours of the day.
    pub fn check<'a>(&'a self, ask: Ask<'a>) -> Result<Verdict<'a>, Denial> {
        self.walk(ask, &mut FirstRefusal)
    }

    /// Every check of `ask` that needs no counters, in order, with its outcome and the rule that
    /// decided.
    #[must_use]
    pub fn explain(&self, ask: Ask<'_>) -> Vec<Step> {
        self.explained(ask).0
    }

    /// The same with what the call would be charged, whether or not it is refused.
    pub(crate) fn explained<'a>(&'a self, ask: Ask<'a>) -> (Vec<Step>, Verdict<'a>) {
        let mut steps = Vec::new();
        let Ok(verdict) = self.walk(ask, &mut steps);
        (steps, verdict)
    }

    /// The checks that need no counters, in order.
    fn walk<'a, T: Trace>(&'a self, ask: Ask<'a>, trace: &mut T) -> Result<Verdict<'a>, T::Stop> {
        let refused_unless = |passes: bool, reason| match passes {
            true => Ok(None),
            false => Err(Denial::new(reason)),
        };
        let rules = self.rules_of(ask.caller());
        let visible = refused_unless(rules.shows(ask.capability), Reason::NotVisible);
        trace.check(Check::Visible, visible, || visible_rule(&self.spec, &ask))?;
        let permitted = refused_unless(rules.allows(ask.capability), Reason::Permission);
        trace.check(Check::Permitted, permitted, || {
            permitted_rule(&self.spec, &ask)
        })?;
        let facts = self.facts(ask.capability);
        if let Some(why) = &facts.held {
            let held = Err(Denial::held(Arc::clone(why)));
            trace.check(Check::Held, held, || why.to_string())?;
        }
        let confirmed_by = conditions(&rules, &ask, trace)?;
        let charges = self.charges(&rules, facts, ask);
        let (cost, most) = (charges.cost, rules.quota.max_cost_per_call);
        let fits = refused_unless(most.is_none_or(|most| cost <= most), Reason::CostPerCall);
        trace.check(Check::CostPerCall, fits, || match most {
            Some(most) if most < cost => format!("{cost} is expected, and {most} is the most"),
            Some(most) => format!("{cost} is expected, of at most {most}"),
            None => format!("{cost} is expected, and there is no limit"),
        })?;
        if let Some(windows) = &facts.windows {
            let open = match windows.contains(ask.now) {
                true => Ok(None),
                false => Err(Denial {
                    retry_after: windows.wait(ask.now),
                    ..Denial::new(Reason::TimeWindow)
                }),
            };
            trace.check(Check::TimeWindow, open, || format!("only {windows}"))?;
        }
        let by_rule = confirmation_of(&rules, facts, ask.capability);
        if let Some((who, rule)) = &by_rule {
            trace.check(Check::Confirmation, Ok(Some(*who)), || rule.to_string())?;
        }
        let by_condition =
            confirmed_by.map(|name| (Confirmation::User, ConfirmationRule::Condition(name)));
        let confirmation = by_rule.or(by_condition);
        Ok(Verdict {
            charges,
            confirmation: confirmation.as_ref().map(|(who, _)| *who),
            rule: confirmation.map(|(_, rule)| rule),
            risk: facts.risk,
            max_cost: most,
            breaker: match ask.kind {
                Kind::Tool => facts.breaker.unwrap_or(self.spec.default_breaker),
                // What is read may have any number of names.
                Kind::Resource => BreakerSpec::OFF,
            },
        })
    }

    /// The verdict on a use that has happened already, at this cost, which no limit can refuse.
    pub(crate) fn past_limits<'a>(&'a self, ask: Ask<'a>, cost: Micros) -> Verdict<'a> {
        let charges = Charges {
            cost,
            may_cost: false,
            budget: None,
            rates: RateLimits::default(),
            capability_rates: RateLimits::default(),
            cooldown: None,
            max_running: None,
            capability_max_running: None,
            ..self.charges_of(ask)
        };
        Verdict {
            charges,
            confirmation: None,
            rule: None,
            risk: Risk::default(),
            max_cost: None,
            breaker: BreakerSpec::default(),
        }
    }

    /// Charges of `ask` if it were permitted.
    pub(crate) fn charges_of<'a>(&'a self, ask: Ask<'a>) -> Charges<'a> {
        let rules = self.rules_of(ask.caller());
        self.charges(&rules, self.facts(ask.capability), ask)
    }

    /// `rules` are those for the caller.
    fn charges<'a>(
        &'a self,
        rules: &PreparedRules,
        facts: &CapabilityFacts,
        ask: Ask<'a>,
    ) -> Charges<'a> {
        let declared = facts.estimated_cost.or(ask.estimate);
        let cost = declared.unwrap_or_else(|| self.estimate_by(facts, ask.kind));
        Charges {
            principal: ask.principal,
            is_named: rules.number != self.default.number,
            capability: ask.capability,
            kind: ask.kind,
            cost,
            may_cost: cost != Micros::ZERO || ask.kind == Kind::Tool && declared.is_none(),
            budget: rules.quota.monthly_budget,
            rates: rules.rates(ask.kind),
            capability_rates: facts.effective_limits(),
            cooldown: facts.cooldown,
            max_running: rules.max_running(ask.kind),
            capability_max_running: facts.max_running,
            calendar: &self.spec.calendar,
            now: ask.now,
        }
    }

    /// Roles of a caller that the policy knows: those that it gives to the name, and those that are vouched for.
    #[must_use]
    pub fn roles_of(&self, caller: Caller<'_>) -> Arc<[String]> {
        Arc::clone(&self.rules_of(caller).roles)
    }

    pub(crate) fn rules_of(&self, caller: Caller<'_>) -> RulesFor<'_> {
        let base = self.principals.get(caller.principal);
        let base = base.unwrap_or(&self.default);
        if caller.roles.is_empty() {
            return RulesFor::OfName(base);
        }
        let make = |roles: &[u32]| {
            let (rules, of) = rules_by_name(&self.spec, caller.principal);
            let mut rules = beside_roles(rules);
            if matches!(of, RulesOf::Default) {
                // What is everybody's gives way to what somebody has in particular.
                let rules = rules.to_mut();
                rules.quota = Quota::default();
                rules.reads = RateLimits::default();
                rules.max_running = None;
            }
            self.roles.combined(&self.spec, &rules, base, roles)
        };
        let alike = |rules: &PreparedRules| {
            let mut all = std::iter::once(&self.default).chain(self.principals.values());
            all.find(|it| it.looks_like(rules)).map(|it| it.view)
        };
        self.combinations
            .of(base, caller.roles, &self.roles, make, alike)
    }

    /// Filters `roles` that the policy does not know.
    pub(crate) fn unknown_roles<'r>(
        &self,
        roles: &'r [Arc<str>],
    ) -> impl Iterator<Item = &'r Arc<str>> {
        roles
            .iter()
            .filter(|role| self.roles.number(role).is_none())
    }

    pub(crate) fn facts(&self, capability: &str) -> &CapabilityFacts {
        self.capabilities.get(capability).unwrap_or(&self.no_facts)
    }
}

/// Checks the conditions on a call. Yields the name of the first by which it has to be confirmed.
fn conditions<T: Trace>(
    rules: &PreparedRules,
    ask: &Ask<'_>,
    trace: &mut T,
) -> Result<Option<Arc<str>>, T::Stop> {
    let mut applicable = rules.conditions_on(ask.capability).peekable();
    if applicable.peek().is_none() {
        return Ok(None);
    }
    let variables = expression::variables(
        ask.arguments,
        ask.principal,
        ask.capability,
        rules.roles.iter().map(String::as_str),
    );
    let mut confirmed_by = None;
    for condition in applicable {
        let confirms = condition.spec.effect == Effect::Confirm;
        if confirms && confirmed_by.is_some() && !T::IS_COMPLETE {
            continue;
        }
        let says = condition.says(variables.as_ref());
        let outcome = match condition.takes_effect(says) {
            false => Ok(None),
            true if confirms => {
                confirmed_by.get_or_insert_with(|| Arc::clone(&condition.name));
                Ok(Some(Confirmation::User))
            }
            true => Err(Denial::by_condition(&condition.name)),
        };
        trace.check(Check::Condition, outcome, || condition.words(says))?;
    }
    Ok(confirmed_by)
}

/// Strongest confirmation that a use needs whatever its arguments are, with its rule.
fn confirmation_of(
    rules: &PreparedRules,
    facts: &CapabilityFacts,
    capability: &str,
) -> Option<(Confirmation, ConfirmationRule)> {
    if let Some(who) = facts.needed_confirmation() {
        let rule = match facts.confirmation {
            Some(_) => ConfirmationRule::Capability,
            None => ConfirmationRule::Financial,
        };
        return Some((who, rule));
    }
    let pattern = rules.confirm_pattern(capability)?;
    Some((
        Confirmation::User,
        ConfirmationRule::Pattern(Arc::clone(pattern)),
    ))
}

/// The smaller limit, where `None` is no limit.
fn tighter(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}
