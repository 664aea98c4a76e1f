//! Limits hold whatever happens, in whatever order.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{DAY, JANUARY, MINUTE, SECOND, admit, ask, governor, ready, spec};
use governance::{
    Ask, Calendar, CapabilityFacts, Denial, Ending, Governor, MemoryQuota, Micros, Permit, Quota,
    RateLimits, Reason, Timestamp, Usage,
};
use proptest::{prelude::*, test_runner::TestCaseResult};

const PER_MINUTE: u32 = 4;
const PER_DAY: u32 = 9;
const OWN_PER_MINUTE: u32 = 2;
const BUDGET: u64 = 100;
const PRINCIPALS: [&str; 2] = ["a", "b"];

#[derive(Clone, Debug)]
enum Step {
    Admit { who: usize, own: bool, cost: u64 },
    Settle(usize, u64),
    Drop(usize),
    Pass(u64),
    SetBack(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Most of what can go wrong happens where a window ends.
    let span = prop_oneof![
        0..3 * SECOND,
        MINUTE - 3 * SECOND..MINUTE + 2 * SECOND,
        0..2 * MINUTE,
        DAY - 6 * MINUTE..DAY + 6 * MINUTE,
        0..2 * DAY,
        0..20 * DAY,
    ];
    prop_oneof![
        8 => (0..PRINCIPALS.len(), any::<bool>(), 0..40_u64)
            .prop_map(|(who, own, cost)| Step::Admit { who, own, cost }),
        2 => (any::<usize>(), 0..40_u64).prop_map(|(index, cost)| Step::Settle(index, cost)),
        1 => any::<usize>().prop_map(Step::Drop),
        4 => span.clone().prop_map(Step::Pass),
        1 => span.prop_map(Step::SetBack),
    ]
}

/// What really happened to one principal, kept as plainly as can be.
#[derive(Default)]
struct Truth {
    /// The real time of each call, and whether it was of the capability with limits of its own.
    calls: Vec<(u64, bool)>,
    /// The cost of each call, and the month that began last when it was made.
    costs: Vec<(Timestamp, u64)>,
    /// The month that began last, by a clock that may have been set back since.
    month: Timestamp,
}

impl Truth {
    fn within(&self, now: u64, length: u64, own_only: bool) -> u32 {
        let counts = |&&(at, own): &&(u64, bool)| now < at + length && (own || !own_only);
        self.calls.iter().filter(counts).count() as u32
    }

    fn spent(&self, month: Timestamp) -> u64 {
        self.costs
            .iter()
            .filter(|cost| cost.0 == month)
            .map(|cost| cost.1)
            .sum()
    }
}

/// A governor, and the truth beside it. Real time only passes; the clock that the governor is told
/// may be set back meanwhile.
struct World {
    governor: Governor<MemoryQuota>,
    calendar: Calendar,
    real: u64,
    set_back: u64,
    truths: [Truth; PRINCIPALS.len()],
    open: Vec<(usize, usize, u64, Permit<MemoryQuota>)>,
}

impl World {
    fn new() -> Self {
        let mut spec = spec(Quota {
            monthly_budget: Some(Micros(BUDGET)),
            max_calls_per_minute: Some(PER_MINUTE),
            max_calls_per_day: Some(PER_DAY),
            ..Quota::default()
        });
        let limits = RateLimits {
            per_minute: Some(OWN_PER_MINUTE),
            per_day: None,
        };
        let facts = CapabilityFacts {
            limits,
            ..CapabilityFacts::default()
        };
        spec.capabilities.insert("tool/own".to_owned(), facts);
        Self {
            governor: governor(spec),
            calendar: Calendar::utc(),
            real: JANUARY,
            set_back: 0,
            truths: Default::default(),
            open: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.real - self.set_back)
    }

    /// Looking at a counter lets time pass for it, so a month that was seen has begun for good.
    fn usage(&mut self) -> Vec<Usage> {
        let usage = ready(self.governor.usage(self.now())).unwrap();
        let month = self.calendar.month_of(self.now()).start;
        for usage in &usage {
            let truth = &mut self.truths[who(usage)];
            truth.month = truth.month.max(month);
        }
        usage
    }

