//! Records to try things with.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]
#![allow(dead_code, reason = "not every test needs all of it")]

use cluster::{Cluster, ClusterOptions, PostgresTaskStore, TimeSource};
use task_store::{
    Begun, Lease, SqliteTaskStore, TaskId, TaskLimits, TaskRecord, TaskState, TaskStore,
};
use tempfile::TempDir;
use testkit::Postgres;

pub(crate) const LIMITS: TaskLimits = TaskLimits {
    max_total: 10_000,
    max_per_principal: 1_000,
};

/// A task of alice that began at `created_us` and expires a thousand later.
pub(crate) fn task(created_us: u64) -> TaskRecord {
    TaskRecord {
        id: TaskId::random(),
        principal: "alice".to_owned(),
        capability: "tool/report".to_owned(),
        protocol_version: "2026-07-28".to_owned(),
        created_us,
        updated_us: created_us,
        expires_us: created_us + 1_000,
        sequence: 1,
        state: TaskState::Working,
        message: None,
    }
}

/// Lease of a process that keeps its task throughout a test.
pub(crate) fn begun() -> Begun {
    Begun {
        lease: lease("first", 0),
        call: None,
    }
}

pub(crate) fn lease(owner: &str, until_us: u64) -> Lease {
    Lease {
        owner: owner.to_owned(),
        until_us,
    }
}

/// The tasks that are not over, whosever they are.
pub(crate) async fn not_over(store: &dyn TaskStore) -> Vec<TaskRecord> {
    let lapsed = store.lapsed(u64::MAX).await.unwrap();
    lapsed.into_iter().map(|it| it.record).collect()
}

/// The next record of a task.
pub(crate) fn next(task: &TaskRecord, state: TaskState) -> TaskRecord {
    TaskRecord {
        updated_us: task.updated_us + 1,
        sequence: task.sequence + 1,
        state,
        ..task.clone()
    }
}

/// One of each kind, with texts that are not nice.
pub(crate) fn states() -> Vec<TaskState> {
    vec![
        TaskState::Working,
        TaskState::InputRequired {
            requests: r#"{"a":{"method":"elicitation/create"}}"#.to_owned(),
        },
        TaskState::Completed {
            result: "{\"content\":[{\"text\":\"'\\u0000\0 会 \u{10ffff}\"}]}\n".to_owned(),
            is_error: false,
        },
        TaskState::Completed {
            result: String::new(),
            is_error: true,
        },
        TaskState::Failed {
            error: r#"{"code":-32603,"message":"x"}"#.to_owned(),
        },
        TaskState::Cancelled,
    ]
}

pub(crate) fn completed() -> TaskState {
    TaskState::Completed {
        result: "{}".to_owned(),
        is_error: false,
    }
}

/// A new store in a directory that goes with it.
pub(crate) fn new_sqlite() -> (SqliteTaskStore, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let store = SqliteTaskStore::open(directory.path().join("tasks.sqlite")).unwrap();
    (store, directory)
}

/// Tries a claim on a new store in PostgreSQL, where that is installed.
pub(crate) fn on_postgres(claim: impl AsyncFnOnce(&PostgresTaskStore)) {
    let Some(postgres) = Postgres::shared() else {
        return;
    };
    let url = postgres.fresh_database();
    // The tests block threads, which are not to be those that carry the connection.
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let options = ClusterOptions {
            time: TimeSource::Callers,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::open(&url, options).await.unwrap();
        claim(&cluster.tasks()).await;
    });
}

/// Runs a future on a runtime of its own.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}
