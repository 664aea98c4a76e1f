//! A house whose calls can be tasks, and tools that are made for it.

use crate::house::{Bench, Client, House, PRICE, Setup, now_us};
use adapter_tools::{Elicited, Needed, Question, TaskSupport, Tool, ToolCx, ToolError};
use mcp_server::{TaskOptions, Tasks};
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use task_store::{MemoryTaskStore, TaskStore};
use testkit::{GENEROUS, MODERN, succeeded, wait_until};

pub(crate) const EXTENSION: &str = "io.modelcontextprotocol/tasks";
pub(crate) const RELATED: &str = "io.modelcontextprotocol/related-task";
pub(crate) const LEGACY: &str = "2025-11-25";

/// Options under which no call becomes a task by itself, and no delay is needed.
pub(crate) fn options() -> TaskOptions {
    TaskOptions {
        after: Duration::from_secs(3_600),
        list: true,
        ..TaskOptions::default()
    }
}

pub(crate) async fn setup(options: TaskOptions) -> Setup {
    setup_over(Arc::new(MemoryTaskStore::default()), options).await
}

pub(crate) async fn setup_over(store: Arc<dyn TaskStore>, options: TaskOptions) -> Setup {
    let bench = Bench::new();
    Setup {
        tasks: Some(Tasks::open(store, options, now_us).await.unwrap()),
        more_tools: tools(&bench),
        bench,
        ..Setup::default()
    }
}

pub(crate) async fn house() -> House {
    setup(options()).await.build()
}

fn tools(bench: &Bench) -> Vec<Tool> {
    let integer = json!({ "type": "integer" });
    let micros = json!({ "micros": integer });
    let waiting = |name: &'static str, hands_over: bool| {
        let gate = bench.clone();
        bench
            .tool(name, micros.clone(), &[], move |cx: ToolCx, it| {
                let bench = gate.clone();
                async move {
                    cx.add_cost_micros(it.get("micros").and_then(Value::as_u64).unwrap_or(7));
                    if hands_over {
                        cx.continue_as_task();
                        cx.progress(1.0, None, Some("handed over".to_owned()));
                    }
                    let opened = bench.gate.notified();
                    bench.begun.add_permits(1);
                    opened.await;
                    cx.progress(2.0, None, Some("after the gate".to_owned()));
                    Ok("done".into())
                }
            })
            .with_estimated_cost_micros(PRICE)
    };
    let quick =
        |name: &'static str| bench.tool(name, json!({}), &[], |_, _| async { Ok("quick".into()) });
    vec![
        waiting("long", true),
        waiting("required", false).with_task_support(TaskSupport::Required),
        waiting("forbidden", true).with_task_support(TaskSupport::Forbidden),
        quick("quick"),
        quick("quick_required").with_task_support(TaskSupport::Required),
        bench.tool("job_failed", json!({}), &[], |cx: ToolCx, _| async move {
            hand_over(&cx).await;
            Err(ToolError::failed("the order is gone"))
        }),
        bench.tool("job_broken", json!({}), &[], |cx: ToolCx, _| async move {
            hand_over(&cx).await;
            Err(ToolError::broken("a secret of the operator"))
        }),
        bench.tool("job_panics", json!({}), &[], |cx: ToolCx, _| async move {
            hand_over(&cx).await;
            panic!("as asked")
        }),
        bench.tool("job_huge", json!({}), &[], |cx: ToolCx, _| async move {
            hand_over(&cx).await;
            Ok("x".repeat(17 * 1024 * 1024).into())
        }),
        bench.tool("confirm", json!({}), &[], |cx: ToolCx, _| async move {
            cx.continue_as_task();
            let asked = Needed::default().and("confirm", question("confirm"));
            match cx.answers().elicited("confirm", &asked) {
                Some(Elicited::Accepted(content)) => {
                    Ok(format!("confirmed {}", content["value"]).into())
                }
                Some(_) => Ok("declined".into()),
                None => Err(ToolError::NeedsInput(asked)),
            }
        }),
        bench.tool("twice", json!({}), &[], |cx: ToolCx, _| async move {
            cx.continue_as_task();
            let asked = Needed::default().and("key", question("first"));
            let answer = cx.answers().elicited("key", &asked);
            let before = cx.answers().state.clone();
            match (answer, before) {
                (Some(Elicited::Accepted(content)), Some(first)) => {
                    Ok(format!("{first} then {}", content["value"]).into())
                }
                (Some(Elicited::Accepted(content)), None) => Err(ToolError::NeedsInput(
                    Needed::default()
                        .and("key", question("second"))
                        .with_state(content["value"].clone()),
                )),
                _ => Err(ToolError::NeedsInput(asked)),
            }
        }),
        bench.tool("both", json!({}), &[], |cx: ToolCx, _| async move {
            cx.continue_as_task();
            let asked = Needed::default()
                .and("one", question("one"))
                .and("two", question("two"));
            match ["one", "two"].map(|key| cx.answers().elicited(key, &asked)) {
                [Some(Elicited::Accepted(one)), Some(Elicited::Accepted(two))] => {
                    Ok(format!("{} and {}", one["value"], two["value"]).into())
                }
                _ => Err(ToolError::NeedsInput(asked)),
            }
        }),
        bench.tool("name_first", json!({}), &[], |cx: ToolCx, _| async move {
            let asked = Needed::default().and("name", question("name"));
            let Some(Elicited::Accepted(content)) = cx.answers().elicited("name", &asked) else {
                return Err(ToolError::NeedsInput(asked));
            };
            hand_over(&cx).await;
            Ok(format!("worked for {}", content["value"]).into())
        }),
    ]
}

