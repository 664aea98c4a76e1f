//! Arguments that clients repeat in HTTP headers, so that what stands between can route by them
//! (2026-07-28, basic/transports, custom headers from tool parameters).
//!
//! A tool's schema says which: `x-mcp-header` names the header `Mcp-Param-{name}` of a property. The
//! body is what a call is carried out by, so headers that say something else must not pass.
//!
//! A tool whose annotations break the rules is offered all the same, and none of its headers is
//! compared: the revision asks clients of HTTP to leave such a tool out and lets all others ignore
//! annotations, so withholding it would only take it from those who can use it.

use base64::{Engine, engine::general_purpose::STANDARD};
use jsonrpc_core::RawJson;
use serde::Deserialize;
use serde_json::{Map, Number, Value, value::RawValue};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

const ANNOTATION: &str = "x-mcp-header";

/// The arguments of one tool that are repeated in headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirroredParams(Vec<Param>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Param {
    /// `mcp-param-NAME`, in lower case.
    header: String,
    /// The properties that lead to the argument.
    path: Vec<String>,
}

/// An annotation of a schema that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadAnnotation {
    /// The name of a header is no token of RFC 9110, section 5.6.2.
    #[error("`{pointer}` names no header: {name}")]
    Name {
        /// Place in the schema.
        pointer: String,
        /// The JSON of what is there.
        name: String,
    },
    /// Two arguments have one header, letter case apart.
    #[error("the header of `{pointer}` belongs to another property as well")]
    Twice {
        /// Place in the schema.
        pointer: String,
    },
    /// The type cannot be repeated: only strings, integers and booleans can.
    #[error("`{pointer}` is no string, integer or boolean")]
    Type {
        /// Place in the schema.
        pointer: String,
    },
    /// No chain of `properties` leads there, so it is unclear which argument is meant.
    #[error("`{pointer}` is no property, or not one that is always there")]
    Place {
        /// Place in the schema.
        pointer: String,
    },
}

/// The difference between headers and arguments of a call, for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{header} {what}")]
pub struct HeaderDiffers {
    header: String,
    what: &'static str,
}

impl MirroredParams {
    /// Reads the annotations of a tool's input schema.
    ///
    /// # Errors
    ///
    /// The first [`BadAnnotation`], which makes all of them void.
    pub fn of_schema(schema: &Value) -> Result<Self, BadAnnotation> {
        let mut found = Found::default();
        found.visit(schema, &mut Place::root())?;
        Ok(Self(found.params))
    }

    /// True if no argument is repeated.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The headers, by name and value, that repeat `arguments`.
    pub fn headers_of(&self, arguments: &RawJson) -> Vec<(String, String)> {
        if self.0.is_empty() {
            return Vec::new();
        }
        let text = arguments.as_str();
        let Ok(arguments) = arguments.parse::<Map<String, Value>>() else {
            return Vec::new();
        };
        let header = |param: &Param| {
            let value = match argument(&arguments, &param.path)? {
                Value::String(text) => text.clone(),
                Value::Bool(truth) => truth.to_string(),
                Value::Number(number) => match integer(number) {
                    Some(integer) => integer.to_string(),
                    None => digits(text, &param.path).unwrap_or_else(|| decimal(number)),
                },
                Value::Null | Value::Array(_) | Value::Object(_) => return None,
            };
            let value = crate::client::header_value(&value).into_owned();
            Some((param.header.clone(), value))
        };
        self.0.iter().filter_map(header).collect()
    }

