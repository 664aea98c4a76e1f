//! Operator routes over HTTP: statistics and decisions on approvals, for a request with the token
//! of the configuration, or from an authenticated principal with an operator's role.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use gateway::{Gateway, Status};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Uri, header};
use identity::FailedAttempts;
use ledger::{
    ApprovalError, ApprovalFilter, ApprovalId, ApprovalProblem, ApprovalState, Bucket, Decision,
    MAX_REASON_BYTES, ReadLedger, StatisticsQuery, Verdict,
};
use mcp_server::{approvals_json, statistics_json, system_clock, tool_capability};
use percent_encoding::percent_decode_str;
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use transport_http::{PlainResponse, SideRequest};

use super::sessions::LiveSessions;
use super::store::{ServedMcpServer, open_reader};
use crate::Failure;
use config::{Config, MIN_TOKEN_CHARS};

/// The most days that are summed up at once.
const MAX_DAYS: u64 = 366;

/// Most characters of an operator's name.
const MAX_NAME_CHARS: usize = 64;

/// `Retry-After` in seconds after too many wrong tokens: they are forgiven at ten a second.
const ATTEMPTS_SECONDS: u64 = 10;

/// `GET /governance/stats`, `GET /approvals` and `POST /approvals/ID?decision=…`, `GET /sessions` and
/// `DELETE /sessions/ID` and `DELETE /sessions?client=NAME`, `GET /upstreams`, `GET /upstreams/NAME` and
/// `POST /upstreams/NAME?action=recheck`.
pub(super) struct Administration {
    mcp: Arc<ServedMcpServer>,
    config: Config,
    /// Of the token, if there is one. It is compared by this, so that neither its length nor how much
    /// of it is right shows in the time.
    token: Option<[u8; 32]>,
    /// Addresses that have sent wrong tokens, so that guessing is limited.
    attempts: FailedAttempts,
    /// Roles that give access; none where clients do not authenticate.
    roles: Vec<String>,
    sessions: Arc<LiveSessions>,
    gateway: Gateway,
    /// One looks into the ledger at a time: it is read by a thread, and serves calls as well.
    reading: Mutex<()>,
}

/// Operator who sends a request.
enum Operator {
    /// Operator who has the token.
    HasToken,
    /// Principal with an operator's role.
    Named {
        name: Arc<str>,
        /// Kind of proof of identity, and the role.
        proof: String,
    },
}

impl Operator {
    /// The operator's name in the log.
    fn name(&self) -> &str {
        match self {
            Self::HasToken => "http",
            Self::Named { name, .. } => name,
        }
    }
}

/// Kind of request.
enum Asked {
    Statistics,
    Approvals,
    Approval(String),
    Sessions,
    Session(String),
    Upstreams,
    Upstream(String),
}