    fn step(&mut self, step: Step) -> TestCaseResult {
        match step {
            Step::Pass(millis) => self.real += millis,
            Step::SetBack(millis) => self.set_back = (self.set_back + millis).min(JANUARY / 2),
            Step::Admit { who, own, cost } => {
                let ask = Ask {
                    capability: if own { "tool/own" } else { "tool/x" },
                    estimate: Some(Micros(cost)),
                    ..ask(PRINCIPALS[who], self.now().0)
                };
                let before = self.usage();
                match admit(&self.governor, ask) {
                    Ok(permit) => self.admitted(who, own, cost, permit)?,
                    Err(denial) => {
                        prop_assert_eq!(before, self.usage(), "a refusal used something up");
                        self.refused(who, own, &denial)?;
                    }
                }
            }
            Step::Settle(index, cost) if !self.open.is_empty() => {
                let (who, call, reserved, permit) = self.open.swap_remove(index % self.open.len());
                let cost = cost.min(reserved);
                self.truths[who].costs[call].1 = cost;
                let _ = permit.settle(Micros(cost), Ending::Succeeded, self.now());
            }
            Step::Drop(index) if !self.open.is_empty() => {
                drop(self.open.swap_remove(index % self.open.len()));
            }
            Step::Settle(..) | Step::Drop(_) => {}
        }
        if self.set_back == 0 {
            // By a clock that was never set back it is known exactly what was spent.
            let month = self.calendar.month_of(self.now()).start;
            for usage in self.usage() {
                let truth = &self.truths[who(&usage)];
                prop_assert_eq!(usage.spent.0, truth.spent(month));
            }
        }
        Ok(())
    }

    fn admitted(
        &mut self,
        who: usize,
        own: bool,
        cost: u64,
        permit: Permit<MemoryQuota>,
    ) -> TestCaseResult {
        let (real, now) = (self.real, self.now());
        let truth = &mut self.truths[who];
        truth.month = truth.month.max(self.calendar.month_of(now).start);
        truth.calls.push((real, own));
        truth.costs.push((truth.month, cost));
        prop_assert!(truth.within(real, MINUTE, false) <= PER_MINUTE);
        prop_assert!(truth.within(real, DAY, false) <= PER_DAY);
        prop_assert!(truth.within(real, MINUTE, true) <= OWN_PER_MINUTE || !own);
        // Setting the clock back by more than a month is a test of its own.
        if 0 < cost && self.set_back < 28 * DAY {
            prop_assert!(truth.spent(truth.month) <= BUDGET);
        }
        self.open.push((who, truth.costs.len() - 1, cost, permit));
        Ok(())
    }

    /// Nobody is refused without a limit near: buckets are late by their width at most.
    fn refused(&self, who: usize, own: bool, denial: &Denial) -> TestCaseResult {
        let truth = &self.truths[who];
        let near = match denial.reason {
            Reason::RateMinute => {
                let length = MINUTE + SECOND;
                PER_MINUTE <= truth.within(self.real, length, false)
                    || own && OWN_PER_MINUTE <= truth.within(self.real, length, true)
            }
            Reason::RateDay => PER_DAY <= truth.within(self.real, DAY + 5 * MINUTE, false),
            Reason::Budget => 0 < truth.spent(self.calendar.month_of(self.now()).start),
            _ => false,
        };
        prop_assert!(near || 0 < self.set_back, "{:?}", denial);
        prop_assert!(denial.retry_after.is_some_and(|wait| !wait.is_zero()));
        Ok(())
    }
}

fn who(usage: &Usage) -> usize {
    PRINCIPALS
        .iter()
        .position(|name| *name == usage.principal)
        .unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(1_024)
    })]

    #[test]
    fn no_limit_is_ever_exceeded(steps in proptest::collection::vec(step(), 0..80)) {
        let mut world = World::new();
        for step in steps {
            world.step(step)?;
        }
    }

    /// Whoever waits as long as told, and calls nothing else meanwhile, is admitted; a millisecond
    /// earlier is too early.
    #[test]
    fn the_time_to_wait_is_exact(
        passes in proptest::collection::vec(prop_oneof![0..3 * SECOND, 0..DAY / 4], 1..40),
        minute in 1..5_u32,
        day in 1..9_u32,
        budget in 10..200_u64,
    ) {
        let governor = governor(spec(Quota {
            monthly_budget: Some(Micros(budget)),
            max_calls_per_minute: Some(minute),
            max_calls_per_day: Some(day),
            ..Quota::default()
        }));
        let mut now = JANUARY;
        for pass in passes {
            now += pass;
            if let Err(denial) = admit(&governor, ask("a", now)) {
                let wait = u64::try_from(denial.retry_after.unwrap().as_millis()).unwrap();
                prop_assert!(admit(&governor, ask("a", now + wait - 1)).is_err());
                now += wait;
                prop_assert!(admit(&governor, ask("a", now)).is_ok());
            }
        }
    }
}
