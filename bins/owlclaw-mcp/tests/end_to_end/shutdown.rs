//! Servers that are told to stop, once and twice, under load and while something hangs.
#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it")]

use std::{
    collections::HashSet,
    net::SocketAddr,
    os::unix::{net::UnixDatagram, process::ExitStatusExt},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpConnection, HttpRequest, HttpServer, MODERN, Port,
    StdioServer, WebSocketPeer, failure_of, succeeded, wait_until,
};
use tokio::task::JoinSet;

#[cfg(target_os = "linux")]
use crate::ledger_faults::Locked;
use crate::support::{END, Site, announced, call, call_with_progress, run};

const CLIENTS: usize = 8;

/// Asserts what must hold once a server has shut down in order.
pub(crate) async fn nothing_is_lost(site: &Site, answered: &HashSet<String>) {
    let executed: HashSet<String> = site.read("executed").lines().map(str::to_owned).collect();
    let unanswered: Vec<_> = executed.difference(answered).collect();
    assert!(
        unanswered.is_empty(),
        "{unanswered:?} ran and have no answer"
    );
    let outcomes: Vec<_> = ["append", "linger"]
        .iter()
        .flat_map(|tool| site.outcomes(tool))
        .collect();
    assert_eq!(outcomes.len(), executed.len(), "each is on record once");
    assert!(outcomes.iter().all(|it| it == "succeeded"), "{outcomes:?}");
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(verified.code, Some(0), "{}", verified.messages);
}

/// The marks of the calls that were answered, until nobody answers any more.
async fn call_until_turned_away(address: SocketAddr, client: usize) -> Vec<String> {
    let mut answered = Vec::new();
    let Ok(mut connection) = HttpConnection::connect(address).await else {
        return answered;
    };
    for index in 0.. {
        let mark = format!("{client}-{index}");
        let tool = if index % 2 == 0 { "linger" } else { "append" };
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": call(tool, json!({"mark": mark})),
        });
        let request = HttpRequest::post("/mcp", message.to_string());
        let exchange = async {
            connection.send_bytes(&request.to_bytes()).await.ok()?;
            let head = connection.read_head().await.ok()?;
            let is_last = head.header("connection") == Some("close");
            let mut body = connection.into_body(&head, false);
            let mut all = Vec::new();
            while let Some(piece) = body.try_next().await.ok()? {
                all.extend(piece);
            }
            let next = (!is_last).then(|| body.into_connection());
            Some((String::from_utf8(all).ok()?, next))
        };
        let Some((body, next)) = exchange.await else {
            return answered;
        };
        // A request that comes too late is turned away before anything happens.
        if body.contains(&format!("\"{mark}\"")) {
            answered.push(mark);
        }
        match next {
            Some(next) => connection = next,
            None => return answered,
        }
    }
    answered
}

#[tokio::test]
async fn under_load_over_http_every_call_that_runs_is_answered_and_on_record() {
    for signal in ["TERM", "INT"] {
        let site = Site::new(json!({}));
        let mut server = site.http().await;
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            clients.spawn(call_until_turned_away(server.address(), client));
        }
        wait_until("calls run", GENEROUS, || {
            4 * CLIENTS < site.read("executed").lines().count()
        })
        .await;
        server.process().signal(signal).await;
        let status = server.wait_exit(END).await;
        assert_eq!(status.code(), Some(0), "{}", server.stderr());
        let mut answered = HashSet::new();
        while let Some(marks) = clients.join_next().await {
            answered.extend(marks.unwrap());
        }
        nothing_is_lost(&site, &answered).await;
    }
}

