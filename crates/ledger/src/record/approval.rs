//! Approvals: calls that a person must agree to before they run.

use crate::record::{
    codec,
    entry::{Digest, MAX_TEXT_BYTES},
    id::CallId,
    note::{Note, NoteKind},
};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// Length of an approval's name as text: the prefix and 22 digits.
const NAME_BYTES: usize = PREFIX.len() + DIGITS;

const PREFIX: &str = "apr_";

/// Digits of base 62 that 128 bits take.
const DIGITS: usize = 22;

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Names an approval: `apr_` and 22 letters and digits. Random, so that the next cannot be guessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalId(pub Uuid);

/// Text that is no [`ApprovalId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an approval is named by apr_ and 22 letters and digits")]
pub struct ParseApprovalIdError;

impl ApprovalId {
    /// A new name.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }
}

impl fmt::Display for ApprovalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut number = self.0.as_u128();
        let mut digits = [b'0'; DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit = ALPHABET[usize::try_from(number % 62).expect("it is less than 62")];
            number /= 62;
        }
        f.write_str(PREFIX)?;
        f.write_str(std::str::from_utf8(&digits).expect("the alphabet is ASCII"))
    }
}

impl FromStr for ApprovalId {
    type Err = ParseApprovalIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != NAME_BYTES {
            return Err(ParseApprovalIdError);
        }
        let digits = text.strip_prefix(PREFIX).ok_or(ParseApprovalIdError)?;
        let number = digits.bytes().try_fold(0_u128, |number, digit| {
            let value = ALPHABET.iter().position(|&it| it == digit)?;
            number.checked_mul(62)?.checked_add(value as u128)
        });
        number
            .map(|number| Self(Uuid::from_u128(number)))
            .ok_or(ParseApprovalIdError)
    }
}

/// Exactly what is agreed to. A call that differs in any of it needs an approval of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// Principal that may call.
    pub principal: &'a str,
    /// Capability, as `kind/name`.
    pub capability: &'a str,
    /// A digest of what the capability is: a tool that has been changed is another one.
    pub definition: Digest,
    /// A digest of the arguments in canonical form.
    pub arguments: Digest,
    /// The version of the rules that asked for the approval.
    pub policy_version: u64,
}

impl Binding<'_> {
    /// One digest for all of it.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut hash = Sha256::new_with_prefix(b"owlclaw approval binding 1");
        for text in [self.principal, self.capability] {
            // With its length, so that no two bindings run together to the same bytes.
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
        hash.update(self.definition);
        hash.update(self.arguments);
        hash.update(self.policy_version.to_le_bytes());
        hash.finalize().into()
    }
}

/// Person who may decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Approver {
    /// The person at the client, or an operator.
    User,
    /// An operator alone.
    Operator,
}

/// Decision on an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The call may be made, once.
    Approve,
    /// The call may not be made.
    Deny,
    /// An earlier decision is revoked, if no call has used it: the next call asks anew.
    Revoke,
}

/// A decision, and who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The decision.
    pub decision: Decision,
    /// Name of the decider: `user:` and a principal for the person at a client, who may decide on the
    /// client's own calls unless an operator must; any other word for an operator.
    pub by: String,
    /// The way in which they proved who they are, or that they did not; `None` where that is not
    /// known. At most [`MAX_PROOF_BYTES`] are kept.
    pub proof: Option<String>,
    /// The reason that they gave. At most [`MAX_REASON_BYTES`] are kept.
    pub reason: Option<String>,
    /// Time of the decision: microseconds since the epoch, UTC.
    pub at_us: u64,
}

/// The most bytes of [`Verdict::proof`] that are kept.
pub const MAX_PROOF_BYTES: usize = 256;

/// The most bytes of [`Verdict::reason`] that are kept.
pub const MAX_REASON_BYTES: usize = 512;

/// State of an approval. Only the first three can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApprovalState {
    /// No decision yet.
    Pending,
    /// The call may be made, once.
    Approved,
    /// The call may not be made.
    Denied,
    /// The call has been made.
    Used,
    /// Past its time limit before it was used.
    Expired,
    /// The decision was taken back before it was used.
    Revoked,
}

