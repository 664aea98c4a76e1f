//! A witness on another machine: it is told each checkpoint, and knows when a ledger is an earlier copy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use testkit::{Conversation, HttpRequest, HttpServer, MODERN};

use crate::support::{END, Site, call, run};

/// The machine: keeps what was posted last, and gives it back.
#[derive(Clone, Default)]
struct Machine(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    last: Option<String>,
    is_down: bool,
    unauthorized: usize,
}

impl Machine {
    fn begin() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let machine = Self::default();
        let serving = machine.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serving.answer(stream);
            }
        });
        (machine, address)
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut head, mut line) = (String::new(), String::new());
        while reader.read_line(&mut line).is_ok_and(|read| 2 < read) {
            head.push_str(&line.to_ascii_lowercase());
            line.clear();
        }
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        let mut kept = self.0.lock().unwrap();
        kept.unauthorized += usize::from(!head.contains("authorization: bearer let-me-in"));
        let (status, body) = match head.split(' ').next() {
            _ if kept.is_down => ("503 Service Unavailable", String::new()),
            Some("post") => {
                kept.last = Some(String::from_utf8(body).unwrap());
                ("204 No Content", String::new())
            }
            _ => match &kept.last {
                Some(last) => ("200 OK", last.clone()),
                None => ("404 Not Found", String::new()),
            },
        };
        let length = body.len();
        let _ = write!(
            stream,
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
    }

    fn set_down(&self, is_down: bool) {
        self.0.lock().unwrap().is_down = is_down;
    }

    fn sealed(&self) -> u64 {
        let last = self.0.lock().unwrap().last.clone();
        let last: Value = last.map_or(Value::Null, |last| serde_json::from_str(&last).unwrap());
        last["sequence"].as_u64().unwrap_or(0)
    }

    async fn until_sealed(&self, sequence: u64) {
        while self.sealed() < sequence {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn calls(server: &HttpServer, count: usize) {
    let mut client = server.client().with_header("x-mcp-client-id", "ana");
    client.open(MODERN).await;
    for _ in 0..count {
        client
            .request("tools/call", call("append", json!({"mark": "rent"})))
            .await;
    }
}

async fn stop(mut server: HttpServer) {
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
}

async fn component(server: &HttpServer) -> (u16, Value) {
    let answer = server.client().exchange(&HttpRequest::get("/health")).await;
    let health = answer.json();
    let components = health["components"].as_array().unwrap();
    let ours = components.iter().find(|it| it["name"] == "ledger_witness");
    (answer.status, ours.cloned().unwrap_or_default())
}

#[tokio::test]
async fn a_ledger_that_was_rolled_back_with_its_checkpoints_is_refused_by_its_witness() {
    let (machine, address) = Machine::begin();
    let settings = |required| {
        json!({"ledger": {"checkpoint": {"entries": 2}, "witness": {
            "url": format!("http://{address}/ledger"), "token": "let-me-in", "required": required,
        }}})
    };
    let site = Site::new(settings(true));
    let server = site.http().await;
    calls(&server, 3).await;
    machine.until_sealed(4).await;
    assert!(component(&server).await.1["ok"] == true);

    // While it is away, health says so, calls go on, and later it gets what it has missed.
    machine.set_down(true);
    let before = machine.sealed();
    calls(&server, 3).await;
    let mut told = component(&server).await;
    while told.1["ok"] == true {
        tokio::time::sleep(Duration::from_millis(10)).await;
        told = component(&server).await;
    }
    assert_eq!(told.0, 200);
    assert!(
        told.1["detail"].as_str().unwrap().contains("503"),
        "{}",
        told.1
    );
    machine.set_down(false);
    machine.until_sealed(before + 4).await;
    while component(&server).await.1["ok"] != true {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop(server).await;
    let files = ["ledger.db", "ledger.db.checkpoints"];
    let kept = files.map(|file| std::fs::read(site.path(file)).unwrap());

    let server = site.http().await;
    calls(&server, 2).await;
    stop(server).await;
    let sealed = machine.sealed();
    for (file, content) in files.iter().zip(kept) {
        site.write(file, content);
    }
    let _ = std::fs::remove_file(site.path("ledger.db-wal"));
    let start = ["start", "--transport", "http"];
    let refused = run(site.command(&start)).await;
    assert_eq!(refused.code, Some(1), "{}", refused.messages);
    let why = format!("http://{address}/ledger seals entry {sealed}");
    assert!(refused.messages.contains(&why), "{}", refused.messages);
    let accept = [
        "ledger",
        "accept-rollback",
        "--by",
        "ana",
        "--reason",
        "the disk is lost",
    ];
    let accepted = run(site.command(&accept)).await;
    assert_eq!(accepted.code, Some(0), "{}", accepted.messages);
    let server = site.http().await;
    calls(&server, 1).await;
    stop(server).await;
    assert_eq!(machine.0.lock().unwrap().unauthorized, 0);

    // Whether it must be asked is a setting.
    machine.set_down(true);
    let refused = run(site.command(&start)).await;
    assert_eq!(refused.code, Some(1), "{}", refused.messages);
    assert!(
        refused.messages.contains("cannot be asked"),
        "{}",
        refused.messages
    );
    let file = site
        .read("mcp-server.yaml")
        .replace("\"required\":true", "\"required\":false");
    site.write("mcp-server.yaml", file);
    stop(site.http().await).await;
}
