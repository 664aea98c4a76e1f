//! Rules, with their patterns and conditions prepared.

use crate::{
    condition::PreparedCondition,
    error::{PolicyError, RulesOf},
    pattern::{PatternError, PatternSet, single},
    spec::{
        BreakerSpec, CapabilityFacts, Condition, Kind, PolicySpec, Quota, RateLimits, Risk,
        RoleRules, Rules,
    },
};
use std::{collections::HashMap, sync::Arc};

/// Identity of a caller's lists under one policy.
///
/// Callers with the same visibility and the same limits share it as far as is known, so that a list
/// can be made once for each view; none is ever given to callers whose lists differ. It means nothing
/// under another policy: keep [`Policy::version`](crate::Policy::version) beside it, and ask the same policy for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ViewId(pub u64);

/// The rules of one principal together with those of its roles.
#[derive(Debug)]
pub(crate) struct PreparedRules {
    visible: PatternSet,
    hidden: PatternSet,
    allow: PatternSet,
    deny: PatternSet,
    confirm: PatternSet,
    /// The patterns of `confirm` again, one by one, to say which it was.
    confirm_patterns: Box<[(Arc<str>, PatternSet)]>,
    /// Capabilities that conditions are about.
    conditional: PatternSet,
    /// In order of their names.
    conditions: Box<[Arc<PreparedCondition>]>,
    /// In order.
    pub(crate) roles: Arc<[String]>,
    pub(crate) quota: Quota,
    reads: RateLimits,
    max_running: Option<u32>,
    pub(crate) view: ViewId,
    /// Number of these rules in the policy; with roles that a caller has brought along, that of the
    /// rules without them.
    pub(crate) number: u32,
}

/// Roles, prepared once for all principals that have them.
#[derive(Debug)]
pub(crate) struct PreparedRoles {
    by_name: HashMap<Box<str>, PreparedRole>,
    /// In order of their numbers.
    names: Box<[Box<str>]>,
}

#[derive(Debug)]
struct PreparedRole {
    number: u32,
    conditions: Vec<Arc<PreparedCondition>>,
}

impl PreparedRoles {
    pub(crate) fn new(spec: &PolicySpec) -> Result<Self, PolicyError> {
        let mut by_name = HashMap::new();
        for (number, (name, role)) in (0..).zip(&spec.roles) {
            let rules = || RulesOf::Role(name.clone());
            for patterns in [
                &role.visible,
                &role.hidden,
                &role.allow,
                &role.deny,
                &role.confirm,
            ] {
                check(patterns, rules)?;
            }
            let conditions = prepare(&role.conditions, rules)?;
            by_name.insert(name.as_str().into(), PreparedRole { number, conditions });
        }
        Ok(Self {
            by_name,
            names: spec.roles.keys().map(|name| name.as_str().into()).collect(),
        })
    }

    /// The number of a role; roles have the order of their names.
    pub(crate) fn number(&self, role: &str) -> Option<u32> {
        self.by_name.get(role).map(|role| role.number)
    }

    fn name(&self, number: u32) -> &str {
        &self.names[number as usize]
    }

    /// Checks and prepares rules; `view` is still to be given.
    pub(crate) fn rules(
        &self,
        spec: &PolicySpec,
        rules: &Rules,
        number: u32,
        of: impl Fn() -> RulesOf,
    ) -> Result<PreparedRules, PolicyError> {
        let own = [
            &rules.visible,
            &rules.hidden,
            &rules.allow,
            &rules.deny,
            &rules.confirm,
        ];
        for patterns in own {
            check(patterns, &of)?;
        }
        if let Some(role) = rules.roles.iter().find(|role| self.number(role).is_none()) {
            return Err(PolicyError::UnknownRole {
                rules: of(),
                role: role.clone(),
            });
        }
        let conditions = prepare(&rules.conditions, &of)?;
        Ok(self.together(spec, rules, rules.roles.clone(), conditions, number))
    }

