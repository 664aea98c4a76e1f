//! Calls in numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use governance::Policy;
use ledger::{
    Bucket, MAX_SUMMED, ReadLedger, Statistics, StatisticsQuery, statistics, system_now_us,
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::rows::{amount, milliseconds, object};
use super::sheet::{Cell, Row, Sheet};
use crate::request::When;
use crate::request::when::shown;
use crate::request::{RowsFormat, Stretch, Whose};
use config::Config;
use server::Failure;
use server::open_reader;

const DAY_US: u64 = 86_400_000_000;
/// Days summed up by default.
const DEFAULT_DAYS: u64 = 7;

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
    // The limits of each client beside what it has used, as the rules in the configuration have them.
    let rules = &config.governance.rules;
    let policy = Policy::new(rules.spec(BTreeMap::new()))?;
    let rows = usage(&mut *open_reader(config)?, &policy, who, (since, until), by)?;
    let sheet = Sheet {
        columns: UsageRow::COLUMNS,
        shown: &SHOWN,
        rows: rows.into_iter().map(UsageRow::row).collect(),
    };
    Ok(sheet.print(format)?)
}

/// Calls in numbers, by client and capability, with the limits that `policy` sets. Without a beginning,
/// those of the last seven days.
///
/// # Errors
///
/// When the ledger cannot be read.
pub fn usage(
    reader: &mut dyn ReadLedger,
    policy: &Policy,
    who: &Whose,
    (since, until): (Option<When>, Option<When>),
    by: Stretch,
) -> Result<Vec<UsageRow>, Failure> {
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
    let rows = statistics(reader, query)?;
    Ok(rows.iter().map(|it| row(it, policy)).collect())
}

object! {
    /// Calls of one client of one capability in one stretch of time, in numbers.
    UsageRow {
        /// Client.
        client: String,
        /// Capability, as `kind/name`.
        capability: String,
        /// Beginning of the stretch, RFC 3339.
        since: String,
        /// All calls.
        calls: u64,
        /// Calls that succeeded.
        succeeded: u64,
        /// Calls whose tool failed.
        failed: u64,
        /// Calls that were refused.
        refused: u64,
        /// The same by the reason.
        refused_by_reason: Cell,
        /// Calls whose arguments did not fit.
        invalid: u64,
        /// Calls that took too long.
        timed_out: u64,
        /// Calls that their client cancelled.
        cancelled: u64,
        /// Calls whose client has gone.
        abandoned: u64,
        /// Calls whose outcome nobody knows.
        unknown: u64,
        /// Calls that have not ended.
        open: u64,
        /// Cost, decimal; `at least …` if a call cost more than what sums count of one.
        cost: String,
        /// Milliseconds within which half of the calls ended.
        p50_ms: Option<f64>,
        /// The same of 95 in 100.
        p95_ms: Option<f64>,
        /// The same of 99 in 100.
        p99_ms: Option<f64>,
        /// Budget of the client in a month, decimal.
        monthly_budget: Option<String>,
        /// Calls that it may make in any minute.
        max_calls_per_minute: Option<u32>,
        /// Calls that it may make in any day.
        max_calls_per_day: Option<u32>,
    }
}

/// A sum of costs. Of a call that cost more than [`MAX_SUMMED`] that much is in it.
fn cost(micros: u64) -> String {
    match micros < MAX_SUMMED {
        true => amount(micros),
        false => format!("at least {}", amount(micros)),
    }
}

fn row(it: &Statistics, policy: &Policy) -> UsageRow {
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
        us.map(milliseconds)
    };
    UsageRow {
        client: it.principal.clone(),
        capability: it.capability.clone(),
        since: shown(it.since_us),
        calls: tally.calls(),
        succeeded: tally.succeeded,
        failed: tally.failed,
        refused: tally.refused.values().sum::<u64>(),
        refused_by_reason: json!(tally.refused).into(),
        invalid: tally.invalid,
        timed_out: tally.timed_out,
        cancelled: tally.cancelled,
        abandoned: tally.abandoned,
        unknown: tally.unknown,
        open: tally.open,
        cost: cost(tally.cost_micros),
        p50_ms: percentile(50),
        p95_ms: percentile(95),
        p99_ms: percentile(99),
        monthly_budget: budget.map(|it| it.to_string()),
        max_calls_per_minute: minute,
        max_calls_per_day: day,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_that_may_be_too_low_says_so() {
        assert_eq!(cost(2_500_000), "2.5");
        assert_eq!(cost(MAX_SUMMED + 2), "at least 4503599627.370498");
    }
}
