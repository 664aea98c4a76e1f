//! A server that is assembled from code keeps every promise of the program.

use ledger::{Filter, LedgerReader, NoteFilter, ReadLedger};
use serde_json::{Value, json};
use std::{path::Path, time::Duration};
use testkit::{HttpClient, HttpRequest, HttpServer, Port};
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(30);

/// The example in a directory of its own, with its skills.
async fn start(directory: &Path) -> HttpServer {
    let skills = Path::new(env!("CARGO_MANIFEST_DIR")).join("skills");
    let link = directory.join("skills");
    if !link.exists() {
        std::os::unix::fs::symlink(skills, link).expect("a link can be made");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_embedded-server"));
    command.arg("0").current_dir(directory).env_clear();
    HttpServer::spawn(command, Port::Announced(announced)).await
}

/// The port that the log announces.
fn announced(line: &str) -> Option<u16> {
    let event: Value = serde_json::from_str(line).ok()?;
    event["address"].as_str()?.rsplit_once(':')?.1.parse().ok()
}

/// The answer to a call for `article` that repeats `header`.
async fn call(client: HttpClient, article: &str, header: &str) -> Value {
    let arguments = json!({"article": article, "count": 2, "password": "hunter2hunter2"});
    let mut client = client.with_header("Mcp-Param-Article", header);
    let params = json!({"name": "reserve-stock", "arguments": arguments});
    client
        .post_modern("tools/call", params)
        .await
        .response()
        .clone()
}

/// The text of a successful call, or the code of its failure.
async fn reserve(server: &HttpServer, article: &str) -> Result<String, i64> {
    let answer = call(server.client(), article, article).await;
    match answer.get("error").is_some() || answer["result"]["isError"] == true {
        true => Err(testkit::failure_of(&answer)["code"]
            .as_i64()
            .expect("a failure has a code")),
        false => {
            let text = answer["result"]["content"][0]["text"].as_str();
            Ok(text.expect("a result has a text").to_owned())
        }
    }
}

#[tokio::test]
async fn headers_are_compared_with_arguments() {
    const HEADER_MISMATCH: i64 = -32_020;
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let answer = call(server.client(), "tea", "coffee").await;
    assert_eq!(answer["error"]["code"], HEADER_MISMATCH, "{answer}");
    assert_eq!(
        reserve(&server, "tea").await,
        Ok("2 of tea are reserved".to_owned())
    );
}

#[tokio::test]
async fn a_restart_frees_no_budget_and_changes_no_digest() {
    const REFUSED: i64 = -32_003;
    let directory = tempfile::tempdir().unwrap();
    for calls in [2, 1] {
        let mut server = start(directory.path()).await;
        for _ in 0..calls {
            reserve(&server, "tea").await.unwrap();
        }
        server.process().signal("TERM").await;
        assert!(server.wait_exit(LIMIT).await.success());
    }
    let server = start(directory.path()).await;
    assert_eq!(reserve(&server, "tea").await, Err(REFUSED));

    let mut reader = LedgerReader::open(directory.path().join("data/ledger.db")).unwrap();
    let calls = reader.recent(10, Filter::default()).unwrap();
    let arguments: Vec<String> = calls
        .iter()
        .map(|call| format!("{:?}", call.started.arguments))
        .collect();
    assert_eq!(arguments.len(), 4);
    assert!(
        arguments.iter().all(|it| *it == arguments[0]),
        "{arguments:?}"
    );
    assert!(!arguments[0].contains("hunter2"), "{arguments:?}");
}

#[tokio::test]
async fn what_runs_is_answered_when_the_server_is_told_to_stop() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = start(directory.path()).await;
    let running = tokio::spawn(call(server.client(), "tea", "tea"));
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.process().signal("TERM").await;
    let answer = running.await.unwrap();
    assert!(answer["result"]["isError"] != true, "{answer}");
    assert!(answer.to_string().contains("are reserved"), "{answer}");
    assert!(server.wait_exit(LIMIT).await.success());
    let mut reader = LedgerReader::open(directory.path().join("data/ledger.db")).unwrap();
    let notes = reader.notes(10, NoteFilter::default()).unwrap();
    let kinds: Vec<_> = notes.iter().map(|note| note.noted.kind.as_str()).collect();
    // The last entries are sealed with the end.
    let expected = [
        "checkpoint",
        "server_stopped",
        "checkpoint",
        "server_started",
    ];
    assert_eq!(kinds, expected);
    let call = &reader.recent(1, Filter::default()).unwrap()[0];
    assert!(call.ended.is_some());
}

#[tokio::test]
async fn health_metrics_and_skills_are_there() {
    let directory = tempfile::tempdir().unwrap();
    let server = start(directory.path()).await;
    let client = server.client();
    let get = async |path: &str| client.exchange(&HttpRequest::get(path)).await;
    let health = get("/health").await;
    assert_eq!(
        (health.status, &health.json()["status"]),
        (200, &json!("ok"))
    );
    assert!(get("/metrics").await.text().contains("owlclaw_mcp_ready 1"));
    let skill = get("/resources/stock/reserve-stock").await;
    assert!(skill.text().contains("# Reserve stock"), "{}", skill.text());
}

#[tokio::test]
async fn settings_that_are_wrong_keep_the_server_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    // There are no skills here.
    let output = Command::new(env!("CARGO_BIN_EXE_embedded-server"))
        .arg("0")
        .current_dir(directory.path())
        .env_clear()
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("resources.skills_dir"), "{error}");
}
