//! Two clients with different rights, their limits, and what survives a restart.

use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpClient, HttpServer, MODERN, Reply, failure_of, wait_until,
};

use crate::support::{END, Site, call, names, outcome, run, text};

/// A reader who may do little and a boss who may spend.
fn shop() -> Site {
    let site = Site::new(json!({"governance": {
        "default": {"tools": {"allow": []}, "resources": {"allow": []}},
        "clients": {
            "reader": {
                "tools": {"allow": ["echo", "append"]},
                "resources": {"allow": ["skill://stock/*"]},
                "quota": {"max_calls_per_minute": 3},
            },
            "boss": {
                "tools": {"allow": ["*"], "deny": ["fail"], "hide": ["die"]},
                "resources": {"allow": ["*"]},
                "quota": {"monthly_budget": "1.00", "max_cost_per_call": "0.60"},
            },
            "worker": {
                "tools": {"allow": ["append"]},
                "quota": {"max_calls_per_day": 2},
            },
        },
        "tools": {
            "spend": {"estimated_cost": "0.40"},
            "large": {"estimated_cost": "0.61"},
            "nap": {"max_calls_per_minute": 1},
        },
    }}));
    site.skill("stock", "counting", "");
    site.skill("sales", "report", "");
    site
}

fn client_of(server: &HttpServer, name: &str) -> HttpClient {
    server.client().with_header("x-mcp-client-id", name)
}

async fn tools(peer: &mut impl Conversation) -> Vec<String> {
    let listed = peer.request("tools/list", Value::Null).await;
    names(listed.result(), "tools", "name")
}

async fn resources(peer: &mut impl Conversation) -> Vec<String> {
    let listed = peer.request("resources/list", Value::Null).await;
    names(listed.result(), "resources", "uri")
}

async fn append(peer: &mut impl Conversation, mark: &str) -> Reply {
    peer.request("tools/call", call("append", json!({"mark": mark})))
        .await
}

async fn spend(peer: &mut impl Conversation, usd: &str) -> Reply {
    peer.request("tools/call", call("spend", json!({"usd": usd})))
        .await
}

/// The reason of a refusal.
fn reason(reply: &Reply) -> String {
    let refused = reply.failure();
    assert_eq!(refused["code"], -32003, "{reply:?}");
    refused["data"]["reason"].as_str().unwrap().to_owned()
}

async fn sees_what_it_may(reader: &mut impl Conversation, boss: &mut impl Conversation) {
    assert_eq!(tools(reader).await, ["echo", "append"]);
    assert_eq!(resources(reader).await, ["skill://stock/counting"]);
    let all = tools(boss).await;
    assert!(
        all.contains(&"fail".to_owned()),
        "what is denied is seen: {all:?}"
    );
    assert!(
        !all.contains(&"die".to_owned()),
        "what is hidden is not: {all:?}"
    );
    assert_eq!(
        resources(boss).await,
        ["skill://sales/report", "skill://stock/counting"]
    );

    // Hidden and absent cannot be told apart.
    let of = |name: &str| call(name, json!({}));
    let hidden = boss.request("tools/call", of("die")).await;
    let absent = boss.request("tools/call", of("dye")).await;
    assert_eq!(
        hidden.error().to_string(),
        absent.error().to_string().replace("dye", "die")
    );
    let hidden = reader.request("tools/call", of("spend")).await;
    let absent = reader.request("tools/call", of("spent")).await;
    assert_eq!(
        hidden.error().to_string(),
        absent.error().to_string().replace("spent", "spend")
    );
    let uri = |name: &str| json!({"uri": format!("skill://sales/{name}")});
    let hidden = reader.request("resources/read", uri("report")).await;
    let absent = reader.request("resources/read", uri("rapport")).await;
    let swapped = absent.error().to_string().replace("rapport", "report");
    assert_eq!(hidden.error().to_string(), swapped);
    let _ = boss.request("resources/read", uri("report")).await.result();

    let denied = boss
        .request("tools/call", call("fail", json!({"why": "x"})))
        .await;
    assert_eq!(reason(&denied), "permission");
    assert_eq!(denied.failure()["data"]["retryable"], false);
}

#[tokio::test]
async fn clients_see_and_use_what_they_may_over_http() {
    let site = shop();
    let server = site.http().await;
    for version in ["2025-06-18", MODERN] {
        let (mut reader, mut boss) = (client_of(&server, "reader"), client_of(&server, "boss"));
        reader.open(version).await;
        boss.open(version).await;
        sees_what_it_may(&mut reader, &mut boss).await;
    }
    let mut stranger = client_of(&server, "stranger");
    stranger.open(MODERN).await;
    assert_eq!(tools(&mut stranger).await, Vec::<String>::new());
    assert_eq!(resources(&mut stranger).await, Vec::<String>::new());
}

