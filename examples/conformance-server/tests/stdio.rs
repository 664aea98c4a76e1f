//! The fixture over stdio, where the official suite does not look: clients of both eras are asked,
//! answer, refuse and give up. Every message of the server is judged by its revision's schema.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use testkit::{Conversation, MODERN, Schemas, StdioServer, failure_of};
use tokio::process::Command;

/// A client that can be asked everything.
const ALL: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;

async fn open(version: &str, capabilities: &str) -> StdioServer {
    let command = Command::new(env!("CARGO_BIN_EXE_conformance-server"));
    let mut server = StdioServer::spawn(command);
    server.voice.capabilities = serde_json::from_str(capabilities).unwrap();
    server.open(version).await;
    server
}

fn text(response: &Value) -> &str {
    let text = response.pointer("/result/content/0/text");
    let text = text.or_else(|| response.pointer("/result/messages/0/content/text"));
    let text = text.and_then(Value::as_str);
    text.unwrap_or_else(|| panic!("no text: {response}"))
}

/// Answer of this client to a request.
fn answer(method: &str, params: &Value) -> Value {
    match method {
        "elicitation/create" => {
            let properties = params["requestedSchema"]["properties"].as_object().unwrap();
            let content = properties.keys().map(|field| {
                let value = match field.as_str() {
                    "ok" => json!(true),
                    field => json!(format!("my {field}")),
                };
                (field.clone(), value)
            });
            json!({ "action": "accept", "content": Value::Object(content.collect()) })
        }
        "sampling/createMessage" => {
            let asked = &params["messages"][0]["content"]["text"];
            let text = format!("model on {asked}");
            let content = json!({ "type": "text", "text": text });
            json!({ "role": "assistant", "model": "m", "content": content })
        }
        "roots/list" => json!({ "roots": [{ "uri": "file:///home/a" }] }),
        method => panic!("asked for {method}"),
    }
}

/// Sends a request and answers what the server asks meanwhile: what was asked, and the response.
async fn ask_legacy(
    server: &mut StdioServer,
    version: &str,
    method: &str,
    params: Value,
) -> (Vec<String>, Value) {
    let request = server.voice.request(method, params);
    server.send(&request).await;
    let mut asked = Vec::new();
    loop {
        let message = server.receive().await;
        let Some(method) = message["method"].as_str() else {
            assert_eq!(message["id"], request["id"]);
            return (asked, message);
        };
        asked.push(method.to_owned());
        let result = answer(method, &message["params"]);
        let response = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        // What this client says is no proof of anything unless clients may say it.
        Schemas::load()
            .check_client_message(version, Some(method), &response)
            .unwrap();
        server.send(&response).await;
    }
}

/// Sends a request again and again, with the answers to what its results ask: the keys that were
/// asked, round by round, and the last response.
async fn ask_modern(
    server: &mut StdioServer,
    method: &str,
    params: Value,
) -> (Vec<Vec<String>>, Value) {
    let mut rounds = Vec::new();
    let mut retry = params.clone();
    loop {
        let response = server.request(method, retry).await.response;
        if response.pointer("/result/resultType") != Some(&json!("input_required")) {
            return (rounds, response);
        }
        let result = &response["result"];
        assert_eq!(result.get("ttlMs"), None, "only what is complete is kept");
        let requests = result["inputRequests"].as_object().unwrap();
        rounds.push(requests.keys().cloned().collect());
        let responses = requests.iter().map(|(key, request)| {
            assert_eq!(request.get("id"), None);
            let method = request["method"].as_str().unwrap();
            (key.clone(), answer(method, &request["params"]))
        });
        retry = params.clone();
        retry["inputResponses"] = Value::Object(responses.collect());
        if let Some(state) = result.get("requestState") {
            retry["requestState"] = state.clone();
        }
    }
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

/// One handler, and what either era makes of its questions: the tool or prompt, its arguments,
/// what is asked in which round, and what is answered in the end.
type Row = (
    &'static str,
    &'static str,
    Value,
    &'static [&'static [(&'static str, &'static str)]],
    &'static str,
);

