//! Check of arguments of plain members, without a tree of values.

use serde_json::Value;

/// The most members of a [`PlainObject`].
const MAX_MEMBERS: usize = 64;

/// Schema of an object whose members are texts, numbers and booleans, each without further conditions: what most
/// tools take.
#[derive(Debug)]
pub(super) struct PlainObject {
    members: Vec<Plain>,
    /// Members that must be there, a bit for each.
    required: u64,
}

#[derive(Debug)]
struct Plain {
    name: Box<str>,
    kinds: u8,
}

const TEXT: u8 = 1;
const INTEGER: u8 = 1 << 1;
const NUMBER: u8 = 1 << 2;
const BOOLEAN: u8 = 1 << 3;
const NULL: u8 = 1 << 4;

impl PlainObject {
    /// Reads a schema of an object that is known to be valid; `None` if it says more than this can check.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let (mut properties, mut required) = (None, None);
        for (keyword, value) in schema.as_object()? {
            match keyword.as_str() {
                "type" | "title" | "description" | "$schema" => {}
                // Members that are not named are left to the whole check.
                "additionalProperties" if value.is_boolean() => {}
                "properties" => properties = value.as_object(),
                "required" => required = value.as_array(),
                _ => return None,
            }
        }
        let members: Vec<Plain> = properties
            .into_iter()
            .flatten()
            .map(|(name, schema)| {
                Some(Plain {
                    name: name.as_str().into(),
                    kinds: kinds(schema)?,
                })
            })
            .collect::<Option<_>>()?;
        if MAX_MEMBERS < members.len() {
            return None;
        }
        let mut bits = 0;
        for name in required.into_iter().flatten() {
            let name = name.as_str()?;
            bits |= 1 << members.iter().position(|it| *it.name == *name)?;
        }
        Some(Self {
            members,
            required: bits,
        })
    }

    /// True if `raw` is JSON that fits, each member once and plainly written. False says nothing: the whole check
    /// has to look.
    pub(super) fn fits(&self, raw: &[u8]) -> bool {
        std::str::from_utf8(raw).is_ok() && self.read(raw).is_some()
    }

    fn read(&self, raw: &[u8]) -> Option<()> {
        let mut text = Text { raw, at: 0 };
        let mut missing = self.required;
        let mut seen = 0_u64;
        text.expect(b'{')?;
        if text.peek()? == b'}' {
            text.at += 1;
        } else {
            loop {
                let name = text.string()?;
                let index = self
                    .members
                    .iter()
                    .position(|it| it.name.as_bytes() == name)?;
                let bit = 1 << index;
                if seen & bit != 0 {
                    return None;
                }
                seen |= bit;
                missing &= !bit;
                text.expect(b':')?;
                if text.value()? & self.members[index].kinds == 0 {
                    return None;
                }
                match text.peek()? {
                    b',' => text.at += 1,
                    b'}' => {
                        text.at += 1;
                        break;
                    }
                    _ => return None,
                }
            }
        }
        (missing == 0 && text.peek().is_none()).then_some(())
    }
}

/// Kinds of values that a schema of a member lets through; `None` if it says more.
fn kinds(schema: &Value) -> Option<u8> {
    let schema = schema.as_object()?;
    let kind = |name: &Value| {
        Some(match name.as_str()? {
            "string" => TEXT,
            "integer" => INTEGER,
            "number" => INTEGER | NUMBER,
            "boolean" => BOOLEAN,
            "null" => NULL,
            _ => return None,
        })
    };
    let kinds = match schema.get("type")? {
        Value::Array(names) => names
            .iter()
            .try_fold(0, |kinds, name| Some(kinds | kind(name)?))?,
        name => kind(name)?,
    };
    let says_more = schema.keys().any(|keyword| match keyword.as_str() {
        "type" | "title" | "description" | "default" | "examples" => false,
        // Said of texts alone, whatever it is.
        "format" => kinds & TEXT != 0,
        _ => true,
    });
    (!says_more).then_some(kinds)
}

/// JSON that is read from the beginning; `None` is what is not plainly written.
struct Text<'a> {
    raw: &'a [u8],
    at: usize,
}

