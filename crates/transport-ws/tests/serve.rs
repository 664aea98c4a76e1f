//! One WebSocket over an in-memory connection, with a client of the library's.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures_util::{SinkExt, StreamExt};
use jsonrpc_core::Limits;
use mcp_protocol::model::{
    CallToolResult, ClientRequest, Content, Implementation, ServerCapabilities, ServerResult,
};
use mcp_service::{
    Change, Engine, EngineLimits, McpError, Principal, RequestCx, ServerIdentity, Service,
};
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use tokio::{
    io::{AsyncWriteExt, DuplexStream},
    sync::{Notify, oneshot},
    task::JoinHandle,
    time::Instant,
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, Utf8Bytes, protocol::Role},
};
use transport_ws::{End, Identify, Identifying, WebSocketOptions, WebSockets, serve};

const MAX_FRAME: usize = 10_000;

/// Longer than anything takes, however loaded the machine is.
const LONG: Duration = Duration::from_secs(600);

/// `gate` waits until it is opened; everything else is answered with its arguments, and with who
/// asked.
#[derive(Clone, Default)]
struct Tools {
    gate: Arc<Notify>,
    started: Arc<Notify>,
    dropped: Arc<AtomicUsize>,
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
        if call.name == "gate" {
            let _counted = CountDrop(Arc::clone(&self.dropped));
            self.started.notify_one();
            self.gate.notified().await;
        }
        let who = format!(
            "{} {:?} {}",
            cx.principal,
            cx.principal.roles(),
            cx.transport.as_str()
        );
        Ok(ServerResult::CallTool(CallToolResult {
            content: vec![Content::text(call.arguments.as_str()), Content::text(who)],
            ..CallToolResult::default()
        }))
    }
}

/// Principal that is authenticated, until the test changes it.
#[derive(Clone)]
struct Known(Arc<Mutex<Option<Principal>>>);

impl Identify for Known {
    fn identify(&self) -> Identifying<'_> {
        let known = self.0.lock().unwrap().clone();
        Box::pin(async move {
            // As if something had to be fetched.
            tokio::task::yield_now().await;
            known
        })
    }
}

struct Client {
    socket: WebSocketStream<DuplexStream>,
    serving: JoinHandle<End>,
    stop: Option<oneshot::Sender<()>>,
    known: Known,
    tools: Tools,
    engine: Arc<Engine<Tools>>,
    sockets: Arc<WebSockets>,
}

async fn start(room: usize, options: WebSocketOptions) -> Client {
    let identity = ServerIdentity {
        info: Implementation {
            name: "test".into(),
            version: "1".into(),
            ..Implementation::default()
        },
        capabilities: ServerCapabilities {
            tools: true,
            ..ServerCapabilities::default()
        },
        instructions: None,
        discover_ttl_ms: 0,
    };
    let limits = EngineLimits {
        frames: Limits {
            max_frame: MAX_FRAME,
            ..Limits::default()
        },
        ..EngineLimits::default()
    };
    let tools = Tools::default();
    let engine = Engine::new(tools.clone(), identity, limits);
    let sockets = WebSockets::new(options);
    let place = sockets.enter(&Principal::new("tester")).unwrap();
    let known = Known(Arc::new(Mutex::new(Some(Principal::new("tester")))));
    let (ours, theirs) = tokio::io::duplex(room);
    let (stop, stopped) = oneshot::channel();
    let serving = {
        let (engine, known) = (Arc::clone(&engine), known.clone());
        tokio::spawn(async move {
            let stopped = async { stopped.await.unwrap_or(()) };
            serve(&engine, &place, &known, theirs, stopped).await
        })
    };
    Client {
        socket: WebSocketStream::from_raw_socket(ours, Role::Client, None).await,
        serving,
        stop: Some(stop),
        known,
        tools,
        engine,
        sockets,
    }
}

async fn plain() -> Client {
    start(64 * 1024, WebSocketOptions::default()).await
}

fn call(id: u64, tool: &str, arguments: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {
        "name": tool, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        },
    }})
}

