//! Minimal edits of `mcp_server: upstreams:` in the text of a configuration: lines are added or taken out, and
//! all others stay as they are. Files that are not written in block style are refused.

use serde_json::Value;

/// The keys of an entry in the order in which they are written; others come behind them.
const KEYS: [&str; 8] = [
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "transport",
    "allow",
];

/// Column of the text of a line; `None` for a comment and an empty line.
pub(super) fn indent(line: &str) -> Option<usize> {
    let text = line.trim_start_matches(' ');
    match text.trim_end().is_empty() || text.starts_with('#') {
        true => None,
        false => Some(line.len() - text.len()),
    }
}

/// The text behind the key of a line, without a comment; `None` if the line has another key.
pub(super) fn behind<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let line = line.trim_start_matches(' ').trim_end();
    let quoted = [key.to_owned(), format!("\"{key}\""), format!("'{key}'")];
    let rest = quoted
        .iter()
        .find_map(|it| line.strip_prefix(it.as_str()))?;
    let rest = rest.trim_start().strip_prefix(':')?;
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    let rest = rest.trim_start();
    Some(if rest.starts_with('#') { "" } else { rest })
}

/// Lines of a block: its head and the lines below it that belong to it, the last that is no comment and not
/// empty being the last.
pub(super) struct Block {
    pub(super) head: usize,
    pub(super) end: usize,
    /// Column of what is in it.
    pub(super) inner: Option<usize>,
}

/// The block of `key` at the column `column`, among the lines from `from` to before `to`.
pub(super) fn block(
    lines: &[&str],
    (from, to): (usize, usize),
    column: usize,
    key: &str,
) -> Option<(Block, String)> {
    let head = (from..to)
        .find(|&at| indent(lines[at]) == Some(column) && behind(lines[at], key).is_some())?;
    let rest = behind(lines[head], key)?.to_owned();
    let mut end = head + 1;
    let mut inner = None;
    for (at, line) in lines.iter().enumerate().take(to).skip(head + 1) {
        match indent(line) {
            None => {}
            Some(found) if found <= column => break,
            Some(found) => {
                inner.get_or_insert(found);
                end = at + 1;
            }
        }
    }
    Some((Block { head, end, inner }, rest))
}

/// The text with an entry more. The error says why it cannot be edited.
pub(super) fn with_entry(text: &str, name: &str, value: &Value) -> Result<String, String> {
    if text.contains('\t') && text.lines().any(|it| it.starts_with('\t')) {
        return Err("it is indented by tabs".to_owned());
    }
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let lines: Vec<&str> = text.lines().collect();
    let all = (0, lines.len());
    let (at, new) = match block(&lines, all, 0, "mcp_server") {
        None if lines
            .iter()
            .all(|it| indent(it).is_none() || it.trim() == "---") =>
        {
            (
                lines.len(),
                format!("mcp_server:\n  upstreams:\n{}", entry(name, value, 4)),
            )
        }
        None => return Err("it has no `mcp_server:` at the beginning of a line".to_owned()),
        Some((_, rest)) if !rest.is_empty() => {
            return Err("`mcp_server` is not written as a block of lines".to_owned());
        }
        Some((root, _)) => {
            let column = root.inner.unwrap_or(2);
            match block(&lines, (root.head + 1, root.end), column, "upstreams") {
                None => {
                    let head = format!("{:column$}upstreams:\n", "");
                    let at = behind_comments(&lines, root.end);
                    (at, head + &entry(name, value, column + 2))
                }
                Some((upstreams, rest)) if is_empty_map(&rest) => {
                    // The braces make place for lines.
                    let line = lines[upstreams.head].replacen("{}", "", 1);
                    let mut kept: Vec<String> = lines.iter().map(|it| (*it).to_owned()).collect();
                    line.trim_end().clone_into(&mut kept[upstreams.head]);
                    let text = kept.join("\n") + "\n";
                    return with_entry(&text, name, value).map(|it| it.replace('\n', newline));
                }
                Some((_, rest)) if !rest.is_empty() => {
                    return Err("`upstreams` is not written as a block of lines".to_owned());
                }
                Some((upstreams, _)) => {
                    let column = upstreams.inner.unwrap_or(column + 2);
                    (upstreams.end, entry(name, value, column))
                }
            }
        }
    };
    let mut kept: Vec<&str> = lines[..at].to_vec();
    kept.extend(new.lines());
    kept.extend(&lines[at..]);
    Ok(kept.join(newline) + newline)
}