/// Has the caller wait no longer, and lets it be told so.
pub(crate) async fn hand_over(cx: &ToolCx) {
    cx.continue_as_task();
    tokio::task::yield_now().await;
}

fn question(name: &str) -> Question {
    Question::Form {
        message: format!("The {name} value?"),
        schema: json!({
            "type": "object",
            "properties": { "value": { "type": "string" } },
        })
        .into(),
    }
}

/// An answer to a form.
pub(crate) fn accept(value: &str) -> Value {
    json!({ "action": "accept", "content": { "value": value } })
}

/// Capabilities of a client that knows tasks and can be asked.
pub(crate) fn knows_tasks() -> Value {
    json!({ "elicitation": {}, "extensions": { EXTENSION: {} } })
}

/// A client of the modern revision that knows tasks.
pub(crate) async fn modern(house: &House, principal: &str) -> Client {
    let mut client = house.join(principal, Duration::ZERO);
    client.voice.capabilities = knows_tasks();
    client.open(MODERN).await;
    client
}

/// A client of 2025-11-25 that can be asked.
pub(crate) async fn legacy(house: &House, principal: &str) -> Client {
    let mut client = house.join(principal, Duration::ZERO);
    client.voice.capabilities = json!({ "elicitation": {} });
    client.open(LEGACY).await;
    client
}

/// The id of a task that a call was answered with, in either form.
pub(crate) fn created(answer: &Value) -> String {
    let result = &answer["result"];
    let task = result.get("task").unwrap_or(result);
    let id = task["taskId"].as_str();
    id.unwrap_or_else(|| panic!("not a task: {answer}"))
        .to_owned()
}

/// Begins a task of a tool without arguments; its id.
pub(crate) async fn begin(client: &mut Client, tool: &str) -> String {
    let answer = if client.voice.is_modern() {
        let params = json!({ "name": tool, "arguments": {} });
        ask(client, "tools/call", params).await
    } else {
        begin_with(client, tool, json!({})).await
    };
    created(&answer)
}

/// The answer to a call of 2025-11-25 that is to be a task.
pub(crate) async fn begin_with(client: &mut Client, tool: &str, task: Value) -> Value {
    let params = json!({ "name": tool, "arguments": {}, "task": task });
    ask(client, "tools/call", params).await
}

/// The response to a request; what comes before it stays to be received.
pub(crate) async fn ask(client: &mut Client, method: &str, params: Value) -> Value {
    let request = client.begin(method, params).await;
    client.receive_answer(&request).await
}

pub(crate) async fn about(client: &mut Client, method: &str, id: &str) -> Value {
    ask(client, method, json!({ "taskId": id })).await
}

/// A task as it is now.
pub(crate) async fn get(client: &mut Client, id: &str) -> Value {
    let answer = about(client, "tasks/get", id).await;
    assert!(succeeded(&answer), "{answer}");
    answer["result"].clone()
}

/// A task once its status is `status`.
pub(crate) async fn reaches(client: &mut Client, id: &str, status: &str) -> Value {
    let end = tokio::time::Instant::now() + GENEROUS;
    loop {
        let task = get(client, id).await;
        if task["status"] == status {
            return task;
        }
        assert!(tokio::time::Instant::now() < end, "not {status}: {task}");
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn update(client: &mut Client, id: &str, responses: Value) -> Value {
    let params = json!({ "taskId": id, "inputResponses": responses });
    ask(client, "tasks/update", params).await
}

/// Keys of a task's questions.
pub(crate) fn asked(task: &Value) -> Vec<&str> {
    let requests = task["inputRequests"].as_object().expect("it asks");
    requests.keys().map(String::as_str).collect()
}

/// Until no task runs and every call has let go.
pub(crate) async fn idle(house: &House) {
    let tasks = house.mcp_server.tasks().unwrap();
    wait_until("no task runs", GENEROUS, || tasks.running() == 0).await;
    assert_eq!(house.mcp_server.engine().in_flight(), 0);
}

/// The text of a tool's result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().expect("a text")
}

/// The calls of tools in the ledger.
pub(crate) async fn calls(house: &House) -> Vec<crate::house::Call> {
    let mut record = house.record().await;
    record.retain(|call| call.started.method == "tools/call");
    record
}
