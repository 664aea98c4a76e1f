//! Content of the disk after a process was killed in the middle of its work.
//!
//! The test starts itself again as a child that creates and completes tasks as fast as it can and
//! says what it has been told is durable. This proves what survives the process; that it survives
//! the machine is the database's promise (`synchronous = FULL`).
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{begun, block_on, completed, next, not_over, task};
use futures_util::future::join_all;
use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};
use task_store::{OpenError, SqliteTaskStore, TaskId, TaskLimits, TaskStore};

const PATH_VARIABLE: &str = "TASK_STORE_CRASH_TEST_PATH";
const CALLERS: u64 = 16;
const ROUNDS: usize = 3;
const TOLD_BEFORE_KILL: usize = 1_000;
const UNLIMITED: TaskLimits = TaskLimits {
    max_total: usize::MAX,
    max_per_principal: usize::MAX,
};

/// Not a test, but the child: writes until it is killed.
#[test]
fn child() {
    let Some(path) = std::env::var_os(PATH_VARIABLE) else {
        return;
    };
    let store = SqliteTaskStore::open(path).unwrap();
    let work_for_ever = async |number| {
        loop {
            let first = task(number);
            let created = store.create(first.clone(), begun(), UNLIMITED);
            created.await.unwrap();
            say("created", &first.id);
            assert!(store.update(next(&first, completed())).await.unwrap());
            say("completed", &first.id);
        }
    };
    block_on(join_all((0..CALLERS).map(work_for_ever)));
}

fn say(what: &str, id: &TaskId) {
    // One write for a line: a line is there whole or not at all.
    let line = format!("\n{what} {id}\n");
    std::io::stdout().write_all(line.as_bytes()).unwrap();
}

/// Runs the child until it has told enough, kills it, and tells the sequence that each task has at
/// least.
fn run_and_kill(path: &Path) -> HashMap<TaskId, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(PATH_VARIABLE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut told = HashMap::new();
    let (mut line, mut lines, mut killed) = (String::new(), 0, false);
    loop {
        line.clear();
        if output.read_line(&mut line).unwrap() == 0 {
            break;
        }
        // The last line may have been cut by the kill.
        let Some((what, id)) = line
            .strip_suffix('\n')
            .and_then(|line| line.split_once(' '))
        else {
            continue;
        };
        let Ok(id) = id.parse::<TaskId>() else {
            continue;
        };
        told.insert(id, if what == "completed" { 2 } else { 1 });
        lines += 1;
        if !killed && TOLD_BEFORE_KILL < lines {
            // Its file is in use as long as it lives.
            let error = SqliteTaskStore::open(path).unwrap_err();
            assert!(matches!(error, OpenError::Locked(_)), "{error:?}");
            child.kill().unwrap();
            killed = true;
        }
    }
    child.wait().unwrap();
    assert!(killed, "the child ended by itself");
    told
}

#[test]
fn whatever_was_durable_survives_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.sqlite");
    let mut told = HashMap::new();
    let mut unfinished = 0;
    for _ in 0..ROUNDS {
        told.extend(run_and_kill(&path));
        let store = SqliteTaskStore::open(&path).unwrap();
        for (id, sequence) in &told {
            let stored = block_on(store.get(id.clone())).unwrap();
            let stored = stored.unwrap_or_else(|| panic!("the task {id} was lost"));
            assert!(*sequence <= stored.sequence, "an end was lost: {stored:?}");
            assert_eq!(stored.sequence == 2, stored.state == completed());
        }
        for left in block_on(not_over(&store)) {
            assert!(block_on(store.update(next(&left, completed()))).unwrap());
            unfinished += 1;
        }
        assert_eq!(block_on(not_over(&store)), []);
    }
    assert!(0 < unfinished, "no task was ever cut short");
}
