//! The configuration as the rest of the program sees it: plain, complete, checked.
//!
//! These types are also the one description of what the file may hold: the keys, ranges and
//! choices that [`crate::reading::shape`] checks, and the JSON Schema that `config schema` prints, are
//! derived from them.

pub(crate) mod alerts;
pub(crate) mod application;
pub(crate) mod commands;
pub(crate) mod costs;
pub(crate) mod databases;
pub(crate) mod desk;
pub(crate) mod files;
pub(crate) mod filters;
pub(crate) mod governance;
pub(crate) mod host_dialect;
pub(crate) mod identity;
pub(crate) mod limits;
pub(crate) mod permission_records;
pub(crate) mod record;
pub(crate) mod registry;
pub(crate) mod results;
pub(crate) mod secret;
pub(crate) mod service_resources;
pub(crate) mod services;
pub(crate) mod shutdown;
pub(crate) mod telemetry;
pub(crate) mod temporal;
pub(crate) mod tls;
pub(crate) mod upstreams;
pub(crate) mod vault;
pub(crate) mod websocket;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::Environment;

use self::alerts::Alerts;
use self::application::{States, Switches, Workers};
use self::commands::Command;
use self::costs::Costs;
use self::databases::Database;
use self::desk::Desk;
use self::files::{FileRoot, ResourceSearch};
use self::filters::FilterSetting;
use self::governance::Governance;
use self::host_dialect::HostDialect;
use self::identity::Identity;
use self::limits::Limits;
use self::record::{Ledger, Redaction};
use self::registry::Registry;
use self::results::Results;
use self::service_resources::ServiceResources;
use self::services::Services;
use self::shutdown::Shutdown;
use self::telemetry::Telemetry;
use self::temporal::Temporal;
use self::tls::{ForwardedHeader, Tls};
use self::upstreams::{Gateway, Upstream};
use self::vault::Vault;
use self::websocket::WebSocket;

/// Complete configuration of a server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Transport by which clients reach the server.
    pub transport: Transport,
    /// The Python application that provides the handlers: `module[:attribute]` or
    /// `path.py[:attribute]`. Without one, there are no handlers.
    #[schemars(extend("format" = "application"))]
    pub app: Option<String>,
    /// The Python interpreter: a path, or a name that is looked up in `PATH`. Without one, that of
    /// the active virtual environment, else `python3`.
    #[schemars(extend("format" = "program"))]
    pub python: Option<String>,
    /// The processes that run the application's handlers.
    pub workers: Workers,
    /// The application's states, offered if asked for.
    pub states: States,
    /// The HTTP transport. Without effect under `transport: stdio`.
    pub http: Http,
    /// Authentication of clients.
    pub identity: Identity,
    /// Listing and calling tools.
    pub tools: Tools,
    /// Limits of what clients are shown of results.
    pub results: Results,
    /// Programs as tools, by the name of the tool.
    pub commands: BTreeMap<String, Command>,
    /// HTTP services as tools.
    pub services: Services,
    /// Other MCP servers whose tools, resources and prompts are offered, by a name of the operator's choice.
    pub upstreams: BTreeMap<String, Upstream>,
    /// Files in which hosts keep their MCP servers (`mcp.json` of Claude Desktop, VS Code, Cursor and others),
    /// which are upstreams too. Entries that cannot be used are warned of and left out.
    #[schemars(extend("x-items" = "path"))]
    pub upstreams_files: Vec<PathBuf>,
    /// The form in which upstreams are offered.
    pub gateway: Gateway,
    /// The catalogue of published servers that operators have taken in.
    pub registry: Registry,
    /// Calls that go on after they were answered.
    pub tasks: Tasks,
    /// Listing and reading of skills, files, databases and services.
    pub resources: Resources,
    /// Prompts from files.
    pub prompts: Prompts,
    /// Permissions, limits and budgets of clients.
    pub governance: Governance,
    /// Costs that are known only after their calls.
    pub costs: Costs,
    /// Filters of the arguments and results of calls, by names of your choice.
    pub filters: BTreeMap<String, FilterSetting>,
    /// The record of every call.
    pub ledger: Ledger,
    /// Values that are replaced before anything is recorded or logged.
    pub redaction: Redaction,
    /// The encrypted file with the secrets that `${vault:NAME}` refers to.
    pub vault: Vault,
    /// The server's own log.
    pub logging: Logging,
    /// Traces of requests and calls. Without a collector there are none.
    pub telemetry: Telemetry,
    /// Shutdown of the server.
    pub shutdown: Shutdown,
    /// Webhooks that receive alerts of failures.
    pub alerts: Alerts,
    /// The page and the API on which operators decide and look. Off unless it is asked for.
    pub desk: Desk,
    /// Stack traces in error answers. Never where clients are strangers.
    pub development: bool,
    /// Settings for single tools in the application's own `owlclaw.yaml`.
    #[serde(skip)]
    pub switches: Switches,
    /// Sources of the values that references stand for.
    #[serde(skip)]
    pub environment: Environment,
}

