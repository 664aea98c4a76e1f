//! Subscriptions to resources of an upstream: one of the gateway's for all clients that listen.

use crate::{
    UpstreamSpec, Uris,
    catalogue::Catalogue,
    names::scheme_key,
    upstream::{Upstream, offered_as, slot::Live},
};
use futures_util::future::select_all;
use mcp_client::{Error, Subscription};
use mcp_protocol::{Era, model::SubscriptionFilter};
use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{broadcast, watch},
    time::{sleep, timeout},
};

/// Most resources of one upstream that are subscribed to at once.
const MAX_WATCHED: usize = 1000;
/// Time that an upstream has for taking a subscription.
const PATIENCE: Duration = Duration::from_secs(15);
/// Time for which a subscription is kept after a client was told that it has it: until the client is counted.
const LINGER: Duration = Duration::from_secs(2);
/// Pause after an end that was not asked for, and between two looks at whether the connection is open.
const PAUSE: Duration = Duration::from_secs(1);

/// Subscriptions of one upstream, by its own URIs.
#[derive(Debug)]
pub(crate) struct Watched {
    scheme_key: String,
    uris: Uris,
    state: Mutex<State>,
    /// Told when what is wanted, or what has come of it, is something else.
    changed: watch::Sender<u64>,
    /// Offered URIs of resources that have changed.
    updates: broadcast::Sender<String>,
    is_kept: AtomicBool,
    /// True once another configuration is in force, under which it may not be told of any more.
    is_silent: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// Resources that clients listen to.
    listened: BTreeSet<String>,
    /// Resources that clients ask to listen to, with the number of those.
    asked: BTreeMap<String, usize>,
    /// Resources of these that were not subscribed to for a while, whose changes may have been missed.
    resumed: BTreeSet<String>,
    /// Answers of the upstream, to the subscriptions of the connection that is open.
    answered: BTreeMap<String, Result<(), String>>,
}

impl State {
    fn wanted(&self) -> BTreeSet<String> {
        self.listened
            .iter()
            .chain(self.asked.keys())
            .cloned()
            .collect()
    }

    fn is_wanted(&self, uri: &str) -> bool {
        self.listened.contains(uri) || self.asked.contains_key(uri)
    }
}

/// A resource that a client asks to listen to; given up when it is dropped.
struct Ask {
    upstream: Arc<Upstream>,
    uri: String,
}

impl Drop for Ask {
    fn drop(&mut self) {
        let watched = &self.upstream.watched;
        watched.change(|state| {
            if let Some(count) = state.asked.get_mut(&self.uri) {
                *count -= 1;
                if *count == 0 {
                    state.asked.remove(&self.uri);
                }
            }
        });
    }
}

impl Watched {
    pub(crate) fn new(spec: &UpstreamSpec, updates: broadcast::Sender<String>) -> Self {
        Self {
            scheme_key: scheme_key(&spec.name),
            uris: spec.uris,
            state: Mutex::default(),
            changed: watch::Sender::new(0),
            updates,
            is_kept: AtomicBool::new(false),
            is_silent: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.send_modify(|version| *version += 1);
        changed
    }

    /// True if a client listens, so that the connection must stay open.
    pub(crate) fn is_wanted(&self) -> bool {
        let state = self.state();
        !(state.listened.is_empty() && state.asked.is_empty())
    }

    /// Subscriptions that clients have been granted and the upstream refuses since.
    pub(crate) fn problem(&self) -> Option<String> {
        let state = self.state();
        state.listened.iter().find_map(|uri| {
            let why = state.answered.get(uri)?.as_ref().err()?;
            Some(format!("the subscription to {uri} is not taken: {why}"))
        })
    }

    /// Takes note that the upstream has told of a change. What has changed may be a part of what was
    /// subscribed to.
    pub(crate) fn updated(&self, uri: &str) {
        let state = self.state();
        let is_part = |whole: &&String| {
            uri.strip_prefix(whole.as_str())
                .is_some_and(|rest| whole.ends_with('/') || rest.starts_with(['/', '#', '?']))
        };
        let told: Vec<_> = match state.is_wanted(uri) {
            true => vec![uri.to_owned()],
            false => state.wanted().iter().filter(is_part).cloned().collect(),
        };
        drop(state);
        for uri in told {
            self.tell(&uri);
        }
    }

    /// Tells of no change from now on.
    pub(crate) fn silence(&self) {
        self.is_silent.store(true, Ordering::Relaxed);
    }

    fn tell(&self, uri: &str) {
        if self.is_silent.load(Ordering::Relaxed) {
            return;
        }
        // An error says that nobody follows the updates.
        let _ = self
            .updates
            .send(offered_as(self.uris, &self.scheme_key, uri));
    }
}

impl Upstream {
    /// True if a resource is listed, or a client has asked to listen to it.
    pub(crate) fn has_listened_to(&self, uri: &str) -> bool {
        let is_listed = |known: Arc<Catalogue>| known.resources.iter().any(|it| it.uri == uri);
        self.watched.state().is_wanted(uri) || self.catalogue().is_some_and(is_listed)
    }

