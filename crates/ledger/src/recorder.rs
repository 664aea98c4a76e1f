//! Handing over of entries, and the thread that commits them in groups.

pub(crate) mod commit_hook;
pub(crate) mod end_reader;
pub(crate) mod queue;
pub(crate) mod refusals;
pub(crate) mod wake;
pub(crate) mod writer;

use crate::{
    record::{
        approval::{Approval, ApprovalId, ApprovalProblem, NewApproval, PendingBounds, Verdict},
        entry::{End, Outcome, Start},
        id::CallId,
        kept,
        note::Note,
        operation::{
            Claim, ClaimRefusal, Kept, KeyClaim, MAX_KEPT_BYTES, Operation, OperationOutcome,
        },
    },
    recorder::{
        commit_hook::CommitHook,
        end_reader::EndReader,
        queue::{Health, Shared, Slot, Unclaimed},
        refusals::DEFAULT_MAX_REFUSALS,
        writer::Ending,
    },
    store::{Account, Charge, Counted, LedgerStore},
};
use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::sync::watch;

/// The most calls that may be open or unwritten at once unless told otherwise.
pub const DEFAULT_MAX_UNWRITTEN: usize = 4096;

/// The most bytes of unwritten entries with which a call may still begin unless told otherwise.
pub const DEFAULT_MAX_UNWRITTEN_BYTES: usize = 64 * 1024 * 1024;

/// Default of the time that the store may take before calls are refused.
pub const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(10);

/// Reason of a denial for a call that never ran because its start may not be on disk.
const LEDGER_UNAVAILABLE: &str = "ledger_unavailable";

/// Guarantee for an entry that has been handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Waiting for an entry means that it is on disk: a crash loses nothing that was waited for.
    #[default]
    Strict,
    /// Waiting for an entry means that it is in the queue: a crash of the process loses what was
    /// called in the last few milliseconds, a crash of the machine perhaps more. Calls that began
    /// with [`Recorder::begin_durably`] or [`Recorder::begin_claiming`] are as with `Strict`.
    Relaxed,
}

/// Options of a [`Recorder`].
#[derive(Clone, Copy, Debug)]
pub struct RecorderOptions {
    /// Guarantee for entries.
    pub durability: Durability,
    /// The most calls that may be open or unwritten at once; further ones wait to begin.
    pub max_unwritten: usize,
    /// The most bytes of unwritten entries with which a call may still begin. Ends are taken beyond
    /// it, at most one for each open call.
    pub max_unwritten_bytes: usize,
    /// Time for which entries may stay unstored, by a disk that hangs for instance, before every
    /// waiting caller is told that the ledger is unavailable and no call can begin. The check is
    /// made four times in that time, so it may take a quarter longer.
    pub max_wait: Duration,
    /// The most refusals of the same principal, capability and reason that are written one by one
    /// in [`crate::recorder::refusals::REFUSAL_WINDOW`]; further ones are counted and noted together.
    pub max_refusals: u32,
    /// Bounds on approvals that wait for a decision.
    pub pending_approvals: PendingBounds,
    /// The error code that refused claims are answered with, for the record.
    pub claim_refusal_code: Option<i32>,
    /// Clock in microseconds since the epoch, UTC, for ends of calls that were dropped.
    pub now: fn() -> u64,
}

/// Writes down what is called. Clones are cheap and write to the same ledger.
///
/// When the last clone is dropped, or at [`Recorder::close`], no further call can begin; the thread
/// that writes goes on until every open call has ended and been stored.
#[derive(Clone, Debug)]
pub struct Recorder {
    shared: Arc<Shared>,
    handle: Arc<Handle>,
    takes_charges: bool,
    keeps_entries: bool,
    reader: Option<EndReader>,
}

/// Closes the queue when no handle is left that could begin a call.
#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    ending: watch::Receiver<Option<Ending>>,
}

