//! Legacy sessions and servers that are started again on the same files.

use std::{
    fs,
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, Port, SseStream, wait_until,
};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::{END, Site, announced, run};

/// Versions that clients with sessions speak and that were made for this transport.
const VERSIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

const STORE: &str = "ledger-sessions.db";

/// Without an application, which is not what is looked at here.
fn site(http: Value) -> Site {
    let mut all = json!({"port": 0});
    for (key, value) in http.as_object().unwrap() {
        all[key] = value.clone();
    }
    let site = Site::new(json!({"app": null, "http": all}));
    site.skill("stock", "counting", "");
    site
}

async fn ended(server: &mut HttpServer, signal: &str) {
    server.process().signal(signal).await;
    let status = server.wait_exit(END + END).await;
    assert_eq!(status.success(), signal == "TERM", "{}", server.stderr());
}

async fn status(client: &mut HttpClient, principal: &str) -> u16 {
    let message = client.voice.request("tools/list", json!({}));
    let request = client.post_of(&message);
    let request = request.with("x-mcp-client-id", principal);
    client.exchange(&request).await.status
}

/// A client by this name, in a session of its own.
async fn opened(server: &HttpServer, name: &str, version: &str) -> HttpClient {
    let mut client = server.client().with_header("x-mcp-client-id", name);
    client.open(version).await;
    client
}

/// Returns true if the committed data contain `text`.
fn is_stored(site: &Site, text: &str) -> bool {
    let in_file = |name: &str| {
        let bytes = fs::read(site.path(name)).unwrap_or_default();
        bytes.windows(text.len()).any(|it| it == text.as_bytes())
    };
    in_file(STORE) || in_file(&format!("{STORE}-wal"))
}

async fn stored(site: &Site, text: &str) {
    wait_until("it is stored", GENEROUS, || is_stored(site, text)).await;
}

async fn hears(stream: &mut SseStream, method: &str, uri: Option<&str>) {
    loop {
        let message = stream.message().await;
        let about = message["params"]["uri"].as_str();
        if message["method"] == method && about == uri {
            return;
        }
    }
}

#[tokio::test]
async fn sessions_go_on_after_the_server_was_stopped_or_killed() {
    const UPDATED: &str = "notifications/resources/updated";
    const LISTS: [&str; 2] = [
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
    ];
    for signal in ["TERM", "KILL"] {
        let site = site(json!({}));
        let uri = "skill://stock/counting";
        let mut server = site.http().await;
        let mut clients = Vec::new();
        for version in VERSIONS {
            let mut client = opened(&server, version, version).await;
            let subscribed = client
                .request("resources/subscribe", json!({"uri": uri}))
                .await;
            assert!(subscribed.response["result"].is_object());
            stored(&site, client.session().unwrap()).await;
            // Streams that break with the server.
            let stream = client.listen().await;
            clients.push((client, version, stream));
        }
        wait_until("subscriptions are stored", GENEROUS, || {
            let bytes = fs::read(site.path(&format!("{STORE}-wal"))).unwrap();
            bytes
                .windows(uri.len())
                .filter(|it| *it == uri.as_bytes())
                .count()
                >= VERSIONS.len()
        })
        .await;
        ended(&mut server, signal).await;
        let server = site.http().await;
        assert!(server.stderr().contains("sessions were restored"));
        let mut streams = Vec::new();
        for (client, version, broken) in clients {
            drop(broken);
            let mut client = client.moved_to(server.address());
            assert_eq!(status(&mut client, "somebody-else").await, 404, "{version}");
            let resume = HttpRequest::get("/mcp")
                .header("accept", "text/event-stream")
                .header("last-event-id", "0-1");
            let mut stream = client.stream(&client.dress(resume)).await;
            // It may have missed something while it was away.
            for method in LISTS {
                hears(&mut stream, method, None).await;
            }
            hears(&mut stream, UPDATED, Some(uri)).await;
            let read = client.request("resources/read", json!({"uri": uri})).await;
            assert!(
                read.result()["contents"][0]["text"].is_string(),
                "{signal} {version}"
            );
            streams.push((client, stream));
        }
        site.skill("stock", "counting", "version: 2\n");
        site.skill("stock", "weighing", "");
        for (_, stream) in &mut streams {
            hears(stream, UPDATED, Some(uri)).await;
        }
        for (client, _) in &mut streams {
            let subscribed = client
                .request("resources/unsubscribe", json!({"uri": uri}))
                .await;
            assert!(subscribed.response["result"].is_object());
        }
    }
}

