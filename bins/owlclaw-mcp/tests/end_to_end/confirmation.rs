//! Calls that somebody has to confirm: by the client's user, by a command, over HTTP.

use serde_json::{Value, json};
use testkit::{
    Conversation, HttpClient, HttpRequest, HttpServer, MODERN, Reply, StdioServer, failure_of,
    succeeded,
};

use crate::support::{Site, call, run, text};

const KEY: &str = "io.owlclaw/confirm";
const TOKEN: &str = "only-operators-have-this";

/// A site where nothing is appended unless somebody agrees.
fn careful() -> Site {
    Site::new(json!({"governance": {
        "tools": {
            "append": {"risk": ["financial"]},
            "linger": {"confirmation": "operator"},
            "nap": {"confirmation": "operator"},
        },
        "approvals": {"http_token": "${APPROVALS_TOKEN}"},
    }}))
}

async fn serve(site: &Site) -> HttpServer {
    let mut command = site.command(&["start", "--transport", "http"]);
    command.env("APPROVALS_TOKEN", TOKEN);
    HttpServer::spawn(command, testkit::Port::Announced(crate::support::announced)).await
}

async fn client(server: &HttpServer, version: &str, can_be_asked: bool) -> HttpClient {
    let mut client = server.client().with_header("x-mcp-client-id", "anna");
    if can_be_asked {
        client.voice.capabilities = json!({"elicitation": {}});
    }
    client.open(version).await;
    client
}

/// Number of times that the handlers ran.
fn runs(site: &Site) -> usize {
    site.read("executed").lines().count()
}

async fn operators(
    server: &HttpServer,
    method: &str,
    target: &str,
    token: Option<&str>,
) -> (u16, Value) {
    let mut request = HttpRequest::new(method, target);
    if let Some(token) = token {
        request = request.header("authorization", &format!("Bearer {token}"));
    }
    let response = server.client().exchange(&request).await;
    let body = serde_json::from_str(response.text()).unwrap_or(Value::Null);
    (response.status, body)
}

/// The approval that a refusal names.
fn pending(refused: &Reply) -> String {
    approval_of(&refused.failure())
}

fn approval_of(error: &Value) -> String {
    assert_eq!(error["code"], -32003, "{error}");
    assert_eq!(error["data"]["reason"], "confirmation", "{error}");
    let id = error["data"]["approval"]["id"].as_str();
    id.expect("an approval").to_owned()
}

#[tokio::test]
async fn arguments_with_a_member_twice_are_refused_before_anybody_is_asked() {
    let site = careful();
    let mut command = site.command(&["start"]);
    command.env("APPROVALS_TOKEN", TOKEN);
    let mut server = StdioServer::spawn(command);
    server.open("2025-06-18").await;
    let arguments = [
        r#"{"mark":"a","mark":"b"}"#,
        r#"{"mark":"a","\u006dark":"b"}"#,
    ];
    for (id, arguments) in (70..).zip(arguments) {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"linger","arguments":{arguments}}}}}"#
        );
        server.send_line(call.as_bytes()).await;
        let answer = server.receive_answer(&json!(id)).await;
        let failure = failure_of(&answer);
        assert_eq!(failure["code"], -32602, "{answer}");
        assert!(
            failure.to_string().contains("`mark` is given twice"),
            "{answer}"
        );
    }
    let mut command = site.command(&["approvals", "list", "--format", "json"]);
    command.env("APPROVALS_TOKEN", TOKEN);
    let list = run(command).await;
    assert_eq!((list.code, list.output.trim()), (Some(0), "[]"));
    assert_eq!(runs(&site), 0);
}

