//! Entries that were taken out of a ledger in PostgreSQL into an archive are found there, each once, at every moment, by
//! whichever server looks.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use age_format::{Identity, Recipient};
use ledger::*;
use rusqlite::Connection;
use std::{
    collections::{BTreeMap, HashSet},
    os::unix::{fs::DirEntryExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use support::aged::{Answers, CALLS, DAY_US, DAYS, Dated, assert_same, write_calls};
use testkit::Postgres;
use uuid::Uuid;

const STEP_VARIABLE: &str = "LEDGER_ARCHIVE_TEST_STEP";
const PATH_VARIABLE: &str = "LEDGER_ARCHIVE_TEST_PATH";
const URL_VARIABLE: &str = "LEDGER_ARCHIVE_TEST_URL";
const RECIPIENT_VARIABLE: &str = "LEDGER_ARCHIVE_TEST_RECIPIENT";
const SEGMENT_ENTRIES: u64 = 1_500;

struct Fixture {
    postgres: &'static Postgres,
    database: String,
    url: String,
    directory: tempfile::TempDir,
    key: Arc<SigningKey>,
    now_us: u64,
    /// Time of checkpoints; 0 if they are made now.
    clock: Arc<AtomicU64>,
    /// The last entry before anything was archived, which adds entries of its own.
    last: u64,
    /// Opens segments, which are encrypted for it and which nobody opens who archives.
    identity: Option<Identity>,
}

impl Fixture {
    /// A ledger of calls that overlap, some of them for days, with refusals, notes and checkpoints; `None` where
    /// PostgreSQL is not installed.
    fn new() -> Option<Self> {
        static MADE: OnceLock<(String, tempfile::TempDir, u64)> = OnceLock::new();
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let postgres = Postgres::shared()?;
        let (made, files, now_us) = MADE.get_or_init(|| {
            let directory = tempfile::tempdir().unwrap();
            SigningKey::generate(&directory.path().join("ledger.key")).unwrap();
            let fixture = Self::of(postgres, "aged", directory, system_now_us());
            let _ = postgres.create_database("aged");
            runtime().block_on(async {
                let recorder = fixture.recorder();
                let open = write_calls(&recorder, fixture.now_us, &fixture.clock).await;
                let at_us = fixture.now_us;
                let start = Start::new(CallId::new(at_us), at_us, "bob", Kind::Tool, "tool/x");
                let last = recorder.begin_durably(&start).await.unwrap();
                // They stay open: nobody ends the calls of this server.
                std::mem::forget((open, last, recorder.clone()));
                indexed(&fixture).await;
                postgres.sql_in(
                    "postgres",
                    "UPDATE pg_database SET datallowconn = false WHERE datname = 'aged';
                     SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'aged'",
                );
            });
            ("aged".to_owned(), fixture.directory, fixture.now_us)
        });
        let name = format!("copy_{}", COPIES.fetch_add(1, Ordering::Relaxed));
        static COPYING: std::sync::Mutex<()> = std::sync::Mutex::new(());
        {
            let _one = COPYING.lock();
            postgres.sql_in(
                "postgres",
                &format!("CREATE DATABASE {name} TEMPLATE {made}"),
            );
        }
        let directory = tempfile::tempdir().unwrap();
        for file in ["ledger.key", "checkpoints"] {
            std::fs::copy(files.path().join(file), directory.path().join(file)).unwrap();
        }
        let mut fixture = Self::of(postgres, &name, directory, *now_us);
        fixture.clock.store(0, Ordering::Relaxed);
        fixture.last = fixture.reader().extent().unwrap().last_sequence;
        Some(fixture)
    }

    /// Such a ledger, whose segments are encrypted.
    fn encrypted() -> Option<Self> {
        Some(Self {
            identity: Some(Identity::generate().unwrap()),
            ..Self::new()?
        })
    }

    fn of(
        postgres: &'static Postgres,
        database: &str,
        directory: tempfile::TempDir,
        now_us: u64,
    ) -> Self {
        let key = SigningKey::load(&directory.path().join("ledger.key")).unwrap();
        let (server, _) = postgres
            .url()
            .rsplit_once('/')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        Self {
            postgres,
            database: database.to_owned(),
            url: format!("{server}/{database}"),
            directory,
            key: Arc::new(key),
            now_us,
            clock: Arc::default(),
            last: 0,
            identity: None,
        }
    }

    fn options(&self) -> PostgresOptions {
        options(&self.url)
    }

    fn sql(&self, statements: &str) -> String {
        self.postgres.sql_in(&self.database, statements)
    }

    fn archive(&self) -> PathBuf {
        self.directory.path().join("archive")
    }

    fn checkpoints(&self) -> PathBuf {
        self.directory.path().join("checkpoints")
    }

    /// A server of its own.
    fn recorder(&self) -> Recorder {
        let store = PostgresLedger::open(&self.options()).unwrap();
        let checkpoints = Checkpoints::new(CheckpointOptions {
            entries: 500,
            file: Some(self.checkpoints()),
            key: Some(Arc::clone(&self.key)),
            shared: true,
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

    fn archiver(&self) -> Archiver {
        let recipient = self.identity.as_ref().map(Identity::recipient);
        archiver(&self.url, self.directory.path(), &self.key, recipient).unwrap()
    }

    fn holds(&self) -> Holds {
        Holds::in_database(&self.options(), None).unwrap()
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

    fn reader(&self) -> PostgresReader {
        let reader = PostgresReader::open(&self.options()).unwrap();
        reader.with_identities(self.identity.clone().into_iter().collect())
    }

    /// All answers, but for what archiving itself has put on record.
    fn answers(&self) -> Answers {
        let mut answers = Answers::of(&mut self.reader(), self.now_us);
        let retention = NoteKind::RETENTION;
        answers.notes.retain(|it| it.noted.kind != retention);
        answers.entries.retain(|it| it.first_sequence <= self.last);
        answers.counts.entries = answers.counts.entries.min(self.last);
        answers
    }

    fn verify(&self) -> Report {
        let keys = [self.key.public().clone()];
        let checkpoints = self.checkpoints();
        let trust = Trust {
            keys: &keys,
            checkpoints: Some(&checkpoints),
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

    /// The segments, each with its place on the disk.
    fn files(&self) -> BTreeMap<PathBuf, u64> {
        let files = std::fs::read_dir(self.archive()).unwrap();
        let files = files.map(|it| it.unwrap()).map(|it| (it.path(), it.ino()));
        files
            .filter(|(path, _)| path.extension().is_some_and(|it| it == "segment"))
            .collect()
    }

    fn count(&self, table: &str) -> u64 {
        let sql = format!("SELECT count(*) FROM owlclaw_ledger.{table}");
        self.sql(&sql).parse().unwrap()
    }
}

/// Waits until all is indexed.
async fn indexed(fixture: &Fixture) {
    let mut reader = fixture.reader();
    loop {
        reader.count().unwrap();
        let extent = reader.extent().unwrap();
        if extent.last_sequence == extent.indexed_through {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn options(url: &str) -> PostgresOptions {
    let options = PostgresOptions::new(url).unwrap();
    options.with_durability(Durability::Relaxed)
}

fn archiver(
    url: &str,
    directory: &Path,
    key: &Arc<SigningKey>,
    recipient: Option<Recipient>,
) -> Result<Archiver, ArchiveError> {
    let archive = ArchiveOptions {
        directory: directory.join("archive"),
        segment_entries: SEGMENT_ENTRIES,
        key: Some(Arc::clone(key)),
        recipients: recipient.into_iter().collect(),
        identities: Vec::new(),
    };
    Archiver::in_database(&options(url), archive)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn call(recorder: &Recorder, principal: &str) -> CallId {
    let at_us = system_now_us();
    let start = Start {
        estimated_cost_micros: 40,
        ..Start::new(CallId::new(at_us), at_us, principal, Kind::Tool, "tool/x")
    };
    let end = End {
        cost_micros: 7,
        ..End::new(Outcome::Succeeded)
    };
    let open = recorder.begin(&start).await.unwrap();
    open.finish(&end).await.unwrap();
    start.call
}

#[test]
fn every_answer_is_the_same_at_each_step() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    compare_each_step(&fixture);
}

#[test]
fn every_answer_is_the_same_at_each_step_of_an_encrypted_archive() {
    let Some(fixture) = Fixture::encrypted() else {
        return;
    };
    compare_each_step(&fixture);
}

fn compare_each_step(fixture: &Fixture) {
    let expected = fixture.answers();
    assert_eq!(expected.calls.len() as u64, CALLS + 1);
    assert!(10 < expected.pages.len(), "{}", expected.pages.len());
    assert_eq!(expected.open.len(), 4);
    // A reader that was there before sees it, too.
    let mut reader = fixture.reader();
    let mut archiver = fixture.archiver();
    let (mut segments, mut steps) = (0, 0);
    loop {
        let archived = archiver.step(fixture.days_ago(2), fixture.now_us).unwrap();
        assert_same(&fixture.answers(), &expected, &format!("{archived:?}"));
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
    assert!(fixture.count("call") < CALLS / 3 && 0 < fixture.count("entry_group"));
    let archived = expected.calls.last().unwrap();
    assert_eq!(reader.call(archived.call).unwrap().as_ref(), Some(archived));
    assert_eq!(reader.segments().unwrap().len(), segments);
    // What was archived is on record at once.
    let filter = NoteFilter {
        kind: Some("retention"),
        ..NoteFilter::default()
    };
    assert_eq!(reader.notes(100, filter).unwrap().len(), segments);
}

#[test]
fn an_index_that_is_made_anew_has_what_was_archived() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let expected = fixture.answers();
    fixture.archive_all(fixture.days_ago(2));
    // As docs/postgres.md says.
    fixture.sql(
        "TRUNCATE owlclaw_ledger.call, owlclaw_ledger.note, owlclaw_ledger.indexed;
         INSERT INTO owlclaw_ledger.indexed (through) VALUES (0)",
    );
    assert_same(&fixture.answers(), &expected, "made anew");
    fixture.assert_sound();
}

#[test]
fn what_is_needed_stays_in_the_ledger() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let mut one = fixture.archiver();
    let young = one.step(fixture.now_us - DAY_US, fixture.now_us);
    assert!(matches!(young, Err(ArchiveError::TooYoung)), "{young:?}");
    let another = archiver(&fixture.url, fixture.directory.path(), &fixture.key, None);
    assert!(
        matches!(another, Err(ArchiveError::Locked(_))),
        "{another:?}"
    );
    drop(one);
    // A call ten days ago holds a key that has not run out.
    let filter = Filter {
        until_us: Some(fixture.days_ago(10)),
        ..Filter::default()
    };
    let holder = fixture.reader().recent(1, filter).unwrap().remove(0);
    fixture.sql(&format!(
        "INSERT INTO owlclaw_ledger.idempotency_key
         VALUES ('a', 'k', 'tool/x', '\\x00', '{}', 1, 9000000000000000, 'unknown', NULL)",
        holder.call.0
    ));
    let through = fixture.archive_all(fixture.days_ago(2));
    assert!(0 < through && through < holder.sequence);
}

#[test]
fn calls_that_were_open_when_they_were_archived_end() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let open = fixture.answers().open;
    fixture.archive_all(fixture.days_ago(2));
    // Two of them began in what is archived; their server has died.
    assert!(2 <= fixture.count("carried_start"));
    fixture.sql("UPDATE owlclaw_ledger.node SET ended_at = clock_timestamp()");
    runtime().block_on(async {
        let recorder = fixture.recorder();
        let mut reader = fixture.reader();
        let none_is_open = || reader.open_calls().unwrap().is_empty();
        testkit::wait_until("all have ended", Duration::from_secs(60), none_is_open).await;
        recorder.close().await.unwrap();
    });
    let mut reader = fixture.reader();
    for open in open {
        let record = reader.call(open.call).unwrap().unwrap();
        assert_eq!(record.started, open.started);
        assert_eq!(record.ended.unwrap().outcome, Outcome::Unknown);
    }
    // Tools of OwlClaw see them, with their arguments.
    let seen = fixture.sql(
        "SELECT count(*) FROM owlclaw_ledger.ledger_records
         WHERE agent_id LIKE 'client-%' AND created_at < now() - interval '3 days'
            AND input_params ? 'account'",
    );
    assert_ne!(seen, "0");
    fixture.assert_sound();
}

#[tokio::test]
async fn a_group_that_was_archived_is_not_stored_again() {
    let Some(fixture) = tokio::task::spawn_blocking(Fixture::new).await.unwrap() else {
        return;
    };
    let sql = "SELECT entry_group.id, encode(body, 'hex'), count FROM owlclaw_ledger.entry_group
        JOIN owlclaw_ledger.node ON node.id = entry_group.node WHERE first_sequence <= 1000
        ORDER BY first_sequence DESC LIMIT 1";
    let row = fixture.sql(sql);
    let columns: Vec<&str> = row.split('|').collect();
    let body: Vec<u8> = (0..columns[1].len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&columns[1][at..at + 2], 16).unwrap())
        .collect();
    // Whatever else that server has stored is of later days.
    fixture.sql(&format!(
        "UPDATE owlclaw_ledger.entry_group SET node = gen_random_uuid() WHERE first_sequence >
            (SELECT first_sequence FROM owlclaw_ledger.entry_group WHERE id = '{}')",
        columns[0]
    ));
    let mut store = PostgresLedger::open(&fixture.options()).unwrap();
    let group = Group {
        id: columns[0].parse::<Uuid>().unwrap(),
        count: columns[2].parse().unwrap(),
        body: &body,
        charges: &[],
        operations: &[],
        durable: false,
    };
    fixture.archive_all(fixture.days_ago(2));
    let before = fixture.reader().extent().unwrap().last_sequence;
    store.append(group).await.unwrap();
    assert_eq!(fixture.reader().extent().unwrap().last_sequence, before);
}

#[test]
fn changes_of_an_archive_and_of_what_is_carried_over_are_found() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.archive_all(fixture.days_ago(2));
    fixture.assert_sound();
    let segment = fixture.archive().join("ledger-000002.segment");
    let original = std::fs::read(&segment).unwrap();
    for change in [
        "UPDATE call SET principal = 'mallory' WHERE start_sequence = (SELECT max(start_sequence) FROM call)",
        "DELETE FROM call WHERE start_sequence = (SELECT max(start_sequence) FROM call)",
        "UPDATE usage_day SET used_micros = used_micros + 1",
        "DELETE FROM entry_group WHERE first_sequence = (SELECT min(first_sequence) FROM entry_group)",
        "UPDATE frame SET zstd = zeroblob(20)",
        "DELETE FROM frame WHERE number = (SELECT max(number) FROM frame)",
        "DROP TABLE frame",
        "UPDATE seal SET json = json_set(json, '$.at_us', 1)",
        "UPDATE seal SET json = json_set(json, '$.first_sequence', 1)",
    ] {
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
    }
    fixture.assert_sound();
    // Each is undone by what was kept.
    for table in [
        "archived",
        "carried_day",
        "carried_quarter",
        "carried_start",
    ] {
        fixture.sql(&format!(
            "CREATE TABLE public.{table} AS TABLE owlclaw_ledger.{table}"
        ));
    }
    for (table, change) in [
        (
            "carried_day",
            "UPDATE owlclaw_ledger.carried_day SET used_micros = used_micros - 1",
        ),
        (
            "carried_day",
            "UPDATE owlclaw_ledger.carried_day SET tally = '\\x'",
        ),
        (
            "carried_day",
            "DELETE FROM owlclaw_ledger.carried_day WHERE principal = 'client-1' AND day = (SELECT min(day) FROM owlclaw_ledger.carried_day)",
        ),
        (
            "carried_quarter",
            "UPDATE owlclaw_ledger.carried_quarter SET used_micros = used_micros - 1",
        ),
        (
            "carried_quarter",
            "DELETE FROM owlclaw_ledger.carried_quarter WHERE principal = 'client-1'",
        ),
        (
            "carried_start",
            "UPDATE owlclaw_ledger.carried_start SET entry = overlay(entry PLACING '\\xff' FROM 30 FOR 1)",
        ),
        ("carried_start", "DELETE FROM owlclaw_ledger.carried_start"),
        (
            "carried_start",
            "DELETE FROM owlclaw_ledger.carried_start WHERE sequence = (SELECT max(sequence) FROM owlclaw_ledger.carried_start)",
        ),
        (
            "archived",
            "UPDATE owlclaw_ledger.archived SET calls = calls + 1",
        ),
        (
            "archived",
            "UPDATE owlclaw_ledger.archived SET hash = decode(repeat('00', 32), 'hex')",
        ),
        ("archived", "DELETE FROM owlclaw_ledger.archived"),
    ] {
        fixture.sql(change);
        let keys = [fixture.key.public().clone()];
        let trust = Trust {
            keys: &keys,
            ..Trust::default()
        };
        let found = verify(&mut fixture.reader(), trust);
        assert!(!found.is_ok_and(|report| report.is_ok()), "{change}");
        fixture.sql(&format!(
            "DELETE FROM owlclaw_ledger.{table}; INSERT INTO owlclaw_ledger.{table} TABLE public.{table}"
        ));
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
    assert!(!fixture.reader().recent(9, since).unwrap().is_empty());
}

#[test]
fn segments_are_deleted_when_they_are_old_enough_unless_a_hold_keeps_them() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let before = fixture.answers();
    fixture.archive_all(fixture.days_ago(2));
    let segments = fixture.reader().segments().unwrap();
    assert!(3 <= segments.len());
    let held = segments[1].clone();
    let mut reader = fixture.reader();
    let mut is_in = |record: &CallRecord| {
        let row = reader.indexed_call(record.call).unwrap().unwrap();
        let range = held.first_sequence..=held.last_sequence;
        row.end.is_some_and(|end| range.contains(&end.sequence))
    };
    let kept = before.calls.iter().find(|it| is_in(it)).unwrap();
    let mut holds = fixture.holds();
    let of = HoldFilter {
        principal: Some(kept.started.principal.clone()),
        since_us: Some(kept.started.at_us),
        until_us: Some(kept.started.at_us + 1),
        ..HoldFilter::default()
    };
    let number = holds.set(&of, "ana", "case 7", 5).unwrap();
    assert_eq!(holds.all().unwrap()[0].of, of);
    let mut archiver = fixture.archiver();
    let mut delete = |days| archiver.delete(fixture.days_ago(days), fixture.now_us, "system");
    // The first segment is not old enough by a microsecond.
    assert_eq!(delete(DAYS).unwrap(), [""; 0]);
    // A hold that somebody has taken away in the table keeps all.
    let hidden = fixture.sql("SELECT set_us FROM owlclaw_ledger.legal_hold");
    fixture.sql("UPDATE owlclaw_ledger.legal_hold SET principal = 'nobody'");
    let differs = Fault::TableDiffers {
        table: "legal_hold",
    };
    assert_eq!(fixture.verify().first_wrong.unwrap().what, differs);
    let refused = delete(1).unwrap_err();
    assert!(matches!(refused, ArchiveError::HoldsDiffer), "{refused:?}");
    fixture.sql(&format!(
        "UPDATE owlclaw_ledger.legal_hold SET principal = '{}' WHERE set_us = {hidden}",
        kept.started.principal
    ));
    let deleted = delete(1).unwrap();
    assert_eq!(deleted.len(), segments.len() - 1);
    assert!(!deleted.contains(&"ledger-000002.segment".to_owned()));
    assert_eq!(
        fixture.reader().segments().unwrap(),
        std::slice::from_ref(&held)
    );
    fixture.assert_sound();
    let after = fixture.answers();
    // Sums of whole days stay, and so does what was used.
    assert_eq!(after.statistics[0], before.statistics[0]);
    assert_eq!(after.usage[..2], before.usage[..2]);
    assert!(after.calls.len() < before.calls.len() && after.calls.contains(kept));
    let gone = segments.iter().filter(|it| **it != held);
    let gone = gone.map(|it| it.last_sequence + 1 - it.first_sequence);
    assert_eq!(fixture.verify().deleted, gone.sum::<u64>());
    // One whose row is gone is lifted by what the notes say.
    fixture.sql("DELETE FROM owlclaw_ledger.legal_hold");
    assert_eq!(fixture.verify().first_wrong.unwrap().what, differs);
    assert!(holds.lift(number + 1, "ana", "over", 6).unwrap().is_none());
    assert_eq!(
        holds.lift(number, "ana", "over", 6).unwrap().unwrap().of,
        of
    );
    fixture.assert_sound();
    assert_eq!(delete(1).unwrap(), ["ledger-000002.segment"]);
    fixture.assert_sound();
    // That entries were deleted must be on record.
    fixture.sql("UPDATE owlclaw_ledger.archive_segment SET last_sequence = last_sequence - 1 WHERE number = 1");
    assert!(!fixture.verify().is_ok());
}

#[test]
fn whoever_has_lost_the_lock_changes_nothing_and_overwrites_no_segment() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let expected = fixture.answers();
    let before_us = fixture.days_ago(2);
    // Each of two processes is cut off at a place, and another one goes on.
    for place in [ArchiveStep::Synced, ArchiveStep::TakingOut] {
        let mut cut_off = fixture.archiver();
        let (mut went_on, mut files) = (false, None);
        let lost = loop {
            let step = cut_off.step_telling(before_us, fixture.now_us, &mut |at| {
                if at == place && !went_on {
                    went_on = true;
                    fixture.sql(
                        "SELECT pg_terminate_backend(pid) FROM pg_locks
                         WHERE locktype = 'advisory' AND database =
                            (SELECT oid FROM pg_database WHERE datname = current_database())",
                    );
                    let mut other = loop {
                        match archiver(&fixture.url, fixture.directory.path(), &fixture.key, None) {
                            Err(ArchiveError::Locked(_)) => {
                                std::thread::sleep(Duration::from_millis(5));
                            }
                            opened => break opened.unwrap(),
                        }
                    };
                    for _ in 0..2 {
                        other.step(before_us, fixture.now_us).unwrap();
                    }
                    files = Some(fixture.files());
                }
            });
            if let Err(error) = step {
                break error;
            }
        };
        assert!(
            matches!(lost, ArchiveError::Database(_) | ArchiveError::File { .. }),
            "{place:?} {lost:?}"
        );
        assert_eq!(files, Some(fixture.files()), "{place:?}");
        assert_same(&fixture.answers(), &expected, &format!("{place:?}"));
        fixture.assert_sound();
    }
    fixture.archive_all(before_us);
    assert_same(&fixture.answers(), &expected, "all");
    fixture.assert_sound();
}

#[test]
fn a_server_whose_directory_lacks_the_segments_archives_and_deletes_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    fixture.archive_all(fixture.days_ago(9));
    let elsewhere = tempfile::tempdir().unwrap();
    let mut other = archiver(&fixture.url, elsewhere.path(), &fixture.key, None).unwrap();
    let missing = other.step(fixture.days_ago(2), fixture.now_us).unwrap_err();
    assert!(
        matches!(missing, ArchiveError::MissingSegment(_)),
        "{missing:?}"
    );
    // The notes about holds may be in what is missing.
    let missing = other
        .delete(fixture.days_ago(1), fixture.now_us, "system")
        .unwrap_err();
    assert!(
        matches!(
            missing,
            ArchiveError::MissingSegment(_) | ArchiveError::Holds(_)
        ),
        "{missing:?}"
    );
    drop(other);
    fixture.assert_sound();
    assert_eq!(fixture.verify().deleted, 0);
}

/// Not a test, but the child: archives until it comes to a place for the so-manieth time, and kills itself.
#[test]
fn child() {
    let (Some(path), Ok(step), Ok(url)) = (
        std::env::var_os(PATH_VARIABLE),
        std::env::var(STEP_VARIABLE),
        std::env::var(URL_VARIABLE),
    ) else {
        return;
    };
    let path = PathBuf::from(path);
    let (name, count) = step.split_once(' ').unwrap();
    let mut left: u64 = count.parse().unwrap();
    let now_us = system_now_us();
    let before_us = now_us / DAY_US * DAY_US - 2 * DAY_US;
    let key = Arc::new(SigningKey::load(&path.join("ledger.key")).unwrap());
    let recipient = || {
        let recipient = std::env::var(RECIPIENT_VARIABLE).ok();
        recipient.map(|it| it.parse().unwrap())
    };
    // The database may not have noticed that the one before is gone.
    let mut archiver = loop {
        match archiver(&url, &path, &key, recipient()) {
            Err(ArchiveError::Locked(_)) => std::thread::sleep(Duration::from_millis(5)),
            opened => break opened.unwrap(),
        }
    };
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
fn archive_and_kill(
    url: &str,
    directory: &Path,
    identity: Option<&Identity>,
    step: &str,
    count: u64,
) -> bool {
    let recipient = identity.map(|it| (RECIPIENT_VARIABLE, it.recipient().to_string()));
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .envs(recipient)
        .env(PATH_VARIABLE, directory)
        .env(URL_VARIABLE, url)
        .env(STEP_VARIABLE, format!("{step} {count}"))
        .stdout(Stdio::null())
        .status()
        .unwrap();
    let killed = status.signal() == Some(9);
    assert!(killed || status.success(), "{status}");
    killed
}

#[test]
fn a_kill_at_any_step_loses_and_doubles_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    kill_at_each_step(&fixture);
}

#[test]
fn a_kill_at_any_step_of_who_cannot_read_what_it_encrypts_loses_and_doubles_nothing() {
    let Some(fixture) = Fixture::encrypted() else {
        return;
    };
    kill_at_each_step(&fixture);
    for path in fixture.files().keys() {
        let content = std::fs::read(path).unwrap();
        let has = |text: &str| content.windows(text.len()).any(|it| it == text.as_bytes());
        assert!(content.starts_with(b"{") && !has("client-") && !has("SQLite"));
    }
    // Who cannot read them either proves the rest, and is told what is not read.
    let mut reader = PostgresReader::open(&fixture.options()).unwrap();
    assert!(reader.recent(usize::MAX, Filter::default()).is_err());
    assert!(reader.groups(0).is_err());
    reader.leave_unread();
    let trust = |checkpoints| Trust {
        checkpoints: Some(checkpoints),
        ..Trust::default()
    };
    let checkpoints = fixture.checkpoints();
    let report = verify(&mut reader, trust(&checkpoints)).unwrap();
    assert_eq!((report.first_wrong, report.deleted), (None, 0));
    assert!(2 * SEGMENT_ENTRIES < report.unread, "{}", report.unread);
    let whole = fixture.verify();
    assert_eq!((report.entries, report.head), (whole.entries, whole.head));
    // A file that was changed is found all the same.
    let path = fixture.files().into_keys().next().unwrap();
    let mut content = std::fs::read(&path).unwrap();
    *content.last_mut().unwrap() ^= 1;
    std::fs::write(&path, content).unwrap();
    let found = verify(&mut reader, trust(&checkpoints)).unwrap();
    assert_eq!(found.first_wrong.unwrap().what, Fault::SegmentAltered);
    let found = fixture.verify().first_wrong.unwrap();
    assert_eq!(found.what, Fault::SegmentAltered);
}

fn kill_at_each_step(fixture: &Fixture) {
    let expected = fixture.answers();
    let (url, directory) = (&*fixture.url, fixture.directory.path());
    let identity = fixture.identity.as_ref();
    for step in [
        "Copied",
        "Synced",
        "Named",
        "Listed",
        "TakingOut",
        "TakenOut",
    ] {
        assert!(
            archive_and_kill(url, directory, identity, step, 1),
            "{step}"
        );
        assert_same(&fixture.answers(), &expected, step);
        fixture.assert_sound();
    }
    while archive_and_kill(url, directory, identity, "never", 1) {}
    assert_same(&fixture.answers(), &expected, "all");
    fixture.assert_sound();
    let left: Vec<_> = std::fs::read_dir(fixture.archive())
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.ends_with(".segment"))
        .collect();
    assert_eq!(left, [""; 0]);
}

#[test]
fn archiving_beside_two_servers_by_processes_that_are_killed_loses_and_doubles_nothing() {
    let Some(fixture) = Fixture::new() else {
        return;
    };
    let before = fixture.answers();
    let mut made = HashSet::new();
    runtime().block_on(async {
        let servers = [fixture.recorder(), fixture.recorder()];
        let (url, directory) = (fixture.url.clone(), fixture.directory.path().to_owned());
        let archiving = tokio::task::spawn_blocking(move || {
            assert!(archive_and_kill(&url, &directory, None, "TakingOut", 1));
            // Numbers of places that look random.
            let mut count: u64 = 3;
            while archive_and_kill(&url, &directory, None, "any", count) {
                count = count * 7 % 11 + 1;
            }
        });
        while !archiving.is_finished() {
            for server in &servers {
                made.insert(call(server, "alice").await);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        archiving.await.unwrap();
        for server in servers {
            server.close().await.unwrap();
        }
    });
    let mut reader = fixture.reader();
    reader.count().unwrap();
    // The file of checkpoints is that of two servers here.
    let keys = [fixture.key.public().clone()];
    let trust = Trust {
        keys: &keys,
        ..Trust::default()
    };
    let report = verify(&mut reader, trust).unwrap();
    assert_eq!(report.first_wrong, None);
    let after = fixture.answers();
    let mut found: BTreeMap<CallId, usize> = BTreeMap::new();
    for record in &after.calls {
        *found.entry(record.call).or_default() += 1;
    }
    assert!(found.values().all(|count| *count == 1));
    assert_eq!(found.len(), before.calls.len() + made.len());
    assert!(made.iter().all(|call| found.contains_key(call)) && !made.is_empty());
    // What was used is on record to the micro.
    let used = |answers: &Answers| -> BTreeMap<String, (u64, u64)> {
        let mut used = BTreeMap::<_, (u64, u64)>::new();
        for usage in &answers.usage[0] {
            let sum = used.entry(usage.principal.clone()).or_default();
            *sum = (sum.0 + usage.calls, sum.1 + usage.cost_micros);
        }
        used
    };
    let mut used_after = used(&after);
    let alice = used_after.remove("alice");
    assert_eq!(alice, Some((made.len() as u64, 7 * made.len() as u64)));
    assert_eq!(used_after, used(&before));
    assert!(1 < fixture.reader().segments().unwrap().len());
    assert!(fixture.count("call") < CALLS / 3 + made.len() as u64);
}

#[test]
fn refusals_that_were_counted_together_stay_in_the_sums_of_days() {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    SigningKey::generate(&directory.path().join("ledger.key")).unwrap();
    let _ = postgres.create_database("refusals");
    let fixture = Fixture::of(postgres, "refusals", directory, system_now_us());
    let old_us = fixture.days_ago(40) + 5;
    let call = async |recorder: &Recorder, at_us: u64| {
        let start = Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/x");
        let open = recorder.begin(&start).await.unwrap();
        open.finish(&End::new(Outcome::Succeeded)).await.unwrap();
    };
    let detail =
        format!(r#"{{"reason":"not_visible","count":70,"first_us":{old_us},"not_visible":20}}"#);
    runtime().block_on(async {
        fixture.clock.store(old_us, Ordering::Relaxed);
        let recorder = fixture.recorder();
        for number in 0..40 {
            call(&recorder, old_us + number).await;
        }
        let note = Note {
            actor: "mallory",
            subject: "tool/*",
            detail: &detail,
            ..Note::new(old_us, NoteKind::REFUSALS_AGGREGATED)
        };
        recorder.note(&note).await.unwrap();
        recorder.close().await.unwrap();
        // A checkpoint of later than that would be one of the future, which is archived with what is old and not deleted.
        fixture.clock.store(fixture.now_us, Ordering::Relaxed);
        let recorder = fixture.recorder();
        call(&recorder, fixture.now_us).await;
        recorder.close().await.unwrap();
        indexed(&fixture).await;
    });
    let sums = || {
        let asked = [Bucket::Day, Bucket::Whole].map(|bucket| StatisticsQuery {
            principal: None,
            capability: None,
            since_us: fixture.days_ago(60),
            until_us: fixture.days_ago(4),
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
    assert_eq!(refused, 70);
    assert!(0 < fixture.archive_all(fixture.days_ago(3)));
    assert_eq!(sums(), before, "archived");
    let mut archiver = fixture.archiver();
    let deleted = archiver.delete(fixture.days_ago(3), fixture.now_us, "system");
    assert_ne!(deleted.unwrap(), [""; 0]);
    assert_eq!(sums(), before, "deleted");
    fixture.assert_sound();
}
