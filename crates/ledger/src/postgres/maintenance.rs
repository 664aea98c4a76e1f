//! Maintenance by a node: heartbeat, indexing, ending the calls of dead nodes.

use super::{
    PostgresOpenError, PostgresOptions,
    chain::{self, End, Locked},
    index::{self, IndexError},
    migrations,
    node::Node,
    rows::Rows,
    session::{Session, SessionError, within},
};
use crate::{
    record::{
        codec,
        entry::{End as CallEnd, Outcome},
        id::CallId,
        operation::Operation,
    },
    store::{claims, claims::Applied},
};
use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};
use tokio::{sync::oneshot, time};
use uuid::Uuid;

/// Interval at which it looks for work, unless the lease is short.
const INTERVAL: Duration = Duration::from_secs(1);

/// The most calls that are ended together.
const MAX_ENDED: i64 = 256;

/// A thread with a connection of its own: neither a long wait to append nor much to index must
/// keep a node from saying that it lives.
#[derive(Debug)]
pub(super) struct Maintenance {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Maintenance {
    /// Opens the ledger, registers the node, and goes on taking care. Tells where the ledger ends.
    pub(super) fn start(
        options: PostgresOptions,
        node: Arc<Node>,
    ) -> Result<(Self, End), PostgresOpenError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(PostgresOpenError::Thread)?;
        let (stop, stopped) = oneshot::channel();
        let (tell, opened) = mpsc::channel();
        let thread = thread::Builder::new()
            .name("ledger-care".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    match open(&options, &node).await {
                        Ok((session, end)) => {
                            let _ = tell.send(Ok(end));
                            Care::new(options, node, session).run(stopped).await;
                        }
                        Err(error) => {
                            let _ = tell.send(Err(error));
                        }
                    }
                });
            })
            .map_err(PostgresOpenError::Thread)?;
        let maintenance = Self {
            stop: Some(stop),
            thread: Some(thread),
        };
        let end = opened.recv().unwrap_or_else(|_| {
            Err(PostgresOpenError::Thread(std::io::Error::other(
                "it has ended",
            )))
        })?;
        Ok((maintenance, end))
    }
}

impl Drop for Maintenance {
    /// Waits until the node has said that it ends, or that has taken too long.
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that takes care of the ledger has panicked");
        }
    }
}

async fn open(options: &PostgresOptions, node: &Node) -> Result<(Session, End), PostgresOpenError> {
    let explain = |error: SessionError| error.explain(options);
    let mut session = Session::connect(options).await.map_err(explain)?;
    // Tables are made once in a ledger's life, and not by everybody at the same time.
    let patience = options.max_attempt * 4;
    time::timeout(patience, migrations::migrate(&mut session, options))
        .await
        .unwrap_or_else(|_| Err(explain(SessionError::Silent(patience))))?;
    migrations::expect_sound(&mut session, options).await?;
    let end = within(options.max_attempt, register(&mut session, node))
        .await
        .map_err(explain)?;
    Ok((session, end))
}

async fn register(session: &mut Session, node: &Node) -> Result<End, SessionError> {
    let Locked { end, .. } = chain::lock(session, node.id(), false).await?;
    let id = node.register(session).await?;
    session.run("COMMIT").await?;
    node.took_name(id);
    Ok(end)
}

struct Care {
    options: PostgresOptions,
    node: Arc<Node>,
    /// `None` after a failure: it is opened anew.
    session: Option<Session>,
    /// Since when its lease has never run out. Where the database was away, all leases have, and no
    /// node must be taken for dead before every node could renew its own.
    alive_since: Instant,
    renewed: Instant,
    failing: bool,
}

impl Care {
    fn new(options: PostgresOptions, node: Arc<Node>, session: Session) -> Self {
        let now = Instant::now();
        Self {
            options,
            node,
            session: Some(session),
            alive_since: now,
            renewed: now,
            failing: false,
        }
    }

    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let interval = INTERVAL.min(self.node.lease() / 5);
        loop {
            tokio::select! {
                biased;
                // An error is that the sender was dropped, which is how it says so.
                _ = &mut stopped => break,
                () = time::sleep(interval) => {}
            }
            tokio::select! {
                biased;
                _ = &mut stopped => break,
                () = self.look() => {}
            }
        }
        // A look that was broken off may have left a transaction open.
        self.session = None;
        let ended = within(self.options.max_attempt, async {
            let mut session = Session::connect(&self.options).await?;
            Ok(self.node.end(&mut session).await?)
        });
        if let Err(error) = ended.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "this server could not take its leave of the ledger; others will notice"
            );
        }
    }

    async fn look(&mut self) {
        match self.take_care().await {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the ledger's database can be reached again");
                }
            }
            Err(error) => {
                self.session = None;
                if !std::mem::replace(&mut self.failing, true) {
                    let error: &(dyn std::error::Error + 'static) = &error;
                    tracing::warn!(error, "the ledger's database cannot be taken care of");
                }
            }
        }
    }

    async fn take_care(&mut self) -> Result<(), IndexError> {
        let (limit, node) = (self.options.max_attempt, Arc::clone(&self.node));
        let session = match &mut self.session {
            Some(session) if !session.is_closed() => session,
            empty => {
                let session = empty.insert(Session::connect(&self.options).await?);
                within(limit, chain::expect_stored(session, &node)).await?;
                session
            }
        };
        if node.lease() / 3 <= self.renewed.elapsed() {
            let asked = Instant::now();
            if !within(limit, async { Ok(node.renew(session).await?) }).await? {
                tracing::debug!("this server is taken for dead, and registers when it appends");
            }
            if node.lease() < self.renewed.elapsed() {
                self.alive_since = asked;
            }
            self.renewed = asked;
        }
        while within(limit, async { Ok(index::is_behind(session).await?) }).await? {
            bounded(limit, index::index(session)).await?;
        }
        if node.lease() <= self.alive_since.elapsed() {
            within(limit, declare_dead(session)).await?;
        }
        // A call or two at a time is the rule; after a crash there may be more.
        while bounded(limit, end_calls_of_the_dead(session, &node)).await? {}
        let now_us = (self.options.now)();
        while within(limit, tidy(session, &node, now_us)).await? {}
        Ok(())
    }
}

