use crate::{
    Begun, Claimed, CreateError, Lapsed, Lease, LimitKind, MAX_LISTED, Overseen, StoreError,
    TaskId, TaskLimits, TaskRecord, TaskStore,
    record::{self, RecordError},
};
use futures_util::{FutureExt, future::BoxFuture};
use std::{
    collections::HashMap,
    future::ready,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// A store that forgets everything when it is dropped: for tests, and for servers that may.
///
/// Its futures are ready at once, and what they do is done when they are made.
#[derive(Debug, Default)]
pub struct MemoryTaskStore {
    tasks: Mutex<HashMap<TaskId, Kept>>,
}

#[derive(Debug)]
struct Kept {
    record: TaskRecord,
    /// Of tasks that are not over.
    run: Option<Run>,
}

#[derive(Debug)]
struct Run {
    attempt: u64,
    lease: Lease,
    call: Option<String>,
}

impl Kept {
    /// Returns true if `task` is the next step.
    fn is_followed_by(&self, task: &TaskRecord) -> bool {
        let known = &self.record;
        task.sequence.checked_sub(1) == Some(known.sequence)
            && !known.state.is_terminal()
            && known.principal == task.principal
            && known.capability == task.capability
            && known.protocol_version == task.protocol_version
            && known.created_us == task.created_us
    }
}

impl MemoryTaskStore {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<TaskId, Kept>> {
        // Every change is one call of the map: there is no half of one to be afraid of.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_now(
        &self,
        task: TaskRecord,
        begun: Begun,
        limits: TaskLimits,
    ) -> Result<(), CreateError> {
        task.check_first(&begun)?;
        let mut tasks = self.tasks();
        if let Some(known) = tasks.get(&task.id) {
            return match known.record == task {
                true => Ok(()),
                false => Err(RecordError::Taken.into()),
            };
        }
        let counted = || {
            tasks
                .values()
                .filter(|known| task.created_us < known.record.expires_us)
        };
        let of_principal = counted().filter(|known| known.record.principal == task.principal);
        for (count, max, what) in [
            (
                of_principal.count(),
                limits.max_per_principal,
                LimitKind::PerPrincipal,
            ),
            (counted().count(), limits.max_total, LimitKind::Total),
        ] {
            if max <= count {
                return Err(CreateError::TooMany { max, what });
            }
        }
        let run = (!task.state.is_terminal()).then_some(Run {
            attempt: 1,
            lease: begun.lease,
            call: begun.call,
        });
        tasks.insert(task.id.clone(), Kept { record: task, run });
        Ok(())
    }

    fn update_now(&self, task: TaskRecord) -> Result<bool, StoreError> {
        task.check()?;
        let mut tasks = self.tasks();
        let Some(known) = tasks.get_mut(&task.id) else {
            return Ok(false);
        };
        if known.record == task {
            return Ok(true);
        }
        let follows = known.is_followed_by(&task);
        if follows {
            known.run = known.run.take().filter(|_| !task.state.is_terminal());
            known.record = task;
        }
        Ok(follows)
    }

    fn claim_now(
        &self,
        task: TaskRecord,
        lease: Lease,
        now_us: u64,
    ) -> Result<Option<Claimed>, StoreError> {
        task.check_claim(&lease)?;
        let mut tasks = self.tasks();
        let Some(known) = tasks.get_mut(&task.id) else {
            return Ok(None);
        };
        let follows = known.is_followed_by(&task);
        let is_known = known.record == task;
        let Some(run) = &mut known.run else {
            return Ok(None);
        };
        if follows && run.lease.until_us <= now_us {
            run.attempt += 1;
            run.lease = lease;
            known.record = task;
        } else if !is_known || run.lease.owner != lease.owner {
            return Ok(None);
        }
        Ok(Some(Claimed {
            attempt: run.attempt,
            call: run.call.clone(),
        }))
    }

    fn renew_now(&self, lease: &Lease) -> Vec<TaskId> {
        let mut tasks = self.tasks();
        let owned = tasks.iter_mut().filter_map(|(id, known)| {
            let run = known.run.as_mut()?;
            (run.lease.owner == lease.owner).then(|| {
                run.lease.until_us = lease.until_us;
                id.clone()
            })
        });
        owned.collect()
    }

    fn list_now(
        &self,
        principal: &str,
        protocol_version: &str,
        after: Option<&(u64, TaskId)>,
        most: usize,
    ) -> Vec<TaskRecord> {
        let place = |task: &TaskRecord| (task.created_us, task.id.clone());
        let tasks = self.tasks();
        let mut listed: Vec<_> = tasks
            .values()
            .map(|known| &known.record)
            .filter(|task| task.principal == principal && task.protocol_version == protocol_version)
            .filter(|task| after.is_none_or(|after| place(task) < *after))
            .collect();
        listed.sort_by_key(|task| std::cmp::Reverse(place(task)));
        let listed = listed.into_iter().take(most.min(MAX_LISTED));
        listed
            .map(|task| TaskRecord {
                state: task.state.without_text(),
                message: task.message.clone(),
                id: task.id.clone(),
                principal: task.principal.clone(),
                capability: task.capability.clone(),
                protocol_version: task.protocol_version.clone(),
                ..*task
            })
            .collect()
    }

    fn oversee_now(
        &self,
        now_us: u64,
        after: Option<&(u64, TaskId)>,
        most: usize,
    ) -> Vec<Overseen> {
        let place = |task: &TaskRecord| (task.created_us, task.id.clone());
        let tasks = self.tasks();
        let mut listed: Vec<_> = tasks
            .values()
            .filter(|known| after.is_none_or(|after| place(&known.record) < *after))
            .collect();
        listed.sort_by_key(|known| std::cmp::Reverse(place(&known.record)));
        let listed = listed.into_iter().take(most.min(MAX_LISTED));
        listed
            .map(|known| Overseen {
                record: TaskRecord {
                    state: known.record.state.without_text(),
                    ..known.record.clone()
                },
                run: known.run.as_ref().map(|run| record::Run {
                    owner: run.lease.owner.clone(),
                    attempt: run.attempt,
                    left_us: run.lease.until_us.saturating_sub(now_us),
                }),
            })
            .collect()
    }

    fn lapsed_now(&self, now_us: u64) -> Vec<Lapsed> {
        let tasks = self.tasks();
        let lapsed = tasks.values().filter_map(|known| {
            let run = known.run.as_ref()?;
            (run.lease.until_us <= now_us).then(|| Lapsed {
                record: known.record.clone(),
                attempt: run.attempt,
                has_call: run.call.is_some(),
            })
        });
        let mut lapsed: Vec<_> = lapsed.collect();
        lapsed.sort_by_key(|it| (it.record.created_us, it.record.id.clone()));
        lapsed
    }
}

impl TaskStore for MemoryTaskStore {
    fn create(
        &self,
        task: TaskRecord,
        begun: Begun,
        limits: TaskLimits,
    ) -> BoxFuture<'_, Result<(), CreateError>> {
        ready(self.create_now(task, begun, limits)).boxed()
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<TaskRecord>, StoreError>> {
        let found = self.tasks().get(&id).map(|known| known.record.clone());
        ready(Ok(found)).boxed()
    }

    fn update(&self, task: TaskRecord) -> BoxFuture<'_, Result<bool, StoreError>> {
        ready(self.update_now(task)).boxed()
    }

    fn list(
        &self,
        principal: String,
        protocol_version: String,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        let listed = self.list_now(&principal, &protocol_version, after.as_ref(), most);
        ready(Ok(listed)).boxed()
    }

    fn oversee(
        &self,
        now_us: u64,
        after: Option<(u64, TaskId)>,
        most: usize,
    ) -> BoxFuture<'_, Result<Vec<Overseen>, StoreError>> {
        ready(Ok(self.oversee_now(now_us, after.as_ref(), most))).boxed()
    }

    fn remove(&self, id: TaskId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.tasks().remove(&id);
        ready(Ok(())).boxed()
    }

    fn remove_expired(&self, now_us: u64) -> BoxFuture<'_, Result<usize, StoreError>> {
        let mut tasks = self.tasks();
        let before = tasks.len();
        tasks.retain(|_, known| now_us < known.record.expires_us);
        ready(Ok(before - tasks.len())).boxed()
    }

    fn lapsed(&self, now_us: u64) -> BoxFuture<'_, Result<Vec<Lapsed>, StoreError>> {
        ready(Ok(self.lapsed_now(now_us))).boxed()
    }

    fn claim(
        &self,
        task: TaskRecord,
        lease: Lease,
        now_us: u64,
    ) -> BoxFuture<'_, Result<Option<Claimed>, StoreError>> {
        ready(self.claim_now(task, lease, now_us)).boxed()
    }

    fn keep_call(&self, id: TaskId, call: String) -> BoxFuture<'_, Result<(), StoreError>> {
        if let Some(run) = self.tasks().get_mut(&id).and_then(|it| it.run.as_mut()) {
            run.call = Some(call);
        }
        ready(Ok(())).boxed()
    }

    fn renew(&self, lease: Lease) -> BoxFuture<'_, Result<Vec<TaskId>, StoreError>> {
        ready(Ok(self.renew_now(&lease))).boxed()
    }
}
