//! Clients that are up to no good, or merely broken, and what the others notice of it.
#![allow(clippy::print_stdout, reason = "the figures are for whoever runs it")]

use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use serde_json::json;
use testkit::{GENEROUS, HttpConnection, HttpRequest, HttpServer, MODERN, wait_until};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::{support::Site, tls};

/// Sends `bytes`, then reads until the server hangs up.
async fn told(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut said = Vec::new();
    let talking = async {
        // The server may have had enough before all is written.
        let _ = stream.write_all(bytes).await;
        let _ = stream.read_to_end(&mut said).await;
    };
    timeout(GENEROUS, talking).await.expect("it hangs up");
    String::from_utf8_lossy(&said).into_owned()
}

/// The statuses of the responses in what was read.
fn statuses(said: &str) -> Vec<&str> {
    let heads = said.split("HTTP/1.1 ").skip(1);
    heads.map(|rest| &rest[..3]).collect()
}

/// Sends a request; returns its answer, and the connection unless the server hangs up.
async fn exchanged(
    mut connection: HttpConnection,
    request: &HttpRequest,
) -> Option<(u16, HttpConnection)> {
    connection.send_bytes(&request.to_bytes()).await.ok()?;
    let head = connection.read_head().await.ok()?;
    let mut body = connection.into_body(&head, false);
    while body.try_next().await.ok()?.is_some() {}
    Some((head.status, body.into_connection()))
}

/// Ninety-ninth percentile of the time that a well-behaved client waits.
async fn p99(server: &HttpServer) -> Duration {
    let mut client = server.client();
    client.speak(MODERN);
    let mut connection = HttpConnection::connect(server.address()).await.unwrap();
    let mut times = Vec::new();
    let mut again = 0;
    while times.len() < 500 {
        let message = client.voice.request("tools/list", json!({}));
        let request = client.post_of(&message);
        let begun = Instant::now();
        match exchanged(connection, &request).await {
            Some((status, kept)) => {
                assert_eq!(status, 200);
                times.push(begun.elapsed());
                connection = kept;
            }
            None => {
                // Whoever says nothing for a second is hung up on, and a busy machine may see to that.
                again += 1;
                assert!(again <= 20, "it is hung up on again and again");
                connection = HttpConnection::connect(server.address()).await.unwrap();
            }
        }
    }
    times.sort();
    times[times.len() * 99 / 100]
}

/// Has others served, and says what they have noticed: how long they wait is the machine's as well.
async fn unharmed(server: &HttpServer, what: &str, before: Duration, resident: usize) {
    let after = p99(server).await;
    let now = server.process().resident_bytes();
    let grown = now.saturating_sub(resident) / 1024;
    println!("{what}: p99 {before:?} before, {after:?} with it; {grown} KiB more");
}

fn limited() -> Site {
    Site::new(json!({"http": {"limits": {
        "header_seconds": 1, "body_seconds": 1, "write_seconds": 1,
    }}}))
}

