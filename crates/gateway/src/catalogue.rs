use crate::{
    UpstreamSpec,
    pins::{self, Listed, PinKind, Pins, Terms, Verdict},
    store::{Store, with_causes},
    text::Cleaner,
};
use mcp_client::{Agreed, Connection, Error};
use mcp_protocol::{
    Encoder, Method, ProtocolVersion, RawJson, RequestedVersion,
    client::{Answer, LeftOut, ServerError, ServerOffer, decode_result},
    model::{
        APP_META, APP_META_OLD, APP_SCHEME, CacheHint, Implementation, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, Prompt, Resource,
        ResourceTemplate, ServerResult, Tool,
    },
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    io,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Lists of an upstream, as it last told them.
#[derive(Clone, Debug, PartialEq)]
pub struct Catalogue {
    /// Seconds since the epoch at which it said so.
    pub read_at: u64,
    /// Revision that was spoken.
    pub version: ProtocolVersion,
    /// Name and version that it gives itself.
    pub server_info: Option<Implementation>,
    /// Capabilities of the upstream.
    pub offer: ServerOffer,
    /// Tools.
    pub tools: Vec<Tool>,
    /// Resources.
    pub resources: Vec<Resource>,
    /// Templates of resources.
    pub templates: Vec<ResourceTemplate>,
    /// Prompts.
    pub prompts: Vec<Prompt>,
    /// Items that it lists and that are of no use.
    pub left_out: Vec<Unfit>,
    /// Items that are not to be used, as `tool/NAME`, `prompt/NAME`, `template/URI` or `resource/URI`, each with the reason.
    pub held: BTreeMap<String, String>,
    /// Members of items that no revision has, or the newest has no more, by `tool/NAME` and so on; `None` of lists that
    /// were stored by a version which did not keep them.
    pub(crate) further: Option<BTreeMap<String, Value>>,
    /// Digests of the definitions that are pinned, by the same; of lists that were compared with their pins.
    pub(crate) pins: BTreeMap<String, Digest>,
}

/// SHA-256 of a definition.
pub(crate) type Digest = [u8; 32];

/// Items of a list, each as it was sent.
type AsSent<T> = Vec<(T, RawJson)>;

/// Item of a list that is not taken up: it does not fit, or another has its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unfit {
    /// Kind of the item: `tool`, `prompt`, `resource` or `template`.
    pub kind: String,
    /// Name, or URI, if it has one.
    pub name: Option<String>,
    /// Text that names it, and the reason.
    pub why: String,
}

impl Unfit {
    fn of(kind: &str, item: &LeftOut) -> Self {
        Self {
            kind: kind.to_owned(),
            name: item.name.clone(),
            why: format!("{kind} {item}"),
        }
    }
}

/// The stored form: the lists as the newest revision writes them.
#[derive(Serialize, Deserialize)]
struct Stored {
    identity: String,
    read_at: u64,
    revision: String,
    server_info: Option<Implementation>,
    offer: ServerOffer,
    tools: Box<serde_json::value::RawValue>,
    resources: Box<serde_json::value::RawValue>,
    templates: Box<serde_json::value::RawValue>,
    prompts: Box<serde_json::value::RawValue>,
    #[serde(default)]
    left_out: Vec<Unfit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    further: Option<BTreeMap<String, Value>>,
}

/// Most bytes of a title or description. The longest of published servers have a fifth of it, and all are read by models of
/// all clients.
const MAX_TEXT: usize = 16 << 10;
/// Most bytes of a schema.
const MAX_SCHEMA: usize = 256 << 10;

/// Reason for which an item is of no use, if one of these is too long.
fn too_long(texts: [&Option<String>; 2], schemas: [Option<&RawJson>; 2]) -> Option<String> {
    let texts = texts.into_iter().flatten();
    let texts = texts.map(|it| ("title or description", it.len(), MAX_TEXT));
    let schemas = schemas.into_iter().flatten();
    let schemas = schemas.map(|it| ("schema", it.as_str().len(), MAX_SCHEMA));
    let (what, bytes, most) = texts.chain(schemas).find(|it| it.2 < it.1)?;
    Some(format!("its {what} has {bytes} bytes, of at most {most}"))
}

