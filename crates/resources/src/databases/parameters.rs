//! Named parameters of queries for `PostgreSQL`, which has numbers.

/// A query with `$1`, `$2`, … in place of `:name`, and the names in that order.
///
/// Texts, quoted names, comments and casts (`::`) are left alone; so is whatever else begins with a colon.
pub(crate) fn numbered(sql: &str) -> (String, Vec<String>) {
    let bytes = sql.as_bytes();
    let mut out = String::new();
    let mut names: Vec<String> = Vec::new();
    let mut copied = 0;
    let mut at = 0;
    while at < bytes.len() {
        at = match bytes[at] {
            quote @ (b'\'' | b'"') => end_of_quoted(bytes, at, quote),
            b'-' if bytes[at..].starts_with(b"--") => {
                let end = bytes[at..].iter().position(|it| *it == b'\n');
                end.map_or(bytes.len(), |it| at + it)
            }
            b'/' if bytes[at..].starts_with(b"/*") => end_of_comment(bytes, at),
            b'$' if at == 0 || !is_name(bytes[at - 1]) => end_of_dollars(sql, at).unwrap_or(at + 1),
            b':' if bytes.get(at + 1) == Some(&b':') => at + 2,
            b':' => {
                let length = bytes[at + 1..].iter().take_while(|it| is_name(**it));
                let end = at + 1 + length.count();
                let is_parameter = bytes
                    .get(at + 1)
                    .is_some_and(|it| it.is_ascii_alphabetic() || *it == b'_');
                if is_parameter {
                    let name = &sql[at + 1..end];
                    let known = names.iter().position(|it| it == name);
                    let number = known.unwrap_or_else(|| {
                        names.push(name.to_owned());
                        names.len() - 1
                    });
                    out += &sql[copied..at];
                    out += &format!("${}", number + 1);
                    copied = end;
                }
                end
            }
            _ => at + 1,
        };
    }
    out += &sql[copied..];
    (out, names)
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A quote is doubled inside; in texts that begin with `E`, a backslash hides what follows.
fn end_of_quoted(bytes: &[u8], start: usize, quote: u8) -> usize {
    let before = |back: usize| start.checked_sub(back).map(|it| bytes[it]);
    let has_escapes =
        quote == b'\'' && matches!(before(1), Some(b'e' | b'E')) && !before(2).is_some_and(is_name);
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if has_escapes => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Comments are nested.
fn end_of_comment(bytes: &[u8], start: usize) -> usize {
    let mut depth = 0;
    let mut at = start;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// End of a text between `$tag$` and `$tag$`, if one begins here.
fn end_of_dollars(sql: &str, start: usize) -> Option<usize> {
    let length = sql[start + 1..].find('$')?;
    let tag = &sql[start..start + length + 2];
    let name = &tag[1..tag.len() - 1];
    let is_tag = name.bytes().all(|it| is_name(it) || !it.is_ascii())
        && !name.starts_with(|it: char| it.is_ascii_digit());
    if !is_tag {
        return None;
    }
    let body = start + tag.len();
    Some(
        sql[body..]
            .find(tag)
            .map_or(sql.len(), |it| body + it + tag.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_numbers_where_they_are_parameters() {
        for (sql, expected, names) in [
            ("SELECT :a", "SELECT $1", &["a"][..]),
            ("SELECT :a, :b, :a", "SELECT $1, $2, $1", &["a", "b"]),
            ("SELECT :a::int", "SELECT $1::int", &["a"]),
            ("SELECT x::text", "SELECT x::text", &[]),
            ("SELECT ':a', \":b\"", "SELECT ':a', \":b\"", &[]),
            ("SELECT 'it''s :a', :b", "SELECT 'it''s :a', $1", &["b"]),
            ("SELECT E'\\':a', :b", "SELECT E'\\':a', $1", &["b"]),
            // A backslash is nothing special in other texts, not even after a name that ends in `e`.
            ("SELECT '\\', :a", "SELECT '\\', $1", &["a"]),
            ("SELECT name'\\', :a", "SELECT name'\\', $1", &["a"]),
            ("SELECT 1 -- :a\n, :b", "SELECT 1 -- :a\n, $1", &["b"]),
            (
                "SELECT /* :a /* :b */ :c */ :d",
                "SELECT /* :a /* :b */ :c */ $1",
                &["d"],
            ),
            ("SELECT $$ :a $$, :b", "SELECT $$ :a $$, $1", &["b"]),
            (
                "SELECT $x$ $$ :a $x$, :b",
                "SELECT $x$ $$ :a $x$, $1",
                &["b"],
            ),
            ("SELECT a[1:2], :b", "SELECT a[1:2], $1", &["b"]),
            ("SELECT 'open :a", "SELECT 'open :a", &[]),
            ("SELECT 'é', :é, :a", "SELECT 'é', :é, $1", &["a"]),
        ] {
            let names: Vec<_> = names.iter().map(|it| (*it).to_owned()).collect();
            assert_eq!(numbered(sql), (expected.to_owned(), names), "{sql}");
        }
    }
}
