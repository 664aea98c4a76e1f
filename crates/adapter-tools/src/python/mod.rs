//! The handlers of a Python application as tools.
//!
//! The application runs, unchanged, in a process of its own: the *worker*, a small package that is
//! part of this crate. It connects back through a Unix socket in a private directory, so whatever a
//! handler prints, and whatever it does to its standard streams, ends up in the log and nowhere else.
//! `docs/worker-protocol.md` says what is spoken there.
//!
//! One worker runs all handlers, as OwlClaw itself has it, so that they share their application's
//! state. A worker that is lost takes the calls it was running with it and is started again; calls
//! that come meanwhile wait. A worker never outlives the server: it ends when the socket does.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use adapter_tools::{ToolSet, python::{PythonApp, PythonOptions}};
//!
//! let app = PythonApp::start(PythonOptions::new("app.py", "/srv/shop")).await?;
//! let (tools, problems) = ToolSet::collect(app.tools());
//! # let _ = (tools, problems);
//! app.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod conversation;
mod executor;
mod frames;
mod log_pipes;
mod money;
mod options;
mod package;
mod process;
mod scheduler;
mod start_error;
mod supervisor;

pub use self::{options::PythonOptions, start_error::StartError, supervisor::WorkerState};

use self::{
    executor::Handler,
    frames::{Ready, ToolFrame},
    process::Worker,
    scheduler::Scheduler,
    supervisor::Supervisor,
};
use crate::{Tool, ToolKind};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, task::JoinHandle};

/// A running Python application. Dropping it ends the worker; [`shutdown`](Self::shutdown) waits for
/// that.
#[derive(Debug)]
pub struct PythonApp {
    scheduler: Arc<Scheduler>,
    state: watch::Receiver<WorkerState>,
    ready: watch::Receiver<Arc<Ready>>,
    version: watch::Receiver<u64>,
    stop: watch::Sender<bool>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

/// What is known of a loaded application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AppInfo {
    /// The name that the application gave itself.
    pub app: String,
    /// The version of the interpreter.
    pub python: String,
    /// Whether the application runs on the `owlclaw` that is installed; otherwise it runs on the
    /// bundled stand-in.
    pub has_real_owlclaw: bool,
    /// How long it took to load.
    pub import: Duration,
    /// The names of its state providers.
    pub states: Vec<String>,
    /// What an operator should know about it.
    pub warnings: Vec<String>,
}

impl PythonApp {
    /// Starts a worker and waits until it has loaded the application. What keeps it running is
    /// spawned on the current runtime, which needs I/O and time; calls may come from any runtime.
    ///
    /// # Errors
    ///
    /// [`StartError`] when the application is not loaded within
    /// [`start_timeout`](PythonOptions::start_timeout), for whichever reason.
    pub async fn start(options: PythonOptions) -> Result<Self, StartError> {
        let directory = Supervisor::prepare(&options)?;
        let (worker, ready) = Worker::start(&options, directory.path()).await?;
        let scheduler = Arc::new(Scheduler::new(&options));
        // Calls may come before the supervisor runs for the first time.
        scheduler.worker_is_there();
        let (state, state_seen) = watch::channel(WorkerState::Ready);
        let (ready, ready_seen) = watch::channel(Arc::new(ready));
        let (version, version_seen) = watch::channel(0);
        let (stop, stop_seen) = watch::channel(false);
        let supervisor = Supervisor {
            options,
            directory,
            scheduler: Arc::clone(&scheduler),
            state,
            ready,
            version,
            stop: stop_seen,
        };
        Ok(Self {
            scheduler,
            state: state_seen,
            ready: ready_seen,
            version: version_seen,
            stop,
            supervisor: Mutex::new(Some(tokio::spawn(supervisor.run(worker)))),
        })
    }

    /// The application's handlers, in the order in which it registered them. Names and schemas are as
    /// the application has them; [`ToolSet::collect`](crate::ToolSet::collect) tells which of them
    /// cannot be offered.
    pub fn tools(&self) -> Vec<Tool> {
        let ready = Arc::clone(&self.ready.borrow());
        ready.tools.iter().map(|tool| self.tool(tool)).collect()
    }

    /// What is known of the application, as it was loaded last.
    pub fn info(&self) -> AppInfo {
        let ready = self.ready.borrow();
        AppInfo {
            app: ready.app.clone(),
            python: ready.python.clone(),
            has_real_owlclaw: ready.owlclaw == "real",
            import: Duration::try_from_secs_f64(ready.import_ms / 1000.0).unwrap_or_default(),
            states: ready.states.clone(),
            warnings: ready.warnings.clone(),
        }
    }

    /// Whether the worker is there; follows it.
    pub fn state(&self) -> watch::Receiver<WorkerState> {
        self.state.clone()
    }

    /// Which version of the handlers [`tools`](Self::tools) gives; it grows when the application was
    /// loaded again with others than it had before, for instance because its code was edited. Look at
    /// it before the tools, so that no change is missed.
    pub fn tools_version(&self) -> watch::Receiver<u64> {
        self.version.clone()
    }

    /// Ends the worker and waits until it has ended. Calls that still run are cancelled: wait for them
    /// first. A worker that does not end within [`end_grace`](PythonOptions::end_grace) is killed.
    pub async fn shutdown(&self) {
        self.stop.send_replace(true);
        let supervisor = self
            .supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match supervisor {
            Some(supervisor) => {
                if let Err(error) = supervisor.await {
                    tracing::error!(%error, "the supervisor of the python worker failed");
                }
            }
            // Somebody else waits already; so do we, for the same.
            None => {
                let mut state = self.state.clone();
                let _ = state.wait_for(|state| *state == WorkerState::Stopped).await;
            }
        }
    }

    fn tool(&self, frame: &ToolFrame) -> Tool {
        let handler = Handler {
            name: frame.name.as_str().into(),
            is_async: frame.is_async,
            scheduler: Arc::clone(&self.scheduler),
        };
        let tool = Tool::new(frame.name.clone(), frame.input_schema.clone(), handler)
            .describe(frame.description.clone())
            .with_derived_schema(frame.schema_from == "hints")
            .with_async(frame.is_async)
            .with_kind(ToolKind::Python);
        let tool = match &frame.output_schema {
            Some(schema) => tool.with_output_schema(schema.clone()),
            None => tool,
        };
        match &frame.source {
            Some(source) => tool.with_source(source.clone()),
            None => tool,
        }
    }
}
