//! Arguments: their declaration, and values that clients send as texts.

use minijinja::Value as TemplateValue;
use serde_json::{Map, Value};

/// Bytes of one value that is sent, where its declaration does not allow fewer or more.
pub(crate) const MAX_VALUE_BYTES: u64 = 64 * 1024;

/// Kind of a value. Clients send all of them as texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text, as it is.
    String,
    /// Digits, perhaps with a sign.
    Integer,
    /// A number as JSON has it.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list as JSON.
    Array,
    /// An object as JSON.
    Object,
}

impl Kind {
    pub(crate) const NAMES: [&'static str; 6] =
        ["string", "integer", "number", "boolean", "array", "object"];

    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            "array" => Self::Array,
            "object" => Self::Object,
            _ => return None,
        })
    }

    /// Name of the kind, as in JSON Schema.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Array => "array",
            Self::Object => "object",
        }
    }

    fn cure(self) -> &'static str {
        match self {
            Self::String => "send a text",
            Self::Integer => "send digits such as `42`",
            Self::Number => "send a number such as `4.2`",
            Self::Boolean => "send `true` or `false`",
            Self::Array => r#"send a list as JSON, such as `["a", "b"]`"#,
            Self::Object => r#"send an object as JSON, such as `{"a": 1}`"#,
        }
    }
}

/// An argument of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// Name, by which the template knows it.
    pub name: String,
    /// Name for people.
    pub title: Option<String>,
    /// Purpose.
    pub description: Option<String>,
    /// Kind of its value.
    pub kind: Kind,
    /// True if the prompt cannot be filled in without it.
    pub required: bool,
    /// Value that it has if none is sent.
    pub default: Option<Value>,
    /// The only values that it may have; any, if there are none.
    pub choices: Vec<Value>,
    /// Values that are suggested besides.
    pub examples: Vec<Value>,
    /// Least value of a number.
    pub minimum: Option<f64>,
    /// Greatest value of a number.
    pub maximum: Option<f64>,
    /// Least length: characters of a text, items of a list or object.
    pub min_length: Option<u64>,
    /// Greatest length.
    pub max_length: Option<u64>,
}

impl Argument {
    /// The description with what else a client should know: kind, choices, default and bounds.
    #[must_use]
    pub fn described(&self) -> String {
        let mut parts = Vec::new();
        parts.extend(self.description.clone());
        if self.kind != Kind::String {
            parts.push(format!("Type: {}.", self.kind.as_str()));
        }
        if !self.choices.is_empty() {
            let choices: Vec<_> = self.choices.iter().map(shown).collect();
            parts.push(format!("One of {}.", choices.join(", ")));
        }
        let bounds = [
            ("At least", self.minimum.map(|it| it.to_string())),
            ("At most", self.maximum.map(|it| it.to_string())),
            ("Length at least", self.min_length.map(|it| it.to_string())),
            ("Length at most", self.max_length.map(|it| it.to_string())),
        ];
        for (word, bound) in bounds {
            parts.extend(bound.map(|bound| format!("{word} {bound}.")));
        }
        parts.extend(
            self.default
                .as_ref()
                .map(|it| format!("Default: {}.", shown(it))),
        );
        parts.join(" ")
    }

    /// Values to suggest that begin with `typed`, in the order of the file.
    #[must_use]
    pub fn suggestions(&self, typed: &str) -> Vec<String> {
        const MAX_SUGGESTED: usize = 100;
        let booleans = [Value::Bool(true), Value::Bool(false)];
        let own = self.choices.iter().chain(&self.examples);
        let own = own.chain(&self.default);
        let of_kind = booleans.iter().filter(|_| self.kind == Kind::Boolean);
        let typed = typed.to_lowercase();
        let mut found: Vec<String> = Vec::new();
        for value in own.chain(of_kind) {
            let text = as_sent(value);
            if text.to_lowercase().starts_with(&typed) && !found.contains(&text) {
                found.push(text);
            }
        }
        found.truncate(MAX_SUGGESTED);
        found
    }

    /// The value of a text that a client has sent.
    ///
    /// # Errors
    ///
    /// The mistake, with the argument's name and the cure.
    pub(crate) fn read(&self, sent: &str) -> Result<Value, String> {
        let refuse = |why: String, cure: &str| Err(format!("`{}`: {why}; {cure}", self.name));
        let most = self.max_length.filter(|_| self.kind == Kind::String);
        let most = most.map_or(MAX_VALUE_BYTES, |characters| characters.saturating_mul(4));
        if sent.len() as u64 > most {
            let why = format!("{} bytes are too many", sent.len());
            return refuse(why, &format!("send at most {most}"));
        }
        let value = match self.kind {
            Kind::String => Some(Value::from(sent)),
            Kind::Integer => sent.trim().parse::<i64>().ok().map(Value::from),
            Kind::Number => match number(sent.trim()) {
                Some((_, false)) => {
                    let why = format!(
                        "{} has more digits than are kept",
                        shown(&Value::from(sent))
                    );
                    return refuse(why, "send at most 15");
                }
                read => read.map(|(number, _)| number),
            },
            Kind::Boolean => match sent.trim() {
                "true" => Some(Value::Bool(true)),
                "false" => Some(Value::Bool(false)),
                _ => None,
            },
            Kind::Array | Kind::Object => serde_json::from_str(sent).ok(),
        };
        match value.filter(|value| self.is_of_kind(value)) {
            Some(value) => self.check(&value).map(|()| value),
            None => {
                let why = format!("{} is no {}", shown(&Value::from(sent)), self.kind.as_str());
                refuse(why, self.kind.cure())
            }
        }
    }

