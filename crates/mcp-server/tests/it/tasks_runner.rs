//! Calls of tasks that are carried out later, or somewhere else.

use crate::{
    house::{Client, House, Setup, block_on, now_us},
    tasks_house::{
        about, accept, ask, begin, calls, created, get, idle, legacy, modern, options, reaches,
        setup_over, text, update,
    },
};
use futures_util::future::BoxFuture;
use ledger::Outcome;
use mcp_server::{CallEnd, TaskCall, TaskRunner, Tasks};
use serde_json::json;
use std::{
    sync::Arc,
    thread::{JoinHandle, ThreadId},
};
use task_store::MemoryTaskStore;
use testkit::{GENEROUS, succeeded, wait_until};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, oneshot},
    task::{AbortHandle, JoinError},
};

/// One call after the other, in the order they came.
#[derive(Debug)]
struct OneAtATime {
    turn: Arc<Semaphore>,
}

impl TaskRunner for OneAtATime {
    fn carry_out(&self, call: TaskCall) -> BoxFuture<'static, CallEnd> {
        let turn = Arc::clone(&self.turn);
        Box::pin(async move {
            let turn = match Arc::clone(&turn).try_acquire_owned() {
                Ok(turn) => turn,
                Err(_) => {
                    call.put_off();
                    let Ok(turn) = turn.acquire_owned().await else {
                        return CallEnd::lost();
                    };
                    turn
                }
            };
            let end = call.await;
            drop(turn);
            end
        })
    }
}

/// On another runtime, with threads of its own.
#[derive(Debug)]
struct Elsewhere(Handle);

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl TaskRunner for Elsewhere {
    fn carry_out(&self, call: TaskCall) -> BoxFuture<'static, CallEnd> {
        let elsewhere = self.0.clone();
        Box::pin(async move {
            let carried_out = elsewhere.spawn(call);
            let _abort = AbortOnDrop(carried_out.abort_handle());
            let end: Result<CallEnd, JoinError> = carried_out.await;
            end.unwrap_or_else(|_| CallEnd::lost())
        })
    }
}

async fn setup(runner: impl TaskRunner) -> Setup {
    let store = Arc::new(MemoryTaskStore::new());
    let mut setup = setup_over(Arc::clone(&store) as _, options()).await;
    let tasks = Tasks::open_with(store, options(), now_us, Arc::new(runner)).await;
    setup.tasks = Some(tasks.unwrap());
    setup
}

async fn one_at_a_time() -> (House, Arc<Semaphore>) {
    let turn = Arc::new(Semaphore::new(1));
    let turns = Arc::clone(&turn);
    (setup(OneAtATime { turn }).await.build(), turns)
}

async fn one_of_each(house: &House) -> [Client; 2] {
    [modern(house, "anna").await, legacy(house, "bert").await]
}

#[tokio::test]
async fn who_has_to_wait_for_a_turn_has_a_task_meanwhile() {
    let (house, _) = one_at_a_time().await;
    let mut clients = one_of_each(&house).await;
    let first = begin(&mut clients[0], "long").await;
    house.bench.begun().await;
    let mut ids = Vec::new();
    for client in &mut clients {
        // Of a tool that would have been quick.
        ids.push(begin(client, "quick").await);
    }
    for (client, id) in clients.iter_mut().zip(&ids) {
        assert_eq!(get(client, id).await["status"], "working");
    }
    assert_eq!(house.bench.runs(), 1);
    house.bench.gate.notify_waiters();
    reaches(&mut clients[0], &first, "completed").await;
    for (client, id) in clients.iter_mut().zip(&ids) {
        reaches(client, id, "completed").await;
    }
    let answer = about(&mut clients[1], "tasks/result", &ids[1]).await;
    assert_eq!(text(&answer["result"]), "quick");
    idle(&house).await;
    // Nobody waited for a turn that was free.
    let answer = clients[0].call("quick", json!({})).await;
    assert_eq!(text(&answer["result"]), "quick");
    let outcomes = calls(&house).await;
    assert_eq!(outcomes.len(), 4);
    assert!(
        outcomes
            .iter()
            .all(|it| it.ended.outcome == Outcome::Succeeded)
    );
}

#[tokio::test]
async fn what_waits_for_its_turn_can_be_cancelled_and_is_never_begun() {
    let (house, turn) = one_at_a_time().await;
    let all = turn.acquire().await.unwrap();
    for mut client in one_of_each(&house).await {
        let id = begin(&mut client, "long").await;
        let answer = about(&mut client, "tasks/cancel", &id).await;
        assert!(succeeded(&answer), "{answer}");
        assert_eq!(get(&mut client, &id).await["status"], "cancelled");
    }
    idle(&house).await;
    drop(all);
    let mut client = modern(&house, "anna").await;
    let answer = client.call("quick", json!({})).await;
    assert_eq!(text(&answer["result"]), "quick");
    assert_eq!(house.bench.runs(), 1);
    assert_eq!(
        calls(&house).await.len(),
        1,
        "nothing else was to be recorded"
    );
}

