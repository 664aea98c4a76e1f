use std::{io, path::PathBuf, time::Duration};

/// Reason why a Python application is not running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The application's directory is none.
    #[error("the application's directory `{0}` does not exist")]
    NoRoot(PathBuf),
    /// A directory, file or socket of the worker could not be made.
    #[error("the directory of the Python worker could not be prepared")]
    Prepare(#[source] io::Error),
    /// There is no such interpreter.
    #[error("the Python interpreter `{0}` was not found")]
    NoInterpreter(PathBuf),
    /// The interpreter is there and could not be started.
    #[error("the Python interpreter `{interpreter}` could not be started")]
    Spawn {
        /// Path of the interpreter.
        interpreter: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The application could not be loaded: it is not there, or its own code raised something.
    #[error("the Python application could not be loaded: {message}")]
    NotLoaded {
        /// Exception that was raised.
        message: String,
        /// Stack, in Python's words.
        traceback: String,
        /// The last lines of the worker's standard error.
        stderr: String,
    },
    /// The worker ended by itself before the application was loaded.
    #[error("the Python worker ended with {status} before the application was loaded")]
    Ended {
        /// End of the process, such as `exit status 3` or `signal SIGSEGV (11)`.
        status: String,
        /// The last lines of the worker's standard error.
        stderr: String,
    },
    /// The application is loaded, and no process could be made to run it.
    #[error("no Python worker could be started: {0}")]
    NotForked(String),
    /// The worker took too long.
    #[error("the Python application was not loaded after {after:?}")]
    TimedOut {
        /// Time it was given.
        after: Duration,
        /// The last lines of the worker's standard error.
        stderr: String,
    },
    /// A process that connected is no worker of this version.
    #[error("the Python worker broke the protocol: {0}")]
    Protocol(String),
}

impl StartError {
    /// Details for an operator beyond the message, in several lines: Python's traceback and the
    /// last lines of the worker's standard error. Empty where there are none.
    pub fn details(&self) -> String {
        let (traceback, stderr) = match self {
            Self::NotLoaded {
                traceback, stderr, ..
            } => (traceback.as_str(), stderr.as_str()),
            Self::Ended { stderr, .. } | Self::TimedOut { stderr, .. } => ("", stderr.as_str()),
            _ => ("", ""),
        };
        let parts = [traceback.trim_end(), stderr.trim_end()];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        parts.join("\n")
    }
}

/// Reason why an application was not loaded again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// The application could not be loaded as it is now; the one that was loaded before goes on
    /// serving.
    #[error("the application could not be loaded again")]
    Start(#[source] StartError),
    /// The application was shut down.
    #[error("the application was shut down")]
    Stopped,
}
