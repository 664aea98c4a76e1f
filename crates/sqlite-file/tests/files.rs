//! Files of our own are private and used by one process; all others are left as they are.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

use rusqlite::Connection;
use sqlite_file::{
    Access, FileIdentity, FileLock, Format, LockError, Unusable, create, keep_a_log,
};
use std::{env, fs, path::Path, process::Command, time::Duration};

const FORMAT: Format = Format {
    application_id: 0x5445_5354,
    version: 3,
};

/// Makes a file of this format.
fn make(path: &Path, format: Format) {
    let path = create(path).unwrap();
    let (mut connection, version) = format.open(&path, Access::Write).unwrap();
    assert_eq!(version, 0);
    keep_a_log(&connection, 4096).unwrap();
    let transaction = connection.transaction().unwrap();
    transaction
        .execute_batch("CREATE TABLE kept (number INTEGER) STRICT")
        .unwrap();
    format.mark(&transaction).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn what_is_made_is_opened_again_by_all() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    make(&path, FORMAT);
    for access in [Access::Write, Access::Share, Access::Read] {
        let (connection, version) = FORMAT.open(&path, access).unwrap();
        assert_eq!(version, 3);
        let written = connection.execute("INSERT INTO kept VALUES (1)", []);
        assert_eq!(written.is_ok(), access != Access::Read, "{access:?}");
    }
    // One that is older is told as such, and brought up to date by whoever knows how.
    make(
        &directory.path().join("older"),
        Format {
            version: 2,
            ..FORMAT
        },
    );
    let (_, version) = FORMAT
        .open(&directory.path().join("older"), Access::Read)
        .unwrap();
    assert_eq!(version, 2);
}

#[test]
fn what_is_not_ours_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name);
    fs::write(file("scrap"), "x").unwrap();
    fs::write(file("letter"), "this is a letter. ".repeat(100)).unwrap();
    let other = Format {
        application_id: 7,
        ..FORMAT
    };
    make(&file("foreign"), other);
    let newer = Format {
        version: 4,
        ..FORMAT
    };
    make(&file("newer"), newer);
    fs::write(file("empty"), "").unwrap();
    for name in ["scrap", "letter", "foreign", "newer", "empty"] {
        let before = fs::read(file(name)).unwrap();
        for access in [Access::Write, Access::Share, Access::Read] {
            let opened = FORMAT.open(&file(name), access);
            let is_expected = match (name, &opened) {
                ("scrap" | "letter", Err(Unusable::NotADatabase)) => true,
                ("foreign", Err(Unusable::Foreign)) => true,
                ("newer", Err(Unusable::Newer { found: 4, known: 3 })) => true,
                // Only who makes files makes something of an empty one.
                ("empty", Ok((_, 0))) => access == Access::Write,
                ("empty", Err(Unusable::Foreign)) => access != Access::Write,
                _ => false,
            };
            assert!(is_expected, "{name}, {access:?}: {opened:?}");
        }
        assert_eq!(fs::read(file(name)).unwrap(), before, "{name}");
    }
}

#[test]
fn one_has_a_file_and_others_are_told_what_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let path = create(&directory.path().join("file")).unwrap();
    let mut lock = FileLock::take(&path).unwrap();
    assert_eq!(lock.found(), "");
    let said = |path: &Path| match FileLock::take(path) {
        Err(LockError::Held { said }) => said,
        other => panic!("{other:?}"),
    };
    assert_eq!(said(&path), "");
    lock.say("something much longer than what comes after")
        .unwrap();
    lock.say("process 7").unwrap();
    assert_eq!(said(&path), "process 7");
    drop(lock);
    assert_eq!(FileLock::take(&path).unwrap().found(), "process 7");
    // However much is in it, and whatever.
    fs::write(directory.path().join("file.lock"), vec![0xff; 100_000]).unwrap();
    let lock = FileLock::take(&path).unwrap();
    assert!(lock.found().chars().count() <= 256);
}

#[cfg(unix)]
#[test]
fn only_its_owner_can_read_it_and_links_lead_to_it() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/file");
    let made = create(&path).unwrap();
    let _lock = FileLock::take(&made).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&directory.path().join("deep/er/file.lock")), 0o600);
    assert_eq!(mode(&directory.path().join("deep")), 0o700);
    assert_eq!(mode(&directory.path().join("deep/er")), 0o700);
    symlink(&path, directory.path().join("link")).unwrap();
    assert_eq!(create(&directory.path().join("link")).unwrap(), made);
    // Something else has its place.
    let error = create(&directory.path().join("deep")).unwrap_err();
    assert_eq!(error.path, directory.path().join("deep"));
}

#[cfg(unix)]
#[test]
fn a_file_is_known_from_another_of_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let (path, away) = (directory.path().join("file"), directory.path().join("away"));
    create(&path).unwrap();
    let identity = FileIdentity::of(&path).unwrap();
    assert_eq!(FileIdentity::of(&path), Some(identity));
    fs::rename(&path, &away).unwrap();
    assert_eq!(FileIdentity::of(&path), None);
    create(&path).unwrap();
    assert_ne!(FileIdentity::of(&path), Some(identity));
    assert_eq!(FileIdentity::of(&away), Some(identity));
}

/// Variable that names the file for the other process of the test below.
const OTHER: &str = "SQLITE_FILE_TEST_OTHER";

/// Exit code of that process if the file is locked.
const LOCKED: i32 = 7;

#[test]
fn looking_at_a_file_again_takes_nobody_s_locks_away() {
    if let Some(path) = env::var_os(OTHER) {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        let locked = connection.execute_batch("BEGIN IMMEDIATE").is_err();
        std::process::exit(if locked { LOCKED } else { 0 });
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    make(&path, FORMAT);
    let connection = Connection::open(&path).unwrap();
    // Without a log, locks are on the file itself.
    connection
        .pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(()))
        .unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    let other = || {
        Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "looking_at_a_file_again_takes_nobody_s_locks_away",
            ])
            .env(OTHER, &path)
            .output()
            .unwrap()
            .status
            .code()
    };
    assert_eq!(other(), Some(LOCKED));
    create(&path).unwrap();
    FORMAT.open(&path, Access::Read).unwrap();
    drop(FORMAT.open(&path, Access::Write).unwrap());
    assert_eq!(other(), Some(LOCKED));
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(other(), Some(0));
}
