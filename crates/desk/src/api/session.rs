//! Signing in and out.

use http::header;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Count;
use crate::call::Call;
use crate::reply::{Problem, Reply};
use crate::sign_in::{BACK, Who};

/// Seconds within which a person comes back from an issuer.
const AWAY_SECONDS: u64 = 600;

/// The person or program that is signed in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Session {
    /// Name of the person or program.
    name: String,
    /// `viewer`, `approver` or `operator`.
    role: String,
    /// Proof, and the address it came from.
    proof: String,
    /// Value of the header `X-CSRF-Token` that requests of the session's page carry.
    csrf: Option<String>,
    /// Seconds until the session ends in any case.
    seconds_left: Option<u64>,
    /// Name and version of the server.
    server: String,
    /// Seconds since the epoch on the clock of the server.
    now: u64,
}

/// Proof of who signs in; without one, that of the request counts.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SignInWith {
    /// One-time sign-in of `owlclaw-mcp desk`.
    ticket: Option<String>,
    /// Path and query with which an issuer has sent the browser back.
    came_back: Option<String>,
}

/// Issuers at which people can sign in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignInIssuers {
    /// Names of the issuers.
    issuers: Vec<String>,
}

/// Issuer at which a person wants to sign in.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignInAt {
    /// Name of the issuer.
    issuer: String,
}

/// Sign-in that has begun.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct SignInUrl {
    /// Address of the issuer to which the browser goes.
    url: String,
}

/// Sessions to end.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Where {
    /// 1 to end all sessions of the same person.
    everywhere: Option<Count>,
}

/// Number of sessions that have ended.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Ended {
    /// Number.
    pub(crate) ended: usize,
}

/// One-time sign-in.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Ticket {
    /// Text to sign in with.
    ticket: String,
    /// Seconds for which it is good.
    seconds: u64,
}

fn told(call: &Call<'_>, who: &Who) -> Session {
    let session = who.session.as_ref();
    let health = call.desk.server.health();
    Session {
        name: who.name.to_string(),
        role: who.role.as_str().to_owned(),
        proof: who.proof.clone(),
        csrf: session.map(|it| it.csrf.clone()),
        seconds_left: session.map(|it| it.left.as_secs()),
        server: format!("owlclaw-mcp {}", health.version),
        now: ledger::system_now_us() / 1_000_000,
    }
}

pub(crate) async fn show(call: Call<'_>) -> Result<Reply, Problem> {
    Ok(Reply::json(&told(&call, call.who())))
}

pub(crate) async fn begin(call: Call<'_>) -> Result<Reply, Problem> {
    let with: SignInWith = match call.bytes().is_empty() {
        true => SignInWith::default(),
        false => call.body()?,
    };
    let sign_in = &call.desk.sign_in;
    let who = match (with.ticket, with.came_back) {
        (Some(_), Some(_)) => return Err(Problem::bad("`ticket` and `came_back` are two ways")),
        (Some(ticket), None) => sign_in.redeem(call.request, &ticket)?,
        (None, Some(place)) => {
            let sign_ins = call.desk.server.sign_ins().ok_or_else(no_issuers)?;
            sign_in.came_back(call.request, sign_ins, &place).await?
        }
        (None, None) => sign_in.proved_by_page(call.request).await?,
    };
    call.desk.record(&who, "sign_in", "").await?;
    let (who, cookie) = sign_in.begin(who, &call.request.parts().headers);
    Ok(Reply::json(&told(&call, &who)).with(header::SET_COOKIE, cookie))
}

fn no_issuers() -> Problem {
    Problem::missing(
        "no issuer is configured for signing in: `identity.jwt.NAME.sign_in` would be one",
    )
}

pub(crate) async fn issuers(call: Call<'_>) -> Result<Reply, Problem> {
    call.desk.sign_in.is_own_or_no_page(call.request)?;
    let names = call.desk.server.sign_ins();
    let names = names.iter().flat_map(|it| it.names());
    Ok(Reply::json(&SignInIssuers {
        issuers: names.map(str::to_owned).collect(),
    }))
}

pub(crate) async fn leave(call: Call<'_>) -> Result<Reply, Problem> {
    let sign_in = &call.desk.sign_in;
    let origin = sign_in.own_origin(call.request)?;
    let wanted: SignInAt = call.body()?;
    let sign_ins = call.desk.server.sign_ins().ok_or_else(no_issuers)?;
    let redirect_uri = format!("{origin}{BACK}{}", wanted.issuer);
    let begun = sign_ins.begin(&wanted.issuer, &redirect_uri, "").await;
    let begun = begun.map_err(|failed| Problem::new(failed.status, failed.why))?;
    let cookie = sign_in.leave(&begun.ticket, AWAY_SECONDS);
    let url = SignInUrl { url: begun.url };
    Ok(Reply::json_with_secret(&url).with(header::SET_COOKIE, cookie))
}

pub(crate) async fn end(call: Call<'_>) -> Result<Reply, Problem> {
    let wanted: Where = call.query()?;
    let everywhere = wanted.everywhere.is_some_and(|Count(count)| count == 1);
    let what = if everywhere {
        "sign_out_everywhere"
    } else {
        "sign_out"
    };
    call.desk.record(call.who(), what, "").await?;
    let (ended, cookie) = call.desk.sign_in.end(call.who(), everywhere);
    Ok(Reply::json(&Ended { ended }).with(header::SET_COOKIE, cookie))
}

pub(crate) async fn ticket(call: Call<'_>) -> Result<Reply, Problem> {
    let ticket = call.desk.sign_in.ticket(call.request)?;
    Ok(Reply::json(&Ticket {
        ticket,
        seconds: crate::sign_in::TICKET.as_secs(),
    }))
}

pub(crate) async fn openapi(call: Call<'_>) -> Result<Reply, Problem> {
    Ok(Reply::json(call.desk.document))
}
