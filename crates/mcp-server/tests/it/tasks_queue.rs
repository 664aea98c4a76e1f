//! Calls that wait in a queue for a worker, which is another server over the same store.

use crate::{
    house::{House, Setup, now_us, pass},
    tasks_house::{about, begin, calls, get, idle, modern, options, reaches, setup_over, text},
};
use futures_util::{FutureExt, future::BoxFuture};
use mcp_server::{QueueError, RunHere, Standing, TakenUp, TaskCall, TaskQueue, TaskRunner, Tasks};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use task_store::{MemoryTaskStore, TaskId, TaskState, TaskStore};
use testkit::{GENEROUS, succeeded, wait_until};

/// A queue of all tools, of which the test is the engine.
#[derive(Clone, Debug)]
struct Queue(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    added: Mutex<Vec<TaskId>>,
    removed: Mutex<Vec<TaskId>>,
    standing: Mutex<Result<Standing, ()>>,
}

impl Queue {
    fn new() -> Self {
        Self(Arc::new(Inside {
            added: Mutex::default(),
            removed: Mutex::default(),
            standing: Mutex::new(Ok(Standing::Queued)),
        }))
    }

    fn added(&self) -> Vec<TaskId> {
        self.0.added.lock().unwrap().clone()
    }
}

impl TaskRunner for Queue {
    fn carry_out(&self, call: TaskCall) -> BoxFuture<'static, mcp_server::CallEnd> {
        RunHere.carry_out(call)
    }

    fn queue(&self, _: &str) -> Option<Arc<dyn TaskQueue>> {
        Some(Arc::new(self.clone()))
    }
}

impl TaskQueue for Queue {
    fn add(&self, task: TaskId, _: Duration) -> BoxFuture<'static, Result<Standing, QueueError>> {
        self.0.added.lock().unwrap().push(task);
        let standing = *self.0.standing.lock().unwrap();
        async move { standing.map_err(|()| QueueError("it is down".into())) }.boxed()
    }

    fn remove(&self, task: TaskId) -> BoxFuture<'static, Result<(), QueueError>> {
        self.0.removed.lock().unwrap().push(task);
        async { Ok(()) }.boxed()
    }
}

/// A server and a worker over one store.
struct Both {
    queue: Queue,
    store: Arc<MemoryTaskStore>,
    server: House,
    worker: House,
}

async fn both() -> Both {
    let (queue, store) = (Queue::new(), Arc::new(MemoryTaskStore::new()));
    let server = setup(&queue, &store).await.build();
    let worker = setup(&queue, &store).await.build();
    Both {
        queue,
        store,
        server,
        worker,
    }
}

async fn setup(queue: &Queue, store: &Arc<MemoryTaskStore>) -> Setup {
    let options = options();
    let mut setup = setup_over(Arc::clone(store) as _, options).await;
    let (store, queue) = (Arc::clone(store), Arc::new(queue.clone()));
    let tasks = Tasks::open_with(store, options, now_us, queue).await;
    setup.tasks = Some(tasks.unwrap());
    setup
}

#[tokio::test]
async fn a_worker_carries_a_queued_call_out_once() {
    let both = both().await;
    both.worker.mcp_server.keep_taken_tasks();
    let mut client = modern(&both.server, "anna").await;
    let id = begin(&mut client, "quick").await;
    let task: TaskId = id.parse().unwrap();
    wait_until("it is queued", GENEROUS, || {
        both.queue.added() == [task.clone()]
    })
    .await;
    assert_eq!(get(&mut client, &id).await["status"], "working");
    assert_eq!((both.server.bench.runs(), both.worker.bench.runs()), (0, 0));
    // The engine may hand it out twice.
    let TakenUp::Begun(work) = both.worker.mcp_server.take_queued(&task).await.unwrap() else {
        panic!("it was to be begun");
    };
    assert!(work.ended().await, "it is over, and not left");
    let again = both.worker.mcp_server.take_queued(&task).await.unwrap();
    assert!(matches!(again, TakenUp::Over), "{again:?}");
    let seen = reaches(&mut client, &id, "completed").await;
    assert_eq!(text(&seen["result"]), "quick");
    assert_eq!((both.server.bench.runs(), both.worker.bench.runs()), (0, 1));
    idle(&both.worker).await;
    assert_eq!(calls(&both.worker).await.len(), 1);
    assert_eq!(calls(&both.server).await.len(), 0);
}

#[tokio::test]
async fn a_queued_call_that_its_client_cancels_is_never_begun() {
    let both = both().await;
    let mut client = modern(&both.server, "anna").await;
    let id = begin(&mut client, "quick").await;
    let task: TaskId = id.parse().unwrap();
    let answer = about(&mut client, "tasks/cancel", &id).await;
    assert!(succeeded(&answer), "{answer}");
    assert_eq!(get(&mut client, &id).await["status"], "cancelled");
    let taken = both.worker.mcp_server.take_queued(&task).await.unwrap();
    assert!(matches!(taken, TakenUp::Over), "{taken:?}");
    assert_eq!(both.worker.bench.runs(), 0);
    wait_until("the queue is told", GENEROUS, || {
        *both.queue.0.removed.lock().unwrap() == [task.clone()]
    })
    .await;
}

#[tokio::test]
async fn a_call_that_a_dead_worker_has_begun_is_not_begun_again() {
    let both = both().await;
    let mut client = modern(&both.server, "anna").await;
    let id = begin(&mut client, "long").await;
    let task: TaskId = id.parse().unwrap();
    let taken = both.worker.mcp_server.take_queued(&task).await.unwrap();
    assert!(matches!(taken, TakenUp::Begun(_)), "{taken:?}");
    both.worker.bench.begun().await;
    // Another worker finds nothing to do while the first may be alive.
    let other = setup(&both.queue, &both.store).await.build();
    let taken = other.mcp_server.take_queued(&task).await.unwrap();
    assert!(matches!(taken, TakenUp::NotNow), "{taken:?}");
    // The first does not renew its lease.
    pass(options().lease);
    let taken = other.mcp_server.take_queued(&task).await.unwrap();
    assert!(matches!(taken, TakenUp::Over), "{taken:?}");
    let seen = reaches(&mut client, &id, "failed").await;
    assert_eq!(seen["error"]["data"]["retryable"], false, "{seen}");
    assert_eq!((both.worker.bench.runs(), other.bench.runs()), (1, 0));
}

#[tokio::test]
async fn a_task_that_its_queue_has_cancelled_is_cancelled_by_a_server() {
    let both = both().await;
    let mut client = modern(&both.server, "anna").await;
    *both.queue.0.standing.lock().unwrap() = Err(());
    let id = begin(&mut client, "quick").await;
    let task: TaskId = id.parse().unwrap();
    // The queue was not to be reached, and is asked again.
    *both.queue.0.standing.lock().unwrap() = Ok(Standing::Cancelled);
    both.server.mcp_server.keep_tasks();
    reaches(&mut client, &id, "cancelled").await;
    assert!(1 < both.queue.added().len());
    let record = both.store.get(task).await.unwrap().unwrap();
    assert_eq!(record.state, TaskState::Cancelled);
    assert_eq!(both.server.bench.runs(), 0);
}
