//! Builds the server's parts from its configuration.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use adapter_skills::{ScanOptions, SkillCatalog, SkillMemory, WatchGuard, WatchOptions};
use adapter_tools::python::{AppHealth, PythonApp, PythonOptions, StartMode, WorkerState};
use adapter_tools::{Tool, ToolSet};
use alerts::Alerts;
use governance::Governor;
use jsonrpc_core::Limits;
use mcp_protocol::model::Implementation;
use mcp_server::{
    AnswerOptions, CombinedResources, Component, ComponentState, ErrorStyle, IncludeSkill,
    McpServer, Offer, Options, Parts, RequestLog, Resources, SkillResources, TaskOptions, Tasks,
    resource_capability, system_clock, tool_capability,
};
use mcp_service::{EngineLimits, SubscriptionLimits};
use task_store::{SqliteTaskStore, TaskLimits};
use tokio::sync::watch;

use super::identity::{Identification, Keeping};
use super::lifecycle::Lifecycle;
use super::metrics::{Numbers, read_identity};
use super::quotas::Quotas;
use super::rules::Rules;
use super::sessions::{self, KeptSessions, LiveSessions};
use super::sources::{NotOffered, Sources};
use super::standing::{self, Standing};
use super::states;
use super::store::{self, ServedMcpServer, Stores};
use super::tls::Certificates;
use super::{notes, policy, redaction};
use crate::Failure;
use crate::logging::{self, LevelHandle};
use config::{Config, OnOffer, UnmatchedFilter};

/// How long an application may take to load. Some import half of an ecosystem.
const APP_START_TIMEOUT: Duration = Duration::from_secs(120);

/// The server's parts, and what keeps them alive.
pub(super) struct Server {
    pub(super) config: Config,
    pub(super) gateway: Arc<ServedMcpServer>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) sources: Sources,
    pub(super) skills: watch::Receiver<Arc<SkillCatalog>>,
    pub(super) level: LevelHandle,
    /// What the rules in force say.
    pub(super) governance: Arc<Mutex<config::Governance>>,
    pub(super) lifecycle: Lifecycle,
    /// Where what has failed is told, if somebody wants to know.
    pub(super) alerts: Option<Arc<Alerts>>,
    /// What legacy clients have agreed on, for the next process.
    pub(super) sessions: Option<Arc<KeptSessions>>,
    pub(super) live_sessions: Arc<LiveSessions>,
    /// What knows who is calling, where that has to be proved.
    pub(super) identification: Option<Arc<Identification>>,
    _keeping: Option<Keeping>,
    /// What sends traces, if anybody wants them.
    telemetry: Option<Arc<telemetry::Telemetry>>,
    pub(super) certificates: Option<Arc<Certificates>>,
    /// Problems of the offer, and of the rules for it.
    pub(super) standing: Arc<Standing>,
    /// Patterns and switches, compared at the start, that match no tool.
    pub(super) filters: Vec<UnmatchedFilter>,
    /// The capabilities that were there when every rule last matched something.
    pub(super) settled: Mutex<BTreeSet<String>>,
    pub(super) watching: WatchGuard,
}

