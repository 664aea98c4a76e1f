//! Words of texts and names, as the search compares them.

/// Words that say nothing about a tool.
const IDLE: &[&str] = &[
    "a", "all", "an", "and", "any", "are", "as", "at", "be", "by", "can", "do", "for", "from",
    "how", "i", "if", "in", "is", "it", "its", "me", "my", "of", "on", "or", "that", "the", "this",
    "to", "tool", "tools", "use", "used", "using", "want", "we", "what", "which", "will", "with",
    "you",
];

/// Hands over each word of a text. A name is cut at `_`, `-`, `.`, `/` and between `camelCase`, and handed over
/// whole besides, where it was cut at a change of case. Text without spaces between its words, such as Chinese, is
/// handed over in pairs of characters.
pub(super) fn words(text: &str, mut take: impl FnMut(&str)) {
    let mut word = String::new();
    for run in text.split(|it: char| !it.is_alphanumeric()) {
        let mut rest = run;
        while let Some(first) = rest.chars().next() {
            let dense = is_dense(first);
            let end = rest.find(|it| is_dense(it) != dense).unwrap_or(rest.len());
            let (part, after) = rest.split_at(end);
            rest = after;
            match dense {
                true => pairs(part, &mut take),
                false => parts(part, &mut word, &mut take),
            }
        }
    }
}

/// True for letters of scripts that put no spaces between words.
fn is_dense(it: char) -> bool {
    matches!(it, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}')
}

fn pairs(text: &str, take: &mut impl FnMut(&str)) {
    let mut places = text.char_indices().map(|(at, _)| at).chain([text.len()]);
    let (Some(mut first), Some(mut second)) = (places.next(), places.next()) else {
        return;
    };
    let mut is_alone = true;
    for third in places {
        take(&text[first..third]);
        (first, second, is_alone) = (second, third, false);
    }
    if is_alone {
        take(&text[first..second]);
    }
}

/// The parts of a word in which the case changes, and the word.
fn parts(text: &str, word: &mut String, take: &mut impl FnMut(&str)) {
    let mut begin = 0;
    let mut before: Option<char> = None;
    let mut letters = text.char_indices().peekable();
    while let Some((at, letter)) = letters.next() {
        let next_is_lower = letters.peek().is_some_and(|(_, it)| it.is_lowercase());
        let changes =
            before.is_some_and(|it| letter.is_uppercase() && (!it.is_uppercase() || next_is_lower));
        if changes {
            stemmed(&text[begin..at], word, take);
            begin = at;
        }
        before = Some(letter);
    }
    if begin != 0 {
        stemmed(&text[begin..], word, take);
    }
    stemmed(text, word, take);
}

fn stemmed(text: &str, word: &mut String, take: &mut impl FnMut(&str)) {
    word.clear();
    word.extend(text.chars().flat_map(char::to_lowercase));
    if IDLE.binary_search(&word.as_str()).is_err() {
        stem(word);
        take(word);
    }
}

/// Takes endings off, so that `issues`, `issue` and `creating`, `create` are the same. What is left need not be a
/// word.
fn stem(word: &mut String) {
    if !word.is_ascii() || word.len() < 4 {
        return;
    }
    let ends = |word: &str, with: &str| word.ends_with(with);
    if ends(word, "ies") && 4 < word.len() {
        word.truncate(word.len() - 3);
        word.push('y');
    } else if ["ches", "shes", "sses", "xes", "zes"]
        .iter()
        .any(|it| ends(word, it))
    {
        word.truncate(word.len() - 2);
    } else if ends(word, "s") && !["ss", "us", "is"].iter().any(|it| ends(word, it)) {
        word.truncate(word.len() - 1);
    }
    let cut = match () {
        () if ends(word, "ing") && 5 < word.len() => 3,
        () if ends(word, "ed") && 4 < word.len() => 2,
        () => 0,
    };
    word.truncate(word.len() - cut);
    let bytes = word.as_bytes();
    if 0 < cut
        && 3 < bytes.len()
        && bytes[bytes.len() - 1] == bytes[bytes.len() - 2]
        && bytes[bytes.len() - 1] != b's'
    {
        word.truncate(word.len() - 1);
    }
    if ends(word, "e") && 4 < word.len() {
        word.truncate(word.len() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<String> {
        let mut all = Vec::new();
        words(text, |word| all.push(word.to_owned()));
        all
    }

    #[test]
    fn names_are_cut_at_marks_and_at_changes_of_case() {
        assert!(IDLE.is_sorted());
        let rows: [(&str, &[&str]); 8] = [
            ("create_issue", &["creat", "issu"]),
            ("createIssue", &["creat", "issu", "createissu"]),
            (
                "mcp.docs-read/HTTPServer2",
                &["mcp", "doc", "read", "http", "server2", "httpserver2"],
            ),
            ("Creating the issues", &["creat", "issu"]),
            ("queries query", &["query", "query"]),
            ("running searches", &["run", "search"]),
            ("查询库存 now", &["查询", "询库", "库存", "now"]),
            ("a", &[]),
        ];
        for (text, expected) in rows {
            assert_eq!(all(text), expected, "{text}");
        }
        assert_eq!(all("单"), ["单"]);
    }
}
