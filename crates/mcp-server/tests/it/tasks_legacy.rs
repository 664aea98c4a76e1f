//! Calls that are tasks because their clients want it, as clients of 2025-11-25 see them.

use crate::{
    house::{Client, House, Setup, pass, policy},
    tasks_house::{
        LEGACY, RELATED, about, accept, begin, begin_with, calls, created, get, house, idle,
        legacy, modern, options, reaches, setup, text,
    },
};
use governance::Rules;
use ledger::Outcome;
use mcp_server::{Options, TaskOptions};
use mcp_service::EngineLimits;
use serde_json::{Value, json};
use std::time::Duration;
use testkit::{Conversation, MODERN, failure_of};

/// The next message that is no news of a task.
async fn next(client: &mut Client) -> Value {
    loop {
        let message = client.receive().await;
        if message["method"] != "notifications/tasks/status" {
            return message;
        }
    }
}

/// Question to the client, which names its task itself.
async fn question(client: &mut Client, id: &str) -> Value {
    let message = next(client).await;
    assert_eq!(message["method"], "elicitation/create", "{message}");
    assert_eq!(message["params"]["_meta"][RELATED]["taskId"], id);
    message["id"].clone()
}

async fn reply(client: &mut Client, question: &Value, result: Value) {
    let answer = json!({ "jsonrpc": "2.0", "id": question, "result": result });
    client.send(&answer).await;
}

async fn begin_result(client: &mut Client, id: &str) -> Value {
    client.begin("tasks/result", json!({ "taskId": id })).await
}

/// Messages received, apart from news of tasks.
async fn said(client: &mut Client) -> Vec<Value> {
    let mut said = client.settle().await;
    said.retain(|it| it["method"] != "notifications/tasks/status");
    said
}

#[tokio::test]
async fn what_there_is_of_tasks_is_declared() {
    for list in [true, false] {
        let options = TaskOptions { list, ..options() };
        let house = setup(options).await.build();
        let mut client = house.join("anna", Duration::ZERO);
        let opened = Conversation::open(&mut *client, LEGACY).await;
        let mut declared = json!({ "cancel": {}, "requests": { "tools": { "call": {} } } });
        if list {
            declared["list"] = json!({});
        }
        assert_eq!(opened["capabilities"]["tasks"], declared);
        let listed = client.ask("tasks/list", json!({})).await;
        assert_eq!(listed["error"]["code"] == -32601, !list, "{listed}");
        let mut client = house.join("anna", Duration::ZERO);
        let opened = Conversation::open(&mut *client, "2025-06-18").await;
        assert!(opened["capabilities"].get("tasks").is_none());
    }
}

#[tokio::test]
async fn lists_of_tools_say_which_calls_can_be_tasks_in_that_revision_alone() {
    let house = house().await;
    for version in ["2025-06-18", LEGACY, MODERN] {
        let mut client = house.connect("anna", version).await;
        for tool in client.list("tools/list", "tools").await {
            let said = tool.pointer("/execution/taskSupport").cloned();
            let expected = match tool["name"].as_str().unwrap() {
                _ if version != LEGACY => None,
                "required" | "quick_required" => Some(json!("required")),
                "forbidden" => None,
                _ => Some(json!("optional")),
            };
            assert_eq!(said, expected, "{version}: {tool}");
        }
    }
    // Where there are no tasks there is nothing to say of them.
    let house = Setup::default().build();
    let mut client = house.connect("anna", LEGACY).await;
    for tool in client.list("tools/list", "tools").await {
        assert!(tool.get("execution").is_none(), "{tool}");
    }
}

#[tokio::test]
async fn a_call_that_is_to_be_a_task_is_one_at_once() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let answer = begin_with(&mut client, "quick", json!({})).await;
    let task = &answer["result"]["task"];
    assert_eq!(task["status"], "working", "{answer}");
    assert_eq!(task["pollInterval"], 500);
    let id = created(&answer);
    let task = reaches(&mut client, &id, "completed").await;
    for member in ["result", "_meta", "ttlMs", "resultType"] {
        assert!(task.get(member).is_none(), "{task}");
    }
    let answer = about(&mut client, "tasks/result", &id).await;
    assert_eq!(text(&answer["result"]), "quick");
    idle(&house).await;
}

