//! Settling of costs that Langfuse tells after the end of calls.
//!
//! A call whose handler reports a trace leaves a note in the ledger, `cost_awaited`, and is counted with what it was
//! expected to cost. The trace is read until it tells the same twice; then an entry of its own has the cost, and the
//! counters are corrected. What a server has not settled, the next one finds in the ledger: notes without such an entry.
//! The entry claims a key, so that of several servers one settles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use governance::{Ask, Governor, Micros, Policy, Timestamp};
use ledger::{
    Account, BeginError, CallId, Claim, Counted, End, Filter, KeyClaim, Kind, NoteFilter, NoteKind,
    NoteRecord, Outcome, QueryError, ReadLedger, Recorder, Start,
};
use mcp_server::{AwaitedCost, Component, ComponentState, LateCosts, system_clock};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::langfuse::{Langfuse, ReadError};
use super::quotas::Quotas;
use crate::{Failure, with_causes};
use config::Config;

/// Name in `/health` of the component for costs that cannot be read.
const COMPONENT: &str = "costs";

/// Way in which the entries of late costs came, as they have it.
const VIA: &str = "langfuse";

/// The most calls that are waited for; more are taken up from the ledger later.
const MAX_WAITING: usize = 10_000;

/// The most traces that are read at once.
const MAX_AT_ONCE: usize = 4;

/// Interval of looks into the ledger for what other servers have left, or did not fit.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// Age from which a note that this server does not know is another's that may have ended.
const LEFT_AFTER_US: u64 = 15 * 60 * 1_000_000;

/// Longest pause between two readings of a trace, and after failures.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);

/// Age up to which notes are looked for.
const LOOK_BACK_US: u64 = 32 * 24 * 60 * 60 * 1_000_000;

/// Notes that are read together.
const PAGE: usize = 500;

/// Failures one after the other that turn the component red.
const FAILURES: u32 = 3;

/// Time for which such a key is remembered; the entry itself is found later.
const KEY_KEPT_US: u64 = 24 * 60 * 60 * 1_000_000;

/// The node of accounts that correct what was counted. No server has it.
const NODE: i64 = 0;

/// Calls whose costs are awaited, and the reader of these.
#[derive(Debug)]
pub(super) struct Awaiting {
    shared: Arc<Shared>,
    reading: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    after: Duration,
    give_up_us: u64,
    state: Mutex<State>,
    came: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: HashMap<CallId, Waiting>,
    /// Time before which nothing is asked.
    pause_until: Option<Instant>,
    failures: u32,
    /// The reason why the last request failed.
    failed: Option<String>,
    is_refused: bool,
    given_up: u64,
}

#[derive(Clone, Debug)]
struct Waiting {
    cost: AwaitedCost,
    next: Instant,
    pause: Duration,
    /// The cost that was read last.
    read: Option<Micros>,
}

/// Detail of a note.
#[derive(Debug, Deserialize)]
struct Detail {
    capability: String,
    trace: String,
    counted_micros: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, cost: AwaitedCost, after: Duration) -> bool {
        let mut state = self.state();
        if MAX_WAITING <= state.waiting.len() {
            return false;
        }
        let waiting = Waiting {
            next: Instant::now() + after,
            pause: self.after,
            read: None,
            cost,
        };
        state.waiting.entry(waiting.cost.call).or_insert(waiting);
        true
    }
}

impl LateCosts for Shared {
    fn awaits(&self, cost: AwaitedCost) {
        if self.add(cost, self.after) {
            self.came.notify_one();
        }
    }
}

/// Costs that earlier servers have left, by the ledger: notes without a settling entry.
pub(super) fn left(
    reader: &mut dyn ReadLedger,
    now_us: u64,
) -> Result<Vec<AwaitedCost>, QueryError> {
    let mut found = Vec::new();
    let kind = NoteKind::COST_AWAITED;
    let mut before = None;
    loop {
        let filter = NoteFilter {
            kind: Some(kind.as_str()),
            since_us: Some(now_us.saturating_sub(LOOK_BACK_US)),
            before,
            ..NoteFilter::default()
        };
        let notes = reader.notes(PAGE, filter)?;
        before = notes.last().map(NoteRecord::cursor);
        let is_last = notes.len() < PAGE;
        for note in notes {
            let Some(cost) = awaited(&note) else {
                tracing::error!(
                    sequence = note.sequence,
                    "a note about a cost cannot be read; it is not settled"
                );
                continue;
            };
            let settled = Filter {
                request_id: Some(&name_of(cost.call)),
                kind: Some(Kind::Other),
                ..Filter::default()
            };
            if reader.recent(1, settled)?.is_empty() {
                found.push(cost);
            }
        }
        if is_last {
            return Ok(found);
        }
    }
}

