//! A ledger in PostgreSQL: what several nodes promise together, and what is left of it when a node,
//! the database or the way between dies.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ledger::{
    Account, ApprovalId, ApprovalProblem, ApprovalState, Approver, BeginError, CallId, Claim,
    ClaimRefusal, Counted, Decision, Durability, End, Event, Fault, Filter, Group, Kind,
    NewApproval, Outcome, PostgresLedger, PostgresOfflineApprovals, PostgresOpenError,
    PostgresOptions, PostgresReader, ReadLedger, RecordError, Recorder, RecorderOptions, Start,
    Tail, Verdict, system_now_us,
};
use std::{
    collections::{HashMap, HashSet},
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use testkit::Postgres;
use tokio::task::JoinHandle;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(60);

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

fn options(url: &str) -> PostgresOptions {
    PostgresOptions::new(url).unwrap()
}

fn open(options: &PostgresOptions) -> Recorder {
    let store = PostgresLedger::open(options).unwrap();
    Recorder::spawn(store, RecorderOptions::default()).unwrap()
}

fn start(principal: &str) -> Start<'_> {
    let at_us = system_now_us();
    Start {
        arguments: r#"{"to":"bob"}"#,
        estimated_cost_micros: 5,
        request_id: "17",
        ..Start::new(CallId::new(at_us), at_us, principal, Kind::Tool, "tool/pay")
    }
}

fn done() -> End<'static> {
    End {
        result: r#"{"paid":true}"#,
        cost_micros: 3,
        ..End::new(Outcome::Succeeded)
    }
}

async fn call(recorder: &Recorder, principal: &str) -> Result<CallId, RecordError> {
    let start = start(principal);
    recorder.begin(&start).await?.finish(&done()).await?;
    Ok(start.call)
}

async fn close(recorder: &Recorder) {
    tokio::time::timeout(LONG, recorder.close())
        .await
        .unwrap()
        .unwrap();
}

/// Number of starts and ends of each call in a ledger, which must be one chain without gaps.
fn whole(options: &PostgresOptions) -> HashMap<CallId, (usize, usize)> {
    let mut reader = PostgresReader::open(options).unwrap();
    let (mut calls, mut tail) = (HashMap::new(), Tail::default());
    loop {
        let groups = reader.groups(tail.next_sequence).unwrap();
        if groups.is_empty() {
            return calls;
        }
        for stored in groups {
            assert_eq!(stored.first_sequence, tail.next_sequence);
            tail = tail.after(&stored.body, stored.count);
            assert_eq!(tail.hash, stored.hash);
            let group = Group {
                id: Uuid::nil(),
                count: stored.count,
                body: &stored.body,
                charges: &[],
                operations: &[],
                durable: false,
            };
            for entry in group.entries(stored.first_sequence).unwrap() {
                let (begun, ended) = calls.entry(entry.call).or_default();
                match entry.event {
                    Event::Started(_) => *begun += 1,
                    Event::Ended(_) => *ended += 1,
                    Event::Noted(_) => {}
                }
            }
        }
    }
}

fn assert_verified(reader: &mut PostgresReader) {
    let report = ledger::verify(reader, ledger::Trust::default()).unwrap();
    assert!(report.is_ok(), "{report:?}");
    assert_eq!(report.entries, reader.extent().unwrap().last_sequence);
}

/// Calls that were told to have begun, those that were told to have ended, and how many were
/// refused.
type Acknowledged = (HashSet<CallId>, HashSet<CallId>, usize);

/// Callers that call until they are told to stop, and remember what was acknowledged. They go on
/// after refusals.
struct Callers {
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<Acknowledged>>,
}

impl Callers {
    fn spawn(recorder: &Recorder, count: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = (0..count)
            .map(|_| {
                let (recorder, stop) = (recorder.clone(), Arc::clone(&stop));
                tokio::spawn(async move {
                    let (mut begun, mut ended, mut refused) = (HashSet::new(), HashSet::new(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        let start = start("alice");
                        match recorder.begin(&start).await {
                            Ok(open) => {
                                begun.insert(start.call);
                                if open.finish(&done()).await.is_ok() {
                                    ended.insert(start.call);
                                }
                            }
                            Err(_) => {
                                refused += 1;
                                tokio::time::sleep(Duration::from_millis(5)).await;
                            }
                        }
                    }
                    (begun, ended, refused)
                })
            })
            .collect();
        Self { stop, tasks }
    }

    async fn stop(self) -> Acknowledged {
        self.stop.store(true, Ordering::Relaxed);
        let (mut begun, mut ended, mut refused) = (HashSet::new(), HashSet::new(), 0);
        for task in self.tasks {
            let (more_begun, more_ended, more_refused) = task.await.unwrap();
            begun.extend(more_begun);
            ended.extend(more_ended);
            refused += more_refused;
        }
        (begun, ended, refused)
    }
}

/// Waits until something holds.
async fn until(what: &str, holds: impl FnMut() -> bool) {
    testkit::wait_until(what, LONG, holds).await;
}

async fn until_committed(recorder: &Recorder, more: u64) {
    let before = recorder.health().committed_entries;
    until("more is stored", || {
        before + more <= recorder.health().committed_entries
    })
    .await;
}

/// Asserts that every acknowledged entry is there, and none twice.
fn assert_kept(
    options: &PostgresOptions,
    begun: &HashSet<CallId>,
    ended: &HashSet<CallId>,
) -> HashMap<CallId, (usize, usize)> {
    let calls = whole(options);
    for call in begun {
        assert_eq!(calls.get(call).map(|it| it.0), Some(1), "a start was lost");
    }
    for call in ended {
        assert_eq!(calls[call].1, 1, "an end was lost");
    }
    assert!(
        calls
            .values()
            .all(|&(begun, ended)| begun == 1 && ended <= 1)
    );
    calls
}

#[test]
fn nodes_that_append_at_the_same_time_make_one_chain() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let options = options(&postgres.fresh_database());
    runtime().block_on(async {
        // They also make the tables at the same time.
        let opening: Vec<_> = (0..3)
            .map(|_| {
                let options = options.clone();
                std::thread::spawn(move || open(&options))
            })
            .collect();
        let nodes: Vec<Recorder> = opening.into_iter().map(|it| it.join().unwrap()).collect();
        let callers: Vec<_> = nodes.iter().map(|node| Callers::spawn(node, 8)).collect();
        for node in &nodes {
            until_committed(node, 300).await;
        }
        let (mut begun, mut ended) = (HashSet::new(), HashSet::new());
        for callers in callers {
            let (more_begun, more_ended, refused) = callers.stop().await;
            begun.extend(more_begun);
            ended.extend(more_ended);
            assert_eq!(refused, 0);
        }
        for node in &nodes {
            close(node).await;
        }
        assert_eq!(begun, ended);
        assert_eq!(assert_kept(&options, &begun, &ended).len(), begun.len());
    });
}

