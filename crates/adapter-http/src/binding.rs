//! `binding: {type: http}` of a `SKILL.md`, as OwlClaw defines it.

use crate::{
    Retry, Secrets,
    body::{BodyTemplate, guessed_arguments},
    call::{Body, Filled, Mode, Plan, is_read},
    header::{FixedHeaders, HeaderError},
    mapping::ResponseMapping,
    url::{UnfitArgument, UrlError, UrlTemplate},
};
use adapter_tools::{
    Annotations, Arguments, Executor, Tool, ToolCx, ToolError, ToolKind, ToolOutput,
};
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, Method};
use http_client::{Client, HostError, HostList};
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, time::Duration};

/// A tool that a skill binds to a service.
#[derive(Clone, Copy, Debug)]
pub struct BoundTool<'a> {
    /// Name of the tool.
    pub name: &'a str,
    /// Description of the tool for the model.
    pub description: &'a str,
    /// The JSON Schema of its arguments; without one, its places for arguments are all it takes.
    pub parameters: Option<&'a Value>,
    /// Value at `binding`.
    pub binding: &'a Value,
}

/// Bounds that hold for every tool bound to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longer answers are refused, in bytes.
    pub max_response_bytes: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            max_response_bytes: 1024 * 1024,
        }
    }
}

/// Reason why a binding is no tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BindingError {
    /// A binding of another kind.
    #[error("bindings of type `{0}` are not supported, only `http`")]
    Kind(String),
    /// One of its keys has a value that cannot be used.
    #[error("{0}")]
    Value(String),
    /// A URL that cannot be used.
    #[error("`url` cannot be used")]
    Url(#[source] UrlError),
    /// A place for an argument that the tool does not declare.
    #[error("`url` has a place for `{0}`, which is none of the tool's parameters")]
    UndeclaredArgument(String),
    /// A header cannot be used.
    #[error("`headers` cannot be used")]
    Header(#[source] HeaderError),
    /// A host that the client may not talk to.
    #[error("the service may not be talked to")]
    Host(#[source] HostError),
}

/// The keys that OwlClaw knows, and `idempotency_header`, which is ours.
const KEYS: [&str; 12] = [
    "type",
    "mode",
    "timeout_ms",
    "retry",
    "method",
    "url",
    "headers",
    "body_template",
    "response_mapping",
    "allowed_hosts",
    "allow_private_network",
    "idempotency_header",
];

/// OwlClaw's.
const DEFAULT_TIMEOUT: Duration = Duration::from_millis(5000);
const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

/// Makes a tool of what a skill binds. `secrets` says what `${NAME}` in headers stands for, now; the
/// second value is what is odd about the binding without being wrong.
///
/// # Errors
///
/// [`BindingError`], which says what to change. No secret is in it.
pub fn bind(
    bound: BoundTool<'_>,
    client: &Client,
    bounds: Bounds,
    secrets: Secrets<'_>,
) -> Result<(Tool, Vec<String>), BindingError> {
    let mut warnings = Vec::new();
    let binding = bound
        .binding
        .as_object()
        .ok_or_else(|| BindingError::Value("`binding` must be a map".to_owned()))?;
    let fields = Fields(binding);
    let kind = fields.text("type")?.unwrap_or_default();
    if kind != "http" {
        return Err(BindingError::Kind(kind.to_owned()));
    }
    let mut unknown: Vec<String> = binding
        .keys()
        .filter(|key| !KEYS.contains(&key.as_str()))
        .cloned()
        .collect();

    let method = fields.method()?;
    let url = fields.text("url")?.unwrap_or_default();
    let url = UrlTemplate::parse(url).map_err(BindingError::Url)?;
    check_host(url.host(), &fields, client)?;
    let pairs = fields.headers()?;
    let pairs = pairs.iter().map(|(name, value)| (*name, value.as_str()));
    let headers = FixedHeaders::resolve(pairs, secrets).map_err(BindingError::Header)?;
    let mapping = match fields.get("response_mapping") {
        Some(value) => ResponseMapping::read(value, &mut unknown).map_err(BindingError::Value)?,
        None => ResponseMapping::default(),
    };
    let plan = Plan {
        client: client.clone(),
        method: method.clone(),
        headers,
        mode: fields.mode()?,
        timeout: fields.timeout()?,
        retry: fields.retry(&mut unknown)?,
        idempotency_header: fields.idempotency_header()?,
        max_response_bytes: bounds.max_response_bytes,
        mapping,
    };

    let template = fields.get("body_template");
    let declared = bound.parameters.and_then(|it| it["properties"].as_object());
    let known: BTreeSet<String> = match declared {
        Some(declared) => declared.keys().cloned().collect(),
        None => {
            let in_body = template.map(guessed_arguments).unwrap_or_default();
            let in_url = url.arguments().map(str::to_owned);
            in_url.chain(in_body).collect()
        }
    };
    if let Some(stranger) = url.arguments().find(|name| !known.contains(*name)) {
        return Err(BindingError::UndeclaredArgument(stranger.to_owned()));
    }
    let body = template.map(|it| BodyTemplate::new(it.clone(), known.clone()));
    let schema = match bound.parameters {
        Some(schema) => schema.clone(),
        None => guessed_schema(&known, &url),
    };

    let sends_rest = body.is_none() && takes_body(&method);
    if !sends_rest {
        let in_url = url.arguments().map(str::to_owned);
        let in_body = body.iter().flat_map(BodyTemplate::arguments);
        let used: BTreeSet<_> = in_url.chain(in_body).collect();
        for unused in known.difference(&used) {
            warnings.push(format!("the parameter `{unused}` is sent nowhere"));
        }
    }
    for key in unknown {
        warnings.push(format!("`{key}` is not known and was ignored"));
    }

    let annotations = annotations(&method);
    let timeout = plan.allowed_retry().longest(plan.timeout);
    let source = format!("{method} {url}");
    let executor = Binding { plan, url, body };
    let tool = Tool::new(bound.name.to_owned(), schema, executor)
        .describe(bound.description.to_owned())
        .with_annotations(annotations)
        .with_timeout(timeout)
        .with_source(source)
        .with_kind(ToolKind::Http);
    Ok((tool, warnings))
}

/// Annotations that a method implies by RFC 9110.
pub(crate) fn annotations(method: &Method) -> Annotations {
    let is_read = is_read(method);
    Annotations {
        read_only: Some(is_read),
        destructive: (!is_read).then_some(*method == Method::DELETE),
        idempotent: Some(crate::retry::is_idempotent(method)),
        open_world: Some(true),
    }
}

fn check_host(host: &str, fields: &Fields<'_>, client: &Client) -> Result<(), BindingError> {
    let own = fields.allowed_hosts()?;
    if !own.is_empty() && !own.contains(host) {
        let list = "allowed_hosts";
        return Err(BindingError::Host(HostError::NotAllowed(
            host.to_owned(),
            list,
        )));
    }
    client.check_host(host).map_err(BindingError::Host)
}

fn takes_body(method: &Method) -> bool {
    [Method::POST, Method::PUT, Method::PATCH].contains(method)
}

fn guessed_schema(known: &BTreeSet<String>, url: &UrlTemplate) -> Value {
    let properties: Map<String, Value> = known.iter().map(|it| (it.clone(), json!({}))).collect();
    let required: BTreeSet<_> = url.required_arguments().collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// Handler of a bound tool's calls.
struct Binding {
    plan: Plan,
    url: UrlTemplate,
    body: Option<BodyTemplate>,
}

impl Executor for Binding {
    fn execute<'a>(
        &'a self,
        cx: ToolCx,
        arguments: Arguments,
    ) -> BoxFuture<'a, Result<ToolOutput, ToolError>> {
        Box::pin(async move {
            let filled = self.filled(&arguments)?;
            drop(arguments);
            self.plan.call(&cx, filled).await
        })
    }
}

impl Binding {
    fn filled(&self, arguments: &Arguments) -> Result<Filled, ToolError> {
        let is_text = self.body.is_none()
            && takes_body(&self.plan.method)
            && self.url.arguments().next().is_none();
        let given = match is_text {
            true => arguments.as_object(),
            false => arguments.exact_object().map_err(ToolError::Rejected)?,
        };
        let argument = |name: &str| items(name, given.get(name));
        let uri = self.url.render(&argument, &[]);
        let uri = uri.map_err(|unfit| ToolError::failed(unfit.to_string()))?;
        let body = match &self.body {
            Some(template) => Body::Json(template.render(given).to_string().into()),
            None if !takes_body(&self.plan.method) => Body::None,
            None => Body::Json(self.rest(arguments)),
        };
        Ok(Filled {
            uri,
            headers: HeaderMap::new(),
            body,
        })
    }

    /// The arguments that have no place in the URL; all of them as they were written if none has.
    fn rest(&self, arguments: &Arguments) -> bytes::Bytes {
        let placed: BTreeSet<&str> = self.url.arguments().collect();
        if placed.is_empty() {
            return arguments.raw().clone();
        }
        let rest = arguments.as_object().iter();
        let rest = rest.filter(|(name, _)| !placed.contains(name.as_str()));
        let rest: Map<_, _> = rest.map(|(name, it)| (name.clone(), it.clone())).collect();
        Value::Object(rest).to_string().into()
    }
}

/// An argument as the texts of its items.
pub(crate) fn items(name: &str, value: Option<&Value>) -> Result<Vec<String>, UnfitArgument> {
    let not_plain = || UnfitArgument::NotPlain(name.to_owned());
    match value {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| plain(item).ok_or_else(not_plain))
            .collect(),
        Some(value) => Ok(vec![plain(value).ok_or_else(not_plain)?]),
    }
}

