//! The handover of a call to a task.

use adapter_tools::{Progress, TaskHandle};
use serde_json::Value;
use std::{
    fmt,
    sync::{Arc, OnceLock},
};
use tokio::sync::watch;

/// The task that a call has become, as the call sees it.
pub(crate) trait TaskStatus: fmt::Debug + Send + Sync + 'static {
    /// Id of the task.
    fn task(&self) -> &str;

    /// Makes its status say how far the call has come.
    fn say(&self, progress: &Progress);

    /// Has whoever takes the task over go on with the call by `resume`, instead of beginning it again.
    fn keep(&self, resume: &Value);

    /// True if the task is left for another process to go on with.
    fn is_left(&self) -> bool;
}

/// The way of a call to a caller that no longer waits for it.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    stage: watch::Sender<Stage>,
    /// The task that it has become.
    task: OnceLock<Box<dyn TaskStatus>>,
    /// Means by which another process can go on with the call.
    resume: OnceLock<Value>,
    /// Means to go on with a call that another process has begun.
    given: Option<Value>,
}

impl TaskHandle for Handover {
    fn begin(&self) {
        self.ask();
    }

    fn keep(&self, resume: Value) {
        let resume = self.resume.get_or_init(|| resume);
        if let Some(task) = self.task.get() {
            task.keep(resume);
        }
    }

    fn resume(&self) -> Option<&Value> {
        self.given.as_ref()
    }

    fn is_left(&self) -> bool {
        self.task.get().is_some_and(|it| it.is_left())
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The call may still be refused.
    #[default]
    Outside,
    /// The call may still be refused, and waits for its turn; its caller need not.
    PutOff,
    /// The call was let through, and is on record.
    Begun,
    /// The handler says that its caller need not wait.
    Asked,
}

impl Handover {
    /// The handover of a call whose caller does not wait from the beginning, and which goes on by `given` with one
    /// that was begun before.
    pub(crate) fn of(task: impl TaskStatus, given: Option<Value>) -> Arc<Self> {
        let handover = Self {
            given,
            ..Self::default()
        };
        handover.became(task);
        Arc::new(handover)
    }

    /// Sends reports of the call to its task from now on.
    pub(crate) fn became(&self, task: impl TaskStatus) {
        // A call becomes one task.
        let _ = self.task.set(Box::new(task));
        if let (Some(task), Some(resume)) = (self.task.get(), self.resume.get()) {
            task.keep(resume);
        }
    }

    /// The task, if it is one by now.
    pub(crate) fn task(&self) -> Option<&str> {
        self.task.get().map(|it| it.task())
    }

    /// Reports progress to the task, if there is one.
    pub(crate) fn report(&self, progress: &Progress) {
        if let Some(task) = self.task.get() {
            task.say(progress);
        }
    }

    /// Answers the caller before the call has its turn.
    pub(crate) fn put_off(&self) {
        self.reach(Stage::PutOff);
    }

    /// Marks that from here on the call alone decides about its outcome.
    pub(crate) fn begin(&self) {
        self.reach(Stage::Begun);
    }

    /// Answers the caller now; more than once is the same as once.
    pub(crate) fn ask(&self) {
        self.reach(Stage::Asked);
    }

    /// True if the call was let through.
    pub(crate) fn has_begun(&self) -> bool {
        Stage::Begun <= *self.stage.borrow()
    }

    /// True if the handler says that its caller need not wait.
    pub(crate) fn was_asked(&self) -> bool {
        Stage::Asked <= *self.stage.borrow()
    }

    /// Resolves when the call is let through, or has to wait for its turn; never, if it is refused.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost, here and in [`Handover::asked`].
    pub(crate) async fn begun_or_put_off(&self) {
        self.reached(Stage::PutOff).await;
    }

    /// Resolves when the call says that its caller need not wait.
    pub(crate) async fn asked(&self) {
        self.reached(Stage::Asked).await;
    }

    async fn reached(&self, stage: Stage) {
        // The sender lives as long as `self`.
        let _ = self.stage.subscribe().wait_for(|now| stage <= *now).await;
    }

    fn reach(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let is_further = *now < stage;
            *now = stage.max(*now);
            is_further
        });
    }
}
