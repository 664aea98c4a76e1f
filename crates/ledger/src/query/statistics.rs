//! Calls in numbers: how many, how they ended, what they cost, how long they took.

use crate::{
    query::{NoteFilter, QueryError, ReadLedger},
    record::{
        entry::{HIDDEN_CAPABILITY, Kind, Outcome},
        note::{NoteKind, Noted},
    },
};
use serde_json::Value;
use std::{collections::BTreeMap, time::Duration};

/// The length of a day in microseconds.
pub(crate) const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;

/// Filter for calls to sum up, which meet every condition given.
#[derive(Clone, Copy, Debug)]
pub struct StatisticsQuery<'a> {
    /// Of this principal.
    pub principal: Option<&'a str>,
    /// Of this capability, `kind/name`.
    pub capability: Option<&'a str>,
    /// Only calls that began at this time or later: microseconds since the epoch, UTC. A beginning
    /// of a day is quick; of a part of a day each call is looked at.
    pub since_us: u64,
    /// Only calls that began before this time.
    pub until_us: u64,
    /// Into what stretches of time they are put.
    pub bucket: Bucket,
}

/// The stretches of time for which there is a row each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bucket {
    /// Days, UTC.
    #[default]
    Day,
    /// All the time that is asked for.
    Whole,
}

/// The calls of one principal to one capability in one stretch of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Principal.
    pub principal: String,
    /// Kind of the capability.
    pub kind: Kind,
    /// Capability, as `kind/name`.
    pub capability: String,
    /// Beginning of the stretch: microseconds since the epoch, UTC. The beginning of a day, or of
    /// the range asked for.
    pub since_us: u64,
    /// The numbers.
    pub tally: Totals,
}

/// Calls in numbers. Two can be added; percentiles of their sum are right, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Calls that have not ended.
    pub open: u64,
    /// Calls that ran and succeeded.
    pub succeeded: u64,
    /// Calls that ran and failed.
    pub failed: u64,
    /// Calls whose arguments were wrong.
    pub invalid: u64,
    /// Calls that ran out of time.
    pub timed_out: u64,
    /// Calls that their callers cancelled.
    pub cancelled: u64,
    /// Calls whose future was dropped without an end.
    pub abandoned: u64,
    /// Calls whose server ended first.
    pub unknown: u64,
    /// Calls that were refused, by the reasons that governance names.
    pub refused: BTreeMap<String, u64>,
    /// Cost of all together, in millionths; open ones at their estimates.
    pub cost_micros: u64,
    /// Durations of the calls that ran to a known end.
    pub durations: Durations,
}

/// A duration with its first five binary digits: what percentiles tell apart, so that equal ones
/// can be counted together.
pub(crate) fn rounded(duration_us: u64) -> u64 {
    let shift = duration_us.checked_ilog2().unwrap_or(0).saturating_sub(4);
    duration_us >> shift << shift
}

/// Durations of calls: a histogram whose buckets are at most a sixteenth wide of what they hold, so
/// that percentiles are within 4 % of the exact ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Durations(
    /// Buckets and how many calls are in them, in order: few, and read much more often than made.
    Vec<(u16, u64)>,
);

/// Notes that are read together.
const PAGE: usize = 1_000;

/// Calls in numbers as [`ReadLedger::statistics`] has them, and with them the refusals that were counted
/// together instead of written one by one, at the time at which their flood began. Entries of costs that became
/// known after the end of a call add their cost to those of its tool, and are no calls.
///
/// # Errors
///
/// [`QueryError`] when the ledger cannot be read.
pub fn statistics(
    ledger: &mut dyn ReadLedger,
    query: StatisticsQuery<'_>,
) -> Result<Vec<Statistics>, QueryError> {
    let mut rows = ledger.statistics(query)?;
    let kind = NoteKind::REFUSALS_AGGREGATED;
    let mut filter = NoteFilter {
        kind: Some(kind.as_str()),
        actor: query.principal,
        subject: query.capability,
        since_us: Some(query.since_us),
        ..NoteFilter::default()
    };
    loop {
        let notes = ledger.notes(PAGE, filter)?;
        for note in &notes {
            add_counted(&mut rows, &query, &note.noted);
        }
        match notes.last() {
            Some(last) if notes.len() == PAGE => filter.before = Some(last.cursor()),
            _ => break,
        }
    }
    rows.sort_by(|a, b| order(a).cmp(&order(b)));
    Ok(with_late_costs(rows))
}

