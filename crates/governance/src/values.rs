//! Arguments and callers as values of CEL.

use crate::exact;
use cel::{
    Context, Env, Value,
    objects::{Key, Map},
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::{
    cell::Cell,
    collections::{HashMap, hash_map::Entry},
    fmt,
    sync::{Arc, LazyLock},
};

/// The values of the variables of one call.
pub(crate) struct Variables {
    context: Context<'static, 'static>,
    /// Names of the arguments with numbers that CEL would take for other numbers.
    inexact: Vec<String>,
}

impl Variables {
    pub(crate) fn context(&self) -> &Context<'static, 'static> {
        &self.context
    }

    /// Names of the arguments with numbers that CEL has not as they were written.
    pub(crate) fn inexact(&self) -> &[String] {
        &self.inexact
    }
}

impl fmt::Debug for Variables {
    /// Tells no values: arguments do not belong into logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Variables").finish_non_exhaustive()
    }
}

/// Variable that has the arguments of a call.
pub(crate) const ARGUMENTS: &str = "args";

/// Variables that expressions may use.
pub(crate) const VARIABLES: [&str; 4] = [ARGUMENTS, "principal", "roles", "capability"];

/// Variable of filters of results.
pub(crate) const RESULT: &str = "result";

/// The longest text of a result that filters look at, in bytes.
const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// The longest arguments that conditions look at, in bytes. What is longer is held against the
/// caller, as everything is that conditions cannot look at.
pub(crate) const MAX_ARGUMENT_BYTES: usize = 64 * 1024;

/// The most values in the arguments that conditions look at: numbers, texts, lists, and so on.
pub(crate) const MAX_ARGUMENT_VALUES: usize = 1_000;

/// The largest whole number that each fraction's format has, and each smaller one.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The standard functions.
fn environment() -> &'static Arc<Env> {
    static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| Arc::new(Env::stdlib()));
    &ENVIRONMENT
}

/// `None` if the arguments are not a JSON object that can be looked at.
pub(crate) fn variables<'a>(
    arguments: Option<&str>,
    principal: &str,
    capability: &str,
    roles: impl Iterator<Item = &'a str>,
) -> Option<Variables> {
    let (arguments, inexact) = match arguments {
        Some(text) => (read(text)?, exact::inexact_members(text)),
        None => {
            let map = Arc::default();
            (Value::Map(Map { map }), Vec::new())
        }
    };
    let text = |text: &str| Value::String(Arc::new(text.to_owned()));
    let mut context = Context::with_env(Arc::clone(environment()));
    context.add_variable_from_value(ARGUMENTS, arguments);
    context.add_variable_from_value("principal", text(principal));
    context.add_variable_from_value("capability", text(capability));
    let roles = roles.map(text).collect();
    context.add_variable_from_value("roles", Value::List(Arc::new(roles)));
    Some(Variables { context, inexact })
}

/// Adds what a result says; `None` if that is too long to be looked at.
pub(crate) fn with_result(
    mut variables: Variables,
    text: &str,
    is_error: bool,
) -> Option<Variables> {
    if MAX_RESULT_BYTES < text.len() {
        return None;
    }
    let key = |name: &str| Key::String(Arc::new(name.to_owned()));
    let members = HashMap::from([
        (key("text"), Value::String(Arc::new(text.to_owned()))),
        (key("is_error"), Value::Bool(is_error)),
    ]);
    let result = Value::Map(Map {
        map: Arc::new(members),
    });
    variables.context.add_variable_from_value(RESULT, result);
    Some(variables)
}

fn read(text: &str) -> Option<Value> {
    if MAX_ARGUMENT_BYTES < text.len() {
        return None;
    }
    let left = Cell::new(MAX_ARGUMENT_VALUES);
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Reading { left: &left }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    matches!(value, Value::Map(_)).then_some(value)
}

