//! Counters of one principal.

use crate::{
    denial::{Denial, Reason, Remaining},
    money::Micros,
    quota::{Charges, ReserveError, Usage, fits_budget},
    spec::{Kind, RateLimits},
    time::{Calendar, Month, Timestamp},
};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

/// Differences in time up to this are callers that read the clock before others and came later;
/// a larger step back is the clock itself being set.
const MAX_JITTER_MS: u64 = 5_000;

/// A month that begins this much after the present was begun by a clock that ran wild.
const MAX_MONTH_AHEAD_MS: u64 = 32 * 24 * 60 * 60 * 1_000;

/// A sliding window, counted in buckets. A bucket counts until all that may be in it is older than
/// the window, so that no true window ever holds more than the limit; the price is that the last
/// unit comes back up to one bucket's width late.
#[derive(Clone, Copy, Debug)]
struct Span {
    length_ms: u64,
    width_ms: u64,
}

const MINUTE: Span = Span {
    length_ms: 60_000,
    width_ms: 1_000,
};
const DAY: Span = Span {
    length_ms: 24 * 60 * 60 * 1_000,
    width_ms: 5 * 60 * 1_000,
};

impl Span {
    fn bucket(self, now_ms: u64) -> u64 {
        now_ms / self.width_ms
    }

    /// End of the time for which `bucket` counts.
    fn expiry_ms(self, bucket: u64) -> u64 {
        bucket
            .saturating_add(1)
            .saturating_mul(self.width_ms)
            .saturating_add(self.length_ms)
    }
}

/// The non-empty buckets, oldest first. There are never more than a window has, and one.
#[derive(Debug, Default)]
struct Window {
    buckets: VecDeque<(u64, u32)>,
    total: u32,
}

impl Window {
    fn expire(&mut self, span: Span, now_ms: u64) {
        while let Some(&(bucket, count)) = self.buckets.front()
            && span.expiry_ms(bucket) <= now_ms
        {
            self.total -= count;
            self.buckets.pop_front();
        }
    }

    /// `total` never overflows: what does not fit is not counted, and no limit is higher.
    fn add(&mut self, span: Span, at_ms: u64, count: u32) {
        let bucket = span.bucket(at_ms);
        let count = count.min(u32::MAX - self.total);
        self.total += count;
        let position = match self.buckets.back() {
            Some(&(last, _)) if bucket <= last => self
                .buckets
                .partition_point(|&(earlier, _)| earlier < bucket),
            _ => self.buckets.len(),
        };
        match self.buckets.get_mut(position) {
            Some(existing) if existing.0 == bucket => existing.1 += count,
            _ => self.buckets.insert(position, (bucket, count)),
        }
    }

    /// Takes back one that was added at `at_ms`, unless it has expired.
    fn remove(&mut self, span: Span, at_ms: u64) {
        let bucket = span.bucket(at_ms);
        let found = self.buckets.binary_search_by_key(&bucket, |&(it, _)| it);
        let Ok(position) = found else { return };
        self.total -= 1;
        let count = &mut self.buckets[position].1;
        *count -= 1;
        if *count == 0 {
            self.buckets.remove(position);
        }
    }

    /// Time until one more fits under `limit`; zero when it does now, `None` when it never will.
    fn wait(&self, span: Span, limit: Option<u32>, now_ms: u64) -> Option<Duration> {
        let Some(limit) = limit else {
            return Some(Duration::ZERO);
        };
        if self.total < limit {
            return Some(Duration::ZERO);
        }
        let mut left = self.total;
        for &(bucket, count) in &self.buckets {
            left -= count;
            if left < limit {
                return Some(Duration::from_millis(span.expiry_ms(bucket) - now_ms));
            }
        }
        None
    }

    fn resets(&self, span: Span, now_ms: u64) -> Duration {
        self.buckets.back().map_or(Duration::ZERO, |&(bucket, _)| {
            Duration::from_millis(span.expiry_ms(bucket).saturating_sub(now_ms))
        })
    }
}

/// A minute and a day.
#[derive(Debug, Default)]
struct Rate {
    minute: Window,
    day: Window,
}

impl Rate {
    fn expire(&mut self, now_ms: u64) {
        self.minute.expire(MINUTE, now_ms);
        self.day.expire(DAY, now_ms);
    }

