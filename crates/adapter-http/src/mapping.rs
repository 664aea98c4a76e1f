//! `response_mapping`: which part of an answer counts, and what a status means.

use serde_json::{Value, value::RawValue};
use std::collections::BTreeMap;

/// A place in a JSON value, such as `$.items[0].name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Item(usize),
}

impl JsonPath {
    /// `None` if it is not `$` followed by `.name` and `[number]`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut rest = text.trim().strip_prefix('$')?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                let (name, after) = after.split_at(end);
                if name.is_empty() || name.contains([']', '*', '?', '\'', '"']) {
                    return None;
                }
                steps.push(Step::Member(name.to_owned()));
                rest = after;
            } else {
                let (index, after) = rest.strip_prefix('[')?.split_once(']')?;
                steps.push(Step::Item(index.parse().ok()?));
                rest = after;
            }
        }
        Some(Self(steps))
    }

    /// Value at the path, as it was written; `None` if there is none.
    pub(crate) fn find(&self, json: &RawValue) -> Option<Box<RawValue>> {
        let mut found = json.to_owned();
        for step in &self.0 {
            found = match step {
                Step::Member(name) => {
                    let members: BTreeMap<String, Box<RawValue>> =
                        serde_json::from_str(found.get()).ok()?;
                    members.into_iter().find(|(key, _)| key == name)?.1
                }
                Step::Item(index) => {
                    let items: Vec<Box<RawValue>> = serde_json::from_str(found.get()).ok()?;
                    items.into_iter().nth(*index)?
                }
            };
        }
        Some(found)
    }
}

/// Rules of a binding for answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseMapping {
    pub(crate) path: Option<JsonPath>,
    /// Meanings of statuses: `success`, or else the name of an error.
    pub(crate) statuses: BTreeMap<u16, String>,
}

/// The word for a status that is no error.
pub(crate) const SUCCESS: &str = "success";

impl ResponseMapping {
    /// Reads it; pushes what is unknown in it onto `unknown`.
    pub(crate) fn read(value: &Value, unknown: &mut Vec<String>) -> Result<Self, String> {
        let Some(map) = value.as_object() else {
            return Err("`response_mapping` must be a map".to_owned());
        };
        let mut mapping = Self::default();
        for (key, value) in map {
            match (key.as_str(), value) {
                (_, Value::Null) => {}
                ("path", Value::String(text)) => {
                    let path = JsonPath::parse(text).ok_or_else(|| {
                        "`response_mapping.path` must be like `$.data.items[0]`".to_owned()
                    })?;
                    mapping.path = Some(path);
                }
                ("path", _) => return Err("`response_mapping.path` must be a text".to_owned()),
                ("status_codes", Value::Object(statuses)) => {
                    for (status, meaning) in statuses {
                        let status = status
                            .trim()
                            .parse()
                            .ok()
                            .filter(|it| (100..600).contains(it));
                        let (Some(status), Some(meaning)) = (status, meaning.as_str()) else {
                            return Err(
                                "`response_mapping.status_codes` must map statuses, such as \
                                        404, to `success` or the name of an error"
                                    .to_owned(),
                            );
                        };
                        mapping.statuses.insert(status, meaning.trim().to_owned());
                    }
                }
                ("status_codes", _) => {
                    return Err("`response_mapping.status_codes` must be a map".to_owned());
                }
                _ => unknown.push(format!("response_mapping.{key}")),
            }
        }
        Ok(mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn find(path: &str, json: &str) -> Option<String> {
        let json = RawValue::from_string(json.to_owned()).unwrap();
        let found = JsonPath::parse(path)?.find(&json)?;
        Some(found.get().to_owned())
    }

    #[test]
    fn paths_lead_through_members_and_items() {
        let json = r#"{"data": {"n": 123456789012345678901234567890, "items": [{"x": 1}, 2]}, "a-b": null}"#;
        let rows = [
            ("$.data.n", Some("123456789012345678901234567890")),
            ("$.data.items[0].x", Some("1")),
            ("$.data.items[1]", Some("2")),
            ("$.a-b", Some("null")),
            ("$", Some(json)),
            ("$.data.items[2]", None),
            ("$.data.items.x", None),
            ("$.nothing", None),
        ];
        for (path, expected) in rows {
            assert_eq!(find(path, json).as_deref(), expected, "{path}");
        }
        for bad in [
            "", "data", "$data", "$.", "$..a", "$[x]", "$[0", "$.a[*]", "$.*",
        ] {
            assert_eq!(JsonPath::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_mapping_is_read_and_what_is_unknown_named() {
        let mut unknown = Vec::new();
        let value =
            json!({"path": "$.a", "status_codes": {"404": "not_found", "201": "success"}, "x": 1});
        let mapping = ResponseMapping::read(&value, &mut unknown).unwrap();
        assert_eq!(mapping.statuses[&404], "not_found");
        assert_eq!(mapping.path, JsonPath::parse("$.a"));
        assert_eq!(unknown, ["response_mapping.x"]);
        for bad in [
            json!([]),
            json!({"path": 1}),
            json!({"path": "a"}),
            json!({"status_codes": []}),
            json!({"status_codes": {"4xx": "x"}}),
            json!({"status_codes": {"404": 1}}),
        ] {
            assert!(ResponseMapping::read(&bad, &mut unknown).is_err(), "{bad}");
        }
    }
}