/// A call that has begun and not yet ended.
///
/// Recording its end never waits, so a call whose future is dropped is recorded all the same, as
/// [`Outcome::Abandoned`] at its estimated cost.
#[derive(Debug)]
#[must_use = "dropping it records that the call was abandoned"]
pub struct OpenCall {
    shared: Arc<Shared>,
    call: CallId,
    at_us: u64,
    estimated_cost_micros: u64,
    /// True if the call has claimed an idempotency key, so that its result is kept for a
    /// repetition.
    holds_key: bool,
    /// Account of the call's cost, charged with its end if the cost differs from the estimate.
    account: Option<Account>,
    /// Cost that is charged in place of that of the end.
    charged_micros: Option<u64>,
    /// Use whose cost is corrected by that of the end.
    corrects: Option<Counted>,
    /// True if the start was written durably, so that the end is written durably, too.
    is_durable: bool,
    /// False if the store keeps no entries.
    is_kept: bool,
    ended: bool,
}

/// Resolves when the end of a call is as durable as promised. Dropping it loses nothing: the entry
/// has been handed over.
#[derive(Debug)]
#[must_use = "the end is handed over, but only this tells when it is on disk"]
pub struct Finished(Option<Committed>);

/// Resolves when a group has been stored, or at once while the store fails.
#[derive(Debug)]
pub(crate) struct Committed {
    shared: Arc<Shared>,
    number: u64,
}

/// A call was not recorded, or it is not known yet that it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The store fails. It is tried again; [`Recorder::health`] tells why it fails.
    #[error("the ledger cannot be written at present")]
    Unavailable,
    /// The recorder has been closed.
    #[error("the ledger has been closed")]
    Closed,
    /// The thread that writes has ended.
    #[error("the ledger has stopped")]
    Stopped,
    /// The store knows neither approvals nor keys.
    #[error("the ledger keeps no approvals and keys")]
    Unsupported,
}

/// A call may not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// The call is not on record, or it is unknown yet whether it is.
    #[error("the call is not on record")]
    Record(#[source] RecordError),
    /// The call was refused one of its claims. The call is on record, and ended as denied.
    #[error("{0}")]
    Refused(ClaimRefusal),
}

/// An approval was not asked for or not decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalError {
    /// The operation is not known to be on record.
    #[error("the approval is not on record")]
    Record(#[source] RecordError),
    /// The operation was refused.
    #[error("{0}")]
    Refused(ApprovalProblem),
}

/// A recorder ended with entries that could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{unwritten_entries} entries of the ledger could not be stored")]
pub struct CloseError {
    /// Number of lost entries.
    pub unwritten_entries: u64,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            durability: Durability::Strict,
            max_unwritten: DEFAULT_MAX_UNWRITTEN,
            max_unwritten_bytes: DEFAULT_MAX_UNWRITTEN_BYTES,
            max_wait: DEFAULT_MAX_WAIT,
            max_refusals: DEFAULT_MAX_REFUSALS,
            pending_approvals: PendingBounds::default(),
            claim_refusal_code: None,
            now: system_now_us,
        }
    }
}

/// Microseconds since the epoch, UTC, by the clock of this machine.
#[must_use]
pub fn system_now_us() -> u64 {
    let elapsed = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
}

