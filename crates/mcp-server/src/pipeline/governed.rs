//! The layer that admits calls, and records those that it refuses.

use crate::{
    clock::{Clock, timestamp},
    invocation::{
        Invocation, Invoked, Target,
        answer::unknown_code,
        call_report::{CallReport, when_over},
        failure::{Charge, DENIED, InvocationError, meaning_of_denial},
        outcome::{charge_of, ending_of, never_began},
        quota_hints,
        refusal::{BadKey, KeyTaken, TooGrave},
        verdict::{Ended, Fault, Verdict},
    },
    names::caller_of,
    observe::calls::{Observer, Refused},
    offer::{results::ResultLimits, search::effect_of},
    options::Options,
    pipeline::{
        filtered::Filtering,
        idempotency,
        start_entry::{Labels, start_of},
    },
};

use governance::{
    Ask, Confirmation, Denial, Ending, Governor, Micros, Permit, QuotaStore, Reason,
    ReservationName, Risk, Settlement, Timestamp,
};
use ledger::{
    ApprovalId, CallId, Digest, End, HIDDEN_CAPABILITY, KeyClaim, Outcome, Recorder, Start,
    UNKNOWN_CAPABILITY,
};
use mcp_service::{RequestCx, Service};
use redaction::Redactor;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// Proof that governance has let a call through. Only [`Governed`] makes one, so a function that
/// takes an `Admitted` cannot be reached around it.
///
/// Boxed: each layer below takes it, and would have a copy of all of it.
#[derive(Debug)]
pub(crate) struct Admitted<T>(Box<Parts<T>>);

#[derive(Debug)]
struct Parts<T> {
    inner: T,
    estimate: Micros,
    reservation: Option<ReservationName>,
    policy_version: u64,
    confirmation: Option<Confirmation>,
    confirmation_rule: Option<Box<str>>,
    risk: Risk,
    durable_start: bool,
    may_go_unrecorded: bool,
    key: Option<Box<KeyClaim>>,
    approval: Option<(ApprovalId, Digest)>,
    deadline: Option<Instant>,
}

impl<T> Admitted<T> {
    /// The call.
    pub(crate) fn inner(&self) -> &T {
        &self.0.inner
    }

    /// The reserved cost.
    pub(crate) fn estimate(&self) -> Micros {
        self.0.estimate
    }

    /// The reservation that the record of the call's end settles; `None` where the counters settle it
    /// themselves.
    pub(crate) fn reservation(&self) -> Option<&ReservationName> {
        self.0.reservation.as_ref()
    }

    /// The time from which the answer is no longer wanted; set on the way to the executor.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// The approver who has to confirm the call before it may begin.
    pub(crate) fn confirmation(&self) -> Option<Confirmation> {
        self.0.confirmation
    }

    /// The rule that wants the confirmation, in words.
    pub(crate) fn confirmation_rule(&self) -> Option<&str> {
        self.0.confirmation_rule.as_deref()
    }

    /// The risk of the call.
    pub(crate) fn risk(&self) -> Risk {
        self.0.risk
    }

    /// True if the call must be safe on record before it begins.
    pub(crate) fn durable_start(&self) -> bool {
        self.0.durable_start
    }

    /// True if the call may be made while the ledger cannot be written: it changes nothing, and the
    /// operator would rather have it answered than on record.
    pub(crate) fn may_go_unrecorded(&self) -> bool {
        self.0.may_go_unrecorded
    }

    /// The idempotency key it comes under.
    pub(crate) fn key(&self) -> Option<&KeyClaim> {
        self.0.key.as_deref()
    }

    /// The approval that it begins with, and what that is for.
    pub(crate) fn approval(&self) -> Option<(ApprovalId, Digest)> {
        self.0.approval
    }

    pub(crate) fn with_approval(mut self, approval: ApprovalId, binding: Digest) -> Self {
        self.0.approval = Some((approval, binding));
        self
    }

    pub(crate) fn inner_mut(&mut self) -> &mut T {
        &mut self.0.inner
    }

