use crate::{
    api_key::{from_hexadecimal, is_id},
    identity::{MAX_ROLES, is_decent_name},
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::SystemTime;

/// Stored record of a key: everything but the key itself. Everything but the key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// Id of the key.
    pub id: String,
    /// SHA-256 of the whole key, in hexadecimal.
    pub(crate) digest: String,
    /// Principal the key belongs to.
    pub principal: String,
    /// The roles it gives.
    #[serde(default)]
    pub roles: Vec<String>,
    /// Label its owner was given to remember it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Time of creation: RFC 3339, UTC, as all times here.
    pub created: String,
    /// Time of expiry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Time of revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<String>,
    /// The key in whose place it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Valid.
    Active,
    /// Valid until it expired.
    Expired,
    /// Revoked.
    Revoked,
}

impl KeyState {
    /// Name of the state.
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
    /// State at `now`.
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

    /// Description of what is wrong with the record, if anything.
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

/// Parses a time in RFC 3339.
pub(crate) fn time(text: &str) -> Option<SystemTime> {
    text.parse::<Timestamp>().ok().map(SystemTime::from)
}

/// As RFC 3339 has it, to the second.
pub(crate) fn text(time: SystemTime) -> String {
    let second =
        Timestamp::try_from(time).and_then(|time| Timestamp::from_second(time.as_second()));
    second.unwrap_or(Timestamp::MAX).to_string()
}
