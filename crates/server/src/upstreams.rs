//! Other MCP servers as sources of tools, resources and prompts, as the configuration names them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use adapter_tools::RiskClass;
use config::{
    Config, Environment, Loaded, OnOffer, Problem, Reference, TemplatePart, UnmatchedFilter,
    UpstreamCredentials,
};
use gateway::{
    Bindings, Credentials, Gateway, GatewayOptions, HostFile, NameTemplate, Reach, Template,
    Tokens, UpstreamSpec,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use mcp_client::HttpTransport;
use oauth_client::{ExchangeOptions, Recipient, Secret, SubjectKind};
use tempfile::TempDir;

use crate::{Failure, sign_in};

/// The gateway to the configured upstreams. It is there without any, for those that come while serving.
///
/// # Errors
///
/// When an upstream cannot be used as it is configured.
pub(super) async fn open(config: &Config) -> Result<Gateway, Failure> {
    let gateway = upstreams_stored(config)?;
    let most = Duration::from_secs(config.gateway.first_start_seconds);
    gateway.first_look(most).await;
    Ok(gateway)
}

/// The same for a look that leaves nothing behind: lists and pins are stored in a copy, which is removed with the
/// directory that is returned.
///
/// # Errors
///
/// As [`open`], and when the copy cannot be made.
pub(super) async fn open_aside(config: &Config) -> Result<(Gateway, Option<TempDir>), Failure> {
    if config.upstreams.is_empty() && config.upstreams_files.is_empty() {
        return Ok((open(config).await?, None));
    }
    let aside = TempDir::new()?;
    let stored = std::fs::read_dir(upstreams_directory(config));
    for entry in stored.into_iter().flatten() {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), aside.path().join(entry.file_name()))?;
        }
    }
    let mut config = config.clone();
    config.gateway.directory = Some(aside.path().to_owned());
    Ok((open(&config).await?, Some(aside)))
}

/// The gateway to the configured upstreams with what is stored of them; nothing is connected yet.
///
/// # Errors
///
/// When an upstream cannot be used as it is configured.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn upstreams_stored(config: &Config) -> Result<Gateway, Failure> {
    let options = GatewayOptions {
        names: NameTemplate::parse(&config.gateway.names)
            .map_err(|why| format!("gateway.names: {why}"))?,
        describe_origin: config.gateway.describe_origin,
        directory: Some(upstreams_directory(config)),
        clients: Some(Arc::new(config.vault_place().clients())),
        sign_ins: sign_in::addresses(config),
    };
    Ok(Gateway::new(options, specs(config)?))
}

/// The directory in which lists and pins of upstreams are stored.
#[must_use]
pub fn upstreams_directory(config: &Config) -> PathBuf {
    config
        .gateway
        .directory
        .clone()
        .unwrap_or_else(|| config.ledger.path.with_file_name("upstreams"))
}

/// The configured upstreams, with the secrets that they refer to.
///
/// # Errors
///
/// When one of them refers to something that is not there.
pub(super) fn specs(config: &Config) -> Result<Vec<UpstreamSpec>, Failure> {
    let declared = declared_upstreams(config)?;
    for warning in &declared.warnings {
        tracing::warn!(warning, "a part of a host's file is of no use");
    }
    Ok(declared.specs())
}

/// The files of hosts whose upstreams are used: those that are configured, and the one that is found.
pub(super) fn host_files(config: &Config) -> Vec<PathBuf> {
    let mut files = config.upstreams_files.clone();
    if config.gateway.find_hosts_file {
        let variable = |name: &str| std::env::var(name).ok();
        let base = &config.resources.base;
        files.extend(gateway::hosts::find(None, Some(base), variable));
    }
    files
}

