//! One upstream: its connections, and what is known of it.

pub(crate) mod call;
pub(crate) mod desk;
mod lists;
pub(crate) mod meter;
pub(crate) mod own;
pub(crate) mod slot;
pub(crate) mod state;
pub(crate) mod watched;

use self::{
    call::{failure::unavailable, parked::Parked},
    lists::{Held, Judged, WithHeld},
    meter::Meter,
    own::find_lists,
    slot::{Down, Live, Slot, Wants},
    state::Record,
    watched::Watched,
};
use crate::{
    Credentials, Isolation, UpstreamSpec, Uris,
    catalogue::Catalogue,
    exchange::{Subject, Subjects},
    names::{offered_uri, original_uri, scheme_key},
    pins::Pins,
    sign_ins::SignIns,
    store::Store,
};
use adapter_tools::{Askable, ToolCx, ToolError};
use arc_swap::ArcSwapOption;
use mcp_protocol::RawJson;
use mcp_server::SourceTools;
use oauth_client::{AuthorizationError, Authorizer, ExchangedTokens, Exchanger};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::{
    runtime::Handle,
    sync::{broadcast, watch},
    time::sleep,
};
use vault::ClientSecrets;

/// Most connections of one upstream that are for one client each.
const MAX_CLIENTS: usize = 256;
/// Time after which to ask again for something of an upstream that was never heard of.
const UNHEARD_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause between two looks at an upstream that nothing else leads to.
const MAX_LOOK_AGAIN: Duration = Duration::from_secs(900);

pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|it| it.as_secs()).unwrap_or_default()
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
    of_clients: Mutex<HashMap<ClientKey, Arc<Slot>>>,
    /// The catalogue that was read, and what is offered of it.
    pub(crate) judged: Judged,
    pins: Arc<Mutex<Pins>>,
    /// Items that are held by what they are on a connection for one client, each with the reason.
    held_for_clients: Mutex<Held>,
    /// Lists on offer, and the same with what is held.
    with_held: Mutex<Option<WithHeld>>,
    /// Secrets of clients, where each has its own.
    secrets: Option<Arc<ClientSecrets>>,
    /// Addresses at which these are given.
    sign_ins: Option<Arc<SignIns>>,
    /// Tokens of callers, where others are got in exchange for them.
    subjects: Arc<Subjects>,
    /// The exchanger of these, once it was needed.
    exchanger: OnceLock<Result<Exchanger, String>>,
    /// Tokens that were got, by what they were got for.
    exchanged: Mutex<HashMap<Subject, ExchangedTokens>>,
    /// Names of clients whose person has given a credential in a browser, as they do.
    pub(crate) bindings: broadcast::Sender<Arc<str>>,
    /// Held while lists of one client are united with those of others.
    uniting: Mutex<()>,
    pub(crate) parked: Parked,
    pub(crate) watched: Arc<Watched>,
    is_closed: AtomicBool,
    /// Tools that were made of a catalogue, so that their schemas are compiled once.
    pub(crate) made: Mutex<Option<(Arc<Catalogue>, SourceTools)>>,
    /// Tools of these that cannot be offered, each with the reason.
    pub(crate) unusable: Mutex<Vec<String>>,
    /// Tools of these that are held because another has their name, by kind and own name, each with the reason.
    pub(crate) twins: Mutex<BTreeMap<String, String>>,
    /// Told when the lists were read for the first time, or it was found out that they cannot be.
    pub(crate) heard: watch::Sender<bool>,
    /// Source of tokens, for all connections, so that many calls have a token renewed once.
    authorizer: tokio::sync::Mutex<Option<Authorizer>>,
    /// The same for each client that has signed in itself.
    own_authorizers: tokio::sync::Mutex<HashMap<Arc<str>, Authorizer>>,
    calls: AtomicU64,
    lost: AtomicU64,
    pub(crate) meter: Meter,
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

/// Reads the lists of an upstream again while nothing else would, after longer and longer pauses.
async fn look_again(upstream: Weak<Upstream>, first: Duration) {
    let mut pause = first;
    loop {
        sleep(pause).await;
        let Some(upstream) = upstream.upgrade().filter(|it| !it.is_closed()) else {
            return;
        };
        if !upstream.is_out_of_reach() {
            pause = first;
        } else if upstream.all_live().is_empty() && !upstream.rests() {
            // Its state tells why it cannot be reached.
            let _ = upstream.look().await;
            pause = (pause * 2).min(MAX_LOOK_AGAIN);
        }
    }
}

/// True if a client may take another of `most`, of which `all` are taken and `own` are its own: it may have as many as it
/// leaves to others, so that none takes them all.
fn has_room(most: usize, all: usize, own: usize) -> bool {
    own < most.saturating_sub(all)
}

