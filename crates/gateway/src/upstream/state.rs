//! States of an upstream: what its connections, its calls and its lists have led to, and what operators are told of it.

use crate::{
    Credentials, Reach, Tokens, UpstreamSpec,
    catalogue::Catalogue,
    upstream::{Upstream, desk::Desk, locked, meter::Figures, now, own::RefusedClient, slot::Live},
};
use serde::Serialize;
use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

/// The shortest time without a word after which an upstream may be taken to hang: connecting may have left a call less.
const SILENCE: Duration = Duration::from_millis(500);
/// Most characters of an error that are kept.
pub(super) const MAX_ERROR: usize = 300;

/// State of an upstream. Each says what holds now, and not what was hoped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Configured, and never heard of yet.
    Configured,
    /// Not connected; its lists are known from before.
    Known,
    /// Being connected.
    Connecting,
    /// Connected, and nothing is wrong.
    Ready,
    /// A part does not work, or the upstream cannot be reached: `error` has the reason.
    Degraded,
    /// Authorization is wanted, and what there is was refused.
    LoginNeeded,
    /// Held back by an operator, or since it cannot be used as it is configured: then `error` has the reason.
    Held,
    /// Switched off in the configuration.
    Off,
}

impl State {
    /// All states.
    pub const ALL: [Self; 8] = [
        Self::Configured,
        Self::Known,
        Self::Connecting,
        Self::Ready,
        Self::Degraded,
        Self::LoginNeeded,
        Self::Held,
        Self::Off,
    ];

    /// The state as one word, for labels.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::LoginNeeded => "login_needed",
            other => other.as_str(),
        }
    }

    /// The state in lower-case words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Known => "known",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::LoginNeeded => "login needed",
            Self::Held => "held",
            Self::Off => "off",
        }
    }
}

/// Facts about an upstream, for operators.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Name.
    pub name: String,
    /// State.
    pub state: State,
    /// Seconds since the epoch at which it came into this state, as far as that was noticed.
    pub since: u64,
    /// Reason for the state, for people.
    pub reason: String,
    /// The way to it, without secrets.
    pub place: String,
    /// Fault, of now or of the last time, in at most 300 characters.
    pub error: Option<String>,
    /// Advice on that fault.
    pub cure: Option<String>,
    /// Seconds since the epoch of the last fault, and what it was.
    pub last_error: Option<(u64, String)>,
    /// Revision that was spoken the last time.
    pub revision: Option<&'static str>,
    /// Name and version that the server gives itself.
    pub server: Option<String>,
    /// Tools on offer.
    pub tools: usize,
    /// Tools that its lists have, and that `allow` and `deny` leave out.
    pub tools_withheld: usize,
    /// Items of its lists that are of no use, each with the reason; not those that `allow` and `deny` leave out.
    pub left_out: Vec<String>,
    /// Tools that no client is offered, since they cannot be called, such as for a schema that is none; each with the reason.
    pub unusable: Vec<String>,
    /// Items that are not to be used until an operator decides, each with the reason: a definition that waits for its
    /// approval, or a name that another item has.
    pub held: Vec<String>,
    /// Resources on offer.
    pub resources: usize,
    /// Prompts on offer.
    pub prompts: usize,
    /// Seconds since its lists were read.
    pub lists_age_seconds: Option<u64>,
    /// Connections that are open.
    pub connections: usize,
    /// Calls that are under way.
    pub calls_under_way: usize,
    /// Calls that were made since the start.
    pub calls: u64,
    /// Calls of these whose outcome is unknown.
    pub calls_lost: u64,
    /// Times that it was connected since the start.
    pub connected: u64,
    /// Milliseconds that connecting took the last time.
    pub connect_ms: Option<u64>,
    /// Clients that cannot use it, where each needs a credential of its own.
    pub refused_clients: Vec<RefusedClient>,
}

#[derive(Debug, Default)]
pub(super) struct Record {
    connecting_since: Option<Instant>,
    /// Time until which only an operator has it connected, since it has said so.
    pub(super) rests_until: Option<Instant>,
    /// A connection that failed or ended.
    pub(super) error: Option<String>,
    pub(super) wants_login: bool,
    /// A list that cannot be read.
    pub(super) lists_error: Option<String>,
    connect_ms: Option<u64>,
    /// Advice on the fault.
    pub(super) cure: Option<String>,
    pub(super) last_error: Option<(u64, String)>,
    /// The state that was last noted, and since when it holds.
    state: Option<(State, u64)>,
    /// The last lines on standard error of a child that has ended.
    stderr: String,
    /// Clients whose own credential is missing or was refused, the first to be found out first.
    pub(super) refused: Vec<RefusedClient>,
}

