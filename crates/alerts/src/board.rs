//! Conditions that hold, and the notices sent of them. No clock and no I/O.

use crate::{Condition, Notice, Observation, Severity, State};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};
use uuid::Uuid;

/// The most conditions that are kept in mind. Beyond, new ones are not told before others are over.
pub const MAX_CONDITIONS: usize = 1024;
/// Places for conditions that are reserved for the server's own: conditions of clients could take
/// the others.
const KEPT: usize = 64;

/// Now: on the clock, for people, and since some beginning, for measuring.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// On the clock.
    pub at: SystemTime,
    /// Since some beginning; never goes back.
    pub uptime: Duration,
}

/// Timing of notices.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time for which a condition must last before it is reported, and for which it must be over
    /// before its end is.
    pub settle: Duration,
    /// Time after which a condition is reported again; `None`: never.
    pub repeat: Option<Duration>,
}

/// All conditions that are not right, or have not been for long enough.
#[derive(Debug)]
pub(crate) struct Board {
    timing: Timing,
    conditions: BTreeMap<Condition, Entry>,
    /// Conditions for which there was no room in the last look.
    untold: usize,
}

#[derive(Debug)]
struct Entry {
    /// Of this time that it went wrong, until it is over.
    alert: Uuid,
    since: Moment,
    /// Since when nothing is wrong any more.
    right_since: Option<Duration>,
    told: Option<Told>,
    severity: Severity,
    detail: String,
}

#[derive(Clone, Copy, Debug)]
struct Told {
    at: Duration,
    stage: u32,
}

impl Board {
    pub(crate) fn new(timing: Timing) -> Self {
        Self {
            timing,
            conditions: BTreeMap::new(),
            untold: 0,
        }
    }

    /// Takes all that is wrong at this moment; what is to be told of it.
    pub(crate) fn look(
        &mut self,
        now: Moment,
        wrong: impl IntoIterator<Item = Observation>,
    ) -> Vec<Notice> {
        let mut notices = Vec::new();
        self.untold = 0;
        for entry in self.conditions.values_mut() {
            entry.right_since.get_or_insert(now.uptime);
        }
        for observation in wrong {
            let is_known = self.conditions.contains_key(&observation.condition);
            let room = match observation.condition.subject.is_none() {
                true => MAX_CONDITIONS,
                false => MAX_CONDITIONS - KEPT,
            };
            if !is_known && room <= self.conditions.len() {
                self.untold += 1;
                continue;
            }
            let condition = observation.condition.clone();
            let entry = self.conditions.entry(condition).or_insert_with(|| Entry {
                alert: Uuid::now_v7(),
                since: now,
                right_since: None,
                told: None,
                severity: observation.severity,
                detail: String::new(),
            });
            notices.extend(entry.wrong(now, observation, self.timing));
        }
        let settle = self.timing.settle;
        self.conditions.retain(|condition, entry| {
            let right_for = entry
                .right_since
                .map(|since| now.uptime.saturating_sub(since));
            if right_for.is_none_or(|it| it < settle) {
                return true;
            }
            if entry.told.is_some() {
                notices.push(entry.notice(condition.clone(), State::Recovered, now));
            }
            false
        });
        notices
    }

    /// Number of conditions that were reported and are not over.
    pub(crate) fn raised(&self) -> usize {
        let entries = self.conditions.values();
        entries.filter(|entry| entry.told.is_some()).count()
    }

    /// Number of conditions there was no room for at the last observation.
    pub(crate) fn untold(&self) -> usize {
        self.untold
    }
}

impl Entry {
    fn wrong(&mut self, now: Moment, seen: Observation, timing: Timing) -> Option<Notice> {
        self.right_since = None;
        self.severity = seen.severity;
        self.detail = seen.detail;
        let state = match self.told {
            None => {
                let lasted = now.uptime.saturating_sub(self.since.uptime);
                (timing.settle <= lasted).then_some(State::Raised)?
            }
            Some(told) if told.stage < seen.stage => State::Raised,
            Some(told) => {
                let ago = now.uptime.saturating_sub(told.at);
                (timing.repeat? <= ago).then_some(State::Repeated)?
            }
        };
        let at = now.uptime;
        let stage = self.told.map_or(0, |told| told.stage).max(seen.stage);
        self.told = Some(Told { at, stage });
        Some(self.notice(seen.condition, state, now))
    }

    fn notice(&self, condition: Condition, state: State, now: Moment) -> Notice {
        Notice {
            id: Uuid::now_v7(),
            alert: self.alert,
            condition,
            state,
            severity: self.severity,
            since: self.since.at,
            at: now.at,
            detail: self.detail.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
