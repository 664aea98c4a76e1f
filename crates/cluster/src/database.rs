//! Connections of this server: one for statements, one on which it hears what others have changed.

use crate::{
    error::{Failed, OpenError},
    migrations,
    news::{CHANNEL, Changed, News},
};
use postgres_connection::Address;
use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicI32, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, sync::broadcast, task::JoinHandle, time};
use tokio_postgres::{Client, Row, Statement, config::TargetSessionAttrs, types::ToSql};

/// News that wait for a follower; one that is behind by more reads everything again.
const MAX_NEWS: usize = 1_024;

/// Time to wait for a peer that has vanished.
const VANISHED: Duration = Duration::from_secs(10);

/// Pause before the database is tried again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// The values of a statement, in order.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Settings of a [`Cluster`].
#[derive(Clone, Copy, Debug)]
pub struct ClusterOptions {
    /// Time for which the database must have been within reach before the leases of others are taken for
    /// over: as long as a lease lasts. Default 30 s.
    pub lease: Duration,
    /// The longest time of one statement, or of one attempt to connect. Default 5 s.
    pub max_attempt: Duration,
    /// Clock that leases go by.
    pub time: TimeSource,
}

/// Clock that leases go by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeSource {
    /// The database's, for all servers.
    Database,
    /// The times that callers say, and no time is waited: for tests.
    Callers,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            max_attempt: Duration::from_secs(5),
            time: TimeSource::Database,
        }
    }
}

/// Place of this server among those that share a database. Clones are the same; it ends with the last of them.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) shared: Arc<Shared>,
    _ears: Arc<Ears>,
}

/// Connection for statements, and what keeps it.
pub(crate) struct Shared {
    address: Address,
    pub(crate) options: ClusterOptions,
    /// The runtime of connections: callers come from runtimes that may end before them.
    runtime: Handle,
    connection: tokio::sync::Mutex<Option<Arc<Connection>>>,
    /// Process of the database that carries out our statements: what it says is no news here.
    process: AtomicI32,
    pub(crate) news: broadcast::Sender<News>,
    /// Since when the database was never out of reach for as long as a lease lasts.
    alive_since: Mutex<Instant>,
    /// Last sign of life of the database.
    last_sign: Mutex<Instant>,
}

/// The task that listens, until it is dropped.
struct Ears(JoinHandle<()>);

impl Drop for Ears {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Cluster {
    /// Connects; makes the tables in the schema `owlclaw_cluster` if there are none, or brings them up to
    /// date. The runtime this is called on carries the connections.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub async fn open(address: &str, options: ClusterOptions) -> Result<Self, OpenError> {
        let address = Address::new(address).map_err(OpenError::Address)?;
        let address = address.with(|config| {
            if config.get_application_name().is_none() {
                config.application_name("owlclaw-mcp cluster");
            }
            config
                .target_session_attrs(TargetSessionAttrs::ReadWrite)
                .keepalives_idle(VANISHED)
                .keepalives_interval(VANISHED / 5)
                .keepalives_retries(3)
                .tcp_user_timeout(VANISHED);
        });
        let shared = Arc::new(Shared {
            address,
            options,
            runtime: Handle::current(),
            connection: tokio::sync::Mutex::new(None),
            process: AtomicI32::new(0),
            news: broadcast::Sender::new(MAX_NEWS),
            alive_since: Mutex::new(Instant::now()),
            last_sign: Mutex::new(Instant::now()),
        });
        {
            let (mut client, driver) = time::timeout(options.max_attempt, shared.address.connect())
                .await
                .map_err(|_| OpenError::Reach(Failed::Silent))?
                .map_err(|error| OpenError::Reach(error.into()))?;
            migrations::prepare(&mut client).await?;
            drop(client);
            let _ = driver.await;
        }
        let connected = shared.connection().await;
        connected.map_err(OpenError::Reach)?;
        let ears = Ears(tokio::spawn(Arc::clone(&shared).listen()));
        Ok(Self {
            shared,
            _ears: Arc::new(ears),
        })
    }

    /// Tells other servers what has changed here.
    ///
    /// # Errors
    ///
    /// [`Failed`]: they may not have been told.
    pub async fn tell_changed(
        &self,
        all: impl IntoIterator<Item = &Changed>,
    ) -> Result<(), Failed> {
        let payloads: Vec<_> = all.into_iter().map(Changed::payload).collect();
        let sql = "SELECT pg_notify('owlclaw_cluster', told) FROM unnest($1::text[]) AS told";
        self.shared.query(sql, &[&payloads]).await.map(drop)
    }

    /// News of what others change from now on.
    #[must_use]
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.shared.news.subscribe()
    }
}

impl fmt::Debug for Cluster {
    /// Leaves the password out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster")
            .field("address", &self.shared.address)
            .finish_non_exhaustive()
    }
}

