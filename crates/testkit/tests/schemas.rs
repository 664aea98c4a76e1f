//! The judge of messages, judged: a checker that passes everything is worthless.

use serde_json::{Value, json};
use testkit::{MODERN, REVISIONS, Schemas, examples};

const META: &str = "io.modelcontextprotocol/";

fn server(version: &str, method: Option<&str>, message: &Value) -> Result<(), String> {
    Schemas::load().check_server_message(version, method, message)
}

fn client(version: &str, message: &Value) -> Result<(), String> {
    Schemas::load().check_client_message(version, None, message)
}

fn result(result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": result})
}

fn error(code: i64, data: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "error": {"code": code, "message": "no", "data": data}})
}

/// The verdict names this place, and is short.
#[track_caller]
fn refused(verdict: Result<(), String>, pointer: &str, why: &str) {
    let wrong = verdict.expect_err("this is invalid");
    assert!(
        wrong.starts_with(&format!("{pointer}: ")),
        "{wrong:?} is not about {pointer}"
    );
    assert!(wrong.contains(why), "{wrong:?} does not say {why:?}");
    assert!(wrong.len() < 400, "{wrong}");
}

/// Adds the members that a result of the modern revision has in addition.
fn dated(version: &str, mut result: Value, cacheable: bool) -> Value {
    if version == MODERN {
        result["resultType"] = json!("complete");
        if cacheable {
            result["ttlMs"] = json!(0);
            result["cacheScope"] = json!("private");
        }
    }
    result
}

#[test]
fn each_revision_takes_its_tool_list_and_refuses_a_broken_one() {
    for version in REVISIONS {
        let tools = |tool: Value| result(dated(version, json!({"tools": [tool]}), true));
        let good = tools(json!({"name": "add", "inputSchema": {"type": "object"}}));
        assert_eq!(
            server(version, Some("tools/list"), &good),
            Ok(()),
            "{version}"
        );
        let nameless = tools(json!({"inputSchema": {"type": "object"}}));
        refused(
            server(version, Some("tools/list"), &nameless),
            "/result/tools/0",
            "name",
        );
        let rootless = tools(json!({"name": "add", "inputSchema": {"type": "string"}}));
        let at = "/result/tools/0/inputSchema/type";
        refused(server(version, Some("tools/list"), &rootless), at, "object");
        let no_schema = json!({"type": "object", "properties": {"a": {"type": "integr"}}});
        let no_schema = tools(json!({"name": "add", "inputSchema": no_schema}));
        let at = "/result/tools/0/inputSchema/properties/a/type";
        refused(
            server(version, Some("tools/list"), &no_schema),
            at,
            "JSON Schema",
        );
        // The same list is no answer to another method.
        refused(
            server(version, Some("resources/list"), &good),
            "/result",
            "resources",
        );
        assert_eq!(server(version, None, &good), Ok(()));
    }
}

#[test]
fn each_revision_takes_its_tool_result_and_refuses_a_broken_one() {
    for version in REVISIONS {
        let content = |block: Value| result(dated(version, json!({"content": [block]}), false));
        let good = content(json!({"type": "text", "text": "3"}));
        assert_eq!(
            server(version, Some("tools/call"), &good),
            Ok(()),
            "{version}"
        );
        let textless = content(json!({"type": "text"}));
        refused(
            server(version, Some("tools/call"), &textless),
            "/result/content/0",
            "text",
        );
        let contentless = result(dated(version, json!({}), false));
        refused(
            server(version, Some("tools/call"), &contentless),
            "/result",
            "content",
        );
        let not_boolean = json!({"content": [], "isError": "yes"});
        let not_boolean = result(dated(version, not_boolean, false));
        refused(
            server(version, Some("tools/call"), &not_boolean),
            "/result/isError",
            "boolean",
        );
    }
}

#[test]
fn content_is_of_the_kinds_that_a_revision_has() {
    let audio = json!({"content": [{"type": "audio", "data": "", "mimeType": "audio/wav"}]});
    let link = json!({"content": [{"type": "resource_link", "uri": "skill://a/b", "name": "b"}]});
    for (content, first) in [(audio, "2025-03-26"), (link, "2025-06-18")] {
        for version in REVISIONS {
            let message = result(dated(version, content.clone(), false));
            let verdict = server(version, Some("tools/call"), &message);
            assert_eq!(verdict.is_ok(), version >= first, "{version}: {verdict:?}");
        }
    }
}