/// Transport by which clients reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// One client, over standard input and output.
    #[default]
    Stdio,
    /// Many clients, over HTTP.
    Http,
}

/// The HTTP transport.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// The address to listen on: an IP address, or `localhost` for 127.0.0.1.
    #[serde(deserialize_with = "crate::host::deserialize")]
    #[schemars(with = "String", extend("format" = "host"))]
    pub host: IpAddr,
    /// The port to listen on; 0 lets the system choose a free one.
    pub port: u16,
    /// Serve clients without authentication on an address that other machines can reach.
    pub allow_anonymous: bool,
    /// Web origins, such as `https://app.example.com`, whose pages may call the server. Loopback
    /// origins always may.
    #[schemars(extend("x-items" = "origin"))]
    pub allowed_origins: Vec<String>,
    /// Names, with or without a port, under which the server may be addressed. Empty: the address
    /// it listens on and the loopback names.
    #[schemars(extend("x-items" = "authority"))]
    pub allowed_hosts: Vec<String>,
    /// Answers to browsers about cross-origin calls.
    pub cors: Cors,
    /// Transport encryption.
    pub tls: Tls,
    /// Listen on `host` and `port`. `false` is for a server that has a Unix socket alone.
    pub tcp: bool,
    /// A Unix socket to listen on, besides or instead.
    #[schemars(extend("format" = "path"))]
    pub unix_socket: Option<PathBuf>,
    /// Permissions of the Unix socket in octal digits: the users that may connect to it.
    pub unix_socket_mode: String,
    /// Reverse proxies that are trusted to say where a request comes from: addresses, networks such
    /// as `10.0.0.0/8`, or `unix` for any peer on the Unix socket.
    #[schemars(extend("x-items" = "word"))]
    pub trusted_proxies: Vec<String>,
    /// The header in which they say it. They must write it themselves.
    pub forwarded_header: ForwardedHeader,
    /// Headers of requests that handlers are told, such as `x-tenant`. They are what the client, or
    /// a proxy, has written, and prove nothing. None that identifies a caller can be named.
    #[schemars(extend("x-items" = "token"))]
    pub pass_headers: Vec<String>,
    /// Limits of what clients can take of the server.
    pub limits: Limits,
    /// The longest request body, in bytes.
    #[schemars(range(min = 1024, max = 1_073_741_824))]
    pub max_body_bytes: usize,
    /// Handshake sessions that may exist at once.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_sessions: usize,
    /// A session unused for this many seconds is forgotten.
    #[schemars(range(min = 1, max = 604_800))]
    pub session_idle_seconds: u64,
    /// Keep sessions when the server stops, so that its clients continue when it is started again.
    pub keep_sessions: bool,
    /// The file they are kept in; it and its directory are made if they are missing. Without one, a
    /// file beside the ledger, or, with `ledger.url`, tables in that database, which all servers share.
    #[schemars(extend("format" = "path"))]
    pub sessions_path: Option<PathBuf>,
    /// Events that a session keeps for a client that lost a stream; 0: none, and no stream can be
    /// resumed.
    #[schemars(range(max = 1_000_000))]
    pub max_session_replay_events: usize,
    /// Bytes that the events of a session may have; 0: none, as above.
    #[schemars(range(max = 1_073_741_824))]
    pub max_session_replay_bytes: usize,
    /// Bytes that the events of all sessions may have together; 0: none, as above.
    #[schemars(range(max = 1_099_511_627_776_u64))]
    pub max_replay_bytes: usize,
    /// Milliseconds after which a client that lost a stream is to return for the rest.
    #[schemars(range(min = 1, max = 600_000))]
    pub stream_retry_milliseconds: u64,
    /// After how long without an answer the response to a call in a session begins as a stream that
    /// can be resumed; 0: unless it is answered at once.
    #[schemars(range(max = 600_000))]
    pub stream_after_milliseconds: u64,
    /// Serve the transport of 2024-11-05 too, HTTP with SSE, at `/mcp/sse` and `/sse`.
    pub old_sse: bool,
    /// WebSockets.
    pub websocket: WebSocket,
    /// The dialect of founding document 004.
    pub host_dialect: HostDialect,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8080,
            allow_anonymous: false,
            allowed_origins: Vec::new(),
            allowed_hosts: Vec::new(),
            cors: Cors::default(),
            tls: Tls::default(),
            tcp: true,
            unix_socket: None,
            unix_socket_mode: "0600".to_owned(),
            trusted_proxies: Vec::new(),
            forwarded_header: ForwardedHeader::default(),
            pass_headers: Vec::new(),
            limits: Limits::default(),
            max_body_bytes: 4 * 1024 * 1024,
            max_sessions: 10_000,
            session_idle_seconds: 1_800,
            keep_sessions: true,
            sessions_path: None,
            max_session_replay_events: 256,
            max_session_replay_bytes: 1024 * 1024,
            max_replay_bytes: 64 * 1024 * 1024,
            stream_retry_milliseconds: 1_000,
            stream_after_milliseconds: 1_000,
            old_sse: true,
            websocket: WebSocket::default(),
            host_dialect: HostDialect::default(),
        }
    }
}