#[tokio::test]
async fn a_session_goes_on_through_many_restarts() {
    let site = site(json!({}));
    let mut server = site.http().await;
    let client = opened(&server, "alice", "2025-06-18").await;
    stored(&site, client.session().unwrap()).await;
    for signal in ["KILL", "TERM", "KILL", "KILL"] {
        ended(&mut server, signal).await;
        server = site.http().await;
        let mut client = client.clone().moved_to(server.address());
        assert_eq!(status(&mut client, "alice").await, 200, "{signal}");
    }
}

#[tokio::test]
async fn what_has_ended_stays_ended() {
    let site = site(json!({}));
    let mut server = site.http().await;
    let left = opened(&server, "alice", "2025-06-18").await;
    let idle = opened(&server, "bob", "2025-06-18").await;
    for client in [&left, &idle] {
        stored(&site, client.session().unwrap()).await;
    }
    let used = Instant::now();
    let delete = left.dress(HttpRequest::new("DELETE", "/mcp"));
    assert_eq!(left.exchange(&delete).await.status, 204);
    // At once: that it was answered says that it is stored.
    ended(&mut server, "KILL").await;
    let mut server = site.http().await;
    let mut left = left.moved_to(server.address());
    assert_eq!(status(&mut left, "alice").await, 404);
    ended(&mut server, "KILL").await;
    // It would still be welcome, but for a bound that is shorter from now on.
    let config = site.read("mcp-server.yaml");
    let shorter = config.replace("\"port\":0", "\"port\":0,\"session_idle_seconds\":1");
    assert_ne!(shorter, config);
    site.write("mcp-server.yaml", shorter);
    tokio::time::sleep(Duration::from_secs(1).saturating_sub(used.elapsed())).await;
    let server = site.http().await;
    let mut idle = idle.moved_to(server.address());
    assert_eq!(status(&mut idle, "bob").await, 404);
}

#[tokio::test]
async fn no_more_go_on_than_there_may_be_and_none_if_none_is_to() {
    let site = site(json!({}));
    let mut server = site.http().await;
    let mut clients = Vec::new();
    for name in ["alice", "bob", "carol"] {
        clients.push((name, opened(&server, name, "2025-06-18").await));
    }
    ended(&mut server, "TERM").await;
    for (variable, value, expected) in [
        ("MCP_SERVER_HTTP__MAX_SESSIONS", "2", 2),
        // Those that were too many are gone for good.
        ("MCP_SERVER_HTTP__MAX_SESSIONS", "9", 2),
        ("MCP_SERVER_HTTP__KEEP_SESSIONS", "false", 0),
    ] {
        let mut command = site.command(&["start", "--transport", "http"]);
        command.env(variable, value);
        let mut server = HttpServer::spawn(command, Port::Announced(announced)).await;
        let mut found = 0;
        for (name, client) in &clients {
            let mut client = client.clone().moved_to(server.address());
            found += usize::from(status(&mut client, name).await == 200);
        }
        assert_eq!(found, expected, "{variable}={value}");
        ended(&mut server, "TERM").await;
    }
}

#[tokio::test]
async fn a_store_that_is_of_no_use_is_moved_aside_and_sessions_are_kept_again() {
    let newer: fn(&Path) = |path| {
        // The version is the number at this place of the head.
        let mut bytes = fs::read(path).unwrap();
        bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
        fs::write(path, bytes).unwrap();
    };
    let torn: fn(&Path) = |path| {
        let mut bytes = fs::read(path).unwrap();
        bytes[200..].fill(0xa5);
        fs::write(path, bytes).unwrap();
    };
    let garbage: fn(&Path) = |path| fs::write(path, [0x5a; 12_345]).unwrap();
    let site = site(json!({}));
    let mut server = site.http().await;
    for damage in [newer, torn, garbage] {
        let client = opened(&server, "alice", "2025-06-18").await;
        ended(&mut server, "TERM").await;
        damage(&site.path(STORE));
        server = site.http().await;
        assert!(
            server.stderr().contains("another is begun"),
            "{}",
            server.stderr()
        );
        assert!(site.path(&format!("{STORE}.set-aside")).exists());
        let mut client = client.moved_to(server.address());
        assert_eq!(status(&mut client, "alice").await, 404);
        client.open("2025-06-18").await;
        ended(&mut server, "TERM").await;
        server = site.http().await;
        let mut client = client.moved_to(server.address());
        assert_eq!(status(&mut client, "alice").await, 200);
    }
}

