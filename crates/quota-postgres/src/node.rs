//! The thread that talks to the database: connects, counts, shows that it lives, ends those who do
//! not, and begins again when the connection is lost.

use crate::{
    answer::Decision,
    batch,
    connection::{Connection, LONG, was_rolled_back},
    error::{OpenError, RequestError},
    options::{QuotaOptions, TimeSource},
    queue::{
        MAX_SETTLED, PostgresReservation, Queue, SETTLE_ALL, Undelivered, Waiting, Work,
        unavailable,
    },
    record::{self, UseRecord},
};
use postgres_connection::Address;
use std::{
    collections::HashMap,
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::oneshot,
    time::{sleep_until, timeout, timeout_at},
};
use tokio_postgres::error::SqlState;
use tracing::{debug, error, info, warn};

/// Between two attempts to reach the database: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// After a transaction that the database refused.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Between two looks for principals to forget, and how many are forgotten at once.
const TIDY_INTERVAL: Duration = Duration::from_secs(3_600);
const MAX_TIDIED: i32 = 200;

/// Between two comparisons of counters with the record; and until the second one after counters were
/// emptied, by when the calls have ended that were running.
const COMPARE_INTERVAL: Duration = Duration::from_secs(3_600);
const SECOND_COMPARISON: Duration = Duration::from_secs(60);

/// After counters were emptied: time for calls that were admitted before to reach the record.
const GRACE: Duration = Duration::from_secs(1);

/// The database's word for a node that another one has declared dead.
const UNREGISTERED: &str = "OWQ01";

/// The database's word for counters that were emptied.
const EMPTIED: &str = "OWQ03";

const REGISTER: &str = "SELECT node, epoch FROM owlclaw_quota_register($1, $2, $3)";
const BEAT: &str = "SELECT node, beat, lease_ms FROM owlclaw_quota_beat($1, $2)";
const END_NODE: &str = "SELECT owlclaw_quota_end_node($1, $2)";
const TIDY: &str = "SELECT owlclaw_quota_tidy($1)";

/// Process of this server, as the database knows it.
pub(crate) struct Node {
    queue: Arc<Queue>,
    address: Address,
    options: QuotaOptions,
    record: Option<Arc<dyn UseRecord>>,
    /// True while counters have to be compared with the record before anything is admitted.
    is_unsure: bool,
    secret: i64,
    /// Id of the node and the number of its connection, once it has them.
    registration: Option<(i64, i64)>,
    /// The beat of each other node, and since when it is that.
    others: HashMap<i64, (i64, Instant)>,
    next_beat: Instant,
    next_tidy: Instant,
    next_comparison: Instant,
}

/// Reason why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error("the connection has ended")]
    Ended,
    #[error("the database does not answer")]
    Silent,
    #[error("the database refused")]
    Failed(#[source] tokio_postgres::Error),
    #[error("this node was silent for so long that it is believed to be dead")]
    Unregistered,
    #[error("the counters were emptied")]
    Emptied,
}

/// Runs until the store is closed. `opened` receives whether it could begin.
pub(crate) fn run(mut node: Node, opened: oneshot::Sender<Result<(), OpenError>>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = opened.send(Err(OpenError::Thread(error)));
            return;
        }
    };
    let _turned_away = TurnAway(Arc::clone(&node.queue));
    runtime.block_on(async {
        let first = match node.begin().await {
            Ok(first) => first,
            Err(error) => {
                let _ = opened.send(Err(error));
                return;
            }
        };
        if opened.send(Ok(())).is_err() {
            // Nobody waits for it any more.
            node.queue.close();
        }
        node.live(first).await;
    });
}

/// Answers all waiting callers when there is nothing to wait for, even after a panic.
struct TurnAway(Arc<Queue>);

impl Drop for TurnAway {
    fn drop(&mut self) {
        self.0.close();
        self.0.turn_away();
    }
}

