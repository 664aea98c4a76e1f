//! Context of a request: the endpoint, the listener and the connection it came by.

use crate::{
    error_response::{Handled, refusal_with, refuse},
    headers::Headers,
    limits::{
        accept_errors::Accepting, admission::Admission, body_memory::Held, idle::Activity,
        stats::Stats,
    },
    options::HttpOptions,
    peer::{Peer, forwarded},
    request::host_origin::Guard,
    session::{
        detached::DetachedRequests,
        sessions::{Session, SessionKind, Sessions},
    },
};
use http::{HeaderValue, StatusCode, request::Parts};
use jsonrpc_core::{ErrorCode, ErrorObject};
use mcp_service::{Engine, McpService, Principal};
use serde_json::json;
use std::sync::{Arc, atomic::AtomicUsize};

/// State that all listeners of a server share.
#[derive(Debug)]
pub(crate) struct Endpoint<S> {
    pub(crate) engine: Arc<Engine<S>>,
    pub(crate) options: HttpOptions,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) admission: Arc<Admission>,
    /// Header for responses over TLS, if there is one.
    pub(crate) strict_transport_security: Option<HeaderValue>,
    pub(crate) listeners: AtomicUsize,
    pub(crate) counts: Arc<Stats>,
    /// Bytes held of bodies that are being read.
    pub(crate) held: Held,
    pub(crate) accepting: Accepting,
}

/// State that the connections of one listener share.
#[derive(Debug)]
pub(crate) struct Listening<S> {
    pub(crate) endpoint: Arc<Endpoint<S>>,
    pub(crate) guard: Guard,
    pub(crate) detached: Arc<DetachedRequests>,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct ConnectionCx<S> {
    pub(crate) listening: Arc<Listening<S>>,
    pub(crate) peer: Peer,
    /// True if the peer is a proxy that is trusted, and so may speak for others.
    pub(crate) via_proxy: bool,
    pub(crate) activity: Arc<Activity>,
}

impl<S> ConnectionCx<S> {
    /// Context of the client that a proxy speaks for in a request, if the peer is such a proxy.
    pub(crate) fn behind(self: Arc<Self>, parts: &Parts) -> Arc<Self> {
        if !self.via_proxy {
            return self;
        }
        let options = self.options();
        let (read, trusted) = (options.forwarded_header, &options.trusted_proxies);
        Arc::new(Self {
            listening: Arc::clone(&self.listening),
            peer: forwarded::speaker(&parts.headers, read, &self.peer, trusted),
            via_proxy: false,
            activity: Arc::clone(&self.activity),
        })
    }

    pub(crate) fn endpoint(&self) -> &Endpoint<S> {
        &self.listening.endpoint
    }

    pub(crate) fn options(&self) -> &HttpOptions {
        &self.listening.endpoint.options
    }

    pub(crate) async fn principal(&self, parts: &Parts) -> Handled<Principal> {
        let options = self.options();
        let authenticated = options.authenticate.authenticate(parts, &self.peer);
        let principal = authenticated.outcome().await?;
        if options.pass_headers.is_empty() {
            return Ok(principal);
        }
        let passed = options.pass_headers.iter().filter_map(|name| {
            let all: Result<Vec<&str>, _> = parts
                .headers
                .get_all(name)
                .iter()
                .map(|it| it.to_str())
                .collect();
            let value = all.ok().filter(|it| !it.is_empty())?.join(", ");
            Some((Arc::from(name.as_str()), value.into_boxed_str()))
        });
        Ok(principal.with_headers(passed.collect()))
    }

    /// Takes up the session that the headers name, if other processes have it and this one has not.
    pub(crate) async fn take_session_up(
        &self,
        headers: &Headers<'_>,
        principal: &Principal,
    ) -> Handled<()>
    where
        S: McpService,
    {
        let Some(id) = headers.session.text().filter(|_| !headers.are_modern()) else {
            return Ok(());
        };
        let endpoint = self.endpoint();
        let taken = endpoint.sessions.take_up(&endpoint.engine, id, principal);
        taken.await.map_err(|error| {
            let error = ErrorObject::new(ErrorCode::INTERNAL_ERROR, error.to_string())
                .with(&json!({ "retryable": true }));
            Box::new(refusal_with(StatusCode::SERVICE_UNAVAILABLE, error))
        })
    }

    /// The live session the headers name, which must be `principal`'s; `None` if they name none.
    pub(crate) fn session(
        &self,
        headers: &Headers<'_>,
        principal: &Principal,
    ) -> Handled<Option<Arc<Session>>> {
        if headers.session.is_missing() {
            return Ok(None);
        }
        let id = headers.session.text().unwrap_or_default();
        self.session_of(SessionKind::Streamable, id, principal)
            .map(Some)
    }

    /// The live session `id`, which must be of this kind and `principal`'s.
    pub(crate) fn session_of(
        &self,
        kind: SessionKind,
        id: &str,
        principal: &Principal,
    ) -> Handled<Arc<Session>> {
        match self.endpoint().sessions.find(kind, id, principal) {
            Some(session) => Ok(session),
            None => refuse(
                StatusCode::NOT_FOUND,
                "there is no such session, or not any more; initialize a new one",
            ),
        }
    }

    /// A new session for `principal`.
    pub(crate) fn open_session(
        &self,
        kind: SessionKind,
        principal: &Principal,
    ) -> Handled<Arc<Session>> {
        self.endpoint()
            .sessions
            .open(kind, principal)
            .map_err(|error| {
                tracing::warn!(%principal, %error, "a session was refused");
                let error = ErrorObject::new(ErrorCode::INTERNAL_ERROR, error.to_string())
                    .with(&json!({ "retryable": true }));
                Box::new(refusal_with(StatusCode::SERVICE_UNAVAILABLE, error))
            })
    }
}
