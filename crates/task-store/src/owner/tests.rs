use super::*;
use crate::{Begun, Lease, TaskId, TaskLimits, TaskRecord, TaskState, table};
use rusqlite::ErrorCode;
use std::path::Path;
use tempfile::TempDir;

type Answer<T> = oneshot::Receiver<Result<T, StoreError>>;

fn database() -> (Database, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.sqlite");
    std::fs::write(&path, "").unwrap();
    let lock = FileLock::take(&path).unwrap();
    let connection = schema::open(&path, true).unwrap();
    (Database::new(path, connection, lock), directory)
}

/// A job, and where its answer comes.
fn job<T: Send + 'static>(
    function: impl Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
) -> (Box<dyn Job>, Answer<T>) {
    let (reply, answer) = oneshot::channel();
    (Box::new(Call::new(function, reply)), answer)
}

fn task(result: String) -> TaskRecord {
    TaskRecord {
        id: TaskId::random(),
        principal: "alice".to_owned(),
        capability: "tool/x".to_owned(),
        protocol_version: "2026-07-28".to_owned(),
        created_us: 1,
        updated_us: 1,
        expires_us: 2,
        sequence: 1,
        state: TaskState::Completed {
            result,
            is_error: false,
        },
        message: None,
    }
}

fn creation(task: &TaskRecord) -> (Box<dyn Job>, Answer<Result<(), crate::CreateError>>) {
    let task = task.clone();
    let lease = Lease {
        owner: "first".to_owned(),
        until_us: 0,
    };
    let begun = Begun { lease, call: None };
    job(move |connection| table::create(connection, &task, &begun, TaskLimits::default()))
}

/// Number stored in the file, read on another connection.
fn stored(path: &Path) -> i64 {
    let reader = Connection::open(path).unwrap();
    reader
        .query_row("SELECT count(*) FROM task", [], |row| row.get(0))
        .unwrap()
}

fn cause(error: StoreError) -> rusqlite::Error {
    *error.0.downcast().unwrap()
}

#[test]
fn a_group_is_one_transaction() {
    let (mut database, _directory) = database();
    let (first, mut first_answer) = creation(&task(String::new()));
    let path = database.path.clone();
    let (look, mut seen) = job(move |_| Ok(stored(&path)));
    database.serve(vec![first, look]);
    assert_eq!(seen.try_recv().unwrap().unwrap(), 0);
    first_answer.try_recv().unwrap().unwrap().unwrap();
    assert_eq!(stored(&database.path), 1);
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    let (mut database, _directory) = database();
    let path = database.path.clone();
    let (first, first_answer) = creation(&task(String::new()));
    let answer = std::sync::Mutex::new(first_answer);
    let (look, mut seen) = job(move |_| Ok(answer.lock().unwrap().try_recv().is_ok()));
    database.serve(vec![first, look]);
    assert!(!seen.try_recv().unwrap().unwrap());
    assert_eq!(stored(&path), 1);
}

#[test]
fn who_is_to_blame_fails_alone() {
    let (mut database, _directory) = database();
    let (first, mut first_answer) = creation(&task(String::new()));
    let (bad, mut bad_answer) = job(|connection| connection.execute("nonsense", []));
    let (second, mut second_answer) = creation(&task(String::new()));
    database.serve(vec![first, bad, second]);
    bad_answer.try_recv().unwrap().unwrap_err();
    for answer in [&mut first_answer, &mut second_answer] {
        answer.try_recv().unwrap().unwrap().unwrap();
    }
    assert_eq!(stored(&database.path), 2);
}

