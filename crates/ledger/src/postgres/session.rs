//! One connection to the database.

use super::{PostgresOpenError, PostgresOptions};
use crate::{record::codec::DecodeError, recorder::Durability};
use postgres_connection::ConnectError;
use std::{collections::HashMap, time::Duration};
use tokio::{task::JoinHandle, time};
use tokio_postgres::{Client, Error, Row, Statement, error::SqlState, types::ToSql};

/// The values of a statement, in order.
pub(super) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// A connection, and the statements that it has prepared.
pub(super) struct Session {
    client: Client,
    driver: JoinHandle<()>,
    prepared: HashMap<Box<str>, Statement>,
}

/// Reason why a statement was not carried out, or why it is unknown whether it was.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("there is no connection")]
    Connect(#[from] ConnectError),
    #[error("the database failed")]
    Database(#[from] Error),
    #[error("the database did not answer within {0:?}")]
    Silent(Duration),
    #[error("what came of a group that had been stored cannot be read")]
    Outcomes(#[source] DecodeError),
    /// A statement succeeded and has not done what it says.
    #[error(
        "the database has not stored what it was told to: a trigger, a rule or a row-security policy on the tables of \
         the schema owlclaw_ledger is in the way"
    )]
    NotStored,
    /// Entries that this process has stored are gone.
    #[error(
        "entry {0}, which this server has stored, is not in the ledger any more: an earlier copy has replaced the database, or \
         a standby that lacked the entry has taken over. Nothing is written to it: put back the database that has the \
         entry, or stop all servers and have an operator accept what is there with `ledger accept-rollback`"
    )]
    RolledBack(u64),
}

impl Session {
    /// Connects, in this runtime.
    pub(super) async fn connect(options: &PostgresOptions) -> Result<Self, SessionError> {
        within(options.max_attempt, async {
            let (client, driver) = options.address.connect().await?;
            let session = Self {
                client,
                driver,
                prepared: HashMap::new(),
            };
            session.set_up(options).await?;
            Ok(session)
        })
        .await
    }

    /// Bounds what a vanished peer can hold up, and says what a commit means. A server may commit
    /// more strictly than asked; its own setting is only changed when it promises less.
    async fn set_up(&self, options: &PostgresOptions) -> Result<(), SessionError> {
        let commit = match options.durability {
            Durability::Strict => {
                "SELECT set_config('synchronous_commit', 'on', false)
                 WHERE current_setting('synchronous_commit') IN ('off', 'local');"
            }
            Durability::Relaxed => "SET synchronous_commit = off;",
        };
        let milliseconds = options.max_attempt.as_millis();
        let sql = format!(
            "{commit}
             SET client_min_messages = warning;
             SET lock_timeout = {milliseconds};
             SET idle_in_transaction_session_timeout = {milliseconds};
             SELECT set_config(name, '1s', false) FROM pg_settings
             WHERE name = 'client_connection_check_interval';"
        );
        Ok(self.client.batch_execute(&sql).await?)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Carries out statements without values.
    pub(super) async fn run(&self, statements: &str) -> Result<(), Error> {
        self.client.batch_execute(statements).await
    }

    /// Asks. The statement stays prepared for the next time.
    pub(super) async fn query(&mut self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Error> {
        let statement = self.prepare(sql).await?;
        self.client.query(&statement, values).await
    }

    /// Asks for one row at most.
    pub(super) async fn query_opt(
        &mut self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Option<Row>, Error> {
        let statement = self.prepare(sql).await?;
        self.client.query_opt(&statement, values).await
    }

    /// Changes something; tells how many rows.
    pub(super) async fn execute(&mut self, sql: &str, values: Values<'_>) -> Result<u64, Error> {
        let statement = self.prepare(sql).await?;
        self.client.execute(&statement, values).await
    }

    /// Stores one row. Any other number is an error.
    pub(super) async fn store(
        &mut self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<(), SessionError> {
        match self.execute(sql, values).await? {
            1 => Ok(()),
            _ => Err(SessionError::NotStored),
        }
    }

    /// Asks in words that are put together for the occasion.
    pub(super) async fn query_once(
        &self,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Error> {
        self.client.query(sql, values).await
    }

    /// The prepared form of a statement.
    pub(super) async fn prepare(&mut self, sql: &str) -> Result<Statement, Error> {
        if let Some(statement) = self.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(sql).await?;
        self.prepared.insert(sql.into(), statement.clone());
        Ok(statement)
    }

    /// For statements that are sent together.
    pub(super) fn client(&self) -> &Client {
        &self.client
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The task would wait for answers that nobody wants any more.
        self.driver.abort();
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

impl SessionError {
    /// State that the database reports, if the error is one of the database.
    pub(super) fn state(&self) -> Option<&SqlState> {
        match self {
            Self::Connect(error) => error.database().and_then(Error::code),
            Self::Database(error) => error.code(),
            Self::Silent(_) | Self::Outcomes(_) | Self::NotStored | Self::RolledBack(_) => None,
        }
    }

    /// Meaning of the error for opening a ledger.
    pub(super) fn explain(self, options: &PostgresOptions) -> PostgresOpenError {
        let address = options.to_string();
        let state = self.state().cloned();
        let source = Box::new(self);
        match state {
            None => PostgresOpenError::Unreachable { address, source },
            Some(
                SqlState::INVALID_PASSWORD
                | SqlState::INVALID_AUTHORIZATION_SPECIFICATION
                | SqlState::INVALID_CATALOG_NAME,
            ) => PostgresOpenError::Refused { address, source },
            Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
                PostgresOpenError::NotPermitted { address, source }
            }
            Some(SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME) => {
                PostgresOpenError::Missing { address }
            }
            Some(_) => PostgresOpenError::Database { address, source },
        }
    }
}

/// Bounds how long something may take.
pub(super) async fn within<T>(
    limit: Duration,
    future: impl Future<Output = Result<T, SessionError>>,
) -> Result<T, SessionError> {
    time::timeout(limit, future)
        .await
        .unwrap_or(Err(SessionError::Silent(limit)))
}
