//! HTTP services as resources, read and nothing else.

mod cache;
mod endpoint;
mod fetch;
mod poll;

pub use self::endpoint::{Endpoint, Variable};

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::ready,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use adapter_http::FixedHeaders;
use adapter_skills::SkillCatalog;
use adapter_tools::ToolCx;
use futures_util::future::BoxFuture;
use http_client::Client;
use mcp_protocol::model::{
    CacheHint, CacheScope, Complete, Completion, CompletionReference, ListResources, ReadResource,
    ReadResourceResult, Resource, ResourceTemplate,
};
use mcp_server::{
    ComponentState, Prompts, ReadFailure, ResourceEntry, Resources, SourceTools, ToolSource,
    UNHEARD, content_result,
};
use tokio::task::JoinHandle;

use self::{
    cache::Cache,
    endpoint::Asked,
    fetch::{Fetch, FetchError},
    poll::Failing,
};
use crate::{
    addresses::{self, Values, is_name},
    news::{MAX_COMPARED, News},
};

/// Scheme of the addresses of what services have.
pub const SERVICE_SCHEME: &str = "api://";

/// Name of the component of `/health` for services.
pub const SERVICES_COMPONENT: &str = "services";

/// The most suggestions of one answer.
const MAX_SUGGESTED: usize = 100;

/// A service whose answers are resources.
#[derive(Clone)]
pub struct ServiceOptions {
    /// Address that paths are appended to, `https://host/api`.
    pub base_url: String,
    /// Headers of each request, with their secrets. They are never shown.
    pub headers: BTreeMap<String, String>,
    /// Resources of the service, by name.
    pub resources: BTreeMap<String, Endpoint>,
    /// Longer answers are refused.
    pub max_bytes: usize,
    /// Time for one request, its answer included.
    pub timeout: Duration,
    /// The most bytes of answers that are kept. 0: none are.
    pub cache_bytes: usize,
    /// The longest time for which an answer is not asked for again, if the service says that it is fresh for longer.
    pub max_age: Duration,
}

impl ServiceOptions {
    /// A service of which nothing is offered yet: answers of 1 MiB at most within ten seconds, of which 16 MiB are
    /// kept, and not asked for again for five minutes at most.
    #[must_use]
    pub fn new(base_url: impl Into<String>) -> Self {
        Self {
            base_url: base_url.into(),
            headers: BTreeMap::new(),
            resources: BTreeMap::new(),
            max_bytes: 1024 * 1024,
            timeout: Duration::from_secs(10),
            cache_bytes: 16 * 1024 * 1024,
            max_age: Duration::from_secs(300),
        }
    }

    /// Checks names, addresses and rules, without asking the service.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub fn check(&self, name: &str) -> Result<(), String> {
        if !is_name(name) {
            return Err(format!("`{name}` is no name: 1 to 64 of `a-z0-9-_`"));
        }
        if self.resources.is_empty() {
            return Err("it offers nothing: `resources` is empty".to_owned());
        }
        self.asked().map(drop)?;
        self.fixed_headers().map(drop)
    }

    fn asked(&self) -> Result<Vec<Asked>, String> {
        let asked = self.resources.iter().map(|(name, endpoint)| {
            Asked::new(&self.base_url, name, endpoint.clone())
                .map_err(|why| format!("`resources.{name}`: {why}"))
        });
        asked.collect()
    }

    /// Marked as secrets, all of them.
    fn fixed_headers(&self) -> Result<FixedHeaders, String> {
        let values: Vec<_> = self.headers.values().cloned().collect();
        let written: Vec<_> = (0..values.len()).map(|at| format!("${{V{at}}}")).collect();
        let value = |name: &str| values.get(name.strip_prefix('V')?.parse::<usize>().ok()?);
        let names = self.headers.keys().map(String::as_str);
        FixedHeaders::resolve(
            names.zip(written.iter().map(String::as_str)),
            &|name: &str| value(name).cloned(),
        )
        .map_err(|why| format!("`headers`: {why}"))
    }
}

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = f.debug_struct("ServiceOptions");
        options
            .field("base_url", &self.base_url)
            .field("resources", &self.resources)
            .finish_non_exhaustive()
    }
}

/// A service cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("resources.services.{name}: {why}")]
pub struct ServiceError {
    name: String,
    why: String,
}

/// A service, as it is offered.
#[derive(Debug)]
struct Service {
    name: String,
    fetch: Fetch,
    asked: Vec<Asked>,
}

impl Service {
    fn address(&self, asked: &Asked) -> String {
        format!("{SERVICE_SCHEME}{}/{}", self.name, asked.name)
    }