impl Node {
    pub(crate) fn new(
        queue: Arc<Queue>,
        address: Address,
        options: QuotaOptions,
        record: Option<Arc<dyn UseRecord>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            queue,
            address,
            options,
            is_unsure: record.is_some(),
            record,
            secret: 0,
            registration: None,
            others: HashMap::new(),
            next_beat: now,
            next_tidy: now + TIDY_INTERVAL,
            next_comparison: now + COMPARE_INTERVAL,
        }
    }

    async fn live(&mut self, first: Connection) {
        let mut connection = first;
        loop {
            let Err(lost) = self.serve(&mut connection).await else {
                return;
            };
            drop(connection);
            if let Lost::Emptied = lost {
                error!("counters were emptied: no call is admitted until they are raised");
                self.is_unsure = true;
                // Those who wait are told when their time is up.
                let grace = tokio::time::sleep(GRACE);
                waiting(&self.queue, Instant::now(), self.options.max_wait, grace).await;
                self.next_comparison = Instant::now() + SECOND_COMPARISON;
            } else {
                warn!(error = &lost as &dyn Error, "the quota database is lost");
            }
            match self.reconnect().await {
                Some(new) => connection = new,
                None => return,
            }
            info!("the quota database is back");
        }
    }

    /// Connects until it succeeds, or the store is closed and its time is up.
    async fn reconnect(&mut self) -> Option<Connection> {
        let lost = Instant::now();
        let mut pause = FIRST_PAUSE;
        loop {
            let attempt = {
                let queue = Arc::clone(&self.queue);
                let max_wait = self.options.max_wait;
                waiting(&queue, lost, max_wait, self.begin()).await
            };
            match attempt {
                Ok(connection) => {
                    self.queue.set_away(false);
                    return Some(connection);
                }
                Err(error) => debug!(
                    error = &error as &dyn Error,
                    "the quota database is not back"
                ),
            }
            if self.is_over() {
                return None;
            }
            let sleep = tokio::time::sleep(pause);
            waiting(&self.queue, lost, self.options.max_wait, sleep).await;
            pause = (pause * 2).min(LAST_PAUSE);
        }
    }

    /// One attempt to connect, and to have counters that are not lower than the record.
    async fn begin(&mut self) -> Result<Connection, OpenError> {
        let connection = self.connect().await?;
        if self.is_unsure {
            match &self.record {
                Some(record) => {
                    raise(&connection, Arc::clone(record), self.options.time).await?;
                    connection.set_timeout(self.options.max_wait).await?;
                }
                // Another node has raised them, or nobody has.
                None if record::is_emptied(&connection).await? => return Err(OpenError::Emptied),
                None => {}
            }
            self.is_unsure = false;
            self.next_beat = Instant::now();
        }
        Ok(connection)
    }

    /// One attempt to connect, prepare the tables and register.
    async fn connect(&mut self) -> Result<Connection, OpenError> {
        let connecting = async {
            let mut connection = Connection::open(&self.address).await?;
            connection.set_timeout(LONG).await?;
            connection.prepare().await?;
            // Waits for what the last connection left, and that has at most this time.
            self.register(&connection)
                .await
                .map_err(OpenError::Prepare)?;
            connection.set_timeout(self.options.max_wait).await?;
            Ok(connection)
        };
        // Those who wait are told when their time is up, however long this takes.
        timeout(LONG, connecting)
            .await
            .unwrap_or(Err(OpenError::Silent))
    }

    async fn register(&mut self, connection: &Connection) -> Result<(), tokio_postgres::Error> {
        if self.secret == 0 {
            // Without randomness it is a number that others may have, too, and then all that they
            // share is the right to say that this node lives on.
            self.secret = getrandom::u64().map_or(1, |it| (it >> 1) as i64);
        }
        let known = self.registration.map(|(node, _)| node);
        let lease_ms = crate::request::length(self.options.lease());
        let row = connection
            .one(REGISTER, &[&known, &self.secret, &lease_ms])
            .await?;
        let (node, epoch): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        if known.is_some_and(|known| known != node) {
            warn!("this node was believed to be dead, and what ran on it counts as ended");
        }
        self.registration = Some((node, epoch));
        self.next_beat = Instant::now();
        Ok(())
    }

    /// Counts until the connection is lost; or the store is closed, and then takes leave.
    async fn serve(&mut self, connection: &mut Connection) -> Result<(), Lost> {
        loop {
            tokio::select! {
                biased;
                () = connection.ended() => return Err(Lost::Ended),
                () = sleep_until(self.next_beat.into()) => self.beat(connection).await?,
                () = self.queue.changed() => {}
            }
            loop {
                let work = self.queue.take(Instant::now());
                if work.is_empty() {
                    break;
                }
                self.carry_out(connection, work).await?;
                if self.is_over() {
                    return Ok(());
                }
                if self.next_beat <= Instant::now() {
                    self.beat(connection).await?;
                }
            }
            if self.queue.closed().is_some() {
                return self.leave(connection).await;
            }
        }
    }

    async fn carry_out(&mut self, connection: &mut Connection, work: Work) -> Result<(), Lost> {
        let mut work = work;
        batch::sort(&mut work.requests);
        let registration = self.registration.ok_or(Lost::Unregistered)?;
        let deadline = Instant::now() + self.options.max_wait;
        let deadline = work
            .deadline()
            .map_or(deadline, |first| first.min(deadline));
        let outcome = timeout_at(
            deadline.into(),
            batch::carry_out(connection, registration, &work),
        )
        .await;
        match outcome {
            Ok(Ok(decisions)) if decisions.len() == work.requests.len() => {
                self.hand_out(work, &decisions);
                Ok(())
            }
            Ok(Ok(_)) => {
                self.queue.put_back(work, true);
                Err(Lost::Ended)
            }
            Ok(Err(error)) if was_rolled_back(&error) && !connection.is_closed() => {
                self.refused(work, error).await
            }
            Ok(Err(error)) => {
                self.queue.put_back(work, true);
                Err(Lost::Failed(error))
            }
            Err(_) => {
                self.queue.put_back(work, true);
                Err(Lost::Silent)
            }
        }
    }

    fn hand_out(&self, work: Work, decisions: &[Decision]) {
        let Work { requests, endings } = work;
        let answers: Vec<_> = requests
            .into_iter()
            .zip(decisions)
            .map(|(waiting, decision)| (batch::answer(&waiting, decision), waiting))
            .collect();
        let refused = answers
            .iter()
            .filter(|(answer, waiting)| answer.is_err() && waiting.sequence.is_some());
        // Who has an answer may ask again at once, and finds the places free.
        self.queue.free(endings.len() + refused.count());
        for (answer, waiting) in answers {
            let answer = answer.map(|remaining| (self.reservation(&waiting), remaining));
            // Who has gone drops what it would have got, and that is released.
            let _ = waiting.answer.send(answer);
        }
    }

    fn reservation(&self, waiting: &Waiting) -> Option<Undelivered> {
        Some(Undelivered::new(PostgresReservation::new(
            Arc::clone(&self.queue),
            (self.registration?.0, waiting.sequence?),
            Arc::clone(&waiting.request.principal),
            waiting.request.cost,
        )))
    }

    /// The database is there, and has not done what it was to do.
    async fn refused(&self, work: Work, error: tokio_postgres::Error) -> Result<(), Lost> {
        let code = error.code().cloned();
        let lost = match code.as_ref().map(SqlState::code) {
            Some(UNREGISTERED) => Some(Lost::Unregistered),
            Some(EMPTIED) => Some(Lost::Emptied),
            _ => None,
        };
        if let Some(lost) = lost {
            self.queue.put_back(work, false);
            return Err(lost);
        }
        let again = [
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::T_R_SERIALIZATION_FAILURE,
        ];
        if code.is_some_and(|code| again.contains(&code)) {
            warn!(
                error = &error as &dyn Error,
                "a transaction of quotas is tried again"
            );
            self.queue.put_back(work, false);
            return Ok(());
        }
        error!(
            error = &error as &dyn Error,
            "the quota database cannot count"
        );
        // Endings must not be lost; callers must not wait.
        let refusal = RequestError::Refused(error.code().map_or_else(
            || "without a reason".to_owned(),
            |code| format!("code {}", code.code()),
        ));
        let Work { requests, endings } = work;
        // One that was sent before may have been counted then: its turn comes as an ending.
        let (uncertain, certain): (Vec<_>, Vec<_>) = requests
            .into_iter()
            .partition(|waiting| waiting.is_uncertain);
        let places = certain.iter().filter(|it| it.sequence.is_some()).count();
        for waiting in certain {
            let _ = waiting.answer.send(Err(unavailable(refusal.clone())));
        }
        self.queue.free(places);
        self.queue.put_back(
            Work {
                requests: uncertain,
                endings,
            },
            false,
        );
        tokio::time::sleep(REFUSED_PAUSE).await;
        Ok(())
    }

    /// Shows that this node lives, and ends those of which nothing was seen for too long.
    async fn beat(&mut self, connection: &Connection) -> Result<(), Lost> {
        let lease = self.options.lease();
        let (node, epoch) = self.registration.ok_or(Lost::Unregistered)?;
        let rows = timeout(
            self.options.max_wait,
            connection.all(BEAT, &[&node, &epoch]),
        )
        .await
        .map_err(|_| Lost::Silent)?
        .map_err(|error| match error.code() {
            Some(code) if code.code() == UNREGISTERED => Lost::Unregistered,
            _ => Lost::Failed(error),
        })?;
        let now = Instant::now();
        self.next_beat = now + lease / 3;
        let mut seen = HashMap::with_capacity(rows.len());
        for row in &rows {
            let get = |index: usize| row.try_get::<_, i64>(index).map_err(Lost::Failed);
            let (other, beat) = (get(0)?, get(1)?);
            let theirs = Duration::from_millis(u64::try_from(get(2)?).unwrap_or(0));
            // The time since which its beat is this one is measured by our clock alone.
            let since = match self.others.get(&other) {
                Some(&(known, since)) if known == beat => since,
                _ => now,
            };
            seen.insert(other, (beat, since));
            if lease.max(theirs) < now - since {
                self.end_node(connection, other, beat).await?;
            }
        }
        self.others = seen;
        let settled = timeout(
            self.options.max_wait,
            connection.one(SETTLE_ALL, &[&MAX_SETTLED]),
        );
        match settled.await.map_err(|_| Lost::Silent)? {
            Err(error) if error.code().is_some_and(|code| code.code() == EMPTIED) => {
                return Err(Lost::Emptied);
            }
            Err(error) if !was_rolled_back(&error) => return Err(Lost::Failed(error)),
            // What was not done now is done for whoever asks, and by the next look.
            Ok(_) | Err(_) => {}
        }
        if self.next_tidy <= now {
            self.next_tidy = now + TIDY_INTERVAL;
            tokio::spawn(tidy(self.address.clone()));
        }
        if self.next_comparison <= now
            && let Some(record) = &self.record
        {
            self.next_comparison = now + COMPARE_INTERVAL;
            let (address, record) = (self.address.clone(), Arc::clone(record));
            tokio::spawn(look_again(address, record, self.options.time));
        }
        Ok(())
    }

    async fn end_node(&self, connection: &Connection, other: i64, beat: i64) -> Result<(), Lost> {
        let ended = timeout(
            self.options.max_wait,
            connection.one(END_NODE, &[&other, &Some(beat)]),
        )
        .await
        .map_err(|_| Lost::Silent)?;
        match ended {
            Ok(row) => {
                if let Some(calls) = row.try_get::<_, Option<i64>>(0).map_err(Lost::Failed)? {
                    warn!(
                        node = other,
                        calls, "a node is dead, and its calls count as ended"
                    );
                }
                Ok(())
            }
            // It may still be at something, or somebody else ends it.
            Err(error) if was_rolled_back(&error) => Ok(()),
            Err(error) => Err(Lost::Failed(error)),
        }
    }

    async fn leave(&mut self, connection: &Connection) -> Result<(), Lost> {
        let (node, _) = self.registration.ok_or(Lost::Unregistered)?;
        let any_beat = None::<i64>;
        timeout(
            self.options.max_wait,
            connection.one(END_NODE, &[&node, &any_beat]),
        )
        .await
        .map_err(|_| Lost::Silent)?
        .map(|_| ())
        .map_err(Lost::Failed)
    }

    /// Returns true if the time for recording the last endings is up.
    fn is_over(&self) -> bool {
        let closed = self.queue.closed();
        closed.is_some_and(|closed| self.options.max_wait <= closed.elapsed())
    }
}