impl Recorder {
    /// Starts the thread that writes to `store`. Calls that an earlier process left open are ended
    /// as [`Outcome::Unknown`] first.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn spawn(store: impl LedgerStore, options: RecorderOptions) -> io::Result<Self> {
        Self::start(store, options, None)
    }

    /// As [`Recorder::spawn`], with a hook that sees what is stored and adds to it.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn spawn_with_hook(
        store: impl LedgerStore,
        options: RecorderOptions,
        hook: impl CommitHook,
    ) -> io::Result<Self> {
        Self::start(store, options, Some(Box::new(hook)))
    }

    fn start(
        store: impl LedgerStore,
        options: RecorderOptions,
        mut hook: Option<Box<dyn CommitHook>>,
    ) -> io::Result<Self> {
        let takes_charges = store.takes_charges();
        let keeps_entries = store.keeps_entries();
        let reader = store.find_end().map(EndReader);
        let shared = Arc::new(Shared::new(options));
        if let Some(hook) = &mut hook {
            shared.push_noted(hook.opening(store.tail(), (options.now)()));
        }
        shared.push_interrupted(store.interrupted());
        let (sender, ending) = watch::channel(None);
        writer::spawn(Arc::clone(&shared), store, hook, sender)?;
        let handle = Arc::new(Handle {
            shared: Arc::clone(&shared),
            ending,
        });
        Ok(Self {
            shared,
            handle,
            takes_charges,
            keeps_entries,
            reader,
        })
    }

    /// Records the start of a call. It waits while too many are open or unwritten, and, unless
    /// durability is relaxed, until the start is on disk.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: the call must not run. If its start had been handed over already, it is
    /// ended as denied for the reason `ledger_unavailable`.
    ///
    /// # Cancel safety
    ///
    /// A future dropped before it is ready has recorded nothing, or the start and that the call was
    /// abandoned.
    pub async fn begin(&self, start: &Start<'_>) -> Result<OpenCall, RecordError> {
        let waits = self.shared.options.durability == Durability::Strict;
        self.begin_and_wait(start, waits).await
    }

    /// Like [`Recorder::begin`], but waits until the start is on disk even with relaxed durability, and
    /// [`OpenCall::finish`] until the end is: for calls whose effects must have a record after a crash.
    ///
    /// # Errors
    ///
    /// As [`Recorder::begin`] has them.
    ///
    /// # Cancel safety
    ///
    /// As [`Recorder::begin`] has it.
    pub async fn begin_durably(&self, start: &Start<'_>) -> Result<OpenCall, RecordError> {
        self.begin_and_wait(start, true).await
    }

    async fn begin_and_wait(
        &self,
        start: &Start<'_>,
        waits: bool,
    ) -> Result<OpenCall, RecordError> {
        if !self.keeps_entries {
            self.shared.may_begin()?;
            let mut open = self.open(start, false, false);
            open.is_kept = false;
            return Ok(open);
        }
        let (open, number) = self
            .hand_over(|shared| {
                let pushed = shared.push_start(start, waits)?;
                Ok(pushed.map(|number| (self.open(start, false, waits), number)))
            })
            .await?;
        if waits && let Err(error) = self.committed(number).await {
            open.never_ran();
            return Err(error);
        }
        Ok(open)
    }

    /// Records the start of a call that may run only if it is given what it claims: all of it or
    /// nothing, in the transaction that stores the start. It waits for that transaction whatever
    /// the durability. A call that is refused is ended as denied in the same transaction.
    ///
    /// # Errors
    ///
    /// [`BeginError`]: the call must not run. If nobody can say whether it was given what it
    /// claims, an approval that it was given is used up all the same, and a key is given back.
    ///
    /// # Cancel safety
    ///
    /// A future dropped before it is ready has recorded nothing, or the start and that the call was
    /// abandoned or denied; what it was given is used up.
    pub async fn begin_claiming(
        &self,
        start: &Start<'_>,
        claims: &[Claim],
    ) -> Result<OpenCall, BeginError> {
        let holds_key = claims.iter().any(|claim| matches!(claim, Claim::Key(_)));
        let claim = || Operation::Claim {
            call: start.call,
            at_us: start.at_us,
            claims: claims.to_vec(),
            refusal_code: self.shared.options.claim_refusal_code,
        };
        let slot = Slot::new();
        let (mut awaited, number) = self
            .hand_over(|shared| {
                let pushed = shared.push_claiming(start, claim(), &slot)?;
                Ok(pushed.map(|number| {
                    let open = self.open(start, holds_key, true);
                    (AwaitedClaim::new(open, Arc::clone(&slot)), number)
                }))
            })
            .await
            .map_err(BeginError::Record)?;
        if let Err(error) = self.committed(number).await {
            awaited.never_ran();
            return Err(BeginError::Record(error));
        }
        let mut open = awaited.take();
        match self.shared.take_outcome(&slot) {
            Some(OperationOutcome::Claimed) => Ok(open),
            Some(OperationOutcome::ClaimRefused(refusal)) => {
                open.ended = true; // by the store
                let checked = self.checked(refusal).await;
                Err(checked.map_or_else(BeginError::Record, BeginError::Refused))
            }
            _ => {
                open.never_ran();
                Err(BeginError::Record(RecordError::Unsupported))
            }
        }
    }

    /// True if entries of calls are kept ([`LedgerStore::keeps_entries`]). If not, what [`Start`] and [`End`] say
    /// beside the call's id does not matter, unless the call claims something.
    #[must_use]
    pub fn keeps_entries(&self) -> bool {
        self.keeps_entries
    }

    /// True if the cost of a call can be charged with its end ([`OpenCall::charge_to`]).
    #[must_use]
    pub fn takes_charges(&self) -> bool {
        self.takes_charges
    }

    fn open(&self, start: &Start<'_>, holds_key: bool, is_durable: bool) -> OpenCall {
        OpenCall {
            shared: Arc::clone(&self.shared),
            call: start.call,
            at_us: start.at_us,
            estimated_cost_micros: start.estimated_cost_micros,
            holds_key,
            account: None,
            charged_micros: None,
            corrects: None,
            is_durable,
            is_kept: true,
            ended: false,
        }
    }

    /// Tells what a call would be told that claims this key now; `None` when the key is free. It
    /// claims nothing.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: nobody can say.
    pub async fn find_key(&self, claim: &KeyClaim) -> Result<Option<ClaimRefusal>, RecordError> {
        match self.operate(|| Operation::FindKey(claim.clone())).await? {
            OperationOutcome::Key(None) => Ok(None),
            OperationOutcome::Key(Some(refusal)) => self.checked(refusal).await.map(Some),
            _ => Err(RecordError::Unsupported),
        }
    }

    /// Compares a kept answer with the end of its call. If the answer was changed, the outcome of
    /// the call is unknown.
    async fn checked(&self, refusal: ClaimRefusal) -> Result<ClaimRefusal, RecordError> {
        let (call, succeeded, text) = match refusal {
            ClaimRefusal::Done {
                call,
                result:
                    Kept {
                        succeeded,
                        result: Some(text),
                    },
            } => (call, succeeded, text),
            refusal => return Ok(refusal),
        };
        if let Some(reader) = &self.reader
            && !reader.has(call, succeeded, &text).await?
        {
            tracing::error!(%call, "the answer kept under an idempotency key is not the one that the ledger has");
            return Ok(ClaimRefusal::Unknown { call });
        }
        let result = Some(kept::answer(&text).to_owned());
        let result = Kept { succeeded, result };
        Ok(ClaimRefusal::Done { call, result })
    }

    /// Asks for an approval, on record. If one for the same is pending, approved or denied already,
    /// and has not expired, that one is told and nothing is recorded.
    ///
    /// # Errors
    ///
    /// [`ApprovalError`]: too many are pending, or nobody can say whether it was asked for.
    pub async fn request_approval(
        &self,
        approval: &NewApproval,
    ) -> Result<Approval, ApprovalError> {
        let bounds = self.shared.options.pending_approvals;
        let operation = || Operation::RequestApproval {
            approval: approval.clone(),
            bounds,
        };
        approval_of(self.operate(operation).await)
    }

    /// Decides a pending approval, or takes a decision back, on record.
    ///
    /// # Errors
    ///
    /// [`ApprovalError`]: it cannot be decided, or nobody can say whether it was.
    pub async fn decide_approval(
        &self,
        approval: ApprovalId,
        verdict: Verdict,
    ) -> Result<Approval, ApprovalError> {
        let operation = || Operation::DecideApproval {
            approval,
            verdict: verdict.clone(),
        };
        approval_of(self.operate(operation).await)
    }

    /// Has something done by the store, and tells what came of it.
    async fn operate(
        &self,
        operation: impl Fn() -> Operation,
    ) -> Result<OperationOutcome, RecordError> {
        let slot = Slot::new();
        let number = self
            .hand_over(|shared| shared.push_operation(operation(), &slot))
            .await?;
        self.committed(number).await?;
        self.shared
            .take_outcome(&slot)
            .ok_or(RecordError::Unsupported)
    }

    /// Records something other than a call, and waits as [`Recorder::begin`] does.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: nobody can say yet that it is on disk.
    ///
    /// # Cancel safety
    ///
    /// A future dropped before it is ready has recorded nothing or all of it.
    pub async fn note(&self, note: &Note<'_>) -> Result<(), RecordError> {
        let number = self
            .hand_over(|shared| shared.push_note(note, true))
            .await?;
        match self.shared.options.durability {
            Durability::Strict => self.committed(number).await,
            Durability::Relaxed => Ok(()),
        }
    }

    /// Records something other than a call without waiting, also while the store fails.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: so much is unwritten that it was not taken, or nothing can be written any
    /// more, because the recorder has been closed and has come to its end for instance.
    pub fn note_later(&self, note: &Note<'_>) -> Result<(), RecordError> {
        match self.shared.push_note(note, false)? {
            Ok(_) => Ok(()),
            Err(_) => Err(RecordError::Unavailable),
        }
    }

    /// Records a call that is refused, start and end together, and waits as [`Recorder::begin`]
    /// does. Use it for denials and for calls with wrong arguments that never ran.
    ///
    /// Denials that flood are not written one by one, but counted and noted together a little
    /// later ([`RecorderOptions::max_refusals`]); for those this does not wait.
    ///
    /// # Errors
    ///
    /// [`RecordError`]: nobody can say yet that it is on disk. The refusal stands all the same.
    ///
    /// # Cancel safety
    ///
    /// A future dropped before it is ready has recorded nothing or both.
    pub async fn refuse(&self, start: &Start<'_>, end: &End<'_>) -> Result<(), RecordError> {
        if !self.keeps_entries || !self.shared.refusals.admit(start, end) {
            return Ok(());
        }
        let number = self
            .hand_over(|shared| shared.push_refusal(start, end))
            .await?;
        match self.shared.options.durability {
            Durability::Strict => self.committed(number).await,
            Durability::Relaxed => Ok(()),
        }
    }

    /// Returns true if calls can begin: neither does the store fail nor has the recorder ended.
    /// Cheap enough to be asked for every call.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        !self.shared.is_refusing()
    }

    /// State of the ledger.
    #[must_use]
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Lets no further call begin, waits until every open call has ended, and until everything is
    /// stored. It waits as long as calls run: bound it, and drop the calls when time is up.
    ///
    /// # Errors
    ///
    /// [`CloseError`] when the store failed to the last.
    ///
    /// # Cancel safety
    ///
    /// The recorder stays closed; calling again goes on waiting.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.shared.close();
        let mut ending = self.handle.ending.clone();
        let ending = match ending.wait_for(Option::is_some).await {
            Ok(ending) => *ending,
            // The writer is gone without a word: it panicked.
            Err(_) => None,
        };
        match ending {
            Some(Ending {
                unwritten_entries: 0,
            }) => Ok(()),
            Some(Ending { unwritten_entries }) => Err(CloseError { unwritten_entries }),
            None => Err(CloseError {
                unwritten_entries: self.health().unwritten_entries,
            }),
        }
    }

    /// Takes room and pushes; when the queue is too long, waits for its group and tries again.
    async fn hand_over<T>(
        &self,
        push: impl Fn(&Shared) -> Result<Result<T, u64>, RecordError>,
    ) -> Result<T, RecordError> {
        self.shared.take_room().await?;
        let room = RoomGuard(&self.shared);
        loop {
            match push(&self.shared)? {
                Ok(pushed) => {
                    std::mem::forget(room); // the entry carries it from here
                    return Ok(pushed);
                }
                Err(number) => self.committed(number).await?,
            }
        }
    }

    fn committed(&self, number: u64) -> Committed {
        Committed {
            shared: Arc::clone(&self.shared),
            number,
        }
    }
}

