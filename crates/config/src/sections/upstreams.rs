//! Other MCP servers whose tools are offered, as configured.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use adapter_http::FixedHeaders;
use gateway::{ChangeKind, NameTemplate, is_of_transport};
use governance::Micros;
use http_client::BadUrl;
use identity::{KeySource, canonical_resource};
use redaction::{secret_parts, secret_parts_of_arguments};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::interpolate::{TemplatePart, first_credential};
use crate::environment::{self, Environment};
use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;
use crate::sections::secret::url_fault;
use crate::sections::{Config, Transport};

/// Longest name of an upstream.
const MAX_NAME: usize = 40;

/// Another MCP server whose tools, resources and prompts are offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Upstream {
    /// The program that is the server; looked up in `PATH` if it has no slash. Either this or `url`.
    #[schemars(extend("format" = "word"))]
    pub command: Option<String>,
    /// Arguments of the program. Other users of the machine can see them.
    #[schemars(extend("x-items" = "secret"))]
    pub args: Vec<String>,
    /// Environment variables of the program, besides `PATH`, `HOME` and eight others that it inherits.
    /// `${NAME}` refers to the server's own, `${vault:NAME}` to the vault, `${credential:NAME}` to the credential of the
    /// client that calls (`credentials: per-client`).
    #[schemars(extend("additionalProperties" = {"type": "string", "format": "secret"}))]
    pub env: BTreeMap<String, String>,
    /// The directory it runs in. Without one, that of the configuration file.
    #[schemars(extend("format" = "path"))]
    pub cwd: Option<PathBuf>,
    /// Address of the server: `http`, `https`, `ws` or `wss`. Either this or `command`.
    #[schemars(extend("format" = "secret"))]
    pub url: Option<String>,
    /// Sent with each request. `${NAME}` refers to the server's environment, `${vault:NAME}` to the vault,
    /// `${credential:NAME}` to the credential of the client that calls (`credentials: per-client`).
    #[schemars(extend("additionalProperties" = {"type": "string", "format": "secret"}))]
    pub headers: BTreeMap<String, String>,
    /// A client of the server's authorization server, which gives it tokens. Without one, tokens are used that
    /// `owlclaw-mcp upstream login` or `client login` keeps, unless `headers` has `Authorization`. With `credentials: per-client`
    /// the client by which each client signs in, where the authorization server registers none by itself.
    pub auth: Option<UpstreamAuth>,
    /// Owner of the credentials that the server is shown.
    pub credentials: UpstreamCredentials,
    /// Exchange of the tokens of callers for tokens that the server is shown (`credentials: exchange`, RFC 8693).
    pub exchange: Option<UpstreamExchange>,
    /// The transport behind an `http` address.
    pub transport: UpstreamTransport,
    /// Use it.
    pub enabled: bool,
    /// Tools, prompts, resources and templates that are offered, by the server's own names and URIs, in which `*` stands
    /// for any text. Empty: all.
    #[schemars(extend("x-items" = "pattern"))]
    pub allow: Vec<String>,
    /// Patterns of what is not offered, likewise. They go before `allow`.
    #[schemars(extend("x-items" = "pattern"))]
    pub deny: Vec<String>,
    /// Beginning of the names of its tools and prompts, in place of `gateway.names`.
    #[schemars(extend("format" = "token"))]
    pub prefix: Option<String>,
    /// Form of the URIs of its resources. One upstream alone can have `as-is`.
    pub uris: Uris,
    /// Clients that share a connection, and with it a program.
    pub isolation: Isolation,
    /// Seconds without a call after which the connection is closed, and the program ended; 0: never.
    #[schemars(range(max = 86_400))]
    pub idle_seconds: u64,
    /// Seconds that connecting may take, and reading a list.
    #[schemars(range(min = 1, max = 3_600))]
    pub connect_timeout_seconds: u64,
    /// A call that takes longer is ended.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: u64,
    /// The longest message of the server, in bytes. A call whose answer is longer has an unknown outcome.
    #[schemars(range(min = 65_536, max = 1_073_741_824))]
    pub max_message_bytes: usize,
    /// Statements of the server about its tools that are believed.
    pub trust: Trust,
    /// Form of the texts in results of its tools, in its resources and in its prompts.
    pub texts: Texts,
    /// Changes of what the server says about its tools, prompts and templates that are accepted. Any other change holds the item,
    /// which cannot be used then, until `owlclaw-mcp upstream approve`.
    pub accept_changes: BTreeSet<ChangeKind>,
    /// Class of its tools, where nothing else says it.
    pub risk: RiskClass,
    /// Tools of each class. Of several that fit a tool, the gravest counts.
    pub risks: RiskPatterns,
    /// Costs of calls of its tools, by a name of the operator's choice. Of several that fit a tool, the highest counts;
    /// `governance.tools.NAME.estimated_cost` wins over them.
    pub costs: BTreeMap<String, UpstreamCost>,
    /// Tools whose calls are refused, by the server's own names, in which `*` stands for any text. `*` alone holds
    /// its resources and prompts, too.
    #[schemars(extend("x-items" = "pattern"))]
    pub hold: Vec<String>,
    /// Reason why it cannot be used: a reference that cannot be resolved.
    #[serde(skip)]
    pub unresolved: Option<String>,
}

