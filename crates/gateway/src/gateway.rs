mod logins;

use crate::{
    Credentials, State, Status, UpstreamSpec, Uris,
    catalogue::{Catalogue, Digest, is_page},
    exchange::Subjects,
    names::{MAX_GONE, NameTable, NameTemplate, is_plain, original_uri},
    pins::{PinEvent, PinKind, PinnedItem, Pins, PinsWanted},
    sign_ins::SignIns,
    store::{Store, with_causes},
    text::{OURS, without_ours},
    upstream::{
        Upstream,
        call::{Item, UpstreamTool},
        meter::Figures,
    },
};
use adapter_skills::SkillCatalog;
use adapter_tools::{Annotations, TaskSupport, Tool, ToolCx, ToolError, ToolKind, ToolSet};
use futures_util::future::{BoxFuture, join_all, ready};
use mcp_protocol::{
    ProtocolVersion, RawJson,
    client::Answer,
    model::{
        self, CacheHint, ClientRequest, Complete, Completion, CompletionReference, GetPrompt,
        GetPromptResult, ListResources, Prompt, ReadResource, ReadResourceResult, Resource,
        ResourceTemplate,
    },
};
use mcp_server::{
    ComponentState, NotOffered, PromptCx, PromptFailure, Prompts, ReadFailure, ResourceEntry,
    Resources, Sought, SourceTools, ToolSource, UNHEARD, UPSTREAM_META,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json, value::RawValue};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
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

    /// True if tools that were made of a catalogue are those of `known`.
    fn is_made(upstream: &Upstream, made_of: &Arc<Catalogue>, known: &Arc<Catalogue>) -> bool {
        // Who has a name that another would have had may have given it up.
        Arc::ptr_eq(made_of, known) && locked(&upstream.twins).is_empty()
    }

    /// Makes the tools of an upstream unless they are made.
    fn make_tools(&self, upstream: &Arc<Upstream>, known: &Arc<Catalogue>) {
        let is_made = {
            let made = locked(&upstream.made);
            let made = made.as_ref();
            made.is_some_and(|(made_of, _)| Self::is_made(upstream, made_of, known))
        };
        if !is_made {
            drop(self.tools_of(upstream, known));
        }
    }

    fn tools_of(&self, upstream: &Arc<Upstream>, known: &Arc<Catalogue>) -> SourceTools {
        let mut made = locked(&upstream.made);
        if let Some((made_of, tools)) = &*made
            && Self::is_made(upstream, made_of, known)
        {
            return tools.clone();
        }
        let template = self.template(upstream);
        let mut own: Vec<&model::Tool> = known
            .tools
            .iter()
            .filter(|it| upstream.spec.offers(&it.name))
            .collect();
        // So that new names are given in an order that depends on nothing else.
        own.sort_by(|one, other| one.name.cmp(&other.name));
        own.dedup_by(|one, other| one.name == other.name);
        let mut found = SourceTools::default();
        let server = &upstream.spec.name;
        let named: Vec<_> = self.naming(|names| {
            let is_there = |item: &str| own.binary_search_by(|it| (*it.name).cmp(item)).is_ok();
            names.tools.forget(server, MAX_GONE, is_there);
            let mut name =
                |tool: &model::Tool| named(&mut names.tools, &template, server, &tool.name);
            own.iter().copied().map(&mut name).collect()
        });
        let mut twins = BTreeMap::new();
        for (tool, (name, taken)) in own.into_iter().zip(named) {
            let key = format!("tool/{}", tool.name);
            let held = known.held.get(&key);
            if let Some(why) = &taken {
                twins.insert(key.clone(), why.clone());
            }
            match self.tool(upstream, tool, name.clone()) {
                Ok(mut tool) => {
                    if let Some(digest) = known.pins.get(&key) {
                        tool = tool.with_recorded_definition(*digest);
                    }
                    found.tools.push(match held.cloned().or(taken) {
                        Some(why) => tool.with_hold(why),
                        None => tool,
                    });
                }
                Err(why) => found.lost.push(NotOffered {
                    tool: name,
                    place: Some(format!("upstreams.{server}")),
                    why,
                }),
            }
        }
        *locked(&upstream.twins) = twins;
        let (_, problems) = ToolSet::collect(found.tools.iter().cloned());
        let unusable = problems.iter().map(|it| {
            let reason = with_causes(&it.reason);
            format!("tool `{}` cannot be offered: {reason}", it.name)
        });
        let lost = found.lost.iter();
        let lost = lost.map(|it| format!("tool `{}` cannot be offered: {}", it.tool, it.why));
        *locked(&upstream.unusable) = unusable.chain(lost).collect();
        let is_listed = |name: &str| known.tools.iter().any(|it| it.name == name);
        for (item, why) in &known.held {
            if let Some(tool) = item.strip_prefix("tool/")
                && upstream.spec.offers(tool)
                && !is_listed(tool)
            {
                found.lost.push(NotOffered {
                    tool: tool.to_owned(),
                    place: Some(format!("upstreams.{server}")),
                    why: why.clone(),
                });
            }
        }
        // What is told of a name must not be about the tool that has it.
        let unfit = known.left_out.iter().filter(|it| it.kind == "tool");
        found.lost.extend(unfit.filter_map(|it| {
            let tool = it.name.clone()?;
            (!is_listed(&tool) && upstream.spec.offers(&tool)).then(|| NotOffered {
                tool,
                place: Some(format!("upstreams.{server}")),
                why: it.why.clone(),
            })
        }));
        *made = Some((Arc::clone(known), found.clone()));
        found
    }

    fn tool(
        &self,
        upstream: &Arc<Upstream>,
        tool: &model::Tool,
        name: String,
    ) -> Result<Tool, String> {
        let unfit = |error| format!("its schema is no JSON: {error}");
        let raw =
            |schema: &RawJson| RawValue::from_string(schema.as_str().to_owned()).map_err(unfit);
        let input = raw(&tool.input_schema)?;
        let output = tool.output_schema.as_ref().map(raw).transpose()?;
        let executor = UpstreamTool {
            upstream: Arc::clone(upstream),
            tool: tool.name.clone(),
        };
        let spec = &upstream.spec;
        let hints = tool.annotations.as_ref();
        let mut origin = json!({ "name": spec.name, "tool": tool.name });
        let mut made = Tool::new(name, Value::Null, executor)
            .with_written_schemas(&input, output.as_deref())
            .describe(self.describe(&spec.name, tool.description.as_deref().unwrap_or_default()))
            .with_kind(ToolKind::Upstream)
            .with_source(format!("upstreams.{}", spec.name))
            .with_timeout(spec.timeout)
            .with_task_support(TaskSupport::Optional)
            .with_risk(spec.risk_of(&tool.name, hints));
        if spec.unresolved.is_some() {
            made = made.with_hold(format!(
                "a secret of `upstreams.{}` is missing, which `owlclaw-mcp upstream list` names",
                spec.name
            ));
        } else if let Some(pattern) = spec.holds(&tool.name) {
            let place = format!("upstreams.{}.hold", spec.name);
            made = made.with_hold(format!(
                "its operator holds it back: `{place}` has `{pattern}`"
            ));
        }
        if let Some(micros) = spec.cost_of(&tool.name) {
            made = made.with_estimated_cost_micros(micros);
        }
        let icons = tool.icons.iter().map(|it| json!(it));
        made = made.with_icons(icons.collect());
        let title = tool.title.as_ref().or_else(|| hints?.title.as_ref());
        if let Some(title) = title {
            made = made.with_title(title.clone());
        }
        if let Some(hints) = hints {
            match spec.trust_annotations {
                true => {
                    made = made.with_annotations(Annotations {
                        read_only: hints.read_only_hint,
                        destructive: hints.destructive_hint,
                        idempotent: hints.idempotent_hint,
                        open_world: hints.open_world_hint,
                    });
                }
                // They are told as what they are: the word of another.
                false => origin["annotations"] = json!(hints),
            }
        }
        for (key, value) in tool.meta.iter() {
            if !key.starts_with(OURS)
                && let Ok(value) = value.parse::<Value>()
            {
                made = made.with_meta(key, upstream.with_offered_ui(value));
            }
        }
        Ok(made.with_meta(UPSTREAM_META, origin))
    }
}

