//! Secrets of the vault: listed by name, set and removed. No value is ever told, kept for another answer, or written
//! anywhere but into the vault.

use config::VaultPlace;
use http::StatusCode;
use ledger::system_now_us;
use operator::look::{SecretRow, secret_rows, shown};
use operator::{SecretProblem, SetSecret, may_set, remove_secret, set_secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use server::Failure;

use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Secrets of the vault.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Secrets {
    /// File of the vault.
    vault: String,
    /// True if there is one; otherwise there can be no secrets.
    is_there: bool,
    /// Secrets by their names.
    secrets: Vec<SecretRow>,
    /// Time at which they were read, RFC 3339.
    at: String,
}

/// A secret to set.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewSecret {
    /// Name: 1 to 128 of the characters `A-Z a-z 0-9 _ . - /`.
    name: String,
    /// Value, of 1 to 65536 bytes, which nothing tells any more.
    value: String,
}

/// Outcome of setting a secret.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SecretIsSet {
    /// Name.
    name: String,
    /// True if it has taken the place of another value.
    was_there: bool,
    /// True if it is too short to be known again: it is not redacted in logs and answers.
    is_short: bool,
}

/// Outcome of removing a secret.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SecretIsRemoved {
    /// Name.
    name: String,
}

fn place(call: &Call<'_>) -> VaultPlace {
    call.desk.server.config().vault_place()
}

/// Does something with the vault. What the person has got wrong, and what is wrong with the vault, is told: no such
/// message has a value in it.
async fn with_vault<T: Send + 'static>(
    call: &Call<'_>,
    work: impl FnOnce() -> Result<T, SecretProblem> + Send + 'static,
) -> Result<T, Problem> {
    let done = call.desk.block(move || Ok::<_, Failure>(work())).await?;
    done.map_err(|error| {
        let status = match &error {
            SecretProblem::Missing(_) => StatusCode::NOT_FOUND,
            SecretProblem::Unfit(_) => StatusCode::BAD_REQUEST,
            SecretProblem::Kept(_) | SecretProblem::Vault(_) => StatusCode::CONFLICT,
        };
        Problem::new(status, error.to_string())
    })
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let place = place(&call);
    let vault = place.path.display().to_string();
    let mut references = call.desk.server.references();
    let config = call.desk.server.config().clone();
    let read = move || -> Result<_, SecretProblem> {
        if !place.path.exists() {
            return Ok(None);
        }
        let vault = place.open()?;
        references.extend(server::references_of_hosts(&config));
        let references = references.iter().map(|(key, it)| (key.as_str(), it));
        Ok(Some(secret_rows(&vault, references)))
    };
    let secrets = with_vault(&call, read).await?;
    Ok(Reply::json(&Secrets {
        vault,
        is_there: secrets.is_some(),
        secrets: secrets.unwrap_or_default(),
        at: shown(system_now_us()),
    }))
}

pub(crate) async fn set(call: Call<'_>) -> Result<Reply, Problem> {
    let NewSecret { name, value } =
        call.secret_body("an object with `name` and `value`, both of them texts")?;
    let value = value.into();
    let (vault, wanted) = (place(&call), name.clone());
    let checked = move || may_set(&vault, &wanted, Some(&value)).map(|_| value);
    let value = with_vault(&call, checked).await?;
    // Whatever comes of it, nothing of this process repeats it from now on.
    redaction::know([value.reveal()]);
    call.desk.record(call.who(), "secret_set", &name).await?;
    let (vault, wanted) = (place(&call), name.clone());
    let SetSecret {
        was_there,
        is_short,
    } = with_vault(&call, move || set_secret(&vault, &wanted, value)).await?;
    // In force with the answer. What is wrong with the configuration is told elsewhere.
    let _ = call.desk.server.look_again().await;
    Ok(Reply::json(&SecretIsSet {
        name,
        was_there,
        is_short,
    }))
}

pub(crate) async fn remove(call: Call<'_>) -> Result<Reply, Problem> {
    let name = call.name().to_owned();
    call.desk.record(call.who(), "secret_remove", &name).await?;
    let (vault, wanted) = (place(&call), name.clone());
    with_vault(&call, move || remove_secret(&vault, &wanted)).await?;
    let _ = call.desk.server.look_again().await;
    Ok(Reply::json(&SecretIsRemoved { name }))
}
