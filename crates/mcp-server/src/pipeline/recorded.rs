//! The layer that puts the beginning and the end of calls on record.

use crate::{
    clock::Clock,
    input::rounds::recorded_needs,
    invocation::{
        Invocation, Invoked,
        call_report::{CallReport, when_over},
        failure::{Charge, InvocationError},
        outcome::{charge_of, never_began, recorded_result, size_of_result},
        refusal::KeyTaken,
    },
    pipeline::{
        governed::Admitted,
        idempotency::KeyEnd,
        late_cost::{AwaitedCost, LateCosts},
        start_entry::{Labels, start_of},
        unanswered::{Asked, Unanswered},
    },
};
use adapter_tools::{ToolError, Waiting};
use data_encoding::HEXLOWER;
use governance::{Micros, ReservationName};
use ledger::{
    Account, BeginError, CallId, Claim, End, Finished, Note, NoteKind, OpenCall, Outcome,
    RecordError, Recorder, Start,
};
use mcp_protocol::model::{GetPromptResult, ReadResourceResult};
use mcp_service::{GivingUp, RequestCx, Service};
use redaction::{Redactor, Spec};
use serde_json::{Value, json};
use std::{pin::pin, sync::Arc};

/// Member of the `_meta` of a prompt with the version that was filled in.
pub const PROMPT_VERSION: &str = "io.owlclaw/version";

/// Records every admitted invocation: that it begins before it runs, and how it ended before it is
/// answered, given up ones too.
#[derive(Debug)]
pub(crate) struct Recorded<S> {
    inner: S,
    recorder: Recorder,
    redactor: Arc<Redactor>,
    clock: Clock,
    unanswered: Arc<dyn Unanswered>,
    late_costs: Option<Arc<dyn LateCosts>>,
    giving_up: Arc<GivingUp>,
}

impl<S> Recorded<S> {
    pub(crate) fn new(
        inner: S,
        recorder: Recorder,
        redactor: Arc<Redactor>,
        clock: Clock,
        unanswered: Arc<dyn Unanswered>,
        late_costs: Option<Arc<dyn LateCosts>>,
        giving_up: Arc<GivingUp>,
    ) -> Self {
        Self {
            inner,
            recorder,
            redactor,
            clock,
            unanswered,
            late_costs,
            giving_up,
        }
    }
}

/// A redactor with [`Spec::default`] and a random key of its own. Its placeholders for equal
/// secrets are equal for as long as it lives, and not after a restart.
#[must_use]
pub fn redactor_of_this_process() -> Arc<Redactor> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("a system without randomness is none we run on");
    Arc::new(Redactor::new(&Spec::default(), key).expect("the built-in list can be used"))
}

/// The ledger's name of a reservation.
fn account_of(name: &ReservationName) -> Account {
    Account {
        principal: Arc::clone(&name.principal),
        node: name.node,
        sequence: name.sequence,
    }
}

impl<S> Recorded<S> {
    /// Begins a call, with all that it needs for that: an approval, an idempotency key, and that it
    /// is safe on disk.
    async fn begin(
        &self,
        start: &Start<'_>,
        admitted: &Admitted<Invocation>,
    ) -> Result<OpenCall, InvocationError> {
        if admitted.key().is_some() || admitted.approval().is_some() {
            let approval = admitted
                .approval()
                .map(|(approval, binding)| Claim::Approval { approval, binding });
            // The key first: what was done before is answered as before, and nothing is asked of it.
            let key = admitted.key().cloned().map(Claim::Key);
            let claims: Vec<_> = key.into_iter().chain(approval).collect();
            let begun = self.recorder.begin_claiming(start, &claims).await;
            return begun.map_err(|error| match error {
                BeginError::Record(error) => InvocationError::Unrecorded(error),
                BeginError::Refused(refusal) => KeyTaken::of(refusal, true),
            });
        }
        let begun = match admitted.durable_start() {
            true => self.recorder.begin_durably(start).await,
            false => self.recorder.begin(start).await,
        };
        begun.map_err(InvocationError::Unrecorded)
    }
}

