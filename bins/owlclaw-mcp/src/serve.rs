//! Builds the server from its configuration and runs it.

use std::process::ExitCode;

use crate::Failure;
use crate::config::Config;
use crate::listing::{ResourceFilter, ResourceRow, ToolRow};

/// A part of the server that this build does not have.
#[derive(Debug, thiserror::Error)]
#[error("{0} is not connected yet")]
struct NotConnected(&'static str);

/// Serves until the client goes or a signal comes.
pub(crate) fn start(config: Config) -> Result<ExitCode, Failure> {
    let _ = config;
    Err(NotConnected("the server").into())
}

/// The tools that `client` may see; all of them without one.
pub(crate) fn tools_list(config: Config, client: Option<String>) -> Result<Vec<ToolRow>, Failure> {
    let _ = (config, client);
    Err(NotConnected("the list of tools").into())
}

/// The resources that `client` may see and `filter` lets through; all of them without either.
pub(crate) fn resources_list(
    config: Config,
    client: Option<String>,
    filter: ResourceFilter,
) -> Result<Vec<ResourceRow>, Failure> {
    let _ = (config, client, filter);
    Err(NotConnected("the list of resources").into())
}