impl Inner {
    fn close_later(&self, upstream: Arc<Upstream>) {
        // At once: a call that comes from now on must not find its connections.
        upstream.retire();
        self.runtime.spawn(async move { upstream.close().await });
    }
}

impl ToolSource for Gateway {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        let upstreams = self.0.upstreams();
        self.naming(|names| {
            let is_kept = |server: &str| upstreams.contains_key(server);
            names.tools.keep(is_kept);
            names.prompts.keep(is_kept);
        });
        let known = self.known();
        if known.iter().any(|(it, _)| !locked(&it.twins).is_empty()) {
            // An upstream that is looked at later may give up the name of one before it.
            for (upstream, known) in &known {
                drop(self.tools_of(upstream, known));
            }
        }
        let mut found = SourceTools::default();
        for (upstream, known) in known {
            let SourceTools { tools, lost } = self.tools_of(&upstream, &known);
            found.tools.extend(tools);
            found.lost.extend(lost);
        }
        self.store_names();
        found
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        let mut resources = UpstreamResources::default();
        for (upstream, known) in self.known() {
            if known.offer.resources.is_some() {
                resources.add(upstream, known);
            }
        }
        (!resources.upstreams.by_key.is_empty()).then(|| Arc::new(resources) as Arc<dyn Resources>)
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        let mut prompts = UpstreamPrompts::default();
        for (upstream, known) in self.known() {
            let template = self.template(&upstream);
            let server = &upstream.spec.name;
            let own = known.prompts.iter();
            let own: Vec<_> = own.filter(|it| upstream.spec.offers(&it.name)).collect();
            let named: Vec<_> = self.naming(|names| {
                let is_there = |item: &str| own.iter().any(|it| it.name == item);
                names.prompts.forget(server, MAX_GONE, is_there);
                let mut name = |it: &Prompt| named(&mut names.prompts, &template, server, &it.name);
                own.iter().copied().map(&mut name).collect()
            });
            for (prompt, (name, taken)) in own.into_iter().zip(named) {
                if prompts.origins.contains_key(&name) {
                    continue;
                }
                let mut entry = prompt.clone();
                entry.name.clone_from(&name);
                entry.description = entry.description.map(|it| self.describe(server, &it));
                without_ours(&mut entry.meta);
                entry.meta.insert(
                    UPSTREAM_META,
                    &json!({ "name": server, "prompt": prompt.name }),
                );
                let key = format!("prompt/{}", prompt.name);
                let pin = known.pins.get(&key);
                prompts.pins.extend(pin.map(|it| (name.clone(), *it)));
                let held = known.held.get(&key).cloned().or(taken);
                prompts.held.extend(held.map(|why| (name.clone(), why)));
                prompts.entries.push(entry);
                prompts
                    .origins
                    .insert(name, (Arc::clone(&upstream), prompt.name.clone()));
            }
            // Servers of 2024-11-05 had no capability to declare it by.
            let completes =
                known.offer.completions.is_some() || known.version == ProtocolVersion::V2024_11_05;
            if completes {
                prompts.completing.add(upstream);
            }
        }
        self.store_names();
        // Sessions are told at their beginning that there are prompts, when no upstream may have told its own yet.
        (!self.0.upstreams().is_empty()).then(|| Arc::new(prompts) as Arc<dyn Prompts>)
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        Some(self.0.changes.subscribe())
    }

    /// Fails while an upstream cannot be used; the detail names those, with the reason.
    fn health(&self) -> Option<ComponentState> {
        let status = self.status();
        let of_pins = self.0.upstreams().into_values().filter_map(|it| {
            let (held, name) = (it.held(), &it.spec.name);
            let (count, names) = (held.len(), named_shortly(held.keys()));
            let see = "see `owlclaw-mcp upstream diff";
            (count != 0)
                .then(|| format!("{name}: {count} definitions are held ({names}), {see} {name}`"))
        });
        let twins = self.0.upstreams().into_values().filter_map(|it| {
            let (twins, name) = (locked(&it.twins), &it.spec.name);
            let (count, names) = (twins.len(), named_shortly(twins.keys()));
            let see = "see `owlclaw-mcp upstream why";
            (count != 0).then(|| {
                format!("{name}: {count} items are held, whose names others have ({names}), {see} {name}`")
            })
        });
        let held = of_pins.chain(twins);
        let unfit = status
            .iter()
            .filter(|it| it.state != State::Off)
            .filter_map(|it| {
                let (name, first) = (&it.name, it.left_out.first()?);
                let see = "see `owlclaw-mcp upstream why";
                Some(match it.left_out.len() {
                    1 => format!("{name}: an item of its lists is left out ({first}), {see} {name}`"),
                    count => format!(
                        "{name}: {count} items of its lists are left out (the first: {first}), {see} {name}`"
                    ),
                })
            });
        let wrong: Vec<_> = status
            .iter()
            .filter(|it| match it.state {
                State::Degraded | State::LoginNeeded => true,
                // An operator's own hold is no fault.
                State::Held => it.error.is_some(),
                _ => false,
            })
            .map(|it| {
                format!(
                    "{} {}: {}",
                    it.name,
                    it.state.as_str(),
                    it.error.as_deref().unwrap_or("no reason known")
                )
            })
            .chain(held)
            .chain(unfit)
            .collect();
        // That is the clients' own affair, and no fault of the server.
        let refused = status.iter().filter(|it| !it.refused_clients.is_empty());
        let refused = refused.map(|it| {
            let (name, count) = (&it.name, it.refused_clients.len());
            format!("{name}: {count} clients need a credential of their own, see `owlclaw-mcp upstream why {name}`")
        });
        let ok = wrong.is_empty();
        let told: Vec<_> = wrong.into_iter().chain(refused).collect();
        Some(ComponentState {
            name: COMPONENT,
            ok,
            detail: (!told.is_empty()).then(|| told.join("; ")),
        })
    }

    /// Names that begin like those of an upstream whose lists were never read may be its own.
    fn absent(&self, sought: Sought<'_>) -> Option<ToolError> {
        let upstreams = self.0.upstreams().into_values();
        let unheard = upstreams.filter(|it| it.spec.enabled && it.catalogue().is_none());
        let mut found = unheard.filter_map(|it| {
            let beginning = match sought {
                Sought::Tool(_) | Sought::Prompt(_) => self.template(&it).beginning(&it.spec.name),
                Sought::Resource(_) => format!("mcp.{}+", it.scheme_key),
            };
            let (Sought::Tool(name) | Sought::Prompt(name) | Sought::Resource(name)) = sought;
            let own = name.strip_prefix(&beginning).filter(|it| !it.is_empty())?;
            let is_its = !beginning.is_empty() && it.spec.offers(own);
            is_its.then_some((beginning.len(), it))
        });
        // `mcp_a_b_x` is rather of `a-b` than of `a`.
        let first = found.next()?;
        let (_, upstream) = found.fold(first, |one, other| match one.0 < other.0 {
            true => other,
            false => one,
        });
        Some(upstream.absent())
    }

    /// A tool of an upstream takes no name away.
    fn gives_way(&self) -> bool {
        true
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.shut_down())
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

