mod derived;
mod draft7;
mod effort;
mod order;
mod plain;
mod portable;
mod secret;

use crate::violation::{Violation, violations_of};
pub(crate) use derived::schema_of;
use effort::Effort;
use jsonschema::{Draft, PatternOptions, ValidationError, ValidationOptions, Validator};
pub(crate) use order::NameOrder;
use plain::PlainObject;
pub(crate) use portable::{names, portable, take_out_nulls};
pub(crate) use secret::secret_members;
use serde_json::Value;
use std::borrow::Cow;

/// Reason why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// A schema whose JSON has more bytes than [`MAX_SCHEMA_BYTES`].
    #[error("the schema has more than {MAX_SCHEMA_BYTES} bytes")]
    TooLarge,
    /// A schema that is nested deeper than [`MAX_SCHEMA_DEPTH`].
    #[error("the schema is nested deeper than {MAX_SCHEMA_DEPTH} levels")]
    TooDeep,
    /// A root without `"type": "object"`, which the protocol asks for.
    #[error("the schema's root is not of type `object`")]
    RootNotObject,
    /// A dialect other than JSON Schema 2020-12 and draft 7.
    #[error(
        "the schema is in the dialect `{0}`, and only JSON Schema 2020-12 and draft 7 are understood"
    )]
    Dialect(String),
    /// A reference leads out of the document. Nothing is ever fetched.
    #[error(
        "the reference `{reference}` at `{pointer}` leads out of the schema, and nothing is fetched"
    )]
    Outside {
        /// Place in the schema, as a JSON pointer.
        pointer: String,
        /// Target of the reference.
        reference: String,
    },
    /// One value may have to be checked against so many subschemas (references that are followed twice,
    /// and lead to what follows references twice) or alternatives that checks would take too long.
    #[error("the schema asks for so much of a single value that checks would take too long")]
    TooIntricate,
    /// A subschema applies itself to the same value, by references, for which JSON Schema defines no
    /// result (2020-12, core §9.4.1). Recursion into members and items is fine.
    #[error("the schema refers back to itself at `{pointer}` without going into the value")]
    Circular {
        /// The subschema, as a JSON pointer.
        pointer: String,
    },
    /// There are more than [`MAX_SCHEMA_PATTERNS`] patterns, or one is longer than
    /// [`MAX_PATTERN_LENGTH`].
    #[error(
        "the schema has more than {MAX_SCHEMA_PATTERNS} patterns, or one of more than {MAX_PATTERN_LENGTH} bytes"
    )]
    TooManyPatterns,
    /// A schema that is no valid JSON Schema 2020-12, or a reference without a target.
    #[error("the schema is not valid at `{pointer}`: {message}")]
    Invalid {
        /// Place in the schema, as a JSON pointer.
        pointer: String,
        /// Description of what is wrong there.
        message: String,
    },
}

/// The most bytes that the JSON of a tool's schema may have.
pub const MAX_SCHEMA_BYTES: usize = 256 * 1024;
/// The deepest that a tool's schema may be nested.
pub const MAX_SCHEMA_DEPTH: usize = 64;

/// The most regular expressions (`pattern`, and names in `patternProperties`) of a tool's schema.
pub const MAX_SCHEMA_PATTERNS: usize = 500;
/// The most bytes in one of them.
pub const MAX_PATTERN_LENGTH: usize = 4096;

/// Steps of one `pattern` with one text, for those few that need an engine that backtracks.
const MAX_BACKTRACKING_STEPS: usize = 10_000;
/// The size of one compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;
/// The most steps (see [`effort`]) of checks after which it is said what does not fit: to collect
/// that takes far longer than to find out that something does not.
const MAX_STEPS_TOLD: u64 = 50_000;

pub(crate) const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// A schema, ready to check with.
#[derive(Debug)]
pub(crate) struct CheckedSchema {
    validator: Validator,
    effort: Effort,
    plain: Option<PlainObject>,
}

impl CheckedSchema {
    /// True if `raw` is JSON that fits, each member once, as far as can be told without making a value of it.
    /// False says nothing.
    pub(crate) fn plainly_fits(&self, raw: &[u8]) -> bool {
        let plain = self.plain.as_ref();
        plain.is_some_and(|it| self.effort.is_little(raw.len(), effort::MAX_STEPS) && it.fits(raw))
    }