/// References to secrets of the vault in files of hosts, with the files. A file that cannot be read has none, and is told
/// of elsewhere.
pub fn references_of_hosts(config: &Config) -> Vec<(String, Reference)> {
    let mut found = Vec::new();
    for path in host_files(config) {
        let text = regular_file::read_text(&path, regular_file::MAX_BYTES).unwrap_or_default();
        let place = format!("upstreams_files ({})", path.display());
        found.extend(config::vault_references(&text).map(|it| (place.clone(), it)));
    }
    found
}

/// The configured upstreams, with those of the files of hosts.
#[derive(Debug, Default)]
pub struct Declared {
    /// The upstreams.
    pub upstreams: Vec<DeclaredUpstream>,
    /// Reasons why parts of the files of hosts are not used.
    pub warnings: Vec<String>,
    /// Reasons why files of hosts that are there cannot be read, one a file; they are among the warnings.
    pub broken: Vec<String>,
}

impl Declared {
    pub(super) fn specs(self) -> Vec<UpstreamSpec> {
        self.upstreams.into_iter().map(|it| it.spec).collect()
    }
}

/// An upstream as it is configured.
#[derive(Clone, Debug)]
pub struct DeclaredUpstream {
    /// The upstream.
    pub spec: UpstreamSpec,
    /// The host's file that it stands in; `None` for one of the configuration itself.
    pub file: Option<PathBuf>,
}

/// The configured upstreams, and what is wrong with files of hosts.
///
/// # Errors
///
/// When an upstream of the configuration refers to something that is not there.
pub fn declared_upstreams(config: &Config) -> Result<Declared, Failure> {
    declared_after(config, &[])
}

/// The same, where a file of a host that cannot be read has the upstreams that it had `before`.
///
/// # Errors
///
/// As [`declared_upstreams`].
pub(super) fn declared_after(
    config: &Config,
    before: &[DeclaredUpstream],
) -> Result<Declared, Failure> {
    let environment = &config.environment;
    let Declared {
        upstreams: mut declared,
        mut warnings,
        mut broken,
    } = Declared::default();
    let mut problems = Vec::new();
    for (name, upstream) in &config.upstreams {
        match spec(name, upstream, environment) {
            Ok(spec) => declared.push(DeclaredUpstream { spec, file: None }),
            Err(why) => problems.push(format!("upstreams.{name}: {why}")),
        }
    }
    if !problems.is_empty() {
        return Err(problems.join("\n").into());
    }
    for path in &host_files(config) {
        if !path.is_file() {
            warnings.push(format!("{}: it is not there", path.display()));
        }
        let mut file = HostFile::read(path, |name| environment.value_of(name));
        if file.is_broken {
            broken.extend(file.warnings.last().cloned());
            let kept = before.iter().filter(|it| it.file.as_ref() == Some(path));
            file.specs = kept.map(|it| it.spec.clone()).collect();
        }
        warnings.extend(file.warnings);
        for spec in file.specs {
            if declared.iter().any(|it| it.spec.name == spec.name) {
                let (name, path) = (&spec.name, path.display());
                warnings.push(format!(
                    "{path}: `{name}` is left out: another upstream has its name"
                ));
            } else {
                let file = Some(path.clone());
                declared.push(DeclaredUpstream { spec, file });
            }
        }
    }
    Ok(Declared {
        upstreams: declared,
        warnings,
        broken,
    })
}

/// Parts of the files of hosts that are not used, as warnings about the configuration.
///
/// # Errors
///
/// As [`declared_upstreams`].
pub fn host_file_problems(loaded: &Loaded) -> Result<Vec<Problem>, Failure> {
    let key = match loaded.config.upstreams_files.is_empty() {
        true => "gateway.find_hosts_file",
        false => "upstreams_files",
    };
    let warnings = declared_upstreams(&loaded.config)?.warnings.into_iter();
    let problem = |why| Problem::warning(loaded.place(key), why).key(key);
    Ok(warnings.map(problem).collect())
}

