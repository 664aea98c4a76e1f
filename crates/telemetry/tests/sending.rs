//! Spans reach a collector, whatever the collector does.

#![allow(clippy::unwrap_used)]

use opentelemetry::{
    Context, KeyValue,
    trace::{
        Span, SpanContext, SpanId, SpanKind, TraceContextExt, TraceFlags, TraceId, TraceState,
        Tracer,
    },
};
use std::time::{Duration, Instant};
use telemetry::{MAX_BATCH_SPANS, MAX_QUEUED_SPANS, Stats, Telemetry, TelemetryOptions};
use testkit::{Collector, CollectorAnswer, GENEROUS, free_port, wait_until};

fn options(endpoint: String) -> TelemetryOptions {
    TelemetryOptions {
        endpoint,
        headers: http::HeaderMap::new(),
        timeout: Duration::from_secs(10),
        authorities: Vec::new(),
        service_name: "shop".to_owned(),
        service_version: "1.2.3".to_owned(),
        sample_ratio: 1.0,
        resource: vec![("deployment.environment.name".to_owned(), "test".to_owned())],
    }
}

fn start(collector: &Collector) -> Telemetry {
    Telemetry::start(options(collector.endpoint())).unwrap()
}

fn end_one(telemetry: &Telemetry, name: &'static str) {
    telemetry
        .tracer()
        .start_with_context(name, &Context::new())
        .end();
}

async fn settled(telemetry: &Telemetry) -> Stats {
    wait_until("everything is settled", GENEROUS, || {
        telemetry.stats().queued == 0
    })
    .await;
    telemetry.stats()
}

#[tokio::test]
async fn a_span_arrives_as_it_was() {
    let collector = Collector::start().await;
    let mut options = options(format!("{}/api/public/otel", collector.endpoint()));
    options
        .headers
        .insert("authorization", "Basic abc".parse().unwrap());
    let telemetry = Telemetry::start(options).unwrap();
    let state: TraceState = "a=1,b=2".parse().unwrap();
    let parent = SpanContext::new(
        TraceId::from(7_u128),
        SpanId::from(9_u64),
        TraceFlags::SAMPLED,
        true,
        state,
    );
    let tracer = telemetry.tracer();
    let builder = tracer
        .span_builder("tools/call add")
        .with_kind(SpanKind::Server)
        .with_attributes([KeyValue::new("n", 1_i64), KeyValue::new("s", "x")]);
    let parent = Context::new().with_remote_span_context(parent);
    let mut span = tracer.build_with_context(builder, &parent);
    span.set_status(opentelemetry::trace::Status::error("broken"));
    span.end();
    let spans = collector.spans_of(1).await;
    let span = &spans[0];
    assert_eq!(
        (span.name.as_str(), span.kind.as_str()),
        ("tools/call add", "server")
    );
    assert_eq!(span.trace_id, format!("{:032x}", 7));
    assert_eq!(span.parent_span_id, format!("{:016x}", 9));
    assert_eq!(span.trace_state, "a=1,b=2");
    assert_eq!(span.attributes["n"], 1);
    assert_eq!(span.text("s"), "x");
    assert!(span.is_error);
    assert_eq!(span.status_message, "broken");
    assert_eq!(span.resource["service.name"], "shop");
    assert_eq!(span.resource["service.version"], "1.2.3");
    assert_eq!(span.resource["deployment.environment.name"], "test");
    let request = &collector.requests()[0];
    assert_eq!(request.path, "/api/public/otel/v1/traces");
    assert_eq!(request.headers["authorization"], "Basic abc");
    assert_eq!(settled(&telemetry).await.sent, 1);
}

#[tokio::test]
async fn spans_are_sent_together() {
    let collector = Collector::start().await;
    let telemetry = start(&collector);
    for _ in 0..MAX_BATCH_SPANS + 1 {
        end_one(&telemetry, "one");
    }
    collector.spans_of(MAX_BATCH_SPANS + 1).await;
    let sizes: Vec<_> = collector.requests().iter().map(|it| it.spans).collect();
    assert_eq!(sizes, [MAX_BATCH_SPANS, 1]);
}

