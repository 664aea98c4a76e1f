//! The metrics of a server, in the text format of Prometheus.

use crate::{
    invocation::verdict::Ended,
    observe::pull_collector::{Buckets, Kind, Reading, Samples},
    offer::tool_numbers::ToolNumbers,
};
use arc_swap::ArcSwap;
use mcp_protocol::Method;
use prometheus::{
    CounterVec, Encoder, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec,
    IntGauge, Opts, Registry, TextEncoder, core::Collector,
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
};

/// The most tools that are counted by name, over the life of the process; further ones are counted
/// as [`OTHER`]. An application that is loaded again and again with other names must not fill the
/// memory of the metrics' reader.
pub(crate) const MAX_TOOLS: usize = 1_000;

/// The label of anything that is not counted by its own name.
pub(crate) const OTHER: &str = "other";

/// Seconds, from what an answer out of memory takes to what a deadline may be.
const REQUEST_BUCKETS: [f64; 19] = [
    0.0001, 0.000_25, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0, 60.0, 300.0,
];

/// Fewer, since there is a set of them for each tool.
const TOOL_BUCKETS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 1.0, 5.0, 30.0, 60.0, 300.0];

/// One place for each method, and one for [`OTHER`].
const METHODS: usize = Method::ALL.len() + 1;

/// Metrics of the server, for `/metrics` (R11.6, R11.7); `docs/metrics.md` has the list. Every label
/// has few values: names that clients send are never labels.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    requests: IntCounterVec,
    latency: HistogramVec,
    in_flight: IntGauge,
    /// Numbers of each [`Method`], looked up once.
    methods: [OnceLock<MethodNumbers>; METHODS],
    tool_calls: IntCounterVec,
    tool_seconds: HistogramVec,
    tool_cost: CounterVec,
    tools: ArcSwap<HashMap<Box<str>, Arc<ToolNumbers>>>,
    reads: IntCounterVec,
    prompts: IntCounterVec,
    denials: IntCounterVec,
}

/// Numbers of one method.
#[derive(Clone, Debug)]
struct MethodNumbers {
    latency: Histogram,
    /// Requests without an error.
    succeeded: IntCounter,
}

impl Metrics {
    /// Metrics with all counters at zero.
    ///
    /// # Panics
    ///
    /// Never: the names are constants that are legal and distinct.
    pub fn new() -> Self {
        let registry = Registry::new();
        let requests = counters(
            &registry,
            "owlclaw_mcp_requests_total",
            "Requests answered, by method and JSON-RPC error code; code 0 is none, and `cancelled` \
             a request that was given up by its sender.",
            &["method", "code"],
        );
        let latency = histograms(
            &registry,
            "owlclaw_mcp_request_seconds",
            "From a request's acceptance to its answer, in seconds, by method.",
            "method",
            &REQUEST_BUCKETS,
        );
        let in_flight = IntGauge::new(
            "owlclaw_mcp_requests_in_flight",
            "Requests being handled by a service.",
        );
        let tool_cost = CounterVec::new(
            Opts::new(
                "owlclaw_mcp_tool_cost_total",
                "What calls of tools have cost, in units of the configured currency, by tool.",
            ),
            &["tool"],
        );
        Self(Arc::new(Inner {
            requests,
            latency,
            in_flight: registered(&registry, in_flight.expect("a legal name")),
            methods: [const { OnceLock::new() }; METHODS],
            tool_calls: counters(
                &registry,
                "owlclaw_mcp_tool_calls_total",
                "Calls of visible tools, by tool and outcome.",
                &["tool", "outcome"],
            ),
            tool_seconds: histograms(
                &registry,
                "owlclaw_mcp_tool_call_seconds",
                "From a call of a tool to its end, in seconds, by tool.",
                "tool",
                &TOOL_BUCKETS,
            ),
            tool_cost: registered(&registry, tool_cost.expect("a legal name")),
            tools: ArcSwap::default(),
            reads: counters(
                &registry,
                "owlclaw_mcp_resource_reads_total",
                "Reads of resources, by outcome.",
                &["outcome"],
            ),
            prompts: counters(
                &registry,
                "owlclaw_mcp_prompt_gets_total",
                "Prompts asked for, by outcome.",
                &["outcome"],
            ),
            denials: counters(
                &registry,
                "owlclaw_mcp_denials_total",
                "Calls and reads refused by governance, by reason.",
                &["reason"],
            ),
            registry,
        }))
    }