#[tokio::test]
async fn the_user_of_a_modern_client_confirms_each_call_for_itself() {
    let site = careful();
    let server = serve(&site).await;
    let mut anna = client(&server, MODERN, true).await;
    let params = call("append", json!({"mark": "one"}));
    let asked = anna.request("tools/call", params.clone()).await;
    let result = asked.result();
    assert_eq!(result["resultType"], "input_required", "{result}");
    let mut answered = params.clone();
    answered["inputResponses"] = json!({KEY: {"action": "accept", "content": {"confirm": true}}});
    answered["requestState"] = result["requestState"].clone();
    let mut other = answered.clone();
    other["arguments"]["mark"] = json!("two");
    let misused = anna.request("tools/call", other).await;
    assert_eq!(misused.code(), -32602, "{misused:?}");
    assert_eq!(runs(&site), 0);

    // Sixteen at the same moment, on as many connections: one is made.
    let mut sent = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let (mut anna, answered) = (anna.clone(), answered.clone());
        sent.spawn(async move { anna.request("tools/call", answered).await.response });
    }
    let answers = sent.join_all().await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|it| succeeded(it));
    assert_eq!(done.len(), 1, "{answers:?}");
    for answer in refused {
        let reason = &failure_of(answer)["data"]["reason"];
        assert_eq!(reason, "confirmation", "{answer}");
    }
    assert_eq!(runs(&site), 1);
    let calls = site.calls();
    let ran: Vec<_> = calls
        .iter()
        .filter(|it| crate::support::outcome(it) == "succeeded")
        .collect();
    assert_eq!(ran.len(), 1);
    assert!(ran[0].started.approval.is_some());
}

#[tokio::test]
async fn an_operator_decides_over_http_with_the_token_alone() {
    let site = careful();
    let server = serve(&site).await;
    let mut anna = client(&server, "2025-03-26", false).await;
    let params = call("append", json!({"mark": "one"}));
    let refused = anna.request("tools/call", params.clone()).await;
    let id = pending(&refused);

    let decide = format!("/approvals/{id}?decision=approve&by=boss");
    for (method, target) in [
        ("GET", "/approvals"),
        ("GET", "/governance/stats"),
        ("POST", decide.as_str()),
    ] {
        for token in [
            None,
            Some("wrong"),
            Some(""),
            Some(&TOKEN[1..]),
            Some("Only-operators-have-this"),
        ] {
            let (status, body) = operators(&server, method, target, token).await;
            assert_eq!(status, 401, "{method} {target} with {token:?}: {body}");
            assert!(!body.to_string().contains(&id), "{body}");
        }
    }
    assert_eq!(runs(&site), 0);

    let (status, listed) = operators(&server, "GET", "/approvals", Some(TOKEN)).await;
    assert_eq!(status, 200);
    let listed = listed["approvals"].as_array().unwrap();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["id"], id);
    assert_eq!(listed[0]["principal"], "anna");
    assert_eq!(listed[0]["arguments"], json!({"mark": "one"}));

    for (target, status) in [
        (format!("/approvals/{id}"), 400),
        (format!("/approvals/{id}?decision=perhaps"), 400),
        // Nobody decides without a name.
        (format!("/approvals/{id}?decision=approve"), 400),
        (format!("/approvals/{id}?decision=approve&by=%20"), 400),
        ("/approvals/apr_nothing?decision=approve".to_owned(), 404),
        (
            "/approvals/apr_0000000000000000000000?decision=approve&by=carla".to_owned(),
            404,
        ),
        (decide.clone(), 200),
        (decide.clone(), 409),
    ] {
        let (answered, body) = operators(&server, "POST", &target, Some(TOKEN)).await;
        assert_eq!(answered, status, "{target}: {body}");
    }
    assert_eq!(runs(&site), 0, "it is the client that makes the call");
    let done = anna.request("tools/call", params.clone()).await;
    assert_eq!(text(done.result()), "one");
    let again = anna.request("tools/call", params).await;
    assert_ne!(pending(&again), id);
    assert_eq!(runs(&site), 1);

    let (status, stats) = operators(&server, "GET", "/governance/stats?days=2", Some(TOKEN)).await;
    assert_eq!(status, 200);
    let rows = stats["statistics"].as_array().unwrap();
    let row = rows.iter().find(|it| it["capability"] == "tool/append");
    let row = row.unwrap_or_else(|| panic!("{stats}"));
    assert_eq!(row["succeeded"], 1, "{row}");
    let usage = stats["usage"].as_array().unwrap();
    let limits = &usage[0]["limits"];
    assert_eq!(limits["monthly_budget"], "500", "{stats}");
    assert_eq!(limits["calls_minute"], 1_000_000, "{stats}");
    assert_eq!(row["refused"]["confirmation"], 2, "{row}");
    let (_, all) = operators(&server, "GET", "/approvals?state=used", Some(TOKEN)).await;
    assert_eq!(all["approvals"][0]["decided_by"], "operator:boss", "{all}");
    let proof = all["approvals"][0]["decided_proof"].as_str().unwrap();
    assert!(proof.starts_with("the token of operators"), "{proof}");
}

