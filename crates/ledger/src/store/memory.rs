//! A ledger in memory.

use crate::{
    record::{
        approval::{Approval, ApprovalId, ApprovalState, NewApproval},
        entry::Entry,
        id::CallId,
        operation::OperationOutcome,
    },
    store::{
        Appended, Group, LedgerStore, StoreError, Tail, claims,
        claims::{ClaimStore, KeyRow, KeyState},
        entries,
    },
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use uuid::Uuid;

/// A ledger in memory, for tests and for servers that keep none. Clones share it.
///
/// It grows without bound, as a ledger does.
#[derive(Clone, Debug, Default)]
pub struct MemoryLedger(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    entries: Vec<Entry>,
    tail: Tail,
    groups: u64,
    failing: bool,
    failing_after: bool,
    /// The group stored last, and what came of it.
    last: Option<(Uuid, Vec<OperationOutcome>)>,
    rows: Rows,
}

/// The rows that a database would have.
#[derive(Debug, Default)]
struct Rows {
    approvals: BTreeMap<ApprovalId, (Approval, bool)>,
    keys: BTreeMap<(String, String), KeyRow>,
}

impl MemoryLedger {
    /// Entries appended so far.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.lock().entries.clone()
    }

    /// In how many groups that was.
    #[must_use]
    pub fn groups(&self) -> u64 {
        self.lock().groups
    }

    /// The approvals that are kept, by their names.
    #[must_use]
    pub fn approvals(&self) -> Vec<Approval> {
        let state = self.lock();
        let approvals = state.rows.approvals.values();
        approvals.map(|(approval, _)| approval.clone()).collect()
    }

    /// Makes it fail, or work again.
    pub fn set_failing(&self, failing: bool) {
        self.lock().failing = failing;
    }

    /// Makes it store groups and say that it failed, as a database does whose answer is lost.
    pub fn set_failing_after(&self, failing: bool) {
        self.lock().failing_after = failing;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        if self.failing {
            return Err(StoreError("the disk is full".into()));
        }
        if let Some((last, outcomes)) = &self.last
            && *last == group.id
        {
            let outcomes = outcomes.clone();
            return self.answer(outcomes);
        }
        self.push(group.body, group.count)?;
        let applied = now(claims::apply(&mut self.rows, group.operations));
        self.push(&applied.body, applied.count)?;
        self.groups += 1;
        self.last = Some((group.id, applied.outcomes.clone()));
        self.answer(applied.outcomes)
    }

    fn answer(&self, outcomes: Vec<OperationOutcome>) -> Result<Appended, StoreError> {
        if self.failing_after {
            return Err(StoreError("the answer is lost".into()));
        }
        Ok(Appended {
            tail: self.tail,
            outcomes,
        })
    }

    fn push(&mut self, body: &[u8], count: u64) -> Result<(), StoreError> {
        let more =
            entries(body, self.tail.next_sequence).map_err(|error| StoreError(error.into()))?;
        self.entries.extend(more);
        self.tail = self.tail.after(body, count);
        Ok(())
    }
}

impl LedgerStore for MemoryLedger {
    fn tail(&self) -> Tail {
        self.lock().tail
    }

    async fn append(&mut self, group: Group<'_>) -> Result<Appended, StoreError> {
        self.lock().append(group)
    }

    async fn tidy(&mut self, now_us: u64) -> Result<bool, StoreError> {
        let mut state = self.lock();
        if state.failing {
            return Ok(false);
        }
        let (applied, more) = now(claims::tidy(&mut state.rows, now_us));
        state.push(&applied.body, applied.count)?;
        Ok(more)
    }
}

/// The output of a future that never waits, as those over rows in memory.
fn now<T>(future: impl Future<Output = Result<T, Infallible>>) -> T {
    claims::at_once(future).unwrap_or_else(|never| match never {})
}

impl ClaimStore for Rows {
    type Error = Infallible;

    fn approval(
        &mut self,
        id: ApprovalId,
    ) -> impl Future<Output = Result<Option<Approval>, Infallible>> + Send {
        ready(Ok(self.approvals.get(&id).map(|(it, _)| it.clone())))
    }

    fn live_approval(
        &mut self,
        new: &NewApproval,
        now_us: u64,
    ) -> impl Future<Output = Result<Option<Approval>, Infallible>> + Send {
        let live = self
            .approvals
            .values()
            .map(|(it, _)| it)
            .filter(|it| it.binding == new.binding && it.needs == new.needs)
            .filter(|it| {
                let state = it.state;
                now_us < it.expires_us && (state.can_change() || state == ApprovalState::Denied)
            })
            .max_by_key(|it| it.state == ApprovalState::Approved);
        ready(Ok(live.cloned()))
    }

    fn pending(
        &mut self,
        principal: &str,
        now_us: u64,
    ) -> impl Future<Output = Result<(u64, u64), Infallible>> + Send {
        let live = || {
            let all = self.approvals.values().map(|(it, _)| it);
            all.filter(|it| now_us < it.expires_us)
        };
        let pending = || live().filter(|it| it.state == ApprovalState::Pending);
        let declined = live().filter(|it| it.was_declined());
        let of_principal = pending().chain(declined);
        let of_principal = of_principal.filter(|it| it.principal == principal).count();
        ready(Ok((of_principal as u64, pending().count() as u64)))
    }

    fn put_approval(
        &mut self,
        approval: &Approval,
        noted: bool,
    ) -> impl Future<Output = Result<(), Infallible>> + Send {
        self.approvals
            .insert(approval.id, (approval.clone(), noted));
        ready(Ok(()))
    }

    fn unnoted(
        &mut self,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Approval>, Infallible>> + Send {
        let unnoted = self.approvals.values().filter(|(_, noted)| !noted);
        ready(Ok(unnoted.take(max).map(|(it, _)| it.clone()).collect()))
    }

    fn expired(
        &mut self,
        now_us: u64,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Approval>, Infallible>> + Send {
        let all = self.approvals.values().map(|(it, _)| it);
        let expired = all.filter(|it| it.state.can_change() && it.expires_us <= now_us);
        ready(Ok(expired.take(max).cloned().collect()))
    }

    fn remove_old(
        &mut self,
        approvals_us: u64,
        keys_us: u64,
    ) -> impl Future<Output = Result<(), Infallible>> + Send {
        self.approvals.retain(|_, (it, noted)| {
            it.state.can_change() || !*noted || approvals_us <= it.expires_us
        });
        self.keys
            .retain(|_, row| row.state == KeyState::Running || keys_us < row.claim.until_us);
        ready(Ok(()))
    }

    fn key(
        &mut self,
        principal: &str,
        key: &str,
    ) -> impl Future<Output = Result<Option<KeyRow>, Infallible>> + Send {
        let row = self.keys.get(&(principal.to_owned(), key.to_owned()));
        ready(Ok(row.cloned()))
    }

    fn key_of(
        &mut self,
        call: CallId,
    ) -> impl Future<Output = Result<Option<KeyRow>, Infallible>> + Send {
        let row = self.keys.values().find(|row| row.claim.call == call);
        ready(Ok(row.cloned()))
    }

    fn put_key(&mut self, row: &KeyRow) -> impl Future<Output = Result<(), Infallible>> + Send {
        let name = (row.claim.principal.clone(), row.claim.key.clone());
        self.keys.insert(name, row.clone());
        ready(Ok(()))
    }

    fn remove_key(
        &mut self,
        principal: &str,
        key: &str,
    ) -> impl Future<Output = Result<(), Infallible>> + Send {
        self.keys.remove(&(principal.to_owned(), key.to_owned()));
        ready(Ok(()))
    }
}
