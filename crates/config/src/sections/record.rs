//! Settings of the ledger and of redaction.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sections::secret::Secret;

/// The record of every call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ledger {
    /// The database file; it and its directory are made if they are missing.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// A PostgreSQL database in the place of the file, `postgres://user:password@host/database`, for
    /// servers that share one ledger and one set of quotas. `${NAME}` refers to the environment. A connection
    /// to another machine is encrypted unless the address ends in `?sslmode=disable`.
    pub url: Option<Secret>,
    /// Loss of entries that a power failure may cause.
    pub durability: Durability,
    /// Seconds that a call waits for the ledger before it is refused.
    #[schemars(range(min = 1, max = 600))]
    pub max_wait_seconds: u64,
    /// Let tools run that only look, when the ledger cannot be written.
    pub read_only_exempt: bool,
    /// Places in the ledger that are vouched for.
    pub checkpoint: Checkpoint,
    /// Files that the oldest entries are moved to.
    pub archive: Archive,
    /// Another machine or volume that is told each checkpoint.
    pub witness: Witness,
    /// Authority that stamps each checkpoint with its time.
    pub timestamps: Timestamps,
    /// Verification while the server serves.
    pub verification: Verification,
}

impl Ledger {
    /// Directory of the archive's segments.
    pub fn archive_directory(&self) -> PathBuf {
        self.archive.directory.clone().unwrap_or_else(|| {
            let mut name = self.path.as_os_str().to_owned();
            name.push("-archive");
            name.into()
        })
    }

    /// Path of the file that time-stamps are kept in.
    pub fn timestamps_file(&self) -> PathBuf {
        self.timestamps.file.clone().unwrap_or_else(|| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(".timestamps");
            name.into()
        })
    }

    /// Path of the file that checkpoints are written to besides the ledger itself.
    pub fn checkpoints_file(&self) -> PathBuf {
        self.checkpoint.file.clone().unwrap_or_else(|| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(".checkpoints");
            name.into()
        })
    }
}

impl Default for Ledger {
    fn default() -> Self {
        Self {
            path: "./data/ledger.db".into(),
            url: None,
            durability: Durability::default(),
            max_wait_seconds: 10,
            read_only_exempt: false,
            checkpoint: Checkpoint::default(),
            archive: Archive::default(),
            witness: Witness::default(),
            timestamps: Timestamps::default(),
            verification: Verification::default(),
        }
    }
}

/// Witnesses elsewhere that are told each checkpoint, and asked for the last one before a ledger is gone on with: another
/// machine, a file on another volume, or both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Witness {
    /// The address that each checkpoint is posted to as JSON, and that answers GET with the last one, or with 204 or
    /// 404 if it has none: `https://…`. Plain `http://` is for addresses on this machine.
    pub url: Option<Secret>,
    /// Sent with each request, as `Authorization: Bearer …`.
    pub token: Option<Secret>,
    /// A file on another volume that each checkpoint is added to as a line. Its directory must be there.
    #[schemars(extend("format" = "path"))]
    pub file: Option<PathBuf>,
    /// Refuse to start while a witness cannot be asked. Otherwise that is logged.
    pub required: bool,
}

impl Default for Witness {
    fn default() -> Self {
        Self {
            url: None,
            token: None,
            file: None,
            required: true,
        }
    }
}

/// Time-stamping authority (RFC 3161) that is asked to stamp each checkpoint. The tokens are kept in a file, and verified
/// offline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Timestamps {
    /// The address that requests are posted to: `https://…`, or `http://…`, since tokens are signed.
    pub url: Option<Secret>,
    /// The certificates in PEM of authorities that are believed, one of which the certificate of the stamps must lead to.
    #[schemars(extend("format" = "path"))]
    pub certificates: Option<PathBuf>,
    /// The file of the tokens. Without one, beside the ledger: its path with `.timestamps` at the end.
    #[schemars(extend("format" = "path"))]
    pub file: Option<PathBuf>,
}

/// Verification of the ledger and its archives while the server serves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Verification {
    /// Seconds from one verification of all entries to the next; a day is 86400. New entries are looked at every ten
    /// seconds, or as often. Without it nothing is verified while the server serves.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub every_seconds: Option<u64>,
    /// The most of one core's time that it takes, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub cpu_percent: u32,
    /// Further public keys that may have signed checkpoints and segments, besides that of `checkpoint.key`: earlier
    /// ones, and those of other servers with the same ledger.
    #[schemars(extend("x-items" = "path"))]
    pub keys: Vec<PathBuf>,
}

impl Default for Verification {
    fn default() -> Self {
        Self {
            every_seconds: None,
            cpu_percent: 5,
            keys: Vec::new(),
        }
    }
}

