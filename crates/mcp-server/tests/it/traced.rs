//! Spans that are made of requests, and the messages that carry them.

use crate::house::{Bench, House, PRICE, Setup, policy};
use adapter_tools::{Errand, Tool, ToolCx};
use governance::Rules;
use mcp_server::{Capture, Tracing};
use opentelemetry::{
    Context, Value as Attribute,
    trace::{SpanId, SpanKind, Status, TracerProvider},
};
use opentelemetry_sdk::{
    error::OTelSdkResult,
    trace::{Sampler, SdkTracerProvider, SpanData, SpanProcessor},
};
use serde_json::{Value, json};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use testkit::{Conversation, GENEROUS, MODERN, wait_until};

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Keeps what has ended.
#[derive(Clone, Debug, Default)]
struct Kept(Arc<Mutex<Vec<SpanData>>>);

impl SpanProcessor for Kept {
    fn on_start(&self, _: &mut opentelemetry_sdk::trace::Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        self.0.lock().unwrap().push(span);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Kept {
    fn setup(&self, capture: Capture, sampler: Sampler) -> Setup {
        let provider = SdkTracerProvider::builder()
            .with_sampler(Sampler::ParentBased(Box::new(sampler)))
            .with_span_processor(self.clone())
            .build();
        let tracer = provider.tracer("test");
        let bench = Bench::new();
        Setup {
            tracing: Some(Tracing { tracer, capture }),
            more_tools: vec![where_it_is(&bench), errand(&bench)],
            bench,
            ..Setup::default()
        }
    }

    fn house(&self, capture: Capture) -> House {
        self.setup(capture, Sampler::AlwaysOn).build()
    }

    async fn ended(&self, count: usize) -> Vec<SpanData> {
        let what = format!("{count} spans end");
        wait_until(&what, GENEROUS, || count <= self.0.lock().unwrap().len()).await;
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Tells where in a trace it is called.
fn where_it_is(bench: &Bench) -> Tool {
    bench.tool("where", json!({}), &[], |cx: ToolCx, _| async move {
        Ok(json!({ "parent": cx.traceparent, "state": cx.tracestate }).into())
    })
}

/// Asks a service three times, as it were, and tells how it said where it is.
fn errand(bench: &Bench) -> Tool {
    bench.tool("errand", json!({}), &[], |cx: ToolCx, _| async move {
        let begin = |resent| {
            cx.begin_errand(&Errand {
                method: "POST",
                scheme: "https",
                host: "service.example",
                port: None,
                resent,
            })
        };
        let Some(first) = begin(0) else {
            return Ok(json!({ "parent": null }).into());
        };
        let parent = first.traceparent();
        first.answered(503);
        begin(1).unwrap().failed("timeout");
        drop(begin(2));
        Ok(json!({ "parent": parent }).into())
    })
}

fn text<'a>(span: &'a SpanData, key: &str) -> Option<&'a str> {
    let mut found = span.attributes.iter().filter(|it| it.key.as_str() == key);
    let value = found.next().map(|it| &it.value);
    assert!(found.next().is_none(), "{key} is there twice");
    match value? {
        Attribute::String(text) => Some(text.as_str()),
        _ => None,
    }
}

fn number(span: &SpanData, key: &str) -> Option<f64> {
    let found = span.attributes.iter().find(|it| it.key.as_str() == key);
    match found?.value {
        Attribute::F64(number) => Some(number),
        _ => None,
    }
}

/// The one of this kind.
fn of(spans: &[SpanData], kind: SpanKind) -> &SpanData {
    let mut found = spans.iter().filter(|it| it.span_kind == kind);
    let span = found
        .next()
        .unwrap_or_else(|| panic!("{kind:?} in {spans:#?}"));
    assert!(found.next().is_none(), "two {kind:?} in {spans:#?}");
    span
}

fn is_error(span: &SpanData) -> bool {
    matches!(span.status, Status::Error { .. })
}

fn structured(answer: &Value) -> Value {
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

#[tokio::test]
async fn a_call_is_a_span_with_the_tool_below_it() {
    let kept = Kept::default();
    let house = kept.house(Capture::None);
    let mut client = house.connect("anna", MODERN).await;
    let params = json!({ "name": "priced", "arguments": {},
                         "_meta": { "traceparent": TRACE, "tracestate": "a=1" } });
    let id = client.begin("tools/call", params).await;
    client.receive_answer(&id).await;
    let spans = kept.ended(2).await;
    let (server, tool) = (of(&spans, SpanKind::Server), of(&spans, SpanKind::Internal));
    assert_eq!(
        (&*server.name, &*tool.name),
        ("tools/call priced", "execute_tool priced")
    );
    for span in [server, tool] {
        assert_eq!(span.span_context.trace_id().to_string(), TRACE[3..35]);
        assert_eq!(span.span_context.trace_state().header(), "a=1");
        assert_eq!(text(span, "gen_ai.tool.name"), Some("priced"));
        assert_eq!(text(span, "gen_ai.operation.name"), Some("execute_tool"));
        assert_eq!(text(span, "owlclaw.principal"), Some("anna"));
        assert_eq!(text(span, "user.id"), Some("anna"));
        assert_eq!(number(span, "owlclaw.cost"), Some(0.005));
        assert!(!is_error(span) && text(span, "error.type").is_none());
    }
    assert_eq!(server.parent_span_id.to_string(), TRACE[36..52]);
    assert_eq!(tool.parent_span_id, server.span_context.span_id());
    let expected = [
        ("mcp.method.name", "tools/call"),
        ("mcp.protocol.version", MODERN),
        ("jsonrpc.request.id", &id.to_string()),
        ("network.transport", "pipe"),
        ("owlclaw.decision", "allow"),
        ("langfuse.observation.type", "span"),
    ];
    for (key, value) in expected {
        assert_eq!(text(server, key), Some(value), "{key}");
    }
    // What Langfuse counts is said once.
    assert_eq!(text(server, "langfuse.observation.cost_details"), None);
    let details = text(tool, "langfuse.observation.cost_details");
    assert_eq!(details, Some(r#"{"total":0.005}"#));
    assert_eq!(text(tool, "langfuse.observation.type"), Some("tool"));
    // The record and the span find each other.
    let call = &crate::tasks_house::calls(&house).await[0];
    assert_eq!(call.started.trace_id.as_deref(), Some(&TRACE[3..35]));
    let id = text(server, "owlclaw.call.id").unwrap();
    assert_eq!(text(tool, "owlclaw.call.id"), Some(id));
    assert_eq!(house.ledger.entries()[0].call.to_string(), id);
    assert_eq!(call.ended.cost_micros, PRICE);
}

#[tokio::test]
async fn the_tool_is_told_of_its_own_span_and_a_trace_begins_where_there_is_none() {
    let kept = Kept::default();
    let house = kept.house(Capture::None);
    let mut client = house.connect("anna", MODERN).await;
    let answer = client
        .ask("tools/call", json!({ "name": "where", "arguments": {} }))
        .await;
    let told = structured(&answer);
    let spans = kept.ended(2).await;
    let (server, tool) = (of(&spans, SpanKind::Server), of(&spans, SpanKind::Internal));
    assert_eq!(server.parent_span_id, SpanId::INVALID);
    let context = &tool.span_context;
    let expected = format!("00-{}-{}-01", context.trace_id(), context.span_id());
    assert_eq!(told, json!({ "parent": expected, "state": null }));
    let call = &crate::tasks_house::calls(&house).await[0];
    assert_eq!(call.started.trace_id, Some(context.trace_id().to_string()));
}

#[tokio::test]
async fn without_a_tracer_the_callers_trace_is_passed_on_as_it_came() {
    let bench = Bench::new();
    let house = Setup {
        more_tools: vec![where_it_is(&bench), errand(&bench)],
        bench,
        ..Setup::default()
    };
    let house = house.build();
    let mut client = house.connect("anna", MODERN).await;
    let meta = json!({ "traceparent": TRACE, "tracestate": "a=1" });
    let params = json!({ "name": "where", "arguments": {}, "_meta": meta });
    let answer = client.ask("tools/call", params).await;
    assert_eq!(
        structured(&answer),
        json!({ "parent": TRACE, "state": "a=1" })
    );
    let answer = client
        .ask("tools/call", json!({ "name": "where", "arguments": {} }))
        .await;
    assert_eq!(
        structured(&answer),
        json!({ "parent": null, "state": null })
    );
    let answer = client
        .ask("tools/call", json!({ "name": "errand", "arguments": {} }))
        .await;
    assert_eq!(structured(&answer), json!({ "parent": null }));
}

#[tokio::test]
async fn what_is_not_sampled_is_no_span_and_a_place_in_the_trace_all_the_same() {
    let kept = Kept::default();
    let house = kept.setup(Capture::None, Sampler::AlwaysOff).build();
    let mut client = house.connect("anna", MODERN).await;
    let call = |trace: Option<&str>| json!({ "name": "where", "arguments": {}, "_meta": { "traceparent": trace } });
    let own = structured(&client.ask("tools/call", call(None)).await);
    assert!(own["parent"].as_str().unwrap().ends_with("-00"), "{own}");
    let not_recorded = TRACE.replace("-01", "-00");
    let below = structured(&client.ask("tools/call", call(Some(&not_recorded))).await);
    let below = below["parent"].as_str().unwrap();
    assert!(
        below.starts_with(&TRACE[..35]) && below.ends_with("-00"),
        "{below}"
    );
    assert_ne!(below[36..52], TRACE[36..52]);
    // Only what its caller records.
    client.ask("tools/call", call(Some(TRACE))).await;
    assert_eq!(kept.ended(2).await.len(), 2);
}

#[tokio::test]
async fn refusals_and_failures_are_said() {
    let kept = Kept::default();
    let denied = policy(Rules {
        deny: vec!["tool/add".to_owned()],
        ..Rules::default()
    });
    let house = Setup {
        policy: denied,
        ..kept.setup(Capture::None, Sampler::AlwaysOn)
    };
    let house = house.build();
    let mut client = house.connect("anna", MODERN).await;
    let call = |name: &str| json!({ "name": name, "arguments": {} });
    client
        .ask(
            "tools/call",
            json!({ "name": "add", "arguments": { "a": 1, "b": 2 } }),
        )
        .await;
    let spans = kept.ended(1).await;
    // Nothing ran.
    let server = of(&spans, SpanKind::Server);
    assert_eq!(text(server, "owlclaw.decision"), Some("deny"));
    assert_eq!(text(server, "owlclaw.reason"), Some("permission"));
    // It is answered by a result, and OpenTelemetry's name for those is this.
    assert_eq!(text(server, "error.type"), Some("tool_error"));
    assert_eq!(text(server, "rpc.response.status_code"), None);
    assert_eq!(text(server, "owlclaw.cost"), None);
    assert!(is_error(server) && spans.len() == 1);
    // A name that means nothing is nobody's name for a span.
    client.ask("tools/call", call("drop table")).await;
    let spans = kept.ended(1).await;
    assert_eq!(spans[0].name, "tools/call");
    assert!(!format!("{spans:?}").contains("drop table"));
    for (name, of_request, of_tool) in [
        ("fail", "tool_error", "tool_error"),
        ("crash", "tool_error", "crashed"),
        ("busy", "tool_error", "busy"),
        ("broken", "-32603", "internal_error"),
    ] {
        client.ask("tools/call", call(name)).await;
        let spans = kept.ended(2).await;
        let (server, tool) = (of(&spans, SpanKind::Server), of(&spans, SpanKind::Internal));
        assert_eq!(text(tool, "error.type"), Some(of_tool), "{name}");
        assert_eq!(text(server, "error.type"), Some(of_request), "{name}");
        assert!(is_error(server) && is_error(tool));
        let said = format!("{spans:?}");
        assert!(
            !said.contains("secret") && !said.contains("the order"),
            "{said}"
        );
    }
    let params = json!({ "uri": "skill://nowhere/at-all" });
    client.ask("resources/read", params).await;
    let spans = kept.ended(1).await;
    assert_eq!(spans[0].name, "resources/read");
    assert!(is_error(&spans[0]));
}

#[tokio::test]
async fn what_was_said_is_captured_only_if_asked_for_and_without_secrets() {
    let call = json!({ "name": "fail", "arguments": { "micros": 7 } });
    let secret = json!({ "name": "add", "arguments": { "a": 4111, "b": 1 } });
    for capture in [Capture::None, Capture::Redacted] {
        let kept = Kept::default();
        let house = kept.house(capture);
        let mut client = house.connect("anna", MODERN).await;
        client.ask("tools/call", secret.clone()).await;
        let spans = kept.ended(2).await;
        let tool = of(&spans, SpanKind::Internal);
        let captured = (capture == Capture::Redacted).then_some(r#"{"a":4111,"b":1}"#);
        let arguments = text(tool, "gen_ai.tool.call.arguments");
        assert_eq!(arguments.map(|it| it.replace(' ', "")).as_deref(), captured);
        assert_eq!(text(tool, "langfuse.observation.input"), arguments);
        let result = text(tool, "gen_ai.tool.call.result");
        assert_eq!(result, captured.map(|_| r#"{"sum":4112}"#));
        assert_eq!(text(tool, "langfuse.observation.output"), result);
        // Ids and times may have these digits too.
        let said = spans
            .iter()
            .map(|it| (&it.name, &it.attributes, &it.status));
        assert_eq!(
            format!("{:?}", said.collect::<Vec<_>>()).contains("411"),
            capture == Capture::Redacted
        );
        client.ask("tools/call", call.clone()).await;
        let spans = kept.ended(2).await;
        let Status::Error { description } = &of(&spans, SpanKind::Internal).status else {
            panic!("{spans:?}");
        };
        let says = description.contains("the order is gone");
        assert_eq!(says, capture == Capture::Redacted, "{description}");
    }
}

#[tokio::test]
async fn secrets_are_taken_out_of_what_is_captured() {
    let kept = Kept::default();
    let bench = Bench::new();
    let parameters = json!({ "password": { "type": "string" } });
    let echo = bench.tool("login", parameters, &[], |_, it| async move {
        Ok(json!({ "token": it["password"] }).into())
    });
    let house = Setup {
        more_tools: vec![echo],
        bench,
        ..kept.setup(Capture::Redacted, Sampler::AlwaysOn)
    };
    let house = house.build();
    let mut client = house.connect("anna", MODERN).await;
    let params = json!({ "name": "login", "arguments": { "password": "hunter2" } });
    client.ask("tools/call", params).await;
    let spans = kept.ended(2).await;
    assert!(text(of(&spans, SpanKind::Internal), "gen_ai.tool.call.arguments").is_some());
    assert!(!format!("{spans:?}").contains("hunter2"), "{spans:?}");
}

#[tokio::test]
async fn what_is_given_up_ends_its_spans() {
    let kept = Kept::default();
    let house = kept.house(Capture::None);
    let mut client = house.connect("anna", MODERN).await;
    let id = client
        .begin(
            "tools/call",
            json!({ "name": "wait", "arguments": { "micros": 9 } }),
        )
        .await;
    house.bench.begun().await;
    client
        .notify("notifications/cancelled", json!({ "requestId": id }))
        .await;
    let spans = kept.ended(2).await;
    for kind in [SpanKind::Server, SpanKind::Internal] {
        assert_eq!(text(of(&spans, kind), "error.type"), Some("cancelled"));
    }
    assert_eq!(
        number(of(&spans, SpanKind::Internal), "owlclaw.cost"),
        Some(0.000_009)
    );
}

#[tokio::test]
async fn each_request_of_a_batch_has_its_own_place() {
    let kept = Kept::default();
    let house = kept.house(Capture::None);
    let mut client = house.connect("anna", "2025-03-26").await;
    let other = TRACE.replace("0af7", "1bf7");
    let call = |id: u32, trace: Option<&str>| {
        json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call",
                "params": { "name": "where", "arguments": {}, "_meta": { "traceparent": trace } } })
    };
    let batch = json!([
        call(101, Some(TRACE)),
        call(102, Some(&other)),
        call(103, None)
    ]);
    client.send(&batch).await;
    let spans = kept.ended(6).await;
    let servers: Vec<_> = spans
        .iter()
        .filter(|it| it.span_kind == SpanKind::Server)
        .collect();
    let trace_of = |id: &str| {
        let span = servers
            .iter()
            .find(|it| text(it, "jsonrpc.request.id") == Some(id));
        span.unwrap().span_context.trace_id().to_string()
    };
    assert_eq!(trace_of("101"), TRACE[3..35]);
    assert_eq!(trace_of("102"), other[3..35]);
    assert!(![&TRACE[3..35], &other[3..35]].contains(&&*trace_of("103")));
}

#[tokio::test]
async fn requests_to_services_are_spans_below_the_tool() {
    let kept = Kept::default();
    let house = kept.house(Capture::Redacted);
    let mut client = house.connect("anna", MODERN).await;
    let answer = client
        .ask("tools/call", json!({ "name": "errand", "arguments": {} }))
        .await;
    let spans = kept.ended(5).await;
    let tool = of(&spans, SpanKind::Internal);
    let errands: Vec<_> = spans
        .iter()
        .filter(|it| it.span_kind == SpanKind::Client)
        .collect();
    assert_eq!(errands.len(), 3);
    for errand in &errands {
        assert_eq!(errand.name, "POST");
        assert_eq!(errand.parent_span_id, tool.span_context.span_id());
        assert_eq!(text(errand, "server.address"), Some("service.example"));
        assert!(is_error(errand));
    }
    let kinds: Vec<_> = errands
        .iter()
        .map(|it| text(it, "error.type").unwrap())
        .collect();
    assert_eq!(kinds, ["503", "timeout", "cancelled"]);
    let context = &errands[0].span_context;
    let expected = format!("00-{}-{}-01", context.trace_id(), context.span_id());
    assert_eq!(structured(&answer), json!({ "parent": expected }));
}