#[tokio::test]
async fn clients_see_and_use_what_they_may_over_stdio() {
    let (first, second) = (shop(), shop());
    let (mut reader, mut boss) = (first.stdio_as("reader"), second.stdio_as("boss"));
    reader.open("2025-06-18").await;
    boss.open("2025-06-18").await;
    sees_what_it_may(&mut reader, &mut boss).await;
    let principals: Vec<_> = second
        .calls()
        .into_iter()
        .map(|it| it.started.principal)
        .collect();
    assert!(principals.iter().all(|it| it == "boss") && !principals.is_empty());
}

#[tokio::test]
async fn each_client_has_its_own_quota_and_is_told_what_is_left() {
    let site = shop();
    let server = site.http().await;
    let mut reader = client_of(&server, "reader");
    for left in [2, 1, 0] {
        let params = call("append", json!({"mark": format!("left {left}")}));
        let answer = reader.post_modern("tools/call", params).await;
        let quota = &answer.result()["_meta"]["io.owlclaw/quota"];
        assert_eq!(quota["minute"], left, "{quota}");
        let policy = answer.http.header("ratelimit-policy").unwrap();
        assert!(policy.contains("\"minute\";q=3;w=60"), "{policy}");
        let state = answer.http.header("ratelimit").unwrap();
        assert!(state.contains(&format!("\"minute\";r={left}")), "{state}");
        assert!(answer.http.header("x-owlclaw-budget-remaining").is_some());
    }
    let params = call("append", json!({"mark": "one too many"}));
    let refused = reader.post_modern("tools/call", params).await;
    let refusal = failure_of(refused.response());
    assert_eq!(refused.http.status, 200);
    assert_eq!(refusal["code"], -32003);
    let data = &refusal["data"];
    assert_eq!(
        (&data["reason"], &data["retryable"]),
        (&json!("rate_minute"), &json!(true))
    );
    let retry_after = data["retry_after"].as_u64().unwrap();
    // The window slides in steps of a second, so it may be one more.
    assert!((1..=61).contains(&retry_after), "{retry_after}");
    let header = refused.http.header("retry-after").unwrap();
    assert_eq!(header, retry_after.to_string());
    assert!(!site.read("executed").contains("one too many"));

    // Nobody else pays for that.
    let mut boss = client_of(&server, "boss");
    boss.open("2025-06-18").await;
    assert_eq!(text(append(&mut boss, "boss").await.result()), "boss");
    // A limit of one tool is one of each client's.
    let nap = || call("nap", json!({"seconds": 0}));
    let _ = boss.request("tools/call", nap()).await.result();
    assert_eq!(
        reason(&boss.request("tools/call", nap()).await),
        "rate_minute"
    );
    let _ = append(&mut boss, "another tool").await.result();

    let ends: Vec<_> = site.outcomes("append");
    assert_eq!(ends[..4], ["succeeded", "succeeded", "succeeded", "denied"]);
}

#[tokio::test]
async fn budgets_hold_and_what_a_call_really_cost_counts() {
    let site = shop();
    let mut boss = site.stdio_as("boss");
    boss.open("2025-06-18").await;
    // Reserved at 0.40, settled at what was spent.
    let spent = spend(&mut boss, "0.05").await;
    let left = &spent.result()["_meta"]["io.owlclaw/quota"]["budget"];
    assert_eq!(left, "0.95");
    let _ = spend(&mut boss, "0.45").await.result();
    let spent = spend(&mut boss, "0.20").await;
    assert_eq!(spent.result()["_meta"]["io.owlclaw/quota"]["budget"], "0.3");
    let refused = spend(&mut boss, "0.01").await;
    assert_eq!(reason(&refused), "budget");
    assert_eq!(refused.failure()["data"]["remaining"]["budget"], "0.3");
    let dear = boss
        .request("tools/call", call("large", json!({"megabytes": 0})))
        .await;
    assert_eq!(reason(&dear), "cost_per_call");
    // What costs nothing still goes.
    let _ = append(&mut boss, "free").await.result();
    let costs: Vec<_> = site
        .calls()
        .iter()
        .filter(|it| it.started.capability == "tool/spend")
        .map(|it| (outcome(it), it.ended.as_ref().unwrap().cost_micros))
        .collect();
    let expected = [
        ("succeeded", 50_000),
        ("succeeded", 450_000),
        ("succeeded", 200_000),
        ("denied", 0),
    ];
    assert_eq!(costs, expected.map(|(end, cost)| (end.to_owned(), cost)));
}

