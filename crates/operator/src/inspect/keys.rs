//! API keys: made, listed, taken back.

use std::time::SystemTime;

use identity::{KeyFile, KeyFileError, KeyRecord, MadeKey};
use serde_json::{Value, json};

use super::sheet::{Row, Sheet, row};
use crate::request::{ReportFormat, RowsFormat};
use server::Failure;

const COLUMNS: [&str; 9] = [
    "id",
    "principal",
    "roles",
    "state",
    "created",
    "expires",
    "revoked",
    "replaces",
    "label",
];
const SHOWN: [(&str, &str); 7] = [
    ("id", "ID"),
    ("principal", "PRINCIPAL"),
    ("roles", "ROLES"),
    ("state", "STATE"),
    ("created", "CREATED"),
    ("expires", "EXPIRES"),
    ("label", "LABEL"),
];

/// `keys list`. Without a file there are none.
pub(crate) fn list_keys(file: &KeyFile, format: RowsFormat) -> Result<String, Failure> {
    let keys = match file.list() {
        Err(KeyFileError::Missing(_)) => Vec::new(),
        keys => keys?,
    };
    let now = SystemTime::now();
    let sheet = Sheet {
        columns: &COLUMNS,
        shown: &SHOWN,
        rows: keys.iter().map(|key| row(key, now)).collect(),
    };
    Ok(sheet.print(format)?)
}

/// A key that was just made, as it is printed: by itself for people and scripts alike, so that it
/// can be piped to where it belongs.
pub(crate) fn made_key(made: &MadeKey, format: ReportFormat) -> String {
    match format {
        ReportFormat::Text => made.key.reveal().to_owned(),
        ReportFormat::Json => {
            let row = row(&made.record, SystemTime::now());
            let mut object = super::sheet::object(&COLUMNS, &row);
            object.insert("key", json!(made.key.reveal()).into());
            super::sheet::pretty(&object)
        }
    }
}

fn row(key: &KeyRecord, now: SystemTime) -> Row {
    let text = |text: &Option<String>| text.as_ref().map_or(Value::Null, |text| json!(text));
    row![
        json!(key.id),
        json!(key.principal),
        json!(key.roles.join(" ")),
        json!(key.state(now).as_str()),
        json!(key.created),
        text(&key.expires),
        text(&key.revoked),
        text(&key.replaces),
        text(&key.label),
    ]
}
