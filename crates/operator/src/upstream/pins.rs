//! `upstream pins`, `diff` and `approve`: definitions of upstreams that are pinned, and those that are held.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use config::printable;
use gateway::{Approved, PinApproval, PinnedItem, Pins, differences};
use serde_json::{Value, json};

use super::shown::{lines, moment};
use super::{NEEDED, absent};
use crate::output::{Stop, load_for, print, print_json};
use crate::request::{Approve, Hold, ListFormat, ReportFormat, Settings};
use crate::table::table;

/// Digits of a digest that are shown where the whole is not needed.
const SHOWN_DIGITS: usize = 12;

/// The pins of a configuration's upstreams, and those of one of them, or of all.
fn pinned(settings: Settings, upstream: Option<&str>) -> Result<(Pins, Vec<PinnedItem>), Stop> {
    let config = load_for(settings, NEEDED)?.config;
    let pins = Pins::new(Some(server::upstreams_directory(&config)));
    let mut items = pins.items().map_err(|error| Stop::Failed(error.into()))?;
    if let Some(name) = upstream {
        items.retain(|it| it.upstream == name);
        if items.is_empty() {
            let declared = server::declared_upstreams(&config).map_err(Stop::Failed)?;
            let names = declared.upstreams.iter().map(|it| &*it.spec.name);
            if !names.clone().any(|it| it == name) {
                return Err(Stop::Failed(absent(name, names)));
            }
        }
    }
    Ok((pins, items))
}

fn short(digest: Option<&String>) -> &str {
    digest.map_or("-", |it| it.get(..SHOWN_DIGITS).unwrap_or(it))
}

/// Digest of the definition that waits for an operator.
#[must_use]
pub fn pin_awaited(item: &PinnedItem) -> Option<&String> {
    let held = item.pin.held.as_ref().map(|it| &it.digest);
    held.or(item.pin.stopped.as_ref().and(item.pin.digest.as_ref()))
}

fn is_named(item: &PinnedItem, name: &str) -> bool {
    item.name == name || name.split_once('/') == Some((item.kind.as_str(), &item.name))
}

/// Name of its state, for people.
#[must_use]
pub fn pin_state(item: &PinnedItem) -> &'static str {
    match (&item.pin.held, &item.pin.definition) {
        _ if item.pin.stopped.is_some() => "held by an operator",
        (None, _) => "pinned",
        (Some(_), Some(_)) => "changed, held",
        (Some(_), None) => "new, held",
    }
}

/// Kinds of the changes of what is held, and the weight of the heaviest.
#[must_use]
pub fn pin_changes(item: &PinnedItem) -> (String, &'static str) {
    let changes = item.pin.held.iter().flat_map(|it| &it.changes);
    let names: Vec<_> = changes.clone().map(|it| it.as_str()).collect();
    let severity = changes.map(|it| it.severity()).max();
    (names.join(", "), severity.map_or("-", |it| it.as_str()))
}

pub(super) fn list(
    settings: Settings,
    name: Option<&str>,
    held: bool,
    format: ListFormat,
) -> Result<ExitCode, Stop> {
    let (_, mut items) = pinned(settings, name)?;
    items.retain(|it| !held || it.pin.held.is_some() || it.pin.stopped.is_some());
    if matches!(format, ListFormat::Json) {
        return print_json(&items);
    }
    let rows = items.iter().map(|it| {
        vec![
            it.upstream.clone(),
            it.kind.as_str().to_owned(),
            it.name.clone(),
            match &it.pin.stopped {
                Some(hold) => format!("{} ({}: {})", pin_state(it), hold.by, hold.reason),
                None => pin_state(it).to_owned(),
            },
            short(it.pin.digest.as_ref()).to_owned(),
            short(pin_awaited(it)).to_owned(),
            it.pin
                .approved
                .as_ref()
                .map_or_else(String::new, |it| it.by.clone()),
            pin_changes(it).0,
        ]
    });
    let heads = [
        "UPSTREAM",
        "KIND",
        "NAME",
        "STATE",
        "DIGEST",
        "TO APPROVE",
        "APPROVED BY",
        "CHANGES",
    ];
    print(&table(&heads, rows.collect()))
}

pub(super) fn diff(
    settings: Settings,
    name: &str,
    item: Option<&str>,
    format: ReportFormat,
) -> Result<ExitCode, Stop> {
    let (_, mut items) = pinned(settings, Some(name))?;
    if let Some(item) = item {
        items.retain(|it| is_named(it, item));
        if items.is_empty() {
            let why = format!("nothing of the name `{item}` is pinned of `{name}`");
            return Err(Stop::Failed(printable(&why).into()));
        }
    }
    items.retain(|it| it.pin.is_held());
    match format {
        ReportFormat::Json => {
            let rows: Vec<Value> = items.iter().map(as_json).collect();
            print_json(&rows)
        }
        ReportFormat::Text if items.is_empty() => print("nothing is held"),
        ReportFormat::Text => {
            let shown: Vec<String> = items.iter().map(as_text).collect();
            print(&shown.join("\n\n"))
        }
    }
}

fn as_json(item: &PinnedItem) -> Value {
    let held = item.pin.held.as_ref();
    json!({
        "upstream": item.upstream,
        "kind": item.kind,
        "name": item.name,
        "severity": pin_changes(item).1,
        "changes": held.map(|it| &it.changes),
        "digest": item.pin.digest,
        "held": held.map(|it| &it.digest),
        "held_since": held.map(|it| it.since),
        "held_by": item.pin.stopped,
        "same_as": held.and_then(|it| it.same_as.as_ref()),
        "differences": differences(&item.pin),
    })
}

