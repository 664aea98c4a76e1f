//! `client …`: servers of ours and of others, by address and by program, over every transport.

use std::process::Stdio;

use serde_json::{Value, json};
use testkit::{GENEROUS, HttpServer, Port, free_port, wait_until};
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::support::{Said, Site, announced, names, run};

/// A server that is nobody's we know.
const STRANGER: &str = include_str!("../support/stranger.py");

/// Runs a command on a terminal, and types the lines of its first argument, each when it is asked for.
const TYPIST: &str = r#"
import os, pty, sys
lines, command = sys.argv[1].split("|"), sys.argv[2:]
process, terminal = pty.fork()
if process == 0:
    os.execvp(command[0], command)
seen = b""
while True:
    try:
        chunk = os.read(terminal, 4096)
    except OSError:
        break
    if not chunk:
        break
    seen += chunk
    os.write(1, chunk)
    if lines and (seen.endswith(b": ") or seen.endswith(b"] ")):
        os.write(terminal, lines.pop(0).encode() + b"\n")
        seen = b""
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"#;

fn program() -> &'static str {
    env!("CARGO_BIN_EXE_owlclaw-mcp")
}

async fn client(site: &Site, words: &[&str]) -> Said {
    run(site.command(&[&["client"], words].concat())).await
}

fn json_of(said: &Said) -> Value {
    assert_eq!(said.code, Some(0), "{}", said.messages);
    serde_json::from_str(&said.output).unwrap_or_else(|error| panic!("{error}: {}", said.output))
}

fn with_stranger() -> Site {
    let site = Site::new(json!({}));
    site.write("stranger.py", STRANGER);
    site
}

/// The outcome of one call of the stranger's tool `ask`.
async fn asked(site: &Site, words: &[&str], method: &str, params: Value) -> Value {
    let arguments = json!({ "method": method, "params": params }).to_string();
    let call = ["call", "ask", "--args", &arguments];
    let server = ["--", "python3", "stranger.py"];
    let said = client(site, &[&call, words, &server].concat()).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    serde_json::from_str(&said.output).unwrap_or_else(|error| panic!("{error}: {}", said.output))
}

