//! Counters that are lower than the record of calls, because somebody changed them, are raised.

use crate::common::{Database, call, database, now, options, run};
use governance::{
    CapabilityFacts, Charges, Micros, Policy, PolicySpec, QuotaStore, ReservationName,
    ReserveError, Timestamp,
};
use quota_postgres::{
    Comparison, LowerCounter, PostgresQuota, QuotaOptions, Recorded, RecordedUse, SETTLEMENTS,
    TimeSource, UseRecord, compare,
};
use std::{
    collections::BTreeMap,
    error::Error,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use testkit::GENEROUS;

/// 2026-01-11T00:00:00Z.
const MIDDLE: Timestamp = Timestamp(crate::common::JANUARY - 4 * 24 * 60 * 60 * 1_000);

const COOLDOWN: Duration = Duration::from_secs(24 * 60 * 60);

/// A tool whose uses are counted by themselves.
const ALONE: &str = "tool/alone";

const EVERYTHING: &str = "owlclaw_quota_principal, owlclaw_quota_counter, owlclaw_quota_bucket, \
    owlclaw_quota_reservation, owlclaw_quota_settlement, owlclaw_quota_orphan, \
    owlclaw_quota_dearest, owlclaw_quota_node";

fn policy() -> Policy {
    let facts = CapabilityFacts {
        cooldown: Some(COOLDOWN),
        ..CapabilityFacts::default()
    };
    Policy::new(PolicySpec {
        capabilities: BTreeMap::from([(ALONE.to_owned(), facts)]),
        ..PolicySpec::default()
    })
    .unwrap()
}

/// The calls that were made, as a ledger remembers them.
struct Book {
    time: TimeSource,
    calls: Mutex<Vec<Recorded>>,
    raised: Mutex<Vec<LowerCounter>>,
}

impl Book {
    fn new(time: TimeSource) -> Arc<Self> {
        Arc::new(Self {
            time,
            calls: Mutex::default(),
            raised: Mutex::default(),
        })
    }

    fn now(&self) -> Timestamp {
        match self.time {
            TimeSource::Callers => MIDDLE,
            TimeSource::Database => now(),
        }
    }

    async fn open(self: &Arc<Self>, url: &str) -> PostgresQuota {
        let options = QuotaOptions {
            time: self.time,
            ..options()
        };
        let record = Arc::clone(self) as Arc<dyn UseRecord>;
        PostgresQuota::open_with_record(url, options, record)
            .await
            .unwrap()
    }

    /// Notes that a call has begun; tells its place.
    fn begun(&self, charges: &Charges<'_>) -> usize {
        let mut calls = self.calls.lock().unwrap();
        calls.push(Recorded {
            principal: charges.principal.to_owned(),
            capability: charges.capability.to_owned(),
            kind: charges.kind,
            at: self.now(),
            calls: 1,
            ended: Micros::ZERO,
            open: charges.cost,
            dearest: charges.cost,
        });
        calls.len() - 1
    }

    fn ended(&self, place: usize, cost: Micros) {
        let mut calls = self.calls.lock().unwrap();
        calls[place].ended = cost;
        calls[place].open = Micros::ZERO;
        calls[place].dearest = cost;
    }

    /// Makes a whole call that costs 10.
    async fn call(&self, store: &PostgresQuota, charges: Charges<'_>) {
        let charges = Charges {
            now: self.now(),
            ..charges
        };
        let (reservation, _) = store.reserve(charges).await.unwrap();
        let place = self.begun(&charges);
        self.ended(place, Micros(10));
        store.settle(reservation, Micros(10));
    }

    fn raised(&self) -> Vec<(String, u64, u64)> {
        let raised = self.raised.lock().unwrap();
        let told = raised.iter();
        told.map(|it| {
            (
                format!("{} {}", it.principal, it.what),
                it.counted,
                it.recorded,
            )
        })
        .collect()
    }
}

impl UseRecord for Book {
    fn read(&self) -> Result<RecordedUse, Box<dyn Error + Send + Sync>> {
        let calls = self.calls.lock().unwrap().clone();
        Ok(RecordedUse::new(&policy(), self.now(), calls))
    }

    fn raised(&self, lower: &[LowerCounter]) {
        self.raised.lock().unwrap().extend_from_slice(lower);
    }
}

fn alone(principal: &str) -> Charges<'_> {
    Charges {
        capability: ALONE,
        cooldown: Some(COOLDOWN),
        ..call(principal)
    }
}