    pub(crate) fn until(mut self, deadline: Instant) -> Self {
        self.0.deadline = Some(deadline);
        self
    }

    /// The version of the policy that let it through.
    pub(crate) fn policy_version(&self) -> u64 {
        self.0.policy_version
    }
}

/// Lets through what the governor admits, and records what it does not.
#[derive(Debug)]
pub(crate) struct Governed<S, Q> {
    inner: S,
    governor: Arc<Governor<Q>>,
    recorder: Recorder,
    redactor: Arc<Redactor>,
    observer: Observer,
    clock: Clock,
    keep_keys: Duration,
    read_only_exempt: bool,
    results: Option<Arc<ResultLimits>>,
    filtering: Option<Arc<Filtering<Q>>>,
}

impl<S, Q: QuotaStore> Governed<S, Q> {
    /// The layer, with the time for which idempotency keys are kept and the exemption of read-only calls
    /// from `options`.
    #[expect(clippy::too_many_arguments, reason = "the parts of a layer, each once")]
    pub(crate) fn new(
        inner: S,
        governor: Arc<Governor<Q>>,
        recorder: Recorder,
        redactor: Arc<Redactor>,
        observer: Observer,
        options: &Options,
        results: Option<Arc<ResultLimits>>,
        filtering: Option<Arc<Filtering<Q>>>,
    ) -> Self {
        Self {
            inner,
            governor,
            recorder,
            redactor,
            observer,
            clock: options.clock,
            keep_keys: options.keep_keys,
            read_only_exempt: options.read_only_exempt,
            results,
            filtering,
        }
    }

    /// Visible, permitted, then budget and rates together (decision D6). A capability that does not
    /// exist is asked for in the same place, so that it uses up no quota either.
    async fn admit(
        &self,
        cx: &RequestCx,
        invocation: &Invocation,
    ) -> Result<(Permit<Q>, Option<Box<KeyClaim>>), Refusal> {
        let caller = caller_of(&cx.principal);
        // Both are looked up in every case: which of the two failed must not show in the time.
        let exists = invocation.exists();
        let visible = self.governor.visible(caller, &invocation.capability);
        if !visible || !exists || invocation.is_hidden {
            // Of what a caller may not see it is not told either that it may be there.
            let permitted = visible && !invocation.is_hidden && {
                let policy = self.governor.policy();
                policy.permitted(caller, &invocation.capability)
            };
            return Err(Refusal::Unknown {
                is_hidden: exists,
                absent: permitted.then(|| invocation.absent()).flatten(),
            });
        }
        // A result is read by those who may still call what it is the result of.
        if let Some(source) = invocation.source(&cx.principal)
            && !self.governor.policy().permitted(caller, &source)
        {
            return Err(Refusal::Denied(Denial::new(Reason::Permission)));
        }
        // Before anything is counted: a refusal uses nothing up, and this one can last for hours.
        if !self.recorder.is_ok()
            && !self.may_go_unrecorded(cx, invocation)
            && self
                .governor
                .policy()
                .permitted(caller, &invocation.capability)
        {
            return Err(Refusal::Denied(Denial::new(Reason::LedgerUnavailable)));
        }
        if let Some(refused) = &invocation.refused {
            return Err(Refusal::Failed(InvocationError::Filtered(refused.clone())));
        }
        let arguments = invocation.arguments_taken();
        let ask = Ask {
            principal: caller.principal,
            roles: caller.roles,
            capability: &invocation.capability,
            kind: invocation.kind(),
            estimate: invocation.estimate(),
            now: timestamp((self.clock)()),
            arguments: Some(&arguments),
        };
        let key = self.key(cx, invocation)?;
        // What was done before is answered as before, which uses nothing up; but only to who may
        // call it still.
        if let Some(key) = &key
            && self.may_hear(ask)
        {
            match self.recorder.find_key(key).await {
                Ok(None) => {}
                Ok(Some(refusal)) => {
                    let taken = KeyTaken::of(refusal, false);
                    return Err(Refusal::Failed(taken));
                }
                Err(error) => return Err(Refusal::Failed(InvocationError::Unrecorded(error))),
            }
        }
        match self.governor.admit(ask).await {
            // It was forbidden a moment ago, so that no filter has looked at it.
            Ok(permit) if invocation.is_unfiltered => {
                permit.release();
                Err(Refusal::Denied(Denial::new(Reason::Permission)))
            }
            Ok(permit) => match too_grave(invocation, permit.risk()) {
                None => Ok((permit, key)),
                Some(grave) => {
                    permit.release();
                    Err(Refusal::Failed(InvocationError::TooGrave(grave)))
                }
            },
            // Other rules are in force by now.
            Err(denial) if denial.reason == Reason::NotVisible => Err(Refusal::Unknown {
                is_hidden: true,
                absent: None,
            }),
            Err(denial) => Err(Refusal::Denied(denial)),
        }
    }