#[tokio::test]
async fn every_transport_leads_to_the_same_tools_resources_and_answers() {
    let site = Site::new(json!({"http": {"websocket": {"enabled": true}}}));
    let text = site.skill("stock", "counting", "");
    let server = site.http().await;
    let at = |path: &str| format!("{}/mcp{path}", server.address());
    let places: [Vec<String>; 5] = [
        vec!["--url".to_owned(), format!("http://{}", at(""))],
        vec![
            "--url".to_owned(),
            format!("http://{}", at("/sse")),
            "--transport".to_owned(),
            "sse".to_owned(),
        ],
        // The address of the old transport refuses the new one, which is how it is found out.
        vec!["--url".to_owned(), format!("http://{}", at("/sse"))],
        vec!["--url".to_owned(), format!("ws://{}", at("/ws"))],
        vec!["--".to_owned(), program().to_owned(), "start".to_owned()],
    ];
    let elsewhere = Site::new(json!({}));
    elsewhere.skill("stock", "counting", "");
    for place in places {
        // The ledger of a directory belongs to one server.
        let site = if place[0] == "--" { &elsewhere } else { &site };
        let ask = async |words: &[&str]| {
            let place: Vec<&str> = place.iter().map(String::as_str).collect();
            client(site, &[words, &place[..]].concat()).await
        };
        let greeting = json_of(&ask(&["ping", "--format", "json"]).await);
        let revision = &greeting["result"]["revision"];
        match place[0].as_str() {
            // A program that is slow to start is taken for a legacy server.
            "--" => assert!(revision.is_string(), "{greeting}"),
            _ if place[1].ends_with("/sse") => assert_eq!(revision, "2025-11-25", "{place:?}"),
            _ => assert_eq!(revision, "2026-07-28", "{place:?}"),
        }
        assert_eq!(
            greeting["result"]["name"], "owlclaw-mcp-server",
            "{place:?}"
        );
        let listed = json_of(&ask(&["tools", "--format", "json"]).await);
        assert!(
            names(&listed["result"], "tools", "name").contains(&"echo".to_owned()),
            "{place:?}"
        );
        let echo = ask(&["call", "echo", "--args", r#"{"text": "é"}"#]).await;
        assert_eq!(
            echo.output, "{\n  \"text\": \"é\"\n}\n",
            "{place:?} {}",
            echo.messages
        );
        let resources = json_of(&ask(&["resources", "--format", "json"]).await);
        let uris = names(&resources["result"], "resources", "uri");
        assert_eq!(uris, ["skill://stock/counting"], "{place:?}");
        let read = ask(&["read", "skill://stock/counting"]).await;
        assert_eq!(read.output, text, "{place:?} {}", read.messages);
    }
    let table = client(&elsewhere, &["tools", "--", program(), "start"]).await;
    let line = table.output.lines().find(|it| it.contains("echo")).unwrap();
    assert!(
        line.contains("text") && line.contains("Gives back"),
        "{line}"
    );
    let said = client(&elsewhere, &["ping", "--", program(), "start"]).await;
    assert!(
        said.output.starts_with("owlclaw-mcp-server "),
        "{}",
        said.output
    );
    assert!(said.output.contains(" speaks 20"), "{}", said.output);
}

#[tokio::test]
async fn a_server_that_cannot_be_used_is_named_with_what_to_do() {
    let site = with_stranger();
    site.write("broken.sh", "echo 'no \u{1b}[2Jdatabase' >&2; exit 3");
    let server = site.http().await;
    let elsewhere = format!("http://{}/elsewhere", server.address());
    // As a port that speaks TLS does with what is none.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let no_http = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
        }
    });
    let rows: [(&[&str], i32, &[&str]); 19] = [
        (&["ping"], 2, &["--url"]),
        (
            &["ping", &elsewhere],
            2,
            &["tip: the address of a server is given by `--url URL`"],
        ),
        (
            &["ping", "--url", &no_http],
            1,
            &["broke before the service had answered", "https:// in --url"],
        ),
        (
            &["ping", "--url", "http://127.0.0.1:1/mcp", "--", "true"],
            2,
            &["cannot be used"],
        ),
        (
            &["ping", "--url", "http://127.0.0.1:1/mcp"],
            1,
            &[
                "http://127.0.0.1:1/mcp gives no answer",
                "hint: the server must be running",
            ],
        ),
        (
            &["ping", "--url", "ftp://127.0.0.1/mcp"],
            2,
            &["none of the schemes"],
        ),
        (&["ping", "--url", "file:///x"], 2, &["none of the schemes"]),
        // The port of another server of the host would be the default.
        (
            &["ping", "--url", "http://127.0.0.1:99999/mcp"],
            2,
            &["its port is no number from 1 to 65535"],
        ),
        (
            &["ping", "--url", "http://u:p@127.0.0.1/mcp"],
            2,
            &["a user or a password"],
        ),
        (
            &["ping", "--header", "nocolon", "--url", &elsewhere],
            2,
            &["write NAME: VALUE"],
        ),
        (
            &["ping", "--header", "Content-Length: 5", "--url", &elsewhere],
            2,
            &["the header `content-length` is set by the transport"],
        ),
        (
            &["ping", "--header", "Mcp-Session-Id: x", "--url", &elsewhere],
            2,
            &["the header `mcp-session-id` is set by the transport"],
        ),
        (
            &["call", "x", "--args", "{", "--", "true"],
            2,
            &["--args is not JSON"],
        ),
        (
            &["call", "x", "--answers", "[]", "--", "true"],
            2,
            &["--answers must be a JSON object"],
        ),
        (
            &["ping", "--url", &elsewhere],
            1,
            &["MCP is spoken at /mcp"],
        ),
        (
            &["ping", "--", "no-such-program-anywhere"],
            1,
            &["cannot be started", "hint: the program"],
        ),
        (
            &["ping", "--", "sh", "broken.sh"],
            1,
            &[
                "exit status: 3",
                "no \u{fffd}[2Jdatabase",
                "hint: the program must speak MCP",
            ],
        ),
        (
            &["ping", "--revision", "1.0", "--", "true"],
            2,
            &["2024-11-05, 2025-03-26"],
        ),
        (
            &["ping", "--env", "NOT_SET_ANYWHERE", "--", "true"],
            2,
            &["NOT_SET_ANYWHERE"],
        ),
    ];
    for (words, code, said_of) in rows {
        let said = client(&site, words).await;
        assert_eq!(
            (said.code, said.output.as_str()),
            (Some(code), ""),
            "{words:?}"
        );
        for part in said_of {
            assert!(said.messages.contains(part), "{words:?}: {}", said.messages);
        }
        assert!(
            !said.messages.contains('\u{1b}'),
            "{words:?}: {:?}",
            said.messages
        );
    }
}

