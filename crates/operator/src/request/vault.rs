//! `vault …`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{EXIT_CODES, ReportFormat, Settings};

#[derive(Debug, Subcommand)]
pub enum VaultCommand {
    /// Creates an empty vault at the configured place, and a key for it if the key file does not exist
    #[command(after_help = EXIT_CODES)]
    Init {
        #[command(flatten)]
        settings: Settings,
    },
    /// Sets a secret, read from the terminal, or else from standard input without its last line end
    #[command(after_help = EXIT_CODES)]
    Set {
        #[command(flatten)]
        settings: Settings,
        /// Name by which `${vault:NAME}` refers to it
        #[arg(value_name = "NAME")]
        name: String,
        /// Take the content of this file, without its last line end
        #[arg(long, value_name = "PATH")]
        file: Option<PathBuf>,
    },
    /// Lists the names, when each was set, and the keys of the configuration that refer to it; never a value
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        settings: Settings,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Seals the vault with a new key, which takes the place of the one in the key file
    #[command(after_help = EXIT_CODES)]
    Rotate {
        #[command(flatten)]
        settings: Settings,
        /// Take the new key from this file, which is left as it is; needed if the key in use is in no file
        #[arg(long, value_name = "PATH")]
        new_key_file: Option<PathBuf>,
    },
    /// Removes a secret
    #[command(after_help = EXIT_CODES)]
    Remove {
        #[command(flatten)]
        settings: Settings,
        /// Name of the secret
        #[arg(value_name = "NAME")]
        name: String,
    },
    /// Shows which secrets of a host's file (mcp.json) or of a .env file would go into the vault, and puts them there
    #[command(after_help = IMPORT_HELP)]
    Import {
        #[command(flatten)]
        settings: Settings,
        /// File with the secrets
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Put the secrets into the vault, and write the file anew with references in their places
        #[arg(long)]
        write: bool,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
}

const IMPORT_HELP: &str = "\
Without --write nothing is changed. With it, a host's file has `${vault:NAME}` where the secrets stood, for
`upstreams_files`: the host itself does not know such references, and is to start this server instead. A .env file
loses the lines, with a comment in the place of each.

Exit codes:
  0  success
  1  the command failed
  2  wrong usage, or a configuration that is not valid";
