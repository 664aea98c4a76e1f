//! A server that is killed again and again, at moments nobody chose, while clients call.
//!
//! What must hold over all rounds together: what was executed has its start on record, what was
//! answered has its end, nobody was told of what is recorded as unknown, and the chain is whole.
//! `OWLCLAW_CRASH_ROUNDS` says how many rounds there are.

use std::{
    collections::{HashMap, HashSet},
    net::SocketAddr,
    time::Duration,
};

use ledger::{CallRecord, Filter, LedgerReader, PostgresOptions, PostgresReader, ReadLedger};
use serde_json::{Value, json};
use testkit::{GENEROUS, HttpConnection, HttpRequest, Postgres, wait_until};
use tokio::{task::JoinSet, time::sleep};

use crate::support::{Site, call, outcome, run};

/// Rounds where nobody asks for more.
const ROUNDS: u64 = 10;

/// Clients that call at the same time.
const CLIENTS: u64 = 8;

/// A server lives at most this long after its first answer.
const LONGEST_LIFE: Duration = Duration::from_millis(200);

pub(crate) fn rounds() -> u64 {
    std::env::var("OWLCLAW_CRASH_ROUNDS").map_or(ROUNDS, |text| {
        text.parse().expect("OWLCLAW_CRASH_ROUNDS is a number")
    })
}

/// A moment that differs in every round and every run.
pub(crate) fn moment() -> Duration {
    let nanoseconds = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    LONGEST_LIFE * (nanoseconds / 1_000 % 1_000) / 1_000
}

#[tokio::test]
async fn a_ledger_in_a_file_tells_the_truth_after_every_kill() {
    let site = Site::new(json!({}));
    let read = || LedgerReader::open(site.path("ledger.db")).unwrap();
    crash_and_check(&site, || Box::new(read())).await;
}

#[tokio::test]
async fn a_ledger_in_a_database_tells_the_truth_after_every_kill() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url();
    let site = Site::new(json!({
        "ledger": {"path": null, "url": url},
        "tasks": {"path": "tasks.db"},
    }));
    let options = PostgresOptions::new(&url).unwrap();
    let options = options.with_max_attempt(GENEROUS);
    let read = || PostgresReader::open(&options).unwrap();
    crash_and_check(&site, || Box::new(read())).await;
}

/// Cost of each call, in millionths, without an estimate.
const REAL: u64 = 300_000;

#[tokio::test]
async fn costs_are_counted_after_every_kill_of_a_server_with_a_sqlite_ledger() {
    let site = Site::new(json!({"governance": {"default_quota": {"monthly_budget": 1_000_000}}}));
    let read = || LedgerReader::open(site.path("ledger.db")).unwrap();
    crash_and_count(&site, || Box::new(read())).await;
}

#[tokio::test]
async fn costs_are_counted_after_every_kill_of_a_server_with_a_postgresql_ledger() {
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url();
    let site = Site::new(json!({
        "ledger": {"path": null, "url": url},
        "tasks": {"path": "tasks.db"},
        "governance": {"default_quota": {"monthly_budget": 1_000_000}},
    }));
    let options = PostgresOptions::new(&url).unwrap();
    let options = options.with_max_attempt(GENEROUS);
    crash_and_count(&site, || Box::new(PostgresReader::open(&options).unwrap())).await;
}

/// After all kills the counters have what the ledger has, to the last millionth.
async fn crash_and_count(site: &Site, open: impl Fn() -> Box<dyn ReadLedger>) {
    let mut answered = 0;
    for _ in 0..rounds() {
        let mut server = site.http().await;
        let address = server.address();
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(async move {
                let mut answered = 0;
                let mut connection = HttpConnection::connect(address).await.ok();
                while let Some(open) = connection.take() {
                    let Some((body, next)) = exchange(open, &spend("0.30")).await else {
                        break;
                    };
                    connection = Some(next);
                    answered += u64::from(body.contains("\"result\""));
                }
                answered
            });
        }
        sleep(LONGEST_LIFE / 2 + moment()).await;
        server.process().signal("KILL").await;
        server.wait_exit(GENEROUS).await;
        while let Some(calls) = clients.join_next().await {
            answered += calls.unwrap();
        }
    }
    let mut server = site.http().await;
    wait_until("nothing is open", 3 * GENEROUS, || {
        open().open_calls().unwrap().is_empty()
    })
    .await;
    // For what was running on a server that was killed, more may be held until its lease is over.
    let until = std::time::Instant::now() + 3 * GENEROUS;
    loop {
        let left = budget_left(server.address()).await;
        let spent = 1_000_000_000_000 - left;
        let calls = all_calls(&mut *open());
        let costs = calls.iter().filter_map(|call| call.ended.as_ref());
        let recorded: u64 = costs.map(|ended| ended.cost_micros).sum();
        assert!(
            answered * REAL <= recorded,
            "{answered} calls were answered"
        );
        assert!(recorded <= spent, "{spent} is counted of {recorded}");
        if spent == recorded {
            break;
        }
        assert!(
            std::time::Instant::now() < until,
            "{spent} is counted, and {recorded} was spent"
        );
        sleep(Duration::from_millis(500)).await;
    }
    assert!(0 < answered, "the server answered");
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;
}

