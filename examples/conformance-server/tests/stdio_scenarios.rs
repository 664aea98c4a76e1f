//! A transcript of the official suite's scenarios over stdio, for where there is no Node.js:
//! `tests/conformance` sends the suite itself through a bridge. Who asks clients back and who logs
//! is in `stdio.rs`. Every message of the server is judged by its revision's schema.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use testkit::{Conversation, MODERN, Reply, StdioServer};
use tokio::process::Command;

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// Versions for which the suite has more than one scenario.
const COVERED: [&str; 3] = ["2025-06-18", "2025-11-25", MODERN];
const SUBSCRIPTION: &str = "/params/_meta/io.modelcontextprotocol~1subscriptionId";
const MARKDOWN: &str = "text/markdown";

async fn open(version: &str, capabilities: Value) -> (StdioServer, Value) {
    let command = Command::new(env!("CARGO_BIN_EXE_conformance-server"));
    let mut server = StdioServer::spawn(command);
    server.voice.capabilities = capabilities;
    let opened = server.open(version).await;
    (server, opened)
}

fn call(tool: &str, arguments: Value) -> Value {
    json!({ "name": tool, "arguments": arguments })
}

/// Value at a JSON pointer of a result.
fn at<'a>(reply: &'a Reply, pointer: &str) -> &'a Value {
    let found = reply.result().pointer(pointer);
    found.unwrap_or_else(|| panic!("nothing at {pointer}: {}", reply.response))
}

/// The values of one member of each entry of a list.
fn each<'a>(list: &'a Value, member: &str) -> Vec<&'a str> {
    let entries = list.as_array().unwrap().iter();
    entries.map(|it| it[member].as_str().unwrap()).collect()
}

#[tokio::test]
async fn every_revision_is_opened_in_its_own_way() {
    for version in LEGACY {
        let (mut server, opened) = open(version, json!({})).await;
        assert_eq!(opened["protocolVersion"], version);
        assert_eq!(opened["serverInfo"]["name"], "conformance-server");
        assert_eq!(
            server.request("ping", Value::Null).await.result(),
            &json!({})
        );
        let unknown = server.request("unknown/method", Value::Null).await;
        assert_eq!(unknown.code(), -32601);
    }
    let (mut server, opened) = open(MODERN, json!({})).await;
    assert_eq!(opened["supportedVersions"], json!([MODERN]));
    let info = &opened["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "conformance-server");
    for gone in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/list",
        "tasks/result",
        "unknown/method",
    ] {
        let refused = server.request(gone, Value::Null).await;
        assert_eq!(refused.code(), -32601, "{gone}");
    }
}

#[tokio::test]
async fn every_request_says_its_revision_and_what_its_client_can_do() {
    let (mut server, _) = open(MODERN, json!({})).await;
    let key = |name: &str| format!("io.modelcontextprotocol/{name}");

    let other = json!({ "_meta": { key("protocolVersion"): "v999.0.0" } });
    let refused = server.request("server/discover", other).await;
    assert_eq!(refused.code(), -32022);
    let data = &refused.error()["data"];
    assert_eq!(data["supported"], json!([MODERN]));
    assert_eq!(data["requested"], "v999.0.0");

    let meta = json!({ key("protocolVersion"): MODERN });
    let mut frame = json!({ "jsonrpc": "2.0", "id": "bare", "method": "server/discover" });
    frame["params"] = json!({ "_meta": meta });
    let refused = server.ask_raw(frame.to_string().as_bytes()).await;
    assert_eq!(refused["id"], "bare");
    assert_eq!(refused["error"]["code"], -32602);
    // Who the client is, it need not say.
    frame["params"]["_meta"][key("clientCapabilities")] = json!({});
    let served = server.ask_raw(frame.to_string().as_bytes()).await;
    assert_eq!(served["result"]["resultType"], "complete");

    let needs = call("test_missing_capability", json!({}));
    let refused = server.request("tools/call", needs).await;
    assert_eq!(refused.code(), -32021);
    let required = &refused.error()["data"]["requiredCapabilities"];
    assert_eq!(required, &json!({ "sampling": {} }));
}