#[test]
fn openings_are_judged_by_their_revision() {
    let initialized = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "owlclaw", "version": "1"},
    });
    for version in REVISIONS {
        let verdict = server(version, Some("initialize"), &result(initialized.clone()));
        match version {
            MODERN => refused(verdict, "/result", "resultType"),
            _ => assert_eq!(verdict, Ok(())),
        }
        let mut nameless = initialized.clone();
        nameless["serverInfo"] = json!({"version": "1"});
        server(version, Some("initialize"), &result(nameless)).unwrap_err();
    }
    let mut discovered = json!({
        "resultType": "complete", "supportedVersions": [MODERN], "capabilities": {},
        "ttlMs": 0, "cacheScope": "public",
    });
    let method = Some("server/discover");
    assert_eq!(server(MODERN, method, &result(discovered.clone())), Ok(()));
    refused(
        server("2025-11-25", method, &result(json!({}))),
        "/result",
        "server/discover",
    );
    discovered["cacheScope"] = json!("mine");
    refused(
        server(MODERN, method, &result(discovered)),
        "/result/cacheScope",
        "public",
    );
}

#[test]
fn a_legacy_result_has_no_member_of_the_modern_revision() {
    for version in &REVISIONS[..4] {
        for member in ["resultType", "ttlMs", "cacheScope"] {
            let message = result(json!({"content": [], member: 1}));
            let at = format!("/result/{member}");
            refused(server(version, Some("tools/call"), &message), &at, version);
        }
    }
}

#[test]
fn the_modern_revision_may_ask_back_where_the_schema_says_so() {
    let asking = result(json!({"resultType": "input_required", "requestState": "s"}));
    for method in ["tools/call", "prompts/get", "resources/read"] {
        assert_eq!(server(MODERN, Some(method), &asking), Ok(()), "{method}");
    }
    refused(
        server(MODERN, Some("tools/list"), &asking),
        "/result",
        "required",
    );
    let stateless = json!({"resultType": "input_required", "requestState": 5});
    let verdict = server(MODERN, Some("tools/call"), &result(stateless));
    refused(verdict, "/result/requestState", "string");
}

#[test]
fn tasks_have_the_form_of_their_revision() {
    let modern = json!({
        "resultType": "task", "taskId": "t", "status": "working", "ttlMs": null,
        "createdAt": "2026-08-01T00:00:00Z", "lastUpdatedAt": "2026-08-01T00:00:00Z",
    });
    assert_eq!(
        server(MODERN, Some("tools/call"), &result(modern.clone())),
        Ok(())
    );
    refused(
        server(MODERN, Some("tools/list"), &result(modern.clone())),
        "/result",
        "required",
    );
    let mut wrapped = modern.clone();
    wrapped["task"] = json!({});
    server(MODERN, Some("tools/call"), &result(wrapped)).unwrap_err();
    let mut undated = modern.clone();
    undated["createdAt"] = json!("yesterday");
    let verdict = server(MODERN, Some("tools/call"), &result(undated));
    refused(verdict, "/result/createdAt", "date-time");
    let mut done = modern.clone();
    done["resultType"] = json!("complete");
    assert_eq!(
        server(MODERN, Some("tasks/get"), &result(done.clone())),
        Ok(())
    );
    done["status"] = json!("completed");
    refused(
        server(MODERN, Some("tasks/get"), &result(done)),
        "/result",
        "result",
    );

    let mut legacy = modern;
    legacy["ttl"] = json!(1);
    legacy
        .as_object_mut()
        .unwrap()
        .retain(|key, _| key != "resultType" && key != "ttlMs");
    let legacy = result(json!({"task": legacy}));
    assert_eq!(server("2025-11-25", Some("tools/call"), &legacy), Ok(()));
    refused(
        server("2025-06-18", Some("tools/call"), &legacy),
        "/result",
        "content",
    );
}

