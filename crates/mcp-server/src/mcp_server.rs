//! The server: its parts put together, and what changes while it serves.

use crate::{
    Filters,
    clock::Clock,
    health::{Component, ComponentState, Health},
    input::request_state::Sealer,
    invocations,
    names::{caller_of, resource_capability, tool_capability},
    observe::{
        calls::{Observer, RequestLog},
        metrics::Metrics,
        requests::{Observed, ObservedEngine},
    },
    offer::Offer,
    options::Options,
    pipeline::late_cost::LateCosts,
    server::{ListOptions, Server, search_view::Unwrapped},
    tasks::{
        recovery::{Recovery, TakenUp},
        registry::Tasks,
    },
    trace::{
        TracedRequests,
        tracer::{Tracer, Tracing},
    },
};
use arc_swap::ArcSwap;
use governance::{Governor, Policy, QuotaStore};
use jsonrpc_core::RawJson;
use ledger::Recorder;
use mcp_protocol::{
    Encoder, HeaderDiffers,
    model::{
        APPS_EXTENSION, DIRECTORY_READ, Implementation, ResourcesCapability, SKILLS_EXTENSION,
        ServerCapabilities, TasksCapability,
    },
};
use mcp_service::{Change, Engine, GivingUp, Principal, ServerIdentity, Subscriptions};
use redaction::Redactor;
use serde_json::{Value, json};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};
use task_store::{StoreError, TaskId};

/// The engine a server serves with; transports take it.
pub type McpEngine<Q> = Engine<Unwrapped<TracedRequests<Observed<Server<Q>>>>>;

/// A server: what is on offer, who may use it, and the record of it.
#[derive(Debug)]
pub struct McpServer<Q: QuotaStore> {
    engine: Arc<McpEngine<Q>>,
    governor: Arc<Governor<Q>>,
    recorder: Recorder,
    redactor: Arc<Redactor>,
    offer: Arc<ArcSwap<Offer>>,
    metrics: Metrics,
    observer: Observer,
    tasks: Option<Arc<Recovery<Q>>>,
    components: Arc<[Component]>,
    version: String,
    sealer: Arc<Sealer>,
    others: Others,
    clock: Clock,
}

/// Way to tell other servers of changes.
#[derive(Default)]
struct Others(OnceLock<Teller>);

/// Tells servers elsewhere of a change.
type Teller = Box<dyn Fn(&Change) + Send + Sync>;

impl fmt::Debug for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Others")
            .field(&self.0.get().is_some())
            .finish()
    }
}

/// Parts of a server.
#[derive(Debug)]
pub struct Parts<Q> {
    /// Name and version of the server.
    pub info: Implementation,
    /// Instructions for the model.
    pub instructions: Option<String>,
    /// The first offer.
    pub offer: Offer,
    /// The rules of use.
    pub governor: Arc<Governor<Q>>,
    /// The record of it.
    pub recorder: Recorder,
    /// Takes secrets out of what is recorded.
    pub redactor: Arc<Redactor>,
    /// Calls that go on after they were answered; `None` for a server where all callers wait.
    pub tasks: Option<Arc<Tasks>>,
    /// Tracing of requests; `None`: none, which costs nothing.
    pub tracing: Option<Tracing>,
    /// Further components of `/health`; the ledger is always one.
    pub components: Vec<Component>,
    /// Filters of calls.
    pub filters: Filters,
    /// Reader of the costs of traces that handlers report; `None` if what they report is not read.
    pub late_costs: Option<Arc<dyn LateCosts>>,
}

/// Has what the schemas of tools mark as secret taken out of all that is kept of their calls.
fn declare_secrets<'a>(redactor: &Redactor, offers: impl IntoIterator<Item = &'a Offer>) {
    let mut pointers = BTreeMap::<String, Vec<String>>::new();
    for tool in offers.into_iter().flat_map(|offer| offer.tools().iter()) {
        let secret = tool.secret_members();
        if !secret.is_empty() {
            let of_tool = pointers.entry(tool_capability(tool.name())).or_default();
            of_tool.extend(secret);
        }
    }
    if let Err(error) = redactor.declare(&pointers) {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "what schemas of tools mark as secret is not redacted"
        );
    }
}