#[tokio::test]
async fn tools_answer_with_every_kind_of_content() {
    #[rustfmt::skip]
    let rows = [
        ("test_simple_text", "/content/0/text", "This is a simple text response for testing."),
        ("test_image_content", "/content/0/mimeType", "image/png"),
        ("test_audio_content", "/content/0/mimeType", "audio/wav"),
        ("test_embedded_resource", "/content/0/resource/uri", "test://embedded-resource"),
        ("test_embedded_resource", "/content/0/resource/text", "This is an embedded resource content."),
        ("test_multiple_content_types", "/content/0/type", "text"),
        ("test_multiple_content_types", "/content/1/type", "image"),
        ("test_multiple_content_types", "/content/2/type", "resource"),
        ("test_error_handling", "/content/0/text", "This tool intentionally returns an error for testing"),
    ];
    for version in COVERED {
        let (mut server, _) = open(version, json!({})).await;
        let listed = server.request("tools/list", Value::Null).await;
        let names = each(&listed.result()["tools"], "name");
        for (tool, pointer, expected) in rows {
            assert!(names.contains(&tool), "{tool}");
            let called = server.request("tools/call", call(tool, json!({}))).await;
            assert_eq!(at(&called, pointer), expected, "{version} {tool}");
            let failed = called.result().get("isError") == Some(&json!(true));
            assert_eq!(failed, tool == "test_error_handling");
            let kind = called.result().get("resultType").cloned();
            assert_eq!(kind, (version == MODERN).then(|| json!("complete")));
        }
        let schemas = listed.result()["tools"].as_array().unwrap();
        let name = "json_schema_2020_12_tool";
        let tool = schemas.iter().find(|it| it["name"] == name).unwrap();
        for keyword in ["$schema", "$defs", "allOf", "if", "then", "else"] {
            assert!(tool["inputSchema"].get(keyword).is_some(), "{keyword}");
        }
    }
}

#[tokio::test]
async fn progress_is_for_those_who_gave_a_token() {
    for version in COVERED {
        let (mut server, _) = open(version, json!({})).await;
        for token in [json!("a token"), json!(7), Value::Null] {
            let mut params = call("test_tool_with_progress", json!({}));
            if !token.is_null() {
                params["_meta"] = json!({ "progressToken": token });
            }
            let called = server.request("tools/call", params).await;
            let said: Vec<_> = called.earlier.iter().map(|it| &it["params"]).collect();
            let progress: Vec<_> = said
                .iter()
                .filter_map(|it| it["progress"].as_f64())
                .collect();
            let expected: &[f64] = if token.is_null() {
                &[]
            } else {
                &[0.0, 50.0, 100.0]
            };
            assert_eq!(progress, expected, "{version}");
            assert!(said.iter().all(|it| it["progressToken"] == token));
            assert!(said.iter().all(|it| it["total"] == 100.0));
        }
    }
}

/// The form that a tool asks its user to fill in.
async fn form(server: &mut StdioServer, tool: &str) -> Value {
    let request = server.voice.request("tools/call", call(tool, json!({})));
    server.send(&request).await;
    let message = server.receive().await;
    let asked = match message.pointer("/result/inputRequests/form") {
        Some(asked) => asked,
        None => &message,
    };
    assert_eq!(asked["method"], "elicitation/create");
    asked["params"]["requestedSchema"]["properties"].clone()
}

#[tokio::test]
async fn forms_have_defaults_and_choices() {
    for version in ["2025-11-25", MODERN] {
        let (mut server, _) = open(version, json!({ "elicitation": {} })).await;
        let fields = form(&mut server, "test_elicitation_sep1034_defaults").await;
        let defaults = json!({
            "name": "John Doe", "age": 30, "score": 95.5, "status": "active", "verified": true
        });
        for (field, default) in defaults.as_object().unwrap() {
            assert_eq!(&fields[field]["default"], default, "{version}");
        }
        let fields = form(&mut server, "test_elicitation_sep1330_enums").await;
        for (field, pointer, expected) in [
            ("untitledSingle", "/enum/1", "option2"),
            ("titledSingle", "/oneOf/1/title", "Second Option"),
            ("legacyEnum", "/enumNames/1", "Option Two"),
            ("untitledMulti", "/items/enum/1", "option2"),
            ("titledMulti", "/items/anyOf/1/title", "Second Choice"),
        ] {
            let found = fields[field].pointer(pointer);
            assert_eq!(found, Some(&json!(expected)), "{version} {field}");
        }
    }
}

