//! Behaviour of a store in a file: reopening, locking, and damaged files.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{LIMITS, begun, block_on, completed, lease, new_sqlite, next, not_over, states, task};
use futures_util::{FutureExt, future::join_all};
use rusqlite::Connection;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use task_store::{Begun, OpenError, SqliteTaskStore, TaskLimits, TaskRecord, TaskState, TaskStore};

fn open(path: &Path) -> SqliteTaskStore {
    SqliteTaskStore::open(path).unwrap()
}

/// The file that [`new_sqlite`] makes.
fn file(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("tasks.sqlite")
}

#[test]
fn a_store_that_is_opened_again_has_everything() {
    let (mut store, directory) = new_sqlite();
    let tasks: Vec<_> = (0..60)
        .map(|number| TaskRecord {
            state: states().remove(number % 6),
            ..task(number as u64)
        })
        .collect();
    for created in block_on(join_all(
        tasks
            .iter()
            .map(|task| store.create(task.clone(), begun(), LIMITS)),
    )) {
        created.unwrap();
    }
    let last = next(&tasks[0], completed());
    assert!(block_on(store.update(last.clone())).unwrap());
    block_on(store.remove(tasks[1].id.clone())).unwrap();
    for _ in 0..2 {
        drop(store);
        store = open(&file(&directory));
        let get = |task: &TaskRecord| block_on(store.get(task.id.clone())).unwrap();
        assert_eq!(get(&tasks[0]).as_ref(), Some(&last));
        assert_eq!(get(&tasks[1]), None);
        for task in &tasks[2..] {
            assert_eq!(get(task).as_ref(), Some(task));
        }
        assert_eq!(block_on(not_over(&store)).len(), 18);
    }
}

#[test]
fn what_was_asked_for_is_done_before_the_store_is_gone() {
    let (store, directory) = new_sqlite();
    let tasks: Vec<_> = (0..100).map(task).collect();
    for task in &tasks {
        // Polled once, so that it is asked for, and then not waited for.
        let _ = store.create(task.clone(), begun(), LIMITS).now_or_never();
    }
    drop(store);
    let unfinished = block_on(not_over(&open(&file(&directory))));
    assert_eq!(unfinished.len(), tasks.len());
}

#[test]
fn a_large_result_is_kept_as_it_is() {
    let (store, directory) = new_sqlite();
    let first = task(7);
    block_on(store.create(first.clone(), begun(), LIMITS)).unwrap();
    let result: String = (0..1_000_000)
        .map(|number| format!("{number:08}"))
        .collect();
    let is_error = false;
    let last = next(&first, TaskState::Completed { result, is_error });
    assert!(block_on(store.update(last.clone())).unwrap());
    drop(store);
    let stored = block_on(open(&file(&directory)).get(first.id)).unwrap();
    assert!(stored == Some(last), "it is another one");
}

#[test]
fn many_may_ask_at_once() {
    // More than the queue holds and a group takes, from one thread that does nothing meanwhile.
    let (store, _directory) = new_sqlite();
    let store: Arc<dyn TaskStore> = Arc::new(store);
    let limits = TaskLimits {
        max_total: 2_000,
        max_per_principal: 2_000,
    };
    let tasks: Vec<_> = (0..2_000).map(task).collect();
    block_on(join_all(tasks.iter().map(|task| async {
        store.create(task.clone(), begun(), limits).await.unwrap();
        let last = next(task, completed());
        assert!(store.update(last.clone()).await.unwrap());
        assert_eq!(store.get(last.id.clone()).await.unwrap(), Some(last));
    })));
    assert_eq!(block_on(not_over(&*store)), []);
}

