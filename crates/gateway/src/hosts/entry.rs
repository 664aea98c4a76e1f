//! Entries of a host's file: what they mean here, and which of them are refused.

use crate::{Reach, UpstreamSpec};
use documents::nearest_of;
use http::{HeaderMap, HeaderName, HeaderValue};
use mcp_client::HttpTransport;
use serde_json::{Map, Value};
use std::{path::PathBuf, time::Duration};

/// Members of an entry with the tools that alone are offered.
const ALLOWING: [&str; 4] = [
    "includeTools",
    "enabledTools",
    "enabled_tools",
    "allowedTools",
];
/// Members of an entry with tools that are not offered.
const DENYING: [&str; 3] = ["excludeTools", "disabledTools", "disabled_tools"];
/// Members of an entry that say whether it is used.
const SWITCHES: [&str; 3] = ["enabled", "isActive", "disabled"];
/// Members of an entry that have another meaning here, or none that matters.
const KNOWN: [&str; 19] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "serverUrl",
    "httpUrl",
    "headers",
    "type",
    "transport",
    "timeout",
    "autoApprove",
    "alwaysAllow",
    "trust",
    "description",
    "name",
    "icon",
    "gallery",
    "version",
];
/// Parts of the name of a member that may restrict what is offered, in lower case.
const RESTRICTING: [&str; 34] = [
    "activ",
    "allow",
    "approv",
    "availab",
    "blacklist",
    "block",
    "confirm",
    "deny",
    "disab",
    "enab",
    "exclu",
    "filter",
    "forbid",
    "guard",
    "hidden",
    "hide",
    "hold",
    "includ",
    "omit",
    "only",
    "paus",
    "permi",
    "polic",
    "prohibit",
    "refus",
    "reject",
    "restrict",
    "sandbox",
    "skip",
    "status",
    "suspend",
    "tool",
    "trust",
    "whitelist",
];

/// Values of variables, by the way in which they are referred to.
pub(super) struct Variables<'a> {
    pub(super) braced: &'a dyn Fn(&str) -> Option<String>,
    pub(super) bare: &'a dyn Fn(&str) -> Option<String>,
}

pub(super) fn spec(
    name: &str,
    entry: &Value,
    variables: &Variables<'_>,
    warnings: &mut Vec<String>,
) -> Result<UpstreamSpec, String> {
    let Value::Object(entry) = entry else {
        return Err("it is no object".to_owned());
    };
    if name.trim().is_empty() {
        return Err("it has no name".to_owned());
    }
    let expanded = |text: &str| expand(text, variables);
    let text = |key: &str| -> Result<Option<String>, String> {
        match entry.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => expanded(text).map(Some),
            Some(_) => Err(format!("`{key}` is no text")),
        }
    };
    let pairs = |key: &str| -> Result<Vec<(String, String)>, String> {
        let empty = Map::new();
        let map = match entry.get(key) {
            None | Some(Value::Null) => &empty,
            Some(Value::Object(map)) => map,
            Some(_) => return Err(format!("`{key}` is no object")),
        };
        let pair = |(name, value): (&String, &Value)| match value {
            Value::String(text) => Ok((name.clone(), expanded(text)?)),
            Value::Number(_) | Value::Bool(_) => Ok((name.clone(), value.to_string())),
            _ => Err(format!("`{key}.{name}` is no text")),
        };
        map.iter().map(pair).collect()
    };
    for (key, secret) in [("env", entry.get("env")), ("headers", entry.get("headers"))] {
        for (variable, value) in secret.and_then(Value::as_object).into_iter().flatten() {
            if looks_secret(variable)
                && value
                    .as_str()
                    .is_some_and(|it| !it.is_empty() && !it.contains('$'))
            {
                warnings.push(format!(
                    "`{name}.{key}.{variable}` looks like a secret that is written out"
                ));
            }
        }
    }
    let kind = match text("transport")? {
        Some(kind) => Some(kind),
        None => text("type")?,
    };
    let command = text("command")?.filter(|it| !it.is_empty());
    let url = match text("url")? {
        Some(url) => Some(url),
        None => match text("serverUrl")? {
            Some(url) => Some(url),
            None => text("httpUrl")?,
        },
    };
    if command.is_some() && url.is_some() {
        return Err("it has both `command` and `url`: which of them is meant?".to_owned());
    }
    let (is_child, transport) = match kind.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None => (command.is_some(), HttpTransport::Detect),
        Some("stdio" | "local") => (true, HttpTransport::Detect),
        Some("sse") => (false, HttpTransport::Sse),
        Some("http" | "streamable_http" | "streamable-http" | "streamablehttp") => {
            (false, HttpTransport::Streamable)
        }
        Some("ws" | "websocket" | "remote") => (false, HttpTransport::Detect),
        Some(other) => return Err(format!("the transport `{other}` is unknown")),
    };
    let reach = if is_child {
        let arguments = match entry.get("args") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(items)) => items
                .iter()
                .map(|it| expanded(it.as_str().ok_or("`args` has something that is no text")?))
                .collect::<Result<_, String>>()?,
            Some(_) => return Err("`args` is no list".to_owned()),
        };
        Reach::Child {
            program: command.ok_or("it has no `command`")?,
            arguments,
            environment: pairs("env")?,
            directory: text("cwd")?.map(PathBuf::from),
        }
    } else {
        let url = url.ok_or(match kind {
            Some(_) => "it has no `url`",
            None => "it has neither `command` nor `url`",
        })?;
        let schemes = ["http://", "https://", "ws://", "wss://"];
        if !schemes.iter().any(|it| url.starts_with(it)) {
            return Err("its `url` does not begin with http, https, ws or wss".to_owned());
        }
        let mut headers = HeaderMap::new();
        for (name, value) in pairs("headers")? {
            let name: HeaderName = name
                .parse()
                .map_err(|_| format!("`{name}` is no name of a header"))?;
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| format!("the header `{name}` has a value that headers cannot have"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        Reach::Url {
            url,
            headers,
            transport,
        }
    };
    let mut spec = UpstreamSpec::new(name, reach);
    match entry.get("timeout") {
        None | Some(Value::Null) => {}
        Some(Value::Number(seconds))
            if seconds
                .as_f64()
                .is_some_and(|it| (1.0..=86_400.0).contains(&it)) =>
        {
            spec.timeout = Duration::from_secs_f64(seconds.as_f64().unwrap_or(60.0));
        }
        Some(_) => return Err("`timeout` is no number of seconds from 1 to 86400".to_owned()),
    }
    spec.allow = patterns(entry, &ALLOWING)?;
    let is_given = |key: &&&str| entry.get(**key).is_some_and(|it| !it.is_null());
    let mut allowing = ALLOWING.iter().filter(is_given);
    if let (Some(one), Some(other)) = (allowing.next(), allowing.next()) {
        return Err(format!(
            "`{one}` and `{other}` both say which tools may be used: keep one of the two"
        ));
    }
    if let Some(key) = ALLOWING
        .iter()
        .find(|it| entry.get(**it).is_some_and(is_empty))
    {
        return Err(format!("`{key}` is empty, so that no tool may be used"));
    }
    spec.deny = patterns(entry, &DENYING)?;
    for key in entry.keys().filter(|it| !is_known(it)) {
        let meant = meant(key);
        if may_restrict(key) || meant.is_some_and(restricts) {
            let cure = match meant {
                Some(meant) => format!("did you mean `{meant}`? Otherwise configure the server"),
                None => "configure the server".to_owned(),
            };
            return Err(format!(
                "`{key}` is not known here, and may restrict what is offered: {cure} under `upstreams`"
            ));
        }
        let hint = meant.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
        warnings.push(format!(
            "`{name}.{key}` is not known here, and has no effect{hint}"
        ));
    }
    let flag = |key: &str| match entry.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(format!("`{key}` is neither true nor false")),
    };
    spec.enabled = flag("enabled")?.unwrap_or(true)
        && flag("isActive")?.unwrap_or(true)
        && !flag("disabled")?.unwrap_or(false);
    Ok(spec)
}

