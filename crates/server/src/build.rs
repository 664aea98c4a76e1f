//! Builds the server's parts from its configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adapter_skills::{SkillCatalog, SkillMemory, WatchGuard, WatchOptions};
use alerts::Alerts;
use futures_util::future::BoxFuture;
use governance::Governor;
use jsonrpc_core::Limits;
use mcp_server::{
    AnswerOptions, ErrorStyle, McpServer, Options, Parts, RequestLog, RunHere, TakenUp,
    TaskOptions, TaskRunner, Tasks, system_clock,
};
use mcp_service::{EngineLimits, SubscriptionLimits};
use task_store::{SqliteTaskStore, StoreError, TaskId, TaskLimits};
use tokio::sync::watch;

use super::archives::Archiving;
use super::command_notes::CommandNotes;
use super::identity::{Identification, Keeping};
use super::in_code::InCode;
use super::lifecycle::Lifecycle;
use super::metrics::{Numbers, read_identity};
use super::quotas::Quotas;
use super::reading::Reading;
use super::rules::Rules;
use super::sessions::{self, KeptSessions, LiveSessions};
use super::sharing::Sharing;
use super::sources::Sources;
use super::standing::{self, Standing};

use super::late_costs::Awaiting;
use super::store::{self, ServedMcpServer, Stores};
use super::tls::Certificates;
use super::upstreams::DeclaredUpstream;
use super::verification::Verifying;
use super::witness::Witness;
use super::{application, notes, offering, policy, redaction, results, upstreams};
use crate::Failure;
use crate::logging::{self, LevelHandle};
use cluster::Cluster;
use config::{Config, Loaded, Problem, UnmatchedFilter};

