//! The task that sends spans.

use crate::{
    queue::Queue,
    retry::{LONGEST_ASKED, may_pass, wait_after},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_client::{Client, SendError, retry_after};
use opentelemetry::InstrumentationScope;
use opentelemetry_proto::{
    tonic::{
        collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse},
        resource::v1::Resource,
        trace::v1::{ResourceSpans, ScopeSpans, Span},
    },
    transform::common::tonic::ResourceAttributesWithSchema,
};
use prost::Message;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::time::Instant;

/// The most spans that are sent at once.
pub const MAX_BATCH_SPANS: usize = 512;
/// The most bytes that they have; a single span may have more.
pub const MAX_BATCH_BYTES: usize = 1024 * 1024;
/// Time to wait for more spans before a batch is sent.
const GATHER: Duration = Duration::from_secs(1);
/// Time for which a batch is retried; then the next has its turn.
pub const GIVE_UP_AFTER: Duration = Duration::from_secs(60);
/// Shortest time between two log entries about failures.
const SAY_AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Most characters of a collector's answer that are logged.
const MAX_WORDS: usize = 256;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

pub(crate) struct Exporter {
    pub(crate) queue: Arc<Queue>,
    pub(crate) client: Client,
    pub(crate) address: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) resource: ResourceAttributesWithSchema,
    pub(crate) scope: InstrumentationScope,
}

/// Outcome of one attempt.
#[derive(Debug)]
enum Attempt {
    /// Taken, but for so many.
    Taken { rejected: usize },
    /// Not taken now, for this reason; perhaps after some time.
    Later {
        why: String,
        after: Option<Duration>,
    },
    /// Not taken, and not to be sent again.
    Refused { why: String },
}

/// Failures logged so far.
#[derive(Default)]
struct Told {
    last: Option<Instant>,
}

impl Exporter {
    /// Sends what comes until the queue is closed and empty.
    pub(crate) async fn run(self) {
        let mut told = Told::default();
        while self.gathered().await {
            let batch = self.queue.take(MAX_BATCH_SPANS, MAX_BATCH_BYTES);
            let failed = self.deliver(batch, &mut told).await;
            self.queue.settle(failed);
        }
    }

    /// Waits until there is something worth sending; `false` if nothing will come any more.
    async fn gathered(&self) -> bool {
        let mut until = None;
        loop {
            let (count, is_closed) = (self.queue.len(), self.queue.is_closed());
            if MAX_BATCH_SPANS <= count || (is_closed && count != 0) {
                return true;
            }
            if is_closed {
                return false;
            }
            if count == 0 {
                self.queue.changed().await;
                continue;
            }
            let until = *until.get_or_insert_with(|| Instant::now() + GATHER);
            if tokio::time::timeout_at(until, self.queue.changed())
                .await
                .is_err()
            {
                return true;
            }
        }
    }

    /// Sends a batch until it is accepted or given up; returns the number of spans that were not
    /// accepted.
    async fn deliver(&self, batch: Vec<Span>, told: &mut Told) -> usize {
        let count = batch.len();
        let chance = batch.first().and_then(|it| it.span_id.first());
        let chance = chance.copied().unwrap_or_default();
        let body = self.encode(batch);
        let until = Instant::now() + GIVE_UP_AFTER;
        let mut attempt = 1;
        loop {
            // Asked before: what is under way when the end comes has its chance after it as well.
            let is_last = self.queue.is_closed();
            let (why, after) = match self.attempt(body.clone()).await {
                Attempt::Taken { rejected } => {
                    told.works();
                    return rejected.min(count);
                }
                Attempt::Refused { why } => {
                    told.fails(&self.address, &why, "spans are refused");
                    return count;
                }
                Attempt::Later { why, after } => (why, after),
            };
            told.fails(&self.address, &why, "spans cannot be sent");
            let wait = wait_after(attempt, chance).max(after.unwrap_or_default());
            let next = Instant::now() + wait;
            if is_last || until < next {
                return count;
            }
            self.wait(next).await;
            attempt += 1;
        }
    }

    /// Waits until `next`, or until the end comes.
    async fn wait(&self, next: Instant) {
        while !self.queue.is_closed() {
            let changed = tokio::time::timeout_at(next, self.queue.changed());
            if changed.await.is_err() {
                return;
            }
        }
    }

