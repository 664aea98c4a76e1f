use super::{Fault, Stop, Wrong};
use crate::{
    query::{
        EndCopies, Extent, IndexedCall, IndexedEnd, IndexedNote, MAX_INDEXED, Place, QueryError,
        ReadLedger, statistics::rounded,
    },
    record::{
        entry::{Ended, Event, Outcome, Started},
        id::CallId,
        note::Noted,
    },
};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

/// Calls that are open at the same time and whose rows are remembered until they end. Of further
/// ones the rows are looked up.
const MAX_REMEMBERED: usize = 65_536;

const CALL: &str = "call";
const NOTE: &str = "note";

/// Compares the index with the entries, as they go by.
pub(super) struct IndexCheck {
    /// The last entry that had been indexed when verification began.
    through: u64,
    /// The last entry that was deleted. A call that ended among such is not in the index any more.
    deleted_through: u64,
    /// The last entry that is looked at.
    last: u64,
    calls: Pages<IndexedCall>,
    notes: Pages<IndexedNote>,
    /// Ends in the index of calls whose starts have been read and whose ends have not.
    open: HashMap<CallId, Option<IndexedEnd>>,
    /// Ends that the index has of calls that are not remembered, less those that have gone by.
    unremembered: i64,
}

/// The rows of a table, a page at a time.
struct Pages<T> {
    page: VecDeque<T>,
    next: u64,
    ended: bool,
}

trait Row: Sized {
    const TABLE: &'static str;

    fn sequence(&self) -> u64;

    fn page(ledger: &mut dyn ReadLedger, from: u64) -> Result<Vec<Self>, QueryError>;
}

impl Row for IndexedCall {
    const TABLE: &'static str = CALL;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn page(ledger: &mut dyn ReadLedger, from: u64) -> Result<Vec<Self>, QueryError> {
        ledger.indexed_calls(from)
    }
}

impl Row for IndexedNote {
    const TABLE: &'static str = NOTE;

    fn sequence(&self) -> u64 {
        self.sequence
    }

    fn page(ledger: &mut dyn ReadLedger, from: u64) -> Result<Vec<Self>, QueryError> {
        ledger.indexed_notes(from)
    }
}

impl<T: Row> Pages<T> {
    fn new() -> Self {
        Self {
            page: VecDeque::new(),
            next: 0,
            ended: false,
        }
    }

    fn fill(&mut self, ledger: &mut dyn ReadLedger) -> Result<(), Stop> {
        if self.page.is_empty() && !self.ended {
            self.page = T::page(ledger, self.next)?.into();
            match self.page.back() {
                Some(last) => self.next = last.sequence().saturating_add(1),
                None => self.ended = true,
            }
        }
        Ok(())
    }

    /// The row about the entry at `sequence`, which must be the next row.
    fn take(&mut self, ledger: &mut dyn ReadLedger, sequence: u64) -> Result<T, Stop> {
        self.fill(ledger)?;
        let table = T::TABLE;
        match self.page.pop_front() {
            Some(row) if row.sequence() == sequence => Ok(row),
            // Negative numbers come first and look large.
            Some(row) if row.sequence() < sequence || i64::MAX as u64 <= row.sequence() => {
                Err(Wrong::at(row.sequence(), Fault::IndexInvents { table }))
            }
            _ => Err(Wrong::at(sequence, Fault::NotIndexed { table })),
        }
    }

    /// The row about the entry at `sequence`, unless the next row is of a later one.
    fn take_if_there(
        &mut self,
        ledger: &mut dyn ReadLedger,
        sequence: u64,
    ) -> Result<Option<T>, Stop> {
        self.fill(ledger)?;
        let is_later = |row: &T| {
            let later = row.sequence();
            sequence < later && later < i64::MAX as u64
        };
        match self.page.front() {
            Some(row) if is_later(row) => Ok(None),
            None => Ok(None),
            Some(_) => self.take(ledger, sequence).map(Some),
        }
    }

    /// No row may be left that is about an entry up to `through`.
    fn finish(&mut self, ledger: &mut dyn ReadLedger, through: u64) -> Result<(), Stop> {
        self.fill(ledger)?;
        match self.page.front() {
            Some(row) if row.sequence() <= through || i64::MAX as u64 <= row.sequence() => {
                let table = T::TABLE;
                Err(Wrong::at(row.sequence(), Fault::IndexInvents { table }))
            }
            _ => Ok(()),
        }
    }
}

impl IndexCheck {
    pub(super) fn new(extent: Extent, deleted_through: u64) -> Self {
        Self {
            deleted_through,
            through: extent.indexed_through,
            last: extent.last_sequence,
            calls: Pages::new(),
            notes: Pages::new(),
            open: HashMap::new(),
            unremembered: 0,
        }
    }

    /// An entry goes by.
    pub(super) fn entry(
        &mut self,
        ledger: &mut dyn ReadLedger,
        sequence: u64,
        place: Place,
        body: &[u8],
        call: CallId,
        event: &Event,
    ) -> Result<(), Stop> {
        match event {
            Event::Started(started) if sequence <= self.through => {
                let row = match sequence < self.deleted_through {
                    true => self.calls.take_if_there(ledger, sequence)?,
                    false => Some(self.calls.take(ledger, sequence)?),
                };
                let Some(mut row) = row else { return Ok(()) };
                if let Some(arguments) = row.arguments.take()
                    && !has_at(body, &arguments, &started.arguments.text)
                {
                    return Err(Wrong::at(sequence, Fault::IndexDiffers { table: CALL }));
                }
                let place = row.place.map(|_| place);
                self.started(indexed_call(sequence, place, call, started), row)
            }
            Event::Ended(ended) => {
                let expected = indexed_end(sequence, place, ended);
                self.ended(ledger, call, expected, |copies| {
                    has_at(body, &copies.result, &ended.result.text)
                        && copies.message == ended.message
                        && copies.duration_rounded == rounded(ended.duration_us).min(MAX_INDEXED)
                })
            }
            Event::Noted(noted) if sequence <= self.through => {
                let row = self.notes.take(ledger, sequence)?;
                let place = row.place.map(|_| place);
                if row == indexed_note(sequence, place, noted) {
                    Ok(())
                } else {
                    Err(Wrong::at(sequence, Fault::IndexDiffers { table: NOTE }))
                }
            }
            Event::Started(_) | Event::Noted(_) => Ok(()),
        }
    }

