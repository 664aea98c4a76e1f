//! Changes on the desk: rules and definitions of upstreams.

use serde_json::{Value, json};
use testkit::{Conversation, HttpRequest, HttpResponse, MODERN};

use crate::desk::{Bank, eventually, get};
use crate::gateway::UPSTREAM;
use crate::secrets::LEAKY;
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

/// A value that stands nowhere else.
fn canary(name: &str) -> String {
    format!("qzx-{name}-7c4n4ry81")
}

/// True if a file below this directory has the text.
fn has(directory: &std::path::Path, text: &str) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => has(&path, text),
            // Files of a ledger come and go.
            false => std::fs::read(&path)
                .is_ok_and(|it| it.windows(text.len()).any(|it| it == text.as_bytes())),
        }
    })
}

#[tokio::test]
async fn a_secret_is_set_and_removed_on_the_desk_and_told_by_nothing() {
    let mut settings = Bank::settings();
    settings["vault"] = json!({"path": "vault", "key_file": "vault.key"});
    settings["upstreams"] = json!({"one": {
        "command": "python3", "args": [LEAKY, "stdio"], "env": {"LEAK_A": "${vault:ONE}"},
    }});
    let bank = Bank::at(Site::new(settings)).await;
    let mut told = String::new();
    let set = |body: String| {
        let request = HttpRequest::post("/admin/v1/secrets", body);
        request.header("content-type", "application/json")
    };
    let one = |value: &str| json!({"name": "ONE", "value": value}).to_string();
    // Without a vault it is said how to make one.
    let none = bank.as_of("vera", get("/secrets")).await.json();
    assert_eq!(
        (&none["is_there"], &none["secrets"]),
        (&json!(false), &json!([]))
    );
    let refused = bank.as_of("olga", set(one(&canary("a")))).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert!(refused.text().contains("owlclaw-mcp vault init"));
    told += refused.text();
    let made = run(bank.site.command(&["vault", "init"])).await;
    assert_eq!(made.code, Some(0), "{}", made.messages);

    // Operators alone set secrets, and their pages with the token of the session.
    for name in ["vera", "abel"] {
        let refused = bank.as_of(name, set(one(&canary("a")))).await;
        assert_eq!(refused.status, 403, "{name}");
    }
    let browser = bank.sign_in("olga").await;
    for request in [
        set(one(&canary("a"))).header("cookie", &browser.cookie),
        browser
            .dress(&bank, set(one(&canary("a"))))
            .with("origin", "https://evil.example"),
        browser
            .dress(&bank, set(one(&canary("a"))))
            .with("x-csrf-token", "x"),
    ] {
        let refused = bank.ask(request).await;
        assert_eq!(refused.status, 403, "{}", refused.text());
    }
    // What is wrong is told without a word of what was sent, which may be the value.
    for body in [
        json!({"name": "ONE", "value": 7_481_928_374_u64}).to_string(),
        json!({"name": "ONE", "valeu": canary("a")}).to_string(),
        json!({"name": canary("a"), "value": [canary("a")]}).to_string(),
        json!({"name": format!("{} ", canary("a")), "value": "ONE"}).to_string(),
        one(""),
        one(&"x".repeat(65_537)),
        canary("a"),
        format!("{{\"name\": \"ONE\", \"value\": \"{}", canary("a")),
    ] {
        let refused = bank.as_of("olga", set(body)).await;
        assert_eq!(refused.status, 400, "{}", refused.text());
        assert!(!refused.text().contains("7481928374"), "{}", refused.text());
        told += refused.text();
    }
    let nothing = bank.as_of("vera", get("/secrets")).await.json();
    assert_eq!(nothing["secrets"], json!([]));

    let answer = bank.ask(browser.dress(&bank, set(one(&canary("a"))))).await;
    assert_eq!(
        answer.json(),
        json!({"name": "ONE", "was_there": false, "is_short": false})
    );
    let key = format!("Bearer {}", bank.key("agent"));
    let mut client = bank.server.client().with_header("authorization", &key);
    client.open(MODERN).await;
    let mut answers = async |part: &str| {
        eventually(part, async || {
            let answer = client
                .request("tools/call", call("mcp_one_plain", json!({})))
                .await;
            answer.response.to_string().contains(part)
        })
        .await;
    };
    answers("[redacted secret]").await;
    let again = bank.as_of("olga", set(one(&canary("b")))).await.json();
    assert_eq!(again["was_there"], true, "{again}");
    let short = json!({"name": "SHORT", "value": "hunter2"}).to_string();
    let short = bank.as_of("olga", set(short)).await.json();
    assert_eq!(short["is_short"], true, "{short}");
    // The command says the same of it.
    let listed = bank.as_of("vera", get("/secrets")).await;
    told += listed.text();
    let words = ["vault", "list", "--format", "json"];
    let same: Value = serde_json::from_str(&run(bank.site.command(&words)).await.output).unwrap();
    let listed = listed.json();
    assert_eq!(listed["secrets"], same["secrets"]);
    assert_eq!(
        (
            &listed["secrets"][0]["name"],
            &listed["secrets"][0]["used_in"]
        ),
        (&json!("ONE"), &json!(["upstreams.one.env.LEAK_A"])),
        "{listed}"
    );

    let remove = |name: &str| HttpRequest::new("DELETE", &format!("/admin/v1/secrets/{name}"));
    assert_eq!(bank.as_of("abel", remove("ONE")).await.status, 403);
    let absent = bank.as_of("olga", remove("ON")).await;
    assert_eq!(absent.status, 404);
    assert!(
        absent.text().contains("did you mean `ONE`?"),
        "{}",
        absent.text()
    );
    assert_eq!(bank.as_of("olga", remove("ONE")).await.status, 200);
    answers("is held").await;

    // On record is who it was, how that was proved, and of what; and the value is nowhere.
    let notes = bank.as_of("vera", get("/notes?kind=operator_acted")).await;
    told += notes.text();
    let notes = notes.json();
    let acts = notes["notes"].as_array().unwrap().iter();
    let acts = acts.filter(|it| {
        it["detail"]["what"]
            .as_str()
            .unwrap()
            .starts_with("secret_")
    });
    let acts: Vec<_> = acts
        .map(|it| {
            assert_eq!(it["actor"], "operator:olga", "{it}");
            let proof = it["detail"]["proof"].as_str().unwrap();
            assert!(proof.contains("operator of the desk, from 127.0.0.1"));
            format!("{} {}", it["detail"]["what"], it["subject"]).replace('"', "")
        })
        .collect();
    assert_eq!(
        acts,
        [
            "secret_remove ONE",
            "secret_remove ON",
            "secret_set SHORT",
            "secret_set ONE",
            "secret_set ONE"
        ]
    );
    told += &bank.server.stderr();
    for name in ["a", "b"] {
        assert!(!told.contains(&canary(name)), "{told}");
        assert!(!has(&bank.site.path(""), &canary(name)), "{name}");
    }
}