#[tokio::test]
async fn the_time_a_task_is_kept_is_the_clients_within_bounds() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let day = 24 * 3_600_000_u64;
    for (wanted, kept) in [
        (json!({ "ttl": 60_000 }), 60_000),
        (json!({ "ttl": 0 }), 1_000),
        (json!({ "ttl": u64::MAX }), day),
        (json!({}), 3_900_000),
    ] {
        let answer = begin_with(&mut client, "quick", wanted).await;
        assert_eq!(answer["result"]["task"]["ttl"], kept, "{answer}");
        let id = created(&answer);
        assert_eq!(get(&mut client, &id).await["ttl"], kept);
        pass(Duration::from_millis(kept) - Duration::from_millis(1));
        get(&mut client, &id).await;
        pass(Duration::from_millis(1));
        let gone = about(&mut client, "tasks/get", &id).await;
        assert_eq!(gone["error"]["code"], -32602, "{gone}");
    }
}

#[tokio::test]
async fn a_tool_is_called_the_way_it_wants_to_be() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let forbidden = begin_with(&mut client, "forbidden", json!({})).await;
    assert_eq!(forbidden["error"]["code"], -32601, "{forbidden}");
    let required = client.call("required", json!({})).await;
    assert_eq!(required["error"]["code"], -32601, "{required}");
    let mut older = house.connect("anna", "2025-06-18").await;
    let required = older.call("required", json!({})).await;
    assert_eq!(required["error"]["code"], -32601, "{required}");
    assert_eq!(house.bench.runs(), 0);
    let reasons: Vec<_> = calls(&house).await;
    let reasons: Vec<_> = reasons.iter().map(|it| it.reason().unwrap()).collect();
    assert_eq!(
        reasons,
        ["task_forbidden", "task_required", "task_required"]
    );
    // To older revisions the member means nothing.
    let answer = begin_with(&mut older, "quick", json!(7)).await;
    assert_eq!(text(&answer["result"]), "quick");
    // And what does not exist does not exist in any way.
    let as_task = begin_with(&mut client, "nothing", json!({})).await;
    for answer in [as_task, client.call("nothing", json!({})).await] {
        assert_eq!(answer["error"]["code"], -32001, "{answer}");
    }
    idle(&house).await;
}

#[tokio::test]
async fn what_is_refused_is_an_error_and_no_task() {
    let setup = Setup {
        policy: policy(Rules {
            deny: vec!["tool/quick".to_owned()],
            hidden: vec!["tool/long".to_owned()],
            ..Rules::default()
        }),
        ..setup(options()).await
    };
    let house = setup.build();
    let mut client = legacy(&house, "anna").await;
    let answer = begin_with(&mut client, "quick", json!({})).await;
    assert_eq!(answer["error"]["code"], -32003, "{answer}");
    assert_eq!(answer["error"]["data"]["reason"], "permission");
    let hidden = begin_with(&mut client, "long", json!({})).await;
    assert_eq!(hidden["error"]["code"], -32001, "{hidden}");
    house.ledger.set_failing(true);
    for _ in 0..2 {
        let answer = begin_with(&mut client, "both", json!({})).await;
        assert_eq!(answer["error"]["data"]["reason"], "ledger_unavailable");
    }
    assert_eq!(house.bench.runs(), 0);
    assert!(client.list("tasks/list", "tasks").await.is_empty());
    assert!(client.settle().await.is_empty(), "nothing is told of it");
    idle(&house).await;
}

#[tokio::test]
async fn too_many_tasks_are_an_error_that_passes_and_the_tool_does_not_run() {
    let options = TaskOptions {
        max_running: 1,
        ..options()
    };
    let house = setup(options).await.build();
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    let answer = begin_with(&mut client, "quick", json!({})).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    assert_eq!(answer["error"]["message"], "too many tasks are running");
    assert_eq!(answer["error"]["data"]["retryable"], true);
    assert_eq!(house.bench.runs(), 1);
    about(&mut client, "tasks/cancel", &id).await;
    idle(&house).await;
    begin(&mut client, "quick").await;
}