#[test]
fn a_database_that_is_killed_loses_nothing_and_nothing_is_stored_twice() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let options = options(&postgres.url()).with_max_attempt(Duration::from_secs(2));
    runtime().block_on(async {
        let recorder = open(&options);
        let callers = Callers::spawn(&recorder, 16);
        for _ in 0..3 {
            until_committed(&recorder, 200).await;
            postgres.kill();
            until("calls are refused", || !recorder.is_ok()).await;
            let refused = recorder.begin(&start("bob")).await;
            assert_eq!(refused.unwrap_err(), RecordError::Unavailable);
            postgres.restart();
        }
        until_committed(&recorder, 200).await;
        let (begun, ended, refused) = callers.stop().await;
        assert!(0 < refused);
        close(&recorder).await;
        assert_kept(&options, &begun, &ended);
    });
}

#[test]
fn connections_that_are_cut_lose_nothing() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let options = options(&postgres.url());
    runtime().block_on(async {
        let recorder = open(&options);
        let callers = Callers::spawn(&recorder, 16);
        for _ in 0..5 {
            until_committed(&recorder, 100).await;
            postgres.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                 WHERE application_name = 'owlclaw-mcp ledger'",
            );
        }
        until_committed(&recorder, 100).await;
        let (begun, ended, _) = callers.stop().await;
        close(&recorder).await;
        assert_kept(&options, &begun, &ended);
    });
}

#[test]
fn a_database_that_hangs_is_given_up_and_comes_back() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let options = options(&postgres.url()).with_max_attempt(Duration::from_millis(1_500));
    runtime().block_on(async {
        let recorder = open(&options);
        let callers = Callers::spawn(&recorder, 16);
        until_committed(&recorder, 200).await;
        postgres.pause();
        until("calls are refused", || !recorder.is_ok()).await;
        let health = recorder.health();
        assert!(health.last_error.unwrap().contains("did not answer"));
        postgres.resume();
        until_committed(&recorder, 200).await;
        let (begun, ended, refused) = callers.stop().await;
        assert!(0 < refused);
        close(&recorder).await;
        assert_kept(&options, &begun, &ended);
    });
}

const URL_VARIABLE: &str = "LEDGER_POSTGRES_TEST_URL";

/// Not a test, but a node: begins calls, one of them with a key, and waits to be killed.
#[test]
fn node() {
    let Ok(url) = std::env::var(URL_VARIABLE) else {
        return;
    };
    let options = options(&url).with_lease(Duration::from_secs(1));
    runtime().block_on(async {
        let recorder = open(&options);
        for number in 0..3 {
            let mut start = start("alice");
            let claim = Claim::Key(key(&start));
            let claims = if number == 0 { &[claim][..] } else { &[] };
            // Verification holds the key against what the entry says.
            start.idempotency_key = (number == 0).then_some("k");
            let open = recorder.begin_claiming(&start, claims).await.unwrap();
            writeln!(std::io::stdout(), "\nbegun {}", start.call).unwrap();
            std::mem::forget(open);
        }
        std::io::stdout().flush().unwrap();
        std::future::pending::<()>().await;
    });
}

fn key(start: &Start<'_>) -> ledger::KeyClaim {
    ledger::KeyClaim {
        principal: "alice".to_owned(),
        key: "k".to_owned(),
        capability: "tool/pay".to_owned(),
        digest: [1; 32],
        call: start.call,
        at_us: start.at_us,
        until_us: start.at_us + 3_600_000_000,
    }
}

#[test]
fn calls_of_a_killed_node_become_unknown_while_others_run() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let options = options(&url).with_lease(Duration::from_secs(1));
    runtime().block_on(async {
        let other = open(&options);
        let mine = start("bob");
        let open_call = other.begin(&mine).await.unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "node", "--nocapture"])
            .env(URL_VARIABLE, &url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut calls = HashSet::new();
        let output = BufReader::new(child.stdout.take().unwrap());
        for line in output.lines() {
            if let Some(call) = line.unwrap().strip_prefix("begun ") {
                calls.insert(call.parse::<CallId>().unwrap());
            }
            if calls.len() == 3 {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let mut reader = PostgresReader::open(&options).unwrap();
        until("they are unknown", || {
            let unknown = reader.unresolved(9, None).unwrap();
            unknown.iter().map(|it| it.call).collect::<HashSet<_>>() == calls
        })
        .await;
        // What lives is not touched.
        assert_eq!(reader.open_calls().unwrap()[0].call, mine.call);
        // Nobody may run it again, since nobody knows.
        let mut again = start("alice");
        again.idempotency_key = Some("k");
        let claim = Claim::Key(key(&again));
        match other.begin_claiming(&again, &[claim]).await {
            Err(BeginError::Refused(ClaimRefusal::Unknown { call })) => {
                assert!(calls.contains(&call));
            }
            other => panic!("{other:?}"),
        }
        open_call.finish(&done()).await.unwrap();
        close(&other).await;
        reader.count().unwrap();
        assert_verified(&mut reader);
    });
}

