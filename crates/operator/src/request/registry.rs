//! `registry …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::upstream::Manner;
use super::{EXIT_CODES, ListFormat, ReportFormat, Settings};

#[derive(Debug, Subcommand)]
pub enum RegistryCommand {
    /// Shows what published servers would run, and adds them to the configuration and the catalogue once that is confirmed
    #[command(after_help = IMPORT_HELP)]
    Import {
        #[command(flatten)]
        settings: Settings,
        /// Files (server.json, .mcpb), addresses of such files, or names in the registry (NAME or NAME@VERSION)
        #[arg(value_name = "SOURCE", required = true)]
        sources: Vec<String>,
        /// Use this way that the entry has: npm, pypi, oci, nuget, mcpb or remote [default: the first that can be used]
        #[arg(long = "use", value_name = "KIND")]
        way: Option<String>,
        /// Take the entries into the catalogue, and add no upstream
        #[arg(long)]
        only_catalogue: bool,
        /// Import a package whose SHA-256 is published and cannot be compared, since its runtime fetches it by itself
        #[arg(long)]
        without_hash: bool,
        #[command(flatten)]
        published: Published,
        #[command(flatten)]
        manner: Manner,
    },
    /// Lists the entries of the catalogue
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        settings: Settings,
        /// Only those whose names have this text
        #[arg(long, value_name = "TEXT")]
        search: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ListFormat,
    },
    /// Shows an entry of the catalogue, and what it would run
    #[command(after_help = EXIT_CODES)]
    Show {
        #[command(flatten)]
        settings: Settings,
        /// Name of the entry, or NAME@VERSION
        #[arg(value_name = "NAME")]
        name: String,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Writes a server.json: of an entry of the catalogue as it was published, or of an upstream, without its secrets
    #[command(after_help = EXPORT_HELP)]
    Export(Export),
}

/// A server.json to write.
#[derive(Debug, Args)]
pub struct Export {
    #[command(flatten)]
    pub settings: Settings,
    /// Name of an entry (NAME or NAME@VERSION), or of an upstream
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Name that the entry of an upstream gets, such as com.example/weather
    #[arg(long, value_name = "NAME")]
    pub publish_as: Option<String>,
    /// Version that it gets
    #[arg(long, value_name = "VERSION", default_value = "1.0.0")]
    pub publish_version: String,
    /// Description that it gets, of at most 100 characters
    #[arg(long, value_name = "TEXT")]
    pub description: Option<String>,
    /// File to write; one that is there is left as it is [default: standard output]
    #[arg(long, short = 'o', value_name = "PATH")]
    pub output: Option<PathBuf>,
}

/// Answers to what published servers ask for.
#[derive(Debug, Clone, Default, Args)]
pub struct Published {
    /// Name that the upstream gets [default: the last part of the server's name]
    #[arg(long = "as", value_name = "NAME")]
    pub name: Option<String>,
    /// A value that the server asks for, as NAME=VALUE; again for several. Secrets go into the vault
    #[arg(long = "set", value_name = "VALUE")]
    pub set: Vec<String>,
    /// Take it only if it is signed with the certificate of this SHA-256
    #[arg(long, value_name = "DIGITS")]
    pub signed_by: Option<String>,
    /// Write it without being asked
    #[arg(long, short = 'y')]
    pub yes: bool,
}

impl Published {
    /// True if nothing is said that concerns published servers alone.
    pub(crate) fn is_empty(&self) -> bool {
        self.name.is_none() && self.set.is_empty() && self.signed_by.is_none() && !self.yes
    }
}

const IMPORT_HELP: &str = "\
Nothing is started, and nothing is written before it is confirmed, on the terminal or by --yes. Secrets that the server
needs become references to the vault, under names of their own: `vault set` gives them values, and until then the upstream
is held.

Examples:
  owlclaw-mcp registry import io.github.example/weather
  owlclaw-mcp registry import server.json --use pypi --set CITY=Rome --yes
  owlclaw-mcp registry import https://example.com/weather.mcpb

Exit codes:
  0  success
  1  the command failed, a server was refused, or nothing was confirmed
  2  wrong usage, or a configuration that is not valid";

const EXPORT_HELP: &str = "\
Examples:
  owlclaw-mcp registry export io.github.example/weather@1.2.0
  owlclaw-mcp registry export time --publish-as com.example/time --description 'Time in any zone' -o server.json

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";
