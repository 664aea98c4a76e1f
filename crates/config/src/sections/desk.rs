//! Settings of the desk: the page and the API on which operators decide and look.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;
use crate::sections::{Config, Transport};

/// The desk: a web page, and an API for programs (`/admin/v1`), on which operators decide approvals and
/// look at calls, tools, upstreams and rules. It has an address of its own, with any `transport`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Desk {
    /// Serve the desk.
    pub enabled: bool,
    /// The address to listen on: an IP address, or `localhost` for 127.0.0.1. Any other than this
    /// machine's own needs `http.tls` and `identity`.
    #[serde(deserialize_with = "crate::host::deserialize")]
    #[schemars(with = "String", extend("format" = "host"))]
    pub host: IpAddr,
    /// The port to listen on; 0 for any that is free, which `owlclaw-mcp desk` finds.
    pub port: u16,
    /// Names by which browsers may reach the desk besides those of this machine, such as that of a proxy
    /// in front of it.
    pub allowed_hosts: Vec<String>,
    /// Rights on the desk of single clients, by their names.
    pub clients: BTreeMap<String, DeskRole>,
    /// Rights on the desk that roles of clients give. Of several the highest counts; the roles of
    /// `identity.operator_roles` give those of an operator.
    pub roles: BTreeMap<String, DeskRole>,
    /// Addresses that the desk links to from *Usage* and *Health*, by the names that it shows, such as those of Grafana,
    /// Prometheus or traces of this server: `http` or `https`, without a user or password; at most 16.
    pub links: BTreeMap<String, String>,
    /// Minutes without a request after which a person has to sign in again.
    #[schemars(range(min = 1, max = 1_440))]
    pub idle_minutes: u64,
    /// Hours after which a person has to sign in again in any case.
    #[schemars(range(min = 1, max = 168))]
    pub session_hours: u64,
}

/// Rights on the desk; each has those of the ones before it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum DeskRole {
    /// Looks at everything and changes nothing.
    Viewer,
    /// Decides approvals.
    Approver,
    /// Changes rules, approves and holds definitions, makes and revokes keys, sets and removes secrets, forgets credentials,
    /// connects upstreams anew, ends sessions and calls tools.
    Operator,
}

impl DeskRole {
    /// Name of the role.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Approver => "approver",
            Self::Operator => "operator",
        }
    }
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            enabled: false,
            host: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 8091,
            allowed_hosts: Vec::new(),
            clients: BTreeMap::new(),
            roles: BTreeMap::new(),
            links: BTreeMap::new(),
            idle_minutes: 30,
            session_hours: 12,
        }
    }
}

/// The most links.
const MAX_LINKS: usize = 16;
/// The most characters of the name of a link, and of its address.
const MAX_LINK_NAME: usize = 40;
const MAX_LINK_URL: usize = 2_000;

/// Reason why a link is not shown to people.
fn link_fault(name: &str, url: &str) -> Option<String> {
    let odd = |it: char| it.is_control() || redaction::is_misleading(it);
    if name.trim().is_empty() || MAX_LINK_NAME < name.chars().count() || name.contains(odd) {
        return Some(format!(
            "its name must have 1 to {MAX_LINK_NAME} characters, all of them visible"
        ));
    }
    if MAX_LINK_URL < url.len() || url.contains(|it: char| odd(it) || it.is_whitespace()) {
        return Some(format!(
            "its address has a space or an invisible character, or more than {MAX_LINK_URL} bytes"
        ));
    }
    let url = http_client::parse_url(url, &["http", "https"]);
    let why = url.err()?;
    Some(match why {
        http_client::BadUrl::Scheme => "its address must begin with http:// or https://".to_owned(),
        http_client::BadUrl::Credentials => {
            "its address has a user or a password in front of the host".to_owned()
        }
        why => format!("of its address, {why}"),
    })
}

pub(crate) fn check(config: &Config, origins: &Origins, problems: &mut Vec<Problem>) {
    let desk = &config.desk;
    if !desk.enabled {
        return;
    }
    let error =
        |key: &str, message: String| Problem::error(origin_near(origins, key), message).key(key);
    for (name, url) in &desk.links {
        if let Some(fault) = link_fault(name, url) {
            let key = child("desk.links", name);
            // Neither is repeated: a terminal obeys some characters, and a password may stand there.
            let message = format!("a link of `desk.links` cannot be used: {fault}");
            let hint = "write one such as `Grafana: https://grafana.example.com/d/owlclaw`";
            problems.push(error(&key, message).hint(hint));
        }
    }
    if MAX_LINKS < desk.links.len() {
        let message = format!("`desk.links` has more than {MAX_LINKS} links");
        problems.push(error("desk.links", message));
    }
    let is_encrypted = config.transport == Transport::Http && config.http.tls.enabled;
    let may_be_open = is_encrypted && config.identity.is_configured();
    if !(desk.host.is_loopback() || may_be_open) {
        let message = format!(
            "other machines can reach `desk.host` {}, and what they send is not encrypted or proves nothing",
            desk.host
        );
        let hint = "listen on 127.0.0.1 (a proxy or `ssh -L` brings others there), or configure `identity` and \
                    `http.tls` with `transport: http`";
        problems.push(error("desk.host", message).hint(hint));
    }
    if !config.identity.is_configured() {
        let named = [
            ("desk.clients", desk.clients.keys().next()),
            ("desk.roles", desk.roles.keys().next()),
        ];
        for (section, name) in named {
            if let Some(name) = name {
                let key = child(section, name);
                let message = format!("`{key}` has no effect: clients are not authenticated here");
                let hint = "configure `identity` (`api_keys: {}` is the shortest), or leave it out: \
                            `owlclaw-mcp desk` signs the user of this machine in";
                problems.push(error(&key, message).hint(hint));
            }
        }
    }
}