    /// The registry, where other crates add their metrics.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Adds a metric that is read at each scrape, by calling `read`: a count that is kept elsewhere, or a
    /// value of the moment. `read` must not block.
    ///
    /// # Panics
    ///
    /// If there is a metric of this name, or the name is not legal.
    pub fn read(
        &self,
        kind: Kind,
        name: &'static str,
        help: &'static str,
        labels: &'static [&'static str],
        read: impl Fn(&mut Samples) + Send + Sync + 'static,
    ) {
        self.add(Reading::new(kind, name, help, labels, read));
    }

    /// The same for one value without labels.
    ///
    /// # Panics
    ///
    /// As [`Metrics::read`].
    pub fn read_one(
        &self,
        kind: Kind,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> f64 + Send + Sync + 'static,
    ) {
        self.read(kind, name, help, &[], move |samples| {
            samples.push(&[], read());
        });
    }

    /// The same for a distribution that is kept elsewhere.
    ///
    /// # Panics
    ///
    /// As [`Metrics::read`].
    pub fn read_histogram(
        &self,
        name: &'static str,
        help: &'static str,
        read: impl Fn() -> Buckets + Send + Sync + 'static,
    ) {
        let read = move || vec![(String::new(), read())];
        self.add(Reading::histogram(name, help, &[], read));
    }

    /// The same for distributions that differ by one label, each with the label's value.
    ///
    /// # Panics
    ///
    /// As [`Metrics::read`].
    pub fn read_histograms(
        &self,
        name: &'static str,
        help: &'static str,
        label: &'static [&'static str; 1],
        read: impl Fn() -> Vec<(String, Buckets)> + Send + Sync + 'static,
    ) {
        self.add(Reading::histogram(name, help, label, read));
    }

    fn add(&self, reading: Reading) {
        let added = self.0.registry.register(Box::new(reading));
        added.expect("a name of its own");
    }

    /// All of it in the text format of Prometheus.
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        // Writing to memory does not fail, and what was registered can be written.
        let _ = TextEncoder::new().encode(&self.0.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }

    /// Counts an answer to a request of `method`, `None` for one that the protocol does not have; with
    /// an error, if `code` is not 0.
    pub(crate) fn answered(&self, method: Option<Method>, code: i32, seconds: f64) {
        let name = method.map_or(OTHER, Method::name);
        let index = method.map_or(METHODS - 1, |it| it as usize);
        let numbers = self.0.methods[index].get_or_init(|| MethodNumbers {
            latency: self.0.latency.with_label_values(&[name]),
            succeeded: self.0.requests.with_label_values(&[name, "0"]),
        });
        numbers.latency.observe(seconds);
        if code == 0 {
            numbers.succeeded.inc();
            return;
        }
        let mut code_text = itoa::Buffer::new();
        let labels = [name, code_text.format(code)];
        self.0.requests.with_label_values(&labels).inc();
    }

    /// Counts a request of `method` that its sender gave up.
    pub(crate) fn cancelled(&self, method: Method) {
        let labels = [method.name(), "cancelled"];
        self.0.requests.with_label_values(&labels).inc();
    }

    /// Numbers of a tool that its caller may know of.
    pub(crate) fn tool(&self, name: &str) -> Arc<ToolNumbers> {
        if let Some(numbers) = self.0.tools.load().get(name) {
            return Arc::clone(numbers);
        }
        let mut found = None;
        self.0.tools.rcu(|tools| {
            let mut tools = HashMap::clone(tools);
            let name = if tools.len() < MAX_TOOLS { name } else { OTHER };
            let numbers = tools.entry(name.into()).or_insert_with(|| {
                let seconds = self.0.tool_seconds.with_label_values(&[name]);
                let cost = self.0.tool_cost.with_label_values(&[name]);
                let (calls, name) = (self.0.tool_calls.clone(), name.to_owned());
                let calls = move |outcome: &str| calls.with_label_values(&[name.as_str(), outcome]);
                Arc::new(ToolNumbers::new(seconds, cost, calls))
            });
            found = Some(Arc::clone(numbers));
            tools
        });
        found.expect("it is put in if it was not there")
    }

    pub(crate) fn read_ended(&self, outcome: Ended) {
        self.0.reads.with_label_values(&[outcome.as_str()]).inc();
    }

    pub(crate) fn prompt_ended(&self, outcome: Ended) {
        self.0.prompts.with_label_values(&[outcome.as_str()]).inc();
    }

    pub(crate) fn denied(&self, reason: &str) {
        self.0.denials.with_label_values(&[reason]).inc();
    }

    pub(crate) fn in_flight(&self) -> &IntGauge {
        &self.0.in_flight
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

fn registered<C: Collector + Clone + 'static>(registry: &Registry, collector: C) -> C {
    let added = registry.register(Box::new(collector.clone()));
    added.expect("a new name");
    collector
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    let counters = IntCounterVec::new(Opts::new(name, help), labels);
    registered(registry, counters.expect("a legal name"))
}

