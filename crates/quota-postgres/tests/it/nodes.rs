//! Several nodes never admit more than one would.

use crate::common::{Database, call, database, now, open, options, reserve, run, usage};
use governance::{
    Charges, Kind, Micros, QuotaStore, RateLimits, Reason, ReservationName, ReserveError, Timestamp,
};
use quota_postgres::{PostgresQuota, PostgresReservation, QuotaOptions, SETTLEMENTS};
use std::{
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use testkit::GENEROUS;

const CALLERS: usize = 64;

/// Charges that limit a race, by the limit's name; the name is the principal's, too.
fn limited(by: &str) -> Charges<'_> {
    let rates = |per_minute, per_day| RateLimits {
        per_minute,
        per_day,
    };
    let plain = call(by);
    match by {
        "budget" => Charges {
            budget: Some(Micros(179)),
            ..plain
        },
        "many" => Charges {
            budget: Some(Micros(50_000)),
            ..plain
        },
        "minute" => Charges {
            rates: rates(Some(17), None),
            ..plain
        },
        "day" => Charges {
            rates: rates(None, Some(17)),
            ..plain
        },
        "own" => Charges {
            capability_rates: rates(Some(17), Some(40)),
            ..plain
        },
        "reads" => Charges {
            kind: Kind::Resource,
            rates: rates(Some(17), None),
            ..plain
        },
        "running" => Charges {
            max_running: Some(17),
            ..plain
        },
        "cooldown" => Charges {
            cooldown: Some(Duration::from_secs(3_600)),
            ..plain
        },
        _ => panic!("there is no limit called {by}"),
    }
}

async fn stores(url: &str, nodes: usize) -> Vec<Arc<PostgresQuota>> {
    let mut stores = Vec::new();
    for _ in 0..nodes {
        stores.push(Arc::new(open(url).await));
    }
    stores
}

#[test]
fn exactly_as_many_are_admitted_as_fit_by_several_nodes() {
    let Some(database) = database() else { return };
    run(async {
        let stores = stores(&database.url, 3).await;
        for limit in [
            "budget", "minute", "day", "own", "reads", "running", "cooldown",
        ] {
            let racers: Vec<_> = (0..CALLERS * 3)
                .map(|number| {
                    let store = Arc::clone(&stores[number % 3]);
                    tokio::spawn(async move { reserve(&store, limited(limit)).await })
                })
                .collect();
            let mut admitted = Vec::new();
            let mut reasons = Vec::new();
            for racer in racers {
                match racer.await.unwrap() {
                    Ok(reservation) => admitted.push(reservation),
                    Err(denial) => reasons.push(denial.reason),
                }
            }
            let reason = match limit {
                "budget" => Reason::Budget,
                "day" => Reason::RateDay,
                "running" => Reason::Concurrency,
                "cooldown" => Reason::Cooldown,
                _ => Reason::RateMinute,
            };
            let fit = if limit == "cooldown" { 1 } else { 17 };
            assert_eq!(admitted.len(), fit, "{limit}");
            assert!(reasons.iter().all(|it| *it == reason), "{reasons:?}");
        }
    });
}

#[test]
fn calls_of_a_capability_are_counted_over_all_principals() {
    let Some(database) = database() else { return };
    run(async {
        let stores = stores(&database.url, 2).await;
        let names: Vec<String> = (0..CALLERS).map(|number| format!("p{number}")).collect();
        let racers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let (store, name) = (Arc::clone(&stores[number % 2]), names[number].clone());
                tokio::spawn(async move {
                    let charges = Charges {
                        capability_max_running: Some(5),
                        ..call(&name)
                    };
                    reserve(&store, charges).await
                })
            })
            .collect();
        let mut admitted = Vec::new();
        for racer in racers {
            match racer.await.unwrap() {
                Ok(reservation) => admitted.push(reservation),
                Err(denial) => assert_eq!(denial.reason, Reason::Concurrency),
            }
        }
        assert_eq!(admitted.len(), 5);
        // One that ends makes room for one on whichever node.
        let ended = admitted.pop().unwrap();
        stores[0].settle(ended, Micros(3));
        usage(&stores[0], "p0").await;
        usage(&stores[1], "p0").await;
        let charges = Charges {
            capability_max_running: Some(5),
            ..call("another")
        };
        assert!(reserve(&stores[1], charges).await.is_ok());
        drop(admitted);
    });
}

