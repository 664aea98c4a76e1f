use crate::{
    connection::{Connection, LONG, configure},
    error::{OpenError, RequestError},
    node::{self, Node},
    options::{QuotaOptions, TimeSource},
    queue::{Ended, MAX_SETTLED, PostgresReservation, Queue, SETTLE_ALL, unavailable},
    record::UseRecord,
    request::{Request, millis},
};
use governance::{
    Calendar, Charges, Micros, QuotaStore, Remaining, ReservationName, ReserveError, Timestamp,
    UnavailableError, Usage,
};
use postgres_connection::Address;
use std::{error::Error, fmt, sync::Arc, thread};
use tokio::sync::{Mutex, oneshot};
use tokio_postgres::Row;

/// Query of the use of all principals.
const USAGE: &str = "SELECT * FROM owlclaw_quota_usage($1, $2)";

/// The table that the record of calls puts into what they have cost, in the transaction that stores
/// their ends; the names are those of [`QuotaStore::name`].
pub const SETTLEMENTS: &str = "owlclaw_quota_settlement";

/// The table of reservations that no node holds any more. The record puts there what it corrects, in the transaction in
/// which it says what that has cost.
pub const ORPHANS: &str = "owlclaw_quota_orphan";

/// Counters in PostgreSQL, shared with every other node that uses the same database.
///
/// It has a thread of its own, which owns the connection. Dropping it has that thread record what
/// is still to be recorded, without waiting for it; [`PostgresQuota::close`] waits.
pub struct PostgresQuota {
    queue: Arc<Queue>,
    options: QuotaOptions,
    address: Address,
    /// At most one connection besides the one that counts.
    reporting: Mutex<()>,
    ended: Mutex<Option<oneshot::Receiver<()>>>,
}

impl PostgresQuota {
    /// Connects, makes or updates the tables (`owlclaw_quota_…` in the first schema of the search
    /// path), and registers this process as a node.
    ///
    /// # Errors
    ///
    /// [`OpenError`] when that does not succeed within 10 s.
    pub async fn open(url: &str, options: QuotaOptions) -> Result<Self, OpenError> {
        Self::begin(url, options, None).await
    }

    /// As [`PostgresQuota::open`], with a record of all calls. Counters that are lower are raised before
    /// the first call is admitted, then every hour, and after they were emptied.
    ///
    /// # Errors
    ///
    /// [`OpenError`], also when the record cannot be read.
    pub async fn open_with_record(
        url: &str,
        options: QuotaOptions,
        record: Arc<dyn UseRecord>,
    ) -> Result<Self, OpenError> {
        Self::begin(url, options, Some(record)).await
    }

    async fn begin(
        url: &str,
        options: QuotaOptions,
        record: Option<Arc<dyn UseRecord>>,
    ) -> Result<Self, OpenError> {
        let address = configure(url)?;
        let queue = Arc::new(Queue::new(options.max_open, options.max_wait));
        let (opened, is_open) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let node = Node::new(Arc::clone(&queue), address.clone(), options.clone(), record);
        thread::Builder::new()
            .name("owlclaw-quota".to_owned())
            .spawn(move || {
                node::run(node, opened);
                let _ = end.send(());
            })
            .map_err(OpenError::Thread)?;
        is_open.await.unwrap_or(Err(OpenError::Silent))?;
        Ok(Self {
            queue,
            options,
            address,
            reporting: Mutex::default(),
            ended: Mutex::new(Some(ended)),
        })
    }

    /// Returns true if the database answered when it was last asked. Detecting that it does not
    /// takes [`QuotaOptions::max_wait`].
    #[must_use]
    pub fn is_available(&self) -> bool {
        !self.queue.is_away()
    }

    /// Refuses further callers, records all endings, and deregisters the node: calls still reserved
    /// on it run no longer and have cost what they were expected to. While the database is away
    /// that is given up after [`QuotaOptions::max_wait`], and the lease does it.
    pub async fn close(&self) {
        self.queue.close();
        let mut ended = self.ended.lock().await;
        if let Some(receiver) = ended.as_mut() {
            let _ = receiver.await;
            *ended = None;
        }
    }

    async fn ask(&self, charges: &Charges<'_>, reserves: bool) -> Result<Granted, ReserveError> {
        let request = Request::new(charges, self.options.time).map_err(unavailable)?;
        let answer = self.queue.ask(request, reserves).map_err(unavailable)?;
        // The thread answers everybody; that it ended without it is our mistake.
        let answer = answer
            .await
            .unwrap_or_else(|_| Err(unavailable(RequestError::Closed)));
        let (undelivered, remaining) = answer?;
        Ok((undelivered.and_then(|it| it.deliver()), remaining))
    }