#[tokio::test]
async fn requests_that_proxies_read_in_another_way_are_refused() {
    let site = limited();
    let server = site.http().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let length = body.len();
    let fine = "Host: localhost\r\nContent-Type: application/json\r\nAccept: application/json\r\n";
    let hidden = "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let refused = [
        // Two lengths, or one that is none.
        format!("{fine}Content-Length: {length}\r\nContent-Length: 5\r\n\r\n{body}"),
        format!("{fine}Content-Length: +{length}\r\n\r\n{body}"),
        format!("{fine}Content-Length: {length}, 5\r\n\r\n{body}"),
        format!("{fine}Content-Length: 0x10\r\n\r\n{body}"),
        format!("{fine}Content-Length: -1\r\n\r\n{body}"),
        format!("{fine}Content-Length: 99999999999999999999999\r\n\r\n{body}"),
        // Other codings, and `chunked` in disguise.
        format!("{fine}Transfer-Encoding: gzip\r\n\r\n0\r\n\r\n"),
        format!("{fine}Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("{fine}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("{fine}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
        // A line that is folded, and names and values that are none.
        format!("{fine}X-Folded: a\r\n b\r\nContent-Length: {length}\r\n\r\n{body}"),
        format!("{fine}X Y: a\r\nContent-Length: {length}\r\n\r\n{body}"),
        format!("{fine}: a\r\nContent-Length: {length}\r\n\r\n{body}"),
        format!("{fine}X: a\0b\r\nContent-Length: {length}\r\n\r\n{body}"),
        format!("{fine}X: a\rb\r\nContent-Length: {length}\r\n\r\n{body}"),
        // Chunks that are none. The server must not find a request in what follows.
        format!("{fine}Transfer-Encoding: chunked\r\n\r\nzz\r\n{body}\r\n0\r\n\r\n{hidden}"),
        format!("{fine}Transfer-Encoding: chunked\r\n\r\n-1\r\n{body}\r\n0\r\n\r\n{hidden}"),
        format!("{fine}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{body}\r\n{hidden}"),
        format!("{fine}Transfer-Encoding: chunked\r\n\r\n1\r\n{body}\r\n0\r\n\r\n{hidden}"),
    ];
    for rest in refused {
        let request = format!("POST /mcp HTTP/1.1\r\n{rest}");
        let said = told(server.address(), request.as_bytes()).await;
        let statuses = statuses(&said);
        assert!(statuses.len() <= 1, "{request:?}\n{said}");
        assert!(
            statuses.iter().all(|status| *status == "400"),
            "{request:?}\n{said}"
        );
    }
    // Both a length and chunks: the chunks count, and nothing after them is taken for a request.
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
    ] {
        let chunks = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
        let request = format!("POST /mcp HTTP/1.1\r\n{fine}{lines}\r\n{chunks}{hidden}");
        let said = told(server.address(), request.as_bytes()).await;
        assert!(statuses(&said).len() <= 1, "{said}");
    }
    for (request, status) in [
        (
            "GET / HTTP/3.0\r\nHost: localhost\r\n\r\n".to_owned(),
            "400",
        ),
        ("GET /health/live HTTP/1.1\r\n\r\n".to_owned(), "403"),
        ("\0\u{1}\u{2}\r\n\r\n".to_owned(), "400"),
        ("\u{16}\u{3}\u{1}\u{2}\0\u{1}\0".to_owned(), "400"),
        (
            format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(70_000)),
            "431",
        ),
        (
            format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(70_000)),
            "431",
        ),
        (
            format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(500)),
            "431",
        ),
    ] {
        let said = told(server.address(), request.as_bytes()).await;
        let start: String = request.chars().take(60).collect();
        assert!(
            ["414", status].contains(&statuses(&said)[0]),
            "{start:?}\n{said}"
        );
    }
    p99(&server).await;
}

