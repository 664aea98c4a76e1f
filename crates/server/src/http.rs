//! Many clients, over HTTP.

use std::borrow::Cow;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header, request::Parts};
use jsonrpc_core::RawJson;
use mcp_service::Principal;
use serde_json::json as object;
use transport_http::{
    Authenticate, ForwardedHeader, HeaderParams, HttpLimits, HttpOptions, Listen, PlainResponse,
    SideRequest, SideResponse, SideRoutes, UnixSocket, Upgrade, refusal, serve_on_threads, side,
};

use super::administration::{Administration, is_of_operators};
use super::build::Server;
use super::health;
use super::host_dialect::{self, HostRoutes};
use super::identity::Identification;
use super::lifecycle::Lifecycle;
use super::metrics::{Numbers, read_http, read_sessions, read_websockets};
use super::registry::Shelf;
use super::resources;
use super::sign_in::{self, SignInPages};
use super::store::ServedMcpServer;
use super::websocket::WebSocketUpgrade;
use crate::Failure;
use config::Http;

pub(super) async fn serve(server: &Arc<Server>) -> Result<(), Failure> {
    let config = &server.config.http;
    let threads = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let engine = Arc::clone(server.mcp.engine());
    let live = Arc::clone(&server.live_sessions);
    let administration = Administration::of(
        &server.config,
        &server.mcp,
        live,
        server.sources.gateway().clone(),
    )?;
    let host = HostRoutes::of(config, &server.mcp)?;
    let routes = Routes {
        mcp: Arc::clone(&server.mcp),
        lifecycle: server.lifecycle.clone(),
        identification: server.identification.clone(),
        numbers: server.numbers(),
        watchers: server
            .config
            .identity
            .metrics_roles
            .iter()
            .cloned()
            .collect(),
        administration,
        shelf: Shelf::of(&server.config),
        sign_in: sign_in_pages(server),
        host: host.clone(),
    };
    let lifecycle = &server.lifecycle;
    let mut options = HttpOptions {
        side_routes: Some(Arc::new(routes)),
        drain: lifecycle.drain(),
        keep_sessions: server.sessions.clone().map(|it| it as _),
        tls: server.certificates.as_ref().map(|it| Arc::clone(it.tls())),
        ..options(config, Arc::clone(&server.mcp))
    };
    let upgrade = WebSocketUpgrade::new(config, &server.mcp, options.drain);
    if let Some(upgrade) = &upgrade {
        read_websockets(server.mcp.metrics(), upgrade.sockets());
        options.upgrade = Some(Arc::clone(upgrade) as Arc<dyn Upgrade>);
    }
    // Forms of the pages of sign-ins.
    let origin = server.sources.gateway().sign_ins();
    options
        .allowed_origins
        .extend(origin.map(|it| it.origin().to_owned()));
    if let Some(identification) = &server.identification {
        options.authenticate = Arc::clone(identification) as Arc<dyn Authenticate>;
    }
    lifecycle.serving();
    let running = serve_on_threads(engine, options, listen(config), threads)?;
    read_http(server.mcp.metrics(), running.server().figures());
    read_sessions(server.mcp.metrics(), running.server().session_desk());
    // Set once: there is one such server in a process.
    let _ = server.live_sessions.set(running.server().session_desk());
    let scheme = if config.tls.enabled { "https" } else { "http" };
    let address = config.tcp.then(|| running.address());
    tracing::info!(
        transport = "http",
        address = address.map(tracing::field::display),
        url = address.map(|address| format!("{scheme}://{address}/mcp")),
        unix_socket = running
            .unix_socket()
            .map(|path| tracing::field::display(path.display())),
        threads,
        "serving"
    );
    let following = server
        .certificates
        .clone()
        .map(|it| tokio::spawn(it.follow()));
    let sharing = server.sessions.clone().map(|sessions| {
        let follower = running.server().session_follower();
        tokio::spawn(async move { sessions.follow(&follower).await })
    });
    server.mcp.keep_tasks();
    lifecycle.ready();
    lifecycle.asked_over_http().await;
    if let Some(host) = &host {
        host.shut_down(lifecycle.drain()).await;
    }
    running.stop();
    for following in following.into_iter().chain(sharing) {
        following.abort();
    }
    tokio::join!(running.stopped(), server.close_tasks(lifecycle.drain()));
    Ok(())
}