    fn template(&self, asked: &Asked) -> Option<ResourceTemplate> {
        (!asked.variables.is_empty()).then(|| ResourceTemplate {
            uri_template: format!("{}{{?{}}}", self.address(asked), asked.variables.join(",")),
            name: format!("{}.{}", self.name, asked.name),
            description: asked.endpoint.description.clone(),
            mime_type: asked.endpoint.media_type.clone(),
            ..ResourceTemplate::default()
        })
    }

    fn entry(&self, asked: &Asked) -> Option<ResourceEntry> {
        asked.is_single.then(|| ResourceEntry {
            resource: Resource {
                uri: self.address(asked),
                name: format!("{}.{}", self.name, asked.name),
                description: asked.endpoint.description.clone(),
                mime_type: asked.endpoint.media_type.clone(),
                ..Resource::default()
            },
            category: self.name.clone(),
            ..ResourceEntry::default()
        })
    }
}

/// The service, what is asked of it, and the values for it, that an address means.
fn find<'s>(all: &'s [Service], uri: &str) -> Option<(&'s Service, &'s Asked, Values)> {
    let parsed = addresses::parse(SERVICE_SCHEME, uri)?;
    let service = all.iter().find(|it| it.name == parsed.name)?;
    let [path] = &parsed.path[..] else {
        return None;
    };
    let asked = service.asked.iter().find(|it| it.name == *path)?;
    Some((service, asked, parsed.values))
}

/// HTTP services as a source of resources.
#[derive(Debug)]
pub struct Services {
    all: Arc<[Service]>,
    offered: Arc<ServiceResources>,
    news: Arc<News>,
    failing: Arc<Failing>,
    polling: Mutex<Option<JoinHandle<()>>>,
}

impl Services {
    /// Services by name, asked through `client`, which goes no further than its [`Reach`](http_client::Reach). None of
    /// them is asked anything yet.
    ///
    /// # Errors
    ///
    /// [`ServiceError`], with the service that has a mistake, or that the client may not talk to.
    pub fn open(
        services: BTreeMap<String, ServiceOptions>,
        client: &Client,
    ) -> Result<Self, ServiceError> {
        let mut all = Vec::new();
        for (name, options) in services {
            let service = open(&name, &options, client);
            all.push(service.map_err(|why| ServiceError { name, why })?);
        }
        let all: Arc<[Service]> = all.into();
        let each = || {
            all.iter()
                .flat_map(|it| it.asked.iter().map(move |asked| (it, asked)))
        };
        let news = Arc::new(News::new(SERVICE_SCHEME));
        Ok(Self {
            offered: Arc::new(ServiceResources {
                entries: each().filter_map(|(it, asked)| it.entry(asked)).collect(),
                templates: each()
                    .filter_map(|(it, asked)| it.template(asked))
                    .collect(),
                all: Arc::clone(&all),
                news: Arc::clone(&news),
            }),
            failing: Arc::default(),
            polling: Mutex::default(),
            all,
            news,
        })
    }

    /// Takes the addresses that somebody listens to, in place of those before. They are looked at from time to time.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn listen_to<'a>(&self, uris: impl IntoIterator<Item = &'a String>) {
        self.news.listen_to(uris);
        let mut polling = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
        if polling.is_none() && !self.news.listened().is_empty() {
            let run = poll::run(
                Arc::clone(&self.all),
                Arc::clone(&self.news),
                Arc::clone(&self.failing),
            );
            *polling = Some(tokio::spawn(run));
        }
    }

    /// Addresses that somebody listens to and at which there is something else now, once there are any. For one caller
    /// at a time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn changed(&self) -> BTreeSet<String> {
        self.news.changed().await
    }

    fn stop(&self) {
        let mut polling = self.polling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(polling) = polling.take() {
            polling.abort();
        }
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.stop();
    }
}

fn open(name: &str, options: &ServiceOptions, client: &Client) -> Result<Service, String> {
    options.check(name)?;
    let asked = options.asked()?;
    for it in &asked {
        let host = client.check_host(it.url.host());
        host.map_err(|why| format!("`base_url`: {why}"))?;
    }
    Ok(Service {
        name: name.to_owned(),
        fetch: Fetch {
            client: client.clone(),
            headers: options.fixed_headers()?,
            cache: Cache::new(options.cache_bytes),
            timeout: options.timeout,
            max_bytes: options.max_bytes,
            max_age: options.max_age,
        },
        asked,
    })
}

