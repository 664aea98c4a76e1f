//! One call: a request, sent as often as it may be, and its answer.

use crate::{
    Retry,
    answer::answer,
    header::FixedHeaders,
    mapping::{ResponseMapping, SUCCESS},
    retry::{asked, is_idempotent, may_pass},
};
use adapter_tools::{Errand, OpenErrand, Repeat, ToolCx, ToolError, ToolOutput};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use http_client::{Client, SendError, USER_AGENT};
use serde_json::{Map, Value, json};
use std::{error::Error, time::Duration};
use tokio::time::Instant;
use uuid::Uuid;

/// A longer id of a call is not sent.
const MAX_REQUEST_ID_BYTES: usize = 256;

/// Treatment of requests that change something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Every request is sent.
    #[default]
    Active,
    /// Reads are sent; for all other requests the answer shows what would have been sent.
    Shadow,
}

/// Parts of a request that are the same in each call of a tool.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) client: Client,
    pub(crate) method: Method,
    pub(crate) headers: FixedHeaders,
    pub(crate) mode: Mode,
    /// For one attempt.
    pub(crate) timeout: Duration,
    pub(crate) retry: Retry,
    /// Header for a key by which the service recognises repetitions.
    pub(crate) idempotency_header: Option<HeaderName>,
    pub(crate) max_response_bytes: usize,
    pub(crate) mapping: ResponseMapping,
}

/// Parts of a request that differ from call to call.
#[derive(Debug)]
pub(crate) struct Filled {
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Body,
}

#[derive(Debug)]
pub(crate) enum Body {
    None,
    Json(Bytes),
    Form(String),
}

impl Plan {
    /// Returns true if a request may be sent a second time although the outcome of the first is
    /// unknown.
    pub(crate) fn may_repeat(&self) -> bool {
        is_idempotent(&self.method) || self.idempotency_header.is_some()
    }

    /// Returns true if a status is likely to change soon. A status that the binding calls an answer
    /// is final.
    fn may_pass(&self, status: StatusCode) -> bool {
        let meaning = self.mapping.statuses.get(&status.as_u16());
        may_pass(status) && meaning.is_none_or(|meaning| meaning != SUCCESS)
    }

    /// Attempts that a request may take, and the pauses between them.
    pub(crate) fn allowed_retry(&self) -> Retry {
        match self.may_repeat() {
            true => self.retry,
            false => Retry::never(),
        }
    }

    /// Carries one call out.
    ///
    /// # Errors
    ///
    /// [`ToolError`], saying whom to tell.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future closes the connection; the service may carry the request out all the same.
    pub(crate) async fn call(&self, cx: &ToolCx, filled: Filled) -> Result<ToolOutput, ToolError> {
        if self.mode == Mode::Shadow && !is_read(&self.method) {
            return Ok(self.shadow(&filled));
        }
        let mut outgoing = self.outgoing(cx, filled)?;
        let (received, may_be_done) = self.received(cx, &mut outgoing).await;
        let received = received.map_err(|error| tool_error(error, may_be_done))?;
        let was_refused = is_idempotent(&self.method)
            || !may_be_done
                && (received.status() == StatusCode::TOO_MANY_REQUESTS
                    || asked(received.headers()).is_some());
        answer(
            &received,
            outgoing.uri(),
            &self.mapping,
            &self.headers,
            was_refused,
        )
    }

    /// The last answer, and whether an earlier attempt may have been carried out.
    async fn received(
        &self,
        cx: &ToolCx,
        outgoing: &mut Request<Bytes>,
    ) -> (Result<Response<Bytes>, SendError>, bool) {
        let deadline = cx.deadline.map(Instant::from_std);
        let retry = self.allowed_retry();
        let most = retry.max_attempts.clamp(1, Retry::MAX_ATTEMPTS);
        let (mut attempt, mut may_be_done) = (1, false);
        loop {
            let until = Instant::now() + self.timeout;
            let until = deadline.map_or(until, |deadline| deadline.min(until));
            let errand = begin_errand(cx, outgoing, attempt - 1);
            let result = self
                .client
                .send_within(outgoing.clone(), self.max_response_bytes, until)
                .await;
            if let Some(errand) = errand {
                match &result {
                    Ok(received) => errand.answered(received.status().as_u16()),
                    Err(error) => errand.failed(error.kind()),
                }
            }
            let wanted = match &result {
                Ok(received) if self.may_pass(received.status()) => asked(received.headers()),
                Err(
                    SendError::Unreachable(_)
                    | SendError::Unsent(_)
                    | SendError::Broken(_)
                    | SendError::TimedOut,
                ) => None,
                _ => return (result, may_be_done),
            };
            let wait = retry.wait_after(attempt).max(wanted.unwrap_or_default());
            let next = Instant::now() + wait;
            if attempt == most || deadline.is_some_and(|deadline| deadline <= next) {
                return (result, may_be_done);
            }
            may_be_done |= match &result {
                Ok(received) => received.status() != StatusCode::TOO_MANY_REQUESTS,
                Err(error) => error.was_sent(),
            };
            tracing::debug!(attempt, "a request is sent again");
            tokio::time::sleep_until(next).await;
            attempt += 1;
        }
    }

