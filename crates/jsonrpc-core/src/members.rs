//! The members of objects that a parser has accepted already, without reading them as a parser does.

/// A member of an object, as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The name between its quotation marks.
    pub name: &'a str,
    /// The value, without white space around it.
    pub value: &'a str,
    /// True if the value is a string without escapes.
    is_plain_text: bool,
}

impl<'a> Member<'a> {
    /// The member `name` with an object or array as its value.
    pub(crate) fn nested(name: &'a str, value: &'a str) -> Self {
        Self {
            name,
            value,
            is_plain_text: false,
        }
    }

    /// The text that the value is, if it is a string without escapes.
    #[inline]
    pub fn plain_text(&self) -> Option<&'a str> {
        if !self.is_plain_text {
            return None;
        }
        self.value.strip_prefix('"')?.strip_suffix('"')
    }
}

/// Calls `take` for each member of the object `json`, which a parser has accepted, in the order in which they
/// are written, until it says false. True if all members were taken; false also where `json` is no object or
/// has a name with escapes, which only a parser can tell from others.
///
/// Texts that are no JSON are not found out: what is taken of them means nothing.
pub fn take_members<'a>(json: &'a str, mut take: impl FnMut(Member<'a>) -> bool) -> bool {
    let mut cursor = Cursor {
        text: json.as_bytes(),
        at: 0,
    };
    let mut members = || {
        cursor.expect(b'{')?;
        if cursor.peek()? == b'}' {
            return Some(());
        }
        loop {
            cursor.expect(b'"')?;
            let start = cursor.at;
            let end = mark(cursor.text, start);
            if *cursor.text.get(end)? != b'"' {
                return None;
            }
            cursor.at = end + 1;
            let name = json.get(start..end)?;
            cursor.expect(b':')?;
            cursor.skip_space();
            let start = cursor.at;
            let is_plain_text = cursor.skip_value()?;
            let member = Member {
                name,
                value: json.get(start..cursor.at)?,
                is_plain_text,
            };
            if !take(member) {
                return None;
            }
            match cursor.peek()? {
                b',' => cursor.at += 1,
                b'}' => return Some(()),
                _ => return None,
            }
        }
    };
    members().is_some()
}

/// Calls `take` for each item of the array `json`, which a parser has accepted, in order, until it says false. True
/// if all items were taken; false also where `json` is no array.
///
/// Texts that are no JSON are not found out: what is taken of them means nothing.
pub fn take_items<'a>(json: &'a str, mut take: impl FnMut(&'a str) -> bool) -> bool {
    let mut cursor = Cursor {
        text: json.as_bytes(),
        at: 0,
    };
    let mut items = || {
        cursor.expect(b'[')?;
        if cursor.peek()? == b']' {
            return Some(());
        }
        loop {
            cursor.skip_space();
            let start = cursor.at;
            cursor.skip_value()?;
            if !take(json.get(start..cursor.at)?) {
                return None;
            }
            match cursor.peek()? {
                b',' => cursor.at += 1,
                b']' => return Some(()),
                _ => return None,
            }
        }
    };
    items().is_some()
}

struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.text.get(self.at) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Skips a value, and tells if it is a string without escapes.
    fn skip_value(&mut self) -> Option<bool> {
        match self.text.get(self.at)? {
            b'"' => return self.skip_string(),
            b'{' | b'[' => {
                let mut depth = 0_usize;
                loop {
                    match self.text.get(self.at)? {
                        b'"' => {
                            self.skip_string()?;
                            continue;
                        }
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth -= 1,
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
            }
            _ => {
                let rest = &self.text[self.at..];
                let is_end =
                    |it: &u8| matches!(it, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
                self.at += rest.iter().position(is_end)?;
            }
        }
        Some(false)
    }

    /// Skips the string whose quotation mark is next, and tells if it has no escapes.
    #[inline]
    fn skip_string(&mut self) -> Option<bool> {
        let mut at = mark(self.text, self.at + 1);
        let is_plain = *self.text.get(at)? == b'"';
        while *self.text.get(at)? != b'"' {
            // Of all escapes only that of a quotation mark or a backslash could be taken for something else.
            at = mark(self.text, at + 2);
        }
        self.at = at + 1;
        Some(is_plain)
    }
}

/// The deepest nesting of a member that a [`Scanner`] reads.
const MAX_DEPTH: u32 = u128::BITS;

/// Reader of JSON (RFC 8259) that nobody has read before, which makes nothing of it. `None` is what is no JSON, is
/// nested too deep, or is an object with a name that has escapes.
pub(crate) struct Scanner<'a> {
    json: &'a str,
    text: &'a [u8],
    at: usize,
    /// Objects and arrays that have begun.
    brackets: usize,
}

impl<'a> Scanner<'a> {
    /// A scanner at the first token of `json`.
    pub(crate) fn new(json: &'a str) -> Self {
        let mut scanner = Self {
            json,
            text: json.as_bytes(),
            at: 0,
            brackets: 0,
        };
        scanner.skip_space();
        scanner
    }

    /// The number of objects and arrays so far.
    pub(crate) fn brackets(&self) -> usize {
        self.brackets
    }

    /// True if an object is next.
    pub(crate) fn is_at_object(&self) -> bool {
        self.peek() == Some(b'{')
    }

    /// An object. `read` is called with the name of each member, which has no escapes, and reads its value.
    #[inline]
    pub(crate) fn object(
        &mut self,
        mut read: impl FnMut(&mut Self, &'a str) -> Option<()>,
    ) -> Option<()> {
        self.expect(b'{')?;
        self.brackets += 1;
        self.skip_space();
        if self.peek()? == b'}' {
            self.at += 1;
            return Some(());
        }
        loop {
            let start = self.at + 1;
            if self.string()? {
                return None;
            }
            let name = self.json.get(start..self.at - 1)?;
            self.skip_space();
            self.expect(b':')?;
            self.skip_space();
            read(self, name)?;
            self.skip_space();
            match self.peek()? {
                b',' => self.at += 1,
                b'}' => {
                    self.at += 1;
                    return Some(());
                }
                _ => return None,
            }
            self.skip_space();
        }
    }

    /// The member `name`, whose value is next.
    #[inline]
    pub(crate) fn member(&mut self, name: &'a str) -> Option<Member<'a>> {
        let start = self.at;
        let is_plain_text = match self.peek()? {
            b'"' => !self.string()?,
            _ => {
                self.value()?;
                false
            }
        };
        Some(Member {
            name,
            value: self.json.get(start..self.at)?,
            is_plain_text,
        })
    }

    /// The text that `read` reads.
    pub(crate) fn taken(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<&'a str> {
        let start = self.at;
        read(self)?;
        self.json.get(start..self.at)
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Skips white space up to the end of the text.
    pub(crate) fn end(&mut self) -> Option<()> {
        self.skip_space();
        (self.at == self.text.len()).then_some(())
    }

    /// A value, of any depth up to the bound, without recursion: what is open is a bit for each level, 1 for an
    /// object.
    fn value(&mut self) -> Option<()> {
        let (mut open, mut depth) = (0_u128, 0_u32);
        loop {
            // A value begins here.
            match self.peek()? {
                b'"' => drop(self.string()?),
                bracket @ (b'{' | b'[') => {
                    self.at += 1;
                    self.brackets += 1;
                    self.skip_space();
                    if self.peek()? == bracket + 2 {
                        self.at += 1;
                    } else if depth == MAX_DEPTH {
                        return None;
                    } else {
                        depth += 1;
                        open = open << 1 | u128::from(bracket == b'{');
                        if bracket == b'{' {
                            self.name()?;
                        }
                        continue;
                    }
                }
                b't' => self.literal(b"true")?,
                b'f' => self.literal(b"false")?,
                b'n' => self.literal(b"null")?,
                _ => self.number()?,
            }
            // It is over; what follows is for what is open.
            loop {
                if depth == 0 {
                    return Some(());
                }
                self.skip_space();
                let is_object = open & 1 == 1;
                match self.peek()? {
                    b',' => {
                        self.at += 1;
                        self.skip_space();
                        if is_object {
                            self.name()?;
                        }
                        break;
                    }
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return None,
                }
                self.at += 1;
                open >>= 1;
                depth -= 1;
            }
        }
    }

    /// A name and its colon, up to the value.
    #[inline]
    fn name(&mut self) -> Option<()> {
        self.string()?;
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        Some(())
    }

    /// A string; whether there are escapes in it.
    fn string(&mut self) -> Option<bool> {
        self.expect(b'"')?;
        let mut is_escaped = false;
        loop {
            self.at = stop(self.text, self.at);
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    is_escaped = true;
                    self.at += match self.text.get(self.at + 1)? {
                        b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => 2,
                        b'u' => {
                            let digits = self.text.get(self.at + 2..self.at + 6)?;
                            digits.iter().all(u8::is_ascii_hexdigit).then_some(6)?
                        }
                        _ => return None,
                    };
                }
                // A control character.
                _ => return None,
            }
        }
        self.at += 1;
        Some(is_escaped)
    }

    fn literal(&mut self, literal: &[u8]) -> Option<()> {
        let is_it = self.text.get(self.at..)?.starts_with(literal);
        is_it.then(|| self.at += literal.len())
    }

    fn number(&mut self) -> Option<()> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.peek().is_some_and(|it| it.is_ascii_digit()) {
            self.at += 1;
        }
        (start < self.at).then_some(())
    }
}

const ONES: u64 = u64::MAX / 0xFF;

/// The highest bit of each byte that is less than `bound`, which is at most 0x80. Those of bytes above (in a
/// number, after) such a one may be wrong.
const fn below(word: u64, bound: u8) -> u64 {
    word.wrapping_sub(ONES * bound as u64) & !word & (ONES << 7)
}

/// The bits of quotation marks and backslashes, as [`below`].
const fn marks(word: u64) -> u64 {
    below(word ^ (ONES * b'"' as u64), 1) | below(word ^ (ONES * b'\\' as u64), 1)
}

/// Place of the first quotation mark or backslash from `at` on, or the end.
#[inline]
fn mark(text: &[u8], at: usize) -> usize {
    find(text, at, marks, |it| matches!(it, b'"' | b'\\'))
}

/// Place of the first quotation mark, backslash or control character from `at` on, or the end.
#[inline]
fn stop(text: &[u8], at: usize) -> usize {
    // With one bit turned over, quotation marks follow the control characters.
    let stops = |word| below(word ^ (ONES * 2), 0x21) | below(word ^ (ONES * b'\\' as u64), 1);
    find(text, at, stops, |it| matches!(it, b'"' | b'\\' | 0..0x20))
}

/// True if a text stands for itself in JSON.
pub(crate) fn is_plain(text: &str) -> bool {
    stop(text.as_bytes(), 0) == text.len()
}

/// Place of the first byte from `at` on that is looked for, or the end. Looks at eight bytes at a time.
#[inline]
fn find(
    text: &[u8],
    at: usize,
    found: impl Fn(u64) -> u64,
    is_found: impl Fn(&u8) -> bool,
) -> usize {
    let rest = text.get(at..).unwrap_or_default();
    let (words, tail) = rest.as_chunks::<8>();
    for (index, bytes) in words.iter().enumerate() {
        let found = found(u64::from_le_bytes(*bytes));
        if found != 0 {
            return at + index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    let place = tail.iter().position(is_found);
    text.len() - place.map_or(0, |place| tail.len() - place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::value::RawValue;

    fn taken(json: &str) -> Option<Vec<(&str, &str)>> {
        let mut members = Vec::new();
        take_members(json, |it| {
            members.push((it.name, it.value));
            true
        })
        .then_some(members)
    }

    /// The same of a text that nobody has read: false also if it is no JSON, or too deep.
    fn take_unread_members<'a>(json: &'a str, mut take: impl FnMut(Member<'a>) -> bool) -> bool {
        let mut scanner = Scanner::new(json);
        let mut members = || {
            scanner.object(|scanner, name| {
                let member = scanner.member(name)?;
                take(member).then_some(())
            })?;
            scanner.end()
        };
        members().is_some()
    }

    #[test]
    fn members_are_taken_as_they_are_written() {
        let json = "{ \"a\" : 1 ,\"b\":\"x\\\\\\\"}\" , \"a\":{\"c\":[\"]}\",{}]},\"d\":null\n}";
        let members = [
            ("a", "1"),
            ("b", r#""x\\\"}""#),
            ("a", r#"{"c":["]}",{}]}"#),
            ("d", "null"),
        ];
        assert_eq!(taken(json), Some(members.to_vec()));
        assert_eq!(taken("{ }"), Some(Vec::new()));
        for other in ["[]", "7", r#""{""#, r#"{"\u0061":1}"#, ""] {
            assert_eq!(taken(other), None, "{other}");
        }
        assert!(!take_members(r#"{"a":1,"b":2}"#, |it| it.name != "b"));
    }

    #[test]
    fn items_are_taken_as_they_are_written() {
        let taken = |json| {
            let mut items = Vec::new();
            take_items(json, |it| {
                items.push(it);
                true
            })
            .then_some(items)
        };
        let json = " [ 1 ,\"]\\\"\" , {\"a\":[\"]\"]}\n,[[],{}],null ] ";
        let items = ["1", r#""]\"""#, r#"{"a":["]"]}"#, "[[],{}]", "null"];
        assert_eq!(taken(json), Some(items.to_vec()));
        assert_eq!(taken("[ ]"), Some(Vec::new()));
        for other in ["{}", "7", r#""[""#, "", "[", "[1"] {
            assert_eq!(taken(other), None, "{other}");
        }
        assert!(!take_items("[1,2]", |it| it != "2"));
    }

    #[test]
    fn what_is_nested_too_deep_is_not_read() {
        let read = |depth: usize| {
            let json = format!(r#"{{"a":{}7{}}}"#, "[".repeat(depth), "]".repeat(depth));
            take_unread_members(&json, |_| true)
        };
        assert!(read(MAX_DEPTH as usize));
        assert!(!read(MAX_DEPTH as usize + 1));
    }

    #[test]
    fn a_text_is_plain_without_escapes() {
        let plain = |value: &str| {
            let json = format!(r#"{{"a":{value}}}"#);
            let mut texts = Vec::new();
            assert!(take_members(&json, |it| {
                texts.push(it.plain_text().map(str::to_owned));
                true
            }));
            assert!(take_unread_members(&json, |it| {
                texts.push(it.plain_text().map(str::to_owned));
                true
            }));
            assert_eq!(texts[0], texts[1]);
            texts.swap_remove(0)
        };
        assert_eq!(plain(r#""abcdefghij""#).as_deref(), Some("abcdefghij"));
        assert_eq!(plain(r#""""#).as_deref(), Some(""));
        for other in [r#""a\n""#, r#""\"""#, "7", "{}", r#"["a"]"#] {
            assert_eq!(plain(other), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn members_are_those_that_a_parser_finds(json in r#"\{("[a-cé]{0,9}" ?: ?("[a-z ,:{}\[\]é]{0,12}(\\["\\n])?"|-?[1-9][0-9]{0,2}|true|\[\]|\[1, ?\{"x":"\]"\}\]|\{"y":\{\}\}) ?, ?){0,5}"z":1\}"#) {
            struct Members(Vec<(String, String)>);
            impl<'de> serde::Deserialize<'de> for Members {
                fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                    struct V;
                    impl<'de> serde::de::Visitor<'de> for V {
                        type Value = Members;
                        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                            f.write_str("an object")
                        }
                        fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                            let mut found = Vec::new();
                            while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                                found.push((name, value.get().to_owned()));
                            }
                            Ok(Members(found))
                        }
                    }
                    d.deserialize_map(V)
                }
            }
            let Members(expected) = serde_json::from_str(&json).unwrap();
            let found = taken(&json).unwrap();
            let found: Vec<_> = found.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn what_is_read_is_what_a_parser_reads(value in r#"[\[\]{},:"\\ntrueabfs0-9.eE+\-u é\x01]{0,24}"#, inner in r#"(\{"a":|\[|\[1,)?(\{\}|"[a-z\\"u0]{0,7}"|-?[0-9.eE]{1,5}|\[ \]|null|tru)(\}|\]|,1\])?"#) {
            for value in [value, inner] {
                let json = format!(r#"{{"a":{value},"b": [{value}] }}"#);
                let mut found = Vec::new();
                let is_read = take_unread_members(&json, |it| {
                    found.push(it.value);
                    true
                });
                let parsed = serde_json::from_str::<&RawValue>(&json);
                // Names with escapes are left to a parser, and only they.
                let plain = !json.contains('\\');
                prop_assert!(!is_read || parsed.is_ok(), "{}", json);
                prop_assert!(is_read || parsed.is_err() || !plain, "{}", json);
                if is_read {
                    prop_assert_eq!(taken(&json).unwrap().into_iter().map(|it| it.1).collect::<Vec<_>>(), found);
                }
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in r#"[\[\]{},:"\\ntrueabfs0-9é ]{0,32}"#) {
            let _ = taken(&text);
            let _ = take_unread_members(&text, |_| true);
        }
    }
}
