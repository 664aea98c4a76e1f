//! Pages on which a client's person gives the client's own credential for an upstream.
//!
//! A page serves nobody who has not proved to be a client of this server, in this browser; what is given belongs to that
//! client and to no other, whoever has made the address of the page or sent it. A sign-in that begins in one browser ends
//! in the same one.

mod page;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use config::Config;
use data_encoding::HEXLOWER;
use gateway::{Asked, Gateway, SIGN_IN_LIFETIME, SIGN_IN_PATH, SignIns, SigningIn};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use oauth_client::{Arrivals, Secret};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use transport_http::{Authenticate, PlainResponse, SideRequest};

use super::identity::{Identification, SIGN_IN_LIFETIME as OWN_LIFETIME};
use super::notes;
use super::store::ServedMcpServer;
use page::Page;

/// Most bytes of a form.
pub(super) const MAX_FORM: usize = 64 * 1024;
/// Browsers with which somebody is about to give a credential, in all and of one client.
const MAX_BROWSERS: (usize, usize) = (1_024, 8);
/// Beginning of the paths, below that of the pages, to which issuers that prove who somebody is send browsers back.
const WITH: &str = "/with/";
/// End of the name of the cookie of a browser that has left for such an issuer.
const PROOF: &str = "-proof";
/// Time for exchanging what an authorization server has sent.
const PATIENCE: Duration = Duration::from_secs(60);

/// Addresses of the pages of a server with this configuration, if browsers reach it and clients prove who they are.
pub(super) fn addresses(config: &Config) -> Option<Arc<SignIns>> {
    config.sign_in_origin().map(SignIns::new).map(Arc::new)
}

type Outcome = Result<(), String>;

/// A browser whose user has proved to be a client.
struct Browser {
    key: [u8; 32],
    csrf: String,
    client: Arc<str>,
    upstream: String,
    begun: Instant,
    /// The sign-in that has begun in it, and what becomes of that.
    signing_in: Option<(Arrivals, watch::Receiver<Option<Outcome>>)>,
}

/// The pages.
pub(super) struct SignInPages {
    addresses: Arc<SignIns>,
    gateway: Gateway,
    identification: Arc<Identification>,
    mcp: Arc<ServedMcpServer>,
    cookie: String,
    is_encrypted: bool,
    browsers: Mutex<Vec<Browser>>,
}

impl fmt::Debug for SignInPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SignInPages").field(&self.addresses).finish()
    }
}

/// True for paths of the pages.
pub(super) fn is_path(path: &str) -> bool {
    let rest = path.strip_prefix(SIGN_IN_PATH);
    rest.is_some_and(|it| it.is_empty() || it.starts_with('/'))
}

fn random() -> Option<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).ok()?;
    Some(HEXLOWER.encode(&bytes))
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

impl SignInPages {
    pub(super) fn new(
        addresses: Arc<SignIns>,
        gateway: Gateway,
        identification: Arc<Identification>,
        mcp: Arc<ServedMcpServer>,
    ) -> Self {
        let origin = addresses.origin();
        let is_encrypted = origin.starts_with("https://");
        let cookie = match (is_encrypted, origin.rsplit_once(':')) {
            (true, _) => "__Host-owlclaw-sign-in".to_owned(),
            // Cookies know no ports.
            (false, Some((_, port))) => format!("owlclaw-sign-in-{port}"),
            (false, None) => "owlclaw-sign-in".to_owned(),
        };
        Self {
            cookie,
            is_encrypted,
            addresses,
            gateway,
            identification,
            mcp,
            browsers: Mutex::default(),
        }
    }