fn approval_of(outcome: Result<OperationOutcome, RecordError>) -> Result<Approval, ApprovalError> {
    match outcome.map_err(ApprovalError::Record)? {
        OperationOutcome::Approval(approval) => Ok(*approval),
        OperationOutcome::ApprovalRefused(problem) => Err(ApprovalError::Refused(problem)),
        _ => Err(ApprovalError::Record(RecordError::Unsupported)),
    }
}

/// A call that has begun if it is given what it claims. When it is given up, it must not be ended
/// before the store has said: a call that is refused is ended by the store.
struct AwaitedClaim {
    open: Option<OpenCall>,
    slot: Arc<Slot>,
}

impl AwaitedClaim {
    fn new(open: OpenCall, slot: Arc<Slot>) -> Self {
        Self {
            open: Some(open),
            slot,
        }
    }

    /// The call, once the store has said.
    fn take(&mut self) -> OpenCall {
        self.open.take().expect("it is taken once")
    }

    fn never_ran(&mut self) {
        self.give_up(Outcome::Denied {
            reason: LEDGER_UNAVAILABLE,
        });
    }

    fn give_up(&mut self, outcome: Outcome<&'static str>) {
        let Some(mut open) = self.open.take() else {
            return;
        };
        open.ended = true;
        let unclaimed = Unclaimed {
            call: open.call,
            holds_key: open.holds_key,
            outcome,
        };
        open.shared.give_up(&self.slot, Some(unclaimed));
    }
}

