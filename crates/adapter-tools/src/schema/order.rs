//! The order in which an author has written the members of a schema.

use crate::members::Members;
use serde_json::{Value, value::RawValue};
use std::collections::HashMap;

/// Position of each name in a schema, by its first occurrence. Members are shown in that order, which
/// is the author's unless two objects have the same names in different orders.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameOrder(HashMap<String, usize>);

impl NameOrder {
    /// Reads `schema` as it is written.
    pub(crate) fn of(schema: &RawValue) -> Self {
        let mut order = Self::default();
        order.read(schema);
        order
    }

    fn read(&mut self, raw: &RawValue) {
        match raw.get().as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(raw.get()).unwrap_or_default();
                for (name, member) in members {
                    let next = self.0.len();
                    self.0.entry(name).or_insert(next);
                    self.read(member);
                }
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
                items.into_iter().for_each(|item| self.read(item));
            }
            _ => {}
        }
    }

    /// The JSON of `value` with its members in this order; names that are not in it come last.
    pub(crate) fn write(&self, value: &Value) -> String {
        let mut text = String::new();
        self.put(value, &mut text);
        text
    }

    fn put(&self, value: &Value, text: &mut String) {
        match value {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| self.0.get(*name).copied().unwrap_or(usize::MAX));
                text.push('{');
                for (index, (name, member)) in members.into_iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    text.push_str(&Value::from(name.as_str()).to_string());
                    text.push(':');
                    self.put(member, text);
                }
                text.push('}');
            }
            Value::Array(items) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    self.put(item, text);
                }
                text.push(']');
            }
            other => text.push_str(&other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_written_in_the_order_of_their_author() {
        let written =
            r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"items":{"y":1,"b":2}}}}"#;
        let order = NameOrder::of(serde_json::from_str(written).unwrap());
        let mut value: Value = serde_json::from_str(written).unwrap();
        assert_eq!(order.write(&value), written);
        value["properties"]["a"]["anyOf"] = Value::Null;
        let expected = r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"items":{"y":1,"b":2},"anyOf":null}}}"#;
        assert_eq!(order.write(&value), expected);
        assert_eq!(NameOrder::default().write(&value), value.to_string());
    }
}