    /// Reason why none of its resources is subscribed to, for clients.
    pub(crate) fn unheard(&self) -> Option<&'static str> {
        match () {
            () if self.is_closed() => Some("its upstream is configured differently now"),
            () if !self.spec.enabled => Some("its upstream is switched off"),
            () if self.spec.held_by().is_some() => {
                Some("its upstream is held back by its operator")
            }
            () => None,
        }
    }

    /// Makes these the resources that clients listen to.
    pub(crate) fn listen_to(self: &Arc<Self>, uris: BTreeSet<String>) {
        if self.watched.state().listened == uris {
            return;
        }
        let is_empty = uris.is_empty();
        self.watched.change(|state| {
            // A client that begins to listen has asked a moment before.
            let resumed = uris.iter().filter(|it| !state.is_wanted(it));
            let resumed: Vec<_> = resumed.cloned().collect();
            state.resumed.extend(resumed);
            state.resumed.retain(|it| uris.contains(it));
            state.listened = uris;
        });
        if !is_empty {
            self.keep_watching();
        }
    }

    /// Subscribes to a resource, if that was not done yet, and waits for the upstream's answer.
    pub(crate) async fn hear(self: &Arc<Self>, uri: &str) -> Result<(), String> {
        if let Some(why) = self.unheard() {
            return Err(why.to_owned());
        }
        let mut changed = self.watched.changed.subscribe();
        let has_room = self.watched.change(|state| {
            if !state.is_wanted(uri) && MAX_WATCHED <= state.listened.len() + state.asked.len() {
                return false;
            }
            *state.asked.entry(uri.to_owned()).or_default() += 1;
            // An upstream that has refused may take it now.
            if state.answered.get(uri).is_some_and(Result::is_err) {
                state.answered.remove(uri);
            }
            true
        });
        if !has_room {
            return Err(format!(
                "{MAX_WATCHED} resources of upstream `{}` are subscribed to already",
                self.spec.name
            ));
        }
        let ask = Ask {
            upstream: Arc::clone(self),
            uri: uri.to_owned(),
        };
        self.keep_watching();
        let answered = async {
            loop {
                let _ = changed.borrow_and_update();
                let answer = self.watched.state().answered.get(uri).cloned();
                match answer {
                    Some(answer) => return answer,
                    None => drop(changed.changed().await),
                }
            }
        };
        let answer = timeout(PATIENCE, answered).await;
        let refused = |why| format!("upstream `{}` does not take it: {why}", self.spec.name);
        answer
            .unwrap_or_else(|_| Err("it does not answer".to_owned()))
            .map_err(refused)?;
        self.runtime.spawn(async move {
            sleep(LINGER).await;
            drop(ask);
        });
        Ok(())
    }

