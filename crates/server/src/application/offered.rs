//! Resources and prompts of the application.

use std::fmt::Display;
use std::sync::Arc;

use adapter_tools::python::{AppCompletion, AppPrompt, AppResource, PythonApp};
use adapter_tools::{Failure, ToolCx, ToolError};
use futures_util::future::BoxFuture;
use mcp_protocol::model::{
    Annotations, CacheHint, CacheScope, Complete, Completion, CompletionReference, GetPromptResult,
    Icon, ListResources, Prompt, PromptArgument, ReadResource, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, ResultMeta,
};
use mcp_server::{PromptCx, PromptFailure, Prompts, ReadFailure, ResourceEntry, Resources};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::uri_template::UriTemplate;

/// Most bytes of one read, as they are sent: 4 MiB.
const MAX_READ_BYTES: usize = 4 * 1024 * 1024;

/// Returns true if a handler has raised the exception for an address where there is nothing. Other lookups
/// that fail, such as a `KeyError`, are mistakes of the handler.
fn is_not_found(failure: &Failure) -> bool {
    let details = failure.details.as_ref();
    let exception = details.and_then(|it| it["exception"].as_str());
    matches!(exception, Some("LookupError" | "FileNotFoundError"))
}

/// Failure of a handler, by what the client hears of it.
enum Told {
    /// The failure, which is none of the handler's own.
    Handler(ToolError),
    /// Words that the handler has for the client.
    Client(String),
    /// The failure, whose words are for the log alone.
    Nobody(ToolError),
}

fn told(error: ToolError) -> Told {
    match error {
        ToolError::TimedOut
        | ToolError::Crashed { .. }
        | ToolError::Unavailable { .. }
        | ToolError::Lost { .. }
        | ToolError::Busy { .. }
        | ToolError::Suspended { .. } => Told::Handler(error),
        ToolError::Failed(failure) if is_for_client(&failure) => Told::Client(failure.message),
        error => Told::Nobody(error),
    }
}

/// Returns true if a handler has raised one of the exceptions that have words for the client.
fn is_for_client(failure: &Failure) -> bool {
    let details = failure.details.as_ref();
    details.is_some_and(|it| it["kind"] == "told")
}

/// Resources of the application, and families of them.
#[derive(Debug)]
pub(super) struct AppResources {
    app: Arc<PythonApp>,
    entries: Vec<ResourceEntry>,
    resources: Vec<AppResource>,
    templates: Vec<ResourceTemplate>,
    families: Vec<(AppResource, UriTemplate)>,
    /// True if some of them take the context of their reads.
    take_context: bool,
}

impl AppResources {
    /// Resources that `app` has now; `None` if it has none.
    pub(super) fn of(app: &Arc<PythonApp>) -> Option<Self> {
        let all = app.resources();
        if all.is_empty() {
            return None;
        }
        let take_context = all.iter().any(|it| it.takes_context);
        let (families, resources): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|it| it.is_template);
        let families = families.into_iter().filter_map(|it| {
            let template = UriTemplate::parse(&it.uri);
            if template.is_none() {
                tracing::error!(
                    uri = it.uri,
                    "a resource is not offered: its URI is no template"
                );
            }
            template.map(|template| (it, template))
        });
        let families: Vec<_> = families.collect();
        Some(Self {
            app: Arc::clone(app),
            entries: resources.iter().map(entry).collect(),
            resources,
            templates: families.iter().map(|(it, _)| template(it)).collect(),
            families,
            take_context,
        })
    }

    /// The resource at an address, its variables, and the one spelling of the address.
    fn find(&self, uri: &str) -> Option<(&AppResource, Map<String, Value>, String)> {
        if let Some(found) = self.resources.iter().find(|it| it.uri == uri) {
            return Some((found, Map::new(), uri.to_owned()));
        }
        self.families.iter().find_map(|(family, template)| {
            let (values, spelt) = template.values(uri)?;
            Some((family, values, spelt))
        })
    }
}