impl<S> Recorded<S> {
    /// Puts on record that the cost of a call is read later, if a trace elsewhere has it, and tells how to settle it then.
    /// Until the record says so the call costs what is known of it.
    async fn await_cost(
        &self,
        outcome: &Result<Invoked, InvocationError>,
        entry: &mut OpenEntry<'_>,
        principal: &str,
    ) -> Option<AwaitedCost> {
        let call = entry.report.call()?;
        let trace = entry.report.meter().cost_trace()?;
        let ran = match outcome {
            Ok(Invoked::Tool(_)) => true,
            Ok(_) => false,
            Err(_) => matches!(charge_of(outcome), Charge::Estimate),
        };
        if self.late_costs.is_none() || !ran || !entry.is_kept || entry.open.is_none() {
            return None;
        }
        let counted = entry.report.cost(Charge::Estimate, entry.estimate);
        let awaited = AwaitedCost {
            call,
            at_us: entry.began_us,
            principal: principal.to_owned(),
            capability: entry.capability.to_owned(),
            trace: trace.to_owned(),
            counted_micros: counted.0,
        };
        let detail = json!({
            "capability": awaited.capability,
            "trace": awaited.trace,
            "counted_micros": awaited.counted_micros,
        });
        let (subject, detail) = (call.to_string(), detail.to_string());
        let note = Note {
            actor: principal,
            subject: &subject,
            detail: &detail,
            ..Note::new(awaited.at_us, NoteKind::COST_AWAITED)
        };
        match self.recorder.note(&note).await {
            Ok(()) => {
                entry.is_awaited = true;
                Some(awaited)
            }
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    %call,
                    trace,
                    "it could not be put on record that the cost of a call is in a trace: it stays what is known of it"
                );
                None
            }
        }
    }

    /// Waits until the end of a call is stored after all, for as long as its client waits and the server runs.
    async fn stored(&self, finished: Finished, cx: &RequestCx) -> Result<(), RecordError> {
        tokio::select! {
            stored = finished.after_all() => stored,
            () = self.giving_up.given_up() => Err(RecordError::Unavailable),
            () = cx.given_up() => Err(RecordError::Unavailable),
        }
    }

    /// Puts on record that a call brings the answers to what an earlier one has asked.
    fn note_answers(&self, cx: &RequestCx, capability: &str, asked: CallId, call: CallId) {
        let detail = json!({ "asked": asked.to_string(), "capability": capability });
        let noted = self.recorder.note_later(&Note {
            actor: cx.principal.as_str(),
            subject: &call.to_string(),
            detail: &detail.to_string(),
            ..Note::new((self.clock)(), NoteKind::QUESTION_ANSWERED)
        });
        if let Err(error) = noted {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                %call,
                "it could not be put on record which question a call answers"
            );
        }
    }
}