#[tokio::test]
async fn slow_clients_are_hung_up_on_and_nobody_waits_for_them() {
    let site = limited();
    let server = site.http().await;
    let before = p99(&server).await;
    let resident = server.process().resident_bytes();
    let heads = [
        "",
        "P",
        "POST /mcp HTTP/1.1\r\n",
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nX: ",
    ];
    let body = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                Accept: application/json\r\nContent-Length: 100\r\n\r\n{";
    let mut slow = Vec::new();
    for start in heads.iter().copied().chain([body]).cycle().take(200) {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        stream.write_all(start.as_bytes()).await.unwrap();
        slow.push((start, stream));
    }
    unharmed(&server, "200 slow clients", before, resident).await;
    for (start, mut stream) in slow {
        // One byte at a time is not enough.
        let mut said = Vec::new();
        let dripping = async {
            let (mut read, mut write) = stream.split();
            let drip = async {
                while write.write_all(b"x").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            };
            tokio::select! {
                _ = read.read_to_end(&mut said) => {}
                () = drip => {}
            }
        };
        timeout(GENEROUS, dripping).await.expect("it hangs up");
        if start == body && !said.is_empty() {
            assert!(
                said.starts_with(b"HTTP/1.1 4"),
                "{}",
                String::from_utf8_lossy(&said)
            );
        }
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const CONTINUATION: u8 = 9;

/// The head of `POST /mcp`, compressed.
fn head() -> Vec<u8> {
    let mut head = vec![0x83, 0x86];
    for (index, value) in [(4_u8, "/mcp"), (1, "localhost")] {
        head.extend([index, u8::try_from(value.len()).unwrap()]);
        head.extend(value.as_bytes());
    }
    head
}

/// Sends frames until the server has had enough; says how many it took, if it ever had.
async fn flood(address: SocketAddr, frames: impl Iterator<Item = Vec<u8>>) -> Option<usize> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let reading = tokio::spawn(async move {
        let mut ignored = vec![0; 64 * 1024];
        while read.read(&mut ignored).await.is_ok_and(|length| length > 0) {}
    });
    let mut start = PREFACE.to_vec();
    start.extend(frame(SETTINGS, 0, 0, &[]));
    write.write_all(&start).await.unwrap();
    for (sent, frame) in frames.enumerate() {
        if reading.is_finished() || write.write_all(&frame).await.is_err() {
            return Some(sent);
        }
        if sent % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(write);
    timeout(GENEROUS, reading)
        .await
        .expect("it hangs up")
        .unwrap();
    None
}

#[tokio::test]
async fn floods_of_http2_end_the_connection_that_they_come_on() {
    let site = limited();
    let server = site.http().await;
    let before = p99(&server).await;
    let resident = server.process().resident_bytes();
    let streams = || (0..200_000_u32).map(|round| 2 * round + 1);
    let resets = streams().map(|stream| {
        let mut both = frame(HEADERS, 4, stream, &head());
        both.extend(frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()));
        both
    });
    // Streams that the server has to give up, since nobody may depend on itself or end twice.
    let errors = streams().map(|stream| {
        let mut both = frame(HEADERS, 5, stream, &head());
        both.extend(frame(8, 0, stream, &0_u32.to_be_bytes()));
        both
    });
    let start = std::iter::once(frame(HEADERS, 0, 1, &head()));
    let endless = start.chain((0..200_000).map(|_| frame(CONTINUATION, 0, 1, &[b'x'; 64])));
    let counts = [
        ("rapid resets", flood(server.address(), resets).await),
        ("errors", flood(server.address(), errors).await),
        ("a head without end", flood(server.address(), endless).await),
    ];
    for (what, taken) in counts {
        println!("{what}: the connection ended after {taken:?}");
        assert!(taken.is_some(), "{what}");
    }
    // Whatever is asked, the answers are bounded: who does not read them is not served on.
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let mut start = PREFACE.to_vec();
    start.extend(frame(SETTINGS, 0, 0, &[]));
    let (_unread, mut write) = stream.into_split();
    write.write_all(&start).await.unwrap();
    let pinging = async {
        for _ in 0..2_000_000 {
            if write.write_all(&frame(PING, 0, 0, &[0; 8])).await.is_err() {
                return;
            }
        }
    };
    // It stops reading, and so ends by taking too long.
    let _ = timeout(Duration::from_secs(5), pinging).await;
    unharmed(&server, "floods of HTTP/2", before, resident).await;
    let now = server.process().resident_bytes();
    assert!(now < resident + (64 << 20), "{} MiB", now >> 20);
}

async fn metrics(server: &HttpServer) -> String {
    let request = HttpRequest::get("/metrics");
    server.client().exchange(&request).await.text().to_owned()
}

#[tokio::test]
async fn a_flood_of_http2_control_frames_ends_its_connection() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let resident = server.process().resident_bytes();
    let address = server.address();
    let many = |frame: Vec<u8>| (0..100_000).map(move |_| frame.clone());
    let open = frame(HEADERS, 4, 1, &head());
    let of_body = |piece: Vec<u8>| std::iter::once(open.clone()).chain(many(piece));
    // One at a time, so that the library gets to look at each request before it is given up.
    let resets = (0..100_000_u32).flat_map(|round| {
        let stream = 2 * round + 1;
        let reset = frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        [frame(HEADERS, 5, stream, &head()), reset]
    });
    let floods = [
        (
            "PING",
            flood(address, many(frame(PING, 0, 0, &[7; 8]))).await,
        ),
        (
            "answers to PING",
            flood(address, many(frame(PING, 1, 0, &[7; 8]))).await,
        ),
        (
            "SETTINGS",
            flood(address, many(frame(SETTINGS, 0, 0, &[]))).await,
        ),
        (
            "WINDOW_UPDATE",
            flood(address, many(frame(8, 0, 0, &1_u32.to_be_bytes()))).await,
        ),
        (
            "PRIORITY",
            flood(address, many(frame(2, 0, 1, &[0, 0, 0, 3, 9]))).await,
        ),
        (
            "unknown frames",
            flood(address, many(frame(0xfe, 0, 0, &[]))).await,
        ),
        (
            "empty DATA",
            flood(address, of_body(frame(0, 0, 1, &[]))).await,
        ),
        (
            "padded DATA",
            flood(address, of_body(frame(0, 8, 1, &[200; 201]))).await,
        ),
        ("RST_STREAM", flood(address, resets).await),
    ];
    for (what, taken) in floods {
        println!("{what}: the connection ended after {taken:?}");
        assert!(taken.is_some(), "{what}");
    }
    let now = server.process().resident_bytes();
    assert!(now < resident + (32 << 20), "{} MiB", now >> 20);
    let told = metrics(&server).await;
    let line = "owlclaw_mcp_flooded_connections_total{protocol=\"http/2\"} ";
    let count = told.lines().find_map(|it| it.strip_prefix(line)).unwrap();
    assert!(8 <= count.parse::<u64>().unwrap(), "{count}");
    let said = server.stderr();
    let lines = said
        .matches("a connection was ended: its client sent too many")
        .count();
    assert!((1..=4).contains(&lines), "{lines} lines of the log");
    // Who asks for much and often is no flood.
    let mut client = server.client();
    client.speak(MODERN);
    assert!(p99(&server).await < GENEROUS);
}

#[tokio::test]
async fn requests_whose_answers_are_not_read_are_bounded() {
    let site = limited();
    let server = site.http().await;
    let resident = server.process().resident_bytes();
    let request = "GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (what, piece) in [
        ("pipelining", request.repeat(1000)),
        ("empty lines", "\r\n".repeat(10_000)),
        ("chunks of one byte", "1\r\nx\r\n".repeat(10_000)),
    ] {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        let mut stream = socket.connect(server.address()).await.unwrap();
        if what == "chunks of one byte" {
            let head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                        Transfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
        }
        let flooding = async {
            let mut sent = 0;
            while stream.write_all(piece.as_bytes()).await.is_ok() {
                sent += piece.len();
            }
            sent
        };
        let sent = timeout(GENEROUS, flooding).await.expect("it ends");
        let now = server.process().resident_bytes();
        let grown = now.saturating_sub(resident) >> 10;
        println!("{what}: the connection ended after {sent} bytes; {grown} KiB more");
        assert!(now < resident + (64 << 20), "{what}: {} MiB", now >> 20);
    }
}

