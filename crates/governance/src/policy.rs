use crate::{
    Calendar, CapabilityFacts, Charges, Denial, Kind, Micros, PatternError, PolicySpec, Quota,
    RateLimits, Reason, Rules, Timestamp, pattern::PatternSet,
};
use std::collections::HashMap;

/// What is asked: may this principal use this capability now?
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Who asks.
    pub principal: &'a str,
    /// What for, as `kind/name`: `tool/transfer`, `resource/skill://shop/refunds`.
    pub capability: &'a str,
    /// Whether that is a tool or a resource.
    pub kind: Kind,
    /// What it is expected to cost; `None` means as the policy has it.
    pub estimate: Option<Micros>,
    /// When it is asked.
    pub now: Timestamp,
}

/// Names what a principal's lists look like under one policy.
///
/// Principals with the same visibility and the same limits share it, so that a list can be made
/// once for each view. It means nothing under another policy: keep [`Policy::version`] beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u32);

/// The limits on one capability as a principal should be told of them. `None` means without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The tighter of the principal's and the capability's limit per minute.
    pub max_calls_per_minute: Option<u32>,
    /// The tighter of the principal's and the capability's limit per day.
    pub max_calls_per_day: Option<u32>,
    /// What one use is expected to cost.
    pub estimated_cost: Micros,
    /// The most that one use may be expected to cost.
    pub max_cost_per_call: Option<Micros>,
}

/// A configured policy that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A pattern of the default rules.
    #[error("a pattern of the default rules cannot be used")]
    DefaultPattern(#[source] PatternError),
    /// A pattern of a principal's rules.
    #[error("a pattern of the rules for {principal:?} cannot be used")]
    PrincipalPattern {
        /// Whose rules.
        principal: String,
        /// What is wrong with it.
        #[source]
        source: PatternError,
    },
}

/// Who may see and use what, how much of it, and at what price. Immutable and checked.
#[derive(Debug)]
pub struct Policy {
    version: u64,
    default: Compiled,
    principals: HashMap<Box<str>, Compiled>,
    capabilities: HashMap<Box<str>, CapabilityFacts>,
    default_estimated_cost: Micros,
    calendar: Calendar,
}

/// Rules with their patterns prepared.
#[derive(Debug)]
struct Compiled {
    visible: PatternSet,
    hidden: PatternSet,
    allow: PatternSet,
    deny: PatternSet,
    quota: Quota,
    reads: RateLimits,
    view: ViewId,
}

impl Compiled {
    /// `view` is still to be given.
    fn new(rules: &Rules) -> Result<Self, PatternError> {
        Ok(Self {
            visible: PatternSet::new(&rules.visible)?,
            hidden: PatternSet::new(&rules.hidden)?,
            allow: PatternSet::new(&rules.allow)?,
            deny: PatternSet::new(&rules.deny)?,
            quota: rules.quota,
            reads: rules.reads,
            view: ViewId(0),
        })
    }

    fn shows(&self, capability: &str) -> bool {
        self.visible.matches(capability) && !self.hidden.matches(capability)
    }

    fn allows(&self, capability: &str) -> bool {
        self.allow.matches(capability) && !self.deny.matches(capability)
    }

    /// Limits belong to it, because lists tell of them.
    fn looks_like(&self, other: &Self) -> bool {
        self.visible == other.visible
            && self.hidden == other.hidden
            && self.quota == other.quota
            && self.reads == other.reads
    }

    fn rates(&self, kind: Kind) -> RateLimits {
        match kind {
            Kind::Tool => RateLimits {
                per_minute: self.quota.max_calls_per_minute,
                per_day: self.quota.max_calls_per_day,
            },
            Kind::Resource => self.reads,
        }
    }
}

impl Policy {
    /// Checks and prepares a policy.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] naming the first pattern that cannot be used.
    pub fn new(spec: PolicySpec) -> Result<Self, PolicyError> {
        let default = Compiled::new(&spec.default).map_err(PolicyError::DefaultPattern)?;
        let mut principals: HashMap<Box<str>, Compiled> = HashMap::new();
        let mut views: Vec<Box<str>> = Vec::new();
        for (principal, rules) in spec.principals {
            let mut compiled = match Compiled::new(&rules) {
                Ok(compiled) => compiled,
                Err(source) => return Err(PolicyError::PrincipalPattern { principal, source }),
            };
            let principal = principal.into_boxed_str();
            if !compiled.looks_like(&default) {
                let known = views
                    .iter()
                    .position(|first| compiled.looks_like(&principals[first]));
                let index = known.unwrap_or_else(|| {
                    views.push(principal.clone());
                    views.len() - 1
                });
                compiled.view = ViewId(u32::try_from(index + 1).expect("rules fit in memory"));
            }
            principals.insert(principal, compiled);
        }
        Ok(Self {
            version: spec.version,
            default,
            principals,
            capabilities: spec
                .capabilities
                .into_iter()
                .map(|(name, facts)| (name.into_boxed_str(), facts))
                .collect(),
            default_estimated_cost: spec.default_estimated_cost,
            calendar: spec.calendar,
        })
    }

