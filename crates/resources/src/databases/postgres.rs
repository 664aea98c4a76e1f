//! `PostgreSQL` databases, read and nothing else.
//!
//! Each read is one prepared statement in a transaction that can only read, on a connection whose sessions begin in no
//! other mode, and whose statements the server ends in time. What the server sends are texts of JSON, which it has
//! made: one for each row.

use std::{
    collections::BTreeMap, error::Error as _, fmt, future::Future, sync::Arc, time::Duration,
};

use bytes::BytesMut;
use postgres_connection::Address;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::databases::{
    DatabaseOptions,
    parameters::numbered,
    pool::Pool,
    sqlite::{
        Bounds, Found, QueryError, Table, key_column, of_one_name, order, quoted, same_name,
        selected,
    },
};

/// Connections for readers.
const MAX_CONNECTIONS: usize = 4;
/// Time for connecting, and what an answer may take longer than the server gives to a statement.
pub(crate) const GRACE: Duration = Duration::from_secs(5);

/// A statement and the values of its parameters.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) sql: String,
    pub(crate) values: Vec<Text>,
}

/// A value as its type's input function reads it.
#[derive(Debug)]
pub(crate) struct Text(pub(crate) String);

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

/// The row of a table whose key is `key`, as its text is and in no other spelling; `None` if it has no such key.
pub(crate) fn row(table: &Table, key: &str, bounds: Bounds) -> Option<Asked> {
    let column = key_column(table)?;
    let name = quoted(&column.name);
    // Of times, the text depends on settings; what rows have does not. That of a `char(n)` is without its blanks.
    let text = match column.kind.starts_with("timestamp") || column.kind == "date" {
        true => format!("pg_catalog.to_json({name}) OPERATOR(pg_catalog.#>>) '{{}}'"),
        false => format!("{name}::pg_catalog.text"),
    };
    let rows = selected(table);
    let sql = format!(
        "{rows} WHERE {name} = $1 AND ({text}) COLLATE pg_catalog.\"C\" = $2::pg_catalog.text LIMIT 1"
    );
    Some(Asked {
        sql: as_json(&sql, bounds),
        values: vec![Text(key.to_owned()), Text(key.to_owned())],
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

fn bare(sql: &str) -> (String, Vec<String>) {
    numbered(sql.trim().trim_end_matches(';'))
}

fn written(sql: &str, bounds: Bounds) -> (String, Vec<String>) {
    let (sql, names) = bare(sql);
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
            queries.insert(
                name.clone(),
                (query.sql.clone(), written(&query.sql, bounds)),
            );
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
            for (name, (own, (sql, names))) in queries {
                let wrong = |why: String| format!("`queries.{name}.sql`: {why}");
                let prepared = connection.prepared(&sql).await;
                let prepared = prepared.map_err(|error| {
                    wrong(format!("{}; a query is one SELECT", with_causes(&error)))
                })?;
                if prepared.params().len() != names.len() {
                    let why = "its parameters must have names, such as `:month`";
                    return Err(wrong(why.to_owned()));
                }
                let own = connection.prepared(&bare(&own).0).await;
                let own = own.map_err(|error| wrong(with_causes(&error)))?;
                if let Some(double) = same_name(own.columns().iter().map(|it| it.name())) {
                    return Err(wrong(of_one_name(double)));
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
    pub(crate) fn tables(&self) -> Result<Found, QueryError> {
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
