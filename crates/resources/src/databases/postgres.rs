//! `PostgreSQL` databases, read and nothing else.
//!
//! Each read is one prepared statement in a transaction that can only read, on a connection whose sessions begin in no
//! other mode, and whose statements the server ends in time. What the server sends are texts of JSON, which it has
//! made: one for each row.

use std::{
    collections::{BTreeMap, HashMap},
    error::Error as _,
    fmt,
    future::Future,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::BytesMut;
use futures_util::StreamExt as _;
use postgres_connection::Address;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::{Semaphore, oneshot},
    task::JoinHandle,
};
use tokio_postgres::{
    Client, Row, Statement,
    error::SqlState,
    types::{Format, IsNull, ToSql, Type, to_sql_checked},
};

use crate::databases::{
    DatabaseOptions,
    parameters::numbered,
    sqlite::{Bounds, Column, QueryError, Table, key_column, order, quoted, selected},
};

/// Connections for readers.
const MAX_CONNECTIONS: usize = 4;
/// Statements that a connection keeps prepared.
const MAX_PREPARED: usize = 200;
/// The most columns, of all tables together, that are looked at.
const MAX_COLUMNS: usize = 50_000;
/// Time for connecting, and what an answer may take longer than the server gives to a statement.
const GRACE: Duration = Duration::from_secs(5);

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

/// A statement and the values of its parameters.
#[derive(Debug)]
pub(crate) struct Asked {
    sql: String,
    values: Vec<Text>,
}

/// A value as its type's input function reads it.
#[derive(Debug)]
struct Text(String);

impl ToSql for Text {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// Rows as texts of JSON.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<String>,
    pub(crate) has_more: bool,
}

/// The rows of a statement as texts of JSON, none longer than the bound: in its place comes nothing, and the server
/// does not send it.
fn as_json(sql: &str, bounds: Bounds) -> String {
    let (rows, bytes) = (bounds.rows.saturating_add(1), bounds.bytes);
    format!(
        "SELECT CASE WHEN pg_catalog.octet_length(j) <= {bytes} THEN j END FROM \
         (SELECT pg_catalog.row_to_json(q)::text AS j FROM (\n{sql}\n) AS q LIMIT {rows}) AS r"
    )
}

/// Rows of a table from the one at `offset` on, in the order of its key.
pub(crate) fn rows(table: &Table, offset: u64, bounds: Bounds) -> Asked {
    let most = bounds.rows.saturating_add(1);
    let sql = format!(
        "{}{} LIMIT {most} OFFSET $1::pg_catalog.int8",
        selected(table),
        order(table)
    );
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    Asked {
        sql: as_json(&sql, bounds),
        values: vec![Text(offset.to_string())],
    }
}

/// The row of a table whose key is `key`; `None` if it has no such key.
pub(crate) fn row(table: &Table, key: &str, bounds: Bounds) -> Option<Asked> {
    let column = quoted(&key_column(table)?.name);
    let sql = format!("{} WHERE {column} = $1 LIMIT 1", selected(table));
    Some(Asked {
        sql: as_json(&sql, bounds),
        values: vec![Text(key.to_owned())],
    })
}

/// A query that an operator has written, with values of a caller.
///
/// # Errors
///
/// [`QueryError::Values`] if they are not those that it has.
pub(crate) fn query(
    sql: &str,
    values: &[(String, String)],
    bounds: Bounds,
) -> Result<Asked, QueryError> {
    let (sql, names) = written(sql, bounds);
    if let Some((extra, _)) = values.iter().find(|(name, _)| !names.contains(name)) {
        return Err(QueryError::Values(format!(
            "the query has no value `{extra}`"
        )));
    }
    let value = |name: &String| {
        let found = values.iter().find(|(known, _)| known == name);
        let missing = || QueryError::Values(format!("the value `{name}` is missing"));
        found.map(|(_, it)| Text(it.clone())).ok_or_else(missing)
    };
    let values = names.iter().map(value).collect::<Result<_, _>>()?;
    Ok(Asked { sql, values })
}

fn written(sql: &str, bounds: Bounds) -> (String, Vec<String>) {
    let (sql, names) = numbered(sql.trim().trim_end_matches(';'));
    (as_json(&sql, bounds), names)
}

/// A database, with threads of its own for what goes on there.
pub(crate) struct Postgres {
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    readers: Arc<Pool>,
    watcher: Arc<Pool>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Whoever drops it may be in a runtime, where nobody may wait.
            runtime.shutdown_background();
        }
    }
}

