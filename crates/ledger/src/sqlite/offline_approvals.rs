//! Deciding approvals beside a running server.

use crate::{
    record::approval::{Approval, ApprovalId, ApprovalProblem, Verdict},
    sqlite::{
        rows::Rows,
        schema::{OpenError, open_to_decide},
    },
    store::claims::{ClaimStore, at_once},
};
use rusqlite::{Connection, TransactionBehavior};
use std::{error::Error, path::Path};

/// Decides approvals in a ledger file that a server may be writing to. The server sees a decision
/// at the next use, and puts it on record.
#[derive(Debug)]
pub struct OfflineApprovals {
    connection: Connection,
}

/// An approval was not decided.
#[derive(Debug, thiserror::Error)]
pub enum OfflineApprovalsError {
    /// The decision was refused.
    #[error("{0}")]
    Refused(ApprovalProblem),
    /// The ledger cannot be written.
    #[error("the ledger cannot be written")]
    Store(#[source] Box<dyn Error + Send + Sync>),
}

impl From<rusqlite::Error> for OfflineApprovalsError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(Box::new(error))
    }
}

impl OfflineApprovals {
    /// Opens the ledger at `path`, which must exist.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when it is missing or not a ledger of a known version, or of a version that
    /// had no approvals.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        open_to_decide(path.as_ref()).map(|connection| Self { connection })
    }

    /// Decides a pending approval, or takes a decision back.
    ///
    /// # Errors
    ///
    /// [`OfflineApprovalsError`]: it stays as it was.
    pub fn decide(
        &mut self,
        approval: ApprovalId,
        verdict: &Verdict,
    ) -> Result<Approval, OfflineApprovalsError> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut rows = Rows::new(&transaction);
        let mut found = at_once(rows.approval(approval))?
            .ok_or(OfflineApprovalsError::Refused(ApprovalProblem::Missing))?;
        found
            .decide(verdict)
            .map_err(OfflineApprovalsError::Refused)?;
        at_once(rows.put_approval(&found, false))?;
        transaction.commit()?;
        Ok(found)
    }
}
