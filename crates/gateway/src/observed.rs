use crate::{Metrics, Offer};
use arc_swap::ArcSwap;
use jsonrpc_core::ErrorCode;
use mcp_protocol::model::{ClientRequest, ServerResult};
use mcp_service::{McpError, RequestCx, Service};
use serde::Deserialize;
use std::{sync::Arc, time::Instant};

/// Counts and logs every request, refused ones too.
#[derive(Debug)]
pub struct Observed<S> {
    inner: S,
    metrics: Metrics,
    offer: Arc<ArcSwap<Offer>>,
}

impl<S> Observed<S> {
    pub(crate) fn new(inner: S, metrics: Metrics, offer: Arc<ArcSwap<Offer>>) -> Self {
        Self {
            inner,
            metrics,
            offer,
        }
    }
}

impl<S> Service<ClientRequest> for Observed<S>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError>,
{
    type Response = ServerResult;
    type Error = McpError;

    async fn call(&self, cx: &RequestCx, request: ClientRequest) -> Result<ServerResult, McpError> {
        let began = Instant::now();
        let method = method_of(&request);
        let tool = match &request {
            ClientRequest::CallTool(call) => Some(call.name.clone()),
            _ => None,
        };
        self.metrics.in_flight().inc();
        let _running = Running(&self.metrics);
        let outcome = self.inner.call(cx, request).await;
        let seconds = began.elapsed().as_secs_f64();
        let code = outcome
            .as_ref()
            .err()
            .map_or(0, |McpError(error)| error.code.0);
        let failed = match &outcome {
            Ok(ServerResult::CallTool(result)) => result.is_error,
            Ok(_) => false,
            Err(_) => true,
        };
        self.metrics.latency(method).observe(seconds);
        self.metrics
            .requests()
            .with_label_values(&[method, itoa::Buffer::new().format(code)])
            .inc();
        // Only tools that exist: what clients call them is not ours to label with.
        if let Some(tool) = &tool
            && self.offer.load().tools().get(tool).is_some()
        {
            let outcome = if failed { "error" } else { "ok" };
            self.metrics
                .calls()
                .with_label_values(&[tool.as_str(), outcome])
                .inc();
        }
        let reason = outcome.as_ref().err().and_then(denial_reason);
        if let Some(reason) = &reason {
            self.metrics
                .denials()
                .with_label_values(&[reason.as_str()])
                .inc();
        }
        tracing::debug!(
            id = %cx.id,
            method,
            principal = %cx.principal,
            version = %cx.version,
            tool,
            code,
            reason,
            seconds,
            "request answered"
        );
        outcome
    }
}

struct Running<'a>(&'a Metrics);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.in_flight().dec();
    }
}

/// The reason in the error data of a refusal.
fn denial_reason(McpError(error): &McpError) -> Option<String> {
    #[derive(Deserialize)]
    struct Data {
        reason: String,
    }
    if error.code != ErrorCode(-32003) {
        return None;
    }
    let data: Data = error.data.as_ref()?.parse().ok()?;
    Some(data.reason)
}

fn method_of(request: &ClientRequest) -> &'static str {
    match request {
        ClientRequest::Initialize(_) => "initialize",
        ClientRequest::Discover => "server/discover",
        ClientRequest::Ping => "ping",
        ClientRequest::ListTools(_) => "tools/list",
        ClientRequest::CallTool(_) => "tools/call",
        ClientRequest::ListResources(_) => "resources/list",
        ClientRequest::ListResourceTemplates(_) => "resources/templates/list",
        ClientRequest::ReadResource(_) => "resources/read",
        ClientRequest::Subscribe(_) => "resources/subscribe",
        ClientRequest::Unsubscribe(_) => "resources/unsubscribe",
        ClientRequest::ListSkills(_) => "skills/list",
        ClientRequest::GetSkill(_) => "skills/get",
        ClientRequest::ReadDirectory(_) => "resources/directory/read",
        ClientRequest::ListPrompts(_) => "prompts/list",
        ClientRequest::GetPrompt(_) => "prompts/get",
        ClientRequest::Complete(_) => "completion/complete",
        ClientRequest::SetLevel(_) => "logging/setLevel",
        ClientRequest::Listen(_) => "subscriptions/listen",
        ClientRequest::GetTask(_) => "tasks/get",
        ClientRequest::UpdateTask(_) => "tasks/update",
        ClientRequest::CancelTask(_) => "tasks/cancel",
        ClientRequest::AwaitTask(_) => "tasks/result",
        ClientRequest::ListTasks(_) => "tasks/list",
    }
}
