//! Deviations that clients tolerate, and those that they do not.

use mcp_protocol::{
    Method, ProtocolVersion,
    ProtocolVersion::{V2025_11_25, V2026_07_28},
    RawJson,
    client::{
        Answer, ResultError, decode_result, decode_server_notification, decode_server_request,
    },
    model::{CacheHint, CacheScope, TaskState},
};

fn raw(text: &str) -> RawJson {
    RawJson::from_bytes(text.to_owned().into()).expect("it is JSON")
}

fn answer(version: ProtocolVersion, kind: Method, text: &str) -> Result<Answer, ResultError> {
    decode_result(version, kind, &raw(text)).map(|answered| answered.answer)
}

#[test]
fn an_item_of_a_list_that_does_not_fit_takes_no_other_with_it() {
    use Method::{ListPrompts, ListResourceTemplates, ListResources, ListTools};
    let fit = r#"{"name":"n","uri":"u","uriTemplate":"t","inputSchema":{}}"#;
    for (kind, key, unfit, name) in [
        (ListTools, "tools", r#"["n",null,null,{}]"#, None),
        (ListTools, "tools", r#""n""#, None),
        (ListTools, "tools", r#"{"inputSchema":{}}"#, None),
        (ListTools, "tools", r#"{"name":7,"inputSchema":{}}"#, None),
        (ListTools, "tools", r#"{"name":"x"}"#, Some("x")),
        (
            ListTools,
            "tools",
            r#"{"name":"x","inputSchema":true}"#,
            Some("x"),
        ),
        (
            ListTools,
            "tools",
            r#"{"name":"x","inputSchema":{},"annotations":{"readOnlyHint":"yes"}}"#,
            Some("x"),
        ),
        (ListPrompts, "prompts", "null", None),
        (
            ListResources,
            "resources",
            r#"{"uri":"x","name":"n","size":5.5}"#,
            Some("x"),
        ),
        (
            ListResourceTemplates,
            "resourceTemplates",
            r#"{"uriTemplate":"x"}"#,
            Some("x"),
        ),
    ] {
        let text = format!(r#"{{"{key}":[{fit},{unfit},{fit}]}}"#);
        let answered = decode_result(V2025_11_25, kind, &raw(&text)).unwrap();
        let count = match answered.answer {
            Answer::ListTools(it) => it.tools.len(),
            Answer::ListPrompts(it) => it.prompts.len(),
            Answer::ListResources(it) => it.resources.len(),
            Answer::ListResourceTemplates(it) => it.resource_templates.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(count, 2, "{text}");
        let [left_out] = &answered.left_out[..] else {
            panic!("{text}: {:?}", answered.left_out)
        };
        assert_eq!((left_out.name.as_deref(), left_out.at), (name, 2), "{text}");
        assert!(!left_out.why.is_empty());
    }
}

#[test]
fn types_are_demanded_and_the_rest_is_not() {
    use Method::{
        CallTool, Complete, GetPrompt, Initialize, ListResources, ListTools, ReadResource,
    };
    #[rustfmt::skip]
    let rows = [
        (ListTools, r#"{"tools":[]}"#, true),
        (ListTools, r#"{"tools":[],"nextCursor":null,"_meta":null,"unheardOf":[{}]}"#, true),
        (ListTools, r#"{"tools":[{"name":"n","inputSchema":{},"title":null,"icons":null,"annotations":null,"more":1}]}"#, true),
        (ListTools, r#"{}"#, false),
        (ListTools, r#"{"tools":{}}"#, false),
        (ListTools, r#"{"tools":null}"#, false),
        (ListTools, r#"{"tools":[],"_meta":[]}"#, false),
        (ListTools, r#"[]"#, false),
        (ListTools, r#"null"#, false),
        (CallTool, r#"{"content":[{"type":"text","text":"t","mimeType":7}]}"#, true),
        (CallTool, r#"{"structuredContent":null}"#, true),
        (CallTool, r#"{}"#, false),
        (CallTool, r#"{"content":[{"type":"text"}]}"#, false),
        (CallTool, r#"{"content":[{"type":"hologram","data":""}]}"#, false),
        (CallTool, r#"{"content":[{"type":"tool_use","id":"","name":"","input":{}}]}"#, false),
        (CallTool, r#"{"content":[],"isError":1}"#, false),
        (ListResources, r#"{"resources":[{"uri":"u","name":"n","size":5.0}]}"#, true),
        (ListResources, r#"{"resources":null}"#, false),
        (ReadResource, r#"{"contents":[{"uri":"u","_meta":7}]}"#, false),
        (ReadResource, r#"{"contents":[]}"#, true),
        (ReadResource, r#"{"contents":[{"uri":"u","text":""}]}"#, true),
        (ReadResource, r#"{"contents":null}"#, false),
        (ReadResource, r#"{"contents":[{"uri":"u","text":"t"},{"uri":"u"}]}"#, false),
        (ReadResource, r#"{"contents":[{"uri":"u","text":null,"blob":null}]}"#, false),
        (GetPrompt, r#"{"messages":[]}"#, true),
        (GetPrompt, r#"{"messages":null}"#, false),
        (GetPrompt, r#"{}"#, false),
        (Complete, r#"{"completion":{"values":["a"]}}"#, true),
        (Complete, r#"{"completion":["a"]}"#, false),
        (Initialize, r#"{"protocolVersion":"v999"}"#, true),
        (Initialize, r#"{"protocolVersion":7}"#, false),
    ];
    for (kind, text, fits) in rows {
        // Where it exists, and where it does not: nothing depends on that.
        for version in ProtocolVersion::ALL {
            let read = answer(version, kind, text);
            assert_eq!(read.is_ok(), fits, "{version} {text}: {read:?}");
        }
    }
}

#[test]
fn a_result_is_what_it_says_it_is() {
    let complete = r#"{"resultType":"complete","content":[]}"#;
    let asking = r#"{"resultType":"input_required","requestState":"s"}"#;
    let task = r#"{"resultType":"task","taskId":"t","status":"completed","createdAt":"","lastUpdatedAt":"","ttlMs":null}"#;
    let unknown = r#"{"resultType":"partial","content":[]}"#;
    let read = |kind, text| answer(V2026_07_28, kind, text);
    let call = Method::CallTool;
    assert!(matches!(
        read(call, r#"{"content":[]}"#),
        Ok(Answer::CallTool(_))
    ));
    assert!(matches!(read(call, complete), Ok(Answer::CallTool(_))));
    assert!(matches!(read(call, asking), Ok(Answer::InputRequired(_))));
    let Ok(Answer::CreateTask(created)) = read(call, task) else {
        panic!("a task");
    };
    let untold = TaskState::Completed {
        result: RawJson::NULL,
        is_error: false,
    };
    assert_eq!(created.state, untold);
    let nothing_asked = [
        r#"{"resultType":"input_required"}"#,
        r#"{"resultType":"input_required","inputRequests":{}}"#,
        r#"{"resultType":"input_required","inputRequests":null,"requestState":null}"#,
    ];
    for text in nothing_asked {
        let told = read(call, text);
        assert!(
            matches!(told, Err(ResultError::Malformed { .. })),
            "{told:?}"
        );
    }
    let unexpected = |kind, text| match read(kind, text) {
        Err(ResultError::UnexpectedType { result_type, .. }) => result_type,
        other => panic!("{other:?}"),
    };
    assert_eq!(unexpected(call, unknown), "partial");
    assert_eq!(unexpected(Method::ListTools, asking), "input_required");
    assert_eq!(unexpected(Method::GetPrompt, task), "task");
    // What came later means nothing earlier.
    assert!(matches!(
        answer(V2025_11_25, call, unknown),
        Ok(Answer::CallTool(_))
    ));
    // A task that is asked for has come to something.
    assert!(read(Method::GetTask, &task.replace("\"task\"", "\"complete\"")).is_err());
}

#[test]
fn what_may_be_kept_is_never_more_than_was_said() {
    for (hint, ttl_ms, scope) in [
        (r#""ttlMs":5,"cacheScope":"public""#, 5, CacheScope::Public),
        (
            r#""ttlMs":5.0,"cacheScope":"unheard of""#,
            5,
            CacheScope::Private,
        ),
        (r#""ttlMs":-1,"cacheScope":"public""#, 0, CacheScope::Public),
        (r#""cacheScope":null"#, 0, CacheScope::Private),
    ] {
        let text = format!(r#"{{"tools":[],{hint}}}"#);
        let cache = |version| match answer(version, Method::ListTools, &text) {
            Ok(Answer::ListTools(list)) => list.cache,
            other => panic!("{other:?}"),
        };
        assert_eq!(cache(V2026_07_28), CacheHint { ttl_ms, scope }, "{hint}");
        assert_eq!(cache(V2025_11_25), CacheHint::NONE);
    }
}

#[test]
fn what_is_told_is_ignored_or_refused_but_never_guessed() {
    #[rustfmt::skip]
    let rows = [
        (V2026_07_28, "notifications/tasks/status", "{}", Some(false)),
        (V2025_11_25, "notifications/tasks", "{}", Some(false)),
        (V2026_07_28, "notifications/elicitation/complete", r#"{"elicitationId":"e"}"#, Some(false)),
        (V2025_11_25, "notifications/elicitation/complete", r#"{"elicitationId":"e"}"#, Some(true)),
        (V2025_11_25, "notifications/elicitation/complete", "{}", None),
        (V2025_11_25, "notifications/progress", r#"{"progressToken":1.5,"progress":1}"#, None),
        (V2025_11_25, "notifications/progress", r#"{"progressToken":null,"progress":1}"#, None),
        (V2025_11_25, "notifications/message", r#"{"level":"loud","data":1}"#, None),
        (V2025_11_25, "notifications/message", r#"{"level":"info","data":null}"#, Some(true)),
        (V2025_11_25, "notifications/tools/list_changed", "[]", None),
        (V2025_11_25, "unheard/of", "[]", Some(false)),
    ];
    for (version, method, params, expected) in rows {
        let read = decode_server_notification(version, method, &raw(params)).ok();
        assert_eq!(
            read.map(|told| told.is_some()),
            expected,
            "{version} {method} {params}"
        );
    }
}

#[test]
fn what_is_asked_is_refused_by_the_right_code() {
    use ProtocolVersion::{V2025_03_26, V2025_06_18};
    let url = r#"{"mode":"url","message":"m","url":"u","elicitationId":"e"}"#;
    let form = r#"{"message":"m","requestedSchema":{"type":"object","properties":{}}}"#;
    #[rustfmt::skip]
    let rows = [
        (V2025_11_25, "elicitation/create", url, 0),
        (V2025_11_25, "elicitation/create", form, 0),
        (V2025_06_18, "elicitation/create", form, 0),
        (V2025_06_18, "elicitation/create", url, -32602),
        (V2025_03_26, "elicitation/create", form, -32601),
        (V2026_07_28, "elicitation/create", form, -32601),
        (V2025_11_25, "elicitation/create", r#"{"mode":"song","message":"m"}"#, -32602),
        (V2025_11_25, "sampling/createMessage", r#"{"messages":[],"maxTokens":1}"#, 0),
        (V2025_11_25, "sampling/createMessage", r#"{"messages":[]}"#, -32602),
        (V2025_11_25, "sampling/createMessage", r#"{"messages":[{"role":"system","content":[]}],"maxTokens":1}"#, -32602),
        (V2025_11_25, "roots/list", r#"{"_meta":{"progressToken":1.5}}"#, -32602),
        (V2025_11_25, "roots/list", "{}", 0),
        (V2026_07_28, "roots/list", "{}", -32601),
    ];
    for (version, method, params, code) in rows {
        let read = decode_server_request(version, method, &raw(params));
        let read = read.err().map_or(0, |error| error.to_error_object().code.0);
        assert_eq!(read, code, "{version} {method} {params}");
    }
}

#[test]
fn an_item_that_is_too_large_is_left_out_before_it_is_read() {
    let long = "x".repeat(mcp_protocol::client::MAX_ITEM_BYTES);
    let tool = |name: &str, text: &str| {
        format!(r#"{{"description":"{text}","name":"{name}","inputSchema":{{"type":"object"}}}}"#)
    };
    let text = format!(
        r#"{{"tools":[{},{}]}}"#,
        tool("long", &long),
        tool("short", "x")
    );
    let result = RawJson::from_bytes(text.clone().into()).unwrap();
    let read = decode_result(V2025_11_25, Method::ListTools, &result).unwrap();
    let Answer::ListTools(page) = read.answer else {
        panic!("{:?}", read.answer);
    };
    let names: Vec<_> = page.tools.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["short"]);
    assert_eq!(read.bytes, text.len());
    let [left_out] = read.left_out.as_slice() else {
        panic!("{:?}", read.left_out);
    };
    assert_eq!((left_out.name.as_deref(), left_out.at), (Some("long"), 1));
    assert!(left_out.why.contains("at most 1048576"), "{left_out}");
}
