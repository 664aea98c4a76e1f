use super::*;
use crate::{Content, ToolSet};
use bytes::Bytes;
use proptest::prelude::*;
use serde::Serialize;
use serde_json::json;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
    mpsc,
};

#[derive(Deserialize, JsonSchema)]
struct Order {
    /// Item to order.
    item: Item,
    #[serde(default)]
    #[schemars(range(min = 1))]
    count: Option<u32>,
}

#[derive(Clone, Serialize, Deserialize, JsonSchema)]
struct Item {
    name: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
#[expect(dead_code, reason = "only its schema is looked at")]
enum Shape {
    Circle { radius: f64 },
    Square { side: f64 },
}

async fn run(tool: &Tool, raw: &'static str) -> Result<ToolOutput, ToolError> {
    let arguments = tool
        .check(Bytes::from_static(raw.as_bytes()))
        .expect("they fit");
    tool.execute(ToolCx::new("anna", "1"), arguments).await
}

#[test]
fn the_schema_is_one_piece_with_comments_as_descriptions() {
    let tool = Tool::native("order", |_cx, order: Order| async move { Ok(order.item) });
    let schema = tool.input_schema();
    assert_eq!(schema["type"], "object");
    assert_eq!(
        schema["properties"]["item"]["description"],
        "Item to order."
    );
    assert_eq!(
        schema["properties"]["item"]["properties"]["name"]["type"],
        "string"
    );
    assert_eq!(schema["required"], json!(["item"]));
    assert!(schema.get("$schema").is_none() && schema.get("$defs").is_none());
    assert_eq!(tool.output_schema().unwrap()["required"], json!(["name"]));
    ToolSet::new([tool]).unwrap();
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Maybe {
    count: Option<u32>,
    many: Vec<Option<String>>,
}

#[test]
fn an_option_is_a_choice_and_no_list_of_types() {
    let tool = Tool::native("maybe", |_cx, it: Maybe| async move { Ok(it) });
    for schema in [tool.input_schema(), tool.output_schema().unwrap()] {
        let count = json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]});
        assert_eq!(schema["properties"]["count"], count);
        assert_eq!(
            schema["properties"]["many"]["items"],
            json!({"anyOf": [{"type": "string"}, {"type": "null"}]})
        );
        let text = schema.to_string();
        assert!(
            !text.contains("nullable") && !text.contains("\"type\":["),
            "{text}"
        );
    }
}

