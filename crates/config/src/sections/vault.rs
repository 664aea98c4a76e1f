//! The vault, and other sources of secrets.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::environment::vault_place::{KeySource, VaultPlace};
use crate::environment::{self, Environment};
use crate::sections::Config;

/// Variable with the key of the vault, where the configuration names no other source.
pub(crate) const KEY_VARIABLE: &str = "OWLCLAW_VAULT_KEY";
/// Name of the vault in the directory `.owlclaw` of the user.
const FILE: &str = "mcp_vault.encrypted";

/// The encrypted file with the secrets that `${vault:NAME}` refers to, and the source of its key. Of the sources, one is
/// used: none that fails is replaced by another.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Vault {
    /// The file. Without one, `~/.owlclaw/mcp_vault.encrypted`.
    #[schemars(extend("format" = "path"))]
    pub path: Option<PathBuf>,
    /// The file with the key, which its owner alone can read.
    #[schemars(extend("format" = "path"))]
    pub key_file: Option<PathBuf>,
    /// The environment variable with the key. Without any source, `OWLCLAW_VAULT_KEY` if it is set, and otherwise the
    /// file beside the vault with `.key` at the end of its name.
    #[schemars(extend("format" = "token"))]
    pub key_variable: Option<String>,
    /// The program that prints the key, and its arguments; no shell is asked.
    #[schemars(extend("x-items" = "word"))]
    pub key_command: Vec<String>,
    /// Run the programs of references such as `${cmd:PROGRAM ARGUMENT}`.
    pub allow_commands: bool,
}

impl Vault {
    /// The sources of the key that are configured.
    pub(crate) fn sources(&self) -> Vec<&'static str> {
        let all = [
            ("key_file", self.key_file.is_some()),
            ("key_variable", self.key_variable.is_some()),
            ("key_command", !self.key_command.is_empty()),
        ];
        let set = all.into_iter().filter(|(_, is_set)| *is_set);
        set.map(|(key, _)| key).collect()
    }

    /// Makes its paths absolute.
    pub(crate) fn begin_at(&mut self, base: &Path) {
        for path in [&mut self.path, &mut self.key_file].into_iter().flatten() {
            *path = environment::absolute(base, &*path);
        }
    }

    /// The vault, and the source of its key.
    pub(crate) fn place(&self, environment: &Environment, base: &Path) -> VaultPlace {
        let home = environment.home();
        let path = match (&self.path, home) {
            (Some(path), _) => path.clone(),
            (None, Some(home)) => home.join(".owlclaw").join(FILE),
            (None, None) => base.join(FILE),
        };
        let value = |name: &str| {
            let value = environment.get(name)?.to_str()?;
            (!value.is_empty()).then(|| vault::Secret::new(value))
        };
        let variable = |name: &str| KeySource::Variable(name.to_owned(), value(name));
        let key = match (&self.key_file, &self.key_variable) {
            (Some(file), _) => KeySource::File(file.clone()),
            (None, Some(name)) => variable(name),
            (None, None) if !self.key_command.is_empty() => {
                KeySource::Command(self.key_command.clone())
            }
            (None, None) if value(KEY_VARIABLE).is_some() => variable(KEY_VARIABLE),
            (None, None) => {
                let mut name = path.as_os_str().to_owned();
                name.push(".key");
                KeySource::File(name.into())
            }
        };
        VaultPlace { path, key }
    }
}

impl Config {
    /// The vault, and the source of its key.
    pub fn vault_place(&self) -> VaultPlace {
        self.vault.place(&self.environment, &self.resources.base)
    }
}
