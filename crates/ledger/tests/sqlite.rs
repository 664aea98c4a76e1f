//! The ledger in a file: what is refused, what is found again, what a reader sees.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ledger::{
    Bucket, CallId, Counts, Durability, End, Filter, Kind, LedgerReader, OpenError, Outcome,
    ReadLedger, RecordError, Recorder, RecorderOptions, SqliteLedger, Start, Statistics,
    StatisticsQuery, Trust, Usage, verify,
};
use rusqlite::Connection;
use std::{fs, path::Path, time::Duration};

const LONG: Duration = Duration::from_secs(30);
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn open(path: &Path) -> Recorder {
    let store = SqliteLedger::open(path, Durability::Strict).unwrap();
    Recorder::spawn(store, RecorderOptions::default()).unwrap()
}

fn start<'a>(at_us: u64, principal: &'a str, capability: &'a str) -> Start<'a> {
    Start {
        arguments: r#"{"a":1}"#,
        estimated_cost_micros: 10,
        ..Start::new(CallId::new(at_us), at_us, principal, Kind::Tool, capability)
    }
}

fn end(outcome: Outcome<&str>, cost_micros: u64) -> End<'_> {
    End {
        result: r#"{"b":2}"#,
        cost_micros,
        ..End::new(outcome)
    }
}

async fn call(recorder: &Recorder, start: &Start<'_>, end: &End<'_>) {
    recorder
        .begin(start)
        .await
        .unwrap()
        .finish(end)
        .await
        .unwrap();
}

async fn close(recorder: &Recorder) {
    tokio::time::timeout(LONG, recorder.close())
        .await
        .unwrap()
        .unwrap();
}

#[test]
fn files_that_are_not_ours_are_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);

    let text = "this is a letter, and no database at all. ".repeat(100);
    fs::write(file("letter"), &text).unwrap();
    fs::write(file("scrap"), "x").unwrap();
    let foreign = Connection::open(file("foreign")).unwrap();
    foreign
        .execute_batch("CREATE TABLE theirs (a); PRAGMA user_version = 1")
        .unwrap();
    drop(SqliteLedger::open(file("newer"), Durability::Strict).unwrap());
    Connection::open(file("newer"))
        .unwrap()
        .pragma_update(None, "user_version", 5)
        .unwrap();

    for name in ["letter", "scrap", "foreign"] {
        let error = SqliteLedger::open(file(name), Durability::Strict).unwrap_err();
        assert!(
            matches!(error, OpenError::NotALedger(_)),
            "{name}: {error:?}"
        );
        let error = LedgerReader::open(file(name)).unwrap_err();
        assert!(
            matches!(error, OpenError::NotALedger(_)),
            "{name}: {error:?}"
        );
    }
    let error = SqliteLedger::open(file("newer"), Durability::Strict).unwrap_err();
    assert!(
        matches!(
            error,
            OpenError::Newer {
                found: 5,
                known: 4,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(matches!(
        LedgerReader::open(file("none")),
        Err(OpenError::Missing(_))
    ));
    assert_eq!(fs::read_to_string(file("letter")).unwrap(), text);
    assert_eq!(fs::read_to_string(file("scrap")).unwrap(), "x");
    let theirs: i64 = foreign
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .unwrap();
    assert_eq!(theirs, 1);
}

#[test]
fn a_trigger_that_an_attacker_has_put_there_does_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    let planted = Connection::open(&path).unwrap();
    let sql = "CREATE TRIGGER free AFTER INSERT ON call BEGIN DELETE FROM usage_day; END;
        CREATE TRIGGER gone AFTER INSERT ON usage_day BEGIN DELETE FROM usage_day; END;";
    planted.execute_batch(sql).unwrap();
    runtime().block_on(async {
        let recorder = open(&path);
        for at_us in [DAY_US, DAY_US + 1] {
            let start = start(at_us, "ana", "tool/x");
            call(&recorder, &start, &end(Outcome::Succeeded, 10)).await;
        }
        close(&recorder).await;
    });
    let days = "SELECT count(*) FROM usage_day";
    let days: i64 = planted.query_row(days, [], |row| row.get(0)).unwrap();
    assert_ne!(days, 0);
    let mut reader = LedgerReader::open(&path).unwrap();
    let report = verify(&mut reader, Trust::default()).unwrap();
    assert_eq!(report.first_wrong, None);
}

#[test]
fn what_an_insertion_does_not_store_is_not_taken_for_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    runtime().block_on(async {
        let recorder = open(&path);
        call(
            &recorder,
            &start(DAY_US, "ana", "tool/x"),
            &end(Outcome::Succeeded, 10),
        )
        .await;
        close(&recorder).await;
        // Every further row conflicts with the first one, and is left out without an error.
        let planted = Connection::open(&path).unwrap();
        let sql = "ALTER TABLE entry_group RENAME TO was;
            CREATE TABLE entry_group (first_sequence INTEGER PRIMARY KEY, count, hash, body, id,
                trap DEFAULT 1 UNIQUE ON CONFLICT IGNORE);
            INSERT INTO entry_group SELECT *, iif(first_sequence = 1, 1, NULL) FROM was;
            DROP TABLE was;";
        planted.execute_batch(sql).unwrap();
        let store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        let options = RecorderOptions {
            max_wait: Duration::from_secs(1),
            ..RecorderOptions::default()
        };
        let recorder = Recorder::spawn(store, options).unwrap();
        let begun = recorder.begin(&start(DAY_US, "bob", "tool/x")).await;
        assert_eq!(begun.map(drop), Err(RecordError::Unavailable));
        assert!(!recorder.is_ok());
        recorder.close().await.unwrap_err();
    });
}

