//! Requests to a server or about its records: plain data, which the program's command line is made
//! of too.

mod call;
mod client;
mod client_config;
mod desk;
mod doctor;
mod inspect;
mod keys;
mod prompts;
mod registry;
mod sessions;
mod upstream;
mod vault;
pub(crate) mod when;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use config::{Overrides, Transport};

pub use call::ToolCall;
pub use client::{AnyServer, CLIENT_CODES, ClientCommand, Identity, Place, Severity, UrlTransport};
pub use client_config::{ClientConfig, ClientName};
pub use desk::DeskCommand;
pub use doctor::{CODES as DOCTOR_CODES, Doctor};
pub use inspect::{
    ApprovalsCommand, CallFilter, Deciding, ExportFormat, GovernanceCommand, LedgerCommand,
    LinesFormat, Looking, OUTCOMES, Page, RowsFormat, StateName, Stretch, What, Whose,
};
pub use keys::{KeyPlace, KeysCommand};
pub use prompts::PromptsCommand;
pub use registry::{Export, Published, RegistryCommand};
pub use sessions::{RunningServer, SessionsCommand, Which};
pub use upstream::{
    Add, Approve, CredentialCommand, Hold, Manner, One, OwnCredential, SignIn, UpstreamCommand,
};
pub use vault::VaultCommand;
pub use when::{Lifetime, When};

/// The exit codes of most commands, for their help.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";

/// Settings on the command line that change the configuration.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// The configuration file [default: mcp-server.yaml, if it exists]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
    /// Transport [default: stdio]
    #[arg(long, value_enum)]
    transport: Option<TransportName>,
    /// The address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "HOST")]
    host: Option<String>,
    /// The port to listen on [default: 8080]
    #[arg(long, value_name = "N")]
    port: Option<u16>,
    /// The directory with the skills [default: that of the application, or ./capabilities]
    #[arg(long, value_name = "PATH")]
    skills_dir: Option<String>,
    /// The Python application: module[:attribute] or path.py[:attribute]
    #[arg(long, value_name = "SPEC")]
    app: Option<String>,
}

/// For whom and how to list.
#[derive(Debug, Args)]
pub struct View {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: ListFormat,
    /// Only what this client may see [default: everything]
    #[arg(long = "as", value_name = "CLIENT")]
    pub client: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum ReportFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum ListFormat {
    /// For people
    #[default]
    Table,
    /// For programs
    Json,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum TransportName {
    /// One client, over standard input and output
    Stdio,
    /// Many clients, over HTTP
    Http,
}

impl Settings {
    /// Settings that name a configuration file and nothing else.
    pub(crate) fn of_file(config: Option<PathBuf>) -> Self {
        Self {
            config,
            transport: None,
            host: None,
            port: None,
            skills_dir: None,
            app: None,
        }
    }

    pub fn into_overrides(self) -> Overrides {
        Overrides {
            config: self.config,
            transport: self.transport.map(|name| match name {
                TransportName::Stdio => Transport::Stdio,
                TransportName::Http => Transport::Http,
            }),
            host: self.host,
            port: self.port,
            skills_dir: self.skills_dir,
            app: self.app,
        }
    }
}