#[tokio::test]
async fn resources_are_listed_and_read() {
    for version in COVERED {
        let (mut server, _) = open(version, json!({})).await;
        let listed = server.request("resources/list", Value::Null).await;
        let uris = each(&listed.result()["resources"], "uri");
        assert!(uris.contains(&"test://watched-resource"), "{uris:?}");
        let listed = server
            .request("resources/templates/list", Value::Null)
            .await;
        let templates = each(&listed.result()["resourceTemplates"], "uriTemplate");
        assert!(
            templates.contains(&"test://template/{id}/data"),
            "{templates:?}"
        );

        let data = r#"{"data":"Data for ID: 123","id":"123","templateTest":true}"#;
        for (uri, member, expected) in [
            (
                "test://static-text",
                "text",
                "This is the content of the static text resource.",
            ),
            ("test://static-binary", "mimeType", "image/png"),
            ("test://template/123/data", "text", data),
        ] {
            let read = server
                .request("resources/read", json!({ "uri": uri }))
                .await;
            let contents = at(&read, "/contents/0");
            assert_eq!(contents["uri"], uri);
            assert_eq!(contents[member], expected);
            assert_eq!(contents.get("blob").is_some(), member == "mimeType");
        }
        let absent = json!({ "uri": "test://nonexistent-resource-for-conformance-testing" });
        let refused = server.request("resources/read", absent.clone()).await;
        let code = if version == MODERN { -32602 } else { -32002 };
        assert_eq!(refused.code(), code, "{version}");
        assert_eq!(refused.error()["data"]["uri"], absent["uri"]);
        if version != MODERN {
            let watched = json!({ "uri": "test://watched-resource" });
            for method in ["resources/subscribe", "resources/unsubscribe"] {
                let done = server.request(method, watched.clone()).await;
                assert_eq!(done.result(), &json!({}), "{version} {method}");
            }
        }
    }
}

#[tokio::test]
async fn prompts_are_listed_and_filled_in() {
    for version in COVERED {
        let (mut server, _) = open(version, json!({})).await;
        let listed = server.request("prompts/list", Value::Null).await;
        let prompts = &listed.result()["prompts"];
        let uri = "test://example-resource";
        let two = json!({ "arg1": "hello", "arg2": "world" });
        let said = "Prompt with arguments: arg1='hello', arg2='world'";
        #[rustfmt::skip]
        let rows = [
            ("test_simple_prompt", json!({}), "/messages/0/content/text", "This is a simple prompt for testing."),
            ("test_prompt_with_arguments", two, "/messages/0/content/text", said),
            ("test_prompt_with_embedded_resource", json!({ "resourceUri": uri }), "/messages/0/content/resource/uri", uri),
            ("test_prompt_with_image", json!({}), "/messages/0/content/mimeType", "image/png"),
        ];
        for (prompt, arguments, pointer, expected) in rows {
            assert!(each(prompts, "name").contains(&prompt));
            let filled = server.request("prompts/get", call(prompt, arguments)).await;
            assert_eq!(at(&filled, pointer), expected, "{version} {prompt}");
        }
    }
}

#[tokio::test]
async fn what_may_be_kept_says_for_how_long() {
    for version in ["2025-11-25", MODERN] {
        let (mut server, _) = open(version, json!({})).await;
        for (method, params) in [
            ("tools/list", Value::Null),
            ("prompts/list", Value::Null),
            ("resources/list", Value::Null),
            ("resources/templates/list", Value::Null),
            ("resources/read", json!({ "uri": "test://static-text" })),
        ] {
            let reply = server.request(method, params).await;
            let scope = reply.result().get("cacheScope").and_then(Value::as_str);
            let ttl = reply.result().get("ttlMs").and_then(Value::as_u64);
            // The caller's permissions decide what is there.
            let expected = (version == MODERN).then_some("private");
            assert_eq!(scope, expected, "{version} {method}");
            assert_eq!(ttl.is_some(), version == MODERN, "{version} {method}");
        }
    }
}