#[tokio::test]
async fn deciders_see_numbers_with_all_their_digits() {
    let site = careful();
    let server = serve(&site).await;
    let arguments = r#"{"seconds":18446744073709551617.1234567890123456789}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"nap","arguments":{arguments},"_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientInfo":{{"name":"t","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}}}}}"#
    );
    let request = HttpRequest::new("POST", "/mcp")
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", "tools/call")
        .header("mcp-name", "nap")
        .header("x-mcp-client-id", "anna")
        .body(body);
    let response = server.client().exchange(&request).await;
    let refused: Value = serde_json::from_str(response.text()).unwrap();
    let id = approval_of(&testkit::failure_of(&refused));
    let get =
        HttpRequest::new("GET", "/approvals").header("authorization", &format!("Bearer {TOKEN}"));
    let listed = server.client().exchange(&get).await;
    assert!(listed.text().contains(arguments), "{}", listed.text());
    for words in [
        &["approvals", "show", &id][..],
        &["approvals", "show", &id, "--format", "json"],
        &["approvals", "list", "--format", "csv"],
        &["ledger", "query", "--format", "json"],
        &["ledger", "export"],
    ] {
        let said = run(site.command(words)).await;
        let output = said.output.replace("\"\"", "\"");
        assert!(
            output.contains("18446744073709551617"),
            "{words:?}: {output}"
        );
    }
}

#[tokio::test]
async fn an_operator_revokes_a_decision_over_http() {
    let site = careful();
    let server = serve(&site).await;
    let mut anna = client(&server, "2025-03-26", false).await;
    let params = call("append", json!({"mark": "one"}));
    let refused = anna.request("tools/call", params.clone()).await;
    let id = pending(&refused);
    let decide = |how: &str| format!("/approvals/{id}?decision={how}&by=boss&reason=too+much");
    let post = async |how: &str| operators(&server, "POST", &decide(how), Some(TOKEN)).await;
    assert_eq!(post("revoke").await.0, 409, "nobody has decided");
    assert_eq!(post("deny").await.0, 200);
    let again = anna.request("tools/call", params.clone()).await;
    assert_eq!(again.failure()["data"]["approval"]["state"], "denied");
    let (status, revoked) = post("revoke").await;
    assert_eq!(status, 200, "{revoked}");
    assert_eq!(revoked["state"], "revoked");
    for whose in ["decided", "revoked"] {
        assert_eq!(revoked[format!("{whose}_by")], "operator:boss", "{revoked}");
        assert_eq!(revoked[format!("{whose}_reason")], "too much", "{revoked}");
        let proof = revoked[format!("{whose}_proof")].as_str().unwrap();
        assert!(proof.starts_with("the token of operators"), "{proof}");
    }
    let again = anna.request("tools/call", params).await;
    assert_ne!(pending(&again), id);
}

