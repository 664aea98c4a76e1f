//! Connections to a `PostgreSQL` database: lent to one reader at a time, or listening.

use std::{
    collections::HashMap,
    fmt,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::StreamExt as _;
use postgres_connection::Address;
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};
use tokio_postgres::{Client, Row, Statement, error::SqlState};

use crate::databases::{
    postgres::{Asked, GRACE, Rows, Text},
    sqlite::{Bounds, Column, Found, QueryError, Table, quoted, same_name},
};

/// Statements that a connection keeps prepared.
const MAX_PREPARED: usize = 200;

/// The most columns, of all tables together, that are looked at.
const MAX_COLUMNS: usize = 50_000;

/// Tables and views of all schemas that the user may look into, with the columns that it may read.
const TABLES: &str = "
    SELECT n.nspname::text, c.relname::text, c.relkind IN ('v', 'm'), a.attname::text,
        pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, i.indexrelid IS NOT NULL
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_catalog.pg_index i ON i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey)
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
        AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
        AND pg_catalog.has_schema_privilege(n.oid, 'USAGE')
        AND pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT')
    ORDER BY n.nspname <> 'public', n.nspname, c.relname, a.attnum
    LIMIT $1";

/// Transactions that are seen: nothing else can be read as long as it is the same
/// (<https://www.postgresql.org/docs/current/functions-info.html>, `pg_current_snapshot`).
const SNAPSHOT: &str = "SELECT pg_catalog.pg_current_snapshot()::text";

/// Name of the schema whose tables are offered without its name.
const PUBLIC: &str = "public";

/// Connections to a database, made when they are needed.
pub(crate) struct Pool {
    pub(crate) address: Address,
    timeout: Duration,
    places: Semaphore,
    idle: Mutex<Vec<Connection>>,
}

struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    prepared: HashMap<String, Statement>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection that hears notifications until it is dropped.
#[derive(Debug)]
pub(crate) struct Ear {
    client: Client,
    driver: JoinHandle<()>,
}

impl Ear {
    /// True if nothing more can be heard.
    pub(crate) fn is_deaf(&self) -> bool {
        self.client.is_closed() || self.driver.is_finished()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// A connection on loan. One that is not given back is closed, and what it does is ended at the server.
pub(crate) struct Lent<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    is_used: bool,
}

impl Pool {
    pub(crate) fn new(address: Address, timeout: Duration, most: usize) -> Self {
        Self {
            address,
            timeout,
            places: Semaphore::new(most),
            idle: Mutex::default(),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn lend(&self) -> Result<Lent<'_>, QueryError> {
        let idle = self.idle().pop();
        let (connection, is_used) = match idle.filter(|it| !it.client.is_closed()) {
            Some(connection) => (connection, true),
            None => (self.connect().await?, false),
        };
        Ok(Lent {
            pool: self,
            connection: Some(connection),
            is_used,
        })
    }

    /// A connection of its own that wakes `woken` with each notification of a channel.
    pub(crate) async fn ear(&self, channel: &str, woken: Arc<Notify>) -> Result<Ear, QueryError> {
        let listening = async {
            let (client, mut heard) = self.address.connect_and_hear(1).await?;
            let driver = tokio::spawn(async move {
                while heard.recv().await.is_some() {
                    woken.notify_one();
                }
            });
            let ear = Ear { client, driver };
            let listen = format!("LISTEN {}", quoted(channel));
            ear.client.batch_execute(&listen).await?;
            Ok(ear)
        };
        let listening = tokio::time::timeout(GRACE, listening).await;
        listening.unwrap_or(Err(QueryError::TooLong(GRACE)))
    }

    async fn connect(&self) -> Result<Connection, QueryError> {
        let timeout = self.timeout.as_millis();
        let connecting = async {
            let (client, driver) = self.address.connect().await?;
            let connection = Connection {
                client,
                driver,
                prepared: HashMap::new(),
            };
            let settings = format!(
                "SET default_transaction_read_only = on; SET statement_timeout = {timeout}; \
                 SET lock_timeout = {timeout}; SET idle_in_transaction_session_timeout = {}",
                timeout + GRACE.as_millis()
            );
            connection.client.batch_execute(&settings).await?;
            Ok(connection)
        };
        let connected = tokio::time::timeout(GRACE, connecting).await;
        connected.unwrap_or(Err(QueryError::TooLong(GRACE)))
    }

    /// Carries out one statement that reads.
    pub(crate) async fn read(&self, asked: &Asked, bounds: Bounds) -> Result<Rows, QueryError> {
        let collect = |row: &Row, rows: &mut Collected| rows.take(row, bounds);
        let collected = self.each(asked, Collected::default(), collect).await?;
        Ok(Rows {
            rows: collected.rows,
            has_more: collected.has_more,
        })
    }

    /// Transactions that are seen now.
    pub(crate) async fn snapshot(&self) -> Result<String, QueryError> {
        let asked = Asked {
            sql: SNAPSHOT.to_owned(),
            values: Vec::new(),
        };
        let take = |row: &Row, seen: &mut String| {
            *seen = row.try_get(0)?;
            Ok(())
        };
        self.each(&asked, String::new(), take).await
    }

    /// Tables that there are now, in the order of their names, those of `public` first.
    pub(crate) async fn tables(&self) -> Result<Found, QueryError> {
        let asked = Asked {
            sql: TABLES.to_owned(),
            values: vec![Text(MAX_COLUMNS.to_string())],
        };
        let take = |row: &Row, tables: &mut Vec<Table>| {
            let (schema, name): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            // Their addresses could be those of others.
            if schema.contains('.') || name.contains('.') {
                tracing::debug!(
                    schema,
                    name,
                    "a table with a dot in its name is not offered"
                );
                return Ok(());
            }
            let sql_name = format!("{}.{}", quoted(&schema), quoted(&name));
            if tables.last().is_none_or(|it| it.quoted != sql_name) {
                let is_public = schema == PUBLIC;
                tables.push(Table {
                    name: if is_public {
                        name
                    } else {
                        format!("{schema}.{name}")
                    },
                    quoted: sql_name,
                    is_view: row.try_get(2)?,
                    columns: Vec::new(),
                });
            }
            let column = Column {
                name: row.try_get(3)?,
                kind: row.try_get(4)?,
                is_required: row.try_get(5)?,
                is_key: row.try_get(6)?,
            };
            if let Some(table) = tables.last_mut() {
                table.columns.push(column);
            }
            Ok(())
        };
        let tables = self.each(&asked, Vec::new(), take).await?;
        Ok(Found {
            tables,
            broken: Vec::new(),
        })
    }

    /// Gives each row of a statement to `take`, within the time that there is.
    async fn each<T>(
        &self,
        asked: &Asked,
        mut into: T,
        take: impl Fn(&Row, &mut T) -> Result<(), QueryError>,
    ) -> Result<T, QueryError> {
        let reading = async {
            let _place = self.places.acquire().await;
            loop {
                let mut lent = self.lend().await?;
                match lent.each(asked, &mut into, &take).await {
                    Ok(()) => {
                        lent.give_back();
                        return Ok(into);
                    }
                    // It was closed while nobody used it.
                    Err(QueryError::Server(error)) if lent.is_used && error.is_closed() => {}
                    Err(error) => return Err(lent.judged(error).await),
                }
            }
        };
        let within = self.timeout + GRACE;
        let read = tokio::time::timeout(within, reading).await;
        read.unwrap_or(Err(QueryError::TooLong(self.timeout)))
    }
}

/// Names of the members of an object, also those that it has twice.
struct Members(Vec<String>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(object: D) -> Result<Self, D::Error> {
        struct OfObject;
        impl<'de> Visitor<'de> for OfObject {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut names = Vec::new();
                while let Some((name, IgnoredAny)) = map.next_entry()? {
                    names.push(name);
                }
                Ok(Members(names))
            }
        }
        object.deserialize_map(OfObject)
    }
}

#[derive(Default)]
struct Collected {
    rows: Vec<String>,
    bytes: usize,
    has_more: bool,
}

impl Collected {
    fn take(&mut self, row: &Row, bounds: Bounds) -> Result<(), QueryError> {
        if bounds.rows <= self.rows.len() {
            self.has_more = true;
            return Ok(());
        }
        let text: Option<String> = row.try_get(0)?;
        let too_large = QueryError::TooLarge(bounds.bytes);
        let Some(text) = text else {
            return Err(too_large);
        };
        self.bytes += text.len();
        if bounds.bytes < self.bytes {
            return Err(too_large);
        }
        // Rows of one result have the same columns.
        if self.rows.is_empty()
            && let Ok(Members(names)) = serde_json::from_str(&text)
            && let Some(name) = same_name(names.iter().map(String::as_str))
        {
            return Err(QueryError::SameName(name.to_owned()));
        }
        self.rows.push(text);
        Ok(())
    }
}

impl Lent<'_> {
    fn connection(&mut self) -> &mut Connection {
        let connection = self.connection.as_mut();
        connection.expect("it is there until it is given back")
    }