/// A running server: its parts, and what keeps them alive.
pub struct Server {
    pub(super) in_code: InCode,
    pub(super) config: Config,
    pub(super) mcp: Arc<ServedMcpServer>,
    pub(super) quotas: Arc<Quotas>,
    pub(super) sources: Sources,
    pub(super) skills: watch::Receiver<Arc<SkillCatalog>>,
    pub(super) level: LevelHandle,
    /// The configuration of the start with what has changed since.
    pub(super) in_force: Arc<Mutex<Config>>,
    /// Upstreams in use, with the files of hosts that they stand in.
    pub(super) declared: Mutex<Vec<DeclaredUpstream>>,
    pub(super) lifecycle: Lifecycle,
    /// Sender of alerts, if one is configured.
    pub(super) alerts: Option<Arc<Alerts>>,
    /// Sessions of legacy clients, stored for the next process.
    pub(super) sessions: Option<Arc<KeptSessions>>,
    pub(super) live_sessions: Arc<LiveSessions>,
    /// Authentication, where clients must authenticate.
    pub(super) identification: Option<Arc<Identification>>,
    _keeping: Option<Keeping>,
    /// Archives the ledger until it is dropped, if it is to be archived by itself.
    _archiving: Option<Archiving>,
    /// Verifies the ledger until it is dropped, if that is configured.
    _verifying: Option<Verifying>,
    /// Follows what other servers change, until it is dropped, if there may be others.
    pub(super) sharing: Option<Sharing>,
    /// Takes what commands have left for this server, until it is dropped.
    _noting: CommandNotes,
    /// Task that tells the witness of checkpoints, if there is one.
    witness: Option<Witness>,
    /// Reader of costs that are known later.
    awaiting: Awaiting,
    /// Exporter of traces, if one is configured.
    telemetry: Option<Arc<telemetry::Telemetry>>,
    pub(super) certificates: Option<Arc<Certificates>>,
    /// Problems of the offer, and of the rules for it.
    pub(super) standing: Arc<Standing>,
    /// Patterns and switches, compared at the start, that match no tool.
    pub(super) filters: Vec<UnmatchedFilter>,
    /// The capabilities that were there when every rule last matched something.
    pub(super) settled: Mutex<BTreeMap<String, u64>>,
    pub(super) watching: WatchGuard,
    pub(super) reading: Reading,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut server = f.debug_struct("Server");
        server
            .field("in_code", &self.in_code)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the ledger, loads the application and the skills, and puts them together.
    pub(super) async fn build(
        in_code: InCode,
        rules: &Rules,
        level: LevelHandle,
        lifecycle: Lifecycle,
    ) -> Result<Self, Failure> {
        let config = rules.config().clone();
        let identification = Identification::open(&config)?;
        let certificates = Certificates::load(&config)?;
        // The application says where its skills are.
        let app = application::start(&config).await?;
        let unheeded = rules
            .loaded()
            .unheeded(&application::governed_elsewhere(app.as_ref()));
        standing::refuse(&unheeded)?;
        let scan = offering::scan_options(&config, application::mounted(app.as_ref()).as_deref())?;
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
        let code = app.clone().map(application::code_component);
        let gateway = upstreams::open(&config).await?;
        let declared = upstreams::declared_upstreams(&config)?.upstreams;
        if let Some(identification) = &identification {
            identification.hand_tokens_to(gateway.subjects());
        }
        let given = in_code.sources.clone();
        let results = results::open(&config)?;
        let sources = Sources::prepare(&config, &catalog, app, gateway, given, results)?;
        let (offer, lost) = offering::offer(&config, &sources, &catalog);
        sources.offered(&offer);
        for (tool, place) in &config.switches.off {
            tracing::info!(tool, place, "a tool is switched off");
        }
        let filters = offering::filters(&config, &catalog, &offer, &sources, &lost);
        let standing = Arc::new(Standing::new(memory));
        let on_offer = offering::on_offer(&offer, &catalog, &sources, &filters, &lost);
        standing.offered(&config, &catalog, offer.tools(), lost);
        let unmatched = rules.loaded().unmatched(&on_offer);
        standing::refuse(&unmatched)?;
        standing.rules(unheeded, unmatched);

        let policy = Arc::new(policy::policy(&config, &catalog, &offer)?);
        let settled = Mutex::new(offering::capabilities(&offer));
        let is_first_start = !config.ledger.path.exists();
        let Stores {
            recorder,
            quotas,
            witness,
        } = store::open(&config, &policy).await?;
        for found in crate::exposed(&config) {
            let (problem, hint) = (found.message, found.hint);
            tracing::warn!(problem, hint, "the ledger is not for its owner alone");
        }
        let quotas = Arc::new(quotas);
        // After the ledger, which makes the directory for its owner alone.
        let redactor = redaction::redactor(&config.redaction, &config.ledger.path, is_first_start)?;
        logging::redact_with(Arc::clone(&redactor));
        standing.remember(&catalog, offer.tools());

        let cluster = store::open_cluster(&config).await?;
        let runner = runner(&config, &in_code)?;
        let tasks = open_tasks(&config, cluster.as_ref(), runner).await?;
        let sessions = sessions::open(&config, cluster.as_ref())?;

        let archiving = Archiving::begin(&config)?;
        let verifying = Verifying::begin(&config)?;
        let awaiting = Awaiting::prepare(&config);
        let mut components = vec![
            rules.component(),
            Standing::component(&standing),
            store::quota_component(Arc::clone(&quotas)),
        ];
        components.extend(store::crowd_component(Arc::clone(&quotas)));
        components.extend(witness.as_ref().map(Witness::component));
        components.extend(archiving.as_ref().map(Archiving::component));
        components.extend(verifying.iter().flat_map(Verifying::components));
        components.extend(
            config
                .costs
                .langfuse
                .url
                .is_some()
                .then(|| awaiting.component()),
        );
        let alerts = super::alerts::start(&config, &in_code.info.version)?;
        components.extend(alerts.clone().map(super::alerts::component));
        components.extend(sources.components());
        components.extend(code);
        let on_http = config.transport == config::Transport::Http;
        let live_sessions = Arc::default();
        if on_http {
            components.push(sessions::component(sessions.as_ref(), &live_sessions));
        }
        if let Some(identification) = identification.as_ref().filter(|_| on_http) {
            components.push(identification.component());
            components.push(identification.keys_component());
        }
        let telemetry = super::telemetry::start(
            &config.telemetry,
            &config.environment,
            &in_code.info.version,
        )?;
        components.extend(certificates.iter().map(Certificates::component));
        let of_calls = super::filters::filters(&config, &redactor, &in_code.filters)?;
        let parts = Parts {
            info: in_code.info.clone(),
            instructions: Some(in_code.instructions.clone()),
            offer,
            governor: Arc::new(Governor::new(policy, Arc::clone(&quotas))),
            recorder,
            redactor,
            tasks,
            tracing: telemetry
                .as_ref()
                .map(|it| super::telemetry::tracing(it, &config.telemetry)),
            components,
            filters: of_calls,
            late_costs: awaiting.receiver(&config),
        };
        let mcp = McpServer::new(parts, options(&config));
        if let Some(verifying) = &verifying {
            verifying.read(mcp.metrics());
        }
        let sharing = match &cluster {
            Some(cluster) => {
                let version = &in_code.info.version;
                Some(Sharing::begin(cluster, &mcp, version, &live_sessions).await?)
            }
            None => None,
        };
        if let Some(alerts) = &alerts {
            super::alerts::read(mcp.metrics(), alerts);
        }
        if let Some(telemetry) = &telemetry {
            super::telemetry::count(telemetry, mcp.metrics());
        }
        let version = mcp.governor().policy().version();
        notes::started(
            mcp.recorder(),
            &in_code.info.version,
            &config,
            &rules.path(),
            version,
        )
        .await;
        awaiting.begin(
            &config,
            store::open_reader,
            Arc::clone(mcp.governor()),
            mcp.recorder().clone(),
        )?;
        let keeping = match &identification {
            Some(identification) => Some(identification.keep(&config, &mcp)?),
            None => None,
        };
        let noting = CommandNotes::begin(&config, &mcp);
        if config.gateway.renew_logins_hours != 0 {
            let hours = Duration::from_secs(config.gateway.renew_logins_hours * 3_600);
            sources.gateway().keep_logins(hours);
        }
        let in_force = Arc::new(Mutex::new(config.clone()));
        Ok(Self {
            in_code,
            config,
            mcp,
            quotas,
            sources,
            skills,
            level,
            in_force,
            declared: Mutex::new(declared),
            lifecycle,
            alerts,
            sessions,
            live_sessions,
            telemetry,
            identification,
            _keeping: keeping,
            _archiving: archiving,
            _verifying: verifying,
            sharing,
            _noting: noting,
            witness,
            awaiting,
            certificates,
            standing,
            filters,
            settled,
            watching,
            reading: rules.reading(),
        })
    }

