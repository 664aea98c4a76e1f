//! Bodies with `{name}` in their texts.

use crate::url::is_name;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// A JSON value in whose texts arguments have places. A text that is nothing but `{name}` becomes the
/// argument itself, whatever its type; inside of longer texts it becomes part of them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BodyTemplate {
    value: Value,
    /// Names of arguments; other braces are text.
    known: BTreeSet<String>,
}

impl BodyTemplate {
    pub(crate) fn new(value: Value, known: BTreeSet<String>) -> Self {
        Self { value, known }
    }

    /// The arguments it has places for.
    pub(crate) fn arguments(&self) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        collect(&self.value, &self.known, &mut names);
        names
    }

    /// The body for these arguments. Members and items that are an absent argument are left out.
    pub(crate) fn render(&self, arguments: &Map<String, Value>) -> Value {
        self.filled(&self.value, arguments).unwrap_or(Value::Null)
    }

    fn filled(&self, value: &Value, arguments: &Map<String, Value>) -> Option<Value> {
        Some(match value {
            Value::String(text) => match whole(text, &self.known) {
                Some(name) => arguments.get(name)?.clone(),
                None => Value::String(self.text(text, arguments)),
            },
            Value::Array(items) => {
                let items = items.iter().filter_map(|it| self.filled(it, arguments));
                Value::Array(items.collect())
            }
            Value::Object(members) => {
                let member = |(key, value): (&String, &Value)| {
                    Some((key.clone(), self.filled(value, arguments)?))
                };
                Value::Object(members.iter().filter_map(member).collect())
            }
            plain => plain.clone(),
        })
    }

    fn text(&self, text: &str, arguments: &Map<String, Value>) -> String {
        let mut filled = String::new();
        for part in parts(text, &self.known) {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Argument(name) => match arguments.get(name) {
                    Some(Value::String(text)) => filled.push_str(text),
                    Some(Value::Null) | None => {}
                    Some(other) => filled.push_str(&other.to_string()),
                },
            }
        }
        filled
    }
}

enum Part<'a> {
    Text(&'a str),
    Argument(&'a str),
}

/// One pass: what an argument holds is not looked at again, whatever it looks like.
fn parts<'a>(text: &'a str, known: &BTreeSet<String>) -> Vec<Part<'a>> {
    let mut parts = Vec::new();
    let mut rest = text;
    let mut from = 0;
    while let Some(open) = rest[from..].find('{').map(|at| from + at) {
        // No further than to the next brace of either kind, which no name has: a text of many is
        // read once.
        let inside = &rest[open + 1..];
        let name = inside.find(['{', '}']).and_then(|end| {
            let (name, after) = inside.split_at(end);
            after.starts_with('}').then_some(name)
        });
        match name.filter(|name| is_name(name) && known.contains(*name)) {
            Some(name) => {
                parts.push(Part::Text(&rest[..open]));
                parts.push(Part::Argument(name));
                rest = &rest[open + name.len() + 2..];
                from = 0;
            }
            None => from = open + 1,
        }
    }
    parts.push(Part::Text(rest));
    parts
}

fn whole<'a>(text: &'a str, known: &BTreeSet<String>) -> Option<&'a str> {
    match parts(text, known).as_slice() {
        [Part::Text(""), Part::Argument(name), Part::Text("")] => Some(name),
        _ => None,
    }
}

fn collect(value: &Value, known: &BTreeSet<String>, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let arguments = parts(text, known)
                .into_iter()
                .filter_map(|part| match part {
                    Part::Argument(name) => Some(name.to_owned()),
                    Part::Text(_) => None,
                });
            names.extend(arguments);
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, known, names)),
        Value::Object(members) => members.values().for_each(|it| collect(it, known, names)),
        _ => {}
    }
}

/// The names that look like arguments in `value`, for a tool that declares none.
pub(crate) fn guessed_arguments(value: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    guess(value, &mut names);
    names
}

fn guess(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            let after_each = text.split('{').skip(1);
            let inside = after_each.filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
            names.extend(inside.filter(|name| is_name(name)).map(str::to_owned));
        }
        Value::Array(items) => items.iter().for_each(|item| guess(item, names)),
        Value::Object(members) => members.values().for_each(|it| guess(it, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(value: Value) -> BodyTemplate {
        let known = ["a", "b", "c"].map(str::to_owned).into();
        BodyTemplate::new(value, known)
    }

    #[test]
    fn a_whole_text_keeps_the_type_and_a_part_becomes_text() {
        let body = template(json!({
            "number": "{a}", "list": ["{b}", "{c}", 1], "text": "a={a} b={b} c={c} {a", "absent": "{c}",
            "inner": {"x": "{b}"}, "stranger": "{d} {", "{a}": true,
        }));
        let arguments = json!({"a": 5, "b": {"deep": ["{a}"]}});
        let rendered = body.render(arguments.as_object().unwrap());
        assert_eq!(
            rendered,
            json!({
                "number": 5, "list": [{"deep": ["{a}"]}, 1],
                "text": "a=5 b={\"deep\":[\"{a}\"]} c= {a",
                "inner": {"x": {"deep": ["{a}"]}}, "stranger": "{d} {", "{a}": true,
            })
        );
        assert_eq!(body.arguments(), ["a", "b", "c"].map(str::to_owned).into());
    }

    #[test]
    fn an_argument_is_not_looked_at_again() {
        let body = template(json!("{a}{b}"));
        let rendered = body.render(json!({"a": "{b}", "b": "{a}"}).as_object().unwrap());
        assert_eq!(rendered, json!("{b}{a}"));
    }

    #[test]
    fn a_text_of_many_braces_is_read_in_time() {
        let braces = "{".repeat(512 * 1024);
        let body = template(json!(braces));
        assert_eq!(body.arguments(), BTreeSet::new());
        assert_eq!(body.render(&Map::new()), json!(braces));
    }
}
