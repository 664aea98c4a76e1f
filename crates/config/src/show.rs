//! Every setting with the layer that decided it.

pub(crate) mod editor;
pub(crate) mod reference;
pub(crate) mod summary;

use redaction::{SecretPart, secret_parts, secret_parts_of_arguments, with_parts};
use serde_json::Value;

use crate::layer::child;
use crate::problem::{Origin, printable};
use crate::reading::layers::Rank;
use crate::sections::secret::HIDDEN;
use crate::{Loaded, Reference};

/// A setting in force.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Setting {
    /// The key, without the leading `mcp_server.`.
    pub key: String,
    /// The value in force; paths are absolute.
    pub value: Value,
    /// Origin of the value.
    pub origin: Origin,
    /// Layer that it belongs to: `default`, `system`, `domain`, `session`, `environment` or `command line`.
    pub layer: &'static str,
    /// Values that it has taken the place of, those of the nearest layer first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<Layered>,
    /// The references in it, with the sources of their values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<Reference>,
}

/// A place that sets a value, with its layer.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Layered {
    /// Layer, as in [`Setting::layer`].
    pub layer: &'static str,
    /// Place within the layer.
    pub origin: Origin,
}

/// `domain shop.yaml:4:5`; a default has no place.
impl std::fmt::Display for Layered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.origin {
            Origin::Default => f.write_str(self.layer),
            Origin::File(_) => write!(f, "{} {}", self.layer, printable(&self.origin.to_string())),
            Origin::Environment(name) => write!(f, "environment {}", printable(name)),
            Origin::CommandLine(flag) => write!(f, "command line {}", printable(flag)),
        }
    }
}

impl Setting {
    /// Place that has set the value, with its layer.
    pub fn set_by(&self) -> Layered {
        Layered {
            layer: self.layer,
            origin: self.origin.clone(),
        }
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let origin = printable(&self.origin.to_string());
        write!(f, "{}: {}  # {origin}", self.key, self.value)?;
        let mut separator = " (";
        for it in &self.references {
            write!(f, "{separator}{} from {}", it.reference, it.source)?;
            separator = ", ";
        }
        f.write_str(if self.references.is_empty() { "" } else { ")" })
    }
}

impl Loaded {
    /// All settings in force, in the order of their keys.
    pub fn settings(&self) -> Vec<Setting> {
        let value = serde_json::to_value(&self.config).expect("a configuration is plain data");
        let mut settings = Vec::new();
        collect(value, "", self, &mut settings);
        settings.sort_by(|a, b| a.key.cmp(&b.key));
        for (key, reference) in &self.references {
            // An element of a list is shown with the list.
            let key = key.split('[').next().unwrap_or(key);
            if let Ok(at) = settings.binary_search_by(|it| it.key.as_str().cmp(key)) {
                settings[at].references.push(reference.clone());
            }
        }
        settings
    }

    /// The settings in force at `key` and below it.
    pub fn settings_of(&self, key: &str) -> Vec<Setting> {
        let mut settings = self.settings();
        settings.retain(|it| {
            let rest = it.key.strip_prefix(key);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        });
        settings
    }

    /// Name of the layer that a place belongs to.
    fn layer_of(&self, origin: &Origin) -> &'static str {
        match origin {
            Origin::Default => "default",
            Origin::File(at) => self
                .ranks
                .get(&at.file)
                .copied()
                .unwrap_or(Rank::System)
                .name(),
            Origin::Environment(_) => "environment",
            Origin::CommandLine(_) => "command line",
        }
    }

    /// Returns true if the file itself holds a secret, and not only a reference to one.
    pub fn has_written_secrets(&self) -> bool {
        let settings = self.settings();
        let mut written = settings
            .iter()
            .filter(|it| matches!(it.origin, Origin::File(_)));
        written.any(|it| it.value.to_string().contains(HIDDEN))
    }
}

/// The value without the secrets that are written out in it, as far as they can be told: in variables, headers, arguments
/// and addresses of upstreams and commands.
fn without_secrets(path: &str, value: Value) -> Value {
    let is_of_program = path.starts_with("upstreams.") || path.starts_with("commands.");
    let (_, last) = path.rsplit_once('.').unwrap_or_default();
    let named = [".env.", ".headers."]
        .iter()
        .find_map(|it| path.rsplit_once(it));
    match value {
        Value::String(text) => match named {
            Some((_, name)) => shown(&text, &secret_parts(name, &text)).into(),
            None if is_of_program && last == "url" => shown(&text, &secret_parts("", &text)).into(),
            None => text.into(),
        },
        Value::Array(words) if is_of_program && matches!(last, "args" | "command") => {
            let texts = words
                .iter()
                .map(|it| it.as_str().unwrap_or_default().to_owned());
            let parts = secret_parts_of_arguments(&texts.collect::<Vec<_>>());
            let words = words
                .into_iter()
                .zip(parts)
                .map(|(word, parts)| match word {
                    Value::String(text) => shown(&text, &parts).into(),
                    word => word,
                });
            words.collect()
        }
        value => value,
    }
}

fn shown(text: &str, secrets: &[SecretPart]) -> String {
    with_parts(text, secrets, |_| HIDDEN.to_owned())
}

fn collect(value: Value, path: &str, loaded: &Loaded, settings: &mut Vec<Setting>) {
    match value {
        Value::Object(entries) if !entries.is_empty() => {
            for (name, value) in entries {
                collect(value, &child(path, &name), loaded, settings);
            }
        }
        value => {
            let origin = loaded.origins.get(path).cloned().unwrap_or(Origin::Default);
            let overridden = loaded.overridden.get(path).into_iter().flatten();
            let overrides = overridden.rev().map(|origin| Layered {
                layer: loaded.layer_of(origin),
                origin: origin.clone(),
            });
            let (layer, overrides) = (loaded.layer_of(&origin), overrides.collect());
            let value = without_secrets(path, value);
            settings.push(Setting {
                key: path.to_owned(),
                value,
                origin,
                layer,
                overrides,
                references: Vec::new(),
            });
        }
    }
}
