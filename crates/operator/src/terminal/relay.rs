//! Messages that a thread of its own writes, so that a standard error which nobody reads holds up nothing else.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Most bytes of messages that wait to be written. Remarks beyond them are left out, and counted.
const MOST_WAITING: usize = 256 << 10;
/// Time that the last messages of a command have to be written.
const PATIENCE: Duration = Duration::from_secs(1);

/// None inside where no thread could be started: messages are written at once then.
static RELAY: OnceLock<Option<Relay>> = OnceLock::new();

/// Messages on their way to standard error.
#[derive(Default)]
pub(crate) struct Relay {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    bytes: usize,
    /// Remarks that were left out since the last line that was written.
    left_out: u64,
    is_writing: bool,
    /// Lines that were written.
    written: u64,
    /// True while something else is going on that must not wait for messages.
    is_busy: bool,
    /// True once messages were waited for in vain.
    is_stuck: bool,
}

/// Messages do not hold up their sender until this is dropped, which waits for them.
pub(crate) struct Busy(&'static Relay);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.queue().is_busy = false;
        self.0.drained(Some(PATIENCE));
    }
}

pub(super) fn get() -> Option<&'static Relay> {
    RELAY.get()?.as_ref()
}

/// Has a thread write what is told from now on.
pub(crate) fn begin() -> Option<Busy> {
    let relay = RELAY.get_or_init(|| {
        let thread = thread::Builder::new().name("messages".to_owned());
        let started = thread.spawn(|| {
            if let Some(relay) = RELAY.wait() {
                relay.carry(&super::write);
            }
        });
        started.is_ok().then(Relay::default)
    });
    let relay = relay.as_ref()?;
    relay.queue().is_busy = true;
    Some(Busy(relay))
}

/// Waits until all that was told is written, such as before a question on the same terminal.
pub(crate) fn flush() {
    if let Some(relay) = get() {
        relay.drained(None);
    }
}

impl Relay {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message that is not left out. Outside of busy times it is waited for.
    pub(super) fn tell(&self, line: String) {
        let mut queue = self.queue();
        queue.push(line);
        let waits = !queue.is_busy;
        drop(queue);
        self.changed.notify_all();
        if waits {
            self.drained(Some(PATIENCE));
        }
    }

    /// Sends a remark, if there is room for it.
    pub(super) fn remark(&self, line: impl FnOnce() -> String) {
        let mut queue = self.queue();
        if queue.is_busy && MOST_WAITING <= queue.bytes {
            queue.left_out += 1;
            return;
        }
        drop(queue);
        self.tell(line());
    }

    /// Waits until nothing waits to be written, as long as a line is written within each `patience`. Nothing is waited
    /// for a second time in vain.
    fn drained(&self, patience: Option<Duration>) {
        let mut queue = self.queue();
        let later = || patience.map(|it| Instant::now() + it);
        let (mut written, mut until) = (queue.written, later());
        while !queue.is_stuck && (queue.is_writing || !queue.lines.is_empty()) {
            if queue.written != written {
                (written, until) = (queue.written, later());
            }
            queue = match until {
                None => self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    queue.is_stuck = left.is_zero();
                    let waited = self.changed.wait_timeout(queue, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Writes messages as they come.
    fn carry(&self, write: &dyn Fn(&str)) {
        loop {
            let mut queue = self.queue();
            queue.is_writing = false;
            self.changed.notify_all();
            let line = loop {
                if let Some(line) = queue.next() {
                    break line;
                }
                queue = self
                    .changed
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            queue.is_writing = true;
            drop(queue);
            write(&line);
            self.queue().written += 1;
        }
    }
}

impl Queue {
    fn push(&mut self, line: String) {
        self.bytes += line.len();
        self.lines.push_back(line);
    }

    /// The next line, after a note on what was left out once there is room again.
    fn next(&mut self) -> Option<String> {
        let line = self.lines.pop_front();
        self.bytes -= line.as_ref().map_or(0, String::len);
        if self.lines.is_empty() && self.left_out != 0 {
            let left_out = std::mem::take(&mut self.left_out);
            let note = format!(
                "warning: {left_out} remarks are left out, since standard error is read too slowly"
            );
            self.push(super::line(&note));
        }
        line.or_else(|| {
            let note = self.lines.pop_front();
            self.bytes -= note.as_ref().map_or(0, String::len);
            note
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[test]
    fn a_reader_that_stops_holds_up_no_sender_and_is_told_what_is_left_out() {
        let relay: &'static Relay = Box::leak(Box::default());
        relay.queue().is_busy = true;
        let (written, lines) = mpsc::channel();
        let gate = Arc::new(Mutex::new(()));
        let shut = gate.lock().unwrap();
        thread::spawn({
            let gate = Arc::clone(&gate);
            move || {
                relay.carry(&|line| {
                    drop(gate.lock());
                    let _ = written.send(line.to_owned());
                })
            }
        });
        let long = "x".repeat(1 << 10);
        for _ in 0..1_000 {
            relay.remark(|| long.clone());
        }
        let waiting = relay.queue().bytes;
        assert!(waiting <= MOST_WAITING + long.len(), "{waiting}");
        relay.tell("the answer".to_owned());
        // Once nothing else goes on, it is waited for: a while, and then no more.
        relay.queue().is_busy = false;
        let began = Instant::now();
        relay.tell("one".to_owned());
        assert!(PATIENCE <= began.elapsed());
        let began = Instant::now();
        relay.tell("two".to_owned());
        assert!(began.elapsed() < PATIENCE);
        drop(shut);
        let mut told = Vec::new();
        while told
            .last()
            .is_none_or(|it: &String| !it.contains("left out"))
        {
            told.push(lines.recv_timeout(Duration::from_secs(20)).unwrap());
        }
        let remarks = told.iter().filter(|it| **it == long).count();
        let left_out = told.last().unwrap();
        assert!(
            left_out.starts_with(&format!("warning: {} remarks", 1_000 - remarks)),
            "{left_out}"
        );
        let others: Vec<_> = told.iter().filter(|it| it.len() < 20).collect();
        assert_eq!(others, ["the answer", "one", "two"]);
    }
}
