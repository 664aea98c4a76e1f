//! Reading fields that may not be what they should.

use std::borrow::Cow;

use documents::nearest;
use serde_json::{Map, Value};

use super::misplaced::words_of;

/// A field whose value is not what it should be, or a key that is not known. The skill is served all
/// the same.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{field}` should be {expected}; {consequence}")]
pub struct BadField {
    /// From the top, joined by dots.
    pub field: String,
    /// Expected form of the value.
    pub expected: Cow<'static, str>,
    /// Consequence: how the field is treated instead.
    pub consequence: &'static str,
    /// The line in the file, counted from 1, where known.
    pub line: Option<u64>,
}

impl BadField {
    /// True if the skill's tool is held back because of the field, which governs it.
    #[must_use]
    pub fn holds(&self) -> bool {
        [HELD, MISSPELT].contains(&self.consequence)
    }

    /// An `owlclaw:` block in the text below the front matter.
    pub(crate) fn below_the_front_matter(line: u64) -> Self {
        Self {
            field: "owlclaw".to_owned(),
            expected: "in the front matter, above the `---` that ends it".into(),
            consequence: HELD,
            line: Some(line),
        }
    }

    /// True for an unknown key among keys that limit calls.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        [UNKNOWN, MISSPELT].contains(&self.consequence)
    }
}

/// Consequence of a field that only describes.
pub(super) const IGNORED: &str = "it is ignored";

/// Consequence of a field that governs: what cannot be read is never read as permission.
pub(super) const HELD: &str = "its tool is held back until it is";

/// Consequence of a key that would govern if it were another one.
pub(super) const UNKNOWN: &str = "it is not known, and limits nothing";

/// Consequence of a key that is nearly one that governs.
pub(super) const MISSPELT: &str = "it is not known, and its tool is held back until it is";

/// One map, and where complaints about it go.
#[derive(Debug)]
pub(super) struct Fields<'a, 'b> {
    pub(super) map: &'a Map<String, Value>,
    /// With a dot at the end, unless it is the top.
    pub(super) prefix: &'static str,
    pub(super) complaints: &'b mut Vec<BadField>,
}

impl Fields<'_, '_> {
    pub(super) fn complain(
        &mut self,
        field: &str,
        expected: impl Into<Cow<'static, str>>,
        consequence: &'static str,
    ) {
        self.complaints.push(BadField {
            field: format!("{}{field}", self.prefix),
            expected: expected.into(),
            consequence,
            line: None,
        });
    }

    /// Reports every key that is not among `known`. Keys that belong elsewhere are left out: another problem reports them. True if one is like
    /// a key that governs, here or elsewhere in the block, which holds the tool back; `place` has the right place of such keys.
    pub(super) fn only(
        &mut self,
        known: &[&'static str],
        governing: &[&'static str],
        place: impl Fn(&str) -> Option<String>,
        elsewhere: impl Fn(&str) -> bool,
    ) -> bool {
        let unknown = self.map.keys();
        let unknown = unknown.filter(|key| !known.contains(&key.as_str()));
        let unknown = unknown.filter(|key| !elsewhere(key));
        // One that has a rule in it holds the tool back by that.
        let has_told = |key: &str| {
            let below = format!("{}{key}.", self.prefix);
            self.complaints
                .iter()
                .any(|it| it.field.starts_with(&below))
        };
        let unknown = unknown.filter(|key| !has_told(key));
        let mut is_misspelt = false;
        for key in unknown.cloned().collect::<Vec<_>>() {
            match meant(&key, known, governing) {
                Some(meant) if governing.contains(&meant) => {
                    is_misspelt = true;
                    let elsewhere = place(meant).filter(|_| !known.contains(&meant));
                    let expected = elsewhere.unwrap_or_else(|| format!("`{meant}`"));
                    self.complain(&key, expected, MISSPELT);
                }
                Some(meant) => self.complain(&key, format!("`{meant}`"), UNKNOWN),
                None => {
                    let all = known.join("`, `");
                    self.complain(&key, format!("one of `{all}`"), UNKNOWN);
                }
            }
        }
        is_misspelt
    }

    /// Complains about each of these keys that is there without a value: what it was to forbid is not
    /// known. True if there is one.
    pub(super) fn none_empty(&mut self, keys: &[&str]) -> bool {
        let is_empty = |key: &&&str| self.map.get(**key).is_some_and(Value::is_null);
        let empty: Vec<_> = keys.iter().filter(is_empty).collect();
        for key in &empty {
            self.complain(key, "given a value, or left out", HELD);
        }
        !empty.is_empty()
    }

    /// The value, unless it is absent or null.
    pub(super) fn get(&self, field: &str) -> Option<&Value> {
        self.map.get(field).filter(|value| !value.is_null())
    }

    /// Text; numbers and booleans are taken as they would be written.
    pub(super) fn text(&mut self, field: &str) -> Option<String> {
        let text = scalar_text(self.get(field)?);
        if text.is_none() {
            self.complain(field, "text", IGNORED);
        }
        text.filter(|text| !text.is_empty())
    }

    /// A list of texts. One text alone is a list too, separated by commas.
    pub(super) fn texts(&mut self, field: &str) -> Vec<String> {
        self.texts_or(field, "what is not is ignored")
    }

    /// The same, with this consequence of what is no text.
    pub(super) fn texts_or(&mut self, field: &str, consequence: &'static str) -> Vec<String> {
        let Some(value) = self.get(field) else {
            return Vec::new();
        };
        let mut texts = Vec::new();
        let mut is_bad = false;
        match value {
            Value::Array(items) => {
                for item in items {
                    match scalar_text(item) {
                        Some(text) => texts.push(text),
                        None => is_bad = true,
                    }
                }
            }
            Value::String(text) => {
                texts.extend(text.split(',').map(|item| item.trim().to_owned()));
            }
            _ => is_bad = true,
        }
        if is_bad {
            self.complain(field, "a list of texts", consequence);
        }
        texts.retain(|text| !text.is_empty());
        texts
    }

    /// Keys, or keys with values.
    pub(super) fn settings(&mut self, field: &str) -> Vec<(String, Option<String>)> {
        let Some(Value::Object(wanted)) = self.get(field) else {
            let keys = self.texts_or(field, HELD);
            return keys.into_iter().map(|key| (key, None)).collect();
        };
        let settings = wanted.iter().map(|(key, value)| {
            let value = scalar_text(value)?;
            Some((key.trim().to_owned(), Some(value)))
        });
        let settings: Option<Vec<_>> = settings.collect();
        settings.unwrap_or_else(|| {
            self.complain(field, "a list of keys, or keys with plain values", HELD);
            Vec::new()
        })
    }

    /// A boolean, also in the words of YAML 1.1. `Err` if it is something else.
    pub(super) fn boolean(&mut self, field: &str) -> Result<Option<bool>, ()> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let boolean = boolean_of(value);
        if boolean.is_none() {
            self.complain(field, "true or false", HELD);
            return Err(());
        }
        Ok(boolean)
    }

    /// A boolean that describes, and has this consequence if it is none.
    pub(super) fn hint(&mut self, field: &str, consequence: &'static str) -> Option<bool> {
        let boolean = boolean_of(self.get(field)?);
        if boolean.is_none() {
            self.complain(field, "true or false", consequence);
        }
        boolean
    }

    /// A whole number, not negative. `Err` if it is something else.
    pub(super) fn whole_number(&mut self, field: &str) -> Result<Option<u64>, ()> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let number = match value {
            Value::Number(number) => number.as_u64(),
            Value::String(digits) => digits.trim().parse().ok(),
            _ => None,
        };
        if number.is_none() {
            self.complain(field, "a whole number, not negative", HELD);
            return Err(());
        }
        Ok(number)
    }