impl Administration {
    /// Operator routes; `None` if no operator could be let in, in which case the routes do not
    /// exist.
    pub(super) fn of(
        config: &Config,
        mcp: &Arc<ServedMcpServer>,
        sessions: Arc<LiveSessions>,
        gateway: Gateway,
    ) -> Result<Option<Self>, Failure> {
        let token = match &config.governance.approvals.http_token {
            None => None,
            // One that refers to nothing must not be taken for none, or for an empty one.
            Some(token) => Some(token.reveal(&config.environment).ok_or_else(|| {
                Failure::from(
                    "governance.approvals.http_token refers to a variable that is not set",
                )
            })?),
        };
        if token
            .as_ref()
            .is_some_and(|token| token.trim().chars().count() < MIN_TOKEN_CHARS)
        {
            return Err(Failure::from(format!(
                "governance.approvals.http_token is shorter than {MIN_TOKEN_CHARS} characters, and \
                 could be guessed; `openssl rand -hex 32` makes a good one"
            )));
        }
        // Where nobody proves anything, roles are nobody's.
        let roles = match config.identity.is_configured() {
            true => config.identity.operator_roles.clone(),
            false => Vec::new(),
        };
        if token.is_none() && roles.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            mcp: Arc::clone(mcp),
            config: config.clone(),
            token: token.map(|token| Sha256::digest(token.trim()).into()),
            attempts: FailedAttempts::default(),
            roles,
            sessions,
            gateway,
            reading: Mutex::new(()),
        }))
    }

    /// The answer, if it is one of these paths.
    pub(super) async fn handle(&self, request: SideRequest<'_>) -> PlainResponse {
        let parts = request.parts();
        let (method, uri) = (&parts.method, &parts.uri);
        let Some(asked) = asked(uri.path()) else {
            return problem(StatusCode::NOT_FOUND, "there is nothing here");
        };
        if matches!(*method, Method::POST | Method::DELETE) && !self.may_decide_from(&parts.headers)
        {
            let why = "pages decide nothing unless their origin is listed by its name";
            return problem(StatusCode::FORBIDDEN, why);
        }
        let operator = match self.operator(request).await {
            Ok(operator) => operator,
            Err(refused) => return *refused,
        };
        let query = Query::of(uri);
        match (asked, method) {
            (Asked::Statistics, &Method::GET) => self.statistics(&query).await,
            (Asked::Approvals, &Method::GET) => self.approvals(&query).await,
            (Asked::Approval(id), &Method::POST) => self.decide(&id, &query, &operator).await,
            (Asked::Sessions, &Method::GET) => self.sessions(&query),
            (Asked::Sessions, &Method::DELETE) => self.end_sessions(&query, &operator),
            (Asked::Session(id), &Method::DELETE) => self.end_session(&id, &operator),
            (Asked::Upstreams, &Method::GET) => self.upstreams(),
            (Asked::Upstream(name), &Method::GET) => self.upstream(&name),
            (Asked::Upstream(name), &Method::POST) => self.recheck(&name, &query, &operator).await,
            (Asked::Approval(_), _) => not_allowed("POST"),
            (Asked::Upstream(_), _) => not_allowed("GET, POST"),
            (Asked::Session(_), _) => not_allowed("DELETE"),
            (Asked::Sessions, _) => not_allowed("GET, DELETE"),
            (_, _) => not_allowed("GET"),
        }
    }

    /// Returns true if the web page that sends the request, if there is one, may decide. Permission
    /// for every page to call tools is not enough: browsers present their user's certificate
    /// unasked.
    fn may_decide_from(&self, headers: &HeaderMap) -> bool {
        let http = &self.config.http;
        let of_cors = &http.cors.allowed_origins;
        let listed = || {
            let of_cors = of_cors.iter().filter(|_| http.cors.enabled);
            http.allowed_origins.iter().chain(of_cors)
        };
        headers.get_all(header::ORIGIN).iter().all(|origin| {
            let same = |name: &str| name.as_bytes().eq_ignore_ascii_case(origin.as_bytes());
            listed().any(|name| name != "*" && same(name.trim_end_matches('/')))
        })
    }

    /// Operator who sends `request`; anyone else is refused.
    async fn operator(&self, request: SideRequest<'_>) -> Result<Operator, Box<PlainResponse>> {
        if self.has_token(request) {
            return Ok(Operator::HasToken);
        }
        if self.roles.is_empty() {
            let mut response = problem(StatusCode::UNAUTHORIZED, "a bearer token is needed");
            let scheme = HeaderValue::from_static("Bearer");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, scheme);
            return Err(self.refused(request, Box::new(response)));
        }
        let principal = request.principal().await;
        let principal = principal.map_err(|response| self.refused(request, response))?;
        let mut roles = principal.roles().iter();
        if let Some(role) = roles.find(|role| self.roles.iter().any(|it| **it == ***role)) {
            let name = Arc::clone(principal.name());
            let kind = super::identity::kind_of_proof(request.parts());
            let proof = format!("{kind} of {name}, role {role}, over HTTP");
            return Ok(Operator::Named { name, proof });
        }
        tracing::warn!(%principal, path = request.parts().uri.path(), "the caller is no operator");
        let why = "only operators may do this, which takes a role";
        Err(Box::new(problem(StatusCode::FORBIDDEN, why)))
    }

    /// Returns true if a request has the operators' token and its address has not sent too many
    /// wrong ones.
    pub(super) fn has_token(&self, request: SideRequest<'_>) -> bool {
        self.may_try(request) && self.is_token(&request.parts().headers)
    }

    /// Answer to a request that has neither the token nor another proof, and would otherwise be
    /// answered with `response`. A wrong token is counted.
    pub(super) fn refused(
        &self,
        request: SideRequest<'_>,
        response: Box<PlainResponse>,
    ) -> Box<PlainResponse> {
        let headers = &request.parts().headers;
        if self.token.is_none() || !headers.contains_key(header::AUTHORIZATION) {
            return response;
        }
        if !self.may_try(request) {
            let why = "too many tokens from this address were wrong";
            let mut response = problem(StatusCode::TOO_MANY_REQUESTS, why);
            let later = HeaderValue::from(ATTEMPTS_SECONDS);
            response.headers_mut().insert(header::RETRY_AFTER, later);
            return Box::new(response);
        }
        if let Some(address) = request.peer().address() {
            self.attempts.failed(address.ip(), Instant::now());
        }
        response
    }

    fn may_try(&self, request: SideRequest<'_>) -> bool {
        let address = request.peer().address();
        address.is_none_or(|address| self.attempts.may_try(address.ip(), Instant::now()))
    }

    fn is_token(&self, headers: &HeaderMap) -> bool {
        let Some(known) = &self.token else {
            return false;
        };
        let mut given = headers.get_all(header::AUTHORIZATION).iter();
        let (Some(given), None) = (given.next(), given.next()) else {
            return false;
        };
        let Some((scheme, token)) = given.as_bytes().split_at_checked("Bearer ".len()) else {
            return false;
        };
        let given: [u8; 32] = Sha256::digest(token.trim_ascii()).into();
        // All bytes are looked at, whichever differ first.
        let differ = given.iter().zip(known).fold(0, |all, (a, b)| all | (a ^ b));
        scheme.eq_ignore_ascii_case(b"Bearer ") && std::hint::black_box(differ) == 0
    }

    async fn statistics(&self, query: &Query) -> PlainResponse {
        let days = match query.get("days").map(|days| days.parse::<u64>()) {
            None => 1,
            Some(Ok(days @ 1..=MAX_DAYS)) => days,
            Some(_) => return problem(StatusCode::BAD_REQUEST, "`days` is from 1 to 366"),
        };
        const DAY_US: u64 = 24 * 60 * 60 * 1_000_000;
        let now_us = system_clock();
        let today_us = now_us - now_us % DAY_US;
        let since_us = today_us.saturating_sub((days - 1) * DAY_US);
        let (principal, capability) = (query.get("principal"), query.get("capability"));
        let rows = self
            .read(move |ledger| {
                let query = StatisticsQuery {
                    principal: principal.as_deref(),
                    capability: capability.as_deref(),
                    since_us,
                    until_us: now_us.saturating_add(1),
                    bucket: Bucket::Day,
                };
                Ok(statistics_json(ledger, query)?)
            })
            .await;
        let usage = self.mcp.usage_json().await;
        match (rows, usage) {
            (Ok(rows), Ok(mut all)) => {
                all["statistics"] = rows;
                answer(StatusCode::OK, &all)
            }
            (Err(error), _) => unavailable(&*error),
            (_, Err(error)) => unavailable(&error),
        }
    }

    async fn approvals(&self, query: &Query) -> PlainResponse {
        let state = match query.get("state").as_deref() {
            None => Some(ApprovalState::Pending),
            Some("all") => None,
            Some(name) => match ApprovalState::named(name) {
                Some(state) => Some(state),
                None => return problem(StatusCode::BAD_REQUEST, "there is no such `state`"),
            },
        };
        let principal = query.get("principal");
        let now_us = system_clock();
        let found = self
            .read(move |ledger| {
                let filter = ApprovalFilter {
                    state,
                    // What says that it is pending need not be so any more.
                    expires_after_us: (state == Some(ApprovalState::Pending)).then_some(now_us),
                    principal: principal.as_deref(),
                    ..ApprovalFilter::default()
                };
                Ok(approvals_json(ledger, filter, now_us)?)
            })
            .await;
        match found {
            Ok(approvals) => answer(StatusCode::OK, &BTreeMap::from([("approvals", approvals)])),
            Err(error) => unavailable(&*error),
        }
    }

    async fn decide(&self, id: &str, query: &Query, operator: &Operator) -> PlainResponse {
        let Ok(id) = id.parse::<ApprovalId>() else {
            return problem(StatusCode::NOT_FOUND, "there is no such approval");
        };
        let decision = match query.get("decision").as_deref() {
            Some("approve") => Decision::Approve,
            Some("deny") => Decision::Deny,
            Some("revoke") => Decision::Revoke,
            _ => {
                let why = "`decision` is `approve`, `deny` or `revoke`, in the query of the URL";
                return problem(StatusCode::BAD_REQUEST, why);
            }
        };
        if let Operator::Named { name, .. } = operator
            && decision != Decision::Deny
        {
            match self.is_for(id, Arc::clone(name)).await {
                Ok(false) => {}
                Ok(true) => {
                    let why = "you made this call: another operator has to decide on it or revoke the decision";
                    return problem(StatusCode::FORBIDDEN, why);
                }
                Err(error) => return unavailable(&*error),
            }
        }
        let (by, proof): (String, _) = match operator {
            // Who has proved who it is decides as nobody else.
            Operator::Named { name, proof } => ((**name).to_owned(), proof.clone()),
            Operator::HasToken => {
                let by = query.get("by").unwrap_or_default();
                let by = by.chars().filter(|it| !it.is_control());
                let by: String = by.take(MAX_NAME_CHARS).collect();
                if by.trim().is_empty() {
                    let why =
                        "`by` is the name of the operator who decides, in the query of the URL";
                    return problem(StatusCode::BAD_REQUEST, why);
                }
                let proof = "the token of operators, over HTTP; name unproven".to_owned();
                (by, proof)
            }
        };
        let reason = query.get("reason");
        if reason
            .as_ref()
            .is_some_and(|it| MAX_REASON_BYTES < it.len())
        {
            let why = format!("`reason` has more than {MAX_REASON_BYTES} bytes");
            return problem(StatusCode::BAD_REQUEST, &why);
        }
        let verdict = Verdict {
            proof: Some(proof),
            reason,
            ..Verdict::new(decision, by, system_clock())
        };
        match self.mcp.decide_approval(id, verdict).await {
            Ok(approval) => answer(StatusCode::OK, &approval),
            Err(ApprovalError::Refused(why)) => {
                let status = match why {
                    ApprovalProblem::Missing => StatusCode::NOT_FOUND,
                    _ => StatusCode::CONFLICT,
                };
                problem(status, &why.to_string())
            }
            Err(error @ ApprovalError::Record(_)) => unavailable(&error),
        }
    }

    /// The legacy sessions of the server as it runs, those first that are idle longest.
    fn sessions(&self, query: &Query) -> PlainResponse {
        let Some(desk) = self.sessions.get() else {
            return problem(StatusCode::SERVICE_UNAVAILABLE, "the server is starting");
        };
        let overview = desk.overview();
        let rows = desk.rows(query.get("client").as_deref());
        let rows: Vec<_> = rows
            .iter()
            .map(|row| {
                json!({
                    "id": row.id,
                    "client": row.principal,
                    "version": row.version,
                    "transport": if row.is_old_sse { "sse" } else { "http" },
                    "idle_seconds": row.idle.as_secs(),
                    "streaming": row.is_streaming,
                    "requests": row.in_flight,
                })
            })
            .collect();
        let body = json!({
            "open": overview.open,
            "max": overview.max,
            "max_per_client": overview.max_per_principal,
            "evicted": overview.evicted,
            "refused": overview.refused,
            "sessions": rows,
        });
        answer(StatusCode::OK, &body)
    }

    fn end_session(&self, id: &str, operator: &Operator) -> PlainResponse {
        let ended = self.sessions.get().is_some_and(|desk| desk.end(id));
        if !ended {
            return problem(StatusCode::NOT_FOUND, "there is no such session");
        }
        tracing::info!(
            session = id,
            by = operator.name(),
            "an operator ended a session"
        );
        answer(StatusCode::OK, &json!({ "ended": 1 }))
    }

    fn end_sessions(&self, query: &Query, operator: &Operator) -> PlainResponse {
        let Some(client) = query.get("client") else {
            let why = "`client` says whose sessions are to end";
            return problem(StatusCode::BAD_REQUEST, why);
        };
        let ended = self.sessions.get().map_or(0, |it| it.end_all_of(&client));
        tracing::info!(
            client,
            ended,
            by = operator.name(),
            "an operator ended sessions"
        );
        answer(StatusCode::OK, &json!({ "ended": ended }))
    }

    fn upstreams(&self) -> PlainResponse {
        answer(
            StatusCode::OK,
            &json!({ "upstreams": self.gateway.status() }),
        )
    }

    /// All that is known of one upstream.
    fn upstream(&self, name: &str) -> PlainResponse {
        match self.status_of(name) {
            Ok(status) => answer(StatusCode::OK, &self.told_of(&status)),
            Err(absent) => *absent,
        }
    }

    fn status_of(&self, name: &str) -> Result<Status, Box<PlainResponse>> {
        let mut all = self.gateway.status();
        let at = all.iter().position(|it| it.name == name);
        at.map(|at| all.swap_remove(at)).ok_or_else(|| {
            let meant = config::nearest(name, all.iter().map(|it| it.name.as_str()));
            let hint = meant.map(|it| format!("; did you mean `{it}`?"));
            let why = format!("there is no upstream `{name}`{}", hint.unwrap_or_default());
            Box::new(problem(StatusCode::NOT_FOUND, &why))
        })
    }

    fn told_of(&self, status: &Status) -> serde_json::Value {
        let policy = self.mcp.governor().policy();
        let tools = self.gateway.tools_named(&status.name).into_iter();
        let tools = tools.map(|(tool, offered)| {
            let held = offered
                .as_deref()
                .and_then(|it| policy.held(&tool_capability(it)).map(str::to_owned));
            json!({ "tool": tool, "offered_as": offered, "held": held })
        });
        let stderr = self.gateway.stderr(&status.name);
        json!({
            "upstream": status,
            "tools": tools.collect::<Vec<_>>(),
            "stderr": stderr.map(|it| crate::logging::without_secrets(&it)),
        })
    }

    async fn recheck(&self, name: &str, query: &Query, operator: &Operator) -> PlainResponse {
        if query.get("action").as_deref() != Some("recheck") {
            let why = "`action` is `recheck`, in the query of the URL";
            return problem(StatusCode::BAD_REQUEST, why);
        }
        if let Err(absent) = self.status_of(name) {
            return *absent;
        }
        tracing::info!(
            upstream = name,
            by = operator.name(),
            "an operator has an upstream connected anew"
        );
        let failure = self.gateway.recheck(name).await.err();
        match self.status_of(name) {
            Ok(status) => {
                let mut told = self.told_of(&status);
                told["failure"] = json!(failure);
                answer(StatusCode::OK, &told)
            }
            Err(absent) => *absent,
        }
    }

    /// Returns true if the approval is for a call of `principal`.
    async fn is_for(&self, approval: ApprovalId, principal: Arc<str>) -> Result<bool, Failure> {
        self.read(move |ledger| {
            let filter = ApprovalFilter {
                approval: Some(approval),
                principal: Some(&principal),
                ..ApprovalFilter::default()
            };
            Ok(!ledger.approvals(1, filter)?.is_empty())
        })
        .await
    }

    async fn read<T: Send + 'static>(
        &self,
        look: impl FnOnce(&mut dyn ReadLedger) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let _turn = self.reading.lock().await;
        let config = self.config.clone();
        tokio::task::spawn_blocking(move || look(&mut *open_reader(&config)?)).await?
    }
}