    pub(crate) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.idle().push(connection);
        }
    }

    pub(crate) async fn prepared(&mut self, sql: &str) -> Result<Statement, QueryError> {
        let connection = self.connection();
        if let Some(statement) = connection.prepared.get(sql) {
            return Ok(statement.clone());
        }
        let statement = connection.client.prepare(sql).await?;
        if MAX_PREPARED <= connection.prepared.len() {
            connection.prepared.clear();
        }
        let kept = statement.clone();
        connection.prepared.insert(sql.to_owned(), kept);
        Ok(statement)
    }

    async fn each<T>(
        &mut self,
        asked: &Asked,
        into: &mut T,
        take: &impl Fn(&Row, &mut T) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        let statement = self.prepared(&asked.sql).await?;
        self.connection()
            .client
            .batch_execute("BEGIN READ ONLY")
            .await?;
        // What breaks from here on is told: rows may have been taken.
        self.is_used = false;
        let client = &self.connection().client;
        {
            let rows = client.query_raw(&statement, &asked.values).await?;
            let mut rows = pin!(rows);
            while let Some(row) = rows.next().await {
                take(&row?, into)?;
            }
        }
        client.batch_execute("ROLLBACK").await?;
        Ok(())
    }

    /// Meaning of an error. A connection that can go on is given back.
    async fn judged(mut self, error: QueryError) -> QueryError {
        let QueryError::Server(server) = &error else {
            return error;
        };
        let Some(state) = server.code().cloned() else {
            return error;
        };
        let ended = self.connection().client.batch_execute("ROLLBACK").await;
        if ended.is_ok() {
            let timeout = self.pool.timeout;
            self.give_back();
            if state == SqlState::QUERY_CANCELED {
                return QueryError::TooLong(timeout);
            }
        }
        // Data exceptions. What the database says of them may show what is in it.
        match state.code().starts_with("22") {
            true => QueryError::Values(format!(
                "the database does not take these values ({})",
                state.code()
            )),
            false => error,
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && !connection.client.is_closed()
        {
            let address = self.pool.address.clone();
            tokio::spawn(async move {
                let ending = address.cancel(&connection.client);
                if !matches!(tokio::time::timeout(GRACE, ending).await, Ok(Ok(()))) {
                    tracing::debug!("a query could not be ended; its own timeout does it");
                }
                drop(connection);
            });
        }
    }
}