    fn outgoing(&self, cx: &ToolCx, filled: Filled) -> Result<Request<Bytes>, ToolError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, USER_AGENT);
        let accepted = "application/json, text/*;q=0.9, */*;q=0.5";
        headers.insert(header::ACCEPT, HeaderValue::from_static(accepted));
        let (kind, body) = match filled.body {
            Body::None => (None, Bytes::new()),
            Body::Json(body) => (Some("application/json"), body),
            Body::Form(body) => (Some("application/x-www-form-urlencoded"), body.into()),
        };
        if let Some(kind) = kind {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        headers.extend(filled.headers);
        for (name, value) in self.headers.values() {
            headers.insert(name, value.clone());
        }
        headers.insert(
            header::ACCEPT_ENCODING,
            HeaderValue::from_static("identity"),
        );
        if let Some(name) = &self.idempotency_header {
            // Not the id of the call: each client counts its own from one.
            let key = Uuid::new_v4().to_string();
            headers.insert(
                name,
                HeaderValue::from_str(&key).map_err(ToolError::broken)?,
            );
        }
        // A client may call its call anything.
        if cx.request_id.len() <= MAX_REQUEST_ID_BYTES
            && cx.request_id.is_ascii()
            && let Ok(id) = HeaderValue::from_str(&cx.request_id)
        {
            headers.insert("x-request-id", id);
        }
        let (parent, state) = (cx.traceparent.as_deref(), cx.tracestate.as_deref());
        put_trace(&mut headers, parent, state);
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = self.method.clone();
        *outgoing.uri_mut() = filled.uri;
        *outgoing.headers_mut() = headers;
        Ok(outgoing)
    }

    /// Request that would have been sent, in OwlClaw's shape; references to secrets as they are
    /// written.
    fn shadow(&self, filled: &Filled) -> ToolOutput {
        let written = self.headers.written().iter();
        let mut headers: Map<String, Value> = written
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        for (name, value) in &filled.headers {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            headers.entry(name.as_str()).or_insert(json!(value));
        }
        let body = match &filled.body {
            Body::None => Value::Null,
            Body::Json(body) => serde_json::from_slice(body).unwrap_or_default(),
            Body::Form(body) => json!(body),
        };
        ToolOutput::from(json!({
            "status": "shadow",
            "mode": "shadow",
            "method": self.method.as_str(),
            "url": filled.uri.to_string(),
            "headers": headers,
            "body": body,
            "sent": false,
        }))
    }
}

/// Error of a call whose last attempt failed so; `may_be_done`, if an earlier one may have been carried out.
fn tool_error(error: SendError, may_be_done: bool) -> ToolError {
    let repeat = match &error {
        SendError::Unreachable(_) | SendError::Unsent(_) if !may_be_done => Repeat::Safe,
        // Another call has another idempotency key: the service does not know it as a repetition.
        SendError::Unreachable(_) | SendError::Unsent(_) | SendError::Broken(_) => {
            Repeat::IfIdempotent
        }
        SendError::TimedOut => return ToolError::TimedOut,
        SendError::TooLarge(_) | SendError::LongHeaders => {
            return ToolError::failed(error.to_string());
        }
        // An operator can do something about it, and no model.
        _ => return ToolError::broken(error),
    };
    ToolError::Crashed {
        message: error.to_string(),
        repeat,
        detail: causes(&error),
    }
}

/// Begins the span of a request, if calls are traced, and puts its place in the trace into the
/// request. `resent` is how often the same request was sent before.
pub fn begin_errand(
    cx: &ToolCx,
    outgoing: &mut Request<Bytes>,
    resent: u32,
) -> Option<Box<dyn OpenErrand>> {
    let address = outgoing.uri();
    let errand = cx.begin_errand(&Errand {
        method: outgoing.method().as_str(),
        scheme: address.scheme_str().unwrap_or_default(),
        host: address.host().unwrap_or_default(),
        port: address.port_u16(),
        resent,
    })?;
    let (parent, state) = (errand.traceparent(), errand.tracestate());
    put_trace(outgoing.headers_mut(), Some(&parent), state.as_deref());
    Some(errand)
}

fn put_trace(headers: &mut HeaderMap, parent: Option<&str>, state: Option<&str>) {
    for (name, value) in [("traceparent", parent), ("tracestate", state)] {
        // What is no header is no trace context.
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
}

/// Returns true for a method that OwlClaw's shadow mode lets through.
pub(crate) fn is_read(method: &Method) -> bool {
    method.is_safe()
}

fn causes(error: &dyn Error) -> String {
    let mut text = String::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
