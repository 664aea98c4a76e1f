use crate::{HttpOptions, HttpServer};
use mcp_protocol::model::{ClientRequest, ServerResult};
use mcp_service::{Engine, McpError, Service};
use socket2::{Domain, Protocol, Socket, Type};
use std::{
    fmt, io,
    net::{SocketAddr, TcpListener as StdListener},
    num::NonZeroUsize,
    sync::Arc,
    thread::{self, JoinHandle},
};
use tokio::{
    net::TcpListener,
    runtime,
    sync::{oneshot, watch},
};

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// The system gave no thread, or none of what a runtime needs.
    #[error("cannot start a thread to serve on")]
    Thread(#[source] io::Error),
}

/// A server on threads of its own. Dropping it stops it, without waiting.
#[derive(Debug)]
#[must_use = "dropping it stops the server"]
pub struct RunningServer<S> {
    server: HttpServer<S>,
    address: SocketAddr,
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
/// Port 0 is any free port, the same on all threads; see [`RunningServer::address`].
///
/// # Errors
///
/// [`StartError`], and nothing runs.
pub fn serve_on_threads<S>(
    engine: Arc<Engine<S>>,
    options: HttpOptions,
    address: SocketAddr,
    threads: NonZeroUsize,
) -> Result<RunningServer<S>, StartError>
where
    S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static,
{
    let (address, listeners) =
        listeners(address, threads).map_err(|source| StartError::Listen { address, source })?;
    let mut running = RunningServer {
        server: HttpServer::new(engine, options),
        address,
        stop: watch::Sender::new(false),
        workers: Vec::with_capacity(listeners.len()),
    };
    for (index, listener) in listeners.into_iter().enumerate() {
        // Dropping what runs by then stops it.
        let worker = Worker::start(index, listener, running.server.clone(), &running.stop)
            .map_err(StartError::Thread)?;
        running.workers.push(worker);
    }
    Ok(running)
}

impl<S> RunningServer<S> {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoint that is served.
    pub fn server(&self) -> &HttpServer<S> {
        &self.server
    }

    /// Tells it to stop, gracefully, and returns at once.
    pub fn stop(&self) {
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
        self.stop.send_replace(true);
    }
}

impl Worker {
    fn start<S>(
        index: usize,
        listener: StdListener,
        server: HttpServer<S>,
        stop: &watch::Sender<bool>,
    ) -> io::Result<Self>
    where
        S: Service<ClientRequest, Response = ServerResult, Error = McpError> + 'static,
    {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(listener)?
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
                runtime.block_on(server.serve(listener, stopped));
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

/// Connections that wait to be accepted; more are for the client to try again.
const BACKLOG: i32 = 1024;

/// One listener per thread, all on the same port.
fn listeners(
    address: SocketAddr,
    threads: NonZeroUsize,
) -> io::Result<(SocketAddr, Vec<StdListener>)> {
    if !SHARES_PORTS || threads.get() == 1 {
        let listener = listen(address, false)?;
        let address = listener.local_addr()?;
        let mut listeners = vec![listener];
        for _ in 1..threads.get() {
            listeners.push(listeners[0].try_clone()?);
        }
        return Ok((address, listeners));
    }
    // Sockets that share a port share it with any program of the same user: ask first whether
    // somebody has it. Two servers on one port would look like one that forgets.
    drop(socket(address, false)?);
    let first = listen(address, true)?;
    let address = first.local_addr()?;
    let mut listeners = vec![first];
    for _ in 1..threads.get() {
        listeners.push(listen(address, true)?);
    }
    Ok((address, listeners))
}

/// Elsewhere such sockets either do not exist or do not share the work; threads then take turns at
/// one socket.
const SHARES_PORTS: bool = cfg!(target_os = "linux");

fn listen(address: SocketAddr, shared: bool) -> io::Result<StdListener> {
    let socket = socket(address, shared)?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn socket(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    // On Windows this would let others take the port.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    #[cfg(target_os = "linux")]
    socket.set_reuse_port(shared)?;
    #[cfg(not(target_os = "linux"))]
    let _ = shared;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_listen_on_one_port_and_nobody_else() {
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        for threads in [1, 3] {
            let threads = NonZeroUsize::new(threads).unwrap();
            let (address, found) = listeners(any, threads).unwrap();
            assert_ne!(address.port(), 0);
            assert_eq!(found.len(), threads.get());
            for listener in &found {
                assert_eq!(listener.local_addr().unwrap(), address);
            }
            let again = listeners(address, threads).unwrap_err();
            assert_eq!(again.kind(), io::ErrorKind::AddrInUse);
        }
    }
}
