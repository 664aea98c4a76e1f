//! Secrets that go through the server and stay nowhere in it.

use std::fs;

use serde_json::{Value, json};
use testkit::{Conversation, MODERN};

use crate::support::{END, Site, call, log, run, text};

/// Uses what it is given in every way in which a secret may get out.
const APP: &str = r#"
import json, sys
from owlclaw import OwlClaw

app = OwlClaw("till")
app.mount_skills("skills")


@app.handler("pay")
async def pay(order: str, card: str, password: str, more: dict) -> dict:
    """Pays.

    Args:
        order: Which order.
        card: With which card.
        password: Whose it is.
        more: Whatever else.
    """
    given = {"order": order, "card": card, "password": password, "more": more}
    with open("given.txt", "a") as file:
        file.write(json.dumps(given) + "\n")
    print("paying with", card, file=sys.stderr)
    print("given:", given)
    print(json.dumps(given), file=sys.stderr)
    return {"order": order, "charged": card, "session_token": password, "echo": json.dumps(given)}


@app.handler("fail")
async def fail(card: str, password: str) -> dict:
    """Fails.

    Args:
        card: With which card.
        password: Whose it is.
    """
    raise ValueError(f"declined: {card} with password={password}")
"#;

const CARD: &str = "4111 1111 1111 1111";
const PASSWORD: &str = "correct-horse-battery";
const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
const MAIL: &str = "eve@example.org";

/// Of each secret a part that is in every way of writing it, the one last that only a pointer tells.
const TRACES: [&str; 7] = [
    "4111 1111",
    "4111-1111",
    "41111111",
    PASSWORD,
    KEY,
    "hunter2",
    MAIL,
];

fn till() -> Site {
    let site = Site::new(json!({
        "redaction": {"keys": ["nickname"], "pointers": {"p*": ["/more/mail"]}},
        "logging": {"level": "DEBUG"},
    }));
    site.write("app.py", APP);
    site
}

/// Every file of the site that the server has written, as bytes.
fn written(site: &Site) -> Vec<(String, Vec<u8>)> {
    let files = fs::read_dir(site.path(".")).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, fs::read(&path).unwrap_or_default())
    });
    files
        .filter(|(name, _)| name.starts_with("ledger.db"))
        .collect()
}

fn assert_clean(name: &str, bytes: &[u8], traces: &[&str]) {
    for trace in traces {
        let found = bytes
            .windows(trace.len())
            .position(|it| it == trace.as_bytes());
        assert_eq!(found, None, "{trace} is in {name}");
    }
}

fn arguments(card: &str) -> Value {
    json!({
        "order": "2024-4711",
        "card": card,
        "password": PASSWORD,
        "more": {"mail": MAIL, "nickname": "hunter2", "note": format!("use {KEY}, please")},
    })
}

/// Says by types alone what is secret. No name, and no shape, tells.
const TYPED: &str = r#"
import typing
import pydantic
from owlclaw_worker import FastMCP

app = FastMCP("door")


class Door(pydantic.BaseModel):
    label: str
    phrase: pydantic.SecretStr


class Opened(pydantic.BaseModel):
    by: typing.Annotated[str, pydantic.Field(json_schema_extra={"writeOnly": True})]


@app.tool
def open_door(word: pydantic.SecretStr, doors: typing.List[Door], also: typing.Optional[pydantic.SecretBytes] = None) -> Opened:
    """Opens doors."""
    with open("given.txt", "a") as file:
        file.write(" ".join([word.get_secret_value(), doors[0].phrase.get_secret_value(), also.get_secret_value().decode()]))
    return Opened(by=word.get_secret_value())
"#;

#[tokio::test]
async fn what_types_mark_as_secret_is_kept_nowhere_and_shown_to_nobody() {
    let said = ["open sesame", "friend and enter", "swordfish at noon"];
    let arguments = json!({
        "word": said[0],
        "doors": [{"label": "front", "phrase": said[1]}],
        "also": said[2],
    });
    for needs_approval in [false, true] {
        let confirmation = if needs_approval { "operator" } else { "none" };
        let site = Site::new(json!({
            "logging": {"level": "DEBUG"},
            "governance": {"tools": {"open_door": {"confirmation": confirmation}}},
        }));
        site.write("app.py", TYPED);
        let mut server = site.stdio();
        server.open(MODERN).await;
        let answer = server
            .request("tools/call", call("open_door", arguments.clone()))
            .await;
        let mut shown = answer.response.to_string();
        match needs_approval {
            true => assert!(shown.contains("confirmation"), "{shown}"),
            // The caller and the handler have what they are to have.
            false => {
                assert!(shown.contains(said[0]), "{shown}");
                assert_eq!(site.read("given.txt"), said.join(" "));
                shown.clear();
            }
        }
        server.close_input();
        assert!(server.wait_exit(END).await.success());
        let approvals = run(site.command(&["approvals", "list", "--format", "json"])).await;
        let calls = run(site.command(&["ledger", "query", "--format", "json"])).await;
        for text in [&shown, &server.stderr(), &approvals.output, &calls.output] {
            assert_clean("what is shown", text.as_bytes(), &said);
        }
        for (name, bytes) in written(&site) {
            assert_clean(&name, &bytes, &said);
        }
        let kept = match needs_approval {
            true => approvals.output,
            false => site.calls()[0].started.arguments.text.clone(),
        };
        assert!(kept.contains("front"), "{kept}");
        assert_eq!(kept.matches("[redacted value").count(), 3, "{kept}");
    }
}