    /// Compares. `params` are those of the `tools/call`, and `header` gives all values of the header
    /// of this lower-case name.
    ///
    /// What is missing or null in the body must be missing in the headers, too: who routes by a
    /// header would believe it.
    ///
    /// # Errors
    ///
    /// [`HeaderDiffers`], of the first header that does.
    pub fn compare<'h>(
        &self,
        params: &RawJson,
        header: impl Fn(&str) -> Vec<&'h [u8]>,
    ) -> Result<(), HeaderDiffers> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(default)]
            arguments: Option<Map<String, Value>>,
        }
        if self.0.is_empty() {
            return Ok(());
        }
        // What cannot be read here cannot be called either, which is for the method to say.
        let Ok(Wire { arguments }) = params.parse::<Wire>() else {
            return Ok(());
        };
        let arguments = arguments.unwrap_or_default();
        for param in &self.0 {
            let values = header(&param.header);
            let differs = match (argument(&arguments, &param.path), one_of(&values)) {
                (None, Ok(None)) => None,
                (None, _) => Some("is there, but its argument is not"),
                (Some(_), Err(())) => Some("is there twice, with different values"),
                (Some(_), Ok(None)) => Some("is missing, but its argument is there"),
                (Some(argument), Ok(Some(value))) => match decoded(value) {
                    None => Some("has characters that must be encoded, or is badly encoded"),
                    Some(value) if says(&value, argument) => None,
                    Some(_) => Some("is not what its argument is"),
                },
            };
            if let Some(what) = differs {
                let header = param.header.clone();
                return Err(HeaderDiffers { header, what });
            }
        }
        Ok(())
    }
}

/// The argument at `path`; none if it is null or nothing leads to it.
fn argument<'a>(arguments: &'a Map<String, Value>, path: &[String]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let mut value = arguments.get(first)?;
    for step in rest {
        value = value.as_object()?.get(step)?;
    }
    (!value.is_null()).then_some(value)
}

fn one_of<'h>(values: &[&'h [u8]]) -> Result<Option<&'h [u8]>, ()> {
    let Some((first, rest)) = values.split_first() else {
        return Ok(None);
    };
    if rest.iter().all(|value| value == first) {
        Ok(Some(first))
    } else {
        Err(())
    }
}

/// The text a header value stands for: itself, or what `=?base64?…?=` holds.
fn decoded(value: &[u8]) -> Option<Cow<'_, str>> {
    if !value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')) {
        return None;
    }
    let value = std::str::from_utf8(value).ok()?;
    let encoded = value
        .strip_prefix("=?base64?")
        .and_then(|value| value.strip_suffix("?="));
    match encoded {
        None => Some(Cow::Borrowed(value)),
        Some(encoded) => {
            let bytes = STANDARD.decode(encoded).ok()?;
            String::from_utf8(bytes).ok().map(Cow::Owned)
        }
    }
}

