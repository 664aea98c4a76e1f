use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::{fmt, sync::Arc};

/// A request's id: a string or an integer, echoed exactly (decision D13).
///
/// Never null and never fractional. `1` and `"1"` are different ids.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Id {
    /// An integer that fits.
    Number(i64),
    /// An integer that does not, in its sender's own digits.
    BigNumber(Box<str>),
    /// A string.
    String(Box<str>),
}

impl Id {
    /// Reads an id; `None` for anything but a string or an integer.
    pub(crate) fn read(raw: &RawValue) -> Option<Self> {
        let text = raw.get();
        if text.starts_with('"') {
            return serde_json::from_str::<Box<str>>(text)
                .ok()
                .map(Self::String);
        }
        Self::of_digits(text)
    }

    /// Reads an id that is an integer; `None` for anything else.
    pub(crate) fn of_digits(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        Some(match text.parse::<i64>() {
            // `-0` is an integer whose digits `i64` would lose.
            Ok(number) if text != "-0" => Self::Number(number),
            _ => Self::BigNumber(text.into()),
        })
    }

    /// Reads the id of an answer, which may be written as another form of the same number: `7.0` is 7. `None` for anything
    /// that [`read`](Self::read) does not read either and that is no integer of at most 53 bits.
    pub(crate) fn read_in_answer(raw: &RawValue) -> Option<Self> {
        /// Up to here, a double is one integer.
        const MOST: f64 = 9_007_199_254_740_992.0;
        Self::read(raw).or_else(|| {
            let number: f64 = raw.get().parse().ok()?;
            let is_whole = number.fract() == 0.0 && number.abs() <= MOST;
            // In this range nothing is lost.
            is_whole.then_some(Self::Number(number as i64))
        })
    }

    /// The text that [`Display`](fmt::Display) writes, to keep.
    pub fn to_shared(&self) -> Arc<str> {
        match self {
            Self::Number(number) => itoa::Buffer::new().format(*number).into(),
            id => id.to_string().into(),
        }
    }

    /// Reads an id from JSON text; `None` for anything but a string or an integer.
    pub fn from_json(text: &str) -> Option<Self> {
        serde_json::from_str::<&RawValue>(text)
            .ok()
            .and_then(Self::read)
    }
}

/// As JSON: strings with their quotes, so that `92` and `"92"` can be told apart in a log.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::BigNumber(digits) => f.write_str(digits),
            Self::String(text) => {
                f.write_str(&serde_json::to_string(text).map_err(|_| fmt::Error)?)
            }
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<i64> for Id {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self::String(text.into())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_i64(*number),
            Self::BigNumber(digits) => {
                let raw: &RawValue =
                    serde_json::from_str(digits).map_err(serde::ser::Error::custom)?;
                raw.serialize(serializer)
            }
            Self::String(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> serde::Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        Self::read(raw)
            .ok_or_else(|| serde::de::Error::custom("an id must be a string or an integer"))
    }
}
