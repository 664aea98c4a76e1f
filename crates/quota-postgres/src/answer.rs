//! Conversion of the database's counters to answers for callers: as in `governance::MemoryQuota`,
//! to the letter.

use crate::{
    error::RequestError,
    request::{Request, length},
};
use governance::{Denial, Micros, RateLimits, Reason, Remaining, fits_budget};
use std::time::Duration;
use tokio_postgres::Row;

/// One window of a counter.
#[derive(Clone, Copy, Debug)]
struct Window {
    total: i64,
    /// Until nothing of it counts any more; `None` when nothing does.
    resets: Option<i64>,
    /// Until one more fits; zero when it does now.
    wait: Option<i64>,
}

/// Decision of the database on one request, with its grounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decision {
    verdict: i16,
    wall_ms: i64,
    month_end_ms: i64,
    spent: i64,
    held: i64,
    minute: Window,
    day: Window,
    own_minute: Window,
    own_day: Window,
    cooldown_wait: Option<i64>,
    running: Option<i64>,
    capability_running: Option<i64>,
}

impl Decision {
    pub(crate) fn read(row: &Row) -> Result<Self, tokio_postgres::Error> {
        let verdict: i16 = row.try_get(0)?;
        let number = |index: usize| -> Result<Option<i64>, tokio_postgres::Error> {
            row.try_get::<_, Option<i64>>(index)
        };
        let window = |index: usize| -> Result<Window, tokio_postgres::Error> {
            Ok(Window {
                total: number(index)?.unwrap_or(0),
                resets: number(index + 1)?,
                wait: number(index + 2)?,
            })
        };
        Ok(Self {
            verdict,
            wall_ms: number(1)?.unwrap_or(0),
            month_end_ms: number(2)?.unwrap_or(0),
            spent: number(3)?.unwrap_or(0),
            held: number(4)?.unwrap_or(0),
            minute: window(5)?,
            day: window(8)?,
            own_minute: window(11)?,
            own_day: window(14)?,
            cooldown_wait: number(17)?,
            running: number(18)?,
            capability_running: number(19)?,
        })
    }

    /// Success if the request was counted, else the refusal.
    pub(crate) fn outcome(&self, request: &Request) -> Result<Result<(), Denial>, RequestError> {
        match self.verdict {
            0 => Ok(Err(self.denial(request))),
            1 => Ok(Ok(())),
            2 => Err(RequestError::Clock),
            _ => Err(RequestError::Nonsense),
        }
    }

    fn denial(&self, request: &Request) -> Denial {
        let mut worst: Option<(Reason, Option<Duration>)> = None;
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
        consider(Reason::Budget, self.budget_wait(request));
        consider(Reason::RateDay, self.day.wait.map(duration));
        consider(Reason::RateMinute, self.minute.wait.map(duration));
        consider(Reason::RateDay, self.own_day.wait.map(duration));
        consider(Reason::RateMinute, self.own_minute.wait.map(duration));
        consider(
            Reason::Cooldown,
            Some(duration(self.cooldown_wait.unwrap_or(0))),
        );
        // Nobody knows when a call ends; so it is told only where no time to wait can be.
        let (reason, retry_after) = worst.unwrap_or((Reason::Concurrency, None));
        Denial {
            retry_after,
            remaining: Box::new(self.remaining(request, false)),
            ..Denial::new(reason)
        }
    }

    fn budget_wait(&self, request: &Request) -> Option<Duration> {
        let Some(limit) = request.budget else {
            return Some(Duration::ZERO);
        };
        let (spent, held) = (micros(self.spent), micros(self.held).max(request.cost));
        if fits_budget(limit, request.may_cost, spent, held) {
            Some(Duration::ZERO)
        } else if request.cost <= limit {
            Some(self.budget_resets())
        } else {
            None
        }
    }

    fn budget_resets(&self) -> Duration {
        duration(self.month_end_ms.saturating_sub(self.wall_ms))
    }

    /// Remaining quota, after the request was counted if it was.
    pub(crate) fn remaining(&self, request: &Request, was_counted: bool) -> Remaining {
        let spent = micros(self.spent);
        let mut remaining = Remaining {
            budget: request.budget.map(|limit| limit.saturating_sub(spent)),
            budget_limit: request.budget,
            budget_resets: request.budget.map(|_| self.budget_resets()),
            held: request.budget.map(|_| micros(self.held).max(request.cost)),
            cooldown: request.cooldown.map(|cooldown| {
                duration(if was_counted {
                    length(cooldown)
                } else {
                    self.cooldown_wait.unwrap_or(0)
                })
            }),
            ..Remaining::default()
        };
        self.rates(&mut remaining, request.rates, self.minute, self.day);
        self.rates(&mut remaining, request.own, self.own_minute, self.own_day);
        let left = |limit: Option<u32>, running: Option<i64>| {
            limit.map(|limit| (limit.saturating_sub(count(running.unwrap_or(0))), limit))
        };
        let own = left(request.max_running, self.running);
        let shared = left(request.capability_max_running, self.capability_running);
        if let Some((left, limit)) = own.into_iter().chain(shared).min() {
            remaining.running = Some(left);
            remaining.running_limit = Some(limit);
        }
        remaining
    }

    fn rates(&self, remaining: &mut Remaining, limits: RateLimits, minute: Window, day: Window) {
        if let Some(limit) = limits.per_minute {
            let left = limit.saturating_sub(count(minute.total));
            if remaining.minute.is_none_or(|known| left < known) {
                remaining.minute = Some(left);
                remaining.minute_limit = Some(limit);
                remaining.minute_resets = Some(duration(minute.resets.unwrap_or(0)));
            }
        }
        if let Some(limit) = limits.per_day {
            let left = limit.saturating_sub(count(day.total));
            if remaining.day.is_none_or(|known| left < known) {
                remaining.day = Some(left);
                remaining.day_limit = Some(limit);
                remaining.day_resets = Some(duration(day.resets.unwrap_or(0)));
            }
        }
    }
}

fn duration(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

fn count(of: i64) -> u32 {
    u32::try_from(of.max(0)).unwrap_or(u32::MAX)
}

fn micros(of: i64) -> Micros {
    Micros(u64::try_from(of).unwrap_or(0))
}
