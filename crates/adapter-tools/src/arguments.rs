use crate::{
    members::Members,
    schema::{CheckedSchema, take_out_nulls},
    violation::Violation,
};
use bytes::Bytes;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, value::RawValue};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// The most bytes that the arguments of one call may have.
pub const MAX_ARGUMENT_BYTES: usize = 8 * 1024 * 1024;
/// The deepest that the arguments of one call may be nested, the object itself counted.
pub const MAX_ARGUMENT_DEPTH: usize = 64;

/// The arguments of one call, known to fit the schema of the tool that checked them. There is no
/// other way to get them than [`Tool::check`](crate::Tool::check).
#[derive(Clone)]
pub struct Arguments {
    raw: Bytes,
    /// Made of the text when somebody asks for it.
    value: OnceLock<Value>,
    checked_by: Arc<CheckedSchema>,
}

/// Violations of a schema by arguments. At most [`InvalidArguments::MAX_VIOLATIONS`] are listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the arguments do not fit the tool's schema")]
pub struct InvalidArguments {
    violations: Vec<Violation>,
    is_truncated: bool,
}

impl Arguments {
    /// The text of the JSON object, exactly as the caller wrote it, unless nulls were taken for members
    /// that are left out (see [`Tool::check`](crate::Tool::check)).
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The object.
    pub fn as_object(&self) -> &Map<String, Value> {
        let parse = || parse(&self.raw).expect("`check` lets only JSON through");
        let value = self.value.get_or_init(parse).as_object();
        value.expect("`check` lets only objects through")
    }

    /// The object, if each number in it is the one that the caller wrote. For executors that write numbers
    /// anew: what was approved and recorded is the text, and a [`Value`] holds integers of 64 bits and
    /// doubles.
    ///
    /// # Errors
    ///
    /// [`InvalidArguments`], naming the first number that would be another one.
    pub fn exact_object(&self) -> Result<&Map<String, Value>, InvalidArguments> {
        match inexact(&self.raw) {
            None => Ok(self.as_object()),
            Some(number) => {
                let shown: String = number.chars().take(40).collect();
                Err(InvalidArguments::because(format!(
                    "the number {shown} cannot be passed on exactly: expected an integer of 64 bits, or at \
                     most 15 digits; write it as a text if the tool takes one"
                )))
            }
        }
    }

    /// Returns true if these were checked with `schema`.
    pub(crate) fn were_checked_by(&self, schema: &Arc<CheckedSchema>) -> bool {
        Arc::ptr_eq(&self.checked_by, schema)
    }
}

impl fmt::Debug for Arguments {
    /// Tells the size only: arguments do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arguments")
            .field("bytes", &self.raw.len())
            .finish_non_exhaustive()
    }
}

impl InvalidArguments {
    /// Most violations that are listed.
    pub const MAX_VIOLATIONS: usize = 20;

    /// Arguments that are refused for this reason, as a whole.
    pub fn because(message: impl Into<String>) -> Self {
        Self::at("", message)
    }

    /// Places and what is wrong there; `None` if there are none. More than are listed are left out.
    pub(crate) fn several(places: impl IntoIterator<Item = (String, String)>) -> Option<Self> {
        let mut violations = places
            .into_iter()
            .map(|(pointer, message)| Violation::new(pointer, message));
        let listed: Vec<_> = violations.by_ref().take(Self::MAX_VIOLATIONS).collect();
        let is_truncated = violations.next().is_some();
        (!listed.is_empty()).then_some(Self {
            violations: listed,
            is_truncated,
        })
    }

    pub(crate) fn at(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            violations: vec![Violation::new(pointer, message)],
            is_truncated: false,
        }
    }

    /// Violations; never empty.
    pub fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// Returns true if there are more violations than are listed.
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }
}