#[test]
fn an_index_that_does_not_end_where_it_says_is_told_and_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    runtime().block_on(async {
        let recorder = open(&path);
        for at_us in DAY_US..DAY_US + 5 {
            call(
                &recorder,
                &start(at_us, "ana", "tool/x"),
                &end(Outcome::Succeeded, 10),
            )
            .await;
        }
        close(&recorder).await;
    });
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    for (change, expected) in [
        (
            "UPDATE indexed SET through = through - 4",
            "through entry 6",
        ),
        (
            "UPDATE indexed SET through = through + 4",
            "through entry 14",
        ),
        (
            "DELETE FROM indexed",
            "the table indexed does not have its row",
        ),
    ] {
        let changed = Connection::open(&path)
            .unwrap()
            .execute(change, [])
            .unwrap();
        assert_eq!(changed, 1);
        let mut reader = LedgerReader::open(&path).unwrap();
        let fault = reader.fault().unwrap().unwrap().to_string();
        assert!(fault.contains(expected), "{change}: {fault}");
        let report = verify(&mut reader, Trust::default()).unwrap();
        assert!(report.first_wrong.is_some(), "{change}");
        drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
        let mut reader = LedgerReader::open(&path).unwrap();
        assert_eq!(reader.fault().unwrap(), None, "{change}");
        let report = verify(&mut reader, Trust::default()).unwrap();
        assert_eq!(report.first_wrong, None, "{change}");
        assert_eq!(reader.count().unwrap().calls, 5);
    }
}

#[test]
fn a_second_server_is_told_who_holds_the_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/ledger.sqlite");
    let first = SqliteLedger::open(&path, Durability::Strict).unwrap();
    let linked = directory.path().join("link");
    #[cfg(unix)]
    std::os::unix::fs::symlink(&path, &linked).unwrap();
    #[cfg(not(unix))]
    let linked = path.clone();
    for path in [&path, &linked] {
        let error = SqliteLedger::open(path, Durability::Strict).unwrap_err();
        let expected = format!("in use by process {}", std::process::id());
        assert!(error.to_string().contains(&expected), "{error}");
    }
    drop(first);
    SqliteLedger::open(&path, Durability::Strict).unwrap();
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_it() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledgers/ledger.sqlite");
    runtime().block_on(async {
        let recorder = open(&path);
        call(
            &recorder,
            &start(1, "a", "tool/x"),
            &end(Outcome::Succeeded, 0),
        )
        .await;
        let mut files = 0;
        for file in fs::read_dir(path.parent().unwrap()).unwrap() {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{:?}", file.path());
            files += 1;
        }
        assert!(3 <= files, "the database, its log and the lock");
        let mode = fs::metadata(path.parent().unwrap())
            .unwrap()
            .permissions()
            .mode()
            & 0o777;
        assert_eq!(mode, 0o700);
    });
}

