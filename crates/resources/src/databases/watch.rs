//! A watch on a database: what somebody listens to is compared after each change.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread,
    time::Duration,
};

use rusqlite::Connection;

use tokio::sync::watch;

use crate::{
    databases::{
        address::parse,
        database::{Database, Source, hash},
        sqlite::{self, Sqlite},
    },
    news::{MAX_COMPARED, News},
};

/// Interval at which a database is asked if it has changed.
const POLL: Duration = Duration::from_millis(100);
/// The same while it cannot be asked.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Shared {
    is_over: Mutex<bool>,
    woken: Condvar,
    failure: Mutex<Option<String>>,
}

/// A watch, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    pub(crate) fn start(
        database: Arc<Database>,
        news: Arc<News>,
        listed: Arc<watch::Sender<u64>>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let worker = Worker {
            shared: Arc::clone(&shared),
            database,
            news,
            listed,
            connection: None,
            file: None,
            version: None,
            known: HashMap::new(),
        };
        thread::Builder::new()
            .name("database-watch".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self { shared })
    }

    /// The reason for which changes are not heard of.
    pub(crate) fn failure(&self) -> Option<String> {
        let failure = &self.shared.failure;
        let failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let is_over = &self.shared.is_over;
        *is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.woken.notify_all();
    }
}

struct Worker {
    shared: Arc<Shared>,
    database: Arc<Database>,
    news: Arc<News>,
    listed: Arc<watch::Sender<u64>>,
    connection: Option<Connection>,
    /// The file that it is to.
    file: Option<(u64, u64)>,
    version: Option<i64>,
    /// A hash of what was last seen at each address that somebody listens to.
    known: HashMap<String, u64>,
}

impl Worker {
    fn run(mut self) {
        loop {
            let database = Arc::clone(&self.database);
            let Source::Sqlite(sqlite) = &database.source else {
                return;
            };
            let outcome = self.look(sqlite);
            let pause = match &outcome {
                Ok(()) => POLL,
                Err(_) => AFTER_FAILURE,
            };
            let told = outcome.err().map(|error| {
                self.connection = None;
                self.version = None;
                format!(
                    "changes of `{}` are not heard of: {error}",
                    self.database.name
                )
            });
            *self
                .shared
                .failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = told;
            let is_over = &self.shared.is_over;
            let is_over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self
                .shared
                .woken
                .wait_timeout_while(is_over, pause, |it| !*it);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }

    fn look(&mut self, sqlite: &Sqlite) -> rusqlite::Result<()> {
        let file = sqlite.file();
        if self.file != file {
            self.connection = None;
            self.version = None;
            self.file = file;
        }
        let connection = match self.connection.take() {
            Some(connection) => connection,
            None => sqlite.connect()?,
        };
        // Another number after each commit of another connection (https://www.sqlite.org/pragma.html#pragma_data_version).
        let version = connection.pragma_query_value(None, "data_version", |row| row.get(0))?;
        self.connection = Some(connection);
        let has_changed = self.version.replace(version) != Some(version);
        if has_changed {
            let tables = sqlite.read(drop, |connection| Ok(sqlite::tables(connection)?));
            if tables.is_ok_and(|it| self.database.take_tables(it)) {
                self.listed.send_modify(|it| *it += 1);
            }
        }
        self.compare(sqlite, has_changed);
        Ok(())
    }

    fn compare(&mut self, sqlite: &Sqlite, has_changed: bool) {
        let listened = self.news.listened();
        self.known.retain(|it, _| listened.contains(it));
        let own = listened.iter().filter_map(|uri| {
            let (name, place) = parse(uri)?;
            (name == self.database.name).then_some((uri, place))
        });
        let mut changed = Vec::new();
        for (uri, place) in own.take(MAX_COMPARED) {
            if !has_changed && self.known.contains_key(uri) {
                continue;
            }
            let Some(now) = hash(&self.database.read_file(sqlite, &place, drop)) else {
                // It is looked at again.
                self.version = None;
                continue;
            };
            // What was there when somebody began to listen, or else now.
            let before = match self.known.insert(uri.clone(), now) {
                Some(before) => before,
                None => self.news.take_heard(uri).unwrap_or(now),
            };
            if before != now {
                changed.push(uri.clone());
            }
        }
        if !changed.is_empty() {
            self.news.tell(changed);
        }
    }
}
