//! Answers of a service that are kept, within bounds (RFC 9111, as far as a client of its own needs it).

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use adapter_skills::Content;
use http::{HeaderMap, HeaderValue, header};

/// The most answers that are kept for one service.
const MAX_ENTRIES: usize = 1_000;

/// Answer of a service.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) content: Arc<Content>,
    pub(crate) media_type: Arc<str>,
    /// Time until which nothing else is there, as the service says.
    pub(crate) fresh_until: Instant,
}

/// An answer with what it can be compared by.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) answer: Answer,
    pub(crate) etag: Option<HeaderValue>,
    pub(crate) last_modified: Option<HeaderValue>,
}

/// Answers by URL, of which those that were not asked for longest go first.
#[derive(Debug)]
pub(crate) struct Cache {
    max_bytes: usize,
    entries: Mutex<Entries>,
}

#[derive(Debug, Default)]
struct Entries {
    by_url: HashMap<String, (Kept, u64)>,
    bytes: usize,
    uses: u64,
}

impl Entries {
    fn remove(&mut self, url: &str) {
        if let Some((kept, _)) = self.by_url.remove(url) {
            self.bytes -= cost(url, &kept);
        }
    }
}

fn cost(url: &str, kept: &Kept) -> usize {
    const OVERHEAD: usize = 512;
    url.len() + kept.answer.content.bytes.len() + OVERHEAD
}

impl Cache {
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            entries: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, url: &str) -> Option<Kept> {
        let mut entries = self.lock();
        entries.uses += 1;
        let now = entries.uses;
        let (kept, used) = entries.by_url.get_mut(url)?;
        *used = now;
        Some(kept.clone())
    }

    pub(crate) fn put(&self, url: &str, kept: Kept) {
        let mut entries = self.lock();
        entries.remove(url);
        let cost = cost(url, &kept);
        if self.max_bytes < cost {
            return;
        }
        while self.max_bytes - cost < entries.bytes || MAX_ENTRIES <= entries.by_url.len() {
            let oldest = entries.by_url.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(url, _)| url.clone()) else {
                break;
            };
            entries.remove(&oldest);
        }
        entries.uses += 1;
        entries.bytes += cost;
        let now = entries.uses;
        entries.by_url.insert(url.to_owned(), (kept, now));
    }

    pub(crate) fn remove(&self, url: &str) {
        self.lock().remove(url);
    }
}

/// Permission of a service to keep an answer: for how long it is fresh; `None` if it must not be kept.
pub(crate) fn freshness(headers: &HeaderMap, most: Duration) -> Option<Duration> {
    let varies = headers.get_all(header::VARY).iter();
    if varies.into_iter().any(|it| it.as_bytes().contains(&b'*')) {
        return None;
    }
    let mut age = Duration::ZERO;
    for value in headers.get_all(header::CACHE_CONTROL) {
        // A header that is no text forbids what it may forbid.
        let value = value.to_str().ok()?.to_ascii_lowercase();
        for directive in value.split(',') {
            let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
            match name.trim() {
                "no-store" => return None,
                "no-cache" => return Some(Duration::ZERO),
                "max-age" => {
                    let seconds = value.trim().trim_matches('"').parse().unwrap_or(0);
                    age = Duration::from_secs(seconds);
                }
                _ => {}
            }
        }
    }
    let passed = headers.get(header::AGE).and_then(|it| it.to_str().ok());
    let passed = passed.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
    Some(age.saturating_sub(Duration::from_secs(passed)).min(most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(bytes: usize) -> Kept {
        Kept {
            answer: Answer {
                content: Arc::new(Content::new(vec![b'a'; bytes], None)),
                media_type: "text/plain".into(),
                fresh_until: Instant::now(),
            },
            etag: None,
            last_modified: None,
        }
    }

    #[test]
    fn no_more_is_kept_than_there_is_room_for() {
        let cache = Cache::new(10_000);
        for number in 0..20 {
            cache.put(&format!("u{number}"), kept(1_000));
            assert!(cache.get("u0").is_some() || 6 < number);
            let entries = cache.lock();
            assert!(entries.bytes <= 10_000);
            let sum: usize = entries
                .by_url
                .iter()
                .map(|(url, (kept, _))| cost(url, kept))
                .sum();
            assert_eq!(sum, entries.bytes);
        }
        // The one that was asked for all the time is still there.
        assert!(cache.get("u0").is_some() && cache.get("u1").is_none());
        cache.put("u0", kept(20_000));
        assert!(cache.get("u0").is_none());
        let cache = Cache::new(usize::MAX);
        for number in 0..2 * MAX_ENTRIES {
            cache.put(&format!("u{number}"), kept(0));
        }
        assert_eq!(cache.lock().by_url.len(), MAX_ENTRIES);
    }

    #[test]
    fn services_say_for_how_long_an_answer_may_be_kept() {
        let most = Duration::from_secs(60);
        for (headers, expected) in [
            (&[][..], Some(0)),
            (&[("cache-control", "max-age=30")], Some(30)),
            (&[("cache-control", "private, Max-Age=\"30\"")], Some(30)),
            (&[("cache-control", "max-age=30"), ("age", "20")], Some(10)),
            (&[("cache-control", "max-age=30"), ("age", "40")], Some(0)),
            (
                &[("cache-control", "max-age=99999999999999999999")],
                Some(0),
            ),
            (&[("cache-control", "max-age=86400")], Some(60)),
            (&[("cache-control", "max-age=30, no-cache")], Some(0)),
            (&[("cache-control", "no-store, max-age=30")], None),
            (&[("cache-control", "max-age=30"), ("vary", "*")], None),
            (
                &[("cache-control", "max-age=30"), ("vary", "accept")],
                Some(30),
            ),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.insert(*name, HeaderValue::from_static(value));
            }
            let found = freshness(&map, most).map(|it| it.as_secs());
            assert_eq!(found, expected, "{headers:?}");
        }
    }
}
