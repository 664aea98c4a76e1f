//! Sign-ins of people at issuers of OpenID Connect, honest ones and others, on the desk and on the pages of upstreams.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use testkit::{HttpClient, HttpRequest, HttpResponse, HttpServer, free_port};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::desk::{desk_of, get};
use crate::support::{Site, run};

const CLIENT: &str = "desk";
const SECRET: &str = "s3cret-of-the-desk";

fn base64url(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Fields of a form or a query.
fn fields(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
        while let [first, others @ ..] = rest {
            let (byte, next) = match (first, others) {
                (b'%', [high, low, next @ ..]) => {
                    let digits = [*high, *low];
                    let digits = std::str::from_utf8(&digits).unwrap();
                    (u8::from_str_radix(digits, 16).unwrap(), next)
                }
                (b'+', _) => (b' ', others),
                _ => (*first, others),
            };
            bytes.push(byte);
            rest = next;
        }
        String::from_utf8(bytes).unwrap()
    };
    let pairs = text.split('&').filter_map(|it| it.split_once('='));
    pairs.map(|(a, b)| (decode(a), decode(b))).collect()
}

fn encoded(text: &str) -> String {
    let bytes = text.bytes();
    bytes.fold(String::new(), |text, it| format!("{text}%{it:02X}"))
}

/// State of an issuer, and the way in which it lies.
struct Told {
    key: EcdsaKeyPair,
    other_key: EcdsaKeyPair,
    lie: &'static str,
    person: (String, Vec<String>),
    /// Requests that codes were given for.
    codes: BTreeMap<String, BTreeMap<String, String>>,
    /// Forms that came to the token endpoint.
    asked: Vec<BTreeMap<String, String>>,
}

#[derive(Clone)]
struct Issuer {
    address: SocketAddr,
    told: Arc<Mutex<Told>>,
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let key = || {
            let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
            let key = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
            EcdsaKeyPair::from_pkcs8(algorithm, key.as_ref(), &random).unwrap()
        };
        let issuer = Self {
            address: listener.local_addr().unwrap(),
            told: Arc::new(Mutex::new(Told {
                key: key(),
                other_key: key(),
                lie: "",
                person: ("ana".to_owned(), vec!["clerk".to_owned()]),
                codes: BTreeMap::new(),
                asked: Vec::new(),
            })),
        };
        let this = issuer.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(this.clone().serve(stream));
            }
        });
        issuer
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn lies(&self, lie: &'static str) {
        self.told.lock().unwrap().lie = lie;
    }

    fn signs_in(&self, person: &str, roles: &[&str]) {
        let roles = roles.iter().map(|it| (*it).to_owned()).collect();
        self.told.lock().unwrap().person = (person.to_owned(), roles);
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut request = Vec::new();
        let (head, body) = loop {
            let mut piece = [0; 4096];
            let Ok(read @ 1..) = stream.read(&mut piece).await else {
                return;
            };
            request.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&request).into_owned();
            let Some((head, body)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                let is_it = name.eq_ignore_ascii_case("content-length");
                is_it.then(|| value.trim().parse().ok()).flatten()
            });
            if length.unwrap_or(0) <= body.len() {
                break (head.to_owned(), body.to_owned());
            }
        };
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let (status, location, answer) = self.answer(&target, &head, &body);
        let location = location.map_or_else(String::new, |it| format!("location: {it}\r\n"));
        let answer = answer.to_string();
        let text = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{location}content-length: {}\r\n\
             connection: close\r\n\r\n{answer}",
            answer.len()
        );
        let _ = stream.write_all(text.as_bytes()).await;
    }

    fn answer(&self, target: &str, head: &str, body: &str) -> (u16, Option<String>, Value) {
        let mut told = self.told.lock().unwrap();
        let own = self.url();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        match path {
            "/.well-known/openid-configuration" => {
                let metadata = json!({
                    "issuer": own, "jwks_uri": format!("{own}/keys"),
                    "authorization_endpoint": format!("{own}/authorize"),
                    "token_endpoint": format!("{own}/token"),
                    "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
                    "authorization_response_iss_parameter_supported": true,
                });
                (200, None, metadata)
            }
            "/keys" => {
                let (x, y) = told.key.public_key().as_ref()[1..].split_at(32);
                let key = json!({"kty": "EC", "crv": "P-256", "kid": "k", "x": base64url(x), "y": base64url(y)});
                (200, None, json!({"keys": [key]}))
            }
            "/authorize" => {
                let asked = fields(query);
                // Used codes are forgotten, so their number would come again.
                static NUMBER: AtomicUsize = AtomicUsize::new(0);
                let code = format!("code-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
                let (back, state) = (asked["redirect_uri"].clone(), asked["state"].clone());
                let answer = match told.lie {
                    "denied" => "error=access_denied&error_description=no".to_owned(),
                    "no code" => String::new(),
                    _ => format!("code={code}"),
                };
                let iss = match told.lie {
                    "the answer is of another" => "&iss=https%3A%2F%2Fevil.example".to_owned(),
                    "the answer is of nobody" => String::new(),
                    _ => format!("&iss={}", encoded(&own)),
                };
                told.codes.insert(code, asked);
                let back = format!("{back}?{answer}&state={}{iss}", encoded(&state));
                (302, Some(back), Value::Null)
            }
            "/token" => {
                let form = fields(body);
                told.asked.push(form.clone());
                let authorization = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(": ")?;
                    name.eq_ignore_ascii_case("authorization").then_some(value)
                });
                let pair = base64::prelude::BASE64_STANDARD
                    .encode(format!("{CLIENT}:{}", encoded_plain(SECRET)));
                let is_confidential = authorization == Some(&*format!("Basic {pair}"));
                let is_public = authorization.is_none()
                    && form.get("client_id").is_some_and(|it| it == "public");
                let Some(asked) = told.codes.remove(&form["code"]) else {
                    return (400, None, json!({"error": "invalid_grant"}));
                };
                let verifier = base64url(Sha256::digest(&form["code_verifier"]));
                let is_whole = asked["redirect_uri"] == form["redirect_uri"]
                    && (told.lie == "lax" || asked["code_challenge"] == verifier);
                match (is_confidential || is_public, is_whole) {
                    (false, _) => (401, None, json!({"error": "invalid_client"})),
                    (true, false) => (400, None, json!({"error": "invalid_grant"})),
                    (true, true) => (200, None, told.tokens(&own, &asked)),
                }
            }
            _ => (404, None, json!({})),
        }
    }
}