fn entry(resource: &AppResource) -> ResourceEntry {
    let annotations = annotations(resource).unwrap_or_default();
    ResourceEntry {
        resource: Resource {
            uri: resource.uri.clone(),
            name: resource.name.clone(),
            title: resource.title.clone(),
            description: resource.description.clone(),
            mime_type: Some(resource.mime_type.clone()),
            last_modified: annotations.last_modified,
            audience: annotations.audience,
            priority: annotations.priority,
            icons: icons(&resource.uri, &resource.icons),
            meta: meta(&resource.meta, &resource.tags),
            ..Resource::default()
        },
        tags: resource.tags.clone(),
        ..ResourceEntry::default()
    }
}

fn template(resource: &AppResource) -> ResourceTemplate {
    ResourceTemplate {
        uri_template: resource.uri.clone(),
        name: resource.name.clone(),
        title: resource.title.clone(),
        description: resource.description.clone(),
        mime_type: Some(resource.mime_type.clone()),
        annotations: annotations(resource),
        icons: icons(&resource.uri, &resource.icons),
        meta: meta(&resource.meta, &resource.tags),
    }
}

fn annotations(resource: &AppResource) -> Option<Annotations> {
    match &resource.annotations {
        Value::Null => None,
        written => read("annotations", &resource.uri, written),
    }
}

fn icons(of: &str, icons: &[Value]) -> Vec<Icon> {
    let icons = icons.iter();
    icons.filter_map(|icon| read("an icon", of, icon)).collect()
}

/// Description by an application of something it offers; left out with a warning if it is not what it should be.
fn read<T: DeserializeOwned>(what: &str, of: &str, written: &Value) -> Option<T> {
    match T::deserialize(written) {
        Ok(read) => Some(read),
        Err(error) => {
            tracing::warn!(of, %error, "{what} of the application is left out");
            None
        }
    }
}

fn meta(meta: &Map<String, Value>, tags: &[String]) -> ResultMeta {
    let mut all = ResultMeta::default();
    for (key, value) in meta {
        all.insert(key.clone(), value);
    }
    if !tags.is_empty() {
        all.insert("io.owlclaw/tags", &json!(tags));
    }
    all
}

impl Resources for AppResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        if filter.category.is_some() {
            return Ok(Vec::new());
        }
        let fits = |uri: &str| match filter.uri.as_deref() {
            None => true,
            Some(pattern) => match pattern.strip_suffix('*') {
                Some(prefix) => uri.starts_with(prefix),
                None => uri == pattern,
            },
        };
        let entries = self.entries.iter().enumerate();
        Ok(entries
            .filter(|(_, it)| filter.tag.as_ref().is_none_or(|tag| it.tags.contains(tag)))
            .filter(|(_, it)| fits(&it.resource.uri))
            .map(|(index, _)| index)
            .collect())
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        Some(self.find(uri)?.2)
    }

    /// Template of the address, if one fits: only its handler knows what exists there, so the template decides.
    fn family(&self, uri: &str) -> Option<String> {
        let (resource, _, _) = self.find(uri)?;
        resource.is_template.then(|| resource.uri.clone())
    }

    fn takes_context(&self, uri: &str) -> bool {
        self.take_context && self.find(uri).is_some_and(|it| it.0.takes_context)
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        self.read_for(ToolCx::new("resources/read", read.uri.clone()), read)
    }

    fn read_for(
        self: Arc<Self>,
        cx: ToolCx,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            let (resource, values, spelt) = self.find(&read.uri).ok_or(ReadFailure::NotFound)?;
            if read.range.is_some() {
                // The next part would be of another state of things.
                return Err(ReadFailure::Range(
                    "a resource of the application is read as a whole: it has no `range`"
                        .to_owned(),
                ));
            }
            let answer = match self.app.read_resource(resource, &values, cx).await {
                Ok(answer) => answer,
                Err(ToolError::NeedsInput(needed)) => return Err(ReadFailure::NeedsInput(needed)),
                // No value of a variable is of such a form, so there is nothing at the address.
                Err(ToolError::Rejected(_)) => return Err(ReadFailure::NotFound),
                Err(ToolError::Failed(failure)) if is_not_found(&failure) => {
                    return Err(ReadFailure::NotFound);
                }
                Err(error) => {
                    return Err(match told(error) {
                        Told::Handler(error) => ReadFailure::Handler(error),
                        Told::Client(why) => ReadFailure::Told(why),
                        Told::Nobody(error) => ReadFailure::Unreadable(error.into()),
                    });
                }
            };
            let said: ReadAnswer = serde_json::from_value(answer)
                .map_err(|error| ReadFailure::Unreadable(error.into()))?;
            let contents: Vec<_> = said.contents.into_iter().map(|it| it.at(&spelt)).collect();
            let bodies = contents
                .iter()
                .filter_map(|it| it.text.as_ref().or(it.blob.as_ref()));
            let bytes: usize = bodies.map(String::len).sum();
            if MAX_READ_BYTES < bytes {
                let why = format!("a resource of {bytes} bytes; {MAX_READ_BYTES} are allowed");
                return Err(ReadFailure::Unreadable(why.into()));
            }
            Ok(ReadResourceResult {
                contents,
                meta: ResultMeta::default(),
                cache: CacheHint {
                    ttl_ms: 0,
                    scope: CacheScope::Private,
                },
            })
        })
    }
}