impl ToolSource for Services {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        SourceTools::default()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::clone(&self.offered) as Arc<dyn Resources>)
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        Some(Arc::new(ValueCompletion(Arc::clone(&self.all))))
    }

    fn health(&self) -> Option<ComponentState> {
        let detail = self.failing.told();
        Some(ComponentState {
            name: SERVICES_COMPONENT,
            ok: detail.is_none(),
            detail,
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.stop();
        Box::pin(ready(()))
    }
}

#[derive(Debug)]
struct ServiceResources {
    all: Arc<[Service]>,
    news: Arc<News>,
    entries: Vec<ResourceEntry>,
    templates: Vec<ResourceTemplate>,
}

impl ServiceResources {
    async fn answer(
        &self,
        cx: Option<&ToolCx>,
        read: &ReadResource,
    ) -> Result<ReadResourceResult, ReadFailure> {
        let (service, asked, values) = find(&self.all, &read.uri).ok_or(ReadFailure::NotFound)?;
        let url = asked.url(&values).map_err(ReadFailure::Values)?;
        let kind = asked.endpoint.media_type.as_deref();
        let answer = service.fetch.get(&url, kind, cx).await;
        let answer = answer.map_err(FetchError::told)?;
        let fresh = answer.fresh_until.saturating_duration_since(Instant::now());
        let cache = CacheHint {
            ttl_ms: u64::try_from(fresh.as_millis()).unwrap_or(0),
            scope: CacheScope::Private,
        };
        content_result(&answer.content, &answer.media_type, read, cache)
    }
}

impl Resources for ServiceResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        Ok(crate::matching(&self.entries, filter))
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        let (service, asked, values) = find(&self.all, uri)?;
        Some(addresses::with_values(service.address(asked), &values))
    }

    fn governed_by(&self, uri: &str) -> Option<String> {
        let (service, asked, _) = find(&self.all, uri)?;
        Some(service.address(asked))
    }

    fn tells_of_changes(&self, uri: &str) -> bool {
        let is_polled = find(&self.all, uri).is_some_and(|it| it.1.endpoint.poll.is_some());
        is_polled && self.canonical(uri).as_deref() == Some(uri)
    }

    fn hear<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let Some((service, asked, values)) = find(&self.all, uri) else {
                return Err(UNHEARD.to_owned());
            };
            let address = addresses::with_values(service.address(asked), &values);
            crate::heard(asked.endpoint.poll.is_some(), &address, uri)?;
            let listened = self.news.listened();
            if MAX_COMPARED <= listened.len() && !listened.contains(uri) {
                return Err("too many resources of services are listened to".to_owned());
            }
            let url = asked.url(&values)?;
            let kind = asked.endpoint.media_type.as_deref();
            // So that a change is told which comes before the first look on behalf of listeners.
            let seen = fetch::hash(&service.fetch.get(&url, kind, None).await);
            let unknown = || "the service does not say what is there; try again later".to_owned();
            self.news
                .hear(uri, seen.ok_or_else(unknown)?, Duration::ZERO);
            Ok(())
        })
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move { self.answer(None, &read).await })
    }

    fn read_for(
        self: Arc<Self>,
        cx: ToolCx,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move { self.answer(Some(&cx), &read).await })
    }
}

/// Suggestions for values that rules list.
#[derive(Debug)]
struct ValueCompletion(Arc<[Service]>);

impl Prompts for ValueCompletion {
    fn suggest<'a>(
        &'a self,
        cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        let CompletionReference::Resource { uri } = &request.reference else {
            return Box::pin(ready(None));
        };
        let found = self.0.iter().find_map(|service| {
            let is_it = |it: &&Asked| {
                service
                    .template(it)
                    .is_some_and(|it| it.uri_template == *uri)
            };
            Some((service, service.asked.iter().find(is_it)?))
        });
        let Some((service, asked)) = found else {
            return Box::pin(ready(None));
        };
        let may_read =
            |it: &Arc<dyn adapter_tools::ReadResources>| it.permits(&service.address(asked));
        let rule = asked.endpoint.variables.get(&request.argument);
        let mut values: Vec<String> = Vec::new();
        if let Some(rule) = rule.filter(|_| cx.resources().is_some_and(may_read)) {
            let fitting = rule
                .values
                .iter()
                .filter(|it| it.starts_with(&request.value));
            values.extend(fitting.cloned());
        }
        let has_more = MAX_SUGGESTED < values.len();
        values.truncate(MAX_SUGGESTED);
        Box::pin(ready(Some(Completion {
            values,
            has_more,
            ..Completion::default()
        })))
    }

    fn completes_resources(&self) -> bool {
        true
    }
}