fn histograms(
    registry: &Registry,
    name: &str,
    help: &str,
    label: &str,
    buckets: &[f64],
) -> HistogramVec {
    let options = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    let histograms = HistogramVec::new(options, &[label]);
    registered(registry, histograms.expect("a legal name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_has_a_bounded_number_of_names() {
        let metrics = Metrics::new();
        for index in 0..MAX_TOOLS + 10 {
            let tool = metrics.tool(&format!("tool-{index}"));
            tool.ended(Ended::Ok.numbered(), 0.001, 0.0);
        }
        metrics.answered(Method::named("a/method/of/their/own"), -32601, 0.001);
        let text = metrics.render();
        let tools = text
            .lines()
            .filter(|line| line.starts_with("owlclaw_mcp_tool_calls_total{"));
        assert_eq!(tools.count(), MAX_TOOLS + 1);
        assert!(text.contains("owlclaw_mcp_tool_calls_total{outcome=\"ok\",tool=\"other\"} 10"));
        assert!(text.contains("owlclaw_mcp_requests_total{code=\"-32601\",method=\"other\"} 1"));
        assert!(!text.contains("their"), "{text}");
    }

    #[test]
    fn what_others_count_is_read_when_it_is_asked_for() {
        let metrics = Metrics::new();
        let value = Arc::new(std::sync::atomic::AtomicU32::new(1));
        let read = Arc::clone(&value);
        metrics.read(
            Kind::Gauge,
            "a_gauge",
            "A gauge.",
            &["part"],
            move |samples| {
                let value = read.load(std::sync::atomic::Ordering::Relaxed);
                samples.push(&["x"], f64::from(value));
            },
        );
        metrics.read_histogram("a_histogram", "A histogram.", || Buckets {
            bounds: &[0.1, 1.0],
            counts: vec![2, 3, 1],
            sum: 4.5,
        });
        assert!(metrics.render().contains("a_gauge{part=\"x\"} 1\n"));
        value.store(2, std::sync::atomic::Ordering::Relaxed);
        let text = metrics.render();
        for line in [
            "# TYPE a_gauge gauge",
            "a_gauge{part=\"x\"} 2",
            "# TYPE a_histogram histogram",
            "a_histogram_bucket{le=\"0.1\"} 2",
            "a_histogram_bucket{le=\"1\"} 5",
            "a_histogram_bucket{le=\"+Inf\"} 6",
            "a_histogram_sum 4.5",
            "a_histogram_count 6",
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }
}