#[derive(Deserialize)]
struct ReadAnswer {
    contents: Vec<Contents>,
}

#[derive(Deserialize)]
struct Contents {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    blob: Option<String>,
    #[serde(default)]
    mime_type: Option<String>,
}

impl Contents {
    fn at(self, uri: &str) -> ResourceContents {
        ResourceContents {
            uri: uri.to_owned(),
            mime_type: self.mime_type,
            text: self.text,
            blob: self.blob,
            meta: None,
        }
    }
}

/// Prompts of the application, and what it completes.
#[derive(Debug)]
pub(super) struct AppPrompts {
    app: Arc<PythonApp>,
    entries: Vec<Prompt>,
    prompts: Vec<AppPrompt>,
    completions: Vec<AppCompletion>,
}

impl AppPrompts {
    /// Prompts that `app` has now; `None` if it has none, and completes nothing.
    pub(super) fn of(app: &Arc<PythonApp>) -> Option<Self> {
        let (prompts, completions) = (app.prompts(), app.completions());
        if prompts.is_empty() && completions.is_empty() {
            return None;
        }
        Some(Self {
            app: Arc::clone(app),
            entries: prompts.iter().map(prompt).collect(),
            prompts,
            completions,
        })
    }

    fn completion(&self, of: &str, argument: &str) -> Option<&AppCompletion> {
        let mut all = self.completions.iter();
        all.find(|it| it.of == of && it.argument == argument)
            .or_else(|| self.completions.iter().find(|it| it.of.is_empty()))
    }
}

fn prompt(prompt: &AppPrompt) -> Prompt {
    let arguments = prompt.arguments.iter().map(|it| PromptArgument {
        name: it.name.clone(),
        title: None,
        description: it.description.clone(),
        required: it.required,
    });
    Prompt {
        name: prompt.name.clone(),
        title: prompt.title.clone(),
        description: prompt.description.clone(),
        arguments: arguments.collect(),
        icons: icons(&prompt.name, &prompt.icons),
        meta: meta(&prompt.meta, &prompt.tags),
    }
}

impl Prompts for AppPrompts {
    fn entries(&self) -> &[Prompt] {
        &self.entries
    }

    fn place(&self, name: &str) -> Option<String> {
        self.prompts
            .iter()
            .find(|it| it.name == name)?
            .source
            .clone()
    }