#[tokio::test]
async fn under_load_over_stdio_every_call_that_runs_is_answered_and_on_record() {
    let site = Site::new(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let mut marks = std::collections::HashMap::new();
    for index in 0..200 {
        let mark = format!("stdio-{index}");
        let tool = if index % 2 == 0 { "linger" } else { "append" };
        let params = call(tool, json!({"mark": mark}));
        let request = server.voice.request("tools/call", params);
        marks.insert(request["id"].to_string(), mark);
        server.send(&request).await;
    }
    wait_until("calls run", GENEROUS, || {
        0 < site.read("executed").lines().count()
    })
    .await;
    server.process().signal("TERM").await;
    let answers = server.receive_rest().await;
    let status = server.wait_exit(END).await;
    assert_eq!(status.code(), Some(0), "{}", server.stderr());
    let answered = answers.iter().map(|answer| {
        assert!(succeeded(answer), "{answer}");
        marks[&answer["id"].to_string()].clone()
    });
    nothing_is_lost(&site, &answered.collect()).await;
}

#[tokio::test]
async fn streams_get_their_answers_and_end() {
    let site = Site::new(json!({"http": {"stream_after_milliseconds": 1}}));
    let mut server = site.http().await;
    let mut client = server.client();
    client.open("2025-11-25").await;
    let mut news = client.listen().await;
    let message = client
        .voice
        .request("tools/call", call("nap", json!({"seconds": 1.0})));
    let mut stream = client.stream(&client.post_of(&message)).await;
    wait_until("it naps", GENEROUS, || site.read("naps").contains("begun")).await;
    server.process().signal("TERM").await;
    let answer = loop {
        let message = stream.message().await;
        if message.get("id").is_some() {
            break message;
        }
    };
    assert_eq!(answer["result"]["content"][0]["text"], "rested");
    assert_eq!(stream.next_message().await, None, "the stream ends");
    assert_eq!(news.next_message().await, None, "so does the other");
    assert_eq!(server.wait_exit(END).await.code(), Some(0));
    assert_eq!(site.outcomes("nap"), ["succeeded"]);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_the_next_start_says_what_nobody_knows() {
    for (signal, code) in [("TERM", 143), ("INT", 130)] {
        let site = Site::new(json!({"shutdown": {"drain_seconds": 600}}));
        let mut server = napping(&site).await;
        server.process().signal(signal).await;
        server.process().wait_stderr("\"stopping\"").await;
        server.process().signal(signal).await;
        // Long before the drain is over.
        let status = server.wait_exit(GENEROUS).await;
        assert_eq!(status.code(), Some(code), "{}", server.stderr());
        assert!(server.stderr().contains("ending at once"));
        assert_eq!(site.outcomes("nap"), ["open"]);
        let mut next = site.stdio();
        next.open("2025-06-18").await;
        assert_eq!(site.outcomes("nap"), ["unknown"]);
        next.close_input();
        assert_eq!(next.wait_exit(END).await.code(), Some(0));
        let verified = run(site.command(&["ledger", "verify"])).await;
        assert_eq!(verified.code, Some(0), "{}", verified.messages);
    }
}

/// A server in which a call runs that does not end by itself.
async fn napping(site: &Site) -> StdioServer {
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let params = call("nap", json!({"seconds": 600}));
    let request = server.voice.request("tools/call", params);
    server.send(&request).await;
    wait_until("it naps", GENEROUS, || site.read("naps").contains("begun")).await;
    server
}

#[tokio::test]
async fn the_drain_is_as_long_as_the_configuration_says() {
    // Shorter and longer than by default.
    for seconds in [1, 5] {
        let site = Site::new(json!({"shutdown": {"drain_seconds": seconds}}));
        let mut server = napping(&site).await;
        let since = Instant::now();
        server.process().signal("TERM").await;
        let status = server.wait_exit(GENEROUS).await;
        let took = since.elapsed();
        println!("{status} after {took:?} with a drain of {seconds} s");
        assert!(Duration::from_secs(seconds) <= took, "{took:?}");
        // A server that is not let run when the drain is over may be too late for all the rest.
        if took < Duration::from_secs(seconds + 1) {
            assert_eq!(status.code(), Some(0), "{}", server.stderr());
            assert_eq!(site.outcomes("nap"), ["cancelled"]);
        }
    }
}

/// Checks that `answer` names a call that the ledger has as cancelled.
fn told_and_recorded(site: &Site, answer: &Value) {
    let error = failure_of(answer);
    assert_eq!(error["code"], -32004, "{answer}");
    assert!(
        error["message"]
            .as_str()
            .unwrap()
            .contains("the server stopped"),
        "{answer}"
    );
    let call = error["data"]["call"].as_str().unwrap();
    let calls = site.calls();
    let recorded = calls.iter().find(|it| it.call.to_string() == call);
    let ended = recorded.unwrap().ended.as_ref().unwrap();
    assert_eq!(ended.outcome.as_str(), "cancelled");
}

#[tokio::test]
async fn calls_that_outlast_the_drain_are_answered_over_stdio() {
    let site = Site::new(json!({"shutdown": {"drain_seconds": 1}}));
    for by_signal in [true, false] {
        let mut server = napping(&site).await;
        match by_signal {
            true => server.process().signal("TERM").await,
            false => server.close_input(),
        }
        let answer = server.receive().await;
        assert_eq!(server.wait_exit(GENEROUS).await.code(), Some(0));
        told_and_recorded(&site, &answer);
        site.write("naps", "");
    }
}

#[tokio::test]
async fn calls_that_outlast_the_drain_are_answered_over_http() {
    let site = Site::new(json!({
        "shutdown": {"drain_seconds": 1},
        "http": {"websocket": {"enabled": true}},
    }));
    let mut server = site.http().await;
    let nap = || call("nap", json!({"seconds": 600}));
    let streamed = || call_with_progress("nap", json!({"seconds": 600}), "p");
    let mut asking = JoinSet::new();
    for (version, params) in [
        ("2025-06-18", nap()),
        ("2025-11-25", streamed()),
        (MODERN, nap()),
        (MODERN, streamed()),
    ] {
        let mut client = server.client();
        client.open(version).await;
        asking.spawn(async move { client.request("tools/call", params).await.response });
    }
    let mut socket = WebSocketPeer::open_at(server.address(), "/mcp/ws", &[])
        .await
        .unwrap();
    socket.open(MODERN).await;
    let request = socket.voice.request("tools/call", nap());
    socket.send(&request).await;
    wait_until("they nap", GENEROUS, || {
        site.outcomes("nap")
            .iter()
            .filter(|it| *it == "open")
            .count()
            == 5
    })
    .await;
    server.process().signal("TERM").await;
    let answer = socket.receive_answer(&request["id"]).await;
    let mut answers = asking.join_all().await;
    answers.push(answer);
    assert_eq!(
        server.wait_exit(GENEROUS).await.code(),
        Some(0),
        "{}",
        server.stderr()
    );
    for answer in answers {
        told_and_recorded(&site, &answer);
    }
}

/// A handler that asks, beside those of the workshop.
const ASKING: &str = r#"
from owlclaw_worker import Context

@app.handler("choose")
async def choose(ctx: Context):
    answer = await ctx.elicit("Which colour?", str)
    return answer.action
"#;

/// Checks the answer to a call that waited for an answer of its client. One that waited to be confirmed has no entry in the ledger.
fn told_while_it_asked(site: &Site, tool: &str, answer: &Value) {
    let error = failure_of(answer);
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(error["code"], -32004, "{answer}");
    let is_confirmation = tool == "append";
    assert_eq!(error["data"]["retryable"], is_confirmation, "{answer}");
    let Some(call) = error["data"]["call"].as_str() else {
        assert!(
            is_confirmation && error["data"]["call"].is_null(),
            "{answer}"
        );
        return;
    };
    let calls = site.calls();
    let recorded = calls.iter().find(|it| it.call.to_string() == call);
    assert_eq!(&*recorded.unwrap().started.capability, "tool/choose");
}

#[tokio::test]
async fn calls_that_wait_for_their_client_are_answered() {
    let site = Site::new(json!({
        "shutdown": {"drain_seconds": 1},
        "http": {"websocket": {"enabled": true}},
        "governance": {"tools": {"append": {"risk": ["financial"]}}},
    }));
    let workshop = site.read("app.py");
    site.write("app.py", format!("{workshop}{ASKING}"));
    let can_be_asked = json!({"elicitation": {}});
    for (tool, arguments) in [("choose", json!({})), ("append", json!({"mark": "one"}))] {
        let mut server = site.http().await;
        let mut client = server.client();
        client.voice.capabilities = can_be_asked.clone();
        client.open("2025-11-25").await;
        let request = client
            .voice
            .request("tools/call", call(tool, arguments.clone()));
        let mut stream = client.stream(&client.post_of(&request)).await;
        let question = stream.message().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let mut socket = WebSocketPeer::open_at(server.address(), "/mcp/ws", &[])
            .await
            .unwrap();
        socket.voice.capabilities = can_be_asked.clone();
        socket.open("2025-11-25").await;
        let request = socket
            .voice
            .request("tools/call", call(tool, arguments.clone()));
        socket.send(&request).await;
        let question = socket.receive().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        server.process().signal("TERM").await;
        let over_socket = socket.receive_answer(&request["id"]).await;
        // The question is taken back first.
        let withdrawn = stream.message().await;
        assert_eq!(
            withdrawn["method"], "notifications/cancelled",
            "{withdrawn}"
        );
        let over_http = stream.message().await;
        assert_eq!(stream.next_message().await, None, "the stream ends");
        let status = server.wait_exit(GENEROUS).await;
        assert_eq!(status.code(), Some(0), "{}", server.stderr());
        told_while_it_asked(&site, tool, &over_socket);
        told_while_it_asked(&site, tool, &over_http);

        let mut server = site.stdio();
        server.voice.capabilities = can_be_asked.clone();
        server.open("2025-11-25").await;
        let request = server.voice.request("tools/call", call(tool, arguments));
        server.send(&request).await;
        let question = server.receive().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        server.process().signal("TERM").await;
        let answer = server.receive_answer(&request["id"]).await;
        assert_eq!(server.wait_exit(GENEROUS).await.code(), Some(0));
        told_while_it_asked(&site, tool, &answer);
    }
}

#[tokio::test]
async fn a_signal_before_it_serves_ends_it_at_once() {
    let site = Site::with_app("import time\nopen('begun', 'w').close()\ntime.sleep(600)\n");
    let mut server = site.stdio();
    wait_until("it loads", GENEROUS, || site.path("begun").exists()).await;
    server.process().signal("TERM").await;
    let status = server.wait_exit(END).await;
    assert_eq!(status.code(), Some(143), "{}", server.stderr());
    assert_eq!(status.signal(), None);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_ledger_that_cannot_be_closed_has_an_exit_code_of_its_own() {
    let site = Site::new(json!({"shutdown": null}));
    let mut server = site.http().await;
    let locked = Locked::take(&site);
    server.process().signal("TERM").await;
    let status = server.wait_exit(GENEROUS).await;
    let stderr = server.stderr();
    assert_eq!(status.code(), Some(3), "{stderr}");
    locked.release();

    // On pipes, told by a signal and by the end of the input.
    for is_told in [true, false] {
        let site = Site::new(json!({"shutdown": null}));
        let mut server = site.stdio();
        server.open("2025-06-18").await;
        let params = call("append", json!({"mark": "before"}));
        let answer = server.request("tools/call", params).await;
        assert!(answer.result().is_object());
        let locked = Locked::take(&site);
        match is_told {
            true => server.process().signal("TERM").await,
            false => server.close_input(),
        }
        let status = server.wait_exit(GENEROUS).await;
        assert_eq!(status.code(), Some(3), "{}", server.stderr());
        locked.release();
        // What was recorded before is there all the same.
        assert_eq!(site.outcomes("append"), ["succeeded"]);
        let verified = run(site.command(&["ledger", "verify"])).await;
        // The last of them are not sealed: the checkpoint at the end is missing.
        assert_eq!(verified.code, Some(3), "{}", verified.messages);
    }
}

#[tokio::test]
async fn balancers_are_told_before_anybody_is_turned_away() {
    let site = Site::new(json!({"shutdown": {"ready_delay_seconds": 2}}));
    let mut server = site.http().await;
    let mut client = HttpClient::new(server.address());
    let ready = HttpRequest::get("/health/ready");
    assert_eq!(client.exchange(&ready).await.status, 200);
    server.process().signal("TERM").await;
    server.process().wait_stderr("\"stopping\"").await;
    assert_eq!(client.exchange(&ready).await.status, 503);
    let live = client.exchange(&HttpRequest::get("/health/live")).await;
    assert_eq!(live.status, 200);
    let params = call("append", json!({"mark": "late"}));
    let answer = client.post_modern("tools/call", params).await;
    assert!(succeeded(answer.response()), "{answer:?}");
    assert_eq!(server.wait_exit(END).await.code(), Some(0));
    nothing_is_lost(&site, &HashSet::from(["late".to_owned()])).await;
}

#[tokio::test]
async fn who_started_it_hears_that_it_is_ready_alive_and_stopping() {
    let site = Site::new(json!({}));
    let socket = UnixDatagram::bind(site.path("notify")).unwrap();
    socket.set_read_timeout(Some(GENEROUS)).unwrap();
    let mut command = site.command(&["start", "--transport", "http"]);
    command
        .env("NOTIFY_SOCKET", site.path("notify"))
        .env("WATCHDOG_USEC", "200000");
    let mut server = HttpServer::spawn(command, Port::Announced(announced)).await;
    let mut told = String::new();
    let mut hear = |wanted: &str| {
        let mut bytes = [0; 1024];
        while !told.contains(wanted) {
            let count = socket.recv(&mut bytes).unwrap_or_else(|_| panic!("{told}"));
            told.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
            told.push('\n');
        }
        told.clone()
    };
    hear("READY=1");
    hear("WATCHDOG=1\nWATCHDOG=1");
    server.process().signal("TERM").await;
    let told = hear("STOPPING=1");
    assert_eq!(told.matches("READY=1").count(), 1, "{told}");
    assert!(hear("EXTEND_TIMEOUT_USEC=61750000").contains("STATUS=stopping"));
    assert_eq!(server.wait_exit(END).await.code(), Some(0));
}
