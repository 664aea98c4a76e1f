//! Costs that Langfuse tells after the end of calls, against a server that speaks its documented API.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ledger::{CallRecord, Filter, PostgresOptions, PostgresReader, ReadLedger};
use serde_json::{Value, json};
use testkit::{
    Conversation, HttpRequest, HttpServer, MODERN, Postgres, failure_of, succeeded, wait_until,
};

use crate::support::{END, Site, call, run};

/// The longest time that a cost takes here to be settled.
const SETTLED: Duration = Duration::from_secs(120);

const SECRET: &str = "sk-lf-canary-0b5e1d2c";

const APP: &str = r#"
from owlclaw import OwlClaw
from owlclaw_worker import Context

app = OwlClaw("thinkers")
app.mount_skills("skills")

@app.handler("think")
async def think(trace: str, ctx: Context, reported: str = "") -> str:
    if reported:
        ctx.cost(reported)
    await ctx.cost_trace(trace)
    return "thought"
"#;

/// Langfuse, as far as its documentation says: traces of version 3, observations of version 4.
#[derive(Clone, Default)]
struct Langfuse(Arc<Mutex<Facts>>);

#[derive(Default)]
struct Facts {
    /// Answers to requests about a trace, one after the other; the last for ever.
    traces: HashMap<String, Vec<Answer>>,
    asked: Vec<String>,
    unauthorized: usize,
    /// A status that everything is answered with.
    down: Option<&'static str>,
}

#[derive(Clone)]
enum Answer {
    Missing,
    Cost(f64),
    Body(String),
}

impl Langfuse {
    fn begin() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let langfuse = Self::default();
        let serving = langfuse.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.answer(stream));
            }
        });
        (langfuse, address)
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|read| 2 < read) {
            head.push_str(&line);
            line.clear();
        }
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut facts = self.0.lock().unwrap();
        facts.asked.push(target.clone());
        // pk-lf-1:sk-lf-canary-0b5e1d2c
        let basic = "authorization: Basic cGstbGYtMTpzay1sZi1jYW5hcnktMGI1ZTFkMmM=";
        let is_known = head
            .lines()
            .any(|line| line == basic || line.to_lowercase() == basic.to_lowercase());
        let (status, body) = match facts.down {
            _ if !is_known => {
                facts.unauthorized += 1;
                (
                    "401 Unauthorized",
                    json!({"error": "UnauthorizedError", "message": "Invalid credentials"})
                        .to_string(),
                )
            }
            Some(status) => (status, json!({"message": "later"}).to_string()),
            None => facts.of(&target),
        };
        let length = body.len();
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nretry-after: 1\r\n\
             connection: close\r\n\r\n{body}"
        );
    }

    fn tells(&self, trace: &str, answers: &[Answer]) {
        let mut answers = answers.to_vec();
        answers.reverse();
        self.0
            .lock()
            .unwrap()
            .traces
            .insert(trace.to_owned(), answers);
    }

    fn is(&self, down: Option<&'static str>) {
        self.0.lock().unwrap().down = down;
    }

    fn asked(&self) -> usize {
        self.0.lock().unwrap().asked.len()
    }
}

