//! The HTTP server.

pub(crate) mod routes_alone;
pub(crate) mod threads;

use crate::{
    connection,
    limits::{
        accept_errors::Accepting,
        admission::{Admission, Admitted},
        body_memory::Held,
        stats::{HttpStats, Stats},
    },
    listen::{Listeners, accept::Arrived},
    options::HttpOptions,
    request::{
        connection_cx::{Endpoint, Listening},
        host_origin::Guard,
    },
    seams::persistence::SessionFollower,
    session::{
        detached::DetachedRequests,
        sessions::{SessionDesk, Sessions},
    },
};
use bytes::Bytes;
use http::HeaderValue;
use mcp_service::{Engine, LAST_ANSWERS, McpService, SessionState};
use std::{
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// Pause after a connection could not be accepted.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// An MCP endpoint, to be served on any number of listeners. Clones are the same endpoint: they
/// share sessions and bounds.
#[derive(Debug)]
pub struct HttpServer<S> {
    endpoint: Arc<Endpoint<S>>,
}

impl<S> Clone for HttpServer<S> {
    fn clone(&self) -> Self {
        Self {
            endpoint: Arc::clone(&self.endpoint),
        }
    }
}

/// Serves an endpoint on one listener until `shutdown`; see [`HttpServer::serve`].
pub async fn serve<S>(
    engine: Arc<Engine<S>>,
    options: HttpOptions,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) where
    S: McpService,
{
    HttpServer::new(engine, options)
        .serve(listener, shutdown)
        .await;
}

impl<S> HttpServer<S>
where
    S: McpService,
{
    /// An endpoint over `engine`.
    pub fn new(engine: Arc<Engine<S>>, options: HttpOptions) -> Self {
        let sessions = Sessions::new(options.limits, options.keep_sessions.clone());
        sessions.restore(&engine);
        Self {
            endpoint: Arc::new(Endpoint {
                engine,
                sessions,
                admission: Admission::new(options.limits),
                strict_transport_security: options.strict_transport_security.map(hsts),
                listeners: AtomicUsize::new(0),
                counts: Stats::new(),
                held: Held::default(),
                accepting: Accepting::default(),
                options,
            }),
        }
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.endpoint.admission.open()
    }

    /// Number of connections and handshakes refused so far, because there were too many.
    pub fn refused_connections(&self) -> u64 {
        self.endpoint.admission.refused()
    }

    /// Tells how it is doing whenever it is asked, without keeping it alive; nothing once it is gone.
    pub fn figures(&self) -> impl Fn() -> HttpStats + Clone + Send + Sync + 'static + use<S> {
        let endpoint = Arc::downgrade(&self.endpoint);
        move || {
            let Some(endpoint) = endpoint.upgrade() else {
                return HttpStats::default();
            };
            HttpStats {
                connections: endpoint.admission.open(),
                refused_connections: endpoint.admission.refused(),
                flooded_http2: endpoint.counts.http2_floods.count(),
                flooded_tls: endpoint.counts.tls_floods.count(),
                sessions: endpoint.sessions.len(),
                streams: endpoint.counts.streams(),
                responses: endpoint.counts.responses(),
            }
        }
    }

    /// Number of open legacy sessions.
    pub fn sessions(&self) -> usize {
        self.endpoint.sessions.len()
    }

    /// Access to its legacy sessions, for operators.
    pub fn session_desk(&self) -> SessionDesk {
        SessionDesk::of(&self.endpoint.sessions)
    }

    /// Follower of its legacy sessions, for what other processes do to them. Does not keep the server alive: without it
    /// there are none.
    pub fn session_follower(&self) -> impl SessionFollower + 'static + use<S> {
        Follower(Arc::downgrade(&self.endpoint))
    }

    /// Serves one listener on the current runtime, which may be a `current_thread` one.
    ///
    /// After `shutdown` nothing more is accepted, streams end with what they are owed, and requests
    /// in flight get [`HttpOptions::drain`] to end; then everything that is left is dropped, and
    /// this returns. The first listener to shut down closes the engine, for all of them.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future drops its connections at once.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) {
        let listeners = Listeners {
            tcp: Some(listener),
            #[cfg(unix)]
            unix: None,
        };
        self.serve_all(listeners, shutdown).await;
    }

    pub(crate) async fn serve_all(&self, listeners: Listeners, shutdown: impl Future<Output = ()>) {
        let endpoint = &self.endpoint;
        let detached = DetachedRequests::new();
        let listening = |bound| {
            Arc::new(Listening {
                endpoint: Arc::clone(endpoint),
                guard: Guard::new(&endpoint.options, bound),
                detached: Arc::clone(&detached),
            })
        };
        let tcp = listeners.tcp.as_ref();
        let tcp = tcp.and_then(|listener| listener.local_addr().ok());
        // Unknown is taken for reachable by nobody but us, which refuses most; a Unix socket is.
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let on_network = listening(tcp.map_or(here, |address| address.ip()));
        let on_socket = listening(here);
        let listens = Listens::begin(endpoint);
        let closing = watch::Sender::new(());
        let mut connections = JoinSet::new();
        let mut sweep = tokio::time::interval(endpoint.sessions.sweep_interval());
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listeners.accept() => match accepted {
                    Ok(arrived) => {
                        endpoint.accepting.look_now();
                        if let Some(admitted) = self.admit(&arrived) {
                            let listening = if arrived.is_local() { &on_socket } else { &on_network };
                            let listening = Arc::clone(listening);
                            let closing = closing.subscribe();
                            connections.spawn(connection::serve(admitted, arrived, listening, closing));
                        }
                    }
                    Err(error) => {
                        endpoint.accepting.failed(&error);
                        // Too many open files, most likely: they are not less at once.
                        tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                    }
                },
                Some(_) = connections.join_next() => {}
                _ = sweep.tick() => {
                    endpoint.sessions.sweep();
                    endpoint.accepting.look_now();
                }
            }
        }
        drop(listeners);
        endpoint.engine.close();
        endpoint.sessions.end_streams();
        closing.send_replace(());
        let mut is_drained = false;
        for time in [endpoint.options.drain, LAST_ANSWERS] {
            let drained = tokio::time::timeout(time, async {
                while connections.join_next().await.is_some() {}
                detached.drain().await;
            });
            is_drained = drained.await.is_ok();
            if is_drained {
                break;
            }
            endpoint.engine.give_up();
        }
        if !is_drained {
            tracing::warn!(
                connections = connections.len(),
                "requests were dropped that did not end in time"
            );
        }
        connections.shutdown().await;
        detached.shut_down().await;
        drop(listens);
        if endpoint.listeners.load(Ordering::Acquire) == 0 {
            endpoint.sessions.shut_down();
        }
    }

    /// Stats a connection in, or turns it away.
    fn admit(&self, arrived: &Arrived) -> Option<Admitted> {
        let options = &self.endpoint.options;
        let address = arrived.address().map(|address| address.ip());
        // A proxy has the connections of all its clients.
        let counted = address.filter(|_| !options.trusts(address));
        let admitted = self.endpoint.admission.admit(counted);
        if admitted.is_none() && (options.tls.is_none() || arrived.is_local()) {
            // As much of it as can be said without waiting.
            arrived.try_write(
                b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\
                  connection: close\r\n\r\n",
            );
        }
        admitted
    }
}

