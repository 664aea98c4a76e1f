//! Upstreams, and gateways, that are killed again and again while clients call.
//!
//! Over all rounds together, each call has one outcome on record, which is the one that its
//! client was told; none was carried out twice; one that was not begun had no effect. `OWLCLAW_CRASH_ROUNDS`
//! says how many rounds there are; the times after which calls succeeded again are printed. Upstreams are paused as well.

#![expect(clippy::print_stdout, reason = "what was measured is for readers")]

use std::{
    collections::HashMap,
    net::{SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{GENEROUS, HttpConnection, HttpRequest, free_port, wait_until};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    crash_loop::{exchange, moment, rounds},
    support::{Site, call, outcome, run},
};

const RECORDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/recorder.py");

/// Clients that call at the same time.
const CLIENTS: u64 = 8;

/// A gateway without an application, with one upstream that keeps its files in `up`.
fn site(upstream: Value) -> Site {
    let site = Site::new(json!({"app": null, "python": null, "upstreams": {"up": upstream}}));
    site.write("up/.keep", "");
    site
}

fn stdio_site() -> Site {
    site(json!({"command": "python3", "args": [RECORDER, "stdio", "up"]}))
}

/// The process of the upstream.
fn process(site: &Site) -> Option<String> {
    let processes = site.read("up/processes");
    processes.lines().last().map(str::to_owned)
}

fn kill(process: &str) {
    send(process, "-KILL");
}

fn send(process: &str, signal: &str) {
    let status = Command::new("kill").args([signal, process]).status();
    assert!(status.unwrap().success());
}

/// Prints the times after which calls succeeded again, of which half must be within a second.
fn report(since: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100];
    let late = times.iter().filter(|it| Duration::from_secs(1) < **it);
    println!(
        "{} times calls succeeded again after {since}: median {:?}, 90th percentile {:?}, 99th {:?}, longest {:?}, {} of \
         more than a second",
        times.len(),
        at(50),
        at(90),
        at(99),
        at(100),
        late.count()
    );
    assert!(at(50) < Duration::from_secs(1), "{times:?}");
}

fn is_alive(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat"))
        .is_ok_and(|it| !it.rsplit(')').next().unwrap_or_default().starts_with(" Z"))
}

/// Outcomes that clients were told of, by the marks of their calls.
#[derive(Debug, Default)]
struct Told {
    /// Calls that were answered; one whose answer did not come is in none.
    outcomes: HashMap<String, &'static str>,
}

/// Clients that call until they are told to stop, or their server is gone.
struct Clients {
    stop: Arc<AtomicBool>,
    succeeded: Arc<AtomicU64>,
    all: JoinSet<Told>,
}

