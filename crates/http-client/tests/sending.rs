//! Requests to servers that answer as a script says.

#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use http::Request;
use http_client::{AllowPrivate, Client, ClientError, ClientOptions, HostList, Reach, SendError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
    sync::mpsc,
};
use tokio_rustls::{TlsAcceptor, rustls};

/// Behaviour of a server on each of its connections, after the head of a request.
#[derive(Clone, Copy)]
enum Script {
    /// Sends this and closes.
    Send(&'static str),
    /// Sends this and says nothing more.
    Hang(&'static str),
    /// Sends this, then one byte over and over, and never ends.
    Flood(&'static str),
}

/// A server, and the heads of the requests it gets.
async fn server(script: Script, tls: Option<TlsAcceptor>) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, seen) = mpsc::channel(8);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (tls, heads) = (tls.clone(), heads.clone());
            tokio::spawn(async move {
                match tls {
                    None => play(stream, script, heads).await,
                    Some(tls) => {
                        if let Ok(stream) = tls.accept(stream).await {
                            play(stream, script, heads).await;
                        }
                    }
                }
            });
        }
    });
    (address, seen)
}

async fn play(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    script: Script,
    heads: mpsc::Sender<String>,
) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    heads.send(head).await.unwrap();
    let (Script::Send(text) | Script::Hang(text) | Script::Flood(text)) = script;
    stream.write_all(text.as_bytes()).await.unwrap();
    match script {
        Script::Send(_) => stream.shutdown().await.unwrap_or(()),
        Script::Hang(_) => {
            let _ = stream.read_u8().await;
        }
        Script::Flood(_) => while stream.write_all(b"1\r\nx\r\n").await.is_ok() {},
    }
}

fn client(change: impl FnOnce(&mut ClientOptions)) -> Client {
    let mut options = ClientOptions {
        timeout: Duration::from_secs(60),
        reach: Reach::Any,
        ..ClientOptions::default()
    };
    change(&mut options);
    Client::new(options).unwrap()
}

fn get(scheme: &str, address: SocketAddr) -> Request<Bytes> {
    let uri = format!("{scheme}://{address}/path?query=1");
    Request::get(uri).body(Bytes::new()).unwrap()
}

