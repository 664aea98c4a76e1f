//! Senders of requests: a proof that it carries, or a session that began with one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use config::{Config, DeskRole};
use http::{HeaderMap, HeaderValue, StatusCode, header, request::Parts, uri::Authority};
use identity::FailedAttempts;
use server::{BrowserSignIns, Principal, Server};
use sha2::{Digest, Sha256};
use transport_http::SideRequest;

use crate::reply::Problem;

/// Header with the token of a session, which pages of others cannot send.
pub(crate) const CSRF: &str = "x-csrf-token";

/// Header of requests that a page makes by itself, which show no person at it.
const BACKGROUND: &str = "x-desk-background";

/// Beginning of the paths to which issuers send browsers back; the name of the issuer follows.
pub(crate) const BACK: &str = "/sign-in/";

/// End of the name of the cookie of a browser that is at an issuer.
const AWAY: &str = "-away";

/// Sessions that there may be at once.
const MAX_SESSIONS: usize = 1_000;
/// One-time sign-ins that there may be at once, and the time within which one is used.
const MAX_TICKETS: usize = 16;
pub(crate) const TICKET: Duration = Duration::from_secs(60);

/// 256 random bits as text.
pub(crate) fn random() -> String {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    URL_SAFE_NO_PAD.encode(bytes)
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// A person or program that may use the desk.
#[derive(Debug, Clone)]
pub(crate) struct Who {
    pub(crate) name: Arc<str>,
    pub(crate) role: DeskRole,
    /// Proof, and the address it came from.
    pub(crate) proof: String,
    /// Principal of the proof, for calls.
    pub(crate) principal: Principal,
    pub(crate) session: Option<SessionFacts>,
}

/// Facts of a session that its page needs.
#[derive(Debug, Clone)]
pub(crate) struct SessionFacts {
    key: [u8; 32],
    pub(crate) csrf: String,
    /// Time left until it ends in any case.
    pub(crate) left: Duration,
}

struct Session {
    who: Who,
    csrf: String,
    begun: Instant,
    used: Instant,
    ends: Option<SystemTime>,
}

#[derive(Default)]
struct State {
    /// By the digest of what is in the cookie.
    sessions: HashMap<[u8; 32], Session>,
    tickets: HashMap<[u8; 32], Instant>,
}

/// Sessions, and the rules of who may sign in.
pub(crate) struct SignIn {
    desk: config::Desk,
    operator_roles: Vec<String>,
    proves: bool,
    secret: [u8; 32],
    /// Name of the cookie. Cookies know no ports, so that it has the port in it.
    cookie: String,
    is_encrypted: bool,
    attempts: FailedAttempts,
    state: Mutex<State>,
}

impl fmt::Debug for SignIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignIn").finish_non_exhaustive()
    }
}

impl SignIn {
    pub(crate) fn new(config: &Config, secret: &str, port: u16, is_encrypted: bool) -> Self {
        let cookie = match is_encrypted {
            true => format!("__Host-owlclaw-desk-{port}"),
            false => format!("owlclaw-desk-{port}"),
        };
        Self {
            desk: config.desk.clone(),
            operator_roles: config.identity.operator_roles.clone(),
            proves: config.identity.is_configured(),
            secret: digest(secret),
            cookie,
            is_encrypted,
            attempts: FailedAttempts::default(),
            state: Mutex::default(),
        }
    }

    /// The sender of a request.
    pub(crate) async fn who(&self, request: SideRequest<'_>) -> Result<Who, Problem> {
        let headers = &request.parts().headers;
        if !shows_proof(headers)
            && let Some(cookie) = self.cookie_of(headers)
        {
            let is_person = !headers.contains_key(BACKGROUND);
            let who = self.session(&cookie, is_person)?;
            self.is_own_page(request, &who)?;
            return Ok(who);
        }
        self.check_origin(request.parts())?;
        self.proved(request).await
    }

    /// The sender of a request by the proof that it carries.
    pub(crate) async fn proved(&self, request: SideRequest<'_>) -> Result<Who, Problem> {
        if !self.proves {
            return Err(Problem::unauthorized(
                "clients are not authenticated here: `owlclaw-mcp desk` signs the user of the server's machine in",
            ));
        }
        self.may_try(request)?;
        let principal = match request.principal().await {
            Ok(principal) => principal,
            Err(refused) => {
                // Who shows nothing has guessed nothing.
                if shows_proof(&request.parts().headers) {
                    self.failed(request);
                }
                let status = match refused.status() {
                    StatusCode::TOO_MANY_REQUESTS => StatusCode::TOO_MANY_REQUESTS,
                    _ => StatusCode::UNAUTHORIZED,
                };
                let why = "no key, token or certificate proves who you are";
                return Err(Problem::new(status, why));
            }
        };
        let Some(role) = self.role(&principal) else {
            return Err(no_rights());
        };
        let kind = Server::kind_of_proof(request.parts());
        let (name, from) = (Arc::clone(principal.name()), from(request));
        Ok(Who {
            proof: format!("{kind} of {name}, {} of the desk, {from}", role.as_str()),
            name,
            role,
            principal,
            session: None,
        })
    }

