//! `upstream credential …`, `upstream login` and `logout`: credentials of single clients, and tokens. No command prints one.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use config::{Config, Needs, UpstreamCredentials, VaultPlace, printable};
use gateway::{
    Credentials, KeptCredential, KeptKind, SealedTokens, Tokens, UpstreamSpec, kept_credentials,
};
use oauth_client::{FileStore, TokenStore as _};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;
use server::Failure;
use vault::{Name, VaultError};

use super::absent;
use crate::client::contact::authorities;
use crate::client::sign_in::{self, Way};
use crate::on_record;
use crate::output::{Stop, print, print_json, try_load};
use crate::request::{CredentialCommand, OwnCredential, ReportFormat, Settings, SignIn};
use crate::secrets::is_short;
use crate::table::table;
use crate::vault::{given, time, warn_of_short};

/// Parts of the configuration that say which upstreams there are, and where the vault is.
const NEEDED: &[&str] = &["upstreams", "vault", "ledger"];

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
            recorded(
                &config,
                &whose.upstream,
                Some(&whose.client),
                "set by command",
            )?;
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
            let own = place.clients().of(&whose.upstream, &whose.client);
            let own = own.map_err(failed)?;
            if own.is_some_and(|it| it.get(name.as_str()).is_some()) {
                let client = Some(&*whose.client);
                recorded(&config, &whose.upstream, client, "removed by command")?;
            }
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