/// The next notification of a subscription; one that was left may still have had some to come.
async fn next_of(server: &mut StdioServer, listener: &Value) -> Value {
    loop {
        let said = server.receive().await;
        let of = said.pointer(SUBSCRIPTION);
        if of.unwrap_or_else(|| panic!("not of a subscription: {said}")) == listener {
            return said;
        }
    }
}

/// Starts to listen, and what the server agreed to.
async fn listen(server: &mut StdioServer, wanted: Value) -> (Value, Value) {
    let params = json!({ "notifications": wanted });
    let request = server.voice.request("subscriptions/listen", params);
    server.send(&request).await;
    let agreed = next_of(server, &request["id"]).await;
    assert_eq!(agreed["method"], "notifications/subscriptions/acknowledged");
    let agreed = agreed["params"]["notifications"].clone();
    (request["id"].clone(), agreed)
}

#[tokio::test]
async fn listeners_hear_what_they_asked_for_and_nothing_else() {
    let (mut server, _) = open(MODERN, json!({})).await;
    let (tools, agreed) = listen(&mut server, json!({ "toolsListChanged": true })).await;
    assert_eq!(agreed, json!({ "toolsListChanged": true }));
    let (prompts, _) = listen(&mut server, json!({ "promptsListChanged": true })).await;
    // Each listener hears of its own list, and of no change of another.
    let trigger = call("test_trigger_tool_change", json!({}));
    let of_prompts = call("test_trigger_prompt_change", json!({}));
    for trigger in [&trigger, &of_prompts] {
        let request = server.voice.request("tools/call", trigger.clone());
        server.send(&request).await;
    }
    let mut heard = server.receive_many(4).await;
    heard.retain(|it| it.get("id").is_none());
    heard.sort_by_key(|it| it["method"].to_string());
    for (said, method, listener) in [
        (&heard[0], "notifications/prompts/list_changed", &prompts),
        (&heard[1], "notifications/tools/list_changed", &tools),
    ] {
        assert_eq!(said["method"], method);
        assert_eq!(said.pointer(SUBSCRIPTION), Some(listener));
    }
    // Who has left hears nothing more; who is still there is told of the end.
    let left = json!({ "requestId": tools });
    server.notify("notifications/cancelled", left).await;
    let mut rest = server.request("tools/call", trigger).await.earlier;
    rest.extend(server.request("tools/call", of_prompts).await.earlier);
    server.close_input();
    rest.extend(server.receive_rest().await);
    let methods: Vec<_> = rest.iter().filter_map(|it| it["method"].as_str()).collect();
    assert_eq!(methods, ["notifications/prompts/list_changed"]);
    let ended: Vec<_> = rest.iter().filter_map(|it| it.get("id")).collect();
    assert_eq!(ended, [&prompts]);
    let subscription = "/result/_meta/io.modelcontextprotocol~1subscriptionId";
    assert_eq!(rest.last().unwrap().pointer(subscription), Some(&prompts));
    assert!(server.wait_exit(testkit::GENEROUS).await.success());
}