/// Amount spent, and calls in the last minute and the last day.
async fn counted(store: &PostgresQuota, principal: &str) -> (u64, u32, u32) {
    store
        .remaining(Charges {
            now: MIDDLE,
            ..call(principal)
        })
        .await
        .unwrap();
    let all = store
        .usage(&governance::Calendar::utc(), MIDDLE)
        .await
        .unwrap();
    let found = all.into_iter().find(|usage| usage.principal == principal);
    found.map_or((0, 0, 0), |it| (it.spent.0, it.calls_minute, it.calls_day))
}

async fn cools_down(store: &PostgresQuota, principal: &str) -> bool {
    let charges = Charges {
        now: MIDDLE,
        ..alone(principal)
    };
    matches!(
        store.reserve(charges).await,
        Err(ReserveError::Exhausted(_))
    )
}

#[test]
fn counters_that_were_changed_are_raised_when_a_node_begins() {
    let Some(database) = database() else { return };
    run(async {
        let book = Book::new(TimeSource::Callers);
        let store = book.open(&database.url).await;
        for _ in 0..3 {
            book.call(&store, call("a")).await;
        }
        book.call(&store, alone("a")).await;
        book.call(&store, call("b")).await;
        assert_eq!(counted(&store, "a").await, (40, 4, 4));
        store.close().await;
        assert_eq!(book.raised(), []);

        let whole = format!("TRUNCATE {EVERYTHING}");
        for change in [
            &whole,
            "TRUNCATE owlclaw_quota_principal",
            "TRUNCATE owlclaw_quota_bucket",
            "TRUNCATE owlclaw_quota_counter",
            "DELETE FROM owlclaw_quota_bucket",
            "DELETE FROM owlclaw_quota_counter WHERE scope <> 'tool'",
            "UPDATE owlclaw_quota_principal SET spent = 39 WHERE principal = 'a'",
            "UPDATE owlclaw_quota_bucket SET calls = calls - 1",
            "UPDATE owlclaw_quota_counter SET used_ms = 0",
            "UPDATE owlclaw_quota_principal SET month_start_ms = 0, month_end_ms = 1",
        ] {
            database.sql(change);
            let store = book.open(&database.url).await;
            assert_eq!(counted(&store, "a").await, (40, 4, 4), "{change}");
            assert_eq!(counted(&store, "b").await, (10, 1, 1), "{change}");
            assert!(cools_down(&store, "a").await, "{change}");
            store.close().await;
            assert_ne!(book.raised(), [], "{change}");
            book.raised.lock().unwrap().clear();
        }
        // What was not changed is not raised, and nobody is told of anything.
        let store = book.open(&database.url).await;
        store.close().await;
        assert_eq!(book.raised(), []);
    });
}

#[test]
fn of_two_nodes_that_begin_together_one_raises_a_counter() {
    let Some(database) = database() else { return };
    run(async {
        let book = Book::new(TimeSource::Callers);
        let store = book.open(&database.url).await;
        book.call(&store, call("a")).await;
        store.close().await;
        database.sql(&format!("TRUNCATE {EVERYTHING}"));
        let (one, other) = tokio::join!(book.open(&database.url), book.open(&database.url));
        assert_eq!(counted(&one, "a").await, (10, 1, 1));
        assert_eq!(counted(&other, "a").await, (10, 1, 1));
        let expected = [("a budget".to_owned(), 0, 10), ("a tool".to_owned(), 0, 1)];
        assert_eq!(book.raised(), expected);
    });
}

#[test]
fn a_comparison_tells_what_is_lower_and_changes_nothing() {
    let Some(database) = database() else { return };
    run(async {
        let book = Book::new(TimeSource::Callers);
        let told = async || {
            let recorded = book.read().unwrap();
            compare(&database.url, &recorded, TimeSource::Callers)
                .await
                .unwrap()
        };
        assert_eq!(told().await, None);
        let store = book.open(&database.url).await;
        book.call(&store, call("a")).await;
        assert_eq!(told().await, Some(Comparison::default()));

        // What the record charges and no node has settled yet counts; what runs is more than it says.
        let charges = Charges {
            now: MIDDLE,
            ..call("a")
        };
        let (running, _) = store.reserve(charges).await.unwrap();
        let place = book.begun(&charges);
        assert_eq!(told().await, Some(Comparison::default()));
        let ReservationName { node, sequence, .. } = store.name(&running).unwrap();
        book.ended(place, Micros(70));
        database.sql(&format!(
            "INSERT INTO {SETTLEMENTS} VALUES ('a', {node}, {sequence}, 70)"
        ));
        assert_eq!(told().await, Some(Comparison::default()));
        store.settled_on_record(running, Micros(70));
        assert_eq!(counted(&store, "a").await, (80, 2, 2));
        assert_eq!(told().await, Some(Comparison::default()));

        database.sql("UPDATE owlclaw_quota_principal SET spent = 79");
        let lower = LowerCounter {
            principal: "a".to_owned(),
            what: "budget".to_owned(),
            counted: 79,
            recorded: 80,
        };
        for _ in 0..2 {
            let expected = Comparison {
                is_emptied: false,
                lower: vec![lower.clone()],
            };
            assert_eq!(told().await, Some(expected));
        }
        database.sql("TRUNCATE owlclaw_quota_orphan");
        assert!(told().await.unwrap().is_emptied);
    });
}