    fn add(&mut self, at_ms: u64, now_ms: u64, count: u32) {
        if now_ms < MINUTE.expiry_ms(MINUTE.bucket(at_ms)) {
            self.minute.add(MINUTE, at_ms, count);
        }
        if now_ms < DAY.expiry_ms(DAY.bucket(at_ms)) {
            self.day.add(DAY, at_ms, count);
        }
    }

    fn remove(&mut self, at_ms: u64) {
        self.minute.remove(MINUTE, at_ms);
        self.day.remove(DAY, at_ms);
    }
}

/// Counters of one capability that has limits of its own.
#[derive(Debug, Default)]
struct Own {
    rate: Rate,
    last: Option<LastUse>,
}

/// Last use of a capability, and how long it had to cool down then.
#[derive(Clone, Copy, Debug)]
struct LastUse {
    at_ms: u64,
    cooldown_ms: u64,
}

/// A use of a capability that has limits of its own.
#[derive(Debug)]
struct OwnUse {
    capability: Arc<str>,
    /// The last use before.
    previous: Option<LastUse>,
}

/// Limits that a principal has had. Use that is counted without one of them need not be remembered.
#[derive(Clone, Copy, Debug, Default)]
struct Limited {
    budget: bool,
    minute: bool,
    day: bool,
}

/// Count of one call, kept to correct it.
#[derive(Debug)]
pub(crate) struct Counted {
    kind: Kind,
    month: Month,
    /// Expected cost, and what is held for it.
    cost: Micros,
    held: Micros,
    at_ms: u64,
    own: Option<OwnUse>,
    /// The tool that is called, where a budget limits what it may cost.
    tool: Option<Arc<str>>,
}

/// Counters of one principal.
#[derive(Debug)]
pub(crate) struct Meter {
    /// The clock when it was last looked at.
    wall_ms: u64,
    /// The time that has passed, which is the clock's until that is set back, and never decreases.
    elapsed_ms: u64,
    month: Month,
    spent: Micros,
    previous: Option<(Month, Micros)>,
    /// The dearest call this month of each tool that has cost more than was expected.
    dearest: HashMap<Arc<str>, Micros>,
    /// The tool that was called last: most callers call the same one again.
    last_tool: Arc<str>,
    calls: Rate,
    reads: Rate,
    /// Only of capabilities that have limits of their own, so the policy bounds them.
    capabilities: HashMap<Arc<str>, Own>,
    running: u32,
    limited: Limited,
    calls_total: u64,
    reads_total: u64,
}

impl Meter {
    pub(crate) fn new(calendar: &Calendar, now: Timestamp) -> Self {
        Self {
            wall_ms: now.0,
            elapsed_ms: now.0,
            month: calendar.month_of(now),
            spent: Micros::ZERO,
            previous: None,
            dearest: HashMap::new(),
            last_tool: Arc::default(),
            calls: Rate::default(),
            reads: Rate::default(),
            capabilities: HashMap::new(),
            running: 0,
            limited: Limited::default(),
            calls_total: 0,
            reads_total: 0,
        }
    }

    /// Counts everything or nothing. `capability_running` is the number of running uses of the
    /// capability, of all principals.
    pub(crate) fn reserve(
        &mut self,
        charges: &Charges<'_>,
        capability_running: u32,
    ) -> Result<(Counted, Remaining), ReserveError> {
        self.advance(charges.calendar, charges.now);
        self.expire(charges);
        if let Some((reason, retry_after)) = self.obstacle(charges, capability_running) {
            return Err(ReserveError::Exhausted(Denial {
                retry_after,
                remaining: Box::new(self.remaining_of(charges, capability_running)),
                ..Denial::new(reason)
            }));
        }
        let own = self.count(charges, self.elapsed_ms, 1);
        let held = self.held(charges);
        self.spent = self.spent.saturating_add(held);
        if charges.kind == Kind::Tool {
            self.running = self.running.saturating_add(1);
        }
        let counted = Counted {
            kind: charges.kind,
            month: self.month,
            cost: charges.cost,
            held,
            at_ms: self.elapsed_ms,
            own,
            tool: self.tool(charges),
        };
        let mut remaining = self.remaining_of(charges, capability_running.saturating_add(1));
        // Told as it is if the call costs what it is expected to.
        let difference = held.saturating_sub(charges.cost);
        remaining.budget = charges
            .budget
            .map(|limit| limit.saturating_sub(self.spent.saturating_sub(difference)));
        Ok((counted, remaining))
    }

