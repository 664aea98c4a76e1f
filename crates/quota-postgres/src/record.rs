//! Counters held against a record of the calls, which has the last word.

use crate::{
    connection::{Connection, LONG, configure},
    error::OpenError,
    options::TimeSource,
    request::{amount, millis},
};
use governance::{Kind, Micros, Month, Policy, Timestamp};
use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fmt,
    time::Duration,
};

/// Longest time between the moment when a call is counted and the one at which it begins by the
/// record: a person may be asked in between. Calls at the far edge of a month or a day by less are
/// not compared.
pub const SLACK: Duration = Duration::from_secs(15 * 60);

/// Time for which a comparison may take the database.
const PATIENCE: Duration = Duration::from_secs(60);

/// Most principals whose counters are raised in one transaction.
const MAX_RAISED: usize = 200;

/// Lock of the node that raises counters; it lasts as long as the session.
const LOCK: &str = "SELECT pg_advisory_lock(1331121234, 0)";
const UNLOCK: &str = "SELECT pg_advisory_unlock(1331121234, 0)";

const IS_EMPTIED: &str = "SELECT NOT EXISTS (SELECT 1 FROM owlclaw_quota_generation)";
const NEW_GENERATION: &str = "INSERT INTO owlclaw_quota_generation
    SELECT clock_timestamp() WHERE NOT EXISTS (SELECT 1 FROM owlclaw_quota_generation)";
const LOWER: &str = "SELECT principal, what, counted, recorded
    FROM owlclaw_quota_lower($1, $2, $3, $4, $5, $6, $7, $8, $9) ORDER BY 1, 2";
const RAISE: &str =
    "SELECT owlclaw_quota_raise($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)";

/// A record of calls that counters are compared with, such as a ledger.
pub trait UseRecord: Send + Sync + 'static {
    /// Reads what was used in this month and the last day, as of now. It may block.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from being read.
    fn read(&self) -> Result<RecordedUse, Box<dyn Error + Send + Sync>>;

    /// Called with counters that were lower, and have been raised.
    fn raised(&self, lower: &[LowerCounter]);
}

/// Use that is on record.
#[derive(Clone, Debug)]
pub struct RecordedUse {
    now: Timestamp,
    month: Month,
    spent: BTreeMap<String, Spent>,
    windows: Windows,
    dearest: BTreeMap<(String, String), u64>,
}

/// Calls of one capability by one principal that are on record; refused ones left out.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Principal that called.
    pub principal: String,
    /// Capability, as `kind/name`.
    pub capability: String,
    /// Kind of the capability.
    pub kind: Kind,
    /// Time at which the last of them began.
    pub at: Timestamp,
    /// Number of the calls; 0 of costs that belong to calls which are counted already.
    pub calls: u64,
    /// Cost of those that have ended.
    pub ended: Micros,
    /// Estimated cost of those that have not.
    pub open: Micros,
    /// Cost of the dearest of them; of an open one its estimate.
    pub dearest: Micros,
}

/// A counter that is lower than the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LowerCounter {
    /// Principal whose use it counts.
    pub principal: String,
    /// `budget` of the month in millionths, calls of the last day of a kind (`tool`, `resource`) or of a
    /// capability, or the time at which a capability was last used, in milliseconds.
    pub what: String,
    /// Value of the counter.
    pub counted: u64,
    /// Value by the record.
    pub recorded: u64,
}

/// Difference between counters and a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// True if counters were emptied, and no node has raised them since.
    pub is_emptied: bool,
    /// Counters that are lower.
    pub lower: Vec<LowerCounter>,
}

impl LowerCounter {
    /// Returns true if the counter counts all use of a client: then it was changed from outside. A
    /// counter of one capability begins when that has limits of its own, and is lower than the
    /// record until it is raised.
    #[must_use]
    pub fn is_of_client(&self) -> bool {
        !self.what.contains('/')
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    ended: Micros,
    open: Micros,
}

/// Columns of stretches of time in which calls began.
#[derive(Clone, Debug, Default)]
struct Windows {
    principal: Vec<String>,
    scope: Vec<String>,
    at: Vec<i64>,
    calls: Vec<i64>,
}

impl Windows {
    fn add(&mut self, principal: &str, scope: &str, at: i64, calls: i64) {
        self.principal.push(principal.to_owned());
        self.scope.push(scope.to_owned());
        self.at.push(at);
        self.calls.push(calls);
    }

