//! A policy joined with the counters that enforce it.

use crate::{
    ask::Ask,
    breaker::{BreakerState, Breakers, Ending, Pass},
    caller::Caller,
    denial::{Denial, Reason, Remaining},
    explain::{Explanation, Step, breaker_step, quota_steps},
    memory::MemoryQuota,
    money::Micros,
    policy::{Policy, Verdict},
    prepared::ViewId,
    quota::{QuotaStore, ReservationName, ReserveError, UnavailableError, Usage},
    spec::{BreakerSpec, Confirmation, Kind, Risk},
    time::Timestamp,
    unknown_roles::{self, UnknownRoles},
};
use arc_swap::ArcSwap;
use std::sync::Arc;

/// A policy and the counters it is enforced with.
#[derive(Debug)]
pub struct Governor<Q> {
    policy: ArcSwap<Policy>,
    quota: Arc<Q>,
    breakers: Arc<Breakers>,
    unknown_roles: unknown_roles::Counted,
}

/// Proof that a call was allowed and has been counted.
///
/// Only [`Governor::admit`] makes one. Say what the call really cost with [`Permit::settle`], or take
/// all of it back with [`Permit::release`] if it is refused after all; a permit dropped without
/// either has cost its estimate, because the call may have run.
#[derive(Debug)]
#[must_use = "a permit that is not used has still been charged for"]
pub struct Permit<Q: QuotaStore>(Box<Admission<Q>>);

/// Content of a [`Permit`]. Boxed, since it goes through many hands.
#[derive(Debug)]
struct Admission<Q: QuotaStore> {
    quota: Arc<Q>,
    reservation: Option<Q::Reservation>,
    breaker: Option<PassedBreaker>,
    reserved: Micros,
    remaining: Remaining,
    policy_version: u64,
    confirmation: Option<Confirmation>,
    confirmation_rule: Option<Box<str>>,
    risk: Risk,
    max_cost: Option<Micros>,
}

/// A slot granted by a circuit breaker, released on drop.
#[derive(Debug)]
struct PassedBreaker {
    breakers: Arc<Breakers>,
    capability: Box<str>,
    spec: BreakerSpec,
    pass: Pass,
}

impl PassedBreaker {
    fn end(mut self, ending: Ending, now: Timestamp) {
        let pass = std::mem::replace(&mut self.pass, Pass::Free);
        self.breakers
            .end(&self.capability, self.spec, pass, ending, now);
    }
}

impl Drop for PassedBreaker {
    fn drop(&mut self) {
        let (ending, unknown) = (Ending::GivenUp, Timestamp(0));
        self.breakers
            .end(&self.capability, self.spec, self.pass, ending, unknown);
    }
}

/// Final cost of a call, and the rest of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settlement {
    /// The final cost.
    pub cost: Micros,
    /// Rest when the call was admitted, corrected by its final cost.
    pub remaining: Remaining,
}

impl<Q: QuotaStore> Governor<Q> {
    /// A governor.
    #[must_use]
    pub fn new(policy: impl Into<Arc<Policy>>, quota: Arc<Q>) -> Self {
        Self {
            policy: ArcSwap::new(policy.into()),
            quota,
            breakers: Arc::default(),
            unknown_roles: unknown_roles::Counted::default(),
        }
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Puts another policy in force, from the next question on. What was counted stays counted, and
    /// calls already admitted go on.
    pub fn replace_policy(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// The counters.
    #[must_use]
    pub fn quota(&self) -> &Arc<Q> {
        &self.quota
    }

    /// Tests if `capability` exists for `caller`.
    #[must_use]
    pub fn visible<'c>(&self, caller: impl Into<Caller<'c>>, capability: &str) -> bool {
        self.policy.load().visible(caller, capability)
    }

    /// The version of the policy in force, and what the lists of `caller` look like under it.
    #[must_use]
    pub fn view_of<'c>(&self, caller: impl Into<Caller<'c>>) -> (u64, ViewId) {
        let policy = self.policy.load();
        (policy.version(), policy.view_of(caller))
    }

    /// Roles that callers brought along and the policy does not know. They count for nothing; an
    /// operator who has misspelt one finds it here.
    #[must_use]
    pub fn unknown_roles(&self) -> UnknownRoles {
        self.unknown_roles.seen(&self.policy.load())
    }

    /// Checks the policy and whether what is called rests, then counts budget, rates and running
    /// calls together.
    ///
    /// # Errors
    ///
    /// A [`Denial`]; nothing has been counted then.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready counts nothing.
    pub async fn admit(&self, ask: Ask<'_>) -> Result<Permit<Q>, Denial> {
        let policy = self.policy.load_full();
        let (verdict, breaker) = self.check(&policy, ask)?;
        let reserved = self.quota.reserve(verdict.charges).await;
        self.permit(&policy, verdict, breaker, reserved)
    }