    fn encode(&self, spans: Vec<Span>) -> Bytes {
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(Resource {
                    attributes: self.resource.attributes.0.clone(),
                    ..Resource::default()
                }),
                scope_spans: vec![ScopeSpans {
                    scope: Some((&self.scope, None).into()),
                    spans,
                    schema_url: String::new(),
                }],
                schema_url: String::new(),
            }],
        };
        request.encode_to_vec().into()
    }

    async fn attempt(&self, body: Bytes) -> Attempt {
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.address.clone();
        let headers = request.headers_mut();
        headers.clone_from(&self.headers);
        headers.insert(header::CONTENT_TYPE, PROTOBUF);
        match self.client.send(request).await {
            Ok(response) => judge(&response),
            Err(error) => judge_error(&error),
        }
    }
}

fn judge(response: &Response<Bytes>) -> Attempt {
    let status = response.status();
    if status.is_success() {
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_protobuf = kind.is_some_and(|kind| {
            let kind = kind.as_bytes().split(|byte| *byte == b';').next();
            kind.is_some_and(|kind| kind.trim_ascii() == PROTOBUF.as_bytes())
        });
        let answer = ExportTraceServiceResponse::decode(response.body().as_ref());
        let partial = answer.ok().filter(|_| is_protobuf);
        let partial = partial.and_then(|it| it.partial_success);
        let rejected = partial.as_ref().map_or(0, |it| it.rejected_spans);
        let rejected = usize::try_from(rejected).unwrap_or(0);
        if let Some(partial) = partial.filter(|_| rejected != 0) {
            let why = beginning(&partial.error_message);
            tracing::warn!(rejected, why, "the collector has not taken all spans");
        }
        return Attempt::Taken { rejected };
    }
    let why = format!("the collector answered with status {}", status.as_u16());
    if may_pass(status) {
        let after = retry_after(response.headers(), SystemTime::now(), LONGEST_ASKED);
        return Attempt::Later { why, after };
    }
    // Its words would be in protobuf; the status is what operators look for.
    Attempt::Refused { why }
}

fn judge_error(error: &SendError) -> Attempt {
    let mut why = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        why.push_str(": ");
        why.push_str(&error.to_string());
        cause = error.source();
    }
    match error {
        SendError::BadAddress(_) | SendError::NotEncrypted => Attempt::Refused { why },
        // It said something, if too much of it; whether it has taken the spans is not known.
        SendError::TooLarge(_) | SendError::LongHeaders => Attempt::Refused { why },
        _ => Attempt::Later { why, after: None },
    }
}

fn beginning(text: &str) -> String {
    text.chars().take(MAX_WORDS).collect()
}

impl Told {
    fn fails(&mut self, address: &Uri, why: &str, what: &'static str) {
        if self.is_due(Instant::now()) {
            tracing::warn!(collector = %address, why, "{what}");
        }
    }

    /// Returns true if a failure is to be logged now.
    fn is_due(&mut self, now: Instant) -> bool {
        let was_said = self.last.is_some_and(|last| now < last + SAY_AGAIN_AFTER);
        if !was_said {
            self.last = Some(now);
        }
        !was_said
    }

    fn works(&mut self) {
        if self.last.take().is_some() {
            tracing::info!("spans are sent again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::collector::trace::v1::ExportTracePartialSuccess;

    #[test]
    fn the_log_is_told_of_a_collector_that_fails_once_a_minute_and_when_it_is_another_time() {
        let mut told = Told::default();
        let begun = Instant::now();
        let after = |seconds| begun + Duration::from_secs(seconds);
        let due: Vec<_> = [0, 1, 59, 60, 61, 119, 120]
            .into_iter()
            .filter(|seconds| told.is_due(after(*seconds)))
            .collect();
        assert_eq!(due, [0, 60, 120]);
        told.works();
        assert!(told.is_due(after(121)));
    }

    #[test]
    fn an_answer_is_read_if_it_says_that_it_is_one() {
        let partial = ExportTraceServiceResponse {
            partial_success: Some(ExportTracePartialSuccess {
                rejected_spans: 3,
                error_message: "too old".to_owned(),
            }),
        };
        let body = Bytes::from(partial.encode_to_vec());
        let rows = [
            (Some("application/x-protobuf"), 3),
            (Some("application/x-protobuf; charset=utf-8"), 3),
            (Some("text/plain"), 0),
            (None, 0),
        ];
        for (kind, expected) in rows {
            let mut response = Response::new(body.clone());
            if let Some(kind) = kind {
                let kind = HeaderValue::from_static(kind);
                response.headers_mut().insert(header::CONTENT_TYPE, kind);
            }
            let Attempt::Taken { rejected } = judge(&response) else {
                panic!("{kind:?} is a success");
            };
            assert_eq!(rejected, expected, "{kind:?}");
        }
    }
}
