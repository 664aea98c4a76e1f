//! What rules would say of a call, without a server.

use std::sync::Arc;

use gateway::system_clock;
use governance::{Ask, Caller, Explanation, Governor, Kind, MemoryQuota, Timestamp};

use super::{list, store};
use crate::Failure;
use crate::config::Config;

/// Judges a call by the rules of `config` and by what the ledger says was used, as a server that
/// starts now would. Counts nothing. What only a running server knows is not in it: calls that run,
/// and tools that rest.
pub(crate) fn explain(
    config: &Config,
    caller: Caller<'_>,
    capability: &str,
    kind: Kind,
    arguments: Option<&str>,
) -> Result<Explanation, Failure> {
    let (_, policy) = list::catalog_and_policy(config)?;
    let quota = MemoryQuota::default();
    // Without a ledger nothing has been used yet.
    if config.ledger.url.is_some() || config.ledger.path.exists() {
        let mut reader = store::open_reader(config)?;
        store::seed(reader.as_mut(), &policy, &quota)?;
    }
    let governor = Governor::new(policy, Arc::new(quota));
    let ask = Ask {
        principal: caller.principal,
        roles: caller.roles,
        capability,
        kind,
        estimate: None,
        now: Timestamp(system_clock() / 1_000),
        arguments,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    Ok(runtime.block_on(governor.explain(ask))?)
}