#[tokio::test]
async fn an_answer_arrives_whole_whatever_it_says() {
    for (status, answer) in [
        (200, "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"),
        (500, "HTTP/1.1 500 No\r\nconnection: close\r\n\r\nhello"),
        (
            302,
            "HTTP/1.1 302 Elsewhere\r\nlocation: /other\r\ncontent-length: 5\r\n\r\nhello",
        ),
    ] {
        let (address, mut seen) = server(Script::Send(answer), None).await;
        let response = client(|_| {}).send(get("http", address)).await.unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.body(), "hello");
        let head = seen.recv().await.unwrap();
        assert!(head.starts_with("GET /path?query=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("user-agent: owlclaw-mcp/"), "{head}");
        assert!(seen.try_recv().is_err(), "a redirect was followed");
    }
}

#[tokio::test]
async fn whoever_hangs_is_given_up() {
    for script in [
        Script::Hang(""),
        Script::Hang("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhe"),
    ] {
        // On a busy machine it may be over before anything is sent.
        let mut was_sent = false;
        for milliseconds in [200, 2_000, 10_000] {
            let (address, _seen) = server(script, None).await;
            let timeout = Duration::from_millis(milliseconds);
            let client = client(|options| options.timeout = timeout);
            let error = client.send(get("http", address)).await.unwrap_err();
            assert!(matches!(error, SendError::TimedOut), "{error:?}");
            was_sent = error.was_sent();
            if was_sent {
                break;
            }
        }
        assert!(was_sent);
    }
}

#[tokio::test]
async fn an_answer_has_a_bound() {
    for script in [
        Script::Hang("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n"),
        Script::Flood("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"),
    ] {
        let (address, _seen) = server(script, None).await;
        let client = client(|options| options.max_body = 10);
        let error = client.send(get("http", address)).await.unwrap_err();
        assert!(matches!(error, SendError::TooLarge(10)), "{error:?}");
    }
    let exact = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n0123456789";
    let (address, _seen) = server(Script::Send(exact), None).await;
    let client = client(|options| options.max_body = 10);
    let response = client.send(get("http", address)).await.unwrap();
    assert_eq!(response.body(), "0123456789");
}

#[tokio::test]
async fn it_is_told_whether_the_request_may_have_arrived() {
    // Kept, so that nobody else listens there meanwhile; nobody accepts without listening.
    let silent = tokio::net::TcpSocket::new_v4().unwrap();
    silent.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = silent.local_addr().unwrap();
    let error = client(|_| {}).send(get("http", address)).await.unwrap_err();
    assert!(matches!(error, SendError::Unreachable(_)), "{error:?}");
    assert!(!error.was_sent());

    let (address, _seen) = server(Script::Send(""), None).await;
    let error = client(|_| {}).send(get("http", address)).await.unwrap_err();
    assert!(matches!(error, SendError::Broken(_)), "{error:?}");
    assert!(error.was_sent());
}

#[tokio::test]
async fn a_port_that_speaks_no_tls_is_named_as_such() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _ = stream.read(&mut [0; 4096]).await;
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let error = client(|_| {})
        .send(get("https", address))
        .await
        .unwrap_err();
    assert!(matches!(error, SendError::Unreachable(_)), "{error:?}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("does not speak TLS"), "{cause}");
    assert!(cause.contains("http://"), "{cause}");
}

#[tokio::test]
async fn what_must_be_encrypted_is_not_sent_otherwise() {
    let (address, mut seen) = server(Script::Send("HTTP/1.1 200 OK\r\n\r\n"), None).await;
    let strict = client(|options| options.https_only = true);
    let error = strict.send(get("http", address)).await.unwrap_err();
    assert!(matches!(error, SendError::NotEncrypted), "{error:?}");
    assert!(seen.try_recv().is_err());
    for uri in [
        "/path",
        "ftp://example.com/",
        "example.com:80",
        // Such a port is none to the parser, and would be 80.
        "http://127.0.0.1:99999/",
        "http://u:p@127.0.0.1/",
    ] {
        let request = Request::get(uri).body(Bytes::new()).unwrap();
        let error = client(|_| {}).send(request).await.unwrap_err();
        assert!(
            matches!(error, SendError::BadAddress(_)),
            "{uri}: {error:?}"
        );
    }
}

#[tokio::test]
async fn a_server_is_trusted_if_its_authority_is() {
    let (acceptor, authority) = acceptor();
    let script = Script::Send("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsealed");
    let (address, mut seen) = server(script, Some(acceptor)).await;
    let trusting = client(|options| {
        options.authorities = authority.into_bytes();
        options.https_only = true;
    });
    let response = trusting.send(get("https", address)).await.unwrap();
    assert_eq!(response.body(), "sealed");
    assert!(seen.recv().await.is_some());

    let stranger = client(|_| {});
    let error = stranger.send(get("https", address)).await.unwrap_err();
    assert!(matches!(error, SendError::Unreachable(_)), "{error:?}");
    assert!(seen.try_recv().is_err());
}

#[test]
fn a_text_without_certificates_is_told() {
    let with = |text: &str| {
        let options = ClientOptions {
            authorities: text.into(),
            ..ClientOptions::default()
        };
        Client::new(options).unwrap_err()
    };
    assert!(matches!(with("hello"), ClientError::NoAuthorities));
    let torn = "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n";
    assert!(matches!(with(torn), ClientError::Authorities(_)));
}

/// A server's side of TLS for 127.0.0.1, and its authority as PEM.
fn acceptor() -> (TlsAcceptor, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_certificate = authority.self_signed(&authority_key).unwrap();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = CertificateParams::new(names).unwrap();
    let certificate = certificate.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let pem = pem(authority_certificate.der());
    (TlsAcceptor::from(Arc::new(config)), pem)
}

fn pem(der: &[u8]) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let der = BASE64_STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{der}\n-----END CERTIFICATE-----\n")
}

#[tokio::test]
async fn a_client_goes_no_further_than_its_reach() {
    let (address, mut seen) = server(Script::Send("HTTP/1.1 204 No Content\r\n\r\n"), None).await;
    let port = address.port();
    let allowed = |name: &str| AllowPrivate::parse([name]).unwrap();
    let named = |name: &str| HostList::new([name]);
    for (reach, host, is_reached) in [
        (Reach::Any, "127.0.0.1", true),
        (Reach::default(), "127.0.0.1", false),
        (Reach::default(), "[::ffff:127.0.0.1]", false),
        // A resolver takes this for 127.0.0.1, and a parser does not.
        (Reach::default(), "2130706433", false),
        (Reach::default(), "localhost", false),
        (Reach::Public(allowed("127.0.0.0/8")), "127.0.0.1", true),
        (
            Reach::Named(named("example.com"), allowed("127.0.0.0/8")),
            "127.0.0.1",
            false,
        ),
        (
            Reach::Named(named("127.0.0.1"), allowed("127.0.0.0/8")),
            "127.0.0.1",
            true,
        ),
        (
            Reach::Named(named("127.0.0.1"), AllowPrivate::default()),
            "127.0.0.1",
            false,
        ),
    ] {
        let client = client(|options| options.reach = reach.clone());
        let request = Request::get(format!("http://{host}:{port}/"));
        let sent = client.send(request.body(Bytes::new()).unwrap()).await;
        match is_reached {
            true => assert_eq!(sent.unwrap().status(), 204, "{reach:?} {host}"),
            false => {
                let error = sent.unwrap_err();
                assert!(
                    matches!(error, SendError::Forbidden(_)),
                    "{reach:?} {host}: {error:?}"
                );
                assert!(!error.was_sent());
            }
        }
        assert_eq!(seen.try_recv().is_ok(), is_reached, "{reach:?} {host}");
    }
}

