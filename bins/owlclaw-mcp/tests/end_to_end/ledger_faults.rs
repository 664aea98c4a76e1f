//! Disks that are full, files that are locked, pages that are damaged: nothing runs that cannot be
//! recorded, and everything goes on when the fault is over.
#![cfg(target_os = "linux")]

use std::{
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    process::{Child, Command as BlockingCommand, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{GENEROUS, HttpClient, HttpRequest, HttpServer, Port, failure_of, succeeded};
use tokio::{process::Command, time::sleep};

use crate::support::{Site, call, run};

/// Between two attempts of a client that was told to come back.
const PAUSE: Duration = Duration::from_millis(50);

fn site() -> Site {
    Site::new(json!({"ledger": {"max_wait_seconds": 1}}))
}

/// Calls `append`; tells the reason if it is refused.
async fn append(server: &HttpServer, mark: &str) -> Result<(), String> {
    let mut client = HttpClient::new(server.address());
    let answer = client
        .post_modern("tools/call", call("append", json!({"mark": mark})))
        .await;
    if succeeded(answer.response()) {
        return Ok(());
    }
    let error = failure_of(answer.response());
    assert_eq!(error["code"], -32003, "{error}");
    assert_eq!(error["data"]["retryable"], true, "{error}");
    Err(error["data"]["reason"].as_str().unwrap().to_owned())
}

/// Calls until it is carried out, as a client does that was told to try again.
async fn append_at_last(server: &HttpServer, mark: &str) {
    let at_last = async {
        while let Err(reason) = append(server, mark).await {
            assert_eq!(reason, "ledger_unavailable");
            // Nothing tells a client when to come back.
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(GENEROUS, at_last)
        .await
        .expect("it recovers");
}

async fn health(server: &HttpServer) -> (u16, Value) {
    let client = HttpClient::new(server.address());
    let answer = client.exchange(&HttpRequest::get("/health")).await;
    (answer.status, answer.json())
}

/// Asserts what must hold when the fault is over: each of `marks` ran once and is on record once,
/// nothing else ran, and the ledger is whole.
async fn all_is_told(site: &Site, mut server: HttpServer, marks: &[&str]) {
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let executed = site.read("executed");
    assert_eq!(executed.lines().collect::<Vec<_>>(), marks);
    let outcomes = site.outcomes("append");
    let succeeded = outcomes.iter().filter(|it| *it == "succeeded").count();
    assert_eq!(succeeded, marks.len(), "{outcomes:?}");
    assert!(!outcomes.contains(&"open".to_owned()), "{outcomes:?}");
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(verified.code, Some(0), "{}", verified.messages);
}

/// Limits how long the files of a process may grow, which to it is a disk that is full.
fn limit_files(process: u32, bytes: &str) {
    let limited = BlockingCommand::new("prlimit")
        .args([format!("--pid={process}"), format!("--fsize={bytes}:")])
        .status();
    assert!(limited.unwrap().success());
}

#[tokio::test]
async fn a_full_disk_refuses_calls_and_an_emptied_one_takes_them_again() {
    let site = site();
    let program = site.command(&["start", "--transport", "http"]);
    let program = program.as_std();
    let mut command = Command::new("env");
    // The signal that comes with the limit and not with a full disk.
    command
        .arg("--ignore-signal=XFSZ")
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(site.path(""))
        .env_clear()
        .envs(
            program
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
    let server = HttpServer::spawn(command, Port::Announced(crate::support::announced)).await;
    append(&server, "before").await.unwrap();
    let id = server.process().id().unwrap();
    limit_files(id, "4096");
    for _ in 0..3 {
        let refused = append(&server, "full").await;
        assert_eq!(refused, Err("ledger_unavailable".to_owned()));
    }
    let (status, health_now) = health(&server).await;
    assert_eq!(status, 503, "{health_now}");
    limit_files(id, "unlimited");
    append_at_last(&server, "after").await;
    assert_eq!(health(&server).await.0, 200);
    all_is_told(&site, server, &["before", "after"]).await;
}

/// Holds the ledger's file as another program may.
pub(crate) struct Locked(Child);

impl Locked {
    pub(crate) fn take(site: &Site) -> Self {
        let script = "import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
sys.stdin.read()";
        let mut child = BlockingCommand::new("python3")
            .args(["-c", script])
            .arg(site.path("ledger.db"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "locked\n");
        Self(child)
    }

    pub(crate) fn release(mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

#[tokio::test]
async fn a_locked_file_refuses_calls_until_it_is_released() {
    let site = site();
    let server = site.http().await;
    append(&server, "before").await.unwrap();
    let locked = Locked::take(&site);
    for _ in 0..2 {
        let refused = append(&server, "locked").await;
        assert_eq!(refused, Err("ledger_unavailable".to_owned()));
    }
    locked.release();
    append_at_last(&server, "after").await;
    all_is_told(&site, server, &["before", "after"]).await;
}

#[tokio::test]
async fn a_file_that_is_taken_away_is_noticed() {
    let site = site();
    let server = site.http().await;
    append(&server, "before").await.unwrap();
    std::fs::rename(site.path("ledger.db"), site.path("away.db")).unwrap();
    std::fs::remove_file(site.path("away.db")).unwrap();
    let noticed = async {
        while append(&server, "lost").await.is_ok() {
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(GENEROUS, noticed)
        .await
        .expect("calls are refused when nobody can read their record");
    let (status, told) = health(&server).await;
    assert_eq!(status, 503, "{told}");
}

#[tokio::test]
async fn a_damaged_page_is_found_and_nothing_is_built_upon_it() {
    let site = site();
    let mut server = site.http().await;
    for index in 0..40 {
        append(&server, &format!("mark-{index}")).await.unwrap();
    }
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
    let sound = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(sound.code, Some(0), "{}", sound.messages);
    let mut file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(site.path("ledger.db"))
        .unwrap();
    let mut content = Vec::new();
    file.read_to_end(&mut content).unwrap();
    // Somewhere in the arguments of a call, where the database itself notices nothing.
    let at = content
        .windows(7)
        .position(|it| it == b"mark-17")
        .expect("arguments are in the file");
    file.seek(SeekFrom::Start(at as u64)).unwrap();
    file.write_all(b"mark-71").unwrap();
    drop(file);
    let damaged = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(
        damaged.code,
        Some(1),
        "{}{}",
        damaged.output,
        damaged.messages
    );
    // And a page that is nothing at all.
    let pages = content.len() / 4096;
    for page in 1..pages {
        content[page * 4096..(page + 1) * 4096].fill(0xA5);
    }
    site.write("ledger.db", &content);
    let ruined = run(site.command(&["ledger", "verify"])).await;
    assert!(matches!(ruined.code, Some(1 | 2)), "{}", ruined.messages);
    let refused = run(site.command(&["start", "--transport", "http"])).await;
    assert_eq!(refused.code, Some(1), "{}", refused.messages);
    assert!(
        refused.messages.contains("ledger.db"),
        "{}",
        refused.messages
    );
}
