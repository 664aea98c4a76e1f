//! A server that is protected and the authorization server it names, on sockets.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_client::{Client, ClientOptions, Reach};
use oauth_client::{
    AuthorizationError, Authorizer, Grant, HeadlessBrowser, Login, Options, Verdict,
};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// A request that came.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The fields of a form or of a query.
    pub(crate) fn fields(&self) -> BTreeMap<String, String> {
        let text = if self.method == "POST" {
            &self.body
        } else {
            &self.query
        };
        fields(text)
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) fn fields(text: &str) -> BTreeMap<String, String> {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        let text = percent_encoding::percent_decode_str(&text).decode_utf8();
        text.unwrap().into_owned()
    };
    let pairs = text.split('&').filter_map(|it| it.split_once('='));
    pairs
        .map(|(name, value)| (decode(name), decode(value)))
        .collect()
}

/// Answer of a site.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) after: Duration,
    pub(crate) is_endless: bool,
}

impl Answer {
    pub(crate) fn new(status: u16, body: impl Into<String>) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body: body.into(),
            after: Duration::ZERO,
            is_endless: false,
        }
    }

    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::new(status, body.to_string()).with("content-type", "application/json")
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn redirect(location: &str) -> Self {
        Self::new(302, "").with("location", location)
    }
}

/// An HTTP server on a port of its own that answers as a function says.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Site {
    pub(crate) async fn start(
        answer: impl Fn(&str, &Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let site = Self { url, asked };
        let (shared, answer) = (site.clone(), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (site, answer) = (shared.clone(), Arc::clone(&answer));
                tokio::spawn(async move { site.serve(stream, &*answer).await });
            }
        });
        site
    }

    async fn serve(
        &self,
        mut stream: TcpStream,
        answer: &(dyn Fn(&str, &Asked) -> Answer + Send + Sync),
    ) -> Option<()> {
        let asked = read(&mut stream).await?;
        self.asked.lock().unwrap().push(asked.clone());
        let answer = answer(&self.url, &asked);
        tokio::time::sleep(answer.after).await;
        let reason = StatusCode::from_u16(answer.status).unwrap();
        let mut head = format!("HTTP/1.1 {reason}\r\nconnection: close\r\n");
        for (name, value) in &answer.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !answer.is_endless {
            head.push_str(&format!("content-length: {}\r\n", answer.body.len()));
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes()).await.ok()?;
        stream.write_all(answer.body.as_bytes()).await.ok()?;
        if answer.is_endless {
            loop {
                stream.write_all(&[b' '; 65_536]).await.ok()?;
            }
        }
        stream.shutdown().await.ok()
    }

    /// All requests to a path; to any for an empty one.
    pub(crate) fn asked(&self, path: &str) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap();
        asked
            .iter()
            .filter(|it| path.is_empty() || it.path == path)
            .cloned()
            .collect()
    }
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4_096];
    let head_end = loop {
        if let Some(at) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break at + 4;
        }
        let read = stream.read(&mut chunk).await.ok().filter(|it| *it != 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    };
    let head = String::from_utf8(bytes[..head_end].to_vec()).ok()?;
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let mut headers = HeaderMap::new();
    for (name, value) in lines.filter_map(|it| it.split_once(": ")) {
        let name = HeaderName::try_from(name).ok()?;
        headers.append(name, HeaderValue::from_str(value).ok()?);
    }
    let length = headers
        .get("content-length")
        .map_or(0, |it| it.to_str().unwrap().parse().unwrap());
    while bytes.len() < head_end + length {
        let read = stream.read(&mut chunk).await.ok().filter(|it| *it != 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    }
    let body = String::from_utf8(bytes[head_end..].to_vec()).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    Some(Asked {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        headers,
        body,
    })
}

/// Knowledge of an authorization server; tests change it as it runs.
#[derive(Default)]
pub(crate) struct Books {
    /// Members that the metadata has instead of its own; null takes one away.
    pub(crate) metadata: Value,
    /// Fields of the browser's answer instead of its own; an empty value takes one away.
    pub(crate) redirect: BTreeMap<String, String>,
    /// Seconds for which tokens are good.
    pub(crate) expires_in: Option<u64>,
    pub(crate) refuses_refresh: bool,
    pub(crate) is_down: bool,
    pub(crate) delay: Duration,
    /// Answer of the token endpoint instead of its own.
    pub(crate) token_answer: Option<(u16, String)>,
    /// `Retry-After` of that answer.
    pub(crate) retry_after: Option<u32>,
    /// Answer to the revocation of tokens of this kind instead of its own.
    pub(crate) revocation_answer: (&'static str, Option<(u16, String)>),
    pub(crate) nonce: Option<String>,
    pub(crate) is_unbound: bool,
    codes: HashMap<String, BTreeMap<String, String>>,
    /// Access tokens and their scopes.
    pub(crate) tokens: HashMap<String, String>,
    refresh: HashMap<String, String>,
    /// True to take all tokens back when a refresh token is shown a second time (RFC 9700, section 4.14.2).
    pub(crate) detects_reuse: bool,
    /// Times that refresh tokens were shown which were not to be taken.
    pub(crate) reused: usize,
    made: usize,
}

/// An authorization server that signs everybody in and takes each refresh token once.
#[derive(Clone)]
pub(crate) struct Issuer {
    pub(crate) site: Site,
    pub(crate) books: Arc<Mutex<Books>>,
}

impl Issuer {
    pub(crate) async fn start() -> Self {
        let books: Arc<Mutex<Books>> = Arc::default();
        let shared = Arc::clone(&books);
        let site = Site::start(move |url, asked| {
            let mut books = shared.lock().unwrap();
            let mut answer = books.answer(url, asked);
            answer.after = books.delay;
            answer
        });
        Self {
            site: site.await,
            books,
        }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Books)) {
        change(&mut self.books.lock().unwrap());
    }