/// A node in a process of its own, which is this program again.
struct Process {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Process {
    fn start(url: &str, task: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "nodes::a_process_of_its_own",
                "--ignored",
                "--nocapture",
            ])
            .env("QUOTA_TEST_URL", url)
            .env("QUOTA_TEST_TASK", task)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Text that the process prints after `word`.
    fn says(&mut self, word: &str) -> String {
        let mut line = String::new();
        while self.lines.read_line(&mut line).unwrap() != 0 {
            if let Some(rest) = line.trim().strip_prefix(word) {
                return rest.trim().to_owned();
            }
            line.clear();
        }
        panic!("it ended without saying {word}");
    }

    fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"g").unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn say(what: &str) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "\n{what}").unwrap();
    stdout.flush().unwrap();
}

fn wait_for_a_byte() {
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[ignore = "other tests run it, each in a process of its own"]
fn a_process_of_its_own() {
    let Ok(url) = std::env::var("QUOTA_TEST_URL") else {
        return;
    };
    let task = std::env::var("QUOTA_TEST_TASK").unwrap();
    run(async {
        let options = QuotaOptions {
            lease: Duration::from_millis(match task.as_str() {
                "race many" => 60_000,
                _ => 4_000,
            }),
            ..options()
        };
        let store = Arc::new(PostgresQuota::open(&url, options).await.unwrap());
        say("ready");
        match task.split_once(' ') {
            Some(("race", limit)) => {
                wait_for_a_byte();
                say(&format!("admitted {}", race(&store, limit).await));
                store.close().await;
            }
            Some(("hold", number)) => {
                let mut held = Vec::new();
                for _ in 0..number.parse().unwrap() {
                    held.push(reserve(&store, limited("running")).await.unwrap());
                }
                say("holding");
                // The thread that shows that this node lives is another one.
                wait_for_a_byte();
                drop(held);
            }
            _ => panic!("there is no task {task}"),
        }
    });
}

/// All that callers get until each of them is refused.
async fn race(store: &Arc<PostgresQuota>, limit: &str) -> usize {
    let racers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (store, limit) = (Arc::clone(store), limit.to_owned());
            tokio::spawn(async move {
                let mut admitted: Vec<PostgresReservation> = Vec::new();
                while let Ok(reservation) = reserve(&store, limited(&limit)).await {
                    admitted.push(reservation);
                }
                admitted.len()
            })
        })
        .collect();
    let mut admitted = 0;
    for racer in racers {
        admitted += racer.await.unwrap();
    }
    admitted
}

#[test]
fn exactly_as_many_are_admitted_as_fit_by_several_processes() {
    let Some(database) = database() else { return };
    for limit in ["budget", "minute"] {
        let mut processes: Vec<_> = (0..3)
            .map(|_| Process::start(&database.url, &format!("race {limit}")))
            .collect();
        for process in &mut processes {
            process.says("ready");
        }
        for process in &mut processes {
            process.go();
        }
        let admitted = processes
            .iter_mut()
            .map(|process| process.says("admitted").parse::<usize>().unwrap());
        assert_eq!(admitted.sum::<usize>(), 17, "{limit}");
    }
    assert_eq!(
        database.sql("SELECT spent FROM owlclaw_quota_principal WHERE principal = 'budget'"),
        "170"
    );
}