#[test]
fn skills_are_judged_as_their_extension_says() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let file = json!({"uri": "skill://shop/orders/SKILL.md", "digest": digest, "size": 3});
    let skill = json!({
        "uri": "skill://shop/orders/SKILL.md",
        "frontmatter": {"name": "orders", "description": "d"},
        "resources": [file],
    });
    let list = |skill: &Value| result(dated(MODERN, json!({"skills": [skill]}), true));
    assert_eq!(server(MODERN, Some("skills/list"), &list(&skill)), Ok(()));
    let mut broken = skill;
    broken["resources"][0]["digest"] = json!("sha256:00");
    let verdict = server(MODERN, Some("skills/list"), &list(&broken));
    refused(verdict, "/result/skills/0/resources/0/digest", "match");
}

#[test]
fn an_error_is_well_formed_and_has_a_code_of_the_revision() {
    for version in REVISIONS {
        for code in [
            -32700, -32600, -32601, -32602, -32603, -32003, -32004, -32005, 17,
        ] {
            assert_eq!(
                server(version, Some("tools/call"), &error(code, json!({}))),
                Ok(())
            );
        }
        let modern = version == MODERN;
        for code in [-32001, -32002] {
            let verdict = server(version, Some("tools/call"), &error(code, json!({})));
            assert_eq!(verdict.is_ok(), !modern, "{verdict:?}");
        }
        let codeless = json!({"jsonrpc": "2.0", "id": 1, "error": {"message": "no"}});
        refused(server(version, None, &codeless), "/error", "code");
        refused(
            server(version, None, &error(-32050, json!({}))),
            "/error/code",
            "-32050",
        );
        let mut both = error(-32600, json!({}));
        both["result"] = json!({});
        refused(server(version, None, &both), "/error", "not both");
    }
    let unsupported = json!({"supported": [MODERN], "requested": "v9"});
    assert_eq!(
        server(MODERN, None, &error(-32022, unsupported.clone())),
        Ok(())
    );
    refused(
        server(MODERN, None, &error(-32022, json!({}))),
        "/error/data",
        "required",
    );
    refused(
        server("2025-11-25", None, &error(-32022, unsupported)),
        "/error/code",
        "-32022",
    );
    let missing = json!({"requiredCapabilities": {"sampling": {}}});
    assert_eq!(server(MODERN, None, &error(-32021, missing)), Ok(()));
    refused(
        server(MODERN, None, &error(-32021, json!({}))),
        "/error/data",
        "required",
    );
}

#[test]
fn an_error_has_the_id_that_its_revision_wants_where_none_could_be_read() {
    for version in REVISIONS {
        let older = version < "2025-11-25";
        let mut message = error(-32700, json!({}));
        message["id"] = Value::Null;
        assert_eq!(server(version, None, &message).is_ok(), older, "{version}");
        message["error"]["code"] = json!(-32602);
        server(version, None, &message).expect_err("params were read, so the id was");
        message["error"]["code"] = json!(-32600);
        message.as_object_mut().unwrap().remove("id");
        assert_eq!(server(version, None, &message), Ok(()), "{version}");
    }
}

#[test]
fn ids_and_envelopes_are_judged() {
    for version in REVISIONS {
        let mut message = result(dated(version, json!({}), false));
        assert_eq!(server(version, None, &message), Ok(()));
        message["id"] = json!(1.5);
        refused(server(version, None, &message), "/id", "integer");
        message["id"] = Value::Null;
        refused(server(version, None, &message), "/id", "string");
        message["id"] = json!("");
        message["jsonrpc"] = json!("1.0");
        refused(server(version, None, &message), "/jsonrpc", "2.0");
        refused(
            server(version, None, &json!({"jsonrpc": "2.0", "id": 1})),
            "",
            "neither",
        );
        server(version, None, &json!("hello")).unwrap_err();
    }
    server("2025-12-12", None, &result(json!({}))).unwrap_err();
    assert_eq!(server("1.0", Some("ping"), &result(json!({}))), Ok(()));
}