impl Upstream {
    pub(crate) fn is_connecting(&self, is_connecting: bool) {
        let mut record = locked(&self.record);
        match is_connecting {
            true => record.connecting_since = Some(Instant::now()),
            false => {
                let took = record
                    .connecting_since
                    .take()
                    .map(|it| it.elapsed().as_millis());
                record.connect_ms = took.and_then(|it| u64::try_from(it).ok());
            }
        }
    }

    pub(crate) fn connected(&self, live: &Live, is_own: bool) {
        let agreed = live.connection.agreed();
        let before = self.meter.connected.fetch_add(1, Ordering::Relaxed);
        if before != 0 && !is_own {
            self.meter.reconnected.fetch_add(1, Ordering::Relaxed);
        }
        tracing::info!(
            upstream = self.spec.name,
            revision = agreed.version.as_str(),
            server = agreed.server_info.as_ref().map(|it| it.name.as_str()),
            for_one_client = is_own,
            "an upstream is connected"
        );
        let mut record = locked(&self.record);
        record.error = None;
        record.cure = None;
        record.wants_login = false;
    }

    /// Notes for how long the upstream wants to be left alone, if it has said so when it was connected to.
    pub(crate) fn rest(&self, time: Option<Duration>) {
        locked(&self.record).rests_until = time.map(|it| Instant::now() + it);
    }

    /// True as long as only an operator has it connected.
    pub(crate) fn rests(&self) -> bool {
        let until = locked(&self.record).rests_until;
        until.is_some_and(|it| Instant::now() < it)
    }

    pub(crate) fn failed(&self, reason: &str, wants_login: bool) {
        let cure = match (&self.spec.tokens, wants_login) {
            (Tokens::Kept(_), true) => format!(
                "; sign in with `owlclaw-mcp client login --url {}`",
                self.spec.place()
            ),
            _ => String::new(),
        };
        self.failed_so(reason, &cure, wants_login);
    }

    /// Notes that there can be no tokens before somebody does what cures that.
    pub(crate) fn misconfigured(&self, reason: &str, cure: &str) {
        self.failed_so(reason, &format!("; {cure}"), false);
        locked(&self.record).cure = Some(cure.to_owned());
    }

    fn failed_so(&self, reason: &str, cure: &str, wants_login: bool) {
        let mut record = locked(&self.record);
        // Before it is cut: a part of a secret is not recognised.
        let reason = redaction::without_known(reason);
        let reason = shortened(&reason) + cure;
        if record.error.as_ref() != Some(&reason) {
            tracing::warn!(
                upstream = self.spec.name,
                reason,
                "an upstream cannot be reached"
            );
        }
        record.last_error = Some((now(), reason.clone()));
        record.error = Some(reason);
        record.cure = None;
        record.wants_login = wants_login;
        self.state(&mut record);
        drop(record);
        self.heard.send_replace(true);
    }

    /// Notes an attempt to connect that has failed, and what can be done about it.
    pub(crate) fn advise(&self, error: &mcp_client::Error) {
        self.meter.failed.fetch_add(1, Ordering::Relaxed);
        let mut record = locked(&self.record);
        record.cure = Some(cure(&self.spec, error));
        let last_words = match error {
            mcp_client::Error::Closed { stderr, .. } => stderr,
            mcp_client::Error::TimedOut { note, .. } => note,
            _ => return,
        };
        record.stderr.clone_from(last_words);
    }

    /// Keeps the last words of a connection that is left.
    pub(crate) fn left(&self, live: &Live) {
        let mut record = locked(&self.record);
        record.stderr = live.connection.stderr();
        self.state(&mut record);
    }

    /// Notes the state, if it is another than before.
    pub(crate) fn note(&self) {
        self.state(&mut locked(&self.record));
    }

    pub(crate) fn ended(&self, live: &Live) {
        let why = match live.connection.stderr() {
            text if text.is_empty() => "the connection has ended".to_owned(),
            text => format!("the connection has ended; its last words: {text}"),
        };
        self.failed(&why, false);
    }

