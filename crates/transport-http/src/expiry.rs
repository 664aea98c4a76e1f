//! Streams end with what has proved whose they are.

use mcp_service::Principal;
use std::{
    pin::Pin,
    task::{Context, Poll},
    time::SystemTime,
};
use tokio::time::{Sleep, sleep};

/// When what proved who opened a stream proves nothing any more. Costs nothing for those of whom that
/// does not become untrue by itself.
pub(crate) struct Expiry(Option<Pin<Box<Sleep>>>);

impl Expiry {
    /// That of the principal of one request. Other requests of its session may have others.
    pub(crate) fn of(principal: &Principal) -> Self {
        Self(principal.expires().map(|expires| {
            let left = expires.duration_since(SystemTime::now());
            Box::pin(sleep(left.unwrap_or_default()))
        }))
    }

    /// For a stream that ends by itself: that of a request, which was let in as a whole.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// Whether it has come to that. If not, the task is woken when it does.
    pub(crate) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.0 {
            Some(sleep) => matches!(sleep.as_mut().poll(cx), Poll::Ready(())),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{future::poll_fn, task::Waker, time::Duration};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn it_is_over_when_the_principal_expires_and_not_before() {
        let hour = Duration::from_secs(3600);
        let until = |expires| Expiry::of(&Principal::new("p").until(expires));
        let (mut later, began) = (until(SystemTime::now() + hour), Instant::now());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(!later.is_over(&mut cx));
        assert!(until(SystemTime::now() - hour).is_over(&mut cx));
        let over = |cx: &mut Context<'_>| match later.is_over(cx) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        };
        poll_fn(over).await;
        let lasted = began.elapsed();
        assert!(hour - Duration::from_secs(60) < lasted && lasted <= hour + Duration::from_secs(1));
        assert!(later.is_over(&mut cx), "and stays so");
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_end_there_is_no_timer() {
        let expiry = Expiry::of(&Principal::new("p"));
        assert!(expiry.0.is_none() && Expiry::never().0.is_none());
    }
}