    /// The rows of these principals alone.
    fn of(&self, principals: &[&str]) -> Self {
        let mut part = Self::default();
        for (index, principal) in self.principal.iter().enumerate() {
            if principals.contains(&principal.as_str()) {
                part.add(
                    principal,
                    &self.scope[index],
                    self.at[index],
                    self.calls[index],
                );
            }
        }
        part
    }
}

impl RecordedUse {
    /// Sums up `calls`, of which each stands for calls that began in one stretch of time: within
    /// [`SLACK`] of the beginning of the month none, and seconds, minutes or days the longer ago. What
    /// `policy` counts, and by which calendar, is what is compared.
    #[must_use]
    pub fn new(policy: &Policy, now: Timestamp, calls: impl IntoIterator<Item = Recorded>) -> Self {
        let month = policy.calendar().month_of(now);
        let mut this = Self {
            now,
            month,
            spent: BTreeMap::new(),
            windows: Windows::default(),
            dearest: BTreeMap::new(),
        };
        for call in calls {
            this.add(policy, call);
        }
        this
    }

    /// Time from which on calls count towards the budgets of the month that `now` is in.
    #[must_use]
    pub fn month_from(policy: &Policy, now: Timestamp) -> Timestamp {
        let start = policy.calendar().month_of(now).start;
        Timestamp(start.0.saturating_add(SLACK.as_millis() as u64))
    }

    fn add(&mut self, policy: &Policy, call: Recorded) {
        let Recorded {
            principal,
            capability,
            kind,
            at,
            calls,
            ended,
            open,
            dearest,
        } = call;
        let number = i64::try_from(calls).unwrap_or(i64::MAX);
        let scope = match kind {
            Kind::Tool => "tool",
            Kind::Resource => "resource",
        };
        if 0 < calls {
            self.windows.add(&principal, scope, millis(at), number);
        }
        if 0 < calls && policy.counts_alone(&capability) {
            self.windows
                .add(&principal, &capability, millis(at), number);
        }
        let is_of_month = Self::month_from(policy, self.now) <= at;
        let cost = Micros(ended.0.saturating_add(open.0));
        let spent = self.spent.entry(principal.clone()).or_default();
        if is_of_month && cost != Micros::ZERO {
            spent.ended = spent.ended.saturating_add(ended);
            spent.open = spent.open.saturating_add(open);
            if policy.estimate(&capability, kind) < dearest {
                let known = self.dearest.entry((principal, capability)).or_default();
                *known = dearest.0.max(*known);
            }
        }
    }

    fn at(&self, time: TimeSource) -> Option<i64> {
        (time == TimeSource::Callers).then(|| millis(self.now))
    }

    async fn lower(
        &self,
        connection: &Connection,
        time: TimeSource,
    ) -> Result<Vec<LowerCounter>, tokio_postgres::Error> {
        let names: Vec<&str> = self.spent.keys().map(String::as_str).collect();
        let ended: Vec<i64> = self.spent.values().map(|it| amount(it.ended)).collect();
        let Windows {
            principal,
            scope,
            at,
            calls,
        } = &self.windows;
        let now = self.at(time);
        let month = millis(self.month.start);
        let slack = SLACK.as_millis() as i64;
        let rows = connection
            .all(
                LOWER,
                &[
                    &now, &slack, &month, &names, &ended, principal, scope, at, calls,
                ],
            )
            .await?;
        let count = |value: i64| u64::try_from(value).unwrap_or(0);
        let lower = |row: &tokio_postgres::Row| {
            Ok(LowerCounter {
                principal: row.try_get(0)?,
                what: row.try_get(1)?,
                counted: count(row.try_get(2)?),
                recorded: count(row.try_get(3)?),
            })
        };
        rows.iter().map(lower).collect()
    }

