//! The first entry of a call in the ledger.

use crate::{
    invocation::{Invocation, Target},
    names::resource_capability,
    offer::resources::ResourceEntry,
};
use governance::Kind;
use ledger::{CallId, Start};
use mcp_protocol::{TraceContext, model::ResourceTemplate};
use mcp_service::RequestCx;
use redaction::Redactor;
use std::{borrow::Cow, sync::Arc};

/// The first entry of an invocation.
pub(crate) fn start_of<'a>(
    cx: &'a RequestCx,
    invocation: &'a Invocation,
    labels: &'a Labels<'_>,
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
        method: invocation.method().name(),
        transport: cx.transport.as_str(),
        protocol_version: cx.version.as_str(),
        session: cx.session.as_deref(),
        trace_id: labels.trace_id.as_deref(),
        arguments: &labels.arguments,
        arguments_digest: Some(labels.arguments_digest),
        via: invocation.via(),
        ..Start::new(
            call,
            at_us,
            cx.principal.as_str(),
            kind,
            labels.capability_of(invocation),
        )
    }
}

/// Texts of a first entry that are not the request's own.
pub(crate) struct Labels<'a> {
    request_id: Arc<str>,
    trace_id: Option<String>,
    /// Without secrets.
    arguments: Cow<'a, str>,
    arguments_digest: ledger::Digest,
    /// The capability, if there is a secret in it.
    capability: Option<String>,
}

impl<'a> Labels<'a> {
    pub(crate) fn of(cx: &RequestCx, invocation: &'a Invocation, redactor: &Redactor) -> Self {
        let sent = invocation.arguments.as_str();
        let kept = redactor.json(&invocation.capability, sent);
        Self {
            capability: without_secrets(invocation, redactor),
            ..Self::keeping(cx, redactor, sent, kept)
        }
    }

    /// Texts for a ledger that keeps no entries, which costs nothing.
    pub(crate) fn unkept() -> Self {
        Self {
            request_id: Arc::default(),
            trace_id: None,
            arguments: Cow::Borrowed(""),
            arguments_digest: ledger::Digest::default(),
            capability: None,
        }
    }

    /// The same for a capability that does not exist or is hidden: every tool's secrets are taken out.
    pub(crate) fn of_anything(
        cx: &RequestCx,
        invocation: &'a Invocation,
        redactor: &Redactor,
    ) -> Self {
        let sent = invocation.arguments.as_str();
        let kept = redactor.json_for_any(sent);
        Self::keeping(cx, redactor, sent, kept)
    }

    fn keeping(cx: &RequestCx, redactor: &Redactor, sent: &str, arguments: Cow<'a, str>) -> Self {
        Self {
            request_id: cx.id.to_shared(),
            trace_id: cx.trace().map(TraceContext::trace_id_text),
            arguments_digest: arguments_digest(redactor, sent, &arguments),
            arguments,
            capability: None,
        }
    }
}

impl Labels<'_> {
    /// The capability of an invocation as it is recorded.
    pub(crate) fn capability_of<'a>(&'a self, invocation: &'a Invocation) -> &'a str {
        let without_secrets = self.capability.as_deref();
        without_secrets.unwrap_or(&invocation.capability)
    }

    /// True if the arguments are as they were sent: no secret was found in them.
    pub(crate) fn are_harmless(&self) -> bool {
        matches!(self.arguments, Cow::Borrowed(_))
    }
}

/// The capability of a resource without the secrets in what its template leaves open; `None` where there are none.
///
/// Rules and quotas are about the capability itself, and what is on a list is no secret.
fn without_secrets(invocation: &Invocation, redactor: &Redactor) -> Option<String> {
    let Target::Resource(_) = invocation.target else {
        return None;
    };
    let capability = &*invocation.capability;
    // Hardly any has one.
    let Cow::Owned(redacted) = redactor.text(capability) else {
        return None;
    };
    let resources = invocation.offer.resources();
    let governed = |it: &ResourceEntry| {
        let uri = it.governed_by.as_ref().unwrap_or(&it.resource.uri);
        resource_capability(uri) == capability
    };
    if resources.entries().iter().any(governed) {
        return None;
    }
    let begins = |it: &ResourceTemplate| {
        let fixed = resource_capability(it.uri_template.split('{').next()?);
        capability.starts_with(&fixed).then_some(fixed)
    };
    let fixed = resources.templates().iter().filter_map(begins);
    let fixed = fixed.max_by_key(String::len).unwrap_or_default();
    if redacted.starts_with(&fixed) {
        return Some(redacted);
    }
    let open = &capability[fixed.len()..];
    Some(fixed + &redactor.text(open))
}

/// A digest of what was `sent`, of which `kept` is what stays.
pub(crate) fn arguments_digest(redactor: &Redactor, sent: &str, kept: &str) -> ledger::Digest {
    if kept == sent {
        // Whoever reads the ledger can compute it from the arguments beside it.
        redaction::digest(sent)
    } else {
        // A plain one would confirm guesses of what was taken out.
        redactor.digest(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{offer::Offer, pipeline::recorded::redactor_of_this_process};
    use adapter_tools::{NoArguments, Tool, ToolSet};
    use jsonrpc_core::RawJson;
    use std::time::Duration;

    #[test]
    fn arguments_with_a_secret_are_not_harmless() {
        let tool = Tool::native("t", |_cx, _: NoArguments| async { Ok("") });
        let tools = ToolSet::new([tool]).unwrap();
        let offer = Arc::new(Offer::of_tools(tools, Duration::from_secs(60)));
        let cx = RequestCx::detached(mcp_protocol::ProtocolVersion::V2026_07_28, "x");
        let redactor = redactor_of_this_process();
        for (sent, expected) in [
            (r#"{"order":"4711"}"#, true),
            (r#"{"password":"hunter22"}"#, false),
            (
                r#"{"note":"Bearer abcdefghijklmnopqrstuvwxyz0123456789"}"#,
                false,
            ),
        ] {
            let arguments = RawJson::from_bytes(sent.into()).unwrap();
            let invocation = Invocation::tool(Arc::clone(&offer), "t", arguments);
            let labels = Labels::of(&cx, &invocation, &redactor);
            assert_eq!(labels.are_harmless(), expected, "{sent}");
        }
    }
}