impl Facts {
    fn of(&mut self, target: &str) -> (&'static str, String) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let of_query = query.split('&').find_map(|it| it.strip_prefix("traceId="));
        let is_trace = path.strip_prefix("/api/public/traces/");
        let Some(trace) = is_trace.or(of_query.filter(|_| path == "/api/public/v2/observations"))
        else {
            return ("404 Not Found", "{}".to_owned());
        };
        let trace = trace.replace("%2D", "-");
        let answers = self
            .traces
            .entry(trace.clone())
            .or_insert_with(|| vec![Answer::Missing]);
        let answer = match answers.len() {
            1 => answers[0].clone(),
            _ => answers.pop().unwrap(),
        };
        match (answer, is_trace) {
            (Answer::Missing, Some(_)) => (
                "404 Not Found",
                json!({"error": "LangfuseNotFoundError", "message": "Trace not found"}).to_string(),
            ),
            (Answer::Missing, None) => ("200 OK", json!({"data": [], "meta": {}}).to_string()),
            (Answer::Body(body), _) => ("200 OK", body),
            (Answer::Cost(cost), Some(_)) => (
                "200 OK",
                json!({
                    "id": trace, "timestamp": "2026-11-28T09:00:00.000Z", "name": "think", "tags": [], "public": false,
                    "environment": "default", "htmlPath": "/project/p/traces/t", "latency": 1.5, "totalCost": cost,
                    "observations": [], "scores": [],
                })
                .to_string(),
            ),
            // In two pages.
            (Answer::Cost(cost), None) if !query.contains("cursor=") => {
                self.traces.get_mut(&trace).unwrap().push(Answer::Cost(cost));
                ("200 OK", json!({
                    "data": [{"id": "a", "traceId": trace, "type": "SPAN", "totalCost": null},
                        {"id": "b", "traceId": trace, "type": "GENERATION", "totalCost": cost / 4.0}],
                    "meta": {"cursor": "n+x/t="},
                }).to_string())
            }
            (Answer::Cost(cost), None) => {
                assert!(query.ends_with("cursor=n%2Bx%2Ft%3D"), "{query}");
                ("200 OK", json!({
                    "data": [{"id": "c", "traceId": trace, "type": "GENERATION", "totalCost": cost * 0.75}],
                    "meta": {},
                }).to_string())
            }
        }
    }
}

fn settings(address: SocketAddr, api: &str, more: Value) -> Value {
    let mut all = json!({
        "costs": {"langfuse": {
            "url": format!("http://{address}"), "public_key": "pk-lf-1", "secret_key": "${LANGFUSE_SECRET}",
            "api": api, "after_seconds": 1,
        }},
        "governance": {
            "default_quota": {"monthly_budget": "0.90"},
            "tools": {"think": {"estimated_cost": "0.50"}},
        },
    });
    if let (Some(all), Some(more)) = (all.as_object_mut(), more.as_object()) {
        all.extend(more.clone());
    }
    all
}

fn site(settings: Value) -> Site {
    let site = Site::new(settings);
    site.write("app.py", APP);
    site
}

async fn start(site: &Site) -> HttpServer {
    let mut command = site.command(&["start", "--transport", "http"]);
    command.env("LANGFUSE_SECRET", SECRET);
    HttpServer::spawn(command, testkit::Port::Announced(crate::support::announced)).await
}

async fn think(server: &HttpServer, who: &str, arguments: Value) -> Value {
    let mut client = server.client().with_header("x-mcp-client-id", who);
    client.open(MODERN).await;
    client
        .request("tools/call", call("think", arguments))
        .await
        .response
}

/// Entries that settle costs.
fn settled(calls: &[CallRecord]) -> Vec<&CallRecord> {
    calls
        .iter()
        .filter(|it| it.started.request_id.starts_with("cost:"))
        .collect()
}

async fn until_settled(site: &Site, count: usize) -> Vec<CallRecord> {
    wait_until("costs are settled", SETTLED, || {
        let calls = site.calls();
        let settled = settled(&calls);
        settled.len() == count && settled.iter().all(|it| it.ended.is_some())
    })
    .await;
    site.calls()
}

fn costs(calls: &[CallRecord]) -> Vec<u64> {
    calls
        .iter()
        .map(|it| it.ended.as_ref().unwrap().cost_micros)
        .collect()
}

async fn component(server: &HttpServer) -> Value {
    let answer = server.client().exchange(&HttpRequest::get("/health")).await;
    let health = answer.json();
    let components = health["components"].as_array().unwrap();
    components
        .iter()
        .find(|it| it["name"] == "costs")
        .cloned()
        .unwrap_or_default()
}

async fn kill(mut server: HttpServer) {
    server.process().signal("KILL").await;
    assert!(!server.wait_exit(END).await.success());
}

