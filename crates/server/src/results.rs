//! Limits of results, as the configuration has them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, OutputSchema};
use mcp_server::{ResultLimit, ResultLimits, ResultOptions, ResultRule};

use crate::{Failure, with_causes};

/// The limits for a server that keeps what is left out; `None` without any.
///
/// # Errors
///
/// When the directory of results cannot be used.
pub(super) fn open(config: &Config) -> Result<Option<Arc<ResultLimits>>, Failure> {
    let options = ResultOptions {
        directory: Some(directory(config)),
        ..options(config)
    };
    ResultLimits::open(options).map_err(|error| {
        let why = with_causes(&error);
        format!("results.directory: {why}; set it to a directory of this server's own").into()
    })
}

/// The same limits where nothing is served: nothing is kept, and no directory is touched.
pub(super) fn surveyed(config: &Config) -> Option<Arc<ResultLimits>> {
    // The reader of the configuration lets no empty pattern through.
    ResultLimits::open(options(config)).ok().flatten()
}

fn directory(config: &Config) -> PathBuf {
    let beside = || config.ledger.path.with_file_name("results");
    config.results.directory.clone().unwrap_or_else(beside)
}

fn options(config: &Config) -> ResultOptions {
    let results = &config.results;
    ResultOptions {
        rules: results.limits.values().map(rule).collect(),
        keep: Duration::from_secs(results.keep_seconds),
        max_bytes: results.max_bytes,
        max_bytes_per_client: results.max_bytes_per_client,
        memory_bytes: results.memory_bytes,
        ..ResultOptions::default()
    }
}

fn rule(limit: &config::ResultLimit) -> ResultRule {
    let own = ResultLimit {
        characters: limit.max_characters,
        tokens: limit.max_tokens,
        breaks_schema: limit.output_schema == OutputSchema::Break,
    };
    let of_host = limit.host.map(|host| ResultLimit {
        characters: host.max_characters(),
        tokens: host.max_tokens(),
        ..ResultLimit::default()
    });
    ResultRule {
        clients: limit.clients.clone(),
        roles: limit.roles.clone(),
        tools: limit.tools.clone(),
        except: limit.except.clone(),
        limit: own.and(of_host.unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_file_are_those_of_the_parts() {
        let ours = options(&Config::default());
        assert_eq!(
            format!("{ours:?}"),
            format!("{:?}", ResultOptions::default())
        );
    }
}