/// A client that can follow tasks and be asked.
fn follower() -> Value {
    json!({ "elicitation": {}, "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

async fn start_task(server: &mut StdioServer, tool: &str, arguments: Value) -> String {
    let created = server.request("tools/call", call(tool, arguments)).await;
    assert_eq!(at(&created, "/resultType"), "task");
    assert!(created.result().get("requestState").is_none());
    at(&created, "/taskId").as_str().unwrap().to_owned()
}

/// Follows a task until it is in one of these states: the task as `tasks/get` shows it.
async fn follow(server: &mut StdioServer, task: &str, states: &[&str]) -> Value {
    let (listener, agreed) = listen(server, json!({ "taskIds": [task] })).await;
    assert_eq!(agreed["taskIds"], json!([task]));
    let reached = |it: &Value| states.contains(&it["status"].as_str().unwrap());
    let params = json!({ "taskId": task });
    // Listened for before it is looked at: no change is missed.
    let mut shown = server.request("tasks/get", params.clone()).await;
    if !reached(shown.result()) {
        loop {
            let said = next_of(server, &listener).await;
            assert_eq!(said["method"], "notifications/tasks");
            assert_eq!(said["params"]["taskId"], task);
            if reached(&said["params"]) {
                break;
            }
        }
        shown = server.request("tasks/get", params).await;
    }
    let left = json!({ "requestId": listener });
    server.notify("notifications/cancelled", left).await;
    assert!(reached(shown.result()), "{shown:?}");
    shown.result().clone()
}

#[tokio::test]
async fn calls_become_tasks_whose_ends_are_told() {
    let (mut server, opened) = open(MODERN, follower()).await;
    let extensions = &opened["capabilities"]["extensions"];
    assert!(extensions.get("io.modelcontextprotocol/tasks").is_some());

    let greet = call("greet", json!({ "name": "Ada" }));
    let called = server.request("tools/call", greet).await;
    assert_eq!(at(&called, "/content/0/text"), "Hello, Ada!");

    let slow = json!({ "seconds": 1, "label": "sum" });
    let task = start_task(&mut server, "slow_compute", slow).await;
    let task = follow(&mut server, &task, &["completed"]).await;
    assert_eq!(task["result"]["content"][0]["text"], "sum: 42");

    let task = start_task(&mut server, "failing_job", json!({})).await;
    let task = follow(&mut server, &task, &["completed", "failed"]).await;
    assert_eq!(task["status"], "completed");
    assert_eq!(task["result"]["isError"], true);

    let task = start_task(&mut server, "protocol_error_job", json!({})).await;
    let task = follow(&mut server, &task, &["completed", "failed"]).await;
    assert_eq!(task["status"], "failed");
    assert_eq!(task["error"]["code"], -32603);
    assert_eq!(task.get("result"), None);

    let slow = json!({ "seconds": 600 });
    let id = start_task(&mut server, "slow_compute", slow).await;
    for _ in 0..2 {
        let params = json!({ "taskId": id });
        let cancelled = server.request("tasks/cancel", params).await;
        assert_eq!(at(&cancelled, "/resultType"), "complete");
        follow(&mut server, &id, &["cancelled"]).await;
    }
    let unknown = json!({ "taskId": "unknown" });
    let refused = server.request("tasks/get", unknown).await;
    assert_eq!(refused.code(), -32602);
}

#[tokio::test]
async fn tasks_ask_and_go_on_with_what_they_are_told() {
    let (mut server, _) = open(MODERN, follower()).await;
    let accepted = |content: Value| json!({ "action": "accept", "content": content });

    let file = json!({ "filename": "a.txt" });
    let id = start_task(&mut server, "confirm_delete", file).await;
    let task = follow(&mut server, &id, &["input_required"]).await;
    assert_eq!(
        task["inputRequests"]["confirm"]["method"],
        "elicitation/create"
    );
    let answers = json!({ "confirm": accepted(json!({ "confirm": true })) });
    let update = json!({ "taskId": id, "inputResponses": answers });
    let updated = server.request("tasks/update", update).await;
    assert_eq!(at(&updated, "/resultType"), "complete");
    let task = follow(&mut server, &id, &["completed", "failed"]).await;
    assert_eq!(task["result"]["content"][0]["text"], "a.txt is deleted.");

    // What is answered is not asked again, and what is not is.
    let id = start_task(&mut server, "multi_input", json!({})).await;
    let mut asked = vec!["first", "second"];
    while let Some(last) = asked.last() {
        let task = follow(&mut server, &id, &["input_required"]).await;
        let open = task["inputRequests"].as_object().unwrap();
        assert_eq!(open.keys().collect::<Vec<_>>(), asked);
        let answers = json!({ *last: accepted(json!({ "value": "v" })) });
        let update = json!({ "taskId": id, "inputResponses": answers });
        let updated = server.request("tasks/update", update).await;
        assert_eq!(at(&updated, "/resultType"), "complete");
        asked.pop();
    }
    let task = follow(&mut server, &id, &["completed", "failed"]).await;
    assert_eq!(
        task["result"]["content"][0]["text"],
        "Both have been answered."
    );

    // First a question, and a task when there is nothing left to ask.
    let mut params = call("test_tool_with_task", json!({}));
    let question = server.request("tools/call", params.clone()).await;
    assert_eq!(at(&question, "/resultType"), "input_required");
    params["inputResponses"] = json!({ "user_name": accepted(json!({ "name": "Ada" })) });
    if let Some(state) = question.result().get("requestState") {
        params["requestState"] = state.clone();
    }
    let created = server.request("tools/call", params).await;
    assert_eq!(at(&created, "/resultType"), "task");
    let id = at(&created, "/taskId").as_str().unwrap();
    let task = follow(&mut server, id, &["completed", "failed"]).await;
    assert_eq!(task["result"]["content"][0]["text"], "Worked for Ada.");
}

#[tokio::test]
async fn who_cannot_follow_tasks_gets_none() {
    let (mut server, _) = open(MODERN, json!({})).await;
    let now = call("slow_compute", json!({ "seconds": 0 }));
    let called = server.request("tools/call", now).await;
    assert_eq!(at(&called, "/resultType"), "complete");
    let refusals = [
        ("tools/call", call("failing_job", json!({}))),
        ("tasks/get", json!({ "taskId": "x" })),
        (
            "tasks/update",
            json!({ "taskId": "x", "inputResponses": {} }),
        ),
        ("tasks/cancel", json!({ "taskId": "x" })),
        (
            "subscriptions/listen",
            json!({ "notifications": { "taskIds": ["x"] } }),
        ),
    ];
    for (method, params) in refusals {
        let refused = server.request(method, params).await;
        assert_eq!(refused.code(), -32021, "{method}");
        let required = &refused.error()["data"]["requiredCapabilities"]["extensions"];
        assert!(required.get("io.modelcontextprotocol/tasks").is_some());
    }
}

#[tokio::test]
async fn a_revision_with_tasks_of_its_own_has_those() {
    let (mut server, opened) = open("2025-11-25", json!({})).await;
    assert!(opened["capabilities"]["tasks"].is_object());
    let mut params = call("slow_compute", json!({ "seconds": 1 }));
    params["task"] = json!({});
    let created = server.request("tools/call", params).await;
    let id = json!({ "taskId": at(&created, "/task/taskId") });
    // Answered when there is a result.
    let result = server.request("tasks/result", id.clone()).await;
    assert_eq!(at(&result, "/content/0/text"), "result: 42");
    let shown = server.request("tasks/get", id.clone()).await;
    assert_eq!(at(&shown, "/status"), "completed");
    let listed = server.request("tasks/list", Value::Null).await;
    assert_eq!(at(&listed, "/tasks/0/taskId"), &id["taskId"]);
    // What has ended cannot be cancelled there.
    assert_eq!(server.request("tasks/cancel", id).await.code(), -32602);
}

#[tokio::test]
async fn skills_are_enumerated_and_their_directories_read() {
    let (mut server, opened) = open(MODERN, json!({})).await;
    let extension = &opened["capabilities"]["extensions"]["io.modelcontextprotocol/skills"];
    assert_eq!(extension["directoryRead"], true);
    let listed = server.request("skills/list", Value::Null).await;
    let skills = listed.result()["skills"].as_array().unwrap();
    assert!(!skills.is_empty());
    for skill in skills {
        let uri = skill["uri"].as_str().unwrap();
        let got = server.request("skills/get", json!({ "uri": uri })).await;
        assert_eq!(at(&got, "/skill"), skill);
        let files = skill["resources"].as_array().unwrap();
        for file in files {
            let params = json!({ "uri": file["uri"] });
            let read = server.request("resources/read", params).await;
            let text = at(&read, "/contents/0/text").as_str().unwrap();
            assert_eq!(file["size"], text.len(), "{file}");
        }
        let directory = uri.strip_suffix("/SKILL.md").unwrap();
        let params = json!({ "uri": directory });
        let read = server.request("resources/directory/read", params).await;
        let children = at(&read, "/resources").as_array().unwrap();
        let document = children.iter().find(|it| it["uri"] == uri).unwrap();
        assert_eq!(document["mimeType"], MARKDOWN);
        assert_eq!(document["name"], skill["frontmatter"]["name"]);
    }
    for method in ["skills/get", "resources/directory/read"] {
        let params = json!({ "uri": "skill://no/such-skill/SKILL.md" });
        assert_eq!(server.request(method, params).await.code(), -32602);
    }
}
