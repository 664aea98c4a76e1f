//! Proving that a ledger is what it was.
//!
//! One pass over the groups checks the chain, the checkpoints among the entries and those in a
//! file, and that the index has what the entries say; then what is kept beside the entries is
//! compared with them. Memory is bounded: groups and index are read page by page, and of calls that
//! are open at the same time only so many are remembered.
//!
//! A server may write meanwhile. What it writes after verification began is not looked at, and what
//! it changes in the index is known for what it is.

mod approvals;
mod checkpoints;
mod follow;
mod index;
mod keys;

pub use self::follow::Follower;

use crate::{
    checkpoint::{PublicKey, from_hex},
    fault::{Fault, SignatureError},
    query::{Gap, Place, QueryError, ReadLedger, StoredGroup},
    record::{
        codec,
        entry::{Digest, Event},
        note::{NoteKind, Noted},
        seal::Seal,
    },
    recorder::system_now_us,
    store::Tail,
};
use std::{
    collections::{HashMap, VecDeque},
    fmt, io,
    path::{Path, PathBuf},
    time::Duration,
};
use {
    self::{approvals::Missing, index::IndexCheck},
    crate::verify::checkpoints::Seals,
};

/// Evidence that a ledger is compared with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust<'a> {
    /// Keys that may sign checkpoints. With none, signatures are not checked, and an attacker that
    /// can write to the ledger can rewrite all of it, checkpoints included.
    pub keys: &'a [PublicKey],
    /// A file of checkpoints that was written beside the ledger, or far away from it.
    pub checkpoints: Option<&'a Path>,
    /// The file of a witness, which has checkpoints, too ([`crate::WitnessFile`]).
    pub witness: Option<&'a Path>,
    /// Schedule of checkpoints, if one server at a time writes to the ledger: an end that is sealed
    /// later than that is wrong. With none, it may be as long as the last checkpoint allows.
    pub every: Option<SealedEvery>,
}

/// Schedule of checkpoints: see [`crate::checkpoint::CheckpointOptions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedEvery {
    /// After so many entries.
    pub entries: u64,
    /// After so much time, if anything has been written since.
    pub interval: Duration,
}

/// Result of verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Entries that were looked at; all there were at the beginning, unless something is wrong.
    pub entries: u64,
    /// Number of those that were deleted with their segments, as later entries say. The chain goes on behind
    /// them, and nothing else is known of them.
    pub deleted: u64,
    /// Number of those that are encrypted and that no identity opens ([`ReadLedger::leave_unread`]): their segments are the
    /// files that were sealed, and the chain goes on behind them. Among them are those that were deleted, if the entry that
    /// may say so cannot be read either.
    pub unread: u64,
    /// The hash of the last of them.
    pub head: Digest,
    /// First fault.
    pub first_wrong: Option<Wrong>,
    /// Checkpoints that agree with the entries they seal, in the ledger and in the file.
    pub checkpoints_checked: u64,
    /// The entry through which the ledger is sealed by checkpoints that are believed. Entries after
    /// it prove themselves by nothing but the chain.
    pub sealed_through: u64,
    /// Number of those entries, without checkpoints that are believed.
    pub unsealed: u64,
    /// The entry that the ledger says was sealed in a file of checkpoints, if the file that it was
    /// held against ends before that, or there was none.
    pub file_lacks: Option<u64>,
    /// The entry that the ledger says was sealed in the file of the witness that it was held against, if that ends
    /// before.
    pub witness_lacks: Option<u64>,
    /// Lines of the files that are no checkpoints: what a crash left of a line, or an edit.
    pub unreadable_lines: u64,
}

/// Fault, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The first entry that it concerns; `None` when it concerns a table that has no entries.
    pub sequence: Option<u64>,
    /// Fault.
    pub what: Fault,
}

