//! Secrets of the vault as operators see and change them: names and times, and never a value.

use std::collections::BTreeMap;

use config::{Reference, ReferenceSource, VaultPlace};
use schemars::JsonSchema;
use serde::Serialize;
use vault::{BadName, CLIENTS_KEY, MAX_VALUE_BYTES, Name, Secret, Vault, VaultError};

use crate::secrets::is_short;

/// A secret of the vault, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SecretRow {
    /// Name.
    pub name: String,
    /// Time when there was first a secret of this name, RFC 3339.
    pub created_at: String,
    /// Time when its value was last set, RFC 3339.
    pub changed_at: String,
    /// Keys of the configuration that refer to it.
    pub used_in: Vec<String>,
}

/// Reason why a secret cannot be set or removed. No message has a value in it.
#[derive(Debug, thiserror::Error)]
pub enum SecretProblem {
    /// There is no secret of this name.
    #[error("{0}")]
    Missing(String),
    /// The text is no name, or the value is none that the vault takes.
    #[error("{0}")]
    Unfit(String),
    /// Key of the credentials of clients, which would be lost.
    #[error("{0}")]
    Kept(String),
    /// The vault itself cannot be used.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// Outcome of setting a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetSecret {
    /// True if there was one of this name.
    pub was_there: bool,
    /// True if it is too short to be known again, so that it is not redacted.
    pub is_short: bool,
}

/// A time in seconds since 1970 as text.
pub(crate) fn time(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| String::new(), |it| it.to_string())
}

/// Secrets of a vault by their names, with the references to them.
pub fn secret_rows<'a>(
    vault: &Vault,
    references: impl IntoIterator<Item = (&'a str, &'a Reference)>,
) -> Vec<SecretRow> {
    let mut used: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (key, reference) in references {
        if let Some(name) = reference.reference.strip_prefix("vault:") {
            let keys = used.entry(name).or_default();
            keys.push(match reference.source {
                ReferenceSource::Environment => format!("{key} (from the environment)"),
                _ => key.to_owned(),
            });
        }
    }
    let rows = vault.entries().map(|(name, entry)| SecretRow {
        name: name.to_string(),
        created_at: time(entry.created_at),
        changed_at: time(entry.changed_at),
        used_in: match name.as_str() {
            CLIENTS_KEY => vec!["credentials of clients".to_owned()],
            name => used.remove(name).unwrap_or_default(),
        },
    });
    rows.collect()
}

/// Sets a secret of the vault.
///
/// # Errors
///
/// [`SecretProblem`], in which case nothing is changed.
pub fn set_secret(
    place: &VaultPlace,
    name: &str,
    value: impl Into<Secret>,
) -> Result<SetSecret, SecretProblem> {
    let value = value.into();
    let name = may_set(place, name, Some(&value))?;
    let is_short = is_short(&value);
    let was_there = changed(place, |it| it.set(&name, value))?;
    Ok(SetSecret {
        was_there,
        is_short,
    })
}

/// The name under which a secret may be set. Nothing is changed.
///
/// # Errors
///
/// [`SecretProblem`] if `name` is none, the vault cannot be opened, or the value is none that it takes.
pub fn may_set(
    place: &VaultPlace,
    name: &str,
    value: Option<&Secret>,
) -> Result<Name, SecretProblem> {
    // The text is not repeated: it may be the value, put in the wrong place.
    let parsed: Name = name
        .parse()
        .map_err(|error: BadName| SecretProblem::Unfit(error.to_string()))?;
    let bytes = value.map_or(1, |it| it.reveal().len());
    if !(1..=MAX_VALUE_BYTES).contains(&bytes) {
        return Err(SecretProblem::Unfit(format!(
            "the value of `{name}` has {bytes} bytes; it must have 1 to {MAX_VALUE_BYTES}"
        )));
    }
    if place.open()?.get(name).is_some() {
        keeps_clients_key(place, name)?;
    }
    Ok(parsed)
}

/// Removes a secret from the vault.
///
/// # Errors
///
/// [`SecretProblem`], in which case nothing is changed.
pub fn remove_secret(place: &VaultPlace, name: &str) -> Result<(), SecretProblem> {
    keeps_clients_key(place, name)?;
    changed(place, |vault| match vault.remove(name) {
        true => Ok(()),
        false => Err(missing(place, vault, name)),
    })
}

/// Looks whether a secret can be removed. Nothing is changed.
pub(crate) fn may_remove(place: &VaultPlace, name: &str) -> Result<(), SecretProblem> {
    keeps_clients_key(place, name)?;
    let vault = place.open()?;
    match vault.get(name) {
        Some(_) => Ok(()),
        None => Err(missing(place, &vault, name)),
    }
}

fn missing(place: &VaultPlace, vault: &Vault, name: &str) -> SecretProblem {
    let names = vault.entries().map(|(name, _)| name.as_str());
    let hint = config::nearest(name, names);
    let hint = hint.map_or_else(String::new, |it| format!("; did you mean `{it}`?"));
    let (place, name) = (place.path.display(), config::printable(name));
    SecretProblem::Missing(format!("{place} has no `{name}`{hint}"))
}

fn changed<T, E: From<VaultError>>(
    place: &VaultPlace,
    change: impl FnOnce(&mut Vault) -> Result<T, E>,
) -> Result<T, E> {
    if !place.path.exists() {
        return Err(VaultError::Missing(place.path.clone()).into());
    }
    vault::edit(&place.path, || place.key(), change)
}

/// Refuses the name of the key that clients' credentials are sealed with, while there are some.
fn keeps_clients_key(place: &VaultPlace, name: &str) -> Result<(), SecretProblem> {
    let directory = place.clients().directory();
    if name != CLIENTS_KEY || !directory.exists() {
        return Ok(());
    }
    Err(SecretProblem::Kept(format!(
        "`{name}` is the key of the credentials of clients in {0}: they would be lost. Remove that directory first",
        directory.display()
    )))
}