/// Keeps the first item of each name, if it has one and is not too long, and tells of the others.
fn first_of_each<T>(
    items: &mut Vec<T>,
    kind: &str,
    name: impl Fn(&T) -> &str,
    too_long: impl Fn(&T) -> Option<String>,
    left_out: &mut Vec<Unfit>,
) {
    let mut seen = HashSet::new();
    items.retain(|it| {
        let name = name(it);
        let why = match () {
            () if name.is_empty() => Some("its name is empty".to_owned()),
            () if !seen.insert(name.to_owned()) => {
                Some("an item before it in the list has the same name".to_owned())
            }
            () => too_long(it),
        };
        if let Some(why) = &why {
            let name = Some(name.chars().take(100).collect());
            let why = why.clone();
            left_out.push(Unfit::of(kind, &LeftOut { name, at: 0, why }));
        }
        why.is_none()
    });
}

/// One list of `known`, with that of one client.
fn with_own<T: Clone + PartialEq>(
    known: &Catalogue,
    own: &Catalogue,
    before: Option<&Catalogue>,
    others: &[Arc<Catalogue>],
    list: fn(&Catalogue) -> &Vec<T>,
    name: fn(&T) -> &str,
) -> Vec<T> {
    let find = |of: &'_ Catalogue, item: &T| {
        let found = list(of).iter().find(|it| name(it) == name(item));
        found.cloned()
    };
    let is_seen = |item: &T| others.iter().any(|it| find(it, item).is_some());
    let kept = list(known).iter().filter_map(|item| match find(own, item) {
        Some(own) if own == *item => Some(own),
        Some(_)
            if others
                .iter()
                .any(|it| find(it, item).as_ref() == Some(item)) =>
        {
            Some(item.clone())
        }
        Some(own) => Some(own),
        None if before.is_some_and(|it| find(it, item).is_some()) && !is_seen(item) => None,
        None => Some(item.clone()),
    });
    let new = list(own).iter().filter(|it| find(known, it).is_none());
    kept.chain(new.cloned()).collect()
}

impl Catalogue {
    /// Reads all lists that the upstream says it has. A list that cannot be read is what it was `before`, and
    /// the reason is told, with the time after which the upstream wants to be asked again, if it has said one.
    pub(crate) async fn read(
        connection: &Connection,
        before: Option<&Self>,
    ) -> (Self, Option<String>, Option<Duration>) {
        let agreed: &Agreed = &connection.agreed();
        let offer = &agreed.offer;
        let (mut problem, mut rest) = (None, None);
        let mut told = |list: &str, error: Error| {
            rest = rest.max(error.retry_after());
            problem.get_or_insert_with(|| {
                format!(
                    "the list of its {list} cannot be read: {}",
                    with_causes(&error)
                )
            });
        };
        let mut catalogue = Self {
            read_at: now(),
            version: agreed.version,
            server_info: agreed.server_info.clone(),
            offer: offer.clone(),
            tools: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            left_out: Vec::new(),
            held: BTreeMap::new(),
            further: None,
            pins: BTreeMap::new(),
        };
        let (tools, resources, templates, prompts) = tokio::join!(
            asked(offer.tools.is_some(), connection.tools_as_sent()),
            asked(offer.resources.is_some(), connection.resources_as_sent()),
            asked(
                offer.resources.is_some(),
                connection.resource_templates_as_sent()
            ),
            asked(offer.prompts.is_some(), connection.prompts_as_sent()),
        );
        let mut sent = HashMap::new();
        let mut keep = |kind, name: &str, item| {
            sent.entry((kind, name.to_owned())).or_insert(item);
        };
        catalogue.tools = match tools {
            Ok(tools) => parted(tools, |it, raw| keep(PinKind::Tool, &it.name, raw)),
            Err(error) => {
                told("tools", error);
                before.map(|it| it.tools.clone()).unwrap_or_default()
            }
        };
        catalogue.resources = match resources {
            Ok(resources) => parted(resources, |it, raw| keep(PinKind::Resource, &it.uri, raw)),
            Err(error) => {
                told("resources", error);
                before.map(|it| it.resources.clone()).unwrap_or_default()
            }
        };
        catalogue.templates = match templates {
            Ok(templates) => parted(templates, |it, raw| {
                keep(PinKind::Template, &it.uri_template, raw);
            }),
            // Not every server with resources has the method.
            Err(Error::Server {
                meaning: ServerError::MethodNotFound,
                ..
            }) => Vec::new(),
            Err(error) => {
                told("templates", error);
                before.map(|it| it.templates.clone()).unwrap_or_default()
            }
        };
        catalogue.prompts = match prompts {
            Ok(prompts) => parted(prompts, |it, raw| keep(PinKind::Prompt, &it.name, raw)),
            Err(error) => {
                told("prompts", error);
                before.map(|it| it.prompts.clone()).unwrap_or_default()
            }
        };
        let left_out = connection.left_out();
        catalogue.left_out = left_out
            .iter()
            .map(|(list, item)| Unfit::of(kind_of(list), item))
            .collect();
        let Self {
            tools,
            prompts,
            resources,
            templates,
            left_out,
            ..
        } = &mut catalogue;
        let of_tool = |it: &Tool| {
            let schemas = [Some(&it.input_schema), it.output_schema.as_ref()];
            too_long([&it.title, &it.description], schemas)
        };
        first_of_each(tools, "tool", |it| &it.name, of_tool, left_out);
        let of_prompt = |it: &Prompt| too_long([&it.title, &it.description], [None; 2]);
        first_of_each(prompts, "prompt", |it| &it.name, of_prompt, left_out);
        let of_resource = |it: &Resource| too_long([&it.title, &it.description], [None; 2]);
        first_of_each(resources, "resource", |it| &it.uri, of_resource, left_out);
        let of_template = |it: &ResourceTemplate| too_long([&it.title, &it.description], [None; 2]);
        first_of_each(
            templates,
            "template",
            |it| &it.uri_template,
            of_template,
            left_out,
        );
        catalogue.further = catalogue.further_of(&sent, before);
        let problem = problem.map(|it| redaction::without_known(&it).into_owned());
        (catalogue.without_secrets(), problem, rest)
    }

