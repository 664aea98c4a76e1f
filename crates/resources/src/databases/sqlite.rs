//! `SQLite` databases, read and nothing else.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rusqlite::{
    Connection, ErrorCode, OpenFlags, Row, Statement, ToSql, config::DbConfig, params_from_iter,
    types::ValueRef,
};
use serde_json::{Map, Value, json};

/// Connections that are kept for the next reader.
const MAX_IDLE: usize = 4;

/// Steps of a query between two looks at whether anybody still waits for it: a few tenths of a millisecond.
const STEPS: i32 = 10_000;

/// A read of a database has failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QueryError {
    /// No table or row of this name.
    #[error("there is nothing of this name")]
    NotFound,
    /// Values of a query that are missing, or that it does not have.
    #[error("{0}")]
    Values(String),
    /// More than the bound.
    #[error("the result has more than {0} bytes")]
    TooLarge(usize),
    /// A query that took longer than it may.
    #[error("the query took longer than {0:?}")]
    TooLong(Duration),
    /// Columns of one name, of which an object can have one only.
    #[error("{}", of_one_name(.0))]
    SameName(String),
    /// A path that leads to a directory, a device or a pipe.
    #[error("it is not a regular file")]
    NoFile,
    /// A query that was ended from within.
    #[error("the query was ended")]
    Ended,
    /// An error of `SQLite`.
    #[error(transparent)]
    File(#[from] rusqlite::Error),
    /// An error of `PostgreSQL`.
    #[error(transparent)]
    Server(#[from] tokio_postgres::Error),
    /// No connection.
    #[error("there is no connection to the database")]
    Connect(#[from] postgres_connection::ConnectError),
}

/// Columns of a table, and which of them are its primary key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    /// Name by which it is offered.
    pub(crate) name: String,
    /// Name as SQL has it, with that of its schema where there are any.
    pub(crate) quoted: String,
    pub(crate) is_view: bool,
    pub(crate) columns: Vec<Column>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) is_required: bool,
    pub(crate) is_key: bool,
}

/// Tables and views, as far as they can be read: one that is broken does not keep the rest from being offered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) tables: Vec<Table>,
    /// Names of tables and views that cannot be read, with the reason.
    pub(crate) broken: Vec<(String, String)>,
}

/// Bounds of one result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) rows: usize,
    pub(crate) bytes: usize,
}

/// Rows of a result.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) rows: Vec<Value>,
    pub(crate) has_more: bool,
}

/// Device and number of a file.
type FileIdentity = (u64, u64);

/// A database file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    path: PathBuf,
    timeout: Duration,
    idle: Mutex<Idle>,
}

/// Connections to the file that is at the path now.
#[derive(Debug, Default)]
struct Idle {
    file: Option<FileIdentity>,
    connections: Vec<Connection>,
}

impl Sqlite {
    /// Opens a file that is there.
    pub(crate) fn open(path: &Path, timeout: Duration) -> Result<Self, QueryError> {
        let sqlite = Self {
            path: path.to_owned(),
            timeout,
            idle: Mutex::default(),
        };
        let file = sqlite.file();
        let connection = sqlite.connect()?;
        sqlite.give_back(file, connection);
        Ok(sqlite)
    }

    /// A connection that cannot write: the file is opened for reading, and statements that would change anything are
    /// refused besides.
    pub(crate) fn connect(&self) -> Result<Connection, QueryError> {
        // Opening a pipe would wait for its other end.
        if std::fs::metadata(&self.path).is_ok_and(|it| !it.is_file()) {
            return Err(QueryError::NoFile);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(self.timeout)?;
        connection.pragma_update(None, "query_only", true)?;
        // Functions that a foreign schema may call in views and defaults are those without effects.
        connection.pragma_update(None, "trusted_schema", false)?;
        // The name of a column that is gone would become a text, which is then in every row.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DDL, false)?;
        // Nothing is read before this, and a file that is no database is told of here.
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    }

    /// The file that is at the path now: another program may replace it as a whole.
    pub(crate) fn file(&self) -> Option<FileIdentity> {
        let there = std::fs::metadata(&self.path).ok()?;
        Some((there.dev(), there.ino()))
    }

    fn idle(&self, file: Option<FileIdentity>) -> MutexGuard<'_, Idle> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.file != file {
            idle.connections.clear();
            idle.file = file;
        }
        idle
    }

    fn give_back(&self, file: Option<FileIdentity>, connection: Connection) {
        let mut idle = self.idle(file);
        if idle.connections.len() < MAX_IDLE {
            idle.connections.push(connection);
        }
    }

    /// Runs a read on a connection of its own, which is ended once `is_over`.
    pub(crate) fn read<T>(
        &self,
        is_over: impl FnMut() -> bool + Send + 'static,
        read: impl FnOnce(&Connection) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let file = self.file();
        let idle = self.idle(file).connections.pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => self.connect()?,
        };
        connection.progress_handler(STEPS, Some(is_over))?;
        let outcome = read(&connection);
        connection.progress_handler(STEPS, None::<fn() -> bool>)?;
        match outcome {
            Ok(_) => self.give_back(file, connection),
            Err(QueryError::File(error))
                if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) =>
            {
                return Err(QueryError::Ended);
            }
            Err(_) => {}
        }
        outcome
    }
}

