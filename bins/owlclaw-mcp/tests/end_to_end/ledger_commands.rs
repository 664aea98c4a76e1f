//! Commands that read the ledger, beside a running server and after it.

use std::collections::BTreeSet;
use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{Conversation, HttpServer, MODERN};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::support::{END, Said, Site, call, run};

fn shop() -> Site {
    Site::new(json!({"governance": {
        "clients": {"poor": {
            "tools": {"allow": ["echo", "append"], "deny": ["append"]},
            "quota": {"max_calls_per_minute": 3},
        }},
        "tools": {"echo": {"estimated_cost": "0.25"}},
        "conditions": {"loud": {"tool": "echo", "when": "args.text == 'LOUD'", "effect": "deny"}},
        "confirm": ["spend"],
    }}))
}

/// Calls of every kind: two that succeed, one that is refused, one that fails.
async fn trade(server: &HttpServer) {
    let mut rich = server.client().with_header("x-mcp-client-id", "rich");
    let mut poor = server.client().with_header("x-mcp-client-id", "poor");
    rich.open(MODERN).await;
    poor.open(MODERN).await;
    let echo = call("echo", json!({"text": "=1+1,\"x\"\n\u{1b}[2J"}));
    let _ = rich.request("tools/call", echo).await;
    let _ = poor
        .request("tools/call", call("echo", json!({"text": "y"})))
        .await;
    let _ = poor
        .request("tools/call", call("append", json!({"mark": "z"})))
        .await;
    let _ = rich
        .request("tools/call", call("fail", json!({"why": "so"})))
        .await;
}

async fn say(site: &Site, words: &[&str]) -> Said {
    run(site.command(words)).await
}

async fn rows(site: &Site, words: &[&str]) -> Vec<Value> {
    let said = say(site, words).await;
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.messages);
    serde_json::from_str(&said.output).unwrap_or_else(|error| panic!("{error}: {}", said.output))
}

#[tokio::test]
async fn calls_are_found_by_what_is_known_of_them() {
    let site = shop();
    let server = site.http().await;
    trade(&server).await;
    let query = ["ledger", "query", "--format", "json"];
    let all = rows(&site, &query).await;
    assert_eq!(all.len(), 4);
    let times: Vec<&str> = all
        .iter()
        .map(|row| row["time"].as_str().unwrap())
        .collect();
    assert!(times.is_sorted_by(|one, other| one >= other), "{times:?}");
    assert!(
        times
            .iter()
            .all(|time| time.ends_with('Z') && time.len() == 27),
        "{times:?}"
    );
    let one = all[0]["call"].as_str().unwrap().to_owned();
    let request = all[3]["request_id"].to_string();
    let cases: [(&[&str], usize); 13] = [
        (&["--client", "rich"], 2),
        (&["--tool", "echo"], 2),
        (&["--tool", "echo", "--client", "poor"], 1),
        (&["--outcome", "denied"], 1),
        (&["--reason", "permission"], 1),
        (&["--reason", "budget"], 0),
        (&["--since", "1h"], 4),
        (&["--until", "1h"], 0),
        (
            &["--since", "2026-01-01", "--until", "2026-01-02T00:00:00Z"],
            0,
        ),
        (&["--request", request.trim_matches('"')], 1),
        (&["--longer-than", "600000"], 0),
        (&["--limit", "3"], 3),
        (&["--trace", "4bf92f3577b34da6a3ce929d0e0e4736"], 0),
    ];
    for (more, count) in cases {
        let found = rows(&site, &[query.as_slice(), more].concat()).await;
        // Ids of requests are their clients'.
        let at_least = more[0] == "--request";
        assert!(
            found.len() == count || at_least && count <= found.len(),
            "{more:?}: {found:?}"
        );
    }
    let spent: Vec<&Value> = all
        .iter()
        .filter(|row| row["capability"] == "tool/echo")
        .collect();
    assert_eq!(
        (&spent[0]["estimated_cost"], &spent[0]["cost"]),
        (&json!("0.25"), &json!("0.25"))
    );
    assert_eq!(
        spent[1]["arguments"],
        json!({"text": "=1+1,\"x\"\n\u{1b}[2J"})
    );

    // A page after another.
    let table = say(&site, &["ledger", "query", "--limit", "2"]).await;
    let cursor = table.messages.trim().rsplit(' ').next().unwrap().to_owned();
    let rest = rows(&site, &[query.as_slice(), &["--before", &cursor]].concat()).await;
    assert_eq!(rest, all[2..]);
    assert!(
        table.output.contains("denied") || table.output.contains("failed"),
        "{}",
        table.output
    );
    assert!(!table.output.contains('\u{1b}'));

    // In what programs read, each row says where the next page would begin.
    let page = rows(&site, &[query.as_slice(), &["--limit", "2"]].concat()).await;
    assert_eq!(page[1]["cursor"], cursor);

    let csv = say(&site, &["ledger", "query", "--format", "csv"]).await;
    let mut records = csv::Reader::from_reader(csv.output.as_bytes());
    assert_eq!(&records.headers().unwrap()[0], "call");
    assert_eq!(records.records().map(Result::unwrap).count(), 4);

    let shown = say(&site, &["ledger", "show", &one]).await;
    assert!(
        shown.output.contains("capability") && shown.output.contains(&one),
        "{}",
        shown.output
    );
    let entry = say(&site, &["ledger", "show", "1", "--format", "json"]).await;
    let entry: Value = serde_json::from_str(&entry.output).unwrap();
    assert_eq!(entry["sequence"], 1);
    for (id, told) in [
        ("018f0000-0000-7000-8000-000000000000", "has no call"),
        ("apr_0000000000000000000000", "has no approval"),
        ("9999", "has no entry"),
        ("x", "neither a call"),
    ] {
        let said = say(&site, &["ledger", "show", id]).await;
        assert_eq!(said.code, Some(1));
        assert!(said.messages.contains(told), "{}", said.messages);
    }
    let none = rows(&site, &["ledger", "unresolved", "--format", "json"]).await;
    assert!(none.is_empty());
}

