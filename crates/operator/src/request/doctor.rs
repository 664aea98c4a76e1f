//! The words of `doctor`.

use clap::Args;

pub const CODES: &str = "\
Exit codes:
  0  nothing is wrong; there may be warnings
  1  something is wrong
  2  wrong usage";

/// Checks to make.
#[derive(Debug, Args)]
pub struct Doctor {
    #[command(flatten)]
    pub settings: super::Settings,
    /// Do not import the application, which runs its code
    #[arg(long)]
    pub no_import: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: super::ReportFormat,
}
