//! `desk`.

use std::path::PathBuf;

use clap::Args;

use super::Settings;

/// A desk to sign in at, which a server on this machine serves.
#[derive(Debug, Args)]
pub struct DeskCommand {
    #[command(flatten)]
    pub settings: Settings,
    /// Print the address and open nothing
    #[arg(long)]
    pub no_open: bool,
    /// Certificate authorities (PEM) to trust besides the system's
    #[arg(long, value_name = "PATH")]
    pub ca: Option<PathBuf>,
}
