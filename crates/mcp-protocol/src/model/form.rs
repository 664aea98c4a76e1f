//! The forms a server shows to a user: the JSON Schema that is allowed for them.

use super::{objects, or_default, read::Object, whole};
use jsonrpc_core::RawJson;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, MapAccess, Visitor},
    ser::SerializeMap,
};
use serde_json::{Number, Value};
use std::fmt;

/// A form: a flat object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Form {
    /// Fields, by name.
    pub fields: Vec<(String, FormField)>,
    /// The names of those that must be filled in.
    pub required: Vec<String>,
}

/// One field of a form.
#[derive(Clone, Debug, PartialEq)]
pub struct FormField {
    /// Name for people.
    pub title: Option<String>,
    /// Purpose of the field.
    pub description: Option<String>,
    /// Kind of its values.
    pub kind: FormKind,
}

/// Kind of values that a field of a form can hold.
#[derive(Clone, Debug, PartialEq)]
pub enum FormKind {
    /// A line of text.
    Text {
        /// The fewest characters.
        min_length: Option<u64>,
        /// The most characters.
        max_length: Option<u64>,
        /// `email`, `uri`, `date` or `date-time`.
        format: Option<String>,
        /// Initial value.
        default: Option<String>,
    },
    /// A number.
    Number {
        /// True if the number must be an integer.
        integer: bool,
        /// The least.
        minimum: Option<Number>,
        /// The greatest.
        maximum: Option<Number>,
        /// Initial value.
        default: Option<Number>,
    },
    /// Yes or no.
    Boolean {
        /// Initial value.
        default: Option<bool>,
    },
    /// One of several.
    One {
        /// Of which.
        choices: Choices,
        /// Initial value.
        default: Option<String>,
    },
    /// Some of several; since 2025-11-25.
    Many {
        /// Of which.
        choices: Choices,
        /// The fewest.
        min_items: Option<u64>,
        /// The most.
        max_items: Option<u64>,
        /// Initial values.
        default: Option<Vec<String>>,
    },
}

/// Choices of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choices {
    /// Values that people can read.
    Plain(Vec<String>),
    /// Values with names for people; since 2025-11-25.
    Titled(Vec<Choice>),
    /// Values, and names for people in the same order, as they were told before. Not for more than
    /// one of several.
    Named {
        /// The values.
        values: Vec<String>,
        /// The names.
        names: Vec<String>,
    },
}

/// One choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// Value in the answer.
    #[serde(rename = "const")]
    pub value: String,
    /// Name for people.
    pub title: String,
}

impl Form {
    /// Reads what [`InputRequest::ElicitForm`](super::InputRequest::ElicitForm) holds.
    ///
    /// # Errors
    ///
    /// What is no form, or has a field that forms cannot have.
    pub fn of(schema: &RawJson) -> Result<Self, serde_json::Error> {
        let Object(form) = schema.parse()?;
        Ok(form)
    }
}

#[derive(Deserialize)]
struct WireForm {
    #[serde(rename = "type")]
    kind: String,
    properties: Fields,
    #[serde(default, deserialize_with = "or_default")]
    required: Vec<String>,
}

struct Fields(Vec<(String, FormField)>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, Object(field))) = map.next_entry()? {
                    fields.push((name, field));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

impl<'de> Deserialize<'de> for Form {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = WireForm::deserialize(deserializer)?;
        if wire.kind != "object" {
            return Err(D::Error::custom("a form is an object"));
        }
        Ok(Self {
            fields: wire.properties.0,
            required: wire.required,
        })
    }
}

impl Serialize for Form {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Properties<'a>(&'a [(String, FormField)]);
        impl Serialize for Properties<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().map(|(name, field)| (name, field)))
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("type", "object")?;
        map.serialize_entry("properties", &Properties(&self.fields))?;
        if !self.required.is_empty() {
            map.serialize_entry("required", &self.required)?;
        }
        map.end()
    }
}

