//! Address of the database, and options for its use.

use super::chain::ChargeStatements;
use crate::recorder::{Durability, system_now_us};
use postgres_connection::{Address, AddressError};
use std::{fmt, sync::Arc, time::Duration};
use tokio_postgres::config::TargetSessionAttrs;

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
    pub(super) address: Address,
    pub(super) durability: Durability,
    pub(super) lease: Duration,
    pub(super) max_attempt: Duration,
    pub(super) now: fn() -> u64,
    pub(super) charges: Option<Arc<ChargeStatements>>,
}

impl PostgresOptions {
    /// Options for the database at this address, as [`Address::new`] reads it.
    ///
    /// # Errors
    ///
    /// [`AddressError`] when there can be no connection to such an address.
    pub fn new(address: &str) -> Result<Self, AddressError> {
        let address = Address::new(address)?.with(|config| {
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
        });
        Ok(Self {
            address,
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
    /// first three are its key. What such costs correct goes to the table `orphans`, whose key is `node` and `sequence`.
    /// The names go into statements as they are. Without a table no charges are
    /// taken ([`LedgerStore::takes_charges`]).
    ///
    /// [`LedgerStore::takes_charges`]: crate::store::LedgerStore::takes_charges
    #[must_use]
    pub fn with_charges(mut self, table: &str, orphans: &str) -> Self {
        self.charges = Some(Arc::new(ChargeStatements::new(table, orphans)));
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
        self.address.fmt(f)
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
