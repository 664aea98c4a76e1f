//! Changes on the desk: rules and definitions of upstreams.

use serde_json::{Value, json};
use testkit::{Conversation, HttpRequest, HttpResponse, MODERN};

use crate::desk::{Bank, eventually, get};
use crate::gateway::UPSTREAM;
use crate::support::{Site, call, run};

/// A bank whose configuration is written by a person, with comments.
async fn with_comments() -> Bank {
    let site = Site::new(json!({}));
    let mut settings = Bank::settings();
    let governance = settings.as_object_mut().unwrap().remove("governance");
    assert!(governance.is_some());
    let mut text = String::from("# The bank\nmcp_server:\n");
    for (name, value) in [
        ("app", json!("app.py")),
        ("python", json!("python3")),
        ("resources", json!({"skills_dir": "skills"})),
        ("ledger", json!({"path": "ledger.db"})),
        ("http", json!({"port": 0})),
        ("identity", settings["identity"].clone()),
        ("desk", settings["desk"].clone()),
    ] {
        text += &format!("  {name}: {value}\n");
    }
    text += "  governance:  # who may what\n";
    text += &indented(RULES);
    text += "  # the end\n  shutdown: {drain_seconds: 60}\n";
    site.write("mcp-server.yaml", text);
    Bank::at(site).await
}

const RULES: &str = "# Money waits for a person.
tools:
  append: {risk: [financial], confirmation: operator}  # always
default_quota: {max_calls_per_minute: 1000}
";

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}

async fn echo(bank: &Bank, value: u32) -> Value {
    let key = format!("Bearer {}", bank.key("agent"));
    let mut client = bank.server.client().with_header("authorization", &key);
    client.open(MODERN).await;
    let arguments = json!({ "value": value });
    let answer = client.request("tools/call", call("echo", arguments)).await;
    answer.response
}

/// Sends rules as an operator.
async fn send(
    bank: &Bank,
    method: &str,
    path: &str,
    text: &str,
    tag: Option<&str>,
) -> HttpResponse {
    let body = json!({ "text": text }).to_string();
    let request = HttpRequest::new(method, &format!("/admin/v1{path}")).body(body);
    let request = request.header("content-type", "application/json");
    let request = match tag {
        Some(tag) => request.header("if-match", tag),
        None => request,
    };
    bank.as_of("olga", request).await
}