fn awaited(note: &NoteRecord) -> Option<AwaitedCost> {
    let detail: Detail = serde_json::from_str(&note.noted.detail.text).ok()?;
    Some(AwaitedCost {
        call: note.noted.subject.parse().ok()?,
        at_us: note.noted.at_us,
        principal: note.noted.actor.clone(),
        capability: detail.capability,
        trace: detail.trace,
        counted_micros: detail.counted_micros,
    })
}

/// The request id of the entry that settles a call. It is no JSON, so that no client's request has it.
fn name_of(call: CallId) -> String {
    format!("cost:{call}")
}

impl Awaiting {
    /// Prepares the reading of costs, if the configuration names a place for that.
    pub(super) fn prepare(config: &Config) -> Self {
        let settings = &config.costs.langfuse;
        Self {
            shared: Arc::new(Shared {
                after: Duration::from_secs(settings.after_seconds),
                give_up_us: settings.give_up_hours.saturating_mul(60 * 60 * 1_000_000),
                state: Mutex::default(),
                came: Notify::new(),
            }),
            reading: Mutex::default(),
        }
    }

    /// Receiver of calls for the server, if their costs can be read.
    pub(super) fn receiver(&self, config: &Config) -> Option<Arc<dyn LateCosts>> {
        let shared = Arc::clone(&self.shared);
        config
            .costs
            .langfuse
            .url
            .is_some()
            .then_some(shared as Arc<dyn LateCosts>)
    }

    /// Begins to read. What was left by earlier servers is settled too, and where there is nothing to ask any more, with
    /// what was counted.
    ///
    /// # Errors
    ///
    /// When Langfuse cannot be asked by the settings.
    pub(super) fn begin(
        &self,
        config: &Config,
        open_reader: OpenReader,
        governor: Arc<Governor<Quotas>>,
        recorder: Recorder,
    ) -> Result<(), Failure> {
        let reader = Reader {
            langfuse: Langfuse::of(config)?,
            shared: Arc::clone(&self.shared),
            config: config.clone(),
            open_reader,
            governor,
            recorder,
        };
        let reading = tokio::spawn(async move { reader.run().await });
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
        Ok(())
    }

    /// Component of `/health`, which fails while Langfuse refuses the keys, or cannot be asked.
    pub(super) fn component(&self) -> Component {
        let shared = Arc::clone(&self.shared);
        Component::new(move || {
            let state = shared.state();
            let ok = !state.is_refused && state.failures < FAILURES;
            let waiting = state.waiting.len();
            let mut told = Vec::new();
            if 0 < waiting {
                told.push(format!("{waiting} calls wait for their costs"));
            }
            if 0 < state.given_up {
                told.push(format!(
                    "{} costs could not be read in time, and stay what was counted",
                    state.given_up
                ));
            }
            told.extend(state.failed.clone());
            ComponentState {
                name: COMPONENT,
                ok,
                detail: (!told.is_empty()).then(|| told.join("; ")),
            }
        })
    }

    /// Ends reading. What is not settled is found in the ledger by the next server.
    pub(super) fn close(&self) {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reading) = reading.take() {
            reading.abort();
        }
    }
}

/// Function that opens the ledger of a configuration.
pub(super) type OpenReader = fn(&Config) -> Result<Box<dyn ReadLedger + Send>, Failure>;

struct Reader {
    langfuse: Option<Langfuse>,
    shared: Arc<Shared>,
    config: Config,
    open_reader: OpenReader,
    governor: Arc<Governor<Quotas>>,
    recorder: Recorder,
}

impl Reader {
    async fn run(self) {
        let mut looked = None::<Instant>;
        loop {
            if looked.is_none_or(|at| LOOK_EVERY <= at.elapsed()) {
                self.look(looked.is_none()).await;
                looked = Some(Instant::now());
            }
            let due = self.due();
            if due.is_empty() {
                tokio::select! {
                    () = self.shared.came.notified() => {}
                    () = tokio::time::sleep(self.pause()) => {}
                }
                continue;
            }
            join_all(due.into_iter().map(|waiting| self.attend(waiting))).await;
        }
    }