/// Answers to browsers about cross-origin calls.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cors {
    /// Answer preflight requests and add the headers.
    pub enabled: bool,
    /// Origins that may read answers, or `*`.
    #[schemars(extend("x-items" = "origin-or-any"))]
    pub allowed_origins: Vec<String>,
    /// Methods that may be used.
    #[schemars(extend("x-items" = "token"))]
    pub allowed_methods: Vec<String>,
    /// Request headers that may be sent.
    #[schemars(extend("x-items" = "token"))]
    pub allowed_headers: Vec<String>,
    /// Seconds for which a browser may remember the answer to a preflight request.
    #[schemars(range(max = 86_400))]
    pub max_age: u64,
}

impl Default for Cors {
    fn default() -> Self {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Self {
            enabled: true,
            allowed_origins: Vec::new(),
            // DELETE ends a session; a browser client that may not send it leaves sessions behind.
            allowed_methods: list(&["GET", "POST", "DELETE", "OPTIONS"]),
            allowed_headers: list(&[
                "Content-Type",
                "Authorization",
                "X-MCP-Client-ID",
                "MCP-Protocol-Version",
                "Mcp-Session-Id",
                "Mcp-Method",
                "Mcp-Name",
                "Last-Event-ID",
                "If-None-Match",
            ]),
            max_age: 3_600,
        }
    }
}

