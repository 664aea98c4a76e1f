//! Addresses and Unix sockets that a server listens on.

pub(crate) mod accept;

use socket2::{Domain, Protocol, Socket, Type};
use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};
use tokio::net::TcpListener;

#[cfg(unix)]
use std::os::unix::net::UnixListener as StdUnixListener;
#[cfg(unix)]
use tokio::net::UnixListener;

/// Places to listen on: the network, a Unix socket, or both. Without any, no request is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// An address of this machine. Port 0 is any free port.
    pub tcp: Option<SocketAddr>,
    /// A Unix socket. Not on other systems.
    pub unix: Option<UnixSocket>,
}

/// A Unix socket to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// The file, which is made. One that a server has left that is gone is replaced; anything else at
    /// this place is an error.
    pub path: PathBuf,
    /// Permissions of the socket, which decide who may connect: 0o600 is the same user alone.
    pub mode: u32,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Self {
        Self {
            tcp: Some(address),
            unix: None,
        }
    }
}

/// Reason why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The Unix socket cannot be had.
    #[error("cannot listen on {}", path.display())]
    Unix {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The system gave no thread, or none of what a runtime needs.
    #[error("cannot start a thread to serve on")]
    Thread(#[source] io::Error),
}

/// Sockets that one thread listens on, before it has a runtime.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    tcp: Option<StdTcpListener>,
    #[cfg(unix)]
    unix: Option<StdUnixListener>,
}

/// Sockets that one thread listens on.
#[derive(Debug)]
pub(crate) struct Listeners {
    pub(crate) tcp: Option<TcpListener>,
    #[cfg(unix)]
    pub(crate) unix: Option<UnixListener>,
}

impl Bound {
    /// To be called inside of a runtime.
    pub(crate) fn into_listeners(self) -> io::Result<Listeners> {
        Ok(Listeners {
            tcp: self.tcp.map(TcpListener::from_std).transpose()?,
            #[cfg(unix)]
            unix: self.unix.map(UnixListener::from_std).transpose()?,
        })
    }
}

/// The file of a Unix socket, which is removed when this is dropped, if not before.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    identity: Option<(u64, u64)>,
    is_removed: AtomicBool,
}

impl SocketFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes it once and for all. To be called while the server still listens: afterwards another
    /// server may take the place, and its file may even get the identity of this one.
    pub(crate) fn remove(&self) {
        if self.is_removed.swap(true, Ordering::AcqRel) {
            return;
        }
        // Unless somebody has put another one in its place.
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Places that a server listens on.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) tcp: Option<SocketAddr>,
    pub(crate) file: Option<SocketFile>,
    /// One for each thread.
    pub(crate) bound: Vec<Bound>,
}

/// Binds everything, once per thread.
pub(crate) fn bind(listen: &Listen, threads: NonZeroUsize) -> Result<Places, StartError> {
    let mut bound: Vec<Bound> = (0..threads.get()).map(|_| Bound::default()).collect();
    let mut tcp = None;
    if let Some(address) = listen.tcp {
        let (address, listeners) =
            listeners(address, threads).map_err(|source| StartError::Listen { address, source })?;
        for (bound, listener) in bound.iter_mut().zip(listeners) {
            bound.tcp = Some(listener);
        }
        tcp = Some(address);
    }
    let mut file = None;
    if let Some(socket) = &listen.unix {
        file = Some(
            bind_unix(socket, &mut bound).map_err(|source| StartError::Unix {
                path: socket.path.clone(),
                source,
            })?,
        );
    }
    Ok(Places { tcp, file, bound })
}

#[cfg(unix)]
fn bind_unix(socket: &UnixSocket, bound: &mut [Bound]) -> io::Result<SocketFile> {
    use std::os::unix::fs::PermissionsExt;

    remove_stale(&socket.path)?;
    let listener = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    listener.bind(&socket2::SockAddr::unix(&socket.path)?)?;
    let file = SocketFile {
        path: socket.path.clone(),
        identity: identity(&socket.path),
        is_removed: AtomicBool::new(false),
    };
    // Nobody can connect before we listen, so nobody does who may not.
    std::fs::set_permissions(&socket.path, PermissionsExt::from_mode(socket.mode & 0o777))?;
    listener.listen(BACKLOG)?;
    listener.set_nonblocking(true)?;
    let listener: StdUnixListener = listener.into();
    for bound in bound {
        bound.unix = Some(listener.try_clone()?);
    }
    Ok(file)
}

#[cfg(not(unix))]
fn bind_unix(_: &UnixSocket, _: &mut [Bound]) -> io::Result<SocketFile> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

/// Removes a socket at `path` on which no process listens.
#[cfg(unix)]
fn remove_stale(path: &Path) -> io::Result<()> {
    use std::os::unix::{fs::FileTypeExt, net::UnixStream};

    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        let error = "there is a file that is no socket";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, error));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::Error::from(io::ErrorKind::AddrInUse)),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
        }
        Err(error) => Err(error),
    }
}

/// Identity of the file at `path`.
#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;

    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

/// Connections that wait to be accepted; more are for the client to try again.
const BACKLOG: i32 = 1024;

/// One listener per thread, all on the same port.
fn listeners(
    address: SocketAddr,
    threads: NonZeroUsize,
) -> io::Result<(SocketAddr, Vec<StdTcpListener>)> {
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

fn listen(address: SocketAddr, shared: bool) -> io::Result<StdTcpListener> {
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

    #[cfg(unix)]
    #[test]
    fn a_socket_that_was_left_is_replaced_and_nothing_else() {
        use std::os::unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        };

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listen = Listen {
            tcp: None,
            unix: Some(UnixSocket {
                path: path.clone(),
                mode: 0o600,
            }),
        };
        let bind = || bind(&listen, NonZeroUsize::MIN);
        let kind = |result| match result {
            Err(StartError::Unix { source, .. }) => source.kind(),
            other => panic!("{other:?}"),
        };
        drop(UnixListener::bind(&path).unwrap());
        let places = bind().expect("nobody listens any more");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        UnixStream::connect(&path).unwrap();
        assert_eq!(kind(bind()), io::ErrorKind::AddrInUse);
        drop(places);
        assert!(!path.exists(), "who made it removes it");

        let places = bind().unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "somebody's").unwrap();
        drop(places);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "somebody's");
        assert_eq!(kind(bind()), io::ErrorKind::AlreadyExists);
    }
}
