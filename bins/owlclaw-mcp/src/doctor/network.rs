//! Where clients reach the server.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use super::Finding;
use crate::config::{Config, Transport};

/// How long somebody may take who has the port.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) fn findings(config: &Config) -> Vec<Finding> {
    if config.transport == Transport::Stdio {
        return vec![Finding::ok(
            "port",
            "none is needed: clients start the server (transport: stdio)",
        )];
    }
    let mut findings = vec![port(SocketAddr::new(config.http.host, config.http.port))];
    findings.extend(certificate(config));
    findings
}

fn port(address: SocketAddr) -> Finding {
    const AREA: &str = "port";
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok(AREA, format!("{address} is free")),
        Err(error) => match error.kind() {
            io::ErrorKind::AddrInUse if answers(address) => {
                Finding::warning(AREA, format!("somebody serves {address} already"))
                    .hint("fine, if that is this server; else set http.port")
            }
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
    let files = [&tls.cert_file, &tls.key_file, &tls.client_ca_file];
    let files = files.into_iter().flatten();
    let unreadable =
        files.filter_map(|path| std::fs::File::open(path).err().map(|why| (path, why)));
    let mut findings: Vec<Finding> = unreadable
        .map(|(path, why)| {
            Finding::error(AREA, format!("{} cannot be read: {why}", path.display()))
        })
        .collect();
    let key = tls.key_file.as_deref();
    findings.extend(key.and_then(|path: &Path| super::storage::private(AREA, path)));
    findings
}