#[tokio::test]
async fn secrets_reach_the_handler_and_nothing_that_is_kept() {
    let site = till();
    let mut server = site.stdio();
    server.open(MODERN).await;
    for card in [CARD, "4111-1111-1111-1111"] {
        let paid = server
            .request("tools/call", call("pay", arguments(card)))
            .await;
        let paid = text(paid.result());
        assert!(paid.contains(card) && paid.contains(PASSWORD), "{paid}");
    }
    let failed = json!({"card": CARD, "password": PASSWORD});
    let failed = server.request("tools/call", call("fail", failed)).await;
    assert!(text(failed.result()).contains(PASSWORD), "{failed:?}");
    // Refused before it gets anywhere.
    let unknown = format!("no-such-{KEY}");
    server
        .request("tools/call", call(&unknown, arguments(CARD)))
        .await;
    server
        .request(
            "tools/call",
            call("pay", json!({"card": CARD, "password": PASSWORD})),
        )
        .await;
    // While it runs, when most is in the file beside the ledger, and afterwards.
    for (name, bytes) in written(&site) {
        assert_clean(&name, &bytes, &TRACES);
    }
    server.close_input();
    assert!(server.wait_exit(END).await.success());
    let files = written(&site);
    assert!(files.iter().any(|(name, _)| name == "ledger.db"));
    for (name, bytes) in &files {
        assert_clean(name, bytes, &TRACES);
    }

    // The handler had them as they are.
    let given: Vec<Value> = site
        .read("given.txt")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(given, [arguments(CARD), arguments("4111-1111-1111-1111")]);

    // What is printed is logged, and each line is still an object.
    let stderr = server.stderr();
    // In what an application prints there is nothing that a pointer could lead through.
    assert_clean("the log", stderr.as_bytes(), &TRACES[..6]);
    let lines = log(&stderr);
    let says = |text: &str| {
        lines
            .iter()
            .any(|line| line["message"].as_str().is_some_and(|it| it.contains(text)))
    };
    assert!(says("paying with [redacted card "), "{stderr}");
    assert!(says("2024-4711"), "{stderr}");

    let calls = site.calls();
    assert_eq!(calls.len(), 5);
    let kept: Vec<Value> = calls
        .iter()
        .map(|call| serde_json::from_str(&call.started.arguments.text).unwrap())
        .collect();
    // What is no secret is there.
    assert_eq!(kept[0]["order"], "2024-4711");
    let note = kept[0]["more"]["note"].as_str().unwrap();
    assert!(note.starts_with("use [redacted api key ") && note.ends_with(", please"));
    // Equal secrets are equal, however they are written, in arguments, in results and in messages.
    for key in ["card", "password"] {
        let placeholder = kept[0][key].as_str().unwrap();
        assert!(placeholder.starts_with("[redacted "), "{placeholder}");
        for other in &kept[1..] {
            assert_eq!(other[key], kept[0][key], "{key}");
        }
    }
    let result = &calls[0].ended.as_ref().unwrap().result.text;
    let result: Value = serde_json::from_str(result).unwrap();
    assert_eq!(result["charged"], kept[0]["card"]);
    assert_eq!(result["session_token"], kept[0]["password"]);
    let echo: Value = serde_json::from_str(result["echo"].as_str().unwrap()).unwrap();
    assert_eq!(echo["more"], kept[0]["more"]);
    let message = calls[2].ended.as_ref().unwrap().message.clone().unwrap();
    assert!(
        message.contains(kept[0]["card"].as_str().unwrap()),
        "{message}"
    );

    // Equal arguments have equal digests, others have others, and none is that of a guess.
    let digests: Vec<_> = calls
        .iter()
        .map(|call| call.started.arguments_digest.unwrap())
        .collect();
    assert_eq!(digests[0], digests[3]);
    assert_ne!(digests[0], digests[1]);
    let guess = redaction::canonical_digest(&arguments(CARD).to_string()).unwrap();
    assert_ne!(digests[0], guess);
}

#[tokio::test]
async fn equal_secrets_are_equal_after_a_restart_and_in_no_other_ledger() {
    let site = till();
    for _ in 0..2 {
        let mut server = site.stdio();
        server.open(MODERN).await;
        server
            .request("tools/call", call("pay", arguments(CARD)))
            .await;
        server.close_input();
        assert!(server.wait_exit(END).await.success());
    }
    let calls = site.calls();
    assert_eq!(
        calls[0].started.arguments.text,
        calls[1].started.arguments.text
    );

    let key = site.path("ledger.db.redaction-key");
    fs::remove_file(&key).unwrap();
    let mut server = site.stdio();
    server.open(MODERN).await;
    server
        .request("tools/call", call("pay", arguments(CARD)))
        .await;
    let calls = site.calls();
    assert_ne!(
        calls[0].started.arguments.text,
        calls[2].started.arguments.text
    );

    // What is no key is not written over.
    server.close_input();
    assert!(server.wait_exit(END).await.success());
    fs::write(&key, "no key").unwrap();
    let mut server = site.stdio();
    assert!(!server.wait_exit(END).await.success());
    assert!(server.stderr().contains("is no key of redaction"));
    assert_eq!(fs::read_to_string(&key).unwrap(), "no key");
}