/// True if entries of this kind are of costs that became known after the end of calls, which have entries of their own.
#[must_use]
pub fn is_late_cost(kind: Kind, capability: &str) -> bool {
    kind == Kind::Other && capability.starts_with("tool/")
}

/// Adds late costs to the rows of the tools that have caused them.
fn with_late_costs(rows: Vec<Statistics>) -> Vec<Statistics> {
    let (late, mut rows): (Vec<_>, Vec<_>) = rows
        .into_iter()
        .partition(|row| is_late_cost(row.kind, &row.capability));
    for late in late {
        let row = Statistics {
            kind: Kind::Tool,
            tally: Totals {
                cost_micros: late.tally.cost_micros,
                ..Totals::default()
            },
            ..late
        };
        match rows.binary_search_by(|it| order(it).cmp(&order(&row))) {
            Ok(index) => rows[index].tally.merge(&row.tally),
            Err(index) => rows.insert(index, row),
        }
    }
    rows
}

fn order(row: &Statistics) -> (&str, &str, &str, u64) {
    (
        &row.principal,
        row.kind.as_str(),
        &row.capability,
        row.since_us,
    )
}

/// Refusals that were counted together, as their note says.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Time at which their flood began: microseconds since the epoch, UTC.
    pub(crate) at_us: u64,
    /// Kind of what was called.
    pub(crate) kind: Kind,
    reason: String,
    others: u64,
    hidden: u64,
}

impl Counted {
    pub(crate) fn of(noted: &Noted) -> Self {
        let detail: Value = serde_json::from_str(&noted.detail.text).unwrap_or_default();
        let number = |name| detail[name].as_u64().unwrap_or_default();
        let hidden = number(HIDDEN_CAPABILITY);
        Self {
            at_us: number("first_us"),
            kind: match noted.subject.split_once('/') {
                Some(("tool", _)) => Kind::Tool,
                Some(("resource", _)) => Kind::Resource,
                _ => Kind::Other,
            },
            reason: detail["reason"].as_str().unwrap_or_default().to_owned(),
            others: number("count").saturating_sub(hidden),
            hidden,
        }
    }

    pub(crate) fn add_to(&self, totals: &mut Totals) {
        for (reason, count) in [
            (&*self.reason, self.others),
            (HIDDEN_CAPABILITY, self.hidden),
        ] {
            if count != 0 {
                let sum = totals.refused.entry(reason.to_owned()).or_default();
                *sum = sum.saturating_add(count);
            }
        }
    }
}

/// Adds what a note says of refusals that were counted together.
fn add_counted(rows: &mut Vec<Statistics>, query: &StatisticsQuery<'_>, noted: &Noted) {
    let counted = Counted::of(noted);
    let at_us = counted.at_us;
    if !(query.since_us..query.until_us).contains(&at_us) {
        return;
    }
    let since_us = match query.bucket {
        Bucket::Day => (at_us - at_us % DAY_US).max(query.since_us),
        Bucket::Whole => rows.first().map_or(query.since_us, |row| row.since_us),
    };
    let same = |row: &Statistics| {
        (
            row.principal.as_str(),
            row.capability.as_str(),
            row.since_us,
        ) == (noted.actor.as_str(), noted.subject.as_str(), since_us)
    };
    let index = rows.iter().position(same).unwrap_or_else(|| {
        rows.push(Statistics {
            principal: noted.actor.clone(),
            kind: counted.kind,
            capability: noted.subject.clone(),
            since_us,
            tally: Totals::default(),
        });
        rows.len() - 1
    });
    counted.add_to(&mut rows[index].tally);
}

/// Durations below this many microseconds have a bucket each.
const EXACT_US: u64 = 32;

/// Halvings of a power of two: four make sixteenths.
const FRACTION_BITS: u32 = 4;

