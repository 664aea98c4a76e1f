use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde::Serialize;
use serde_json::Value;
use std::{fmt, mem::discriminant};

/// One thing about the arguments that does not fit the schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    pointer: String,
    message: String,
}

/// Most characters that are shown of a name, an expectation or a found value.
const MAX_SHOWN: usize = 80;
/// Most characters of a whole message or pointer.
const MAX_MESSAGE: usize = 400;

impl Violation {
    pub(crate) fn new(pointer: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            pointer: shorten(pointer.into(), MAX_MESSAGE),
            message: shorten(message.into(), MAX_MESSAGE),
        }
    }

    /// Place in the arguments, as a JSON pointer; empty for the arguments as a whole.
    pub fn pointer(&self) -> &str {
        &self.pointer
    }

    /// Description of what was expected there and what was found; of bounded length.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => write!(f, "arguments: {}", self.message),
            pointer => write!(f, "{pointer}: {}", self.message),
        }
    }
}

/// The first `max` things about `value` that do not fit, and whether there are more.
pub(crate) fn violations_of(
    validator: &Validator,
    value: &Value,
    max: usize,
) -> (Vec<Violation>, bool) {
    let mut violations = Vec::new();
    for error in validator.iter_errors(value) {
        tell(&error, max, &mut violations);
        if max < violations.len() {
            break;
        }
    }
    if violations.is_empty() {
        // The two ways of asking disagree; the value was refused, so it stays refused.
        violations.push(Violation::new("", "expected what the schema describes"));
    }
    let has_more = max < violations.len();
    violations.truncate(max);
    (violations, has_more)
}

/// Adds what `error` is about to `violations`, until there is more than `max` of it.
fn tell(error: &ValidationError<'_>, max: usize, violations: &mut Vec<Violation>) {
    let meant = match error.kind() {
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            meant(context, error)
        }
        _ => None,
    };
    match meant {
        Some(Meant::Branch(errors)) => {
            for inner in errors {
                if max < violations.len() {
                    return;
                }
                tell(inner, max, violations);
            }
        }
        Some(Meant::OneOf(names, pointer)) => {
            let found = error.instance().pointer(&pointer);
            let found = found.map_or_else(|| "nothing".to_owned(), describe);
            let message = format!("expected one of {}, found {found}", names.join(", "));
            let place = format!("{}{pointer}", error.instance_path());
            violations.push(Violation::new(place, message));
        }
        None => violations.push(violation(error)),
    }
}

fn violation(error: &ValidationError<'_>) -> Violation {
    let found = || describe(error.instance());
    let message = match error.kind() {
        ValidationErrorKind::Type {
            kind: TypeKind::Single(expected),
        } => {
            format!("expected {expected}, found {}", found())
        }
        ValidationErrorKind::Type {
            kind: TypeKind::Multiple(expected),
        } => {
            let names: Vec<_> = expected.iter().map(|kind| kind.as_str()).collect();
            format!("expected {}, found {}", names.join(" or "), found())
        }
        ValidationErrorKind::Required { property } => {
            format!("expected the member {}, which is missing", show(property))
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<_> = unexpected
                .iter()
                .take(5)
                .map(|name| show(&Value::from(name.as_str())))
                .collect();
            format!("expected no other members, found {}", names.join(", "))
        }
        ValidationErrorKind::Enum { options } => {
            let shown = match options.as_array() {
                Some(options) if options.len() <= 12 => {
                    let shown: Vec<_> = options.iter().map(show).collect();
                    shown.join(", ")
                }
                _ => show(options),
            };
            format!("expected one of {shown}, found {}", found())
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("expected {}, found {}", show(expected_value), found())
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            format!("expected {}, found {}", alternatives(context), found())
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            format!(
                "expected exactly one of the alternatives to fit, found several for {}",
                found()
            )
        }
        ValidationErrorKind::Minimum { limit } => {
            format!(
                "expected a number of at least {}, found {}",
                show(limit),
                found()
            )
        }
        ValidationErrorKind::Maximum { limit } => {
            format!(
                "expected a number of at most {}, found {}",
                show(limit),
                found()
            )
        }
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            format!("expected a number above {}, found {}", show(limit), found())
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            format!("expected a number below {}, found {}", show(limit), found())
        }
        ValidationErrorKind::MultipleOf { multiple_of } => {
            format!("expected a multiple of {multiple_of}, found {}", found())
        }
        ValidationErrorKind::MinLength { limit } => {
            format!("expected at least {limit} characters, found {}", found())
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("expected at most {limit} characters, found {}", found())
        }
        ValidationErrorKind::MinItems { limit } => {
            format!("expected at least {limit} items, found {}", found())
        }
        ValidationErrorKind::MaxItems { limit } => {
            format!("expected at most {limit} items, found {}", found())
        }
        ValidationErrorKind::MinProperties { limit } => {
            format!("expected at least {limit} members, found {}", found())
        }
        ValidationErrorKind::MaxProperties { limit } => {
            format!("expected at most {limit} members, found {}", found())
        }
        ValidationErrorKind::UniqueItems => {
            format!("expected items that differ, found {}", found())
        }
        ValidationErrorKind::Pattern { pattern } => {
            let pattern = shorten(pattern.clone(), MAX_SHOWN);
            format!("expected a match of `{pattern}`, found {}", found())
        }
        ValidationErrorKind::Format { format } => {
            format!("expected the format `{format}`, found {}", found())
        }
        ValidationErrorKind::FalseSchema => format!("expected nothing here, found {}", found()),
        other => format!(
            "expected what `{}` asks for, found {}",
            other.keyword(),
            found()
        ),
    };
    Violation::new(error.instance_path().to_string(), message)
}

