pub(crate) mod call;
pub(crate) mod desk;
pub(crate) mod slot;
pub(crate) mod watched;

use self::{
    call::Parked,
    slot::{Down, Live, Slot},
    watched::Watched,
};
use crate::{
    Isolation, UpstreamSpec, Uris,
    catalogue::{Catalogue, Store},
    names::{offered_uri, original_uri, scheme_key},
};
use adapter_tools::{Askable, Tool};
use arc_swap::ArcSwapOption;
use serde::Serialize;
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    sync::{broadcast, watch},
};

/// Most clients of one upstream that have a connection each.
const MAX_CLIENTS: usize = 256;
/// Most characters of an error that are kept.
const MAX_ERROR: usize = 300;

/// State of an upstream. Each says what holds now, and not what was hoped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Configured, and never heard of yet.
    Configured,
    /// Not connected; its lists are known from before.
    Known,
    /// Being connected.
    Connecting,
    /// Connected, and nothing is wrong.
    Ready,
    /// A part does not work, or the upstream cannot be reached: `error` has the reason.
    Degraded,
    /// Authorization is wanted, and what there is was refused.
    LoginNeeded,
    /// Held back by an operator.
    Held,
    /// Switched off in the configuration.
    Off,
}

impl State {
    /// The state in lower-case words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Known => "known",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::LoginNeeded => "login needed",
            Self::Held => "held",
            Self::Off => "off",
        }
    }
}

/// Facts about an upstream, for operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Name.
    pub name: String,
    /// State.
    pub state: State,
    /// The way to it, without secrets.
    pub place: String,
    /// Fault, of now or of the last time, in at most 300 characters.
    pub error: Option<String>,
    /// Revision that was spoken the last time.
    pub revision: Option<&'static str>,
    /// Name and version that the server gives itself.
    pub server: Option<String>,
    /// Tools on offer.
    pub tools: usize,
    /// Tools that its lists have, and that are not on offer.
    pub tools_withheld: usize,
    /// Resources on offer.
    pub resources: usize,
    /// Prompts on offer.
    pub prompts: usize,
    /// Seconds since its lists were read.
    pub lists_age_seconds: Option<u64>,
    /// Connections that are open.
    pub connections: usize,
    /// Calls that are under way.
    pub calls_under_way: usize,
    /// Calls that were made since the start.
    pub calls: u64,
    /// Calls of these whose outcome is unknown.
    pub calls_lost: u64,
    /// Times that it was connected since the start.
    pub connected: u64,
    /// Milliseconds that connecting took the last time.
    pub connect_ms: Option<u64>,
}

#[derive(Debug, Default)]
struct Record {
    connecting_since: Option<Instant>,
    /// A connection that failed or ended.
    error: Option<String>,
    wants_login: bool,
    /// A list that cannot be read.
    lists_error: Option<String>,
    connect_ms: Option<u64>,
}