impl<Q: QuotaStore> McpServer<Q> {
    /// Puts the parts together.
    pub fn new(parts: Parts<Q>, options: Options) -> Arc<Self> {
        let Parts {
            info,
            instructions,
            offer,
            governor,
            recorder,
            redactor,
            tasks,
            tracing,
            components: others,
            filters,
            late_costs,
        } = parts;
        declare_secrets(&redactor, [&offer]);
        let metrics = Metrics::new();
        let observer = Observer::new(
            metrics.clone(),
            Arc::clone(&redactor),
            options.answering.development,
        );
        observer.set_log(options.request_log);
        let tracer = tracing.map(|it| Tracer::new(it, Arc::clone(&redactor)));
        let has_prompts = offer.prompts().is_announced();
        let completes_resources = offer.prompts().completes_resources();
        let extensions = extensions(&offer);
        let results = offer.results().cloned();
        let search_view = offer.search().map(|it| Arc::clone(&it.view));
        let offer = Arc::new(ArcSwap::from_pointee(offer));
        let giving_up = Arc::new(GivingUp::default());
        let sealer = Arc::new(Sealer::new());
        let server = Server {
            invocations: Arc::new(invocations(
                Arc::clone(&governor),
                recorder.clone(),
                Arc::clone(&redactor),
                observer.clone(),
                tracer.clone(),
                &options,
                filters,
                Arc::clone(&giving_up),
                results,
                late_costs,
            )),
            governor: Arc::clone(&governor),
            offer: Arc::clone(&offer),
            encoder: Encoder::new(&info),
            lists: ListOptions {
                tools_page: options.tools_page,
                resources_page: options.resources_page,
                tools_ttl_ms: millis(options.tools_ttl),
                resources_ttl_ms: millis(options.resources_ttl),
            },
            answering: options.answering,
            sealer: Arc::clone(&sealer),
            giving_up: Arc::clone(&giving_up),
            recorder: recorder.clone(),
            redactor: Arc::clone(&redactor),
            tasks: tasks.clone(),
            default_timeout: options.default_timeout,
            clock: options.clock,
        };
        let recovery = tasks.as_ref().map(|tasks| {
            Arc::new(Recovery {
                tasks: Arc::clone(tasks),
                invocations: Arc::clone(&server.invocations),
                governor: Arc::clone(&governor),
                offer: Arc::clone(&offer),
                recorder: recorder.clone(),
                encoder: server.encoder.clone(),
                answering: options.answering,
            })
        });
        let version = info.version.clone();
        let identity = ServerIdentity {
            info,
            capabilities: ServerCapabilities {
                tools: true,
                resources: Some(ResourcesCapability { subscribe: true }),
                prompts: has_prompts,
                completions: has_prompts || completes_resources,
                logging: options.client_logging,
                tasks: tasks.as_ref().map(|tasks| TasksCapability {
                    list: tasks.options().list,
                }),
                extensions,
                ..ServerCapabilities::default()
            },
            instructions,
            discover_ttl_ms: millis(options.tools_ttl),
        };
        let subscriptions = Subscriptions::new(options.limits.subscriptions);
        let known = Arc::downgrade(&offer);
        subscriptions.name_resources(move |uri| known.upgrade()?.load().resources().canonical(uri));
        let engine = Engine::with_subscriptions(
            Unwrapped::new(
                // So that everything below knows where in a trace it is.
                TracedRequests::new(
                    Observed::new(server, observer.clone()),
                    tracer,
                    Arc::clone(&offer),
                ),
                search_view,
                Arc::clone(&offer),
            ),
            identity,
            options.limits,
            Arc::clone(&subscriptions),
        );
        engine.observe(Arc::new(ObservedEngine(observer.clone())));
        engine.give_up_by(giving_up);
        if let Some(tasks) = &tasks {
            tasks.attach(subscriptions);
        }
        let mut components = vec![ledger_component(recorder.clone())];
        components.extend(others);
        let server = Arc::new(Self {
            engine,
            governor,
            recorder,
            redactor,
            offer,
            metrics,
            observer,
            tasks: recovery,
            sealer,
            others: Others::default(),
            components: components.into(),
            version,
            clock: options.clock,
        });
        server.add_readings();
        server
    }

    /// Logs these requests from now on.
    pub fn log_requests(&self, which: RequestLog) {
        self.observer.set_log(which);
    }

    /// Seals what travels through clients (`requestState`) with the first of these keys from now on, and opens
    /// what any of them has sealed: for servers that share keys. Until then, and without any, with a key of
    /// this process.
    pub fn seal_with(&self, keys: &[[u8; 32]]) {
        self.sealer.use_keys(keys);
    }

    pub(crate) fn components(&self) -> &Arc<[Component]> {
        &self.components
    }

