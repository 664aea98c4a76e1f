//! Where launchers and workers find the server.

use super::{
    StartError,
    frames::{FrameReader, Hello, PROTOCOL, Role},
};
use rustix::process::Pid;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    net::{
        UnixListener, UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::oneshot,
    task::{JoinHandle, JoinSet},
};

/// How long something that connects may take to say who it is.
const HELLO: Duration = Duration::from_secs(10);
/// How many may be about to say who they are.
const MAX_STRANGERS: usize = 128;

/// A socket in the private directory, at which one launcher and its workers arrive.
#[derive(Debug)]
pub(super) struct Meeting {
    path: PathBuf,
    expected: Arc<Mutex<HashMap<String, Guest>>>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Guest {
    role: Role,
    worker: Option<u64>,
    arrive: oneshot::Sender<Greeting>,
}

/// The connection of somebody who was expected.
#[derive(Debug)]
pub(super) struct Greeting {
    pub(super) reader: FrameReader<OwnedReadHalf>,
    pub(super) writer: OwnedWriteHalf,
    /// Who is at the other end, in the kernel's words where it says so.
    pub(super) pid: Option<Pid>,
}

/// Somebody who is expected until this is dropped.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) nonce: String,
    expected: Arc<Mutex<HashMap<String, Guest>>>,
    arrives: oneshot::Receiver<Greeting>,
}

impl Meeting {
    pub(super) fn open(path: PathBuf) -> Result<Self, StartError> {
        let listener = UnixListener::bind(&path).map_err(StartError::Prepare)?;
        let expected = Arc::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&expected)));
        Ok(Self {
            path,
            expected,
            accepting,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Expects a process that will say this of itself, and a nonce that nobody else knows.
    pub(super) fn expect(&self, role: Role, worker: Option<u64>) -> Expected {
        let nonce = uuid::Uuid::new_v4().simple().to_string();
        let (arrive, arrives) = oneshot::channel();
        let guest = Guest {
            role,
            worker,
            arrive,
        };
        lock(&self.expected).insert(nonce.clone(), guest);
        Expected {
            nonce,
            expected: Arc::clone(&self.expected),
            arrives,
        }
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.accepting.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Expected {
    /// Waits, for ever if need be.
    pub(super) async fn arrives(&mut self) -> Greeting {
        match (&mut self.arrives).await {
            Ok(greeting) => greeting,
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Expected {
    fn drop(&mut self) {
        lock(&self.expected).remove(&self.nonce);
    }
}

fn lock(expected: &Mutex<HashMap<String, Guest>>) -> MutexGuard<'_, HashMap<String, Guest>> {
    expected.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: UnixListener, expected: Arc<Mutex<HashMap<String, Guest>>>) {
    let mut strangers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if strangers.len() < MAX_STRANGERS => match accepted {
                Ok((stream, _)) => {
                    let expected = Arc::clone(&expected);
                    strangers.spawn(tokio::time::timeout(HELLO, greet(stream, expected)));
                }
                Err(error) => {
                    // Such as no more file descriptors, which may pass.
                    tracing::warn!(%error, "a python process could not connect");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(greeted) = strangers.join_next() => {
                if !matches!(greeted, Ok(Ok(true))) {
                    tracing::warn!("a stranger connected to the workers' socket");
                }
            }
        }
    }
}

/// Whether it was somebody who is expected.
async fn greet(stream: UnixStream, expected: Arc<Mutex<HashMap<String, Guest>>>) -> bool {
    // The kernel knows the process better than what it says about itself.
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let (reader, writer) = stream.into_split();
    let mut reader = FrameReader::new(reader);
    let Ok(Some(frame)) = reader.next().await else {
        return false;
    };
    let Ok(hello) = serde_json::from_slice::<Hello>(&frame) else {
        return false;
    };
    if hello.protocol != PROTOCOL {
        return false;
    }
    let guest = {
        let mut expected = lock(&expected);
        let is_he = |guest: &Guest| guest.role == hello.role && guest.worker == hello.worker;
        if !expected.get(&hello.nonce).is_some_and(is_he) {
            return false;
        }
        expected.remove(&hello.nonce)
    };
    let pid = Pid::from_raw(peer.unwrap_or(hello.pid)).filter(|pid| pid.as_raw_nonzero().get() > 1);
    let greeting = Greeting {
        reader,
        writer,
        pid,
    };
    guest.is_some_and(|guest| guest.arrive.send(greeting).is_ok())
}
