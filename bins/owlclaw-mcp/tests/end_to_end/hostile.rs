//! Handlers that do what no handler should, and what the others notice of it.
#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpServer, failure_of, wait_until};

use crate::support::{Site, call, call_with_progress, text};

const HOSTILE: &str = include_str!("../../../../crates/adapter-tools/python/tests/hostile_app.py");

/// Seconds that a call of a hanging handler may take.
const TIMEOUT: u64 = 2;

/// The handlers that hang.
const HANG: [&str; 7] = [
    "sleep",
    "loop",
    "swallow-everything",
    "stuck-in-c",
    "stuck-without-the-lock",
    "stuck-with-the-lock",
    "block-the-loop",
];

/// Time that a client waits for an answer before it sends the next request.
const PATIENCE: Duration = Duration::from_millis(200);

/// Number of attempts to see that other clients are served while one handler hangs. A busy machine
/// may suspend every process for the whole of an attempt.
const ATTEMPTS: usize = 5;

/// Kind of answer to a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    /// With this text.
    Said(&'static str),
    /// With a result, whatever it is.
    Something,
    /// With a result that is an error and has this in its text.
    Failed(&'static str),
    /// A failure with this code.
    Code(i64),
    /// Clearly, one way or another.
    Clear,
}
use Answer::{Clear, Code, Failed, Said, Something};

const TIMED_OUT: Answer = Code(-32004);
const CRASHED: Answer = Code(-32005);

fn site() -> Site {
    let site = Site::new(json!({
        "workers": {"count": 4, "max_memory_bytes": 3_u64 << 27, "grace_seconds": 2},
    }));
    site.write("app.py", HOSTILE);
    for tool in HANG {
        let more = format!("owlclaw: {{timeout_seconds: {TIMEOUT}}}\n");
        site.skill("hostile", tool, &more);
    }
    site
}

/// The server's process and all below it that are alive.
fn processes(root: u32) -> Vec<u32> {
    let mut below = vec![root];
    let mut found = Vec::new();
    while let Some(one) = below.pop() {
        found.push(one);
        let tasks = std::fs::read_dir(format!("/proc/{one}/task"))
            .into_iter()
            .flatten();
        for task in tasks.flatten() {
            let children = std::fs::read_to_string(task.path().join("children"));
            let children = children.unwrap_or_default();
            below.extend(
                children
                    .split_whitespace()
                    .filter_map(|it| it.parse::<u32>().ok()),
            );
        }
    }
    found
}

/// The processes that a handler says it has started: a number, or a list of them.
fn numbers(json: &str) -> Vec<u32> {
    let one = serde_json::from_str(json).map(|number| vec![number]);
    one.or_else(|_| serde_json::from_str(json)).unwrap()
}

/// Returns true if the process exists and has not ended; a zombie has.
fn lives(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .map(|(_, rest)| rest.trim_start().to_owned());
    state.is_some_and(|state| !state.starts_with('Z'))
}

fn resident_bytes(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap();
    let kilobytes: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kilobytes * 1024
}

/// Client that calls a good handler all the time: the next call follows when the last was answered,
/// or takes too long.
struct Bystander {
    answered: Arc<AtomicUsize>,
    /// Number of calls that took too long.
    late: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<Vec<String>>,
}

impl Bystander {
    fn start(server: &HttpServer, tool: &'static str) -> Self {
        let (answered, late): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let stop = Arc::new(AtomicBool::new(false));
        let mut client = server.client();
        let (counted, counted_late) = (Arc::clone(&answered), Arc::clone(&late));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            client.open("2025-11-25").await;
            let mut wrong = Vec::new();
            let mut open = tokio::task::JoinSet::new();
            let mut judge = |reply: Value| {
                if reply["result"]["structuredContent"]["value"] == 7 {
                    counted.fetch_add(1, Ordering::Relaxed);
                } else {
                    wrong.push(reply.to_string());
                }
            };
            while !stopped.load(Ordering::Relaxed) {
                let arguments = call(tool, json!({"value": 7}));
                let mut one = client.clone();
                // The number is used up.
                let _ = client.voice.request("tools/call", json!({}));
                open.spawn(async move { one.request("tools/call", arguments).await.response });
                match tokio::time::timeout(PATIENCE, open.join_next()).await {
                    Ok(reply) => judge(reply.unwrap().unwrap()),
                    Err(_) => _ = counted_late.fetch_add(1, Ordering::Relaxed),
                }
            }
            while let Some(reply) = open.join_next().await {
                judge(reply.unwrap());
            }
            wrong
        });
        Self {
            answered,
            late,
            stop,
            task,
        }
    }

    fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    fn late(&self) -> usize {
        self.late.load(Ordering::Relaxed)
    }

    /// Calls that were not answered as they should be.
    async fn end(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap()
    }
}

