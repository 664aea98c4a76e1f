//! Notes: events of the ledger and the rules, outside of calls.

use crate::record::entry::Clipped;
use std::{borrow::Cow, fmt};

/// The most bytes of a note's detail that are kept; of longer ones the beginning and a digest.
pub const MAX_DETAIL_BYTES: usize = 16 * 1024;

/// Kind of event that is noted. There may be others than those that have names here.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoteKind(Cow<'static, str>);

/// Event other than a call that belongs on record. Longer texts than the bounds are cut.
#[derive(Clone, Debug)]
pub struct Note<'a> {
    /// Time: microseconds since the epoch, UTC.
    pub at_us: u64,
    /// Kind of event.
    pub kind: NoteKind,
    /// Actor: a principal, `user:…`, or `system` for no person in particular.
    pub actor: &'a str,
    /// Subject, such as the name of an approval; empty when that is plain.
    pub subject: &'a str,
    /// The version of the policy at that time; 0 when it does not matter.
    pub policy_version: u64,
    /// More about it, as JSON text, already redacted.
    pub detail: &'a str,
}

/// A [`Note`], as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `Note`")]
pub struct Noted {
    pub at_us: u64,
    pub kind: NoteKind,
    pub actor: String,
    pub subject: String,
    pub policy_version: u64,
    pub detail: Clipped,
}

#[expect(missing_docs, reason = "the names say it")]
impl NoteKind {
    pub const SERVER_STARTED: Self = Self::constant("server_started");
    pub const SERVER_STOPPED: Self = Self::constant("server_stopped");
    pub const POLICY_CHANGED: Self = Self::constant("policy_changed");
    pub const POLICY_REJECTED: Self = Self::constant("policy_rejected");
    pub const KEY_CHANGED: Self = Self::constant("key_changed");
    pub const APPROVAL_REQUESTED: Self = Self::constant("approval_requested");
    pub const APPROVAL_DECIDED: Self = Self::constant("approval_decided");
    pub const APPROVAL_REVOKED: Self = Self::constant("approval_revoked");
    pub const APPROVAL_EXPIRED: Self = Self::constant("approval_expired");
    pub const REFUSALS_AGGREGATED: Self = Self::constant("refusals_aggregated");
    pub const CHECKPOINT: Self = Self::constant("checkpoint");
    pub const ROLLBACK_ACCEPTED: Self = Self::constant("rollback_accepted");
    pub const COUNTERS_RAISED: Self = Self::constant("counters_raised");
    pub const PROMPT_CHANGED: Self = Self::constant("prompt_changed");
    pub const QUESTION_ANSWERED: Self = Self::constant("question_answered");
    pub const DEFINITION_HELD: Self = Self::constant("definition_held");
    pub const DEFINITION_APPROVED: Self = Self::constant("definition_approved");
    pub const CREDENTIAL_CHANGED: Self = Self::constant("credential_changed");
    pub const OPERATOR_ACTED: Self = Self::constant("operator_acted");
    pub const RETENTION: Self = Self::constant("retention");
    pub const COST_AWAITED: Self = Self::constant("cost_awaited");
    pub const TASK_CREATED: Self = Self::constant("task_created");

    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::SERVER_STARTED,
        Self::SERVER_STOPPED,
        Self::POLICY_CHANGED,
        Self::POLICY_REJECTED,
        Self::KEY_CHANGED,
        Self::APPROVAL_REQUESTED,
        Self::APPROVAL_DECIDED,
        Self::APPROVAL_REVOKED,
        Self::APPROVAL_EXPIRED,
        Self::REFUSALS_AGGREGATED,
        Self::CHECKPOINT,
        Self::ROLLBACK_ACCEPTED,
        Self::COUNTERS_RAISED,
        Self::PROMPT_CHANGED,
        Self::QUESTION_ANSWERED,
        Self::DEFINITION_HELD,
        Self::DEFINITION_APPROVED,
        Self::CREDENTIAL_CHANGED,
        Self::OPERATOR_ACTED,
        Self::RETENTION,
        Self::COST_AWAITED,
        Self::TASK_CREATED,
    ];

    const fn constant(name: &'static str) -> Self {
        Self(Cow::Borrowed(name))
    }

    /// The kind of this name.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self(Cow::Owned(name.into()))
    }

    /// Name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NoteKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Note<'_> {
    /// A note by the system itself that says what and when, and leaves the rest empty.
    #[must_use]
    pub fn new(at_us: u64, kind: NoteKind) -> Self {
        Self {
            at_us,
            kind,
            actor: "system",
            subject: "",
            policy_version: 0,
            detail: "{}",
        }
    }
}

impl Noted {
    /// The same to be written.
    #[must_use]
    pub fn as_note(&self) -> Note<'_> {
        Note {
            at_us: self.at_us,
            kind: self.kind.clone(),
            actor: &self.actor,
            subject: &self.subject,
            policy_version: self.policy_version,
            detail: &self.detail.text,
        }
    }
}