    fn takes_context(&self, name: &str) -> bool {
        let mut prompts = self.prompts.iter();
        prompts.any(|it| it.name == name && it.takes_context)
    }

    fn get(&self, cx: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        Box::pin(async move {
            let arguments_failed = |why: &dyn Display| PromptFailure::Arguments(why.to_string());
            let prompt = self.prompts.iter().find(|it| it.name == cx.name);
            let prompt = prompt.ok_or_else(|| arguments_failed(&"there is no such prompt"))?;
            let arguments = cx.arguments.into_iter();
            let arguments = arguments.map(|(name, text)| (name, text.into())).collect();
            match self.app.get_prompt(prompt, &arguments, cx.call).await {
                Ok(answer) => serde_json::from_value(answer)
                    .map_err(|error| PromptFailure::Broken(error.into())),
                Err(ToolError::NeedsInput(needed)) => Err(PromptFailure::NeedsInput(needed)),
                Err(ToolError::Rejected(invalid)) => {
                    let all = invalid.violations().iter().map(ToString::to_string);
                    Err(PromptFailure::Arguments(all.collect::<Vec<_>>().join("; ")))
                }
                Err(error) => Err(match told(error) {
                    Told::Handler(error) => PromptFailure::Handler(error),
                    Told::Client(why) => PromptFailure::Told(why),
                    Told::Nobody(error) => PromptFailure::Broken(error.into()),
                }),
            }
        })
    }

    fn suggest<'a>(
        &'a self,
        cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        Box::pin(async move {
            let (of, is_ours) = match &request.reference {
                CompletionReference::Prompt { name } => {
                    (name, self.prompts.iter().any(|it| it.name == *name))
                }
                CompletionReference::Resource { uri } => {
                    let resources = self.app.resources();
                    (uri, resources.iter().any(|it| it.uri == *uri))
                }
            };
            if !is_ours {
                return None;
            }
            let Some(completion) = self.completion(of, &request.argument) else {
                return Some(Completion::default());
            };
            if matches!(request.reference, CompletionReference::Resource { .. })
                && !may_become_values(of, request)
            {
                return Some(Completion::default());
            }
            let reference = match &request.reference {
                CompletionReference::Prompt { name } => json!({"type": "ref/prompt", "name": name}),
                CompletionReference::Resource { uri } => {
                    json!({"type": "ref/resource", "uri": uri})
                }
            };
            let mut asked = Map::new();
            asked.insert("ref".to_owned(), reference);
            let argument = json!({"name": request.argument, "value": request.value});
            asked.insert("argument".to_owned(), argument);
            asked.insert("context".to_owned(), json!({"arguments": request.context}));
            let answer = self.app.complete(completion, &asked, cx).await;
            let answer = answer
                .map_err(|error| crate::with_causes(&error))
                .and_then(|answer| {
                    CompletionAnswer::deserialize(answer).map_err(|error| error.to_string())
                });
            Some(match answer {
                Ok(said) => Completion {
                    values: said.values,
                    total: said.total,
                    has_more: said.has_more,
                },
                // Whoever types goes on without suggestions.
                Err(error) => {
                    tracing::warn!(
                        of,
                        argument = request.argument,
                        error,
                        "a completion failed"
                    );
                    Completion::default()
                }
            })
        })
    }
}

/// Returns true if all that is said of the variables of a template could be in an address of it.
fn may_become_values(template: &str, request: &Complete) -> bool {
    let Some(template) = UriTemplate::parse(template) else {
        return false;
    };
    let mut known = request.context.iter();
    template.may_be(&request.argument, &request.value)
        && known.all(|(name, value)| template.may_be(name, value))
}

#[derive(Deserialize)]
struct CompletionAnswer {
    values: Vec<String>,
    #[serde(default)]
    total: Option<u64>,
    #[serde(default)]
    has_more: bool,
}
