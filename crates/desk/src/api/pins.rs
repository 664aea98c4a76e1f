//! Definitions of upstreams: which are pinned and held, how those differ, and decisions on them.

use gateway::{Approved, PinError, PinnedItem, Pins, PinsWanted, differences};
use http::StatusCode;
use ledger::system_now_us;
use operator::look::shown;
use operator::{pin_awaited, pin_changes, pin_decision, pin_state};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use server::{Failure, upstreams_directory};

use super::{Count, limit};
use crate::call::Call;
use crate::reply::{Problem, Reply};

/// The most bytes of a reason.
const MAX_REASON: usize = 512;

/// Filter for definitions.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PinQuery {
    /// Only those of this upstream.
    upstream: Option<String>,
    /// 1 for only those that are held.
    held: Option<Count>,
    /// The most to list: 50 if not said, 500 at most.
    limit: Option<Count>,
    /// Go on after this one: upstream, kind and name with `/` between them.
    after: Option<String>,
}

/// Page of definitions.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct PinPage {
    /// Definitions by upstream, kind and name.
    pins: Vec<Pin>,
    /// Number that meet the filter, of this page and all others.
    count: usize,
    /// Value of `after` for the next page, if there is one.
    next: Option<String>,
    /// Time at which they were looked at, RFC 3339.
    at: String,
}

/// Pin of a definition, and what is held instead.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pin {
    /// Upstream.
    upstream: String,
    /// Kind: `tool`, `resource`, `prompt`, …
    kind: String,
    /// Name that the upstream gives it.
    name: String,
    /// `pinned`, `changed, held`, `new, held` or `held by an operator`.
    state: String,
    /// Digest of the definition that is pinned.
    digest: Option<String>,
    /// Digest that an approval names; `null` if nothing waits for one.
    to_approve: Option<String>,
    /// Name of the person who approved what is pinned, if somebody did.
    approved_by: Option<String>,
    /// Reason that this person gave.
    approved_reason: Option<String>,
    /// Person who holds it, and the reason.
    held_by: Option<[String; 2]>,
    /// Time since which it is held, RFC 3339.
    since: Option<String>,
    /// Kinds of what has changed, with commas between them.
    changes: String,
    /// Weight of the heaviest change: `low`, `medium` or `high`; `-` without one.
    severity: String,
    /// Differences from the pinned definition: `at` (a JSON pointer), `before` and `after`.
    differences: Value,
    /// Command that approves it.
    approve_command: Option<String>,
}

/// Approval of a definition.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Approving {
    /// Kind and name, as in `tool/echo`.
    item: String,
    /// Digest of the definition that was looked at, or at least 8 digits of its beginning. It is refused if another one
    /// is held by now.
    digest: String,
    /// Reason, one line of at most 512 bytes.
    reason: String,
}

/// Definition to hold.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Holding {
    /// Kind and name, as in `tool/echo`.
    item: String,
    /// Reason, one line of at most 512 bytes.
    reason: String,
}

/// Definitions that were decided on.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DecidedPins {
    /// The definitions as they are now.
    pins: Vec<Pin>,
}

/// Facts of a pin.
pub(crate) fn told(item: &PinnedItem) -> Pin {
    let pin = &item.pin;
    let awaited = pin_awaited(item).cloned();
    let command = awaited.as_ref().map(|digest| {
        let digest = digest.get(..12).unwrap_or(digest);
        format!(
            "owlclaw-mcp upstream approve {} {} --digest {digest} --by NAME --reason REASON",
            item.upstream, item.name
        )
    });
    let since = pin.held.as_ref().map(|it| it.since);
    let since = pin.stopped.as_ref().map(|it| it.at).or(since);
    let (changes, severity) = pin_changes(item);
    Pin {
        upstream: item.upstream.clone(),
        kind: item.kind.as_str().to_owned(),
        name: item.name.clone(),
        state: pin_state(item).to_owned(),
        digest: pin.digest.clone(),
        to_approve: awaited,
        approved_by: pin.approved.as_ref().map(|it| it.by.clone()),
        approved_reason: pin.approved.as_ref().map(|it| it.reason.clone()),
        held_by: pin
            .stopped
            .as_ref()
            .map(|it| [it.by.clone(), it.reason.clone()]),
        since: since.map(|seconds| shown(seconds.saturating_mul(1_000_000))),
        changes,
        severity: severity.to_owned(),
        differences: json!(differences(pin)),
        approve_command: command,
    }
}

