//! A policy as plain data, not yet checked.

use crate::{money::Micros, time::Calendar, windows::TimeWindows};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

/// Kind of use: running something or reading something.
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
    /// The rules for principals that have none of their own, unknown ones included.
    pub default: Rules,
    /// The rules of particular principals. They replace the default ones altogether.
    pub principals: BTreeMap<String, Rules>,
    /// Rules that several principals share, by the name of the role.
    pub roles: BTreeMap<String, RoleRules>,
    /// Facts of capabilities, by name: `tool/transfer`.
    pub capabilities: BTreeMap<String, CapabilityFacts>,
    /// Expected cost of a tool call without another estimate.
    pub default_estimated_cost: Micros,
    /// Breaker of tools without one of their own.
    pub default_breaker: BreakerSpec,
    /// Calendar of the budgets' months.
    pub calendar: Calendar,
}

/// Rules of a principal: what it may see and use, and how much of it.
///
/// Deny wins over confirm, and confirm over allow: what is denied anywhere is denied, what is to be
/// confirmed anywhere needs a confirmation, and the rest may be used if something allows it.
///
/// With [`roles`](Self::roles) a capability is visible or allowed if these rules or those of any
/// role say so, and hidden, denied, to be confirmed or conditional if any of them says that. A limit
/// that is not set here is then the most generous one of the roles; if none of them has one, it is
/// that of the policy's default rules. Without roles these rules stand alone, unless
/// [`default_limits`](Self::default_limits) says otherwise.
///
/// Roles that a [`Caller`](crate::Caller) brings along count as if they were among these, and
/// [`beside_roles`](Self::beside_roles) says what else counts then. A caller without rules of its
/// own has the default ones with them, whose limits give way to those of the roles.
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
    /// Patterns of capabilities each use of which has to be confirmed.
    pub confirm: Vec<String>,
    /// Rules that depend on the arguments of a call.
    pub conditions: Vec<Condition>,
    /// The roles it has, which must be among [`PolicySpec::roles`].
    pub roles: Vec<String>,
    /// The limits on its tool calls.
    pub quota: Quota,
    /// The limits on its resource reads, counted apart from tool calls.
    pub reads: RateLimits,
    /// The most tool calls it may have running at once.
    pub max_running: Option<u32>,
    /// Take limits that are not set here from the policy's default rules, even without roles.
    pub default_limits: bool,
    /// Lists that replace the four above for a caller that brings roles along which the policy knows.
    /// `None`: the lists above, and the roles on top of them.
    pub beside_roles: Option<Access>,
}

/// Lists of visible and usable capabilities; see [`Rules`] for each field. The default opens nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Patterns of capabilities that exist.
    pub visible: Vec<String>,
    /// Patterns of capabilities that do not exist.
    pub hidden: Vec<String>,
    /// Patterns of capabilities that may be used.
    pub allow: Vec<String>,
    /// Patterns of capabilities that may not be used.
    pub deny: Vec<String>,
}

/// Rules that a role adds to a principal's own; see [`Rules`] for each field and how they are put
/// together. The default adds nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoleRules {
    /// Patterns of capabilities that exist for principals with the role.
    pub visible: Vec<String>,
    /// Patterns of capabilities that do not exist for them, whatever other rules say.
    pub hidden: Vec<String>,
    /// Patterns of capabilities that they may use.
    pub allow: Vec<String>,
    /// Patterns of capabilities that they may not use, whatever other rules say.
    pub deny: Vec<String>,
    /// Patterns of capabilities each use of which has to be confirmed.
    pub confirm: Vec<String>,
    /// Rules that depend on the arguments of a call.
    pub conditions: Vec<Condition>,
    /// The limits on tool calls.
    pub quota: Quota,
    /// The limits on resource reads.
    pub reads: RateLimits,
    /// The most tool calls that one of them may have running at once.
    pub max_running: Option<u32>,
}

/// A rule that looks at the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Condition {
    /// Name in errors, in the ledger and in explanations.
    pub name: String,
    /// Pattern of the capabilities it is about.
    pub capability: String,
    /// An expression in CEL (<https://cel.dev>) that is true or false, of `args` (an object),
    /// `principal`, `roles` (a list) and `capability`: `args.amount > 500 && !('audit' in roles)`.
    ///
    /// Whatever it cannot say is held against the caller: an expression that fails, as one does
    /// that asks for an argument that is not there (`has(args.amount)` says whether it is), denies
    /// or asks for a confirmation, whichever the effect is.
    pub when: String,
    /// Effect.
    pub effect: Effect,
}

/// Effect of a condition.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Calls of which it is true are refused.
    #[default]
    Deny,
    /// Calls of which it is true must be confirmed.
    Confirm,
    /// Calls of which it is not true are refused.
    AllowOnly,
}