/// Files that the oldest entries of a ledger are moved to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Archive {
    /// Age in days at which the server moves entries by itself, a minute after its start and then once an hour.
    /// Without it only `ledger archive` does.
    #[schemars(range(min = 2, max = 36_500))]
    pub after_days: Option<u64>,
    /// Age in days at which whole segments are deleted, unless a legal hold keeps them. Without it nothing is ever
    /// deleted. It must be more than `after_days`.
    #[schemars(range(min = 62, max = 36_500))]
    pub delete_after_days: Option<u64>,
    /// The directory of the segments. Without one, beside the ledger: its path with `-archive` at the end. With `url` it
    /// must be named, and be one directory for all servers of that ledger.
    #[schemars(extend("format" = "path"))]
    pub directory: Option<PathBuf>,
    /// The most entries of a segment.
    #[schemars(range(min = 1_000, max = 100_000_000))]
    pub segment_entries: u64,
    /// Recipients of age that segments are encrypted for, `age1…`: whoever has the identity of one of them can read
    /// them. Without any they are not encrypted.
    pub recipients: Vec<String>,
    /// The identity that opens segments which were encrypted, `AGE-SECRET-KEY-1…`, or several, one a line: write
    /// `${vault:NAME}` or `${file:PATH}`. Archiving needs none.
    pub identity: Option<Secret>,
}

impl Default for Archive {
    fn default() -> Self {
        Self {
            after_days: None,
            delete_after_days: None,
            directory: None,
            segment_entries: 250_000,
            recipients: Vec::new(),
            identity: None,
        }
    }
}

/// Places in the ledger that are vouched for, so that a ledger cut short is found out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Checkpoint {
    /// After how many entries there is one.
    #[schemars(range(min = 1, max = 1_000_000_000))]
    pub entries: u64,
    /// After how many minutes there is one, if there are entries since the last.
    #[schemars(range(min = 1, max = 525_600))]
    pub minutes: u64,
    /// The private key that signs them, as `ledger keygen` makes it. Without one, they are not
    /// signed.
    #[schemars(extend("format" = "path"))]
    pub key: Option<PathBuf>,
    /// The file they are written to as well, best on another disk. Without one, beside the ledger.
    #[schemars(extend("format" = "path"))]
    pub file: Option<PathBuf>,
}

impl Default for Checkpoint {
    fn default() -> Self {
        Self {
            entries: 10_000,
            minutes: 60,
            key: None,
            file: None,
        }
    }
}

/// Loss of ledger entries that a power failure may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// No entry that was acknowledged.
    #[default]
    Strict,
    /// The last moments.
    Relaxed,
}

/// Values that are replaced before anything is recorded or logged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Redaction {
    /// Names of members whose values are redacted wherever they stand. Case and separators do not
    /// count; `*ssn` is `ssn` and every name that ends with it, such as `customer_ssn`.
    pub keys: Vec<String>,
    /// Redact the values of `password`, `token`, `secret` and the like, too.
    pub built_in_keys: bool,
    /// JSON Pointers to what is redacted in the arguments and results of tools, by patterns over
    /// tool names; `*` in a pointer is any element.
    #[schemars(extend(
        "x-patterns" = true,
        "additionalProperties" = {"type": "array", "items": {"type": "string"}, "x-items": "pointer"}
    ))]
    pub pointers: BTreeMap<String, Vec<String>>,
    /// Detectors that recognise secrets by their shape.
    pub detectors: Detectors,
}

impl Default for Redaction {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            built_in_keys: true,
            pointers: BTreeMap::new(),
            detectors: Detectors::default(),
        }
    }
}

/// Detectors that recognise secrets by their shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Detectors {
    /// Numbers of payment cards.
    pub cards: bool,
    /// Text after `Bearer` or `Basic`.
    pub bearer_tokens: bool,
    /// JSON web tokens.
    pub json_web_tokens: bool,
    /// Private keys.
    pub private_keys: bool,
    /// Keys of well-known services.
    pub api_keys: bool,
    /// Passwords in addresses, `scheme://user:password@host`.
    pub connection_strings: bool,
    /// Values after a secret's name in running text, `password=…`.
    pub assignments: bool,
}

impl Redaction {
    /// The same for the crate that does it, with capabilities in the place of tools.
    pub fn spec(&self) -> redaction::Spec {
        let on = &self.detectors;
        let pointers = self.pointers.iter();
        redaction::Spec {
            built_in_keys: self.built_in_keys,
            keys: self.keys.clone(),
            pointers: pointers
                .map(|(tool, pointers)| (mcp_server::tool_capability(tool), pointers.clone()))
                .collect(),
            detectors: redaction::Detectors {
                cards: on.cards,
                bearer_tokens: on.bearer_tokens,
                json_web_tokens: on.json_web_tokens,
                private_keys: on.private_keys,
                api_keys: on.api_keys,
                connection_strings: on.connection_strings,
                assignments: on.assignments,
            },
        }
    }
}

impl Default for Detectors {
    fn default() -> Self {
        Self {
            cards: true,
            bearer_tokens: true,
            json_web_tokens: true,
            private_keys: true,
            api_keys: true,
            connection_strings: true,
            assignments: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_file_are_those_of_redaction() {
        assert_eq!(Redaction::default().spec(), redaction::Spec::default());
    }
}
