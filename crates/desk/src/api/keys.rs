//! Keys of clients: listed, made and revoked. The keys themselves are never told but once.

use std::time::SystemTime;

use http::StatusCode;
use identity::{KeyFile, KeyFileError, NewKey};
use operator::look::{self, KeyRow};
use operator::request::Lifetime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::Failure;

use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Keys of clients.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Keys {
    /// True if the server takes keys; otherwise there can be none.
    takes_keys: bool,
    /// Keys, the oldest first.
    keys: Vec<KeyRow>,
}

/// A key to make.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKeyFor {
    /// Client that it is for.
    principal: String,
    /// Roles that it gives.
    #[serde(default)]
    roles: Vec<String>,
    /// Time for which it is good, such as `90d`; without it, until it is revoked.
    #[serde(default)]
    expires: Option<String>,
    /// Label to remember it by.
    #[serde(default)]
    label: Option<String>,
}

/// A key that was just made.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Made {
    /// The key, which nothing else has from now on.
    key: String,
    /// Record of the key.
    record: KeyRow,
}

/// A key that was revoked.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Revoked {
    /// Record of the key.
    record: KeyRow,
}

fn file(call: &Call<'_>) -> Option<KeyFile> {
    let keys = call.desk.server.config().identity.api_keys.as_ref();
    keys.map(|it| KeyFile::at(&it.file))
}

fn existing(call: &Call<'_>) -> Result<KeyFile, Problem> {
    file(call).ok_or_else(|| {
        let why = "the server takes no keys: add `identity: {api_keys: {}}` to its configuration";
        Problem::new(StatusCode::CONFLICT, why)
    })
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let Some(file) = file(&call) else {
        let (takes_keys, keys) = (false, Vec::new());
        return Ok(Reply::json(&Keys { takes_keys, keys }));
    };
    let keys = call.desk.block(move || look::keys(&file)).await?;
    let takes_keys = true;
    Ok(Reply::json(&Keys { takes_keys, keys }))
}

/// Changes the file. What the person has got wrong is told; the rest is in the log.
async fn change<T: Send + 'static>(
    call: &Call<'_>,
    change: impl FnOnce() -> Result<T, KeyFileError> + Send + 'static,
) -> Result<T, Problem> {
    let changed = call.desk.block(move || Ok::<_, Failure>(change())).await?;
    changed.map_err(|error| match error {
        KeyFileError::Unknown(_) | KeyFileError::Missing(_) => Problem::missing(error.to_string()),
        KeyFileError::Over { .. } => Problem::new(StatusCode::CONFLICT, error.to_string()),
        KeyFileError::NotAKey(_) => Problem::bad(error.to_string()),
        other => Problem::unavailable(&other),
    })
}

pub(crate) async fn create(call: Call<'_>) -> Result<Reply, Problem> {
    let wanted: NewKeyFor = call.body()?;
    let file = existing(&call)?;
    let lifetime = super::read::<Lifetime>("expires", wanted.expires.as_ref())?;
    call.desk
        .record(call.who(), "key_create", &wanted.principal)
        .await?;
    let new = NewKey {
        principal: wanted.principal,
        roles: wanted.roles,
        lifetime: lifetime.map(|it| it.0),
        label: wanted.label,
    };
    let now = SystemTime::now();
    let made = change(&call, move || file.create(new, now)).await?;
    let record = KeyRow::of(&made.record, now);
    let key = made.key.reveal().to_owned();
    Ok(Reply::json_with_secret(&Made { key, record }))
}

pub(crate) async fn revoke(call: Call<'_>) -> Result<Reply, Problem> {
    let file = existing(&call)?;
    call.desk
        .record(call.who(), "key_revoke", call.name())
        .await?;
    let (id, now) = (call.name().to_owned(), SystemTime::now());
    let record = change(&call, move || file.revoke(&id, now)).await?;
    let record = KeyRow::of(&record, now);
    Ok(Reply::json(&Revoked { record }))
}
