//! Keys of clients: made, listed, replaced and taken back.

use std::process::ExitCode;
use std::time::SystemTime;

use identity::{KeyFile, MadeKey, NewKey};

use crate::inspect;
use crate::output::{Stop, load_for, print};
use crate::request::{KeyPlace, KeysCommand, ReportFormat};
use crate::terminal::remark;

/// The part of the configuration that says where keys are.
const NEEDED: &[&str] = &["identity.api_keys"];

/// Carries out a command on API keys.
///
/// # Errors
///
/// When the configuration cannot be used, the command fails, or standard output cannot be written.
pub fn keys(command: KeysCommand) -> Result<ExitCode, Stop> {
    let now = SystemTime::now();
    let failed = |error: identity::KeyFileError| Stop::Failed(error.into());
    match command {
        KeysCommand::Create {
            place,
            principal,
            roles,
            expires,
            label,
            format,
        } => {
            let file = key_file(place)?;
            let new = NewKey {
                principal,
                roles,
                lifetime: expires.map(|it| it.0),
                label,
            };
            say_made(&file.create(new, now).map_err(failed)?, format)
        }
        KeysCommand::List { place, format } => {
            let file = key_file(place)?;
            print(&inspect::list_keys(&file, format).map_err(Stop::Failed)?)
        }
        KeysCommand::Revoke { place, id } => {
            let key = key_file(place)?.revoke(&id, now).map_err(failed)?;
            print(&format!("{} of {} is revoked", key.id, key.principal))
        }
        KeysCommand::Rotate {
            place,
            id,
            overlap,
            format,
        } => {
            let file = key_file(place)?;
            say_made(&file.rotate(&id, overlap.0, now).map_err(failed)?, format)
        }
    }
}

/// Prints the key alone on standard output, and remarks on it on standard error.
fn say_made(made: &MadeKey, format: ReportFormat) -> Result<ExitCode, Stop> {
    let record = &made.record;
    let end = record.expires.as_deref().map(|it| format!("until {it}"));
    let end = end.unwrap_or_else(|| "until it is revoked".to_owned());
    let (id, principal) = (&record.id, &record.principal);
    remark(&format!(
        "key {id} of {principal} is good {end}; it is not shown again"
    ));
    print(&inspect::made_key(made, format))
}

/// File of keys: the one that the command line names, else that of the configuration.
fn key_file(place: KeyPlace) -> Result<KeyFile, Stop> {
    if let Some(path) = place.file {
        return Ok(KeyFile::at(&path));
    }
    let config = load_for(place.settings, NEEDED)?.config;
    match &config.identity.api_keys {
        Some(keys) => Ok(KeyFile::at(&keys.file)),
        None => {
            let why = "the configuration accepts no API keys: add `identity: {api_keys: {}}` to it, \
                       or name a file with --file";
            Err(Stop::Failed(why.into()))
        }
    }
}