    fn keep_watching(self: &Arc<Self>) {
        if !self.watched.is_kept.swap(true, Ordering::Relaxed) {
            let changed = self.watched.changed.subscribe();
            let watched = Arc::clone(&self.watched);
            let upstream = Arc::downgrade(self);
            self.runtime.spawn(keep(upstream, watched, changed));
        }
    }
}

/// Keeps the subscriptions of an upstream, connecting it again when its connection has ended.
async fn keep(upstream: Weak<Upstream>, watched: Arc<Watched>, mut changed: watch::Receiver<u64>) {
    // True if clients listen to what no connection tells of at present.
    let mut was_lost = false;
    loop {
        let _ = changed.borrow_and_update();
        if !watched.is_wanted() {
            was_lost = false;
            tokio::select! {
                _ = changed.changed() => {}
                () = sleep(PAUSE) => if upstream.strong_count() == 0 {
                    return;
                }
            }
            continue;
        }
        let Some(upstream) = upstream.upgrade() else {
            return;
        };
        let pause = match upstream.connect().await {
            Ok(live) => {
                watched.change(|state| state.answered.clear());
                Kept::on(&watched, &live).run(&mut changed, was_lost).await;
                watched.change(|state| state.answered.clear());
                PAUSE
            }
            Err(down) => {
                watched.change(|state| {
                    for uri in state.wanted() {
                        state.answered.insert(uri, Err(down.reason.clone()));
                    }
                });
                down.retry_after.unwrap_or(10 * PAUSE).max(PAUSE)
            }
        };
        was_lost |= !watched.state().listened.is_empty();
        if upstream.is_closed() {
            return;
        }
        drop(upstream);
        let _ = changed.borrow_and_update();
        tokio::select! {
            () = sleep(pause) => {}
            // Somebody asks, and is to be answered.
            _ = changed.changed() => {}
        }
    }
}

/// Subscriptions on one connection.
struct Kept<'a> {
    watched: &'a Watched,
    live: &'a Live,
    /// Of a legacy upstream, one for each resource; of a modern one, one for all.
    open: Vec<(BTreeSet<String>, Subscription)>,
}

impl<'a> Kept<'a> {
    fn on(watched: &'a Watched, live: &'a Live) -> Self {
        Self {
            watched,
            live,
            open: Vec::new(),
        }
    }

    /// Follows what is wanted until the connection ends. If changes may have been missed, all resources are told
    /// of as changed once they are subscribed to.
    async fn run(mut self, changed: &mut watch::Receiver<u64>, mut was_lost: bool) {
        while self.live.is_open() {
            let _ = changed.borrow_and_update();
            let wanted = self.watched.state().wanted();
            if wanted.is_empty() {
                return;
            }
            let subscribed = match self.live.connection.agreed().version.era() {
                Era::Legacy => self.one_by_one(&wanted).await,
                Era::Modern => self.all_at_once(&wanted).await,
            };
            if let Err(error) = subscribed {
                tracing::debug!(%error, "subscriptions to an upstream's resources have ended");
                return;
            }
            let resumed = self.resumed();
            let missed = match std::mem::take(&mut was_lost) {
                true => &wanted,
                false => &resumed,
            };
            for uri in missed {
                self.watched.tell(uri);
            }
            let ended = tokio::select! {
                _ = changed.changed() => None,
                ended = ended(&mut self.open) => Some(ended),
                () = sleep(PAUSE) => None,
            };
            if let Some(at) = ended {
                let (uris, _) = self.open.swap_remove(at);
                self.watched.change(|state| {
                    state.answered.retain(|uri, _| !uris.contains(uri));
                });
                was_lost = true;
                sleep(PAUSE).await;
            }
        }
    }

    /// Takes what is subscribed to again.
    fn resumed(&self) -> BTreeSet<String> {
        let mut state = self.watched.state();
        let resumed = std::mem::take(&mut state.resumed);
        let is_taken = |uri: &String| state.answered.get(uri).is_some_and(Result::is_ok);
        let (taken, waiting) = resumed.into_iter().partition(is_taken);
        state.resumed = waiting;
        taken
    }