#[tokio::test]
async fn a_refusal_names_the_setting_of_whoever_made_the_client() {
    let none = AllowPrivate::default();
    for (private, cure) in [
        (none.clone(), "in a network that is not public"),
        (
            none.of_setting("upstreams.x.allow_private"),
            "not public; name it in `upstreams.x.allow_private` if it may be reached",
        ),
    ] {
        let reach = Reach::Public(private);
        let checked = reach.check("127.0.0.1").unwrap_err().to_string();
        let client = client(|options| options.reach = reach.clone());
        let request = Request::get("http://localhost:1/").body(Bytes::new());
        let error = client.send(request.unwrap()).await.unwrap_err();
        let sent = std::error::Error::source(&error).unwrap().to_string();
        for told in [checked, sent] {
            assert!(told.contains(cure), "{told}");
            assert_eq!(told.contains("name it in"), cure.contains("name it in"));
        }
    }
    let named = Reach::Named(
        HostList::new(["a.example"]).of_setting("hosts"),
        AllowPrivate::default(),
    );
    let told = named.check("b.example").unwrap_err().to_string();
    assert_eq!(told, "the host `b.example` is not in `hosts`");
}

/// A server that answers requests on connections that it keeps, and the number of connections it has taken. A request
/// for `/last` is answered, and its connection is closed after that; one for `/hang` is not answered.
async fn keeping_server() -> (SocketAddr, Arc<AtomicUsize>, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (taken, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (counted, opened) = (Arc::clone(&taken), Arc::clone(&open));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            opened.fetch_add(1, Ordering::SeqCst);
            let opened = Arc::clone(&opened);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if head.ends_with(b"\r\n\r\n") {
                        if head.starts_with(b"GET /hang ") {
                            let _ = stream.read_u8().await;
                            break;
                        }
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        if stream.write_all(answer).await.is_err()
                            || head.starts_with(b"GET /last ")
                        {
                            break;
                        }
                        head.clear();
                    }
                }
                opened.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    (address, taken, open)
}

fn get_path(address: SocketAddr, path: &str) -> Request<Bytes> {
    let url = format!("http://{address}{path}");
    Request::get(url).body(Bytes::new()).unwrap()
}

/// Waits until `count` is `expected`.
async fn becomes(count: &AtomicUsize, expected: usize) {
    for _ in 0..1000 {
        if count.load(Ordering::SeqCst) == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(count.load(Ordering::SeqCst), expected);
}

#[tokio::test]
async fn a_connection_is_kept_for_the_next_request() {
    let (address, taken, _) = keeping_server().await;
    let client = client(|_| {});
    for _ in 0..20 {
        let response = client.send(get_path(address, "/")).await.unwrap();
        assert_eq!(response.body(), "ok");
        let response = client.open(get_path(address, "/"), None).await.unwrap();
        assert_eq!(response.into_body().rest(10).await.unwrap(), "ok");
    }
    assert_eq!(taken.load(Ordering::SeqCst), 1);
    // An answer that was not read leaves the connection unfit for another.
    drop(client.open(get_path(address, "/"), None).await.unwrap());
    client.send(get_path(address, "/")).await.unwrap();
    assert_eq!(taken.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_is_replaced() {
    let (address, taken, open) = keeping_server().await;
    let client = client(|_| {});
    for round in 1..=5 {
        client.send(get_path(address, "/last")).await.unwrap();
        assert_eq!(taken.load(Ordering::SeqCst), round);
        becomes(&open, 0).await;
        // The client has to see it, too: a request on its way to a connection that is closed is lost.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_not_used_is_closed() {
    let (address, taken, open) = keeping_server().await;
    let client = client(|options| options.idle_timeout = Duration::from_millis(200));
    for round in 1..=2 {
        client.send(get_path(address, "/")).await.unwrap();
        assert_eq!(taken.load(Ordering::SeqCst), round);
        assert_eq!(open.load(Ordering::SeqCst), 1);
        becomes(&open, 0).await;
    }
}

#[tokio::test]
async fn a_host_has_no_more_connections_than_allowed() {
    let (address, taken, open) = keeping_server().await;
    let client = client(|options| options.max_connections = 2);
    let hang = || {
        let client = client.clone();
        tokio::spawn(async move { client.send(get_path(address, "/hang")).await })
    };
    let (first, second) = (hang(), hang());
    becomes(&taken, 2).await;
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.send(get_path(address, "/")).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    assert_eq!(taken.load(Ordering::SeqCst), 2);
    // One that is given up makes room, and closes its connection.
    first.abort();
    waiting.await.unwrap().unwrap();
    assert_eq!(taken.load(Ordering::SeqCst), 3);
    becomes(&open, 2).await;
    second.abort();
}
