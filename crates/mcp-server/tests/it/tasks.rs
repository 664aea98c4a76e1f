//! Calls that become tasks, as clients of 2026-07-28 see them.

use crate::{
    house::{Client, House, Setup, policy},
    tasks_house::{
        EXTENSION, about, accept, asked, begin, calls, created, get, house, idle, knows_tasks,
        modern, options, reaches, setup, text, update,
    },
};
use adapter_tools::ToolCx;
use governance::{Micros, Policy, Quota, Rules};
use ledger::Outcome;
use mcp_server::TaskOptions;
use serde_json::{Value, json};
use std::time::Duration;
use task_store::{TaskLimits, TaskState};
use testkit::{GENEROUS, MODERN, failure_of, wait_until};

/// `-32021`, for want of the extension.
fn is_missing_tasks(answer: &Value) {
    let error = &answer["error"];
    assert_eq!(error["code"], -32021, "{answer}");
    let required = json!({ "extensions": { EXTENSION: {} } });
    assert_eq!(error["data"]["requiredCapabilities"], required);
}

fn hiding(tool: &str) -> governance::PolicySpec {
    policy(Rules {
        hidden: vec![format!("tool/{tool}")],
        ..Rules::default()
    })
}

#[tokio::test]
async fn a_quick_call_is_answered_by_its_result() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    for tool in ["quick", "quick_required"] {
        let answer = client.call(tool, json!({})).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        assert_eq!(text(&answer["result"]), "quick");
    }
    idle(&house).await;
}

#[tokio::test]
async fn a_call_that_hands_over_is_a_task_with_the_same_result() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let answer = client.call("long", json!({})).await;
    assert_eq!(answer["result"]["resultType"], "task", "{answer}");
    assert_eq!(answer["result"]["status"], "working");
    assert!(answer["result"].get("task").is_none());
    let id = created(&answer);
    house.bench.begun().await;
    let task = get(&mut client, &id).await;
    assert_eq!(task["resultType"], "complete");
    assert_eq!(task["status"], "working");
    assert_eq!(task["pollIntervalMs"], 500);
    assert_eq!(task["ttlMs"], (300 + 3_600) * 1_000);
    assert!(task.get("result").is_none());
    house.bench.gate.notify_waiters();
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&task["result"]), "done");
    assert_eq!(task["result"]["isError"], Value::Null);
    idle(&house).await;
    let calls = calls(&house).await;
    assert_eq!(calls.len(), 1);
    assert_eq!(calls[0].ended.outcome, Outcome::Succeeded);
    assert_eq!(calls[0].ended.cost_micros, 7);
}

#[tokio::test]
async fn a_long_call_becomes_a_task_by_itself_for_those_who_know_tasks_in_that_very_request() {
    let options = TaskOptions {
        after: Duration::ZERO,
        ..options()
    };
    let house = setup(options).await.build();
    let mut client = modern(&house, "anna").await;
    let answer = client.call("wait", json!({})).await;
    let id = created(&answer);
    house.bench.begun().await;
    house.bench.gate.notify_waiters();
    reaches(&mut client, &id, "completed").await;

    client.voice.capabilities = json!({});
    for tool in ["wait", "long"] {
        let waiting = client.begin_call(tool, json!({})).await;
        house.bench.begun().await;
        let early = client.settle().await;
        assert!(early.is_empty(), "it does not wait: {early:?}");
        house.bench.gate.notify_waiters();
        let answer = client.receive_answer(&waiting).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    }
    // And never a tool that does not have it, whoever calls.
    client.voice.capabilities = knows_tasks();
    let waiting = client.begin_call("forbidden", json!({})).await;
    house.bench.begun().await;
    assert!(client.settle().await.is_empty());
    house.bench.gate.notify_waiters();
    let answer = client.receive_answer(&waiting).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    idle(&house).await;
}

