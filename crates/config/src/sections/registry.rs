//! The catalogue of published servers.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, origin_near};
use crate::problem::Problem;
use crate::sections::Config;

/// The catalogue of published servers that operators have taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Registry {
    /// The directory of its entries, and of bundles that were unpacked. Without one, `registry` beside the ledger.
    #[schemars(extend("format" = "path"))]
    pub directory: Option<PathBuf>,
    /// Serve the catalogue over HTTP, for reading, at the paths of a registry (`/v0.1/servers`), to those who may call
    /// the server: it asks for the same credentials.
    pub serve: bool,
    /// The registry in which `registry import NAME` looks names up.
    pub url: String,
}

impl Default for Registry {
    fn default() -> Self {
        Self {
            directory: None,
            serve: false,
            url: "https://registry.modelcontextprotocol.io".to_owned(),
        }
    }
}

impl Config {
    /// The directory of the catalogue.
    #[must_use]
    pub fn registry_directory(&self) -> PathBuf {
        let directory = self.registry.directory.clone();
        directory.unwrap_or_else(|| self.ledger.path.with_file_name("registry"))
    }
}

pub(crate) fn check(registry: &Registry, origins: &Origins, problems: &mut Vec<Problem>) {
    let key = "registry.url";
    if let Err(why) = http_client::parse_url(&registry.url, &["https", "http"]) {
        let message = format!("`{key}` cannot be used: {why}");
        let hint = "write an address such as https://registry.example.com";
        problems.push(
            Problem::error(origin_near(origins, key), message)
                .key(key)
                .hint(hint),
        );
    }
}
