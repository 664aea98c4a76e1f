//! `keys …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::inspect::RowsFormat;
use super::{EXIT_CODES, ReportFormat, Settings};
use crate::inspect::Lifetime;

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Makes a key and prints it, which happens once: only a digest of it is kept
    #[command(after_help = EXIT_CODES)]
    Create {
        #[command(flatten)]
        place: KeyPlace,
        /// Whose it is: the name that quotas, rules and the ledger go by
        #[arg(long, value_name = "NAME")]
        principal: String,
        /// A role that it gives; may be there several times
        #[arg(long = "role", value_name = "ROLE")]
        roles: Vec<String>,
        /// How long it is good, such as 90d or 12h [default: until it is revoked]
        #[arg(long, value_name = "DURATION")]
        expires: Option<Lifetime>,
        /// What to remember it by
        #[arg(long, value_name = "TEXT")]
        label: Option<String>,
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
    /// Lists the keys, never the secrets
    #[command(after_help = EXIT_CODES)]
    List {
        #[command(flatten)]
        place: KeyPlace,
        /// How to print
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
        /// How long the old one is good; 0s revokes it at once
        #[arg(long, value_name = "DURATION", default_value = "1d")]
        overlap: Lifetime,
        /// How to print
        #[arg(long, value_enum, default_value_t)]
        format: ReportFormat,
    },
}

/// Where keys are.
#[derive(Debug, Args)]
pub struct KeyPlace {
    #[command(flatten)]
    pub settings: Settings,
    /// The file of keys, whatever the configuration says
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
}
