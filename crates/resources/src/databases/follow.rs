//! A watch on a `PostgreSQL` database: what somebody listens to is compared after others have changed something.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinHandle,
};

use crate::{
    databases::{
        address::Place,
        database::{Database, Source},
        pool::{Ear, Pool},
        postgres::with_causes,
        sqlite::QueryError,
        turns::{LONGEST, Turns},
    },
    news::News,
};

/// Interval at which a database is asked if it has changed, while somebody listens.
const POLL: Duration = Duration::from_millis(100);
/// The same while nobody does, for tables that come and go, and while notifications say when something has changed.
const AT_REST: Duration = Duration::from_secs(2);
/// The same while it cannot be asked.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A look at whether there are changes is followed by a pause of so many times its length at least.
const SHARE: u32 = 10;

/// A watch, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    told: Arc<Mutex<Told>>,
    task: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The reason for which changes are not heard of, and what is told late.
type Told = (Option<String>, Option<String>);

fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Following {
    /// Begins to follow a database, on the threads of `runtime`.
    pub(crate) fn start(
        runtime: &Handle,
        database: Arc<Database>,
        news: Arc<News>,
        listed: Arc<watch::Sender<u64>>,
    ) -> Self {
        let told = Arc::new(Mutex::default());
        let Source::Postgres(postgres) = &database.source else {
            unreachable!("files have a watch of their own");
        };
        let follower = Follower {
            pool: Arc::clone(postgres.watcher()),
            channel: database.options.notify.clone(),
            ear: None,
            woken: Arc::new(Notify::new()),
            name: database.name.clone(),
            turns: Turns::new(&database.name, Arc::clone(&news)),
            database: Arc::downgrade(&database),
            news,
            listed,
            snapshot: None,
        };
        let task = runtime.spawn(follower.run(Arc::clone(&told)));
        Self { told, task }
    }

    /// The reason for which changes are not heard of, and what is told late.
    pub(crate) fn told(&self) -> Told {
        lock(&self.told).clone()
    }
}

struct Follower {
    pool: Arc<Pool>,
    /// Channel on which triggers say that something has changed.
    channel: Option<String>,
    /// Connection that listens to it.
    ear: Option<Ear>,
    /// Notified with each of its notifications.
    woken: Arc<Notify>,
    name: String,
    /// The database has the threads that this runs on, and would never end.
    database: std::sync::Weak<Database>,
    news: Arc<News>,
    listed: Arc<watch::Sender<u64>>,
    /// Transactions that were seen last.
    snapshot: Option<String>,
    turns: Turns,
}

impl Follower {
    async fn run(mut self, told: Arc<Mutex<Told>>) {
        let mut listened = self.news.follow_listened();
        loop {
            listened.mark_unchanged();
            let began = Instant::now();
            // Before the look: what changes after it is notified, and what has changed before it is seen.
            let deaf = self.listen().await.err();
            let outcome = self.look().await;
            let least = began.elapsed() * SHARE;
            if outcome.is_ok() {
                self.compare().await;
            }
            let pause = match &outcome {
                Ok(()) if self.turns.is_any() && self.ear.is_none() => POLL,
                Ok(()) => AT_REST.min(self.turns.wait(Instant::now())),
                Err(_) => AFTER_FAILURE,
            };
            let failure_now = outcome.err().map(|error| {
                self.snapshot = None;
                let (name, why) = (&self.name, with_causes(&error));
                format!("changes of `{name}` are not heard of: {why}")
            });
            let failure = failure_now.or_else(|| {
                let (name, why) = (&self.name, with_causes(&deaf?));
                Some(format!(
                    "notifications of `{name}` are not heard, which is asked ten times a second instead: {why}"
                ))
            });
            *lock(&told) = (failure, self.turns.told_late());
            let woken = async {
                tokio::time::sleep(least).await;
                self.woken.notified().await;
            };
            tokio::select! {
                () = tokio::time::sleep(pause.max(least)) => {}
                () = woken => {}
                changed = listened.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Listens to the channel, where there is one, unless a connection does.
    async fn listen(&mut self) -> Result<(), QueryError> {
        let Some(channel) = &self.channel else {
            return Ok(());
        };
        if self.ear.as_ref().is_some_and(|it| !it.is_deaf()) {
            return Ok(());
        }
        self.ear = None;
        self.ear = Some(self.pool.ear(channel, Arc::clone(&self.woken)).await?);
        Ok(())
    }

    async fn look(&mut self) -> Result<(), QueryError> {
        let Some(database) = self.database.upgrade() else {
            return Ok(());
        };
        let now = self.pool.snapshot().await?;
        let has_changed = self.snapshot.as_ref() != Some(&now);
        if has_changed && database.take_tables(self.pool.tables().await?) {
            self.listed.send_modify(|it| *it += 1);
        }
        self.snapshot = Some(now);
        self.turns.follow(has_changed);
        Ok(())
    }

    /// Compares what may have become something else, until it is time to look for changes.
    async fn compare(&mut self) {
        let Some(database) = self.database.upgrade() else {
            return;
        };
        let began = Instant::now();
        while began.elapsed() < POLL
            && let Some((uri, place)) = self.turns.next(Instant::now())
        {
            let began = Instant::now();
            let read = self.read(&database, &uri, &place).await;
            self.turns.take(&uri, began, &read);
        }
    }

    /// Reads what is at an address, as long as somebody listens to it, and no longer than such a read may take.
    async fn read(
        &self,
        database: &Database,
        uri: &str,
        place: &Place,
    ) -> Result<String, QueryError> {
        let longest = LONGEST.min(database.options.timeout);
        let mut listened = self.news.follow_listened();
        tokio::select! {
            read = database.read_server(&self.pool, place) => read,
            () = tokio::time::sleep(longest) => Err(QueryError::TooLong(longest)),
            _ = listened.wait_for(|it| !it.contains(uri)) => Err(QueryError::Ended),
        }
    }
}