impl Default for Upstream {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
            url: None,
            headers: BTreeMap::new(),
            auth: None,
            credentials: UpstreamCredentials::default(),
            exchange: None,
            transport: UpstreamTransport::default(),
            enabled: true,
            allow: Vec::new(),
            deny: Vec::new(),
            prefix: None,
            uris: Uris::default(),
            isolation: Isolation::default(),
            idle_seconds: 600,
            connect_timeout_seconds: 60,
            timeout_seconds: 60,
            max_message_bytes: 16 * 1024 * 1024,
            trust: Trust::default(),
            texts: Texts::default(),
            accept_changes: [ChangeKind::New].into(),
            risk: RiskClass::default(),
            risks: RiskPatterns::default(),
            costs: BTreeMap::new(),
            hold: Vec::new(),
            unresolved: None,
        }
    }
}

/// A client that is registered at the authorization server of an upstream (client credentials).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamAuth {
    /// Identifier of the client.
    #[schemars(extend("format" = "word"))]
    pub client_id: String,
    /// The file with the client's secret.
    #[schemars(extend("format" = "path"))]
    pub client_secret_file: PathBuf,
    /// Scopes to ask for, separated by spaces.
    #[serde(default)]
    #[schemars(extend("format" = "word"))]
    pub scope: Option<String>,
}

/// An authorization server that exchanges tokens of callers for tokens of an upstream (RFC 8693).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamExchange {
    /// Token endpoint. The tokens of callers go there, and nowhere else.
    #[schemars(extend("format" = "word"))]
    pub token_endpoint: String,
    /// Identifier of this server as a client there.
    #[schemars(extend("format" = "word"))]
    pub client_id: String,
    /// The file with the client's secret.
    #[schemars(extend("format" = "path"))]
    pub client_secret_file: PathBuf,
    /// `audience` of the request. Without one, none is named.
    #[serde(default)]
    #[schemars(extend("format" = "word"))]
    pub audience: Option<String>,
    /// `resource` of the request (RFC 8707). Without one, the address of the upstream.
    #[serde(default)]
    #[schemars(extend("format" = "word"))]
    pub resource: Option<String>,
    /// Scopes to ask for, separated by spaces.
    #[serde(default)]
    #[schemars(extend("format" = "word"))]
    pub scope: Option<String>,
    /// Kind of the callers' tokens, as the request names it.
    #[serde(default)]
    pub subject_token_type: SubjectTokenType,
    /// Authorization server of the upstream that takes what is got as an assertion (ID-JAG), and gives the token for it.
    #[serde(default)]
    pub assertion_for: Option<AssertionFor>,
}

/// Kind of a subject token (RFC 8693, section 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SubjectTokenType {
    /// `urn:ietf:params:oauth:token-type:access_token`.
    #[default]
    AccessToken,
    /// `urn:ietf:params:oauth:token-type:jwt`.
    Jwt,
    /// `urn:ietf:params:oauth:token-type:id_token`.
    IdToken,
}

