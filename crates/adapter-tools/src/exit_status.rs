//! Short descriptions of the ends of processes.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

/// Such as `exit status 3` or `signal SIGSEGV (11)`.
pub(crate) fn describe(status: ExitStatus) -> String {
    describe_parts(status.code(), status.signal())
}

/// A status, or the signal that ended it.
pub(crate) fn describe_parts(code: Option<i32>, signal: Option<i32>) -> String {
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
        7 => "SIGBUS",
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
