//! Rules that change while the server runs, what a wrong file does, and what the ledger says of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ledger::{Event, LedgerReader, NoteKind, Noted, ReadLedger};
use serde_json::{Value, json};
use testkit::{Conversation, GENEROUS, HttpClient, HttpRequest, HttpServer, MODERN, succeeded};
use tokio::time::{Instant, sleep};

use crate::support::{END, Site, call};

/// A configuration in which `allowed` are the tools of everybody, and a call of `echo` costs `cost`
/// millionths.
fn rules(allowed: &[&str], cost: u64) -> String {
    json!({"mcp_server": {
        "app": "app.py",
        "python": "python3",
        "resources": {"skills_dir": "skills"},
        "ledger": {"path": "ledger.db"},
        "http": {"port": 0},
        "governance": {
            "default_quota": {
                "monthly_budget": 1_000_000,
                "max_calls_per_minute": 1_000_000,
                "max_calls_per_day": 1_000_000,
            },
            "default": {"tools": {"allow": allowed}},
            "tools": {"echo": {"estimated_cost": format!("{}.{:06}", cost / 1_000_000, cost % 1_000_000)}},
        },
    }})
    .to_string()
}

fn site(allowed: &[&str]) -> Site {
    let site = Site::new(json!({}));
    site.write("mcp-server.yaml", rules(allowed, 1));
    site
}

/// Puts another file in the place of the configuration, all at once.
fn swap(site: &Site, text: &str) {
    site.write("new.yaml", text);
    fs::rename(site.path("new.yaml"), site.path("mcp-server.yaml")).unwrap();
}

/// Outcome of a call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Ran,
    Unknown,
    Refused,
}
use Fate::{Ran, Unknown};

async fn fate_of(client: &mut HttpClient, tool: &str) -> Fate {
    let arguments = match tool {
        "append" => json!({"mark": "x"}),
        _ => json!({"text": "x"}),
    };
    let params = call(tool, arguments);
    let answer = client.request("tools/call", params).await;
    if succeeded(&answer.response) {
        return Ran;
    }
    let message = answer.failure()["message"].to_string();
    match message.starts_with("\"unknown tool") {
        true => Unknown,
        false => Fate::Refused,
    }
}

/// Waits until this becomes of a call of `tool`.
async fn becomes(client: &mut HttpClient, tool: &str, fate: Fate) {
    let end = Instant::now() + GENEROUS;
    while fate_of(client, tool).await != fate {
        assert!(Instant::now() < end, "{tool} never becomes {fate:?}");
        // Nothing tells a client that asks for one tool.
        sleep(Duration::from_millis(20)).await;
    }
}

/// Answer of `/health` about the rules, its status first.
async fn health(server: &HttpServer) -> (u16, Value, Value) {
    let health = server.client().exchange(&HttpRequest::get("/health")).await;
    let body = health.json();
    let parts = body["components"].as_array().unwrap();
    let rules = parts.iter().find(|part| part["name"] == "rules").unwrap();
    (health.status, body["status"].clone(), rules.clone())
}

