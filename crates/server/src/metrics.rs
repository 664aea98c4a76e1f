//! `/metrics`: what the server counts, and what the parts around it have to add.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adapter_tools::python::{AppHealth, PythonApp};
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use gateway::{Figures, Gateway, State};
use governance::{Kind, Micros, Remaining, Timestamp, UnavailableError};
use http::{HeaderValue, Response, header};
use mcp_server::{Buckets, Metrics, ReadingKind, system_clock};
use transport_http::{HttpStats, PlainResponse, SessionDesk};
use transport_ws::WebSockets;

use super::health::is_fit;
use super::identity::Identification;
use super::lifecycle::Lifecycle;
use super::quotas::Quotas;
use super::store::ServedMcpServer;
use crate::logging;
use config::Config;

/// Most clients whose use is shown one by one.
const MAX_CLIENTS: usize = 200;

/// Of so many of them at once: calls ask the same counters, and are not to wait behind all.
const ASKED_AT_ONCE: usize = 32;

/// Time that the counters may take to report use, all in all; until they answer, their last report
/// is shown.
const PATIENCE: Duration = Duration::from_secs(1);

/// Endpoint for metrics.
pub(super) struct Numbers {
    mcp: Arc<ServedMcpServer>,
    used: Arc<Mutex<Used>>,
    /// The configuration in force, with the rules for the clients it names.
    in_force: Arc<Mutex<Config>>,
}

/// Last report of the counters.
#[derive(Default)]
struct Used {
    clients: usize,
    /// By client and limit: how much of all.
    ratios: Vec<(String, &'static str, f64)>,
}

impl Numbers {
    /// Adds to the server's metrics what is to be read from the parts of this server.
    pub(super) fn of(
        in_force: Arc<Mutex<Config>>,
        mcp: &Arc<ServedMcpServer>,
        app: Option<&Arc<PythonApp>>,
        gateway: &Gateway,
        lifecycle: &Lifecycle,
    ) -> Self {
        let metrics = mcp.metrics();
        let used = Arc::new(Mutex::new(Used::default()));
        read_quotas(metrics, &used);
        read_crowd(metrics, mcp.governor().quota());
        read_log(metrics);
        read_process(metrics);
        if let Some(app) = app {
            read_workers(metrics, app);
        }
        read_upstreams(metrics, gateway);
        let (readiness, lifecycle) = (Arc::downgrade(mcp), lifecycle.clone());
        metrics.read_one(
            ReadingKind::Gauge,
            "owlclaw_mcp_ready",
            "1 while `/health/ready` says so; 0 while a part does not work and while it ends.",
            move || {
                let fit = readiness.upgrade().is_some_and(|it| is_fit(&it.health()));
                f64::from(u8::from(fit && !lifecycle.has_begun()))
            },
        );
        Self {
            mcp: Arc::clone(mcp),
            used,
            in_force,
        }
    }

    /// The numbers as they are now.
    pub(super) async fn answer(&self) -> PlainResponse {
        self.ask_for_use().await;
        let mut response = Response::new(Bytes::from(self.mcp.metrics().render()));
        let headers = response.headers_mut();
        let text = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
        headers.insert(header::CONTENT_TYPE, text);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    async fn ask_for_use(&self) {
        // That the counters are away is told by `owlclaw_mcp_component_up`.
        if let Ok(Ok(used)) = tokio::time::timeout(PATIENCE, self.look()).await {
            *self.used.lock().unwrap_or_else(PoisonError::into_inner) = used;
        }
    }

    async fn look(&self) -> Result<Used, UnavailableError> {
        let now = Timestamp(system_clock() / 1_000);
        let governor = self.mcp.governor();
        let names: Vec<String> = {
            let in_force = self.in_force.lock();
            let in_force = in_force.unwrap_or_else(PoisonError::into_inner);
            let names = in_force.governance.rules.clients.keys();
            names.take(MAX_CLIENTS).cloned().collect()
        };
        let ask = async |name: String| {
            let left = governor.remaining(&*name, Kind::Tool, now).await;
            left.map(|left| (name, left))
        };
        // Counters that are elsewhere are asked by as few messages as these fit in.
        let remaining = stream::iter(names).map(ask).buffered(ASKED_AT_ONCE);
        let (usage, remaining) = future::try_join(
            governor.usage(now),
            remaining.try_collect::<Vec<(String, Remaining)>>(),
        )
        .await?;
        let mut used = Used {
            clients: usage.len(),
            ratios: Vec::new(),
        };
        for (name, left) in remaining {
            let limits = [
                ("budget", left.budget.zip(left.budget_limit).map(both_units)),
                ("calls_minute", left.minute.zip(left.minute_limit).map(both)),
                ("calls_day", left.day.zip(left.day_limit).map(both)),
            ];
            for (limit, left) in limits {
                if let Some((left, all)) = left.filter(|(_, all)| 0.0 < *all) {
                    used.ratios.push((name.clone(), limit, 1.0 - left / all));
                }
            }
        }
        Ok(used)
    }
}

fn both_units((left, all): (Micros, Micros)) -> (f64, f64) {
    (number(left.0), number(all.0))
}

fn both((left, all): (u32, u32)) -> (f64, f64) {
    (left.into(), all.into())
}

#[expect(clippy::cast_precision_loss, reason = "for a diagram")]
fn number(value: u64) -> f64 {
    value as f64
}

fn count(value: usize) -> f64 {
    number(value as u64)
}

fn read_quotas(metrics: &Metrics, used: &Arc<Mutex<Used>>) {
    let read = Arc::clone(used);
    metrics.read(
        ReadingKind::Gauge,
        "owlclaw_mcp_quota_used_ratio",
        "How much of a limit a client has used that the configuration names; 1 is all of it.",
        &["client", "limit"],
        move |samples| {
            let used = read.lock().unwrap_or_else(PoisonError::into_inner);
            for (client, limit, ratio) in &used.ratios {
                samples.push(&[client, limit], *ratio);
            }
        },
    );
    let read = Arc::clone(used);
    metrics.read_one(
        ReadingKind::Gauge,
        "owlclaw_mcp_quota_clients",
        "Clients whose use is counted.",
        move || count(read.lock().unwrap_or_else(PoisonError::into_inner).clients),
    );
}

fn read_crowd(metrics: &Metrics, quotas: &Arc<Quotas>) {
    if quotas.crowd().is_none() {
        return;
    }
    let quotas = Arc::clone(quotas);
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_quota_newcomers_refused_total",
        "Calls of clients that were refused because the use of as many others is counted as fit.",
        move || number(quotas.crowd().map_or(0, |crowd| crowd.refused)),
    );
}

fn read_log(metrics: &Metrics) {
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_log_lines_dropped_total",
        "Lines of the log that were dropped because they were not read in time.",
        || number(logging::figures().dropped),
    );
    metrics.read_one(
        ReadingKind::Gauge,
        "owlclaw_mcp_log_queued_bytes",
        "What waits to be written to the log.",
        || number(logging::figures().queued_bytes),
    );
}

