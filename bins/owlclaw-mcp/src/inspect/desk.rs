//! Where approvals are decided.

use ledger::{Approval, ApprovalDesk, ApprovalId, Decision, PostgresDesk, system_now_us};

use crate::Failure;
use crate::config::Config;
use crate::serve::{database, database_options};

/// Decides an approval, in the file of a running server or in the database of several.
pub(super) fn decide(
    config: &Config,
    approval: ApprovalId,
    decision: Decision,
    by: &str,
) -> Result<Approval, Failure> {
    let now_us = system_now_us();
    Ok(match database(config)? {
        Some(url) => {
            let options = database_options(config, &url)?;
            PostgresDesk::open(&options)?.decide(approval, decision, by, now_us)?
        }
        None => {
            let mut desk = ApprovalDesk::open(&config.ledger.path)?;
            desk.decide(approval, decision, by, now_us)?
        }
    })
}