#[test]
fn conditions_see_arguments_without_nulls_that_count_as_left_out() {
    let schema = json!({"type": "object", "properties": {"limit": {"type": "integer"}, "x": {}}});
    let tool = Tool::new("pay", schema, Counting(Arc::default()));
    let rows = [
        (r#"{"limit":null,"x":1}"#, Some(r#"{"x":1}"#)),
        (r#"{"x":null}"#, None),
        (r#"{"x":"null"}"#, None),
        (r#"{"limit":1}"#, None),
        // It does not fit either way.
        (r#"{"limit":"null"}"#, None),
    ];
    for (sent, taken) in rows {
        assert_eq!(tool.without_nulls(sent).as_deref(), taken, "{sent}");
    }
}

#[test]
fn arguments_in_the_name_of_the_parameter_that_gets_them_all_are_the_arguments() {
    let tool = |schema| Tool::new("pay", schema, Counting(Arc::default())).with_whole("session");
    let open = tool(json!({"type": "object"}));
    let meant = |tool: &Tool, sent: &str| tool.unwrapped(sent).map(|it| it.get().to_owned());
    assert_eq!(
        meant(&open, r#"{"s\u0065ssion": {"amount":11.0}}"#).as_deref(),
        Some(r#"{"amount":11.0}"#)
    );
    for (sent, is_right) in [
        (r#"{"amount":11}"#, true),
        (r#"{"sessions":{"amount":11}}"#, true),
        (r#"{"session":11}"#, false),
        (r#"{"session":{"amount":11},"amount":1}"#, false),
        (r#"{"session":{},"session":{"amount":11}}"#, false),
    ] {
        assert_eq!(meant(&open, sent), None, "{sent}");
        assert_eq!(open.check(Bytes::from(sent)).is_ok(), is_right, "{sent}");
    }
    // The rest of what is wrapped twice is refused, whoever lets it come so far.
    for sent in [r#"{"session":{"session":{}}}"#, r#"{"s\u0065ssion":{}}"#] {
        let refused = open.check(Bytes::from(sent)).unwrap_err();
        assert_eq!(
            refused.violations()[0].to_string(),
            "/session: is no argument: it stands for all of them; give its members themselves"
        );
    }
    // An argument like any other, once the schema names it.
    let named = json!({"type": "object", "properties": {"session": {"type": "object"}}});
    let within = json!({"type": "object", "anyOf": [named, {"required": ["amount"]}]});
    for tool in [tool(named), tool(within)] {
        let sent = r#"{"session":{"amount":11}}"#;
        assert_eq!(meant(&tool, sent), None);
        assert!(tool.check(Bytes::from(sent)).is_ok());
    }
}

#[test]
fn a_parameter_has_only_those_of_its_names_that_the_schema_has() {
    let schema = json!({"type": "object", "properties": {"from": {}}});
    let tool = Tool::new("move", schema, Counting(Arc::default()));
    let tool = tool.with_aliased(vec!["from_".to_owned(), "from".to_owned()]);
    assert!(tool.check(Bytes::from(r#"{"from":1}"#)).is_ok());
    for sent in [r#"{"from_":1}"#, r#"{"from":1,"from_":2}"#] {
        let refused = tool.check(Bytes::from(sent)).unwrap_err();
        assert_eq!(refused.violations()[0].pointer(), "/from_", "{sent}");
    }
}

#[derive(Serialize, Deserialize, JsonSchema)]
struct Branch {
    name: String,
    #[serde(default)]
    branches: Vec<Branch>,
}

#[tokio::test]
async fn a_type_that_contains_itself_has_a_schema_that_does() {
    let tool = Tool::native("prune", |_cx, tree: Branch| async move { Ok(tree) });
    let (set, problems) = ToolSet::collect([tool]);
    assert_eq!(problems, []);
    let tool = set.get("prune").unwrap();
    let output = run(tool, r#"{"name": "a", "branches": [{"name": "b"}]}"#)
        .await
        .unwrap();
    assert_eq!(
        output.structured.unwrap().get(),
        r#"{"name":"a","branches":[{"name":"b","branches":[]}]}"#
    );
    let wrong = br#"{"name": "a", "branches": [{"name": "b", "branches": [{"name": 7}]}]}"#;
    let refused = tool.check(Bytes::from_static(wrong)).unwrap_err();
    assert_eq!(
        refused.violations()[0].to_string(),
        "/branches/0/branches/0/name: expected string, found number 7"
    );
}

#[test]
fn only_answers_that_are_always_objects_promise_a_schema() {
    let text = Tool::native("text", |_cx, _: NoArguments| async { Ok("x") });
    assert!(text.output_schema().is_none());
    let blocks = Tool::native("blocks", |_cx, _: NoArguments| async {
        Ok(ToolOutput::default())
    });
    assert!(blocks.output_schema().is_none());
}

#[test]
fn an_enum_of_structs_is_an_object() {
    let tool = Tool::native("area", |_cx, _: Shape| async { Ok(1.0) });
    assert_eq!(tool.input_schema()["type"], "object");
    assert!(
        tool.check(Bytes::from_static(br#"{"kind": "circle", "radius": 1}"#))
            .is_ok()
    );
    assert!(
        tool.check(Bytes::from_static(br#"{"kind": "circle", "side": 1}"#))
            .is_err()
    );
}

#[test]
fn what_takes_something_else_than_an_object_cannot_be_offered() {
    let tool = Tool::native("number", |_cx, _: u32| async { Ok(1) });
    assert!(ToolSet::new([tool]).is_err());
}

#[tokio::test]
async fn an_object_is_answered_in_both_forms() {
    let tool = Tool::native("order", |_cx, order: Order| async move {
        assert_eq!(order.count, None);
        Ok(order.item)
    });
    let output = run(&tool, r#"{"item": {"name": "tea"}}"#).await.unwrap();
    assert_eq!(output.content, [Content::text(r#"{"name":"tea"}"#)]);
    assert_eq!(output.structured.unwrap().get(), r#"{"name":"tea"}"#);
}

#[tokio::test]
async fn what_the_types_refuse_though_the_schema_does_not_is_rejected() {
    let tool = Tool::native("order", |_cx, order: Order| async move { Ok(order.item) });
    // 1.0 is an integer to JSON Schema.
    let error = run(&tool, r#"{"item": {"name": "tea"}, "count": 1.0}"#)
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Rejected(_)), "{error}");
}

#[tokio::test]
async fn arguments_that_another_tool_checked_are_not_taken() {
    let strict = Tool::native("order", |_cx, order: Order| async move { Ok(order.item) });
    let lax = Tool::native("none", |_cx, _: NoArguments| async { Ok(1) });
    let arguments = lax.check(Bytes::new()).unwrap();
    let error = strict
        .execute(ToolCx::new("anna", "1"), arguments)
        .await
        .unwrap_err();
    assert!(matches!(error, ToolError::Broken(_)), "{error}");
}

#[tokio::test]
async fn an_answer_that_breaks_its_promise_is_the_tools_failure() {
    let promise = json!({"type": "object", "required": ["id"]});
    let tool = Tool::native("item", |_cx, order: Order| async move { Ok(order.item) })
        .with_output_schema(promise.clone());
    let error = run(&tool, r#"{"item": {"name": "tea"}}"#)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains(r#"expected the member "id""#),
        "{error}"
    );
    let none =
        Tool::native("none", |_cx, _: NoArguments| async { Ok(1) }).with_output_schema(promise);
    let error = run(&none, "{}").await.unwrap_err();
    assert!(error.to_string().contains("promises an object"), "{error}");
}

#[tokio::test]
async fn a_blocking_function_does_not_hold_up_the_runtime() {
    let (release, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let tool = Tool::native_blocking("wait", move |_cx, _: NoArguments| {
        held.lock().unwrap().recv().map_err(ToolError::broken)?;
        Ok("done")
    });
    // On a runtime of one thread: the other half runs only if the function does not block it.
    let (output, ()) = tokio::join!(run(&tool, "{}"), async move { release.send(()).unwrap() });
    assert_eq!(output.unwrap().content, [Content::text("done")]);
}

#[tokio::test]
async fn a_blocking_function_can_see_that_it_was_given_up() {
    let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
    let (seen, mut was_seen) = tokio::sync::mpsc::unbounded_channel();
    let tool = Tool::native_blocking("wait", move |cx: ToolCx, _: NoArguments| {
        begun.send(()).map_err(ToolError::broken)?;
        while !cx.is_cancelled() {
            std::thread::yield_now();
        }
        seen.send(()).map_err(ToolError::broken)?;
        Ok(())
    });
    tokio::select! {
        _ = run(&tool, "{}") => panic!("it waits to be given up"),
        _ = has_begun.recv() => {}
    }
    was_seen.recv().await.expect("it saw that it was given up");
}

/// JSON values of all kinds, small ones more often.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3i64..4).prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has only finite numbers", |n| n.is_finite())
            .prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-c]", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Schemas over the same few names, together with an own reading of what they mean.
fn any_schema() -> impl Strategy<Value = Value> {
    let kind = || {
        prop::sample::select(vec![
            "string", "integer", "number", "boolean", "null", "array", "object",
        ])
    };
    let member = (kind(), kind(), any::<bool>()).prop_map(|(kind, items, nullable)| {
        let kind = if nullable {
            json!([kind, "null"])
        } else {
            json!(kind)
        };
        json!({"type": kind, "items": {"type": items}})
    });
    // An array in `type` must not name a type twice.
    let member = member.prop_map(|mut member| {
        if member["type"] == json!(["null", "null"]) {
            member["type"] = json!("null");
        }
        member
    });
    let members = prop::collection::btree_map("[a-c]", member, 0..3);
    let required = prop::collection::btree_set("[a-c]", 0..2);
    (members, required, any::<bool>()).prop_map(|(members, required, open)| {
        json!({"type": "object", "properties": members, "required": required,
               "additionalProperties": open})
    })
}

/// Meaning of the schemas above, read off independently of the validator.
fn fits(schema: &Value, value: &Value) -> bool {
    let is = |kind: &str| match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.as_f64().is_some_and(|n| n.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    let fits_kind = match &schema["type"] {
        Value::String(kind) => is(kind),
        Value::Array(kinds) => kinds.iter().any(|kind| is(kind.as_str().unwrap())),
        _ => true,
    };
    let fits_items = match (value.as_array(), schema.get("items")) {
        (Some(items), Some(schema)) => items.iter().all(|item| fits(schema, item)),
        _ => true,
    };
    let fits_members = match (value.as_object(), schema["properties"].as_object()) {
        (Some(object), Some(known)) => {
            let required = schema["required"].as_array().unwrap();
            let open = schema["additionalProperties"] == true;
            required
                .iter()
                .all(|name| object.contains_key(name.as_str().unwrap()))
                && object.iter().all(|(name, value)| match known.get(name) {
                    // Null for an optional member counts as left out.
                    Some(schema) => {
                        fits(schema, value)
                            || (value.is_null() && !required.iter().any(|it| it == name))
                    }
                    None => open,
                })
        }
        _ => true,
    };
    fits_kind && fits_items && fits_members
}

struct Counting(Arc<AtomicUsize>);

impl Executor for Counting {
    fn execute<'a>(
        &'a self,
        _cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { Ok(Value::Object(arguments.as_object().clone()).into()) })
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// For any schema and any arguments, the executor runs if they fit, and only then.
    #[test]
    fn no_executor_sees_arguments_that_do_not_fit(
        schema in any_schema(),
        (value, is_object) in prop_oneof![
            1 => any_json().prop_map(|value| (value.clone(), value.is_object())),
            3 => prop::collection::btree_map("[a-c]", any_json(), 0..4)
                .prop_map(|members| (Value::Object(members.into_iter().collect()), true)),
        ],
    ) {
        let runs = Arc::new(AtomicUsize::new(0));
        let tool = Tool::new("any", schema.clone(), Counting(Arc::clone(&runs)));
        let should_run = is_object && fits(&schema, &value);
        let checked = tool.check(Bytes::from(value.to_string()));
        prop_assert_eq!(checked.is_ok(), should_run, "{} {}", schema, value);
        match checked {
            Ok(arguments) => {
                let call = tool.execute(ToolCx::new("anna", "1"), arguments);
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                prop_assert!(runtime.block_on(call).is_ok());
            }
            Err(refused) => {
                prop_assert!(!refused.violations().is_empty());
                prop_assert!(refused.violations().len() <= InvalidArguments::MAX_VIOLATIONS);
            }
        }
        prop_assert_eq!(runs.load(Ordering::SeqCst), usize::from(should_run));
    }

    /// No bytes whatsoever make a check panic.
    #[test]
    fn any_bytes_are_answered(raw in prop::collection::vec(any::<u8>(), 0..200)) {
        let tool = Tool::new("any", json!({"type": "object"}), Counting(Arc::default()));
        let _ = tool.check(Bytes::from(raw));
    }
}