impl Clients {
    fn start(address: SocketAddr, round: u64) -> Self {
        let (stop, succeeded) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let mut all = JoinSet::new();
        for client in 0..CLIENTS {
            let (stop, succeeded) = (Arc::clone(&stop), Arc::clone(&succeeded));
            all.spawn(async move {
                let mut told = Told::default();
                let Ok(mut connection) = HttpConnection::connect(address).await else {
                    return told;
                };
                for index in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let mark = format!("{round}-{client}-{index}");
                    let message = json!({
                        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
                        "params": call("mcp_up_append", json!({"mark": mark})),
                    });
                    let request = HttpRequest::post("/mcp", message.to_string());
                    let Some((body, next)) = exchange(connection, &request).await else {
                        break;
                    };
                    connection = next;
                    let outcome = outcome_in(&body, &mark);
                    if outcome == "succeeded" {
                        succeeded.fetch_add(1, Ordering::Relaxed);
                    } else {
                        sleep(Duration::from_millis(10)).await;
                    }
                    told.outcomes.insert(mark, outcome);
                }
                told
            });
        }
        Self {
            stop,
            succeeded,
            all,
        }
    }

    fn successes(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    /// Waits until so many calls more than `before` have succeeded.
    async fn until_more(&self, before: u64) {
        let until = Instant::now() + GENEROUS;
        while self.successes() <= before {
            assert!(Instant::now() < until, "no call succeeds");
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn stopped(mut self) -> Told {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Told::default();
        while let Some(told) = self.all.join_next().await {
            all.outcomes.extend(told.unwrap().outcomes);
        }
        all
    }
}

/// The outcome that an answer tells of.
fn outcome_in(body: &str, mark: &str) -> &'static str {
    let answer: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{body}"));
    let data = match &answer["result"] {
        Value::Null => &answer["error"]["data"],
        result => match result["isError"].as_bool() {
            Some(true) => &result["_meta"]["io.owlclaw/error"],
            _ => {
                assert_eq!(result["content"][0]["text"], mark, "{body}");
                return "succeeded";
            }
        },
    };
    if data["outcome"] == "unknown" {
        assert_eq!(data["retryable"], false, "{body}");
        return "unknown";
    }
    // It was not begun, and may be made again.
    assert_eq!(data["retryable"], true, "{body}");
    "failed"
}

/// Compares what is on record with what was carried out, and with what clients were told.
async fn check(site: &Site, told: &Told) {
    let mut executed: HashMap<String, u64> = HashMap::new();
    for mark in site.read("up/executed").lines() {
        *executed.entry(mark.to_owned()).or_default() += 1;
    }
    for (mark, times) in &executed {
        assert_eq!(*times, 1, "{mark} was carried out more than once");
    }
    let mut recorded = HashMap::new();
    for record in &site.calls() {
        let arguments: Value = serde_json::from_str(&record.started.arguments.text).unwrap();
        let mark = arguments["mark"].as_str().unwrap().to_owned();
        let before = recorded.insert(mark, outcome(record));
        assert_eq!(before, None, "every call has a mark of its own");
    }
    for mark in executed.keys() {
        assert!(recorded.contains_key(mark), "{mark} ran without a record");
    }
    for (mark, outcome) in &told.outcomes {
        assert_eq!(
            recorded.get(mark).map(String::as_str),
            Some(*outcome),
            "{mark}"
        );
    }
    let mut counts: HashMap<&str, (u64, u64)> = HashMap::new();
    for (mark, outcome) in &recorded {
        let count = counts.entry(outcome).or_default();
        match executed.contains_key(mark) {
            true => count.0 += 1,
            false => count.1 += 1,
        }
    }
    println!("calls that had their effect, and that had none: {counts:?}");
    for (outcome, (with_effect, without)) in counts {
        match outcome {
            "succeeded" => assert_eq!(without, 0),
            "failed" => assert_eq!(with_effect, 0),
            // Its answer was lost, or its client was gone before it.
            "unknown" | "cancelled" => {}
            other => panic!("{with_effect} and {without} calls are {other}"),
        }
    }
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert!(
        matches!(verified.code, Some(0 | 3)),
        "{}{}",
        verified.output,
        verified.messages
    );
}

#[tokio::test]
async fn each_call_of_a_program_that_is_killed_has_one_outcome() {
    let site = stdio_site();
    let mut gateway = site.http().await;
    let clients = Clients::start(gateway.address(), 0);
    let mut times = Vec::new();
    for _ in 0..rounds() {
        clients.until_more(clients.successes()).await;
        sleep(moment()).await;
        let killed = process(&site).unwrap();
        kill(&killed);
        // Calls that ended before it was killed are told of in a moment.
        let before = clients.successes() + CLIENTS;
        wait_until("another one is started", GENEROUS, || {
            process(&site).is_some_and(|it| it != killed)
        })
        .await;
        let at = Instant::now();
        clients.until_more(before).await;
        times.push(at.elapsed());
    }
    let told = clients.stopped().await;
    gateway.process().signal("TERM").await;
    gateway.wait_exit(GENEROUS).await;
    report("the start of another one", times);
    check(&site, &told).await;
}

/// An upstream over HTTP, whose files are in `up`.
pub(crate) fn serve(site: &Site, port: u16) -> Child {
    Command::new("python3")
        .args([RECORDER, "http", "up", &port.to_string()])
        .current_dir(site.path(""))
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn each_call_of_an_http_server_that_is_killed_has_one_outcome() {
    let port = free_port();
    let site = site(json!({"url": format!("http://127.0.0.1:{port}/mcp")}));
    let answers = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    let mut upstream = serve(&site, port);
    wait_until("the upstream answers", GENEROUS, answers).await;
    let mut gateway = site.http().await;
    let clients = Clients::start(gateway.address(), 0);
    let mut times = Vec::new();
    for _ in 0..rounds() {
        clients.until_more(clients.successes()).await;
        sleep(moment()).await;
        upstream.kill().unwrap();
        upstream.wait().unwrap();
        sleep(moment()).await;
        upstream = serve(&site, port);
        wait_until("the upstream answers", GENEROUS, answers).await;
        let (at, before) = (Instant::now(), clients.successes());
        clients.until_more(before).await;
        times.push(at.elapsed());
    }
    let told = clients.stopped().await;
    gateway.process().signal("TERM").await;
    gateway.wait_exit(GENEROUS).await;
    upstream.kill().unwrap();
    upstream.wait().unwrap();
    report("the upstream answered", times);
    check(&site, &told).await;
}

#[tokio::test]
async fn each_call_of_a_program_that_is_paused_has_one_outcome() {
    let site = stdio_site();
    let mut gateway = site.http().await;
    let clients = Clients::start(gateway.address(), 0);
    let mut times = Vec::new();
    for round in 0..rounds() {
        clients.until_more(clients.successes()).await;
        sleep(moment()).await;
        let paused = process(&site).unwrap();
        send(&paused, "-STOP");
        sleep(moment()).await;
        let before = clients.successes();
        // Every third one is killed in its pause, and another one is started.
        match round % 3 {
            2 => kill(&paused),
            _ => send(&paused, "-CONT"),
        }
        if round % 3 == 2 {
            wait_until("another one is started", GENEROUS, || {
                process(&site).is_some_and(|it| it != paused)
            })
            .await;
        }
        let at = Instant::now();
        clients.until_more(before).await;
        times.push(at.elapsed());
    }
    let told = clients.stopped().await;
    gateway.process().signal("TERM").await;
    gateway.wait_exit(GENEROUS).await;
    report("a pause", times);
    // A pause alone costs no call: what was not answered was killed.
    let calls = told.outcomes.len() as u64;
    let lost = told.outcomes.values().filter(|it| **it != "succeeded");
    println!("{} of {calls} calls did not succeed", lost.count());
    check(&site, &told).await;
}

#[tokio::test]
async fn a_gateway_that_is_killed_leaves_no_child_and_every_call_on_record() {
    let site = stdio_site();
    let mut all = Told::default();
    for round in 0..rounds().div_ceil(3) {
        let mut gateway = site.http().await;
        let clients = Clients::start(gateway.address(), round);
        clients.until_more(0).await;
        sleep(moment()).await;
        gateway.process().signal("KILL").await;
        gateway.wait_exit(GENEROUS).await;
        let child = process(&site).unwrap();
        wait_until("the child has ended", GENEROUS, || !is_alive(&child)).await;
        all.outcomes.extend(clients.stopped().await.outcomes);
    }
    let mut gateway = site.http().await;
    gateway.process().signal("TERM").await;
    gateway.wait_exit(GENEROUS).await;
    assert!(site.calls().iter().all(|it| it.ended.is_some()));
    check(&site, &all).await;
}
