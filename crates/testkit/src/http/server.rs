//! A server as a child process that listens.

use std::{
    net::{Ipv4Addr, SocketAddr},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tokio::{net::TcpStream, process::Command, time::Instant};

use super::HttpClient;
use crate::{child::ChildProcess, port::Port, wait::GENEROUS};

/// A server as a child process, listening on loopback.
#[derive(Debug)]
pub struct HttpServer {
    process: ChildProcess,
    address: SocketAddr,
}

impl HttpServer {
    /// Starts the server and waits until it accepts connections. Its stdin is empty; its stdout
    /// is thrown away.
    ///
    /// # Panics
    ///
    /// If the command cannot be started, ends early, or does not listen within [`GENEROUS`].
    pub async fn spawn(mut command: Command, port: Port) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = ChildProcess::spawn(command);
        let end = Instant::now() + GENEROUS;
        loop {
            let port = match port {
                Port::Fixed(port) => Some(port),
                Port::Announced(find) => whole_lines(&process.stderr()).find_map(find),
            };
            if let Some(port) = port {
                let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                if TcpStream::connect(address).await.is_ok() {
                    return Self { process, address };
                }
            }
            let ended = process
                .child_mut()
                .try_wait()
                .expect("a child can be asked");
            if ended.is_some() {
                let status = process.wait_exit(GENEROUS).await;
                panic!(
                    "ended ({status}) before it listened; stderr:\n{}",
                    process.stderr()
                );
            }
            let stderr = || process.stderr();
            assert!(
                Instant::now() < end,
                "does not listen; stderr:\n{}",
                stderr()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A new client of its endpoint `/mcp`.
    #[must_use]
    pub fn client(&self) -> HttpClient {
        HttpClient::new(self.address)
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &ChildProcess {
        &self.process
    }

    /// Text that the server has written to its stderr until now.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// As [`ChildProcess::wait_exit`].
    ///
    /// # Panics
    ///
    /// If the server still runs after `limit`.
    pub async fn wait_exit(&mut self, limit: Duration) -> ExitStatus {
        self.process.wait_exit(limit).await
    }
}

/// The lines of a text, without one that is still being written.
fn whole_lines(text: &str) -> impl Iterator<Item = &str> {
    let end = text.rfind('\n').unwrap_or(0);
    text[..end].lines()
}
