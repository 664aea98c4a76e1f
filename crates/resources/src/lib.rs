//! Resources that are neither skills nor of an application: files of directories, watched while they change; what is in
//! databases, and what HTTP services answer; and a search over all resources that a caller may read.
//!
//! ```
//! use mcp_server::ToolSource;
//! use resources::{Files, FilesOptions, FolderOptions};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! std::fs::write(directory.path().join("may.csv"), "day,sum\n")?;
//! let reports = FolderOptions {
//!     include: vec!["*.csv".to_owned()],
//!     ..FolderOptions::new(directory.path())
//! };
//! let options = FilesOptions::new(directory.path().join("kept.db"));
//! let files = Files::open([("reports".to_owned(), reports)].into(), options)?;
//! let offered = files.resources().ok_or("nothing is offered")?;
//! assert_eq!(offered.entries()[0].resource.uri, "files://reports/may.csv");
//! assert_eq!(offered.canonical("files://reports/../etc/passwd"), None);
//! # Ok(())
//! # }
//! ```
//!
//! No string of a client becomes a path: an address is names, and each name is opened in the directory that the one
//! before has led to, without following links. Directories are configured by operators, who also say what clients may
//! do with them; that they may is decided by the rules of the server, for each address.

mod addresses;
mod databases;
mod files;
mod news;
mod search;
mod services;
mod store;

pub use crate::databases::{
    DATABASE_SCHEME, DATABASES_COMPONENT, DatabaseError, DatabaseOptions, DatabasePlace, Databases,
    NamedQuery, UnmatchedPattern,
};
pub use crate::files::{
    COMPONENT, Files, FilesOptions, FolderError, FolderOptions, IdlePattern, OpenError, Overlap,
    OwnFiles, SCHEME,
};
pub use crate::search::{SEARCH_COMPONENT, Search, SearchError};
pub use crate::services::{
    Endpoint, SERVICE_SCHEME, SERVICES_COMPONENT, ServiceError, ServiceOptions, Services, Variable,
};
pub use crate::store::StoreError;

use adapter_tools::Arguments;
use mcp_protocol::model::ListResources;
use mcp_server::{ResourceEntry, UNHEARD};
use serde_json::Value;

/// The spelling in which a rule over resources can match addresses of files, databases and services; `None` where it is
/// so spelt, or is about none of them.
#[must_use]
pub fn spelling_for_rules(pattern: &str) -> Option<String> {
    let schemes = [SCHEME, DATABASE_SCHEME, SERVICE_SCHEME];
    let scheme = schemes.into_iter().find(|it| pattern.starts_with(it))?;
    let spelt = addresses::spelt_for_rules(scheme, pattern);
    (spelt != pattern).then_some(spelt)
}

/// Arguments of a tool in which integers are written as such: `1.0` is the integer 1 for JSON Schema.
fn with_integers(arguments: &Arguments) -> Value {
    let members = arguments.as_object().iter().map(|(name, value)| {
        let integer = value.as_f64().filter(|_| value.is_f64());
        let integer = integer.and_then(|it| it.to_string().parse::<i64>().ok());
        let value = integer.map_or_else(|| value.clone(), Value::from);
        (name.clone(), value)
    });
    Value::Object(members.collect())
}

/// Indices of entries that a filter lets through: by category, and by an address or the beginning of one with `*`. None
/// of them has tags.
fn matching(entries: &[ResourceEntry], filter: &ListResources) -> Vec<usize> {
    if filter.tag.is_some() {
        return Vec::new();
    }
    let fits = |uri: &str| match filter.uri.as_deref() {
        None => true,
        Some(pattern) => match pattern.strip_suffix('*') {
            Some(beginning) => uri.starts_with(beginning),
            None => uri == pattern,
        },
    };
    let category = filter.category.as_deref();
    let entries = entries.iter().enumerate();
    entries
        .filter(|(_, it)| category.is_none_or(|category| it.category == category))
        .filter(|(_, it)| fits(&it.resource.uri))
        .map(|(index, _)| index)
        .collect()
}

/// Answer to one who wants to listen to `asked`, whose one spelling is `address`.
fn heard(is_watched: bool, address: &str, asked: &str) -> Result<(), String> {
    match (is_watched, address == asked) {
        // Changes are told by the one address of a thing.
        (_, false) => Err(format!(
            "this address is spelt {address}; subscribe to that"
        )),
        (true, true) => Ok(()),
        (false, true) => Err(UNHEARD.to_owned()),
    }
}