/// The secret as a form has it: it has nothing but what is plain and `-`.
fn encoded_plain(text: &str) -> String {
    text.to_owned()
}

impl Told {
    fn tokens(&self, own: &str, asked: &BTreeMap<String, String>) -> Value {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap().as_secs();
        let mut claims = json!({
            "iss": own, "sub": self.person.0, "aud": asked["client_id"], "nonce": asked["nonce"],
            "iat": now, "exp": now + 60, "roles": self.person.1,
        });
        let mut header = json!({"alg": "ES256", "kid": "k"});
        match self.lie {
            "another nonce" => claims["nonce"] = json!("n"),
            "no nonce" => claims["nonce"] = Value::Null,
            "another audience" => claims["aud"] = json!("other"),
            "several audiences" => claims["aud"] = json!([asked["client_id"], "other"]),
            "another party" => claims["azp"] = json!("other"),
            "another issuer" => claims["iss"] = json!("https://evil.example"),
            "expired" => (claims["iat"], claims["exp"]) = (json!(now - 600), json!(now - 300)),
            "not yet" => claims["nbf"] = json!(now + 600),
            "no age" => claims["iat"] = Value::Null,
            "nobody" => claims["sub"] = Value::Null,
            "no algorithm" => header["alg"] = json!("none"),
            "shared secret" => header["alg"] = json!("HS256"),
            "an access token" => header["typ"] = json!("at+jwt"),
            _ => {}
        }
        let signed = format!(
            "{}.{}",
            base64url(header.to_string()),
            base64url(claims.to_string())
        );
        let key = if self.lie == "another key" {
            &self.other_key
        } else {
            &self.key
        };
        let signature = match self.lie {
            "no algorithm" => String::new(),
            _ => base64url(key.sign(&SystemRandom::new(), signed.as_bytes()).unwrap()),
        };
        let mut given = json!({"access_token": "opaque", "token_type": "Bearer", "expires_in": 60});
        if self.lie != "no ID token" {
            given["id_token"] = format!("{signed}.{signature}").into();
        }
        given
    }
}

