//! One connection to an upstream: opened on use, by one attempt for all who wait, and closed when it is idle.

use crate::{
    Tokens,
    catalogue::Catalogue,
    store::with_causes,
    upstream::{
        ClientKey, Upstream,
        desk::{Desk, Ears},
        lists::Judged,
        own::{Own, Unopened},
    },
};
use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use mcp_client::{Bounds, Connection, Error, Options, Speak, Subscription};
use mcp_protocol::{Era, model::SubscriptionFilter};
use oauth_client::Authorizer;
use std::{
    fmt,
    future::pending,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, MissedTickBehavior, interval, sleep, sleep_until},
};

/// Pause before the second of two attempts that fail, which doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(800);
/// The shortest pause after an attempt at an address that does not answer.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
/// The pause after such an attempt, in times of what the attempt took: one that is refused at once costs nothing, and
/// the address may answer in a moment.
const PAUSE_FOR_ATTEMPT: u32 = 4;
/// The shortest and the longest pause before an upstream is tried again of which nothing is known, so that
/// nobody could need it.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// The shortest and the longest pause before a modern upstream is asked again to tell of changes of its lists.
const LISTEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// The longest time for which an upstream is left alone because it wants to be (`Retry-After`).
const LONGEST_REST: Duration = Duration::from_secs(600);
/// Time for which changes of lists are gathered before the lists are read.
const GATHER: Duration = Duration::from_millis(250);
/// Time between two looks at whether the connection is idle, or has ended.
const LOOK: Duration = Duration::from_secs(1);
/// Orders that wait for the actor.
const MAX_ORDERS: usize = 1024;

/// A connection that is open, and its calls.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) connection: Connection,
    /// Source of the tokens of its requests.
    authorizer: Option<Authorizer>,
    pub(crate) desk: Arc<Desk>,
    /// True once the lists were read on it: before, nothing is called, since what is called may be another than what
    /// is pinned.
    is_listed: AtomicBool,
    /// The lists that were read on a connection for one client alone.
    pub(crate) lists: ArcSwapOption<Catalogue>,
    pub(crate) judged: Judged,
    /// The credentials that it was opened with, if they are those of one client.
    own: Option<Own>,
}

impl Live {
    pub(crate) fn is_open(&self) -> bool {
        !self.connection.is_closed()
    }

    fn is_listed(&self) -> bool {
        self.is_listed.load(Ordering::Acquire)
    }

    /// Waits until no call is under way, or the connection has ended.
    async fn drained(&self) {
        while self.is_open() && self.desk.calls() != 0 {
            sleep(LOOK).await;
        }
    }
}

/// Reason why there is no connection.
#[derive(Clone, Debug)]
pub(crate) struct Down {
    pub(crate) reason: String,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) wants: Wants,
}

/// Action without which there is no connection.
#[derive(Clone, Debug)]
pub(crate) enum Wants {
    /// None that is known.
    Nothing,
    /// None: calls of this client have to end, or calls of others.
    Room,
    /// None: its authorization server, which is out of order, has to be back.
    Authority,
    /// A correction of what tokens come from, by whoever operates it.
    Setting,
    /// A login by the operator, for all clients.
    Login,
    /// A credential of the client's own: the predicate for the message to it.
    Own(String),
}

type Waiter = oneshot::Sender<Result<Arc<Live>, Down>>;

enum Order {
    Connect(Waiter),
    /// Read the lists again, connecting first; answered when they are read.
    Look(Waiter),
    /// Close this connection, if it is the one that is open.
    Leave(Weak<Live>),
    /// Forget the last failure, whose reason is gone.
    Forgive,
    Close(oneshot::Sender<()>),
}