impl Drop for AwaitedClaim {
    fn drop(&mut self) {
        self.give_up(Outcome::Abandoned);
    }
}

/// Room that is given back unless an entry takes it along.
struct RoomGuard<'a>(&'a Shared);

impl Drop for RoomGuard<'_> {
    fn drop(&mut self) {
        self.0.return_room();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl OpenCall {
    /// Names the call.
    #[must_use]
    pub fn call(&self) -> CallId {
        self.call
    }

    /// Charges the cost of the call to this account with its end, in the same transaction, if it
    /// differs from the estimate. Only for stores that take charges ([`Recorder::takes_charges`]).
    pub fn charge_to(&mut self, account: Account) {
        self.account = Some(account);
    }

    /// Charges this cost with the end of a call whose own cost goes on record later, by another entry.
    pub fn charge_meanwhile(&mut self, cost_micros: u64) {
        self.charged_micros = Some(cost_micros);
    }

    /// Corrects with the end of this entry what was counted for a use before. The account has a number of its own for
    /// that, which no reservation has. Only for stores that take charges ([`Recorder::takes_charges`]).
    pub fn correct(&mut self, account: Account, counted: Counted) {
        self.account = Some(account);
        self.corrects = Some(counted);
    }

    /// Charges nothing with the end of a call that has not run.
    pub fn charge_nothing(&mut self) {
        self.account = None;
    }

    /// Records how the call ended. The entry is handed over before this returns.
    pub fn finish(self, end: &End<'_>) -> Finished {
        self.finish_keeping(end, None)
    }

    /// As [`OpenCall::finish`], for a call that has claimed an idempotency key: keeps the answer
    /// for a caller that repeats the call with it, up to
    /// [`crate::record::operation::MAX_KEPT_BYTES`]. A call that was denied or invalid never ran
    /// and gives its key back.
    pub fn finish_keeping(self, end: &End<'_>, result: Option<&str>) -> Finished {
        self.finish_as(end, end.outcome.plain(), result)
    }

    /// As [`OpenCall::finish`], for a call that has done nothing yet, whatever its end says: because
    /// it was turned away, or has asked something and will be made again. It gives its key back.
    pub fn finish_release_key(self, end: &End<'_>) -> Finished {
        self.finish_as(end, Outcome::Invalid, None)
    }

    /// As [`OpenCall::finish`], for a call that may or may not have been done, whatever its end
    /// says: a person must look before a caller gets any other answer under its key.
    pub fn finish_unknown(self, end: &End<'_>) -> Finished {
        self.finish_as(end, Outcome::Unknown, None)
    }

    fn finish_as(mut self, end: &End<'_>, kept: Outcome<()>, result: Option<&str>) -> Finished {
        let charge = self.charge(end);
        // Whoever is told of the end may count on what it cost being counted, on every server.
        let waits = charge.is_some() || self.is_durable;
        let number = self.record(end, kept, result, charge);
        Finished(waits.then(|| Committed {
            shared: Arc::clone(&self.shared),
            number,
        }))
    }

    /// The charge for the call, if its cost differs from the estimate.
    fn charge(&mut self, end: &End<'_>) -> Option<Charge> {
        let account = self.account.take()?;
        let corrects = self.corrects.take();
        let cost_micros = self.charged_micros.unwrap_or(end.cost_micros);
        (corrects.is_some() || cost_micros != self.estimated_cost_micros).then_some(Charge {
            account,
            cost_micros,
            corrects,
        })
    }

    fn never_ran(mut self) {
        let reason = LEDGER_UNAVAILABLE;
        let denied = Outcome::Denied { reason: () };
        self.record(&End::new(Outcome::Denied { reason }), denied, None, None);
    }

    /// `kept` is how it ended as far as its key goes.
    fn record(
        &mut self,
        end: &End<'_>,
        kept: Outcome<()>,
        result: Option<&str>,
        charge: Option<Charge>,
    ) -> u64 {
        self.ended = true;
        if !self.is_kept {
            return 0;
        }
        let keep = self.holds_key.then(|| {
            let result = result.filter(|text| text.len() <= MAX_KEPT_BYTES);
            let result = result.map(kept::sealed);
            let digest = kept::digest(result.as_deref());
            let keep = Operation::KeepResult {
                call: self.call,
                outcome: kept,
                result,
            };
            (keep, digest)
        });
        self.shared
            .push_end(self.call, end, keep, charge, self.is_durable)
    }

    fn age_us(&self) -> u64 {
        (self.shared.options.now)().saturating_sub(self.at_us)
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if !self.ended {
            let end = End {
                duration_us: self.age_us(),
                cost_micros: self.estimated_cost_micros,
                ..End::new(Outcome::Abandoned)
            };
            self.record(&end, Outcome::Abandoned, None, None);
        }
    }
}

/// Pause between two looks at whether a failing store works again.
const PAUSE: Duration = Duration::from_millis(50);

impl Finished {
    /// Waits on after an error, until the end is stored or for [`RecorderOptions::max_wait`].
    ///
    /// # Errors
    ///
    /// The last one, when the store has not worked again by then, or never will.
    pub async fn after_all(mut self) -> Result<(), RecordError> {
        let Some(mut committed) = self.0.take() else {
            return Ok(());
        };
        let until = tokio::time::Instant::now() + committed.shared.options.max_wait;
        loop {
            match (&mut committed).await {
                Err(RecordError::Unavailable) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(PAUSE).await;
                }
                result => return result,
            }
        }
    }
}

impl Future for Finished {
    /// An error means that the end is handed over and it is not known when it will be on disk.
    type Output = Result<(), RecordError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(committed) = &mut self.0 {
            let result = ready!(Pin::new(committed).poll(cx));
            if result.is_ok() {
                self.0 = None;
            }
            return Poll::Ready(result);
        }
        Poll::Ready(Ok(()))
    }
}

impl Future for Committed {
    type Output = Result<(), RecordError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.shared.poll_committed(self.number, cx)
    }
}
