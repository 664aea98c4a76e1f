//! Socket at which launchers and workers connect to the server.

use super::{
    StartError,
    frames::{FrameReader, Hello, PROTOCOL, Role},
};
use rustix::process::Pid;
use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
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

/// Time that a process that connects may take to identify itself.
const HELLO: Duration = Duration::from_secs(10);
/// Most connections that have not identified themselves.
const MAX_VISITORS: usize = 128;
/// Number of remembered nonces of processes that were given up before they connected.
const MAX_GIVEN_UP: usize = 64;

/// A socket in the private directory, at which one launcher and its workers arrive.
#[derive(Debug)]
pub(super) struct Meeting {
    path: PathBuf,
    guests: Arc<Mutex<Guests>>,
    accepting: JoinHandle<()>,
}

/// Processes that may connect, by nonce.
#[derive(Debug, Default)]
struct Guests {
    expected: HashMap<String, Guest>,
    /// Nonces that were expected and are no longer, such as that of a worker that was still
    /// starting when the server stopped: it may connect nevertheless, and is no stranger. The
    /// latest are at the end.
    given_up: VecDeque<String>,
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
    /// Process at the other end, where the kernel tells.
    pub(super) pid: Option<Pid>,
}

/// Expectation of a process, until this is dropped.
#[derive(Debug)]
pub(super) struct Expected {
    pub(super) nonce: String,
    guests: Arc<Mutex<Guests>>,
    arrives: oneshot::Receiver<Greeting>,
}

impl Meeting {
    pub(super) fn open(path: PathBuf) -> Result<Self, StartError> {
        let listener = UnixListener::bind(&path).map_err(StartError::Prepare)?;
        let guests = Arc::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&guests)));
        Ok(Self {
            path,
            guests,
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
        lock(&self.guests).expected.insert(nonce.clone(), guest);
        Expected {
            nonce,
            guests: Arc::clone(&self.guests),
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
        let mut guests = lock(&self.guests);
        if guests.expected.remove(&self.nonce).is_some() {
            if guests.given_up.len() == MAX_GIVEN_UP {
                guests.given_up.pop_front();
            }
            guests.given_up.push_back(self.nonce.clone());
        }
    }
}

fn lock(guests: &Mutex<Guests>) -> MutexGuard<'_, Guests> {
    guests.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kind of process that connected.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Visitor {
    Expected,
    /// Was expected once.
    Late,
    /// Hung up without a word, as a process does that is ended while it starts.
    Silent,
    Stranger,
}

async fn accept(listener: UnixListener, guests: Arc<Mutex<Guests>>) {
    let mut visitors = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if visitors.len() < MAX_VISITORS => match accepted {
                Ok((stream, _)) => {
                    let guests = Arc::clone(&guests);
                    visitors.spawn(tokio::time::timeout(HELLO, greet(stream, guests)));
                }
                Err(error) => {
                    // Such as no more file descriptors, which may pass.
                    tracing::warn!(%error, "a python process could not connect");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(greeted) = visitors.join_next() => match greeted {
                Ok(Ok(Visitor::Expected)) => {}
                Ok(Ok(visitor @ (Visitor::Late | Visitor::Silent))) => {
                    tracing::debug!(?visitor, "a python process connected in vain");
                }
                Ok(Ok(Visitor::Stranger) | Err(_)) | Err(_) => {
                    tracing::warn!("a stranger connected to the workers' socket");
                }
            }
        }
    }
}

async fn greet(stream: UnixStream, guests: Arc<Mutex<Guests>>) -> Visitor {
    // The kernel knows the process better than what it says about itself.
    let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
    let (reader, writer) = stream.into_split();
    let mut reader = FrameReader::new(reader);
    let frame = match reader.next().await {
        Ok(Some(frame)) => frame,
        Ok(None) => return Visitor::Silent,
        Err(_) => return Visitor::Stranger,
    };
    let hello = match serde_json::from_slice::<Hello>(&frame) {
        Ok(hello) if hello.protocol == PROTOCOL => hello,
        _ => return Visitor::Stranger,
    };
    let guest = {
        let mut guests = lock(&guests);
        if guests.given_up.contains(&hello.nonce) {
            return Visitor::Late;
        }
        let is_he = |guest: &Guest| guest.role == hello.role && guest.worker == hello.worker;
        match guests.expected.entry(hello.nonce) {
            Entry::Occupied(entry) if is_he(entry.get()) => entry.remove(),
            _ => return Visitor::Stranger,
        }
    };
    let pid = Pid::from_raw(peer.unwrap_or(hello.pid)).filter(|pid| pid.as_raw_nonzero().get() > 1);
    let greeting = Greeting {
        reader,
        writer,
        pid,
    };
    match guest.arrive.send(greeting) {
        Ok(()) => Visitor::Expected,
        Err(_) => Visitor::Late,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    fn hello(nonce: &str, worker: Option<u64>) -> Vec<u8> {
        let hello = serde_json::json!({
            "protocol": PROTOCOL, "nonce": nonce, "role": "worker", "worker": worker, "pid": 2,
        });
        let text = serde_json::to_vec(&hello).unwrap();
        [&u32::try_from(text.len()).unwrap().to_be_bytes()[..], &text].concat()
    }

    async fn says(meeting: &Meeting, bytes: &[u8]) -> Visitor {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        theirs.write_all(bytes).await.unwrap();
        drop(theirs);
        greet(ours, Arc::clone(&meeting.guests)).await
    }

    #[tokio::test]
    async fn only_those_who_were_never_expected_are_strangers() {
        let directory = tempfile::tempdir().unwrap();
        let meeting = Meeting::open(directory.path().join("socket")).unwrap();
        let expected = meeting.expect(Role::Worker, Some(1));
        let nonce = expected.nonce.clone();

        assert_eq!(says(&meeting, b"").await, Visitor::Silent);
        assert_eq!(
            says(&meeting, b"GET / HTTP/1.1\r\n\r\n").await,
            Visitor::Stranger
        );
        let other = hello("other", Some(1));
        assert_eq!(says(&meeting, &other).await, Visitor::Stranger);
        let another = hello(&nonce, Some(2));
        assert_eq!(says(&meeting, &another).await, Visitor::Stranger);
        let right = hello(&nonce, Some(1));
        assert_eq!(says(&meeting, &right).await, Visitor::Expected);
        // A nonce serves once, whoever has heard it.
        assert_eq!(says(&meeting, &right).await, Visitor::Stranger);
        drop(expected);

        let given_up = meeting.expect(Role::Worker, Some(2));
        let late = hello(&given_up.nonce, Some(2));
        drop(given_up);
        assert_eq!(says(&meeting, &late).await, Visitor::Late);
        for worker in 0..=MAX_GIVEN_UP as u64 {
            drop(meeting.expect(Role::Worker, Some(worker)));
        }
        assert_eq!(
            says(&meeting, &late).await,
            Visitor::Stranger,
            "too long ago"
        );
    }
}
