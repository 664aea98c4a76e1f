//! Memory of the client's process while servers send without an end. One test, since the process is measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "connections/support.rs"]
#[allow(dead_code, reason = "other tests use the rest")]
mod support;

use futures_util::future::BoxFuture;
use mcp_client::{CallOptions, Connection, Dial, Error, Options, Progress, RawJson};
use mcp_protocol::model::SubscriptionFilter;
use serde_json::json;
use std::time::Duration;
use support::{Asked, Raw, Talk, options, told};

/// Most by which the process may grow: the bound on one message, 1 MiB, and what copies and sockets take.
const MOST: usize = 24 << 20;

/// The most memory that the process has had since [`forget_peak`].
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let kilobytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

async fn endlessly(talk: &mut Talk, bytes: &str) {
    let many = bytes.repeat(1 + 65_536 / bytes.len());
    // A count would end the stream on a fast machine before the call's time is over.
    while talk.raw(&many).await {}
}

fn script(how: &'static str, asked: Asked, mut talk: Talk) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let change = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
        let head = "HTTP/1.1 200 X\r\ncontent-type: application/json\r\n";
        if how == "unread changes" && asked.what() == "GET" {
            talk.stream().await;
            return endlessly(&mut talk, &format!("data: {change}\n\n")).await;
        }
        if asked.what() != "tools/call" {
            return talk.legacy(&asked).await;
        }
        match how {
            "unread changes" => return talk.gone().await,
            "headers" => {
                talk.raw(head).await;
                endlessly(&mut talk, "x-more: and more\r\n").await;
            }
            "a body" => {
                talk.raw(format!("{head}connection: close\r\n\r\n")).await;
                endlessly(&mut talk, "[").await;
            }
            "a body of an error" => {
                talk.raw("HTTP/1.1 500 X\r\nconnection: close\r\n\r\n")
                    .await;
                endlessly(&mut talk, "x").await;
            }
            "compressed" => {
                talk.raw(format!("{head}content-encoding: gzip\r\n\r\n"))
                    .await;
                endlessly(&mut talk, "\x1f\x08\x00").await;
            }
            _ => talk.stream().await,
        }
        match how {
            "a line" => {
                talk.raw("data: ").await;
                endlessly(&mut talk, "x").await;
            }
            "an event" => endlessly(&mut talk, "data: x\n").await,
            "names" => endlessly(&mut talk, "event: xxxxxxxx\n").await,
            "ids" => endlessly(&mut talk, &format!("id: {}\n\n", "9".repeat(4000))).await,
            "changes" => endlessly(&mut talk, &format!("data: {change}\n\n")).await,
            "rubbish" => endlessly(&mut talk, "data: rubbish\n\n").await,
            "questions" => {
                let question = r#"{"jsonrpc":"2.0","id":"q","method":"ping"}"#;
                endlessly(&mut talk, &format!("data: {question}\n\n")).await;
            }
            "large answers" => {
                let text = "x".repeat(20_000);
                let other = json!({ "jsonrpc": "2.0", "id": 4711, "result": text });
                endlessly(&mut talk, &format!("data: {other}\n\n")).await;
            }
            _ => {}
        }
    })
}

async fn over_http(how: &'static str) -> String {
    let raw = Raw::start(move |asked, talk| script(how, asked, talk)).await;
    used(&Dial::url(&raw.url), options(), false).await
}

async fn used(dial: &Dial, options: Options, lists: bool) -> String {
    let tried = async {
        let connection = Connection::open(dial, options).await?;
        if lists {
            connection.tools().await?;
        }
        let filter = SubscriptionFilter {
            tools_list_changed: true,
            ..SubscriptionFilter::default()
        };
        let _unread = connection.listen(filter).await?;
        let call = CallOptions {
            progress: Some(Progress::new(|_, _, _| {})),
            ..CallOptions::default()
        };
        let result = connection.call("any", RawJson::EMPTY_OBJECT, &call);
        Ok::<_, Error>(format!("{:?}", result.await?.content))
    };
    tried.await.unwrap_or_else(|error| told(&error))
}

#[tokio::test]
async fn servers_that_send_without_an_end_take_no_memory_beyond_the_bounds() {
    let over_http_cases = [
        ("headers", "message head is too large"),
        ("a body", "more than 1048576 bytes"),
        ("a body of an error", "HTTP 500"),
        ("compressed", "is compressed (gzip)"),
        ("a line", "`max_message`"),
        ("an event", "`max_message`"),
        ("names", "was not answered"),
        ("ids", "was not answered"),
        ("changes", "`max_notifications`"),
        ("unread changes", "was not answered"),
        ("rubbish", "`max_notifications`"),
        ("questions", "`max_notifications`"),
        ("large answers", "`max_unexpected`"),
    ];
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile.py");
    let of_children = [
        ("one_endless_line", "`max_message`"),
        ("floods_rubbish", "`max_rubbish`"),
        ("floods_stderr", "was not answered"),
        ("huge", "`max_message`"),
        ("items_without_end", "ok"),
        ("bytes_without_end", "`max_list_bytes` (4194304)"),
        ("progress_without_end", "`max_notifications`"),
        ("asks_without_end", "the server does not read"),
        ("wrong_id_flood", "`max_unexpected`"),
    ];
    // What the first connection takes for good, such as the certificates of the system.
    over_http("rubbish").await;
    let mut grown = Vec::new();
    let mut measured = |how: &'static str, before: usize, told: &str, expected: &str| {
        let growth = peak().saturating_sub(before);
        assert!(told.contains(expected), "{how}: {told}");
        assert!(growth < MOST, "{how}: {growth} bytes more");
        grown.push((how, growth >> 10));
    };
    for (how, expected) in over_http_cases {
        forget_peak();
        let before = peak();
        let told = over_http(how).await;
        measured(how, before, &told, expected);
    }
    for (how, expected) in of_children {
        forget_peak();
        let before = peak();
        let mut options = options();
        options.bounds.timeout = Duration::from_secs(8);
        options.bounds.max_list_bytes = 4 << 20;
        let told = used(
            &Dial::child("python3", [script, how]),
            options,
            how.starts_with("bytes"),
        )
        .await;
        measured(how, before, &told, expected);
    }
    // Shown with --nocapture.
    #[expect(clippy::print_stdout, reason = "a measurement")]
    {
        println!("KiB by which the process grew: {grown:?}");
    }
}
