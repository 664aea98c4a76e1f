//! One connection over a pair of in-memory streams.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use jsonrpc_core::{Limits, RawJson};
use mcp_protocol::model::{
    CallToolResult, ClientRequest, Content, Implementation, InputRequest, LoggingLevel,
    ServerCapabilities, ServerResult,
};
use mcp_service::{
    Change, Engine, EngineLimits, McpError, Principal, RequestCx, ServerIdentity, Service,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines},
    sync::{Notify, oneshot},
    task::JoinHandle,
};
use transport_stdio::{End, ServeError, StdioOptions, serve};

/// `echo` answers with its arguments, `gate` waits until it is opened, `panic` panics and `progress`
/// reports twice.
#[derive(Clone, Default)]
struct Tools {
    gate: Arc<Notify>,
    dropped: Arc<AtomicUsize>,
    started: Arc<Notify>,
}

struct CountDrop(Arc<AtomicUsize>);

impl Drop for CountDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Service<ClientRequest> for Tools {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        let ClientRequest::CallTool(call) = request else {
            return Ok(ServerResult::Empty);
        };
        match call.name.as_str() {
            "gate" => {
                let _counted = CountDrop(Arc::clone(&self.dropped));
                self.started.notify_one();
                self.gate.notified().await;
            }
            "panic" => panic!("as asked"),
            "ask" => {
                let log = cx.log_reporter().unwrap();
                log.log(LoggingLevel::Debug, None, RawJson::NULL);
                log.log(LoggingLevel::Info, Some("asker"), RawJson::NULL);
                let question = InputRequest::ElicitForm {
                    message: "Sure?".to_owned(),
                    requested_schema: RawJson::from_value(
                        &json!({ "type": "object", "properties": {} }),
                    )
                    .unwrap(),
                };
                let text = match cx.ask(&question, None).await {
                    Ok(answer) => answer.as_str().to_owned(),
                    Err(error) => error.to_string(),
                };
                return Ok(ServerResult::CallTool(CallToolResult {
                    content: vec![Content::text(text)],
                    ..CallToolResult::default()
                }));
            }
            "progress" => {
                let reporter = cx.progress_reporter().unwrap();
                reporter.report(1.0, Some(2.0), Some("half"));
                reporter.report(1.0, Some(2.0), Some("not more than before"));
                tokio::task::yield_now().await;
                reporter.report(2.0, Some(2.0), None);
            }
            _ => {}
        }
        Ok(ServerResult::CallTool(CallToolResult {
            content: vec![Content::text(call.arguments.as_str())],
            ..CallToolResult::default()
        }))
    }
}

struct Peer {
    input: DuplexStream,
    output: Lines<BufReader<DuplexStream>>,
    serving: JoinHandle<Result<End, ServeError>>,
    stop: Option<oneshot::Sender<()>>,
    tools: Tools,
    engine: Arc<Engine<Tools>>,
}

fn start(room: usize, drain: Duration) -> Peer {
    let identity = ServerIdentity {
        info: Implementation {
            name: "test".into(),
            version: "1".into(),
            ..Implementation::default()
        },
        capabilities: ServerCapabilities {
            tools: true,
            logging: true,
            ..ServerCapabilities::default()
        },
        instructions: None,
        discover_ttl_ms: 0,
    };
    let limits = EngineLimits {
        frames: Limits {
            max_frame: 10_000,
            ..Limits::default()
        },
        ..EngineLimits::default()
    };
    let tools = Tools::default();
    let engine = Engine::new(tools.clone(), identity, limits);
    let (input, server_input) = tokio::io::duplex(room);
    let (server_output, output) = tokio::io::duplex(room);
    let (stop, stopped) = oneshot::channel();
    let serving = {
        let engine = Arc::clone(&engine);
        let options = StdioOptions {
            accept_unfinished: true,
            drain,
            max_unsent: 20_000,
        };
        tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or(()) };
            serve(
                &engine,
                Principal::new("tester"),
                server_input,
                server_output,
                stopped,
                options,
            )
            .await
        })
    };
    let output = BufReader::new(output).lines();
    Peer {
        input,
        output,
        serving,
        stop: Some(stop),
        tools,
        engine,
    }
}

