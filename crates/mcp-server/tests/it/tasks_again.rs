//! Tasks whose server has ended: what the next one makes of them.

use crate::{
    house::{Bench, Client, House, PRICE, Setup, block_on, now_us, pass, policy},
    tasks_house::{
        about, accept, ask, calls, created, get, idle, legacy, modern, options, reaches,
        setup_over, text, update,
    },
    tasks_store::{Moody, take},
};
use adapter_tools::{Annotations, Elicited, Needed, Tool, ToolCx, ToolError};
use futures_util::FutureExt;
use governance::Rules;
use ledger::MemoryLedger;
use mcp_server::TaskOptions;
use serde_json::{Value, json};
use std::{
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use task_store::{MemoryTaskStore, SqliteTaskStore, TaskStore};
use testkit::{GENEROUS, failure_of, wait_until};

const CUT_SHORT: &str = "the server stopped before the call had ended";
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Makes the tools of a server.
type Makes = fn(&Bench) -> Vec<Tool>;

fn idempotent() -> Annotations {
    Annotations {
        idempotent: Some(true),
        ..Annotations::default()
    }
}

/// Hands over, waits for the gate, and tells what it was called with.
fn waiting(bench: &Bench, name: &'static str, mark: Value, says: Annotations) -> Tool {
    let gate = bench.clone();
    bench
        .tool(
            name,
            json!({ "mark": mark }),
            &["mark"],
            move |cx: ToolCx, it| {
                let bench = gate.clone();
                async move {
                    cx.continue_as_task();
                    let opened = bench.gate.notified();
                    bench.begun.add_permits(1);
                    opened.await;
                    Ok(format!(
                        "{} for {} in {:?}",
                        it["mark"],
                        &*cx.principal,
                        cx.traceparent.as_deref()
                    )
                    .into())
                }
            },
        )
        .with_estimated_cost_micros(PRICE)
        .with_annotations(says)
}

fn tools(bench: &Bench) -> Vec<Tool> {
    let text = json!({ "type": "string" });
    let read_only = Annotations {
        read_only: Some(true),
        ..Annotations::default()
    };
    let asking = bench.tool("look", json!({}), &[], |cx: ToolCx, _| async move {
        cx.continue_as_task();
        let schema = json!({ "type": "object", "properties": {} });
        let asked = Needed::form("where", "Where?", schema);
        match cx.answers().elicited("where", &asked) {
            Some(Elicited::Accepted(content)) => Ok(format!("seen {}", content["value"]).into()),
            _ => Err(ToolError::NeedsInput(asked)),
        }
    });
    vec![
        waiting(bench, "again", text.clone(), idempotent()),
        waiting(bench, "once", text, Annotations::default()),
        asking.with_annotations(read_only),
    ]
}

/// A server over a file, and its tools.
async fn server(path: &Path, options: TaskOptions, tools: Makes) -> Setup {
    over(
        Arc::new(SqliteTaskStore::open(path).unwrap()),
        options,
        tools,
    )
    .await
}

async fn over(store: Arc<dyn TaskStore>, options: TaskOptions, tools: Makes) -> Setup {
    let mut setup = setup_over(store, options).await;
    setup.more_tools = tools(&setup.bench);
    setup
}

fn file() -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    (directory, path)
}

async fn begin(client: &mut Client, tool: &str, arguments: Value) -> String {
    let mut params = json!({ "name": tool, "arguments": arguments });
    if !client.voice.is_modern() {
        params["task"] = json!({});
    }
    created(&ask(client, "tools/call", params).await)
}

/// Begins a task of `again`, and has its server vanish.
fn begun_and_cut_short(path: &Path, tool: &'static str) -> String {
    block_on(async {
        let house = server(path, options(), tools).await.build();
        let mut client = modern(&house, "anna").await;
        let id = begin(&mut client, tool, json!({ "mark": "m" })).await;
        house.bench.begun().await;
        id
    })
}

