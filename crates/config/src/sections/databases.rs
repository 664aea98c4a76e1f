//! Databases as resources, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use resources::{DatabaseOptions, NamedQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Environment;
use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;
use crate::sections::secret::Secret;

/// A database whose tables and queries are resources, `db://NAME/tables/TABLE` and `db://NAME/queries/QUERY`: a file of
/// `SQLite` (`path`), or a `PostgreSQL` server (`url`). It is only read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// The file of a `SQLite` database, which must be there.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
    /// In place of a file, a `PostgreSQL` database: `postgres://user:password@host/database`, for a user with no rights but to
    /// read.
    pub url: Option<Secret>,
    /// Patterns of the tables and views that are offered. Empty: all.
    #[schemars(extend("x-items" = "pattern"))]
    pub include: Vec<String>,
    /// Patterns of tables, and of columns as `TABLE.COLUMN`, that are not offered. Queries may still read them.
    #[schemars(extend("x-items" = "pattern"))]
    pub exclude: Vec<String>,
    /// Queries that clients may read, by name.
    pub queries: BTreeMap<String, Query>,
    /// The most rows of one result.
    #[schemars(range(min = 1, max = 100_000))]
    pub max_rows: usize,
    /// The most bytes of one result.
    #[schemars(range(min = 1, max = 67_108_864))]
    pub max_bytes: usize,
    /// Seconds that one query may take.
    #[schemars(range(min = 1, max = 3_600))]
    pub timeout_seconds: u64,
    /// Follow changes: the database is asked ten times a second, a server only while somebody listens.
    pub watch: bool,
    /// Channel of a `PostgreSQL` server to listen to, on which triggers notify of changes. The server is asked every two
    /// seconds then, and ten times a second while it cannot be listened to.
    pub notify: Option<String>,
}

/// A query that clients may read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Query {
    /// One statement that reads. Its parameters have names, such as `:month`, and are texts.
    #[schemars(extend("format" = "prose"))]
    pub sql: String,
    /// Description for models.
    #[schemars(extend("format" = "prose"))]
    pub description: Option<String>,
}

impl Default for Database {
    fn default() -> Self {
        let options = DatabaseOptions::new("");
        Self {
            path: PathBuf::new(),
            url: None,
            include: Vec::new(),
            exclude: Vec::new(),
            queries: BTreeMap::new(),
            max_rows: options.max_rows,
            max_bytes: options.max_bytes,
            timeout_seconds: options.timeout.as_secs(),
            watch: options.watch,
            notify: None,
        }
    }
}

impl Database {
    /// The same as options of a database.
    ///
    /// # Errors
    ///
    /// The reason why its `url` cannot be used.
    pub fn options(&self, environment: &Environment) -> Result<DatabaseOptions, String> {
        let options = match &self.url {
            None => DatabaseOptions::new(&self.path),
            Some(url) => {
                let url = url.reveal(environment).ok_or("`url` is empty")?;
                DatabaseOptions::postgres(&url).map_err(|why| format!("`url`: {why}"))?
            }
        };
        Ok(self.on(options))
    }

    fn on(&self, options: DatabaseOptions) -> DatabaseOptions {
        let queries = self.queries.iter().map(|(name, query)| {
            let named = NamedQuery {
                sql: query.sql.trim().to_owned(),
                description: query.description.clone(),
            };
            (name.clone(), named)
        });
        DatabaseOptions {
            include: self.include.clone(),
            exclude: self.exclude.clone(),
            queries: queries.collect(),
            max_rows: self.max_rows,
            max_bytes: self.max_bytes,
            timeout: Duration::from_secs(self.timeout_seconds),
            watch: self.watch,
            notify: self.notify.clone(),
            ..options
        }
    }
}

pub(crate) fn check(
    databases: &BTreeMap<String, Database>,
    origins: &Origins,
    problems: &mut Vec<Problem>,
) {
    for (name, database) in databases {
        let path = child("resources.databases", name);
        let mut error = |key: String, message: String, hint: &str| {
            let origin = origin_near(origins, &key);
            problems.push(Problem::error(origin, message).key(key).hint(hint));
        };
        let is_file = !database.path.as_os_str().is_empty();
        match &database.url {
            None if is_file && database.notify.is_some() => {
                let message = format!("`{path}.notify` is for a PostgreSQL server");
                let hint = "leave it out: changes of a file are looked for";
                error(child(&path, "notify"), message, hint);
            }
            None if is_file => {}
            None => {
                let message = format!("`{path}` has neither `path` nor `url`");
                let hint = "write `path: ./shop.db`, or `url: postgres://reader:${PASSWORD}@host/database`";
                error(child(&path, "path"), message, hint);
            }
            Some(_) if is_file => {
                let message = format!("`{path}.path` and `{path}.url` are two databases");
                error(child(&path, "url"), message, "keep one of the two");
            }
            Some(url) => {
                let key = child(&path, "url");
                let hint = "write `postgres://reader:${PASSWORD}@host:5432/database`";
                if !url.may_begin_with(&["postgres://", "postgresql://"]) {
                    let message = format!("`{key}` must be the address of a PostgreSQL database");
                    error(key, message, hint);
                } else if url.has_bad_port() {
                    let message =
                        format!("`{key}` cannot be used: its port is no number from 1 to 65535");
                    error(key, message, hint);
                }
            }
        }
        if let Err(why) = database
            .on(DatabaseOptions::new(&database.path))
            .check(name)
        {
            let hint = "see docs/resources.md for names and patterns";
            error(path.clone(), format!("`{path}`: {why}"), hint);
        }
    }
}
