use crate::{
    HttpOptions, Peer,
    endpoint::{Caller, Endpoint, Listening, handle},
    guard::Guard,
    leftovers::Leftovers,
    sessions::Sessions,
    write_timeout::WriteTimeout,
};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use mcp_protocol::model::{ClientRequest, ServerResult};
use mcp_service::{Engine, McpError, Service};
use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

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
    S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static,
{
    HttpServer::new(engine, options)
        .serve(listener, shutdown)
        .await;
}

impl<S> HttpServer<S>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static,
{
    /// An endpoint over `engine`.
    pub fn new(engine: Arc<Engine<S>>, options: HttpOptions) -> Self {
        let sessions = Sessions::new(options.limits, options.keep_sessions.clone());
        sessions.restore(&engine);
        Self {
            endpoint: Arc::new(Endpoint {
                engine,
                options,
                sessions,
                connections: AtomicUsize::new(0),
                listeners: AtomicUsize::new(0),
            }),
        }
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.endpoint.connections.load(Ordering::Relaxed)
    }

    /// How many legacy sessions are open.
    pub fn sessions(&self) -> usize {
        self.endpoint.sessions.len()
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
        let endpoint = &self.endpoint;
        let bound = listener
            .local_addr()
            // Unknown is taken for reachable by nobody but us, which refuses most.
            .map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |address| address.ip());
        let listening = Arc::new(Listening {
            endpoint: Arc::clone(endpoint),
            guard: Guard::new(&endpoint.options, bound),
            leftovers: Leftovers::new(),
        });
        let listens = Counted::add(endpoint, |endpoint| &endpoint.listeners);
        let closing = watch::Sender::new(());
        let mut connections = JoinSet::new();
        let mut sweep = tokio::time::interval(endpoint.sessions.sweep_interval());
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => {
                        if let Some(open) = self.admit(&stream) {
                            let caller = Arc::new(Caller {
                                listening: Arc::clone(&listening),
                                peer: Peer::new(address),
                                activity: Arc::default(),
                            });
                            connections.spawn(connection(open, stream, caller, closing.subscribe()));
                        }
                    }
                    Err(error) => not_accepted(&error).await,
                },
                Some(_) = connections.join_next() => {}
                _ = sweep.tick() => endpoint.sessions.sweep(),
            }
        }
        drop(listener);
        endpoint.engine.close();
        endpoint.sessions.end_streams();
        closing.send_replace(());
        let drained = tokio::time::timeout(endpoint.options.drain, async {
            while connections.join_next().await.is_some() {}
            listening.leftovers.drain().await;
        });
        if drained.await.is_err() {
            tracing::warn!(
                connections = connections.len(),
                "requests were dropped that did not end in time"
            );
        }
        connections.shutdown().await;
        listening.leftovers.shut_down().await;
        drop(listens);
        if endpoint.listeners.load(Ordering::Acquire) == 0 {
            endpoint.sessions.shut_down();
        }
    }

    /// Counts a connection in, or turns it away.
    fn admit(&self, stream: &TcpStream) -> Option<Counted<S>> {
        let open = Counted::add(&self.endpoint, |endpoint| &endpoint.connections);
        let max = self.endpoint.options.limits.max_connections;
        if max < self.connections() {
            tracing::debug!(max, "a connection was refused");
            // As much of it as can be said without waiting.
            let _ = stream.try_write(
                b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\
                  connection: close\r\n\r\n",
            );
            return None;
        }
        // Answers are whole when they are written; waiting for more only delays them.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection is gone already");
            return None;
        }
        Some(open)
    }
}

/// One of what an endpoint counts, until it is dropped.
struct Counted<S> {
    endpoint: Arc<Endpoint<S>>,
    counter: fn(&Endpoint<S>) -> &AtomicUsize,
}

impl<S> Counted<S> {
    fn add(endpoint: &Arc<Endpoint<S>>, counter: fn(&Endpoint<S>) -> &AtomicUsize) -> Self {
        counter(endpoint).fetch_add(1, Ordering::AcqRel);
        Self {
            endpoint: Arc::clone(endpoint),
            counter,
        }
    }
}

impl<S> Drop for Counted<S> {
    fn drop(&mut self) {
        (self.counter)(&self.endpoint).fetch_sub(1, Ordering::AcqRel);
    }
}

/// Too many open files, most likely: they are not less at once.
async fn not_accepted(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be accepted");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn connection<S>(
    open: Counted<S>,
    stream: TcpStream,
    caller: Arc<Caller<S>>,
    mut closing: watch::Receiver<()>,
) where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static,
{
    let address: Option<SocketAddr> = caller.peer.address();
    let activity = Arc::clone(&caller.activity);
    let limits = caller.options().limits;
    let service = service_fn(move |request| handle(Arc::clone(&caller), request));
    let stream = WriteTimeout::new(stream, limits.write_timeout);
    // The time for a head is measured below, without a timer for each request.
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_header_size(limits.max_header_bytes)
        .max_buf_size(limits.max_header_bytes.max(MAX_BUFFER))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let mut look = pin!(tokio::time::sleep(limits.header_timeout));
    let (mut seen, mut is_closing) = (0, false);
    loop {
        tokio::select! {
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        ?address,
                        "a connection ended badly"
                    );
                }
                break;
            }
            () = &mut look => {
                if activity.has_stalled(&mut seen) {
                    tracing::debug!(?address, "an idle connection was closed");
                    break;
                }
                look.as_mut().reset(tokio::time::Instant::now() + limits.header_timeout);
            }
            _ = closing.changed(), if !is_closing => {
                is_closing = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
    drop(open);
}

/// The most bytes a connection buffers of either direction, unless a head may be longer. What is
/// sent in whole pieces does not count.
const MAX_BUFFER: usize = 64 * 1024;