/// The line behind the comments at `at` that a blank line or the end follows: keys of the last block that are commented
/// out, which would be those of another block if one came between. Comments of what follows stay with it.
fn behind_comments(lines: &[&str], at: usize) -> usize {
    let behind = lines[at..]
        .iter()
        .take_while(|it| it.trim_start().starts_with('#'));
    let behind = at + behind.count();
    match lines.get(behind) {
        Some(line) if !line.trim().is_empty() => at,
        _ => behind,
    }
}

/// True if a value is `{}`, with a comment or without.
pub(super) fn is_empty_map(rest: &str) -> bool {
    let behind = rest.strip_prefix("{}").map(str::trim_start);
    behind.is_some_and(|it| it.is_empty() || it.starts_with('#'))
}

/// The text without an entry. Comments between entries stay.
pub(super) fn without_entry(text: &str, name: &str) -> Result<String, String> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let lines: Vec<&str> = text.lines().collect();
    let blocks = || "`upstreams` is not written as a block of lines".to_owned();
    let (root, rest) = block(&lines, (0, lines.len()), 0, "mcp_server").ok_or_else(blocks)?;
    let column = root.inner.filter(|_| rest.is_empty()).ok_or_else(blocks)?;
    let range = (root.head + 1, root.end);
    let (upstreams, rest) = block(&lines, range, column, "upstreams").ok_or_else(blocks)?;
    let column = upstreams
        .inner
        .filter(|_| rest.is_empty())
        .ok_or_else(blocks)?;
    let range = (upstreams.head + 1, upstreams.end);
    let (found, _) = block(&lines, range, column, name).ok_or_else(blocks)?;
    let is_last_one = (range.0..range.1)
        .filter(|at| !(found.head..found.end).contains(at))
        .all(|at| indent(lines[at]).is_none());
    let mut kept: Vec<String> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if (found.head..found.end).contains(&at) {
            continue;
        }
        let line = (*line).to_owned();
        kept.push(match is_last_one && at == upstreams.head {
            true => match line.split_once(" #") {
                Some((key, comment)) => format!("{} {{}} #{comment}", key.trim_end()),
                None => format!("{} {{}}", line.trim_end()),
            },
            false => line,
        });
    }
    Ok(kept.join(newline) + newline)
}

/// An entry as lines, from the column `column` on.
pub(super) fn entry(name: &str, value: &Value, column: usize) -> String {
    let mut out = format!("{:column$}{}:\n", "", scalar(name));
    let inner = column + 2;
    let place = |key: &str| KEYS.iter().position(|it| *it == key);
    let mut keys: Vec<_> = value.as_object().into_iter().flatten().collect();
    keys.sort_by_key(|(key, _)| place(key).unwrap_or(KEYS.len()));
    for (key, value) in keys {
        match value {
            Value::Object(pairs) => {
                out += &format!("{:inner$}{key}:\n", "");
                for (key, value) in pairs {
                    let value = value.as_str().unwrap_or_default();
                    let deeper = inner + 2;
                    out += &format!("{:deeper$}{}: {}\n", "", scalar(key), scalar(value));
                }
            }
            Value::Array(items) => {
                let items = items.iter().filter_map(Value::as_str).map(in_list);
                let items: Vec<_> = items.collect();
                out += &format!("{:inner$}{key}: [{}]\n", "", items.join(", "));
            }
            Value::String(text) => out += &format!("{:inner$}{key}: {}\n", "", scalar(text)),
            other => out += &format!("{:inner$}{key}: {other}\n", ""),
        }
    }
    out
}