async fn bounded<T>(
    limit: Duration,
    future: impl Future<Output = Result<T, IndexError>>,
) -> Result<T, IndexError> {
    time::timeout(limit, future)
        .await
        .unwrap_or(Err(IndexError::Session(SessionError::Silent(limit))))
}

/// Declares those dead that have not said otherwise in time.
async fn declare_dead(session: &mut Session) -> Result<(), SessionError> {
    let overdue = "SELECT 1 FROM owlclaw_ledger.node
        WHERE ended_at IS NULL AND lease_until < clock_timestamp() LIMIT 1";
    if session.query_opt(overdue, &[]).await?.is_none() {
        return Ok(());
    }
    // Under the lock, and with another generation: nobody appends under the name of a dead one.
    chain::lock(session, Uuid::nil(), false).await?;
    let dead = session
        .query(
            "UPDATE owlclaw_ledger.node SET ended_at = clock_timestamp()
             WHERE ended_at IS NULL AND lease_until < clock_timestamp() RETURNING name",
            &[],
        )
        .await?;
    if !dead.is_empty() {
        session
            .execute(
                "UPDATE owlclaw_ledger.tail SET generation = generation + 1",
                &[],
            )
            .await?;
        session
            .execute(
                "DELETE FROM owlclaw_ledger.operation_outcome
                 WHERE stored_at < clock_timestamp() - interval '1 day'",
                &[],
            )
            .await?;
    }
    session.run("COMMIT").await?;
    for row in dead {
        let name: String = row.try_get(0)?;
        tracing::warn!(name, "a server that shared the ledger is taken for dead");
    }
    Ok(())
}

const OPEN_CALLS_OF_THE_DEAD: &str = "SELECT call.call, call.estimated_cost_micros
    FROM owlclaw_ledger.call
    LEFT JOIN owlclaw_ledger.entry_group ON entry_group.first_sequence = call.start_group
    LEFT JOIN owlclaw_ledger.carried_start ON carried_start.sequence = call.start_sequence
    JOIN owlclaw_ledger.node ON node.id = coalesce(entry_group.node, carried_start.node)
    WHERE call.outcome IS NULL AND node.ended_at IS NOT NULL
    ORDER BY call.start_sequence LIMIT $1";

/// Ends calls of servers that have ended, as unknown; tells whether there may be more.
async fn end_calls_of_the_dead(session: &mut Session, node: &Node) -> Result<bool, IndexError> {
    let open = session.query(OPEN_CALLS_OF_THE_DEAD, &[&1_i64]).await?;
    if open.is_empty() {
        return Ok(false);
    }
    let Locked { end, is_alive } = chain::lock_as(session, node, true).await?;
    // Now nobody else can end them, and what has been ended is seen once everything is indexed.
    while index::index_here(session).await? {}
    let open = session.query(OPEN_CALLS_OF_THE_DEAD, &[&MAX_ENDED]).await?;
    let (mut body, mut operations) = (Vec::new(), Vec::new());
    for row in &open {
        let call = CallId(row.try_get(0)?);
        let estimate: i64 = row.try_get(1)?;
        let end = CallEnd {
            cost_micros: estimate.unsigned_abs(),
            message: Some("the server ended before the call did"),
            ..CallEnd::new(Outcome::Unknown)
        };
        codec::encode_end(call, &end, &mut body);
        operations.push(Operation::KeepResult {
            call,
            outcome: Outcome::Unknown,
            result: None,
        });
    }
    let applied = claims::apply(&mut Rows(session), &operations).await?;
    let count = open.len() as u64 + applied.count;
    body.extend(applied.body);
    // One that is itself taken for dead may say so of others: it begins nothing.
    let name = if is_alive { node.id() } else { Uuid::nil() };
    chain::write(session, name, Uuid::new_v4(), (&body, count), end).await?;
    if !open.is_empty() {
        tracing::warn!(
            calls = open.len(),
            "calls were open when their server ended; their outcome is unknown"
        );
    }
    while index::index(session).await? {}
    Ok(MAX_ENDED <= open.len() as i64)
}

/// Puts on record what has been decided elsewhere and what has expired; tells whether there is
/// more.
pub(super) async fn tidy(
    session: &mut Session,
    node: &Node,
    now_us: u64,
) -> Result<bool, SessionError> {
    if !Rows::any_due(session, now_us).await? {
        return Ok(false);
    }
    let Locked { end, .. } = chain::lock_as(session, node, false).await?;
    let (Applied { body, count, .. }, more) = claims::tidy(&mut Rows(session), now_us).await?;
    chain::write(session, node.id(), Uuid::new_v4(), (&body, count), end).await?;
    Ok(more)
}