/// The answer to an unconfirmed call names a command, not the configuration of the server.
#[tokio::test]
async fn a_missing_ledger_is_told_with_the_option_that_names_another() {
    let site = Site::new(json!({}));
    for words in [&["approvals", "list"][..], &["ledger", "tail"]] {
        let said = run(site.command(words)).await;
        assert_eq!(said.code, Some(1), "{}", said.messages);
        let messages = &said.messages;
        assert!(messages.contains("error: there is no ledger"), "{messages}");
        assert!(
            messages.contains("hint: ") && messages.contains("--config FILE"),
            "{messages}"
        );
    }
}

#[tokio::test]
async fn what_a_killed_server_left_is_listed_as_unresolved() {
    let site = shop();
    let mut server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    // Nobody answers, so this ends with the server and is not looked at.
    let napping = tokio::spawn(async move {
        let params = call("nap", json!({"seconds": 600}));
        client.request("tools/call", params).await
    });
    testkit::wait_until("the call is open", testkit::GENEROUS, || {
        site.path("ledger.db").exists() && site.calls().iter().any(|call| call.ended.is_none())
    })
    .await;
    server.process().signal("KILL").await;
    let _ = server.wait_exit(END).await;
    assert!(napping.await.is_err());
    let open = ["ledger", "query", "--outcome", "open", "--format", "json"];
    assert_eq!(rows(&site, &open).await.len(), 1);
    let mut server = site.http().await;
    assert_eq!(rows(&site, &open).await.len(), 0);
    let left = rows(&site, &["ledger", "unresolved", "--format", "json"]).await;
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(
        (&left[0]["outcome"], &left[0]["delivery"]),
        (&json!("unknown"), &json!("unknown"))
    );
    server.process().signal("TERM").await;
    let _ = server.wait_exit(END).await;
}