async fn health_becomes(server: &HttpServer, ok: bool) -> Value {
    let end = Instant::now() + GENEROUS;
    loop {
        let (status, told, rules) = health(server).await;
        // Wrong rules are no reason to send callers away.
        assert_eq!(status, 200);
        if rules["ok"] == ok {
            assert_eq!(told, if ok { "ok" } else { "degraded" });
            return rules;
        }
        assert!(Instant::now() < end, "never {ok}: {rules}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// All notes, the oldest first.
fn notes(site: &Site) -> Vec<Noted> {
    let mut reader = LedgerReader::open(site.path("ledger.db")).unwrap();
    let (mut notes, mut from) = (Vec::new(), 1);
    loop {
        let groups = reader.groups(from).unwrap();
        let Some(last) = groups.last() else {
            return notes;
        };
        from = last.first_sequence + last.count;
        for group in &groups {
            let (id, operations) = (Default::default(), &[][..]);
            let whole = ledger::Group {
                id,
                count: group.count,
                durable: true,
                body: &group.body,
                charges: &[],
                operations,
            };
            for entry in whole.entries(group.first_sequence).unwrap() {
                if let Event::Noted(noted) = entry.event {
                    notes.push(noted);
                }
            }
        }
    }
}

/// The version of the rules that the server began with.
fn first_version(notes: &[Noted]) -> u64 {
    of_kind(notes, NoteKind::SERVER_STARTED)[0].0.policy_version
}

fn of_kind(notes: &[Noted], kind: NoteKind) -> Vec<(&Noted, Value)> {
    let of_kind = notes.iter().filter(|it| it.kind == kind);
    of_kind
        .map(|it| (it, serde_json::from_str(&it.detail.text).unwrap()))
        .collect()
}

#[tokio::test]
async fn rules_change_without_a_restart_and_the_ledger_says_so() {
    let site = site(&["echo"]);
    let mut server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate_of(&mut client, "echo").await, Ran);
    assert_eq!(fate_of(&mut client, "append").await, Unknown);

    swap(&site, &rules(&["append"], 1));
    becomes(&mut client, "echo", Unknown).await;
    // In place, as editors do.
    site.write("mcp-server.yaml", rules(&["echo"], 1));
    becomes(&mut client, "echo", Ran).await;

    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let notes = notes(&site);
    let kinds: Vec<&str> = notes.iter().map(|it| it.kind.as_str()).collect();
    let expected = [
        "server_started",
        "policy_changed",
        "policy_changed",
        "server_stopped",
    ];
    assert_eq!(
        kinds.iter().filter(|it| expected.contains(it)).count(),
        4,
        "{kinds:?}"
    );
    let changed = of_kind(&notes, NoteKind::POLICY_CHANGED);
    let [(first, there), (second, back)] = changed.as_slice() else {
        panic!("{changed:?}")
    };
    assert_eq!((&there["from"], &there["to"]), (&back["to"], &back["from"]));
    assert_eq!(there["from"], first_version(&notes));
    assert_eq!(
        (&there["to"], &back["to"]),
        (&json!(first.policy_version), &json!(second.policy_version))
    );
    assert_eq!(there["cause"], "file");
    assert_eq!(
        there["changes"],
        json!([{"key": "governance.default.tools.allow", "from": ["echo"], "to": ["append"]}])
    );
    assert!(first.subject.ends_with("/mcp-server.yaml"), "{first:?}");
}

#[tokio::test]
async fn a_wrong_file_changes_nothing_and_is_told_with_line_and_column() {
    let site = site(&["echo"]);
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    health_becomes(&server, true).await;

    let rows = [
        (
            "mcp_server:\n  governance:\n    defalt: {}\n",
            "mcp-server.yaml:3:5: unknown key `governance.defalt`",
        ),
        (
            "mcp_server: {governance: {conditions: {x: {when: 'args.'}}}}",
            "mcp-server.yaml:1:",
        ),
        ("mcp_server: [", "mcp-server.yaml:1:"),
        ("", "mcp-server.yaml: the configuration file is empty"),
        (
            "mcp_server:\n",
            "mcp-server.yaml:1:11: `mcp_server` must be a section, found nothing",
        ),
        (
            "mcp_server:\n  governance:\n",
            "mcp-server.yaml:2:13: `governance` must be a section, found nothing",
        ),
        (
            "mcp_server: {}\n",
            "mcp-server.yaml: the configuration file says nothing of `governance` any more",
        ),
    ];
    for (text, told) in rows {
        swap(&site, text);
        let end = Instant::now() + GENEROUS;
        loop {
            let rules = health_becomes(&server, false).await;
            if rules["detail"].as_str().unwrap().starts_with(told) {
                break;
            }
            assert!(Instant::now() < end, "{text:?} is told as {rules}");
            sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(fate_of(&mut client, "echo").await, Ran, "{text:?}");
        assert_eq!(fate_of(&mut client, "append").await, Unknown, "{text:?}");
    }
    fs::remove_file(site.path("mcp-server.yaml")).unwrap();
    server.process().wait_stderr("is gone").await;
    assert_eq!(fate_of(&mut client, "append").await, Unknown);

    swap(&site, &rules(&["append"], 1));
    becomes(&mut client, "append", Ran).await;
    health_becomes(&server, true).await;
    let notes = notes(&site);
    let rejected = of_kind(&notes, NoteKind::POLICY_REJECTED);
    assert!(rows.len() <= rejected.len(), "{rejected:?}");
    let (note, detail) = &rejected[0];
    assert_eq!(note.policy_version, first_version(&notes));
    let problem = &detail["problems"][0];
    assert_eq!(
        (&problem["line"], &problem["column"]),
        (&json!(3), &json!(5))
    );
    assert_eq!(problem["key"], "governance.defalt");
}

#[tokio::test]
async fn skills_that_are_gone_while_the_server_runs_are_told_in_the_ledger() {
    let site = Site::new(json!({}));
    site.skill("shop", "echo", "owlclaw: {risk_level: critical}\n");
    let server = site.http().await;
    let rejected = |site: &Site| -> Vec<Value> {
        let notes = notes(site);
        let rejected = of_kind(&notes, NoteKind::POLICY_REJECTED);
        rejected.into_iter().map(|(_, detail)| detail).collect()
    };
    let becomes = async |causes: &[&str]| {
        let end = Instant::now() + GENEROUS;
        loop {
            let told = rejected(&site);
            let now: Vec<_> = told.iter().map(|it| it["cause"].clone()).collect();
            if now == causes {
                return told;
            }
            assert!(Instant::now() < end, "{told:?}");
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert_eq!(becomes(&[]).await, [] as [Value; 0]);
    // A volume that is not mounted is an empty directory.
    fs::rename(site.path("skills/shop"), site.path("shop")).unwrap();
    let told = becomes(&["skills"]).await;
    let message = told[0]["problems"][0]["message"].as_str().unwrap();
    assert!(message.contains("skills"), "{message}");
    // Whoever has it forgotten is told that it is not.
    server.process().signal("HUP").await;
    becomes(&["skills", "signal"]).await;
    // Once it was back, it is told anew.
    fs::rename(site.path("shop"), site.path("skills/shop")).unwrap();
    let end = Instant::now() + GENEROUS;
    while server
        .client()
        .exchange(&HttpRequest::get("/health"))
        .await
        .json()["status"]
        != "ok"
    {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    fs::rename(site.path("skills/shop"), site.path("shop")).unwrap();
    becomes(&["skills", "signal", "skills"]).await;
    server.process().signal("TERM").await;
}

#[tokio::test]
async fn a_mounted_volume_that_is_swapped_is_followed() {
    let site = site(&["echo"]);
    fs::remove_file(site.path("mcp-server.yaml")).unwrap();
    // As Kubernetes does: mcp-server.yaml -> ..data/mcp-server.yaml, and ..data is another link.
    for (version, allowed) in [("..1", "echo"), ("..2", "append")] {
        let text = rules(&[allowed], 1).replace("\"app.py\"", "\"../app.py\"");
        let text = text.replace("\"skills\"", "\"../skills\"");
        site.write(&format!("mounted/{version}/mcp-server.yaml"), text);
    }
    symlink("..1", site.path("mounted/..data")).unwrap();
    symlink(
        "..data/mcp-server.yaml",
        site.path("mounted/mcp-server.yaml"),
    )
    .unwrap();
    let words = [
        "start",
        "--transport",
        "http",
        "--config",
        "mounted/mcp-server.yaml",
    ];
    let server = site.http_by(&words).await;
    let mut client = server.client();
    client.open(MODERN).await;
    assert_eq!(fate_of(&mut client, "echo").await, Ran);
    symlink("..2", site.path("mounted/..new")).unwrap();
    fs::rename(site.path("mounted/..new"), site.path("mounted/..data")).unwrap();
    becomes(&mut client, "echo", Unknown).await;
    assert_eq!(fate_of(&mut client, "append").await, Ran);
}

#[tokio::test]
async fn what_takes_a_restart_says_so_and_a_signal_is_answered() {
    let site = site(&["echo"]);
    let server = site.http().await;
    let changed = rules(&["echo"], 1).replace("\"port\":0", "\"port\":0,\"max_sessions\":5");
    swap(&site, &changed);
    server
        .process()
        .wait_stderr("take effect at the next start")
        .await;
    // It is in the log first.
    let end = Instant::now() + GENEROUS;
    let told = "changed, and in force at the next start: http.max_sessions";
    while health(&server).await.2["detail"] != told {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(health_becomes(&server, true).await["detail"], told);
    swap(&site, &rules(&["echo"], 1));
    while health(&server).await.2.get("detail").is_some() {
        assert!(Instant::now() < end);
        sleep(Duration::from_millis(20)).await;
    }
    server.process().signal("HUP").await;
    server
        .process()
        .wait_stderr("the configuration says the same")
        .await;
    // How much the log says is no rule, and changes too.
    let with = |level: &str| {
        let log = json!({"level": level}).to_string();
        rules(&["echo"], 1).replace("\"app\":", &format!("\"logging\":{log},\"app\":"))
    };
    server.process().signal("HUP").await;
    swap(&site, &with("INFO"));
    swap(&site, &with("WARNING"));
    becomes_quiet(&server).await;
    assert_eq!(of_kind(&notes(&site), NoteKind::POLICY_CHANGED).len(), 0);
}

/// Waits until a signal is not answered in the log any more.
async fn becomes_quiet(server: &HttpServer) {
    let answers = || {
        server
            .stderr()
            .matches("the configuration says the same")
            .count()
    };
    let end = Instant::now() + GENEROUS;
    loop {
        let before = answers();
        server.process().signal("HUP").await;
        sleep(Duration::from_millis(200)).await;
        if answers() == before {
            return;
        }
        assert!(Instant::now() < end, "the log never becomes quiet");
    }
}

/// Number of times that the rules change in the test below.
const CHANGES: u64 = 1_000;

#[tokio::test]
async fn every_call_is_judged_by_exactly_one_version_of_the_rules() {
    let site = site(&["echo"]);
    let mut server = site.http().await;
    let done = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (mut client, done) = (server.client(), Arc::clone(&done));
            let answered = Arc::clone(&answered);
            tokio::spawn(async move {
                client.open(MODERN).await;
                while !done.load(Ordering::Acquire) {
                    assert_eq!(fate_of(&mut client, "echo").await, Ran);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for number in 2..=CHANGES + 1 {
        let before = answered.load(Ordering::Relaxed);
        swap(&site, &rules(&["echo"], number));
        server.process().signal("HUP").await;
        // Each change by itself, and at least a call between two.
        let (end, changes) = (Instant::now() + GENEROUS, number as usize - 1);
        while server.stderr().matches("the rules have changed").count() < changes
            || answered.load(Ordering::Relaxed) == before
        {
            assert!(Instant::now() < end, "nothing comes of change {number}");
            sleep(Duration::from_millis(1)).await;
        }
    }
    let mut client = server.client();
    client.open(MODERN).await;
    let end = Instant::now() + GENEROUS;
    loop {
        let _ = fate_of(&mut client, "echo").await;
        answered.fetch_add(1, Ordering::Relaxed);
        let last = site.calls().pop().unwrap();
        if last.started.estimated_cost_micros == CHANGES + 1 {
            break;
        }
        assert!(Instant::now() < end, "the last rules are never in force");
    }
    done.store(true, Ordering::Release);
    for caller in callers {
        caller.await.unwrap();
    }
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());

    let calls = site.calls();
    assert_eq!(calls.len() as u64, answered.load(Ordering::Relaxed));
    // What a call was expected to cost says which file judged it; the ledger says which version.
    let mut files: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for call in &calls {
        assert_eq!(crate::support::outcome(call), "succeeded");
        let file = call.started.estimated_cost_micros;
        files
            .entry(call.started.policy_version)
            .or_default()
            .insert(file);
    }
    assert!(files.values().all(|files| files.len() == 1), "{files:?}");
    let distinct: BTreeSet<_> = files.values().flatten().collect();
    assert_eq!(distinct.len(), files.len());
    let notes = notes(&site);
    let noted: BTreeSet<u64> = of_kind(&notes, NoteKind::POLICY_CHANGED)
        .iter()
        .map(|(note, _)| note.policy_version)
        .chain([first_version(&notes)])
        .collect();
    assert!(files.keys().all(|version| noted.contains(version)));
    assert_eq!(noted.len() as u64, CHANGES + 1);
    // And each of them has judged.
    assert!(CHANGES / 2 < files.len() as u64, "{}", files.len());
}

/// A pipe that nobody writes to keeps no rules from being in force, and whoever puts it there is told of.
#[tokio::test]
async fn a_pipe_in_the_place_of_a_sessions_file_freezes_nothing() {
    let site = site(&["echo"]);
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    let session = site.path("mcp-server.local.yaml");
    let made = std::process::Command::new("mkfifo").arg(&session).status();
    assert!(made.unwrap().success());
    let rules_of = health_becomes(&server, false).await;
    assert!(
        rules_of["detail"].to_string().contains("it is a pipe"),
        "{rules_of}"
    );
    fs::remove_file(&session).unwrap();
    health_becomes(&server, true).await;
    swap(&site, &rules(&["append"], 1));
    becomes(&mut client, "echo", Unknown).await;
    // A session's file that is made while the server runs is noticed.
    fs::write(&session, "mcp_server: {governance: {}}").unwrap();
    let rules_of = health_becomes(&server, false).await;
    assert!(
        rules_of["detail"].to_string().contains("session"),
        "{rules_of}"
    );
}
