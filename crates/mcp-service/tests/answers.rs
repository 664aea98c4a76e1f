//! Each request is answered at most once, and exactly once unless it was taken back: whatever is
//! called, cancelled, hung up on and shut down in whatever order.
//!
//! The engine is driven by hand, without a runtime. A request is looked at only after it has asked
//! to be, so one that is forgotten is never answered here either.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::Bytes;
use jsonrpc_core::{ErrorCode, Id, RawJson, Request};
use mcp_protocol::model::{
    ClientRequest, Implementation, RequestMeta, ServerCapabilities, ServerResult,
};
use mcp_service::{
    Accepted, Change, Connection, Engine, EngineLimits, Exchange, McpError, Outbox, Principal,
    Reply, RequestCx, ServerIdentity, Service, SubscriptionLimits, TransportKind,
};
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};
use tokio::sync::Semaphore;

/// Few enough to be reached.
const LIMITS: (usize, usize, usize) = (2, 3, 2);

/// Versions that the peers speak: none yet, with and without batches, and the modern revision.
const SPOKEN: [Option<&str>; 4] = [
    None,
    Some("2025-03-26"),
    Some("2025-11-25"),
    Some("2026-07-28"),
];

const WITHOUT_BATCHES: usize = 2;
const MODERN: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    /// A request on a connection.
    Call {
        peer: usize,
        id: u8,
        what: &'static str,
    },
    /// Several at once.
    Batch {
        peer: usize,
        calls: Vec<(u8, &'static str)>,
    },
    /// A modern request of its own, as HTTP has it.
    Post(&'static str),
    /// The client takes a request back.
    Cancel { peer: usize, id: u8 },
    /// The client of the post that is pending longest hangs up.
    HangUp,
    /// A connection is lost; whoever serves it drops its requests, or looks at them once more.
    Disconnect { peer: usize, drops: bool },
    /// The peer says nothing more.
    WindDown(usize),
    /// So many of those who wait may go on.
    Open(usize),
    /// A list has changed.
    Publish,
    /// Every exchange that was woken is polled.
    Poll,
    /// The server is to stop.
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    let (peer, id) = (0..SPOKEN.len(), 0_u8..4);
    let what = || {
        select(vec![
            "wait", "wait", "wait", "quick", "panic", "fail", "listen",
        ])
    };
    let calls = proptest::collection::vec((id.clone(), what()), 1..5);
    prop_oneof![
        8 => (peer.clone(), id.clone(), what()).prop_map(|(peer, id, what)| Step::Call { peer, id, what }),
        3 => (peer.clone(), calls).prop_map(|(peer, calls)| Step::Batch { peer, calls }),
        3 => what().prop_map(Step::Post),
        5 => (peer.clone(), id).prop_map(|(peer, id)| Step::Cancel { peer, id }),
        1 => Just(Step::HangUp),
        2 => (peer.clone(), any::<bool>()).prop_map(|(peer, drops)| Step::Disconnect { peer, drops }),
        1 => peer.prop_map(Step::WindDown),
        4 => (1_usize..4).prop_map(Step::Open),
        1 => Just(Step::Publish),
        5 => Just(Step::Poll),
        1 => Just(Step::Close),
    ]
}

/// Tools that wait, panic and fail.
#[derive(Clone)]
struct Handler(Arc<Semaphore>);

impl Service<ClientRequest> for Handler {
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        let ClientRequest::CallTool(call) = request else {
            return Ok(ServerResult::Empty);
        };
        let reporter = cx.progress_reporter();
        let report = |step| reporter.as_ref().map(|it| it.report(step, None, None));
        report(1.0);
        match call.name.as_str() {
            "wait" => self.0.acquire().await.unwrap().forget(),
            "panic" => panic!("as asked"),
            "fail" => return Err(McpError::new(ErrorCode::INVALID_PARAMS, "as asked")),
            _ => {}
        }
        report(2.0);
        Ok(ServerResult::Empty)
    }
}

