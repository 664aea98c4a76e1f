use clap::Subcommand;

use super::{EXIT_CODES, ListFormat, Settings};

#[derive(Debug, Subcommand)]
pub enum PromptsCommand {
    /// Lists the prompts from files, and faults of unusable ones
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        settings: Settings,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
        /// Only prompts of this category
        #[arg(long)]
        category: Option<String>,
        /// Only prompts with this tag; several must all be there
        #[arg(long = "tag", value_name = "TAG")]
        tags: Vec<String>,
    },
    /// Shows the versions of a prompt, or the text of one
    #[command(after_help = EXIT_CODES)]
    Show {
        #[command(flatten)]
        settings: Settings,
        /// NAME, or NAME@VERSION
        name: String,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Compares the texts of two versions of a prompt
    #[command(after_help = EXIT_CODES)]
    Diff {
        #[command(flatten)]
        settings: Settings,
        /// Name of the prompt
        name: String,
        /// The older version
        from: String,
        /// The newer version [default: the one in force]
        to: Option<String>,
    },
    /// Puts an older version of a prompt in force, or the one named
    #[command(after_help = EXIT_CODES)]
    Rollback {
        #[command(flatten)]
        settings: Settings,
        /// Name of the prompt
        name: String,
        /// The version [default: the one before the version in force]
        #[arg(value_name = "VERSION")]
        to: Option<String>,
    },
    /// Renders a prompt, without a server, rules or ledger
    #[command(after_help = EXIT_CODES)]
    Render {
        #[command(flatten)]
        settings: Settings,
        /// NAME, or NAME@VERSION
        name: String,
        /// Arguments, each as NAME=VALUE
        #[arg(value_name = "NAME=VALUE")]
        arguments: Vec<String>,
    },
}