    /// Corrects a cost, unless the month it was counted in is over. The call no longer runs.
    pub(crate) fn settle(&mut self, counted: &Counted, actual: Micros) {
        if self.month == counted.month {
            self.spent = self
                .spent
                .saturating_sub(counted.held)
                .saturating_add(actual);
            if counted.cost < actual
                && let Some(tool) = &counted.tool
            {
                self.note_cost(tool, actual);
            }
        }
        if counted.kind == Kind::Tool {
            self.running = self.running.saturating_sub(1);
        }
    }

    /// Corrects the cost of a use that began at `at`, unless the month it was counted in is over.
    pub(crate) fn correct(
        &mut self,
        charges: &Charges<'_>,
        at: Timestamp,
        counted: Micros,
        actual: Micros,
    ) {
        self.advance(charges.calendar, charges.now);
        if self.month.start <= at {
            self.spent = self.spent.saturating_sub(counted).saturating_add(actual);
            if charges.cost < actual
                && let Some(tool) = self.tool(charges)
            {
                self.note_cost(&tool, actual);
            }
        }
    }

    /// Takes back what was counted, as if it had never been.
    pub(crate) fn release(&mut self, counted: &Counted) {
        self.settle(counted, Micros::ZERO);
        let (rate, total) = match counted.kind {
            Kind::Tool => (&mut self.calls, &mut self.calls_total),
            Kind::Resource => (&mut self.reads, &mut self.reads_total),
        };
        rate.remove(counted.at_ms);
        *total = total.saturating_sub(1);
        if let Some(of) = &counted.own
            && let Some(own) = self.capabilities.get_mut(&of.capability)
        {
            own.rate.remove(counted.at_ms);
            if own.last.is_some_and(|last| last.at_ms == counted.at_ms) {
                own.last = of.previous;
            }
        }
    }

    /// Counts what happened before this process began.
    /// The cost in `charges` is that of all `calls`; one was expected to cost `estimate`, and the
    /// `dearest` cost that.
    pub(crate) fn seed(
        &mut self,
        charges: &Charges<'_>,
        (estimate, dearest): (Micros, Micros),
        at: Timestamp,
        calls: u32,
    ) {
        self.advance(charges.calendar, charges.now);
        // What is dated in the future was recorded before the clock was set back: it counts from now.
        let at_ms = at.0.min(self.elapsed_ms);
        self.count(charges, at_ms, calls);
        if self.month.start <= at || charges.now < at {
            self.spent = self.spent.saturating_add(charges.cost);
            if estimate < dearest
                && let Some(tool) = self.tool(charges)
            {
                self.note_cost(&tool, dearest);
            }
        }
    }

    /// Amount held for a call until its cost is known: what it is expected to cost, or what the
    /// dearest call of the tool has cost this month.
    fn held(&self, charges: &Charges<'_>) -> Micros {
        let dearest = match charges.budget {
            Some(_) if charges.kind == Kind::Tool => self.dearest.get(charges.capability),
            _ => None,
        };
        dearest.map_or(charges.cost, |&dearest| charges.cost.max(dearest))
    }

    fn tool(&mut self, charges: &Charges<'_>) -> Option<Arc<str>> {
        if charges.budget.is_none() || charges.kind != Kind::Tool {
            return None;
        }
        if *self.last_tool != *charges.capability {
            let known = self.dearest.get_key_value(charges.capability);
            self.last_tool =
                known.map_or_else(|| charges.capability.into(), |(tool, _)| Arc::clone(tool));
        }
        Some(Arc::clone(&self.last_tool))
    }

    fn note_cost(&mut self, tool: &Arc<str>, cost: Micros) {
        let dearest = self.dearest.entry(Arc::clone(tool)).or_default();
        *dearest = cost.max(*dearest);
    }

    pub(crate) fn remaining(
        &mut self,
        charges: &Charges<'_>,
        capability_running: u32,
    ) -> Remaining {
        self.advance(charges.calendar, charges.now);
        self.expire(charges);
        self.remaining_of(charges, capability_running)
    }

