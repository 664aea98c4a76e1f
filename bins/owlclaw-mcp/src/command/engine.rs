//! The engine that hands calls to workers, in programs that were built with one, and workers.

use std::process::ExitCode;
use std::sync::Arc;

use config::Config;
use mcp_server::TaskRunner;
use operator::Stop;
use server::Failure;

use crate::cli::WorkerArguments;

#[cfg(feature = "temporal")]
mod temporal;

/// The runner of the calls of tasks, if the configuration names an engine.
#[cfg(feature = "temporal")]
pub(super) fn runner(config: &Config) -> Result<Option<Arc<dyn TaskRunner>>, Failure> {
    let runner = temporal::of(config)?;
    Ok(runner.map(|it| Arc::new(it) as Arc<dyn TaskRunner>))
}

/// No runner: this program was built without an engine, and the server says so if one is configured.
#[cfg(not(feature = "temporal"))]
#[expect(clippy::unnecessary_wraps, reason = "with an engine it may fail")]
pub(super) fn runner(_: &Config) -> Result<Option<Arc<dyn TaskRunner>>, Failure> {
    Ok(None)
}

/// Carries out calls until a signal comes.
#[cfg(feature = "temporal")]
pub(super) fn work(asked: WorkerArguments) -> Result<ExitCode, Stop> {
    temporal::work(asked)
}

/// Refuses to carry out calls.
#[cfg(not(feature = "temporal"))]
pub(super) fn work(_: WorkerArguments) -> Result<ExitCode, Stop> {
    let why = "this program was built without an engine that has workers: build it with \
               `--features temporal` (docs/temporal.md)";
    Err(Stop::Wrong(why.into()))
}
