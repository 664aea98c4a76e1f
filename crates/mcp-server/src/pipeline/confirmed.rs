//! Calls that a person must confirm before they begin.

mod question;
pub(crate) mod state;

use crate::{
    clock::Clock,
    input::rounds::askable,
    invocation::{
        Invocation, Invoked, Target,
        failure::InvocationError,
        refusal::{PendingApproval, Unconfirmed, WhyUnconfirmed},
    },
    pipeline::{
        confirmed::{
            question::{Question, Said, said},
            state::{Confirming, Stage, pack, unpack},
        },
        governed::Admitted,
    },
};
use adapter_tools::Needed;
use governance::{Confirmation, Micros};
use ledger::{
    Approval, ApprovalError, ApprovalId, ApprovalProblem, ApprovalState, Approver, Decision,
    Digest, MAX_ARGUMENTS_BYTES, NewApproval, Recorder, Verdict,
};
use mcp_service::{RequestCx, Service};
use redaction::{Redactor, TooLong};
use sha2::{Digest as _, Sha256};
use std::{sync::Arc, time::Duration};

/// The most bytes of a call's arguments that the client's user is shown. Of longer ones, long values
/// are folded; what is longer even so, an operator has to confirm.
const MAX_QUESTION_BYTES: usize = 2_000;

/// Layer that waits for a confirmation of the calls that governance wants confirmed, each for itself.
///
/// What is confirmed is one call: of one principal, of a tool as it is defined now, with these
/// arguments, under the policy in force. Whoever confirms it, the client's user by a question or an
/// operator elsewhere, makes an approval of it in the ledger, and the entry with which the call
/// begins uses that up, in one transaction: no approval lets two calls through, however they come.
#[derive(Debug)]
pub(crate) struct Confirmed<S> {
    inner: S,
    recorder: Recorder,
    clock: Clock,
    expire: Duration,
    redactor: Arc<Redactor>,
}

/// Decision about a call that needs a confirmation.
enum Found {
    /// The call may begin, with this approval of this binding.
    Approved(ApprovalId, Digest),
    /// The client is to be asked first.
    Ask(Needed),
}

impl<S> Confirmed<S> {
    /// Approvals can be decided and used until `expire` after they were asked for. The person who
    /// decides sees arguments as `redactor` leaves them.
    pub(crate) fn new(
        inner: S,
        recorder: Recorder,
        clock: Clock,
        expire: Duration,
        redactor: Arc<Redactor>,
    ) -> Self {
        Self {
            inner,
            recorder,
            clock,
            expire,
            redactor,
        }
    }

    async fn find(
        &self,
        cx: &RequestCx,
        admitted: &Admitted<Invocation>,
        needs: Confirmation,
        binding: Digest,
        carried: Option<Confirming>,
    ) -> Result<Found, InvocationError> {
        if let Some(carried) = &carried
            && let Stage::GoingOn { after } = &carried.stage
        {
            let binding = going_on(binding, after);
            // Of another call, or under other rules, it is as if nothing had been confirmed.
            if let Some(approval) = carried.approval_for(binding) {
                return Ok(Found::Approved(approval, binding));
            }
        }
        let asked = carried.filter(|it| it.stage == Stage::Asked);
        if let Some(asked) = asked.and_then(|it| it.approval_for(binding))
            && needs == Confirmation::User
            && let Some(answers) = &admitted.inner().answers
            && let Some(said) = said(answers)
            && let Some(found) = self.heard(cx, asked, binding, said).await?
        {
            return Ok(found);
        }
        let approval = self.request(cx, admitted, needs, binding).await?;
        match approval.state {
            ApprovalState::Approved => Ok(Found::Approved(approval.id, binding)),
            ApprovalState::Pending if needs == Confirmation::User && askable(cx).form => match self
                .question(admitted)
            {
                Ok(needed) => {
                    let asked = Confirming::new(approval.id, binding, Stage::Asked);
                    Ok(Found::Ask(pack(needed, Some(asked), None)))
                }
                Err(too_long) => Err(refused(WhyUnconfirmed::TooLongForUser(too_long), &approval)),
            },
            ApprovalState::Pending => Err(refused(WhyUnconfirmed::Pending, &approval)),
            ApprovalState::Denied => {
                let why = WhyUnconfirmed::Approval(ApprovalProblem::Denied);
                Err(refused(why, &approval))
            }
            // Not what is given to whoever asks for one.
            ApprovalState::Used | ApprovalState::Expired | ApprovalState::Revoked => {
                let why = WhyUnconfirmed::Approval(ApprovalProblem::Expired);
                Err(refused(why, &approval))
            }
        }
    }

