//! A collector of spans that parses its input strictly, and answers as a test configures it.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use data_encoding::HEXLOWER;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
    },
    common::v1::{AnyValue, KeyValue, any_value},
    trace::v1::{Span, span::SpanKind, status::StatusCode},
};
use prost::Message;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

use crate::wait::GENEROUS;

/// A request is never larger.
const MAX_REQUEST: usize = 16 * 1024 * 1024;

/// Answer of a [`Collector`] to one request.
#[derive(Clone, Debug)]
pub enum CollectorAnswer {
    /// Accepts all spans.
    Take,
    /// Accepts all but so many, and reports their number.
    TakeBut(i64),
    /// Accepts none, with this status and these header lines, such as `Retry-After: 1`.
    Status(u16, &'static [&'static str]),
    /// Never answers.
    Hang,
    /// Closes the connection.
    HangUp,
}

/// A collector of spans, OTLP over HTTP in protobuf, on loopback. Dropping it closes its port, soon;
/// [`Collector::stop`] does at once.
#[derive(Debug)]
pub struct Collector {
    address: SocketAddr,
    seen: Arc<Seen>,
    tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Seen {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    next: VecDeque<CollectorAnswer>,
    requests: Vec<CollectedRequest>,
    spans: Vec<CollectedSpan>,
    faults: Vec<String>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct CollectedRequest {
    /// The path.
    pub path: String,
    /// Headers, with names in lower case.
    pub headers: BTreeMap<String, String>,
    /// Number of its spans.
    pub spans: usize,
}

/// A span that was taken.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "named by OTLP")]
pub struct CollectedSpan {
    pub name: String,
    /// `server`, `client`, `internal`.
    pub kind: String,
    /// Ids are hexadecimal digits; a span without a parent has an empty one.
    pub trace_id: String,
    pub span_id: String,
    pub parent_span_id: String,
    pub trace_state: String,
    pub attributes: BTreeMap<String, Value>,
    /// Trace and span of each.
    pub links: Vec<(String, String)>,
    pub is_error: bool,
    pub status_message: String,
    pub resource: BTreeMap<String, Value>,
    pub start_nanos: u64,
    pub end_nanos: u64,
}

impl Collector {
    /// A collector on a port of its own that takes everything.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub async fn start() -> Self {
        Self::at(0).await
    }

    /// A collector on this port.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub async fn at(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).await;
        let listener = listener.expect("a loopback port can be listened on");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::new(Seen::default());
        let mut tasks = JoinSet::new();
        let shared = Arc::clone(&seen);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self {
            address,
            seen,
            tasks,
        }
    }

    /// Closes its port and all connections.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }

    /// Address to configure as `endpoint`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the answers to the next requests; those after them get [`CollectorAnswer::Take`].
    pub fn answer_next(&self, answers: impl IntoIterator<Item = CollectorAnswer>) {
        self.seen.lock().next.extend(answers);
    }

    /// The requests so far.
    #[must_use]
    pub fn requests(&self) -> Vec<CollectedRequest> {
        self.seen.lock().requests.clone()
    }

    /// The spans taken so far, in the order in which they came.
    ///
    /// # Panics
    ///
    /// If anything that came was not as OTLP has it.
    #[must_use]
    pub fn spans(&self) -> Vec<CollectedSpan> {
        let state = self.seen.lock();
        assert!(state.faults.is_empty(), "{:#?}", state.faults);
        state.spans.clone()
    }

    /// Waits until so many requests have come.
    ///
    /// # Panics
    ///
    /// If they do not come within [`GENEROUS`].
    pub async fn requested(&self, count: usize) {
        let what = format!("{count} requests came");
        self.wait(&what, |state| count <= state.requests.len())
            .await;
    }