    /// True if the caller may know the answer of a call, though it might not be made now.
    fn may_hear(&self, ask: Ask<'_>) -> bool {
        match self.governor.policy().check(ask) {
            Ok(_) => true,
            Err(denial) => !matches!(denial.reason, Reason::NotVisible | Reason::Permission),
        }
    }

    /// The idempotency key of a call of a tool, if it has one. A prompt has none: its use would be counted again,
    /// which the client is told. Reading a resource twice does no harm.
    fn key(
        &self,
        cx: &RequestCx,
        invocation: &Invocation,
    ) -> Result<Option<Box<KeyClaim>>, Refusal> {
        let is_tool = matches!(invocation.target, Target::Tool(_));
        if matches!(invocation.target, Target::Prompt(..)) && cx.meta.idempotency_key.is_some() {
            let bad = InvocationError::BadKey(BadKey::OfPrompt);
            return Err(Refusal::Failed(bad));
        }
        if !is_tool || invocation.is_rerun {
            return Ok(None);
        }
        let key = idempotency::key_of(cx);
        let key = key.map_err(|bad| Refusal::Failed(InvocationError::BadKey(bad)))?;
        let Some(key) = key else {
            return Ok(None);
        };
        let at_us = (self.clock)();
        let keep_us = u64::try_from(self.keep_keys.as_micros()).unwrap_or(u64::MAX);
        Ok(Some(Box::new(KeyClaim {
            principal: cx.principal.as_str().to_owned(),
            key,
            capability: invocation.capability.as_ref().to_owned(),
            digest: invocation.arguments_digest(),
            call: CallId::new(at_us),
            at_us,
            // As large as a store can have it.
            until_us: at_us.saturating_add(keep_us).min(i64::MAX.unsigned_abs()),
        })))
    }

    /// The answer to a call that was refused.
    fn refused(
        &self,
        cx: &RequestCx,
        invocation: &Invocation,
        refusal: Refusal,
    ) -> Result<Invoked, InvocationError> {
        match refusal {
            Refusal::Unknown { absent, .. } => Err(absent.unwrap_or(InvocationError::Unknown)),
            Refusal::Denied(denial) => {
                quota_hints::hint_denied(cx, &denial);
                Err(InvocationError::Denied(denial))
            }
            Refusal::Failed(InvocationError::KeyTaken(taken)) => {
                let again = taken.again();
                if again.is_ok()
                    && let Some(handover) = &invocation.handover
                {
                    // It is over: a task that is to be has its result already.
                    handover.begin();
                }
                again
            }
            Refusal::Failed(error) => Err(error),
        }
    }

    /// An answer that is given once more, as its caller can have it now.
    async fn shortened(
        &self,
        cx: &RequestCx,
        invocation: &Invocation,
        answer: Result<Invoked, InvocationError>,
    ) -> Result<Invoked, InvocationError> {
        let Some(results) = &self.results else {
            return answer;
        };
        match (answer, invocation.limited_by(cx, results)) {
            (Ok(Invoked::Tool(result)), Some(limited)) => {
                let shortened = results.shorten(cx, &limited, &self.redactor, result);
                Ok(Invoked::Tool(shortened.await.0))
            }
            (answer, _) => answer,
        }
    }

