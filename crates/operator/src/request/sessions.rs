//! `sessions …`.

use clap::{Args, Subcommand};

use super::{EXIT_CODES, ListFormat, Settings};

#[derive(Debug, Subcommand)]
pub enum SessionsCommand {
    /// Lists the sessions of a running server, the longest idle first
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        server: RunningServer,
        /// Only those of this client
        #[arg(long, value_name = "CLIENT")]
        client: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Ends a session of a running server, or all sessions of a client, and cancels their calls
    #[command(after_help = EXIT_CODES)]
    End {
        #[command(flatten)]
        server: RunningServer,
        #[command(flatten)]
        which: Which,
    },
}

/// A server that runs, and is asked over HTTP: with `governance.approvals.http_token`, or else with the
/// API key of an operator in OWLCLAW_API_KEY.
#[derive(Debug, Args)]
pub struct RunningServer {
    #[command(flatten)]
    pub settings: Settings,
    /// Address of the server [default: http.host and http.port of the configuration]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// Certificate authorities (PEM) to trust besides the system's
    #[arg(long, value_name = "PATH")]
    pub ca: Option<std::path::PathBuf>,
}

/// One session or several.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Which {
    /// The session, as `sessions list` and the ledger name it
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    /// All of this client
    #[arg(long, value_name = "CLIENT")]
    pub client: Option<String>,
}
