//! Entries that were taken out of a ledger into an archive are found there, each once, at every moment.

#![allow(clippy::unwrap_used)]

#[path = "archive/encrypted.rs"]
mod encrypted;
mod support;

use age_format::Identity;
use ledger::*;
use rusqlite::Connection;
use std::{
    collections::{BTreeMap, HashSet},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, OnceLock, atomic::AtomicU64},
    time::Duration,
};
use support::aged::{Answers, CALLS, DAY_US, DAYS, Dated, assert_same, write_calls};

const STEP_VARIABLE: &str = "LEDGER_ARCHIVE_TEST_STEP";
const PATH_VARIABLE: &str = "LEDGER_ARCHIVE_TEST_PATH";
const RECIPIENT_VARIABLE: &str = "LEDGER_ARCHIVE_TEST_RECIPIENT";
const SEGMENT_ENTRIES: u64 = 1_500;

struct Fixture {
    directory: tempfile::TempDir,
    key: Arc<SigningKey>,
    now_us: u64,
    /// Time of checkpoints; 0 if they are made now.
    clock: Arc<AtomicU64>,
    /// Opens segments, which are encrypted for it and which nobody opens who archives.
    identity: Option<Identity>,
}

impl Fixture {
    /// A ledger of calls that overlap, some of them for days, with refusals, notes and checkpoints, as a server has
    /// left it that was killed.
    fn new() -> Self {
        static MADE: OnceLock<(tempfile::TempDir, u64)> = OnceLock::new();
        let (made, now_us) = MADE.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            let key = SigningKey::generate(&directory.path().join("ledger.key")).unwrap();
            let fixture = Self {
                key: Arc::new(key),
                now_us: system_now_us(),
                directory,
                clock: Arc::default(),
                identity: None,
            };
            let own = &fixture;
            own.write(|recorder| async move {
                let open = write_calls(&recorder, own.now_us, &own.clock).await;
                // What waits for the disk has all before it be there.
                let at_us = own.now_us;
                let start = Start::new(CallId::new(at_us), at_us, "bob", Kind::Tool, "tool/x");
                let last = recorder.begin_durably(&start).await.unwrap();
                std::fs::copy(own.checkpoints(), own.of("checkpoints.copy")).unwrap();
                let connection = Connection::open(own.path()).unwrap();
                let copy = own.of("copy.db").to_string_lossy().into_owned();
                connection.execute("VACUUM INTO ?1", [copy]).unwrap();
                drop((open, last));
            });
            (fixture.directory, fixture.now_us)
        });
        let directory = tempfile::tempdir().unwrap();
        for (from, to) in [
            ("ledger.key", "ledger.key"),
            ("checkpoints.copy", "checkpoints"),
            ("copy.db", "ledger.db"),
        ] {
            std::fs::copy(made.path().join(from), directory.path().join(to)).unwrap();
        }
        let key = SigningKey::load(&directory.path().join("ledger.key")).unwrap();
        // As a server does that opens it, which ends no call by itself.
        drop(SqliteLedger::open(directory.path().join("ledger.db"), Durability::Relaxed).unwrap());
        Self {
            directory,
            key: Arc::new(key),
            now_us: *now_us,
            clock: Arc::default(),
            identity: None,
        }
    }

    /// Such a ledger, whose segments are encrypted.
    fn encrypted() -> Self {
        Self {
            identity: Some(Identity::generate().unwrap()),
            ..Self::new()
        }
    }

    fn of(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("ledger.db")
    }

    fn archive(&self) -> PathBuf {
        self.directory.path().join("archive")
    }

    fn checkpoints(&self) -> PathBuf {
        self.directory.path().join("checkpoints")
    }

    fn recorder(&self) -> Recorder {
        let store = SqliteLedger::open(self.path(), Durability::Relaxed).unwrap();
        let checkpoints = Checkpoints::new(CheckpointOptions {
            entries: 500,
            file: Some(self.checkpoints()),
            key: Some(Arc::clone(&self.key)),
            ..CheckpointOptions::default()
        });
        let options = RecorderOptions {
            durability: Durability::Relaxed,
            max_refusals: u32::MAX,
            ..RecorderOptions::default()
        };
        let hook = Dated(checkpoints, Arc::clone(&self.clock));
        Recorder::spawn_with_hook(store, options, hook).unwrap()
    }

    fn write<F: Future<Output = ()>>(&self, writing: impl FnOnce(Recorder) -> F) {
        runtime().block_on(async {
            let recorder = self.recorder();
            writing(recorder.clone()).await;
            recorder.close().await.unwrap();
        });
    }

    fn archiver(&self) -> Archiver {
        let key = Some(Arc::clone(&self.key));
        Archiver::open(&self.path(), self.options(key)).unwrap()
    }

    fn options(&self, key: Option<Arc<SigningKey>>) -> ArchiveOptions {
        let recipient = self.identity.as_ref().map(Identity::recipient);
        ArchiveOptions {
            directory: self.archive(),
            segment_entries: SEGMENT_ENTRIES,
            key,
            recipients: recipient.into_iter().collect(),
            identities: Vec::new(),
        }
    }

    /// The beginning of the day so many days ago.
    fn days_ago(&self, days: u64) -> u64 {
        self.now_us / DAY_US * DAY_US - days * DAY_US
    }

    fn archive_all(&self, before_us: u64) -> u64 {
        let (mut archiver, mut through) = (self.archiver(), 0);
        loop {
            match archiver.step(before_us, self.now_us).unwrap() {
                Archived::Nothing => return through,
                Archived::TakenOut { through: to, .. } => through = to,
                Archived::Written { .. } => {}
            }
        }
    }

    fn reader(&self) -> LedgerReader {
        let reader = LedgerReader::open(self.path()).unwrap();
        reader.with_identities(self.identity.clone().into_iter().collect())
    }

    fn verify(&self) -> Report {
        let keys = [self.key.public().clone()];
        let checkpoints = self.checkpoints();
        let trust = Trust {
            keys: &keys,
            checkpoints: Some(&checkpoints),
            every: None,
            ..Trust::default()
        };
        verify(&mut self.reader(), trust).unwrap()
    }

    #[track_caller]
    fn assert_sound(&self) {
        let report = self.verify();
        assert_eq!(report.first_wrong, None);
        let last = self.reader().extent().unwrap().last_sequence;
        assert_eq!(report.entries, last);
    }

    fn live_rows(&self) -> (i64, i64) {
        let connection = Connection::open(self.path()).unwrap();
        let count = |table: &str| {
            let sql = format!("SELECT count(*) FROM {table}");
            connection.query_row(&sql, [], |row| row.get(0)).unwrap()
        };
        (count("entry_group"), count("call"))
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Waits until the server has put on record what was done beside it.
async fn until_said(fixture: &Fixture) {
    let connection = Connection::open(fixture.path()).unwrap();
    let is_left = || -> bool {
        let sql = "SELECT EXISTS (SELECT 1 FROM unsaid_note)";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    while is_left() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn what_was_done_beside_a_server_is_on_record_when_it_has_closed() {
    let fixture = Fixture::new();
    fixture.write(|_recorder| async {
        fixture.archive_all(fixture.days_ago(5));
    });
    let connection = Connection::open(fixture.path()).unwrap();
    let sql = "SELECT (SELECT count(*) FROM unsaid_note), (SELECT count(*) FROM archive_segment)";
    let (left, segments): (i64, i64) = connection
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap();
    assert!(0 < segments);
    assert_eq!(left, 0, "of {segments} segments");
    fixture.assert_sound();
}

fn answers(fixture: &Fixture) -> Answers {
    Answers::of(&mut fixture.reader(), fixture.now_us)
}

#[test]
fn every_answer_is_the_same_at_each_step() {
    compare_each_step(&Fixture::new());
}

fn compare_each_step(fixture: &Fixture) {
    let expected = answers(fixture);
    assert_eq!(expected.calls.len() as u64, CALLS + 1);
    assert!(10 < expected.pages.len(), "{}", expected.pages.len());
    assert_eq!(expected.open.len(), 4);
    let mut archiver = fixture.archiver();
    let (mut segments, mut steps) = (0, 0);
    loop {
        let archived = archiver.step(fixture.days_ago(2), fixture.now_us).unwrap();
        assert_same(&answers(fixture), &expected, &format!("{archived:?}"));
        steps += 1;
        match archived {
            Archived::Nothing => break,
            Archived::Written { seal, .. } => {
                segments += 1;
                seal.check_signature(&[fixture.key.public().clone()])
                    .unwrap();
            }
            Archived::TakenOut { .. } if steps % 3 != 0 => {}
            Archived::TakenOut { .. } => fixture.assert_sound(),
        }
    }
    fixture.assert_sound();
    assert!(3 <= segments, "{segments}");
    let (groups, calls) = fixture.live_rows();
    assert!(calls < CALLS as i64 / 3 && 0 < groups, "{groups} {calls}");
    let mut reader = fixture.reader();
    let archived = expected.calls.last().unwrap();
    assert_eq!(reader.call(archived.call).unwrap().as_ref(), Some(archived));
    assert_eq!(reader.segments().unwrap().len(), segments);
}

#[test]
fn a_server_goes_on_with_an_archived_ledger_and_records_what_was_archived() {
    let fixture = Fixture::new();
    let before = answers(&fixture);
    fixture.archive_all(fixture.days_ago(2));
    // A server that starts ends the calls that were open, of which two began in what is archived.
    fixture.write(|recorder| async {
        let recorder = recorder;
        let now_us = system_now_us();
        let start = Start::new(CallId::new(now_us), now_us, "alice", Kind::Tool, "tool/x");
        let call = recorder.begin(&start).await.unwrap();
        call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        until_said(&fixture).await;
    });
    fixture.assert_sound();
    let after = answers(&fixture);
    assert_eq!(after.open, []);
    assert_eq!(after.calls.len(), before.calls.len() + 1);
    let mut reader = fixture.reader();
    for open in before.open {
        let record = reader.call(open.call).unwrap().unwrap();
        assert_eq!(record.started, open.started);
        assert_eq!(record.ended.unwrap().outcome, Outcome::Unknown);
    }
    let retention = NoteKind::RETENTION;
    let notes = NoteFilter {
        kind: Some(retention.as_str()),
        ..NoteFilter::default()
    };
    let said = reader.notes(100, notes).unwrap();
    assert_eq!(said.len(), reader.segments().unwrap().len());
    assert_eq!(said.last().unwrap().noted.subject, "ledger-000001.segment");
    let checked = check_continuity(Some(&mut reader), &fixture.checkpoints()).unwrap();
    assert!(checked.last.is_some());
}

#[test]
fn an_index_that_is_made_anew_has_the_sums_of_what_was_archived() {
    let fixture = Fixture::new();
    let expected = answers(&fixture);
    fixture.archive_all(fixture.days_ago(2));
    let segment = fixture.archive().join("ledger-000002.segment");
    for (file, versions) in [(fixture.path(), [1, 3]), (segment, [1, 1])] {
        for version in versions {
            let connection = Connection::open(&file).unwrap();
            let sql = "UPDATE indexed SET version = ?1";
            connection.execute(sql, [version]).unwrap();
            drop(connection);
            assert_same(&answers(&fixture), &expected, "read beside it");
            if file == fixture.path() {
                drop(SqliteLedger::open(&file, Durability::Strict).unwrap());
                fixture.assert_sound();
                assert_same(&answers(&fixture), &expected, "opened");
            }
        }
    }
}

#[test]
fn what_is_needed_stays_in_the_ledger() {
    let fixture = Fixture::new();
    let mut archiver = fixture.archiver();
    let young = archiver.step(fixture.now_us - DAY_US, fixture.now_us);
    assert!(matches!(young, Err(ArchiveError::TooYoung)), "{young:?}");
    let another = Archiver::open(
        &fixture.path(),
        ArchiveOptions {
            directory: fixture.archive(),
            segment_entries: 1,
            key: None,
            recipients: Vec::new(),
            identities: Vec::new(),
        },
    );
    assert!(matches!(another, Err(ArchiveError::Locked(_))));
    drop(archiver);
    // A call ten days ago holds a key that has not run out.
    let holder = fixture.reader().recent(
        1,
        Filter {
            until_us: Some(fixture.days_ago(10)),
            ..Filter::default()
        },
    );
    let holder = holder.unwrap().remove(0);
    Connection::open(fixture.path())
        .unwrap()
        .execute(
            "INSERT INTO idempotency_key VALUES ('a', 'k', 'tool/x', x'00', ?1, 1, 9000000000000000, 'unknown', NULL)",
            [holder.call.0.as_bytes()],
        )
        .unwrap();
    let through = fixture.archive_all(fixture.days_ago(2));
    assert!(0 < through && through < holder.sequence);
    // What is dated in the future holds nothing back.
    let newest = fixture
        .reader()
        .recent(1, Filter::default())
        .unwrap()
        .remove(0);
    assert!(newest.sequence > through);
}

#[test]
fn changes_of_an_archive_are_found() {
    let fixture = Fixture::new();
    fixture.archive_all(fixture.days_ago(2));
    let segment = fixture.archive().join("ledger-000002.segment");
    let original = std::fs::read(&segment).unwrap();
    let changes = [
        "UPDATE call SET principal = 'mallory' WHERE start_sequence = (SELECT max(start_sequence) FROM call)",
        "DELETE FROM call WHERE start_sequence = (SELECT max(start_sequence) FROM call)",
        "UPDATE usage_day SET used_micros = used_micros + 1",
        "DELETE FROM entry_group WHERE first_sequence = (SELECT min(first_sequence) FROM entry_group)",
        "UPDATE frame SET zstd = zeroblob(20)",
        "DELETE FROM frame WHERE number = (SELECT max(number) FROM frame)",
        "DROP TABLE frame",
        "UPDATE seal SET json = json_set(json, '$.at_us', 1)",
        "UPDATE seal SET json = json_set(json, '$.first_sequence', 1)",
    ];
    for change in changes {
        let connection = Connection::open(&segment).unwrap();
        connection.execute(change, []).unwrap();
        drop(connection);
        let keys = [fixture.key.public().clone()];
        let trust = Trust {
            keys: &keys,
            ..Trust::default()
        };
        let wrong = verify(&mut fixture.reader(), trust).unwrap().first_wrong;
        let wrong = wrong.unwrap_or_else(|| panic!("{change}"));
        if change.contains("frame") || change.contains("first_sequence =") {
            assert!(wrong.sequence.is_some(), "{wrong}");
        }
        if change.contains("frame") || change.contains("json, '$.first_sequence'") {
            assert!(
                wrong.to_string().contains("ledger-000002.segment"),
                "{wrong}"
            );
        }
        std::fs::write(&segment, &original).unwrap();
        fixture.assert_sound();
    }
    for change in [
        "UPDATE carried_day SET used_micros = used_micros - 1 WHERE day = (SELECT min(day) FROM carried_day)",
        "UPDATE carried_quarter SET used_micros = used_micros - 1 WHERE quarter = (SELECT max(quarter) FROM carried_quarter)",
        "UPDATE carried_start SET entry = zeroblob(length(entry))",
        "DELETE FROM carried_start",
        "DELETE FROM carried_start WHERE sequence = (SELECT max(sequence) FROM carried_start)",
        "DELETE FROM archived",
        "UPDATE archive_segment SET last_hash = zeroblob(32) WHERE number = 2",
        "UPDATE archived SET calls = calls + 1",
        "UPDATE archived SET hash = zeroblob(32)",
    ] {
        let live = std::fs::read(fixture.path()).unwrap();
        Connection::open(fixture.path())
            .unwrap()
            .execute(change, [])
            .unwrap();
        assert!(!fixture.verify().is_ok(), "{change}");
        std::fs::write(fixture.path(), live).unwrap();
        let _ = std::fs::remove_file(fixture.path().with_extension("db-wal"));
        let _ = std::fs::remove_file(fixture.path().with_extension("db-shm"));
        fixture.assert_sound();
    }
    std::fs::remove_file(&segment).unwrap();
    let error = fixture
        .reader()
        .recent(usize::MAX, Filter::default())
        .unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(
        source.contains("ledger-000002.segment is not there"),
        "{source}"
    );
    // What concerns no segment needs none.
    let since = Filter {
        since_us: Some(fixture.now_us - DAY_US),
        ..Filter::default()
    };
    assert!(
        !fixture
            .reader()
            .recent(usize::MAX, since)
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_hold_that_is_gone_or_changed_without_a_note_is_found() {
    let fixture = Fixture::new();
    fixture.archive_all(fixture.days_ago(2));
    let mut holds = Holds::open(&fixture.path(), None).unwrap();
    let of = |principal: &str| HoldFilter {
        principal: Some(principal.to_owned()),
        since_us: Some(7),
        ..HoldFilter::default()
    };
    let first = holds.set(&of("anna"), "ana", "case 7", 5).unwrap();
    holds.set(&of("bert"), "ana", "case 8", 6).unwrap();
    holds.lift(first, "ana", "closed", 7).unwrap().unwrap();
    let found = |change: &str| {
        let connection = Connection::open(fixture.path()).unwrap();
        connection.execute_batch(change).unwrap();
        fixture.verify().first_wrong.map(|it| it.what)
    };
    let differs = Some(Fault::TableDiffers {
        table: "legal_hold",
    });
    let undone = "INSERT INTO legal_hold SELECT 2, 'bert', NULL, 7, NULL, 'ana', 'case 8', 6;";
    // Before a server has put it on record and afterwards.
    for is_said in [false, true] {
        if is_said {
            fixture.write(|_| until_said(&fixture));
        }
        assert_eq!(found(""), None, "{is_said}");
        for change in [
            "DELETE FROM legal_hold;",
            "UPDATE legal_hold SET principal = 'x';",
            "UPDATE legal_hold SET since_us = 8;",
            "UPDATE legal_hold SET number = 1;",
            "UPDATE legal_hold SET set_by = 'bob';",
            "UPDATE legal_hold SET reason = 'case 9';",
            "UPDATE legal_hold SET set_us = set_us + 1;",
        ] {
            assert_eq!(found(change), differs, "{is_said} {change}");
            assert_eq!(found(&format!("DELETE FROM legal_hold; {undone}")), None);
        }
    }
}

#[test]
fn nothing_is_deleted_while_a_hold_is_gone_or_before_a_segment_itself_is_old_enough() {
    let fixture = Fixture::new();
    fixture.archive_all(fixture.days_ago(2));
    let count = || fixture.reader().segments().unwrap().len();
    let all = count();
    let change = |sql: &str| {
        let connection = Connection::open(fixture.path()).unwrap();
        assert_ne!(connection.execute(sql, []).unwrap(), 0);
    };
    let mut archiver = fixture.archiver();
    let mut delete = |days| archiver.delete(fixture.days_ago(days), fixture.now_us, "system");
    let mut holds = Holds::open(&fixture.path(), None).unwrap();
    let of = HoldFilter::default();
    let number = holds.set(&of, "ana", "case 7", 5).unwrap();
    assert_eq!(delete(1).unwrap(), [""; 0]);
    for is_said in [false, true] {
        if is_said {
            holds.set(&of, "ana", "case 7", 6).unwrap();
            fixture.write(|_| until_said(&fixture));
        }
        change("DELETE FROM legal_hold");
        let refused = delete(1).unwrap_err();
        assert!(matches!(refused, ArchiveError::HoldsDiffer), "{refused:?}");
        assert_eq!(count(), all);
        // It is lifted by what the notes say, if somebody answers for that.
        let lifted = holds.lift(number, "ana", "over", 7).unwrap().unwrap();
        assert_eq!(lifted.of, of);
        assert_eq!(holds.lift(number, "ana", "over", 7).unwrap(), None);
        fixture.write(|_| until_said(&fixture));
    }
    // Of a segment that is elsewhere nobody knows whether a hold keeps it.
    let (there, gone) = (fixture.archive(), fixture.of("elsewhere"));
    std::fs::rename(&there, &gone).unwrap();
    std::fs::create_dir(&there).unwrap();
    delete(1).unwrap_err();
    std::fs::remove_dir(&there).unwrap();
    std::fs::rename(&gone, &there).unwrap();
    assert_eq!(count(), all);
    change("UPDATE archive_segment SET until_us = 1");
    assert_eq!(delete(DAYS + 1).unwrap(), [""; 0]);
    assert_eq!(count(), all);
    assert_eq!(delete(1).unwrap().len(), all);
}

#[test]
fn what_is_left_to_be_said_is_said_as_a_note_about_the_archive_alone() {
    let fixture = Fixture::new();
    let left = "INSERT INTO unsaid_note (at_us, kind, actor, subject, detail)
        VALUES (7, 'rollback_accepted', 'eve', '', '{}')";
    Connection::open(fixture.path())
        .unwrap()
        .execute(left, [])
        .unwrap();
    fixture.write(|_| until_said(&fixture));
    let filter = NoteFilter {
        actor: Some("eve"),
        ..NoteFilter::default()
    };
    let notes = fixture.reader().notes(9, filter).unwrap();
    let kinds: Vec<_> = notes.into_iter().map(|it| it.noted.kind).collect();
    assert_eq!(kinds, [NoteKind::RETENTION]);
}

#[test]
fn an_archive_of_another_ledger_is_left_as_it_is() {
    let (one, other) = (Fixture::new(), Fixture::new());
    one.archive_all(one.days_ago(2));
    std::fs::create_dir(other.archive()).unwrap();
    let (from, to) = ("ledger-000002.segment", "ledger-000001.segment");
    std::fs::copy(one.archive().join(from), other.archive().join(to)).unwrap();
    let expected = answers(&other);
    let foreign = other.archiver().step(other.days_ago(2), other.now_us);
    assert!(
        matches!(foreign, Err(ArchiveError::Foreign(_))),
        "{foreign:?}"
    );
    assert_same(&answers(&other), &expected, "refused");
}

/// Not a test, but the child: archives until it comes to a place for the so-manieth time, and kills itself.
#[test]
fn child() {
    let (Some(path), Ok(step)) = (
        std::env::var_os(PATH_VARIABLE),
        std::env::var(STEP_VARIABLE),
    ) else {
        return;
    };
    let path = PathBuf::from(path);
    let (name, count) = step.split_once(' ').unwrap();
    let mut left: u64 = count.parse().unwrap();
    let now_us = system_now_us();
    let before_us = now_us / DAY_US * DAY_US - 2 * DAY_US;
    let key = SigningKey::load(&path.with_file_name("ledger.key")).unwrap();
    let recipient = std::env::var(RECIPIENT_VARIABLE).ok();
    let options = ArchiveOptions {
        directory: path.with_file_name("archive"),
        segment_entries: SEGMENT_ENTRIES,
        key: Some(Arc::new(key)),
        recipients: recipient.iter().map(|it| it.parse().unwrap()).collect(),
        identities: Vec::new(),
    };
    let mut archiver = Archiver::open(&path, options).unwrap();
    loop {
        let archived = archiver.step_telling(before_us, now_us, &mut |at| {
            if name == "any" || format!("{at:?}") == name {
                left -= 1;
            }
            if left == 0 {
                let own = std::process::id().to_string();
                Command::new("kill").args(["-9", &own]).status().unwrap();
                unreachable!("killed");
            }
        });
        if archived.unwrap() == Archived::Nothing {
            return;
        }
    }
}

/// Archives in another process until it is killed there; tells whether it was.
fn archive_and_kill(path: &Path, identity: Option<&Identity>, step: &str, count: u64) -> bool {
    let recipient = identity.map(|it| (RECIPIENT_VARIABLE, it.recipient().to_string()));
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .envs(recipient)
        .env(PATH_VARIABLE, path)
        .env(STEP_VARIABLE, format!("{step} {count}"))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    let killed = std::os::unix::process::ExitStatusExt::signal(&status) == Some(9);
    assert!(killed || status.success(), "{status}");
    killed
}

#[test]
fn a_kill_at_any_step_loses_and_doubles_nothing() {
    kill_at_each_step(&Fixture::new());
}

fn kill_at_each_step(fixture: &Fixture) {
    let expected = answers(fixture);
    let (path, identity) = (fixture.path(), fixture.identity.as_ref());
    let mut killed = 0;
    for _ in 0..2 {
        for (step, count) in [
            ("Copied", 1),
            ("Synced", 1),
            ("Named", 1),
            ("Listed", 1),
            ("TakingOut", 1),
            ("TakenOut", 1),
        ] {
            killed += u64::from(archive_and_kill(&path, identity, step, count));
            assert_same(&answers(fixture), &expected, step);
            fixture.assert_sound();
        }
        // The rest of the segment.
        assert!(archive_and_kill(&path, identity, "TakenOut", 1));
    }
    assert_eq!(killed, 12);
    fixture.archive_all(fixture.days_ago(2));
    assert_same(&answers(fixture), &expected, "all");
    fixture.assert_sound();
    let left: Vec<_> = std::fs::read_dir(fixture.archive())
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".segment"))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn archiving_beside_a_server_that_is_killed_at_random_loses_and_doubles_nothing() {
    let fixture = Fixture::new();
    let before = answers(&fixture);
    let mut made = HashSet::new();
    runtime().block_on(async {
        let recorder = fixture.recorder();
        let path = fixture.path();
        let archiving = tokio::task::spawn_blocking(move || {
            // Numbers of places that look random.
            let mut count: u64 = 3;
            while archive_and_kill(&path, None, "any", count) {
                count = count * 7 % 11 + 1;
            }
        });
        while !archiving.is_finished() {
            let at_us = system_now_us();
            let start = Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/x");
            let call = recorder.begin(&start).await.unwrap();
            call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
            made.insert(start.call);
        }
        archiving.await.unwrap();
        recorder.close().await.unwrap();
    });
    fixture.assert_sound();
    let after = answers(&fixture);
    let mut found: BTreeMap<CallId, usize> = BTreeMap::new();
    for record in &after.calls {
        *found.entry(record.call).or_default() += 1;
    }
    assert!(found.values().all(|count| *count == 1));
    assert_eq!(found.len(), before.calls.len() + made.len());
    assert!(made.iter().all(|call| found.contains_key(call)) && !made.is_empty());
    // What was used before is on record to the micro.
    let used = |answers: &Answers| -> BTreeMap<String, u64> {
        let mut used = BTreeMap::new();
        for usage in answers.usage[0].iter().filter(|it| it.principal != "alice") {
            *used.entry(usage.principal.clone()).or_default() += usage.cost_micros;
        }
        used
    };
    assert_eq!(used(&after), used(&before));
    let (groups, _) = fixture.live_rows();
    assert!(0 < groups && fixture.reader().segments().unwrap().len() > 1);
}

#[test]
fn segments_are_deleted_when_they_are_old_enough_unless_a_hold_keeps_them() {
    let fixture = Fixture::new();
    let before = answers(&fixture);
    fixture.archive_all(fixture.days_ago(2));
    let segments = fixture.reader().segments().unwrap();
    assert!(3 <= segments.len());
    let held = segments[1].clone();
    let is_in = |record: &CallRecord| {
        let end = fixture
            .reader()
            .indexed_call(record.call)
            .unwrap()
            .unwrap()
            .end;
        end.is_some_and(|end| (held.first_sequence..=held.last_sequence).contains(&end.sequence))
    };
    let kept = before.calls.iter().find(|it| is_in(it)).unwrap();
    let mut holds = Holds::open(&fixture.path(), None).unwrap();
    let of = HoldFilter {
        principal: Some(kept.started.principal.clone()),
        since_us: Some(kept.started.at_us),
        until_us: Some(kept.started.at_us + 1),
        ..HoldFilter::default()
    };
    let number = holds.set(&of, "ana", "case 7", 5).unwrap();
    assert_eq!(holds.all().unwrap()[0].of, of);
    let mut archiver = fixture.archiver();
    let delete = |archiver: &mut Archiver, days| {
        archiver
            .delete(fixture.days_ago(days), fixture.now_us, "system")
            .unwrap()
    };
    // The first segment is not old enough by a microsecond.
    assert_eq!(delete(&mut archiver, DAYS), [""; 0]);
    let deleted = delete(&mut archiver, 1);
    assert_eq!(deleted.len(), segments.len() - 1);
    assert!(!deleted.contains(&"ledger-000002.segment".to_owned()));
    assert_eq!(
        fixture.reader().segments().unwrap(),
        std::slice::from_ref(&held)
    );
    drop(archiver);
    fixture.assert_sound();
    let check = |expected_gone: bool| {
        let after = answers(&fixture);
        // Sums of whole days stay, and so does what was used.
        assert_eq!(after.statistics[0], before.statistics[0]);
        assert_eq!(after.usage[..2], before.usage[..2]);
        assert!(after.calls.len() < before.calls.len());
        assert_eq!(!after.calls.contains(kept), expected_gone);
        after
            .calls
            .iter()
            .for_each(|it| assert!(before.calls.contains(it)));
    };
    check(false);
    // The server puts it on record, and verification wants that.
    fixture.write(|_| until_said(&fixture));
    fixture.assert_sound();
    let report = fixture.verify();
    assert_eq!(
        report.deleted,
        segments
            .iter()
            .filter(|it| **it != held)
            .map(|it| it.last_sequence + 1 - it.first_sequence)
            .sum::<u64>()
    );
    assert!(holds.lift(number + 1, "ana", "over", 6).unwrap().is_none());
    assert_eq!(
        holds.lift(number, "ana", "over", 6).unwrap().unwrap().by,
        "ana"
    );
    assert_eq!(
        delete(&mut fixture.archiver(), 1),
        ["ledger-000002.segment"]
    );
    let connection = Connection::open(fixture.path()).unwrap();
    connection.execute("DELETE FROM unsaid_note", []).unwrap();
    let wrong = fixture.verify().first_wrong.unwrap();
    assert_eq!(
        (wrong.sequence, wrong.what),
        (Some(held.first_sequence), Fault::Deleted)
    );
}

#[test]
fn a_segment_that_is_damaged_or_another_one_is_named() {
    let fixture = Fixture::new();
    fixture.archive_all(fixture.days_ago(2));
    let named = |number: u32| {
        fixture
            .archive()
            .join(format!("ledger-{number:06}.segment"))
    };
    let (second, third) = (named(2), named(3));
    let original = std::fs::read(&second).unwrap();
    let wrong = |what: &str| {
        let wrong = fixture.verify().first_wrong;
        let wrong = wrong.unwrap_or_else(|| panic!("{what}")).to_string();
        assert!(
            wrong.starts_with("entry ") && wrong.contains("ledger-000002.segment"),
            "{what}: {wrong}"
        );
    };
    std::fs::copy(&third, &second).unwrap();
    wrong("another segment in its place");
    let mut flipped = original.clone();
    for byte in &mut flipped[4_096..] {
        *byte ^= 0x55;
    }
    std::fs::write(&second, &flipped).unwrap();
    wrong("flipped bytes");
    std::fs::write(&second, b"nothing").unwrap();
    wrong("no database");
    std::fs::write(&second, &original).unwrap();
    fixture.assert_sound();
    // The follower of a server tells it as damage, too, and one that is not there as what it is.
    std::fs::remove_file(&second).unwrap();
    verify(&mut fixture.reader(), Trust::default()).unwrap_err();
}

/// Changes rows behind the back of an index: it goes on to find what it had.
fn hide(file: &Path, table: &str, change: &str) {
    let connection = Connection::open(file).unwrap();
    let version: i64 = connection
        .query_row("PRAGMA schema_version", [], |row| row.get(0))
        .unwrap();
    let indexes = format!("type = 'index' AND tbl_name = '{table}'");
    let sql = format!(
        "CREATE TABLE kept AS SELECT * FROM sqlite_master WHERE {indexes};
         PRAGMA writable_schema = ON;
         DELETE FROM sqlite_master WHERE {indexes};
         PRAGMA schema_version = {};",
        version + 2
    );
    connection.execute_batch(&sql).unwrap();
    drop(connection);
    let connection = Connection::open(file).unwrap();
    assert_ne!(connection.execute(change, []).unwrap(), 0);
    let sql = format!(
        "PRAGMA writable_schema = ON;
         INSERT INTO sqlite_master SELECT * FROM kept;
         PRAGMA schema_version = {};",
        version + 3
    );
    connection.execute_batch(&sql).unwrap();
    drop(connection);
    let connection = Connection::open(file).unwrap();
    connection.execute_batch("DROP TABLE kept").unwrap();
}

#[test]
fn an_index_of_the_database_that_hides_a_call_is_found() {
    let fixture = Fixture::new();
    fixture.archive_all(fixture.days_ago(2));
    for file in [
        fixture.path(),
        fixture.archive().join("ledger-000002.segment"),
    ] {
        let last = "WHERE start_sequence = (SELECT max(start_sequence) FROM call WHERE outcome IS NOT NULL)";
        let connection = Connection::open(&file).unwrap();
        let sql = format!("SELECT principal FROM call {last}");
        let principal: String = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
        // In the index under another name, and then by its own in the table alone.
        let sql = format!("UPDATE call SET principal = 'nobody' {last}");
        connection.execute(&sql, []).unwrap();
        drop(connection);
        hide(
            &file,
            "call",
            &format!("UPDATE call SET principal = '{principal}' {last}"),
        );
        let wrong = fixture.verify().first_wrong.unwrap().to_string();
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(wrong.contains(&name) && wrong.contains("index"), "{wrong}");
        let connection = Connection::open(&file).unwrap();
        connection.execute_batch("REINDEX").unwrap();
        drop(connection);
        fixture.assert_sound();
    }
}

#[test]
fn what_is_missing_beside_an_archive_is_named_by_questions() {
    let fixture = Fixture::new();
    fixture.archive_all(fixture.days_ago(2));
    let change = |sql: &str| {
        let connection = Connection::open(fixture.path()).unwrap();
        assert_ne!(connection.execute(sql, []).unwrap(), 0);
    };
    let told = || {
        let error = fixture
            .reader()
            .recent(usize::MAX, Filter::default())
            .unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        format!("{error}: {}", source.unwrap_or_default())
    };
    change("DELETE FROM carried_start");
    assert!(told().contains("in the table carried_start"), "{}", told());
    let wrong = fixture.verify().first_wrong.unwrap();
    let table = "carried_start";
    assert_eq!(wrong.what, Fault::TableDiffers { table });
    change("DELETE FROM archived");
    assert!(
        told().contains("the table archived does not have its row"),
        "{}",
        told()
    );
    let wrong = fixture.verify().first_wrong.unwrap();
    assert_eq!(wrong.what, Fault::NoRow { table: "archived" });
    let refused = SqliteLedger::open(fixture.path(), Durability::Strict).unwrap_err();
    let mut text = refused.to_string();
    let mut cause = std::error::Error::source(&refused);
    while let Some(error) = cause {
        text.push_str(&error.to_string());
        cause = error.source();
    }
    assert!(text.contains("table archived"), "{text}");
}

#[test]
fn refusals_that_were_counted_together_stay_in_the_sums_of_days() {
    let now_us = system_now_us();
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::generate(&directory.path().join("ledger.key")).unwrap();
    let old_us = now_us / DAY_US * DAY_US - 40 * DAY_US + 5;
    let fixture = Fixture {
        key: Arc::new(key),
        now_us,
        directory,
        clock: Arc::new(AtomicU64::new(old_us)),
        identity: None,
    };
    let call = async |recorder: &Recorder, at_us: u64| {
        let start = Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/x");
        let open = recorder.begin(&start).await.unwrap();
        open.finish(&End::new(Outcome::Succeeded)).await.unwrap();
    };
    let detail =
        format!(r#"{{"reason":"not_visible","count":70,"first_us":{old_us},"not_visible":20}}"#);
    fixture.write(|recorder| async move {
        for number in 0..40 {
            call(&recorder, old_us + number).await;
            if number % 20 == 5 {
                let note = Note {
                    actor: "mallory",
                    subject: "tool/*",
                    detail: &detail,
                    ..Note::new(old_us + number, NoteKind::REFUSALS_AGGREGATED)
                };
                recorder.note(&note).await.unwrap();
            }
        }
    });
    fixture.clock.store(0, std::sync::atomic::Ordering::Relaxed);
    fixture.write(|recorder| async move { call(&recorder, now_us).await });
    let sums = || {
        let day_us = old_us / DAY_US * DAY_US;
        let asked = [Bucket::Day, Bucket::Whole].map(|bucket| StatisticsQuery {
            principal: None,
            capability: None,
            since_us: day_us - 62 * DAY_US,
            until_us: day_us + 33 * DAY_US,
            bucket,
        });
        asked.map(|query| {
            let rows = statistics(&mut fixture.reader(), query).unwrap();
            let of = rows
                .iter()
                .map(|row| (row.capability.clone(), row.tally.clone()));
            of.collect::<Vec<_>>()
        })
    };
    let before = sums();
    let refused: u64 = before[0].iter().flat_map(|it| it.1.refused.values()).sum();
    assert_eq!(refused, 140);
    assert!(0 < fixture.archive_all(fixture.days_ago(3)));
    assert_eq!(sums(), before, "archived");
    let deleted = fixture
        .archiver()
        .delete(fixture.days_ago(3), now_us, "system")
        .unwrap();
    assert_ne!(deleted, [""; 0]);
    assert_eq!(sums(), before, "deleted");
    fixture.write(|_| until_said(&fixture));
    fixture.assert_sound();
    let connection = Connection::open(fixture.path()).unwrap();
    connection
        .execute("UPDATE indexed SET version = 1", [])
        .unwrap();
    drop(connection);
    drop(SqliteLedger::open(fixture.path(), Durability::Strict).unwrap());
    assert_eq!(sums(), before, "with an index that is made anew");
    fixture.assert_sound();
}
