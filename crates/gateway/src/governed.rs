use crate::{
    Clock, Invocation, InvocationError, Invoked, PromptFailure, ReadFailure, Tally,
    clock::timestamp,
    error,
    invocation::Target,
    quota_report,
    recorded::{Labels, start_of},
};
use adapter_tools::ToolError;
use governance::{Ask, Denial, Ending, Governor, Micros, Permit, QuotaStore, Reason};
use ledger::{CallId, End, Outcome, Recorder, Start};
use mcp_service::{RequestCx, Service};
use redaction::Redactor;
use std::{sync::Arc, time::Instant};

/// Something that governance has let through. Only [`Governed`] makes one, so what takes an
/// `Admitted` cannot be reached around it.
#[derive(Debug)]
pub struct Admitted<T> {
    inner: T,
    estimate: Micros,
    policy_version: u64,
    deadline: Option<Instant>,
}

impl<T> Admitted<T> {
    /// What was let through.
    pub fn inner(&self) -> &T {
        &self.inner
    }

    /// What was reserved for it.
    pub fn estimate(&self) -> Micros {
        self.estimate
    }

    /// When its answer is no longer wanted; set on the way to whoever carries it out.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    pub(crate) fn until(self, deadline: Instant) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// The version of the policy that let it through.
    pub fn policy_version(&self) -> u64 {
        self.policy_version
    }
}

/// Lets through what the governor admits, and records what it does not.
#[derive(Debug)]
pub struct Governed<S, Q> {
    inner: S,
    governor: Arc<Governor<Q>>,
    recorder: Recorder,
    redactor: Arc<Redactor>,
    clock: Clock,
}

impl<S, Q: QuotaStore> Governed<S, Q> {
    pub(crate) fn new(
        inner: S,
        governor: Arc<Governor<Q>>,
        recorder: Recorder,
        redactor: Arc<Redactor>,
        clock: Clock,
    ) -> Self {
        Self {
            inner,
            governor,
            recorder,
            redactor,
            clock,
        }
    }

    /// Visible, permitted, then budget and rates together (decision D6). What does not exist is
    /// asked for in the same place, so that it costs nobody anything either.
    async fn admit(&self, cx: &RequestCx, invocation: &Invocation) -> Result<Permit<Q>, Refusal> {
        let principal = cx.principal.as_str();
        // Both are looked up in every case: which of the two failed must not show in the time.
        let exists = invocation.exists();
        let visible = self.governor.visible(principal, &invocation.capability);
        if !exists {
            return Err(Refusal::Unknown);
        }
        if !visible {
            return Err(Refusal::Denied(Denial::new(Reason::NotVisible)));
        }
        // Before anything is counted: a refusal uses nothing up, and this one can last for hours.
        if !self.recorder.is_ok()
            && self
                .governor
                .policy()
                .permitted(principal, &invocation.capability)
        {
            return Err(Refusal::Denied(Denial::new(Reason::LedgerUnavailable)));
        }
        let ask = Ask {
            principal,
            capability: &invocation.capability,
            kind: invocation.kind(),
            estimate: invocation.estimate(),
            now: timestamp((self.clock)()),
            arguments: Some(invocation.arguments.as_str()),
        };
        self.governor.admit(ask).await.map_err(Refusal::Denied)
    }

    async fn record_refusal(&self, cx: &RequestCx, invocation: &Invocation, refusal: &Refusal) {
        let at_us = (self.clock)();
        let labels = Labels::of(cx, invocation, &self.redactor);
        let capability = match refusal {
            // Anything that a client likes to say.
            Refusal::Unknown => self.redactor.text(&invocation.capability),
            Refusal::Denied(_) => invocation.capability.as_str().into(),
        };
        let start = Start {
            capability: &capability,
            policy_version: self.governor.policy().version(),
            ..start_of(cx, invocation, &labels, CallId::new(at_us), at_us)
        };
        let (reason, message) = match refusal {
            Refusal::Unknown => ("unknown", "there is no such capability".to_owned()),
            Refusal::Denied(denial) => (denial.reason.as_str(), denial.to_string()),
        };
        let end = End {
            message: Some(&self.redactor.text(&message)),
            error_code: Some(refusal.founding_code(&invocation.target)),
            ..End::new(Outcome::Denied { reason })
        };
        if let Err(error) = self.recorder.refuse(&start, &end).await {
            // Nothing has run, so there is nothing to hold back; but it must not go unseen.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                principal = %cx.principal,
                %capability,
                reason,
                "a refusal could not be recorded"
            );
        }
    }
}

enum Refusal {
    Unknown,
    Denied(Denial),
}