/// An authorization server that gives tokens for the word of an identity provider (enterprise-managed authorization).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AssertionFor {
    /// Issuer, for which the assertion is made.
    #[schemars(extend("format" = "word"))]
    pub issuer: String,
    /// Token endpoint.
    #[schemars(extend("format" = "word"))]
    pub token_endpoint: String,
    /// Identifier of this server as a client there.
    #[schemars(extend("format" = "word"))]
    pub client_id: String,
    /// The file with the client's secret there.
    #[schemars(extend("format" = "path"))]
    pub client_secret_file: PathBuf,
}

/// Credentials that an upstream is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UpstreamCredentials {
    /// One for all clients: that of this configuration, or tokens that `owlclaw-mcp client login` keeps.
    #[default]
    Shared,
    /// Each client's own, in the places of `${credential:NAME}`; without any such place, tokens that it has signed in for
    /// (`owlclaw-mcp upstream login NAME --client CLIENT`). Without its own a client is refused. Each client has connections of
    /// its own.
    PerClient,
    /// Tokens that an authorization server gives in exchange for those by which callers prove who they are (`exchange`).
    /// A caller that proves it otherwise is refused. Each token of a caller has connections of its own.
    Exchange,
    /// None: tokens that are kept for the address are not used.
    None,
}

/// Cost of calls of some tools of an upstream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UpstreamCost {
    /// Patterns of tools, by the server's own names, in which `*` stands for any text.
    #[schemars(extend("x-items" = "pattern"))]
    pub tools: Vec<String>,
    /// Expected cost of a call; it is reserved before the call and charged after it.
    pub cost: Micros,
}

/// The transport behind an `http` address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UpstreamTransport {
    /// Streamable HTTP; HTTP with SSE of 2024-11-05 if the server refuses that.
    #[default]
    Auto,
    /// Streamable HTTP.
    Http,
    /// HTTP with SSE of 2024-11-05.
    Sse,
}

/// Form of the URIs under which resources of an upstream are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Uris {
    /// `mcp.NAME+` and its URI.
    #[default]
    Prefixed,
    /// The upstream's own. Any URI that nothing else has is this upstream's.
    AsIs,
}

/// Form of the texts in results of an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Texts {
    /// Without control characters, sequences for terminals, directional overrides and characters that nobody sees.
    #[default]
    Cleaned,
    /// As they are.
    AsIs,
}

/// Clients that share a connection to an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// All.
    #[default]
    Shared,
    /// The requests of one client, by its name in `governance`.
    PerClient,
    /// The requests of one session of a client; of a client of 2026-07-28, which has no sessions, all.
    PerSession,
}

/// Statements of an upstream about its tools that are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Trust {
    /// None: clients see its annotations under `_meta` alone, and rules do not see them.
    #[default]
    Nothing,
    /// Annotations, such as `readOnlyHint`.
    Annotations,
}

/// Class of the effects that a call of an upstream's tool may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RiskClass {
    /// None: it reads.
    ReadOnly,
    /// Changes something: its start is on disk before it runs.
    #[default]
    Mutating,
    /// Reaches systems of others: calls have a limit per minute.
    External,
    /// Moves money: each call is confirmed.
    Financial,
}

/// Tools of each class of effects, by the server's own names, in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RiskPatterns {
    /// Tools that read.
    #[schemars(extend("x-items" = "pattern"))]
    pub read_only: Vec<String>,
    /// Tools that change something.
    #[schemars(extend("x-items" = "pattern"))]
    pub mutating: Vec<String>,
    /// Tools that reach systems of others.
    #[schemars(extend("x-items" = "pattern"))]
    pub external: Vec<String>,
    /// Tools that move money.
    #[schemars(extend("x-items" = "pattern"))]
    pub financial: Vec<String>,
}

