//! The command line, as a type.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use operator::request::{
    ApprovalsCommand, CLIENT_CODES, ClientCommand, ClientConfig, DOCTOR_CODES, DeskCommand, Doctor,
    EXIT_CODES, GovernanceCommand, KeysCommand, LedgerCommand, PromptsCommand, RegistryCommand,
    ReportFormat, SessionsCommand, Settings, ToolCall, UpstreamCommand, VaultCommand, View,
};
use operator::terminal::ColorWhen;

mod completions;
#[cfg(test)]
mod documented;

pub(crate) use completions::{ShellName, manual, manuals, script};

/// Under which name the program was installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// `owlclaw-mcp start …`
    OwlclawMcp,
    /// `owlclaw mcp-server start …`
    Owlclaw,
}

/// Parses `arguments`, the program's name first.
pub(crate) fn parse(
    program: Program,
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Command, Manner), clap::Error> {
    Ok(match program {
        Program::OwlclawMcp => {
            let asked = OwlclawMcp::try_parse_from(arguments).map_err(with_tip)?;
            (asked.command, asked.manner)
        }
        Program::Owlclaw => {
            let asked = Owlclaw::try_parse_from(arguments).map_err(with_tip)?;
            let Word::McpServer(server) = asked.word;
            (server.command, asked.manner)
        }
    })
}

/// The same with a tip, if an address stands there by itself that `--url` takes.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let said = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let word = said(ContextKind::InvalidArg);
    let is_address = ["http://", "https://", "ws://", "wss://"]
        .iter()
        .any(|it| word.starts_with(it));
    let takes_url = said(ContextKind::Usage).contains("--url");
    if error.kind() == ErrorKind::UnknownArgument && is_address && takes_url {
        let tip = StyledStr::from("the address of a server is given by `--url URL`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    }
    error
}

/// Returns true if `arguments`, which are wrong, are those of `start` and do not ask for HTTP.
pub(crate) fn is_start_on_stdio(program: Program, arguments: Vec<OsString>) -> bool {
    let asks_for_http = arguments.iter().any(|it| it == "--transport=http")
        || arguments
            .windows(2)
            .any(|pair| pair[0] == "--transport" && pair[1] == "http");
    // As far as they are understood.
    let words = match program {
        Program::OwlclawMcp => OwlclawMcp::command(),
        Program::Owlclaw => Owlclaw::command(),
    };
    let understood = words.ignore_errors(true).try_get_matches_from(arguments);
    let is_start = understood.is_ok_and(|it| match program {
        Program::OwlclawMcp => it.subcommand_name() == Some("start"),
        Program::Owlclaw => it
            .subcommand_matches("mcp-server")
            .is_some_and(|it| it.subcommand_name() == Some("start")),
    });
    is_start && !asks_for_http
}

/// A usage error of `start` with its tips and where to look, on one line.
pub(crate) fn on_one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let said = text
        .lines()
        .take_while(|it| !it.starts_with("Usage:") && !it.starts_with("For more information"));
    let said: Vec<&str> = said.map(str::trim).filter(|it| !it.is_empty()).collect();
    let said = said.join("; ").replace("error: ", "");
    format!(
        "the command line is not valid: {said} (hint: `owlclaw-mcp start --help` lists its options)"
    )
}

const START_HELP: &str = "\
Flags win over environment variables (MCP_SERVER_<SECTION>__<KEY>), and those over the file.

Exit codes:
  0    the client or a signal ended the server
  1    the server could not start, or failed
  2    wrong usage, or a configuration that is not valid
  3    it was told to stop and ran out of time, or could not close the ledger
  130  SIGINT ended it at once: a second signal, or one before it served
  143  SIGTERM did";

/// Serves business functions and skills over the Model Context Protocol, governed and recorded
#[derive(Debug, Parser)]
#[command(name = "owlclaw-mcp", version, propagate_version = true, after_help = EXIT_CODES)]
struct OwlclawMcp {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    manner: Manner,
}

/// The OwlClaw command
#[derive(Debug, Parser)]
#[command(name = "owlclaw", version, propagate_version = true, after_help = EXIT_CODES)]
struct Owlclaw {
    #[command(subcommand)]
    word: Word,
    #[command(flatten)]
    manner: Manner,
}

/// Verbosity and colours of messages to people.
#[derive(Debug, Args)]
pub(crate) struct Manner {
    /// Print only errors to standard error; the server's log has its own level
    #[arg(long, short = 'q', global = true)]
    pub(crate) quiet: bool,
    /// Use of colours; NO_COLOR and CLICOLOR_FORCE apply too
    #[arg(long, value_name = "WHEN", value_enum, default_value_t, global = true)]
    pub(crate) color: ColorWhen,
}

