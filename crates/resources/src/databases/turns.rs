//! Turns of the addresses that somebody listens to: which of them is read next to be compared, and when.
//!
//! A read of a database may lock out its writers, and holds up the reads after it. So each is short, is followed by a
//! pause many times as long, and what takes long waits for what does not.

use std::{
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    databases::{
        address::{Place, parse},
        database::hash,
        sqlite::QueryError,
    },
    news::{MAX_COMPARED, News},
};

/// The longest read for a comparison. What takes longer cannot be listened to.
pub(crate) const LONGEST: Duration = Duration::from_secs(1);

/// The longest read for which others wait: what takes longer waits for what does not.
const QUICK: Duration = Duration::from_millis(100);
/// Length of the pause after a quick read, in lengths of the read.
const AFTER_QUICK: u32 = 10;
/// Pauses that may be put off, so that much that is quick is read at once.
const PUT_OFF: Duration = Duration::from_secs(1);
/// Length of the pause after any other read, which those put off that take less than the longest.
const AFTER_SLOW: u32 = 20;
/// The longest pause after reads that took too long.
const AFTER_TOO_LONG: Duration = Duration::from_secs(600);

/// An address that somebody listens to.
struct Known {
    place: Place,
    /// A hash of what was last seen there.
    seen: Option<u64>,
    /// False once there may be something else.
    is_current: bool,
    /// The time that the last read took.
    took: Duration,
    /// Time from which on it may be read again.
    due: Instant,
    /// Reads, one after another, that took too long.
    too_long: u32,
}

/// Turns of the addresses of one database.
pub(crate) struct Turns {
    database: String,
    news: Arc<News>,
    listened: Arc<BTreeSet<String>>,
    known: HashMap<String, Known>,
    /// Ends of the pauses after what was quick, and after what was not.
    quick_from: Instant,
    slow_from: Instant,
}

impl Turns {
    pub(crate) fn new(database: &str, news: Arc<News>) -> Self {
        let now = Instant::now();
        Self {
            database: database.to_owned(),
            news,
            listened: Arc::default(),
            known: HashMap::new(),
            quick_from: now,
            slow_from: now,
        }
    }

    /// Takes the addresses that somebody listens to now. All are read again if something `has_changed`.
    pub(crate) fn follow(&mut self, has_changed: bool) {
        if has_changed {
            self.known.values_mut().for_each(|it| it.is_current = false);
        }
        let listened = self.news.listened();
        if Arc::ptr_eq(&listened, &self.listened) {
            return;
        }
        self.known.retain(|it, _| listened.contains(it));
        let now = Instant::now();
        for (uri, place) in own(&self.database, &listened) {
            if self.known.contains_key(uri) || MAX_COMPARED <= self.known.len() {
                continue;
            }
            // What was there when somebody began to listen, or else what is there now.
            let (seen, took) = self.news.take_heard(uri).unzip();
            let known = Known {
                place,
                seen,
                is_current: false,
                took: took.unwrap_or(LONGEST),
                due: now,
                too_long: 0,
            };
            self.known.insert(uri.clone(), known);
        }
        self.listened = listened;
    }

    /// True if somebody listens to anything.
    pub(crate) fn is_any(&self) -> bool {
        !self.known.is_empty()
    }

    fn waiting(&self) -> impl Iterator<Item = (&String, &Known)> {
        self.known.iter().filter(|(_, it)| !it.is_current)
    }

    /// The time from which on an address may be read.
    fn from(&self, it: &Known) -> Instant {
        let (from, put_off) = match it.took <= QUICK {
            true => (self.quick_from, PUT_OFF),
            false => (self.slow_from, LONGEST.saturating_sub(it.took) * AFTER_SLOW),
        };
        it.due.max(from.checked_sub(put_off).unwrap_or(it.due))
    }

    /// The next address to be read, if there is one now, and its place.
    pub(crate) fn next(&self, now: Instant) -> Option<(String, Place)> {
        let ready = self.waiting().filter(|(_, it)| self.from(it) <= now);
        // Among those that are quick each has its turn, and among the others those first that take less.
        let first = ready.max_by_key(|(_, it)| match it.took <= QUICK {
            true => (true, Reverse(it.due)),
            false => (false, Reverse(it.due + it.took * AFTER_SLOW)),
        });
        first.map(|(uri, it)| (uri.clone(), it.place.clone()))
    }