/// The form in which upstreams are offered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Gateway {
    /// Names of tools and prompts of upstreams, from `{server}` and `{tool}`.
    #[schemars(extend("format" = "word"))]
    pub names: String,
    /// Begin descriptions with `[MCP:{server}] `.
    pub describe_origin: bool,
    /// Seconds that the start of the server waits for the lists of upstreams of which none are stored.
    #[schemars(range(max = 600))]
    pub first_start_seconds: u64,
    /// Hours after which a login at an upstream is renewed although nobody has used it, less up to a fifth of that: many
    /// authorization servers forget a refresh token that they are not shown for days. 0 renews for calls alone.
    #[schemars(range(max = 720))]
    pub renew_logins_hours: u64,
    /// Read the first of these files that exists besides `upstreams_files`: the one that the variable
    /// `OWLCLAW_MCP_CONFIG` names, `mcp.json` beside the configuration file, `~/.owlclaw/mcp.json`.
    pub find_hosts_file: bool,
    /// The directory in which lists of upstreams are stored. Without one, `upstreams` beside the ledger.
    #[schemars(extend("format" = "path"))]
    pub directory: Option<PathBuf>,
    /// Origin of this server as browsers of clients' users reach it, such as `https://tools.example.com`: there they sign in
    /// at upstreams with `credentials: per-client`, or give secrets for them. Without one, that of `identity.resource`, or
    /// the address that is listened on if that is this machine's alone.
    #[schemars(extend("format" = "word"))]
    pub public_url: Option<String>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            names: "mcp_{server}_{tool}".to_owned(),
            describe_origin: true,
            first_start_seconds: 5,
            renew_logins_hours: 24,
            find_hosts_file: false,
            directory: None,
            public_url: None,
        }
    }
}

impl Upstream {
    /// Names of the credentials that each client needs, and the keys that they stand in.
    pub fn credential_names(&self) -> BTreeMap<String, Vec<String>> {
        let mut names: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (section, values) in [("headers", &self.headers), ("env", &self.env)] {
            for (key, value) in values {
                let mut rest = value.as_str();
                while let Some((_, name, after)) = first_credential(rest) {
                    let keys = names.entry(name.to_owned()).or_default();
                    keys.push(child(section, key));
                    rest = after;
                }
            }
        }
        names
    }

    /// Values of everything in it that may be a reference; `None` for one that cannot be resolved.
    pub(crate) fn resolved(&self, environment: &Environment) -> Vec<Option<String>> {
        let texts = self.url.iter().chain(&self.args);
        let texts = texts.chain(self.env.values()).chain(self.headers.values());
        let resolved = |text: &String| {
            let parts = environment.template(text)?.into_iter();
            Some(
                parts
                    .map(|it| match it {
                        TemplatePart::Text(text) => text,
                        TemplatePart::Credential(name) => format!("${{credential:{name}}}"),
                    })
                    .collect(),
            )
        };
        texts.map(resolved).collect()
    }

    /// Makes its paths absolute.
    pub(crate) fn begin_at(&mut self, base: &Path) {
        let directory = self.cwd.as_deref().unwrap_or(Path::new("."));
        self.cwd = Some(environment::absolute(base, directory));
        if let Some(auth) = &mut self.auth {
            auth.client_secret_file = environment::absolute(base, &auth.client_secret_file);
        }
        if let Some(exchange) = &mut self.exchange {
            let recipient = exchange.assertion_for.as_mut();
            let files = recipient.map(|it| &mut it.client_secret_file);
            for file in files.into_iter().chain([&mut exchange.client_secret_file]) {
                *file = environment::absolute(base, &*file);
            }
        }
        if let Some(program) = &mut self.command
            && program.contains('/')
        {
            let path = environment::absolute(base, &*program);
            *program = path.to_string_lossy().into_owned();
        }
    }
}

/// The address if it is an origin, without a slash at its end: one that no third party can listen to, or stand in for.
fn origin_of(url: &str) -> Option<String> {
    let origin = canonical_resource(url)?;
    let (_, host) = origin.split_once("://")?;
    (!host.contains('/') && KeySource::is_safe(&origin)).then_some(origin)
}

