//! WebSockets: to our own server, and to servers that misbehave.

use crate::support::{LONG, discovered, initialized, options, told, until};
use futures_util::{SinkExt, StreamExt};
use mcp_client::{CallOptions, Connection, Dial, Error, Options, RawJson, Speak};
use mcp_protocol::ProtocolVersion;
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::{
            derive_accept_key,
            server::{Request, Response},
        },
        http::HeaderValue,
        protocol::Role,
    },
};

#[tokio::test]
async fn a_url_that_leads_to_another_port_than_it_says_is_not_dialled() {
    for (url, why) in [
        ("http://127.0.0.1:99999/mcp", "its port is no number"),
        ("https://127.0.0.1:99999/mcp", "its port is no number"),
        ("ws://127.0.0.1:70000/", "its port is no number"),
        ("http://ann:s3cret@127.0.0.1:1/mcp", "would not be sent"),
        ("file:///x", "none of the schemes"),
    ] {
        let error = Connection::open(&Dial::url(url), options())
            .await
            .err()
            .unwrap();
        assert!(matches!(error, Error::Address { .. }), "{url}: {error:?}");
        let said = told(&error);
        assert!(said.contains(why) && !said.contains("s3cret"), "{said}");
    }
}

async fn outcome(url: &str, options: Options) -> String {
    let started = Instant::now();
    let dial = Dial::url(url);
    let tried = async {
        let connection = Connection::open(&dial, options).await?;
        let call = CallOptions::default();
        let result = connection.call("any", RawJson::EMPTY_OBJECT, &call).await?;
        connection.close().await;
        Ok::<_, Error>(format!("ok {:?}", result.content))
    };
    let tried = tried.await.unwrap_or_else(|error| told(&error));
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
    assert!(tried.len() < 1500, "an error must be short: {tried}");
    tried
}

/// Answers the request that opens a WebSocket.
pub(crate) async fn shake(stream: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap() == 0 {
            return;
        }
    }
    let head = String::from_utf8(head).unwrap();
    let key = head.lines().find_map(|it| {
        let (name, value) = it.split_once(':')?;
        name.eq_ignore_ascii_case("sec-websocket-key")
            .then(|| value.trim().to_owned())
    });
    let accept = derive_accept_key(key.unwrap().as_bytes());
    let answer = format!(
        "HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
         sec-websocket-accept: {accept}\r\nsec-websocket-protocol: mcp\r\n\r\n"
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
}