/// A handle of the actor that keeps one connection.
pub(crate) struct Slot {
    live: Arc<ArcSwapOption<Live>>,
    orders: mpsc::Sender<Order>,
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot")
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl Slot {
    /// Starts the actor. `owner` is the one client for whom the connection is, if it is for one alone; the slot of all
    /// clients reads the lists, too.
    pub(crate) fn start(upstream: &Arc<Upstream>, owner: Option<ClientKey>) -> Self {
        let live: Arc<ArcSwapOption<Live>> = Arc::default();
        let (orders, taken) = mpsc::channel(MAX_ORDERS);
        let actor = Actor {
            upstream: Arc::downgrade(upstream),
            live: Arc::clone(&live),
            owner: owner.map(Arc::new),
            listed_before: None,
            waiting: Vec::new(),
            lookers: Vec::new(),
            attempt: None,
            listing: None,
            list_at: None,
            looking: None,
            subscribing: None,
            subscription: None,
            subscribe_at: None,
            subscribe_pause: LISTEN.0,
            subscribed_at: Instant::now(),
            retry_at: None,
            failures: 0,
            attempted_at: Instant::now(),
            down: None,
        };
        upstream.runtime.spawn(actor.run(taken));
        Self { live, orders }
    }

    /// The connection, if it is open.
    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        self.live.load_full().filter(|it| it.is_open())
    }

    /// The connection, which is opened if it is not, and on which the lists were read.
    pub(crate) async fn connected(&self) -> Result<Arc<Live>, Down> {
        match self.live().filter(|it| it.is_listed()) {
            Some(live) => Ok(live),
            None => self.ask(Order::Connect).await,
        }
    }

    /// Connects, and reads the lists.
    pub(crate) async fn look(&self) -> Result<Arc<Live>, Down> {
        self.ask(Order::Look).await
    }

    async fn ask(&self, order: impl FnOnce(Waiter) -> Order) -> Result<Arc<Live>, Down> {
        let gone = || Down {
            reason: "it is configured no more".to_owned(),
            retry_after: None,
            wants: Wants::Nothing,
        };
        let (answer, answered) = oneshot::channel();
        self.orders.send(order(answer)).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Leaves a connection that is of no use any more, without waiting for that.
    pub(crate) fn leave(&self, live: &Arc<Live>) {
        // With so many orders waiting, it will be found out otherwise.
        let _ = self.orders.try_send(Order::Leave(Arc::downgrade(live)));
    }

    /// Has the next call open a connection, whatever became of the last attempt.
    pub(crate) fn forgive(&self) {
        // With so many orders waiting, it is forgotten in a moment anyway.
        let _ = self.orders.try_send(Order::Forgive);
    }

    /// Closes the connection and waits until that is done.
    pub(crate) async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        if self.orders.send(Order::Close(closed)).await.is_ok() {
            let _ = is_closed.await;
        }
    }
}

/// Lists, what is wrong with them, and the time after which they may be asked for again.
type Listed = (Catalogue, Option<String>, Option<Duration>);

struct Actor {
    upstream: Weak<Upstream>,
    live: Arc<ArcSwapOption<Live>>,
    owner: Option<Arc<ClientKey>>,
    /// The lists that were last read on a client's own connection.
    listed_before: Option<Arc<Catalogue>>,
    waiting: Vec<Waiter>,
    lookers: Vec<Waiter>,
    attempt: Option<BoxFuture<'static, Result<Live, Unopened>>>,
    listing: Option<BoxFuture<'static, Listed>>,
    list_at: Option<Instant>,
    /// A look at whether the tokens in use are still those that are kept.
    looking: Option<BoxFuture<'static, bool>>,
    subscribing: Option<BoxFuture<'static, Result<Subscription, Error>>>,
    subscription: Option<Subscription>,
    /// Time at which the upstream is asked again to tell of changes, and the pause before that.
    subscribe_at: Option<Instant>,
    subscribe_pause: Duration,
    subscribed_at: Instant,
    retry_at: Option<Instant>,
    failures: u32,
    /// Time at which the last attempt was begun.
    attempted_at: Instant,
    /// The last failure, and when the next attempt may be made.
    down: Option<(Down, Instant)>,
}

/// An event for the actor.
#[expect(clippy::large_enum_variant, reason = "one at a time, and never kept")]
enum Happened {
    Order(Option<Order>),
    Attempted(Result<Live, Unopened>),
    Listed(Listed),
    Subscribed(Result<Subscription, Error>),
    Subscribe,
    Changed,
    SubscriptionEnded,
    ListNow,
    Retry,
    Look,
    /// True if somebody has signed out, or in anew, or a client's own credentials are others.
    Looked(bool),
}