/// Limits on the tool calls of a principal. `None` means without limit.
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

/// Limits on a rate. `None` means without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RateLimits {
    /// The most in any 60 seconds.
    pub per_minute: Option<u32>,
    /// The most in any 24 hours.
    pub per_day: Option<u32>,
}

/// Facts of one capability.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapabilityFacts {
    /// Reason for which it is held back from every principal, in words for operators.
    pub held: Option<Arc<str>>,
    /// Expected cost of one use; `None` means the policy's default for tools, and nothing
    /// for resources.
    pub estimated_cost: Option<Micros>,
    /// Rates of each principal for this one, besides its limits on all of them. Without any
    /// limit, what is [external](Risk::external) has [`EXTERNAL_PER_MINUTE`].
    pub limits: RateLimits,
    /// Risk of a use.
    pub risk: Risk,
    /// Confirmation of each use. What is [financial](Risk::financial) is at least confirmed by
    /// its user; there is no way to say that it is not, other than that it is not financial.
    pub confirmation: Option<Confirmation>,
    /// The least time between two uses by one principal.
    pub cooldown: Option<Duration>,
    /// Hours in which it may be used.
    pub windows: Option<TimeWindows>,
    /// The most uses that may be running at once, over all principals.
    pub max_running: Option<u32>,
    /// Breaker; `None` means that of the policy. Of tools only.
    pub breaker: Option<BreakerSpec>,
}

/// Uses by each principal in any 60 seconds of a capability that is [external](Risk::external) and
/// has no limit of its own.
pub const EXTERNAL_PER_MINUTE: u32 = 60;

/// Risk of a capability, as a set. Empty means that nothing is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Risk {
    /// A use changes nothing.
    pub read_only: bool,
    /// A use changes something, so that a call must be on record before it begins.
    pub mutating: bool,
    /// A use reaches systems of others.
    pub external: bool,
    /// A use moves money, which is a change too.
    pub financial: bool,
}

/// Confirmation of a use. The second is the stronger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Confirmation {
    /// The person at the client may, and so may an operator.
    User,
    /// An operator, elsewhere than at the client.
    Operator,
}

/// Rest of a tool that keeps failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerSpec {
    /// Failures in a row, of calls of any client, after which it rests; 0: never.
    #[schemars(range(max = 1_000_000))]
    pub failures: u32,
    /// Length of the rest; then one call is tried.
    #[serde(
        rename = "rest_seconds",
        with = "crate::seconds",
        default = "usual_rest"
    )]
    #[schemars(with = "u64", range(min = 1, max = 86_400))]
    pub rest: Duration,
}

impl Risk {
    /// Names of the risks that are set.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        [
            (self.read_only, "read_only"),
            (self.mutating, "mutating"),
            (self.external, "external"),
            (self.financial, "financial"),
        ]
        .into_iter()
        .filter_map(|(has, name)| has.then_some(name))
    }

    /// Tests if a use changes something, as far as is known.
    #[must_use]
    pub fn is_mutating(self) -> bool {
        self.mutating || self.financial
    }
}

impl Confirmation {
    /// Name in the ledger and in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Confirmation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl BreakerSpec {
    /// Never rests.
    pub const OFF: Self = Self {
        failures: 0,
        rest: Duration::ZERO,
    };
}

impl Default for BreakerSpec {
    fn default() -> Self {
        Self::OFF
    }
}

/// The rest of a breaker of which a file says none.
pub(crate) fn usual_rest() -> Duration {
    Duration::from_secs(30)
}

impl CapabilityFacts {
    /// Confirmation of each use, with what follows from its risk.
    #[must_use]
    pub fn needed_confirmation(&self) -> Option<Confirmation> {
        let financial = self.risk.financial.then_some(Confirmation::User);
        self.confirmation.max(financial)
    }

    /// Rates of each principal, with what follows from its risk.
    #[must_use]
    pub fn effective_limits(&self) -> RateLimits {
        if self.risk.external && self.limits.is_unlimited() {
            return RateLimits {
                per_minute: Some(EXTERNAL_PER_MINUTE),
                per_day: None,
            };
        }
        self.limits
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            visible: vec!["*".to_owned()],
            hidden: Vec::new(),
            allow: vec!["*".to_owned()],
            deny: Vec::new(),
            confirm: Vec::new(),
            conditions: Vec::new(),
            roles: Vec::new(),
            quota: Quota::default(),
            reads: RateLimits::default(),
            max_running: None,
            default_limits: false,
            beside_roles: None,
        }
    }
}

impl RateLimits {
    /// Tests if there is no limit at all.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        self.per_minute.is_none() && self.per_day.is_none()
    }
}
