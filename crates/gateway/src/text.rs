//! Texts of upstreams without what nobody sees, and what terminals and models may act on all the same.

use mcp_protocol::{
    RawJson,
    model::{Resource, ResultMeta},
};
use serde_json::Value;
use std::{borrow::Cow, fmt::Write as _};

/// Beginning of the names of metadata that are the server's to use.
pub(crate) const OURS: &str = "io.owlclaw/";

/// Takes out of an upstream's metadata what only this server says.
pub(crate) fn without_ours(meta: &mut ResultMeta) {
    let names = meta.iter().map(|(name, _)| name.to_owned());
    let ours = names.filter(|it| it.starts_with(OURS));
    for name in ours.collect::<Vec<_>>() {
        meta.remove(&name);
    }
}

/// Texts of one answer, with the count of what was taken out of them.
#[derive(Debug, Default)]
pub(crate) struct Cleaner {
    /// False for an upstream whose texts are passed on as they are.
    pub(crate) is_on: bool,
    /// Characters that were taken out.
    pub(crate) taken: usize,
}

impl Cleaner {
    pub(crate) fn new(is_on: bool) -> Self {
        Self { is_on, taken: 0 }
    }

    /// Cleans a text.
    pub(crate) fn text(&mut self, text: &mut String) {
        if self.is_on
            && let Some(clean) = cleaned(text)
        {
            self.taken += text.chars().count() - clean.chars().count();
            *text = clean;
        }
    }

    /// Cleans a text that may be absent.
    pub(crate) fn maybe(&mut self, text: &mut Option<String>) {
        text.iter_mut().for_each(|it| self.text(it));
    }

    /// Cleans the texts of a value; names of members stay.
    pub(crate) fn value(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|it| self.value(it)),
            Value::Object(members) => members.values_mut().for_each(|it| self.value(it)),
            _ => {}
        }
    }

    /// Cleans the texts of JSON; all else of it stays as it is written.
    pub(crate) fn json(&mut self, json: &mut RawJson) {
        if !self.is_on {
            return;
        }
        if let Some(clean) = self.cleaned_json(json.as_str()) {
            *json = RawJson::from_serialized(clean.into_bytes());
        }
    }

    /// Cleans the texts of an item of a list of resources; its name stays.
    pub(crate) fn listed(&mut self, resource: &mut Resource) {
        self.maybe(&mut resource.title);
        self.maybe(&mut resource.description);
        self.maybe(&mut resource.mime_type);
        self.meta(&mut resource.meta);
    }

    /// Cleans the texts of metadata.
    pub(crate) fn meta(&mut self, meta: &mut ResultMeta) {
        meta.values_mut().for_each(|it| self.json(it));
    }

    fn cleaned_json(&mut self, json: &str) -> Option<String> {
        let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
        let escapes = ["\\u", "\\b", "\\f"];
        if json.bytes().all(is_plain) && !escapes.iter().any(|it| json.contains(it)) {
            return None;
        }
        let mut clean = String::with_capacity(json.len());
        let before = self.taken;
        let mut rest = json;
        while let Some(begin) = rest.find('"') {
            let length = literal_length(&rest[begin..]);
            let (head, tail) = rest.split_at(begin + length);
            let (between, literal) = head.split_at(begin);
            clean.push_str(between);
            // Two names must not become one.
            let is_name = tail.trim_start().starts_with(':');
            match serde_json::from_str::<String>(literal) {
                Ok(mut text) if !is_name => {
                    let taken = self.taken;
                    self.text(&mut text);
                    match self.taken == taken {
                        true => clean.push_str(literal),
                        false => clean.push_str(&Value::String(text).to_string()),
                    }
                }
                _ => clean.push_str(literal),
            }
            rest = tail;
        }
        clean.push_str(rest);
        (before != self.taken).then_some(clean)
    }

    /// Words on what was taken out, if anything was.
    pub(crate) fn told(&self) -> Option<String> {
        let mut told = String::new();
        match self.taken {
            0 => return None,
            1 => told.push_str("1 invisible character was removed"),
            more => drop(write!(told, "{more} invisible characters were removed")),
        }
        Some(told)
    }
}