#[test]
fn columns_that_no_command_reads_are_compared_with_the_entries_too() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    runtime().block_on(async {
        let node = open(&options(&url));
        call(&node, "alice").await.unwrap();
        let failing = start("bob");
        let failed = End {
            message: Some("no money"),
            result: r#"{"lost":1}"#,
            duration_us: 1_234_567,
            ..End::new(Outcome::Failed)
        };
        let begun = node.begin(&failing).await.unwrap();
        begun.finish(&failed).await.unwrap();
        let open = node.begin(&start("carol")).await.unwrap();
        let mut reader = PostgresReader::open(&options(&url)).unwrap();
        reader.count().unwrap();
        assert_verified(&mut reader);
        for (column, other) in [
            ("arguments_offset", "arguments_offset + 1"),
            ("arguments_length", "arguments_length - 1"),
            ("result_offset", "0"),
            ("result_length", "NULL"),
            ("message", "'paid'"),
            ("message", "NULL"),
            ("duration_rounded", "duration_rounded + 1"),
        ] {
            let change = format!(
                "CREATE TABLE kept AS SELECT * FROM owlclaw_ledger.call WHERE principal = 'bob';
                 UPDATE owlclaw_ledger.call SET {column} = {other} WHERE principal = 'bob'"
            );
            postgres.sql_in(&database, &change);
            let report = ledger::verify(&mut reader, ledger::Trust::default()).unwrap();
            let fault = report.first_wrong.as_ref().map(|it| &it.what);
            let expected = Fault::IndexDiffers { table: "call" };
            assert_eq!(fault, Some(&expected), "{column} = {other}: {report:?}");
            let back = "DELETE FROM owlclaw_ledger.call WHERE principal = 'bob';
                 INSERT INTO owlclaw_ledger.call SELECT * FROM kept; DROP TABLE kept";
            postgres.sql_in(&database, back);
            assert_verified(&mut reader);
        }
        open.finish(&done()).await.unwrap();
        close(&node).await;
        reader.count().unwrap();
        assert_verified(&mut reader);
    });
}

#[test]
fn a_node_that_was_taken_for_dead_goes_on_under_another_name() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    // It says that it lives every ten seconds, which is not often enough for the other.
    let patient = options(&url);
    let hasty = options(&url).with_lease(Duration::from_secs(1));
    runtime().block_on(async {
        let node = open(&patient);
        let long = start("alice");
        let running = node.begin(&long).await.unwrap();
        postgres.sql_in(
            &database,
            "UPDATE owlclaw_ledger.node SET lease_until = clock_timestamp()",
        );
        let other = open(&hasty);
        let mut reader = PostgresReader::open(&patient).unwrap();
        until("its call is unknown", || {
            reader.unresolved(9, None).unwrap().len() == 1
        })
        .await;
        // It does live, and says how the call ended.
        call(&node, "bob").await.unwrap();
        running.finish(&done()).await.unwrap();
        let record = reader.call(long.call).unwrap().unwrap();
        assert_eq!(record.ended.unwrap().outcome, Outcome::Succeeded);
        assert_eq!(reader.unresolved(9, None).unwrap(), []);
        let nodes = "SELECT count(DISTINCT node.id) FROM owlclaw_ledger.node
            JOIN owlclaw_ledger.entry_group ON entry_group.node = node.id
            WHERE name = (SELECT name FROM owlclaw_ledger.node ORDER BY started_at LIMIT 1)";
        // It, under two names, and the other for the ends that it wrote.
        assert_eq!(postgres.sql_in(&database, nodes), "3");
        let last = "SELECT node.ended_at IS NULL FROM owlclaw_ledger.entry_group
            JOIN owlclaw_ledger.node ON node.id = entry_group.node
            ORDER BY first_sequence DESC LIMIT 1";
        assert_eq!(postgres.sql_in(&database, last), "t");
        close(&node).await;
        close(&other).await;
        assert_verified(&mut reader);
    });
}

#[test]
fn a_dead_node_without_open_calls_appends_under_another_name() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    runtime().block_on(async {
        let node = open(&options(&url));
        call(&node, "alice").await.unwrap();
        let other = open(&options(&url).with_lease(Duration::from_millis(200)));
        postgres.sql_in(
            &database,
            "UPDATE owlclaw_ledger.node SET lease_until = clock_timestamp()
             WHERE id = (SELECT node FROM owlclaw_ledger.entry_group LIMIT 1)",
        );
        let dead = "SELECT count(*) FROM owlclaw_ledger.node WHERE ended_at IS NOT NULL";
        until("it is taken for dead", || {
            postgres.sql_in(&database, dead) == "1"
        })
        .await;
        // Nobody has appended meanwhile, so all that it knows of the ledger's end is true.
        call(&node, "bob").await.unwrap();
        let by_dead = "SELECT count(*) FROM owlclaw_ledger.entry_group
            JOIN owlclaw_ledger.node ON node.id = entry_group.node AND ended_at <= stored_at";
        assert_eq!(postgres.sql_in(&database, by_dead), "0");
        close(&node).await;
        close(&other).await;
    });
}

