//! How processes end, in words.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

/// How a process ended.
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

pub(super) fn describe(status: ExitStatus) -> String {
    describe_parts(status.code(), status.signal())
}

/// A status, or the signal that ended it.
pub(super) fn describe_parts(code: Option<i32>, signal: Option<i32>) -> String {
    if let Some(code) = code {
        return format!("exit status {code}");
    }
    let Some(number) = signal else {
        return "an unknown status".to_owned();
    };
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        _ => return format!("signal {number}"),
    };
    format!("signal {name} ({number})")
}