fn rows() -> Vec<Row> {
    const FORM: &str = "elicitation/create";
    const SAMPLE: &str = "sampling/createMessage";
    const ROOTS: &str = "roots/list";
    #[rustfmt::skip]
    let rows: Vec<Row> = vec![
        ("tools/call", "test_elicitation", json!({ "message": "Who?" }), &[&[("user", FORM)]],
            r#"User response: action=accept, content={"email":"my email","username":"my username"}"#),
        ("tools/call", "test_sampling", json!({ "prompt": "Why?" }), &[&[("answer", SAMPLE)]],
            r#"LLM response: model on "Why?""#),
        ("tools/call", "test_input_required_result_list_roots", json!({}), &[&[("client_roots", ROOTS)]],
            "The client's roots: file:///home/a"),
        ("tools/call", "test_input_required_result_request_state", json!({}), &[&[("confirm", FORM)]],
            r#"state-ok: action=accept, content={"ok":true}"#),
        ("tools/call", "test_input_required_result_multiple_inputs", json!({}),
            &[&[("client_roots", ROOTS), ("greeting", SAMPLE), ("user_name", FORM)]],
            r#"model on "Generate a greeting" my name, of 1 roots"#),
        ("tools/call", "test_input_required_result_multi_round", json!({}), &[&[("step1", FORM)], &[("step2", FORM)]],
            "my name likes my color."),
        ("prompts/get", "test_input_required_result_prompt", json!({}), &[&[("user_context", FORM)]],
            r#"Use this context: "my context""#),
        ("tools/call", "test_simple_text", json!({}), &[],
            "This is a simple text response for testing."),
    ];
    rows
}

#[tokio::test]
async fn a_legacy_client_is_asked_by_requests() {
    for version in ["2025-06-18", "2025-11-25"] {
        let mut server = open(version, ALL).await;
        for (method, name, arguments, rounds, expected) in rows() {
            let params = call(name, arguments);
            let (mut asked, response) = ask_legacy(&mut server, version, method, params).await;
            let methods = |round: &[(&str, &'static str)]| round.iter().map(|it| it.1).collect();
            let expected_methods: Vec<Vec<&str>> = rounds.iter().map(|it| methods(it)).collect();
            let mut expected_methods = expected_methods.concat();
            expected_methods.sort_unstable();
            asked.sort_unstable();
            assert_eq!(asked, expected_methods, "{name}");
            assert_eq!(text(&response), expected);
        }
    }
}

#[tokio::test]
async fn a_modern_client_is_asked_by_results() {
    let mut server = open(MODERN, ALL).await;
    for (method, name, arguments, rounds, expected) in rows() {
        let (asked, response) = ask_modern(&mut server, method, call(name, arguments)).await;
        let keys = |round: &[(&'static str, &str)]| round.iter().map(|it| it.0).collect();
        let expected_keys: Vec<Vec<&str>> = rounds.iter().map(|it| keys(it)).collect();
        assert_eq!(asked, expected_keys, "{name}");
        assert_eq!(text(&response), expected);
    }
}

#[tokio::test]
async fn every_revision_with_sampling_can_sample() {
    for version in ["2024-11-05", "2025-03-26"] {
        let mut server = open(version, r#"{"sampling":{}}"#).await;
        let params = call("test_sampling", json!({ "prompt": "Why?" }));
        let (asked, response) = ask_legacy(&mut server, version, "tools/call", params).await;
        assert_eq!(asked, ["sampling/createMessage"]);
        assert_eq!(text(&response), r#"LLM response: model on "Why?""#);
    }
}

#[tokio::test]
async fn nobody_is_asked_what_was_not_declared() {
    for (version, code) in [("2025-11-25", -32600), (MODERN, -32021)] {
        let mut server = open(version, r#"{"sampling":{}}"#).await;
        // One of three is enough to ask none of them.
        for tool in [
            "test_input_required_result_elicitation",
            "test_input_required_result_multiple_inputs",
        ] {
            let reply = server.request("tools/call", call(tool, json!({}))).await;
            assert_eq!(reply.earlier, Vec::<Value>::new(), "{version}");
            let failure = reply.failure();
            assert_eq!(failure["code"], code);
            assert_eq!(reply.response.get("error").is_some(), version == MODERN);
            if version != MODERN {
                assert_eq!(failure["data"]["retryable"], false);
            }
            let required = &failure["data"]["requiredCapabilities"];
            assert!(required.is_object(), "{required}");
            assert_eq!(required.get("sampling"), None);
        }
        let tool = "test_input_required_result_capabilities";
        let params = call(tool, json!({}));
        let asked: Vec<String> = if version == MODERN {
            ask_modern(&mut server, "tools/call", params)
                .await
                .0
                .concat()
        } else {
            ask_legacy(&mut server, version, "tools/call", params)
                .await
                .0
        };
        assert_eq!(asked.len(), 1, "{asked:?}");
    }
}

#[tokio::test]
async fn who_declines_or_refuses_ends_the_call() {
    let mut server = open("2025-11-25", ALL).await;
    let tool = "test_input_required_result_elicitation";
    let request = server.voice.request("tools/call", call(tool, json!({})));
    for (outcome, expected) in [
        (
            json!({ "result": { "action": "decline" } }),
            "/result/isError",
        ),
        (
            json!({ "result": { "action": "cancel" } }),
            "/result/isError",
        ),
        (
            json!({ "error": { "code": -1, "message": "no user here" } }),
            "/result/_meta/io.owlclaw~1error/details",
        ),
    ] {
        server.send(&request).await;
        let question = server.receive().await;
        let mut response = outcome.clone();
        response["jsonrpc"] = json!("2.0");
        response["id"] = question["id"].clone();
        server.send(&response).await;
        let ended = server.receive_answer(&request["id"]).await;
        let found = ended.pointer(expected).cloned().unwrap_or_default();
        assert!(
            found == json!(true) || found == json!("no user here"),
            "{ended}"
        );
    }
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_is_asked_for_again() {
    let mut legacy = open("2025-11-25", ALL).await;
    let tool = "test_input_required_result_elicitation";
    let request = legacy.voice.request("tools/call", call(tool, json!({})));
    legacy.send(&request).await;
    for nonsense in [json!({}), json!({ "action": "accept", "content": {} })] {
        let question = legacy.receive().await;
        assert_eq!(question["method"], "elicitation/create");
        let response = json!({ "jsonrpc": "2.0", "id": question["id"], "result": nonsense });
        legacy.send(&response).await;
    }
    let question = legacy.receive().await;
    let result = answer("elicitation/create", &question["params"]);
    let response = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    legacy.send(&response).await;
    // The same again is an answer to nothing.
    legacy.send(&response).await;
    let ended = legacy.receive_answer(&request["id"]).await;
    assert_eq!(text(&ended), "Hello, my name!");
    let pong = legacy.request("ping", Value::Null).await;
    assert_eq!(pong.earlier, Vec::<Value>::new());

    let mut modern = open(MODERN, ALL).await;
    for nonsense in [
        json!({}),
        json!({ "other": { "action": "accept", "content": { "name": "x" } } }),
        json!({ "user_name": 7 }),
    ] {
        let mut params = call(tool, json!({}));
        params["inputResponses"] = nonsense;
        let reply = modern.request("tools/call", params).await;
        assert_eq!(reply.result()["resultType"], "input_required");
    }
}

#[tokio::test]
async fn what_a_server_remembers_belongs_to_one_request() {
    let mut server = open(MODERN, ALL).await;
    let tool = "test_input_required_result_request_state";
    let asked = server.request("tools/call", call(tool, json!({}))).await;
    let state = asked.result()["requestState"].clone();
    let mut retry = call(tool, json!({}));
    retry["inputResponses"] =
        json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
    retry["requestState"] = state.clone();

    let mut of_another_tool = retry.clone();
    of_another_tool["name"] = json!("test_input_required_result_tampered_state");
    let mut changed = retry.clone();
    changed["requestState"] = json!(format!("{}-", state.as_str().unwrap()));
    for wrong in [of_another_tool, changed] {
        let reply = server.request("tools/call", wrong).await;
        assert_eq!(reply.code(), -32602);
    }
    // What the server had in mind is asked for again when nobody sends it back.
    let mut forgotten = retry.clone();
    forgotten.as_object_mut().unwrap().remove("requestState");
    let reply = server.request("tools/call", forgotten).await;
    assert_eq!(reply.result()["resultType"], "input_required");
    let reply = server.request("tools/call", retry).await;
    assert!(text(&reply.response).starts_with("state-ok"));
}

#[tokio::test]
async fn who_cancels_a_call_need_not_answer_its_questions() {
    let mut server = open("2025-11-25", ALL).await;
    let tool = "test_input_required_result_elicitation";
    let request = server.voice.request("tools/call", call(tool, json!({})));
    server.send(&request).await;
    let question = server.receive().await;
    let cancelled = json!({ "requestId": request["id"] });
    server.notify("notifications/cancelled", cancelled).await;
    let withdrawn = server.receive().await;
    assert_eq!(withdrawn["method"], "notifications/cancelled");
    assert_eq!(withdrawn["params"]["requestId"], question["id"]);
    let pong = server.request("ping", Value::Null).await;
    assert_eq!(
        pong.earlier,
        Vec::<Value>::new(),
        "no answer after a cancellation"
    );
}

#[tokio::test]
async fn one_refusal_takes_the_other_questions_back() {
    let mut server = open("2025-11-25", ALL).await;
    let tool = "test_input_required_result_multiple_inputs";
    let request = server.voice.request("tools/call", call(tool, json!({})));
    server.send(&request).await;
    let questions = server.receive_many(3).await;
    let error = json!({ "code": -1, "message": "no user here" });
    let refusal = json!({ "jsonrpc": "2.0", "id": questions[0]["id"], "error": error });
    server.send(&refusal).await;
    let mut withdrawn = Vec::new();
    for notification in server.receive_many(2).await {
        assert_eq!(notification["method"], "notifications/cancelled");
        withdrawn.push(notification["params"]["requestId"].clone());
    }
    withdrawn.sort_by_key(Value::to_string);
    assert_eq!(
        withdrawn,
        [questions[1]["id"].clone(), questions[2]["id"].clone()]
    );
    let ended = server.receive_answer(&request["id"]).await;
    assert_eq!(failure_of(&ended)["code"], -32603);
}

#[tokio::test]
async fn an_open_question_keeps_no_server_alive() {
    let mut server = open("2025-11-25", ALL).await;
    let params = call("test_input_required_result_elicitation", json!({}));
    let request = server.voice.request("tools/call", params);
    server.send(&request).await;
    server.receive().await;
    server.close_input();
    // At once, and not when the server is tired of waiting.
    let ended = server.receive_rest().await;
    assert_eq!(ended[0]["id"], request["id"], "{ended:?}");
    assert_eq!(failure_of(&ended[0])["code"], -32004);
    let status = server.wait_exit(testkit::GENEROUS).await;
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn log_messages_are_for_those_who_want_them() {
    let logged = |reply: &testkit::Reply| {
        let logged = reply.earlier.iter();
        let logged = logged.filter(|it| it["method"] == "notifications/message");
        logged.count()
    };
    let params = || call("test_tool_with_logging", json!({}));
    let mut legacy = open("2025-11-25", "{}").await;
    assert_eq!(logged(&legacy.request("tools/call", params()).await), 3);
    let set = legacy
        .request("logging/setLevel", json!({ "level": "warning" }))
        .await;
    assert_eq!(set.result(), &json!({}));
    assert_eq!(logged(&legacy.request("tools/call", params()).await), 0);
    let set = legacy
        .request("logging/setLevel", json!({ "level": "debug" }))
        .await;
    assert_eq!(set.result(), &json!({}));
    assert_eq!(logged(&legacy.request("tools/call", params()).await), 3);

    let mut modern = open(MODERN, "{}").await;
    for (level, expected) in [(None, 0), (Some("info"), 3), (Some("error"), 0)] {
        let mut params = params();
        if let Some(level) = level {
            params["_meta"] = json!({ "io.modelcontextprotocol/logLevel": level });
        }
        assert_eq!(
            logged(&modern.request("tools/call", params).await),
            expected
        );
    }
}

#[tokio::test]
async fn a_prompt_is_filled_in_with_all_it_needs() {
    for version in ["2025-11-25", MODERN] {
        let mut server = open(version, "{}").await;
        let name = "test_prompt_with_arguments";
        let params = call(name, json!({ "arg1": "hello", "arg2": "world" }));
        let filled = server.request("prompts/get", params).await;
        let expected = "Prompt with arguments: arg1='hello', arg2='world'";
        assert_eq!(text(&filled.response), expected);
        for wrong in [
            call(name, json!({ "arg1": "hello" })),
            call("nothing", json!({})),
        ] {
            assert_eq!(server.request("prompts/get", wrong).await.code(), -32602);
        }
        let asked = json!({
            "ref": { "type": "ref/prompt", "name": name },
            "argument": { "name": "arg1", "value": "par" }
        });
        let completed = server.request("completion/complete", asked).await;
        let values = &completed.result()["completion"]["values"];
        assert_eq!(values, &json!(["paris", "park", "party"]));
    }
}

#[tokio::test]
async fn who_listens_hears_of_changed_lists() {
    let mut server = open("2025-11-25", "{}").await;
    let before = server.request("tools/list", Value::Null).await;
    let changed = server
        .request("tools/call", call("test_trigger_tool_change", json!({})))
        .await;
    let heard: Vec<_> = changed
        .earlier
        .iter()
        .map(|it| it["method"].clone())
        .collect();
    assert!(
        heard.contains(&json!("notifications/tools/list_changed")),
        "{heard:?}"
    );
    let after = server.request("tools/list", Value::Null).await;
    let count = |reply: &testkit::Reply| reply.result()["tools"].as_array().unwrap().len();
    assert_eq!(count(&after), count(&before) + 1);
}