    async fn report(&self, calendar: &Calendar, now: Timestamp) -> Result<Vec<Usage>, OpenError> {
        // A connection of its own, so that a long report keeps no call waiting.
        let _one_at_a_time = self.reporting.lock().await;
        let connection = Connection::open(&self.address).await?;
        connection.set_timeout(LONG).await?;
        let at = (self.options.time == TimeSource::Callers).then(|| millis(now));
        let month = millis(calendar.month_of(now).start);
        loop {
            let row = connection.one(SETTLE_ALL, &[&MAX_SETTLED]).await;
            let settled: i64 = row
                .and_then(|row| row.try_get(0))
                .map_err(OpenError::Connect)?;
            if settled < i64::from(MAX_SETTLED) {
                break;
            }
        }
        let rows = connection.all(USAGE, &[&at, &month]).await;
        let usage = |row: &Row| -> Result<Usage, tokio_postgres::Error> {
            let count = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
            let total = |value: i64| u64::try_from(value).unwrap_or(0);
            Ok(Usage {
                principal: row.try_get(0)?,
                spent: Micros(total(row.try_get(1)?)),
                calls_minute: count(row.try_get(2)?),
                calls_day: count(row.try_get(3)?),
                reads_minute: count(row.try_get(4)?),
                reads_day: count(row.try_get(5)?),
                running: count(row.try_get(6)?),
                calls_total: total(row.try_get(7)?),
                reads_total: total(row.try_get(8)?),
            })
        };
        rows.and_then(|rows| rows.iter().map(usage).collect())
            .map_err(OpenError::Connect)
    }
}

type Granted = (Option<PostgresReservation>, Remaining);

impl QuotaStore for PostgresQuota {
    type Reservation = PostgresReservation;

    /// # Cancel safety
    ///
    /// What was reserved for a future that has been dropped is released, soon after.
    async fn reserve(
        &self,
        charges: Charges<'_>,
    ) -> Result<(PostgresReservation, Remaining), ReserveError> {
        let (reservation, remaining) = self.ask(&charges, true).await?;
        match reservation {
            Some(reservation) => Ok((reservation, remaining)),
            None => Err(unavailable(RequestError::Nonsense)),
        }
    }

    fn settle(&self, reservation: PostgresReservation, actual: Micros) {
        reservation.end(Ended::Cost(actual));
    }

    fn name(&self, reservation: &PostgresReservation) -> Option<ReservationName> {
        Some(ReservationName {
            principal: Arc::clone(&reservation.principal),
            node: reservation.node,
            sequence: reservation.sequence,
        })
    }

    fn settled_on_record(&self, reservation: PostgresReservation, _actual: Micros) {
        reservation.end(Ended::OnRecord);
    }

    fn release(&self, reservation: PostgresReservation) {
        reservation.end(Ended::Released);
    }

    async fn remaining(&self, charges: Charges<'_>) -> Result<Remaining, UnavailableError> {
        let free = Charges {
            cost: Micros::ZERO,
            ..charges
        };
        match self.ask(&free, false).await {
            Ok((_, remaining)) => Ok(Remaining {
                held: remaining.held.map(|held| held.max(charges.cost)),
                ..remaining
            }),
            Err(ReserveError::Unavailable(error)) => Err(error),
            Err(error @ (ReserveError::Exhausted(_) | ReserveError::Full)) => {
                Err(UnavailableError(Box::new(error)))
            }
        }
    }

    /// Reads all principals over a connection of its own, for at most 10 s.
    async fn usage(
        &self,
        calendar: &Calendar,
        now: Timestamp,
    ) -> Result<Vec<Usage>, UnavailableError> {
        let failed = |error: Box<dyn Error + Send + Sync>| UnavailableError(error);
        if self.queue.is_away() {
            return Err(failed(Box::new(RequestError::Away)));
        }
        match tokio::time::timeout(LONG, self.report(calendar, now)).await {
            Ok(report) => report.map_err(|error| failed(Box::new(error))),
            Err(_) => Err(failed(Box::new(RequestError::Late))),
        }
    }
}

impl fmt::Debug for PostgresQuota {
    /// Without the URL, which holds a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresQuota")
            .field("queue", &self.queue)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Drop for PostgresQuota {
    fn drop(&mut self) {
        self.queue.close();
    }
}
