//! Signal to answer what still runs.

use std::{
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tokio::sync::Notify;

/// Time after [`crate::engine::Engine::give_up`] or [`crate::session::connection::Connection::give_up`] in which transports still send
/// the answers.
pub const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// Signals services that running calls are to be answered now: the time that they had to end is
/// over, and their clients must learn their outcome.
#[derive(Debug, Default)]
pub struct GivingUp {
    is_over: AtomicBool,
    bell: Notify,
}

impl GivingUp {
    pub(crate) fn give_up(&self) {
        self.is_over.store(true, Ordering::Release);
        self.bell.notify_waiters();
    }

    /// Resolves when that is so.
    pub async fn given_up(&self) {
        let mut rung = pin!(self.bell.notified());
        rung.as_mut().enable();
        // The bell may have been rung before it was listened to.
        if !self.is_over.load(Ordering::Acquire) {
            rung.await;
        }
    }
}
