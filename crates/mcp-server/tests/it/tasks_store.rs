//! Results of tasks outlive the process that ran them, and a store that is slow or fails.

use crate::{
    house::{Client, House, block_on, now_us, pass},
    tasks_house::{
        about, accept, begin, begin_with, calls, created, get, idle, knows_tasks, legacy, modern,
        options, reaches, setup_over, text, update,
    },
};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Either, select},
};
use ledger::Outcome;
use mcp_service::{Accepted, Connection, Outbox, Principal, TransportKind};
use serde_json::json;
use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use task_store::{
    Begun, Claimed, CreateError, Lapsed, Lease, MemoryTaskStore, Overseen, SqliteTaskStore,
    StoreError, TaskId, TaskLimits, TaskRecord, TaskState, TaskStore,
};
use testkit::{GENEROUS, MODERN, Voice, succeeded, wait_until};
use tokio::sync::Semaphore;

/// A store that takes its time to create, that fails to update and to remove, and that does not
/// come to the end of a claim or of what has expired.
#[derive(Debug)]
pub(crate) struct Moody {
    pub(crate) inner: MemoryTaskStore,
    /// Creations begin: one permit each.
    asked: Semaphore,
    /// Creations end: one permit each.
    allowed: Semaphore,
    pub(crate) failing: AtomicBool,
    /// Updates and removals have failed: one permit each.
    pub(crate) failed: Semaphore,
    /// One permit for each time the store was asked for lapsed tasks.
    pub(crate) looked: Semaphore,
    pub(crate) claims_for_ever: AtomicBool,
    forgets_for_ever: AtomicBool,
}

impl Moody {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryTaskStore::default(),
            asked: Semaphore::new(0),
            allowed: Semaphore::new(0),
            failing: AtomicBool::new(false),
            failed: Semaphore::new(0),
            looked: Semaphore::new(0),
            claims_for_ever: AtomicBool::new(false),
            forgets_for_ever: AtomicBool::new(false),
        })
    }

    /// Fails, if it is to.
    fn fail(&self) -> Result<(), StoreError> {
        if !self.failing.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.failed.add_permits(1);
        Err(StoreError("the disk is full".into()))
    }

    async fn house(self: &Arc<Self>) -> House {
        setup_over(Arc::clone(self) as _, options()).await.build()
    }

    pub(crate) async fn asked(&self) {
        take(&self.asked).await;
    }

    pub(crate) fn allow(&self) {
        self.allowed.add_permits(1);
    }

    /// Tasks of anna's that are stored, in the modern revision.
    async fn kept(&self) -> Vec<TaskRecord> {
        let listed = self.list("anna".to_owned(), MODERN.to_owned(), None, 100);
        listed.await.unwrap()
    }
}

pub(crate) async fn take(permits: &Semaphore) {
    let permit = tokio::time::timeout(GENEROUS, permits.acquire()).await;
    permit.expect("it comes to that").unwrap().forget();
}

impl TaskStore for Moody {
    fn create(
        &self,
        task: TaskRecord,
        begun: Begun,
        limits: TaskLimits,
    ) -> BoxFuture<'_, Result<(), CreateError>> {
        async move {
            self.asked.add_permits(1);
            self.allowed.acquire().await.unwrap().forget();
            self.inner.create(task, begun, limits).await
        }
        .boxed()
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<TaskRecord>, StoreError>> {
        self.inner.get(id)
    }

    fn keep_call(&self, id: TaskId, call: String) -> BoxFuture<'_, Result<(), StoreError>> {
        self.inner.keep_call(id, call)
    }

    fn update(&self, task: TaskRecord) -> BoxFuture<'_, Result<bool, StoreError>> {
        match self.fail() {
            Ok(()) => self.inner.update(task),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    fn oversee(
        &self,
        now_us: u64,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<Overseen>, StoreError>> {
        self.inner.oversee(now_us, after, most)
    }

    fn list(
        &self,
        principal: String,
        protocol_version: String,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        self.inner.list(principal, protocol_version, after, most)
    }

    fn remove(&self, id: TaskId) -> BoxFuture<'_, Result<(), StoreError>> {
        match self.fail() {
            Ok(()) => self.inner.remove(id),
            Err(error) => async { Err(error) }.boxed(),
        }
    }

    fn remove_expired(&self, now_us: u64) -> BoxFuture<'_, Result<usize, StoreError>> {
        if self.forgets_for_ever.load(Ordering::SeqCst) {
            return std::future::pending().boxed();
        }
        self.inner.remove_expired(now_us)
    }

    fn lapsed(&self, now_us: u64) -> BoxFuture<'_, Result<Vec<Lapsed>, StoreError>> {
        self.looked.add_permits(1);
        self.inner.lapsed(now_us)
    }

    fn claim(
        &self,
        task: TaskRecord,
        lease: Lease,
        now_us: u64,
    ) -> BoxFuture<'_, Result<Option<Claimed>, StoreError>> {
        if self.claims_for_ever.load(Ordering::SeqCst) {
            return std::future::pending().boxed();
        }
        self.inner.claim(task, lease, now_us)
    }

    fn renew(&self, lease: Lease) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>> {
        self.inner.renew(lease)
    }
}