    /// `rules`, which have been prepared as `prepared`, with more roles: as if they had them.
    pub(crate) fn combined(
        &self,
        spec: &PolicySpec,
        rules: &Rules,
        prepared: &PreparedRules,
        roles: &[u32],
    ) -> PreparedRules {
        let more = roles.iter().map(|number| self.name(*number).to_owned());
        let names = prepared.roles.iter().cloned().chain(more).collect();
        let conditions = prepared.conditions.to_vec();
        self.together(spec, rules, names, conditions, prepared.number)
    }

    /// Rules, which have been checked, and those of roles, which are known. `conditions` are those
    /// of the rules themselves, and may be those of some of the roles already.
    fn together(
        &self,
        spec: &PolicySpec,
        rules: &Rules,
        mut names: Vec<String>,
        mut conditions: Vec<Arc<PreparedCondition>>,
        number: u32,
    ) -> PreparedRules {
        names.sort_unstable();
        names.dedup();
        let mut roles: Vec<&RoleRules> = Vec::with_capacity(names.len());
        for name in &names {
            if let (Some(role), Some(prepared)) =
                (spec.roles.get(name), self.by_name.get(name.as_str()))
            {
                roles.push(role);
                conditions.extend(prepared.conditions.iter().cloned());
            }
        }
        conditions.sort_by(|one, other| one.spec.cmp(&other.spec));
        conditions.dedup_by(|one, other| one.spec == other.spec);
        let limits = Limits::new(rules, &roles, &spec.default);
        let set = |own, of_role| {
            PatternSet::new(all(own, &roles, of_role))
                .expect("each of the patterns has been checked")
        };
        PreparedRules {
            visible: set(&rules.visible, |role| &role.visible),
            hidden: set(&rules.hidden, |role| &role.hidden),
            allow: set(&rules.allow, |role| &role.allow),
            deny: set(&rules.deny, |role| &role.deny),
            confirm: set(&rules.confirm, |role| &role.confirm),
            confirm_patterns: all(&rules.confirm, &roles, |role| &role.confirm)
                .map(|pattern| (pattern.as_str().into(), single(pattern)))
                .collect(),
            conditional: PatternSet::new(conditions.iter().map(|it| &it.spec.capability))
                .expect("each of the patterns has been checked"),
            conditions: conditions.into(),
            roles: names.into(),
            quota: limits.quota,
            reads: limits.reads,
            max_running: limits.max_running,
            view: ViewId(0),
            number,
        }
    }
}

/// One list of patterns: those of a principal, and those of its roles.
fn all<'a>(
    own: &'a [String],
    roles: &'a [&'a RoleRules],
    of_role: fn(&RoleRules) -> &Vec<String>,
) -> impl Iterator<Item = &'a String> {
    own.iter()
        .chain(roles.iter().flat_map(move |&role| of_role(role)))
}

fn check(patterns: &[String], of: impl Fn() -> RulesOf) -> Result<(), PolicyError> {
    let wrong = |source: PatternError| PolicyError::Pattern {
        rules: of(),
        source,
    };
    PatternSet::new(patterns).map(drop).map_err(wrong)
}

fn prepare(
    conditions: &[Condition],
    of: impl Fn() -> RulesOf,
) -> Result<Vec<Arc<PreparedCondition>>, PolicyError> {
    let prepare = |condition: &Condition| match PreparedCondition::new(condition) {
        Ok(prepared) => Ok(Arc::new(prepared)),
        Err(source) => Err(PolicyError::Condition {
            rules: of(),
            name: condition.name.clone(),
            source,
        }),
    };
    conditions.iter().map(prepare).collect()
}

/// Limits put together from those of a principal, its roles and the default.
struct Limits {
    quota: Quota,
    reads: RateLimits,
    max_running: Option<u32>,
}

