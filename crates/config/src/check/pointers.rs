//! JSON pointers that lead to nothing in what a schema admits.

use std::collections::BTreeSet;

use serde_json::Value;

/// Most subschemas that are looked at: schemas may refer back to themselves.
const MAX_STEPS: usize = 1_000;

/// Keywords that admit members which are not looked at.
const OPEN: [&str; 5] = [
    "$dynamicRef",
    "dependentSchemas",
    "if",
    "not",
    "patternProperties",
];

/// Pointers with another name in the place of the one that `schema` has not, if `pointer` (RFC 6901, with `*` for any
/// member or item) leads to nothing; `None` if it may lead to something.
///
/// An object with `properties` has no others unless its schema says so. A text may be JSON.
pub(super) fn astray(schema: &Value, pointer: &str) -> Option<BTreeSet<String>> {
    let segments: Vec<&str> = pointer.split('/').skip(1).collect();
    let mut search = Search {
        root: schema,
        steps: 0,
        near: BTreeSet::new(),
    };
    (!search.leads(schema, "", &segments)).then_some(search.near)
}

struct Search<'a> {
    root: &'a Value,
    steps: usize,
    near: BTreeSet<String>,
}

impl<'a> Search<'a> {
    fn leads(&mut self, schema: &'a Value, path: &str, segments: &[&str]) -> bool {
        if *schema == Value::Bool(false) {
            return false;
        }
        let (Some((first, rest)), Value::Object(members)) = (segments.split_first(), schema) else {
            return true;
        };
        self.steps += 1;
        if MAX_STEPS < self.steps || OPEN.iter().any(|it| members.contains_key(*it)) {
            return true;
        }
        if let Some(reference) = members.get("$ref") {
            let pointer = reference.as_str().and_then(|it| it.strip_prefix('#'));
            let target = pointer.and_then(|it| self.root.pointer(it));
            return target.is_none_or(|it| self.leads(it, path, segments));
        }
        let choices = ["allOf", "anyOf", "oneOf"].map(|it| members.get(it));
        let choices: Vec<_> = choices.into_iter().flatten().collect();
        let mut parts = choices.iter().filter_map(|it| it.as_array()).flatten();
        if parts.any(|part| self.leads(part, path, segments)) {
            return true;
        }
        let kinds = match &schema["type"] {
            Value::String(kind) => vec![kind.as_str()],
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
            _ if members.contains_key("properties") => vec!["object"],
            _ => return choices.is_empty(),
        };
        kinds.contains(&"string")
            || kinds.contains(&"object") && self.in_object(schema, path, first, rest)
            || kinds.contains(&"array") && self.in_array(schema, path, first, rest)
    }

    fn in_object(&mut self, schema: &'a Value, path: &str, first: &str, rest: &[&str]) -> bool {
        let properties = schema["properties"].as_object();
        let others = match &schema["additionalProperties"] {
            Value::Null => properties.is_none(),
            others => self.leads(others, &format!("{path}/{first}"), rest),
        };
        if others {
            return true;
        }
        let behind: String = rest.iter().map(|it| format!("/{it}")).collect();
        for (name, part) in properties.into_iter().flatten() {
            let place = format!("{path}/{}", name.replace('~', "~0").replace('/', "~1"));
            if first == "*" || place[path.len() + 1..] == *first {
                if self.leads(part, &place, rest) {
                    return true;
                }
            } else {
                self.near.insert(place + &behind);
            }
        }
        false
    }

    fn in_array(&mut self, schema: &'a Value, path: &str, first: &str, rest: &[&str]) -> bool {
        let place = format!("{path}/{first}");
        let index = first.parse::<usize>().ok();
        if first != "*" && index.is_none() {
            return false;
        }
        let front = schema["prefixItems"].as_array().map_or(&[][..], |it| it);
        let mut front = front.iter().enumerate();
        front.any(|(at, part)| index.is_none_or(|it| it == at) && self.leads(part, &place, rest))
            || match &schema["items"] {
                Value::Null => true,
                items => self.leads(items, &place, rest),
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pointer_is_astray_where_the_schema_has_no_such_place() {
        let schema = json!({
            "type": "object",
            "properties": {
                "note": {"type": "string"},
                "amount": {"type": "integer"},
                "customer": {"$ref": "#/$defs/Customer"},
                "rows": {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/Customer"}}, {"type": "null"}]},
                "pair": {"type": "array", "prefixItems": [{"type": "integer"}], "items": false},
                "map": {"type": "object", "additionalProperties": {"type": "integer"}},
                "open": {"type": "object"},
                "any": {},
                "a/b": {"type": "integer"},
            },
            "additionalProperties": false,
            "$defs": {
                "Customer": {
                    "type": "object",
                    "properties": {"card": {"type": "integer"}, "parent": {"$ref": "#/$defs/Customer"}},
                },
            },
        });
        for pointer in [
            "",
            "/note",
            "/note/in/json",
            "/customer/card",
            "/customer/parent/parent/card",
            "/rows/0/card",
            "/rows/*/card",
            "/pair/0",
            "/map/x",
            "/open/x/y",
            "/any/x",
            "/a~1b",
            "/*",
            "/*/card",
        ] {
            assert_eq!(astray(&schema, pointer), None, "{pointer}");
        }
        for pointer in [
            "/notte",
            "/amount/x",
            "/customer/cart",
            "/customer/parent/cart",
            "/rows/card",
            "/rows/0/cart",
            "/pair/1",
            "/map/x/y",
            "/a~1c",
        ] {
            assert!(astray(&schema, pointer).is_some(), "{pointer}");
        }
        let near = astray(&schema, "/customr/card").unwrap();
        assert!(near.contains("/customer/card"), "{near:?}");
        let itself = json!({"$ref": "#"});
        assert_eq!(astray(&itself, "/x"), None);
        assert_eq!(astray(&json!({"type": "object"}), "/x"), None);
        assert_eq!(astray(&json!(true), "/x"), None);
    }
}