    /// The version its builder gave it.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Where its months begin.
    #[must_use]
    pub fn calendar(&self) -> &Calendar {
        &self.calendar
    }

    /// What the lists of `principal` look like.
    #[must_use]
    pub fn view_of(&self, principal: &str) -> ViewId {
        self.rules_of(principal).view
    }

    /// Whether `capability` exists for `principal`.
    #[must_use]
    pub fn visible(&self, principal: &str, capability: &str) -> bool {
        self.rules_of(principal).shows(capability)
    }

    /// Whether `principal` may use `capability`. Only what is visible can be permitted.
    #[must_use]
    pub fn permitted(&self, principal: &str, capability: &str) -> bool {
        let rules = self.rules_of(principal);
        rules.shows(capability) && rules.allows(capability)
    }

    /// The limits on `capability` that `principal` should be told of.
    #[must_use]
    pub fn hints(&self, principal: &str, capability: &str, kind: Kind) -> Hints {
        let rules = self.rules_of(principal);
        let (own, shared) = (self.facts(capability).limits, rules.rates(kind));
        Hints {
            max_calls_per_minute: tighter(own.per_minute, shared.per_minute),
            max_calls_per_day: tighter(own.per_day, shared.per_day),
            estimated_cost: self.estimate(capability, kind),
            max_cost_per_call: rules.quota.max_cost_per_call,
        }
    }

    /// What one use of `capability` is expected to cost.
    #[must_use]
    pub fn estimate(&self, capability: &str, kind: Kind) -> Micros {
        self.facts(capability).estimated_cost.unwrap_or(match kind {
            Kind::Tool => self.default_estimated_cost,
            Kind::Resource => Micros::ZERO,
        })
    }

    /// What `ask` would be charged, or why it is refused whatever has been used so far.
    ///
    /// All that can be refused without counting is refused here, so that a stranger cannot use up
    /// anybody's quota.
    ///
    /// # Errors
    ///
    /// The first applicable [`Denial`], in the order visible, permitted, cost of one call.
    pub fn check<'a>(&'a self, ask: Ask<'a>) -> Result<Charges<'a>, Denial> {
        let rules = self.rules_of(ask.principal);
        if !rules.shows(ask.capability) {
            return Err(Denial::new(Reason::NotVisible));
        }
        if !rules.allows(ask.capability) {
            return Err(Denial::new(Reason::Permission));
        }
        let charges = self.charges(rules, ask);
        if rules
            .quota
            .max_cost_per_call
            .is_some_and(|most| most < charges.cost)
        {
            return Err(Denial::new(Reason::CostPerCall));
        }
        Ok(charges)
    }

    /// What `ask` would be charged if it were permitted.
    pub(crate) fn charges_of<'a>(&'a self, ask: Ask<'a>) -> Charges<'a> {
        self.charges(self.rules_of(ask.principal), ask)
    }

    fn charges<'a>(&'a self, rules: &Compiled, ask: Ask<'a>) -> Charges<'a> {
        Charges {
            principal: ask.principal,
            capability: ask.capability,
            kind: ask.kind,
            cost: ask
                .estimate
                .unwrap_or_else(|| self.estimate(ask.capability, ask.kind)),
            budget: rules.quota.monthly_budget,
            rates: rules.rates(ask.kind),
            capability_rates: self.facts(ask.capability).limits,
            calendar: &self.calendar,
            now: ask.now,
        }
    }

    fn rules_of(&self, principal: &str) -> &Compiled {
        if self.principals.is_empty() {
            return &self.default;
        }
        self.principals.get(principal).unwrap_or(&self.default)
    }

    fn facts(&self, capability: &str) -> CapabilityFacts {
        if self.capabilities.is_empty() {
            return CapabilityFacts::default();
        }
        self.capabilities
            .get(capability)
            .copied()
            .unwrap_or_default()
    }
}

impl PolicySpec {
    /// The same policy with everything visible, everything allowed and nothing limited: what
    /// switching governance off means. Costs are still known, and use is still counted.
    #[must_use]
    pub fn without_limits(self) -> Self {
        let capabilities = self.capabilities.into_iter().map(|(name, facts)| {
            (
                name,
                CapabilityFacts {
                    limits: RateLimits::default(),
                    ..facts
                },
            )
        });
        Self {
            default: Rules::default(),
            principals: Default::default(),
            capabilities: capabilities.collect(),
            ..self
        }
    }
}

/// The smaller limit, where `None` is no limit.
fn tighter(one: Option<u32>, other: Option<u32>) -> Option<u32> {
    one.into_iter().chain(other).min()
}