    /// Members that are only in what was `sent`; for items of a list that could not be read, as they were `before`.
    fn further_of(
        &self,
        sent: &HashMap<(PinKind, String), RawJson>,
        before: Option<&Self>,
    ) -> Option<BTreeMap<String, Value>> {
        let before = before.map(|it| it.further.as_ref());
        let mut further = BTreeMap::new();
        for it in self.definitions().ok()? {
            let key = it.key();
            let more = match sent.get(&(it.kind, it.name.clone())) {
                Some(sent) => {
                    let mut sent = sent.parse::<Value>().ok()?;
                    match it.kind {
                        PinKind::Resource => without_age(&mut sent),
                        PinKind::Tool => without_default(&mut sent),
                        _ => {}
                    }
                    pins::further(&sent, &it.definition)
                }
                None => before??.get(&key).cloned(),
            };
            further.extend(more.map(|more| (key, more)));
        }
        Some(further)
    }

    /// The same without secrets that the process knows: lists are stored, and offered to others.
    fn without_secrets(self) -> Self {
        if !redaction::knows_any() {
            return self;
        }
        let text = self.stored("").map(String::from_utf8);
        let Ok(Ok(text)) = text else {
            return Self::nothing(self);
        };
        match redaction::without_known_json(&text) {
            Cow::Borrowed(_) => self,
            Cow::Owned(text) => {
                let without = Self::of_stored(text.as_bytes(), "");
                without.unwrap_or_else(|| Self::nothing(self))
            }
        }
    }

    fn nothing(self) -> Self {
        Self {
            server_info: None,
            tools: Vec::new(),
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            left_out: Vec::new(),
            further: None,
            ..self
        }
    }

    /// United lists: these, and those that one client has now. An item that the client does not see, and did not see `before`,
    /// stays; so does one that other clients see, as they see it.
    pub(crate) fn united(&self, own: &Self, before: Option<&Self>, others: &[Arc<Self>]) -> Self {
        let mut united = own.clone();
        let offer = &mut united.offer;
        let known = self.offer.clone();
        offer.tools = offer.tools.take().or(known.tools);
        offer.resources = offer.resources.take().or(known.resources);
        offer.prompts = offer.prompts.take().or(known.prompts);
        offer.completions = offer.completions.take().or(known.completions);
        united.tools = with_own(self, own, before, others, |it| &it.tools, |it| &it.name);
        united.resources = with_own(self, own, before, others, |it| &it.resources, |it| &it.uri);
        united.templates = with_own(
            self,
            own,
            before,
            others,
            |it| &it.templates,
            |it| &it.uri_template,
        );
        united.prompts = with_own(self, own, before, others, |it| &it.prompts, |it| &it.name);
        united.further = self.united_further(own, others);
        united
    }