impl Peer {
    async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.input.write_all(text.as_ref()).await.unwrap();
        self.input.write_all(b"\n").await.unwrap();
    }

    async fn receive(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(20), self.output.next_line());
        serde_json::from_str(&line.await.expect("in time").unwrap().expect("a line")).unwrap()
    }

    async fn finish(mut self) -> (Vec<Value>, End) {
        self.input.shutdown().await.unwrap();
        drop(self.input);
        let mut rest = Vec::new();
        while let Some(line) = self.output.next_line().await.unwrap() {
            rest.push(serde_json::from_str(&line).unwrap());
        }
        (rest, self.serving.await.unwrap().unwrap())
    }
}

fn call(id: impl Into<Value>, tool: &str) -> String {
    let params =
        json!({ "name": tool, "arguments": { "a": 1 }, "_meta": { "progressToken": "t" } });
    json!({ "jsonrpc": "2.0", "id": id.into(), "method": "tools/call", "params": params })
        .to_string()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn many_requests_in_one_write_are_all_answered() {
    let mut peer = start(1 << 20, LONG);
    let lines: Vec<_> = (0..500).map(|id| call(id, "echo")).collect();
    peer.send(lines.join("\n")).await;
    for id in 0..500 {
        let answer = peer.receive().await;
        assert_eq!(answer["id"], id);
        assert_eq!(answer["result"]["content"][0]["text"], r#"{"a":1}"#);
    }
    assert_eq!(peer.finish().await, (vec![], End::InputEnded));
}

#[tokio::test]
async fn a_slow_request_does_not_hold_up_a_quick_one() {
    let mut peer = start(1 << 16, LONG);
    peer.send(call(1, "gate")).await;
    peer.send(call(2, "echo")).await;
    assert_eq!(peer.receive().await["id"], 2);
    peer.tools.gate.notify_one();
    assert_eq!(peer.receive().await["id"], 1);
}

#[tokio::test]
async fn a_cancelled_request_is_dropped_and_never_answered() {
    let mut peer = start(1 << 16, LONG);
    // In one write: the cancellation is read before the request has been polled again.
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } });
    peer.send(format!(
        "{}\n{cancel}\n{}",
        call(1, "gate"),
        call(2, "echo")
    ))
    .await;
    assert_eq!(peer.receive().await["id"], 2);
    while peer.tools.dropped.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    peer.send(call(1, "echo")).await;
    assert_eq!(peer.receive().await["id"], 1, "the id is free again");
    assert_eq!(peer.finish().await.0, Vec::<Value>::new());
}

#[tokio::test]
async fn an_id_in_flight_cannot_be_taken_twice() {
    let mut peer = start(1 << 16, LONG);
    peer.send(call(1, "gate")).await;
    peer.send(call(1, "echo")).await;
    assert_eq!(peer.receive().await["error"]["code"], -32600);
    peer.tools.gate.notify_one();
    assert!(peer.receive().await["result"].is_object());
}

#[tokio::test]
async fn a_panic_is_answered_and_the_connection_lives_on() {
    let mut peer = start(1 << 16, LONG);
    peer.send(call(1, "panic")).await;
    let answer = peer.receive().await;
    assert_eq!(
        (&answer["id"], &answer["error"]["code"]),
        (&json!(1), &json!(-32603))
    );
    assert!(
        !answer.to_string().contains("as asked"),
        "causes stay in the log"
    );
    peer.send(call(2, "echo")).await;
    assert_eq!(peer.receive().await["id"], 2);
}

