//! Checks of the address that clients connect to.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, SystemTime};

use identity::KeyFile;
use transport_http::{Tls, TlsFiles};

use config::{Config, Transport};
use server::Finding;

const DAY_SECONDS: u64 = 24 * 60 * 60;
/// A certificate that is good for no longer wants to be renewed.
const SOON_DAYS: u64 = 30;
/// Time that a program that occupies the port may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    if config.transport == Transport::Stdio {
        return vec![Finding::ok(
            "port",
            "none is needed: clients start the server (transport: stdio)",
        )];
    }
    let mut findings = Vec::new();
    if config.http.tcp {
        findings.push(port(SocketAddr::new(config.http.host, config.http.port)));
    }
    findings.extend(certificate(config));
    findings.extend(keys(config));
    findings
}

fn port(address: SocketAddr) -> Finding {
    const AREA: &str = "port";
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok(AREA, format!("{address} is free")),
        Err(error) => match error.kind() {
            io::ErrorKind::AddrInUse if answers(address) => Finding::warning(
                AREA,
                format!("another process already listens on {address}"),
            )
            .hint("fine, if that is this server; else set http.port"),
            io::ErrorKind::AddrInUse => Finding::error(AREA, format!("{address} is taken"))
                .hint("set another http.port, or stop who has it (ss -ltnp)"),
            io::ErrorKind::PermissionDenied => {
                Finding::error(AREA, format!("{address} is not allowed: {error}"))
                    .hint("ports below 1024 need CAP_NET_BIND_SERVICE; set another http.port")
            }
            io::ErrorKind::AddrNotAvailable => Finding::error(
                AREA,
                format!("this machine has no address {}", address.ip()),
            )
            .hint("set http.host to 127.0.0.1, 0.0.0.0 or an address of this machine"),
            _ => Finding::error(AREA, format!("{address} cannot be had: {error}")),
        },
    }
}

fn answers(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PATIENCE).is_ok()
}

fn certificate(config: &Config) -> Vec<Finding> {
    const AREA: &str = "certificate";
    let tls = &config.http.tls;
    if !tls.enabled {
        let is_open = !config.http.host.is_loopback();
        let message = "clients from other machines talk to this server unencrypted";
        let finding = Finding::warning(AREA, message)
            .hint("set http.tls, or let a reverse proxy on the same machine end TLS");
        return is_open.then_some(finding).into_iter().collect();
    }
    let (Some(certificate), Some(key)) = (tls.cert_file.clone(), tls.key_file.clone()) else {
        // What is missing was told with the configuration.
        return Vec::new();
    };
    let loaded = Tls::load(TlsFiles {
        certificate,
        key,
        client_authorities: tls.client_ca_file.clone(),
        client_revocations: tls.client_crl_file.clone(),
        verify_client: tls.verify_client,
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let why = server::with_causes(&error);
            let hint = "see http.tls in docs/config.md";
            return vec![Finding::error(AREA, why).hint(hint)];
        }
    };
    let left = loaded.expires_at().duration_since(SystemTime::now());
    let days = left.map_or(0, |it| it.as_secs() / DAY_SECONDS);
    let message = format!("it is good for {days} days");
    let finding = match days {
        0 => Finding::error(AREA, "it has expired, or does today").hint("renew it"),
        1..=SOON_DAYS => Finding::warning(AREA, message).hint("renew it"),
        _ => Finding::ok(AREA, message),
    };
    vec![finding]
}

/// Keys that clients prove themselves with.
fn keys(config: &Config) -> Option<Finding> {
    const AREA: &str = "keys";
    let file = &config.identity.api_keys.as_ref()?.file;
    let place = file.display();
    let make = "owlclaw-mcp keys create --principal NAME";
    let file_is_there = file.exists();
    Some(match KeyFile::at(file).list() {
        Ok(keys) if keys.is_empty() => {
            Finding::warning(AREA, format!("there is no key in {place}")).hint(make)
        }
        Ok(keys) => Finding::ok(AREA, format!("{} in {place}", keys.len())),
        Err(error) => {
            let hint = match file_is_there {
                true => "correct the file or restore a copy; see docs/identity.md",
                false => make,
            };
            Finding::error(AREA, server::with_causes(&error)).hint(hint)
        }
    })
}
