//! Model of a store of counters, which every store must follow for any steps in any order: a script
//! of steps is carried out by a governor with the store, and by the model beside it, which is as
//! plain as can be.
//!
//! A store elsewhere includes this file with `#[path]`, makes scripts with [`script`] and carries
//! them out with [`check`].
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use governance::{
    Ask, Calendar, CapabilityFacts, Denial, Ending, Governor, Kind, Micros, Permit, Policy,
    PolicySpec, Quota, QuotaStore, RateLimits, Reason, Rules, Timestamp, Usage,
};
use proptest::{collection::vec, prelude::*, test_runner::TestCaseResult};
use std::{sync::Arc, time::Duration};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

/// 2026-01-15T00:00:00Z.
const JANUARY: u64 = 1_768_435_200_000;

const PER_MINUTE: u32 = 4;
const PER_DAY: u32 = 9;
const READS_PER_MINUTE: u32 = 3;
const OWN_PER_MINUTE: u32 = 2;
const BUDGET: u64 = 100;
const COOLDOWN: u64 = 7 * SECOND;
const RUNNING: u32 = 3;
const FEW_RUNNING: u32 = 2;
const PRINCIPALS: usize = 2;

/// Capability that a principal uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A tool without limits of its own.
    Plain,
    /// A tool with a rate of its own.
    Own,
    /// A tool that has to cool down.
    Cool,
    /// A tool of which few may be running.
    Few,
    /// A resource.
    Read,
}

/// One step of a script.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A principal asks for a call.
    Admit { who: usize, what: What, cost: u64 },
    /// A principal asks and, if admitted, is refused after all.
    Try { who: usize, what: What, cost: u64 },
    /// One of the calls that run ends, at a cost that is not higher than was reserved.
    Settle(usize, u64),
    /// One of the calls that run is refused after all.
    Release(usize),
    /// One of the calls that run is given up.
    Drop(usize),
    /// So many milliseconds pass.
    Pass(u64),
    /// The clock is set back by so many.
    SetBack(u64),
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        3 => Just(What::Plain),
        2 => Just(What::Own),
        2 => Just(What::Cool),
        2 => Just(What::Few),
        2 => Just(What::Read),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    // Most of what can go wrong happens where a window ends.
    let span = prop_oneof![
        0..3 * SECOND,
        COOLDOWN - SECOND..COOLDOWN + SECOND,
        COOLDOWN - 1..=COOLDOWN,
        MINUTE - 3 * SECOND..MINUTE + 2 * SECOND,
        0..2 * MINUTE,
        DAY - 6 * MINUTE..DAY + 6 * MINUTE,
        0..2 * DAY,
        0..20 * DAY,
    ];
    let asked = || (0..PRINCIPALS, what(), 0..40_u64);
    prop_oneof![
        10 => asked().prop_map(|(who, what, cost)| Step::Admit { who, what, cost }),
        3 => asked().prop_map(|(who, what, cost)| Step::Try { who, what, cost }),
        3 => (any::<usize>(), 0..40_u64).prop_map(|(index, cost)| Step::Settle(index, cost)),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Drop),
        4 => span.clone().prop_map(Step::Pass),
        1 => span.prop_map(Step::SetBack),
    ]
}

/// A script of fewer than `steps` steps.
pub(crate) fn script(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 0..steps)
}