#[tokio::test]
async fn the_cost_of_a_trace_takes_the_place_of_the_estimate_in_record_and_budget() {
    for api in ["traces", "observations"] {
        let (langfuse, address) = Langfuse::begin();
        let site = site(settings(address, api, json!({})));
        let server = start(&site).await;
        // Not there yet, then growing, then what it is.
        let cheap = [
            Answer::Missing,
            Answer::Cost(0.01),
            Answer::Cost(0.02),
            Answer::Cost(0.02),
        ];
        langfuse.tells("cheap-1", &cheap);
        langfuse.tells("dear", &[Answer::Cost(0.885)]);
        assert!(succeeded(
            &think(&server, "ana", json!({"trace": "cheap-1"})).await
        ));
        // What it reports itself is what is counted meanwhile.
        let dear = think(&server, "bob", json!({"trace": "dear", "reported": "0.1"})).await;
        assert!(succeeded(&dear));
        assert_eq!(costs(&site.calls()), [0, 0], "they go on record later");
        let refused = think(&server, "ana", json!({"trace": "none"})).await;
        assert_eq!(
            failure_of(&refused)["data"]["reason"],
            "budget",
            "0.50 of 0.90 are counted: {refused}"
        );

        let calls = until_settled(&site, 2).await;
        let of = |who: &str| {
            let all: Vec<_> = calls
                .iter()
                .filter(|it| it.started.principal == who)
                .cloned()
                .collect();
            let mut costs = costs(&all);
            costs.sort_unstable();
            costs
        };
        assert_eq!(of("ana"), [0, 0, 20_000]);
        assert_eq!(of("bob"), [0, 885_000]);
        let entry = settled(&calls)[0];
        assert_eq!(entry.started.capability, "tool/think");
        assert_eq!(entry.started.via.as_deref(), Some("langfuse"));
        assert!(
            succeeded(&think(&server, "ana", json!({"trace": "none"})).await),
            "only 0.02 are spent"
        );
        let refused = think(&server, "bob", json!({"trace": "none"})).await;
        assert_eq!(
            failure_of(&refused)["data"]["reason"],
            "budget",
            "0.885 are: {refused}"
        );
        assert_eq!(langfuse.0.lock().unwrap().unauthorized, 0);

        // The next server counts the same, from the ledger: 0.02, and 0.50 that are awaited.
        kill(server).await;
        let server = start(&site).await;
        let refused = think(&server, "ana", json!({"trace": "none"})).await;
        assert_eq!(
            failure_of(&refused)["data"]["reason"],
            "budget",
            "{refused}"
        );
        let verified = run(site.command(&["ledger", "verify"])).await;
        assert!(
            matches!(verified.code, Some(0 | 3)),
            "{}{}",
            verified.output,
            verified.messages
        );
        kill(server).await;
    }
}

#[tokio::test]
async fn what_a_killed_server_has_not_read_the_next_one_reads_once() {
    let (langfuse, address) = Langfuse::begin();
    let site = site(settings(address, "traces", json!({})));
    langfuse.is(Some("503 Service Unavailable"));
    langfuse.tells("late", &[Answer::Cost(0.07)]);
    let server = start(&site).await;
    assert!(succeeded(
        &think(&server, "ana", json!({"trace": "late"})).await
    ));
    wait_until("it was asked", SETTLED, || 0 < langfuse.asked()).await;
    kill(server).await;

    let server = start(&site).await;
    let refused = think(&server, "ana", json!({"trace": "none"})).await;
    assert_eq!(
        failure_of(&refused)["data"]["reason"],
        "budget",
        "what is counted stays counted: {refused}"
    );
    langfuse.is(None);
    until_settled(&site, 1).await;
    assert!(succeeded(
        &think(&server, "ana", json!({"trace": "none"})).await
    ));
    kill(server).await;
    // Others read what it has told, and nothing twice.
    let server = start(&site).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = site.calls();
    let ours: Vec<_> = settled(&calls).into_iter().cloned().collect();
    assert_eq!(costs(&ours), [70_000]);
    kill(server).await;
}