/// Patterns of upstreams that match nothing which those list now.
pub(super) fn unmatched_patterns(gateway: &Gateway) -> impl Iterator<Item = UnmatchedFilter> {
    let found = gateway.unmatched_patterns().into_iter();
    found.map(|(upstream, list, pattern, names)| UnmatchedFilter {
        key: format!("upstreams.{upstream}.{list}"),
        pattern,
        names,
    })
}

/// Rules that match nothing, as far as that is known without a look at what is on offer: those whose patterns no name can
/// match, and those that begin like names of tools of known upstreams and match nothing there, with the patterns of these
/// upstreams themselves. Rules about an upstream that was never heard of are not among the latter. Nothing is connected.
///
/// # Errors
///
/// When an upstream cannot be used as it is configured.
pub fn unmatched_upstream_rules(loaded: &Loaded) -> Result<Vec<Problem>, Failure> {
    let mut impossible = loaded.impossible();
    if loaded.config.upstreams.is_empty() && host_files(&loaded.config).is_empty() {
        return Ok(impossible);
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let gateway = upstreams_stored(&loaded.config)?;
        let status = gateway.status().into_iter();
        let offered = status.flat_map(|it| gateway.tools_named(&it.name));
        let names = offered.filter_map(|(_, name)| name);
        let known = OnOffer {
            tools: names.map(|it| (it.clone(), it)).collect(),
            unmatched_filters: unmatched_patterns(&gateway).collect(),
            unheard: gateway.beginnings(false),
            overlaps: gateway.overlaps(),
            ..OnOffer::default()
        };
        let beginnings = gateway.beginnings(true);
        let mut found = loaded.unmatched_upstreams(&known, &beginnings);
        gateway.shut_down().await;
        impossible.retain(|it| found.iter().all(|other| other.key != it.key));
        found.append(&mut impossible);
        Ok(found)
    })
}

fn spec(
    name: &str,
    upstream: &config::Upstream,
    environment: &Environment,
) -> Result<UpstreamSpec, String> {
    // Where a reference cannot be resolved, the upstream is held, and its own text is of no use.
    let is_held = upstream.unresolved.is_some();
    let resolved = |what: &str, text: &str| match environment.resolve(text) {
        None if is_held => Ok(String::new()),
        resolved => resolved.ok_or_else(|| format!("{what} refers to something that is not set")),
    };
    let reach = match (&upstream.command, &upstream.url) {
        (Some(program), _) => Reach::Child {
            program: program.clone(),
            arguments: upstream
                .args
                .iter()
                .map(|it| resolved("args", it))
                .collect::<Result<_, String>>()?,
            environment: upstream
                .env
                .iter()
                .filter(|(_, value)| !is_own(value, environment))
                .map(|(name, value)| Ok((name.clone(), resolved(&format!("env.{name}"), value)?)))
                .collect::<Result<_, String>>()?,
            directory: upstream.cwd.clone(),
        },
        (None, Some(url)) => Reach::Url {
            url: resolved("url", url)?,
            headers: match is_held {
                true => HeaderMap::new(),
                false => headers(upstream, environment)?,
            },
            transport: match upstream.transport {
                config::UpstreamTransport::Auto => HttpTransport::Detect,
                config::UpstreamTransport::Http => HttpTransport::Streamable,
                config::UpstreamTransport::Sse => HttpTransport::Sse,
            },
        },
        (None, None) if is_held => Reach::Child {
            program: "nothing".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            directory: None,
        },
        (None, None) => return Err("there is neither `command` nor `url`".to_owned()),
    };
    let seconds = Duration::from_secs;
    Ok(UpstreamSpec {
        tokens: tokens(upstream)?,
        credentials: credentials(upstream, environment)?,
        unresolved: upstream.unresolved.clone(),
        enabled: upstream.enabled,
        allow: upstream.allow.clone(),
        deny: upstream.deny.clone(),
        prefix: upstream.prefix.clone(),
        uris: match upstream.uris {
            config::Uris::Prefixed => gateway::Uris::Prefixed,
            config::Uris::AsIs => gateway::Uris::AsIs,
        },
        isolation: match upstream.isolation {
            config::Isolation::Shared => gateway::Isolation::Shared,
            config::Isolation::PerClient => gateway::Isolation::PerClient,
            config::Isolation::PerSession => gateway::Isolation::PerSession,
        },
        idle: seconds(upstream.idle_seconds),
        connect_timeout: seconds(upstream.connect_timeout_seconds),
        timeout: seconds(upstream.timeout_seconds),
        max_message: upstream.max_message_bytes,
        accept_changes: upstream.accept_changes.clone(),
        trust_annotations: upstream.trust == config::Trust::Annotations,
        cleans_results: upstream.texts == config::Texts::Cleaned,
        risk: risk(upstream.risk),
        risks: risks(&upstream.risks),
        costs: upstream
            .costs
            .values()
            .flat_map(|it| it.tools.iter().map(|pattern| (pattern.clone(), it.cost.0)))
            .collect(),
        hold: upstream.hold.clone(),
        ..UpstreamSpec::new(name, reach)
    })
}

