//! Looks after the server and has operators told of what it sees.
//!
//! All that is wrong is looked for once a second by a task of its own: what `/health` says of the
//! parts, how the application's workers are, who has spent a budget, when the certificate expires.
//! No call knows of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use adapter_tools::python::{AppHealth, PythonApp, WorkerState};
use alerts::{Alerts, Condition, Event, Moment, Observation, Severity, Timing, WebhookOptions};
use governance::Timestamp;
use mcp_server::{Component, ComponentState, Metrics, ReadingKind, system_clock};
use tokio::time::MissedTickBehavior;

use super::application;
use super::budgets::Spent;
use super::quotas::Quotas;
use super::rules;
use super::store::{self, ServedMcpServer};
use super::tls::Certificates;
use super::verification;
use crate::Failure;
use config::{AlertEvent, Config, Environment};

/// Interval between checks.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Interval at which the counters are asked about budgets while a client is near the end of one,
/// and longest wait for their answer.
const BUDGETS_EVERY: Duration = Duration::from_secs(5);
/// So many workers lost within [`LOSS_WINDOW`] are a crash loop, even if others serve.
const LOSSES: usize = 5;
const LOSS_WINDOW: Duration = Duration::from_secs(60);
/// So long before its end an alert of a certificate gets to the next stage.
const CERTIFICATE_STAGES: [(u64, Severity); 4] = [
    (30 * DAY, Severity::Warning),
    (7 * DAY, Severity::Warning),
    (DAY, Severity::Critical),
    (0, Severity::Critical),
];
const DAY: u64 = 24 * 60 * 60;
/// Time that undelivered alerts get when the server ends.
pub(super) const LAST_WORDS: Duration = Duration::from_secs(1);