#[test]
fn the_next_server_begins_again_what_may_be_and_its_client_sees_one_task() {
    let (_directory, path) = file();
    let (new, old) = block_on(async {
        let house = server(&path, options(), tools).await.build();
        let mut client = modern(&house, "anna").await;
        let params = json!({ "name": "again", "arguments": { "mark": "m" },
                             "_meta": { "traceparent": TRACE } });
        let new = created(&ask(&mut client, "tools/call", params).await);
        let mut client = legacy(&house, "bert").await;
        let old = begin(&mut client, "again", json!({ "mark": "n" })).await;
        house.bench.begun().await;
        house.bench.begun().await;
        (new, old)
    });
    block_on(async {
        let house = server(&path, options(), tools).await.build();
        let mut anna = modern(&house, "anna").await;
        let mut bert = legacy(&house, "bert").await;
        assert_eq!(get(&mut anna, &new).await["status"], "working");
        // Who waits for it already need not know.
        let waiting = bert.begin("tasks/result", json!({ "taskId": old })).await;
        assert!(bert.settle().await.is_empty());
        house.mcp_server.keep_tasks();
        house.bench.begun().await;
        house.bench.begun().await;
        let task = get(&mut anna, &new).await;
        assert_eq!(task["status"], "working");
        let said = task["statusMessage"].as_str().unwrap();
        assert!(said.contains("begun again"), "{said}");
        house.bench.gate.notify_waiters();
        let task = reaches(&mut anna, &new, "completed").await;
        assert_eq!(
            text(&task["result"]),
            format!("\"m\" for anna in Some({TRACE:?})")
        );
        let answer = bert.receive_answer(&waiting).await;
        assert_eq!(text(&answer["result"]), "\"n\" for bert in None");
        idle(&house).await;
        // Each is a call of its own, which says whose second attempt it is, and costs again.
        let record = calls(&house).await;
        let mut requests: Vec<_> = record.iter().map(|it| &*it.started.request_id).collect();
        let mut expected = [&new, &old].map(|id| format!("\"task/{id}/2\""));
        requests.sort_unstable();
        expected.sort_unstable();
        assert_eq!(requests, expected);
        let of_anna = record
            .iter()
            .find(|it| it.started.principal == "anna")
            .unwrap();
        assert_eq!(of_anna.started.trace_id.as_deref(), Some(&TRACE[3..35]));
        assert_eq!(of_anna.started.arguments.text, r#"{"mark":"m"}"#);
        let usage = house.usage_of("anna").await.unwrap();
        assert_eq!(usage.spent.0, PRICE, "{usage:?}");
    });
}

#[test]
fn what_was_confirmed_before_it_was_cut_short_is_confirmed_again() {
    const KEY: &str = "io.owlclaw/confirm";
    let (_directory, path) = file();
    let ledger = MemoryLedger::default();
    let careful = |mut setup: Setup| {
        let rules = Rules {
            confirm: vec!["tool/again".to_owned()],
            ..Rules::default()
        };
        setup.policy = policy(rules);
        setup.ledger = ledger.clone();
        setup.build()
    };
    let yes = json!({ "action": "accept", "content": { "confirm": true } });
    let id = block_on(async {
        let house = careful(server(&path, options(), tools).await);
        let mut client = modern(&house, "anna").await;
        let mut params = json!({ "name": "again", "arguments": { "mark": "m" } });
        let asked = ask(&mut client, "tools/call", params.clone()).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        params["inputResponses"] = json!({ KEY: yes });
        params["requestState"] = asked["result"]["requestState"].clone();
        let id = created(&ask(&mut client, "tools/call", params).await);
        house.bench.begun().await;
        id
    });
    block_on(async {
        let house = careful(server(&path, options(), tools).await);
        house.mcp_server.keep_tasks();
        let mut client = modern(&house, "anna").await;
        let task = reaches(&mut client, &id, "input_required").await;
        assert!(task["inputRequests"][KEY].is_object(), "{task}");
        assert_eq!(house.bench.runs(), 0);
        update(&mut client, &id, json!({ KEY: yes })).await;
        house.bench.begun().await;
        house.bench.gate.notify_waiters();
        reaches(&mut client, &id, "completed").await;
        assert_eq!(house.bench.runs(), 1);
    });
}

#[test]
fn what_its_server_does_not_survive_is_begun_only_so_often() {
    let (_directory, path) = file();
    let id = begun_and_cut_short(&path, "again");
    for attempt in 2..=4 {
        block_on(async {
            let house = server(&path, options(), tools).await.build();
            house.mcp_server.keep_tasks();
            let mut client = modern(&house, "anna").await;
            if attempt < 4 {
                house.bench.begun().await;
                assert_eq!(get(&mut client, &id).await["status"], "working");
                return;
            }
            let task = reaches(&mut client, &id, "failed").await;
            assert_eq!(task["error"]["message"], CUT_SHORT);
            let data = &task["error"]["data"];
            assert_eq!(data["retryable"], false);
            assert_eq!(
                data["details"],
                "it was begun 3 times, as often as it may be"
            );
            assert_eq!(house.bench.runs(), 0);
        });
    }
}

#[test]
fn what_may_not_be_called_twice_is_not_and_says_why() {
    // It does not say so; it did when it was called and does not now; it does only now.
    let now: [(&str, Makes, &str); 3] = [
        ("once", tools, "its tool does not say"),
        (
            "again",
            |bench| {
                let text = json!({ "type": "string" });
                vec![waiting(bench, "again", text, Annotations::default())]
            },
            "its tool does not say",
        ),
        (
            "once",
            |bench| {
                vec![waiting(
                    bench,
                    "once",
                    json!({ "type": "string" }),
                    idempotent(),
                )]
            },
            "what was called is not on record",
        ),
    ];
    for (tool, tools_now, why) in now {
        let (_directory, path) = file();
        let id = begun_and_cut_short(&path, tool);
        block_on(async {
            let house = server(&path, options(), tools_now).await.build();
            house.mcp_server.keep_tasks();
            let mut client = modern(&house, "anna").await;
            let task = reaches(&mut client, &id, "failed").await;
            assert_eq!(task["error"]["code"], -32603);
            assert_eq!(task["error"]["message"], CUT_SHORT);
            assert_eq!(task["error"]["data"]["retryable"], false);
            let details = task["error"]["data"]["details"].as_str().unwrap();
            assert!(details.starts_with(why), "{details}");
            idle(&house).await;
            assert_eq!(house.bench.runs(), 0);
        });
    }
}

#[test]
fn what_was_asked_is_asked_again() {
    let (_directory, path) = file();
    let id = block_on(async {
        let house = server(&path, options(), tools).await.build();
        let mut client = modern(&house, "anna").await;
        let id = begin(&mut client, "look", json!({})).await;
        reaches(&mut client, &id, "input_required").await;
        id
    });
    block_on(async {
        let house = server(&path, options(), tools).await.build();
        house.mcp_server.keep_tasks();
        let mut client = modern(&house, "anna").await;
        let task = reaches(&mut client, &id, "input_required").await;
        assert_eq!(
            task["inputRequests"]["where"]["params"]["message"],
            "Where?"
        );
        update(&mut client, &id, json!({ "where": accept("there") })).await;
        let task = reaches(&mut client, &id, "completed").await;
        assert_eq!(text(&task["result"]), "seen \"there\"");
    });
}

#[test]
fn what_is_begun_again_passes_everything_that_a_call_passes_now() {
    // The tool takes something else now.
    let (_directory, path) = file();
    let id = begun_and_cut_short(&path, "again");
    block_on(async {
        let takes_numbers: Makes = |bench| {
            vec![waiting(
                bench,
                "again",
                json!({ "type": "integer" }),
                idempotent(),
            )]
        };
        let house = server(&path, options(), takes_numbers).await.build();
        house.mcp_server.keep_tasks();
        let mut client = modern(&house, "anna").await;
        let task = reaches(&mut client, &id, "completed").await;
        assert_eq!(task["result"]["isError"], true, "{task}");
        let error = &task["result"]["_meta"]["io.owlclaw/error"];
        assert_eq!(error["code"], -32602, "{task}");
        assert_eq!(house.bench.runs(), 0);
    });

    // It is gone: what its caller is told is what anybody is told of it.
    let (_directory, path) = file();
    let id = begun_and_cut_short(&path, "again");
    block_on(async {
        let house = server(&path, options(), |_| Vec::new()).await.build();
        house.mcp_server.keep_tasks();
        let mut client = modern(&house, "anna").await;
        let task = reaches(&mut client, &id, "failed").await;
        let answer = client.call("again", json!({ "mark": "m" })).await;
        assert_eq!(task["error"], answer["error"]);
        let record = calls(&house).await;
        assert_eq!(record[0].reason(), Some("unknown"));
    });

    // It may not be called, or not now.
    let (_directory, path) = file();
    let id = begun_and_cut_short(&path, "again");
    block_on(async {
        let mut setup = server(&path, options(), tools).await;
        setup.policy = policy(Rules {
            quota: governance::Quota {
                monthly_budget: Some(governance::Micros(PRICE - 1)),
                ..governance::Quota::default()
            },
            ..Rules::default()
        });
        let house = setup.build();
        house.mcp_server.keep_tasks();
        let mut client = modern(&house, "anna").await;
        let task = reaches(&mut client, &id, "completed").await;
        let refused = failure_of(&task);
        assert_eq!(refused["code"], -32003, "{task}");
        assert_eq!(refused["data"]["reason"], "budget");
        assert_eq!(task["statusMessage"], refused["message"]);
        assert_eq!(house.bench.runs(), 0);
    });
}

#[test]
fn a_server_that_is_told_to_stop_leaves_what_the_next_one_can_do() {
    let (_directory, path) = file();
    let (again, once) = block_on(async {
        let house = server(&path, options(), tools).await.build();
        house.mcp_server.keep_tasks();
        let mut client = legacy(&house, "anna").await;
        let again = begin(&mut client, "again", json!({ "mark": "m" })).await;
        let once = begin(&mut client, "once", json!({ "mark": "m" })).await;
        house.bench.begun().await;
        house.bench.begun().await;
        let waiting = client
            .begin("tasks/result", json!({ "taskId": again }))
            .await;
        client.settle().await;
        house
            .mcp_server
            .tasks()
            .unwrap()
            .close(Duration::ZERO)
            .await;
        let answer = client.receive_answer(&waiting).await;
        assert_eq!(answer["error"]["data"]["retryable"], true, "{answer}");
        assert_eq!(get(&mut client, &again).await["status"], "working");
        assert_eq!(get(&mut client, &once).await["status"], "failed");
        (again, once)
    });
    block_on(async {
        let house = server(&path, options(), tools).await.build();
        house.mcp_server.keep_tasks();
        let mut client = legacy(&house, "anna").await;
        house.bench.begun().await;
        house.bench.gate.notify_waiters();
        reaches(&mut client, &again, "completed").await;
        assert_eq!(get(&mut client, &once).await["status"], "failed");
    });
}

#[test]
fn what_is_begun_again_is_no_more_than_may_run() {
    let (_directory, path) = file();
    let ids = block_on(async {
        let house = server(&path, options(), tools).await.build();
        let mut client = modern(&house, "anna").await;
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(begin(&mut client, "again", json!({ "mark": "m" })).await);
            house.bench.begun().await;
        }
        ids
    });
    block_on(async {
        let one = TaskOptions {
            max_running: 1,
            poll_interval: Duration::from_millis(1),
            ..options()
        };
        let house = server(&path, one, tools).await.build();
        house.mcp_server.keep_tasks();
        let mut client = modern(&house, "anna").await;
        for round in 1..=3 {
            house.bench.begun().await;
            assert_eq!(house.mcp_server.tasks().unwrap().running(), 1);
            assert_eq!(house.bench.runs(), round);
            house.bench.gate.notify_waiters();
        }
        for id in ids {
            reaches(&mut client, &id, "completed").await;
        }
    });
}