    /// Grant types of the requests for tokens.
    pub(crate) fn grants(&self) -> Vec<String> {
        let asked = self.site.asked("/token");
        asked
            .iter()
            .map(|it| it.fields()["grant_type"].clone())
            .collect()
    }
}

impl Books {
    fn answer(&mut self, url: &str, asked: &Asked) -> Answer {
        if self.is_down {
            return Answer::new(503, "");
        }
        match asked.path.as_str() {
            "/.well-known/oauth-authorization-server" => Answer::json(200, &self.metadata(url)),
            "/register" => {
                self.made += 1;
                let mut client = asked.json();
                client["client_id"] =
                    format!("client-{}-{}", self.made, &url[url.len() - 4..]).into();
                Answer::json(201, &client)
            }
            "/authorize" => self.authorize(url, asked),
            "/token" => self.token(asked),
            "/revoke" => {
                let fields = asked.fields();
                if let (kind, Some((status, body))) = &self.revocation_answer
                    && fields["token_type_hint"] == *kind
                {
                    return Answer::new(*status, body.clone());
                }
                self.tokens.remove(&fields["token"]);
                self.refresh.remove(&fields["token"]);
                Answer::new(200, "")
            }
            _ => Answer::new(404, ""),
        }
    }

    fn metadata(&self, url: &str) -> Value {
        let mut metadata = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "registration_endpoint": format!("{url}/register"),
            "code_challenge_methods_supported": ["plain", "S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "private_key_jwt"],
            "authorization_response_iss_parameter_supported": true,
            "scopes_supported": ["mcp", "offline_access"],
        });
        for (name, value) in self.metadata.as_object().into_iter().flatten() {
            metadata[name] = value.clone();
        }
        metadata
            .as_object_mut()
            .unwrap()
            .retain(|_, value| !value.is_null());
        metadata
    }

    fn authorize(&mut self, url: &str, asked: &Asked) -> Answer {
        let fields = asked.fields();
        self.made += 1;
        let code = format!("code-{}", self.made);
        let mut back = BTreeMap::from([
            ("code".to_owned(), code.clone()),
            ("iss".to_owned(), url.to_owned()),
            ("state".to_owned(), fields["state"].clone()),
        ]);
        back.extend(self.redirect.clone());
        let back = back.iter().filter(|(_, it)| !it.is_empty());
        let back: Vec<_> = back
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let location = format!("{}?{}", fields["redirect_uri"], back.join("&"));
        self.codes.insert(code, fields);
        Answer::redirect(&location)
    }

    fn token(&mut self, asked: &Asked) -> Answer {
        if let Some((status, body)) = &self.token_answer {
            let answer = Answer::new(*status, body.clone());
            return match self.retry_after {
                Some(seconds) => answer.with("retry-after", &seconds.to_string()),
                None => answer,
            };
        }
        let proof = asked.header("dpop").map(claims);
        if let (Some(nonce), Some(proof)) = (&self.nonce, &proof)
            && proof["nonce"] != **nonce
        {
            let refused = Answer::json(400, &json!({"error": "use_dpop_nonce"}));
            return refused.with("dpop-nonce", nonce);
        }
        let fields = asked.fields();
        let refused = |error: &str| Answer::json(400, &json!({"error": error}));
        let scope = match fields["grant_type"].as_str() {
            "authorization_code" => {
                let began = self.codes.remove(&fields["code"]);
                let verified = |began: &BTreeMap<String, String>| {
                    let digest = digest(&SHA256, fields["code_verifier"].as_bytes());
                    began["code_challenge"] == URL_SAFE_NO_PAD.encode(digest)
                        && began["code_challenge_method"] == "S256"
                        && began["redirect_uri"] == fields["redirect_uri"]
                        && began["resource"] == fields["resource"]
                };
                match began.filter(verified) {
                    Some(began) => began.get("scope").cloned().unwrap_or_default(),
                    None => return refused("invalid_grant"),
                }
            }
            "refresh_token" => {
                let known = self.refresh.remove(&fields["refresh_token"]);
                match known.filter(|_| !self.refuses_refresh) {
                    Some(scope) => scope,
                    None => {
                        self.reused += 1;
                        if self.detects_reuse {
                            self.tokens.clear();
                            self.refresh.clear();
                        }
                        let said = format!("unknown: {}", fields["refresh_token"]);
                        let refused = json!({"error": "invalid_grant", "error_description": said});
                        return Answer::json(400, &refused);
                    }
                }
            }
            _ => fields.get("scope").cloned().unwrap_or_default(),
        };
        self.made += 1;
        let (access, refresh) = (
            format!("access-{}", self.made),
            format!("refresh-{}", self.made),
        );
        self.tokens.insert(access.clone(), scope.clone());
        let is_bound = proof.is_some() && !self.is_unbound;
        let mut given = json!({
            "access_token": access,
            "token_type": if is_bound { "DPoP" } else { "bearer" },
            "scope": scope,
        });
        if let Some(expires_in) = self.expires_in {
            given["expires_in"] = expires_in.into();
        }
        if scope.contains("offline_access") {
            self.refresh.insert(refresh.clone(), scope);
            given["refresh_token"] = refresh.into();
        }
        Answer::json(200, &given)
    }
}

