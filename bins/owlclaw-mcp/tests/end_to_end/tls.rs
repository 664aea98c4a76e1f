//! Encryption, and the other ways by which strangers come: HTTP/2, a Unix socket, a proxy.

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};
use serde_json::{Value, json};
use testkit::{
    Conversation, GENEROUS, HttpConnection, HttpRequest, HttpServer, MODERN, wait_until,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UnixStream},
    process::Command,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    },
};

use crate::support::{END, Site, call, run};

/// Certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

/// A certificate and its key.
pub(crate) struct Issued {
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n")
}

impl Authority {
    pub(crate) fn new() -> Self {
        // By the same name as what it issues it would look like that.
        Self::named("an authority")
    }

    fn named(name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let names = &mut params.distinguished_name;
        names.push(rcgen::DnType::CommonName, name);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    /// List of the revoked certificates with these numbers, valid for this long.
    fn revokes(&self, numbers: &[u64], good_for: Duration) -> String {
        let since_1970 = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap();
        let beginning = rcgen::date_time_ymd(1970, 1, 1);
        let revoked = |number: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*number),
            revocation_time: rcgen::date_time_ymd(2020, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: beginning,
            next_update: beginning + since_1970 + good_for,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: numbers.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        pem("X509 CRL", list.signed_by(&self.issuer).unwrap().der())
    }

    pub(crate) fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued {
            certificate: certificate.der().clone(),
            key,
        }
    }
}

impl Issued {
    pub(crate) fn pem(&self) -> String {
        pem("CERTIFICATE", &self.certificate)
    }

    pub(crate) fn key_pem(&self) -> String {
        pem("PRIVATE KEY", &self.key.serialize_der())
    }

    /// Puts it where the server of `site` looks.
    fn install(&self, site: &Site) {
        site.write("key.pem", self.key_pem());
        restrict(&site.path("key.pem"), 0o600);
        site.write("chain.pem", self.pem());
    }
}