    /// Takes the answer of the client's user to the question about `asked`; `None` if that is over,
    /// and the user is to be asked again.
    async fn heard(
        &self,
        cx: &RequestCx,
        asked: ApprovalId,
        binding: Digest,
        said: Said,
    ) -> Result<Option<Found>, InvocationError> {
        let decision = match said {
            Said::Yes => Decision::Approve,
            Said::No => Decision::Deny,
            // Neither decides anything: the same call, made again, asks again.
            Said::Nothing => return Err(unconfirmed(WhyUnconfirmed::Dismissed, None)),
            Said::NotYes => return Err(unconfirmed(WhyUnconfirmed::NotAllowed, None)),
        };
        let verdict = Verdict {
            proof: Some("the client's user, by elicitation".to_owned()),
            ..Verdict::new(decision, format!("user:{}", cx.principal), (self.clock)())
        };
        let decided = self.recorder.decide_approval(asked, verdict);
        match (decided.await, said) {
            (Ok(approval), Said::Yes) => Ok(Some(Found::Approved(approval.id, binding))),
            (Ok(approval), _) => Err(refused(WhyUnconfirmed::Declined, &approval)),
            // An operator may have been faster, or the same answer may have come before. Whether
            // the call may begin is seen when it does.
            (Err(ApprovalError::Refused(ApprovalProblem::Decided)), Said::Yes) => {
                Ok(Some(Found::Approved(asked, binding)))
            }
            (Err(ApprovalError::Refused(ApprovalProblem::Decided)), _) => {
                Err(unconfirmed(WhyUnconfirmed::Declined, None))
            }
            (
                Err(ApprovalError::Refused(ApprovalProblem::Expired | ApprovalProblem::Missing)),
                _,
            ) => Ok(None),
            (Err(error), _) => Err(not_had(error)),
        }
    }

    /// Asks the ledger for an approval: a new one, unless there is one for the same that is not over.
    async fn request(
        &self,
        cx: &RequestCx,
        admitted: &Admitted<Invocation>,
        needs: Confirmation,
        binding: Digest,
    ) -> Result<Approval, InvocationError> {
        let reason = admitted.confirmation_rule().unwrap_or_default().to_owned();
        let new = self.new_approval(cx, admitted, needs, binding, reason)?;
        let approval = self.recorder.request_approval(&new).await;
        approval.map_err(not_had)
    }

    fn new_approval(
        &self,
        cx: &RequestCx,
        admitted: &Admitted<Invocation>,
        needs: Confirmation,
        binding: Digest,
        reason: String,
    ) -> Result<NewApproval, InvocationError> {
        let now_us = (self.clock)();
        let expire_us = u64::try_from(self.expire.as_micros()).unwrap_or(u64::MAX);
        let invocation = admitted.inner();
        let arguments = self
            .shown_arguments(invocation, MAX_ARGUMENTS_BYTES)
            .map_err(|too_long| unconfirmed(WhyUnconfirmed::TooLong(too_long), None))?;
        Ok(NewApproval {
            id: ApprovalId::random(),
            binding,
            principal: cx.principal.as_str().to_owned(),
            capability: invocation.capability.as_ref().to_owned(),
            arguments,
            policy_version: admitted.policy_version(),
            reason,
            needs: match needs {
                Confirmation::User => Approver::User,
                Confirmation::Operator => Approver::Operator,
            },
            requested_us: now_us,
            // As large as a store can have it.
            expires_us: now_us
                .saturating_add(expire_us)
                .min(i64::MAX.unsigned_abs()),
        })
    }

    /// The arguments for people to see, in the ledger and in questions: without secrets, and whole, but
    /// for long values that are folded.
    fn shown_arguments(&self, invocation: &Invocation, max: usize) -> Result<String, TooLong> {
        let arguments = invocation.arguments.as_str();
        let redacted = self.redactor.json(&invocation.capability, arguments);
        redaction::folded(&redacted, max)
    }

    fn question(&self, admitted: &Admitted<Invocation>) -> Result<Needed, TooLong> {
        let invocation = admitted.inner();
        let estimate = admitted.estimate();
        let risks: Vec<_> = admitted.risk().names().collect();
        let question = Question {
            capability: &invocation.capability,
            arguments: &self.shown_arguments(invocation, MAX_QUESTION_BYTES)?,
            cost: (estimate != Micros::ZERO).then(|| estimate.to_string()),
            risks: &risks,
        };
        Ok(question.form())
    }

    /// Makes an approval for the rest of a call that was confirmed, has begun, and has asked
    /// something itself. It is a new one, because a question may be answered many times, and what
    /// it leads to must not happen more than once.
    async fn approve_rest(&self, rest: NewApproval, after: ApprovalId) -> Option<Confirming> {
        let (id, binding) = (rest.id, rest.binding);
        let requested = self.recorder.request_approval(&rest).await;
        let decided = match requested {
            Ok(_) => {
                let by = format!("confirmed:{after}");
                let verdict = Verdict {
                    proof: Some("goes on with a call that was confirmed".to_owned()),
                    ..Verdict::new(Decision::Approve, by, (self.clock)())
                };
                self.recorder.decide_approval(id, verdict).await
            }
            Err(error) => Err(error),
        };
        match decided {
            Ok(_) => Some(Confirming::new(
                id,
                binding,
                Stage::GoingOn {
                    after: after.to_string(),
                },
            )),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a call that has asked something has to be confirmed again"
                );
                None
            }
        }
    }
}