#[test]
fn a_database_that_was_away_makes_nobody_dead() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let lease = Duration::from_secs(3);
    let first = options(&postgres.url()).with_lease(lease);
    postgres.sql("CREATE ROLE second SUPERUSER LOGIN PASSWORD 'second'");
    let second = options(&postgres.url_as("second", "second", "owlclaw")).with_lease(lease);
    runtime().block_on(async {
        let nodes = [open(&first), open(&second)];
        let mut running = Vec::new();
        for node in &nodes {
            running.push(node.begin(&start("alice")).await.unwrap());
        }
        // Long enough for the first to be one who may say so.
        tokio::time::sleep(lease).await;
        postgres.sql("ALTER ROLE second NOLOGIN");
        postgres.kill();
        // Longer than a lease, which is what the time is about.
        tokio::time::sleep(lease + lease / 3).await;
        postgres.restart();
        let alive = |count: &str| {
            let sql = "SELECT count(*) FROM owlclaw_ledger.node
                WHERE ended_at IS NULL AND clock_timestamp() < lease_until";
            postgres.sql(sql) == count
        };
        until("the first says that it lives", || alive("1")).await;
        // It has looked by the time that it writes the next row.
        let looked = "SELECT xmin FROM owlclaw_ledger.node
            WHERE clock_timestamp() < lease_until";
        let before = postgres.sql(looked);
        until("it has looked", || postgres.sql(looked) != before).await;
        postgres.sql("ALTER ROLE second LOGIN");
        until("both say that they live", || alive("2")).await;
        let mut reader = PostgresReader::open(&first).unwrap();
        assert_eq!(reader.open_calls().unwrap().len(), 2);
        for open in running {
            open.finish(&done()).await.unwrap();
        }
        for node in &nodes {
            close(node).await;
        }
        assert_eq!(reader.unresolved(9, None).unwrap(), []);
        assert_verified(&mut reader);
    });
}

fn approval() -> NewApproval {
    let now_us = system_now_us();
    NewApproval {
        id: ApprovalId::random(),
        binding: [9; 32],
        principal: "alice".to_owned(),
        capability: "tool/pay".to_owned(),
        arguments: "{}".to_owned(),
        policy_version: u64::MAX,
        reason: "it costs money".to_owned(),
        needs: Approver::Operator,
        requested_us: now_us,
        expires_us: now_us + 3_600_000_000,
    }
}

#[test]
fn an_approval_is_used_by_one_of_two_nodes() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let options = options(&postgres.fresh_database());
    runtime().block_on(async {
        let nodes = [open(&options), open(&options)];
        for _ in 0..10 {
            let asked = nodes[0].request_approval(&approval()).await.unwrap();
            // Decided from outside, as by an operator at the command line.
            let mut desk = PostgresOfflineApprovals::open(&options).unwrap();
            desk.decide(
                asked.id,
                &Verdict::new(Decision::Approve, "olga", system_now_us()),
            )
            .unwrap();
            let again = desk.decide(
                asked.id,
                &Verdict::new(Decision::Deny, "olga", system_now_us()),
            );
            assert!(again.unwrap_err().to_string().contains("decided already"));
            let other = NewApproval {
                binding: [8; 32],
                ..approval()
            };
            let other = nodes[0].request_approval(&other).await.unwrap().id;
            let verdict = |decision| Verdict {
                proof: Some("at the desk".to_owned()),
                reason: Some("a \0 reason".to_owned()),
                ..Verdict::new(decision, "olga", system_now_us())
            };
            desk.decide(other, &verdict(Decision::Deny)).unwrap();
            let revoked = desk.decide(other, &verdict(Decision::Revoke)).unwrap();
            assert_eq!(revoked.state, ApprovalState::Revoked);
            let mut reader = PostgresReader::open(&options).unwrap();
            assert_eq!(reader.approval(other).unwrap(), Some(revoked));
            let (id, binding) = (asked.id, asked.binding);
            let tries: Vec<_> = nodes
                .iter()
                .flat_map(|node| [node.clone(), node.clone(), node.clone()])
                .map(|node| {
                    tokio::spawn(async move {
                        let claim = Claim::Approval {
                            approval: id,
                            binding,
                        };
                        let start = Start {
                            approval: Some(id),
                            ..start("alice")
                        };
                        match node.begin_claiming(&start, &[claim]).await {
                            Ok(open) => {
                                open.finish(&done()).await.unwrap();
                                true
                            }
                            Err(BeginError::Refused(ClaimRefusal::Approval(
                                ApprovalProblem::Used,
                            ))) => false,
                            Err(other) => panic!("{other:?}"),
                        }
                    })
                })
                .collect();
            let mut won = 0;
            for one in tries {
                won += usize::from(one.await.unwrap());
            }
            assert_eq!(won, 1);
        }
        for node in &nodes {
            close(node).await;
        }
        assert_verified(&mut PostgresReader::open(&options).unwrap());
    });
}

/// All texts of an error, in every form.
fn said(error: &dyn Error) -> String {
    let mut text = format!("{error:?} {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error:?} {error}"));
        cause = error.source();
    }
    text
}

