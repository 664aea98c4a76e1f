//! Filter for calls.

use ledger::{Cursor, Ended, Filter, OPEN_CALLS, Outcome, Started};
use mcp_server::{resource_capability, tool_capability};

use crate::request::{CallFilter, Whose};

/// A filter of the command line in the ledger's words.
pub(super) struct Wanted {
    principal: Option<String>,
    capability: Option<String>,
    request_id: Option<String>,
    filter: CallFilter,
}

impl Whose {
    pub(super) fn capability(&self) -> Option<String> {
        let tool = self.tool.as_deref().map(tool_capability);
        tool.or_else(|| self.resource.as_deref().map(resource_capability))
    }
}

impl Wanted {
    pub(super) fn new(filter: CallFilter) -> Self {
        Self {
            principal: filter.who.client.clone(),
            capability: filter.who.capability(),
            // Ids are JSON: a bare word is a text.
            request_id: filter.request.as_ref().map(|id| {
                match serde_json::from_str::<serde_json::Value>(id) {
                    Ok(_) => id.clone(),
                    Err(_) => serde_json::Value::from(id.as_str()).to_string(),
                }
            }),
            filter,
        }
    }

    /// Returns true if the filter lets every call through.
    pub(super) fn is_everything(&self) -> bool {
        let it = &self.filter;
        self.principal.is_none()
            && self.capability.is_none()
            && it.outcome.is_none()
            && it.reason.is_none()
            && it.since.is_none()
            && it.until.is_none()
            && it.trace.is_none()
            && it.request.is_none()
            && it.approval.is_none()
            && it.longer_than.is_none()
    }

    /// The same filter as a query, for readers with an index.
    pub(super) fn query(&self, before: Option<Cursor>) -> Filter<'_> {
        let it = &self.filter;
        Filter {
            principal: self.principal.as_deref(),
            capability: self.capability.as_deref(),
            outcome: it.outcome.as_deref(),
            reason: it.reason.as_deref(),
            request_id: self.request_id.as_deref(),
            trace_id: it.trace.as_deref(),
            approval: it.approval,
            min_duration_us: it.longer_than.map(|ms| ms.saturating_mul(1_000)),
            since_us: it.since.map(|when| when.0),
            until_us: it.until.map(|when| when.0),
            before,
            ..Filter::default()
        }
    }

    /// The same of a call as it is read.
    pub(super) fn takes(&self, started: &Started, ended: Option<&Ended>) -> bool {
        let query = self.query(None);
        let is = |wanted: Option<&str>, found: Option<&str>| {
            wanted.is_none_or(|wanted| found == Some(wanted))
        };
        let reason = ended.and_then(|ended| match &ended.outcome {
            Outcome::Denied { reason } => Some(reason.as_str()),
            _ => None,
        });
        let duration = ended.map_or(0, |ended| ended.duration_us);
        is(query.principal, Some(&started.principal))
            && is(query.capability, Some(&started.capability))
            && is(
                query.outcome,
                Some(ended.map_or(OPEN_CALLS, |ended| ended.outcome.as_str())),
            )
            && is(query.reason, reason)
            && is(query.request_id, Some(&started.request_id))
            && is(query.trace_id, started.trace_id.as_deref())
            && query.approval.is_none_or(|it| started.approval == Some(it))
            && query.min_duration_us.is_none_or(|least| least <= duration)
            && query.since_us.is_none_or(|since| since <= started.at_us)
            && query.until_us.is_none_or(|until| started.at_us < until)
    }
}
