//! Calls whose results are fetched later: the Tasks extension (`io.modelcontextprotocol/tasks`) of
//! 2026-07-28, and the experimental tasks of 2025-11-25, which it replaces.

use super::InputRetry;
use jsonrpc_core::RawJson;
use serde::{Deserialize, Serialize};

/// The extension's name among a client's and a server's capabilities.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

/// The entry of `_meta` that says which task a message of 2025-11-25 belongs to.
pub const RELATED_TASK: &str = "io.modelcontextprotocol/related-task";

/// Capabilities of a server for tasks, besides having them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TasksCapability {
    /// True if clients can list their tasks; revision 2025-11-25 alone has it. Only for servers
    /// that can tell their clients apart.
    pub list: bool,
}

/// Support of a tool for calls as tasks. Clients see it in 2025-11-25 alone.
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

/// Members that a client of 2025-11-25 adds to a call that is to be a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRequest {
    /// Time for which it wants the task to be kept, in milliseconds from its creation.
    pub ttl_ms: Option<u64>,
}

/// A call whose result is fetched later.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Id of the task; it cannot be guessed.
    pub id: String,
    /// State of the task.
    pub state: TaskState,
    /// Description of the current work, for people.
    pub status_message: Option<String>,
    /// Time of creation (RFC 3339).
    pub created_at: String,
    /// Time of the last change (RFC 3339).
    pub last_updated_at: String,
    /// Time for which it is kept from its creation on, in milliseconds; `None` for ever.
    pub ttl_ms: Option<u64>,
    /// Shortest interval between two requests for its state, in milliseconds.
    pub poll_interval_ms: Option<u64>,
}

/// State of a task. The last three are for good.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    /// The task runs.
    Working,
    /// The task waits for its client's answers.
    InputRequired {
        /// Questions by key: an object as [`encode_input_requests`](crate::encode_input_requests)
        /// makes it. A key is never used twice in a task's life.
        requests: RawJson,
    },
    /// The call has a result.
    Completed {
        /// Result that the call would have been answered with.
        result: RawJson,
        /// True if the tool ran and failed. Revision 2025-11-25 calls such a task failed; the
        /// extension keeps that word for [`TaskState::Failed`].
        is_error: bool,
    },
    /// The call could not be answered.
    Failed {
        /// The JSON-RPC error that it would have been answered with.
        error: RawJson,
    },
    /// The task was cancelled by its client.
    Cancelled,
}

impl TaskState {
    /// Returns true if the state is final.
    pub fn is_terminal(&self) -> bool {
        !matches!(self, Self::Working | Self::InputRequired { .. })
    }
}

/// `tasks/update`: answers to what a task has asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpdateTask {
    /// Id of the task.
    pub id: String,
    /// The answers, by the questions' keys; never a state.
    pub answers: InputRetry,
}

/// A page of a client's tasks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListTasksResult {
    /// The page, newest first.
    pub tasks: Vec<Task>,
    /// Cursor of the next page, if there is one.
    pub next_cursor: Option<String>,
}
