//! Words of queries and of texts.

/// The most words of a query; what follows is not looked for.
const MAX_WORDS: usize = 16;

/// True of characters of scripts that are written without spaces: each is a word of its own.
fn is_alone(character: char) -> bool {
    matches!(character as u32,
        0x0E00..=0x0EFF | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x3400..=0x4DBF | 0x4E00..=0x9FFF
        | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0x20000..=0x3134F)
}

/// A text with spaces where words end that are written without.
pub(crate) fn spaced(text: &str) -> String {
    if !text.chars().any(is_alone) {
        return text.to_owned();
    }
    let mut spaced = String::with_capacity(text.len() * 2);
    let mut before = None;
    for character in text.chars() {
        let is_between = |before: char| {
            (is_alone(before) || is_alone(character))
                && !before.is_whitespace()
                && !character.is_whitespace()
        };
        if before.is_some_and(is_between) {
            spaced.push('\u{200A}');
        }
        spaced.push(character);
        before = Some(character);
    }
    spaced
}

/// The text before [`spaced`]: hair spaces are where it has put them.
pub(crate) fn unspaced(text: &str) -> String {
    text.replace('\u{200A}', "")
}

/// A query, as expressions of FTS5: documents with all words, and with any of them. Each word is a string in there, so
/// nothing of a query is an operator. `None` if there is no word.
pub(crate) fn expressions(query: &str) -> Option<(String, String)> {
    let mut words: Vec<(String, bool)> = Vec::new();
    for (number, part) in query.split('"').enumerate() {
        // Between quotes words belong together.
        let is_phrase = number % 2 == 1;
        let parts: Vec<_> = match is_phrase {
            true => vec![part],
            false => part.split_whitespace().collect(),
        };
        for part in parts {
            let inner: Vec<String> = spaced(part)
                .split(|it: char| !it.is_alphanumeric())
                .filter(|it| !it.is_empty())
                .map(str::to_owned)
                .collect();
            if !inner.is_empty() {
                // A star at the end of a word stands for any other end.
                words.push((inner.join(" "), !is_phrase && part.ends_with('*')));
            }
        }
    }
    words.truncate(MAX_WORDS);
    if words.is_empty() {
        return None;
    }
    let strings = words.iter().map(|(word, is_beginning)| {
        let star = if *is_beginning { "*" } else { "" };
        format!("\"{word}\"{star}")
    });
    let strings: Vec<_> = strings.collect();
    Some((strings.join(" AND "), strings.join(" OR ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_become_strings_and_never_operators() {
        for (query, expected) in [
            ("refund", Some("\"refund\"")),
            ("refund* policy", Some("\"refund\"* AND \"policy\"")),
            ("refund policy ", Some("\"refund\" AND \"policy\"")),
            (
                "\"refund policy\" gifts",
                Some("\"refund policy\" AND \"gifts\""),
            ),
            (
                "a OR b NOT c*",
                Some("\"a\" AND \"OR\" AND \"b\" AND \"NOT\" AND \"c\"*"),
            ),
            (
                "name:x NEAR(a b)",
                Some("\"name x\" AND \"NEAR a\" AND \"b\""),
            ),
            ("x\" OR 1=1 --", Some("\"x\" AND \"OR 1 1\"")),
            (
                "'; DROP TABLE document; --",
                Some("\"DROP\" AND \"TABLE\" AND \"document\""),
            ),
            ("交易监控", Some("\"交 易 监 控\"")),
            ("{}[]^*-+()", None),
            ("\"\"", None),
            ("", None),
        ] {
            let found = expressions(query).map(|(all, _)| all);
            assert_eq!(found.as_deref(), expected, "{query}");
        }
        let long = "word ".repeat(1_000);
        assert_eq!(
            expressions(&long).unwrap().0.matches("AND").count(),
            MAX_WORDS - 1
        );
    }

    #[test]
    fn spaces_that_were_put_in_go_again() {
        for text in ["交易监控 and more", "plain", "ทดสอบ", "a交b", "交 易"] {
            assert_eq!(unspaced(&spaced(text)), text);
        }
    }
}