/// Parses `raw` and checks it with `schema`, which is `written` compiled. Nothing (no bytes at all)
/// stands for `{}`.
pub(crate) fn check(
    raw: Bytes,
    schema: &Arc<CheckedSchema>,
    written: &Value,
) -> Result<Arguments, InvalidArguments> {
    if MAX_ARGUMENT_BYTES < raw.len() {
        let message = format!(
            "expected at most {MAX_ARGUMENT_BYTES} bytes, found {}",
            raw.len()
        );
        return Err(InvalidArguments::because(message));
    }
    let raw = if raw.is_empty() {
        Bytes::from_static(b"{}")
    } else {
        raw
    };
    if schema.plainly_fits(&raw) {
        return Ok(Arguments {
            raw,
            value: OnceLock::new(),
            checked_by: Arc::clone(schema),
        });
    }
    let mut value = parse(&raw).map_err(|error| InvalidArguments::because(error.to_string()))?;
    if !value.is_object() {
        let found = crate::violation::describe(&value);
        let message = format!("expected an object, found {found}");
        return Err(InvalidArguments::because(message));
    }
    let mut raw = raw;
    let max = InvalidArguments::MAX_VIOLATIONS;
    let mut fits = schema.check(&value, raw.len(), max);
    // Some callers send null for each optional property that they have nothing for.
    if fits.is_err() && take_out_nulls(&mut value, written) {
        raw = Bytes::from(without(&raw, &value));
        fits = schema.check(&value, raw.len(), max);
    }
    fits.map_err(|(violations, is_truncated)| InvalidArguments {
        violations,
        is_truncated,
    })?;
    let checked_by = Arc::clone(schema);
    Ok(Arguments {
        raw,
        value: value.into(),
        checked_by,
    })
}

