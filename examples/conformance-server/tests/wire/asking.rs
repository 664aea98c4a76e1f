//! Questions to the client: whom they are put to, and how.

use crate::house::{ASKABLE, LEGACY, NEWEST_LEGACY, Peer, Program, WAYS, call};
use serde_json::{Value, json};
use testkit::MODERN;

const FORM: &str = "test_input_required_result_elicitation";
const SAMPLE: &str = "test_input_required_result_sampling";
const ROOTS: &str = "test_input_required_result_list_roots";
const STATE: &str = "test_input_required_result_request_state";

/// Capabilities that clients declare, each with a request that such a client must not get.
const UNASKABLE: [(&str, &str); 7] = [
    ("{}", FORM),
    ("{}", SAMPLE),
    ("{}", ROOTS),
    (r#"{"sampling":{},"roots":{}}"#, FORM),
    (r#"{"elicitation":{},"roots":{}}"#, SAMPLE),
    (r#"{"elicitation":{},"sampling":{}}"#, ROOTS),
    (r#"{"elicitation":{"url":{}}}"#, FORM),
];

#[tokio::test]
async fn nobody_is_asked_what_it_did_not_declare() {
    for way in WAYS {
        for (capabilities, tool) in UNASKABLE {
            let what = format!("{way:?} {capabilities} {tool}");
            let mut peer = Program::Suite.open(way, MODERN, capabilities).await;
            let answer = peer.call(tool, json!({})).await;
            answer.is_error(-32021, 400, &what);
            let required = &answer.response["error"]["data"]["requiredCapabilities"];
            assert!(required.is_object(), "{what}: {answer:?}");
            // Which forms there are is said since 2025-11-25; before, whoever can be asked can fill
            // in a form.
            let has_modes = |version: &str| NEWEST_LEGACY <= version;
            let old = |version: &&&str| has_modes(version) || !capabilities.contains("url");
            for version in LEGACY.iter().filter(old) {
                let mut peer = Program::Suite.open(way, version, capabilities).await;
                let answer = peer.call(tool, json!({})).await;
                assert_eq!(answer.earlier, Vec::<Value>::new(), "{what} {version}");
                answer.is_failure(-32600, &what);
            }
        }
    }
}

/// An old client has no such thing to declare: what it says of it means nothing.
#[tokio::test]
async fn a_revision_without_questions_of_a_kind_has_none() {
    for way in WAYS {
        for version in ["2024-11-05", "2025-03-26"] {
            let mut peer = Program::Suite.open(way, version, ASKABLE).await;
            let answer = peer.call(FORM, json!({})).await;
            assert_eq!(answer.earlier, Vec::<Value>::new(), "{way:?} {version}");
            answer.is_failure(-32600, version);
        }
    }
}

/// A modern client receives notifications and responses alone, whatever it asks and whatever
/// precedes the answer.
#[tokio::test]
async fn a_modern_client_never_hears_a_request() {
    for way in WAYS {
        let mut peer = Program::Suite.open(way, MODERN, ASKABLE).await;
        for tool in [
            FORM,
            SAMPLE,
            ROOTS,
            "test_missing_capability",
            "test_streaming_elicitation",
            "test_input_required_result_multiple_inputs",
        ] {
            let mut params = call(tool, json!({}));
            params["_meta"] = json!({
                "progressToken": "p",
                "io.modelcontextprotocol/logLevel": "debug",
            });
            let answer = peer.ask("tools/call", params).await;
            let is_request = |it: &&Value| it.get("method").is_some() && it.get("id").is_some();
            assert_eq!(answer.earlier.iter().find(is_request), None, "{tool}");
            assert_eq!(answer.result()["resultType"], "input_required", "{tool}");
            let questions = answer.result()["inputRequests"].as_object().unwrap();
            for question in questions.values() {
                assert_eq!((question.get("id"), question.get("jsonrpc")), (None, None));
            }
        }
        peer.is_served("all that").await;
    }
}

fn answered(state: &Value) -> Value {
    json!({
        "name": STATE,
        "arguments": {},
        "inputResponses": { "confirm": { "action": "accept", "content": { "ok": true } } },
        "requestState": state,
    })
}

/// State that a server hands to a client belongs to one request of that client: it is refused with
/// another tool, with other arguments, with a changed byte, or from another client.
#[tokio::test]
async fn what_a_server_remembers_is_worth_nothing_elsewhere() {
    for way in WAYS {
        let mut peer = Program::Suite.open(way, MODERN, ASKABLE).await;
        let asked = peer.call(STATE, json!({})).await;
        let state = asked.result()["requestState"].clone();
        let good = answered(&state);
        let mut of_another_tool = good.clone();
        of_another_tool["name"] = json!("test_input_required_result_tampered_state");
        let mut with_arguments = good.clone();
        with_arguments["arguments"] = json!({ "other": 1 });
        let text = state.as_str().unwrap();
        let mut wrong = vec![of_another_tool];
        for changed in [
            "",
            "x",
            &text[1..],
            &format!("{text}A"),
            &text.to_uppercase(),
        ] {
            wrong.push(answered(&json!(changed)));
        }
        for params in wrong {
            let answer = peer.ask("tools/call", params.clone()).await;
            assert_eq!(answer.code(), -32602, "{way:?} {params}");
        }
        if let Peer::Http(server, _) = &peer {
            let mut thief = server.client().with_header("x-mcp-client-id", "mallory");
            thief.voice.capabilities = serde_json::from_str(ASKABLE).unwrap();
            let answer = thief.post_modern("tools/call", good.clone()).await;
            assert_eq!(answer.code(), -32602, "{answer:?}");
        }
        let answer = peer.ask("tools/call", with_arguments).await;
        let refused = answer.response.get("error").is_some();
        let invalid = answer.response["result"]["isError"] == true;
        assert!(refused || invalid, "{way:?}: {answer:?}");
        let answer = peer.ask("tools/call", good).await;
        assert!(answer.text().starts_with("state-ok"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_legacy_client_that_declared_it_is_asked_by_a_request() {
    let mut server = Program::Suite.stdio();
    server.voice.capabilities = serde_json::from_str(ASKABLE).unwrap();
    testkit::Conversation::open(&mut server, NEWEST_LEGACY).await;
    let message = server.voice.request("tools/call", call(SAMPLE, json!({})));
    server.send(&message).await;
    let question = server.receive().await;
    assert_eq!(question["method"], "sampling/createMessage");
    let content = json!({ "type": "text", "text": "Paris" });
    let result = json!({ "role": "assistant", "model": "m", "content": content });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    server.send(&answer).await;
    let ended = server.receive_answer(&message["id"]).await;
    assert_eq!(crate::house::text(&ended), "Paris");
}