/// A desk whose people sign in at two issuers.
struct Office {
    site: Site,
    _server: HttpServer,
    corp: Issuer,
    other: Issuer,
}

fn jwt(issuer: &Issuer, prefix: &str, sign_in: Value) -> Value {
    json!({
        "issuer": issuer.url(), "audience": ["tools"], "principal_prefix": prefix, "roles_claim": "roles",
        "min_refetch_seconds": 1, "sign_in": sign_in,
    })
}

impl Office {
    async fn open() -> Self {
        let (corp, other) = (Issuer::start().await, Issuer::start().await);
        let site = Site::new(json!({
            "identity": {"resource": "https://tools.example/mcp", "jwt": {
                "corp": jwt(&corp, "corp:", json!({"client_id": CLIENT, "client_secret": SECRET})),
                "other": jwt(&other, "other:", json!({"client_id": "public"})),
            }},
            "desk": {"enabled": true, "port": 0, "roles": {"clerk": "approver"}},
        }));
        let server = site.http().await;
        Self {
            site,
            _server: server,
            corp,
            other,
        }
    }

    fn origin(&self) -> String {
        format!("http://{}", desk_of(&self.site))
    }

    /// A request as the page of the desk sends it.
    fn own(&self, request: HttpRequest) -> HttpRequest {
        let host = desk_of(&self.site).to_string();
        let request = request.with("host", &host);
        request.header("origin", &self.origin())
    }

    async fn post(&self, path: &str, body: Value, cookie: &str) -> HttpResponse {
        let request = HttpRequest::post(&format!("/admin/v1{path}"), body.to_string());
        let request = self.own(request);
        let request = match cookie {
            "" => request,
            cookie => request.header("cookie", cookie),
        };
        HttpClient::new(desk_of(&self.site))
            .exchange(&request)
            .await
    }

    /// Begins a sign-in. Returns the address of the issuer, and the cookie of the browser.
    async fn leave(&self, issuer: &str) -> (String, String) {
        let response = self.post("/sign-in", json!({ "issuer": issuer }), "").await;
        assert_eq!(response.status, 200, "{}", response.text());
        let set = response.header("set-cookie").unwrap();
        assert!(
            set.contains("HttpOnly") && set.contains("SameSite=Strict"),
            "{set}"
        );
        let cookie = set.split(';').next().unwrap().to_owned();
        (response.json()["url"].as_str().unwrap().to_owned(), cookie)
    }

    /// Path and query with which the issuer sends the browser back.
    async fn consent(&self, url: &str) -> String {
        let (host, target) = url
            .strip_prefix("http://")
            .unwrap()
            .split_once('/')
            .unwrap();
        let client = HttpClient::new(host.parse().unwrap());
        let response = client
            .exchange(&HttpRequest::get(&format!("/{target}")))
            .await;
        let back = response.header("location").unwrap();
        back.strip_prefix(&self.origin())
            .expect("it leads back here")
            .to_owned()
    }

    async fn came_back(&self, place: &str, cookie: &str) -> HttpResponse {
        self.post("/session", json!({ "came_back": place }), cookie)
            .await
    }

    async fn sign_in(&self, issuer: &str) -> HttpResponse {
        let (url, cookie) = self.leave(issuer).await;
        let back = self.consent(&url).await;
        self.came_back(&back, &cookie).await
    }
}

