//! `client …`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{ListFormat, ReportFormat};

/// The exit codes of `client …`, for its help.
pub const CLIENT_CODES: &str = "\
Exit codes:
  0    success
  1    the server cannot be reached, or answered with an error, or its tool failed
  2    wrong usage
  130  SIGINT ended it; what was under way is cancelled on the server";

#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Connects, and says which server answers, which revision it speaks and what it offers
    #[command(after_help = CLIENT_CODES)]
    Ping {
        #[command(flatten)]
        server: AnyServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Lists the tools
    #[command(after_help = CLIENT_CODES)]
    Tools {
        #[command(flatten)]
        server: AnyServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Calls a tool; progress and log messages go to standard error
    #[command(after_help = CLIENT_CODES)]
    Call {
        /// The tool
        #[arg(value_name = "NAME")]
        tool: String,
        /// The arguments: a JSON object, @FILE with one, or - for standard input [default: {}]
        #[arg(long, value_name = "JSON|@FILE|-")]
        args: Option<String>,
        #[command(flatten)]
        server: AnyServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Lists the resources and the templates of resources
    #[command(after_help = CLIENT_CODES)]
    Resources {
        #[command(flatten)]
        server: AnyServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Reads a resource; output that is not a terminal gets its exact bytes
    #[command(after_help = CLIENT_CODES)]
    Read {
        /// The resource
        #[arg(value_name = "URI")]
        uri: String,
        #[command(flatten)]
        server: AnyServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Lists the prompts, or gets the named one
    #[command(after_help = CLIENT_CODES)]
    Prompts {
        /// The prompt to get [default: none, all are listed]
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Arguments of the prompt: a JSON object of texts, @FILE with one, or - for standard input
        #[arg(long, value_name = "JSON|@FILE|-", requires = "name")]
        args: Option<String>,
        #[command(flatten)]
        server: AnyServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Prints the changes that the server announces, a line each, until interrupted
    #[command(after_help = CLIENT_CODES)]
    Listen {
        /// Changes of this resource too; may be repeated
        #[arg(long = "resource", value_name = "URI")]
        resources: Vec<String>,
        /// End after so many changes [default: never]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        count: Option<u64>,
        #[command(flatten)]
        server: AnyServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Signs in at a server in a browser, and stores the tokens for the other commands
    #[command(after_help = CLIENT_CODES)]
    Login {
        /// The server, such as `https://mcp.example/mcp`
        #[arg(long, value_name = "URL")]
        url: String,
        /// Ask for this scope too; may be repeated
        #[arg(long = "scope", value_name = "SCOPE")]
        scopes: Vec<String>,
        /// Port of 127.0.0.1 that the browser comes back to [default: any]
        #[arg(long, value_name = "N")]
        port: Option<u16>,
        /// Only print the address to sign in at
        #[arg(long)]
        no_browser: bool,
        /// Seconds to sign in
        #[arg(long, value_name = "SECONDS", default_value_t = 300,
              value_parser = clap::value_parser!(u64).range(1..=86_400))]
        timeout: u64,
        /// Certificate authorities (PEM) to trust besides the system's
        #[arg(long, value_name = "PATH")]
        ca: Option<PathBuf>,
        #[command(flatten)]
        identity: Identity,
    },
    /// Deletes the stored tokens of a server; does not revoke them there
    #[command(after_help = CLIENT_CODES)]
    Logout {
        /// The server
        #[arg(long, value_name = "URL")]
        url: String,
        #[command(flatten)]
        identity: Identity,
    },
}

/// Address of a server, and the way to connect to it.
#[derive(Debug, Args)]
pub struct AnyServer {
    #[command(flatten)]
    pub place: Place,
    /// Transport behind an address of http or https
    #[arg(long, value_enum, default_value_t, conflicts_with = "command")]
    pub transport: UrlTransport,
    /// Header of each request, or @FILE with one on each line; may be repeated
    ///
    /// Other users of the machine see what stands on a command line: put secrets into a file.
    #[arg(
        long = "header",
        value_name = "NAME: VALUE|@FILE",
        conflicts_with = "command"
    )]
    pub headers: Vec<String>,
    /// Environment variable with a key or token, to send as a bearer token
    #[arg(long, value_name = "VARIABLE", conflicts_with = "command")]
    pub token_env: Option<String>,
    /// File with a key or token, to send as a bearer token
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["command", "token_env"]
    )]
    pub token_file: Option<PathBuf>,
    /// Certificate authorities (PEM) to trust besides the system's
    #[arg(long, value_name = "PATH", conflicts_with = "command")]
    pub ca: Option<PathBuf>,
    /// Environment variable for the program, with the value it has here unless there is another; may be
    /// repeated
    #[arg(long = "env", value_name = "VARIABLE[=VALUE]", conflicts_with = "url")]
    pub variables: Vec<String>,
    /// Directory to name when the server asks for roots; may be repeated
    #[arg(long = "root", value_name = "DIRECTORY")]
    pub roots: Vec<PathBuf>,
    /// Fields for forms of the server: a JSON object, or @FILE with one; forms are asked on the terminal
    /// without it, and not at all where there is none
    #[arg(long, value_name = "JSON|@FILE")]
    pub answers: Option<String>,
    /// Log messages of the server from this severity on, to standard error [default: none]
    #[arg(long, value_name = "LEVEL", value_enum)]
    pub log: Option<Severity>,
    /// Text, or @FILE with one, that answers the server's requests for a model's text (sampling); they are refused
    /// without it
    #[arg(long, value_name = "TEXT|@FILE")]
    pub sampled: Option<String>,
    /// Revision to speak, such as 2025-06-18 [default: the newest that the server speaks]
    #[arg(long, value_name = "DATE")]
    pub revision: Option<String>,
    /// Seconds for each request, with the time for its questions
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout: u64,
    /// Get a token for the client itself by its secret or key; no person signs in, and no token is kept
    #[arg(
        long,
        requires = "client_id",
        conflicts_with_all = ["command", "token_env", "token_file"],
        help_heading = "Authorization"
    )]
    pub client_credentials: bool,
    /// Ask for this scope too; may be repeated
    #[arg(
        long = "scope",
        value_name = "SCOPE",
        requires = "client_credentials",
        help_heading = "Authorization"
    )]
    pub scopes: Vec<String>,
    #[command(flatten)]
    pub identity: Identity,
}