/// Pages on which clients' people give credentials, where clients prove who they are and browsers reach the server.
fn sign_in_pages(server: &Server) -> Option<Arc<SignInPages>> {
    let gateway = server.sources.gateway().clone();
    let addresses = gateway.sign_ins()?;
    let identification = Arc::clone(server.identification.as_ref()?);
    let pages = SignInPages::new(addresses, gateway, identification, Arc::clone(&server.mcp));
    Some(Arc::new(pages))
}

/// Addresses to listen on.
fn listen(config: &Http) -> Listen {
    Listen {
        tcp: config
            .tcp
            .then(|| SocketAddr::new(config.host, config.port)),
        unix: config.unix_socket.as_ref().map(|path| UnixSocket {
            path: path.clone(),
            // The configuration was checked for it; nobody else's otherwise.
            mode: config.unix_socket_permissions().unwrap_or(0o600),
        }),
    }
}

fn options(config: &Http, mcp: Arc<ServedMcpServer>) -> HttpOptions {
    let cors = &config.cors;
    // A page that may read answers may call; one that is only allowed to call may do that.
    let mut allowed_origins = config.allowed_origins.clone();
    if cors.enabled {
        allowed_origins.extend(cors.allowed_origins.iter().cloned());
    }
    let headers = cors.allowed_headers.iter().filter(|_| cors.enabled);
    HttpOptions {
        allowed_origins,
        allowed_hosts: config
            .allowed_hosts
            .iter()
            .map(|it| without_port(it))
            .collect(),
        cors: cors.enabled,
        cors_allowed_methods: cors
            .allowed_methods
            .iter()
            .filter_map(|it| it.parse().ok())
            .collect(),
        cors_allowed_headers: headers.filter_map(|name| name.parse().ok()).collect(),
        cors_max_age: Duration::from_secs(cors.max_age),
        retry: Duration::from_millis(config.stream_retry_milliseconds),
        begin_stream_after: Duration::from_millis(config.stream_after_milliseconds),
        limits: limits(config),
        keep_alive: Duration::from_secs(config.limits.stream_keep_alive_seconds),
        strict_transport_security: Some(config.tls.hsts_seconds)
            .filter(|seconds| *seconds > 0)
            .map(Duration::from_secs),
        trusted_proxies: config.trusted_networks(),
        trust_unix_socket: config.trusts_unix_socket(),
        forwarded_header: match config.forwarded_header {
            config::ForwardedHeader::XForwardedFor => ForwardedHeader::XForwardedFor,
            config::ForwardedHeader::Forwarded => ForwardedHeader::Forwarded,
        },
        pass_headers: config
            .pass_headers
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect(),
        header_params: Some(Arc::new(MirroredParams { mcp })),
        ..paths(config)
    }
}

fn limits(config: &Http) -> HttpLimits {
    let seconds = Duration::from_secs;
    let limits = &config.limits;
    HttpLimits {
        max_connections: limits.max_connections,
        max_connections_per_address: limits.max_connections_per_address,
        max_handshakes: limits.max_handshakes,
        handshake_timeout: seconds(limits.handshake_seconds),
        max_streams_per_connection: limits.max_streams_per_connection,
        max_control_frames_per_second: limits.max_control_frames_per_second,
        max_header_bytes: limits.max_header_bytes,
        max_unfinished_body_bytes: limits.max_unfinished_body_bytes,
        header_timeout: seconds(limits.header_seconds),
        body_timeout: seconds(limits.body_seconds),
        write_timeout: seconds(limits.write_seconds),
        max_sessions_per_principal: limits.max_sessions_per_client,
        max_body_bytes: config.max_body_bytes,
        max_sessions: config.max_sessions,
        session_idle: seconds(config.session_idle_seconds),
        max_session_replay_events: config.max_session_replay_events,
        max_session_replay_bytes: config.max_session_replay_bytes,
        max_replay_bytes: config.max_replay_bytes,
        ..HttpLimits::default()
    }
}

/// Paths of the endpoints.
fn paths(config: &Http) -> HttpOptions {
    let mut options = HttpOptions::default();
    if !config.old_sse {
        options.old_sse_paths.clear();
    }
    options
}

fn without_port(authority: &str) -> String {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name.to_owned(),
        _ => authority.to_owned(),
    }
}