/// One upstream, with what is known of it.
pub(crate) struct Upstream {
    pub(crate) spec: UpstreamSpec,
    /// Part of the URIs of its resources.
    pub(crate) scheme_key: String,
    pub(crate) runtime: Handle,
    store: Option<Store>,
    known: ArcSwapOption<Catalogue>,
    changes: watch::Sender<u64>,
    record: Mutex<Record>,
    shared: OnceLock<Slot>,
    of_clients: Mutex<HashMap<Arc<str>, Arc<Slot>>>,
    pub(crate) parked: Parked,
    pub(crate) watched: Arc<Watched>,
    is_closed: AtomicBool,
    /// Tools that were made of a catalogue, so that their schemas are compiled once.
    pub(crate) made: Mutex<Option<(Arc<Catalogue>, Vec<Tool>)>>,
    /// Told when the lists were read for the first time, or it was found out that they cannot be.
    pub(crate) heard: watch::Sender<bool>,
    calls: AtomicU64,
    lost: AtomicU64,
    connects: AtomicU64,
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Upstream {
    pub(crate) fn start(
        spec: UpstreamSpec,
        store: Option<Store>,
        runtime: Handle,
        changes: watch::Sender<u64>,
        updates: broadcast::Sender<String>,
    ) -> Arc<Self> {
        let stored = store
            .as_ref()
            .and_then(|it| it.catalogue(&spec.name, &spec.identity()));
        let upstream = Arc::new(Self {
            runtime,
            store,
            heard: watch::Sender::new(stored.is_some()),
            known: ArcSwapOption::from_pointee(stored),
            changes,
            record: Mutex::default(),
            shared: OnceLock::new(),
            of_clients: Mutex::default(),
            parked: Parked::default(),
            watched: Arc::new(Watched::new(&spec, updates)),
            is_closed: AtomicBool::new(false),
            made: Mutex::default(),
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            connects: AtomicU64::new(0),
            scheme_key: scheme_key(&spec.name),
            spec,
        });
        if upstream.spec.enabled {
            let slot = Slot::start(&upstream, None);
            let _ = upstream.shared.set(slot);
        }
        upstream
    }

    /// Lists of the upstream, as far as they are known.
    pub(crate) fn catalogue(&self) -> Option<Arc<Catalogue>> {
        self.known.load_full()
    }

    /// The URI, or template of URIs, under which `uri` of the upstream is offered. One that looks like the URI of another
    /// upstream has a prefix in any case.
    pub(crate) fn offered_uri(&self, uri: &str) -> String {
        offered_as(self.spec.uris, &self.scheme_key, uri)
    }

    /// The slot for calls of `principal`, who can be asked this.
    pub(crate) fn slot(
        self: &Arc<Self>,
        principal: &Arc<str>,
        askable: Askable,
    ) -> Result<SlotRef<'_>, Down> {
        let Some(shared) = self.shared.get() else {
            return Err(switched_off());
        };
        if self.spec.isolation == Isolation::Shared {
            return Ok(SlotRef::Shared(shared));
        }
        let mut slots = locked(&self.of_clients);
        if let Some(slot) = slots.get(principal) {
            return Ok(SlotRef::Own(Arc::clone(slot)));
        }
        if MAX_CLIENTS <= slots.len() {
            slots.retain(|_, slot| slot.live().is_some());
        }
        if MAX_CLIENTS <= slots.len() {
            let why = format!("{MAX_CLIENTS} clients have connections to it already");
            return Err(Down {
                reason: why,
                retry_after: Some(Duration::from_secs(5)),
                wants_login: false,
            });
        }
        let slot = Arc::new(Slot::start(self, Some(askable)));
        slots.insert(Arc::clone(principal), Arc::clone(&slot));
        Ok(SlotRef::Own(slot))
    }

    /// Leaves a connection that is of no use any more.
    pub(crate) fn leave(&self, principal: &Arc<str>, live: &Arc<Live>) {
        let own = locked(&self.of_clients).get(principal).cloned();
        if let Some(slot) = own.as_deref().or_else(|| self.shared.get()) {
            slot.leave(live);
        }
    }

    /// Connects, and reads the lists.
    pub(crate) async fn look(&self) -> Result<Arc<Live>, Down> {
        match self.shared.get() {
            Some(slot) => slot.look().await,
            None => Err(switched_off()),
        }
    }

    /// The connection of all clients, which is opened if it is not.
    pub(crate) async fn connect(&self) -> Result<Arc<Live>, Down> {
        match self.shared.get() {
            Some(slot) => slot.connected().await,
            None => Err(switched_off()),
        }
    }

