//! Filters: those of requests, which governance asks before it decides, and the layer that has filters look at results
//! before they are recorded and answered.

use crate::{
    filter::{FilterRefusal, Filters, Passing, Phase},
    invocation::{Invocation, Invoked, Target, failure::InvocationError},
    names::caller_of,
    pipeline::{governed::Admitted, start_entry::arguments_digest},
};
use adapter_tools::ToolError;
use data_encoding::HEXLOWER;
use futures_util::future::Either;
use governance::{Governor, QuotaStore};
use jsonrpc_core::RawJson;
use mcp_protocol::{
    Encoder, Method, ProtocolVersion, TraceContext,
    client::{Answer, decode_result},
    model::{CallToolResult, Content, ServerResult},
};
use mcp_service::{RequestCx, Service};
use redaction::Redactor;
use serde::Deserialize;
use serde_json::{json, value::RawValue};
use std::{collections::BTreeMap, sync::Arc};

/// Filters with what they need, where there are any.
#[derive(Debug)]
pub(crate) struct Filtering<Q> {
    filters: Filters,
    governor: Arc<Governor<Q>>,
    redactor: Arc<Redactor>,
}

impl<Q> Filtering<Q> {
    /// `None` where there are no filters.
    pub(crate) fn new(
        filters: Filters,
        governor: Arc<Governor<Q>>,
        redactor: Arc<Redactor>,
    ) -> Option<Arc<Self>> {
        (!filters.is_empty()).then(|| {
            Arc::new(Self {
                filters,
                governor,
                redactor,
            })
        })
    }
}

impl<Q: QuotaStore> Filtering<Q> {
    /// The call as filters leave it. [`Governed`](super::governed::Governed) decides on what they have made of it.
    pub(crate) async fn request(&self, cx: &RequestCx, mut invocation: Invocation) -> Invocation {
        let caller = caller_of(&cx.principal);
        let capability = Arc::clone(&invocation.capability);
        let (roles, may_call) = {
            let policy = self.governor.policy();
            let roles = policy.roles_of(caller);
            (roles, policy.permitted(caller, &capability))
        };
        if !self
            .filters
            .are_about(Phase::Request, &capability, caller, &roles)
        {
            return invocation;
        }
        // The arguments of what is refused anyway are nobody else's business. By other rules it is not let through.
        if !may_call || !invocation.exists() || invocation.is_hidden {
            invocation.is_unfiltered = true;
            return invocation;
        }
        let request = request_of(&invocation);
        let trace_id = cx.trace().map(TraceContext::trace_id_text);
        let passing = Passing {
            phase: Phase::Request,
            method: invocation.method().name(),
            capability: &capability,
            caller,
            roles: &roles,
            session: cx.session.as_deref(),
            trace_id: trace_id.as_deref(),
            request: &request,
            result: None,
        };
        let report = Arc::clone(&invocation.report);
        let fits = |new: &RawJson| request_from(&invocation, new).map(drop);
        let digest = |json: &str| digest(&self.redactor, &capability, json);
        let asked = self
            .filters
            .ask(passing, |it| report.meter().note(it), digest, fits);
        match asked.await {
            Ok(None) => {}
            Ok(Some(new)) => match request_from(&invocation, &new) {
                Ok(changed) => invocation = changed,
                Err(_) => invocation.is_unfiltered = true,
            },
            Err(refusal) => invocation.refused = Some(Box::new(refusal)),
        }
        invocation
    }
}

/// Has filters look at results. It is below the record, which has what they have made of them.
#[derive(Debug)]
pub(crate) struct FilteredResults<S, Q> {
    inner: S,
    filtering: Option<Arc<Filtering<Q>>>,
}

impl<S, Q> FilteredResults<S, Q> {
    pub(crate) fn new(inner: S, filtering: Option<Arc<Filtering<Q>>>) -> Self {
        Self { inner, filtering }
    }
}