#[tokio::test]
async fn bad_lines_are_answered_and_the_next_one_is_served() {
    let mut peer = start(1 << 20, LONG);
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}1{}}}"#,
        "[".repeat(4_000),
        "]".repeat(4_000)
    );
    let long = "x".repeat(3_000_000);
    let rows: [(&[u8], i64); 7] = [
        (b"{nonsense", -32700),
        (b"{\"a\":\"\xff\xfe\"}", -32700),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, -32600),
        (br#"{"jsonrpc":"2.0","id":1,"method":"nope"}"#, -32601),
        (deep.as_bytes(), -32600),
        (long.as_bytes(), -32600),
    ];
    for (line, code) in rows {
        peer.send(line).await;
        assert_eq!(
            peer.receive().await["error"]["code"],
            code,
            "{:?}",
            line.get(..40)
        );
    }
    peer.send(call(9, "echo")).await;
    assert_eq!(peer.receive().await["id"], 9);
}

#[tokio::test]
async fn half_a_line_waits_and_counts_at_the_end() {
    let mut peer = start(1 << 16, LONG);
    let line = call(1, "echo");
    peer.input.write_all(&line.as_bytes()[..20]).await.unwrap();
    tokio::task::yield_now().await;
    peer.input.write_all(&line.as_bytes()[20..]).await.unwrap();
    let (rest, end) = peer.finish().await;
    assert_eq!(
        (rest[0]["id"].clone(), rest.len(), end),
        (json!(1), 1, End::InputEnded)
    );
}

#[tokio::test]
async fn a_batch_is_answered_where_batches_are_due() {
    let mut peer = start(1 << 16, LONG);
    let batch = format!("[{},{},7]", call(1, "echo"), call("b", "panic"));
    peer.send(&batch).await;
    let answers = peer.receive().await;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 3);
    assert!(answers[0]["result"].is_object());
    assert_eq!(answers[1]["error"]["code"], -32603);
    assert_eq!(answers[2]["error"]["code"], -32600);
    let open = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    peer.send(open.to_string()).await;
    assert_eq!(
        peer.receive().await["result"]["protocolVersion"],
        "2025-06-18"
    );
    peer.send(&batch).await;
    assert_eq!(peer.receive().await["error"]["code"], -32600);
}

#[tokio::test]
async fn progress_comes_before_its_answer_and_only_forward() {
    let mut peer = start(1 << 16, LONG);
    peer.send(call(1, "progress")).await;
    let first = peer.receive().await;
    assert_eq!(first["method"], "notifications/progress");
    assert_eq!(
        (
            &first["params"]["progress"],
            &first["params"]["progressToken"]
        ),
        (&json!(1.0), &json!("t"))
    );
    assert_eq!(peer.receive().await["params"]["progress"], 2.0);
    assert_eq!(peer.receive().await["id"], 1);
}