/// A few of these names, and how many more there are.
fn named_shortly<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    const MOST: usize = 5;
    let more = names.len().saturating_sub(MOST);
    let names: Vec<_> = names
        .take(MOST)
        .map(|it| format!("`{}`", it.escape_debug()))
        .collect();
    match more {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Address by which rules know a resource, if it is not the one that it is offered under: pages of apps keep the scheme
/// `ui`, and rules about an upstream's resources hold for them, too.
fn governed_by(upstream: &Upstream, original: &str, offered: &str) -> Option<String> {
    let is_rewritten = offered.starts_with("ui://") && offered != original;
    is_rewritten.then(|| format!("mcp.{}+{original}", upstream.scheme_key))
}

/// Upstreams, to be found by URIs of theirs.
#[derive(Debug, Default)]
struct ByUri {
    by_key: HashMap<String, Arc<Upstream>>,
    /// The upstream whose URIs are as they are.
    rest: Option<Arc<Upstream>>,
}

impl ByUri {
    fn add(&mut self, upstream: Arc<Upstream>) {
        if upstream.spec.uris == Uris::AsIs {
            self.rest = Some(Arc::clone(&upstream));
        }
        self.by_key.insert(upstream.scheme_key.clone(), upstream);
    }

    /// The upstream and the URI there of what is offered as `uri`.
    fn origin(&self, uri: &str) -> Option<(&Arc<Upstream>, String)> {
        let Some((key, original)) = original_uri(uri) else {
            return Some((self.rest.as_ref()?, uri.to_owned()));
        };
        let upstream = self.by_key.get(key)?;
        // A resource has one spelling.
        let is_prefixed = upstream.spec.uris == Uris::Prefixed;
        (is_prefixed || upstream.offered_uri(&original) == uri).then_some((upstream, original))
    }
}

/// Resources of all upstreams at one time.
#[derive(Debug, Default)]
struct UpstreamResources {
    entries: Vec<ResourceEntry>,
    templates: Vec<ResourceTemplate>,
    upstreams: ByUri,
    /// Keys of the upstreams that tell of changes of single resources.
    telling: HashSet<String>,
    /// Upstreams with apps, whose pages name resources as their server does.
    with_apps: Vec<(Arc<Upstream>, Arc<Catalogue>)>,
}

impl UpstreamResources {
    fn add(&mut self, upstream: Arc<Upstream>, known: Arc<Catalogue>) {
        let origin = json!({ "name": upstream.spec.name });
        let mut seen = HashSet::new();
        for resource in &known.resources {
            let uri = upstream.offered_uri(&resource.uri);
            let is_uri = !uri.contains(|it: char| it.is_control() || it.is_whitespace());
            if !is_uri || !upstream.spec.offers(&resource.uri) || !seen.insert(uri.clone()) {
                continue;
            }
            let governed_by = governed_by(&upstream, &resource.uri, &uri);
            let mut resource = Resource {
                uri,
                ..resource.clone()
            };
            without_ours(&mut resource.meta);
            resource.meta.insert(UPSTREAM_META, &origin);
            self.entries.push(ResourceEntry {
                resource,
                governed_by,
                ..ResourceEntry::default()
            });
        }
        let templates = known.templates.iter();
        for template in templates.filter(|it| upstream.spec.offers(&it.uri_template)) {
            let mut template = template.clone();
            template.uri_template = upstream.offered_uri(&template.uri_template);
            without_ours(&mut template.meta);
            template.meta.insert(UPSTREAM_META, &origin);
            self.templates.push(template);
        }
        if known.offer.resources.is_some_and(|it| it.subscribe) {
            self.telling.insert(upstream.scheme_key.clone());
        }
        if known.has_apps() {
            self.with_apps.push((Arc::clone(&upstream), known));
        }
        self.upstreams.add(upstream);
    }

    fn origin(&self, uri: &str) -> Option<(&Arc<Upstream>, String)> {
        self.upstreams.origin(uri)
    }
}

impl Resources for UpstreamResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        if filter.category.is_some() || filter.tag.is_some() {
            return Ok(Vec::new());
        }
        let entries = self.entries.iter().enumerate();
        let fits = |uri: &str| {
            filter
                .uri
                .as_ref()
                .is_none_or(|it| crate::spec::fits(it, uri))
        };
        Ok(entries
            .filter(|(_, it)| fits(&it.resource.uri))
            .map(|(at, _)| at)
            .collect())
    }

    /// A URI of an upstream, listed or not, since the upstream knows what exists. One that is not listed must be
    /// spelled plainly: a rule about a resource must not be passed by another spelling of its URI.
    fn canonical(&self, uri: &str) -> Option<String> {
        let (upstream, original) = self.origin(uri)?;
        let is_listed = || self.entries.iter().any(|it| it.resource.uri == uri);
        let is_offered = upstream.spec.offers(&original) && (is_plain(&original) || is_listed());
        is_offered.then(|| uri.to_owned())
    }

    fn governed_by(&self, uri: &str) -> Option<String> {
        let uri = self.canonical(uri)?;
        let (upstream, original) = self.origin(&uri)?;
        Some(governed_by(upstream, &original, &uri).unwrap_or(uri))
    }

    /// Digest of what is pinned of the page of an app.
    fn definition(&self, uri: &str) -> Option<Digest> {
        let (upstream, original) = self.origin(uri)?;
        is_page(&original)
            .then(|| upstream.pin_of_page(&original))
            .flatten()
    }

    fn meant_by_pages(&self, uri: &str) -> Vec<String> {
        let with_apps = self.with_apps.iter();
        with_apps
            .filter(|(_, known)| known.lists_resource(uri))
            .map(|(upstream, _)| upstream.offered_uri(uri))
            .filter(|it| self.canonical(it).is_some())
            .collect()
    }

    fn tells_of_changes(&self, uri: &str) -> bool {
        let uri = self.canonical(uri);
        let origin = uri.as_deref().and_then(|uri| self.origin(uri));
        origin.is_some_and(|(upstream, _)| self.telling.contains(&upstream.scheme_key))
    }

    fn hear<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            match self.origin(uri) {
                Some((upstream, original)) if self.tells_of_changes(uri) => {
                    upstream.hear(&original).await
                }
                _ => Err(UNHEARD.to_owned()),
            }
        })
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        self.read_for(ToolCx::new("", ""), read)
    }

    fn read_for(
        self: Arc<Self>,
        cx: ToolCx,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            let (upstream, uri) = self.origin(&read.uri).ok_or(ReadFailure::NotFound)?;
            let item = Item {
                upstream,
                name: &uri,
                kind: "resource",
            };
            let request = ClientRequest::ReadResource(ReadResource {
                uri: uri.clone(),
                // Extensions of ours, which an upstream does not know.
                range: None,
                if_none_match: None,
                retry: model::InputRetry::default(),
            });
            match item.ask(&cx, request).await {
                Ok(Answer::ReadResource(mut result)) => {
                    if uri.starts_with("ui://")
                        && let Err(why) = upstream.judge_page(&uri, &result.contents)
                    {
                        return Err(ReadFailure::Held(why));
                    }
                    for contents in &mut result.contents {
                        contents.uri = upstream.offered_uri(&contents.uri);
                        upstream.offer_ui(&mut contents.meta);
                    }
                    // What one client may read, a cache must not show to another.
                    result.cache = CacheHint {
                        ttl_ms: result.cache.ttl_ms,
                        ..CacheHint::NONE
                    };
                    Ok(result)
                }
                Ok(_) => Err(ReadFailure::Unreadable(
                    item.lost("a read was answered with something else", "")
                        .into(),
                )),
                Err(ToolError::NeedsInput(needed)) => Err(ReadFailure::NeedsInput(needed)),
                Err(ToolError::Held(why)) => Err(ReadFailure::Held(why)),
                Err(error) if is_not_found(&error) => Err(ReadFailure::NotFound),
                // The upstream's own words, which were meant for its client.
                Err(ToolError::Failed(failure)) => Err(ReadFailure::Told(failure.message)),
                Err(error @ (ToolError::TimedOut | ToolError::Unavailable { .. })) => {
                    Err(ReadFailure::Handler(error))
                }
                Err(error) => Err(ReadFailure::Unreadable(error.into())),
            }
        })
    }
}

