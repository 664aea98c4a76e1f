//! Databases as resources, read and nothing else.

mod address;
mod sqlite;
mod watch;

pub use self::address::DATABASE_SCHEME;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use adapter_skills::{Content, SkillCatalog};
use adapter_tools::ToolCx;
use futures_util::future::{BoxFuture, ready};
use mcp_protocol::model::{
    CacheHint, CacheScope, Complete, Completion, CompletionReference, GetPromptResult,
    ListResources, Prompt, ReadResource, ReadResourceResult, Resource, ResourceTemplate,
};
use mcp_server::{
    ComponentState, PromptCx, PromptFailure, Prompts, ReadFailure, ResourceEntry, Resources,
    SourceTools, ToolSource, content_result,
};
use rusqlite::InterruptHandle;
use serde_json::{Value, json};
use tokio::sync::{Notify, watch as version};

use self::{
    address::{Place, parse},
    sqlite::{Bounds, QueryError, Sqlite, Table},
    watch::{MAX_COMPARED, Watch, digest},
};
use crate::{addresses::encoded, files::glob::Glob};

/// Name of the component of `/health` for databases.
pub const DATABASES_COMPONENT: &str = "databases";

/// The most suggestions of one answer.
const MAX_VALUES: usize = 100;

/// Options of a database.
#[derive(Clone, Debug)]
pub struct DatabaseOptions {
    /// The file, which must be there.
    pub path: PathBuf,
    /// Patterns of the tables that are offered. Empty: all.
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
}

