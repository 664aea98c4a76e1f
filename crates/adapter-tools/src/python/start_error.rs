use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

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
    #[error("the Python application was not loaded after {after:?}{}", place.as_ref().map(|it| format!(": the import was at {it}")).unwrap_or_default())]
    TimedOut {
        /// Time it was given.
        after: Duration,
        /// Place in the application's own files where it was then, such as `shop/prices.py, line 3`.
        place: Option<String>,
        /// The last lines of the worker's standard error.
        stderr: String,
    },
    /// A process that connected is no worker of this version.
    #[error("the Python worker broke the protocol: {0}")]
    Protocol(String),
}

impl StartError {
    /// An application in `root` that was not loaded in time, with the last lines of its standard error.
    pub(super) fn timed_out(after: Duration, root: &Path, stderr: String) -> Self {
        let place = place(&stderr, root);
        Self::TimedOut {
            after,
            place,
            stderr,
        }
    }

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
    Start(#[source] Arc<StartError>),
    /// The application was shut down.
    #[error("the application was shut down")]
    Stopped,
}

/// The innermost place of a stack, as Python's `faulthandler` writes it, that is in a file below `root`.
fn place(stderr: &str, root: &Path) -> Option<String> {
    let root = std::path::absolute(root).ok()?;
    let real = root.canonicalize().unwrap_or_else(|_| root.clone());
    let frames = stderr.lines().filter_map(|line| {
        let (file, rest) = line.trim().strip_prefix("File \"")?.split_once("\", ")?;
        let file = Path::new(file);
        let own = file
            .strip_prefix(&root)
            .or_else(|_| file.strip_prefix(&real));
        let own = own.ok()?;
        let is_installed = own.iter().any(|part| part == "site-packages");
        let line = rest.split(" in ").next()?;
        (!is_installed).then(|| format!("{}, {line}", own.display()))
    });
    { frames }.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_the_innermost_in_a_file_of_the_application() {
        let stack = "\
Timeout (0:00:54)!
Thread 0x00007f1c (most recent call first):
  File \"/usr/lib/python3.11/threading.py\", line 320 in wait
  File \"/srv/shop/.venv/lib/site-packages/driver.py\", line 7 in connect
  File \"/srv/shop/prices/load.py\", line 3 in <module>
  File \"/srv/shop/app.py\", line 1 in <module>
";
        let found = place(stack, Path::new("/srv/shop"));
        assert_eq!(found.as_deref(), Some("prices/load.py, line 3"));
        let error = StartError::timed_out(
            Duration::from_secs(60),
            Path::new("/srv/shop"),
            stack.into(),
        );
        assert_eq!(
            error.to_string(),
            "the Python application was not loaded after 60s: the import was at prices/load.py, line 3"
        );
        assert_eq!(place(stack, Path::new("/srv/other")), None);
        assert_eq!(place("", Path::new("/srv/shop")), None);
    }
}
