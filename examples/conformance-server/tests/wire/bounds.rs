//! Bounds hold: what one client can make a server keep, and that the others do not notice.
//!
//! Every bound on memory is about twice what was seen when it was written down, in a build without
//! optimisation.
#![allow(clippy::print_stdout, reason = "what was measured is worth reading")]

use crate::house::{Program, call, with_progress};
use serde_json::{Value, json};
use std::{
    process::Stdio,
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use testkit::{
    ChildProcess, Conversation, HttpClient, HttpConnection, HttpRequest, HttpServer, LinePeer,
    MODERN,
};
use tokio::{
    io::AsyncWriteExt,
    task::{JoinHandle, JoinSet},
};

const MEGABYTE: usize = 1024 * 1024;

const MANY: usize = 10_000;

/// Connections that a crowd of requests is spread over.
const CONNECTIONS: usize = 4;

/// Longest time that answers to other clients may take while one misbehaves: half of them, and the
/// slowest.
const USUAL: Duration = Duration::from_millis(100);
const AT_WORST: Duration = Duration::from_secs(2);

/// Another client, which calls a tool again and again until it is told to stop.
struct Bystander {
    over: Arc<AtomicBool>,
    calling: JoinHandle<Vec<Duration>>,
}

impl Bystander {
    fn of(server: &HttpServer) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let mut client = server.client().with_header("x-mcp-client-id", "bystander");
        client.speak(MODERN);
        let is_over = Arc::clone(&over);
        let calling = tokio::spawn(async move {
            let mut took = Vec::new();
            let mut connection = client.connect().await;
            while !is_over.load(Ordering::Relaxed) || took.is_empty() {
                let params = call("few", json!({ "b": 3 }));
                let message = client.voice.request("tools/call", params);
                let began = Instant::now();
                let (answer, kept) = client
                    .post_over(connection, &client.post_of(&message))
                    .await;
                took.push(began.elapsed());
                let _ = answer.result();
                connection = kept;
            }
            took
        });
        Self { over, calling }
    }

    async fn was_served(self, meanwhile: &str) {
        self.over.store(true, Ordering::Relaxed);
        let mut took = self.calling.await.unwrap();
        took.sort();
        let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
        let all = format!(
            "{meanwhile}: {} calls, {median:?}, at worst {worst:?}",
            took.len()
        );
        println!("{all}");
        assert!(median < USUAL && worst < AT_WORST, "{all}");
    }
}

/// Memory of a process, from here on.
struct Growth {
    before: usize,
}

impl Growth {
    fn of(process: &ChildProcess) -> Self {
        let before = process.resident_bytes();
        Self { before }
    }

    fn is_below(&self, bound: usize, process: &ChildProcess, what: &str) {
        self.is_below_of(bound, process.id().unwrap(), what);
    }

    fn is_below_of(&self, bound: usize, process: u32, what: &str) {
        let grown = testkit::resident_bytes(process).saturating_sub(self.before);
        let told = format!("{what}: {} KiB more", grown / 1024);
        println!("{told}");
        assert!(grown < bound, "{told}, {} KiB expected", bound / 1024);
    }
}

/// Sends what `request` makes of each number, over a few connections, and gives what `look` makes
/// of the answers.
async fn crowd<T: Send + 'static>(
    client: &HttpClient,
    count: usize,
    request: fn(&HttpClient, usize) -> HttpRequest,
    look: fn(&testkit::Answer) -> T,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for first in 0..CONNECTIONS {
        let client = client.clone();
        tasks.spawn(async move {
            let mut connection = client.connect().await;
            let mut seen = Vec::new();
            for number in (first..count).step_by(CONNECTIONS) {
                let request = request(&client, number);
                let (answer, kept) = client.post_over(connection, &request).await;
                seen.push(look(&answer));
                connection = kept;
            }
            seen
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

fn initialize() -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "x", "version": "1" },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_handshakes_take_bounded_memory() {
    let server = Program::Fixture.http().await;
    let bystander = Bystander::of(&server);
    let client = server.client();
    let growth = Growth::of(server.process());
    let post = |client: &HttpClient, _| client.post_of(&initialize());
    let look =
        |answer: &testkit::Answer| (answer.http.status, answer.response().get("error").is_some());
    let one = crowd(&client, MANY, post, look).await;
    let opened = one.iter().filter(|it| **it == (200, false)).count();
    let refused = one.iter().filter(|it| **it == (503, true)).count();
    // Each new session ends the one of that client that has been idle longest.
    assert_eq!((opened, refused), (MANY, 0), "one client");
    growth.is_below(8 * MEGABYTE, server.process(), "handshakes of one client");

    let post = |client: &HttpClient, number| {
        let name = format!("client {}", number % 100);
        client
            .post_of(&initialize())
            .header("x-mcp-client-id", &name)
    };
    let many = crowd(&client, MANY, post, look).await;
    let opened = many.iter().filter(|it| **it == (200, false)).count();
    let refused = many.iter().filter(|it| **it == (503, true)).count();
    assert_eq!((opened, refused), (MANY, 0), "a hundred clients");
    growth.is_below(
        200 * MEGABYTE,
        server.process(),
        "handshakes of a hundred clients",
    );
    bystander.was_served("handshakes").await;
}

#[tokio::test]
async fn ten_thousand_handshakes_on_one_pipe_are_one() {
    let mut server = Program::Fixture.stdio();
    server.open("2025-11-25").await;
    let growth = Growth::of(server.process());
    for _ in 0..MANY / 100 {
        for _ in 0..100 {
            let message = server.voice.initialize("2025-11-25");
            server.send(&message).await;
        }
        for answer in server.receive_many(100).await {
            assert_eq!(answer["error"]["code"], -32600, "{answer}");
        }
    }
    growth.is_below(MEGABYTE, server.process(), "handshakes on a pipe");
    let _ = server.request("tools/list", Value::Null).await.result();
}

/// Calls a tool that is not there, by a name of 6 kB. Put together by hand, since there are many.
fn call_by_long_name(number: usize) -> String {
    static LONG: LazyLock<String> = LazyLock::new(|| "x".repeat(6_000));
    let meta = format!(
        r#"{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{{}}}}"#
    );
    let name = format!("{number}{}", *LONG);
    format!(
        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"_meta":{meta},"name":"{name}"}}}}"#
    )
}

