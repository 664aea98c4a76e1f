//! Governance: who may do what, how often, and at what cost.
//!
//! Deciding is pure: [`Policy`] is a function of its arguments and of nothing else. Counting is a
//! [`QuotaStore`]'s. [`Governor`] joins the two and yields a [`Permit`], the proof that a call was
//! allowed and has been counted. Nothing here knows about MCP, a clock, a runtime or a file: time
//! comes in as a [`Timestamp`], rules as plain structs.
//!
//! Capabilities are named `kind/name`: `tool/transfer`, `resource/skill://shop/refunds`.
//!
//! # What decides
//!
//! Deny wins, then confirm, then allow, whether a principal's own rules say it or those of one of its
//! roles. In this order:
//!
//! 1. `visible` and `hidden`: what is not visible does not exist.
//! 2. `allow` and `deny`.
//! 3. [`Condition`]s over the arguments, in CEL. What they cannot say is held against the caller, and
//!    no arguments can make them run for long.
//! 4. The most that one call may cost; the hours of the day ([`TimeWindows`]).
//! 5. Whether the tool rests because it failed ([`BreakerSpec`]).
//! 6. Budget, rates, cooldown and running calls, counted together or not at all.
//!
//! A call that has to be confirmed is not refused here: the [`Permit`] says so
//! ([`Permit::confirmation`]), and the embedder begins nothing until it is confirmed, or takes
//! everything back with [`Permit::release`]. [`Governor::explain`] says what would become of a call
//! and which rule decides.
//!
//! [`Policy::version`] is a digest of what the policy says.
//!
//! The authentication may vouch for roles of a caller ([`Caller`]): they count as if the policy gave
//! them to its name, for as long as the caller comes with them.
//!
//! Deliberately absent: authentication (a principal's name and roles are taken as they are), the form
//! of a confirmation, and breakers shared by several processes.
//!
//! A policy is built from plain structs, or read from a file as it stands in the configuration of a
//! server: see [`mod@file`].
//!
//! ```
//! use governance::*;
//! use std::sync::Arc;
//!
//! let policy = Policy::new(PolicySpec {
//!     default: Rules {
//!         deny: vec!["tool/admin.*".to_owned()],
//!         quota: Quota { max_calls_per_minute: Some(1), ..Quota::default() },
//!         ..Rules::default()
//!     },
//!     ..PolicySpec::default()
//! })?;
//! let governor = Governor::new(policy, Arc::new(MemoryQuota::default()));
//! let ask = Ask::new("alice", "tool/transfer", Timestamp(0));
//! let permit = governor.admit_now(ask)?;
//! permit.settle("0.05".parse()?, Ending::Succeeded, Timestamp(40));
//! let denial = governor.admit_now(ask).unwrap_err();
//! assert_eq!(denial.reason, Reason::RateMinute);
//! assert!(denial.retry_after.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod money;
mod seconds;
mod time;
mod windows;

mod spec;
mod version;

pub mod file;

mod ask;
mod caller;
mod combined;
mod condition;
mod error;
#[cfg(feature = "cel")]
mod exact;
#[cfg_attr(not(feature = "cel"), path = "no_expression.rs")]
mod expression;
mod pattern;
mod policy;
mod prepared;
#[cfg(feature = "cel")]
mod values;

mod denial;
mod quota;

mod breaker;
mod explain;
mod governor;
mod memory;
mod meter;
mod unknown_roles;
mod when;

pub use crate::{
    ask::Ask,
    breaker::{BreakerPhase, BreakerState, Ending},
    caller::Caller,
    denial::{Denial, Reason, Remaining},
    error::{ConditionError, ExpressionError, PolicyError, RulesOf},
    explain::{Check, Explanation, Step, StepOutcome},
    file::PolicyFile,
    governor::{Governor, Permit, Settlement},
    memory::{Crowd, DEFAULT_MAX_PRINCIPALS, MemoryQuota, MemoryReservation, Seed},
    money::{Micros, ParseMicrosError},
    pattern::{PatternError, PatternSet, Template, TemplatePart, pattern_matches},
    policy::{ConfirmationRule, Hints, Policy, SeedInterval, Verdict},
    prepared::ViewId,
    quota::{
        Charges, QuotaStore, ReservationName, ReserveError, UnavailableError, Usage, fits_budget,
    },
    spec::{
        Access, BreakerSpec, CapabilityFacts, Condition, Confirmation, EXTERNAL_PER_MINUTE, Effect,
        Kind, PolicySpec, Quota, RateLimits, Risk, RoleRules, Rules,
    },
    time::{Calendar, CalendarError, Month, Timestamp, Zone},
    unknown_roles::UnknownRoles,
    when::{When, WhenOf},
    windows::{
        Days, ParseWindowError, TimeOfDay, TimeOfDayError, TimeWindow, TimeWindows, ZonedWindow,
    },
};