#[test]
fn what_cannot_be_opened_says_why_and_not_the_password() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1;
    let check = |url: &str, expected: fn(&PostgresOpenError) -> bool| {
        let options = options(url).with_max_attempt(Duration::from_secs(3));
        let reader = PostgresReader::open(&options).map(|_| ());
        let ledger = PostgresLedger::open(&options).map(|_| ());
        for error in [reader.unwrap_err(), ledger.unwrap_err()] {
            let said = said(&error);
            assert!(expected(&error), "{said}");
            for secret in [postgres.password(), "hushed"] {
                assert!(!said.contains(secret), "{said}");
                assert!(!format!("{options:?} {options}").contains(secret));
            }
        }
    };
    let reader = PostgresReader::open(&options(&url)).map(|_| ());
    assert!(matches!(
        reader.unwrap_err(),
        PostgresOpenError::Missing { .. }
    ));
    check(&postgres.url_as("owlclaw", "hushed", database), |it| {
        matches!(it, PostgresOpenError::Refused { .. })
    });
    check(&postgres.url_as("nobody_here", "hushed", database), |it| {
        matches!(it, PostgresOpenError::Refused { .. })
    });
    check(
        &postgres.url_as("owlclaw", postgres.password(), "no_such"),
        |it| matches!(it, PostgresOpenError::Refused { .. }),
    );
    let nobody = testkit::free_port();
    check(
        &format!("postgres://owlclaw:hushed@127.0.0.1:{nobody}/x"),
        |it| matches!(it, PostgresOpenError::Unreachable { .. }),
    );

    postgres.sql("CREATE ROLE poor LOGIN PASSWORD 'hushed'");
    let poor = postgres.url_as("poor", "hushed", database);
    let error = PostgresLedger::open(&options(&poor))
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(&error, PostgresOpenError::NotPermitted { .. }),
        "{}",
        said(&error)
    );
    // One that may read what there is.
    let recorder = open(&options(&url));
    runtime().block_on(async {
        call(&recorder, "alice").await.unwrap();
        close(&recorder).await;
    });
    PostgresReader::open(&options(&url))
        .unwrap()
        .count()
        .unwrap();
    check(&poor, |it| {
        matches!(it, PostgresOpenError::NotPermitted { .. })
    });
    postgres.sql_in(
        database,
        "GRANT USAGE ON SCHEMA owlclaw_ledger TO poor;
         GRANT SELECT ON ALL TABLES IN SCHEMA owlclaw_ledger TO poor",
    );
    let mut reader = PostgresReader::open(&options(&poor)).unwrap();
    assert_eq!(reader.recent(9, Filter::default()).unwrap().len(), 1);
    let error = PostgresLedger::open(&options(&poor))
        .map(|_| ())
        .unwrap_err();
    assert!(
        matches!(error, PostgresOpenError::NotPermitted { .. }),
        "{error:?}"
    );

    postgres.sql_in(
        database,
        "INSERT INTO owlclaw_ledger.migration (version) VALUES (99)",
    );
    check(&url, |it| {
        matches!(it, PostgresOpenError::Newer { found: 99, .. })
    });
    // The server has no certificate, and the address asks for encryption.
    check(&format!("{url}?sslmode=require"), |it| {
        matches!(it, PostgresOpenError::Unreachable { .. })
    });
}

#[test]
fn owlclaw_finds_its_columns() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1;
    let recorder = open(&options(&url));
    runtime().block_on(async {
        call(&recorder, "alice").await.unwrap();
        let end = End::new(Outcome::Denied { reason: "budget" });
        recorder.refuse(&start("bob"), &end).await.unwrap();
        let strange = Start {
            arguments: r#"{"text":"\u0000"}"#,
            ..start("carol")
        };
        let end = End {
            result: "[1,2]",
            message: Some("it broke"),
            duration_us: 1_234_567,
            ..End::new(Outcome::Failed)
        };
        let open = recorder.begin(&strange).await.unwrap();
        open.finish(&end).await.unwrap();
        let cut = Start {
            arguments: &format!("\"{}\"", "x".repeat(20_000)),
            ..start("dave")
        };
        let open = recorder.begin(&cut).await.unwrap();
        open.finish(&End::new(Outcome::TimedOut)).await.unwrap();
        let _running = recorder.begin(&start("erin")).await.unwrap();
        PostgresReader::open(&options(&url)).unwrap().count().unwrap();
        let rows = postgres.sql_in(
            database,
            "SELECT tenant_id, agent_id, run_id, capability_name, task_type,
                left(input_params::text, 40), output_result, decision_reasoning,
                execution_time_ms, llm_model, llm_tokens_input, estimated_cost, status,
                error_message, created_at > now() - interval '1 hour'
             FROM owlclaw_ledger.ledger_records ORDER BY agent_id",
        );
        let cut = format!("{{\"text\": \"\\\"{}", "x".repeat(28));
        let expected = [
            r#"default|alice|17|pay|unknown|{"to": "bob"}|{"paid": true}||0||0|0.0000|success||t"#,
            r#"default|bob|17|pay|unknown|{"to": "bob"}||budget|0||0|0.0000|blocked||t"#,
            r#"default|carol|17|pay|unknown|{"text": "{\"text\":\"\\u0000\"}"}|{"result": [1, 2]}||1234||0|0.0000|error|it broke|t"#,
            &format!("default|dave|17|pay|unknown|{cut}|||0||0|0.0000|timeout||t"),
        ];
        let rows: Vec<&str> = rows.lines().collect();
        assert_eq!(rows, expected);
        // Its types, too.
        let types = postgres.sql_in(
            database,
            "SELECT string_agg(column_name || ' ' || data_type, ', ' ORDER BY ordinal_position)
             FROM information_schema.columns
             WHERE table_schema = 'owlclaw_ledger' AND table_name = 'ledger_records'",
        );
        for column in [
            "id uuid",
            "tenant_id character varying",
            "input_params jsonb",
            "execution_time_ms integer",
            "estimated_cost numeric",
            "approval_time timestamp with time zone",
            "created_at timestamp with time zone",
        ] {
            assert!(types.contains(column), "{types}");
        }
    });
}

