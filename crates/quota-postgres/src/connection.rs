//! One connection, set up so that what is committed through it is committed.

use crate::{error::OpenError, schema};
use postgres_connection::Address;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Row, Statement, types::ToSql};
use tracing::warn;

/// The longest that an attempt to connect may take, a report, or a round of tidying.
pub(crate) const LONG: Duration = Duration::from_secs(10);

/// A node's clock that differs by more than this from the database's is worth a warning: the
/// counters do not mind, but time windows of the policy go by it.
const MAX_CLOCK_DIFFERENCE_MS: u64 = 5_000;

/// Settings of a session. Every table is small or has an index for the query, so a plan made while
/// it was empty must not be one that reads all of it.
const SETTINGS: &str = "
    SET default_transaction_isolation = 'read committed';
    SET default_transaction_read_only = off;
    SET enable_seqscan = off;
    SET enable_bitmapscan = off;
    SET plan_cache_mode = force_generic_plan;
    SET jit = off;
    SELECT set_config('synchronous_commit', 'on', false)
        WHERE current_setting('synchronous_commit') IN ('off', 'local');
";

/// The way to the database at this address.
pub(crate) fn configure(url: &str) -> Result<Address, OpenError> {
    let address = Address::new(url).map_err(OpenError::Address)?;
    Ok(address.with(|config| {
        if config.get_application_name().is_none() {
            config.application_name("owlclaw-quota");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(LONG);
        }
    }))
}

/// A session and what keeps it going.
pub(crate) struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    step: Option<Statement>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Returns true if a failed statement has certainly changed nothing.
pub(crate) fn was_rolled_back(error: &tokio_postgres::Error) -> bool {
    use tokio_postgres::error::Severity;
    // What is fatal ends the connection, perhaps between the commit and its answer.
    error
        .as_db_error()
        .is_some_and(|error| error.parsed_severity() == Some(Severity::Error))
}

impl Connection {
    /// Connects. The caller bounds the time.
    pub(crate) async fn open(address: &Address) -> Result<Self, OpenError> {
        let (client, driver) = address.connect().await.map_err(OpenError::Reach)?;
        let this = Self {
            client,
            driver,
            step: None,
        };
        this.client
            .batch_execute(SETTINGS)
            .await
            .map_err(OpenError::Connect)?;
        Ok(this)
    }

    /// Looks whether the database is fit, and makes the tables.
    pub(crate) async fn prepare(&mut self) -> Result<(), OpenError> {
        let row = self
            .client
            .query_one(
                "SELECT current_setting('server_encoding'),
                    floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint",
                &[],
            )
            .await
            .map_err(OpenError::Connect)?;
        let encoding: String = row.try_get(0).map_err(OpenError::Connect)?;
        if encoding != "UTF8" {
            return Err(OpenError::Encoding(encoding));
        }
        let clock: i64 = row.try_get(1).map_err(OpenError::Connect)?;
        let here = SystemTime::now().duration_since(UNIX_EPOCH);
        let here = here.map_or(0, |since| since.as_millis() as u64);
        let difference_ms = here.abs_diff(u64::try_from(clock).unwrap_or(0));
        if MAX_CLOCK_DIFFERENCE_MS < difference_ms {
            warn!(
                difference_ms,
                "the clocks of this node and of the quota database differ"
            );
        }
        schema::prepare(&mut self.client).await
    }

    /// Has the database give up statements after this time.
    pub(crate) async fn set_timeout(&self, timeout: Duration) -> Result<(), OpenError> {
        let millis = timeout.as_millis().clamp(1, i32::MAX as u128);
        self.client
            .batch_execute(&format!("SET statement_timeout = {millis}"))
            .await
            .map_err(OpenError::Connect)
    }

    /// Asks for one row.
    pub(crate) async fn one(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Row, tokio_postgres::Error> {
        self.client.query_one(statement, parameters).await
    }

    /// Asks for all rows.
    pub(crate) async fn all(
        &self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.query(statement, parameters).await
    }

    /// As [`Connection::all`], for the one statement that is worth preparing.
    pub(crate) async fn step(
        &mut self,
        statement: &str,
        parameters: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let prepared = match &self.step {
            Some(prepared) => prepared,
            None => self.step.insert(self.client.prepare(statement).await?),
        };
        self.client.query(prepared, parameters).await
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Ready when the connection has ended.
    pub(crate) async fn ended(&mut self) {
        let _ = (&mut self.driver).await;
    }
}