/// Bytes of the JSON string with which a text begins.
fn literal_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The same text, cleaned.
pub(crate) fn clean(text: &str) -> Cow<'_, str> {
    cleaned(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// A text without control characters other than line ends and tabs, sequences for terminals, directional overrides and
/// isolates, zero-width spaces, fillers, byte-order marks, tags, and selectors of variants beyond the first of a character.
/// Joiners stay, which scripts and pictures need. `None` if it is the same.
pub(crate) fn cleaned(text: &str) -> Option<String> {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    if text.bytes().all(is_plain) {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    // At the beginning there is nothing to select a variant of.
    let mut was_selected = true;
    while let Some(character) = rest.chars().next() {
        let length = match character {
            '\u{1b}' => sequence_length(rest),
            '\u{9b}' => control_sequence_length(rest, character.len_utf8()),
            other => other.len_utf8(),
        };
        let is_selector = is_selector(character);
        if is_seen(character) && !(is_selector && was_selected) {
            clean.push(character);
            was_selected = is_selector;
        }
        rest = &rest[length..];
    }
    (clean.len() != text.len()).then_some(clean)
}

/// Bytes of the sequence for terminals (ECMA-48) with which a text begins, of which ESC is the first.
fn sequence_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    match bytes.get(1) {
        Some(b'[') => control_sequence_length(text, 2),
        // A string for the terminal: a title, an address. One without an end is not followed.
        Some(b']' | b'P' | b'X' | b'^' | b'_') => {
            let end = |it: &str| {
                it.find(['\u{7}', '\u{9c}'])
                    .map(|at| at + it[at..].chars().next().map_or(1, char::len_utf8))
            };
            let ends = [end(text), text[1..].find("\u{1b}\\").map(|at| at + 3)];
            ends.into_iter().flatten().min().unwrap_or(2)
        }
        Some(b' '..=b'/') => {
            let intermediates = bytes[1..].iter().take_while(|it| matches!(it, b' '..=b'/'));
            let length = 1 + intermediates.count();
            length + usize::from(matches!(bytes.get(length), Some(b'0'..=b'~')))
        }
        Some(b'0'..=b'~') => 2,
        _ => 1,
    }
}

/// Bytes of a control sequence, of which the first `begin` introduce it.
fn control_sequence_length(text: &str, begin: usize) -> usize {
    let bytes = &text.as_bytes()[begin..];
    let length = bytes
        .iter()
        .take_while(|it| matches!(it, b' '..=b'?'))
        .count();
    begin + length + usize::from(matches!(bytes.get(length), Some(b'@'..=b'~')))
}

fn is_selector(character: char) -> bool {
    matches!(character, '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// True of a character that is not seen by itself, joiners and selectors of variants included.
pub(crate) fn is_unseen(character: char) -> bool {
    !is_seen(character) || is_selector(character) || matches!(character, '\u{200c}' | '\u{200d}')
}

fn is_seen(character: char) -> bool {
    !matches!(character,
        '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_cannot_speak_for_this_server() {
        let mut meta = ResultMeta::default();
        meta.insert("io.owlclaw/upstream", "forged");
        meta.insert("com.example/own", "theirs");
        meta.insert("io.owlclaw/upstream", "again");
        without_ours(&mut meta);
        let left: Vec<_> = meta.iter().map(|(name, _)| name).collect();
        assert_eq!(left, ["com.example/own"]);
    }

    #[test]
    fn what_nobody_sees_is_taken_out_and_what_scripts_need_stays() {
        for (text, clean) in [
            ("a\u{1b}[31mred\u{1b}[0m", "ared"),
            ("\u{9b}1mbold", "bold"),
            (
                "\u{1b}]8;;https://eve.example\u{7}here\u{1b}]8;;\u{1b}\\",
                "here",
            ),
            ("\u{1b}]0;no end", "0;no end"),
            ("\u{1b}(Bplain\u{1b}c", "plain"),
            (
                "a\u{202e}b\u{2066}c\u{200b}d\u{feff}e\u{ad}f\u{3164}g",
                "abcdefg",
            ),
            ("hi\u{e0041}\u{e0042}", "hi"),
            // One selector of a variant belongs to a character; more of them are a message.
            ("\u{2764}\u{fe0f}\u{fe00}\u{fe01}", "\u{2764}\u{fe0f}"),
            ("\u{fe0f}a", "a"),
            ("bell\u{7}\u{0}\u{8}", "bell"),
        ] {
            assert_eq!(cleaned(text).as_deref(), Some(clean), "{text:?}");
        }
        for text in [
            "a\tb\r\nc",
            "می\u{200c}خواهم",
            "👩\u{200d}🚀",
            "❤\u{fe0f}",
            "葛\u{e0100}城",
            "",
        ] {
            assert_eq!(cleaned(text), None, "{text:?}");
        }
    }

    #[test]
    fn texts_of_json_are_cleaned_and_all_else_stays_as_it_is_written() {
        let mut cleaner = Cleaner::new(true);
        let mut json = |text: &str| {
            let mut json = RawJson::from_serialized(text.as_bytes().to_vec());
            cleaner.json(&mut json);
            json.as_str().to_owned()
        };
        let written =
            r#"{ "a\u200b": 1.000000000000000000001, "b": ["x\u200b\u202ey", "é"], "c":"a\"\\" }"#;
        let clean = r#"{ "a\u200b": 1.000000000000000000001, "b": ["xy", "é"], "c":"a\"\\" }"#;
        assert_eq!(json(written), clean);
        assert_eq!(json(clean), clean);
        assert_eq!(json(r#""\u001b[1m""#), r#""""#);
        assert_eq!(cleaner.taken, 6);
        assert!(
            cleaner
                .told()
                .unwrap()
                .starts_with("6 invisible characters")
        );
        assert_eq!(Cleaner::new(true).told(), None);
    }
}
