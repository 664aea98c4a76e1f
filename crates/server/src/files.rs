//! Directories of files, as the configuration names them.

use config::Config;
use resources::Files;

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
