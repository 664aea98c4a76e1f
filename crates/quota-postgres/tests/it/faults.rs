//! Behaviour under faults: limits hold, nothing leaks, and counting recovers.

use crate::{
    common::{Database, call, database, now, open, options, reserve, run, usage, utc},
    proxy::{Next, Proxy},
};
use governance::{Charges, Micros, QuotaStore, RateLimits, ReserveError};
use quota_postgres::{PostgresQuota, PostgresReservation, QuotaOptions};
use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use testkit::{GENEROUS, Postgres};

/// All that is counted for everybody: reservations, spent, calls in buckets of a minute.
const COUNTED: &str = "SELECT (SELECT count(*) FROM owlclaw_quota_reservation),
    (SELECT coalesce(sum(spent), 0) FROM owlclaw_quota_principal),
    (SELECT coalesce(sum(calls), 0) FROM owlclaw_quota_bucket WHERE span = 0),
    (SELECT coalesce(sum(calls_total), 0) FROM owlclaw_quota_principal)";

fn impatient() -> QuotaOptions {
    QuotaOptions {
        max_wait: Duration::from_millis(700),
        ..QuotaOptions::default()
    }
}

/// Every cause of an error, in words.
fn causes(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + GENEROUS;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn until_counted(database: &Database, expected: &str) {
    let mut last = String::new();
    until(expected, || {
        last = database.sql(COUNTED);
        last == expected
    });
}

/// Reserves with a store that gives up soon, on a machine that may be busy.
async fn at_last(store: &PostgresQuota) -> PostgresReservation {
    loop {
        match store.reserve(call("a")).await {
            Ok((reservation, _)) => return reservation,
            Err(ReserveError::Unavailable(_)) => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => panic!("{error:?}"),
        }
    }
}

async fn behind(database: &Database, options: QuotaOptions) -> (Proxy, PostgresQuota) {
    let port = database.cluster.port();
    let proxy = Proxy::to(port);
    let url = proxy.url(&database.url, port);
    let store = PostgresQuota::open(&url, options).await.unwrap();
    // What is asked for the first time is asked for in several steps.
    while store.remaining(call("nobody")).await.is_err() {}
    (proxy, store)
}

#[test]
fn a_reservation_that_is_lost_or_whose_answer_is_is_made_once() {
    let Some(database) = database() else { return };
    run(async {
        let (proxy, store) = behind(&database, options()).await;
        let expected = [("1|10|1|1", "0|4|1|1"), ("1|14|2|2", "0|8|2|2")];
        for (next, expected) in [Next::Lose, Next::LoseQuestion].into_iter().zip(expected) {
            proxy.next(next);
            let (kept, _) = store.reserve(call("a")).await.unwrap();
            assert!(proxy.is_done());
            assert_eq!(database.sql(COUNTED), expected.0);
            store.settle(kept, Micros(4));
            usage(&store, "a").await;
            assert_eq!(database.sql(COUNTED), expected.1);
        }
    });
}

#[test]
fn a_reservation_whose_answer_comes_too_late_is_released() {
    let Some(database) = database() else { return };
    for next in [Next::LoseAndRefuse, Next::Swallow] {
        run(async {
            let (proxy, store) = behind(&database, impatient()).await;
            proxy.next(next);
            let error = store.reserve(call("a")).await.unwrap_err();
            assert!(matches!(error, ReserveError::Unavailable(_)), "{error:?}");
            assert!(proxy.is_done());
            proxy.let_through();
            until_counted(&database, "0|0|0|0");
        });
    }
}

#[test]
fn an_ending_that_is_lost_or_whose_answer_is_counts_once() {
    let Some(database) = database() else { return };
    run(async {
        let (proxy, store) = behind(&database, options()).await;
        let (settled, _) = store.reserve(call("a")).await.unwrap();
        let (released, _) = store.reserve(call("a")).await.unwrap();
        let (lost, _) = store.reserve(call("a")).await.unwrap();
        let (other, _) = store.reserve(call("a")).await.unwrap();
        for (reservation, actual, next, expected) in [
            (settled, Some(Micros(3)), Next::Lose, "3|33|4|4"),
            (released, None, Next::Lose, "2|23|3|3"),
            (lost, Some(Micros(4)), Next::LoseQuestion, "1|17|3|3"),
        ] {
            proxy.next(next);
            match actual {
                Some(actual) => store.settle(reservation, actual),
                None => store.release(reservation),
            }
            until("it is lost", || proxy.is_done());
            // Asked after it was sent again.
            usage(&store, "a").await;
            assert_eq!(database.sql(COUNTED), expected);
        }
        drop(other);
    });
}

#[test]
fn endings_wait_for_the_database() {
    let Some(database) = database() else { return };
    run(async {
        let (proxy, store) = behind(&database, impatient()).await;
        let settled = at_last(&store).await;
        let released = at_last(&store).await;
        proxy.next(Next::LoseAndRefuse);
        assert!(store.reserve(call("a")).await.is_err());
        store.settle(settled, Micros(3));
        store.release(released);
        let end = Instant::now() + GENEROUS;
        while store.is_available() {
            assert!(
                Instant::now() < end,
                "it is noticed that the database is away"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let error = store.reserve(call("a")).await.unwrap_err();
        assert!(
            causes(&error).contains("has been away"),
            "{}",
            causes(&error)
        );
        proxy.let_through();
        until_counted(&database, "0|3|1|1");
        until("it is available", || store.is_available());
        drop(at_last(&store).await);
    });
}

#[test]
fn callers_that_go_take_nothing_with_them() {
    let Some(database) = database() else { return };
    run(async {
        let store = Arc::new(open(&database.url).await);
        let mut kept = Vec::new();
        for round in 0..20_u32 {
            let callers: Vec<_> = (0..32)
                .map(|_| {
                    let store = Arc::clone(&store);
                    tokio::spawn(async move { reserve(&store, call("a")).await.unwrap() })
                })
                .collect();
            // At each round they are at another place when they go.
            tokio::time::sleep(Duration::from_micros(u64::from(round * 300))).await;
            for (number, caller) in callers.iter().enumerate() {
                if number % 4 != 0 {
                    caller.abort();
                }
            }
            for caller in callers {
                if let Ok(reservation) = caller.await {
                    kept.push(reservation);
                }
            }
        }
        let number = kept.len();
        assert!((160..640).contains(&number), "{number} were kept");
        until_counted(
            &database,
            &format!("{number}|{}|{number}|{number}", number * 10),
        );
    });
}

#[test]
fn a_database_that_crashes_forgets_nothing_that_was_admitted() {
    const FIT: usize = 1_500;
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    run(async {
        let options = QuotaOptions {
            max_wait: Duration::from_secs(1),
            ..QuotaOptions::default()
        };
        let admitted = Arc::new(AtomicUsize::new(0));
        let mut callers = Vec::new();
        let mut stores = Vec::new();
        for _ in 0..2 {
            let store = PostgresQuota::open(&postgres.url(), options.clone()).await;
            let store = Arc::new(store.unwrap());
            for number in 0..24 {
                let (store, admitted) = (Arc::clone(&store), Arc::clone(&admitted));
                callers.push(tokio::spawn(async move {
                    loop {
                        let charges = Charges {
                            budget: Some(Micros(FIT as u64 * 10)),
                            ..call("a")
                        };
                        match store.reserve(charges).await {
                            Ok((reservation, _)) => {
                                admitted.fetch_add(1, Ordering::SeqCst);
                                match number % 2 {
                                    0 => store.settle(reservation, Micros(10)),
                                    _ => drop(reservation),
                                }
                            }
                            Err(ReserveError::Exhausted(_)) => return,
                            Err(ReserveError::Full) => panic!("a database has no bound"),
                            Err(ReserveError::Unavailable(_)) => {
                                tokio::time::sleep(Duration::from_millis(5)).await;
                            }
                        }
                    }
                }));
            }
            stores.push(store);
        }
        for after in [200, 700] {
            while admitted.load(Ordering::SeqCst) < after {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            postgres = tokio::task::spawn_blocking(move || {
                postgres.kill();
                std::thread::sleep(Duration::from_millis(if after == 200 { 50 } else { 1_300 }));
                postgres.restart();
                postgres
            })
            .await
            .unwrap();
        }
        // What one has reserved and not got is released, after which others get it: those who were
        // refused meanwhile try once more.
        for caller in callers {
            caller.await.unwrap();
        }
        let charges = Charges {
            budget: Some(Micros(FIT as u64 * 10)),
            ..call("a")
        };
        let end = Instant::now() + GENEROUS;
        while admitted.load(Ordering::SeqCst) < FIT {
            assert!(Instant::now() < end, "what nobody got is released");
            if let Ok((reservation, _)) = stores[0].reserve(charges).await {
                admitted.fetch_add(1, Ordering::SeqCst);
                stores[0].settle(reservation, Micros(10));
            }
        }
        assert!(stores[1].reserve(charges).await.is_err());
        for store in &stores {
            store.close().await;
        }
        assert_eq!(admitted.load(Ordering::SeqCst), FIT);
        let counted = postgres.sql(COUNTED);
        let fit = FIT * 10;
        assert!(counted.starts_with(&format!("0|{fit}|")), "{counted}");
        assert!(counted.ends_with(&format!("|{FIT}")), "{counted}");
    });
}

#[test]
fn a_database_that_hangs_keeps_nobody_waiting() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    run(async {
        let store = PostgresQuota::open(&postgres.url(), impatient())
            .await
            .unwrap();
        drop(at_last(&store).await);
        postgres.pause();
        let began = Instant::now();
        assert!(store.reserve(call("a")).await.is_err());
        assert!(began.elapsed() < GENEROUS / 2, "{:?}", began.elapsed());
        until("it is noticed", || !store.is_available());
        let error = store.reserve(call("a")).await.unwrap_err();
        assert!(
            causes(&error).contains("has been away"),
            "{}",
            causes(&error)
        );
        assert!(store.usage(utc(), now()).await.is_err());
        postgres.resume();
        until("it is back", || store.is_available());
        drop(at_last(&store).await);
        until("nothing runs", || {
            postgres.sql(COUNTED).starts_with("0|20|2|2")
        });
    });
}

#[test]
fn nobody_waits_in_a_circle() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    run(async {
        let mut callers = Vec::new();
        let mut stores = Vec::new();
        for node in 0..4_u64 {
            let store = Arc::new(
                PostgresQuota::open(&postgres.url(), options())
                    .await
                    .unwrap(),
            );
            stores.push(Arc::clone(&store));
            for number in 0..24_u64 {
                let store = Arc::clone(&store);
                callers.push(tokio::spawn(async move {
                    let mut random = node * 1_000 + number + 1;
                    let mut spent = [0; 8];
                    for _ in 0..40 {
                        // Knuth's constants.
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        let draw = |shift: u32, of: u64| (random >> shift) % of;
                        let who = draw(33, 8) as usize;
                        let charges = Charges {
                            capability: ["tool/a", "tool/b", "tool/c"][draw(37, 3) as usize],
                            capability_max_running: (draw(41, 2) == 0).then_some(1_000),
                            capability_rates: RateLimits {
                                per_minute: (draw(43, 2) == 0).then_some(1_000_000),
                                per_day: None,
                            },
                            ..call(["a", "b", "c", "d", "e", "f", "g", "h"][who])
                        };
                        let reservation = reserve(&store, charges).await.unwrap();
                        match draw(47, 4) {
                            0 => store.release(reservation),
                            1 => {
                                drop(reservation);
                                spent[who] += 10;
                            }
                            _ => {
                                store.settle(reservation, Micros(draw(51, 30)));
                                spent[who] += draw(51, 30);
                            }
                        }
                    }
                    spent
                }));
            }
        }
        let mut spent = [0; 8];
        for caller in callers {
            for (sum, one) in spent.iter_mut().zip(caller.await.unwrap()) {
                *sum += one;
            }
        }
        for store in &stores {
            store.close().await;
        }
        let expected = spent.map(|it| it.to_string()).join("\n");
        assert_eq!(
            postgres.sql("SELECT spent FROM owlclaw_quota_principal ORDER BY principal"),
            expected
        );
        assert!(postgres.sql(COUNTED).starts_with("0|"));
        let log = postgres.log();
        assert!(!log.contains("deadlock"), "{log}");
    });
}

#[test]
fn only_so_many_are_open_at_once() {
    let Some(database) = database() else { return };
    run(async {
        let options = QuotaOptions {
            max_open: 3,
            ..options()
        };
        let store = PostgresQuota::open(&database.url, options).await.unwrap();
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(store.reserve(call("a")).await.unwrap().0);
        }
        let error = store.reserve(call("a")).await.unwrap_err();
        assert!(
            causes(&error).contains("3 reservations"),
            "{}",
            causes(&error)
        );
        // Each of the ways in which one ends makes room, and so does a refusal.
        for way in 0..3 {
            let ended = open.pop().unwrap();
            match way {
                0 => store.settle(ended, Micros(1)),
                1 => store.release(ended),
                _ => drop(ended),
            }
            usage(&store, "a").await;
            let nothing = Charges {
                budget: Some(Micros(0)),
                ..call("a")
            };
            for _ in 0..4 {
                let refused = store.reserve(nothing).await.unwrap_err();
                assert!(matches!(refused, ReserveError::Exhausted(_)));
            }
            open.insert(0, store.reserve(call("a")).await.unwrap().0);
            assert!(matches!(
                store.reserve(call("a")).await,
                Err(ReserveError::Unavailable(_))
            ));
        }
    });
}

#[test]
fn passwords_do_not_show() {
    let Some(database) = database() else { return };
    let port = database.cluster.port();
    let wrong = format!("postgres://owlclaw:hunter2-is-wrong@127.0.0.1:{port}/owlclaw");
    let rows = [
        wrong.as_str(),
        "postgres://owlclaw:hunter2@127.0.0.1:1/owlclaw",
        "postgres://owlclaw:hunter2@[nowhere",
        "host=127.0.0.1 password=hunter2 nonsense=hunter2",
        "postgres://owlclaw:hunter2@127.0.0.1:1/owlclaw?sslmode=require&connect_timeout=hunter2",
    ];
    run(async {
        for url in rows {
            let error = PostgresQuota::open(url, impatient()).await.unwrap_err();
            let words = format!("{error:?} {}", causes(&error));
            assert!(!words.contains("hunter2"), "{words}");
        }
        let store = open(&database.url).await;
        let (reservation, _) = store.reserve(call("a")).await.unwrap();
        let words = format!("{store:?} {store:#?} {reservation:?}");
        assert!(!words.contains(database.cluster.password()), "{words}");
    });
}
