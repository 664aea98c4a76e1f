//! Checkpoints of a server that does not wait for the disk.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod support;

use ledger::{
    Appended, CheckpointOptions, Checkpoints, Durability, End, Group, LedgerStore, MemoryLedger,
    Outcome, Recorder, RecorderOptions, StoreError, Tail,
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use support::{soon, start};

/// A store that looks at the file of checkpoints whenever it is about to store something.
#[derive(Debug)]
struct Watching {
    ledger: MemoryLedger,
    file: PathBuf,
    /// The last entry that is on disk.
    durable: u64,
    /// Lines that were there before what they seal was on disk.
    early: Arc<Mutex<Vec<u64>>>,
}

impl LedgerStore for Watching {
    fn tail(&self) -> Tail {
        self.ledger.tail()
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        let lines = sealed(&self.file).into_iter();
        let early = lines.filter(|sealed| self.durable < *sealed);
        self.early.lock().unwrap().extend(early);
        let is_durable = group.durable;
        let appended = self.ledger.append(group).await?;
        if is_durable {
            self.durable = appended.tail.next_sequence - 1;
        }
        Ok(appended)
    }
}

/// Sequences that the lines of the file seal.
fn sealed(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let lines = text.lines();
    let line = |line| serde_json::from_str::<serde_json::Value>(line).unwrap();
    lines
        .map(|text| line(text)["sequence"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn nothing_is_sealed_in_the_file_before_it_is_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("checkpoints");
    let early = Arc::default();
    let store = Watching {
        ledger: MemoryLedger::default(),
        file: file.clone(),
        durable: 0,
        early: Arc::clone(&early),
    };
    let options = RecorderOptions {
        durability: Durability::Relaxed,
        now: || 0,
        ..RecorderOptions::default()
    };
    let checkpoints = Checkpoints::new(CheckpointOptions {
        entries: 6,
        file: Some(file.clone()),
        ..CheckpointOptions::default()
    });
    let recorder = Recorder::spawn_with_hook(store, options, checkpoints).unwrap();
    for number in 0..30 {
        let call = soon(recorder.begin(&start(number))).await.unwrap();
        soon(call.finish(&End::new(Outcome::Succeeded)))
            .await
            .unwrap();
        let before = recorder.health().committed_groups;
        support::until(|| before < recorder.health().committed_groups || number % 3 != 0).await;
    }
    let last = recorder.health();
    soon(recorder.close()).await.unwrap();
    assert!(last.is_ok());
    assert_eq!(*early.lock().unwrap(), [0; 0]);
    let sealed = sealed(&file);
    assert!(3 < sealed.len(), "{sealed:?}");
    // The last one is there when the recorder has been closed.
    let end = recorder.health().tail.unwrap().next_sequence;
    assert_eq!(sealed.last(), Some(&(end - 2)));
}

/// A file that was emptied under a running server is not begun anew, which would hide it.
#[tokio::test]
async fn a_file_that_lost_its_lines_gets_no_further_ones() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ledger.checkpoints");
    let checkpoints = Checkpoints::new(CheckpointOptions {
        entries: 4,
        file: Some(file.clone()),
        ..CheckpointOptions::default()
    });
    let ledger = MemoryLedger::default();
    let options = RecorderOptions::default();
    let recorder = Recorder::spawn_with_hook(ledger, options, checkpoints).unwrap();
    let calls = async |numbers: std::ops::Range<u64>| {
        for number in numbers {
            let call = soon(recorder.begin(&start(number))).await.unwrap();
            soon(call.finish(&End::new(Outcome::Succeeded)))
                .await
                .unwrap();
        }
    };
    calls(0..8).await;
    support::until(|| !sealed(&file).is_empty()).await;
    assert_eq!(recorder.health().seal_error, None);
    let before = std::fs::read(&file).unwrap();
    std::fs::write(&file, "").unwrap();
    calls(8..16).await;
    support::until(|| recorder.health().seal_error.is_some()).await;
    assert_eq!(std::fs::read(&file).unwrap(), b"");
    let told = recorder.health().seal_error.unwrap();
    assert!(told.contains("is gone"), "{told}");
    // With the lines it goes on.
    std::fs::write(&file, before).unwrap();
    calls(16..24).await;
    support::until(|| recorder.health().seal_error.is_none()).await;
    soon(recorder.close()).await.unwrap();
}