impl Shared {
    /// Carries out one statement, which is a transaction of its own.
    pub(crate) async fn query(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Failed> {
        let connection = self.connection().await?;
        let answered = time::timeout(self.options.max_attempt, connection.query(sql, values)).await;
        let answered = answered.unwrap_or(Err(Failed::Silent));
        if matches!(answered, Err(Failed::Silent)) {
            // What it was in the middle of nobody needs to know.
            connection.driver.abort();
        }
        answered
    }

    /// The same, of at most one row.
    pub(crate) async fn query_opt(
        &self,
        sql: &'static str,
        values: Values<'_>,
    ) -> Result<Option<Row>, Failed> {
        Ok(self.query(sql, values).await?.into_iter().next())
    }

    async fn connection(&self) -> Result<Arc<Connection>, Failed> {
        let mut place = self.connection.lock().await;
        if let Some(connection) = place.as_ref().filter(|it| !it.client.is_closed()) {
            return Ok(Arc::clone(connection));
        }
        let address = self.address.clone();
        let connecting = self.runtime.spawn(async move {
            let (client, driver) = address.connect().await?;
            let settings = "SET default_transaction_isolation = 'read committed';
                SET client_min_messages = warning;
                SELECT set_config('synchronous_commit', 'on', false)
                    WHERE current_setting('synchronous_commit') IN ('off', 'local')";
            client.batch_execute(settings).await?;
            let row = client.query_one("SELECT pg_backend_pid()", &[]).await?;
            Ok::<_, Failed>((client, driver, row.try_get::<_, i32>(0)?))
        });
        let connected = time::timeout(self.options.max_attempt, connecting).await;
        let connected = connected.map_err(|_| Failed::Silent)?;
        // A runtime that ends gives nothing up but this.
        let (client, driver, process) = connected.map_err(|_| Failed::Silent)??;
        self.process.store(process, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            client,
            driver,
            prepared: Mutex::default(),
        });
        *place = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// True if leases of others that have run out may be taken for over.
    pub(crate) fn may_judge(&self) -> bool {
        let since = *lock(&self.alive_since);
        let sign = *lock(&self.last_sign);
        // Without a recent sign of life the owners may have been cut off as well.
        self.options.time == TimeSource::Callers
            || (sign.elapsed() < self.options.lease / 2 && self.options.lease <= since.elapsed())
    }

    async fn listen(self: Arc<Self>) {
        let mut failing = false;
        loop {
            let heard = self.listen_once(&mut failing).await;
            if !std::mem::replace(&mut failing, true) {
                let error = heard.err();
                tracing::warn!(
                    error = error.as_ref().map(|it| it as &dyn std::error::Error),
                    "what other servers change is not heard of; it is tried again"
                );
            }
            time::sleep(TRY_AGAIN).await;
        }
    }

    /// Listens until the connection breaks.
    async fn listen_once(&self, failing: &mut bool) -> Result<(), Failed> {
        let limit = self.options.max_attempt;
        let connecting = self.address.connect_and_hear(MAX_NEWS);
        let connected = time::timeout(limit, connecting).await;
        let (client, mut heard) = connected.map_err(|_| Failed::Silent)??;
        let listen = format!("LISTEN {CHANNEL}");
        let listening = time::timeout(limit, client.batch_execute(&listen)).await;
        listening.map_err(|_| Failed::Silent)??;
        if std::mem::take(failing) {
            tracing::info!("what other servers change is heard of again");
        }
        self.show_life();
        // Nobody knows what was said before.
        let _ = self.news.send(News::Missed);
        let mut beat = time::interval(self.options.lease / 6);
        loop {
            tokio::select! {
                told = heard.recv() => {
                    let Some(told) = told else { return Ok(()) };
                    if told.process_id() == self.process.load(Ordering::Relaxed) {
                        continue;
                    }
                    if let Some(news) = News::read(told.payload()) {
                        // Nobody may follow.
                        let _ = self.news.send(news);
                    }
                }
                _ = beat.tick() => {
                    let alive = time::timeout(limit, client.batch_execute("SELECT 1")).await;
                    alive.map_err(|_| Failed::Silent)??;
                    self.show_life();
                }
            }
        }
    }

    fn show_life(&self) {
        let before = std::mem::replace(&mut *lock(&self.last_sign), Instant::now());
        if self.options.lease / 2 <= before.elapsed() {
            *lock(&self.alive_since) = Instant::now();
        }
    }
}

/// A connection, and the statements that it has prepared.
struct Connection {
    client: Client,
    driver: JoinHandle<()>,
    prepared: Mutex<HashMap<&'static str, Statement>>,
}

impl Connection {
    async fn query(&self, sql: &'static str, values: Values<'_>) -> Result<Vec<Row>, Failed> {
        let known = lock(&self.prepared).get(sql).cloned();
        let statement = match known {
            Some(statement) => statement,
            None => {
                let statement = self.client.prepare(sql).await?;
                lock(&self.prepared).insert(sql, statement.clone());
                statement
            }
        };
        Ok(self.client.query(&statement, values).await?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
