//! Calls that wait until somebody decides on the command line, while the server runs.

use serde_json::{Value, json};
use testkit::{Conversation, HttpClient, MODERN, failure_of};

use crate::support::{END, Said, Site, call, outcome, run, text};

fn bank() -> Site {
    Site::new(json!({"governance": {
        "tools": {"append": {"risk": ["financial"], "confirmation": "operator"}},
    }}))
}

async fn pay(client: &mut HttpClient, mark: &str) -> Value {
    let answer = client
        .request("tools/call", call("append", json!({"mark": mark})))
        .await;
    answer.response.clone()
}

/// The approval that a refusal names.
fn approval(response: &Value) -> String {
    let error = failure_of(response);
    let data = &error["data"];
    assert_eq!(
        (&error["code"], &data["reason"]),
        (&json!(-32003), &json!("confirmation")),
        "{response}"
    );
    data["approval"]["id"]
        .as_str()
        .unwrap_or_else(|| panic!("{response}"))
        .to_owned()
}

async fn say(site: &Site, words: &[&str]) -> Said {
    run(site.command(words)).await
}

async fn told(site: &Site, words: &[&str]) -> Value {
    let said = say(site, &[words, &["--format", "json"]].concat()).await;
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.messages);
    serde_json::from_str(&said.output).unwrap()
}

#[tokio::test]
async fn what_somebody_approves_runs_once() {
    let site = bank();
    let server = site.http().await;
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    let id = approval(&pay(&mut client, "rent").await);
    assert_eq!(
        approval(&pay(&mut client, "rent").await),
        id,
        "the same call waits for the same"
    );
    assert!(!site.read("executed").contains("rent"));

    let listed = told(&site, &["approvals", "list"]).await;
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!(listed[0]["id"], id.as_str());
    assert_eq!(
        (&listed[0]["client"], &listed[0]["capability"]),
        (&json!("ana"), &json!("tool/append"))
    );
    assert_eq!(
        (&listed[0]["state"], &listed[0]["needs"]),
        (&json!("pending"), &json!("operator"))
    );
    assert_eq!(listed[0]["arguments"], json!({"mark": "rent"}));
    let table = say(&site, &["approvals", "list", "--client", "ana"]).await;
    assert!(table.output.contains(&id), "{}", table.output);
    let none = told(&site, &["approvals", "list", "--client", "bob"]).await;
    assert_eq!(none, json!([]));

    let words = [
        "approvals",
        "approve",
        &id,
        "--by",
        "carla",
        "--reason",
        "called her",
    ];
    let decided = told(&site, &words).await;
    assert_eq!(
        (
            &decided["state"],
            &decided["decided_by"],
            &decided["decided_reason"]
        ),
        (&json!("approved"), &json!("carla"), &json!("called her"))
    );
    let proof = decided["decided_proof"].as_str().unwrap();
    assert!(proof.starts_with("command line, name unproven; OS user"));
    // Nobody decides twice.
    let again = say(&site, &["approvals", "deny", &id, "--by", "carla"]).await;
    assert_eq!(again.code, Some(1));
    assert!(
        again.messages.contains("decided already"),
        "{}",
        again.messages
    );

    // The question before the call has the answer of the call.
    let explain = async |mark: &str| {
        let args = json!({ "mark": mark }).to_string();
        let call = ["--as", "ana", "--tool", "append", "--args", &args];
        let words = [&["governance", "explain"][..], &call].concat();
        let explained = told(&site, &words).await;
        (explained["verdict"].clone(), explained["approval"].clone())
    };
    assert_eq!(explain("rent").await, (json!("allowed"), json!(id)));
    let open = (json!("to_be_confirmed"), Value::Null);
    assert_eq!(explain("car").await, open);

    // Another call cannot have it, and that one has it once.
    assert_ne!(approval(&pay(&mut client, "car").await), id);
    let paid = pay(&mut client, "rent").await;
    assert_eq!(text(&paid["result"]), "rent", "{paid}");
    assert_eq!(explain("rent").await, open);
    assert_ne!(approval(&pay(&mut client, "rent").await), id);
    assert_eq!(site.read("executed").matches("rent").count(), 1);
    let used = told(&site, &["approvals", "show", &id]).await;
    assert_eq!(used["state"], "used");
    let calls = site.calls();
    let ran: Vec<_> = calls
        .iter()
        .filter(|call| outcome(call) == "succeeded")
        .collect();
    assert_eq!(ran.len(), 1);
    assert_eq!(used["used_by"], ran[0].call.to_string());
    let by_approval = told(
        &site,
        &[
            "ledger",
            "query",
            "--approval",
            &id,
            "--outcome",
            "succeeded",
        ],
    )
    .await;
    assert_eq!(by_approval.as_array().unwrap().len(), 1, "{by_approval}");
}