/// Puts on record what a command is about to do with a credential.
fn recorded(config: &Config, upstream: &str, client: Option<&str>, what: &str) -> Result<(), Stop> {
    let (user, proof) = on_record::who();
    let command = server::CredentialCommand {
        upstream,
        client,
        what,
        user: &user,
        proof: &proof,
    };
    on_record::put(server::record_credential_command(config, command))
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
    if known.is_empty() {
        return Err(failed(format!(
            "clients sign in at `{0}`: `owlclaw-mcp upstream login {0} --client CLIENT`",
            whose.upstream
        )));
    }
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

/// The upstream of this name, where tokens for it are kept, and its address.
fn place_of_tokens(
    settings: Settings,
    name: &str,
    client: Option<&str>,
) -> Result<(Config, UpstreamSpec, SealedTokens), Stop> {
    let (config, place) = loaded(settings)?;
    if !place.path.exists() {
        return Err(failed(VaultError::Missing(place.path)));
    }
    place.key().map_err(failed)?;
    let declared = server::declared_upstreams(&config).map_err(Stop::Failed)?;
    let names: Vec<_> = declared
        .upstreams
        .iter()
        .map(|it| it.spec.name.clone())
        .collect();
    let mut specs = declared.upstreams.into_iter().map(|it| it.spec);
    let Some(spec) = specs.find(|it| it.name == name) else {
        let names = names.iter().map(String::as_str);
        return Err(failed(absent(name, names)));
    };
    match (&spec.credentials, client) {
        (_, Some("")) => return Err(failed("the name of the client is empty")),
        (Credentials::SignedIn, Some(_)) => {}
        (Credentials::SignedIn, None) => {
            return Err(failed(format!(
                "each client of `{name}` signs in itself: say by --client whose account it is"
            )));
        }
        (Credentials::PerClient(_), _) => {
            return Err(failed(format!(
                "`{name}` is shown secrets of its clients: `owlclaw-mcp upstream credential set {name} --client CLIENT`"
            )));
        }
        (Credentials::Exchanged(_), _) => {
            return Err(failed(format!(
                "`{name}` gets tokens in exchange for those of callers, and has no sign-in"
            )));
        }
        (Credentials::Shared, Some(_)) => {
            return Err(failed(format!(
                "all clients of `{name}` share its credentials: write `credentials: per-client` into `upstreams.{name}` first"
            )));
        }
        (Credentials::Shared, None) if matches!(spec.tokens, Tokens::Kept(_)) => {}
        (Credentials::Shared, None) => {
            return Err(failed(format!(
                "the configuration has the credentials of `{name}`, or none are wanted"
            )));
        }
    }
    let tokens = SealedTokens::new(Arc::new(place.clients()), name, client);
    Ok((config, spec, tokens))
}

fn no_address(name: &str) -> Stop {
    failed(format!("`{name}` is a program: it is not signed in at"))
}

pub(super) fn login(login: SignIn) -> Result<ExitCode, Stop> {
    let SignIn {
        settings,
        name,
        client,
        redirect_port,
        no_browser,
        timeout,
        ca,
    } = login;
    let (config, spec, tokens) = place_of_tokens(settings, &name, client.as_deref())?;
    let way = Way {
        port: redirect_port,
        no_browser,
        timeout: Duration::from_secs(timeout),
    };
    let authorities = authorities(ca.as_deref()).map_err(Stop::Failed)?;
    let url = spec.place();
    let authorizer = spec.sign_in(tokens, way.login(), authorities);
    let authorizer = authorizer.map_err(|error| sign_in::failed(&url, &error))?;
    let authorizer = authorizer.ok_or_else(|| no_address(&name))?;
    // Before the person is sent anywhere: what comes of it is kept as soon as it is there.
    recorded(&config, &name, client.as_deref(), "signed in by command")?;
    sign_in::asked(&url, &authorizer, async |it| it.login().await)?;
    print(&printable(&match client {
        Some(client) => format!("client `{client}` is signed in at `{name}`"),
        None => format!("signed in at `{name}`, for all clients"),
    }))
}

pub(super) fn logout(
    settings: Settings,
    name: &str,
    client: Option<&str>,
) -> Result<ExitCode, Stop> {
    let (config, spec, tokens) = place_of_tokens(settings, name, client)?;
    let url = spec.place();
    let files = match (&spec.tokens, client) {
        (Tokens::Kept(directory), None) => Some(directory.clone()),
        _ => None,
    };
    // Nobody is asked anything.
    let way = Way {
        port: None,
        no_browser: true,
        timeout: Duration::from_secs(1),
    };
    let authorizer = spec.sign_in(tokens, way.login(), Vec::new());
    let authorizer = authorizer.map_err(|error| sign_in::failed(&url, &error))?;
    let authorizer = authorizer.ok_or_else(|| no_address(name))?;
    let kept = kept_credentials(&config.vault_place().clients()).map_err(failed)?;
    let signed_in = kept.iter().filter(|it| it.upstream == name);
    let signed_in = signed_in.filter(|it| !matches!(it.kind, KeptKind::Secret));
    let others: Vec<_> = signed_in.map(|it| it.client.as_deref()).collect();
    let of_command = files.is_some_and(|it| has_tokens(&it, authorizer.server()));
    let of_command = match of_command {
        true => format!(
            "; calls use the tokens of `client login`, until `owlclaw-mcp client logout --url {url}`"
        ),
        false => String::new(),
    };
    if !others.contains(&client) {
        let names: BTreeSet<_> = others.into_iter().flatten().collect();
        let names: Vec<_> = names.into_iter().collect();
        let who = match (client, names.as_slice()) {
            (None, _) => format!("nobody is signed in at `{name}` by `upstream login`{of_command}"),
            (Some(client), []) => {
                format!("client `{client}` is not signed in at `{name}`, and no other is")
            }
            (Some(client), names) => format!(
                "client `{client}` is not signed in at `{name}`; signed in are `{}`",
                names.join("`, `")
            ),
        };
        return Err(failed(printable(&format!("nothing is changed: {who}"))));
    }
    recorded(&config, name, client, "signed out by command")?;
    sign_in::signed_out(&url, &authorizer)?;
    print(&printable(&format!(
        "no tokens of `upstream login` are kept for `{name}`{} any more{of_command}",
        client.map_or_else(String::new, |it| format!(" and client `{it}`"))
    )))
}

/// True if `client login` has kept tokens for the server at this address. What cannot be read is told of where it is used.
fn has_tokens(directory: &Path, server: &str) -> bool {
    let store = FileStore::at(directory);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let kept = runtime.map(|it| it.block_on(store.load(server)));
    matches!(kept, Ok(Ok(kept)) if kept.iter().any(|it| it.tokens.is_some()))
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

/// Name in lists of a credential that is no single client's.
const ALL_CLIENTS: &str = "(all clients)";

/// A credential at an upstream, without its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CredentialRow {
    /// Upstream.
    pub upstream: String,
    /// Client whose it is; `null` if all clients share it.
    pub client: Option<String>,
    /// Name under which it is kept.
    pub name: String,
    /// `secret`, or `login` for tokens of a sign-in.
    pub kind: &'static str,
    /// Time when it was first kept, RFC 3339.
    pub since: String,
    /// Time when it was last set or renewed, RFC 3339.
    pub changed_at: String,
    /// Authorization server that has given the tokens; `null` of a secret, and if no token is left.
    pub issuer: Option<String>,
    /// Time when the access token expires, RFC 3339, if that is known.
    pub expires: Option<String>,
    /// True if another access token can be got without a person.
    pub is_renewed: bool,
}

impl From<&KeptCredential> for CredentialRow {
    fn from(kept: &KeptCredential) -> Self {
        let row = Self {
            upstream: kept.upstream.clone(),
            client: kept.client.clone(),
            name: kept.name.clone(),
            kind: "login",
            since: time(kept.since),
            changed_at: time(kept.changed_at),
            issuer: None,
            expires: None,
            is_renewed: false,
        };
        match &kept.kind {
            KeptKind::Secret => Self {
                kind: "secret",
                ..row
            },
            KeptKind::EndedLogin => row,
            KeptKind::Login {
                issuer,
                expires_at,
                is_renewed,
            } => Self {
                issuer: Some(issuer.clone()),
                expires: expires_at.map(time),
                is_renewed: *is_renewed,
                ..row
            },
        }
    }
}

fn list(
    place: &VaultPlace,
    upstream: Option<&str>,
    client: Option<&str>,
    format: ReportFormat,
) -> Result<ExitCode, Stop> {
    let all = kept_credentials(&place.clients()).map_err(failed)?;
    let rows = all.iter().map(CredentialRow::from);
    let rows = rows.filter(|it| {
        let whose = it.client.as_deref().unwrap_or(ALL_CLIENTS);
        upstream.is_none_or(|name| it.upstream == name) && client.is_none_or(|name| whose == name)
    });
    // Tokens are kept under a digest of their issuer, which is told besides.
    let short = |it: &CredentialRow| match it.kind {
        "login" => it.kind.to_owned(),
        _ => it.name.clone(),
    };
    match format {
        ReportFormat::Json => {
            let rows = rows.map(|it| {
                let mut row = json!(it);
                row["name"] = json!(short(&it));
                row["client"] = json!(it.client.as_deref().unwrap_or(ALL_CLIENTS));
                row
            });
            print_json(&json!({ "credentials": rows.collect::<Vec<_>>() }))
        }
        ReportFormat::Text => {
            let row = |it: CredentialRow| {
                let name = short(&it);
                let client = it.client.as_deref().unwrap_or(ALL_CLIENTS).to_owned();
                let expires = match (it.expires, it.is_renewed) {
                    (Some(_), true) => "renewed".to_owned(),
                    (expires, _) => expires.unwrap_or_default(),
                };
                vec![it.upstream, client, name, it.changed_at, expires]
            };
            let rows: Vec<_> = rows.map(row).collect();
            match rows.is_empty() {
                true => print("no client has a credential of its own"),
                false => {
                    let heads = ["UPSTREAM", "CLIENT", "NAME", "SET", "EXPIRES"];
                    print(&table(&heads, rows))
                }
            }
        }
    }
}