#[tokio::test]
async fn what_needs_tasks_says_so_to_those_who_do_not_know_them() {
    let house = house().await;
    let mut client = house.connect("anna", MODERN).await;
    is_missing_tasks(&client.call("required", json!({})).await);
    for method in ["tasks/get", "tasks/cancel"] {
        is_missing_tasks(&about(&mut client, method, "x").await);
    }
    is_missing_tasks(&update(&mut client, "x", json!({})).await);
    let listen = json!({ "notifications": { "taskIds": ["x"] } });
    is_missing_tasks(&client.ask("subscriptions/listen", listen).await);
    assert_eq!(house.bench.runs(), 0);
    assert!(house.mcp_server.engine().subscriptions().is_empty());
    let record = calls(&house).await;
    assert_eq!(record.len(), 1);
    assert_eq!(record[0].reason(), Some("task_required"));
    assert_eq!(record[0].started.capability, "tool/required");
    // Asking to hear of no task in particular needs no tasks.
    let listen = json!({ "notifications": { "toolsListChanged": true } });
    client.begin("subscriptions/listen", listen).await;
    let acknowledged = client.receive().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
}

#[tokio::test]
async fn a_hidden_tool_is_unknown_whether_or_not_it_needs_tasks() {
    let house = Setup {
        policy: hiding("required"),
        ..setup(options()).await
    }
    .build();
    for capabilities in [json!({}), knows_tasks()] {
        let mut client = house.connect("anna", MODERN).await;
        client.voice.capabilities = capabilities;
        let hidden = client.call("required", json!({})).await["error"].to_string();
        let unknown = client.call("nothing_", json!({})).await["error"].to_string();
        assert_eq!(hidden, unknown.replace("nothing_", "required"));
    }
    assert_eq!(house.bench.runs(), 0);
}

#[tokio::test]
async fn the_methods_of_the_older_tasks_do_not_exist_and_its_parameter_means_nothing() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    for method in ["tasks/result", "tasks/list"] {
        assert_eq!(
            about(&mut client, method, &id).await["error"]["code"],
            -32601
        );
    }
    for task in [json!({ "ttl": 1 }), json!(7)] {
        let params = json!({ "name": "quick", "arguments": {}, "task": task });
        let answer = client.ask("tools/call", params).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    }
}

#[tokio::test]
async fn questions_before_the_task_are_asked_by_a_result() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let params = json!({ "name": "name_first", "arguments": {} });
    let answer = client.ask("tools/call", params.clone()).await;
    assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
    assert_eq!(asked(&answer["result"]), ["name"]);
    let mut again = params;
    again["inputResponses"] = json!({ "name": accept("Bo") });
    if let Some(state) = answer["result"].get("requestState") {
        again["requestState"] = state.clone();
    }
    let answer = client.ask("tools/call", again).await;
    let id = created(&answer);
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&task["result"]), "worked for \"Bo\"");
    assert_eq!(calls(&house).await.len(), 2);
}

#[tokio::test]
async fn an_operator_sees_that_a_task_waits_for_answers_and_not_what_it_asks() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "both").await;
    reaches(&mut client, &id, "input_required").await;
    let tasks = house.mcp_server.tasks().unwrap();
    let seen = async || {
        let mut all = tasks.oversee(None, 10).await.unwrap();
        assert_eq!(all.len(), 1, "{all:?}");
        let task = all.remove(0);
        (task.record.state.clone(), task.run.is_some())
    };
    let requests = String::new();
    assert_eq!(seen().await, (TaskState::InputRequired { requests }, true));
    let answers = json!({ "one": accept("a"), "two": accept("b") });
    update(&mut client, &id, answers).await;
    reaches(&mut client, &id, "completed").await;
    idle(&house).await;
    let (state, is_carried_out) = seen().await;
    assert_eq!((state.name(), is_carried_out), ("completed", false));
}

#[tokio::test]
async fn a_task_asks_and_takes_answers_bit_by_bit() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "both").await;
    let task = reaches(&mut client, &id, "input_required").await;
    assert_eq!(asked(&task), ["one", "two"]);
    assert_eq!(task["inputRequests"]["one"]["method"], "elicitation/create");

    for nothing in [
        json!({}),
        json!({ "three": accept("x"), "One": accept("x") }),
    ] {
        let answer = update(&mut client, &id, nothing).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        assert_eq!(get(&mut client, &id).await, task, "nothing has changed");
    }
    update(&mut client, &id, json!({ "one": accept("a") })).await;
    let task = get(&mut client, &id).await;
    assert_eq!(task["status"], "input_required");
    assert_eq!(asked(&task), ["two"]);
    // The one that was answered is answered.
    let more = json!({ "one": accept("changed"), "two": accept("b") });
    update(&mut client, &id, more).await;
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&task["result"]), r#""a" and "b""#);
    // And answers to what is over are answers to nothing.
    let late = update(&mut client, &id, json!({ "two": accept("c") })).await;
    assert_eq!(late["result"]["resultType"], "complete", "{late}");
    assert_eq!(get(&mut client, &id).await, task);
    // Each time it was called is a call, and what a client does to a task is on record too.
    let record = house.record().await;
    let methods: Vec<_> = record.iter().map(|it| it.started.method.as_str()).collect();
    let updates = methods.iter().filter(|it| **it == "tasks/update").count();
    assert_eq!(updates, 5);
    assert_eq!(methods.iter().filter(|it| **it == "tools/call").count(), 2);
    let about_it = record.iter().find(|it| it.started.method == "tasks/update");
    assert_eq!(about_it.unwrap().started.capability, "task/both");
}

