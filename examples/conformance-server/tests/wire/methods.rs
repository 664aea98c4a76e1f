//! Methods that a server has, and their parameters.

use crate::house::{LEGACY, NEWEST_LEGACY, Peer, Program, WAYS, Way};
use serde_json::{Value, json};
use testkit::{MODERN, REVISIONS};

const META: &str = "io.modelcontextprotocol";

/// Parameters that do not fit a method that is there.
fn misfits(version: &str) -> Vec<(&'static str, Value)> {
    let mut misfits = vec![
        ("tools/call", json!({})),
        ("tools/call", json!({ "name": 7 })),
        ("tools/call", json!({ "name": null })),
        (
            "tools/call",
            json!({ "name": "test_simple_text", "arguments": [1] }),
        ),
        (
            "tools/call",
            json!({ "name": "test_simple_text", "arguments": "x" }),
        ),
        ("tools/list", json!({ "cursor": 5 })),
        ("resources/read", json!({})),
        ("resources/read", json!({ "uri": 7 })),
        ("prompts/get", json!({})),
        (
            "prompts/get",
            json!({ "name": "test_prompt_with_arguments", "arguments": { "arg1": 7 } }),
        ),
        ("completion/complete", json!({})),
        (
            "completion/complete",
            json!({ "ref": { "type": "ref/none" }, "argument": { "name": "a", "value": "b" } }),
        ),
    ];
    if version == MODERN {
        misfits.push(("subscriptions/listen", json!({})));
        misfits.push(("subscriptions/listen", json!({ "notifications": [] })));
        misfits.push((
            "subscriptions/listen",
            json!({ "notifications": { "toolsListChanged": 1 } }),
        ));
    } else {
        misfits.push(("logging/setLevel", json!({})));
        misfits.push(("logging/setLevel", json!({ "level": "loud" })));
        misfits.push(("resources/subscribe", json!({})));
    }
    misfits
}

#[tokio::test]
async fn malformed_params_of_a_known_method_are_invalid_params() {
    for way in WAYS {
        for version in REVISIONS {
            let mut peer = Program::Suite.open(way, version, "{}").await;
            for (method, params) in misfits(version) {
                let what = format!("{version} {method} {params}");
                peer.ask(method, params).await.is_error(-32602, 200, &what);
            }
            peer.is_served("all that").await;
        }
    }
}

#[tokio::test]
async fn methods_of_what_is_not_offered_do_not_exist() {
    for way in WAYS {
        for version in REVISIONS {
            let mut peer = Program::Fixture.start(way).await;
            let opened = peer.open(version).await;
            let offered = &opened["capabilities"];
            assert!(offered["tools"].is_object(), "{offered}");
            let argument = json!({
                "ref": { "type": "ref/prompt", "name": "p" },
                "argument": { "name": "a", "value": "b" },
            });
            let mut absent = vec![
                ("prompts/list", json!({})),
                ("prompts/get", json!({ "name": "p" })),
                ("completion/complete", argument),
                ("skills/list", json!({})),
                ("no/such/method", json!({})),
            ];
            if version != MODERN {
                absent.push(("logging/setLevel", json!({ "level": "info" })));
            }
            for (method, params) in absent {
                let capability = method.split('/').next().unwrap();
                assert_eq!(offered.get(capability), None, "{offered}");
                let status = if version == MODERN { 404 } else { 200 };
                let what = format!("{version} {method}");
                peer.ask(method, params)
                    .await
                    .is_error(-32601, status, &what);
            }
            peer.is_served("all that").await;
        }
    }
}

#[tokio::test]
async fn what_the_modern_revision_removed_is_not_found_there() {
    for way in WAYS {
        let mut peer = Program::Suite.open(way, MODERN, "{}").await;
        for (method, params) in [
            (
                "initialize",
                json!({ "protocolVersion": MODERN, "capabilities": {} }),
            ),
            ("ping", json!({})),
            ("logging/setLevel", json!({ "level": "info" })),
            (
                "resources/subscribe",
                json!({ "uri": "test://watched-resource" }),
            ),
            (
                "resources/unsubscribe",
                json!({ "uri": "test://watched-resource" }),
            ),
        ] {
            peer.ask(method, params).await.is_error(-32601, 404, method);
        }
        peer.is_served("all that").await;
    }
}

/// A list whose cursor nobody gave out has no such page: neither the first nor an empty one.
#[tokio::test]
async fn a_cursor_that_is_none_is_refused() {
    let lists = [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ];
    for way in WAYS {
        for version in [LEGACY[0], NEWEST_LEGACY, MODERN] {
            let mut peer = Program::Suite.open(way, version, "{}").await;
            for method in lists {
                for cursor in [json!("x"), json!(""), json!("MTAw"), json!(5), json!({})] {
                    let what = format!("{version} {method} {cursor}");
                    let answer = peer.ask(method, json!({ "cursor": cursor })).await;
                    answer.is_error(-32602, 200, &what);
                }
                peer.ask(method, json!({})).await.result();
            }
        }
    }
}

