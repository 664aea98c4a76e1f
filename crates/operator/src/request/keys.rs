//! `keys …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::inspect::RowsFormat;
use super::{EXIT_CODES, ReportFormat, Settings};
use crate::request::Lifetime;

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Creates a key and prints it once: only a digest of it is stored
    #[command(after_help = EXIT_CODES)]
    Create {
        #[command(flatten)]
        place: KeyPlace,
        /// Principal of the key: the name that quotas, rules and the ledger go by
        #[arg(long, value_name = "NAME")]
        principal: String,
        /// Role that the key carries; may be repeated
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// Time for which the key is valid, such as 90d or 12h [default: until it is revoked]
        #[arg(long, value_name = "DURATION")]
        expires: Option<Lifetime>,
        /// Label to remember it by
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Lists the keys, never the secrets
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        place: KeyPlace,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: RowsFormat,
    },
    /// Takes a key back, at once and for good
    #[command(after_help = EXIT_CODES)]
    Revoke {
        #[command(flatten)]
        place: KeyPlace,
        /// The key's id, which is its part between `owl_` and the next `_`
        id: String,
    },
    /// Makes a key in the place of another and prints it; the old one is good for a while
    #[command(after_help = EXIT_CODES)]
    Rotate {
        #[command(flatten)]
        place: KeyPlace,
        /// The id of the key to replace
        id: String,
        /// Time for which the old key stays valid; 0s revokes it at once
        #[arg(long, value_name = "DURATION", default_value = "1d")]
        overlap: Lifetime,
        /// Output format
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
}

/// File of keys.
#[derive(Debug, Args)]
pub struct KeyPlace {
    #[command(flatten)]
    pub settings: Settings,
    /// File of keys, instead of the one in the configuration
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
}