    /// The same for a page that signs in with it.
    pub(crate) async fn proved_by_page(&self, request: SideRequest<'_>) -> Result<Who, Problem> {
        self.check_origin(request.parts())?;
        self.proved(request).await
    }

    fn role(&self, principal: &Principal) -> Option<DeskRole> {
        let own = self.desk.clients.get(principal.as_str()).copied();
        let given = principal.roles().iter().filter_map(|role| {
            let is_operator = self.operator_roles.iter().any(|it| **it == **role);
            let configured = self.desk.roles.get(&**role).copied();
            configured.max(is_operator.then_some(DeskRole::Operator))
        });
        own.into_iter().chain(given).max()
    }

    /// A one-time sign-in, for who shows the secret of the server's files.
    pub(crate) fn ticket(&self, request: SideRequest<'_>) -> Result<String, Problem> {
        self.check_origin(request.parts())?;
        self.may_try(request)?;
        let value = request.parts().headers.get(header::AUTHORIZATION);
        let shown = value
            .and_then(|it| it.to_str().ok())
            .and_then(|it| it.strip_prefix("Bearer "));
        // Digests are compared, so that the time says nothing of the secret.
        if shown.map(digest) != Some(self.secret) {
            self.failed(request);
            let why = "this takes the secret that is beside the ledger";
            return Err(Problem::unauthorized(why));
        }
        let (ticket, now) = (random(), Instant::now());
        let mut state = self.state();
        state
            .tickets
            .retain(|_, made| now.duration_since(*made) < TICKET);
        if MAX_TICKETS <= state.tickets.len() {
            let why = "too many sign-ins have begun; try again in a minute";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, why));
        }
        state.tickets.insert(digest(&ticket), now);
        Ok(ticket)
    }

    /// The person whom a one-time sign-in is for: the user of the system that the server runs as.
    pub(crate) fn redeem(&self, request: SideRequest<'_>, ticket: &str) -> Result<Who, Problem> {
        self.check_origin(request.parts())?;
        self.may_try(request)?;
        let made = self.state().tickets.remove(&digest(ticket));
        if made.is_none_or(|made| TICKET <= made.elapsed()) {
            self.failed(request);
            let why = "this sign-in was used or is too old: `owlclaw-mcp desk` makes another";
            return Err(Problem::unauthorized(why));
        }
        let (user, uid) = operator::look::os_user();
        let name: Arc<str> = user.unwrap_or_else(|| format!("uid-{uid}")).into();
        let from = from(request);
        Ok(Who {
            proof: format!("file of the server, read as OS user {name}, uid {uid}, {from}"),
            principal: Principal::new(Arc::clone(&name)),
            name,
            role: DeskRole::Operator,
            session: None,
        })
    }

    /// Refuses a request of a page of others.
    pub(crate) fn is_own_or_no_page(&self, request: SideRequest<'_>) -> Result<(), Problem> {
        self.check_origin(request.parts())
    }

    /// Origin of the page that a request is from.
    pub(crate) fn own_origin(&self, request: SideRequest<'_>) -> Result<String, Problem> {
        let parts = request.parts();
        self.check_origin(parts)?;
        self.may_try(request)?;
        let origin = parts
            .headers
            .get(header::ORIGIN)
            .and_then(|it| it.to_str().ok());
        origin.map(str::to_ascii_lowercase).ok_or_else(|| {
            let why = "a page says in `Origin` where it is from";
            Problem::new(StatusCode::FORBIDDEN, why)
        })
    }

    /// Cookie of a browser that leaves for an issuer, or the one that is none.
    pub(crate) fn leave(&self, ticket: &str, seconds: u64) -> HeaderValue {
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        let cookie = format!(
            "{}{AWAY}={ticket}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}",
            self.cookie
        );
        HeaderValue::try_from(cookie).expect("all of it is ASCII")
    }

    /// The person whom an issuer of OpenID Connect has signed in, whose browser is back at `place`: a path with a query.
    pub(crate) async fn came_back(
        &self,
        request: SideRequest<'_>,
        sign_ins: &BrowserSignIns,
        place: &str,
    ) -> Result<Who, Problem> {
        self.own_origin(request)?;
        let (path, query) = place.split_once('?').unwrap_or((place, ""));
        let issuer = path.strip_prefix(BACK).unwrap_or_default();
        let ticket = self.cookie_named(&request.parts().headers, AWAY);
        let ticket = ticket.unwrap_or_default();
        let finished = sign_ins.finish(&ticket, issuer, query);
        let (principal, _) = finished.await.map_err(|failed| {
            self.failed(request);
            Problem::new(failed.status, failed.why)
        })?;
        let role = self.role(&principal).ok_or_else(no_rights)?;
        let (name, from) = (Arc::clone(principal.name()), from(request));
        Ok(Who {
            proof: format!(
                "ID token of {name} by {issuer}, {} of the desk, {from}",
                role.as_str()
            ),
            name,
            role,
            principal,
            session: None,
        })
    }

    /// Begins a session. Its cookie is new whatever the browser had before.
    pub(crate) fn begin(self: &Arc<Self>, who: Who, headers: &HeaderMap) -> (Who, HeaderValue) {
        let (id, csrf, now) = (random(), random(), Instant::now());
        let key = digest(&id);
        let mut state = self.state();
        if let Some(old) = self.cookie_of(headers) {
            state.sessions.remove(&digest(&old));
        }
        let (idle, whole) = (self.idle(), self.whole());
        state
            .sessions
            .retain(|_, it| now < it.used + idle && now < it.begun + whole);
        if MAX_SESSIONS <= state.sessions.len() {
            let oldest = state.sessions.iter().min_by_key(|(_, it)| it.used);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                state.sessions.remove(&oldest);
            }
        }
        let session = Session {
            ends: who.principal.expires(),
            csrf: csrf.clone(),
            begun: now,
            used: now,
            who: who.clone(),
        };
        state.sessions.insert(key, session);
        drop(state);
        // A key that is revoked takes its sessions along.
        if let Some(end) = who.principal.end() {
            let this = Arc::downgrade(self);
            tokio::spawn(async move {
                end.await;
                if let Some(this) = this.upgrade() {
                    this.state().sessions.remove(&key);
                }
            });
        }
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        // Without an age, so that the browser keeps it in memory alone.
        let cookie = format!(
            "{}={id}; Path=/; HttpOnly; SameSite=Strict{secure}",
            self.cookie
        );
        let facts = SessionFacts {
            key,
            csrf,
            left: whole,
        };
        let who = Who {
            session: Some(facts),
            ..who
        };
        let cookie = HeaderValue::try_from(cookie).expect("all of it is ASCII");
        (who, cookie)
    }

    /// Ends a session, or all of the same person; returns the number, and the cookie that is none.
    pub(crate) fn end(&self, who: &Who, everywhere: bool) -> (usize, HeaderValue) {
        let mut state = self.state();
        let before = state.sessions.len();
        let own = who.session.as_ref().map(|it| it.key);
        state.sessions.retain(|key, session| {
            let is_theirs = everywhere && session.who.name == who.name;
            Some(*key) != own && !is_theirs
        });
        let ended = before - state.sessions.len();
        let secure = if self.is_encrypted { "; Secure" } else { "" };
        let cookie = format!(
            "{}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict{secure}",
            self.cookie
        );
        (
            ended,
            HeaderValue::try_from(cookie).expect("all of it is ASCII"),
        )
    }

    /// True while the session, if it is one, goes on; asked by what streams for long.
    pub(crate) fn is_good(&self, who: &Who) -> bool {
        let Some(facts) = &who.session else {
            return who
                .principal
                .expires()
                .is_none_or(|end| SystemTime::now() < end);
        };
        let state = self.state();
        let session = state.sessions.get(&facts.key);
        session.is_some_and(|it| self.has_time(it))
    }

    fn has_time(&self, session: &Session) -> bool {
        session.used.elapsed() < self.idle()
            && session.begun.elapsed() < self.whole()
            && session.ends.is_none_or(|end| SystemTime::now() < end)
    }

    fn session(&self, cookie: &str, is_person: bool) -> Result<Who, Problem> {
        let key = digest(cookie);
        let mut state = self.state();
        let Some(session) = state.sessions.get_mut(&key) else {
            return Err(Problem::unauthorized("sign in: there is no such session"));
        };
        if !self.has_time(session) {
            state.sessions.remove(&key);
            return Err(Problem::unauthorized(
                "sign in again: the session has ended",
            ));
        }
        if is_person {
            session.used = Instant::now();
        }
        let facts = SessionFacts {
            key,
            csrf: session.csrf.clone(),
            left: self.whole().saturating_sub(session.begun.elapsed()),
        };
        Ok(Who {
            session: Some(facts),
            ..session.who.clone()
        })
    }

    /// Refuses what a page of others has the browser of a person send.
    fn is_own_page(&self, request: SideRequest<'_>, who: &Who) -> Result<(), Problem> {
        let parts = request.parts();
        self.check_origin(parts)?;
        if parts.method.is_safe() {
            return Ok(());
        }
        let expected = who.session.as_ref().map(|it| digest(&it.csrf));
        let given = parts.headers.get(CSRF).and_then(|it| it.to_str().ok());
        if given.map(digest) != expected {
            let why = format!("`{CSRF}` is missing, or is not that of the session");
            return Err(Problem::new(StatusCode::FORBIDDEN, why));
        }
        if !parts.headers.contains_key(header::ORIGIN) {
            let why = "a page says in `Origin` where it is from";
            return Err(Problem::new(StatusCode::FORBIDDEN, why));
        }
        Ok(())
    }

    /// Refuses requests of pages of others. The transport lets all pages of this machine through.
    fn check_origin(&self, Parts { uri, headers, .. }: &Parts) -> Result<(), Problem> {
        // In HTTP/2 it is in the target alone.
        let own = match headers.get(header::HOST) {
            Some(host) => host.to_str().ok(),
            None => uri.authority().map(Authority::as_str),
        };
        let scheme = if self.is_encrypted { "https" } else { "http" };
        let is_own = |origin: &HeaderValue| {
            let origin = origin.to_str().unwrap_or_default();
            let host = origin
                .strip_prefix(scheme)
                .and_then(|it| it.strip_prefix("://"))
                // A proxy in front of a desk that listens on this machine alone encrypts.
                .or_else(|| origin.strip_prefix("https://"));
            host.is_some_and(|host| own.is_some_and(|own| own.eq_ignore_ascii_case(host)))
        };
        let site = headers
            .get("sec-fetch-site")
            .and_then(|it| it.to_str().ok());
        let is_of_others = match site {
            Some("same-origin" | "none") | None => false,
            Some(_) => true,
        };
        if is_of_others || !headers.get_all(header::ORIGIN).iter().all(is_own) {
            let why = "pages of others may not use the desk";
            return Err(Problem::new(StatusCode::FORBIDDEN, why));
        }
        Ok(())
    }

    fn cookie_of(&self, headers: &HeaderMap) -> Option<String> {
        self.cookie_named(headers, "")
    }

    /// The cookie with this at the end of its name.
    fn cookie_named(&self, headers: &HeaderMap, end: &str) -> Option<String> {
        let all = headers.get_all(header::COOKIE).iter();
        let mut found = all
            .filter_map(|it| it.to_str().ok())
            .flat_map(|it| it.split(';'))
            .filter_map(|it| {
                let rest = it.trim().strip_prefix(&self.cookie)?;
                rest.strip_prefix(end)?.strip_prefix('=')
            });
        // Two are one too many: one of them was put there by somebody else.
        match (found.next(), found.next()) {
            (Some(one), None) => Some(one.to_owned()),
            _ => None,
        }
    }

    fn may_try(&self, request: SideRequest<'_>) -> Result<(), Problem> {
        let address = request.peer().address();
        match address.is_none_or(|it| self.attempts.may_try(it.ip(), Instant::now())) {
            true => Ok(()),
            false => {
                let why = "too many attempts from this address have failed";
                Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, why))
            }
        }
    }

    fn failed(&self, request: SideRequest<'_>) {
        if let Some(address) = request.peer().address() {
            self.attempts.failed(address.ip(), Instant::now());
        }
    }

    fn idle(&self) -> Duration {
        Duration::from_secs(60 * self.desk.idle_minutes)
    }

    fn whole(&self) -> Duration {
        Duration::from_secs(3_600 * self.desk.session_hours)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_rights() -> Problem {
    let why = "you have no rights here: desk.clients or desk.roles would give some";
    Problem::new(StatusCode::FORBIDDEN, why)
}

/// True if a request has a key or a token, good or not.
fn shows_proof(headers: &HeaderMap) -> bool {
    headers.contains_key(header::AUTHORIZATION) || headers.contains_key("x-api-key")
}

/// Origin of a request, in words.
fn from(request: SideRequest<'_>) -> String {
    match request.peer().address() {
        Some(address) => format!("from {}", address.ip().to_canonical()),
        None => "from a Unix socket".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session that has just begun, and the text of its cookie.
    fn begun(sign_in: &Arc<SignIn>, principal: Principal) -> String {
        let who = Who {
            name: Arc::clone(principal.name()),
            role: DeskRole::Viewer,
            proof: "a key".to_owned(),
            principal,
            session: None,
        };
        let (_, cookie) = sign_in.begin(who, &HeaderMap::new());
        let cookie = cookie.to_str().unwrap().split(';').next().unwrap();
        cookie.split_once('=').unwrap().1.to_owned()
    }

    fn sign_in() -> Arc<SignIn> {
        let mut config = Config::default();
        (config.desk.idle_minutes, config.desk.session_hours) = (30, 12);
        Arc::new(SignIn::new(&config, "secret", 8091, false))
    }

    /// As if this much time had gone by, of which so much without a person.
    fn later(sign_in: &SignIn, minutes: u64, without_a_person: u64) {
        let minutes_ago = |minutes| Instant::now() - Duration::from_secs(60 * minutes);
        for session in sign_in.state().sessions.values_mut() {
            session.begun = minutes_ago(minutes);
            session.used = minutes_ago(without_a_person);
        }
    }

    #[test]
    fn a_session_ends_after_a_time_without_a_person_and_in_any_case() {
        for (minutes, without_a_person, goes_on) in [
            (29, 29, true),
            (30, 30, false),
            (12 * 60 - 1, 0, true),
            (12 * 60, 0, false),
        ] {
            let sign_in = sign_in();
            let cookie = begun(&sign_in, Principal::new("vera"));
            let who = sign_in.session(&cookie, false).unwrap();
            later(&sign_in, minutes, without_a_person);
            assert_eq!(sign_in.is_good(&who), goes_on, "{minutes}");
            let seen = sign_in.session(&cookie, true);
            assert_eq!(seen.is_ok(), goes_on, "{minutes}");
            // What has ended is forgotten, and does not come back.
            assert_eq!(sign_in.state().sessions.len(), usize::from(goes_on));
            let status = sign_in.session(&cookie, true).err().map(|it| it.status);
            let expected = (!goes_on).then_some(StatusCode::UNAUTHORIZED);
            assert_eq!(status, expected, "{minutes}");
        }
    }

    #[test]
    fn what_a_page_asks_by_itself_shows_no_person_and_no_request_prolongs_the_whole() {
        let sign_in = sign_in();
        let cookie = begun(&sign_in, Principal::new("vera"));
        later(&sign_in, 60, 29);
        assert!(sign_in.session(&cookie, false).is_ok());
        let used = |sign_in: &SignIn| {
            let state = sign_in.state();
            state.sessions.values().next().unwrap().used.elapsed()
        };
        assert!(Duration::from_secs(60 * 29) <= used(&sign_in));
        let who = sign_in.session(&cookie, true).unwrap();
        assert!(used(&sign_in) < Duration::from_secs(60));
        let left = who.session.unwrap().left;
        assert!(left <= Duration::from_secs(11 * 3_600), "{left:?}");
    }

    #[test]
    fn a_session_ends_with_a_proof_that_expires() {
        let sign_in = sign_in();
        let expired = SystemTime::now() - Duration::from_secs(1);
        let cookie = begun(&sign_in, Principal::new("vera"));
        sign_in
            .state()
            .sessions
            .values_mut()
            .for_each(|it| it.ends = Some(expired));
        assert!(sign_in.session(&cookie, true).is_err());
    }

    #[test]
    fn the_own_name_is_in_the_header_or_in_the_target() {
        let sign_in = Arc::new(SignIn::new(&Config::default(), "secret", 8091, true));
        let own = "https://desk.example:8091";
        for (target, host, origin, is_own) in [
            ("/", Some("desk.example:8091"), own, true),
            (own, None, own, true),
            (own, Some("desk.example:8091"), own, true),
            (own, None, "https://DESK.example:8091", true),
            (own, None, "https://desk.example:8092", false),
            (own, None, "https://other.example:8091", false),
            (own, None, "http://desk.example:8091", false),
            (own, None, "null", false),
            (own, Some("other.example:8091"), own, false),
            ("/", None, own, false),
        ] {
            let mut request = http::Request::post(target).header(header::ORIGIN, origin);
            if let Some(host) = host {
                request = request.header(header::HOST, host);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            let checked = sign_in.check_origin(&parts);
            assert_eq!(checked.is_ok(), is_own, "{target} {host:?} {origin}");
        }
    }
}
