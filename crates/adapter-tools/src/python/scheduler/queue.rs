//! The calls that wait for their turn.

use super::Call;
use std::collections::VecDeque;

/// Two lines, since what a synchronous call waits for need not be what an asynchronous one waits for.
/// Numbers grow, so each line has its oldest call first.
#[derive(Default)]
pub(super) struct Queue {
    asynchronous: VecDeque<(u64, Call)>,
    synchronous: VecDeque<(u64, Call)>,
    bytes: usize,
}

impl Queue {
    /// Number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.asynchronous.len() + self.synchronous.len()
    }

    /// Bytes of the arguments of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the first call in the line for such calls.
    pub(super) fn first(&self, is_async: bool) -> Option<u64> {
        let line = if is_async {
            &self.asynchronous
        } else {
            &self.synchronous
        };
        line.front().map(|(id, _)| *id)
    }

    pub(super) fn push(&mut self, id: u64, call: Call) {
        self.bytes += call.arguments.len();
        self.line(call.is_async).push_back((id, call));
    }

    pub(super) fn pop(&mut self, is_async: bool) -> Option<(u64, Call)> {
        let (id, call) = self.line(is_async).pop_front()?;
        self.bytes -= call.arguments.len();
        Some((id, call))
    }

    /// Takes a call out of the middle.
    pub(super) fn remove(&mut self, id: u64) -> Option<Call> {
        for is_async in [true, false] {
            let line = self.line(is_async);
            if let Ok(at) = line.binary_search_by_key(&id, |(id, _)| *id) {
                let (_, call) = line.remove(at)?;
                self.bytes -= call.arguments.len();
                return Some(call);
            }
        }
        None
    }

    /// Takes all calls out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, Call)> {
        self.bytes = 0;
        let asynchronous = self.asynchronous.drain(..);
        asynchronous.chain(self.synchronous.drain(..))
    }

    fn line(&mut self, is_async: bool) -> &mut VecDeque<(u64, Call)> {
        if is_async {
            &mut self.asynchronous
        } else {
            &mut self.synchronous
        }
    }
}