/// Lets a read take as long as it takes.
pub(crate) fn unbounded() -> bool {
    false
}

/// True if this is wrong with one statement, or with what it names, and not with the file or the connection.
pub(crate) fn is_of_statement(error: &rusqlite::Error) -> bool {
    matches!(error, rusqlite::Error::SqlInputError { .. })
        || error.sqlite_error_code() == Some(ErrorCode::Unknown)
}

/// Tables and views, in the order of their names.
pub(crate) fn tables(connection: &Connection) -> Result<Found, QueryError> {
    let mut statement = connection.prepare(
        "SELECT name, type = 'view' FROM sqlite_schema \
         WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name",
    )?;
    let names = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let names: Vec<(String, bool)> = names.collect::<Result<_, _>>()?;
    let mut found = Found::default();
    for (name, is_view) in names {
        let table = columns(connection, &name).and_then(|columns| {
            let table = Table {
                columns,
                quoted: quoted(&name),
                name: name.clone(),
                is_view,
            };
            // What it is made of is looked up, and nothing is read.
            if !table.columns.is_empty() {
                connection.prepare(&selected(&table))?;
            }
            Ok(table)
        });
        match table {
            Ok(table) => found.tables.push(table),
            Err(error) if is_of_statement(&error) => found.broken.push((name, error.to_string())),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<Column>> {
    // Generated columns are read as the others are; hidden ones of virtual tables (1) are not in their rows.
    let mut columns = connection.prepare_cached(
        "SELECT name, type, \"notnull\", pk FROM pragma_table_xinfo(?) WHERE hidden <> 1 ORDER BY cid",
    )?;
    let columns = columns.query_map([table], |row| {
        Ok(Column {
            name: row.get(0)?,
            kind: row.get(1)?,
            is_required: row.get(2)?,
            is_key: 0 < row.get::<_, i64>(3)?,
        })
    })?;
    columns.collect()
}

/// A name as SQL has it, whatever is in it.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

pub(crate) fn selected(table: &Table) -> String {
    let columns: Vec<_> = table.columns.iter().map(|it| quoted(&it.name)).collect();
    format!("SELECT {} FROM {}", columns.join(", "), table.quoted)
}

/// ` ORDER BY` its key, if it has one.
pub(crate) fn order(table: &Table) -> String {
    let keys = table.columns.iter().filter(|it| it.is_key);
    let keys: Vec<_> = keys.map(|it| quoted(&it.name)).collect();
    match keys.is_empty() {
        true => String::new(),
        false => format!(" ORDER BY {}", keys.join(", ")),
    }
}

/// The one column that is the key of a table. A key of several columns has no text of its own.
pub(crate) fn key_column(table: &Table) -> Option<&Column> {
    let mut keys = table.columns.iter().filter(|it| it.is_key);
    let key = keys.next()?;
    keys.next().is_none().then_some(key)
}

/// Rows of a table from the one at `offset` on, in the order of its key.
pub(crate) fn rows(
    connection: &Connection,
    table: &Table,
    offset: u64,
    bounds: Bounds,
) -> Result<Rows, QueryError> {
    let order = order(table);
    let sql = format!("{}{order} LIMIT ? OFFSET ?", selected(table));
    let most = i64::try_from(bounds.rows.saturating_add(1)).unwrap_or(i64::MAX);
    let offset = i64::try_from(offset).unwrap_or(i64::MAX);
    let mut statement = connection.prepare(&sql)?;
    collect(&mut statement, &[&most, &offset], bounds)
}

/// The row of a table whose key is `key`, as its text is: another spelling of it, which compares as equal, is the key
/// of nothing, so that each row has one address.
pub(crate) fn row(
    connection: &Connection,
    table: &Table,
    key: &str,
    bounds: Bounds,
) -> Result<Value, QueryError> {
    let column = key_column(table).ok_or(QueryError::NotFound)?;
    let (rows, key_name) = (selected(table), quoted(&column.name));
    let sql = format!(
        "{rows} WHERE {key_name} = ? AND CAST({key_name} AS TEXT) = ? COLLATE BINARY LIMIT 1"
    );
    let mut statement = connection.prepare(&sql)?;
    let found = collect(&mut statement, &[&key, &key], bounds)?;
    found.rows.into_iter().next().ok_or(QueryError::NotFound)
}

/// Names of the parameters of a query that an operator has written.
///
/// # Errors
///
/// The mistake in it, in words.
pub(crate) fn parameters(connection: &Connection, sql: &str) -> Result<Vec<String>, String> {
    let statement = connection.prepare(sql).map_err(|error| error.to_string())?;
    if !statement.readonly() {
        return Err("it would change something, and queries read".to_owned());
    }
    if statement.column_count() == 0 {
        return Err("it has no result; write a SELECT".to_owned());
    }
    if let Some(name) = same_name(statement.column_names()) {
        return Err(of_one_name(name));
    }
    let mut names = Vec::new();
    for number in 1..=statement.parameter_count() {
        let name = statement.parameter_name(number);
        let Some(name) = name.and_then(|it| it.strip_prefix(':')) else {
            return Err("its parameters must have names, such as `:month`".to_owned());
        };
        names.push(name.to_owned());
    }
    Ok(names)
}

/// Rows of a query that an operator has written, with values of a caller for its parameters: texts, and nothing else.
pub(crate) fn query(
    connection: &Connection,
    sql: &str,
    values: &[(String, String)],
    bounds: Bounds,
) -> Result<Rows, QueryError> {
    let mut statement = connection.prepare(sql)?;
    let mut bound: Vec<&dyn ToSql> = Vec::new();
    for number in 1..=statement.parameter_count() {
        let name = statement.parameter_name(number).unwrap_or_default();
        let name = name.trim_start_matches(':');
        let value = values.iter().find(|(known, _)| known == name);
        let (_, value) =
            value.ok_or_else(|| QueryError::Values(format!("the value `{name}` is missing")))?;
        bound.push(value);
    }
    if bound.len() < values.len() {
        return Err(QueryError::Values(
            "there are values that the query does not have".to_owned(),
        ));
    }
    collect(&mut statement, &bound, bounds)
}

/// The first name that two columns have.
pub(crate) fn same_name<'n>(names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let mut seen = std::collections::HashSet::new();
    names.into_iter().find(|it| !seen.insert(*it))
}

/// A mistake of a query, in words.
pub(crate) fn of_one_name(name: &str) -> String {
    format!(
        "two of its columns are called `{name}`, of which one would be lost; give each a name of its own by AS"
    )
}

fn collect(
    statement: &mut Statement<'_>,
    values: &[&dyn ToSql],
    bounds: Bounds,
) -> Result<Rows, QueryError> {
    let mut names: Vec<String> = Vec::new();
    let mut found = statement.query(params_from_iter(values))?;
    let mut rows = Rows {
        rows: Vec::new(),
        has_more: false,
    };
    let mut bytes = 0;
    while let Some(row) = found.next()? {
        if bounds.rows <= rows.rows.len() {
            rows.has_more = true;
            break;
        }
        // Not before: with the first step it is prepared anew, if the schema has changed.
        if names.is_empty() {
            names.extend(row.as_ref().column_names().map(str::to_owned));
            if let Some(name) = same_name(names.iter().map(String::as_str)) {
                return Err(QueryError::SameName(name.to_owned()));
            }
        }
        rows.rows
            .push(object(row, &names, &mut bytes, bounds.bytes)?);
    }
    Ok(rows)
}

fn object(
    row: &Row<'_>,
    names: &[String],
    bytes: &mut usize,
    most: usize,
) -> Result<Value, QueryError> {
    let mut object = Map::new();
    for (at, name) in names.iter().enumerate() {
        let value = row.get_ref(at)?;
        *bytes += name.len()
            + match value {
                ValueRef::Text(it) | ValueRef::Blob(it) => it.len(),
                _ => 8,
            };
        if most < *bytes {
            return Err(QueryError::TooLarge(most));
        }
        let value = match value {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(it) => json!(it),
            ValueRef::Real(it) => json!(it),
            ValueRef::Text(it) => json!(String::from_utf8_lossy(it)),
            ValueRef::Blob(it) => json!({ "base64": STANDARD.encode(it) }),
        };
        object.insert(name.clone(), value);
    }
    Ok(Value::Object(object))
}
