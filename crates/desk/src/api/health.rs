//! Health of the server's parts, with remedies.

use std::collections::BTreeMap;

use ledger::system_now_us;
use operator::look::shown;
use schemars::JsonSchema;
use serde::Serialize;

use crate::call::Call;
use crate::reply::{Problem, Reply};

/// State of the server and its parts.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok` only if every part is, `degraded` otherwise.
    status: String,
    /// Version of the server.
    version: String,
    /// Parts, those first that do not work.
    parts: Vec<Part>,
    /// Address of the metrics, where there are some.
    metrics: Option<String>,
    /// Addresses of dashboards, by their names, as `desk.links` has them.
    links: BTreeMap<String, String>,
    /// Time at which the parts were asked, RFC 3339.
    at: String,
}

/// State of a part.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Part {
    /// Name of the part.
    name: String,
    /// True if it works now.
    ok: bool,
    /// A fault, or a remark.
    detail: Option<String>,
    /// Advice on a fault.
    remedy: Option<String>,
}

/// Advice on a part that does not work.
fn remedy(name: &str) -> &'static str {
    match name {
        "ledger" => {
            "calls are refused until the ledger can be written: look at the disk, or at the database, and at \
             `owlclaw-mcp doctor`"
        }
        "quotas" => {
            "calls are refused until use can be counted: look at the database of `ledger.url`"
        }
        "clients" => {
            "more clients are counted than `governance.max_clients` has room for: raise it, or look who they are"
        }
        "identity" | "issuer_keys" => {
            "look at the file of keys, and whether the issuer can be reached: `owlclaw-mcp doctor`"
        }
        "upstreams" => "look at the upstreams that failed: each says why, and what to do",
        "certificate" => "put a certificate in place that is good; it is read without a restart",
        "rules" | "policy" => {
            "mend the configuration file: `owlclaw-mcp config validate` names line and cure"
        }
        "offer" => {
            "`owlclaw-mcp config validate --import` says which rules and skills are about nothing"
        }
        "sessions" => "look at the disk, or raise `http.max_sessions`",
        "code" | "application" | "workers" => {
            "look at the log for the exception: the code before is in force until it is mended"
        }
        _ => "the log of the server says more; `owlclaw-mcp doctor` examines what it needs",
    }
}

pub(crate) async fn show(call: Call<'_>) -> Result<Reply, Problem> {
    let server = &call.desk.server;
    let health = server.health();
    let mut parts: Vec<_> = health
        .components
        .iter()
        .map(|part| Part {
            name: part.name.to_owned(),
            ok: part.ok,
            detail: part.detail.clone(),
            remedy: (!part.ok).then(|| remedy(part.name).to_owned()),
        })
        .collect();
    parts.sort_by_key(|part| part.ok);
    let config = server.config();
    let on_http = config.transport == config::Transport::Http && config.http.tcp;
    Ok(Reply::json(&Health {
        status: health.status.to_owned(),
        version: health.version.clone(),
        parts,
        metrics: on_http.then(|| "/metrics".to_owned()),
        links: config.desk.links.clone(),
        at: shown(system_now_us()),
    }))
}
