//! Descriptions of the ends of processes.

/// End of a process.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// Such as `exit status 3` or `signal SIGSEGV (11)`; `None` where nobody knows, because its parent
    /// was lost as well.
    pub(super) status: Option<String>,
    /// The last lines of its standard error.
    pub(super) stderr: String,
}

impl Ending {
    pub(super) fn status(&self) -> &str {
        self.status.as_deref().unwrap_or("an unknown status")
    }
}