impl DatabaseOptions {
    /// All tables of a file, 100 rows and 1 MiB at a time, within five seconds.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            include: Vec::new(),
            exclude: Vec::new(),
            queries: BTreeMap::new(),
            max_rows: 100,
            max_bytes: 1024 * 1024,
            timeout: Duration::from_secs(5),
            watch: true,
        }
    }

    /// Checks names and patterns, without a look at the database.
    ///
    /// # Errors
    ///
    /// The mistake, in words.
    pub fn check(&self, name: &str) -> Result<(), String> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= 64
                && name
                    .bytes()
                    .all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-_".contains(&it))
        };
        if !is_name(name) {
            return Err(format!("`{name}` is no name: 1 to 64 of `a-z0-9-_`"));
        }
        if let Some(query) = self.queries.keys().find(|it| !is_name(it)) {
            return Err(format!(
                "`queries.{query}` is no name: 1 to 64 of `a-z0-9-_`"
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

/// A database, as it is offered.
struct Database {
    name: String,
    options: DatabaseOptions,
    include: Vec<Glob>,
    exclude: Vec<Glob>,
    sqlite: Sqlite,
    /// Names of the parameters of each query.
    parameters: BTreeMap<String, Vec<String>>,
    tables: RwLock<Arc<Vec<Table>>>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut database = f.debug_struct("Database");
        database.field("name", &self.name).finish_non_exhaustive()
    }
}

impl Database {
    fn open(name: &str, options: DatabaseOptions) -> Result<Self, String> {
        options.check(name)?;
        let place = options.path.display().to_string();
        let told = |error: rusqlite::Error| format!("{place} cannot be read: {error}");
        let sqlite = Sqlite::open(&options.path, options.timeout).map_err(told)?;
        let mut parameters = BTreeMap::new();
        for (query, written) in &options.queries {
            let names = sqlite.read(drop, |connection| {
                Ok(sqlite::parameters(connection, &written.sql))
            });
            let names = names.map_err(|error| error.to_string()).flatten();
            let names = names.map_err(|why| format!("`queries.{query}.sql`: {why}"))?;
            parameters.insert(query.clone(), names);
        }
        let database = Self {
            name: name.to_owned(),
            include: globs(&options.include)?,
            exclude: globs(&options.exclude)?,
            sqlite,
            parameters,
            tables: RwLock::default(),
            options,
        };
        database.look().map_err(|error| error.to_string())?;
        Ok(database)
    }

    /// Reads which tables there are: true if they are others than before.
    fn look(&self) -> Result<bool, QueryError> {
        let read = |connection: &_| Ok(sqlite::tables(connection)?);
        let tables = self.sqlite.read(drop, read)?;
        let tables: Vec<_> = tables
            .into_iter()
            .filter_map(|it| self.offered(it))
            .collect();
        let mut known = self.tables.write().unwrap_or_else(PoisonError::into_inner);
        let is_other = **known != tables;
        *known = Arc::new(tables);
        Ok(is_other)
    }

    /// A table with the columns that are offered, if it is.
    fn offered(&self, mut table: Table) -> Option<Table> {
        let matches = |globs: &[Glob], text: &str| globs.iter().any(|it| it.matches(text));
        let name = table.name.clone();
        let is_included = self.include.is_empty() || matches(&self.include, &name);
        if !is_included || matches(&self.exclude, &name) {
            return None;
        }
        let column = |it: &str| format!("{name}.{it}");
        table
            .columns
            .retain(|it| !matches(&self.exclude, &column(&it.name)));
        (!table.columns.is_empty()).then_some(table)
    }

    fn tables(&self) -> Arc<Vec<Table>> {
        let tables = self.tables.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&tables)
    }

    fn table(&self, name: &str) -> Result<Table, QueryError> {
        let tables = self.tables();
        let mut tables = tables.iter();
        let found = tables.find(|it| it.name == name);
        found.cloned().ok_or(QueryError::NotFound)
    }

    /// True if there may be something at a place.
    fn has(&self, place: &Place) -> bool {
        match place {
            Place::Schema => true,
            Place::Table { table, .. } | Place::Row { table, .. } => self.table(table).is_ok(),
            Place::Query { query, .. } => self.parameters.contains_key(query),
        }
    }

    fn read(
        &self,
        place: &Place,
        tell: impl FnMut(Option<InterruptHandle>),
    ) -> Result<Value, QueryError> {
        let bounds = Bounds {
            rows: self.options.max_rows,
            bytes: self.options.max_bytes,
        };
        match place {
            Place::Schema => Ok(self.schema()),
            Place::Table { table, offset } => {
                let table = self.table(table)?;
                let read = |connection: &_| sqlite::rows(connection, &table, *offset, bounds);
                let found = self.sqlite.read(tell, read)?;
                let next = offset.saturating_add(found.rows.len() as u64);
                Ok(json!({
                    "rows": found.rows,
                    "next": found.has_more.then(|| {
                        let table = table.name.clone();
                        Place::Table { table, offset: next }.address(&self.name)
                    }),
                }))
            }
            Place::Row { table, key } => {
                let table = self.table(table)?;
                let read = |connection: &_| sqlite::row(connection, &table, key, bounds);
                self.sqlite.read(tell, read)
            }
            Place::Query { query, values } => {
                let written = self.options.queries.get(query);
                let sql = &written.ok_or(QueryError::NotFound)?.sql;
                let read = |connection: &_| sqlite::query(connection, sql, values, bounds);
                let found = self.sqlite.read(tell, read)?;
                Ok(json!({ "rows": found.rows, "isCut": found.has_more }))
            }
        }
    }

    fn schema(&self) -> Value {
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
    fn table_template(&self) -> String {
        format!("{DATABASE_SCHEME}{}/tables/{{table}}{{?offset}}", self.name)
    }

    fn row_template(&self) -> String {
        format!("{DATABASE_SCHEME}{}/tables/{{table}}/{{key}}", self.name)
    }

    fn entries(&self) -> Vec<ResourceEntry> {
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

    fn templates(&self) -> Vec<ResourceTemplate> {
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

const JSON: &str = "application/json";

/// Databases as a source of resources.
#[derive(Debug)]
pub struct Databases {
    all: Arc<[Arc<Database>]>,
    watches: Vec<Watch>,
    news: Arc<News>,
}

/// Changes that nobody has been told of yet, and addresses that somebody listens to.
#[derive(Debug)]
struct News {
    listened: RwLock<Arc<BTreeSet<String>>>,
    /// Hashes of what was there when somebody began to listen, until the watch takes them over.
    heard: Mutex<HashMap<String, u64>>,
    changed: Mutex<BTreeSet<String>>,
    woken: Notify,
    listed: version::Sender<u64>,
}

impl News {
    fn hear(&self, uri: &str, seen: u64) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if MAX_COMPARED <= heard.len() {
            heard.clear();
        }
        heard.insert(uri.to_owned(), seen);
    }

    fn take_heard(&self, uri: &str) -> Option<u64> {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        heard.remove(uri)
    }
}

impl Databases {
    /// Opens databases by name, and follows their changes. Blocks.
    ///
    /// # Errors
    ///
    /// [`DatabaseError`], with the database that cannot be read, or the query that cannot be prepared.
    pub fn open(databases: BTreeMap<String, DatabaseOptions>) -> Result<Self, DatabaseError> {
        let news = Arc::new(News {
            listened: RwLock::default(),
            heard: Mutex::default(),
            changed: Mutex::default(),
            woken: Notify::new(),
            listed: version::Sender::new(0),
        });
        let mut all = Vec::new();
        let mut watches = Vec::new();
        for (name, options) in databases {
            let failed = |why: String| DatabaseError {
                name: name.clone(),
                why,
            };
            let database = Arc::new(Database::open(&name, options).map_err(failed)?);
            if database.options.watch {
                let watch = Watch::start(Arc::clone(&database), Arc::clone(&news));
                watches.push(watch.map_err(|error| failed(error.to_string()))?);
            }
            all.push(database);
        }
        Ok(Self {
            all: all.into(),
            watches,
            news,
        })
    }

    /// Takes the addresses that somebody listens to, in place of those before. They are compared after each change of
    /// their database.
    pub fn listen_to<'a>(&self, uris: impl IntoIterator<Item = &'a String>) {
        let uris = uris
            .into_iter()
            .filter(|it| it.starts_with(DATABASE_SCHEME));
        let uris = Arc::new(uris.cloned().collect());
        let listened = &self.news.listened;
        *listened.write().unwrap_or_else(PoisonError::into_inner) = uris;
    }

    /// Addresses that somebody listens to and at which there is something else now, once there are any. For one caller
    /// at a time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub async fn changed(&self) -> BTreeSet<String> {
        loop {
            {
                let changed = &self.news.changed;
                let mut changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
                if !changed.is_empty() {
                    return std::mem::take(&mut changed);
                }
            }
            self.news.woken.notified().await;
        }
    }
}

impl ToolSource for Databases {
    fn tools(&self, _: &SkillCatalog) -> SourceTools {
        SourceTools::default()
    }

    fn resources(&self) -> Option<Arc<dyn Resources>> {
        Some(Arc::new(DatabaseResources {
            entries: self.all.iter().flat_map(|it| it.entries()).collect(),
            templates: self.all.iter().flat_map(|it| it.templates()).collect(),
            all: Arc::clone(&self.all),
            news: Arc::clone(&self.news),
        }))
    }

    fn prompts(&self) -> Option<Arc<dyn Prompts>> {
        Some(Arc::new(TableCompletion(Arc::clone(&self.all))))
    }

    fn changes(&self) -> Option<version::Receiver<u64>> {
        Some(self.news.listed.subscribe())
    }

    fn health(&self) -> Option<ComponentState> {
        let failures = self.watches.iter().filter_map(Watch::failure);
        let failures: Vec<_> = failures.collect();
        Some(ComponentState {
            name: DATABASES_COMPONENT,
            ok: failures.is_empty(),
            detail: (!failures.is_empty()).then(|| failures.join("; ")),
        })
    }
}

/// Tables and queries on offer at one time; read as they are.
#[derive(Debug)]
struct DatabaseResources {
    all: Arc<[Arc<Database>]>,
    news: Arc<News>,
    entries: Vec<ResourceEntry>,
    templates: Vec<ResourceTemplate>,
}

fn find<'d>(all: &'d [Arc<Database>], uri: &str) -> Option<(&'d Arc<Database>, Place)> {
    let (name, place) = parse(uri)?;
    let database = all.iter().find(|it| it.name == name)?;
    database.has(&place).then_some((database, place))
}

/// Ends a query that nobody waits for any more.
#[derive(Default)]
struct EndOnDrop(Arc<Mutex<Option<InterruptHandle>>>);

impl EndOnDrop {
    fn interrupt(&self) {
        let handle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = &*handle {
            handle.interrupt();
        }
    }
}

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.interrupt();
    }
}

