//! Looks for changes at services, on behalf of those who listen.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;

use crate::{
    news::{MAX_COMPARED, News},
    services::{Service, fetch, find},
};

/// Looks that are under way at once.
const AT_ONCE: usize = 8;
/// The longest time between two looks at a service that does not answer, unless its own interval is longer.
const AFTER_FAILURES: Duration = Duration::from_secs(600);

/// Services that cannot be asked for changes, by name, and why.
#[derive(Debug, Default)]
pub(crate) struct Failing(Mutex<HashMap<String, String>>);

impl Failing {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn told(&self) -> Option<String> {
        let failing = self.lock();
        let mut told: Vec<_> = failing
            .iter()
            .map(|(name, why)| format!("changes of `{name}` are not heard of: {why}"))
            .collect();
        told.sort();
        (!told.is_empty()).then(|| told.join("; "))
    }
}

/// State of an address that somebody listens to.
struct Known {
    seen: Option<u64>,
    next: Instant,
    failures: u32,
}

/// Asks again and again, for as long as somebody listens to anything and after.
pub(crate) async fn run(all: Arc<[Service]>, news: Arc<News>, failing: Arc<Failing>) {
    let mut listened = news.follow_listened();
    let mut known: HashMap<String, Known> = HashMap::new();
    loop {
        let uris = Arc::clone(&listened.borrow_and_update());
        known.retain(|uri, _| uris.contains(uri));
        if known.is_empty() {
            failing.lock().clear();
        }
        for uri in uris.iter() {
            if known.contains_key(uri) || MAX_COMPARED <= known.len() {
                continue;
            }
            let Some(interval) = interval(&all, uri) else {
                continue;
            };
            let seen = news.take_heard(uri).map(|(seen, _)| seen);
            let wait = seen.map_or(Duration::ZERO, |_| interval);
            let next = Instant::now() + wait;
            let new = Known {
                seen,
                next,
                failures: 0,
            };
            known.insert(uri.clone(), new);
        }
        let next = known.values().map(|it| it.next).min();
        let due = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            changed = listened.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        }
        let now = Instant::now();
        let due = known.iter().filter(|(_, it)| it.next <= now);
        let due: Vec<_> = due.map(|(uri, _)| uri.clone()).collect();
        let mut looks = stream::iter(due)
            .map(|uri| look(&all, uri))
            .buffer_unordered(AT_ONCE);
        while let Some((uri, service, outcome)) = looks.next().await {
            let (Some(known), Some(interval)) = (known.get_mut(&uri), interval(&all, &uri)) else {
                continue;
            };
            let wait = match outcome {
                Ok(seen) => {
                    failing.lock().remove(&service);
                    known.failures = 0;
                    // What was first seen is no change.
                    if known.seen.replace(seen).is_some_and(|it| it != seen) {
                        news.tell([uri]);
                    }
                    interval
                }
                Err(why) => {
                    failing.lock().insert(service, why);
                    known.failures = known.failures.saturating_add(1);
                    let wait = interval.saturating_mul(1 << known.failures.min(16));
                    wait.min(AFTER_FAILURES.max(interval))
                }
            };
            known.next = Instant::now() + wait;
        }
    }
}

fn interval(all: &[Service], uri: &str) -> Option<Duration> {
    find(all, uri)?.1.endpoint.poll
}

/// Address, service, and a hash of what is there now, or why it is not known.
async fn look(all: &[Service], uri: String) -> (String, String, Result<u64, String>) {
    let Some((service, asked, values)) = find(all, &uri) else {
        return (uri, String::new(), Err("it is not offered".to_owned()));
    };
    let outcome = match asked.url(&values) {
        Ok(url) => {
            let kind = asked.endpoint.media_type.as_deref();
            let read = service.fetch.get(&url, kind, None).await;
            fetch::hash(&read).ok_or_else(|| {
                let why = read.err().map(|it| with_causes(&it));
                why.unwrap_or_default()
            })
        }
        Err(why) => Err(why),
    };
    (uri, service.name.clone(), outcome)
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let mut told = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        told += &format!(": {error}");
        cause = error.source();
    }
    redaction::without_known(&told).into_owned()
}
