//! Clients that are let in, and clients that are not: keys that come and go while the server runs,
//! issuers that change their keys, hang and lie, and any other credentials that a client may send.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ledger::{LedgerReader, NoteFilter, NoteKind, ReadLedger};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::{
    GENEROUS, HttpRequest, HttpResponse, HttpServer, MODERN, OldSse, SseStream, StdioServer,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::support::{END, Site, call, log, run};

const RESOURCE: &str = "https://tools.example/mcp";
const METADATA: &str = "https://tools.example/.well-known/oauth-protected-resource/mcp";

fn request(method: &str, params: Value) -> HttpRequest {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    HttpRequest::post("/mcp", message.to_string())
}

fn list() -> HttpRequest {
    request("tools/list", json!({}))
}

async fn ask(server: &HttpServer, request: &HttpRequest) -> HttpResponse {
    server.client().exchange(request).await
}

fn bearer(request: HttpRequest, token: &str) -> HttpRequest {
    request.header("authorization", &format!("Bearer {token}"))
}

/// Asks until the answer has this status: nothing tells that a server has read a file.
async fn becomes(server: &HttpServer, request: &HttpRequest, status: u16) -> HttpResponse {
    let end = Instant::now() + GENEROUS;
    loop {
        let response = ask(server, request).await;
        if response.status == status {
            return response;
        }
        assert!(Instant::now() < end, "never {status}: {response:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until health says whether everybody who is known can be recognised. Whether it says so or not,
/// balancers are not sent elsewhere: there it would be the same.
async fn is_recognised(server: &HttpServer, is_so: bool) {
    let end = Instant::now() + GENEROUS;
    loop {
        let told = ask(server, &HttpRequest::get("/health")).await;
        assert_eq!(told.status, 200, "{told:?}");
        let text = told.text();
        if text.contains("degraded") != is_so && text.contains("\"identity\"") != is_so {
            return;
        }
        assert!(Instant::now() < end, "never {is_so}: {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn create(site: &Site, words: &[&str]) -> String {
    let said = run(site.command(&[&["keys", "create"], words].concat())).await;
    assert_eq!(said.code, Some(0), "{}", said.messages);
    said.output.trim().to_owned()
}

fn id(key: &str) -> &str {
    key.split('_').nth(1).unwrap()
}

fn with_keys() -> Site {
    Site::new(json!({"identity": {"api_keys": {"file": "keys.json"}}}))
}

#[tokio::test]
async fn keys_come_and_go_while_the_server_runs() {
    let site = with_keys();
    let refused = run(site.command(&["start", "--transport", "http"])).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.messages.contains("keys create"),
        "{}",
        refused.messages
    );

    let ana = create(&site, &["--principal", "ana", "--label", "first"]).await;
    let mut server = site.http().await;
    let nobody = ask(&server, &list()).await;
    assert_eq!(nobody.status, 401);
    // Whoever is told to come with something is told with what, and not of issuers that there are none.
    let register = ask(&server, &HttpRequest::post("/register", "{}")).await;
    assert_eq!(register.status, 404);
    assert_eq!(register.json()["error"], "access_denied");
    for told in [nobody.text(), register.text()] {
        assert!(
            told.contains("X-API-Key") && told.contains("keys create"),
            "{told}"
        );
        assert!(
            !told.contains("token of") && !told.contains("oauth"),
            "{told}"
        );
    }
    assert_eq!(
        nobody.header("www-authenticate"),
        Some("Bearer realm=\"owlclaw-mcp\"")
    );
    assert_eq!(nobody.json()["error"]["data"]["retryable"], false);
    assert_eq!(ask(&server, &bearer(list(), &ana)).await.status, 200);
    assert_eq!(
        ask(&server, &list().header("x-api-key", &ana)).await.status,
        200
    );
    // A name that is claimed is nobody's.
    let claimed = list().header("x-mcp-client-id", "ana");
    assert_eq!(ask(&server, &claimed).await.status, 401);

    // Made, replaced and taken back: the server hears of each.
    let ben = create(&site, &["--principal", "ben", "--role", "operator"]).await;
    becomes(&server, &bearer(list(), &ben), 200).await;
    let rotated = run(site.command(&["keys", "rotate", id(&ben), "--overlap", "0s"])).await;
    let newer = rotated.output.trim().to_owned();
    becomes(&server, &bearer(list(), &newer), 200).await;
    let old = becomes(&server, &bearer(list(), &ben), 401).await;
    let challenge = old.header("www-authenticate").unwrap();
    assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    assert!(challenge.contains("revoked"), "{challenge}");
    let short = create(&site, &["--principal", "cleo", "--expires", "2s"]).await;
    becomes(&server, &bearer(list(), &short), 200).await;
    let late = becomes(&server, &bearer(list(), &short), 401).await;
    assert!(late.text().contains("expired"), "{}", late.text());
    assert_eq!(
        run(site.command(&["keys", "revoke", id(&newer)]))
            .await
            .code,
        Some(0)
    );
    becomes(&server, &bearer(list(), &newer), 401).await;
    assert_eq!(
        run(site.command(&["keys", "revoke", id(&newer)]))
            .await
            .code,
        Some(1)
    );

    // What cannot be read takes nothing back, and health says so until it can.
    let good = site.read("keys.json");
    std::fs::write(site.path("keys.json"), "{").unwrap();
    is_recognised(&server, false).await;
    assert_eq!(ask(&server, &bearer(list(), &ana)).await.status, 200);
    std::fs::write(site.path("keys.json"), good).unwrap();
    is_recognised(&server, true).await;

    let listed = run(site.command(&["keys", "list", "--format", "json"])).await;
    let listed: Value = serde_json::from_str(&listed.output).unwrap();
    let states: Vec<&str> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|key| key["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["active", "revoked", "revoked", "expired"]);

    let echo = request("tools/call", call("echo", json!({"text": "x"})));
    assert_eq!(ask(&server, &bearer(echo, &ana)).await.status, 200);
    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let called = site.calls();
    assert_eq!(&*called.last().unwrap().started.principal, "ana");
    let mut reader = LedgerReader::open(site.path("ledger.db")).unwrap();
    let mut notes = reader.notes(1_000, NoteFilter::default()).unwrap();
    notes.retain(|note| note.noted.kind == NoteKind::KEY_CHANGED);
    let whats: Vec<String> = notes
        .iter()
        .map(|note| note.noted.detail.text.clone())
        .collect();
    for what in ["created", "revoked"] {
        assert!(
            whats.iter().any(|detail| detail.contains(what)),
            "{what}: {whats:?}"
        );
    }
    // Neither the log nor the ledger has a credential.
    for key in [&ana, &ben, &newer, &short] {
        let secret = key.splitn(3, '_').nth(2).unwrap();
        assert!(!server.stderr().contains(secret));
        assert!(!format!("{whats:?}").contains(secret));
    }
    let lines = log(&server.stderr());
    assert!(
        lines
            .iter()
            .any(|line| line["message"] == "a request was not let in")
    );
}

/// The three kinds of streams that are open for as long as somebody likes.
async fn streams(server: &HttpServer, key: &str) -> (SseStream, SseStream, OldSse) {
    let client = || server.client().with_header("x-api-key", key);
    let mut modern = client();
    modern.speak(MODERN);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let listen = modern.voice.request("subscriptions/listen", filter);
    let mut listening = modern.stream(&modern.post_of(&listen)).await;
    listening.message().await;
    let mut legacy = client();
    legacy.initialize("2025-11-25").await;
    let own = legacy.listen().await;
    (listening, own, client().open_old_sse("/mcp/sse").await)
}

async fn end(streams: (SseStream, SseStream, OldSse)) {
    let (mut listening, mut own, mut old) = streams;
    for stream in [&mut listening, &mut own, old.stream()] {
        let rest = tokio::time::timeout(GENEROUS, stream.rest()).await;
        rest.expect("the stream ends");
    }
}

#[tokio::test]
async fn streams_end_with_the_key_they_were_opened_with() {
    let site = with_keys();
    let ana = create(&site, &["--principal", "ana"]).await;
    let ben = create(&site, &["--principal", "ben", "--role", "reader"]).await;
    let cleo = create(&site, &["--principal", "cleo"]).await;
    let server = site.http().await;
    let (anas, bens, mut cleos) = (
        streams(&server, &ana).await,
        streams(&server, &ben).await,
        streams(&server, &cleo).await,
    );

    run(site.command(&["keys", "revoke", id(&ana)])).await;
    end(anas).await;
    // Other roles make another of it, even where the name stays.
    let changed = site.read("keys.json").replace("reader", "writer");
    std::fs::write(site.path("keys.json"), changed).unwrap();
    end(bens).await;
    becomes(&server, &bearer(list(), &ben), 200).await;

    // One that is replaced is good for a while, and so is what was opened with it.
    let rotated = run(site.command(&["keys", "rotate", id(&cleo)])).await;
    becomes(&server, &bearer(list(), rotated.output.trim()), 200).await;
    let mut client = server.client().with_header("x-api-key", &cleo);
    let posted = cleos
        .2
        .post(br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#)
        .await;
    assert_eq!(posted.status, 202, "the session is there still");
    assert_eq!(cleos.2.stream().message().await["id"], 7);
    client.initialize("2025-11-25").await;
    run(site.command(&["keys", "revoke", id(&cleo)])).await;
    end(cleos).await;
}

#[tokio::test]
async fn nothing_but_health_and_metadata_answers_strangers() {
    let site = with_keys();
    let ana = create(&site, &["--principal", "ana"]).await;
    let ben = create(&site, &["--principal", "ben"]).await;
    let server = site.http().await;
    let initialize = json!({
        "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": {"name": "t", "version": "1"},
    });
    for stranger in [
        list(),
        request("initialize", initialize.clone()),
        request("ping", json!({})),
        request("server/discover", json!({})),
        request("nonsense", json!({})),
        HttpRequest::post("/mcp", "rubbish"),
        HttpRequest::post("/mcp", "[]"),
        HttpRequest::get("/mcp").header("accept", "text/event-stream"),
        HttpRequest::new("DELETE", "/mcp"),
        HttpRequest::get("/mcp/sse").header("accept", "text/event-stream"),
        HttpRequest::get("/sse").header("accept", "text/event-stream"),
        HttpRequest::post("/mcp/messages?sessionId=x", "{}"),
    ] {
        let response = ask(&server, &stranger).await;
        assert_eq!(response.status, 401, "{stranger:?}: {response:?}");
        assert!(response.header("www-authenticate").is_some());
    }
    for open in ["/health", "/health/live", "/health/ready"] {
        assert_eq!(
            ask(&server, &HttpRequest::get(open)).await.status,
            200,
            "{open}"
        );
    }
    // There is no issuer, so there is nothing to say of any.
    let metadata = HttpRequest::get("/.well-known/oauth-protected-resource");
    assert_eq!(ask(&server, &metadata).await.status, 404);

    // What is odd is refused, not guessed.
    let rows = [
        (bearer(bearer(list(), &ana), &ana), 400),
        (bearer(list(), &ana).header("x-api-key", &ben), 401),
        (bearer(list(), &ana).header("x-api-key", &ana), 200),
        (bearer(list(), &format!("{ana}x")), 400),
        (bearer(list(), &ana.replace(id(&ana), "000000000000")), 401),
        (list().header("authorization", &format!("Basic {ana}")), 401),
        (
            list().header("x-api-key", &ana).header("x-api-key", &ana),
            400,
        ),
        (bearer(list(), "a.b.c"), 401),
    ];
    for (row, expected) in rows {
        assert_eq!(ask(&server, &row).await.status, expected, "{row:?}");
    }
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).to_string();
    for target in [
        format!("/mcp?access_token={ana}"),
        format!("/mcp?api_key={ana}"),
    ] {
        let alone = HttpRequest::post(&target, &body);
        assert_eq!(ask(&server, &alone).await.status, 400, "{target}");
        assert_eq!(
            ask(&server, &bearer(alone, &ana)).await.status,
            400,
            "{target}"
        );
    }

    // A session of somebody else is none.
    let opened = ask(&server, &bearer(request("initialize", initialize), &ana)).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let in_session = |key| bearer(list(), key).header("mcp-session-id", &session);
    assert_eq!(ask(&server, &in_session(&ana)).await.status, 200);
    assert_eq!(ask(&server, &in_session(&ben)).await.status, 404);
    let anonymous = list().header("mcp-session-id", &session);
    assert_eq!(ask(&server, &anonymous).await.status, 401);
}

#[tokio::test]
async fn an_open_address_needs_proofs_and_no_more() {
    let site = Site::new(json!({
        "http": {"host": "0.0.0.0"},
        "identity": {"api_keys": {"file": "keys.json"}},
    }));
    let ana = create(&site, &["--principal", "ana"]).await;
    let server = site.http().await;
    assert_eq!(ask(&server, &list()).await.status, 401);
    assert_eq!(ask(&server, &bearer(list(), &ana)).await.status, 200);
    assert!(
        server.stderr().contains("without encryption"),
        "{}",
        server.stderr()
    );
}

#[tokio::test]
async fn on_stdio_a_key_says_who_has_started_the_server() {
    let site = Site::new(json!({
        "identity": {"api_keys": {"file": "keys.json"}, "stdio": "required"},
    }));
    let ana = create(&site, &["--principal", "ana"]).await;
    let started = |key: Option<&str>| {
        let mut command = site.command(&["start"]);
        command.env("MCP_CLIENT_ID", "root");
        if let Some(key) = key {
            command.env("OWLCLAW_API_KEY", key);
        }
        command
    };
    for key in [None, Some("owl_000000000000_x"), Some("x")] {
        let refused = run(started(key)).await;
        assert_eq!(refused.code, Some(1), "{key:?}");
        assert!(
            refused.messages.contains("OWLCLAW_API_KEY"),
            "{}",
            refused.messages
        );
    }
    let mut server = StdioServer::spawn(started(Some(&ana)));
    let echo = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call("echo", json!({"text": "x"}))});
    server.send(&echo).await;
    server.receive_answer(&json!(1)).await;
    // The key ends, and so does what it has begun.
    assert_eq!(
        run(site.command(&["keys", "revoke", id(&ana)])).await.code,
        Some(0)
    );
    assert!(
        server.wait_exit(GENEROUS).await.success(),
        "{}",
        server.stderr()
    );
    assert_eq!(&*site.calls()[0].started.principal, "ana");
}

/// An issuer that answers over HTTP.
struct Issuer {
    address: SocketAddr,
    keys: Arc<Mutex<Value>>,
    fetches: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
}

impl Issuer {
    async fn start(keys: Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Self {
            address: listener.local_addr().unwrap(),
            keys: Arc::new(Mutex::new(keys)),
            fetches: Arc::default(),
            hangs: Arc::default(),
        };
        let (keys, fetches, hangs) = (
            Arc::clone(&issuer.keys),
            Arc::clone(&issuer.fetches),
            Arc::clone(&issuer.hangs),
        );
        let address = issuer.address;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (keys, fetches, hangs) =
                    (Arc::clone(&keys), Arc::clone(&fetches), Arc::clone(&hangs));
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        match stream.read_u8().await {
                            Ok(byte) => head.push(byte),
                            Err(_) => return,
                        }
                    }
                    fetches.fetch_add(1, Ordering::SeqCst);
                    if hangs.load(Ordering::SeqCst) {
                        std::future::pending::<()>().await;
                    }
                    let head = String::from_utf8_lossy(&head);
                    let body = if head.contains("/.well-known/openid-configuration ") {
                        // What it says of itself.
                        let own = format!("http://{address}");
                        json!({"issuer": own, "jwks_uri": format!("{own}/keys")})
                    } else {
                        keys.lock().unwrap().clone()
                    };
                    let body = body.to_string();
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
                         connection: close\r\n\r\n{body}",
                        body.len()
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        issuer
    }

    fn url(&self) -> String {
        format!("http://{}/keys", self.address)
    }

    fn say(&self, pairs: &[(&Pair, &str)]) {
        *self.keys.lock().unwrap() = set(pairs);
    }
}

fn set(pairs: &[(&Pair, &str)]) -> Value {
    json!({"keys": pairs.iter().map(|(pair, id)| pair.jwk(id)).collect::<Vec<_>>()})
}

struct Pair(EcdsaKeyPair);

impl Pair {
    fn new() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap())
    }

    fn jwk(&self, id: &str) -> Value {
        let (x, y) = self.0.public_key().as_ref()[1..].split_at(32);
        json!({"kty": "EC", "crv": "P-256", "kid": id, "x": base64url(x), "y": base64url(y)})
    }

    fn token(&self, id: &str, claims: &Value) -> String {
        self.signed(&json!({"alg": "ES256", "kid": id, "typ": "at+jwt"}), claims)
    }

    fn public(&self) -> Value {
        let mut jwk = self.jwk("");
        jwk.as_object_mut().unwrap().remove("kid");
        jwk
    }

    /// Thumbprint of the public half (RFC 7638).
    fn thumbprint(&self) -> String {
        let jwk = self.public();
        let text = format!(
            "{{\"crv\":{},\"kty\":{},\"x\":{},\"y\":{}}}",
            jwk["crv"], jwk["kty"], jwk["x"], jwk["y"]
        );
        base64url(&Sha256::digest(text))
    }

    /// A request with a token that is bound to this key, and a proof with these claims besides the usual ones.
    fn proved(&self, request: HttpRequest, token: &str, more: &Value) -> HttpRequest {
        let mut claims = json!({
            "jti": base64url(&random()),
            "htm": "POST", "htu": RESOURCE, "iat": now(), "ath": base64url(&Sha256::digest(token)),
        });
        for (name, value) in more.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let header = json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": self.public()});
        let proof = self.signed(&header, &claims);
        let request = request.header("authorization", &format!("DPoP {token}"));
        request.header("dpop", &proof)
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let signed = unsigned(header, claims);
        let signature = self
            .0
            .sign(&SystemRandom::new(), signed.as_bytes())
            .unwrap();
        format!("{signed}.{}", base64url(signature.as_ref()))
    }
}

fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    ring::rand::SecureRandom::fill(&SystemRandom::new(), &mut bytes).unwrap();
    bytes
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| base64url(value.to_string().as_bytes());
    format!("{}.{}", part(header), part(claims))
}

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn claims(issuer: &str, subject: &str) -> Value {
    json!({"iss": issuer, "aud": RESOURCE, "sub": subject, "exp": now() + 300, "scope": "mcp"})
}

const CORP: &str = "https://corp.example";
const PARTNER: &str = "https://partner.example";

fn with_issuers(corp: &Issuer, partner: &Issuer) -> Site {
    Site::new(json!({"identity": {"resource": RESOURCE, "jwt": {
        "corp": {
            "issuer": CORP, "jwks_url": corp.url(), "principal_prefix": "corp:",
            "required_scopes": ["mcp"], "min_refetch_seconds": 1,
        },
        "partner": {
            "issuer": PARTNER, "jwks_url": partner.url(), "principal_prefix": "partner:",
            "min_refetch_seconds": 1,
        },
    }}}))
}

#[tokio::test]
async fn tokens_of_two_issuers_are_told_apart_and_forged_ones_refused() {
    let (ours, theirs) = (Pair::new(), Pair::new());
    let corp = Issuer::start(set(&[(&ours, "k")])).await;
    let partner = Issuer::start(set(&[(&theirs, "k")])).await;
    let site = with_issuers(&corp, &partner);
    let mut server = site.http().await;
    is_recognised(&server, true).await;

    // Where to get tokens is told to who has none.
    let nobody = ask(&server, &list()).await;
    let challenge = format!("Bearer resource_metadata=\"{METADATA}\", scope=\"mcp\"");
    assert_eq!(
        (nobody.status, nobody.header("www-authenticate")),
        (401, Some(challenge.as_str()))
    );
    for path in [
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-protected-resource",
    ] {
        let metadata = ask(&server, &HttpRequest::get(path)).await;
        assert_eq!(
            (metadata.status, metadata.media_type()),
            (200, Some("application/json"))
        );
        let metadata = metadata.json();
        assert_eq!(metadata["resource"], RESOURCE);
        assert_eq!(metadata["authorization_servers"], json!([CORP, PARTNER]));
        assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
    }

    let echo = || request("tools/call", call("echo", json!({"text": "x"})));
    let good = ours.token("k", &claims(CORP, "ana"));
    assert_eq!(ask(&server, &bearer(echo(), &good)).await.status, 200);
    let good = theirs.token("k", &claims(PARTNER, "ana"));
    assert_eq!(ask(&server, &bearer(echo(), &good)).await.status, 200);

    let mut narrow = claims(CORP, "ana");
    narrow["scope"] = json!("other");
    let refused = ask(&server, &bearer(list(), &ours.token("k", &narrow))).await;
    let challenge = refused.header("www-authenticate").unwrap();
    assert_eq!(refused.status, 403);
    assert!(
        challenge.contains("error=\"insufficient_scope\"") && challenge.contains("scope=\"mcp\""),
        "{challenge}"
    );
    assert!(challenge.contains(METADATA), "{challenge}");

    let with = |name: &str, value: Value| {
        let mut claims = claims(CORP, "ana");
        claims[name] = value;
        ours.token("k", &claims)
    };
    let header = |header: Value| unsigned(&header, &claims(CORP, "ana"));
    let hmac_signed = {
        let signed = header(json!({"alg": "HS256", "kid": "k"}));
        let key = hmac::Key::new(hmac::HMAC_SHA256, ours.jwk("k").to_string().as_bytes());
        format!(
            "{signed}.{}",
            base64url(hmac::sign(&key, signed.as_bytes()).as_ref())
        )
    };
    let forged = [
        ("none", format!("{}.", header(json!({"alg": "none"})))),
        ("shared secret", hmac_signed),
        (
            "the key of the other issuer",
            theirs.token("k", &claims(CORP, "ana")),
        ),
        (
            "an unknown issuer",
            ours.token("k", &claims("https://evil.example", "ana")),
        ),
        (
            "an audience of others",
            with("aud", json!("https://other.example/mcp")),
        ),
        ("expired", with("exp", json!(now() - 60))),
        ("not yet", with("nbf", json!(now() + 120))),
        ("nobody", with("sub", json!(""))),
        (
            "a key by its path",
            ours.token("../../k", &claims(CORP, "ana")),
        ),
        ("a key with a null", ours.token("k\0", &claims(CORP, "ana"))),
    ];
    for (what, token) in &forged {
        let refused = ask(&server, &bearer(list(), token)).await;
        assert_eq!(refused.status, 401, "{what}: {refused:?}");
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(
            challenge.contains("error=\"invalid_token\""),
            "{what}: {challenge}"
        );
    }
    assert_eq!(ask(&server, &bearer(list(), "a.b")).await.status, 400);

    // Somebody who does nothing but forge is not looked at any more; who is known still is.
    let forged = theirs.token("k", &claims(CORP, "eve"));
    becomes_many(&server, &bearer(list(), &forged), 429).await;
    assert_eq!(ask(&server, &bearer(list(), &good)).await.status, 200);

    server.process().signal("TERM").await;
    assert!(server.wait_exit(END).await.success());
    let names: Vec<String> = site
        .calls()
        .iter()
        .map(|call| call.started.principal.to_string())
        .collect();
    assert_eq!(names, ["corp:ana", "partner:ana"]);
    for token in [&good, &forged] {
        assert!(!server.stderr().contains(token.as_str()));
        assert!(!server.stderr().contains(token.rsplit('.').next().unwrap()));
    }
}

