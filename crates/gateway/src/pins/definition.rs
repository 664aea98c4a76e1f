//! Definitions as values: their canonical form, what two of them differ in, and if one may be another under a new name.

use super::{ChangeKind, Difference};
use crate::text::cleaned;
use data_encoding::HEXLOWER;
use redaction::canonical_digest;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// SHA-256 of what a definition says, in hexadecimal digits.
pub(crate) fn digest(definition: &Value) -> String {
    let text = ordered(definition).to_string();
    HEXLOWER.encode(&canonical_digest(&text).unwrap_or_default())
}

/// Bytes of a digest in hexadecimal digits.
pub(super) fn unhex(digits: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(digits.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    (digits.len() == 64).then_some(bytes)
}

/// The same definition, with what has no order in JSON Schema in the order of its texts: `required`, `enum` and `type` where
/// they are keywords, and numbers in one spelling. In values such as `default` all has the order that it has.
pub(crate) fn ordered(definition: &Value) -> Value {
    let mut definition = definition.clone();
    plain_numbers(&mut definition);
    let Value::Object(members) = &definition else {
        return definition;
    };
    let member = |(name, value): (&String, &Value)| {
        let value = match &**name {
            "inputSchema" | "outputSchema" => ordered_schema(value),
            _ => value.clone(),
        };
        (name.clone(), value)
    };
    Value::Object(members.iter().map(member).collect())
}

/// Writes integers as such: JSON has one kind of numbers, in which 1.0 is 1 (RFC 8785 §3.2.2.3).
fn plain_numbers(value: &mut Value) {
    /// Integers up to here are exact in both kinds that the parser has.
    const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < MAX_EXACT {
                let integer = float as i64;
                *number = integer.into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(plain_numbers),
        Value::Object(members) => members.values_mut().for_each(plain_numbers),
        _ => {}
    }
}

fn ordered_schema(schema: &Value) -> Value {
    let all = |items: &Vec<Value>| items.iter().map(ordered_schema).collect();
    let Value::Object(members) = schema else {
        return schema.clone();
    };
    let member = |(name, value): (&String, &Value)| {
        let value = match (&**name, value) {
            ("required" | "enum" | "type", Value::Array(items)) => {
                let mut items = items.clone();
                items.sort_by_cached_key(ToString::to_string);
                Value::Array(items)
            }
            (
                "properties" | "patternProperties" | "$defs" | "definitions" | "dependentSchemas"
                | "dependencies",
                Value::Object(schemas),
            ) => {
                let schemas = schemas.iter();
                let ordered = schemas.map(|(name, it)| (name.clone(), ordered_schema(it)));
                Value::Object(ordered.collect())
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems" | "items", Value::Array(items)) => {
                Value::Array(all(items))
            }
            (
                "items"
                | "additionalItems"
                | "unevaluatedItems"
                | "contains"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else"
                | "contentSchema",
                schema,
            ) => ordered_schema(schema),
            (_, other) => other.clone(),
        };
        (name.clone(), value)
    };
    Value::Object(members.iter().map(member).collect())
}

/// Kinds of the changes from one definition to another.
pub(crate) fn changes(before: &Value, after: &Value) -> BTreeSet<ChangeKind> {
    let kind = |difference: Difference| {
        let mut steps = difference.at.split('/').skip(1);
        let top = steps.next().unwrap_or_default();
        let last = difference.at.rsplit('/').next().unwrap_or_default();
        let is_text = |value: &Option<Value>| value.as_ref().is_none_or(Value::is_string);
        let are_texts = is_text(&difference.before) && is_text(&difference.after);
        match top {
            "name" | "title" | "description" | "arguments" | "uriTemplate" | "uri" | "mimeType" => {
                ChangeKind::Words
            }
            // A property may have that name, and is no text then.
            "inputSchema" | "outputSchema"
                if matches!(last, "title" | "description") && are_texts =>
            {
                ChangeKind::Words
            }
            "inputSchema" => ChangeKind::Input,
            "outputSchema" => ChangeKind::Output,
            "annotations" => ChangeKind::Annotations,
            "icons" => ChangeKind::Icons,
            _ => ChangeKind::Meta,
        }
    };
    let mut found = Vec::new();
    compare("", &ordered(before), &ordered(after), &mut found);
    found.into_iter().map(kind).collect()
}

pub(crate) fn compare(at: &str, before: &Value, after: &Value, found: &mut Vec<Difference>) {
    match (before, after) {
        (Value::Object(one), Value::Object(other)) => {
            let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            for name in names {
                let step = name.replace('~', "~0").replace('/', "~1");
                let at = format!("{at}/{step}");
                match (one.get(name), other.get(name)) {
                    (Some(one), Some(other)) => compare(&at, one, other, found),
                    (one, other) => found.push(Difference {
                        at,
                        before: one.cloned(),
                        after: other.cloned(),
                    }),
                }
            }
        }
        (one, other) if one == other => {}
        (one, other) => found.push(Difference {
            at: at.to_owned(),
            before: Some(one.clone()),
            after: Some(other.clone()),
        }),
    }
}

/// The part of what was sent that is not in a definition made of it; `None` if there is none. It has the shape of what was
/// sent, but of lists of one length, which are objects with the positions as names. Null and what is empty say nothing.
pub(crate) fn further(sent: &Value, known: &Value) -> Option<Value> {
    let says_nothing = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    let found: Map<String, Value> = match (sent, known) {
        (Value::Object(sent), Value::Object(known)) => {
            let more = sent.iter().filter_map(|(name, value)| {
                let more = match known.get(name) {
                    Some(known) => further(value, known),
                    None => (!says_nothing(value)).then(|| value.clone()),
                };
                Some((name.clone(), more?))
            });
            more.collect()
        }
        (Value::Array(sent), Value::Array(known)) if sent.len() == known.len() => {
            let pairs = sent.iter().zip(known).enumerate();
            let more = pairs
                .filter_map(|(at, (sent, known))| Some((at.to_string(), further(sent, known)?)));
            more.collect()
        }
        (sent @ Value::Array(_), Value::Array(_)) => return Some(sent.clone()),
        // What has another form here is compared in that.
        _ => return None,
    };
    (!found.is_empty()).then_some(Value::Object(found))
}

/// A definition with its [`further`] members.
pub(crate) fn whole(mut definition: Value, further: &Value) -> Value {
    add(&mut definition, further);
    definition
}

fn add(to: &mut Value, more: &Value) {
    match (to, more) {
        (Value::Object(members), Value::Object(more)) => {
            for (name, more) in more {
                match members.get_mut(name) {
                    Some(member) => add(member, more),
                    None => drop(members.insert(name.clone(), more.clone())),
                }
            }
        }
        (Value::Array(items), Value::Object(more)) => {
            for (at, more) in more {
                let item = at.parse().ok().and_then(|at: usize| items.get_mut(at));
                item.into_iter().for_each(|it| add(it, more));
            }
        }
        (to, more) => *to = more.clone(),
    }
}

/// The same definition with its texts cleaned.
pub(crate) fn cleaned_definition(mut definition: Value) -> Value {
    fn clean(value: &mut Value, are_names: bool) {
        match value {
            Value::String(text) => {
                if let Some(clean) = cleaned(text) {
                    *text = clean;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|it| clean(it, false)),
            Value::Object(members) => members
                .iter_mut()
                // Values that clients send back, as they are. A parameter may have such a name.
                .filter(|(name, value)| {
                    are_names
                        || !match &***name {
                            "name" | "uriTemplate" | "uri" => value.is_string(),
                            "enum" => value.is_array(),
                            other => other == "const",
                        }
                })
                .for_each(|(name, value)| {
                    const NAMES: [&str; 5] = [
                        "properties",
                        "patternProperties",
                        "dependentSchemas",
                        "$defs",
                        "definitions",
                    ];
                    clean(value, !are_names && NAMES.contains(&&**name));
                }),
            _ => {}
        }
    }
    clean(&mut definition, false);
    definition
}

/// Definition without its names, to be found again under another one.
///
/// Texts are cleaned as they are offered; case, blanks and punctuation do not count. Annotations, icons and the rest are
/// left out, since they are the easiest to change.
#[derive(Debug)]
pub(crate) struct Likeness {
    /// Words of the description.
    words: Vec<String>,
    /// Parameters without their texts; `None` if there are none.
    parameters: Option<String>,
}

impl Likeness {
    pub(crate) fn of(definition: &Value) -> Self {
        let description = definition["description"].as_str().unwrap_or_default();
        let description = cleaned(description).unwrap_or_else(|| description.to_owned());
        // What joins characters is not seen either, and must not part words.
        let plain = description
            .chars()
            .filter(|it| it.is_alphanumeric() || it.is_whitespace());
        let plain: String = plain.flat_map(char::to_lowercase).collect();
        let schema = &definition["inputSchema"];
        let has_some = schema["properties"]
            .as_object()
            .is_some_and(|it| !it.is_empty());
        let arguments = definition["arguments"].as_array().into_iter().flatten();
        let arguments: BTreeSet<_> = arguments.filter_map(|it| it["name"].as_str()).collect();
        let parameters = match has_some {
            true => Some(without_texts(&ordered(definition)["inputSchema"]).to_string()),
            false => (!arguments.is_empty()).then(|| format!("{arguments:?}")),
        };
        Self {
            words: plain.split_whitespace().map(str::to_owned).collect(),
            parameters,
        }
    }

    /// True if all words of the description, of which there are some, and the parameters are the same.
    pub(crate) fn is_the_same(&self, other: &Self) -> bool {
        !self.words.is_empty() && self.words == other.words && self.parameters == other.parameters
    }

    /// True if at least three of four words of the description are the same, at its beginning and end, or half of them
    /// anywhere and the parameters.
    ///
    /// Parameters alone say little: a path, a query, or owner and repository are those of many tools that have nothing else in
    /// common, and holds that mean nothing teach to approve without a look. Without any words, there is nothing else to compare.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let longer = self.words.len().max(other.words.len());
        let pairs = self.words.iter().zip(&other.words);
        let first = pairs.take_while(|(one, other)| one == other).count();
        let rest = (&self.words[first..], &other.words[first..]);
        let pairs = rest.0.iter().rev().zip(rest.1.iter().rev());
        let last = pairs.take_while(|(one, other)| one == other).count();
        let is_said = longer != 0 && longer * 3 <= (first + last) * 4;
        let has_same_parameters = self.parameters.is_some() && self.parameters == other.parameters;
        is_said || (has_same_parameters && longer <= 2 * self.shared_words(other))
    }
}

impl Likeness {
    /// Number of words that both descriptions have, wherever they stand.
    fn shared_words(&self, other: &Self) -> usize {
        let mut rest: Vec<_> = other.words.iter().collect();
        let mut is_shared = |word: &&String| {
            let at = rest.iter().position(|it| it == word);
            at.map(|at| rest.swap_remove(at)).is_some()
        };
        self.words.iter().filter(|it| is_shared(it)).count()
    }
}

/// A schema without titles and descriptions.
fn without_texts(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let members = members
                .iter()
                // A property may have that name, and is no text then.
                .filter(|(name, value)| {
                    !(matches!(&***name, "title" | "description" | "$comment") && value.is_string())
                })
                .map(|(name, value)| (name.clone(), without_texts(value)));
            Value::Object(members.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_texts).collect()),
        other => other.clone(),
    }
}
