//! Faults of every kind under the real program, and what a webhook hears of them.

use std::{collections::BTreeMap, process::Stdio, time::Duration};

use serde_json::{Value, json};
use testkit::{
    Answering, Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, Postgres, Received,
    Receiver, succeeded, wait_until,
};
use tokio::{
    io::AsyncWriteExt,
    process::Command,
    time::{Instant, sleep},
};

#[cfg(target_os = "linux")]
use crate::ledger_faults::Locked;
use crate::support::{Site, call, run, text};

const SECRET: &str = "whsec_0123456789";
/// Between two looks, or two attempts of a client.
const PAUSE: Duration = Duration::from_millis(50);

/// A site that tells `pager` at once, and what else `settings` say.
fn site(pager: &Receiver, mut settings: Value) -> Site {
    settings["alerts"] = json!({
        "webhooks": {"pager": {
            "url": pager.url("/hook"), "secret": SECRET, "timeout_seconds": 1,
        }},
        "min_seconds": 0,
        "server": "under test",
    });
    Site::new(settings)
}

/// The keys and states of what arrived, in order, each message once.
fn told(received: &[Received]) -> Vec<(String, String)> {
    let mut seen = BTreeMap::new();
    for (index, received) in received.iter().enumerate() {
        let body = received.json();
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        assert_eq!(received.header("x-owlclaw-delivery"), Some(&*text("id")));
        seen.entry(text("id"))
            .or_insert((index, (text("key"), text("state"))));
    }
    let mut told: Vec<_> = seen.into_values().collect();
    told.sort_unstable();
    told.into_iter().map(|(_, told)| told).collect()
}

/// Waits for this notice, and gives it.
async fn wait_told(pager: &Receiver, key: &str, state: &str) -> Value {
    let find = || {
        let received = pager.received();
        let mut bodies = received.iter().map(Received::json);
        bodies.find(|body| body["key"] == key && body["state"] == state)
    };
    let what = format!("{key} is {state}");
    wait_until(&what, 3 * GENEROUS, || find().is_some()).await;
    find().unwrap()
}

fn count(pager: &Receiver, key: &str, state: &str) -> usize {
    let wanted = (key.to_owned(), state.to_owned());
    let told = told(&pager.received());
    told.into_iter().filter(|it| *it == wanted).count()
}