#[tokio::test]
async fn a_level_that_is_none_is_refused() {
    for way in WAYS {
        let mut peer = Program::Suite.open(way, MODERN, "{}").await;
        for level in [json!("loud"), json!("INFO"), json!(3)] {
            let meta = json!({ format!("{META}/logLevel"): level });
            let params = json!({ "name": "test_simple_text", "_meta": meta });
            let answer = peer.ask("tools/call", params).await;
            assert_eq!(answer.code(), -32602, "{level}");
        }
        let mut peer = Program::Suite.open(way, NEWEST_LEGACY, "{}").await;
        for level in [json!("loud"), json!("INFO"), json!(3)] {
            let answer = peer
                .ask("logging/setLevel", json!({ "level": level }))
                .await;
            answer.is_error(-32602, 200, &level.to_string());
        }
    }
}

#[tokio::test]
async fn every_modern_result_says_who_the_server_is() {
    let completion = json!({
        "ref": { "type": "ref/prompt", "name": "test_prompt_with_arguments" },
        "argument": { "name": "arg1", "value": "par" },
    });
    let requests = [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("tools/call", json!({ "name": "test_simple_text" })),
        ("tools/call", json!({ "name": "test_error_handling" })),
        (
            "tools/call",
            json!({ "name": "test_input_required_result_elicitation" }),
        ),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("resources/read", json!({ "uri": "test://static-text" })),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "test_simple_prompt" })),
        ("completion/complete", completion),
        ("skills/list", json!({})),
    ];
    for way in WAYS {
        let capabilities = r#"{"elicitation":{}}"#;
        let mut peer = Program::Suite.open(way, MODERN, capabilities).await;
        for (method, params) in requests.clone() {
            let answer = peer.ask(method, params).await;
            let meta = &answer.result()["_meta"];
            let name = &meta[format!("{META}/serverInfo")]["name"];
            assert_eq!(name, "conformance-server", "{method}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn a_handshake_never_agrees_on_the_modern_revision() {
    for way in WAYS {
        for asked in [MODERN, "2099-01-01", "nonsense", ""] {
            let mut peer = Program::Suite.start(way).await;
            // What is answered is of the revision that is agreed on.
            match &mut peer {
                Peer::Http(_, client) => client.speak(NEWEST_LEGACY),
                Peer::Stdio(server) => server.speak(NEWEST_LEGACY),
            }
            let mut message = peer.request("initialize", json!({}));
            message["params"] = json!({
                "protocolVersion": asked,
                "capabilities": {},
                "clientInfo": { "name": "x", "version": "1" },
            });
            let answer = peer.say(&message).await;
            assert_eq!(answer.result()["protocolVersion"], NEWEST_LEGACY, "{asked}");
        }
    }
}

#[tokio::test]
async fn a_legacy_revision_in_modern_clothes_is_refused() {
    for way in WAYS {
        for named in LEGACY {
            let mut peer = Program::Suite.open(way, MODERN, "{}").await;
            let params = json!({ "_meta": { format!("{META}/protocolVersion"): named } });
            let message = peer.request("tools/list", params);
            let answer = match &mut peer {
                Peer::Http(_, client) => {
                    let request = client.post_of(&message);
                    let request = request.with("mcp-protocol-version", named);
                    let answer = client.post(&request).await;
                    assert_eq!(answer.http.status, 400, "{answer:?}");
                    answer.response().clone()
                }
                Peer::Stdio(_) => peer.say(&message).await.response,
            };
            assert_eq!(answer["error"]["code"], -32022, "{way:?} {named}");
            assert_eq!(answer["error"]["data"]["supported"], json!([MODERN]));
            assert_eq!(answer["error"]["data"]["requested"], *named);
        }
    }
}

/// An error, not the result of a call; and not the error of a missing method.
#[tokio::test]
async fn an_unknown_tool_or_resource_is_an_error() {
    for way in WAYS {
        for version in REVISIONS {
            let is_modern = version == MODERN;
            let mut peer = Program::Suite.open(way, version, "{}").await;
            let code = if is_modern { -32602 } else { -32001 };
            let answer = peer.call("no_such_tool", json!({})).await;
            answer.is_error(code, 200, version);
            let code = if is_modern { -32602 } else { -32002 };
            let uri = "test://no-such-resource";
            let answer = peer.ask("resources/read", json!({ "uri": uri })).await;
            answer.is_error(code, 200, version);
            assert_eq!(answer.response["error"]["data"]["uri"], uri, "{version}");
        }
    }
}

/// The metadata that a modern request must have: without it the request is none of either era.
#[tokio::test]
async fn a_modern_request_without_its_metadata_is_refused() {
    for way in WAYS {
        let mut peer = Program::Suite.open(way, MODERN, "{}").await;
        for (key, value) in [
            ("clientCapabilities", None),
            ("clientCapabilities", Some(json!([]))),
            ("clientCapabilities", Some(json!("none"))),
            ("protocolVersion", Some(json!(7))),
        ] {
            let mut message = peer.request("tools/list", json!({}));
            let meta = message["params"]["_meta"].as_object_mut().unwrap();
            let key = format!("{META}/{key}");
            match value {
                None => meta.remove(&key),
                Some(value) => meta.insert(key.clone(), value),
            };
            peer.say(&message).await.is_error(-32602, 400, &key);
        }
        if way == Way::Stdio {
            // Where no header names the revision, a request without metadata is a legacy one.
            let bare = json!({ "jsonrpc": "2.0", "id": 77, "method": "resources/subscribe" });
            assert_eq!(peer.say(&bare).await.code(), -32602);
        }
    }
}