#[tokio::test]
async fn rules_are_changed_with_what_they_would_have_decided_shown_before() {
    let bank = with_comments().await;
    for value in 0..3 {
        assert!(echo(&bank, value).await["result"].is_object());
    }
    let shown = bank.as_of("vera", get("/rules")).await;
    let file = shown.json()["file"].clone();
    assert_eq!(file["text"], RULES, "{}", shown.text());
    let tag = shown.header("etag").unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", file["digest"].as_str().unwrap()));

    // What is wrong is told with its place in the text, and nothing is written.
    let before = bank.site.read("mcp-server.yaml");
    let wrong = RULES.replace("confirmation: operator", "confirmation: sombody");
    let checked = send(&bank, "POST", "/rules/check", &wrong, None)
        .await
        .json();
    let problem = &checked["problems"][0];
    assert_eq!(
        (&checked["is_valid"], &problem["line"]),
        (&json!(false), &json!(3)),
        "{checked}"
    );
    let refused = send(&bank, "PUT", "/rules", &wrong, Some(&tag)).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(refused.text().contains("line 3"), "{}", refused.text());
    let escapes = "default_quota: \"\n  # the end\n  shutdown: {drain_seconds: 1}\n";
    let token = "approvals: {http_token: 0123456789abcdef}\n";
    for (text, tag, status) in [
        (RULES, None, 428),
        (RULES, Some("\"0000\""), 412),
        (RULES, Some("*"), 412),
        (RULES, Some(&*tag), 409),
        (escapes, Some(&*tag), 422),
        (token, Some(&*tag), 400),
    ] {
        let refused = send(&bank, "PUT", "/rules", text, tag).await;
        assert_eq!(refused.status, status, "{text}: {}", refused.text());
    }
    assert_eq!(bank.site.read("mcp-server.yaml"), before);

    // A dry run says which of the calls would have been refused, and by which rule.
    let closed = format!("{RULES}default:\n  tools: {{deny: [echo]}}\n");
    let checked = send(&bank, "POST", "/rules/check", &closed, None)
        .await
        .json();
    assert_eq!(checked["is_valid"], true, "{checked}");
    assert_eq!(
        checked["changes"][0]["key"],
        "governance.default.tools.deny"
    );
    let run = send(&bank, "POST", "/rules/dry-run", &closed, None)
        .await
        .json();
    assert_eq!(
        (&run["calls"], &run["different"]),
        (&json!(3), &json!(3)),
        "{run}"
    );
    let differing = &run["differing"][0];
    assert_eq!(differing["before"]["verdict"], "allowed");
    assert_eq!(differing["after"]["reason"], "permission", "{differing}");
    assert!(
        differing["after"]["rule"]
            .as_str()
            .unwrap()
            .contains("echo"),
        "{differing}"
    );
    assert_eq!(run["unlike_record"], 0, "{run}");

    // Saved, it is in force, and all else in the file is as it was.
    let saved = send(&bank, "PUT", "/rules", &closed, Some(&tag)).await;
    assert_eq!(saved.status, 200, "{}", saved.text());
    assert_eq!(saved.json()["in_force"], true, "{}", saved.text());
    let refused = echo(&bank, 3).await;
    assert_eq!(
        refused["result"]["_meta"]["io.owlclaw/error"]["reason"], "permission",
        "{refused}"
    );
    let after = bank.site.read("mcp-server.yaml");
    assert_eq!(after, before.replace(&indented(RULES), &indented(&closed)));
    // Who has looked before looks again.
    let late = send(&bank, "PUT", "/rules", RULES, Some(&tag)).await;
    assert_eq!(late.status, 412, "{}", late.text());
    let now = saved.header("etag").unwrap();
    let shown = bank.as_of("vera", get("/rules")).await;
    assert_eq!(shown.header("etag"), Some(now));

    // The ledger says who it was, how that was proved, from where, and from what to what.
    let notes = bank
        .as_of("vera", get("/notes?kind=operator_acted&limit=1"))
        .await
        .json();
    let note = &notes["notes"][0];
    assert_eq!(
        (&note["actor"], &note["detail"]["what"]),
        (&json!("operator:olga"), &json!("rules_save"))
    );
    assert_eq!(
        note["detail"]["proof"],
        "API key of olga, operator of the desk, from 127.0.0.1"
    );
    assert_eq!(note["detail"]["before"], file["digest"]);
    assert_eq!(
        format!("\"{}\"", note["detail"]["after"].as_str().unwrap()),
        now
    );
    let changed = bank
        .as_of("vera", get("/notes?kind=policy_changed&limit=1"))
        .await
        .json();
    assert_eq!(changed["notes"][0]["detail"]["cause"], "desk", "{changed}");
    assert_eq!(changed["notes"][0]["detail"]["to"], note["detail"]["to"]);
}

#[tokio::test]
async fn of_two_who_change_the_same_rules_at_once_one_is_told_to_look_again() {
    let bank = with_comments().await;
    let shown = bank.as_of("vera", get("/rules")).await;
    let tag = shown.header("etag").unwrap();
    let texts = ["confirm: [count]\n", "confirm: [echo]\n"];
    let [one, other] = texts.map(|text| send(&bank, "PUT", "/rules", text, Some(tag)));
    let (one, other) = tokio::join!(one, other);
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412], "{} {}", one.text(), other.text());
    let kept = texts[usize::from(one.status != 200)];
    let shown = bank.as_of("vera", get("/rules")).await.json();
    assert_eq!(shown["file"]["text"], kept);
}

#[tokio::test]
async fn rules_that_cannot_be_told_apart_from_the_rest_are_shown_and_not_changed() {
    // The configuration is one line of JSON.
    let bank = Bank::at(Site::new(Bank::settings())).await;
    let shown = bank.as_of("vera", get("/rules")).await;
    let told = shown.json();
    assert_eq!((shown.header("etag"), &told["file"]), (None, &Value::Null));
    let why = told["unchangeable"].as_str().unwrap();
    assert!(why.contains("mcp-server.yaml"), "{why}");
    assert!(told["governance"].is_object());
    let refused = send(&bank, "PUT", "/rules", "confirm: []\n", Some("\"x\"")).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
}