#[tokio::test]
async fn a_token_that_is_bound_to_a_key_is_good_with_a_fresh_proof_of_it_alone() {
    let (issuer, key, other) = (Pair::new(), Pair::new(), Pair::new());
    let corp = Issuer::start(set(&[(&issuer, "k")])).await;
    let partner = Issuer::start(set(&[(&issuer, "k")])).await;
    let site = with_issuers(&corp, &partner);
    let file = site.read("mcp-server.yaml");
    let mut file: Value = serde_json::from_str(&file).unwrap();
    file["mcp_server"]["http"]["websocket"] = json!({"enabled": true});
    site.write("mcp-server.yaml", file.to_string());
    let server = site.http().await;
    is_recognised(&server, true).await;
    // Proofs tell whole seconds, and those of the second in which the server has started need a nonce.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let bound = |key: &Pair| {
        let mut claims = claims(CORP, "ana");
        claims["cnf"] = json!({"jkt": key.thumbprint()});
        issuer.token("k", &claims)
    };
    let token = bound(&key);
    let free = issuer.token("k", &claims(CORP, "bob"));
    let none = json!({});
    let good = key.proved(list(), &token, &none);
    assert_eq!(ask(&server, &good).await.status, 200);
    let queried = json!({"htu": format!("{RESOURCE}?x=1")});
    let also = key.proved(list(), &token, &queried);
    assert_eq!(ask(&server, &also).await.status, 200);
    // Each route has its own address.
    let health = |htu: &str| {
        let more = json!({"htm": "GET", "htu": htu});
        key.proved(HttpRequest::get("/metrics"), &token, &more)
    };
    let origin = RESOURCE.strip_suffix("/mcp").unwrap();
    let metrics = ask(&server, &health(&format!("{origin}/metrics"))).await;
    assert_eq!(metrics.status, 403, "who it is was proved: {metrics:?}");
    let upgrade = HttpRequest::get("/mcp/ws")
        .header("upgrade", "websocket")
        .header("connection", "upgrade")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "mcp")
        .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==");
    let refused = [
        ("a replay", good.clone()),
        ("a stolen token", bearer(list(), &token)),
        (
            "no proof",
            list().header("authorization", &format!("DPoP {token}")),
        ),
        (
            "a proof of another key",
            other.proved(list(), &token, &none),
        ),
        (
            "a proof for another token",
            key.proved(
                list(),
                &token,
                &json!({"ath": base64url(&Sha256::digest(&free))}),
            ),
        ),
        (
            "another method",
            key.proved(list(), &token, &json!({"htm": "GET"})),
        ),
        (
            "another address",
            key.proved(list(), &token, &json!({"htu": "https://evil.example/mcp"})),
        ),
        ("the address of another route", health(RESOURCE)),
        (
            "too old",
            key.proved(list(), &token, &json!({"iat": now() - 120})),
        ),
        (
            "too early",
            key.proved(list(), &token, &json!({"iat": now() + 120})),
        ),
        (
            "a WebSocket",
            key.proved(
                upgrade,
                &token,
                &json!({"htm": "GET", "htu": format!("{origin}/mcp/ws")}),
            ),
        ),
    ];
    for (what, request) in refused {
        let refused = ask(&server, &request).await;
        assert_eq!(refused.status, 401, "{what}: {refused:?}");
        let challenge = refused.header("www-authenticate").unwrap();
        assert!(
            challenge.starts_with("DPoP ")
                && challenge.contains("error=\"invalid_dpop_proof\"")
                && challenge.contains("algs=\"ES256"),
            "{what}: {challenge}"
        );
    }
    // A token without a key is one for `Bearer`, and a proof beside it changes nothing.
    assert_eq!(ask(&server, &bearer(list(), &free)).await.status, 200);
    let pretends = ask(&server, &key.proved(list(), &free, &none)).await;
    assert_eq!(pretends.status, 401, "{pretends:?}");
    let metadata = ask(
        &server,
        &HttpRequest::get("/.well-known/oauth-protected-resource"),
    )
    .await;
    let metadata = metadata.json();
    assert_eq!(metadata["dpop_bound_access_tokens_required"], false);
    assert_eq!(metadata["dpop_signing_alg_values_supported"][0], "ES256");
    // Many at once with one proof: one of them is let in.
    let once = key.proved(list(), &token, &none);
    let storm = (0..50).map(|_| {
        let (client, once) = (server.client(), once.clone());
        tokio::spawn(async move { client.exchange(&once).await.status })
    });
    let mut good = 0;
    for status in storm.collect::<Vec<_>>() {
        good += usize::from(status.await.unwrap() == 200);
    }
    assert_eq!(good, 1);
}