#[tokio::test]
async fn nobody_is_told_of_a_task_before_it_is_stored_and_the_call_goes_on_meanwhile() {
    let store = Moody::new();
    let house = store.house().await;
    let mut client = modern(&house, "anna").await;
    let call = client.begin_call("long", json!({})).await;
    store.asked().await;
    house.bench.begun().await;
    house.bench.gate.notify_waiters();
    wait_until("the call is over", GENEROUS, || {
        house.mcp_server.recorder().health().open_calls == 0
    })
    .await;
    assert!(client.settle().await.is_empty());
    store.allow();
    let id = created(&client.receive_answer(&call).await);
    let task = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&task["result"]), "done");
    idle(&house).await;
}

#[tokio::test]
async fn of_a_client_that_leaves_while_its_task_is_stored_nothing_stays() {
    for wants_task in [false, true] {
        let store = Moody::new();
        let house = store.house().await;
        let mut client = if wants_task {
            legacy(&house, "anna").await
        } else {
            modern(&house, "anna").await
        };
        let task = wants_task.then(|| json!({}));
        let mut params = json!({ "name": "long", "arguments": {} });
        if let Some(task) = task {
            params["task"] = task;
        }
        client.begin("tools/call", params).await;
        store.asked().await;
        client.close_input();
        client.serving.await.unwrap();
        store.allow();
        idle(&house).await;
        wait_until("nothing is unfinished", GENEROUS, || {
            store
                .lapsed(u64::MAX)
                .now_or_never()
                .unwrap()
                .unwrap()
                .is_empty()
        })
        .await;
        let record = calls(&house).await;
        assert!(
            record
                .iter()
                .all(|it| it.ended.outcome == Outcome::Cancelled),
            "{record:?}"
        );
        assert_eq!(record.is_empty(), wants_task, "it runs once it is a task");
    }
}

#[tokio::test]
async fn a_task_that_is_stored_while_the_server_closes_is_none() {
    let store = Moody::new();
    let house = store.house().await;
    let mut client = modern(&house, "anna").await;
    let mut older = legacy(&house, "anna").await;
    let call = client.begin_call("long", json!({})).await;
    store.asked().await;
    let params = json!({ "name": "quick", "arguments": {}, "task": {} });
    let as_task = older.begin("tools/call", params).await;
    store.asked().await;
    house
        .mcp_server
        .tasks()
        .unwrap()
        .close(Duration::ZERO)
        .await;
    store.allow();
    store.allow();
    let refused = older.receive_answer(&as_task).await;
    assert_eq!(refused["error"]["message"], "the server is stopping");
    assert!(client.settle().await.is_empty(), "it goes on waiting");
    house.bench.begun().await;
    house.bench.gate.notify_waiters();
    let answer = client.receive_answer(&call).await;
    assert_eq!(text(&answer["result"]), "done", "{answer}");
    assert!(store.lapsed(u64::MAX).await.unwrap().is_empty());
    assert!(store.kept().await.is_empty());
    assert_eq!(house.bench.runs(), 1);
}

#[tokio::test]
async fn what_comes_of_a_task_is_told_once_it_is_stored() {
    let store = Moody::new();
    let house = store.house().await;
    let mut client = modern(&house, "anna").await;
    store.allow();
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    store.failing.store(true, Ordering::SeqCst);
    house.bench.gate.notify_waiters();
    take(&store.failed).await;
    assert_eq!(get(&mut client, &id).await["status"], "working");
    // It is over, and too late to be cancelled.
    let cancelling = client.begin("tasks/cancel", json!({ "taskId": id })).await;
    take(&store.failed).await;
    store.failing.store(false, Ordering::SeqCst);
    let answer = client.receive_answer(&cancelling).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    let task = get(&mut client, &id).await;
    assert_eq!(task["status"], "completed");
    assert!(matches!(
        store.kept().await[0].state,
        TaskState::Completed { .. }
    ));
    idle(&house).await;
}

