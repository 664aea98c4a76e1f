//! The gateway: upstreams as one source, which come and go, and what operators ask of them.

mod by_uri;
mod logins;
mod prompts;
mod resources;
mod source;
mod tools;

use self::by_uri::ByUri;
use crate::{
    Credentials, Status, UpstreamSpec, Uris,
    catalogue::Catalogue,
    exchange::Subjects,
    names::{NameTable, NameTemplate, original_uri},
    pins::{PinEvent, PinKind, PinnedItem, Pins, PinsWanted},
    sign_ins::SignIns,
    store::Store,
    upstream::{Upstream, meter::Figures},
};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
    time::Duration,
};
use tokio::{
    runtime::Handle,
    sync::{broadcast, watch},
};
use vault::ClientSecrets;

/// Name of the component of the health report.
pub const COMPONENT: &str = "upstreams";
/// Most updates of resources that wait to be told of.
const MAX_UPDATES: usize = 1024;
/// The file with the names that were given.
const NAMES_FILE: &str = "names.json";

/// Options of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The form of the names of tools and prompts.
    pub names: NameTemplate,
    /// True if descriptions begin with `[MCP:{server}] `.
    pub describe_origin: bool,
    /// The directory in which lists and names are kept over restarts; none are without one.
    pub directory: Option<PathBuf>,
    /// Secrets of clients, for upstreams with credentials of each client.
    pub clients: Option<Arc<ClientSecrets>>,
    /// Addresses at which clients' people give their credentials; none without a server that browsers reach.
    pub sign_ins: Option<Arc<SignIns>>,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            names: NameTemplate::default(),
            describe_origin: true,
            directory: None,
            clients: None,
            sign_ins: None,
        }
    }
}

/// Upstreams as one source of tools, resources and prompts.
///
/// Lists come from what is known and wait for no upstream; an upstream is connected when it is first needed.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    options: GatewayOptions,
    store: Option<Store>,
    runtime: Handle,
    changes: watch::Sender<u64>,
    /// Offered URIs of resources that have changed.
    updates: broadcast::Sender<String>,
    /// Offered URIs of the resources that clients listen to.
    listened: Mutex<BTreeSet<String>>,
    upstreams: RwLock<BTreeMap<String, Arc<Upstream>>>,
    names: Mutex<Names>,
    pins: Arc<Mutex<Pins>>,
    subjects: Arc<Subjects>,
}

/// Names that were given, under the form that they were given in.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Names {
    tools: NameTable,
    prompts: NameTable,
    /// Number of changes that are stored.
    #[serde(skip)]
    stored: u64,
}