#[tokio::test]
async fn thousands_of_idle_connections_are_borne_and_one_address_cannot_have_all() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let before = p99(&server).await;
    let resident = server.process().resident_bytes();
    let mut idle = Vec::new();
    'all: for host in 2..=11 {
        for _ in 0..1_000 {
            let socket = TcpSocket::new_v4();
            let Ok(socket) = socket else { break 'all };
            socket
                .bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0)))
                .unwrap();
            match socket.connect(server.address()).await {
                Ok(stream) => idle.push(stream),
                Err(_) => break 'all,
            }
            if idle.len() % 100 == 0 {
                tokio::task::yield_now().await;
            }
        }
        // What is left is for everybody else in this process.
        if open_files() + 1_100 > file_limit() {
            break;
        }
    }
    println!("{} idle connections", idle.len());
    assert!(500 <= idle.len());
    unharmed(&server, "idle connections", before, resident).await;
    let each = server.process().resident_bytes().saturating_sub(resident) / idle.len();
    println!("{each} bytes each");
    assert!(each < 16 * 1024, "{each}");
    drop(idle);

    let site = Site::new(json!({"http": {"limits": {"max_connections_per_address": 20}}}));
    let server = site.http().await;
    let mut mine = Vec::new();
    for _ in 0..30 {
        mine.push(TcpStream::connect(server.address()).await.unwrap());
    }
    // The others say nothing, and are told nothing.
    let mut said = [0; 12];
    let told = async {
        loop {
            for stream in &mine {
                match stream.try_read(&mut said) {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    read => return read.unwrap(),
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let count = timeout(GENEROUS, told).await.expect("one too many is told");
    assert_eq!(String::from_utf8_lossy(&said[..count]), "HTTP/1.1 503");
    let other = TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let other = HttpConnection::over(other.connect(server.address()).await.unwrap());
    let request = HttpRequest::get("/health/live").header("host", "localhost");
    assert_eq!(other.exchange(&request).await.0.status, 200);
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

fn file_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().nth(3));
    soft.and_then(|soft| soft.parse().ok()).unwrap_or(1024)
}

#[tokio::test]
async fn clients_that_vanish_leave_nothing_behind() {
    let site = limited();
    let server = site.http().await;
    let before = p99(&server).await;
    let resident = server.process().resident_bytes();
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "nap", "arguments": {"seconds": 30}, "_meta": {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {},
        }},
    });
    let request = HttpRequest::post("/mcp", call.to_string())
        .header("host", "localhost")
        .with("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", "tools/call")
        .header("mcp-name", "nap");
    for round in 0..200_usize {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        // Without a goodbye, half of them in the middle of a request.
        stream.set_zero_linger().unwrap();
        let bytes = request.to_bytes();
        let sent = bytes.len() / (1 + round % 2);
        stream.write_all(&bytes[..sent]).await.unwrap();
        drop(stream);
    }
    wait_until("no call is left", GENEROUS, || {
        let outcomes = site.outcomes("nap");
        outcomes.iter().all(|outcome| outcome != "open")
    })
    .await;
    unharmed(&server, "200 clients that vanish", before, resident).await;
}