    /// The first `max` things about `value` that do not fit, and whether there are more. `bytes` is
    /// how long its JSON is, or more.
    pub(crate) fn check(
        &self,
        value: &Value,
        bytes: usize,
        max: usize,
    ) -> Result<(), (Vec<Violation>, bool)> {
        if !self.effort.is_within(value, bytes, effort::MAX_STEPS) {
            let message = "expected less: it would take too long to check all of this";
            return Err((vec![Violation::new("", message)], false));
        }
        // The errors are asked for only when there are some: telling yes from no is far cheaper.
        if self.validator.is_valid(value) {
            return Ok(());
        }
        if !self.effort.is_within(value, bytes, MAX_STEPS_TOLD) {
            let message =
                "expected what the schema describes; this is too much to say where it differs";
            return Err((vec![Violation::new("", message)], false));
        }
        Err(violations_of(&self.validator, value, max))
    }
}

/// Compiles `schema`, which must describe an object. Nothing is fetched, from nowhere.
pub(crate) fn compile(schema: &Value) -> Result<CheckedSchema, SchemaError> {
    // Depth first: it bounds the recursion of everything that comes after.
    survey(schema)?;
    if MAX_SCHEMA_BYTES < schema.to_string().len() {
        return Err(SchemaError::TooLarge);
    }
    let schema = match schema.get("$schema") {
        None => Cow::Borrowed(schema),
        Some(dialect) => match dialect.as_str().map(|name| name.trim_end_matches('#')) {
            Some(DIALECT) => Cow::Borrowed(schema),
            Some(named) if draft7::NAMES.contains(&named) => Cow::Owned(draft7::translated(schema)),
            named => {
                let shown = named.map_or_else(|| dialect.to_string(), ToOwned::to_owned);
                return Err(SchemaError::Dialect(shown.chars().take(128).collect()));
            }
        },
    };
    let schema = &*schema;
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        return Err(SchemaError::RootNotObject);
    }
    // Against the meta-schema first, so that what reads the schema after that can rely on its shape.
    if let Err(error) = jsonschema::draft202012::meta::validate(schema) {
        return Err(invalid(&error));
    }
    // Before it is compiled: a compiler may follow references far.
    let effort = Effort::of(schema, false)?;
    let (validator, backtracks) = build(schema).map_err(|error| invalid(&error))?;
    let effort = match backtracks {
        true => Effort::of(schema, true)?,
        false => effort,
    };
    Ok(CheckedSchema {
        validator,
        effort,
        plain: PlainObject::of(schema),
    })
}

/// The validator, and whether its patterns may backtrack.
fn build(schema: &Value) -> Result<(Validator, bool), ValidationError<'static>> {
    let options = || -> ValidationOptions<'_> {
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
    };
    // Time linear in the text, whatever the pattern. It knows no assertions about what follows and
    // no references back, so where there are some the other one has to do.
    let linear = PatternOptions::regex()
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES);
    if let Ok(validator) = options().with_pattern_options(linear).build(schema) {
        return Ok((validator, false));
    }
    let backtracking = PatternOptions::fancy_regex()
        .backtrack_limit(MAX_BACKTRACKING_STEPS)
        .size_limit(MAX_PATTERN_BYTES)
        .dfa_size_limit(MAX_PATTERN_BYTES);
    let validator = options().with_pattern_options(backtracking).build(schema)?;
    Ok((validator, true))
}

fn invalid(error: &ValidationError<'_>) -> SchemaError {
    SchemaError::Invalid {
        pointer: error.instance_path().to_string(),
        message: error.to_string().chars().take(300).collect(),
    }
}

/// Bounds depth and patterns. Iterative, so that any value can be asked.
fn survey(schema: &Value) -> Result<(), SchemaError> {
    let mut patterns = 0;
    let mut open = vec![(schema, 1)];
    while let Some((value, level)) = open.pop() {
        if MAX_SCHEMA_DEPTH < level {
            return Err(SchemaError::TooDeep);
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, level + 1))),
            Value::Object(members) => {
                let pattern = members.get("pattern").and_then(Value::as_str);
                let named = members.get("patternProperties").and_then(Value::as_object);
                let names = named.into_iter().flat_map(serde_json::Map::keys);
                for pattern in pattern.into_iter().chain(names.map(String::as_str)) {
                    patterns += 1;
                    if MAX_PATTERN_LENGTH < pattern.len() || MAX_SCHEMA_PATTERNS < patterns {
                        return Err(SchemaError::TooManyPatterns);
                    }
                }
                open.extend(members.values().map(|item| (item, level + 1)));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
