//! Encryption, and how else strangers reach the server: sockets and proxies.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use transport_http::Network;

use crate::layer::Origins;
use crate::problem::{Origin, Problem};
use crate::sections::Http;

/// Transport encryption. The files are read again when they change.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Encrypt, with TLS 1.2 and 1.3. Nothing is served in plain text then, except on the Unix
    /// socket.
    pub enabled: bool,
    /// The certificate chain, PEM; that of the server comes first.
    #[schemars(extend("format" = "path"))]
    pub cert_file: Option<PathBuf>,
    /// The private key, PEM; only the server's user, and its group, may be able to read it.
    #[schemars(extend("format" = "path"))]
    pub key_file: Option<PathBuf>,
    /// The authorities that client certificates must come from, PEM.
    #[schemars(extend("format" = "path"))]
    pub client_ca_file: Option<PathBuf>,
    /// Revoked ones among those certificates, PEM: the list (CRL) of each authority in the chain of
    /// a client's certificate.
    #[schemars(extend("format" = "path"))]
    pub client_crl_file: Option<PathBuf>,
    /// Refuse clients without a certificate of those authorities. Otherwise they may have one.
    pub verify_client: bool,
    /// Seconds for which browsers are to remember that this host is to be reached by TLS alone; 0:
    /// no header is sent.
    #[schemars(range(max = 63_072_000))]
    pub hsts_seconds: u64,
}

/// Header in which a proxy names the client it speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`, with `X-Forwarded-Proto`.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// Headers that no handler is told.
const SECRET_HEADERS: [&str; 6] = [
    "authorization",
    "proxy-authorization",
    "cookie",
    "set-cookie",
    "x-api-key",
    "mcp-session-id",
];

/// Name in `http.trusted_proxies` for any peer that connects to the Unix socket.
const UNIX: &str = "unix";

impl Http {
    /// Returns true if a peer on the Unix socket may name the client it speaks for.
    pub fn trusts_unix_socket(&self) -> bool {
        self.trusted_proxies.iter().any(|proxy| proxy == UNIX)
    }

    /// The proxies that may say whom they speak for.
    pub fn trusted_networks(&self) -> Vec<Network> {
        let networks = self.trusted_proxies.iter().filter(|proxy| *proxy != UNIX);
        networks.filter_map(|proxy| proxy.parse().ok()).collect()
    }

    /// The permissions of the Unix socket.
    pub fn unix_socket_permissions(&self) -> Option<u32> {
        let digits = &self.unix_socket_mode;
        let mode = u32::from_str_radix(digits, 8).ok()?;
        (mode <= 0o777 && (3..=4).contains(&digits.len())).then_some(mode)
    }
}

pub(crate) fn check(http: &Http, origins: &Origins, problems: &mut Vec<Problem>) {
    let origin = |key: &str| origins.get(key).cloned().unwrap_or(Origin::Default);
    let mut error = |key: &str, message: String, hint: &str| {
        let problem = Problem::error(origin(key), message).key(key).hint(hint);
        problems.push(problem);
    };
    let tls = &http.tls;
    let (enabled, verify) = ("http.tls.enabled", "http.tls.verify_client");
    if tls.enabled {
        let files = [("cert_file", &tls.cert_file), ("key_file", &tls.key_file)];
        let missing: Vec<_> = files
            .iter()
            .filter(|(_, file)| file.is_none())
            .map(|(name, _)| format!("`http.tls.{name}`"))
            .collect();
        if !missing.is_empty() {
            let message = format!("`{enabled}: true` needs {}", missing.join(" and "));
            let hint = "both are files in PEM: the chain of certificates, and the private key";
            error(enabled, message, hint);
        }
        if !http.tcp {
            let message = format!("`{enabled}: true` encrypts nothing: `http.tcp` is false");
            let hint = "a Unix socket is not encrypted; leave out one of the two";
            error(enabled, message, hint);
        }
        if tls.verify_client && tls.client_ca_file.is_none() {
            let message = format!("`{verify}: true` needs `http.tls.client_ca_file`");
            let hint = "name a file in PEM with the authorities that issue client certificates";
            error(verify, message, hint);
        }
        if tls.client_crl_file.is_some() && tls.client_ca_file.is_none() {
            let key = "http.tls.client_crl_file";
            let message = format!("`{key}` needs `http.tls.client_ca_file`");
            let hint = "name a file in PEM with the authorities that issue client certificates";
            error(key, message, hint);
        }
    } else if tls.verify_client {
        // To ignore it would leave a listener open that the operator believes to be closed.
        let message = format!("`{verify}: true` has no effect: `{enabled}` is false");
        error(verify, message, "set `http.tls.enabled: true`");
    }
    if !http.tcp && http.unix_socket.is_none() {
        let message = "the server would listen nowhere: `http.tcp` is false".to_owned();
        let hint = "set `http.unix_socket` to the path of a socket, or leave out `http.tcp`";
        error("http.tcp", message, hint);
    }
    if http.unix_socket_permissions().is_none() {
        let key = "http.unix_socket_mode";
        let message = format!(
            "`{key}` must be permissions in octal digits, found `{}`",
            http.unix_socket_mode
        );
        let hint = "write \"0600\" for the server's user alone, \"0660\" for its group too";
        error(key, message, hint);
    }
    for proxy in &http.trusted_proxies {
        if proxy == UNIX {
            continue;
        }
        if let Err(why) = proxy.parse::<Network>() {
            let key = "http.trusted_proxies";
            let message = format!("`{key}`: `{proxy}`: {why}");
            let hint = "name addresses of proxies, networks such as 10.0.0.0/8, or `unix`";
            error(key, message, hint);
        }
    }
    for name in &http.pass_headers {
        if SECRET_HEADERS
            .iter()
            .any(|it| name.eq_ignore_ascii_case(it))
        {
            let key = "http.pass_headers";
            let message = format!("`{key}`: `{name}` identifies callers, and is not passed on");
            let hint = "leave it out; handlers are told who calls by `owlclaw_worker.caller()`";
            error(key, message, hint);
        }
    }
    if !tls.enabled && (tls.cert_file.is_some() || tls.key_file.is_some()) {
        let message = format!("certificates are named, and `{enabled}` is false");
        let key = "http.tls.cert_file";
        let key = if origins.contains_key(key) {
            key
        } else {
            "http.tls.key_file"
        };
        let hint = "set `http.tls.enabled: true` to encrypt";
        problems.push(Problem::warning(origin(key), message).key(key).hint(hint));
    }
}