    async fn raise(
        &self,
        connection: &Connection,
        time: TimeSource,
        principals: &[&str],
    ) -> Result<(), tokio_postgres::Error> {
        let spent = |name: &&str| self.spent.get(*name).copied().unwrap_or_default();
        let (ended, open): (Vec<i64>, Vec<i64>) = principals
            .iter()
            .map(|name| (amount(spent(name).ended), amount(spent(name).open)))
            .unzip();
        let windows = self.windows.of(principals);
        let mut dearest = (Vec::new(), Vec::new(), Vec::new());
        for ((principal, capability), cost) in &self.dearest {
            if principals.contains(&principal.as_str()) {
                dearest.0.push(principal.as_str());
                dearest.1.push(capability.as_str());
                dearest.2.push(amount(Micros(*cost)));
            }
        }
        connection
            .all(
                RAISE,
                &[
                    &self.at(time),
                    &millis(self.month.start),
                    &millis(self.month.end),
                    &principals,
                    &ended,
                    &open,
                    &windows.principal,
                    &windows.scope,
                    &windows.at,
                    &windows.calls,
                    &dearest.0,
                    &dearest.1,
                    &dearest.2,
                ],
            )
            .await?;
        Ok(())
    }
}

/// Returns true if counters were emptied, and no node has raised them since.
pub(crate) async fn is_emptied(connection: &Connection) -> Result<bool, OpenError> {
    let row = connection.one(IS_EMPTIED, &[]).await;
    row.and_then(|row| row.try_get(0))
        .map_err(OpenError::Compare)
}

/// Raises the counters that are lower than the record was when it was read. Nodes do so one after
/// another, and the second finds nothing lower.
pub(crate) async fn raise(
    connection: &Connection,
    recorded: &RecordedUse,
    time: TimeSource,
) -> Result<Comparison, OpenError> {
    connection.set_timeout(PATIENCE).await?;
    let work = async {
        connection.one(LOCK, &[]).await?;
        let is_emptied = connection.one(IS_EMPTIED, &[]).await?.try_get(0)?;
        let lower = recorded.lower(connection, time).await?;
        let names: BTreeSet<&str> = lower.iter().map(|it| it.principal.as_str()).collect();
        let names: Vec<&str> = names.into_iter().collect();
        for part in names.chunks(MAX_RAISED) {
            recorded.raise(connection, time, part).await?;
        }
        connection.all(NEW_GENERATION, &[]).await?;
        connection.one(UNLOCK, &[]).await?;
        Ok(Comparison { is_emptied, lower })
    };
    work.await.map_err(OpenError::Compare)
}

/// Compares the counters of clients in the database at `url` with `recorded`, which was read before, and
/// changes nothing. Those of single capabilities are left out. `None` if there are none, or none that can be compared yet.
///
/// # Errors
///
/// [`OpenError`] when they cannot be read.
pub async fn compare(
    url: &str,
    recorded: &RecordedUse,
    time: TimeSource,
) -> Result<Option<Comparison>, OpenError> {
    let address = configure(url)?;
    let reading = async {
        let connection = Connection::open(&address).await?;
        connection.set_timeout(PATIENCE).await?;
        let exists = "SELECT to_regclass('owlclaw_quota_generation') IS NOT NULL";
        let read = async {
            if !connection.one(exists, &[]).await?.try_get(0)? {
                return Ok(None);
            }
            let mut lower = recorded.lower(&connection, time).await?;
            lower.retain(LowerCounter::is_of_client);
            Ok(Some(Comparison {
                is_emptied: connection.one(IS_EMPTIED, &[]).await?.try_get(0)?,
                lower,
            }))
        };
        read.await.map_err(OpenError::Compare)
    };
    tokio::time::timeout(PATIENCE + LONG, reading)
        .await
        .unwrap_or(Err(OpenError::Silent))
}

impl fmt::Display for LowerCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            principal,
            what,
            counted,
            recorded,
        } = self;
        match what.as_str() {
            "budget" => write!(
                f,
                "{principal}: {} of this month's budget, {} by the ledger",
                Micros(*counted),
                Micros(*recorded)
            ),
            "tool" | "resource" => write!(
                f,
                "{principal}: {counted} {what} calls of the last day, {recorded} by the ledger"
            ),
            what if what.starts_with("last use") => {
                write!(f, "{principal}: {what}, later by the ledger")
            }
            what => write!(
                f,
                "{principal}: {counted} calls of {what} in the last day, {recorded} by the ledger"
            ),
        }
    }
}