impl Names {
    fn changes(&self) -> u64 {
        self.tools.changes() + self.prompts.changes()
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gateway")
            .field(&self.0.upstreams().keys())
            .finish()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Inner {
    fn upstreams(&self) -> BTreeMap<String, Arc<Upstream>> {
        self.upstreams
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn get(&self, name: &str) -> Option<Arc<Upstream>> {
        let upstreams = self
            .upstreams
            .read()
            .unwrap_or_else(PoisonError::into_inner);
        upstreams.get(name).cloned()
    }

    fn close_later(&self, upstream: Arc<Upstream>) {
        // At once: a call that comes from now on must not find its connections.
        upstream.retire();
        self.runtime.spawn(async move { upstream.close().await });
    }
}

impl Gateway {
    /// A gateway to these upstreams. None is connected yet; what was stored of them is on offer.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime, which connections are kept on.
    #[must_use]
    pub fn new(options: GatewayOptions, specs: Vec<UpstreamSpec>) -> Self {
        let store = options.directory.clone().map(Store::new);
        let names = store.as_ref().and_then(|it| it.value(NAMES_FILE));
        let gateway = Self(Arc::new(Inner {
            store,
            runtime: Handle::current(),
            changes: watch::Sender::new(0),
            updates: broadcast::Sender::new(MAX_UPDATES),
            listened: Mutex::default(),
            upstreams: RwLock::default(),
            names: Mutex::new(names.unwrap_or_default()),
            pins: Arc::new(Mutex::new(Pins::new(options.directory.clone()))),
            subjects: Arc::default(),
            options,
        }));
        gateway.apply(specs);
        gateway
    }

    /// Makes these the upstreams: those that are as they were stay connected, and the others are closed,
    /// added or made anew. Of two with one name the first counts. Returns true if anything is other than before.
    pub fn apply(&self, specs: Vec<UpstreamSpec>) -> bool {
        let with_own = specs
            .iter()
            .filter(|it| it.enabled && it.uris == Uris::AsIs);
        let first = with_own.map(|it| it.name.clone()).min();
        let inner = &self.0;
        let wants_subject =
            |it: &UpstreamSpec| it.enabled && matches!(it.credentials, Credentials::Exchanged(_));
        inner.subjects.want(specs.iter().any(wants_subject));
        let mut upstreams = inner
            .upstreams
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *upstreams);
        let mut has_changed = false;
        for mut spec in specs {
            if upstreams.contains_key(&spec.name) {
                continue;
            }
            if first.as_ref() != Some(&spec.name) {
                spec.uris = Uris::Prefixed;
            }
            let name = spec.name.clone();
            let same = before.remove(&name);
            let upstream = match same {
                Some(same) if same.spec == spec => same,
                other => {
                    has_changed = true;
                    if let Some(other) = other {
                        inner.close_later(other);
                    }
                    let (runtime, changes) = (inner.runtime.clone(), inner.changes.clone());
                    let (updates, pins) = (inner.updates.clone(), Arc::clone(&inner.pins));
                    let own = (
                        inner.options.clients.clone(),
                        inner.options.sign_ins.clone(),
                        Arc::clone(&inner.subjects),
                    );
                    let store = inner.store.clone();
                    Upstream::start(spec, store, pins, own, runtime, changes, updates)
                }
            };
            upstreams.insert(name, upstream);
        }
        has_changed |= !before.is_empty();
        for gone in before.into_values() {
            inner.close_later(gone);
        }
        drop(upstreams);
        if has_changed {
            self.0.changes.send_modify(|version| *version += 1);
            self.pass_on_listened();
        }
        has_changed
    }

    /// Makes these, of which others than resources of upstreams are ignored, the resources that clients listen to:
    /// each is subscribed to at its upstream, once for all clients, for as long as it is among them.
    pub fn listen_to(&self, uris: BTreeSet<String>) {
        *locked(&self.0.listened) = uris;
        self.pass_on_listened();
    }

    /// Resources of upstreams that have changed, by the URIs under which they are offered; only those that
    /// clients listen to ([`Gateway::listen_to`]).
    #[must_use]
    pub fn updates(&self) -> broadcast::Receiver<String> {
        self.0.updates.subscribe()
    }

    fn pass_on_listened(&self) {
        let mut by_uri = ByUri::default();
        let upstreams = self.0.upstreams().into_values();
        upstreams
            .filter(|it| it.spec.enabled)
            .for_each(|it| by_uri.add(it));
        let mut listened: HashMap<_, BTreeSet<String>> = HashMap::new();
        for uri in &*locked(&self.0.listened) {
            // What has no prefix may be another source's.
            if let Some((upstream, original)) = by_uri.origin(uri)
                && upstream.unheard().is_none()
                && upstream.spec.offers(&original)
                && (original_uri(uri).is_some() || upstream.has_listened_to(&original))
            {
                let of_upstream = listened.entry(upstream.scheme_key.clone()).or_default();
                of_upstream.insert(original);
            }
        }
        for (key, upstream) in &by_uri.by_key {
            upstream.listen_to(listened.remove(key).unwrap_or_default());
        }
    }

    /// Begins to read the lists of upstreams that were never heard of, and waits for that, but no longer than
    /// `most`: the first start of a server, whose clients may ask once and never again.
    pub async fn first_look(&self, most: Duration) {
        let upstreams = self.0.upstreams();
        let unknown = upstreams.values().filter(|it| it.catalogue().is_none());
        self.look_at(unknown, most).await;
    }

    /// Connects all upstreams at once and reads their lists, and waits for that, but no longer than `most`.
    pub async fn connect_all(&self, most: Duration) {
        let upstreams = self.0.upstreams();
        self.look_at(upstreams.values(), most).await;
    }

    async fn look_at(&self, upstreams: impl Iterator<Item = &Arc<Upstream>>, most: Duration) {
        let enabled = upstreams.filter(|it| it.spec.enabled);
        let looks = enabled.map(|upstream| {
            let looking = Arc::clone(upstream);
            let look = self
                .0
                .runtime
                .spawn(async move { looking.look().await.map(drop) });
            async move {
                let _ = look.await;
            }
        });
        let looks = join_all(looks);
        let _ = tokio::time::timeout(most, looks).await;
    }

    /// Facts about each upstream, by name.
    #[must_use]
    pub fn status(&self) -> Vec<Status> {
        // Which tools can be used is known once they are made.
        for (upstream, known) in self.known() {
            self.make_tools(&upstream, &known);
        }
        self.store_names();
        self.0.upstreams().values().map(|it| it.status()).collect()
    }

    /// State of one upstream.
    #[must_use]
    pub fn status_of(&self, name: &str) -> Option<Status> {
        let upstream = self.0.get(name)?;
        if let Some(known) = upstream.catalogue() {
            self.make_tools(&upstream, &known);
            self.store_names();
        }
        Some(upstream.status())
    }

    /// Pin of an item, as this process knows it.
    #[must_use]
    pub fn pin(&self, upstream: &str, kind: PinKind, name: &str) -> Option<PinnedItem> {
        locked(&self.0.pins).known(upstream, kind, name)
    }

    /// A page of the pins that are `wanted`, as this process knows them, by upstream, kind and name: those after `after`
    /// (an upstream, and a kind and a name with `/` between them), `most` of them at most; and the number of all that
    /// are wanted.
    #[must_use]
    pub fn pins(
        &self,
        wanted: PinsWanted<'_>,
        after: Option<(&str, &str)>,
        most: usize,
    ) -> (Vec<PinnedItem>, usize) {
        locked(&self.0.pins).known_page(wanted, after, most)
    }

    /// Connects an upstream anew, without the pause that follows failures, and reads its lists. A connection on
    /// which calls are under way stays.
    ///
    /// # Errors
    ///
    /// The reason why that is not possible, or why a list cannot be read.
    pub async fn recheck(&self, name: &str) -> Result<Status, String> {
        let upstream = self
            .0
            .get(name)
            .ok_or_else(|| format!("there is no upstream `{name}`"))?;
        upstream.leave_idle();
        match upstream.look().await {
            Ok(_) => match upstream.lists_error() {
                None => Ok(upstream.status()),
                Some(why) => Err(why),
            },
            Err(down) => Err(down.reason),
        }
    }

    /// The last lines that the program of an upstream has written to standard error, of the one before if none
    /// runs; `None` if it is no program.
    #[must_use]
    pub fn stderr(&self, name: &str) -> Option<String> {
        self.0.get(name)?.stderr()
    }

    /// Counts of each upstream, by name.
    #[must_use]
    pub fn figures(&self) -> Vec<Figures> {
        let upstreams = self.0.upstreams();
        upstreams.values().map(|it| it.figures()).collect()
    }

    /// The beginnings of names of tools, prompts and resources of the upstreams that are known, or of those that
    /// were never heard of.
    #[must_use]
    pub fn beginnings(&self, are_known: bool) -> Vec<String> {
        let upstreams = self.0.upstreams().into_values();
        let wanted =
            upstreams.filter(|it| it.spec.enabled && it.catalogue().is_some() == are_known);
        wanted
            .flat_map(|it| {
                let names = self.template(&it).beginning(&it.spec.name);
                let key = &it.scheme_key;
                [names, format!("mcp.{key}+"), format!("ui://mcp.{key}/")]
            })
            .collect()
    }

    /// Pairs of upstreams of which the names of the second may begin like those of the first: `mcp_a_` and
    /// `mcp_a_b_`. Each is the name and the beginning of the first, and then of the second.
    #[must_use]
    pub fn overlaps(&self) -> Vec<[(String, String); 2]> {
        let upstreams = self.0.upstreams().into_values();
        let enabled = upstreams.filter(|it| it.spec.enabled);
        let beginnings: Vec<_> = enabled
            .map(|it| {
                let beginning = self.template(&it).beginning(&it.spec.name);
                (it.spec.name.clone(), beginning)
            })
            .filter(|(_, beginning)| !beginning.is_empty())
            .collect();
        let pairs = beginnings
            .iter()
            .flat_map(|one| beginnings.iter().map(move |other| [one, other]));
        let overlapping =
            pairs.filter(|[one, other]| one.0 != other.0 && other.1.starts_with(&one.1));
        overlapping.map(|pair| pair.map(Clone::clone)).collect()
    }

    /// Names under which the tools of an upstream are offered, with their own; `None` for one that `allow` and
    /// `deny` leave out, or that has no name yet.
    #[must_use]
    pub fn tools_named(&self, name: &str) -> Vec<(String, Option<String>)> {
        let Some((upstream, known)) = self.0.get(name).and_then(|it| {
            let known = it.catalogue()?;
            Some((it, known))
        }) else {
            return Vec::new();
        };
        let names = locked(&self.0.names);
        let tools = known.tools.iter().map(|tool| {
            let is_offered = upstream.spec.offers(&tool.name);
            let given = names.tools.given(name, &tool.name).map(str::to_owned);
            (tool.name.clone(), given.filter(|_| is_offered))
        });
        tools.collect()
    }

    /// Patterns of an upstream's settings that fit nothing which it lists: the upstream, the key of the setting, the
    /// pattern, and the names that it was compared with. An upstream that was never heard has none.
    #[must_use]
    pub fn unmatched_patterns(&self) -> Vec<(String, &'static str, String, Vec<String>)> {
        let mut found = Vec::new();
        for (name, upstream) in self.0.upstreams() {
            let Some(known) = upstream.catalogue().filter(|_| upstream.spec.enabled) else {
                continue;
            };
            let tools = known.tools.iter().map(|it| &it.name);
            let prompts = known.prompts.iter().map(|it| &it.name);
            let resources = known.resources.iter().map(|it| &it.uri);
            let templates = known.templates.iter().map(|it| &it.uri_template);
            let unfit = known.left_out.iter().filter_map(|it| it.name.as_ref());
            let names = tools.chain(prompts).chain(resources).chain(templates);
            let names = names.chain(unfit);
            let names: Vec<String> = names.cloned().collect();
            let tools: Vec<String> = known.tools.iter().map(|it| it.name.clone()).collect();
            let spec = &upstream.spec;
            let is_of = |key: &'static str, names| move |it: &'_ String| (key, it.clone(), names);
            let patterns = (spec.allow.iter().map(is_of("allow", &names)))
                .chain(spec.deny.iter().map(is_of("deny", &names)))
                .chain(spec.hold.iter().map(is_of("hold", &tools)))
                .chain(spec.costs.iter().map(|it| ("costs", it.0.clone(), &tools)))
                .chain(spec.risks.iter().map(|it| ("risks", it.0.clone(), &tools)));
            for (key, pattern, names) in patterns {
                // Held as a whole, it needs no tools for that.
                let is_all = crate::spec::is_all(&pattern);
                if !is_all && !names.iter().any(|it| crate::spec::fits(&pattern, it)) {
                    found.push((name.clone(), key, pattern, names.clone()));
                }
            }
        }
        found
    }

    /// Origin of the tool that is offered as `name`: upstream, and its own name there.
    #[must_use]
    pub fn origin(&self, name: &str) -> Option<(String, String)> {
        let names = locked(&self.0.names);
        let origin = names.tools.origin(name)?;
        Some((origin.server.clone(), origin.item.clone()))
    }

    /// Closes all connections. Children have ended when it returns.
    pub async fn shut_down(&self) {
        let upstreams = self.0.upstreams();
        join_all(upstreams.values().map(|it| it.close())).await;
    }

    /// Names of upstreams whose connection is open, in order.
    #[must_use]
    pub fn connected(&self) -> Vec<String> {
        let upstreams = self.0.upstreams();
        let connected = upstreams
            .into_iter()
            .filter(|(_, it)| !it.all_live().is_empty());
        connected.map(|(name, _)| name).collect()
    }

    fn template(&self, upstream: &Upstream) -> NameTemplate {
        match &upstream.spec.prefix {
            Some(prefix) => NameTemplate::with_prefix(prefix),
            None => self.0.options.names.clone(),
        }
    }

    /// Place of the tokens by which callers have proved who they are, as long as one is wanted.
    #[must_use]
    pub fn subjects(&self) -> &Arc<Subjects> {
        &self.0.subjects
    }

    pub(crate) fn options(&self) -> &GatewayOptions {
        &self.0.options
    }

    /// The upstream of this name.
    pub(crate) fn upstream(&self, name: &str) -> Option<Arc<Upstream>> {
        self.0.get(name)
    }

    /// Events about pins that were not taken yet: definitions that are held or were approved. Each is told
    /// once, over restarts too.
    #[must_use]
    pub fn take_pin_events(&self) -> Vec<PinEvent> {
        locked(&self.0.pins).take_events()
    }

    /// The file of the pins, which an operator's command changes beside a running server.
    #[must_use]
    pub fn pins_path(&self) -> Option<PathBuf> {
        locked(&self.0.pins).path()
    }

    /// Compares all definitions with their pins again, if another process has changed the pins.
    pub fn pins_changed(&self) {
        if !locked(&self.0.pins).has_changed() {
            return;
        }
        for upstream in self.0.upstreams().values() {
            upstream.judge_anew();
        }
        self.0.changes.send_modify(|version| *version += 1);
    }

    /// Each upstream that is known, in order of the names.
    fn known(&self) -> Vec<(Arc<Upstream>, Arc<Catalogue>)> {
        let upstreams = self.0.upstreams().into_values();
        let upstreams: Vec<_> = upstreams.filter(|it| it.spec.enabled).collect();
        Upstream::judge_together(&self.0.pins, &upstreams);
        let known = upstreams.into_iter().filter_map(|it| {
            let offered = it.offered()?;
            Some((it, offered))
        });
        known.collect()
    }

    /// Changes the names. The caller stores them once all are given.
    fn naming<T>(&self, name: impl FnOnce(&mut Names) -> T) -> T {
        name(&mut locked(&self.0.names))
    }

    /// Stores the names if they are others than those that are stored.
    fn store_names(&self) {
        let mut names = locked(&self.0.names);
        let changes = names.changes();
        if changes == names.stored {
            return;
        }
        names.stored = changes;
        if let Some(store) = &self.0.store {
            store.keep_value(NAMES_FILE, &*names);
        }
    }

    fn describe(&self, server: &str, description: &str) -> String {
        match self.0.options.describe_origin {
            true => format!("[MCP:{server}] {description}"),
            false => description.to_owned(),
        }
    }
}

/// The name of an item, and the reason to hold it if another item has the name that it would have had: a rule about
/// that name may have been meant for this one.
fn named(
    names: &mut NameTable,
    template: &NameTemplate,
    server: &str,
    item: &str,
) -> (String, Option<String>) {
    let name = names.assign(template, server, item);
    let taken = names.taken_by(template, server, item);
    let why = taken.map(|(plain, by)| {
        format!(
            "the name `{plain}` of `{}` of `{server}` is that of `{}` of `{}`: give one of the two upstreams another `prefix`",
            item.escape_debug(),
            by.item.escape_debug(),
            by.server
        )
    });
    (name, why)
}