/// A ledger could not be verified, which says nothing about it.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The ledger cannot be read.
    #[error("the ledger cannot be verified")]
    Ledger(#[from] QueryError),
    /// The file of checkpoints cannot be read.
    #[error("the checkpoints {} cannot be read", path.display())]
    Checkpoints {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Reason why verification stops: a fault, a failure to go on, or a caller that wants no more of it.
enum Stop {
    Wrong(Wrong),
    Error(VerifyError),
    Told,
}

impl<E: Into<VerifyError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl Wrong {
    fn at(sequence: u64, what: Fault) -> Stop {
        Stop::Wrong(Self {
            sequence: Some(sequence),
            what,
        })
    }
}

impl Report {
    /// A ledger none of which could be looked at, for this reason.
    fn of_nothing(what: Fault) -> Self {
        Self {
            entries: 0,
            deleted: 0,
            unread: 0,
            head: Digest::default(),
            first_wrong: Some(Wrong {
                sequence: None,
                what,
            }),
            checkpoints_checked: 0,
            sealed_through: 0,
            unsealed: 0,
            file_lacks: None,
            witness_lacks: None,
            unreadable_lines: 0,
        }
    }

    /// Returns true if nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.first_wrong.is_none()
    }

    /// Returns true if, besides, nothing but checkpoints comes after the sealed entries, and the
    /// files of checkpoints have all that they had. Beside a server that writes this is seldom so.
    #[must_use]
    pub fn is_sealed(&self) -> bool {
        self.is_ok()
            && self.unsealed == 0
            && self.file_lacks.is_none()
            && self.witness_lacks.is_none()
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sequence {
            Some(sequence) => write!(f, "entry {sequence}: {}", self.what),
            None => self.what.fmt(f),
        }
    }
}

/// Verifies a ledger from its beginning to where it ends now.
///
/// # Errors
///
/// [`VerifyError`] when it cannot be read; what is wrong with it is in the report.
pub fn verify(ledger: &mut dyn ReadLedger, trust: Trust<'_>) -> Result<Report, VerifyError> {
    verify_telling(ledger, trust, &mut |_, _| {})
}

/// Verifies as [`verify`] does, and tells from time to time how many entries have been looked at
/// and how many there are.
///
/// # Errors
///
/// [`VerifyError`] when it cannot be read; what is wrong with it is in the report.
pub fn verify_telling(
    ledger: &mut dyn ReadLedger,
    trust: Trust<'_>,
    tell: &mut dyn FnMut(u64, u64),
) -> Result<Report, VerifyError> {
    let report = verify_while(ledger, trust, &mut |done, all| {
        tell(done, all);
        true
    })?;
    Ok(report.expect("nothing told it to stop"))
}

/// Verifies as [`verify_telling`] does, for as long as `go_on` says so, which may take its time to answer: it is asked
/// page by page, with how many entries have been looked at and how many there are. `None` when it said no.
///
/// # Errors
///
/// [`VerifyError`] when it cannot be read; what is wrong with it is in the report.
pub fn verify_while(
    ledger: &mut dyn ReadLedger,
    trust: Trust<'_>,
    go_on: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Option<Report>, VerifyError> {
    // The file first: a line is written after what it seals, so all that it says must be there.
    let seals = Seals::new(trust)?;
    // Questions of a ledger whose tables do not fit each other may fail.
    let fault = ledger.fault();
    let opened = ledger
        .extent()
        .and_then(|extent| Ok((extent, ledger.gaps()?)));
    let (fault, (extent, gaps)) = match (fault, opened) {
        (Ok(fault), Ok(opened)) => (fault, opened),
        (Ok(Some(what)), Err(_)) => return Ok(Some(Report::of_nothing(what))),
        (Err(error), _) | (_, Err(error)) => match ledger.damage() {
            Ok(Some(what)) => return Ok(Some(Report::of_nothing(what))),
            _ => return Err(error.into()),
        },
    };
    let deleted_through = gaps.last().map_or(0, |gap| gap.last_sequence);
    let (segments, early) = match ledger.segments() {
        Ok(segments) => (segments, None),
        Err(error) => (Vec::new(), Some(altered(error.into(), 1)?)),
    };
    let mut verification = Verification {
        tail: Tail::default(),
        seals,
        segments: segments.into(),
        gaps: gaps.into(),
        passed: Vec::new(),
        passed_before_unread: Vec::new(),
        deleted: 0,
        unread: 0,
        unread_until_us: None,
        unproved: Vec::new(),
        encrypted: HashMap::new(),
        index: IndexCheck::new(extent, deleted_through),
        missing: Missing::new(system_now_us()),
        last: extent.last_sequence,
        groups: 0,
    };
    let ran = match early {
        Some(wrong) => Err(Stop::Wrong(wrong)),
        None => verification.run(ledger, go_on),
    };
    let first_wrong = match (ran, fault) {
        (Err(Stop::Told), _) => return Ok(None),
        (Err(Stop::Wrong(wrong)), _) => Some(wrong),
        (Ok(()) | Err(Stop::Error(_)), Some(what)) => Some(Wrong {
            sequence: None,
            what,
        }),
        (Err(Stop::Error(error)), None) => {
            let next = verification.tail.next_sequence;
            match altered(error, next) {
                Ok(wrong) => Some(wrong),
                // What cannot be read may be damaged, which says more.
                Err(error) => match ledger.damage() {
                    Ok(Some(what)) => Some(Wrong {
                        sequence: None,
                        what,
                    }),
                    _ => return Err(error),
                },
            }
        }
        (Ok(()), None) => None,
    };
    let entries = verification.tail.next_sequence - 1;
    Ok(Some(Report {
        entries,
        unsealed: verification.seals.unsealed(entries),
        file_lacks: verification.seals.file_lacks(),
        witness_lacks: verification.seals.witness_lacks(),
        deleted: verification.deleted,
        unread: verification.unread,
        head: verification.tail.hash,
        first_wrong,
        checkpoints_checked: verification.seals.checked,
        sealed_through: verification.seals.sealed_through,
        unreadable_lines: verification.seals.unreadable_lines(),
    }))
}

struct Verification {
    /// End of the verified part.
    tail: Tail,
    seals: Seals,
    /// Segments that do not end in the verified part.
    segments: VecDeque<Seal>,
    /// Deleted parts after the verified part, and those before its end that no entry has told of yet.
    gaps: VecDeque<Gap>,
    passed: Vec<Gap>,
    /// Deleted parts before one that cannot be read, which may have the entries that tell of them.
    passed_before_unread: Vec<Gap>,
    /// Number of deleted entries.
    deleted: u64,
    /// Number of entries that cannot be read, and the latest time of their calls and notes.
    unread: u64,
    unread_until_us: Option<u64>,
    /// First and last entries of those of their segments whose seals are not signed, though they might be, and that no
    /// note in the verified part is about.
    unproved: Vec<(u64, u64)>,
    /// First entries of the encrypted segments in the verified part, and the digests of their files.
    encrypted: HashMap<u64, Digest>,
    index: IndexCheck,
    missing: Missing,
    /// The last entry that is looked at.
    last: u64,
    /// Groups that have gone by.
    groups: u64,
}

impl Verification {
    fn run(
        &mut self,
        ledger: &mut dyn ReadLedger,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<(), Stop> {
        // From 0, so that nothing hides before the first entry.
        let mut from = 0;
        while self.tail.next_sequence <= self.last {
            self.skip_gaps(ledger)?;
            let page = ledger.groups(from)?;
            let Some(last) = page.last() else { break };
            from = last.first_sequence.saturating_add(1);
            for group in &page {
                if self.last < self.tail.next_sequence {
                    break;
                }
                self.skip_gaps(ledger)?;
                self.group(ledger, group)?;
            }
            if !go_on(self.tail.next_sequence - 1, self.last) {
                return Err(Stop::Told);
            }
        }
        if self.tail.next_sequence <= self.last {
            // The last group says that it has more entries than it has, or it is gone by now.
            let through = self.last;
            return Err(Wrong::at(
                self.tail.next_sequence,
                Fault::Truncated { through },
            ));
        }
        if let Some(gap) = self.passed.iter().find(|gap| !gap.is_unsaid) {
            return Err(Wrong::at(gap.first_sequence, Fault::Deleted));
        }
        for gap in self.passed_before_unread.drain(..) {
            if !gap.is_unsaid {
                self.deleted -= entries_of(&gap);
                self.unread += entries_of(&gap);
            }
        }
        // Nobody has looked at what is in it, so that somebody must have signed for it.
        if let Some((_, last)) = self.unproved.first() {
            return Err(Wrong::at(*last, Fault::Signature(SignatureError::Missing)));
        }
        self.seals.finish(ledger, &self.tail, self.groups)?;
        self.index.finish(ledger)?;
        approvals::check(ledger, self.unread_until_us)?;
        keys::check(ledger)?;
        self.missing.finish()?;
        if let Some(table) = ledger.differing_sums()? {
            return Err(Stop::Wrong(Wrong {
                sequence: None,
                what: Fault::TableDiffers { table },
            }));
        }
        match ledger.damage()? {
            Some(what) => Err(Stop::Wrong(Wrong {
                sequence: None,
                what,
            })),
            None => Ok(()),
        }
    }

    /// Goes on behind what was deleted or cannot be read. The groups after it prove that nothing else was there; that it was
    /// deleted must be on record.
    fn skip_gaps(&mut self, ledger: &mut dyn ReadLedger) -> Result<(), Stop> {
        while let Some(gap) = self.gaps.front().copied()
            && gap.first_sequence == self.tail.next_sequence
        {
            self.gaps.pop_front();
            let count = entries_of(&gap);
            if gap.unread_until_us.is_some() {
                self.expect_segment(ledger, &gap)?;
                self.unread += count;
                self.passed_before_unread.append(&mut self.passed);
                self.unread_until_us = self.unread_until_us.max(gap.unread_until_us);
            } else {
                self.deleted += count;
                self.passed.push(gap);
            }
            self.tail = Tail {
                next_sequence: gap.last_sequence + 1,
                hash: gap.last_hash,
            };
            self.seals.deleted(&gap);
        }
        Ok(())
    }

    /// Checks the segment of entries that cannot be read.
    fn expect_segment(&mut self, ledger: &mut dyn ReadLedger, gap: &Gap) -> Result<(), Stop> {
        let is_at = |it: &&Seal| it.first_sequence == gap.first_sequence;
        let Some(segment) = self.segments.front().filter(is_at).cloned() else {
            return Err(Wrong::at(gap.first_sequence, Fault::NotAsArchived));
        };
        self.seals.segment(&segment)?;
        if self.seals.lacks_signature(&segment) {
            let unproved = (segment.first_sequence, segment.last_sequence);
            self.unproved.push(unproved);
        }
        ledger.expect_sealed(&segment)?;
        if segment.previous_hash != self.tail.hash {
            return Err(Wrong::at(gap.first_sequence, Fault::NotAsArchived));
        }
        // What has not been taken out of it follows.
        if segment.last_sequence == gap.last_sequence {
            self.segments.pop_front();
            self.passes(&segment);
        }
        Ok(())
    }

    fn passes(&mut self, segment: &Seal) {
        if let Some(encrypted) = &segment.encrypted {
            self.encrypted
                .insert(segment.first_sequence, encrypted.sha256);
        }
    }

    fn group(&mut self, ledger: &mut dyn ReadLedger, group: &StoredGroup) -> Result<(), Stop> {
        let first = self.tail.next_sequence;
        let after = link(&self.tail, group)?;
        self.seals.group_ends(ledger, &after)?;
        while self
            .segments
            .front()
            .is_some_and(|it| it.last_sequence < after.next_sequence)
            && let Some(segment) = self.segments.pop_front()
        {
            self.seals.segment(&segment)?;
            self.passes(&segment);
            if (segment.last_sequence + 1, segment.last_hash) != (after.next_sequence, after.hash) {
                return Err(Wrong::at(segment.last_sequence, Fault::NotAsArchived));
            }
        }
        for (sequence, entry) in (first..).zip(codec::split(&group.body).flatten()) {
            let (call, event) = codec::decode(entry.1)
                .map_err(|error| Wrong::at(sequence, Fault::Unreadable(error)))?;
            self.seals.entry(ledger, first, sequence, &event)?;
            if let Event::Noted(noted) = &event
                && noted.kind == NoteKind::RETENTION
            {
                for passed in [&mut self.passed, &mut self.passed_before_unread] {
                    passed.retain(|gap| !tells_of(noted, gap));
                }
                if let Some((first, digest)) = archived(noted)
                    && let Some(found) = self.encrypted.get(&first)
                {
                    if Some(*found) != digest {
                        return Err(Wrong::at(sequence, Fault::NotAsArchived));
                    }
                    self.unproved.retain(|it| it.0 != first);
                }
            }
            let place = Place {
                group: first,
                offset: entry.0 as u64,
                length: entry.1.len() as u64,
            };
            self.index
                .entry(ledger, sequence, place, &group.body, call, &event)?;
            self.missing.entry(ledger, sequence, call, &event)?;
        }
        self.seals.group_ended(&after);
        self.groups += 1;
        self.tail = after;
        Ok(())
    }
}

/// End of a ledger that ended at `tail` and went on with this group; it is wrong if the group cannot be there.
fn link(tail: &Tail, group: &StoredGroup) -> Result<Tail, Stop> {
    let first = tail.next_sequence;
    let found = group.first_sequence;
    // Negative numbers come first and look large.
    if found < first || i64::MAX as u64 <= found {
        return Err(Wrong::at(first, Fault::Repeated { found }));
    }
    if first < found {
        return Err(Wrong::at(first, Fault::Missing { found }));
    }
    let mut entries: u64 = 0;
    for entry in codec::split(&group.body) {
        entry.map_err(|error| Wrong::at(first + entries, Fault::Unreadable(error)))?;
        entries += 1;
    }
    let after = tail.after(&group.body, entries);
    if after.hash != group.hash {
        return Err(Wrong::at(first, Fault::Hash));
    }
    if group.count != entries || entries == 0 {
        let said = group.count;
        return Err(Wrong::at(
            first,
            Fault::Count {
                said,
                found: entries,
            },
        ));
    }
    Ok(after)
}

/// The fault that an error is, if it is one; `next` is the entry that is looked at next.
fn altered(error: VerifyError, next: u64) -> Result<Wrong, VerifyError> {
    match error {
        VerifyError::Ledger(QueryError::Segment {
            path: file,
            first,
            last,
            source,
        }) => Ok(Wrong {
            sequence: Some(if (first..=last).contains(&next) {
                next
            } else {
                first
            }),
            what: Fault::SegmentDamaged {
                file,
                why: chain(&*source),
            },
        }),
        VerifyError::Ledger(QueryError::NoStart { sequence }) => Ok(Wrong {
            sequence: Some(sequence),
            what: Fault::TableDiffers {
                table: "carried_start",
            },
        }),
        VerifyError::Ledger(QueryError::Altered { last, .. }) => Ok(Wrong {
            sequence: Some(last),
            what: Fault::SegmentAltered,
        }),
        error => Err(error),
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// First entry of the segment that a note says was archived, and the digest of its file if it is encrypted.
fn archived(noted: &Noted) -> Option<(u64, Option<Digest>)> {
    let detail: serde_json::Value = serde_json::from_str(&noted.detail.text).ok()?;
    detail.get("archived")?;
    let digest = detail.get("sha256").and_then(|it| from_hex(it.as_str()?));
    Some((detail.get("first_sequence")?.as_u64()?, digest))
}

fn entries_of(gap: &Gap) -> u64 {
    gap.last_sequence + 1 - gap.first_sequence
}

/// Returns true if a note says that these entries were deleted.
fn tells_of(noted: &Noted, gap: &Gap) -> bool {
    let detail: serde_json::Value = serde_json::from_str(&noted.detail.text).unwrap_or_default();
    let is = |name: &str, number| detail.get(name).and_then(|it| it.as_u64()) == Some(number);
    detail.get("deleted").is_some()
        && is("first_sequence", gap.first_sequence)
        && is("last_sequence", gap.last_sequence)
}