    /// Counts a use that has happened already, with its `cost`: against budget and rates, and past all limits.
    ///
    /// # Errors
    ///
    /// A [`Denial`] where the counters cannot be reached, or have no room for another principal; nothing has been
    /// counted then.
    pub async fn charge(&self, ask: Ask<'_>, cost: Micros) -> Result<Permit<Q>, Denial> {
        let policy = self.policy.load_full();
        let verdict = policy.past_limits(ask, cost);
        let reserved = self.quota.reserve(verdict.charges).await;
        self.permit(&policy, verdict, None, reserved)
    }

    /// Corrects what a use that began at `at` has cost, from `counted` to `actual`: what it has cost was not known when
    /// it was counted.
    pub fn correct(&self, ask: Ask<'_>, at: Timestamp, counted: Micros, actual: Micros) {
        let policy = self.policy.load_full();
        let charges = policy.charges_of(ask);
        self.quota.correct(&charges, at, counted, actual);
    }

    /// Checks what can be refused without counting.
    fn check<'a>(
        &self,
        policy: &'a Policy,
        ask: Ask<'a>,
    ) -> Result<(Verdict<'a>, Option<PassedBreaker>), Denial> {
        if !ask.roles.is_empty() {
            self.unknown_roles.note(policy, ask.roles);
        }
        let verdict = policy.check(ask)?;
        let breaker = self.pass_breaker(&ask, verdict.breaker)?;
        Ok((verdict, breaker))
    }

    fn permit(
        &self,
        policy: &Policy,
        verdict: Verdict<'_>,
        breaker: Option<PassedBreaker>,
        reserved: Result<(Q::Reservation, Remaining), ReserveError>,
    ) -> Result<Permit<Q>, Denial> {
        match reserved {
            Ok((reservation, remaining)) => Ok(Permit(Box::new(Admission {
                quota: Arc::clone(&self.quota),
                reservation: Some(reservation),
                breaker,
                reserved: verdict.charges.cost,
                remaining,
                policy_version: policy.version(),
                confirmation: verdict.confirmation,
                confirmation_rule: verdict.rule.map(|rule| rule.to_string().into()),
                risk: verdict.risk,
                max_cost: verdict.max_cost,
            }))),
            Err(ReserveError::Exhausted(denial)) => Err(denial),
            Err(ReserveError::Full) => Err(Denial::new(Reason::Crowd)),
            Err(ReserveError::Unavailable(_)) => Err(Denial::new(Reason::StoreUnavailable)),
        }
    }

    fn pass_breaker(
        &self,
        ask: &Ask<'_>,
        spec: BreakerSpec,
    ) -> Result<Option<PassedBreaker>, Denial> {
        Ok(match self.breakers.admit(ask.capability, spec, ask.now)? {
            Pass::Free => None,
            pass => Some(PassedBreaker {
                breakers: Arc::clone(&self.breakers),
                capability: ask.capability.into(),
                spec,
                pass,
            }),
        })
    }

    /// States of the breakers that have seen a failure since the last success, in order of their
    /// names.
    #[must_use]
    pub fn breaker_states(&self, now: Timestamp) -> Vec<BreakerState> {
        self.breakers.states(now)
    }

    /// Explains what would become of a call, and by which rules. Nothing is counted for it.
    ///
    /// # Errors
    ///
    /// [`UnavailableError`] when the counters cannot be reached.
    pub async fn explain(&self, ask: Ask<'_>) -> Result<Explanation, UnavailableError> {
        let policy = self.policy.load_full();
        let (steps, verdict) = self.explained(&policy, ask);
        let remaining = self.quota.remaining(verdict.charges).await?;
        Ok(explanation(&policy, steps, &verdict, remaining))
    }

    /// Every check that needs no counters.
    fn explained<'a>(&self, policy: &'a Policy, ask: Ask<'a>) -> (Vec<Step>, Verdict<'a>) {
        let (mut steps, verdict) = policy.explained(ask);
        if verdict.breaker.failures != 0 {
            steps.push(breaker_step(self.breakers.phase(ask.capability, ask.now)));
        }
        (steps, verdict)
    }

    /// Rest of the limits of `caller` on tools or resources, as `kind` says.
    ///
    /// # Errors
    ///
    /// [`UnavailableError`] when the counters cannot be reached.
    pub async fn remaining(
        &self,
        caller: impl Into<Caller<'_>>,
        kind: Kind,
        now: Timestamp,
    ) -> Result<Remaining, UnavailableError> {
        let policy = self.policy.load_full();
        let Caller { principal, roles } = caller.into();
        let ask = Ask {
            kind,
            ..Ask::new(principal, "", now)
                .with_roles(roles)
                .with_estimate(Micros::ZERO)
        };
        self.quota.remaining(policy.charges_of(ask)).await
    }

    /// Use of every known principal, in order of their names.
    ///
    /// # Errors
    ///
    /// [`UnavailableError`] when the counters cannot be reached.
    pub async fn usage(&self, now: Timestamp) -> Result<Vec<Usage>, UnavailableError> {
        let policy = self.policy.load_full();
        self.quota.usage(policy.calendar(), now).await
    }
}

