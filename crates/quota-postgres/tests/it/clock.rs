//! A clock that is set back frees nothing, and blocks nobody for good.

use crate::common::{JANUARY, call, database, run, told_the_time, utc};
use governance::{Charges, Micros, QuotaStore, RateLimits, Reason, ReserveError, Timestamp};
use proptest::{prelude::*, test_runner::TestCaseResult};
use quota_postgres::{PostgresQuota, PostgresReservation};
use std::sync::atomic::{AtomicU32, Ordering};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;
const PER_MINUTE: u32 = 4;
const PER_DAY: u32 = 9;
const OWN_PER_MINUTE: u32 = 2;
const BUDGET: u64 = 100;

#[derive(Clone, Debug)]
enum Step {
    Admit { own: bool, cost: u64 },
    Settle(usize, u64),
    Release(usize),
    Pass(u64),
    SetBack(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let span = prop_oneof![
        0..3 * SECOND,
        MINUTE - 3 * SECOND..MINUTE + 2 * SECOND,
        0..2 * MINUTE,
        DAY - 6 * MINUTE..DAY + 6 * MINUTE,
        0..20 * DAY,
    ];
    prop_oneof![
        8 => (any::<bool>(), 0..40_u64).prop_map(|(own, cost)| Step::Admit { own, cost }),
        2 => (any::<usize>(), 0..40_u64).prop_map(|(index, cost)| Step::Settle(index, cost)),
        1 => any::<usize>().prop_map(Step::Release),
        4 => span.clone().prop_map(Step::Pass),
        1 => span.prop_map(Step::SetBack),
    ]
}

/// Actual course of a call, kept as plainly as can be.
#[derive(Clone, Copy)]
struct Call {
    real: u64,
    own: bool,
    month: Timestamp,
    cost: u64,
    is_released: bool,
}

struct World<'a> {
    store: &'a PostgresQuota,
    principal: String,
    real: u64,
    set_back: u64,
    /// The month that began last, by a clock that may have been set back since.
    month: Timestamp,
    calls: Vec<Call>,
    open: Vec<(usize, PostgresReservation)>,
}

impl World<'_> {
    fn now(&self) -> Timestamp {
        Timestamp(self.real - self.set_back)
    }

    fn within(&self, length: u64, own_only: bool) -> u32 {
        let counts =
            |it: &&Call| !it.is_released && self.real < it.real + length && (it.own || !own_only);
        self.calls.iter().filter(counts).count() as u32
    }

    async fn admit(&mut self, own: bool, cost: u64) -> TestCaseResult {
        let now = self.now();
        self.month = self.month.max(utc().month_of(now).start);
        let plain = Charges {
            cost: Micros(cost),
            budget: Some(Micros(BUDGET)),
            rates: RateLimits {
                per_minute: Some(PER_MINUTE),
                per_day: Some(PER_DAY),
            },
            now,
            ..call(&self.principal)
        };
        let charges = if own {
            Charges {
                capability: "tool/own",
                capability_rates: RateLimits {
                    per_minute: Some(OWN_PER_MINUTE),
                    per_day: None,
                },
                ..plain
            }
        } else {
            plain
        };
        match self.store.reserve(charges).await {
            Ok((reservation, _)) => {
                self.open.push((self.calls.len(), reservation));
                self.calls.push(Call {
                    real: self.real,
                    own,
                    month: self.month,
                    cost,
                    is_released: false,
                });
                prop_assert!(self.within(MINUTE, false) <= PER_MINUTE);
                prop_assert!(self.within(DAY, false) <= PER_DAY);
                prop_assert!(self.within(MINUTE, true) <= OWN_PER_MINUTE || !own);
                if 0 < cost && self.set_back < 28 * DAY {
                    let of_this = |it: &&Call| it.month == self.month && !it.is_released;
                    let spent: u64 = self.calls.iter().filter(of_this).map(|it| it.cost).sum();
                    prop_assert!(spent <= BUDGET, "{}", spent);
                }
            }
            Err(ReserveError::Exhausted(denial)) => {
                let near = match denial.reason {
                    Reason::RateMinute => {
                        PER_MINUTE <= self.within(MINUTE + SECOND, false)
                            || own && OWN_PER_MINUTE <= self.within(MINUTE + SECOND, true)
                    }
                    Reason::RateDay => PER_DAY <= self.within(DAY + 5 * MINUTE, false),
                    Reason::Budget => true,
                    _ => false,
                };
                prop_assert!(near || 0 < self.set_back, "{:?}", denial);
                prop_assert!(denial.retry_after.is_some_and(|wait| !wait.is_zero()));
            }
            Err(error) => prop_assert!(false, "{:?}", error),
        }
        Ok(())
    }

    async fn step(&mut self, step: Step) -> TestCaseResult {
        match step {
            Step::Pass(millis) => self.real += millis,
            Step::SetBack(millis) => self.set_back = (self.set_back + millis).min(JANUARY / 2),
            Step::Admit { own, cost } => self.admit(own, cost).await?,
            Step::Settle(index, cost) if !self.open.is_empty() => {
                let (call, reservation) = self.open.swap_remove(index % self.open.len());
                let cost = cost.min(self.calls[call].cost);
                self.calls[call].cost = cost;
                self.store.settle(reservation, Micros(cost));
            }
            Step::Release(index) if !self.open.is_empty() => {
                let (call, reservation) = self.open.swap_remove(index % self.open.len());
                self.calls[call].is_released = true;
                self.store.release(reservation);
            }
            Step::Settle(..) | Step::Release(_) => {}
        }
        Ok(())
    }
}