#[tokio::test]
async fn people_sign_in_at_an_issuer_and_have_the_rights_of_their_roles() {
    let office = Office::open().await;
    let client = HttpClient::new(desk_of(&office.site));
    let issuers = client.exchange(&get("/sign-in")).await;
    assert_eq!(issuers.json(), json!({"issuers": ["corp", "other"]}));

    let (url, cookie) = office.leave("corp").await;
    let asked = fields(url.split_once('?').unwrap().1);
    assert_eq!(
        asked["redirect_uri"],
        format!("{}/sign-in/corp", office.origin())
    );
    assert_eq!(
        (&*asked["response_type"], &*asked["code_challenge_method"]),
        ("code", "S256")
    );
    assert_eq!(asked["scope"], "openid");
    let back = office.consent(&url).await;
    // The page is there, and takes the code out of the address.
    let page = client.exchange(&HttpRequest::get(&back)).await;
    assert_eq!(
        (page.status, page.header("cache-control")),
        (200, Some("no-store"))
    );
    assert_eq!(page.header("referrer-policy"), Some("no-referrer"));
    // An answer to another sign-in does not end this one; nor does another browser end it.
    let state = format!("state={}", encoded(&asked["state"]));
    let foreign = back.replace(&state, "state=x");
    assert_ne!(foreign, back);
    for (place, cookie) in [
        (&*foreign, &*cookie),
        (&back, ""),
        (&back, "owlclaw-desk=x"),
    ] {
        let response = office.came_back(place, cookie).await;
        assert_eq!(response.status, 401, "{place}: {}", response.text());
        assert!(response.header("set-cookie").is_none());
    }
    // Neither does it where the answer of another issuer comes back to.
    let mixed_up = back.replace("/sign-in/corp", "/sign-in/other");
    assert_eq!(office.came_back(&mixed_up, &cookie).await.status, 401);
    // A session that somebody else has put into the browser is not this person's.
    let planted = format!(
        "{cookie}; {}=planted",
        cookie.split('=').next().unwrap().trim_end_matches("-away")
    );
    let response = office.came_back(&back, &planted).await;
    assert_eq!(response.status, 200, "{}", response.text());
    let session = response.json();
    assert_eq!(
        (&session["name"], &session["role"]),
        (&json!("corp:ana"), &json!("approver"))
    );
    let proof = session["proof"].as_str().unwrap();
    assert!(
        proof.starts_with("ID token of corp:ana by corp, approver of the desk, from "),
        "{proof}"
    );
    let set = response.header("set-cookie").unwrap();
    assert!(
        set.contains("HttpOnly") && set.contains("SameSite=Strict") && !set.contains("planted"),
        "{set}"
    );
    let cookie_of_session = set.split(';').next().unwrap();
    let shown = get("/approvals").header("cookie", cookie_of_session);
    assert_eq!(client.exchange(&shown).await.status, 200);
    // What changes anything needs the token of the page.
    let keyless =
        HttpRequest::new("DELETE", "/admin/v1/session").header("cookie", cookie_of_session);
    assert_eq!(client.exchange(&keyless).await.status, 403);
    // Once.
    assert_eq!(office.came_back(&back, &cookie).await.status, 401);
    let forms = office.corp.told.lock().unwrap().asked.clone();
    assert_eq!(
        forms.len(),
        1,
        "nothing that was refused has reached the issuer: {forms:?}"
    );
    assert!(!forms[0].contains_key("client_secret"));

    // Everywhere means this browser as well.
    let second = office.sign_in("corp").await;
    let second_cookie = second
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let out = office
        .own(HttpRequest::new("DELETE", "/admin/v1/session?everywhere=1"))
        .header("cookie", &second_cookie)
        .header("x-csrf-token", second.json()["csrf"].as_str().unwrap());
    let out = client.exchange(&out).await;
    assert_eq!(out.json()["ended"], 2, "{}", out.text());
    let shown = get("/approvals").header("cookie", cookie_of_session);
    assert_eq!(client.exchange(&shown).await.status, 401);

    // A public client, at another issuer; and a person without rights.
    let guest = office.sign_in("other").await;
    assert_eq!(
        (guest.status, guest.json()["name"].clone()),
        (200, json!("other:ana"))
    );
    assert!(office.other.told.lock().unwrap().asked[0]["client_id"] == "public");
    office.corp.signs_in("bob", &[]);
    let refused = office.sign_in("corp").await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(refused.text().contains("desk.roles"), "{}", refused.text());
    let log = office._server.stderr();
    for secret in [SECRET, "code-", &asked["state"], &asked["nonce"]] {
        assert!(!log.contains(secret), "{secret} is in the log");
    }
}