#[test]
fn without_a_record_emptied_counters_count_again_when_a_node_with_one_has_raised_them() {
    let Some(database) = database() else { return };
    run(async {
        let book = Book::new(TimeSource::Database);
        let with = book.open(&database.url).await;
        let without = PostgresQuota::open(
            &database.url,
            QuotaOptions {
                max_wait: Duration::from_millis(700),
                ..options()
            },
        )
        .await
        .unwrap();
        book.call(&with, call("a")).await;
        with.close().await;
        without.reserve(call("a")).await.unwrap();
        for change in [
            "TRUNCATE owlclaw_quota_dearest",
            "DELETE FROM owlclaw_quota_principal",
        ] {
            database.sql(change);
            for _ in 0..2 {
                let refused = without.reserve(call("a")).await;
                assert!(
                    matches!(refused, Err(ReserveError::Unavailable(_))),
                    "{change}"
                );
            }
            book.open(&database.url).await.close().await;
            let end = Instant::now() + GENEROUS;
            while without.reserve(call("a")).await.is_err() {
                assert!(Instant::now() < end);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    });
}

/// Makes calls as long as they are admitted; tells what they cost.
async fn spend(book: &Book, store: &PostgresQuota, is_over: &AtomicBool) -> u64 {
    let mut spent = 0;
    loop {
        let charges = Charges {
            budget: Some(Micros(BUDGET)),
            ..call("a")
        };
        match store.reserve(charges).await {
            Ok((reservation, _)) => {
                let place = book.begun(&charges);
                tokio::time::sleep(Duration::from_millis(2)).await;
                book.ended(place, Micros(10));
                store.settle(reservation, Micros(10));
                spent += 10;
            }
            Err(ReserveError::Unavailable(_)) => {}
            Err(_) if is_over.load(Ordering::Relaxed) => return spent,
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

const BUDGET: u64 = 4_000;

#[test]
fn no_more_is_spent_than_the_budget_while_counters_are_emptied() {
    let Some(database) = database() else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let book = Book::new(TimeSource::Database);
        let is_over = Arc::new(AtomicBool::new(false));
        let stores = [
            Arc::new(book.open(&database.url).await),
            Arc::new(book.open(&database.url).await),
        ];
        let spenders: Vec<_> = (0..8)
            .map(|number| {
                let (book, is_over) = (Arc::clone(&book), Arc::clone(&is_over));
                let store = Arc::clone(&stores[number % 2]);
                tokio::spawn(async move { spend(&book, &store, &is_over).await })
            })
            .collect();
        empty_often(&database).await;
        is_over.store(true, Ordering::Relaxed);
        let mut spent = 0;
        for spender in spenders {
            spent += spender.await.unwrap();
        }
        assert!(spent <= BUDGET, "{spent}");
        // It was used up, but for what counts twice that ran while counters were raised.
        assert!(BUDGET - 3 * 8 * 10 <= spent, "{spent}");
        assert_ne!(book.raised(), []);
    });
}

async fn empty_often(database: &Database) {
    for tables in [
        EVERYTHING,
        "owlclaw_quota_principal",
        "owlclaw_quota_reservation, owlclaw_quota_counter",
    ] {
        tokio::time::sleep(Duration::from_millis(400)).await;
        // Whom the database makes give way where two wait for each other may be this one.
        database.sql(&format!(
            "DO $$ BEGIN LOOP BEGIN TRUNCATE {tables}; EXIT;
             EXCEPTION WHEN deadlock_detected THEN NULL; END; END LOOP; END $$"
        ));
        let end = Instant::now() + GENEROUS;
        while database.sql("SELECT count(*) FROM owlclaw_quota_generation") == "0" {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
}