fn restrict(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// A site whose server encrypts, and who has issued its certificate.
pub(crate) fn site(more: Value) -> (Site, Authority) {
    site_of(json!({}), more)
}

/// The same with other settings.
pub(crate) fn site_of(mut settings: Value, more: Value) -> (Site, Authority) {
    let mut tls = json!({"enabled": true, "cert_file": "chain.pem", "key_file": "key.pem"});
    for (key, value) in more.as_object().unwrap() {
        tls[key] = value.clone();
    }
    settings["http"]["tls"] = tls;
    let site = Site::new(settings);
    let authority = Authority::new();
    authority.issue(|_| {}).install(&site);
    site.write("authority.pem", authority.pem());
    (site, authority)
}

/// Connects to whoever shows a certificate of `authority`.
pub(crate) async fn connect(
    address: SocketAddr,
    authority: &Authority,
    own: Option<&Issued>,
) -> std::io::Result<HttpConnection> {
    let stream = secured(address, authority, own).await?;
    Ok(HttpConnection::over(stream))
}

/// The same, to say something else than HTTP.
async fn secured(
    address: SocketAddr,
    authority: &Authority,
    own: Option<&Issued>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
            let chain = vec![own.certificate.clone()];
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await
}

/// `GET /health/live`; with the connection, which is kept.
pub(crate) async fn ask(connection: HttpConnection) -> HttpConnection {
    let request = HttpRequest::get("/health/live").header("host", "localhost");
    let (response, connection) = connection.exchange(&request).await;
    assert_eq!(response.status, 200);
    connection
}

/// Output of a program that is given no input.
async fn say(program: &str, words: &[&str], directory: &Path) -> String {
    talk(program, words, directory, "").await
}

/// Output of a program that is given `input`.
pub(crate) async fn talk(program: &str, words: &[&str], directory: &Path, input: &str) -> String {
    let mut child = Command::new(program)
        .args(words)
        .current_dir(directory)
        .kill_on_drop(true)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program is there");
    let mut stdin = child.stdin.take().unwrap();
    // One that has ended already says why.
    let _ = stdin.write_all(input.as_bytes()).await;
    drop(stdin);
    let output = tokio::time::timeout(GENEROUS, child.wait_with_output()).await;
    let output = output.expect("in time").unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test]
async fn independent_clients_are_served_by_either_version_and_told_what_is_wrong() {
    let (site, authority) = site(json!({"hsts_seconds": 3600}));
    let server = site.http().await;
    let address = server.address().to_string();
    let here = site.path(".");
    for (flag, expected) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let words = [
            "s_client",
            "-connect",
            &address,
            "-CAfile",
            "authority.pem",
            flag,
        ];
        let said = say("openssl", &words, &here).await;
        assert!(said.contains("Verify return code: 0 (ok)"), "{said}");
        assert!(said.contains(&format!("New, {expected}")), "{said}");
    }
    let words = [
        "s_client",
        "-connect",
        &address,
        "-tls1_1",
        "-cipher",
        "ALL:@SECLEVEL=0",
    ];
    let said = say("openssl", &words, &here).await;
    assert!(said.contains("Cipher is (NONE)"), "{said}");

    let url = format!("https://localhost:{}/mcp", server.address().port());
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let words = [
            "-sS",
            "-i",
            flag,
            "--cacert",
            "authority.pem",
            "-w",
            "\nHTTP %{http_version}",
            "-d",
            body,
            "-H",
            "content-type: application/json",
            "-H",
            "accept: application/json",
            &url,
        ];
        let said = say("curl", &words, &here).await;
        assert!(said.contains(r#""name":"echo""#), "{said}");
        assert!(said.ends_with(&format!("\nHTTP {version}")), "{said}");
        assert!(
            said.contains("strict-transport-security: max-age=3600"),
            "{said}"
        );
        assert!(said.contains("x-content-type-options: nosniff"), "{said}");
        assert!(said.contains("cache-control: no-store"), "{said}");
    }

    // Plain text where TLS is spoken.
    let plain = HttpConnection::connect(server.address()).await.unwrap();
    let (told, _) = plain.exchange(&HttpRequest::get("/health")).await;
    assert_eq!(told.status, 400);
    assert!(told.text().contains("use https://"), "{}", told.text());
    // And somebody who believes another authority.
    assert!(
        connect(server.address(), &Authority::new(), None)
            .await
            .is_err()
    );
    ask(connect(server.address(), &authority, None).await.unwrap()).await;
}

#[tokio::test]
async fn a_refusal_before_the_body_is_read_reaches_curl_by_either_version() {
    let settings = json!({
        "http": {"max_body_bytes": 100_000},
        "identity": {"api_keys": {"file": "keys.json"}},
    });
    let (site, _authority) = site_of(settings, json!({}));
    let said = run(site.command(&["keys", "create", "--principal", "ana"])).await;
    let key = format!("x-api-key: {}", said.output.trim());
    let server = site.http().await;
    let here = site.path(".");
    let url = |path| format!("https://localhost:{}{path}", server.address().port());
    let json = "content-type: application/json";
    let page = "origin: https://evil.example";
    // Small enough to be read before the answer, larger, and larger than is accepted.
    for (name, size) in [("small", 60), ("medium", 60_000), ("large", 300_000)] {
        site.write(name, "x".repeat(size));
    }
    let refusals = [
        (
            "POST",
            "/mcp",
            "small",
            vec![json],
            "401",
            "credentials are needed",
        ),
        (
            "POST",
            "/mcp",
            "medium",
            vec![json],
            "401",
            "credentials are needed",
        ),
        (
            "POST",
            "/mcp",
            "large",
            vec![json],
            "401",
            "credentials are needed",
        ),
        (
            "POST",
            "/nowhere",
            "medium",
            vec![json],
            "404",
            "there is nothing here",
        ),
        (
            "PUT",
            "/mcp",
            "medium",
            vec![json],
            "405",
            "this method is not allowed",
        ),
        (
            "POST",
            "/mcp",
            "medium",
            vec![&key, "content-type: text/plain"],
            "415",
            "application/json",
        ),
        (
            "POST",
            "/mcp",
            "small",
            vec![&key, json, "content-encoding: gzip"],
            "415",
            "Content-Encoding",
        ),
        ("POST", "/mcp", "medium", vec![json, page], "403", "Origin"),
        (
            "POST",
            "/mcp",
            "large",
            vec![&key, json],
            "413",
            "at most 100000 bytes",
        ),
        (
            "POST",
            "/approvals/x",
            "medium",
            vec![json],
            "401",
            "credentials are needed",
        ),
    ];
    for flag in ["--http1.1", "--http2"] {
        for (method, path, body, headers, status, why) in &refusals {
            let (url, body) = (url(path), format!("@{body}"));
            let mut words = vec![
                "-sS",
                flag,
                "--cacert",
                "authority.pem",
                "-w",
                "\n%{http_code}",
            ];
            words.extend(["-X", method, "--data-binary", &body, "-H", "expect:"]);
            words.extend(headers.iter().flat_map(|header| ["-H", header]));
            words.push(&url);
            for _ in 0..3 {
                let said = say("curl", &words, &here).await;
                assert!(
                    said.ends_with(status) && said.contains(why),
                    "{words:?}: {said}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_with_a_reason_by_either_version() {
    let (site, _authority) = site(json!({}));
    let server = site.http().await;
    let url = format!("https://localhost:{}/mcp", server.address().port());
    let long = format!("x-long: {}", "x".repeat(40_000));
    for flag in ["--http1.1", "--http2"] {
        let words = [
            "-sS",
            flag,
            "--cacert",
            "authority.pem",
            "-w",
            "\n%{http_code}",
            "-H",
            &long,
            &url,
        ];
        let said = say("curl", &words, &site.path(".")).await;
        assert!(said.ends_with("431"), "{flag}: {said}");
        assert!(
            said.contains("at most 32768 bytes are accepted"),
            "{flag}: {said}"
        );
    }
}

#[tokio::test]
async fn a_flood_of_tls_key_updates_ends_its_connection() {
    let (site, authority) = site(json!({}));
    let server = site.http().await;
    let resident = server.process().resident_bytes();
    let mut stream = secured(server.address(), &authority, None).await.unwrap();
    // Tickets come first.
    let request = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request).await.unwrap();
    assert_ne!(stream.read(&mut [0; 16]).await.unwrap(), 0);
    let mut changes = 0;
    let flooding = async {
        loop {
            if stream.get_mut().1.refresh_traffic_keys().is_err() || stream.flush().await.is_err() {
                return;
            }
            changes += 1;
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(GENEROUS, flooding)
        .await
        .expect("it hangs up");
    let now = server.process().resident_bytes();
    let grown = now.saturating_sub(resident) >> 20;
    assert!(grown < 32, "{changes} changes: {grown} MiB");
    let request = HttpRequest::get("/metrics").header("host", "localhost");
    let connection = connect(server.address(), &authority, None).await.unwrap();
    let told = connection.exchange(&request).await.0;
    let line = "owlclaw_mcp_flooded_connections_total{protocol=\"tls\"} 1";
    assert!(told.text().contains(line), "{}", told.text());
}

#[tokio::test]
async fn certificates_change_and_connections_stay() {
    let (site, old) = site(json!({}));
    let server = site.http().await;
    let address = server.address();
    let kept = ask(connect(address, &old, None).await.unwrap()).await;

    let new = Authority::new();
    new.issue(|_| {}).install(&site);
    server
        .process()
        .wait_stderr("who comes now sees them")
        .await;
    let fresh = ask(connect(address, &new, None).await.unwrap()).await;
    assert!(connect(address, &old, None).await.is_err());
    let kept = ask(kept).await;

    // A key that is not the certificate's changes nothing, and is told.
    site.write("key.pem", new.issue(|_| {}).key_pem());
    server
        .process()
        .wait_stderr("is not that of the first certificate")
        .await;
    let mut fresh = ask(fresh).await;
    let request = HttpRequest::get("/health").header("host", "localhost");
    // It may have been said before: of the two files above, read while the second was not written yet.
    let began = Instant::now();
    loop {
        assert!(began.elapsed() < GENEROUS, "health does not say it");
        let (health, next) = fresh.exchange(&request).await;
        fresh = next;
        assert_eq!(health.status, 200, "it serves as before");
        let parts = health.json();
        let mut parts = parts["components"].as_array().unwrap().iter();
        let part = parts.find(|part| part["name"] == "certificate").unwrap();
        if part["ok"] == false {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ask(connect(address, &new, None).await.unwrap()).await;

    let last = Authority::new();
    last.issue(|_| {}).install(&site);
    server.process().signal("HUP").await;
    wait_until("the last one is in use", GENEROUS, || {
        server.stderr().matches("who comes now sees them").count() == 2
    })
    .await;
    ask(connect(address, &last, None).await.unwrap()).await;
    let (health, _) = ask(fresh).await.exchange(&request).await;
    assert!(!health.text().contains("key.pem"), "{}", health.text());
    ask(kept).await;
}

#[tokio::test]
async fn operators_list_sessions_of_a_server_with_a_certificate_of_their_own_authority() {
    let settings = json!({"governance": {"approvals": {"http_token": "secret-of-operators"}}});
    let (site, _authority) = site_of(settings, json!({}));
    let server = site.http().await;
    let url = format!("https://localhost:{}", server.address().port());
    let words = ["sessions", "list", "--url", &url];
    let unknown = run(site.command(&words)).await;
    assert_eq!(unknown.code, Some(1), "{}", unknown.messages);
    let authority = site.path("authority.pem");
    let words = [&words[..], &["--ca", authority.to_str().unwrap()]].concat();
    let listed = run(site.command(&words)).await;
    assert_eq!(listed.code, Some(0), "{}", listed.messages);
    assert!(
        listed.messages.contains("0 of at most"),
        "{}",
        listed.messages
    );
}

#[tokio::test]
async fn clients_without_a_certificate_are_refused_where_one_is_wanted() {
    let (site, authority) = site(json!({"client_ca_file": "clients.pem", "verify_client": true}));
    let clients = Authority::new();
    site.write("clients.pem", clients.pem());
    let server = site.http().await;
    let own = clients.issue(|_| {});
    ask(connect(server.address(), &authority, Some(&own))
        .await
        .unwrap())
    .await;

    let stranger = Authority::new().issue(|_| {});
    let expired = clients.issue(|params| params.not_after = rcgen::date_time_ymd(2020, 1, 1));
    for own in [None, Some(&stranger), Some(&expired)] {
        // With TLS 1.3 a client learns of it when it reads for the first time.
        if let Ok(mut connection) = connect(server.address(), &authority, own).await {
            let request = HttpRequest::get("/health/live").header("host", "localhost");
            let _ = connection.send_bytes(&request.to_bytes()).await;
            assert!(connection.read_head().await.is_err());
        }
    }
}

/// Returns true if a client that shows this certificate is served.
async fn is_served(server: &HttpServer, authority: &Authority, own: &Issued) -> bool {
    let Ok(mut connection) = connect(server.address(), authority, Some(own)).await else {
        return false;
    };
    // With TLS 1.3 a client learns of it when it reads for the first time.
    let request = HttpRequest::get("/health/live").header("host", "localhost");
    let _ = connection.send_bytes(&request.to_bytes()).await;
    connection.read_head().await.is_ok()
}

/// Waits until the server hangs up.
async fn hung_up(mut connection: HttpConnection) {
    let heard = tokio::time::timeout(GENEROUS, connection.read_head()).await;
    assert!(heard.expect("it hangs up").is_err());
}

/// Client that listens over HTTP/2 with this certificate; returned once its stream is acknowledged.
async fn listening(site: &Site, server: &HttpServer, own: &Issued) -> tokio::process::Child {
    site.write("own.key", own.key_pem());
    site.write("own.pem", pem("CERTIFICATE", &own.certificate));
    let mut client = server.client();
    client.speak(MODERN);
    let filter = json!({"notifications": {"toolsListChanged": true}});
    let message = client
        .voice
        .request("subscriptions/listen", filter)
        .to_string();
    let version = format!("mcp-protocol-version: {MODERN}");
    let url = format!("https://localhost:{}/mcp", server.address().port());
    let mut curl = Command::new("curl")
        .args([
            "-sS",
            "-N",
            "--http2",
            "--cacert",
            "authority.pem",
            "--cert",
            "own.pem",
        ])
        .args([
            "--key",
            "own.key",
            "-H",
            "content-type: application/json",
            "-H",
            &version,
        ])
        .args(["-H", "accept: application/json, text/event-stream"])
        .args([
            "-H",
            "mcp-method: subscriptions/listen",
            "-d",
            &message,
            &url,
        ])
        .current_dir(site.path("."))
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    let stdout = curl.stdout.as_mut().unwrap();
    let heard = async {
        while !String::from_utf8_lossy(&said).contains("acknowledged") {
            assert_ne!(stdout.read_buf(&mut said).await.unwrap(), 0, "{said:?}");
        }
    };
    tokio::time::timeout(GENEROUS, heard)
        .await
        .expect("it listens");
    curl
}

const LONG: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test]
async fn who_was_revoked_is_hung_up_on_and_nobody_else() {
    let tls = json!({"client_ca_file": "clients.pem", "client_crl_file": "revoked.pem"});
    let (site, authority) = site(tls);
    let (one, other, silent) = (
        Authority::named("one"),
        Authority::named("other"),
        Authority::named("says nothing"),
    );
    site.write("clients.pem", one.pem() + &other.pem() + &silent.pem());
    let lists = |ones: &[u64]| one.revokes(ones, LONG) + &other.revokes(&[3], LONG);
    site.write("revoked.pem", lists(&[]));
    let server = site.http().await;
    let numbered = |authority: &Authority, number: u64| {
        authority.issue(|params| params.serial_number = Some(SerialNumber::from(number)))
    };
    let (ana, ben) = (numbered(&one, 1), numbered(&one, 2));
    // The same number of another authority is another certificate.
    let (cleo, dora) = (numbered(&other, 1), numbered(&other, 3));
    for (own, expected) in [(&ana, true), (&ben, true), (&cleo, true), (&dora, false)] {
        assert_eq!(is_served(&server, &authority, own).await, expected);
    }
    assert!(
        !is_served(&server, &authority, &numbered(&silent, 1)).await,
        "nobody can tell"
    );
    let mut kept = Vec::new();
    for own in [None, Some(&ben), Some(&cleo), Some(&ana)] {
        let connection = connect(server.address(), &authority, own).await.unwrap();
        kept.push(ask(connection).await);
    }

    let mut listening = listening(&site, &server, &ana).await;

    site.write("revoked.pem", lists(&[1]));
    hung_up(kept.pop().unwrap()).await;
    let ended = tokio::time::timeout(GENEROUS, listening.wait()).await;
    assert!(!ended.expect("it ends").unwrap().success());
    for (own, expected) in [(&ana, false), (&ben, true), (&cleo, true)] {
        assert_eq!(is_served(&server, &authority, own).await, expected);
    }
    for connection in &mut kept {
        let connection = std::mem::replace(
            connection,
            connect(server.address(), &authority, None).await.unwrap(),
        );
        ask(connection).await;
    }
    let said = server.stderr();
    assert!(
        said.contains("is not accepted any more") && said.contains("Revoked"),
        "{said}"
    );

    // What cannot be read changes nothing, and is told.
    site.write(
        "revoked.pem",
        "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n",
    );
    server
        .process()
        .wait_stderr("revoked.pem cannot be used")
        .await;
    assert!(!is_served(&server, &authority, &ana).await);
    assert!(is_served(&server, &authority, &ben).await);
}

#[tokio::test]
async fn a_list_that_has_expired_vouches_for_nobody() {
    let tls = json!({"client_ca_file": "clients.pem", "client_crl_file": "revoked.pem"});
    let (site, authority) = site(tls);
    let clients = Authority::named("one");
    site.write("clients.pem", clients.pem());
    site.write("revoked.pem", clients.revokes(&[], LONG));
    let server = site.http().await;
    let ana = clients.issue(|_| {});
    let kept = connect(server.address(), &authority, Some(&ana))
        .await
        .unwrap();
    let kept = ask(kept).await;
    // Not at once, but by itself: nothing is written any more.
    site.write("revoked.pem", clients.revokes(&[], Duration::from_secs(2)));
    hung_up(kept).await;
    assert!(!is_served(&server, &authority, &ana).await);
    // Without a certificate everything is as before, and health says what is wrong.
    let stranger = connect(server.address(), &authority, None).await.unwrap();
    let request = HttpRequest::get("/health").header("host", "localhost");
    let (health, _) = stranger.exchange(&request).await;
    assert!(
        health.text().contains("revoked.pem has expired"),
        "{}",
        health.text()
    );
    let doctor = run(site.command(&["doctor", "--transport", "http"])).await;
    assert!(
        (doctor.output.clone() + &doctor.messages).contains("revoked.pem has expired"),
        "{}",
        doctor.output
    );
    let refused = run(site.command(&["start", "--transport", "http"])).await;
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.messages.contains("revoked.pem has expired"),
        "{}",
        refused.messages
    );

    // Lists of other kinds are none.
    site.write("revoked.pem", clients.pem());
    let refused = run(site.command(&["start", "--transport", "http"])).await;
    assert!(
        refused.messages.contains("has no list of revoked"),
        "{}",
        refused.messages
    );
    site.write("revoked.pem", clients.revokes(&[], LONG));
    wait_until("the new list is in use", GENEROUS, || {
        server.stderr().matches("who comes now sees them").count() == 2
    })
    .await;
    assert!(is_served(&server, &authority, &ana).await);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_told_at_the_start() {
    let (site, authority) = site(json!({}));
    let start = || run(site.command(&["start", "--transport", "http"]));
    let fails = async |expected: &str| {
        let said = start().await;
        assert_eq!(said.code, Some(1), "{}", said.messages);
        assert!(said.messages.contains(expected), "{}", said.messages);
    };
    restrict(&site.path("key.pem"), 0o644);
    fails("every user of this machine may read or change the private key").await;
    authority.issue(|_| {}).install(&site);
    site.write("chain.pem", "hello");
    fails("chain.pem has no certificate").await;
    site.write("chain.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    fails("a section does not end").await;
    authority.issue(|_| {}).install(&site);
    site.write("key.pem", authority.issue(|_| {}).key_pem());
    fails("is not that of the first certificate").await;
    let old = |params: &mut CertificateParams| params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    authority.issue(old).install(&site);
    fails("has expired").await;
    let early =
        |params: &mut CertificateParams| params.not_before = rcgen::date_time_ymd(2999, 1, 1);
    authority.issue(early).install(&site);
    fails("is the clock right?").await;
    let key = pem("ENCRYPTED PRIVATE KEY", b"x");
    authority.issue(|_| {}).install(&site);
    site.write("key.pem", key);
    fails("is encrypted").await;
    std::fs::remove_file(site.path("key.pem")).unwrap();
    fails("cannot read").await;
}

#[tokio::test]
async fn http2_is_spoken_in_plain_text_and_hanging_up_cancels_there_too() {
    let site = Site::new(json!({}));
    let server = site.http().await;
    let url = format!("http://{}/mcp", server.address());
    let here = site.path(".");
    let legacy = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let words = |body: &str| -> Vec<String> {
        let words = [
            "-sS",
            "--http2-prior-knowledge",
            "-w",
            "\nHTTP %{http_version}",
            "-H",
            "content-type: application/json",
            "-H",
            "accept: application/json, text/event-stream",
            "-d",
            body,
            &url,
        ];
        words.map(str::to_owned).to_vec()
    };
    let plain = words(legacy);
    let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
    let said = say("curl", &plain, &here).await;
    assert!(said.contains(r#""name":"echo""#), "{said}");
    assert!(said.ends_with("\nHTTP 2"), "{said}");

    let mut client = server.client();
    client.speak(MODERN);
    let message = client
        .voice
        .request("tools/call", call("linger", json!({"mark": "x"})));
    let mut words = words(&message.to_string());
    for header in [
        format!("mcp-protocol-version: {MODERN}"),
        "mcp-method: tools/call".to_owned(),
        "mcp-name: linger".to_owned(),
    ] {
        words.extend(["-H".to_owned(), header]);
    }
    let mut curl = Command::new("curl")
        .args(&words)
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_until("the call has begun", GENEROUS, || !site.calls().is_empty()).await;
    curl.kill().await.unwrap();
    wait_until("the call is cancelled", GENEROUS, || {
        site.outcomes("linger") == ["cancelled"]
    })
    .await;
}

#[tokio::test]
async fn a_unix_socket_is_its_owners_and_says_who_calls() {
    let site = Site::new(json!({"http": {"tcp": false, "unix_socket": "owlclaw.sock"}}));
    let path = site.path("owlclaw.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let mut server = site
        .command(&["start", "--transport", "http"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_until("it listens", GENEROUS, || {
        std::os::unix::net::UnixStream::connect(&path).is_ok()
    })
    .await;
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let connection = HttpConnection::over(UnixStream::connect(&path).await.unwrap());
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "echo", "arguments": {"text": "hello"}},
    });
    let request = HttpRequest::post("/mcp", body.to_string()).header("host", "localhost");
    let (response, _) = connection.exchange(&request).await;
    assert!(response.text().contains("hello"), "{}", response.text());
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&path).unwrap());
    wait_until("it is recorded", GENEROUS, || site.calls().len() == 1).await;
    assert_eq!(
        site.calls()[0].started.principal,
        format!("unix-uid:{owner}")
    );

    let id = server.id().unwrap().to_string();
    assert!(
        say("kill", &["-TERM", &id], &site.path("."))
            .await
            .is_empty()
    );
    let ended = tokio::time::timeout(END * 2, server.wait()).await;
    assert!(ended.expect("it ends").unwrap().success());
    assert!(!path.exists());
}

async fn principal_of(server: &HttpServer, site: &Site, forwarded: &str) -> String {
    let before = site.calls().len();
    let client = server.client().with_header("x-forwarded-for", forwarded);
    let mut client = client.with_header("forwarded", "for=9.9.9.9");
    let echoed = client
        .request("tools/call", call("echo", json!({"text": "x"})))
        .await;
    assert!(echoed.result().is_object());
    wait_until("it is recorded", GENEROUS, || {
        site.calls().len() == before + 1
    })
    .await;
    site.calls()[before].started.principal.clone()
}

#[tokio::test]
async fn only_trusted_proxies_speak_for_others() {
    let site = Site::new(json!({"http": {"trusted_proxies": ["127.0.0.1", "10.0.0.0/8"]}}));
    let server = site.http().await;
    for (forwarded, expected) in [
        ("1.2.3.4", "1.2.3.4"),
        ("6.6.6.6, 1.2.3.4, 10.1.1.1", "1.2.3.4"),
        ("nonsense", "127.0.0.1"),
    ] {
        assert_eq!(principal_of(&server, &site, forwarded).await, expected);
    }
    let site = Site::new(json!({"http": {"trusted_proxies": ["10.0.0.0/8"]}}));
    let server = site.http().await;
    assert_eq!(principal_of(&server, &site, "1.2.3.4").await, "127.0.0.1");
}

#[tokio::test]
async fn nobody_behind_a_proxy_is_who_its_certificate_says() {
    let clients = Authority::new();
    let proxy = clients.issue(|_| {});
    for (trusted, forwarded, status) in [
        // Nobody's proxy, so that its certificate is the caller's.
        ("10.0.0.0/8", None, 200),
        ("127.0.0.1", None, 401),
        ("127.0.0.1", Some("unknown"), 401),
        ("127.0.0.1", Some("unix:"), 401),
        ("127.0.0.1", Some("1.2.3.4"), 401),
    ] {
        let settings = json!({
            "http": {"trusted_proxies": [trusted]},
            "identity": {"certificates": {"principal": "san_dns"}},
        });
        let tls = json!({"client_ca_file": "clients.pem", "verify_client": true});
        let (site, authority) = site_of(settings, tls);
        site.write("clients.pem", clients.pem());
        let server = site.http().await;
        let connection = connect(server.address(), &authority, Some(&proxy)).await;
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
        let mut request =
            HttpRequest::post("/mcp", message.to_string()).header("host", "localhost");
        if let Some(forwarded) = forwarded {
            request = request.header("x-forwarded-for", forwarded);
        }
        let (response, _) = connection.unwrap().exchange(&request).await;
        assert_eq!(response.status, status, "{trusted} {forwarded:?}");
    }
}