/// The claims of a token, unverified.
pub(crate) fn claims(token: &str) -> Value {
    let part = URL_SAFE_NO_PAD
        .decode(token.split('.').nth(1).unwrap())
        .unwrap();
    serde_json::from_slice(&part).unwrap()
}

/// Rules of a protected server; tests change them as it runs.
pub(crate) struct Rules {
    pub(crate) issuer: Issuer,
    /// Scopes that a request needs.
    pub(crate) needs: String,
    /// Members that its metadata has instead of its own.
    pub(crate) metadata: Value,
    pub(crate) challenge: String,
}

/// A server that wants tokens of its issuer, at `/mcp`.
#[derive(Clone)]
pub(crate) struct Protected {
    pub(crate) site: Site,
    pub(crate) rules: Arc<Mutex<Rules>>,
}

impl Protected {
    pub(crate) async fn start(issuer: &Issuer) -> Self {
        let rules = Arc::new(Mutex::new(Rules {
            issuer: issuer.clone(),
            needs: String::new(),
            metadata: json!({}),
            challenge: "Bearer".to_owned(),
        }));
        let shared = Arc::clone(&rules);
        let site = Site::start(move |url, asked| shared.lock().unwrap().answer(url, asked));
        Self {
            site: site.await,
            rules,
        }
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut Rules)) {
        change(&mut self.rules.lock().unwrap());
    }

    pub(crate) fn url(&self) -> String {
        format!("{}/mcp", self.site.url)
    }

    pub(crate) fn authorizer(&self, options: Options) -> Authorizer {
        Authorizer::new(&self.url(), options).unwrap()
    }

    /// One request with what it takes; the status at the end.
    pub(crate) async fn call(
        &self,
        authorizer: &Authorizer,
    ) -> Result<StatusCode, AuthorizationError> {
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            ..ClientOptions::default()
        });
        let (client, url) = (client.unwrap(), self.url());
        let mut attempt = authorizer.attempt();
        loop {
            let mut request = Request::post(&url).body(bytes::Bytes::new()).unwrap();
            let headers = request.headers_mut();
            attempt.authorize(&Method::POST, &url, headers).await?;
            let response = client.send(request).await.unwrap();
            let verdict = attempt.judge(response.status(), response.headers());
            if verdict.await? == Verdict::Deliver {
                return Ok(response.status());
            }
        }
    }
}

impl Rules {
    fn answer(&self, url: &str, asked: &Asked) -> Answer {
        if asked.path == "/.well-known/oauth-protected-resource/mcp" {
            let issuer = &self.issuer.site.url;
            let mut metadata = json!({
                "resource": format!("{url}/mcp"),
                "authorization_servers": [issuer],
                "scopes_supported": ["mcp"],
            });
            for (name, value) in self.metadata.as_object().unwrap() {
                metadata[name] = value.clone();
            }
            return Answer::json(200, &metadata);
        }
        if asked.path != "/mcp" {
            return Answer::new(404, "");
        }
        let token = asked
            .header("authorization")
            .and_then(|it| it.split_once(' '));
        let books = self.issuer.books.lock().unwrap();
        let scopes = token.and_then(|(_, token)| books.tokens.get(token));
        let Some(scopes) = scopes else {
            return Answer::new(401, "").with("www-authenticate", &self.challenge);
        };
        let has = |scope: &str| scopes.split(' ').any(|it| it == scope);
        if self.needs.split(' ').filter(|it| !it.is_empty()).all(has) {
            return Answer::new(200, "");
        }
        let needs = &self.needs;
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{needs}\"");
        Answer::new(403, "").with("www-authenticate", &challenge)
    }
}

/// Options for a sign-in without a person.
pub(crate) fn headless() -> Options {
    let mut login = Login::new(HeadlessBrowser::new().unwrap());
    login.timeout = Duration::from_secs(20);
    Options {
        grant: Grant::Login(login),
        ..Options::default()
    }
}