pub(crate) fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

struct Fields<'a>(&'a Map<String, Value>);

impl<'a> Fields<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn text(&self, key: &str) -> Result<Option<&'a str>, BindingError> {
        match self.get(key) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.trim())),
            Some(_) => Err(BindingError::Value(format!("`{key}` must be a text"))),
        }
    }

    fn method(&self) -> Result<Method, BindingError> {
        let word = self
            .text("method")?
            .unwrap_or_default()
            .to_ascii_uppercase();
        match word.as_str() {
            "GET" => Ok(Method::GET),
            "HEAD" => Ok(Method::HEAD),
            "OPTIONS" => Ok(Method::OPTIONS),
            "POST" => Ok(Method::POST),
            "PUT" => Ok(Method::PUT),
            "PATCH" => Ok(Method::PATCH),
            "DELETE" => Ok(Method::DELETE),
            _ => Err(BindingError::Value(
                "`method` must be GET, POST, PUT, PATCH, DELETE, HEAD or OPTIONS".to_owned(),
            )),
        }
    }

    fn mode(&self) -> Result<Mode, BindingError> {
        match self.text("mode")? {
            None | Some("active") => Ok(Mode::Active),
            Some("shadow") => Ok(Mode::Shadow),
            // Taken as active, it would send what was not meant to be sent.
            Some(_) => Err(BindingError::Value(
                "`mode` must be `active` or `shadow`".to_owned(),
            )),
        }
    }

    fn timeout(&self) -> Result<Duration, BindingError> {
        let Some(value) = self.get("timeout_ms") else {
            return Ok(DEFAULT_TIMEOUT);
        };
        let timeout = value.as_u64().map(Duration::from_millis);
        timeout
            .filter(|it| !it.is_zero() && *it <= MAX_TIMEOUT)
            .ok_or_else(|| {
                BindingError::Value("`timeout_ms` must be a whole number from 1 to 3600000".into())
            })
    }

    fn retry(&self, unknown: &mut Vec<String>) -> Result<Retry, BindingError> {
        let mut retry = Retry::default();
        let Some(value) = self.get("retry") else {
            return Ok(retry);
        };
        let bad = |what: &str| BindingError::Value(format!("`retry{what}"));
        let map = value.as_object().ok_or_else(|| bad("` must be a map"))?;
        for (key, value) in map {
            match key.as_str() {
                "max_attempts" => {
                    let most = value.as_u64().filter(|it| 0 < *it);
                    let most = most.ok_or_else(|| bad(".max_attempts` must be 1 or more"))?;
                    let most = u32::try_from(most).unwrap_or(Retry::MAX_ATTEMPTS);
                    retry.max_attempts = most.min(Retry::MAX_ATTEMPTS);
                }
                "backoff_ms" => {
                    let wait = value.as_u64().filter(|it| 0 < *it);
                    let wait = wait.ok_or_else(|| bad(".backoff_ms` must be 1 or more"))?;
                    retry.backoff = Duration::from_millis(wait);
                }
                "backoff_multiplier" => {
                    let factor = value.as_f64().filter(|it| 1.0 <= *it);
                    retry.multiplier =
                        factor.ok_or_else(|| bad(".backoff_multiplier` must be 1 or more"))?;
                }
                _ => unknown.push(format!("retry.{key}")),
            }
        }
        Ok(retry)
    }

    fn headers(&self) -> Result<Vec<(&'a str, String)>, BindingError> {
        let bad = || BindingError::Value("`headers` must map names to texts".to_owned());
        let Some(value) = self.get("headers") else {
            return Ok(Vec::new());
        };
        let map = value.as_object().ok_or_else(bad)?;
        map.iter()
            .map(|(name, value)| Ok((name.as_str(), plain(value).ok_or_else(bad)?)))
            .collect()
    }

    fn allowed_hosts(&self) -> Result<HostList, BindingError> {
        let bad = || BindingError::Value("`allowed_hosts` must be a list of names".to_owned());
        let Some(value) = self.get("allowed_hosts") else {
            return Ok(HostList::default());
        };
        let list = value.as_array().ok_or_else(bad)?;
        let names: Option<Vec<_>> = list.iter().map(Value::as_str).collect();
        Ok(HostList::new(names.ok_or_else(bad)?))
    }

    fn idempotency_header(&self) -> Result<Option<HeaderName>, BindingError> {
        let Some(name) = self.text("idempotency_header")? else {
            return Ok(None);
        };
        idempotency_header(name).map(Some).ok_or_else(|| {
            BindingError::Value("`idempotency_header` must be the name of a header".to_owned())
        })
    }
}

pub(crate) fn idempotency_header(name: &str) -> Option<HeaderName> {
    let name: HeaderName = name.parse().ok()?;
    (!crate::header::is_of_connection(&name)).then_some(name)
}