#[test]
fn what_is_cancelled_before_it_is_taken_up_is_not() {
    for old in [false, true] {
        let (_directory, path) = file();
        let id = block_on(async {
            let house = server(&path, options(), tools).await.build();
            let mut client = if old {
                legacy(&house, "anna").await
            } else {
                modern(&house, "anna").await
            };
            let id = begin(&mut client, "again", json!({ "mark": "m" })).await;
            house.bench.begun().await;
            id
        });
        block_on(async {
            let house = server(&path, options(), tools).await.build();
            let mut client = if old {
                legacy(&house, "anna").await
            } else {
                modern(&house, "anna").await
            };
            let answer = about(&mut client, "tasks/cancel", &id).await;
            let expected = if old { json!("cancelled") } else { Value::Null };
            assert_eq!(answer["result"]["status"], expected, "{answer}");
            assert_eq!(get(&mut client, &id).await["status"], "cancelled");
            house.mcp_server.keep_tasks();
            // One that comes after it is taken up, so it has been passed over.
            begin_another(&house).await;
            house.bench.begun().await;
            assert_eq!(get(&mut client, &id).await["status"], "cancelled");
            assert_eq!(house.bench.runs(), 1);
        });
    }
}

/// Some task that runs.
async fn begin_another(house: &House) {
    let mut client = modern(house, "bert").await;
    begin(&mut client, "again", json!({ "mark": "x" })).await;
}

