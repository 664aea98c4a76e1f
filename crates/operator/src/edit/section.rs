//! One section below `mcp_server` in the text of a configuration: its lines by themselves, and other lines in their
//! place. All around them stays as it is, and so do comments within them.

use super::yaml::{Block, behind, block, indent, is_empty_map};

/// Lines of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Section {
    /// The lines below its head, without their indentation; empty where the section is empty or absent.
    pub(crate) text: String,
    /// Number of the line in the file, from 1, that the first of them is.
    pub(crate) first_line: usize,
    /// Columns by which they are indented.
    pub(crate) column: usize,
}

/// Place of a section, or the place that it would have.
enum Place {
    /// The block, and the column of its lines.
    Block(Block, usize),
    /// The line of a head with nothing or `{}` behind it.
    Head(usize),
    /// Nowhere: it would come before this line.
    Absent(usize, usize),
}

fn place(lines: &[&str], key: &str) -> Result<Place, String> {
    if lines.iter().any(|it| it.starts_with('\t')) {
        return Err("it is indented by tabs".to_owned());
    }
    let root = block(lines, (0, lines.len()), 0, "mcp_server");
    let (root, rest) = root.ok_or("it has no `mcp_server:` at the beginning of a line")?;
    if !rest.is_empty() {
        return Err("`mcp_server` is not written as a block of lines".to_owned());
    }
    let column = root.inner.unwrap_or(2);
    match block(lines, (root.head + 1, root.end), column, key) {
        None => Ok(Place::Absent(root.end, column)),
        Some((found, rest)) if rest.is_empty() => match found.inner {
            Some(inner) => Ok(Place::Block(found, inner)),
            None => Ok(Place::Head(found.head)),
        },
        Some((found, rest)) if is_empty_map(&rest) => Ok(Place::Head(found.head)),
        Some(_) => Err(format!("`{key}` is not written as a block of lines")),
    }
}

/// The section called `key`. The error says why it cannot be told apart from the rest.
pub(crate) fn section(text: &str, key: &str) -> Result<Section, String> {
    let lines: Vec<&str> = text.lines().collect();
    Ok(match place(&lines, key)? {
        Place::Block(found, column) => Section {
            text: lines[found.head + 1..found.end]
                .iter()
                .map(|line| {
                    let spaces = line.len() - line.trim_start_matches(' ').len();
                    format!("{}\n", line[spaces.min(column)..].trim_end())
                })
                .collect(),
            first_line: found.head + 2,
            column,
        },
        Place::Head(head) => Section {
            text: String::new(),
            first_line: head + 2,
            column: indent(lines[head]).unwrap_or_default() + 2,
        },
        Place::Absent(at, column) => Section {
            text: String::new(),
            first_line: at + 2,
            column: column + 2,
        },
    })
}

/// The text with `new` as the lines of the section called `key`. The error says why it cannot be edited.
pub(crate) fn with_section(text: &str, key: &str, new: &str) -> Result<String, String> {
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let lines: Vec<&str> = text.lines().collect();
    let is_empty = new.lines().all(|line| indent(line).is_none());
    let column = section(text, key)?.column;
    let below = |line: &str| match line.trim_end() {
        "" => String::new(),
        line => format!("{:column$}{line}", ""),
    };
    let new: Vec<String> = new.lines().map(below).collect();
    let owned = |lines: &[&str]| lines.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
    let (mut kept, rest) = match place(&lines, key)? {
        Place::Block(found, _) => (owned(&lines[..=found.head]), found.end),
        Place::Head(head) => (owned(&lines[..=head]), head + 1),
        Place::Absent(at, indentation) => {
            let mut kept = owned(&lines[..at]);
            kept.push(format!("{:indentation$}{key}:", ""));
            (kept, at)
        }
    };
    // A head without lines would be null, which is refused.
    if let Some(head) = kept.last_mut() {
        let has_braces = behind(head, key).is_some_and(is_empty_map);
        match (is_empty, has_braces) {
            (true, false) => *head = head.replacen(':', ": {}", 1),
            (false, true) => *head = head.replacen("{}", "", 1).trim_end().to_owned(),
            _ => {}
        }
    }
    kept.extend(new);
    kept.extend(owned(&lines[rest..]));
    Ok(kept.join(newline) + newline)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# mine\nmcp_server:\n  app: x  # why\n  governance:\n    # who may what\n    confirm: [a]\n\n    tools:\n      a: {risk: [financial]}\n  # the next\n  http: {port: 1}\n";

    #[test]
    fn a_section_is_read_and_put_back_to_the_byte() {
        let found = section(FILE, "governance").unwrap();
        assert_eq!(
            found.text,
            "# who may what\nconfirm: [a]\n\ntools:\n  a: {risk: [financial]}\n"
        );
        assert_eq!((found.first_line, found.column), (5, 4));
        assert_eq!(with_section(FILE, "governance", &found.text).unwrap(), FILE);
        let windows = FILE.replace('\n', "\r\n");
        assert_eq!(section(&windows, "governance").unwrap(), found);
        assert_eq!(
            with_section(&windows, "governance", &found.text).unwrap(),
            windows
        );
    }

    #[test]
    fn all_around_other_lines_stays_as_it_is() {
        let changed = with_section(FILE, "governance", "# none\nconfirm: []\n").unwrap();
        let expected = "# mine\nmcp_server:\n  app: x  # why\n  governance:\n    # none\n    confirm: []\n  # the next\n  http: {port: 1}\n";
        assert_eq!(changed, expected);
        let empty = with_section(FILE, "governance", "").unwrap();
        assert!(
            empty.contains("\n  governance: {}\n  # the next"),
            "{empty}"
        );
        assert_eq!(section(&empty, "governance").unwrap().text, "");
        let again = with_section(&empty, "governance", "confirm: []").unwrap();
        assert!(
            again.contains("\n  governance:\n    confirm: []\n  # the next"),
            "{again}"
        );
        let absent = "mcp_server:\n  app: x\n";
        assert_eq!(section(absent, "governance").unwrap().first_line, 4);
        assert_eq!(
            with_section(absent, "governance", "confirm: []").unwrap(),
            "mcp_server:\n  app: x\n  governance:\n    confirm: []\n"
        );
    }

    #[test]
    fn what_is_no_block_is_refused() {
        for text in [
            "{\"mcp_server\": {}}",
            "mcp_server: {governance: {}}\n",
            "mcp_server:\n  governance: {confirm: [a]}\n",
            "mcp_server:\n  governance: &rules\n    confirm: [a]\n",
            "servers: {}\n",
        ] {
            assert!(section(text, "governance").is_err(), "{text}");
            assert!(
                with_section(text, "governance", "confirm: []").is_err(),
                "{text}"
            );
        }
    }
}
