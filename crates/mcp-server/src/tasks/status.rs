//! Status messages of tasks, made from their handlers' progress reports.

use crate::{
    invocation::handover::TaskStatus,
    tasks::{registry::Tasks, running::RunningTask},
};
use adapter_tools::Progress;
use serde_json::Value;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::time::Instant;

/// The most characters of what a handler says that are passed on.
const MAX_CHARS: usize = 512;

/// The shortest interval of changes of a task by its handler's reports.
const EVERY: Duration = Duration::from_secs(1);

/// Passes a handler's reports on into the status message of its task.
pub(crate) struct StatusMessages {
    tasks: Arc<Tasks>,
    live: Arc<RunningTask>,
    /// Makes the text of a call that goes on with this one.
    text: TextOf,
    /// Time of the last report that was passed on.
    last: Mutex<Option<Instant>>,
}

/// Text that is stored of a call, which goes on by a value.
pub(crate) type TextOf = Box<dyn Fn(&Value) -> Option<String> + Send + Sync>;

impl StatusMessages {
    pub(crate) fn of(tasks: &Arc<Tasks>, live: &Arc<RunningTask>, text: TextOf) -> Self {
        Self {
            text,
            tasks: Arc::clone(tasks),
            live: Arc::clone(live),
            last: Mutex::new(None),
        }
    }
}

impl TaskStatus for StatusMessages {
    /// The task that it is said of.
    fn task(&self) -> &str {
        self.live.record.id.as_str()
    }

    /// Passes it on, unless something was just now: the next one says more anyway.
    fn say(&self, progress: &Progress) {
        let now = Instant::now();
        {
            let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| now < last + EVERY) {
                return;
            }
            *last = Some(now);
        }
        if self.live.say(in_words(progress), (self.tasks.clock)()) {
            self.tasks.publish(&self.live);
        }
    }

    fn keep(&self, resume: &Value) {
        let Some(text) = (self.text)(resume) else {
            return;
        };
        let (tasks, live) = (Arc::clone(&self.tasks), Arc::clone(&self.live));
        self.tasks.runtime.spawn(async move {
            let id = live.record.id.clone();
            match tasks.store.keep_call(id, text).await {
                Ok(()) => live.can_go_on_elsewhere(tasks.options().max_attempts),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    task = ?live.record.id,
                    "it could not be stored where a task is carried out; it ends with this process"
                ),
            }
        });
    }

    fn is_left(&self) -> bool {
        self.live.is_left()
    }
}

impl fmt::Debug for StatusMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StatusMessages")
            .field(&self.live.record.id)
            .finish()
    }
}

fn in_words(progress: &Progress) -> String {
    let Progress {
        progress: done,
        total,
        message,
    } = progress;
    let said = match (message, total) {
        (Some(message), _) => message.chars().take(MAX_CHARS).collect(),
        (None, Some(total)) => format!("{done} of {total}"),
        (None, None) => format!("{done}"),
    };
    // Control characters are nothing for people.
    said.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_put_in_words_and_cut() {
        let report = |total, message: Option<&str>| Progress {
            progress: 2.5,
            total,
            message: message.map(str::to_owned),
        };
        for (report, words) in [
            (report(None, None), "2.5"),
            (report(Some(4.0), None), "2.5 of 4"),
            (report(Some(4.0), Some("step\n2")), "step 2"),
        ] {
            assert_eq!(in_words(&report), words);
        }
        let long = "\u{4f1a}".repeat(2 * MAX_CHARS);
        let words = in_words(&report(None, Some(&long)));
        assert_eq!(words.chars().count(), MAX_CHARS);
    }
}
