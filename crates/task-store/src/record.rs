use crate::TaskId;

/// The most bytes that the texts of a record have together: 64 MiB. It is a safeguard of the store;
/// producers of results have bounds of their own.
pub const MAX_RECORD_BYTES: usize = 64 * 1024 * 1024;

/// Record of a task. Times are microseconds since the epoch, UTC, and at most 2^63 - 1, like the
/// sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskRecord {
    /// Id of the task. Never changes.
    pub id: TaskId,
    /// Principal that the task belongs to. Never changes.
    pub principal: String,
    /// Capability that was called, as policies name it: `tool/NAME`. Never changes.
    pub capability: String,
    /// The revision of the protocol that the result is shaped for. It never changes.
    pub protocol_version: String,
    /// Time of creation. Never changes.
    pub created_us: u64,
    /// Time of the last change.
    pub updated_us: u64,
    /// From when on it may be forgotten.
    pub expires_us: u64,
    /// 1 when it is created; one more with every change.
    pub sequence: u64,
    /// State of the task.
    pub state: TaskState,
    /// Message on its progress, for people.
    pub message: Option<String>,
}

/// State of a task. The texts are JSON objects for the store's users; the store itself does not
/// look into them.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskState {
    /// The task runs.
    Working,
    /// The task waits for answers.
    InputRequired {
        /// The questions: a JSON object of keys and questions.
        requests: String,
    },
    /// The task has a result.
    Completed {
        /// Result: a JSON object.
        result: String,
        /// True if the result reports an error of the tool.
        is_error: bool,
    },
    /// The task ended without a result.
    Failed {
        /// Reason: a JSON-RPC error object.
        error: String,
    },
    /// The task was cancelled by its client.
    Cancelled,
}

impl TaskState {
    /// Returns true if no other state can follow.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        match self {
            Self::Working | Self::InputRequired { .. } => false,
            Self::Completed { .. } | Self::Failed { .. } | Self::Cancelled => true,
        }
    }

    /// One of `working`, `input_required`, `completed`, `failed` and `cancelled`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::InputRequired { .. } => "input_required",
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// The text that comes with it; empty if it has none.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::InputRequired { requests: text }
            | Self::Completed { result: text, .. }
            | Self::Failed { error: text } => text,
            Self::Working | Self::Cancelled => "",
        }
    }

    /// The same with an empty text.
    pub(crate) fn without_text(&self) -> Self {
        match self {
            Self::Working => Self::Working,
            Self::InputRequired { .. } => Self::InputRequired {
                requests: String::new(),
            },
            Self::Completed { is_error, .. } => Self::Completed {
                result: String::new(),
                is_error: *is_error,
            },
            Self::Failed { .. } => Self::Failed {
                error: String::new(),
            },
            Self::Cancelled => Self::Cancelled,
        }
    }
}

/// The right of one process to carry a task on, for a time. Until it has run out, no other process
/// [claims](crate::TaskStore::claim) the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Process that has the lease: each start of each server has a name of its own.
    pub owner: String,
    /// Until when: microseconds since the epoch, at most 2^63 - 1.
    pub until_us: u64,
}

impl Lease {
    fn check(&self) -> Result<(), RecordError> {
        i64::try_from(self.until_us).map_or(Err(RecordError::LargeNumber), |_| Ok(()))
    }
}

/// Data that a task begins with besides its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Lease of the process that carries it out.
    pub lease: Lease,
    /// Text with which it can be begun again, if it may be; the store does not look into it.
    /// Deleted when the task is over.
    pub call: Option<String>,
}

/// A task whose lease has run out.
#[derive(Clone, Debug, PartialEq)]
pub struct Lapsed {
    /// The task.
    pub record: TaskRecord,
    /// Number of times it was begun.
    pub attempt: u64,
    /// True if it is stored what it takes to go on with it.
    pub has_call: bool,
}

/// A task as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct Overseen {
    /// The task, with the texts of its state left empty.
    pub record: TaskRecord,
    /// Process that carries it out; `None` of a task that is over.
    pub run: Option<Run>,
}

/// A process's right to a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Process that has the right.
    pub owner: String,
    /// Number of times the task was begun.
    pub attempt: u64,
    /// Microseconds for which the right lasts; none if it has run out.
    pub left_us: u64,
}

/// A task that was taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// Number of times it was begun, this time included.
    pub attempt: u64,
    /// [`Begun::call`].
    pub call: Option<String>,
}

/// Reason why a record is refused by every store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A first record whose sequence is not 1.
    #[error("a task begins with sequence 1")]
    NotFirst,
    /// A time or sequence above 2^63 - 1.
    #[error("a time or sequence of a task is larger than 2^63 - 1")]
    LargeNumber,
    /// Texts of more than [`MAX_RECORD_BYTES`].
    #[error("the texts of a task have more than {MAX_RECORD_BYTES} bytes")]
    LargeText,
    /// Another task has the name.
    #[error("there is another task of this name")]
    Taken,
    /// A claim of a task that is over.
    #[error("a task that is over is not begun again")]
    Over,
}

impl TaskRecord {
    /// Checks that the record fits into any store, so that all stores refuse the same.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub fn check(&self) -> Result<(), RecordError> {
        let numbers = [
            self.created_us,
            self.updated_us,
            self.expires_us,
            self.sequence,
        ];
        if numbers.iter().any(|number| i64::try_from(*number).is_err()) {
            return Err(RecordError::LargeNumber);
        }
        let texts = [
            self.principal.as_str(),
            &self.capability,
            &self.protocol_version,
            self.message.as_deref().unwrap_or_default(),
            self.state.text(),
        ];
        if MAX_RECORD_BYTES < texts.iter().map(|text| text.len()).sum() {
            return Err(RecordError::LargeText);
        }
        Ok(())
    }

    /// Checks that the record can be the first of its task, with its lease and call.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub fn check_first(&self, begun: &Begun) -> Result<(), RecordError> {
        if self.sequence != 1 {
            return Err(RecordError::NotFirst);
        }
        begun.lease.check()?;
        let call = begun.call.as_deref().unwrap_or_default();
        if MAX_RECORD_BYTES < call.len() + begun.lease.owner.len() {
            return Err(RecordError::LargeText);
        }
        self.check()
    }

    /// Checks that a task with this record can be taken over.
    ///
    /// # Errors
    ///
    /// [`RecordError`].
    pub fn check_claim(&self, lease: &Lease) -> Result<(), RecordError> {
        if self.state.is_terminal() {
            return Err(RecordError::Over);
        }
        lease.check()?;
        self.check()
    }
}
