//! Backups of the ledger by command, beside a server that goes on serving.

use ledger::{
    CallId, Durability, End, Kind, Outcome, Recorder, RecorderOptions, SqliteLedger, Start,
    system_now_us,
};
use serde_json::{Value, json};
use testkit::{Conversation, MODERN};

use crate::support::{END, Said, Site, call, run};

const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;
/// Calls of a hundred days ago, and of ten.
const OLD: u64 = 1_500;
const RECENT: u64 = 300;

/// A site whose ledger has been written for a long time.
async fn aged() -> Site {
    let site = Site::new(json!({"ledger": {"archive": {
        "after_days": 80, "delete_after_days": 90, "segment_entries": 1_000,
    }}}));
    let store = SqliteLedger::open(site.path("ledger.db"), Durability::Relaxed).unwrap();
    let options = RecorderOptions {
        durability: Durability::Relaxed,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::spawn(store, options).unwrap();
    for (calls, days) in [(OLD, 100), (RECENT, 10)] {
        let from_us = system_now_us() - days * DAY_US;
        for number in 0..calls {
            let at_us = from_us + number * 60_000_000;
            let client = format!("client-{}", number % 3);
            let start = Start::new(CallId::new(at_us), at_us, &client, Kind::Tool, "tool/pay");
            // One in fifty waits for the disk, so that there are groups of many sizes.
            let open = match number % 50 {
                0 => recorder.begin_durably(&start).await.unwrap(),
                _ => recorder.begin(&start).await.unwrap(),
            };
            let end = End {
                cost_micros: 1_000 + number,
                ..End::new(Outcome::Succeeded)
            };
            // It is stored with what comes next.
            drop(open.finish(&end));
        }
    }
    recorder.close().await.unwrap();
    site
}

async fn say(site: &Site, words: &[&str]) -> Said {
    run(site.command(words)).await
}

async fn told(site: &Site, words: &[&str]) -> Value {
    let said = say(site, &[words, &["--format", "json"]].concat()).await;
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.messages);
    serde_json::from_str(&said.output).unwrap()
}

#[tokio::test]
async fn a_backup_made_beside_a_server_is_restored_and_an_older_one_needs_somebody_who_accepts_it()
{
    let site = aged().await;
    let mut server = site.http().await;
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    let monday = told(&site, &["ledger", "backup", "monday"]).await;
    client
        .request("tools/call", call("append", json!({"mark": "rent"})))
        .await;
    let tuesday = told(&site, &["ledger", "backup", "tuesday"]).await;
    assert!(monday["last_sequence"].as_u64() < tuesday["last_sequence"].as_u64());
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());

    let there = say(&site, &["ledger", "restore", "tuesday"]).await;
    assert_eq!(there.code, Some(1));
    assert!(
        there.messages.contains("is there already"),
        "{}",
        there.messages
    );
    let new = Site::new(json!({}));
    for file in [
        "monday",
        "monday.checkpoint",
        "tuesday",
        "tuesday.checkpoint",
    ] {
        std::fs::copy(site.path(file), new.path(file)).unwrap();
    }
    let restored = told(&new, &["ledger", "restore", "tuesday"]).await;
    assert_eq!(restored["head"], tuesday["head"]);
    assert_eq!(new.outcomes("append"), ["succeeded"]);
    let mut server = new.http().await;
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());

    for file in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        let _ = std::fs::remove_file(new.path(file));
    }
    let older = say(&new, &["ledger", "restore", "monday"]).await;
    assert_eq!(older.code, Some(1));
    assert!(
        older.messages.contains("--by NAME --reason TEXT"),
        "{}",
        older.messages
    );
    assert!(!new.path("ledger.db").exists());
    let accepted = [
        "ledger",
        "restore",
        "monday",
        "--by",
        "ana",
        "--reason",
        "Tuesday is lost",
    ];
    let accepted = told(&new, &accepted).await;
    assert!(accepted["set_aside"].is_string(), "{accepted}");
    assert_eq!(new.notes()[..2], ["checkpoint", "rollback_accepted"]);
    let mut server = new.http().await;
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    assert_eq!(say(&new, &["ledger", "verify"]).await.code, Some(0));
}