/// Arguments that a tool's schema wants repeated in headers.
struct MirroredParams {
    mcp: Arc<ServedMcpServer>,
}

impl HeaderParams for MirroredParams {
    fn check(
        &self,
        principal: &Principal,
        tool: &str,
        params: &RawJson,
        headers: &HeaderMap,
    ) -> Result<(), String> {
        let values = |name: &str| {
            let values = headers.get_all(name).iter();
            values.map(HeaderValue::as_bytes).collect()
        };
        self.mcp
            .compare_headers(principal, tool, params, values)
            .map_err(|differs| differs.to_string())
    }
}

/// Routes for operators and their tools, beside the endpoint.
struct Routes {
    mcp: Arc<ServedMcpServer>,
    lifecycle: Lifecycle,
    /// Source of the public answer that says where tokens are issued.
    identification: Option<Arc<Identification>>,
    numbers: Numbers,
    /// The roles that may read metrics and the details of health.
    watchers: HashSet<String>,
    /// Operator routes, where they are on.
    administration: Option<Administration>,
    /// Catalogue of published servers, where it is served.
    shelf: Option<Arc<Shelf>>,
    /// Pages on which clients' people give credentials, where there are any.
    sign_in: Option<Arc<SignInPages>>,
    /// The dialect of document 004, where it is spoken.
    host: Option<HostRoutes>,
}

impl SideRoutes for Routes {
    fn max_body(&self, parts: &Parts) -> usize {
        let is_form = self.sign_in.is_some() && parts.method == Method::POST;
        match &self.host {
            Some(host) if host_dialect::is_path(parts.uri.path()) => host.max_body(parts),
            _ if is_form && sign_in::is_path(parts.uri.path()) => sign_in::MAX_FORM,
            _ => 0,
        }
    }

    fn handle<'a>(&'a self, request: SideRequest<'a>) -> Option<SideResponse<'a>> {
        let parts = request.parts();
        let identification = self.identification.as_ref();
        if let Some(response) =
            identification.and_then(|it| it.well_known(&parts.method, parts.uri.path()))
        {
            return Some(Box::pin(std::future::ready(side(response))));
        }
        let response = match parts.uri.path() {
            "/health" | "/health/ready" | "/metrics" => {
                return Some(Box::pin(async move {
                    side(unsaid(self.watched(request).await))
                }));
            }
            "/health/live" => health::alive(),
            path if is_of_operators(path) => {
                let administration = self.administration.as_ref()?;
                return Some(Box::pin(async move {
                    side(unsaid(administration.handle(request).await))
                }));
            }
            path if sign_in::is_path(path) => {
                let pages = Arc::clone(self.sign_in.as_ref()?);
                return Some(Box::pin(async move {
                    side(unsaid(pages.handle(request).await))
                }));
            }
            path if host_dialect::is_path(path) => {
                let host = self.host.as_ref()?;
                return Some(Box::pin(host.handle(request)));
            }
            path if registry::api::is_path(path) => {
                let shelf = Arc::clone(self.shelf.as_ref()?);
                return Some(Box::pin(async move {
                    side(unsaid(shelf.handle(request).await))
                }));
            }
            path if let Some(response) = self.no_issuer(&parts.method, path) => {
                return Some(Box::pin(std::future::ready(side(response))));
            }
            path => {
                let name = resources::named_by(path)?;
                return Some(Box::pin(async move {
                    side(resources::read(&self.mcp, request, name).await)
                }));
            }
        };
        let response = match parts.method {
            Method::GET => response,
            Method::HEAD => response.map(|_| Bytes::new()),
            _ => method_not_allowed(),
        };
        Some(Box::pin(std::future::ready(side(response))))
    }
}

/// An answer to an operator without secrets that the process knows.
fn unsaid(response: PlainResponse) -> PlainResponse {
    if !redaction::knows_any() {
        return response;
    }
    response.map(|body| {
        let Ok(text) = std::str::from_utf8(&body) else {
            return body;
        };
        let without = match text.starts_with(['{', '[']) {
            true => redaction::without_known_json(text),
            false => redaction::without_known(text),
        };
        match without {
            Cow::Borrowed(_) => body,
            Cow::Owned(without) => without.into(),
        }
    })
}

/// Paths at which clients look for an authorization server if none is announced.
const OF_ISSUERS: [&str; 3] = ["/register", "/authorize", "/token"];

