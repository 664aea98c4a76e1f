//! The handlers of a Python application as tools.
//!
//! The application runs, unchanged, in processes of its own: *workers*, forked by a *launcher* that has
//! imported it once. They are a small package that is part of this crate, and connect back through a
//! Unix socket in a private directory, so whatever a handler prints, and whatever it does to its
//! standard streams, ends up in the log and nowhere else. `docs/worker-protocol.md` says what is spoken
//! there.
//!
//! Each worker runs any handler, asynchronous ones beside each other and synchronous ones alone, as
//! OwlClaw itself has it. With more than one, handlers share no memory; with one they do. A worker that
//! is lost takes the calls it was running with it and is started again; calls that come meanwhile go to
//! others or wait. No process of an application outlives the server.
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
mod ending;
mod executor;
mod frames;
mod generation;
mod health;
mod launcher;
mod log_pipes;
mod meeting;
mod money;
mod offers;
mod options;
mod package;
mod private_directory;
mod scheduler;
mod slot;
mod source_watch;
mod start_error;
mod states;
mod supervisor;
mod worker;

pub use self::{
    health::{AppHealth, FailedReload, Loss, SuspendedTool, WorkerState},
    offers::{AppCompletion, AppPrompt, AppPromptArgument, AppResource},
    options::{PythonOptions, StartMode},
    start_error::{ReloadError, StartError},
};

use self::{
    executor::Handler,
    frames::{Ready, ToolFrame},
    generation::Generation,
    health::{Board, Shared},
    scheduler::{Kind, Scheduler},
    supervisor::{ReloadRequest, Supervisor},
};
use crate::{Tool, ToolCx, ToolError, ToolKind, ToolOutput};
use bytes::Bytes;
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

/// Most requests for a reload that may wait.
const MAX_RELOADS: usize = 16;

/// A running Python application. Dropping it ends its processes; [`shutdown`](Self::shutdown) waits for
/// that.
#[derive(Debug)]
pub struct PythonApp {
    scheduler: Arc<Scheduler>,
    board: Arc<Board>,
    ready: watch::Receiver<Arc<Ready>>,
    version: watch::Receiver<u64>,
    reloads: mpsc::Sender<ReloadRequest>,
    stop: watch::Sender<bool>,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

/// Facts about a loaded application.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AppInfo {
    /// The name that the application gave itself.
    pub app: String,
    /// The version of the interpreter.
    pub python: String,
    /// True if the application runs on the `owlclaw` that is installed; otherwise it runs on the
    /// bundled stand-in.
    pub has_real_owlclaw: bool,
    /// Time that loading took.
    pub import: Duration,
    /// The names of its state providers.
    pub states: Vec<String>,
    /// The directory of skills that it has mounted, absolute.
    pub skills: Option<std::path::PathBuf>,
    /// Warnings for an operator.
    pub warnings: Vec<String>,
    /// Keys that it sets of the governance of OwlClaw's own agent, by paths below `governance`. None of
    /// it holds for calls that come through here.
    pub governance: Vec<String>,
}

impl PythonApp {
    /// Loads the application and waits until a worker takes calls. What keeps it running is
    /// spawned on the current runtime, which needs I/O and time; calls may come from any runtime.
    ///
    /// # Errors
    ///
    /// [`StartError`] when the application is not loaded within
    /// [`start_timeout`](PythonOptions::start_timeout), for whichever reason.
    pub async fn start(options: PythonOptions) -> Result<Self, StartError> {
        let directory = Supervisor::prepare(&options)?;
        if let Some(parent) = directory.parent() {
            // Nobody waits for it.
            tokio::task::spawn_blocking(move || {
                let removed = private_directory::remove_left_behind(&parent);
                if removed > 0 {
                    tracing::debug!(removed, "directories of servers that are gone were removed");
                }
            });
        }
        let scheduler = Arc::new(Scheduler::new(&options));
        let board = Arc::new(Board::new(&options));
        let shared = Arc::new(Shared {
            options,
            directory,
            scheduler: Arc::clone(&scheduler),
            board: Arc::clone(&board),
        });
        let generation = Generation::start(&shared, 1).await?;
        // Calls may come before the supervisor runs for the first time.
        let threads = generation.threads(shared.options.threads);
        scheduler.switch_to(generation.number, generation.has_async(), threads);
        board.loaded(generation.ready.offers_nothing());
        let (ready, ready_seen) = watch::channel(Arc::clone(&generation.ready));
        let (version, version_seen) = watch::channel(0);
        let (stop, stop_seen) = watch::channel(false);
        let (reloads, requests) = mpsc::channel(MAX_RELOADS);
        let supervisor = Supervisor {
            shared,
            ready,
            version,
            stop: stop_seen,
            requests,
        };
        Ok(Self {
            scheduler,
            board,
            ready: ready_seen,
            version: version_seen,
            reloads,
            stop,
            supervisor: Mutex::new(Some(tokio::spawn(supervisor.run(generation)))),
        })
    }

