//! A server that accepts posted requests and answers as it is configured: a webhook, a collector.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

use crate::wait::{GENEROUS, wait_until};

/// The longest body that is taken.
const MAX_BODY: usize = 16 << 20;

/// Answer of a receiver to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answering {
    /// Answers with this status.
    Status(u16),
    /// Takes the request and says nothing.
    Hang,
    /// Takes the request and hangs up.
    HangUp,
}

/// A request that was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// The method and the path, such as `POST /hook`.
    pub target: String,
    /// Names in lower case, and values.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

impl Received {
    /// The value of a header; `None` without it.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.headers.iter();
        let (_, value) = headers.find(|(it, _)| it.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// The body as JSON.
    ///
    /// # Panics
    ///
    /// If it is none.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("a body of JSON")
    }
}

/// A server that takes what is posted to it. It ends when it is dropped.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    received: Vec<Received>,
    /// For the next requests, one after the other.
    next: VecDeque<Answering>,
    /// For those after.
    always: Answering,
}

impl Receiver {
    /// One that answers 200.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port of the machine's choice is free");
        let address = listener.local_addr().expect("it listens");
        let shared = Arc::new(Mutex::new(Shared {
            received: Vec::new(),
            next: VecDeque::new(),
            always: Answering::Status(200),
        }));
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self {
            address,
            shared,
            serving,
        }
    }

    /// Address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of `path` there.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers the next requests like this, one after the other.
    pub fn answer_next(&self, next: impl IntoIterator<Item = Answering>) {
        lock(&self.shared).next.extend(next);
    }

    /// Answers all others like this.
    pub fn answer_always(&self, always: Answering) {
        lock(&self.shared).always = always;
    }

    /// All received requests, in order.
    #[must_use]
    pub fn received(&self) -> Vec<Received> {
        lock(&self.shared).received.clone()
    }

    /// Waits until `count` requests were received, and gives all there are.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`GENEROUS`].
    pub async fn wait(&self, count: usize) -> Vec<Received> {
        self.wait_for(count, GENEROUS).await
    }

    /// The same with a limit of its own.
    ///
    /// # Panics
    ///
    /// If that takes longer than `limit`.
    pub async fn wait_for(&self, count: usize, limit: Duration) -> Vec<Received> {
        let what = format!("{count} requests were received");
        wait_until(&what, limit, || count <= lock(&self.shared).received.len()).await;
        self.received()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Mutex<Shared>>) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    let shared = Arc::clone(&shared);
                    connections.spawn(async move { converse(stream, &shared).await });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Serves one connection, to its end or to the first request that cannot be read.
async fn converse(stream: TcpStream, shared: &Mutex<Shared>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let received = read(&mut stream).await?;
        let answering = {
            let mut shared = lock(shared);
            shared.received.push(received);
            shared.next.pop_front().unwrap_or(shared.always)
        };
        match answering {
            Answering::HangUp => return None,
            Answering::Hang => {
                // Until the other side has had enough.
                let _ = stream.read(&mut [0]).await;
                return None;
            }
            Answering::Status(status) => {
                let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(answer.as_bytes()).await.ok()?;
            }
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Received> {
    let first = line(stream).await?;
    let target = first.strip_suffix(" HTTP/1.1")?.to_owned();
    let mut headers = Vec::new();
    loop {
        let line = line(stream).await?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut received = Received {
        target,
        headers,
        body: Vec::new(),
    };
    let length = received.header("content-length")?.parse().ok()?;
    if MAX_BODY < length {
        return None;
    }
    received.body.resize(length, 0);
    stream.read_exact(&mut received.body).await.ok()?;
    Some(received)
}

async fn line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    if stream.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    line.strip_suffix("\r\n").map(str::to_owned)
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