impl Totals {
    /// Calls, refused and open ones included.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let ended = [
            self.succeeded,
            self.failed,
            self.invalid,
            self.timed_out,
            self.cancelled,
            self.abandoned,
            self.unknown,
        ];
        // Stored numbers may be anything.
        self.refused
            .values()
            .chain(&ended)
            .fold(self.open, |sum, count| sum.saturating_add(*count))
    }

    /// Counts a call that ended, with the name of its outcome.
    pub fn add_ended(
        &mut self,
        outcome: &str,
        reason: Option<&str>,
        cost_micros: u64,
        duration_us: u64,
    ) {
        let ran = match outcome {
            "succeeded" => Some(&mut self.succeeded),
            "failed" => Some(&mut self.failed),
            "timed_out" => Some(&mut self.timed_out),
            "cancelled" => Some(&mut self.cancelled),
            "abandoned" => Some(&mut self.abandoned),
            _ => None,
        };
        if let Some(count) = ran {
            *count += 1;
            self.durations.add(duration_us, 1);
        } else if outcome == Outcome::<&str>::Invalid.as_str() {
            self.invalid += 1;
        } else if outcome == (Outcome::Denied { reason: "" }).as_str() {
            *self
                .refused
                .entry(reason.unwrap_or_default().to_owned())
                .or_default() += 1;
        } else {
            self.unknown += 1;
        }
        self.cost_micros = self.cost_micros.saturating_add(cost_micros);
    }

    /// Counts a call that has not ended.
    pub fn add_open(&mut self, estimated_cost_micros: u64) {
        self.open += 1;
        self.cost_micros = self.cost_micros.saturating_add(estimated_cost_micros);
    }

    /// Adds what another has.
    pub fn merge(&mut self, other: &Self) {
        let add = |sum: &mut u64, number| *sum = sum.saturating_add(number);
        add(&mut self.open, other.open);
        add(&mut self.succeeded, other.succeeded);
        add(&mut self.failed, other.failed);
        add(&mut self.invalid, other.invalid);
        add(&mut self.timed_out, other.timed_out);
        add(&mut self.cancelled, other.cancelled);
        add(&mut self.abandoned, other.abandoned);
        add(&mut self.unknown, other.unknown);
        add(&mut self.cost_micros, other.cost_micros);
        for (reason, &count) in &other.refused {
            add(self.refused.entry(reason.clone()).or_default(), count);
        }
        self.durations.merge(&other.durations);
    }

    /// As bytes, the same for equal ones. Open calls are not in it: they are counted when asked
    /// for, because they end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![TALLY_FORMAT];
        for number in [
            self.succeeded,
            self.failed,
            self.invalid,
            self.timed_out,
            self.cancelled,
            self.abandoned,
            self.unknown,
            self.cost_micros,
            self.refused.len() as u64,
        ] {
            put(&mut out, number);
        }
        for (reason, &count) in &self.refused {
            put(&mut out, reason.len() as u64);
            out.extend_from_slice(reason.as_bytes());
            put(&mut out, count);
        }
        let mut last = 0;
        for &(bucket, count) in &self.durations.0 {
            put(&mut out, u64::from(bucket - last));
            put(&mut out, count);
            last = bucket;
        }
        out
    }

    /// Decodes the output of [`Totals::encode`]; `None` for any other input.
    pub(crate) fn decode(mut input: &[u8]) -> Option<Self> {
        let input = &mut input;
        if input.split_off_first()? != &TALLY_FORMAT {
            return None;
        }
        let mut tally = Self {
            open: 0,
            succeeded: take(input)?,
            failed: take(input)?,
            invalid: take(input)?,
            timed_out: take(input)?,
            cancelled: take(input)?,
            abandoned: take(input)?,
            unknown: take(input)?,
            cost_micros: take(input)?,
            ..Self::default()
        };
        for _ in 0..take(input)? {
            let length = usize::try_from(take(input)?).ok()?;
            let reason = std::str::from_utf8(input.split_off(..length)?).ok()?;
            tally.refused.insert(reason.to_owned(), take(input)?);
        }
        let mut bucket: u16 = 0;
        while !input.is_empty() {
            bucket = bucket.checked_add(u16::try_from(take(input)?).ok()?)?;
            let count = take(input)?;
            match tally.durations.0.last_mut() {
                // Nothing that is encoded has a bucket twice.
                Some((last, _)) if *last == bucket => return None,
                _ => tally.durations.0.push((bucket, count)),
            }
        }
        Some(tally)
    }
}

