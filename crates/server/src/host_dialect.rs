//! The dialect of founding document 004 over HTTP: messages are posted to `/host`, and what is said without being asked
//! is a stream at `/host/events`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use config::Http;
use futures_util::future::BoxFuture;
use host::{EventStream, Host, HostOptions, NoSession};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response, StatusCode, header};
use mcp_server::ComponentState;
use mcp_service::{McpService, Principal};
use tokio::runtime::Handle;
use transport_http::{PlainResponse, SideBody, SideRequest, SideResponse, refusal, side};

use super::store::ServedMcpServer;
use crate::Failure;

/// Path at which messages are posted.
const MESSAGES: &str = "/host";
/// Path of the stream of a session.
const EVENTS: &str = "/host/events";
/// Header that names a session, in place of the member of a message.
const SESSION: HeaderName = HeaderName::from_static("x-session-id");

pub(super) fn is_path(path: &str) -> bool {
    matches!(path, MESSAGES | EVENTS)
}

/// The longest time for which streams wait for requests that run when the server stops.
const LAST_NOTICES: Duration = Duration::from_secs(1);

/// A host, whatever its engine's services are.
trait Spoken: Send + Sync {
    fn answer<'a>(
        &'a self,
        principal: &'a Principal,
        session: Option<&'a str>,
        body: &'a [u8],
    ) -> BoxFuture<'a, Option<Bytes>>;
    fn events(
        &self,
        principal: &Principal,
        session: Option<&str>,
    ) -> Result<EventStream, NoSession>;
    fn unstored(&self) -> Option<String>;
    fn shut_down(&self, drain: Duration) -> BoxFuture<'_, ()>;
}

impl<S: McpService> Spoken for Arc<Host<S>> {
    fn answer<'a>(
        &'a self,
        principal: &'a Principal,
        session: Option<&'a str>,
        body: &'a [u8],
    ) -> BoxFuture<'a, Option<Bytes>> {
        Box::pin(Host::answer(self, principal, session, body))
    }

    fn events(
        &self,
        principal: &Principal,
        session: Option<&str>,
    ) -> Result<EventStream, NoSession> {
        Host::events(self, principal, session)
    }

    fn unstored(&self) -> Option<String> {
        Host::unstored(self)
    }

    fn shut_down(&self, drain: Duration) -> BoxFuture<'_, ()> {
        Box::pin(Host::shut_down(self, drain, drain.min(LAST_NOTICES)))
    }
}

/// Name of the component of `/health` for sessions of the dialect.
pub(super) const COMPONENT: &str = "host_dialect";

/// Routes of the dialect.
#[derive(Clone)]
pub(super) struct HostRoutes {
    host: Arc<dyn Spoken>,
    max_body: usize,
}

impl HostRoutes {
    /// `None` where the dialect is not spoken.
    ///
    /// # Errors
    ///
    /// When there is a state file that cannot be read.
    pub(super) fn of(config: &Http, mcp: &ServedMcpServer) -> Result<Option<Self>, Failure> {
        let dialect = &config.host_dialect;
        if !dialect.enabled {
            return Ok(None);
        }
        let options = HostOptions {
            session_timeout: Duration::from_secs(dialect.session_timeout_seconds),
            max_sessions: dialect.max_sessions,
            max_sessions_per_principal: dialect.max_sessions_per_client,
            max_requests_per_minute: dialect.max_requests_per_minute,
            max_concurrent_requests: dialect.max_concurrent_requests,
            max_queued_bytes: dialect.max_queued_bytes,
            max_watchers: dialect.max_watchers,
            state_file: dialect.state_file.clone(),
            ..HostOptions::default()
        };
        let host = Host::new(Arc::clone(mcp.engine()), options, Handle::current())
            .map_err(|error| format!("http.host_dialect.state_file: {error}"))?;
        Ok(Some(Self {
            host: Arc::new(host),
            max_body: config.max_body_bytes,
        }))
    }

    /// The most bytes of a body that are read.
    pub(super) fn max_body(&self, parts: &Parts) -> usize {
        match parts.method == Method::POST && parts.uri.path() == MESSAGES {
            true => self.max_body,
            false => 0,
        }
    }

    pub(super) fn handle<'a>(&'a self, request: SideRequest<'a>) -> SideResponse<'a> {
        Box::pin(async move {
            match self.answered(request).await {
                Ok(response) => response,
                Err(refused) => side(*refused),
            }
        })
    }

    /// State of the dialect's sessions for `/health`.
    pub(super) fn state(&self) -> ComponentState {
        let detail = self.host.unstored();
        ComponentState {
            name: COMPONENT,
            ok: detail.is_none(),
            detail,
        }
    }

    /// Tells sessions that the server stops.
    pub(super) async fn shut_down(&self, drain: Duration) {
        self.host.shut_down(drain).await;
    }

    async fn answered(
        &self,
        request: SideRequest<'_>,
    ) -> Result<Response<SideBody>, Box<PlainResponse>> {
        let parts = request.parts();
        let refuse = |status, why: &'static str| Err(Box::new(refusal(status, why)));
        let (method, is_stream) = match parts.uri.path() {
            EVENTS => ("GET", true),
            _ => ("POST", false),
        };
        if parts.method != method {
            let mut refused = refusal(StatusCode::METHOD_NOT_ALLOWED, format!("use {method}"));
            let allowed = HeaderValue::from_static(method);
            refused.headers_mut().insert(header::ALLOW, allowed);
            return Err(Box::new(refused));
        }
        let principal = request.principal().await?;
        let session = parts.headers.get(SESSION);
        let session = session.map(HeaderValue::to_str).transpose();
        let Ok(session) = session else {
            return refuse(StatusCode::BAD_REQUEST, "`X-Session-Id` is no text");
        };
        if is_stream {
            let events = self.host.events(&principal, session);
            let Ok(events) = events else {
                return refuse(
                    StatusCode::NOT_FOUND,
                    "`X-Session-Id` names no session of this client",
                );
            };
            let body = SideBody::Stream(Box::pin(events));
            return Ok(with_type(body, "text/event-stream"));
        }
        // Pages of strangers can post forms without asking, and this is none.
        let media_type = parts.headers.get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|it| it.to_str().ok());
        let media_type = media_type.and_then(|it| it.split(';').next());
        if !media_type.is_some_and(|it| it.trim().eq_ignore_ascii_case("application/json")) {
            return refuse(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "`Content-Type` must be application/json",
            );
        }
        let answer = self.host.answer(&principal, session, request.body()).await;
        Ok(match answer {
            Some(answer) => with_type(SideBody::Whole(answer), "application/json"),
            None => {
                let mut nothing = Response::new(SideBody::Whole(Bytes::new()));
                *nothing.status_mut() = StatusCode::ACCEPTED;
                nothing
            }
        })
    }
}

fn with_type(body: SideBody, media_type: &'static str) -> Response<SideBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
