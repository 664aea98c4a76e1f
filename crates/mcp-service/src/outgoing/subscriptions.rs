//! Publication of changes to their subscribers.

use crate::{outgoing::outbox::Outbox, principal::Principal};
use jsonrpc_core::{Frame, Id, Message};
use mcp_protocol::{
    ProtocolVersion, encode_notification,
    model::{ServerNotification, SubscriptionFilter, Task},
};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::sync::watch;

/// Change that clients may subscribe to.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// The list of tools is another one.
    Tools,
    /// The list of prompts is another one.
    Prompts,
    /// The list of resources is another one.
    Resources,
    /// The resource at this URI has changed.
    Resource(String),
    /// A task has changed, for the given time.
    Task(u64, Task),
}

/// Bounds on subscriptions.
#[derive(Clone, Copy, Debug)]
pub struct SubscriptionLimits {
    /// The most subscriptions there can be.
    pub max_total: usize,
    /// The most one principal can have.
    pub max_per_principal: usize,
    /// The most single resources one subscription can name, and the most tasks.
    pub max_resources: usize,
}

impl Default for SubscriptionLimits {
    fn default() -> Self {
        Self {
            max_total: 20_000,
            max_per_principal: 10_000,
            max_resources: 1_000,
        }
    }
}

/// Kinds of names of which one subscription can hold a bounded number.
const RESOURCES: &str = "resources can be subscribed to at once";
const TASKS: &str = "tasks can be subscribed to at once";

/// A bound on subscriptions is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many subscriptions; at most {max} {what}")]
pub struct TooManySubscriptions {
    max: usize,
    what: &'static str,
}

/// Reads the one name of the resource at a URI, however that is spelled.
type Naming = Box<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Place of the callback that names resources.
#[derive(Default)]
struct Names(OnceLock<Naming>);

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Names").finish_non_exhaustive()
    }
}

/// Subscribers to changes: one list, so that an open stream costs an entry and no task.
#[derive(Debug, Default)]
pub struct Subscriptions {
    limits: SubscriptionLimits,
    next: AtomicU64,
    state: Mutex<State>,
    /// Told when a resource is the first time or no more listened to, and when others may hear of one.
    listened: watch::Sender<()>,
    names: Names,
}

#[derive(Debug, Default)]
struct State {
    subscribers: HashMap<u64, Subscriber>,
    per_principal: HashMap<Principal, usize>,
    /// Resources that are subscribed to, by their URIs as clients spell them.
    per_resource: HashMap<String, Listened>,
    /// Names of resources that are spelled otherwise, each with the spelling.
    spellings: BTreeSet<(String, String)>,
}

/// A resource that is subscribed to.
#[derive(Debug)]
struct Listened {
    count: usize,
    /// Canonical spelling of the URI, if it differs.
    name: Option<String>,
}

#[derive(Debug)]
struct Subscriber {
    principal: Principal,
    filter: SubscriptionFilter,
    version: ProtocolVersion,
    /// The listen request; legacy notifications belong to none.
    request: Option<Id>,
    outbox: Outbox,
    /// Number of the last change sent of each task: two at once may come in any order.
    told: HashMap<String, u64>,
    /// False while the server has not said yet of which resources it tells.
    is_agreed: bool,
}

impl State {
    /// Counts resources that are listened to, or are no more; true if any is so for the first or the last time.
    fn count(&mut self, names: &Names, resources: &[String], is_listened: bool) -> bool {
        let mut is_news = false;
        for uri in resources {
            match (self.per_resource.get_mut(uri), is_listened) {
                (Some(listened), true) => listened.count += 1,
                (None, true) => {
                    let name = names.0.get().and_then(|name| name(uri));
                    let name = name.filter(|it| it != uri);
                    let spelling = name.clone().map(|name| (name, uri.clone()));
                    self.spellings.extend(spelling);
                    let listened = Listened { count: 1, name };
                    self.per_resource.insert(uri.clone(), listened);
                    is_news = true;
                }
                (Some(listened), false) if 1 < listened.count => listened.count -= 1,
                (Some(_), false) => {
                    let gone = self.per_resource.remove(uri);
                    if let Some(name) = gone.and_then(|it| it.name) {
                        self.spellings.remove(&(name, uri.clone()));
                    }
                    is_news = true;
                }
                (None, false) => {}
            }
        }
        is_news
    }

