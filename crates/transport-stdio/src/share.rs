//! The socket by which processes of one user share a server.
//!
//! One process owns the server: it holds the lock of the file beside the socket, and listens. The
//! others [`relay`](crate::relay) their clients' lines to it. A relay begins with one line, the
//! greeting, whose content is the program's; the owner answers it with `serving` or with `refused` and a
//! reason, and from then on lines are messages. Before the greeting the owner has sent `present`, from a
//! thread that does nothing else: an owner that is stopped is told from one that is busy.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::{
            fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt, PermissionsExt},
            net,
        },
    },
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

/// Longest silence of an owner.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// Longest time for an owner to start.
const STARTING: Duration = Duration::from_secs(180);
const RETRY: Duration = Duration::from_millis(50);
/// Time that a silent owner has once more before it is given up: if it was stopped together with this process,
/// its answer is on its way.
const ONCE_MORE: Duration = Duration::from_secs(1);
/// A longer greeting is refused.
const MAX_GREETING: usize = 16 * 1024 * 1024;
/// A longer reason is cut.
const MAX_REPLY: usize = 16 * 1024;
/// The longest path of a socket that every system takes.
const MAX_PATH: usize = 100;

const PRESENT: &str = "present";
const SERVING: &str = "serving";
const REFUSED: &str = "refused";

/// The place where the processes of one user find the owner of their server.
#[derive(Clone, Debug)]
pub struct SharedSocket {
    path: PathBuf,
}

/// A process that is to serve, or to relay.
#[derive(Debug)]
pub enum Joined {
    /// Ownership of the server by this process.
    Owner(Ownership),
    /// Another one does, and serves what is sent over this stream.
    Relayed(UnixStream),
}

/// The server of another process cannot be shared.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The lock file, or its directory, cannot be made or opened.
    #[error("{} cannot be opened", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The owner gives no sign of life.
    #[error(
        "the server of {holder} has the ledger and does not answer on {}; end that process, or let it \
         continue if it is stopped",
        path.display()
    )]
    Silent {
        /// Process that holds the lock.
        holder: String,
        /// The socket.
        path: PathBuf,
    },
    /// The owner does not serve this process.
    #[error("{0}")]
    Refused(String),
    /// The socket belongs to another user.
    #[error("the socket {} belongs to another user", .0.display())]
    Foreign(PathBuf),
}

/// The right to own the server, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Ownership {
    path: PathBuf,
    listener: Option<net::UnixListener>,
    listens: bool,
    _lock: File,
}

/// A process that has greeted the owner and waits to be served.
#[derive(Debug)]
pub struct Guest {
    stream: net::UnixStream,
    greeting: Vec<u8>,
    process: Option<i32>,
}

/// The end of what a guest sends.
#[derive(Debug)]
pub struct GuestInput(net::UnixStream);

impl SharedSocket {
    /// The socket at `path`, and a lock file beside it, named like it with `.lock` at the end.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Becomes the owner if there is none, else connects to it.
    ///
    /// `greeting` is one line. An owner that is still starting, or ending, is waited for.
    ///
    /// # Errors
    ///
    /// [`JoinError`].
    pub async fn join(&self, greeting: &[u8]) -> Result<Joined, JoinError> {
        let mut seen = Instant::now();
        loop {
            let holder = match self.claim()? {
                Ok(ownership) => return Ok(Joined::Owner(ownership)),
                Err(holder) => holder,
            };
            let silent = || JoinError::Silent {
                holder,
                path: self.path.clone(),
            };
            match self.reach(greeting).await {
                Reached::Serving(stream) => return Ok(Joined::Relayed(stream)),
                Reached::Refused(why) => return Err(JoinError::Refused(why)),
                Reached::Foreign => return Err(JoinError::Foreign(self.path.clone())),
                Reached::Silent => return Err(silent()),
                Reached::Ended => seen = Instant::now(),
                Reached::Nobody if PATIENCE < seen.elapsed() => return Err(silent()),
                Reached::Nobody => {}
            }
            sleep(RETRY).await;
        }
    }