/// A text as a scalar: as it is where nobody could read it as something else, else in quotes.
fn scalar(text: &str) -> String {
    let legal = |it: char| it.is_ascii_alphanumeric() || "_./@:+=?&-${} ".contains(it);
    let is_plain = text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '/' || it == '$')
        && text.chars().all(legal)
        && !text.ends_with([':', ' '])
        && !text.contains(": ")
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "null" | "true" | "false" | "yes" | "no" | "on" | "off" | "y" | "n"
        );
    match is_plain {
        true => text.to_owned(),
        false => Value::from(text).to_string(),
    }
}

/// The same in a list between brackets.
fn in_list(text: &str) -> String {
    match text.contains(['{', '}', ' ', ':']) {
        true => Value::from(text).to_string(),
        false => scalar(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn time() -> Value {
        json!({"command": "uvx", "args": ["mcp-server-time", "--tz", "*"], "env": {"A": "${B}", "C": "1"}})
    }

    const ENTRY: &str = "    time:\n      command: uvx\n      args: [mcp-server-time, \"--tz\", \"*\"]\n      env:\n        A: ${B}\n        C: \"1\"\n";

    #[test]
    fn an_entry_is_added_and_taken_out_and_nothing_else_changes() {
        let rows = [
            ("", "mcp_server:\n  upstreams:\n@"),
            ("# mine\n", "# mine\nmcp_server:\n  upstreams:\n@"),
            (
                "mcp_server:\n  transport: http  # why\n\n# end\n",
                "mcp_server:\n  transport: http  # why\n  upstreams:\n@\n# end\n",
            ),
            (
                "mcp_server:\n  upstreams:\n    # the first\n    a:\n      command: x # y\n    # below\n  http:\n    port: 1\n",
                "mcp_server:\n  upstreams:\n    # the first\n    a:\n      command: x # y\n@    # below\n  http:\n    port: 1\n",
            ),
            (
                "mcp_server:\n  upstreams: {}  # none\n  http: {port: 1}\n",
                "mcp_server:\n  upstreams:   # none\n@  http: {port: 1}\n",
            ),
            (
                "mcp_server:\n  http:\n    port: 1\n#    host: a\n#  app: b\n\n# end\n",
                "mcp_server:\n  http:\n    port: 1\n#    host: a\n#  app: b\n  upstreams:\n@\n# end\n",
            ),
            (
                "mcp_server:\n  app: x\n# what follows\nother: 1\n",
                "mcp_server:\n  app: x\n  upstreams:\n@# what follows\nother: 1\n",
            ),
            (
                "other: 1\nmcp_server:\n  app: x",
                "other: 1\nmcp_server:\n  app: x\n  upstreams:\n@",
            ),
        ];
        for (before, expected) in rows {
            let after = with_entry(before, "time", &time()).unwrap();
            assert_eq!(after, expected.replace('@', ENTRY), "{before}");
            let again = without_entry(&after, "time").unwrap();
            let rest = expected.replace('@', "");
            let others = rest.contains("    a:");
            match others {
                true => assert_eq!(again, before),
                false => assert!(
                    again.contains("upstreams: {}") || again.contains("upstreams: {} #"),
                    "{again}"
                ),
            }
        }
        let windows = with_entry("mcp_server:\r\n  app: x\r\n", "time", &time()).unwrap();
        assert!(
            windows.lines().count() == windows.matches("\r\n").count(),
            "{windows:?}"
        );
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in [
            "{\"mcp_server\": {}}",
            "mcp_server: {app: x}\n",
            "mcp_server:\n  upstreams: {a: {command: x}}\n",
            "app: x\n",
            "mcp_server:\n\tapp: x\n",
        ] {
            assert!(with_entry(text, "time", &time()).is_err(), "{text}");
        }
        assert!(without_entry("mcp_server:\n  upstreams: {a: {command: x}}\n", "a").is_err());
    }

    #[test]
    fn a_scalar_is_read_as_it_was_meant() {
        for text in [
            "yes", "1", "-y", "*", "a: b", "a #b", "", "~", "é", "'", "a:",
        ] {
            assert!(scalar(text).starts_with('"'), "{text}");
        }
        for text in ["uvx", "https://h/mcp?a=1", "Bearer ${X}", "/usr/bin/x"] {
            assert_eq!(scalar(text), text);
        }
    }
}
