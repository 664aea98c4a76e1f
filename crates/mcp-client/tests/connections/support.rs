//! Servers over HTTP whose every byte a test writes itself.

use futures_util::future::BoxFuture;
use mcp_client::{Bounds, Error, Options};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// Longer than anything takes on a machine under load.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const MODERN: &str = "2026-07-28";
pub(crate) const LEGACY: &str = "2025-11-25";

/// One request over HTTP.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) verb: String,
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: HashMap<String, String>,
    /// The body, or null.
    pub(crate) message: Value,
}

impl Asked {
    /// The method of the message, or the verb of a request without one.
    pub(crate) fn what(&self) -> &str {
        match self.message["method"].as_str() {
            Some(method) => method,
            None if self.message.is_object() => "answer",
            None => &self.verb,
        }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn answer(&self, result: Value) -> Value {
        json!({ "jsonrpc": "2.0", "id": self.message["id"], "result": result })
    }

    pub(crate) fn error(&self, code: i32, message: &str) -> Value {
        let error = json!({ "code": code, "message": message });
        json!({ "jsonrpc": "2.0", "id": self.message["id"], "error": error })
    }
}

/// The connection of one request.
pub(crate) struct Talk(pub(crate) TcpStream);

impl Talk {
    /// Writes bytes; false if the client has gone.
    pub(crate) async fn raw(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.0.write_all(bytes.as_ref()).await.is_ok() && self.0.flush().await.is_ok()
    }

    pub(crate) async fn respond(&mut self, status: u16, headers: &str, body: &str) {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n"
        );
        self.raw(head + body).await;
    }

    pub(crate) async fn json(&mut self, value: &Value) {
        self.json_with("", value).await;
    }

    pub(crate) async fn json_with(&mut self, headers: &str, value: &Value) {
        let headers = format!("content-type: application/json\r\n{headers}");
        self.respond(200, &headers, &value.to_string()).await;
    }

    /// Begins a stream of events, which ends with the connection.
    pub(crate) async fn stream(&mut self) {
        self.raw("HTTP/1.1 200 X\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            .await;
    }

    pub(crate) async fn event(&mut self, value: &Value) -> bool {
        self.raw(format!("data: {value}\n\n")).await
    }

    /// Waits until the client hangs up.
    pub(crate) async fn gone(mut self) {
        let mut rest = [0; 64];
        while matches!(self.0.read(&mut rest).await, Ok(1..)) {}
    }

    /// Answers as a legacy server without surprises.
    pub(crate) async fn legacy(&mut self, asked: &Asked) {
        match asked.what() {
            "GET" => self.respond(405, "", "").await,
            "DELETE" => self.respond(200, "", "").await,
            what if what.starts_with("notifications/") => self.respond(202, "", "").await,
            "answer" => self.respond(202, "", "").await,
            "server/discover" => self.json(&asked.error(-32601, "unknown")).await,
            "initialize" => self.json(&asked.answer(initialized(LEGACY))).await,
            "tools/list" => self.json(&asked.answer(json!({ "tools": [] }))).await,
            "tools/call" => self.json(&asked.answer(text("ok"))).await,
            _ => self.json(&asked.answer(json!({}))).await,
        }
    }

    /// Answers as a modern server without surprises.
    pub(crate) async fn modern(&mut self, asked: &Asked) {
        let result = match asked.what() {
            "server/discover" => discovered(MODERN),
            "tools/list" => complete(json!({ "tools": [], "ttlMs": 0, "cacheScope": "private" })),
            "tools/call" => complete(text("ok")),
            _ => complete(json!({})),
        };
        self.json(&asked.answer(result)).await;
    }
}

pub(crate) fn text(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

pub(crate) fn initialized(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {
            "tools": { "listChanged": true },
            "resources": { "subscribe": true },
            "logging": {},
        },
        "serverInfo": { "name": "raw", "version": "1" },
    })
}

pub(crate) fn discovered(version: &str) -> Value {
    complete(json!({
        "supportedVersions": [version],
        "capabilities": { "tools": { "listChanged": true } },
        "ttlMs": 0,
        "cacheScope": "private",
    }))
}

pub(crate) fn complete(mut result: Value) -> Value {
    result["resultType"] = json!("complete");
    result
}

/// A server, and the requests that it has got.
pub(crate) struct Raw {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// Connections that are open.
    pub(crate) open: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

struct Opened(Arc<AtomicUsize>);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Raw {
    /// Serves one request on each connection.
    pub(crate) async fn start<F>(serve: F) -> Self
    where
        F: Fn(Asked, Talk) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let open = Arc::new(AtomicUsize::new(0));
        let (all, opened, serve) = (Arc::clone(&asked), Arc::clone(&open), Arc::new(serve));
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (all, serve) = (Arc::clone(&all), Arc::clone(&serve));
                opened.fetch_add(1, Ordering::SeqCst);
                let opened = Opened(Arc::clone(&opened));
                tokio::spawn(async move {
                    let _opened = opened;
                    let mut stream = stream;
                    if let Some(asked) = read(&mut stream).await {
                        all.lock().unwrap().push(asked.clone());
                        serve(asked, Talk(stream)).await;
                    }
                });
            }
        });
        Self {
            url,
            asked,
            open,
            serving,
        }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The methods or verbs of all requests.
    pub(crate) fn whats(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|it| it.what().to_owned()).collect()
    }

    pub(crate) fn count(&self, what: &str) -> usize {
        self.whats().iter().filter(|it| *it == what).count()
    }

    /// Waits until `what` was asked for so often.
    pub(crate) async fn wait(&self, what: &str, times: usize) {
        until(&format!("{times} times {what}: {:?}", self.whats()), || {
            times <= self.count(what)
        })
        .await;
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "it never happened: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (verb, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: HashMap<_, _> = lines
        .filter_map(|it| it.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length").and_then(|it| it.parse().ok());
    let mut body = bytes.split_off(end + 4);
    while body.len() < length.unwrap_or(0) {
        if stream.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Asked {
        verb,
        path,
        headers,
        message: serde_json::from_slice(&body).unwrap_or(Value::Null),
    })
}

pub(crate) fn options() -> Options {
    Options {
        bounds: Bounds {
            max_message: 1 << 20,
            max_notifications: 1000,
            max_pages: 50,
            max_items: 10_000,
            timeout: Duration::from_secs(3),
            close_patience: Duration::from_millis(500),
            ..Bounds::default()
        },
        ..Options::default()
    }
}

/// An error with its causes.
pub(crate) fn told(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
