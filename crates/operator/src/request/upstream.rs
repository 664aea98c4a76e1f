//! `upstream …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::registry::Published;
use super::{EXIT_CODES, ListFormat, ReportFormat, RunningServer, Settings};

#[derive(Debug, Subcommand)]
pub enum UpstreamCommand {
    /// Lists the other servers behind this gateway, with their states
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        server: RunningServer,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Shows figures of all upstreams, or of one: connections, calls, age of the lists
    #[command(after_help = EXIT_CODES)]
    Status {
        #[command(flatten)]
        server: RunningServer,
        /// Only this one
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Explains the state of an upstream, where it is configured, and which rules apply to its tools
    #[command(after_help = EXIT_CODES)]
    Why {
        #[command(flatten)]
        one: One,
    },
    /// Reconnects an upstream at once, and reads its lists
    #[command(after_help = EXIT_CODES)]
    Recheck {
        #[command(flatten)]
        one: One,
    },
    /// Lists the pinned definitions of tools, prompts and templates, and which of them are held
    #[command(after_help = EXIT_CODES)]
    Pins {
        #[command(flatten)]
        settings: Settings,
        /// Only those of this upstream
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Only held definitions
        #[arg(long)]
        held: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Shows how held definitions differ from the pinned ones
    #[command(after_help = EXIT_CODES)]
    Diff {
        #[command(flatten)]
        settings: Settings,
        /// Name of the upstream
        #[arg(value_name = "NAME")]
        name: String,
        /// Only this tool, prompt or template: its own name, or kind and name (tool/echo)
        #[arg(value_name = "ITEM")]
        item: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Approves a held definition, which becomes the pinned one; a running server applies it
    #[command(after_help = APPROVE_HELP)]
    Approve(Approve),
    /// Holds a tool, prompt, template or page until it is approved; a running server applies it
    #[command(after_help = HOLD_HELP)]
    Hold(Hold),
    /// Sets, lists and removes credentials of single clients, for upstreams with `credentials: per-client`
    #[command(subcommand, after_help = EXIT_CODES)]
    Credential(CredentialCommand),
    /// Signs in at an upstream in a browser, for all clients or for one, and stores the tokens encrypted beside the vault
    #[command(after_help = LOGIN_HELP)]
    Login(SignIn),
    /// Deletes the stored tokens of a sign-in
    #[command(after_help = EXIT_CODES)]
    Logout {
        #[command(flatten)]
        settings: Settings,
        /// Name of the upstream
        #[arg(value_name = "NAME")]
        name: String,
        /// Only those of this client
        #[arg(long, value_name = "CLIENT")]
        client: Option<String>,
    },
    /// Shows the last lines that the program of an upstream has written to standard error
    #[command(after_help = EXIT_CODES)]
    Logs {
        #[command(flatten)]
        one: One,
    },
    /// Adds an upstream to the configuration file; a running server applies it
    #[command(after_help = ADD_HELP)]
    Add(Add),
    /// Removes an upstream from the configuration file; a running server closes it
    #[command(after_help = EXIT_CODES)]
    Remove {
        #[command(flatten)]
        settings: Settings,
        /// Name of the upstream
        #[arg(value_name = "NAME")]
        name: String,
        #[command(flatten)]
        manner: Manner,
    },
    /// Adds the servers of a host's file (Claude Desktop, VS Code, Cursor, Kiro and others), or that of a bundle (.mcpb)
    #[command(after_help = IMPORT_HELP)]
    Import {
        #[command(flatten)]
        settings: Settings,
        /// The file, such as ~/.cursor/mcp.json, .vscode/mcp.json or weather.mcpb
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Only these
        #[arg(long, value_name = "NAME")]
        only: Vec<String>,
        /// Put the secrets of the file into the vault, and references to them into the configuration
        #[arg(long)]
        vault: bool,
        #[command(flatten)]
        published: Published,
        #[command(flatten)]
        manner: Manner,
    },
}

const ADD_HELP: &str = "\
Values of --env and --header that look like secrets are not written to the file: it gets ${NAME}, and the
server is to have the variable NAME. Comments and everything else in the file stay as they are.

Examples:
  owlclaw-mcp upstream add time -- uvx mcp-server-time
  owlclaw-mcp upstream add github --url https://api.githubcopilot.com/mcp/ \\
    --header 'Authorization: Bearer ${GITHUB_TOKEN}' --deny 'delete_*'

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";

const HOLD_HELP: &str = "\
Calls of it are refused until `upstream approve NAME ITEM --digest DIGITS`, with the digest that `upstream pins` shows.
The server records it in its ledger when it takes it up, at once or at its next start.

Examples:
  owlclaw-mcp upstream hold github delete_repo --by ana --reason 'under review'

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";

const APPROVE_HELP: &str = "\
`upstream diff` shows what is held, and its digest: what was changed again since then is not approved. What an operator
holds stays held when its changed definition is approved; the digest of its pin frees it. The server
records the approval in its ledger when it takes it up, at once or at its next start.

Examples:
  owlclaw-mcp upstream diff github
  owlclaw-mcp upstream approve github search_issues --digest 1f3a5c7e --by ana --reason 'release 2.1'

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";

const IMPORT_HELP: &str = "\
Secrets that stand in the host's file are not copied: the configuration gets ${NAME} in their place, and
the names are listed. Entries that cannot be used, and names that are taken, are told and left out.
What a bundle would run is shown first; it is unpacked and written once that is confirmed (--yes).

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";

#[derive(Debug, Subcommand)]
pub enum CredentialCommand {
    /// Sets a credential of a client, read from the terminal, or else from standard input without its last
    /// line end; a running server uses it for the next call
    #[command(after_help = CREDENTIAL_HELP)]
    Set {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        whose: OwnCredential,
        /// Take the content of this file, without its last line end
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// Lists the clients' credentials, and when each was set; never a value
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        settings: Settings,
        /// Only those for this upstream
        #[arg(value_name = "NAME")]
        upstream: Option<String>,
        /// Only those of this client
        #[arg(long, value_name = "CLIENT")]
        client: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Removes a credential of a client; a running server closes the connections that were opened with it
    #[command(after_help = EXIT_CODES)]
    Remove {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        whose: OwnCredential,
    },
}

/// A credential of a client for an upstream.
#[derive(Debug, Args)]
pub struct OwnCredential {
    /// Name of the upstream
    #[arg(value_name = "NAME")]
    pub upstream: String,
    /// Name of the client, as rules and the ledger know it
    #[arg(long, value_name = "CLIENT")]
    pub client: String,
    /// Name in `${credential:NAME}`; needed if the upstream has several
    #[arg(long, value_name = "CREDENTIAL")]
    pub name: Option<String>,
}

/// A sign-in at an upstream.
#[derive(Debug, Args)]
pub struct SignIn {
    #[command(flatten)]
    pub settings: Settings,
    /// Name of the upstream
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Name of the client whose account it is, for an upstream with `credentials: per-client`
    #[arg(long, value_name = "CLIENT")]
    pub client: Option<String>,
    /// Port of 127.0.0.1 that the browser comes back to [default: a free one]
    #[arg(long, value_name = "N")]
    pub redirect_port: Option<u16>,
    /// Print the address, and start no browser
    #[arg(long)]
    pub no_browser: bool,
    /// Seconds for signing in
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout: u64,
    /// Certificate authorities (PEM) to trust besides the system's
    #[arg(long, value_name = "PATH")]
    pub ca: Option<PathBuf>,
}

const LOGIN_HELP: &str = "\
A running server uses the tokens for the next call, and renews them. Whoever signs in is whose account the client uses:
sign in as that client's own person.

Examples:
  owlclaw-mcp upstream login linear
  owlclaw-mcp upstream login linear --client ana --no-browser

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";

const CREDENTIAL_HELP: &str = "\
The value goes into a file of the client's own beside the vault, encrypted; `vault init` comes first. Nobody else's calls
use it.

Examples:
  owlclaw-mcp upstream credential set github --client ana
  owlclaw-mcp upstream credential set github --client 'https://id.example.com|7f3a' --file /run/secrets/ana

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";

/// One upstream.
#[derive(Debug, Args)]
pub struct One {
    #[command(flatten)]
    pub server: RunningServer,
    /// Name of the upstream
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct Approve {
    #[command(flatten)]
    pub settings: Settings,
    /// Name of the upstream
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The tool, prompt or template: its own name, or kind and name (tool/echo)
    #[arg(
        value_name = "ITEM",
        requires = "digest",
        required_unless_present = "all"
    )]
    pub item: Option<String>,
    /// Beginning of the digest that `upstream diff` shows, of the definition that is held, or of the pin that an operator
    /// holds; at least 8 digits
    #[arg(long, value_name = "DIGITS", requires = "item")]
    pub digest: Option<String>,
    /// All that is held of the upstream, whatever it is now; not what an operator holds
    #[arg(long, conflicts_with_all = ["item", "digest"])]
    pub all: bool,
    /// Name of the operator who approves, for the ledger
    #[arg(long, value_name = "NAME")]
    pub by: String,
    /// Reason, for the ledger
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

/// An item of an upstream to hold.
#[derive(Debug, Args)]
pub struct Hold {
    #[command(flatten)]
    pub settings: Settings,
    /// Name of the upstream
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The tool, prompt, template or page: its own name, or kind and name (tool/echo)
    #[arg(value_name = "ITEM")]
    pub item: String,
    /// Name of the operator who holds it, for the ledger
    #[arg(long, value_name = "NAME")]
    pub by: String,
    /// Reason, for the ledger
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

/// Handling of a change of the configuration file.
#[derive(Debug, Clone, Copy, Args)]
pub struct Manner {
    /// Show what would be written, and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

#[derive(Debug, Args)]
pub struct Add {
    /// The configuration file [default: mcp-server.yaml]
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// Name of the upstream, which is part of the names of its tools
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Address of the server: http, https, ws or wss
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub url: Option<String>,
    /// A header of each request, as `Name: value`
    #[arg(long = "header", value_name = "HEADER", conflicts_with = "command")]
    pub headers: Vec<String>,
    /// A variable of the program's environment, as NAME=value
    #[arg(long, value_name = "VARIABLE", conflicts_with = "url")]
    pub env: Vec<String>,
    /// The directory the program runs in
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    pub cwd: Option<String>,
    /// Offer these of its tools alone; `*` stands for any text
    #[arg(long, value_name = "TOOL")]
    pub allow: Vec<String>,
    /// Do not offer these of its tools
    #[arg(long, value_name = "TOOL")]
    pub deny: Vec<String>,
    #[command(flatten)]
    pub manner: Manner,
    /// The program that is the server, and its arguments
    #[arg(last = true, value_name = "COMMAND", required_unless_present = "url")]
    pub command: Vec<String>,
}

impl Add {
    /// The settings that say which file it is.
    pub(crate) fn settings(&self) -> Settings {
        Settings::of_file(self.config.clone())
    }
}