#[test]
fn a_store_has_one_owner() {
    let (store, directory) = new_sqlite();
    let path = file(&directory);
    let mut other_ways = vec![
        path.clone(),
        directory.path().join(".").join("tasks.sqlite"),
    ];
    #[cfg(unix)]
    {
        let link = directory.path().join("link.sqlite");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        other_ways.push(link);
    }
    for way in &other_ways {
        let error = SqliteTaskStore::open(way).unwrap_err();
        assert!(matches!(error, OpenError::Locked(_)), "{error:?}");
        assert!(error.to_string().contains("in use"), "{error}");
    }
    block_on(store.create(task(7), begun(), LIMITS)).unwrap();
    drop(store);
    for way in &other_ways {
        assert_eq!(block_on(not_over(&open(way))).len(), 1);
    }
}

#[test]
fn what_is_no_store_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other");
    let refused = |path: &Path| {
        let before = fs::read(path).unwrap();
        let error = SqliteTaskStore::open(path).unwrap_err();
        assert!(matches!(error, OpenError::NotATaskStore(_)), "{error:?}");
        assert_eq!(fs::read(path).unwrap(), before);
    };
    fs::write(
        &path,
        "no database, but long enough to have a head of one".repeat(99),
    )
    .unwrap();
    refused(&path);

    fs::remove_file(&path).unwrap();
    let database = Connection::open(&path).unwrap();
    database.execute_batch("CREATE TABLE task (x)").unwrap();
    drop(database);
    refused(&path);

    // Without a table yet, but with a mark.
    fs::remove_file(&path).unwrap();
    let database = Connection::open(&path).unwrap();
    database.pragma_update(None, "application_id", 7).unwrap();
    drop(database);
    refused(&path);
}