#[test]
fn a_node_that_waits_for_the_others_turn_still_lives() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    let short = options(&url).with_lease(Duration::from_secs(1));
    runtime().block_on(async {
        let nodes = [open(&short), open(&short)];
        let open_call = nodes[0].begin(&start("alice")).await.unwrap();
        // Somebody holds the end of the ledger for longer than a lease.
        let held = Instant::now();
        tokio::task::spawn_blocking(move || {
            postgres.sql_in(
                &database,
                "BEGIN; SELECT * FROM owlclaw_ledger.tail FOR UPDATE; SELECT pg_sleep(3); COMMIT",
            );
        })
        .await
        .unwrap();
        assert!(Duration::from_secs(3) <= held.elapsed());
        let mut reader = PostgresReader::open(&short).unwrap();
        assert_eq!(reader.unresolved(9, None).unwrap(), []);
        open_call.finish(&done()).await.unwrap();
        for node in &nodes {
            close(node).await;
        }
    });
}

#[test]
fn a_second_row_of_a_call_is_found_where_a_page_of_keys_ends() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    let options = options(&url);
    let rows = ledger::MAX_PAGE_ROWS;
    runtime().block_on(async {
        let recorder = open(&options);
        let mut calls = tokio::task::JoinSet::new();
        for number in 0..=rows {
            let recorder = recorder.clone();
            calls.spawn(async move {
                let (name, mut start) = (format!("{number:04}"), start("alice"));
                let mut claim = key(&start);
                claim.key.clone_from(&name);
                start.idempotency_key = Some(&name);
                claim.until_us = u64::MAX;
                start.key_until_us = Some(claim.until_us);
                let claims = [Claim::Key(claim)];
                let begun = recorder.begin_claiming(&start, &claims).await.unwrap();
                begun.finish(&done()).await.unwrap();
            });
            if calls.len() == 64 {
                calls.join_next().await.unwrap().unwrap();
            }
        }
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
        close(&recorder).await;
    });
    let mut reader = PostgresReader::open(&options).unwrap();
    assert_verified(&mut reader);
    for principal in ["aaron", "eve"] {
        for of in rows - 2..=rows {
            postgres.sql_in(
                &database,
                &format!(
                    "INSERT INTO owlclaw_ledger.idempotency_key
                     SELECT '{principal}', key, capability, digest, call, at_us, until_us, state, result
                     FROM owlclaw_ledger.idempotency_key ORDER BY call LIMIT 1 OFFSET {of}"
                ),
            );
            let report = ledger::verify(&mut reader, ledger::Trust::default()).unwrap();
            let table = "idempotency_key";
            let what = report.first_wrong.map(|wrong| wrong.what);
            let expected = ledger::Fault::TableDiffers { table };
            assert_eq!(what, Some(expected), "{principal} {of}");
            postgres.sql_in(
                &database,
                "DELETE FROM owlclaw_ledger.idempotency_key WHERE principal <> 'alice'",
            );
        }
    }
    assert_verified(&mut reader);
    postgres.sql_in(
        &database,
        "DELETE FROM owlclaw_ledger.idempotency_key WHERE key = '0001'",
    );
    let report = ledger::verify(&mut reader, ledger::Trust::default()).unwrap();
    let what = report.first_wrong.map(|wrong| wrong.what);
    let table = "idempotency_key";
    assert_eq!(what, Some(ledger::Fault::TableDiffers { table }));
}

#[test]
fn charges_are_stored_in_the_transaction_of_ends() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    postgres.sql(
        "CREATE TABLE told (principal text, node bigint, sequence bigint, actual bigint,
            PRIMARY KEY (principal, node, sequence));
        CREATE TABLE orphans (principal text, node bigint, sequence bigint, capability text, is_read boolean,
            cost bigint, estimate bigint, month_start_ms bigint, counter bigint, at_ms bigint,
            PRIMARY KEY (node, sequence))",
    );
    let told = || postgres.sql("SELECT * FROM told ORDER BY sequence");
    let options = options(&postgres.url());
    runtime().block_on(async {
        let other = open(&options);
        assert!(!other.takes_charges());
        for (first, durability) in [(10, Durability::Strict), (20, Durability::Relaxed)] {
            let store = PostgresLedger::open(
                &options
                    .clone()
                    .with_durability(durability)
                    .with_charges("told", "orphans"),
            );
            let recorder_options = RecorderOptions {
                durability,
                ..RecorderOptions::default()
            };
            let recorder = Recorder::spawn(store.unwrap(), recorder_options).unwrap();
            assert!(recorder.takes_charges());
            let account = |sequence| Account {
                principal: "alice".into(),
                node: 7,
                sequence,
            };
            let before = told();
            // Alone, and where another server has appended meanwhile.
            for sequence in [first, first + 1] {
                let mut begun = recorder.begin(&start("alice")).await.unwrap();
                begun.charge_to(account(sequence));
                begun.finish(&done()).await.unwrap();
                call(&other, "bob").await.unwrap();
            }
            let both = format!("alice|7|{first}|3\nalice|7|{}|3", first + 1);
            let expected = [before, both].join("\n");
            assert_eq!(told(), expected.trim());
            // What has cost what was expected, or never ran, needs nobody to be told.
            let as_expected = End {
                cost_micros: 5,
                ..done()
            };
            let mut begun = recorder.begin(&start("alice")).await.unwrap();
            begun.charge_to(account(first + 2));
            begun.finish(&as_expected).await.unwrap();
            let mut begun = recorder.begin(&start("alice")).await.unwrap();
            begun.charge_to(account(first + 3));
            begun.charge_nothing();
            begun.finish(&done()).await.unwrap();
            let mut begun = recorder.begin(&start("alice")).await.unwrap();
            begun.charge_to(account(first + 4));
            drop(begun);
            assert_eq!(told(), expected.trim());
            // A correction says also what was counted, whether it is the same or not.
            for (sequence, cost_micros) in [(first + 5, 5), (first + 6, 3)] {
                let mut begun = recorder.begin(&start("alice")).await.unwrap();
                let counted = Counted {
                    capability: "tool/t".to_owned(),
                    month_start_ms: 77,
                    cost_micros: 9,
                };
                begun.correct(account(sequence), counted);
                let end = End {
                    cost_micros,
                    ..done()
                };
                begun.finish(&end).await.unwrap();
            }
            // What is charged meanwhile is not what the entry says.
            let mut begun = recorder.begin(&start("alice")).await.unwrap();
            begun.charge_to(account(first + 7));
            begun.charge_meanwhile(8);
            begun.finish(&done()).await.unwrap();
            close(&recorder).await;
            let [five, six, seven] = [first + 5, first + 6, first + 7];
            let corrected = format!("alice|7|{five}|5\nalice|7|{six}|3\nalice|7|{seven}|8");
            assert_eq!(told(), format!("{expected}\n{corrected}").trim());
            let orphans = postgres.sql(&format!(
                "SELECT principal, node, sequence, capability, is_read, cost, estimate, month_start_ms, counter
                 FROM orphans WHERE {first} <= sequence ORDER BY sequence"
            ));
            let of = |sequence| format!("alice|7|{sequence}|tool/t|f|9|9|77|0");
            assert_eq!(orphans, [of(five), of(six)].join("\n"));
        }
        close(&other).await;
    });
    assert_eq!(whole(&options).len(), 20);
}

