use http::{HeaderMap, Uri};
use http_client::{BadUrl, parse_url};
use std::{fmt, time::Duration};

/// Destination of spans, and attributes of their resource.
#[derive(Clone)]
pub struct TelemetryOptions {
    /// The collector: the address below which the signals are, as `OTEL_EXPORTER_OTLP_ENDPOINT` has
    /// it elsewhere, or that of the traces themselves.
    pub endpoint: String,
    /// Additional headers of each request; may be secret.
    pub headers: HeaderMap,
    /// Longest time of one attempt, connecting included.
    pub timeout: Duration,
    /// Authorities besides those of the system: PEM. May be empty.
    pub authorities: Vec<u8>,
    /// The name of the service that the spans are of.
    pub service_name: String,
    /// Version of the service.
    pub service_version: String,
    /// Of traces that begin here, the share that is recorded: 0 to 1. Traces that a caller has begun
    /// are recorded if their context says so.
    pub sample_ratio: f64,
    /// Further attributes of the service.
    pub resource: Vec<(String, String)>,
}

impl fmt::Debug for TelemetryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TelemetryOptions")
            .field("endpoint", &self.endpoint)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("timeout", &self.timeout)
            .field("service_name", &self.service_name)
            .field("service_version", &self.service_version)
            .field("sample_ratio", &self.sample_ratio)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

/// Reason why an address cannot be a collector's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndpoint {
    /// An address that is no URL of `http` or `https` that requests can go to.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// A query in the address.
    #[error("it must not have a query")]
    Query,
}

/// Address for traces below an `endpoint` for all signals; or `endpoint` itself, if it is that of
/// traces.
///
/// # Errors
///
/// [`BadEndpoint`].
pub fn traces_address(endpoint: &str) -> Result<Uri, BadEndpoint> {
    const PATH: &str = "/v1/traces";
    let uri = parse_url(endpoint, &["http", "https"])?;
    if uri.query().is_some() {
        return Err(BadEndpoint::Query);
    }
    let path = uri.path().trim_end_matches('/');
    if path.ends_with(PATH) {
        return Ok(uri);
    }
    let scheme = uri.scheme_str().unwrap_or_default();
    let authority = uri.authority().map_or("", |it| it.as_str());
    let text = format!("{scheme}://{authority}{path}{PATH}");
    text.parse().map_err(|_| BadUrl::Unreadable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_go_below_the_endpoint() {
        let rows = [
            ("http://c:4318", Ok("http://c:4318/v1/traces")),
            ("http://c:4318/", Ok("http://c:4318/v1/traces")),
            (
                "https://c/api/public/otel",
                Ok("https://c/api/public/otel/v1/traces"),
            ),
            (
                "https://c/api/public/otel/",
                Ok("https://c/api/public/otel/v1/traces"),
            ),
            ("https://c/x/v1/traces", Ok("https://c/x/v1/traces")),
            ("http://[::1]:4318", Ok("http://[::1]:4318/v1/traces")),
            ("c:4318", Err(BadUrl::Scheme.into())),
            ("grpc://c:4317", Err(BadUrl::Scheme.into())),
            ("/v1/traces", Err(BadUrl::Scheme.into())),
            ("http://", Err(BadUrl::Host.into())),
            ("", Err(BadUrl::Scheme.into())),
            ("http://u:p@c", Err(BadUrl::Credentials.into())),
            ("http://c:99999", Err(BadUrl::Port.into())),
            ("http://c?x=1", Err(BadEndpoint::Query)),
        ];
        for (endpoint, expected) in rows {
            let address = traces_address(endpoint).map(|uri| uri.to_string());
            assert_eq!(address, expected.map(str::to_owned), "{endpoint}");
        }
    }

    #[test]
    fn what_headers_say_is_not_shown() {
        let mut headers = HeaderMap::new();
        headers.insert("authorization", "Basic hunter2".parse().unwrap());
        let options = TelemetryOptions {
            endpoint: "http://c".to_owned(),
            headers,
            timeout: Duration::from_secs(1),
            authorities: Vec::new(),
            service_name: "s".to_owned(),
            service_version: "1".to_owned(),
            sample_ratio: 1.0,
            resource: Vec::new(),
        };
        let shown = format!("{options:?}");
        assert!(
            shown.contains("authorization") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}
