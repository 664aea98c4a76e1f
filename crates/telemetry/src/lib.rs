//! Spans on their way to a collector: OTLP over HTTP, in protobuf.
//!
//! [`Telemetry`] has a tracer of the OpenTelemetry SDK. What ends is queued and sent in batches by one
//! task, in the runtime in which it was started.
//!
//! # What holds
//!
//! * **Ending a span never waits**: it is put in a queue with a bound ([`MAX_QUEUED_SPANS`],
//!   [`MAX_QUEUED_BYTES`]). When that is full the oldest go, and are counted.
//! * **A collector that is down, slow or broken costs nobody else anything.** A batch is sent again
//!   for as long as the answer says that it may help, and no longer than [`GIVE_UP_AFTER`]; when
//!   the collector says when, then.
//! * **[`Telemetry::close`] sends what is left and ends at its deadline**, whatever the collector does.
//!
//! Nothing here knows what a span is of.

mod exporter;
mod options;
mod queue;
mod retry;
mod stats;

pub use exporter::{GIVE_UP_AFTER, MAX_BATCH_BYTES, MAX_BATCH_SPANS};
pub use options::{BadEndpoint, TelemetryOptions, traces_address};
pub use queue::{MAX_QUEUED_BYTES, MAX_QUEUED_SPANS};
pub use stats::Stats;

use exporter::Exporter;
use http_client::{Client, ClientOptions, Reach};
use opentelemetry::{InstrumentationScope, KeyValue, trace::TracerProvider};
use opentelemetry_sdk::{
    Resource,
    trace::{Sampler, SdkTracer, SdkTracerProvider},
};
use queue::Queue;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::task::JoinHandle;

/// The most attributes of a span; more are left out and counted in it.
const MAX_ATTRIBUTES: u32 = 64;
/// An answer of a collector that is longer is not read.
const MAX_ANSWER_BYTES: usize = 64 * 1024;

/// Reason why spans cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// There is no such address.
    #[error("the address of the collector cannot be used")]
    Endpoint(#[source] BadEndpoint),
    /// There is no client.
    #[error("the client that sends spans cannot be made")]
    Client(#[source] http_client::ClientError),
}

/// The spans of one server, on their way to a collector.
pub struct Telemetry {
    provider: SdkTracerProvider,
    scope: InstrumentationScope,
    queue: Arc<Queue>,
    exporter: Mutex<Option<JoinHandle<()>>>,
}

impl Telemetry {
    /// Begins to send what will end; in the background, in this runtime.
    ///
    /// # Errors
    ///
    /// [`TelemetryError`] when it cannot be sent as `options` say. A collector that does not answer
    /// is no error: it may come.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn start(options: TelemetryOptions) -> Result<Self, TelemetryError> {
        let address = traces_address(&options.endpoint).map_err(TelemetryError::Endpoint)?;
        let client = Client::new(ClientOptions {
            reach: Reach::Any,
            authorities: options.authorities.clone(),
            timeout: options.timeout,
            connect_timeout: options.timeout.min(Duration::from_secs(5)),
            max_body: MAX_ANSWER_BYTES,
            ..ClientOptions::default()
        })
        .map_err(TelemetryError::Client)?;
        let scope = InstrumentationScope::builder("owlclaw-mcp")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        let resource = resource(&options);
        let queue = Arc::new(Queue::default());
        // Whoever asks for a trace by its context has it; of the others, so many.
        let sampler = Sampler::TraceIdRatioBased(options.sample_ratio);
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_max_attributes_per_span(MAX_ATTRIBUTES)
            .with_resource(resource.clone())
            .with_span_processor(queue::Ended(Arc::clone(&queue)))
            .build();
        let exporter = Exporter {
            queue: Arc::clone(&queue),
            client,
            address,
            headers: options.headers,
            resource: (&resource).into(),
            scope: scope.clone(),
        };
        Ok(Self {
            provider,
            scope,
            queue,
            exporter: Mutex::new(Some(tokio::spawn(exporter.run()))),
        })
    }

    /// Tracer that makes spans.
    pub fn tracer(&self) -> SdkTracer {
        self.provider.tracer_with_scope(self.scope.clone())
    }

    /// Counts of spans so far.
    pub fn stats(&self) -> Stats {
        self.queue.stats()
    }

    /// Sends what is left, each batch once, and then nothing any more; spans that end later are lost.
    /// It ends by itself, at the latest after `deadline`. Only the first time does anything.
    pub async fn close(&self, deadline: Duration) {
        self.queue.close();
        let exporter = self.exporter.lock();
        let exporter = exporter.unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut exporter) = exporter else {
            return;
        };
        if tokio::time::timeout(deadline, &mut exporter).await.is_err() {
            exporter.abort();
            // It is gone when this returns, and what it had counts as lost.
            let _ = exporter.await;
        }
        let lost = self.queue.abandon();
        if lost != 0 {
            tracing::warn!(
                spans = lost,
                "spans were not sent before the server stopped"
            );
        }
    }
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

/// Resource that the spans belong to.
fn resource(options: &TelemetryOptions) -> Resource {
    let text = |key: &'static str, value: &str| KeyValue::new(key, value.to_owned());
    let own = [
        text("service.name", &options.service_name),
        text("service.version", &options.service_version),
        text("service.instance.id", &uuid::Uuid::new_v4().to_string()),
        text("telemetry.sdk.name", "opentelemetry"),
        text("telemetry.sdk.language", "rust"),
    ];
    let others = options.resource.iter();
    let others = others.map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    // The operator's own come last, which is which stay.
    Resource::builder_empty()
        .with_attributes(own)
        .with_attributes(others)
        .build()
}
