//! Tools on offer: what they are, who could call them and why, and calls of them.

use std::sync::Arc;

use gateway::PinKind;
use governance::Caller;
use http::StatusCode;
use ledger::system_now_us;
use operator::look::{self, Cell, shown};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use server::{Callee, ToolRow};

use super::pins::{Pin, told as told_pin};
use super::{Count, limit};
use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Filter for tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ToolQuery {
    /// Only those whose name, title or description has this, in any case.
    q: Option<String>,
    /// Only those of this upstream.
    upstream: Option<String>,
    /// 1 for only those that are held.
    held: Option<Count>,
    /// The most to list: 50 if not said, 500 at most.
    limit: Option<Count>,
    /// Go on after this name.
    after: Option<String>,
}

/// Page of tools.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tools {
    /// Tools by their names.
    tools: Vec<Tool>,
    /// Number that meet the filter, of this page and all others.
    count: usize,
    /// Value of `after` for the next page, if there is one.
    next: Option<String>,
    /// Time at which the offer was looked at, RFC 3339.
    at: String,
}

/// A tool.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Tool {
    /// Name of the tool.
    name: String,
    /// Title, if it is not the name.
    title: Option<String>,
    /// Kind of its source: `native`, `python`, `command`, `http`, `upstream`, …
    kind: String,
    /// Upstream that it is of, and its name there.
    origin: Option<[String; 2]>,
    /// Reason why all of its calls are refused, if they are.
    held: Option<String>,
    /// `low`, `medium`, `high` or `critical`, or else the classes of the rules: `read_only`, `mutating`, `external`, `financial`.
    risk: Option<String>,
    /// Person who has to agree to each call: `user` or `operator`.
    confirmation: Option<String>,
    /// Expected cost of a call, decimal.
    estimated_cost: Option<String>,
    /// Calls in any minute that one client may make.
    max_calls_per_minute: Option<u32>,
    /// Calls in any day that one client may make.
    max_calls_per_day: Option<u32>,
    /// Seconds after which a call is ended.
    timeout_seconds: u64,
    /// About how many tokens it takes of a model's context.
    estimated_tokens: usize,
    /// Description, as models are told.
    description: String,
}

/// A tool, with its schema and its pin.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct ShownTool {
    /// The tool.
    tool: Tool,
    /// JSON Schema of its arguments.
    input_schema: Value,
    /// Pin of its definition, if an upstream offers it.
    pin: Option<Pin>,
    /// Time at which the offer was looked at, RFC 3339.
    at: String,
}

/// Question whether a call could be made.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Question {
    /// Client that would call.
    client: String,
    /// Roles that its credentials would give it.
    #[serde(default)]
    roles: Vec<String>,
    /// Arguments of the call, an object; rules about arguments are not decided without.
    #[serde(default)]
    #[schemars(with = "Option<Value>")]
    arguments: Option<Box<RawValue>>,
}

/// Arguments of a call.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Arguments {
    /// Arguments, an object; numbers keep all of their digits.
    #[schemars(with = "Value")]
    arguments: Box<RawValue>,
}

