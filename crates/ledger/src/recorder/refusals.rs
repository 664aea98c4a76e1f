//! Refusals that flood: counted instead of written one by one.
//!
//! A refused call costs its caller nothing, so without this a caller in a loop would fill the disk.

use crate::record::{
    codec,
    entry::{End, HIDDEN_CAPABILITY, MAX_TEXT_BYTES, Outcome, Start, UNKNOWN_CAPABILITY},
    note::{Note, NoteKind},
};
use serde_json::json;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// The most refusals of the same principal, capability and reason that are written one by one in
/// [`REFUSAL_WINDOW`] unless told otherwise.
pub const DEFAULT_MAX_REFUSALS: u32 = 20;

/// For how long refusals of the same kind are counted together.
pub const REFUSAL_WINDOW: Duration = Duration::from_secs(10);

/// The most kinds of refusals that are told apart. Callers choose what they call, so there could
/// be any number of them; what is beyond is counted together.
const MAX_KINDS: usize = 4096;

/// Placeholder for a principal or a capability that is not told apart.
const ANY: &str = "*";

/// Decides which refusals are written.
#[derive(Debug)]
pub(crate) struct Refusals {
    max: u32,
    kinds: Mutex<HashMap<Sort, Flood>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sort {
    principal: String,
    capability: String,
    reason: String,
}

#[derive(Clone, Copy, Debug)]
struct Flood {
    /// Time of the first refusal of the window: microseconds since the epoch, UTC.
    since_us: u64,
    written: u32,
    /// Number of refusals that were only counted.
    counted: u64,
    /// Number of those that were of a hidden capability.
    hidden: u64,
    first_us: u64,
    last_us: u64,
    policy_version: u64,
}

impl Refusals {
    pub(crate) fn new(max: u32) -> Self {
        Self {
            max,
            kinds: Mutex::default(),
        }
    }

    /// Returns true if this refusal is to be written; otherwise it is only counted.
    pub(crate) fn admit(&self, start: &Start<'_>, end: &End<'_>) -> bool {
        let Outcome::Denied { reason } = end.outcome else {
            return true;
        };
        // As much of each as an entry keeps: callers choose how long the names are that they make up.
        let kept = |text| codec::cut(text, MAX_TEXT_BYTES).to_owned();
        let is_hidden = reason == HIDDEN_CAPABILITY;
        let (capability, kind) = match is_hidden || reason == UNKNOWN_CAPABILITY {
            true => (ANY, UNKNOWN_CAPABILITY),
            false => (start.capability, reason),
        };
        let mut sort = Sort {
            principal: kept(start.principal),
            capability: kept(capability),
            reason: kept(kind),
        };
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        if MAX_KINDS <= kinds.len() && !kinds.contains_key(&sort) {
            // One of them takes the place of all that there is no room for.
            sort.principal = ANY.to_owned();
            sort.capability = ANY.to_owned();
        }
        let flood = kinds.entry(sort).or_insert(Flood {
            since_us: start.at_us,
            written: 0,
            counted: 0,
            hidden: 0,
            first_us: start.at_us,
            last_us: start.at_us,
            policy_version: 0,
        });
        if is_over(flood, start.at_us) && flood.counted == 0 {
            (flood.since_us, flood.written) = (start.at_us, 0);
        }
        if flood.written < self.max {
            flood.written += 1;
            return true;
        }
        if flood.counted == 0 {
            flood.first_us = start.at_us;
        }
        flood.counted += 1;
        flood.hidden += u64::from(is_hidden);
        flood.last_us = start.at_us.max(flood.last_us);
        flood.policy_version = start.policy_version;
        false
    }

    /// Hands what has been counted to `write`, for windows that are over or, with `all`, for every
    /// one, and forgets it. `write` tells whether it has taken it; when it has not, the rest stays.
    pub(crate) fn flush(&self, now_us: u64, all: bool, write: impl Fn(&Note<'_>) -> bool) -> bool {
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wrote = false;
        let mut is_taken = true;
        kinds.retain(|sort, flood| {
            if !is_taken || !(all || is_over(flood, now_us)) {
                return true;
            }
            if flood.counted == 0 {
                return false;
            }
            is_taken = aggregated(sort, flood, now_us, &write);
            wrote |= is_taken;
            !is_taken
        });
        wrote
    }
}

fn is_over(flood: &Flood, now_us: u64) -> bool {
    // A clock that is put back must not make a window last.
    u128::from(now_us.abs_diff(flood.since_us)) >= REFUSAL_WINDOW.as_micros()
}

fn aggregated(sort: &Sort, flood: &Flood, now_us: u64, write: impl Fn(&Note<'_>) -> bool) -> bool {
    let mut detail = json!({
        "reason": sort.reason,
        "count": flood.counted,
        "first_us": flood.first_us,
        "last_us": flood.last_us,
    });
    if sort.reason == UNKNOWN_CAPABILITY {
        // Of the count.
        detail[HIDDEN_CAPABILITY] = flood.hidden.into();
    }
    write(&Note {
        actor: &sort.principal,
        subject: &sort.capability,
        policy_version: flood.policy_version,
        detail: &detail.to_string(),
        ..Note::new(now_us, NoteKind::REFUSALS_AGGREGATED)
    })
}