/// By the argument's own type: one that is not of its schema's is refused by the schema.
fn says(header: &str, argument: &Value) -> bool {
    match argument {
        Value::String(text) => header == text,
        Value::Bool(truth) => header == if *truth { "true" } else { "false" },
        Value::Number(number) => {
            serde_json::from_str::<Number>(header).is_ok_and(|header| same_number(&header, number))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// `42` and `42.0` are the same number.
fn same_number(a: &Number, b: &Number) -> bool {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a.as_f64() == b.as_f64(),
        _ => false,
    }
}

fn integer(number: &Number) -> Option<i128> {
    /// Above it, a float is not one integer but several.
    const MOST: f64 = 9_007_199_254_740_992.0;
    if let Some(integer) = number.as_i128() {
        return Some(integer);
    }
    let float = number.as_f64()?;
    (float.fract() == 0.0 && float.abs() <= MOST).then_some(float as i128)
}

/// The digits of the integer at `path`, as they were written; none if it was written as a fraction or with an exponent.
fn digits(arguments: &str, path: &[String]) -> Option<String> {
    let mut value = arguments;
    for step in path {
        let members: BTreeMap<Cow<'_, str>, &RawValue> = serde_json::from_str(value).ok()?;
        value = members.get(step.as_str())?.get();
    }
    let unsigned = value.strip_prefix('-').unwrap_or(value);
    let is_integer = !unsigned.is_empty() && unsigned.bytes().all(|it| it.is_ascii_digit());
    is_integer.then(|| value.to_owned())
}

/// A number without an exponent.
fn decimal(number: &Number) -> String {
    match number.as_f64() {
        Some(float) => float.to_string(),
        None => number.to_string(),
    }
}

/// The way to a part of a schema.
struct Place {
    pointer: String,
    /// The properties on the way; none if it leads through something else.
    path: Option<Vec<String>>,
}

impl Place {
    fn root() -> Self {
        Self {
            pointer: String::new(),
            path: Some(Vec::new()),
        }
    }

    /// Goes on to what no property leads to.
    fn elsewhere(&self, steps: &[&str]) -> Self {
        let mut pointer = self.pointer.clone();
        for step in steps {
            pointer.push('/');
            pointer.push_str(&step.replace('~', "~0").replace('/', "~1"));
        }
        Self {
            pointer,
            path: None,
        }
    }

    fn property(&self, name: &str) -> Self {
        let mut path = self.path.clone();
        if let Some(path) = &mut path {
            path.push(name.to_owned());
        }
        Self {
            path,
            ..self.elsewhere(&["properties", name])
        }
    }
}

#[derive(Default)]
struct Found {
    params: Vec<Param>,
    headers: HashSet<String>,
}

impl Found {
    /// Looks where JSON Schema 2020-12 has schemas, and nowhere else: a `default` may hold anything.
    /// How deep that can lead is bounded where tools are put together.
    fn visit(&mut self, schema: &Value, place: &mut Place) -> Result<(), BadAnnotation> {
        let Some(schema) = schema.as_object() else {
            return Ok(());
        };
        if let Some(name) = schema.get(ANNOTATION) {
            self.add(name, schema, place)?;
        }
        for (keyword, value) in schema {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        self.visit(property, &mut place.property(name))?;
                    }
                }
                (
                    "patternProperties" | "$defs" | "definitions" | "dependentSchemas",
                    Value::Object(schemas),
                ) => {
                    for (name, schema) in schemas {
                        self.visit(schema, &mut place.elsewhere(&[keyword, name]))?;
                    }
                }
                ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(schemas)) => {
                    for (index, schema) in schemas.iter().enumerate() {
                        let index = index.to_string();
                        self.visit(schema, &mut place.elsewhere(&[keyword, &index]))?;
                    }
                }
                (
                    "items"
                    | "contains"
                    | "additionalProperties"
                    | "unevaluatedProperties"
                    | "unevaluatedItems"
                    | "propertyNames"
                    | "contentSchema"
                    | "not"
                    | "if"
                    | "then"
                    | "else",
                    schema,
                ) => self.visit(schema, &mut place.elsewhere(&[keyword]))?,
                _ => {}
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        name: &Value,
        schema: &Map<String, Value>,
        place: &Place,
    ) -> Result<(), BadAnnotation> {
        let pointer = || place.pointer.clone();
        let path = match &place.path {
            Some(path) if !path.is_empty() => path.clone(),
            _ => return Err(BadAnnotation::Place { pointer: pointer() }),
        };
        let name = match name.as_str() {
            Some(name) if !name.is_empty() && name.bytes().all(is_tchar) => name,
            _ => {
                return Err(BadAnnotation::Name {
                    pointer: pointer(),
                    name: name.to_string().chars().take(64).collect(),
                });
            }
        };
        if !is_primitive(schema) {
            return Err(BadAnnotation::Type { pointer: pointer() });
        }
        let header = format!("mcp-param-{}", name.to_ascii_lowercase());
        if !self.headers.insert(header.clone()) {
            return Err(BadAnnotation::Twice { pointer: pointer() });
        }
        self.params.push(Param { header, path });
        Ok(())
    }
}

/// One primitive type, or nothing instead of it: null is what makes an argument's header go away.
fn is_primitive(schema: &Map<String, Value>) -> bool {
    let branches = match (schema.get("type"), schema.get("anyOf")) {
        (Some(Value::Array(types)), None) => types.iter().collect(),
        (Some(one), None) => vec![one],
        (None, Some(Value::Array(branches))) => branches.iter().map(|it| &it["type"]).collect(),
        _ => return false,
    };
    let mut other = branches.iter().filter(|it| it.as_str() != Some("null"));
    let primitive = |it: &&Value| matches!(it.as_str(), Some("string" | "integer" | "boolean"));
    other.next().is_some_and(primitive) && other.next().is_none()
}

/// RFC 9110, section 5.6.2.
fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests;
