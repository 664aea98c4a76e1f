//! Tasks of all clients, and the servers that carry them out.

use std::collections::HashMap;

use http::StatusCode;
use ledger::system_now_us;
use operator::look::shown;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::{CancelledTask, NodeState, Overseen, ServerNode, TaskId, TaskState};

use super::{Count, limit};
use crate::call::Call;
use crate::reply::{Problem, Reply};

/// The most tasks that are looked through for a page.
const MAX_LOOKED_THROUGH: usize = 10_000;

/// Filter for tasks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskQuery {
    /// `running`, `working`, `input_required`, `completed`, `failed` or `cancelled`; all, if not said.
    state: Option<String>,
    /// Only those of this client.
    client: Option<String>,
    /// The most to list: 50 if not said, 500 at most.
    limit: Option<Count>,
    /// Go on after this task, which ended a page: `next` of that page.
    before: Option<String>,
}

/// Page of tasks.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tasks {
    /// Tasks, the newest first; `null` where calls become no tasks.
    tasks: Option<Vec<Task>>,
    /// Value of `before` for the next page, if there is one.
    next: Option<String>,
    /// Reason why nothing is known of the servers that carry tasks out, if that is so.
    nodes_unknown: Option<String>,
    /// Time at which the tasks were read, RFC 3339.
    at: String,
}

/// A task.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Task {
    /// Name.
    id: String,
    /// Client.
    client: String,
    /// Capability that was called, such as `tool/NAME`.
    capability: String,
    /// `working`, `input_required`, `completed`, `failed` or `cancelled`.
    state: &'static str,
    /// True if it has completed with an error of the tool.
    is_error: bool,
    /// Message on its progress.
    message: Option<String>,
    /// Time of creation, RFC 3339.
    created: String,
    /// Time of the last change.
    updated: String,
    /// Time from which on it may be forgotten.
    expires: String,
    /// Seconds since its creation.
    age_seconds: u64,
    /// Number of times it was begun; `null` if it is over.
    attempt: Option<u64>,
    /// The server that carries it out; `null` if it is over.
    owner: Option<Owner>,
}

/// The server that carries a task out.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Owner {
    /// Name; `null` of a server that was never heard of.
    name: Option<String>,
    /// `this`, `alive`, `silent`, `stopped`, or `unknown` where nobody can say.
    state: &'static str,
    /// True if its right to the task has run out: the next server that looks takes the task up, or ends it.
    has_lapsed: bool,
}

/// Outcome of a cancellation.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Cancelled {
    /// `cancelled`, or `ending` if it was told to end and has not yet.
    outcome: &'static str,
}

/// Servers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Nodes {
    /// True if others may share the ledger's database.
    is_shared: bool,
    /// Servers: those of the last day that have said of themselves that they are there.
    nodes: Vec<Node>,
    /// Time at which they were asked for, RFC 3339.
    at: String,
}

/// A server.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Node {
    /// Name under which it owns tasks: each start of each server has another.
    id: String,
    /// Name for people: process and host.
    name: String,
    /// Version of the program.
    version: String,
    /// `alive`, `silent` if it was not heard of for as long as a lease lasts, or `stopped`.
    state: &'static str,
    /// True for the server that answers.
    is_this: bool,
    /// Seconds since its last sign of life.
    silent_seconds: u64,
    /// Seconds since its first sign of life; `null` where none are given.
    age_seconds: Option<u64>,
    /// Tasks that it owns.
    tasks: u64,
    /// Sessions of legacy clients at its last sign of life; `null` where there can be none.
    sessions: Option<u64>,
}

fn state_of(node: &ServerNode) -> &'static str {
    match node.state {
        NodeState::Alive => "alive",
        NodeState::Silent => "silent",
        NodeState::Stopped => "stopped",
    }
}

type Wanted = fn(&TaskState) -> bool;

fn wanted(name: Option<&str>) -> Result<Wanted, Problem> {
    Ok(match name {
        None => |_| true,
        Some("running") => |it| !it.is_terminal(),
        Some("working") => |it| matches!(it, TaskState::Working),
        Some("input_required") => |it| matches!(it, TaskState::InputRequired { .. }),
        Some("completed") => |it| matches!(it, TaskState::Completed { .. }),
        Some("failed") => |it| matches!(it, TaskState::Failed { .. }),
        Some("cancelled") => |it| matches!(it, TaskState::Cancelled),
        Some(_) => return Err(Problem::bad("there is no such `state`")),
    })
}