#[test]
fn the_next_server_finds_what_came_of_tasks_and_fails_what_was_not_done() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    let open = || Arc::new(SqliteTaskStore::open(&path).unwrap());
    let (done, running, asking, task) = block_on(async {
        let house = setup_over(open(), options()).await.build();
        let mut client = modern(&house, "anna").await;
        let done = begin(&mut client, "job_failed").await;
        let task = reaches(&mut client, &done, "completed").await;
        let running = begin(&mut client, "long").await;
        let asking = begin(&mut client, "both").await;
        reaches(&mut client, &asking, "input_required").await;
        update(&mut client, &asking, json!({ "one": accept("a") })).await;
        (done, running, asking, task)
    });
    block_on(async {
        let house = setup_over(open(), options()).await.build();
        let mut client = modern(&house, "anna").await;
        assert_eq!(get(&mut client, &done).await, task);
        assert_eq!(get(&mut client, &running).await["status"], "working");
        house.mcp_server.keep_tasks();
        for id in [&running, &asking] {
            let task = reaches(&mut client, id, "failed").await;
            assert_eq!(task["error"]["data"]["retryable"], false);
            assert_eq!(task["error"]["code"], -32603);
            let why = "the server stopped before the call had ended";
            assert_eq!(task["error"]["message"], why);
            assert_eq!(task["statusMessage"], why);
            let answer = about(&mut client, "tasks/cancel", id).await;
            assert!(succeeded(&answer), "{answer}");
            let answer = update(&mut client, id, json!({ "two": accept("b") })).await;
            assert!(succeeded(&answer), "{answer}");
            assert_eq!(get(&mut client, id).await, task, "it stays so");
        }
        idle(&house).await;
        // And it is no less private.
        let mut other = modern(&house, "bert").await;
        let answer = about(&mut other, "tasks/get", &done).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    });
}

#[test]
fn a_task_is_in_the_file_before_its_client_hears_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tasks.db");
    let open = || Arc::new(SqliteTaskStore::open(&path).unwrap());
    // The server is gone as soon as the answer is there.
    let ids = block_on(async {
        let house = setup_over(open(), options()).await.build();
        let new = begin(&mut modern(&house, "anna").await, "long").await;
        let old = begin(&mut legacy(&house, "anna").await, "long").await;
        [(MODERN, new), ("2025-11-25", old)]
    });
    let store = open();
    block_on(async {
        for (version, id) in ids {
            let record = store.get(id.parse().unwrap()).await.unwrap();
            let record = record.expect("it is stored");
            assert_eq!(record.principal, "anna");
            assert_eq!(record.capability, "tool/long");
            assert_eq!(record.protocol_version, version);
            assert_eq!(record.created_us, now_us());
            assert!(!record.state.is_terminal());
        }
    });
}

async fn long(house: &House) -> (Client, String) {
    let mut client = modern(house, "anna").await;
    let id = begin(&mut client, "long").await;
    house.bench.begun().await;
    (client, id)
}

#[tokio::test]
async fn a_server_that_closes_lets_tasks_end_in_time() {
    let store = Arc::new(MemoryTaskStore::default());
    let house = setup_over(Arc::clone(&store) as _, options()).await.build();
    let (mut client, id) = long(&house).await;
    let tasks = Arc::clone(house.mcp_server.tasks().unwrap());
    let closing = tokio::spawn(async move { tasks.close(GENEROUS).await });
    // What comes meanwhile is no task.
    while !closing.is_finished() && house.mcp_server.tasks().unwrap().running() == 1 {
        let answer = client.call("name_first", json!({})).await;
        assert_eq!(answer["result"]["resultType"], "input_required");
        let mut older = legacy(&house, "anna").await;
        let refused = begin_with(&mut older, "quick", json!({})).await;
        if refused.get("error").is_some() {
            assert_eq!(refused["error"]["message"], "the server is stopping");
            assert_eq!(refused["error"]["data"]["retryable"], true);
            break;
        }
    }
    house.bench.gate.notify_waiters();
    closing.await.unwrap();
    let task = get(&mut client, &id).await;
    assert_eq!(task["status"], "completed");
    let record = store.get(id.parse().unwrap()).await.unwrap().unwrap();
    assert!(matches!(record.state, TaskState::Completed { .. }));
}