impl Resources for DatabaseResources {
    fn entries(&self) -> &[ResourceEntry] {
        &self.entries
    }

    fn templates(&self) -> &[ResourceTemplate] {
        &self.templates
    }

    fn matching(&self, filter: &ListResources) -> Result<Vec<usize>, String> {
        Ok(crate::matching(&self.entries, filter))
    }

    fn canonical(&self, uri: &str) -> Option<String> {
        let (database, place) = find(&self.all, uri)?;
        Some(place.address(&database.name))
    }

    fn governed_by(&self, uri: &str) -> Option<String> {
        let (database, place) = find(&self.all, uri)?;
        Some(place.governed_by(&database.name))
    }

    fn tells_of_changes(&self, uri: &str) -> bool {
        find(&self.all, uri).is_some_and(|(database, place)| {
            database.options.watch && place.address(&database.name) == uri
        })
    }

    fn hear<'a>(&'a self, uri: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let Some((database, place)) = find(&self.all, uri) else {
                return Err(mcp_server::UNHEARD.to_owned());
            };
            crate::heard(database.options.watch, &place.address(&database.name), uri)?;
            let database = Arc::clone(database);
            // So that a change is told which comes before the watch has seen what is there.
            let seen = tokio::task::spawn_blocking(move || digest(&database, &place)).await;
            self.news
                .hear(uri, seen.map_err(|error| error.to_string())?);
            Ok(())
        })
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            let (database, place) = find(&self.all, &read.uri).ok_or(ReadFailure::NotFound)?;
            let database = Arc::clone(database);
            let timeout = database.options.timeout;
            let guard = EndOnDrop::default();
            let handle = Arc::clone(&guard.0);
            let mut reading = tokio::task::spawn_blocking(move || {
                database.read(&place, |it| {
                    *handle.lock().unwrap_or_else(PoisonError::into_inner) = it;
                })
            });
            let outcome = match tokio::time::timeout(timeout, &mut reading).await {
                Ok(outcome) => outcome,
                Err(_elapsed) => {
                    guard.interrupt();
                    // It ends at once, and its thread is free again.
                    let _ended = reading.await;
                    Ok(Err(QueryError::TooLong(timeout)))
                }
            };
            let found = outcome.map_err(|error| ReadFailure::Unreadable(error.into()))?;
            let found = found.map_err(|error| match error {
                QueryError::NotFound => ReadFailure::NotFound,
                QueryError::Values(why) => ReadFailure::Range(why),
                error => ReadFailure::Unreadable(error.into()),
            })?;
            let cache = CacheHint {
                ttl_ms: 0,
                scope: CacheScope::Private,
            };
            let content = Content::new(found.to_string().into_bytes(), None);
            content_result(&content, JSON, &read, cache)
        })
    }
}