#[test]
fn what_a_killed_node_ran_no_longer_runs_and_has_cost_what_was_expected() {
    let Some(database) = database() else { return };
    let mut process = Process::start(&database.url, "hold 17");
    process.says("holding");
    run(async {
        let options = QuotaOptions {
            lease: Duration::from_secs(4),
            ..options()
        };
        let store = PostgresQuota::open(&database.url, options).await.unwrap();
        // As long as it lives, however long that is, nothing is freed.
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            let denial = reserve(&store, limited("running")).await.unwrap_err();
            assert_eq!(denial.reason, Reason::Concurrency);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        process.child.kill().unwrap();
        let until = Instant::now() + GENEROUS;
        let running = loop {
            assert!(Instant::now() < until, "a dead node's calls end");
            match reserve(&store, limited("running")).await {
                Ok(reservation) => break reservation,
                Err(denial) => assert_eq!(denial.reason, Reason::Concurrency),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let usage = usage(&store, "running").await.unwrap();
        assert_eq!((usage.running, usage.calls_day), (1, 18));
        assert_eq!(usage.spent, Micros(180));
        drop(running);
    });
}

#[test]
fn a_node_that_was_believed_dead_goes_on_under_another_name() {
    let Some(database) = database() else { return };
    run(async {
        let store = open(&database.url).await;
        let before = reserve(&store, limited("running")).await.unwrap();
        let node = "SELECT node FROM owlclaw_quota_node";
        let first = database.sql(node);
        let ended = format!("SELECT owlclaw_quota_end_node({first}, NULL)");
        assert_eq!(database.sql(&ended), "1");
        let after = reserve(&store, limited("running")).await.unwrap();
        let second = database.sql(node);
        assert!(!second.is_empty() && second != first);
        // It was charged when the node was believed dead, and nothing is charged twice.
        store.settle(before, Micros(1));
        store.settle(after, Micros(2));
        let usage = usage(&store, "running").await.unwrap();
        assert_eq!((usage.running, usage.spent), (0, Micros(12)));
    });
}

/// Puts on record what a call has cost, as the transaction does that stores its end.
fn put_on_record(database: &Database, name: &ReservationName, cost: u64) {
    database.sql(&format!(
        "INSERT INTO {SETTLEMENTS} VALUES ('{}', {}, {}, {cost})",
        name.principal, name.node, name.sequence
    ));
}

/// A call under a budget of 100 whose cost nobody knows.
fn unknown(principal: &str) -> Charges<'_> {
    Charges {
        cost: Micros::ZERO,
        may_cost: true,
        budget: Some(Micros(100)),
        ..call(principal)
    }
}

#[test]
fn recorded_costs_count_on_every_node_before_any_admission() {
    let Some(database) = database() else { return };
    run(async {
        let stores = stores(&database.url, 2).await;
        let running = reserve(&stores[0], unknown("a")).await.unwrap();
        let limited = Charges {
            capability_max_running: Some(1),
            ..unknown("b")
        };
        let refused = reserve(&stores[1], limited).await.unwrap_err();
        assert_eq!(refused.reason, Reason::Concurrency);
        // The node that ran it says nothing more.
        put_on_record(&database, &stores[0].name(&running).unwrap(), 80);
        drop(reserve(&stores[1], limited).await.unwrap());
        let left = stores[1].remaining(unknown("a")).await.unwrap();
        assert_eq!(
            (left.budget, left.held),
            (Some(Micros(20)), Some(Micros(80)))
        );
        // Room for another call there is not, as it may cost as much.
        let refused = reserve(&stores[1], unknown("a")).await.unwrap_err();
        assert_eq!(refused.reason, Reason::Budget);
        // What the node says later changes nothing.
        stores[0].settled_on_record(running, Micros(80));
        let usage = usage(&stores[0], "a").await.unwrap();
        assert_eq!((usage.running, usage.spent), (0, Micros(80)));
    });
}

#[test]
fn recorded_costs_of_a_dead_node_count_however_late() {
    let Some(database) = database() else { return };
    run(async {
        let store = open(&database.url).await;
        let dear = reserve(&store, unknown("a")).await.unwrap();
        put_on_record(&database, &store.name(&dear).unwrap(), 30);
        store.settled_on_record(dear, Micros(30));
        let held = Charges {
            cost: Micros(5),
            ..unknown("a")
        };
        let before = reserve(&store, held).await.unwrap();
        let late = reserve(&store, held).await.unwrap();
        assert_eq!(usage(&store, "a").await.unwrap().spent, Micros(90));
        put_on_record(&database, &store.name(&before).unwrap(), 40);
        let node = database.sql("SELECT node FROM owlclaw_quota_node");
        let ended = format!("SELECT owlclaw_quota_end_node({node}, NULL)");
        assert_eq!(database.sql(&ended), "1", "one of them was on record");
        let spent = async || {
            let usage = usage(&store, "a").await.unwrap();
            assert_eq!(usage.running, 0);
            usage.spent
        };
        assert_eq!(spent().await, Micros(75), "the other is taken to cost 5");
        put_on_record(&database, &store.name(&late).unwrap(), 20);
        assert_eq!(spent().await, Micros(90));
        // Once, and never again.
        store.settled_on_record(late, Micros(20));
        store.settled_on_record(before, Micros(40));
        assert_eq!(spent().await, Micros(90));
        assert_eq!(
            database.sql("SELECT count(*) FROM owlclaw_quota_orphan"),
            "0"
        );
    });
}

/// The tables of version 1 with a node that counts, and what it had counted: 30 spent, and two calls that
/// run and are expected to cost 20 each.
const VERSION_1: &str = "
    CREATE TABLE owlclaw_quota_migration (
        version int PRIMARY KEY, applied timestamptz NOT NULL DEFAULT clock_timestamp());
    INSERT INTO owlclaw_quota_migration (version) VALUES (1);
    CREATE FUNCTION owlclaw_quota_end_node(p_node bigint, p_beat bigint) RETURNS bigint
        LANGUAGE sql AS 'SELECT NULL::bigint';
    CREATE FUNCTION owlclaw_quota_tidy(p_most int) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
    INSERT INTO owlclaw_quota_node (secret, lease_ms) VALUES (7, 600000);
    CREATE FUNCTION pg_temp.ms(p timestamptz) RETURNS bigint LANGUAGE sql AS
        'SELECT floor(extract(epoch FROM p) * 1000)::bigint';
    INSERT INTO owlclaw_quota_principal SELECT 'a', pg_temp.ms(now()), pg_temp.ms(now()),
        pg_temp.ms(m AT TIME ZONE 'UTC'), pg_temp.ms((m + interval '1 month') AT TIME ZONE 'UTC'),
        70, NULL, NULL, 3, 0
        FROM date_trunc('month', now() AT TIME ZONE 'UTC') m;
    INSERT INTO owlclaw_quota_counter (principal, scope) VALUES ('a', 'tool');
    INSERT INTO owlclaw_quota_bucket
        SELECT 1, 1, elapsed_ms / 300000, 3 FROM owlclaw_quota_principal;
    INSERT INTO owlclaw_quota_reservation
        SELECT 1, n, 'a', 'tool/x', false, 20, month_start_ms, 1, NULL, elapsed_ms, NULL
        FROM owlclaw_quota_principal, generate_series(1, 2) n;
";

#[test]
fn counters_of_version_1_survive_the_upgrade() {
    let Some(database) = database() else { return };
    database.sql(include_str!("../../sql/0001_quota.sql"));
    database.sql(VERSION_1);
    run(async {
        let stores = stores(&database.url, 2).await;
        let counted = async || {
            let usage = usage(&stores[1], "a").await.unwrap();
            (usage.spent, usage.running)
        };
        assert_eq!(counted().await, (Micros(70), 2));
        let by_day = |most| Charges {
            budget: Some(Micros(100)),
            rates: RateLimits {
                per_day: Some(most),
                per_minute: None,
            },
            ..call("a")
        };
        let refused = reserve(&stores[0], by_day(3)).await.unwrap_err();
        assert_eq!(refused.reason, Reason::RateDay);
        let mut running = Vec::new();
        for _ in 0..3 {
            running.push(reserve(&stores[0], by_day(9)).await.unwrap());
        }
        let refused = reserve(&stores[1], by_day(9)).await.unwrap_err();
        assert_eq!(refused.reason, Reason::Budget);
        for reservation in running {
            stores[0].settle(reservation, Micros(0));
        }
        // What the node of version 1 ran is settled by the record, and by its end.
        let ran = ReservationName {
            principal: "a".into(),
            node: 1,
            sequence: 1,
        };
        put_on_record(&database, &ran, 5);
        assert_eq!(counted().await, (Micros(55), 1));
        assert_eq!(database.sql("SELECT owlclaw_quota_end_node(1, NULL)"), "1");
        assert_eq!(counted().await, (Micros(55), 0));
        put_on_record(&database, &ReservationName { sequence: 2, ..ran }, 30);
        assert_eq!(counted().await, (Micros(65), 0));
    });
}

#[test]
fn a_node_that_closes_leaves_nothing_running() {
    let Some(database) = database() else { return };
    run(async {
        let store = open(&database.url).await;
        let left = reserve(&store, limited("running")).await.unwrap();
        let settled = reserve(&store, limited("running")).await.unwrap();
        store.settle(settled, Micros(1));
        store.close().await;
        let rows = "SELECT (SELECT count(*) FROM owlclaw_quota_node),
            (SELECT count(*) FROM owlclaw_quota_reservation),
            (SELECT spent FROM owlclaw_quota_principal)";
        assert_eq!(database.sql(rows), "0|0|11");
        assert!(store.reserve(limited("running")).await.is_err());
        store.close().await;
        drop(left);
    });
}

#[test]
fn nodes_that_begin_together_make_the_tables_once() {
    let Some(database) = database() else { return };
    run(async {
        let nodes: Vec<_> = (0..6)
            .map(|_| {
                let url = database.url.clone();
                tokio::spawn(async move { open(&url).await })
            })
            .collect();
        for node in nodes {
            let store = node.await.unwrap();
            assert!(store.is_available());
        }
        assert_eq!(
            database.sql("SELECT version FROM owlclaw_quota_migration"),
            "1\n2\n3"
        );
        database.sql("INSERT INTO owlclaw_quota_migration (version) VALUES (99)");
        let newer = PostgresQuota::open(&database.url, options()).await;
        assert_eq!(
            newer.unwrap_err().to_string(),
            "the quota tables have version 99, and this program knows up to 3"
        );
    });
}

#[test]
fn a_node_with_a_wrong_clock_gains_nothing() {
    let Some(database) = database() else { return };
    run(async {
        let stores = stores(&database.url, 2).await;
        let hour = 60 * 60 * 1_000;
        for (number, wrong) in [
            -20 * 24 * hour,
            -hour,
            -61_000,
            0,
            61_000,
            hour,
            20 * 24 * hour,
        ]
        .into_iter()
        .enumerate()
        {
            let now = Timestamp(now().0.checked_add_signed(wrong).unwrap());
            for limit in ["minute", "cooldown"] {
                let charges = Charges {
                    now,
                    ..limited(limit)
                };
                let admitted = async || reserve(&stores[number % 2], charges).await.is_ok();
                // Three at each of the first five clocks, then two, then none.
                for attempt in 0..3 {
                    let fits = match limit {
                        "minute" => number * 3 + attempt < 17,
                        _ => number + attempt == 0,
                    };
                    assert_eq!(admitted().await, fits, "{limit} {wrong} {attempt}");
                }
            }
        }
        // Nobody knows where months begin for a node that is this far away.
        for wrong in [-100 * 24 * hour, 100 * 24 * hour] {
            let charges = Charges {
                now: Timestamp(now().0.checked_add_signed(wrong).unwrap()),
                ..call("a")
            };
            let error = stores[0].reserve(charges).await.unwrap_err();
            assert!(matches!(error, ReserveError::Unavailable(_)), "{error:?}");
        }
        assert!(reserve(&stores[0], call("a")).await.is_ok());
    });
}

#[test]
fn a_node_that_is_killed_while_it_counts_takes_nothing_with_it() {
    let Some(database) = database() else { return };
    // Its last transaction is committed or not, whatever it knew of that.
    let limits = "SELECT spent, (SELECT sum(calls) FROM owlclaw_quota_bucket WHERE span = 1),
        (SELECT count(*) FROM owlclaw_quota_reservation) FROM owlclaw_quota_principal";
    let mut process = Process::start(&database.url, "race many");
    let mut other = Process::start(&database.url, "race many");
    process.says("ready");
    other.says("ready");
    process.go();
    other.go();
    let end = Instant::now() + GENEROUS;
    let counted = |_| -> Vec<u64> {
        let row = database.sql(limits);
        row.split('|').flat_map(str::parse).collect()
    };
    while counted(()).first().is_none_or(|spent| *spent < 2_000) {
        assert!(Instant::now() < end, "they count");
    }
    process.child.kill().unwrap();
    let admitted: u64 = other.says("admitted").parse().unwrap();
    other.child.wait().unwrap();
    let counted = counted(());
    assert_eq!(counted[0], 50_000, "the rest was had by the other");
    assert_eq!(counted[1], 5_000);
    assert!(admitted < 5_000 && counted[2] == 5_000 - admitted);
}

#[test]
fn what_counts_no_longer_is_forgotten() {
    let Some(database) = database() else { return };
    run(async {
        let store = open(&database.url).await;
        let held = reserve(&store, call("held")).await.unwrap();
        for name in ["fresh", "old", "yesterday"] {
            drop(reserve(&store, call(name)).await.unwrap());
        }
        usage(&store, "fresh").await;
        let ago = "UPDATE owlclaw_quota_principal SET wall_ms = wall_ms - 3600000::bigint * ";
        database.sql(&format!("{ago} 24 * 63 WHERE principal IN ('held', 'old')"));
        database.sql(&format!("{ago} 26 WHERE principal = 'yesterday'"));
        let tidied = "SELECT owlclaw_quota_tidy(10)";
        assert_eq!(
            (database.sql(tidied), database.sql(tidied)),
            ("2".into(), "0".into())
        );
        let left = "SELECT principal, (SELECT count(*) FROM owlclaw_quota_bucket
            JOIN owlclaw_quota_counter c USING (counter) WHERE c.principal = p.principal)
            FROM owlclaw_quota_principal p ORDER BY 1";
        assert_eq!(database.sql(left), "fresh|2\nheld|2\nyesterday|0");
        assert_eq!(
            database.sql("SELECT count(*) FROM owlclaw_quota_counter WHERE principal = 'old'"),
            "0"
        );
        drop(held);
    });
}

#[test]
fn what_an_earlier_connection_still_sends_is_refused() {
    let Some(database) = database() else { return };
    run(async {
        let store = open(&database.url).await;
        let of_epoch = |less: u32| {
            let arrays = "'{}', ".repeat(22);
            database.sql(&format!(
                "DO $$ BEGIN
                    PERFORM owlclaw_quota_decide(node, epoch - {less}, {})
                        FROM owlclaw_quota_node;
                    CREATE TABLE accepted ();
                EXCEPTION WHEN SQLSTATE 'OWQ01' THEN CREATE TABLE refused ();
                END $$",
                arrays.trim_end_matches(", ")
            ));
            let accepted = database.sql("SELECT to_regclass('accepted') IS NOT NULL") == "t";
            database.sql("DROP TABLE IF EXISTS accepted, refused");
            accepted
        };
        assert!(of_epoch(0));
        assert!(!of_epoch(1));
        store.close().await;
    });
}
