//! Measures how many calls a second several nodes admit through one database.
//!
//! `reserve URL NODES CALLERS PRINCIPALS SECONDS`: that many callers on each node reserve and settle
//! without a pause, each for one of the principals in turn.
#![allow(clippy::print_stdout, reason = "its result is what it prints")]

use governance::{Calendar, Charges, Kind, Micros, QuotaStore, RateLimits, Timestamp};
use quota_postgres::{PostgresQuota, QuotaOptions};
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, nodes, callers, principals, seconds] = arguments.as_slice() else {
        return Err("reserve URL NODES CALLERS PRINCIPALS SECONDS".into());
    };
    let (nodes, callers): (usize, usize) = (nodes.parse()?, callers.parse()?);
    let (principals, seconds): (usize, u64) = (principals.parse()?, seconds.parse()?);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(measure(url, nodes, callers, principals, seconds))
}

async fn measure(
    url: &str,
    nodes: usize,
    callers: usize,
    principals: usize,
    seconds: u64,
) -> Result<(), Box<dyn Error>> {
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut stores = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..nodes {
        let store = Arc::new(PostgresQuota::open(url, QuotaOptions::default()).await?);
        for caller in 0..callers {
            let store = Arc::clone(&store);
            let principal = format!("principal {}", caller % principals);
            tasks.push(tokio::spawn(call(store, principal, end)));
        }
        stores.push(store);
    }
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await??);
    }
    for store in stores {
        store.close().await;
    }
    waits.sort_unstable();
    let at = |share: usize| waits[(waits.len() - 1) * share / 100].as_micros();
    println!(
        "{nodes} nodes, {callers} callers each, {principals} principals: {} a second, \
         p50 {} µs, p99 {} µs",
        waits.len() as u64 / seconds.max(1),
        at(50),
        at(99)
    );
    Ok(())
}

async fn call(
    store: Arc<PostgresQuota>,
    principal: String,
    end: Instant,
) -> Result<Vec<Duration>, governance::ReserveError> {
    let calendar = Calendar::utc();
    let mut waits = Vec::new();
    while Instant::now() < end {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let charges = Charges {
            principal: &principal,
            is_named: true,
            capability: "tool/transfer",
            kind: Kind::Tool,
            may_cost: false,
            cost: Micros(10),
            budget: Some(Micros::MAX),
            rates: RateLimits {
                per_minute: Some(u32::MAX),
                per_day: Some(u32::MAX),
            },
            capability_rates: RateLimits::default(),
            cooldown: None,
            max_running: None,
            capability_max_running: None,
            calendar: &calendar,
            now: Timestamp(now.map_or(0, |now| now.as_millis() as u64)),
        };
        let began = Instant::now();
        let (reservation, _) = store.reserve(charges).await?;
        waits.push(began.elapsed());
        store.settle(reservation, Micros(7));
    }
    Ok(waits)
}
