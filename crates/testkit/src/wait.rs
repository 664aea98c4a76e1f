//! Waiting for something to become true, with an end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Time that any helper here waits for an event that should come at once: long enough for a loaded
/// machine, short enough that a hanging test is noticed.
pub const GENEROUS: Duration = Duration::from_secs(60);

/// Between two looks at a condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// Polls `condition` until it holds. For what announces itself in no other way; an event to wait
/// for is better.
///
/// # Panics
///
/// If it does not hold within `limit`; `what` says what was hoped for.
pub async fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < end,
            "within {limit:?} it did not happen that {what}"
        );
        sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn returns_as_soon_as_the_condition_holds() {
        let mut looks = 0;
        wait_until("three looks were taken", GENEROUS, || {
            looks += 1;
            looks == 3
        })
        .await;
        assert_eq!(looks, 3);
    }

    #[tokio::test(start_paused = true)]
    #[should_panic(expected = "it did not happen that pigs fly")]
    async fn gives_up_in_the_end() {
        wait_until("pigs fly", Duration::from_secs(1), || false).await;
    }
}