#[tokio::test]
async fn the_end_of_the_ledger_is_followed() {
    let site = shop();
    let server = site.http().await;
    let mut child = site
        .command(&[
            "ledger", "tail", "--follow", "--format", "json", "--client", "rich",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    trade(&server).await;
    let mut seen = Vec::new();
    while seen.len() < 4 {
        let line = tokio::time::timeout(testkit::GENEROUS, lines.next_line()).await;
        let line: Value = serde_json::from_str(&line.unwrap().unwrap().unwrap()).unwrap();
        assert_eq!(line["client"], "rich");
        seen.push((
            line["event"].clone(),
            line["capability"].clone(),
            line["outcome"].clone(),
        ));
    }
    let row = |event: &str, tool: &str, outcome: &str| (json!(event), json!(tool), json!(outcome));
    assert_eq!(
        seen,
        [
            row("started", "tool/echo", "open"),
            row("ended", "tool/echo", "succeeded"),
            row("started", "tool/fail", "open"),
            row("ended", "tool/fail", "failed"),
        ]
    );
    let last = say(&site, &["ledger", "tail", "-n", "1"]).await;
    assert_eq!(last.output.lines().count(), 1, "{}", last.output);
    assert!(
        last.output.contains("ended") && last.output.contains("failed after"),
        "{}",
        last.output
    );
}

#[tokio::test]
async fn all_of_it_is_exported_once() {
    let site = shop();
    let mut server = site.http().await;
    trade(&server).await;
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let all = say(&site, &["ledger", "export"]).await;
    assert_eq!((all.code, all.messages.as_str()), (Some(0), ""));
    let lines: Vec<Value> = all
        .output
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let calls: Vec<&Value> = lines.iter().filter(|it| it["type"] == "call").collect();
    assert_eq!(calls.len(), 4);
    let names: BTreeSet<_> = calls.iter().map(|it| it["call"].to_string()).collect();
    assert_eq!(names.len(), 4);
    let kinds: Vec<&Value> = lines
        .iter()
        .filter(|it| it["type"] == "note")
        .map(|it| &it["kind"])
        .collect();
    assert!(
        kinds.contains(&&json!("server_started")) && kinds.contains(&&json!("server_stopped")),
        "{kinds:?}"
    );

    // Each call of a tool in the form of founding document 003, and nothing else.
    let audit = say(&site, &["ledger", "export", "--format", "audit"]).await;
    assert_eq!((audit.code, audit.messages.as_str()), (Some(0), ""));
    let audited: Vec<Value> = audit
        .output
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(audited.len(), calls.len(), "{audited:#?}");
    for line in &audited {
        let call = calls.iter().find(|it| it["call"] == line["call"]).unwrap();
        let expected = json!({
            "timestamp": call["time"],
            "server": "owlclaw-mcp",
            "tool": call["capability"].as_str().unwrap().trim_start_matches("tool/"),
            "agent": call["client"],
            "args": call["arguments"],
            "duration_ms": call["duration_ms"],
            "outcome": call["outcome"],
            "reason": call["reason"],
            "call": call["call"],
        });
        assert_eq!(*line, expected);
    }

    let words = [
        "ledger", "export", "--format", "csv", "--client", "poor", "-o", "out.csv",
    ];
    assert_eq!(say(&site, &words).await.code, Some(0));
    let mut records = csv::Reader::from_path(site.path("out.csv")).unwrap();
    let outcomes: Vec<String> = records
        .records()
        .map(|it| it.unwrap()[5].to_owned())
        .collect();
    assert_eq!(outcomes, ["succeeded", "denied"]);
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(site.path("out.csv"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    // Nothing is written over.
    assert_eq!(say(&site, &words).await.code, Some(1));
}

#[tokio::test]
async fn verification_says_sound_damaged_or_unreadable() {
    let site = shop();
    let nothing = say(&site, &["ledger", "verify"]).await;
    assert_eq!(nothing.code, Some(2), "{}", nothing.messages);
    let mut server = site.http().await;
    trade(&server).await;
    // Beside a server that runs, the last entries are not sealed yet.
    let beside = say(&site, &["ledger", "verify"]).await;
    assert_eq!(beside.code, Some(3), "{}{}", beside.output, beside.messages);
    assert!(
        beside.output.contains("sound, but sealed through"),
        "{}",
        beside.output
    );
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let sound = say(&site, &["ledger", "verify", "--format", "json"]).await;
    let report: Value = serde_json::from_str(&sound.output).unwrap();
    assert_eq!(
        (sound.code, &report["sound"]),
        (Some(0), &json!(true)),
        "{report}"
    );
    assert!(8 <= report["entries"].as_u64().unwrap());

    // One letter of a call's arguments, in the file itself.
    let mut bytes = std::fs::read(site.path("ledger.db")).unwrap();
    let needle = b"{\"mark\":\"z\"}";
    let mut edited = 0;
    for at in 0..bytes.len() - needle.len() {
        if bytes[at..].starts_with(needle) {
            bytes[at + 9] = b'a';
            edited += 1;
        }
    }
    assert!(0 < edited);
    std::fs::write(site.path("ledger.db"), bytes).unwrap();
    let damaged = say(&site, &["ledger", "verify"]).await;
    assert_eq!(
        damaged.code,
        Some(1),
        "{}{}",
        damaged.output,
        damaged.messages
    );
    assert!(
        damaged.output.contains("damaged      entry "),
        "{}",
        damaged.output
    );

    std::fs::write(site.path("ledger.db"), "no database at all").unwrap();
    let unreadable = say(&site, &["ledger", "verify"]).await;
    assert_eq!((unreadable.code, unreadable.output.as_str()), (Some(2), ""));
}

#[tokio::test]
async fn a_key_is_made_once_and_in_two_files() {
    let site = shop();
    let made = say(&site, &["ledger", "keygen", "--output", "ledger.key"]).await;
    assert_eq!(
        (made.code, made.output.as_str()),
        (Some(0), "ledger.key\nledger.key.pub\n")
    );
    assert!(
        site.read("ledger.key")
            .starts_with("-----BEGIN PRIVATE KEY-----")
    );
    assert!(
        site.read("ledger.key.pub")
            .starts_with("-----BEGIN PUBLIC KEY-----")
    );
    let before = site.read("ledger.key");
    let again = say(&site, &["ledger", "keygen", "--output", "ledger.key"]).await;
    assert_eq!((again.code, site.read("ledger.key")), (Some(1), before));
}

#[tokio::test]
async fn an_export_that_fails_leaves_no_file() {
    let site = shop();
    let export = ["ledger", "export", "-o", "out.jsonl"];
    for _ in 0..2 {
        let failed = say(&site, &export).await;
        assert_eq!((failed.code, failed.output.as_str()), (Some(1), ""));
        assert!(!failed.messages.contains("exists"), "{}", failed.messages);
        assert!(!site.path("out.jsonl").exists());
    }
}

#[tokio::test]
async fn with_a_key_a_ledger_whose_last_checkpoint_it_has_not_signed_is_not_gone_on_with() {
    let site = shop();
    let serve = async || {
        let mut server = site.http().await;
        trade(&server).await;
        server.process().signal("TERM").await;
        assert!(server.wait_exit(END).await.success());
    };
    serve().await;
    let unsigned = ["ledger.db", "ledger.db.checkpoints"].map(|name| (name, site.path(name)));
    let unsigned = unsigned.map(|(name, path)| (name, std::fs::read(path).unwrap()));
    let made = say(&site, &["ledger", "keygen", "--output", "ledger.key"]).await;
    assert_eq!(made.code, Some(0), "{}", made.messages);
    let file = site.read("mcp-server.yaml");
    let with_key = |name: &str| {
        let keyed = format!(r#""path":"ledger.db","checkpoint":{{"key":"{name}"}}"#);
        site.write(
            "mcp-server.yaml",
            file.replace(r#""path":"ledger.db""#, &keyed),
        );
    };
    with_key("ledger.key");
    let refused = async || {
        let said = run(site.command(&["start", "--transport", "http"])).await;
        let why = "does not end with a checkpoint that a trusted key has signed";
        assert_eq!(said.code, Some(1), "{}", said.messages);
        assert!(said.messages.contains(why), "{}", said.messages);
        let doctor = say(&site, &["doctor", "--no-import"]).await;
        assert!(doctor.output.contains(why), "{}", doctor.output);
    };
    // A key that is new to a ledger is accepted by an operator.
    refused().await;
    let accept = [
        "ledger",
        "accept-rollback",
        "--by",
        "ana",
        "--reason",
        "the key is new",
    ];
    let accepted = say(&site, &accept).await;
    assert_eq!(accepted.code, Some(0), "{}", accepted.messages);
    serve().await;
    serve().await;
    // Another ledger in its place, with its own file and without.
    let place = |checkpoints: Option<&[u8]>| {
        for name in [
            "ledger.db",
            "ledger.db-wal",
            "ledger.db-shm",
            "ledger.db.checkpoints",
        ] {
            let _ = std::fs::remove_file(site.path(name));
        }
        site.write("ledger.db", &unsigned[0].1);
        if let Some(checkpoints) = checkpoints {
            site.write("ledger.db.checkpoints", checkpoints);
        }
    };
    place(None);
    let file_elsewhere =
        r#""path":"ledger.db","checkpoint":{"key":"ledger.key","file":"elsewhere"}"#;
    site.write(
        "mcp-server.yaml",
        file.replace(r#""path":"ledger.db""#, file_elsewhere),
    );
    refused().await;
    with_key("ledger.key");
    place(Some(&unsigned[1].1));
    refused().await;
    let accepted = say(&site, &accept).await;
    assert_eq!(accepted.code, Some(0), "{}", accepted.messages);
    serve().await;
    // Another key, until the configuration trusts the one before.
    let made = say(&site, &["ledger", "keygen", "--output", "other.key"]).await;
    assert_eq!(made.code, Some(0), "{}", made.messages);
    with_key("other.key");
    refused().await;
    let keyed = r#""path":"ledger.db","checkpoint":{"key":"other.key"},"verification":{"keys":["ledger.key.pub"]}"#;
    site.write(
        "mcp-server.yaml",
        file.replace(r#""path":"ledger.db""#, keyed),
    );
    serve().await;
}

#[tokio::test]
async fn a_ledger_that_is_cut_short_is_found_out_by_its_checkpoints() {
    let site = shop();
    let made = say(&site, &["ledger", "keygen", "--output", "ledger.key"]).await;
    assert_eq!(made.code, Some(0));
    let file = site.read("mcp-server.yaml");
    let sealed = r#""path":"ledger.db","checkpoint":{"key":"ledger.key","file":"elsewhere"}"#;
    site.write(
        "mcp-server.yaml",
        file.replace(r#""path":"ledger.db""#, sealed),
    );
    let stop = async |mut server: HttpServer| {
        server.process().signal("TERM").await;
        assert!(server.wait_exit(END).await.success());
    };
    let server = site.http().await;
    trade(&server).await;
    stop(server).await;
    let early = std::fs::read(site.path("ledger.db")).unwrap();
    let server = site.http().await;
    trade(&server).await;
    stop(server).await;
    let verify = ["ledger", "verify", "--format", "json"];
    let sound = say(&site, &verify).await;
    let report: Value = serde_json::from_str(&sound.output).unwrap();
    assert_eq!(
        (sound.code, &report["sound"], &report["keys"]),
        (Some(0), &json!(true), &json!(1)),
        "{report}"
    );
    assert!(
        2 <= report["checkpoints_checked"].as_u64().unwrap(),
        "{report}"
    );

    // What was right then is a ledger that ends too soon now.
    std::fs::write(site.path("ledger.db"), early).unwrap();
    let cut = say(&site, &verify).await;
    let report: Value = serde_json::from_str(&cut.output).unwrap();
    assert_eq!(
        (cut.code, &report["sound"]),
        (Some(1), &json!(false)),
        "{report}"
    );
    let what = report["wrong"]["what"].as_str().unwrap();
    assert!(what.contains("ends before this entry"), "{what}");

    // Nobody serves with it, and nobody with none, until a person says so.
    let refused = async |why: &str| {
        let start = site.command(&["start", "--transport", "http"]);
        let said = run(start).await;
        assert_eq!(said.code, Some(1), "{}", said.messages);
        assert!(
            said.messages.contains(why) && said.messages.contains("ledger accept-rollback"),
            "{}",
            said.messages
        );
        let doctor = say(&site, &["doctor", "--no-import"]).await;
        assert!(doctor.output.contains(why), "{}", doctor.output);
    };
    refused("elsewhere seals entry").await;
    let rolled_back = std::fs::read(site.path("ledger.db")).unwrap();
    for name in ["ledger.db", "ledger.db-wal", "ledger.db-shm"] {
        let _ = std::fs::remove_file(site.path(name));
    }
    refused("the ledger has no entries").await;
    assert!(!site.path("ledger.db").exists(), "it is not made anew");
    std::fs::write(site.path("ledger.db"), rolled_back).unwrap();

    let accept = ["ledger", "accept-rollback", "--by", "ana", "--reason"];
    let empty = say(&site, &[accept.as_slice(), &[" "]].concat()).await;
    assert_eq!(empty.code, Some(1), "{}", empty.output);
    let accept = [accept.as_slice(), &["the disk was replaced"]].concat();
    let accepted = say(&site, &accept).await;
    assert_eq!(accepted.code, Some(0), "{}", accepted.messages);
    assert!(accepted.output.contains("set aside"), "{}", accepted.output);
    let begun = std::fs::read_to_string(site.path("elsewhere")).unwrap();
    assert_eq!(begun.lines().count(), 1, "it begins with what was accepted");
    let again = say(&site, &accept).await;
    assert_eq!(again.code, Some(1), "{}", again.output);
    assert!(
        again.messages.contains("nothing to accept"),
        "{}",
        again.messages
    );

    let server = site.http().await;
    trade(&server).await;
    stop(server).await;
    let sound = say(&site, &verify).await;
    assert_eq!(sound.code, Some(0), "{}", sound.output);
    let all = say(&site, &["ledger", "export"]).await;
    let noted = all
        .output
        .lines()
        .find(|it| it.contains("rollback_accepted"));
    let noted: Value = serde_json::from_str(noted.unwrap()).unwrap();
    assert_eq!(noted["actor"], "ana");
    assert_eq!(noted["detail"]["reason"], "the disk was replaced");

    // A file of checkpoints that is emptied takes away what a ledger is held against.
    std::fs::write(site.path("elsewhere"), "").unwrap();
    let lacking = say(&site, &verify).await;
    let report: Value = serde_json::from_str(&lacking.output).unwrap();
    assert_eq!((lacking.code, &report["sound"]), (Some(3), &json!(true)));
    assert!(report["file_lacks"].is_u64(), "{report}");
    refused("was emptied").await;
}

const DESK: &str = r#"
from owlclaw import OwlClaw
app = OwlClaw("desk")
app.mount_skills("skills")

@app.handler("pay")
def pay(amount: int, to: str = "me") -> str:
    return "paid"

@app.handler("take")
def take(session: dict) -> str:
    return str(session["amount"])
"#;

#[tokio::test]
async fn a_call_is_explained_by_the_arguments_that_it_is_judged_by() {
    let site = Site::new(json!({"governance": {"conditions": {
        "to_nobody": {"tool": "pay", "when": "!has(args.to)", "effect": "deny"},
        "large": {"tool": "take", "when": "has(args.amount) && args.amount > 10", "effect": "deny"},
    }}}));
    site.write("app.py", DESK);
    let server = site.http().await;
    let mut client = server.client();
    client.open(MODERN).await;
    for (tool, arguments, is_allowed) in [
        ("pay", json!({"amount": 1, "to": "bob"}), true),
        ("pay", json!({"amount": 1, "to": null}), false),
        ("take", json!({"amount": 3}), true),
        ("take", json!({"session": {"amount": 3}}), true),
        ("take", json!({"session": {"amount": 11}}), false),
        ("take", json!({"session": {"amount": 11}, "a": 1}), false),
    ] {
        let sent = arguments.to_string();
        let told = say(
            &site,
            &[
                "governance",
                "explain",
                "--as",
                "anna",
                "--tool",
                tool,
                "--args",
                &sent,
                "--format",
                "json",
            ],
        )
        .await;
        let told: Value = serde_json::from_str(&told.output).unwrap();
        assert_eq!(told["verdict"] == "allowed", is_allowed, "{sent}: {told}");
        let reply = client.request("tools/call", call(tool, arguments)).await;
        let answer = reply.response;
        let is_error = answer["result"]["isError"] == true || answer["error"].is_object();
        assert_eq!(is_error, !is_allowed, "{sent}: {answer}");
    }
}

#[tokio::test]
async fn use_is_summed_up_and_rules_are_explained() {
    let site = shop();
    let server = site.http().await;
    trade(&server).await;
    let sums = rows(
        &site,
        &["governance", "stats", "--format", "json", "--by", "day"],
    )
    .await;
    let of = |client: &str, tool: &str| {
        let mut found = sums
            .iter()
            .filter(|row| row["client"] == client && row["capability"] == tool);
        found
            .next()
            .unwrap_or_else(|| panic!("{client} {tool}: {sums:?}"))
            .clone()
    };
    assert_eq!(of("rich", "tool/echo")["succeeded"], 1);
    assert_eq!(of("rich", "tool/echo")["cost"], "0.25");
    // What the client may use stands beside what it has used.
    for (limit, expected) in [
        ("monthly_budget", &json!("500")),
        ("max_calls_per_day", &json!(1_000_000)),
        ("max_calls_per_minute", &json!(1_000_000)),
    ] {
        assert_eq!(&of("rich", "tool/echo")[limit], expected, "{limit}");
    }
    assert_eq!(of("rich", "tool/fail")["failed"], 1);
    let refused = of("poor", "tool/append");
    assert_eq!(refused["refused_by_reason"], json!({"permission": 1}));
    let table = say(&site, &["governance", "stats", "--client", "poor"]).await;
    assert_eq!(table.output.lines().count(), 3, "{}", table.output);

    // Of a flood most are counted and not written one by one.
    let mut flooding = server.client().with_header("x-mcp-client-id", "poor");
    flooding.open(MODERN).await;
    for _ in 0..49 {
        let refused = call("append", json!({"mark": "z"}));
        let _ = flooding.request("tools/call", refused).await;
    }
    testkit::wait_until("they are noted", testkit::GENEROUS, || {
        let notes = site.notes();
        notes.iter().any(|it| it == "refusals_aggregated")
    })
    .await;
    let sums = rows(
        &site,
        &[
            "governance",
            "stats",
            "--format",
            "json",
            "--client",
            "poor",
        ],
    )
    .await;
    let refused = sums
        .iter()
        .find(|it| it["capability"] == "tool/append")
        .unwrap();
    assert_eq!(
        refused["refused_by_reason"],
        json!({"permission": 50}),
        "{sums:?}"
    );

    let explain = async |client: &str, tool: &str, arguments: &str| {
        let words = [
            "governance",
            "explain",
            "--as",
            client,
            "--tool",
            tool,
            "--args",
            arguments,
            "--format",
            "json",
        ];
        let said = say(&site, &words).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        serde_json::from_str::<Value>(&said.output).unwrap()
    };
    let cases = [
        ("poor", "echo", r#"{"text":"x"}"#, "allowed", Value::Null),
        ("poor", "append", "{}", "refused", json!("permission")),
        ("poor", "spend", "{}", "refused", json!("not_visible")),
        (
            "rich",
            "echo",
            r#"{"text":"LOUD"}"#,
            "refused",
            json!("permission"),
        ),
        (
            "rich",
            "spend",
            r#"{"usd":"1"}"#,
            "to_be_confirmed",
            Value::Null,
        ),
        ("rich", "spend", "{}", "refused", json!("arguments")),
    ];
    for (client, tool, arguments, verdict, reason) in cases {
        let told = explain(client, tool, arguments).await;
        assert_eq!(
            (&told["verdict"], &told["reason"]),
            (&json!(verdict), &reason),
            "{told}"
        );
    }
    // What the ledger says was used is used here too, and asking uses nothing.
    for _ in 0..2 {
        let told = explain("poor", "echo", r#"{"text":"x"}"#).await;
        assert_eq!(told["remaining"]["calls_this_minute"], 2, "{told}");
    }
    let table = say(
        &site,
        &[
            "governance",
            "explain",
            "--as",
            "rich",
            "--tool",
            "echo",
            "--args",
            r#"{"text":"LOUD"}"#,
        ],
    )
    .await;
    assert!(
        table.output.contains("the condition \"loud\" is true"),
        "{}",
        table.output
    );
    assert!(
        table.output.ends_with("refused: permission\n"),
        "{}",
        table.output
    );
    for arguments in ["x", "[]"] {
        let words = [
            "governance",
            "explain",
            "--as",
            "a",
            "--tool",
            "b",
            "--args",
            arguments,
        ];
        assert_eq!(say(&site, &words).await.code, Some(1));
    }
}
