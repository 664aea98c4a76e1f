//! Texts of upstreams without what nobody sees, and what terminals and models may act on all the same.

use mcp_protocol::{
    RawJson,
    model::{Resource, ResultMeta},
};
use redaction::is_misleading;
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
            && let Some((clean, taken)) = cleaned_and_counted(text)
        {
            self.taken += taken;
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

    /// Cleans the texts of an item of a list of resources, with its name, which is for people alone.
    pub(crate) fn listed(&mut self, resource: &mut Resource) {
        self.text(&mut resource.name);
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

/// A text without what is [misleading](is_misleading): control characters other than line ends and tabs, sequences for
/// terminals, and whatever nobody sees. Separators of lines become line ends. Joiners and selectors of variants stay where
/// they mean something: one selector, and one joiner behind it, of a character that has such. `None` if it is the same.
pub(crate) fn cleaned(text: &str) -> Option<String> {
    cleaned_and_counted(text).map(|it| it.0)
}

/// The same, with the number of characters that were taken out or replaced.
fn cleaned_and_counted(text: &str) -> Option<(String, usize)> {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r');
    if text.bytes().all(is_plain) {
        return None;
    }
    let mut clean = String::with_capacity(text.len());
    let mut taken = 0;
    let mut rest = text;
    // The last character that is seen, and what may still follow it unseen.
    let (mut seen, mut may_select, mut may_join) = ('\n', false, false);
    while let Some(character) = rest.chars().next() {
        let length = match character {
            '\u{1b}' => sequence_length(rest),
            '\u{9b}' => control_sequence_length(rest, character.len_utf8()),
            other => other.len_utf8(),
        };
        let (sequence, after) = rest.split_at(length);
        rest = after;
        match character {
            '\t' | '\n' | '\r' => {}
            '\u{2028}' | '\u{2029}' => {
                taken += 1;
                clean.push('\n');
                (seen, may_select, may_join) = ('\n', false, false);
                continue;
            }
            '\u{200c}' | '\u{200d}' if may_join && joins(seen) => {
                (may_select, may_join) = (false, false);
                clean.push(character);
                continue;
            }
            selector if may_select && has_variant(seen, selector) => {
                may_select = false;
                clean.push(selector);
                continue;
            }
            other if is_misleading(other) => {
                taken += sequence.chars().count();
                continue;
            }
            _ => {}
        }
        (seen, may_select, may_join) = (character, true, true);
        clean.push(character);
    }
    (taken != 0).then_some((clean, taken))
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

/// True if joiners mean something behind a character: in scripts whose letters join, and in pictures made of several.
fn joins(character: char) -> bool {
    matches!(character,
        // Arabic, Syriac, N'Ko and others; those of India, Tibet and Myanmar; Khmer, Mongolian and others.
        '\u{600}'..='\u{dff}' | '\u{f00}'..='\u{109f}' | '\u{1700}'..='\u{18af}' | '\u{1900}'..='\u{1cff}'
        | '\u{a800}'..='\u{abff}' | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{10a00}'..='\u{11fff}'
        | '\u{1e900}'..='\u{1e95f}')
        || is_picture(character)
}

/// Tests if Unicode has such a variant of a character, as far as a range says: of ideographs, those of the Ideographic
/// Variation Database and of compatibility; of digits and symbols, their forms as texts and pictures, and of
/// mathematics; of Mongolian letters their own; and those of a few scripts.
fn has_variant(of: char, selector: char) -> bool {
    match selector {
        '\u{fe00}'..='\u{fe02}' if is_ideograph(of) => true,
        '\u{e0100}'..='\u{e01ef}' => is_ideograph(of),
        // Hieroglyphs are turned.
        '\u{fe00}'..='\u{fe06}' if matches!(of, '\u{13000}'..='\u{1342f}') => true,
        '\u{fe00}' => {
            of == '0'
                || matches!(of,
                    // Myanmar; mathematics; CJK punctuation; Phags-pa; full-width forms; Manichaean.
                    '\u{1000}'..='\u{109f}' | '\u{2205}'..='\u{22ff}' | '\u{2a00}'..='\u{2aff}'
                    | '\u{2010}'..='\u{201f}' | '\u{3001}' | '\u{3002}' | '\u{a840}'..='\u{a87f}'
                    | '\u{ff01}'..='\u{ff1f}' | '\u{10ac0}'..='\u{10aff}')
        }
        // Quotation marks and punctuation, by their place in a wide or narrow cell.
        '\u{fe01}' => {
            matches!(of, '\u{2018}'..='\u{201d}' | '\u{3001}' | '\u{3002}' | '\u{ff01}'..='\u{ff1f}')
        }
        '\u{fe0e}' | '\u{fe0f}' => matches!(of, '#' | '*' | '0'..='9') || is_picture(of),
        '\u{180b}'..='\u{180f}' => matches!(of, '\u{1820}'..='\u{18aa}'),
        _ => false,
    }
}

fn is_ideograph(character: char) -> bool {
    matches!(character, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{3fffd}')
}

/// True of symbols that may be shown as pictures.
fn is_picture(character: char) -> bool {
    matches!(character, '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
        | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{24c2}' | '\u{25a0}'..='\u{27bf}'
        | '\u{2934}' | '\u{2935}' | '\u{2b00}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
        | '\u{1f000}'..='\u{1faff}')
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
            // What Unicode has reserved for more of such characters, and formats that few fonts know.
            ("a\u{e0080}\u{e0fff}\u{fff0}\u{fff8}b", "ab"),
            (
                "a\u{1bca0}\u{13430}\u{1343f}\u{fdd0}\u{ffff}\u{10fffe}b",
                "ab",
            ),
            ("a\u{2028}b\u{2029}c", "a\nb\nc"),
            // A selector for each letter is a message as well, and so are joiners in scripts that join nothing.
            ("a\u{e0141}b\u{fe0f}c\u{180b}d\u{200d}e\u{200c}", "abcde"),
            ("\u{845b}\u{fe0f}\u{fe03}", "\u{845b}"),
            ("1\u{fe01}\u{fe0f}\u{20e3}", "1\u{fe0f}\u{20e3}"),
            ("\u{2764}\u{e0100}\u{200d}\u{fe0f}", "\u{2764}\u{200d}"),
            ("\u{1820}\u{180b}\u{180c}\u{180f}", "\u{1820}\u{180b}"),
            ("\u{6cc}\u{200c}\u{200d}\u{200c}", "\u{6cc}\u{200c}"),
        ] {
            assert_eq!(cleaned(text).as_deref(), Some(clean), "{text:?}");
        }
        for text in [
            "a\tb\r\nc",
            "می\u{200c}خواهم",
            "👩\u{200d}🚀",
            "❤\u{fe0f}",
            "葛\u{e0100}城",
            "\u{2764}\u{fe0f}\u{200d}\u{1f525}",
            "1\u{fe0f}\u{20e3}",
            "\u{2229}\u{fe00}",
            "\u{1820}\u{180e}\u{1821}\u{180b}",
            "\u{915}\u{94d}\u{200d}\u{937}",
            // Signs that are seen, though they format what follows.
            "\u{6dd}\u{600}",
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