#[tokio::test]
async fn tasks_are_listed_newest_first_page_by_page_and_to_nobody_else() {
    const MANY: usize = 120;
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let mut ids = Vec::new();
    for _ in 0..MANY {
        pass(Duration::from_millis(10));
        let id = begin(&mut client, "quick").await;
        reaches(&mut client, &id, "completed").await;
        ids.push(id);
    }
    pass(Duration::from_millis(10));
    ids.push(begin(&mut client, "long").await);
    ids.reverse();
    let page = client.ask("tasks/list", json!({})).await;
    assert_eq!(page["result"]["tasks"].as_array().unwrap().len(), 50);
    assert!(page["result"]["nextCursor"].is_string());
    let listed = client.list("tasks/list", "tasks").await;
    let listed_ids: Vec<_> = listed
        .iter()
        .map(|it| it["taskId"].as_str().unwrap())
        .collect();
    assert_eq!(listed_ids, ids);
    assert_eq!(listed[0], get(&mut client, &ids[0]).await);
    assert_eq!(listed[MANY], get(&mut client, &ids[MANY]).await);
    for cursor in ["", "x", "YQ", "MS54"] {
        let answer = client.ask("tasks/list", json!({ "cursor": cursor })).await;
        assert_eq!(answer["error"]["code"], -32602, "{cursor}: {answer}");
    }
    let mut other = legacy(&house, "bert").await;
    assert!(other.list("tasks/list", "tasks").await.is_empty());
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let answer = about(&mut other, method, &ids[0]).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
}

#[tokio::test]
async fn a_task_is_cancelled_once() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    let answer = about(&mut client, "tasks/cancel", &id).await;
    assert_eq!(answer["result"]["status"], "cancelled", "{answer}");
    assert!(answer["result"]["statusMessage"].is_string());
    let again = about(&mut client, "tasks/cancel", &id).await;
    assert_eq!(again["error"]["code"], -32602, "{again}");
    let none = about(&mut client, "tasks/result", &id).await;
    assert_eq!(none["error"]["code"], -32603, "{none}");
    let id = begin(&mut client, "quick").await;
    reaches(&mut client, &id, "completed").await;
    let late = about(&mut client, "tasks/cancel", &id).await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
    assert_eq!(get(&mut client, &id).await["status"], "completed");
    assert_eq!(calls(&house).await[0].ended.outcome, Outcome::Cancelled);
    idle(&house).await;
}

#[tokio::test]
async fn a_thousand_wait_for_results_and_others_are_served() {
    const MANY: usize = 1_000;
    let options = TaskOptions {
        max_waiting: MANY,
        max_waiting_per_principal: MANY,
        ..options()
    };
    let limits = EngineLimits {
        max_in_flight: 2,
        max_waiting: 2,
        ..EngineLimits::default()
    };
    let setup = setup(options).await;
    let house = Setup {
        options: Options {
            limits,
            ..setup.options
        },
        ..setup
    }
    .build();
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    let mut waiting = Vec::new();
    for _ in 0..MANY {
        waiting.push(begin_result(&mut client, &id).await);
    }
    let answer = about(&mut client, "tasks/result", &id).await;
    assert_eq!(
        answer["error"]["code"], -32603,
        "one more than may wait: {answer}"
    );
    assert_eq!(answer["error"]["data"]["retryable"], true);
    assert_eq!(house.mcp_server.engine().in_flight(), 0);
    let answer = client.call("quick", json!({})).await;
    assert_eq!(text(&answer["result"]), "quick");
    // Whoever gives up waiting makes room, and nothing else of it.
    client.cancel(&waiting[0]).await;
    assert!(said(&mut client).await.is_empty());
    waiting[0] = begin_result(&mut client, &id).await;
    let early = said(&mut client).await;
    assert!(early.is_empty(), "{early:?}");
    house.bench.gate.notify_waiters();
    for request in &waiting {
        let answer = client.receive_answer(request).await;
        assert_eq!(text(&answer["result"]), "done", "{answer}");
    }
    idle(&house).await;
}

/// The answer to a call that is waited for, and that of `tasks/result` to the same as a task.
async fn both_ways(client: &mut Client, tool: &str) -> (String, Value, Value) {
    let id = begin(client, tool).await;
    let waiting = begin_result(client, &id).await;
    let mut result = client.receive_answer(&waiting).await;
    if let Some(result) = result.get_mut("result") {
        let meta = result["_meta"]
            .as_object_mut()
            .expect("it says whose it is");
        assert_eq!(meta.remove(RELATED).unwrap(), json!({ "taskId": id }));
        if meta.is_empty() {
            result.as_object_mut().unwrap().remove("_meta");
        }
    }
    let call = client.call(tool, json!({})).await;
    (id, call, result)
}