    /// The engine that transports serve.
    pub fn engine(&self) -> &Arc<McpEngine<Q>> {
        &self.engine
    }

    /// The rules of use, and the counters.
    pub fn governor(&self) -> &Arc<Governor<Q>> {
        &self.governor
    }

    /// The record.
    pub fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    /// The offer now.
    pub fn offer(&self) -> Arc<Offer> {
        self.offer.load_full()
    }

    /// The metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The calls that go on after they were answered.
    pub fn tasks(&self) -> Option<&Arc<Tasks>> {
        self.tasks.as_ref().map(|recovery| &recovery.tasks)
    }

    /// Takes up the tasks that other processes have left, now and whenever there are some, and says
    /// of those that run here that they are carried on; until they are [closed](Tasks::close). Once,
    /// when serving has begun: it goes on in the background.
    ///
    /// What is left by a process is begun again if its tool says that it is idempotent or read-only,
    /// and as often as [`max_attempts`](crate::tasks::registry::TaskOptions::max_attempts) says: as a call of its own,
    /// which is governed, counted and put on record. Everything else is failed.
    pub fn keep_tasks(&self) {
        if let Some(recovery) = &self.tasks {
            Arc::clone(recovery).begin();
        }
    }

    /// Keeps the tasks that this worker [takes](Self::take_queued): it takes up nothing by itself.
    pub fn keep_taken_tasks(&self) {
        if let Some(recovery) = &self.tasks {
            Arc::clone(recovery).begin_as_worker();
        }
    }

    /// Takes a task out of its queue and begins to carry it out: the call is governed and put on record here. Of
    /// any number of workers that are given a task, one carries it out.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store of tasks cannot be read or written; it can be tried again.
    pub async fn take_queued(&self, id: &TaskId) -> Result<TakenUp, StoreError> {
        match &self.tasks {
            Some(recovery) => recovery.take_queued(id).await,
            None => Ok(TakenUp::NotNow),
        }
    }

    /// Cancels a task that was cancelled in its queue, whichever worker carries it out.
    ///
    /// # Errors
    ///
    /// [`StoreError`] when the store of tasks cannot be read or written; it can be tried again.
    pub async fn cancel_queued(&self, id: &TaskId) -> Result<(), StoreError> {
        match &self.tasks {
            Some(recovery) => recovery.cancel_queued(id).await,
            None => Ok(()),
        }
    }

    pub(crate) fn now_us(&self) -> u64 {
        (self.clock)()
    }

    /// State of the server and its components.
    pub fn health(&self) -> Health {
        Health::of(&self.version, &self.components)
    }

