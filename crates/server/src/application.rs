//! The Python application as a source of tools, resources and prompts.

mod offered;
mod uri_template;

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adapter_skills::{Interpreter, SkillCatalog};
use adapter_tools::ToolCx;
use adapter_tools::python::{AppHealth, PythonApp, PythonOptions, StartMode, WorkerState};
use config::Config;
use futures_util::future::BoxFuture;
use jsonrpc_core::RawJson;
use mcp_server::{
    CombinedResources, Component, ComponentState, Prompts, Resources, SourceTools, StateResources,
    States, ToolSource,
};
use tokio::sync::watch;

use self::offered::{AppPrompts, AppResources};
use crate::Failure;

/// Time that an application may take to load. Some import half of an ecosystem.
const APP_START_TIMEOUT: Duration = Duration::from_secs(120);

/// Time from which on a reload is reported: its import may hang.
const SLOW_RELOAD: Duration = Duration::from_secs(10);

/// Name of the component of `/health` for the application.
pub(super) const APPLICATION: &str = "application";

/// Name of the component of `/health` for code that was changed on disk.
pub(super) const CODE: &str = "application_code";

/// Component that fails while the application's changed code cannot be loaded, or takes longer than
/// [`SLOW_RELOAD`] to load, whose workers go on with the code before, and while the code in force registers nothing.
pub(super) fn code_component(app: Arc<PythonApp>) -> Component {
    Component::new(move || {
        let health = app.health();
        let loading = health.reloading_since.map(|since| since.elapsed());
        let detail = match (loading.filter(|it| SLOW_RELOAD < *it), health.failed_reload) {
            (Some(loading), _) => Some(format!(
                "has been loading again for {} s, of {} s at most, and the code before is in force",
                loading.as_secs(),
                APP_START_TIMEOUT.as_secs()
            )),
            (None, Some(failed)) => Some(format!(
                "could not be loaded again, and the code before is in force: {}",
                failed.message
            )),
            (None, None) if health.offers_nothing => Some(
                "has registered nothing: neither handlers nor resources, prompts or states"
                    .to_owned(),
            ),
            (None, None) => None,
        };
        ComponentState {
            name: CODE,
            ok: detail.is_none(),
            detail,
        }
    })
}

/// The application as a source of tools.
#[derive(Debug)]
pub(super) struct Application {
    app: Arc<PythonApp>,
    states: config::States,
}

impl Application {
    pub(super) fn new(app: Arc<PythonApp>, states: config::States) -> Self {
        Self { app, states }
    }
}

impl ToolSource for Application {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        let mut tools = self.app.tools();
        if self.states.tool {
            tools.extend(self.app.query_state_tool());
        }
        tools.into()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        let states = self.states.resources.then(|| state_resources(&self.app));
        let own = AppResources::of(&self.app).map(|own| Arc::new(own) as Arc<dyn Resources>);
        match (states, own) {
            (Some(states), Some(own)) => Some(Arc::new(CombinedResources::new(vec![states, own]))),
            (states, own) => states.or(own),
        }
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        Some(Arc::new(AppPrompts::of(&self.app)?))
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.app.tools_version())
    }

    /// The application works as long as one of its workers does; what else is wrong is in the detail.
    fn health(&self) -> Option<ComponentState> {
        let health = self.app.health();
        Some(ComponentState {
            name: APPLICATION,
            ok: 0 < health.workers_ready,
            detail: app_detail(&health),
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.app.shutdown())
    }
}

/// Keys that the application sets of the governance of OwlClaw's own agent.
pub(super) fn governed_elsewhere(app: Option<&Arc<PythonApp>>) -> Vec<String> {
    app.map_or_else(Vec::new, |app| app.info().governance)
}

/// The directory of skills that the application has mounted.
pub(super) fn mounted(app: Option<&Arc<PythonApp>>) -> Option<PathBuf> {
    app.and_then(|app| app.info().skills)
}

