//! Costs of handlers that go on without the answers that they have asked for.
//!
//! The call that asks has ended, with its entry and its charge. What its handler uses from then on belongs to
//! the call that brings the answers. Where none does, it is charged by an entry of its own: a question that
//! nobody answers makes nothing free.

use crate::clock::{Clock, timestamp};
use adapter_tools::CallMeter;
use governance::{Ask, Ending, Governor, Micros, QuotaStore};
use ledger::{CallId, End, Kind, Outcome, Recorder, Start};
use mcp_protocol::Method;
use mcp_service::{Principal, RequestCx};
use redaction::Redactor;
use std::{error::Error, fmt, sync::Arc};
use tokio::runtime::Handle;

/// Parts of a call that has asked, as the entry about the rest of it has them.
pub(crate) struct Asked {
    call: CallId,
    principal: Principal,
    capability: Arc<str>,
    kind: Kind,
    method: &'static str,
    transport: &'static str,
    protocol_version: &'static str,
    session: Option<Arc<str>>,
    request_id: Arc<str>,
}

impl Asked {
    pub(crate) fn of(cx: &RequestCx, capability: &Arc<str>, call: CallId) -> Self {
        let (kind, method) = match capability.split_once('/') {
            Some(("resource", _)) => (Kind::Resource, Method::ReadResource),
            Some(("prompt", _)) => (Kind::Other, Method::GetPrompt),
            _ => (Kind::Tool, Method::CallTool),
        };
        Self {
            call,
            principal: cx.principal.clone(),
            capability: Arc::clone(capability),
            kind,
            method: method.name(),
            transport: cx.transport.as_str(),
            protocol_version: cx.version.as_str(),
            session: cx.session.clone(),
            request_id: cx.id.to_shared(),
        }
    }
}

/// Charges what handlers use after questions that are not answered.
pub(crate) trait Unanswered: Send + Sync {
    /// Charges what is left in `meter` once nothing of the handler is there any more.
    fn charge_what_is_left(self: Arc<Self>, asked: Asked, meter: Arc<CallMeter>);
}

impl fmt::Debug for dyn Unanswered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unanswered")
    }
}

/// Charges it by the counters and the record of the server.
pub(crate) struct ChargesUnanswered<Q> {
    pub(crate) governor: Arc<Governor<Q>>,
    pub(crate) recorder: Recorder,
    pub(crate) redactor: Arc<Redactor>,
    pub(crate) clock: Clock,
}

impl<Q: QuotaStore> Unanswered for ChargesUnanswered<Q> {
    fn charge_what_is_left(self: Arc<Self>, asked: Asked, meter: Arc<CallMeter>) {
        // There are as many of these tasks as handlers that wait, and few may.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                meter.unused().await;
                self.charge(&asked, &meter).await;
            });
        }
    }
}

impl<Q: QuotaStore> ChargesUnanswered<Q> {
    async fn charge(&self, asked: &Asked, meter: &CallMeter) {
        let (cost, told) = (meter.take_cost_micros(), meter.told());
        meter.settle();
        if cost.is_none() && told.is_none() {
            return;
        }
        let cost = Micros(cost.unwrap_or_default());
        let at_us = (self.clock)();
        let (principal, capability) = (asked.principal.as_str(), &*asked.capability);
        let ask = Ask::new(principal, capability, timestamp(at_us));
        let ask = ask.with_roles(asked.principal.roles());
        // Counted first, as every call is: a crash in between counts too much.
        let policy_version = match self.governor.charge(ask, cost).await {
            Ok(permit) => {
                let version = permit.policy_version();
                let _ = permit.settle(cost, Ending::GivenUp, timestamp(at_us));
                version
            }
            Err(denial) => {
                tracing::error!(
                    principal = %asked.principal,
                    capability = %asked.capability,
                    %cost,
                    reason = denial.reason.as_str(),
                    "what a handler used after its question could not be counted; the record has it"
                );
                self.governor.policy().version()
            }
        };
        let message = format!(
            "used after the question of {}, which was not answered",
            asked.call
        );
        let message = match told {
            Some(told) => format!("{message}: {told}"),
            None => message,
        };
        // A template leaves open what an address has in it.
        let recorded = match asked.kind {
            ledger::Kind::Resource => self.redactor.text(capability),
            _ => capability.into(),
        };
        let start = Start {
            request_id: &asked.request_id,
            method: asked.method,
            transport: asked.transport,
            protocol_version: asked.protocol_version,
            session: asked.session.as_deref(),
            policy_version,
            estimated_cost_micros: cost.0,
            ..Start::new(CallId::new(at_us), at_us, principal, asked.kind, &recorded)
        };
        let end = End {
            message: Some(&self.redactor.text(&message)),
            cost_micros: cost.0,
            ..End::new(Outcome::Cancelled)
        };
        match self.recorder.begin(&start).await {
            Ok(open) => {
                // Nobody waits for the disk.
                drop(open.finish(&end));
            }
            Err(error) => tracing::error!(
                error = &error as &dyn Error,
                principal = %asked.principal,
                capability = %asked.capability,
                %cost,
                "what a handler used after its question is not on record"
            ),
        }
    }
}
