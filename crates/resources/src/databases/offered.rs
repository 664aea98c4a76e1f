//! Databases on offer: how clients find, read and complete what is in them.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use adapter_skills::Content;
use adapter_tools::{ToolCx, ToolError};
use futures_util::future::BoxFuture;
use mcp_protocol::model::{
    CacheHint, CacheScope, Complete, Completion, CompletionReference, ListResources, ReadResource,
    ReadResourceResult, ResourceTemplate,
};
use mcp_server::{Prompts, ReadFailure, ResourceEntry, Resources, content_result};
use rusqlite::ErrorCode;

use crate::{
    databases::{
        address::{Place, parse},
        database::{Database, JSON, Source, hash},
        postgres::with_causes,
        sqlite::QueryError,
        turns::{LONGEST, own},
    },
    news::{MAX_COMPARED, News},
};

/// The most suggestions of one answer.
const MAX_VALUES: usize = 100;

/// Tables and queries on offer at one time; read as they are.
#[derive(Debug)]
pub(crate) struct DatabaseResources {
    all: Arc<[Arc<Database>]>,
    news: Arc<News>,
    entries: Vec<ResourceEntry>,
    templates: Vec<ResourceTemplate>,
}

impl DatabaseResources {
    pub(crate) fn new(all: Arc<[Arc<Database>]>, news: Arc<News>) -> Self {
        Self {
            entries: all.iter().flat_map(|it| it.entries()).collect(),
            templates: all.iter().flat_map(|it| it.templates()).collect(),
            all,
            news,
        }
    }
}

fn find<'d>(all: &'d [Arc<Database>], uri: &str) -> Option<(&'d Arc<Database>, Place)> {
    let (name, place) = parse(uri)?;
    let database = all.iter().find(|it| it.name == name)?;
    database.has(&place).then_some((database, place))
}

/// Ends a query that nobody waits for any more.
#[derive(Default)]
struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Reads what is at a place, within the time that the database's options give. What nobody waits for any more is ended.
async fn read(database: Arc<Database>, place: Place) -> Result<String, QueryError> {
    let timeout = database.options.timeout;
    let guard = match &database.source {
        Source::Sqlite(_) => EndOnDrop::default(),
        Source::Postgres(postgres) => {
            let readers = Arc::clone(postgres.readers());
            let reading = Arc::clone(&database);
            let read = async move { reading.read_server(&readers, &place).await };
            return postgres.run(read).await;
        }
    };
    let (until, is_left) = (Instant::now() + timeout, Arc::clone(&guard.0));
    let is_over = move || until <= Instant::now() || is_left.load(Ordering::Relaxed);
    let reading = tokio::task::spawn_blocking(move || match &database.source {
        Source::Sqlite(sqlite) => database.read_file(sqlite, &place, is_over),
        Source::Postgres(_) => Err(QueryError::NotFound),
    });
    match reading.await.unwrap_or(Err(QueryError::Ended)) {
        Err(QueryError::Ended) => Err(QueryError::TooLong(timeout)),
        read => read,
    }
}

/// Failure as the reader is told of it. What the database says may show what is in it, and is for the log.
fn told(error: QueryError) -> ReadFailure {
    const PAUSE: Duration = Duration::from_secs(5);
    let is_away = match &error {
        QueryError::Connect(_) => true,
        QueryError::Server(server) => server.is_closed(),
        QueryError::File(file) => matches!(
            file.sqlite_error_code(),
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::CannotOpen)
        ),
        _ => false,
    };
    match error {
        QueryError::NotFound => ReadFailure::NotFound,
        QueryError::Values(why) => ReadFailure::Values(why),
        QueryError::TooLong(limit) => ReadFailure::TimedOut(limit),
        error @ (QueryError::TooLarge(_) | QueryError::SameName(_)) => {
            ReadFailure::Handler(ToolError::failed(error.to_string()))
        }
        error if is_away => ReadFailure::Handler(ToolError::Unavailable {
            message: "the database cannot be read now".to_owned(),
            retry_after: Some(PAUSE),
            detail: with_causes(&error),
        }),
        error => ReadFailure::Unreadable(error.into()),
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

    /// A row may come, so that its table decides.
    fn family(&self, uri: &str) -> Option<String> {
        match find(&self.all, uri)? {
            (database, Place::Row { table, .. }) => {
                let table = Place::Table { table, offset: 0 };
                Some(table.governed_by(&database.name))
            }
            _ => None,
        }
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
            let listened = self.news.listened();
            if !listened.contains(uri) && MAX_COMPARED <= own(&database.name, &listened).count() {
                return Err(format!(
                    "{MAX_COMPARED} addresses of this database are listened to already; read it again"
                ));
            }
            // One who begins to listen to much leaves room for readers.
            let _turn = database.hearing.acquire().await;
            let began = Instant::now();
            let longest = LONGEST.min(database.options.timeout);
            let seen = tokio::time::timeout(longest, read(Arc::clone(database), place)).await;
            let seen = seen.unwrap_or(Err(QueryError::TooLong(longest)));
            if let Err(QueryError::TooLong(_)) = seen {
                return Err(format!(
                    "reading it takes longer than the {longest:?} that what is listened to may take, since it is \
                     read after each change; read it again"
                ));
            }
            // So that a change is told which comes before the watch has seen what is there.
            if let Some(seen) = hash(&seen) {
                self.news.hear(uri, seen, began.elapsed());
            }
            Ok(())
        })
    }

    fn read(
        self: Arc<Self>,
        read: ReadResource,
    ) -> BoxFuture<'static, Result<ReadResourceResult, ReadFailure>> {
        Box::pin(async move {
            let (database, place) = find(&self.all, &read.uri).ok_or(ReadFailure::NotFound)?;
            let found = self::read(Arc::clone(database), place).await;
            let found = found.map_err(told)?;
            let cache = CacheHint {
                ttl_ms: 0,
                scope: CacheScope::Private,
            };
            let content = Content::new(found.into_bytes(), None);
            content_result(&content, JSON, &read, cache)
        })
    }
}

/// Suggestions for names of tables.
#[derive(Debug)]
pub(crate) struct TableCompletion(pub(crate) Arc<[Arc<Database>]>);

impl Prompts for TableCompletion {
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
