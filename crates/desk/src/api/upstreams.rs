//! Upstreams: their states, and from what those are known.

use gateway::{PinsWanted, State, Status};
use ledger::system_now_us;
use operator::look::shown;
use schemars::JsonSchema;
use serde::Serialize;

use super::pins::{Pin, told as told_pin};
use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Held definitions that are shown with their upstream; the list of definitions has all.
const MAX_HELD: usize = 50;

/// Upstreams.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Upstreams {
    /// Upstreams by their names.
    upstreams: Vec<Upstream>,
    /// Time at which they were looked at, RFC 3339.
    at: String,
}

/// State of an upstream.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Upstream {
    /// Name.
    name: String,
    /// State.
    state: String,
    /// True if the state says that it works, false if it does not, `null` if it was never asked.
    works: Option<bool>,
    /// Reason for the state, for people.
    reason: String,
    /// Time at which it came into this state, as far as that was noticed, RFC 3339.
    since: String,
    /// Way to it, without secrets.
    place: String,
    /// Fault, of now or of the last time.
    error: Option<String>,
    /// Advice on that fault.
    cure: Option<String>,
    /// Time of the last fault, RFC 3339.
    last_error_at: Option<String>,
    /// The last fault.
    last_error: Option<String>,
    /// Revision of the protocol that was spoken the last time.
    revision: Option<String>,
    /// Name and version that it gives itself.
    server: Option<String>,
    /// Tools on offer.
    tools: usize,
    /// Tools that its lists have and that are not on offer.
    tools_withheld: usize,
    /// Items of its lists that are of no use, each with the reason.
    left_out: Vec<String>,
    /// Resources on offer.
    resources: usize,
    /// Prompts on offer.
    prompts: usize,
    /// Seconds since its lists were read; `null` if they never were.
    lists_age_seconds: Option<u64>,
    /// Connections that are open.
    connections: usize,
    /// Calls that are under way.
    calls_under_way: usize,
    /// Calls since the start.
    calls: u64,
    /// Calls of these whose outcome is unknown.
    calls_lost: u64,
    /// Milliseconds that connecting took the last time.
    connect_ms: Option<u64>,
}

/// An upstream in full.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownUpstream {
    /// State.
    upstream: Upstream,
    /// Tools: the name there, and the name on offer if it is on offer.
    tools: Vec<(String, Option<String>)>,
    /// Definitions of it that are held, by kind and name; the first 50.
    held: Vec<Pin>,
    /// The end of its standard error, if it is a program.
    log: Option<String>,
    /// Time at which it was looked at, RFC 3339.
    at: String,
}

/// Outcome of a recheck.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Rechecked {
    /// State afterwards.
    upstream: Upstream,
    /// Reason why it could not be connected, or a list of it could not be read.
    failure: Option<String>,
    /// Time of the outcome, RFC 3339.
    at: String,
}

/// Evidence that an upstream works, by its state. Nothing is taken to work that was not seen to.
fn works(state: State) -> Option<bool> {
    match state {
        State::Ready => Some(true),
        State::Degraded | State::LoginNeeded => Some(false),
        State::Configured | State::Known | State::Connecting | State::Held | State::Off => None,
    }
}

fn told(status: Status) -> Upstream {
    let seconds = |seconds: u64| shown(seconds.saturating_mul(1_000_000));
    let state = serde_json::to_value(status.state).ok();
    let state = state.and_then(|it| it.as_str().map(str::to_owned));
    let (last_error_at, last_error) = status.last_error.unzip();
    Upstream {
        works: works(status.state),
        state: state.unwrap_or_default(),
        name: status.name,
        reason: status.reason,
        since: seconds(status.since),
        place: status.place,
        error: status.error,
        cure: status.cure,
        last_error_at: last_error_at.map(seconds),
        last_error,
        revision: status.revision.map(str::to_owned),
        server: status.server,
        tools: status.tools,
        tools_withheld: status.tools_withheld,
        left_out: status.left_out,
        resources: status.resources,
        prompts: status.prompts,
        lists_age_seconds: status.lists_age_seconds,
        connections: status.connections,
        calls_under_way: status.calls_under_way,
        calls: status.calls,
        calls_lost: status.calls_lost,
        connect_ms: status.connect_ms,
    }
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let all = call.desk.server.gateway().status().into_iter();
    let upstreams = all.map(told).collect();
    let at = shown(system_now_us());
    Ok(Reply::json(&Upstreams { upstreams, at }))
}

fn find(call: &Call<'_>) -> Result<Status, Problem> {
    let found = call.desk.server.gateway().status_of(call.name());
    found.ok_or_else(|| Problem::missing("there is no such upstream"))
}

pub(crate) async fn show(call: Call<'_>) -> Result<Reply, Problem> {
    let upstream = told(find(&call)?);
    let server = &call.desk.server;
    let wanted = PinsWanted {
        upstream: Some(&upstream.name),
        only_held: true,
    };
    let (held, _) = server.gateway().pins(wanted, None, MAX_HELD);
    let held = held.iter().map(told_pin).collect();
    Ok(Reply::json(&ShownUpstream {
        tools: server.gateway().tools_named(&upstream.name),
        log: server.stderr_of(&upstream.name),
        held,
        upstream,
        at: shown(system_now_us()),
    }))
}

pub(crate) async fn recheck(call: Call<'_>) -> Result<Reply, Problem> {
    let name = find(&call)?.name;
    call.desk
        .record(call.who(), "upstream_recheck", &name)
        .await?;
    let failure = call.desk.server.gateway().recheck(&name).await.err();
    Ok(Reply::json(&Rechecked {
        upstream: told(find(&call)?),
        failure,
        at: shown(system_now_us()),
    }))
}