impl Routes {
    /// The answer to a client that takes this server for an issuer of tokens, in the form of an
    /// issuer's errors (RFC 6749 §5.2).
    fn no_issuer(&self, method: &Method, path: &str) -> Option<PlainResponse> {
        if !OF_ISSUERS.contains(&path) {
            return None;
        }
        let advice = match &self.identification {
            Some(identification) => identification.advice(),
            None => "no credentials are needed",
        };
        let why = format!("this server issues no tokens and registers no clients; {advice}");
        let body = object!({ "error": "access_denied", "error_description": why }).to_string();
        let mut response = json(StatusCode::NOT_FOUND, body.into_bytes());
        if method == Method::HEAD {
            *response.body_mut() = Bytes::new();
        }
        Some(response)
    }

    /// Returns whether the sender of a request may read metrics and the details of health. Where
    /// clients do not authenticate, every one may, since it can call tools as well.
    async fn may_watch(&self, request: SideRequest<'_>) -> Authorized {
        let administration = self.administration.as_ref();
        if self.identification.is_none() || administration.is_some_and(|it| it.has_token(request)) {
            return Ok(());
        }
        let principal = request.principal().await;
        let principal = principal.map_err(|response| match administration {
            Some(administration) => administration.refused(request, response),
            None => response,
        })?;
        let roles = principal.roles();
        if roles.iter().any(|role| self.watchers.contains(&**role)) {
            return Ok(());
        }
        let why = "a role is needed that identity.metrics_roles names";
        Err(Box::new(refusal(StatusCode::FORBIDDEN, why)))
    }

    /// Answer to a request for health or metrics.
    async fn watched(&self, request: SideRequest<'_>) -> PlainResponse {
        let parts = request.parts();
        if !matches!(parts.method, Method::GET | Method::HEAD) {
            return method_not_allowed();
        }
        let response = if parts.uri.path() == "/metrics" {
            match self.may_watch(request).await {
                Ok(()) => self.numbers.answer().await,
                Err(refused) => *refused,
            }
        } else {
            let is_draining = parts.uri.path() == "/health/ready" && self.lifecycle.has_begun();
            // Whoever proves nothing is told all the same, but less.
            let in_full = self.identification.is_none()
                || (shows_something(request) && self.may_watch(request).await.is_ok());
            let mut told = self.mcp.health();
            told.components
                .extend(self.host.as_ref().map(HostRoutes::state));
            if told.components.iter().any(|it| !it.ok) {
                told.status = "degraded";
            }
            health::told(&told, is_draining, in_full)
        };
        match parts.method {
            Method::HEAD => response.map(|_| Bytes::new()),
            _ => response,
        }
    }
}

/// Permission to read, or the response that refuses.
type Authorized = Result<(), Box<PlainResponse>>;

/// Returns true if a request carries anything that could authenticate its sender.
fn shows_something(request: SideRequest<'_>) -> bool {
    let headers = &request.parts().headers;
    headers.contains_key(header::AUTHORIZATION)
        || headers.contains_key("x-api-key")
        || request.peer().certificate().is_some()
}

fn json(status: StatusCode, body: Vec<u8>) -> PlainResponse {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

fn method_not_allowed() -> PlainResponse {
    let mut response = json(
        StatusCode::METHOD_NOT_ALLOWED,
        b"{\"error\":\"use GET\"}".to_vec(),
    );
    response
        .headers_mut()
        .insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_of_the_file_are_those_of_the_transport() {
        let (ours, theirs) = (Http::default(), HttpOptions::default());
        assert_eq!(
            Duration::from_secs(ours.limits.stream_keep_alive_seconds),
            theirs.keep_alive
        );
        let limits = limits(&ours);
        assert_eq!(format!("{limits:?}"), format!("{:?}", theirs.limits));
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).ok();
        assert_eq!(
            Some(ours.stream_retry_milliseconds),
            milliseconds(theirs.retry)
        );
        assert_eq!(
            Some(ours.stream_after_milliseconds),
            milliseconds(theirs.begin_stream_after)
        );
        assert_eq!(paths(&ours).old_sse_paths, theirs.old_sse_paths);
        assert_eq!(
            paths(&Http {
                old_sse: false,
                ..ours
            })
            .old_sse_paths,
            Vec::<String>::new()
        );
    }
}
