//! Export of traces.

use std::collections::BTreeMap;
use std::path::PathBuf;

use governance::Micros;
use http::{HeaderMap, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Environment;
use crate::layer::{Origins, origin_near};
use crate::problem::Problem;
use crate::sections::secret::Secret;

/// A share of everything.
const ALL: u64 = 1_000_000;

/// Traces of what is done. Without a collector there are none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// The collector that they are sent to.
    pub otlp: Otlp,
    /// Name of the server in traces.
    #[schemars(extend("format" = "name"))]
    pub service_name: String,
    /// Of the traces that begin here, the share that is recorded: 0 to 1. Traces that callers have
    /// begun are recorded if these say so.
    #[schemars(extend("format" = "share", "maximum" = 1))]
    pub sample_ratio: Micros,
    /// Arguments, results and texts of errors in traces.
    pub capture: Capture,
    /// Further attributes of the server, such as `deployment.environment.name`.
    pub resource: BTreeMap<String, String>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            otlp: Otlp::default(),
            service_name: "owlclaw-mcp".to_owned(),
            sample_ratio: Micros::units(1),
            capture: Capture::default(),
            resource: BTreeMap::new(),
        }
    }
}

/// A collector that takes OTLP over HTTP, in protobuf.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Otlp {
    /// Address of the collector, below which `/v1/traces` is; `http://` or `https://`.
    pub endpoint: Option<String>,
    /// Headers that are sent along, such as `Authorization`.
    pub headers: BTreeMap<String, Secret>,
    /// Seconds that one attempt may take.
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: u64,
    /// Authorities that its certificate may come from besides the system's, PEM.
    #[schemars(extend("format" = "path"))]
    pub ca_file: Option<PathBuf>,
}

impl Default for Otlp {
    fn default() -> Self {
        Self {
            endpoint: None,
            headers: BTreeMap::new(),
            timeout_seconds: 10,
            ca_file: None,
        }
    }
}

/// Arguments, results and texts of errors that traces contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capture {
    /// None of them.
    #[default]
    None,
    /// The texts that the ledger has, cut to 16 KiB each: without the secrets that `redaction`
    /// finds.
    Redacted,
}

impl Telemetry {
    /// The share of new traces that is recorded.
    #[expect(clippy::cast_precision_loss, reason = "at most a million")]
    pub fn ratio(&self) -> f64 {
        self.sample_ratio.0.min(ALL) as f64 / ALL as f64
    }
}

impl Otlp {
    /// The headers that are sent along; the name of one that cannot be.
    ///
    /// # Errors
    ///
    /// The name of a header that cannot be sent.
    pub fn headers(&self, environment: &Environment) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let pair = || {
                let value = value.reveal(environment)?;
                let mut value = HeaderValue::try_from(value.trim()).ok()?;
                value.set_sensitive(true);
                Some((HeaderName::try_from(name.as_str()).ok()?, value))
            };
            let (name, value) = pair().ok_or_else(|| name.clone())?;
            headers.insert(name, value);
        }
        Ok(headers)
    }
}

/// Adds the problems of telemetry that can be found without connecting to the collector.
pub(crate) fn check(telemetry: &Telemetry, origins: &Origins, problems: &mut Vec<Problem>) {
    let mut error = |key: &str, message: String, hint: &str| {
        let origin = origin_near(origins, key);
        // The line may hold a secret.
        let problem = Problem::error(origin, message).key(key).without_line();
        problems.push(problem.hint(hint));
    };
    let otlp = &telemetry.otlp;
    match &otlp.endpoint {
        Some(endpoint) => {
            if let Err(why) = ::telemetry::traces_address(endpoint) {
                let message = format!("`telemetry.otlp.endpoint` is no address: {why}");
                let hint = "write one such as `http://localhost:4318`";
                error("telemetry.otlp.endpoint", message, hint);
            }
        }
        None if !otlp.headers.is_empty() => {
            let message = "`telemetry.otlp` has headers and no `endpoint`".to_owned();
            let hint = "write `endpoint: https://…`, or traces go nowhere";
            error("telemetry.otlp.headers", message, hint);
        }
        None => {}
    }
    for header in otlp.headers.keys() {
        if HeaderName::try_from(header.as_str()).is_err() {
            let message = format!("`telemetry.otlp.headers.{header}` is no name of a header");
            let hint = "write one such as `Authorization`";
            error("telemetry.otlp.headers", message, hint);
        }
    }
}