fn spend(usd: &str) -> HttpRequest {
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": call("spend", json!({"usd": usd})),
    });
    HttpRequest::post("/mcp", message.to_string())
}

/// Rest of the budget, in millionths, as told to a call that costs nothing.
async fn budget_left(address: SocketAddr) -> u64 {
    let connection = HttpConnection::connect(address).await.unwrap();
    let (body, _) = exchange(connection, &spend("0")).await.unwrap();
    let answer: Value = serde_json::from_str(&body).unwrap();
    let left = &answer["result"]["_meta"]["io.owlclaw/quota"]["budget"];
    let left = left.as_str().unwrap_or_else(|| panic!("{body}"));
    let left: f64 = left.parse().unwrap();
    (left * 1e6).round() as u64
}

async fn crash_and_check(site: &Site, open: impl Fn() -> Box<dyn ReadLedger>) {
    let mut answered = HashSet::new();
    for round in 0..rounds() {
        let mut server = site.http().await;
        let address = server.address();
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            clients.spawn(call_until_it_dies(address, round, client));
        }
        // Any moment will do: that it is nobody's choice is the point. Only that on a busy machine it may
        // always be one before anybody has called.
        if round % 2 == 0 {
            let executed = || site.read("executed").lines().count();
            let before = executed();
            wait_until("the server is called", GENEROUS, || before < executed()).await;
        }
        sleep(moment()).await;
        server.process().signal("KILL").await;
        server.wait_exit(GENEROUS).await;
        while let Some(marks) = clients.join_next().await {
            answered.extend(marks.unwrap());
        }
    }
    // The next server says what nobody knows of the calls that the last kill cut short; of those in
    // a database when the lease of the one before has run out.
    let mut server = site.http().await;
    wait_until("nothing is open", 3 * GENEROUS, || {
        open().open_calls().unwrap().is_empty()
    })
    .await;
    server.process().signal("TERM").await;
    server.wait_exit(GENEROUS).await;

    let executed: HashSet<String> = site.read("executed").lines().map(str::to_owned).collect();
    assert!(
        rounds() / 2 <= executed.len() as u64,
        "the server was called"
    );
    assert!(!answered.is_empty(), "the server answered");
    let calls = all_calls(&mut *open());
    let mut outcomes = HashMap::new();
    for record in &calls {
        let arguments: Value = serde_json::from_str(&record.started.arguments.text).unwrap();
        let mark = arguments["mark"].as_str().unwrap().to_owned();
        let before = outcomes.insert(mark, outcome(record));
        assert_eq!(before, None, "every call has a mark of its own");
    }
    for mark in &executed {
        assert!(outcomes.contains_key(mark), "{mark} ran without a record");
    }
    for mark in &answered {
        let outcome = outcomes.get(mark).map(String::as_str);
        assert_eq!(outcome, Some("succeeded"), "{mark} was answered");
    }
    for (mark, outcome) in &outcomes {
        match outcome.as_str() {
            "succeeded" => assert!(executed.contains(mark), "{mark} never ran"),
            "unknown" => assert!(!answered.contains(mark), "{mark} was answered"),
            // Its client was gone before its answer was there: killed with the connection.
            "cancelled" => {}
            other => panic!("{mark} is {other}"),
        }
    }
    let verified = run(site.command(&["ledger", "verify"])).await;
    // After a kill the end is not sealed.
    assert!(
        matches!(verified.code, Some(0 | 3)),
        "{}{}",
        verified.output,
        verified.messages
    );
}

fn all_calls(reader: &mut dyn ReadLedger) -> Vec<CallRecord> {
    let mut all = reader.recent(usize::MAX, Filter::default()).unwrap();
    all.reverse();
    all
}

/// The marks of the calls that were answered.
async fn call_until_it_dies(address: SocketAddr, round: u64, client: u64) -> Vec<String> {
    let mut answered = Vec::new();
    let Ok(mut connection) = HttpConnection::connect(address).await else {
        return answered;
    };
    for index in 0.. {
        let mark = format!("{round}-{client}-{index}");
        let tool = if index % 4 == 0 { "linger" } else { "append" };
        let message = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": call(tool, json!({"mark": mark})),
        });
        let request = HttpRequest::post("/mcp", message.to_string());
        let Some((body, next)) = exchange(connection, &request).await else {
            return answered;
        };
        connection = next;
        // A database that does not answer in time, as happens on a busy machine, is none.
        if body.contains("\"ledger_unavailable\"") {
            continue;
        }
        assert!(body.contains(&format!("\"{mark}\"")), "{body}");
        answered.push(mark);
    }
    answered
}

/// A whole answer and the connection to ask on, or nothing.
pub(crate) async fn exchange(
    mut connection: HttpConnection,
    request: &HttpRequest,
) -> Option<(String, HttpConnection)> {
    connection.send_bytes(&request.to_bytes()).await.ok()?;
    let head = connection.read_head().await.ok()?;
    let mut body = connection.into_body(&head, false);
    let mut all = Vec::new();
    while let Some(piece) = body.try_next().await.ok()? {
        all.extend(piece);
    }
    Some((String::from_utf8(all).ok()?, body.into_connection()))
}
