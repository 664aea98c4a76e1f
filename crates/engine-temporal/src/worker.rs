//! The side of a worker: it carries out the tasks that Temporal hands it.

use crate::{
    activity::{Activities, Worker, WorkerServer},
    connection::{Failed, connect},
    queue::Temporal,
    workflow::CarryOut,
};
use std::{
    fmt, io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use temporalio_sdk::{
    Runtime, WorkerOptions,
    runtime::worker_tuner::{FixedSizeSlotSupplier, TunerHolder},
};
use tokio::sync::{oneshot, watch};

/// The least time between two heartbeats that reach Temporal, which is how soon a worker hears that a task
/// was cancelled there.
const HEARTBEATS: Duration = Duration::from_secs(3);

/// Steps of workflows that a worker makes at once: each is a moment.
const WORKFLOWS: usize = 100;

/// Workflows whose state a worker keeps in memory.
const CACHED: usize = 1_000;

/// A worker could not begin.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    /// There is no queue of this name.
    #[error("there is no queue `{0}`; the queues are: {1}")]
    NoQueue(String, String),
    /// Temporal cannot be reached, or has refused the worker.
    #[error("a worker of the queue `{queue}` cannot begin at {address}")]
    Refused {
        /// Name of the queue.
        queue: String,
        /// Address of the Temporal server.
        address: String,
        /// Cause.
        #[source]
        source: Failed,
    },
    /// There is no thread for it.
    #[error("a thread cannot be started")]
    Thread(#[from] io::Error),
}

impl Temporal {
    /// Carries out the tasks of these queues, or of all if none is named: at most `calls` of each at once.
    ///
    /// # Errors
    ///
    /// [`WorkError`], in which case nothing is carried out.
    pub async fn work(
        &self,
        named: &[String],
        calls: usize,
        at: Arc<dyn WorkerServer>,
    ) -> Result<Running, WorkError> {
        let all: Vec<String> = self.queues().map(str::to_owned).collect();
        if let Some(unknown) = named.iter().find(|it| !all.contains(it)) {
            return Err(WorkError::NoQueue(unknown.clone(), all.join(", ")));
        }
        let queues = if named.is_empty() { &all } else { named };
        let running = Running::new();
        for queue in queues {
            let worker = Worker {
                at: Arc::clone(&at),
                server: Arc::clone(&self.server),
                stopping: Arc::clone(&running.stopping),
            };
            let ready = begin(worker, queue.clone(), calls, running.ends.clone())?;
            let refused = |source: Failed| WorkError::Refused {
                queue: queue.clone(),
                address: self.server.options().address.clone(),
                source,
            };
            let ready = ready.await.unwrap_or_else(|gone| Err(gone.into()));
            match ready {
                Ok(stop) => {
                    let mut stops = running.stops.lock().unwrap_or_else(PoisonError::into_inner);
                    stops.push(stop);
                }
                Err(error) => {
                    running.stop();
                    return Err(refused(error));
                }
            }
        }
        Ok(running)
    }
}

type Stop = Box<dyn Fn() + Send + Sync>;

/// Worker that runs. Dropping it ends nothing: [`stop`](Running::stop) does.
pub struct Running {
    stopping: Arc<AtomicBool>,
    stops: Mutex<Vec<Stop>>,
    ends: watch::Sender<Ends>,
}

/// The queues that are worked at.
#[derive(Debug, Default)]
struct Ends {
    left: usize,
    failure: Option<Arc<str>>,
}

impl Running {
    fn new() -> Self {
        Self {
            stopping: Arc::default(),
            stops: Mutex::default(),
            ends: watch::Sender::default(),
        }
    }

    /// Takes no more tasks. Those that are carried out go on.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let stops = self.stops.lock().unwrap_or_else(PoisonError::into_inner);
        for stop in stops.iter() {
            stop();
        }
    }

    /// Resolves when no queue is worked at any more, and everything is told to Temporal; or at the first failure.
    ///
    /// # Errors
    ///
    /// The failure.
    pub async fn ended(&self) -> Result<(), Failed> {
        let mut ends = self.ends.subscribe();
        let ends = ends.wait_for(|it| it.left == 0 || it.failure.is_some());
        match ends.await {
            Ok(ends) => match &ends.failure {
                Some(failure) => Err(failure.to_string().into()),
                None => Ok(()),
            },
            // The sender lives as long as `self`.
            Err(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("stopping", &self.stopping)
            .field("ends", &*self.ends.borrow())
            .finish_non_exhaustive()
    }
}

/// Begins a thread for a queue: the SDK's worker stays on one.
fn begin(
    worker: Worker,
    queue: String,
    calls: usize,
    ends: watch::Sender<Ends>,
) -> io::Result<oneshot::Receiver<Result<Stop, Failed>>> {
    let (tell_ready, ready) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = move || {
        let end = runtime.block_on(async {
            let (_runtime, mut made) = match make(worker, queue, calls).await {
                Ok(made) => made,
                Err(error) => {
                    let _ = tell_ready.send(Err(error));
                    return Ok(());
                }
            };
            ends.send_modify(|ends| ends.left += 1);
            let stop: Stop = Box::new(made.shutdown_handle());
            let _ = tell_ready.send(Ok(stop));
            let end = made.run().await;
            ends.send_modify(|ends| {
                ends.left -= 1;
                if let Err(error) = &end {
                    ends.failure.get_or_insert(error.to_string().into());
                }
            });
            end
        });
        if let Err(error) = end {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a worker of Temporal has failed"
            );
        }
    };
    thread::Builder::new()
        .name("temporal".to_owned())
        .spawn(work)?;
    Ok(ready)
}

async fn make(
    worker: Worker,
    queue: String,
    calls: usize,
) -> Result<(Runtime, temporalio_sdk::Worker), Failed> {
    let client = connect(worker.server.options()).await?;
    let runtime = Runtime::from_current_tokio(Default::default())?;
    let slots = FixedSizeSlotSupplier::new;
    let tuner = TunerHolder::builder()
        .workflow_task_slot_supplier(slots(WORKFLOWS))
        .activity_task_slot_supplier(slots(calls))
        .local_activity_task_slot_supplier(slots(1))
        .nexus_task_slot_supplier(slots(1))
        .build();
    let options = WorkerOptions::new(queue)
        .tuner(tuner)
        .max_cached_workflows(CACHED)
        .max_heartbeat_throttle_interval(HEARTBEATS)
        .register_activities(Activities(worker))
        .register_workflow::<CarryOut>()?
        .build();
    let worker = temporalio_sdk::Worker::new(&runtime, client, options)?;
    Ok((runtime, worker))
}