fn tokens(upstream: &config::Upstream) -> Result<Tokens, String> {
    let is_authorization = |name: &String| name.eq_ignore_ascii_case("authorization");
    match &upstream.auth {
        Some(auth) => {
            let secret = secret_of("auth.client_secret_file", &auth.client_secret_file)?;
            let scopes = auth.scope.as_deref().unwrap_or_default();
            Ok(Tokens::Client {
                id: auth.client_id.clone(),
                secret,
                scopes: scopes.split_whitespace().map(str::to_owned).collect(),
            })
        }
        // A login that all clients would share is not for those that need their own.
        None if upstream.credentials != UpstreamCredentials::Shared => Ok(Tokens::None),
        None if upstream.headers.keys().any(is_authorization) => Ok(Tokens::None),
        None => Ok(oauth_client::usual_directory().map_or(Tokens::None, Tokens::Kept)),
    }
}

fn risks(patterns: &config::RiskPatterns) -> Vec<(String, RiskClass)> {
    let of_class = |patterns: &[String], class| {
        let patterns = patterns.iter().cloned();
        patterns.map(|it| (it, class)).collect::<Vec<_>>()
    };
    [
        of_class(&patterns.read_only, RiskClass::ReadOnly),
        of_class(&patterns.mutating, RiskClass::Mutating),
        of_class(&patterns.external, RiskClass::External),
        of_class(&patterns.financial, RiskClass::Financial),
    ]
    .concat()
}

fn risk(class: config::RiskClass) -> RiskClass {
    match class {
        config::RiskClass::ReadOnly => RiskClass::ReadOnly,
        config::RiskClass::Mutating => RiskClass::Mutating,
        config::RiskClass::External => RiskClass::External,
        config::RiskClass::Financial => RiskClass::Financial,
    }
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    name.parse()
        .map_err(|_| format!("`{name}` is no name of a header"))
}

/// True if a credential of the client that calls stands in the text.
fn is_own(text: &str, environment: &Environment) -> bool {
    let parts = environment.template(text).unwrap_or_default();
    parts
        .iter()
        .any(|it| matches!(it, TemplatePart::Credential(_)))
}

/// Secret in a file, which is known for one from then on.
fn secret_of(key: &str, path: &Path) -> Result<Secret, String> {
    let secret = regular_file::read_text(path, regular_file::MAX_BYTES)
        .map_err(|error| format!("{key}: {}: {error}", path.display()))?;
    let secret = secret.trim_end();
    if secret.is_empty() {
        return Err(format!(
            "{key}: {}: it is empty; put the secret into it",
            path.display()
        ));
    }
    redaction::know([secret]);
    Ok(Secret::new(secret.to_owned()))
}