    fn answer(&self, uri: &str, answer: Result<(), String>) {
        if let Err(why) = &answer {
            tracing::warn!(uri, why, "an upstream does not take a subscription");
        }
        self.watched
            .change(|state| state.answered.insert(uri.to_owned(), answer));
    }

    async fn one_by_one(&mut self, wanted: &BTreeSet<String>) -> Result<(), Error> {
        let gone = |(uris, _): &mut (BTreeSet<String>, _)| uris.is_disjoint(wanted);
        let gone: Vec<_> = self.open.extract_if(.., gone).collect();
        for uri in gone.iter().flat_map(|(uris, _)| uris) {
            self.watched.state().answered.remove(uri);
        }
        drop(gone);
        for uri in wanted {
            if self.watched.state().answered.contains_key(uri) {
                continue;
            }
            let filter = SubscriptionFilter {
                resource_subscriptions: vec![uri.clone()],
                ..SubscriptionFilter::default()
            };
            match self.live.connection.listen(filter).await {
                Ok(subscription) => {
                    self.open
                        .push((BTreeSet::from([uri.clone()]), subscription));
                    self.answer(uri, Ok(()));
                }
                Err(Error::Server { error, .. }) => {
                    self.answer(uri, Err(error.message.into_owned()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Resources of `wanted` that the upstream has not refused, and true if it has answered for all.
    fn takeable(&self, wanted: &BTreeSet<String>) -> (BTreeSet<String>, bool) {
        let state = self.watched.state();
        let is_answered = wanted.iter().all(|it| state.answered.contains_key(it));
        let is_needed = |it: &&String| state.answered.get(*it).is_none_or(Result::is_ok);
        (
            wanted.iter().filter(is_needed).cloned().collect(),
            is_answered,
        )
    }

    async fn all_at_once(&mut self, wanted: &BTreeSet<String>) -> Result<(), Error> {
        let (uris, is_answered) = self.takeable(wanted);
        let open = self.open.first().map(|(uris, _)| uris);
        if is_answered && open.is_none_or(|open| *open == uris) {
            return Ok(());
        }
        if uris.is_empty() {
            self.open.clear();
            return Ok(());
        }
        let filter = SubscriptionFilter {
            resource_subscriptions: uris.iter().cloned().collect(),
            ..SubscriptionFilter::default()
        };
        // The old one ends when the new one is there, so that no change is missed.
        let subscription = match self.live.connection.listen(filter).await {
            Ok(subscription) => subscription,
            Err(Error::Server { error, .. }) => {
                // The old one goes on: what is new is refused.
                let open = self.open.first().map(|(uris, _)| uris.clone());
                for uri in uris.difference(&open.unwrap_or_default()) {
                    self.answer(uri, Err(error.message.to_string()));
                }
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let accepted = &subscription.accepted().resource_subscriptions;
        // What was not asked for is none of what is watched.
        let accepted = accepted.iter().filter(|it| uris.contains(*it)).cloned();
        let accepted: BTreeSet<_> = accepted.collect();
        for uri in &uris {
            self.answer(
                uri,
                match accepted.contains(uri) {
                    true => Ok(()),
                    false => Err("it does not acknowledge it".to_owned()),
                },
            );
        }
        self.watched
            .change(|state| state.answered.retain(|uri, _| wanted.contains(uri)));
        self.open = vec![(accepted, subscription)];
        Ok(())
    }
}

/// Waits until one of them has ended. What they tell of is heard where all messages of the upstream are.
async fn ended(open: &mut [(BTreeSet<String>, Subscription)]) -> usize {
    if open.is_empty() {
        return pending().await;
    }
    let ends = open.iter_mut().map(|(_, subscription)| {
        Box::pin(async { while let Ok(Some(_)) = subscription.next().await {} })
    });
    select_all(ends).await.1
}