/// No name that a client makes up is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_unknown_names_over_http_are_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = directory.path().join("ledger.db");
    let server = Program::Fixture
        .http_with(&["--ledger", ledger.to_str().unwrap()])
        .await;
    let bystander = Bystander::of(&server);
    let mut client = server.client();
    client.speak(MODERN);
    let growth = Growth::of(server.process());
    let post = |client: &HttpClient, number| {
        let text = call_by_long_name(number);
        let name = text.rsplit('"').nth(1).unwrap_or_default();
        let list = json!({ "method": "tools/call" });
        client.post_of(&list).header("mcp-name", name).body(&text)
    };
    let codes = crowd(&client, MANY, post, testkit::Answer::code).await;
    assert_eq!(codes, vec![-32602; MANY]);
    growth.is_below(8 * MEGABYTE, server.process(), "unknown names over HTTP");
    bystander.was_served("unknown names").await;
}

#[tokio::test]
async fn ten_thousand_unknown_names_on_a_pipe_are_forgotten() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = directory.path().join("ledger.db");
    let mut server = Program::Fixture.stdio_with(&["--ledger", ledger.to_str().unwrap()]);
    server.open(MODERN).await;
    let growth = Growth::of(server.process());
    for first in (1_000..1_000 + MANY).step_by(100) {
        for number in first..first + 100 {
            let call = call_by_long_name(number);
            server.send_line(call.as_bytes()).await;
        }
        for answer in server.receive_many(100).await {
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
    }
    growth.is_below(14 * MEGABYTE, server.process(), "unknown names on a pipe");
}

/// Sockets that this process and its children may have: each, as children inherit the limit.
fn max_sockets() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line
        .and_then(|line| line.split_whitespace().nth(3))
        .unwrap();
    // Some are for others: other tests, the ledger, pipes.
    soft.parse()
        .map_or(usize::MAX, |soft: usize| soft.saturating_sub(500))
}

fn listen(number: usize) -> Value {
    json!({
        "jsonrpc": "2.0",
        "id": number,
        "method": "subscriptions/listen",
        "params": {
            "notifications": { "toolsListChanged": true },
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": MODERN,
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    })
}

/// Over HTTP as many as there may be sockets, each of which is a file; over stdio all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_open_listens_take_bounded_memory() {
    let count = MANY.min(max_sockets());
    let server = Program::Fixture.http().await;
    let bystander = Bystander::of(&server);
    let mut client = server.client();
    client.speak(MODERN);
    let growth = Growth::of(server.process());
    let mut opening = JoinSet::new();
    for first in 0..CONNECTIONS {
        let client = client.clone();
        opening.spawn(async move {
            let mut streams = Vec::new();
            for number in (first..count).step_by(CONNECTIONS) {
                let mut stream = client.stream(&client.post_of(&listen(number))).await;
                let acknowledged = stream.message().await;
                assert_eq!(
                    acknowledged["method"],
                    "notifications/subscriptions/acknowledged"
                );
                streams.push(stream);
            }
            streams
        });
    }
    let streams = opening.join_all().await;
    growth.is_below(
        400 * MEGABYTE,
        server.process(),
        &format!("{count} listens over HTTP"),
    );
    if count == MANY {
        let further = client.post(&client.post_of(&listen(MANY))).await;
        assert_eq!(further.code(), -32603);
        assert_eq!(further.response()["error"]["data"]["retryable"], true);
    }
    let other = client.clone().with_header("x-mcp-client-id", "other");
    let mut stream = other.stream(&other.post_of(&listen(0))).await;
    let _ = stream.message().await;
    bystander.was_served("listens").await;
    drop(streams);
}