    /// Takes up what is in the ledger and nobody settles: at the start all, later what is old.
    async fn look(&self, is_first: bool) {
        let (config, open_reader) = (self.config.clone(), self.open_reader);
        let found = tokio::task::spawn_blocking(move || {
            let mut reader = open_reader(&config)?;
            Ok::<_, Failure>(left(reader.as_mut(), system_clock())?)
        });
        let found = match found.await {
            Ok(Ok(found)) => found,
            Ok(Err(failure)) => {
                let error = with_causes(&*failure);
                tracing::error!(
                    error,
                    "calls whose costs are awaited could not be looked for in the ledger"
                );
                return;
            }
            Err(_) => return,
        };
        let now_us = system_clock();
        let shares = self.config.ledger.url.is_some();
        for cost in found {
            let is_left = is_first && !shares || cost.at_us.saturating_add(LEFT_AFTER_US) <= now_us;
            if is_left {
                self.shared.add(cost, Duration::ZERO);
            }
        }
    }

    fn due(&self) -> Vec<Waiting> {
        let state = self.shared.state();
        let now = Instant::now();
        if state.pause_until.is_some_and(|until| now < until) {
            return Vec::new();
        }
        let due = state.waiting.values().filter(|it| it.next <= now);
        let mut due: Vec<_> = due.cloned().collect();
        due.sort_by_key(|it| it.next);
        due.truncate(MAX_AT_ONCE);
        due
    }

    /// Time until something is due, or the ledger is looked into again.
    fn pause(&self) -> Duration {
        let state = self.shared.state();
        let now = Instant::now();
        let next = state.waiting.values().map(|it| it.next).min();
        let next = next.map(|next| state.pause_until.map_or(next, |until| until.max(next)));
        next.map_or(LOOK_EVERY, |next| next.saturating_duration_since(now))
            .clamp(Duration::from_millis(10), LOOK_EVERY)
    }

    /// Reads a trace, and settles its call if that tells the same as before.
    async fn attend(&self, waiting: Waiting) {
        let cost = &waiting.cost;
        let now_us = system_clock();
        let Some(langfuse) = &self.langfuse else {
            let why = "there is no place any more that tells it (costs.langfuse.url)";
            return self.give_up(cost, why).await;
        };
        let told = langfuse.cost(&cost.trace).await;
        let read = match told {
            Ok(read) => {
                self.heard();
                read
            }
            Err(error) => {
                self.failed(&error);
                None
            }
        };
        if read.is_some() && read == waiting.read {
            let message = format!("the cost of {}, read in trace {}", cost.call, cost.trace);
            return self
                .settle(cost, read.unwrap_or_default(), Outcome::Succeeded, &message)
                .await;
        }
        if cost.at_us.saturating_add(self.shared.give_up_us) <= now_us {
            let failed = self.shared.state().failed.clone();
            let why = failed
                .unwrap_or_else(|| "Langfuse has no such trace, or tells no cost of it".to_owned());
            return self.give_up(cost, &why).await;
        }
        let mut state = self.shared.state();
        if let Some(known) = state.waiting.get_mut(&cost.call) {
            known.next = Instant::now() + waiting.pause;
            known.pause = (2 * waiting.pause).min(LONGEST_PAUSE.max(self.shared.after));
            known.read = read.or(waiting.read);
        }
    }

    fn heard(&self) {
        let mut state = self.shared.state();
        if state.failed.take().is_some() {
            tracing::info!("Langfuse tells costs again");
        }
        (state.failures, state.is_refused, state.pause_until) = (0, false, None);
    }

    fn failed(&self, error: &ReadError) {
        let mut state = self.shared.state();
        let is_refused = matches!(error, ReadError::Refused(_));
        state.failures = state.failures.saturating_add(1);
        let doublings = state.failures.min(10);
        let pause = (Duration::from_millis(500) * 2_u32.pow(doublings)).min(LONGEST_PAUSE);
        let pause = match error {
            ReadError::Busy(Some(wanted)) => (*wanted).max(Duration::from_millis(100)),
            _ => pause,
        };
        let why = error.to_string();
        if state.failed.as_ref() != Some(&why) {
            tracing::warn!(
                error = why,
                "costs of calls cannot be read; it is tried again"
            );
        }
        state.is_refused = is_refused;
        state.failed = Some(why);
        state.pause_until = Some(Instant::now() + pause);
    }