    /// Notes that a call has run out of its time, if nothing was heard on its connection meanwhile: the upstream hangs, as
    /// far as anybody can say. The next answer ends that.
    pub(crate) fn silent(&self, desk: &Desk, since: Instant) {
        if desk.has_heard_since(since) || since.elapsed() < SILENCE {
            return;
        }
        let name = &self.spec.name;
        let seconds = since.elapsed().as_secs_f64().round();
        let reason =
            format!("it has said nothing for {seconds} s, in which a call has run out of time");
        let mut record = locked(&self.record);
        if record.error.is_none() {
            tracing::warn!(upstream = name, seconds, "an upstream does not answer");
        }
        record.last_error = Some((now(), reason.clone()));
        record.error = Some(reason);
        record.cure = Some(format!(
            "see whether it hangs; if its tools take longer, raise upstreams.{name}.timeout_seconds"
        ));
        self.state(&mut record);
    }

    /// Notes that a call was answered, so that what was wrong with the connection is over.
    pub(crate) fn answered(&self) {
        let mut record = locked(&self.record);
        if record.error.take().is_some() {
            record.cure = None;
            record.wants_login = false;
            self.state(&mut record);
        }
    }

    pub(crate) fn called(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// Reason why a list could not be read the last time.
    pub(crate) fn lists_error(&self) -> Option<String> {
        locked(&self.record).lists_error.clone()
    }

    /// A fault of a part, with which the upstream can be used.
    fn lesser(&self, record: &Record) -> Option<String> {
        let of_lists = record.lists_error.clone();
        of_lists.or_else(|| self.watched.problem())
    }

    /// The state, which is noted if it is another than before, and since when it holds.
    fn state(&self, record: &mut Record) -> (State, u64) {
        let state = if !self.spec.enabled {
            State::Off
        } else if self.spec.held_by().is_some() {
            State::Held
        } else if record.wants_login {
            State::LoginNeeded
        } else if record.error.is_some() || self.lesser(record).is_some() {
            // It stays so while another attempt is made.
            State::Degraded
        } else if record.connecting_since.is_some() {
            State::Connecting
        } else if !self.all_live().is_empty() {
            State::Ready
        } else if self.known.load().is_some() {
            State::Known
        } else {
            State::Configured
        };
        match record.state {
            Some(noted) if noted.0 == state => noted,
            _ => *record.state.insert((state, now())),
        }
    }

    /// Counts for metrics.
    pub(crate) fn figures(&self) -> Figures {
        let (state, _) = self.state(&mut locked(&self.record));
        self.meter.figures(&self.spec.name, state)
    }

    pub(crate) fn status(&self) -> Status {
        let mut record = locked(&self.record);
        let (state, since) = self.state(&mut record);
        let known = self.catalogue();
        let live = self.all_live();
        let error = match state {
            // An operator's own hold is no fault, and what is held is not asked for anything.
            State::Held => self.spec.unresolved.as_deref().map(shortened),
            _ => record.error.clone().or_else(|| self.lesser(&record)),
        };
        let count =
            |count: fn(&Catalogue) -> usize| known.as_deref().map(count).unwrap_or_default();
        let offered = |it: &Arc<Catalogue>| {
            it.tools
                .iter()
                .filter(|it| self.spec.offers(&it.name))
                .count()
        };
        let fitting = known.as_ref().map(offered).unwrap_or_default();
        let unusable = locked(&self.unusable).clone();
        let mut held = self.held();
        held.extend(locked(&self.twins).clone());
        let tools = fitting.saturating_sub(unusable.len());
        Status {
            name: self.spec.name.clone(),
            state,
            since,
            reason: reason(state, &self.spec, error.as_deref(), known.as_deref()),
            place: self.spec.place(),
            cure: error.as_ref().and(record.cure.clone()),
            error,
            last_error: record.last_error.clone(),
            revision: known.as_ref().map(|it| it.version.as_str()),
            server: known.as_ref().and_then(|it| {
                let info = it.server_info.as_ref()?;
                Some(format!("{} {}", info.name, info.version))
            }),
            tools,
            tools_withheld: count(|it| it.tools.len()) - fitting,
            unusable,
            held: held.into_values().collect(),
            left_out: known
                .iter()
                .flat_map(|it| &it.left_out)
                .filter(|it| it.name.as_ref().is_none_or(|it| self.spec.offers(it)))
                .map(|it| it.why.clone())
                .collect(),
            resources: count(|it| it.resources.len()),
            prompts: count(|it| it.prompts.len()),
            lists_age_seconds: known.as_ref().map(|it| it.age().as_secs()),
            connections: live.len(),
            calls_under_way: live.iter().map(|it| it.desk.calls()).sum(),
            calls: self.calls.load(Ordering::Relaxed),
            calls_lost: self.lost.load(Ordering::Relaxed),
            connected: self.meter.connected.load(Ordering::Relaxed),
            connect_ms: record.connect_ms,
            refused_clients: record.refused.clone(),
        }
    }

    /// The last lines that its program has written to standard error, of the one before if none runs; `None`
    /// if it is no program.
    pub(crate) fn stderr(&self) -> Option<String> {
        if !matches!(self.spec.reach, Reach::Child { .. }) {
            return None;
        }
        let live = self.all_live().into_iter().next();
        let text = match live {
            Some(live) => live.connection.stderr(),
            None => locked(&self.record).stderr.clone(),
        };
        Some(redaction::without_known(&text).into_owned())
    }
}

/// As much of an error as is kept.
fn shortened(error: &str) -> String {
    error.chars().take(MAX_ERROR).collect()
}

/// Reason for a state, for people.
fn reason(
    state: State,
    spec: &UpstreamSpec,
    error: Option<&str>,
    known: Option<&Catalogue>,
) -> String {
    match state {
        State::Configured if spec.credentials != Credentials::Shared => {
            "it was never heard of; it is connected for the first client that has a credential of its own".to_owned()
        }
        State::Configured => "it was never heard of; it is connected when it is needed".to_owned(),
        State::Known => {
            let age = known.map(|it| it.age().as_secs()).unwrap_or_default();
            format!(
                "no connection is open; its lists were read {age} s ago, and the next call connects it"
            )
        }
        State::Connecting => "it is being connected".to_owned(),
        State::Ready => "it is connected".to_owned(),
        State::Degraded | State::LoginNeeded => error.unwrap_or("no reason is known").to_owned(),
        State::Held => spec.held_by().unwrap_or_default(),
        State::Off => format!("upstreams.{}.enabled is false", spec.name),
    }
}

/// Advice on an attempt to connect that has failed.
fn cure(spec: &UpstreamSpec, error: &mcp_client::Error) -> String {
    use mcp_client::Error;
    let name = &spec.name;
    let place = spec.place();
    match error {
        Error::Start { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => format!(
            "install `{place}`, or write its whole path: upstreams.{name}.command; `command -v {place}` \
             says where it is"
        ),
        Error::Start { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied => {
            format!("make `{place}` executable for the user of the server")
        }
        Error::Unauthorized { .. } if matches!(spec.tokens, Tokens::Kept(_)) => format!(
            "sign in with `owlclaw-mcp client login --url {place}`, or set upstreams.{name}.headers.Authorization"
        ),
        Error::Unauthorized { .. } => {
            format!("set upstreams.{name}.headers.Authorization to a credential that is good")
        }
        Error::AuthorizationMisconfigured { cure, .. } => cure.clone(),
        Error::AuthorizationUnavailable { .. } => {
            "see to its authorization server: the login is kept, and used again as soon as that answers".to_owned()
        }
        Error::TimedOut { .. } => format!(
            "try it by hand (`owlclaw-mcp client ping`), or raise upstreams.{name}.connect_timeout_seconds \
             if it only takes long to start"
        ),
        Error::Address { .. } => format!("correct upstreams.{name}.url"),
        Error::Broken { cause, .. } if cause.is_hang_up() && place.starts_with("http://") => format!(
            "look into the log of the server at {place}; if its port speaks TLS, write https:// in upstreams.{name}.url"
        ),
        Error::Http(_) | Error::Broken { .. } => format!("start the server at {place}, or correct upstreams.{name}.url"),
        Error::Status { .. } if place.starts_with("ws") => format!(
            "correct upstreams.{name}.url: servers that speak WebSocket do it at /mcp/ws or /mcp, and some only where it is \
             switched on (here `http.websocket.enabled`); http instead of ws is what most speak"
        ),
        Error::Status { status: 404, .. } => format!(
            "correct the path in upstreams.{name}.url: servers listen at /mcp, and older ones at /sse"
        ),
        Error::NoCommonVersion { .. } => {
            "use a version of the upstream that speaks a revision of the protocol that is known here"
                .to_owned()
        }
        Error::Closed { .. } => match spec.reach {
            Reach::Child { .. } => format!(
                "run it by hand with the arguments of upstreams.{name}.args; `owlclaw-mcp upstream logs \
                 {name}` shows what it said. Of the environment it has only what upstreams.{name}.env names"
            ),
            Reach::Url { .. } => format!("look into the log of the server at {place}"),
        },
        _ => format!("try it by hand: `owlclaw-mcp client ping`; correct upstreams.{name}"),
    }
}
