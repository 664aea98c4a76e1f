//! HTTP services as tools: those that skills bind, and those that OpenAPI documents describe.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use adapter_http::openapi::{self, Described, MAX_DOCUMENT_BYTES, Selection, ServiceOptions};
use adapter_http::{BoundTool, Bounds, FixedHeaders, Mode, Retry};
use adapter_skills::{Skill, SkillCatalog, ToolDeclaration};
use adapter_tools::{Tool, ToolSet};
use http_client::{AllowPrivate, Client, ClientOptions, HostList, Reach};
use mcp_server::{NotOffered, SourceTools, ToolSource};

use crate::Failure;
use crate::with_causes;
use config::{Config, Environment, UnmatchedFilter};

/// Member of a tool's `_meta` that names the skill it comes from.
const SKILL_META: &str = "io.owlclaw/skill";
/// Time for connecting to one address of a service.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// A longer file of authorities is none.
const MAX_CA_BYTES: usize = 4 * 1024 * 1024;

/// The services that are tools.
#[derive(Debug)]
pub(super) struct Services {
    settings: config::Services,
    environment: Environment,
    options: ClientOptions,
    /// Made when there is a tool that needs it: reading the system's authorities takes a while.
    client: OnceLock<Client>,
    /// Of the documents, in the order of the services' names.
    described: Vec<Tool>,
    /// Operations of the documents that cannot be offered.
    lost: Vec<NotOffered>,
    /// Patterns that match nothing in the documents.
    unmatched: Vec<UnmatchedFilter>,
}

/// Reach, trust and bounds of requests to services, as `services` says.
///
/// # Errors
///
/// When the file of authorities cannot be read.
pub(super) fn client_options(config: &Config) -> Result<ClientOptions, Failure> {
    let settings = &config.services;
    let private = AllowPrivate::parse(&settings.allow_private)?;
    let private = private.of_setting("services.allow_private");
    let hosts = HostList::new(&settings.allowed_hosts).of_setting("services.allowed_hosts");
    let reach = match hosts.is_empty() {
        true => Reach::Public(private),
        false => Reach::Named(hosts, private),
    };
    let authorities = match &settings.ca_file {
        Some(path) => read(path, MAX_CA_BYTES)
            .map_err(|why| format!("services.ca_file: {}: {why}", path.display()))?,
        None => Vec::new(),
    };
    Ok(ClientOptions {
        reach,
        authorities,
        connect_timeout: CONNECT_TIMEOUT,
        max_connections: settings.max_connections_per_host,
        idle_timeout: Duration::from_secs(settings.idle_seconds),
        ..ClientOptions::default()
    })
}

impl Services {
    /// Reads all documents and makes tools of them, so that problems are reported before anything
    /// is served.
    pub(super) fn prepare(config: &Config) -> Result<Self, Failure> {
        let settings = config.services.clone();
        let options = client_options(config)?;
        let has_authorities = settings.ca_file.is_some();
        let mut services = Self {
            settings,
            environment: config.environment.clone(),
            options,
            client: OnceLock::new(),
            described: Vec::new(),
            lost: Vec::new(),
            unmatched: Vec::new(),
        };
        if has_authorities || !services.settings.openapi.is_empty() {
            let client = services.client();
            let client = client.map_err(|error| format!("services: {}", with_causes(&*error)))?;
            let (mut lost, mut unmatched) = (Vec::new(), Vec::new());
            services.described = services.describe(client, &mut lost, &mut unmatched)?;
            (services.lost, services.unmatched) = (lost, unmatched);
        }
        Ok(services)
    }

    /// Patterns that match nothing in the documents.
    pub(super) fn unmatched(&self) -> &[UnmatchedFilter] {
        &self.unmatched
    }

    fn bind(
        &self,
        skill: &Skill,
        name: &str,
        declaration: &ToolDeclaration,
    ) -> Result<Tool, Failure> {
        let Some(binding) = &declaration.binding else {
            return Err("there is no binding".into());
        };
        let tool = BoundTool {
            name,
            description: declaration
                .description
                .as_deref()
                .unwrap_or(skill.description()),
            parameters: declaration.parameters.as_ref(),
            binding,
        };
        let allowed = &self.settings.allowed_secrets;
        let secrets = |variable: &str| {
            let is_allowed = allowed.is_empty() || allowed.iter().any(|it| it == variable);
            is_allowed.then(|| self.secret(variable)).flatten()
        };
        let (tool, warnings) =
            adapter_http::bind(tool, self.client()?, self.bounds(None), &secrets)?;
        for warning in warnings {
            tracing::warn!(
                warning,
                tool = name,
                skill = %skill.uri(),
                "a binding is questionable"
            );
        }
        Ok(tool.with_meta(SKILL_META, skill.uri().to_string()))
    }

