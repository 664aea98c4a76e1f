use prometheus::{
    Encoder, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry,
    TextEncoder,
};

/// What is counted, for `/metrics` (R11.6, R11.7). Every label has few values: names that clients
/// send are never labels.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    requests: IntCounterVec,
    latency: HistogramVec,
    calls: IntCounterVec,
    denials: IntCounterVec,
    in_flight: IntGauge,
}

impl Metrics {
    /// Nothing counted yet.
    ///
    /// # Panics
    ///
    /// Never: the names are constants that are legal and distinct.
    pub fn new() -> Self {
        let registry = Registry::new();
        let counter = |name, help, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels).expect("a legal name");
            registry
                .register(Box::new(counter.clone()))
                .expect("a new name");
            counter
        };
        let requests = counter(
            "owlclaw_mcp_requests_total",
            "Requests answered, by method and JSON-RPC error code (0 for none).",
            &["method", "code"],
        );
        let calls = counter(
            "owlclaw_mcp_tool_calls_total",
            "Calls of tools on offer, by tool and outcome (ok, error).",
            &["tool", "outcome"],
        );
        let denials = counter(
            "owlclaw_mcp_denials_total",
            "Requests refused by governance, by reason.",
            &["reason"],
        );
        let options = HistogramOpts::new(
            "owlclaw_mcp_request_seconds",
            "From a request's acceptance to its answer, in seconds, by method.",
        )
        .buckets(vec![
            0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
            2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
        ]);
        let latency = HistogramVec::new(options, &["method"]).expect("a legal name");
        registry
            .register(Box::new(latency.clone()))
            .expect("a new name");
        let in_flight = IntGauge::new(
            "owlclaw_mcp_requests_in_flight",
            "Requests being handled by a service.",
        )
        .expect("a legal name");
        registry
            .register(Box::new(in_flight.clone()))
            .expect("a new name");
        Self {
            registry,
            requests,
            latency,
            calls,
            denials,
            in_flight,
        }
    }

    /// Where others add what they count.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// All of it in the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        // Writing to memory does not fail, and what was registered can be written.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    pub(crate) fn requests(&self) -> &IntCounterVec {
        &self.requests
    }

    pub(crate) fn latency(&self, method: &str) -> Histogram {
        self.latency.with_label_values(&[method])
    }

    pub(crate) fn calls(&self) -> &IntCounterVec {
        &self.calls
    }

    pub(crate) fn denials(&self) -> &IntCounterVec {
        &self.denials
    }

    pub(crate) fn in_flight(&self) -> &IntGauge {
        &self.in_flight
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}