fn asked(path: &str) -> Option<Asked> {
    match path {
        "/governance/stats" => Some(Asked::Statistics),
        "/approvals" => Some(Asked::Approvals),
        "/sessions" => Some(Asked::Sessions),
        "/upstreams" => Some(Asked::Upstreams),
        _ => {
            let (of, id) = path.strip_prefix('/')?.split_once('/')?;
            if id.is_empty() || id.contains('/') {
                return None;
            }
            let id = percent_decode_str(id).decode_utf8().ok()?.into_owned();
            match of {
                "approvals" => Some(Asked::Approval(id)),
                "sessions" => Some(Asked::Session(id)),
                "upstreams" => Some(Asked::Upstream(id)),
                _ => None,
            }
        }
    }
}

/// Returns true if `path` is an operator route.
pub(super) fn is_of_operators(path: &str) -> bool {
    asked(path).is_some()
}

/// Query of a URL: the part behind the question mark.
struct Query(Vec<(String, String)>);

impl Query {
    fn of(uri: &Uri) -> Self {
        let pairs = uri.query().unwrap_or_default().split('&');
        let text = |text: &str| {
            let text = text.replace('+', " ");
            percent_decode_str(&text).decode_utf8_lossy().into_owned()
        };
        let pairs = pairs.filter_map(|pair| pair.split_once('='));
        Self(
            pairs
                .map(|(name, value)| (text(name), text(value)))
                .collect(),
        )
    }

    fn get(&self, name: &str) -> Option<String> {
        let found = self.0.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.clone())
    }
}

fn answer(status: StatusCode, value: &impl Serialize) -> PlainResponse {
    let text = serde_json::to_string(value).expect("plain data serializes");
    let mut response = Response::new(Bytes::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let json = HeaderValue::from_static("application/json");
    headers.insert(header::CONTENT_TYPE, json);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn problem(status: StatusCode, why: &str) -> PlainResponse {
    answer(status, &json!({ "error": why }))
}

fn not_allowed(allowed: &'static str) -> PlainResponse {
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "this method is not allowed");
    let allowed = HeaderValue::from_static(allowed);
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

/// Response for a failure whose cause is only written to the log.
fn unavailable(error: &(dyn std::error::Error + 'static)) -> PlainResponse {
    tracing::error!(error, "operators could not be answered");
    problem(
        StatusCode::SERVICE_UNAVAILABLE,
        "this cannot be told at present",
    )
}
