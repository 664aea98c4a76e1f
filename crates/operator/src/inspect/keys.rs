//! API keys: made, listed, taken back.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

use identity::{KeyFile, KeyFileError, KeyRecord, MadeKey};
use serde_json::{Value, json};

use super::sheet::{Row, Sheet, row};
use crate::request::{ReportFormat, RowsFormat};
use server::Failure;

/// Length of time for which a key is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime(pub Duration);

/// Text that names no duration.
#[derive(Debug, thiserror::Error)]
#[error("write how long: 90d, 12h, 30m or 45s")]
pub struct NoLifetime;

impl FromStr for Lifetime {
    type Err = NoLifetime;

    fn from_str(text: &str) -> Result<Self, NoLifetime> {
        let (number, seconds) = [("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400)]
            .into_iter()
            .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)))
            .ok_or(NoLifetime)?;
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(NoLifetime);
        }
        let number: u64 = number.parse().map_err(|_| NoLifetime)?;
        let seconds = number.checked_mul(seconds).ok_or(NoLifetime)?;
        Ok(Self(Duration::from_secs(seconds)))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_are_read() {
        for (text, seconds) in [("0s", 0), ("45s", 45), ("30m", 1_800), ("90d", 7_776_000)] {
            assert_eq!(
                text.parse::<Lifetime>().unwrap().0.as_secs(),
                seconds,
                "{text}"
            );
        }
        for wrong in [
            "",
            "d",
            "90",
            "-1d",
            "1.5h",
            "1w",
            "+1d",
            "99999999999999999999d",
            "99999999999999999d",
        ] {
            assert!(wrong.parse::<Lifetime>().is_err(), "{wrong}");
        }
    }
}
