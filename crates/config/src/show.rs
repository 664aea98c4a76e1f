//! Every setting with the layer that decided it.

pub(crate) mod editor;
pub(crate) mod reference;
pub(crate) mod summary;

use serde_json::Value;

use crate::Loaded;
use crate::layer::{Origins, child};
use crate::problem::{Origin, printable};

/// A setting in force.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Setting {
    /// The key, without the leading `mcp_server.`.
    pub key: String,
    /// The value in force; paths are absolute.
    pub value: Value,
    /// Origin of the value.
    pub origin: Origin,
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: {}  # {}",
            self.key,
            self.value,
            printable(&self.origin.to_string())
        )
    }
}

impl Loaded {
    /// All settings in force, in the order of their keys.
    pub fn settings(&self) -> Vec<Setting> {
        let value = serde_json::to_value(&self.config).expect("a configuration is plain data");
        let mut settings = Vec::new();
        collect(value, "", &self.origins, &mut settings);
        settings.sort_by(|a, b| a.key.cmp(&b.key));
        settings
    }

    /// Returns true if the file itself holds a secret, and not only a reference to one.
    pub fn has_written_secrets(&self) -> bool {
        let settings = self.settings();
        let mut written = settings
            .iter()
            .filter(|it| matches!(it.origin, Origin::File(_)));
        written.any(|it| it.value == crate::sections::secret::HIDDEN)
    }
}

fn collect(value: Value, path: &str, origins: &Origins, settings: &mut Vec<Setting>) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (name, value) in entries {
                collect(value, &child(path, &name), origins, settings);
            }
        }
        value => {
            let origin = origins.get(path).cloned().unwrap_or(Origin::Default);
            settings.push(Setting {
                key: path.to_owned(),
                value,
                origin,
            });
        }
    }
}