impl Client {
    async fn say(&mut self, message: &Value) {
        let text = Utf8Bytes::from(message.to_string());
        self.socket.send(Message::Text(text)).await.unwrap();
    }

    /// The next message that is no control frame; `Err` at the end, with how it was closed.
    async fn hear(&mut self) -> Result<Value, Option<(u16, String)>> {
        loop {
            let next = tokio::time::timeout(LONG, self.socket.next())
                .await
                .unwrap();
            match next {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Close(frame))) => {
                    let told = frame.map(|it| (it.code.into(), it.reason.to_string()));
                    // The library agrees by being read once more.
                    while let Some(Ok(_)) = self.socket.next().await {}
                    return Err(told);
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    async fn answer(&mut self) -> Value {
        self.hear().await.unwrap()
    }

    async fn ended(self) -> End {
        drop(self.socket);
        tokio::time::timeout(LONG, self.serving)
            .await
            .unwrap()
            .unwrap()
    }
}

#[tokio::test]
async fn both_eras_are_spoken_and_requests_do_not_wait_for_each_other() {
    let mut client = plain().await;
    client.say(&call(1, "gate", &json!({"n": 1}))).await;
    client.say(&call(2, "echo", &json!({"n": 2}))).await;
    let answer = client.answer().await;
    assert_eq!(answer["id"], 2);
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"n":2}"#);
    assert_eq!(
        answer["result"]["content"][1]["text"],
        "tester [] websocket"
    );
    client.tools.gate.notify_one();
    assert_eq!(client.answer().await["id"], 1);

    let hello = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"},
    }});
    client.say(&hello).await;
    assert_eq!(
        client.answer().await["result"]["protocolVersion"],
        "2025-06-18"
    );
    client
        .say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        .await;
    client
        .say(
            &json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {
                "name": "echo", "arguments": {},
            }}),
        )
        .await;
    assert_eq!(client.answer().await["id"], 3);
    client.engine.publish(&Change::Tools);
    let told = client.answer().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");

    let text = Message::Text("{".into());
    client.socket.send(text).await.unwrap();
    assert_eq!(client.answer().await["error"]["code"], -32700);
    client.socket.close(None).await.unwrap();
    assert_eq!(client.ended().await, End::Left);
}

#[tokio::test]
async fn hanging_up_cancels_what_runs() {
    let mut client = plain().await;
    client.say(&call(1, "gate", &json!({}))).await;
    client.tools.started.notified().await;
    let (tools, sockets) = (client.tools.clone(), Arc::clone(&client.sockets));
    assert_eq!(client.ended().await, End::Left);
    assert_eq!(tools.dropped.load(Ordering::SeqCst), 1);
    assert_eq!(sockets.figures().open, 0);
}