impl<S> Service<Admitted<Invocation>> for Recorded<S>
where
    S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
{
    type Response = Invoked;
    type Error = InvocationError;

    async fn call(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
    ) -> Result<Invoked, InvocationError> {
        let began_us = (self.clock)();
        let estimate = admitted.estimate();
        let report = Arc::clone(&admitted.inner().report);
        let capability = Arc::clone(&admitted.inner().capability);
        let open = {
            let labels = if self.recorder.keeps_entries() {
                let labels = Labels::of(cx, admitted.inner(), &self.redactor);
                if labels.are_harmless() {
                    report.found_no_secrets();
                }
                labels
            } else {
                Labels::unkept()
            };
            let call = CallId::new(began_us);
            // Before it is asked whether it is a task: whoever makes one of it asks the other way round.
            report.goes_on_record(call);
            let key = admitted.key();
            // Only the ledger can tell whether an approval or a key was used before.
            let unrecorded =
                admitted.may_go_unrecorded() && admitted.approval().is_none() && key.is_none();
            let start = Start {
                policy_version: admitted.policy_version(),
                estimated_cost_micros: estimate.0,
                approval: admitted.approval().map(|(approval, _)| approval),
                idempotency_key: key.map(|claim| claim.key.as_str()),
                key_until_us: key.map(|claim| claim.until_us),
                definition_digest: admitted.inner().recorded_definition(),
                task: admitted.inner().task(),
                ..start_of(cx, admitted.inner(), &labels, call, began_us)
            };
            match self.begin(&start, &admitted).await {
                Ok(mut open) => {
                    if let Some(name) = admitted.reservation()
                        && self.recorder.takes_charges()
                    {
                        open.charge_to(account_of(name));
                        report.charge_on_record(true);
                    }
                    if let Some(asked) = report.followed() {
                        let recorded = labels.capability_of(admitted.inner());
                        self.note_answers(cx, recorded, asked, call);
                    }
                    Some(open)
                }
                Err(InvocationError::Unrecorded(error)) if unrecorded => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        principal = %cx.principal,
                        capability = &*capability,
                        "a call that changes nothing is made without a record"
                    );
                    None
                }
                Err(error) => return Err(error),
            }
        };
        let principal = cx.principal.clone();
        let mut entry = OpenEntry {
            open,
            report: Arc::clone(&report),
            redactor: &self.redactor,
            capability: &capability,
            holds_key: admitted.key().is_some(),
            is_kept: self.recorder.keeps_entries(),
            estimate,
            is_awaited: false,
            began_us,
            clock: self.clock,
        };
        // A client that reads nothing does not have more made than waits for its record already.
        let outcome = {
            let calling = pin!(self.inner.call(cx, admitted));
            cx.with_room(calling).await
        };
        if let Ok(Invoked::NeedsInput(needed)) = &outcome
            && let Some(meter) = needed.waiting.as_ref().and_then(Waiting::meter)
        {
            let call = report.call().unwrap_or_else(|| CallId::new(began_us));
            let asked = Asked::of(cx, &capability, call);
            Arc::clone(&self.unanswered).charge_what_is_left(asked, Arc::clone(meter));
        }
        let awaited = self
            .await_cost(&outcome, &mut entry, principal.as_str())
            .await;
        report.note_returned(!matches!(
            outcome,
            Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_))
        ));
        let finished = entry.finish(&outcome);
        let _held = cx.hold_answer(report.result_bytes().unwrap_or_default());
        if let Some(mut finished) = finished
            && (&mut finished).await.is_err()
            && let Err(error) = Box::pin(self.stored(finished, cx)).await
        {
            // The call has run and its end is queued; what is not known is when it will be on disk.
            // Saying nothing would make the caller run it again.
            report.leave_unrecorded();
            tracing::error!(
                error = &error as &dyn std::error::Error,
                principal = %cx.principal,
                "the end of a call is not yet on record"
            );
        }
        if let (Some(late_costs), Some(awaited)) = (&self.late_costs, awaited) {
            late_costs.awaits(awaited);
        }
        outcome
    }
}

/// Ends its entry when the call ends, and when it is given up.
struct OpenEntry<'a> {
    open: Option<OpenCall>,
    report: Arc<CallReport>,
    redactor: &'a Redactor,
    capability: &'a str,
    holds_key: bool,
    /// True if the ledger keeps entries, so that it matters what they say.
    is_kept: bool,
    estimate: Micros,
    /// True if the cost goes on record later, by another entry.
    is_awaited: bool,
    began_us: u64,
    clock: Clock,
}