/// Suggestions for names of tables.
#[derive(Debug)]
struct TableCompletion(Arc<[Arc<Database>]>);

impl Prompts for TableCompletion {
    fn entries(&self) -> &[Prompt] {
        &[]
    }

    fn get(&self, _: PromptCx) -> BoxFuture<'_, Result<GetPromptResult, PromptFailure>> {
        let why = "there is no such prompt".to_owned();
        Box::pin(ready(Err(PromptFailure::Arguments(why))))
    }

    fn suggest<'a>(
        &'a self,
        cx: ToolCx,
        request: &'a Complete,
    ) -> BoxFuture<'a, Option<Completion>> {
        let CompletionReference::Resource { uri } = &request.reference else {
            return Box::pin(ready(None));
        };
        let is_its = |it: &&Arc<Database>| it.templates().iter().any(|it| it.uri_template == *uri);
        let Some(database) = self.0.iter().find(is_its) else {
            return Box::pin(ready(None));
        };
        let mut values = Vec::new();
        if let (Some(reads), "table") = (cx.resources(), request.argument.as_str()) {
            for table in database.tables().iter() {
                let place = Place::Table {
                    table: table.name.clone(),
                    offset: 0,
                };
                if table.name.starts_with(&request.value)
                    && reads.permits(&place.governed_by(&database.name))
                {
                    values.push(table.name.clone());
                }
            }
        }
        let has_more = MAX_VALUES < values.len();
        values.truncate(MAX_VALUES);
        Box::pin(ready(Some(Completion {
            values,
            has_more,
            ..Completion::default()
        })))
    }

    fn completes_resources(&self) -> bool {
        true
    }
}