impl<S, Q> Service<Admitted<Invocation>> for FilteredResults<S, Q>
where
    S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
    Q: QuotaStore,
{
    type Response = Invoked;
    type Error = InvocationError;

    fn call(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
    ) -> impl Future<Output = Result<Invoked, InvocationError>> + Send {
        match &self.filtering {
            None => Either::Left(self.inner.call(cx, admitted)),
            Some(filtering) => Either::Right(Box::pin(filtering.result(cx, admitted, &self.inner))),
        }
    }
}

impl<Q: QuotaStore> Filtering<Q> {
    /// The outcome of the call that `inner` makes, as filters leave it.
    async fn result<S>(
        &self,
        cx: &RequestCx,
        admitted: Admitted<Invocation>,
        inner: &S,
    ) -> Result<Invoked, InvocationError>
    where
        S: Service<Admitted<Invocation>, Response = Invoked, Error = InvocationError>,
    {
        let caller = caller_of(&cx.principal);
        let invocation = admitted.inner();
        let roles = self.governor.policy().roles_of(caller);
        if !self
            .filters
            .are_about(Phase::Response, &invocation.capability, caller, &roles)
        {
            return inner.call(cx, admitted).await;
        }
        let capability = Arc::clone(&invocation.capability);
        let report = Arc::clone(&invocation.report);
        let (request, method) = (request_of(invocation), invocation.method());
        let offered = invocation.tool.clone();
        let outcome = inner.call(cx, admitted).await;
        let Some(result) = result_of(&outcome) else {
            return outcome;
        };
        let encoded = Encoder::anonymous().result(ProtocolVersion::NEWEST, &result);
        let refused = |why: &str| {
            Err(InvocationError::Filtered(Box::new(FilterRefusal {
                filter: "*".into(),
                phase: Phase::Response,
                why: why.to_owned(),
            })))
        };
        let Ok(encoded) = encoded else {
            return refused("the result cannot be written");
        };
        let trace_id = cx.trace().map(TraceContext::trace_id_text);
        let passing = Passing {
            phase: Phase::Response,
            method: method.name(),
            capability: &capability,
            caller,
            roles: &roles,
            session: cx.session.as_deref(),
            trace_id: trace_id.as_deref(),
            request: &request,
            result: Some(&encoded),
        };
        let is_failure = outcome.is_err();
        // A client that checks the result would show nothing of it.
        let fits = |new: &RawJson| match (result_from(method, new)?, &offered) {
            (Invoked::Tool(result), Some(offered)) if !is_failure && !result.is_error => {
                let structured = result.structured_content.as_ref().map(RawJson::as_str);
                offered.tool.check_answer(structured)
            }
            _ => Ok(()),
        };
        let digest = |json: &str| digest(&self.redactor, &capability, json);
        let asked = self
            .filters
            .ask(passing, |it| report.meter().note(it), digest, fits);
        match asked.await {
            Ok(None) => outcome,
            Ok(Some(new)) => match (result_from(method, &new), outcome) {
                (Ok(Invoked::Tool(result)), Err(InvocationError::Tool(error))) => {
                    Err(InvocationError::Tool(reworded(error, &result)))
                }
                (Ok(changed), Ok(_)) => Ok(changed),
                _ => refused("what a filter has made of the result cannot be used"),
            },
            Err(refusal) => Err(InvocationError::Filtered(Box::new(refusal))),
        }
    }
}

/// Digest of what filters see, for the record: one that confirms no guess of a secret.
fn digest(redactor: &Redactor, capability: &str, json: &str) -> String {
    let digest = arguments_digest(redactor, json, &redactor.json(capability, json));
    HEXLOWER.encode(&digest)
}

/// Parameters of the request that a call is made by, as they go on.
fn request_of(invocation: &Invocation) -> RawJson {
    let written = match &invocation.target {
        Target::Tool(name) => {
            let name = json!(name);
            format!(
                r#"{{"name":{name},"arguments":{}}}"#,
                invocation.arguments.as_str()
            )
        }
        Target::Resource(read) => json!({ "uri": read.uri }).to_string(),
        Target::Prompt(name, arguments) => {
            json!({ "name": name, "arguments": arguments }).to_string()
        }
    };
    RawJson::from_serialized(written.into_bytes())
}

