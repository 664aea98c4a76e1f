//! Where approvals are decided.

use ledger::{
    Approval, ApprovalDesk, ApprovalId, Decision, PostgresDesk, PostgresOptions, system_now_us,
};

use crate::Failure;
use crate::config::{Config, Environment};

/// Decides an approval, in the file of a running server or in the database of several.
pub(super) fn decide(
    config: &Config,
    approval: ApprovalId,
    decision: Decision,
    by: &str,
) -> Result<Approval, Failure> {
    let now_us = system_now_us();
    Ok(match &config.ledger.url {
        Some(url) => {
            let address = url.reveal(&Environment::of_process());
            let address = address.ok_or("ledger.url is empty")?;
            let options = PostgresOptions::new(&address)?;
            PostgresDesk::open(&options)?.decide(approval, decision, by, now_us)?
        }
        None => {
            let mut desk = ApprovalDesk::open(&config.ledger.path)?;
            desk.decide(approval, decision, by, now_us)?
        }
    })
}
