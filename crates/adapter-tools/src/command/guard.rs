use rustix::process::{Resource, Rlimit, setrlimit, setsid};
use std::{
    convert::Infallible,
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, ExitCode},
};

/// The exit status of a guard that could not do its work.
pub(super) const REFUSED: u8 = 127;
/// Prefix of the guard's messages, which distinguishes them from those of the program it runs.
pub(super) const MARK: &str = "exec-guard: ";

/// Bounds this process and becomes the program that `arguments` name; returns only if that fails.
///
/// This is the other end of [`CommandOptions::guard`](super::CommandOptions::guard), to be called by a
/// program before it does anything else. It cannot be a function that is run between `fork` and
/// `exec`, since that would need `unsafe`. The program that it becomes
///
/// * is the leader of a session of its own, so that it has no terminal;
/// * is killed when the thread that started it ends, which the server's do with the server (Linux
///   only);
/// * leaves no core dumps, which could hold secrets;
/// * has at most so much address space.
pub fn guard(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let Err(why) = enter(arguments.into_iter());
    // Nobody is left to tell if this fails.
    let _ = writeln!(io::stderr(), "{MARK}{why}");
    ExitCode::from(REFUSED)
}

/// The arguments of [`guard`] that have it run `program` for this process.
pub(super) fn arguments(max_memory: Option<u64>, program: &Path) -> [OsString; 3] {
    [
        std::process::id().to_string().into(),
        max_memory.unwrap_or(0).to_string().into(),
        program.into(),
    ]
}

fn enter(mut arguments: impl Iterator<Item = OsString>) -> Result<Infallible, String> {
    let mut number = || {
        arguments
            .next()
            .as_deref()
            .and_then(OsStr::to_str)?
            .parse::<u64>()
            .ok()
    };
    let usage = "expected PARENT MAX-MEMORY PROGRAM [ARGUMENT]...";
    let parent = number().ok_or(usage)?;
    let max_memory = number().ok_or(usage)?;
    let program = arguments.next().ok_or(usage)?;
    let failed = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");

    setsid().map_err(failed("no session of its own"))?;
    die_with(parent)?;
    let bound = |bytes| Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    setrlimit(Resource::Core, bound(0)).map_err(failed("core dumps cannot be forbidden"))?;
    if max_memory != 0 {
        setrlimit(Resource::As, bound(max_memory)).map_err(failed("memory cannot be bounded"))?;
    }
    let error = Command::new(&program).args(arguments).exec();
    Err(format!("{} cannot be run: {error}", program.display()))
}

#[cfg(target_os = "linux")]
fn die_with(parent: u64) -> Result<(), String> {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("the server's end cannot be noticed: {error}"))?;
    // The server may have ended before the line above.
    let is_there =
        getppid().is_some_and(|it| u64::try_from(it.as_raw_nonzero().get()) == Ok(parent));
    match is_there {
        true => Ok(()),
        false => Err("the server has ended".to_owned()),
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with(_parent: u64) -> Result<(), String> {
    Ok(())
}
