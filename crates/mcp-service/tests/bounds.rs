//! Bounds of everything that could grow, and the return of what was taken.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use jsonrpc_core::{ErrorCode, Id, RawJson, Request};
use mcp_protocol::model::{
    ClientRequest, Implementation, RequestMeta, ResourcesCapability, ServerCapabilities,
    ServerResult,
};
use mcp_service::{
    Accepted, Change, Connection, Engine, EngineLimits, Exchange, McpError, Outbox, Principal,
    Reply, RequestCx, ServerIdentity, Service, SubscriptionLimits, TransportKind,
};
use serde_json::{Value, json};
use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};
use tokio::sync::Notify;

/// `tools/list` waits for the gate; `tools/call` reports progress and is done, or panics.
#[derive(Clone, Default)]
struct Handler {
    gate: Arc<Notify>,
    begun: Arc<AtomicUsize>,
}

impl Service<ClientRequest> for Handler {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        match request {
            ClientRequest::ListTools(_) => self.gate.notified().await,
            ClientRequest::CallTool(call) if call.name == "panic" => panic!("as asked"),
            ClientRequest::CallTool(call) => {
                let reporter = cx.progress_reporter().unwrap();
                let twin = cx.progress_reporter().unwrap();
                for step in 1..=100_u32 {
                    let text = "x".repeat(call.name.len());
                    if reporter.report(f64::from(step), None, Some(&text)) {
                        assert!(!twin.report(f64::from(step), None, None), "said already");
                    }
                }
            }
            ClientRequest::Listen(filter)
                if filter
                    .resource_subscriptions
                    .iter()
                    .any(|it| it == "panic:") =>
            {
                panic!("as asked")
            }
            ClientRequest::Subscribe(uri) if uri == "no" => {
                return Err(McpError::new(ErrorCode(-32002), "no"));
            }
            _ => {}
        }
        Ok(ServerResult::Empty)
    }
}

struct House {
    engine: Arc<Engine<Handler>>,
    handler: Handler,
}

fn house(limits: EngineLimits) -> House {
    let identity = ServerIdentity {
        info: Implementation {
            name: "test".into(),
            version: "1".into(),
            ..Implementation::default()
        },
        capabilities: ServerCapabilities {
            tools: true,
            resources: Some(ResourcesCapability { subscribe: true }),
            ..ServerCapabilities::default()
        },
        instructions: None,
        discover_ttl_ms: 0,
    };
    let handler = Handler::default();
    House {
        engine: Engine::new(handler.clone(), identity, limits),
        handler,
    }
}

struct Peer {
    connection: Arc<Connection>,
    outbox: Outbox,
}

fn peer(principal: &str, outbox: Outbox) -> Peer {
    let principal = Principal::new(principal);
    let connection = Connection::new(principal, TransportKind::Stdio, None, outbox.clone());
    Peer { connection, outbox }
}

impl House {
    fn send(&self, peer: &Peer, message: &Value) -> Accepted {
        let frame = Bytes::from(message.to_string());
        self.engine.accept(&peer.connection, &frame, &peer.outbox)
    }

    /// A request that somebody must wait for, polled once.
    async fn begin(&self, peer: &Peer, message: &Value) -> Exchange {
        match self.send(peer, message) {
            Accepted::Pending(mut exchange) => {
                let first = poll_once(&mut exchange).await;
                assert!(first.is_none(), "it waits: {first:?}");
                exchange
            }
            Accepted::Done(reply) => panic!("answered at once: {reply:?}"),
        }
    }

    async fn ask(&self, peer: &Peer, message: &Value) -> Value {
        match self.send(peer, message) {
            Accepted::Pending(exchange) => {
                let generous = std::time::Duration::from_secs(20);
                let reply = tokio::time::timeout(generous, exchange).await;
                value(reply.expect("an answer, and not a place in a queue"))
            }
            Accepted::Done(reply) => value(reply),
        }
    }

    fn begun(&self) -> usize {
        self.handler.begun.load(Ordering::SeqCst)
    }
}

async fn poll_once(exchange: &mut Exchange) -> Option<Reply> {
    poll_fn(|cx| {
        Poll::Ready(match Pin::new(&mut *exchange).poll(cx) {
            Poll::Ready(reply) => Some(reply),
            Poll::Pending => None,
        })
    })
    .await
}

fn value(reply: Reply) -> Value {
    let frame = reply.into_frame().expect("an answer");
    let bytes: Vec<u8> = frame.pieces().flat_map(|it| it.to_vec()).collect();
    serde_json::from_slice(&bytes).unwrap()
}

fn request(id: i64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn modern(id: i64, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "x", "version": "1" },
    });
    request(id, method, params)
}