impl Governor<MemoryQuota> {
    /// [`Governor::admit`] without waiting, which counters in memory never need.
    ///
    /// # Errors
    ///
    /// A [`Denial`]; nothing has been counted then.
    pub fn admit_now(&self, ask: Ask<'_>) -> Result<Permit<MemoryQuota>, Denial> {
        let policy = self.policy.load_full();
        let (verdict, breaker) = self.check(&policy, ask)?;
        let reserved = self.quota.reserve_now(verdict.charges);
        self.permit(&policy, verdict, breaker, reserved)
    }

    /// [`Governor::explain`] without waiting, which counters in memory never need.
    #[must_use]
    pub fn explain_now(&self, ask: Ask<'_>) -> Explanation {
        let policy = self.policy.load_full();
        let (steps, verdict) = self.explained(&policy, ask);
        let remaining = self.quota.remaining_now(&verdict.charges);
        explanation(&policy, steps, &verdict, remaining)
    }
}

/// An explanation with what the counters say.
fn explanation(
    policy: &Policy,
    mut steps: Vec<Step>,
    verdict: &Verdict<'_>,
    remaining: Remaining,
) -> Explanation {
    quota_steps(&verdict.charges, &remaining, &mut steps);
    Explanation {
        policy_version: policy.version(),
        steps,
        remaining,
    }
}

impl<Q: QuotaStore> Permit<Q> {
    /// Name of the reservation for a record of calls that can settle it; `None` where none can.
    #[must_use]
    pub fn name(&self) -> Option<ReservationName> {
        self.0.quota.name(self.0.reservation.as_ref()?)
    }

    /// Replaces the estimate by what the call really cost, and says how it ended at `now`.
    pub fn settle(mut self, actual: Micros, ending: Ending, now: Timestamp) -> Settlement {
        if let Some(reservation) = self.0.reservation.take() {
            self.0.quota.settle(reservation, actual);
        }
        self.settled(actual, ending, now)
    }

    /// Settles as [`Permit::settle`], where the name of what is reserved was handed to the record of the
    /// call's end together with `actual`.
    pub fn settle_on_record(
        mut self,
        actual: Micros,
        ending: Ending,
        now: Timestamp,
    ) -> Settlement {
        if let Some(reservation) = self.0.reservation.take() {
            self.0.quota.settled_on_record(reservation, actual);
        }
        self.settled(actual, ending, now)
    }

    fn settled(&mut self, actual: Micros, ending: Ending, now: Timestamp) -> Settlement {
        if let Some(breaker) = self.0.breaker.take() {
            breaker.end(ending, now);
        }
        Settlement {
            cost: actual,
            remaining: self.remaining_after(actual),
        }
    }

    /// Settles a call that never ran, because its arguments were wrong: it costs nothing, and still
    /// counts as a call.
    pub fn settle_at_zero(self) -> Settlement {
        self.settle(Micros::ZERO, Ending::NotRun, Timestamp(0))
    }

    /// Takes back a call that was refused after all, for want of a confirmation or of a record:
    /// nothing has been used up, rates included.
    pub fn release(mut self) {
        if let Some(reservation) = self.0.reservation.take() {
            self.0.quota.release(reservation);
        }
        if let Some(breaker) = self.0.breaker.take() {
            breaker.end(Ending::NotRun, Timestamp(0));
        }
    }

    /// Confirmation that the call needs before it may begin. A permit is no proof of one.
    #[must_use]
    pub fn confirmation(&self) -> Option<Confirmation> {
        self.0.confirmation
    }

    /// Rule by which the call has to be confirmed, in words.
    #[must_use]
    pub fn confirmation_rule(&self) -> Option<&str> {
        self.0.confirmation_rule.as_deref()
    }

    /// Risk of the call, by the policy that admitted it.
    #[must_use]
    pub fn risk(&self) -> Risk {
        self.0.risk
    }

    /// Tests if the call must be on record, and safe from a crash, before it begins, because it
    /// changes something.
    #[must_use]
    pub fn durable_start(&self) -> bool {
        self.0.risk.is_mutating()
    }

    /// Tests if it matters to the breaker of what was called how and when the call ends.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.0.breaker.is_some()
    }

    /// Amount reserved for the call: its estimate.
    #[must_use]
    pub fn reserved(&self) -> Micros {
        self.0.reserved
    }

    /// Limit on the expected cost of one call, if there is one; it may cost more all the same.
    #[must_use]
    pub fn max_cost(&self) -> Option<Micros> {
        self.0.max_cost
    }

    /// Rest of the limits just after the call was admitted.
    #[must_use]
    pub fn remaining(&self) -> Remaining {
        self.0.remaining
    }

    /// The version of the policy that admitted the call.
    #[must_use]
    pub fn policy_version(&self) -> u64 {
        self.0.policy_version
    }

    fn remaining_after(&self, actual: Micros) -> Remaining {
        let budget = self
            .0
            .remaining
            .budget
            .map(|left| left.saturating_add(self.0.reserved).saturating_sub(actual));
        Remaining {
            budget,
            ..self.0.remaining
        }
    }
}

impl<Q: QuotaStore> Drop for Permit<Q> {
    fn drop(&mut self) {
        if let Some(reservation) = self.0.reservation.take() {
            self.0.quota.settle(reservation, self.0.reserved);
        }
    }
}
