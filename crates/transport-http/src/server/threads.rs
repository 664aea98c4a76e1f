//! One runtime and listener for each core.

use crate::{
    listen::{self, Bound, Listen, SocketFile, StartError},
    options::HttpOptions,
    server::HttpServer,
};
use mcp_service::{Engine, McpService};
use std::{
    fmt, io,
    net::SocketAddr,
    num::NonZeroUsize,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
};
use tokio::{
    runtime,
    sync::{oneshot, watch},
};

/// A server on threads of its own. Dropping it stops it, without waiting.
#[derive(Debug)]
#[must_use = "dropping it stops the server"]
pub struct RunningServer<S> {
    server: HttpServer<S>,
    address: Option<SocketAddr>,
    file: Option<SocketFile>,
    stop: watch::Sender<bool>,
    workers: Vec<Worker>,
}

struct Worker {
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

/// Serves an endpoint on `threads` threads, each with a runtime and a listener of its own: requests
/// never move between threads, so no scheduler stands between a socket and its handler. Whatever
/// keeps such a thread busy keeps its connections waiting, so handlers that block belong elsewhere.
///
/// Where to listen is an address, or more with [`Listen`]. Port 0 is any free port, the same on all
/// threads; see [`RunningServer::address`].
///
/// # Errors
///
/// [`StartError`], and nothing runs.
pub fn serve_on_threads<S>(
    engine: Arc<Engine<S>>,
    options: HttpOptions,
    listen: impl Into<Listen>,
    threads: NonZeroUsize,
) -> Result<RunningServer<S>, StartError>
where
    S: McpService,
{
    let places = listen::bind(&listen.into(), threads)?;
    let mut running = RunningServer {
        server: HttpServer::new(engine, options),
        address: places.tcp,
        file: places.file,
        stop: watch::Sender::new(false),
        workers: Vec::with_capacity(places.bound.len()),
    };
    for (index, bound) in places.bound.into_iter().enumerate() {
        // Dropping what runs by then stops it.
        let worker = Worker::start(index, bound, running.server.clone(), &running.stop)
            .map_err(StartError::Thread)?;
        running.workers.push(worker);
    }
    Ok(running)
}

impl<S> RunningServer<S> {
    /// Address on the network; port 0 of no address in particular, if it does not listen there.
    pub fn address(&self) -> SocketAddr {
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        self.address.unwrap_or(nowhere)
    }

    /// The Unix socket it listens on.
    pub fn unix_socket(&self) -> Option<&Path> {
        self.file.as_ref().map(SocketFile::path)
    }

    /// The endpoint that is served.
    pub fn server(&self) -> &HttpServer<S> {
        &self.server
    }

    /// Tells it to stop, gracefully, and returns at once. Its Unix socket makes room for that of
    /// another server.
    pub fn stop(&self) {
        if let Some(file) = &self.file {
            file.remove();
        }
        self.stop.send_replace(true);
    }

    /// Waits until it has stopped, which it does when told to.
    pub async fn stopped(mut self) {
        for worker in std::mem::take(&mut self.workers) {
            // An error means that it ended without saying so: it panicked.
            if worker.ended.await.is_err() {
                tracing::error!("a thread of the HTTP server ended badly");
            }
            // It has nothing left to do but to end.
            let _ = worker.thread.join();
        }
    }
}

impl<S> Drop for RunningServer<S> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Worker {
    fn start<S>(
        index: usize,
        bound: Bound,
        server: HttpServer<S>,
        stop: &watch::Sender<bool>,
    ) -> io::Result<Self>
    where
        S: McpService,
    {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listeners = {
            let _entered = runtime.enter();
            bound.into_listeners()?
        };
        let mut stop = stop.subscribe();
        let (end, ended) = oneshot::channel();
        let thread = thread::Builder::new()
            .name(format!("http-{index}"))
            .spawn(move || {
                let stopped = async move {
                    // An error means that nobody is left to say it.
                    let _ = stop.wait_for(|stop| *stop).await;
                };
                runtime.block_on(server.serve_all(listeners, stopped));
                // Whether somebody waits for it or not.
                let _ = end.send(());
            })?;
        Ok(Self { ended, thread })
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Worker")
            .field(&self.thread.thread().name())
            .finish()
    }
}
