//! One database: what is offered of it, and how it is read.

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, PoisonError, RwLock},
};

use mcp_protocol::model::{Resource, ResourceTemplate};
use mcp_server::ResourceEntry;
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::{
    addresses::encoded,
    databases::{
        DATABASE_SCHEME, DatabaseOptions, DatabasePlace,
        address::Place,
        globs,
        pool::Pool,
        postgres::{self, Postgres},
        sqlite::{self, Bounds, Found, QueryError, Sqlite, Table},
    },
    files::glob::Glob,
};

/// The most that begin to listen at one time.
const MAX_HEARING: usize = 2;

pub(crate) const JSON: &str = "application/json";

/// Means by which a database is read.
pub(crate) enum Source {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

/// A database, as it is offered.
pub(crate) struct Database {
    pub(crate) name: String,
    pub(crate) options: DatabaseOptions,
    include: Vec<Glob>,
    exclude: Vec<Glob>,
    pub(crate) source: Source,
    /// Names of the parameters of each query.
    parameters: BTreeMap<String, Vec<String>>,
    tables: RwLock<Arc<Vec<Table>>>,
    unmatched: RwLock<Vec<UnmatchedPattern>>,
    /// Places for those who begin to listen, whose first reads leave the others to readers.
    pub(crate) hearing: Semaphore,
    /// Names of tables and views that would be offered if they could be read, with the reason.
    broken: RwLock<Vec<(String, String)>>,
}

/// A pattern of a database that stands for nothing in it, as far as it can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnmatchedPattern {
    /// The database.
    pub database: String,
    /// `include` or `exclude`.
    pub list: &'static str,
    /// The pattern, as it is written.
    pub pattern: String,
    /// The names with which it was compared.
    pub names: Vec<String>,
}

/// Patterns that compare as a database of this kind does: `SQLite` knows no case of ASCII letters in names.
fn patterns(patterns: &[String], place: &DatabasePlace) -> Result<Vec<Glob>, String> {
    match place {
        DatabasePlace::File(_) => {
            let lower: Vec<_> = patterns.iter().map(|it| it.to_ascii_lowercase()).collect();
            globs(&lower)
        }
        DatabasePlace::Postgres(_) => globs(patterns),
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut database = f.debug_struct("Database");
        database.field("name", &self.name).finish_non_exhaustive()
    }
}

impl Database {
    pub(crate) fn open(name: &str, options: DatabaseOptions) -> Result<Self, String> {
        options.check(name)?;
        let (source, parameters) = match &options.place {
            DatabasePlace::File(path) => {
                let told =
                    |error: QueryError| format!("{} cannot be read: {error}", path.display());
                let sqlite = Sqlite::open(path, options.timeout).map_err(told)?;
                let mut parameters = BTreeMap::new();
                for (query, written) in &options.queries {
                    let names = sqlite.read(sqlite::unbounded, |connection| {
                        Ok(sqlite::parameters(connection, &written.sql))
                    });
                    let names = names.map_err(|error| error.to_string()).flatten();
                    let names = names.map_err(|why| format!("`queries.{query}.sql`: {why}"))?;
                    parameters.insert(query.clone(), names);
                }
                (Source::Sqlite(sqlite), parameters)
            }
            DatabasePlace::Postgres(address) => {
                let (postgres, parameters) = Postgres::open(address, &options)?;
                (Source::Postgres(postgres), parameters)
            }
        };
        let database = Self {
            name: name.to_owned(),
            include: patterns(&options.include, &options.place)?,
            exclude: patterns(&options.exclude, &options.place)?,
            source,
            parameters,
            tables: RwLock::default(),
            unmatched: RwLock::default(),
            hearing: Semaphore::new(MAX_HEARING),
            broken: RwLock::default(),
            options,
        };
        let tables = match &database.source {
            Source::Sqlite(sqlite) => sqlite.read(sqlite::unbounded, sqlite::tables),
            Source::Postgres(postgres) => postgres.tables(),
        };
        let tables = tables.map_err(|error| postgres::with_causes(&error))?;
        database.take_tables(tables);
        Ok(database)
    }

