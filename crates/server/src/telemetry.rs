//! Sends traces, where the configuration says where to.

use std::sync::Arc;
use std::time::Duration;

use mcp_server::{Metrics, ReadingKind, Tracing};
use telemetry::{Telemetry, TelemetryOptions};

use crate::Failure;
use config::Environment;

/// Time that spans not sent yet get when the server ends.
pub(super) const LAST_SPANS: Duration = Duration::from_secs(1);

/// Starts the export of traces; `None` if no collector is configured.
pub(super) fn start(
    config: &config::Telemetry,
    environment: &Environment,
    version: &str,
) -> Result<Option<Arc<Telemetry>>, Failure> {
    let otlp = &config.otlp;
    let Some(endpoint) = &otlp.endpoint else {
        return Ok(None);
    };
    let headers = otlp.headers(environment);
    let headers = headers.map_err(|name| {
        Failure::from(format!(
            "telemetry.otlp.headers.{name} cannot be sent: does it refer to a variable that is not set?"
        ))
    })?;
    let authorities = match &otlp.ca_file {
        Some(path) => regular_file::read(path, regular_file::MAX_BYTES).map_err(|error| {
            let path = path.display();
            Failure::from(format!(
                "telemetry.otlp.ca_file: {path} cannot be read: {error}"
            ))
        })?,
        None => Vec::new(),
    };
    let resource = config.resource.iter();
    let telemetry = Telemetry::start(TelemetryOptions {
        endpoint: endpoint.clone(),
        headers,
        timeout: Duration::from_secs(otlp.timeout_seconds),
        authorities,
        service_name: config.service_name.clone(),
        service_version: version.to_owned(),
        sample_ratio: config.ratio(),
        resource: resource
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect(),
    })?;
    Ok(Some(Arc::new(telemetry)))
}

/// Adds the counts of exported and dropped spans to the server's metrics.
pub(super) fn count(telemetry: &Arc<Telemetry>, metrics: &Metrics) {
    let counted = Arc::clone(telemetry);
    metrics.read(
        ReadingKind::Counter,
        "owlclaw_mcp_spans_total",
        "Spans that have ended, by what has become of them.",
        &["outcome"],
        move |samples| {
            let stats = counted.stats();
            for (outcome, count) in [
                ("sent", stats.sent),
                ("dropped", stats.dropped),
                ("failed", stats.failed),
            ] {
                samples.push(&[outcome], u32::try_from(count).unwrap_or(u32::MAX).into());
            }
        },
    );
    let queued = Arc::clone(telemetry);
    metrics.read_one(
        ReadingKind::Gauge,
        "owlclaw_mcp_spans_queued",
        "Spans that wait to be sent.",
        move || {
            u32::try_from(queued.stats().queued)
                .unwrap_or(u32::MAX)
                .into()
        },
    );
}

/// Tracing of requests into `telemetry`, which [`start`] has made.
pub(super) fn tracing(telemetry: &Telemetry, config: &config::Telemetry) -> Tracing {
    Tracing {
        tracer: telemetry.tracer(),
        capture: match config.capture {
            config::Capture::None => mcp_server::Capture::None,
            config::Capture::Redacted => mcp_server::Capture::Redacted,
        },
    }
}
