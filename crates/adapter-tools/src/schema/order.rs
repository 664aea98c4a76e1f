//! The order in which an author has written the members of a schema.

use super::MAX_SCHEMA_DEPTH;
use crate::members::Members;
use serde_json::{Value, value::RawValue};
use std::collections::HashMap;

/// Positions of the members of a schema. Members are shown in that order, which is the author's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NameOrder {
    root: Place,
    /// Position of each name, by its first occurrence, for objects that are not written as they are.
    names: HashMap<String, usize>,
}

/// Place in a schema as it is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Place {
    /// The members of an object, with their positions.
    members: HashMap<String, (usize, Place)>,
    /// The items of an array.
    items: Vec<Place>,
}

impl NameOrder {
    /// Reads `schema` as it is written.
    pub(crate) fn of(schema: &RawValue) -> Self {
        let mut names = HashMap::new();
        let root = Place::read(schema, &mut names, MAX_SCHEMA_DEPTH);
        Self { root, names }
    }

    /// The JSON of `value` with its members in this order; names that are not in it come last. What has moved
    /// into a new choice keeps its order.
    pub(crate) fn write(&self, value: &Value) -> String {
        let mut text = String::new();
        self.put(value, &self.root, &mut text);
        text
    }

    fn put(&self, value: &Value, place: &Place, text: &mut String) {
        match value {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                members.sort_by_key(|(name, _)| match place.members.get(*name) {
                    Some((at, _)) => (false, *at),
                    None => (true, self.names.get(*name).copied().unwrap_or(usize::MAX)),
                });
                text.push('{');
                for (index, (name, member)) in members.into_iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    text.push_str(&Value::from(name.as_str()).to_string());
                    text.push(':');
                    let below = place.members.get(name).map_or(place, |(_, below)| below);
                    self.put(member, below, text);
                }
                text.push('}');
            }
            Value::Array(items) => {
                text.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        text.push(',');
                    }
                    self.put(item, place.items.get(index).unwrap_or(place), text);
                }
                text.push(']');
            }
            other => text.push_str(&other.to_string()),
        }
    }
}

impl Place {
    /// Reads `raw` as deep as `levels`; schemas that are nested deeper are refused.
    fn read(raw: &RawValue, names: &mut HashMap<String, usize>, levels: usize) -> Self {
        let mut place = Self::default();
        let Some(below) = levels.checked_sub(1) else {
            return place;
        };
        match raw.get().as_bytes().first() {
            Some(b'{') => {
                let Members(members) = serde_json::from_str(raw.get()).unwrap_or_default();
                for (at, (name, member)) in members.into_iter().enumerate() {
                    let next = names.len();
                    names.entry(name.clone()).or_insert(next);
                    let member = Self::read(member, names, below);
                    place.members.insert(name, (at, member));
                }
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
                let items = items.into_iter();
                place.items = items.map(|item| Self::read(item, names, below)).collect();
            }
            _ => {}
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_has_its_own_order_whatever_names_repeat() {
        for written in [
            r##"{"type":"object","properties":{"sku":{"type":"string"},"line":{"$ref":"#/$defs/Line"}},"$defs":{"Line":{"properties":{"quantity":1,"unit":2,"sku":3,"note":4}},"More":{"properties":{"note":1,"sku":2,"quantity":3}}}}"##,
            r##"{"type":"object","properties":{"sku":{"type":"string"},"line":{"anyOf":[{"type":"object","properties":{"z":1,"sku":2}},{"type":"object","properties":{"sku":2,"z":1}}]}}}"##,
        ] {
            let order = NameOrder::of(serde_json::from_str(written).unwrap());
            let value: Value = serde_json::from_str(written).unwrap();
            assert_eq!(order.write(&value), written);
        }
        // The type of `line` becomes a choice, into which its members go.
        let nullable = r#"{"type":"object","properties":{"sku":{"type":"string"},"line":{"type":["object","null"],"properties":{"z":{"type":"string"},"sku":{"type":"string"}}}}}"#;
        let order = NameOrder::of(serde_json::from_str(nullable).unwrap());
        let portable = super::super::portable(serde_json::from_str(nullable).unwrap());
        let expected = r#"{"type":"object","properties":{"sku":{"type":"string"},"line":{"anyOf":[{"type":"object","properties":{"z":{"type":"string"},"sku":{"type":"string"}}},{"type":"null"}]}}}"#;
        assert_eq!(order.write(&portable), expected);
    }

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