#[tokio::test]
async fn whatever_is_said_instead_of_tls_harms_nobody() {
    let (site, authority) = tls::site(json!({}));
    let server = site.http().await;
    let mut hello = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc];
    hello.extend([0xaa; 200]);
    let said: [&[u8]; 7] = [
        &[],
        &[22],
        &[22, 3, 1, 0xff, 0xff],
        &[22, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff],
        &[0x80, 0x2e, 1, 0, 2],
        &[0; 4096],
        &hello,
    ];
    let mut open = Vec::new();
    for bytes in said.iter().cycle().take(140) {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        match stream.write_all(bytes).await {
            Ok(()) => {}
            Err(error) => assert_ne!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
        open.push(stream);
    }
    // One address can have a part of all handshakes, so its next one may be refused until those have
    // ended.
    drop(open);
    let mut served = Err(());
    for _ in 0..100 {
        if let Ok(connection) = tls::connect(server.address(), &authority, None).await {
            tls::ask(connection).await;
            served = Ok(());
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(served, Ok(()));
    // Nobody may begin to negotiate anew on an open connection.
    let address = server.address().to_string();
    let words = ["s_client", "-connect", &address, "-tls1_2"];
    let said = tls::talk("openssl", &words, &site.path("."), "R\n").await;
    assert!(said.contains("RENEGOTIATING"), "{said}");
    assert!(said.contains("no renegotiation"), "{said}");
    tls::ask(
        tls::connect(server.address(), &authority, None)
            .await
            .unwrap(),
    )
    .await;
}

/// Limits the number of files that a process may open; those it has open stay open.
#[cfg(target_os = "linux")]
fn limit_open_files(process: u32, limit: &str) {
    let limited = std::process::Command::new("prlimit")
        .args([format!("--pid={process}"), format!("--nofile={limit}:")])
        .status();
    assert!(limited.unwrap().success());
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn without_descriptors_the_log_says_so_now_and_then_and_when_it_is_over() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let id = server.process().id().unwrap();
    let open = std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count();
    limit_open_files(id, &(open + 4).to_string());
    let begun = Instant::now();
    let mut idle = Vec::new();
    for _ in 0..32 {
        idle.push(TcpStream::connect(server.address()).await.unwrap());
    }
    server
        .process()
        .wait_stderr("connections cannot be accepted")
        .await;
    // So that it fails more than once; nothing has to happen meanwhile.
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(idle);
    limit_open_files(id, "1024");
    // Whoever comes is served, and once it has been so for ten seconds, that is said.
    let over = async {
        while !server.stderr().contains("connections are accepted again") {
            let connection = HttpConnection::connect(server.address()).await.unwrap();
            tls::ask(connection).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(3 * GENEROUS, over).await.expect("it is over");
    let said = server.stderr().matches("cannot be accepted").count();
    let most = 1 + usize::try_from(begun.elapsed().as_secs() / 10).unwrap();
    assert!((1..=most).contains(&said), "{said} of {most}");
}
