//! The entries of a ledger, one after another.

use std::collections::VecDeque;

use ledger::{Entry, MAX_GROUP_ENTRIES, QueryError, ReadLedger};

use server::Failure;

/// Reads entries in order, including those that are added while it reads.
pub(super) struct Entries {
    reader: Box<dyn ReadLedger + Send>,
    page: VecDeque<Entry>,
    /// Lower bound of the next group's beginning.
    next_group: u64,
    /// Entries before this one are passed over.
    from: u64,
}

impl Entries {
    /// Entries from `from` on; the first is 1.
    pub(super) fn from(reader: Box<dyn ReadLedger + Send>, from: u64) -> Self {
        Self {
            reader,
            page: VecDeque::new(),
            next_group: from.saturating_sub(MAX_GROUP_ENTRIES),
            from,
        }
    }

    /// The next one; `None` where the ledger ends now.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Failure> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                return Ok(Some(entry));
            }
            let groups = self.reader.groups(self.next_group)?;
            let Some(last) = groups.last() else {
                return Ok(None);
            };
            self.next_group = last.first_sequence.saturating_add(last.count.max(1));
            for group in &groups {
                let entries = group.entries().map_err(QueryError::Damaged)?;
                let wanted = entries.into_iter().filter(|it| self.from <= it.sequence);
                self.page.extend(wanted);
            }
        }
    }

    /// Reader of the same ledger, for other queries.
    pub(super) fn reader(&mut self) -> &mut (dyn ReadLedger + Send) {
        &mut *self.reader
    }
}

impl Entries {
    /// The entry of this number.
    pub(super) fn find(
        reader: &mut (dyn ReadLedger + Send),
        sequence: u64,
    ) -> Result<Option<Entry>, Failure> {
        let Some(group) = reader.group_of(sequence)? else {
            return Ok(None);
        };
        let entries = group.entries().map_err(QueryError::Damaged)?;
        Ok(entries.into_iter().find(|it| it.sequence == sequence))
    }
}