/// Money is as exact as calls are, also where the answer does not wait for the handler's end.
#[tokio::test]
async fn costs_of_calls_that_are_given_up_are_charged() {
    let site = Site::new(json!({
        "governance": {"default_quota": {"monthly_budget": "1.20"}},
        "tools": {"default_timeout_seconds": 2},
    }));
    let mut server = site.stdio_as("ana");
    server.open("2025-11-25").await;
    let clean_up = |blocks: bool| call("clean-up", json!({"usd": "0.40", "blocks": blocks}));
    for blocks in [false, true] {
        let request = server.voice.request("tools/call", clean_up(blocks));
        server.send(&request).await;
        wait_until("it runs", GENEROUS, || {
            site.read("cleaning").contains("begun")
        })
        .await;
        let of = json!({"requestId": request["id"]});
        let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": of});
        server.send(&cancel).await;
        wait_until("it is in the ledger", GENEROUS, || {
            let outcomes = site.outcomes("clean-up");
            outcomes.len() == 1 + usize::from(blocks) && outcomes.iter().all(|it| it == "cancelled")
        })
        .await;
        site.write("cleaning", "");
    }
    let late = server.request("tools/call", clean_up(false)).await;
    assert_eq!(late.failure()["code"], -32004, "{late:?}");
    let refused = server.request("tools/call", clean_up(false)).await;
    assert_eq!(reason(&refused), "budget");
    let costs: Vec<_> = site
        .calls()
        .iter()
        .map(|it| (outcome(it), it.ended.as_ref().unwrap().cost_micros))
        .collect();
    let expected = [
        ("cancelled", 400_000),
        ("cancelled", 400_000),
        ("timed_out", 400_000),
        ("denied", 0),
    ];
    assert_eq!(costs, expected.map(|(end, cost)| (end.to_owned(), cost)));
}

/// Cheap calls beside a dear one do not make it forgotten, by a restart or by `governance explain`.
#[tokio::test]
async fn the_dearest_call_is_known_after_a_restart() {
    let site = Site::new(json!({"governance": {"default_quota": {"monthly_budget": "1.00"}}}));
    let mut server = site.stdio_as("ana");
    server.open("2025-06-18").await;
    for usd in ["0.01", "0.60"] {
        let spent = spend(&mut server, usd).await;
        assert_eq!(spent.result()["isError"], Value::Null, "{spent:?}");
    }
    drop(server);
    let words = "governance explain --as ana --tool spend --args {\"usd\":\"0.01\"} --format json";
    let words: Vec<_> = words.split(' ').collect();
    let said = run(site.command(&words)).await;
    let explained: Value = serde_json::from_str(&said.output).unwrap();
    assert_eq!(explained["reason"], "budget", "{explained}");
    let mut server = site.stdio_as("ana");
    server.open("2025-06-18").await;
    let refused = spend(&mut server, "0.01").await;
    assert_eq!(reason(&refused), "budget", "{refused:?}");
}

#[tokio::test]
async fn a_restart_frees_nobodys_quota() {
    let site = shop();
    let rounds = [
        ("boss", "budget"),
        ("reader", "rate_minute"),
        ("worker", "rate_day"),
    ];
    for (client, expected) in rounds {
        for is_restarted in [false, true] {
            let mut server = site.stdio_as(client);
            server.open("2025-06-18").await;
            let attempts = if is_restarted { 1 } else { 4 };
            let mut last = None;
            for _ in 0..attempts {
                last = Some(match client {
                    "boss" => spend(&mut server, "0.35").await,
                    _ => append(&mut server, client).await,
                });
            }
            assert_eq!(
                reason(&last.unwrap()),
                expected,
                "restarted: {is_restarted}"
            );
            if client == "reader" {
                // Killed, so that nothing but the ledger can have told.
                server.process().signal("KILL").await;
            }
            server.close_input();
            server.wait_exit(END).await;
        }
    }
    let executed = site.read("executed");
    let count = |mark: &str| executed.lines().filter(|it| *it == mark).count();
    assert_eq!((count("reader"), count("worker")), (3, 2));
}

#[tokio::test]
async fn every_call_is_in_the_ledger_with_who_what_and_how_it_ended() {
    let site = shop();
    let mut boss = site.stdio_as("boss");
    boss.open("2025-06-18").await;
    let _ = boss
        .request("tools/call", call("echo", json!({"text": "kept"})))
        .await
        .result();
    let _ = boss
        .request("tools/call", call("echo", json!({"text": 5})))
        .await
        .error();
    let _ = boss
        .request("tools/call", call("die", json!({})))
        .await
        .error();
    let _ = boss
        .request("tools/call", call("fail", json!({"why": "x"})))
        .await
        .failure();
    let _ = boss
        .request("resources/read", json!({"uri": "skill://stock/counting"}))
        .await
        .result();
    let calls = site.calls();
    let rows: Vec<_> = calls
        .iter()
        .map(|it| {
            assert_eq!(
                (it.started.principal.as_str(), it.started.transport.as_str()),
                ("boss", "stdio")
            );
            assert!(0 < it.started.at_us);
            (
                it.started.capability.as_str(),
                outcome(it),
                it.ended.as_ref().unwrap().error_code,
            )
        })
        .collect();
    let expected = [
        ("tool/echo", "succeeded", None),
        ("tool/echo", "invalid", Some(-32602)),
        ("tool/die", "denied", Some(-32001)),
        ("tool/fail", "denied", Some(-32003)),
        ("resource/skill://stock/counting", "succeeded", None),
    ];
    let expected = expected.map(|(what, end, code)| (what, end.to_owned(), code));
    assert_eq!(rows, expected);
    assert_eq!(calls[0].started.arguments.text, r#"{"text":"kept"}"#);
    let ended = calls[0].ended.as_ref().unwrap();
    assert!(ended.result.text.contains("kept") && 0 < ended.duration_us);
}