#[tokio::test]
async fn an_issuer_that_lies_signs_nobody_in() {
    let office = Office::open().await;
    for (lie, status, why) in [
        ("another nonce", 401, "belongs to another sign-in"),
        ("no nonce", 401, "belongs to another sign-in"),
        ("another audience", 401, "for another client"),
        ("several audiences", 401, "is for several"),
        ("another party", 401, "made for another client"),
        ("another issuer", 401, "not accepted here"),
        ("expired", 401, "has expired"),
        ("not yet", 401, "not good yet"),
        ("no age", 401, "when it was made"),
        ("nobody", 401, "does not say whose it is"),
        ("no algorithm", 401, "not signed in a way"),
        ("shared secret", 401, "not signed in a way"),
        ("another key", 401, "signature"),
        ("an access token", 401, "an access token in place"),
        ("no ID token", 502, "no ID token"),
        (
            "the answer is of another",
            401,
            "is from `https://evil.example`",
        ),
        ("the answer is of nobody", 401, "does not say which server"),
        ("denied", 401, "access_denied: no"),
        ("no code", 401, "no code"),
    ] {
        office.corp.lies(lie);
        let response = office.sign_in("corp").await;
        assert_eq!(response.status, status, "{lie}: {}", response.text());
        assert!(response.text().contains(why), "{lie}: {}", response.text());
        assert!(response.header("set-cookie").is_none(), "{lie}");
    }
    // The issuer that was asked says who it is, and another one's word counts for nothing there.
    office.corp.lies("");
    assert_eq!(office.sign_in("corp").await.status, 200);

    // A code of somebody else in the place of one's own: PKCE ends it at the issuer, and the nonce here.
    for (lie, status, why) in [
        ("", 502, "invalid_grant"),
        ("lax", 401, "belongs to another sign-in"),
    ] {
        office.corp.lies(lie);
        let (victims, cookie) = office.leave("corp").await;
        let (attackers, _) = office.leave("corp").await;
        let stolen = office.consent(&attackers).await;
        let code = stolen
            .split_once("code=")
            .unwrap()
            .1
            .split('&')
            .next()
            .unwrap();
        let own = office.consent(&victims).await;
        let own_code = own
            .split_once("code=")
            .unwrap()
            .1
            .split('&')
            .next()
            .unwrap();
        let swapped = own.replace(&format!("code={own_code}"), &format!("code={code}"));
        let response = office.came_back(&swapped, &cookie).await;
        assert_eq!(response.status, status, "{}", response.text());
        assert!(response.text().contains(why), "{}", response.text());
    }
}

#[tokio::test]
async fn a_sign_in_leads_nowhere_but_here_and_begins_on_the_own_page() {
    let office = Office::open().await;
    let client = HttpClient::new(desk_of(&office.site));
    let begin = |issuer: &str| {
        HttpRequest::post("/admin/v1/sign-in", json!({ "issuer": issuer }).to_string())
    };
    for request in [
        begin("corp"),
        begin("corp").header("origin", "https://evil.example"),
        begin("corp").header("origin", "null"),
        office
            .own(begin("corp"))
            .header("sec-fetch-site", "cross-site"),
        begin("corp")
            .with("host", "evil.example")
            .header("origin", "http://evil.example"),
    ] {
        let response = client.exchange(&request).await;
        assert_eq!(response.status, 403, "{request:?}: {}", response.text());
        assert!(response.header("set-cookie").is_none());
    }
    for issuer in ["", "corp/../x", "//evil.example", "corp?x", "nobody"] {
        let request = office.own(begin(issuer));
        assert_eq!(client.exchange(&request).await.status, 404, "{issuer}");
    }
    // A page of others cannot end a sign-in that it has begun in its own browser, in that of somebody else.
    let (url, cookie) = office.leave("corp").await;
    let back = office.consent(&url).await;
    for origin in ["https://evil.example", "null"] {
        let body = json!({ "came_back": back }).to_string();
        let request = HttpRequest::post("/admin/v1/session", body).header("cookie", &cookie);
        let response = client.exchange(&request.header("origin", origin)).await;
        assert_eq!(response.status, 403, "{}", response.text());
    }
    for place in [
        "",
        "/",
        "https://evil.example/?code=x",
        "/sign-in/corp",
        "/sign-in/corp?code=x&state=y",
    ] {
        assert_eq!(
            office.came_back(place, &cookie).await.status,
            401,
            "{place}"
        );
    }
    assert_eq!(office.came_back(&back, &cookie).await.status, 200);
}

