//! Looks into the ledger, explains rules and decides approvals, beside a running server or without
//! one.

mod approvals;
mod archive;
mod desk;
mod entries;
mod explain;
mod export;
mod filter;
mod keys;
mod lookup;
mod rows;
mod sheet;
mod stats;
mod tail;
mod verify;

use std::io;

use server::Failure;

pub use approvals::{approvals, os_user};
pub(crate) use approvals::{decide, list as list_approvals, show as show_approval};
pub(crate) use archive::{archive, backup, hold, holds, lift_hold, restore};
pub(crate) use explain::explain;
pub use explain::explanation;
pub(crate) use export::export;
pub use export::{ServerNames, export_to};
pub use keys::{KeyRow, keys};
pub(crate) use keys::{list_keys, made_key};
pub use lookup::calls;
pub(crate) use lookup::{query, show, unresolved};
pub use rows::{ApprovalRow, CallRow, NoteRow};
pub use sheet::Cell;
pub(crate) use stats::stats;
pub use stats::{UsageRow, usage};
pub(crate) use tail::tail;
pub use tail::{Happening, Happenings, What};
pub use verify::verified;
pub(crate) use verify::{Verified, accept_rollback, verify};

/// Reason why a command that prints as it goes ends early.
#[derive(Debug, thiserror::Error)]
pub enum Interrupted {
    /// Failure to read the source.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// Failure to write the output.
    #[error(transparent)]
    Output(#[from] io::Error),
}

impl From<csv::Error> for Interrupted {
    fn from(error: csv::Error) -> Self {
        match error.into_kind() {
            csv::ErrorKind::Io(error) => Self::Output(error),
            other => Self::Failed(format!("a row cannot be written: {other:?}").into()),
        }
    }
}