/// The same call with the arguments of `request`, which names the same tool, resource or prompt.
fn request_from(invocation: &Invocation, request: &RawJson) -> Result<Invocation, String> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Named<'a> {
        name: String,
        #[serde(borrow)]
        arguments: &'a RawValue,
    }
    let unfit = |error: serde_json::Error| format!("its payload is no request: {error}");
    let mut changed = invocation.clone();
    match &mut changed.target {
        Target::Resource(_) => Err("it changes which resource is read".to_owned()),
        Target::Tool(name) => {
            let new: Named<'_> = serde_json::from_str(request.as_str()).map_err(unfit)?;
            if new.name != **name {
                return Err("it changes which tool is called".to_owned());
            }
            if !new.arguments.get().starts_with('{') {
                return Err("its arguments are no object".to_owned());
            }
            changed.arguments = RawJson::from_serialized(new.arguments.get().as_bytes().to_vec());
            Ok(changed)
        }
        Target::Prompt(name, arguments) => {
            let new: Named<'_> = serde_json::from_str(request.as_str()).map_err(unfit)?;
            if new.name != *name {
                return Err("it changes which prompt is filled in".to_owned());
            }
            let new: BTreeMap<String, String> =
                serde_json::from_str(new.arguments.get()).map_err(unfit)?;
            arguments.clone_from(&new);
            let sent = RawJson::from_value(&new).map_err(unfit)?;
            changed.arguments = sent;
            Ok(changed)
        }
    }
}

/// The part of an outcome that filters look at: what a handler has said, be it an error. Other words are the server's own.
fn result_of(outcome: &Result<Invoked, InvocationError>) -> Option<ServerResult> {
    let failed = |text: String| {
        ServerResult::CallTool(CallToolResult {
            content: vec![Content::text(text)],
            is_error: true,
            ..CallToolResult::default()
        })
    };
    match outcome {
        Ok(Invoked::Tool(result)) => Some(ServerResult::CallTool(result.clone())),
        Ok(Invoked::Resource(result)) => Some(ServerResult::ReadResource(result.clone())),
        Ok(Invoked::Prompt(result)) => Some(ServerResult::GetPrompt(result.clone())),
        Ok(Invoked::NeedsInput(_) | Invoked::NeedsConfirmation(_)) => None,
        Err(InvocationError::Tool(ToolError::Failed(failure))) => {
            let details = failure.details.as_ref().map(ToString::to_string);
            let texts = [Some(failure.message.clone()), details];
            Some(failed(
                texts.into_iter().flatten().collect::<Vec<_>>().join("\n"),
            ))
        }
        Err(
            error @ InvocationError::Tool(
                ToolError::Rejected(_) | ToolError::Crashed { .. } | ToolError::Lost { .. },
            ),
        ) => Some(failed(error.for_the_record())),
        Err(_) => None,
    }
}

/// The result that a filter has made.
fn result_from(method: Method, result: &RawJson) -> Result<Invoked, String> {
    let decoded = decode_result(ProtocolVersion::NEWEST, method, result);
    match decoded.map(|it| it.answer) {
        Ok(Answer::CallTool(result)) => Ok(Invoked::Tool(result)),
        Ok(Answer::ReadResource(result)) => Ok(Invoked::Resource(result)),
        Ok(Answer::GetPrompt(result)) => Ok(Invoked::Prompt(result)),
        Ok(_) => Err("its payload is another kind of result".to_owned()),
        Err(error) => Err(format!("its payload is no result: {error}")),
    }
}

/// The same failure in the words of `result`, and no others.
fn reworded(error: ToolError, result: &CallToolResult) -> ToolError {
    let texts = result.content.iter().filter_map(|it| match it {
        Content::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    let message = texts.collect::<Vec<_>>().join("\n");
    match error {
        ToolError::Crashed { repeat, .. } => ToolError::Crashed {
            message,
            repeat,
            detail: String::new(),
        },
        ToolError::Lost { .. } => ToolError::Lost {
            message,
            detail: String::new(),
        },
        ToolError::Rejected(_) => {
            ToolError::Rejected(adapter_tools::InvalidArguments::because(message))
        }
        _ => ToolError::failed(message),
    }
}