    /// True if the upstream is configured no more, or differently.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub(crate) async fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.parked.clear();
        let own: Vec<_> = locked(&self.of_clients).drain().collect();
        let own = own.iter().map(|(_, slot)| slot.close());
        let shared = async {
            if let Some(slot) = self.shared.get() {
                slot.close().await;
            }
        };
        tokio::join!(futures_util::future::join_all(own), shared);
    }

    /// The open connection of all clients, if there is one.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.shared.get()?.live()
    }

    pub(crate) fn is_connecting(&self, is_connecting: bool) {
        let mut record = locked(&self.record);
        match is_connecting {
            true => record.connecting_since = Some(Instant::now()),
            false => {
                let took = record
                    .connecting_since
                    .take()
                    .map(|it| it.elapsed().as_millis());
                record.connect_ms = took.and_then(|it| u64::try_from(it).ok());
            }
        }
    }

    pub(crate) fn connected(&self, live: &Live, is_own: bool) {
        let agreed = live.connection.agreed();
        self.connects.fetch_add(1, Ordering::Relaxed);
        tracing::info!(
            upstream = self.spec.name,
            revision = agreed.version.as_str(),
            server = agreed.server_info.as_ref().map(|it| it.name.as_str()),
            for_one_client = is_own,
            "an upstream is connected"
        );
        let mut record = locked(&self.record);
        record.error = None;
        record.wants_login = false;
    }

    pub(crate) fn failed(&self, reason: &str, wants_login: bool) {
        let mut record = locked(&self.record);
        let reason: String = reason.chars().take(MAX_ERROR).collect();
        if record.error.as_ref() != Some(&reason) {
            tracing::warn!(
                upstream = self.spec.name,
                reason,
                "an upstream cannot be reached"
            );
        }
        record.error = Some(reason);
        record.wants_login = wants_login;
        drop(record);
        self.heard.send_replace(true);
    }

    pub(crate) fn ended(&self, live: &Live) {
        let why = match live.connection.stderr() {
            text if text.is_empty() => "the connection has ended".to_owned(),
            text => format!("the connection has ended; its last words: {text}"),
        };
        self.failed(&why, false);
    }

    /// Notes that a call was answered, so that what was wrong with the connection is over.
    pub(crate) fn answered(&self) {
        let mut record = locked(&self.record);
        record.error = None;
        record.wants_login = false;
    }

    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes over what was read of its lists.
    pub(crate) fn listed(&self, catalogue: Catalogue, problem: Option<String>) {
        if let Some(problem) = &problem {
            tracing::warn!(
                upstream = self.spec.name,
                problem,
                "not all of an upstream is known"
            );
        }
        locked(&self.record).lists_error = problem;
        let before = self.catalogue();
        let is_same = before
            .as_ref()
            .is_some_and(|it| it.lists_the_same(&catalogue));
        if let Some(store) = &self.store {
            store.keep(&self.spec.name, &self.spec.identity(), &catalogue);
        }
        // The same value stays where its tools are still good.
        let catalogue = match (is_same, before) {
            (true, Some(before)) => Arc::new(Catalogue {
                read_at: catalogue.read_at,
                ..(*before).clone()
            }),
            _ => Arc::new(catalogue),
        };
        if is_same && let Some((made_of, _)) = &mut *locked(&self.made) {
            *made_of = Arc::clone(&catalogue);
        }
        self.known.store(Some(catalogue));
        self.heard.send_replace(true);
        if !is_same {
            self.changes.send_modify(|version| *version += 1);
        }
    }

    pub(crate) fn status(&self) -> Status {
        let record = locked(&self.record);
        let known = self.catalogue();
        let lesser = record
            .lists_error
            .clone()
            .or_else(|| self.watched.problem());
        let own = locked(&self.of_clients);
        let live: Vec<_> = own
            .values()
            .filter_map(|it| it.live())
            .chain(self.live())
            .collect();
        drop(own);
        let state = if !self.spec.enabled {
            State::Off
        } else if record.wants_login {
            State::LoginNeeded
        } else if record.error.is_some() || lesser.is_some() {
            // It stays so while another attempt is made.
            State::Degraded
        } else if record.connecting_since.is_some() {
            State::Connecting
        } else if !live.is_empty() {
            State::Ready
        } else if known.is_some() {
            State::Known
        } else {
            State::Configured
        };
        let count =
            |count: fn(&Catalogue) -> usize| known.as_deref().map(count).unwrap_or_default();
        let offered = |it: &Arc<Catalogue>| {
            it.tools
                .iter()
                .filter(|it| self.spec.offers(&it.name))
                .count()
        };
        let tools = known.as_ref().map(offered).unwrap_or_default();
        Status {
            name: self.spec.name.clone(),
            state,
            place: self.spec.place(),
            error: record.error.clone().or(lesser),
            revision: known.as_ref().map(|it| it.version.as_str()),
            server: known.as_ref().and_then(|it| {
                let info = it.server_info.as_ref()?;
                Some(format!("{} {}", info.name, info.version))
            }),
            tools,
            tools_withheld: count(|it| it.tools.len()) - tools,
            resources: count(|it| it.resources.len()),
            prompts: count(|it| it.prompts.len()),
            lists_age_seconds: known.as_ref().map(|it| it.age().as_secs()),
            connections: live.len(),
            calls_under_way: live.iter().map(|it| it.desk.calls()).sum(),
            calls: self.calls.load(Ordering::Relaxed),
            calls_lost: self.lost.load(Ordering::Relaxed),
            connected: self.connects.load(Ordering::Relaxed),
            connect_ms: record.connect_ms,
        }
    }

    /// The last lines of standard error of a child that is connected.
    pub(crate) fn stderr(&self) -> Option<String> {
        Some(self.live()?.connection.stderr())
    }
}

/// The URI under which `uri` of the upstream with this key is offered.
fn offered_as(uris: Uris, key: &str, uri: &str) -> String {
    match uris {
        Uris::AsIs if original_uri(uri).is_none() => uri.to_owned(),
        _ => offered_uri(key, uri),
    }
}

fn switched_off() -> Down {
    Down {
        reason: "it is switched off".to_owned(),
        retry_after: None,
        wants_login: false,
    }
}

/// The slot of all clients, or of one.
pub(crate) enum SlotRef<'a> {
    Shared(&'a Slot),
    Own(Arc<Slot>),
}

impl std::ops::Deref for SlotRef<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        match self {
            Self::Shared(slot) => slot,
            Self::Own(slot) => slot,
        }
    }
}