impl Config {
    /// Origin at which users of clients give the credentials of these for upstreams, in their browsers; `None` if clients
    /// prove nothing, or no browser is known to reach the server.
    #[must_use]
    pub fn sign_in_origin(&self) -> Option<String> {
        if self.transport != Transport::Http || !self.identity.is_configured() {
            return None;
        }
        if let Some(url) = &self.gateway.public_url {
            return origin_of(url);
        }
        if let Some(resource) = &self.identity.resource {
            let resource = canonical_resource(resource)?;
            let origin = resource
                .splitn(4, '/')
                .take(3)
                .collect::<Vec<_>>()
                .join("/");
            return origin_of(&origin);
        }
        let http = &self.http;
        let is_local = http.tcp && http.host.is_loopback() && http.port != 0;
        let scheme = if http.tls.enabled { "https" } else { "http" };
        is_local.then(|| format!("{scheme}://{}", SocketAddr::new(http.host, http.port)))
    }
}

/// The text with `${X}` in the place of each reference, whatever its kind.
fn with_plain_references(text: &str) -> String {
    let mut parts = text.split("${");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('}') {
            Some((_, rest)) => {
                plain.push_str("${X}");
                plain.push_str(rest);
            }
            None => {
                plain.push_str("${");
                plain.push_str(part);
            }
        }
    }
    plain
}

/// Mistakes of `credentials` and what belongs to it: the key below the upstream, the mistake, and what to do.
fn credential_faults(
    upstream: &Upstream,
    has_proof: bool,
    takes_tokens: bool,
) -> Vec<(String, &'static str, &'static str)> {
    let mut faults = Vec::new();
    let mut fault = |key: &str, message, hint| faults.push((key.to_owned(), message, hint));
    let named = upstream.credential_names();
    let first = named.values().flatten().next();
    let is_authorization = |name: &&String| name.eq_ignore_ascii_case("authorization");
    let authorization = upstream.headers.keys().find(is_authorization);
    match upstream.credentials {
        UpstreamCredentials::PerClient => {
            if !has_proof {
                let hint = "configure `identity` (`api_keys: {}` is the shortest)";
                let message = "needs clients that prove who they are: any of them could use the credentials of others";
                fault("credentials", message, hint);
            }
            if first.is_some() && upstream.auth.is_some() {
                let message =
                    "is for clients that sign in, and a header has a credential of theirs";
                fault("auth", message, "take one of the two out");
            }
            if first.is_none() && upstream.command.is_some() {
                let message = "is `per-client`, and no variable has a credential of the client";
                fault(
                    "credentials",
                    message,
                    "write `env: {API_TOKEN: \"${credential:token}\"}`",
                );
            }
            if first.is_none()
                && let Some(name) = authorization
            {
                let message =
                    "is one credential for all clients, and `credentials` is `per-client`";
                let hint = "write `\"Bearer ${credential:token}\"`, or take it out, so that each client signs in";
                fault(&child("headers", name), message, hint);
            }
        }
        UpstreamCredentials::Exchange => {
            if !takes_tokens {
                let hint =
                    "configure `identity.jwt` or `identity.introspection`, with `transport: http`";
                fault(
                    "credentials",
                    "needs clients that prove who they are by tokens",
                    hint,
                );
            }
            if upstream.exchange.is_none() {
                let hint =
                    "write `exchange` with `token_endpoint`, `client_id` and `client_secret_file`";
                fault(
                    "credentials",
                    "is `exchange`, and there is no `exchange`",
                    hint,
                );
            }
            if upstream.command.is_some() {
                let hint = "use it with `url`";
                fault(
                    "credentials",
                    "is `exchange`, and a program is shown no tokens",
                    hint,
                );
            }
            if upstream.auth.is_some() {
                let message = "is a credential of its own, and `credentials` is `exchange`";
                fault("auth", message, "take one of the two out");
            }
            if let Some(key) = first {
                let message = "has a credential of the client, and `credentials` is `exchange`";
                fault(
                    key,
                    message,
                    "write `credentials: per-client`, or take it out",
                );
            }
            if let Some(name) = authorization {
                let message = "is one credential for all clients, and `credentials` is `exchange`";
                fault(&child("headers", name), message, "take one of the two out");
            }
        }
        UpstreamCredentials::Shared | UpstreamCredentials::None => {
            if let Some(key) = first {
                fault(
                    key,
                    "has a credential of the client",
                    "write `credentials: per-client` beside it",
                );
            }
            let is_none = upstream.credentials == UpstreamCredentials::None;
            let hint = "take it out, or write `credentials: shared`";
            if is_none && upstream.auth.is_some() {
                fault("auth", "is a credential, and `credentials` is `none`", hint);
            }
            if is_none && let Some(name) = authorization {
                fault(
                    &child("headers", name),
                    "is a credential, and `credentials` is `none`",
                    hint,
                );
            }
        }
    }
    if let Some(exchange) = &upstream.exchange {
        if upstream.credentials != UpstreamCredentials::Exchange {
            let hint = "write `credentials: exchange` beside it, or take it out";
            fault(
                "exchange",
                "is of no use without `credentials: exchange`",
                hint,
            );
        }
        let recipient = exchange.assertion_for.as_ref();
        let recipient =
            recipient.map(|it| ("exchange.assertion_for.token_endpoint", &it.token_endpoint));
        let own = ("exchange.token_endpoint", &exchange.token_endpoint);
        for (key, address) in [Some(own), recipient].into_iter().flatten() {
            if url_fault(address, &["http", "https"]).is_some() || !KeySource::is_safe(address) {
                let message =
                    "is no address that tokens may be sent to: https, or http on this machine";
                fault(
                    key,
                    message,
                    "write one such as `https://login.example.com/token`",
                );
            }
        }
    }
    faults
}

