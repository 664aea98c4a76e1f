//! R2: one client, over standard input and output.
#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it")]

use std::{process::Stdio, time::Duration};

use proptest::{
    collection::vec,
    prelude::{Just, Strategy, any, prop_oneof},
    sample::select,
    test_runner::{Config, TestRunner},
};
use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, LinePeer, MODERN, REVISIONS, StdioServer, wait_until};
use tokio::time::Instant;

use crate::support::{DEFAULT_END, END, Site, call, log, names, text};

#[tokio::test]
async fn every_revision_is_spoken() {
    let site = Site::new(json!({}));
    site.skill("stock", "counting", "");
    for version in REVISIONS.into_iter().chain(["1.0"]) {
        let mut server = site.stdio();
        let opened = server.open(version).await;
        if version == MODERN {
            assert_eq!(opened["supportedVersions"], json!([MODERN]));
        } else {
            assert_eq!(opened["protocolVersion"], version);
            assert_eq!(opened["capabilities"]["tools"]["listChanged"], true);
            let pong = server.request("ping", Value::Null).await;
            assert_eq!(pong.result(), &json!({}));
        }
        let tools = server.request("tools/list", Value::Null).await;
        assert!(names(tools.result(), "tools", "name").contains(&"echo".to_owned()));
        let echoed = server
            .request("tools/call", call("echo", json!({"text": version})))
            .await;
        let expected = json!({"text": version}).to_string();
        assert_eq!(text(echoed.result()), expected, "{version}");
        let resources = server.request("resources/list", Value::Null).await;
        let uris = names(resources.result(), "resources", "uri");
        assert_eq!(uris, ["skill://stock/counting"]);
        let read = server
            .request("resources/read", json!({"uri": uris[0]}))
            .await;
        let disk = site.read("skills/stock/counting/SKILL.md");
        assert_eq!(read.result()["contents"][0]["text"], disk);
        server.close_input();
        assert!(server.wait_exit(END).await.success(), "{version}");
    }
}

#[tokio::test]
async fn a_modern_client_needs_no_handshake() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.speak(MODERN);
    let called = server
        .request("tools/call", call("echo", json!({"text": "at once"})))
        .await;
    assert_eq!(
        called.result()["structuredContent"],
        json!({"text": "at once"})
    );
    let listed = server.request("tools/list", Value::Null).await;
    assert_eq!(listed.result()["resultType"], "complete");
}

#[tokio::test]
async fn a_version_nobody_knows_is_answered_with_the_newest_that_shakes_hands() {
    let site = Site::new(json!({}));
    for asked in ["1999-01-01", MODERN, "2.0"] {
        let mut server = site.stdio();
        let request = server.voice.initialize(asked);
        server.send(&request).await;
        let answer = server.receive().await;
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{asked}");
    }
}

