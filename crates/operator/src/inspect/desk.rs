//! Decisions on approvals.

use ledger::{Approval, ApprovalId, OfflineApprovals, PostgresOfflineApprovals, Verdict};

use config::Config;
use server::Failure;
use server::{database, database_options};

/// Decides an approval, or takes a decision back, in the file of a running server or in the database of several.
pub(super) fn decide(
    config: &Config,
    approval: ApprovalId,
    verdict: &Verdict,
) -> Result<Approval, Failure> {
    Ok(match database(config)? {
        Some(url) => {
            let options = database_options(config, &url)?;
            PostgresOfflineApprovals::open(&options)?.decide(approval, verdict)?
        }
        None => {
            let mut desk = OfflineApprovals::open(&config.ledger.path)?;
            desk.decide(approval, verdict)?
        }
    })
}