/// True if an upstream says that there is no such resource: -32002, or -32602 in the modern revision.
fn is_not_found(error: &ToolError) -> bool {
    match error {
        ToolError::Rejected(_) => true,
        ToolError::Failed(failure) => {
            let code = failure
                .details
                .as_ref()
                .and_then(|it| it.get("code")?.as_i64());
            code == Some(-32002)
        }
        _ => false,
    }
}

/// Prompts of all upstreams at one time.
#[derive(Debug, Default)]
struct UpstreamPrompts {
    entries: Vec<Prompt>,
    origins: HashMap<String, (Arc<Upstream>, String)>,
    /// Names of prompts that are not to be used, each with the reason.
    held: Vec<(String, String)>,
    /// Digests of the pinned definitions, by name.
    pins: HashMap<String, Digest>,
    /// Upstreams that complete arguments.
    completing: ByUri,
}

impl Prompts for UpstreamPrompts {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        let Some((upstream, name)) = self.origins.get(&cx.name) else {
            let why = "there is no such prompt".to_owned();
            return Box::pin(ready(Err(PromptFailure::Arguments(why))));
        };
        if let Some((_, why)) = self.held.iter().find(|(name, _)| *name == cx.name) {
            return Box::pin(ready(Err(PromptFailure::Held(why.clone()))));
        }
        Box::pin(async move {
            let item = Item {
                upstream,
                name,
                kind: "prompt",
            };
            let request = ClientRequest::GetPrompt(GetPrompt {
                name: name.clone(),
                arguments: cx.arguments,
                ..GetPrompt::default()
            });
            match item.ask(&cx.call, request).await {
                Ok(Answer::GetPrompt(mut result)) => {
                    without_ours(&mut result.meta);
                    for message in &mut result.messages {
                        match &mut message.content {
                            model::Content::Resource { resource, .. } => {
                                resource.uri = upstream.offered_uri(&resource.uri);
                            }
                            model::Content::ResourceLink(link) => {
                                link.uri = upstream.offered_uri(&link.uri);
                            }
                            _ => {}
                        }
                    }
                    Ok(result)
                }
                Ok(_) => Err(PromptFailure::Broken(
                    item.lost("a prompt was answered with something else", "")
                        .into(),
                )),
                Err(ToolError::NeedsInput(needed)) => Err(PromptFailure::NeedsInput(needed)),
                Err(ToolError::Held(why)) => Err(PromptFailure::Held(why)),
                Err(ToolError::Failed(failure)) => Err(PromptFailure::Told(failure.message)),
                Err(error @ (ToolError::TimedOut | ToolError::Unavailable { .. })) => {
                    Err(PromptFailure::Handler(error))
                }
                Err(ToolError::Rejected(invalid)) => {
                    let lines = invalid
                        .violations()
                        .iter()
                        .map(|it| it.message().to_owned());
                    Err(PromptFailure::Arguments(
                        lines.collect::<Vec<_>>().join("; "),
                    ))
                }
                Err(error) => Err(PromptFailure::Broken(error.into())),
            }
        })
    }

    fn held(&self) -> Vec<(String, String)> {
        self.held.clone()
    }

    /// Digest of the pinned definition.
    fn definition(&self, name: &str) -> Option<Digest> {
        self.pins.get(name).copied()
    }

    fn place(&self, name: &str) -> Option<String> {
        let (upstream, _) = self.origins.get(name)?;
        Some(format!("upstreams.{}", upstream.spec.name))
    }

    fn is_announced(&self) -> bool {
        true
    }

    fn suggest<'a>(
        &'a self,
        cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        let found = match &request.reference {
            // What is typed for a definition that nobody has approved stays here.
            CompletionReference::Prompt { name } if self.held.iter().any(|(it, _)| it == name) => {
                return Box::pin(ready(Some(Completion::default())));
            }
            CompletionReference::Prompt { name } => {
                self.origins.get(name).map(|(upstream, own)| {
                    let name = own.clone();
                    (upstream, CompletionReference::Prompt { name })
                })
            }
            CompletionReference::Resource { uri } => {
                let found = self.completing.origin(uri);
                let found = found.filter(|(upstream, uri)| upstream.spec.offers(uri));
                found.map(|(upstream, uri)| (upstream, CompletionReference::Resource { uri }))
            }
        };
        let Some((upstream, reference)) = found else {
            return Box::pin(ready(None));
        };
        if !self.completing.by_key.contains_key(&upstream.scheme_key) {
            return Box::pin(ready(Some(Completion::default())));
        }
        Box::pin(async move {
            let item = Item {
                upstream,
                name: &request.argument,
                kind: "completion of",
            };
            let asked = ClientRequest::Complete(Complete {
                reference,
                ..request.clone()
            });
            let deadline = cx.deadline;
            let asking = item.ask(&cx, asked);
            let answered = match deadline {
                Some(deadline) => match tokio::time::timeout_at(deadline.into(), asking).await {
                    Ok(answered) => answered,
                    Err(_late) => return Some(Completion::default()),
                },
                None => asking.await,
            };
            match answered {
                Ok(Answer::Complete(completion)) => Some(completion),
                // Nothing to suggest, which hinders nobody who types.
                _ => Some(Completion::default()),
            }
        })
    }
}