impl Server {
    /// Opens the ledger, loads the application and the skills, and puts them together.
    pub(super) async fn build(
        rules: &Rules,
        level: LevelHandle,
        lifecycle: Lifecycle,
    ) -> Result<Self, Failure> {
        let config = rules.config().clone();
        let identification = Identification::open(&config)?;
        let certificates = Certificates::load(&config)?;
        // The application says where its skills are.
        let app = start_app(&config).await?;
        let unheeded = rules.loaded().unheeded(&governed_elsewhere(&app));
        standing::refuse(&unheeded)?;
        let scan = scan_options(&config, mounted(&app).as_deref())?;
        if config.governance.unmatched_rules == config::UnmatchedRules::Error {
            let (_, problems) = SkillCatalog::scan(&scan);
            standing::refuse(&super::list::told(&problems, true))?;
        }
        let memory = SkillMemory::read(config.skills_path())?;
        let (skills, watching) = adapter_skills::watch(WatchOptions {
            before: memory.catalog(),
            ..WatchOptions::new(scan)
        })?;
        let catalog = Arc::clone(&skills.borrow());
        let sources = Sources::prepare(&config, &catalog, app)?;
        let (offer, lost) = offer(&config, &sources, &catalog);
        for (tool, place) in &config.switches.off {
            tracing::info!(tool, place, "a tool is switched off");
        }
        let filters = filters(&config, &catalog, &offer, &sources, &lost);
        let standing = Arc::new(Standing::new(memory));
        let on_offer = on_offer(&offer, &catalog, &filters, &lost);
        standing.offered(&config, &catalog, offer.tools(), lost);
        let unmatched = rules.loaded().unmatched(&on_offer);
        standing::refuse(&unmatched)?;
        standing.rules([unheeded, unmatched].concat());

        let policy = Arc::new(policy::policy(&config, &catalog, offer.tools())?);
        let settled = Mutex::new(capabilities(&offer));
        let Stores { recorder, quotas } = store::open(&config, &policy).await?;
        for found in crate::exposed(&config) {
            let (problem, hint) = (found.message, found.hint);
            tracing::warn!(problem, hint, "the ledger is not for its owner alone");
        }
        let quotas = Arc::new(quotas);
        // After the ledger, which makes the directory for its owner alone.
        let redactor = redaction::redactor(&config.redaction, &config.ledger.path)?;
        logging::redact_with(Arc::clone(&redactor));
        standing.remember(&catalog, offer.tools());

        let tasks = open_tasks(&config).await?;
        let sessions = sessions::open(&config)?;

        let mut components = vec![
            rules.component(),
            Standing::component(&standing),
            store::quota_component(Arc::clone(&quotas)),
        ];
        components.extend(store::crowd_component(Arc::clone(&quotas)));
        let alerts = super::alerts::start(&config)?;
        components.extend(alerts.clone().map(super::alerts::component));
        if let Some(app) = &sources.app {
            components.push(app_component(Arc::clone(app)));
        }
        let on_http = config.transport == config::Transport::Http;
        let live_sessions = Arc::default();
        if on_http {
            components.push(sessions::component(sessions.as_ref(), &live_sessions));
        }
        if let Some(identification) = identification.as_ref().filter(|_| on_http) {
            components.push(identification.component());
        }
        let telemetry = super::telemetry::start(&config.telemetry)?;
        components.extend(certificates.iter().map(Certificates::component));
        let parts = Parts {
            info: Implementation {
                name: "owlclaw-mcp-server".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                title: Some("OwlClaw".to_owned()),
                ..Implementation::default()
            },
            instructions: Some(
                "Tools are business functions; each call is governed and recorded. \
                 Resources (skill://) say how and when to use them: read before you act."
                    .to_owned(),
            ),
            offer,
            governor: Arc::new(Governor::new(policy, Arc::clone(&quotas))),
            recorder,
            redactor,
            tasks,
            tracing: telemetry
                .as_ref()
                .map(|it| super::telemetry::tracing(it, &config.telemetry)),
            components,
        };
        let gateway = McpServer::new(parts, options(&config));
        if let Some(alerts) = &alerts {
            super::alerts::read(gateway.metrics(), alerts);
        }
        if let Some(telemetry) = &telemetry {
            super::telemetry::count(telemetry, gateway.metrics());
        }
        let version = gateway.governor().policy().version();
        notes::started(gateway.recorder(), &config, &rules.path(), version).await;
        let keeping = match &identification {
            Some(identification) => Some(identification.keep(&config, &gateway)?),
            None => None,
        };
        let governance = config.governance.clone();
        Ok(Self {
            config,
            gateway,
            quotas,
            sources,
            skills,
            level,
            governance: Arc::new(Mutex::new(governance)),
            lifecycle,
            alerts,
            sessions,
            live_sessions,
            telemetry,
            identification,
            _keeping: keeping,
            certificates,
            standing,
            filters,
            settled,
            watching,
        })
    }

    /// When the certificate expires that the server shows, if it has one.
    pub(super) fn certificate_expires(&self) -> Option<SystemTime> {
        self.certificates.as_ref().map(|it| it.expires_at())
    }

    /// What answers whoever asks for numbers; once.
    pub(super) fn numbers(&self) -> Numbers {
        let app = self.sources.app.as_ref();
        let governance = Arc::clone(&self.governance);
        if let Some(identification) = &self.identification {
            read_identity(self.gateway.metrics(), identification);
        }
        Numbers::of(governance, &self.gateway, app, &self.lifecycle)
    }

    /// Lets no task begin any more, and gives those that run until `drain` has passed.
    pub(super) async fn close_tasks(&self, drain: Duration) {
        if let Some(tasks) = self.gateway.tasks() {
            tasks.close(drain).await;
        }
    }

