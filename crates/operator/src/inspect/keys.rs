//! API keys: made, listed, taken back.

use std::time::SystemTime;

use identity::{KeyFile, KeyFileError, KeyRecord, MadeKey};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::rows::object;
use super::sheet::{Cell, Row, Sheet};
use crate::request::{ReportFormat, RowsFormat};
use server::Failure;

object! {
    /// A key of a client; the key itself is nowhere.
    KeyRow {
        /// Id of the key.
        id: String,
        /// Client that it belongs to.
        principal: String,
        /// Roles that it gives, with spaces between them.
        roles: String,
        /// `active`, `expired` or `revoked`.
        state: String,
        /// Time at which it was made, RFC 3339.
        created: String,
        /// Time at which it expires.
        expires: Option<String>,
        /// Time at which it was revoked.
        revoked: Option<String>,
        /// Key in whose place it was made.
        replaces: Option<String>,
        /// Label to remember it by.
        label: Option<String>,
    }
}

const SHOWN: [(&str, &str); 7] = [
    ("id", "ID"),
    ("principal", "PRINCIPAL"),
    ("roles", "ROLES"),
    ("state", "STATE"),
    ("created", "CREATED"),
    ("expires", "EXPIRES"),
    ("label", "LABEL"),
];

/// `keys list`.
pub(crate) fn list_keys(file: &KeyFile, format: RowsFormat) -> Result<String, Failure> {
    let sheet = Sheet {
        columns: KeyRow::COLUMNS,
        shown: &SHOWN,
        rows: keys(file)?.into_iter().map(KeyRow::row).collect(),
    };
    Ok(sheet.print(format)?)
}

/// The keys of a file, the oldest first. Without a file there are none.
///
/// # Errors
///
/// When the file cannot be read.
pub fn keys(file: &KeyFile) -> Result<Vec<KeyRow>, Failure> {
    let keys = match file.list() {
        Err(KeyFileError::Missing(_)) => Vec::new(),
        keys => keys?,
    };
    let now = SystemTime::now();
    Ok(keys.iter().map(|key| KeyRow::of(key, now)).collect())
}

/// A key that was just made, as it is printed: by itself for people and scripts alike, so that it
/// can be piped to where it belongs.
pub(crate) fn made_key(made: &MadeKey, format: ReportFormat) -> String {
    match format {
        ReportFormat::Text => made.key.reveal().to_owned(),
        ReportFormat::Json => {
            let row = KeyRow::of(&made.record, SystemTime::now()).row();
            let mut object = super::sheet::object(KeyRow::COLUMNS, &row);
            object.insert("key", json!(made.key.reveal()).into());
            super::sheet::pretty(&object)
        }
    }
}

impl KeyRow {
    /// Row of a key as it is at `now`.
    #[must_use]
    pub fn of(key: &KeyRecord, now: SystemTime) -> Self {
        Self {
            id: key.id.clone(),
            principal: key.principal.clone(),
            roles: key.roles.join(" "),
            state: key.state(now).as_str().to_owned(),
            created: key.created.clone(),
            expires: key.expires.clone(),
            revoked: key.revoked.clone(),
            replaces: key.replaces.clone(),
            label: key.label.clone(),
        }
    }
}