fn listen(id: i64, filter: Value) -> Value {
    modern(
        id,
        "subscriptions/listen",
        json!({ "notifications": filter }),
    )
}

fn initialize(id: i64) -> Value {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": { "name": "x", "version": "1" },
    });
    request(id, "initialize", params)
}

#[tokio::test]
async fn one_that_takes_all_it_can_get_leaves_room_for_others() {
    let house = house(EngineLimits {
        max_in_flight: 8,
        max_waiting: 8,
        max_reserved_per_principal: 1,
        ..EngineLimits::default()
    });
    let greedy = peer("anna", Outbox::default());
    let list = |id| request(id, "tools/list", json!({}));
    let mut open = Vec::new();
    // Six places that anybody can have and one of those that are kept; six that wait and one.
    for id in 0..15 {
        open.push(house.begin(&greedy, &list(id)).await);
    }
    assert_eq!(house.begun(), 7);
    let refused = house.ask(&greedy, &list(15)).await;
    assert_eq!(refused["error"]["data"]["retryable"], true, "{refused}");

    let modest = peer("bert", Outbox::default());
    let mut running = house.begin(&modest, &list(1)).await;
    assert_eq!(house.begun(), 8, "it runs at once");
    let refused = house.ask(&modest, &list(2)).await;
    assert_eq!(refused["error"]["data"]["retryable"], true, "{refused}");
    // Whoever is done leaves its place to the next, of its own principal too.
    drop(running);
    running = house.begin(&modest, &list(3)).await;
    assert_eq!(house.begun(), 9);
    drop((running, open));
    assert_eq!(house.engine.in_flight(), 0);
    let again = house.begin(&modest, &list(4)).await;
    assert_eq!(house.begun(), 10);
    drop(again);
}

#[tokio::test]
async fn requests_beyond_those_running_and_waiting_are_refused_at_once() {
    let house = house(EngineLimits {
        max_in_flight: 2,
        max_waiting: 3,
        ..EngineLimits::default()
    });
    let peer = peer("anna", Outbox::default());
    let mut open = Vec::new();
    for id in 0..5 {
        open.push(
            house
                .begin(&peer, &request(id, "tools/list", json!({})))
                .await,
        );
    }
    assert_eq!(house.begun(), 2, "two run and three wait");
    assert_eq!(house.engine.in_flight(), 5);
    for id in 5..8 {
        let answer = house
            .ask(&peer, &request(id, "tools/list", json!({})))
            .await;
        assert_eq!(answer["error"]["code"], -32603);
        assert_eq!(answer["error"]["data"]["retryable"], true);
        assert_eq!(answer["error"]["data"]["retry_after"], 1);
        assert_eq!(answer["id"], id);
    }
    // What costs nothing is answered all the same.
    assert!(house.ask(&peer, &request(8, "ping", json!({}))).await["result"].is_object());
    assert_eq!(house.engine.in_flight(), 5, "a refused one takes no place");
    // One is given up, and another one fits.
    drop(open.pop());
    open.push(
        house
            .begin(&peer, &request(9, "tools/list", json!({})))
            .await,
    );
    // All are carried out in the end.
    let gate = Arc::clone(&house.handler.gate);
    let opening = async {
        loop {
            gate.notify_waiters();
            tokio::task::yield_now().await;
        }
    };
    let all = futures_util::future::join_all(open);
    let replies = tokio::select! {
        replies = all => replies,
        () = opening => unreachable!(),
    };
    assert_eq!(replies.len(), 5);
    for reply in replies {
        assert!(value(reply)["result"].is_object());
    }
    assert_eq!(house.engine.in_flight(), 0);
    assert_eq!(peer.connection.in_flight(), 0);
}

#[tokio::test]
async fn a_place_is_given_back_however_its_request_ends() {
    let house = house(EngineLimits {
        max_in_flight: 1,
        max_waiting: 0,
        ..EngineLimits::default()
    });
    let peer = peer("anna", Outbox::default());
    let params = json!({ "name": "x", "_meta": { "progressToken": 1 } });
    for id in 0..3 {
        assert!(
            house
                .ask(&peer, &request(id, "tools/call", params.clone()))
                .await["result"]
                .is_object()
        );
        let panicking = request(id, "tools/call", json!({ "name": "panic" }));
        let answer = house.ask(&peer, &panicking).await;
        assert_eq!(answer["error"]["code"], -32603);
        assert!(!answer.to_string().contains("as asked"));
        drop(
            house
                .begin(&peer, &request(id, "tools/list", json!({})))
                .await,
        );
        let exchange = house
            .begin(&peer, &request(id, "tools/list", json!({})))
            .await;
        let cancel = json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": id },
        });
        assert!(matches!(
            house.send(&peer, &cancel),
            Accepted::Done(Reply::Nothing)
        ));
        assert!(
            matches!(exchange.await, Reply::Nothing),
            "nothing is said of it"
        );
        assert_eq!(house.engine.in_flight(), 0);
        assert_eq!(peer.connection.in_flight(), 0);
    }
}

