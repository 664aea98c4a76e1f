//! What only a store in a file can do, and what can be wrong with a file.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;

use common::{LIMITS, block_on, completed, new_sqlite, next, states, task};
use futures_util::{FutureExt, future::join_all};
use rusqlite::Connection;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use task_store::{OpenError, SqliteTaskStore, TaskLimits, TaskRecord, TaskState, TaskStore};

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
        tasks.iter().map(|task| store.create(task.clone(), LIMITS)),
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
        assert_eq!(block_on(store.unfinished()).unwrap().len(), 18);
    }
}

#[test]
fn what_was_asked_for_is_done_before_the_store_is_gone() {
    let (store, directory) = new_sqlite();
    let tasks: Vec<_> = (0..100).map(task).collect();
    for task in &tasks {
        // Polled once, so that it is asked for, and then not waited for.
        let _ = store.create(task.clone(), LIMITS).now_or_never();
    }
    drop(store);
    let unfinished = block_on(open(&file(&directory)).unfinished()).unwrap();
    assert_eq!(unfinished.len(), tasks.len());
}

#[test]
fn a_large_result_is_kept_as_it_is() {
    let (store, directory) = new_sqlite();
    let first = task(7);
    block_on(store.create(first.clone(), LIMITS)).unwrap();
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
        store.create(task.clone(), limits).await.unwrap();
        let last = next(task, completed());
        assert!(store.update(last.clone()).await.unwrap());
        assert_eq!(store.get(last.id.clone()).await.unwrap(), Some(last));
    })));
    assert_eq!(block_on(store.unfinished()).unwrap(), []);
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
    block_on(store.create(task(7), LIMITS)).unwrap();
    drop(store);
    for way in &other_ways {
        assert_eq!(block_on(open(way).unfinished()).unwrap().len(), 1);
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
    database.pragma_update(None, "user_version", 2).unwrap();
    drop(database);
    let before = fs::read(&path).unwrap();
    let error = SqliteTaskStore::open(&path).unwrap_err();
    assert!(
        matches!(
            &error,
            OpenError::Newer {
                found: 2,
                known: 1,
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
        block_on(store.create(task.clone(), LIMITS)).unwrap();
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
    block_on(store.create(task(7), LIMITS)).unwrap();
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