impl OpenEntry<'_> {
    fn finish(mut self, outcome: &Result<Invoked, InvocationError>) -> Option<Finished> {
        let mut open = self.open.take()?;
        if never_began(outcome) {
            // All that was counted for it is taken back.
            open.charge_nothing();
            self.report.charge_on_record(false);
        }
        let duration_us = (self.clock)().saturating_sub(self.began_us);
        let mut cost_micros = self.report.cost(charge_of(outcome), self.estimate).0;
        if self.is_awaited {
            open.charge_meanwhile(cost_micros);
            cost_micros = 0;
        }
        let (redactor, capability) = (self.redactor, self.capability);
        let is_kept = self.is_kept;
        let redacted = |text| match is_kept {
            true => redactor.json(capability, text),
            false => "".into(),
        };
        let ended = |outcome| End {
            duration_us,
            cost_micros,
            whole: self.report.whole(),
            ..End::new(outcome)
        };
        let finish = |end: &End<'_>| {
            if !self.holds_key {
                return open.finish(end);
            }
            match KeyEnd::of(outcome) {
                KeyEnd::Keep(answer) => open.finish_keeping(end, Some(&answer)),
                KeyEnd::Free => open.finish_release_key(end),
                KeyEnd::Unknown => open.finish_unknown(end),
            }
        };
        let told = self.report.meter().told();
        Some(match outcome {
            Ok(Invoked::Tool(result)) => {
                self.report.answered_with(size_of_result(result));
                let text = match is_kept {
                    true => recorded_result(result, capability, redactor),
                    false => "".into(),
                };
                finish(&End {
                    message: told.as_deref(),
                    is_error: result.is_error,
                    result: &text,
                    ..ended(if result.is_error {
                        Outcome::Failed
                    } else {
                        Outcome::Succeeded
                    })
                })
            }
            Ok(Invoked::Resource(result)) => {
                self.report.answered_with(read_bytes(result));
                let text = match is_kept {
                    true => recorded_read(result, redactor),
                    false => String::new(),
                };
                finish(&End {
                    message: told.as_deref(),
                    result: &redacted(&text),
                    ..ended(Outcome::Succeeded)
                })
            }
            Ok(Invoked::Prompt(result)) => {
                let text = match is_kept {
                    true => recorded_prompt(result, redactor),
                    false => String::new(),
                };
                finish(&End {
                    message: told.as_deref(),
                    result: &redacted(&text),
                    ..ended(Outcome::Succeeded)
                })
            }
            Ok(Invoked::NeedsInput(needed) | Invoked::NeedsConfirmation(needed)) => finish(&End {
                message: told.as_deref(),
                result: &redacted(&recorded_needs(needed)),
                ..ended(Outcome::Succeeded)
            }),
            Err(error) => {
                let meaning = error.meaning();
                let mut message = error.for_the_record();
                if let Some(told) = &told {
                    message = format!("{told}: {message}");
                }
                // The caller is told what a handler has said besides its message, too.
                let details = match error {
                    InvocationError::Tool(ToolError::Failed(failure)) if is_kept => {
                        failure.details.as_ref().map(Value::to_string)
                    }
                    _ => None,
                };
                finish(&End {
                    message: Some(&redactor.text(&message)),
                    error_code: Some(meaning.code),
                    result: &redacted(details.as_deref().unwrap_or_default()),
                    ..ended(meaning.outcome)
                })
            }
        })
    }
}

impl Drop for OpenEntry<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            // The future is dropped by its caller's hanging up, or by a panic below it.
            let (outcome, why) = if std::thread::panicking() {
                (Outcome::Failed, Some("the handler panicked"))
            } else {
                (Outcome::Cancelled, None)
            };
            let (report, estimate) = (Arc::clone(&self.report), self.estimate);
            let duration_us = (self.clock)().saturating_sub(self.began_us);
            when_over(&self.report, move || {
                let told = report.meter().told();
                let parts = told.as_deref().into_iter().chain(why);
                let message = parts.collect::<Vec<_>>().join(": ");
                let end = End {
                    duration_us,
                    cost_micros: report.cost_given_up(estimate).0,
                    message: (!message.is_empty()).then_some(&message),
                    ..End::new(outcome)
                };
                // Handed over before this returns; nobody is left to wait for the disk.
                drop(open.finish(&end));
            });
        }
    }
}

/// A read is recorded by what was read, how much of it, and a digest of that, not by its content. The digest is keyed,
/// since a plain one would confirm guesses of what the content has.
fn recorded_read(result: &ReadResourceResult, redactor: &Redactor) -> String {
    let contents = result.contents.iter().map(|contents| {
        let bytes = contents.text.as_ref().or(contents.blob.as_ref());
        let digest = bytes.map(|it| HEXLOWER.encode(&redactor.digest(it)));
        let length = bytes.map_or(0, String::len);
        json!({ "uri": contents.uri, "length": length, "digest": digest })
    });
    Value::from_iter(contents).to_string()
}

/// A prompt is recorded by its version, the number of its messages, and a keyed digest of all that was answered.
fn recorded_prompt(result: &GetPromptResult, redactor: &Redactor) -> String {
    let messages = result.messages.iter().map(|it| (it.role, &it.content));
    let said = serde_json::to_string(&(&result.description, messages.collect::<Vec<_>>()));
    let mut recorded = json!({
        "messages": result.messages.len(),
        "digest": HEXLOWER.encode(&redactor.digest(&said.unwrap_or_default())),
    });
    if let Some(version) = result.meta.get(PROMPT_VERSION) {
        recorded["version"] = version.parse().unwrap_or_default();
    }
    recorded.to_string()
}

fn read_bytes(result: &ReadResourceResult) -> usize {
    let contents = result.contents.iter();
    let bytes = contents.filter_map(|it| it.text.as_ref().or(it.blob.as_ref()));
    bytes.map(String::len).sum()
}
