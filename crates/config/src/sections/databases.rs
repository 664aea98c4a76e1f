//! Databases as resources, as configured.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use resources::{DatabaseOptions, NamedQuery};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::layer::{Origins, child, origin_near};
use crate::problem::Problem;

/// A `SQLite` database whose tables and queries are resources, `db://NAME/tables/TABLE` and `db://NAME/queries/QUERY`. It
/// is only read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Database {
    /// The file, which must be there.
    #[schemars(extend("format" = "path"))]
    pub path: PathBuf,
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
    /// Follow changes: the file is asked ten times a second.
    pub watch: bool,
}

/// A query that clients may read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Query {
    /// One statement that reads. Its parameters have names, such as `:month`, and are texts.
    pub sql: String,
    /// Description for models.
    pub description: Option<String>,
}

impl Default for Database {
    fn default() -> Self {
        let options = DatabaseOptions::new("");
        Self {
            path: options.path,
            include: Vec::new(),
            exclude: Vec::new(),
            queries: BTreeMap::new(),
            max_rows: options.max_rows,
            max_bytes: options.max_bytes,
            timeout_seconds: options.timeout.as_secs(),
            watch: options.watch,
        }
    }
}

impl Database {
    /// The same as options of a database.
    pub fn options(&self) -> DatabaseOptions {
        let queries = self.queries.iter().map(|(name, query)| {
            let named = NamedQuery {
                sql: query.sql.clone(),
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
            ..DatabaseOptions::new(&self.path)
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
        if database.path.as_os_str().is_empty() {
            let message = format!("`{path}` has no `path`");
            error(child(&path, "path"), message, "write `path: ./shop.db`");
        }
        if let Err(why) = database.options().check(name) {
            let hint = "see docs/resources.md for names and patterns";
            error(path.clone(), format!("`{path}`: {why}"), hint);
        }
    }
}