    pub(crate) fn usage(&mut self, principal: &str, calendar: &Calendar, now: Timestamp) -> Usage {
        self.advance(calendar, now);
        self.calls.expire(self.elapsed_ms);
        self.reads.expire(self.elapsed_ms);
        Usage {
            principal: principal.to_owned(),
            spent: self.spent,
            calls_minute: self.calls.minute.total,
            calls_day: self.calls.day.total,
            reads_minute: self.reads.minute.total,
            reads_day: self.reads.day.total,
            running: self.running,
            calls_total: self.calls_total,
            reads_total: self.reads_total,
        }
    }

    /// Tests if forgetting it would free nothing of what has been limited so far.
    pub(crate) fn is_forgettable(&mut self, calendar: &Calendar, now: Timestamp) -> bool {
        self.advance(calendar, now);
        let (elapsed_ms, limited) = (self.elapsed_ms, self.limited);
        let counts = |rate: &mut Rate| {
            rate.expire(elapsed_ms);
            limited.minute && rate.minute.total != 0 || limited.day && rate.day.total != 0
        };
        let cools = |own: &Own| {
            own.last
                .is_some_and(|last| elapsed_ms < last.at_ms.saturating_add(last.cooldown_ms))
        };
        let spends = limited.budget && self.spent != Micros::ZERO;
        self.running == 0
            && !spends
            && !counts(&mut self.calls)
            && !counts(&mut self.reads)
            && !self
                .capabilities
                .values_mut()
                .any(|own| cools(own) || counts(&mut own.rate))
    }

    /// Lets time pass. A clock that is set back stops time for the windows and never brings an
    /// earlier month's budget back, so that it frees nothing.
    fn advance(&mut self, calendar: &Calendar, now: Timestamp) {
        if self.wall_ms <= now.0 {
            self.elapsed_ms = self.elapsed_ms.saturating_add(now.0 - self.wall_ms);
            self.wall_ms = now.0;
        } else if MAX_JITTER_MS < self.wall_ms - now.0 {
            self.wall_ms = now.0;
        }
        let now = Timestamp(self.wall_ms);
        if self.month.end <= now {
            self.previous = Some((self.month, self.spent));
            self.month = calendar.month_of(now);
            self.spent = Micros::ZERO;
            self.dearest.clear();
        } else if MAX_MONTH_AHEAD_MS < self.month.start.0.saturating_sub(now.0) {
            // Waiting for a month in the far future would block the principal for good.
            self.month = calendar.month_of(now);
            if let Some((month, spent)) = self.previous.take()
                && month == self.month
            {
                self.spent = self.spent.saturating_add(spent);
            }
        }
    }

    fn rate(&self, kind: Kind) -> &Rate {
        match kind {
            Kind::Tool => &self.calls,
            Kind::Resource => &self.reads,
        }
    }

    fn expire(&mut self, charges: &Charges<'_>) {
        match charges.kind {
            Kind::Tool => self.calls.expire(self.elapsed_ms),
            Kind::Resource => self.reads.expire(self.elapsed_ms),
        }
        if has_own_limits(charges)
            && let Some(own) = self.capabilities.get_mut(charges.capability)
        {
            own.rate.expire(self.elapsed_ms);
        }
    }

    /// The rates that `charges` counts for, with the limits on each.
    fn limited(&self, charges: &Charges<'_>) -> [Option<(&Rate, RateLimits)>; 2] {
        let own = if charges.capability_rates.is_unlimited() {
            None
        } else {
            let own = self.capabilities.get(charges.capability);
            let rate = own.map_or(&NOTHING, |own| &own.rate);
            Some((rate, charges.capability_rates))
        };
        [Some((self.rate(charges.kind), charges.rates)), own]
    }