/// One frame of a server: its first byte, and what it carries.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    match payload.len() {
        length @ 0..=125 => frame.push(u8::try_from(length).unwrap()),
        length => {
            frame.push(127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

async fn gone(mut stream: TcpStream) {
    let mut rest = [0; 4096];
    while matches!(stream.read(&mut rest).await, Ok(1..)) {}
}

async fn endlessly(stream: &mut TcpStream, frame: &[u8]) {
    let many = frame.repeat(1 + 65_536 / frame.len());
    while stream.write_all(&many).await.is_ok() {}
}

async fn misbehave(how: &str, mut stream: TcpStream) {
    let mut refuse = async |answer: &str| stream.write_all(answer.as_bytes()).await.unwrap();
    match how {
        "silent handshake" => return gone(stream).await,
        "no handshake" => return,
        "not found" => return refuse("HTTP/1.1 404 X\r\ncontent-length: 4\r\n\r\nnone").await,
        "unauthorized" => return refuse("HTTP/1.1 401 X\r\ncontent-length: 0\r\n\r\n").await,
        "a page" => return refuse("HTTP/1.1 200 X\r\ncontent-length: 4\r\n\r\npage").await,
        "wrong accept" => {
            let answer = "HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
                          sec-websocket-accept: AAAA\r\n\r\n";
            return refuse(answer).await;
        }
        "endless headers" => {
            refuse("HTTP/1.1 101 X\r\n").await;
            return endlessly(&mut stream, b"x-more: more\r\n").await;
        }
        "another redirection" => {
            let answer =
                "HTTP/1.1 307 X\r\nlocation: ws://127.0.0.2:1/\r\ncontent-length: 0\r\n\r\n";
            return refuse(answer).await;
        }
        _ => {}
    }
    shake(&mut stream).await;
    let bytes: Vec<u8> = match how {
        "silent" => Vec::new(),
        "resets" => return,
        "binary" => frame(0x82, b"{}"),
        "an enormous frame" => [&[0x81, 127][..], &(1_u64 << 40).to_be_bytes()].concat(),
        "an impossible length" => [&[0x81, 127][..], &u64::MAX.to_be_bytes()].concat(),
        "masked" => vec![0x81, 0x82, 1, 2, 3, 4, 5, 6],
        "reserved bits" => frame(0xf1, b"{}"),
        "unknown opcode" => frame(0x83, b"{}"),
        "no text" => frame(0x81, b"\xff\xfe"),
        "a long ping" => frame(0x89, &[0; 200]),
        "a ping in pieces" => frame(0x09, b"x"),
        "a piece of nothing" => frame(0x80, b"x"),
        "two beginnings" => [frame(0x01, b"x"), frame(0x01, b"y")].concat(),
        "closed" => frame(0x88, &[&4001_u16.to_be_bytes()[..], b"no seat"].concat()),
        "closed with no code" => frame(0x88, b""),
        "closed with an odd code" => frame(0x88, &3_u16.to_be_bytes()),
        "rubbish" => return endlessly(&mut stream, &frame(0x81, b"rubbish")).await,
        "pings" => return endlessly(&mut stream, &frame(0x89, &[b'x'; 125])).await,
        "pongs" => return endlessly(&mut stream, &frame(0x8a, b"pong")).await,
        "endless pieces" => {
            stream.write_all(&frame(0x01, b"[")).await.unwrap();
            return endlessly(&mut stream, &frame(0x00, &[b' '; 1000])).await;
        }
        "endless empty pieces" => {
            stream.write_all(&frame(0x01, b"[")).await.unwrap();
            return endlessly(&mut stream, &frame(0x00, b"")).await;
        }
        "never reads" => {
            tokio::time::sleep(LONG).await;
            return;
        }
        _ => unreachable!("{how}"),
    };
    if stream.write_all(&bytes).await.is_ok() {
        gone(stream).await;
    }
}

#[tokio::test]
async fn servers_over_websockets_that_misbehave() {
    let cases: &'static [(&'static str, &'static str)] = &[
        (
            "silent handshake",
            "`the WebSocket's handshake` was not answered",
        ),
        ("no handshake", "cannot be dialled"),
        ("not found", "HTTP 404"),
        ("unauthorized", "HTTP 401"),
        ("a page", "HTTP 200"),
        ("wrong accept", "cannot be dialled"),
        ("endless headers", "cannot be dialled"),
        ("another redirection", "HTTP 307"),
        ("silent", "`initialize` was not answered"),
        ("resets", "the connection has ended"),
        ("binary", "it has sent binary data"),
        ("an enormous frame", "too long"),
        ("an impossible length", "the connection has ended"),
        ("masked", "the connection has ended"),
        ("reserved bits", "the connection has ended"),
        ("unknown opcode", "the connection has ended"),
        ("no text", "the connection has ended"),
        ("a long ping", "the connection has ended"),
        ("a ping in pieces", "the connection has ended"),
        ("a piece of nothing", "the connection has ended"),
        ("two beginnings", "the connection has ended"),
        ("closed", "the server has closed it (4001: no seat)"),
        ("closed with no code", "the server has closed it"),
        ("closed with an odd code", "the connection has ended"),
        ("rubbish", "`max_rubbish` (10000)"),
        ("pongs", "`initialize` was not answered"),
        ("endless pieces", "too long"),
        ("endless empty pieces", "`initialize` was not answered"),
        ("never reads", "`initialize` was not answered"),
    ];
    for group in cases.chunks(8) {
        let tried = group.iter().map(|(how, _)| async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
            // A server that is lost at the probe is dialled once more.
            let serving = tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    misbehave(how, stream).await;
                }
            });
            let mut options = options();
            options.bounds.timeout = Duration::from_secs(4);
            options.bounds.probe = Duration::from_millis(500);
            let text = outcome(&url, options).await;
            serving.abort();
            text
        });
        let tried = futures_util::future::join_all(tried).await;
        for ((how, expected), text) in group.iter().zip(tried) {
            assert!(
                text.contains(expected),
                "{how}: {text}\nexpected: {expected}"
            );
        }
    }
}