/// Exchange of tokens of callers for tokens of an upstream.
fn exchanged(
    upstream: &config::Upstream,
    environment: &Environment,
) -> Result<Credentials, String> {
    let (Some(exchange), Some(url)) = (&upstream.exchange, &upstream.url) else {
        return Err("`credentials: exchange` needs `url` and `exchange`".to_owned());
    };
    let server = match environment.resolve(url) {
        // It is held, and its address is of no use.
        None if upstream.unresolved.is_some() => return Ok(Credentials::Shared),
        resolved => resolved.ok_or("url refers to something that is not set")?,
    };
    let recipient = exchange.assertion_for.as_ref().map(|it| {
        let key = "exchange.assertion_for.client_secret_file";
        Ok::<_, String>(Recipient {
            issuer: it.issuer.clone(),
            token_endpoint: it.token_endpoint.clone(),
            client_id: it.client_id.clone(),
            client_secret: secret_of(key, &it.client_secret_file)?,
        })
    });
    let scopes = exchange.scope.as_deref().unwrap_or_default();
    let key = "exchange.client_secret_file";
    Ok(Credentials::Exchanged(Box::new(ExchangeOptions {
        server,
        token_endpoint: exchange.token_endpoint.clone(),
        client_id: exchange.client_id.clone(),
        client_secret: secret_of(key, &exchange.client_secret_file)?,
        audience: exchange.audience.clone(),
        resource: exchange.resource.clone(),
        scopes: scopes.split_whitespace().map(str::to_owned).collect(),
        subject: match exchange.subject_token_type {
            config::SubjectTokenType::AccessToken => SubjectKind::AccessToken,
            config::SubjectTokenType::Jwt => SubjectKind::Jwt,
            config::SubjectTokenType::IdToken => SubjectKind::IdToken,
        },
        recipient: recipient.transpose()?,
    })))
}

/// Owner of the credentials that an upstream is shown, and the places of those of clients.
fn credentials(
    upstream: &config::Upstream,
    environment: &Environment,
) -> Result<Credentials, String> {
    match upstream.credentials {
        UpstreamCredentials::PerClient => {}
        UpstreamCredentials::Exchange => return exchanged(upstream, environment),
        UpstreamCredentials::Shared | UpstreamCredentials::None => return Ok(Credentials::Shared),
    }
    let template = |section: &str, name: &str, text: &str| {
        let parts = environment.template(text);
        if parts.is_none() && upstream.unresolved.is_some() {
            return Ok(Template::default());
        }
        let parts =
            parts.ok_or_else(|| format!("{section}.{name} refers to something that is not set"))?;
        Ok::<_, String>(Template::new(parts.into_iter().map(|it| match it {
            TemplatePart::Text(text) => gateway::TemplatePart::Text(text),
            TemplatePart::Credential(name) => gateway::TemplatePart::Credential(name),
        })))
    };
    let mut bindings = Bindings::default();
    for (name, text) in &upstream.headers {
        if is_own(text, environment) {
            let template = template("headers", name, text)?;
            bindings.headers.push((header_name(name)?, template));
        }
    }
    for (name, text) in &upstream.env {
        if is_own(text, environment) {
            bindings
                .environment
                .push((name.clone(), template("env", name, text)?));
        }
    }
    Ok(match bindings == Bindings::default() {
        // A reference that cannot be resolved hides them, and holds the upstream.
        true if upstream.unresolved.is_none() => Credentials::SignedIn,
        _ => Credentials::PerClient(bindings),
    })
}

fn headers(upstream: &config::Upstream, environment: &Environment) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let shared = upstream.headers.iter();
    for (name, value) in shared.filter(|(_, value)| !is_own(value, environment)) {
        let value = environment
            .resolve(value)
            .ok_or_else(|| format!("headers.{name} refers to something that is not set"))?;
        let name = header_name(name)?;
        let mut value = HeaderValue::from_str(&value)
            .map_err(|_| format!("headers.{name} has characters that a header cannot have"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}