    /// The limit that stands in the way longest, and for how long.
    fn obstacle(
        &self,
        charges: &Charges<'_>,
        capability_running: u32,
    ) -> Option<(Reason, Option<Duration>)> {
        let now_ms = self.elapsed_ms;
        let mut worst = None;
        let mut consider = |reason, wait: Option<Duration>| {
            // `None` is forever, which no wait is longer than.
            let longer = match (&worst, wait) {
                (_, Some(Duration::ZERO)) | (Some((_, None)), _) => false,
                (Some((_, Some(known))), Some(wait)) => *known < wait,
                (None, _) | (_, None) => true,
            };
            if longer {
                worst = Some((reason, wait));
            }
        };
        consider(Reason::Budget, self.budget_wait(charges));
        for (rate, limits) in self.limited(charges).into_iter().flatten() {
            consider(Reason::RateDay, rate.day.wait(DAY, limits.per_day, now_ms));
            consider(
                Reason::RateMinute,
                rate.minute.wait(MINUTE, limits.per_minute, now_ms),
            );
        }
        if let Some(wait) = self.cooldown_wait(charges) {
            consider(Reason::Cooldown, Some(wait));
        }
        // Nobody knows when a call ends; so it is told only where no time to wait can be.
        let left = self.running_of(charges, capability_running);
        let no_room = left.is_some_and(|(left, _)| left == 0);
        worst.or(no_room.then_some((Reason::Concurrency, None)))
    }

    /// Time until the capability has cooled down, where it has to.
    fn cooldown_wait(&self, charges: &Charges<'_>) -> Option<Duration> {
        let cooldown_ms = cooldown_ms(charges)?;
        let last = self
            .capabilities
            .get(charges.capability)
            .and_then(|own| own.last);
        let until_ms = last.map_or(0, |last| last.at_ms.saturating_add(cooldown_ms));
        let wait_ms = until_ms.saturating_sub(self.elapsed_ms);
        Some(Duration::from_millis(wait_ms))
    }

    /// Number of calls that may still begin, and its limit: of the two limits the one that leaves less.
    fn running_of(&self, charges: &Charges<'_>, capability_running: u32) -> Option<(u32, u32)> {
        let left = |limit: Option<u32>, running: u32| {
            limit.map(|limit| (limit.saturating_sub(running), limit))
        };
        let principal = left(charges.max_running, self.running);
        let capability = left(charges.capability_max_running, capability_running);
        principal.into_iter().chain(capability).min()
    }

    fn budget_wait(&self, charges: &Charges<'_>) -> Option<Duration> {
        let Some(limit) = charges.budget else {
            return Some(Duration::ZERO);
        };
        if fits_budget(limit, charges.may_cost, self.spent, self.held(charges)) {
            Some(Duration::ZERO)
        } else if charges.cost <= limit {
            Some(self.budget_resets())
        } else {
            None
        }
    }

    fn budget_resets(&self) -> Duration {
        Duration::from_millis(self.month.end.0.saturating_sub(self.wall_ms))
    }

    fn count(&mut self, charges: &Charges<'_>, at_ms: u64, calls: u32) -> Option<OwnUse> {
        self.limited.note(charges);
        let now_ms = self.elapsed_ms;
        let (rate, total) = match charges.kind {
            Kind::Tool => (&mut self.calls, &mut self.calls_total),
            Kind::Resource => (&mut self.reads, &mut self.reads_total),
        };
        rate.add(at_ms, now_ms, calls);
        *total = total.saturating_add(u64::from(calls));
        if !has_own_limits(charges) {
            return None;
        }
        let known = self.capabilities.get_key_value(charges.capability);
        let capability: Arc<str> =
            known.map_or_else(|| charges.capability.into(), |(name, _)| Arc::clone(name));
        let own = self
            .capabilities
            .entry(Arc::clone(&capability))
            .or_default();
        own.rate.add(at_ms, now_ms, calls);
        let previous = own.last;
        if let Some(cooldown_ms) = cooldown_ms(charges)
            && previous.is_none_or(|last| last.at_ms <= at_ms)
        {
            own.last = Some(LastUse { at_ms, cooldown_ms });
        }
        Some(OwnUse {
            capability,
            previous,
        })
    }