impl Refusal {
    /// The code of the founding table, as the record has it of every other failure.
    fn founding_code(&self, target: &Target) -> i32 {
        match self {
            Self::Denied(denial) if denial.reason != Reason::NotVisible => error::DENIED,
            _ => match target {
                Target::Tool(_) => error::TOOL_NOT_FOUND,
                Target::Resource(_) => error::RESOURCE_NOT_FOUND,
                Target::Prompt(..) => error::INVALID_PARAMS,
            },
        }
    }
}

impl<S, Q> Service<Invocation> for Governed<S, Q>
where
    S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
    Q: QuotaStore,
{
    type Response = Invoked;
    type Error = InvocationError;

    async fn call(
        &self,
        cx: &RequestCx,
        invocation: Invocation,
    ) -> Result<Invoked, InvocationError> {
        let permit = match self.admit(cx, &invocation).await {
            Ok(permit) => permit,
            Err(refusal) => {
                self.record_refusal(cx, &invocation, &refusal).await;
                return Err(match refusal {
                    Refusal::Unknown => InvocationError::Unknown,
                    Refusal::Denied(denial) => {
                        quota_report::hint_denied(cx, &denial);
                        InvocationError::Denied(denial)
                    }
                });
            }
        };
        let tally = Arc::clone(&invocation.tally);
        let admitted = Admitted {
            inner: invocation,
            estimate: permit.reserved(),
            policy_version: permit.policy_version(),
            deadline: None,
        };
        let open = OpenPermit {
            permit: Some(permit),
            tally: &tally,
            clock: &self.clock,
        };
        let outcome = self.inner.call(cx, admitted).await;
        if let Some(remaining) = open.settle(&outcome) {
            quota_report::hint(cx, &remaining);
            tally.leave(remaining);
        }
        outcome
    }
}

/// Settles its permit when the call ends, and when it is given up.
struct OpenPermit<'a, Q: QuotaStore> {
    permit: Option<Permit<Q>>,
    tally: &'a Tally,
    clock: &'a Clock,
}

impl<Q: QuotaStore> OpenPermit<'_, Q> {
    /// Settles what has run; what was refused after all has used nothing up, and leaves nothing to
    /// tell.
    fn settle(
        mut self,
        outcome: &Result<Invoked, InvocationError>,
    ) -> Option<governance::Remaining> {
        let permit = self.permit.take()?;
        if never_began(outcome) {
            permit.release();
            return None;
        }
        let cost = self.tally.cost(outcome, permit.reserved());
        let now = timestamp((self.clock)());
        Some(permit.settle(cost, ending_of(outcome), now).remaining)
    }
}

impl<Q: QuotaStore> Drop for OpenPermit<'_, Q> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            let cost = self.tally.cost_given_up(permit.reserved());
            let now = timestamp((self.clock)());
            // Its caller has left, or what runs it has panicked.
            let ending = if std::thread::panicking() {
                Ending::Failed
            } else {
                Ending::GivenUp
            };
            permit.settle(cost, ending, now);
        }
    }
}

/// Whether a call that was let through has not begun all the same.
fn never_began(outcome: &Result<Invoked, InvocationError>) -> bool {
    matches!(
        outcome,
        Ok(Invoked::NeedsConfirmation(_)) | Err(InvocationError::Unrecorded(_))
    )
}

/// What the end of a call says of the health of what was called: for breakers.
fn ending_of(outcome: &Result<Invoked, InvocationError>) -> Ending {
    match outcome {
        Ok(Invoked::Tool(result)) if result.is_error => Ending::Failed,
        Ok(Invoked::Tool(_) | Invoked::Resource(_) | Invoked::Prompt(_)) => Ending::Succeeded,
        // It has not done yet what it was called for.
        Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => Ending::NotRun,
        Err(
            InvocationError::TimedOut(_)
            | InvocationError::Read(ReadFailure::Unreadable(_))
            | InvocationError::Prompt(PromptFailure::Broken(_)),
        ) => Ending::Failed,
        Err(InvocationError::Tool(error)) => match error {
            ToolError::Failed(_)
            | ToolError::Crashed { .. }
            | ToolError::TimedOut
            | ToolError::Broken(_) => Ending::Failed,
            ToolError::NeedsInput(_)
            | ToolError::Rejected(_)
            | ToolError::Busy { .. }
            | ToolError::Suspended { .. } => Ending::NotRun,
        },
        Err(
            InvocationError::Unknown
            | InvocationError::Denied(_)
            | InvocationError::Unrecorded(_)
            | InvocationError::Invalid(_)
            | InvocationError::Read(_)
            | InvocationError::Prompt(_),
        ) => Ending::NotRun,
    }
}