#[tokio::test]
async fn a_key_is_used_once_and_answers_of_an_earlier_round_mean_nothing() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "twice").await;
    let first = reaches(&mut client, &id, "input_required").await;
    assert_eq!(asked(&first), ["key"]);
    update(&mut client, &id, json!({ "key": accept("a") })).await;
    let second = reaches(&mut client, &id, "input_required").await;
    assert_eq!(asked(&second).len(), 1);
    let key = asked(&second)[0].to_owned();
    assert_ne!(key, "key");
    update(&mut client, &id, json!({ "key": accept("replayed") })).await;
    assert_eq!(get(&mut client, &id).await, second);
    update(&mut client, &id, json!({ &key: accept("b") })).await;
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&task["result"]), r#""a" then "b""#);
}

#[tokio::test]
async fn more_answers_than_a_task_holds_are_refused_and_none_is_taken() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "both").await;
    let task = reaches(&mut client, &id, "input_required").await;
    let half = "x".repeat(2_100_000);
    update(&mut client, &id, json!({ "one": accept(&half) })).await;
    let answer = update(&mut client, &id, json!({ "two": accept(&half) })).await;
    assert_eq!(answer["error"]["code"], -32602, "{}", answer["error"]);
    assert_eq!(asked(&get(&mut client, &id).await), ["two"]);
    assert_eq!(asked(&task), ["one", "two"]);
    update(&mut client, &id, json!({ "two": accept("b") })).await;
    reaches(&mut client, &id, "completed").await;
}

#[tokio::test]
async fn a_cancelled_task_is_a_cancelled_call() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    for _ in 0..3 {
        let answer = about(&mut client, "tasks/cancel", &id).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        assert_eq!(get(&mut client, &id).await["status"], "cancelled");
    }
    house.bench.gate.notify_waiters();
    idle(&house).await;
    assert_eq!(get(&mut client, &id).await["status"], "cancelled");
    let record = calls(&house).await;
    assert_eq!(record.len(), 1);
    assert_eq!(record[0].ended.outcome, Outcome::Cancelled);

    // As for any other cancelled call.
    let mut other = house.connect("bert", MODERN).await;
    let call = other.begin_call("long", json!({})).await;
    house.bench.begun().await;
    other.cancel(&call).await;
    other.settle().await;
    let record = calls(&house).await;
    let (task, call) = (&record[0].ended, &record[1].ended);
    assert_eq!(
        (task.cost_micros, &task.outcome),
        (call.cost_micros, &call.outcome)
    );
    let (anna, bert) = (house.usage_of("anna").await, house.usage_of("bert").await);
    assert_eq!(anna.unwrap().spent, bert.unwrap().spent);
}

#[tokio::test]
async fn cancelling_a_task_that_is_over_or_that_asks_is_acknowledged() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let over = begin(&mut client, "job_failed").await;
    let task = reaches(&mut client, &over, "completed").await;
    let answer = about(&mut client, "tasks/cancel", &over).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(get(&mut client, &over).await, task);

    let asks = begin(&mut client, "both").await;
    reaches(&mut client, &asks, "input_required").await;
    about(&mut client, "tasks/cancel", &asks).await;
    let task = get(&mut client, &asks).await;
    assert_eq!(task["status"], "cancelled");
    assert!(task.get("inputRequests").is_none());
    update(
        &mut client,
        &asks,
        json!({ "one": accept("a"), "two": accept("b") }),
    )
    .await;
    assert_eq!(get(&mut client, &asks).await, task);
    idle(&house).await;
}

