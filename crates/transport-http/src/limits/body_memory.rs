//! Bound on the memory that unfinished request bodies hold.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of bodies that are being read, of all connections or of one.
#[derive(Debug, Default)]
pub(crate) struct Held(AtomicUsize);

impl Held {
    fn take(&self, bytes: usize, max: usize) -> bool {
        let before = self.0.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= max;
        if !fits {
            self.give_back(bytes);
        }
        fits
    }

    fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One connection can have so large a part of what all can.
const PART: usize = 4;

/// Bytes held of one body, until it is dropped.
#[derive(Debug)]
pub(crate) struct Share<'a> {
    all: &'a Held,
    connection: &'a Held,
    max: usize,
    /// Of the connection.
    max_own: usize,
    bytes: usize,
}

impl<'a> Share<'a> {
    /// Empty share of at most `max` bytes in all, or of one body of `max_body` if that is more.
    pub(crate) fn new(all: &'a Held, connection: &'a Held, max: usize, max_body: usize) -> Self {
        Self {
            all,
            connection,
            max: max.max(max_body),
            max_own: (max / PART).max(max_body),
            bytes: 0,
        }
    }

    /// Takes so many bytes more; whether there are.
    pub(crate) fn take(&mut self, bytes: usize) -> bool {
        if !self.connection.take(bytes, self.max_own) {
            return false;
        }
        if !self.all.take(bytes, self.max) {
            self.connection.give_back(bytes);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.connection.give_back(self.bytes);
        self.all.give_back(self.bytes);
    }
}