    /// Further members of the items of both: those of `own`, unless other clients see an item as it was known.
    fn united_further(&self, own: &Self, others: &[Arc<Self>]) -> Option<BTreeMap<String, Value>> {
        let (known, new) = (self.further.as_ref()?, own.further.as_ref()?);
        let keys = |of: &Self| -> Option<BTreeSet<String>> {
            let listed = of.definitions().ok()?;
            Some(listed.iter().map(Listed::key).collect())
        };
        let (mut further, own_keys) = (known.clone(), keys(own)?);
        let others: Vec<_> = others
            .iter()
            .filter_map(|it| Some((it, keys(it)?)))
            .collect();
        for key in own_keys {
            let is_seen = others.iter().any(|(it, keys)| {
                let theirs = it.further.as_ref();
                keys.contains(&key) && theirs.is_some_and(|it| it.get(&key) == known.get(&key))
            });
            if !is_seen {
                match new.get(&key) {
                    Some(more) => further.insert(key, more.clone()),
                    None => further.remove(&key),
                };
            }
        }
        Some(further)
    }

    /// True if it lists the same as `other`, whenever either was read.
    pub(crate) fn lists_the_same(&self, other: &Self) -> bool {
        self.version == other.version
            && self.tools == other.tools
            && self.resources == other.resources
            && self.templates == other.templates
            && self.prompts == other.prompts
            && self.left_out == other.left_out
            && self.further == other.further
    }

