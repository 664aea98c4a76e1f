use crate::pins::{self, ChangeKind, Listed, PinKind, Pins, Verdict};
use mcp_client::{Agreed, Connection, Error};
use mcp_protocol::{
    Encoder, Method, ProtocolVersion, RawJson, RequestedVersion,
    client::{Answer, ServerOffer, decode_result},
    model::{
        CacheHint, Implementation, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, Prompt, Resource, ResourceTemplate, ServerResult,
        Tool,
    },
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A longer file is no catalogue.
const MAX_FILE_BYTES: u64 = 256 << 20;

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
    /// Items that are not to be used, as `tool/NAME`, `prompt/NAME` or `template/URI`, each with the reason.
    pub held: BTreeMap<String, String>,
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
}

impl Catalogue {
    /// Reads all lists that the upstream says it has. A list that cannot be read is what it was `before`, and
    /// the reason is told.
    pub(crate) async fn read(
        connection: &Connection,
        before: Option<&Self>,
    ) -> (Self, Option<String>) {
        let agreed: &Agreed = &connection.agreed();
        let offer = &agreed.offer;
        let mut problem = None;
        let mut told = |list: &str, error: Error| {
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
            held: BTreeMap::new(),
        };
        if offer.tools.is_some() {
            match connection.tools().await {
                Ok(tools) => catalogue.tools = tools,
                Err(error) => {
                    told("tools", error);
                    catalogue.tools = before.map(|it| it.tools.clone()).unwrap_or_default();
                }
            }
        }
        if offer.resources.is_some() {
            match connection.resources().await {
                Ok(resources) => catalogue.resources = resources,
                Err(error) => {
                    told("resources", error);
                    catalogue.resources = before.map(|it| it.resources.clone()).unwrap_or_default();
                }
            }
            match connection.resource_templates().await {
                Ok(templates) => catalogue.templates = templates,
                // Not every server with resources has the method.
                Err(Error::Server { .. }) => {}
                Err(error) => {
                    told("templates", error);
                    catalogue.templates = before.map(|it| it.templates.clone()).unwrap_or_default();
                }
            }
        }
        if offer.prompts.is_some() {
            match connection.prompts().await {
                Ok(prompts) => catalogue.prompts = prompts,
                Err(error) => {
                    told("prompts", error);
                    catalogue.prompts = before.map(|it| it.prompts.clone()).unwrap_or_default();
                }
            }
        }
        (catalogue, problem)
    }

    /// True if it lists the same as `other`, whenever either was read.
    pub(crate) fn lists_the_same(&self, other: &Self) -> bool {
        self.version == other.version
            && self.tools == other.tools
            && self.resources == other.resources
            && self.templates == other.templates
            && self.prompts == other.prompts
    }

    /// Time since it was read.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_secs(now().saturating_sub(self.read_at))
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
            held: BTreeMap::new(),
        })
    }

    /// Definitions of the tools, prompts and templates, the first of each name.
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
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        for ((kind, list, name), result) in lists {
            let text = encoder.result(ProtocolVersion::NEWEST, &result)?;
            let mut value: Value = serde_json::from_str(text.as_str())?;
            let Value::Array(items) = value[list].take() else {
                continue;
            };
            for definition in items {
                let name = definition[name].as_str().unwrap_or_default().to_owned();
                if seen.insert((kind, name.clone())) {
                    found.push(Listed {
                        kind,
                        name,
                        definition,
                    });
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
    pub(crate) fn judged(
        &self,
        pins: &mut Pins,
        upstream: &str,
        accepted: &BTreeSet<ChangeKind>,
    ) -> Result<Self, String> {
        let listed = self.definitions().map_err(|it| it.to_string())?;
        let verdicts = pins.judge(upstream, accepted, &listed);
        let mut held = BTreeMap::new();
        let mut lists: BTreeMap<PinKind, Vec<Value>> = BTreeMap::new();
        for (it, verdict) in listed.into_iter().zip(verdicts) {
            let definition = match verdict {
                Verdict::Good => Some(it.definition),
                Verdict::Held { pinned, why } => {
                    held.insert(format!("{}/{}", it.kind.as_str(), it.name), why);
                    pinned
                }
            };
            let definition = definition.map(pins::cleaned_definition);
            lists.entry(it.kind).or_default().extend(definition);
        }
        let mut read = |kind, method, list: &str| {
            let items = lists.remove(&kind).unwrap_or_default();
            let list = json!({ list: items });
            let list = RawJson::from_serialized(list.to_string().into_bytes());
            let read = decode_result(ProtocolVersion::NEWEST, method, &list);
            read.map(|it| it.answer).map_err(|it| it.to_string())
        };
        let mut judged = self.clone();
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
        for resource in &mut judged.resources {
            let texts = [&mut resource.title, &mut resource.description];
            for text in texts.into_iter().flatten() {
                if let Some(clean) = pins::cleaned(text) {
                    *text = clean;
                }
            }
        }
        judged.held = held;
        Ok(judged)
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|it| it.as_secs()).unwrap_or_default()
}

pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// A directory with what was known of upstreams when it was last heard, a file for each.
#[derive(Clone, Debug)]
pub(crate) struct Store(PathBuf);

impl Store {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self(directory)
    }

    fn path(&self, upstream: &str) -> PathBuf {
        // Names come from files of others too, and may be anything.
        self.0
            .join(format!("{}.json", crate::names::scheme_key(upstream)))
    }

    /// The catalogue of an upstream; `None` if there is none, or it is of another server.
    pub(crate) fn catalogue(&self, upstream: &str, identity: &str) -> Option<Catalogue> {
        let catalogue = read(&self.path(upstream))?;
        let read = Catalogue::of_stored(&catalogue, identity);
        if read.is_none() {
            tracing::debug!(upstream, "a stored catalogue is of no use");
        }
        read
    }

    pub(crate) fn keep(&self, upstream: &str, identity: &str, catalogue: &Catalogue) {
        let bytes = catalogue.stored(identity).map_err(io::Error::other);
        let written = bytes.and_then(|bytes| self.write(&self.path(upstream), &bytes));
        if let Err(error) = written {
            tracing::warn!(%error, upstream, "a catalogue cannot be stored, and is read anew at the next start");
        }
    }

    /// A small file of this directory.
    pub(crate) fn value<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&read(&self.0.join(name))?).ok()
    }

    pub(crate) fn keep_value<T: Serialize>(&self, name: &str, value: &T) {
        let bytes = serde_json::to_vec(value).map_err(io::Error::other);
        if let Err(error) = bytes.and_then(|bytes| self.write(&self.0.join(name), &bytes)) {
            tracing::warn!(%error, name, "a file of the gateway cannot be stored");
        }
    }

    fn make_directory(&self) -> io::Result<()> {
        if self.0.is_dir() {
            return Ok(());
        }
        let mut directory = std::fs::DirBuilder::new();
        directory.recursive(true).mode(0o700).create(&self.0)
    }

    /// A file of this directory that is there to be locked.
    pub(crate) fn lock_file(&self, name: &str) -> io::Result<File> {
        self.make_directory()?;
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).write(true).mode(0o600);
        options.open(self.0.join(name))
    }

    /// Writes a file for its owner alone, whole or not at all.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.make_directory()?;
        let new = path.with_extension("new");
        // Left by a process that was killed.
        let _ = std::fs::remove_file(&new);
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&new)?;
        file.write_all(bytes)?;
        std::fs::rename(&new, path)
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