    fn remaining_of(&self, charges: &Charges<'_>, capability_running: u32) -> Remaining {
        let now_ms = self.elapsed_ms;
        let running = self.running_of(charges, capability_running);
        let mut remaining = Remaining {
            budget: charges.budget.map(|limit| limit.saturating_sub(self.spent)),
            budget_limit: charges.budget,
            budget_resets: charges.budget.map(|_| self.budget_resets()),
            held: charges.budget.map(|_| self.held(charges)),
            cooldown: self.cooldown_wait(charges),
            running: running.map(|(left, _)| left),
            running_limit: running.map(|(_, limit)| limit),
            ..Remaining::default()
        };
        for (rate, limits) in self.limited(charges).into_iter().flatten() {
            if let Some(limit) = limits.per_minute {
                let left = limit.saturating_sub(rate.minute.total);
                if remaining.minute.is_none_or(|known| left < known) {
                    remaining.minute = Some(left);
                    remaining.minute_limit = Some(limit);
                    remaining.minute_resets = Some(rate.minute.resets(MINUTE, now_ms));
                }
            }
            if let Some(limit) = limits.per_day {
                let left = limit.saturating_sub(rate.day.total);
                if remaining.day.is_none_or(|known| left < known) {
                    remaining.day = Some(left);
                    remaining.day_limit = Some(limit);
                    remaining.day_resets = Some(rate.day.resets(DAY, now_ms));
                }
            }
        }
        remaining
    }
}

impl Limited {
    fn note(&mut self, charges: &Charges<'_>) {
        let (all, own) = (charges.rates, charges.capability_rates);
        self.budget |= charges.budget.is_some();
        self.minute |= all.per_minute.or(own.per_minute).is_some();
        self.day |= all.per_day.or(own.per_day).is_some();
    }
}

fn has_own_limits(charges: &Charges<'_>) -> bool {
    charges.cooldown.is_some() || !charges.capability_rates.is_unlimited()
}

/// Rounded up to what the clock can tell.
fn cooldown_ms(charges: &Charges<'_>) -> Option<u64> {
    let nanos = charges.cooldown?.as_nanos();
    Some(u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// Counters of a capability that has not been used.
static NOTHING: Rate = Rate {
    minute: Window {
        buckets: VecDeque::new(),
        total: 0,
    },
    day: Window {
        buckets: VecDeque::new(),
        total: 0,
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ask, Policy, PolicySpec};

    fn window(seconds: &[u64]) -> Window {
        let mut window = Window::default();
        for second in seconds {
            window.add(MINUTE, second * 1_000, 1);
        }
        window
    }

    #[test]
    fn buckets_are_in_order_and_no_second_has_two() {
        let window = window(&[5, 3, 5, 3, 4, 9]);
        assert_eq!(window.buckets, [(3, 2), (4, 1), (5, 2), (9, 1)]);
        assert_eq!(window.total, 6);
    }

    #[test]
    fn a_bucket_goes_with_the_last_that_is_taken_back() {
        let mut window = window(&[5, 5, 7]);
        window.remove(MINUTE, 5_999);
        assert_eq!(window.buckets, [(5, 1), (7, 1)]);
        assert_eq!(window.total, 2);
        for _ in 0..2 {
            window.remove(MINUTE, 5_000);
            assert_eq!(window.total, 1, "what is not there is not taken back");
            assert_eq!(window.buckets, [(7, 1)]);
        }
    }

    #[test]
    fn a_lowered_limit_is_waited_for_until_enough_has_expired() {
        let window = window(&[1, 2, 3]);
        let wait = |limit| {
            let wait = window.wait(MINUTE, Some(limit), 10_000);
            wait.map(|it| it.as_secs())
        };
        let waits = [4, 3, 2, 1, 0].map(wait);
        assert_eq!(waits, [Some(0), Some(52), Some(53), Some(54), None]);
        assert_eq!(window.resets(MINUTE, 10_000), Duration::from_secs(54));
        assert_eq!(Window::default().resets(MINUTE, 10_000), Duration::ZERO);
    }

    #[test]
    fn only_capabilities_with_limits_of_their_own_are_remembered() {
        let policy = Policy::new(PolicySpec::default()).unwrap();
        let charges = policy.charges_of(Ask {
            principal: "a",
            roles: &[],
            capability: "tool/x",
            kind: Kind::Tool,
            estimate: None,
            now: Timestamp(0),
            arguments: None,
        });
        let cooling = Charges {
            capability: "tool/y",
            cooldown: Some(Duration::from_secs(1)),
            ..charges
        };
        let mut meter = Meter::new(policy.calendar(), Timestamp(0));
        for charges in [charges, cooling] {
            meter.reserve(&charges, 0).unwrap();
        }
        let known: Vec<_> = meter.capabilities.keys().map(|name| &**name).collect();
        assert_eq!(known, ["tool/y"]);
    }
}