impl Actor {
    async fn run(mut self, mut orders: mpsc::Receiver<Order>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let live = self.live.load_full();
            let happened = tokio::select! {
                order = orders.recv() => Happened::Order(order),
                outcome = or_never(&mut self.attempt) => Happened::Attempted(outcome),
                listed = or_never(&mut self.listing) => Happened::Listed(listed),
                subscription = or_never(&mut self.subscribing) => Happened::Subscribed(subscription),
                is_superseded = or_never(&mut self.looking) => Happened::Looked(is_superseded),
                () = changed(live.as_deref()) => Happened::Changed,
                ended = next(&mut self.subscription) => match ended {
                    true => Happened::SubscriptionEnded,
                    false => Happened::Changed,
                },
                () = at(self.subscribe_at) => Happened::Subscribe,
                () = at(self.list_at) => Happened::ListNow,
                () = at(self.retry_at) => Happened::Retry,
                _ = looks.tick(), if live.is_some() => Happened::Look,
            };
            drop(live);
            match happened {
                // Calls may be under way on what nobody holds any more.
                Happened::Order(None) => {
                    self.attempt = None;
                    return self.drop_live();
                }
                Happened::Order(Some(Order::Close(closed))) => {
                    self.end().await;
                    let _ = closed.send(());
                    return;
                }
                Happened::Order(Some(order)) => self.take(order),
                Happened::Attempted(outcome) => self.attempted(outcome),
                Happened::Listed(listed) => self.listed(listed),
                Happened::Subscribed(subscription) => self.subscribed(subscription),
                Happened::Subscribe => {
                    self.subscribe_at = None;
                    self.subscribe();
                }
                Happened::Changed => {
                    self.list_at.get_or_insert(Instant::now() + GATHER);
                }
                Happened::SubscriptionEnded => {
                    self.subscription = None;
                    if LISTEN.1 <= self.subscribed_at.elapsed() {
                        self.subscribe_pause = LISTEN.0;
                    }
                    self.subscribe_again();
                }
                Happened::ListNow => self.list(),
                Happened::Retry => {
                    self.retry_at = None;
                    if self.attempt.is_none() && self.live.load().is_none() {
                        self.connect();
                    }
                }
                Happened::Look => self.look(),
                Happened::Looked(is_superseded) => self.looked(is_superseded),
            }
        }
    }

    fn take(&mut self, order: Order) {
        let (waiter, is_look) = match order {
            Order::Connect(waiter) => (waiter, false),
            Order::Look(waiter) => (waiter, true),
            Order::Leave(which) => {
                if let (Some(which), Some(live)) = (which.upgrade(), self.live.load_full())
                    && Arc::ptr_eq(&which, &live)
                {
                    self.drop_live();
                }
                return;
            }
            Order::Forgive => {
                self.down = None;
                return;
            }
            Order::Close(_) => return,
        };
        if let Some(live) = self.live.load_full() {
            if live.is_open() {
                if is_look {
                    self.lookers.push(waiter);
                    self.list();
                } else if live.is_listed() {
                    let _ = waiter.send(Ok(live));
                } else {
                    self.waiting.push(waiter);
                }
                return;
            }
            self.drop_live();
        }
        if let Some((down, until)) = &self.down
            && self.attempt.is_none()
            && !is_look
        {
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                let retry_after = down.retry_after.map(|_| left);
                let _ = waiter.send(Err(Down {
                    retry_after,
                    ..down.clone()
                }));
                return;
            }
        }
        match is_look {
            true => self.lookers.push(waiter),
            false => self.waiting.push(waiter),
        }
        if self.attempt.is_none() {
            self.connect();
        }
    }

    /// Begins an attempt.
    fn connect(&mut self) {
        let Some(upstream) = self.upstream.upgrade() else {
            return;
        };
        upstream.is_connecting(true);
        self.attempted_at = Instant::now();
        let desk = Desk::new(
            &upstream.spec.name,
            Arc::clone(&upstream.watched),
            self.owner.as_ref().map(|it| it.askable),
        );
        let known = upstream.catalogue();
        let options = Options {
            handlers: Arc::new(Ears(Arc::clone(&desk))),
            bounds: Bounds {
                timeout: upstream.spec.connect_timeout,
                max_message: upstream.spec.max_message,
                ..Bounds::default()
            },
            speak: match &known {
                Some(known) => Speak::Remembered(known.version),
                None => Speak::Probe,
            },
            log_level: Some(mcp_protocol::model::LoggingLevel::Info),
            ..Options::default()
        };
        let within = upstream.spec.connect_timeout;
        let owner = self.owner.clone();
        self.attempt = Some(Box::pin(async move {
            let opening = async {
                let way = upstream.way(owner.as_deref()).await?;
                Ok((Connection::open(&way.dial, options).await?, way))
            };
            let opened = tokio::time::timeout(within, opening).await;
            let (connection, way) = opened.unwrap_or_else(|_| {
                Err(Unopened::Failed(Error::TimedOut {
                    method: "initialize",
                    within,
                    note: String::new(),
                }))
            })?;
            Ok(Live {
                connection,
                authorizer: way.authorizer,
                own: way.own,
                desk,
                is_listed: AtomicBool::new(false),
                lists: ArcSwapOption::empty(),
                judged: Judged::default(),
            })
        }));
    }

    fn attempted(&mut self, outcome: Result<Live, Unopened>) {
        self.attempt = None;
        let Some(upstream) = self.upstream.upgrade() else {
            return;
        };
        upstream.is_connecting(false);
        match outcome {
            Ok(live) => {
                self.failures = 0;
                self.down = None;
                let live = Arc::new(live);
                upstream.rest(None);
                upstream.connected(&live, self.owner.is_some());
                if let Some(owner) = self.owner.as_ref().filter(|_| live.own.is_some()) {
                    upstream.accepted(&owner.principal);
                }
                self.live.store(Some(Arc::clone(&live)));
                upstream.note();
                if self.owner.is_none() {
                    self.subscribe_pause = LISTEN.0;
                    self.subscribe();
                }
                self.list();
            }
            Err(unopened) => {
                let rest = match &unopened {
                    Unopened::Failed(error) => rest_of(error),
                    Unopened::Refused(_) => None,
                };
                let own = self.owner.as_ref().filter(|_| upstream.has_own());
                let down = match (unopened, own) {
                    (Unopened::Refused(why), owner) => {
                        let client = owner.map_or("", |it| &it.principal);
                        upstream.refused(client, &why)
                    }
                    (Unopened::Failed(error @ Error::Unauthorized { .. }), Some(owner)) => {
                        upstream.refused(&owner.principal, &with_causes(&error))
                    }
                    (Unopened::Failed(error), _) => {
                        let down = down_of(&error, self.failures, self.attempted_at.elapsed());
                        match &error {
                            Error::AuthorizationMisconfigured { cure, .. } => {
                                upstream.misconfigured(&down.reason, cure);
                            }
                            _ => upstream.failed(&down.reason, matches!(down.wants, Wants::Login)),
                        }
                        upstream.advise(&error);
                        down
                    }
                };
                upstream.rest(rest);
                if self.owner.is_none() && upstream.catalogue().is_none() {
                    let pause = RETRY.0.saturating_mul(1 << self.failures.min(8));
                    let pause = jittered(pause.min(RETRY.1));
                    self.retry_at = Some(Instant::now() + pause.max(rest.unwrap_or_default()));
                }
                self.failures = self.failures.saturating_add(1);
                let until = Instant::now() + down.retry_after.unwrap_or(LONGEST_PAUSE);
                for waiter in self.waiting.drain(..).chain(self.lookers.drain(..)) {
                    let _ = waiter.send(Err(down.clone()));
                }
                self.down = Some((down, until));
            }
        }
    }

    /// Asks a modern upstream to tell of changes of its lists; legacy ones tell without being asked.
    fn subscribe(&mut self) {
        let Some(live) = self.live.load_full() else {
            return;
        };
        let agreed = live.connection.agreed();
        let offer = &agreed.offer;
        let filter = SubscriptionFilter {
            tools_list_changed: offer.tools.is_some_and(|it| it.list_changed),
            prompts_list_changed: offer.prompts.is_some_and(|it| it.list_changed),
            resources_list_changed: offer.resources.is_some_and(|it| it.list_changed),
            ..SubscriptionFilter::default()
        };
        if agreed.version.era() == Era::Modern && !filter.is_empty() {
            self.subscribing = Some(Box::pin(
                async move { live.connection.listen(filter).await },
            ));
        }
    }

    fn subscribed(&mut self, subscription: Result<Subscription, Error>) {
        self.subscribing = None;
        match subscription {
            Ok(subscription) => {
                // What has changed while nobody listened was not told.
                if self.subscribe_pause != LISTEN.0 {
                    self.list();
                }
                self.subscribed_at = Instant::now();
                self.subscription = Some(subscription);
            }
            Err(error) => {
                if let Some(upstream) = self.upstream.upgrade() {
                    tracing::warn!(
                        upstream = upstream.spec.name,
                        error = with_causes(&error),
                        "an upstream does not tell of changes of its lists; they are read at each connection"
                    );
                }
                // It has answered that it does not.
                if !matches!(error, Error::Server { .. }) {
                    self.subscribe_again();
                    let rest = rest_of(&error).map(|it| Instant::now() + it);
                    self.subscribe_at = self.subscribe_at.max(rest);
                }
            }
        }
    }

    fn subscribe_again(&mut self) {
        self.subscribe_at = Some(Instant::now() + self.subscribe_pause);
        self.subscribe_pause = (self.subscribe_pause * 2).min(LISTEN.1);
    }

    /// Begins to read the lists.
    fn list(&mut self) {
        self.list_at = None;
        let (Some(live), Some(upstream)) = (self.live.load_full(), self.upstream.upgrade()) else {
            return;
        };
        if self.listing.is_some() {
            // What has changed meanwhile may not be in it.
            self.list_at = Some(Instant::now() + GATHER);
            return;
        }
        // What others see is nothing that this client has seen.
        let own = live.own.map(|_| self.listed_before.clone());
        self.listing = Some(Box::pin(async move {
            let before = own.unwrap_or_else(|| upstream.catalogue());
            Catalogue::read(&live.connection, before.as_deref()).await
        }));
    }

    fn listed(&mut self, (catalogue, problem, rest): Listed) {
        self.listing = None;
        if let Some(rest) = rest {
            // Nothing else would lead to them.
            self.list_at = Some(Instant::now() + rest.clamp(GATHER, LONGEST_REST));
        }
        let live = self.live.load_full();
        if let Some(live) = live.as_ref().filter(|_| problem.is_none()) {
            live.desk.hear();
        }
        match (self.upstream.upgrade(), &live) {
            (Some(upstream), Some(live)) if self.owner.is_some() => {
                let own = Arc::new(catalogue);
                live.lists.store(Some(Arc::clone(&own)));
                if live.own.is_some() {
                    let before = self.listed_before.replace(Arc::clone(&own));
                    upstream.listed_for_client(&own, before.as_deref(), problem);
                }
                // Before a call goes out on it.
                upstream.judge_for_clients();
            }
            (Some(upstream), _) => upstream.listed(catalogue, problem),
            (None, _) => {}
        }
        let Some(live) = live else {
            return self.drop_live();
        };
        if !live.is_open() {
            return self.look();
        }
        live.is_listed.store(true, Ordering::Release);
        for waiter in self.lookers.drain(..).chain(self.waiting.drain(..)) {
            let _ = waiter.send(Ok(Arc::clone(&live)));
        }
    }

    /// Notes a connection that has ended, and closes one that nobody uses.
    fn look(&mut self) {
        let (Some(live), Some(upstream)) = (self.live.load_full(), self.upstream.upgrade()) else {
            return;
        };
        if !live.is_open() {
            upstream.ended(&live);
            return self.drop_live();
        }
        upstream.parked.sweep();
        let idle = upstream.spec.idle;
        // Of a client's own connection nothing is subscribed to.
        let is_listening = self.owner.is_none() && upstream.watched.is_wanted();
        let is_used = is_listening || self.listing.is_some();
        if !idle.is_zero() && idle <= live.desk.idle() && !is_used {
            tracing::debug!(
                upstream = upstream.spec.name,
                "an idle connection is closed"
            );
            return self.drop_live();
        }
        if let (None, Some(owner), Some(Own::Filled(digest))) =
            (&self.looking, &self.owner, live.own)
        {
            let (upstream, owner) = (Arc::clone(&upstream), Arc::clone(owner));
            let looking = async move { upstream.has_other(&owner.principal, digest).await };
            self.looking = Some(Box::pin(looking));
        }
        if self.looking.is_none()
            && (matches!(upstream.spec.tokens, Tokens::Kept(_)) || live.own.is_some())
            && let Some(authorizer) = &live.authorizer
        {
            let authorizer = authorizer.clone();
            self.looking = Some(Box::pin(async move {
                authorizer.is_superseded().await.unwrap_or_default()
            }));
        }
    }

    /// Leaves a connection that was opened with the tokens of another sign-in.
    fn looked(&mut self, is_superseded: bool) {
        self.looking = None;
        if let Some(upstream) = self.upstream.upgrade().filter(|_| is_superseded) {
            tracing::info!(
                upstream = upstream.spec.name,
                "the credentials of a connection are others now, or are there no more: it is closed"
            );
            self.drop_live();
        }
    }

    /// Takes the connection out of use, and closes it in the background when its calls have ended.
    fn drop_live(&mut self) {
        self.looking = None;
        self.subscribing = None;
        self.subscription = None;
        self.subscribe_at = None;
        self.listing = None;
        self.list_at = None;
        if let Some(live) = self.live.swap(None) {
            if let Some(upstream) = self.upstream.upgrade() {
                upstream.left(&live);
                if self.owner.is_some() {
                    upstream.judge_for_clients();
                }
            }
            tokio::spawn(async move {
                live.drained().await;
                live.connection.clone().close().await;
            });
        }
        for waiter in self.lookers.drain(..).chain(self.waiting.drain(..)) {
            let _ = waiter.send(Err(Down {
                reason: "the connection was closed".to_owned(),
                retry_after: Some(FIRST_PAUSE),
                wants: Wants::Nothing,
            }));
        }
    }

    async fn end(&mut self) {
        self.attempt = None;
        self.subscribing = None;
        self.subscription = None;
        self.listing = None;
        if let Some(live) = self.live.swap(None) {
            live.connection.clone().close().await;
        }
    }
}