/// Options of servers that share a store, and look at it all the time.
fn sharing() -> TaskOptions {
    TaskOptions {
        lease: Duration::from_millis(90),
        poll_interval: Duration::from_millis(1),
        ..options()
    }
}

#[tokio::test]
async fn a_server_that_goes_on_keeps_its_tasks() {
    let store = Arc::new(MemoryTaskStore::new());
    let house = over(Arc::clone(&store) as _, sharing(), tools)
        .await
        .build();
    house.mcp_server.keep_tasks();
    let other = over(Arc::clone(&store) as _, sharing(), tools)
        .await
        .build();
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "again", json!({ "mark": "m" })).await;
    house.bench.begun().await;
    for _ in 0..4 {
        pass(Duration::from_millis(60));
        let soon_us = now_us() + 80_000;
        wait_until("it says so", GENEROUS, || {
            let lapsed = store.lapsed(soon_us).now_or_never();
            lapsed.expect("it is in memory").unwrap().is_empty()
        })
        .await;
    }
    other.mcp_server.keep_tasks();
    // The other server tells of it as well, and does not touch it.
    let mut client = modern(&other, "anna").await;
    assert_eq!(get(&mut client, &id).await["status"], "working");
    house.bench.gate.notify_waiters();
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&task["result"]), "\"m\" for anna in None");
    assert_eq!(other.bench.runs(), 0);
}