    /// The time until there is such an address.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        let from = self.waiting().map(|(_, it)| self.from(it)).min();
        from.map_or(Duration::MAX, |it| it.saturating_duration_since(now))
    }

    /// Takes what was read at an address, which began at `began`: what is something else than before is told.
    pub(crate) fn take(&mut self, uri: &str, began: Instant, read: &Result<String, QueryError>) {
        let now = Instant::now();
        let took = now.saturating_duration_since(began);
        let (from, pause) = match took <= QUICK {
            true => (&mut self.quick_from, took * AFTER_QUICK),
            false => (&mut self.slow_from, took * AFTER_SLOW),
        };
        *from = (*from).max(now) + pause;
        let Some(known) = self.known.get_mut(uri) else {
            return;
        };
        known.took = took;
        known.due = now + pause;
        let Some(seen) = hash(read) else {
            // It is looked at again; what takes too long, more and more rarely.
            known.due = now + pause.max(LONGEST);
            if matches!(read, Err(QueryError::TooLong(_))) {
                known.too_long += 1;
                let pause = pause.max(LONGEST) * 2_u32.saturating_pow(known.too_long.min(10));
                known.due = now + pause.min(AFTER_TOO_LONG);
                if known.too_long == 1 {
                    tracing::warn!(
                        resource = known.place.governed_by(&self.database),
                        "reading it takes longer than {LONGEST:?}, so that it is looked at more and more rarely, \
                         and those who listen to it are told late"
                    );
                }
            }
            return;
        };
        known.is_current = true;
        known.too_long = 0;
        if known.seen.replace(seen).is_some_and(|it| it != seen) {
            self.news.tell([uri.to_owned()]);
        }
    }

    /// Word of what is told late.
    pub(crate) fn told_late(&self) -> Option<String> {
        let late = self.known.values().filter(|it| 0 < it.too_long).count();
        (0 < late).then(|| {
            let name = &self.database;
            format!(
                "what is read for subscribers of `{name}` is told late where reading takes longer than {LONGEST:?}, at \
                 present in {late} places: the log names them"
            )
        })
    }
}

/// Addresses of a database among those that somebody listens to.
pub(crate) fn own<'l>(
    database: &str,
    listened: &'l BTreeSet<String>,
) -> impl Iterator<Item = (&'l String, Place)> {
    listened.iter().filter_map(move |uri| {
        let (name, place) = parse(uri)?;
        (name == database).then_some((uri, place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(uris: &[&str]) -> (Arc<News>, Turns) {
        let news = Arc::new(News::new("db://"));
        let uris: Vec<_> = uris.iter().map(|&it| it.to_owned()).collect();
        news.listen_to(&uris);
        let mut turns = Turns::new("a", Arc::clone(&news));
        turns.follow(false);
        (news, turns)
    }

    fn ago(length: Duration) -> Instant {
        Instant::now().checked_sub(length).unwrap()
    }

    #[test]
    fn what_is_slow_waits_for_what_is_not_and_is_read_for_a_small_part_of_the_time() {
        let (slow, quick) = ("db://a/queries/slow", "db://a/tables/quick");
        let (_, mut turns) = listening(&[slow, quick, "db://other/tables/x"]);
        let next = |turns: &Turns, now| turns.next(now).map(|(uri, _)| uri);
        for (uri, took) in [(quick, 1), (slow, 500)] {
            turns.take(uri, ago(Duration::from_millis(took)), &Ok(String::new()));
        }
        let read = Instant::now();
        assert_eq!(turns.wait(read), Duration::MAX, "nothing has changed");
        turns.follow(true);
        let soon = read + Duration::from_millis(100);
        assert_eq!(next(&turns, soon).as_deref(), Some(quick));
        turns.take(quick, ago(Duration::from_millis(1)), &Ok(String::new()));
        assert_eq!(next(&turns, soon), None);
        let pause = turns.wait(soon);
        assert!(Duration::from_secs(9) < pause, "{pause:?}");
        assert_eq!(next(&turns, soon + pause).as_deref(), Some(slow));
    }

    #[test]
    fn what_takes_too_long_is_read_more_and_more_rarely_and_told() {
        let uri = "db://a/queries/slow";
        let (_, mut turns) = listening(&[uri]);
        let mut before = Duration::ZERO;
        for _ in 0..3 {
            let too_long = Err(QueryError::TooLong(LONGEST));
            turns.take(uri, ago(LONGEST), &too_long);
            let pause = turns.known[uri]
                .due
                .saturating_duration_since(Instant::now());
            assert!(before + LONGEST < pause, "{before:?} {pause:?}");
            before = pause;
        }
        assert!(turns.told_late().unwrap().contains("of `a`"));
        turns.take(uri, ago(Duration::from_millis(1)), &Ok(String::new()));
        assert_eq!(turns.told_late(), None);
    }

    #[test]
    fn what_was_there_when_somebody_began_to_listen_is_compared() {
        let uri = "db://a/tables/x";
        let news = Arc::new(News::new("db://"));
        let before = hash(&Ok("before".to_owned())).unwrap();
        news.hear(uri, before, Duration::ZERO);
        news.listen_to([&uri.to_owned()]);
        let mut turns = Turns::new("a", Arc::clone(&news));
        turns.follow(false);
        turns.take(uri, Instant::now(), &Ok("after".to_owned()));
        let told = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        assert_eq!(told.block_on(news.changed()), [uri.to_owned()].into());
    }
}