#[tokio::test]
async fn what_somebody_denies_does_not_run_and_is_on_record() {
    let site = bank();
    let server = site.http().await;
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    let id = approval(&pay(&mut client, "rent").await);
    let denied = told(&site, &["approvals", "deny", &id, "--by", "carla"]).await;
    assert_eq!(
        (&denied["state"], &denied["decided_by"]),
        (&json!("denied"), &json!("carla"))
    );
    let refused = pay(&mut client, "rent").await;
    let reason = &failure_of(&refused)["data"]["reason"];
    assert_eq!(reason, "confirmation", "{refused}");
    assert!(!site.read("executed").contains("rent"));
    // The server notes what was decided beside it.
    testkit::wait_until("the decision is noted", testkit::GENEROUS, || {
        let mut reader = ledger::LedgerReader::open(site.path("ledger.db")).unwrap();
        let filter = ledger::NoteFilter {
            kind: Some("approval_decided"),
            ..ledger::NoteFilter::default()
        };
        let notes = ledger::ReadLedger::notes(&mut reader, 10, filter).unwrap();
        notes
            .iter()
            .any(|note| note.noted.subject == id && note.noted.actor == "carla")
    })
    .await;
}

#[tokio::test]
async fn an_approval_can_be_revoked_until_it_is_used() {
    let site = bank();
    let mut server = site.http().await;
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    let id = approval(&pay(&mut client, "rent").await);
    let revoke = [
        "approvals",
        "revoke",
        &id,
        "--by",
        "dora",
        "--reason",
        "wrong sum",
    ];
    let early = say(&site, &revoke).await;
    assert_eq!(early.code, Some(1));
    assert!(
        early.messages.contains("still pending"),
        "{}",
        early.messages
    );
    told(&site, &["approvals", "approve", &id, "--by", "carla"]).await;
    let revoked = told(&site, &revoke).await;
    assert_eq!(
        (
            &revoked["state"],
            &revoked["decided_by"],
            &revoked["revoked_by"],
            &revoked["revoked_reason"]
        ),
        (
            &json!("revoked"),
            &json!("carla"),
            &json!("dora"),
            &json!("wrong sum")
        )
    );
    assert_ne!(approval(&pay(&mut client, "rent").await), id, "asked anew");
    assert!(!site.read("executed").contains("rent"));
    let listed = told(&site, &["approvals", "list", "--state", "revoked"]).await;
    assert_eq!(listed[0]["id"], id.as_str(), "{listed}");
    // What ends in order is sealed to its end.
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    // Both are in the ledger, and what the table says is what the entries say.
    let verified = say(&site, &["ledger", "verify"]).await;
    assert_eq!(
        verified.code,
        Some(0),
        "{}{}",
        verified.output,
        verified.messages
    );
}

#[tokio::test]
async fn a_decision_needs_a_name_and_something_to_decide() {
    let site = bank();
    let _server = site.http().await;
    let id = "apr_0000000000000000000000";
    let rows: [(&[&str], i32, &str); 5] = [
        (&["approvals", "approve", id], 2, "--by"),
        (&["approvals", "approve", "x", "--by", "carla"], 2, "apr_"),
        (
            &["approvals", "approve", id, "--by", "user:ana"],
            1,
            "without a colon",
        ),
        (
            &["approvals", "approve", id, "--by", "carla"],
            1,
            "no such approval",
        ),
        (&["approvals", "show", id], 1, "has no approval"),
    ];
    for (words, code, told) in rows {
        let said = say(&site, words).await;
        assert_eq!(
            (said.code, said.output.as_str()),
            (Some(code), ""),
            "{words:?}"
        );
        assert!(said.messages.contains(told), "{words:?}: {}", said.messages);
    }
}
