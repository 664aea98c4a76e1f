//! A backup is whole although a server writes, and what it is restored to cannot be rolled back unnoticed.

#![allow(clippy::unwrap_used)]

use ledger::*;
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn of(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn ledger(&self) -> PathBuf {
        self.of("data/ledger.db")
    }

    fn checkpoints(&self) -> PathBuf {
        self.of("data/ledger.db.checkpoints")
    }

    /// Removes the ledger, but not its file of checkpoints.
    fn lose(&self) {
        fs::remove_file(self.ledger()).unwrap();
        for log in ["-wal", "-shm"] {
            let _ = fs::remove_file(self.of(&format!("data/ledger.db{log}")));
        }
    }

    fn recorder(&self, key: &Arc<SigningKey>) -> Recorder {
        let store = SqliteLedger::open(self.ledger(), Durability::Strict).unwrap();
        let checkpoints = Checkpoints::new(CheckpointOptions {
            entries: 20,
            file: Some(self.checkpoints()),
            key: Some(Arc::clone(key)),
            ..CheckpointOptions::default()
        });
        Recorder::spawn_with_hook(store, RecorderOptions::default(), checkpoints).unwrap()
    }

    fn verify(&self, key: &SigningKey) -> Report {
        let keys = [key.public().clone()];
        let file = self.checkpoints();
        let trust = Trust {
            keys: &keys,
            checkpoints: Some(&file),
            every: None,
            ..Trust::default()
        };
        verify(&mut LedgerReader::open(self.ledger()).unwrap(), trust).unwrap()
    }

    fn continuity(&self) -> Result<Continuity, ContinuityError> {
        let mut reader = LedgerReader::open(self.ledger()).unwrap();
        check_continuity(Some(&mut reader), &self.checkpoints())
    }
}

async fn calls(recorder: &Recorder, count: u64) -> Vec<CallId> {
    let mut made = Vec::new();
    for _ in 0..count {
        let at_us = system_now_us();
        let start = Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/x");
        let call = recorder.begin(&start).await.unwrap();
        call.finish(&End::new(Outcome::Succeeded)).await.unwrap();
        made.push(start.call);
    }
    made
}

fn key(place: &Place, name: &str) -> Arc<SigningKey> {
    Arc::new(SigningKey::generate(&place.of(name)).unwrap())
}

fn restore_to(
    place: &Place,
    from: &Path,
    key: &SigningKey,
    accept: bool,
) -> Result<Restored, BackupError> {
    let keys = [key.public().clone()];
    restore(
        from,
        &place.ledger(),
        &place.checkpoints(),
        &keys,
        None,
        accept,
    )
}

#[tokio::test]
async fn a_backup_beside_a_server_is_whole_and_an_older_one_is_refused_where_it_was_restored() {
    let old = Place::new();
    let key = key(&old, "key");
    let recorder = old.recorder(&key);
    let first = calls(&recorder, 100).await;
    let writing = {
        let recorder = recorder.clone();
        tokio::spawn(async move { calls(&recorder, 200).await })
    };
    let (one, two) = (old.of("monday"), old.of("tuesday"));
    let make = |to: &Path| {
        let (from, to, key) = (old.ledger(), to.to_owned(), Arc::clone(&key));
        tokio::task::spawn_blocking(move || backup(&from, &to, Some(&key), 7).unwrap())
    };
    let monday = make(&one).await.unwrap();
    let later = writing.await.unwrap();
    let tuesday = make(&two).await.unwrap();
    recorder.close().await.unwrap();
    assert!(200 <= monday.sequence && monday.sequence < tuesday.sequence);
    tuesday.check_signature(&[key.public().clone()]).unwrap();
    let again = backup(&old.ledger(), &two, None, 7);
    assert!(matches!(again, Err(BackupError::Exists(path)) if path == two));

    let new = Place::new();
    let restored = restore_to(&new, &two, &key, false).unwrap();
    assert_eq!(restored.checkpoint, tuesday);
    assert!(restored.contradicted.is_none());
    let report = new.verify(&key);
    assert_eq!(
        (report.first_wrong, report.entries),
        (None, tuesday.sequence)
    );
    assert_eq!(
        report.sealed_through, tuesday.sequence,
        "the backup's checkpoint seals it"
    );
    let mut reader = LedgerReader::open(new.ledger()).unwrap();
    for call in first.iter().chain(&later) {
        assert!(reader.call(*call).unwrap().unwrap().ended.is_some());
    }
    drop(reader);
    // The server goes on, and the file of checkpoints with it.
    assert!(new.continuity().is_ok());
    let recorder = new.recorder(&key);
    calls(&recorder, 30).await;
    recorder.close().await.unwrap();
    assert!(new.verify(&key).is_sealed());

    // In its place the older one is not gone on with, however it comes there.
    let there = restore_to(&new, &one, &key, true);
    assert!(matches!(there, Err(BackupError::Exists(_))), "{there:?}");
    new.lose();
    let older = restore_to(&new, &one, &key, false);
    let Err(BackupError::Contradicted(ContinuityError::RolledBack { last, .. })) = older else {
        panic!("{older:?}");
    };
    assert_eq!(last, monday.sequence);
    assert!(!new.ledger().exists());
    let accepted = restore_to(&new, &one, &key, true).unwrap();
    assert!(accepted.contradicted.is_some());
    let refused = new.continuity();
    assert!(
        matches!(refused, Err(ContinuityError::RolledBack { .. })),
        "until somebody accepts it on record"
    );
}