#[tokio::test]
async fn whoever_proves_nothing_any_more_is_told_so_and_runs_nothing() {
    let mut client = plain().await;
    let roles: Arc<[Arc<str>]> = Arc::from(["clerk".into()]);
    *client.known.0.lock().unwrap() = Some(Principal::new("tester").with_roles(roles));
    client.say(&call(1, "echo", &json!({}))).await;
    let answer = client.answer().await;
    let who = &answer["result"]["content"][1]["text"];
    assert_eq!(
        who, r#"tester ["clerk"] websocket"#,
        "with the roles it has now"
    );

    client.say(&call(2, "gate", &json!({}))).await;
    client.tools.started.notified().await;
    *client.known.0.lock().unwrap() = None;
    client.say(&call(3, "echo", &json!({}))).await;
    let (code, why) = client.hear().await.unwrap_err().unwrap();
    assert_eq!(
        (code, &*why),
        (1008, "what this was opened with proves nothing any more")
    );
    let dropped = Arc::clone(&client.tools.dropped);
    assert!(matches!(
        client.ended().await,
        End::Closed { code: 1008, .. }
    ));
    assert_eq!(
        dropped.load(Ordering::SeqCst),
        1,
        "what ran for it is cancelled"
    );

    // Somebody else is nobody, too.
    let mut client = plain().await;
    *client.known.0.lock().unwrap() = Some(Principal::new("other"));
    client.say(&call(1, "echo", &json!({}))).await;
    assert_eq!(client.hear().await.unwrap_err().unwrap().0, 1008);
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_looked_after_too() {
    let mut client = plain().await;
    *client.known.0.lock().unwrap() = None;
    let began = Instant::now();
    assert_eq!(client.hear().await.unwrap_err().unwrap().0, 1008);
    let ping = WebSocketOptions::default().ping;
    assert!(
        began.elapsed() <= ping + Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );

    // What has an end of its own is over then, and not a ping later.
    let mut client = plain().await;
    let until = SystemTime::now() + Duration::from_secs(5);
    *client.known.0.lock().unwrap() = Some(Principal::new("tester").until(until));
    client.say(&call(1, "echo", &json!({}))).await;
    client.answer().await;
    *client.known.0.lock().unwrap() = None;
    let began = Instant::now();
    assert_eq!(client.hear().await.unwrap_err().unwrap().0, 1008);
    assert!(
        began.elapsed() <= Duration::from_secs(6),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn who_gives_no_sign_of_life_is_gone_and_who_answers_pings_stays() {
    let ping = WebSocketOptions::default().ping;
    let mut client = plain().await;
    for _ in 0..5 {
        // Reading answers pings.
        let heard = tokio::time::timeout(ping, client.socket.next()).await;
        assert!(matches!(heard, Err(_) | Ok(Some(Ok(Message::Ping(_))))));
    }
    client.say(&call(1, "echo", &json!({}))).await;
    client.answer().await;

    let silent = plain().await;
    let began = Instant::now();
    let end = tokio::time::timeout(10 * ping, silent.serving)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(end, End::Left);
    assert!(began.elapsed() <= 2 * ping + Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_no_message_of_ours_closes_with_what_was_wrong() {
    let large = "x".repeat(MAX_FRAME + 1);
    let rows: [(&[u8], u16); 5] = [
        // A binary message.
        (&[0x82, 0x80, 0, 0, 0, 0], 1003),
        // No UTF-8.
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff], 1007),
        // Not masked.
        (&[0x81, 0x01, b'x'], 1002),
        // A bit that means nothing was agreed on.
        (&[0xc1, 0x81, 0, 0, 0, 0, b'x'], 1002),
        // HTTP again.
        (b"GET / HTTP/1.1\r\n\r\n", 1002),
    ];
    for (bytes, code) in rows {
        let mut client = plain().await;
        client.socket.get_mut().write_all(bytes).await.unwrap();
        let told = client.hear().await.unwrap_err();
        assert_eq!(told.map(|(code, _)| code), Some(code), "{bytes:x?}");
        assert!(matches!(client.ended().await, End::Closed { .. }));
    }
    let mut client = plain().await;
    client
        .socket
        .send(Message::Text(large.into()))
        .await
        .unwrap();
    assert_eq!(client.hear().await.unwrap_err().unwrap().0, 1009);
}

#[tokio::test]
async fn unfinished_messages_have_a_bound_of_all_clients_together() {
    let mut client = start(
        64 * 1024,
        WebSocketOptions {
            max_unfinished: MAX_FRAME,
            ..WebSocketOptions::default()
        },
    )
    .await;
    // Somebody else holds all but a little.
    let place = client.sockets.enter(&Principal::new("other")).unwrap();
    let (mut ours, theirs) = tokio::io::duplex(64 * 1024);
    let engine = Arc::clone(&client.engine);
    let known = Known(Arc::new(Mutex::new(Some(Principal::new("other")))));
    let other = tokio::spawn(async move {
        serve(&engine, &place, &known, theirs, std::future::pending()).await
    });
    let mut begun = vec![0x81, 0x80 | 126];
    begun.extend_from_slice(&9_000_u16.to_be_bytes());
    begun.extend_from_slice(&[0; 4]);
    begun.resize(begun.len() + 8_500, b' ');
    ours.write_all(&begun).await.unwrap();
    // Until it is held: what is small enough goes on being answered meanwhile, and frees its share.
    loop {
        let text =
            json!({"jsonrpc": "2.0", "id": 1, "method": "x", "params": {"t": "y".repeat(3_000)}});
        let sent = client
            .socket
            .send(Message::Text(text.to_string().into()))
            .await;
        match client.hear().await {
            Ok(answer) if sent.is_ok() => assert_eq!(answer["id"], 1),
            told => {
                assert_eq!(told.unwrap_err().unwrap().0, 1013);
                break;
            }
        }
    }
    drop(ours);
    assert_eq!(other.await.unwrap(), End::Left);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_come_is_not_waited_for() {
    let ping = WebSocketOptions::default().ping;
    let mut client = plain().await;
    // The first piece of a message, of which there will be others.
    let piece = [0x01, 0x81, 0, 0, 0, 0, b'{'];
    let pong = [0x8a, 0x80, 0, 0, 0, 0];
    let bytes = [&piece[..], &pong].concat();
    client.socket.get_mut().write_all(&bytes).await.unwrap();
    let began = Instant::now();
    // Pings are answered meanwhile, between the pieces.
    let (code, why) = client.hear().await.unwrap_err().unwrap();
    assert_eq!((code, &*why), (1008, "a message takes too long to come"));
    assert!(began.elapsed() <= 3 * ping, "{:?}", began.elapsed());
    assert!(matches!(
        client.ended().await,
        End::Closed { code: 1008, .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn whoever_listens_is_told_that_the_server_stops() {
    let mut client = plain().await;
    let mut listen = call(1, "", &json!({}));
    listen["method"] = json!("subscriptions/listen");
    let meta = listen["params"]["_meta"].clone();
    listen["params"] = json!({"_meta": meta, "notifications": {"toolsListChanged": true}});
    client.say(&listen).await;
    let told = client.answer().await;
    assert_eq!(told["method"], "notifications/subscriptions/acknowledged");
    client.stop.take().unwrap().send(()).unwrap();
    let told = client.answer().await;
    assert_eq!(told["id"], 1, "{told}");
    assert_eq!(client.hear().await.unwrap_err().unwrap().0, 1001);
    assert_eq!(client.ended().await, End::Stopped);
}

#[tokio::test]
async fn who_takes_nothing_is_read_no_further() {
    let mut client = start(1_000, WebSocketOptions::default()).await;
    // Each is answered with as much; nothing is taken until no more can be said.
    let long = "y".repeat(900);
    let mut said = 0_u64;
    let mut pending = None;
    while said < 1_000 {
        let text = call(said, "echo", &json!({"t": long})).to_string();
        let send = client.socket.send(Message::Text(text.into()));
        match tokio::time::timeout(Duration::from_millis(500), send).await {
            Ok(sent) => sent.unwrap(),
            Err(_) => {
                pending = Some(said);
                break;
            }
        }
        said += 1;
    }
    let pending = pending.expect("it went on being read");
    assert!(
        pending < 100,
        "{pending} were read that nobody takes the answers of"
    );
    for id in 0..pending {
        assert_eq!(client.answer().await["id"], id);
    }
}

#[tokio::test]
async fn a_server_that_stops_answers_what_runs_and_says_so() {
    let mut client = plain().await;
    client.say(&call(1, "gate", &json!({}))).await;
    client.tools.started.notified().await;
    client.stop.take().unwrap().send(()).unwrap();
    client.tools.gate.notify_one();
    assert_eq!(client.answer().await["id"], 1);
    let (code, why) = client.hear().await.unwrap_err().unwrap();
    assert_eq!((code, &*why), (1001, "the server stops"));
    assert_eq!(client.ended().await, End::Stopped);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_waits_no_longer_than_it_may() {
    let mut client = plain().await;
    client.say(&call(1, "gate", &json!({}))).await;
    client.tools.started.notified().await;
    client.stop.take().unwrap().send(()).unwrap();
    assert_eq!(client.hear().await.unwrap_err().unwrap().0, 1001);
    let dropped = Arc::clone(&client.tools.dropped);
    assert_eq!(client.ended().await, End::DrainTimedOut { given_up: 1 });
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
}