#[tokio::test]
async fn a_task_whose_tool_has_returned_is_not_cut_short_while_its_end_goes_on_record() {
    let store = Arc::new(MemoryTaskStore::default());
    let house = setup_over(Arc::clone(&store) as _, options()).await.build();
    let (_client, id) = long(&house).await;
    house.ledger.set_failing(true);
    house.bench.gate.notify_waiters();
    wait_until("the ledger fails", GENEROUS, || {
        !house.mcp_server.health().is_ok()
    })
    .await;
    let tasks = Arc::clone(house.mcp_server.tasks().unwrap());
    let closing = tokio::spawn(async move { tasks.close(Duration::ZERO).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    house.ledger.set_failing(false);
    closing.await.unwrap();
    let record = store.get(id.parse().unwrap()).await.unwrap().unwrap();
    assert!(
        matches!(record.state, TaskState::Completed { .. }),
        "{record:?}"
    );
    let calls = calls(&house).await;
    let outcomes: Vec<_> = calls.iter().map(|it| it.ended.outcome.clone()).collect();
    assert_eq!(outcomes, [Outcome::Succeeded]);
}

#[tokio::test]
async fn a_server_that_closes_ends_the_tasks_that_are_left() {
    let store = Arc::new(MemoryTaskStore::default());
    let house = setup_over(Arc::clone(&store) as _, options()).await.build();
    let (mut client, id) = long(&house).await;
    let asking = begin(&mut client, "both").await;
    let mut older = legacy(&house, "anna").await;
    let waited_for = begin(&mut older, "long").await;
    let params = json!({ "taskId": waited_for });
    let waiting = older.begin("tasks/result", params).await;
    house
        .mcp_server
        .tasks()
        .unwrap()
        .close(Duration::ZERO)
        .await;
    assert_eq!(house.mcp_server.tasks().unwrap().running(), 0);
    for id in [&id, &asking] {
        let task = get(&mut client, id).await;
        assert_eq!(task["status"], "failed", "{task}");
        let why = "the server stopped before the call had ended";
        assert_eq!(task["statusMessage"], why);
        let record = store.get(id.parse().unwrap()).await.unwrap().unwrap();
        assert!(matches!(record.state, TaskState::Failed { .. }));
    }
    let answer = older.receive_answer(&waiting).await;
    assert_eq!(answer["error"]["code"], -32603, "{answer}");
    let given_up = calls(&house).await;
    let given_up = given_up
        .iter()
        .filter(|it| it.ended.outcome == Outcome::Cancelled);
    assert_eq!(given_up.count(), 2);
    idle(&house).await;
}

#[tokio::test]
async fn a_server_that_has_closed_has_let_go_of_every_call() {
    let house = crate::tasks_house::house().await;
    let engine = house.mcp_server.engine();
    let outbox = Outbox::default();
    let connection = Connection::new(
        Principal::new("anna"),
        TransportKind::Stdio,
        None,
        outbox.clone(),
    );
    let mut voice = Voice::default();
    voice.speak(MODERN);
    voice.capabilities = knows_tasks();
    let params = json!({ "name": "wait", "arguments": {} });
    let frame = voice.request("tools/call", params).to_string();
    let Accepted::Pending(exchange) = engine.accept(&connection, &frame.into(), &outbox) else {
        panic!("it waits");
    };
    let begun = pin!(house.bench.begun());
    let Either::Right(((), exchange)) = select(exchange, begun).await else {
        panic!("it waits");
    };
    // Its caller has left, and what carries it out need not have heard of it yet.
    drop(exchange);
    assert_eq!(house.bench.dropped(), 0);
    house
        .mcp_server
        .tasks()
        .unwrap()
        .close(Duration::ZERO)
        .await;
    assert_eq!(house.bench.dropped(), 1);
    assert_eq!(house.mcp_server.recorder().health().open_calls, 0);
}

#[tokio::test]
async fn a_task_that_runs_when_its_time_is_over_has_failed() {
    let house = crate::tasks_house::house().await;
    let mut client = legacy(&house, "anna").await;
    let id = created(&begin_with(&mut client, "long", json!({ "ttl": 1 })).await);
    house.bench.begun().await;
    let told = client.receive().await;
    assert_eq!(told["method"], "notifications/tasks/status");
    assert_eq!(told["params"]["taskId"], id);
    assert_eq!(told["params"]["status"], "failed");
    assert_eq!(told["params"]["statusMessage"], "the task has expired");
    assert_eq!(calls(&house).await[0].ended.outcome, Outcome::Cancelled);
    idle(&house).await;
}

#[tokio::test]
async fn nobody_waits_for_what_has_expired_to_be_forgotten() {
    let store = Moody::new();
    store.forgets_for_ever.store(true, Ordering::SeqCst);
    let house = tokio::time::timeout(GENEROUS, store.house()).await;
    let house = house.expect("it does not wait");
    let mut client = modern(&house, "anna").await;
    for _ in 0..2 {
        store.allow();
        let id = begin(&mut client, "long").await;
        assert_eq!(get(&mut client, &id).await["status"], "working");
        pass(Duration::from_secs(120));
    }
}