/// Warns of secrets of upstreams that are written out.
pub(crate) fn warn_of_secrets(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    for (name, upstream) in &config.upstreams {
        let path = child("upstreams", name);
        let pairs = [("env", &upstream.env), ("headers", &upstream.headers)];
        let pairs = pairs.into_iter().flat_map(|(key, pairs)| {
            let path = child(&path, key);
            let has = |(name, value): &(&String, &String)| !secret_parts(name, value).is_empty();
            let found: Vec<_> = pairs
                .iter()
                .filter(has)
                .map(|(name, _)| child(&path, name))
                .collect();
            found
        });
        let url = upstream.url.as_deref().unwrap_or_default();
        let url = (!secret_parts("", url).is_empty()).then(|| child(&path, "url"));
        let args = secret_parts_of_arguments(&upstream.args);
        let args = args.iter().any(|it| !it.is_empty());
        let args = args.then(|| child(&path, "args"));
        for key in pairs.chain(url).chain(args) {
            let message = format!("`{key}` has what looks like a secret, and it is written out");
            let hint = "put it into the vault by `owlclaw-mcp vault set NAME`, and write `${vault:NAME}` in its place";
            let origin = origin_near(origins, &key);
            problems.push(
                Problem::warning(origin, message)
                    .key(key)
                    .hint(hint)
                    .without_line(),
            );
        }
    }
}