#[tokio::test]
async fn a_server_that_is_cut_off_loses_its_tasks_to_another_and_says_nothing_of_them() {
    for ends_late in [false, true] {
        let store = Arc::new(MemoryTaskStore::new());
        // It does not say that it goes on.
        let house = over(Arc::clone(&store) as _, sharing(), tools)
            .await
            .build();
        let other = over(Arc::clone(&store) as _, sharing(), tools)
            .await
            .build();
        let mut client = legacy(&house, "anna").await;
        let id = begin(&mut client, "again", json!({ "mark": "m" })).await;
        house.bench.begun().await;
        let waiting = client.begin("tasks/result", json!({ "taskId": id })).await;
        client.settle().await;
        pass(Duration::from_millis(100));
        other.mcp_server.keep_tasks();
        other.bench.begun().await;
        if ends_late {
            house.bench.gate.notify_waiters();
        } else {
            house.mcp_server.keep_tasks();
        }
        idle(&house).await;
        // It has no task any more, and asks the store how it is.
        assert!(client.settle().await.is_empty(), "it says nothing");
        assert_eq!(get(&mut client, &id).await["status"], "working");
        let outcome = calls(&house).await[0].ended.outcome.clone();
        assert_eq!(outcome == ledger::Outcome::Cancelled, !ends_late);
        let waited_for = get(&mut legacy(&other, "anna").await, &id).await;
        assert_eq!(waited_for["status"], "working");
        other.bench.gate.notify_waiters();
        let answer = client.receive_answer(&waiting).await;
        assert_eq!(text(&answer["result"]), "\"m\" for anna in None");
        assert_eq!((house.bench.runs(), other.bench.runs()), (1, 1));
    }
}

