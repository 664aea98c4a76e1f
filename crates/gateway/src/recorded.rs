use crate::{
    Admitted, Clock, Invocation, InvocationError, Invoked, Tally, Target, asking::recorded_needs,
};
use governance::{Kind, Micros};
use ledger::{CallId, End, Finished, OpenCall, Outcome, Recorder, Start};
use mcp_protocol::model::{CallToolResult, ReadResourceResult};
use mcp_service::{RequestCx, Service};
use opentelemetry::{propagation::TextMapPropagator, trace::TraceContextExt};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use std::collections::HashMap;

/// Records every admitted invocation: that it begins before it runs, and how it ended before it is
/// answered, given up ones too.
#[derive(Debug)]
pub struct Recorded<S> {
    inner: S,
    recorder: Recorder,
    clock: Clock,
}

impl<S> Recorded<S> {
    pub(crate) fn new(inner: S, recorder: Recorder, clock: Clock) -> Self {
        Self {
            inner,
            recorder,
            clock,
        }
    }
}

/// How the ledger describes an invocation.
pub(crate) fn start_of<'a>(
    cx: &'a RequestCx,
    invocation: &'a Invocation,
    labels: &'a Labels,
    call: CallId,
    at_us: u64,
) -> Start<'a> {
    let kind = match invocation.kind() {
        Kind::Tool => ledger::Kind::Tool,
        Kind::Resource if matches!(invocation.target, Target::Prompt(..)) => ledger::Kind::Other,
        Kind::Resource => ledger::Kind::Resource,
    };
    Start {
        request_id: &labels.request_id,
        method: invocation.method(),
        transport: cx.transport.as_str(),
        protocol_version: cx.version.as_str(),
        session: cx.session.as_deref(),
        trace_id: labels.trace_id.as_deref(),
        arguments: invocation.arguments.as_str(),
        ..Start::new(
            call,
            at_us,
            cx.principal.as_str(),
            kind,
            &invocation.capability,
        )
    }
}

/// What the ledger keeps of a request in other words than the request's own.
pub(crate) struct Labels {
    request_id: String,
    trace_id: Option<String>,
}

impl Labels {
    pub(crate) fn of(cx: &RequestCx) -> Self {
        Self {
            request_id: cx.id.to_string(),
            trace_id: cx.meta.traceparent.as_deref().and_then(trace_id),
        }
    }
}

/// The trace id in a W3C `traceparent`.
fn trace_id(traceparent: &str) -> Option<String> {
    let carrier = HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract(&carrier);
    let span = context.span();
    let span = span.span_context();
    span.is_valid().then(|| span.trace_id().to_string())
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
        let tally = std::sync::Arc::clone(&admitted.inner().tally);
        let open = {
            let labels = Labels::of(cx);
            let start = Start {
                policy_version: admitted.policy_version(),
                estimated_cost_micros: estimate.0,
                ..start_of(
                    cx,
                    admitted.inner(),
                    &labels,
                    CallId::new(began_us),
                    began_us,
                )
            };
            self.recorder
                .begin(&start)
                .await
                .map_err(InvocationError::Unrecorded)?
        };
        let entry = OpenEntry {
            open: Some(open),
            tally: &tally,
            estimate,
            began_us,
            clock: self.clock,
        };
        let outcome = self.inner.call(cx, admitted).await;
        let finished = entry.finish(&outcome);
        if let Some(finished) = finished
            && let Err(error) = finished.await
        {
            // The call has run and its end is queued; what is not known is when it will be on disk.
            // Saying nothing would make the caller run it again.
            tracing::error!(
                error = &error as &dyn std::error::Error,
                principal = %cx.principal,
                "the end of a call is not yet on record"
            );
        }
        outcome
    }
}

/// Ends its entry when the call ends, and when it is given up.
struct OpenEntry<'a> {
    open: Option<OpenCall>,
    tally: &'a Tally,
    estimate: Micros,
    began_us: u64,
    clock: Clock,
}

impl OpenEntry<'_> {
    fn finish(mut self, outcome: &Result<Invoked, InvocationError>) -> Option<Finished> {
        let open = self.open.take()?;
        let duration_us = (self.clock)().saturating_sub(self.began_us);
        let cost_micros = self.tally.cost(outcome, self.estimate).0;
        let ended = |outcome| End {
            duration_us,
            cost_micros,
            ..End::new(outcome)
        };
        Some(match outcome {
            Ok(Invoked::Tool(result)) => open.finish(&End {
                is_error: result.is_error,
                result: &recorded_result(result),
                ..ended(if result.is_error {
                    Outcome::Failed
                } else {
                    Outcome::Succeeded
                })
            }),
            Ok(Invoked::Resource(result)) => open.finish(&End {
                result: &recorded_read(result),
                ..ended(Outcome::Succeeded)
            }),
            Ok(Invoked::Prompt(result)) => open.finish(&End {
                result: &serde_json::json!({ "messages": result.messages.len() }).to_string(),
                ..ended(Outcome::Succeeded)
            }),
            Ok(Invoked::NeedsInput(needed) | Invoked::NeedsConfirmation(needed)) => {
                open.finish(&End {
                    result: &recorded_needs(needed),
                    ..ended(Outcome::Succeeded)
                })
            }
            Err(error) => open.finish(&End {
                message: Some(&error.for_the_record()),
                error_code: Some(error.founding_code()),
                ..ended(error.outcome())
            }),
        })
    }
}

impl Drop for OpenEntry<'_> {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            // The future is dropped by its caller's hanging up, or by a panic below it.
            let (outcome, message) = if std::thread::panicking() {
                (Outcome::Failed, Some("the handler panicked"))
            } else {
                (Outcome::Cancelled, None)
            };
            let end = End {
                duration_us: (self.clock)().saturating_sub(self.began_us),
                cost_micros: self.tally.cost_given_up(self.estimate).0,
                message,
                ..End::new(outcome)
            };
            // Handed over before this returns; nobody is left to wait for the disk.
            drop(open.finish(&end));
        }
    }
}

/// What a tool has answered, without what we have added.
fn recorded_result(result: &CallToolResult) -> String {
    match &result.structured_content {
        Some(structured) => structured.as_str().to_owned(),
        None => serde_json::to_string(&result.content).unwrap_or_default(),
    }
}

/// A read is recorded by what was read and how much of it, not by its content.
fn recorded_read(result: &ReadResourceResult) -> String {
    let contents: Vec<_> = result
        .contents
        .iter()
        .map(|contents| {
            let bytes = contents.text.as_ref().or(contents.blob.as_ref());
            serde_json::json!({ "uri": contents.uri, "length": bytes.map_or(0, String::len) })
        })
        .collect();
    serde_json::to_string(&contents).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::trace_id;

    #[test]
    fn only_a_real_trace_is_recorded() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let real = trace_id(&format!("00-{trace}-b7ad6b7169203331-01"));
        assert_eq!(real.as_deref(), Some(trace));
        for bad in [
            "",
            "00",
            "00-xyz",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        ] {
            assert_eq!(trace_id(bad), None, "{bad}");
        }
    }
}