/// Mistakes of a value that suits no branch of a choice.
enum Meant<'a> {
    /// The mistakes in the one branch that is for such a value.
    Branch(&'a [ValidationError<'static>]),
    /// The values of a member that tells the branches apart, and its place below the value.
    OneOf(Vec<String>, String),
}

/// The branch of an `anyOf` that is meant: the only one for values of this type, or the only one for this value of
/// the member that tells them apart, such as `{"kind": {"const": "cat"}}`.
fn meant<'a>(
    branches: &'a [Vec<ValidationError<'static>>],
    whole: &ValidationError<'_>,
) -> Option<Meant<'a>> {
    let at = whole.instance_path().to_string();
    let below = |error: &ValidationError<'_>| {
        let place = error.instance_path().to_string();
        place.strip_prefix(&at).map(str::to_owned)
    };
    let is_alike = |other: &Value| discriminant(other) == discriminant(&**whole.instance());
    let is_of_type = |errors: &&Vec<ValidationError<'_>>| {
        !errors.iter().any(|error| {
            let is_other = match error.kind() {
                ValidationErrorKind::Type { .. } => true,
                ValidationErrorKind::Constant { expected_value } => !is_alike(expected_value),
                ValidationErrorKind::Enum { options } => options
                    .as_array()
                    .is_some_and(|all| !all.iter().any(is_alike)),
                _ => false,
            };
            is_other && below(error).is_some_and(|place| place.is_empty())
        })
    };
    let of_type: Vec<_> = branches.iter().filter(is_of_type).collect();
    if let [only] = of_type[..] {
        return Some(Meant::Branch(only));
    }
    // The place and value of the member that a branch wants to be another.
    let other = |errors: &Vec<ValidationError<'_>>| {
        errors.iter().find_map(|error| {
            let place = below(error).filter(|it| it.rfind('/') == Some(0))?;
            match error.kind() {
                ValidationErrorKind::Constant { expected_value } => {
                    Some((place, show(expected_value)))
                }
                _ => None,
            }
        })
    };
    let others: Vec<_> = of_type.iter().map(|errors| other(errors)).collect();
    let mut fitting = of_type.iter().zip(&others).filter(|(_, it)| it.is_none());
    match (fitting.next(), fitting.next()) {
        (Some((errors, _)), None) => Some(Meant::Branch(errors)),
        (None, _) => {
            let mut others = others.iter().flatten();
            let (place, first) = others.next()?;
            let mut names = vec![first.clone()];
            for (other, name) in others {
                if other != place {
                    return None;
                }
                names.push(name.clone());
            }
            Some(Meant::OneOf(names, place.clone()))
        }
        _ => None,
    }
}