#[tokio::test]
async fn no_token_without_a_key_is_taken_where_that_is_wanted_and_proofs_have_a_nonce() {
    let (issuer, key) = (Pair::new(), Pair::new());
    let corp = Issuer::start(set(&[(&issuer, "k")])).await;
    let site = Site::new(json!({"identity": {
        "resource": RESOURCE, "jwt": {"corp": {"issuer": CORP, "jwks_url": corp.url()}},
        "dpop": {"required": true, "nonces": true},
    }}));
    let server = site.http().await;
    is_recognised(&server, true).await;
    let nobody = ask(&server, &list()).await;
    let challenge = nobody.header("www-authenticate").unwrap();
    assert!(challenge.starts_with("DPoP "), "{challenge}");
    let free = issuer.token("k", &claims(CORP, "ana"));
    let refused = ask(&server, &bearer(list(), &free)).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    let mut claims = claims(CORP, "ana");
    claims["cnf"] = json!({"jkt": key.thumbprint()});
    let token = issuer.token("k", &claims);
    let refused = ask(&server, &key.proved(list(), &token, &json!({}))).await;
    assert_eq!(refused.status, 401, "{refused:?}");
    let challenge = refused.header("www-authenticate").unwrap();
    assert!(
        challenge.contains("error=\"use_dpop_nonce\""),
        "{challenge}"
    );
    let nonce = json!({"nonce": refused.header("dpop-nonce").expect("a nonce")});
    for _ in 0..2 {
        let good = key.proved(list(), &token, &nonce);
        assert_eq!(ask(&server, &good).await.status, 200);
        assert_eq!(ask(&server, &good).await.status, 401, "it is good once");
    }
    let site = Site::new(
        json!({"transport": "http", "identity": {"api_keys": {}, "dpop": {"required": true}}}),
    );
    let said = run(site.command(&["config", "validate"])).await;
    let told = said.output + &said.messages;
    assert!(told.contains("`identity.dpop` is of no use"), "{told}");
}