#[test]
fn a_newer_store_is_left_as_it_is() {
    let (store, directory) = new_sqlite();
    drop(store);
    let path = file(&directory);
    let database = Connection::open(&path).unwrap();
    database.pragma_update(None, "user_version", 3).unwrap();
    drop(database);
    let before = fs::read(&path).unwrap();
    let error = SqliteTaskStore::open(&path).unwrap_err();
    assert!(
        matches!(
            &error,
            OpenError::Newer {
                found: 3,
                known: 2,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn damage_is_told_and_the_rest_is_served() {
    let (store, directory) = new_sqlite();
    let (good, bad) = (task(7), task(8));
    for task in [&good, &bad] {
        block_on(store.create(task.clone(), begun(), LIMITS)).unwrap();
    }
    drop(store);
    let path = file(&directory);
    for damage in ["state = 'resting'", "sequence = -1"] {
        let database = Connection::open(&path).unwrap();
        let sql = format!("UPDATE task SET {damage} WHERE id = ?1");
        assert_eq!(database.execute(&sql, [bad.id.as_str()]).unwrap(), 1);
        drop(database);
        let store = open(&path);
        for _ in 0..2 {
            let ids = [&bad, &good].map(|task| task.id.clone());
            let mut found = block_on(join_all(ids.map(|id| store.get(id))));
            assert_eq!(found.remove(1).unwrap().as_ref(), Some(&good));
            found.remove(0).unwrap_err();
        }
    }
}

#[test]
fn a_path_that_cannot_be_opened_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for wrong in [directory.path(), &file.join("below")] {
        let error = SqliteTaskStore::open(wrong).unwrap_err();
        assert!(matches!(error, OpenError::File { .. }), "{error:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_new_store_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new/deep/tasks.sqlite");
    let store = open(&path);
    block_on(store.create(task(7), begun(), LIMITS)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    let files: Vec<_> = fs::read_dir(path.parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.len() > 2, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
}

/// The tables as version 1 had them.
const VERSION_1: &str = "
    CREATE TABLE task (
        id TEXT NOT NULL UNIQUE,
        principal TEXT NOT NULL,
        capability TEXT NOT NULL,
        protocol_version TEXT NOT NULL,
        created_us INTEGER NOT NULL,
        updated_us INTEGER NOT NULL,
        expires_us INTEGER NOT NULL,
        sequence INTEGER NOT NULL,
        state TEXT NOT NULL,
        is_error INTEGER NOT NULL,
        message TEXT,
        text TEXT NOT NULL
    ) STRICT;
    CREATE INDEX task_by_age ON task (principal, protocol_version, created_us, id);
    CREATE INDEX task_by_expiry ON task (expires_us);
    CREATE INDEX task_by_principal ON task (principal, expires_us);
    CREATE INDEX task_unfinished ON task (created_us, id)
        WHERE state IN ('working', 'input_required');
    PRAGMA application_id = 0x4F574C54;
    PRAGMA user_version = 1;
";

#[test]
fn a_store_of_version_1_is_brought_up_to_date_with_everything_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let database = Connection::open(&path).unwrap();
    database.execute_batch(VERSION_1).unwrap();
    let (working, over) = (
        task(7),
        TaskRecord {
            state: completed(),
            ..task(8)
        },
    );
    let texts = [("working", ""), ("completed", "{}")];
    for (task, (state, text)) in [&working, &over].into_iter().zip(texts) {
        let sql = "INSERT INTO task VALUES (?1, 'alice', 'tool/report', '2026-07-28', ?2, ?2, ?3,
                                            1, ?4, 0, NULL, ?5)";
        let values = rusqlite::params![
            task.id.as_str(),
            task.created_us as i64,
            task.expires_us as i64,
            state,
            text
        ];
        database.execute(sql, values).unwrap();
    }
    drop(database);
    // And once more, when there is nothing to be done.
    for _ in 0..2 {
        let store = open(&path);
        assert_eq!(
            block_on(store.get(over.id.clone())).unwrap().as_ref(),
            Some(&over)
        );
        let lapsed = block_on(store.lapsed(0)).unwrap();
        assert_eq!(lapsed.len(), 1);
        assert_eq!((&lapsed[0].record, lapsed[0].attempt), (&working, 1));
    }
    let store = open(&path);
    let again = next(&working, TaskState::Working);
    let claimed = block_on(store.claim(again.clone(), lease("second", 9), 0)).unwrap();
    let claimed = claimed.expect("nobody has it");
    assert_eq!((claimed.attempt, claimed.call), (2, None));
    assert!(block_on(store.update(next(&again, completed()))).unwrap());
    assert_eq!(block_on(not_over(&store)), []);
}

#[test]
fn who_opens_the_file_may_take_everything_at_once() {
    let (store, directory) = new_sqlite();
    let first = task(7);
    let theirs = Begun {
        lease: lease("first", i64::MAX as u64),
        call: None,
    };
    block_on(store.create(first.clone(), theirs, LIMITS)).unwrap();
    assert_eq!(block_on(store.lapsed(99)).unwrap(), []);
    drop(store);
    let store = open(&file(&directory));
    assert_eq!(block_on(store.lapsed(0)).unwrap().len(), 1);
}

#[test]
fn what_a_call_was_is_not_in_the_file_once_it_is_over() {
    let (store, directory) = new_sqlite();
    let secret = "the number of her card is 4929 1234";
    let has_secret = || {
        let files = fs::read_dir(directory.path()).unwrap();
        let mut contents = files.map(|it| fs::read(it.unwrap().path()).unwrap());
        contents.any(|bytes| {
            bytes
                .windows(secret.len())
                .any(|it| it == secret.as_bytes())
        })
    };
    let tasks: Vec<_> = (0..3).map(task).collect();
    for task in &tasks {
        // Of one page, and of many.
        let call = format!("{secret}{}", "x".repeat(9_000 * task.created_us as usize));
        let with = Begun {
            call: Some(call),
            ..begun()
        };
        block_on(store.create(task.clone(), with, LIMITS)).unwrap();
    }
    drop(store);
    assert!(has_secret());
    let store = open(&file(&directory));
    assert!(block_on(store.update(next(&tasks[0], completed()))).unwrap());
    block_on(store.remove(tasks[1].id.clone())).unwrap();
    assert_eq!(
        block_on(store.remove_expired(tasks[2].expires_us)).unwrap(),
        2
    );
    // Closing it takes the journal away.
    drop(store);
    assert!(!has_secret());
}
