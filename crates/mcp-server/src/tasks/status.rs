//! Status messages of tasks, made from their handlers' progress reports.

use crate::{
    invocation::handover::TaskStatus,
    tasks::{registry::Tasks, running::RunningTask},
};
use adapter_tools::Progress;
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
    /// Time of the last report that was passed on.
    last: Mutex<Option<Instant>>,
}

impl StatusMessages {
    pub(crate) fn of(tasks: &Arc<Tasks>, live: &Arc<RunningTask>) -> Self {
        Self {
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