/// True after a wake, until the next poll.
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Requests that were sent together and are not answered yet.
struct Sent {
    exchange: Exchange,
    woken: Arc<Flag>,
    /// On which connection; none for a post.
    peer: Option<usize>,
    /// Number of times that each id was asked.
    asked: BTreeMap<i64, usize>,
    /// Ids that were cancelled.
    cancelled: BTreeSet<i64>,
    is_batch: bool,
    is_lost: bool,
}

struct Peer {
    connection: Arc<Connection>,
    outbox: Outbox,
}

struct House {
    engine: Arc<Engine<Handler>>,
    gate: Arc<Semaphore>,
    peers: Vec<Peer>,
    sent: Vec<Sent>,
    /// Progress of requests that were taken back.
    silenced: BTreeSet<i64>,
    /// The progress token of each request that is in flight: by peer and id.
    tokens: BTreeMap<(usize, i64), i64>,
    next_token: i64,
}

impl House {
    fn new() -> Self {
        let gate = Arc::new(Semaphore::new(0));
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
        let (max_in_flight, max_waiting, max_per_principal) = LIMITS;
        let limits = EngineLimits {
            max_in_flight,
            max_waiting,
            subscriptions: SubscriptionLimits {
                max_per_principal,
                ..SubscriptionLimits::default()
            },
            ..EngineLimits::default()
        };
        let mut house = Self {
            engine: Engine::new(Handler(Arc::clone(&gate)), identity, limits),
            gate,
            peers: Vec::new(),
            sent: Vec::new(),
            silenced: BTreeSet::new(),
            tokens: BTreeMap::new(),
            next_token: 1_000,
        };
        for number in 0..SPOKEN.len() {
            let peer = house.join(number);
            house.peers.push(peer);
        }
        house
    }

    /// A new connection of the peer of this number.
    fn join(&self, number: usize) -> Peer {
        let principal = Principal::new(format!("peer {number}"));
        let outbox = Outbox::default();
        let connection = Connection::new(principal, TransportKind::Stdio, None, outbox.clone());
        if let Some(version) = SPOKEN[number].filter(|_| number != MODERN) {
            let initialize = json!({
                "jsonrpc": "2.0",
                "id": "hello",
                "method": "initialize",
                "params": {
                    "protocolVersion": version,
                    "capabilities": {},
                    "clientInfo": { "name": "x", "version": "1" },
                },
            });
            let frame = Bytes::from(initialize.to_string());
            match self.engine.accept(&connection, &frame, &outbox) {
                Accepted::Done(reply) => assert!(values(reply)[0]["result"].is_object()),
                Accepted::Pending(_) => panic!("a handshake waits for nobody"),
            }
        }
        Peer { connection, outbox }
    }