#[tokio::test]
async fn a_tool_that_fails_has_completed_and_what_has_no_result_has_failed() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "job_failed").await;
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(task["result"]["isError"], true);
    assert!(text(&task["result"]).contains("the order is gone"));
    assert!(task.get("error").is_none());

    let id = begin(&mut client, "job_panics").await;
    let task = reaches(&mut client, &id, "failed").await;
    assert_eq!(task["error"]["code"], -32603, "{task}");
    assert!(task["error"]["message"].is_string());
    assert_eq!(task["statusMessage"], task["error"]["message"]);
    assert!(task.get("result").is_none());
    let record = calls(&house).await;
    assert_eq!(record[1].ended.outcome, Outcome::Failed);
    assert_eq!(
        record[1].ended.message.as_deref(),
        Some("the handler panicked")
    );
    idle(&house).await;
}

/// A task has the result that the call itself would have been answered with.
#[tokio::test]
async fn what_comes_of_a_task_is_the_answer_to_the_call() {
    let house = house().await;
    let mut knows = modern(&house, "anna").await;
    let mut waits = house.connect("anna", MODERN).await;
    for tool in ["job_failed", "job_broken", "job_panics"] {
        let id = begin(&mut knows, tool).await;
        let answer = waits.call(tool, json!({})).await;
        let over = if answer.get("result").is_some() {
            "completed"
        } else {
            "failed"
        };
        let task = reaches(&mut knows, &id, over).await;
        assert_eq!(task.get("error"), answer.get("error"), "{tool}");
        assert_eq!(task.get("result"), answer.get("result"), "{tool}");
        assert!(!task.to_string().contains("a secret of the operator"));
    }
}

#[tokio::test]
async fn a_result_that_is_too_large_to_be_kept_is_a_failure_and_no_silence() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "job_huge").await;
    let task = reaches(&mut client, &id, "failed").await;
    assert_eq!(task["error"]["code"], -32603);
    assert!(
        task["statusMessage"]
            .as_str()
            .unwrap()
            .contains("too large"),
        "{task}"
    );
    idle(&house).await;
}

#[tokio::test]
async fn tasks_that_are_not_there_are_not_there_word_for_word() {
    let house = house().await;
    let mut anna = modern(&house, "anna").await;
    let mut bert = modern(&house, "bert").await;
    let ended = begin(&mut anna, "job_failed").await;
    reaches(&mut anna, &ended, "completed").await;
    let running = begin(&mut anna, "long").await;
    let never = "A".repeat(43);
    let mut said = Vec::new();
    for id in [&ended, &running, &never, &String::new(), &"é".repeat(50)] {
        for method in ["tasks/get", "tasks/cancel"] {
            said.push(about(&mut bert, method, id).await["error"].to_string());
        }
        said.push(update(&mut bert, id, json!({})).await["error"].to_string());
    }
    // Not even cancelled.
    assert_eq!(get(&mut anna, &running).await["status"], "working");
    crate::house::pass(Duration::from_secs(3_901));
    for id in [&ended, &running] {
        for method in ["tasks/get", "tasks/cancel"] {
            said.push(about(&mut anna, method, id).await["error"].to_string());
        }
        said.push(update(&mut anna, id, json!({})).await["error"].to_string());
    }
    assert!(said[0].contains("-32602"), "{}", said[0]);
    said.dedup();
    assert_eq!(said.len(), 1, "{said:?}");
}

/// Until a policy that hides a tool is replaced, its tasks are hidden too.
#[tokio::test]
async fn whoever_may_no_longer_see_a_tool_sees_no_task_of_it() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let over = begin(&mut client, "job_failed").await;
    reaches(&mut client, &over, "completed").await;
    let running = begin(&mut client, "long").await;
    house.bench.begun().await;
    let listening = listen(&mut client, &[&running]).await;
    assert_eq!(changed(&mut client, &listening).await["status"], "working");
    for tool in ["job_failed", "long"] {
        house
            .mcp_server
            .replace_policy(Policy::new(hiding(tool)).unwrap());
        let id = if tool == "long" { &running } else { &over };
        let answer = about(&mut client, "tasks/get", id).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    house.bench.gate.notify_waiters();
    idle(&house).await;
    let rest = client.settle().await;
    assert!(
        rest.is_empty(),
        "it is told of what it may not see: {rest:?}"
    );
    let open = policy(Rules::default());
    house.mcp_server.replace_policy(Policy::new(open).unwrap());
    assert_eq!(get(&mut client, &running).await["status"], "completed");
}