    /// Ends the application and closes the ledger, once nothing is served any more. Whether
    /// everything is on record.
    pub(super) async fn close(&self) -> bool {
        let last_words = async {
            if let Some(alerts) = &self.alerts {
                alerts.close(super::alerts::LAST_WORDS).await;
            }
        };
        let last_spans = async {
            // Those of tasks end with them.
            self.close_tasks(Duration::ZERO).await;
            if let Some(telemetry) = &self.telemetry {
                telemetry.close(super::telemetry::LAST_SPANS).await;
            }
        };
        let (is_clean, (), ()) = tokio::join!(self.close_parts(), last_words, last_spans);
        is_clean
    }

    async fn close_parts(&self) -> bool {
        self.close_tasks(Duration::ZERO).await;
        if let Some(app) = &self.sources.app {
            app.shutdown().await;
        }
        notes::stopped(self.gateway.recorder(), self.policy_version());
        let closed = self.gateway.recorder().close().await;
        if let Err(error) = &closed {
            tracing::error!(%error, "the ledger could not be closed cleanly");
        }
        self.quotas.close().await;
        if let Some(sessions) = &self.sessions {
            sessions.close().await;
        }
        closed.is_ok()
    }
}

/// Keys that the application sets of the governance of OwlClaw's own agent.
pub(super) fn governed_elsewhere(app: &Option<Arc<PythonApp>>) -> Vec<String> {
    app.as_ref()
        .map_or_else(Vec::new, |app| app.info().governance)
}

/// The directory of skills that the application has mounted.
pub(super) fn mounted(app: &Option<Arc<PythonApp>>) -> Option<PathBuf> {
    app.as_ref().and_then(|app| app.info().skills)
}

/// The directory with the skills: the configured one, or the one that the application has `mounted`.
///
/// # Errors
///
/// When the configured directory and the mounted one differ, or the one that is named cannot be read: rules
/// of skills would silently not be in force.
fn skills_dir(config: &Config, mounted: Option<&Path>) -> Result<PathBuf, Failure> {
    let Some(configured) = &config.resources.skills_dir else {
        let Some(mounted) = mounted else {
            return Ok(config.resources.default_dir());
        };
        resolved(mounted).map_err(|why| {
            format!(
                "app.mount_skills: {why}, so that no rule in a SKILL.md would be in force; make it, or \
                 correct the path in the application"
            )
        })?;
        return Ok(mounted.to_owned());
    };
    let place = configured.display();
    let resolved = resolved(configured).map_err(|why| {
        format!(
            "resources.skills_dir: {why}, so that no rule in a SKILL.md would be in force; make it, or \
             correct the key (--skills-dir)"
        )
    })?;
    match mounted.and_then(|mounted| mounted.canonicalize().ok()) {
        Some(mounted) if mounted != resolved => Err(format!(
            "resources.skills_dir is {place}, and the application mounts {}: the rules in one of the \
             two would not be in force; leave the key out (--skills-dir), or mount the same directory",
            mounted.display()
        )
        .into()),
        _ => Ok(configured.clone()),
    }
}

/// The path of a directory without links; an error if it is none, or cannot be read.
fn resolved(directory: &Path) -> Result<PathBuf, String> {
    let place = directory.display();
    let resolved = directory.canonicalize();
    let resolved = resolved.and_then(|it| std::fs::read_dir(&it).map(|_| it));
    resolved.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("there is no directory {place}"),
        _ => format!("{place} cannot be read as a directory ({error})"),
    })
}

pub(crate) fn scan_options(
    config: &Config,
    mounted: Option<&Path>,
) -> Result<ScanOptions, Failure> {
    let options = ScanOptions::new(skills_dir(config, mounted)?);
    let options = match config.resources.skills_dir.is_some() || mounted.is_some() {
        true => options.required(),
        false => options,
    };
    match &config.resources.root_category {
        Some(category) => options
            .with_flat_category(category)
            .map_err(|reason| format!("resources.root_category {reason}").into()),
        None => Ok(options),
    }
}

