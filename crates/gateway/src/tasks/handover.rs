use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// How a call under way says that its caller need not wait for it any longer.
#[derive(Debug, Default)]
pub struct Handover {
    asked: AtomicBool,
    changed: Notify,
}

impl Handover {
    /// Says so; more than once is the same as once.
    pub(crate) fn ask(&self) {
        self.asked.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Whether it was said.
    pub(crate) fn was_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Resolves when it is said.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost.
    pub(crate) async fn asked(&self) {
        while !self.was_asked() {
            self.changed.notified().await;
        }
    }
}
