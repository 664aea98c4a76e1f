//! `upstream credential …`: credentials of single clients. No command prints one.

use std::process::ExitCode;

use config::{Config, Needs, UpstreamCredentials, VaultPlace, printable};
use serde_json::json;
use server::Failure;
use vault::{Name, VaultError};

use super::absent;
use crate::output::{Stop, print, print_json, try_load};
use crate::request::{CredentialCommand, OwnCredential, ReportFormat, Settings};
use crate::table::table;
use crate::vault::{given, is_short, time, warn_of_short};

/// Parts of the configuration that say which upstreams there are, and where the vault is.
const NEEDED: &[&str] = &["upstreams", "vault"];

fn failed(error: impl Into<Failure>) -> Stop {
    Stop::Failed(error.into())
}

pub(super) fn credential(command: CredentialCommand) -> Result<ExitCode, Stop> {
    match command {
        CredentialCommand::Set {
            settings,
            whose,
            file,
        } => {
            let (config, place) = loaded(settings)?;
            let name = named(&config, &whose)?;
            if whose.client.is_empty() {
                return Err(failed("the name of the client is empty"));
            }
            // Before anything is asked.
            if !place.path.exists() {
                return Err(failed(VaultError::Missing(place.path)));
            }
            place.key().map_err(failed)?;
            let value = given(name.as_str(), file.as_deref())?;
            let places = config.upstreams[&whose.upstream].credential_names();
            let mut places = places.get(name.as_str()).into_iter().flatten();
            let is_header = places.any(|it| it.starts_with("headers."));
            if let Some(why) = unfit(value.reveal(), is_header) {
                return Err(failed(format!("the value {why}")));
            }
            let is_short = is_short(&value);
            let secrets = place.clients();
            let was_there = secrets.set(&whose.upstream, &whose.client, &name, value);
            let was_there = was_there.map_err(failed)?;
            if is_short {
                warn_of_short();
            }
            let what = what(&name, &whose);
            print(&match was_there {
                true => format!("{what} is replaced"),
                false => format!("{what} is set"),
            })
        }
        CredentialCommand::List {
            settings,
            upstream,
            client,
            format,
        } => {
            let (_, place) = loaded(settings)?;
            list(&place, upstream.as_deref(), client.as_deref(), format)
        }
        CredentialCommand::Remove { settings, whose } => {
            let (config, place) = loaded(settings)?;
            // Of an upstream that is configured no more, too.
            let name = match (&whose.name, config.upstreams.get(&whose.upstream)) {
                (Some(name), _) => parsed(name)?,
                _ => named(&config, &whose)?,
            };
            let removed = place
                .clients()
                .remove(&whose.upstream, &whose.client, name.as_str())
                .map_err(failed)?;
            let what = what(&name, &whose);
            match removed {
                true => print(&format!("{what} is removed")),
                false => Err(failed(format!("{what} is not there"))),
            }
        }
    }
}

fn loaded(settings: Settings) -> Result<(Config, VaultPlace), Stop> {
    let loaded = try_load(settings, Needs::Keys(NEEDED))?.map_err(Stop::Rejected)?;
    let place = loaded.config.vault_place();
    Ok((loaded.config, place))
}

fn what(name: &Name, whose: &OwnCredential) -> String {
    printable(&format!(
        "credential `{name}` of `{}` for upstream `{}`",
        whose.client, whose.upstream
    ))
}

fn parsed(name: &str) -> Result<Name, Stop> {
    name.parse()
        .map_err(|error| failed(format!("`{}`: {error}", printable(name))))
}

/// The credential that is meant, which must be one that the upstream has a place for.
fn named(config: &Config, whose: &OwnCredential) -> Result<Name, Stop> {
    let Some(upstream) = config.upstreams.get(&whose.upstream) else {
        let names = config.upstreams.keys().map(String::as_str);
        return Err(failed(absent(&whose.upstream, names)));
    };
    if upstream.credentials != UpstreamCredentials::PerClient {
        return Err(failed(format!(
            "all clients of `{0}` share its credentials: write `credentials: per-client` into `upstreams.{0}` first",
            whose.upstream
        )));
    }
    let known = upstream.credential_names();
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    let listed = || format!("`{}`", known.join("`, `"));
    match (&whose.name, &known[..]) {
        (Some(name), _) if known.contains(&name.as_str()) => parsed(name),
        (Some(name), _) => Err(failed(format!(
            "`{}` has no place for a credential `{}`: it has {}",
            whose.upstream,
            printable(name),
            listed()
        ))),
        (None, [only]) => parsed(only),
        (None, _) => Err(failed(format!(
            "`{}` has several credentials: say by --name which one of {}",
            whose.upstream,
            listed()
        ))),
    }
}

/// Reason why a value cannot be used.
fn unfit(value: &str, is_header: bool) -> Option<&'static str> {
    match value {
        "" => Some("is empty"),
        value if value.trim() != value => Some("begins or ends with a space or an empty line"),
        value if value.contains('\0') => Some("has a character that no variable can have"),
        value if is_header && value.contains(['\r', '\n']) => {
            Some("has several lines, and goes into a header")
        }
        _ => None,
    }
}

fn list(
    place: &VaultPlace,
    upstream: Option<&str>,
    client: Option<&str>,
    format: ReportFormat,
) -> Result<ExitCode, Stop> {
    let mut all = place.clients().all().map_err(failed)?;
    all.retain(|it| upstream.is_none_or(|name| it.upstream == name));
    all.retain(|it| client.is_none_or(|name| it.client == name));
    let rows = all.iter().flat_map(|own| {
        own.names()
            .map(move |(name, changed_at)| (own, name, time(changed_at)))
    });
    match format {
        ReportFormat::Json => {
            let rows = rows.map(|(own, name, changed_at)| {
                json!({ "upstream": own.upstream, "client": own.client, "name": name, "changed_at": changed_at })
            });
            print_json(&json!({ "credentials": rows.collect::<Vec<_>>() }))
        }
        ReportFormat::Text => {
            let rows: Vec<_> = rows
                .map(|(own, name, changed_at)| {
                    let [upstream, client] = [&own.upstream, &own.client].map(|it| printable(it));
                    vec![upstream, client, name.to_owned(), changed_at]
                })
                .collect();
            match rows.is_empty() {
                true => print("no client has a credential of its own"),
                false => print(&table(&["UPSTREAM", "CLIENT", "NAME", "SET"], rows)),
            }
        }
    }
}
