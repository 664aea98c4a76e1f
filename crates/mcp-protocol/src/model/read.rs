//! Reading of members for which serde's own ways do not fit.

use jsonrpc_core::RawJson;
use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::value::RawValue;
use std::{fmt, marker::PhantomData};

/// An optional member that may be absent but, if it is there, must not be null.
pub(crate) fn present<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(deserializer).map(Some)
}

/// An optional member that, if it is there, must be an object.
pub(crate) fn object<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let Object(value) = Deserialize::deserialize(deserializer)?;
    Ok(Some(value))
}

/// A member whose absence, or null, is its default: many servers write null for what they lack.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// An object, or null for none.
pub(crate) fn object_or_null<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let value = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(value.map(|Object(value)| value))
}

/// Objects, or null for none of them.
pub(crate) fn objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let values = Option::<Vec<Object<T>>>::deserialize(deserializer)?.unwrap_or_default();
    Ok(values.into_iter().map(|Object(value)| value).collect())
}

/// Objects, of which there may be none, but which are not null.
pub(crate) fn all_objects<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let values = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(values.into_iter().map(|Object(value)| value).collect())
}

/// Any value, as it was written.
pub(crate) fn raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RawJson, D::Error> {
    // Owned, for a tree of values has no text to borrow.
    let value = Box::<RawValue>::deserialize(deserializer)?;
    let text = Box::<str>::from(value);
    Ok(RawJson::from_serialized(String::from(text).into_bytes()))
}

/// Any value that is there, null too.
pub(crate) fn raw_if_present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RawJson>, D::Error> {
    raw(deserializer).map(Some)
}

/// An object, as it was written.
pub(crate) fn raw_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RawJson, D::Error> {
    let value = raw(deserializer)?;
    if value.is_object() {
        Ok(value)
    } else {
        Err(D::Error::custom("not an object"))
    }
}

/// An object as it was written, or null for none.
pub(crate) fn raw_object_or_null<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<RawJson>, D::Error> {
    let value = raw(deserializer)?;
    match value.as_str() {
        "null" => Ok(None),
        _ if value.is_object() => Ok(Some(value)),
        _ => Err(D::Error::custom("not an object")),
    }
}

/// A count or a span of time. JSON knows one kind of number, so `60000.0` is as good as `60000`;
/// less than none is none.
pub(crate) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    /// From here on not every integer is an `f64`.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    if let Some(number) = number.as_u64() {
        return Ok(Some(number));
    }
    match number.as_f64() {
        Some(number) if number < 0.0 => Ok(Some(0)),
        Some(number) if number.fract() == 0.0 && number <= EXACT => Ok(Some(number as u64)),
        _ => Err(D::Error::custom("not a whole number")),
    }
}

/// Value that is written as an object. serde would read a struct from an array, too.
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfMap<T> {
            type Value = Object<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(OfMap(PhantomData))
    }
}
