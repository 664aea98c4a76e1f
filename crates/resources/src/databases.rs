//! Databases as resources, read and nothing else.

mod address;
mod database;
mod follow;
mod offered;
mod parameters;
mod pool;
mod postgres;
mod sqlite;
mod turns;
mod watch;

pub use self::{address::DATABASE_SCHEME, database::UnmatchedPattern};

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use adapter_skills::SkillCatalog;
use mcp_server::{ComponentState, Prompts, Resources, SourceTools, ToolSource};
use postgres_connection::{Address, AddressError};
use tokio::sync::watch as version;

use self::{
    database::{Database, Source},
    follow::Following,
    offered::{DatabaseResources, TableCompletion},
    watch::Watch,
};
use crate::{addresses::is_name, files::glob::Glob, news::News};

/// Name of the component of `/health` for databases.
pub const DATABASES_COMPONENT: &str = "databases";

/// The most bytes in the name of a channel: longer ones are cut by `PostgreSQL` (`NAMEDATALEN`).
const MAX_CHANNEL: usize = 63;

/// Place of a database.
#[derive(Clone, Debug)]
pub enum DatabasePlace {
    /// A file of `SQLite`, which must be there.
    File(PathBuf),
    /// A `PostgreSQL` server. Who connects should have no rights but to read.
    Postgres(Box<Address>),
}

/// Options of a database.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// Place of the database.
    pub place: DatabasePlace,
    /// Patterns of the tables that are offered. Empty: all. Case counts as in the database: for `SQLite` it does not, of ASCII
    /// letters.
    pub include: Vec<String>,
    /// Patterns of tables, or of columns as `TABLE.COLUMN`, that are not offered.
    pub exclude: Vec<String>,
    /// Queries by name.
    pub queries: BTreeMap<String, NamedQuery>,
    /// The most rows of one result.
    pub max_rows: usize,
    /// The most bytes of one result.
    pub max_bytes: usize,
    /// The longest time of one query.
    pub timeout: Duration,
    /// Follow changes.
    pub watch: bool,
    /// Channel of a `PostgreSQL` server on which triggers say that something has changed (`NOTIFY`). Without one the server
    /// is asked again and again.
    pub notify: Option<String>,
}

impl DatabaseOptions {
    /// All tables of a file, 100 rows and 1 MiB at a time, within five seconds.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self::at(DatabasePlace::File(path.into()))
    }

    /// The same of a `PostgreSQL` database, at an address as [`Address::new`] reads it.
    ///
    /// # Errors
    ///
    /// [`AddressError`] when there can be no connection to such an address.
    pub fn postgres(address: &str) -> Result<Self, AddressError> {
        let address = Box::new(Address::new(address)?);
        Ok(Self::at(DatabasePlace::Postgres(address)))
    }

    fn at(place: DatabasePlace) -> Self {
        Self {
            place,
            include: Vec::new(),
            exclude: Vec::new(),
            queries: BTreeMap::new(),
            max_rows: 100,
            max_bytes: 1024 * 1024,
            timeout: Duration::from_secs(5),
            watch: true,
            notify: None,
        }
    }

    /// Checks names and patterns, without a look at the database.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub fn check(&self, name: &str) -> Result<(), String> {
        if !is_name(name) {
            return Err(format!("`{name}` is no name: 1 to 64 of `a-z0-9-_`"));
        }
        if let Some(query) = self.queries.keys().find(|it| !is_name(it)) {
            return Err(format!(
                "`queries.{query}` is no name: 1 to 64 of `a-z0-9-_`"
            ));
        }
        let mut queries = self.queries.iter();
        if let Some((query, _)) = queries.find(|(_, it)| it.sql.trim().is_empty()) {
            return Err(format!("`queries.{query}.sql` is empty; write one SELECT"));
        }
        if let Some(channel) = &self.notify
            && (channel.is_empty() || MAX_CHANNEL < channel.len() || channel.contains('\0'))
        {
            return Err(format!(
                "`notify` is no name of a channel: 1 to {MAX_CHANNEL} bytes"
            ));
        }
        globs(&self.include)?;
        globs(&self.exclude).map(drop)
    }
}