    /// Parts of this server that alerts are about.
    pub(super) fn watched(&self) -> super::alerts::Watched {
        super::alerts::Watched {
            quotas: Arc::clone(&self.quotas),
            mcp: Arc::clone(&self.mcp),
            app: self.sources.app().cloned(),
            certificates: self.certificates.clone(),
        }
    }

    /// Metrics endpoint of this server; taken once.
    pub(super) fn numbers(&self) -> Numbers {
        let app = self.sources.app();
        let in_force = Arc::clone(&self.in_force);
        if let Some(identification) = &self.identification {
            read_identity(self.mcp.metrics(), identification);
        }
        let gateway = self.sources.gateway();
        Numbers::of(in_force, &self.mcp, app, gateway, &self.lifecycle)
    }

    /// Takes a task out of its queue, as a worker, and begins to carry it out.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; it can be tried again.
    pub fn take_queued<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Result<TakenUp, StoreError>> {
        Box::pin(async move { self.mcp.take_queued(id).await })
    }

    /// Cancels a task that was cancelled in its queue.
    ///
    /// # Errors
    ///
    /// [`StoreError`]; it can be tried again.
    pub fn cancel_queued<'a>(&'a self, id: &'a TaskId) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.mcp.cancel_queued(id).await })
    }

    /// Lets no task begin any more, and gives those that run until `drain` has passed.
    pub(super) async fn close_tasks(&self, drain: Duration) {
        if let Some(tasks) = self.mcp.tasks() {
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
        if let Some(sharing) = &self.sharing {
            sharing.leave().await;
        }
        self.sources.close().await;
        self.awaiting.close();
        notes::stopped(
            self.mcp.recorder(),
            &self.in_code.info.version,
            self.policy_version(),
        );
        let closed = self.mcp.recorder().close().await;
        if let Err(error) = &closed {
            tracing::error!(%error, "the ledger could not be closed cleanly");
        }
        if let Some(witness) = &self.witness {
            witness.close().await;
        }
        self.quotas.close().await;
        if let Some(sessions) = &self.sessions {
            sessions.close().await;
        }
        closed.is_ok()
    }
}