/// One of the listeners of an endpoint, until it is dropped.
struct Listens<S> {
    endpoint: Arc<Endpoint<S>>,
}

impl<S> Listens<S> {
    fn begin(endpoint: &Arc<Endpoint<S>>) -> Self {
        endpoint.listeners.fetch_add(1, Ordering::AcqRel);
        Self {
            endpoint: Arc::clone(endpoint),
        }
    }
}

impl<S> Drop for Listens<S> {
    fn drop(&mut self) {
        self.endpoint.listeners.fetch_sub(1, Ordering::AcqRel);
    }
}

fn hsts(age: Duration) -> HeaderValue {
    HeaderValue::try_from(format!("max-age={}", age.as_secs()))
        .expect("a number makes a value of a header")
}

/// The sessions of an endpoint that may be gone.
struct Follower<S>(Weak<Endpoint<S>>);

impl<S> SessionFollower for Follower<S>
where
    S: McpService,
{
    fn ids(&self) -> Vec<Arc<str>> {
        let endpoint = self.0.upgrade();
        endpoint
            .map(|it| it.sessions.kept_ids())
            .unwrap_or_default()
    }

    fn has(&self, id: &str) -> bool {
        let endpoint = self.0.upgrade();
        endpoint.is_some_and(|it| it.sessions.is_here(id))
    }

    fn changed(&self, id: &str, now: Option<SessionState>) {
        if let Some(it) = self.0.upgrade() {
            it.sessions.changed_elsewhere(&it.engine, id, now);
        }
    }

    fn said(&self, id: &str, message: &Bytes) {
        if let Some(it) = self.0.upgrade() {
            it.sessions.said_elsewhere(&it.engine, id, message);
        }
    }
}
