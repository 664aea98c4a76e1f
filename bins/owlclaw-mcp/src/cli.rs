//! The command line, as a type.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
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
            let asked = OwlclawMcp::try_parse_from(arguments)?;
            (asked.command, asked.manner)
        }
        Program::Owlclaw => {
            let asked = Owlclaw::try_parse_from(arguments)?;
            let Word::McpServer(server) = asked.word;
            (server.command, asked.manner)
        }
    })
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
    /// Say nothing on standard error but errors; the server's log has a level of its own
    #[arg(long, short = 'q', global = true)]
    pub(crate) quiet: bool,
    /// Use of colours; NO_COLOR and CLICOLOR_FORCE are heeded too
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
    /// Looks at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Looks at the tools on offer
    #[command(subcommand)]
    Tools(ToolsCommand),
    /// Looks at the resources on offer
    #[command(subcommand)]
    Resources(ResourcesCommand),
    /// Looks at prompts from files, compares their versions, and puts one in force
    #[command(subcommand)]
    Prompts(PromptsCommand),
    /// Looks into the record of every call
    #[command(subcommand)]
    Ledger(LedgerCommand),
    /// Sums up usage, and explains rules
    #[command(subcommand)]
    Governance(GovernanceCommand),
    /// Shows calls that wait for a decision, decides on them, and takes decisions back
    #[command(subcommand)]
    Approvals(ApprovalsCommand),
    /// Lists the sessions of a running server, and ends them
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Looks at the other servers whose tools are offered, and changes which there are
    #[command(subcommand)]
    Upstream(UpstreamCommand),
    /// Looks at servers that others publish, and adds them
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Keeps secrets that the configuration refers to in an encrypted file
    #[command(subcommand)]
    Vault(VaultCommand),
    /// Makes keys for clients, lists them and takes them back
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Opens the desk of a server that runs here, where operators decide and look, and signs you in
    #[command(after_help = EXIT_CODES)]
    Desk(DeskCommand),
    /// Checks everything that a server needs, and says how to mend what is missing
    #[command(after_help = DOCTOR_CODES)]
    Doctor(Doctor),
    /// Speaks to any MCP server, by its address or by the program that it is
    #[command(subcommand, after_help = CLIENT_CODES)]
    Client(ClientCommand),
    /// Prints the entry for a client's configuration
    #[command(after_help = EXIT_CODES)]
    ClientConfig(ClientConfig),
    /// Prints a script that completes this program's words in a shell
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

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks the configuration that `start` would use, and says everything that is wrong with it
    #[command(after_help = EXIT_CODES)]
    Validate {
        #[command(flatten)]
        settings: Settings,
        /// Import the application too, which runs its code, and say which rules match nothing on offer
        #[arg(long)]
        import: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Prints every setting in force, and where it comes from
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
    /// Writes a file to begin with
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
        /// Instead, about how many tokens of a model's context each view of them takes
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
    use clap::CommandFactory;

    #[test]
    fn the_definitions_are_sound() {
        OwlclawMcp::command().debug_assert();
        Owlclaw::command().debug_assert();
    }
}
