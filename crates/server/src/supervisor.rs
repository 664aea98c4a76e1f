//! Notifications for systemd, as `Type=notify` wants them: datagrams to the socket that it names.
//!
//! The protocol is that of `sd_notify(3)`. Without such a socket nothing is sent.
//!
//! The protocol is that of `sd_notify(3)`. Without such a socket nothing is told to anybody.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Process that started this one and asked for notifications, if there is one.
#[derive(Debug, Default)]
pub(super) struct Supervisor {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// By the environment of this process.
    pub(super) fn of_process() -> Self {
        let text = |name| std::env::var(name).ok();
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        let socket = connect(&name).inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                "who started the server cannot be told how it is"
            );
        });
        // It may be meant for a process that has started this one.
        let is_ours = text("WATCHDOG_PID").is_none_or(|id| id == std::process::id().to_string());
        let microseconds = text("WATCHDOG_USEC").filter(|_| is_ours);
        Self {
            socket: socket.ok(),
            watchdog: microseconds.and_then(|text| watchdog_interval(&text)),
        }
    }

    /// Sends a notification: lines of `NAME=value`. Never waits.
    pub(super) fn tell(&self, state: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(state.as_bytes())
        {
            tracing::debug!(%error, state, "who started the server was not told");
        }
    }

    /// Interval at which to report that the server is alive, if that is wanted.
    pub(super) fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some())
    }
}

/// Half of what is allowed, as `sd_watchdog_enabled(3)` recommends.
fn watchdog_interval(microseconds: &str) -> Option<Duration> {
    let microseconds: u64 = microseconds.parse().ok()?;
    (0 < microseconds).then(|| Duration::from_micros(microseconds.div_ceil(2)))
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address(name)?)?;
    Ok(socket)
}

/// A path, or a name that is in no file system, which is written with an `@`.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    #[cfg(target_os = "linux")]
    if let Some(name) = name.as_bytes().strip_prefix(b"@") {
        use std::os::linux::net::SocketAddrExt;
        return SocketAddr::from_abstract_name(name);
    }
    SocketAddr::from_pathname(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_told_twice_as_often_as_it_wants() {
        let rows = [
            ("30000000", Some(Duration::from_secs(15))),
            ("1", Some(Duration::from_micros(1))),
            ("0", None),
            ("soon", None),
        ];
        for (text, interval) in rows {
            assert_eq!(watchdog_interval(text), interval, "{text}");
        }
    }

    #[test]
    fn a_socket_that_nobody_reads_holds_nothing_up() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let peer = UnixDatagram::bind(&path).unwrap();
        let supervisor = Supervisor {
            socket: connect(path.as_os_str()).ok(),
            watchdog: None,
        };
        for _ in 0..10_000 {
            supervisor.tell("WATCHDOG=1");
        }
        let mut told = [0; 64];
        let count = peer.recv(&mut told).unwrap();
        assert_eq!(&told[..count], b"WATCHDOG=1");
    }
}
