//! Prompts from files: offered, completed, governed, recorded, followed and rolled back.

use serde_json::{Value, json};
use testkit::{Conversation, HttpClient, HttpRequest, LinePeer, MODERN, REVISIONS, StdioServer};
use tokio::process::Command;

use crate::support::{END, Said, Site, names, outcome, run};

const REPLY: &str = "---
title: Reply to a mail
description: Writes a reply.
tags: [mail]
category: communication
arguments:
- {name: mail, required: true, max_length: 2000}
- {name: points, type: array, description: What to say., default: []}
- {name: tone, enum: [formal, friendly], default: formal}
---
## user
Reply to this mail in a {{ tone }} tone:

{{ mail }}
{% for point in points %}
- {{ point }}
{% endfor %}
{% include \"_sign.md\" %}
## assistant
Dear reader,
";

/// A site with prompts and without an application.
fn site(settings: Value) -> Site {
    let mut all = json!({"app": null, "prompts": {"dir": "prompts"}});
    for (key, value) in settings.as_object().unwrap() {
        all[key] = value.clone();
    }
    let site = Site::new(all);
    site.write("prompts/email.reply/1.0.md", "---\n---\nAn older text.");
    site.write("prompts/email.reply/1.1.md", REPLY);
    site.write("prompts/_sign.md", "Sign as {{ tone }} people do.\n");
    site.write(
        "prompts/greeting.md",
        "---\ndescription: Greets.\n---\nSay hello.",
    );
    site
}

fn get(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

async fn listed(peer: &mut impl Conversation) -> Vec<String> {
    let listed = peer.request("prompts/list", Value::Null).await;
    names(listed.result(), "prompts", "name")
}

/// Use of prompts by a client, in the revision that it has agreed on.
async fn use_prompts(peer: &mut impl Conversation, version: &str) {
    let list = peer.request("prompts/list", Value::Null).await;
    let prompts = &list.result()["prompts"];
    assert_eq!(prompts[0]["name"], "email.reply", "{version}");
    assert_eq!(prompts[0]["arguments"][0]["required"], true);
    let told = prompts[0]["arguments"][2]["description"].as_str().unwrap();
    assert_eq!(told, "One of `formal`, `friendly`. Default: `formal`.");
    let mail = "{{ tone }}{% include \"_sign.md\" %}";
    let arguments = json!({"mail": mail, "points": r#"["a", "b"]"#, "tone": "friendly"});
    let filled = peer
        .request("prompts/get", get("email.reply", arguments))
        .await;
    let messages = &filled.result()["messages"];
    assert_eq!(messages[0]["role"], "user");
    let expected = format!(
        "Reply to this mail in a friendly tone:\n\n{mail}\n- a\n- b\nSign as friendly people do."
    );
    assert_eq!(messages[0]["content"]["text"], expected, "{version}");
    assert_eq!(messages[1]["role"], "assistant");
    let older = peer
        .request("prompts/get", get("email.reply@1.0", json!({})))
        .await;
    assert_eq!(
        older.result()["messages"][0]["content"]["text"],
        "An older text."
    );
    for (name, arguments, expected) in [
        ("email.reply", json!({}), "`mail`"),
        (
            "email.reply",
            json!({"mail": "x", "tone": "rude"}),
            "send one of `formal`, `friendly`",
        ),
        (
            "email.reply",
            json!({"mail": "x", "tune": "x"}),
            "did you mean `tone`?",
        ),
        (
            "email.reply",
            json!({"mail": "x", "points": "a, b"}),
            "send a list as JSON",
        ),
        ("email.reply@9", json!({}), "it has `1.0`, `1.1`"),
        ("email", json!({}), "there is no prompt of this name"),
    ] {
        let refused = peer.request("prompts/get", get(name, arguments)).await;
        assert_eq!(refused.code(), -32602, "{refused:?}");
        assert!(
            refused.error().to_string().contains(expected),
            "{expected}: {refused:?}"
        );
    }
}

async fn complete(peer: &mut impl Conversation, argument: &str, value: &str) -> Value {
    let reference = json!({"type": "ref/prompt", "name": "email.reply"});
    let argument = json!({"name": argument, "value": value});
    let completed = peer
        .request(
            "completion/complete",
            json!({"ref": reference, "argument": argument}),
        )
        .await;
    completed.result()["completion"]["values"].clone()
}

#[tokio::test]
async fn prompts_are_offered_in_every_revision_over_stdio() {
    let site = site(json!({}));
    for version in REVISIONS {
        let mut server = site.stdio();
        let opened = server.open(version).await;
        assert_eq!(
            opened["capabilities"]["prompts"]["listChanged"], true,
            "{version}"
        );
        use_prompts(&mut server, version).await;
        if version != "2024-11-05" {
            assert_eq!(
                complete(&mut server, "tone", "fr").await,
                json!(["friendly"])
            );
            assert_eq!(complete(&mut server, "mail", "").await, json!([]));
        }
        server.close_input();
        assert!(server.wait_exit(END).await.success(), "{version}");
    }
}

#[tokio::test]
async fn prompts_are_offered_in_every_revision_over_http() {
    let site = site(json!({}));
    let server = site.http().await;
    for version in REVISIONS {
        let mut client: HttpClient = server.client();
        client.open(version).await;
        use_prompts(&mut client, version).await;
    }
}

#[tokio::test]
async fn long_lists_of_prompts_have_pages() {
    let site = site(json!({"tools": {"page_size": 2}}));
    for index in 0..3 {
        site.write(&format!("prompts/more-{index}.md"), "---\n---\nx");
    }
    let mut server = site.stdio();
    server.open(MODERN).await;
    let mut found = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let params = match &cursor {
            Value::Null => json!({}),
            cursor => json!({"cursor": cursor}),
        };
        let page = server.request("prompts/list", params).await;
        found.extend(names(page.result(), "prompts", "name"));
        cursor = page.result()["nextCursor"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(
        found,
        ["email.reply", "greeting", "more-0", "more-1", "more-2"]
    );
}

#[tokio::test]
async fn rules_hold_for_every_version_of_a_prompt_and_the_record_names_it() {
    let site = site(json!({"governance": {
        "clients": {
            "reader": {"prompts": {"allow": ["*"], "deny": ["greeting"]}},
            "stranger": {"prompts": {"allow": ["greeting"]}},
        },
        "prompts": {"email.reply": {"max_calls_per_minute": 2}},
    }}));
    let mut stranger = site.stdio_as("stranger");
    stranger.open(MODERN).await;
    assert_eq!(listed(&mut stranger).await, ["greeting"]);
    for (asked, expected) in [
        ("email.reply", "reader calls prompt/email.reply: allowed"),
        (
            "email.reply@1.0",
            "reader calls prompt/email.reply: allowed",
        ),
        ("greeting", "reader calls prompt/greeting: refused"),
        ("email.repl", "did you mean `email.reply`?"),
    ] {
        let words = ["governance", "explain", "--as", "reader", "--prompt", asked];
        let said = run(site.command(&words)).await;
        assert!(
            said.output.contains(expected),
            "{asked}: {}{}",
            said.output,
            said.messages
        );
    }
    for name in ["email.reply", "email.reply@1.0", "nothing"] {
        let refused = stranger.request("prompts/get", get(name, json!({}))).await;
        assert_eq!(refused.code(), -32602, "{refused:?}");
        assert!(
            refused
                .error()
                .to_string()
                .contains("there is no prompt of this name")
        );
    }
    let reference = json!({"type": "ref/prompt", "name": "email.reply@1.1"});
    let argument = json!({"name": "tone", "value": ""});
    let hidden = stranger
        .request(
            "completion/complete",
            json!({"ref": reference, "argument": argument}),
        )
        .await;
    assert_eq!(hidden.code(), -32602);
    stranger.close_input();
    stranger.wait_exit(END).await;

    let mut reader = site.stdio_as("reader");
    reader.open(MODERN).await;
    let denied = reader
        .request("prompts/get", get("greeting", json!({})))
        .await;
    assert_eq!(denied.code(), -32003, "{denied:?}");
    let mail = json!({"mail": "x"});
    let filled = reader
        .request("prompts/get", get("email.reply", mail.clone()))
        .await;
    assert_eq!(filled.result()["_meta"]["io.owlclaw/version"], "1.1");
    let older = reader
        .request("prompts/get", get("email.reply@1.0", json!({})))
        .await;
    assert_eq!(older.result()["_meta"]["io.owlclaw/version"], "1.0");
    let limited = reader
        .request("prompts/get", get("email.reply", mail))
        .await;
    assert_eq!(limited.code(), -32003, "{limited:?}");
    assert_eq!(limited.error()["data"]["reason"], "rate_minute");
    reader.close_input();
    reader.wait_exit(END).await;

    let calls = site.calls();
    let mut of_prompt = calls
        .iter()
        .filter(|it| it.started.capability == "prompt/email.reply");
    let versions: Vec<_> = of_prompt
        .by_ref()
        .filter(|it| outcome(it) == "succeeded")
        .map(|it| {
            let result: Value =
                serde_json::from_str(&it.ended.as_ref().unwrap().result.text).unwrap();
            (result["version"].clone(), it.started.definition_digest)
        })
        .collect();
    assert_eq!(versions.len(), 2, "{versions:?}");
    assert_eq!(
        (&versions[0].0, &versions[1].0),
        (&json!("1.1"), &json!("1.0"))
    );
    assert!(
        versions.iter().all(|(_, digest)| digest.is_some()),
        "{versions:?}"
    );
    assert_ne!(versions[0].1, versions[1].1);
}

#[tokio::test]
async fn a_rule_that_matches_no_prompt_is_told() {
    let site = site(json!({"governance": {
        "unmatched_rules": "error",
        "prompts": {"email.repyl": {"max_calls_per_minute": 2}},
    }}));
    let said = run(site.command(&["start"])).await;
    assert_ne!(said.code, Some(0));
    assert!(
        said.messages.contains("`email.repyl` matches no prompt"),
        "{}",
        said.messages
    );
    assert!(
        said.messages.contains("did you mean `email.reply`?"),
        "{}",
        said.messages
    );
}

async fn notified(peer: &mut LinePeer, method: &str) {
    while peer.receive().await["method"] != method {}
}

#[tokio::test]
async fn changes_are_announced_and_a_broken_prompt_is_held_until_it_is_mended() {
    let site = site(json!({}));
    let mut server: StdioServer = site.stdio();
    server.open("2025-06-18").await;
    let filled = server
        .request("prompts/get", get("greeting", json!({})))
        .await;
    assert_eq!(
        filled.result()["messages"][0]["content"]["text"],
        "Say hello."
    );
    site.write("prompts/greeting.md", "---\ntitel: x\n---\nSay hello.");
    notified(&mut server, "notifications/prompts/list_changed").await;
    let held = server
        .request("prompts/get", get("greeting", json!({})))
        .await;
    assert_eq!(held.code(), -32003, "{held:?}");
    assert_eq!(held.error()["data"]["reason"], "held");
    assert!(
        !held.error().to_string().contains("greeting.md"),
        "places are for operators"
    );
    assert_eq!(
        listed(&mut server).await,
        ["email.reply", "greeting"],
        "it is not dropped"
    );
    site.write("prompts/greeting.md", "---\n---\nSay good morning.");
    notified(&mut server, "notifications/prompts/list_changed").await;
    let filled = server
        .request("prompts/get", get("greeting", json!({})))
        .await;
    assert_eq!(
        filled.result()["messages"][0]["content"]["text"],
        "Say good morning."
    );
    server.close_input();
    server.wait_exit(END).await;
    assert_eq!(
        site.calls()
            .iter()
            .filter(|it| it.started.capability == "prompt/greeting")
            .map(outcome)
            .collect::<Vec<_>>(),
        ["succeeded", "denied", "succeeded"]
    );
    let log = server.stderr();
    assert!(
        log.contains("did you mean `title`?") && log.contains("greeting.md:2"),
        "{log}"
    );
}

#[tokio::test]
async fn operators_are_told_why_a_prompt_is_held() {
    let site = site(json!({}));
    site.write("prompts/bad.md", "---\ntitel: x\n---\nx");
    let server = site.http().await;
    let health = HttpClient::new(server.address())
        .exchange(&HttpRequest::get("/health"))
        .await
        .json();
    let parts = health["components"].as_array().unwrap();
    let part = parts.iter().find(|it| it["name"] == "prompts").unwrap();
    assert_eq!(part["ok"], false, "{health}");
    let detail = part["detail"].as_str().unwrap();
    assert!(
        detail.contains("bad.md:2: `titel` is not known (did you mean `title`?)"),
        "{detail}"
    );
    for words in [&["prompts", "list"][..], &["doctor"]] {
        let said = run(site.command(words)).await;
        let all = format!("{}{}", said.output, said.messages);
        assert!(
            all.contains("bad.md:2: `titel` is not known"),
            "{words:?}: {all}"
        );
        assert!(all.contains("did you mean `title`?"), "{words:?}: {all}");
    }
}

#[tokio::test]
async fn names_of_two_sources_and_directories_that_are_not_there_stop_the_start() {
    let site = site(json!({"prompts": {"dir": "no-such"}}));
    let said = run(site.command(&["start"])).await;
    assert_ne!(said.code, Some(0));
    assert!(said.messages.contains("prompts.dir: "), "{}", said.messages);
    let unknown = Site::new(json!({"app": null, "prompts": {"dri": "prompts"}}));
    let said = run(unknown.command(&["start"])).await;
    assert!(
        said.messages.contains("did you mean `prompts.dir`"),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn without_a_directory_there_are_no_prompts() {
    let site = Site::new(json!({"app": null}));
    site.write("prompts/greeting.md", "---\n---\nx");
    let mut server = site.stdio();
    let opened = server.open("2025-11-25").await;
    assert!(opened["capabilities"].get("prompts").is_none(), "{opened}");
    server.close_input();
    server.wait_exit(END).await;
}

fn words(site: &Site, more: &[&str]) -> Command {
    site.command(&[&["prompts"], more].concat())
}

#[tokio::test]
async fn versions_are_compared_rolled_back_and_followed_by_a_running_server() {
    let site = site(json!({}));
    let say = async |more: &[&str]| -> Said {
        let said = run(words(&site, more)).await;
        assert_eq!(said.code, Some(0), "{more:?}: {}", said.messages);
        said
    };
    let list = say(&["list", "--format", "json", "--tag", "mail"]).await;
    let list: Value = serde_json::from_str(&list.output).unwrap();
    assert_eq!(list[0]["name"], "email.reply");
    assert_eq!(
        (&list[0]["version"], list.as_array().unwrap().len()),
        (&json!("1.1"), 1)
    );
    let show = say(&["show", "email.reply"]).await;
    assert!(
        show.output.contains("1.0") && show.output.contains("yes"),
        "{}",
        show.output
    );
    let show = say(&["show", "email.reply@1.0"]).await;
    assert!(show.output.contains("An older text."), "{}", show.output);
    let diff = say(&["diff", "email.reply", "1.0"]).await;
    assert!(diff.output.contains("-An older text.\n"), "{}", diff.output);
    assert!(diff.output.contains("\n+## user\n"), "{}", diff.output);
    let filled = say(&["render", "email.reply", "mail=a=b", "tone=friendly"]).await;
    assert!(
        filled
            .output
            .starts_with("## user\n\nReply to this mail in a friendly tone:\n\na=b")
    );

    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let told = say(&["rollback", "email.reply"]).await;
    assert!(
        told.output
            .contains("version 1.0 is in force, instead of version 1.1")
    );
    notified(&mut server, "notifications/prompts/list_changed").await;
    let filled = server
        .request("prompts/get", get("email.reply", json!({})))
        .await;
    assert_eq!(
        filled.result()["messages"][0]["content"]["text"],
        "An older text."
    );
    let history: Value =
        serde_json::from_str(&site.read("prompts/email.reply/history.jsonl")).unwrap();
    assert_eq!(
        (&history["from"], &history["to"]),
        (&json!("1.1"), &json!("1.0"))
    );
    server.close_input();
    server.wait_exit(END).await;
    let notes = site.notes().into_iter();
    assert_eq!(notes.filter(|it| it == "prompt_changed").count(), 1);

    let wrong = run(words(&site, &["rollback", "email.reply", "7"])).await;
    assert_eq!(wrong.code, Some(1));
    assert!(
        wrong.messages.contains("it has `1.0`, `1.1`"),
        "{}",
        wrong.messages
    );
    let wrong = run(words(&site, &["show", "email.rely"])).await;
    assert!(
        wrong.messages.contains("did you mean `email.reply`?"),
        "{}",
        wrong.messages
    );
}

#[tokio::test]
async fn an_idempotency_key_is_not_taken_for_a_prompt_and_passed_over() {
    let site = site(json!({}));
    let mut server = site.stdio();
    server.open("2025-06-18").await;
    let params = |meta: Value| json!({ "name": "email.reply", "arguments": { "mail": "Hi" }, "_meta": meta });
    let keyed = params(json!({ "io.owlclaw/idempotencyKey": "once" }));
    let refused = server.request("prompts/get", keyed).await;
    assert_eq!(refused.error()["code"], -32602);
    let filled = server.request("prompts/get", params(json!({}))).await;
    assert!(filled.result()["messages"].is_array());
    server.close_input();
    server.wait_exit(END).await;
}

const DESK: &str = r#"
import enum
from owlclaw import OwlClaw
app = OwlClaw("desk")
app.mount_skills("skills")

class Genre(enum.Enum):
    NOVEL = "novel"

@app.prompt
def recommend(genre: Genre, amount: int = 3) -> str:
    """Recommends books."""
    return f"{amount} {genre.value}s"

@app.resource("books://{isbn}")
def book(isbn: str) -> dict:
    """A book."""
    if isbn == "broken":
        return {}["title"]
    if isbn != "1":
        raise LookupError("no such book")
    return {"title": "Emma"}
"#;

#[tokio::test]
async fn prompts_and_resources_of_an_application_say_what_does_not_fit() {
    let site = Site::new(json!({"governance": {"default": {
        "prompts": {"allow": ["*"]}, "resources": {"allow": ["*"]},
    }}}));
    site.write("app.py", DESK);
    let mut peer = site.stdio();
    peer.open(MODERN).await;
    for (arguments, expected) in [
        (json!({"genre": "crime"}), "/genre: expected one of 'novel'"),
        (
            json!({"genre": "novel", "amount": "two"}),
            "/amount: expected integer",
        ),
        (
            json!({"genre": "novel", "number": "2"}),
            "/number: is no argument of the prompt",
        ),
    ] {
        let refused = peer
            .request("prompts/get", get("recommend", arguments))
            .await;
        assert_eq!(refused.code(), -32602);
        let failure = refused.failure();
        let said = failure["message"].as_str().unwrap();
        assert!(said.contains(expected), "{said}");
    }
    let filled = peer
        .request("prompts/get", get("recommend", json!({"genre": "novel"})))
        .await;
    assert_eq!(
        filled.result()["messages"][0]["content"]["text"],
        "3 novels"
    );
    for (uri, code) in [("books://2", -32602), ("books://broken", -32603)] {
        let failed = peer.request("resources/read", json!({"uri": uri})).await;
        assert_eq!(failed.code(), code, "{uri}");
    }
    let read = peer
        .request("resources/read", json!({"uri": "books://1"}))
        .await;
    assert_eq!(read.result()["contents"][0]["text"], r#"{"title":"Emma"}"#);
}