    /// Takes the ownership, or names its holder.
    fn claim(&self) -> Result<Result<Ownership, String>, JoinError> {
        let mut path = self.path.clone().into_os_string();
        path.push(".lock");
        let path = PathBuf::from(path);
        let failed = |source| JoinError::File {
            path: path.clone(),
            source,
        };
        if let Some(directory) = path.parent() {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(directory);
            made.map_err(failed)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let mut lock = options.open(&path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut said = String::new();
                let read = lock.take(256).read_to_string(&mut said);
                let is_said = read.is_ok() && !said.trim().is_empty();
                return Ok(Err(match is_said {
                    true => said.trim().to_owned(),
                    false => "an unknown process".to_owned(),
                }));
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        lock.set_len(0).map_err(failed)?;
        writeln!(lock, "process {}", std::process::id()).map_err(failed)?;
        // Without a socket there is a server still, though nobody shares it.
        let listener = listen(&self.path).inspect_err(|error| {
            tracing::warn!(
                error = error as &dyn std::error::Error,
                path = %self.path.display(),
                "other clients with this configuration cannot share this server"
            );
        });
        Ok(Ok(Ownership {
            path: self.path.clone(),
            listens: listener.is_ok(),
            listener: listener.ok(),
            _lock: lock,
        }))
    }

    /// Waits until the owner says nothing on a new connection, where a busy one is heard at once. It is
    /// asked every ten seconds, first when as many have passed.
    pub(crate) async fn silence(&self) {
        loop {
            sleep(PATIENCE).await;
            // Without a listener the owner may be one that cannot share, or is ending.
            let Ok(mut stream) = connect(&self.path).await else {
                continue;
            };
            let mut said = pin!(reply(&mut stream));
            for patience in [PATIENCE, ONCE_MORE] {
                match timeout(patience, &mut said).await {
                    Ok(_) => break,
                    Err(_) if patience == ONCE_MORE => return,
                    Err(_) => {}
                }
            }
        }
    }

    async fn reach(&self, greeting: &[u8]) -> Reached {
        let Ok(mut stream) = connect(&self.path).await else {
            return Reached::Nobody;
        };
        match is_same_user(&stream) {
            Ok(true) => {}
            Ok(false) => return Reached::Foreign,
            Err(_) => return Reached::Nobody,
        }
        match timeout(PATIENCE, reply(&mut stream)).await {
            Err(_) => return Reached::Silent,
            Ok(Ok(line)) if line == PRESENT => {}
            Ok(_) => return Reached::Nobody,
        }
        let serving = async {
            stream.write_all(greeting).await?;
            stream.write_all(b"\n").await?;
            reply(&mut stream).await
        };
        match timeout(STARTING, serving).await {
            Err(_) => Reached::Silent,
            Ok(Ok(line)) if line == SERVING => Reached::Serving(stream),
            Ok(Ok(line)) => match line.strip_prefix(REFUSED) {
                Some(why) => Reached::Refused(why.trim().to_owned()),
                None => Reached::Ended,
            },
            Ok(Err(_)) => Reached::Ended,
        }
    }
}

enum Reached {
    Serving(UnixStream),
    Refused(String),
    Foreign,
    /// There is no listener.
    Nobody,
    /// The connection is there, and nothing comes of it.
    Silent,
    /// The owner is alive, and has hung up.
    Ended,
}

impl Ownership {
    /// The stream of processes that ask to be served; can be called once. Processes that come before
    /// the receiver takes them wait; those that come after the receiver was dropped are turned away,
    /// and try again.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn guests(&mut self) -> io::Result<mpsc::Receiver<Guest>> {
        let (sender, receiver) = mpsc::channel(16);
        let Some(listener) = self.listener.take() else {
            return Ok(receiver);
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        std::thread::Builder::new()
            .name("guests".to_owned())
            .spawn(move || runtime.block_on(greet_all(listener, sender)))?;
        Ok(receiver)
    }
}

impl Drop for Ownership {
    /// Takes the socket away while the lock is still held.
    fn drop(&mut self) {
        if self.listens {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Guest {
    /// The guest's greeting, without the end of its line.
    #[must_use]
    pub fn greeting(&self) -> &[u8] {
        &self.greeting
    }

    /// The number of the guest's process, where the system tells.
    #[must_use]
    pub fn process(&self) -> Option<i32> {
        self.process
    }

    /// Serves the guest: lines over the stream are messages from now on.
    ///
    /// # Errors
    ///
    /// When the guest has gone.
    pub async fn accept(self) -> io::Result<(UnixStream, GuestInput)> {
        let input = GuestInput(self.stream.try_clone()?);
        let mut stream = UnixStream::from_std(self.stream)?;
        stream.write_all(format!("{SERVING}\n").as_bytes()).await?;
        Ok((stream, input))
    }

    /// Does not serve the guest, and says why.
    ///
    /// # Errors
    ///
    /// When the guest has gone.
    pub async fn refuse(self, why: &str) -> io::Result<()> {
        let why: String = why.split_whitespace().collect::<Vec<_>>().join(" ");
        let end = why.floor_char_boundary(MAX_REPLY / 2);
        let mut stream = UnixStream::from_std(self.stream)?;
        let line = format!("{REFUSED} {}\n", &why[..end]);
        stream.write_all(line.as_bytes()).await
    }
}

impl GuestInput {
    /// Takes no more from the guest. What it has sent before can be read, and then the input has ended;
    /// what it sends from now on fails at its end, so that it knows which of its lines have arrived.
    pub fn end(&self) {
        // A guest that has gone sends nothing any more anyway.
        let _ = self.0.shutdown(std::net::Shutdown::Read);
    }
}

/// Greets guests for as long as the process lives.
async fn greet_all(listener: net::UnixListener, guests: mpsc::Sender<Guest>) {
    let made = listener
        .set_nonblocking(true)
        .and_then(|()| UnixListener::from_std(listener));
    let Ok(listener) = made.inspect_err(|error| {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            "other clients with this configuration cannot share this server"
        );
    }) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let guests = guests.clone();
                tokio::spawn(async move {
                    // One that goes before it is served is nobody's concern.
                    let _ = greet(stream, guests).await;
                });
            }
            // Too many open files, most often; some may be closed soon.
            Err(_) => sleep(RETRY).await,
        }
    }
}

async fn greet(mut stream: UnixStream, guests: mpsc::Sender<Guest>) -> io::Result<()> {
    if !is_same_user(&stream)? {
        tracing::warn!("a process of another user wanted to share this server");
        return Ok(());
    }
    stream.write_all(format!("{PRESENT}\n").as_bytes()).await?;
    let mut greeting = Vec::new();
    let reading = async {
        while greeting.last() != Some(&b'\n') {
            let is_too_long = MAX_GREETING < greeting.len();
            if is_too_long || stream.read_buf(&mut greeting).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
        }
        Ok(())
    };
    timeout(PATIENCE, reading).await??;
    greeting.pop();
    let guest = Guest {
        process: stream.peer_cred()?.pid(),
        stream: stream.into_std()?,
        greeting,
    };
    // A receiver that was dropped turns it away.
    let _ = guests.send(guest).await;
    Ok(())
}

/// One line of the owner's, without its end. Nothing beyond it is read.
async fn reply(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => return Ok(String::from_utf8_lossy(&line).into_owned()),
            _ if MAX_REPLY <= line.len() => return Err(io::ErrorKind::InvalidData.into()),
            byte => line.push(byte),
        }
    }
}

fn is_same_user(stream: &UnixStream) -> io::Result<bool> {
    // Who this process runs as is what the system says of a socket of its own.
    let (own, _) = UnixStream::pair()?;
    Ok(stream.peer_cred()?.uid() == own.peer_cred()?.uid())
}

/// Listens at `path`. The lock is held, so a socket that is there has no listener.
fn listen(path: &Path) -> io::Result<net::UnixListener> {
    match fs::symlink_metadata(path) {
        // Of an owner that was killed.
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
        Err(_) => {}
    }
    let (address, _directory) = address(path)?;
    let listener = net::UnixListener::bind(address)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn connect(path: &Path) -> io::Result<UnixStream> {
    let (address, _directory) = address(path)?;
    UnixStream::connect(address).await
}

/// A name of the socket that is short enough: by way of its directory, which must be open meanwhile, if
/// its own is not.
fn address(path: &Path) -> io::Result<(PathBuf, Option<File>)> {
    if path.as_os_str().len() <= MAX_PATH {
        return Ok((path.to_owned(), None));
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let directory = File::open(parent)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    Ok((short.join(name), Some(directory)))
}
