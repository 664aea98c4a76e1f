//! The decision of a server about a call, without the call.

use std::sync::Arc;

use adapter_tools::Tool;
use bytes::Bytes;
use governance::{
    Ask, Caller, Explanation, Governor, Kind, MemoryQuota, Micros, Policy, Timestamp,
};
use jsonrpc_core::RawJson;
use ledger::{ApprovalFilter, ApprovalId, ApprovalState, Digest};
use mcp_server::{
    Invocation, Offer, prompt_capability, resource_capability, system_clock, tool_capability,
};
use quota_postgres::{PostgresQuota, QuotaOptions};

use super::list::Bench;
use super::quotas::Quotas;
use super::store;
use crate::Failure;
use config::Config;

/// Tool, resource or prompt of a call.
#[derive(Debug, Clone, Copy)]
pub enum Callee<'a> {
    /// The tool of this name.
    Tool(&'a str),
    /// The resource at this address.
    Resource(&'a str),
    /// The prompt of this name, or a version of it (`NAME@VERSION`).
    Prompt(&'a str),
}

/// Expected outcome of a call.
#[derive(Debug)]
pub enum Explained {
    /// There is nothing of this name; perhaps one of this was meant.
    Unknown(Option<String>),
    /// The rules say this of it.
    Known {
        /// Name of the capability in rules and in the ledger.
        capability: String,
        /// Decision of the rules, and which rule made it.
        explanation: Box<Explanation>,
        /// Violations of the tool's schema by the given arguments.
        violations: Vec<String>,
        /// Approval that the call would use, where it has to be confirmed.
        approval: Option<ApprovalId>,
    },
}

/// The most approvals of one client for one tool that are looked through.
const MAX_APPROVALS: usize = 1_000;

/// Judges a call by the tools, the rules and the counters of a server that starts now with `config`;
/// with a database, by the counters of the servers that share it. Counts nothing. What only a running
/// server knows is not in it: tools that rest, and without a database calls that run.
///
/// # Errors
///
/// When no server could start with this configuration, or the ledger or the counters cannot be read.
pub fn explain(
    config: &Config,
    caller: Caller<'_>,
    callee: Callee<'_>,
    arguments: Option<&str>,
) -> Result<Explained, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let bench = Bench::prepare(config).await?;
        let judged = judge_at(config, &bench, caller, callee, arguments).await;
        bench.close().await;
        judged
    })
}

async fn judge_at(
    config: &Config,
    bench: &Bench,
    caller: Caller<'_>,
    callee: Callee<'_>,
    arguments: Option<&str>,
) -> Result<Explained, Failure> {
    let quotas = Arc::new(counters(config, &bench.policy).await?);
    let policy = super::policy::policy(config, &bench.catalog, &bench.offer)?;
    let governor = Governor::new(policy, Arc::clone(&quotas));
    let judged = judge(config, &bench.offer, &governor, caller, callee, arguments).await;
    quotas.close().await;
    judged
}

/// Judges a call by what is on offer and the rules and counters of `governor`.
pub(super) async fn judge(
    config: &Config,
    offer: &Arc<Offer>,
    governor: &Governor<Quotas>,
    caller: Caller<'_>,
    callee: Callee<'_>,
    arguments: Option<&str>,
) -> Result<Explained, Failure> {
    let tools = offer.tools();
    let resources = offer.resources();
    let (tool, kind, capability) = match callee {
        Callee::Tool(name) => match tools.get(name) {
            Some(tool) => (Some(tool), Kind::Tool, tool_capability(name)),
            None => {
                let own = tools.iter().find(|tool| tool.own_name() == name);
                let meant = own.map(|tool| tool.name().to_owned());
                let names = || tools.iter().map(Tool::name);
                let meant = meant.or_else(|| config::nearest_of(name, names()));
                return Ok(Explained::Unknown(meant));
            }
        },
        Callee::Resource(uri) => match resources.governed_by(uri) {
            Some(uri) => (None, Kind::Resource, resource_capability(&uri)),
            None => {
                let entries = resources.entries();
                let uris = entries.iter().map(|it| it.resource.uri.as_str());
                return Ok(Explained::Unknown(config::nearest_of(uri, uris)));
            }
        },
        Callee::Prompt(name) => match offer.prompts().governed_by(name) {
            Some(name) => (None, Kind::Resource, prompt_capability(&name)),
            None => {
                let entries = offer.prompts().entries();
                let names = entries.iter().map(|it| it.name.as_str());
                return Ok(Explained::Unknown(config::nearest_of(name, names)));
            }
        },
    };
    // The arguments as a call of them has them.
    let call = match (callee, arguments) {
        (Callee::Tool(name), Some(arguments)) => {
            let raw = RawJson::from_bytes(Bytes::copy_from_slice(arguments.as_bytes()))?;
            let raw = offer.unwrapped(name, &raw).unwrap_or(raw);
            Some(Invocation::tool(Arc::clone(offer), name, raw))
        }
        _ => None,
    };
    let taken = call.as_ref().map(Invocation::arguments_taken);
    let ask = Ask {
        principal: caller.principal,
        roles: caller.roles,
        capability: &capability,
        kind,
        estimate: tool.and_then(Tool::estimated_cost_micros).map(Micros),
        now: Timestamp(system_clock() / 1_000),
        arguments: taken.as_deref().or(arguments),
    };
    let explanation = governor.explain(ask).await?;
    let checked = tool.zip(call.as_ref()).map(|(tool, call)| {
        let raw = call.arguments.clone().into_bytes();
        tool.check(raw).err()
    });
    let approval = match &call {
        Some(call) if explanation.confirmation().is_some() => {
            let binding = call.binding(caller.principal, explanation.policy_version);
            let (config, principal) = (config.clone(), caller.principal.to_owned());
            let capability = Arc::clone(&call.capability);
            let look = move || approval_of(&config, &principal, &capability, binding);
            tokio::task::spawn_blocking(look).await??
        }
        _ => None,
    };
    let invalid = checked.flatten();
    let violations = invalid.iter().flat_map(|it| it.violations());
    Ok(Explained::Known {
        explanation: Box::new(explanation),
        approval,
        violations: violations.map(ToString::to_string).collect(),
        capability,
    })
}

/// An approval of exactly this call that is given and not used.
fn approval_of(
    config: &Config,
    principal: &str,
    capability: &str,
    binding: Digest,
) -> Result<Option<ApprovalId>, Failure> {
    if config.ledger.url.is_none() && !config.ledger.path.exists() {
        return Ok(None);
    }
    let filter = ApprovalFilter {
        state: Some(ApprovalState::Approved),
        expires_after_us: Some(system_clock()),
        principal: Some(principal),
        capability: Some(capability),
        ..ApprovalFilter::default()
    };
    let given = store::open_reader(config)?.approvals(MAX_APPROVALS, filter)?;
    let fitting = given.iter().find(|it| it.binding == binding);
    Ok(fitting.map(|it| it.id))
}

/// The counters of a server with this configuration.
async fn counters(config: &Config, policy: &Policy) -> Result<Quotas, Failure> {
    if let Some(url) = store::database(config)? {
        let quotas = PostgresQuota::open(&url, QuotaOptions::default()).await?;
        return Ok(Quotas::postgres(quotas, None));
    }
    let quota = MemoryQuota::new(config.governance.max_clients);
    // Without a ledger nothing has been used yet.
    if config.ledger.path.exists() {
        let mut reader = store::open_reader(config)?;
        store::seed(reader.as_mut(), policy, &quota)?;
    }
    Ok(Quotas::memory(quota))
}