/// Verdict of the receiver in `docs/alerts.md` on a request.
async fn is_ours(received: &Received, secret: &str) -> bool {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/alerts.md");
    let document = std::fs::read_to_string(document).unwrap();
    let (_, code) = document.split_once("```python\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let code = format!(
        "{code}\nimport sys\n\
         print(is_ours(sys.argv[1], sys.stdin.buffer.read(), sys.argv[2].encode()))"
    );
    let mut python = Command::new("python3")
        .args(["-c", &code])
        .args([received.header("x-owlclaw-signature").unwrap(), secret])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = python.stdin.take().unwrap();
    input.write_all(&received.body).await.unwrap();
    drop(input);
    let output = python.wait_with_output().await.unwrap();
    match &*output.stdout {
        b"True\n" => true,
        b"False\n" => false,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

/// Calls `append`; whether it was carried out.
async fn append(server: &HttpServer, mark: &str) -> bool {
    let mut client = HttpClient::new(server.address());
    let params = call("append", json!({"mark": mark}));
    let answer = client.post_modern("tools/call", params).await;
    succeeded(answer.response())
}

async fn append_at_last(server: &HttpServer) {
    let until = Instant::now() + 3 * GENEROUS;
    while !append(server, "again").await {
        assert!(Instant::now() < until, "it recovers: {}", server.stderr());
        // As a client that was refused: nothing tells it when to come back.
        sleep(PAUSE).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_locked_ledger_is_told_once_signed_and_tried_again_and_so_is_its_recovery() {
    let pager = Receiver::start().await;
    pager.answer_next([Answering::Status(500), Answering::Hang]);
    let site = site(&pager, json!({"ledger": {"max_wait_seconds": 1}}));
    let server = site.http().await;
    assert!(append(&server, "before").await);
    let locked = Locked::take(&site);
    assert!(!append(&server, "locked").await);
    let raised = wait_told(&pager, "ledger_unavailable", "raised").await;
    assert_eq!(raised["severity"], "critical");
    assert_eq!(raised["server"]["name"], "under test");
    assert!(!raised["detail"].as_str().unwrap().is_empty());
    // Twice the receiver was not well.
    let received = pager.wait(3).await;
    assert_eq!(told(&received).len(), 1, "{received:?}");
    for received in &received {
        assert!(is_ours(received, SECRET).await);
        assert!(!is_ours(received, "another").await);
    }
    locked.release();
    append_at_last(&server).await;
    let recovered = wait_told(&pager, "ledger_unavailable", "recovered").await;
    assert_eq!(recovered["alert"], raised["alert"]);
    assert_eq!(recovered["since"], raised["since"]);
    assert_eq!(told(&pager.received()).len(), 2);
}

#[tokio::test]
async fn a_ledger_that_is_taken_away_is_told() {
    let pager = Receiver::start().await;
    let site = site(&pager, json!({"ledger": {"max_wait_seconds": 1}}));
    let server = site.http().await;
    assert!(append(&server, "before").await);
    std::fs::remove_file(site.path("ledger.db")).unwrap();
    let until = Instant::now() + GENEROUS;
    while append(&server, "lost").await {
        assert!(Instant::now() < until);
        // Nothing tells a client beforehand that its next call will be refused.
        sleep(PAUSE).await;
    }
    wait_told(&pager, "ledger_unavailable", "raised").await;
    assert_eq!(count(&pager, "ledger_unavailable", "raised"), 1);
}

#[tokio::test]
async fn a_database_that_stops_is_told_of_both_parts_that_need_it() {
    let Some(mut postgres) = Postgres::start() else {
        return;
    };
    let pager = Receiver::start().await;
    let settings = json!({
        "ledger": {"path": null, "url": postgres.url(), "max_wait_seconds": 1},
        "tasks": {"path": "tasks.db"},
    });
    let site = site(&pager, settings);
    let server = site.http().await;
    assert!(append(&server, "before").await);
    postgres.stop();
    assert!(!append(&server, "meanwhile").await);
    let keys = ["ledger_unavailable", "quota_store_unavailable"];
    // Whichever a call meets first keeps it from the other, until that one notices by itself.
    let noticed = async {
        while keys.iter().any(|key| count(&pager, key, "raised") == 0) {
            append(&server, "meanwhile").await;
            // It is calls that notice, so they are made until both have.
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(3 * GENEROUS, noticed)
        .await
        .unwrap_or_else(|_| panic!("{:?}", told(&pager.received())));
    postgres.restart();
    append_at_last(&server).await;
    for key in keys {
        wait_told(&pager, key, "recovered").await;
        assert_eq!(count(&pager, key, "raised"), 1, "{key}");
    }
}

#[tokio::test]
async fn workers_that_end_again_and_again_are_told_until_they_serve() {
    let pager = Receiver::start().await;
    let settings = json!({"workers": {"count": 1, "start": "spawn", "watch": false}});
    let site = site(&pager, settings);
    let app = format!(
        "import os\nif os.path.exists('poison'):\n    os._exit(7)\n{}",
        crate::support::WORKSHOP
    );
    site.write("app.py", app);
    let server = site.http().await;
    site.write("poison", "");
    let mut client = HttpClient::new(server.address());
    client
        .post_modern("tools/call", call("die", json!({"status": 3})))
        .await;
    let raised = wait_told(&pager, "worker_crash_loop", "raised").await;
    assert_eq!(raised["severity"], "critical");
    std::fs::remove_file(site.path("poison")).unwrap();
    wait_told(&pager, "worker_crash_loop", "recovered").await;
    assert_eq!(count(&pager, "worker_crash_loop", "raised"), 1);
    assert!(append(&server, "after").await);
}

#[tokio::test]
async fn a_tool_that_ends_its_workers_is_told() {
    let pager = Receiver::start().await;
    let site = site(&pager, json!({}));
    let server = site.http().await;
    let mut client = HttpClient::new(server.address());
    let dying = async {
        while count(&pager, "worker_crash_loop", "raised") == 0 {
            let params = call("die", json!({"status": 3}));
            client.post_modern("tools/call", params).await;
            // Workers are lost one after the other, as fast as they come back.
            sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(3 * GENEROUS, dying)
        .await
        .expect("it is told");
}

#[tokio::test]
async fn budgets_are_told_at_80_and_100_percent_and_when_they_are_raised() {
    let pager = Receiver::start().await;
    let budget = |amount: &str| {
        json!({
            "clients": {"boss": {
                "tools": {"allow": ["*"]}, "quota": {"monthly_budget": amount},
            }},
            "tools": {"spend": {"estimated_cost": "0.01"}},
        })
    };
    let site = site(&pager, json!({"governance": budget("1.00")}));
    let server = site.http().await;
    let mut boss = server.client().with_header("x-mcp-client-id", "boss");
    boss.open("2025-11-25").await;
    let mut spend = async |usd: &str| {
        let params = call("spend", json!({"usd": usd}));
        boss.request("tools/call", params).await
    };
    // As much as the dearest so far is held for each: 0.75 at most, beyond half, and no more.
    for _ in 0..5 {
        assert_eq!(text(spend("0.15").await.result()), "spent");
    }
    assert_eq!(count(&pager, "budget_80:boss", "raised"), 0);
    assert_eq!(text(spend("0.07").await.result()), "spent");
    let told_80 = wait_told(&pager, "budget_80:boss", "raised").await;
    assert_eq!(told_80["severity"], "warning");
    assert_eq!(told_80["subject"], "boss");
    assert!(
        told_80["detail"].as_str().unwrap().contains("0.82"),
        "{told_80}"
    );
    assert_eq!(count(&pager, "budget_100:boss", "raised"), 0);
    assert_eq!(text(spend("0.30").await.result()), "spent");
    assert_eq!(spend("0.01").await.failure()["data"]["reason"], "budget");
    let told_100 = wait_told(&pager, "budget_100:boss", "raised").await;
    assert_eq!(told_100["severity"], "critical");

    let file = site.read("mcp-server.yaml");
    let mut all: Value = serde_json::from_str(&file).unwrap();
    all["mcp_server"]["governance"]["clients"]["boss"]["quota"]["monthly_budget"] = json!("5.00");
    site.write("new.yaml", all.to_string());
    std::fs::rename(site.path("new.yaml"), site.path("mcp-server.yaml")).unwrap();
    server.process().wait_stderr("the rules have changed").await;
    // The server learns by calls what a budget is.
    for _ in 0..2 {
        assert_eq!(text(spend("0.80").await.result()), "spent");
    }
    for key in ["budget_80:boss", "budget_100:boss"] {
        wait_told(&pager, key, "recovered").await;
        assert_eq!(count(&pager, key, "raised"), 1, "{key}");
    }
}

#[tokio::test]
async fn a_configuration_that_is_broken_while_it_runs_is_told_until_it_is_mended() {
    let pager = Receiver::start().await;
    let site = site(&pager, json!({}));
    let server = site.http().await;
    let right = site.read("mcp-server.yaml");
    site.write(
        "mcp-server.yaml",
        "mcp_server: {governance: {clents: {}}}\n",
    );
    let raised = wait_told(&pager, "policy_rejected", "raised").await;
    assert_eq!(raised["severity"], "warning");
    assert!(
        raised["detail"].as_str().unwrap().contains("clents"),
        "{raised}"
    );
    assert!(append(&server, "meanwhile").await);
    site.write("mcp-server.yaml", right);
    wait_told(&pager, "policy_rejected", "recovered").await;
    assert_eq!(told(&pager.received()).len(), 2);
}

#[tokio::test]
async fn a_file_of_a_host_that_is_broken_is_told_until_it_is_mended() {
    let pager = Receiver::start().await;
    let site = site(&pager, json!({"upstreams_files": ["mcp.json"]}));
    site.write("mcp.json", "{\"mcpServers\": ");
    let server = site.http().await;
    let raised = wait_told(&pager, "policy_rejected", "raised").await;
    let detail = raised["detail"].as_str().unwrap();
    assert!(detail.contains("mcp.json: it is no JSON"), "{raised}");
    site.write("mcp.json", "{\"mcpServers\": {}}");
    wait_told(&pager, "policy_rejected", "recovered").await;
    drop(server);
}

/// Puts a certificate that is valid for so many days, and its key, where the site has them.
async fn certify(site: &Site, days: u32) {
    let path = |name| site.path(name).display().to_string();
    let status = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args([
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-days", &days.to_string()])
        .args(["-keyout", &path("key.pem"), "-out", &path("chain.pem")])
        .stderr(Stdio::null())
        .status()
        .await;
    assert!(status.unwrap().success());
}

#[tokio::test]
async fn a_certificate_that_expires_soon_is_told_until_there_is_another() {
    let pager = Receiver::start().await;
    let tls = json!({"enabled": true, "cert_file": "chain.pem", "key_file": "key.pem"});
    let site = site(&pager, json!({"http": {"tls": tls}}));
    certify(&site, 5).await;
    let server = site.http().await;
    let raised = wait_told(&pager, "certificate_expiry", "raised").await;
    assert_eq!(raised["severity"], "warning");
    assert!(
        raised["detail"].as_str().unwrap().contains("4 days"),
        "{raised}"
    );
    certify(&site, 90).await;
    wait_told(&pager, "certificate_expiry", "recovered").await;
    assert_eq!(count(&pager, "certificate_expiry", "raised"), 1);
    drop(server);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_dead_webhook_hurts_nobody() {
    let pager = Receiver::start().await;
    pager.answer_always(Answering::Hang);
    let site = site(&pager, json!({"ledger": {"max_wait_seconds": 1}}));
    let mut server = site.http().await;
    let locked = Locked::take(&site);
    assert!(!append(&server, "locked").await);
    pager.wait(1).await;
    locked.release();
    append_at_last(&server).await;
    let client = HttpClient::new(server.address());
    let health = async || client.exchange(&HttpRequest::get("/health")).await;
    let until = Instant::now() + GENEROUS;
    loop {
        let told = health().await;
        assert!(Instant::now() < until, "{:?}", told.json());
        // It is told, and no reason to send calls elsewhere.
        if told.json().to_string().contains("does not take alerts") {
            assert_eq!(told.status, 200, "{:?}", told.json());
            break;
        }
        // What /health says is there to be asked for, and is not announced.
        sleep(PAUSE).await;
    }
    let metrics = client.exchange(&HttpRequest::get("/metrics")).await;
    let waiting = "owlclaw_mcp_alert_notices_waiting{webhook=\"pager\"}";
    assert!(metrics.text().contains(waiting), "{}", metrics.text());
    // A second may be too short for the ledger on a busy machine.
    for index in 0..50 {
        let until = Instant::now() + GENEROUS;
        while !append(&server, &format!("mark-{index}")).await {
            assert!(Instant::now() < until, "calls are refused for ever");
        }
    }
    server.process().signal("TERM").await;
    let status = server.wait_exit(GENEROUS).await;
    assert_eq!(status.code(), Some(0), "{}", server.stderr());
    let stderr = server.stderr();
    assert!(
        stderr.contains("an alert could not be delivered"),
        "{stderr}"
    );
    assert!(!stderr.contains(SECRET), "{stderr}");
    let verified = run(site.command(&["ledger", "verify"])).await;
    assert_eq!(verified.code, Some(0), "{}", verified.messages);
}

#[tokio::test]
async fn webhooks_that_make_no_sense_are_refused_and_secrets_never_shown() {
    let site = Site::new(json!({"alerts": {"webhooks": {
        "a": {"url": "ftp://h/hunter2", "secret": "hunter2"},
        "b": {"url": "https://h.example/"},
        "c": {"secret": "hunter2", "headers": {"not a name": "hunter2"}},
    }}}));
    let said = run(site.command(&["config", "validate"])).await;
    assert_eq!(said.code, Some(2), "{}", said.messages);
    let expected = [
        "`alerts.webhooks.a.url` must begin with",
        "`alerts.webhooks.b` has no `secret`",
        "`alerts.webhooks.c` has no `url`",
        "is no name of a header",
    ];
    for expected in expected {
        assert!(said.messages.contains(expected), "{}", said.messages);
    }
    assert!(!said.messages.contains("hunter2"), "{}", said.messages);

    let site = Site::new(json!({"alerts": {"webhooks": {
        "a": {"url": "https://h.example/hunter2", "secret": "hunter2",
              "headers": {"Authorization": "hunter2"}},
    }}}));
    let shown = run(site.command(&["config", "show"])).await;
    assert_eq!(shown.code, Some(0), "{}", shown.messages);
    assert!(
        shown.output.contains("alerts.webhooks.a.url"),
        "{}",
        shown.output
    );
    assert!(!shown.output.contains("hunter2"), "{}", shown.output);
}