/// The digest of a call that its confirmation is for.
fn binding_of(cx: &RequestCx, admitted: &Admitted<Invocation>) -> Digest {
    let invocation = admitted.inner();
    invocation.binding(cx.principal.as_str(), admitted.policy_version())
}

fn unconfirmed(why: WhyUnconfirmed, approval: Option<PendingApproval>) -> InvocationError {
    InvocationError::Unconfirmed(Box::new(Unconfirmed {
        why,
        approval,
        on_record: false,
    }))
}

fn refused(why: WhyUnconfirmed, approval: &Approval) -> InvocationError {
    let approval = PendingApproval {
        id: approval.id,
        state: approval.state,
        expires_us: approval.expires_us,
    };
    unconfirmed(why, Some(approval))
}

fn not_had(error: ApprovalError) -> InvocationError {
    match error {
        ApprovalError::Refused(problem) => unconfirmed(WhyUnconfirmed::Approval(problem), None),
        ApprovalError::Record(error) => InvocationError::Unrecorded(error),
    }
}

impl<S> Confirmed<S>
where
    S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
{
    async fn call_confirmed(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
        needs: Confirmation,
        carried: Option<Confirming>,
    ) -> Result<Invoked, InvocationError> {
        let arguments = admitted.inner().arguments.as_str();
        if let Some(name) = redaction::repeated_name(arguments) {
            return Err(unconfirmed(WhyUnconfirmed::Repeated(name.into()), None));
        }
        let binding = binding_of(cx, &admitted);
        let (approval, used) = match self.find(cx, &admitted, needs, binding, carried).await? {
            Found::Approved(approval, used) => (approval, used),
            Found::Ask(needed) => return Ok(Invoked::NeedsConfirmation(needed)),
        };
        let reason = format!("goes on with what {approval} was for, which has asked something");
        let rest = going_on(binding, &approval.to_string());
        let rest = self.new_approval(cx, &admitted, needs, rest, reason)?;
        let admitted = admitted.with_approval(approval, used);
        let report = Arc::clone(&admitted.inner().report);
        match self.inner.call(cx, admitted).await? {
            Invoked::NeedsInput(needed) => {
                let rest = self.approve_rest(rest, approval).await;
                Ok(Invoked::NeedsInput(pack(needed, rest, report.call())))
            }
            invoked => Ok(invoked),
        }
    }
}

impl<S> Service<Admitted<Invocation>> for Confirmed<S>
where
    S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
{
    type Response = Invoked;
    type Error = InvocationError;

    async fn call(
        &self,
        cx: &RequestCx,
        mut admitted: Admitted<Invocation>,
    ) -> Result<Invoked, InvocationError> {
        let carried = unpack(admitted.inner_mut());
        match admitted.confirmation() {
            // Nobody is asked about a call that is wrong: it is refused where every wrong one is. Nor is the user about one
            // that does nothing.
            Some(needs) if does_something(admitted.inner(), needs) => {
                self.call_confirmed(cx, admitted, needs, carried).await
            }
            _ => {
                let report = Arc::clone(&admitted.inner().report);
                match self.inner.call(cx, admitted).await {
                    Ok(Invoked::NeedsInput(needed)) => {
                        Ok(Invoked::NeedsInput(pack(needed, None, report.call())))
                    }
                    outcome => outcome,
                }
            }
        }
    }
}

fn does_something(invocation: &Invocation, needs: Confirmation) -> bool {
    match &invocation.target {
        Target::Tool(_) => {
            let arguments = invocation.arguments.clone().into_bytes();
            let tool = invocation.tool.as_ref();
            tool.is_some_and(|it| {
                let arguments = it.tool.check(arguments);
                arguments.is_ok_and(|arguments| {
                    needs != Confirmation::User || !it.tool.is_dry_run(&arguments)
                })
            })
        }
        // What is wrong with these is known when they have been tried, and they do nothing.
        Target::Resource(_) | Target::Prompt(..) => true,
    }
}

/// The binding of an approval that lets a call go on: the call was confirmed as `binding`, has begun
/// with the approval `after`, and has asked something itself. No other call has this binding.
fn going_on(binding: Digest, after: &str) -> Digest {
    let mut hash = Sha256::new_with_prefix(b"owlclaw approval going on 1");
    hash.update(binding);
    hash.update(after);
    hash.finalize().into()
}