#[tokio::test]
async fn ten_thousand_listens_on_one_pipe_take_bounded_memory() {
    let mut server = Program::Fixture.stdio();
    server.open(MODERN).await;
    let growth = Growth::of(server.process());
    for first in (0..MANY).step_by(100) {
        for number in first..first + 100 {
            server.send(&listen(number + 1_000_000)).await;
        }
        for acknowledged in server.receive_many(100).await {
            assert_eq!(
                acknowledged["method"],
                "notifications/subscriptions/acknowledged"
            );
        }
    }
    growth.is_below(150 * MEGABYTE, server.process(), "listens on a pipe");
    server.send(&listen(1)).await;
    let refused = server.receive().await;
    assert_eq!(refused["error"]["code"], -32603, "{refused}");
    let _ = server.request("tools/list", Value::Null).await.result();
}

/// Megabytes a second are said to somebody who does not listen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_never_reads_its_stream_costs_little() {
    const FLOODS: usize = 8;
    let server = Program::Fixture.http().await;
    let bystander = Bystander::of(&server);
    let mut client = server.client();
    client.speak(MODERN);
    let growth = Growth::of(server.process());
    let mut deaf = Vec::new();
    for _ in 0..FLOODS {
        let params = with_progress(call("flood", json!({})));
        let message = client.voice.request("tools/call", params);
        let mut connection = client.connect().await;
        let bytes = client.post_of(&message).to_bytes();
        connection.send_bytes(&bytes).await.unwrap();
        deaf.push(connection);
    }
    for _ in 0..500 {
        let _ = client.post_modern("tools/list", Value::Null).await;
    }
    growth.is_below(16 * MEGABYTE, server.process(), "floods over HTTP");
    bystander.was_served("floods").await;
    drop(deaf);
}

/// Answers of 400 MB in all, asked for at once by a client that reads none of them.
#[tokio::test]
async fn answers_that_nobody_reads_are_not_made() {
    let directory = tempfile::tempdir().unwrap();
    let ledger = directory.path().join("ledger.db");
    let mut command = Program::Fixture.command();
    command.args(["--ledger", ledger.to_str().unwrap()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = command.kill_on_drop(true).spawn().unwrap();
    let (id, mut input) = (process.id().unwrap(), process.stdin.take().unwrap());
    input
        .write_all(format!("{}\n", initialize()).as_bytes())
        .await
        .unwrap();
    testkit::wait_idle(id).await;
    let growth = Growth {
        before: testkit::resident_bytes(id),
    };
    let params = call("large", json!({ "bytes": MEGABYTE }));
    let asked = (0..400).map(|id| {
        let request =
            json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
        format!("{request}\n")
    });
    // All of it fits into the pipe.
    let asked: String = asked.collect();
    assert!(asked.len() < 64 * 1024);
    input.write_all(asked.as_bytes()).await.unwrap();
    testkit::wait_idle(id).await;
    growth.is_below_of(50 * MEGABYTE, id, "answers that nobody reads");
    // They are made once somebody reads them.
    let mut peer = LinePeer::over(process.stdout.take().unwrap(), input);
    peer.speak("2025-11-25");
    for message in std::iter::once(initialize().to_string()).chain(asked.lines().map(str::to_owned))
    {
        peer.expect_answer_to(message.as_bytes());
    }
    for _ in 0..=8 {
        assert!(peer.receive().await["result"].is_object());
    }
}

/// A byte now and then is no request: after as long as a request may take, the server hangs up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_drip_are_not_waited_for() {
    const PATIENCE: Duration = Duration::from_millis(500);
    const DRIPPING: usize = 200;
    const PAUSE: Duration = Duration::from_millis(50);
    async fn drip(mut connection: HttpConnection, bytes: &[u8], whole: usize) -> Duration {
        let began = Instant::now();
        connection.send_bytes(&bytes[..whole]).await.unwrap();
        for byte in &bytes[whole..] {
            if connection.send_bytes(&[*byte]).await.is_err() {
                return began.elapsed();
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!(
            "all {} bytes were taken in {:?}",
            bytes.len(),
            began.elapsed()
        );
    }
    let words = ["--patience-ms", &PATIENCE.as_millis().to_string()];
    let server = Program::Fixture.http_with(&words).await;
    let bystander = Bystander::of(&server);
    let mut client = server.client();
    client.speak(MODERN);
    let message = client
        .voice
        .request("tools/call", call("few", json!({ "b": 3 })));
    let request = client
        .post_of(&message)
        .header("x-padding", &"x".repeat(1_000));
    let bytes = Arc::new(request.to_bytes());
    let head = bytes.len() - request.body_bytes().len();
    let growth = Growth::of(server.process());
    let mut dripping = JoinSet::new();
    for number in 0..DRIPPING {
        // Half of them in the head, half of them in the body.
        let whole = if number % 2 == 0 { 0 } else { head };
        let (client, bytes) = (client.clone(), Arc::clone(&bytes));
        dripping.spawn(async move { drip(client.connect().await, &bytes, whole).await });
    }
    let took = dripping.join_all().await;
    growth.is_below(16 * MEGABYTE, server.process(), "drips");
    let longest = took.iter().max().unwrap();
    println!("the last was hung up on after {longest:?}");
    assert!(*longest < 8 * PATIENCE, "{longest:?}");
    bystander.was_served("drips").await;
}