#[tokio::test]
async fn a_backup_whose_tables_were_altered_needs_somebody_who_accepts_it() {
    let old = Place::new();
    let key = key(&old, "key");
    let recorder = old.recorder(&key);
    calls(&recorder, 30).await;
    recorder.close().await.unwrap();
    drop(SqliteLedger::open(old.ledger(), Durability::Strict).unwrap());
    for (number, change) in [
        "UPDATE call SET cost_micros = 5 WHERE start_sequence = 1",
        "DELETE FROM call WHERE start_sequence = 1",
        "UPDATE usage_day SET used_micros = 7",
        "INSERT INTO idempotency_key VALUES ('a', 'k', 'tool/x', zeroblob(32), zeroblob(16), 1, 2,
            'succeeded', NULL)",
    ]
    .into_iter()
    .enumerate()
    {
        let to = old.of(&number.to_string());
        backup(&old.ledger(), &to, Some(&key), 7).unwrap();
        let changed = rusqlite::Connection::open(&to).unwrap().execute(change, []);
        assert_eq!(changed.unwrap(), 1, "{change}");
        let new = Place::new();
        let refused = restore_to(&new, &to, &key, false);
        assert!(
            matches!(refused, Err(BackupError::Altered(_))),
            "{change}: {refused:?}"
        );
        assert!(!new.ledger().exists() && !new.checkpoints().exists());
        let accepted = restore_to(&new, &to, &key, true).unwrap();
        assert!(matches!(accepted.altered, Some(BackupError::Altered(_))));
    }
}

#[tokio::test]
async fn a_file_of_checkpoints_that_begins_anew_refuses_what_came_before() {
    let old = Place::new();
    let key = key(&old, "key");
    let recorder = old.recorder(&key);
    calls(&recorder, 5).await;
    recorder.close().await.unwrap();
    let earlier = old.of("earlier");
    backup(&old.ledger(), &earlier, Some(&key), 7).unwrap();
    let recorder = old.recorder(&key);
    calls(&recorder, 5).await;
    recorder.close().await.unwrap();
    fs::remove_file(old.checkpoints()).unwrap();
    let mut reader = LedgerReader::open(old.ledger()).unwrap();
    begin_checkpoints(&mut reader, &old.checkpoints(), Some(&key), 9).unwrap();
    drop(reader);
    old.continuity().unwrap();
    assert!(old.verify(&key).is_ok());
    old.lose();
    let refused = restore_to(&old, &earlier, &key, false);
    assert!(
        matches!(refused, Err(BackupError::Contradicted(_))),
        "{refused:?}"
    );
}

#[tokio::test]
async fn what_is_not_the_backup_that_was_made_is_not_restored() {
    let old = Place::new();
    let (key, other) = (key(&old, "key"), key(&old, "other"));
    let recorder = old.recorder(&key);
    calls(&recorder, 30).await;
    recorder.close().await.unwrap();
    let (one, two) = (old.of("one"), old.of("two"));
    backup(&old.ledger(), &one, Some(&key), 7).unwrap();
    let recorder = old.recorder(&key);
    calls(&recorder, 30).await;
    recorder.close().await.unwrap();
    backup(&old.ledger(), &two, Some(&key), 8).unwrap();
    let original = fs::read(&two).unwrap();

    let new = Place::new();
    let refused = |why: &str, is: fn(&BackupError) -> bool| {
        let error = restore_to(&new, &two, &key, true).unwrap_err();
        assert!(is(&error), "{why}: {error:?}");
        assert!(
            !new.ledger().exists() && !new.checkpoints().exists(),
            "{why}"
        );
        fs::write(&two, &original).unwrap();
    };
    fs::copy(&one, &two).unwrap();
    refused("an older one", |it| {
        matches!(it, BackupError::NotAsSealed { .. })
    });
    let connection = rusqlite::Connection::open(&two).unwrap();
    connection
        .execute(
            "UPDATE entry_group SET body = zeroblob(40) WHERE first_sequence = 1",
            [],
        )
        .unwrap();
    drop(connection);
    refused("a changed one", |it| matches!(it, BackupError::Damaged(1)));
    fs::write(
        &two,
        "this is a letter, and no database at all. ".repeat(100),
    )
    .unwrap();
    refused("no ledger", |it| {
        matches!(it, BackupError::Open(OpenError::NotALedger(_)))
    });

    let stranger = restore_to(&new, &two, &other, true);
    assert!(matches!(
        stranger,
        Err(BackupError::Signature(SignatureError::Untrusted))
    ));
    fs::remove_file(backup_checkpoint(&two)).unwrap();
    let without = restore_to(&new, &two, &key, true);
    assert!(
        matches!(without, Err(BackupError::File { .. })),
        "{without:?}"
    );
    let empty = Place::new();
    drop(SqliteLedger::open(empty.ledger(), Durability::Strict).unwrap());
    let nothing = backup(&empty.ledger(), &empty.of("backup"), None, 7);
    assert!(matches!(nothing, Err(BackupError::Empty)), "{nothing:?}");
    assert!(!empty.of("backup").exists());
}