/// An approval that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewApproval {
    /// Id that it gets, if it is made.
    pub id: ApprovalId,
    /// Digest of the call that it is for: [`Binding::digest`].
    pub binding: Digest,
    /// Principal that wants to call.
    pub principal: String,
    /// Capability, as `kind/name`.
    pub capability: String,
    /// The arguments as JSON text, already redacted, as the decider sees them. No approval is made
    /// of longer ones than [`crate::record::entry::MAX_ARGUMENTS_BYTES`], since they would be cut.
    pub arguments: String,
    /// The version of the rules that ask for it.
    pub policy_version: u64,
    /// Reason for the confirmation, to show.
    pub reason: String,
    /// Person who may decide.
    pub needs: Approver,
    /// Time of the request: microseconds since the epoch, UTC.
    pub requested_us: u64,
    /// From when on it can neither be decided nor used.
    pub expires_us: u64,
}

/// An approval, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the first fields are those of `NewApproval`")]
pub struct Approval {
    pub id: ApprovalId,
    pub binding: Digest,
    pub principal: String,
    pub capability: String,
    pub arguments: String,
    pub policy_version: u64,
    pub reason: String,
    pub needs: Approver,
    pub requested_us: u64,
    pub expires_us: u64,
    /// State.
    pub state: ApprovalState,
    /// The decision, once there is one.
    pub decided: Option<Verdict>,
    /// The revocation of that decision, once there is one.
    pub revoked: Option<Verdict>,
    /// The call that used it.
    pub used_by: Option<CallId>,
    /// Time of use: microseconds since the epoch, UTC.
    pub used_us: Option<u64>,
}

/// Reason why an approval cannot be had, decided or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum ApprovalProblem {
    /// There is none of this name.
    #[error("there is no such approval")]
    Missing,
    /// The approval is for another call.
    #[error("the approval is for another call")]
    AnotherCall,
    /// No decision yet.
    #[error("the approval is still pending")]
    Pending,
    /// The approval may no longer be decided: it has been.
    #[error("the approval has been decided already")]
    Decided,
    /// The answer was no.
    #[error("the approval was denied")]
    Denied,
    /// A call has used it.
    #[error("the approval has been used already")]
    Used,
    /// The approval is past its time limit.
    #[error("the approval has expired")]
    Expired,
    /// The person who wants to decide may not.
    #[error("the approval must be decided by another person")]
    NotEntitled,
    /// Too many wait for a decision already.
    #[error("too many approvals are pending")]
    TooManyPending,
    /// The approval was revoked.
    #[error("the approval was taken back")]
    Revoked,
    /// The arguments to approve are too large to be shown as a whole.
    #[error("the arguments to approve are too large to be shown")]
    TooLarge,
}

/// Bounds on approvals that wait for a decision at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingBounds {
    /// Of one principal. Those that the person at the client has turned down count until they
    /// expire: a client that asks and declines for ever must not fill the ledger.
    pub per_principal: u64,
    /// Of all.
    pub total: u64,
}

/// Prefix of a `by` that marks the person at the client: the rest is their principal.
const USER_PREFIX: &str = "user:";

impl Default for PendingBounds {
    fn default() -> Self {
        Self {
            per_principal: 100,
            total: 10_000,
        }
    }
}

impl From<NewApproval> for Approval {
    fn from(new: NewApproval) -> Self {
        Self {
            id: new.id,
            binding: new.binding,
            principal: new.principal,
            capability: new.capability,
            arguments: new.arguments,
            policy_version: new.policy_version,
            reason: new.reason,
            needs: new.needs,
            requested_us: new.requested_us,
            expires_us: new.expires_us,
            state: ApprovalState::Pending,
            decided: None,
            revoked: None,
            used_by: None,
            used_us: None,
        }
    }
}

impl Approval {
    /// State at this time; expiry shows here before a server has written it down.
    #[must_use]
    pub fn state_at(&self, now_us: u64) -> ApprovalState {
        if self.state.can_change() && self.expires_us <= now_us {
            ApprovalState::Expired
        } else {
            self.state
        }
    }