impl<'a> Text<'a> {
    /// The next byte that is no white space.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.raw.get(self.at) {
            self.at += 1;
        }
        self.raw.get(self.at).copied()
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// A string without escapes.
    #[inline]
    fn string(&mut self) -> Option<&'a [u8]> {
        self.expect(b'"')?;
        let rest = self.raw.get(self.at..)?;
        let length = memchr::memchr2(b'"', b'\\', rest)?;
        let text = &rest[..length];
        // Without a branch for each, so that many are compared at once.
        let least = text.iter().fold(u8::MAX, |least, it| least.min(*it));
        if rest[length] != b'"' || least < 0x20 {
            return None;
        }
        self.at += length + 1;
        Some(text)
    }

    /// A value that is no object and no array; its kind.
    fn value(&mut self) -> Option<u8> {
        match self.peek()? {
            b'"' => self.string().map(|_| TEXT),
            b't' => self.literal(b"true", BOOLEAN),
            b'f' => self.literal(b"false", BOOLEAN),
            b'n' => self.literal(b"null", NULL),
            _ => self.number(),
        }
    }

    fn literal(&mut self, literal: &[u8], kind: u8) -> Option<u8> {
        let is_it = self.raw.get(self.at..)?.starts_with(literal);
        is_it.then(|| {
            self.at += literal.len();
            kind
        })
    }

    /// A number that is a value of 64 bits, without an exponent and no zero with a sign.
    fn number(&mut self) -> Option<u8> {
        /// So many digits are always an `i64`.
        const MOST: usize = 18;
        let is_negative = self.raw.get(self.at) == Some(&b'-');
        self.at += usize::from(is_negative);
        let whole = self.digits();
        let first = self.raw.get(self.at - whole.min(self.at))?;
        if whole == 0 || MOST < whole || *first == b'0' && (1 < whole || is_negative) {
            return None;
        }
        match self.raw.get(self.at) {
            Some(b'.') => {
                self.at += 1;
                let part = self.digits();
                let is_end = !matches!(self.raw.get(self.at), Some(b'e' | b'E'));
                (0 < part && part <= MOST && is_end).then_some(NUMBER)
            }
            Some(b'e' | b'E') => None,
            _ => Some(INTEGER),
        }
    }

    /// Skips digits, and counts them.
    fn digits(&mut self) -> usize {
        let rest = self.raw.get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|it| it.is_ascii_digit()).count();
        self.at += count;
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::compile;
    use proptest::prelude::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "description": "what it takes",
            "properties": {
                "text": {"type": "string", "description": "a text"},
                "count": {"type": "integer", "format": "int64"},
                "share": {"type": ["number", "null"], "default": null},
                "sure": {"type": "boolean"},
            },
            "required": ["text"],
            "additionalProperties": false,
        })
    }

    #[test]
    fn schemas_with_further_conditions_are_left_to_the_whole_check() {
        assert!(PlainObject::of(&schema()).is_some());
        assert!(PlainObject::of(&json!({"type": "object"})).is_some());
        for property in [
            json!({"type": "string", "pattern": "a"}),
            json!({"type": "string", "format": "date"}),
            json!({"type": "integer", "minimum": 1}),
            json!({"type": "array"}),
            json!({"enum": ["a"]}),
            json!({"$ref": "#/$defs/a"}),
            json!(true),
        ] {
            let schema = json!({"type": "object", "properties": {"a": property}});
            assert!(PlainObject::of(&schema).is_none(), "{schema}");
        }
        for (keyword, value) in [
            ("required", json!(["not_named"])),
            ("minProperties", json!(1)),
            ("additionalProperties", json!({"type": "string"})),
            ("allOf", json!([true])),
        ] {
            let mut schema = schema();
            schema[keyword] = value;
            assert!(PlainObject::of(&schema).is_none(), "{schema}");
        }
    }

    #[test]
    fn plain_arguments_fit() {
        let plain = PlainObject::of(&schema()).unwrap();
        for raw in [
            r#"{"text":"a"}"#,
            r#" { "text" : "" , "count" : -12 , "share" : 0.5 , "sure" : true } "#,
            r#"{"share":null,"text":"é"}"#,
            r#"{"share":7,"text":"a","count":0}"#,
        ] {
            assert!(plain.fits(raw.as_bytes()), "{raw}");
        }
        for raw in [
            r#"{}"#,
            r#"{"text":"a","text":"b"}"#,
            r#"{"text":"a","other":1}"#,
            r#"{"text":"a\n"}"#,
            r#"{"text":"a","count":1.0}"#,
            r#"{"text":"a","count":-0}"#,
            r#"{"text":"a","count":01}"#,
            r#"{"text":"a","share":1e400}"#,
            r#"{"text":"a","share":1.}"#,
            r#"{"text":"a","sure":1}"#,
            r#"{"text":"a"} {}"#,
            r#"{"text":"a""#,
        ] {
            assert!(!plain.fits(raw.as_bytes()), "{raw}");
        }
        assert!(!plain.fits(b"{\"text\":\"\xff\"}"));
    }

    proptest! {
        #[test]
        fn nothing_fits_that_the_whole_check_refuses(
            raw in r#"\{ ?("text" ?: ?("[a-zé\\]{0,3}"|null|-?[0-9.e]{1,4})|"(count|share|sure|x)" ?: ?(-?[0-9]{0,3}(\.[0-9]{0,2})?(e9)?|true|false|null|"[a-z]")|"text":"t")( ?, ?"(count|share|sure|text|\\u0074ext)" ?: ?(-?[0-9]{1,21}|0\.[0-9]{1,3}|true|null|"a|\[\]|\{\})){0,3}\}?"#
        ) {
            let written = schema();
            let schema = compile(&written).unwrap();
            let plain = PlainObject::of(&written).unwrap();
            if plain.fits(raw.as_bytes()) {
                let value: Value = serde_json::from_str(&raw).unwrap();
                prop_assert!(schema.check(&value, raw.len(), 1).is_ok(), "{}", raw);
            }
        }
    }
}