#[tokio::test]
async fn what_is_refused_when_its_turn_comes_is_a_task_that_has_failed() {
    let (house, turn) = one_at_a_time().await;
    let all = turn.acquire().await.unwrap();
    let mut clients = one_of_each(&house).await;
    let mut ids = Vec::new();
    for client in &mut clients {
        ids.push(begin(client, "quick").await);
    }
    // Meanwhile nobody may call it any more.
    let policy = governance::PolicySpec {
        default: governance::Rules {
            deny: vec!["tool/quick".to_owned()],
            ..governance::Rules::default()
        },
        ..governance::PolicySpec::default()
    };
    let policy = governance::Policy::new(policy).unwrap();
    house.mcp_server.replace_policy(policy);
    drop(all);
    for (client, id) in clients.iter_mut().zip(&ids) {
        let status = match client.voice.is_modern() {
            true => "completed", // with a result that says `isError`
            false => "failed",
        };
        let task = reaches(client, id, status).await;
        let said = task["statusMessage"].as_str().unwrap();
        assert_eq!(said, "permission is missing for this capability");
    }
    let record = calls(&house).await;
    assert!(
        record.iter().all(|it| it.reason() == Some("permission")),
        "{record:?}"
    );
    assert_eq!((record.len(), house.bench.runs()), (2, 0));
}

#[tokio::test]
async fn a_runner_that_loses_calls_has_them_fail() {
    let (house, turn) = one_at_a_time().await;
    turn.close();
    let mut clients = one_of_each(&house).await;
    // Nobody can tell whether it comes to a task first.
    for client in &mut clients {
        let mut params = json!({ "name": "quick", "arguments": {} });
        if !client.voice.is_modern() {
            params["task"] = json!({});
        }
        let answer = ask(client, "tools/call", params).await;
        let error = match answer.get("error") {
            Some(error) => error.clone(),
            None => {
                let id = created(&answer);
                reaches(client, &id, "failed").await;
                let task = about(client, "tasks/get", &id).await;
                json!({ "message": task["result"]["statusMessage"] })
            }
        };
        assert_eq!(error["message"], "internal error");
    }
    idle(&house).await;
    assert_eq!(house.bench.runs(), 0);
}

/// A runtime in a thread of its own, until it is stopped.
struct OtherRuntime {
    handle: Handle,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl OtherRuntime {
    fn start() -> Self {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            block_on(async {
                tell.send(Handle::current()).unwrap();
                let _ = stopped.await;
            });
        });
        let handle = told.recv().unwrap();
        Self {
            handle,
            stop,
            thread,
        }
    }

    fn stop(self) {
        let _ = self.stop.send(());
        self.thread.join().unwrap();
    }
}

#[test]
fn calls_can_be_carried_out_on_another_runtime() {
    let other = OtherRuntime::start();
    block_on(async {
        let threads = Arc::new(std::sync::Mutex::new(Vec::<ThreadId>::new()));
        let mut setup = setup(Elsewhere(other.handle.clone())).await;
        let seen = Arc::clone(&threads);
        setup
            .more_tools
            .push(setup.bench.tool("where", json!({}), &[], move |_, _| {
                seen.lock().unwrap().push(std::thread::current().id());
                async { Ok("there".into()) }
            }));
        let house = setup.build();
        for mut client in one_of_each(&house).await {
            let mut params = json!({ "name": "where", "arguments": {} });
            if !client.voice.is_modern() {
                params["task"] = json!({});
            }
            ask(&mut client, "tools/call", params).await;
            // It asks, and is asked again.
            let id = begin(&mut client, "confirm").await;
            let task = reaches(&mut client, &id, "input_required").await;
            if client.voice.is_modern() {
                assert!(task["inputRequests"].get("confirm").is_some(), "{task}");
                update(&mut client, &id, json!({ "confirm": accept("yes") })).await;
                let task = reaches(&mut client, &id, "completed").await;
                assert_eq!(text(&task["result"]), "confirmed \"yes\"");
            }
            // It is given up where it is.
            let before = given_up(&house).await;
            let id = begin(&mut client, "long").await;
            house.bench.begun().await;
            about(&mut client, "tasks/cancel", &id).await;
            reaches(&mut client, &id, "cancelled").await;
            wait_until("the call is dropped", GENEROUS, || {
                house.mcp_server.recorder().health().open_calls == 0
            })
            .await;
            assert_eq!(given_up(&house).await, before + 1);
        }
        let threads = threads.lock().unwrap();
        assert_eq!(threads.len(), 2);
        assert!(!threads.contains(&std::thread::current().id()));
    });
}

async fn given_up(house: &House) -> usize {
    let record = calls(house).await;
    let cancelled = record.iter();
    cancelled
        .filter(|it| it.ended.outcome == Outcome::Cancelled)
        .count()
}

#[test]
fn a_call_whose_runtime_is_gone_has_failed() {
    let other = OtherRuntime::start();
    block_on(async {
        let house = setup(Elsewhere(other.handle.clone())).await.build();
        let mut client = modern(&house, "anna").await;
        let id = begin(&mut client, "long").await;
        house.bench.begun().await;
        other.stop();
        let task = reaches(&mut client, &id, "failed").await;
        assert_eq!(task["error"]["message"], "internal error");
        idle(&house).await;
    });
}
