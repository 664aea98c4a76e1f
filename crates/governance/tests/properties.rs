//! Limits hold whatever happens, in whatever order.
#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod common;
mod model;

use common::{DAY, JANUARY, SECOND, admit, ask, governor, ready, spec};
use governance::{MemoryQuota, Micros, Quota};
use proptest::prelude::*;
use std::sync::Arc;

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(512)
    })]

    #[test]
    fn no_limit_is_ever_exceeded_and_counters_are_sums(script in model::script(80)) {
        let quota = Arc::new(MemoryQuota::default());
        ready(model::check(quota, "", async || {}, script))?;
    }

    /// A principal that waits as long as told, and calls nothing else meanwhile, is admitted; a
    /// millisecond earlier is too early.
    #[test]
    fn the_time_to_wait_is_exact(
        passes in proptest::collection::vec(prop_oneof![0..3 * SECOND, 0..DAY / 4], 1..40),
        minute in 1..5_u32,
        day in 1..9_u32,
        budget in 10..200_u64,
    ) {
        let governor = governor(spec(Quota {
            monthly_budget: Some(Micros(budget)),
            max_calls_per_minute: Some(minute),
            max_calls_per_day: Some(day),
            ..Quota::default()
        }));
        let mut now = JANUARY;
        for pass in passes {
            now += pass;
            if let Err(denial) = admit(&governor, ask("a", now)) {
                let wait = u64::try_from(denial.retry_after.unwrap().as_millis()).unwrap();
                prop_assert!(admit(&governor, ask("a", now + wait - 1)).is_err());
                now += wait;
                prop_assert!(admit(&governor, ask("a", now)).is_ok());
            }
        }
    }
}