fn told(call: &Call<'_>, row: ToolRow) -> Tool {
    let origin = call.desk.server.gateway().origin(&row.name);
    Tool {
        origin: origin.map(|(upstream, tool)| [upstream, tool]),
        name: row.name,
        title: row.title,
        kind: row.kind,
        held: row.held,
        risk: row.risk,
        confirmation: row.confirmation,
        estimated_cost: row.estimated_cost.map(|it| it.to_string()),
        max_calls_per_minute: row.max_calls_per_minute,
        max_calls_per_day: row.max_calls_per_day,
        timeout_seconds: row.timeout_seconds,
        estimated_tokens: row.estimated_tokens,
        description: row.description,
    }
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let query: ToolQuery = call.query()?;
    let most = limit(query.limit)?;
    let server = &call.desk.server;
    let only_held = query.held.is_some_and(|Count(count)| count == 1);
    let wanted = query.q.as_deref().map(str::to_lowercase);
    let offer = server.offer();
    let mut names: Vec<&str> = offer
        .tools()
        .iter()
        .filter(|tool| {
            let has = |text: &str, part: &str| text.to_lowercase().contains(part);
            wanted.as_deref().is_none_or(|part| {
                has(tool.name(), part)
                    || has(tool.description(), part)
                    || tool.title().is_some_and(|it| has(it, part))
            })
        })
        .map(|tool| tool.name())
        .collect();
    if let Some(upstream) = &query.upstream {
        let gateway = server.gateway();
        names.retain(|name| gateway.origin(name).is_some_and(|(of, _)| of == *upstream));
    }
    if only_held {
        names.retain(|name| server.is_held(name));
    }
    names.sort_unstable();
    let count = names.len();
    let from = query
        .after
        .as_deref()
        .map_or(0, |after| names.partition_point(|name| *name <= after));
    let page = &names[from..count.min(from + most)];
    let next = page.last().filter(|_| from + page.len() < count);
    let next = next.map(|name| (*name).to_owned());
    let rows = page.iter().filter_map(|name| server.tool(name));
    let tools = rows.map(|row| told(&call, row)).collect();
    Ok(Reply::json(&Tools {
        tools,
        count,
        next,
        at: shown(system_now_us()),
    }))
}

fn find(call: &Call<'_>) -> Result<ToolRow, Problem> {
    let found = call.desk.server.tool(call.name());
    found.ok_or_else(|| Problem::missing("there is no such tool on offer"))
}

pub(crate) async fn show(call: Call<'_>) -> Result<Reply, Problem> {
    let row = find(&call)?;
    let input_schema = row.input_schema.clone();
    let tool = told(&call, row);
    let pin = tool.origin.as_ref().and_then(|[upstream, name]| {
        let gateway = call.desk.server.gateway();
        gateway.pin(upstream, PinKind::Tool, name)
    });
    let pin = pin.as_ref().map(told_pin);
    Ok(Reply::json(&ShownTool {
        tool,
        input_schema,
        pin,
        at: shown(system_now_us()),
    }))
}

pub(crate) async fn explain(call: Call<'_>) -> Result<Reply, Problem> {
    let asked: Question = call.body()?;
    let arguments = asked.arguments.as_deref().map(RawValue::get);
    if arguments.is_some_and(|it| !it.trim_start().starts_with('{')) {
        return Err(Problem::bad("`arguments` is an object"));
    }
    let roles: Vec<Arc<str>> = asked
        .roles
        .iter()
        .map(|it| Arc::from(it.as_str()))
        .collect();
    let caller = Caller {
        principal: &asked.client,
        roles: &roles,
    };
    let callee = Callee::Tool(call.name());
    let explained = call.desk.server.explain(caller, callee, arguments).await;
    let explained = explained.map_err(|failure| Problem::unavailable(&*failure))?;
    Ok(Reply::json(&look::explanation(&explained)))
}

pub(crate) async fn call(call: Call<'_>) -> Result<Reply, Problem> {
    let asked: Arguments = call.body()?;
    if !asked.arguments.get().trim_start().starts_with('{') {
        return Err(Problem::bad("`arguments` is an object"));
    }
    let row = find(&call)?;
    call.desk.record(call.who(), "tool_call", &row.name).await?;
    let frame = operator::call_frame(&row.name, asked.arguments.get())
        .map_err(|error| Problem::unavailable(&error))?;
    let principal = call.who().principal.clone();
    let answered = call.desk.server.call_as(principal, &frame).await;
    let answered = answered.map_err(|failure| {
        let why = server::with_causes(&*failure);
        Problem::new(StatusCode::CONFLICT, why)
    })?;
    Ok(Reply::json(&Cell::of_json(answered.as_str())))
}