/// Starts the application, if one is configured.
pub(super) async fn start_app(config: &Config) -> Result<Option<Arc<PythonApp>>, Failure> {
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
    options.workers = config.workers.count;
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
            Some((before, last)) if text.ends_with(last.trim()) => before,
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

/// Names of the tools and resources that rules can match, and filters that match nothing.
pub(super) fn on_offer(
    offer: &Offer,
    catalog: &SkillCatalog,
    filters: &[UnmatchedFilter],
    lost: &[NotOffered],
) -> OnOffer {
    let lost = lost.iter().map(|it| it.tool.as_str());
    let names: BTreeSet<&str> = offer
        .tools()
        .iter()
        .map(Tool::own_name)
        .chain(lost)
        .collect();
    let idle = catalog.without_tool(|name| names.contains(name));
    let idle_skills = idle
        .map(|skill| (skill.path().display().to_string(), skill.name().to_owned()))
        .collect();
    let tools = offer.tools().iter();
    let resources = offer.resources().entries();
    OnOffer {
        tools: tools
            .map(|tool| (tool.name().to_owned(), tool.own_name().to_owned()))
            .collect(),
        resources: resources.iter().map(|it| it.resource.uri.clone()).collect(),
        unmatched_filters: filters.to_vec(),
        idle_skills,
    }
}

/// The tools and resources on offer, as rules know them.
pub(super) fn capabilities(offer: &Offer) -> BTreeSet<String> {
    let tools = offer.tools().iter();
    let tools = tools.map(|tool| tool_capability(tool.name()));
    let resources = offer.resources().entries().iter();
    let resources = resources.map(|it| resource_capability(&it.resource.uri));
    tools.chain(resources).collect()
}

/// Patterns of services and switches of the application that match no tool.
pub(super) fn filters(
    config: &Config,
    catalog: &SkillCatalog,
    offer: &Offer,
    sources: &Sources,
    lost: &[NotOffered],
) -> Vec<UnmatchedFilter> {
    let mut filters = sources.unmatched().to_vec();
    let tools = offer.tools().iter().map(Tool::own_name);
    let skills = catalog.iter().map(|skill| skill.name());
    let lost = lost.iter().map(|it| it.tool.as_str());
    let names: BTreeSet<&str> = tools.chain(skills).chain(lost).collect();
    let off = config.switches.off.iter();
    let weights = config.switches.weights.iter();
    let weights = weights.map(|(name, (_, place))| (name, place));
    for (name, place) in off.chain(weights) {
        if !names.contains(name.as_str()) {
            filters.push(UnmatchedFilter {
                key: place.clone(),
                pattern: name.clone(),
                names: names.iter().map(|&name| name.to_owned()).collect(),
            });
        }
    }
    filters
}

/// The tools and skills on offer, and the tools that cannot be offered.
pub(super) fn offer(
    config: &Config,
    sources: &Sources,
    catalog: &Arc<SkillCatalog>,
) -> (Offer, Vec<NotOffered>) {
    let mut lost = Vec::new();
    let (tools, problems) = ToolSet::collect(sources.tools(catalog, &mut lost));
    lost.extend(problems.into_iter().map(|problem| NotOffered {
        why: crate::with_causes(&problem.reason),
        place: problem.tool_source,
        tool: problem.name,
    }));
    let include = match config.tools.include_skill {
        config::IncludeSkill::Full => IncludeSkill::Full,
        config::IncludeSkill::Excerpt => IncludeSkill::Excerpt,
        config::IncludeSkill::Link => IncludeSkill::Link,
        config::IncludeSkill::None => IncludeSkill::None,
    };
    if tools.iter().next().is_none() && catalog.iter().next().is_none() {
        tracing::warn!(
            hint = "set `app`, `commands` or `services`, or --app, and put skills into \
                    `resources.skills_dir`",
            "there is nothing on offer: no tool and no skill"
        );
    }
    let ttl_ms = config.resources.cache_ttl_seconds * 1_000;
    let skills = Arc::new(SkillResources::new(Arc::clone(catalog), ttl_ms));
    let resources: Arc<dyn Resources> = match &sources.app {
        Some(app) if config.states.resources => {
            Arc::new(CombinedResources::new(vec![skills, states::resources(app)]))
        }
        _ => skills,
    };
    let timeout = Duration::from_secs(config.tools.default_timeout_seconds);
    let offer = Offer::new(tools, resources, Some(catalog), include, timeout);
    (offer, lost)
}

async fn open_tasks(config: &Config) -> Result<Option<Arc<Tasks>>, Failure> {
    if !config.tasks.enabled {
        return Ok(None);
    }
    let path = config.tasks_path();
    let store = SqliteTaskStore::open(&path).map_err(|error| match error {
        task_store::OpenError::Locked { .. } => Failure::from(format!(
            "{error}; every server needs a task store of its own: set tasks.path"
        )),
        error => error.into(),
    })?;
    let tasks = Tasks::open(Arc::new(store), task_options(config), system_clock).await?;
    Ok(Some(tasks))
}

fn task_options(config: &Config) -> TaskOptions {
    let seconds = Duration::from_secs;
    let tasks = &config.tasks;
    TaskOptions {
        after: seconds(tasks.after_seconds),
        keep: seconds(tasks.keep_seconds),
        max_keep: seconds(tasks.max_keep_seconds),
        max_running: tasks.max_running,
        max_running_per_principal: tasks.max_running_per_client,
        max_attempts: tasks.max_attempts,
        records: TaskLimits {
            max_total: tasks.max_kept,
            max_per_principal: tasks.max_kept_per_client,
        },
        // On HTTP, principals are addresses that several clients can have.
        list: config.transport == config::Transport::Stdio,
        ..TaskOptions::default()
    }
}

fn options(config: &Config) -> Options {
    let seconds = Duration::from_secs;
    Options {
        default_timeout: seconds(config.tools.default_timeout_seconds),
        progress_after: seconds(config.tools.async_threshold_seconds),
        tools_page: config.tools.page_size,
        resources_page: config.resources.page_size,
        tools_ttl: seconds(config.tools.cache_ttl_seconds),
        resources_ttl: seconds(config.resources.cache_ttl_seconds),
        answering: AnswerOptions {
            style: match config.tools.error_style {
                config::ErrorStyle::Auto => ErrorStyle::Auto,
                config::ErrorStyle::Protocol => ErrorStyle::Protocol,
                config::ErrorStyle::Result => ErrorStyle::Result,
            },
            development: config.development,
            quota_meta: config.tools.quota_meta,
        },
        limits: EngineLimits {
            frames: Limits {
                max_frame: config.http.max_body_bytes,
                ..Limits::default()
            },
            ..engine_limits(&config.http.limits)
        },
        approvals_expire: seconds(config.governance.approvals.expire_seconds),
        read_only_exempt: config.ledger.read_only_exempt,
        request_log: request_log(&config.logging),
        keep_keys: seconds(config.governance.idempotency.keep_seconds),
        clock: system_clock,
        ..Options::default()
    }
}

/// Which requests are logged.
pub(super) fn request_log(logging: &config::Logging) -> RequestLog {
    match logging.requests {
        config::LogRequests::All => RequestLog::All,
        config::LogRequests::Errors => RequestLog::Errors,
        config::LogRequests::None => RequestLog::None,
    }
}

/// What `/health` calls the application.
pub(super) const APPLICATION: &str = "application";

/// How much clients can have of the engine, however they reach it.
fn engine_limits(limits: &config::Limits) -> EngineLimits {
    EngineLimits {
        max_in_flight: limits.max_requests,
        max_waiting: limits.max_requests_waiting,
        max_reserved_per_principal: limits.max_kept_requests_per_client,
        subscriptions: SubscriptionLimits {
            max_total: limits.max_subscriptions,
            max_per_principal: limits.max_subscriptions_per_client,
            ..SubscriptionLimits::default()
        },
        ..EngineLimits::default()
    }
}

/// The application works as long as one of its workers does; what else is wrong is told.
fn app_component(app: Arc<PythonApp>) -> Component {
    Component::new(move || {
        let health = app.health();
        ComponentState {
            name: APPLICATION,
            ok: 0 < health.workers_ready,
            detail: app_detail(&health),
        }
    })
}

/// What is worth knowing of an application, if anything is.
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
    if let Some(failed) = &health.failed_reload {
        parts.push(format!("could not be loaded again: {}", failed.message));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_file_are_those_of_the_parts() {
        let config = Config::default();
        let ours = TaskOptions {
            list: false,
            ..task_options(&config)
        };
        assert_eq!(format!("{ours:?}"), format!("{:?}", TaskOptions::default()));
        assert_eq!(
            format!("{:?}", engine_limits(&config.http.limits)),
            format!("{:?}", EngineLimits::default())
        );
        assert_eq!(config.tasks_path(), Path::new("./data/ledger-tasks.db"));
        assert_eq!(
            config.sessions_path(),
            Path::new("./data/ledger-sessions.db")
        );
    }
}
