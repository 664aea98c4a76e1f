//! A watch on a `PostgreSQL` database: what somebody listens to is compared after others have changed something.

use std::{
    collections::HashMap,
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
        address::parse,
        database::{Database, Source, hash},
        pool::{Ear, Pool},
        postgres::with_causes,
        sqlite::QueryError,
    },
    news::{MAX_COMPARED, News},
};

/// Interval at which a database is asked if it has changed, while somebody listens.
const POLL: Duration = Duration::from_millis(100);
/// The same while nobody does, for tables that come and go, and while notifications say when something has changed.
const AT_REST: Duration = Duration::from_secs(2);
/// The same while it cannot be asked.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// A look is followed by a pause of so many times its length at least.
const SHARE: u32 = 10;

/// A watch, which ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Following {
    failure: Arc<Mutex<Option<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock(failure: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    failure.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Following {
    /// Begins to follow a database, on the threads of `runtime`.
    pub(crate) fn start(
        runtime: &Handle,
        database: Arc<Database>,
        news: Arc<News>,
        listed: Arc<watch::Sender<u64>>,
    ) -> Self {
        let failure = Arc::new(Mutex::new(None));
        let told = Arc::clone(&failure);
        let Source::Postgres(postgres) = &database.source else {
            unreachable!("files have a watch of their own");
        };
        let follower = Follower {
            pool: Arc::clone(postgres.watcher()),
            channel: database.options.notify.clone(),
            ear: None,
            woken: Arc::new(Notify::new()),
            name: database.name.clone(),
            database: Arc::downgrade(&database),
            news,
            listed,
            snapshot: None,
            known: HashMap::new(),
        };
        let task = runtime.spawn(follower.run(told));
        Self { failure, task }
    }

    /// The reason for which changes are not heard of.
    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
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
    /// A hash of what was last seen at each address that somebody listens to.
    known: HashMap<String, u64>,
}

impl Follower {
    async fn run(mut self, failure: Arc<Mutex<Option<String>>>) {
        let mut listened = self.news.follow_listened();
        loop {
            listened.mark_unchanged();
            let began = Instant::now();
            // Before the look: what changes after it is notified, and what has changed before it is seen.
            let deaf = self.listen().await.err();
            let outcome = self.look().await;
            let pause = match &outcome {
                Ok(true) if self.ear.is_none() => POLL,
                Ok(_) => AT_REST,
                Err(_) => AFTER_FAILURE,
            };
            let least = began.elapsed() * SHARE;
            let failure_now = outcome.err().map(|error| {
                self.snapshot = None;
                let (name, why) = (&self.name, with_causes(&error));
                format!("changes of `{name}` are not heard of: {why}")
            });
            *lock(&failure) = failure_now.or_else(|| {
                let (name, why) = (&self.name, with_causes(&deaf?));
                Some(format!(
                    "notifications of `{name}` are not heard, which is asked ten times a second instead: {why}"
                ))
            });
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

    /// True if somebody listens.
    async fn look(&mut self) -> Result<bool, QueryError> {
        let Some(database) = self.database.upgrade() else {
            return Ok(false);
        };
        let now = self.pool.snapshot().await?;
        let has_changed = self.snapshot.as_ref() != Some(&now);
        if has_changed && database.take_tables(self.pool.tables().await?) {
            self.listed.send_modify(|it| *it += 1);
        }
        let listened = self.news.listened();
        self.known.retain(|it, _| listened.contains(it));
        let own = listened.iter().filter_map(|uri| {
            let (name, place) = parse(uri)?;
            (name == self.name).then_some((uri, place))
        });
        let (mut is_listened_to, mut is_all_known) = (false, true);
        for (uri, place) in own.take(MAX_COMPARED) {
            is_listened_to = true;
            if !has_changed && self.known.contains_key(uri) {
                continue;
            }
            let read = database.read_server(&self.pool, &place).await;
            let Some(now) = hash(&read) else {
                is_all_known = false;
                continue;
            };
            // What was there when somebody began to listen, or else now.
            let before = match self.known.insert(uri.clone(), now) {
                Some(before) => before,
                None => self.news.take_heard(uri).unwrap_or(now),
            };
            if before != now {
                self.news.tell([uri.clone()]);
            }
        }
        // What could not be compared is looked at again.
        self.snapshot = is_all_known.then_some(now);
        Ok(is_listened_to)
    }
}