#[test]
fn what_an_insertion_does_not_store_is_not_taken_for_recorded() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    let sql = |sql: &str| postgres.sql_in(&database, sql);
    let options = options(&url);
    runtime().block_on(async {
        let patience = RecorderOptions {
            max_wait: Duration::from_secs(2),
            ..RecorderOptions::default()
        };
        let store = PostgresLedger::open(&options).unwrap();
        let recorder = Recorder::spawn(store, patience).unwrap();
        call(&recorder, "alice").await.unwrap();
        let state = "SELECT (SELECT count(*) FROM owlclaw_ledger.entry_group), tail.*
            FROM owlclaw_ledger.tail";
        let swallow = "CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RETURN NULL; END $$";
        sql(swallow);
        let trigger = |table: &str| {
            let place = format!("owlclaw_ledger.{table}");
            let made = format!(
                "CREATE TRIGGER swallow BEFORE INSERT ON {place} FOR EACH ROW
                 EXECUTE FUNCTION swallow()"
            );
            (made, format!("DROP TRIGGER swallow ON {place}"))
        };
        let rule = (
            "CREATE RULE swallow AS ON INSERT TO owlclaw_ledger.entry_group DO INSTEAD NOTHING"
                .to_owned(),
            "DROP RULE swallow ON owlclaw_ledger.entry_group".to_owned(),
        );
        let keys = trigger("idempotency_key");
        for (made, removed) in [trigger("entry_group"), rule, keys] {
            let before = sql(state);
            sql(&made);
            let start = start("bob");
            let claim = Claim::Key(key(&start));
            let plain = async { recorder.begin(&start).await.map(drop) };
            let claiming = async { recorder.begin_claiming(&start, &[claim]).await.map(drop) };
            if !made.contains("idempotency_key") {
                assert_eq!(plain.await, Err(RecordError::Unavailable), "{made}");
            }
            let refused = claiming.await.unwrap_err();
            let is_unavailable = matches!(refused, BeginError::Record(RecordError::Unavailable));
            assert!(is_unavailable, "{made}: {refused:?}");
            let health = recorder.health().last_error.unwrap();
            let told = match made.contains("RULE") {
                true => "cannot perform INSERT RETURNING",
                false => "has not stored",
            };
            assert!(health.contains(told), "{made}: {health}");
            assert_eq!(sql(state), before, "{made}");
            sql(&removed);
            until("calls are recorded again", || recorder.is_ok()).await;
            call(&recorder, "alice").await.unwrap();
        }
        close(&recorder).await;
        assert_verified(&mut PostgresReader::open(&options).unwrap());
    });
}

