//! Streams end with what has proved whose they are.

use mcp_service::Principal;
use std::{
    pin::Pin,
    task::{Context, Poll},
};

/// Expiry of the proof of identity with which a stream was opened. Costs nothing for those of whom
/// that does not become untrue by itself.
pub(crate) struct Expiry(Option<End>);

enum End {
    Ahead(Pin<Box<dyn Future<Output = ()> + Send>>),
    Over,
}

impl Expiry {
    /// Expiry of the principal of one request. Other requests of its session may have others.
    pub(crate) fn of(principal: &Principal) -> Self {
        Self(principal.end().map(|end| End::Ahead(Box::pin(end))))
    }

    /// For a stream that ends by itself: that of a request, which was let in as a whole.
    pub(crate) fn never() -> Self {
        Self(None)
    }

    /// Returns true once it has expired. If not, the task is woken when it does.
    pub(crate) fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.0 {
            None => false,
            Some(End::Over) => true,
            Some(End::Ahead(end)) => match end.as_mut().poll(cx) {
                Poll::Ready(()) => {
                    self.0 = Some(End::Over);
                    true
                }
                Poll::Pending => false,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::poll_fn,
        task::Waker,
        time::{Duration, SystemTime},
    };
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