#[tokio::test]
async fn a_definition_is_held_and_approved_on_the_desk_as_by_the_commands() {
    let mut settings = Bank::settings();
    settings["upstreams"] =
        json!({"up": {"command": "python3", "args": [UPSTREAM, "stdio", "up"]}});
    let site = Site::new(settings);
    site.write("up/.keep", "");
    let bank = Bank::at(site).await;
    let key = format!("Bearer {}", bank.key("agent"));
    let mut client = bank.server.client().with_header("authorization", &key);
    client.open(MODERN).await;
    let mut answers = async |part: &str| {
        eventually(part, async || {
            let arguments = json!({"text": "said"});
            let answer = client
                .request("tools/call", call("mcp_up_echo", arguments))
                .await;
            answer.response.to_string().contains(part)
        })
        .await;
    };
    answers(r#""text":"said""#).await;
    let decide = async |what: &str, body: Value| {
        let path = format!("/admin/v1/upstreams/up/pins/{what}");
        bank.as_of("olga", HttpRequest::post(&path, body.to_string()))
            .await
    };
    let hold = |item: &str, reason: &str| json!({"item": item, "reason": reason});
    assert_eq!(decide("hold", hold("tool/ecco", "odd")).await.status, 404);
    assert_eq!(decide("hold", hold("tool/echo", " ")).await.status, 400);
    let held = decide("hold", hold("tool/echo", "under review")).await;
    assert_eq!(held.status, 200, "{}", held.text());
    assert_eq!(
        held.json()["pins"][0]["held_by"],
        json!(["olga", "under review"])
    );
    // It is in force with the answer.
    let arguments = json!({"text": "said"});
    let mut other = bank.server.client().with_header("authorization", &key);
    other.open(MODERN).await;
    let refused = other
        .request("tools/call", call("mcp_up_echo", arguments))
        .await;
    assert!(
        refused.response.to_string().contains(r#""reason":"held""#),
        "{}",
        refused.response
    );
    let listed = bank.as_of("vera", get("/pins?held=1")).await.json();
    assert_eq!(
        (&listed["count"], &listed["pins"][0]["name"]),
        (&json!(1), &json!("echo")),
        "{listed}"
    );
    let tool = bank.as_of("vera", get("/tools/mcp_up_echo")).await.json();
    assert_eq!(tool["pin"]["state"], "held by an operator", "{tool}");
    let upstream = bank.as_of("vera", get("/upstreams/up")).await.json();
    assert_eq!(upstream["held"][0]["name"], "echo", "{upstream}");
    // The command says the same.
    let words = ["upstream", "pins", "up", "--held", "--format", "json"];
    let told: Value = serde_json::from_str(&run(bank.site.command(&words)).await.output).unwrap();
    assert_eq!(told[0]["pin"]["stopped"]["by"], "olga", "{told}");

    let digest = listed["pins"][0]["to_approve"].as_str().unwrap();
    let approve =
        |digest: &str| json!({"item": "tool/echo", "digest": digest, "reason": "looked at"});
    for (digest, status) in [("0123456789", 409), ("0", 400)] {
        assert_eq!(
            decide("approve", approve(digest)).await.status,
            status,
            "{digest}"
        );
    }
    let approved = decide("approve", approve(digest)).await.json();
    assert_eq!(approved["pins"][0]["state"], "pinned", "{approved}");
    answers(r#""text":"said""#).await;
    let notes = bank
        .as_of("vera", get("/notes?kind=operator_acted"))
        .await
        .json();
    let acts: Vec<_> = notes["notes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["detail"])
        .collect();
    let act = acts
        .iter()
        .find(|it| it["what"] == "pin_approve" && it["digest"] == digest)
        .unwrap();
    assert_eq!(
        (
            &act["reason"],
            act["proof"].as_str().unwrap().contains("olga")
        ),
        (&json!("looked at"), true)
    );
    for kind in ["definition_held", "definition_approved"] {
        let notes = bank
            .as_of("vera", get(&format!("/notes?kind={kind}")))
            .await
            .json();
        assert_eq!(notes["notes"][0]["subject"], "up/tool/echo", "{notes}");
    }
}