/// Begins to listen to tasks, which the server agrees to.
async fn listen(client: &mut Client, ids: &[&str]) -> Value {
    let params = json!({ "notifications": { "taskIds": ids } });
    let id = client.begin("subscriptions/listen", params).await;
    let acknowledged = client.receive().await;
    assert_eq!(
        acknowledged["method"],
        "notifications/subscriptions/acknowledged"
    );
    let agreed = &acknowledged["params"]["notifications"]["taskIds"];
    assert_eq!(*agreed, json!(ids), "{acknowledged}");
    id
}

/// The next change of a task that is told of.
async fn changed(client: &mut Client, listening: &Value) -> Value {
    let mut message = client.receive().await;
    assert_eq!(message["method"], "notifications/tasks", "{message}");
    let params = message["params"].as_object_mut().unwrap();
    let meta = params.remove("_meta").unwrap();
    assert_eq!(meta["io.modelcontextprotocol/subscriptionId"], *listening);
    message["params"].take()
}

/// A task without what belongs to the answer it came in.
fn bare(mut task: Value) -> Value {
    let members = task.as_object_mut().unwrap();
    members.remove("_meta");
    members.remove("resultType");
    task
}

#[tokio::test]
async fn who_listens_is_told_of_the_present_and_then_of_every_change() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let mut ears = modern(&house, "anna").await;
    let mut others = modern(&house, "bert").await;
    let id = begin(&mut client, "both").await;
    reaches(&mut client, &id, "input_required").await;

    // Of all that is asked for, one is theirs; twice is once.
    let wanted = json!({ "notifications": { "taskIds": [id, "A".repeat(43), "x", id] } });
    let listening = ears.begin("subscriptions/listen", wanted.clone()).await;
    let acknowledged = ears.receive().await;
    assert_eq!(
        acknowledged["params"]["notifications"]["taskIds"],
        json!([id])
    );
    others.begin("subscriptions/listen", wanted).await;
    let acknowledged = others.receive().await;
    let agreed = &acknowledged["params"]["notifications"];
    assert!(
        agreed.get("taskIds").is_none_or(|ids| *ids == json!([])),
        "{agreed}"
    );

    let told = changed(&mut ears, &listening).await;
    assert_eq!(told, bare(get(&mut client, &id).await));
    update(&mut client, &id, json!({ "one": accept("a") })).await;
    let told = changed(&mut ears, &listening).await;
    assert_eq!(told, bare(get(&mut client, &id).await));
    assert_eq!(asked(&told), ["two"]);
    update(&mut client, &id, json!({ "two": accept("b") })).await;
    assert_eq!(changed(&mut ears, &listening).await["status"], "working");
    let told = changed(&mut ears, &listening).await;
    assert_eq!(told["status"], "completed");
    assert_eq!(told, bare(get(&mut client, &id).await));
    assert!(ears.settle().await.is_empty());
    assert!(others.settle().await.is_empty(), "others hear nothing");
    // Whoever comes late hears of the end.
    let late = listen(&mut ears, &[&id]).await;
    assert_eq!(changed(&mut ears, &late).await, told);
}

#[tokio::test]
async fn nothing_is_reported_of_a_call_once_it_is_a_task() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let params = json!({
        "name": "long", "arguments": {}, "_meta": { "progressToken": "p" },
    });
    let call = client.begin("tools/call", params).await;
    let report = client.receive().await;
    assert_eq!(report["method"], "notifications/progress", "{report}");
    let answer = client.receive_answer(&call).await;
    let id = created(&answer);
    let listening = listen(&mut client, &[&id]).await;
    changed(&mut client, &listening).await;
    house.bench.begun().await;
    house.bench.gate.notify_waiters();
    // It is said of the task.
    let said = changed(&mut client, &listening).await;
    assert_eq!(said["status"], "working");
    assert_eq!(said["statusMessage"], "after the gate");
    let over = changed(&mut client, &listening).await;
    assert_eq!(over["status"], "completed");
    assert!(over.get("statusMessage").is_none(), "{over}");
    assert!(client.settle().await.is_empty());
}