#[tokio::test]
async fn a_task_of_another_server_is_cancelled_from_here() {
    let store = Arc::new(MemoryTaskStore::new());
    let house = over(Arc::clone(&store) as _, sharing(), tools)
        .await
        .build();
    let other = over(Arc::clone(&store) as _, sharing(), tools)
        .await
        .build();
    let mut client = modern(&house, "anna").await;
    let id = begin(&mut client, "again", json!({ "mark": "m" })).await;
    house.bench.begun().await;
    let mut elsewhere = modern(&other, "anna").await;
    about(&mut elsewhere, "tasks/cancel", &id).await;
    assert_eq!(get(&mut elsewhere, &id).await["status"], "cancelled");
    // Whoever carries it on hears of it.
    house.mcp_server.keep_tasks();
    idle(&house).await;
    wait_until("the call is given up", GENEROUS, || {
        house.mcp_server.recorder().health().open_calls == 0
    })
    .await;
    assert_eq!(get(&mut client, &id).await["status"], "cancelled");
}

#[tokio::test]
async fn what_nobody_was_told_of_is_not_begun_again_even_if_it_cannot_be_forgotten() {
    let store = Moody::new();
    let house = over(Arc::clone(&store) as _, sharing(), tools)
        .await
        .build();
    house.mcp_server.keep_tasks();
    let mut client = legacy(&house, "anna").await;
    let params = json!({ "name": "again", "arguments": { "mark": "m" }, "task": {} });
    client.begin("tools/call", params).await;
    store.asked().await;
    client.close_input();
    client.serving.await.unwrap();
    store.failing.store(true, Ordering::SeqCst);
    store.allow();
    take(&store.failed).await;
    let runs = house.bench.runs();
    // Whoever looks for what nobody carries on would find it now.
    pass(Duration::from_millis(100));
    for _ in 0..3 {
        take(&store.looked).await;
    }
    store.failing.store(false, Ordering::SeqCst);
    wait_until("it is forgotten after all", GENEROUS, || {
        let unfinished = store.inner.lapsed(u64::MAX).now_or_never();
        unfinished.expect("it is in memory").unwrap().is_empty()
    })
    .await;
    idle(&house).await;
    assert_eq!(house.bench.runs(), runs);
}

#[tokio::test]
async fn a_server_keeps_its_tasks_however_long_it_takes_up_others() {
    let store = Moody::new();
    let house = over(Arc::clone(&store) as _, sharing(), tools)
        .await
        .build();
    let mut client = modern(&house, "anna").await;
    let ends = over(Arc::clone(&store) as _, sharing(), tools)
        .await
        .build();
    store.allow();
    begin_another(&ends).await;
    pass(Duration::from_millis(100));
    store.allow();
    let id = begin(&mut client, "again", json!({ "mark": "m" })).await;
    store.claims_for_ever.store(true, Ordering::SeqCst);
    house.mcp_server.keep_tasks();
    take(&store.looked).await;
    for _ in 0..4 {
        pass(Duration::from_millis(60));
        let soon_us = now_us() + 80_000;
        wait_until("it says that it goes on", GENEROUS, || {
            let lapsed = store.inner.lapsed(soon_us).now_or_never();
            let lapsed = lapsed.expect("it is in memory").unwrap();
            lapsed.iter().all(|it| it.record.id.as_str() != id)
        })
        .await;
    }
}