/// Carries out a script with `quota`, whose counters nobody else touches: the names of principals and
/// capabilities contain `prefix`. `flush` returns when all that was settled or released has been
/// carried out.
pub(crate) async fn check<Q: QuotaStore>(
    quota: Arc<Q>,
    prefix: &str,
    flush: impl AsyncFn(),
    script: Vec<Step>,
) -> TestCaseResult {
    let mut world = World::new(quota, prefix);
    for step in script {
        world.step(step, &flush).await?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Ended,
    Released,
}

/// A call that was admitted.
#[derive(Clone, Copy, Debug)]
struct Call {
    who: usize,
    what: What,
    /// The real time.
    at: u64,
    cost: u64,
    /// The month that had begun last, by a clock that may be set back later.
    month: Timestamp,
    state: State,
}

/// A governor, and the truth beside it. Real time only passes; the clock that the governor is told
/// may be set back meanwhile.
struct World<Q: QuotaStore> {
    governor: Governor<Q>,
    principals: [String; PRINCIPALS],
    prefix: String,
    calendar: Calendar,
    real: u64,
    set_back: u64,
    /// The month that each principal was last seen in.
    months: [Timestamp; PRINCIPALS],
    calls: Vec<Call>,
    open: Vec<(usize, Permit<Q>)>,
}

impl<Q: QuotaStore> World<Q> {
    fn new(quota: Arc<Q>, prefix: &str) -> Self {
        let facts = |facts: CapabilityFacts, what| (capability(prefix, what), facts);
        let none = CapabilityFacts::default;
        let spec = PolicySpec {
            default: Rules {
                quota: Quota {
                    monthly_budget: Some(Micros(BUDGET)),
                    max_calls_per_minute: Some(PER_MINUTE),
                    max_calls_per_day: Some(PER_DAY),
                    ..Quota::default()
                },
                reads: RateLimits {
                    per_minute: Some(READS_PER_MINUTE),
                    per_day: None,
                },
                max_running: Some(RUNNING),
                ..Rules::default()
            },
            capabilities: [
                facts(
                    CapabilityFacts {
                        limits: RateLimits {
                            per_minute: Some(OWN_PER_MINUTE),
                            per_day: None,
                        },
                        ..none()
                    },
                    What::Own,
                ),
                facts(
                    CapabilityFacts {
                        cooldown: Some(Duration::from_millis(COOLDOWN)),
                        ..none()
                    },
                    What::Cool,
                ),
                facts(
                    CapabilityFacts {
                        max_running: Some(FEW_RUNNING),
                        ..none()
                    },
                    What::Few,
                ),
            ]
            .into(),
            ..PolicySpec::default()
        };
        Self {
            governor: Governor::new(Policy::new(spec).unwrap(), quota),
            principals: std::array::from_fn(|index| format!("{prefix}{index}")),
            prefix: prefix.to_owned(),
            calendar: Calendar::utc(),
            real: JANUARY,
            set_back: 0,
            months: Default::default(),
            calls: Vec::new(),
            open: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp(self.real - self.set_back)
    }

    async fn step(&mut self, step: Step, flush: &impl AsyncFn()) -> TestCaseResult {
        match step {
            Step::Pass(millis) => self.real += millis,
            Step::SetBack(millis) => self.set_back = (self.set_back + millis).min(JANUARY / 2),
            Step::Admit { who, what, cost } => {
                let before = self.usage().await;
                match self.ask(who, what, cost).await {
                    Ok(permit) => self.admitted(who, what, cost, permit)?,
                    Err(denial) => {
                        let after = self.usage().await;
                        prop_assert_eq!(before, after, "a refusal used something up");
                        self.refused(who, what, cost, &denial)?;
                    }
                }
            }
            Step::Try { who, what, cost } => {
                let before = self.usage().await;
                match self.ask(who, what, cost).await {
                    Ok(permit) => permit.release(),
                    Err(denial) => self.refused(who, what, cost, &denial)?,
                }
                flush().await;
                let after = self.usage().await;
                prop_assert_eq!(before, after, "what was released is still counted");
            }
            Step::Settle(..) | Step::Release(_) | Step::Drop(_) if self.open.is_empty() => {}
            Step::Settle(index, cost) => {
                let (call, permit) = self.open.swap_remove(index % self.open.len());
                let call = &mut self.calls[call];
                call.cost = cost.min(call.cost);
                call.state = State::Ended;
                let cost = Micros(call.cost);
                permit.settle(cost, Ending::Succeeded, self.now());
            }
            Step::Release(index) => {
                let (call, permit) = self.open.swap_remove(index % self.open.len());
                let call = &mut self.calls[call];
                (call.cost, call.state) = (0, State::Released);
                permit.release();
            }
            Step::Drop(index) => {
                let (call, permit) = self.open.swap_remove(index % self.open.len());
                self.calls[call].state = State::Ended;
                drop(permit);
            }
        }
        flush().await;
        self.counters_are_sums().await
    }

    async fn ask(&self, who: usize, what: What, cost: u64) -> Result<Permit<Q>, Denial> {
        let ask = Ask {
            principal: &self.principals[who],
            roles: &[],
            capability: &capability(&self.prefix, what),
            kind: kind(what),
            estimate: Some(Micros(cost)),
            now: self.now(),
            arguments: None,
        };
        self.governor.admit(ask).await
    }

    /// Looking at a counter lets time pass for it, so a month that was seen has begun for good.
    async fn usage(&mut self) -> [Usage; PRINCIPALS] {
        let all = self.governor.usage(self.now()).await.unwrap();
        let month = self.calendar.month_of(self.now()).start;
        std::array::from_fn(|who| {
            let name = &self.principals[who];
            match all.iter().find(|usage| usage.principal == *name) {
                Some(usage) => {
                    self.months[who] = self.months[who].max(month);
                    usage.clone()
                }
                None => nothing(name),
            }
        })
    }

    fn admitted(&mut self, who: usize, what: What, cost: u64, permit: Permit<Q>) -> TestCaseResult {
        let month = self.calendar.month_of(self.now()).start;
        self.months[who] = self.months[who].max(month);
        self.calls.push(Call {
            who,
            what,
            at: self.real,
            cost,
            month: self.months[who],
            state: State::Running,
        });
        self.open.push((self.calls.len() - 1, permit));
        let same_kind = |call: &Call| kind(call.what) == kind(what);
        let (per_minute, per_day) = match kind(what) {
            Kind::Tool => (PER_MINUTE, PER_DAY),
            Kind::Resource => (READS_PER_MINUTE, u32::MAX),
        };
        prop_assert!(self.within(who, MINUTE, same_kind) <= per_minute);
        prop_assert!(self.within(who, DAY, same_kind) <= per_day);
        let same = |call: &Call| call.what == what;
        match what {
            What::Own => prop_assert!(self.within(who, MINUTE, same) <= OWN_PER_MINUTE),
            What::Cool => prop_assert_eq!(self.within(who, COOLDOWN, same), 1),
            What::Few => prop_assert!(self.running(same) <= FEW_RUNNING),
            What::Plain | What::Read => {}
        }
        if kind(what) == Kind::Tool {
            prop_assert!(self.running_of(who) <= RUNNING);
        }
        // Setting the clock back by more than a month is a test of its own.
        if 0 < cost && self.set_back < 28 * DAY {
            prop_assert!(self.spent(who, self.months[who]) <= BUDGET);
        }
        Ok(())
    }

    /// No principal is refused without a limit near: buckets are late by their width at most.
    fn refused(&self, who: usize, what: What, cost: u64, denial: &Denial) -> TestCaseResult {
        let same_kind = |call: &Call| kind(call.what) == kind(what);
        let same = |call: &Call| call.what == what;
        let waits = denial.retry_after.is_some_and(|wait| !wait.is_zero());
        let (near, waits) = match denial.reason {
            Reason::RateMinute => {
                let length = MINUTE + SECOND;
                let most = match kind(what) {
                    Kind::Tool => PER_MINUTE,
                    Kind::Resource => READS_PER_MINUTE,
                };
                let all = most <= self.within(who, length, same_kind);
                let own = OWN_PER_MINUTE <= self.within(who, length, same);
                (all || what == What::Own && own, waits)
            }
            Reason::RateDay => {
                let counted = self.within(who, DAY + 5 * MINUTE, same_kind);
                (PER_DAY <= counted, waits)
            }
            Reason::Budget => {
                let month = self.calendar.month_of(self.now()).start;
                (BUDGET < self.spent(who, month) + cost, waits)
            }
            Reason::Cooldown => {
                let recent = 0 < self.within(who, COOLDOWN, same);
                (what == What::Cool && recent, waits)
            }
            // Who knows when a call ends? And that it does not depend on time, so it is exact.
            Reason::Concurrency => {
                let own = kind(what) == Kind::Tool && self.running_of(who) == RUNNING;
                let few = what == What::Few && self.running(same) == FEW_RUNNING;
                prop_assert!(own || few, "{:?}", denial);
                (true, denial.retry_after.is_none() && denial.is_retryable())
            }
            _ => (false, false),
        };
        prop_assert!(near || 0 < self.set_back, "{:?}", denial);
        prop_assert!(waits, "{:?}", denial);
        Ok(())
    }

    async fn counters_are_sums(&mut self) -> TestCaseResult {
        for (who, usage) in self.usage().await.into_iter().enumerate() {
            prop_assert_eq!(usage.running, self.running_of(who));
            let total = |kind_of: Kind| {
                let counts = |call: &&Call| {
                    call.who == who && kind(call.what) == kind_of && call.state != State::Released
                };
                self.calls.iter().filter(counts).count() as u64
            };
            prop_assert_eq!(usage.calls_total, total(Kind::Tool));
            prop_assert_eq!(usage.reads_total, total(Kind::Resource));
            if self.set_back != 0 {
                continue;
            }
            // By a clock that was never set back it is known what was spent, and, but for the
            // width of a bucket, what counts.
            let month = self.calendar.month_of(self.now()).start;
            prop_assert_eq!(usage.spent.0, self.spent(who, month));
            let counts = [
                (usage.calls_minute, Kind::Tool, MINUTE, SECOND),
                (usage.calls_day, Kind::Tool, DAY, 5 * MINUTE),
                (usage.reads_minute, Kind::Resource, MINUTE, SECOND),
                (usage.reads_day, Kind::Resource, DAY, 5 * MINUTE),
            ];
            for (counted, kind_of, length, width) in counts {
                let of_kind = |call: &Call| kind(call.what) == kind_of;
                prop_assert!(self.within(who, length, of_kind) <= counted);
                prop_assert!(counted <= self.within(who, length + width, of_kind));
            }
        }
        Ok(())
    }

    fn within(&self, who: usize, length: u64, counts: impl Fn(&Call) -> bool) -> u32 {
        let counts = |call: &&Call| {
            let recent = self.real < call.at + length;
            call.who == who && recent && call.state != State::Released && counts(call)
        };
        self.calls.iter().filter(counts).count() as u32
    }

    fn running(&self, counts: impl Fn(&Call) -> bool) -> u32 {
        let counts = |call: &&Call| call.state == State::Running && counts(call);
        self.calls.iter().filter(counts).count() as u32
    }

    fn running_of(&self, who: usize) -> u32 {
        self.running(|call| call.who == who && kind(call.what) == Kind::Tool)
    }

    fn spent(&self, who: usize, month: Timestamp) -> u64 {
        let counts = |call: &&Call| call.who == who && call.month == month;
        self.calls.iter().filter(counts).map(|call| call.cost).sum()
    }
}

fn kind(what: What) -> Kind {
    match what {
        What::Read => Kind::Resource,
        What::Plain | What::Own | What::Cool | What::Few => Kind::Tool,
    }
}

fn capability(prefix: &str, what: What) -> String {
    let name = format!("{what:?}").to_lowercase();
    match kind(what) {
        Kind::Tool => format!("tool/{prefix}{name}"),
        Kind::Resource => format!("resource/{prefix}{name}"),
    }
}

fn nothing(principal: &str) -> Usage {
    Usage {
        principal: principal.to_owned(),
        spent: Micros::ZERO,
        calls_minute: 0,
        calls_day: 0,
        reads_minute: 0,
        reads_day: 0,
        running: 0,
        calls_total: 0,
        reads_total: 0,
    }
}
