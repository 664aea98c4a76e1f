//! The store over real files.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rusqlite::Connection;
use session_store::{OpenError, Opened, SessionRecord, SessionStore};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};
use tempfile::TempDir;
use tokio::time::timeout;

const GENEROUS: Duration = Duration::from_secs(30);

fn session(id: &str, last_used_ms: u64) -> SessionRecord {
    SessionRecord {
        id: id.to_owned(),
        principal: "alice".to_owned(),
        state: format!("state of {id}"),
        lives: 3,
        last_used_ms,
    }
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data").join("sessions.db");
    (directory, path)
}

fn ids(opened: &Opened) -> Vec<&str> {
    opened.sessions.iter().map(|it| it.id.as_str()).collect()
}

async fn settle(opened: &Opened) {
    timeout(GENEROUS, opened.store.settled()).await.unwrap();
}

/// A store that holds a session.
fn begin(path: &Path) {
    let opened = SessionStore::open(path).unwrap();
    opened.store.put(session("a", 1));
}

fn meddle(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
}

#[tokio::test]
async fn what_is_put_is_there_and_what_has_ended_is_not() {
    let (_directory, path) = place();
    let opened = SessionStore::open(&path).unwrap();
    assert!(opened.sessions.is_empty() && opened.set_aside.is_none());
    for (id, last_used_ms) in [("a", 1), ("b", 2), ("c", 3)] {
        opened.store.put(session(id, last_used_ms));
    }
    settle(&opened).await;
    opened.store.touch("a", 9);
    opened.store.touch("unknown", 9);
    opened.store.remove("b");
    settle(&opened).await;
    drop(opened);
    let opened = SessionStore::open(&path).unwrap();
    assert_eq!(opened.sessions, [session("a", 9), session("c", 3)]);
    // Nothing was waited for.
    opened.store.remove("a");
    drop(opened);
    assert_eq!(ids(&SessionStore::open(&path).unwrap()), ["c"]);
}

#[test]
fn only_its_owner_can_read_it() {
    let (_directory, path) = place();
    begin(&path);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
}

#[test]
fn one_process_has_it() {
    let (_directory, path) = place();
    let opened = SessionStore::open(&path).unwrap();
    let refused = SessionStore::open(&path).unwrap_err();
    assert!(matches!(refused, OpenError::Locked(_)), "{refused}");
    drop(opened);
    SessionStore::open(&path).unwrap();
}

#[test]
fn what_cannot_be_used_any_more_is_moved_aside() {
    let newer: fn(&Path) = |path| meddle(path, "PRAGMA user_version = 2");
    let torn: fn(&Path) = |path| {
        let mut bytes = fs::read(path).unwrap();
        for byte in &mut bytes[200..] {
            *byte = 0xa5;
        }
        fs::write(path, bytes).unwrap();
    };
    let cut: fn(&Path) = |path| {
        let bytes = fs::read(path).unwrap();
        fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    let garbage: fn(&Path) = |path| fs::write(path, "x".repeat(10_000)).unwrap();
    let strange: fn(&Path) = |path| meddle(path, "UPDATE session SET lives = -1");
    let emptier: fn(&Path) = |path| meddle(path, "DROP TABLE session");
    for (name, damage, why) in [
        ("newer", newer, "version 2"),
        ("torn", torn, "damaged"),
        ("cut", cut, "damaged"),
        ("garbage", garbage, "no database"),
        ("strange", strange, "damaged"),
        ("without a table", emptier, "damaged"),
    ] {
        let (_directory, path) = place();
        begin(&path);
        // Twice, so that what was moved aside before is in the way.
        for round in 0..2 {
            damage(&path);
            let opened = SessionStore::open(&path).unwrap_or_else(|it| panic!("{name}: {it:?}"));
            let aside = opened
                .set_aside
                .as_ref()
                .unwrap_or_else(|| panic!("{name}"));
            assert!(aside.why.contains(why), "{name}: {}", aside.why);
            assert!(aside.path.exists() && aside.path.ends_with("sessions.db.set-aside"));
            assert!(opened.sessions.is_empty(), "{name}");
            opened.store.put(session("b", round));
            drop(opened);
            let opened = SessionStore::open(&path).unwrap();
            assert_eq!(opened.sessions, [session("b", round)], "{name}");
            assert_eq!(opened.set_aside, None);
        }
    }
}

#[test]
fn what_was_never_a_store_is_left_alone() {
    for garbage in ["no database, but a letter".repeat(100), "x".to_owned()] {
        let (_directory, path) = place();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &garbage).unwrap();
        for _ in 0..2 {
            let refused = SessionStore::open(&path).unwrap_err();
            assert!(
                matches!(refused, OpenError::NotASessionStore(_)),
                "{refused}"
            );
            assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
        }
    }
    let (_directory, path) = place();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    meddle(&path, "CREATE TABLE books (title TEXT)");
    let before = fs::read(&path).unwrap();
    let refused = SessionStore::open(&path).unwrap_err();
    assert!(
        matches!(refused, OpenError::NotASessionStore(_)),
        "{refused}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_disk_that_fails_holds_nobody_up_and_nothing_is_lost() {
    let (_directory, path) = place();
    let opened = SessionStore::open(&path).unwrap();
    opened.store.put(session("a", 1));
    opened.store.put(session("b", 1));
    settle(&opened).await;
    let other = Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    opened.store.remove("a");
    opened.store.put(session("c", 1));
    timeout(GENEROUS, async {
        while opened.store.trouble().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    opened.store.touch("b", 2);
    other.execute_batch("ROLLBACK").unwrap();
    settle(&opened).await;
    assert_eq!(opened.store.trouble(), None);
    drop(opened);
    let opened = SessionStore::open(&path).unwrap();
    assert_eq!(ids(&opened), ["b", "c"]);
}