/// The first byte of an encoded tally.
const TALLY_FORMAT: u8 = 1;

/// Seven bits a byte, the lowest first.
fn put(out: &mut Vec<u8>, mut number: u64) {
    while 0x7f < number {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn take(input: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let byte = *input.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

impl Durations {
    /// Counts `count` calls that took `duration_us` microseconds.
    pub fn add(&mut self, duration_us: u64, count: u64) {
        let bucket = bucket_of(duration_us);
        match self.0.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
            Ok(place) => self.0[place].1 = self.0[place].1.saturating_add(count),
            Err(place) => self.0.insert(place, (bucket, count)),
        }
    }

    fn merge(&mut self, other: &Self) {
        if self.0.is_empty() {
            self.0.clone_from(&other.0);
            return;
        }
        let mine = std::mem::take(&mut self.0);
        let mut merged = Vec::with_capacity(mine.len().max(other.0.len()));
        let (mut mine, mut theirs) = (mine.into_iter().peekable(), other.0.iter().peekable());
        loop {
            let next = match (mine.peek(), theirs.peek()) {
                (Some(one), Some(&other)) if one.0 == other.0 => {
                    let sum = (one.0, one.1.saturating_add(other.1));
                    mine.next();
                    theirs.next();
                    Some(sum)
                }
                (Some(one), Some(&other)) if other.0 < one.0 => theirs.next().copied(),
                (None, _) => theirs.next().copied(),
                _ => mine.next(),
            };
            match next {
                Some(next) => merged.push(next),
                None => break,
            }
        }
        self.0 = merged;
    }

    /// Duration that `percent` of a hundred calls did not exceed; `None` without calls.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let count: u128 = self.0.iter().map(|&(_, count)| u128::from(count)).sum();
        let rank = (count * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut below: u128 = 0;
        self.0
            .iter()
            .find(|&&(_, count)| {
                below += u128::from(count);
                rank <= below
            })
            .map(|&(bucket, _)| Duration::from_micros(middle_of(bucket)))
    }
}

fn bucket_of(duration_us: u64) -> u16 {
    if duration_us < EXACT_US {
        return duration_us as u16;
    }
    let exponent = duration_us.ilog2();
    let fraction = (duration_us >> (exponent - FRACTION_BITS)) & ((1 << FRACTION_BITS) - 1);
    let power = u64::from(exponent - EXACT_US.ilog2());
    (EXACT_US + (power << FRACTION_BITS) + fraction) as u16
}

fn middle_of(bucket: u16) -> u64 {
    let bucket = u64::from(bucket);
    if bucket < EXACT_US {
        return bucket;
    }
    let power = (bucket - EXACT_US) >> FRACTION_BITS;
    let fraction = (bucket - EXACT_US) & ((1 << FRACTION_BITS) - 1);
    // Stored buckets may be anything; those of real durations are below 63.
    let exponent = (power + u64::from(EXACT_US.ilog2())).min(63);
    let width = 1_u64 << (exponent - u64::from(FRACTION_BITS));
    (1_u64 << exponent) + fraction * width + width / 2
}

/// The day that a time is in, counted from the epoch.
pub(crate) fn day_of(at_us: u64) -> u64 {
    at_us / DAY_US
}

/// The month that a day is in, both counted from the epoch.
pub(crate) fn month_of(day: u64) -> u64 {
    // Four hundred years have as many days and months; what is left is less than a month.
    let mut month = (day.saturating_mul(4_800) / 146_097).saturating_sub(1);
    while first_day(month + 1) <= day {
        month += 1;
    }
    month
}

/// The day that a month begins with.
pub(crate) fn first_day(month: u64) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let year = 1970 + month / 12;
    let leap_days = |years: u64| years / 4 - years / 100 + years / 400;
    let is_leap = leap_days(year) != leap_days(year - 1);
    let of_month = (month % 12) as usize;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
        + BEFORE[of_month]
        + u64::from(is_leap && 1 < of_month)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn row(kind: Kind, day: u64, succeeded: u64, cost_micros: u64) -> Statistics {
        Statistics {
            principal: "ana".to_owned(),
            kind,
            capability: "tool/think".to_owned(),
            since_us: day * DAY_US,
            tally: Totals {
                succeeded,
                cost_micros,
                ..Totals::default()
            },
        }
    }

    #[test]
    fn costs_that_became_known_later_are_no_calls() {
        // That of the second day is of a call of the first.
        let rows = vec![
            row(Kind::Other, 1, 2, 300),
            row(Kind::Other, 2, 1, 50),
            row(Kind::Tool, 1, 3, 20),
        ];
        let expected = [row(Kind::Tool, 1, 3, 320), row(Kind::Tool, 2, 0, 50)];
        assert_eq!(with_late_costs(rows), expected);
    }

    #[test]
    fn calls_are_counted_by_how_they_ended() {
        let mut tally = Totals::default();
        for (outcome, reason, duration_us) in [
            ("succeeded", None, 10),
            ("succeeded", None, 30),
            ("failed", None, 20),
            ("timed_out", None, 1_000),
            ("denied", Some("budget"), 7),
            ("denied", Some("budget"), 7),
            ("denied", Some("rate_day"), 7),
            ("invalid", None, 7),
            ("unknown", None, 0),
        ] {
            tally.add_ended(outcome, reason, 2, duration_us);
        }
        tally.add_open(5);
        assert_eq!(tally.calls(), 10);
        assert_eq!(tally.cost_micros, 23);
        assert_eq!((tally.succeeded, tally.invalid, tally.unknown), (2, 1, 1));
        assert_eq!(tally.refused["budget"], 2);
        let micros = |percent| tally.durations.percentile(percent).unwrap().as_micros();
        assert_eq!((micros(0), micros(50), micros(75)), (10, 20, 30));
        assert!((970..=1_030).contains(&micros(99)));
        assert_eq!(Durations::default().percentile(50), None);
    }

    #[test]
    fn months_begin_where_they_do() {
        // As `date --utc` has them: 2000-02, 2000-03, 2026-09, 2026-10, 2100-03.
        for (month, day) in [
            (0, 0),
            (361, 10_988),
            (362, 11_017),
            (680, 20_697),
            (681, 20_727),
            (1_562, 47_541),
        ] {
            assert_eq!(first_day(month), day);
            assert_eq!(month_of(day), month);
            assert_eq!(month_of(day + 27), month);
            assert_eq!(day.checked_sub(1).map(month_of), month.checked_sub(1));
        }
    }

    proptest! {
        #[test]
        fn percentiles_are_within_four_percent(mut durations in proptest::collection::vec(0_u64..1 << 40, 1..200), percent in 0_u8..=100) {
            let mut histogram = Durations::default();
            for &duration in &durations {
                histogram.add(duration, 1);
            }
            durations.sort_unstable();
            let rank = (durations.len() * usize::from(percent)).div_ceil(100).max(1);
            let exact = durations[rank - 1] as f64;
            let told = histogram.percentile(percent).unwrap().as_micros() as f64;
            prop_assert!((told - exact).abs() <= exact * 0.04, "{} is told as {}", exact, told);
        }

        #[test]
        fn a_tally_is_read_back(calls in proptest::collection::vec((0_usize..4, "[a-z]{0,3}", any::<u32>(), any::<u64>()), 0..50)) {
            let (mut whole, mut halves) = (Totals::default(), [Totals::default(), Totals::default()]);
            for (number, (outcome, reason, cost, duration)) in calls.iter().enumerate() {
                let outcome = ["succeeded", "denied", "unknown", "cancelled"][*outcome];
                for tally in [&mut whole, &mut halves[number % 2]] {
                    tally.add_ended(outcome, Some(reason), u64::from(*cost), *duration);
                }
            }
            prop_assert_eq!(Totals::decode(&whole.encode()), Some(whole.clone()));
            let [mut one, other] = halves;
            one.merge(&other);
            prop_assert_eq!(one, whole);
        }

        #[test]
        fn no_bytes_are_too_strange(bytes: Vec<u8>) {
            if let Some(tally) = Totals::decode(&bytes) {
                let _ = tally.durations.percentile(50);
            }
        }
    }
}