/// A number: its name, what it says, and where it is.
type Figure<T> = (&'static str, &'static str, fn(&T) -> usize);

fn read_workers(metrics: &Metrics, app: &Arc<PythonApp>) {
    let gauges: [Figure<AppHealth>; 6] = [
        (
            "owlclaw_mcp_workers",
            "How many workers there should be.",
            |health| health.workers,
        ),
        (
            "owlclaw_mcp_workers_max",
            "The most workers that there are while calls wait.",
            |health| health.max_workers,
        ),
        (
            "owlclaw_mcp_workers_ready",
            "How many workers take calls.",
            |health| health.workers_ready,
        ),
        (
            "owlclaw_mcp_worker_calls_waiting",
            "Calls that wait for a worker.",
            |health| health.calls_waiting,
        ),
        (
            "owlclaw_mcp_worker_calls_running",
            "Calls that workers run.",
            |health| health.calls_running,
        ),
        (
            "owlclaw_mcp_tools_suspended",
            "Tools that are refused because they have ended their workers too often.",
            |health| health.suspended.len(),
        ),
    ];
    for (name, help, value) in gauges {
        let app = Arc::clone(app);
        metrics.read_one(ReadingKind::Gauge, name, help, move || {
            count(value(&app.health()))
        });
    }
    let app = Arc::clone(app);
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_worker_losses_total",
        "Workers that were lost while they should have served.",
        move || number(app.health().losses),
    );
}

/// Most upstreams that metrics tell of; they are those whose names come first.
const MAX_UPSTREAMS: usize = 200;

/// Adds the counts of the upstreams.
fn read_upstreams(metrics: &Metrics, gateway: &Gateway) {
    let figures = |gateway: &Gateway| gateway.figures().into_iter().take(MAX_UPSTREAMS);
    let of = gateway.clone();
    metrics.read(
        ReadingKind::Gauge,
        "owlclaw_mcp_upstream_state",
        "1 for the state that an upstream is in, 0 for all others.",
        &["upstream", "state"],
        move |samples| {
            for it in figures(&of) {
                for state in State::ALL {
                    let is = f64::from(u8::from(state == it.state));
                    samples.push(&[&it.upstream, state.label()], is);
                }
            }
        },
    );
    let of = gateway.clone();
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_upstream_calls_total",
        "Requests to an upstream that have ended, by outcome.",
        &["upstream", "outcome"],
        move |samples| {
            for it in figures(&of) {
                for (outcome, calls) in &it.calls {
                    samples.push(&[&it.upstream, outcome], number(*calls));
                }
            }
        },
    );
    let of = gateway.clone();
    metrics.read_histograms(
        "owlclaw_mcp_upstream_call_seconds",
        "Time that requests to an upstream took, connecting included.",
        &["upstream"],
        move || {
            let buckets = |it: Figures| Buckets {
                bounds: &gateway::SECONDS,
                counts: it.times,
                sum: it.seconds,
            };
            let all = figures(&of);
            all.map(|it| (it.upstream.clone(), buckets(it))).collect()
        },
    );
    let of = gateway.clone();
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_upstream_connection_attempts_total",
        "Attempts to connect an upstream, by result.",
        &["upstream", "result"],
        move |samples| {
            for it in figures(&of) {
                samples.push(&[&it.upstream, "ok"], number(it.connected));
                samples.push(&[&it.upstream, "failed"], number(it.failed));
            }
        },
    );
    let of = gateway.clone();
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_upstream_reconnects_total",
        "Connections to an upstream that were opened after another one had ended.",
        &["upstream"],
        move |samples| {
            for it in figures(&of) {
                samples.push(&[&it.upstream], number(it.reconnected));
            }
        },
    );
}