    /// Answers a request for a page.
    pub(super) async fn handle(&self, request: SideRequest<'_>) -> PlainResponse {
        let parts = request.parts();
        let rest = parts.uri.path().strip_prefix(SIGN_IN_PATH);
        let page = match (&parts.method, rest.unwrap_or_default()) {
            (&Method::GET, "") => self.first(request),
            (&Method::POST, "/prove") => self.proved(request).await,
            (&Method::POST, "/secrets") => self.secrets(request).await,
            (&Method::GET, "/callback") => self.came_back(request).await,
            (&Method::GET, with) if with.starts_with(WITH) => {
                self.proved_by_issuer(request, &with[WITH.len()..]).await
            }
            (_, "" | "/prove" | "/secrets" | "/callback") => Page::refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "This is not how it is used.",
            ),
            _ => Page::refusal(StatusCode::NOT_FOUND, "There is nothing here."),
        };
        page.response()
    }

    /// The page that asks who somebody is.
    fn first(&self, request: SideRequest<'_>) -> Page {
        let query = Form::read(request.parts().uri.query().unwrap_or_default().as_bytes());
        let Some(query) = query else {
            return bad_form();
        };
        let upstream = match (query.get("ticket"), query.get("upstream")) {
            (Some(ticket), None) => match self.addresses.upstream_of(ticket) {
                Ok(upstream) => upstream,
                Err(why) => return Page::refusal(StatusCode::GONE, &why.to_string()),
            },
            (None, Some(upstream)) => upstream.to_owned(),
            _ => return bad_form(),
        };
        let has_certificate = request.peer().certificate().is_some();
        self.who(&upstream, query.get("ticket"), has_certificate, None)
    }

    /// The page that asks somebody to prove who they are.
    fn who(
        &self,
        upstream: &str,
        ticket: Option<&str>,
        has_certificate: bool,
        fault: Option<&str>,
    ) -> Page {
        let issuers = self.identification.sign_ins();
        let issuers: Vec<_> = issuers.iter().flat_map(|it| it.names()).collect();
        Page::who(upstream, ticket, has_certificate, &issuers, fault)
    }

    /// Takes the proof of who somebody is, and leads on.
    async fn proved(&self, request: SideRequest<'_>) -> Page {
        if let Some(refused) = self.of_others(&request.parts().headers) {
            return refused;
        }
        let Some(form) = Form::read(request.body()) else {
            return bad_form();
        };
        let ticket = form.get("ticket").filter(|it| !it.is_empty());
        let named = form.get("upstream").unwrap_or_default();
        if let Some(issuer) = form.get("issuer") {
            return self.leave_for_issuer(issuer, ticket, named).await;
        }
        let shown = form.get("credential").unwrap_or_default().trim();
        let Some(client) = self.client(request, shown).await else {
            if let Some(ticket) = ticket {
                self.addresses.failed(ticket);
            }
            let has_certificate = request.peer().certificate().is_some();
            let why = "That proves nothing here.";
            let page = self.who(named, ticket, has_certificate, Some(why));
            return page.with_status(StatusCode::UNAUTHORIZED);
        };
        self.lead_on(client, ticket, named).await
    }

    /// Leads a browser to an issuer that proves who sits there.
    async fn leave_for_issuer(&self, issuer: &str, ticket: Option<&str>, named: &str) -> Page {
        let Some(sign_ins) = self.identification.sign_ins() else {
            return bad_form();
        };
        let redirect_uri = format!("{}{SIGN_IN_PATH}{WITH}{issuer}", self.addresses.origin());
        let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC);
        let ticket = encoded(ticket.unwrap_or_default());
        let purpose = format!("ticket={ticket}&upstream={}", encoded(named));
        match sign_ins.begin(issuer, &redirect_uri, &purpose).await {
            Ok(begun) => {
                let cookie = self.set_cookie_named(PROOF, &begun.ticket, OWN_LIFETIME.as_secs());
                Page::prove_at(issuer, &begun.url).with_cookie(cookie)
            }
            Err(failed) => {
                let why = format!("Nobody can sign in there now: {}.", failed.why);
                Page::refusal(failed.status, &why)
            }
        }
    }

    /// Takes what an issuer says of who sits at a browser, and leads on.
    async fn proved_by_issuer(&self, request: SideRequest<'_>, issuer: &str) -> Page {
        let parts = request.parts();
        let cookie = self.cookie_of(&parts.headers, PROOF);
        let (Some(cookie), Some(sign_ins)) = (cookie, self.identification.sign_ins()) else {
            return other_browser();
        };
        let query = parts.uri.query().unwrap_or_default();
        let (principal, purpose) = match sign_ins.finish(cookie, issuer, query).await {
            Ok(proved) => proved,
            Err(failed) => {
                let why = format!("Nobody is signed in: {}.", failed.why);
                return Page::refusal(failed.status, &why);
            }
        };
        let Some(form) = Form::read(purpose.as_bytes()) else {
            return bad_form();
        };
        let ticket = form.get("ticket").filter(|it| !it.is_empty());
        let named = form.get("upstream").unwrap_or_default();
        let client = Arc::clone(principal.name());
        self.lead_on(client, ticket, named).await
    }

    /// Has a client, whose browser it is, give what the upstream asks for.
    async fn lead_on(&self, client: Arc<str>, ticket: Option<&str>, named: &str) -> Page {
        let upstream = match ticket {
            None => named.to_owned(),
            Some(ticket) => match self.addresses.redeem(ticket, &client) {
                Ok(upstream) => upstream,
                Err(why) => {
                    tracing::warn!(client = &*client, %why, "a sign-in was refused");
                    return Page::refusal(StatusCode::FORBIDDEN, &why.to_string());
                }
            },
        };
        let Some((cookie, csrf)) = random().zip(random()) else {
            return Page::refusal(StatusCode::SERVICE_UNAVAILABLE, "Try again.");
        };
        let (page, signing_in) = match self.gateway.asks_clients(&upstream) {
            None => {
                let why = "Nothing is to be given for it.";
                return Page::refusal(StatusCode::NOT_FOUND, why);
            }
            Some(Asked::Secrets(names)) => (Page::secrets(&client, &upstream, &names, &csrf), None),
            Some(Asked::SignIn) => {
                let redirect_uri = self.addresses.redirect_uri();
                match self.gateway.sign_in(&upstream, &client, redirect_uri).await {
                    Ok(begun) => {
                        let page = Page::leave(&client, &upstream, &begun.url);
                        (page, Some(self.follow(begun, &client, &upstream)))
                    }
                    Err(why) => {
                        let why = format!("Nobody can sign in there now: {why}.");
                        return Page::refusal(StatusCode::BAD_GATEWAY, &why);
                    }
                }
            }
        };
        let mut browsers = self.browsers();
        let (most, of_one) = MAX_BROWSERS;
        while of_one <= browsers.iter().filter(|it| it.client == client).count() {
            let oldest = browsers.iter().position(|it| it.client == client);
            browsers.remove(oldest.unwrap_or_default());
        }
        if most <= browsers.len() {
            browsers.remove(0);
        }
        browsers.push(Browser {
            key: digest(&cookie),
            csrf,
            client,
            upstream,
            begun: Instant::now(),
            signing_in,
        });
        drop(browsers);
        page.with_cookie(self.set_cookie(&cookie, SIGN_IN_LIFETIME.as_secs()))
    }

    /// The client that a typed credential, or the certificate of the connection, proves.
    async fn client(&self, request: SideRequest<'_>, shown: &str) -> Option<Arc<str>> {
        let mut proof = Request::new(());
        if !shown.is_empty() {
            let mut value = HeaderValue::try_from(format!("Bearer {shown}")).ok()?;
            value.set_sensitive(true);
            proof.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let (proof, ()) = proof.into_parts();
        let authenticated = self.identification.authenticate(&proof, request.peer());
        let principal = authenticated.outcome().await.ok()?;
        Some(Arc::clone(principal.name()))
    }

    /// Puts the end of a sign-in on record, whoever waits for it.
    fn follow(
        &self,
        begun: SigningIn,
        client: &Arc<str>,
        upstream: &str,
    ) -> (Arrivals, watch::Receiver<Option<Outcome>>) {
        let (ended, outcome) = watch::channel(None);
        let (mcp, client, upstream) = (
            Arc::clone(&self.mcp),
            Arc::clone(client),
            upstream.to_owned(),
        );
        let SigningIn {
            arrivals,
            outcome: ending,
            ..
        } = begun;
        tokio::spawn(async move {
            let given_up = |_| Err("it was given up".to_owned());
            let outcome = ending.await.unwrap_or_else(given_up);
            match &outcome {
                Ok(()) => note(&mcp, &client, &upstream, "signed in"),
                Err(why) => tracing::info!(
                    client = &*client,
                    upstream,
                    why,
                    "a sign-in at an upstream has failed"
                ),
            }
            ended.send_replace(Some(outcome));
        });
        (arrivals, outcome)
    }

    /// Keeps secrets that somebody gives.
    async fn secrets(&self, request: SideRequest<'_>) -> Page {
        let headers = &request.parts().headers;
        if let Some(refused) = self.of_others(headers) {
            return refused;
        }
        let Some(mut form) = Form::read(request.body()) else {
            return bad_form();
        };
        let csrf = form.take("csrf").unwrap_or_default();
        let browser = self.take(headers, |it| {
            it.signing_in.is_none() && digest(&it.csrf) == digest(&csrf)
        });
        let Some(browser) = browser else {
            return other_browser();
        };
        let values: BTreeMap<_, _> = form
            .0
            .into_iter()
            .filter_map(|(name, value)| {
                let name = name.strip_prefix("secret.")?.to_owned();
                Some((name, Secret::new(value.trim().to_owned())))
            })
            .collect();
        let Browser {
            client, upstream, ..
        } = browser;
        match self.gateway.bind(&upstream, &client, values).await {
            Ok(()) => {
                note(&self.mcp, &client, &upstream, "secrets given");
                Page::done(&client, &upstream)
            }
            Err(why) => Page::refusal(
                StatusCode::BAD_REQUEST,
                &format!("Not everything was kept: {why}. Open the address again."),
            ),
        }
    }

    /// Takes what an authorization server sends back with a browser.
    async fn came_back(&self, request: SideRequest<'_>) -> Page {
        let parts = request.parts();
        let browser = self.take(&parts.headers, |it| it.signing_in.is_some());
        let Some(Browser {
            client,
            upstream,
            signing_in: Some((arrivals, mut outcome)),
            ..
        }) = browser
        else {
            return other_browser();
        };
        let is_taken = arrivals.arrived(parts.uri.query().unwrap_or_default());
        // With the hand that gives answers, one to another sign-in ends this one.
        drop(arrivals);
        let ended = async {
            let ended = outcome.wait_for(Option::is_some).await;
            ended.ok().and_then(|it| it.clone())
        };
        let ended = match is_taken {
            true => tokio::time::timeout(PATIENCE, ended).await.ok().flatten(),
            false => None,
        };
        match ended {
            Some(Ok(())) => Page::done(&client, &upstream),
            Some(Err(why)) => Page::refusal(
                StatusCode::BAD_GATEWAY,
                &format!("Nobody is signed in: {why}."),
            ),
            None => Page::refusal(StatusCode::BAD_GATEWAY, "Nobody is signed in."),
        }
        .with_cookie(self.set_cookie("", 0))
    }

    /// The refusal of what a page of somebody else has a browser send.
    fn of_others(&self, headers: &HeaderMap) -> Option<Page> {
        let text = |name: &str| {
            let all: Vec<_> = headers.get_all(name).iter().collect();
            match all[..] {
                [one] => one.to_str().ok(),
                _ => None,
            }
        };
        let own = self.addresses.origin();
        let is_own = text("origin").is_some_and(|it| it.eq_ignore_ascii_case(own));
        let is_same = !headers.contains_key("sec-fetch-site")
            || text("sec-fetch-site").is_some_and(|it| it == "same-origin");
        (!is_own || !is_same).then(|| {
            Page::refusal(
                StatusCode::FORBIDDEN,
                &format!("Only pages of {own} may send this."),
            )
        })
    }

    fn browsers(&self) -> MutexGuard<'_, Vec<Browser>> {
        let mut browsers = self.browsers.lock().unwrap_or_else(PoisonError::into_inner);
        browsers.retain(|it| it.begun.elapsed() < SIGN_IN_LIFETIME);
        browsers
    }

    /// The browser of a request, which is known no more afterwards, if it is `wanted`.
    fn take(&self, headers: &HeaderMap, wanted: impl Fn(&Browser) -> bool) -> Option<Browser> {
        let key = digest(self.cookie_of(headers, "")?);
        let mut browsers = self.browsers();
        let at = browsers.iter().position(|it| it.key == key && wanted(it))?;
        Some(browsers.remove(at))
    }

    /// The cookie with this at the end of its name.
    fn cookie_of<'a>(&self, headers: &'a HeaderMap, end: &str) -> Option<&'a str> {
        let all = headers.get_all(header::COOKIE).iter();
        let mut cookies = all
            .filter_map(|it| it.to_str().ok())
            .flat_map(|it| it.split(';'))
            .filter_map(|it| {
                let rest = it.trim().strip_prefix(&self.cookie)?;
                rest.strip_prefix(end)?.strip_prefix('=')
            });
        // Of two, somebody else has put one there.
        match (cookies.next(), cookies.next()) {
            (Some(cookie), None) => Some(cookie),
            _ => None,
        }
    }

    /// `Lax`, since an authorization server sends the browser back from another site.
    fn set_cookie(&self, value: &str, seconds: u64) -> String {
        self.set_cookie_named("", value, seconds)
    }

    /// The same for the cookie with this at the end of its name.
    fn set_cookie_named(&self, end: &str, value: &str, seconds: u64) -> String {
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        format!(
            "{}{end}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{secure}",
            self.cookie
        )
    }
}

fn note(mcp: &ServedMcpServer, client: &str, upstream: &str, what: &str) {
    let version = mcp.governor().policy().version();
    notes::credential_changed(mcp.recorder(), version, client, upstream, what);
    tracing::info!(client, upstream, what, "a client's own credential changed");
}

fn bad_form() -> Page {
    Page::refusal(StatusCode::BAD_REQUEST, "The address is not whole.")
}

fn other_browser() -> Page {
    Page::refusal(
        StatusCode::FORBIDDEN,
        "This browser has begun nothing here, or too long ago. Nothing was kept.",
    )
}

/// Fields of a form or a query, each once.
struct Form(BTreeMap<String, String>);

impl Form {
    fn read(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        let mut fields = BTreeMap::new();
        for pair in text.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| {
                let text = text.replace('+', " ");
                let decoded = percent_decode_str(&text).decode_utf8().ok()?;
                Some(decoded.into_owned())
            };
            if fields.insert(plain(name)?, plain(value)?).is_some() {
                return None;
            }
        }
        Some(Self(fields))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn take(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }
}

/// A body of text.
fn body(text: String) -> Bytes {
    Bytes::from(text)
}