/// Alerts of a server; `None` without a webhook.
pub(super) fn start(config: &Config, version: &str) -> Result<Option<Arc<Alerts>>, Failure> {
    let alerts = &config.alerts;
    if alerts.webhooks.is_empty() {
        return Ok(None);
    }
    let environment = &config.environment;
    let webhooks = alerts.webhooks.iter();
    let webhooks = webhooks
        .map(|(name, webhook)| {
            options(name, webhook, alerts, environment)
                .map_err(|why| Failure::from(format!("alerts.webhooks.{name}{why}")))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let timing = Timing {
        settle: Duration::from_secs(alerts.min_seconds),
        repeat: (0 < alerts.repeat_minutes)
            .then(|| Duration::from_secs(60 * alerts.repeat_minutes)),
    };
    let server = alerts.server.clone().unwrap_or_else(machine);
    let alerts = Alerts::start(webhooks, timing, &server, version)?;
    Ok(Some(Arc::new(alerts)))
}

/// Options of a webhook; an error is the end of a sentence that begins with the key of the wrong
/// setting.
fn options(
    name: &str,
    webhook: &config::Webhook,
    alerts: &config::Alerts,
    environment: &Environment,
) -> Result<WebhookOptions, String> {
    let url = webhook.address(environment);
    let secret = webhook.secret.reveal(environment);
    let headers = webhook.headers(environment);
    let authorities = match &webhook.ca_file {
        Some(path) => regular_file::read(path, regular_file::MAX_BYTES)
            .map_err(|error| format!(".ca_file: {} cannot be read: {error}", path.display()))?,
        None => Vec::new(),
    };
    Ok(WebhookOptions {
        name: name.to_owned(),
        url: url.map_err(|why| format!(".url {why}"))?,
        secret: secret.ok_or(".secret refers to a variable that is not set")?,
        headers: headers.map_err(|name| format!(".headers.{name} cannot be sent"))?,
        events: webhook.events.iter().copied().map(event).collect(),
        authorities,
        timeout: Duration::from_secs(webhook.timeout_seconds),
        pause: Duration::from_secs(1),
        give_up_after: Duration::from_secs(60 * alerts.give_up_minutes),
    })
}

fn event(event: AlertEvent) -> Event {
    match event {
        AlertEvent::LedgerUnavailable => Event::LedgerUnavailable,
        AlertEvent::LedgerDamaged => Event::LedgerDamaged,
        AlertEvent::QuotaStoreUnavailable => Event::QuotaStoreUnavailable,
        AlertEvent::WorkerCrashLoop => Event::WorkerCrashLoop,
        AlertEvent::Budget80 => Event::Budget80,
        AlertEvent::Budget100 => Event::Budget100,
        AlertEvent::CertificateExpiry => Event::CertificateExpiry,
        AlertEvent::PolicyRejected => Event::PolicyRejected,
        AlertEvent::IdentityUnavailable => Event::IdentityUnavailable,
        AlertEvent::ComponentFailed => Event::ComponentFailed,
    }
}

/// Name of the machine.
fn machine() -> String {
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let mut names = files.iter().filter_map(|path| {
        let name = std::fs::read_to_string(path).ok()?.trim().to_owned();
        (!name.is_empty()).then_some(name)
    });
    names.next().unwrap_or_else(|| "owlclaw-mcp".to_owned())
}

/// Component of `/health` for alerts. Failed delivery is no reason to serve no calls.
pub(super) fn component(alerts: Arc<Alerts>) -> Component {
    Component::new(move || {
        let failing = alerts.webhooks().into_iter().filter_map(|webhook| {
            let (name, why) = (webhook.name, webhook.failing?);
            Some(format!("webhook `{name}` does not take alerts: {why}"))
        });
        let failing: Vec<_> = failing.collect();
        ComponentState {
            name: COMPONENT,
            ok: true,
            detail: (!failing.is_empty()).then(|| failing.join("; ")),
        }
    })
}

/// Name of that component in `/health`.
const COMPONENT: &str = "alerts";

/// Adds to the server's metrics what is to be known of alerts.
pub(super) fn read(metrics: &Metrics, alerts: &Arc<Alerts>) {
    #[expect(clippy::cast_precision_loss, reason = "for a diagram")]
    fn number(value: u64) -> f64 {
        value as f64
    }
    let raised = Arc::clone(alerts);
    metrics.read_one(
        ReadingKind::Gauge,
        "owlclaw_mcp_alerts_raised",
        "What webhooks were told of and is not over.",
        move || number(raised.raised() as u64),
    );
    let ended = Arc::clone(alerts);
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_alert_notices_total",
        "Notices that were delivered to a webhook, or were given up.",
        &["webhook", "result"],
        move |samples| {
            for webhook in ended.webhooks() {
                let ends = [
                    ("delivered", webhook.delivered),
                    ("undelivered", webhook.undelivered),
                ];
                for (result, count) in ends {
                    samples.push(&[&webhook.name, result], number(count));
                }
            }
        },
    );
    let waiting = Arc::clone(alerts);
    metrics.read(
        ReadingKind::Gauge,
        "owlclaw_mcp_alert_notices_waiting",
        "Notices that wait for a webhook.",
        &["webhook"],
        move |samples| {
            for webhook in waiting.webhooks() {
                samples.push(&[&webhook.name], number(webhook.waiting as u64));
            }
        },
    );
}

/// Parts of a server that are looked after.
pub(super) struct Watched {
    pub(super) quotas: Arc<Quotas>,
    pub(super) mcp: Arc<ServedMcpServer>,
    pub(super) app: Option<Arc<PythonApp>>,
    pub(super) certificates: Option<Arc<Certificates>>,
}

/// Looks after a server for as long as it is polled.
pub(super) async fn watch(server: Watched, alerts: Arc<Alerts>) {
    let budgets = server.quotas.budgets();
    budgets.watch();
    let spent = Mutex::new(Vec::new());
    let expires = || server.certificates.as_ref().map(|it| it.expires_at());
    let look_at_parts = async {
        let began = Instant::now();
        let mut losses = Losses::default();
        let mut look = interval(LOOK_EVERY);
        loop {
            look.tick().await;
            let now = Moment {
                at: SystemTime::now(),
                uptime: began.elapsed(),
            };
            let health = server.mcp.health();
            let app = server.app.as_ref().map(|app| app.health());
            let spent = spent.lock().unwrap_or_else(PoisonError::into_inner);
            let wrong = health.components.iter().filter_map(part);
            let wrong = wrong
                .chain(app.and_then(|app| losses.look(&app)))
                .chain(certificate(expires(), now.at))
                .chain(spent.iter().flat_map(budget));
            alerts.observe(now, wrong);
        }
    };
    // The counters may be elsewhere, and their answer takes its time.
    let ask_for_budgets = async {
        let mut ask = interval(BUDGETS_EVERY);
        loop {
            ask.tick().await;
            let found = match budgets.is_empty() {
                true => Vec::new(),
                false => {
                    let now = Timestamp(system_clock() / 1_000);
                    let usage = server.mcp.governor().usage(now);
                    match tokio::time::timeout(BUDGETS_EVERY, usage).await {
                        Ok(Ok(usage)) => budgets.spent(&usage),
                        // Nobody knows; what was known last stays.
                        Ok(Err(_)) | Err(_) => continue,
                    }
                }
            };
            *spent.lock().unwrap_or_else(PoisonError::into_inner) = found;
        }
    };
    tokio::join!(look_at_parts, ask_for_budgets);
}

fn interval(period: Duration) -> tokio::time::Interval {
    let mut interval = tokio::time::interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

/// Observation that a failed component of `/health` gives rise to.
fn part(part: &ComponentState) -> Option<Observation> {
    if part.ok {
        return None;
    }
    let condition = match part.name {
        "ledger" => Condition::of(Event::LedgerUnavailable),
        verification::INTEGRITY => Condition::of(Event::LedgerDamaged),
        store::QUOTAS => Condition::of(Event::QuotaStoreUnavailable),
        rules::COMPONENT => Condition::of(Event::PolicyRejected),
        "identity" => Condition::of(Event::IdentityUnavailable),
        // More is known of it, see `Losses`.
        application::APPLICATION | COMPONENT => return None,
        name => Condition::about(Event::ComponentFailed, name),
    };
    let severity = match condition.event {
        Event::PolicyRejected | Event::ComponentFailed => Severity::Warning,
        _ => Severity::Critical,
    };
    let detail = part.detail.clone();
    Some(Observation {
        condition,
        severity,
        stage: 0,
        detail: detail.unwrap_or_else(|| format!("`{}` does not work", part.name)),
    })
}

/// Times of recent losses of workers.
#[derive(Debug, Default)]
struct Losses(VecDeque<Instant>);

impl Losses {
    fn look(&mut self, app: &AppHealth) -> Option<Observation> {
        if app.state == WorkerState::Stopped {
            return None;
        }
        if let Some(loss) = &app.last_loss
            && self.0.back().is_none_or(|last| *last < loss.at)
        {
            self.0.push_back(loss.at);
        }
        while self.0.front().is_some_and(|at| LOSS_WINDOW < at.elapsed()) {
            self.0.pop_front();
        }
        let lost = self.0.len();
        let is_loop = app.workers_ready == 0 || !app.suspended.is_empty() || LOSSES <= lost;
        let detail = || {
            let told = application::app_detail(app);
            let told = told.or_else(|| Some(app.last_loss.as_ref()?.cause.clone()));
            let told = told.unwrap_or_else(|| "no worker takes calls".to_owned());
            match lost {
                0 | 1 => told,
                lost => format!("{lost} workers lost within a minute; {told}"),
            }
        };
        is_loop.then(|| Observation {
            condition: Condition::of(Event::WorkerCrashLoop),
            severity: Severity::Critical,
            stage: 0,
            detail: detail(),
        })
    }
}

/// A certificate that expires soon, or has.
fn certificate(expires: Option<SystemTime>, now: SystemTime) -> Option<Observation> {
    let left = expires?.duration_since(now).unwrap_or_default();
    let passed = |(before, _): &&(u64, Severity)| left <= Duration::from_secs(*before);
    let stages = CERTIFICATE_STAGES.iter().take_while(passed);
    let stage = stages.clone().count();
    let (_, severity) = stages.last()?;
    let detail = match left.as_secs() / DAY {
        0 if left.is_zero() => "the server's certificate has expired".to_owned(),
        0 => "the server's certificate expires within a day".to_owned(),
        1 => "the server's certificate expires in a day".to_owned(),
        days => format!("the server's certificate expires in {days} days"),
    };
    Some(Observation {
        condition: Condition::of(Event::CertificateExpiry),
        severity: *severity,
        stage: u32::try_from(stage).unwrap_or(u32::MAX),
        detail,
    })
}

/// A budget that is nearly spent is one thing to tell of, one that is spent another one besides.
fn budget(spent: &Spent) -> impl Iterator<Item = Observation> + use<> {
    let (used, limit) = (u128::from(spent.spent.0), u128::from(spent.limit.0));
    let is_spent = spent.is_refused || limit <= used;
    let is_nearly = is_spent || limit * 4 <= used * 5;
    let refused = if spent.is_refused {
        ", and calls are refused"
    } else {
        ""
    };
    let detail = format!(
        "`{}` has spent {} of {} this month{refused}",
        spent.principal, spent.spent, spent.limit
    );
    let observation = |event, severity| Observation {
        condition: Condition::about(event, spent.principal.clone()),
        severity,
        stage: 0,
        detail: detail.clone(),
    };
    let nearly = is_nearly.then(|| observation(Event::Budget80, Severity::Warning));
    let wholly = is_spent.then(|| observation(Event::Budget100, Severity::Critical));
    nearly.into_iter().chain(wholly)
}

#[cfg(test)]
mod tests {
    use super::*;
    use governance::Micros;

    #[test]
    fn a_certificate_is_told_of_in_stages() {
        let now = SystemTime::now();
        let hours = |hours: u64| Duration::from_secs(hours * 60 * 60);
        let rows = [
            (hours(24 * 31), None),
            (hours(24 * 30), Some((1, Severity::Warning))),
            (hours(24 * 8), Some((1, Severity::Warning))),
            (hours(24 * 7), Some((2, Severity::Warning))),
            (hours(24), Some((3, Severity::Critical))),
            (hours(1), Some((3, Severity::Critical))),
            (Duration::ZERO, Some((4, Severity::Critical))),
        ];
        for (left, expected) in rows {
            let seen = certificate(Some(now + left), now);
            let seen = seen.map(|seen| (seen.stage, seen.severity));
            assert_eq!(seen, expected, "{left:?}");
        }
        let expired = certificate(Some(now - hours(1)), now).unwrap();
        assert_eq!(expired.detail, "the server's certificate has expired");
        assert_eq!(certificate(None, now), None);
    }

    #[test]
    fn a_budget_is_told_of_at_80_and_at_100_percent() {
        let rows = [
            (79, false, vec![]),
            (80, false, vec![Event::Budget80]),
            (99, false, vec![Event::Budget80]),
            (100, false, vec![Event::Budget80, Event::Budget100]),
            (60, true, vec![Event::Budget80, Event::Budget100]),
        ];
        for (spent, is_refused, expected) in rows {
            let spent = Spent {
                principal: "alice".into(),
                spent: Micros(spent),
                limit: Micros(100),
                is_refused,
            };
            let events: Vec<_> = budget(&spent).map(|it| it.condition.event).collect();
            assert_eq!(events, expected, "{spent:?}");
        }
    }

    #[test]
    fn parts_have_events_of_their_own() {
        let names = [
            "ledger",
            "ledger_integrity",
            "quotas",
            "rules",
            "identity",
            "application",
            "x",
        ];
        let keys = names.map(|name| {
            let state = ComponentState {
                name,
                ok: false,
                detail: None,
            };
            part(&state).map(|seen| seen.condition.key())
        });
        let keys: Vec<_> = keys.iter().flatten().map(String::as_str).collect();
        let expected = [
            "ledger_unavailable",
            "ledger_damaged",
            "quota_store_unavailable",
            "policy_rejected",
            "identity_unavailable",
            "component_failed:x",
        ];
        assert_eq!(keys, expected);
    }
}
