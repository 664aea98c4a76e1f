pub(crate) mod call;
pub(crate) mod desk;
pub(crate) mod meter;
pub(crate) mod own;
pub(crate) mod slot;
pub(crate) mod watched;

use self::{
    call::{Parked, unavailable},
    desk::Desk,
    meter::{Figures, Meter},
    own::{RefusedClient, find_lists},
    slot::{Down, Live, Slot, Wants},
    watched::Watched,
};
use crate::{
    Credentials, Isolation, Reach, Tokens, UpstreamSpec, Uris,
    catalogue::{Catalogue, Digest as PinDigest},
    exchange::{Subject, Subjects},
    names::{offered_uri, original_uri, scheme_key},
    pins::{Listed, PinKind, Pins, Verdict},
    sign_ins::SignIns,
    store::Store,
};
use adapter_tools::{Askable, ToolCx, ToolError};
use arc_swap::ArcSwapOption;
use data_encoding::HEXLOWER;
use mcp_protocol::{RawJson, model::ResourceContents};
use mcp_server::SourceTools;
use oauth_client::{AuthorizationError, Authorizer, ExchangedTokens, Exchanger};
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
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
/// The shortest time without a word after which an upstream may be taken to hang: connecting may have left a call less.
const SILENCE: Duration = Duration::from_millis(500);
/// Most characters of an error that are kept.
const MAX_ERROR: usize = 300;
/// The longest pause between two looks at an upstream that nothing else leads to.
const MAX_LOOK_AGAIN: Duration = Duration::from_secs(900);

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
    /// Held back by an operator, or since it cannot be used as it is configured: then `error` has the reason.
    Held,
    /// Switched off in the configuration.
    Off,
}

impl State {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Configured,
        Self::Known,
        Self::Connecting,
        Self::Ready,
        Self::Degraded,
        Self::LoginNeeded,
        Self::Held,
        Self::Off,
    ];

    /// The state as one word, for labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::LoginNeeded => "login_needed",
            other => other.as_str(),
        }
    }

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
    /// Seconds since the epoch at which it came into this state, as far as that was noticed.
    pub since: u64,
    /// Reason for the state, for people.
    pub reason: String,
    /// The way to it, without secrets.
    pub place: String,
    /// Fault, of now or of the last time, in at most 300 characters.
    pub error: Option<String>,
    /// Advice on that fault.
    pub cure: Option<String>,
    /// Seconds since the epoch of the last fault, and what it was.
    pub last_error: Option<(u64, String)>,
    /// Revision that was spoken the last time.
    pub revision: Option<&'static str>,
    /// Name and version that the server gives itself.
    pub server: Option<String>,
    /// Tools on offer.
    pub tools: usize,
    /// Tools that its lists have, and that `allow` and `deny` leave out.
    pub tools_withheld: usize,
    /// Items of its lists that are of no use, each with the reason; not those that `allow` and `deny` leave out.
    pub left_out: Vec<String>,
    /// Tools that no client is offered, since they cannot be called, such as for a schema that is none; each with the reason.
    pub unusable: Vec<String>,
    /// Items that are not to be used until an operator decides, each with the reason: a definition that waits for its
    /// approval, or a name that another item has.
    pub held: Vec<String>,
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
    /// Clients that cannot use it, where each needs a credential of its own.
    pub refused_clients: Vec<RefusedClient>,
}

#[derive(Debug, Default)]
struct Record {
    connecting_since: Option<Instant>,
    /// Time until which only an operator has it connected, since it has said so.
    rests_until: Option<Instant>,
    /// A connection that failed or ended.
    error: Option<String>,
    wants_login: bool,
    /// A list that cannot be read.
    lists_error: Option<String>,
    connect_ms: Option<u64>,
    /// Advice on the fault.
    cure: Option<String>,
    last_error: Option<(u64, String)>,
    /// The state that was last noted, and since when it holds.
    state: Option<(State, u64)>,
    /// The last lines on standard error of a child that has ended.
    stderr: String,
    /// Clients whose own credential is missing or was refused, the first to be found out first.
    refused: Vec<RefusedClient>,
}

pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|it| it.as_secs()).unwrap_or_default()
}

/// Lists as they were read, and without what their pins hold.
pub(crate) type Judged = Mutex<Option<(Arc<Catalogue>, Arc<Catalogue>)>>;

/// Items that are not to be used, each with the reason.
type Held = Arc<BTreeMap<String, String>>;

