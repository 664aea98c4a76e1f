//! Queries of a ledger, whose answers are the same whatever is indexed.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ledger::{
    ApprovalId, Bucket, CallId, CallRecord, Durability, End, Filter, Kind, LedgerReader, Note,
    NoteFilter, NoteKind, Outcome, ReadLedger, Recorder, RecorderOptions, SqliteLedger, Start,
    Statistics, StatisticsQuery,
};
use rusqlite::Connection;
use std::{path::Path, time::Duration};

const LONG: Duration = Duration::from_secs(60);
const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;
const HOUR_US: u64 = DAY_US / 24;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn serve(path: &Path) -> Recorder {
    let store = SqliteLedger::open(path, Durability::Strict).unwrap();
    Recorder::spawn(store, RecorderOptions::default()).unwrap()
}

async fn call(recorder: &Recorder, start: &Start<'_>, outcome: Outcome<&str>, duration_us: u64) {
    let end = End {
        duration_us,
        cost_micros: 3,
        ..End::new(outcome)
    };
    match outcome {
        Outcome::Denied { .. } => recorder.refuse(start, &end).await.unwrap(),
        _ => {
            let open = recorder.begin(start).await.unwrap();
            open.finish(&end).await.unwrap();
        }
    }
}

/// Calls that differ in one thing each from the first.
async fn varied(recorder: &Recorder, approval: ApprovalId) -> Vec<CallId> {
    let plain = || {
        let mut start = Start::new(CallId::new(5), 100, "alice", Kind::Tool, "tool/pay");
        start.request_id = "1";
        start
    };
    let denied = Outcome::Denied { reason: "budget" };
    let calls = [
        (plain(), Outcome::Succeeded, 10),
        (
            Start {
                principal: "bob",
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (
            Start {
                capability: "tool/other",
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (
            Start {
                kind: Kind::Resource,
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (plain(), Outcome::Failed, 10),
        (plain(), denied, 10),
        (plain(), Outcome::Denied { reason: "rate" }, 10),
        (
            Start {
                request_id: "\"a\"",
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (
            Start {
                trace_id: Some("0af7"),
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (
            Start {
                approval: Some(approval),
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (plain(), Outcome::Succeeded, 20),
        (
            Start {
                at_us: 99,
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (
            Start {
                at_us: 101,
                ..plain()
            },
            Outcome::Succeeded,
            10,
        ),
        (plain(), Outcome::Unknown, 10),
    ];
    let mut ids = Vec::new();
    for (start, outcome, duration_us) in calls {
        call(recorder, &start, outcome, duration_us).await;
        ids.push(start.call);
    }
    ids
}

fn rows(approval: ApprovalId, ids: &[CallId]) -> Vec<(Filter<'static>, Vec<usize>)> {
    let all = Filter::default();
    // Newest first: by time, and then by place.
    let everything = vec![12, 13, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0, 11];
    let but = |left_out: &[usize]| -> Vec<usize> {
        let mut rows = everything.clone();
        rows.retain(|row| !left_out.contains(row));
        rows
    };
    vec![
        (all, everything.clone()),
        (
            Filter {
                principal: Some("bob"),
                ..all
            },
            vec![1],
        ),
        (
            Filter {
                principal: Some("alice"),
                ..all
            },
            but(&[1]),
        ),
        (
            Filter {
                capability: Some("tool/other"),
                ..all
            },
            vec![2],
        ),
        (
            Filter {
                principal: Some("bob"),
                capability: Some("tool/other"),
                ..all
            },
            vec![],
        ),
        (
            Filter {
                kind: Some(Kind::Resource),
                ..all
            },
            vec![3],
        ),
        (
            Filter {
                outcome: Some("failed"),
                ..all
            },
            vec![4],
        ),
        (
            Filter {
                outcome: Some("denied"),
                ..all
            },
            vec![6, 5],
        ),
        (
            Filter {
                outcome: Some("succeeded"),
                ..all
            },
            but(&[4, 5, 6, 13]),
        ),
        (
            Filter {
                outcome: Some("no such outcome"),
                ..all
            },
            vec![],
        ),
        (
            Filter {
                reason: Some("budget"),
                ..all
            },
            vec![5],
        ),
        (
            Filter {
                request_id: Some("\"a\""),
                ..all
            },
            vec![7],
        ),
        (
            Filter {
                trace_id: Some("0af7"),
                ..all
            },
            vec![8],
        ),
        (
            Filter {
                approval: Some(approval),
                ..all
            },
            vec![9],
        ),
        (
            Filter {
                approval: Some(ApprovalId::random()),
                ..all
            },
            vec![],
        ),
        (
            Filter {
                min_duration_us: Some(11),
                ..all
            },
            vec![10],
        ),
        (
            Filter {
                since_us: Some(101),
                ..all
            },
            vec![12],
        ),
        (
            Filter {
                until_us: Some(100),
                ..all
            },
            vec![11],
        ),
        (
            Filter {
                call: Some(ids[7]),
                ..all
            },
            vec![7],
        ),
        (
            Filter {
                principal: Some("alice' OR 1=1 --"),
                ..all
            },
            vec![],
        ),
    ]
}

#[test]
fn every_filter_picks_what_it_says_whatever_is_indexed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let recorder = serve(&path);
    let runtime = runtime();
    let approval = ApprovalId::random();
    let ids = runtime.block_on(varied(&recorder, approval));
    let check = |reader: &mut LedgerReader, when: &str| {
        for (filter, expected) in rows(approval, &ids) {
            let found = reader.recent(99, filter).unwrap();
            let found: Vec<_> = found.iter().map(|it| position(&ids, it)).collect();
            assert_eq!(found, expected, "{when}: {filter:?}");
        }
        // Pages follow each other, also where many began at the same time.
        let (mut paged, mut before) = (Vec::new(), None);
        while let Some(page) = Some(
            reader
                .recent(
                    3,
                    Filter {
                        before,
                        ..Filter::default()
                    },
                )
                .unwrap(),
        ) && let Some(last) = page.last()
        {
            before = Some(last.cursor());
            paged.extend(page.iter().map(|it| position(&ids, it)));
        }
        assert_eq!(paged, rows(approval, &ids)[0].1, "{when}");
        assert_eq!(
            reader.call(ids[3]).unwrap().unwrap().started.kind,
            Kind::Resource
        );
        assert_eq!(reader.call(CallId::new(5)).unwrap(), None);
        let unresolved = reader.unresolved(9, None).unwrap();
        assert_eq!(position(&ids, &unresolved[0]), 13);
        assert_eq!(unresolved.len(), 1);
    };
    let mut early = LedgerReader::open(&path).unwrap();
    check(&mut early, "at once");
    // As if nothing had ever been indexed.
    runtime
        .block_on(async { tokio::time::timeout(LONG, recorder.close()).await })
        .unwrap()
        .unwrap();
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DELETE FROM call; DELETE FROM usage_day; DELETE FROM usage_month;
             UPDATE indexed SET through = 0, calls = 0, folded = 0",
        )
        .unwrap();
    check(&mut LedgerReader::open(&path).unwrap(), "without an index");
    // With an index of a version that nobody knows.
    connection
        .execute_batch("DROP TABLE call; DROP TABLE note; UPDATE indexed SET version = 99")
        .unwrap();
    check(
        &mut LedgerReader::open(&path).unwrap(),
        "with a strange index",
    );
    drop(connection);
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    check(&mut LedgerReader::open(&path).unwrap(), "with all indexed");
}

fn position(ids: &[CallId], record: &CallRecord) -> usize {
    ids.iter().position(|id| *id == record.call).unwrap()
}

#[test]
fn notes_are_found_by_what_they_are_about() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let recorder = serve(&path);
    let runtime = runtime();
    runtime.block_on(async {
        for (at_us, kind, actor, subject) in [
            (1, NoteKind::SERVER_STARTED, "system", ""),
            (2, NoteKind::POLICY_CHANGED, "alice", "rules"),
            (3, NoteKind::POLICY_CHANGED, "bob", "rules"),
            (3, NoteKind::named("something_else"), "bob", "roles"),
        ] {
            let note = Note {
                actor,
                subject,
                ..Note::new(at_us, kind)
            };
            recorder.note(&note).await.unwrap();
        }
    });
    let all = NoteFilter::default();
    let rows = [
        (all, vec![4, 3, 2, 1]),
        (
            NoteFilter {
                kind: Some("policy_changed"),
                ..all
            },
            vec![3, 2],
        ),
        (
            NoteFilter {
                actor: Some("bob"),
                ..all
            },
            vec![4, 3],
        ),
        (
            NoteFilter {
                subject: Some("rules"),
                ..all
            },
            vec![3, 2],
        ),
        (
            NoteFilter {
                subject: Some("rules"),
                actor: Some("bob"),
                ..all
            },
            vec![3],
        ),
        (
            NoteFilter {
                since_us: Some(2),
                until_us: Some(3),
                ..all
            },
            vec![2],
        ),
    ];
    let check = || {
        let mut reader = LedgerReader::open(&path).unwrap();
        for (filter, expected) in &rows {
            let found = reader.notes(9, *filter).unwrap();
            let found: Vec<_> = found.iter().map(|note| note.sequence).collect();
            assert_eq!(&found, expected, "{filter:?}");
        }
        let first = reader.notes(1, all).unwrap();
        assert_eq!(first[0].noted.kind.as_str(), "something_else");
        let before = Some(first[0].cursor());
        let rest = reader.notes(9, NoteFilter { before, ..all }).unwrap();
        assert_eq!(rest[0].sequence, 3);
        assert_eq!(reader.count().unwrap().calls, 0);
    };
    check();
    runtime
        .block_on(async { tokio::time::timeout(LONG, recorder.close()).await })
        .unwrap()
        .unwrap();
    drop(SqliteLedger::open(&path, Durability::Strict).unwrap());
    check();
}

/// A row of statistics in short: who, what, from when, and calls, open, succeeded, failed, refused,
/// cost.
fn short(row: &Statistics) -> (String, String, u64, [u64; 6]) {
    let tally = &row.tally;
    let refused = tally.refused.values().sum();
    (
        row.principal.clone(),
        row.capability.clone(),
        row.since_us,
        [
            tally.calls(),
            tally.open,
            tally.succeeded,
            tally.failed,
            refused,
            tally.cost_micros,
        ],
    )
}

#[test]
fn statistics_are_the_same_by_sums_and_by_calls() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let recorder = serve(&path);
    let runtime = runtime();
    let start = |at_us, principal, capability| Start {
        estimated_cost_micros: 50,
        ..Start::new(CallId::new(at_us), at_us, principal, Kind::Tool, capability)
    };
    let open = runtime.block_on(async {
        for day in 1..=3 {
            for hour in 0..24 {
                let at_us = day * DAY_US + hour * HOUR_US;
                let outcome = match hour {
                    3 => Outcome::Failed,
                    4 => Outcome::Denied { reason: "budget" },
                    _ => Outcome::Succeeded,
                };
                call(
                    &recorder,
                    &start(at_us, "alice", "tool/a"),
                    outcome,
                    hour * 1_000,
                )
                .await;
            }
        }
        call(
            &recorder,
            &start(2 * DAY_US, "bob", "tool/b"),
            Outcome::Invalid,
            7,
        )
        .await;
        recorder
            .begin(&start(2 * DAY_US + 5, "bob", "tool/b"))
            .await
            .unwrap()
    });
    let query = |since_us, until_us, bucket| StatisticsQuery {
        principal: None,
        capability: None,
        since_us,
        until_us,
        bucket,
    };
    let alice = |since_us, numbers| ("alice".to_owned(), "tool/a".to_owned(), since_us, numbers);
    let bob = |since_us, numbers| ("bob".to_owned(), "tool/b".to_owned(), since_us, numbers);
    let day = |day| alice(day * DAY_US, [24, 0, 22, 1, 1, 72]);
    let with_open = [2, 1, 0, 0, 0, 53];
    let rows = [
        (
            query(0, u64::MAX, Bucket::Day),
            vec![day(1), day(2), day(3), bob(2 * DAY_US, with_open)],
        ),
        (
            query(0, u64::MAX, Bucket::Whole),
            vec![alice(0, [72, 0, 66, 3, 3, 216]), bob(0, with_open)],
        ),
        (query(DAY_US, 2 * DAY_US, Bucket::Day), vec![day(1)]),
        // Parts of days at both ends, and only parts.
        (
            query(DAY_US + 20 * HOUR_US, 3 * DAY_US + 4 * HOUR_US, Bucket::Day),
            vec![
                alice(DAY_US, [4, 0, 4, 0, 0, 12]),
                day(2),
                alice(3 * DAY_US, [4, 0, 3, 1, 0, 12]),
                bob(2 * DAY_US, with_open),
            ],
        ),
        (
            query(
                3 * DAY_US + 3 * HOUR_US,
                3 * DAY_US + 5 * HOUR_US,
                Bucket::Whole,
            ),
            vec![alice(3 * DAY_US + 3 * HOUR_US, [2, 0, 0, 1, 1, 6])],
        ),
        (
            StatisticsQuery {
                principal: Some("bob"),
                ..query(0, u64::MAX, Bucket::Day)
            },
            vec![bob(2 * DAY_US, with_open)],
        ),
        (
            StatisticsQuery {
                capability: Some("tool/b"),
                ..query(0, u64::MAX, Bucket::Day)
            },
            vec![bob(2 * DAY_US, with_open)],
        ),
        (query(9 * DAY_US, 9 * DAY_US, Bucket::Day), vec![]),
    ];
    let mut reader = LedgerReader::open(&path).unwrap();
    let check = |reader: &mut LedgerReader, when: &str| {
        for (query, expected) in &rows {
            let found = reader.statistics(*query).unwrap();
            let found: Vec<_> = found.iter().map(short).collect();
            assert_eq!(&found, expected, "{when}: {query:?}");
        }
        let whole = reader.statistics(rows[1].0).unwrap();
        assert_eq!(whole[0].tally.refused["budget"], 3);
        // Of the hours 0 to 23 without the fourth, which was refused, in milliseconds.
        let percentile = |percent| {
            whole[0]
                .tally
                .durations
                .percentile(percent)
                .unwrap()
                .as_secs_f64()
                * 1e3
        };
        for (percent, expected) in [(50, 12.0), (95, 22.0), (99, 23.0)] {
            assert!(
                (percentile(percent) - expected).abs() <= expected * 0.04,
                "{}",
                percentile(percent)
            );
        }
    };
    check(&mut reader, "at once");
    while reader.extent().unwrap().indexed_through < reader.extent().unwrap().last_sequence {
        std::thread::sleep(Duration::from_millis(5));
    }
    check(&mut reader, "indexed, by the reader of before");
    check(&mut LedgerReader::open(&path).unwrap(), "indexed");
    drop(open);
    runtime
        .block_on(async { tokio::time::timeout(LONG, recorder.close()).await })
        .unwrap()
        .unwrap();
    let ended = LedgerReader::open(&path)
        .unwrap()
        .statistics(rows[5].0)
        .unwrap();
    assert_eq!((ended[0].tally.open, ended[0].tally.abandoned), (0, 1));
    assert_eq!(ended[0].tally.cost_micros, 53);
}
