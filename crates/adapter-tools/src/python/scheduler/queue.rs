//! The calls that wait for their turn.

use super::Call;
use std::{collections::VecDeque, sync::Arc};

/// Calls by number.
type Line = VecDeque<(u64, Call)>;

/// The calls that wait: asynchronous ones in one line, since what a synchronous call waits for need not be
/// what an asynchronous one waits for, and synchronous ones in a line for each principal, which has its
/// share of the threads. Numbers grow, so each line has its oldest call first.
#[derive(Default)]
pub(super) struct Queue {
    asynchronous: Line,
    synchronous: Vec<(Arc<str>, Line)>,
    len: usize,
    bytes: usize,
}

impl Queue {
    /// Number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the arguments of all of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the first asynchronous call.
    pub(super) fn first_asynchronous(&self) -> Option<u64> {
        self.asynchronous.front().map(|(id, _)| *id)
    }

    /// The number of the first synchronous call of a principal that may have one begun.
    pub(super) fn first_synchronous(&self, may: impl Fn(&str) -> bool) -> Option<u64> {
        let lines = self.synchronous.iter();
        lines
            .filter(|(principal, _)| may(principal))
            .filter_map(|(_, line)| line.front().map(|(id, _)| *id))
            .min()
    }

    /// Number of synchronous calls of a principal that wait.
    pub(super) fn of(&self, principal: &str) -> usize {
        let mut lines = self.synchronous.iter();
        lines
            .find(|(of, _)| **of == *principal)
            .map_or(0, |(_, line)| line.len())
    }

    pub(super) fn push(&mut self, id: u64, call: Call) {
        self.bytes += call.arguments.len();
        self.len += 1;
        if call.is_async {
            return self.asynchronous.push_back((id, call));
        }
        let mut lines = self.synchronous.iter_mut();
        match lines.find(|(principal, _)| *principal == call.cx.principal) {
            Some((_, line)) => line.push_back((id, call)),
            None => {
                let principal = Arc::clone(&call.cx.principal);
                self.synchronous.push((principal, [(id, call)].into()));
            }
        }
    }

    /// Takes a call out, wherever it stands.
    pub(super) fn remove(&mut self, id: u64) -> Option<Call> {
        let taken = take(&mut self.asynchronous, id).or_else(|| {
            let mut lines = self.synchronous.iter_mut().enumerate();
            let (at, call) = lines.find_map(|(at, (_, line))| Some((at, take(line, id)?)))?;
            if self.synchronous[at].1.is_empty() {
                self.synchronous.swap_remove(at);
            }
            Some(call)
        });
        let call = taken?;
        self.bytes -= call.arguments.len();
        self.len -= 1;
        Some(call)
    }

    /// Takes all calls out.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (u64, Call)> {
        (self.bytes, self.len) = (0, 0);
        let asynchronous = self.asynchronous.drain(..);
        asynchronous.chain(self.synchronous.drain(..).flat_map(|(_, line)| line))
    }
}

fn take(line: &mut Line, id: u64) -> Option<Call> {
    let at = line.binary_search_by_key(&id, |(id, _)| *id).ok()?;
    line.remove(at).map(|(_, call)| call)
}
