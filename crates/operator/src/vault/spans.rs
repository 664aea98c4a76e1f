//! Strings of a JSON text with comments, and their places, so that a few can be replaced and all else stays.

use std::ops::Range;

/// A string that is a value.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text {
    /// Names and indices that lead to it.
    pub(super) path: Vec<String>,
    /// Place of the literal, quotation marks included.
    pub(super) place: Range<usize>,
    /// Content of the string.
    pub(super) said: String,
}

/// All strings that are values, in their order; `None` if the text is not JSON with comments.
pub(super) fn strings(text: &str) -> Option<Vec<Text>> {
    let mut reader = Reader {
        text,
        at: 0,
        path: Vec::new(),
        found: Vec::new(),
    };
    if text.starts_with('\u{feff}') {
        reader.at = '\u{feff}'.len_utf8();
    }
    reader.value(0)?;
    reader.skip();
    (reader.at == text.len()).then_some(reader.found)
}

/// Deeper nesting is refused.
const MAX_DEPTH: usize = 64;

struct Reader<'t> {
    text: &'t str,
    at: usize,
    path: Vec<String>,
    found: Vec<Text>,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Goes over white space and comments.
    fn skip(&mut self) {
        loop {
            let rest = self.rest();
            let length = match rest.as_bytes() {
                [byte, ..] if byte.is_ascii_whitespace() => 1,
                [b'/', b'/', ..] => rest.find('\n').unwrap_or(rest.len()),
                [b'/', b'*', ..] => match rest[2..].find("*/") {
                    Some(end) => end + 4,
                    None => return,
                },
                _ => return,
            };
            self.at += length;
        }
    }

    fn took(&mut self, sign: u8) -> bool {
        self.skip();
        let is_there = self.rest().as_bytes().first() == Some(&sign);
        self.at += usize::from(is_there);
        is_there
    }

    fn string(&mut self) -> Option<(Range<usize>, String)> {
        self.skip();
        let start = self.at;
        let bytes = self.text.as_bytes();
        if bytes.get(start) != Some(&b'"') {
            return None;
        }
        let mut end = start + 1;
        loop {
            match bytes.get(end)? {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        self.at = end + 1;
        let place = start..self.at;
        let said = serde_json::from_str(self.text.get(place.clone())?).ok()?;
        Some((place, said))
    }

    fn value(&mut self, depth: usize) -> Option<()> {
        if MAX_DEPTH < depth {
            return None;
        }
        self.skip();
        match self.rest().as_bytes().first()? {
            b'"' => {
                let (place, said) = self.string()?;
                let path = self.path.clone();
                self.found.push(Text { path, place, said });
                Some(())
            }
            b'{' => self.members(b'}', depth),
            b'[' => self.members(b']', depth),
            _ => {
                let is_plain = |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it);
                let rest = self.rest();
                let length = rest.find(|it| !is_plain(it)).unwrap_or(rest.len());
                self.at += length;
                (length != 0).then_some(())
            }
        }
    }

    fn members(&mut self, end: u8, depth: usize) -> Option<()> {
        self.at += 1;
        for index in 0.. {
            if self.took(end) {
                return Some(());
            }
            let name = match end {
                b'}' => {
                    let (_, name) = self.string()?;
                    self.took(b':').then_some(name)?
                }
                _ => format!("{index}"),
            };
            self.path.push(name);
            self.value(depth + 1)?;
            self.path.pop();
            if !self.took(b',') {
                return self.took(end).then_some(());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_found_with_their_paths_among_comments() {
        let text = "\u{feff}{ // \"no\"\n \"a\": {\"b\": \"x\\\"y\", /* \"no\" */ \"c\": [1, \"z\", true,],},}";
        let found = strings(text).unwrap();
        let said: Vec<_> = found
            .iter()
            .map(|it| (it.path.join("."), it.said.as_str(), &text[it.place.clone()]))
            .collect();
        assert_eq!(
            said,
            [
                ("a.b".to_owned(), "x\"y", "\"x\\\"y\""),
                ("a.c.1".to_owned(), "z", "\"z\"")
            ]
        );
        for wrong in [
            "",
            "{",
            "{\"a\"}",
            "[1,",
            "{\"a\":\"b}",
            "[] x",
            "\"\\",
            "{\"a\" \"b\"}",
        ] {
            assert_eq!(strings(wrong), None, "{wrong}");
        }
        assert_eq!(strings(&"[".repeat(1_000)), None);
    }
}
