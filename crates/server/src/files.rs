//! Directories of files, databases and the search over resources, as the configuration names them.

use config::Config;
use resources::{Databases, Files, Search};

use crate::Failure;

/// Opens the directories whose files are resources, if any are configured.
///
/// # Errors
///
/// When one of them cannot be opened: what is in it would silently be missing.
pub(super) fn open(config: &Config) -> Result<Option<Files>, Failure> {
    let resources = &config.resources;
    if resources.files.is_empty() {
        return Ok(None);
    }
    let roots = resources.files.iter();
    let roots = roots.map(|(name, root)| (name.clone(), root.options()));
    let files = Files::open(
        roots.collect(),
        &config.resources_path(),
        resources.cache_ttl_seconds * 1_000,
    );
    files
        .map(Some)
        .map_err(|error| crate::with_causes(&error).into())
}

/// Opens the index of searches, if they are to be offered.
///
/// # Errors
///
/// When its file cannot be used.
pub(super) fn open_search(
    config: &Config,
    files: Option<&Files>,
) -> Result<Option<Search>, Failure> {
    if !config.resources.search.enabled {
        return Ok(None);
    }
    let search = Search::open(&config.search_path(), files);
    search
        .map(Some)
        .map_err(|error| crate::with_causes(&error).into())
}

/// Opens the databases that are resources, if any are configured.
///
/// # Errors
///
/// When one of them cannot be read, or a query cannot be prepared.
pub(super) fn open_databases(config: &Config) -> Result<Option<Databases>, Failure> {
    let databases = &config.resources.databases;
    if databases.is_empty() {
        return Ok(None);
    }
    let databases = databases.iter();
    let databases = databases.map(|(name, database)| (name.clone(), database.options()));
    let opened = Databases::open(databases.collect());
    opened
        .map(Some)
        .map_err(|error| crate::with_causes(&error).into())
}