    fn started(&mut self, expected: IndexedCall, mut row: IndexedCall) -> Result<(), Stop> {
        let (call, sequence) = (expected.call, expected.sequence);
        let end = row.end.take();
        let says_otherwise = || Wrong::at(sequence, Fault::IndexDiffers { table: CALL });
        if row != expected {
            return Err(says_otherwise());
        }
        let ends_now = end.as_ref().is_some_and(|end| end.sequence <= self.last);
        if end.as_ref().is_some_and(|end| end.sequence <= sequence) {
            return Err(says_otherwise());
        }
        if self.open.len() < MAX_REMEMBERED {
            self.open.insert(call, end);
        } else if ends_now {
            self.unremembered += 1;
        }
        Ok(())
    }

    fn ended(
        &mut self,
        ledger: &mut dyn ReadLedger,
        call: CallId,
        mut expected: IndexedEnd,
        are_true: impl FnOnce(&EndCopies) -> bool,
    ) -> Result<(), Stop> {
        let sequence = expected.sequence;
        let says_otherwise = || Wrong::at(sequence, Fault::IndexDiffers { table: CALL });
        let remembered = self.open.remove(&call);
        let is_remembered = remembered.is_some();
        let said = match remembered {
            Some(end) => end,
            None => {
                // Not remembered, or not indexed, or it had ended before: the first end counts.
                let Some(row) = ledger.indexed_call(call)? else {
                    return Ok(());
                };
                match row.end {
                    Some(end) if end.sequence < sequence => return Ok(()),
                    Some(end) if end.sequence == sequence => {
                        if row.sequence <= self.through {
                            self.unremembered -= 1;
                        }
                        Some(end)
                    }
                    end => end,
                }
            }
        };
        match said {
            // A server that was taken for dead may live, and its word counts more.
            Some(end)
                if sequence < end.sequence
                    && expected.outcome == Outcome::<&str>::Unknown.as_str() =>
            {
                if is_remembered {
                    self.open.insert(call, Some(end));
                }
                Ok(())
            }
            Some(mut end) => {
                expected.place = end.place.and(expected.place);
                let are_true = end.copies.take().is_none_or(|it| are_true(&it));
                if end == expected && are_true {
                    Ok(())
                } else {
                    Err(says_otherwise())
                }
            }
            // It was not indexed yet when its row was read.
            None if self.through < sequence => Ok(()),
            None => Err(says_otherwise()),
        }
    }

    /// All has gone by.
    pub(super) fn finish(&mut self, ledger: &mut dyn ReadLedger) -> Result<(), Stop> {
        self.calls.finish(ledger, self.through)?;
        self.notes.finish(ledger, self.through)?;
        let invented = self
            .open
            .values()
            .flatten()
            .map(|end| end.sequence)
            .filter(|&sequence| sequence <= self.last)
            .min();
        match invented {
            Some(sequence) => Err(Wrong::at(sequence, Fault::IndexInvents { table: CALL })),
            None if self.unremembered != 0 => Err(Stop::Wrong(Wrong {
                sequence: None,
                what: Fault::TableDiffers { table: CALL },
            })),
            None => Ok(()),
        }
    }
}

/// The row that the index must have of a start, but for its end.
fn indexed_call(
    sequence: u64,
    place: Option<Place>,
    call: CallId,
    started: &Started,
) -> IndexedCall {
    IndexedCall {
        call,
        sequence,
        started_us: started.at_us.min(MAX_INDEXED),
        principal: started.principal.clone(),
        kind: started.kind.as_str().to_owned(),
        capability: started.capability.clone(),
        request_id: started.request_id.clone(),
        trace_id: started.trace_id.clone(),
        approval: started.approval.map(|approval| approval.to_string()),
        estimated_cost_micros: started.estimated_cost_micros.min(MAX_INDEXED),
        place,
        arguments: None,
        end: None,
    }
}

/// True if `body` has `text` at these bytes.
fn has_at(body: &[u8], at: &Range<u64>, text: &str) -> bool {
    let (Ok(start), Ok(end)) = (usize::try_from(at.start), usize::try_from(at.end)) else {
        return false;
    };
    body.get(start..end) == Some(text.as_bytes())
}

fn indexed_end(sequence: u64, place: Place, ended: &Ended) -> IndexedEnd {
    IndexedEnd {
        sequence,
        outcome: ended.outcome.as_str().to_owned(),
        reason: ended.reason().map(str::to_owned),
        cost_micros: ended.cost_micros.min(MAX_INDEXED),
        duration_us: ended.duration_us.min(MAX_INDEXED),
        place: Some(place),
        copies: None,
    }
}

fn indexed_note(sequence: u64, place: Option<Place>, noted: &Noted) -> IndexedNote {
    IndexedNote {
        sequence,
        at_us: noted.at_us.min(MAX_INDEXED),
        kind: noted.kind.as_str().to_owned(),
        actor: noted.actor.clone(),
        subject: noted.subject.clone(),
        place,
    }
}
