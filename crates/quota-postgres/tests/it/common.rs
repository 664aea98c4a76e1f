//! Helpers that the tests share.

use governance::{
    Calendar, Charges, Denial, Kind, Micros, QuotaStore, RateLimits, ReserveError, Timestamp,
};
use quota_postgres::{PostgresQuota, PostgresReservation, QuotaOptions, TimeSource};
use std::{
    future::Future,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use testkit::Postgres;

/// 2026-01-15T00:00:00Z.
pub(crate) const JANUARY: u64 = 1_768_435_200_000;

/// A database of one's own in a cluster that the tests share; `None` without PostgreSQL.
pub(crate) fn database() -> Option<Database> {
    static CLUSTER: OnceLock<Option<Postgres>> = OnceLock::new();
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let cluster = CLUSTER.get_or_init(Postgres::start).as_ref()?;
    let name = format!("quota_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let url = cluster.create_database(&name);
    Some(Database { cluster, name, url })
}

pub(crate) struct Database {
    pub(crate) cluster: &'static Postgres,
    name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) fn sql(&self, statements: &str) -> String {
        self.cluster.sql_in(&self.name, statements)
    }
}

/// Waits that do not decide a test are long.
pub(crate) fn options() -> QuotaOptions {
    QuotaOptions {
        max_wait: Duration::from_secs(20),
        ..QuotaOptions::default()
    }
}

pub(crate) fn told_the_time() -> QuotaOptions {
    QuotaOptions {
        time: TimeSource::Callers,
        ..options()
    }
}

pub(crate) async fn open(url: &str) -> PostgresQuota {
    PostgresQuota::open(url, options()).await.unwrap()
}

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

pub(crate) fn utc() -> &'static Calendar {
    static UTC: OnceLock<Calendar> = OnceLock::new();
    UTC.get_or_init(Calendar::utc)
}

/// The time as of now, for stores that go by the database's.
pub(crate) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    Timestamp(since.unwrap().as_millis() as u64)
}

/// A tool call of cost 10 without limits.
pub(crate) fn call(principal: &str) -> Charges<'_> {
    Charges {
        principal,
        is_named: false,
        capability: "tool/x",
        kind: Kind::Tool,
        may_cost: false,
        cost: Micros(10),
        budget: None,
        rates: RateLimits::default(),
        capability_rates: RateLimits::default(),
        cooldown: None,
        max_running: None,
        capability_max_running: None,
        calendar: utc(),
        now: now(),
    }
}

pub(crate) async fn reserve(
    store: &PostgresQuota,
    charges: Charges<'_>,
) -> Result<PostgresReservation, Denial> {
    match store.reserve(charges).await {
        Ok((reservation, _)) => Ok(reservation),
        Err(ReserveError::Exhausted(denial)) => Err(denial),
        Err(ReserveError::Full) => panic!("a database has no bound"),
        Err(ReserveError::Unavailable(error)) => panic!("{error}: {:?}", error.0),
    }
}

/// Use of a principal, after all endings before are counted.
pub(crate) async fn usage(store: &PostgresQuota, principal: &str) -> Option<governance::Usage> {
    // What is asked now comes after what was put into the queue before.
    store.remaining(call(principal)).await.unwrap();
    let all = store.usage(utc(), now()).await.unwrap();
    all.into_iter().find(|usage| usage.principal == principal)
}