/// Starts the application, if one is configured.
pub(super) async fn start(config: &Config) -> Result<Option<Arc<PythonApp>>, Failure> {
    let Some(spec) = &config.app else {
        return Ok(None);
    };
    let root = config.workers.cwd.as_deref().unwrap_or(Path::new("."));
    let mut options = PythonOptions::new(spec, root);
    options.interpreter = interpreter(config.python.as_deref());
    options.start_timeout = APP_START_TIMEOUT;
    if !config.workers.python_path.is_empty()
        && let Some(path) = search_path(config)
    {
        options.env.push(("PYTHONPATH".into(), path));
    }
    options.search.extend(config.workers.base.clone());
    options.workers = config.workers.count;
    options.max_workers = config.workers.max_count;
    options.idle = Duration::from_secs(config.workers.idle_seconds);
    options.threads = config.workers.threads;
    options.start = match config.workers.start {
        config::WorkerStart::Auto => StartMode::Auto,
        config::WorkerStart::Fork => StartMode::Fork,
        config::WorkerStart::Spawn => StartMode::Spawn,
    };
    options.watch = config.workers.watch;
    options.grace = Duration::from_secs(config.workers.grace_seconds);
    options.worker_memory = config.workers.max_memory_bytes;
    let app = PythonApp::start(options).await.map_err(|error| {
        let (text, details) = (error.to_string(), error.details());
        // A traceback ends with what the error says itself.
        let details = details.trim_end();
        let details = match details.rsplit_once('\n') {
            Some((before, last)) if text.contains(last.trim()) => before,
            _ => details,
        };
        Failure::from(format!("{text}\n{details}").trim_end().to_owned())
    })?;
    let info = app.info();
    tracing::info!(
        app = info.app,
        python = info.python,
        real_owlclaw = info.has_real_owlclaw,
        import_ms = u64::try_from(info.import.as_millis()).unwrap_or(u64::MAX),
        "application loaded"
    );
    Ok(Some(Arc::new(app)))
}

/// Additional directories for Python modules, if there are any.
fn search_path(config: &Config) -> Option<OsString> {
    let configured = config.workers.python_path.iter().cloned();
    let inherited = std::env::var_os("PYTHONPATH").filter(|path| !path.is_empty());
    let inherited = inherited.iter().flat_map(std::env::split_paths);
    std::env::join_paths(configured.chain(inherited)).ok()
}

/// The configured interpreter, else that of the active virtual environment, else `python3`.
pub fn interpreter(configured: Option<&str>) -> PathBuf {
    if let Some(configured) = configured {
        return PathBuf::from(configured);
    }
    match std::env::var_os("VIRTUAL_ENV").filter(|it| !it.is_empty()) {
        Some(environment) => Path::new(&environment).join("bin/python"),
        None => PathBuf::from("python3"),
    }
}

/// The interpreter that finds the packages of the application.
pub(super) fn as_interpreter(config: &Config) -> Interpreter {
    Interpreter {
        program: interpreter(config.python.as_deref()),
        directory: config.workers.cwd.clone().unwrap_or_else(|| ".".into()),
        base: config.workers.base.clone(),
        path: search_path(config),
    }
}

/// Detail of the application's health, if there is anything to report.
pub(super) fn app_detail(health: &AppHealth) -> Option<String> {
    let mut parts = Vec::new();
    match &health.state {
        WorkerState::Ready => {}
        WorkerState::Restarting { attempt, cause, .. } => {
            parts.push(format!("being started again, attempt {attempt}: {cause}"));
        }
        WorkerState::Stopped => parts.push("stopped".to_owned()),
    }
    if health.state == WorkerState::Ready && health.workers_ready < health.workers {
        let (ready, workers) = (health.workers_ready, health.workers);
        let cause = health.last_loss.as_ref().map(|loss| loss.cause.as_str());
        let cause = cause.unwrap_or("the others are being started");
        parts.push(format!("{ready} of {workers} workers serve: {cause}"));
    }
    for tool in &health.suspended {
        let (name, seconds) = (&tool.name, tool.left.as_secs());
        parts.push(format!(
            "`{name}` is suspended for {seconds} s, as it ends its workers"
        ));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Name of the caller that the application is given with a read of a state; the rules for the client
/// were applied before.
const READER: &str = "resources/read";

/// An application's states.
#[derive(Debug)]
struct AppStates(Arc<PythonApp>);

impl States for AppStates {
    fn read<'a>(
        &'a self,
        name: &'a str,
    ) -> BoxFuture<'a, Result<RawJson, Box<dyn Error + Send + Sync>>> {
        Box::pin(async move {
            let output = self.0.read_state(name, ToolCx::new(READER, name)).await?;
            let state = output.structured.ok_or("the state is not an object")?;
            Ok(RawJson::from_value(&state)?)
        })
    }
}

/// The states that `app` has now.
fn state_resources(app: &Arc<PythonApp>) -> Arc<dyn Resources> {
    let names = app.state_names();
    Arc::new(StateResources::new(
        Arc::new(AppStates(Arc::clone(app))),
        names,
    ))
}
