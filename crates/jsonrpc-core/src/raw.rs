use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use std::fmt;

/// A JSON value as the bytes it was written in. Cloning copies nothing.
///
/// Always valid UTF-8 and one well-formed JSON value: it is only made by slicing what a parser has
/// accepted, or by serializing.
#[derive(Clone, PartialEq, Eq)]
pub struct RawJson(Bytes);

impl RawJson {
    /// `{}`.
    pub const EMPTY_OBJECT: Self = Self(Bytes::from_static(b"{}"));
    /// `null`.
    pub const NULL: Self = Self(Bytes::from_static(b"null"));

    pub(crate) const fn from_static(json: &'static [u8]) -> Self {
        Self(Bytes::from_static(json))
    }

    /// Slices `value`, which a parser has found inside `frame`.
    pub(crate) fn slice_of(frame: &Bytes, value: &RawValue) -> Self {
        Self::of_text(frame, value.get())
    }

    /// Slices `json`, which has been read as JSON inside `frame`.
    pub(crate) fn of_text(frame: &Bytes, json: &str) -> Self {
        Self(frame.slice_ref(json.as_bytes()))
    }

    /// Serializes `value`.
    ///
    /// # Errors
    ///
    /// What `value`'s `Serialize` reports, such as a map whose keys are not strings.
    pub fn from_value<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|bytes| Self(bytes.into()))
    }

    /// Trusts `bytes` to be what serde_json has just written.
    ///
    /// For encoders that put a value together from serialized parts; checked in debug builds.
    pub fn from_serialized(bytes: Vec<u8>) -> Self {
        debug_assert!(
            serde_json::from_slice::<&RawValue>(&bytes).is_ok(),
            "what was serialized is JSON"
        );
        Self(bytes.into())
    }

    /// Trusts the part of `frame` at this place to be what serde_json has just written; the frame is one that was
    /// put together of such parts. Checked in debug builds.
    ///
    /// # Panics
    ///
    /// When the frame has no such place.
    #[must_use]
    pub fn part_of_serialized(frame: &Bytes, place: std::ops::Range<usize>) -> Self {
        let part = frame.slice(place);
        debug_assert!(
            serde_json::from_slice::<&RawValue>(&part).is_ok(),
            "what was serialized is JSON"
        );
        Self(part)
    }

    /// Accepts `bytes` if they are one JSON value.
    ///
    /// # Errors
    ///
    /// The parser's error when they are not.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, serde_json::Error> {
        let value: &RawValue = serde_json::from_slice(&bytes)?;
        Ok(Self::slice_of(&bytes, value))
    }

    /// A value inside of this one, by reference to the same frame.
    ///
    /// # Panics
    ///
    /// When `value` was not borrowed from `self`, for example by [`RawJson::parse`].
    pub fn child(&self, value: &RawValue) -> Self {
        Self::slice_of(&self.0, value)
    }

    /// A value inside of this one, by its place in the text, by reference to the same frame. The place must be one
    /// where [`take_members`](crate::take_members) has found a value.
    ///
    /// # Panics
    ///
    /// When the text has no such place.
    #[must_use]
    pub fn slice(&self, place: std::ops::Range<usize>) -> Self {
        Self(self.0.slice(place))
    }

    /// Reads the value as a `T`, which may borrow from it.
    ///
    /// # Errors
    ///
    /// The parser's error when it is no `T`, or nested deeper than serde_json reads (128).
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        // As text: checking all of it at once is cheaper than checking each string that is read.
        serde_json::from_str(self.as_str())
    }

    /// The JSON text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked when it was made")
    }

    /// Returns true if the value is an object.
    pub fn is_object(&self) -> bool {
        // Sliced and serialized values begin where they begin, without white space before.
        self.0.first() == Some(&b'{')
    }

    /// The JSON text's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, still shared with the frame.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// A copy that does not keep the frame alive, for use beyond the exchange.
    #[must_use]
    pub fn detach(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

impl Default for RawJson {
    /// The empty object, which is what absent parameters mean.
    fn default() -> Self {
        Self::EMPTY_OBJECT
    }
}

impl fmt::Debug for RawJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // RawValue is the one way past serde's data model; borrowing it checks the text once more,
        // which only values written into larger ones pay.
        let value: &RawValue =
            serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}