/// Types that the branches of an `anyOf` ask for, where each asks for one; else a note that there
/// are branches.
fn alternatives(branches: &[Vec<ValidationError<'static>>]) -> String {
    let types: Option<Vec<_>> = branches
        .iter()
        .map(|errors| match errors.first().map(ValidationError::kind) {
            Some(ValidationErrorKind::Type {
                kind: TypeKind::Single(kind),
            }) => Some(kind.as_str()),
            _ => None,
        })
        .collect();
    match types {
        Some(types) if !types.is_empty() => types.join(" or "),
        _ => "a value that fits one of the alternatives".to_owned(),
    }
}

/// Description of `value`, in few words. Recursion and cost are bounded: containers show their size
/// only.
pub(crate) fn describe(value: &Value) -> String {
    let plural = |count: usize, one: &str| match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {one}s"),
    };
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => format!("boolean {value}"),
        Value::Number(number) => format!("number {number}"),
        Value::String(_) => format!("string {}", show(value)),
        Value::Array(items) => format!("array of {}", plural(items.len(), "item")),
        Value::Object(members) => format!("object of {}", plural(members.len(), "member")),
    }
}

/// The JSON of `value`, shortened.
fn show(value: &Value) -> String {
    match value {
        // A long string is cut before it is written, not after.
        Value::String(text) if MAX_SHOWN < text.len() => {
            Value::from(shorten(text.clone(), MAX_SHOWN)).to_string()
        }
        _ => shorten(value.to_string(), MAX_SHOWN),
    }
}