/// Adds the counts of the HTTP transport.
pub(super) fn read_http(
    metrics: &Metrics,
    figures: impl Fn() -> HttpStats + Clone + Send + Sync + 'static,
) {
    let gauges: [Figure<HttpStats>; 3] = [
        (
            "owlclaw_mcp_http_connections",
            "Open connections.",
            |figures| figures.connections,
        ),
        (
            "owlclaw_mcp_http_sessions",
            "Open sessions of the legacy revisions.",
            |figures| figures.sessions,
        ),
        (
            "owlclaw_mcp_http_streams",
            "Open streams of events, but for those of the 2024-11-05 transport.",
            |figures| figures.streams,
        ),
    ];
    for (name, help, value) in gauges {
        let figures = figures.clone();
        metrics.read_one(ReadingKind::Gauge, name, help, move || {
            count(value(&figures()))
        });
    }
    let refused = figures.clone();
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_http_refused_connections_total",
        "Connections and handshakes that were refused because there were too many.",
        move || number(refused().refused_connections),
    );
    let flooded = figures.clone();
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_flooded_connections_total",
        "Connections that were ended because their clients sent too much that carries nothing.",
        &["protocol"],
        move |samples| {
            let figures = flooded();
            samples.push(&["http/2"], number(figures.flooded_http2));
            samples.push(&["tls"], number(figures.flooded_tls));
        },
    );
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_http_responses_total",
        "HTTP responses, by status; those of health and metrics too.",
        &["status"],
        move |samples| {
            for (status, responses) in figures().responses {
                samples.push(&[&status.to_string()], number(responses));
            }
        },
    );
}

/// Reads the counts of evicted and refused sessions.
pub(super) fn read_sessions(metrics: &Metrics, desk: SessionDesk) {
    let evicted = desk.clone();
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_http_evicted_sessions_total",
        "Sessions that were ended because they were idle longest and another needed their place.",
        move || number(evicted.overview().evicted),
    );
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_http_refused_sessions_total",
        "Sessions that were refused because there were too many and all of them were in use.",
        move || number(desk.overview().refused),
    );
}

/// Adds the number of WebSockets.
pub(super) fn read_websockets(metrics: &Metrics, sockets: &Arc<WebSockets>) {
    let open = Arc::clone(sockets);
    metrics.read_one(
        ReadingKind::Gauge,
        "owlclaw_mcp_websockets",
        "Open WebSockets.",
        move || count(open.figures().open),
    );
    let refused = Arc::clone(sockets);
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_refused_websockets_total",
        "WebSockets that were refused because there were too many.",
        move || number(refused.figures().refused),
    );
    let flooded = Arc::clone(sockets);
    metrics.read_one(
        ReadingKind::Counter,
        "owlclaw_mcp_flooded_websockets_total",
        "WebSockets that were closed because their clients sent too many frames that carry nothing.",
        move || number(flooded.figures().flooded),
    );
}

/// Adds the counts of accepted and refused credentials.
pub(super) fn read_identity(metrics: &Metrics, identification: &Arc<Identification>) {
    let of = Arc::clone(identification);
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_authentications_total",
        "Authenticated requests, by method of authentication.",
        &["means"],
        move |samples| {
            for (means, accepted) in of.counts().all_accepted() {
                samples.push(&[means], number(accepted));
            }
        },
    );
    let of = Arc::clone(identification);
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_authentication_failures_total",
        "Requests that were turned away because it was not proved who sent them, by reason.",
        &["reason"],
        move |samples| {
            for (reason, refused) in of.counts().all_refused() {
                samples.push(&[reason], number(refused));
            }
        },
    );
}

/// Adds the system's figures of this process; none where the system does not report them like
/// Linux.
fn read_process(metrics: &Metrics) {
    metrics.read(
        ReadingKind::Gauge,
        "owlclaw_mcp_resident_memory_bytes",
        "Memory of the server's own process. Workers are processes of their own.",
        &[],
        |samples| {
            if let Some(bytes) = resident_bytes() {
                samples.push(&[], number(bytes));
            }
        },
    );
    metrics.read(
        ReadingKind::Gauge,
        "owlclaw_mcp_open_files",
        "Open files and sockets of the server's own process.",
        &[],
        |samples| {
            // One of them is what they are counted with.
            if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
                samples.push(&[], count(files.count().saturating_sub(1)));
            }
        },
    );
}

fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}
