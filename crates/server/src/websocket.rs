//! WebSockets: connections that the HTTP server upgrades and the WebSocket transport serves.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode, header};
use mcp_service::Principal;
use transport_http::{PlainResponse, Upgrade, UpgradeRequest, Upgraded, refusal};
use transport_ws::{
    HandshakeError, Identify, Identifying, WebSocketOptions, WebSockets, handshake, serve,
};

use super::store::ServedMcpServer;
use config::Http;

/// Path at which they are opened.
pub(super) const PATH: &str = "/mcp/ws";

/// Opens WebSockets.
pub(super) struct WebSocketUpgrade {
    mcp: Arc<ServedMcpServer>,
    sockets: Arc<WebSockets>,
}

impl WebSocketUpgrade {
    /// `None` if there are to be none. The server as a whole waits for `drain` when it stops.
    pub(super) fn new(
        config: &Http,
        mcp: &Arc<ServedMcpServer>,
        drain: Duration,
    ) -> Option<Arc<Self>> {
        let max_control_frames_per_second = config.limits.max_control_frames_per_second;
        let config = config.websocket.enabled.then_some(&config.websocket)?;
        Some(Arc::new(Self {
            mcp: Arc::clone(mcp),
            sockets: WebSockets::new(WebSocketOptions {
                max_open: config.max_open,
                max_open_per_principal: config.max_open_per_client,
                ping: Duration::from_secs(config.ping_seconds),
                max_unfinished: config.max_unfinished_bytes,
                max_control_frames_per_second,
                drain,
            }),
        }))
    }

    pub(super) fn sockets(&self) -> &Arc<WebSockets> {
        &self.sockets
    }
}

impl Upgrade for WebSocketUpgrade {
    fn path(&self) -> &str {
        PATH
    }

    fn begin(&self, request: UpgradeRequest) -> Result<Upgraded, Box<PlainResponse>> {
        let headers = handshake(request.parts()).map_err(|error| Box::new(refused(error)))?;
        let place = self.sockets.enter(request.principal()).map_err(|full| {
            tracing::warn!(principal = %request.principal(), error = %full, "a WebSocket was refused");
            let mut response = refusal(StatusCode::SERVICE_UNAVAILABLE, full.to_string());
            let soon = HeaderValue::from_static("5");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
            Box::new(response)
        })?;
        let engine = Arc::clone(self.mcp.engine());
        let upgraded = Upgraded::new(
            HeaderValue::from_static("websocket"),
            move |socket, stopping| {
                Box::pin(async move {
                    let (principal, session) = (place.principal(), place.session());
                    tracing::debug!(%principal, %session, "a WebSocket was opened");
                    let client = StillThere(request);
                    let end = serve(&engine, &place, &client, socket, stopping.begun()).await;
                    tracing::debug!(%principal, %session, ?end, "a WebSocket has ended");
                })
            },
        );
        let with = |upgraded: Upgraded, (name, value)| upgraded.with_header(name, value);
        Ok(headers.into_iter().fold(upgraded, with))
    }
}

fn refused(error: HandshakeError) -> PlainResponse {
    let mut response = refusal(error.status(), error.to_string());
    response.headers_mut().extend(error.headers());
    response
}

/// Check that the client of a WebSocket is still authenticated, by the credentials of its upgrade
/// request.
struct StillThere(UpgradeRequest);

impl Identify for StillThere {
    fn identify(&self) -> Identifying<'_> {
        Box::pin(async {
            let principal: Result<Principal, _> = self.0.principal_now().await;
            principal.ok()
        })
    }
}
