//! A watch on a database: what somebody listens to is compared after each change.

use std::{
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rusqlite::Connection;

use tokio::sync::watch;

use crate::{
    databases::{
        address::Place,
        database::{Database, Source},
        sqlite::{self, QueryError, Sqlite},
        turns::{LONGEST, Turns},
    },
    news::News,
};

/// Interval at which a database is asked if it has changed.
const POLL: Duration = Duration::from_millis(100);
/// The same while it cannot be asked.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// The reason for which changes are not heard of, and what is told late.
    told: Mutex<(Option<String>, Option<String>)>,
    woken: Condvar,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
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
            turns: Turns::new(&database.name, Arc::clone(&news)),
            database,
            news,
            listed,
            connection: None,
            file: None,
            version: None,
        };
        thread::Builder::new()
            .name("database-watch".to_owned())
            .spawn(move || worker.run())?;
        Ok(Self { shared })
    }

    /// The reason for which changes are not heard of, and what is told late.
    pub(crate) fn told(&self) -> (Option<String>, Option<String>) {
        let told = self.shared.told.lock();
        told.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Whoever waits has looked before, or hears it.
        drop(self.shared.told.lock());
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
    turns: Turns,
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
            let failure = outcome.err().map(|error| {
                self.connection = None;
                self.version = None;
                format!(
                    "changes of `{}` are not heard of: {error}",
                    self.database.name
                )
            });
            let told = self.shared.told.lock();
            let mut told = told.unwrap_or_else(PoisonError::into_inner);
            *told = (failure, self.turns.told_late());
            let shared = &self.shared;
            let waited = shared
                .woken
                .wait_timeout_while(told, pause, |_| !shared.is_over());
            drop(waited);
            if self.shared.is_over() {
                return;
            }
        }
    }

    fn look(&mut self, sqlite: &Sqlite) -> Result<(), QueryError> {
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
        let has_changed = self.version != Some(version);
        if has_changed {
            let tables = sqlite.read(sqlite::unbounded, sqlite::tables)?;
            if self.database.take_tables(tables) {
                self.listed.send_modify(|it| *it += 1);
            }
        }
        self.version = Some(version);
        self.turns.follow(has_changed);
        let began = Instant::now();
        while began.elapsed() < POLL
            && let Some((uri, place)) = self.turns.next(Instant::now())
        {
            let began = Instant::now();
            let read = self.read(sqlite, &uri, &place);
            self.turns.take(&uri, began, &read);
        }
        Ok(())
    }

    /// Reads what is at an address, as long as somebody listens to it, and no longer than such a read may take.
    fn read(&self, sqlite: &Sqlite, uri: &str, place: &Place) -> Result<String, QueryError> {
        let longest = LONGEST.min(self.database.options.timeout);
        let until = Instant::now() + longest;
        let (news, shared) = (Arc::clone(&self.news), Arc::clone(&self.shared));
        let listened = uri.to_owned();
        let is_over = move || {
            until <= Instant::now() || shared.is_over() || !news.listened().contains(&listened)
        };
        match self.database.read_file(sqlite, place, is_over) {
            Err(QueryError::Ended) if until <= Instant::now() => Err(QueryError::TooLong(longest)),
            read => read,
        }
    }
}