#[test]
fn tables_that_do_not_fit_the_entries_or_do_not_obey_are_told_and_not_gone_on_with() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    let sql = |sql: &str| postgres.sql_in(&database, sql);
    let options = options(&url);
    runtime().block_on(async {
        let recorder = open(&options);
        call(&recorder, "alice").await.unwrap();
        call(&recorder, "alice").await.unwrap();
        close(&recorder).await;
    });
    assert_verified(&mut PostgresReader::open(&options).unwrap());
    let of_calls = "UPDATE owlclaw_ledger.indexed SET through = through";
    PostgresReader::open(&options).unwrap().count().unwrap();
    sql("CREATE FUNCTION same() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$");
    let of_tail = "UPDATE owlclaw_ledger.tail SET next_sequence = next_sequence";
    let through: u64 = sql("SELECT through FROM owlclaw_ledger.indexed")
        .parse()
        .unwrap();
    let cases = [
        (
            format!("{of_tail} + 5"),
            format!("{of_tail} - 5"),
            "ends with entry 9, and the entries end with entry 4",
        ),
        (
            format!("{of_tail} - 1"),
            format!("{of_tail} + 1"),
            "ends with entry 3, and the entries end with entry 4",
        ),
        (
            format!("{of_calls} - 2"),
            format!("{of_calls} + 2"),
            "the table indexed says that entries are indexed through entry 2",
        ),
        (
            "DELETE FROM owlclaw_ledger.indexed".to_owned(),
            format!("INSERT INTO owlclaw_ledger.indexed (through) VALUES ({through})"),
            "the table indexed does not have its row",
        ),
        (
            "CREATE TRIGGER x BEFORE INSERT ON owlclaw_ledger.call FOR EACH ROW
                EXECUTE FUNCTION same()"
                .to_owned(),
            "DROP TRIGGER x ON owlclaw_ledger.call".to_owned(),
            "the trigger x of owlclaw_ledger.call",
        ),
        (
            "CREATE RULE x AS ON DELETE TO owlclaw_ledger.approval DO INSTEAD NOTHING".to_owned(),
            "DROP RULE x ON owlclaw_ledger.approval".to_owned(),
            "the rule x of owlclaw_ledger.approval",
        ),
    ];
    for (change, back, expected) in cases {
        sql(&change);
        let mut reader = PostgresReader::open(&options).unwrap();
        let report = ledger::verify(&mut reader, ledger::Trust::default()).unwrap();
        let wrong = report.first_wrong.expect(&change).to_string();
        assert!(wrong.contains(expected), "{change}: {wrong}");
        assert_eq!(reader.fault().unwrap().unwrap().to_string(), wrong);
        for error in [
            PostgresLedger::open(&options).map(drop).unwrap_err(),
            PostgresOfflineApprovals::open(&options)
                .map(drop)
                .unwrap_err(),
        ] {
            let is_told = matches!(error, PostgresOpenError::Unsound { .. });
            assert!(is_told && error.to_string().contains(expected), "{error:?}");
        }
        if change.contains("+ 5") {
            let asked = reader.notes(9, ledger::NoteFilter::default());
            let error: &dyn Error = &asked.unwrap_err();
            let told = error.source().unwrap().to_string();
            assert!(told.contains(expected), "{told}");
        }
        sql(&back);
        assert_verified(&mut PostgresReader::open(&options).unwrap());
    }
    // Where it applies to the user, and not otherwise.
    sql("CREATE ROLE watched LOGIN PASSWORD 'hushed'; GRANT USAGE ON SCHEMA owlclaw_ledger TO watched;
         GRANT SELECT ON ALL TABLES IN SCHEMA owlclaw_ledger TO watched;
         ALTER TABLE owlclaw_ledger.note ENABLE ROW LEVEL SECURITY");
    assert_verified(&mut PostgresReader::open(&options).unwrap());
    let watched = self::options(&postgres.url_as("watched", "hushed", &database));
    let fault = PostgresReader::open(&watched)
        .unwrap()
        .fault()
        .unwrap()
        .unwrap();
    let told = fault.to_string();
    assert!(
        told.contains("ALTER TABLE owlclaw_ledger.note DISABLE ROW"),
        "{told}"
    );
}

/// Brings the ledger back to what it was when it ended before this entry.
fn roll_back(postgres: &Postgres, next: &str, hash: &str) {
    postgres.sql(&format!(
        "BEGIN;
         LOCK owlclaw_ledger.tail;
         DELETE FROM owlclaw_ledger.entry_group WHERE first_sequence >= {next};
         DELETE FROM owlclaw_ledger.call WHERE start_sequence >= {next};
         DELETE FROM owlclaw_ledger.note WHERE sequence >= {next};
         UPDATE owlclaw_ledger.indexed SET through = least(through, {next} - 1);
         UPDATE owlclaw_ledger.tail SET next_sequence = {next}, hash = '{hash}';
         COMMIT"
    ));
}

#[test]
fn a_database_that_is_rolled_back_under_a_server_is_not_written_to() {
    for is_cut in [false, true] {
        let Some(postgres) = Postgres::start() else {
            return;
        };
        let options = options(&postgres.url());
        runtime().block_on(async {
            let (recorder, other) = (open(&options), open(&options));
            for _ in 0..3 {
                call(&recorder, "alice").await.unwrap();
                call(&other, "bob").await.unwrap();
            }
            let end = "SELECT next_sequence, hash FROM owlclaw_ledger.tail";
            let kept = postgres.sql(end);
            let (next, hash) = kept.split_once('|').unwrap();
            for _ in 0..3 {
                call(&recorder, "alice").await.unwrap();
                call(&other, "bob").await.unwrap();
            }
            roll_back(&postgres, next, hash);
            if is_cut {
                postgres.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                     WHERE application_name = 'owlclaw-mcp ledger'",
                );
            }
            for recorder in [&recorder, &other] {
                let refused = call(recorder, "alice").await;
                assert_eq!(refused.unwrap_err(), RecordError::Unavailable);
                until("the rollback is told", || {
                    let error = recorder.health().last_error.unwrap_or_default();
                    error.contains("is not in the ledger any more")
                })
                .await;
                assert!(!recorder.is_ok());
            }
            assert_eq!(postgres.sql(end), kept);
        });
    }
}

#[test]
fn a_line_of_a_forked_ledger_is_found_among_those_of_the_file() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let options = options(&postgres.url());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("checkpoints");
    let checkpoints = |max_entries| {
        ledger::Checkpoints::new(ledger::CheckpointOptions {
            entries: max_entries,
            file: Some(file.clone()),
            shared: true,
            ..ledger::CheckpointOptions::default()
        })
    };
    runtime().block_on(async {
        let store = PostgresLedger::open(&options).unwrap();
        let recorder =
            Recorder::spawn_with_hook(store, RecorderOptions::default(), checkpoints(4)).unwrap();
        for _ in 0..20 {
            call(&recorder, "alice").await.unwrap();
        }
        close(&recorder).await;
    });
    let mut reader = PostgresReader::open(&options).unwrap();
    ledger::check_continuity(Some(&mut reader), &file).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    let mut forked = ledger::Checkpoint::from_json(&lines[2]).unwrap();
    forked.hash[0] ^= 1;
    lines[2] = forked.to_json();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let error = ledger::check_continuity(Some(&mut reader), &file).unwrap_err();
    assert!(
        matches!(error, ledger::ContinuityError::Differs { sealed, .. } if sealed == forked.sequence),
        "{error}"
    );
}