impl Postgres {
    /// Connects, and prepares all queries. Gives the names of their parameters. Blocks.
    ///
    /// # Errors
    ///
    /// The reason, in words.
    pub(crate) fn open(
        address: &Address,
        options: &DatabaseOptions,
    ) -> Result<(Self, BTreeMap<String, Vec<String>>), String> {
        let address = address.clone().with(|config| {
            if config.get_application_name().is_none() {
                config.application_name("owlclaw-mcp resources");
            }
            if config.get_connect_timeout().is_none() {
                config.connect_timeout(GRACE);
            }
        });
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("database")
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        let pool = |most| Arc::new(Pool::new(address.clone(), options.timeout, most));
        let postgres = Self {
            runtime: Some(runtime),
            readers: pool(MAX_CONNECTIONS),
            watcher: pool(1),
        };
        let bounds = Bounds {
            rows: options.max_rows,
            bytes: options.max_bytes,
        };
        let mut queries = BTreeMap::new();
        for (name, query) in &options.queries {
            queries.insert(name.clone(), written(&query.sql, bounds));
        }
        let readers = Arc::clone(&postgres.readers);
        let parameters = postgres.wait(async move {
            let mut connection = readers.lend().await.map_err(|error| {
                format!(
                    "{} cannot be read: {}",
                    readers.address,
                    with_causes(&error)
                )
            })?;
            let mut parameters = BTreeMap::new();
            for (name, (sql, names)) in queries {
                let wrong = |why: String| format!("`queries.{name}.sql`: {why}");
                let prepared = connection.prepared(&sql).await;
                let prepared = prepared.map_err(|error| {
                    wrong(format!("{}; a query is one SELECT", with_causes(&error)))
                })?;
                if prepared.params().len() != names.len() {
                    let why = "its parameters must have names, such as `:month`";
                    return Err(wrong(why.to_owned()));
                }
                parameters.insert(name, names);
            }
            connection.give_back();
            Ok(parameters)
        })?;
        Ok((postgres, parameters))
    }

    pub(crate) fn runtime(&self) -> &Handle {
        let runtime = self.runtime.as_ref();
        runtime.expect("it is there until it is dropped").handle()
    }

    pub(crate) fn readers(&self) -> &Arc<Pool> {
        &self.readers
    }

    pub(crate) fn watcher(&self) -> &Arc<Pool> {
        &self.watcher
    }

    /// Tables that there are now. Blocks.
    pub(crate) fn tables(&self) -> Result<Vec<Table>, QueryError> {
        let readers = Arc::clone(&self.readers);
        self.wait(async move { readers.tables().await })
    }

    /// Waits for what is done on the database's own thread, also where a runtime must not be waited in.
    fn wait<T: Send>(&self, done: impl Future<Output = T> + Send) -> T {
        let runtime = self.runtime();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| runtime.block_on(done));
            waiting.join().expect("what is awaited does not panic")
        })
    }

    /// Carries out a read where the connections are. Dropping the future ends it, at the server, too.
    pub(crate) async fn run(
        &self,
        read: impl Future<Output = Result<String, QueryError>> + Send + 'static,
    ) -> Result<String, QueryError> {
        let (mut told, answer) = oneshot::channel();
        drop(self.runtime().spawn(async move {
            tokio::select! {
                outcome = read => drop(told.send(outcome)),
                // Nobody waits for it any more: the connection that it has lent is told so.
                () = told.closed() => {}
            }
        }));
        answer.await.unwrap_or(Err(QueryError::Ended))
    }
}

/// Connections to a database, made when they are needed.
pub(crate) struct Pool {
    address: Address,
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

/// A connection on loan. One that is not given back is closed, and what it does is ended at the server.
struct Lent<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    is_used: bool,
}

impl Pool {
    fn new(address: Address, timeout: Duration, most: usize) -> Self {
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

    async fn lend(&self) -> Result<Lent<'_>, QueryError> {
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
    pub(crate) async fn tables(&self) -> Result<Vec<Table>, QueryError> {
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
        self.each(&asked, Vec::new(), take).await
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
        self.rows.push(text);
        Ok(())
    }
}

impl Lent<'_> {
    fn connection(&mut self) -> &mut Connection {
        let connection = self.connection.as_mut();
        connection.expect("it is there until it is given back")
    }

    fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.idle().push(connection);
        }
    }

    async fn prepared(&mut self, sql: &str) -> Result<Statement, QueryError> {
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

/// An error with its causes, and what the database says of it.
pub(crate) fn with_causes(error: &QueryError) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    if let QueryError::Server(server) = error
        && let Some(said) = server.as_db_error()
    {
        return said.message().to_owned();
    }
    while let Some(error) = cause {
        told += &format!(": {error}");
        cause = error.source();
    }
    told
}
