//! Content of the disk after a process was killed in the middle of its work.
//!
//! The test starts itself again as a child that writes as fast as it can and says what has been
//! acknowledged. This proves what survives the process; that it survives the machine is the
//! database's promise (`synchronous = FULL`), which no test in here can pull the plug on.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ledger::{
    Approval, ApprovalId, Approver, BeginError, CallId, CallRecord, Claim, Decision, Durability,
    End, Filter, KeyClaim, Kind, LedgerReader, NewApproval, OpenCall, Outcome, ReadLedger,
    Recorder, RecorderOptions, SqliteLedger, Start, Verdict, system_now_us,
};
use rusqlite::Connection;
use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const PATH_VARIABLE: &str = "LEDGER_CRASH_TEST_PATH";
const RELAXED_VARIABLE: &str = "LEDGER_CRASH_TEST_RELAXED";
const CALLERS: usize = 16;
/// Number of callers that need approvals and have keys.
const CLAIMERS: usize = 4;
const ROUNDS: usize = 3;
const ACKNOWLEDGED_BEFORE_KILL: usize = 1_500;

/// Not a test, but the child: writes until it is killed.
#[test]
fn child() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else {
        return;
    };
    let durability = match std::env::var_os(RELAXED_VARIABLE) {
        Some(_) => Durability::Relaxed,
        None => Durability::Strict,
    };
    let store = SqliteLedger::open(path, durability).unwrap();
    let options = RecorderOptions {
        durability,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::spawn(store, options).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let recorder = recorder.clone();
                tokio::spawn(async move { call_for_ever(&recorder, number).await })
            })
            .chain((0..CLAIMERS).map(|_| {
                let recorder = recorder.clone();
                tokio::spawn(async move { claim_for_ever(&recorder).await })
            }))
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
    });
}