#[tokio::test]
async fn what_may_pass_is_sent_again_when_the_collector_says() {
    let collector = Collector::start().await;
    collector.answer_next([
        CollectorAnswer::Status(503, &[]),
        CollectorAnswer::HangUp,
        CollectorAnswer::Status(429, &["Retry-After: 6"]),
    ]);
    let telemetry = start(&collector);
    let begun = Instant::now();
    end_one(&telemetry, "one");
    let spans = collector.spans_of(1).await;
    // More than all that it would have waited by itself.
    assert!(
        Duration::from_secs(6) <= begun.elapsed(),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(spans.len(), 1);
    let stats = settled(&telemetry).await;
    assert_eq!((stats.sent, stats.failed, stats.dropped), (1, 0, 0));
}

#[tokio::test]
async fn what_would_have_to_wait_for_too_long_is_given_up_for_what_comes_next() {
    let collector = Collector::start().await;
    collector.answer_next([CollectorAnswer::Status(503, &["Retry-After: 3600"])]);
    let telemetry = start(&collector);
    end_one(&telemetry, "not wanted");
    let stats = settled(&telemetry).await;
    assert_eq!((stats.sent, stats.failed), (0, 1));
    end_one(&telemetry, "the next");
    assert_eq!(collector.spans_of(1).await[0].name, "the next");
}

#[tokio::test]
async fn operators_say_who_the_server_is_whatever_it_would_say() {
    let collector = Collector::start().await;
    let mut options = options(collector.endpoint());
    let own = [("service.name", "till"), ("service.instance.id", "till-7")];
    options.resource = own
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    let telemetry = Telemetry::start(options).unwrap();
    end_one(&telemetry, "one");
    let resource = &collector.spans_of(1).await[0].resource;
    for (key, value) in own {
        assert_eq!(resource[key], value, "{resource:?}");
    }
    assert_eq!(resource["service.version"], "1.2.3");
}

#[tokio::test]
async fn what_is_refused_is_not_sent_again() {
    let collector = Collector::start().await;
    collector.answer_next([
        CollectorAnswer::Status(400, &[]),
        CollectorAnswer::TakeBut(1),
    ]);
    let telemetry = start(&collector);
    end_one(&telemetry, "refused");
    collector.requested(1).await;
    assert_eq!(settled(&telemetry).await.failed, 1);
    end_one(&telemetry, "rejected");
    end_one(&telemetry, "taken");
    collector.requested(2).await;
    let stats = settled(&telemetry).await;
    assert_eq!((stats.sent, stats.failed), (1, 2));
    assert_eq!(collector.requests().len(), 2);
}

#[tokio::test]
async fn a_collector_may_come_later_and_go_and_come_back() {
    let port = free_port();
    let telemetry = Telemetry::start(options(format!("http://127.0.0.1:{port}"))).unwrap();
    end_one(&telemetry, "early");
    let collector = Collector::at(port).await;
    assert_eq!(collector.spans_of(1).await[0].name, "early");
    collector.stop().await;
    end_one(&telemetry, "while it was away");
    let collector = Collector::at(port).await;
    assert_eq!(collector.spans_of(1).await[0].name, "while it was away");
    assert_eq!(settled(&telemetry).await.sent, 2);
}

#[tokio::test]
async fn a_collector_that_hangs_keeps_nobody_and_what_is_too_much_is_counted() {
    let collector = Collector::start().await;
    collector.answer_next([CollectorAnswer::Hang]);
    let telemetry = Telemetry::start(TelemetryOptions {
        timeout: Duration::from_secs(600),
        ..options(collector.endpoint())
    })
    .unwrap();
    end_one(&telemetry, "hangs");
    collector.requested(1).await;
    let begun = Instant::now();
    for _ in 0..MAX_QUEUED_SPANS + 10 {
        end_one(&telemetry, "more");
    }
    assert!(begun.elapsed() < GENEROUS, "{:?}", begun.elapsed());
    let stats = telemetry.stats();
    assert_eq!((stats.dropped, stats.queued), (10, MAX_QUEUED_SPANS + 1));
    // And the end does not wait for it.
    let begun = Instant::now();
    telemetry.close(Duration::from_millis(100)).await;
    assert!(begun.elapsed() < GENEROUS);
    let stats = telemetry.stats();
    assert_eq!(
        (stats.failed as usize, stats.queued),
        (MAX_QUEUED_SPANS + 1, 0)
    );
}

#[tokio::test]
async fn the_end_sends_what_is_left_at_once_and_nothing_after_it() {
    let collector = Collector::start().await;
    let telemetry = start(&collector);
    for _ in 0..3 * MAX_BATCH_SPANS {
        end_one(&telemetry, "last");
    }
    telemetry.close(GENEROUS).await;
    assert_eq!(collector.spans().len(), 3 * MAX_BATCH_SPANS);
    end_one(&telemetry, "too late");
    telemetry.close(GENEROUS).await;
    let stats = telemetry.stats();
    assert_eq!(
        (stats.sent as usize, stats.dropped),
        (3 * MAX_BATCH_SPANS, 1)
    );
}

#[tokio::test]
async fn the_end_interrupts_a_wait_and_tries_once_more() {
    let collector = Collector::start().await;
    collector.answer_next([CollectorAnswer::Status(503, &["Retry-After: 50"])]);
    let telemetry = start(&collector);
    end_one(&telemetry, "waits");
    collector.requested(1).await;
    let begun = Instant::now();
    telemetry.close(GENEROUS).await;
    assert!(begun.elapsed() < GENEROUS);
    assert_eq!(collector.spans().len(), 1);
    assert_eq!(telemetry.stats().sent, 1);
}

#[tokio::test]
async fn of_new_traces_a_share_is_recorded_and_of_others_what_their_callers_record() {
    let collector = Collector::start().await;
    let mut options = options(collector.endpoint());
    options.sample_ratio = 0.0;
    let telemetry = Telemetry::start(options).unwrap();
    let tracer = telemetry.tracer();
    let below = |flags| {
        let parent = SpanContext::new(
            TraceId::from(7_u128),
            SpanId::from(9_u64),
            flags,
            true,
            TraceState::NONE,
        );
        Context::new().with_remote_span_context(parent)
    };
    let own = tracer.start_with_context("own", &Context::new());
    // It is part of a trace all the same, for those it calls.
    assert!(own.span_context().is_valid() && !own.span_context().is_sampled());
    drop(own);
    drop(tracer.start_with_context("not recorded", &below(TraceFlags::NOT_SAMPLED)));
    drop(tracer.start_with_context("recorded", &below(TraceFlags::SAMPLED)));
    telemetry.close(GENEROUS).await;
    let names: Vec<_> = collector.spans().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["recorded"]);
}

#[tokio::test]
async fn an_address_that_cannot_be_is_refused_at_the_start() {
    for bad in ["collector:4318", "http://user:secret@c"] {
        let error = Telemetry::start(options(bad.to_owned())).unwrap_err();
        assert!(!format!("{error:?}").contains("secret"));
    }
}
