//! Address of the database, and options for its use.

use super::chain::ChargeStatements;
use crate::recorder::{Durability, system_now_us};
use std::{fmt, sync::Arc, time::Duration};
use tokio_postgres::{
    Config,
    config::{Host, SslMode, TargetSessionAttrs},
};

/// Default of the time for which a server that does not answer is taken to be alive.
pub const DEFAULT_LEASE: Duration = Duration::from_secs(30);

/// Default of the longest time of one attempt to store, to connect or to query.
pub const DEFAULT_MAX_ATTEMPT: Duration = Duration::from_secs(5);

/// Time to wait for a peer that has vanished.
const VANISHED: Duration = Duration::from_secs(10);

/// Address of the database that holds a ledger, and options of its use. It never shows the
/// password.
#[derive(Clone)]
pub struct PostgresOptions {
    pub(super) config: Config,
    pub(super) durability: Durability,
    pub(super) lease: Duration,
    pub(super) max_attempt: Duration,
    pub(super) now: fn() -> u64,
    pub(super) charges: Option<Arc<ChargeStatements>>,
}

/// An address that cannot be used. What the address was is not told: it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostgresAddressError {
    /// An address that is not one of a database.
    #[error(
        "the database's address must be like postgres://USER:PASSWORD@HOST:PORT/DATABASE, with \
         special characters of the password written as %XX"
    )]
    Malformed,
    /// An address without a host.
    #[error("the database's address names no host")]
    NoHost,
    /// An address that asks for an encrypted connection.
    #[error(
        "the database's address asks for an encrypted connection, which this program cannot make: \
         lead it through a tunnel or a local proxy, and leave sslmode out"
    )]
    Encrypted,
}

impl PostgresOptions {
    /// Options for the database at this address: `postgres://user:password@host:port/database`, or
    /// `key=value` pairs as libpq has them. Connections are not encrypted.
    ///
    /// # Errors
    ///
    /// [`PostgresAddressError`] when there can be no connection to such an address.
    pub fn new(address: &str) -> Result<Self, PostgresAddressError> {
        // What the parser says may hold a piece of the password, so it is left behind.
        let mut config: Config = address
            .parse()
            .map_err(|_| PostgresAddressError::Malformed)?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(PostgresAddressError::NoHost);
        }
        if config.get_ssl_mode() == SslMode::Require {
            return Err(PostgresAddressError::Encrypted);
        }
        if config.get_application_name().is_none() {
            config.application_name("owlclaw-mcp ledger");
        }
        config
            // Of several hosts, the one that can be written to: the others are its copies.
            .target_session_attrs(TargetSessionAttrs::ReadWrite)
            .keepalives_idle(VANISHED)
            .keepalives_interval(VANISHED / 5)
            .keepalives_retries(3)
            .tcp_user_timeout(VANISHED);
        Ok(Self {
            config,
            durability: Durability::Strict,
            lease: DEFAULT_LEASE,
            max_attempt: DEFAULT_MAX_ATTEMPT,
            now: system_now_us,
            charges: None,
        })
    }

    /// Sets the durability of stored entries. With [`Durability::Relaxed`] the database answers
    /// before it has written: a crash of the database loses the entries stored in the last few
    /// moments.
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets the time after a server's last sign of life at which it is declared dead, and its open
    /// calls ended as unknown; [`DEFAULT_LEASE`] by default, a tenth of a second at the least. All
    /// servers of a ledger should have the same.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease.max(Duration::from_millis(100));
        self
    }

    /// Sets the longest time of one attempt to store, to connect or to query;
    /// [`DEFAULT_MAX_ATTEMPT`] by default.
    #[must_use]
    pub fn with_max_attempt(mut self, max_attempt: Duration) -> Self {
        self.max_attempt = max_attempt;
        self
    }

    /// Stores costs of calls in this table of the same database, in the transaction that stores their
    /// ends. Its columns are `principal` (`text`), `node`, `sequence` and `actual` (`bigint`); the
    /// first three are its key. The name goes into statements as it is. Without a table no charges are
    /// taken ([`LedgerStore::takes_charges`]).
    ///
    /// [`LedgerStore::takes_charges`]: crate::store::LedgerStore::takes_charges
    #[must_use]
    pub fn with_charges(mut self, table: &str) -> Self {
        self.charges = Some(Arc::new(ChargeStatements::new(table)));
        self
    }

    /// Sets the clock by which expired rows are found, in microseconds since 1970; the system's by
    /// default. For tests, like the clock of [`RecorderOptions`].
    ///
    /// [`RecorderOptions`]: crate::recorder::RecorderOptions
    #[must_use]
    pub fn with_now(mut self, now: fn() -> u64) -> Self {
        self.now = now;
        self
    }
}

/// The address without the password.
impl fmt::Display for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://")?;
        if let Some(user) = self.config.get_user() {
            write!(f, "{user}@")?;
        }
        let ports = self.config.get_ports();
        for (index, host) in self.config.get_hosts().iter().enumerate() {
            if 0 < index {
                f.write_str(",")?;
            }
            match host {
                Host::Tcp(name) => f.write_str(name)?,
                #[cfg(unix)]
                Host::Unix(path) => write!(f, "{}", path.display())?,
            }
            if let Some(port) = ports.get(index).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        if let Some(database) = self.config.get_dbname() {
            write!(f, "/{database}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("address", &self.to_string())
            .field("durability", &self.durability)
            .field("lease", &self.lease)
            .field("max_attempt", &self.max_attempt)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_show() {
        for address in [
            "postgres://mary:hidden@db.example:7/ledger",
            "host=db.example user=mary password=hidden port=7 dbname=ledger",
        ] {
            let options = PostgresOptions::new(address).unwrap();
            assert_eq!(options.to_string(), "postgres://mary@db.example:7/ledger");
            assert!(!format!("{options:?}").contains("hidden"), "{options:?}");
        }
        for address in [
            "postgres://mary:hid?den@db.example/ledger",
            "postgres://mary:hid@den@db.example/ledger",
            "postgres://mary:hidden@db.example:port/ledger",
            "host=db.example password=hidden oops=1",
            "mysql://mary:hidden@db.example/ledger",
        ] {
            let Err(error) = PostgresOptions::new(address) else {
                continue;
            };
            let said = format!("{error} {error:?}");
            assert!(!said.contains("hid") && !said.contains("den"), "{said}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused_early() {
        let check = |address: &str, expected| {
            assert_eq!(PostgresOptions::new(address).unwrap_err(), expected);
        };
        check("ledger.sqlite", PostgresAddressError::Malformed);
        check("postgres:///ledger", PostgresAddressError::NoHost);
        check(
            "postgres://db.example/ledger?sslmode=require",
            PostgresAddressError::Encrypted,
        );
        // Which this client does not know, and must not take for less.
        check(
            "postgres://db.example/ledger?sslmode=verify-full",
            PostgresAddressError::Malformed,
        );
    }
}
