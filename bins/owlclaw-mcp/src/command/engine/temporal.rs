//! Temporal as the engine.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use config::{Config, Transport};
use engine_temporal::{
    QueueOptions, Running, StoreError, TakenUp, TaskId, Temporal, TemporalOptions, WorkerServer,
};
use governance::PatternSet;
use operator::{FAILED, Stop, source, usable};
use server::{Failure, Log, RunningWorker, Server, WorkerQueue, with_causes};

use crate::cli::WorkerArguments;

type Later<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Temporal as it is configured.
pub(super) fn of(config: &Config) -> Result<Option<Temporal>, Failure> {
    let Some(temporal) = &config.tasks.temporal else {
        return Ok(None);
    };
    let api_key = match &temporal.api_key {
        None => None,
        Some(key) => Some(key.reveal(&config.environment).ok_or(
            "`tasks.temporal.api_key` refers to a variable that is not there, or is empty",
        )?),
    };
    let client = match (&temporal.certificate_file, &temporal.key_file) {
        (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
        _ => None,
    };
    let options = TemporalOptions {
        address: temporal.address.clone(),
        namespace: temporal.namespace.clone(),
        api_key,
        ca: temporal.ca_file.as_deref().map(read).transpose()?,
        client,
    };
    let queues = temporal.queues.iter().map(|(name, queue)| {
        Ok(QueueOptions {
            name: name.clone(),
            tools: PatternSet::new(&queue.tools)?,
        })
    });
    let queues = queues.collect::<Result<_, Failure>>()?;
    Ok(Some(Temporal::new(options, queues)))
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    regular_file::read(path, regular_file::MAX_BYTES)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()).into())
}

/// Carries out calls until a signal comes.
pub(super) fn work(asked: WorkerArguments) -> Result<ExitCode, Stop> {
    let mut source = source(asked.settings)?;
    let given = &mut source.overrides;
    if given.transport.is_some() || given.host.is_some() || given.port.is_some() {
        let why = "a worker serves no clients: leave out `--transport`, `--host` and `--port`";
        return Err(Stop::Wrong(why.into()));
    }
    // Its standard input has no client.
    given.transport = Some(Transport::Http);
    let loaded = usable(source.load())?;
    let (_log, level) = Log::start_adjustable(&loaded.config.logging);
    let Some(temporal) = of(&loaded.config).map_err(Stop::Failed)? else {
        let why =
            "no engine is configured that has workers: set `tasks.temporal` (docs/temporal.md)";
        return Err(Stop::Wrong(why.into()));
    };
    let configured = loaded.config.tasks.temporal.as_ref();
    let configured = configured.map_or(1, |it| it.worker_calls);
    let queue = Workers {
        temporal: temporal.clone(),
        queues: asked.queues,
        calls: asked.calls.map_or(configured, usize::from),
    };
    server::work(source, loaded, level, Arc::new(temporal), Arc::new(queue)).or_else(|failure| {
        let causes = with_causes(&*failure);
        tracing::error!(error = causes, "the worker failed");
        Ok(FAILED.into())
    })
}

/// Workers of the queues of Temporal.
#[derive(Debug)]
struct Workers {
    temporal: Temporal,
    queues: Vec<String>,
    calls: usize,
}

impl WorkerQueue for Workers {
    fn begin(&self, server: &Arc<Server>) -> Later<'_, Result<Box<dyn RunningWorker>, Failure>> {
        let place = Arc::new(AtServer(Arc::clone(server)));
        Box::pin(async move {
            let running = self.temporal.work(&self.queues, self.calls, place).await?;
            Ok(Box::new(Work(running)) as Box<dyn RunningWorker>)
        })
    }
}

struct Work(Running);

impl RunningWorker for Work {
    fn ended(&self) -> Later<'_, Result<(), Failure>> {
        Box::pin(self.0.ended())
    }

    fn stop(&self) {
        self.0.stop();
    }
}

/// The server whose calls are carried out.
#[derive(Debug)]
struct AtServer(Arc<Server>);

impl WorkerServer for AtServer {
    fn take(&self, task: TaskId) -> Later<'_, Result<TakenUp, StoreError>> {
        Box::pin(async move { self.0.take_queued(&task).await })
    }

    fn cancel(&self, task: TaskId) -> Later<'_, Result<(), StoreError>> {
        Box::pin(async move { self.0.cancel_queued(&task).await })
    }
}