#[tokio::test]
async fn an_error_of_the_server_fails_the_command_and_is_the_output_for_programs() {
    let site = with_stranger();
    let stranger = ["--", "python3", "stranger.py"];
    let said = client(&site, &[&["call", "aks"][..], &stranger].concat()).await;
    assert_eq!((said.code, said.output.as_str()), (Some(1), ""));
    let said = client(
        &site,
        &[&["read", "a:b", "--format", "json"][..], &stranger].concat(),
    )
    .await;
    assert_eq!(said.code, Some(1), "{}", said.messages);
    let printed: Value = serde_json::from_str(&said.output).unwrap();
    assert_eq!(printed["error"]["code"], -32601, "{printed}");
    assert!(!said.output.contains('\u{1b}'), "{:?}", said.output);
    let said = client(&site, &[&["prompts"][..], &stranger].concat()).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("no \u{fffd}[2Jsuch method (-32601)"),
        "{}",
        said.messages
    );

    let ours = ["--", program(), "start"];
    let said = client(&site, &[&["call", "ehco"][..], &ours].concat()).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("hint: did you mean `echo`?"),
        "{}",
        said.messages
    );
    let said = client(
        &site,
        &[&["call", "fail", "--args", r#"{"why": "rain"}"#][..], &ours].concat(),
    )
    .await;
    assert_eq!((said.code, said.output.as_str()), (Some(1), ""));
    assert!(said.messages.contains("rain"), "{}", said.messages);
}

#[tokio::test]
async fn a_tool_that_does_not_fit_is_warned_of() {
    let site = with_stranger();
    let bare = r#"{"tools": [{"name": "bare\x1b[2J"}, *TOOLS]}"#;
    let unfit = STRANGER.replace(r#"{"tools": TOOLS}"#, bare);
    assert_ne!(unfit, STRANGER);
    site.write("stranger.py", unfit);
    let said = client(&site, &["tools", "--", "python3", "stranger.py"]).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    assert!(said.output.contains("ask"), "{}", said.output);
    assert!(
        said.messages.contains("warning: tools/list: ") && said.messages.contains("bare"),
        "{}",
        said.messages
    );
    assert!(!said.messages.contains('\u{1b}'), "{}", said.messages);
}

#[tokio::test]
async fn text_of_a_server_commands_no_terminal() {
    let site = with_stranger();
    for words in [&["ping"][..], &["tools"], &["call", "say"]] {
        let said = client(&site, &[words, &["--", "python3", "stranger.py"]].concat()).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        for text in [&said.output, &said.messages] {
            assert!(
                !text.contains(['\u{1b}', '\u{202e}']),
                "{words:?}: {text:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_child_gets_no_variables_but_those_that_are_named() {
    let site = with_stranger();
    let words = [
        "client",
        "call",
        "variables",
        "--env",
        "PASSED",
        "--env",
        "GIVEN=a=b",
        "--",
        "python3",
        "stranger.py",
    ];
    let mut command = site.command(&words);
    command.env("PASSED", "yes").env("HELD_BACK", "no");
    let variables = json_of(&run(command).await);
    assert_eq!(
        (&variables["PASSED"], &variables["GIVEN"]),
        (&json!("yes"), &json!("a=b"))
    );
    assert_eq!(variables.get("HELD_BACK"), None);
}

fn form() -> Value {
    json!({"message": "Delete \u{1b}[2Jold.txt?", "requestedSchema": {
        "type": "object",
        "properties": {"sure": {"type": "boolean"}, "copies": {"type": "integer"}},
        "required": ["sure"],
    }})
}

#[tokio::test]
async fn questions_without_anybody_to_answer_are_refused() {
    let site = with_stranger();
    for (method, params) in [
        ("elicitation/create", form()),
        (
            "sampling/createMessage",
            json!({"messages": [], "maxTokens": 1}),
        ),
        ("roots/list", json!({})),
    ] {
        let answer = asked(&site, &[], method, params).await;
        assert!(answer["code"].is_i64(), "{method}: {answer}");
    }
    // A server that keeps to the protocol does not even ask, and says what is missing.
    let careful = Site::new(json!({"governance": {"tools": {"append": {"risk": ["financial"]}}}}));
    let call = [
        "call",
        "append",
        "--args",
        r#"{"mark": "a"}"#,
        "--",
        program(),
        "start",
    ];
    let said = client(&careful, &call).await;
    assert_eq!(said.code, Some(1), "{}", said.output);
    assert_eq!(careful.read("executed"), "");
    let confirmed = [
        &call[..4],
        &["--answers", r#"{"confirm": true}"#],
        &call[4..],
    ]
    .concat();
    let said = client(&careful, &confirmed).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    assert!(
        said.messages.contains("the server asks: "),
        "{}",
        said.messages
    );
    assert_eq!(careful.read("executed"), "a\n");
}

#[tokio::test]
async fn forms_roots_and_requests_for_a_model_are_answered_by_the_command_line() {
    let site = with_stranger();
    let wanted = json!({"messages": [], "maxTokens": 1});
    site.write("said", "tea");
    for words in [["--sampled", "tea"], ["--sampled", "@said"]] {
        let answer = asked(&site, &words, "sampling/createMessage", wanted.clone()).await;
        assert_eq!(
            answer["content"],
            json!({"type": "text", "text": "tea"}),
            "{answer}"
        );
        assert_eq!(answer["role"], "assistant");
    }
    let words = ["--answers", r#"{"sure": true, "copies": 2, "other": 1}"#];
    let answer = asked(&site, &words, "elicitation/create", form()).await;
    assert_eq!(
        answer,
        json!({"action": "accept", "content": {"sure": true, "copies": 2}})
    );
    for unfit in ["{}", r#"{"sure": "yes", "copies": 2}"#] {
        let answer = asked(&site, &["--answers", unfit], "elicitation/create", form()).await;
        assert!(answer["code"].is_i64(), "{answer}");
    }
    std::fs::create_dir(site.path("a b")).unwrap();
    let answer = asked(&site, &["--root", "a b"], "roots/list", json!({})).await;
    let uri = answer["roots"][0]["uri"].as_str().unwrap();
    assert!(
        uri.starts_with("file:///") && uri.ends_with("/a%20b"),
        "{uri}"
    );
}

#[tokio::test]
async fn numbers_go_there_and_come_back_with_each_digit() {
    let site = with_stranger();
    let text = r#"{"f":0.1234567890123456789012,"n":123456789012345678901234567890,"x":1e400}"#;
    let words = ["call", "mirror", "--args", text];
    let stranger = ["--", "python3", "stranger.py"];
    for format in ["text", "json"] {
        let words = [&words[..], &["--format", format], &stranger].concat();
        let said = client(&site, &words).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        let flat: String = said.output.split_whitespace().collect();
        assert!(flat.contains(text), "{}", said.output);
    }
    let twice = ["call", "mirror", "--args", r#"{"a": 1, "a": 2}"#];
    let said = client(&site, &[&twice[..], &stranger].concat()).await;
    assert_eq!((said.code, said.output.as_str()), (Some(2), ""));
    assert!(
        said.messages.contains("the member `a` twice"),
        "{}",
        said.messages
    );
}

#[tokio::test]
async fn the_file_of_a_prompt_commands_no_terminal_and_stays_exact_elsewhere() {
    let site = Site::new(json!({"app": null, "prompts": {"dir": "prompts"}}));
    let evil = "\u{1b}[2J\u{1b}]0;pwn\u{7}\u{202e}x";
    site.write("prompts/esc/1.md", format!("---\n---\n{evil}\n"));
    site.write("prompts/esc/2.md", "---\n---\nharmless\n");
    site.write("typist.py", TYPIST);
    for words in [
        &["prompts", "show", "esc@1"][..],
        &["prompts", "render", "esc@1"],
        &["prompts", "diff", "esc", "1"],
    ] {
        let piped = run(site.command(words)).await;
        assert!(piped.output.contains(evil), "{words:?}: {:?}", piped.output);
        let mut command = Command::new("python3");
        let typist = ["typist.py", "", program()];
        command.args(typist).args(words).current_dir(site.path("."));
        let shown = run(command).await.output;
        let harmless = "\u{fffd}[2J\u{fffd}]0;pwn\u{fffd}\u{fffd}x";
        assert!(shown.contains(harmless), "{words:?}: {shown:?}");
        assert!(
            !shown.contains(['\u{1b}', '\u{7}', '\u{202e}']),
            "{words:?}: {shown:?}"
        );
    }
}

/// The output of a command on a terminal where `lines` are typed.
async fn typed(site: &Site, lines: &str, words: &[&str]) -> Said {
    site.write("typist.py", TYPIST);
    let mut command = Command::new("python3");
    command
        .args(["typist.py", lines, program(), "client"])
        .args(words)
        .current_dir(site.path("."));
    run(command).await
}

#[tokio::test]
async fn a_person_at_a_terminal_is_asked() {
    let site = with_stranger();
    let ask = async |lines: &str, method: &str, params: Value| {
        let arguments = json!({ "method": method, "params": params }).to_string();
        let words = [
            "call",
            "ask",
            "--args",
            &arguments,
            "--",
            "python3",
            "stranger.py",
        ];
        let said = typed(&site, lines, &words).await;
        assert_eq!(said.code, Some(0), "{}", said.output);
        said.output
    };
    // What does not fit is asked for again.
    let said = ask("y|two|2|perhaps|y", "elicitation/create", form()).await;
    assert!(
        said.contains("the server asks: Delete \u{fffd}[2Jold.txt?"),
        "{said}"
    );
    assert!(
        said.contains("it must be y or n") && said.contains("it must be a number"),
        "{said}"
    );
    let flat: String = said.split_whitespace().collect();
    assert!(
        flat.contains(r#"{"action":"accept","content":{"copies":2,"sure":true}}"#),
        "{said}"
    );
    for (lines, action) in [("n", "decline"), ("", "cancel")] {
        let said = ask(lines, "elicitation/create", form()).await;
        assert!(
            said.contains(&format!("\"action\": \"{action}\"")),
            "{said}"
        );
    }
    let visit =
        |url: &str| json!({"mode": "url", "message": "Pay", "url": url, "elicitationId": "e"});
    let said = ask("", "elicitation/create", visit("file:///etc/passwd")).await;
    assert!(said.contains("no address of http or https"), "{said}");
    let said = ask("", "elicitation/create", visit("https://a.example/ --b")).await;
    assert!(said.contains("since it has a space"), "{said}");
    let looks_like = "HTTPS://b\u{fc}cher.example/x";
    let said = ask("n", "elicitation/create", visit(looks_like)).await;
    let shown = "visited: https://xn--bcher-kva.example/x";
    assert!(
        said.contains(shown) && said.contains("may look like others"),
        "{said}"
    );
    assert!(said.contains("\"action\": \"decline\""), "{said}");
    let said = ask("n", "elicitation/create", visit("https://pay.example/x")).await;
    assert!(said.contains("visited: https://pay.example/x"), "{said}");
    assert!(said.contains("\"action\": \"decline\""), "{said}");
}

#[tokio::test]
async fn an_interrupted_call_is_cancelled_on_the_server() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let url = format!("http://{}/mcp", server.address());
    let beside = Site::new(json!({}));
    let rows: [(&Site, &[&str]); 3] = [
        (&site, &["--url", &url]),
        (&site, &["--url", &url, "--revision", "2025-06-18"]),
        (&beside, &["--", program(), "start"]),
    ];
    for (site, place) in rows {
        std::fs::remove_file(site.path("naps")).ok();
        let call = ["client", "call", "nap", "--args", r#"{"seconds": 600}"#];
        let mut command = site.command(&[&call[..], place].concat());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        wait_until("the call runs", GENEROUS, || {
            site.read("naps").contains("begun")
        })
        .await;
        let id = process.id().unwrap().to_string();
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .await
            .unwrap();
        let status = tokio::time::timeout(GENEROUS, process.wait())
            .await
            .unwrap()
            .unwrap();
        assert_eq!(status.code(), Some(130), "{place:?}");
        let mut output = String::new();
        process
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut output)
            .await
            .unwrap();
        assert_eq!(output, "");
        wait_until("it is cancelled", GENEROUS, || {
            site.read("naps").contains("cancelled")
        })
        .await;
    }
}

#[tokio::test]
async fn time_progress_and_log_messages_are_told() {
    let site = Site::new(json!({}));
    let ours = ["--", program(), "start"];
    let words = [
        "call",
        "nap",
        "--args",
        r#"{"seconds": 600}"#,
        "--timeout",
        "3",
    ];
    let said = client(&site, &[&words[..], &ours].concat()).await;
    assert_eq!(said.code, Some(1));
    assert!(
        said.messages.contains("was not answered within 3s"),
        "{}",
        said.messages
    );
    assert!(
        said.messages.contains("hint: --timeout"),
        "{}",
        said.messages
    );
    let words = ["call", "report", "--args", r#"{"steps": 3}"#];
    let said = client(&site, &[&words[..], &ours].concat()).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    assert!(
        said.messages.contains("progress: 1 of 3: step 1"),
        "{}",
        said.messages
    );
}

/// A server that says what it was not asked for: log messages of all severities, progress without an end, a secret.
const TALKATIVE: &str = r#"
import json, os, sys
def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params", {})
    result = {"content": [{"type": "text", "text": "key " + os.environ.get("API_KEY", "none")}]}
    if method == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"logging": {}},
                  "serverInfo": {"name": "t", "version": "1"}}
    elif method == "tools/call" and params["name"] == "logs":
        for level in ("debug", "info", "error", "emergency"):
            send({"method": "notifications/message", "params": {"level": level, "data": "at " + level}})
    elif method == "tools/call" and params["name"] == "flood":
        token = params["_meta"]["progressToken"]
        for step in range(20000):
            send({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        open("flooded", "w").close()
        continue
    if "id" in asked and method == "server/discover":
        send({"id": asked["id"], "error": {"code": -32601, "message": "no"}})
    elif "id" in asked:
        send({"id": asked["id"], "result": result})
"#;

#[tokio::test]
async fn log_messages_are_printed_from_the_severity_that_is_named() {
    let site = Site::new(json!({}));
    site.write("talkative.py", TALKATIVE);
    let server = [
        "--env",
        "API_KEY=canary-of-a-child",
        "--",
        "python3",
        "talkative.py",
    ];
    for (words, expected) in [
        (&[][..], &[][..]),
        (&["--log", "error"], &["error", "emergency"]),
        (
            &["--log", "debug"],
            &["debug", "info", "error", "emergency"],
        ),
    ] {
        let said = client(&site, &[&["call", "logs"], words, &server].concat()).await;
        assert_eq!(said.code, Some(0), "{}", said.messages);
        let logged = said.messages.lines().filter(|it| it.starts_with("log: "));
        let logged: Vec<_> = logged.map(str::to_owned).collect();
        let expected = expected.iter().map(|it| format!("log: {it}: at {it}"));
        assert_eq!(logged, expected.collect::<Vec<_>>(), "{words:?}");
        // A secret of the child's is not repeated.
        assert_eq!(said.output, "key [redacted secret]\n");
    }
}

#[tokio::test]
async fn messages_that_nobody_reads_hold_up_neither_the_clock_nor_an_interruption() {
    for is_interrupted in [false, true] {
        let site = Site::new(json!({}));
        site.write("talkative.py", TALKATIVE);
        let timeout = if is_interrupted { "600" } else { "5" };
        let call = ["client", "call", "flood", "--timeout", timeout];
        let server = ["--", "python3", "talkative.py"];
        let mut process = site
            .command(&[&call[..], &server].concat())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        if is_interrupted {
            wait_until("more was told than a pipe holds", GENEROUS, || {
                site.path("flooded").exists()
            })
            .await;
            let id = process.id().unwrap().to_string();
            let kill = Command::new("kill").args(["-INT", &id]).status().await;
            assert!(kill.unwrap().success());
        }
        let status = tokio::time::timeout(GENEROUS, process.wait()).await;
        let code = if is_interrupted { 130 } else { 1 };
        assert_eq!(status.unwrap().unwrap().code(), Some(code));
    }
}

#[tokio::test]
async fn changes_are_printed_as_they_are_told() {
    let site = Site::new(json!({}));
    site.skill("stock", "first", "");
    let server = site.http().await;
    let url = format!("http://{}/mcp", server.address());
    for (revision, name) in [("2026-07-28", "second"), ("2025-06-18", "third")] {
        let words = [
            "client",
            "listen",
            "--count",
            "1",
            "--format",
            "json",
            "--url",
            &url,
            "--revision",
            revision,
        ];
        let mut command = site.command(&words);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let mut told = Vec::new();
        let stderr = process.stderr.as_mut().unwrap();
        while !String::from_utf8_lossy(&told).contains("listening for changes") {
            assert_ne!(stderr.read_buf(&mut told).await.unwrap(), 0);
        }
        site.skill("stock", name, "");
        let output = tokio::time::timeout(GENEROUS, process.wait_with_output()).await;
        let output = output.unwrap().unwrap();
        assert_eq!(output.status.code(), Some(0), "{revision}");
        let line: Value = serde_json::from_slice(&output.stdout).unwrap();
        let method = line["method"].as_str().unwrap();
        assert!(method.ends_with("/list_changed"), "{revision}: {line}");
    }
}

#[tokio::test]
async fn keys_are_read_from_files_and_the_environment() {
    let site = Site::new(json!({"identity": {"api_keys": {"file": "keys.json"}}}));
    let made = run(site.command(&["keys", "create", "--principal", "ana"])).await;
    let key = made.output.trim().to_owned();
    let server = site.http().await;
    let url = format!("http://{}/mcp", server.address());
    let refused = client(&site, &["ping", "--url", &url]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused
            .messages
            .contains(&format!("owlclaw-mcp client login --url {url}")),
        "{}",
        refused.messages
    );
    site.write("key", format!("{key}\n"));
    site.write("headers", format!("X-API-Key: {key}\n"));
    for words in [
        ["--token-file", "key"],
        ["--header", "@headers"],
        ["--token-env", "MY_KEY"],
    ] {
        let words = [&["client", "ping", "--url", &url][..], &words].concat();
        let mut command = site.command(&words);
        command.env("MY_KEY", &key);
        let said = run(command).await;
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.messages);
    }
    site.write("headers", format!("{key}\n"));
    for (words, why) in [
        (["--header", "@headers"], "write NAME: VALUE"),
        (
            ["--token-file", "no-such-file"],
            "`no-such-file` cannot be read",
        ),
        (["--token-env", "NOT_SET"], "NOT_SET"),
    ] {
        let said = client(&site, &[&["ping", "--url", &url][..], &words].concat()).await;
        assert_eq!(said.code, Some(2), "{words:?}");
        assert!(
            said.messages.contains(why) && !said.messages.contains(&key),
            "{}",
            said.messages
        );
    }
}

#[tokio::test]
async fn a_client_without_a_way_to_prove_itself_is_wrong_usage() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let url = format!("http://{}/mcp", server.address());
    site.write("secret", "hush-hush");
    let at = |words: &[&str]| [&["ping", "--url", &url], words].concat().join(" ");
    let id = "--client-credentials --client-id it";
    for (words, why) in [
        (at(&["--client-credentials"]), "--client-id"),
        (at(&[id]), "a secret or a key"),
        (
            at(&[id, "--client-key", "secret"]),
            "-----BEGIN PRIVATE KEY-----",
        ),
        (
            at(&[id, "--client-key", "missing"]),
            "`missing` cannot be read",
        ),
        (
            at(&[
                id,
                "--client-key",
                "secret",
                "--client-secret-file",
                "secret",
            ]),
            "cannot be used with",
        ),
        (at(&[id, "--token-file", "secret"]), "cannot be used with"),
        (
            at(&[
                id,
                "--client-secret-file",
                "secret",
                "--header",
                "Authorization:x",
            ]),
            "give one of them",
        ),
        // It would be passed over where no tokens are kept.
        (
            at(&["--client-id", "it", "--client-secret-file", "missing"]),
            "`missing` cannot be read",
        ),
        (at(&["--client-metadata", "http://it"]), "metadata document"),
        (at(&["--scope", "mcp"]), "--client-credentials"),
        // A program has no use for them.
        (format!("ping {id} -- true"), "cannot be used with"),
        (
            "ping --token-file secret -- true".to_owned(),
            "cannot be used with",
        ),
        (
            "ping --header A:b -- true".to_owned(),
            "cannot be used with",
        ),
        (
            "ping --transport sse -- true".to_owned(),
            "cannot be used with",
        ),
        ("ping --client-id it -- true".to_owned(), "--url"),
        ("ping --tokens it -- true".to_owned(), "--url"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let said = client(&site, &words).await;
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.messages);
        assert!(
            said.messages.contains(why) && !said.messages.contains("hush"),
            "{words:?}: {}",
            said.messages
        );
    }
}

/// An authorization server in a process of its own, and its address.
async fn issuer(site: &Site) -> (tokio::process::Child, String) {
    let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/clients");
    let serve = "import pathlib, sys; sys.path.insert(0, sys.argv[1]); from issuer import Issuer\n\
                 with Issuer(pathlib.Path('.')) as it: print(it.url, flush=True); sys.stdin.read()";
    let mut process = Command::new("python3")
        .args(["-c", serve, clients])
        .current_dir(site.path("."))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut line = Vec::new();
    let output = process.stdout.as_mut().unwrap();
    while !line.ends_with(b"\n") {
        assert_ne!(
            output.read_buf(&mut line).await.unwrap(),
            0,
            "the issuer starts"
        );
    }
    (process, String::from_utf8(line).unwrap().trim().to_owned())
}

#[tokio::test]
async fn a_person_signs_in_once_and_is_known_until_the_tokens_are_forgotten() {
    use std::os::unix::fs::PermissionsExt;

    let port = free_port();
    let beside = Site::new(json!({}));
    let (_issuer, issuer) = issuer(&beside).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    let site = Site::new(json!({
        "http": {"port": port, "websocket": {"enabled": true}},
        "identity": {"resource": url, "jwt": {"bank": {
            "issuer": issuer,
            "jwks_url": format!("{issuer}/jwks"),
            "required_scopes": ["mcp"],
        }}},
    }));
    let command = site.command(&["start", "--transport", "http"]);
    let _server = HttpServer::spawn(command, Port::Announced(announced)).await;
    // The browser of this machine.
    let browser = "#!/usr/bin/env python3\nimport sys, urllib.request\nurllib.request.urlopen(sys.argv[1]).read()\n";
    site.write("bin/xdg-open", browser);
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(site.path("bin/xdg-open"), executable).unwrap();
    let path = format!(
        "{}:{}",
        site.path("bin").display(),
        std::env::var("PATH").unwrap()
    );
    let ask = async |words: &[&str]| {
        let mut command = site.command(&[&["client"], words].concat());
        command.env("PATH", &path).env("HOME", site.path("home"));
        run(command).await
    };

    let refused = ask(&["tools", "--url", &url]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.messages.contains("client login"),
        "{}",
        refused.messages
    );
    let signed_in = ask(&["login", "--url", &url]).await;
    assert_eq!(signed_in.code, Some(0), "{}", signed_in.messages);
    assert!(
        signed_in
            .messages
            .contains(&format!("sign in at {issuer}/authorize?")),
        "{}",
        signed_in.messages
    );
    let kept = site.path("home/.local/state/owlclaw-mcp/tokens");
    assert!(
        signed_in.output.contains(&*kept.to_string_lossy()),
        "{}",
        signed_in.output
    );
    // Beside it is the lock of those who renew.
    let mut files = std::fs::read_dir(&kept)
        .unwrap()
        .map(|it| it.unwrap().path());
    let file = files
        .find(|it| it.extension().is_some_and(|it| it == "json"))
        .unwrap();
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let said = ask(&["call", "echo", "--args", r#"{"text": "x"}"#, "--url", &url]).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    let calls = site.calls();
    assert_eq!(&*calls.last().unwrap().started.principal, "ana");

    // A file that others may read is not used, and not passed over either.
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = ask(&["ping", "--url", &url]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.messages.contains("chmod 600"), "{}", said.messages);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();

    let forgotten = ask(&["logout", "--url", &url]).await;
    assert_eq!(forgotten.code, Some(0), "{}", forgotten.messages);
    assert!(!file.exists());
    assert_eq!(ask(&["ping", "--url", &url]).await.code, Some(1));

    // The advice of a WebSocket that wants a token can be followed.
    let socket = format!("ws://127.0.0.1:{port}/mcp/ws");
    let refused = ask(&["ping", "--url", &socket]).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.messages.contains(&format!("login --url {socket}`")),
        "{}",
        refused.messages
    );
    for words in ["login", "ping", "logout"] {
        let said = ask(&[words, "--url", &socket]).await;
        assert_eq!(said.code, Some(0), "{words}: {}", said.messages);
    }
}

#[tokio::test]
async fn an_address_to_sign_in_at_is_only_printed_where_there_is_no_browser() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let url = format!("http://{}/mcp", server.address());
    // A server that lets everybody in names nobody to sign in at.
    let words = [
        "login",
        "--url",
        &url,
        "--no-browser",
        "--tokens",
        "tokens",
        "--timeout",
        "5",
    ];
    let said = client(&site, &words).await;
    assert_eq!(said.code, Some(1), "{}", said.output);
    assert!(
        said.messages.starts_with(&format!("error: {url}: ")),
        "{}",
        said.messages
    );
}
