use std::{borrow::Borrow, fmt, str::FromStr};
use zeroize::Zeroizing;

/// A value that is wiped from memory when it is dropped, and that nothing shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes a value over.
    #[must_use]
    pub fn new(value: impl Into<String>) -> Self {
        Self(Zeroizing::new(value.into()))
    }

    /// The value itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self::new(value)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// Name of a secret: 1 to 128 of the characters `A-Z a-z 0-9 _ . - /`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// A text that is no name of a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name in a vault is 1 to 128 of the characters A-Z a-z 0-9 _ . - /")]
pub struct BadName;

impl Name {
    const MAX_BYTES: usize = 128;

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, BadName> {
        let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte);
        match !text.is_empty() && text.len() <= Self::MAX_BYTES && text.bytes().all(is_legal) {
            true => Ok(Self(text.to_owned())),
            false => Err(BadName),
        }
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