/// A query that an operator has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedQuery {
    /// One statement that reads, whose parameters have names, such as `:month`.
    pub sql: String,
    /// For models.
    pub description: Option<String>,
}

/// Databases cannot be offered.
#[derive(Debug, thiserror::Error)]
#[error("resources.databases.{name}: {why}")]
pub struct DatabaseError {
    name: String,
    why: String,
}

fn globs(patterns: &[String]) -> Result<Vec<Glob>, String> {
    patterns.iter().map(|it| Glob::new(it)).collect()
}

/// Databases as a source of resources.
#[derive(Debug)]
pub struct Databases {
    all: Arc<[Arc<Database>]>,
    watches: Vec<Watch>,
    following: Vec<Following>,
    news: Arc<News>,
    listed: Arc<version::Sender<u64>>,
}

impl Databases {
    /// Opens databases by name, and follows their changes. Blocks.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`], with the database that cannot be read, or the query that cannot be prepared.
    pub fn open(databases: BTreeMap<String, DatabaseOptions>) -> Result<Self, DatabaseError> {
        let news = Arc::new(News::new(DATABASE_SCHEME));
        let listed = Arc::new(version::Sender::new(0));
        let mut all = Vec::new();
        let (mut watches, mut following) = (Vec::new(), Vec::new());
        for (name, options) in databases {
            let failed = |why: String| DatabaseError {
                name: name.clone(),
                why,
            };
            let database = Arc::new(Database::open(&name, options).map_err(failed)?);
            match &database.source {
                _ if !database.options.watch => {}
                Source::Sqlite(_) => {
                    let (news, listed) = (Arc::clone(&news), Arc::clone(&listed));
                    let watch = Watch::start(Arc::clone(&database), news, listed);
                    watches.push(watch.map_err(|error| failed(error.to_string()))?);
                }
                Source::Postgres(postgres) => {
                    let (news, listed) = (Arc::clone(&news), Arc::clone(&listed));
                    let database = Arc::clone(&database);
                    following.push(Following::start(postgres.runtime(), database, news, listed));
                }
            }
            all.push(database);
        }
        Ok(Self {
            all: all.into(),
            watches,
            following,
            news,
            listed,
        })
    }

    /// Patterns that stand for nothing in their databases now: what they should hide may be offered.
    pub fn unmatched_patterns(&self) -> impl Iterator<Item = UnmatchedPattern> {
        self.all.iter().flat_map(|it| it.unmatched())
    }

    /// Word of each table and view that cannot be read now, and is not offered.
    pub fn broken(&self) -> impl Iterator<Item = String> {
        self.all.iter().flat_map(|it| it.broken())
    }

    /// Takes the addresses that somebody listens to, in place of those before. They are compared after each change of
    /// their database.
    pub fn listen_to<'a>(&self, uris: impl IntoIterator<Item = &'a String>) {
        self.news.listen_to(uris);
    }

    /// Addresses that somebody listens to and at which there is something else now, once there are any. For one caller
    /// at a time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn changed(&self) -> BTreeSet<String> {
        self.news.changed().await
    }
}

impl ToolSource for Databases {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        SourceTools::default()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        let (all, news) = (Arc::clone(&self.all), Arc::clone(&self.news));
        Some(Arc::new(DatabaseResources::new(all, news)))
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        Some(Arc::new(TableCompletion(Arc::clone(&self.all))))
    }

    fn changes(&self) -> Option<version::Receiver<u64>> {
        Some(self.listed.subscribe())
    }

    fn health(&self) -> Option<ComponentState> {
        let of_files = self.watches.iter().map(Watch::told);
        let of_servers = self.following.iter().map(Following::told);
        let (failures, late): (Vec<_>, Vec<_>) = of_files.chain(of_servers).unzip();
        let is_ok = failures.iter().all(Option::is_none);
        let told = failures.into_iter().chain(late).flatten();
        let broken = self.all.iter().filter_map(|it| it.told_broken());
        let told: Vec<_> = told.chain(broken).collect();
        Some(ComponentState {
            name: DATABASES_COMPONENT,
            ok: is_ok,
            detail: (!told.is_empty()).then(|| told.join("; ")),
        })
    }
}