/// Asks over and over, over one connection, until the status is this one.
async fn becomes_many(server: &HttpServer, request: &HttpRequest, status: u16) {
    let mut connection = server.client().connect().await;
    for _ in 0..20_000 {
        let (response, next) = connection.exchange(request).await;
        if response.status == status {
            return;
        }
        connection = next;
    }
    panic!("never {status}");
}

#[tokio::test]
async fn keys_of_an_issuer_change_and_an_issuer_that_hangs_harms_nobody_else() {
    let (old, new) = (Pair::new(), Pair::new());
    let corp = Issuer::start(set(&[(&old, "old")])).await;
    let partner = Issuer::start(set(&[(&new, "new")])).await;
    let site = with_issuers(&corp, &partner);
    let server = site.http().await;
    is_recognised(&server, true).await;
    let known = bearer(list(), &old.token("old", &claims(CORP, "ana")));
    assert_eq!(ask(&server, &known).await.status, 200);
    assert_eq!(corp.fetches.load(Ordering::SeqCst), 1);

    // The issuer signs with another key from now on. Whoever comes with it has it fetched, once for
    // all who come at the same time; with the old key nothing is fetched.
    corp.say(&[(&old, "old"), (&new, "next")]);
    let next = bearer(list(), &new.token("next", &claims(CORP, "ana")));
    becomes(&server, &next, 200).await;
    let after = corp.fetches.load(Ordering::SeqCst);
    let storm = (0..200).map(|number| {
        let request = bearer(
            list(),
            &new.token(&format!("none-{number}"), &claims(CORP, "ana")),
        );
        let client = server.client();
        tokio::spawn(async move { client.exchange(&request).await.status })
    });
    let began = Instant::now();
    for refused in storm.collect::<Vec<_>>() {
        let status = refused.await.unwrap();
        assert!(status == 401 || status == 429, "{status}");
    }
    let most = usize::try_from(began.elapsed().as_secs()).unwrap() + 2;
    let fetches = corp.fetches.load(Ordering::SeqCst) - after;
    assert!(fetches <= most, "{fetches} in {:?}", began.elapsed());

    // Whoever has guessed so much is not listened to for a while.
    let other = bearer(list(), &new.token("new", &claims(PARTNER, "ben")));
    becomes(&server, &other, 200).await;
    // One issuer hangs: its tokens with keys that are there, and those of the other, are as before.
    corp.hangs.store(true, Ordering::SeqCst);
    let before = corp.fetches.load(Ordering::SeqCst);
    let client = server.client();
    let unknown = bearer(list(), &new.token("unheard of", &claims(CORP, "ana")));
    let waiting = tokio::spawn(async move { client.exchange(&unknown).await.status });
    let end = Instant::now() + GENEROUS;
    while corp.fetches.load(Ordering::SeqCst) == before && !waiting.is_finished() {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Whoever waits for the issuer waits longer than that; but so may anybody on a busy machine.
    let mut waits = Vec::new();
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(ask(&server, &known).await.status, 200);
        assert_eq!(ask(&server, &other).await.status, 200);
        waits.push(began.elapsed());
        if began.elapsed() < Duration::from_secs(4) {
            break;
        }
    }
    assert!(
        waits.iter().any(|wait| *wait < Duration::from_secs(4)),
        "{waits:?}"
    );
    let status = tokio::time::timeout(GENEROUS, waiting)
        .await
        .unwrap()
        .unwrap();
    assert!([401, 429, 503].contains(&status), "{status}");
}