    /// Time since it was read.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.read_at))
    }

    /// The stored catalogue of an upstream; `None` if there is none, or it is of another server.
    pub(crate) fn load(store: &Store, upstream: &str, identity: &str) -> Option<Self> {
        let bytes = store.read(&file_name(upstream)).ok()??;
        let catalogue = Self::of_stored(&bytes, identity);
        if catalogue.is_none() {
            tracing::debug!(upstream, "a stored catalogue is of no use");
        }
        catalogue
    }

    pub(crate) fn save(&self, store: &Store, upstream: &str, identity: &str) {
        let bytes = self.stored(identity).map_err(io::Error::other);
        let written = bytes.and_then(|bytes| store.write(&file_name(upstream), &bytes));
        if let Err(error) = written {
            tracing::warn!(%error, upstream, "a catalogue cannot be stored, and is read anew at the next start");
        }
    }

    fn stored(&self, identity: &str) -> Result<Vec<u8>, serde_json::Error> {
        let encoder = Encoder::anonymous();
        let cache = CacheHint::NONE;
        let write = |result| -> Result<_, serde_json::Error> {
            let text = encoder.result(ProtocolVersion::NEWEST, &result)?;
            serde_json::value::RawValue::from_string(text.as_str().to_owned())
        };
        serde_json::to_vec(&Stored {
            identity: identity.to_owned(),
            read_at: self.read_at,
            revision: self.version.as_str().to_owned(),
            server_info: self.server_info.clone(),
            offer: self.offer.clone(),
            tools: write(ServerResult::ListTools(ListToolsResult {
                tools: self.tools.clone(),
                next_cursor: None,
                cache,
            }))?,
            resources: write(ServerResult::ListResources(ListResourcesResult {
                resources: self.resources.clone(),
                next_cursor: None,
                cache,
            }))?,
            templates: write(ServerResult::ListResourceTemplates(
                ListResourceTemplatesResult {
                    resource_templates: self.templates.clone(),
                    next_cursor: None,
                    cache,
                },
            ))?,
            prompts: write(ServerResult::ListPrompts(ListPromptsResult {
                prompts: self.prompts.clone(),
                next_cursor: None,
                cache,
            }))?,
            left_out: self.left_out.clone(),
            further: self.further.clone(),
        })
    }

    fn of_stored(bytes: &[u8], identity: &str) -> Option<Self> {
        let stored: Stored = serde_json::from_slice(bytes).ok()?;
        if stored.identity != identity {
            return None;
        }
        let read = |method, list: &serde_json::value::RawValue| {
            let list = RawJson::from_serialized(list.get().as_bytes().to_vec());
            decode_result(ProtocolVersion::NEWEST, method, &list)
                .ok()
                .map(|it| it.answer)
        };
        let Answer::ListTools(tools) = read(Method::ListTools, &stored.tools)? else {
            return None;
        };
        let Answer::ListResources(resources) = read(Method::ListResources, &stored.resources)?
        else {
            return None;
        };
        let Answer::ListResourceTemplates(templates) =
            read(Method::ListResourceTemplates, &stored.templates)?
        else {
            return None;
        };
        let Answer::ListPrompts(prompts) = read(Method::ListPrompts, &stored.prompts)? else {
            return None;
        };
        Some(Self {
            read_at: stored.read_at,
            version: match RequestedVersion::from(stored.revision.as_str()) {
                RequestedVersion::Known(version) => version,
                RequestedVersion::Unknown(_) => return None,
            },
            server_info: stored.server_info,
            offer: stored.offer,
            tools: tools.tools,
            resources: resources.resources,
            templates: templates.resource_templates,
            prompts: prompts.prompts,
            left_out: stored.left_out,
            held: BTreeMap::new(),
            further: stored.further,
            pins: BTreeMap::new(),
        })
    }

    /// True if a tool or resource of it has the page of an app.
    pub(crate) fn has_apps(&self) -> bool {
        let has_page =
            |it: &Tool| it.meta.get(APP_META).is_some() || it.meta.get(APP_META_OLD).is_some();
        self.resources.iter().any(|it| is_page(&it.uri)) || self.tools.iter().any(has_page)
    }

    /// True if a resource is listed, or may belong to a template that is.
    pub(crate) fn lists_resource(&self, uri: &str) -> bool {
        let begins = |template: &str| {
            let fixed = template.split('{').next().unwrap_or_default();
            fixed.contains(':') && uri.starts_with(fixed)
        };
        self.resources.iter().any(|it| it.uri == uri)
            || self.templates.iter().any(|it| begins(&it.uri_template))
    }

    /// Definitions of the tools, prompts and templates, and entries of the pages of apps, the first of each name.
    fn definitions(&self) -> Result<Vec<Listed>, serde_json::Error> {
        let (encoder, cache) = (Encoder::anonymous(), CacheHint::NONE);
        let lists = [
            (
                (PinKind::Tool, "tools", "name"),
                ServerResult::ListTools(ListToolsResult {
                    tools: self.tools.clone(),
                    next_cursor: None,
                    cache,
                }),
            ),
            (
                (PinKind::Prompt, "prompts", "name"),
                ServerResult::ListPrompts(ListPromptsResult {
                    prompts: self.prompts.clone(),
                    next_cursor: None,
                    cache,
                }),
            ),
            (
                (PinKind::Template, "resourceTemplates", "uriTemplate"),
                ServerResult::ListResourceTemplates(ListResourceTemplatesResult {
                    resource_templates: self.templates.clone(),
                    next_cursor: None,
                    cache,
                }),
            ),
        ];
        let pages = self.resources.iter().filter(|it| is_page(&it.uri));
        let pages = (
            (PinKind::Resource, "resources", "uri"),
            ServerResult::ListResources(ListResourcesResult {
                resources: pages
                    .map(|it| Resource {
                        // These say nothing of the page that its pin does not.
                        size: None,
                        last_modified: None,
                        ..it.clone()
                    })
                    .collect(),
                next_cursor: None,
                cache,
            }),
        );
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for ((kind, list, name), result) in lists.into_iter().chain([pages]) {
            let text = encoder.result(ProtocolVersion::NEWEST, &result)?;
            let mut value: Value = serde_json::from_str(text.as_str())?;
            let Value::Array(items) = value[list].take() else {
                continue;
            };
            for definition in items {
                let name = definition[name].as_str().unwrap_or_default().to_owned();
                if seen.insert((kind, name.clone())) {
                    let mut listed = Listed {
                        kind,
                        name,
                        definition,
                        further: None,
                    };
                    listed.further = self.further.as_ref().map(|it| {
                        let more = it.get(&listed.key()).cloned();
                        more.unwrap_or_else(|| Value::Object(Map::new()))
                    });
                    found.push(listed);
                }
            }
        }
        Ok(found)
    }

    /// The same lists as they are offered: definitions that have changed are the pinned ones, and held; texts are
    /// cleaned of what nobody sees.
    ///
    /// # Errors
    ///
    /// When the lists cannot be written or read, so that none of it can be offered.
    pub(crate) fn judged(&self, pins: &mut Pins, spec: &UpstreamSpec) -> Result<Self, String> {
        let listed = self.definitions().map_err(|it| it.to_string())?;
        let verdicts = pins.judge(&spec.name, spec, &listed);
        self.with_verdicts(listed, verdicts, pins.digests(&spec.name))
    }

    /// The same for the lists of several upstreams, whose pins are stored once for all.
    pub(crate) fn judged_all(
        pins: &mut Pins,
        all: &[(&UpstreamSpec, &Self)],
    ) -> Vec<Result<Self, String>> {
        let listed = all.iter().map(|(_, it)| it.definitions());
        let listed: Vec<_> = listed.map(|it| it.map_err(|it| it.to_string())).collect();
        let asked = all.iter().zip(&listed).filter_map(|((spec, _), listed)| {
            let (name, terms): (&str, &dyn Terms) = (&spec.name, *spec);
            Some((name, terms, listed.as_deref().ok()?))
        });
        let asked: Vec<_> = asked.collect();
        let mut verdicts = pins.judge_all(&asked).into_iter();
        let judged = all.iter().zip(listed).map(|((spec, it), listed)| {
            let listed = listed?;
            // Without a verdict nothing is offered.
            let verdicts = verdicts.next().unwrap_or_default();
            it.with_verdicts(listed, verdicts, pins.digests(&spec.name))
        });
        judged.collect()
    }

    fn with_verdicts(
        &self,
        listed: Vec<Listed>,
        verdicts: Vec<Verdict>,
        digests: BTreeMap<String, Digest>,
    ) -> Result<Self, String> {
        let mut held = BTreeMap::new();
        let mut lists: BTreeMap<PinKind, Vec<Value>> = BTreeMap::new();
        let mut cleaner = Cleaner::new(true);
        for (it, verdict) in listed.into_iter().zip(verdicts) {
            let definition = match verdict {
                Verdict::Good => Some(it.definition),
                Verdict::Held { pinned, why } => {
                    held.insert(format!("{}/{}", it.kind.as_str(), it.name), why);
                    pinned
                }
            };
            let mut definition = definition.map(pins::cleaned_definition);
            if matches!(it.kind, PinKind::Template | PinKind::Resource)
                && let Some(Value::String(name)) =
                    definition.as_mut().and_then(|it| it.get_mut("name"))
            {
                // It is for people alone: such items are found by their addresses.
                cleaner.text(name);
            }
            lists.entry(it.kind).or_default().extend(definition);
        }
        let mut judged = self.clone();
        let mut left_out = std::mem::take(&mut judged.left_out);
        let mut read = |kind: PinKind, method, list: &str| {
            let items = lists.remove(&kind).unwrap_or_default();
            let list = json!({ list: items });
            let list = RawJson::from_serialized(list.to_string().into_bytes());
            let read = decode_result(ProtocolVersion::NEWEST, method, &list);
            let read = read.map_err(|it| it.to_string())?;
            let unfit = read.left_out.iter().map(|it| Unfit::of(kind.as_str(), it));
            left_out.extend(unfit);
            Ok::<_, String>(read.answer)
        };
        if let Answer::ListTools(it) = read(PinKind::Tool, Method::ListTools, "tools")? {
            judged.tools = it.tools;
        }
        if let Answer::ListPrompts(it) = read(PinKind::Prompt, Method::ListPrompts, "prompts")? {
            judged.prompts = it.prompts;
        }
        let (method, list) = (Method::ListResourceTemplates, "resourceTemplates");
        if let Answer::ListResourceTemplates(it) = read(PinKind::Template, method, list)? {
            judged.templates = it.resource_templates;
        }
        let (method, list) = (Method::ListResources, "resources");
        if let Answer::ListResources(it) = read(PinKind::Resource, method, list)? {
            let others = judged.resources.into_iter().filter(|it| !is_page(&it.uri));
            judged.resources = others.chain(it.resources).collect();
        }
        let resources = judged.resources.iter_mut();
        resources.for_each(|it| cleaner.listed(it));
        judged.held = held;
        judged.pins = digests;
        judged.left_out = left_out;
        Ok(judged)
    }
}