    /// Decides, or revokes a decision, if that is still possible and the decider is allowed to.
    pub(crate) fn decide(&mut self, verdict: &Verdict) -> Result<(), ApprovalProblem> {
        let is_revoked = verdict.decision == Decision::Revoke;
        match (self.state_at(verdict.at_us), is_revoked) {
            (ApprovalState::Pending, false) | (ApprovalState::Approved, true) => {}
            (ApprovalState::Denied, true) if verdict.at_us < self.expires_us => {}
            (ApprovalState::Denied, true) | (ApprovalState::Expired, _) => {
                return Err(ApprovalProblem::Expired);
            }
            (ApprovalState::Pending, true) => return Err(ApprovalProblem::Pending),
            (ApprovalState::Used, true) => return Err(ApprovalProblem::Used),
            (ApprovalState::Revoked, _) => return Err(ApprovalProblem::Revoked),
            (ApprovalState::Approved | ApprovalState::Denied | ApprovalState::Used, false) => {
                return Err(ApprovalProblem::Decided);
            }
        }
        if let Some(user) = verdict.by.strip_prefix(USER_PREFIX)
            && (is_revoked
                || self.needs == Approver::Operator
                || codec::cut(user, MAX_TEXT_BYTES) != self.principal)
        {
            return Err(ApprovalProblem::NotEntitled);
        }
        let verdict = verdict.shortened();
        self.state = match verdict.decision {
            Decision::Approve => ApprovalState::Approved,
            Decision::Deny => ApprovalState::Denied,
            Decision::Revoke => ApprovalState::Revoked,
        };
        match is_revoked {
            false => self.decided = Some(verdict),
            true => self.revoked = Some(verdict),
        }
        Ok(())
    }

    /// Returns true if the user at the client that asked for it has turned it down.
    pub(crate) fn was_declined(&self) -> bool {
        let by = self.decided.as_ref().map(|decided| decided.by.as_str());
        self.state == ApprovalState::Denied && by.is_some_and(|by| by.starts_with(USER_PREFIX))
    }

    /// The last decision or revocation by a person: the kind of its note, and the verdict.
    pub(crate) fn last_verdict(&self) -> Option<(NoteKind, &Verdict)> {
        let revoked = self.revoked.as_ref();
        let revoked = revoked.map(|it| (NoteKind::APPROVAL_REVOKED, it));
        let decided = self.decided.as_ref();
        revoked.or_else(|| decided.map(|it| (NoteKind::APPROVAL_DECIDED, it)))
    }

    /// Checks that a call with this binding may use it now.
    pub(crate) fn check_use(&self, binding: Digest, at_us: u64) -> Result<(), ApprovalProblem> {
        if self.binding != binding {
            return Err(ApprovalProblem::AnotherCall);
        }
        match self.state_at(at_us) {
            ApprovalState::Approved => Ok(()),
            ApprovalState::Pending => Err(ApprovalProblem::Pending),
            ApprovalState::Denied => Err(ApprovalProblem::Denied),
            ApprovalState::Used => Err(ApprovalProblem::Used),
            ApprovalState::Expired => Err(ApprovalProblem::Expired),
            ApprovalState::Revoked => Err(ApprovalProblem::Revoked),
        }
    }

    pub(crate) fn use_up(&mut self, call: CallId, at_us: u64) {
        self.state = ApprovalState::Used;
        self.used_by = Some(call);
        self.used_us = Some(at_us);
    }

