//! What is on disk after a process was killed in the middle of its work.
//!
//! The test starts itself again as a child that writes as fast as it can and says what has been
//! acknowledged. This proves what survives the process; that it survives the machine is the
//! database's promise (`synchronous = FULL`), which no test in here can pull the plug on.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use ledger::{
    CallId, Durability, End, Filter, Kind, LedgerReader, Outcome, ReadLedger, Recorder,
    RecorderOptions, SqliteLedger, Start, system_now_us,
};
use std::{
    collections::{HashMap, HashSet},
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

const PATH_VARIABLE: &str = "LEDGER_CRASH_TEST_PATH";
const CALLERS: usize = 16;
const ROUNDS: usize = 3;
const ACKNOWLEDGED_BEFORE_KILL: usize = 1_500;

/// Not a test, but the child: writes until it is killed.
#[test]
fn child() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else {
        return;
    };
    let store = SqliteLedger::open(path, Durability::Strict).unwrap();
    let recorder = Recorder::spawn(store, RecorderOptions::default()).unwrap();
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
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
    });
}

async fn call_for_ever(recorder: &Recorder, number: usize) {
    let say = |mark: &str, call: CallId| {
        // One write for a line: a line is there whole or not at all.
        let line = format!("\n{mark} {call}\n");
        std::io::stdout().write_all(line.as_bytes()).unwrap();
    };
    loop {
        let at_us = system_now_us();
        let start = Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/x");
        let open = recorder.begin(&start).await.unwrap();
        say("begun", start.call);
        if number == 0 {
            // One that is always open for longer than the others.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        open.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        say("ended", start.call);
    }
}

/// Runs the child until enough has been acknowledged, kills it, and tells what was acknowledged.
fn run_and_kill(path: &Path) -> (HashSet<CallId>, HashSet<CallId>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
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
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger.sqlite");
    let (mut begun, mut ended) = (HashSet::new(), HashSet::new());
    let mut unknown = 0;
    for _ in 0..ROUNDS {
        let (more_begun, more_ended) = run_and_kill(&path);
        begun.extend(more_begun);
        ended.extend(more_ended);

        // As the crash left it, before anybody repairs anything.
        let mut reader = LedgerReader::open(&path).unwrap();
        let open: Vec<_> = reader.open_calls().unwrap();
        let known: HashMap<_, _> = reader
            .recent(usize::MAX, Filter::default())
            .unwrap()
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
    }
    assert!(
        ended.len() < begun.len() && 0 < unknown,
        "no call was ever cut short"
    );
}