/// True if hosts show what is at a URI as the page of an app.
pub(crate) fn is_page(uri: &str) -> bool {
    uri.starts_with(APP_SCHEME)
}

/// Support for tasks that a tool has without a word of it (2025-11-25, tasks), taken out of it: newer versions of the
/// official libraries write it out.
fn without_default(tool: &mut Value) {
    if let Some(members) = tool.as_object_mut()
        && members.get("execution") == Some(&json!({ "taskSupport": "forbidden" }))
    {
        members.remove("execution");
    }
}

/// Size and time of a resource, which say nothing of what it is, taken out of it.
fn without_age(resource: &mut Value) {
    if let Some(members) = resource.as_object_mut() {
        members.remove("size");
    }
    if let Some(Value::Object(hints)) = resource.get_mut("annotations") {
        hints.remove("lastModified");
    }
}

/// The items, each of which is handed to `keep` with what was sent of it.
fn parted<T>(items: AsSent<T>, mut keep: impl FnMut(&T, RawJson)) -> Vec<T> {
    let items = items.into_iter();
    let parted = items.map(|(item, sent)| {
        keep(&item, sent);
        item
    });
    parted.collect()
}

/// A list, if the upstream has it; else an empty one.
async fn asked<T>(
    has: bool,
    list: impl Future<Output = Result<Vec<T>, Error>>,
) -> Result<Vec<T>, Error> {
    match has {
        true => list.await,
        false => Ok(Vec::new()),
    }
}