    /// Combines the approval with the note about its request, decision, revocation or expiry at this
    /// time.
    pub(crate) fn with_note<T>(
        &self,
        kind: NoteKind,
        at_us: u64,
        then: impl FnOnce(&Note<'_>) -> T,
    ) -> T {
        let actor = if kind == NoteKind::APPROVAL_REQUESTED {
            &self.principal
        } else if kind == NoteKind::APPROVAL_EXPIRED {
            "system"
        } else {
            self.last_verdict().map_or("", |(_, verdict)| &verdict.by)
        };
        let decided = self.decided.as_ref();
        let detail = json!({
            "principal": self.principal,
            "capability": self.capability,
            "binding": HEXLOWER.encode(&self.binding),
            // Of what whoever decides is shown, so that it cannot be changed unseen.
            "shown_digest": HEXLOWER.encode(&Sha256::digest(&self.arguments)),
            "needs": self.needs.as_str(),
            "reason": self.reason,
            "state": self.state.as_str(),
            "requested_us": self.requested_us,
            "expires_us": self.expires_us,
            "decided_us": decided.map(|decided| decided.at_us),
            // A decision that is taken back is told again: it may have been both decided and taken
            // back beside the server, between two looks.
            "decided": decided.map(Verdict::to_json),
            "revoked": self.revoked.as_ref().map(Verdict::to_json),
        });
        then(&Note {
            at_us,
            kind,
            actor,
            subject: &self.id.to_string(),
            policy_version: self.policy_version,
            detail: &detail.to_string(),
        })
    }
}

impl Verdict {
    /// A decision of which neither reason nor proof is known.
    #[must_use]
    pub fn new(decision: Decision, by: impl Into<String>, at_us: u64) -> Self {
        Self {
            decision,
            by: by.into(),
            proof: None,
            reason: None,
            at_us,
        }
    }

    /// The verdict with its texts shortened to what is kept.
    fn shortened(&self) -> Self {
        let short = |text: &Option<String>, max| {
            let text = text.as_deref().map(|text| codec::cut(text, max));
            let text = text.map(|text| text.replace(char::is_control, " "));
            text.filter(|text| !text.trim().is_empty())
        };
        Self {
            proof: short(&self.proof, MAX_PROOF_BYTES),
            reason: short(&self.reason, MAX_REASON_BYTES),
            ..self.clone()
        }
    }

    /// The verdict as a member of a note.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "decision": self.decision.as_str(),
            "by": codec::cut(&self.by, MAX_TEXT_BYTES),
            "proof": self.proof,
            "reason": self.reason,
            "at_us": self.at_us.min(i64::MAX.unsigned_abs()),
        })
    }
}

impl Decision {
    /// Name, the same in the store and in every format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
            Self::Revoke => "revoke",
        }
    }

    /// The decision of this name in a store. Older versions did not store it: what is denied now was
    /// denied then, and nothing could be taken back.
    pub(crate) fn stored(name: Option<&str>, state: ApprovalState) -> Self {
        let named = name.and_then(Self::named);
        named.unwrap_or(match state {
            ApprovalState::Denied => Self::Deny,
            _ => Self::Approve,
        })
    }

    /// The decision of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::Approve, Self::Deny, Self::Revoke]
            .into_iter()
            .find(|decision| decision.as_str() == name)
    }
}

impl ApprovalState {
    /// Name, the same in the store and in every format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Used => "used",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [
            Self::Pending,
            Self::Approved,
            Self::Denied,
            Self::Used,
            Self::Expired,
            Self::Revoked,
        ]
        .into_iter()
        .find(|state| state.as_str() == name)
    }

    pub(crate) fn can_change(self) -> bool {
        matches!(self, Self::Pending | Self::Approved)
    }
}

impl Approver {
    /// Name, the same in the store and in every format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
        }
    }

    /// The approver of this name; an unknown one is the one that fewer people are.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "user" => Self::User,
            _ => Self::Operator,
        }
    }
}

impl ApprovalProblem {
    pub(crate) const ALL: [Self; 11] = [
        Self::Missing,
        Self::AnotherCall,
        Self::Pending,
        Self::Decided,
        Self::Denied,
        Self::Used,
        Self::Expired,
        Self::NotEntitled,
        Self::TooManyPending,
        Self::Revoked,
        Self::TooLarge,
    ];

    /// Name, the same in every format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::AnotherCall => "another_call",
            Self::Pending => "pending",
            Self::Decided => "decided",
            Self::Denied => "denied",
            Self::Used => "used",
            Self::Expired => "expired",
            Self::NotEntitled => "not_entitled",
            Self::TooManyPending => "too_many_pending",
            Self::Revoked => "revoked",
            Self::TooLarge => "too_large",
        }
    }
}

impl fmt::Display for ApprovalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