#[tokio::test]
async fn what_is_said_of_a_task_is_said_at_a_bearable_rate() {
    let bench = crate::house::Bench::new();
    let mut setup = setup(options()).await;
    let gate = setup.bench.clone();
    setup
        .more_tools
        .push(bench.tool("talks", json!({}), &[], move |cx: ToolCx, _| {
            let bench = gate.clone();
            async move {
                cx.continue_as_task();
                let opened = bench.gate.notified();
                bench.begun.add_permits(1);
                opened.await;
                for step in 0..1_000 {
                    cx.progress(f64::from(step), Some(1_000.0), None);
                    tokio::task::yield_now().await;
                }
                Ok("done".into())
            }
        }));
    let house = setup.build();
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "talks").await;
    house.bench.begun().await;
    let listening = listen(&mut client, &[&id]).await;
    changed(&mut client, &listening).await;
    house.bench.gate.notify_waiters();
    let mut told = Vec::new();
    loop {
        let task = changed(&mut client, &listening).await;
        if task["status"] == "completed" {
            break;
        }
        told.push(task["statusMessage"].as_str().unwrap().to_owned());
    }
    assert_eq!(told[0], "0 of 1000");
    // One a second, and it does not take so long.
    assert!(told.len() < 100, "{}", told.len());
}

#[tokio::test]
async fn a_call_that_is_waited_for_reports_by_itself_in_every_revision() {
    let mut setup = setup(options()).await;
    setup.options.progress_after = Duration::from_millis(20);
    let house = setup.build();
    for version in crate::house::SPOKEN {
        let mut client = house.connect("anna", version).await;
        let params = json!({ "name": "wait", "arguments": {}, "_meta": { "progressToken": "p" } });
        let call = client.begin("tools/call", params).await;
        house.bench.begun().await;
        for _ in 0..2 {
            let report = client.receive().await;
            assert_eq!(
                report["method"], "notifications/progress",
                "{version}: {report}"
            );
            assert_eq!(report["params"]["progressToken"], "p");
        }
        house.bench.gate.notify_waiters();
        let answer = client.receive_answer(&call).await;
        assert_eq!(text(&answer["result"]), "waited", "{version}");
    }
}

async fn is_no_task(house: &House, client: &mut Client, tool: &str, reason: &str) {
    let answer = client.call(tool, json!({})).await;
    assert_eq!(failure_of(&answer)["code"], -32003, "{answer}");
    assert_eq!(failure_of(&answer)["data"]["reason"], reason);
    assert_eq!(house.mcp_server.tasks().unwrap().running(), 0);
}

#[tokio::test]
async fn what_is_refused_is_no_task() {
    // However long the refusal takes.
    let options = TaskOptions {
        after: Duration::ZERO,
        ..options()
    };
    let one_call = |quota| {
        policy(Rules {
            quota,
            ..Rules::default()
        })
    };
    let cases = [
        (
            "permission",
            policy(Rules {
                deny: vec!["tool/long".to_owned()],
                ..Rules::default()
            }),
        ),
        (
            "budget",
            one_call(Quota {
                monthly_budget: Some(Micros(1)),
                ..Quota::default()
            }),
        ),
        (
            "rate_minute",
            one_call(Quota {
                max_calls_per_minute: Some(0),
                ..Quota::default()
            }),
        ),
    ];
    for (reason, policy) in cases {
        let house = Setup {
            policy,
            ..setup(options).await
        }
        .build();
        let mut client = modern(&house, "anna").await;
        is_no_task(&house, &mut client, "long", reason).await;
        assert_eq!(house.bench.runs(), 0);
        assert_eq!(calls(&house).await[0].reason(), Some(reason));
    }
    let house = setup(options).await.build();
    let mut client = modern(&house, "anna").await;
    house.ledger.set_failing(true);
    for _ in 0..2 {
        is_no_task(&house, &mut client, "long", "ledger_unavailable").await;
    }
    assert_eq!(house.bench.runs(), 0);
}

/// A call that can still be refused is none.
#[tokio::test]
async fn what_is_not_yet_on_record_is_no_task_however_long_that_takes() {
    let options = TaskOptions {
        after: Duration::ZERO,
        ..options()
    };
    let denied = policy(Rules {
        deny: vec!["tool/long".to_owned()],
        ..Rules::default()
    });
    for (policy, reason) in [
        (denied, Some("permission")),
        (policy(Rules::default()), None),
    ] {
        let house = Setup {
            policy,
            ..setup(options).await
        }
        .build();
        let mut client = modern(&house, "anna").await;
        let held = house.ledger_gate.lock().await;
        let call = client.begin_call("long", json!({})).await;
        // Far longer than it takes for a call to become a task here.
        tokio::time::sleep(Duration::from_millis(30)).await;
        let early = client.settle().await;
        assert!(early.is_empty(), "{early:?}");
        assert_eq!(house.mcp_server.tasks().unwrap().running(), 0);
        assert_eq!(house.bench.runs(), 0);
        drop(held);
        let answer = client.receive_answer(&call).await;
        match reason {
            Some(reason) => assert_eq!(failure_of(&answer)["data"]["reason"], reason),
            None => {
                about(&mut client, "tasks/cancel", &created(&answer)).await;
            }
        }
        idle(&house).await;
    }
}