#[tokio::test]
async fn users_of_clients_prove_at_an_issuer_whose_credentials_they_give() {
    let corp = Issuer::start().await;
    let port = free_port();
    let site = Site::new(json!({
        "app": null, "python": null, "http": {"port": port},
        "identity": {"resource": format!("http://127.0.0.1:{port}/mcp"), "jwt": {"corp": jwt(&corp, "corp:", json!({"client_id": "public"}))}},
        "vault": {"path": "vault", "key_file": "vault.key"},
        "upstreams": {"web": {
            "url": "http://127.0.0.1:1/mcp", "credentials": "per-client",
            "headers": {"Authorization": "Bearer ${credential:token}"},
        }},
    }));
    assert_eq!(run(site.command(&["vault", "init"])).await.code, Some(0));
    let server = site.http().await;
    let origin = format!("http://{}", server.address());
    let client = server.client();
    let first = client
        .exchange(&HttpRequest::get("/sign-in?upstream=web"))
        .await;
    assert!(
        first.text().contains("<button name=issuer value=\"corp\""),
        "{}",
        first.text()
    );
    let leave = async || {
        let form = HttpRequest::post(
            "/sign-in/prove",
            "ticket=&upstream=web&credential=&issuer=corp",
        )
        .header("content-type", "application/x-www-form-urlencoded")
        .header("origin", &origin);
        let page = client.exchange(&form).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let set = page.header("set-cookie").unwrap();
        assert!(
            set.contains("HttpOnly") && set.contains("SameSite=Lax"),
            "{set}"
        );
        let cookie = set.split(';').next().unwrap().to_owned();
        let url = page
            .text()
            .split_once("href=\"")
            .unwrap()
            .1
            .split('"')
            .next()
            .unwrap();
        let url = url.replace("&amp;", "&");
        let target = url.strip_prefix(&corp.url()).unwrap().to_owned();
        let issuer = HttpClient::new(corp.address);
        let back = issuer.exchange(&HttpRequest::get(&target)).await;
        let back = back
            .header("location")
            .unwrap()
            .strip_prefix(&origin)
            .unwrap()
            .to_owned();
        (back, cookie)
    };
    let (back, cookie) = leave().await;
    assert!(back.starts_with("/sign-in/with/corp?"), "{back}");
    // Another browser is nobody, and so is one whose issuer lies.
    assert_eq!(client.exchange(&HttpRequest::get(&back)).await.status, 403);
    corp.lies("another nonce");
    let (lying, its_cookie) = leave().await;
    let refused = client
        .exchange(&HttpRequest::get(&lying).header("cookie", &its_cookie))
        .await;
    assert_eq!(refused.status, 401, "{}", refused.text());
    corp.lies("");
    let page = client
        .exchange(&HttpRequest::get(&back).header("cookie", &cookie))
        .await;
    assert_eq!(page.status, 200, "{}", page.text());
    assert!(
        page.text().contains("<code>corp:ana</code>"),
        "{}",
        page.text()
    );
    let again = client
        .exchange(&HttpRequest::get(&back).header("cookie", &cookie))
        .await;
    assert_eq!(again.status, 401, "it is good once: {}", again.text());
    let secrets = page
        .header("set-cookie")
        .unwrap()
        .split(';')
        .next()
        .unwrap();
    let csrf = page
        .text()
        .split_once("name=csrf value=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap();
    let form = HttpRequest::post(
        "/sign-in/secrets",
        format!("csrf={csrf}&secret.token=t0ken-of-ana"),
    )
    .header("content-type", "application/x-www-form-urlencoded")
    .header("origin", &origin)
    .header("cookie", secrets);
    let done = client.exchange(&form).await;
    assert_eq!(done.status, 200, "{}", done.text());
    let listed = run(site.command(&["upstream", "credential", "list"])).await;
    assert!(
        listed.output.contains("corp:ana"),
        "{} {}",
        listed.output,
        listed.messages
    );
}