    async fn give_up(&self, cost: &AwaitedCost, why: &str) {
        tracing::error!(
            call = %cost.call,
            trace = cost.trace,
            why,
            "what a call has cost could not be read in time; it stays what was counted"
        );
        self.shared.state().given_up += 1;
        let message = format!(
            "the cost of {} could not be read in trace {}: {why}; it stays what was counted",
            cost.call, cost.trace
        );
        self.settle(cost, Micros(cost.counted_micros), Outcome::Failed, &message)
            .await;
    }

    /// Puts the cost on record, and corrects the counters.
    async fn settle(
        &self,
        awaited: &AwaitedCost,
        cost: Micros,
        outcome: Outcome<&str>,
        message: &str,
    ) {
        match self.recorded(awaited, cost, outcome, message).await {
            Ok(()) | Err(BeginError::Refused(_)) => {
                self.shared.state().waiting.remove(&awaited.call);
            }
            Err(BeginError::Record(error)) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    call = %awaited.call,
                    "what a call has cost could not be put on record; it is tried again"
                );
                if let Some(known) = self.shared.state().waiting.get_mut(&awaited.call) {
                    known.next = Instant::now() + self.shared.after;
                }
            }
        }
    }

    async fn recorded(
        &self,
        awaited: &AwaitedCost,
        cost: Micros,
        outcome: Outcome<&str>,
        message: &str,
    ) -> Result<(), BeginError> {
        let name = name_of(awaited.call);
        let policy = self.governor.policy();
        // It counts towards the budget of the month in which the call began.
        let at_us = awaited.at_us;
        let key = KeyClaim {
            principal: awaited.principal.clone(),
            // With a space, which no key of a client has.
            key: format!("cost {}", awaited.call),
            capability: awaited.capability.clone(),
            digest: Sha256::digest(&name).into(),
            call: CallId::new(at_us),
            at_us: system_clock(),
            until_us: system_clock().saturating_add(KEY_KEPT_US),
        };
        let start = Start {
            request_id: &name,
            method: VIA,
            transport: VIA,
            trace_id: Some(&awaited.trace),
            policy_version: policy.version(),
            // As it is known, so that the entry has it even if the server ends before its end is written.
            estimated_cost_micros: cost.0,
            idempotency_key: Some(&key.key),
            key_until_us: Some(key.until_us),
            via: Some(VIA),
            ..Start::new(
                key.call,
                at_us,
                &awaited.principal,
                Kind::Other,
                &awaited.capability,
            )
        };
        let mut open = self
            .recorder
            .begin_claiming(&start, &[Claim::Key(key.clone())])
            .await?;
        let counted = Micros(awaited.counted_micros);
        if self.recorder.takes_charges() && cost != counted {
            open.correct(account(awaited), counted_of(awaited, &policy));
        }
        let now = Timestamp(system_clock() / 1_000);
        let ask = Ask::new(&awaited.principal, &awaited.capability, now);
        self.governor
            .correct(ask, Timestamp(at_us / 1_000), counted, cost);
        let end = End {
            message: Some(message),
            cost_micros: cost.0,
            ..End::new(outcome)
        };
        open.finish(&end).await.map_err(BeginError::Record)
    }
}

/// The account of a correction, of which there is one for each call.
fn account(awaited: &AwaitedCost) -> Account {
    let digest = Sha256::digest(name_of(awaited.call));
    let number = digest
        .first_chunk()
        .map_or(0, |bytes| i64::from_le_bytes(*bytes));
    Account {
        principal: awaited.principal.as_str().into(),
        node: NODE,
        sequence: number,
    }
}

fn counted_of(awaited: &AwaitedCost, policy: &Policy) -> Counted {
    let month = policy.calendar().month_of(Timestamp(awaited.at_us / 1_000));
    Counted {
        capability: awaited.capability.clone(),
        month_start_ms: month.start.0,
        cost_micros: awaited.counted_micros,
    }
}
