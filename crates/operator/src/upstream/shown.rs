//! States of upstreams, for people. What an upstream says commands no terminal.

use std::time::{SystemTime, UNIX_EPOCH};

use config::printable;
use jiff::Timestamp;
use serde_json::Value;

use crate::table::table;

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or("-")
}

fn state(one: &Value) -> String {
    text(one, "state").replace('_', " ")
}

fn number(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(|| "-".to_owned(), |it| it.to_string())
}

/// A length of time in its largest unit.
fn length(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn age(value: &Value) -> String {
    value.as_u64().map_or_else(|| "-".to_owned(), length)
}

/// A time since the epoch, and how long ago that is.
pub(super) fn moment(seconds: &Value) -> String {
    let Some(seconds) = seconds.as_u64() else {
        return "-".to_owned();
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let ago = now.map_or(0, |it| it.as_secs()).saturating_sub(seconds);
    let at = i64::try_from(seconds).ok();
    let at = at.and_then(|it| Timestamp::from_second(it).ok());
    let at = at.map_or_else(|| seconds.to_string(), |it| it.to_string());
    format!("{at} ({} ago)", length(ago))
}

/// Lines of another's text, each with `margin` before it.
pub(super) fn lines(text: &str, margin: &str) -> String {
    let lines = text.lines().map(|it| format!("{margin}{}", printable(it)));
    lines.collect::<Vec<_>>().join("\n")
}

fn upstreams(told: &Value) -> impl Iterator<Item = &Value> {
    told["upstreams"].as_array().into_iter().flatten()
}

/// A line for each upstream.
pub(super) fn list(told: &Value) -> String {
    let rows = upstreams(told).map(|one| {
        vec![
            text(one, "name").to_owned(),
            state(one),
            number(&one["tools"]),
            number(&one["resources"]),
            number(&one["prompts"]),
            text(one, "place").to_owned(),
            error(one),
        ]
    });
    let heads = [
        "NAME",
        "STATE",
        "TOOLS",
        "RESOURCES",
        "PROMPTS",
        "PLACE",
        "ERROR",
    ];
    table(&heads, rows.collect())
}

/// Fault of an upstream, in one line.
fn error(one: &Value) -> String {
    let error = one["error"].as_str().map(str::to_owned);
    let count = |list: &str| one[list].as_array().map_or(0, Vec::len);
    let left_out = count("left_out") + count("unusable");
    error.unwrap_or_else(|| match left_out {
        0 => String::new(),
        1 => "an item of its lists is left out".to_owned(),
        count => format!("{count} items of its lists are left out"),
    })
}

/// Figures of each upstream.
pub(super) fn status(told: &Value) -> String {
    let rows = upstreams(told).map(|one| {
        let connect = match one["connect_ms"].as_u64() {
            Some(ms) => format!("{ms} ms"),
            None => "-".to_owned(),
        };
        vec![
            text(one, "name").to_owned(),
            state(one),
            text(one, "revision").to_owned(),
            text(one, "server").to_owned(),
            age(&one["lists_age_seconds"]),
            number(&one["connections"]),
            number(&one["connected"]),
            connect,
            number(&one["calls_under_way"]),
            number(&one["calls"]),
            number(&one["calls_lost"]),
            error(one),
        ]
    });
    let heads = [
        "NAME",
        "STATE",
        "REVISION",
        "SERVER",
        "LISTS",
        "OPEN",
        "CONNECTED",
        "CONNECT",
        "RUNNING",
        "CALLS",
        "LOST",
        "ERROR",
    ];
    table(&heads, rows.collect())
}

/// The state of one upstream and everything that explains it.
pub(super) fn why(told: &Value) -> String {
    let one = &told["upstream"];
    let mut out = vec![printable(&format!(
        "{} is {} since {}",
        text(one, "name"),
        state(one),
        moment(&one["since"])
    ))];
    let mut row = |name: &str, value: &str| {
        if !value.is_empty() {
            out.push(format!("{name:<12}{}", printable(value)));
        }
    };
    row("reason", one["reason"].as_str().unwrap_or_default());
    row("cure", one["cure"].as_str().unwrap_or_default());
    if let Some(last) = one["last_error"].as_array() {
        let when = moment(last.first().unwrap_or(&Value::Null));
        let what = last.get(1).and_then(Value::as_str).unwrap_or_default();
        row("last error", &format!("{when}: {what}"));
    }
    row("declared", &declared(&told["declared"]));
    for it in told["settings"].as_array().into_iter().flatten() {
        row("set", &setting(it));
    }
    row("place", text(one, "place"));
    if one["revision"].is_string() {
        let server = text(one, "server");
        row(
            "server",
            &format!("{server}, revision {}", text(one, "revision")),
        );
        row(
            "lists",
            &format!(
                "read {} ago: {} tools, {} more that `allow` and `deny` leave out, {} resources, {} prompts",
                age(&one["lists_age_seconds"]),
                number(&one["tools"]),
                number(&one["tools_withheld"]),
                number(&one["resources"]),
                number(&one["prompts"]),
            ),
        );
    }
    for item in one["left_out"].as_array().into_iter().flatten() {
        row("left out", item.as_str().unwrap_or_default());
    }
    for item in one["unusable"].as_array().into_iter().flatten() {
        row("unusable", item.as_str().unwrap_or_default());
    }
    for item in one["held"].as_array().into_iter().flatten() {
        row("held", item.as_str().unwrap_or_default());
    }
    for client in one["refused_clients"].as_array().into_iter().flatten() {
        let [name, why, cure] = ["client", "why", "cure"].map(|it| text(client, it));
        row("client", &format!("{name} cannot use it: {why}: {cure}"));
    }
    if told["source"] == "server" {
        row(
            "calls",
            &format!(
                "{} since it was configured so, {} under way, {} whose outcome is unknown",
                number(&one["calls"]),
                number(&one["calls_under_way"]),
                number(&one["calls_lost"]),
            ),
        );
    }
    let tools = told["tools"].as_array().cloned().unwrap_or_default();
    if !tools.is_empty() {
        let rows = tools.iter().map(|tool| {
            vec![
                text(tool, "tool").to_owned(),
                text(tool, "offered_as").to_owned(),
                rules(tool),
            ]
        });
        out.push(String::new());
        out.push(table(&["TOOL", "OFFERED AS", "RULES"], rows.collect()));
    }
    if let Some(stderr) = told["stderr"].as_str().filter(|it| !it.trim().is_empty()) {
        out.push(format!(
            "\nlast words on standard error:\n{}",
            lines(stderr, "  ")
        ));
    }
    out.join("\n")
}

/// A setting with the layer and the place that set it, and those that it overrides.
fn setting(it: &Value) -> String {
    let overrides = it["overrides"].as_array().into_iter().flatten();
    let overrides: Vec<_> = overrides.filter_map(Value::as_str).collect();
    let over = match overrides.is_empty() {
        true => String::new(),
        false => format!(", over {}", overrides.join(", over ")),
    };
    format!(
        "{}: {} ({} {}{over})",
        text(it, "key"),
        it["value"],
        text(it, "layer"),
        text(it, "place"),
    )
}

fn declared(declared: &Value) -> String {
    match (declared["place"].as_str(), declared["file"].as_str()) {
        (Some(place), _) => format!("{place}, {}", text(declared, "key")),
        (None, Some(file)) => match declared["line"].as_u64() {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        },
        (None, None) => "not in the configuration that this command has read".to_owned(),
    }
}

/// Rules about a tool: their keys, with their places.
fn rules(tool: &Value) -> String {
    let rules = tool["rules"].as_array().into_iter().flatten();
    let mut shown: Vec<String> = rules
        .map(|rule| {
            let pattern = rule["pattern"].as_str().map(|it| format!(" `{it}`"));
            format!(
                "{}{} ({})",
                text(rule, "key"),
                pattern.unwrap_or_default(),
                text(rule, "place")
            )
        })
        .collect();
    if let Some(held) = tool["held"].as_str() {
        shown.push(format!("held: {held}"));
    }
    shown.join("; ")
}

/// The outcome of connecting anew.
pub(super) fn rechecked(told: &Value) -> String {
    let one = &told["upstream"];
    let name = text(one, "name");
    let Some(failure) = told["failure"].as_str() else {
        return printable(&format!(
            "{name} is {}: {} speaks {}, {} tools, {} resources, {} prompts, connected within {} ms",
            state(one),
            text(one, "server"),
            text(one, "revision"),
            number(&one["tools"]),
            number(&one["resources"]),
            number(&one["prompts"]),
            number(&one["connect_ms"]),
        ));
    };
    let mut out = vec![printable(&format!("{name} is {}: {failure}", state(one)))];
    if let Some(cure) = one["cure"].as_str() {
        out.push(printable(&format!("hint: {cure}")));
    }
    out.join("\n")
}