    /// True if admission is worth asking for while the ledger fails. An admitted call is judged by the
    /// policy that admits it.
    fn may_go_unrecorded(&self, cx: &RequestCx, invocation: &Invocation) -> bool {
        self.read_only_exempt && {
            let policy = self.governor.policy();
            let caller = caller_of(&cx.principal);
            let hints = policy.hints(caller, &invocation.capability, invocation.kind());
            self.exempts(hints.risk)
        }
    }

    /// True if a call of this risk may be made without a record.
    fn exempts(&self, risk: Risk) -> bool {
        self.read_only_exempt && risk.read_only && !risk.is_mutating()
    }

    /// Tells what the ledger calls it.
    async fn record_refusal(
        &self,
        cx: &RequestCx,
        invocation: &Invocation,
        refusal: &Refusal,
    ) -> CallId {
        let at_us = (self.clock)();
        let call = CallId::new(at_us);
        if !self.recorder.keeps_entries() {
            return call;
        }
        let is_unknown = matches!(refusal, Refusal::Unknown { .. });
        let labels = match is_unknown {
            true => Labels::of_anything(cx, invocation, &self.redactor),
            false => Labels::of(cx, invocation, &self.redactor),
        };
        let capability = match is_unknown {
            // Anything that a client likes to say.
            true => self.redactor.text(&invocation.capability),
            false => labels.capability_of(invocation).into(),
        };
        let start = Start {
            capability: &capability,
            policy_version: self.governor.policy().version(),
            replay_of: refusal.replay_of(),
            // Which definition is in force, of what is held for another.
            definition_digest: match refusal {
                Refusal::Denied(denial) if denial.reason == Reason::Held => {
                    invocation.recorded_definition()
                }
                _ => None,
            },
            ..start_of(cx, invocation, &labels, call, at_us)
        };
        let (outcome, message) = match refusal {
            Refusal::Unknown { absent, .. } => {
                let reason = refusal.reason();
                let message = match absent {
                    Some(error) => error.for_the_record(),
                    None => "there is no such capability".to_owned(),
                };
                (Outcome::Denied { reason }, message)
            }
            Refusal::Denied(denial) => {
                let reason = denial.reason.as_str();
                (Outcome::Denied { reason }, denial.for_the_record())
            }
            Refusal::Failed(error) => (error.meaning().outcome, error.for_the_record()),
        };
        let message = match invocation.report.meter().told() {
            Some(told) => format!("{told}: {message}"),
            None => message,
        };
        let end = End {
            message: Some(&self.redactor.text(&message)),
            error_code: Some(refusal.founding_code(&invocation.target)),
            ..End::new(outcome)
        };
        if let Err(error) = self.recorder.refuse(&start, &end).await {
            // Nothing has run, so there is nothing to hold back; but it must not go unseen.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                principal = %cx.principal,
                %capability,
                %outcome,
                "a refusal could not be recorded"
            );
        }
        call
    }
}

/// The reason to refuse a call that came through a tool of the search view, by the rules that have admitted it.
fn too_grave(invocation: &Invocation, risk: Risk) -> Option<TooGrave> {
    let at_most = invocation.at_most?;
    let effect = effect_of(&invocation.tool.as_ref()?.tool, risk);
    (at_most < effect).then_some(TooGrave { effect, at_most })
}

/// A refusal by governance, for metrics and the log; `call` is its name in the ledger.
fn refused_for(denial: &Denial, call: Option<CallId>) -> Refused {
    Refused {
        verdict: Verdict {
            decision: "deny",
            reason: Some(denial.reason.as_str()),
            remaining: Some(denial.remaining.clone()),
            call,
        },
        is_unknown: false,
        fault: Some(Fault::of_denial(denial)),
        outcome: meaning_of_denial(denial).ended,
    }
}