/// The first `max` characters of `text`, and a sign that there were more.
fn shorten(mut text: String, max: usize) -> String {
    if let Some((end, _)) = text.char_indices().nth(max) {
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_violation_says_where_what_was_expected_and_what_was_found() {
        let schema = json!({
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 1},
                "s": {"type": ["string", "null"], "maxLength": 3},
                "c": {"enum": ["red", "green"]},
                "u": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
                "l": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
                "p": {"type": "string", "pattern": "^a+$"},
            },
            "required": ["n"],
            "additionalProperties": false,
        });
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let rows = [
            (
                json!({}),
                r#"arguments: expected the member "n", which is missing"#,
            ),
            (
                json!({"n": "x"}),
                r#"/n: expected integer, found string "x""#,
            ),
            (
                json!({"n": 0}),
                "/n: expected a number of at least 1, found number 0",
            ),
            (
                json!({"n": 1, "z": 2}),
                r#"arguments: expected no other members, found "z""#,
            ),
            (
                json!({"n": 1, "s": true}),
                "/s: expected null or string, found boolean true",
            ),
            (
                json!({"n": 1, "s": "abcd"}),
                r#"/s: expected at most 3 characters, found string "abcd""#,
            ),
            (
                json!({"n": 1, "c": "blue"}),
                r#"/c: expected one of "red", "green", found string "blue""#,
            ),
            (
                json!({"n": 1, "u": "x"}),
                r#"/u: expected integer or boolean, found string "x""#,
            ),
            (
                json!({"n": 1, "l": ["a", {}]}),
                "/l/1: expected string, found object of 0 members",
            ),
            (
                json!({"n": 1, "l": ["a", "b", "c"]}),
                "/l: expected at most 2 items, found array of 3 items",
            ),
            (
                json!({"n": 1, "p": "b"}),
                r#"/p: expected a match of `^a+$`, found string "b""#,
            ),
        ];
        for (value, told) in rows {
            let (violations, more) = violations_of(&validator, &value, 20);
            assert_eq!(violations[0].to_string(), told);
            assert!(!more);
        }
    }

    #[test]
    fn of_a_choice_the_branch_that_is_meant_is_told() {
        let pet = |kind: &str, member: &str| {
            json!({
                "type": "object",
                "properties": {"kind": {"const": kind}, member: {"type": "integer"}},
                "required": ["kind", member],
            })
        };
        let schema = json!({
            "type": "object",
            "properties": {
                "short": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "null"}]},
                "price": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+$"}]},
                "pet": {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]},
                "either": {"anyOf": [{"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^a"}]},
            },
            "$defs": {"cat": pet("cat", "lives"), "dog": pet("dog", "tricks")},
        });
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        for (value, told) in [
            (
                json!({"short": "abcd"}),
                r#"/short: expected at most 3 characters, found string "abcd""#,
            ),
            (
                json!({"short": 5}),
                "/short: expected string or null, found number 5",
            ),
            (
                json!({"price": -1}),
                "/price: expected a number of at least 0, found number -1",
            ),
            (
                json!({"price": "x"}),
                r#"/price: expected a match of `^[0-9]+$`, found string "x""#,
            ),
            (
                json!({"pet": {"kind": "dog", "tricks": "many"}}),
                r#"/pet/tricks: expected integer, found string "many""#,
            ),
            (
                json!({"pet": {"kind": "dog"}}),
                r#"/pet: expected the member "tricks", which is missing"#,
            ),
            (
                json!({"pet": {"kind": "bird"}}),
                r#"/pet/kind: expected one of "cat", "dog", found string "bird""#,
            ),
            (
                json!({"either": "xxxx"}),
                r#"/either: expected a value that fits one of the alternatives, found string "xxxx""#,
            ),
        ] {
            let (violations, _) = violations_of(&validator, &value, 20);
            assert_eq!(violations[0].to_string(), told);
        }
    }

    #[test]
    fn all_mistakes_in_the_branch_that_is_meant_are_told() {
        let schema = json!({
            "type": "object",
            "properties": {
                "d": {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]},
                "one": {"oneOf": [{"type": "string"}, {"$ref": "#/$defs/D"}]},
                "named": {"anyOf": [{"enum": ["all", 1]}, {"const": true}, {"$ref": "#/$defs/D"}]},
                "list": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]}},
                "several": {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "object", "maxProperties": 0}]},
            },
            "$defs": {"D": {
                "type": "object",
                "properties": {
                    "a": {"type": "integer"},
                    "b": {"type": "string"},
                    "of": {"anyOf": [{"$ref": "#/$defs/D"}, {"type": "null"}]},
                },
                "required": ["a"],
            }},
        });
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let wrong = json!({"a": "x", "b": 5});
        for (value, pointers) in [
            (json!({"d": wrong}), vec!["/d/a", "/d/b"]),
            (json!({"one": wrong}), vec!["/one/a", "/one/b"]),
            (json!({"named": wrong}), vec!["/named/a", "/named/b"]),
            (
                json!({"d": {"b": 5, "of": wrong}}),
                vec!["/d", "/d/b", "/d/of/a", "/d/of/b"],
            ),
            (
                json!({"list": [wrong, null, wrong], "d": 7}),
                vec!["/d", "/list/0/a", "/list/0/b", "/list/2/a", "/list/2/b"],
            ),
            // It is not known which is meant.
            (json!({"several": wrong}), vec!["/several"]),
        ] {
            let (violations, more) = violations_of(&validator, &value, 20);
            let mut told: Vec<_> = violations.iter().map(Violation::pointer).collect();
            told.sort_unstable();
            assert_eq!((told, more), (pointers.clone(), false), "{value}");
            let (first, more) = violations_of(&validator, &value, 1);
            assert_eq!((&first[..], more), (&violations[..1], pointers.len() > 1));
        }
    }

    #[test]
    fn what_is_told_is_bounded_in_number_and_length() {
        let schema = json!({"type": "object", "additionalProperties": {"type": "integer"}});
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let long = "ä".repeat(100_000);
        let members = (0..1000).map(|i| (format!("{i}{long}"), Value::from(long.as_str())));
        let value = Value::Object(members.take(30).collect());
        let (violations, more) = violations_of(&validator, &value, 20);
        assert_eq!(violations.len(), 20);
        assert!(more);
        for violation in violations {
            assert!(violation.to_string().chars().count() < 2 * MAX_MESSAGE + 10);
        }
    }
}