#[test]
fn a_full_disk_fails_and_an_emptied_one_works_again() {
    let (mut database, _directory) = database();
    let small = task(String::new());
    let (first, _answer) = creation(&small);
    database.serve(vec![first]);
    let connection = database.connection.as_ref().unwrap();
    // The limit belongs to the connection, which is opened anew after a failure.
    let pages: i64 = connection
        .pragma_query_value(None, "page_count", |row| row.get(0))
        .unwrap();
    connection
        .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
        .unwrap();
    let large = task("x".repeat(100_000));
    let (second, mut answer) = creation(&large);
    database.serve(vec![second]);
    let error = cause(answer.try_recv().unwrap().unwrap_err());
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DiskFull));
    assert_eq!(stored(&database.path), 1);
    let (second, mut answer) = creation(&large);
    database.serve(vec![second]);
    answer.try_recv().unwrap().unwrap().unwrap();
    let (get, mut answer) = job(move |connection| table::get(connection, &large.id));
    database.serve(vec![get]);
    assert!(answer.try_recv().unwrap().unwrap().is_some());
}

#[test]
fn a_write_that_cannot_be_done_now_can_be_done_later() {
    let (mut database, _directory) = database();
    let record = task(String::new());
    for is_last in [false, true] {
        let connection = database.connection.as_ref().unwrap();
        if !is_last {
            connection.pragma_update(None, "query_only", true).unwrap();
        }
        let (create, mut answer) = creation(&record);
        database.serve(vec![create]);
        assert_eq!(answer.try_recv().unwrap().is_ok(), is_last);
        // Reading has not suffered.
        let id = record.id.clone();
        let (get, mut answer) = job(move |connection| table::get(connection, &id));
        database.serve(vec![get]);
        assert_eq!(answer.try_recv().unwrap().unwrap().is_some(), is_last);
    }
}

#[test]
fn an_emptied_file_is_not_taken_for_a_new_store() {
    let (mut database, _directory) = database();
    let (first, _answer) = creation(&task(String::new()));
    database.serve(vec![first]);
    database.connection = None;
    std::fs::write(&database.path, "").unwrap();
    let (second, mut answer) = creation(&task(String::new()));
    database.serve(vec![second]);
    let error = answer.try_recv().unwrap().unwrap_err();
    let error: Box<crate::OpenError> = error.0.downcast().unwrap();
    assert!(matches!(*error, crate::OpenError::NotATaskStore(_)));
}

#[test]
fn the_thread_ends_when_nobody_can_ask() {
    let (database, _directory) = database();
    let path = database.path.clone();
    let (queue, thread) = database.spawn().unwrap();
    let (first, mut answer) = creation(&task(String::new()));
    assert!(queue.try_send(first).is_ok());
    drop(queue);
    thread.join().unwrap();
    answer.try_recv().unwrap().unwrap().unwrap();
    FileLock::take(&path).unwrap();
}

#[test]
fn what_waits_already_is_a_group_up_to_a_bound() {
    let (sender, mut queue) = mpsc::channel(MAX_QUEUED_JOBS);
    let idle = || job(|_| Ok(())).0;
    for _ in 0..MAX_GROUPED_JOBS + 1 {
        assert!(sender.try_send(idle()).is_ok());
    }
    assert_eq!(group(idle(), &mut queue).len(), MAX_GROUPED_JOBS);
    assert_eq!(group(idle(), &mut queue).len(), 3);
    assert_eq!(group(idle(), &mut queue).len(), 1);
}

#[test]
fn a_commit_waits_for_the_disk() {
    let (mut database, _directory) = database();
    for is_opened_anew in [false, true] {
        let (look, mut seen) = job(|connection| {
            let synchronous = "SELECT synchronous FROM pragma_synchronous";
            let journal = "SELECT journal_mode FROM pragma_journal_mode";
            let full: i64 = connection.query_row(synchronous, [], |row| row.get(0))?;
            let mode: String = connection.query_row(journal, [], |row| row.get(0))?;
            Ok((full, mode))
        });
        database.serve(vec![look]);
        let expected = (2, "wal".to_owned());
        assert_eq!(
            seen.try_recv().unwrap().unwrap(),
            expected,
            "{is_opened_anew}"
        );
        database.connection = None;
    }
}
