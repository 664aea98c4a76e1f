use crate::{
    api_key::{from_hexadecimal, is_id},
    identity::{MAX_ROLES, is_decent_name},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// What is kept of a key. Everything but the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// What it is called.
    pub id: String,
    /// SHA-256 of the whole key, in hexadecimal.
    pub(crate) digest: String,
    /// Whose it is.
    pub principal: String,
    /// The roles it gives.
    #[serde(default)]
    pub roles: Vec<String>,
    /// What its owner was told to remember it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// When it was made: RFC 3339, UTC, as all times here.
    pub created: String,
    /// When it ends to be good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// When it was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// The key in whose place it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// Whether a key is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// It is.
    Active,
    /// It was, until it expired.
    Expired,
    /// It was taken back.
    Revoked,
}

impl KeyState {
    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl KeyRecord {
    /// Whether it is good at `now`.
    #[must_use]
    pub fn state(&self, now: SystemTime) -> KeyState {
        if self.revoked.is_some() {
            return KeyState::Revoked;
        }
        match self.expires.as_deref().map(time) {
            Some(Some(expires)) if now < expires => KeyState::Active,
            Some(_) => KeyState::Expired,
            None => KeyState::Active,
        }
    }

    /// What is wrong with it, if anything.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        let is_time = |text: &Option<String>| text.as_deref().is_none_or(|it| time(it).is_some());
        if !is_id(&self.id) {
            Some("its `id` is not twelve hexadecimal digits")
        } else if from_hexadecimal(&self.digest).is_none() {
            Some("its `digest` is not that of a key")
        } else if !is_decent_name(&self.principal) {
            Some("its `principal` is no name of 1 to 256 visible characters")
        } else if MAX_ROLES < self.roles.len() || !self.roles.iter().all(|it| is_decent_name(it)) {
            Some("its `roles` are not 256 names at most")
        } else if !is_time(&self.expires) || time(&self.created).is_none() {
            Some("its `created` or `expires` is no time as RFC 3339 has it")
        } else {
            None
        }
    }
}

/// What RFC 3339 says.
pub(crate) fn time(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// As RFC 3339 has it, to the second.
pub(crate) fn text(time: SystemTime) -> String {
    let second =
        Timestamp::try_from(time).and_then(|time| Timestamp::from_second(time.as_second()));
    second.unwrap_or(Timestamp::MAX).to_string()
}