/// Adds the problems of upstreams that can be found without looking at the machine.
pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let (upstreams, gateway) = (&config.upstreams, &config.gateway);
    let has_proof = config.transport == Transport::Stdio || config.identity.is_configured();
    let takes_tokens = config.transport == Transport::Http && config.identity.takes_tokens();
    let mut error = |key: String, message: String, hint: Option<&str>| {
        let is_known =
            |problem: &Problem| problem.key.as_ref().is_some_and(|it| it.starts_with(&key));
        if problems.iter().any(is_known) {
            return;
        }
        let origin = origin_near(origins, &key);
        let problem = Problem::error(origin, message).key(key).without_line();
        problems.push(problem.hint_if(hint.map(str::to_owned)));
    };
    if let Err(why) = NameTemplate::parse(&gateway.names) {
        let key = "gateway.names";
        error(
            key.to_owned(),
            format!("`{key}`: {why}"),
            Some("write `mcp_{server}_{tool}`"),
        );
    }
    if let Some(url) = &gateway.public_url {
        let key = "gateway.public_url";
        let fault = match url_fault(url, &["http", "https"]) {
            Some(BadUrl::Scheme) => Some("must begin with https".to_owned()),
            Some(why) => Some(format!("cannot be used: {why}")),
            None if origin_of(url).is_none() => Some(
                "is no origin that browsers may be sent to: https, or http on this machine, with a host and nothing \
                 behind it"
                    .to_owned(),
            ),
            None => None,
        };
        if let Some(fault) = fault {
            let hint = "write one such as `https://tools.example.com`";
            error(key.to_owned(), format!("`{key}` {fault}"), Some(hint));
        }
    }
    let is_as_is = |it: &Upstream| it.enabled && it.uris == Uris::AsIs;
    let first_as_is = upstreams.iter().find(|(_, it)| is_as_is(it));
    for (name, upstream) in upstreams {
        if let Some((first, _)) = first_as_is
            && first != name
            && is_as_is(upstream)
        {
            let key = child(&child("upstreams", name), "uris");
            let message =
                format!("`{key}` cannot be `as-is`: `upstreams.{first}` has that already");
            let hint = "keep it at one of them, so that each URI leads to one server";
            error(key, message, Some(hint));
        }
        let path = child("upstreams", name);
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || MAX_NAME < name.len() || !name.bytes().all(legal) {
            let message = format!("`{path}` is no name for an upstream");
            let hint = "a name is 1 to 40 of the characters A-Z a-z 0-9 _ . -";
            error(path.clone(), message, Some(hint));
        }
        match (&upstream.command, &upstream.url) {
            // It says what is wrong with it, and is held.
            (None, None) if upstream.unresolved.is_some() => {}
            (None, None) => error(
                child(&path, "command"),
                format!("`{path}` has neither `command` nor `url`"),
                Some("write `command: PROGRAM`, or `url: https://...`"),
            ),
            (Some(_), Some(_)) => error(
                child(&path, "url"),
                format!("`{path}` has both `command` and `url`"),
                Some("keep one of the two"),
            ),
            (Some(_), None) => {
                for (key, is_set) in [
                    ("auth", upstream.auth.is_some()),
                    ("headers", !upstream.headers.is_empty()),
                    ("transport", upstream.transport != UpstreamTransport::Auto),
                ] {
                    if is_set {
                        let message = format!("`{path}.{key}` is of no use with `command`");
                        error(child(&path, key), message, None);
                    }
                }
            }
            (None, Some(url)) => {
                for (key, is_set) in [
                    ("args", !upstream.args.is_empty()),
                    ("env", !upstream.env.is_empty()),
                ] {
                    if is_set {
                        let message = format!("`{path}.{key}` is of no use with `url`");
                        error(child(&path, key), message, None);
                    }
                }
                if let Some(why) = url_fault(url, &["http", "https", "ws", "wss"]) {
                    let why = match why {
                        BadUrl::Scheme => "must begin with http, https, ws or wss".to_owned(),
                        why => format!("cannot be used: {why}"),
                    };
                    let hint = "write one such as `https://tools.example.com/mcp`";
                    error(
                        child(&path, "url"),
                        format!("`{path}.url` {why}"),
                        Some(hint),
                    );
                }
            }
        }
        for (key, message, hint) in credential_faults(upstream, has_proof, takes_tokens) {
            let key = format!("{path}.{key}");
            error(key.clone(), format!("`{key}` {message}"), Some(hint));
        }
        for (header, value) in &upstream.headers {
            // Whether the variables are set was looked at where they are read.
            let set = |_: &str| Some("x".to_owned());
            let value = with_plain_references(value);
            let pair = [(header.as_str(), value.as_str())];
            let key = child(&child(&path, "headers"), header);
            if let Err(why) = FixedHeaders::resolve(pair, &set) {
                error(key.clone(), format!("`{key}`: {why}"), None);
            } else if header.trim().parse().is_ok_and(|it| is_of_transport(&it)) {
                let message = format!("`{key}` is set by the transport and cannot be configured");
                error(key, message, Some("take it out"));
            }
        }
        for variable in upstream.env.keys() {
            if variable.is_empty() || variable.contains(['=', '\0']) {
                let key = child(&child(&path, "env"), variable);
                error(
                    key.clone(),
                    format!("`{key}` is no name for a variable"),
                    None,
                );
            }
        }
    }
}