#[tokio::test]
async fn a_request_cancelled_in_the_very_next_frame_never_begins() {
    let house = house(EngineLimits::default());
    let peer = peer("anna", Outbox::default());
    let accepted = house.send(&peer, &request(1, "tools/list", json!({})));
    let cancel = json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": { "requestId": 1 },
    });
    house.send(&peer, &cancel);
    let Accepted::Pending(exchange) = accepted else {
        panic!("it waits");
    };
    assert!(matches!(exchange.await, Reply::Nothing));
    assert_eq!(house.begun(), 0);
}

#[tokio::test]
async fn a_full_outbox_drops_progress_and_not_the_answer() {
    let house = house(EngineLimits::default());
    let peer = peer("anna", Outbox::new(2_000));
    let params = json!({ "name": "x".repeat(200), "_meta": { "progressToken": "t" } });
    let answer = house.ask(&peer, &request(1, "tools/call", params)).await;
    assert!(answer["result"].is_object(), "{answer}");
    let mut seen = Vec::new();
    while let Some(frame) = peer.outbox.try_next() {
        let message: Value = serde_json::from_slice(&frame).unwrap();
        seen.push(message["params"]["progress"].as_f64().unwrap());
    }
    assert!((1..20).contains(&seen.len()), "{seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0] < pair[1]), "{seen:?}");
}

#[tokio::test]
async fn batches_of_modern_requests_run_nothing() {
    let house = house(EngineLimits::default());
    let peer = peer("anna", Outbox::default());
    let batch = json!([
        modern(1, "tools/list", json!({})),
        modern(2, "tools/list", json!({}))
    ]);
    let answers = house.ask(&peer, &batch).await;
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["error"]["code"], -32600);
    }
    assert_eq!(house.begun(), 0);
}

fn limited(max_total: usize, max_per_principal: usize, max_resources: usize) -> House {
    house(EngineLimits {
        subscriptions: SubscriptionLimits {
            max_total,
            max_per_principal,
            max_resources,
        },
        ..EngineLimits::default()
    })
}

#[tokio::test]
async fn listening_is_bounded_and_freed_when_it_is_dropped() {
    let house = limited(3, 2, 10);
    let anna = peer("anna", Outbox::default());
    let bert = peer("bert", Outbox::default());
    let tools = json!({ "toolsListChanged": true });
    let first = house.begin(&anna, &listen(1, tools.clone())).await;
    let second = house.begin(&anna, &listen(2, tools.clone())).await;
    let refused = house.ask(&anna, &listen(3, tools.clone())).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    assert_eq!(refused["error"]["data"]["retryable"], true);
    let third = house.begin(&bert, &listen(1, tools.clone())).await;
    let refused = house.ask(&bert, &listen(2, tools.clone())).await;
    assert_eq!(
        refused["error"]["code"], -32603,
        "three are all there can be"
    );
    assert_eq!(house.engine.subscriptions().len(), 3);
    assert_eq!(
        house.engine.in_flight(),
        0,
        "they take no place of requests"
    );
    drop(first);
    assert_eq!(house.engine.subscriptions().len(), 2);
    let fourth = house.begin(&anna, &listen(4, tools)).await;
    drop((second, third, fourth));
    assert!(house.engine.subscriptions().is_empty());
    assert_eq!(anna.connection.in_flight() + bert.connection.in_flight(), 0);
}

#[tokio::test]
async fn a_panic_of_what_decides_on_a_subscription_fails_that_request_alone() {
    let house = limited(3, 2, 10);
    let anna = peer("anna", Outbox::default());
    let filter = json!({ "resourceSubscriptions": ["panic:"] });
    let failed = house.ask(&anna, &listen(1, filter)).await;
    assert_eq!(failed["error"]["code"], -32603, "{failed}");
    assert!(house.engine.subscriptions().is_empty());
    let tools = json!({ "toolsListChanged": true });
    drop(house.begin(&anna, &listen(2, tools)).await);
}