    pub(crate) fn is_of_kind(&self, value: &Value) -> bool {
        match self.kind {
            Kind::String => value.is_string(),
            Kind::Integer => value.is_i64(),
            Kind::Number => value.is_number(),
            Kind::Boolean => value.is_boolean(),
            Kind::Array => value.is_array(),
            Kind::Object => value.is_object(),
        }
    }

    /// Compares a value of the right kind with the choices and bounds.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        let name = &self.name;
        if !self.choices.is_empty() && !self.choices.contains(value) {
            let choices: Vec<_> = self.choices.iter().map(shown).collect();
            let choices = choices.join(", ");
            return Err(format!(
                "`{name}`: {} is none of the choices; send one of {choices}",
                shown(value)
            ));
        }
        if let Some(number) = value.as_f64() {
            if let Some(least) = self.minimum.filter(|least| number < *least) {
                return Err(format!(
                    "`{name}`: {number} is too small; send at least {least}"
                ));
            }
            if let Some(most) = self.maximum.filter(|most| *most < number) {
                return Err(format!(
                    "`{name}`: {number} is too great; send at most {most}"
                ));
            }
        }
        let length = match value {
            Value::String(text) => Some((text.chars().count(), "characters")),
            Value::Array(items) => Some((items.len(), "items")),
            Value::Object(members) => Some((members.len(), "members")),
            _ => None,
        };
        if let Some((length, unit)) = length {
            let length = length as u64;
            if let Some(least) = self.min_length.filter(|least| length < *least) {
                return Err(format!(
                    "`{name}`: {length} {unit} are too few; send at least {least}"
                ));
            }
            if let Some(most) = self.max_length.filter(|most| *most < length) {
                return Err(format!(
                    "`{name}`: {length} {unit} are too many; send at most {most}"
                ));
            }
        }
        Ok(())
    }

    /// A value that fits, for trying the template.
    pub(crate) fn sample(&self) -> Value {
        let given = self.default.iter().chain(&self.choices);
        let given = given.chain(&self.examples).next();
        given.cloned().unwrap_or_else(|| match self.kind {
            Kind::String => Value::from("x"),
            Kind::Integer | Kind::Number => Value::from(1),
            Kind::Boolean => Value::Bool(true),
            Kind::Array => Value::from(vec!["x"]),
            Kind::Object => Value::Object(Map::new()),
        })
    }
}

/// The number that a text is in JSON, and true if it has each of the digits.
fn number(sent: &str) -> Option<(Value, bool)> {
    let number: serde_json::Number = serde_json::from_str(sent).ok()?;
    if number.is_i64() || number.is_u64() {
        return Some((Value::Number(number), true));
    }
    let number: f64 = sent.parse().ok()?;
    let is_whole = significant(sent) == significant(&format!("{number:e}"));
    Some((serde_json::Number::from_f64(number)?.into(), is_whole))
}

/// The digits of a decimal number from the first to the last that is no zero, and where its point is before them.
fn significant(number: &str) -> Option<(String, i64)> {
    let number = number.trim_start_matches('-');
    let (digits, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = format!("{whole}{fraction}");
    let shown = all.trim_start_matches('0');
    if shown.is_empty() {
        return Some((String::new(), 0));
    }
    let before = i64::try_from(whole.len()).ok()? - i64::try_from(all.len() - shown.len()).ok()?;
    let point = exponent.parse::<i64>().ok()?.checked_add(before)?;
    Some((shown.trim_end_matches('0').to_owned(), point))
}

/// A value as a client would send it.
pub(crate) fn as_sent(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A value in a message, shortened.
fn shown(value: &Value) -> String {
    const MAX_SHOWN: usize = 60;
    let text = as_sent(value);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// A value as templates have it. Texts of clients are never marked as safe, or as templates.
pub(crate) fn to_template(value: &Value) -> TemplateValue {
    match value {
        Value::Null => TemplateValue::from(()),
        Value::Bool(it) => TemplateValue::from(*it),
        Value::Number(it) => match (it.as_i64(), it.as_u64()) {
            (Some(it), _) => TemplateValue::from(it),
            (None, Some(it)) => TemplateValue::from(it),
            (None, None) => TemplateValue::from(it.as_f64().unwrap_or_default()),
        },
        Value::String(it) => TemplateValue::from(it.as_str()),
        Value::Array(items) => items.iter().map(to_template).collect(),
        Value::Object(members) => TemplateValue::from_pairs(
            members
                .iter()
                .map(|(key, it)| (key.as_str(), to_template(it))),
        ),
    }
}
