//! State that a killed server leaves behind.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpRequest, StdioServer, wait_until};
use tokio::time::sleep;

use crate::support::{Site, call, outcome, run, text};

/// Calls that were answered, by their mark.
type Answered = HashSet<String>;

/// Asserts what must hold however the server ended: every call that ran has its start, every
/// answered one its end.
fn check(site: &Site, answered: &Answered) {
    let mut ends = HashMap::new();
    for call in site.calls() {
        let arguments: Value = serde_json::from_str(&call.started.arguments.text).unwrap();
        if let Some(mark) = arguments["mark"].as_str() {
            ends.insert(mark.to_owned(), outcome(&call));
        }
    }
    for mark in site.read("executed").lines() {
        assert!(
            ends.contains_key(mark),
            "{mark} was executed and never recorded"
        );
    }
    for mark in answered {
        let end = ends.get(mark).map(String::as_str);
        assert_eq!(end, Some("succeeded"), "{mark} was answered");
    }
}

/// Spread over what happens in the first moments of load, different in each round.
fn moment(round: u64) -> Duration {
    let nanoseconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    Duration::from_micros(5_000 + 25_000 * round + u64::from(nanoseconds % 20_000))
}

#[tokio::test]
async fn a_server_killed_under_load_on_stdio_leaves_a_ledger_that_tells_the_truth() {
    let site = Site::new(json!({}));
    let mut answered = Answered::new();
    for round in 0..4 {
        let mut server = site.stdio();
        server.open("2025-06-18").await;
        let nap = server
            .voice
            .request("tools/call", call("nap", json!({"seconds": 60})));
        server.send(&nap).await;
        let mut marks = HashMap::new();
        for index in 0..150 {
            let mark = format!("stdio-{round}-{index}");
            let tool = if index % 3 == 0 { "append" } else { "linger" };
            let request = server
                .voice
                .request("tools/call", call(tool, json!({"mark": mark})));
            marks.insert(request["id"].to_string(), mark);
            server.send(&request).await;
        }
        wait_until("some are executed", GENEROUS, || {
            site.read("executed").contains(&format!("stdio-{round}-")) && naps(&site, round)
        })
        .await;
        sleep(moment(round)).await;
        server.process().signal("KILL").await;
        server.wait_exit(GENEROUS).await;
        for answer in server.receive_rest().await {
            let mark = &marks[&answer["id"].to_string()];
            assert_eq!(text(&answer["result"]), mark);
            answered.insert(mark.clone());
        }
        check(&site, &answered);
    }
    ends_become_known(&site, &answered).await;
}

#[tokio::test]
async fn a_server_killed_under_load_on_http_leaves_a_ledger_that_tells_the_truth() {
    let site = Site::new(json!({}));
    let mut answered = Answered::new();
    for round in 0..3 {
        let mut server = site.http().await;
        let address = server.address();
        let mut clients = tokio::task::JoinSet::new();
        let nap = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": call("nap", json!({"seconds": 60})),
        });
        clients.spawn(async move {
            let request = HttpRequest::post("/mcp", nap.to_string());
            assert_eq!(exchange(address, &request).await, None);
            Vec::new()
        });
        for client in 0..6 {
            clients.spawn(async move {
                let mut answered = Vec::new();
                for index in 0.. {
                    let mark = format!("http-{round}-{client}-{index}");
                    let tool = if index % 3 == 0 { "append" } else { "linger" };
                    let params = call(tool, json!({"mark": mark}));
                    let message = json!({
                        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params,
                    });
                    let request = HttpRequest::post("/mcp", message.to_string());
                    if !exchange(address, &request)
                        .await
                        .is_some_and(|body| body.contains(&mark))
                    {
                        break;
                    }
                    answered.push(mark);
                }
                answered
            });
        }
        wait_until("some are executed", GENEROUS, || {
            site.read("executed").contains(&format!("http-{round}-")) && naps(&site, round)
        })
        .await;
        sleep(moment(round)).await;
        server.process().signal("KILL").await;
        server.wait_exit(GENEROUS).await;
        while let Some(marks) = clients.join_next().await {
            answered.extend(marks.unwrap());
        }
        check(&site, &answered);
    }
    assert!(!answered.is_empty());
    ends_become_known(&site, &answered).await;
}

/// Returns true if the call that never ends by itself runs in this round as well.
fn naps(site: &Site, round: u64) -> bool {
    round < site.read("naps").lines().count() as u64
}

/// A whole answer, or nothing.
async fn exchange(address: std::net::SocketAddr, request: &HttpRequest) -> Option<String> {
    let mut connection = testkit::HttpConnection::connect(address).await.ok()?;
    connection.send_bytes(&request.to_bytes()).await.ok()?;
    let head = connection.read_head().await.ok()?;
    let mut body = connection.into_body(&head, false);
    let mut all = Vec::new();
    while let Some(piece) = body.try_next().await.ok()? {
        all.extend(piece);
    }
    String::from_utf8(all).ok()
}

/// The next start says of each call that was cut short that nobody knows how it ended.
async fn ends_become_known(site: &Site, answered: &Answered) {
    let open = |site: &Site| {
        site.calls()
            .iter()
            .filter(|call| call.ended.is_none())
            .count()
    };
    let cut_short = open(site);
    assert!(0 < cut_short, "the nap was");
    let unknown_before = unknown(site);
    let mut server: StdioServer = site.stdio();
    server.open("2025-06-18").await;
    assert_eq!(open(site), 0);
    assert_eq!(unknown(site), unknown_before + cut_short);
    server.process().wait_stderr("cut short").await;
    let served = server
        .request("tools/call", call("append", json!({"mark": "after"})))
        .await;
    assert_eq!(text(served.result()), "after");
    check(site, answered);
}

fn unknown(site: &Site) -> usize {
    site.calls()
        .iter()
        .filter(|call| outcome(call) == "unknown")
        .count()
}

#[tokio::test]
async fn an_http_server_on_the_ledger_of_another_refuses_to_start() {
    let site = Site::new(json!({}));
    let mut first = site.stdio();
    first.open("2025-06-18").await;
    // One on standard streams shares the first: see `shared_stdio`.
    let said = run(site.command(&["start", "--transport", "http"])).await;
    assert_eq!(
        (said.code, said.output.as_str()),
        (Some(1), ""),
        "{}",
        said.messages
    );
    let last = said.messages.lines().last().unwrap();
    let id = first.process().id().unwrap();
    assert!(last.contains(&format!("in use by process {id}")), "{last}");
    assert!(last.contains("ledger.db"), "{last}");
    let served = first
        .request("tools/call", call("append", json!({"mark": "first"})))
        .await;
    assert_eq!(text(served.result()), "first");
}

#[tokio::test]
async fn a_file_that_is_no_ledger_is_left_alone() {
    let site = Site::new(json!({}));
    for content in ["hello", &"SQLite format 3\0".repeat(100)] {
        site.write("ledger.db", content);
        let said = run(site.command(&["start"])).await;
        assert_eq!(
            (said.code, said.output.as_str()),
            (Some(1), ""),
            "{}",
            said.messages
        );
        assert_eq!(site.read("ledger.db"), content);
    }
}