const WITHOUT_TEMPORAL: &str = "`tasks.temporal`: this program was built without Temporal";
const WITH_TEMPORAL: &str =
    "build it with `--features temporal` (docs/temporal.md), or leave the section out";

/// The problem of settings that name an engine of tasks, for a program that gives a server none.
pub fn without_engine(loaded: &Loaded) -> Option<Problem> {
    const KEY: &str = "tasks.temporal";
    loaded.config.tasks.temporal.as_ref()?;
    let problem = Problem::error(loaded.place(KEY), WITHOUT_TEMPORAL).key(KEY);
    Some(problem.hint(WITH_TEMPORAL))
}

/// Runner of the calls of tasks.
fn runner(config: &Config, in_code: &InCode) -> Result<Arc<dyn TaskRunner>, Failure> {
    match &in_code.runner {
        Some(runner) => Ok(Arc::clone(runner)),
        None if config.tasks.temporal.is_some() => {
            Err(format!("{WITHOUT_TEMPORAL}: {WITH_TEMPORAL}").into())
        }
        None => Ok(Arc::new(RunHere)),
    }
}

async fn open_tasks(
    config: &Config,
    cluster: Option<&Cluster>,
    runner: Arc<dyn TaskRunner>,
) -> Result<Option<Arc<Tasks>>, Failure> {
    if !config.tasks.enabled {
        return Ok(None);
    }
    if let Some(cluster) = cluster.filter(|_| config.shares_tasks()) {
        let store = Arc::new(cluster.tasks());
        let options = task_options(config);
        let tasks = Tasks::open_with(store, options, system_clock, runner).await?;
        return Ok(Some(tasks));
    }
    let path = config.tasks_path();
    let store = SqliteTaskStore::open(&path).map_err(|error| match error {
        task_store::OpenError::Locked { .. } => Failure::from(format!(
            "{error}; every server needs a task store of its own: set tasks.path"
        )),
        error => error.into(),
    })?;
    let (store, options) = (Arc::new(store), task_options(config));
    let tasks = Tasks::open_with(store, options, system_clock, runner).await?;
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
        // Files come and go, also by what the client itself has just written.
        resources_ttl: match config.resources.has_changing_files() {
            true => Duration::ZERO,
            false => seconds(config.resources.cache_ttl_seconds),
        },
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
        // Handlers in Python log to clients by their `Context`, and upstreams by what they send.
        client_logging: config.app.is_some()
            || !config.upstreams.is_empty()
            || !config.upstreams_files.is_empty(),
        clock: system_clock,
    }
}

/// Requests to log.
pub(super) fn request_log(logging: &config::Logging) -> RequestLog {
    match logging.requests {
        config::LogRequests::All => RequestLog::All,
        config::LogRequests::Errors => RequestLog::Errors,
        config::LogRequests::None => RequestLog::None,
    }
}

/// Limits of the engine for clients, on every transport.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