#[tokio::test]
async fn a_line_counts_once_it_is_whole() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let first = br#"{"jsonrpc":"2.0","id":"halves","method":"ping"}"#;
    server.expect_answer_to(first);
    server.send_bytes(&first[..20]).await;
    server.expect_silence(Duration::from_millis(150)).await;
    server.send_bytes(&first[20..]).await;
    server.expect_silence(Duration::from_millis(150)).await;
    server.send_bytes(b"\n").await;
    assert_eq!(server.receive().await["id"], "halves");

    let second = "{\"jsonrpc\":\"2.0\",\"id\":\"b\u{fc}tes\",\"method\":\"ping\"}";
    server.expect_answer_to(second.as_bytes());
    for byte in second.bytes().chain([b'\n']) {
        server.send_bytes(&[byte]).await;
    }
    assert_eq!(server.receive().await["id"], "b\u{fc}tes");

    // Many lines in one write, ends of either kind, and lines with nothing on them.
    let third = [r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#, "", "  "].join("\r\n");
    let fourth = r#"{"jsonrpc":"2.0","id":2,"method":"ping"}"#;
    server.expect_answer_to(br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#);
    server.expect_answer_to(fourth.as_bytes());
    server
        .send_bytes(format!("{third}\r\n\n{fourth}\n").as_bytes())
        .await;
    let ids: Vec<Value> = server
        .receive_many(2)
        .await
        .iter()
        .map(|it| it["id"].clone())
        .collect();
    assert_eq!(ids, [json!(1), json!(2)]);
}

/// Property 8.
#[test]
fn whatever_handlers_write_standard_output_carries_messages_only() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let site = Site::new(json!({}));
    let server = runtime.block_on(async {
        let mut server = site.stdio();
        server.open("2025-06-18").await;
        server
    });
    let server = std::sync::Mutex::new(server);
    let ways = select(vec!["print", "buffer", "descriptor", "stderr"]);
    let forged = br#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    let written = prop_oneof![
        vec(any::<u8>(), 0..200),
        Just([forged.as_slice(), b"\n"].concat()),
        Just(forged.to_vec()),
        ".*\n?".prop_map(String::into_bytes),
    ];
    let config = Config {
        cases: 128,
        failure_persistence: None,
        ..Config::default()
    };
    let property = |(way, written): (&str, Vec<u8>)| {
        let mut server = server.lock().unwrap();
        let hexadecimal: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        let arguments = json!({"way": way, "hexadecimal": hexadecimal});
        // Anything but the one answer on standard output makes the peer panic, or is in `earlier`.
        let reply = runtime.block_on(server.request("tools/call", call("say", arguments)));
        assert_eq!(text(reply.result()), written.len().to_string());
        assert!(reply.earlier.is_empty(), "{:?}", reply.earlier);
        Ok(())
    };
    TestRunner::new(config)
        .run(&(ways, written), property)
        .unwrap();

    let mut server = server.into_inner().unwrap();
    runtime.block_on(async {
        let heard = server.request("tools/call", call("noisy", json!({}))).await;
        assert_eq!(text(heard.result()), "heard");
        server.close_input();
        assert_eq!(server.receive_rest().await, Vec::<Value>::new());
        assert!(server.wait_exit(END).await.success());
        let lines = log(&server.stderr());
        for written in [
            "forged",
            "said to stderr",
            "while the application is imported",
        ] {
            let is_told = lines.iter().any(|line| {
                line["target"] == "python"
                    && line["message"]
                        .as_str()
                        .is_some_and(|it| it.contains(written))
            });
            assert!(is_told, "{written} was lost");
        }
    });
}

