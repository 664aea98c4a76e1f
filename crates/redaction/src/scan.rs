//! JSON, token by token.

use std::ops::Range;

/// Not JSON (RFC 8259).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotJson;

/// A token of a JSON text. Commas and colons are not told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The start of an object, at this place.
    Object(usize),
    /// The start of an array, at this place.
    Array(usize),
    /// The end of what was started last; the place after it.
    End(usize),
    /// The name of the member whose value comes next.
    Name(Text),
    /// A string.
    String(Text),
    /// A number, from here to there.
    Number(usize, usize),
    /// `true`, `false` or `null`, from here to there.
    Literal(usize, usize),
}

/// A string in a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// Index of its first byte, after the quotation mark.
    pub(crate) start: usize,
    /// Index after its last byte, before the quotation mark.
    pub(crate) end: usize,
    /// True if the string contains escapes.
    pub(crate) is_escaped: bool,
}

impl Text {
    pub(crate) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// Reads JSON from the beginning to the end. Nesting takes one byte of memory a level and no stack,
/// so it is bounded by the text alone.
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    nesting: Nesting,
    expected: Expected,
    spaces: usize,
}

/// Kinds of the open levels: one bit for each of the innermost, and the outer ones packed into
/// words of as many bits. Texts of ordinary depth need no memory for it.
#[derive(Default)]
struct Nesting {
    /// The innermost in the lowest bit, one for an object.
    inner: u64,
    /// Number of levels in `inner`.
    count: u32,
    outer: Vec<u64>,
}

impl Nesting {
    #[inline]
    fn push(&mut self, shape: Shape) {
        if self.count == u64::BITS {
            self.outer.push(self.inner);
            self.count = 0;
        }
        self.inner = self.inner << 1 | u64::from(shape == Shape::Object);
        self.count += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<Shape> {
        let innermost = self.innermost()?;
        self.inner >>= 1;
        self.count -= 1;
        if self.count == 0
            && let Some(inner) = self.outer.pop()
        {
            (self.inner, self.count) = (inner, u64::BITS);
        }
        Some(innermost)
    }

    #[inline]
    fn innermost(&self) -> Option<Shape> {
        let shape = match self.inner & 1 {
            0 => Shape::Array,
            _ => Shape::Object,
        };
        (self.count != 0).then_some(shape)
    }

    fn depth(&self) -> usize {
        self.outer.len() * u64::BITS as usize + self.count as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    Object,
    Array,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    Value,
    ValueOrEnd,
    NameOrEnd,
    MoreOrEnd,
    Nothing,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self {
            text: text.as_bytes(),
            at: 0,
            nesting: Nesting::default(),
            expected: Expected::Value,
            spaces: 0,
        }
    }

    /// Number of open objects and arrays.
    pub(crate) fn depth(&self) -> usize {
        self.nesting.depth()
    }

    /// True if the innermost that is open is an array.
    pub(crate) fn is_in_array(&self) -> bool {
        self.nesting.innermost() == Some(Shape::Array)
    }

    /// Number of bytes of white space between tokens passed so far.
    pub(crate) fn spaces(&self) -> usize {
        self.spaces
    }

    /// The next token, or none at the end of a whole text.
    pub(crate) fn next(&mut self) -> Result<Option<Token>, NotJson> {
        self.skip_space();
        if self.expected == Expected::MoreOrEnd {
            match self.peek() {
                Some(b',') => {
                    self.at += 1;
                    self.skip_space();
                    return match self.nesting.innermost() {
                        Some(Shape::Object) => self.name().map(Some),
                        _ => self.value().map(Some),
                    };
                }
                Some(byte) => return self.end(byte).map(Some),
                None => return Err(NotJson),
            }
        }
        match (self.expected, self.peek()) {
            (Expected::Nothing, None) => Ok(None),
            (Expected::NameOrEnd, Some(b'}')) => self.end(b'}').map(Some),
            (Expected::NameOrEnd, Some(_)) => self.name().map(Some),
            (Expected::ValueOrEnd, Some(b']')) => self.end(b']').map(Some),
            (Expected::Value | Expected::ValueOrEnd, Some(_)) => self.value().map(Some),
            _ => Err(NotJson),
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
            self.spaces += 1;
        }
    }

    fn end(&mut self, byte: u8) -> Result<Token, NotJson> {
        match (self.nesting.pop(), byte) {
            (Some(Shape::Object), b'}') | (Some(Shape::Array), b']') => {}
            _ => return Err(NotJson),
        }
        self.at += 1;
        self.value_is_over();
        Ok(Token::End(self.at))
    }

    fn value_is_over(&mut self) {
        self.expected = if self.nesting.innermost().is_none() {
            Expected::Nothing
        } else {
            Expected::MoreOrEnd
        };
    }

    fn name(&mut self) -> Result<Token, NotJson> {
        if self.peek() != Some(b'"') {
            return Err(NotJson);
        }
        let name = self.string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(NotJson);
        }
        self.at += 1;
        self.expected = Expected::Value;
        Ok(Token::Name(name))
    }

    fn value(&mut self) -> Result<Token, NotJson> {
        let start = self.at;
        let token = match self.peek().ok_or(NotJson)? {
            b'{' => {
                self.at += 1;
                self.nesting.push(Shape::Object);
                self.expected = Expected::NameOrEnd;
                return Ok(Token::Object(start));
            }
            b'[' => {
                self.at += 1;
                self.nesting.push(Shape::Array);
                self.expected = Expected::ValueOrEnd;
                return Ok(Token::Array(start));
            }
            b'"' => Token::String(self.string()?),
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            _ => {
                self.number()?;
                Token::Number(start, self.at)
            }
        };
        self.value_is_over();
        Ok(token)
    }