/// Place of a task in the list: `TIME.NAME`.
fn place(text: &str) -> Option<(u64, TaskId)> {
    let (created_us, id) = text.split_once('.')?;
    Some((created_us.parse().ok()?, id.parse().ok()?))
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let query: TaskQuery = call.query()?;
    let (is_wanted, most) = (wanted(query.state.as_deref())?, limit(query.limit)?);
    let mut after = match &query.before {
        None => None,
        Some(text) => Some(place(text).ok_or_else(|| Problem::bad("`before` is no place"))?),
    };
    let server = &call.desk.server;
    let now_us = system_now_us();
    let (mut found, mut looked_through, mut is_last) = (Vec::new(), 0, false);
    while found.len() < most && looked_through < MAX_LOOKED_THROUGH && !is_last {
        let page = server.tasks(after.clone(), most).await;
        let Some(page) = page.map_err(|failure| Problem::unavailable(&*failure))? else {
            return Ok(Reply::json(&Tasks {
                tasks: None,
                next: None,
                nodes_unknown: None,
                at: shown(now_us),
            }));
        };
        is_last = page.is_empty();
        looked_through += page.len();
        for it in page {
            if most <= found.len() {
                break;
            }
            after = Some((it.record.created_us, it.record.id.clone()));
            let is_theirs = query
                .client
                .as_ref()
                .is_none_or(|name| *name == it.record.principal);
            if is_theirs && now_us < it.record.expires_us && is_wanted(&it.record.state) {
                found.push(it);
            }
        }
    }
    // What is known of the tasks is told, whether the servers are known or not.
    let (nodes, nodes_unknown) = match server.nodes().await {
        Ok(nodes) => (nodes, None),
        Err(failure) => {
            let why = Problem::unavailable(&*failure).why;
            (Vec::new(), Some(why))
        }
    };
    let nodes: HashMap<&str, &ServerNode> = nodes.iter().map(|it| (&*it.id, it)).collect();
    let next = after.filter(|_| !is_last);
    Ok(Reply::json(&Tasks {
        tasks: Some(found.iter().map(|it| task(it, &nodes, now_us)).collect()),
        next: next.map(|(created_us, id)| format!("{created_us}.{}", id.as_str())),
        nodes_unknown,
        at: shown(now_us),
    }))
}

fn task(it: &Overseen, nodes: &HashMap<&str, &ServerNode>, now_us: u64) -> Task {
    let record = &it.record;
    let owner = it.run.as_ref().map(|run| {
        let node = nodes.get(&*run.owner);
        Owner {
            name: node.map(|it| it.name.clone()),
            state: match node {
                Some(node) if node.is_this => "this",
                Some(node) => state_of(node),
                None => "unknown",
            },
            has_lapsed: run.left_us == 0,
        }
    });
    Task {
        id: record.id.to_string(),
        client: record.principal.clone(),
        capability: record.capability.clone(),
        state: record.state.name(),
        is_error: matches!(record.state, TaskState::Completed { is_error: true, .. }),
        message: record.message.clone(),
        created: shown(record.created_us),
        updated: shown(record.updated_us),
        expires: shown(record.expires_us),
        age_seconds: now_us.saturating_sub(record.created_us) / 1_000_000,
        attempt: it.run.as_ref().map(|it| it.attempt),
        owner,
    }
}

pub(crate) async fn cancel(call: Call<'_>) -> Result<Reply, Problem> {
    let missing = || Problem::missing("there is no such task");
    let id: TaskId = call.name().parse().map_err(|_| missing())?;
    let server = &call.desk.server;
    let unavailable = |failure: server::Failure| Problem::unavailable(&*failure);
    let record = server.task(&id).await.map_err(unavailable)?;
    let record = record.ok_or_else(missing)?;
    let over = || Problem::new(StatusCode::CONFLICT, "the task is over already");
    if record.state.is_terminal() {
        return Err(over());
    }
    let more = serde_json::json!({ "client": record.principal, "capability": record.capability });
    let who = call.who();
    call.desk
        .record_more(who, "task_cancel", id.as_str(), &more)
        .await?;
    match server.cancel_task(&id).await.map_err(unavailable)? {
        None => Err(missing()),
        Some(CancelledTask::Over) => Err(over()),
        Some(CancelledTask::Cancelled) => Ok(Reply::json(&Cancelled {
            outcome: "cancelled",
        })),
        Some(CancelledTask::Ending) => Ok(Reply::json(&Cancelled { outcome: "ending" })),
    }
}

pub(crate) async fn nodes(call: Call<'_>) -> Result<Reply, Problem> {
    let server = &call.desk.server;
    let nodes = server.nodes().await;
    let nodes = nodes.map_err(|failure| Problem::unavailable(&*failure))?;
    let node = |it: &ServerNode| Node {
        id: it.id.clone(),
        name: it.name.clone(),
        version: it.version.clone(),
        state: state_of(it),
        is_this: it.is_this,
        silent_seconds: it.silent.as_secs(),
        age_seconds: it.age.map(|it| it.as_secs()),
        tasks: it.tasks,
        sessions: it.sessions,
    };
    Ok(Reply::json(&Nodes {
        is_shared: server.may_have_others(),
        nodes: nodes.iter().map(node).collect(),
        at: shown(system_now_us()),
    }))
}