enum Refusal {
    /// The capability does not exist, as far as its caller may know. Everything that the caller can
    /// observe, time included, is the same for a capability that does not exist and for one that is
    /// hidden; the ledger and the log say which.
    Unknown {
        is_hidden: bool,
        /// Told instead, where a source cannot say yet whether it has this.
        absent: Option<InvocationError>,
    },
    Denied(Denial),
    /// For something else, before it was admitted or after.
    Failed(InvocationError),
}

impl Refusal {
    /// The call that was answered once more.
    fn replay_of(&self) -> Option<CallId> {
        match self {
            Self::Failed(InvocationError::KeyTaken(taken)) if taken.is_answered() => {
                Some(taken.call)
            }
            _ => None,
        }
    }

    /// True if the ledger has the refusal already.
    fn is_on_record(&self) -> bool {
        match self {
            Self::Failed(InvocationError::Unconfirmed(unconfirmed)) => unconfirmed.on_record,
            Self::Failed(InvocationError::KeyTaken(taken)) => taken.on_record,
            // Refused for being held back by what was to carry it out, once it had begun.
            Self::Failed(InvocationError::Denied(_)) => true,
            _ => false,
        }
    }

    /// The refusal for metrics and the log; `call` is its name in the ledger.
    fn told(&self, call: Option<CallId>) -> Refused {
        let (fault, outcome) = match self {
            Self::Unknown { .. } => {
                let unknown = InvocationError::Unknown;
                (Fault::of(&unknown), unknown.meaning().ended)
            }
            Self::Denied(denial) => return refused_for(denial, call),
            Self::Failed(error) => {
                let outcome = error.meaning().ended;
                (Fault::of(error), outcome)
            }
        };
        let is_replay = self.replay_of().is_some();
        Refused {
            verdict: Verdict {
                decision: if is_replay { "replay" } else { "deny" },
                reason: Some(self.reason()),
                remaining: None,
                call,
            },
            is_unknown: matches!(self, Self::Unknown { .. }),
            fault: (!is_replay).then_some(fault),
            outcome: match is_replay {
                true => Ended::Ok,
                false => outcome,
            },
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Unknown {
                is_hidden: true, ..
            } => HIDDEN_CAPABILITY,
            Self::Unknown {
                is_hidden: false, ..
            } => UNKNOWN_CAPABILITY,
            Self::Denied(denial) => denial.reason.as_str(),
            Self::Failed(error) => match error.meaning().outcome {
                Outcome::Denied { reason } => reason,
                _ => "invalid",
            },
        }
    }

