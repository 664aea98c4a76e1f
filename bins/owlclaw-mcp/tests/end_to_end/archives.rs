//! Archives of the ledger by command, beside a server that goes on serving.

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

/// A site whose ledger has been written for a long time. The server has no policy for archives, so that only the
/// commands archive, however long the test takes.
async fn aged() -> Site {
    let site = Site::new(json!({"ledger": {"archive": {"segment_entries": 1_000}}}));
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

/// Runs a command under the policy for archives.
async fn say(site: &Site, words: &[&str]) -> Said {
    let mut command = site.command(words);
    command
        .env("MCP_SERVER_LEDGER__ARCHIVE__AFTER_DAYS", "80")
        .env("MCP_SERVER_LEDGER__ARCHIVE__DELETE_AFTER_DAYS", "90");
    run(command).await
}

async fn told(site: &Site, words: &[&str]) -> Value {
    let said = say(site, &[words, &["--format", "json"]].concat()).await;
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.messages);
    serde_json::from_str(&said.output).unwrap()
}

#[tokio::test]
async fn a_ledger_is_archived_beside_a_server_and_every_command_finds_what_it_had() {
    let site = aged().await;
    let mut server = site.http().await;
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    let sums = [
        "governance",
        "stats",
        "--since",
        "2020-01-01",
        "--tool",
        "pay",
    ];
    let before = told(&site, &sums).await;
    assert_eq!(before[0]["calls"], OLD / 3 + RECENT / 3, "{before}");

    let archived = told(&site, &["ledger", "archive", "--keep", "80"]).await;
    // The group in which both kinds of calls are stays in the ledger.
    let entries = archived["entries"].as_u64().unwrap();
    assert!((2 * OLD - 110..=2 * OLD).contains(&entries), "{archived}");
    let segments = archived["segments"].as_array().unwrap();
    assert!(2 < segments.len(), "{archived}");
    assert!(
        site.path("ledger.db-archive")
            .join("ledger-000001.segment")
            .exists()
    );
    let again = say(&site, &["ledger", "archive"]).await;
    assert!(
        again.output.starts_with("archived     0 entries"),
        "{}",
        again.output
    );

    // The server has lost nothing of what it needs, and goes on.
    let answer = client
        .request("tools/call", call("append", json!({"mark": "rent"})))
        .await;
    assert!(answer.response["result"].is_object(), "{}", answer.response);
    assert!(site.read("executed").contains("rent"));
    assert_eq!(told(&site, &sums).await, before);
    let found = told(
        &site,
        &[
            "ledger", "query", "--client", "client-1", "--until", "90d", "--limit", "7",
        ],
    )
    .await;
    assert_eq!(found.as_array().unwrap().len(), 7);
    let id = found[6]["call"].as_str().unwrap();
    let shown = told(&site, &["ledger", "show", id]).await;
    assert_eq!(
        (&shown["call"], &shown["outcome"]),
        (&json!(id), &json!("succeeded"))
    );
    let exported = say(&site, &["ledger", "export", "--tool", "pay"]).await;
    assert_eq!(exported.output.lines().count() as u64, OLD + RECENT);

    // A hold keeps what it concerns, and no more.
    let until = found[0]["time"].as_str().unwrap();
    let hold = ["ledger", "hold", "--client", "client-1", "--until", until];
    let set = say(
        &site,
        &[&hold[..], &["--by", "ana", "--reason", "case 7"]].concat(),
    )
    .await;
    assert_eq!(
        set.output.trim(),
        "held         by hold 1",
        "{}",
        set.messages
    );
    assert_eq!(
        told(&site, &["ledger", "holds"]).await[0]["reason"],
        "case 7"
    );
    let delete = ["ledger", "archive", "--delete", "--by", "ana"];
    let kept = told(&site, &delete).await["deleted"]
        .as_array()
        .unwrap()
        .len();
    assert!(kept < segments.len(), "{kept} of {}", segments.len());
    let lifted = say(
        &site,
        &[
            "ledger",
            "lift-hold",
            "1",
            "--by",
            "ana",
            "--reason",
            "closed",
        ],
    )
    .await;
    assert_eq!(
        lifted.output.trim(),
        "lifted       hold 1",
        "{}",
        lifted.messages
    );
    let rest = told(&site, &delete).await["deleted"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(kept + rest, segments.len());
    assert_eq!(told(&site, &sums).await, before, "sums stay");

    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let verified = say(&site, &["ledger", "verify"]).await;
    assert_eq!(
        verified.code,
        Some(0),
        "{}{}",
        verified.output,
        verified.messages
    );
    let deleted = format!("deleted      {entries} entries");
    assert!(verified.output.contains(&deleted), "{}", verified.output);
    let notes = site.notes().into_iter().filter(|kind| kind == "retention");
    assert_eq!(notes.count(), 2 * segments.len() + 2);

    let young = say(&site, &["ledger", "archive", "--before", "1d"]).await;
    assert_eq!(young.code, Some(1));
    assert!(
        young.messages.contains("younger than two days"),
        "{}",
        young.messages
    );
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

#[tokio::test]
async fn an_archive_that_is_encrypted_is_read_with_the_identity_and_named_without_it() {
    let site = aged().await;
    // It indexes what it finds, which is archived no sooner.
    let mut server = site.http().await;
    let identity = age_format::Identity::generate().unwrap();
    let file = site.path("archive.key");
    std::fs::write(&file, format!("# a comment\n{}\n", &*identity.text())).unwrap();
    let file = file.to_str().unwrap();
    let with = |words: &[&'static str]| -> Vec<String> {
        let words = words.iter().copied().chain(["--identity", file]);
        words.map(str::to_owned).collect()
    };
    let query = ["ledger", "query", "--until", "90d", "--limit", "2000"];
    let before = told(&site, &query).await;
    assert_eq!(before.as_array().unwrap().len() as u64, OLD);
    let export = ["ledger", "export", "--tool", "pay"];
    let before_export = say(&site, &export).await.output;

    let recipient = identity.recipient().to_string();
    let misspelt = recipient.replace('q', "p");
    let archive = ["ledger", "archive", "--keep", "80", "--recipient"];
    let refused = say(&site, &[&archive[..], &[misspelt.as_str()]].concat()).await;
    assert_eq!(refused.code, Some(2), "{}", refused.messages);
    assert!(
        refused.messages.contains("misspelt"),
        "{}",
        refused.messages
    );
    let archived = told(&site, &[&archive[..], &[recipient.as_str()]].concat()).await;
    let segments = archived["segments"].as_array().unwrap();
    assert!(2 < segments.len(), "{archived}");
    for segment in segments {
        let content = std::fs::read(segment.as_str().unwrap()).unwrap();
        let has = |text: &str| content.windows(text.len()).any(|it| it == text.as_bytes());
        assert!(content.starts_with(b"{") && has("age-encryption.org/v1"));
        assert!(!has("client-") && !has("tool/pay") && !has("SQLite"));
    }

    // Without the identity nothing is left out without a word.
    let concerned: [&[&str]; 4] = [
        &query,
        &[
            "ledger",
            "show",
            before[OLD as usize - 1]["call"].as_str().unwrap(),
        ],
        &export,
        &["ledger", "archive", "--delete", "--by", "ana"],
    ];
    for words in concerned {
        let refused = say(&site, words).await;
        assert_eq!(refused.code, Some(1), "{words:?}: {}", refused.output);
        assert!(
            refused.messages.contains(".segment is encrypted")
                && refused.messages.contains("--identity FILE"),
            "{words:?}: {}",
            refused.messages
        );
    }
    let recent = told(
        &site,
        &["ledger", "query", "--since", "20d", "--limit", "2000"],
    )
    .await;
    assert_eq!(recent.as_array().unwrap().len() as u64, RECENT);

    // With it all is as it was.
    let words = with(&query);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert_eq!(told(&site, &words).await, before);
    let words = with(&export);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let exported = say(&site, &words).await.output;
    assert!(exported == before_export, "{}", exported.lines().count());
    let mut configured = site.command(&query);
    configured
        .args(["--format", "json"])
        .env("MCP_SERVER_LEDGER__ARCHIVE__IDENTITY", &*identity.text());
    let configured: Value = serde_json::from_str(&run(configured).await.output).unwrap();
    assert_eq!(configured, before);

    // The server puts on record what was archived, and seals it.
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let outside = say(&site, &["ledger", "verify"]).await;
    assert_eq!(
        outside.code,
        Some(3),
        "{}{}",
        outside.output,
        outside.messages
    );
    assert!(
        outside.output.contains("unread       "),
        "{}",
        outside.output
    );
    assert!(
        outside
            .output
            .ends_with("sound, as far as it could be read\n")
    );
    let words = with(&["ledger", "verify"]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let inside = say(&site, &words).await;
    assert_eq!(inside.code, Some(0), "{}{}", inside.output, inside.messages);
    assert!(!inside.output.contains("unread"), "{}", inside.output);

    let path = segments[1].as_str().unwrap();
    let mut content = std::fs::read(path).unwrap();
    *content.last_mut().unwrap() ^= 1;
    std::fs::write(path, content).unwrap();
    for words in [&["ledger", "verify"][..], &words] {
        let damaged = say(&site, words).await;
        assert_eq!(damaged.code, Some(1), "{}", damaged.output);
        let said = "is not the file that was sealed";
        assert!(damaged.output.contains(said), "{}", damaged.output);
    }
}