impl Limits {
    fn new(own: &Rules, roles: &[&RoleRules], default: &Rules) -> Self {
        let mut limits = Self {
            quota: own.quota,
            reads: own.reads,
            max_running: own.max_running,
        };
        if roles.is_empty() && !own.default_limits {
            return limits;
        }
        /// Value of the principal itself, else the most generous of its roles, else the default
        /// one.
        fn fill<T: Ord>(
            own: &mut Option<T>,
            roles: impl Iterator<Item = Option<T>>,
            default: Option<T>,
        ) {
            if own.is_none() {
                *own = roles.flatten().max().or(default);
            }
        }
        let roles = || roles.iter();
        fill(
            &mut limits.quota.monthly_budget,
            roles().map(|role| role.quota.monthly_budget),
            default.quota.monthly_budget,
        );
        fill(
            &mut limits.quota.max_calls_per_minute,
            roles().map(|role| role.quota.max_calls_per_minute),
            default.quota.max_calls_per_minute,
        );
        fill(
            &mut limits.quota.max_calls_per_day,
            roles().map(|role| role.quota.max_calls_per_day),
            default.quota.max_calls_per_day,
        );
        fill(
            &mut limits.quota.max_cost_per_call,
            roles().map(|role| role.quota.max_cost_per_call),
            default.quota.max_cost_per_call,
        );
        fill(
            &mut limits.reads.per_minute,
            roles().map(|role| role.reads.per_minute),
            default.reads.per_minute,
        );
        fill(
            &mut limits.reads.per_day,
            roles().map(|role| role.reads.per_day),
            default.reads.per_day,
        );
        fill(
            &mut limits.max_running,
            roles().map(|role| role.max_running),
            default.max_running,
        );
        limits
    }
}

impl PreparedRules {
    pub(crate) fn shows(&self, capability: &str) -> bool {
        self.visible.matches(capability) && !self.hidden.matches(capability)
    }

    pub(crate) fn allows(&self, capability: &str) -> bool {
        self.allow.matches(capability) && !self.deny.matches(capability)
    }

    /// The pattern by which each use has to be confirmed.
    pub(crate) fn confirm_pattern(&self, capability: &str) -> Option<&Arc<str>> {
        if !self.confirm.matches(capability) {
            return None;
        }
        let mut patterns = self.confirm_patterns.iter();
        patterns
            .find(|(_, pattern)| pattern.matches(capability))
            .map(|(text, _)| text)
    }

    /// The conditions on uses of `capability`, in order of their names.
    pub(crate) fn conditions_on(
        &self,
        capability: &str,
    ) -> impl Iterator<Item = &Arc<PreparedCondition>> {
        let conditions = match self.conditional.matches(capability) {
            true => &*self.conditions,
            false => &[],
        };
        conditions.iter().filter(|it| it.applies_to(capability))
    }

    /// Tests if lists look the same under both: limits and confirmations are part of lists.
    pub(crate) fn looks_like(&self, other: &Self) -> bool {
        self.visible == other.visible
            && self.hidden == other.hidden
            && self.confirm == other.confirm
            && self.quota == other.quota
            && self.reads == other.reads
    }

    pub(crate) fn rates(&self, kind: Kind) -> RateLimits {
        match kind {
            Kind::Tool => RateLimits {
                per_minute: self.quota.max_calls_per_minute,
                per_day: self.quota.max_calls_per_day,
            },
            Kind::Resource => self.reads,
        }
    }

    pub(crate) fn max_running(&self, kind: Kind) -> Option<u32> {
        match kind {
            Kind::Tool => self.max_running,
            Kind::Resource => None,
        }
    }
}

impl PolicySpec {
    /// The same policy with everything visible, everything allowed, nothing limited and nothing to
    /// be confirmed: what switching governance off means. Costs are still known, and use is still
    /// counted.
    #[must_use]
    pub fn without_limits(self) -> Self {
        let capabilities = self.capabilities.into_iter().map(|(name, facts)| {
            let facts = CapabilityFacts {
                estimated_cost: facts.estimated_cost,
                // Whether it changes something is no limit: it says what must be on record first.
                risk: Risk {
                    mutating: facts.risk.is_mutating(),
                    external: false,
                    financial: false,
                    ..facts.risk
                },
                ..CapabilityFacts::default()
            };
            (name, facts)
        });
        Self {
            default: Rules::default(),
            principals: Default::default(),
            roles: Default::default(),
            capabilities: capabilities.collect(),
            default_breaker: BreakerSpec::OFF,
            ..self
        }
    }
}