#[tokio::test]
async fn what_cannot_be_recorded_changes_no_task_and_cancels_it_all_the_same() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "both").await;
    let task = reaches(&mut client, &id, "input_required").await;
    house.ledger.set_failing(true);
    let answers = json!({ "one": accept("a"), "two": accept("b") });
    let answer = update(&mut client, &id, answers).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(get(&mut client, &id).await, task);
    about(&mut client, "tasks/cancel", &id).await;
    assert_eq!(get(&mut client, &id).await["status"], "cancelled");
}

#[tokio::test]
async fn beyond_the_bounds_a_call_stays_a_call() {
    for (running, records) in [(2, 1_000), (1_000, 2)] {
        let options = TaskOptions {
            max_running_per_principal: running,
            records: TaskLimits {
                max_per_principal: records,
                ..TaskLimits::default()
            },
            ..options()
        };
        let house = setup(options).await.build();
        let mut client = modern(&house, "anna").await;
        for _ in 0..2 {
            begin(&mut client, "long").await;
            house.bench.begun().await;
        }
        let waits = client.begin_call("long", json!({})).await;
        house.bench.begun().await;
        assert!(client.settle().await.is_empty());
        // Nobody else's tasks are in the way.
        let mut other = modern(&house, "bert").await;
        begin(&mut other, "long").await;
        house.bench.begun().await;
        house.bench.gate.notify_waiters();
        let answer = client.receive_answer(&waits).await;
        assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
        assert_eq!(text(&answer["result"]), "done");
        idle(&house).await;
        assert!(
            calls(&house)
                .await
                .iter()
                .all(|it| it.ended.outcome == Outcome::Succeeded)
        );
        // Places are given back; records are kept until they expire.
        let call = client.begin_call("long", json!({})).await;
        house.bench.begun().await;
        if records == 2 {
            assert!(client.settle().await.is_empty());
            crate::house::pass(Duration::from_secs(4_000));
            begin(&mut client, "long").await;
        } else {
            created(&client.receive_answer(&call).await);
        }
    }
}

#[tokio::test]
async fn who_leaves_before_there_is_a_task_gives_the_call_up_and_not_who_leaves_after() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    client.begin_call("wait", json!({})).await;
    house.bench.begun().await;
    client.close_input();
    client.serving.await.unwrap();
    let record = calls(&house).await;
    assert_eq!(record[0].ended.outcome, Outcome::Cancelled);

    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    client.close_input();
    client.serving.await.unwrap();
    assert_eq!(house.mcp_server.tasks().unwrap().running(), 1);
    house.bench.gate.notify_waiters();
    let mut client = modern(&house, "anna").await;
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&task["result"]), "done");
    // A cancelled request is no cancelled task either.
    let mut client = modern(&house, "anna").await;
    let call = client.begin_call("long", json!({})).await;
    let id = created(&client.receive_answer(&call).await);
    client.cancel(&call).await;
    client.settle().await;
    assert_eq!(get(&mut client, &id).await["status"], "working");
}

#[tokio::test]
async fn a_time_that_the_clock_has_not_reached_is_not_told() {
    let house = house().await;
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "both").await;
    crate::house::pass(Duration::from_secs(5));
    update(&mut client, &id, json!({ "one": accept("a") })).await;
    let before = get(&mut client, &id).await;
    assert_ne!(before["lastUpdatedAt"], before["createdAt"]);
    let listening = listen(&mut client, &[&id]).await;
    changed(&mut client, &listening).await;
    crate::house::turn_back(Duration::from_secs(3));
    about(&mut client, "tasks/cancel", &id).await;
    let told = changed(&mut client, &listening).await;
    assert_eq!(told, bare(get(&mut client, &id).await));
    assert_eq!(told["lastUpdatedAt"], before["lastUpdatedAt"]);
    wait_until("it is over", GENEROUS, || {
        house.mcp_server.tasks().unwrap().running() == 0
    })
    .await;
}
