//! Credentials of clients at upstreams: whose they are, how they stand, and forgetting them. No value is ever told.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use gateway::{Asked, KeptCredential, State, Status, kept_credentials};
use ledger::system_now_us;
use operator::look::{CredentialRow, shown};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use server::Failure;

use super::{Count, limit};
use crate::call::Call;
use crate::reply::{Problem, Reply};

/// Filter for credentials.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialQuery {
    /// Only those at this upstream.
    upstream: Option<String>,
    /// Only those of this client.
    client: Option<String>,
    /// The most to list: 50 if not said, 500 at most.
    limit: Option<Count>,
    /// Go on after this one, which ended a page: `next` of that page.
    after: Option<String>,
}

/// Page of credentials.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct CredentialPage {
    /// Credentials by upstream, client and name, with those that are missed; `null` where there is no vault, so that none
    /// can be kept.
    credentials: Option<Vec<Credential>>,
    /// Value of `after` for the next page, if there is one.
    next: Option<String>,
    /// Time at which they were read, RFC 3339.
    at: String,
}

/// A credential, and how it stands.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Credential {
    /// The credential without its value; `since` says of one that is missed since when it is.
    #[serde(flatten)]
    row: CredentialRow,
    /// `in use`, `kept`, `refused`, `login needed`, `expired`, `missing`, or `unused` where no upstream has this name.
    state: &'static str,
    /// True if the upstream takes it now, false if it does not or it is missing, `null` if that is unknown.
    works: Option<bool>,
    /// Reason for the state, for people.
    why: Option<String>,
    /// Advice.
    cure: Option<String>,
}

/// A credential to forget.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Forgetting {
    /// Upstream.
    upstream: String,
    /// Client whose it is; `null` for one that all clients share.
    client: Option<String>,
    /// Name under which it is kept.
    name: String,
}

/// Outcome of forgetting a credential.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Forgotten {
    /// Upstream that it was for.
    upstream: String,
    /// Client whose it was; `null` if all clients shared it.
    client: Option<String>,
}

type Key = (String, Option<String>, String);

fn key(row: &CredentialRow) -> Key {
    (row.upstream.clone(), row.client.clone(), row.name.clone())
}

/// The credentials that are kept; `None` without a vault.
async fn kept(call: &Call<'_>) -> Result<Option<Vec<KeptCredential>>, Problem> {
    let place = call.desk.server.config().vault_place();
    let read = move || match place.path.exists() {
        true => Ok::<_, Failure>(Some(kept_credentials(&place.clients())?)),
        false => Ok(None),
    };
    call.desk.block(read).await
}

/// State of a credential at its upstream, and whether the upstream takes it.
fn judged(row: CredentialRow, upstream: Option<&Status>, now: &str) -> Credential {
    let unused = || format!("no upstream `{}` is configured", row.upstream);
    let is_login = row.kind == "login";
    let (state, works, why, cure) = match (upstream, &row.client) {
        (None, _) => ("unused", None, Some(unused()), None),
        (Some(it), Some(client)) => {
            let refused = it.refused_clients.iter().find(|it| it.client == *client);
            match refused {
                Some(refused) => {
                    let state = if is_login { "login needed" } else { "refused" };
                    let (why, cure) = (refused.why.clone(), refused.cure.clone());
                    (state, Some(false), Some(why), Some(cure))
                }
                None => kept_state(&row, now),
            }
        }
        (Some(it), None) => match it.state {
            State::LoginNeeded => {
                let why = Some(it.reason.clone());
                ("login needed", Some(false), why, it.cure.clone())
            }
            State::Ready => ("in use", Some(true), None, None),
            _ => kept_state(&row, now),
        },
    };
    Credential {
        row,
        state,
        works,
        why,
        cure,
    }
}