    /// An amount as decimal digits, not negative and without exponent. `Err` if it is something
    /// else.
    pub(super) fn decimal(&mut self, field: &str) -> Result<Option<String>, ()> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let text = match value {
            // The shortest digits that denote the same number, which are those that were written
            // wherever an amount has fewer than 16 of them.
            Value::Number(number) => match number.as_u64() {
                Some(whole) => Some(whole.to_string()),
                None => number.as_f64().map(|it| it.to_string()),
            },
            Value::String(text) => Some(text.trim().to_owned()),
            _ => None,
        };
        match text.filter(|text| is_decimal(text)) {
            Some(text) => Ok(Some(text)),
            None => {
                self.complain(
                    field,
                    "a decimal amount, not negative, of at most 6 decimals",
                    HELD,
                );
                Err(())
            }
        }
    }

    /// A map; anything else is complained about.
    pub(super) fn map(
        &mut self,
        field: &str,
        consequence: &'static str,
    ) -> Option<Map<String, Value>> {
        match self.get(field)? {
            Value::Object(map) => Some(map.clone()),
            _ => {
                self.complain(field, "a map", consequence);
                None
            }
        }
    }
}

/// The known key that is probably meant by `key`: one that is spelt nearly alike, or one that governs and has all words of
/// it, such as `cooldown_seconds` for `cooldown` and for `cooldown_minutes`, or says the same, as `needs_approval`.
fn meant(key: &str, known: &[&'static str], governing: &[&'static str]) -> Option<&'static str> {
    let mut with_its_words = governing.iter().copied().filter(|it| has_words_of(it, key));
    nearest(key, known)
        .or_else(|| nearest(key, governing))
        .or_else(|| with_its_words.next())
        .or_else(|| asks_for_approval(key).then_some("requires_confirmation"))
}

/// True for a key that asks for somebody's agreement in other words: `needs_approval`, `mustConfirm`; not for one that says
/// that it was given, by whom, or until when: `approved`, `approved_by`, `approval_timeout`.
pub(super) fn asks_for_approval(key: &str) -> bool {
    const AGREEMENT: [&str; 6] = [
        "approval",
        "approve",
        "confirm",
        "confirmation",
        "consent",
        "confirmations",
    ];
    const BESIDE: [&str; 20] = [
        "need", "needs", "needed", "require", "requires", "required", "must", "should", "always",
        "ask", "asks", "for", "by", "user", "human", "operator", "manual", "explicit", "is",
        "with",
    ];
    let words = words_of(key);
    let has = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    let known =
        |word: &String| AGREEMENT.contains(&word.as_str()) || BESIDE.contains(&word.as_str());
    has(&AGREEMENT) && words.iter().all(known)
}

/// Units at the end of a key, which another unit may stand for.
const UNITS: [&str; 6] = ["ms", "milliseconds", "seconds", "minutes", "hours", "days"];

pub(super) fn has_words_of(known: &str, key: &str) -> bool {
    let key = key.to_lowercase().replace('-', "_");
    let mut words = key
        .split('_')
        .filter(|word| !UNITS.contains(word))
        .peekable();
    words.peek().is_some() && words.all(|word| known.split('_').any(|it| it == word))
}

pub(super) fn boolean_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(boolean) => Some(*boolean),
        Value::String(word) => match word.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "y" => Some(true),
            "false" | "no" | "off" | "n" => Some(false),
            _ => None,
        },
        _ => None,
    }
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(boolean) => Some(boolean.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn is_decimal(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    // Amounts are counted in millionths.
    let decimals = fraction.trim_end_matches('0').len();
    whole.len() <= 12 && decimals <= 6 && text.len() <= 40 && digits(whole) && digits(fraction)
}