fn say(mark: &str, call: CallId) {
    // One write for a line: a line is there whole or not at all.
    let line = format!("\n{mark} {call}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

async fn call_for_ever(recorder: &Recorder, number: usize) {
    loop {
        let at_us = system_now_us();
        let start = Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/x");
        // As calls that change something begin, whatever the durability.
        let open = recorder.begin_durably(&start).await.unwrap();
        say("begun", start.call);
        if number == 0 {
            // One that is always open for longer than the others.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        open.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        say("ended", start.call);
    }
}

/// Has calls approved, and makes each twice at once, of which one must be refused.
async fn claim_for_ever(recorder: &Recorder) {
    loop {
        let at_us = system_now_us();
        let id = ApprovalId::random();
        let mut binding = [0; 32];
        binding[..16].copy_from_slice(id.0.as_bytes());
        let new = NewApproval {
            id,
            binding,
            principal: "alice".to_owned(),
            capability: "tool/y".to_owned(),
            arguments: "{}".to_owned(),
            policy_version: 1,
            reason: "financial".to_owned(),
            needs: Approver::Operator,
            requested_us: at_us,
            expires_us: u64::MAX,
        };
        recorder.request_approval(&new).await.unwrap();
        let decided = recorder.decide_approval(id, Verdict::new(Decision::Approve, "bob", at_us));
        let approval = decided.await.unwrap();
        let (one, other) = tokio::join!(claim(recorder, &approval), claim(recorder, &approval));
        let open = match (one, other) {
            (Ok(open), Err(BeginError::Refused(_))) | (Err(BeginError::Refused(_)), Ok(open)) => {
                open
            }
            both => panic!("both or neither: {both:?}"),
        };
        let call = open.call();
        say("begun", call);
        let end = End::new(Outcome::Succeeded);
        open.finish_keeping(&end, Some("42")).await.unwrap();
        say("ended", call);
    }
}

async fn claim(recorder: &Recorder, approval: &Approval) -> Result<OpenCall, BeginError> {
    let (at_us, key) = (system_now_us(), approval.id.to_string());
    let start = Start {
        approval: Some(approval.id),
        idempotency_key: Some(&key),
        ..Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/y")
    };
    let claims = [
        Claim::Approval {
            approval: approval.id,
            binding: approval.binding,
        },
        Claim::Key(KeyClaim {
            principal: "alice".to_owned(),
            key: key.clone(),
            capability: "tool/y".to_owned(),
            digest: approval.binding,
            call: start.call,
            at_us,
            until_us: u64::MAX,
        }),
    ];
    recorder.begin_claiming(&start, &claims).await
}

/// Stored approvals and keys: the calls that used approvals, and the calls that hold keys with
/// their states.
fn kept(path: &Path) -> (HashMap<ApprovalId, CallId>, HashMap<CallId, String>) {
    let connection = Connection::open(path).unwrap();
    let mut used = connection
        .prepare("SELECT id, used_by FROM approval WHERE state = 'used'")
        .unwrap();
    let used = used
        .query_map([], |row| {
            let (id, call): ([u8; 16], [u8; 16]) = (row.get(0)?, row.get(1)?);
            Ok((
                ApprovalId(uuid::Uuid::from_bytes(id)),
                CallId(uuid::Uuid::from_bytes(call)),
            ))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let mut keys = connection
        .prepare("SELECT call, state FROM idempotency_key")
        .unwrap();
    let keys = keys
        .query_map([], |row| {
            Ok((CallId(uuid::Uuid::from_bytes(row.get(0)?)), row.get(1)?))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    (used, keys)
}

/// No approval is used without the start that names it, and no start that was not denied names one
/// that it has not used; whoever has ended has its key marked so.
fn check_claims(path: &Path, records: &[CallRecord]) -> usize {
    let (used, keys) = kept(path);
    let mut named = HashMap::new();
    for record in records {
        let outcome = record.ended.as_ref().map(|ended| &ended.outcome);
        let denied = matches!(outcome, Some(Outcome::Denied { .. }));
        let Some(approval) = record.started.approval else {
            continue;
        };
        assert_eq!(keys.contains_key(&record.call), !denied);
        if !denied {
            assert_eq!(named.insert(approval, record.call), None, "used twice");
            let expected = match outcome {
                Some(Outcome::Succeeded) => "succeeded",
                Some(Outcome::Unknown) => "unknown",
                None => "running",
                other => panic!("nobody ends like this: {other:?}"),
            };
            assert_eq!(keys[&record.call], expected);
        }
    }
    assert_eq!(named, used);
    used.len()
}

/// Runs the child until enough has been acknowledged, kills it, and tells what was acknowledged.
fn run_and_kill(path: &Path, durability: Durability) -> (HashSet<CallId>, HashSet<CallId>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    if durability == Durability::Relaxed {
        command.env(RELAXED_VARIABLE, "1");
    }
    let mut child = command
        .args(["--exact", "child", "--nocapture"])
        .env(PATH_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let (mut begun, mut ended) = (HashSet::new(), HashSet::new());
    let mut line = String::new();
    let mut killed = false;
    loop {
        line.clear();
        if output.read_line(&mut line).unwrap() == 0 {
            break;
        }
        // The last line may have been cut by the kill.
        let Some((mark, call)) = line
            .strip_suffix('\n')
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let Ok(call) = call.parse() else { continue };
        match mark {
            "begun" => begun.insert(call),
            "ended" => ended.insert(call),
            _ => continue,
        };
        if !killed && ACKNOWLEDGED_BEFORE_KILL < begun.len() + ended.len() {
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself");
    (begun, ended)
}

#[test]
fn whatever_was_acknowledged_survives_a_kill() {
    survives_a_kill(Durability::Strict);
}

#[test]
fn calls_that_began_durably_survive_a_kill_of_a_relaxed_server_with_their_ends() {
    survives_a_kill(Durability::Relaxed);
}

fn survives_a_kill(durability: Durability) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let (mut begun, mut ended) = (HashSet::new(), HashSet::new());
    let (mut unknown, mut used) = (0, 0);
    for _ in 0..ROUNDS {
        let (more_begun, more_ended) = run_and_kill(&path, durability);
        begun.extend(more_begun);
        ended.extend(more_ended);

        // As the crash left it, before anybody repairs anything.
        let mut reader = LedgerReader::open(&path).unwrap();
        let open: Vec<_> = reader.open_calls().unwrap();
        let records = reader.recent(usize::MAX, Filter::default()).unwrap();
        used = check_claims(&path, &records);
        let known: HashMap<_, _> = records
            .into_iter()
            .map(|record| (record.call, record.ended.map(|ended| ended.outcome)))
            .collect();
        assert!(
            begun.iter().all(|call| known.contains_key(call)),
            "a start was lost"
        );
        assert!(
            ended
                .iter()
                .all(|call| known[call] == Some(Outcome::Succeeded)),
            "an end was lost"
        );

        // As the next server finds and leaves it.
        let store = SqliteLedger::open(&path, Durability::Strict).unwrap();
        let interrupted: HashSet<_> = ledger::LedgerStore::interrupted(&store)
            .iter()
            .map(|call| call.call)
            .collect();
        assert_eq!(interrupted, open.iter().map(|record| record.call).collect());
        unknown += interrupted.len();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let recorder = Recorder::spawn(store, RecorderOptions::default()).unwrap();
            recorder.close().await.unwrap();
        });
        for call in interrupted {
            let filter = Filter {
                call: Some(call),
                ..Filter::default()
            };
            let record = reader.recent(1, filter).unwrap().remove(0);
            assert_eq!(record.ended.unwrap().outcome, Outcome::Unknown);
        }
        assert_eq!(reader.open_calls().unwrap(), []);
        let records = reader.recent(usize::MAX, Filter::default()).unwrap();
        assert_eq!(check_claims(&path, &records), used);
    }
    assert!(100 < used, "hardly anything was approved");
    assert!(
        ended.len() < begun.len() && 0 < unknown,
        "no call was ever cut short"
    );
}