    fn request(&mut self, is_modern: bool, id: i64, what: &str) -> (Value, i64) {
        let token = self.next_token;
        self.next_token += 1;
        let mut meta = json!({ "progressToken": token });
        if is_modern {
            meta["io.modelcontextprotocol/protocolVersion"] = json!("2026-07-28");
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        let (method, mut params) = match what {
            "listen" => {
                let filter = json!({ "toolsListChanged": true });
                ("subscriptions/listen", json!({ "notifications": filter }))
            }
            tool => ("tools/call", json!({ "name": tool })),
        };
        params["_meta"] = meta;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        (request, token)
    }

    fn send(&mut self, peer: usize, calls: &[(u8, &str)], is_batch: bool) {
        let mut asked = BTreeMap::<i64, usize>::new();
        let mut messages = Vec::new();
        for (id, what) in calls {
            let id = i64::from(*id);
            let is_taken = self.is_in_flight(peer, id) || asked.contains_key(&id);
            let (message, token) = self.request(peer == MODERN, id, what);
            if !is_taken {
                self.tokens.insert((peer, id), token);
            }
            messages.push(message);
            *asked.entry(id).or_default() += 1;
        }
        let message = if is_batch {
            Value::Array(messages)
        } else {
            messages.remove(0)
        };
        let Peer { connection, outbox } = &self.peers[peer];
        let frame = Bytes::from(message.to_string());
        let accepted = self.engine.accept(connection, &frame, outbox);
        if is_batch && peer == WITHOUT_BATCHES {
            // There are none in this revision, so nobody has asked anything.
            let Accepted::Done(reply) = accepted else {
                panic!("nothing of it runs");
            };
            let answers = values(reply);
            assert_eq!(answers.len(), 1);
            assert_eq!(
                (answers[0].get("id"), &answers[0]["error"]["code"]),
                (None, &json!(-32600))
            );
            return;
        }
        self.take(accepted, Some(peer), asked, is_batch);
    }

    fn is_in_flight(&self, peer: usize, id: i64) -> bool {
        let of_peer = |sent: &&Sent| sent.peer == Some(peer) && !sent.is_lost;
        self.sent
            .iter()
            .filter(of_peer)
            .any(|sent| sent.asked.contains_key(&id))
    }

    fn post(&mut self, what: &str) {
        let (message, _) = self.request(true, 7, what);
        let params = RawJson::from_value(&message["params"]).unwrap();
        let meta = Box::new(RequestMeta::of(&params).unwrap());
        let request = Request {
            id: Id::Number(7),
            method: message["method"].as_str().unwrap().to_owned(),
            params,
        };
        let principal = Principal::new("poster");
        let outbox = Some(Outbox::default());
        let kind = TransportKind::Http;
        let accepted = self
            .engine
            .accept_modern(&principal, kind, request, meta, outbox, None);
        self.take(accepted, None, BTreeMap::from([(7, 1)]), false);
    }

    fn take(
        &mut self,
        accepted: Accepted,
        peer: Option<usize>,
        asked: BTreeMap<i64, usize>,
        is_batch: bool,
    ) {
        match accepted {
            Accepted::Done(reply) => judge(&asked, &BTreeSet::new(), false, false, values(reply)),
            Accepted::Pending(exchange) => self.sent.push(Sent {
                exchange,
                woken: Arc::new(Flag(AtomicBool::new(true))),
                peer,
                asked,
                cancelled: BTreeSet::new(),
                is_batch,
                is_lost: false,
            }),
        }
    }

    fn cancel(&mut self, peer: usize, id: i64) {
        let of_it = |sent: &&mut Sent| sent.peer == Some(peer) && sent.asked.contains_key(&id);
        for sent in self.sent.iter_mut().filter(of_it) {
            sent.cancelled.insert(id);
            // What a batch has done already it may have told.
            if !sent.is_batch {
                self.silenced.extend(self.tokens.get(&(peer, id)));
            }
        }
        self.listen_to(peer);
        let message = json!({
            "jsonrpc": "2.0",
            "method": "notifications/cancelled",
            "params": { "requestId": id },
        });
        let Peer { connection, outbox } = &self.peers[peer];
        let frame = Bytes::from(message.to_string());
        let accepted = self.engine.accept(connection, &frame, outbox);
        assert!(
            matches!(accepted, Accepted::Done(Reply::Nothing)),
            "{accepted:?}"
        );
        self.read(peer);
    }

    fn disconnect(&mut self, peer: usize, drops: bool) {
        self.peers[peer].connection.close();
        if drops {
            self.sent.retain(|sent| sent.peer != Some(peer));
        }
        for sent in self.sent.iter_mut().filter(|sent| sent.peer == Some(peer)) {
            sent.is_lost = true;
            sent.peer = None;
        }
        self.poll();
        assert_eq!(self.peers[peer].connection.in_flight(), 0);
        self.peers[peer] = self.join(peer);
    }

    /// Reads what was said before a cancellation.
    fn listen_to(&mut self, peer: usize) {
        while self.peers[peer].outbox.try_next().is_some() {}
    }

    /// Reads what is said beside the answers, which must hold none.
    fn read(&mut self, peer: usize) {
        while let Some(frame) = self.peers[peer].outbox.try_next() {
            let message: Value = serde_json::from_slice(&frame).unwrap();
            assert!(
                message["method"].is_string(),
                "no answer goes here: {message}"
            );
            assert_eq!(message.get("id"), None, "nobody is asked anything");
            if let Some(token) = message["params"]["progressToken"].as_i64() {
                assert!(
                    !self.silenced.contains(&token),
                    "after it was cancelled: {message}"
                );
            }
        }
    }

    /// Looks at everything that has asked for it, until nothing does.
    fn poll(&mut self) {
        loop {
            let woken = |sent: &Sent| sent.woken.0.swap(false, Ordering::SeqCst);
            let Some(index) = self.sent.iter().position(woken) else {
                break;
            };
            let sent = &mut self.sent[index];
            let waker = Waker::from(Arc::clone(&sent.woken));
            let polled = Pin::new(&mut sent.exchange).poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(reply) = polled {
                let sent = self.sent.swap_remove(index);
                let answers = values(reply);
                judge(
                    &sent.asked,
                    &sent.cancelled,
                    sent.is_lost,
                    sent.is_batch,
                    answers,
                );
            }
        }
        for peer in 0..self.peers.len() {
            self.read(peer);
        }
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Call { peer, id, what } => self.send(*peer, &[(*id, *what)], false),
            Step::Batch { peer, calls } => self.send(*peer, calls, true),
            Step::Post(what) => self.post(what),
            Step::Cancel { peer, id } => self.cancel(*peer, i64::from(*id)),
            Step::HangUp => {
                let is_post = |sent: &Sent| sent.peer.is_none() && !sent.is_lost;
                if let Some(index) = self.sent.iter().position(is_post) {
                    self.sent.remove(index);
                }
            }
            Step::Disconnect { peer, drops } => self.disconnect(*peer, *drops),
            Step::WindDown(peer) => self.peers[*peer].connection.wind_down(),
            Step::Open(count) => self.gate.add_permits(*count),
            Step::Publish => self.engine.publish(&Change::Tools),
            Step::Poll => self.poll(),
            Step::Close => self.engine.close(),
        }
    }
}

