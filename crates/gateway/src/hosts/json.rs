//! JSON as editors write it, with comments and with commas at the end of lists; but no member of an object twice.

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::fmt;

/// JSON in which no object has two members of one name.
pub(super) struct Unique(pub(super) Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_bool<E>(self, it: bool) -> Result<Value, E> {
                Ok(it.into())
            }

            fn visit_i64<E>(self, it: i64) -> Result<Value, E> {
                Ok(it.into())
            }

            fn visit_u64<E>(self, it: u64) -> Result<Value, E> {
                Ok(it.into())
            }

            fn visit_f64<E>(self, it: f64) -> Result<Value, E> {
                Ok(it.into())
            }

            fn visit_str<E>(self, it: &str) -> Result<Value, E> {
                Ok(it.into())
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Null)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
                let mut found = Vec::new();
                while let Some(Unique(item)) = items.next_element()? {
                    found.push(item);
                }
                Ok(Value::Array(found))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
                let mut found = Map::new();
                while let Some((name, Unique(value))) = members.next_entry::<String, _>()? {
                    if found.contains_key(&name) {
                        return Err(de::Error::custom(format!("`{name}` is given twice")));
                    }
                    found.insert(name, value);
                }
                Ok(Value::Object(found))
            }
        }
        deserializer.deserialize_any(Once).map(Self)
    }
}

/// JSON without the comments, and the commas at the end of lists, that editors allow.
pub(super) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.trim_start_matches('\u{feff}').chars().peekable();
    let mut in_text = false;
    while let Some(it) = rest.next() {
        match it {
            '\\' if in_text => {
                out.push(it);
                out.extend(rest.next());
            }
            '"' => {
                in_text = !in_text;
                out.push(it);
            }
            '/' if !in_text && rest.peek() == Some(&'/') => {
                while rest.peek().is_some_and(|it| *it != '\n') {
                    rest.next();
                }
            }
            '/' if !in_text && rest.peek() == Some(&'*') => {
                rest.next();
                let mut before = ' ';
                for it in rest.by_ref() {
                    if before == '*' && it == '/' {
                        break;
                    }
                    before = it;
                }
            }
            '}' | ']' if !in_text => {
                let kept = out.trim_end();
                if kept.ends_with(',') {
                    let length = kept.len() - 1;
                    out.truncate(length);
                }
                out.push(it);
            }
            _ => out.push(it),
        }
    }
    out
}
