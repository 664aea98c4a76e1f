//! Changes of resources that are asked again and again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Notify, watch};

/// The most addresses that are compared.
pub(crate) const MAX_COMPARED: usize = 1_000;

/// Changes that nobody has been told of yet, and addresses that somebody listens to.
#[derive(Debug)]
pub(crate) struct News {
    scheme: &'static str,
    listened: watch::Sender<Arc<BTreeSet<String>>>,
    /// Hashes of what was there when somebody began to listen, and the time that reading it took, until a watch takes
    /// them over.
    heard: Mutex<HashMap<String, (u64, Duration)>>,
    changed: Mutex<BTreeSet<String>>,
    woken: Notify,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl News {
    /// For addresses of this scheme.
    pub(crate) fn new(scheme: &'static str) -> Self {
        Self {
            scheme,
            listened: watch::Sender::default(),
            heard: Mutex::default(),
            changed: Mutex::default(),
            woken: Notify::new(),
        }
    }

    /// Takes the addresses that somebody listens to, in place of those before.
    pub(crate) fn listen_to<'a>(&self, uris: impl IntoIterator<Item = &'a String>) {
        let uris = uris.into_iter().filter(|it| it.starts_with(self.scheme));
        let uris: BTreeSet<_> = uris.cloned().collect();
        self.listened.send_if_modified(|it| {
            let is_other = **it != uris;
            *it = Arc::new(uris);
            is_other
        });
    }

    /// Addresses that somebody listens to now.
    pub(crate) fn listened(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&self.listened.borrow())
    }

    /// The same, with word of others.
    pub(crate) fn follow_listened(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.listened.subscribe()
    }

    /// Keeps what was seen when somebody began to listen, and the time that reading it took.
    pub(crate) fn hear(&self, uri: &str, seen: u64, took: Duration) {
        let mut heard = lock(&self.heard);
        if MAX_COMPARED <= heard.len() {
            heard.clear();
        }
        heard.insert(uri.to_owned(), (seen, took));
    }

    pub(crate) fn take_heard(&self, uri: &str) -> Option<(u64, Duration)> {
        lock(&self.heard).remove(uri)
    }

    /// Says that there is something else at these addresses.
    pub(crate) fn tell(&self, changed: impl IntoIterator<Item = String>) {
        lock(&self.changed).extend(changed);
        self.woken.notify_one();
    }

    /// Addresses at which there is something else, once there are any. For one caller at a time.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn changed(&self) -> BTreeSet<String> {
        loop {
            {
                let mut changed = lock(&self.changed);
                if !changed.is_empty() {
                    return std::mem::take(&mut changed);
                }
            }
            self.woken.notified().await;
        }
    }
}