    /// Waits until the spans that were taken are as `wanted`, and has them.
    ///
    /// # Panics
    ///
    /// If they are not within [`GENEROUS`], or as for [`Collector::spans`].
    pub async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&[CollectedSpan]) -> bool,
    ) -> Vec<CollectedSpan> {
        self.wait(what, |state| {
            wanted(&state.spans) || !state.faults.is_empty()
        })
        .await;
        self.spans()
    }

    /// Waits until there are so many spans.
    ///
    /// # Panics
    ///
    /// As [`Collector::until`].
    pub async fn spans_of(&self, count: usize) -> Vec<CollectedSpan> {
        let what = format!("{count} spans came");
        self.until(&what, |spans| count <= spans.len()).await
    }

    async fn wait(&self, what: &str, holds: impl Fn(&State) -> bool) {
        let waited = tokio::time::timeout(GENEROUS, async {
            loop {
                let changed = self.seen.changed.notified();
                if holds(&self.seen.lock()) {
                    return;
                }
                changed.await;
            }
        });
        if waited.await.is_err() {
            let state = self.seen.lock();
            let names: Vec<_> = state.spans.iter().map(|it| it.name.as_str()).collect();
            panic!(
                "within {GENEROUS:?} it did not happen that {what}; {} requests, spans {names:?}",
                state.requests.len()
            );
        }
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test has panicked with it")
    }
}

async fn serve(mut stream: TcpStream, seen: Arc<Seen>) {
    let mut buffer = Vec::new();
    loop {
        let Some(request) = whole(&mut buffer) else {
            let mut more = [0; 16 * 1024];
            match stream.read(&mut more).await {
                Ok(0) | Err(_) => return,
                Ok(read) => buffer.extend_from_slice(&more[..read]),
            }
            assert!(buffer.len() < MAX_REQUEST, "a request without an end");
            continue;
        };
        let answer = take(&seen, request);
        seen.changed.notify_waiters();
        let (status, headers, body) = match answer {
            CollectorAnswer::Take => (200, &[][..], Vec::new()),
            CollectorAnswer::TakeBut(rejected) => {
                let answer = ExportTraceServiceResponse {
                    partial_success: Some(ExportTracePartialSuccess {
                        rejected_spans: rejected,
                        error_message: "too old".to_owned(),
                    }),
                };
                (200, &[][..], answer.encode_to_vec())
            }
            CollectorAnswer::Status(status, headers) => (status, headers, Vec::new()),
            CollectorAnswer::Hang => std::future::pending().await,
            CollectorAnswer::HangUp => return,
        };
        let mut head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n",
            body.len()
        );
        for line in headers {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str("\r\n");
        let whole = [head.as_bytes(), &body].concat();
        if stream.write_all(&whole).await.is_err() {
            return;
        }
    }
}

/// Method and path, headers and body.
type Raw = (String, BTreeMap<String, String>, Vec<u8>);

