//! Calls whose results are fetched later: the Tasks extension (`io.modelcontextprotocol/tasks`) of
//! 2026-07-28, and the experimental tasks of 2025-11-25, which it replaces.

use super::InputRetry;
use jsonrpc_core::RawJson;
use serde::{Deserialize, Serialize};

/// The extension's name among a client's and a server's capabilities.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The entry of `_meta` that says which task a message of 2025-11-25 belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// What a server offers of tasks, besides having them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TasksCapability {
    /// Whether clients can list theirs; revision 2025-11-25 alone has it. Only for servers that can
    /// tell their clients apart.
    pub list: bool,
}

/// Whether a tool's calls can be tasks. Clients hear of it in 2025-11-25 alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskSupport {
    /// Never.
    #[default]
    Forbidden,
    /// For clients that know tasks.
    Optional,
    /// Always: clients that do not know tasks cannot call it.
    Required,
}

/// What a client of 2025-11-25 adds to a call that is to be a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRequest {
    /// How long it wants the task to be kept, in milliseconds from its creation.
    pub ttl_ms: Option<u64>,
}

/// A call whose result is fetched later.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Names it; nobody else can guess it.
    pub id: String,
    /// How far it has come.
    pub state: TaskState,
    /// What is going on, for people.
    pub status_message: Option<String>,
    /// When it was created (RFC 3339).
    pub created_at: String,
    /// When it last changed (RFC 3339).
    pub last_updated_at: String,
    /// How long it is kept from its creation on, in milliseconds; `None` for ever.
    pub ttl_ms: Option<u64>,
    /// How often to ask for it at most, in milliseconds.
    pub poll_interval_ms: Option<u64>,
}

/// How far a task has come. The last three are for good.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    /// It runs.
    Working,
    /// It waits for its client's answers.
    InputRequired {
        /// What is asked, by key: an object as [`encode_input_requests`](crate::encode_input_requests)
        /// makes it. A key is never used twice in a task's life.
        requests: RawJson,
    },
    /// The call has a result.
    Completed {
        /// What the call would have been answered with.
        result: RawJson,
        /// Whether the tool ran and failed. Revision 2025-11-25 calls such a task failed; the
        /// extension keeps that word for [`TaskState::Failed`].
        is_error: bool,
    },
    /// The call could not be answered.
    Failed {
        /// The JSON-RPC error that it would have been answered with.
        error: RawJson,
    },
    /// Its client did not want it any more.
    Cancelled,
}

impl TaskState {
    /// Whether it stays like this.
    pub fn is_terminal(&self) -> bool {
        !matches!(self, Self::Working | Self::InputRequired { .. })
    }
}

/// `tasks/update`: answers to what a task has asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateTask {
    /// Which task.
    pub id: String,
    /// The answers, by the questions' keys; never a state.
    pub answers: InputRetry,
}

/// A page of a client's tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListTasksResult {
    /// The page, newest first.
    pub tasks: Vec<Task>,
    /// Where the next page begins, if there is one.
    pub next_cursor: Option<String>,
}