#[tokio::test]
async fn langfuse_that_refuses_hurries_or_talks_nonsense_is_told_of_and_asked_again() {
    let (langfuse, address) = Langfuse::begin();
    let site = site(settings(address, "traces", json!({})));
    let server = start(&site).await;
    langfuse.is(Some("401 Unauthorized"));
    langfuse.tells("keys", &[Answer::Cost(0.03)]);
    assert!(succeeded(
        &think(&server, "ana", json!({"trace": "keys"})).await
    ));
    let mut told = component(&server).await;
    while told["ok"] != false {
        tokio::time::sleep(Duration::from_millis(50)).await;
        told = component(&server).await;
    }
    let detail = told["detail"].as_str().unwrap();
    assert!(
        detail.contains("1 calls wait") && detail.contains("costs.langfuse.secret_key"),
        "{detail}"
    );
    langfuse.is(None);
    let odd = [
        "no JSON".to_owned(),
        json!({"totalCost": -1.0}).to_string(),
        json!({"totalCost": "much"}).to_string(),
        json!({"totalCost": 1e300}).to_string(),
        json!({"totalCost": 0.5, "output": "x".repeat(5 << 20)}).to_string(),
    ];
    for (number, odd) in odd.into_iter().enumerate() {
        let trace = format!("odd-{number}");
        // Twice the same, so that it would be settled if it were taken for a cost.
        let answers = [
            Answer::Body(odd.clone()),
            Answer::Body(odd),
            Answer::Cost(0.03),
        ];
        langfuse.tells(&trace, &answers);
        let client = format!("client-{number}");
        assert!(succeeded(
            &think(&server, &client, json!({"trace": trace})).await
        ));
    }
    until_settled(&site, 6).await;
    assert_eq!(component(&server).await["ok"], true);
    langfuse.tells("hurried", &[Answer::Cost(0.03)]);
    langfuse.is(Some("429 Too Many Requests"));
    let before = langfuse.asked();
    assert!(succeeded(
        &think(&server, "bob", json!({"trace": "hurried"})).await
    ));
    wait_until("it is asked", SETTLED, || before < langfuse.asked()).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(
        langfuse.asked() - before <= 6,
        "it waits as long as it is asked to"
    );
    langfuse.is(None);
    let calls = until_settled(&site, 7).await;
    let ours: Vec<_> = settled(&calls).into_iter().cloned().collect();
    assert_eq!(costs(&ours), [30_000; 7]);
    assert_eq!(component(&server).await["ok"], true);
    // Neither key is anywhere.
    let log = server.stderr();
    kill(server).await;
    let basic = "cGstbGYtMTpzay1sZi1jYW5hcnktMGI1ZTFkMmM=";
    for secret in [SECRET, basic] {
        assert!(!log.contains(secret));
        let found = std::process::Command::new("grep")
            .args(["-rlF", secret])
            .arg(site.path(""))
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&found.stdout), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_that_share_a_ledger_settle_a_cost_once_and_exactly() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let (langfuse, address) = Langfuse::begin();
    let shared =
        json!({"ledger": {"path": null, "url": postgres.url()}, "tasks": {"path": "tasks.db"}});
    let sites = [0, 1].map(|_| site(settings(address, "observations", shared.clone())));
    let servers = [start(&sites[0]).await, start(&sites[1]).await];
    langfuse.tells("cheap-1", &[Answer::Missing, Answer::Cost(0.02)]);
    assert!(succeeded(
        &think(&servers[0], "ana", json!({"trace": "cheap-1"})).await
    ));
    let refused = think(&servers[1], "ana", json!({"trace": "none"})).await;
    assert_eq!(
        failure_of(&refused)["data"]["reason"],
        "budget",
        "{refused}"
    );
    let calls = || {
        let mut reader =
            PostgresReader::open(&PostgresOptions::new(&postgres.url()).unwrap()).unwrap();
        reader.recent(usize::MAX, Filter::default()).unwrap()
    };
    let (mut seen, deadline) = (calls(), tokio::time::Instant::now() + SETTLED);
    while settled(&seen).first().is_none_or(|it| it.ended.is_none()) {
        assert!(tokio::time::Instant::now() < deadline, "it is not settled");
        tokio::time::sleep(Duration::from_millis(100)).await;
        seen = tokio::task::block_in_place(calls);
    }
    assert!(succeeded(
        &think(&servers[1], "ana", json!({"trace": "none"})).await
    ));
    let spent = postgres.sql("SELECT spent FROM owlclaw_quota_principal WHERE principal = 'ana'");
    assert_eq!(
        spent.trim(),
        "520000",
        "0.02, and 0.50 that are counted of the second call"
    );
    assert_eq!(settled(&tokio::task::block_in_place(calls)).len(), 1);
    let compared = run(sites[0].command(&["ledger", "verify"])).await;
    assert!(
        matches!(compared.code, Some(0 | 3)),
        "{}{}",
        compared.output,
        compared.messages
    );
    assert!(
        compared
            .output
            .contains("counters     at least what the ledger has"),
        "{}",
        compared.output
    );
    for server in servers {
        kill(server).await;
    }
}
