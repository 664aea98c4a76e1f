use crate::{
    CreateError, LimitKind, MAX_LISTED, StoreError, TaskId, TaskLimits, TaskRecord, TaskStore,
    record::RecordError,
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
    tasks: Mutex<HashMap<TaskId, TaskRecord>>,
}

impl MemoryTaskStore {
    /// An empty one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn tasks(&self) -> MutexGuard<'_, HashMap<TaskId, TaskRecord>> {
        // Every change is one call of the map: there is no half of one to be afraid of.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn create_now(&self, task: TaskRecord, limits: TaskLimits) -> Result<(), CreateError> {
        task.check_first()?;
        let mut tasks = self.tasks();
        if let Some(known) = tasks.get(&task.id) {
            return match *known == task {
                true => Ok(()),
                false => Err(RecordError::Taken.into()),
            };
        }
        let counted = || {
            tasks
                .values()
                .filter(|known| task.created_us < known.expires_us)
        };
        let of_principal = counted().filter(|known| known.principal == task.principal);
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
        tasks.insert(task.id.clone(), task);
        Ok(())
    }

    fn update_now(&self, task: TaskRecord) -> Result<bool, StoreError> {
        task.check()?;
        let mut tasks = self.tasks();
        let Some(known) = tasks.get_mut(&task.id) else {
            return Ok(false);
        };
        if *known == task {
            return Ok(true);
        }
        let follows = task.sequence.checked_sub(1) == Some(known.sequence)
            && !known.state.is_terminal()
            && known.principal == task.principal
            && known.capability == task.capability
            && known.protocol_version == task.protocol_version
            && known.created_us == task.created_us;
        if follows {
            *known = task;
        }
        Ok(follows)
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

    fn unfinished_now(&self) -> Vec<TaskRecord> {
        let tasks = self.tasks();
        let unfinished = tasks.values().filter(|task| !task.state.is_terminal());
        let mut unfinished: Vec<_> = unfinished.cloned().collect();
        unfinished.sort_by_key(|task| (task.created_us, task.id.clone()));
        unfinished
    }
}

impl TaskStore for MemoryTaskStore {
    fn create(
        &self,
        task: TaskRecord,
        limits: TaskLimits,
    ) -> BoxFuture<'_, Result<(), CreateError>> {
        ready(self.create_now(task, limits)).boxed()
    }

    fn get(&self, id: TaskId) -> BoxFuture<'_, Result<Option<TaskRecord>, StoreError>> {
        ready(Ok(self.tasks().get(&id).cloned())).boxed()
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

    fn remove(&self, id: TaskId) -> BoxFuture<'_, Result<(), StoreError>> {
        self.tasks().remove(&id);
        ready(Ok(())).boxed()
    }

    fn remove_expired(&self, now_us: u64) -> BoxFuture<'_, Result<usize, StoreError>> {
        let mut tasks = self.tasks();
        let before = tasks.len();
        tasks.retain(|_, task| now_us < task.expires_us);
        ready(Ok(before - tasks.len())).boxed()
    }

    fn unfinished(&self) -> BoxFuture<'_, Result<Vec<TaskRecord>, StoreError>> {
        ready(Ok(self.unfinished_now())).boxed()
    }
}