/// True for a member that has an effect on what is offered.
fn restricts(key: &str) -> bool {
    SWITCHES.contains(&key) || ALLOWING.contains(&key) || DENYING.contains(&key)
}

fn is_known(key: &str) -> bool {
    KNOWN.contains(&key) || restricts(key)
}

/// True for an unknown member whose name is that of a restriction.
fn may_restrict(key: &str) -> bool {
    let plain = plain_key(key);
    RESTRICTING.iter().any(|it| plain.contains(it))
}

/// The known member that `key` probably is a misspelling of.
fn meant(key: &str) -> Option<&'static str> {
    let known = SWITCHES.iter().chain(&ALLOWING).chain(&DENYING);
    let known: Vec<_> = known.chain(&KNOWN).map(|it| (plain_key(it), *it)).collect();
    let mut plain = known.iter().map(|(plain, _)| plain.as_str());
    let nearest = nearest_of(&plain_key(key), &mut plain)?;
    let found = known.iter().find(|(plain, _)| plain == nearest);
    found.map(|(_, it)| *it)
}

/// A name of a member without what differs between spellings of the same words.
fn plain_key(key: &str) -> String {
    key.replace(['-', '_'], "").to_lowercase()
}

fn is_empty(list: &Value) -> bool {
    list.as_array().is_some_and(Vec::is_empty)
}

/// Names of tools that members of an entry list, as patterns.
fn patterns(entry: &Map<String, Value>, keys: &[&str]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for key in keys {
        match entry.get(*key) {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                for item in items {
                    let text = item.as_str();
                    let text =
                        text.ok_or_else(|| format!("`{key}` has something that is no text"))?;
                    found.push(text.to_owned());
                }
            }
            Some(_) => return Err(format!("`{key}` is no list")),
        }
    }
    Ok(found)
}

fn looks_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "AUTHORIZATION"]
        .iter()
        .any(|it| name.contains(it))
}

/// `text` with `${NAME}`, `${env:NAME}` and `${NAME:-default}` replaced, and `$NAME` where it is set.
fn expand(text: &str, variables: &Variables<'_>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(inside) = rest.strip_prefix('{') {
            let (inside, after) = inside.split_once('}').ok_or("a `${` is not closed")?;
            let (name, default) = match inside.split_once(":-") {
                Some((name, default)) => (name, Some(default)),
                None => (inside, None),
            };
            let name = name.strip_prefix("env:").unwrap_or(name);
            let value = (variables.braced)(name).or_else(|| default.map(str::to_owned));
            out.push_str(&value.ok_or_else(|| format!("`${{{name}}}` is not set"))?);
            rest = after;
        } else {
            let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
            let end = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
            match (variables.bare)(&rest[..end]).filter(|_| 0 < end) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push('$');
                    out.push_str(&rest[..end]);
                }
            }
            rest = &rest[end..];
        }
    }
    out.push_str(rest);
    Ok(out)
}