#[tokio::test]
#[expect(clippy::result_large_err, reason = "the library's own type")]
async fn a_websocket_is_closed_with_what_was_queued_and_a_word() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let hears = Arc::clone(&heard);
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let shake = |request: &Request, mut response: Response| {
            assert_eq!(request.headers()["sec-websocket-protocol"], "mcp");
            let mcp = HeaderValue::from_static("mcp");
            response.headers_mut().insert("sec-websocket-protocol", mcp);
            Ok(response)
        };
        let mut socket = accept_hdr_async(stream, shake).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(text) = message else {
                hears.lock().unwrap().push(format!("{message:?}"));
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            let method = message["method"].as_str().unwrap().to_owned();
            hears.lock().unwrap().push(method.clone());
            let result = match method.as_str() {
                "server/discover" => discovered("2026-07-28"),
                "tools/call" if message["params"]["name"] == "ping" => {
                    socket.send(Message::Ping("p".into())).await.unwrap();
                    json!({ "resultType": "complete", "content": [] })
                }
                _ => continue,
            };
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            socket
                .send(Message::text(answer.to_string()))
                .await
                .unwrap();
        }
    });
    let connection = Connection::open(&Dial::url(&url), options()).await.unwrap();
    let call = CallOptions::default();
    connection
        .call("ping", RawJson::EMPTY_OBJECT, &call)
        .await
        .unwrap();
    until("the ping is answered", || {
        heard
            .lock()
            .unwrap()
            .iter()
            .any(|it| it.starts_with("Pong"))
    })
    .await;
    let silent = connection.call("silent", RawJson::EMPTY_OBJECT, &call);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), silent)
            .await
            .is_err()
    );
    connection.close().await;
    tokio::time::timeout(LONG, serving).await.unwrap().unwrap();
    let heard = heard.lock().unwrap();
    let [.., cancelled, closed] = heard.as_slice() else {
        panic!("{heard:?}");
    };
    assert_eq!(cancelled, "notifications/cancelled");
    assert!(closed.starts_with("Close"), "{heard:?}");
}

#[tokio::test]
async fn a_server_that_hangs_up_at_the_probe_is_dialled_anew_and_sent_initialize() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
    let heard = Arc::<Mutex<Vec<String>>>::default();
    let hears = Arc::clone(&heard);
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            shake(&mut stream).await;
            let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
            while let Some(Ok(Message::Text(text))) = socket.next().await {
                let message: Value = serde_json::from_str(&text).unwrap();
                let method = message["method"].as_str().unwrap().to_owned();
                hears.lock().unwrap().push(method.clone());
                let result = match method.as_str() {
                    "server/discover" => break,
                    "initialize" => initialized("2025-06-18"),
                    "tools/call" => json!({ "content": [] }),
                    _ => continue,
                };
                let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
                let answer = Message::text(answer.to_string());
                socket.send(answer).await.unwrap();
            }
        }
    });
    let connection = Connection::open(&Dial::url(&url), options()).await.unwrap();
    assert_eq!(connection.agreed().version.as_str(), "2025-06-18");
    let call = CallOptions::default();
    let called = connection.call("any", RawJson::EMPTY_OBJECT, &call).await;
    called.unwrap();
    connection.close().await;
    serving.abort();
    assert_eq!(
        *heard.lock().unwrap(),
        [
            "server/discover",
            "initialize",
            "notifications/initialized",
            "tools/call"
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_pings_and_does_not_read_is_left() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        misbehave("pings", stream).await;
    });
    let mut options = options();
    options.bounds.timeout = LONG;
    options.speak = Speak::Only(ProtocolVersion::V2025_11_25);
    let text = outcome(&url, options).await;
    serving.abort();
    assert!(
        text.contains(
            "does not read what it is answered: 262144 bytes of answers to its pings wait"
        ),
        "{text}"
    );
}

#[tokio::test]
async fn a_server_that_pings_and_reads_is_kept_however_often_it_does() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/mcp", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        shake(&mut stream).await;
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(text) = message else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            let result = match message["method"].as_str().unwrap() {
                "initialize" => initialized("2025-11-25"),
                "tools/call" => {
                    // More than may wait at once.
                    for _ in 0..3000 {
                        let ping = Message::Ping(vec![b'x'; 125].into());
                        socket.send(ping).await.unwrap();
                        let pong = socket.next().await.unwrap().unwrap();
                        assert!(pong.is_pong());
                    }
                    json!({ "content": [] })
                }
                _ => continue,
            };
            let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
            let answer = Message::text(answer.to_string());
            socket.send(answer).await.unwrap();
        }
    });
    let mut options = options();
    options.bounds.timeout = LONG;
    options.speak = Speak::Only(ProtocolVersion::V2025_11_25);
    let text = outcome(&url, options).await;
    serving.abort();
    assert_eq!(text, "ok []");
}