fn place(item: &PinnedItem) -> String {
    format!("{}/{}/{}", item.upstream, item.kind.as_str(), item.name)
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let query: PinQuery = call.query()?;
    let most = limit(query.limit)?;
    let wanted = PinsWanted {
        upstream: query.upstream.as_deref(),
        only_held: query.held.is_some_and(|Count(count)| count == 1),
    };
    let after = query.after.as_deref();
    let after = after.map(|it| it.split_once('/').unwrap_or((it, "")));
    // One more than a page says whether there is another.
    let (mut items, count) = call.desk.server.gateway().pins(wanted, after, most + 1);
    let has_next = most < items.len();
    items.truncate(most);
    let next = items.last().filter(|_| has_next).map(place);
    let pins = items.iter().map(told).collect();
    Ok(Reply::json(&PinPage {
        pins,
        count,
        next,
        at: shown(system_now_us()),
    }))
}

fn reason(text: &str) -> Result<String, Problem> {
    let text = text.trim();
    if text.is_empty() || MAX_REASON < text.len() || text.chars().any(char::is_control) {
        let why = format!("`reason` is one line of at most {MAX_REASON} bytes, and not empty");
        return Err(Problem::bad(why));
    }
    Ok(text.to_owned())
}

/// Puts a decision on record and carries it out, as the commands do.
async fn decide(
    call: &Call<'_>,
    what: &str,
    (item, digest, why): (String, Option<String>, &str),
) -> Result<Reply, Problem> {
    let why = reason(why)?;
    let (upstream, desk) = (call.name().to_owned(), call.desk);
    let decision = pin_decision(call.who().name.to_string(), why.clone());
    let decision = decision.map_err(|what| Problem::bad(format!("`{what}` is empty")))?;
    let act = json!({ "reason": why, "digest": digest });
    let subject = format!("{upstream}/{item}");
    desk.record_more(call.who(), what, &subject, &act).await?;
    let directory = upstreams_directory(desk.server.config());
    let decided = move || {
        let mut pins = Pins::new(Some(directory));
        Ok::<_, Failure>(match &digest {
            Some(digest) => {
                let which = Approved::Item {
                    name: &item,
                    digest,
                };
                pins.approve(&upstream, which, &decision)
            }
            None => pins.hold(&upstream, &item, &decision),
        })
    };
    let pins = desk.block(decided).await?.map_err(|error| match error {
        PinError::NothingHeld(why) => Problem::missing(why),
        PinError::Short(_) => Problem::bad(error.to_string()),
        PinError::Another { .. } => Problem::new(StatusCode::CONFLICT, error.to_string()),
        other => Problem::unavailable(&other),
    })?;
    // Whether the configuration file says anything new is told elsewhere.
    let _ = desk.server.look_again().await;
    let pins = pins.iter().map(told).collect();
    Ok(Reply::json(&DecidedPins { pins }))
}

pub(crate) async fn approve(call: Call<'_>) -> Result<Reply, Problem> {
    let Approving {
        item,
        digest,
        reason,
    } = call.body()?;
    decide(&call, "pin_approve", (item, Some(digest), &reason)).await
}

pub(crate) async fn hold(call: Call<'_>) -> Result<Reply, Problem> {
    let Holding { item, reason } = call.body()?;
    decide(&call, "pin_hold", (item, None, &reason)).await
}