    fn literal(&mut self, literal: &[u8]) -> Result<Token, NotJson> {
        let start = self.at;
        if !self.text[start..].starts_with(literal) {
            return Err(NotJson);
        }
        self.at += literal.len();
        Ok(Token::Literal(start, self.at))
    }

    fn number(&mut self) -> Result<(), NotJson> {
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
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
        Ok(())
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(NotJson);
        }
        Ok(())
    }

    fn string(&mut self) -> Result<Text, NotJson> {
        let start = self.at + 1;
        let mut at = start;
        let mut is_escaped = false;
        loop {
            at = stop(self.text, at);
            match self.text.get(at) {
                Some(b'"') => break,
                Some(b'\\') => {
                    is_escaped = true;
                    at += 1 + escape_length(&self.text[at + 1..])?;
                }
                _ => return Err(NotJson),
            }
        }
        self.at = at + 1;
        Ok(Text {
            start,
            end: at,
            is_escaped,
        })
    }
}

/// Index, from `at` on, of the first byte that does not stand for itself in a string: a quotation
/// mark, a backslash or a control character; or the end of the text.
#[inline]
fn stop(text: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::MAX / 0xFF;
    const HIGH: u64 = ONES << 7;
    /// The highest bit of each byte that is less than `bound`, which is at most 0x80. Those of bytes
    /// above (in a number, after) such a one may be wrong.
    const fn below(word: u64, bound: u8) -> u64 {
        word.wrapping_sub(ONES * bound as u64) & !word & HIGH
    }
    while let Some(bytes) = text[at..].first_chunk() {
        let word = u64::from_le_bytes(*bytes);
        let stops = below(word, 0x20)
            | below(word ^ (ONES * b'"' as u64), 1)
            | below(word ^ (ONES * b'\\' as u64), 1);
        if stops != 0 {
            return at + stops.trailing_zeros() as usize / 8;
        }
        at += bytes.len();
    }
    let rest = text[at..].iter();
    at + rest
        .take_while(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
        .count()
}

/// The length of what follows a backslash.
fn escape_length(rest: &[u8]) -> Result<usize, NotJson> {
    match rest {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', ..] => Ok(1),
        [b'u', a, b, c, d, ..] if [a, b, c, d].iter().all(|it| it.is_ascii_hexdigit()) => Ok(5),
        _ => Err(NotJson),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn is_json(text: &str) -> bool {
        let mut scanner = Scanner::new(text);
        loop {
            match scanner.next() {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(NotJson) => return false,
            }
        }
    }

    #[test]
    fn what_is_json_is_decided_as_others_do() {
        for text in [
            "",
            " ",
            "1",
            "-1.5e+3",
            "01",
            "1.",
            "-",
            "+1",
            ".5",
            "1e",
            "{}",
            "{",
            "}",
            "[]",
            "[,]",
            "[1,]",
            "[1 2]",
            r#"{"a":1}"#,
            r#"{"a":1,}"#,
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{a:1}"#,
            r#"{"a":1]"#,
            "[1}",
            "nul",
            "null",
            "nulll",
            "true false",
            "\"",
            "\"\\\"",
            r#""\u00""#,
            r#""\u00e9""#,
            r#""\x""#,
            "\"\t\"",
            " [ 1 , { \"a\" : [ ] } ] ",
            "[] x",
            "NaN",
            "\u{feff}1",
        ] {
            let expected = serde_json::from_str::<serde_json::Value>(text).is_ok();
            assert_eq!(is_json(text), expected, "{text}");
        }
    }

    #[test]
    fn nesting_takes_no_stack() {
        let deep = 3_000_000;
        assert!(is_json(&format!(
            "{}{}",
            "[".repeat(deep),
            "]".repeat(deep)
        )));
        assert!(!is_json(&"[".repeat(deep)));
        assert!(!is_json(&r#"{"a":"#.repeat(deep)));
    }

    proptest! {
        #[test]
        fn a_string_stops_where_it_does_byte_by_byte(text in r#"[a~é\x7f"\\\x00\x1f 😀!#\[\]]{0,40}"#) {
            let expected = text.bytes().position(|it| matches!(it, b'"' | b'\\' | 0..0x20));
            prop_assert_eq!(stop(text.as_bytes(), 0), expected.unwrap_or(text.len()));
        }

        #[test]
        fn what_is_open_is_known_at_any_depth(shapes in prop::collection::vec(any::<Option<bool>>(), 0..400)) {
            let (mut nesting, mut expected) = (Nesting::default(), Vec::new());
            for (at, shape) in shapes.into_iter().enumerate() {
                // First down, then up and down.
                match shape.or((at < 150).then_some(at % 3 == 0)) {
                    Some(is_object) => {
                        let shape = if is_object { Shape::Object } else { Shape::Array };
                        nesting.push(shape);
                        expected.push(shape);
                    }
                    None => prop_assert!(nesting.pop() == expected.pop()),
                }
                prop_assert!(nesting.innermost() == expected.last().copied());
                prop_assert_eq!(nesting.depth(), expected.len());
            }
        }

        #[test]
        fn any_text_is_json_or_not_as_others_say(text in r#"[\[\]{},:"\\ntrueabfs0-9.eE+\-u ]{0,24}"#) {
            // serde_json refuses lone surrogates and numbers that are infinite, which is about
            // meaning and not about form.
            let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
            prop_assert_eq!(is_json(&text), theirs);
        }
    }
}