/// Kind of the items of the list that is read by `method`.
fn kind_of(method: &str) -> &'static str {
    match method.split('/').collect::<Vec<_>>()[..] {
        ["tools", ..] => "tool",
        ["prompts", ..] => "prompt",
        ["resources", "templates", ..] => "template",
        _ => "resource",
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|it| it.as_secs()).unwrap_or_default()
}

/// Name of the file of an upstream's catalogue. Names of upstreams come from files of others too, and may be anything.
fn file_name(upstream: &str) -> String {
    format!("{}.json", crate::names::scheme_key(upstream))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(tools: &[(&str, &str)]) -> Arc<Catalogue> {
        let tools = tools.iter().map(|(name, description)| Tool {
            name: (*name).to_owned(),
            description: Some((*description).to_owned()),
            ..Tool::default()
        });
        Arc::new(Catalogue {
            read_at: 1,
            version: ProtocolVersion::NEWEST,
            server_info: None,
            offer: ServerOffer::default(),
            tools: tools.collect(),
            resources: Vec::new(),
            templates: Vec::new(),
            prompts: Vec::new(),
            left_out: Vec::new(),
            held: BTreeMap::new(),
            further: Some(BTreeMap::new()),
            pins: BTreeMap::new(),
        })
    }

    #[test]
    fn lists_of_clients_are_united_and_what_the_last_of_them_loses_is_gone() {
        let known = listing(&[("both", "1"), ("ana", "1"), ("stored", "1")]);
        let ana = listing(&[("both", "1"), ("ana", "1")]);
        let bob = listing(&[("both", "2"), ("bob", "1")]);
        let united = |own: &Catalogue, before: Option<&Catalogue>, others: &[Arc<Catalogue>]| {
            let united = known.united(own, before, others);
            let tools = united.tools.iter();
            let tools =
                tools.map(|it| format!("{} {}", it.name, it.description.as_deref().unwrap()));
            tools.collect::<Vec<_>>().join(", ")
        };
        // As the other client sees it, who is there.
        assert_eq!(
            united(&bob, None, &[Arc::clone(&ana)]),
            "both 1, ana 1, stored 1, bob 1"
        );
        // Nobody else says otherwise.
        assert_eq!(united(&bob, None, &[]), "both 2, ana 1, stored 1, bob 1");
        let less = listing(&[("both", "1")]);
        assert_eq!(united(&less, Some(&ana), &[]), "both 1, stored 1");
        assert_eq!(
            united(&less, Some(&ana), &[Arc::clone(&ana)]),
            "both 1, ana 1, stored 1"
        );
        let changed = listing(&[("both", "3"), ("ana", "3")]);
        assert_eq!(
            united(&changed, Some(&ana), &[bob]),
            "both 3, ana 3, stored 1"
        );
    }
}