    /// The application's handlers, in the order in which it registered them. Names and schemas are as
    /// the application has them; [`ToolSet::collect`](crate::ToolSet::collect) tells which of them
    /// cannot be offered.
    pub fn tools(&self) -> Vec<Tool> {
        let ready = Arc::clone(&self.ready.borrow());
        ready.tools.iter().map(|tool| self.tool(tool)).collect()
    }

    /// Facts about the application, as it was loaded last.
    pub fn info(&self) -> AppInfo {
        let ready = self.ready.borrow();
        AppInfo {
            app: ready.app.clone(),
            python: ready.python.clone(),
            has_real_owlclaw: ready.owlclaw == "real",
            import: Duration::try_from_secs_f64(ready.import_ms / 1000.0).unwrap_or_default(),
            states: names(&ready),
            skills: ready.skills.clone(),
            warnings: ready.warnings.clone(),
            governance: ready.governance.clone(),
        }
    }

    /// State of the workers; follows it.
    pub fn state(&self) -> watch::Receiver<WorkerState> {
        self.board.state()
    }

    /// Health of the application now.
    pub fn health(&self) -> AppHealth {
        self.board.health(&self.scheduler)
    }

    /// Loads the application again, beside the one that runs. If that works, new calls go to the new
    /// one, while the old one finishes what it runs; if not, nothing changes. Waits for others who
    /// want the same.
    ///
    /// # Errors
    ///
    /// [`ReloadError`] when it could not be loaded, or was shut down.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let (tell, told) = oneshot::channel();
        let request = self.reloads.send(tell).await;
        request.map_err(|_| ReloadError::Stopped)?;
        told.await.unwrap_or(Err(ReloadError::Stopped))
    }

    /// The names of the application's state providers.
    pub fn state_names(&self) -> Vec<String> {
        names(&self.ready.borrow())
    }

    /// Asks the application for one of its states: a JSON value, usually an object. The call is bound
    /// by `cx` as a tool's is.
    ///
    /// # Errors
    ///
    /// [`ToolError`] as for tools.
    pub async fn read_state(&self, name: &str, cx: ToolCx) -> Result<ToolOutput, ToolError> {
        let is_async = states::is_async(&self.ready, name);
        let subject = (Kind::State, name.into(), is_async);
        executor::carry_out(&self.scheduler, subject, Bytes::new(), cx).await
    }

    /// A tool that asks for states by their names, called `query_state` as OwlClaw's own; `None` if the
    /// application has no states.
    pub fn query_state_tool(&self) -> Option<Tool> {
        states::query_state(&self.ready, &self.scheduler)
    }

    /// Version of the handlers that [`tools`](Self::tools) gives, and of the states; it grows when
    /// the application was loaded again with others than it had before, for instance because its
    /// code was edited. Read it before the tools, so that no change is missed.
    pub fn tools_version(&self) -> watch::Receiver<u64> {
        self.version.clone()
    }

    /// Ends all workers and waits until they have ended. Calls that still run are cancelled: wait for them
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
                    tracing::error!(%error, "what looks after the python application failed");
                }
            }
            // Somebody else waits already; so do we, for the same.
            None => {
                let mut state = self.board.state();
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
        let tool = Tool::new(frame.name.clone(), serde_json::Value::Null, handler)
            .with_written_schemas(
                &frame.input_schema.0,
                frame.output_schema.as_ref().map(|it| &*it.0),
            )
            .describe(frame.description.clone())
            .with_derived_schema(frame.schema_from == "hints")
            .with_rules(frame.rules.clone())
            .with_aliased(frame.aliased.clone())
            .with_async(frame.is_async)
            .with_context(frame.context)
            .with_icons(frame.icons.clone())
            .with_annotations(frame.annotations.into())
            .with_kind(ToolKind::Python);
        let mut tool = match &frame.title {
            Some(title) => tool.with_title(title.clone()),
            None => tool,
        };
        for (key, value) in &frame.meta {
            tool = tool.with_meta(key.clone(), value.clone());
        }
        if !frame.tags.is_empty() {
            tool = tool.with_meta("io.owlclaw/tags", frame.tags.clone());
        }
        let tool = match &frame.whole {
            Some(parameter) => tool.with_whole(parameter.clone()),
            None => tool,
        };
        let tool = match &frame.refused {
            Some(reason) => tool.refused(reason.clone()),
            None => tool,
        };
        match &frame.source {
            Some(source) => tool.with_source(source.clone()),
            None => tool,
        }
    }
}

fn names(ready: &Ready) -> Vec<String> {
    let states = ready.states.iter();
    states.map(|state| state.name.clone()).collect()
}
