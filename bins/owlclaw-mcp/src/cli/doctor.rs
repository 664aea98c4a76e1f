//! The words of `doctor`.

use clap::Args;

pub(crate) const CODES: &str = "\
Exit codes:
  0  nothing is wrong; there may be warnings
  1  something is wrong
  2  wrong usage";

/// What to look at.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) settings: super::Settings,
    /// Do not import the application, which runs its code
    #[arg(long)]
    pub(crate) no_import: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: super::ReportFormat,
}