    /// The same change under each spelling that clients have subscribed to.
    fn spelled(&self, change: &Change) -> Vec<Change> {
        let Change::Resource(uri) = change else {
            return Vec::new();
        };
        let first = (uri.clone(), String::new());
        let spellings = self.spellings.range(first..);
        let spellings = spellings.take_while(|(name, _)| name == uri);
        spellings
            .map(|(_, spelling)| Change::Resource(spelling.clone()))
            .collect()
    }
}

impl Subscriptions {
    /// An empty list with these bounds.
    pub fn new(limits: SubscriptionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            ..Self::default()
        })
    }

    /// Number of subscriptions.
    pub fn len(&self) -> usize {
        self.lock().subscribers.len()
    }

    /// Returns true if there are no subscriptions.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Has resources known by the name that `name` reads of their URIs, so that a client that has spelled one otherwise
    /// hears of it, too, under the URI that it has subscribed to. Only the first callback is kept; what it does must not
    /// lead here.
    pub fn name_resources(&self, name: impl Fn(&str) -> Option<String> + Send + Sync + 'static) {
        // An error means that there is one already.
        let _ = self.names.0.set(Box::new(name));
    }

    /// Names of the resources that anybody listens to.
    pub fn resources(&self) -> BTreeSet<String> {
        let state = self.lock();
        let listened = state.per_resource.iter();
        listened
            .map(|(uri, it)| it.name.as_ref().unwrap_or(uri).clone())
            .collect()
    }

    /// Names of the resources that anybody listens to for whom `may_hear` returns true, given who it is and the name.
    pub fn resources_for(&self, may_hear: impl Fn(&Principal, &str) -> bool) -> BTreeSet<String> {
        let state = self.lock();
        let mut heard = HashSet::new();
        for subscriber in state.subscribers.values().filter(|it| it.is_agreed) {
            for uri in &subscriber.filter.resource_subscriptions {
                let listened = state.per_resource.get(uri);
                let name = listened.and_then(|it| it.name.as_ref()).unwrap_or(uri);
                if !heard.contains(name) && may_hear(&subscriber.principal, name) {
                    heard.insert(name);
                }
            }
        }
        heard.into_iter().cloned().collect()
    }

    /// Has those who follow [`resources_changed`](Self::resources_changed) look again, since others may hear of resources
    /// than before.
    pub fn look_again(&self) {
        self.listened.send_replace(());
    }

    /// Told when [`resources`](Self::resources) or [`resources_for`](Self::resources_for) may have become something else.
    pub fn resources_changed(&self) -> watch::Receiver<()> {
        self.listened.subscribe()
    }

    fn counted(&self, is_news: bool) {
        if is_news {
            self.look_again();
        }
    }

    /// Announces a change to every subscriber that asked for it and for whose principal `may_know`
    /// returns true.
    pub fn publish(&self, change: &Change, may_know: impl Fn(&Principal) -> bool) {
        let mut state = self.lock();
        let spelled = state.spelled(change);
        for change in std::iter::once(change).chain(&spelled) {
            for subscriber in state.subscribers.values_mut() {
                if subscriber.wants(change) && may_know(&subscriber.principal) {
                    subscriber.tell(change);
                }
            }
        }
    }

    /// Tasks that anybody follows.
    pub fn tasks(&self) -> BTreeSet<String> {
        let state = self.lock();
        let followed = state.subscribers.values();
        followed
            .flat_map(|it| it.filter.task_ids.iter().cloned())
            .collect()
    }

    /// Returns true if anybody follows a task.
    pub fn is_task_followed(&self, id: &str) -> bool {
        let state = self.lock();
        let mut followed = state
            .subscribers
            .values()
            .flat_map(|it| &it.filter.task_ids);
        followed.any(|it| it == id)
    }

    /// Adds a subscriber until the returned guard is dropped.
    pub(crate) fn add(
        self: &Arc<Self>,
        principal: Principal,
        filter: SubscriptionFilter,
        version: ProtocolVersion,
        request: Option<Id>,
        outbox: Outbox,
    ) -> Result<Subscription, TooManySubscriptions> {
        self.check(RESOURCES, filter.resource_subscriptions.len())?;
        self.check(TASKS, filter.task_ids.len())?;
        let mut state = self.lock();
        let too_many = |max, what| Err(TooManySubscriptions { max, what });
        if self.limits.max_total <= state.subscribers.len() {
            return too_many(self.limits.max_total, "are served at once");
        }
        let of_principal = state.per_principal.entry(principal.clone()).or_default();
        if self.limits.max_per_principal <= *of_principal {
            return too_many(
                self.limits.max_per_principal,
                "per client are served at once",
            );
        }
        *of_principal += 1;
        let key = self.next.fetch_add(1, Ordering::Relaxed);
        // What a request asks for is agreed on later.
        let is_agreed = request.is_none();
        let is_news = is_agreed && state.count(&self.names, &filter.resource_subscriptions, true);
        let subscriber = Subscriber {
            principal,
            filter,
            version,
            request,
            outbox,
            told: HashMap::new(),
            is_agreed,
        };
        state.subscribers.insert(key, subscriber);
        drop(state);
        self.counted(is_news);
        Ok(Subscription {
            list: Arc::clone(self),
            key,
        })
    }

    fn check(&self, what: &'static str, count: usize) -> Result<(), TooManySubscriptions> {
        if self.limits.max_resources < count {
            return Err(TooManySubscriptions {
                max: self.limits.max_resources,
                what,
            });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Subscriber {
    fn wants(&self, change: &Change) -> bool {
        match change {
            Change::Tools => self.filter.tools_list_changed,
            Change::Prompts => self.filter.prompts_list_changed,
            Change::Resources => self.filter.resources_list_changed,
            Change::Resource(uri) => self.filter.resource_subscriptions.contains(uri),
            Change::Task(_, task) => self.filter.task_ids.contains(&task.id),
        }
    }

    fn tell(&mut self, change: &Change) {
        let notification = match change {
            Change::Tools => ServerNotification::ToolsListChanged,
            Change::Prompts => ServerNotification::PromptsListChanged,
            Change::Resources => ServerNotification::ResourcesListChanged,
            Change::Resource(uri) => ServerNotification::ResourceUpdated { uri: uri.clone() },
            Change::Task(changes, task) => {
                if !self.is_news(*changes, task) {
                    return;
                }
                ServerNotification::TaskChanged(task.clone())
            }
        };
        let notification = encode_notification(self.version, &notification, self.request.as_ref());
        let frame = Frame::message(&Message::Notification(notification)).into_bytes();
        if let Err(error) = self.outbox.push_change(frame) {
            tracing::debug!(principal = %self.principal, %error, "a change was not announced");
        }
    }
}

impl Subscriber {
    fn is_news(&mut self, changes: u64, task: &Task) -> bool {
        match self.told.get_mut(&task.id) {
            Some(told) if changes <= *told => return false,
            Some(told) => *told = changes,
            None => {
                self.told.insert(task.id.clone(), changes);
            }
        }
        // A legacy session hears of every task that it has, and could have ever more of them.
        if task.state.is_terminal() && self.request.is_none() {
            self.filter.task_ids.retain(|id| *id != task.id);
            self.told.remove(&task.id);
        }
        true
    }
}

/// A place in the list of subscribers; dropping it gives it up.
pub(crate) struct Subscription {
    list: Arc<Subscriptions>,
    key: u64,
}

impl Subscription {
    /// Adds a resource to what is heard of.
    pub(crate) fn watch(&self, uri: String) -> Result<(), TooManySubscriptions> {
        let mut state = self.list.lock();
        let Some(subscriber) = state.subscribers.get_mut(&self.key) else {
            return Ok(());
        };
        let watched = &mut subscriber.filter.resource_subscriptions;
        if !watched.contains(&uri) {
            self.list.check(RESOURCES, watched.len() + 1)?;
            watched.push(uri.clone());
            let is_news = state.count(&self.list.names, &[uri], true);
            drop(state);
            self.list.counted(is_news);
        }
        Ok(())
    }

    /// Adds a task to what is heard of.
    pub(crate) fn watch_task(&self, id: &str) -> Result<(), TooManySubscriptions> {
        let mut state = self.list.lock();
        let Some(subscriber) = state.subscribers.get_mut(&self.key) else {
            return Ok(());
        };
        let watched = &mut subscriber.filter.task_ids;
        self.list.check(TASKS, watched.len() + 1)?;
        watched.push(id.to_owned());
        Ok(())
    }

    /// The resources and the tasks that are heard of.
    pub(crate) fn watched(&self) -> (Vec<String>, Vec<String>) {
        let state = self.list.lock();
        let filter = state.subscribers.get(&self.key).map(|it| &it.filter);
        filter.map_or_else(Default::default, |filter| {
            (
                filter.resource_subscriptions.clone(),
                filter.task_ids.clone(),
            )
        })
    }

    /// Leaves nothing but `filter` to be heard of.
    pub(crate) fn narrow(&self, filter: SubscriptionFilter) {
        let mut state = self.list.lock();
        if let Some(subscriber) = state.subscribers.get_mut(&self.key) {
            let now = filter.resource_subscriptions.clone();
            let before = std::mem::replace(&mut subscriber.filter, filter);
            let was_agreed = std::mem::replace(&mut subscriber.is_agreed, true);
            let mut is_news = state.count(&self.list.names, &now, true);
            if was_agreed {
                is_news |= state.count(&self.list.names, &before.resource_subscriptions, false);
            }
            drop(state);
            self.list.counted(is_news);
        }
    }

    /// Announces a change to this subscriber alone, if its filter has it.
    pub(crate) fn tell(&self, change: &Change) {
        if let Some(subscriber) = self.list.lock().subscribers.get_mut(&self.key)
            && subscriber.wants(change)
        {
            subscriber.tell(change);
        }
    }

    /// Has `principal`, who it is of, hear only what it may know with the roles that it has now.
    pub(crate) fn now_of(&self, principal: &Principal) {
        let mut state = self.list.lock();
        let Some(subscriber) = state.subscribers.get_mut(&self.key) else {
            return;
        };
        let before = std::mem::replace(&mut subscriber.principal, principal.clone());
        let is_news = before.roles() != principal.roles()
            && !subscriber.filter.resource_subscriptions.is_empty();
        drop(state);
        self.list.counted(is_news);
    }

    /// Takes a resource from what is heard of.
    pub(crate) fn unwatch(&self, uri: &str) {
        let mut state = self.list.lock();
        if let Some(subscriber) = state.subscribers.get_mut(&self.key) {
            let watched = &mut subscriber.filter.resource_subscriptions;
            if let Some(at) = watched.iter().position(|watched| watched == uri) {
                let gone = watched.remove(at);
                let is_news = state.count(&self.list.names, &[gone], false);
                drop(state);
                self.list.counted(is_news);
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut state = self.list.lock();
        let Some(subscriber) = state.subscribers.remove(&self.key) else {
            return;
        };
        if let Some(count) = state.per_principal.get_mut(&subscriber.principal) {
            *count -= 1;
            if *count == 0 {
                state.per_principal.remove(&subscriber.principal);
            }
        }
        let gone = &subscriber.filter.resource_subscriptions;
        let is_news = subscriber.is_agreed && state.count(&self.list.names, gone, false);
        drop(state);
        self.list.counted(is_news);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Subscription").field(&self.key).finish()
    }
}