#[test]
fn notifications_and_requests_of_a_server_are_those_of_the_revision() {
    for version in REVISIONS {
        let progress = |progress: Value| {
            json!({"jsonrpc": "2.0", "method": "notifications/progress",
                   "params": {"progressToken": "t", "progress": progress}})
        };
        assert_eq!(server(version, None, &progress(json!(0.5))), Ok(()));
        let verdict = server(version, None, &progress(json!("half")));
        refused(verdict, "/params/progress", "number");
        let unknown = json!({"jsonrpc": "2.0", "method": "notifications/unheard_of"});
        refused(server(version, None, &unknown), "/method", "unheard_of");

        let sampling = json!({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage",
                              "params": {"messages": [], "maxTokens": 1}});
        let verdict = server(version, None, &sampling);
        match version {
            MODERN => refused(verdict, "/method", "has no request"),
            _ => assert_eq!(verdict, Ok(())),
        }
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}});
        refused(
            server(version, None, &call),
            "/method",
            "a server has no request",
        );
    }
    let acknowledged = json!({
        "jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {format!("{META}subscriptionId"): 1},
                   "notifications": {"toolsListChanged": true}},
    });
    assert_eq!(server(MODERN, None, &acknowledged), Ok(()));
    server("2025-11-25", None, &acknowledged).unwrap_err();
}

#[test]
fn requests_of_a_client_are_those_of_the_revision() {
    let meta = json!({
        format!("{META}protocolVersion"): MODERN,
        format!("{META}clientCapabilities"): {},
    });
    for version in REVISIONS {
        let call = |name: Value| {
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                   "params": {"name": name, "arguments": {}, "_meta": meta}})
        };
        assert_eq!(client(version, &call(json!("add"))), Ok(()));
        refused(client(version, &call(json!(1))), "/params/name", "string");
        let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
        assert_eq!(client(version, &ping).is_ok(), version != MODERN);
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                               "params": {"requestId": 1}});
        assert_eq!(client(version, &cancelled), Ok(()));
    }
    let bare = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "a"}});
    refused(client(MODERN, &bare), "/params", "_meta");
}

#[test]
fn batches_are_judged_element_by_element_where_there_are_any() {
    let good = result(json!({}));
    let bad = json!({"jsonrpc": "2.0", "id": null, "result": {}});
    for version in REVISIONS {
        let verdict = server(version, Some("ping"), &json!([good, good]));
        assert_eq!(
            verdict.is_ok(),
            version <= "2025-03-26",
            "{version}: {verdict:?}"
        );
    }
    refused(
        server("2025-03-26", Some("ping"), &json!([good, bad])),
        "/1/id",
        "string",
    );
    server("2025-03-26", None, &json!([])).unwrap_err();
}

#[test]
fn the_official_examples_fit_the_official_schema() {
    let mut misfits = Vec::new();
    let mut count = 0;
    for example in examples() {
        count += 1;
        let verdict = Schemas::load().check_definition(MODERN, &example.definition, &example.value);
        if let Err(wrong) = verdict {
            misfits.push(format!("{}/{}: {wrong}", example.definition, example.name));
        }
    }
    assert_eq!(misfits, Vec::<String>::new());
    assert!(count > 100, "only {count} examples");
}

#[test]
fn the_official_example_messages_pass_as_messages() {
    let mut count = 0;
    for example in examples().filter(|example| example.value.get("jsonrpc").is_some()) {
        count += 1;
        let name = &example.definition;
        let schemas = Schemas::load();
        let as_server = schemas.check_server_message(MODERN, None, &example.value);
        let as_client = schemas.check_client_message(MODERN, None, &example.value);
        // What a server used to ask is nobody's message now: it travels inside a result.
        assert!(
            as_server.is_ok() || as_client.is_ok(),
            "{name}/{}: {as_server:?}, {as_client:?}",
            example.name
        );
    }
    assert!(count > 20, "only {count} messages");
}

#[test]
fn every_definition_of_every_revision_compiles() {
    let schemas = Schemas::load();
    for version in REVISIONS {
        for definition in schemas.definitions(version).unwrap() {
            let verdict = schemas.check_definition(version, definition, &json!(null));
            let unusable = verdict.is_err_and(|wrong| wrong.contains("is no schema"));
            assert!(!unusable, "{version} {definition}");
        }
        assert!(
            schemas
                .check_definition(version, "Nonsense", &json!(1))
                .is_err()
        );
    }
}