#[tokio::test]
async fn the_result_is_exactly_what_the_call_would_have_been_answered_with() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    for (tool, status) in [
        ("quick", "completed"),
        ("job_failed", "failed"),
        ("job_broken", "failed"),
        ("job_panics", "failed"),
    ] {
        let (id, call, result) = both_ways(&mut client, tool).await;
        assert_eq!(call.get("result"), result.get("result"), "{tool}");
        assert_eq!(call.get("error"), result.get("error"), "{tool}");
        let task = get(&mut client, &id).await;
        assert_eq!(task["status"], status, "{tool}");
        assert_eq!(
            task["statusMessage"]
                .as_str()
                .is_some_and(|it| !it.is_empty()),
            status == "failed",
            "{task}"
        );
        if let Some(words) = result["result"]["content"][0]["text"].as_str()
            && status == "failed"
        {
            assert_eq!(task["statusMessage"], format!("the tool failed: {words}"));
        }
    }
}

#[tokio::test]
async fn what_a_task_asks_is_asked_of_one_who_waits_for_its_result_and_once() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "confirm").await;
    reaches(&mut client, &id, "input_required").await;
    assert!(said(&mut client).await.is_empty(), "nobody waits");
    let first = begin_result(&mut client, &id).await;
    let second = begin_result(&mut client, &id).await;
    let asked = question(&mut client, &id).await;
    assert!(said(&mut client).await.is_empty(), "it is asked twice");
    reply(&mut client, &asked, accept("yes")).await;
    for request in [first, second] {
        let answer = client.receive_answer(&request).await;
        assert_eq!(text(&answer["result"]), "confirmed \"yes\"", "{answer}");
    }
    assert!(said(&mut client).await.is_empty());
    assert_eq!(calls(&house).await.len(), 2);
}

#[tokio::test]
async fn the_other_who_waits_takes_the_question_over() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "confirm").await;
    let first = begin_result(&mut client, &id).await;
    let asked = question(&mut client, &id).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(begin_result(&mut client, &id).await);
    }
    client.cancel(&first).await;
    let withdrawn = next(&mut client).await;
    assert_eq!(
        withdrawn["method"], "notifications/cancelled",
        "{withdrawn}"
    );
    assert_eq!(withdrawn["params"]["requestId"], asked);
    let asked = question(&mut client, &id).await;
    let more = said(&mut client).await;
    assert!(more.is_empty(), "it is asked again and again: {more:?}");
    reply(&mut client, &asked, accept("yes")).await;
    for request in &waiting {
        let answer = client.receive_answer(request).await;
        assert_eq!(text(&answer["result"]), "confirmed \"yes\"", "{answer}");
    }
}

#[tokio::test]
async fn a_client_that_refuses_to_answer_fails_the_task() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "both").await;
    let waiting = begin_result(&mut client, &id).await;
    let asked = question(&mut client, &id).await;
    question(&mut client, &id).await;
    let refusal = json!({ "code": -1, "message": "the user is not there" });
    client
        .send(&json!({ "jsonrpc": "2.0", "id": asked, "error": refusal }))
        .await;
    let withdrawn = next(&mut client).await;
    assert_eq!(
        withdrawn["method"], "notifications/cancelled",
        "{withdrawn}"
    );
    let answer = client.receive_answer(&waiting).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let failure = failure_of(&answer);
    assert_eq!(failure["code"], -32603, "{answer}");
    assert_eq!(failure["data"]["details"], "the user is not there");
    let task = get(&mut client, &id).await;
    assert_eq!(task["status"], "failed");
    let again = about(&mut client, "tasks/result", &id).await;
    assert_eq!(again["result"], answer["result"], "it stays what it was");
    idle(&house).await;
}

#[tokio::test]
async fn a_task_of_a_client_that_cannot_be_asked_has_a_result_that_says_so() {
    let house = house().await;
    let mut client = house.connect("anna", LEGACY).await;
    let id = begin(&mut client, "confirm").await;
    let answer = about(&mut client, "tasks/result", &id).await;
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    assert_eq!(failure_of(&answer)["code"], -32600, "{answer}");
    assert_eq!(get(&mut client, &id).await["status"], "failed");
    idle(&house).await;
}

#[tokio::test]
async fn a_session_that_cannot_be_asked_does_not_fail_the_task_of_another() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let mut other = house.connect("anna", LEGACY).await;
    let id = begin(&mut client, "confirm").await;
    reaches(&mut client, &id, "input_required").await;
    let answer = about(&mut other, "tasks/result", &id).await;
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    assert_eq!(get(&mut client, &id).await["status"], "input_required");
    let waiting = begin_result(&mut client, &id).await;
    let asked = question(&mut client, &id).await;
    reply(&mut client, &asked, json!({ "action": "decline" })).await;
    let answer = client.receive_answer(&waiting).await;
    assert_eq!(text(&answer["result"]), "declined");
}