/// Address or program of the server.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Place {
    /// The server's address: http, https, ws or wss
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Program of the server with its arguments; the connection uses its standard streams
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// Client as authorization servers know it, and the place of its tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Authorization")]
pub struct Identity {
    /// Identifier of a client that is registered in advance [default: register one on demand]
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// Environment variable with the secret of that client
    #[arg(long, value_name = "VARIABLE", requires = "client_id")]
    pub client_secret_env: Option<String>,
    /// File with the secret of that client
    #[arg(
        long,
        value_name = "PATH",
        requires = "client_id",
        conflicts_with = "client_secret_env"
    )]
    pub client_secret_file: Option<PathBuf>,
    /// File with the private key of that client, PEM in PKCS #8: P-256, P-384, Ed25519 or RSA (private_key_jwt)
    #[arg(
        long,
        value_name = "PATH",
        requires = "client_id",
        conflicts_with_all = ["client_secret_env", "client_secret_file"]
    )]
    pub client_key: Option<PathBuf>,
    /// Identifier of that key at the authorization server (kid)
    #[arg(long, value_name = "KID", requires = "client_key")]
    pub client_key_id: Option<String>,
    /// Authorization server where that client is registered, which may be on a private network; its secret goes
    /// to no other [default: the one that the server names]
    #[arg(long, value_name = "URL", requires = "client_id")]
    pub issuer: Option<String>,
    /// Address of a client ID metadata document, where the authorization server takes those
    #[arg(long, value_name = "URL", conflicts_with = "client_id")]
    pub client_metadata: Option<String>,
    /// Directory with the tokens of all servers [default: owlclaw-mcp/tokens in XDG_STATE_HOME, or in
    /// ~/.local/state]
    #[arg(long, value_name = "DIRECTORY")]
    pub tokens: Option<PathBuf>,
}

/// Transport behind an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum UrlTransport {
    /// Streamable HTTP, or HTTP+SSE if the server refuses that
    #[default]
    Detect,
    /// Streamable HTTP
    Http,
    /// HTTP+SSE of 2024-11-05
    Sse,
}

/// Severity of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Severity {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}
