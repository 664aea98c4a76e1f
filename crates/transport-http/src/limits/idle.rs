//! Detection of idle and stalled connections.

use crate::{limits::body_memory::Held, seams::upgrade::Change};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

/// Activity of one connection. Costs a request two counters and no timer: the counters are compared
/// from time to time.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    busy: AtomicU32,
    /// Beginnings and ends of requests.
    steps: AtomicU32,
    /// Set if the client has sent too many frames without payload.
    is_flooded: AtomicBool,
    /// Bytes held of bodies that it sends.
    pub(crate) held: Held,
    /// Protocol that it changes to afterwards.
    pub(crate) change: Change,
}

/// A request that is being answered.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Activity>);

impl Activity {
    pub(crate) fn begin(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.steps.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(self))
    }

    /// Number of beginnings and ends of requests, modulo 2^32.
    pub(crate) fn steps(&self) -> u32 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Marks that its client has sent too many frames without content.
    pub(crate) fn flooded(&self) {
        self.is_flooded.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_flooded(&self) -> bool {
        self.is_flooded.load(Ordering::Relaxed)
    }

    /// Returns true if no request is being answered, and none has come or was finished since `seen`
    /// was last set, which this sets.
    pub(crate) fn has_stalled(&self, seen: &mut u32) -> bool {
        let steps = self.steps();
        let before = std::mem::replace(seen, steps);
        self.busy.load(Ordering::Relaxed) == 0 && before == steps
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.steps.fetch_add(1, Ordering::Relaxed);
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_doing_nothing_is_stalling() {
        let activity = Arc::new(Activity::default());
        let mut seen = 0;
        let busy = activity.begin();
        assert!(!activity.has_stalled(&mut seen));
        assert!(!activity.has_stalled(&mut seen), "busy for long");
        drop(busy);
        assert!(!activity.has_stalled(&mut seen), "only just done");
        assert!(activity.has_stalled(&mut seen));
        drop(activity.begin());
        assert!(!activity.has_stalled(&mut seen), "a request in between");
        assert!(activity.has_stalled(&mut seen));
    }
}