impl Upstream {
    pub(crate) fn start(
        spec: UpstreamSpec,
        store: Option<Store>,
        pins: Arc<Mutex<Pins>>,
        (secrets, sign_ins, subjects): (
            Option<Arc<ClientSecrets>>,
            Option<Arc<SignIns>>,
            Arc<Subjects>,
        ),
        runtime: Handle,
        changes: watch::Sender<u64>,
        updates: broadcast::Sender<String>,
    ) -> Arc<Self> {
        let stored = store
            .as_ref()
            .and_then(|it| Catalogue::load(it, &spec.name, &spec.identity()));
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
            unusable: Mutex::default(),
            twins: Mutex::default(),
            judged: Mutex::default(),
            pins,
            held_for_clients: Mutex::default(),
            with_held: Mutex::default(),
            secrets,
            sign_ins,
            subjects,
            exchanger: OnceLock::new(),
            exchanged: Mutex::default(),
            bindings: broadcast::Sender::new(MAX_CLIENTS),
            uniting: Mutex::default(),
            authorizer: tokio::sync::Mutex::default(),
            own_authorizers: tokio::sync::Mutex::default(),
            calls: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            meter: Meter::default(),
            scheme_key: scheme_key(&spec.name),
            spec,
        });
        if upstream.spec.enabled && upstream.spec.unresolved.is_none() {
            let slot = Slot::start(&upstream, None);
            let _ = upstream.shared.set(slot);
            if upstream.has_own() && upstream.catalogue().is_none() {
                let looking = find_lists(Arc::downgrade(&upstream));
                upstream.runtime.spawn(looking);
            }
            let looking = look_again(Arc::downgrade(&upstream), upstream.spec.look_again);
            upstream.runtime.spawn(looking);
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

    /// An entry of the `_meta` of a tool or result that may name a page, with the address under which that is offered.
    pub(crate) fn with_offered_ui(&self, mut value: Value) -> Value {
        if let Some(Value::String(uri)) = value.get_mut("resourceUri") {
            *uri = self.offered_uri(uri);
        } else if let Value::String(uri) = &mut value
            && uri.starts_with("ui://")
        {
            *uri = self.offered_uri(uri);
        }
        value
    }

    /// Rewrites the addresses of pages in the metadata of what is read.
    pub(crate) fn offer_ui(&self, meta: &mut Option<RawJson>) {
        if let Some(raw) = meta
            && raw.as_str().contains("resourceUri")
            && let Ok(Value::Object(members)) = raw.parse::<Value>()
        {
            let offered = |(name, value)| (name, self.with_offered_ui(value));
            let members: Map<String, Value> = members.into_iter().map(offered).collect();
            *raw = RawJson::from_serialized(Value::Object(members).to_string().into_bytes());
        }
    }

    /// The slot for this call.
    pub(crate) fn slot(self: &Arc<Self>, cx: &ToolCx) -> Result<SlotRef<'_>, Down> {
        let Some(shared) = self.shared.get() else {
            return Err(self.out_of_use());
        };
        if self.is_closed() {
            return Err(Down {
                reason: "it is configured differently now".to_owned(),
                retry_after: Some(Duration::from_secs(1)),
                wants: Wants::Nothing,
            });
        }
        match ClientKey::of(self, cx) {
            None => Ok(SlotRef::Shared(shared)),
            Some(key) => Ok(SlotRef::Own(self.own_slot(key)?)),
        }
    }

    /// Clients that share a connection: none where each has a credential of its own.
    fn isolation(&self) -> Isolation {
        match (self.spec.isolation, self.has_own()) {
            (Isolation::Shared, true) => Isolation::PerClient,
            (isolation, _) => isolation,
        }
    }

    pub(crate) fn wants_login(&self) -> bool {
        locked(&self.record).wants_login
    }

    /// True if it is switched off, or cannot be used as it is configured.
    pub(crate) fn is_out_of_use(&self) -> bool {
        self.shared.get().is_none()
    }

    fn out_of_use(&self) -> Down {
        let why = self.spec.unresolved.as_deref();
        Down {
            reason: why.unwrap_or("it is switched off").to_owned(),
            retry_after: None,
            wants: Wants::Nothing,
        }
    }

    /// Leaves a connection that is of no use any more.
    pub(crate) fn leave(&self, cx: &ToolCx, live: &Arc<Live>) {
        let own =
            ClientKey::of(self, cx).and_then(|key| locked(&self.of_clients).get(&key).cloned());
        if let Some(slot) = own.as_deref().or_else(|| self.shared.get()) {
            slot.leave(live);
        }
    }

    /// Leaves connections on which no call is under way: that of all clients, or those of clients that each have a
    /// credential of their own.
    pub(crate) fn leave_idle(&self) {
        let own: Vec<_> = match self.has_own() {
            true => locked(&self.of_clients).values().cloned().collect(),
            false => Vec::new(),
        };
        let own = own.iter().map(|it| &**it);
        for slot in own.chain(self.shared.get()) {
            if let Some(live) = slot.live()
                && live.desk.calls() == 0
            {
                slot.leave(&live);
            }
        }
    }

    /// True if calls of clients need not lead to a connection, which would show what has changed: the upstream offers nothing,
    /// or something of it is held.
    fn is_out_of_reach(&self) -> bool {
        let offers_nothing = || {
            self.offered().is_some_and(|it| {
                it.tools.is_empty()
                    && it.prompts.is_empty()
                    && it.resources.is_empty()
                    && it.templates.is_empty()
            })
        };
        !self.held().is_empty() || offers_nothing()
    }

    /// Connects, and reads the lists.
    pub(crate) async fn look(self: &Arc<Self>) -> Result<Arc<Live>, Down> {
        match self.shared.get() {
            Some(_) if self.has_own() => self.look_as_client().await,
            Some(slot) => slot.look().await,
            None => Err(self.out_of_use()),
        }
    }

    /// The connection of all clients, which is opened if it is not.
    pub(crate) async fn connect(&self) -> Result<Arc<Live>, Down> {
        match self.shared.get() {
            Some(_) if self.has_own() => Err(Down {
                reason: "each client has connections of its own to it, on which nothing is subscribed to".to_owned(),
                retry_after: None,
                wants: Wants::Nothing,
            }),
            Some(slot) => slot.connected().await,
            None => Err(self.out_of_use()),
        }
    }

    /// Source of tokens for requests; somebody may have signed in since it was asked for the last time.
    pub(crate) async fn authorizer(&self) -> Result<Option<Authorizer>, mcp_client::Error> {
        let authorizer = self.shared_authorizer().await;
        authorizer.map_err(|error| mcp_client::Error::Address {
            url: self.spec.place(),
            reason: crate::store::with_causes(&error),
        })
    }

    pub(crate) async fn shared_authorizer(&self) -> Result<Option<Authorizer>, AuthorizationError> {
        let mut authorizer = self.authorizer.lock().await;
        let is_superseded = match &*authorizer {
            Some(it) => it.is_superseded().await.unwrap_or_default(),
            None => true,
        };
        if is_superseded || self.wants_login() {
            *authorizer = self.spec.authorizer(self.secrets.as_ref()).await?;
        }
        Ok(authorizer.clone())
    }

    /// Error for a request for something of this upstream, whose lists were never read.
    pub(crate) fn absent(&self) -> ToolError {
        let record = locked(&self.record);
        let (name, wants_login) = (&self.spec.name, record.wants_login);
        let is_held = self.spec.held_by().is_some();
        let sign_ins = self.sign_ins.as_ref().filter(|_| self.asks_users());
        if let (Some(sign_ins), false) = (sign_ins, is_held) {
            let page = sign_ins.page(name);
            return ToolError::Unavailable {
                message: format!(
                    "upstream `{name}` has told no client its tools yet, each of which needs a credential of its own: \
                     open {page} in a browser to give yours; the call was not begun"
                ),
                retry_after: Some(UNHEARD_PAUSE),
                detail: record.error.clone().unwrap_or_default(),
            };
        }
        let Some(reason) = record.error.clone().filter(|_| !is_held) else {
            let (why, retry_after) = match is_held {
                true => ("is held back by its operator", None),
                false => ("has not told its tools yet", Some(UNHEARD_PAUSE)),
            };
            return ToolError::Unavailable {
                message: format!("upstream `{name}` {why}; the call was not begun"),
                retry_after,
                detail: String::new(),
            };
        };
        drop(record);
        let retry_after = (!wants_login).then_some(UNHEARD_PAUSE);
        let down = Down {
            reason,
            retry_after,
            wants: match wants_login {
                true => Wants::Login,
                false => Wants::Nothing,
            },
        };
        unavailable(name, &down)
    }

    /// True if the upstream is configured no more, or differently.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    /// Notes that it is configured no more, or differently: no call begins on its connections.
    pub(crate) fn retire(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.watched.silence();
    }

    pub(crate) async fn close(&self) {
        self.retire();
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

    /// Connections that are open.
    pub(crate) fn all_live(&self) -> Vec<Arc<Live>> {
        let own = locked(&self.of_clients);
        let own = own.values().filter_map(|it| it.live());
        own.chain(self.live()).collect()
    }
}

/// The URI under which `uri` of the upstream with this key is offered.
fn offered_as(uris: Uris, key: &str, uri: &str) -> String {
    match uris {
        Uris::AsIs if original_uri(uri).is_none() => uri.to_owned(),
        _ => offered_uri(key, uri),
    }
}

/// Owner of a connection that is not all clients'.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClientKey {
    principal: Arc<str>,
    session: Option<Arc<str>>,
    /// The caller's token, where another is got in exchange for it: with it go the rights of that other.
    subject: Option<Subject>,
    /// A legacy upstream is told once for a connection what can be asked.
    askable: Askable,
}

impl ClientKey {
    fn of(upstream: &Upstream, cx: &ToolCx) -> Option<Self> {
        let isolation = upstream.isolation();
        let is_exchanged = matches!(upstream.spec.credentials, Credentials::Exchanged(_));
        let subject = cx.subject_token.clone().filter(|_| is_exchanged);
        let session = match isolation {
            Isolation::Shared => return None,
            Isolation::PerClient => None,
            Isolation::PerSession => cx.session.clone(),
        };
        Some(Self {
            principal: Arc::clone(&cx.principal),
            session,
            subject: subject.map(Subject),
            askable: cx.askable(),
        })
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