/// Waits until the writer has indexed everything.
async fn indexed(path: &Path) {
    let count = || -> i64 {
        Connection::open(path)
            .unwrap()
            .query_row(
                "SELECT (SELECT max(first_sequence + count - 1) FROM entry_group) - through
                 FROM indexed",
                [],
                |row| row.get(0),
            )
            .unwrap()
    };
    tokio::time::timeout(LONG, async {
        while count() != 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
}

fn counts(entries: u64, calls: u64, open_calls: u64) -> Counts {
    Counts {
        entries,
        calls,
        open_calls,
    }
}

#[test]
fn a_reader_sees_the_same_whatever_is_indexed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    runtime().block_on(async {
        let recorder = open(&path);
        let mut reader = LedgerReader::open(&path).unwrap();
        assert_eq!(reader.count().unwrap(), counts(0, 0, 0));
        // This one begins in what is indexed and ends in what is not.
        let long = start(1, "a", "tool/long");
        let open = recorder.begin(&long).await.unwrap();
        assert_eq!(reader.count().unwrap(), counts(1, 1, 1));
        indexed(&path).await;
        assert_eq!(reader.count().unwrap(), counts(1, 1, 1));
        assert_eq!(reader.open_calls().unwrap()[0].call, long.call);
        open.finish(&end(Outcome::TimedOut, 3)).await.unwrap();
        let short = start(2, "b", "tool/short");
        call(&recorder, &short, &end(Outcome::Succeeded, 4)).await;
        let fresh = reader.recent(9, Filter::default()).unwrap();
        assert_eq!(reader.count().unwrap(), counts(4, 2, 0));
        indexed(&path).await;
        assert_eq!(reader.recent(9, Filter::default()).unwrap(), fresh);
        assert_eq!(reader.count().unwrap(), counts(4, 2, 0));
        close(&recorder).await;
        assert_eq!(reader.recent(9, Filter::default()).unwrap(), fresh);

        assert_eq!(fresh.len(), 2);
        assert_eq!((fresh[0].call, fresh[0].sequence), (short.call, 3));
        assert_eq!(fresh[0].started.arguments.text, r#"{"a":1}"#);
        let ended = fresh[1].ended.as_ref().unwrap();
        assert_eq!(ended.outcome, Outcome::TimedOut);
        assert_eq!((ended.cost_micros, &*ended.result.text), (3, r#"{"b":2}"#));
    });
}

#[test]
fn filters_pick_and_pages_follow_each_other() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    runtime().block_on(async {
        let recorder = open(&path);
        let mut calls = Vec::new();
        for at_us in 0..10 {
            let principal = if at_us % 2 == 0 { "even" } else { "odd" };
            let start = start(at_us, principal, "tool/x");
            call(&recorder, &start, &end(Outcome::Failed, 0)).await;
            calls.push(start.call);
        }
        let denied = start(10, "odd", "tool/y");
        recorder
            .refuse(&denied, &end(Outcome::Denied { reason: "budget" }, 0))
            .await
            .unwrap();
        close(&recorder).await;
        let mut reader = LedgerReader::open(&path).unwrap();
        let all = Filter::default();
        let rows = [
            (all, 11),
            (
                Filter {
                    principal: Some("odd"),
                    ..all
                },
                6,
            ),
            (
                Filter {
                    principal: Some("odd' OR 1=1 --"),
                    ..all
                },
                0,
            ),
            (
                Filter {
                    capability: Some("tool/y"),
                    ..all
                },
                1,
            ),
            (
                Filter {
                    outcome: Some("failed"),
                    principal: Some("odd"),
                    ..all
                },
                5,
            ),
            (
                Filter {
                    since_us: Some(3),
                    until_us: Some(5),
                    ..all
                },
                2,
            ),
            (
                Filter {
                    call: Some(denied.call),
                    ..all
                },
                1,
            ),
            (
                Filter {
                    since_us: Some(u64::MAX),
                    ..all
                },
                0,
            ),
        ];
        for (filter, expected) in rows {
            assert_eq!(
                reader.recent(99, filter).unwrap().len(),
                expected,
                "{filter:?}"
            );
        }
        let mut paged = Vec::new();
        let mut before = None;
        loop {
            let page = reader.recent(4, Filter { before, ..all }).unwrap();
            let Some(last) = page.last() else { break };
            before = Some(last.cursor());
            paged.extend(page.into_iter().map(|record| record.call));
        }
        paged.reverse();
        calls.push(denied.call);
        assert_eq!(paged, calls);
    });
}

#[test]
fn usage_is_what_quotas_must_remember() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    runtime().block_on(async {
        let recorder = open(&path);
        let denied = end(Outcome::Denied { reason: "rate_day" }, 0);
        call(
            &recorder,
            &start(100, "a", "tool/x"),
            &end(Outcome::Succeeded, 3),
        )
        .await;
        call(
            &recorder,
            &start(150, "a", "tool/x"),
            &end(Outcome::Invalid, 0),
        )
        .await;
        call(
            &recorder,
            &start(250, "a", "tool/x"),
            &end(Outcome::Failed, 4),
        )
        .await;
        call(
            &recorder,
            &start(260, "a", "tool/y"),
            &end(Outcome::Cancelled, 5),
        )
        .await;
        recorder
            .refuse(&start(270, "a", "tool/x"), &denied)
            .await
            .unwrap();
        call(
            &recorder,
            &start(50, "b", "tool/x"),
            &end(Outcome::Succeeded, 9),
        )
        .await;
        let running = recorder.begin(&start(280, "b", "tool/x")).await.unwrap();
        let mut reader = LedgerReader::open(&path).unwrap();
        let row =
            |principal: &str, capability: &str, latest_us, calls, cost_micros, dearest_micros| {
                Usage {
                    principal: principal.to_owned(),
                    kind: Kind::Tool,
                    capability: capability.to_owned(),
                    latest_us,
                    calls,
                    cost_micros,
                    open_micros: if latest_us == 280 && calls == 1 {
                        cost_micros
                    } else {
                        0
                    },
                    dearest_micros,
                }
            };
        let bucket = Duration::from_micros(100);
        let expected = [
            row("a", "tool/x", 150, 2, 3, 3),
            row("a", "tool/x", 250, 1, 4, 4),
            row("a", "tool/y", 260, 1, 5, 5),
            row("b", "tool/x", 280, 1, 10, 10),
        ];
        assert_eq!(reader.usage_since(100, bucket).unwrap(), expected);
        assert_eq!(
            reader.usage_between(100..200, bucket).unwrap(),
            expected[..1]
        );
        drop(running);
        close(&recorder).await;
        let whole = reader.usage_since(0, Duration::MAX).unwrap();
        assert_eq!(whole[0], row("a", "tool/x", 250, 3, 7, 4));
        assert_eq!(whole[2], row("b", "tool/x", 280, 2, 19, 10));
    });
}

/// Sums of months, and those of days put together, which must be the same.
fn sums_by_month(path: &Path) -> Vec<Statistics> {
    let mut reader = LedgerReader::open(path).unwrap();
    assert_eq!(
        verify(&mut reader, Trust::default()).unwrap().first_wrong,
        None
    );
    let mut query = StatisticsQuery {
        principal: None,
        capability: None,
        since_us: 0,
        until_us: 120 * DAY_US,
        bucket: Bucket::Whole,
    };
    let whole = reader.statistics(query).unwrap();
    query.bucket = Bucket::Day;
    let mut put_together: Vec<Statistics> = Vec::new();
    for day in reader.statistics(query).unwrap() {
        match put_together.last_mut() {
            Some(last) if last.principal == day.principal => last.tally.merge(&day.tally),
            _ => put_together.push(Statistics { since_us: 0, ..day }),
        }
    }
    assert_eq!(whole, put_together);
    let calls: u64 = whole.iter().map(|of| of.tally.calls()).sum();
    assert_eq!(reader.count().unwrap().calls, calls);
    // Refused calls use nothing, whoever adds them up.
    for range in [0..u64::MAX, DAY_US / 2..100 * DAY_US + 9] {
        let whole = reader.usage_between(range.clone(), Duration::MAX).unwrap();
        let parts = reader.usage_between(range, Duration::from_secs(1)).unwrap();
        for of in &whole {
            let parts = parts.iter().filter(|part| part.principal == of.principal);
            let sum = parts.fold((0, 0, 0), |(latest_us, calls, cost), part| {
                (
                    part.latest_us.max(latest_us),
                    calls + part.calls,
                    cost + part.cost_micros,
                )
            });
            assert_eq!(sum, (of.latest_us, of.calls, of.cost_micros));
        }
        assert_eq!(whole.len(), 2);
    }
    whole
}

#[test]
fn months_are_the_sums_of_their_days() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    runtime().block_on(async {
        let recorder = open(&path);
        let mut late = Vec::new();
        for day in 0..100 {
            let at_us = day * DAY_US + day;
            for (principal, cost) in [("a", 3), ("b", 5)] {
                call(
                    &recorder,
                    &start(at_us, principal, "tool/x"),
                    &end(Outcome::Succeeded, cost),
                )
                .await;
            }
            if day % 30 == 7 {
                let refused = end(Outcome::Denied { reason: "budget" }, 2);
                let begun = start(at_us + 1, "a", "tool/x");
                recorder.refuse(&begun, &refused).await.unwrap();
                let begun = start(at_us + 2, "b", "tool/x");
                late.push(recorder.begin(&begun).await.unwrap());
            }
        }
        // Their months are summed up already, and the last of them has not ended.
        let open = late.pop();
        for running in late {
            running.finish(&end(Outcome::Failed, 7)).await.unwrap();
        }
        sums_by_month(&path);
        drop(open);
        close(&recorder).await;
    });
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    let sums = sums_by_month(&path);
    let connection = Connection::open(&path).unwrap();
    let months: i64 = connection
        .query_row("SELECT count(*) FROM usage_month", [], |row| row.get(0))
        .unwrap();
    assert_eq!(months, 2 * 4);
    // As the version before left it.
    connection
        .execute_batch(
            "ALTER TABLE indexed DROP COLUMN folded; ALTER TABLE indexed DROP COLUMN calls;
             UPDATE indexed SET version = 2; DROP TABLE usage_month; DROP TABLE usage_day;
             CREATE TABLE usage_day (day INTEGER NOT NULL, tally BLOB NOT NULL) STRICT;
             INSERT INTO usage_day VALUES (3, x'00');",
        )
        .unwrap();
    drop(connection);
    assert_eq!(sums_by_month(&path), sums);
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    assert_eq!(sums_by_month(&path), sums);
}
