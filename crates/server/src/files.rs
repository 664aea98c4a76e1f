//! Directories of files, databases, services and the search over resources, as the configuration names them.

use std::collections::BTreeMap;
use std::path::Path;

use config::Config;
use http_client::Client;
use resources::{Databases, Files, FilesOptions, Search, Services};

use crate::{Failure, services, upstreams};

/// Opens the directories whose files are resources, if any are configured. The skills may be in the directory that an
/// application has `mounted`.
///
/// # Errors
///
/// When one of them cannot be opened: what is in it would silently be missing.
pub(super) fn open(config: &Config, mounted: Option<&Path>) -> Result<Option<Files>, Failure> {
    let resources = &config.resources;
    if resources.files.is_empty() {
        return Ok(None);
    }
    let roots = resources.files.iter();
    let roots = roots.map(|(name, root)| (name.clone(), root.options()));
    let mut own = config.own_files();
    own.kept.extend(mounted.map(Path::to_owned));
    own.kept.extend(upstreams::host_files(config));
    let options = FilesOptions {
        own,
        ..FilesOptions::new(config.resources_path())
    };
    let files = Files::open(roots.collect(), options);
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
    let mut all = BTreeMap::new();
    for (name, database) in databases {
        let options = database.options(&config.environment);
        let options = options.map_err(|why| format!("resources.databases.{name}: {why}"))?;
        all.insert(name.clone(), options);
    }
    let opened = Databases::open(all);
    opened
        .map(Some)
        .map_err(|error| crate::with_causes(&error).into())
}

/// Makes the services whose answers are resources, if any are configured. They are not asked anything yet.
///
/// # Errors
///
/// When one of them has a mistake, or is where requests may not go.
pub(super) fn open_services(config: &Config) -> Result<Option<Services>, Failure> {
    let configured = &config.resources.services;
    if configured.is_empty() {
        return Ok(None);
    }
    let mut all = BTreeMap::new();
    for (name, service) in configured {
        let options = service.options(&config.environment);
        let options = options
            .map_err(|header| format!("resources.services.{name}.headers.{header} is empty"))?;
        all.insert(name.clone(), options);
    }
    let client = Client::new(services::client_options(config)?)?;
    let opened = Services::open(all, &client);
    opened
        .map(Some)
        .map_err(|error| crate::with_causes(&error).into())
}