#[tokio::test]
async fn an_issuer_alone_is_asked_where_its_keys_are() {
    let (old, new) = (Pair::new(), Pair::new());
    let issuer = Issuer::start(set(&[(&old, "old")])).await;
    let own = format!("http://{}", issuer.address);
    let site = Site::new(json!({"identity": {"resource": RESOURCE, "jwt": {
        "corp": {"issuer": own, "principal_prefix": "corp:", "min_refetch_seconds": 1},
        // Another who would be at the same place.
        "other": {"issuer": format!("{own}/other"), "principal_prefix": "other:"},
    }}}));
    let server = site.http().await;
    let token =
        |pair: &Pair, id, issuer: &str| bearer(list(), &pair.token(id, &claims(issuer, "ana")));
    becomes(&server, &token(&old, "old", &own), 200).await;
    issuer.say(&[(&new, "new")]);
    becomes(&server, &token(&new, "new", &own), 200).await;
    becomes(&server, &token(&old, "old", &own), 401).await;
    let other = ask(&server, &token(&new, "new", &format!("{own}/other"))).await;
    assert_eq!(other.status, 503);
    is_recognised(&server, false).await;
    let said = server.stderr();
    assert!(said.contains("is that of another issuer"), "{said}");
}

#[tokio::test]
async fn an_issuer_that_is_down_is_said_to_be_until_it_is_back() {
    let pair = Pair::new();
    let corp = Issuer::start(json!("not keys")).await;
    let partner = Issuer::start(set(&[(&pair, "k")])).await;
    let site = with_issuers(&corp, &partner);
    let server = site.http().await;
    is_recognised(&server, false).await;
    let token = bearer(list(), &pair.token("k", &claims(CORP, "ana")));
    let refused = ask(&server, &token).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.header("retry-after").is_some());
    let other = bearer(list(), &pair.token("k", &claims(PARTNER, "ana")));
    becomes(&server, &other, 200).await;
    corp.say(&[(&pair, "k")]);
    becomes(&server, &token, 200).await;
    is_recognised(&server, true).await;
}
