//! Refusals, their reasons and what is left of limits.

use crate::money::Micros;
use std::{fmt, sync::Arc, time::Duration};

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The capability does not exist for this principal, and must be reported as if it did not exist at all.
    NotVisible,
    /// The capability exists, but not for this principal to use.
    Permission,
    /// The capability is held back from every principal, because its rules cannot be used.
    Held,
    /// The month's budget is spent.
    Budget,
    /// The call is expected to cost more than one call may.
    CostPerCall,
    /// Too many in the last minute.
    RateMinute,
    /// Too many in the last 24 hours.
    RateDay,
    /// Too soon after the last one.
    Cooldown,
    /// The capability may not be used at this hour or on this day.
    TimeWindow,
    /// The number of running calls is at its limit.
    Concurrency,
    /// The call has to be confirmed, and has not been.
    Confirmation,
    /// The tool failed too often of late and is resting.
    CircuitOpen,
    /// The call cannot be recorded, so it may not happen.
    LedgerUnavailable,
    /// Use cannot be counted, so there may be none.
    StoreUnavailable,
    /// The table of counted principals is full, and this one is not in it.
    Crowd,
}

/// A refusal, with what the refused can do about it. Nothing was used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// Reason.
    pub reason: Reason,
    /// Time until the same call will be admitted if nothing else is called meanwhile; `None` when
    /// waiting alone does not help, or the time is unknown.
    pub retry_after: Option<Duration>,
    /// The name of the condition that refused, where one did.
    pub condition: Option<Box<str>>,
    /// Reason for which the capability is held back, where it is, in words for operators. The refused is not told.
    pub held: Option<Arc<str>>,
    /// Rest of the limits, where they were looked at. Boxed, so that the common outcome stays small.
    pub remaining: Box<Remaining>,
}

/// Rest of a principal's limits. `None` means that there is no such limit.
///
/// Where both the principal and the capability have a limit, the one with less left is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remaining {
    /// Rest of the month's budget, running calls counted at what is held for them.
    pub budget: Option<Micros>,
    /// Of which amount.
    pub budget_limit: Option<Micros>,
    /// Time until the budget starts over.
    pub budget_resets: Option<Duration>,
    /// Amount held for the call until its cost is known: its estimate, or what the principal's
    /// dearest call of the tool has cost this month if that is more.
    pub held: Option<Micros>,
    /// Calls left in the current minute.
    pub minute: Option<u32>,
    /// Of how many.
    pub minute_limit: Option<u32>,
    /// Time until all of them are back.
    pub minute_resets: Option<Duration>,
    /// Calls left in the current 24 hours.
    pub day: Option<u32>,
    /// Of how many.
    pub day_limit: Option<u32>,
    /// Time until all of them are back.
    pub day_resets: Option<Duration>,
    /// Time until the capability has cooled down; zero when it has.
    pub cooldown: Option<Duration>,
    /// Calls that may begin beside those that are running.
    pub running: Option<u32>,
    /// Of how many.
    pub running_limit: Option<u32>,
}

impl Reason {
    /// Every reason there is.
    pub const ALL: [Self; 15] = [
        Self::NotVisible,
        Self::Permission,
        Self::Held,
        Self::Budget,
        Self::CostPerCall,
        Self::RateMinute,
        Self::RateDay,
        Self::Cooldown,
        Self::TimeWindow,
        Self::Concurrency,
        Self::Confirmation,
        Self::CircuitOpen,
        Self::LedgerUnavailable,
        Self::StoreUnavailable,
        Self::Crowd,
    ];

    /// Name in error data, logs and the ledger. `not_visible` must never reach a client.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotVisible => "not_visible",
            Self::Permission => "permission",
            Self::Held => "held",
            Self::Budget => "budget",
            Self::CostPerCall => "cost_per_call",
            Self::RateMinute => "rate_minute",
            Self::RateDay => "rate_day",
            Self::Cooldown => "cooldown",
            Self::TimeWindow => "time_window",
            Self::Concurrency => "concurrency",
            Self::Confirmation => "confirmation",
            Self::CircuitOpen => "circuit_open",
            Self::LedgerUnavailable => "ledger_unavailable",
            Self::StoreUnavailable => "store_unavailable",
            Self::Crowd => "too_many_clients",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Denial {
    /// A refusal that knows no more than its reason.
    #[must_use]
    pub fn new(reason: Reason) -> Self {
        Self {
            reason,
            retry_after: None,
            condition: None,
            held: None,
            remaining: Box::default(),
        }
    }

    /// A refusal by the condition called `name`.
    #[must_use]
    pub fn by_condition(name: &str) -> Self {
        Self {
            condition: Some(name.into()),
            ..Self::new(Reason::Permission)
        }
    }

    /// A refusal of what is held back for the reason `why`, in words for operators.
    #[must_use]
    pub fn held(why: impl Into<Arc<str>>) -> Self {
        Self {
            held: Some(why.into()),
            ..Self::new(Reason::Held)
        }
    }

    /// Text for operators and the record: what the refused is told, and the reason of a hold.
    #[must_use]
    pub fn for_the_record(&self) -> String {
        match &self.held {
            Some(why) => format!("{self}: {why}"),
            None => self.to_string(),
        }
    }

    /// The same refusal, ending after `wait`.
    #[must_use]
    pub fn with_retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }

    /// Tests if the same call may succeed later without a change of the rules or of the call.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self.reason {
            Reason::NotVisible
            | Reason::Permission
            | Reason::Held
            | Reason::CostPerCall
            | Reason::Confirmation => false,
            // A call that costs more than a whole month's budget can never be admitted, nor can one
            // in a window that never opens.
            Reason::Budget
            | Reason::RateMinute
            | Reason::RateDay
            | Reason::Cooldown
            | Reason::TimeWindow => self.retry_after.is_some(),
            Reason::Concurrency
            | Reason::CircuitOpen
            | Reason::LedgerUnavailable
            | Reason::StoreUnavailable
            | Reason::Crowd => true,
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = &self.remaining;
        match self.reason {
            Reason::NotVisible => f.write_str("there is no such capability")?,
            Reason::Permission => match &self.condition {
                Some(name) => write!(f, "the condition {name:?} does not permit this call")?,
                None => f.write_str("permission is missing for this capability")?,
            },
            Reason::Held => f.write_str(
                "it is held back, by an operator or because its rules cannot be applied or its definition has changed; \
                 an operator can see why with `doctor`, and approve a changed definition of an upstream with `upstream approve`",
            )?,
            Reason::Budget => {
                f.write_str("the monthly budget does not cover this call")?;
                if let (Some(rest), Some(limit)) = (left.budget, left.budget_limit) {
                    write!(f, " ({rest} of {limit} left)")?;
                }
            }
            Reason::CostPerCall => {
                f.write_str("the expected cost is above the limit for one call")?;
            }
            Reason::RateMinute => {
                f.write_str("too many calls in a minute")?;
                if let Some(limit) = left.minute_limit {
                    write!(f, " (limit {limit})")?;
                }
            }
            Reason::RateDay => {
                f.write_str("too many calls in 24 hours")?;
                if let Some(limit) = left.day_limit {
                    write!(f, " (limit {limit})")?;
                }
            }
            Reason::Cooldown => f.write_str("too soon after the last call")?,
            Reason::TimeWindow => f.write_str("it may not be used at this time")?,
            Reason::Concurrency => f.write_str("as many calls as may be are running already")?,
            Reason::Confirmation => f.write_str("this call needs a confirmation")?,
            Reason::CircuitOpen => f.write_str("it failed too often and is resting")?,
            Reason::LedgerUnavailable => f.write_str("the call cannot be recorded at present")?,
            Reason::StoreUnavailable => f.write_str("use cannot be counted at present")?,
            Reason::Crowd => f.write_str(
                "the use of as many clients is counted as fit, and this client is not among them",
            )?,
        }
        match self.retry_after {
            Some(wait) => write!(f, "; try again in {} s", ceiling_seconds(wait)),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Denial {}

/// Rounded up: a caller that comes back after this many whole seconds must not be too early.
fn ceiling_seconds(wait: Duration) -> u64 {
    wait.as_secs()
        .saturating_add(u64::from(0 < wait.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_name_and_the_words_say_what_to_do() {
        let names: std::collections::BTreeSet<_> =
            Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        let denial = Denial {
            reason: Reason::Budget,
            retry_after: Some(Duration::from_millis(1_001)),
            condition: None,
            held: None,
            remaining: Box::new(Remaining {
                budget: Some(Micros(20_000)),
                budget_limit: Some(Micros::units(500)),
                ..Remaining::default()
            }),
        };
        assert_eq!(
            denial.to_string(),
            "the monthly budget does not cover this call (0.02 of 500 left); try again in 2 s"
        );
        assert!(denial.is_retryable());
        let held = Denial::held("its pin");
        assert_eq!(held.to_string(), Denial::new(Reason::Held).to_string());
        // It may be any of these, which is not the caller's to know.
        for why in [
            "by an operator",
            "rules cannot be applied",
            "definition has changed",
        ] {
            assert!(held.to_string().contains(why), "{held}");
        }
        assert!(
            held.for_the_record()
                .ends_with("`upstream approve`: its pin")
        );
        assert!(!Denial::new(Reason::Budget).is_retryable());
        assert!(Denial::new(Reason::LedgerUnavailable).is_retryable());
        assert!(!Denial::new(Reason::Permission).is_retryable());
    }
}
