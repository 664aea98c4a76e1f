//! YAML to JSON values, within bounds.

use std::{cell::Cell, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::NonFiniteFloatPolicy;

/// The longest front matter that is read, in bytes.
pub const MAX_FRONTMATTER_BYTES: usize = 64 * 1024;

/// Deepest nesting of maps and lists.
pub const MAX_YAML_DEPTH: usize = 32;

/// The most nodes it may have as written.
pub const MAX_YAML_NODES: usize = 10_000;

/// The most aliases (`*name`) it may use.
pub const MAX_YAML_ALIASES: usize = 256;

/// The most memory, roughly, that its value may take once aliases are expanded, in bytes.
pub const MAX_VALUE_BYTES: usize = 512 * 1024;

/// Bytes that one node is taken to cost beyond its text.
const NODE_BYTES: usize = 32;

/// The longest message that is taken over from the YAML parser, in characters.
const MAX_MESSAGE_CHARS: usize = 300;

/// YAML that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct YamlError {
    /// Message of the parser, on one line.
    pub message: String,
    /// Line and column in the text, both counted from 1.
    pub position: Option<(u64, u64)>,
}

/// Reads one document. Only `true` and `false` are booleans, as in YAML 1.2; fields that are meant
/// to be booleans accept YAML 1.1's other words where they are read.
///
/// # Errors
///
/// [`YamlError`] for text that is not YAML, for more than one document, for a key that occurs
/// twice, and for anything above the bounds of this file.
pub fn parse_yaml(text: &str) -> Result<Value, YamlError> {
    if text.len() > MAX_FRONTMATTER_BYTES {
        return Err(YamlError {
            message: format!("longer than {MAX_FRONTMATTER_BYTES} bytes"),
            position: None,
        });
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_YAML_DEPTH,
            flow_nesting_limit: MAX_YAML_DEPTH,
            max_nodes: MAX_YAML_NODES,
            max_events: 4 * MAX_YAML_NODES,
            max_aliases: MAX_YAML_ALIASES,
            max_anchors: MAX_YAML_ALIASES,
            max_recorded_anchor_events: 4 * MAX_YAML_NODES,
            max_recorded_anchor_bytes: MAX_VALUE_BYTES,
            max_merge_keys: MAX_YAML_ALIASES,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_YAML_NODES,
            max_replay_stack_depth: MAX_YAML_DEPTH,
        },
        strict_booleans: true,
        // JSON has no such numbers, and one of them is no reason to lose a document.
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    };
    let left = Cell::new(MAX_VALUE_BYTES);
    serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
        Bounded { left: &left }.deserialize(deserializer)
    })
    .map_err(|error| yaml_error(&error))
}

fn yaml_error(error: &serde_saphyr::Error) -> YamlError {
    let position = error
        .location()
        .filter(|at| at.line() > 0)
        .map(|at| (at.line(), at.column()));
    let text = error.to_string();
    let mut message = text.lines().next().unwrap_or_default().trim();
    if let Some((line, column)) = position {
        // It is said in front of the message, and counted from the file's first line there.
        for said in [
            format!("at line {line}, column {column}"),
            format!("line {line} column {column}:"),
        ] {
            message = message.strip_suffix(said.as_str()).unwrap_or(message);
            message = message.strip_prefix(said.as_str()).unwrap_or(message);
            message = message.trim();
        }
    }
    YamlError {
        message: message.chars().take(MAX_MESSAGE_CHARS).collect(),
        position,
    }
}

/// Builds a value while there is memory left. The parser's limits count nodes; this counts what
/// they hold, because an alias of one long text is a copy of it each time.
#[derive(Clone, Copy)]
struct Bounded<'a> {
    left: &'a Cell<usize>,
}

impl Bounded<'_> {
    fn spend<E: serde::de::Error>(self, text: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(text + NODE_BYTES);
        let left = left.ok_or_else(|| {
            E::custom(format_args!("expands to more than {MAX_VALUE_BYTES} bytes"))
        })?;
        self.left.set(left);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Value, E> {
        self.spend(0)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Value, E> {
        self.spend(0)?;
        Ok(Value::from(value))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Value, E> {
        self.spend(0)?;
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        self.spend(0)?;
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.spend(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Value, E> {
        self.spend(0)?;
        Ok(Value::Null)
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Value, E> {
        self.visit_unit()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.spend(0)?;
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.spend::<A::Error>(key.len())?;
            let value = entries.next_value_seed(self)?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format_args!(
                    "the key {key:?} occurs twice"
                )));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn scalars_are_what_yaml_1_2_makes_of_them() {
        let text = "a: 1\nb: 1.5\nc: true\nd: yes\ne: ~\nf: 2024-01-02\ng: '1'\nh: -3\n\
                    1: key\non: off\nk: .nan\nl: 18446744073709551615\n";
        let expected = json!({
            "a": 1, "b": 1.5, "c": true, "d": "yes", "e": null, "f": "2024-01-02", "g": "1",
            "h": -3, "1": "key", "on": "off", "k": ".nan", "l": 18446744073709551615u64,
        });
        assert_eq!(parse_yaml(text), Ok(expected));
    }

    #[test]
    fn errors_have_a_position_and_one_line() {
        for (text, line) in [
            ("a: 1\nb: [1, 2\nc: 3\n", 3),
            ("a: 1\nb:\n\t- 2\n", 3),
            ("a: 1\nb: c: d\n", 2),
            ("a: 1\nb: *nothing\n", 2),
            ("a: 1\na: 2\n", 2),
        ] {
            let error = parse_yaml(text).unwrap_err();
            assert_eq!(
                error.position.map(|(line, _)| line),
                Some(line),
                "{error:?}"
            );
            assert!(!error.message.contains('\n'), "{error:?}");
            assert!(!error.message.contains("at line"), "{error:?}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..12 {
            let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
            laughs.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        let copies = format!(
            "a: &a '{}'\nb: [{}]\n",
            "x".repeat(60_000),
            vec!["*a"; 90].join(", ")
        );
        let anchors = format!("{}x{}", "&a [".repeat(40), "]".repeat(40));
        for bomb in [
            laughs,
            copies,
            anchors,
            "a: &a [*a]".to_owned(),
            "[".repeat(50_000),
            "{a: ".repeat(10_000),
            "- ".repeat(30_000),
            "? ".repeat(30_000),
            "a: 1\n---\nb: 2\n".to_owned(),
            format!("a: [{}]", "1,".repeat(20_000)),
            "x".repeat(MAX_FRONTMATTER_BYTES + 1),
        ] {
            let shown: String = bomb.chars().take(40).collect();
            assert!(parse_yaml(&bomb).is_err(), "{shown}");
        }
    }
}