/// Listing and calling tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tools {
    /// A call that takes longer is ended, unless the tool says otherwise.
    #[schemars(range(min = 1, max = 86_400))]
    pub default_timeout_seconds: u64,
    /// A call that takes longer sends progress notifications.
    #[schemars(range(min = 1, max = 86_400))]
    pub async_threshold_seconds: u64,
    /// Seconds for which a client may keep the list of tools.
    #[schemars(range(max = 86_400))]
    pub cache_ttl_seconds: u64,
    /// Tools on one page of the list.
    #[schemars(range(min = 1, max = 10_000))]
    pub page_size: usize,
    /// Part of a linked skill that goes into a tool's description.
    pub include_skill: IncludeSkill,
    /// Form of the answers to arguments that do not fit, to refusals and to failures of handlers.
    pub error_style: ErrorStyle,
    /// Add what is left of quotas to results of tools, in `_meta`; headers of HTTP always have it.
    pub quota_meta: bool,
    /// Treatment of calls of a tool whose `SKILL.md` cannot be used.
    pub broken_skill: BrokenSkill,
    /// The search view: its clients are listed a few tools by which they find and call all others.
    pub search_view: SearchView,
}

/// The search view: its clients are listed a few tools by which they find and call all others.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SearchView {
    /// Clients that have it, by name; `*` stands for any text, and alone for all clients.
    #[schemars(extend("x-items" = "pattern"))]
    pub clients: Vec<String>,
    /// Roles whose clients have it.
    #[schemars(extend("x-items" = "word"))]
    pub roles: Vec<String>,
    /// Tools that are listed besides, by name; `*` stands for any text.
    #[schemars(extend("x-items" = "pattern"))]
    pub direct: Vec<String>,
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            default_timeout_seconds: 300,
            async_threshold_seconds: 30,
            cache_ttl_seconds: 300,
            page_size: 100,
            include_skill: IncludeSkill::default(),
            error_style: ErrorStyle::default(),
            quota_meta: true,
            broken_skill: BrokenSkill::default(),
            search_view: SearchView::default(),
        }
    }
}

/// Calls that go on after they were answered: clients that know tasks fetch the results later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tasks {
    /// Offer tasks at all.
    pub enabled: bool,
    /// The database file; it and its directory are made if they are missing. Without one, a file
    /// beside the ledger, or, with `ledger.url`, tables in that database, which all servers share.
    #[schemars(extend("format" = "path"))]
    pub path: Option<PathBuf>,
    /// A call that takes longer becomes a task by itself, if its client knows the Tasks extension.
    #[schemars(range(max = 86_400))]
    pub after_seconds: u64,
    /// Seconds for which the result of a task is kept at least.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub keep_seconds: u64,
    /// The longest that a client of 2025-11-25 can have a task kept.
    #[schemars(range(min = 1, max = 2_592_000))]
    pub max_keep_seconds: u64,
    /// Tasks that run at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_running: usize,
    /// Tasks of one client that run at once.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_running_per_client: usize,
    /// Times that a task is started at most. A task whose tool declares that it is idempotent is
    /// started again if the server stopped while it ran. 1: no task is.
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: u32,
    /// Tasks that are kept, running or not.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_kept: usize,
    /// Tasks of one client that are kept.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub max_kept_per_client: usize,
    /// Temporal as the engine that hands calls of tools to workers (`owlclaw-mcp worker`). Only in programs that were
    /// built with the feature `temporal`.
    pub temporal: Option<Temporal>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            enabled: true,
            path: None,
            after_seconds: 10,
            keep_seconds: 3_600,
            max_keep_seconds: 86_400,
            max_running: 1_000,
            max_running_per_client: 100,
            max_attempts: 3,
            max_kept: 10_000,
            max_kept_per_client: 1_000,
            temporal: None,
        }
    }
}

/// Part of a linked skill that goes into a tool's description.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum IncludeSkill {
    /// All of it, up to 8 KiB.
    #[default]
    Full,
    /// The beginning of the skill.
    Excerpt,
    /// The address of the skill.
    Link,
    /// No part of the skill.
    None,
}

