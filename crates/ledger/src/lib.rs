//! An append-only record of what was called, by whom, and how it ended.
//!
//! Every call is two entries: a [`Start`] before it runs and an [`End`] after. A start without an
//! end is a call that a crash cut short, which one entry at the end would lose.
//!
//! [`Recorder::begin`] hands over the start and, unless durability is [`Durability::Relaxed`],
//! waits until it is on disk; [`OpenCall::finish`] hands over the end without waiting, and so does
//! dropping the [`OpenCall`]. Entries are written as bytes into one buffer, which a thread of its
//! own commits in groups to a [`LedgerStore`]: [`SqliteLedger`], [`PostgresLedger`], which several
//! servers share, or [`MemoryLedger`]. While the store fails, or does not answer, no call can begin;
//! it is tried again until it works, and nothing is lost.
//!
//! What a call needs before it may run, an [`Approval`] or an idempotency key, is kept beside the
//! entries and changes in the transaction that stores them: [`Recorder::begin_claiming`] gives a
//! call all that it claims, or ends it as denied. Whatever else belongs on record is a [`Note`].
//! Refusals that flood are counted and noted together.
//!
//! ```
//! use ledger::*;
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let ledger = MemoryLedger::default();
//! let recorder = Recorder::spawn(ledger.clone(), RecorderOptions::default())?;
//! let at_us = system_now_us();
//! let start = Start {
//!     arguments: r#"{"to":"bob"}"#,
//!     ..Start::new(CallId::new(at_us), at_us, "alice", Kind::Tool, "tool/transfer")
//! };
//! let call = recorder.begin(&start).await?; // on disk now: the call may run
//! call.finish(&End { result: "true", ..End::new(Outcome::Succeeded) }).await?;
//! recorder.close().await?;
//! assert_eq!(ledger.entries().len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod checkpoint;
mod fault;
mod postgres;
mod query;
mod record;
mod recorder;
mod sqlite;
mod store;
mod verify;

#[cfg(test)]
mod operation_tests;

pub use crate::{
    checkpoint::{
        Checkpoint, CheckpointOptions, Checkpoints, Continuity, ContinuityError,
        DEFAULT_CHECKPOINT_ENTRIES, DEFAULT_CHECKPOINT_INTERVAL, KeyError, PublicKey, Signature,
        SigningKey, WitnessFile, Witnessed, begin_checkpoints, check_continuity, check_signed,
        check_stamped, check_witness, check_witness_file,
    },
    fault::{Fault, SignatureError},
    postgres::{
        DEFAULT_LEASE, DEFAULT_MAX_ATTEMPT, PostgresLedger, PostgresOfflineApprovals,
        PostgresOpenError, PostgresOptions, PostgresReader,
    },
    query::{
        ApprovalFilter, ApprovalRow, CallRecord, Counts, Cursor, EndCopies, Extent, Filter, Gap,
        HashAfter, IndexedCall, IndexedEnd, IndexedNote, KeyHeld, MAX_GROUP_ENTRIES,
        MAX_INDEXED as MAX_SUMMED, MAX_PAGE_BYTES, MAX_PAGE_ROWS, NoteFilter, NoteRecord,
        OPEN_CALLS, ParseCursorError, Place, QueryError, ReadLedger, StoredGroup, Usage,
        statistics::{
            Bucket, Durations, Statistics, StatisticsQuery, Totals, is_late_cost, statistics,
        },
    },
    record::{
        approval::{
            Approval, ApprovalId, ApprovalProblem, ApprovalState, Approver, Binding, Decision,
            MAX_PROOF_BYTES, MAX_REASON_BYTES, NewApproval, ParseApprovalIdError, PendingBounds,
            Verdict,
        },
        codec::DecodeError,
        entry::{
            Clipped, Cut, Delivery, Digest, End, Ended, Entry, Event, HIDDEN_CAPABILITY, Kind,
            MAX_ARGUMENTS_BYTES, MAX_MESSAGE_BYTES, MAX_RESULT_BYTES, MAX_TEXT_BYTES, Outcome,
            Start, Started, UNKNOWN_CAPABILITY,
        },
        id::{CallId, ParseCallIdError},
        note::{MAX_DETAIL_BYTES, Note, NoteKind, Noted},
        operation::{
            Claim, ClaimRefusal, Kept, KeyClaim, MAX_KEPT_BYTES, Operation, OperationOutcome,
        },
        seal::{Encrypted, Seal},
    },
    recorder::{
        ApprovalError, BeginError, CloseError, DEFAULT_MAX_UNWRITTEN, DEFAULT_MAX_UNWRITTEN_BYTES,
        DEFAULT_MAX_WAIT, Durability, Finished, OpenCall, RecordError, Recorder, RecorderOptions,
        commit_hook::CommitHook,
        queue::{COMMIT_BUCKETS, CommitTimes, Health},
        refusals::{DEFAULT_MAX_REFUSALS, REFUSAL_WINDOW},
        system_now_us,
    },
    sqlite::{
        SqliteLedger,
        archive::{
            ArchiveError, ArchiveOptions, ArchiveStep, Archived, Archiver, DEFAULT_SEGMENT_ENTRIES,
            Hold, HoldFilter, Holds, MIN_AGE,
        },
        backup::{BackupError, Restored, backup, backup_checkpoint, restore},
        offline_approvals::{OfflineApprovals, OfflineApprovalsError},
        reader::LedgerReader,
        schema::OpenError,
    },
    store::{
        Account, Appended, Charge, Counted, FindEnd, Group, Interrupted, LedgerStore, StoreError,
        Tail, memory::MemoryLedger,
    },
    verify::{
        Follower, Report, SealedEvery, Trust, VerifyError, Wrong, verify, verify_telling,
        verify_while,
    },
};