/// Lists with more items held than they say, and what they were made of.
struct WithHeld {
    of: (Arc<Catalogue>, Held),
    made: Arc<Catalogue>,
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
        let before = self.meter.connected.fetch_add(1, Ordering::Relaxed);
        if before != 0 && !is_own {
            self.meter.reconnected.fetch_add(1, Ordering::Relaxed);
        }
        tracing::info!(
            upstream = self.spec.name,
            revision = agreed.version.as_str(),
            server = agreed.server_info.as_ref().map(|it| it.name.as_str()),
            for_one_client = is_own,
            "an upstream is connected"
        );
        let mut record = locked(&self.record);
        record.error = None;
        record.cure = None;
        record.wants_login = false;
    }

    /// Notes for how long the upstream wants to be left alone, if it has said so when it was connected to.
    pub(crate) fn rest(&self, time: Option<Duration>) {
        locked(&self.record).rests_until = time.map(|it| Instant::now() + it);
    }

    /// True as long as only an operator has it connected.
    pub(crate) fn rests(&self) -> bool {
        let until = locked(&self.record).rests_until;
        until.is_some_and(|it| Instant::now() < it)
    }

    pub(crate) fn failed(&self, reason: &str, wants_login: bool) {
        let cure = match (&self.spec.tokens, wants_login) {
            (Tokens::Kept(_), true) => format!(
                "; sign in with `owlclaw-mcp client login --url {}`",
                self.spec.place()
            ),
            _ => String::new(),
        };
        self.failed_so(reason, &cure, wants_login);
    }

    /// Notes that there can be no tokens before somebody does what cures that.
    pub(crate) fn misconfigured(&self, reason: &str, cure: &str) {
        self.failed_so(reason, &format!("; {cure}"), false);
        locked(&self.record).cure = Some(cure.to_owned());
    }

    fn failed_so(&self, reason: &str, cure: &str, wants_login: bool) {
        let mut record = locked(&self.record);
        // Before it is cut: a part of a secret is not recognised.
        let reason = redaction::without_known(reason);
        let reason = shortened(&reason) + cure;
        if record.error.as_ref() != Some(&reason) {
            tracing::warn!(
                upstream = self.spec.name,
                reason,
                "an upstream cannot be reached"
            );
        }
        record.last_error = Some((now(), reason.clone()));
        record.error = Some(reason);
        record.cure = None;
        record.wants_login = wants_login;
        self.state(&mut record);
        drop(record);
        self.heard.send_replace(true);
    }

    /// Notes an attempt to connect that has failed, and what can be done about it.
    pub(crate) fn advise(&self, error: &mcp_client::Error) {
        self.meter.failed.fetch_add(1, Ordering::Relaxed);
        let mut record = locked(&self.record);
        record.cure = Some(cure(&self.spec, error));
        let last_words = match error {
            mcp_client::Error::Closed { stderr, .. } => stderr,
            mcp_client::Error::TimedOut { note, .. } => note,
            _ => return,
        };
        record.stderr.clone_from(last_words);
    }

    /// Keeps the last words of a connection that is left.
    pub(crate) fn left(&self, live: &Live) {
        let mut record = locked(&self.record);
        record.stderr = live.connection.stderr();
        self.state(&mut record);
    }

    /// Notes the state, if it is another than before.
    pub(crate) fn note(&self) {
        self.state(&mut locked(&self.record));
    }

    pub(crate) fn ended(&self, live: &Live) {
        let why = match live.connection.stderr() {
            text if text.is_empty() => "the connection has ended".to_owned(),
            text => format!("the connection has ended; its last words: {text}"),
        };
        self.failed(&why, false);
    }

    /// Notes that a call has run out of its time, if nothing was heard on its connection meanwhile: the upstream hangs, as
    /// far as anybody can say. The next answer ends that.
    pub(crate) fn silent(&self, desk: &Desk, since: Instant) {
        if desk.has_heard_since(since) || since.elapsed() < SILENCE {
            return;
        }
        let name = &self.spec.name;
        let seconds = since.elapsed().as_secs_f64().round();
        let reason =
            format!("it has said nothing for {seconds} s, in which a call has run out of time");
        let mut record = locked(&self.record);
        if record.error.is_none() {
            tracing::warn!(upstream = name, seconds, "an upstream does not answer");
        }
        record.last_error = Some((now(), reason.clone()));
        record.error = Some(reason);
        record.cure = Some(format!(
            "see whether it hangs; if its tools take longer, raise upstreams.{name}.timeout_seconds"
        ));
        self.state(&mut record);
    }

    /// Notes that a call was answered, so that what was wrong with the connection is over.
    pub(crate) fn answered(&self) {
        let mut record = locked(&self.record);
        if record.error.take().is_some() {
            record.cure = None;
            record.wants_login = false;
            self.state(&mut record);
        }
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
        let mut record = locked(&self.record);
        match &problem {
            Some(problem) => record.last_error = Some((now(), problem.clone())),
            // All of them are answers.
            None => {
                record.error = None;
                record.cure = None;
                record.wants_login = false;
            }
        }
        record.lists_error = problem;
        drop(record);
        let before = self.catalogue();
        let is_same = before
            .as_ref()
            .is_some_and(|it| it.lists_the_same(&catalogue));
        if let Some(store) = &self.store {
            catalogue.save(store, &self.spec.name, &self.spec.identity());
        }
        // The same value stays where its tools are still good.
        let catalogue = match (is_same, before) {
            (true, Some(before)) => Arc::new(Catalogue {
                read_at: catalogue.read_at,
                ..(*before).clone()
            }),
            _ => Arc::new(catalogue),
        };
        if is_same && let Some((read, _)) = &mut *locked(&self.judged) {
            *read = Arc::clone(&catalogue);
        }
        self.known.store(Some(catalogue));
        self.note();
        self.heard.send_replace(true);
        if !is_same {
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// Lists of the upstream without what their pins hold, as far as they are known. What is another definition for one
    /// client is held for all.
    pub(crate) fn offered(&self) -> Option<Arc<Catalogue>> {
        let offered = self.judge(&self.judged, self.catalogue()?);
        let of_clients = locked(&self.held_for_clients).clone();
        if of_clients.keys().all(|it| offered.held.contains_key(it)) {
            return Some(offered);
        }
        let mut with_held = locked(&self.with_held);
        if let Some(WithHeld { of, made }) = &*with_held
            && Arc::ptr_eq(&of.0, &offered)
            && Arc::ptr_eq(&of.1, &of_clients)
        {
            return Some(Arc::clone(made));
        }
        let mut made = (*offered).clone();
        for (item, why) in &*of_clients {
            let held = made.held.entry(item.clone());
            held.or_insert_with(|| why.clone());
        }
        let made = Arc::new(made);
        *with_held = Some(WithHeld {
            of: (offered, of_clients),
            made: Arc::clone(&made),
        });
        Some(made)
    }

    /// Reason why an item is held, by what its lists say on this connection, or on that of another client.
    pub(crate) fn holds(&self, live: &Live, kind: &str, name: &str) -> Option<String> {
        let own = live.lists.load_full();
        let own = own.map(|own| self.judge(&live.judged, own));
        let lists = [own, self.offered()];
        let mut lists = lists.iter().flatten().filter(|it| !it.held.is_empty());
        lists.find_map(|it| it.held.get(&format!("{kind}/{name}")).cloned())
    }

    /// Definitions that wait for an operator, by kind and name, each with the reason as far as it is known.
    pub(crate) fn held(&self) -> BTreeMap<String, String> {
        let of_clients = Arc::clone(&locked(&self.held_for_clients));
        let mut held = (*of_clients).clone();
        if let Some((_, judged)) = &*locked(&self.judged) {
            held.extend(judged.held.clone());
        }
        // What is held for one client alone.
        let own: Vec<_> = match self.has_own() {
            true => locked(&self.of_clients)
                .iter()
                .filter_map(|(key, slot)| Some((Arc::clone(&key.principal), slot.live()?)))
                .collect(),
            false => Vec::new(),
        };
        for (client, live) in own {
            if let Some((_, judged)) = &*locked(&live.judged) {
                for (item, why) in &judged.held {
                    let why = || format!("{why} (for client `{}`)", client.escape_debug());
                    held.entry(item.clone()).or_insert_with(why);
                }
            }
        }
        for page in locked(&self.pins).held_pages(&self.spec.name) {
            let why = format!(
                "`{}` of `{}` is held, and waits for `owlclaw-mcp upstream approve`",
                page.escape_debug(),
                self.spec.name
            );
            held.entry(page).or_insert(why);
        }
        held
    }

    /// Digest of the pinned definition of the resource at an address of the upstream, if it is the page of an app: that of
    /// the page, or else that of its entry in the list.
    pub(crate) fn pin_of_page(&self, uri: &str) -> Option<PinDigest> {
        let pins = locked(&self.pins);
        let pin = |kind: PinKind| pins.digest(&self.spec.name, &format!("{}/{uri}", kind.as_str()));
        pin(PinKind::Page).or_else(|| pin(PinKind::Resource))
    }

    /// Compares the lists of connections for one client each with the pins, and holds for all what is held for one.
    /// Definitions that an upstream shows to a client with a credential of its own are held for this client alone: they
    /// may differ by its rights.
    pub(crate) fn judge_for_clients(&self) {
        if self.has_own() {
            return;
        }
        let mut held = BTreeMap::new();
        let own: Vec<_> = locked(&self.of_clients).values().cloned().collect();
        for slot in own {
            if let Some(live) = slot.live()
                && let Some(lists) = live.lists.load_full()
            {
                held.extend(self.judge(&live.judged, lists).held.clone());
            }
        }
        let mut known = locked(&self.held_for_clients);
        if **known != held {
            *known = Arc::new(held);
            drop(known);
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// Compares the page of an app with its pin.
    ///
    /// # Errors
    ///
    /// The reason why it is held.
    pub(crate) fn judge_page(
        &self,
        uri: &str,
        contents: &[ResourceContents],
    ) -> Result<(), String> {
        let contents = contents.iter().map(|it| {
            let content = it.text.as_ref().or(it.blob.as_ref());
            let content = content.map_or("", String::as_str);
            let meta = it
                .meta
                .as_ref()
                .map(|it| serde_json::from_slice(it.as_bytes()));
            let mut page = json!({
                "mimeType": it.mime_type,
                "sha256": HEXLOWER.encode(&Sha256::digest(content)),
                "bytes": content.len(),
                "_meta": meta.and_then(Result::<Value, _>::ok),
            });
            if it.text.is_none() {
                // The same characters are another page when they are decoded.
                page["encoding"] = json!("base64");
            }
            page
        });
        let page = Listed {
            kind: PinKind::Page,
            name: uri.to_owned(),
            definition: json!({ "contents": contents.collect::<Vec<_>>() }),
            further: Some(json!({})),
        };
        let spec = &self.spec;
        let mut pins = locked(&self.pins);
        let before = pins.held_pages(&spec.name);
        let verdicts = pins.judge(&spec.name, spec, &[page]);
        if before != pins.held_pages(&spec.name) {
            // For the record.
            self.changes.send_modify(|version| *version += 1);
        }
        match verdicts.into_iter().next() {
            Some(Verdict::Held { why, .. }) => Err(why),
            _ => Ok(()),
        }
    }

    /// Compares lists with their pins when they are next looked at, since the pins have changed.
    pub(crate) fn judge_anew(&self) {
        *locked(&self.judged) = None;
        let own: Vec<_> = locked(&self.of_clients).values().cloned().collect();
        for slot in own {
            let Some(live) = slot.live() else { continue };
            match live.desk.calls() {
                // It may be of before the change that was approved; a new connection tells.
                0 => slot.leave(&live),
                _ => *locked(&live.judged) = None,
            }
        }
        self.judge_for_clients();
    }

    /// Lists without what their pins hold, compared once.
    fn judge(&self, judged: &Judged, known: Arc<Catalogue>) -> Arc<Catalogue> {
        let mut judged = locked(judged);
        if let Some((of, judged)) = &*judged
            && Arc::ptr_eq(of, &known)
        {
            return Arc::clone(judged);
        }
        let offered = known.judged(&mut locked(&self.pins), &self.spec);
        let offered = self.offerable(&known, offered);
        *judged = Some((known, Arc::clone(&offered)));
        offered
    }

    /// Compares the lists of several upstreams that were not compared yet, in order of their names, so that their pins are
    /// stored once and not once for each.
    pub(crate) fn judge_together(pins: &Mutex<Pins>, upstreams: &[Arc<Self>]) {
        let waiting = upstreams.iter().filter_map(|upstream| {
            let known = upstream.catalogue()?;
            let judged = locked(&upstream.judged);
            let of = judged.as_ref().map(|(of, _)| of);
            let is_judged = of.is_some_and(|it| Arc::ptr_eq(it, &known));
            (!is_judged).then_some((upstream, known, judged))
        });
        let waiting: Vec<_> = waiting.collect();
        let lists = waiting.iter().map(|(it, known, _)| (&it.spec, &**known));
        let lists: Vec<_> = lists.collect();
        if lists.is_empty() {
            return;
        }
        let offered = Catalogue::judged_all(&mut locked(pins), &lists);
        for ((upstream, known, mut judged), offered) in waiting.into_iter().zip(offered) {
            let offered = upstream.offerable(&known, offered);
            *judged = Some((known, offered));
        }
    }

    /// Lists that were compared with their pins; nothing that is pinned, if they could not be.
    fn offerable(&self, known: &Catalogue, judged: Result<Catalogue, String>) -> Arc<Catalogue> {
        Arc::new(judged.unwrap_or_else(|error| {
            tracing::error!(
                upstream = self.spec.name,
                error,
                "the lists of an upstream cannot be compared with their pins, and are not offered"
            );
            Catalogue {
                tools: Vec::new(),
                prompts: Vec::new(),
                templates: Vec::new(),
                ..known.clone()
            }
        }))
    }

    /// Connections that are open.
    pub(crate) fn all_live(&self) -> Vec<Arc<Live>> {
        let own = locked(&self.of_clients);
        let own = own.values().filter_map(|it| it.live());
        own.chain(self.live()).collect()
    }

    /// Reason why a list could not be read the last time.
    pub(crate) fn lists_error(&self) -> Option<String> {
        locked(&self.record).lists_error.clone()
    }

    /// A fault of a part, with which the upstream can be used.
    fn lesser(&self, record: &Record) -> Option<String> {
        let of_lists = record.lists_error.clone();
        of_lists.or_else(|| self.watched.problem())
    }

    /// The state, which is noted if it is another than before, and since when it holds.
    fn state(&self, record: &mut Record) -> (State, u64) {
        let state = if !self.spec.enabled {
            State::Off
        } else if self.spec.held_by().is_some() {
            State::Held
        } else if record.wants_login {
            State::LoginNeeded
        } else if record.error.is_some() || self.lesser(record).is_some() {
            // It stays so while another attempt is made.
            State::Degraded
        } else if record.connecting_since.is_some() {
            State::Connecting
        } else if !self.all_live().is_empty() {
            State::Ready
        } else if self.known.load().is_some() {
            State::Known
        } else {
            State::Configured
        };
        match record.state {
            Some(noted) if noted.0 == state => noted,
            _ => *record.state.insert((state, now())),
        }
    }

    /// Counts for metrics.
    pub(crate) fn figures(&self) -> Figures {
        let (state, _) = self.state(&mut locked(&self.record));
        self.meter.figures(&self.spec.name, state)
    }

    pub(crate) fn status(&self) -> Status {
        let mut record = locked(&self.record);
        let (state, since) = self.state(&mut record);
        let known = self.catalogue();
        let live = self.all_live();
        let error = match state {
            // An operator's own hold is no fault, and what is held is not asked for anything.
            State::Held => self.spec.unresolved.as_deref().map(shortened),
            _ => record.error.clone().or_else(|| self.lesser(&record)),
        };
        let count =
            |count: fn(&Catalogue) -> usize| known.as_deref().map(count).unwrap_or_default();
        let offered = |it: &Arc<Catalogue>| {
            it.tools
                .iter()
                .filter(|it| self.spec.offers(&it.name))
                .count()
        };
        let fitting = known.as_ref().map(offered).unwrap_or_default();
        let unusable = locked(&self.unusable).clone();
        let mut held = self.held();
        held.extend(locked(&self.twins).clone());
        let tools = fitting.saturating_sub(unusable.len());
        Status {
            name: self.spec.name.clone(),
            state,
            since,
            reason: reason(state, &self.spec, error.as_deref(), known.as_deref()),
            place: self.spec.place(),
            cure: error.as_ref().and(record.cure.clone()),
            error,
            last_error: record.last_error.clone(),
            revision: known.as_ref().map(|it| it.version.as_str()),
            server: known.as_ref().and_then(|it| {
                let info = it.server_info.as_ref()?;
                Some(format!("{} {}", info.name, info.version))
            }),
            tools,
            tools_withheld: count(|it| it.tools.len()) - fitting,
            unusable,
            held: held.into_values().collect(),
            left_out: known
                .iter()
                .flat_map(|it| &it.left_out)
                .filter(|it| it.name.as_ref().is_none_or(|it| self.spec.offers(it)))
                .map(|it| it.why.clone())
                .collect(),
            resources: count(|it| it.resources.len()),
            prompts: count(|it| it.prompts.len()),
            lists_age_seconds: known.as_ref().map(|it| it.age().as_secs()),
            connections: live.len(),
            calls_under_way: live.iter().map(|it| it.desk.calls()).sum(),
            calls: self.calls.load(Ordering::Relaxed),
            calls_lost: self.lost.load(Ordering::Relaxed),
            connected: self.meter.connected.load(Ordering::Relaxed),
            connect_ms: record.connect_ms,
            refused_clients: record.refused.clone(),
        }
    }

    /// The last lines that its program has written to standard error, of the one before if none runs; `None`
    /// if it is no program.
    pub(crate) fn stderr(&self) -> Option<String> {
        if !matches!(self.spec.reach, Reach::Child { .. }) {
            return None;
        }
        let live = self.all_live().into_iter().next();
        let text = match live {
            Some(live) => live.connection.stderr(),
            None => locked(&self.record).stderr.clone(),
        };
        Some(redaction::without_known(&text).into_owned())
    }
}

/// As much of an error as is kept.
fn shortened(error: &str) -> String {
    error.chars().take(MAX_ERROR).collect()
}

/// Reason for a state, for people.
fn reason(
    state: State,
    spec: &UpstreamSpec,
    error: Option<&str>,
    known: Option<&Catalogue>,
) -> String {
    match state {
        State::Configured if spec.credentials != Credentials::Shared => {
            "it was never heard of; it is connected for the first client that has a credential of its own".to_owned()
        }
        State::Configured => "it was never heard of; it is connected when it is needed".to_owned(),
        State::Known => {
            let age = known.map(|it| it.age().as_secs()).unwrap_or_default();
            format!(
                "no connection is open; its lists were read {age} s ago, and the next call connects it"
            )
        }
        State::Connecting => "it is being connected".to_owned(),
        State::Ready => "it is connected".to_owned(),
        State::Degraded | State::LoginNeeded => error.unwrap_or("no reason is known").to_owned(),
        State::Held => spec.held_by().unwrap_or_default(),
        State::Off => format!("upstreams.{}.enabled is false", spec.name),
    }
}

/// Advice on an attempt to connect that has failed.
fn cure(spec: &UpstreamSpec, error: &mcp_client::Error) -> String {
    use mcp_client::Error;
    let name = &spec.name;
    let place = spec.place();
    match error {
        Error::Start { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => format!(
            "install `{place}`, or write its whole path: upstreams.{name}.command; `command -v {place}` \
             says where it is"
        ),
        Error::Start { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("make `{place}` executable for the user of the server")
        }
        Error::Unauthorized { .. } if matches!(spec.tokens, Tokens::Kept(_)) => format!(
            "sign in with `owlclaw-mcp client login --url {place}`, or set upstreams.{name}.headers.Authorization"
        ),
        Error::Unauthorized { .. } => {
            format!("set upstreams.{name}.headers.Authorization to a credential that is good")
        }
        Error::AuthorizationMisconfigured { cure, .. } => cure.clone(),
        Error::AuthorizationUnavailable { .. } => {
            "see to its authorization server: the login is kept, and used again as soon as that answers".to_owned()
        }
        Error::TimedOut { .. } => format!(
            "try it by hand (`owlclaw-mcp client ping`), or raise upstreams.{name}.connect_timeout_seconds \
             if it only takes long to start"
        ),
        Error::Address { .. } => format!("correct upstreams.{name}.url"),
        Error::Broken { cause, .. } if cause.is_hang_up() && place.starts_with("http://") => format!(
            "look into the log of the server at {place}; if its port speaks TLS, write https:// in upstreams.{name}.url"
        ),
        Error::Http(_) | Error::Broken { .. } => format!("start the server at {place}, or correct upstreams.{name}.url"),
        Error::Status { .. } if place.starts_with("ws") => format!(
            "correct upstreams.{name}.url: servers that speak WebSocket do it at /mcp/ws or /mcp, and some only where it is \
             switched on (here `http.websocket.enabled`); http instead of ws is what most speak"
        ),
        Error::Status { status: 404, .. } => format!(
            "correct the path in upstreams.{name}.url: servers listen at /mcp, and older ones at /sse"
        ),
        Error::NoCommonVersion { .. } => {
            "use a version of the upstream that speaks a revision of the protocol that is known here"
                .to_owned()
        }
        Error::Closed { .. } => match spec.reach {
            Reach::Child { .. } => format!(
                "run it by hand with the arguments of upstreams.{name}.args; `owlclaw-mcp upstream logs \
                 {name}` shows what it said. Of the environment it has only what upstreams.{name}.env names"
            ),
            Reach::Url { .. } => format!("look into the log of the server at {place}"),
        },
        _ => format!("try it by hand: `owlclaw-mcp client ping`; correct upstreams.{name}"),
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