fn whole(buffer: &mut Vec<u8>) -> Option<Raw> {
    let end = buffer.windows(4).position(|it| it == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let mut lines = head.lines();
    let first = lines.next().unwrap_or_default().to_owned();
    let headers: BTreeMap<_, _> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let length = headers.get("content-length")?.parse::<usize>().ok()?;
    let body = buffer.get(end..end + length)?.to_vec();
    buffer.drain(..end + length);
    Some((first, headers, body))
}

fn take(seen: &Seen, (first, headers, body): Raw) -> CollectorAnswer {
    let mut faults = Vec::new();
    let mut words = first.split(' ');
    let (method, path) = (words.next(), words.next().unwrap_or_default().to_owned());
    if method != Some("POST") || !path.ends_with("/v1/traces") {
        faults.push(format!("no request for traces: {first}"));
    }
    let kind = headers.get("content-type").map(String::as_str);
    if kind != Some("application/x-protobuf") {
        faults.push(format!("no protobuf: {kind:?}"));
    }
    let spans = match ExportTraceServiceRequest::decode(body.as_slice()) {
        Ok(export) => {
            // What was left out in reading would be missing when it is written again.
            if export.encode_to_vec() != body {
                faults.push("there is more in the request than OTLP knows".to_owned());
            }
            collected(export, &mut faults)
        }
        Err(error) => {
            faults.push(error.to_string());
            Vec::new()
        }
    };
    let mut state = seen.lock();
    let answer = state.next.pop_front().unwrap_or(CollectorAnswer::Take);
    state.faults.extend(faults);
    state.requests.push(CollectedRequest {
        path,
        headers,
        spans: spans.len(),
    });
    if let CollectorAnswer::Take | CollectorAnswer::TakeBut(_) = answer {
        state.spans.extend(spans);
    }
    answer
}

fn collected(export: ExportTraceServiceRequest, faults: &mut Vec<String>) -> Vec<CollectedSpan> {
    let mut spans = Vec::new();
    for of_resource in export.resource_spans {
        let resource = of_resource.resource.unwrap_or_default();
        let resource = attributes(&resource.attributes, "the resource", faults);
        for of_scope in of_resource.scope_spans {
            if of_scope.scope.is_none_or(|scope| scope.name.is_empty()) {
                faults.push("a scope has no name".to_owned());
            }
            for span in of_scope.spans {
                spans.push(span_of(span, resource.clone(), faults));
            }
        }
    }
    spans
}

fn span_of(
    span: Span,
    resource: BTreeMap<String, Value>,
    faults: &mut Vec<String>,
) -> CollectedSpan {
    let name = span.name.clone();
    let mut check = |holds: bool, what: &str| {
        if !holds {
            faults.push(format!("span `{name}`: {what}"));
        }
    };
    let is_id = |id: &[u8], length| id.len() == length && id.iter().any(|byte| *byte != 0);
    check(!span.name.is_empty(), "it has no name");
    check(is_id(&span.trace_id, 16), "its trace's id is none");
    check(is_id(&span.span_id, 8), "its id is none");
    let parent = &span.parent_span_id;
    check(
        parent.is_empty() || is_id(parent, 8),
        "its parent's id is none",
    );
    check(span.start_time_unix_nano != 0, "it has no beginning");
    check(
        span.start_time_unix_nano <= span.end_time_unix_nano,
        "it ends before it begins",
    );
    check(span.flags & 1 == 1, "it was not sampled");
    check(
        span.dropped_attributes_count == 0,
        "attributes were left out",
    );
    let status = span.status.clone().unwrap_or_default();
    let is_error = status.code() == StatusCode::Error;
    check(
        is_error || status.message.is_empty(),
        "its status has a message and no error",
    );
    let links = span.links.iter().map(|link| {
        (
            HEXLOWER.encode(&link.trace_id),
            HEXLOWER.encode(&link.span_id),
        )
    });
    let kind = match span.kind() {
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        SpanKind::Internal => "internal",
        _ => "another",
    };
    CollectedSpan {
        kind: kind.to_owned(),
        trace_id: HEXLOWER.encode(&span.trace_id),
        span_id: HEXLOWER.encode(&span.span_id),
        parent_span_id: HEXLOWER.encode(&span.parent_span_id),
        trace_state: span.trace_state.clone(),
        links: links.collect(),
        is_error,
        status_message: status.message,
        resource,
        start_nanos: span.start_time_unix_nano,
        end_nanos: span.end_time_unix_nano,
        attributes: attributes(&span.attributes, &name, faults),
        name,
    }
}

fn attributes(list: &[KeyValue], of: &str, faults: &mut Vec<String>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for attribute in list {
        let value = value_of(attribute.value.as_ref());
        let before = all.insert(attribute.key.clone(), value);
        if before.is_some() || attribute.key.is_empty() {
            faults.push(format!(
                "`{of}` has the attribute `{}` twice",
                attribute.key
            ));
        }
    }
    all
}

fn value_of(value: Option<&AnyValue>) -> Value {
    match value.and_then(|it| it.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::BoolValue(it)) => json!(it),
        Some(any_value::Value::IntValue(it)) => json!(it),
        Some(any_value::Value::DoubleValue(it)) => json!(it),
        Some(any_value::Value::ArrayValue(all)) => {
            all.values.iter().map(|it| value_of(Some(it))).collect()
        }
        _ => Value::Null,
    }
}

impl CollectedSpan {
    /// An attribute that is text.
    ///
    /// # Panics
    ///
    /// If there is none of the name, or it is no text.
    #[must_use]
    pub fn text(&self, key: &str) -> &str {
        let value = self.attributes.get(key).and_then(Value::as_str);
        value.unwrap_or_else(|| panic!("`{key}` is no text of {self:#?}"))
    }

    /// Duration of the span.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_nanos(self.end_nanos - self.start_nanos)
    }
}