#[tokio::test]
async fn changed_lists_are_announced_to_who_asked() {
    let mut peer = start(1 << 16, LONG);
    peer.engine.publish(&Change::Tools); // nobody listens yet
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
    let listen = json!({ "jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": {
        "_meta": meta, "notifications": { "toolsListChanged": true, "resourcesListChanged": true } } });
    peer.send(listen.to_string()).await;
    let acknowledged = peer.receive().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    assert_eq!(
        acknowledged["params"]["notifications"],
        json!({ "toolsListChanged": true }),
        "no resources are offered"
    );
    peer.engine.publish(&Change::Tools);
    let changed = peer.receive().await;
    assert_eq!(changed["method"], "notifications/tools/list_changed");
    assert_eq!(
        changed["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"],
        "sub"
    );
    peer.engine.close();
    assert_eq!(peer.receive().await["result"]["resultType"], "complete");
    assert!(peer.engine.subscriptions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_end_waits_for_answers_but_not_for_ever() {
    let mut peer = start(1 << 16, Duration::from_secs(4));
    peer.send(call(1, "gate")).await;
    peer.send(call(2, "gate")).await;
    peer.tools.started.notified().await;
    peer.tools.gate.notify_one();
    let (rest, end) = peer.finish().await;
    assert_eq!((rest.len(), end), (1, End::DrainTimedOut { given_up: 1 }));
}

#[tokio::test]
async fn told_to_stop_it_answers_what_was_asked() {
    let mut peer = start(1 << 16, LONG);
    peer.send(call(1, "gate")).await;
    peer.tools.started.notified().await;
    peer.stop.take().unwrap().send(()).unwrap();
    peer.tools.gate.notify_one();
    assert_eq!(peer.receive().await["id"], 1);
    assert_eq!(peer.serving.await.unwrap().unwrap(), End::Stopped);
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_not_read_from() {
    let mut peer = start(4_096, LONG);
    // Far more than fits into the streams and the 20,000 bytes that may wait.
    let lines: Vec<_> = (0..5_000).map(|id| call(id, "echo")).collect();
    let text = lines.join("\n") + "\n";
    let (mut input, mut output) = (peer.input, peer.output);
    let writing = tokio::spawn(async move {
        input.write_all(text.as_bytes()).await.unwrap();
        input
    });
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    assert!(
        !writing.is_finished(),
        "everything was read though nothing was taken"
    );
    for id in 0..5_000 {
        let line = output.next_line().await.unwrap().unwrap();
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["id"], id);
    }
    drop(writing.await.unwrap());
    assert_eq!(peer.serving.await.unwrap().unwrap(), End::InputEnded);
    peer.stop = None;
}

fn initialize(version: &str, capabilities: Value) -> String {
    let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": { "name": "t", "version": "1" } });
    json!({ "jsonrpc": "2.0", "id": "init", "method": "initialize", "params": params }).to_string()
}

#[tokio::test]
async fn a_legacy_client_is_asked_and_answers() {
    let mut peer = start(1 << 16, LONG);
    peer.send(initialize("2025-11-25", json!({ "elicitation": {} })))
        .await;
    assert!(peer.receive().await["result"].is_object());
    peer.send(call(1, "ask")).await;
    let log = peer.receive().await;
    assert_eq!(
        (&log["params"]["level"], &log["params"]["logger"]),
        (&json!("info"), &json!("asker")),
        "debug is below the default"
    );
    let question = peer.receive().await;
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "Sure?");
    peer.send(r#"{"jsonrpc":"2.0","id":99,"result":{"action":"decline"}}"#)
        .await; // nobody asked
    let answer =
        json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } });
    peer.send(answer.to_string()).await;
    let result = peer.receive().await;
    assert_eq!(
        (&result["id"], &result["result"]["content"][0]["text"]),
        (&json!(1), &json!(r#"{"action":"accept"}"#))
    );
}

#[tokio::test]
async fn nobody_is_asked_who_has_not_said_so() {
    let mut peer = start(1 << 16, LONG);
    peer.send(initialize(
        "2025-11-25",
        json!({ "elicitation": { "url": {} } }),
    ))
    .await;
    peer.receive().await;
    let level = json!({ "jsonrpc": "2.0", "id": 5, "method": "logging/setLevel", "params": { "level": "error" } });
    peer.send(level.to_string()).await;
    assert_eq!(peer.receive().await["result"], json!({}));
    peer.send(call(1, "ask")).await;
    let result = peer.receive().await;
    assert_eq!(
        result["result"]["content"][0]["text"],
        "the client has not declared what this question needs"
    );
}

#[tokio::test]
async fn a_question_is_withdrawn_with_its_request() {
    let mut peer = start(1 << 16, LONG);
    peer.send(initialize("2025-06-18", json!({ "elicitation": {} })))
        .await;
    peer.receive().await;
    peer.send(call(1, "ask")).await;
    peer.receive().await; // the log message
    let question = peer.receive().await;
    peer.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    let withdrawn = peer.receive().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    assert_eq!(peer.finish().await.0, Vec::<Value>::new());
}

#[tokio::test]
async fn an_open_subscription_does_not_hold_up_the_end() {
    let mut peer = start(1 << 16, LONG);
    let meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {} });
    let listen = json!({ "jsonrpc": "2.0", "id": "sub", "method": "subscriptions/listen", "params": {
        "_meta": meta, "notifications": { "toolsListChanged": true } } });
    peer.send(listen.to_string()).await;
    peer.receive().await;
    let (rest, end) = peer.finish().await;
    assert_eq!(
        (&rest[0]["result"]["resultType"], end),
        (&json!("complete"), End::InputEnded)
    );
}