#[test]
fn no_limit_is_exceeded_by_a_clock_that_is_set_back() {
    static CASE: AtomicU32 = AtomicU32::new(0);
    let Some(database) = database() else { return };
    let store = run(PostgresQuota::open(&database.url, told_the_time())).unwrap();
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(24)
    };
    proptest!(config, |(steps in proptest::collection::vec(step(), 0..80))| {
        run(async {
            let mut world = World {
                store: &store,
                principal: format!("a {}", CASE.fetch_add(1, Ordering::Relaxed)),
                real: JANUARY,
                set_back: 0,
                month: Timestamp(0),
                calls: Vec::new(),
                open: Vec::new(),
            };
            for step in steps {
                world.step(step).await?;
            }
            Ok::<_, TestCaseError>(())
        })?;
    });
    run(store.close());
}

#[test]
fn a_clock_set_back_blocks_nobody_for_good() {
    let Some(database) = database() else { return };
    run(async {
        let store = PostgresQuota::open(&database.url, told_the_time())
            .await
            .unwrap();
        let ask = async |principal: &'static str, now: u64| {
            let charges = Charges {
                budget: Some(Micros(25)),
                rates: RateLimits {
                    per_minute: Some(1),
                    per_day: None,
                },
                now: Timestamp(now),
                ..call(principal)
            };
            match store.reserve(charges).await {
                Ok((reservation, _)) => {
                    drop(reservation);
                    Ok(())
                }
                Err(ReserveError::Exhausted(denial)) => Err(denial),
                Err(error) => panic!("{error:?}"),
            }
        };
        let february = JANUARY + 17 * DAY;
        ask("a", february + 5).await.unwrap();
        let back = february - 10 * DAY;
        let reason = async |principal, now| ask(principal, now).await.unwrap_err().reason;
        assert_eq!(reason("a", back).await, Reason::RateMinute);
        ask("a", back + 61 * SECOND).await.unwrap();
        // January has no budget of its own any more.
        assert_eq!(reason("a", february - 9 * DAY).await, Reason::Budget);
        ask("a", february + 28 * DAY).await.unwrap();
        // A clock that runs wild and is put right: what was spent meanwhile and before is spent.
        ask("b", JANUARY).await.unwrap();
        ask("b", JANUARY + 4_000 * DAY).await.unwrap();
        let denial = ask("b", JANUARY + MINUTE).await.unwrap_err();
        assert_eq!(denial.reason, Reason::Budget);
        let wait = denial.retry_after.unwrap().as_millis() as u64;
        assert_eq!(wait, february - JANUARY - MINUTE);
    });
}