/// The members that any kind of field has.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireField {
    #[serde(rename = "type")]
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    min_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    max_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minimum: Option<Number>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<Number>,
    #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
    values: Option<Vec<String>>,
    #[serde(rename = "enumNames", skip_serializing_if = "Option::is_none")]
    names: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "objects")]
    one_of: Vec<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Items>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    min_items: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    max_items: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    default: Option<Value>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Items {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
    values: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "objects")]
    any_of: Vec<Choice>,
}

impl FormField {
    fn of(wire: WireField) -> Result<Self, serde_json::Error> {
        fn typed<T: serde::de::DeserializeOwned>(
            value: Option<Value>,
        ) -> Result<Option<T>, serde_json::Error> {
            value.map(serde_json::from_value).transpose()
        }
        let kind = match (wire.kind.as_str(), wire.values, wire.names) {
            ("string", Some(values), Some(names)) => FormKind::One {
                choices: Choices::Named { values, names },
                default: typed(wire.default)?,
            },
            ("string", Some(values), None) => FormKind::One {
                choices: Choices::Plain(values),
                default: typed(wire.default)?,
            },
            ("string", None, _) if !wire.one_of.is_empty() => FormKind::One {
                choices: Choices::Titled(wire.one_of),
                default: typed(wire.default)?,
            },
            ("string", None, _) => FormKind::Text {
                min_length: wire.min_length,
                max_length: wire.max_length,
                format: wire.format,
                default: typed(wire.default)?,
            },
            (kind @ ("number" | "integer"), ..) => FormKind::Number {
                integer: kind == "integer",
                minimum: wire.minimum,
                maximum: wire.maximum,
                default: typed(wire.default)?,
            },
            ("boolean", ..) => FormKind::Boolean {
                default: typed(wire.default)?,
            },
            ("array", ..) => {
                let items = wire.items.unwrap_or_default();
                FormKind::Many {
                    choices: match items.values {
                        Some(values) => Choices::Plain(values),
                        None => Choices::Titled(items.any_of),
                    },
                    min_items: wire.min_items,
                    max_items: wire.max_items,
                    default: typed(wire.default)?,
                }
            }
            _ => return Err(serde_json::Error::custom("forms have no such fields")),
        };
        Ok(Self {
            title: wire.title,
            description: wire.description,
            kind,
        })
    }

    fn wire(&self) -> WireField {
        let mut wire = WireField {
            title: self.title.clone(),
            description: self.description.clone(),
            ..WireField::default()
        };
        match self.kind.clone() {
            FormKind::Text {
                min_length,
                max_length,
                format,
                default,
            } => {
                "string".clone_into(&mut wire.kind);
                wire.min_length = min_length;
                wire.max_length = max_length;
                wire.format = format;
                wire.default = default.map(Value::from);
            }
            FormKind::Number {
                integer,
                minimum,
                maximum,
                default,
            } => {
                if integer { "integer" } else { "number" }.clone_into(&mut wire.kind);
                wire.minimum = minimum;
                wire.maximum = maximum;
                wire.default = default.map(Value::Number);
            }
            FormKind::Boolean { default } => {
                "boolean".clone_into(&mut wire.kind);
                wire.default = default.map(Value::from);
            }
            FormKind::One { choices, default } => {
                "string".clone_into(&mut wire.kind);
                wire.default = default.map(Value::from);
                match choices {
                    Choices::Plain(values) => wire.values = Some(values),
                    Choices::Titled(choices) => wire.one_of = choices,
                    Choices::Named { values, names } => {
                        wire.values = Some(values);
                        wire.names = Some(names);
                    }
                }
            }
            FormKind::Many {
                choices,
                min_items,
                max_items,
                default,
            } => {
                "array".clone_into(&mut wire.kind);
                wire.min_items = min_items;
                wire.max_items = max_items;
                wire.default = default.map(Value::from);
                wire.items = Some(match choices {
                    Choices::Plain(values) | Choices::Named { values, .. } => Items {
                        kind: Some("string".to_owned()),
                        values: Some(values),
                        any_of: Vec::new(),
                    },
                    Choices::Titled(any_of) => Items {
                        any_of,
                        ..Items::default()
                    },
                });
            }
        }
        wire
    }
}

impl<'de> Deserialize<'de> for FormField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::of(WireField::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for FormField {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.wire().serialize(serializer)
    }
}