/// Drives `future`, and refuses callers whose time is up meanwhile.
async fn waiting<F: Future>(
    queue: &Queue,
    lost: Instant,
    max_wait: Duration,
    future: F,
) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        let now = Instant::now();
        let away = lost + max_wait;
        if away <= now {
            queue.set_away(true);
        }
        let next = queue.expire(now);
        let next = next.into_iter().chain((now < away).then_some(away)).min();
        tokio::select! {
            output = &mut future => return output,
            () = sleep_until(next.unwrap_or(now + LONG).into()) => {}
            () = queue.changed() => {}
        }
    }
}

/// Raises counters that are lower than the record, over a connection of its own.
async fn look_again(address: Address, record: Arc<dyn UseRecord>, time: TimeSource) {
    let work = async {
        let connection = Connection::open(&address).await?;
        raise(&connection, record, time).await
    };
    if let Err(error) = work.await {
        warn!(
            error = &error as &dyn Error,
            "the counters could not be compared with the record of calls"
        );
    }
}

/// Reads the record, then raises counters that are lower, and has that noted.
async fn raise(
    connection: &Connection,
    record: Arc<dyn UseRecord>,
    time: TimeSource,
) -> Result<(), OpenError> {
    let reader = Arc::clone(&record);
    let recorded = tokio::task::spawn_blocking(move || reader.read()).await;
    let recorded = recorded.unwrap_or_else(|error| Err(error.into()));
    let recorded = recorded.map_err(OpenError::Record)?;
    let found = record::raise(connection, &recorded, time).await?;
    if found.is_emptied {
        warn!("the counters were emptied, and count again");
    }
    if !found.lower.is_empty() {
        record.raised(&found.lower);
    }
    Ok(())
}

/// Forgets what counts no longer, over a connection of its own.
async fn tidy(address: Address) {
    let work = async {
        let connection = Connection::open(&address).await?;
        connection.set_timeout(LONG).await?;
        loop {
            let row = connection.one(TIDY, &[&MAX_TIDIED]).await;
            let tidied: i64 = row
                .and_then(|row| row.try_get(0))
                .map_err(OpenError::Connect)?;
            if tidied < i64::from(MAX_TIDIED) {
                return Ok::<_, OpenError>(());
            }
        }
    };
    if let Ok(Err(error)) = timeout(LONG * 6, work).await {
        debug!(
            error = &error as &dyn Error,
            "old counters could not be forgotten"
        );
    }
}