type Standing = (&'static str, Option<bool>, Option<String>, Option<String>);

/// State of a credential by what is kept of it alone.
fn kept_state(row: &CredentialRow, now: &str) -> Standing {
    let is_over = row.expires.as_deref().is_some_and(|it| it < now) && !row.is_renewed;
    match (row.kind, &row.issuer) {
        ("login", None) => {
            let why = "no token of this sign-in is left that could be used";
            ("login needed", Some(false), Some(why.to_owned()), None)
        }
        ("login", Some(_)) if is_over => {
            let why = "the token has expired, and cannot be renewed without a person";
            ("expired", Some(false), Some(why.to_owned()), None)
        }
        _ => ("kept", None, None, None),
    }
}

/// Credentials that upstreams miss: a client's own credential, or a login for all.
fn missing(
    call: &Call<'_>,
    all: &[Status],
    there: &BTreeSet<(String, Option<String>)>,
) -> Vec<Credential> {
    let lacks = |upstream: &str, client: Option<&str>| {
        !there.contains(&(upstream.to_owned(), client.map(str::to_owned)))
    };
    let row = |upstream: &Status, client: Option<&str>, kind, since: u64| CredentialRow {
        upstream: upstream.name.clone(),
        client: client.map(str::to_owned),
        name: String::new(),
        kind,
        since: shown(since.saturating_mul(1_000_000)),
        changed_at: String::new(),
        issuer: None,
        expires: None,
        is_renewed: false,
    };
    let mut found = Vec::new();
    for upstream in all {
        if upstream.state == State::LoginNeeded && lacks(&upstream.name, None) {
            found.push(Credential {
                row: row(upstream, None, "login", upstream.since),
                state: "login needed",
                works: Some(false),
                why: Some(upstream.reason.clone()),
                cure: upstream.cure.clone(),
            });
        }
        let kind = match call.desk.server.gateway().asks_clients(&upstream.name) {
            Some(Asked::Secrets(_)) => "secret",
            Some(Asked::SignIn) | None => "login",
        };
        for refused in &upstream.refused_clients {
            if lacks(&upstream.name, Some(&refused.client)) {
                found.push(Credential {
                    row: row(upstream, Some(&refused.client), kind, refused.since),
                    state: if kind == "login" {
                        "login needed"
                    } else {
                        "missing"
                    },
                    works: Some(false),
                    why: Some(refused.why.clone()),
                    cure: Some(refused.cure.clone()),
                });
            }
        }
    }
    found
}

pub(crate) async fn list(call: Call<'_>) -> Result<Reply, Problem> {
    let query: CredentialQuery = call.query()?;
    let most = limit(query.limit)?;
    let after: Option<Key> = match &query.after {
        None => None,
        Some(text) => {
            let read = URL_SAFE_NO_PAD.decode(text).ok();
            let read = read.and_then(|it| serde_json::from_slice(&it).ok());
            Some(read.ok_or_else(|| Problem::bad("`after` is no place"))?)
        }
    };
    let now = system_now_us();
    let Some(kept) = kept(&call).await? else {
        return Ok(Reply::json(&CredentialPage {
            credentials: None,
            next: None,
            at: shown(now),
        }));
    };
    let all = call.desk.server.gateway().status();
    let whose = |it: &KeptCredential| (it.upstream.clone(), it.client.clone());
    let there: BTreeSet<_> = kept.iter().map(whose).collect();
    let mut found = missing(&call, &all, &there);
    for it in &kept {
        let upstream = all.iter().find(|status| status.name == it.upstream);
        found.push(judged(it.into(), upstream, &shown(now)));
    }
    found.retain(|it| {
        let is_wanted = |wanted: &Option<String>, it: Option<&String>| {
            wanted.as_ref().is_none_or(|wanted| it == Some(wanted))
        };
        is_wanted(&query.upstream, Some(&it.row.upstream))
            && is_wanted(&query.client, it.row.client.as_ref())
            && after.as_ref().is_none_or(|after| *after < key(&it.row))
    });
    found.sort_by_cached_key(|it| key(&it.row));
    // One more than a page says whether there is another.
    let has_next = most < found.len();
    found.truncate(most);
    let next = found.last().filter(|_| has_next);
    let next = next.map(|it| URL_SAFE_NO_PAD.encode(json!(key(&it.row)).to_string()));
    Ok(Reply::json(&CredentialPage {
        credentials: Some(found),
        next,
        at: shown(now),
    }))
}

pub(crate) async fn forget(call: Call<'_>) -> Result<Reply, Problem> {
    let Forgetting {
        upstream,
        client,
        name,
    } = call.body()?;
    let absent = || Problem::missing("there is no such credential");
    let kept = kept(&call).await?.unwrap_or_default();
    let mut kept = kept.into_iter();
    let found = kept.find(|it| (&it.upstream, &it.client, &it.name) == (&upstream, &client, &name));
    let found = found.ok_or_else(absent)?;
    let subject = format!(
        "{upstream}/{}",
        client.as_deref().unwrap_or("(all clients)")
    );
    let more = json!({ "upstream": upstream, "client": client, "name": name });
    let (who, server) = (call.who(), &call.desk.server);
    call.desk
        .record_more(who, "credential_forget", &subject, &more)
        .await?;
    let secrets = Arc::new(server.config().vault_place().clients());
    let forgotten = server.gateway().forget(&secrets, &found).await;
    match forgotten.map_err(|error| Problem::unavailable(&*error))? {
        true => server.note_forgotten(client.as_deref(), &upstream),
        false => return Err(absent()),
    }
    Ok(Reply::json(&Forgotten { upstream, client }))
}