#[tokio::test]
async fn a_file_of_something_else_is_left_alone() {
    let site = site(json!({"sessions_path": "letter.txt"}));
    site.write("letter.txt", "Dear Bob,\n");
    let said = run(site.command(&["start", "--transport", "http"])).await;
    assert_ne!(said.code, Some(0));
    assert!(
        said.messages.contains("is not a session store"),
        "{}",
        said.messages
    );
    assert!(
        said.messages.contains("set http.sessions_path"),
        "{}",
        said.messages
    );
    assert_eq!(site.read("letter.txt"), "Dear Bob,\n");
}

async fn health(server: &HttpServer) -> (u16, Value) {
    let answer = server.client().exchange(&HttpRequest::get("/health")).await;
    let health = answer.json();
    let components = health["components"].as_array().unwrap();
    let sessions = components.iter().find(|it| it["name"] == "sessions");
    (answer.status, sessions.unwrap()["ok"].clone())
}

#[tokio::test]
async fn a_store_that_cannot_be_written_holds_nobody_up() {
    const HOLD: &str = "import sqlite3, sys\n\
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n\
        connection.execute('BEGIN IMMEDIATE')\n\
        print('held', flush=True)\n\
        sys.stdin.read()\n";
    let site = site(json!({}));
    let mut server = site.http().await;
    let mut holder = tokio::process::Command::new("python3")
        .args(["-c", HOLD])
        .arg(site.path(STORE))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines();
    assert_eq!(said.next_line().await.unwrap().as_deref(), Some("held"));
    let mut client = opened(&server, "alice", "2025-11-25").await;
    for _ in 0..20 {
        assert_eq!(status(&mut client, "alice").await, 200);
    }
    let is_ok = |value: bool| {
        let server = &server;
        async move {
            let end = Instant::now() + GENEROUS;
            loop {
                let (status, ok) = health(server).await;
                assert_eq!(status, 200, "calls are served as well");
                if ok == json!(value) {
                    return;
                }
                assert!(Instant::now() < end, "not told in time");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    is_ok(false).await;
    drop(holder.stdin.take());
    holder.wait().await.unwrap();
    is_ok(true).await;
    stored(&site, client.session().unwrap()).await;
    ended(&mut server, "KILL").await;
    let server = site.http().await;
    let mut client = client.moved_to(server.address());
    assert_eq!(status(&mut client, "alice").await, 200);
}

/// Number of times that the thread that writes the store has been scheduled.
#[cfg(target_os = "linux")]
fn turns(process: u32) -> u64 {
    for thread in fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        let thread = thread.unwrap().path();
        let name = fs::read_to_string(thread.join("comm")).unwrap_or_default();
        if name.trim() == "session-store" {
            let status = fs::read_to_string(thread.join("status")).unwrap();
            let switches = status.lines().filter(|line| line.contains("ctxt_switches"));
            let count = |line: &str| line.rsplit('\t').next()?.parse::<u64>().ok();
            return switches.filter_map(count).sum();
        }
    }
    panic!("no such thread")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_request_in_a_session_does_not_even_wake_the_store() {
    let site = site(json!({}));
    let server = site.http().await;
    let mut client = opened(&server, "alice", "2025-06-18").await;
    stored(&site, client.session().unwrap()).await;
    let process = server.process().id().unwrap();
    // It may be on its way back to sleep.
    let mut before = turns(process);
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = turns(process);
        if now == before {
            break;
        }
        before = now;
    }
    let mut connection = client.connect().await;
    for _ in 0..1_000 {
        let message = client.voice.request("tools/list", json!({}));
        let (answer, kept) = connection.exchange(&client.post_of(&message)).await;
        connection = kept;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(turns(process), before);
}