    /// Compares the headers of a `tools/call` over HTTP with the arguments they repeat; `params` and
    /// `header` as for [`MirroredParams::compare`](mcp_protocol::MirroredParams::compare). What `principal` may not see is passed, as what
    /// does not exist: the call will say so.
    ///
    /// # Errors
    ///
    /// [`HeaderDiffers`], of the first header that does.
    pub fn compare_headers<'h>(
        &self,
        principal: &Principal,
        tool: &str,
        params: &RawJson,
        header: impl Fn(&str) -> Vec<&'h [u8]>,
    ) -> Result<(), HeaderDiffers> {
        let offer = self.offer.load();
        if !offer.mirrors() {
            return Ok(());
        }
        // Asked of every name, so that the time does not say which ones are hidden.
        let capability = tool_capability(tool);
        let is_visible = self.governor.visible(caller_of(principal), &capability);
        match offer.mirrored(tool) {
            Some(mirrored) if is_visible => mirrored.compare(params, header),
            _ => Ok(()),
        }
    }

    /// Puts another offer and the policy that goes with it in the place of the present ones; see
    /// [`McpServer::replace_offer`]. Clients are told once, and of all lists if the policy is another one.
    pub fn replace(&self, offer: Offer, policy: Policy) {
        let is_another = policy.version() != self.governor.policy().version();
        self.governor.replace_policy(policy);
        self.put_offer(offer, is_another);
    }

    /// Puts another policy in force, and tells clients that their lists may be others now.
    pub fn replace_policy(&self, policy: Policy) {
        self.governor.replace_policy(policy);
        self.engine.subscriptions().look_again();
        self.announce(&Change::Tools);
        self.announce(&Change::Prompts);
        self.announce(&Change::Resources);
    }

    /// Puts another offer in the place of the present one, and tells clients what has changed for
    /// them: tools and prompts if these lists are others, resources, and the single resources they listen to. Calls under way
    /// go on with what they began with.
    pub fn replace_offer(&self, offer: Offer) {
        self.put_offer(offer, false);
    }

    fn put_offer(&self, offer: Offer, tells_all: bool) {
        // Before any call can meet the new offer, and still of the old one, with which calls go on.
        declare_secrets(&self.redactor, [&offer, &self.offer.load()]);
        let before = self.offer.swap(Arc::new(offer));
        let now = self.offer.load();
        self.engine.subscriptions().look_again();
        if before.has_apps() != now.has_apps() {
            let settings = now.has_apps().then(|| json!({}));
            self.engine.declare(APPS_EXTENSION, settings);
        }
        if tells_all || !before.lists_the_same_tools(&now) {
            self.announce(&Change::Tools);
        }
        if tells_all || before.prompts().entries() != now.prompts().entries() {
            self.announce(&Change::Prompts);
        }
        let etags: HashMap<_, _> = before
            .resources()
            .entries()
            .iter()
            .map(|it| (it.resource.uri.as_str(), it.etag.as_str()))
            .collect();
        self.announce(&Change::Resources);
        for entry in now.resources().entries() {
            let uri = entry.resource.uri.as_str();
            if etags.get(uri).is_some_and(|etag| *etag != entry.etag) {
                self.resource_changed(uri);
            }
        }
    }

    /// Names of the resources of which anybody hears: of those that are listened to, what the rules permit to one who
    /// listens. [`Subscriptions::resources_changed`] tells when they may be others.
    pub fn heard_resources(&self) -> BTreeSet<String> {
        let (policy, offer) = (self.governor.policy(), self.offer.load());
        let governed = RefCell::new(HashMap::new());
        let subscriptions = self.engine.subscriptions();
        subscriptions.resources_for(|principal, name| {
            let permits =
                |uri: &str| policy.permitted(caller_of(principal), &resource_capability(uri));
            // Most are governed by their names, and to ask for others takes longer.
            permits(name) || {
                let mut governed = governed.borrow_mut();
                let known = governed
                    .entry(name.to_owned())
                    .or_insert_with(|| offer.resources().governed_by(name));
                known.as_deref().is_some_and(permits)
            }
        })
    }

    /// Tells those who listen to a resource, and may read it now, that it has changed.
    pub fn resource_changed(&self, uri: &str) {
        self.announce(&Change::Resource(uri.to_owned()));
    }

    /// Has `others` called with each change of a list or a resource, so that subscribers on other servers
    /// hear of it. Only the first callback is kept.
    pub fn tell_others_by(&self, others: impl Fn(&Change) + Send + Sync + 'static) {
        // An error means that there is one already.
        let _ = self.others.0.set(Box::new(others));
    }

    fn announce(&self, change: &Change) {
        self.changed_elsewhere(change);
        if let Some(others) = self.others.0.get() {
            others(change);
        }
    }

    /// Tells subscribers here, of a resource those who may read it now, of what has changed on another server.
    pub fn changed_elsewhere(&self, change: &Change) {
        match change {
            Change::Resource(uri) => self.tell_of_resource(uri),
            change => self.engine.publish(change),
        }
    }

    fn tell_of_resource(&self, uri: &str) {
        let governed_by = self.offer.load().resources().governed_by(uri);
        let capability = resource_capability(governed_by.as_deref().unwrap_or(uri));
        let policy = self.governor.policy();
        let subscriptions = self.engine.subscriptions();
        subscriptions.publish(&Change::Resource(uri.to_owned()), |principal| {
            policy.permitted(caller_of(principal), &capability)
        });
    }
}

/// Extensions of the protocol that an offer has, by name and with their settings.
fn extensions(offer: &Offer) -> BTreeMap<String, Value> {
    let skills = offer.resources().skills();
    let skills = skills.map(|_| (SKILLS_EXTENSION.to_owned(), json!({ DIRECTORY_READ: true })));
    let apps = offer.has_apps();
    let apps = apps.then(|| (APPS_EXTENSION.to_owned(), json!({})));
    skills.into_iter().chain(apps).collect()
}

fn ledger_component(recorder: Recorder) -> Component {
    Component::new(move || {
        let health = recorder.health();
        let is_ok = health.is_ok();
        let lesser = health.tidy_error.or(health.seal_error);
        ComponentState {
            name: "ledger",
            ok: is_ok && lesser.is_none(),
            detail: if is_ok { lesser } else { health.last_error },
        }
    })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