/// Reads JSON, so many values of it. How deep they are, `serde_json` bounds.
#[derive(Clone, Copy)]
struct Reading<'a> {
    left: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for Reading<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.left.get().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => return Err(D::Error::custom("too many values")),
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reading<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Int(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(i64::try_from(number).map_or(Value::UInt(number), Value::Int))
    }

    /// `5.0` and `5` are the same number in JSON, so that no condition may tell them apart.
    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        if number.fract() == 0.0 && number.abs() <= MAX_EXACT {
            return Ok(Value::Int(number as i64));
        }
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(Arc::new(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(self)? {
            list.push(element);
        }
        Ok(Value::List(Arc::new(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = HashMap::new();
        while let Some(name) = entries.next_key::<String>()? {
            match map.entry(Key::String(Arc::new(name))) {
                // Readers differ in which of the two they believe.
                Entry::Occupied(_) => return Err(A::Error::custom("the same name twice")),
                Entry::Vacant(entry) => entry.insert(entries.next_value_seed(self)?),
            };
        }
        Ok(Value::Map(Map { map: Arc::new(map) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExpressionError, expression::Expression};

    fn evaluate(expression: &str, arguments: &str) -> Option<bool> {
        let expression = Expression::new(expression).expect(expression);
        let roles = ["clerk", "night"].into_iter();
        let variables = variables(Some(arguments), "alice", "tool/transfer", roles)?;
        expression.evaluate(&variables)
    }

    #[test]
    fn an_expression_is_true_false_or_fails() {
        let rows = [
            ("args.amount > 500", r#"{"amount": 501}"#, Some(true)),
            ("args.amount > 500", r#"{"amount": 500}"#, Some(false)),
            ("args.amount > 500", r#"{"amount": 500.01}"#, Some(true)),
            (
                "args.amount > 500",
                r#"{"amount": 18446744073709551615}"#,
                Some(true),
            ),
            ("args.amount > 500", r#"{"amount": 1e300}"#, Some(true)),
            ("args.amount > 500.5", r#"{"amount": 501}"#, Some(true)),
            ("args.amount > 500", r#"{"amount": "501"}"#, None),
            ("args.amount > 500", r#"{"amount": true}"#, None),
            ("args.amount > 500", r#"{"amount": null}"#, None),
            ("args.amount > 500", "{}", None),
            ("args.amount > 500", "[]", None),
            ("args.amount > 500", "not json", None),
            (
                "args.amount > 500",
                r#"{"amount": 1} {"amount": 501}"#,
                None,
            ),
            ("args.amount > 500", r#"{"amount": 1, "amount": 1}"#, None),
            ("args.a.b > 1", r#"{"a": {"b": 1, "b": 1}}"#, None),
            // As a number has no one spelling, no two of them may be different.
            ("args.account == 7", r#"{"account": 7}"#, Some(true)),
            ("args.account == 7", r#"{"account": 7.0}"#, Some(true)),
            ("args.account == 7", r#"{"account": 0.7e1}"#, Some(true)),
            ("args.account == 7", r#"{"account": 70e-1}"#, Some(true)),
            ("args.account == 0", r#"{"account": -0.0}"#, Some(true)),
            ("args.account in [7, 8]", r#"{"account": 7.0}"#, Some(true)),
            (
                "args.accounts.exists(it, it == 7)",
                r#"{"accounts": [1, 7.0]}"#,
                Some(true),
            ),
            ("args.name == 'x'", r#"{"\u006eame": "\u0078"}"#, Some(true)),
            ("has(args.amount) && args.amount > 5", "{}", Some(false)),
            (
                "has(args.amount) && args.amount > 5",
                r#"{"amount": 6}"#,
                Some(true),
            ),
            ("principal == 'alice' && 'night' in roles", "{}", Some(true)),
            ("capability.startsWith('tool/')", "{}", Some(true)),
            (
                "args.to.endsWith('@example.com')",
                r#"{"to": "a@example.com"}"#,
                Some(true),
            ),
            (
                "args.to.all(it, it.endsWith('@a'))",
                r#"{"to": ["x@a", "y@b"]}"#,
                Some(false),
            ),
            ("size(args.to) <= 2", r#"{"to": [1, 2, 3]}"#, Some(false)),
            // No number is judged as the one next to it.
            (
                "args.amount > 10",
                r#"{"amount": 10.00000000000000000001}"#,
                None,
            ),
            (
                "args.amount == 9007199254740993",
                r#"{"amount": 9007199254740993.0}"#,
                None,
            ),
            (
                "has(args.amount) && args['amount'] > 10",
                r#"{"amount": [10.00000000000000000001]}"#,
                None,
            ),
            (
                "args.exists(name, args[name] > 10)",
                r#"{"amount": 10.00000000000000000001}"#,
                None,
            ),
            (
                "args.to == 'bob'",
                r#"{"to": "bob", "amount": 10.00000000000000000001}"#,
                Some(true),
            ),
            ("args.n + 1 > 0", r#"{"n": 9223372036854775807}"#, None),
            ("args.n / 0 > 0", r#"{"n": 1}"#, None),
            ("args.n", r#"{"n": true}"#, Some(true)),
            ("args.n", r#"{"n": 1}"#, None),
            ("args.n", r#"{"n": {}}"#, None),
        ];
        for (expression, arguments, expected) in rows {
            assert_eq!(
                evaluate(expression, arguments),
                expected,
                "{expression} {arguments}"
            );
        }
    }

    /// Every operator and function, on every kind of value that a caller can send: some say nothing,
    /// and none of them panics.
    #[test]
    fn nothing_that_a_caller_sends_makes_an_expression_panic() {
        let values = [
            "null",
            "true",
            "0",
            "-1",
            "1",
            "9223372036854775807",
            "-9223372036854775808",
            "18446744073709551615",
            "1e308",
            "-1e308",
            "0.5",
            "-0.0",
            r#""""#,
            r#""é\u0000💥""#,
            r#""9999999999999999999999""#,
            "[]",
            "[1, [2]]",
            "{}",
            r#"{"a": {"": 1}}"#,
        ];
        let on_one = [
            "!args.x",
            "-args.x",
            "size(args.x)",
            "args.x.size()",
            "int(args.x)",
            "uint(args.x)",
            "double(args.x)",
            "string(args.x)",
            "bool(args.x)",
            "type(args.x)",
            "args.x.a.b",
            "has(args.x.a)",
            "args.x ? 1 : 2",
            "args.x.all(it, it > 0)",
            "args.x.exists(it, it)",
            "args.x.exists_one(it, it == 1)",
            "args.x.filter(it, it != 1)",
            "int(double(args.x))",
            "uint(int(args.x))",
            "-int(args.x)",
            "int(string(args.x))",
            "args[args.x]",
            "[1, 2][args.x]",
            "{1: 2}[args.x]",
            "{args.x: 1}",
            "'abc'[args.x]",
        ];
        let on_two = [
            "+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "in", "&&", "||",
        ];
        let operators = on_two.map(|it| format!("args.x {it} args.y"));
        let functions = ["contains", "startsWith", "endsWith"];
        let functions = functions.map(|it| format!("args.x.{it}(args.y)"));
        let two = operators.iter().chain(&functions).map(String::as_str);
        let more = [
            "args.x[args.y]",
            "uint(args.x) - uint(args.y)",
            "uint(args.x) * uint(args.y)",
            "uint(args.x) + uint(args.y)",
            "uint(args.x) / uint(args.y)",
            "uint(args.x) % uint(args.y)",
            "[args.x] == [args.y]",
            "[args.x] + [args.y]",
            "args.x.all(it, it == args.y)",
        ];
        for expression in on_one.into_iter().chain(two).chain(more) {
            // What is no condition by itself is part of one.
            let expression = match Expression::new(expression) {
                Err(ExpressionError::NotBoolean) => {
                    Expression::new(&format!("({expression}) == 0"))
                }
                other => other,
            }
            .expect(expression);
            for x in values {
                for y in values {
                    let arguments = format!(r#"{{"x": {x}, "y": {y}}}"#);
                    let context = variables(Some(&arguments), "a", "tool/t", std::iter::empty());
                    expression.evaluate(&context.expect(&arguments));
                }
            }
        }
    }

    #[test]
    fn what_is_too_large_to_look_at_says_nothing() {
        let many = |count: usize| format!(r#"{{"a": [{}]}}"#, vec!["1"; count].join(","));
        let always = "size(args.a) > 0";
        // The object and the list are values too.
        assert_eq!(evaluate(always, &many(MAX_ARGUMENT_VALUES - 2)), Some(true));
        assert_eq!(evaluate(always, &many(MAX_ARGUMENT_VALUES - 1)), None);
        let long = |bytes: usize| format!(r#"{{"a": "{}"}}"#, "x".repeat(bytes - 9));
        assert_eq!(long(99).len(), 99);
        assert_eq!(evaluate(always, &long(MAX_ARGUMENT_BYTES)), Some(true));
        assert_eq!(evaluate(always, &long(MAX_ARGUMENT_BYTES + 1)), None);
        let deep = |depth: usize| format!(r#"{{"a": {}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert_eq!(evaluate("args.a == args.a", &deep(100)), Some(true));
        assert_eq!(evaluate("args.a == args.a", &deep(50_000)), None);
    }
}