fn as_text(item: &PinnedItem) -> String {
    let (kinds, severity) = pin_changes(item);
    let (kind, name) = (item.kind.as_str(), printable(&item.name));
    let upstream = printable(&item.upstream);
    let mut out = Vec::new();
    if let Some(hold) = &item.pin.stopped {
        let since = moment(&json!(hold.at));
        let (by, reason) = (printable(&hold.by), printable(&hold.reason));
        out.push(format!("{kind} {name} of {upstream}: held by an operator"));
        out.push(format!("  held by   {by} since {since}: {reason}"));
        out.push(format!("  pinned    {}", short(item.pin.digest.as_ref())));
        out.push(match &item.pin.digest {
            Some(digest) => format!(
                "  freed by  owlclaw-mcp upstream approve {upstream} {kind}/{name} --digest {}",
                short(Some(digest))
            ),
            None => "  freed by  the digest of its pin, which it has once a definition is approved"
                .to_owned(),
        });
    }
    let Some(held) = &item.pin.held else {
        return out.join("\n");
    };
    out.extend([
        format!("{kind} {name} of {upstream}: {kinds}"),
        format!("  severity  {severity}"),
        format!("  held      since {}", moment(&json!(held.since))),
        format!("  pinned    {}", short(item.pin.digest.as_ref())),
        format!("  now       {}", short(Some(&held.digest))),
    ]);
    if let Some(same) = &held.same_as {
        out.push(format!("  as        {}", printable(same)));
    }
    for difference in differences(&item.pin) {
        out.push(format!("  {}", printable(&difference.at)));
        for (mark, value) in [("-", difference.before), ("+", difference.after)] {
            if let Some(value) = value {
                out.push(lines(&written(&value), &format!("    {mark} ")));
            }
        }
    }
    out.join("\n")
}

/// A value as people read it: texts without quotation marks, the rest as indented JSON.
fn written(value: &Value) -> String {
    match value {
        Value::String(text) if !text.is_empty() => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

pub(super) fn hold(hold: Hold) -> Result<ExitCode, Stop> {
    let Hold {
        settings,
        name,
        item,
        by,
        reason,
        format,
    } = hold;
    let decision = decision(by, reason)?;
    let (mut pins, _) = pinned(settings, Some(&name))?;
    let held = pins.hold(&name, &item, &decision);
    let held = held.map_err(|error| Stop::Failed(error.into()))?;
    match format {
        ReportFormat::Json => print_json(&held),
        ReportFormat::Text => {
            let line = |it: &PinnedItem| {
                let digest = short(it.pin.digest.as_ref());
                let (kind, name) = (it.kind.as_str(), printable(&it.name));
                format!(
                    "held: {kind} {name} of {}, {digest}",
                    printable(&it.upstream)
                )
            };
            let lines: Vec<String> = held.iter().map(line).collect();
            print(&lines.join("\n"))
        }
    }
}

fn decision(by: String, reason: String) -> Result<PinApproval, Stop> {
    pin_decision(by, reason).map_err(|what| Stop::Failed(format!("--{what} is empty").into()))
}

/// A decision of a person, now.
///
/// # Errors
///
/// `by` or `reason`, if it is empty.
pub fn pin_decision(by: String, reason: String) -> Result<PinApproval, &'static str> {
    for (value, what) in [(&by, "by"), (&reason, "reason")] {
        if value.trim().is_empty() {
            return Err(what);
        }
    }
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(PinApproval {
        by,
        reason,
        at: since.map(|it| it.as_secs()).unwrap_or_default(),
    })
}

pub(super) fn approve(approve: Approve) -> Result<ExitCode, Stop> {
    let Approve {
        settings,
        name,
        item,
        digest,
        all: _,
        by,
        reason,
        format,
    } = approve;
    let approval = decision(by, reason)?;
    let (mut pins, _) = pinned(settings, Some(&name))?;
    let which = match (&item, &digest) {
        (Some(name), Some(digest)) => Approved::Item { name, digest },
        _ => Approved::All,
    };
    let approved = pins.approve(&name, which, &approval);
    let approved = approved.map_err(|error| Stop::Failed(error.into()))?;
    match format {
        ReportFormat::Json => print_json(&approved),
        ReportFormat::Text if approved.is_empty() => {
            print("nothing was held; the pins of what the upstream lists no more are forgotten")
        }
        ReportFormat::Text => {
            let line = |it: &PinnedItem| {
                let digest = short(it.pin.digest.as_ref());
                let (kind, name) = (it.kind.as_str(), printable(&it.name));
                format!(
                    "approved: {kind} {name} of {}, {digest}{}",
                    printable(&it.upstream),
                    match &it.pin.stopped {
                        Some(hold) => format!(
                            "; it stays held by {}, until the digest of its pin is approved",
                            printable(&hold.by)
                        ),
                        None if it.pin.held.is_some() => {
                            "; its changed definition stays held".to_owned()
                        }
                        None => String::new(),
                    }
                )
            };
            let lines: Vec<String> = approved.iter().map(line).collect();
            print(&lines.join("\n"))
        }
    }
}