    fn describe(
        &self,
        client: &Client,
        lost: &mut Vec<NotOffered>,
        unmatched: &mut Vec<UnmatchedFilter>,
    ) -> Result<Vec<Tool>, Failure> {
        let mut tools: Vec<Tool> = Vec::new();
        let mut owners: HashMap<String, &str> = HashMap::new();
        let mut problems = Vec::new();
        for (name, settings) in &self.settings.openapi {
            let (made, warnings, patterns) = match self.service(settings, client) {
                Ok(made) => made,
                Err(error) => {
                    problems.push(format!("services.openapi.{name}: {}", with_causes(&*error)));
                    continue;
                }
            };
            for warning in warnings {
                tracing::warn!(warning, service = name, "not all of a service is offered");
            }
            unmatched.extend(patterns.into_iter().map(|it| UnmatchedFilter {
                key: format!("services.openapi.{name}.{}", it.key),
                pattern: it.pattern,
                names: it.names,
            }));
            let (made, unusable) = ToolSet::collect(made);
            for problem in unusable {
                lost.push(NotOffered {
                    tool: problem.name.clone(),
                    place: Some(format!("services.openapi.{name}")),
                    why: with_causes(&problem.reason),
                });
            }
            for tool in made.iter() {
                match owners.insert(tool.name().to_owned(), name) {
                    None => tools.push(tool.clone()),
                    Some(first) => problems.push(format!(
                        "services.openapi.{name}: a tool of {first} is called `{}` too; say `prefix`",
                        tool.name()
                    )),
                }
            }
        }
        match problems.is_empty() {
            true => Ok(tools),
            false => Err(problems.join("\n").into()),
        }
    }

    fn service(&self, settings: &config::OpenApi, client: &Client) -> Result<Described, Failure> {
        let path = &settings.document;
        let document = read(path, MAX_DOCUMENT_BYTES)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is not UTF-8".into()))
            .map_err(|why| format!("{}: {why}", path.display()))?;
        let headers = settings.headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_str()));
        let secrets = |variable: &str| self.secret(variable);
        let idempotency_header = match &settings.idempotency_header {
            Some(name) => Some(name.parse()?),
            None => None,
        };
        let options = ServiceOptions {
            base_url: settings.base_url.clone(),
            prefix: settings.prefix.clone().unwrap_or_default(),
            include: selection(&settings.include),
            exclude: selection(&settings.exclude),
            headers: FixedHeaders::resolve(headers, &secrets)?,
            mode: match settings.mode {
                config::Mode::Active => Mode::Active,
                config::Mode::Shadow => Mode::Shadow,
            },
            timeout: Duration::from_secs(settings.timeout_seconds),
            retry: Retry {
                max_attempts: settings.retry.max_attempts,
                backoff: Duration::from_millis(settings.retry.backoff_milliseconds),
                ..Retry::default()
            },
            idempotency_header,
            output_schemas: settings.output_schemas,
            bounds: self.bounds(settings.max_response_bytes),
        };
        Ok(openapi::tools(&document, &options, client)?)
    }

    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::new(self.options.clone())?;
        Ok(self.client.get_or_init(|| client))
    }

    fn bounds(&self, own: Option<usize>) -> Bounds {
        Bounds {
            max_response_bytes: own.unwrap_or(self.settings.max_response_bytes),
        }
    }

    /// An empty variable counts as absent: that is how files for containers unset one.
    fn secret(&self, variable: &str) -> Option<String> {
        let value = self.environment.resolve(&format!("${{{variable}}}"))?;
        redaction::know([value.as_str()]);
        (!value.is_empty()).then_some(value)
    }
}

impl ToolSource for Services {
    /// Tools of the documents, which are read once.
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        SourceTools {
            tools: self.described.clone(),
            lost: self.lost.clone(),
        }
    }
}

/// Tools that skills bind to services. A handler of the same name, or whatever the operator has
/// configured, takes the place of a binding, as in OwlClaw.
#[derive(Debug)]
pub(super) struct Bindings(pub(super) Arc<Services>);

impl ToolSource for Bindings {
    fn tools(&self, skills: &SkillCatalog) -> SourceTools {
        let mut found = SourceTools::default();
        if !self.0.settings.bindings {
            return found;
        }
        for (skill, name, declaration) in bindings(skills) {
            let first = found.tools.iter().find(|tool| tool.name() == name);
            let bound = match first.map(|first| first.meta().get(SKILL_META)) {
                None => self.0.bind(skill, name, declaration),
                Some(first) => {
                    let first = first.and_then(|it| it.as_str());
                    Err(format!("{} binds it too", first.unwrap_or("another skill")).into())
                }
            };
            match bound {
                Ok(tool) => found.tools.push(tool),
                Err(error) => found.lost.push(NotOffered {
                    tool: name.to_owned(),
                    place: Some(skill.path().display().to_string()),
                    why: with_causes(&*error),
                }),
            }
        }
        found
    }

    fn gives_way(&self) -> bool {
        true
    }
}

/// Bindings of skills, in the catalogue's order.
fn bindings(catalog: &SkillCatalog) -> impl Iterator<Item = (&Arc<Skill>, &str, &ToolDeclaration)> {
    catalog.iter().flat_map(|skill| {
        let tools = skill.frontmatter().tools.iter();
        tools
            .filter(|(_, declaration)| declaration.binding.is_some())
            .map(move |(name, declaration)| (skill, name.as_str(), declaration))
    })
}

fn selection(operations: &config::Operations) -> Selection {
    Selection {
        operations: operations.operations.clone(),
        tags: operations.tags.clone(),
        methods: operations.methods.clone(),
        paths: operations.paths.clone(),
    }
}

fn read(path: &Path, max_bytes: usize) -> Result<Vec<u8>, Failure> {
    Ok(regular_file::read(path, max_bytes as u64)?)
}