#[derive(Debug, Subcommand)]
enum Word {
    /// Serves business functions and skills over the Model Context Protocol
    #[command(after_help = EXIT_CODES)]
    McpServer(Server),
}

#[derive(Debug, Args)]
struct Server {
    #[command(subcommand)]
    command: Command,
}

/// Command that the program carries out.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts the server
    #[command(after_help = START_HELP)]
    Start(Settings),
    /// Carries out calls that servers leave to workers (docs/temporal.md)
    #[command(after_help = START_HELP)]
    Worker(WorkerArguments),
    /// Checks and prints the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Lists tools, and calls one
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Lists resources
    #[command(subcommand)]
    Resources(ResourcesCommand),
    /// Lists prompts from files, compares their versions, and activates one
    #[command(subcommand)]
    Prompts(PromptsCommand),
    /// Queries, verifies, archives and exports the ledger
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Sums up usage, and explains rules
    #[command(subcommand)]
    Governance(GovernanceCommand),
    /// Lists calls that wait for approval, approves or denies them, and withdraws decisions
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Lists the sessions of a running server, and ends them
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Shows, adds and removes the other servers behind this gateway
    #[command(subcommand)]
    Upstream(UpstreamCommand),
    /// Inspects published servers, and adds them
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Stores secrets of the configuration in an encrypted file
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Creates, lists and revokes API keys of clients
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Opens the operators' page of a server on this machine, and signs you in
    #[command(after_help = EXIT_CODES)]
    Desk(DeskCommand),
    /// Checks everything that a server needs, and suggests remedies
    #[command(after_help = DOCTOR_CODES)]
    Doctor(Doctor),
    /// Connects to any MCP server, by address or program
    #[command(subcommand, after_help = CLIENT_CODES)]
    Client(ClientCommand),
    /// Prints the entry for a client's configuration
    #[command(after_help = EXIT_CODES)]
    ClientConfig(ClientConfig),
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: ShellName,
    },
    /// Prints the manual page, or writes one for each word
    Man {
        /// Write pages for all words into this directory
        #[arg(long, short = 'o', value_name = "DIRECTORY")]
        output: Option<PathBuf>,
    },
}

/// Arguments of `worker`.
#[derive(Debug, Args)]
pub(crate) struct WorkerArguments {
    #[command(flatten)]
    pub(crate) settings: Settings,
    /// Name of a queue of `tasks.temporal.queues`, repeatable [default: all]
    #[arg(long = "queue", value_name = "NAME")]
    pub(crate) queues: Vec<String>,
    /// Calls at once of each queue [default: `tasks.temporal.worker_calls`]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) calls: Option<u16>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks the configuration that `start` would use, and lists all errors
    #[command(after_help = EXIT_CODES)]
    Validate {
        #[command(flatten)]
        settings: Settings,
        /// Import the application too, which runs its code, and list rules that match nothing
        #[arg(long)]
        import: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Prints every setting in force and its origin
    #[command(after_help = EXIT_CODES)]
    Show {
        #[command(flatten)]
        settings: Settings,
        /// Only this key and those below it, such as upstreams.github
        #[arg(value_name = "KEY")]
        key: Option<String>,
        /// Show each value with the layer, the file and the line that set it, and with those that it overrides
        #[arg(long)]
        origin: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Prints the JSON Schema of the configuration file, for editors
    Schema,
    /// Prints all keys with their meanings and defaults, as Markdown
    Reference,
    /// Writes a commented configuration file
    #[command(after_help = EXIT_CODES)]
    Init {
        /// Path to write to, or - for standard output; an existing file is left as it is
        #[arg(
            long,
            short = 'o',
            value_name = "PATH",
            default_value = "mcp-server.yaml"
        )]
        output: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolsCommand {
    /// Lists the tools
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        view: View,
        /// Instead, estimate the tokens of a model's context that each view takes
        #[arg(long)]
        tokens: bool,
    },
    /// Calls a tool, governed and recorded like any call
    #[command(after_help = EXIT_CODES)]
    Call {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        call: ToolCall,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ResourcesCommand {
    /// Lists the resources
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        settings: Settings,
        #[command(flatten)]
        view: View,
        /// Only those of this category
        #[arg(long, value_name = "CATEGORY")]
        category: Option<String>,
        /// Only those with this tag
        #[arg(long, value_name = "TAG")]
        tag: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_are_sound() {
        OwlclawMcp::command().debug_assert();
        Owlclaw::command().debug_assert();
    }
}