#[tokio::test]
async fn the_log_is_json_on_standard_error() {
    let site = Site::new(json!({"logging": {"level": "DEBUG"}}));
    let mut server = site.stdio();
    server.open("2025-11-25").await;
    server
        .request(
            "tools/call",
            call("fail", json!({"why": "to see it logged"})),
        )
        .await;
    server.send_line(b"{").await;
    server.receive().await;
    server.close_input();
    assert!(server.wait_exit(END).await.success());
    let lines = log(&server.stderr());
    assert_eq!(
        lines[0]["message"], "configuration",
        "the first line sums it up"
    );
    let summary = lines[0]["lines"].to_string();
    assert!(
        summary.contains("stdio") && summary.contains("ledger.db"),
        "{summary}"
    );
    for line in &lines {
        for key in ["timestamp", "level", "message", "target"] {
            assert!(line[key].is_string(), "no {key}: {line}");
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Stop {
    EndOfInput,
    Terminate,
    Interrupt,
}

async fn stop(server: &mut StdioServer, how: Stop) {
    match how {
        Stop::EndOfInput => server.close_input(),
        Stop::Terminate => server.process().signal("TERM").await,
        Stop::Interrupt => server.process().signal("INT").await,
    }
}

#[tokio::test]
async fn a_server_told_to_stop_answers_what_runs_and_ends() {
    for how in [Stop::EndOfInput, Stop::Terminate, Stop::Interrupt] {
        let site = Site::new(json!({}));
        let mut server = site.stdio();
        server.open("2025-06-18").await;
        for tool in ["nap", "echo"] {
            let arguments = match tool {
                "nap" => json!({"seconds": 0.7}),
                _ => json!({"text": "quick"}),
            };
            let request = server.voice.request("tools/call", call(tool, arguments));
            server.send(&request).await;
        }
        wait_until("it naps", GENEROUS, || site.read("naps").contains("begun")).await;
        stop(&mut server, how).await;
        let answers = server.receive_rest().await;
        assert!(server.wait_exit(END).await.success(), "{how:?}");
        let texts: Vec<&str> = answers
            .iter()
            .map(|answer| text(&answer["result"]))
            .collect();
        assert!(texts.contains(&"rested"), "{how:?}: {texts:?}");
        assert_eq!(server.waiting(), 0, "{how:?}: everything is answered");
        assert_eq!(site.outcomes("nap"), ["succeeded"], "{how:?}");
    }
}

#[tokio::test]
async fn a_server_told_to_stop_ends_within_five_seconds_whatever_runs() {
    // Handlers that would wait, block, and cannot be interrupted.
    let cases = [
        (Stop::EndOfInput, "nap", json!({"seconds": 600})),
        (Stop::Terminate, "block", json!({"seconds": 600})),
        (Stop::EndOfInput, "spin", json!({})),
    ];
    let stopping = cases.map(|(how, tool, arguments)| async move {
        // Who is not let run in these five seconds cannot keep to them.
        for attempt in 1..=5 {
            let site = Site::new(json!({"shutdown": null, "workers": null}));
            let mut server = site.stdio();
            server.open("2025-06-18").await;
            let params = call(tool, arguments.clone());
            let request = server.voice.request("tools/call", params);
            server.send(&request).await;
            let begun = || matches!(site.outcomes(tool)[..], [ref it] if it == "open");
            wait_until("it runs", GENEROUS, begun).await;
            stop(&mut server, how).await;
            let since = Instant::now();
            let status = server.wait_exit(GENEROUS).await;
            let took = since.elapsed();
            let outcomes = site.outcomes(tool);
            println!("{tool}: {outcomes:?} and {status} after {took:?}, at attempt {attempt}");
            assert_eq!(outcomes.len(), 1);
            if status.success() && took <= DEFAULT_END {
                assert_ne!(outcomes, ["open"], "{tool}");
                return;
            }
        }
        panic!("{tool} is never ended in time");
    });
    let [first, second, third] = stopping;
    tokio::join!(first, second, third);
}

#[tokio::test]
async fn nobody_asks_anything_when_there_is_no_input() {
    let site = Site::new(json!({}));
    let since = Instant::now();
    let said = crate::support::run(site.command(&["start"])).await;
    assert_eq!(
        (said.output.as_str(), said.code),
        ("", Some(0)),
        "{}",
        said.messages
    );
    assert!(since.elapsed() < GENEROUS);
    log(&said.messages);
}

#[tokio::test]
async fn a_standard_error_that_nobody_reads_holds_nothing_up() {
    let site = Site::new(json!({}));
    let mut command = site.command(&["start"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let unread = child.stderr.take().unwrap();
    let mut peer = LinePeer::over(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    peer.open("2025-06-18").await;
    // More than the pipe and the log's own queue hold.
    let flooded = peer
        .request("tools/call", call("flood", json!({"megabytes": 8})))
        .await;
    assert_eq!(text(flooded.result()), "flooded");
    let echoed = peer
        .request("tools/call", call("echo", json!({"text": "alive"})))
        .await;
    assert_eq!(echoed.result()["structuredContent"]["text"], "alive");
    peer.close_input();
    let status = tokio::time::timeout(END, child.wait())
        .await
        .expect("it ends in time")
        .unwrap();
    assert!(status.success());
    drop(unread);
}

#[tokio::test]
async fn a_client_that_vanishes_ends_the_server() {
    let site = Site::new(json!({"shutdown": {"drain_seconds": 1}}));
    let mut command = site.command(&["start"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let mut peer = LinePeer::over(child.stdout.take().unwrap(), child.stdin.take().unwrap());
    peer.open("2025-06-18").await;
    let request = peer
        .voice
        .request("tools/call", call("nap", json!({"seconds": 600})));
    peer.send(&request).await;
    wait_until("it naps", GENEROUS, || site.read("naps").contains("begun")).await;
    drop(peer);
    tokio::time::timeout(END, child.wait())
        .await
        .expect("it ends in time")
        .unwrap();
}