/// The first number in this JSON that no [`Value`] holds as it is.
fn inexact(raw: &[u8]) -> Option<&str> {
    let (mut at, mut is_text) = (0, false);
    while let Some(byte) = raw.get(at) {
        match byte {
            b'\\' if is_text => at += 1,
            b'"' => is_text = !is_text,
            b'-' | b'0'..=b'9' if !is_text => {
                let is_part =
                    |it: &u8| matches!(it, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let rest = &raw[at..];
                let length = rest.iter().position(|it| !is_part(it));
                let number = &rest[..length.unwrap_or(rest.len())];
                let number = std::str::from_utf8(number).unwrap_or_default();
                if !is_exact(number) {
                    return Some(number);
                }
                at += number.len();
                continue;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn is_exact(number: &str) -> bool {
    // A double tells all numbers of so many digits apart.
    let is_short = number.len() <= 15 && !number.contains(['e', 'E']);
    is_short
        || number.parse::<i64>().is_ok()
        || number.parse::<u64>().is_ok()
        || number.parse::<f64>().is_ok_and(|double| {
            double.is_finite() && decimal(number) == decimal(&format!("{double:e}"))
        })
}

/// The digits of a number without zeros around them, and the power of ten that they are multiplied by.
fn decimal(number: &str) -> Option<(bool, String, i64)> {
    let (digits, power) = match number.split_once(['e', 'E']) {
        Some((digits, power)) => (digits, power.parse::<i64>().ok()?),
        None => (number, 0),
    };
    let is_negative = digits.starts_with('-');
    let digits = digits.trim_start_matches('-');
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{part}");
    let significant = all.trim_end_matches('0');
    let zeros = i64::try_from(all.len() - significant.len()).ok()?;
    let significant = significant.trim_start_matches('0').to_owned();
    if significant.is_empty() {
        return Some((is_negative, significant, 0));
    }
    let power = power.checked_add(zeros)?;
    let power = power.checked_sub(i64::try_from(part.len()).ok()?)?;
    Some((is_negative, significant, power))
}

/// The text `raw` without the members that are not in `value`. Nothing else changes, numbers that no
/// [`Value`] holds exactly included.
fn without(raw: &[u8], value: &Value) -> Vec<u8> {
    let mut kept = Vec::with_capacity(raw.len());
    if let Ok(raw) = serde_json::from_slice(raw) {
        put(&mut kept, raw, value);
    }
    kept
}

fn put(kept: &mut Vec<u8>, raw: &RawValue, value: &Value) {
    match value {
        Value::Object(members) if !members.is_empty() => {
            let Members(all) = serde_json::from_str(raw.get()).unwrap_or_default();
            kept.push(b'{');
            for (name, raw) in all {
                if let Some(value) = members.get(&name) {
                    if !kept.ends_with(b"{") {
                        kept.push(b',');
                    }
                    kept.extend_from_slice(Value::from(name).to_string().as_bytes());
                    kept.push(b':');
                    put(kept, raw, value);
                }
            }
            kept.push(b'}');
        }
        Value::Object(_) => kept.extend_from_slice(b"{}"),
        Value::Array(items) => {
            let all: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
            kept.push(b'[');
            for (index, (raw, value)) in all.into_iter().zip(items).enumerate() {
                if index > 0 {
                    kept.push(b',');
                }
                put(kept, raw, value);
            }
            kept.push(b']');
        }
        _ => kept.extend_from_slice(raw.get().as_bytes()),
    }
}

/// Parses JSON that means one thing only: a member that is given twice is an error, because the
/// executor might read the raw text and take the other one than the check did.
fn parse(raw: &[u8]) -> Result<Value, serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_slice(raw);
    let value = Unambiguous {
        depth: MAX_ARGUMENT_DEPTH,
    }
    .deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// Any JSON value in which no member is given twice.
#[derive(Clone, Copy)]
struct Unambiguous {
    /// Number of levels that may still be opened.
    depth: usize,
}

impl Unambiguous {
    fn deeper<E: Error>(self) -> Result<Self, E> {
        let depth = self.depth.checked_sub(1).ok_or_else(|| {
            E::custom(format!(
                "expected at most {MAX_ARGUMENT_DEPTH} levels of nesting"
            ))
        })?;
        Ok(Self { depth })
    }
}

impl<'de> DeserializeSeed<'de> for Unambiguous {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unambiguous {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(deeper)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let deeper = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            let value = members.next_value_seed(deeper)?;
            match object.entry(key) {
                serde_json::map::Entry::Vacant(vacant) => vacant.insert(value),
                serde_json::map::Entry::Occupied(twice) => {
                    let name: String = twice.key().chars().take(64).collect();
                    return Err(A::Error::custom(format!(
                        "the member `{name}` is given twice"
                    )));
                }
            };
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(raw: Bytes, schema: &Arc<CheckedSchema>) -> Result<Arguments, InvalidArguments> {
        super::check(raw, schema, &json!({"type": "object"}))
    }

    fn any_object() -> Arc<CheckedSchema> {
        Arc::new(crate::schema::compile(&json!({"type": "object"})).unwrap())
    }

    fn refusal(raw: &str) -> String {
        let error = check(Bytes::copy_from_slice(raw.as_bytes()), &any_object()).unwrap_err();
        error.violations()[0].message().to_owned()
    }

    #[test]
    fn what_is_no_plain_object_is_refused() {
        let nested =
            |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        let rows = [
            (
                "[1]".to_owned(),
                "expected an object, found array of 1 item",
            ),
            ("null".to_owned(), "expected an object, found null"),
            ("{\"a\":1".to_owned(), "EOF"),
            ("{} {}".to_owned(), "trailing"),
            ("{\"a\":NaN}".to_owned(), "expected value"),
            ("{\"a\":\"\\ud800\"}".to_owned(), "hex escape"),
            (
                "{\"a\":1,\"a\":2}".to_owned(),
                "the member `a` is given twice",
            ),
            (
                "{\"b\":[{\"a\":1,\"\\u0061\":2}]}".to_owned(),
                "the member `a` is given twice",
            ),
            (nested(MAX_ARGUMENT_DEPTH), "levels of nesting"),
            (nested(1_000_000), "levels of nesting"),
            (
                format!("{{\"a\":\"{}\"}}", "x".repeat(MAX_ARGUMENT_BYTES)),
                "bytes",
            ),
        ];
        for (raw, why) in rows {
            let message = refusal(&raw);
            assert!(message.contains(why), "{why}: {message}");
        }
        let deepest = nested(MAX_ARGUMENT_DEPTH - 1);
        check(Bytes::from(deepest), &any_object()).unwrap();
    }

    #[test]
    fn nothing_at_all_stands_for_no_arguments() {
        let arguments = check(Bytes::new(), &any_object()).unwrap();
        assert!(arguments.as_object().is_empty());
        assert_eq!(arguments.raw(), &Bytes::from_static(b"{}"));
    }

    #[test]
    fn the_raw_text_is_kept_to_the_letter() {
        let raw = Bytes::from_static(b" {\"n\": 12345678901234567890123, \"f\":1.0 }");
        let arguments = check(raw.clone(), &any_object()).unwrap();
        assert_eq!(arguments.raw(), &raw);
        assert!(!format!("{arguments:?}").contains("1234"));
    }

    #[test]
    fn numbers_that_no_value_holds_exactly_are_found() {
        let rows = [
            ("0", true),
            ("-0", true),
            ("-0.0", true),
            ("1.10", true),
            ("123456789012.25", true),
            ("18446744073709551615", true),
            ("-9223372036854775808", true),
            ("18446744073709551616", false),
            ("18446744073709551617", false),
            ("12345678901234567890123", false),
            ("1e3", true),
            ("1.5E+300", true),
            ("1e400", false),
            ("1e-400", false),
            ("0.1", true),
            ("0.10000000000000000000", true),
            ("0.1000000000000000055", false),
            ("1234567890123456.78", false),
            ("12345678901234567.8", false),
        ];
        for (number, is_exact) in rows {
            let raw = format!(r#"{{"1e999 \" 9e999": "9e999", "a": [{{"b": {number}}}, 1]}}"#);
            assert_eq!(
                super::inexact(raw.as_bytes()),
                (!is_exact).then_some(number)
            );
        }
    }

    /// The arguments that a tool of `schema` gets of `raw`, or the first violation.
    fn taken(schema: &Value, raw: &str) -> String {
        let compiled = Arc::new(crate::schema::compile(schema).unwrap());
        match super::check(Bytes::copy_from_slice(raw.as_bytes()), &compiled, schema) {
            Ok(arguments) => {
                let again: Value = serde_json::from_slice(arguments.raw()).unwrap();
                assert_eq!(again.as_object().unwrap(), arguments.as_object());
                String::from_utf8(arguments.raw().to_vec()).unwrap()
            }
            Err(error) => error.violations()[0].to_string(),
        }
    }

    #[test]
    fn null_for_an_optional_member_without_null_counts_as_left_out() {
        let schema = json!({
            "type": "object",
            "properties": {
                "sku": {"type": "string"},
                "count": {"type": "integer"},
                "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "kind": {"enum": ["a", "b"]},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
                "line": {"anyOf": [{"$ref": "#/$defs/Line"}, {"type": "null"}]},
                "any": {},
            },
            "required": ["sku"],
            "additionalProperties": false,
            "$defs": {"Line": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "of": {"$ref": "#/$defs/Line"}},
                "required": ["id"],
                "additionalProperties": false,
            }},
        });
        let rows = [
            (r#"{"sku": "x", "count": 1}"#, r#"{"sku": "x", "count": 1}"#),
            (
                r#"{"sku":"x","count":null,"kind":null,"note":null,"any":null}"#,
                r#"{"sku":"x","note":null,"any":null}"#,
            ),
            (r#"{"count":null,"sku":"x"}"#, r#"{"sku":"x"}"#),
            // The rest stays as it was written.
            (
                r#"{"count":null,"sku":"\u0041","any":[12345678901234567890123, 1.0, {}, [], {"b":1,"a":2}]}"#,
                r#"{"sku":"\u0041","any":[12345678901234567890123,1.0,{},[],{"b":1,"a":2}]}"#,
            ),
            (
                r#"{"sku":"x","lines":[{"id":1,"of":null}]}"#,
                r#"{"sku":"x","lines":[{"id":1}]}"#,
            ),
            (
                r#"{"sku":"x","line":{"id":1,"of":{"id":2,"of":null}}}"#,
                r#"{"sku":"x","line":{"id":1,"of":{"id":2}}}"#,
            ),
            (
                r#"{"sku":null,"count":null}"#,
                "/sku: expected string, found null",
            ),
            (
                r#"{"sku":"x","lines":[{"id":null}]}"#,
                "/lines/0/id: expected integer, found null",
            ),
            (
                r#"{"sku":"x","lines":[null]}"#,
                "/lines/0: expected object, found null",
            ),
            (
                r#"{"sku":"x","other":null}"#,
                r#"arguments: expected no other members, found "other""#,
            ),
        ];
        for (raw, expected) in rows {
            assert_eq!(taken(&schema, raw), expected, "{raw}");
        }
        let counted = json!({
            "type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 1,
        });
        let refused = taken(&counted, r#"{"a":null}"#);
        assert!(refused.contains("at least 1"), "{refused}");
        let circle = json!({
            "type": "object", "properties": {"a": {"$ref": "#/properties/a"}, "b": {"type": "string"}},
        });
        if crate::schema::compile(&circle).is_ok() {
            taken(&circle, r#"{"a":{},"b":null}"#);
        }
    }
}