/// Time for which whoever has refused does not want to be asked again, as it has said itself.
fn rest_of(error: &Error) -> Option<Duration> {
    error.retry_after().map(|it| it.min(LONGEST_REST))
}

fn down_of(error: &Error, failures: u32, took: Duration) -> Down {
    let is_lasting = matches!(
        error,
        Error::Address { .. }
            | Error::NoCommonVersion { .. }
            | Error::Unauthorized { .. }
            | Error::AuthorizationMisconfigured { .. }
    );
    let pause = FIRST_PAUSE
        .saturating_mul(1 << failures.min(8))
        .min(LONGEST_PAUSE);
    let pause = match error {
        Error::Http(_) | Error::Broken { .. } => {
            pause.min(SHORTEST_PAUSE.max(took.saturating_mul(PAUSE_FOR_ATTEMPT)))
        }
        _ => pause,
    };
    Down {
        reason: with_causes(error),
        retry_after: rest_of(error).or_else(|| (!is_lasting).then(|| jittered(pause))),
        wants: match error {
            Error::Unauthorized { .. } => Wants::Login,
            Error::AuthorizationMisconfigured { .. } => Wants::Setting,
            Error::AuthorizationUnavailable { .. } => Wants::Authority,
            _ => Wants::Nothing,
        },
    }
}

/// `pause`, or up to a quarter less, so that many gateways do not come at once.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    pause - pause.mul_f64(f64::from(byte[0]) / 1024.0)
}

async fn or_never<T>(future: &mut Option<BoxFuture<'static, T>>) -> T {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

async fn at(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => pending().await,
    }
}

async fn changed(live: Option<&Live>) {
    match live {
        Some(live) => live.desk.lists_changed.notified().await,
        None => pending().await,
    }
}

/// Waits for a change; true if the subscription has ended.
async fn next(subscription: &mut Option<Subscription>) -> bool {
    match subscription {
        Some(subscription) => !matches!(subscription.next().await, Ok(Some(_))),
        None => pending().await,
    }
}
