//! Calls in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use governance::Policy;
use ledger::{Bucket, Statistics, StatisticsQuery, statistics, system_now_us};
use serde_json::{Value, json};

use super::rows::{amount, milliseconds};
use super::sheet::{Row, Sheet, row};
use crate::request::When;
use crate::request::when::shown;
use crate::request::{RowsFormat, Stretch, Whose};
use config::Config;
use server::Failure;
use server::open_reader;

const DAY_US: u64 = 86_400_000_000;
/// Days summed up by default.
const DEFAULT_DAYS: u64 = 7;

const COLUMNS: [&str; 21] = [
    "client",
    "capability",
    "since",
    "calls",
    "succeeded",
    "failed",
    "refused",
    "refused_by_reason",
    "invalid",
    "timed_out",
    "cancelled",
    "abandoned",
    "unknown",
    "open",
    "cost",
    "p50_ms",
    "p95_ms",
    "p99_ms",
    "monthly_budget",
    "max_calls_per_minute",
    "max_calls_per_day",
];

const SHOWN: [(&str, &str); 12] = [
    ("client", "CLIENT"),
    ("capability", "CAPABILITY"),
    ("since", "SINCE"),
    ("calls", "CALLS"),
    ("succeeded", "SUCCEEDED"),
    ("failed", "FAILED"),
    ("refused", "REFUSED"),
    ("cost", "COST"),
    ("p50_ms", "P50 MS"),
    ("p95_ms", "P95 MS"),
    ("monthly_budget", "BUDGET"),
    ("max_calls_per_day", "MAX PER DAY"),
];

/// `governance stats`.
pub(crate) fn stats(
    config: &Config,
    who: &Whose,
    (since, until): (Option<When>, Option<When>),
    by: Stretch,
    format: RowsFormat,
) -> Result<String, Failure> {
    let now_us = system_now_us();
    // Beginnings of days are quick.
    let today_us = now_us - now_us % DAY_US;
    let capability = who.capability();
    let query = StatisticsQuery {
        principal: who.client.as_deref(),
        capability: capability.as_deref(),
        since_us: since.map_or(today_us - DEFAULT_DAYS * DAY_US, |when| when.0),
        until_us: until.map_or(u64::MAX, |when| when.0),
        bucket: match by {
            Stretch::Whole => Bucket::Whole,
            Stretch::Day => Bucket::Day,
        },
    };
    let rows = statistics(&mut *open_reader(config)?, query)?;
    // The limits of each client beside what it has used, as the rules in the configuration have them.
    let rules = &config.governance.rules;
    let policy = Policy::new(rules.spec(BTreeMap::new()))?;
    let sheet = Sheet {
        columns: &COLUMNS,
        shown: &SHOWN,
        rows: rows.iter().map(|it| row(it, &policy)).collect(),
    };
    Ok(sheet.print(format)?)
}

fn row(it: &Statistics, policy: &Policy) -> Row {
    let (quota, reads) = policy.limits(&*it.principal);
    let is_tool = it.capability.starts_with("tool/");
    let (minute, day) = match is_tool {
        true => (quota.max_calls_per_minute, quota.max_calls_per_day),
        false => (reads.per_minute, reads.per_day),
    };
    let budget = quota.monthly_budget.filter(|_| is_tool);
    let tally = &it.tally;
    let percentile = |percent| {
        let duration: Option<Duration> = tally.durations.percentile(percent);
        let us = duration.and_then(|it| u64::try_from(it.as_micros()).ok());
        us.map_or(Value::Null, milliseconds)
    };
    row![
        json!(it.principal),
        json!(it.capability),
        json!(shown(it.since_us)),
        json!(tally.calls()),
        json!(tally.succeeded),
        json!(tally.failed),
        json!(tally.refused.values().sum::<u64>()),
        json!(tally.refused),
        json!(tally.invalid),
        json!(tally.timed_out),
        json!(tally.cancelled),
        json!(tally.abandoned),
        json!(tally.unknown),
        json!(tally.open),
        amount(tally.cost_micros),
        percentile(50),
        percentile(95),
        percentile(99),
        json!(budget.map(|it| it.to_string())),
        json!(minute),
        json!(day),
    ]
}
