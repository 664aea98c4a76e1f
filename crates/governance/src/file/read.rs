//! A policy read from a file.

use super::PolicyFile;
use crate::spec::PolicySpec;
use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess, Visitor, value::MapAccessDeserializer},
};
use std::{cell::Cell, fmt};

/// A policy from a file whose mistakes are errors. Nothing at all is one of them: a file that was
/// lost must not allow everything.
impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let file = deserializer.deserialize_map(NotEmpty)?;
        file.try_into().map_err(de::Error::custom)
    }
}

struct NotEmpty;

impl<'de> Visitor<'de> for NotEmpty {
    type Value = PolicyFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the keys of a policy")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicyFile, A::Error> {
        let keys = Cell::new(0);
        let counted = Counted { map, keys: &keys };
        let file = PolicyFile::deserialize(MapAccessDeserializer::new(counted))?;
        match keys.get() {
            0 => Err(de::Error::custom(
                "the policy is empty, which would allow everything: write what is allowed under \
                 `default`",
            )),
            _ => Ok(file),
        }
    }
}

struct Counted<'a, A> {
    map: A,
    keys: &'a Cell<usize>,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Counted<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        let key = self.map.next_key_seed(seed)?;
        self.keys.set(self.keys.get() + usize::from(key.is_some()));
        Ok(key)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}