#[tokio::test]
async fn a_connection_that_is_lost_while_it_is_asked_leaves_the_question_to_the_next() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "confirm").await;
    begin_result(&mut client, &id).await;
    question(&mut client, &id).await;
    client.close_input();
    client.serving.await.unwrap();

    let mut client = legacy(&house, "anna").await;
    assert_eq!(get(&mut client, &id).await["status"], "input_required");
    let waiting = begin_result(&mut client, &id).await;
    let asked = question(&mut client, &id).await;
    reply(&mut client, &asked, accept("at last")).await;
    let answer = client.receive_answer(&waiting).await;
    assert_eq!(text(&answer["result"]), "confirmed \"at last\"");
    idle(&house).await;
}

#[tokio::test]
async fn a_task_that_is_cancelled_takes_its_question_back() {
    let house = house().await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "confirm").await;
    let waiting = begin_result(&mut client, &id).await;
    let asked = question(&mut client, &id).await;
    let cancelled = about(&mut client, "tasks/cancel", &id).await;
    assert_eq!(cancelled["result"]["status"], "cancelled", "{cancelled}");
    let withdrawn = next(&mut client).await;
    assert_eq!(
        withdrawn["method"], "notifications/cancelled",
        "{withdrawn}"
    );
    assert_eq!(withdrawn["params"]["requestId"], asked);
    let answer = client.receive_answer(&waiting).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    // An answer that was on its way, of either kind, changes nothing.
    reply(&mut client, &asked, accept("late")).await;
    assert_eq!(get(&mut client, &id).await["status"], "cancelled");
}

/// The states that a session is told of, in order, without what else is said.
async fn told(client: &mut Client, id: &str) -> Vec<String> {
    let mut states = Vec::new();
    loop {
        let message = client.receive().await;
        assert_eq!(message["method"], "notifications/tasks/status", "{message}");
        let task = &message["params"];
        assert_eq!(task["taskId"], id);
        assert!(task.get("_meta").is_none(), "{task}");
        let status = task["status"].as_str().unwrap().to_owned();
        let over = !matches!(status.as_str(), "working" | "input_required");
        states.push(status);
        if over {
            return states;
        }
    }
}

#[tokio::test]
async fn a_session_is_told_of_its_tasks_until_they_are_over() {
    let house = house().await;
    let mut other = legacy(&house, "anna").await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    house.bench.gate.notify_waiters();
    // What its handler says of its progress is a change of the task.
    assert_eq!(told(&mut client, &id).await, ["working", "completed"]);
    let id = begin(&mut client, "both").await;
    reaches(&mut client, &id, "input_required").await;
    about(&mut client, "tasks/cancel", &id).await;
    assert_eq!(
        told(&mut client, &id).await,
        ["input_required", "cancelled"]
    );
    assert!(client.settle().await.is_empty());
    assert!(other.settle().await.is_empty(), "it is none of its tasks");
}

#[tokio::test]
async fn tasks_of_one_revision_are_unknown_in_the_other() {
    let house = house().await;
    let mut old = legacy(&house, "anna").await;
    let mut new = modern(&house, "anna").await;
    let of_old = begin(&mut old, "long").await;
    let of_new = begin(&mut new, "long").await;
    for (client, id) in [(&mut old, &of_new), (&mut new, &of_old)] {
        for method in ["tasks/get", "tasks/cancel"] {
            let answer = about(client, method, id).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
        }
    }
    let listed = old.list("tasks/list", "tasks").await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["taskId"], of_old);
    let mut older = house.connect("anna", "2025-06-18").await;
    let answer = about(&mut older, "tasks/get", &of_old).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
    let update = json!({ "taskId": of_old, "inputResponses": {} });
    let answer = old.ask("tasks/update", update).await;
    assert_eq!(answer["error"]["code"], -32601, "{answer}");
}

/// A client that waits for a result it may no longer see is told what other clients are told.
#[tokio::test]
async fn a_policy_that_hides_a_tool_hides_results_that_are_waited_for() {
    let house: House = house().await;
    let mut client = legacy(&house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    let waiting = begin_result(&mut client, &id).await;
    client.settle().await;
    let hidden = policy(Rules {
        hidden: vec!["tool/long".to_owned()],
        ..Rules::default()
    });
    let hidden = governance::Policy::new(hidden).unwrap();
    house.mcp_server.replace_policy(hidden);
    house.bench.gate.notify_waiters();
    let answer = client.receive_answer(&waiting).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(client.list("tasks/list", "tasks").await.is_empty());
}