    /// The code of the founding table, as the record has it of every other failure.
    fn founding_code(&self, target: &Target) -> i32 {
        match self {
            Self::Denied(_) => DENIED,
            Self::Failed(error) => error.meaning().code,
            Self::Unknown { .. } => unknown_code(target),
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
        mut invocation: Invocation,
    ) -> Result<Invoked, InvocationError> {
        if let Some(filtering) = &self.filtering {
            invocation = Box::pin(filtering.request(cx, invocation)).await;
        }
        let mut called = self.observer.called(cx, &invocation);
        let (permit, key) = match self.admit(cx, &invocation).await {
            Ok(admitted) => admitted,
            Err(refusal) => {
                let call = self.record_refusal(cx, &invocation, &refusal).await;
                let policy_version = self.governor.policy().version();
                called.refused(&invocation, policy_version, refusal.told(Some(call)));
                let answer = self.refused(cx, &invocation, refusal);
                return self.shortened(cx, &invocation, answer).await;
            }
        };
        let policy_version = permit.policy_version();
        called.allowed(&invocation, policy_version, permit.reserved(), || {
            permit.remaining()
        });
        let report = Arc::clone(&invocation.report);
        let capability = Arc::clone(&invocation.capability);
        let confirmation = permit.confirmation();
        // Only these can be refused from here on for other reasons than the ledger's own, and a hold.
        let refusable =
            (confirmation.is_some() || key.is_some()).then(|| Box::new(invocation.clone()));
        let admitted = Admitted(Box::new(Parts {
            estimate: permit.reserved(),
            reservation: permit.name(),
            policy_version: permit.policy_version(),
            confirmation,
            confirmation_rule: permit.confirmation_rule().map(Into::into),
            risk: permit.risk(),
            durable_start: permit.durable_start(),
            may_go_unrecorded: self.exempts(permit.risk()),
            key,
            approval: None,
            deadline: None,
            inner: invocation,
        }));
        let mut open = OpenPermit {
            permit: Some(permit),
            report: Arc::clone(&report),
            clock: self.clock,
        };
        let outcome = self.inner.call(cx, admitted).await;
        if let Some(remaining) = open.settle(&outcome) {
            quota_hints::hint(cx, &remaining);
            report.leave(remaining);
        }
        match (outcome, refusable) {
            (Err(error), Some(invocation)) if error.meaning().charge == Charge::Released => {
                let refusal = Refusal::Failed(error);
                let call = match refusal.is_on_record() {
                    true => report.call(),
                    false => Some(self.record_refusal(cx, &invocation, &refusal).await),
                };
                called.refused(&invocation, policy_version, refusal.told(call));
                let answer = self.refused(cx, &invocation, refusal);
                self.shortened(cx, &invocation, answer).await
            }
            (Err(InvocationError::Denied(denial)), None) => {
                let told = refused_for(&denial, report.call());
                called.refused_after_all(&capability, policy_version, told);
                Err(InvocationError::Denied(denial))
            }
            (outcome, _) => {
                called.ended(&outcome);
                outcome
            }
        }
    }
}

/// Settles its permit when the call ends, and when it is given up.
struct OpenPermit<Q: QuotaStore + 'static> {
    permit: Option<Permit<Q>>,
    report: Arc<CallReport>,
    clock: Clock,
}

impl<Q: QuotaStore> OpenPermit<Q> {
    /// Settles what has run; what was refused after all has used nothing up, and leaves nothing to
    /// tell.
    fn settle(
        &mut self,
        outcome: &Result<Invoked, InvocationError>,
    ) -> Option<governance::Remaining> {
        let permit = self.permit.take()?;
        if never_began(outcome) {
            permit.release();
            return None;
        }
        let cost = self.report.cost(charge_of(outcome), permit.reserved());
        Some(end(permit, &self.report, cost, ending_of(outcome), self.clock).remaining)
    }
}

/// Settles `permit`. The record settles what it was told to, which is what has not cost what was
/// expected.
fn end<Q: QuotaStore>(
    permit: Permit<Q>,
    report: &CallReport,
    cost: Micros,
    ending: Ending,
    clock: Clock,
) -> Settlement {
    if let Some(most) = permit.max_cost()
        && most < cost
    {
        // It has happened, so it is charged; only people can do something about it.
        tracing::warn!(
            call = report.call().map(tracing::field::display),
            %cost,
            max_cost_per_call = %most,
            "a call has cost more than one call may be expected to"
        );
    }
    let now = match permit.is_watched() {
        true => timestamp(clock()),
        false => Timestamp(0),
    };
    if cost != permit.reserved() && report.is_charged_on_record() {
        permit.settle_on_record(cost, ending, now)
    } else {
        permit.settle(cost, ending, now)
    }
}

impl<Q: QuotaStore + 'static> Drop for OpenPermit<Q> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            if !self.report.is_on_record() {
                // Its caller left while it was looked into whether it may begin.
                return permit.release();
            }
            // Its caller has left, or what runs it has panicked.
            let ending = if std::thread::panicking() {
                Ending::Failed
            } else {
                Ending::GivenUp
            };
            let (report, clock) = (Arc::clone(&self.report), self.clock);
            when_over(&self.report, move || {
                let cost = report.cost_given_up(permit.reserved());
                end(permit, &report, cost, ending, clock);
            });
        }
    }
}