fn judge(tool: &str, arguments: &Value, expected: Answer, message: &Value) {
    let what = format!("{tool} {arguments}: {:.600}", message.to_string());
    let (error, result) = (&message["error"], &message["result"]);
    assert!(error.is_object() != result.is_object(), "{what}");
    let is_error = result["isError"] == json!(true);
    match expected {
        Said(words) => {
            assert!(result.is_object() && !is_error, "{what}");
            assert_eq!(text(result), words, "{what}");
        }
        Something => assert!(result.is_object() && !is_error, "{what}"),
        Failed(words) => {
            assert!(is_error, "{what}");
            assert!(text(result).contains(words), "{what}");
        }
        Code(code) => assert_eq!(failure_of(message)["code"], code, "{what}"),
        Clear => {
            let said = error["message"]
                .as_str()
                .or_else(|| result["content"][0]["text"].as_str());
            assert!(said.is_some_and(|said| !said.is_empty()), "{what}");
        }
    }
}

#[tokio::test]
async fn what_hostile_handlers_do_is_answered_and_nobody_elses_business() {
    let rows = [
        ("print-forged-frames", json!({}), Said("quiet")),
        ("print-a-lot", json!({}), Said("quiet")),
        ("replace-stdout", json!({}), Said("quiet")),
        ("close-stdout", json!({}), Clear),
        ("return", json!({"kind": "nan"}), Said(r#"{"value":null}"#)),
        (
            "return",
            json!({"kind": "cycle"}),
            Failed("contains itself"),
        ),
        ("return", json!({"kind": "large"}), Failed("too large")),
        ("return", json!({"kind": "bytes"}), Something),
        ("return", json!({"kind": "generator"}), Said("[0,1,2]")),
        ("return", json!({"kind": "surrogate"}), Failed("surrogate")),
        (
            "return",
            json!({"kind": "datetime"}),
            Said("2026-02-28T12:30:00"),
        ),
        ("return-what-exits", json!({}), Failed("")),
        (
            "raise",
            json!({"error": "SystemExit"}),
            Failed("SystemExit"),
        ),
        ("raise", json!({"error": "unprintable"}), Failed("")),
        (
            "raise-async",
            json!({"error": "KeyboardInterrupt"}),
            Failed("KeyboardInterrupt"),
        ),
        ("raise-in-finalizer", json!({}), Said("fine")),
        ("take-all-memory", json!({}), Failed("MemoryError")),
        ("recurse", json!({}), Failed("RecursionError")),
        ("sleep", json!({}), TIMED_OUT),
        ("loop", json!({}), TIMED_OUT),
        ("swallow-everything", json!({}), TIMED_OUT),
        ("stuck-in-c", json!({}), TIMED_OUT),
        ("stuck-without-the-lock", json!({}), TIMED_OUT),
        ("stuck-with-the-lock", json!({}), TIMED_OUT),
        ("block-the-loop", json!({}), TIMED_OUT),
        ("exit", json!({}), CRASHED),
        ("crash", json!({}), CRASHED),
        ("kill-group", json!({}), CRASHED),
        ("close-all-descriptors", json!({}), CRASHED),
        ("fork-and-return", json!({}), Said("parent")),
        ("fork-and-return-async", json!({}), Said("parent")),
        ("pool", json!({}), Something),
        ("leave-a-daemon", json!({}), Something),
        ("fork-bomb", json!({}), Something),
        ("start-threads", json!({}), Said("started")),
        ("leave-tasks", json!({}), Said("fine")),
        ("stop-the-loop", json!({}), Clear),
        ("break-the-loop", json!({}), Clear),
        (
            "change-everything",
            json!({}),
            Failed("signal only works in main thread"),
        ),
    ];
    let site = site();
    let mut server = site.http().await;
    let root = server.process().id().expect("it runs");
    let mut client = server.client();
    client.open("2025-11-25").await;
    let before = resident_bytes(root);
    let bystander = Bystander::start(&server, "fine-async");
    let mut left_behind = Vec::new();
    for (tool, arguments, expected) in rows {
        assert_eq!(expected == TIMED_OUT, HANG.contains(&tool), "{tool}");
        let mut others = Vec::new();
        let reply = loop {
            let (answered, late) = (bystander.answered(), bystander.late());
            let reply = client
                .request("tools/call", call(tool, arguments.clone()))
                .await;
            judge(tool, &arguments, expected, &reply.response);
            // A handler that holds a worker up for a whole timeout holds nobody else up.
            if expected != TIMED_OUT {
                break reply;
            }
            let (answered, late) = (bystander.answered() - answered, bystander.late() - late);
            others.push((answered, late));
            println!("{answered} calls answered and {late} late while {tool} hung");
            if 5 < answered && late <= answered {
                break reply;
            }
            assert!(
                others.len() < ATTEMPTS,
                "others wait while {tool} hangs: {others:?}"
            );
        };
        if matches!(tool, "leave-a-daemon" | "fork-bomb") {
            left_behind.extend(numbers(text(reply.result())));
        }
        // Whatever it did, both kinds of handlers run on; one that is in a worker that will not end has
        // to be called again when that is killed.
        for good in ["fine", "fine-async"] {
            let until = Instant::now() + GENEROUS;
            loop {
                let reply = client
                    .request("tools/call", call(good, json!({"value": 3})))
                    .await;
                if reply.response["result"]["structuredContent"]["value"] == 3 {
                    break;
                }
                assert_eq!(reply.failure()["code"], -32005, "{good} after {tool}");
                assert!(Instant::now() < until, "{good} after {tool}");
            }
        }
    }
    assert_eq!(left_behind.len(), 21);
    let wrong = bystander.end().await;
    // Those asynchronous handlers take calls with them that run in the same worker.
    let lost = wrong
        .iter()
        .filter(|it| !it.contains("-32005") && !it.contains("-32004"));
    assert_eq!(lost.count(), 0, "{wrong:?}");
    println!("{} calls of others were lost", wrong.len());

    // What they took is given back, except for what any server needs that has worked.
    let grown = resident_bytes(root).saturating_sub(before);
    assert!(grown < 96 * 1024 * 1024, "{grown} bytes more");

    let everything = processes(root);
    assert!(3 <= everything.len(), "{everything:?}");
    server.process().signal("TERM").await;
    assert!(server.wait_exit(GENEROUS).await.success());

    let all: Vec<u32> = everything.into_iter().chain(left_behind).collect();
    wait_until("nothing is left", GENEROUS, || {
        !all.iter().any(|id| lives(*id))
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_killed_takes_stuck_workers_and_what_they_started_with_it() {
    let site = site();
    let mut server = site.http().await;
    let root = server.process().id().expect("it runs");
    let mut client = server.client();
    client.open("2025-11-25").await;
    let mut ids = Vec::new();
    for tool in ["leave-a-daemon", "fork-bomb"] {
        let reply = client.request("tools/call", call(tool, json!({}))).await;
        ids.extend(numbers(text(reply.result())));
    }
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": call_with_progress("stuck-with-the-lock", json!({}), "begun"),
    });
    let mut connection = testkit::HttpConnection::connect(server.address())
        .await
        .unwrap();
    let request = testkit::HttpRequest::post("/mcp", message.to_string());
    connection.send_bytes(&request.to_bytes()).await.unwrap();
    // It reports progress and then hangs: the answer begins with the report.
    let head = connection.read_head().await.unwrap();
    assert_eq!(head.media_type(), Some("text/event-stream"));
    ids.extend(processes(root));
    server.process().signal("KILL").await;
    server.wait_exit(GENEROUS).await;
    wait_until("nothing is left", GENEROUS, || {
        !ids.iter().any(|id| lives(*id))
    })
    .await;
}