#[tokio::test]
async fn nobody_can_listen_to_more_resources_than_there_may_be() {
    let house = limited(10, 10, 2);
    let anna = peer("anna", Outbox::default());
    let all = json!({ "resourceSubscriptions": ["a", "b", "c"] });
    let refused = house.ask(&anna, &listen(1, all)).await;
    assert_eq!(refused["error"]["code"], -32603);
    assert!(house.engine.subscriptions().is_empty());
    // One after the other, as legacy clients do it.
    assert!(house.ask(&anna, &initialize(2)).await["result"].is_object());
    for (id, uri, fits) in [
        (3, "a", true),
        (4, "b", true),
        (5, "a", true),
        (6, "c", false),
    ] {
        let subscribe = request(id, "resources/subscribe", json!({ "uri": uri }));
        let answer = house.ask(&anna, &subscribe).await;
        assert_eq!(answer.get("result").is_some(), fits, "{uri}: {answer}");
    }
    let unsubscribe = request(7, "resources/unsubscribe", json!({ "uri": "a" }));
    house.ask(&anna, &unsubscribe).await;
    let subscribe = request(8, "resources/subscribe", json!({ "uri": "c" }));
    assert!(house.ask(&anna, &subscribe).await["result"].is_object());
}

#[tokio::test]
async fn an_initialize_that_was_refused_can_be_repeated() {
    let house = limited(1, 1, 1);
    let (anna, bert) = (
        peer("anna", Outbox::default()),
        peer("bert", Outbox::default()),
    );
    assert!(house.ask(&anna, &initialize(1)).await["result"].is_object());
    let refused = house.ask(&bert, &initialize(1)).await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    anna.connection.close();
    assert!(house.engine.subscriptions().is_empty());
    let answer = house.ask(&bert, &initialize(2)).await;
    assert!(answer["result"].is_object(), "{answer}");
    let again = house.ask(&bert, &initialize(3)).await;
    assert_eq!(again["error"]["code"], -32600, "but not twice");
}

#[tokio::test]
async fn who_listens_hears_after_the_acknowledgement_what_it_asked_for_and_no_more() {
    let house = limited(10, 10, 10);
    let anna = peer("anna", Outbox::default());
    let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["a"] });
    let mut exchange = house.begin(&anna, &listen(7, filter.clone())).await;
    for change in [
        Change::Tools,
        Change::Resources,
        Change::Resource("a".into()),
        Change::Resource("b".into()),
    ] {
        house.engine.publish(&change);
    }
    assert!(poll_once(&mut exchange).await.is_none());
    let mut heard = Vec::new();
    while let Some(frame) = anna.outbox.try_next() {
        let message: Value = serde_json::from_slice(&frame).unwrap();
        let meta = &message["params"]["_meta"];
        assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], 7);
        heard.push(message["method"].as_str().unwrap().to_owned());
    }
    assert_eq!(
        heard,
        [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]
    );
    // The server's own end is an answer.
    house.engine.close();
    let answer = value(exchange.await);
    assert_eq!(answer["id"], 7);
    assert!(answer["result"].is_object(), "{answer}");
    assert!(house.engine.subscriptions().is_empty());
}

#[tokio::test]
async fn a_subscriber_that_does_not_read_holds_up_nobody_and_grows_no_memory() {
    let house = limited(10, 10, 10);
    let slow = peer("slow", Outbox::new(500));
    let quick = peer("quick", Outbox::default());
    for peer in [&slow, &quick] {
        assert!(house.ask(peer, &initialize(1)).await["result"].is_object());
        for (id, uri) in [(2, "a"), (3, "b")] {
            let subscribe = request(id, "resources/subscribe", json!({ "uri": uri }));
            house.ask(peer, &subscribe).await;
        }
    }
    for _ in 0..200 {
        house.engine.publish(&Change::Resource("a".into()));
        house.engine.publish(&Change::Resource("b".into()));
    }
    let count = |outbox: &Outbox| std::iter::from_fn(|| outbox.try_next()).count();
    assert!((1..10).contains(&count(&slow.outbox)));
    assert_eq!(count(&quick.outbox), 400);
}

#[tokio::test]
async fn a_post_is_cancelled_by_dropping_it() {
    let house = house(EngineLimits::default());
    let body = modern(1, "tools/list", json!({}));
    let params = RawJson::from_value(&body["params"]).unwrap();
    let meta = Box::new(RequestMeta::of(&params).unwrap());
    let request = Request {
        id: Id::Number(1),
        method: "tools/list".into(),
        params,
    };
    let principal = Principal::new("anna");
    let accepted =
        house
            .engine
            .accept_modern(&principal, TransportKind::Http, request, meta, None, None);
    let Accepted::Pending(mut exchange) = accepted else {
        panic!("it waits");
    };
    assert!(poll_once(&mut exchange).await.is_none());
    assert_eq!(house.engine.in_flight(), 1);
    drop(exchange);
    assert_eq!(house.engine.in_flight(), 0);
}