    /// Takes the tables that there are now: true if what is offered is something else than before, or what patterns stand
    /// for is.
    pub(crate) fn take_tables(&self, found: Found) -> bool {
        let unmatched = self.compared(&found);
        self.take_broken(found.broken);
        let tables: Vec<_> = found
            .tables
            .into_iter()
            .filter_map(|it| self.offered(it))
            .collect();
        let mut known = self
            .unmatched
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let mut is_other = *known != unmatched;
        *known = unmatched;
        drop(known);
        let mut known = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        is_other |= **known != tables;
        *known = Arc::new(tables);
        is_other
    }

    /// Says once of each table or view that it cannot be read, if it would be offered.
    fn take_broken(&self, broken: Vec<(String, String)>) {
        let broken = broken.into_iter();
        let broken: Vec<_> = broken.filter(|(it, _)| self.offers(it)).collect();
        let mut known = self.broken.write().unwrap_or_else(PoisonError::into_inner);
        for new in broken.iter().filter(|it| !known.contains(it)) {
            let (told, name) = (self.told_of(new), &self.name);
            tracing::warn!("{told}; mend it, or exclude it (resources.databases.{name}.exclude)");
        }
        *known = broken;
    }

    fn told_of(&self, (broken, why): &(String, String)) -> String {
        let name = &self.name;
        format!("`{broken}` of the database `{name}` cannot be read, and is not offered: {why}")
    }

    /// Each table and view that cannot be read and would be offered, in words.
    pub(crate) fn broken(&self) -> Vec<String> {
        let broken = self.broken.read().unwrap_or_else(PoisonError::into_inner);
        broken.iter().map(|it| self.told_of(it)).collect()
    }

    /// The names of these, in words.
    pub(crate) fn told_broken(&self) -> Option<String> {
        let broken = self.broken.read().unwrap_or_else(PoisonError::into_inner);
        (!broken.is_empty()).then(|| {
            let names: Vec<_> = broken.iter().map(|(it, _)| it.as_str()).collect();
            let (name, names) = (&self.name, names.join("`, `"));
            format!("of `{name}` `{names}` cannot be read, and is not offered: the log says why")
        })
    }

    fn matches(&self, glob: &Glob, name: &str) -> bool {
        match &self.options.place {
            DatabasePlace::File(_) => glob.matches(&name.to_ascii_lowercase()),
            DatabasePlace::Postgres(_) => glob.matches(name),
        }
    }

    fn any_matches(&self, globs: &[Glob], name: &str) -> bool {
        globs.iter().any(|it| self.matches(it, name))
    }

    /// Patterns that stand for nothing among all the tables that there are, offered or not.
    fn compared(&self, found: &Found) -> Vec<UnmatchedPattern> {
        let broken = found.broken.iter().map(|(name, _)| name);
        let names = found.tables.iter().map(|it| &it.name).chain(broken);
        let names: Vec<_> = names.cloned().collect();
        let columns = found.tables.iter().flat_map(|table| {
            let columns = table.columns.iter();
            columns.map(|it| column_of(&table.name, &it.name))
        });
        let with_columns: Vec<_> = names.iter().cloned().chain(columns).collect();
        let options = &self.options;
        let mut unmatched = Vec::new();
        for (list, written, globs, names) in [
            ("include", &options.include, &self.include, &names),
            ("exclude", &options.exclude, &self.exclude, &with_columns),
        ] {
            for (pattern, glob) in written.iter().zip(globs) {
                if !names.iter().any(|it| self.matches(glob, it)) {
                    unmatched.push(UnmatchedPattern {
                        database: self.name.clone(),
                        list,
                        pattern: pattern.clone(),
                        names: names.clone(),
                    });
                }
            }
        }
        unmatched
    }

