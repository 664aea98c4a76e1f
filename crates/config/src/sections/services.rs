//! HTTP services as tools, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;

use adapter_http::{FixedHeaders, Retry, UrlTemplate};
use http_client::AllowPrivate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;

/// HTTP services as tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Services {
    /// Offer the tools that skills bind to HTTP services.
    pub bindings: bool,
    /// Services described by OpenAPI documents, by a name of the operator's choice.
    pub openapi: BTreeMap<String, OpenApi>,
    /// Hosts that may be talked to, their subdomains included. Empty: any that is named in full.
    #[schemars(extend("x-items" = "authority"))]
    pub allowed_hosts: Vec<String>,
    /// Networks, addresses and hosts that may be talked to although they are not public.
    pub allow_private: Vec<String>,
    /// Environment variables that skills may refer to in headers. Empty: any.
    #[schemars(extend("x-items" = "token"))]
    pub allowed_secrets: Vec<String>,
    /// Authorities that certificates may come from besides the system's, PEM.
    #[schemars(extend("format" = "path"))]
    pub ca_file: Option<PathBuf>,
    /// Connections to one host at once.
    #[schemars(range(min = 1, max = 10_000))]
    pub max_connections_per_host: usize,
    /// A connection unused for this many seconds is closed.
    #[schemars(range(min = 1, max = 86_400))]
    pub idle_seconds: u64,
    /// Longer answers are refused.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_response_bytes: usize,
}

impl Default for Services {
    fn default() -> Self {
        Self {
            bindings: true,
            openapi: BTreeMap::new(),
            allowed_hosts: Vec::new(),
            allow_private: Vec::new(),
            allowed_secrets: Vec::new(),
            ca_file: None,
            max_connections_per_host: 16,
            idle_seconds: 60,
            max_response_bytes: 1024 * 1024,
        }
    }
}

/// One service that an OpenAPI document describes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct OpenApi {
    /// The document, JSON or YAML, of OpenAPI 3.0 or 3.1.
    #[schemars(extend("format" = "path"))]
    pub document: PathBuf,
    /// Address that paths are appended to. Without one, the document's first server.
    pub base_url: Option<String>,
    /// Prefix of the names of its tools.
    #[schemars(extend("format" = "token"))]
    pub prefix: Option<String>,
    /// Conditions that an operation must match to become a tool.
    pub include: Operations,
    /// Conditions that an operation must not match to become a tool.
    pub exclude: Operations,
    /// Sent with each request. `${NAME}` refers to the server's environment.
    #[schemars(extend("additionalProperties" = {"type": "string", "format": "secret"}))]
    pub headers: BTreeMap<String, String>,
    /// Treatment of requests that change something.
    pub mode: Mode,
    /// Seconds that one attempt may take.
    #[schemars(range(min = 1, max = 3_600))]
    pub timeout_seconds: u64,
    /// Longer answers are refused. Without one, `services.max_response_bytes`.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_response_bytes: Option<usize>,
    /// Retries of a request that may be repeated.
    pub retry: RetryRule,
    /// Header in which a key is sent, by which the service recognises repetitions: then every
    /// request may be repeated.
    #[schemars(extend("format" = "token"))]
    pub idempotency_header: Option<String>,
    /// Promise clients what the document says of answers.
    pub output_schemas: bool,
}

impl Default for OpenApi {
    fn default() -> Self {
        Self {
            document: PathBuf::new(),
            base_url: None,
            prefix: None,
            include: Operations::default(),
            exclude: Operations::default(),
            headers: BTreeMap::new(),
            mode: Mode::default(),
            timeout_seconds: 30,
            max_response_bytes: None,
            retry: RetryRule::default(),
            idempotency_header: None,
            output_schemas: false,
        }
    }
}

/// Operations of a document, by patterns in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Operations {
    /// Over `operationId`.
    #[schemars(extend("x-items" = "pattern"))]
    pub operations: Vec<String>,
    /// Over tags.
    #[schemars(extend("x-items" = "pattern"))]
    pub tags: Vec<String>,
    /// Methods.
    #[schemars(extend("x-items" = "token"))]
    pub methods: Vec<String>,
    /// Over paths.
    #[schemars(extend("x-items" = "pattern"))]
    pub paths: Vec<String>,
}

/// Treatment of requests that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Requests are sent.
    #[default]
    Active,
    /// Requests are not sent; the answer to a caller shows the request that would have been sent.
    Shadow,
}

/// Retries of a request that may be repeated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryRule {
    /// So often at most, the first time included.
    #[schemars(range(min = 1, max = 10))]
    pub max_attempts: u32,
    /// Milliseconds before the second attempt; the time doubles with each further attempt.
    #[schemars(range(min = 1, max = 60_000))]
    pub backoff_milliseconds: u64,
}

impl Default for RetryRule {
    fn default() -> Self {
        Self {
            max_attempts: Retry::default().max_attempts,
            backoff_milliseconds: 1_000,
        }
    }
}

/// Adds the problems of services that can be found without reading files or connecting.
pub(crate) fn check(services: &Services, origins: &Origins, problems: &mut Vec<Problem>) {
    let mut error = |key: String, message: String, hint: Option<&str>| {
        let origin = origin_near(origins, &key);
        let problem = Problem::error(origin, message).key(key);
        problems.push(problem.hint_if(hint.map(str::to_owned)));
    };
    if let Err(why) = AllowPrivate::parse(&services.allow_private) {
        let key = "services.allow_private";
        error(key.to_owned(), format!("`{key}`: {why}"), None);
    }
    for (index, host) in services.allowed_hosts.iter().enumerate() {
        if !host.ends_with(']') && host.contains(':') {
            let key = "services.allowed_hosts";
            let message = format!("`{key}[{index}]` has a port, and hosts are allowed as a whole");
            error(key.to_owned(), message, Some("leave the port out"));
        }
    }
    for (name, service) in &services.openapi {
        let path = child("services.openapi", name);
        if service.document.as_os_str().is_empty() {
            let message = format!("`{path}` has no `document`");
            let hint = "write `document: ./openapi.yaml`";
            error(child(&path, "document"), message, Some(hint));
        }
        if let Some(url) = &service.base_url
            && let Err(why) = UrlTemplate::parse(url)
        {
            let key = child(&path, "base_url");
            error(key.clone(), format!("`{key}`: {why}"), None);
        }
        if let Some(name) = &service.idempotency_header
            && let Err(why) = FixedHeaders::resolve([(name.as_str(), "x")], &|_| None)
        {
            let key = child(&path, "idempotency_header");
            error(key.clone(), format!("`{key}`: {why}"), None);
        }
        for (header, value) in &service.headers {
            // Whether the variables are set was looked at where they are read.
            let set = |_: &str| Some("x".to_owned());
            let pair = [(header.as_str(), value.as_str())];
            if let Err(why) = FixedHeaders::resolve(pair, &set) {
                let key = child(&child(&path, "headers"), header);
                error(key.clone(), format!("`{key}`: {why}"), None);
            }
        }
    }
}
