//! Principals that have used up much of a month's budget, as the counters see it.
//!
//! A call costs a comparison here; only for a principal beyond half of a budget is its name looked
//! up, and not even that while another call does so. Exact figures come from the counters.
//!
//! What a call meets here is a comparison; only where somebody is beyond half of a budget names are
//! looked up, and not even that if somebody else is just doing so. Whoever wants to know more asks
//! the counters.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use governance::{Denial, Micros, Reason, Remaining, Usage};

/// So many are kept in mind; others are not before some of these are forgotten.
const MAX_NEAR: usize = 1_024;

/// Principals beyond half of their budgets.
#[derive(Debug, Default)]
pub(super) struct Budgets {
    is_watched: AtomicBool,
    /// True while a principal is beyond half of its budget, or was a moment ago.
    is_any_near: AtomicBool,
    near: Mutex<BTreeMap<Box<str>, Near>>,
}

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Near {
    limit: Micros,
    /// Calls were refused, because what was left under this limit was not enough.
    is_refused: bool,
}

/// Spent part of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Spent {
    pub(super) principal: Box<str>,
    pub(super) spent: Micros,
    pub(super) limit: Micros,
    pub(super) is_refused: bool,
}

impl Budgets {
    /// Begins to take notes.
    pub(super) fn watch(&self) {
        self.is_watched.store(true, Ordering::Relaxed);
    }

    /// A call was admitted.
    pub(super) fn admitted(&self, principal: &str, remaining: &Remaining) {
        self.note(principal, remaining, false);
    }

    /// A call was refused.
    pub(super) fn refused(&self, principal: &str, denial: &Denial) {
        let is_refused = denial.reason == Reason::Budget;
        self.note(principal, &denial.remaining, is_refused);
    }

    fn note(&self, principal: &str, remaining: &Remaining, is_refused: bool) {
        let (Some(left), Some(limit)) = (remaining.budget, remaining.budget_limit) else {
            return;
        };
        let is_near = is_refused || left.0 <= limit.0 / 2;
        let concerns = match is_near {
            true => &self.is_watched,
            // It may have been, and have got another budget.
            false => &self.is_any_near,
        };
        if !concerns.load(Ordering::Relaxed) {
            return;
        }
        // Another call will come by.
        let Ok(mut near) = self.near.try_lock() else {
            return;
        };
        if !is_near {
            near.remove(principal);
            return;
        }
        self.is_any_near.store(true, Ordering::Relaxed);
        let has_room = near.len() < MAX_NEAR;
        match near.get_mut(principal) {
            Some(known) => {
                let was_refused = known.is_refused && known.limit == limit;
                *known = Near {
                    limit,
                    is_refused: is_refused || was_refused,
                };
            }
            None if has_room => {
                near.insert(principal.into(), Near { limit, is_refused });
            }
            None => {}
        }
    }

    /// Returns true if there is no principal to ask the counters about.
    pub(super) fn is_empty(&self) -> bool {
        let near = self.near.lock().unwrap_or_else(PoisonError::into_inner);
        near.is_empty()
    }

    /// Spent parts of the budgets of the noted principals, from `usage`, which the counters report
    /// for all principals. A principal that is below half again is forgotten.
    pub(super) fn spent(&self, usage: &[Usage]) -> Vec<Spent> {
        let mut near = self.near.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = Vec::new();
        near.retain(|principal, near| {
            let found = usage.iter().find(|it| *it.principal == **principal);
            let spent = found.map_or(Micros::ZERO, |it| it.spent);
            if spent.0 < near.limit.0 / 2 {
                return false;
            }
            all.push(Spent {
                principal: principal.clone(),
                spent,
                limit: near.limit,
                is_refused: near.is_refused,
            });
            true
        });
        self.is_any_near.store(!near.is_empty(), Ordering::Relaxed);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(budget: u64) -> Remaining {
        Remaining {
            budget: Some(Micros(budget)),
            budget_limit: Some(Micros(100)),
            ..Remaining::default()
        }
    }

    fn used(principal: &str, spent: u64) -> Usage {
        Usage {
            principal: principal.to_owned(),
            spent: Micros(spent),
            calls_minute: 0,
            calls_day: 0,
            reads_minute: 0,
            reads_day: 0,
            running: 0,
            calls_total: 0,
            reads_total: 0,
        }
    }

    #[test]
    fn who_is_beyond_half_is_looked_at_until_the_month_is_over() {
        let budgets = Budgets::default();
        budgets.admitted("early", &left(0));
        budgets.watch();
        assert!(budgets.is_empty(), "nobody wanted to know");
        budgets.admitted("poor", &left(51));
        budgets.admitted("free", &Remaining::default());
        assert!(budgets.is_empty());
        budgets.admitted("alice", &left(50));
        budgets.admitted("bob", &left(10));
        let usage = |alice| [used("alice", alice), used("bob", 99), used("carol", 99)];
        let spent = budgets.spent(&usage(85));
        let names: Vec<_> = spent
            .iter()
            .map(|it| (&*it.principal, it.spent.0))
            .collect();
        assert_eq!(names, [("alice", 85), ("bob", 99)]);
        assert_eq!(budgets.spent(&usage(3)).len(), 1, "alice has a new month");
        assert!(budgets.spent(&[]).is_empty());
        assert!(budgets.is_empty());
    }

    #[test]
    fn who_was_refused_is_until_the_budget_is_another() {
        let budgets = Budgets::default();
        budgets.watch();
        let mut denial = Denial::new(Reason::RateMinute);
        *denial.remaining = left(5);
        budgets.refused("alice", &denial);
        let is_refused = || budgets.spent(&[used("alice", 95)])[0].is_refused;
        assert!(!is_refused());
        denial.reason = Reason::Budget;
        budgets.refused("alice", &denial);
        assert!(is_refused());
        budgets.admitted("alice", &left(4));
        assert!(is_refused(), "a call that costs less changes nothing");
        let raised = Remaining {
            budget_limit: Some(Micros(110)),
            ..left(15)
        };
        budgets.admitted("alice", &raised);
        assert!(!is_refused());
        let raised = Remaining {
            budget_limit: Some(Micros(500)),
            ..left(400)
        };
        budgets.admitted("alice", &raised);
        assert!(budgets.is_empty(), "that is less than half");
    }
}