/// Treatment of calls of a tool whose `SKILL.md` cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BrokenSkill {
    /// Calls are refused.
    #[default]
    Refuse,
    /// An operator must confirm each.
    Confirm,
}

/// Form in which a client learns of invalid arguments and of failed handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErrorStyle {
    /// A tool result, which models read; see docs/errors.md for the exceptions.
    #[default]
    Auto,
    /// Always a protocol error.
    Protocol,
    /// Always a tool result that says it is an error.
    Result,
}

/// Listing and reading skills.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Resources {
    /// The directory that is searched for `SKILL.md`. Without one, that which the application mounts;
    /// without an application, `capabilities` beside the configuration file.
    #[schemars(extend("format" = "path"))]
    pub skills_dir: Option<PathBuf>,
    /// The directory of the configuration file.
    #[serde(skip)]
    pub base: PathBuf,
    /// The files that the configuration was read from.
    #[serde(skip)]
    pub read_from: Vec<PathBuf>,
    /// Seconds for which a client may keep the list of resources, unless there are directories of files that change.
    #[schemars(range(max = 86_400))]
    pub cache_ttl_seconds: u64,
    /// Resources on one page of the list.
    #[schemars(range(min = 1, max = 10_000))]
    pub page_size: usize,
    /// The category of skills that stand directly in the directory. Without one, its base name.
    #[schemars(extend("format" = "name"))]
    pub root_category: Option<String>,
    /// Directories whose files are resources, by the name that is part of their addresses: lower-case letters, digits
    /// and hyphens.
    pub files: BTreeMap<String, FileRoot>,
    /// Databases whose tables and queries are resources, by the name that is part of their addresses.
    pub databases: BTreeMap<String, Database>,
    /// HTTP services whose answers are resources, by the name that is part of their addresses.
    pub services: BTreeMap<String, ServiceResources>,
    /// The file with the earlier states of files that were written to. Without one, it is beside the ledger.
    #[schemars(extend("format" = "path"))]
    pub store: Option<PathBuf>,
    /// Search over files, skills and other resources.
    pub search: ResourceSearch,
}

impl Resources {
    /// The spelling in which a pattern of rules can match addresses of what this server has itself: those of files,
    /// databases and services by the names that are configured. `None` where it is so spelt, or is about nothing of that.
    pub(crate) fn right_spelling(&self, pattern: &str) -> Option<String> {
        let (scheme, rest) = pattern.split_once("://")?;
        let name = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_it = |it: &String| ::governance::pattern_matches(name, it);
        let is_own = match scheme {
            "files" => self.files.keys().any(is_it),
            "db" => self.databases.keys().any(is_it),
            "api" => self.services.keys().any(is_it),
            _ => false,
        };
        ::resources::spelling_for_rules(pattern).filter(|_| is_own)
    }
}

/// Prompts from files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Prompts {
    /// The directory with the prompts: `NAME.md`, or `NAME/VERSION.md` where several versions are kept.
    /// Without one, there are none from files.
    #[schemars(extend("format" = "path"))]
    pub dir: Option<PathBuf>,
    /// Follow changes of the directory.
    pub watch: bool,
    /// Treatment of a prompt whose version in force cannot be used.
    pub broken: BrokenPrompt,
}

impl Default for Prompts {
    fn default() -> Self {
        Self {
            dir: None,
            watch: true,
            broken: BrokenPrompt::Refuse,
        }
    }
}

/// Treatment of a prompt whose version in force cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BrokenPrompt {
    /// Every use is refused until its file is mended.
    #[default]
    Refuse,
    /// Keep what was in force when this process could last use the prompt. After a restart every use is
    /// refused.
    LastGood,
}