    /// Patterns that stand for nothing now.
    pub(crate) fn unmatched(&self) -> Vec<UnmatchedPattern> {
        let unmatched = self.unmatched.read();
        unmatched.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn offers(&self, table: &str) -> bool {
        let is_included = self.include.is_empty() || self.any_matches(&self.include, table);
        is_included && !self.any_matches(&self.exclude, table)
    }

    /// A table with the columns that are offered, if it is.
    fn offered(&self, mut table: Table) -> Option<Table> {
        let name = table.name.clone();
        if !self.offers(&name) {
            return None;
        }
        table
            .columns
            .retain(|it| !self.any_matches(&self.exclude, &column_of(&name, &it.name)));
        (!table.columns.is_empty()).then_some(table)
    }

    pub(crate) fn tables(&self) -> Arc<Vec<Table>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&tables)
    }

    pub(crate) fn table(&self, name: &str) -> Result<Table, QueryError> {
        let tables = self.tables();
        let mut tables = tables.iter();
        let found = tables.find(|it| it.name == name);
        found.cloned().ok_or(QueryError::NotFound)
    }

    /// True if there may be something at a place.
    pub(crate) fn has(&self, place: &Place) -> bool {
        match place {
            Place::Schema => true,
            Place::Table { table, .. } | Place::Row { table, .. } => self.table(table).is_ok(),
            Place::Query { query, .. } => self.parameters.contains_key(query),
        }
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            rows: self.options.max_rows,
            bytes: self.options.max_bytes,
        }
    }

    fn next_page(&self, table: &str, offset: u64, rows: usize, has_more: bool) -> Option<String> {
        has_more.then(|| {
            let (table, offset) = (table.to_owned(), offset.saturating_add(rows as u64));
            Place::Table { table, offset }.address(&self.name)
        })
    }

    /// Reads of a table as it is known, or else as it is now: the schema may have changed a moment ago.
    fn read_table<T>(
        &self,
        sqlite: &Sqlite,
        name: &str,
        is_over: impl FnMut() -> bool + Clone + Send + 'static,
        read: impl Fn(&Connection, &Table) -> Result<T, QueryError>,
    ) -> Result<T, QueryError> {
        let known = self.table(name)?;
        match sqlite.read(is_over.clone(), |connection| read(connection, &known)) {
            Err(QueryError::File(error)) if sqlite::is_of_statement(&error) => {
                let found = sqlite.read(is_over.clone(), sqlite::tables)?;
                let found = found.tables.into_iter();
                let mut found = found.filter(|it| it.name == name);
                let table = found.find_map(|it| self.offered(it));
                let table = table.ok_or(QueryError::NotFound)?;
                sqlite.read(is_over, |connection| read(connection, &table))
            }
            outcome => outcome,
        }
    }

    /// Reads what is at a place, as JSON, unless it `is_over` before. Blocks.
    pub(crate) fn read_file(
        &self,
        sqlite: &Sqlite,
        place: &Place,
        is_over: impl FnMut() -> bool + Clone + Send + 'static,
    ) -> Result<String, QueryError> {
        let bounds = self.bounds();
        let found = match place {
            Place::Schema => self.schema(),
            Place::Table { table, offset } => {
                let read = |it: &_, table: &_| sqlite::rows(it, table, *offset, bounds);
                let found = self.read_table(sqlite, table, is_over, read)?;
                let next = self.next_page(table, *offset, found.rows.len(), found.has_more);
                json!({ "rows": found.rows, "next": next })
            }
            Place::Row { table, key } => {
                let read = |it: &_, table: &_| sqlite::row(it, table, key, bounds);
                self.read_table(sqlite, table, is_over, read)?
            }
            Place::Query { query, values } => {
                let written = self.options.queries.get(query);
                let sql = &written.ok_or(QueryError::NotFound)?.sql;
                let read = |connection: &_| sqlite::query(connection, sql, values, bounds);
                let found = sqlite.read(is_over, read)?;
                json!({ "rows": found.rows, "isCut": found.has_more })
            }
        };
        Ok(found.to_string())
    }

    /// The same of a server.
    pub(crate) async fn read_server(
        &self,
        pool: &Pool,
        place: &Place,
    ) -> Result<String, QueryError> {
        let bounds = self.bounds();
        Ok(match place {
            Place::Schema => self.schema().to_string(),
            Place::Table { table, offset } => {
                let table = self.table(table)?;
                let found = pool
                    .read(&postgres::rows(&table, *offset, bounds), bounds)
                    .await?;
                let next = self.next_page(&table.name, *offset, found.rows.len(), found.has_more);
                // Rows are JSON already, with all digits of their numbers.
                format!(
                    "{{\"rows\":[{}],\"next\":{}}}",
                    found.rows.join(","),
                    json!(next)
                )
            }
            Place::Row { table, key } => {
                let table = self.table(table)?;
                let asked = postgres::row(&table, key, bounds).ok_or(QueryError::NotFound)?;
                let found = pool.read(&asked, bounds).await;
                let found = found.map_err(|error| match error {
                    // A key of another kind is the key of nothing.
                    QueryError::Values(_) => QueryError::NotFound,
                    error => error,
                })?;
                found.rows.into_iter().next().ok_or(QueryError::NotFound)?
            }
            Place::Query { query, values } => {
                let written = self.options.queries.get(query);
                let sql = &written.ok_or(QueryError::NotFound)?.sql;
                let found = pool
                    .read(&postgres::query(sql, values, bounds)?, bounds)
                    .await?;
                let (rows, is_cut) = (found.rows.join(","), found.has_more);
                format!("{{\"rows\":[{rows}],\"isCut\":{is_cut}}}")
            }
        })
    }

    pub(crate) fn schema(&self) -> Value {
        let tables = self.tables();
        let tables = tables.iter().map(|table| {
            let columns = table.columns.iter().map(|it| {
                json!({ "name": it.name, "type": it.kind, "required": it.is_required, "key": it.is_key })
            });
            json!({ "name": table.name, "view": table.is_view, "columns": columns.collect::<Vec<_>>() })
        });
        let queries = self.options.queries.iter().map(|(name, query)| {
            json!({
                "name": name,
                "description": query.description,
                "parameters": self.parameters.get(name),
            })
        });
        json!({ "tables": tables.collect::<Vec<_>>(), "queries": queries.collect::<Vec<_>>() })
    }

    /// Template of the tables' addresses.
    pub(crate) fn table_template(&self) -> String {
        format!("{DATABASE_SCHEME}{}/tables/{{table}}{{?offset}}", self.name)
    }

    fn row_template(&self) -> String {
        format!("{DATABASE_SCHEME}{}/tables/{{table}}/{{key}}", self.name)
    }

    pub(crate) fn entries(&self) -> Vec<ResourceEntry> {
        let entry = |place: &Place, name: String, description: Option<String>| ResourceEntry {
            resource: Resource {
                uri: place.address(&self.name),
                name,
                description,
                mime_type: Some(JSON.to_owned()),
                ..Resource::default()
            },
            category: self.name.clone(),
            ..ResourceEntry::default()
        };
        let schema = format!("Tables, columns and queries of the database {}.", self.name);
        let mut entries = vec![entry(
            &Place::Schema,
            format!("{}.schema", self.name),
            Some(schema),
        )];
        entries.extend(self.tables().iter().map(|it| {
            let place = Place::Table {
                table: it.name.clone(),
                offset: 0,
            };
            entry(&place, format!("{}.{}", self.name, it.name), None)
        }));
        let without_values = self.parameters.iter().filter(|(_, it)| it.is_empty());
        entries.extend(without_values.map(|(query, _)| {
            let place = Place::Query {
                query: query.clone(),
                values: Vec::new(),
            };
            let description = self.options.queries[query].description.clone();
            entry(&place, format!("{}.{query}", self.name), description)
        }));
        entries
    }

    pub(crate) fn templates(&self) -> Vec<ResourceTemplate> {
        let template = |uri: String, name: String, description: Option<String>| ResourceTemplate {
            uri_template: uri,
            name,
            description,
            mime_type: Some(JSON.to_owned()),
            ..ResourceTemplate::default()
        };
        let name = &self.name;
        let (rows, row) = (
            format!("Rows of a table, {} at a time.", self.options.max_rows),
            "The row of a table with this primary key.".to_owned(),
        );
        let mut templates = vec![
            template(self.table_template(), format!("{name}.rows"), Some(rows)),
            template(self.row_template(), format!("{name}.row"), Some(row)),
        ];
        let with_values = self.parameters.iter().filter(|(_, it)| !it.is_empty());
        templates.extend(with_values.map(|(query, names)| {
            let mut names: Vec<_> = names.iter().map(|it| encoded(it)).collect();
            names.sort();
            let uri = format!(
                "{DATABASE_SCHEME}{name}/queries/{query}{{?{}}}",
                names.join(",")
            );
            let description = self.options.queries[query].description.clone();
            template(uri, format!("{name}.{query}"), description)
        }));
        templates
    }
}

/// The name by which patterns know a column.
fn column_of(table: &str, column: &str) -> String {
    format!("{table}.{column}")
}

/// A hash of what was read, also of there being nothing; `None` if it is not known what there is.
pub(crate) fn hash(read: &Result<String, QueryError>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    match read {
        Ok(found) => found.hash(&mut hasher),
        Err(QueryError::NotFound) => {}
        Err(_) => return None,
    }
    Some(hasher.finish())
}