/// Holds what was answered against what was asked.
fn judge(
    asked: &BTreeMap<i64, usize>,
    cancelled: &BTreeSet<i64>,
    is_lost: bool,
    is_batch: bool,
    answers: Vec<Value>,
) {
    let mut answered = BTreeMap::<i64, usize>::new();
    for answer in &answers {
        let has_one = answer.get("result").is_some() != answer.get("error").is_some();
        assert!(has_one && answer.get("method").is_none(), "{answer}");
        *answered.entry(answer["id"].as_i64().unwrap()).or_default() += 1;
    }
    for (id, count) in asked {
        let answered = answered.remove(id).unwrap_or(0);
        let told = format!("{id} of {asked:?}, cancelled {cancelled:?}: {answers:?}");
        assert!(answered <= *count, "answered twice: {told}");
        if is_lost {
            continue;
        }
        if !cancelled.contains(id) {
            assert_eq!(answered, *count, "not answered: {told}");
        } else if !is_batch {
            assert_eq!(answered, 0, "answered after it was cancelled: {told}");
        } else {
            assert!(*count - answered <= 1, "one was cancelled: {told}");
        }
    }
    assert!(answered.is_empty(), "nobody asked: {answers:?}");
}

/// The answers in a reply.
fn values(reply: Reply) -> Vec<Value> {
    let Some(frame) = reply.into_frame() else {
        return Vec::new();
    };
    let bytes: Vec<u8> = frame.pieces().flat_map(|it| it.to_vec()).collect();
    match serde_json::from_slice(&bytes).unwrap() {
        Value::Array(batch) => batch,
        single => vec![single],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_request_is_answered_once_unless_it_was_taken_back(
        script in proptest::collection::vec(step(), 1..60),
    ) {
        let mut house = House::new();
        for step in &script {
            house.run(step);
        }
        // Whoever waits may go on, and whoever listens is told that it is over.
        house.gate.add_permits(1_000);
        house.engine.close();
        house.poll();
        prop_assert_eq!(house.sent.len(), 0, "some are never answered");
        prop_assert_eq!(house.engine.in_flight(), 0);
        for peer in &house.peers {
            prop_assert_eq!(peer.connection.in_flight(), 0);
            peer.connection.close();
        }
        prop_assert!(house.engine.subscriptions().is_empty());
    }
}