#[tokio::test]
async fn a_token_of_operators_cannot_be_guessed() {
    let site = careful();
    for short in ["x", "fifteen-letters", "  fifteen-letters  "] {
        let mut command = site.command(&["start", "--transport", "http"]);
        command.env("APPROVALS_TOKEN", short);
        let said = run(command).await;
        assert_eq!(said.code, Some(1), "{short}");
        assert!(said.messages.contains("http_token"), "{}", said.messages);
        assert!(!said.messages.contains("fifteen"), "{}", said.messages);
    }
    let server = serve(&site).await;
    let mut wrong = 0;
    // A hundred are forgiven at once, and ten in each second.
    let slowed = loop {
        let request = HttpRequest::new("GET", "/approvals").header("authorization", "Bearer x");
        let response = server.client().exchange(&request).await;
        if response.status != 401 {
            break response;
        }
        wrong += 1;
        assert!(wrong < 10_000, "nobody is slowed down");
    };
    assert_eq!(slowed.status, 429, "{}", slowed.text());
    assert_eq!(slowed.header("retry-after"), Some("10"));
    assert!(100 <= wrong, "{wrong}");
}

#[tokio::test]
async fn pages_decide_only_if_their_origin_is_listed_by_name() {
    let site = Site::new(json!({
        "http": {
            "allowed_origins": ["https://desk.example"],
            "cors": {"enabled": true, "allowed_origins": ["*"]},
        },
        "governance": {"approvals": {"http_token": "${APPROVALS_TOKEN}"}},
    }));
    let server = serve(&site).await;
    let decide = "/approvals/apr_0000000000000000000000?decision=approve&by=carla";
    for (method, target, origin, status) in [
        ("POST", decide, None, 404),
        ("POST", decide, Some("https://desk.example"), 404),
        ("POST", decide, Some("https://evil.example"), 403),
        ("POST", decide, Some("http://localhost"), 403),
        ("POST", decide, Some("*"), 403),
        ("POST", decide, Some("null"), 403),
        ("GET", "/approvals", Some("https://evil.example"), 200),
    ] {
        let mut request =
            HttpRequest::new(method, target).header("authorization", &format!("Bearer {TOKEN}"));
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let response = server.client().exchange(&request).await;
        assert_eq!(
            response.status,
            status,
            "{method} from {origin:?}: {}",
            response.text()
        );
    }
}

#[tokio::test]
async fn without_a_token_there_are_no_such_routes() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    for target in ["/approvals", "/governance/stats"] {
        let (status, _) = operators(&server, "GET", target, Some("")).await;
        assert_eq!(status, 404, "{target}");
    }
}

#[tokio::test]
async fn a_token_that_refers_to_nothing_keeps_the_server_from_starting() {
    let site = careful();
    let said = run(site.command(&["start", "--transport", "http"])).await;
    assert_ne!(said.code, Some(0));
    assert!(said.messages.contains("http_token"), "{}", said.messages);
}

#[tokio::test]
async fn an_approval_outlives_a_crash_and_is_still_for_one_call() {
    let site = careful();
    let params = call("append", json!({"mark": "one"}));
    let mut server = serve(&site).await;
    let mut anna = client(&server, MODERN, false).await;
    let id = pending(&anna.request("tools/call", params.clone()).await);
    let decide = format!("/approvals/{id}?decision=approve&by=carla");
    assert_eq!(
        operators(&server, "POST", &decide, Some(TOKEN)).await.0,
        200
    );
    server.process().signal("KILL").await;
    server.wait_exit(testkit::GENEROUS).await;

    let mut server = serve(&site).await;
    let mut anna = client(&server, MODERN, false).await;
    let done = anna.request("tools/call", params.clone()).await;
    assert_eq!(text(done.result()), "one");
    server.process().signal("KILL").await;
    server.wait_exit(testkit::GENEROUS).await;

    let server = serve(&site).await;
    let mut anna = client(&server, MODERN, false).await;
    let again = anna.request("tools/call", params).await;
    assert_ne!(pending(&again), id);
    assert_eq!(runs(&site), 1);
}
