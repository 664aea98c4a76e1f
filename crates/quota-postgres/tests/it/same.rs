//! PostgreSQL and memory give the same answers.

use crate::common::{JANUARY, call, database, run, told_the_time, utc};
use governance::{
    Charges, Kind, MemoryQuota, MemoryReservation, Micros, QuotaStore, RateLimits, ReserveError,
    Timestamp, Usage,
};
use proptest::{prelude::*, test_runner::TestCaseResult};
use quota_postgres::{PostgresQuota, PostgresReservation};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;

#[derive(Clone, Debug)]
enum Step {
    Reserve { who: usize, what: usize, cost: u64 },
    Remaining { who: usize, what: usize },
    Settle(usize, u64),
    Release(usize),
    Drop(usize),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Most of what can go wrong happens where a window ends.
    let span = prop_oneof![
        0..3 * SECOND,
        MINUTE - 3 * SECOND..MINUTE + 2 * SECOND,
        0..2 * MINUTE,
        DAY - 6 * MINUTE..DAY + 6 * MINUTE,
        0..20 * DAY,
    ];
    prop_oneof![
        10 => (0..2_usize, 0..5_usize, 0..8_u64)
            .prop_map(|(who, what, cost)| Step::Reserve { who, what, cost: cost * 5 }),
        1 => (0..2_usize, 0..5_usize).prop_map(|(who, what)| Step::Remaining { who, what }),
        3 => (any::<usize>(), 0..60_u64).prop_map(|(index, cost)| Step::Settle(index, cost)),
        2 => any::<usize>().prop_map(Step::Release),
        1 => any::<usize>().prop_map(Step::Drop),
        4 => span.prop_map(Step::Pass),
    ]
}

struct Open {
    who: usize,
    what: usize,
    cost: u64,
    at: u64,
    memory: MemoryReservation,
    postgres: PostgresReservation,
}

struct World<'a> {
    memory: MemoryQuota,
    postgres: &'a PostgresQuota,
    principals: [String; 2],
    capabilities: [String; 5],
    now: u64,
    open: Vec<Open>,
    /// The last use that was admitted of each capability by each principal, by its place in time.
    last: [[u64; 5]; 2],
}

impl<'a> World<'a> {
    fn new(postgres: &'a PostgresQuota) -> Self {
        static CASE: AtomicU32 = AtomicU32::new(0);
        let case = CASE.fetch_add(1, Ordering::Relaxed);
        let names = [
            "tool/plain",
            "tool/own",
            "tool/cool",
            "tool/few",
            "resource/r",
        ];
        Self {
            memory: MemoryQuota::default(),
            postgres,
            principals: ["a", "b"].map(|name| format!("{name} {case}")),
            capabilities: names.map(|name| format!("{name} {case}")),
            now: JANUARY,
            open: Vec::new(),
            last: [[0; 5]; 2],
        }
    }

    fn charges(&self, who: usize, what: usize, cost: u64) -> Charges<'_> {
        let plain = Charges {
            capability: &self.capabilities[what],
            cost: Micros(cost),
            may_cost: cost != 0 || what == 0,
            // Costs are such that it is often spent exactly.
            budget: Some(Micros(60)),
            rates: RateLimits {
                per_minute: Some(5),
                per_day: Some(12),
            },
            max_running: Some(6),
            now: Timestamp(self.now),
            ..call(&self.principals[who])
        };
        match what {
            1 => Charges {
                capability_rates: RateLimits {
                    per_minute: Some(2),
                    per_day: Some(6),
                },
                ..plain
            },
            2 => Charges {
                cooldown: Some(Duration::from_micros(1_499_001)),
                ..plain
            },
            3 => Charges {
                capability_max_running: Some(3),
                ..plain
            },
            4 => Charges {
                kind: Kind::Resource,
                rates: RateLimits {
                    per_minute: Some(2),
                    per_day: None,
                },
                ..plain
            },
            _ => plain,
        }
    }

    async fn step(&mut self, step: Step) -> TestCaseResult {
        match step {
            Step::Pass(millis) => self.now += millis,
            Step::Reserve { who, what, cost } => {
                let charges = self.charges(who, what, cost);
                let memory = self.memory.reserve(charges).await;
                let postgres = self.postgres.reserve(charges).await;
                match (memory, postgres) {
                    (Ok((memory, left)), Ok((postgres, also_left))) => {
                        prop_assert_eq!(left, also_left);
                        self.last[who][what] = self.now;
                        self.open.push(Open {
                            who,
                            what,
                            cost,
                            at: self.now,
                            memory,
                            postgres,
                        });
                    }
                    (Err(ReserveError::Exhausted(one)), Err(ReserveError::Exhausted(other))) => {
                        prop_assert_eq!(one, other);
                    }
                    (memory, postgres) => {
                        prop_assert!(false, "{memory:?}, but {postgres:?}");
                    }
                }
            }
            Step::Remaining { who, what } => {
                let charges = self.charges(who, what, 5);
                let memory = self.memory.remaining(charges).await.unwrap();
                let postgres = self.postgres.remaining(charges).await.unwrap();
                prop_assert_eq!(memory, postgres);
            }
            Step::Settle(index, cost) if !self.open.is_empty() => {
                let open = self.open.swap_remove(index % self.open.len());
                self.memory.settle(open.memory, Micros(cost));
                self.postgres.settle(open.postgres, Micros(cost));
            }
            Step::Release(index) if !self.open.is_empty() => {
                let open = self.open.swap_remove(index % self.open.len());
                let is_last = self.last[open.who][open.what] == open.at;
                // Memory forgets who came before one that came before.
                if open.what == 2 && !is_last {
                    self.memory.settle(open.memory, Micros::ZERO);
                    self.postgres.settle(open.postgres, Micros::ZERO);
                } else {
                    self.memory.release(open.memory);
                    self.postgres.release(open.postgres);
                }
            }
            Step::Drop(index) if !self.open.is_empty() => {
                let open = self.open.swap_remove(index % self.open.len());
                drop(open.postgres);
                self.memory.settle(open.memory, Micros(open.cost));
            }
            Step::Settle(..) | Step::Release(_) | Step::Drop(_) => {}
        }
        Ok(())
    }

    async fn usage(&self) -> TestCaseResult {
        // What was asked for before is answered first, and so is what has ended before.
        self.postgres
            .remaining(self.charges(0, 0, 0))
            .await
            .unwrap();
        let now = Timestamp(self.now);
        let mut postgres = self.postgres.usage(utc(), now).await.unwrap();
        postgres.retain(|usage| self.principals.contains(&usage.principal));
        let memory: Vec<Usage> = self.memory.usage(utc(), now).await.unwrap();
        prop_assert_eq!(memory, postgres);
        Ok(())
    }
}

#[test]
fn memory_and_the_database_answer_alike() {
    let Some(database) = database() else { return };
    let store = run(PostgresQuota::open(&database.url, told_the_time())).unwrap();
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(24)
    };
    proptest!(config, |(steps in proptest::collection::vec(step(), 0..80))| {
        run(async {
            let mut world = World::new(&store);
            for step in steps {
                world.step(step).await?;
            }
            world.usage().await
        })?;
    });
    run(store.close());
}