impl Default for Resources {
    fn default() -> Self {
        Self {
            skills_dir: None,
            base: PathBuf::new(),
            read_from: Vec::new(),
            cache_ttl_seconds: 600,
            page_size: 50,
            root_category: None,
            files: BTreeMap::new(),
            databases: BTreeMap::new(),
            services: BTreeMap::new(),
            store: None,
            search: ResourceSearch::default(),
        }
    }
}

impl Resources {
    /// True if there are directories of files that are followed or written to: lists may be others at any time.
    pub fn has_changing_files(&self) -> bool {
        self.files.values().any(|it| it.watch || it.writable)
    }

    /// The directory of skills if neither the configuration nor an application names one.
    pub fn default_dir(&self) -> PathBuf {
        self.base.join("capabilities")
    }
}

impl Config {
    /// Path of the file in which tasks are kept.
    pub fn tasks_path(&self) -> PathBuf {
        let path = self.tasks.path.clone();
        path.unwrap_or_else(|| self.beside_the_ledger("-tasks.db"))
    }

    /// True if tasks are kept in the ledger's database, where all servers have them.
    pub fn shares_tasks(&self) -> bool {
        self.ledger.url.is_some() && self.tasks.path.is_none()
    }

    /// True if legacy sessions are kept in the ledger's database, where all servers have them.
    pub fn shares_sessions(&self) -> bool {
        self.ledger.url.is_some() && self.http.sessions_path.is_none() && self.http.keep_sessions
    }

    /// Path of the file in which earlier states of files are kept.
    pub fn resources_path(&self) -> PathBuf {
        let path = self.resources.store.clone();
        path.unwrap_or_else(|| self.beside_the_ledger("-resources.db"))
    }

    /// The same for a look at what is on offer: what resources need on disk is in the directory `aside`, and no changes are
    /// followed.
    #[must_use]
    pub fn aside(&self, aside: &std::path::Path) -> Self {
        let mut config = self.clone();
        config.resources.store = Some(aside.join("resources.db"));
        config.resources.search.path = Some(aside.join("search.db"));
        for root in config.resources.files.values_mut() {
            root.watch = false;
        }
        config
    }

    /// Path of the file with the index of searches.
    pub fn search_path(&self) -> PathBuf {
        let path = self.resources.search.path.clone();
        path.unwrap_or_else(|| self.beside_the_ledger("-search.db"))
    }

    /// Path of the file in which legacy sessions are kept.
    pub fn sessions_path(&self) -> PathBuf {
        let path = self.http.sessions_path.clone();
        path.unwrap_or_else(|| self.beside_the_ledger("-sessions.db"))
    }

    /// Path of the file with the tools that have a skill.
    pub fn skills_path(&self) -> PathBuf {
        self.beside_the_ledger("-skills.jsonl")
    }

    /// Next to the ledger, with its name and then `end`.
    fn beside_the_ledger(&self, end: &str) -> PathBuf {
        let mut name = self.ledger.path.file_stem().unwrap_or_default().to_owned();
        name.push(end);
        self.ledger.path.with_file_name(name)
    }
}

/// The server's own log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Logging {
    /// The least important level that is logged.
    pub level: LogLevel,
    /// Requests, and decisions about them, that are logged.
    pub requests: LogRequests,
    /// Format of a line.
    pub format: LogFormat,
    /// Destination of the lines.
    pub output: LogOutput,
}

/// The importance of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum LogLevel {
    /// For developers of the server.
    Debug,
    /// For an operator's day.
    #[default]
    Info,
    /// A fault that the server has dealt with.
    Warning,
    /// A failure.
    Error,
}

/// Requests that are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogRequests {
    /// All of them.
    #[default]
    All,
    /// Requests that were refused or failed.
    Errors,
    /// Only requests that failed by a fault that is not the caller's.
    None,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object.
    #[default]
    Json,
    /// For people.
    Text,
}

/// Destination of log lines. Standard output is not a choice: it belongs to the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum LogOutput {
    /// Standard error.
    #[default]
    Stderr,
}
